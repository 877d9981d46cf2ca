//! Superspreaders: the keys with the most distinct others, for example the destinations that the
//! most sources contact (SpreadSketch: Tang, Huang and Lee, INFOCOM 2020; IEEE/ACM ToN 2022).
//!
//! A sketch has rows of cells. A key, for example the destination, has one cell in every row. A
//! cell has two parts, and both are maxima, so that sketches merge in any order:
//!
//! - HyperLogLog registers of the pairs that fell into it: key and other, for example destination
//!   and source. All rows use one hash of the pair, so that a pair raises the same register of each
//!   of its key's cells to the same rank. The minimum over these cells, register by register, is
//!   never below the key's own ranks, and above them only where other keys exceed them in every
//!   row. The paper has a multiresolution bitmap instead.
//! - A [`Candidate`]: the key of the pair with the highest level. Levels are leading zeros of other
//!   bits of the pair's hash. A key with many others is likely to have the highest level of its
//!   cells. Of two keys of equal level the one with the greater signature stays.
//!
//! The candidates of all cells are the list of keys whose others the controller estimates.
//!
//! A key is identified by its *signature* alone, as in [`heavy`](crate::heavy): keys with the same
//! signature count as one, under the name of the first. IPv4 sources and destinations all have
//! different signatures.
//!
//! [`SPREADS`] sketches measure at once, each with [`Settings`] of its own. [`Spread`] is the memory
//! of all of them, per core and in totals. [`Spread::update`] counts a pair, [`Spread::sketch`]
//! reads one of the sketches, `host` clears and merges, and `exact` counts without error.

#[cfg(not(target_arch = "bpf"))]
mod exact;
#[cfg(not(target_arch = "bpf"))]
mod host;

#[cfg(not(target_arch = "bpf"))]
pub use exact::{ExactSpread, FanOut};

pub use crate::grid::MAX_SPREAD_CELLS as MAX_CELLS;

use crate::arrival::Packets;
use crate::bits::ilog2;
use crate::branchless::opaque;
use crate::cardinality::Precision;
use crate::flow_key::FlowKey;
use crate::grid::Grid;
use crate::hash::{ROWS_PER_BLOCK, Tabulation, row};
use crate::key::KeyKind;
use crate::measurement::{MAX_KEYS, MeasureContext, Measurement, MeasurementMemory, UsedBytes};
use crate::needs::RequiredFields;
use crate::observation::{Observation, Observed};
use core::ops::{Range, RangeInclusive};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Number of sketches that measure at once: victims and scanners.
pub const SPREADS: usize = 2;

/// Maximum number of rows: those whose hashes one pass over a signature's bytes computes.
pub const MAX_ROWS: usize = ROWS_PER_BLOCK;

/// Maximum number of registers of a sketch, rows padded to a power of two; one byte each.
pub const MAX_REGISTERS: usize = 1 << 19;

/// Possible numbers of registers of a cell, powers of two.
pub const CELL_REGISTERS: RangeInclusive<usize> = 16..=256;

/// Registers of a cell by default.
const DEFAULT_REGISTERS: Precision = match Precision::from_registers(64) {
    Some(registers) => registers,
    None => Precision::MIN,
};

/// Bytes of a line of memory: a candidate, or as many registers.
const LINE_BYTES: usize = size_of::<Candidate>();
const LINE_BYTES_LOG2: u32 = LINE_BYTES.trailing_zeros();

/// Maximum bytes of all sketches: one of the largest size, or two that share them.
pub const MAX_BYTES: usize = 1 << 20;

/// Lines of all sketches: a power of two, so that a mask bounds an index.
const LINES: usize = MAX_BYTES / LINE_BYTES;

const _: () = {
    assert!(LINE_BYTES == 64 && LINES.is_power_of_two());
    assert!(MAX_REGISTERS + MAX_CELLS * LINE_BYTES <= MAX_BYTES);
};

/// What is counted of a key: its distinct others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Immutable, IntoBytes)]
#[repr(u8)]
pub enum OtherKind {
    /// Source addresses.
    #[default]
    Src = 0,
    /// Destination addresses.
    Dst = 1,
    /// Destination ports, each with its protocol. Packets without ports count as port 0.
    DstPort = 2,
    /// Five-tuples.
    FiveTuple = 3,
}

impl OtherKind {
    /// All kinds.
    pub const ALL: [OtherKind; 4] =
        [OtherKind::Src, OtherKind::Dst, OtherKind::DstPort, OtherKind::FiveTuple];

