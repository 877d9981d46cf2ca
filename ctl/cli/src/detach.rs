//! `flowgauge detach`: end what a killed run left counting.

use crate::error::Failure;
use clap::Args;
use flowgauge_ctl::output::escaped;
use flowgauge_dataplane::xdp;
use std::path::PathBuf;

/// End what a killed run, or one told to --leave, left counting on network interfaces, and drop its
/// counts.
///
/// A run that is still at work is left alone: stop that one instead.
#[derive(Args)]
pub(crate) struct Detach {
    /// Only on this network interface [default: on all]
    #[arg(short, long, value_name = "IFACE")]
    interface: Option<String>,

    /// Where the run pinned what outlives it
    #[arg(long, value_name = "DIR", default_value = xdp::DIRECTORY)]
    pins: PathBuf,
}

impl Detach {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let ended = xdp::detach(&self.pins, self.interface.as_deref())?;
        if ended.is_empty() {
            println!("nothing was left counting");
        }
        for place in ended {
            println!("{}: no longer counted", escaped(&place.to_string()));
        }
        Ok(())
    }
}
