//! Measurements, a folder each: from registers to estimates, and from estimates to output.
//!
//! The controller closes a window's bank and makes a `ReportInput` of it; each measurement's report
//! is built from that (`Measurement::of`), with estimates from the measurement's `estimate` module.
//! [`Reports`] holds the reports of one record. Each report returns its fields and figures (JSON,
//! CSV, metrics, page), lines of the table, and columns of a lake; `restore` reads those columns
//! back, to merge rows of several machines.
//!
//! A new measurement is a folder with a report that implements `Measurement`, its `mod`, and a line
//! in the list below: the position of its lines in the table, the prefixes of its columns in a
//! lake, and the columns of bytes. Outputs know no measurement by name, but for the table's columns
//! of distinct flows.

pub mod alarm;
pub mod cardinality;
pub mod delay;
pub mod entropy;
mod exact_value;
pub mod frequency;
pub mod heavy;
pub(crate) mod laws;
pub mod membership;
pub mod reorder;
pub mod sizes;
mod sketched;
pub mod spread;

pub use crate::figure::Number;
pub use cardinality::has_windows;
pub use exact_value::ExactValue;
pub use sketched::{RowHash, Sketched};

use crate::alert::Rule;
use crate::field::Fields;
use crate::figure::{KnownFigure, Shape, Unit};
use crate::row::{Row, RowDefect};
use crate::text::IndentedLines;
use flowgauge_core::{FlowKey, HashIdentity, KeyKind, Settings, WindowTotals};
use flowgauge_dataplane::{FlowCounts, FlowTraffic, Snapshot, TimestampClock, Truth};
use laws::RowTotals;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

macro_rules! measurements {
    ($($about:literal $module:ident: $report:ident $rank:ident $columns:expr, $binary:expr;)*) => {
        /// Reports of all measurements in a record; `None` for those that are off. The order is
        /// that of the JSON lines.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Reports {
            $(#[doc = $about] pub $module: Option<$module::$report>,)*
        }

        /// Options of all measurements, for estimation and reports.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Estimation {
            /// Queried flows. Each measurement ignores those that are no keys of its kind.
            pub queries: Vec<FlowKey>,
            /// Rules for alerts on figures.
            pub alerts: Vec<Rule>,
            $(#[doc = $about] pub $module: $module::Options,)*
        }

        /// State of each measurement in a union of lake rows that is not in the bank.
        #[derive(Default)]
        pub(crate) struct UnionStates {
            $(pub(crate) $module: <$module::$report as Measurement>::UnionState,)*
        }

        impl UnionStates {
            /// Restores all measurements from a lake row: counters into an empty bank, settings
            /// into ones in which all measurements are off.
            pub(crate) fn restore(&mut self, row: &Row, settings: &mut Settings, bank: &mut WindowTotals) -> Result<(), RowDefect> {
                $(<$module::$report as Measurement>::restore(row, settings, bank, &mut self.$module)?;)*
                Ok(())
            }

            /// Returns the memory of the states beyond their own size, in bytes.
            pub(crate) fn bytes(&self) -> usize {
                [$(<$module::$report as Measurement>::union_bytes(&self.$module),)*].into_iter().sum()
            }
        }

        /// Checks the laws of all measurements' columns in a lake row.
        pub(crate) fn check(row: &Row, totals: &RowTotals) -> Result<(), RowDefect> {
            $($module::$report::check(row, totals)?;)*
            Ok(())
        }

        /// Prefixes of the column names of each measurement in a lake; others are not read.
        const COLUMNS: &[(&str, &[&str])] = &[$((stringify!($module), &$columns),)*];

        /// Names of each measurement's lake columns whose values are bytes and not text. Files do
        /// not say which they are: some engines annotate both as text, others neither.
        const BINARY_COLUMNS: &[&[&str]] = &[$(&$binary,)*];

        /// Returns the figures that windows can have of the measurements that are on.
        pub(crate) fn known(settings: &Settings, options: &Estimation) -> Vec<KnownFigure> {
            let (mut known, mut measured) = (Vec::new(), Vec::new());
            $(
                let figures = $module::$report::known(settings, options);
                if !figures.is_empty() {
                    measured.push(stringify!($module));
                    known.extend(figures);
                }
            )*
            if !measured.is_empty() {
                known.push(KnownFigure::new("full", Unit::Things).label("measurement", measured));
            }
            known
        }

        impl Reports {
            /// Builds the reports of all measurements that are on.
            pub(crate) fn of(reading: &ReportInput<'_>) -> Result<Self, Damaged> {
                Ok(Reports { $($module: $module::$report::of(reading)?,)* })
            }

            /// Returns the measurements that are on, by name.
            pub(crate) fn all(&self) -> impl DoubleEndedIterator<Item = (&'static str, &dyn Measurement)> {
                let all: Vec<(_, Option<&dyn Measurement>)> = vec![$((stringify!($module), self.$module.as_ref().map(|it| it as _)),)*];
                all.into_iter().filter_map(|(name, report)| Some((name, report?)))
            }

            /// Writes the lines of all measurements up to a rank below a row of the table.
            pub(crate) fn lines(&self, last: Rank, below: &mut IndentedLines<'_>) {
                for rank in Rank::ALL.into_iter().filter(|rank| *rank <= last) {
                    $(if let (true, Some(report)) = (rank == Rank::$rank, &self.$module) {
                        report.lines(below);
                    })*
                }
            }

            /// Describes each measurement, whether it is on or off.
            pub(crate) fn describe(&self, counted: Option<&ClosedBank>) -> Vec<MeasurementFields> {
                vec![$(describe(stringify!($module), self.$module.as_ref(), counted),)*]
            }
        }
    };
}

