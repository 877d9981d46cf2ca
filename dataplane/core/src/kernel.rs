//! The memory that programs in the kernel share with user space.
//!
//! Each CPU has an element of an array: a [`Core`], then two banks, then what lasts. A bank begins
//! with a [`Head`]; behind it each measurement that is on has as much as it
//! [uses](crate::measurement::Used), where the [`Layout`] says. What all CPUs count in together is
//! a [`SharedBanks`] as it is; what of that lasts is an array of its own, which all programs of a
//! run share, with as much of each measurement as it uses.

#[cfg(not(target_arch = "bpf"))]
mod host;

use crate::arrival::Segments;
use crate::counters::Counters;
use crate::list::{MEASUREMENTS, Settings, SharedBank};
use crate::needs::Needs;
use crate::observation::Observation;
use crate::state::BANKS;
use crate::unopened::Unopened;

/// What all CPUs count in together between rotations.
pub type SharedBanks = [SharedBank; BANKS];

/// What is written into the programs' read-only memory. No padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Config {
    /// Length of a slot of staggered registers, in nanoseconds.
    pub slot_ns: u64,
    /// When the kernel's monotonic clock was zero, in nanoseconds since the Unix epoch.
    pub boot_ns: u64,
    /// What to measure and how, as [words](Settings::words).
    pub settings: Settings,
    /// What these settings have to know of packets.
    pub needs: Needs,
    /// What becomes of a packet that was counted.
    pub verdict: u32,
    /// Where it is counted.
    pub layout: Layout,
    /// Whether a program counts packets that leave: not 0 if so.
    pub leaves: u32,
    /// At which interface, as its number in the run.
    pub interface: u32,
    /// No padding.
    pub reserved: [u32; RESERVED],
}

/// Words that make [`Config`] a multiple of eight bytes.
const RESERVED: usize = {
    let words = (size_of::<Settings>() + size_of::<Layout>()) / size_of::<u32>();
    (words + 4) & 1
};

const _: () = {
    let words = size_of::<Settings>() + size_of::<Layout>();
    let rest = 2_usize * size_of::<u64>() + ((RESERVED + 4) * size_of::<u32>());
    assert!(size_of::<Config>() == (words + rest), "no padding");
};

impl Config {
    /// Of default settings.
    pub const DEFAULT: Config = Config {
        slot_ns: 1,
        boot_ns: 0,
        settings: Settings::DEFAULT,
        needs: Needs::NONE,
        verdict: 0,
        layout: Layout::NONE,
        leaves: 0,
        interface: 0,
        reserved: [0; RESERVED],
    };
}

/// Words of what a program knows of a packet.
pub const PACKET_WORDS: usize = size_of::<Observation<Segments>>().div_ceil(size_of::<u64>());

/// What the element of a CPU begins with.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Core {
    /// Index of the bank to count in.
    pub bank: u32,
    /// No padding.
    pub reserved: u32,
    /// The program's own: how a packet came.
    pub arrival: [u64; 4],
    /// The program's own: what it knows of a packet.
    pub packet: [u64; PACKET_WORDS],
}

/// What a bank begins with.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Head {
    /// Packets and bytes.
    pub counters: Counters,
    /// What most frames are that count as non-IP.
    pub unopened: Unopened,
}

/// Where measurements have their parts, by entry of the list, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Layout {
    /// Length of a bank.
    pub bank: u32,
    /// From the beginning of a bank.
    pub own: [u32; MEASUREMENTS],
    /// From the beginning of a CPU's element.
    pub lasting: [u32; MEASUREMENTS],
    /// From the beginning of what all CPUs share and lasts.
    pub shared_lasting: [u32; MEASUREMENTS],
    /// Length of a CPU's element.
    pub core: u32,
    /// Length of what all CPUs share and lasts.
    pub together: u32,
}

impl Layout {
    const NONE: Layout = Layout {
        bank: 0,
        own: [0; MEASUREMENTS],
        lasting: [0; MEASUREMENTS],
        shared_lasting: [0; MEASUREMENTS],
        core: 0,
        together: 0,
    };

    /// Where the first measurement has its part of a bank, whatever the settings.
    pub const FIRST: usize = size_of::<Head>();

    /// Where a bank begins in a CPU's element, of two.
    #[inline(always)]
    #[must_use]
    pub const fn bank(bank: usize, length: u32) -> usize {
        size_of::<Core>() + (bank * (length as usize))
    }
}
