//! `flowgauge replay`: count a capture in its own time.

use crate::error::Failure;
use crate::measure::measure;
use crate::options::Options;
use clap::Args;
use flowgauge_dataplane::poll::Pace;
use flowgauge_dataplane::poll::port::{pcap, pcap_reader};
use std::path::PathBuf;

/// Count a capture file as fast as it can be read, in the capture's own time.
///
/// Windows and reads follow the packets' timestamps, so that hours replay in seconds and every run gives the same result. Reads
/// pcap (microseconds and nanoseconds, either byte order) and pcapng, with Ethernet, raw IP, Linux cooked (v1 and v2) and
/// BSD loopback links. A damaged file is counted up to the damage; then a message says where it broke, and the exit code is 1.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge replay trace.pcap --truth
  flowgauge replay trace.pcapng --window 1m --read-every never --key five-tuple --format csv
  zcat trace.pcap.gz | flowgauge replay - --window 5s")]
pub(crate) struct Replay {
    /// The capture file; - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    options: Options,
}

impl Replay {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let options = self.options.with_config()?;
        let workers = options.workers.unwrap_or(1);
        let ports = if self.file.as_os_str() == "-" {
            pcap_reader(std::io::stdin(), "standard input", workers, Pace::Trace)
        } else {
            pcap(&self.file, workers, Pace::Trace)?
        };
        measure(ports, &options, options.counts_truth())
    }
}
