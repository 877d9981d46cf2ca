//! `flowgauge run`: count live.

use crate::error::Failure;
use crate::measure::measure;
use crate::options::Options;
use crate::value::{self, PortSpec};
use clap::{Args, ValueEnum};
use flowgauge_dataplane::poll::Pace;
use flowgauge_dataplane::poll::port::{memory, pcap};
use flowgauge_dataplane::traffic::{Profile, Sources};
use serde::Deserialize;
use std::time::Duration;

/// Count live, in real time.
///
/// Without a port it counts generated traffic for ten seconds and shows the truth beside every estimate. A read is printed at
/// random times inside a window, and every window when it ends; a window marked * was cut short.
#[derive(Args, Default)]
#[command(after_help = "Examples:
  flowgauge run
  flowgauge run --port memory:burst,flows=50k,rate=500k --window 5s --truth
  flowgauge run --port pcap:trace.pcap --key five-tuple --format json
  flowgauge run --port memory:unique,rate=max --staggered 10s --duration 1m")]
pub(crate) struct Run {
    /// Where to count: poll, in worker threads of this process [default: poll]
    #[arg(long, value_name = "NAME", help_heading = "Traffic", hide_possible_values = true)]
    backend: Option<Backend>,

    /// Where packets come from: pcap:FILE in its own pace, or memory:PROFILE[,OPTION=VALUE]…
    ///
    /// Profiles: unique (every packet a new source), sequential, subnets, zipf, burst. Options: rate=PPS or max, packets=N,
    /// size=BYTES, seed=N, vlan=ID, ipv6, burst=SHARE, period=TIME; for zipf and burst also flows=N and alpha=A.
    #[arg(long, value_name = "PORT", value_parser = value::port, help_heading = "Traffic")]
    port: Option<PortSpec>,

    #[command(flatten)]
    options: Options,
}

#[derive(Clone, Copy, Debug, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Backend {
    /// Worker threads in this process.
    Poll,
}

impl Run {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let Run { backend, port, options } = self;
        let options = Options { backend, port, ..options }.with_config()?;
        let workers = options.workers.unwrap_or(1);
        let Backend::Poll = options.backend.unwrap_or(Backend::Poll);
        match options.port.clone() {
            Some(PortSpec::Pcap(path)) => measure(pcap(&path, workers, Pace::RealTime)?, &options, options.truth),
            Some(PortSpec::Memory(profile)) => measure(memory(profile, workers, Pace::RealTime), &options, options.truth),
            None => {
                let duration = options.duration.or(Some(Duration::from_secs(10)));
                let options = Options { duration, ..options };
                measure(memory(demonstration(), workers, Pace::RealTime), &options, true)
            }
        }
    }
}

/// Skewed traffic from many sources: a plausible link that any machine can count exactly beside it.
fn demonstration() -> Profile {
    Profile { rate: Some(200_000.0), ..Profile::new(Sources::Zipf { flows: 100_000, alpha: 1.0 }) }
}
