//! Share of a prefix's segments that are out of order.
//!
//! Segments of one flow share a path, so late segments occur in clusters. With `y` late segments in
//! each flow, the variance of their sum is about the sum of `y²`, as in a compound Poisson process,
//! instead of the sum of `y` for independent segments. The interval of Wilson (1927) is therefore
//! computed for the effective sample size: the number of independent segments with the same
//! variance (design effect, Kish 1965). The observed clusters are equivalent to `(sum of y)² / (sum
//! of y²)` equal ones, and one more is allowed for (as Fay and Feuer 1997 do for weighted sums). If
//! no segment was late, each flow counts once.

use crate::figure::{Number, Z95};
use flowgauge_core::reorder::{MOST_LATE, PrefixCounts};
use std::collections::HashSet;

/// Returns the share of a prefix's segments that are out of order, 0 to 1.
#[must_use]
pub fn rate(prefix: &PrefixCounts) -> Number {
    let (packets, late, squares) =
        (prefix.packets as f64, prefix.out_of_order as f64, prefix.squares as f64);
    let independent = if prefix.out_of_order == 0 || prefix.out_of_order > u64::from(MOST_LATE) {
        // The clusters are unknown, or their squares may be too small.
        prefix.flows.max(1) as f64
    } else {
        let clusters = late * late / squares.max(late);
        packets * late / squares.max(late) * clusters / (clusters + 1.0)
    };
    wilson(late / packets, independent.clamp(1.0, packets))
}

/// Share of segments out of order above which a prefix counts as reordering.
pub const MUCH: f64 = 0.01;
/// Minimum number of late segments for that.
pub const LEAST_LATE: u64 = 3;
/// Minimum share of all segments for a prefix that should be detected if it reorders.
pub const LARGE: f64 = 0.001;

/// Returns the share of a prefix's counted segments that are out of order, 0 to 1.
#[must_use]
pub fn share(prefix: &PrefixCounts) -> f64 {
    prefix.out_of_order as f64 / prefix.packets.max(1) as f64
}

/// Returns whether a prefix appears to reorder.
#[must_use]
pub fn reorders(prefix: &PrefixCounts) -> bool {
    prefix.out_of_order >= LEAST_LATE && share(prefix) > MUCH
}

/// Quality of the detection of reordering prefixes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DetectionQuality {
    /// Prefixes that [reorder](reorders) and have at least a share of [`LARGE`] of all segments.
    pub reordering: u64,
    /// Detected prefixes among `reordering`.
    pub found: u64,
    /// False positives: detected prefixes with a share of at most [`MUCH`] out of order.
    pub wrongly: u64,
}

/// Compares the detected prefixes with the exact counts of all flows.
#[must_use]
pub fn recall<'a>(
    found: impl Iterator<Item = &'a PrefixCounts>,
    truth: &[PrefixCounts],
) -> DetectionQuality {
    let large = LARGE * truth.iter().map(|prefix| prefix.packets).sum::<u64>() as f64;
    let is_much = |prefix: &PrefixCounts| share(prefix) > MUCH;
    let found: HashSet<u64> =
        found.filter(|prefix| reorders(prefix)).map(|prefix| prefix.prefix).collect();
    let (much, little): (Vec<&PrefixCounts>, Vec<&PrefixCounts>) =
        truth.iter().partition(|prefix| is_much(prefix));
    let to_find = much.iter().filter(|prefix| reorders(prefix) && prefix.packets as f64 >= large);
    let is_found = |prefix: &&&PrefixCounts| found.contains(&prefix.prefix);
    DetectionQuality {
        reordering: to_find.clone().count() as u64,
        found: to_find.filter(is_found).count() as u64,
        wrongly: little.iter().filter(is_found).count() as u64,
    }
}

/// Returns Wilson's interval of a share of `number` independent segments.
fn wilson(share: f64, number: f64) -> Number {
    let square = Z95 * Z95 / number;
    let middle = share + square / 2.0;
    let half = Z95 * (share * (1.0 - share) / number + square / (4.0 * number)).sqrt();
    let bound = |value: f64| (value / (1.0 + square)).clamp(0.0, 1.0);
    Number {
        value: share,
        low: bound(middle - half).min(share),
        high: bound(middle + half).max(share),
    }
}

