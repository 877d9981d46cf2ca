//! Packets of one flow, from a sketch.
//!
//! Count-Min: Cormode and Muthukrishnan, *An improved data stream summary* (2005). Count Sketch: Charikar, Chen and Farach-Colton, *Finding
//! frequent items in data streams* (2002).

use flowgauge_core::{Shape, Sketch, SketchKind, Tabulation};

/// Two-sided 95 % quantile of the normal distribution.
const Z95: f64 = 1.959_963_984_540_054;

/// Packets of a flow; `0 <= low <= value <= high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Frequency {
    /// Packets, estimated.
    pub value: f64,
    /// Lower end of the interval, packets.
    pub low: f64,
    /// Upper end of the interval, packets.
    pub high: f64,
    /// How probable it is that the interval holds the truth.
    pub confidence: f64,
}

/// Packets of the flow with this CRC.
///
/// Count-Min is never too low, and too high by more than `e N / columns` of N packets with a probability of `exp(-rows)`. The error of a
/// row of Count Sketch has the variance `F2 / columns`, F2 being the sum of squares of the other flows' packets, which is the
/// row's own; that of the median of rows is `pi / 2 rows` of it.
#[must_use]
pub fn estimate(sketch: &Sketch, kind: SketchKind, shape: Shape, crc: u32, tabulation: &Tabulation) -> Frequency {
    let value = f64::from(sketch.query(kind, shape, crc, tabulation).max(0));
    let rows = shape.rows() as f64;
    match kind {
        SketchKind::CountMin => {
            let packets: f64 = sketch.cells(shape).iter().take(shape.columns()).map(|&cell| f64::from(cell as u32)).sum();
            let excess = std::f64::consts::E * packets / shape.columns() as f64;
            Frequency { value, low: (value - excess).max(0.0), high: value, confidence: -(-rows).exp_m1() }
        }
        SketchKind::CountSketch => {
            let squares: f64 = sketch.cells(shape).iter().map(|&cell| f64::from(cell).powi(2)).sum();
            let others = (squares / rows - value * value).max(0.0);
            // A median of one or two is their mean.
            let of_median = (std::f64::consts::FRAC_PI_2).min((rows / 2.0).max(1.0)) / rows;
            let margin = Z95 * (others / shape.columns() as f64 * of_median).sqrt();
            Frequency { value, low: (value - margin).max(0.0), high: value + margin, confidence: 0.95 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowgauge_core::hash::crc32;

    /// A flow of rank r has some `40,000 / r` packets.
    fn flows() -> impl Iterator<Item = (u32, u32)> {
        (1..=20_000_u32).map(|rank| (crc32(&rank.to_be_bytes()), 40_000 / rank))
    }

    fn filled(kind: SketchKind, shape: Shape, tabulation: &Tabulation) -> Box<Sketch> {
        let mut sketch = Box::new(Sketch::new());
        for (crc, packets) in flows() {
            (0..packets).for_each(|_| sketch.update(kind, shape, crc, tabulation));
        }
        sketch
    }

    /// Share of the flows that the interval holds, over some seeds.
    fn coverage(kind: SketchKind, shape: Shape, mut check: impl FnMut(&Frequency, f64)) -> f64 {
        let (mut held, mut all) = (0, 0);
        for seed in 1..=3 {
            let tabulation = Box::new(Tabulation::from_seed(seed));
            let sketch = filled(kind, shape, &tabulation);
            for (crc, packets) in flows() {
                let estimate = estimate(&sketch, kind, shape, crc, &tabulation);
                assert!(0.0 <= estimate.low && estimate.low <= estimate.value && estimate.value <= estimate.high);
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
            let shape = Shape::new(rows, columns).unwrap();
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
            let shape = Shape::new(rows, columns).unwrap();
            let (mut error, mut flows) = (0.0, 0.0);
            let held = coverage(SketchKind::CountSketch, shape, |estimate, truth| {
                error += if truth > 100.0 { estimate.value - truth } else { 0.0 };
                flows += f64::from(u8::from(truth > 100.0));
            });
            assert!(held >= 0.95, "{rows} x {columns}: {held}");
            // No bias beyond the scatter of single rows. Flows of few packets are left out: they are cut off at zero.
            let scatter = 1.28 * 40_000.0 / (columns as f64).sqrt();
            let bias = error / flows;
            assert!(bias.abs() < 5.0 * scatter / f64::sqrt(flows), "{rows} x {columns}: {bias} packets");
        }
    }

    #[test]
    fn the_margin_is_that_of_the_other_flows() {
        let shape = Shape::new(4, 1024).unwrap();
        let tabulation = Box::new(Tabulation::from_seed(1));
        let mut sketch = Box::new(Sketch::new());
        (0..1000).for_each(|_| sketch.update(SketchKind::CountSketch, shape, 7, &tabulation));
        let alone = estimate(&sketch, SketchKind::CountSketch, shape, 7, &tabulation);
        assert_eq!((alone.low, alone.value, alone.high), (1000.0, 1000.0, 1000.0));
    }
}
