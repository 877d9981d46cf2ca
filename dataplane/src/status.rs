//! State of a dataplane for the operator, apart from its counts.

use crate::place::CountingPoint;
use serde::{Deserialize, Serialize};

/// State of a dataplane. Fields that do not apply to a backend are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The worker threads, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerStatus>,
    /// Name of the CPU instruction set that workers count distinct flows with.
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
    /// Thread ID, as in `top -H`; 0 until it has started, or if it is not a thread of its own.
    pub thread: u32,
    /// The CPU it is pinned to; `None` if it may run anywhere.
    pub pinned: Option<usize>,
    /// Behaviour without packets.
    pub poll_mode: PollMode,
    /// Recent load; `None` before the first sample or rotation.
    pub load: Option<WorkerLoad>,
}

/// Behaviour of a worker that finds no packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PollMode {
    /// Polls for some microseconds more, then sleeps until packets arrive.
    #[default]
    Adaptive,
    /// Polls without pause; takes a whole CPU.
    Busy,
    /// Sleeps at once until packets arrive.
    Interrupt,
}

impl PollMode {
    /// All modes.
    pub const ALL: [PollMode; 3] = [PollMode::Adaptive, PollMode::Busy, PollMode::Interrupt];

    /// Returns the name used in options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PollMode::Adaptive => "adaptive",
            PollMode::Busy => "busy",
            PollMode::Interrupt => "interrupt",
        }
    }
}

/// Load of a worker between two samples or rotations, at least a second apart unless it has just
/// started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerLoad {
    /// End of the interval, in nanoseconds since the Unix epoch.
    pub end_ns: u64,
    /// Length of the interval, in nanoseconds: the sum of the next three fields.
    pub lasted_ns: u64,
    /// Time spent receiving and counting packets, in nanoseconds; for consecutive batches, up to
    /// the end of the first empty poll.
    pub with_packets_ns: u64,
    /// Time spent in polls without packets, in nanoseconds.
    pub polling_ns: u64,
    /// Time spent asleep, in nanoseconds.
    pub asleep_ns: u64,
    /// CPU time of the thread, in nanoseconds; `None` if unknown.
    pub cpu_ns: Option<u64>,
    /// Packets counted.
    pub packets: u64,
    /// Polls that found packets; each is a batch. Larger batches take less time per packet.
    pub batches: u64,
    /// CPU it ran on at the end of the interval; `None` if unknown.
    pub cpu: Option<usize>,
}

/// A program in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramStatus {
    /// Counting point.
    #[serde(flatten)]
    pub place: CountingPoint,
    /// Hook of the interface that it is attached to: `native`, `skb`, `offload`, `tcx` or `clsact`;
    /// `None` if none was requested and the interface does not exist yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
    /// Why the program is at this hook; `None` if it was requested, is native XDP, or was adopted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook_reason: Option<String>,
    /// `fused` if one program counts with all measurements, `separate` if each has a program of its
    /// own; `None` if distinct flows alone are measured, or the kernel does not show the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<String>,
    /// Kernel ID, as in `bpftool prog`; `None` if the kernel does not report it.
    pub program: Option<u32>,
    /// Whether it is attached to its interface.
    pub attached: bool,
}

/// A switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchStatus {
    /// Address of its BFRuntime server.
    pub address: String,
    /// Name of the program on it.
    pub program: String,
    /// Whether it is connected, and its tables are known to match the desired state.
    pub connected: bool,
    /// Pipes that count.
    pub pipes: usize,
}
