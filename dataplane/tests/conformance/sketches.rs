//! Reference model of sketches: written from the definitions, slow, and sharing no code with the
//! implementation.

use flowgauge_core::sketch::Mode;
use flowgauge_core::{ENTROPIES, Grid, HashMode, Settings, SketchKind};
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_testing::definitions::{Verdict, crc32, keyed, multilinear, split_mix, verdict};
use std::borrow::Borrow;
use std::collections::HashMap;
use std::ops::RangeInclusive;

/// Returns the 16 bits of each of twelve rows for a key. With a CRC: the SplitMix64 outputs after
/// the 1024 words of registers, four tables of 256 words for every four rows.
pub fn row_hashes(hash: HashMode, seed: u64, key: &[u8]) -> Vec<u16> {
    let is_keyed = hash == HashMode::Keyed;
    let signature =
        if is_keyed { multilinear(&keyed().multilinear().words(), key) } else { crc32(key) };
    let word = |block: u64, table: u64, byte: u32| match is_keyed {
        true => keyed().rows()[block as usize][table as usize][byte as usize],
        false => split_mix(seed, 1024 + (block * 4 + table) * 256 + u64::from(byte)),
    };
    let block = |block: u64| {
        (0..4)
            .fold(0, |hash, table| hash ^ word(block, table, signature >> (24 - 8 * table) & 0xff))
    };
    (0..12).map(|row| (block(row / 4) >> (16 * (row % 4))) as u16).collect()
}

/// Computes P4Log with four bits and three digits.
fn logarithm(count: i64) -> u64 {
    let exponent = (0..63).rev().find(|bit| count >> bit & 1 == 1).unwrap();
    let sixteenths =
        if exponent >= 4 { count >> (exponent - 4) & 15 } else { count << (4 - exponent) & 15 };
    let decimal = ((1.0 + sixteenths as f64 / 16.0).log2() * 1000.0).round() / 1000.0;
    exponent * 1024 + (decimal * 1024.0) as u64
}

/// Expected contents of all measurements except distinct flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketches {
    pub sums: [u64; ENTROPIES],
    pub entropy: [Vec<i64>; ENTROPIES],
    pub frequency: Vec<i64>,
    pub membership: Vec<u64>,
}

impl Sketches {
    /// Returns the state without packets.
    pub fn nothing(settings: &Settings) -> Self {
        let cells = |sketch: &flowgauge_core::sketch::Settings| {
            vec![0; sketch.shape.rows() * sketch.shape.columns()]
        };
        let filter = settings.membership.shape;
        Sketches {
            sums: [0; ENTROPIES],
            entropy: settings.entropy.each_ref().map(cells),
            frequency: cells(&settings.frequency),
            membership: vec![0; filter.rows() << filter.column_bits() >> 6],
        }
    }

    /// Returns the state after these frames, one after the other.
    pub fn of<F: Borrow<OwnedFrame>>(
        settings: &Settings,
        seed: u64,
        frames: impl IntoIterator<Item = F>,
    ) -> Self {
        let mut sketches = Sketches::nothing(settings);
        frames.into_iter().for_each(|frame| sketches.add(settings, seed, frame.borrow()));
        sketches
    }

    /// Returns the range of the sums of entropies if `cores` cores count these frames at the same
    /// time, in any order.
    ///
    /// A packet goes from row to row. In each row it learns its place among the packets of its
    /// flow, and the contribution of other flows to its counter. When the k-th packet of a flow
    /// passes a row, those of the first k of an earlier row that are not among the first k of this
    /// one are in flight between both, each on another core. So among the smallest places of
    /// packets over all rows at most `k + (rows - 1) (cores - 1)` are at most k, and among the
    /// largest at least `k - (rows - 1) (cores - 1)`. The contribution of others is at least all of
    /// their packets of the other sign, and at most all of the same.
    pub fn sums(
        settings: &Settings,
        seed: u64,
        frames: &[OwnedFrame],
        cores: usize,
    ) -> [RangeInclusive<u64>; ENTROPIES] {
        settings.entropy.each_ref().map(|entropy| {
            let Some(kind) = entropy.mode.sketch() else { return 0..=0 };
            let (rows, shape) = (entropy.shape.rows(), entropy.shape);
            let mut flows: HashMap<Vec<u16>, i64> = HashMap::new();
            for frame in frames {
                if let Verdict::V4(key) | Verdict::V6(key) = verdict(frame, entropy.key) {
                    *flows.entry(row_hashes(settings.hash, seed, &key)).or_default() += 1;
                }
            }
            let mut cells: HashMap<(usize, usize, i64), i64> = HashMap::new();
            for (hashes, packets) in &flows {
                for (row, hash) in hashes.iter().enumerate().take(rows) {
                    *cells.entry((row, column(shape, *hash), sign(kind, *hash))).or_default() +=
                        packets;
                }
            }
            let shift = ((rows - 1) * (cores - 1)) as i64;
            let term = |count: i64| if count > 1 { logarithm(count) + 1474 } else { 0 };
            let (mut low, mut high) = (0, 0);
            for (hashes, packets) in &flows {
                let left = |opposite: i64| -> Vec<i64> {
                    let cell = |(row, hash): (usize, &u16)| {
                        (row, column(shape, *hash), sign(kind, *hash) * opposite)
                    };
                    let cells = hashes
                        .iter()
                        .enumerate()
                        .take(rows)
                        .map(|place| cells.get(&cell(place)).copied().unwrap_or(0));
                    cells.collect()
                };
                let less = answer(kind, left(-1).into_iter().map(|others| -others).collect());
                let more = answer(kind, left(1).into_iter().map(|all| all - packets).collect());
                low += (1..=*packets).map(|place| term((place - shift).max(1) + less)).sum::<u64>();
                high += (1..=*packets)
                    .map(|place| term((place + shift).min(*packets) + more))
                    .sum::<u64>();
            }
            low..=high
        })
    }

