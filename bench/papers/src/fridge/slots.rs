//! Slots that each kind of table needs for the same error of a percentile, for several longest
//! delays T of the synthetic trace (§2.4).
//!
//! The dissertation (§1.4) says that fridges take two to four times less memory than hash-indexed
//! arrays.

use super::simulation::{Event, SimulatedTable, truth};
use crate::parallel::{self, Progress};
use crate::report::{Cell, Column, Table};
use crate::statistics::Spread;
use crate::trace::mix;
use flowgauge::reproduce::FridgeShape;
use flowgauge_ctl::output::grouped;
use flowgauge_traffic::delay::{DelayProfile, DelayShape};

/// Longest delays, in milliseconds.
pub(crate) const LONGEST_MS: [u64; 3] = [10, 100, 1_000];

/// Error of a percentile for which the slots of all tables are compared, in percent.
pub(super) const ERROR_PERCENT: f64 = 10.0;

/// Percentiles whose errors are compared.
pub(super) const PERCENTILES: [u32; 3] = [50, 95, 99];

/// Compared sizes, as powers of two.
const SIZES_LOG2: std::ops::RangeInclusive<u32> = 6..=14;

/// Mean lifetime of a request in a fridge, as a multiple of the longest delay. The other figures of
/// this report have the same: 2^16 requests with T = 100 ms.
const LIFETIME: f64 = 0.655_36;

/// Lifetimes in each of four fridges, as multiples of the lifetime in one.
const LIFETIMES: [f64; 4] = [1.0 / 16.0, 0.25, 1.0, 4.0];

/// Kind of table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One fridge.
    Fridge,
    /// Four fridges with a quarter of the slots each.
    FourFridges,
    /// A fridge in four stages.
    Staged,
    /// Expiry at the true 99th percentile, in two stages, as in the dataplane.
    Expiry,
    /// As [`Expiry`](Self::Expiry), in five stages: Chen et al. have four to six.
    ExpiryInFive,
    /// Requests overwrite each other.
    Overwrite,
}

impl Kind {
    /// All kinds.
    pub(crate) const ALL: [Kind; 6] = [
        Kind::Fridge,
        Kind::FourFridges,
        Kind::Staged,
        Kind::Expiry,
        Kind::ExpiryInFive,
        Kind::Overwrite,
    ];

    /// Returns the name in tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Kind::Fridge => "fridge",
            Kind::FourFridges => "four fridges",
            Kind::Staged => "fridge, 4 stages",
            Kind::Expiry => "expiry, 2 stages",
            Kind::ExpiryInFive => "expiry, 5 stages",
            Kind::Overwrite => "overwrite",
        }
    }

    /// Returns a table with this many slots. `lifetime`: requests that arrive during the mean
    /// lifetime of one; `expiry_ns`: the 99th percentile of the delays.
    fn table(self, slots: usize, lifetime: f64, expiry_ns: u64) -> SimulatedTable {
        let shape = |slots: usize, lifetime: f64| FridgeShape {
            slots,
            admitted: (slots as f64 / lifetime).min(1.0),
        };
        match self {
            Kind::Fridge => SimulatedTable::Fridges(vec![shape(slots, lifetime)]),
            Kind::FourFridges => {
                let mut fridges = LIFETIMES.map(|times| shape(slots / 4, times * lifetime));
                let sum: f64 = fridges.iter().map(|fridge| fridge.admitted).sum();
                fridges.iter_mut().for_each(|fridge| fridge.admitted /= sum.max(1.0));
                SimulatedTable::Fridges(fridges.to_vec())
            }
            Kind::Staged => SimulatedTable::Staged { stages: 4, fridge: shape(slots, lifetime) },
            Kind::Expiry => SimulatedTable::Expiry { stages: 2, slots, expiry_ns },
            Kind::ExpiryInFive => SimulatedTable::Expiry { stages: 5, slots, expiry_ns },
            Kind::Overwrite => SimulatedTable::Overwrite { slots },
        }
    }
}

/// Errors of a table of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SizeErrors {
    /// Longest delay of the trace, in milliseconds.
    pub longest_ms: u64,
    /// Kind of the table.
    pub kind: Kind,
    /// Number of slots.
    pub slots: usize,
    /// Mean absolute errors of the percentiles 50, 95 and 99, in percent; infinite if a run had no
    /// delay.
    pub errors: [f64; PERCENTILES.len()],
}

