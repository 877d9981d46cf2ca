//! What a dataplane tells of itself: for an operator, beside its counts.

use crate::place::Place;
use crate::poll_mode::PollMode;
use serde::{Deserialize, Serialize};

/// How a dataplane is doing. What a backend has not is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The worker threads, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerStatus>,
    /// The CPU's instructions that workers count distinct flows with, by their name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// The programs in the kernel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<ProgramStatus>,
    /// The switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<SwitchStatus>,
}

/// A worker thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// The system's number of the thread, as in `top -H`; 0 until it has started, and where threads
    /// have none.
    pub thread: u32,
    /// The CPU it is pinned to; `None` if it may run anywhere.
    pub pinned: Option<usize>,
    /// What it does without packets.
    pub poll_mode: PollMode,
    /// What it did lately; `None` before the first read or rotation.
    pub load: Option<Load>,
}

/// What a worker did between two reads or rotations, at least a second apart unless it has just
/// started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// When that time ended, in nanoseconds since the Unix epoch.
    pub end_ns: u64,
    /// How long it was, in nanoseconds: the sum of the three that follow.
    pub lasted_ns: u64,
    /// Time spent receiving and counting packets, in nanoseconds; of several batches in a row up to
    /// the end of the poll that found no more.
    pub with_packets_ns: u64,
    /// Time spent looking for packets in vain, in nanoseconds.
    pub polling_ns: u64,
    /// Time spent waiting for packets, in nanoseconds.
    pub asleep_ns: u64,
    /// CPU time of the thread, in nanoseconds; `None` where that is not known.
    pub cpu_ns: Option<u64>,
    /// Packets counted.
    pub packets: u64,
    /// Polls that found packets, each a batch. The larger batches are, the less time a packet
    /// takes.
    pub batches: u64,
    /// The CPU it ran on at the end of it; `None` where that is not known.
    pub cpu: Option<usize>,
}

/// A program in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramStatus {
    /// Where it counts.
    #[serde(flatten)]
    pub place: Place,
    /// In which of the interface's hooks it is: `native`, `skb`, `offload`, `tcx` or `clsact`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
    /// The kernel's number of it, as in `bpftool prog`; `None` if the kernel does not tell.
    pub program: Option<u32>,
    /// Whether it is attached to its interface.
    pub attached: bool,
}

/// A switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchStatus {
    /// Its BFRuntime server.
    pub address: String,
    /// The program's name on it.
    pub program: String,
    /// Whether there is a connection, and the switch is known to hold what it was told.
    pub connected: bool,
    /// Pipes that count.
    pub pipes: usize,
}
