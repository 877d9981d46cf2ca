//! `flowgauge run`: count live.

use crate::error::Failure;
use crate::measure::{measure, measure_live};
use crate::options::Options;
use crate::value::{self, PortSpec};
use clap::{Args, ValueEnum};
use flowgauge_dataplane::poll::Pace;
use flowgauge_dataplane::poll::port::{memory, pcap};
use flowgauge_dataplane::traffic::{Profile, Sources};
use flowgauge_dataplane::xdp::{self, Xdp};
use serde::Deserialize;
use std::time::Duration;

/// Count live, in real time.
///
/// Without a port it counts generated traffic for ten seconds and shows the truth beside every estimate. A read is printed at
/// random times inside a window, and every window when it ends; a window marked * was cut short.
#[derive(Args, Default)]
#[command(after_help = "Examples:
  flowgauge run
  flowgauge run -i eth1 --window 1m
  flowgauge run --port memory:burst,flows=50k,rate=500k --window 5s --truth
  flowgauge run --port pcap:trace.pcap --key five-tuple --format json
  flowgauge run --port memory:unique,rate=max --staggered 10s --duration 1m")]
pub(crate) struct Run {
    /// Count what arrives at this network interface, in the kernel (XDP); takes root or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON
    #[arg(short, long, value_name = "IFACE", help_heading = "Traffic")]
    interface: Option<String>,

    /// Where the interface runs the program: native (in the driver), skb (generic, slower, works everywhere) or offload (on the
    /// card); there is no silent fall-back [default: native]
    #[arg(long, value_name = "MODE", value_parser = value::xdp_mode, help_heading = "Traffic")]
    xdp_mode: Option<xdp::Mode>,

    /// Where to count: xdp, in the kernel, or poll, in worker threads of this process [default: xdp with an interface, else poll]
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
    /// The kernel, on a network interface.
    Xdp,
    /// Worker threads in this process.
    Poll,
}

impl Run {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let Run { interface, xdp_mode, backend, port, options } = self;
        let options = Options { interface, xdp_mode, backend, port, ..options }.with_config()?;
        let workers = options.workers.unwrap_or(1);
        let on_interface = options.interface.is_some() || options.xdp_mode.is_some();
        match options.backend.unwrap_or(if on_interface { Backend::Xdp } else { Backend::Poll }) {
            Backend::Xdp => return on_kernel(&options),
            Backend::Poll if on_interface => {
                return Err(Failure::Usage("--backend poll has no use for -i and --xdp-mode; give it a --port".to_owned()));
            }
            Backend::Poll => {}
        }
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

/// Counts on a network interface.
fn on_kernel(options: &Options) -> Result<(), Failure> {
    let usage = |problem: &str| Err(Failure::Usage(problem.to_owned()));
    let Some(interface) = &options.interface else {
        return usage("the kernel counts on a network interface; name it with -i");
    };
    if options.port.is_some() {
        return usage("give either an interface (-i) or a --port, not both");
    }
    if options.truth {
        return usage("--truth needs memory for every flow, which the kernel's counters have not; leave it out with -i");
    }
    if options.staggered.is_some() {
        return usage("--staggered is not offered on an interface yet; use windows");
    }
    if options.workers.is_some() {
        return usage("--workers is of no use with -i: every CPU counts what it receives");
    }
    measure_live(Xdp::on_interface(interface, options.xdp_mode.unwrap_or_default(), options.settings()), options)
}

/// Skewed traffic from many sources: a plausible link that any machine can count exactly beside it.
fn demonstration() -> Profile {
    Profile { rate: Some(200_000.0), ..Profile::new(Sources::Zipf { flows: 100_000, alpha: 1.0 }) }
}
