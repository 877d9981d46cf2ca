//! The packet half of a measurement: settings, memory, and what one packet changes there.
//!
//! Each measurement is a folder or a file named after it, with two halves. The half in `mod.rs`
//! implements [`Measurement`]; it is compiled for user space and for the kernel, and runs once per
//! packet. The half in `host.rs` implements [`HostMeasurement`](crate::HostMeasurement): clearing,
//! merging and totals, in user space only. [`list`](crate::list) names all measurements, and makes
//! of the list whatever has to know all of them: settings, banks, loops.
//!
//! A measurement has memory of four kinds: per core or shared by all cores, and banked or
//! persistent. Of banked memory there are two [banks](crate::state::BANKS): packets are counted in
//! one while the other is read and cleared. Persistent memory is kept across windows. Memory that
//! is all zeros is empty. A kind that a measurement does not use is `()`.

use crate::arrival::Packets;
use crate::counter::Sharing;
use crate::hash::{HashMode, Tabulation};
use crate::key::KeyKind;
use crate::needs::Needs;
use crate::observation::Observed;
use core::fmt::Debug;
use zerocopy::{FromZeros, Immutable, IntoBytes};

/// Most keys that one measurement counts by.
pub const MAX_KEYS: usize = 2;

/// A measurement's settings, memory and per-packet update.
pub trait Measurement: Sized {
    /// Name in options and outputs.
    const NAME: &'static str;
    /// Settings, without padding: they are written to the kernel and to pins as bytes.
    type Settings: Copy + Debug + PartialEq + IntoBytes + Immutable;
    /// Settings of a run that asks for nothing.
    const DEFAULT: Self::Settings;

    /// Per core, banked.
    type PerCore: FromZeros;
    /// Per core, persistent.
    type Persistent: FromZeros;
    /// Shared by all cores, banked.
    type Shared: FromZeros;
    /// Shared by all cores, persistent.
    type SharedPersistent: FromZeros;

    /// Returns the keys that it counts by; none if it is off.
    fn keys(settings: &Self::Settings) -> [Option<KeyKind>; MAX_KEYS];

    /// Returns whether it measures anything.
    fn is_on(settings: &Self::Settings) -> bool;

    /// Returns the packet fields that it needs beside its keys, if it is on. [`Needs::TIME`] costs
    /// a clock read per packet.
    #[inline(always)]
    fn needs(_: &Self::Settings) -> Needs {
        Needs::NONE
    }

    /// Returns whether packets have to be counted in the order in which they arrived, across all
    /// workers.
    #[inline(always)]
    fn wants_order(_: &Self::Settings) -> bool {
        false
    }

    /// Returns how many bytes of each kind of memory it uses; none if it is off.
    fn used(settings: &Self::Settings) -> Used;

    /// Counts packets. It is on.
    fn measure<P: Packets>(
        settings: &Self::Settings,
        parts: Parts<'_, Self>,
        pass: &Pass<'_>,
        packets: &(impl Observed<P> + ?Sized),
    );
}

/// Settings of a measurement that is only switched on or off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoBytes, Immutable)]
#[repr(C)]
pub struct OnOff {
    /// Whether to measure.
    pub on: bool,
    reserved: [u8; 3],
}

impl OnOff {
    /// Off; [`Default`] in constants.
    pub const OFF: OnOff = OnOff { on: false, reserved: [0; 3] };
    /// On.
    pub const ON: OnOff = OnOff { on: true, reserved: [0; 3] };
}

/// Bytes in use of each kind of memory, from its start; multiples of eight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Of [`Measurement::PerCore`].
    pub own: usize,
    /// Of [`Measurement::Persistent`].
    pub lasting: usize,
    /// Of [`Measurement::Shared`].
    pub shared: usize,
    /// Of [`Measurement::SharedPersistent`].
    pub shared_lasting: usize,
}

/// Memory of one measurement. A part of which [`Used`] says zero bytes must not be touched: in the
/// kernel it is not there.
pub struct Parts<'a, M: Measurement> {
    /// Per core, banked.
    pub own: &'a mut M::PerCore,
    /// Per core, persistent.
    pub lasting: &'a mut M::Persistent,
    /// Shared by all cores, banked.
    pub shared: &'a M::Shared,
    /// Shared by all cores, persistent.
    pub shared_lasting: &'a M::SharedPersistent,
}

/// Inputs of a measurement beside its settings and the packets.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    /// How signatures become hashes of registers.
    pub hash: HashMode,
    /// Tables of hashes.
    pub tabulation: &'a Tabulation,
    /// Whether other cores count in shared memory.
    pub sharing: Sharing,
    /// As `sharing`, for memory per core.
    pub own: Sharing,
    /// Length of a slot of staggered registers, in nanoseconds.
    pub slot_ns: u64,
    /// Index of the bank that is counted in, 0 or 1; the other one is that of the window before.
    pub bank: usize,
}
