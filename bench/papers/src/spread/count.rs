//! Pairs of a window counted in little memory, and the keys that are found compared with the true
//! ones.

use flowgauge_core::spread::{Contact, OtherKind, Settings, Spread, SpreadSketch};
use flowgauge_core::{
    FlowKey, Grid, HashMode, KeyKind, Measurement, Precision, SPREADS, Tabulation, Zeroed,
};
use flowgauge_ctl::measurement::cardinality::estimate::{self as cardinality, Estimator};
use flowgauge_ctl::measurement::spread::estimate::{self as likelihood, Top};
use hashbrown::{HashMap, HashSet};

pub(super) use flowgauge_ctl::measurement::cardinality::estimate::EstimateError;

/// Numbers of keys searched for.
pub(crate) const TOPS: [usize; 2] = [10, 100];

/// Minimum number of others of a key that is searched for. Without a key with as many,
/// there is nothing to find.
pub(crate) const LEAST: u64 = 30;

/// Rows of a sketch.
const ROWS: usize = 3;

/// Size of a sketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    shape: Grid,
    registers: Precision,
}

/// Sizes of sketches, up to the largest one.
pub(crate) const SIZES: [Size; 5] = [
    Size::new(128, 64),
    Size::new(256, 64),
    Size::new(512, 64),
    Size::new(1024, 64),
    Size::new(1024, 128),
];

/// The default size, 256 KiB.
pub(crate) const DEFAULT_SIZE: Size = SIZES[2];

impl Size {
    const fn new(columns: usize, registers: usize) -> Self {
        match (Grid::of_cells(ROWS, columns), Precision::from_registers(registers)) {
            (Some(shape), Some(registers)) => Size { shape, registers },
            _ => panic!("a sketch has no such size"),
        }
    }

    /// Returns rows and columns.
    pub(crate) const fn shape(self) -> Grid {
        self.shape
    }

    /// Returns the registers of a cell.
    pub(crate) const fn registers(self) -> Precision {
        self.registers
    }

    /// Returns the memory of a sketch in KiB. Three rows take as much as four.
    pub(crate) fn kib(self) -> usize {
        Spread::used(&self.settings(KeyKind::Dst, OtherKind::Src)).own >> 10
    }

    /// Returns the keys that a table has of the same memory: for each the registers of a cell, and
    /// the room of a candidate.
    pub(crate) const fn slots(self) -> usize {
        self.shape.padded_cells()
    }

    fn settings(self, by: KeyKind, of: OtherKind) -> [Settings; SPREADS] {
        let Size { shape, registers } = self;
        [Settings { on: true, by, of, registers, shape }, Settings::DEFAULT]
    }
}

/// Way to find the keys with the most others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// The sketch, with the estimate of the controller.
    Likelihood,
    /// The candidates of the same sketch, with the estimate of the paper: the minimum over the
    /// rows of the estimates of a candidate's cells.
    MinimumOfRows,
    /// A table with a HyperLogLog for each key. When it is full, new keys are not counted.
    Table,
}

impl Method {
    /// All methods.
    pub(crate) const ALL: [Method; 3] = [Method::Likelihood, Method::MinimumOfRows, Method::Table];

    /// Returns its name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Method::Likelihood => "flowgauge",
            Method::MinimumOfRows => "minimum of rows",
            Method::Table => "HyperLogLogs",
        }
    }
}

/// Distinct pairs of a window, with the key whose others are counted.
pub(super) struct Pairs {
    pub(super) by: KeyKind,
    pub(super) of: OtherKind,
    /// Source and destination, in the order in which pairs first came.
    pub(super) pairs: Vec<FlowKey>,
    pub(super) packets: u64,
}

/// Keys found among the first of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Keys to find: the number searched for, or fewer if not as many have [`LEAST`] others.
    pub wanted: usize,
    /// Keys that are listed, up to the number searched for.
    pub listed: usize,
    /// Listed keys with at least as many others as the smallest of the keys to find.
    pub right: usize,
}

