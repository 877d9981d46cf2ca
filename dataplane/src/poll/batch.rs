//! Many packets at once, where nothing but distinct flows in windows is measured.
//!
//! A packet's key is kept until there are enough; then [`Instructions`] of the CPU find the registers and levels of all of them. What
//! looks at frames is the same for all CPUs, and little enough to stay in registers. Registers take the maximum, so that it makes no
//! difference that they are raised later and in another order, as long as nobody looks before a
//! [`Filling`] is finished.

use super::instructions::Instructions;
use super::port::Frame;
use super::vector::{self, Places, Vectors};
use flowgauge_core::cardinality::{self, MAX_REGISTERS, Mode};
use flowgauge_core::hash::Crc32;
use flowgauge_core::parse::{Packet, Reject, network};
use flowgauge_core::{Active, Bank, Context, HashMode, KeyKind, LaidOut, Link, Maker, Precision, Settings, Tabulation};
use std::ops::Range;

/// Keys that are kept; a power of two. With more of them less is lost to waiting for the last one to be stored.
pub(super) const CAPACITY: usize = 256;
/// Words of four bytes of the longest key of an IPv4 packet, a five-tuple, whose last one is the protocol.
pub(super) const WORDS: usize = 4;

/// One key of so many that raises its register is many: a wrong guess takes about as long as some tens of stores.
const MANY: usize = 64;

/// Keys of IPv4 packets, word by word as they are in memory; with a keyed hash the first words are their signatures, and the others unused.
#[repr(C, align(64))]
pub(super) struct Keys {
    pub(super) words: [[u32; CAPACITY]; WORDS],
}

/// What counts many packets at once.
pub struct Batch {
    keys: Keys,
    /// What hashes groups of keys; without it they are hashed one by one.
    vectors: Option<Box<dyn Vectors>>,
    places: Places,
    cardinality: cardinality::Settings,
    /// Whether many of the last keys raised their registers, as at the start of a window.
    many: bool,
}

/// Packets on their way into a bank, which holds all of them once this is [finished](Self::finish).
///
/// What changes with every packet is in here, and not in the bank or the batch, so that it stays in registers.
#[must_use = "packets are missing until it is finished"]
pub struct Filling<'a> {
    batch: &'a mut Batch,
    active: Active<'a>,
    context: &'a Context<'a>,
    /// Keys that the batch has, less than [`CAPACITY`].
    length: usize,
    /// Bytes on the wire that the bank lacks.
    bytes: u64,
}

impl Batch {
    /// An empty batch; `None` where packets have to be counted one by one, because distinct flows in windows are not all that is measured.
    /// Without `instructions` that the CPU has, keys are hashed one by one.
    #[must_use]
    pub fn new(settings: &Settings, tabulation: &Tabulation, instructions: Instructions) -> Option<Box<Self>> {
        let cardinality = settings.cardinality;
        if cardinality.mode != Mode::Windowed || settings.beyond_cardinality() || settings.headers.inner {
            return None;
        }
        let keys = Keys { words: [[0; CAPACITY]; WORDS] };
        let vectors = vector::vectors(instructions, cardinality, tabulation);
        Some(Box::new(Batch { keys, vectors, places: Places::EMPTY, cardinality, many: false }))
    }

    /// Begins to count in a bank, with the settings and tables that the batch was made for.
    #[inline(always)]
    pub fn fill<'a>(&'a mut self, active: Active<'a>, context: &'a Context<'a>) -> Filling<'a> {
        Filling { batch: self, active, context, length: 0, bytes: 0 }
    }

    /// Brings the first `length` keys into a bank.
    #[inline(never)]
    fn flush(&mut self, length: usize, bank: &mut Bank, tabulation: &Tabulation) {
        bank.counters.ipv4 = bank.counters.ipv4.wrapping_add(length as u64);
        let few = match &self.vectors {
            None => 0..length,
            Some(vectors) => {
                let group = vectors.group();
                let (groups, few) = whole(&mut self.keys, group, length);
                vectors.split(&self.keys, groups, tabulation, &mut self.places);
                raise_to(&self.places, groups * group, bank, &mut self.many);
                few
            }
        };
        self.raise(few, bank, tabulation);
    }

