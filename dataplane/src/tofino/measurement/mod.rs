//! What a switch measures, a file each: its names in `p4/flowgauge.p4`, how that is compiled, its
//! tables and registers, and what these say.
//!
//! A new measurement is a file with an [`OnSwitch`], its `mod`, and a line in the list below.
//! Nothing else knows a measurement by name.

mod cardinality;
mod delay;
mod entropy;
mod frequency;
mod heavy;
mod membership;
mod reorder;
mod rows;
mod sizes;

use super::array::{self, Array, Cells};
use super::table::{Filling, Held, MatchTable};
use super::{hash, names};
use crate::capabilities::Capabilities;
use crate::error::Failure;
use flowgauge_bfruntime::schema::{Schema, Table};
use flowgauge_core::{Grid, KeyKind, MeasurementKind, Settings, WideBank};

pub(super) use cardinality::Staggered;
pub(super) use delay::{Samples, set_shares};
pub(super) use entropy::alarms::{self, Alarms};
pub(super) use entropy::{NO_THRESHOLDS, difference, thresholds};
pub(super) use rows::ROWS;

/// A measurement on a switch.
pub(super) trait OnSwitch: Sync {
    /// Which it is, and the definition that switches it on.
    fn kind(&self) -> (MeasurementKind, &'static str);

    /// What the definition is if the measurement is on.
    fn value(&self, _settings: &Settings) -> u32 {
        1
    }

    /// Refuses what no program does.
    fn check(&self, _wanted: &Settings) -> Result<(), Failure> {
        Ok(())
    }

    /// Finds in a program's schema how it measures; what it does not measure is off.
    fn find(&self, schema: &Schema, settings: &mut Settings) -> Result<(), Failure>;

    /// What a program has that measures so, and has it on.
    fn layout(&self, settings: &Settings) -> Layout;

    /// What a program that measures so may have besides, for others to read: it is filled and
    /// emptied like the rest.
    fn extras(&self, _settings: &Settings) -> (Vec<Array>, Vec<MatchTable>) {
        (Vec::new(), Vec::new())
    }

    /// Adds what its arrays hold to an empty bank with counters. Tells how many elements are left
    /// out, because they changed while they were read.
    fn merge(&self, settings: &Settings, arrays: &[Cells], bank: &mut WideBank) -> usize;

    /// Narrows what a program can do to what this one does.
    fn capabilities(&self, _settings: &Settings, _capabilities: &mut Capabilities) {}
}

/// What a program has of a measurement.
pub(super) struct Layout {
    /// By which key and how.
    description: String,
    /// The compiler's definitions.
    definitions: Vec<(&'static str, u32)>,
    arrays: Vec<Array>,
    /// If it counts in rows, whose words it shares with others: by which keys, and how many there
    /// are.
    rows: Option<(Vec<KeyKind>, Grid)>,
    /// The match tables that it does not share.
    tables: Vec<MatchTable>,
}

macro_rules! measurements {
    ($($module:ident: $Name:ident;)*) => {
        /// All of them. The order is that in which they are read, and their tables filled.
        pub(super) const ALL: &[&dyn OnSwitch] = &[$(&$module::$Name),*];
    };
}

measurements! {
    cardinality: Cardinality;
    entropy: Entropy;
    frequency: Frequency;
    membership: Membership;
    heavy: Heavy;
    sizes: Sizes;
    delay: Delay;
    reorder: Reorder;
}

/// One measurement of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// Which.
    pub kind: MeasurementKind,
    /// By which key and how; nothing if it is off.
    pub description: Option<String>,
    /// The compiler's definitions, as in `-DFLOWGAUGE_KEY=0`.
    pub definitions: Vec<(&'static str, u32)>,
}

/// The measurements of a program that counts as these settings ask, and how to compile it. What is
/// off is defined as off.
///
/// # Errors
/// [`Failure::Program`] if no program does.
pub fn builds(settings: &Settings) -> Result<Vec<Build>, Failure> {
    if settings.headers.inner {
        return Err(Failure::program("it opens no tunnels (--inner)"));
    }
    let is_known =
        |kind: &MeasurementKind| ALL.iter().any(|measurement| measurement.kind().0 == *kind);
    if let Some(kind) =
        MeasurementKind::ALL.iter().find(|kind| kind.is_on(settings) && !is_known(kind))
    {
        return Err(Failure::program(format!("there is no P4 that measures {}", kind.name())));
    }
    ALL.iter().try_for_each(|measurement| measurement.check(settings))?;
    let build = |measurement: &&dyn OnSwitch| {
        let (kind, switch) = measurement.kind();
        let layout = layout(*measurement, settings);
        let rows =
            layout.as_ref().and_then(|layout| layout.rows.as_ref()).map(|(_, grid)| grid.rows());
        if let Some(rows) = rows.filter(|rows| *rows != ROWS) {
            return Err(Failure::program(format!(
                "it has {ROWS} rows for {}, {rows} are wanted",
                kind.name()
            )));
        }
        let on = (switch, layout.as_ref().map_or(0, |_| measurement.value(settings)));
        let (description, details) =
            layout.map(|layout| (layout.description, layout.definitions)).unzip();
        Ok(Build {
            kind,
            description,
            definitions: [on].into_iter().chain(details.unwrap_or_default()).collect(),
        })
    };
    ALL.iter().map(build).collect()
}

/// The compiler's definitions of all [`builds`].
///
/// # Errors
/// As of [`builds`].
pub fn definitions(settings: &Settings) -> Result<Vec<(&'static str, u32)>, Failure> {
    Ok(builds(settings)?.into_iter().flat_map(|build| build.definitions).collect())
}

/// What a program measures. All that it takes is looked up once, so that nothing can be missing
/// later.
pub(super) fn find(schema: &Schema) -> Result<Settings, Failure> {
    let mut settings = Settings::DEFAULT;
    ALL.iter().try_for_each(|measurement| measurement.find(schema, &mut settings))?;
    arrays(&settings).iter().try_for_each(|array| array.check(schema))?;
    tables(&settings).iter().try_for_each(|table| table.check(schema))?;
    Ok(settings)
}

fn layout(measurement: &dyn OnSwitch, settings: &Settings) -> Option<Layout> {
    let (kind, _) = measurement.kind();
    kind.is_on(settings).then(|| measurement.layout(settings))
}

fn layouts(settings: &Settings) -> impl Iterator<Item = (&'static dyn OnSwitch, Layout)> {
    ALL.iter().filter_map(|measurement| Some((*measurement, layout(*measurement, settings)?)))
}

/// The registers of all that is measured.
pub(super) fn arrays(settings: &Settings) -> Vec<Array> {
    layouts(settings).flat_map(|(_, layout)| layout.arrays).collect()
}

/// The match tables of all that is measured. Words of rows, which many share, come before the first
/// measurement that counts in rows.
pub(super) fn tables(settings: &Settings) -> Vec<MatchTable> {
    let layouts: Vec<Layout> = layouts(settings).map(|(_, layout)| layout).collect();
    let keys: Vec<KeyKind> =
        layouts.iter().flat_map(|layout| &layout.rows).flat_map(|(keys, _)| keys.clone()).collect();
    let mut words =
        KeyKind::ALL.into_iter().filter(|key| keys.contains(key)).flat_map(hash::row_words);
    let mut tables = Vec::new();
    for layout in layouts {
        if layout.rows.is_some() {
            tables.extend(words.by_ref());
        }
        tables.extend(layout.tables);
    }
    tables
}

/// What programs [may have besides](OnSwitch::extras) of all that is measured.
pub(super) fn extras(settings: &Settings) -> (Vec<Array>, Vec<MatchTable>) {
    let on = ALL.iter().filter(|measurement| measurement.kind().0.is_on(settings));
    let (arrays, tables): (Vec<_>, Vec<_>) =
        on.map(|measurement| measurement.extras(settings)).unzip();
    (arrays.into_iter().flatten().collect(), tables.into_iter().flatten().collect())
}

/// Adds what the [`arrays`] hold to a bank, as [`OnSwitch::merge`] does.
pub(super) fn merge(settings: &Settings, mut arrays: &[Cells], bank: &mut WideBank) -> usize {
    let mut changed = 0;
    for (measurement, layout) in layouts(settings) {
        let Some((own, others)) = arrays.split_at_checked(layout.arrays.len()) else { break };
        changed += measurement.merge(settings, own, bank);
        arrays = others;
    }
    changed
}

fn out_of_range(table: &Table) -> Failure {
    Failure::program(format!("{} has {} registers, too few or too many", table.name, table.size))
}