measurements! {
    "Distinct flows." cardinality: Cardinality Figures ["distinct", "registers", "hll_"], [];
    "How packets are spread over flows." entropy: Entropies Figures ["entropy"], [];
    "Packets of the flows that are asked for." frequency: Frequency Asked ["frequency"], [];
    "Whether the flows that are asked for were seen." membership: Membership Asked ["membership"],
        ["membership"];
    "The flows with the most packets or bytes." heavy: Heavy Top ["heavy"], [];
    "The keys with the most distinct others." spread: Spreads Top ["spread"],
        ["spread_cells", "spread_levels", "spread2_cells", "spread2_levels"];
    "How long packets are." sizes: Sizes Figures ["length"], [];
    "How long answers take." delay: Delays Figures ["delay"], [];
    "Which prefixes reorder packets." reorder: Reordering Top ["reorder"], [];
    "What the entropies of sources and destinations say about an attack." alarm: Alarm Alarm
        ["alarm"], [];
}

/// Returns the prefixes of the column names in a lake: of all measurements, or of one.
pub(crate) fn columns(measurement: Option<&str>) -> impl Iterator<Item = &'static str> {
    let wanted = COLUMNS.iter().filter(move |(name, _)| measurement.is_none_or(|it| it == *name));
    wanted.flat_map(|(_, columns)| *columns).copied()
}

/// Options of a report that lists the first of many items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ListOptions {
    /// Maximum number of items to list.
    pub top: usize,
}

impl Default for ListOptions {
    /// Lists ten items.
    fn default() -> Self {
        ListOptions { top: 10 }
    }
}

/// Returns the names of all measurements' lake columns whose values are bytes.
pub(crate) fn binary_columns() -> impl Iterator<Item = &'static str> {
    BINARY_COLUMNS.iter().flat_map(|columns| *columns).copied()
}

impl Reports {
    /// Returns the names of the measurements that are on.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.all().map(|(name, _)| name)
    }
}

/// Kind of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordKind {
    /// A closed window.
    #[default]
    Window,
    /// A sample of the open window.
    Sample,
    /// Consecutive windows of a trace without packets, in one record.
    Silence,
    /// The whole run: counters added, registers merged.
    Total,
    /// Merged rows of a lake.
    Union,
}

impl RecordKind {
    /// Returns the name used in outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RecordKind::Window => "window",
            RecordKind::Sample => "sample",
            RecordKind::Silence => "silence",
            RecordKind::Total => "total",
            RecordKind::Union => "union",
        }
    }

    /// Whether the record merges several windows.
    pub(crate) fn is_sum(self) -> bool {
        matches!(self, RecordKind::Total | RecordKind::Union)
    }
}