    /// Brings some of the keys into a bank, one by one.
    #[inline(always)]
    fn raise(&self, keys: Range<usize>, bank: &mut Bank, tabulation: &Tabulation) {
        let cardinality::Settings { key, hash, precision, .. } = self.cardinality;
        let [first, second, third, fourth] = self.keys.words.each_ref().map(|word| word.get(keys.clone()).unwrap_or_default());
        // Written out, so that the compiler knows how long a key is.
        match key {
            _ if hash == HashMode::Keyed => raise_all(first.iter().copied(), hash, precision, bank, tabulation),
            KeyKind::Src | KeyKind::Dst => {
                raise_all(first.iter().map(|word| crc([word.to_le_bytes()], 4)), hash, precision, bank, tabulation);
            }
            KeyKind::SrcDst => {
                let keys = first.iter().zip(second);
                let crcs = keys.map(|(first, second)| crc([first.to_le_bytes(), second.to_le_bytes()], 8));
                raise_all(crcs, hash, precision, bank, tabulation);
            }
            KeyKind::FiveTuple => {
                let keys = first.iter().zip(second).zip(third).zip(fourth);
                let crcs = keys.map(|(((first, second), third), fourth)| {
                    crc([first.to_le_bytes(), second.to_le_bytes(), third.to_le_bytes(), fourth.to_le_bytes()], 13)
                });
                raise_all(crcs, hash, precision, bank, tabulation);
            }
        }
    }
}

/// Raises registers to the first `length` levels, a multiple of eight. `many` says whether many of the keys before raised theirs, and
/// afterwards whether many of these did.
#[inline(always)]
fn raise_to(places: &Places, length: usize, bank: &mut Bank, many: &mut bool) {
    let Ok(registers) = <&mut [u8; MAX_REGISTERS]>::try_from(bank.cardinality.levels_mut(Precision::MAX)) else { return };
    let (indices, _) = places.indices.as_chunks::<8>();
    let (levels, _) = places.levels.as_chunks::<8>();
    let mut raised = 0;
    for (indices, levels) in indices.iter().zip(levels).take(length / 8) {
        for (&index, &level) in indices.iter().zip(levels) {
            let register = &mut registers[usize::from(index)];
            // No CPU can foretell which of many raise something, and a store for every key is cheaper than wrong guesses. Where few do,
            // all keys may be of one flow, and every store would have to wait for the one before.
            if *many {
                raised += usize::from(level > *register);
                *register = level.max(*register);
            } else if level > *register {
                raised += 1;
                *register = level;
            }
        }
    }
    *many = raised > length / MANY;
}

/// Makes groups of the first `length` keys whole: how many there are, and the keys behind them, which are too few to be worth another.
fn whole(keys: &mut Keys, group: usize, length: usize) -> (usize, Range<usize>) {
    let rest = length % group;
    // A group of fewer keys is cheaper one by one.
    let few = if rest < group * 5 / 8 { rest } else { 0 };
    let groups = (length - few).div_ceil(group);
    // A key that comes again raises nothing.
    for word in &mut keys.words {
        let [first, ..] = *word;
        word[length - few..groups * group].fill(first);
    }
    (groups, length - few..length)
}

#[inline(always)]
fn crc<const WORDS: usize>(words: [[u8; 4]; WORDS], bytes: usize) -> u32 {
    Crc32::new().of_words(&words, bytes)
}

