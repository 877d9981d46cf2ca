//! `flowgauge detach`: removes programs that a killed run left attached.

use crate::error::CommandFailure;
use crate::output::print;
use clap::Args;
use flowgauge_ctl::output::escaped;
use flowgauge_dataplane::xdp;
use std::io::Write;
use std::path::PathBuf;

/// Remove the programs that a killed run, or one with --leave, left counting on network interfaces,
/// and discard their counts.
///
/// Does not touch a run that is still active; stop that one instead.
#[derive(Args)]
pub(crate) struct Detach {
    /// Only detach from this network interface [default: all]
    #[arg(short, long, value_name = "IFACE")]
    interface: Option<String>,

    /// Directory of the run's pinned programs and maps
    #[arg(long, value_name = "DIR", default_value = xdp::DIRECTORY)]
    pins: PathBuf,
}

impl Detach {
    pub(crate) fn execute(self) -> Result<(), CommandFailure> {
        let ended = xdp::detach(&self.pins, self.interface.as_deref())?;
        print(|out| {
            if ended.is_empty() {
                return writeln!(out, "no program was left attached");
            }
            let mut places = ended.iter().map(ToString::to_string);
            places.try_for_each(|place| writeln!(out, "{}: detached", escaped(&place)))
        })
    }
}
