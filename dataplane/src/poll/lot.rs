//! Buffer of packet keys of one IP version.

use super::vector::{CAPACITY, Instructions, KeyWords, RegisterUpdates, Vectors, vectors};
use flowgauge_core::cardinality::{Cardinality, MAX_REGISTERS};
use flowgauge_core::hash::Crc32;
use flowgauge_core::parse::{Packet, Transport};
use flowgauge_core::{HashMode, KeyConsumer, KeyKind, KeyWordList, Precision, Tabulation};
use std::array;
use std::ops::Range;

/// Threshold of raises, one key in this many, above which stores have no branch: a misprediction
/// costs tens of stores.
const RAISE_THRESHOLD: usize = 64;

/// Keys of one length in columns of words, with the code that adds them to registers. With a keyed
/// hash the first column holds signatures, and the others are unused.
#[repr(C, align(64))]
pub(super) struct KeyColumns<const WORDS: usize> {
    columns: [KeyWords; WORDS],
    /// Keys per group, and their hash; without it they are hashed one by one.
    vectors: Option<(usize, Box<dyn Vectors>)>,
    /// Length of a key, in bytes.
    bytes: usize,
    /// Whether many of the last keys raised their registers, as at the start of a window.
    mostly_raises: bool,
}

impl<const WORDS: usize> KeyColumns<WORDS> {
    pub(super) fn new(
        bytes: usize,
        (hash, precision): (HashMode, Precision),
        tables: &Tabulation,
        instructions: Instructions,
    ) -> Self {
        let vectors = vectors(instructions, bytes, hash, precision, tables);
        KeyColumns { columns: [[0; CAPACITY]; WORDS], vectors, bytes, mostly_raises: false }
    }

    /// Writes a packet's key at an index below [`CAPACITY`]. `is_keyed`: whether the hash is
    /// [`HashMode::Keyed`].
    #[inline(always)]
    pub(super) fn put(
        &mut self,
        at: usize,
        key: KeyKind,
        is_keyed: bool,
        tabulation: &Tabulation,
        packet: &Packet<'_>,
        transport: Transport,
    ) {
        let at = at & (CAPACITY - 1);
        // Products of 64 bits are faster one by one than as vectors, and a signature is shorter
        // than its key.
        if is_keyed {
            let signature = key.signature(HashMode::Keyed, tabulation, packet, transport);
            self.columns.iter_mut().take(1).for_each(|column| column[at] = signature);
        } else {
            key.lay_out(packet, transport, Entry { columns: &mut self.columns, at });
        }
    }

    /// Writes IPv4 keys from index `from` on; the caller guarantees room.
    pub(super) fn put_all<const N: usize>(
        &mut self,
        from: usize,
        hash: HashMode,
        tabulation: &Tabulation,
        keys: &[[u32; N]],
    ) {
        let bytes = self.bytes;
        let updates = self.columns.iter_mut().map(|column| column.iter_mut().skip(from));
        if hash == HashMode::Keyed {
            let laid_out = |key: &[u32; N]| KeyWordList {
                words: key.map(u32::to_le_bytes),
                bytes,
                over_ipv6: false,
            };
            let signature = |key| tabulation.multilinear().make(laid_out(key));
            updates
                .take(1)
                .for_each(|first| first.zip(keys).for_each(|(to, key)| *to = signature(key)));
        } else {
            updates
                .take(N)
                .enumerate()
                .for_each(|(word, column)| column.zip(keys).for_each(|(to, key)| *to = key[word]));
        }
    }

    /// Raises the registers of the first `length` keys.
    #[inline(always)]
    pub(super) fn raise(
        &mut self,
        length: usize,
        updates: &mut RegisterUpdates,
        hashed @ (hash, _): (HashMode, Precision),
        registers: &mut Cardinality,
        tabulation: &Tabulation,
    ) {
        let few = match &self.vectors {
            None => 0..length,
            Some((group, vectors)) => {
                let (groups, few) = whole(&mut self.columns, *group, length);
                vectors.split(&self.columns, groups, tabulation, updates);
                raise_to(updates, groups * group, registers, &mut self.mostly_raises);
                few
            }
        };
        if hash == HashMode::Keyed {
            let [first, ..] = self.columns.as_slice() else { return };
            let signatures = first.get(few).unwrap_or_default().iter().copied();
            return update(registers, signatures, hashed, tabulation);
        }
        // Enumerated, so that the length of a key is a constant.
        match self.bytes {
            4 => update(registers, self.crcs::<1, 4>(few), hashed, tabulation),
            8 => update(registers, self.crcs::<2, 8>(few), hashed, tabulation),
            13 => update(registers, self.crcs::<4, 13>(few), hashed, tabulation),
            16 => update(registers, self.crcs::<4, 16>(few), hashed, tabulation),
            32 => update(registers, self.crcs::<8, 32>(few), hashed, tabulation),
            _ => update(registers, self.crcs::<10, 37>(few), hashed, tabulation),
        }
    }

