//! `flowgauge top`: shows the runs on this machine on the terminal, as their windows end.
//!
//! `figure` has the figures of a status, `drawn` collects the statuses of runs, `tiles` names what
//! the first screen shows of them, `view` draws them, `numbers` lists all of them, `text` formats
//! them, and `screen` handles keys and time. All of them need the feature `top`.

#[cfg(feature = "top")]
mod drawn;
#[cfg(feature = "top")]
mod figure;
#[cfg(feature = "top")]
mod numbers;
#[cfg(feature = "top")]
mod screen;
#[cfg(feature = "top")]
mod text;
#[cfg(feature = "top")]
mod tiles;
#[cfg(feature = "top")]
mod view;

use crate::error::{CommandFailure, fail};
use clap::Args;
use flowgauge_ctl::names::NameSources;
#[cfg(feature = "top")]
use flowgauge_ctl::names::Names;
use std::io::{self, IsTerminal};

/// Watch the runs on this machine on the terminal, as their windows end.
///
/// Shows whether the run is healthy, or what is wrong and for how long; the main numbers with their
/// intervals, their course over the last windows and the change against what is usual; and the
/// largest flows. Finds runs like `flowgauge status`; they need no option for it. Keys: ? lists
/// them, Tab and Shift-Tab select a run or source, i an interface and direction, the arrows and Page
/// Up and Down scroll, s sorts by size, change or name, r selects a ranking, a lists all numbers, p
/// pauses, q quits.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge run -i eth1 > /dev/null &
  flowgauge top --names hosts,dns")]
pub(crate) struct Top {
    /// Name addresses: hosts (/etc/hosts), dns (asked in the background) and CSV files of prefixes,
    /// separated by commas
    #[arg(long, value_name = "SOURCES")]
    names: Option<NameSources>,
}

impl Top {
    pub(crate) fn execute(self) -> Result<(), CommandFailure> {
        if !io::stdout().is_terminal() {
            let problem =
                "top needs a terminal; use `flowgauge status`, with --format json for programs";
            return fail(problem);
        }
        #[cfg(feature = "top")]
        {
            let names = Names::open(&self.names.unwrap_or_default());
            screen::show(names.map_err(CommandFailure::Failed)?)
        }
        #[cfg(not(feature = "top"))]
        fail(crate::config::value::not_built("top"))
    }
}
