//! Entropies that are consistent with a window's sum and cells.
//!
//! Let F be the number of packets of the flow of a randomly drawn packet. The entropy is `log2 S -
//! E[log2 F]`. Two means of F are known. The first comes from the sum: a packet of a flow of f
//! packets adds `q(f)` on average, which is `log2 f` for large flows, and depends on the noise
//! alone for flows below the sketch's noise. The second comes from the cells: a cell sums flows
//! with random signs, so that over cells `-ln |E exp(i t cell)| = (S / columns) E[(1 - cos t F) /
//! F]` for any t, which gives the number of flows of sizes from about 1/t up. The interval is the
//! range of `E[log2 F]` given both: a linear program over distributions of F.

use flowgauge_core::entropy::DERIVATIVE_OF_LOG;
use flowgauge_core::logarithm::PER_PACKET;
use flowgauge_core::{Grid, SketchKind, SketchTotals, Tabulation};

/// Ratio of successive flow sizes in the model.
const RATIO: f64 = 1.5;

/// Maximum number of keys queried to estimate the noise, and of the answers used.
const KEYS: u32 = 1024;
const ANSWERS: usize = 32;

/// Number of instants of the window at which a flow's packet may arrive, in the model.
const INSTANTS: u32 = 48;

/// Error from rounding sizes and logarithms, in bits.
const ROUNDING: f64 = 0.01;

/// Median of the absolute value of a standard normal variable.
const MEDIAN: f64 = 0.6745;

/// Observations of a window.
pub(super) struct WindowObservations<'a> {
    pub(super) packets: f64,
    /// Average amount that a packet added to the sum, in bits.
    pub(super) mean: f64,
    pub(super) sketch: &'a SketchTotals,
    pub(super) shape: Grid,
    pub(super) kind: SketchKind,
}

/// Model of flows of one size.
struct Size {
    /// `log2 f`.
    log2: f64,
    /// Average amounts that each of their packets adds to the sum, and to the moment of the cells.
    adds: [f64; 2],
}

/// Bounds of a mean.
type Bounds = [f64; 2];

impl WindowObservations<'_> {
    /// Returns the minimum and maximum of `E[log2 F]`; `None` if no traffic is consistent with the
    /// observations.
    pub(super) fn logarithms(&self) -> Option<(f64, f64)> {
        let spread = self.spread();
        let frequency = 1.0 / spread.max(1.0);
        let sizes = self.sizes(spread, frequency);
        let (moment, scatter) = self.moment(frequency)?;
        // The model neglects uneven arrivals and the scatter of sums over flows. For traffic far
        // from the model the tolerance grows until a solution exists.
        let tolerance =
            [0.02 + 0.02 * self.mean.min(spread.max(1.0).log2()), 2.0 * scatter + 0.05 * moment];
        (0..4).find_map(|doubled| {
            let room = tolerance.map(|tolerance| tolerance * f64::from(1 << doubled));
            let (low, high) = range(
                &sizes,
                [[self.mean - room[0], self.mean + room[0]], [moment - room[1], moment + room[1]]],
            )?;
            Some((low - ROUNDING, high + ROUNDING))
        })
    }

    fn cells(&self) -> &[i64] {
        self.sketch.cells(self.shape)
    }

    /// Returns the median absolute value of the cells, which a few large flows do not affect,
    /// relative to its expectation without noise.
    fn spread(&self) -> f64 {
        let mut cells: Vec<f64> = self.cells().iter().map(|&cell| cell as f64).collect();
        let centre = match self.kind {
            SketchKind::CountSketch => 0.0,
            SketchKind::CountMin => middle(&mut cells),
        };
        cells.iter_mut().for_each(|cell| *cell = (*cell - centre).abs());
        middle(&mut cells)
    }

    /// Returns `E[(1 - cos t F) / F]` from the cells, and its standard error.
    fn moment(&self, frequency: f64) -> Option<(f64, f64)> {
        let angles = self.cells().iter().map(|&cell| cell as f64 * frequency);
        let (cosines, sines) =
            angles.fold((0.0, 0.0), |(x, y), angle| (x + angle.cos(), y + angle.sin()));
        let cells = self.cells().len() as f64;
        let length = cosines.hypot(sines) / cells;
        let unit = self.shape.columns() as f64 / self.packets;
        // The variance of the cosine of a random angle is 1/2.
        (length > 0.0).then(|| (-length.ln() * unit, unit / (2.0 * cells).sqrt() / length))
    }

    /// Returns the sorted estimates for keys that never occurred.
    fn answers(&self) -> Vec<f64> {
        // Any tables will do: they choose cells and signs at random.
        let tabulation = Box::new(Tabulation::from_seed(0));
        let ask = |key: u32| {
            self.sketch.query(self.kind, self.shape, key.wrapping_mul(0x9e37_79b9), &tabulation)
                as f64
        };
        let mut answers: Vec<f64> = (0..KEYS).map(ask).collect();
        answers.sort_unstable_by(f64::total_cmp);
        let every = answers.len() / ANSWERS;
        answers.into_iter().skip(every / 2).step_by(every).collect()
    }

    fn sizes(&self, spread: f64, frequency: f64) -> Vec<Size> {
        let answers = self.answers();
        // The variance grows with the packets if there are many small flows, and with their square
        // if the same flows recur.
        let mean_size =
            ((spread / MEDIAN).powi(2) * self.shape.columns() as f64 / self.packets).max(1.0);
        let growth = |time: f64| match self.kind {
            SketchKind::CountSketch => {
                ((time + (mean_size - 1.0) * time * time) / mean_size).sqrt()
            }
            SketchKind::CountMin => time,
        };
        let (mut sizes, mut size) = (Vec::new(), 1.0);
        while size <= self.packets {
            let moment = (1.0 - (frequency * size).cos()) / size;
            let adds = [mean_term(size, &answers, growth), moment];
            sizes.push(Size { log2: f64::log2(size), adds });
            size = (size * RATIO).round().max(size + 1.0).min(self.packets.max(size + 1.0));
        }
        sizes
    }
}

