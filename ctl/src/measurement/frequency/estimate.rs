//! Packets of one flow, from a sketch.
//!
//! Count-Min: Cormode and Muthukrishnan, *An improved data stream summary* (2005). Count Sketch:
//! Charikar, Chen and Farach-Colton, *Finding frequent items in data streams* (2002).

use crate::figure::Z95;
use flowgauge_core::sketch::RowEstimate;
use flowgauge_core::{Grid, SketchKind, SketchTotals, Tabulation};

/// Packets of a flow; `0 <= low <= value <= high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Frequency {
    /// Estimated number of packets.
    pub value: f64,
    /// Lower end of the interval, packets.
    pub low: f64,
    /// Upper end of the interval, packets.
    pub high: f64,
    /// Probability that the interval contains the truth.
    pub confidence: f64,
    /// Whether counters of the flow are full, so that the interval extends to all packets that
    /// remain possible.
    pub saturated: bool,
}

impl Frequency {
    /// Packets of a flow that certainly has none.
    pub const NONE: Frequency =
        Frequency { value: 0.0, low: 0.0, high: 0.0, confidence: 1.0, saturated: false };
}

/// Estimates the packets of the flow with this CRC, from a sketch of `packets` packets.
///
/// Count-Min never underestimates, and overestimates by more than `e N / columns` of N packets with
/// a probability of `exp(-rows)`. The error of a row of Count Sketch has the variance `F2 /
/// columns`, F2 being the sum of squares of the other flows' packets, estimated from the row
/// itself; the variance of the median of rows is `pi / 2 rows` of that.
///
/// A full counter counts no further. Its value is a lower bound of the flow's packets, less the
/// share of other flows; the flow may have any part of the remaining packets in addition. So a row
/// with a full counter enters the lower end of the interval with its value, and the upper end with
/// all packets. The other rows are used as usual: Count-Min takes the smallest of them.
#[must_use]
pub fn estimate(
    sketch: &SketchTotals,
    kind: SketchKind,
    shape: Grid,
    crc: u32,
    tabulation: &Tabulation,
    packets: u64,
) -> Frequency {
    let mut rows = Vec::with_capacity(shape.rows());
    sketch.rows(kind, shape, crc, tabulation, |row| rows.push(row));
    match kind {
        SketchKind::CountMin => count_min(sketch, shape, &rows, packets),
        SketchKind::CountSketch => count_sketch(sketch, shape, &rows, packets),
    }
}

fn count_min(sketch: &SketchTotals, shape: Grid, rows: &[RowEstimate], packets: u64) -> Frequency {
    let counted: i64 = sketch.cells(shape).iter().take(shape.columns()).sum();
    // Reads that are not atomic may have more packets in the rows than in the counters.
    let packets = (packets as f64).max(counted as f64);
    let excess = std::f64::consts::E * packets / shape.columns() as f64;
    let smallest = |rows: &mut dyn Iterator<Item = &RowEstimate>| rows.map(|row| row.value).min();
    let whole = smallest(&mut rows.iter().filter(|row| !row.full));
    let value = whole.or_else(|| smallest(&mut rows.iter())).unwrap_or(0).max(0) as f64;
    let high = if whole.is_some() { value } else { packets.max(value) };
    let confidence = -(-(shape.rows() as f64)).exp_m1();
    // Full rows may have a larger value than the smallest row that is not full.
    let (low, saturated) = ((value - excess).max(0.0), whole.is_none());
    Frequency { value, low, high, confidence, saturated }
}