/// Raises registers to what signatures give. Each hash and the usual precision have a loop of their own, in which nothing is asked again.
#[inline(always)]
fn raise_all(
    signatures: impl Iterator<Item = u32>,
    hash: HashMode,
    precision: Precision,
    bank: &mut Bank,
    tabulation: &Tabulation,
) {
    let usual = precision == Precision::DEFAULT;
    match hash {
        HashMode::Crc32 if usual => {
            signatures.for_each(|signature| raise(bank, HashMode::Crc32, Precision::DEFAULT, signature, tabulation))
        }
        HashMode::Crc32 => signatures.for_each(|signature| raise(bank, HashMode::Crc32, precision, signature, tabulation)),
        HashMode::Tabulated | HashMode::Keyed if usual => {
            signatures.for_each(|signature| raise(bank, HashMode::Tabulated, Precision::DEFAULT, signature, tabulation));
        }
        HashMode::Tabulated | HashMode::Keyed => {
            signatures.for_each(|signature| raise(bank, HashMode::Tabulated, precision, signature, tabulation));
        }
    }
}

#[inline(always)]
fn raise(bank: &mut Bank, hash: HashMode, precision: Precision, signature: u32, tabulation: &Tabulation) {
    bank.cardinality.update(hash.hash(signature, tabulation), precision);
}

/// Frames that are no IPv4 over Ethernet. What it takes fits into registers: nobody else sees where a filling or a frame is, or
/// every one of them would have to be in memory.
#[inline(never)]
fn record_other(bank: &mut Bank, context: &Context<'_>, link: Link, bytes: &[u8], wire_length: u32) {
    bank.counters.bytes = bank.counters.bytes.wrapping_add(u64::from(wire_length));
    match network(bytes, link) {
        Ok(packet) => raise_alone(bank, context, bytes, &packet),
        Err(cause) => reject(bank, cause),
    }
}

fn reject(bank: &mut Bank, cause: Reject) {
    bank.counters.reject(cause, 1);
    if let Reject::NonIp(ethertype) = cause {
        bank.unopened.vote(ethertype, 1);
    }
}

/// Apart from what only rejects frames, which needs few registers.
#[inline(never)]
fn raise_alone(bank: &mut Bank, context: &Context<'_>, bytes: &[u8], packet: &Packet<'_>) {
    let of_family = match packet {
        Packet::V4(_) => &mut bank.counters.ipv4,
        Packet::V6(_) => &mut bank.counters.ipv6,
    };
    *of_family = of_family.wrapping_add(1);
    let cardinality::Settings { key, hash, precision, .. } = context.settings.cardinality;
    raise(bank, hash, precision, key.signature(hash, context.tabulation, packet, key.transport(bytes, packet)), context.tabulation);
}

