//! Options of `flowgauge run`, and what they resolve to.

use super::outputs::OutputOptions;
use super::switch::Switch;
use super::{Options, first_given};
use crate::config::given::{GivenOption, KnownOptions, fill};
use crate::config::value::{self, CountedDirections, PortSpec, XdpMode};
use crate::config::{Interfaces, RunConfig, Source, Traffic};
use crate::error::{CommandFailure, refuse};
use crate::interfaces;
use clap::{Args, ValueEnum};
use flowgauge_ctl::output::escaped;
use flowgauge_dataplane::MeasurementKind;
use flowgauge_dataplane::xdp::{self, Retention};
use std::path::PathBuf;

/// Count live traffic in real time.
///
/// Prints each window when it ends; * marks an incomplete one. The table fits the width of the
/// terminal; losses are listed in full below the line they belong to.
#[derive(Args, Clone, Debug, Default)]
#[command(after_help = "Examples:
  flowgauge run -i eth1 --window 1m
  flowgauge run -i eth1,eth2 --direction both --adopt
  flowgauge run --port af_xdp:eth1 --cpus 2-5
  flowgauge run --port memory:burst,flows=50k,rate=500k --window 5s --truth
  flowgauge run --port pcap:trace.pcap --key five-tuple --format json
  flowgauge run --backend tofino --address switch:50052 --registers 2048
  flowgauge run --port memory:unique,rate=max --staggered 10s --duration 1m")]
pub(crate) struct Run {
    #[command(flatten)]
    kernel: Kernel,

    /// Backend: xdp (in the kernel), tofino (on a switch), poll (in worker threads of this
    /// process) [default: xdp with an interface, tofino with an address, else poll]
    #[arg(long, value_name = "NAME", help_heading = "Traffic", hide_possible_values = true)]
    backend: Option<Backend>,

    /// Count the packets of this port: af_xdp:IFACE, pcap:FILE, memory:PROFILE or dpdk:DEVICE
    ///
    /// In full: af_xdp:IFACE:QUEUES[,OPTION=VALUE]…, pcap:FILE at its own pace,
    /// memory:PROFILE[,OPTION=VALUE]…, or dpdk:DEVICE[,OPTION=VALUE]….
    ///
    /// af_xdp takes every packet that arrives at an interface's receive queues, by default at all
    /// of them, AWAY FROM THIS HOST: use it for mirror ports and for interfaces that serve nothing
    /// else; to count a host's own traffic use -i. Packets of queues beyond QUEUES reach the host
    /// and are not counted. Options: mode=copy or zero-copy (by default zero-copy if the driver
    /// supports it), xdp=native or skb, frames=N for each queue, busy-poll, and from-host for an
    /// interface with addresses, which is rejected otherwise. Requires root, or CAP_NET_RAW,
    /// CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON.
    ///
    /// Profiles: unique (every packet a new source), sequential, subnets, zipf, burst, attack (a
    /// flood from many sources to one destination in the last ten seconds of every minute).
    /// Options: rate=PPS or max, packets=N, size=BYTES, seed=N, vlan=ID, ipv6, burst=SHARE,
    /// period=TIME; for zipf, burst and attack also flows=N and alpha=A; for attack also
    /// share=SHARE of the packets (0.3), every=TIME (1m) and lasting=TIME (10s).
    ///
    /// DPDK devices: a PCI address, or a virtual device with its options, such as
    /// net_af_xdp0,iface=eth1. Each of --workers polls a receive queue and keeps a core busy. DPDK
    /// traffic does not end by itself: --duration or Ctrl-C ends the run.
    #[arg(long, value_name = "PORT", value_parser = value::port, help_heading = "Traffic")]
    pub(crate) port: Option<PortSpec>,

    /// Quoted EAL arguments for a dpdk: port [default: --in-memory]
    #[arg(long, value_name = "ARGUMENTS", allow_hyphen_values = true, help_heading = "Traffic")]
    eal: Option<String>,

    #[command(flatten)]
    pub(crate) options: Options,

    #[command(flatten)]
    switch: Switch,
}

