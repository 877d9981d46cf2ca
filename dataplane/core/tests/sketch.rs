//! Count Sketch and Count-Min compared with slow models.

use crate::common::{combinations, tabulation, words};
use flowgauge_core::hash::MAX_ROWS;
use flowgauge_core::sketch::{
    FULL, MAX_CELLS, MAX_COLUMN_BITS, SLACK, SharedSketch, Sketch, SketchKind, SketchTotals,
};
use flowgauge_core::{
    Arrival, Context, Grid, KeyKind, Link, Settings, Shared, Sharing, State, Tabulation, Zeroed,
    hash,
};
use flowgauge_traffic::frame::{Ip, TCP};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Returns every possible shape.
fn shapes() -> impl Iterator<Item = Grid> {
    (1..=MAX_ROWS).flat_map(|rows| {
        (4..=MAX_COLUMN_BITS).filter_map(move |bits| Grid::of_counters(rows, 1 << bits))
    })
}

/// Allocates a sketch, which is too large for a test's stack.
fn sketch() -> Box<Sketch> {
    Box::new(Sketch::new())
}

fn wide(sketch: &Sketch, kind: SketchKind, shape: Grid) -> Box<SketchTotals> {
    let mut wide = Box::new(SketchTotals::new());
    wide.merge(sketch, kind, shape);
    wide
}

fn shared() -> Box<SharedSketch> {
    Box::new(SharedSketch::new())
}

/// Returns what a shared sketch has counted.
fn read(shared: &SharedSketch, kind: SketchKind, shape: Grid) -> Box<SketchTotals> {
    let mut totals = Box::new(SketchTotals::new());
    shared.merge_into(&mut totals, kind, shape);
    totals
}

/// Returns column and sign of a key in a row, from the words of the tables.
fn place(crc: u32, row: usize, column_bits: u32, tabulation: &Tabulation) -> (u32, i64) {
    let hash = (words(tabulation, row / 4, crc) >> (16 * (row % 4)) & 0xffff) as u32;
    (hash >> (16 - column_bits), if hash & 1 == 1 { -1 } else { 1 })
}

/// Counters of 64 bits, by row and column.
struct Model {
    kind: SketchKind,
    shape: Grid,
    counters: BTreeMap<(usize, u32), i64>,
}

impl Model {
    fn new(kind: SketchKind, shape: Grid) -> Self {
        Model { kind, shape, counters: BTreeMap::new() }
    }

    fn place(&self, crc: u32, row: usize) -> ((usize, u32), i64) {
        let (column, sign) = place(crc, row, self.shape.column_bits(), tabulation());
        ((row, column), if self.kind == SketchKind::CountMin { 1 } else { sign })
    }

    fn update(&mut self, crc: u32) {
        for row in 0..self.shape.rows() {
            let (place, sign) = self.place(crc, row);
            *self.counters.entry(place).or_default() += sign;
        }
    }

    fn query(&self, crc: u32) -> i64 {
        let value = |row| {
            let (place, sign) = self.place(crc, row);
            self.counters.get(&place).copied().unwrap_or(0) * sign
        };
        let mut values: Vec<i64> = (0..self.shape.rows()).map(value).collect();
        values.sort_unstable();
        match self.kind {
            SketchKind::CountMin => values[0],
            SketchKind::CountSketch => {
                (values[(values.len() - 1) / 2] + values[values.len() / 2] + 1).div_euclid(2)
            }
        }
    }

    fn cells(&self) -> Vec<i32> {
        let mut cells = vec![0; self.shape.cells()];
        for ((row, column), count) in &self.counters {
            cells[row * self.shape.columns() + *column as usize] = *count as i32;
        }
        cells
    }
}

/// Generates keys, some of them frequent.
fn keys() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(prop_oneof![0..8_u32, any::<u32>()], 0..200)
}

fn kind() -> impl Strategy<Value = SketchKind> {
    prop::sample::select(SketchKind::ALL.to_vec())
}

fn shape() -> impl Strategy<Value = Grid> {
    prop::sample::select(shapes().collect::<Vec<_>>())
}