impl Found {
    /// Returns the share of the keys to find that are listed; `None` without keys to find.
    pub(crate) fn recall(&self) -> Option<f64> {
        (self.wanted > 0).then(|| self.right as f64 / self.wanted as f64)
    }

    /// Returns the share of the listed keys that are right; `None` if none is listed.
    pub(crate) fn precision(&self) -> Option<f64> {
        (self.listed > 0).then(|| self.right as f64 / self.listed as f64)
    }
}

/// Comparison of a list of keys with the true ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Score {
    /// Keys found, for each of [`TOPS`].
    pub found: [Found; TOPS.len()],
    /// Mean absolute relative error of the largest keys that were found, in percent.
    pub error: Option<f64>,
    /// Intervals of the largest listed keys.
    pub intervals: usize,
    /// Intervals that contain the true number.
    pub inside: usize,
}

/// A window counted in one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Outcome {
    /// Scores of [`Method::ALL`].
    pub scores: [Score; Method::ALL.len()],
    /// Whether no key that is not listed exceeds the rest that the controller reports.
    pub rest_holds: bool,
}

/// Listed key.
struct Listed {
    key: FlowKey,
    others: f64,
    interval: Option<(f64, f64)>,
}

/// Orders a list, the key with the most others first.
fn ordered(mut list: Vec<Listed>) -> Vec<Listed> {
    list.sort_by(|one, other| {
        other.others.total_cmp(&one.others).then_with(|| one.key.cmp(&other.key))
    });
    list
}

/// Pairs with their signatures and exact numbers of others.
pub(super) struct Window<'a> {
    pairs: &'a Pairs,
    tabulation: &'a Tabulation,
    /// Signatures of each pair's key and of the pair.
    signatures: Vec<(u32, u32)>,
    /// Exact number of others of each key.
    others: HashMap<FlowKey, u64>,
    /// The same numbers in falling order.
    numbers: Vec<u64>,
}

impl<'a> Window<'a> {
    pub(super) fn new(pairs: &'a Pairs, hash: HashMode, tabulation: &'a Tabulation) -> Self {
        let mut others: HashMap<FlowKey, u64> = HashMap::new();
        let mut signatures = Vec::with_capacity(pairs.pairs.len());
        for pair in &pairs.pairs {
            let key = pairs.by.within(pair);
            *others.entry(key).or_default() += 1;
            signatures.push((hash.signature(&key, tabulation), hash.signature(pair, tabulation)));
        }
        let mut numbers: Vec<u64> = others.values().copied().collect();
        numbers.sort_unstable_by_key(|number| std::cmp::Reverse(*number));
        Window { pairs, tabulation, signatures, others, numbers }
    }

    /// Returns the number of keys.
    pub(super) fn keys(&self) -> usize {
        self.others.len()
    }

    /// Returns the exact number of a key's others.
    pub(super) fn truth(&self, key: &FlowKey) -> u64 {
        self.others.get(key).copied().unwrap_or(0)
    }

    /// Counts the pairs in a sketch.
    fn sketched(&self, settings: &[Settings; SPREADS]) -> Box<Spread> {
        let mut spread = Spread::boxed();
        for (addresses, &(key, pair)) in self.pairs.pairs.iter().zip(&self.signatures) {
            // The addresses of a five-tuple come first, and no key here has more.
            let contact = Contact { key, pair, five_tuple: addresses };
            spread.update(settings, 0, &contact, self.tabulation);
        }
        spread
    }

    /// Returns the keys that the controller lists.
    pub(super) fn top(&self, size: Size) -> Result<Top, EstimateError> {
        let settings = size.settings(self.pairs.by, self.pairs.of);
        let spread = self.sketched(&settings);
        likelihood::estimate(&spread.sketch(&settings, 0), self.pairs.packets)
    }

