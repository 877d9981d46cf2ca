//! The entropy of a capture's windows, with simulated sketches of any number of columns: figure 7 on
//! a trace of one's own, with the paper's 10 x 1000 counters.

use super::lapolli;
use crate::error::ReproduceError;
use crate::report::{Cell, Column, Table};
use crate::statistics::Spread;
use crate::trace::{Trace, Window, below, hash, mix};
use flowgauge_core::SketchKind;
use flowgauge_core::entropy::{DERIVATIVE_OF_LOG, POWER, in_integers_with};
use flowgauge_core::logarithm::PER_PACKET;
use flowgauge_ctl::output::grouped;

/// Methods of a table's columns.
const METHODS: [&str; 3] = ["final in floating point", "4 bits", "Lapolli"];

/// Count Sketch or Count-Min sketch of any size, for the flows of a window.
struct SimulatedSketch {
    kind: SketchKind,
    rows: usize,
    cells: Vec<i32>,
    /// Cell and sign of each flow in each row.
    places: Vec<(usize, i32)>,
    /// Answers of the rows.
    answers: Vec<i32>,
}

impl SimulatedSketch {
    fn new(kind: SketchKind, (rows, columns): (usize, usize), window: &Window, seed: u64) -> Self {
        let places = window.keys.iter().flat_map(|key| {
            let key = hash(&[key.as_bytes()], seed);
            (0..rows).map(move |row| {
                let place = mix(key ^ mix(row as u64));
                let sign = match kind {
                    SketchKind::CountSketch if place & 1 == 0 => -1,
                    SketchKind::CountSketch | SketchKind::CountMin => 1,
                };
                (row * columns + below(place, columns), sign)
            })
        });
        let places = places.collect();
        SimulatedSketch { kind, rows, cells: vec![0; rows * columns], places, answers: Vec::new() }
    }

    /// Counts a packet of a flow, and returns the estimate of its packets: the least of the rows, or
    /// their median, of an even number the mean of both in the middle.
    fn count(&mut self, flow: u32) -> i32 {
        let first = flow as usize * self.rows;
        let SimulatedSketch { kind, cells, places, answers, .. } = self;
        let places = places.get(first..first + self.rows).unwrap_or_default();
        answers.clear();
        for (place, sign) in places {
            if let Some(cell) = cells.get_mut(*place) {
                *cell += sign;
                answers.push(*cell * sign);
            }
        }
        answers.sort_unstable();
        let middle = answers.len() / 2;
        let answer = |index: usize| answers.get(index).copied().unwrap_or(0);
        match kind {
            SketchKind::CountMin => answer(0),
            SketchKind::CountSketch if answers.len() % 2 == 1 => answer(middle),
            SketchKind::CountSketch => (answer(middle.saturating_sub(1)) + answer(middle)) / 2,
        }
    }
}

/// Entropy of a window, and the errors of estimates.
struct WindowErrors {
    packets: u64,
    flows: usize,
    /// In bits.
    exact: f64,
    /// Errors in percent, by sketch and method.
    errors: [[f64; METHODS.len()]; SketchKind::ALL.len()],
}

fn count(window: &Window, shape: (usize, usize)) -> WindowErrors {
    let packets = window.packets();
    let logarithm = (packets as f64).log2();
    let sum = window.counts.iter().map(|&count| count as f64 * (count as f64).log2()).sum::<f64>();
    let exact = logarithm - sum / packets as f64;
    let terms = lapolli::Table::new();
    let errors = SketchKind::ALL.map(|kind| {
        let mut sketch = SimulatedSketch::new(kind, shape, window, 1);
        let (mut sum, mut sum_of_table) = (0_u64, 0_u64);
        for flow in &window.order {
            let count = sketch.count(*flow);
            if count > 1 {
                sum += u64::from(PER_PACKET.log2(count as u64) + DERIVATIVE_OF_LOG);
            }
            sum_of_table += terms.term(count);
        }
        let floating = (logarithm - sum as f64 / 1024.0 / packets as f64).clamp(0.0, logarithm);
        let integers = in_integers_with(packets, sum, &PER_PACKET, &POWER) as f64 / 1024.0;
        // Its division is a shift, and needs a power of two.
        let by_table = if packets.is_power_of_two() {
            lapolli::entropy(packets.ilog2(), sum_of_table)
        } else {
            f64::NAN
        };
        [floating, integers, by_table].map(|bits| (bits - exact).abs() / exact * 100.0)
    });
    WindowErrors { packets, flows: window.keys.len(), exact, errors }
}