fn filled(kind: SketchKind, shape: Grid, keys: &[u32]) -> Box<Sketch> {
    let mut sketch = sketch();
    keys.iter().for_each(|&crc| sketch.update(kind, shape, crc, tabulation()));
    sketch
}

#[test]
fn shapes_have_their_limits() {
    assert_eq!(shapes().filter(|shape| shape.rows() == 1).count(), 11);
    assert!(shapes().all(|shape| shape.cells() <= MAX_CELLS));
    assert!(shapes().all(|shape| shape.cells() == shape.rows() * shape.columns()));
    assert_eq!(shapes().filter(|shape| shape.columns() == 1024).count(), MAX_ROWS);
    let few = [(0, 1024), (1, 8), (1, 1000)];
    let many = [(13, 16), (2, 1 << 14), (12, 2048), (usize::MAX, 16), (1, usize::MAX)];
    for (rows, columns) in few.into_iter().chain(many) {
        assert_eq!(Grid::of_counters(rows, columns), None, "{rows} x {columns}");
    }
    assert_eq!(Grid::of_counters(4, 1024), Some(Grid::COUNTERS));
}

/// 300 keys, some frequent, in every shape: answers after each packet and counters at the end.
#[test]
fn every_shape_counts_as_its_model() {
    for (number, shape) in (1_u32..).zip(shapes()) {
        for kind in SketchKind::ALL {
            let (mut sketch, shared, mut model) = (sketch(), shared(), Model::new(kind, shape));
            for step in 0..300_u32 {
                let crc = (step * step % 61).wrapping_mul(0x9e37_79b9).wrapping_mul(number);
                model.update(crc);
                sketch.update(kind, shape, crc, tabulation());
                let sharing = if step % 2 == 0 { Sharing::Alone } else { Sharing::Shared };
                let answer = shared.update_and_query(sharing, kind, shape, crc, tabulation());
                assert_eq!(i64::from(answer), model.query(crc), "{kind:?}, {shape:?}");
                let answer = sketch.query(kind, shape, crc ^ 1, tabulation());
                assert_eq!(i64::from(answer), model.query(crc ^ 1), "{kind:?}, {shape:?}");
            }
            assert_eq!(sketch.cells(shape), model.cells());
            let mut copy = read(&shared, kind, shape);
            assert!(copy == wide(&sketch, kind, shape), "{kind:?}, {shape:?}");
            for step in 0..300 {
                let answer = copy.query(kind, shape, step, tabulation());
                assert_eq!(answer, model.query(step), "{kind:?}, {shape:?}");
            }
            shared.clear(shape);
            sketch.clear(shape);
            copy.clear(shape);
            shared.merge_into(&mut copy, kind, shape);
            assert!(*sketch == Sketch::new() && *copy == SketchTotals::new());
        }
    }
}

/// Returns the last values that count, and the first that do not, as bits.
fn ends(kind: SketchKind) -> [[i32; 2]; 2] {
    match kind {
        SketchKind::CountSketch => [[FULL - 1, FULL], [1 - FULL, -FULL]],
        SketchKind::CountMin => [[(u32::MAX - SLACK) as i32, (u32::MAX - SLACK + 1) as i32]; 2],
    }
}

