//! Measurements on a switch, one file each: its names in `p4/flowgauge.p4`, its compiler
//! definitions, tables and registers, and their interpretation.
//!
//! A new measurement needs a file with a [`SwitchMeasurement`], its `mod`, and a line in the list
//! below. No other code refers to a measurement by name.

mod cardinality;
mod delay;
mod entropy;
mod frequency;
mod heavy;
mod membership;
mod reorder;
mod rows;
mod sizes;
mod spread;

use super::array::{Array, BankCells};
use super::statement::StatedSettings;
use super::table::{DesiredState, MatchTable, TableContents};
use super::{hash, names};
use crate::capabilities::Capabilities;
use crate::error::Failure;
use flowgauge_bfruntime::schema::Schema;
use flowgauge_core::cardinality::Mode;
use flowgauge_core::{Grid, KeyKind, MeasurementKind, Settings, Tabulation, WindowTotals};

pub(super) use cardinality::Staggered;
pub(super) use delay::{Samples, set_shares};
pub(super) use entropy::{
    ALARM_ADVICE, Alarms, MIN_WATCHED_PACKETS, NO_THRESHOLDS, difference, thresholds,
};
pub(super) use rows::ROWS;

/// A measurement on a switch.
pub(super) trait SwitchMeasurement: Sync {
    /// Returns the kind, and the compiler definition that enables it.
    fn kind(&self) -> (MeasurementKind, &'static str);

    /// Returns the value of that definition if the measurement is on.
    fn value(&self, _settings: &Settings) -> u32 {
        1
    }

    /// Rejects settings that no program supports.
    fn check(&self, _wanted: &Settings) -> Result<(), Failure> {
        Ok(())
    }

    /// Reads the settings of this measurement, which a program has, from its statement.
    fn read(&self, program: &StatedSettings, settings: &mut Settings) -> Result<(), Failure>;

    /// Returns the layout of a program with these settings, which have the measurement on.
    fn layout(&self, settings: &Settings) -> Layout;

    /// Returns optional arrays and tables of a program, for other readers. They are filled and
    /// cleared like the rest.
    fn extras(
        &self,
        _program: &StatedSettings,
        _settings: &Settings,
    ) -> Result<(Vec<Array>, Vec<MatchTable>), Failure> {
        Ok((Vec::new(), Vec::new()))
    }

    /// Checks hashes of a program other than those of [`KeyKind`]s.
    fn check_hashes(&self, _schema: &Schema, _settings: &Settings) -> Result<(), Failure> {
        Ok(())
    }

    /// Adds the contents of its arrays to an empty bank with counters. Returns the number of
    /// elements left out because they changed while they were read.
    fn merge(&self, read: ReadArrays<'_>, bank: &mut WindowTotals) -> usize;

    /// Restricts capabilities to those of this measurement.
    fn capabilities(&self, _settings: &Settings, _capabilities: &mut Capabilities) {}
}

/// Arrays that were read of a bank, with what is needed to interpret them.
#[derive(Clone, Copy)]
pub(super) struct ReadArrays<'a> {
    pub(super) settings: &'a Settings,
    /// Words that the switch hashes with.
    pub(super) words: &'a Tabulation,
    pub(super) arrays: &'a [BankCells],
}

/// Layout of a measurement in a program.
pub(super) struct Layout {
    /// Key and algorithm, in words.
    description: String,
    /// Compiler definitions.
    definitions: Vec<(&'static str, u32)>,
    arrays: Vec<Array>,
    /// For a measurement with sketch rows, whose words are shared with others: its keys, and the
    /// shape of the rows.
    rows: Option<(Vec<KeyKind>, Grid)>,
    /// Match tables that are not shared.
    tables: Vec<MatchTable>,
}

macro_rules! measurements {
    ($($module:ident: $Name:ident;)*) => {
        /// All measurements, in the order in which they are read and their tables filled.
        pub(super) const ALL: &[&dyn SwitchMeasurement] = &[$(&$module::$Name),*];
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
    spread: Spread;
}

/// Build options of one measurement of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// Kind of measurement.
    pub kind: MeasurementKind,
    /// Key and algorithm, in words; `None` if it is off.
    pub description: Option<String>,
    /// Compiler definitions, as in `-DFLOWGAUGE_KEY=0`.
    pub definitions: Vec<(&'static str, u32)>,
}

/// Returns the build options of every measurement for these settings. Measurements that are off are
/// defined as off.
///
/// # Errors
/// [`Failure::Program`] if no program supports the settings.
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
    let build = |measurement: &&dyn SwitchMeasurement| {
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

/// Returns the compiler definitions of all [`builds`].
///
/// # Errors
/// As of [`builds`].
pub fn definitions(settings: &Settings) -> Result<Vec<(&'static str, u32)>, Failure> {
    Ok(builds(settings)?.into_iter().flat_map(|build| build.definitions).collect())
}

/// Returns the settings that a program states.
pub(super) fn settings(program: &StatedSettings) -> Result<Settings, Failure> {
    let mut settings = Settings::DEFAULT;
    settings.cardinality.mode = Mode::Off;
    for measurement in ALL {
        let (_, switch) = measurement.kind();
        if program.is_on(switch)? {
            measurement.read(program, &mut settings)?;
        }
    }
    Ok(settings)
}

fn layout(measurement: &dyn SwitchMeasurement, settings: &Settings) -> Option<Layout> {
    let (kind, _) = measurement.kind();
    kind.is_on(settings).then(|| measurement.layout(settings))
}

fn layouts(settings: &Settings) -> impl Iterator<Item = (&'static dyn SwitchMeasurement, Layout)> {
    ALL.iter().filter_map(|measurement| Some((*measurement, layout(*measurement, settings)?)))
}

/// Returns the arrays of all enabled measurements.
pub(super) fn arrays(settings: &Settings) -> Vec<Array> {
    layouts(settings).flat_map(|(_, layout)| layout.arrays).collect()
}

/// Returns the match tables of all enabled measurements. Words of sketch rows, which several share,
/// precede the first measurement with rows.
pub(super) fn tables(settings: &Settings) -> Vec<MatchTable> {
    let layouts: Vec<Layout> = layouts(settings).map(|(_, layout)| layout).collect();
    let keys: Vec<KeyKind> =
        layouts.iter().flat_map(|layout| &layout.rows).flat_map(|(keys, _)| keys.clone()).collect();
    let keys = KeyKind::ALL.into_iter().filter(|key| keys.contains(key));
    let mut words = keys.flat_map(|key| hash::row_words(&names::key(key)));
    let mut tables = Vec::new();
    for layout in layouts {
        if layout.rows.is_some() {
            tables.extend(words.by_ref());
        }
        tables.extend(layout.tables);
    }
    tables
}

/// Returns the [optional](SwitchMeasurement::extras) arrays and tables of all enabled measurements.
pub(super) fn extras(
    program: &StatedSettings,
    settings: &Settings,
) -> Result<(Vec<Array>, Vec<MatchTable>), Failure> {
    let (mut arrays, mut tables) = (Vec::new(), Vec::new());
    for measurement in ALL.iter().filter(|measurement| measurement.kind().0.is_on(settings)) {
        let (more_arrays, more_tables) = measurement.extras(program, settings)?;
        arrays.extend(more_arrays);
        tables.extend(more_tables);
    }
    Ok((arrays, tables))
}

/// Checks hashes of all enabled measurements, as [`SwitchMeasurement::check_hashes`] does.
pub(super) fn check_hashes(schema: &Schema, settings: &Settings) -> Result<(), Failure> {
    let mut enabled = ALL.iter().filter(|measurement| measurement.kind().0.is_on(settings));
    enabled.try_for_each(|measurement| measurement.check_hashes(schema, settings))
}

/// Adds the contents of the [`arrays`] to a bank, as [`SwitchMeasurement::merge`] does.
pub(super) fn merge(read: ReadArrays<'_>, bank: &mut WindowTotals) -> usize {
    let (mut changed, mut arrays) = (0, read.arrays);
    for (measurement, layout) in layouts(read.settings) {
        let Some((own, others)) = arrays.split_at_checked(layout.arrays.len()) else { break };
        changed += measurement.merge(ReadArrays { arrays: own, ..read }, bank);
        arrays = others;
    }
    changed
}