    /// Returns the name used in options and outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            OtherKind::Src => "src",
            OtherKind::Dst => "dst",
            OtherKind::DstPort => "dst-port",
            OtherKind::FiveTuple => "five-tuple",
        }
    }
}

/// Fields whose signature identifies a pair of a key and one of its others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pair {
    /// A flow key, which contains both.
    Key(KeyKind),
    /// Key, destination port and protocol.
    WithPort,
}

/// Settings of one sketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Immutable, IntoBytes)]
#[repr(C)]
pub struct Settings {
    /// Whether the sketch measures.
    pub on: bool,
    /// Key whose others are counted.
    pub by: KeyKind,
    /// What is counted of a key.
    pub of: OtherKind,
    /// Registers of a cell.
    pub registers: Precision,
    /// Rows and columns.
    pub shape: Grid,
}

impl Settings {
    /// Off, sources of each destination, three rows of 512 cells of 64 registers; the same as
    /// [`Default`], usable in statics.
    pub const DEFAULT: Settings = Settings {
        on: false,
        by: KeyKind::Dst,
        of: OtherKind::Src,
        registers: DEFAULT_REGISTERS,
        shape: Grid::CELLS,
    };

    /// Returns the settings with another size; `None` if it is out of range: `rows` from 1 to
    /// [`MAX_ROWS`], `columns` a power of two from 16, `registers` of a cell a power of two within
    /// [`CELL_REGISTERS`], in total at most [`MAX_CELLS`] and [`MAX_REGISTERS`].
    #[must_use]
    pub fn sized(self, rows: usize, columns: usize, registers: usize) -> Option<Settings> {
        let shape = Grid::of_cells(rows, columns)?;
        let settings = Settings { shape, registers: Precision::from_registers(registers)?, ..self };
        let fits = CELL_REGISTERS.contains(&registers);
        (fits && settings.register_bytes() <= MAX_REGISTERS).then_some(settings)
    }

    /// Returns what identifies a pair; `None` if a key has only one such other.
    #[inline(always)]
    #[must_use]
    pub const fn pair(&self) -> Option<Pair> {
        match (self.by, self.of) {
            (KeyKind::Src, OtherKind::Dst) | (KeyKind::Dst, OtherKind::Src) => {
                Some(Pair::Key(KeyKind::SrcDst))
            }
            (KeyKind::FiveTuple, _) => None,
            (_, OtherKind::DstPort) => Some(Pair::WithPort),
            (_, OtherKind::FiveTuple) => Some(Pair::Key(KeyKind::FiveTuple)),
            (_, OtherKind::Src | OtherKind::Dst) => None,
        }
    }

    /// Returns why these sketches cannot measure, and what to do; `None` if they can.
    #[must_use]
    pub fn problem(sketches: &[Settings; SPREADS]) -> Option<&'static str> {
        let on = || sketches.iter().filter(|of_sketch| of_sketch.on);
        if on().any(|of_sketch| of_sketch.pair().is_none()) {
            return Some(
                "a key has at most one such other; count one that the key does not contain",
            );
        }
        if on().any(|of_sketch| of_sketch.shape.rows() > MAX_ROWS) {
            return Some("a sketch has at most 4 rows");
        }
        let is_too_large = |of_sketch: &Settings| {
            of_sketch.shape.padded_cells() > MAX_CELLS || of_sketch.register_bytes() > MAX_REGISTERS
        };
        let lines: usize = on().map(Settings::lines).sum();
        (on().any(is_too_large) || lines > LINES).then_some(
            "the sketches are too large; they share 1 MiB, 64 bytes a cell and a byte a register",
        )
    }

    /// Returns whether pairs have a signature of their own, with the destination port.
    #[inline(always)]
    pub(crate) const fn counts_ports(&self) -> bool {
        self.on && matches!(self.pair(), Some(Pair::WithPort))
    }

    /// Returns the index of a cell among the registers and candidates of the sketch.
    #[inline(always)]
    #[must_use]
    pub const fn cell(&self, row: usize, column: usize) -> usize {
        (row << self.shape.column_bits() | column) & self.shape.mask()
    }

    /// Returns the bytes of all registers in memory.
    #[inline(always)]
    #[must_use]
    pub const fn register_bytes(&self) -> usize {
        self.shape.padded_cells() << self.registers.bits()
    }

    /// Returns the lines of all registers. Each cell has another line for its candidate.
    #[inline(always)]
    const fn register_lines(&self) -> usize {
        self.register_bytes() >> LINE_BYTES_LOG2
    }

    /// Returns the lines of the sketch; zero if it is off.
    #[inline(always)]
    const fn lines(&self) -> usize {
        if self.on { self.register_lines() + self.shape.padded_cells() } else { 0 }
    }

    /// Returns the same settings with a constant size, if it is the usual one, so that all shifts
    /// are compile-time constants. Not in the kernel: there LLVM would remove the masks by which the
    /// verifier knows the bounds.
    #[inline(always)]
    fn usual(&self) -> Option<Settings> {
        let Settings { shape, registers, .. } = Settings::DEFAULT;
        let is_usual = (self.shape, self.registers) == (shape, registers);
        (is_usual && !cfg!(target_arch = "bpf")).then_some(Settings { shape, registers, ..*self })
    }

    /// Returns key and other of a packet; `with_port` is the signature of [`Pair::WithPort`].
    #[inline(always)]
    fn contact<'a, P: Packets>(&self, packet: &'a Observation<P>, with_port: u32) -> Contact<'a> {
        let pair = match self.pair() {
            Some(Pair::Key(key)) => packet.by(key),
            Some(Pair::WithPort) | None => with_port,
        };
        Contact { key: packet.by(self.by), pair, five_tuple: &packet.spread }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Key and other of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Contact<'a> {
    /// Signature of the key.
    pub key: u32,
    /// Signature of the [`Pair`].
    pub pair: u32,
    /// Bytes of the packet's five-tuple, of which the key is a part; copied when the key becomes a
    /// candidate.
    pub five_tuple: &'a FlowKey,
}