    /// Returns the CRCs of keys of `N` words and `BYTES` bytes.
    #[inline(always)]
    fn crcs<const N: usize, const BYTES: usize>(
        &self,
        keys: Range<usize>,
    ) -> impl Iterator<Item = u32> {
        let columns: [&KeyWords; N] =
            array::from_fn(|word| self.columns.get(word).unwrap_or(&[0; CAPACITY]));
        keys.map(move |at| {
            Crc32::new()
                .of_words(&columns.map(|column| column[at & (CAPACITY - 1)].to_le_bytes()), BYTES)
        })
    }
}

/// Destination of one key: an index in the columns.
struct Entry<'a, const WORDS: usize> {
    columns: &'a mut [KeyWords; WORDS],
    at: usize,
}

impl<const WORDS: usize> KeyConsumer for Entry<'_, WORDS> {
    type Output = ();

    #[inline(always)]
    fn make<const N: usize>(self, key: KeyWordList<N>) {
        for (column, word) in self.columns.iter_mut().zip(key.words) {
            column[self.at] = u32::from_le_bytes(word);
        }
    }
}

/// Updates registers from signatures. Each hash at the default precision has a loop of its own,
/// free of branches on settings.
#[inline(always)]
fn update(
    registers: &mut Cardinality,
    signatures: impl Iterator<Item = u32>,
    (hash, precision): (HashMode, Precision),
    tabulation: &Tabulation,
) {
    let usual = precision == Precision::DEFAULT;
    match hash {
        HashMode::Crc32 if usual => {
            signatures.for_each(|signature| registers.update(signature, Precision::DEFAULT));
        }
        HashMode::Crc32 => signatures.for_each(|signature| registers.update(signature, precision)),
        HashMode::Tabulated | HashMode::Keyed if usual => {
            signatures.for_each(|signature| {
                registers.update(tabulation.hash(signature), Precision::DEFAULT)
            });
        }
        HashMode::Tabulated | HashMode::Keyed => {
            signatures
                .for_each(|signature| registers.update(tabulation.hash(signature), precision));
        }
    }
}

/// Raises registers to the first `length` levels, a multiple of eight. On entry,
/// `mostly_raises` says whether many of the previous keys raised theirs; on return, whether many of
/// these did.
#[inline(always)]
fn raise_to(
    updates: &RegisterUpdates,
    length: usize,
    registers: &mut Cardinality,
    mostly_raises: &mut bool,
) {
    let Ok(registers) = <&mut [u8; MAX_REGISTERS]>::try_from(registers.levels_mut(Precision::MAX))
    else {
        return;
    };
    let (indices, _) = updates.indices.as_chunks::<8>();
    let (levels, _) = updates.levels.as_chunks::<8>();
    let mut raised = 0;
    for (indices, levels) in indices.iter().zip(levels).take(length / 8) {
        for (&index, &level) in indices.iter().zip(levels) {
            let register = &mut registers[usize::from(index)];
            // If many keys raise registers, the branch is unpredictable, and a store for every key
            // is cheaper than mispredictions. If few do, all keys may be of one flow, and every
            // store would wait for the previous one.
            if *mostly_raises {
                raised += usize::from(level > *register);
                *register = level.max(*register);
            } else if level > *register {
                raised += 1;
                *register = level;
            }
        }
    }
    *mostly_raises = raised > length / RAISE_THRESHOLD;
}

/// Completes the last group of the first `length` keys. Returns the number of groups, and the range
/// of keys after them, too few for another group.
fn whole(columns: &mut [KeyWords], group: usize, length: usize) -> (usize, Range<usize>) {
    let rest = length % group;
    // A group with fewer keys is cheaper one by one.
    let few = if rest < group * 5 / 8 { rest } else { 0 };
    let groups = (length - few).div_ceil(group);
    // A repeated key raises nothing.
    for column in columns {
        let [first, ..] = *column;
        column[length - few..groups * group].fill(first);
    }
    (groups, length - few..length)
}
