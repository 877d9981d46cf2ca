//! Distinct flows: HyperLogLog registers (W-HLL thesis, chapter 3; Flajolet et al. 2007).
//!
//! The upper `p` bits of a 32-bit hash select one of `m = 2^p` registers. The lower `32 - p` bits
//! give the level: their leading zeros plus one. A register keeps the highest level. Lower bits of
//! zero give level `33 - p`; the thesis' match table gives 0 there, which drops the packet and caps
//! the estimate.

#[cfg(not(target_arch = "bpf"))]
mod host;
mod rank;
mod staggered;

pub use rank::{RankEntry, rank_table};
pub use staggered::{Slots, Staggered};

use crate::arrival::Packets;
use crate::bits::ilog2;
use crate::key::KeyKind;
use crate::measurement::{MAX_KEYS, MeasureContext, Measurement, MeasurementMemory, UsedBytes};
use crate::needs::RequiredFields;
use crate::observation::Observed;
use zerocopy::{FromZeros, Immutable, IntoBytes};

/// Registers of a bank at the highest precision.
pub const MAX_REGISTERS: usize = 1 << Precision::MAX.0;

/// Register count as a power of two: `m = 2^p`, `p` in 4..=16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Immutable, IntoBytes)]
#[repr(transparent)]
pub struct Precision(u8);

impl Default for Precision {
    /// Returns 2048 registers, as in the thesis.
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Precision {
    /// 2048 registers.
    pub const DEFAULT: Precision = Precision(11);
    /// 16 registers.
    pub const MIN: Precision = Precision(4);
    /// 65,536 registers.
    pub const MAX: Precision = Precision(16);

    /// Returns precision `p`, if it is in 4..=16.
    #[must_use]
    pub const fn new(p: u8) -> Option<Self> {
        if p < Self::MIN.0 || p > Self::MAX.0 { None } else { Some(Precision(p)) }
    }

    /// Returns the precision with `m` registers, if `m` is a power of two in 16..=65536.
    #[must_use]
    pub const fn from_registers(m: usize) -> Option<Self> {
        if m.is_power_of_two() { Self::new(m.trailing_zeros() as u8) } else { None }
    }

    /// Returns `p`: hash bits that select the register.
    #[inline(always)]
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0 as u32
    }

    /// Returns `32 - p`: hash bits that give the level.
    #[inline(always)]
    #[must_use]
    pub const fn rank_bits(self) -> u32 {
        32_u32 - self.bits()
    }

    /// Returns `m`: number of registers in use.
    #[inline(always)]
    #[must_use]
    pub const fn registers(self) -> usize {
        1_usize << self.bits()
    }

    /// Returns the highest level of a register.
    #[must_use]
    pub const fn max_level(self) -> u8 {
        (self.rank_bits() + 1) as u8
    }

    /// Returns register index and level of a hash.
    #[inline(always)]
    #[must_use]
    pub const fn split(self, hash: u32) -> (usize, u8) {
        let (index, rank) = self.divide(hash);
        (index, self.level(rank))
    }

    /// Returns the register index of a hash, and its rank bits, left-aligned.
    #[inline(always)]
    const fn divide(self, hash: u32) -> (usize, u32) {
        ((hash >> self.rank_bits()) as usize, hash << self.bits())
    }

    /// Returns the leading zeros of rank bits plus one. A bit set below them stops the count if all
    /// are zero.
    #[inline(always)]
    const fn level(self, rank: u32) -> u8 {
        let sentinel = 1_u32 << (self.bits() - 1);
        (u32::BITS - ilog2(rank | sentinel)) as u8
    }
}

/// Whether the measurement is on, and over which period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Immutable, IntoBytes)]
#[repr(u8)]
pub enum Mode {
    /// Not measured.
    Off = 0,
    /// Counted per window (W-HLL).
    #[default]
    Windowed = 1,
    /// Current at every instant, without windows (ST-HLL).
    Staggered = 2,
}

/// Settings of the measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Immutable, IntoBytes)]
#[repr(C)]
pub struct Settings {
    /// Whether and how to measure.
    pub mode: Mode,
    /// Fields that define a flow.
    pub key: KeyKind,
    /// Number of registers.
    pub precision: Precision,
}

impl Settings {
    /// Windowed, by source, 2048 registers; the same as [`Default`], usable in statics.
    pub const DEFAULT: Settings =
        Settings { mode: Mode::Windowed, key: KeyKind::Src, precision: Precision::DEFAULT };
}