/// Bank of a window, with the settings that it was counted with.
#[derive(Clone, PartialEq)]
pub struct ClosedBank {
    /// Registers of all measurements.
    pub bank: Arc<WindowTotals>,
    /// Settings of all measurements.
    pub settings: Settings,
    /// Hash of the registers.
    pub hash: HashIdentity,
    /// Hash of the rows of sketches and filters.
    pub row_hash: HashIdentity,
    /// Clock of the packets' times.
    pub clock: TimestampClock,
}

impl fmt::Debug for ClosedBank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Omit the registers, which are many.
        f.debug_struct("ClosedBank")
            .field("settings", &self.settings)
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}

/// Error for registers that no traffic can produce: the dataplane is defective.
pub(crate) type Damaged = Box<dyn Error + Send + Sync>;

/// Input of all reports: counters and settings.
pub(crate) struct ReportInput<'a> {
    /// Kind of the record.
    pub(crate) kind: RecordKind,
    /// Whether this is one of several sources.
    pub(crate) is_part: bool,
    pub(crate) settings: &'a Settings,
    /// Clock of the packets' times.
    pub(crate) clock: TimestampClock,
    pub(crate) options: &'a Estimation,
    pub(crate) rows: &'a RowHash,
    /// Bank of the window, or of all packets for a total.
    pub(crate) bank: &'a WindowTotals,
    /// Hash of the registers.
    pub(crate) hash: HashIdentity,
    pub(crate) truth: Option<Truth>,
    /// State that is not in the bank, for a union of windows.
    pub(crate) union_states: Option<&'a UnionStates>,
    /// State that is not in the bank, for a window or a sample; `None` for a total, since it cannot
    /// be merged.
    pub(crate) snapshot: Option<&'a Snapshot>,
    /// Start of counting and the current time, in nanoseconds.
    pub(crate) start_ns: u64,
    pub(crate) now_ns: u64,
    /// Time in which the packets in the bank were counted, in nanoseconds.
    pub(crate) span_ns: u64,
}

impl<'a> ReportInput<'a> {
    /// Returns the exact value beside an estimate, of the exact counts of a closed window. Where all
    /// is counted exactly and these counts are missing, there were too many.
    pub(crate) fn exact<T>(&self, counts: impl FnOnce(&'a Snapshot) -> Option<T>) -> ExactValue<T> {
        match self.snapshot.filter(|snapshot| snapshot.truth.is_some()) {
            Some(snapshot) if self.kind == RecordKind::Window => {
                counts(snapshot).map_or(ExactValue::TooMany, ExactValue::Known)
            }
            _ => ExactValue::NotCounted,
        }
    }

    /// Returns the exact counts of each flow by a key.
    pub(crate) fn exact_flows(&self, key: KeyKind) -> ExactValue<&'a FlowCounts> {
        self.exact(|snapshot| snapshot.flows_by(key))
    }

    /// Returns the number of packets that have a flow.
    pub(crate) fn packets(&self) -> u64 {
        self.bank.counters.ipv4.wrapping_add(self.bank.counters.ipv6)
    }

    /// Returns the minimum and maximum number of packets with a flow that had been counted when
    /// other registers than the counters were read. They are equal unless packets arrived
    /// meanwhile, in a sample.
    pub(crate) fn packets_while_read(&self) -> (u64, u64) {
        let (packets, all) = (self.packets(), self.bank.counters.packets());
        let (earlier, later) = self.snapshot.map_or((0, 0), |snapshot| {
            let Snapshot { packets_before, packets_after, .. } = snapshot;
            (all.saturating_sub(*packets_before), packets_after.saturating_sub(all))
        });
        (packets.saturating_sub(earlier), packets.saturating_add(later))
    }

    /// Returns the answers about the queried flows that are keys of this kind.
    pub(crate) fn asked<T, U>(
        &self,
        key: KeyKind,
        answer: impl Fn(&FlowKey) -> T,
        exact: impl Fn(FlowTraffic) -> U,
    ) -> Vec<QueriedFlow<T, U>> {
        let counts = self.exact_flows(key);
        let queries = self.options.queries.iter();
        let asked = queries.filter(|query| key.lengths().contains(&query.as_bytes().len()));
        let answered = asked.map(|flow| QueriedFlow {
            flow: *flow,
            answer: answer(flow),
            truth: counts.map(|counts| exact(counts.of(flow))),
        });
        answered.collect()
    }
}