/// Returns the requests and answers of a trace up to its last request, in the order of time.
fn events(longest_ms: u64, requests: u64) -> Vec<Event> {
    let max_ns = longest_ms * 1_000_000;
    let profile = DelayProfile {
        requests,
        min_ns: max_ns / 1_000,
        max_ns,
        ..DelayProfile::new(DelayShape::LogUniform)
    };
    let end = profile.request(requests.saturating_sub(1)).at_ns;
    let mut events: Vec<Event> = (0..requests)
        .flat_map(|number| {
            let request = profile.request(number);
            let event = |at_ns, delay_ns| Event { id: mix(number).max(1), at_ns, delay_ns };
            let answer = request.delay_ns.map(|delay| event(request.at_ns + delay, Some(delay)));
            [event(request.at_ns, None)].into_iter().chain(answer)
        })
        .filter(|event| event.at_ns <= end)
        .collect();
    events.sort_by_key(|event| event.at_ns);
    events
}

/// Measures the errors of all kinds and sizes with seeds 1 to `seeds`.
pub(super) fn measure(
    seeds: u64,
    requests: u64,
    threads: usize,
    progress: &Progress<'_>,
) -> Vec<SizeErrors> {
    let mut all = Vec::new();
    for longest_ms in LONGEST_MS {
        let events = events(longest_ms, requests);
        let truth = truth(&events);
        let lifetime = LIFETIME * longest_ms as f64 * 1_000.0;
        let expiry_ns = truth.last().copied().unwrap_or_default() as u64;
        let jobs: Vec<(Kind, usize)> = Kind::ALL
            .into_iter()
            .flat_map(|kind| SIZES_LOG2.map(move |log2| (kind, 1_usize << log2)))
            .collect();
        let measure_table = |&(kind, slots): &(Kind, usize)| {
            let table = kind.table(slots, lifetime, expiry_ns);
            let runs: Vec<[f64; 3]> = (1..=seeds)
                .map(|seed| {
                    let errors = table.errors(&events, &truth, seed);
                    errors.map_or([f64::INFINITY; 3], |(_, errors)| errors.percentiles)
                })
                .collect();
            let mean = |index: usize| {
                let errors = Spread::from_values(runs.iter().map(|run| run[index].abs()));
                errors.map_or(f64::INFINITY, |errors| errors.mean)
            };
            SizeErrors { longest_ms, kind, slots, errors: std::array::from_fn(mean) }
        };
        all.extend(parallel::run(&jobs, threads, parallel::equal_cost, progress, measure_table));
    }
    all
}

/// Slots with which a table reaches [`ERROR_PERCENT`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Slots {
    /// The smallest size already has a smaller error.
    AtMost(usize),
    /// Interpolated between two sizes.
    About(f64),
    /// The largest size still has a larger error.
    Above(usize),
    /// Not measured.
    Unknown,
}

impl Slots {
    /// Returns the number of slots: an upper bound below the smallest size, infinite above the
    /// largest. `None` if unknown.
    pub(crate) fn value(self) -> Option<f64> {
        match self {
            Slots::AtMost(slots) => Some(slots as f64),
            Slots::About(slots) => Some(slots),
            Slots::Above(_) => Some(f64::INFINITY),
            Slots::Unknown => None,
        }
    }
}

/// Returns how many times as many slots one kind of table needs as another: a bound if one of them
/// is smaller or larger than all sizes, `None` if both are.
pub(super) fn saving(more: Slots, less: Slots) -> Option<f64> {
    match (more, less) {
        (Slots::AtMost(_), Slots::AtMost(_)) | (Slots::Above(_), Slots::Above(_)) => None,
        (Slots::Above(slots), less) => Some(slots as f64 / less.value()?),
        (more, Slots::Above(slots)) => Some(more.value()? / slots as f64),
        (more, less) => Some(more.value()? / less.value()?),
    }
}

/// Returns the longest delays, in milliseconds, and for each the percentiles with their indices.
pub(super) fn cases() -> impl Iterator<Item = (u64, usize, u32)> {
    LONGEST_MS.into_iter().flat_map(|longest_ms| {
        let percentiles = PERCENTILES.into_iter().enumerate();
        percentiles.map(move |(index, percentile)| (longest_ms, index, percentile))
    })
}

/// Returns at how many of the longest delays and percentiles one kind needs fewer slots than
/// another, and at how many both are known.
pub(super) fn wins(all: &[SizeErrors], kind: Kind, other: Kind) -> (usize, usize) {
    let compared: Vec<bool> = cases()
        .filter_map(|(longest_ms, index, _)| {
            let [slots, other_slots] =
                [kind, other].map(|kind| needed(all, longest_ms, kind, index).value());
            Some(slots? < other_slots?)
        })
        .collect();
    (compared.iter().filter(|is_less| **is_less).count(), compared.len())
}