    /// Merges as if both were counted in one sketch, except for the sums, which depend on the core
    /// that saw each packet.
    pub fn merge(&mut self, other: &Sketches) {
        let add = |mine: &mut Vec<i64>, theirs: &[i64]| {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs)
        };
        self.sums.iter_mut().zip(other.sums).for_each(|(mine, theirs)| *mine += theirs);
        self.entropy.iter_mut().zip(&other.entropy).for_each(|(mine, theirs)| add(mine, theirs));
        add(&mut self.frequency, &other.frequency);
        self.membership
            .iter_mut()
            .zip(&other.membership)
            .for_each(|(mine, theirs)| *mine |= theirs);
    }

    fn add(&mut self, settings: &Settings, seed: u64, frame: &OwnedFrame) {
        let hashes = |key| match verdict(frame, key) {
            Verdict::V4(key) | Verdict::V6(key) => Some(row_hashes(settings.hash, seed, &key)),
            _ => None,
        };
        for (index, entropy) in settings.entropy.iter().enumerate() {
            let Some(hashes) = hashes(entropy.key).filter(|_| entropy.mode != Mode::Off) else {
                continue;
            };
            let count = count(&mut self.entropy[index], entropy, &hashes);
            if count > 1 {
                self.sums[index] += logarithm(count) + 1474;
            }
        }
        let frequency = &settings.frequency;
        if let Some(hashes) = hashes(frequency.key).filter(|_| frequency.mode != Mode::Off) {
            count(&mut self.frequency, frequency, &hashes);
        }
        let membership = &settings.membership;
        if let Some(hashes) = hashes(membership.key).filter(|_| membership.on) {
            let bits = membership.shape.column_bits();
            for (row, hash) in hashes.iter().enumerate().take(membership.shape.rows()) {
                let place = (row << bits) + (usize::from(*hash) >> (16 - bits));
                self.membership[place / 64] |= 1 << (place % 64);
            }
        }
    }
}

/// Counts a key once; returns its count according to the sketch.
fn count(cells: &mut [i64], settings: &flowgauge_core::sketch::Settings, hashes: &[u16]) -> i64 {
    let (shape, kind) = (settings.shape, settings.mode.sketch().unwrap());
    let counts = (0..shape.rows()).map(|row| {
        let cell = &mut cells[row * shape.columns() + column(shape, hashes[row])];
        let sign = sign(kind, hashes[row]);
        *cell += sign;
        *cell * sign
    });
    answer(kind, counts.collect())
}

fn column(shape: Grid, hash: u16) -> usize {
    usize::from(hash) * shape.columns() / 65_536
}

fn sign(kind: SketchKind, hash: u16) -> i64 {
    if kind == SketchKind::CountSketch && hash % 2 == 1 { -1 } else { 1 }
}

/// Combines the estimates of the rows.
fn answer(kind: SketchKind, mut counts: Vec<i64>) -> i64 {
    counts.sort_unstable();
    let rows = counts.len();
    match kind {
        SketchKind::CountMin => counts[0],
        SketchKind::CountSketch if rows % 2 == 1 => counts[rows / 2],
        SketchKind::CountSketch => (counts[rows / 2 - 1] + counts[rows / 2] + 1).div_euclid(2),
    }
}
