//! Keys of packets of one IP version, which wait until there are enough of them.

use super::instructions::Instructions;
use super::vector::{Places, Vectors, vectors};
use flowgauge_core::cardinality::{self, Cardinality, MAX_REGISTERS};
use flowgauge_core::hash::Crc32;
use flowgauge_core::parse::{Packet, Transport};
use flowgauge_core::{HashMode, KeyKind, LaidOut, Maker, Precision, Tabulation};
use std::array;
use std::ops::Range;

/// Keys that are kept; a power of two. With more of them less is lost to waiting for the last one
/// to be stored.
pub(super) const CAPACITY: usize = 256;

/// One word of four bytes of each key, as it is in memory.
pub(super) type Column = [u32; CAPACITY];

/// One key of so many that raises its register is many: a wrong guess takes about as long as some
/// tens of stores.
const MANY: usize = 64;

/// Keys of one length, word by word, and what brings them into registers; with a keyed hash the
/// first words are their signatures, and the others unused.
#[repr(C, align(64))]
pub(super) struct Lot<const WORDS: usize> {
    columns: [Column; WORDS],
    /// What hashes groups of keys; without it they are hashed one by one.
    vectors: Option<Box<dyn Vectors>>,
    /// Bytes of a key.
    bytes: usize,
    /// Whether many of the last keys raised their registers, as at the start of a window.
    many: bool,
}

impl<const WORDS: usize> Lot<WORDS> {
    pub(super) fn new(
        bytes: usize,
        settings: cardinality::Settings,
        tables: &Tabulation,
        instructions: Instructions,
    ) -> Self {
        let vectors = vectors(instructions, bytes, settings, tables);
        Lot { columns: [[0; CAPACITY]; WORDS], vectors, bytes, many: false }
    }

    /// Puts a packet's key at a place below [`CAPACITY`].
    #[inline(always)]
    pub(super) fn put(
        &mut self,
        at: usize,
        key: KeyKind,
        hash: HashMode,
        tabulation: &Tabulation,
        packet: &Packet<'_>,
        transport: Transport,
    ) {
        let at = at & (CAPACITY - 1);
        // Products of 64 bits are quicker one by one than as vectors, and a signature takes less
        // room than its key.
        if hash == HashMode::Keyed {
            let signature = key.signature(hash, tabulation, packet, transport);
            self.columns.iter_mut().take(1).for_each(|column| column[at] = signature);
        } else {
            key.lay_out(packet, transport, Entry { columns: &mut self.columns, at });
        }
    }

    /// Puts keys over IPv4 at places from one on, of which there are enough.
    pub(super) fn put_all<const N: usize>(
        &mut self,
        from: usize,
        hash: HashMode,
        tabulation: &Tabulation,
        keys: &[[u32; N]],
    ) {
        let bytes = self.bytes;
        let places = self.columns.iter_mut().map(|column| column.iter_mut().skip(from));
        if hash == HashMode::Keyed {
            let laid_out = |key: &[u32; N]| LaidOut {
                words: key.map(u32::to_le_bytes),
                bytes,
                over_ipv6: false,
            };
            let signature = |key| tabulation.multilinear().make(laid_out(key));
            places
                .take(1)
                .for_each(|first| first.zip(keys).for_each(|(to, key)| *to = signature(key)));
        } else {
            places
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
        places: &mut Places,
        settings: cardinality::Settings,
        registers: &mut Cardinality,
        tabulation: &Tabulation,
    ) {
        let few = match &self.vectors {
            None => 0..length,
            Some(vectors) => {
                let group = vectors.group();
                let (groups, few) = whole(&mut self.columns, group, length);
                vectors.split(&self.columns, groups, tabulation, places);
                raise_to(places, groups * group, registers, &mut self.many);
                few
            }
        };
        self.raise_one_by_one(few, settings, registers, tabulation);
    }

    #[inline(always)]
    fn raise_one_by_one(
        &self,
        keys: Range<usize>,
        cardinality::Settings { hash, precision, .. }: cardinality::Settings,
        registers: &mut Cardinality,
        tabulation: &Tabulation,
    ) {
        let raise = Raise { hash, precision, registers, tabulation };
        if hash == HashMode::Keyed {
            let [first, ..] = self.columns.as_slice() else { return };
            return raise.all(first.get(keys).unwrap_or_default().iter().copied());
        }
        // Written out, so that the compiler knows how long a key is.
        match self.bytes {
            4 => raise.all(self.crcs::<1, 4>(keys)),
            8 => raise.all(self.crcs::<2, 8>(keys)),
            13 => raise.all(self.crcs::<4, 13>(keys)),
            16 => raise.all(self.crcs::<4, 16>(keys)),
            32 => raise.all(self.crcs::<8, 32>(keys)),
            _ => raise.all(self.crcs::<10, 37>(keys)),
        }
    }

    /// The CRCs of keys of so many words and bytes.
    #[inline(always)]
    fn crcs<const N: usize, const BYTES: usize>(
        &self,
        keys: Range<usize>,
    ) -> impl Iterator<Item = u32> {
        let columns: [&Column; N] =
            array::from_fn(|word| self.columns.get(word).unwrap_or(&[0; CAPACITY]));
        keys.map(move |at| {
            Crc32::new()
                .of_words(&columns.map(|column| column[at & (CAPACITY - 1)].to_le_bytes()), BYTES)
        })
    }
}

/// A place among the keys.
struct Entry<'a, const WORDS: usize> {
    columns: &'a mut [Column; WORDS],
    at: usize,
}