/// Returns the slots above which the error of a percentile is at most [`ERROR_PERCENT`],
/// interpolated between sizes on logarithmic scales.
pub(crate) fn needed(all: &[SizeErrors], longest_ms: u64, kind: Kind, percentile: usize) -> Slots {
    let sizes = all.iter().filter(|size| size.longest_ms == longest_ms && size.kind == kind);
    let curve: Vec<(usize, f64)> = sizes
        .filter_map(|size| Some((size.slots, size.errors.get(percentile).copied()?)))
        .collect();
    match curve.iter().rposition(|(_, error)| *error > ERROR_PERCENT) {
        None => curve.first().map_or(Slots::Unknown, |(slots, _)| Slots::AtMost(*slots)),
        Some(last) => match (curve.get(last), curve.get(last + 1)) {
            (Some(&(below, before)), Some(&(above, after))) => {
                let share = if before.is_finite() && after > 0.0 {
                    (before / ERROR_PERCENT).ln() / (before / after).ln()
                } else {
                    1.0
                };
                let ratio = above as f64 / below as f64;
                Slots::About(below as f64 * ratio.powf(share))
            }
            _ => Slots::Above(curve.get(last).map_or(0, |(slots, _)| *slots)),
        },
    }
}

/// Returns the slots of all kinds as a table.
pub(super) fn table(all: &[SizeErrors]) -> Table {
    let caption = format!(
        "Slots for an error of {ERROR_PERCENT:.0} % of each percentile, by the longest delay T of a log-uniform trace"
    );
    let mut columns = vec![Column::text("", "T"), Column::text("", "percentile")];
    columns.extend(Kind::ALL.map(|kind| Column::number("", kind.name())));
    let mut table = Table::new(caption, columns);
    for (longest_ms, index, percentile) in cases() {
        let mut row =
            vec![Cell::new(format!("{longest_ms} ms")), Cell::new(format!("p{percentile}"))];
        row.extend(Kind::ALL.map(|kind| match needed(all, longest_ms, kind, index) {
            Slots::AtMost(slots) => Cell::new(format!("≤ {}", grouped(slots as u64))),
            Slots::About(slots) => Cell::new(grouped(slots.round() as u64)),
            Slots::Above(slots) => Cell::new(format!("> {}", grouped(slots as u64))),
            Slots::Unknown => Cell::default(),
        }));
        table.row(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_interpolated_between_the_sizes_around_an_error() {
        let size = |slots, error| SizeErrors {
            longest_ms: 10,
            kind: Kind::Fridge,
            slots,
            errors: [error, 5.0, 50.0],
        };
        let all = [size(64, 40.0), size(128, 20.0), size(256, 5.0)];
        // From 20 to 5 over a doubling: 10 is in the middle.
        let Slots::About(slots) = needed(&all, 10, Kind::Fridge, 0) else { panic!() };
        assert!((slots - 128.0 * 2_f64.sqrt()).abs() < 1e-9, "{slots}");
        assert_eq!(needed(&all, 10, Kind::Fridge, 1), Slots::AtMost(64));
        assert_eq!(needed(&all, 10, Kind::Fridge, 2), Slots::Above(256));
        assert_eq!(needed(&all, 10, Kind::Overwrite, 0), Slots::Unknown);
        let all = [
            &all[..],
            &all.map(|size| SizeErrors { kind: Kind::Overwrite, slots: 2 * size.slots, ..size }),
        ]
        .concat();
        // Twice the slots at two percentiles; the third is beyond all sizes.
        assert_eq!(wins(&all, Kind::Fridge, Kind::Overwrite), (2, 3));
    }

    #[test]
    fn a_saving_is_unknown_if_both_tables_are_beyond_all_sizes() {
        let (below, about, above) = (Slots::AtMost(64), Slots::About(256.0), Slots::Above(1024));
        assert_eq!([below, above].map(|slots| saving(slots, slots)), [None, None]);
        assert_eq!([about, below, above].map(|slots| saving(slots, Slots::Unknown)), [None; 3]);
        assert_eq!(saving(about, Slots::About(128.0)), Some(2.0));
        // At least four times and at most a quarter, in either direction.
        assert_eq!([saving(above, about), saving(about, below)], [Some(4.0); 2]);
        assert_eq!([saving(about, above), saving(below, about)], [Some(0.25); 2]);
    }

    #[test]
    fn overwriting_needs_more_than_a_fridge() {
        let all = measure(2, 60_000, 2, &|_, _| {});
        assert_eq!(all.len(), LONGEST_MS.len() * Kind::ALL.len() * 9);
        assert_eq!(all, measure(2, 60_000, 1, &|_, _| {}));
        let error = |kind| {
            let wanted =
                |size: &&SizeErrors| (size.longest_ms, size.kind, size.slots) == (10, kind, 1024);
            all.iter().find(wanted).unwrap().errors
        };
        // At a million requests a second, 10 ms are 10,000 requests for 1,024 slots.
        assert!(error(Kind::Overwrite)[1] > 50.0 && error(Kind::Fridge)[1] < 50.0, "{all:?}");
        assert!(table(&all).to_string().contains("overwrite"));
    }
}