/// Key of the pair with the highest level that a cell has seen. Empty candidates are zero; they
/// compare by level, then by signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
pub struct Candidate {
    /// Level in the upper half, signature in the lower one.
    priority: u64,
    /// Row hashes of the signature.
    rows: u64,
    key: FlowKey,
    /// Fills a line.
    reserved: u64,
}

impl Candidate {
    /// No candidate.
    pub const EMPTY: Candidate =
        Candidate { priority: 0, rows: 0, key: FlowKey::EMPTY, reserved: 0 };

    /// Creates a candidate from a level of at least 1, the signature of its key, and the key.
    #[must_use]
    pub fn new(level: u8, signature: u32, key: FlowKey, tabulation: &Tabulation) -> Self {
        let (priority, rows) =
            (priority(level.into(), signature), tabulation.row_block(signature, 0));
        Candidate { priority, rows, key, reserved: 0 }
    }

    /// Returns the key.
    #[must_use]
    pub const fn key(&self) -> &FlowKey {
        &self.key
    }

    /// Returns the signature of the key. With the keyed hash it is a secret.
    #[must_use]
    pub const fn signature(&self) -> u32 {
        self.priority as u32
    }

    /// Returns the highest level of the key's pairs, 1 to 31; zero if there is no candidate.
    #[must_use]
    pub const fn level(&self) -> u8 {
        (self.priority >> 32) as u8
    }

    /// Returns the priority in a word of 32 bits, as a switch stores it: the level, and the upper
    /// 27 bits of the signature.
    #[must_use]
    pub const fn priority(&self) -> u32 {
        (self.level() as u32) << 27 | self.signature() >> 5
    }

    /// Returns the column of the key's cell in a row. With the keyed hash it is a secret.
    #[must_use]
    pub fn column(&self, row: usize, shape: Grid) -> usize {
        column(self.rows, row, shape)
    }
}

/// Returns the order of candidates: by level, then by signature.
#[inline(always)]
fn priority(level: u32, signature: u32) -> u64 {
    u64::from(level) << 32 | u64::from(signature)
}

/// Returns the leading zeros of a hash plus one, at most 31.
#[inline(always)]
fn level(hash: u32) -> u32 {
    u32::BITS - ilog2(hash | 0b11)
}

/// Returns the column of a key in a row, from the row hashes of its signature.
#[inline(always)]
fn column(rows: u64, index: usize, shape: Grid) -> usize {
    usize::from(row(rows, index)) >> (16_u32 - shape.column_bits())
}

/// Memory of all sketches: of each the registers, cell by cell, then the candidates.
#[derive(Clone, PartialEq, Eq, FromBytes)]
#[repr(C)]
pub struct Spread {
    lines: [Candidate; LINES],
}