/// Options of the kernel backend.
#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
struct Kernel {
    /// Count the packets on this network interface, in the kernel (XDP, TCX)
    ///
    /// Several interfaces (repeat the option, or separate them by commas) are counted each and in
    /// total; 'any' stands for all, as the pattern '*' does. Requires root, or CAP_BPF, CAP_NET_ADMIN
    /// and CAP_PERFMON.
    #[arg(short, long, value_name = "IFACE", value_parser = value::interface, value_delimiter = ',', help_heading = "Traffic")]
    interface: Vec<String>,

    /// Direction in which packets cross the interface: ingress, egress, both [default: ingress;
    /// both for delays]
    #[arg(long, value_name = "WAY", value_parser = value::direction, help_heading = "Traffic")]
    direction: Option<CountedDirections>,

    /// Hook of the program: auto, native (in the driver), tcx (works beside any XDP program,
    /// slower, Linux 6.6), clsact (as tcx, on any kernel), skb (generic, slower), offload (in
    /// hardware) [default: auto]
    ///
    /// auto uses the first that works: on hardware native, tcx (before Linux 6.6 clsact) and skb; on
    /// virtual devices (veth, bridge, macvlan, bond, tun) and hardware that merges packets (rx-gro-hw,
    /// LRO) tcx or clsact, native and skb. It logs the hook and the reason if that is not the first
    /// (with -v always). Any other mode is used as given, or the run fails. Egress packets are counted
    /// by tcx or clsact.
    ///
    /// On veth, native slows the TCP of the peer, because it turns off segmentation offload there. It
    /// also turns off the merging by hardware.
    ///
    /// If the kernel merges packets (GRO), or a virtual peer sends them unsegmented (TSO), tcx and
    /// clsact count the packets of the wire, and skb the merged ones.
    #[arg(long, value_name = "MODE", value_parser = value::xdp_mode, help_heading = "Traffic")]
    xdp_mode: Option<XdpMode>,

    /// Resume counting state left by a killed run or by --leave
    ///
    /// No packet is lost. Starts from zero if there is no such state.
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = "Traffic")]
    adopt: Option<bool>,

    /// Leave the program counting on the interface at the end, for the next run with --adopt
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = "Traffic")]
    leave: Option<bool>,

    /// Directory for pinned programs and maps [default: /sys/fs/bpf/flowgauge]
    #[arg(long, value_name = "DIR", help_heading = "Traffic")]
    pins: Option<PathBuf>,
}

/// Backend that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Backend {
    /// Kernel, on a network interface.
    Xdp,
    /// Worker threads in this process.
    Poll,
    /// Tofino switch, controlled over BFRuntime.
    Tofino,
}

impl KnownOptions for Run {
    type OfProcess = OutputOptions;
}

impl Run {
    /// Resolves these options.
    pub(crate) fn from_given(given: &[GivenOption]) -> Result<RunConfig, CommandFailure> {
        let mut run = Run::default();
        fill(&mut run, given)?;
        run.resolve(given)
    }

    pub(crate) fn resolve(self, given: &[GivenOption]) -> Result<RunConfig, CommandFailure> {
        if self.options.lateness.is_some() {
            let problem = "--lateness is for `flowgauge replay`; live packets are counted when they arrive; remove it";
            return refuse(problem);
        }
        match self.source(given) {
            Ok(source) => self.options.resolve(source, given),
            // Report contradictions among the options before a missing source.
            Err(problem) => self.options.check(&Traffic::GENERATED, given).and(Err(problem)),
        }
    }

    /// Returns whether the options name a source.
    pub(crate) fn has_source(&self, given: &[GivenOption]) -> bool {
        self.port.is_some()
            || self.backend.is_some()
            || self.names_interface()
            || first_given::<Switch>(given).is_some()
    }

    fn names_interface(&self) -> bool {
        !self.kernel.interface.is_empty() || self.kernel.asked().is_some()
    }