/// One bank of registers; the first `m` are in use.
#[derive(Clone, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct Cardinality {
    registers: [u8; MAX_REGISTERS],
}

impl Cardinality {
    /// Creates empty registers.
    #[must_use]
    pub const fn new() -> Self {
        Cardinality { registers: [0; MAX_REGISTERS] }
    }

    /// Raises the register of a hash to the hash's level.
    #[inline(always)]
    pub fn update(&mut self, hash: u32, precision: Precision) {
        // For the usual precision all shifts are compile-time constants.
        if precision == Precision::DEFAULT {
            self.raise(hash, Precision::DEFAULT);
        } else {
            self.raise_any(hash, precision);
        }
    }

    /// Raises the register at any precision. Not inlined: the compiler would mix this code with
    /// that of the usual precision.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    #[cfg_attr(not(target_arch = "bpf"), inline(never))]
    fn raise_any(&mut self, hash: u32, precision: Precision) {
        self.raise(hash, precision);
    }

    #[inline(always)]
    fn raise(&mut self, hash: u32, precision: Precision) {
        let (index, rank) = precision.divide(hash);
        // `p` is at most 16; the mask makes that known to the compiler.
        #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
        let register = &mut self.registers[index & (MAX_REGISTERS - 1)];
        // A rank with at least `level` leading zeros is below 2^(32 - level). Most packets raise
        // nothing; for them a shift is cheaper than counting zeros, for which BPF has no
        // instruction, and than a store. Rank bits of zero pass this test at any level.
        if (u64::from(rank) << u32::from(*register)) >> 32 == 0 {
            *register = precision.level(rank).max(*register);
        }
    }

    /// Returns the levels of the `m` registers in use.
    #[must_use]
    pub fn levels(&self, precision: Precision) -> &[u8] {
        self.registers.get(..precision.registers()).unwrap_or(&self.registers)
    }

    /// Returns the levels of the `m` registers in use, to be filled from a device.
    #[must_use]
    pub fn levels_mut(&mut self, precision: Precision) -> &mut [u8] {
        let (used, _) = self.registers.split_at_mut(precision.registers().min(MAX_REGISTERS));
        used
    }
}

impl Default for Cardinality {
    fn default() -> Self {
        Self::new()
    }
}

impl Measurement for Cardinality {
    const NAME: &'static str = "cardinality";
    type Settings = Settings;
    const DEFAULT: Settings = Settings::DEFAULT;
    type PerCore = Cardinality;
    type Persistent = Staggered;
    type Shared = ();
    type SharedPersistent = ();

    #[inline(always)]
    fn keys(settings: &Settings) -> [Option<KeyKind>; MAX_KEYS] {
        [Self::is_on(settings).then_some(settings.key), None]
    }

    #[inline(always)]
    fn is_on(settings: &Settings) -> bool {
        settings.mode != Mode::Off
    }

    #[inline(always)]
    fn needs(settings: &Settings) -> RequiredFields {
        RequiredFields::NONE.with(RequiredFields::TIME, settings.mode == Mode::Staggered)
    }

    #[inline(always)]
    fn used(settings: &Settings) -> UsedBytes {
        let registers = settings.precision.registers();
        match settings.mode {
            Mode::Off => UsedBytes::default(),
            Mode::Windowed => UsedBytes { own: registers, ..UsedBytes::default() },
            Mode::Staggered => {
                UsedBytes { persistent: registers * size_of::<u32>(), ..UsedBytes::default() }
            }
        }
    }

    #[inline(always)]
    fn measure<P: Packets>(
        settings: &Settings,
        parts: MeasurementMemory<'_, Self>,
        pass: &MeasureContext<'_>,
        packets: &(impl Observed<P> + ?Sized),
    ) {
        let Settings { mode, key, precision } = *settings;
        match mode {
            Mode::Off => {}
            Mode::Windowed => {
                for packet in packets.each() {
                    parts.own.update(pass.hash.hash(packet.by(key), pass.tabulation), precision);
                }
            }
            Mode::Staggered => {
                let mut slots = Slots::new(pass.slot_ns);
                for packet in packets.each() {
                    let slot = slots.of(packet.time());
                    parts.persistent.update(
                        pass.hash.hash(packet.by(key), pass.tabulation),
                        precision,
                        slot,
                    );
                }
            }
        }
    }
}