    /// Counts the window with every method.
    pub(super) fn count(&self, size: Size) -> Result<Outcome, EstimateError> {
        let settings = size.settings(self.pairs.by, self.pairs.of);
        let spread = self.sketched(&settings);
        let sketch = spread.sketch(&settings, 0);
        let top = likelihood::estimate(&sketch, self.pairs.packets)?;
        let listed = top.keys.iter().map(|spreader| Listed {
            key: spreader.key,
            others: spreader.others.value,
            interval: Some((spreader.others.low, spreader.others.high)),
        });
        let listed: Vec<Listed> = listed.collect();
        let scores = [
            self.score(&listed),
            self.score(&minimum_of_rows(&sketch)?),
            self.score(&self.table(size)?),
        ];
        let listed: HashSet<FlowKey> = listed.iter().map(|it| it.key).collect();
        let unlisted = self.others.iter().filter(|(key, _)| !listed.contains(*key));
        let greatest = unlisted.map(|(_, others)| *others).max().unwrap_or(0);
        Ok(Outcome { scores, rest_holds: greatest as f64 <= top.rest })
    }

    /// Counts the pairs in a table with a HyperLogLog for each key.
    fn table(&self, size: Size) -> Result<Vec<Listed>, EstimateError> {
        let registers = size.registers();
        let mut table: HashMap<u32, (FlowKey, Vec<u8>)> = HashMap::new();
        for (addresses, &(key, pair)) in self.pairs.pairs.iter().zip(&self.signatures) {
            if table.len() == size.slots() && !table.contains_key(&key) {
                continue;
            }
            let hash = (self.tabulation.row_block(pair, 0) >> 32) as u32;
            let (register, rank) = registers.split(hash);
            let (_, ranks) = table.entry(key).or_insert_with(|| {
                (self.pairs.by.within(addresses), vec![0; registers.registers()])
            });
            if let Some(greatest) = ranks.get_mut(register) {
                *greatest = rank.max(*greatest);
            }
        }
        let mut list = Vec::with_capacity(table.len());
        for (key, ranks) in table.into_values() {
            let others = cardinality::estimate(&ranks, Estimator::Ertl)?;
            let interval = Some((others.low, others.high));
            list.push(Listed { key, others: others.value, interval });
        }
        Ok(ordered(list))
    }

    fn score(&self, list: &[Listed]) -> Score {
        let least =
            |top: usize| self.numbers.get(top - 1).copied().map_or(LEAST, |kth| kth.max(LEAST));
        let found = TOPS.map(|top| {
            let least = least(top);
            let wanted = self.numbers.iter().take(top).filter(|others| **others >= least);
            let listed = || list.iter().take(top);
            let right = listed().filter(|it| self.truth(&it.key) >= least);
            Found { wanted: wanted.count(), listed: listed().count(), right: right.count() }
        });
        let [_, most] = TOPS;
        let (mut errors, mut right, mut intervals, mut inside) = (0.0, 0_u32, 0, 0);
        for Listed { key, others, interval } in list.iter().take(most) {
            let truth = self.truth(key);
            if truth >= least(most) {
                errors += (others / truth as f64 - 1.0).abs() * 100.0;
                right += 1;
            }
            if let Some((low, high)) = interval {
                intervals += 1;
                inside += usize::from((*low..=*high).contains(&(truth as f64)));
            }
        }
        let error = (right > 0).then(|| errors / f64::from(right));
        Score { found, error, intervals, inside }
    }
}

