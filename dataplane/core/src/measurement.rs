//! The packet half of a measurement: settings, memory, and the update for one packet.
//!
//! Each measurement is a folder or a file named after it, with two halves. The half in `mod.rs`
//! implements [`Measurement`]; it is compiled for user space and for the kernel, and runs once per
//! packet. The half in `host.rs` implements [`HostMeasurement`](crate::HostMeasurement): clearing,
//! merging and totals, in user space only. [`list`](crate::list) names all measurements and
//! generates the code that needs to know all of them: settings, banks, loops.
//!
//! A measurement has up to four kinds of memory: per core or shared by all cores, and banked or
//! persistent. Banked memory exists twice (two [banks](crate::state::BANKS)): packets are counted
//! in one bank while the other is read and cleared. Persistent memory keeps its content across
//! windows. Memory of zeros is empty. A measurement uses `()` for a kind that it does not need.
//!
//! For each packet, [`Measurement::measure`] gets the settings, its [`MeasurementMemory`] of the memory, a
//! [`MeasureContext`] (hash tables, sharing, bank) and the [observed](crate::Observed) packet fields.

use crate::arrival::Packets;
use crate::counter::Sharing;
use crate::hash::{HashMode, Tabulation};
use crate::key::KeyKind;
use crate::needs::RequiredFields;
use crate::observation::Observed;
use core::fmt::Debug;
use zerocopy::{FromZeros, Immutable, IntoBytes};

/// Maximum number of keys of one measurement.
pub const MAX_KEYS: usize = 2;

/// A measurement's settings, memory and per-packet update.
pub trait Measurement: Sized {
    /// Name in options and outputs.
    const NAME: &'static str;
    /// Settings, without padding: they are written to the kernel and to pins as bytes.
    type Settings: Copy + Debug + PartialEq + IntoBytes + Immutable;
    /// Settings of a run that does not configure the measurement.
    const DEFAULT: Self::Settings;

    /// Per-core banked memory.
    type PerCore: FromZeros;
    /// Per-core persistent memory.
    type Persistent: FromZeros;
    /// Banked memory, shared by all cores.
    type Shared: FromZeros;
    /// Persistent memory, shared by all cores.
    type SharedPersistent: FromZeros;

    /// Returns the keys that it counts by; empty if it is off.
    fn keys(settings: &Self::Settings) -> [Option<KeyKind>; MAX_KEYS];

    /// Returns whether it is on.
    fn is_on(settings: &Self::Settings) -> bool;

    /// Returns the packet fields that it needs beside its keys. Only called if it is on.
    /// [`RequiredFields::TIME`] costs a clock read per packet.
    #[inline(always)]
    fn needs(_: &Self::Settings) -> RequiredFields {
        RequiredFields::NONE
    }

    /// Returns whether packets must be counted in the order of their arrival, across all workers.
    #[inline(always)]
    fn wants_order(_: &Self::Settings) -> bool {
        false
    }

    /// Returns the bytes that it uses of each kind of memory; zero if it is off.
    fn used(settings: &Self::Settings) -> UsedBytes;

    /// Counts packets. Only called if it is on.
    fn measure<P: Packets>(
        settings: &Self::Settings,
        parts: MeasurementMemory<'_, Self>,
        pass: &MeasureContext<'_>,
        packets: &(impl Observed<P> + ?Sized),
    );
}

/// Settings of a measurement that is only switched on or off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoBytes, Immutable)]
#[repr(C)]
pub struct Toggle {
    /// Whether to measure.
    pub on: bool,
    reserved: [u8; 3],
}

impl Toggle {
    /// Off; [`Default`] in constants.
    pub const OFF: Toggle = Toggle { on: false, reserved: [0; 3] };
    /// On.
    pub const ON: Toggle = Toggle { on: true, reserved: [0; 3] };
}

/// Bytes in use of each kind of memory, counted from its start; multiples of eight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsedBytes {
    /// Bytes of [`Measurement::PerCore`].
    pub own: usize,
    /// Bytes of [`Measurement::Persistent`].
    pub persistent: usize,
    /// Bytes of [`Measurement::Shared`].
    pub shared: usize,
    /// Bytes of [`Measurement::SharedPersistent`].
    pub shared_persistent: usize,
}

/// Memory of one measurement. A part whose [`UsedBytes`] size is zero must not be accessed: in the
/// kernel it does not exist.
pub struct MeasurementMemory<'a, M: Measurement> {
    /// Per-core banked memory.
    pub own: &'a mut M::PerCore,
    /// Per-core persistent memory.
    pub persistent: &'a mut M::Persistent,
    /// Banked memory, shared by all cores.
    pub shared: &'a M::Shared,
    /// Persistent memory, shared by all cores.
    pub shared_persistent: &'a M::SharedPersistent,
}

/// Inputs of a measurement beside its settings and the packets.
#[derive(Clone, Copy, Debug)]
pub struct MeasureContext<'a> {
    /// Mode by which signatures become register hashes.
    pub hash: HashMode,
    /// Hash tables.
    pub tabulation: &'a Tabulation,
    /// Whether other cores count in the shared memory at the same time.
    pub sharing: Sharing,
    /// As `sharing`, for per-core memory.
    pub own: Sharing,
    /// Length of a slot of staggered registers, in nanoseconds.
    pub slot_ns: u64,
    /// Index of the open bank, 0 or 1; the other bank belongs to the previous window.
    pub bank: usize,
}
