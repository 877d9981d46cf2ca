//! What is measured, a folder each: how registers become numbers, and what outputs say of them.
//!
//! A new measurement is a folder with a report that is a `Measurement`, its `mod`, and a line in
//! the list below. Outputs know no measurement by name.

pub mod alarm;
pub mod cardinality;
pub mod delay;
pub mod entropy;
pub mod frequency;
mod headline;
pub mod heavy;
pub mod membership;
pub mod reorder;
pub mod sizes;
mod sketched;

pub use crate::number::Number;
pub use cardinality::has_windows;
pub use headline::Headline;
pub use sketched::{Rows, Sketched};

use crate::alert::Rule;
use crate::field::Fields;
use crate::kind::Kind;
use crate::row::{Misfit, Row};
use crate::text::Below;
use flowgauge_core::{FlowKey, HashIdentity, KeyKind, Settings, WideBank};
use flowgauge_dataplane::{Clock, Snapshot, Truth};
use std::error::Error;
use std::fmt;
use std::sync::Arc;

macro_rules! measurements {
    ($($about:literal $module:ident: $report:ident;)*) => {
        /// What a record says of each measurement; nothing of those that are off. The order is that
        /// of the JSON lines.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Reports {
            $(#[doc = $about] pub $module: Option<$module::$report>,)*
        }

        /// How registers become numbers, and what to tell of them.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Estimation {
            /// Flows that are asked for; those that are no keys of a measurement's kind are left
            /// out there.
            pub queries: Vec<FlowKey>,
            /// Which figures are alarming.
            pub alerts: Vec<Rule>,
            $(#[doc = $about] pub $module: $module::Options,)*
        }

        /// What a union of rows of a lake keeps of each measurement beside the bank.
        #[derive(Default)]
        pub(crate) struct Besides {
            $(pub(crate) $module: <$module::$report as Measurement>::Beside,)*
        }

        impl Besides {
            /// Takes what a row of a lake says of each measurement: what was counted into an empty
            /// bank, and how into settings in which all are off.
            pub(crate) fn restore(&mut self, row: &Row, settings: &mut Settings, bank: &mut WideBank) -> Result<(), Misfit> {
                $(<$module::$report as Measurement>::restore(row, settings, bank, &mut self.$module)?;)*
                Ok(())
            }
        }

        /// What the names of all columns of measurements in a lake begin with.
        pub(crate) fn columns() -> impl Iterator<Item = &'static str> {
            [$($module::$report::columns(),)*].into_iter().flatten().copied()
        }

        /// What the names of a measurement's columns in a lake begin with.
        pub(crate) fn columns_of(measurement: &str) -> &'static [&'static str] {
            match measurement {
                $(stringify!($module) => $module::$report::columns(),)*
                _ => &[],
            }
        }

        impl Reports {
            /// What a reading says.
            pub(crate) fn of(reading: &Reading<'_>) -> Result<Self, Damaged> {
                Ok(Reports { $($module: $module::$report::of(reading)?,)* })
            }

            /// The measurements that are on, by name.
            pub(crate) fn all(&self) -> impl DoubleEndedIterator<Item = (&'static str, &dyn Measurement)> {
                let all: Vec<(_, Option<&dyn Measurement>)> = vec![$((stringify!($module), self.$module.as_ref().map(|it| it as _)),)*];
                all.into_iter().filter_map(|(name, report)| Some((name, report?)))
            }

            /// Describes each measurement, whether it is on or off.
            pub(crate) fn describe(&self, counted: Option<&Counted>) -> Vec<Described> {
                vec![$(describe(stringify!($module), self.$module.as_ref(), counted),)*]
            }
        }
    };
}

measurements! {
    "Distinct flows." cardinality: Cardinality;
    "How packets are spread over flows." entropy: Entropies;
    "Packets of the flows that are asked for." frequency: Frequency;
    "Whether the flows that are asked for were seen." membership: Membership;
    "The flows with the most packets or bytes." heavy: Heavy;
    "How long packets are." sizes: Sizes;
    "How long answers take." delay: Delays;
    "Which prefixes reorder packets." reorder: Reordering;
    "What the entropies of sources and destinations say about an attack." alarm: Alarm;
}

impl Reports {
    /// Names of the measurements that are on.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.all().map(|(name, _)| name)
    }

    /// The number that has columns of its own in a table.
    #[must_use]
    pub fn headline(&self) -> Option<Headline> {
        self.all().find_map(|(_, report)| report.headline())
    }
}

/// What a window's packets were counted in, and how.
#[derive(Clone, PartialEq)]
pub struct Counted {
    /// The registers of all measurements.
    pub bank: Arc<WideBank>,
    /// What was measured and how.
    pub settings: Settings,
    /// How registers are hashed.
    pub hash: HashIdentity,
    /// How rows of sketches and filters are hashed.
    pub row_hash: HashIdentity,
    /// What packets were timed by.
    pub clock: Clock,
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Registers are many.
        f.debug_struct("Counted")
            .field("settings", &self.settings)
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}