impl Spread {
    /// Counts a pair of a sketch whose memory starts at line `start`.
    #[inline(always)]
    fn update_at(
        &mut self,
        start: usize,
        settings: &Settings,
        contact: &Contact<'_>,
        tabulation: &Tabulation,
    ) {
        match settings.usual() {
            Some(settings) => self.update_cells(start, &settings, contact, tabulation),
            None => self.update_cells(start, settings, contact, tabulation),
        }
    }

    #[inline(always)]
    fn update_cells(
        &mut self,
        start: usize,
        settings: &Settings,
        contact: &Contact<'_>,
        tabulation: &Tabulation,
    ) {
        let Settings { by, registers, shape, .. } = *settings;
        let rows = tabulation.row_block(contact.key, 0);
        let pair = tabulation.row_block(contact.pair, 0);
        let (register, rank) = registers.split((pair >> 32) as u32);
        let priority = priority(level(pair as u32), contact.key);
        let (first_byte, register_mask) = (start << LINE_BYTES_LOG2, settings.register_bytes() - 1);
        let first_candidate = start + settings.register_lines();
        let mut is_candidate = false;
        for row in 0..MAX_ROWS {
            if row >= shape.rows() {
                break;
            }
            let cell = settings.cell(row, column(rows, row, shape));
            let byte = first_byte + ((cell << registers.bits() | register) & register_mask);
            #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
            let register = &mut self.lines.as_mut_bytes()[byte & (LINES * LINE_BYTES - 1)];
            if *register < rank {
                *register = rank;
            }
            let line = first_candidate + (opaque(cell) & shape.mask());
            is_candidate |= self.line(line).priority < priority;
        }
        if is_candidate {
            let key = by.within(contact.five_tuple);
            let candidate = Candidate { priority, rows, key, reserved: 0 };
            for row in 0..MAX_ROWS {
                if row >= shape.rows() {
                    break;
                }
                let cell = settings.cell(row, column(rows, row, shape));
                let line = self.line(first_candidate + (opaque(cell) & shape.mask()));
                if line.priority < priority {
                    *line = candidate;
                }
            }
        }
    }

    #[inline(always)]
    #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
    fn line(&mut self, index: usize) -> &mut Candidate {
        &mut self.lines[index & (LINES - 1)]
    }

    /// Counts a pair in the sketch of this index, which is on.
    pub fn update(
        &mut self,
        settings: &[Settings; SPREADS],
        index: usize,
        contact: &Contact<'_>,
        tabulation: &Tabulation,
    ) {
        if let Some(of_sketch) = settings.get(index) {
            self.update_at(start(settings, index), of_sketch, contact, tabulation);
        }
    }

    /// Returns the sketch of this index; empty if it is off.
    #[must_use]
    pub fn sketch<'a>(
        &'a self,
        settings: &'a [Settings; SPREADS],
        index: usize,
    ) -> SpreadSketch<'a> {
        let (registers, candidates) = extents(settings, index);
        SpreadSketch {
            settings: settings.get(index).unwrap_or(&Settings::DEFAULT),
            registers: self.lines.as_bytes().get(registers).unwrap_or_default(),
            candidates: self.lines.get(candidates).unwrap_or_default(),
        }
    }

    /// Returns registers and candidates of the sketch of this index, to be filled from a device or
    /// a file: by [cell](Settings::cell).
    #[must_use]
    pub fn sketch_mut(
        &mut self,
        settings: &[Settings; SPREADS],
        index: usize,
    ) -> (&mut [u8], &mut [Candidate]) {
        let (registers, candidates) = extents(settings, index);
        let (before, lines) = self.lines.split_at_mut(candidates.start.min(LINES));
        let (lines, _) = lines.split_at_mut(candidates.len().min(lines.len()));
        (before.as_mut_bytes().get_mut(registers).unwrap_or_default(), lines)
    }
}

/// Returns the first line of the sketch of this index: behind those before it that are on.
fn start(settings: &[Settings; SPREADS], index: usize) -> usize {
    settings.iter().take(index).map(Settings::lines).sum()
}

/// Returns the bytes of the registers and the lines of the candidates of the sketch of this index.
fn extents(settings: &[Settings; SPREADS], index: usize) -> (Range<usize>, Range<usize>) {
    let start = start(settings, index);
    let Some(of_sketch) = settings.get(index).filter(|of_sketch| of_sketch.on) else {
        return (0..0, 0..0);
    };
    let candidates = start + of_sketch.register_lines();
    let bytes = start << LINE_BYTES_LOG2..candidates << LINE_BYTES_LOG2;
    (bytes, candidates..candidates + of_sketch.shape.padded_cells())
}