/// Any value of a counter, in a per-core sketch and in a shared one, alone and not.
#[test]
fn counters_near_their_ends_stay_where_they_are() {
    let shape = Grid::of_counters(1, 16).unwrap();
    for kind in SketchKind::ALL {
        let [[up, full_up], [down, full_down]] = ends(kind);
        assert!(!kind.is_full(0) && !kind.is_full(up) && !kind.is_full(down));
        assert!(kind.is_full(full_up) && kind.is_full(full_down));
        let anything = [0, 1, -1, up, full_up, down, full_down, i32::MAX, i32::MIN, i32::MIN + 1];
        for (crc, before) in (0..64).flat_map(|crc| anything.map(|before| (crc, before))) {
            let (column, sign) = place(crc, 0, 4, tabulation());
            let term = if kind == SketchKind::CountMin { 1 } else { sign as i32 };
            let after = if kind.is_full(before) { before } else { before.wrapping_add(term) };
            let mut own = sketch();
            own.cells_mut(shape)[column as usize] = before;
            own.update(kind, shape, crc, tabulation());
            assert_eq!(own.cells(shape)[column as usize], after, "{kind:?} {before} {term}");
            for sharing in [Sharing::Alone, Sharing::Shared] {
                let shared = shared();
                shared.set(column as usize, before);
                shared.update_and_query(sharing, kind, shape, crc, tabulation());
                let read = read(&shared, kind, shape);
                assert!(read == wide(&own, kind, shape), "{kind:?} {sharing:?} {before} {term}");
                assert_eq!(read.is_full(column as usize), kind.is_full(after));
                assert_eq!(read.full(shape), usize::from(kind.is_full(after)));
            }
        }
    }
}

/// A full counter stays full, even if packets of the other sign follow.
#[test]
fn a_full_counter_does_not_become_another_number() {
    let shape = Grid::of_counters(1, 16).unwrap();
    let key =
        |wanted: i64| (0..).find(|&crc| place(crc, 0, 4, tabulation()) == (3, wanted)).unwrap();
    let (plus, minus) = (key(1), key(-1));
    let mut sketch = sketch();
    sketch.cells_mut(shape)[3] = FULL - 2;
    (0..3).for_each(|_| sketch.update(SketchKind::CountSketch, shape, plus, tabulation()));
    (0..1000).for_each(|_| sketch.update(SketchKind::CountSketch, shape, minus, tabulation()));
    assert_eq!(sketch.cells(shape)[3], FULL);
    let wide = wide(&sketch, SketchKind::CountSketch, shape);
    let answer = wide.query(SketchKind::CountSketch, shape, plus, tabulation());
    assert_eq!((wide.is_full(3), answer), (true, i64::from(FULL)));
}

/// Several cores add at the same time, before any has seen that the others filled the counter.
#[test]
fn cores_that_fill_a_counter_together_do_not_wrap_it() {
    let shape = Grid::of_counters(1, 16).unwrap();
    for kind in SketchKind::ALL {
        let [[up, _], _] = ends(kind);
        let crc = (0..).find(|&crc| place(crc, 0, 4, tabulation()).1 == 1).unwrap();
        let (column, _) = place(crc, 0, 4, tabulation());
        let shared = shared();
        shared.set(column as usize, up - 500);
        let add = |_| _ = shared.update_and_query(Sharing::Shared, kind, shape, crc, tabulation());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(add));
            }
        });
        let read = read(&shared, kind, shape);
        let cell = read.cells(shape)[column as usize];
        let least = if kind == SketchKind::CountMin { i64::from(up as u32) } else { i64::from(up) };
        assert!(read.is_full(column as usize), "{kind:?}: {cell}");
        assert!((least + 1..=least + 4).contains(&cell), "{kind:?}: {cell}");
    }
}

/// A bank detects from its packets whether a counter can be full, and checks counters from then on.
/// Banks are large, and without optimisation they are copied on the stack more than once.
#[test]
fn a_bank_of_many_packets_looks_at_its_counters() {
    let thread = std::thread::Builder::new().stack_size(16 << 20);
    thread.spawn(many_packets_look_at_counters).unwrap().join().unwrap();
}

