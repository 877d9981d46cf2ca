//! Which traffic a window's sum and cells leave possible.
//!
//! Let F be the packets of the flow of a packet that is drawn at random. The entropy is
//! `log2 S - E[log2 F]`. Known of F are two means. The first is the sum: a packet of a flow of f
//! adds `q(f)` on the average, which is `log2 f` for large flows, and for those below the sketch's
//! noise depends on the noise alone. The second is in the cells: a cell adds up flows with random
//! signs, so that over cells `-ln |E exp(i t cell)| = (S / columns) E[(1 - cos t F) / F]` for any
//! t, which tells how many flows there are of sizes up to 1/t and more. The interval is what
//! `E[log2 F]` can be, given both: a linear program over distributions of F.

use flowgauge_core::entropy::DERIVATIVE_OF_LOG;
use flowgauge_core::logarithm::PER_PACKET;
use flowgauge_core::{Grid, SketchKind, Tabulation, WideSketch};

/// Sizes of flows that are told apart, each so many times the one before.
const RATIO: f64 = 1.5;

/// Keys that are asked for to learn the noise, and how many of the answers are kept.
const KEYS: u32 = 1024;
const ANSWERS: usize = 32;

/// Instants of the window at which a flow's packet may come.
const INSTANTS: u32 = 48;

/// What rounding of sizes and logarithms comes to, in bits.
const ROUNDING: f64 = 0.01;

/// The median of the absolute value of a normal variable.
const MEDIAN: f64 = 0.6745;

/// What is known of a window.
pub(super) struct Window<'a> {
    pub(super) packets: f64,
    /// What a packet added to the sum on the average, in bits.
    pub(super) mean: f64,
    pub(super) sketch: &'a WideSketch,
    pub(super) shape: Grid,
    pub(super) kind: SketchKind,
}

/// What flows of one size do.
struct Size {
    /// `log2 f`.
    log2: f64,
    /// What each of their packets adds to the sum, and to the moment of the cells.
    adds: [f64; 2],
}

/// A mean that is known within bounds.
type Bounds = [f64; 2];

impl Window<'_> {
    /// The least and the most that `E[log2 F]` can be; `None` if no traffic would give this.
    pub(super) fn logarithms(&self) -> Option<(f64, f64)> {
        let spread = self.spread();
        let frequency = 1.0 / spread.max(1.0);
        let sizes = self.sizes(spread, frequency);
        let (moment, scatter) = self.moment(frequency)?;
        // What the model leaves out: arrivals that are not even, and the scatter of sums over
        // flows. Traffic that is far from it is given more room, until some of it is possible.
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

    /// The median of what cells hold, which a few large flows do not move, about where they are
    /// without noise.
    fn spread(&self) -> f64 {
        let mut cells: Vec<f64> = self.cells().iter().map(|&cell| cell as f64).collect();
        let centre = match self.kind {
            SketchKind::CountSketch => 0.0,
            SketchKind::CountMin => middle(&mut cells),
        };
        cells.iter_mut().for_each(|cell| *cell = (*cell - centre).abs());
        middle(&mut cells)
    }

    /// `E[(1 - cos t F) / F]` from the cells, and its standard error.
    fn moment(&self, frequency: f64) -> Option<(f64, f64)> {
        let angles = self.cells().iter().map(|&cell| cell as f64 * frequency);
        let (cosines, sines) =
            angles.fold((0.0, 0.0), |(x, y), angle| (x + angle.cos(), y + angle.sin()));
        let cells = self.cells().len() as f64;
        let length = cosines.hypot(sines) / cells;
        let unit = self.shape.columns() as f64 / self.packets;
        // The variance of a cosine at a random angle is a half.
        (length > 0.0).then(|| (-length.ln() * unit, unit / (2.0 * cells).sqrt() / length))
    }

    /// What keys that never came are said to have, in order.
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
        // Variance grows with the packets of many small flows, and with their square where the same
        // flows come again and again.
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
            let adds = mean_term(size, &answers, growth);
            sizes.push(Size {
                log2: f64::log2(size),
                adds: [adds, (1.0 - (frequency * size).cos()) / size],
            });
            size = (size * RATIO).round().max(size + 1.0).min(self.packets.max(size + 1.0));
        }
        sizes
    }
}

/// The middle one; of none zero.
fn middle(values: &mut [f64]) -> f64 {
    let middle = values.len() / 2;
    if values.is_empty() { 0.0 } else { *values.select_nth_unstable_by(middle, f64::total_cmp).1 }
}

/// What a packet of a flow of this size adds to the sum, on the average over its packets and the
/// noise, in bits.
fn mean_term(size: f64, answers: &[f64], growth: impl Fn(f64) -> f64) -> f64 {
    let mut sum = 0.0;
    for instant in 0..INSTANTS {
        // Closer together at the start, where the logarithm is steep.
        let root = (f64::from(instant) + 0.5) / f64::from(INSTANTS);
        let (time, weight) = (root * root, 2.0 * root / f64::from(INSTANTS));
        let count = 1.0 + (size * time).floor();
        let noise = growth(time);
        let terms: f64 = answers.iter().map(|answer| term((count + answer * noise).round())).sum();
        sum += weight * terms / answers.len() as f64;
    }
    sum
}

/// What the dataplane adds for a count.
fn term(count: f64) -> f64 {
    if count > 1.0 {
        f64::from(PER_PACKET.log2(count as u64) + DERIVATIVE_OF_LOG) / 1024.0
    } else {
        0.0
    }
}

/// The least and the most that the mean of `log2` can be over all mixtures of sizes whose means are
/// within the bounds.
///
/// A linear program with two constraints has its extremes where at most three sizes are mixed, and
/// each constraint that it takes more sizes to meet is at one of its bounds.
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