fn count_sketch(
    sketch: &SketchTotals,
    shape: Grid,
    rows: &[RowEstimate],
    packets: u64,
) -> Frequency {
    let median = |value: &dyn Fn(&RowEstimate) -> i64| {
        let mut values: Vec<i64> = rows.iter().map(value).collect();
        SketchKind::CountSketch.answer(&mut values).max(0) as f64
    };
    let value = median(&|row| row.value);
    let all = packets as f64;
    let full_rows = rows.iter().filter(|row| row.full).count();
    let squares: f64 = sketch.cells(shape).iter().map(|&cell| (cell as f64).powi(2)).sum();
    let count = shape.rows() as f64;
    // About flows in other full counters only the total of packets is known.
    let others =
        if sketch.full(shape) > full_rows { all * all } else { squares / count - value * value };
    // The median of one or two is their mean.
    let of_median = (std::f64::consts::FRAC_PI_2).min((count / 2.0).max(1.0)) / count;
    let margin = Z95 * (others.max(0.0) / shape.columns() as f64 * of_median).sqrt();
    let (low, high) = if full_rows == 0 {
        (value, value + margin)
    } else {
        // A counter filled by other flows of the opposite sign gives no lower bound.
        let most = i64::try_from(packets).unwrap_or(i64::MAX);
        let low = median(&|row| if row.full { row.value.max(0) } else { row.value });
        let high = median(&|row| if row.full { most } else { row.value });
        (low, (high + margin).min(all.max(value)).max(value))
    };
    let (low, saturated) = ((low - margin).clamp(0.0, value), full_rows > 0);
    Frequency { value, low, high, confidence: 0.95, saturated }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowgauge_core::Sketch;
    use flowgauge_core::hash::crc32;
    use flowgauge_core::sketch::{FULL, SLACK};
    use flowgauge_testing::chance::of_mean;

    /// Returns flows by rank: the one of rank r has `40,000 / r` packets.
    fn flows() -> impl Iterator<Item = (u32, u32)> {
        (1..=20_000_u32).map(|rank| (crc32(&rank.to_be_bytes()), 40_000 / rank))
    }

    fn filled(kind: SketchKind, shape: Grid, tabulation: &Tabulation) -> Box<SketchTotals> {
        let mut sketch = Box::new(Sketch::new());
        for (crc, packets) in flows() {
            (0..packets).for_each(|_| sketch.update(kind, shape, crc, tabulation));
        }
        wide(&sketch, kind, shape)
    }

    fn wide(sketch: &Sketch, kind: SketchKind, shape: Grid) -> Box<SketchTotals> {
        let mut wide = Box::new(SketchTotals::new());
        wide.merge(sketch, kind, shape);
        wide
    }

    /// Returns the number of packets of all [`flows`].
    fn all_packets() -> u64 {
        flows().map(|(_, packets)| u64::from(packets)).sum()
    }

    /// Returns the standard deviation, in one row, of the summed errors of all flows of more than
    /// 100 packets. Each has the packets of other flows in its counter, with probability `1 /
    /// columns` and random sign; two large flows in one counter have each other's.
    fn deviation_of_sums(columns: usize) -> f64 {
        let packets = || flows().map(|(_, packets)| f64::from(packets));
        let large = || packets().filter(|packets| *packets > 100.0);
        let squares: f64 = packets().map(|packets| packets * packets).sum();
        ((large().count() as f64 * squares + large().sum::<f64>().powi(2)) / columns as f64).sqrt()
    }

    /// Number of seeds for coverage.
    const SEEDS: u64 = 3;

    /// Returns the share of flows whose interval contains the truth, over some seeds.
    fn coverage(kind: SketchKind, shape: Grid, mut check: impl FnMut(&Frequency, f64)) -> f64 {
        let (mut held, mut all, sent) = (0, 0, all_packets());
        for seed in 1..=SEEDS {
            let tabulation = Box::new(Tabulation::from_seed(seed));
            let sketch = filled(kind, shape, &tabulation);
            for (crc, packets) in flows() {
                let estimate = estimate(&sketch, kind, shape, crc, &tabulation, sent);
                assert!(
                    0.0 <= estimate.low
                        && estimate.low <= estimate.value
                        && estimate.value <= estimate.high
                );
                check(&estimate, f64::from(packets));
                held += u32::from((estimate.low..=estimate.high).contains(&f64::from(packets)));
                all += 1;
            }
        }
        f64::from(held) / f64::from(all)
    }

    #[test]
    fn count_min_is_never_too_low_and_keeps_its_bound() {
        for (rows, columns) in [(1, 1024), (4, 1024), (3, 256)] {
            let shape = Grid::of_counters(rows, columns).unwrap();
            let mut confidence = 0.0;
            let held = coverage(SketchKind::CountMin, shape, |estimate, truth| {
                assert!(estimate.value >= truth);
                confidence = estimate.confidence;
            });
            assert!((confidence - (1.0 - (-(rows as f64)).exp())).abs() < 1e-12);
            assert!(held >= confidence, "{rows} x {columns}: {held}");
        }
    }

    #[test]
    fn intervals_of_count_sketch_hold_the_truth() {
        for (rows, columns) in [(1, 1024), (2, 1024), (3, 256), (4, 1024), (10, 512)] {
            let shape = Grid::of_counters(rows, columns).unwrap();
            let (mut error, mut flows) = (0.0, 0.0);
            let held = coverage(SketchKind::CountSketch, shape, |estimate, truth| {
                error += if truth > 100.0 { estimate.value - truth } else { 0.0 };
                flows += f64::from(u8::from(truth > 100.0));
            });
            assert!(held >= 0.95, "{rows} x {columns}: {held}");
            // No bias beyond the scatter of single rows. Flows of few packets are excluded: their
            // estimates are cut off at zero.
            let bias = error / flows;
            assert!(
                bias.abs() <= of_mean(deviation_of_sums(columns) / (flows / SEEDS as f64), SEEDS),
                "{rows} x {columns}: {bias} packets"
            );
        }
    }

    #[test]
    fn the_margin_is_that_of_the_other_flows() {
        let shape = Grid::of_counters(4, 1024).unwrap();
        let tabulation = Box::new(Tabulation::from_seed(1));
        let mut sketch = Box::new(Sketch::new());
        (0..1000).for_each(|_| sketch.update(SketchKind::CountSketch, shape, 7, &tabulation));
        let sketch = wide(&sketch, SketchKind::CountSketch, shape);
        let alone = estimate(&sketch, SketchKind::CountSketch, shape, 7, &tabulation, 1000);
        assert_eq!((alone.low, alone.value, alone.high), (1000.0, 1000.0, 1000.0));
        assert!(!alone.saturated);
    }

    /// Returns a sketch with a flow of `packets` packets, to continue counting from.
    fn preset(
        kind: SketchKind,
        shape: Grid,
        crc: u32,
        tabulation: &Tabulation,
        packets: u32,
    ) -> Box<Sketch> {
        let mut sketch = Box::new(Sketch::new());
        sketch.update(kind, shape, crc, tabulation);
        sketch
            .cells_mut(shape)
            .iter_mut()
            .for_each(|cell| *cell = cell.wrapping_mul(packets as i32));
        sketch
    }

    /// Counts 4,294,967,400 packets of one flow, which exceed 32 bits.
    #[test]
    fn a_flow_of_more_packets_than_a_counter_holds_has_a_lower_bound() {
        const PACKETS: u64 = 4_294_967_400;
        let (shape, tabulation) =
            (Grid::of_counters(4, 1024).unwrap(), Box::new(Tabulation::from_seed(1)));
        for (kind, before) in
            [(SketchKind::CountMin, u32::MAX - SLACK), (SketchKind::CountSketch, FULL as u32 - 1)]
        {
            let mut sketch = preset(kind, shape, 7, &tabulation, before);
            // Packets after the counters are full change nothing.
            (0..1000).for_each(|_| sketch.update(kind, shape, 7, &tabulation));
            let sketch = wide(&sketch, kind, shape);
            let estimated = estimate(&sketch, kind, shape, 7, &tabulation, PACKETS);
            assert!(
                estimated.saturated && estimated.value == f64::from(before) + 1.0,
                "{kind:?}: {estimated:?}"
            );
            // In a Count-Min other flows may have a share of all packets; in a Count Sketch the
            // other cells show that there are no other flows.
            let others = if kind == SketchKind::CountMin {
                std::f64::consts::E * PACKETS as f64 / 1024.0
            } else {
                0.0
            };
            assert_eq!(
                (estimated.low, estimated.high),
                (estimated.value - others, PACKETS as f64),
                "{kind:?}: {estimated:?}"
            );
            // The estimate of another flow is unchanged, except that its interval allows for more
            // packets.
            let other = estimate(&sketch, kind, shape, 8, &tabulation, PACKETS);
            assert!(!other.saturated && other.low == 0.0, "{kind:?}: {other:?}");
        }
    }

    #[test]
    fn cores_and_windows_add_up_beyond_32_bits() {
        let (shape, tabulation) =
            (Grid::of_counters(4, 1024).unwrap(), Box::new(Tabulation::from_seed(1)));
        for kind in SketchKind::ALL {
            let one = preset(kind, shape, 7, &tabulation, 2_000_000_000);
            let mut all = Box::new(SketchTotals::new());
            (0..7).for_each(|_| all.merge(&one, kind, shape));
            let mut total = Box::new(SketchTotals::new());
            (0..3).for_each(|_| total.unite(&all, shape));
            let estimated = estimate(&total, kind, shape, 7, &tabulation, 42_000_000_000);
            assert!(
                !estimated.saturated && estimated.value == 42e9 && estimated.high == 42e9,
                "{kind:?}: {estimated:?}"
            );
        }
    }

    /// Fills one of three rows with other flows: the estimate uses the other two.
    #[test]
    fn a_row_that_others_filled_leaves_the_answer_to_the_rest() {
        let (shape, tabulation) =
            (Grid::of_counters(3, 1024).unwrap(), Box::new(Tabulation::from_seed(1)));
        for kind in SketchKind::ALL {
            let mut sketch = preset(kind, shape, 7, &tabulation, 1000);
            let cell = sketch.cells_mut(shape).iter_mut().find(|cell| **cell != 0).unwrap();
            *cell = if kind == SketchKind::CountMin { -1 } else { i32::MIN };
            let estimated =
                estimate(&wide(&sketch, kind, shape), kind, shape, 7, &tabulation, 5_000_000_000);
            match kind {
                SketchKind::CountMin => assert!(
                    !estimated.saturated && estimated.value == 1000.0 && estimated.high == 1000.0,
                    "{estimated:?}"
                ),
                SketchKind::CountSketch => assert!(
                    estimated.low == 0.0 && estimated.value == 1000.0 && estimated.high >= 1000.0,
                    "{estimated:?}"
                ),
            }
        }
    }
}