fn many_packets_look_at_counters() {
    let on = |kind: SketchKind| flowgauge_core::sketch::Settings {
        mode: kind.into(),
        key: KeyKind::Src,
        shape: Grid::COUNTERS,
    };
    let frame = Ip::new([0; 4], [0; 4], TCP).frame(&[0; 26]);
    for (kind, sharing) in combinations(SketchKind::ALL, [Sharing::Alone, Sharing::Shared]) {
        let [[up, full], [down, full_down]] = ends(kind);
        let mut settings = Settings::DEFAULT;
        (settings.entropy[0], settings.frequency) = (on(kind), on(kind));
        let context = Context::new(settings, tabulation(), sharing);
        let (mut state, shared) = (State::boxed(), Shared::boxed());
        let record = |state: &mut State| {
            let arrival = Arrival::new(60, 0);
            state.active(&shared, 0).record(&context, Link::Ethernet, &frame[..], arrival);
        };
        record(&mut state);
        // As after packets of this flow only.
        let bank = &mut state.banks[0];
        bank.counters.ipv4 = u64::from(up as u32);
        for (index, cell) in bank.frequency.cells_mut(Grid::COUNTERS).iter_mut().enumerate() {
            *cell = match *cell {
                0 => 0,
                -1 => down,
                _ => up,
            };
            shared.banks[0].entropy[0].set(index, *cell);
        }
        (0..10).for_each(|_| record(&mut state));
        let cells = read(&shared.banks[0].entropy[0], kind, Grid::COUNTERS);
        let frequency = &state.banks[0].frequency;
        assert!(cells == wide(frequency, kind, Grid::COUNTERS), "{kind:?} {sharing:?}");
        let mut counters = frequency.cells(Grid::COUNTERS).iter();
        let are_at_ends = counters.all(|cell| [0, full, full_down].contains(cell));
        assert!(are_at_ends, "{kind:?} {sharing:?}");
        assert_eq!(cells.full(Grid::COUNTERS), 4, "{kind:?} {sharing:?}");
    }
}

#[test]
fn sums_of_many_full_counters_do_not_wrap() {
    let shape = Grid::of_counters(1, 16).unwrap();
    for kind in SketchKind::ALL {
        let [[_, full], _] = ends(kind);
        let mut sketch = sketch();
        sketch.cells_mut(shape).fill(full);
        let (one, mut all) = (wide(&sketch, kind, shape), Box::new(SketchTotals::new()));
        (0..1_000).for_each(|_| all.unite(&one, shape));
        assert_eq!(all.cells(shape)[5], 1_000 * one.cells(shape)[5]);
        assert!(one.cells(shape)[5] > 2_000_000_000 && all.full(shape) == 16);
    }
}

/// Beyond 2^31 - 1 the row of a Count-Min counter gives the largest possible estimate, and other
/// rows decide.
#[test]
fn counters_of_count_min_are_unsigned() {
    let shape = Grid::of_counters(3, 16).unwrap();
    let mut sketch = sketch();
    sketch.cells_mut(shape).fill(i32::MAX);
    sketch.update(SketchKind::CountMin, shape, 7, tabulation());
    assert_eq!(sketch.query(SketchKind::CountMin, shape, 7, tabulation()), i32::MAX);
    let (column, _) = place(7, 1, 4, tabulation());
    sketch.cells_mut(shape)[16 + column as usize] = 5;
    assert_eq!(sketch.query(SketchKind::CountMin, shape, 7, tabulation()), 5);
}

/// Any values in the row counters, as read from a device.
#[test]
fn medians_of_extreme_values() {
    const EXTREMES: [i32; 7] = [i32::MIN + 1, -1, 0, 1, 2, i32::MAX - 1, i32::MAX];
    for rows in 1..=MAX_ROWS {
        let shape = Grid::of_counters(rows, 16).unwrap();
        for step in 0..500_usize {
            let (mut sketch, mut values) = (sketch(), Vec::new());
            for row in 0..rows {
                let index = (step * 31 + row * row * 17 + step / 7 * row) % EXTREMES.len();
                let value = EXTREMES[index];
                let (column, sign) = place(99, row, 4, tabulation());
                sketch.cells_mut(shape)[row * 16 + column as usize] = value * sign as i32;
                values.push(i64::from(value));
            }
            values.sort_unstable();
            let median = (values[(rows - 1) / 2] + values[rows / 2] + 1).div_euclid(2);
            let answer = sketch.query(SketchKind::CountSketch, shape, 99, tabulation());
            assert_eq!(i64::from(answer), median, "{values:?}");
        }
    }
}