/// Registers that no traffic can leave: the dataplane is broken.
pub(crate) type Damaged = Box<dyn Error + Send + Sync>;

/// What was counted and how, from which reports are made.
pub(crate) struct Reading<'a> {
    /// The record that it is for.
    pub(crate) kind: Kind,
    /// Whether it is of one of several places.
    pub(crate) is_part: bool,
    pub(crate) settings: &'a Settings,
    /// What packets are timed by.
    pub(crate) clock: Clock,
    pub(crate) options: &'a Estimation,
    pub(crate) rows: &'a Rows,
    /// What the window's packets were counted in, or all packets of a total.
    pub(crate) bank: &'a WideBank,
    /// How registers are hashed.
    pub(crate) hash: HashIdentity,
    pub(crate) truth: Option<Truth>,
    /// What a union of windows has beside its bank.
    pub(crate) besides: Option<&'a Besides>,
    /// What a window or a read has beside its bank; of a total there is nothing, since it does not
    /// add up.
    pub(crate) snapshot: Option<&'a Snapshot>,
    /// When counting began, and the time now, in nanoseconds.
    pub(crate) start_ns: u64,
    pub(crate) now_ns: u64,
    /// How long it took until everything in the bank was counted, in nanoseconds.
    pub(crate) span_ns: u64,
}

impl Reading<'_> {
    /// Packets that have a flow.
    pub(crate) fn packets(&self) -> u64 {
        self.bank.counters.ipv4.wrapping_add(self.bank.counters.ipv6)
    }

    /// The flows that are asked for and are keys of this kind, with what is known of each.
    pub(crate) fn asked<T>(
        &self,
        key: KeyKind,
        known: impl Fn(&FlowKey) -> T,
    ) -> Vec<(FlowKey, T)> {
        let asked = self
            .options
            .queries
            .iter()
            .filter(|query| key.lengths().contains(&query.as_bytes().len()));
        asked.map(|query| (*query, known(query))).collect()
    }
}

/// Fields of a measurement.
#[derive(Debug)]
pub(crate) struct Described {
    /// Its name.
    pub(crate) measurement: &'static str,
    /// Whether it is on. Else only the CSV has its fields, without values.
    pub(crate) is_on: bool,
    pub(crate) fields: Fields,
}

fn describe<M: Measurement>(
    measurement: &'static str,
    report: Option<&M>,
    counted: Option<&Counted>,
) -> Described {
    let mut fields = Fields::default();
    M::fields(report, counted, &mut fields);
    if let Some(report) = report {
        let title = "counters are full: shorter windows give better numbers";
        fields.state("full", title, &[("measurement", measurement)], report.is_full());
    }
    Described { measurement, is_on: report.is_some(), fields }
}

/// Where the lines of a measurement stand below a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// What nobody may miss.
    Alarm,
    /// Numbers of all traffic. Reads have nothing beyond these.
    Figures,
    /// The largest flows.
    Top,
    /// Flows that were asked for.
    Asked,
}

/// Report of a measurement.
pub(crate) trait Measurement {
    /// What a union of rows of a lake keeps beside the bank.
    type Beside: Default
    where
        Self: Sized;

    /// What a reading says of it; `None` if it is off.
    fn of(reading: &Reading<'_>) -> Result<Option<Self>, Damaged>
    where
        Self: Sized;

    /// Adds its fields and figures; fields without values if it is off, for the CSV. Some figures
    /// are drawn from the bank, which windows have.
    fn fields(report: Option<&Self>, counted: Option<&Counted>, to: &mut Fields)
    where
        Self: Sized;

    /// The number that has columns of its own in the table.
    fn headline(&self) -> Option<Headline> {
        None
    }

    /// Lines of a total, above what was lost; of a part of the places or of all together.
    fn summary(&self, part: bool, below: &mut Below<'_>) {
        let _ = (part, below);
    }

    /// Where its lines stand among those of others.
    fn rank(&self) -> Rank {
        Rank::Figures
    }

    /// Lines below a row of the table.
    fn lines(&self, below: &mut Below<'_>) {
        let _ = below;
    }

    /// What the names of its columns in a lake begin with; others are not read.
    fn columns() -> &'static [&'static str]
    where
        Self: Sized;

    /// Adds what was counted to a row of a lake, behind the fields: registers and counters, to
    /// merge them with those of other rows.
    fn store(&self, counted: &Counted, row: &mut Row) {
        let _ = (counted, row);
    }

    /// The opposite of [`store`](Self::store): takes what was counted into a bank in which nothing
    /// is, and how into settings in which it is off.
    fn restore(
        row: &Row,
        settings: &mut Settings,
        bank: &mut WideBank,
        beside: &mut Self::Beside,
    ) -> Result<(), Misfit>
    where
        Self: Sized,
    {
        let _ = (row, settings, bank, beside);
        Ok(())
    }

    /// Whether counters are full, so that shorter windows would give better numbers.
    fn is_full(&self) -> bool {
        false
    }
}
