//! One stream through tables of heavy hitters.

use flowgauge_core::hash::crc32;
use flowgauge_core::heavy::{Algorithm, HeavyTable, Item, Settings};
use flowgauge_core::{FlowKey, Heavy};
use flowgauge_traffic::{Generator, Profile, Sources};
use hashbrown::HashMap;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cmp::Reverse;

/// Number of slots, and of true top flows searched for.
pub(crate) const SLOTS: usize = 1 << SLOTS_LOG2;
const SLOTS_LOG2: u8 = 8;

/// Table of a Zipf stream, with any algorithm.
pub(super) const SETTINGS: Settings = Settings { slots_log2: SLOTS_LOG2, ..Settings::DEFAULT };

/// Packets of a Zipf stream.
pub(crate) const PACKETS: u64 = 2_000_000;

/// Number of flows in a Zipf stream.
pub(crate) const FLOWS: u64 = 200_000;

/// Exponents of Zipf's law.
pub(crate) const ALPHAS: [f64; 3] = [1.0, 1.2, 1.5];

/// Table sizes in the theorem, as powers of two.
pub(crate) const SIZES_LOG2: [u8; 9] = [6, 7, 8, 9, 10, 11, 12, 13, 14];

/// Shares of heavy flows in the packets of the theorem's streams.
pub(crate) const HEAVY_SHARES: [f64; 2] = [0.2, 0.5];

/// Mean number of packets per heavy flow in the theorem's streams.
pub(crate) const PACKETS_PER_HEAVY_FLOW: u64 = 100;

/// Algorithms compared in the theorem.
pub(crate) const COMPARED: [Algorithm; 2] = [Algorithm::Rap, Algorithm::SpaceSaving];

/// Packets whose sources follow Zipf's law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Zipf {
    /// Exponent.
    pub alpha: f64,
    /// Seed of addresses and packets.
    pub seed: u64,
}

/// Content of a table after a Zipf stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TableContent {
    /// Algorithm.
    pub algorithm: Algorithm,
    /// Whether the table has each of the true top flows, the heaviest first.
    pub ranks: Vec<bool>,
    /// Mean absolute relative error of the counts of those that it has, in percent.
    pub count_error: f64,
}

impl TableContent {
    /// Returns the share of the true top flows, 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        self.ranks.iter().filter(|held| **held).count() as f64 / self.ranks.len() as f64
    }
}

impl Zipf {
    /// Returns the generator's profile of the stream.
    pub(crate) fn profile(&self) -> Profile {
        let sources = Sources::Zipf { flows: FLOWS, alpha: self.alpha };
        Profile { rate: None, packets: Some(PACKETS), seed: self.seed, ..Profile::new(sources) }
    }

    /// Counts the stream with every algorithm.
    pub(crate) fn run(&self) -> Vec<TableContent> {
        let generator = Generator::new(self.profile());
        let sources: Vec<u32> = (0..PACKETS).map(|packet| generator.source(packet)).collect();
        let mut counts: HashMap<u32, u64> = HashMap::new();
        sources.iter().for_each(|source| *counts.entry(*source).or_default() += 1);
        let mut top: Vec<(u32, u64)> = counts.into_iter().collect();
        // Order equal counts by address, so that the top flows are the same in every run.
        top.sort_unstable_by_key(|&(source, count)| (Reverse(count), source));
        top.truncate(SLOTS);
        Algorithm::ALL.map(|algorithm| held(algorithm, &sources, &top)).to_vec()
    }
}

fn held(algorithm: Algorithm, sources: &[u32], top: &[(u32, u64)]) -> TableContent {
    let settings = Settings { algorithm, ..SETTINGS };
    let mut table = Box::new(Heavy::new());
    sources.iter().for_each(|source| count(&mut table, &settings, *source));
    let signature = |&(source, count): &(u32, u64)| (crc32(&source.to_be_bytes()), count);
    content(&table, &settings, &top.iter().map(signature).collect::<Vec<_>>())
}

/// Compares a table with the true top flows: their signatures and counts, the heaviest first.
pub(super) fn content<const N: usize>(
    table: &HeavyTable<N>,
    settings: &Settings,
    top: &[(u32, u64)],
) -> TableContent {
    let counts: HashMap<u32, u64> =
        table.entries(settings).map(|entry| (entry.signature, entry.count)).collect();
    let found: Vec<Option<u64>> =
        top.iter().map(|(signature, _)| counts.get(signature).copied()).collect();
    let errors = found.iter().zip(top).filter_map(|(count, (_, truth))| {
        let truth = *truth as f64;
        count.map(|count| (count as f64 - truth).abs() / truth * 100.0)
    });
    let held = found.iter().flatten().count();
    let count_error = errors.sum::<f64>() / held.max(1) as f64;
    let ranks = found.iter().map(Option::is_some).collect();
    TableContent { algorithm: settings.algorithm, ranks, count_error }
}

fn count<const N: usize>(table: &mut HeavyTable<N>, settings: &Settings, source: u32) {
    let bytes = source.to_be_bytes();
    table.update(
        settings,
        Item { signature: crc32(&bytes), packets: 1, bytes: 64, key: &FlowKey::new(&bytes) },
    );
}

/// Highly skewed stream: k equally heavy flows, and between their packets others that are the only
/// ones of their flows. The table has k slots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Skewed {
    /// Algorithm.
    pub algorithm: Algorithm,
    /// k, as a power of two.
    pub size_log2: u8,
    /// Share of heavy flows in all packets.
    pub heavy_share: f64,
    /// Seed of addresses and order.
    pub seed: u64,
}

impl Skewed {
    /// Returns k, the number of slots and of heavy flows.
    pub(crate) fn size(&self) -> u32 {
        1 << self.size_log2
    }

    /// Returns the number of packets of the stream.
    pub(crate) fn packets(&self) -> u64 {
        ((u64::from(self.size()) * PACKETS_PER_HEAVY_FLOW) as f64 / self.heavy_share) as u64
    }

    /// Returns the share of heavy flows that the table has at the end, 0 to 1.
    pub(crate) fn run(&self) -> f64 {
        let settings =
            Settings { algorithm: self.algorithm, slots_log2: self.size_log2, ..Settings::DEFAULT };
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        // Multiplication by an odd number is a bijection: addresses are distinct and unordered.
        let start: u32 = random.random();
        let address = |flow: u32| flow.wrapping_add(start).wrapping_mul(0x9e37_79b1);
        let mut table = Box::new(HeavyTable::<{ 1 << 14 }>::new());
        let mut others = self.size()..;
        for _ in 0..self.packets() {
            let heavy = random.random_bool(self.heavy_share);
            let flow =
                if heavy { Some(random.random_range(0..self.size())) } else { others.next() };
            flow.into_iter().for_each(|flow| count(&mut table, &settings, address(flow)));
        }
        let heavy: hashbrown::HashSet<u32> =
            (0..self.size()).map(|flow| crc32(&address(flow).to_be_bytes())).collect();
        let held =
            table.entries(&settings).filter(|entry| heavy.contains(&entry.signature)).count();
        held as f64 / f64::from(self.size())
    }
}
