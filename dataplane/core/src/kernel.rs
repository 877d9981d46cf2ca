//! Layout of the memory that eBPF programs share with user space.
//!
//! Three array maps, created by the loader and mapped into user space:
//!
//! - Per core: each CPU has one element, a [`Core`] followed by two banks and the persistent
//!   memory. A bank starts with a [`Head`]; after it each measurement that is on has as many bytes
//!   as it [uses](crate::measurement::UsedBytes), at the offset in [`MemoryLayout`].
//! - Shared, banked: [`SharedBanks`] as it is.
//! - Shared, persistent: an array that all programs of a run share, with as many bytes of each
//!   measurement as it uses.
//!
//! Programs are made for one counting point, or for a set of them ([`Config::is_set`]), each of
//! which has these arrays.
//!
//! A packet's first program stores its arrival and its fields in [`Core`], from where the programs
//! of the measurements read them. Settings and layout reach the programs as [`Config`], in
//! read-only memory. The loader computes the layout in the submodule `host`; the programs are in
//! `ebpf/src`, and `BPF.md` has the rules that their code follows.

#[cfg(not(target_arch = "bpf"))]
mod host;

use crate::arrival::Segments;
use crate::counters::Counters;
use crate::filter::fields::MatchFields;
use crate::list::{MEASUREMENTS, Settings, SharedBank};
use crate::needs::RequiredFields;
use crate::observation::Observation;
use crate::state::BANKS;
use crate::unopened::CommonEtherType;

/// Banked memory that all CPUs share.
pub type SharedBanks = [SharedBank; BANKS];

/// Configuration in the programs' read-only memory, written by the loader. No padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Config {
    /// Length of a slot of staggered registers, in nanoseconds.
    pub slot_ns: u64,
    /// Offset of the kernel's monotonic clock: its zero, in nanoseconds since the Unix epoch.
    pub boot_ns: u64,
    /// Settings of all measurements, as [words](Settings::words).
    pub settings: Settings,
    /// Packet fields that these settings need.
    pub needs: RequiredFields,
    /// Return value of the program for a packet that was counted.
    pub verdict: u32,
    /// Offsets of the memory in which packets are counted.
    pub layout: MemoryLayout,
    /// Direction of the packets that a program counts: non-zero if they leave.
    pub leaves: u32,
    /// Non-zero if only packets that the bank's filter admits are counted.
    pub filtered: u32,
    /// Non-zero if the programs count for all members of a set, each in arrays of its own; see
    /// [`CurrentMember`].
    pub is_set: u32,
    /// Fills up to a multiple of eight bytes, so that there is no padding.
    pub reserved: [u32; RESERVED],
}

/// Words that make [`Config`] a multiple of eight bytes.
const RESERVED: usize = {
    let words = (size_of::<Settings>() + size_of::<MemoryLayout>()) / size_of::<u32>();
    (words + 5) & 1
};

const _: () = {
    let words = size_of::<Settings>() + size_of::<MemoryLayout>();
    let rest = 2_usize * size_of::<u64>() + ((RESERVED + 5) * size_of::<u32>());
    assert!(size_of::<Config>() == (words + rest), "no padding");
};

impl Config {
    /// Configuration of default settings.
    pub const DEFAULT: Config = Config {
        slot_ns: 1,
        boot_ns: 0,
        settings: Settings::DEFAULT,
        needs: RequiredFields::NONE,
        verdict: 0,
        layout: MemoryLayout::NONE,
        leaves: 0,
        filtered: 0,
        is_set: 0,
        reserved: [0; RESERVED],
    };
}

/// Words of 64 bits that hold the observation of a packet.
pub const PACKET_WORDS: usize = Observation::<Segments>::BYTES_IN_KERNEL.div_ceil(size_of::<u64>());

/// Member of a set whose packet a CPU counts. The program that is attached at the member writes it
/// before the packet's first program runs.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CurrentMember {
    /// Number in the set.
    pub number: u32,
    /// As in [`Config`].
    pub leaves: u32,
    /// Fills up two cache lines, because each CPU writes its own.
    pub reserved: [u32; 30],
}

impl CurrentMember {
    /// Returns the member with this number in the set.
    pub const fn new(number: u32, leaves: bool) -> Self {
        CurrentMember { number, leaves: leaves as u32, reserved: [0; 30] }
    }
}

/// Start of a CPU's element.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Core {
    /// Index of the bank to count in.
    pub bank: u32,
    /// Aligns what follows.
    pub reserved: u32,
    /// MatchFields by which the filter decides; used by programs only.
    pub fields: MatchFields,
    /// Arrival of the packet; used by programs only.
    pub arrival: [u64; 4],
    /// Observation of the packet; used by programs only.
    pub packet: [u64; PACKET_WORDS],
}

/// Start of a bank.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Head {
    /// Packets and bytes.
    pub counters: Counters,
    /// Most frequent EtherType of frames that count as non-IP.
    pub unopened: CommonEtherType,
}

/// Offsets and lengths of the measurements' memory, in bytes; arrays are indexed by position in the
/// list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct MemoryLayout {
    /// Length of a bank.
    pub bank: u32,
    /// Offsets from the start of a bank.
    pub own: [u32; MEASUREMENTS],
    /// Offsets from the start of a CPU's element.
    pub persistent: [u32; MEASUREMENTS],
    /// Offsets from the start of the shared persistent memory.
    pub shared_persistent: [u32; MEASUREMENTS],
    /// Length of a CPU's element.
    pub core: u32,
    /// Length of the shared persistent memory.
    pub together: u32,
}

impl MemoryLayout {
    const NONE: MemoryLayout = MemoryLayout {
        bank: 0,
        own: [0; MEASUREMENTS],
        persistent: [0; MEASUREMENTS],
        shared_persistent: [0; MEASUREMENTS],
        core: 0,
        together: 0,
    };

    /// Offset of the first measurement's memory in a bank; it does not depend on settings.
    pub const FIRST: usize = size_of::<Head>();

    /// Returns the offset of a bank, 0 or 1, in a CPU's element.
    #[inline(always)]
    #[must_use]
    pub const fn bank(bank: usize, length: u32) -> usize {
        size_of::<Core>() + (bank * (length as usize))
    }
}