/// Answer about a queried flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueriedFlow<T, U> {
    /// The flow.
    pub flow: FlowKey,
    /// Answer of the measurement.
    pub answer: T,
    /// Exact answer.
    pub truth: ExactValue<U>,
}

/// Fields of one measurement.
#[derive(Debug)]
pub(crate) struct MeasurementFields {
    /// Name of the measurement.
    pub(crate) measurement: &'static str,
    /// Whether it is on. If not, only the CSV has its fields, without values.
    pub(crate) is_on: bool,
    pub(crate) fields: Fields,
}

fn describe<M: Measurement>(
    measurement: &'static str,
    report: Option<&M>,
    counted: Option<&ClosedBank>,
) -> MeasurementFields {
    let mut fields = Fields::default();
    M::fields(report, counted, &mut fields);
    if let Some(report) = report {
        let title = "counters are full: shorter windows give better numbers";
        let labels = [("measurement", measurement)];
        fields.figure("full", title, Unit::Things, &labels, Shape::State(report.is_full()));
    }
    MeasurementFields { measurement, is_on: report.is_some(), fields }
}

/// Position of a measurement's lines below a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Alarms, which come first.
    Alarm,
    /// Numbers about all traffic. Samples have no further lines.
    Figures,
    /// Largest flows.
    Top,
    /// Queried flows.
    Asked,
}

impl Rank {
    const ALL: [Rank; 4] = [Rank::Alarm, Rank::Figures, Rank::Top, Rank::Asked];
}

/// Report of a measurement.
pub(crate) trait Measurement {
    /// State in a union of lake rows that is not in the bank.
    type UnionState: Default
    where
        Self: Sized;

    /// Returns the memory of that state beyond its own size, in bytes.
    fn union_bytes(_: &Self::UnionState) -> usize
    where
        Self: Sized,
    {
        0
    }

    /// Builds the report; `None` if the measurement is off.
    fn of(reading: &ReportInput<'_>) -> Result<Option<Self>, Damaged>
    where
        Self: Sized;

    /// Adds its fields and figures; fields without values if it is off, for the CSV. Some figures
    /// are drawn from the bank, which only windows have.
    fn fields(report: Option<&Self>, counted: Option<&ClosedBank>, to: &mut Fields)
    where
        Self: Sized;

    /// Returns the figures of [`fields`](Self::fields) that windows can have, without
    /// distributions; none if the measurement is off.
    fn known(settings: &Settings, options: &Estimation) -> Vec<KnownFigure>
    where
        Self: Sized;

    /// Writes the lines of a total, above those about losses; `part` is true for one of several
    /// sources.
    fn summary(&self, _part: bool, _below: &mut IndentedLines<'_>) {}

    /// Writes the lines below a row of the table.
    fn lines(&self, _below: &mut IndentedLines<'_>) {}

    /// Adds registers and counters to a lake row, after the fields, so that rows can be merged.
    fn store(&self, _counted: &ClosedBank, _row: &mut Row) {}

    /// Checks the laws of its columns: what holds for every row that was counted. A row without the
    /// measurement breaks none.
    fn check(_row: &Row, _totals: &RowTotals) -> Result<(), RowDefect>
    where
        Self: Sized,
    {
        Ok(())
    }

    /// Restores what [`store`](Self::store) stored, of a row that passed
    /// [`check`](Self::check): counters into an empty bank, settings into ones
    /// in which the measurement is off.
    fn restore(
        _row: &Row,
        _settings: &mut Settings,
        _bank: &mut WindowTotals,
        _beside: &mut Self::UnionState,
    ) -> Result<(), RowDefect>
    where
        Self: Sized,
    {
        Ok(())
    }

    /// Returns whether counters are full, so that shorter windows would give better numbers.
    fn is_full(&self) -> bool {
        false
    }
}
