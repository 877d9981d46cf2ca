//! Behaviour of poll-mode workers when no packet is ready: an option of workers, and part of their
//! status.

use serde::{Deserialize, Serialize};

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
