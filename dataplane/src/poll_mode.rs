//! What poll-mode workers do without packets: an option of theirs, and part of their status.

use serde::{Deserialize, Serialize};

/// What a worker without packets does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PollMode {
    /// Looks again for some microseconds, then waits.
    #[default]
    Adaptive,
    /// Looks again at once, and takes a whole CPU.
    Busy,
    /// Waits at once.
    Interrupt,
}

impl PollMode {
    /// All modes.
    pub const ALL: [PollMode; 3] = [PollMode::Adaptive, PollMode::Busy, PollMode::Interrupt];

    /// The name used in options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PollMode::Adaptive => "adaptive",
            PollMode::Busy => "busy",
            PollMode::Interrupt => "interrupt",
        }
    }
}