impl Filling<'_> {
    /// Counts a frame as [`Active::record`] does. `key` and `hash` are those of the settings: the compiler makes code of its own for
    /// constants. Whatever else the settings have is out of its sight, and of the hot code.
    #[inline(always)]
    pub fn record(&mut self, key: KeyKind, hash: HashMode, frame: &Frame<'_>) {
        let Frame { bytes, wire_length, link, .. } = *frame;
        if link != Link::Ethernet {
            return record_other(self.active.bank, self.context, link, bytes, wire_length);
        }
        // Whatever is not IPv4 is looked at again, away from here.
        let Ok(Packet::V4(ip)) = network(bytes, Link::Ethernet) else {
            return record_other(self.active.bank, self.context, Link::Ethernet, bytes, wire_length);
        };
        self.bytes = self.bytes.wrapping_add(u64::from(wire_length));
        let at = self.length & (CAPACITY - 1);
        let packet = Packet::V4(ip);
        let transport = key.transport(bytes, &packet);
        // Products of 64 bits are quicker one by one than as vectors, and a signature takes less room than its key.
        if hash == HashMode::Keyed {
            let [first, ..] = &mut self.batch.keys.words;
            first[at] = key.signature(hash, self.context.tabulation, &packet, transport);
        } else {
            key.lay_out(&packet, transport, Entry { keys: &mut self.batch.keys, at });
        }
        self.advance(1);
    }

    /// Counts keys of IPv4 packets without their frames, and no bytes. Each has the words of [`KeyKind::lay_out`], of which the first byte
    /// is the lowest. `hash` is that of the settings, as for a [frame](Self::record).
    ///
    /// # Panics
    /// If a key of the settings has not `N` words.
    pub fn extend<const N: usize>(&mut self, hash: HashMode, mut keys: &[[u32; N]]) {
        let [bytes, _] = self.batch.cardinality.key.lengths();
        assert!(bytes.div_ceil(4) == N, "keys of {bytes} bytes, and not of {N} words");
        let multilinear = self.context.tabulation.multilinear();
        while !keys.is_empty() {
            let (now, later) = keys.split_at(keys.len().min(CAPACITY - self.length));
            let columns = self.batch.keys.words.iter_mut().map(|column| column.iter_mut().skip(self.length));
            if hash == HashMode::Keyed {
                let signature =
                    |key: &[u32; N]| multilinear.make(LaidOut { words: key.map(u32::to_le_bytes), bytes, over_ipv6: false });
                columns.take(1).for_each(|first| first.zip(now).for_each(|(to, key)| *to = signature(key)));
            } else {
                columns.take(N).enumerate().for_each(|(word, column)| column.zip(now).for_each(|(to, key)| *to = key[word]));
            }
            self.advance(now.len());
            keys = later;
        }
    }

    /// So many keys more are in their places, and no more than there were places for.
    #[inline(always)]
    fn advance(&mut self, keys: usize) {
        self.length += keys;
        if self.length == CAPACITY {
            self.batch.flush(CAPACITY, self.active.bank, self.context.tabulation);
            self.length = 0;
        }
    }

    /// Brings the rest into the bank. Not done by dropping: what can be dropped while a panic unwinds would have to be in memory.
    #[inline(always)]
    pub fn finish(self) {
        let counters = &mut self.active.bank.counters;
        counters.bytes = counters.bytes.wrapping_add(self.bytes);
        if self.length > 0 {
            self.batch.flush(self.length, self.active.bank, self.context.tabulation);
        }
    }
}

/// A place among the keys.
struct Entry<'a> {
    keys: &'a mut Keys,
    at: usize,
}

