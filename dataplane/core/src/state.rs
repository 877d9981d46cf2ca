//! A core's whole state and what one frame does to it.

use crate::cardinality::{self, Cardinality, Mode, Staggered};
use crate::counters::Counters;
use crate::frame::Frame;
use crate::hash::{HashMode, Tabulation};
use crate::key::KeyKind;
use crate::link::Link;
use crate::parse::{Packet, network};

/// Banks of every windowed measurement: one is written while the other is read and cleared.
pub const BANKS: usize = 2;

/// What to measure and how, one field a measurement. Constant while a dataplane runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Settings {
    /// Distinct flows.
    pub cardinality: cardinality::Settings,
}

/// Settings and installed tables, as every update needs them.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// What to measure and how.
    pub settings: Settings,
    /// The tables of [`HashMode::Tabulated`].
    pub tabulation: &'a Tabulation,
}

impl Settings {
    /// As [`Default`], for statics.
    pub const DEFAULT: Settings = Settings { cardinality: cardinality::Settings::DEFAULT };
}

impl Context<'_> {
    /// The hash of a packet's key.
    #[inline(always)]
    pub fn hash<F: Frame + ?Sized>(&self, mode: HashMode, key: KeyKind, frame: &F, packet: &Packet<'_>) -> u32 {
        let crc = key.crc32(frame, packet);
        match mode {
            HashMode::Crc32 => crc,
            HashMode::Tabulated => self.tabulation.hash(crc),
        }
    }
}

/// Everything counted between two rotations.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Bank {
    /// Packets and bytes.
    pub counters: Counters,
    /// Distinct flows.
    pub cardinality: Cardinality,
}

impl Bank {
    /// An empty bank.
    #[must_use]
    pub const fn new() -> Self {
        Bank {
            counters: Counters { bytes: 0, ipv4: 0, ipv6: 0, non_ip: 0, truncated: 0, bad_header: 0 },
            cardinality: Cardinality::new(),
        }
    }

    /// Adds what another core counted in the same window.
    pub fn merge(&mut self, other: &Bank, settings: &Settings) {
        self.counters.merge(&other.counters);
        self.cardinality.merge(&other.cardinality, settings.cardinality.precision);
    }

    /// Makes the bank empty again.
    pub fn clear(&mut self, settings: &Settings) {
        self.counters = Counters::default();
        self.cardinality.clear(settings.cardinality.precision);
    }
}

/// The state of one core: plain integers, valid when zeroed, no pointers.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct State {
    /// What rotates.
    pub banks: [Bank; BANKS],
    /// Distinct flows without windows.
    pub staggered: Staggered,
}

impl State {
    /// An empty state.
    #[must_use]
    pub const fn new() -> Self {
        State { banks: [Bank::new(), Bank::new()], staggered: Staggered::new() }
    }

    /// Counts one frame in a bank.
    ///
    /// `wire_length` is the frame's length on the wire, which a capture may have cut; `slot` is the current slot of staggered
    /// registers (see [`Staggered`]) and ignored otherwise.
    #[inline(always)]
    pub fn record<F: Frame + ?Sized>(
        &mut self,
        bank: usize,
        context: &Context<'_>,
        link: Link,
        frame: &F,
        wire_length: u32,
        slot: u32,
    ) {
        #[allow(clippy::indexing_slicing, reason = "masked to the number of banks")]
        let bank = &mut self.banks[bank & (BANKS - 1)];
        record(bank, &mut self.staggered, context, link, frame, wire_length, slot);
    }
}

/// A core's state together with what its reader tells it: one element of the array that the kernel's programs share with user
/// space.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Core {
    /// Index of the bank to count in.
    pub bank: u32,
    /// What is counted.
    pub state: State,
}

/// Counts one frame in a bank that is not held together with the rest of its state.
#[inline(always)]
pub fn record<F: Frame + ?Sized>(
    bank: &mut Bank,
    staggered: &mut Staggered,
    context: &Context<'_>,
    link: Link,
    frame: &F,
    wire_length: u32,
    slot: u32,
) {
    bank.counters.bytes = bank.counters.bytes.wrapping_add(u64::from(wire_length));
    let packet = match network(frame, link) {
        Ok(packet) => packet,
        Err(reject) => return bank.counters.reject(reject),
    };
    match packet {
        Packet::V4(_) => {
            bank.counters.ipv4 = bank.counters.ipv4.wrapping_add(1);
            measure(bank, staggered, context, frame, &packet, slot);
        }
        Packet::V6(_) => {
            bank.counters.ipv6 = bank.counters.ipv6.wrapping_add(1);
            measure(bank, staggered, context, frame, &packet, slot);
        }
    }
}

/// Every measurement of one packet. Inlined for each family, so that nothing has to be told apart twice.
#[inline(always)]
fn measure<F: Frame + ?Sized>(
    bank: &mut Bank,
    staggered: &mut Staggered,
    context: &Context<'_>,
    frame: &F,
    packet: &Packet<'_>,
    slot: u32,
) {
    let cardinality::Settings { mode, key, hash, precision } = context.settings.cardinality;
    match mode {
        Mode::Off => {}
        Mode::Windowed => bank.cardinality.update(context.hash(hash, key, frame, packet), precision),
        Mode::Staggered => staggered.update(context.hash(hash, key, frame, packet), precision, slot),
    }
}