#[cfg(test)]
mod tests {
    use super::{DetectionQuality, rate, recall, wilson};
    use flowgauge_core::reorder::{MOST_LATE, PrefixCounts};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn intervals_of_shares_are_those_of_the_books() {
        // Newcombe 1998, table I.
        for (late, packets, low, high) in [
            (81.0, 263.0, 0.2553, 0.3662),
            (15.0, 148.0, 0.0624, 0.1605),
            (0.0, 20.0, 0.0, 0.1611),
            (1.0, 29.0, 0.0061, 0.1718),
        ] {
            let found = wilson(late / packets, packets);
            assert!(
                (found.low - low).abs() < 5e-5 && (found.high - high).abs() < 5e-5,
                "{found:?}"
            );
        }
    }

    #[test]
    fn prefixes_are_found_rightly_or_wrongly() {
        let of = |prefix, packets, out_of_order| PrefixCounts {
            prefix,
            packets,
            out_of_order,
            ..PrefixCounts::default()
        };
        let truth =
            [of(1, 1000, 20), of(2, 1000, 20), of(3, 1000, 10), of(4, 3, 3), of(5, 1000, 11)];
        let found = [of(1, 100, 3), of(2, 100, 2), of(3, 100, 3), of(4, 3, 3), of(5, 400, 4)];
        assert_eq!(
            recall(found.iter(), &truth),
            DetectionQuality { reordering: 3, found: 1, wrongly: 1 }
        );
    }

    #[test]
    fn what_is_not_known_of_clusters_makes_intervals_wide() {
        let of = |packets, out_of_order, flows, squares| {
            rate(&PrefixCounts { packets, out_of_order, flows, squares, ..PrefixCounts::default() })
        };
        assert_eq!(of(1000, 0, 20, 0), wilson(0.0, 20.0));
        assert_eq!(of(1, 0, 0, 0), wilson(0.0, 1.0));
        let many = u64::from(MOST_LATE) + 1;
        assert_eq!(of(1 << 20, many, 50, 7), wilson(many as f64 / f64::from(1 << 20), 50.0));
        let (apart, together) = (of(1000, 10, 20, 10), of(1000, 10, 20, 100));
        assert!(apart.low > together.low && apart.high < together.high, "{apart:?} {together:?}");
    }

    /// Draws the number of late segments of a flow.
    type Late = fn(&mut ChaCha8Rng, u64) -> u64;

    fn alike(random: &mut ChaCha8Rng, segments: u64) -> u64 {
        (0..segments).filter(|_| random.random_bool(0.02)).count() as u64
    }

    /// Draws late segments for one flow in ten: one segment in five of that flow.
    fn by_few(random: &mut ChaCha8Rng, segments: u64) -> u64 {
        let is_one = random.random_bool(0.1);
        (0..segments).filter(|_| is_one && random.random_bool(0.2)).count() as u64
    }

    /// Draws late segments at a rate from 0 to 4 % for each flow.
    fn by_many(random: &mut ChaCha8Rng, segments: u64) -> u64 {
        let rate = random.random_range(0.0..0.04);
        (0..segments).filter(|_| random.random_bool(rate)).count() as u64
    }

    #[test]
    fn intervals_hold_the_share_of_all_flows() {
        const TRIALS: u64 = 1000;
        for (name, late) in [("alike", alike as Late), ("by few", by_few), ("by many", by_many)] {
            for flows in [3, 10, 30, 100] {
                for is_large in [false, true] {
                    let held = (0..TRIALS).filter(|seed| {
                        let mut random = ChaCha8Rng::seed_from_u64(*seed);
                        let mut prefix = PrefixCounts { flows, ..PrefixCounts::default() };
                        for _ in 0..flows {
                            let segments = if is_large {
                                64
                            } else {
                                (2.0 / (1.0 - random.random::<f64>())).min(64.0) as u64
                            };
                            let late = late(&mut random, segments);
                            prefix.packets += segments;
                            prefix.out_of_order += late;
                            prefix.squares += late * late;
                        }
                        let rate = rate(&prefix);
                        rate.low <= 0.02 && 0.02 <= rate.high
                    });
                    let held = held.count();
                    println!(
                        "{name}, {flows} flows{}: {held}",
                        if is_large { " of 64 segments" } else { "" }
                    );
                    // Small flows, few of which have many late segments, have the most uneven
                    // clusters.
                    assert!(
                        held as u64 * 100 >= TRIALS * 85,
                        "{name} {flows} {is_large}: {held} of {TRIALS}"
                    );
                }
            }
        }
    }
}