/// Counts the windows of a trace with sketches of this shape.
///
/// # Errors
/// As [`Trace::windows`].
pub(crate) fn replay(trace: &Trace, shape: (usize, usize)) -> Result<Vec<Table>, ReproduceError> {
    let windows = trace.windows(|window| count(window, shape))?;
    let packets: Vec<u64> = windows.iter().map(|window| window.packets).collect();
    let (rows, columns) = shape;
    let caption = format!(
        "|error| of the entropy of sources and destinations in %, {}, sketch {rows} x {columns}. The paper (figure 7, CAIDA 2018) has 10 windows of \
         2^21 packets, and with 4 bits close to 3 (Count Sketch) and around 20 (Count-Min)",
        trace.describe(&packets)
    );
    let mut all = vec![
        Column::text("", "window"),
        Column::number("", "flows"),
        Column::number("", "exact bits"),
    ];
    for kind in SketchKind::ALL {
        all.extend(METHODS.map(|method| Column::number(kind.name(), method)));
    }
    let mut table = Table::new(caption, all);
    let percent = |error: f64| {
        if error.is_finite() { Cell::new(format!("{error:.2}")) } else { Cell::new("-") }
    };
    let mut add = |name: String, flows: u64, exact: f64, errors: Vec<f64>| {
        let exact = format!("{exact:.4}");
        let mut row = vec![Cell::new(name), Cell::new(grouped(flows)), Cell::new(exact)];
        row.extend(errors.into_iter().map(percent));
        table.row(row);
    };
    for (number, window) in windows.iter().enumerate() {
        let errors = window.errors.as_flattened().to_vec();
        add(number.to_string(), window.flows as u64, window.exact, errors);
    }
    let mean = |value: &dyn Fn(&WindowErrors) -> f64| {
        Spread::from_values(windows.iter().map(value)).map_or(f64::NAN, |values| values.mean)
    };
    let flows = mean(&|window| window.flows as f64).round() as u64;
    let errors = (0..SketchKind::ALL.len() * METHODS.len())
        .map(|index| mean(&|window| window.errors.as_flattened()[index]));
    add("mean".to_owned(), flows, mean(&|window| window.exact), errors.collect());
    Ok(vec![table])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::tests::CaptureFile;
    use flowgauge_core::FlowKey;

    /// A window with two flows of 192 and 64 packets.
    fn window() -> Window {
        let mut window = Window::default();
        (0..256_u32).for_each(|packet| window.add(FlowKey::new(&[u8::from(packet % 4 == 0)])));
        window
    }

    #[test]
    fn a_sketch_with_room_counts_exactly() {
        for kind in SketchKind::ALL {
            for rows in [1, 4, 5] {
                let mut sketch = SimulatedSketch::new(kind, (rows, 1000), &window(), 1);
                let counts: Vec<i32> = [0, 0, 1, 0].map(|flow| sketch.count(flow)).to_vec();
                assert_eq!(counts, [1, 2, 1, 3], "{} {rows}", kind.name());
            }
        }
    }

    #[test]
    fn without_collisions_only_the_logarithms_err() {
        let found = count(&window(), (10, 1000));
        // 2 - 0.75 log2 3.
        assert!((found.exact - 0.811_278).abs() < 1e-6 && found.flows == 2, "{}", found.exact);
        for [floating, ..] in found.errors {
            // A logarithm is short by log2(1 + 1/16) and a digit at most. 1.44 stands for (f - 1)
            // log2(f / (f - 1)), which is 1 for f = 2 and nears 1.4427: over the packets of a flow
            // the differences add up to 0.72 ln f, here to 0.03 per packet.
            let most = ((17.0_f64 / 16.0).log2() + 0.06) / found.exact * 100.0;
            assert!(floating < most, "{floating} of {most}");
        }
    }

    #[test]
    fn a_capture_has_a_row_for_each_window() {
        let file = CaptureFile::of_sources("entropy", 130, 1_000_000, 7);
        let text = replay(&file.trace(64, 10), (10, 1000)).unwrap()[0].to_string();
        assert!(text.contains("2 windows of 64 packets") && !text.contains(" -"), "{text}");
        // Windows of no power of two have no figure by Lapolli.
        let text = replay(&file.trace(65, 10), (10, 1000)).unwrap()[0].to_string();
        assert!(text.contains(" -"), "{text}");
    }
}