impl<const WORDS: usize> Maker for Entry<'_, WORDS> {
    type Made = ();

    #[inline(always)]
    fn make<const N: usize>(self, key: LaidOut<N>) {
        for (column, word) in self.columns.iter_mut().zip(key.words) {
            column[self.at] = u32::from_le_bytes(word);
        }
    }
}

/// Raises registers to what signatures give.
struct Raise<'a> {
    hash: HashMode,
    precision: Precision,
    registers: &'a mut Cardinality,
    tabulation: &'a Tabulation,
}

impl Raise<'_> {
    /// Each hash and the usual precision have a loop of their own, in which nothing is asked again.
    #[inline(always)]
    fn all(self, signatures: impl Iterator<Item = u32>) {
        let Raise { hash, precision, registers, tabulation } = self;
        let usual = precision == Precision::DEFAULT;
        match hash {
            HashMode::Crc32 if usual => {
                signatures.for_each(|signature| registers.update(signature, Precision::DEFAULT))
            }
            HashMode::Crc32 => {
                signatures.for_each(|signature| registers.update(signature, precision))
            }
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
}

/// Raises registers to the first `length` levels, a multiple of eight. `many` says whether many of
/// the keys before raised theirs, and afterwards whether many of these did.
#[inline(always)]
fn raise_to(places: &Places, length: usize, registers: &mut Cardinality, many: &mut bool) {
    let Ok(registers) = <&mut [u8; MAX_REGISTERS]>::try_from(registers.levels_mut(Precision::MAX))
    else {
        return;
    };
    let (indices, _) = places.indices.as_chunks::<8>();
    let (levels, _) = places.levels.as_chunks::<8>();
    let mut raised = 0;
    for (indices, levels) in indices.iter().zip(levels).take(length / 8) {
        for (&index, &level) in indices.iter().zip(levels) {
            let register = &mut registers[usize::from(index)];
            // No CPU can foretell which of many raise something, and a store for every key is
            // cheaper than wrong guesses. Where few do, all keys may be of one flow, and every
            // store would have to wait for the one before.
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

/// Makes groups of the first `length` keys whole: how many there are, and the keys behind them,
/// which are too few to be worth another.
fn whole(columns: &mut [Column], group: usize, length: usize) -> (usize, Range<usize>) {
    let rest = length % group;
    // A group of fewer keys is cheaper one by one.
    let few = if rest < group * 5 / 8 { rest } else { 0 };
    let groups = (length - few).div_ceil(group);
    // A key that comes again raises nothing.
    for column in columns {
        let [first, ..] = *column;
        column[length - few..groups * group].fill(first);
    }
    (groups, length - few..length)
}