/// Chi-squared over column and sign: 32 cells, 31 degrees of freedom.
#[test]
fn sign_and_column_are_independent() {
    const KEYS: u32 = 64_000;
    for seed in 1..=3 {
        let tabulation = Box::new(Tabulation::from_seed(seed));
        for row in 0..MAX_ROWS {
            let mut places = [0_u32; 32];
            for key in 0..KEYS {
                let (column, sign) = place(hash::crc32(&key.to_be_bytes()), row, 4, &tabulation);
                places[(column * 2) as usize + usize::from(sign == 1)] += 1;
            }
            let expected = f64::from(KEYS) / 32.0;
            let chi_squared: f64 =
                places.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum();
            // The 99.99 % quantile for 31 degrees of freedom is below 70.
            assert!(chi_squared < 70.0, "seed {seed}, row {row}: {chi_squared}");
        }
    }
}

/// Keys that collide in a column have independent signs, so that Count Sketch is unbiased; the
/// signs of different rows are independent, too.
#[test]
fn signs_of_keys_that_collide_cancel_out() {
    let tabulation = tabulation();
    let places_of = |row| {
        let keys = (0..2000_u32).map(|key| hash::crc32(&key.to_be_bytes()));
        keys.map(|crc| place(crc, row, 10, tabulation)).collect()
    };
    let places: Vec<Vec<(u32, i64)>> = (0..MAX_ROWS).map(places_of).collect();
    for (row, keys) in places.iter().enumerate() {
        let (mut pairs, mut sum) = (0_i64, 0_i64);
        for (index, (column, sign)) in keys.iter().enumerate() {
            for (_, other) in keys[..index].iter().filter(|(other, _)| other == column) {
                (pairs, sum) = (pairs + 1, sum + sign * other);
            }
        }
        // 1,999,000 pairs, one in 1024 of which collides; four standard deviations either way.
        assert!((1776..2129).contains(&pairs), "row {row}: {pairs} pairs in a column");
        assert!((sum as f64).abs() < 4.0 * (pairs as f64).sqrt(), "row {row}: {sum} of {pairs}");
        for (other, theirs) in places[..row].iter().enumerate() {
            let same: i64 = keys.iter().zip(theirs).map(|(mine, theirs)| mine.1 * theirs.1).sum();
            // The standard deviation of two thousand signs is 45.
            assert!(same.abs() < 4 * 45, "rows {row} and {other}: {same}");
            let both = keys.iter().zip(theirs).filter(|(mine, theirs)| mine.0 == theirs.0).count();
            // Two on average; eleven or more have a probability of 1 in 100,000.
            assert!(both < 11, "rows {row} and {other}: {both} keys in the same column of both");
        }
    }
}

proptest! {
    #[test]
    fn any_keys_count_as_in_the_model(kind in kind(), shape in shape(), keys in keys(), asked: u32) {
        let sketch = filled(kind, shape, &keys);
        let mut model = Model::new(kind, shape);
        keys.iter().for_each(|&crc| model.update(crc));
        prop_assert_eq!(sketch.cells(shape), model.cells());
        for crc in keys.iter().copied().chain([asked]) {
            prop_assert_eq!(i64::from(sketch.query(kind, shape, crc, tabulation())), model.query(crc));
        }
    }

    #[test]
    fn count_min_is_never_too_low(shape in shape(), keys in keys()) {
        let sketch = filled(SketchKind::CountMin, shape, &keys);
        for crc in &keys {
            let count = keys.iter().filter(|key| *key == crc).count() as i32;
            let answer = sketch.query(SketchKind::CountMin, shape, *crc, tabulation());
            prop_assert!(answer >= count && answer <= keys.len() as i32);
        }
    }

    #[test]
    fn merge_is_the_sketch_of_all_keys(kind in kind(), shape in shape(), a in keys(), b in keys()) {
        let mut merged = wide(&filled(kind, shape, &a), kind, shape);
        merged.merge(&filled(kind, shape, &b), kind, shape);
        prop_assert!(merged == wide(&filled(kind, shape, &[a, b].concat()), kind, shape));
        merged.clear(shape);
        prop_assert!(*merged == SketchTotals::new());
    }
}
