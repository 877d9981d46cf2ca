//! `flowgauge top`: shows the runs on this machine on the terminal, as their windows end.
//!
//! `drawn` collects the statuses of runs, `view` draws them, and `screen` handles keys and time.
//! All three need the feature `top`.

#[cfg(feature = "top")]
mod drawn;
#[cfg(feature = "top")]
mod screen;
#[cfg(feature = "top")]
mod view;

use crate::error::CommandFailure;
use clap::Args;
use std::io::{self, IsTerminal};

/// Watch the runs on this machine on the terminal, as their windows end.
///
/// Shows every figure with its bounds and its course over the last windows, the largest flows,
/// losses by cause, and problems. Finds runs like `flowgauge status`; they need no option for it.
/// Keys: Tab and Shift-Tab select a run, the arrows and Page Up and Down scroll, p pauses, q quits.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge run -i eth1 > /dev/null &
  flowgauge top")]
pub(crate) struct Top {}

impl Top {
    pub(crate) fn execute(self) -> Result<(), CommandFailure> {
        if !io::stdout().is_terminal() {
            let problem =
                "top needs a terminal; use `flowgauge status`, with --format json for programs";
            return Err(CommandFailure::Failed(problem.to_owned()));
        }
        #[cfg(feature = "top")]
        return screen::show();
        #[cfg(not(feature = "top"))]
        Err(CommandFailure::Failed(crate::value::not_built("top")))
    }
}
