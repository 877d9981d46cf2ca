//! `flowgauge top`: runs of this machine on the terminal, as their windows end.

#[cfg(feature = "top")]
mod drawn;
#[cfg(feature = "top")]
mod screen;
#[cfg(feature = "top")]
mod view;

use crate::error::Failure;
use clap::Args;
use std::io::{self, IsTerminal};

/// Watch the runs on this machine on the terminal, as their windows end.
///
/// Shows every number with its bounds and its course over the last windows, the largest flows,
/// losses by cause, and what is wrong. Runs are found as by `flowgauge status`, and need no option
/// for it. Keys: Tab and Shift-Tab choose a run, the arrows and Page Up and Down move, p holds the
/// screen still, q ends.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge run -i eth1 > /dev/null &
  flowgauge top")]
pub(crate) struct Top {}

impl Top {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        if !io::stdout().is_terminal() {
            let problem = "top is for a terminal; `flowgauge status` prints the same once, and --format json for programs";
            return Err(Failure::Failed(problem.to_owned()));
        }
        #[cfg(feature = "top")]
        return screen::show();
        #[cfg(not(feature = "top"))]
        Err(Failure::Failed(
            "this build has no `top`; build flowgauge with `--features top`".to_owned(),
        ))
    }
}