/// Returns the median; 0 for an empty slice.
fn middle(values: &mut [f64]) -> f64 {
    let middle = values.len() / 2;
    if values.is_empty() { 0.0 } else { *values.select_nth_unstable_by(middle, f64::total_cmp).1 }
}

/// Returns the average amount that a packet of a flow of this size adds to the sum, over its
/// packets and the noise, in bits.
fn mean_term(size: f64, answers: &[f64], growth: impl Fn(f64) -> f64) -> f64 {
    let mut sum = 0.0;
    for instant in 0..INSTANTS {
        // Denser at the start, where the logarithm is steep.
        let root = (f64::from(instant) + 0.5) / f64::from(INSTANTS);
        let (time, weight) = (root * root, 2.0 * root / f64::from(INSTANTS));
        let count = 1.0 + (size * time).floor();
        let noise = growth(time);
        let terms: f64 = answers.iter().map(|answer| term((count + answer * noise).round())).sum();
        sum += weight * terms / answers.len() as f64;
    }
    sum
}

/// Returns the amount that the dataplane adds for a count.
fn term(count: f64) -> f64 {
    if count > 1.0 {
        f64::from(PER_PACKET.log2(count as u64) + DERIVATIVE_OF_LOG) / 1024.0
    } else {
        0.0
    }
}

/// Returns the minimum and maximum of the mean of `log2` over all mixtures of sizes whose means are
/// within the bounds.
///
/// A linear program with two constraints has its extremes at mixtures of at most three sizes, and
/// each constraint that needs additional sizes is at one of its bounds.
fn range(sizes: &[Size], [first, second]: [Bounds; 2]) -> Option<(f64, f64)> {
    let within = |value: f64, [low, high]: Bounds| (low..=high).contains(&value);
    let mut extremes: Option<(f64, f64)> = None;
    let mut add = |value: f64| {
        let (low, high) = extremes.unwrap_or((value, value));
        extremes = Some((low.min(value), high.max(value)));
    };
    for (index, a) in sizes.iter().enumerate() {
        if within(a.adds[0], first) && within(a.adds[1], second) {
            add(a.log2);
        }
        for (other, b) in sizes.iter().enumerate().take(index) {
            let [x, y] = [b.adds[0] - a.adds[0], b.adds[1] - a.adds[1]];
            let mut mix = |share: f64| {
                if (0.0..=1.0).contains(&share) {
                    let means = [a.adds[0] + share * x, a.adds[1] + share * y];
                    let slack = 1e-9;
                    let fits = |mean: f64, [low, high]: Bounds| {
                        let slack = slack * (low.abs() + high.abs());
                        within(mean, [low - slack, high + slack])
                    };
                    if fits(means[0], first) && fits(means[1], second) {
                        add(a.log2 + share * (b.log2 - a.log2));
                    }
                }
            };
            first.iter().for_each(|bound| mix((bound - a.adds[0]) / x));
            second.iter().for_each(|bound| mix((bound - a.adds[1]) / y));
            for c in sizes.iter().take(other) {
                let [u, v] = [c.adds[0] - a.adds[0], c.adds[1] - a.adds[1]];
                let determinant = x * v - y * u;
                for p in first.map(|bound| bound - a.adds[0]) {
                    for q in second.map(|bound| bound - a.adds[1]) {
                        let (of_b, of_c) =
                            ((p * v - q * u) / determinant, (x * q - y * p) / determinant);
                        if of_b >= 0.0 && of_c >= 0.0 && of_b + of_c <= 1.0 {
                            add(a.log2 + of_b * (b.log2 - a.log2) + of_c * (c.log2 - a.log2));
                        }
                    }
                }
            }
        }
    }
    extremes
}