/// Returns the candidates of a sketch with the estimate of the paper.
fn minimum_of_rows(sketch: &SpreadSketch<'_>) -> Result<Vec<Listed>, EstimateError> {
    let shape = sketch.settings().shape;
    let mut list = Vec::new();
    for candidate in sketch.candidates() {
        let mut others = f64::INFINITY;
        for row in 0..shape.rows() {
            let cell = sketch.registers(row, candidate.column(row, shape));
            others = others.min(cardinality::estimate(cell, Estimator::Ertl)?.value);
        }
        list.push(Listed { key: *candidate.key(), others, interval: None });
    }
    Ok(ordered(list))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the pairs of destinations with these numbers of sources.
    fn pairs(others: &[u32]) -> Pairs {
        let pair = |key: u32, other: u32| {
            FlowKey::new([other.to_be_bytes(), key.to_be_bytes()].as_flattened())
        };
        let of_key = |(key, others): (usize, &u32)| {
            (0..*others).map(move |other| pair(key as u32, other * 7919 + 1)).collect::<Vec<_>>()
        };
        let pairs: Vec<FlowKey> = others.iter().enumerate().flat_map(of_key).collect();
        let packets = pairs.len() as u64;
        Pairs { by: KeyKind::Dst, of: OtherKind::Src, pairs, packets }
    }

    fn listed(key: u32, others: f64, interval: Option<(f64, f64)>) -> Listed {
        Listed { key: FlowKey::new(&key.to_be_bytes()), others, interval }
    }

    #[test]
    fn sizes_have_their_memory() {
        assert_eq!(SIZES.map(Size::kib), [64, 128, 256, 512, 768]);
        let Settings { shape, registers, .. } = Settings::DEFAULT;
        assert_eq!(DEFAULT_SIZE, Size { shape, registers });
    }

    #[test]
    fn a_list_is_compared_with_the_true_keys() {
        let tabulation = Tabulation::from_seed(1);
        // Eleven keys with at least 30 others, two of them tied for the tenth place, and one key
        // with fewer.
        let others = [900, 800, 700, 600, 500, 400, 300, 200, 100, 50, 50, 29];
        let pairs = pairs(&others);
        let window = Window::new(&pairs, HashMode::Tabulated, &tabulation);
        assert_eq!(window.keys(), others.len());
        let list = [
            listed(0, 990.0, Some((800.0, 1000.0))),
            listed(1, 600.0, Some((500.0, 799.0))),
            listed(10, 50.0, None),
            listed(11, 29.0, None),
        ];
        let score = window.score(&list);
        assert_eq!(
            score.found,
            [Found { wanted: 10, listed: 4, right: 3 }, Found { wanted: 11, listed: 4, right: 3 }]
        );
        assert_eq!((score.intervals, score.inside), (2, 1));
        // 10, 25 and 0 %.
        assert!((score.error.unwrap() - 35.0 / 3.0).abs() < 1e-9, "{score:?}");
        let [tens, _] = score.found;
        assert_eq!((tens.recall(), tens.precision()), (Some(0.3), Some(0.75)));
        let none = Found { wanted: 0, listed: 0, right: 0 };
        assert_eq!((none.recall(), none.precision()), (None, None));
    }

    #[test]
    fn a_full_table_counts_no_new_keys() {
        let tabulation = Tabulation::from_seed(1);
        let [size, ..] = SIZES;
        // The last key has the most others, and comes when the table is full.
        let others: Vec<u32> = (0..=size.slots()).map(|_| 1).chain([1000]).collect();
        let pairs = pairs(&others);
        let window = Window::new(&pairs, HashMode::Tabulated, &tabulation);
        let table = window.table(size).unwrap();
        assert_eq!(table.len(), size.slots());
        let last = FlowKey::new(&(size.slots() as u32 + 1).to_be_bytes());
        assert_eq!(window.truth(&last), 1000);
        assert!(table.iter().all(|it| it.key != last));
        // The sketch finds it, with either estimate.
        let outcome = window.count(size).unwrap();
        let [ours, minimum, table] = outcome.scores.map(|score| score.found[0].recall());
        assert_eq!([ours, minimum, table], [Some(1.0), Some(1.0), Some(0.0)]);
        assert!(outcome.rest_holds);
    }
}