    fn source(&self, given: &[GivenOption]) -> Result<Source, CommandFailure> {
        let Run { kernel, backend, port, eal, switch, options } = self;
        let (on_interface, on_switch) =
            (self.names_interface(), first_given::<Switch>(given).is_some());
        let usual = match (on_interface, on_switch) {
            (true, _) => Backend::Xdp,
            (_, true) => Backend::Tofino,
            _ => Backend::Poll,
        };
        let backend = backend.unwrap_or(usual);
        if on_switch && backend != Backend::Tofino {
            return refuse(
                "--address and other switch options are for --backend tofino; remove them, or remove -i and --backend",
            );
        }
        match backend {
            Backend::Xdp => kernel.source(port.is_some(), options).map(Source::Interfaces),
            Backend::Tofino => {
                let switch = switch.source(on_interface, port.is_some(), options)?;
                Ok(Source::Switch(Box::new(switch)))
            }
            Backend::Poll if on_interface => refuse(
                "-i and other interface options are not for --backend poll; give a --port instead",
            ),
            Backend::Poll if eal.is_some() && !matches!(port, Some(PortSpec::Dpdk(_))) => {
                refuse("--eal is for --port dpdk:DEVICE; remove it")
            }
            Backend::Poll => {
                let port = port.clone().ok_or_else(no_source)?;
                Ok(Source::Port { port, eal: eal.clone() })
            }
        }
    }
}

impl Kernel {
    /// Returns the first option that was given and only applies to an interface.
    fn asked(&self) -> Option<&'static str> {
        [
            ("--xdp-mode", self.xdp_mode.is_some()),
            ("--direction", self.direction.is_some()),
            ("--adopt", self.adopt == Some(true)),
            ("--leave", self.leave == Some(true)),
            ("--pins", self.pins.is_some()),
        ]
        .into_iter()
        .find_map(|(option, is_given)| is_given.then_some(option))
    }

    fn source(&self, has_port: bool, options: &Options) -> Result<Interfaces, CommandFailure> {
        if self.interface.is_empty() {
            let option = self.asked().unwrap_or("--backend xdp");
            return refuse(if has_port {
                format!(
                    "{option} is for -i and not for --port; remove it, or give -i instead of --port"
                )
            } else {
                format!("{option} needs a network interface; give it with -i")
            });
        }
        if has_port {
            return refuse("-i and --port cannot be combined; remove one of them");
        }
        if options.truth.unwrap_or_default() {
            return refuse(
                "--truth needs memory for every flow, which the kernel does not have; remove it with -i",
            );
        }
        if options.workers.is_some() {
            return refuse(
                "--workers has no effect with -i, where every CPU counts the packets it receives; remove it",
            );
        }
        for (index, interface) in self.interface.iter().enumerate() {
            if interface.is_empty() || self.interface[..index].contains(interface) {
                return refuse(format!(
                    "-i has the interface '{interface}' twice, or an empty name"
                ));
            }
        }
        // Answers travel in the other direction.
        let usual = if options.measures(MeasurementKind::Delay) {
            CountedDirections::Both
        } else {
            CountedDirections::default()
        };
        let directions = self.direction.unwrap_or(usual);
        let mode = self.xdp_mode.and_then(|XdpMode(mode)| mode);
        if let Some(mode) =
            mode.filter(|mode| mode.is_xdp() && directions == CountedDirections::Egress)
        {
            let problem = format!(
                "--xdp-mode {} does not see egress packets; use tcx or clsact with --direction egress, or remove --xdp-mode",
                mode.name()
            );
            return refuse(problem);
        }
        let (adopt, leave) = (self.adopt == Some(true), self.leave == Some(true));
        let must_keep = adopt || leave || self.pins.is_some();
        let samples = options.outputs.delay_samples.is_some();
        if samples && must_keep {
            return refuse(
                "--delay-samples cannot outlive the process; remove it, or remove --adopt, --leave and --pins",
            );
        }
        let directory = self.pins.clone().unwrap_or_else(|| xdp::DIRECTORY.into());
        let keep = (!samples).then_some(Retention { directory, adopt, leave });
        Ok(Interfaces { names: self.interface.clone(), directions, mode, keep, must_keep })
    }
}

/// Returns the failure for a run without a source, which lists ways to name one.
fn no_source() -> CommandFailure {
    let up: Vec<String> =
        interfaces::names_up().into_iter().map(|name| escaped(&name).into_owned()).collect();
    let up = if up.is_empty() {
        String::new()
    } else {
        format!("; interfaces that are up: {}", up.join(", "))
    };
    CommandFailure::Usage(format!(
        "nothing to count: give an interface with -i IFACE, a port with --port, or a switch with --address, on the command line, in the \
         configuration file or in the environment (FLOWGAUGE_INTERFACE){up}; `flowgauge` alone counts generated traffic"
    ))
}