/// One sketch of a [`Spread`].
#[derive(Clone, Copy, Debug)]
pub struct SpreadSketch<'a> {
    settings: &'a Settings,
    registers: &'a [u8],
    candidates: &'a [Candidate],
}

impl<'a> SpreadSketch<'a> {
    /// Returns its settings.
    #[must_use]
    pub const fn settings(&self) -> &'a Settings {
        self.settings
    }

    /// Returns the registers of all cells in memory, [cell](Settings::cell) by cell; empty if the
    /// sketch is off.
    #[must_use]
    pub const fn all_registers(&self) -> &'a [u8] {
        self.registers
    }

    /// Returns the candidates of all cells in memory, empty ones included.
    #[must_use]
    pub const fn all_candidates(&self) -> &'a [Candidate] {
        self.candidates
    }

    /// Returns the registers of a cell; empty if the sketch is off.
    #[must_use]
    pub fn registers(&self, row: usize, column: usize) -> &'a [u8] {
        let first = self.settings.cell(row, column) << self.settings.registers.bits();
        self.registers.get(first..first + self.settings.registers.registers()).unwrap_or_default()
    }

    /// Returns the candidate of a cell.
    #[must_use]
    pub fn candidate(&self, row: usize, column: usize) -> Option<&'a Candidate> {
        self.candidates
            .get(self.settings.cell(row, column))
            .filter(|candidate| candidate.priority != 0)
    }

    /// Returns the candidates of all cells, each key once, in the order of rows and columns.
    pub fn candidates(self) -> impl Iterator<Item = &'a Candidate> {
        let shape = self.settings.shape;
        (0..shape.rows())
            .flat_map(move |row| (0..shape.columns()).map(move |column| (row, column)))
            .filter_map(move |(row, column)| {
                let candidate = self.candidate(row, column)?;
                let is_known = |earlier| {
                    self.candidate(earlier, candidate.column(earlier, shape))
                        .is_some_and(|other| other.signature() == candidate.signature())
                };
                (!(0..row).any(is_known)).then_some(candidate)
            })
    }
}

impl Measurement for Spread {
    const NAME: &'static str = "spread";
    type Settings = [Settings; SPREADS];
    const DEFAULT: Self::Settings = [Settings::DEFAULT; SPREADS];
    type PerCore = Spread;
    type Persistent = ();
    type Shared = ();
    type SharedPersistent = ();

    #[inline(always)]
    fn keys(settings: &Self::Settings) -> [Option<KeyKind>; MAX_KEYS] {
        settings.map(|of_sketch| of_sketch.on.then_some(of_sketch.by))
    }

    #[inline(always)]
    fn is_on([first, second]: &Self::Settings) -> bool {
        first.on || second.on
    }

    /// Returns the signatures of pairs; those of keys are in [`keys`](Measurement::keys).
    #[inline(always)]
    fn needs([first, second]: &Self::Settings) -> RequiredFields {
        let of_pair = |of_sketch: &Settings| match of_sketch.pair() {
            Some(Pair::Key(key)) => RequiredFields::key(key),
            Some(Pair::WithPort) => RequiredFields::PORT_PAIRS,
            None => RequiredFields::NONE,
        };
        RequiredFields::NONE.with(of_pair(first), first.on).with(of_pair(second), second.on)
    }

    #[inline(always)]
    fn used([first, second]: &Self::Settings) -> UsedBytes {
        let own = (first.lines() + second.lines()) << LINE_BYTES_LOG2;
        UsedBytes { own, ..UsedBytes::default() }
    }

    #[inline(always)]
    fn measure<P: Packets>(
        settings: &Self::Settings,
        parts: MeasurementMemory<'_, Self>,
        pass: &MeasureContext<'_>,
        packets: &(impl Observed<P> + ?Sized),
    ) {
        let [first, second] = *settings;
        if first.on {
            for packet in packets.each() {
                let (with_port, _) = packet.port_pairs;
                let contact = first.contact(packet, with_port);
                parts.own.update_at(0, &first, &contact, pass.tabulation);
            }
        }
        if second.on {
            let start = first.lines();
            for packet in packets.each() {
                let (_, with_port) = packet.port_pairs;
                let contact = second.contact(packet, with_port);
                parts.own.update_at(start, &second, &contact, pass.tabulation);
            }
        }
    }
}