impl Maker for Entry<'_> {
    type Made = ();

    #[inline(always)]
    fn make<const WORDS: usize>(self, key: LaidOut<WORDS>) {
        for (column, word) in self.keys.words.iter_mut().zip(key.words) {
            column[self.at] = u32::from_le_bytes(word);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use flowgauge_core::Zeroed;
    use flowgauge_core::hash::crc32;
    use flowgauge_core::{Arrival, Shared, Sharing, State};
    use flowgauge_testing::skip;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// A random packet: nearly always IPv4 with ports, now and then something else, with and without a tag, and cut anywhere.
    pub(in crate::poll) fn packet(random: &mut ChaCha8Rng) -> (Vec<u8>, Link) {
        let mut bytes: Vec<u8> = (0..80).map(|_| random.random()).collect();
        let tagged = random.random_ratio(1, 8);
        let ethertype = if tagged { 16 } else { 12 };
        if tagged {
            bytes[12..14].copy_from_slice(&[0x81, 0x00]);
        }
        let (family, version) = match random.random_range(0..16) {
            0 => ([0x86, 0xdd], 0x60),
            1 => ([0x08, 0x06], 0x00),
            2 => ([0x08, 0x00], 0x46),
            _ => ([0x08, 0x00], 0x45),
        };
        bytes[ethertype..ethertype + 2].copy_from_slice(&family);
        bytes[ethertype + 2] = version;
        // A fragment offset would hide the ports.
        bytes[ethertype + 8..ethertype + 10].copy_from_slice(if random.random_ratio(7, 8) { &[0, 0] } else { &[0, 1] });
        bytes[ethertype + 11] = [1, 6, 17, 132][random.random_range(0..4)];
        if random.random_ratio(1, 16) {
            bytes.truncate(random.random_range(0..80));
        }
        if random.random_ratio(1, 16) { (bytes.split_off(bytes.len().min(14)), Link::Ip) } else { (bytes, Link::Ethernet) }
    }

    /// Says so where not all instructions can be tested.
    fn tell_what_is_missing() {
        if cfg!(target_arch = "x86_64") && !Instructions::Avx512.is_available() {
            skip("a CPU with AVX2, AVX-512 (F, BW, CD, VBMI) and GFNI");
        }
    }

    fn each_setting(mut body: impl FnMut(Settings, Instructions)) {
        for key in KeyKind::ALL {
            for hash in HashMode::ALL {
                for precision in (4..=16).filter_map(Precision::new) {
                    let mut settings = Settings::default();
                    (settings.cardinality.key, settings.cardinality.hash) = (key, hash);
                    settings.cardinality.precision = precision;
                    Instructions::available().for_each(|instructions| body(settings, instructions));
                }
            }
        }
    }

    #[test]
    fn batches_of_any_length_give_the_bits_that_packets_one_by_one_give() {
        tell_what_is_missing();
        let tabulation = Tabulation::from_seed(7);
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let packets: Vec<(Vec<u8>, Link)> = (0..4096).map(|_| packet(&mut random)).collect();
        let shared = Shared::boxed();
        each_setting(|settings, instructions| {
            let context = Context::new(settings, &tabulation, Sharing::Alone);
            let mut batch = Batch::new(&settings, &tabulation, instructions).unwrap();
            let (mut one_by_one, mut batched) = (State::boxed(), State::boxed());
            let mut rest = packets.iter().cycle();
            let step = if settings.cardinality.precision == Precision::DEFAULT { 1 } else { 7 };
            for length in (0..=300).step_by(step) {
                let mut filling = batch.fill(batched.active(&shared, 0), &context);
                for (bytes, link) in rest.by_ref().take(length) {
                    let wire_length = 1000 + bytes.len() as u32;
                    one_by_one.active(&shared, 0).record(&context, *link, bytes.as_slice(), Arrival::new(wire_length, 0));
                    filling.record(
                        settings.cardinality.key,
                        settings.cardinality.hash,
                        &Frame { bytes, wire_length, timestamp: 0, link: *link },
                    );
                }
                filling.finish();
                let ([one, _], [many, _]) = (&mut one_by_one.banks, &mut batched.banks);
                assert_eq!(one.counters, many.counters, "{instructions}, {settings:?}, after a batch of {length}");
                assert!(one.cardinality == many.cardinality, "{instructions}, {settings:?}, after a batch of {length}");
                // Full registers would hide what is missing.
                if length % 16 < step {
                    one.clear(&settings);
                    many.clear(&settings);
                }
            }
            assert!(one_by_one == batched, "{instructions}, {settings:?}");
        });
    }

    #[test]
    fn keys_without_frames_give_the_same_bits() {
        tell_what_is_missing();
        each_setting(|settings, instructions| match settings.cardinality.key {
            KeyKind::Src | KeyKind::Dst => keys_give_the_same_bits::<1>(settings, instructions),
            KeyKind::SrcDst => keys_give_the_same_bits::<2>(settings, instructions),
            KeyKind::FiveTuple => keys_give_the_same_bits::<4>(settings, instructions),
        });
    }

    fn keys_give_the_same_bits<const N: usize>(settings: Settings, instructions: Instructions) {
        let (tabulation, shared) = (Tabulation::from_seed(7), Shared::boxed());
        let cardinality = settings.cardinality;
        let context = Context::new(settings, &tabulation, Sharing::Alone);
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let frames: Vec<Vec<u8>> = (0..700).map(|_| packet(&mut random).0).collect();
        let mut batch = Batch::new(&settings, &tabulation, instructions).unwrap();
        let (mut by_frame, mut by_key) = (State::boxed(), State::boxed());
        let mut filling = batch.fill(by_frame.active(&shared, 0), &context);
        let mut keys: Vec<[u32; N]> = Vec::new();
        for bytes in &frames {
            let Ok(packet @ Packet::V4(_)) = network(bytes.as_slice(), Link::Ethernet) else { continue };
            filling.record(cardinality.key, cardinality.hash, &Frame { bytes, wire_length: 0, timestamp: 0, link: Link::Ethernet });
            let key = cardinality.key.extract(&packet, cardinality.key.transport(bytes.as_slice(), &packet));
            let mut words = [[0; 4]; N];
            words.as_flattened_mut()[..key.as_bytes().len()].copy_from_slice(key.as_bytes());
            keys.push(words.map(u32::from_le_bytes));
        }
        filling.finish();
        let mut filling = batch.fill(by_key.active(&shared, 0), &context);
        let mut rest = keys.as_slice();
        // Pieces that end within a batch, at its end and in a later one.
        for length in (1..).map(|piece: usize| piece * 37 % 300) {
            let (now, later) = rest.split_at(length.min(rest.len()));
            filling.extend(cardinality.hash, now);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        filling.finish();
        assert!(by_frame == by_key, "{instructions}, {settings:?}");
    }

    #[test]
    fn every_level_is_found() {
        tell_what_is_missing();
        let tabulation = Tabulation::from_seed(7);
        let mut settings = Settings::default();
        settings.cardinality.hash = HashMode::Crc32;
        let precision = settings.cardinality.precision;
        let context = Context::new(settings, &tabulation, Sharing::Alone);
        // Sources whose CRC is a chosen number: the CRC of a word is one-to-one, and turned back bit by bit.
        let zero = crc32(&[0; 4]);
        let mut basis: Vec<(u32, u32)> = (0..32).map(|bit| (1 << bit, crc32(&(1_u32 << bit).to_le_bytes()) ^ zero)).collect();
        for bit in 0..32 {
            let at = (bit..32).find(|&at| basis[at].1 >> bit & 1 == 1).unwrap();
            basis.swap(bit, at);
            let (key, image) = basis[bit];
            for (other, (their_key, their_image)) in basis.iter_mut().enumerate() {
                if other != bit && *their_image >> bit & 1 == 1 {
                    *their_key ^= key;
                    *their_image ^= image;
                }
            }
        }
        let source = |hash: u32| (0..32).filter(|bit| (hash ^ zero) >> bit & 1 == 1).fold(0, |key, bit| key ^ basis[bit].0);
        for instructions in Instructions::available() {
            let mut batch = Batch::new(&settings, &tabulation, instructions).unwrap();
            let (mut state, shared) = (State::boxed(), Shared::boxed());
            let mut filling = batch.fill(state.active(&shared, 0), &context);
            for register in 0..u32::from(precision.max_level()) {
                let rank = (1_u32 << precision.rank_bits() >> 1).checked_shr(register).unwrap_or(0);
                let mut bytes = [0; 34];
                bytes[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
                bytes[17] = 20;
                bytes[26..30].copy_from_slice(&source(register << precision.rank_bits() | rank).to_le_bytes());
                // Twice, so that there are enough for the vectors.
                for _ in 0..2 {
                    filling.record(
                        settings.cardinality.key,
                        settings.cardinality.hash,
                        &Frame { bytes: &bytes, wire_length: 60, timestamp: 0, link: Link::Ethernet },
                    );
                }
            }
            filling.finish();
            for (register, level) in
                state.banks[0].cardinality.levels(precision).iter().enumerate().take(usize::from(precision.max_level()))
            {
                assert_eq!(usize::from(*level), register + 1);
            }
        }
    }
}
