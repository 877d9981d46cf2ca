//! `flowgauge run`: count live.

use crate::agent::{self, Source};
use crate::config::Configuration;
use crate::error::Failure;
use crate::measure::{measure, measure_live};
use crate::options::{Backend, Options};
use crate::switch::Switch;
use crate::value::{self, Directions, PortSpec, XdpMode};
use clap::{ArgMatches, Args};
use flowgauge_ctl::output::escaped;
use flowgauge_dataplane::poll::Pace;
#[cfg(feature = "dpdk")]
use flowgauge_dataplane::poll::port::dpdk;
use flowgauge_dataplane::poll::port::{af_xdp, memory, pcap};
use flowgauge_dataplane::traffic::{Profile, Sources};
use flowgauge_dataplane::xdp::{self, Keep, Xdp};
use flowgauge_dataplane::{MeasurementKind, Place};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Count live, in real time.
///
/// A window is printed when it ends; one marked * was cut short. A table fits the terminal; losses are told in full below the line they belong to.
#[derive(Args, Default)]
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

    /// Where to count: xdp, in the kernel, tofino, on a switch, or poll, in worker threads of this process [default: xdp with an
    /// interface, tofino with an address, else poll]
    #[arg(long, value_name = "NAME", help_heading = "Traffic", hide_possible_values = true)]
    backend: Option<Backend>,

    /// Where packets come from: af_xdp:IFACE, pcap:FILE, memory:PROFILE or dpdk:DEVICE
    ///
    /// In full: af_xdp:IFACE:QUEUES[,OPTION=VALUE]…, pcap:FILE in its own pace, memory:PROFILE[,OPTION=VALUE]…, or
    /// dpdk:DEVICE[,OPTION=VALUE]….
    ///
    /// af_xdp takes every packet that arrives at an interface's receive queues, by default at all of them, AWAY FROM THIS HOST: it
    /// is for mirror ports and for interfaces that serve nothing else; to count beside a host's own traffic use -i. Packets of
    /// queues beyond QUEUES go to the host and are not counted. Options: mode=copy or zero-copy (by default zero-copy if the driver
    /// has it), xdp=native or skb, frames=N for each queue, busy-poll, and from-host for an interface with addresses, which
    /// is refused otherwise. It takes root or CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON.
    ///
    /// Profiles: unique (every packet a new source), sequential, subnets, zipf, burst, attack (a flood from many sources to one destination
    /// in the last ten seconds of every minute). Options: rate=PPS or max, packets=N, size=BYTES, seed=N, vlan=ID, ipv6, burst=SHARE,
    /// period=TIME; for zipf, burst and attack also flows=N and alpha=A; for attack also share=SHARE of the packets (0.3), every=TIME (1m)
    /// and lasting=TIME (10s).
    ///
    /// DPDK's devices: a PCI address, or one made in software with its options, such as net_af_xdp0,iface=eth1. Each of --workers
    /// polls a receive queue and keeps a core busy. They have no end: --duration or Ctrl-C ends the run.
    #[arg(long, value_name = "PORT", value_parser = value::port, help_heading = "Traffic")]
    port: Option<PortSpec>,

    /// DPDK's own arguments for a dpdk: port, in quotes [default: --in-memory]
    #[arg(long, value_name = "ARGUMENTS", allow_hyphen_values = true, help_heading = "Traffic")]
    eal: Option<String>,

    #[command(flatten)]
    switch: Switch,

    #[command(flatten)]
    options: Options,
}

/// Options that only the kernel has a use for.
#[derive(Args, Default)]
#[group(skip)]
struct Kernel {
    /// Count what crosses this network interface, in the kernel (XDP, TCX)
    ///
    /// Several are counted apart and together, by repeating the option or with commas. It takes root or CAP_BPF, CAP_NET_ADMIN and
    /// CAP_PERFMON. For delays and reordering at several places it takes CAP_SYS_ADMIN as well.
    #[arg(short, long, value_name = "IFACE", value_delimiter = ',', help_heading = "Traffic")]
    interface: Vec<String>,

    /// Which way packets cross the interface: ingress, egress or both [default: ingress, for delays both]
    #[arg(long, value_name = "WAY", value_parser = value::direction, help_heading = "Traffic")]
    direction: Option<Directions>,

    /// Hook in which the interface runs the program: auto, native (in the driver), tcx (beside any XDP program, slower, from Linux 6.6 on), clsact
    /// (as tcx, on any kernel), skb (generic, slower) or offload (on the card) [default: auto]
    ///
    /// auto takes the first that works of native, tcx (before Linux 6.6 clsact) and skb, and says so if that is not native. Any other
    /// mode is the one that is used, or the run ends with an error. Packets that leave are counted by tcx or clsact.
    ///
    /// Where the kernel merges packets (GRO), or a virtual peer sends them unsegmented (TSO), tcx and clsact count the packets of the
    /// wire, and skb the merged ones.
    #[arg(long, value_name = "MODE", value_parser = value::xdp_mode, help_heading = "Traffic")]
    xdp_mode: Option<XdpMode>,

    /// Go on with what a killed run, or one told to --leave, left counting
    ///
    /// No packet is lost. If nothing was left, counting begins anew.
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = "Traffic")]
    adopt: Option<bool>,

    /// At the end leave the program counting on the interface, for the next run with --adopt
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = "Traffic")]
    leave: Option<bool>,

    /// Where to pin what outlives this process [default: /sys/fs/bpf/flowgauge]
    #[arg(long, value_name = "DIR", help_heading = "Traffic")]
    pins: Option<PathBuf>,
}

impl Run {
    pub(crate) fn execute(mut self, given: &ArgMatches) -> Result<(), Failure> {
        let configuration = Configuration::read::<Run>(given)?;
        self.options.given = configuration.fill(&mut self, None)?;
        self.go_on(given, configuration)
    }

    fn go_on(self, given: &ArgMatches, configuration: Configuration) -> Result<(), Failure> {
        if configuration.file.is_some() || self.interfaces().iter().any(|interface| agent::is_pattern(interface)) {
            return agent::run(given, configuration);
        }
        self.options.configured.set("", configuration.effective(None));
        self.start()
    }

    /// Without a command: what the environment names or else ten seconds of generated traffic in windows of one, with the truth beside every
    /// estimate.
    pub(crate) fn demonstrate(given: &ArgMatches) -> Result<(), Failure> {
        let mut run = Run::default();
        let configuration = Configuration::read::<Run>(given)?;
        run.options.given = configuration.fill(&mut run, None)?;
        if configuration.file.is_none() && !run.has_source() {
            run.port = Some(PortSpec::Memory(demonstration()));
            let options = &mut run.options;
            options.duration = options.duration.or(Some(Duration::from_secs(10)));
            options.window = options.window.or(Some(Duration::from_secs(1)));
            options.truth = Some(true);
        }
        run.go_on(given, configuration)
    }

    /// Whether it is said what to count.
    pub(crate) fn has_source(&self) -> bool {
        self.port.is_some() || self.backend.is_some() || self.names_interface() || self.options.first_given::<Switch>().is_some()
    }

    fn names_interface(&self) -> bool {
        !self.kernel.interface.is_empty() || self.kernel.is_asked()
    }

    /// Interfaces, or patterns of their names.
    pub(crate) fn interfaces(&self) -> &[String] {
        &self.kernel.interface
    }

    /// Names of interfaces without which nothing is counted.
    pub(crate) fn needed_interfaces(&self) -> Vec<&str> {
        match &self.port {
            Some(PortSpec::AfXdp(description)) => vec![&description.interface],
            _ => self.kernel.interface.iter().map(String::as_str).collect(),
        }
    }

    /// Counts at this interface alone.
    pub(crate) fn count_at(&mut self, interface: String) {
        self.kernel.interface = vec![interface];
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Which options were given, by the names of their fields.
    pub(crate) fn set_given(&mut self, given: Vec<String>) {
        self.options.given = given;
    }

    /// Counts as one of the sources of a run.
    pub(crate) fn set_source(&mut self, source: Arc<Source>) {
        self.options.source = Some(source);
    }

    /// Counts, with all that was given.
    pub(crate) fn start(self) -> Result<(), Failure> {
        if self.options.lateness.is_some() {
            let problem =
                "--lateness is for captures that are replayed; live packets have the time at which they come; leave it out";
            return Err(Failure::Usage(problem.to_owned()));
        }
        let on_interface = self.names_interface();
        let Run { kernel, backend, port, eal, switch, mut options } = self;
        options.check()?;
        let workers = options.workers.unwrap_or(1);
        let on_switch = options.first_given::<Switch>().is_some();
        let usual = match (on_interface, on_switch) {
            (true, _) => Backend::Xdp,
            (_, true) => Backend::Tofino,
            _ => Backend::Poll,
        };
        options.backend = backend.unwrap_or(usual);
        if on_switch && !options.on_switch() {
            let problem =
                "--address and the options that go with it are for --backend tofino; leave them out, or leave out -i and --backend";
            return Err(Failure::Usage(problem.to_owned()));
        }
        match options.backend {
            Backend::Xdp => return kernel.run(port.is_some(), options),
            Backend::Tofino => return switch.run(on_interface, port.is_some(), &options.with_hash(false, || None)?),
            Backend::Poll if on_interface => {
                return Err(Failure::Usage(
                    "--backend poll has no use for -i and the options that go with it; give it a --port".to_owned(),
                ));
            }
            Backend::Poll => {}
        }
        if eal.is_some() && !port.as_ref().is_some_and(PortSpec::is_dpdk) {
            return Err(Failure::Usage("--eal is for --port dpdk:DEVICE; leave it out".to_owned()));
        }
        // What comes from a file or a generator comes again, and so does its result.
        let live = port.as_ref().is_some_and(PortSpec::is_live);
        let options = options.with_hash(live, || None)?;
        match port {
            Some(PortSpec::AfXdp(description)) => measure(af_xdp(&description, options.workers)?, &options, options.counts_truth()),
            Some(PortSpec::Pcap(path)) => {
                options.check_order()?;
                measure(pcap(&path, workers, Pace::RealTime)?, &options, options.counts_truth())
            }
            Some(PortSpec::Memory(profile)) => measure(memory(profile, workers, Pace::RealTime), &options, options.counts_truth()),
            #[cfg(not(feature = "dpdk"))]
            Some(PortSpec::Dpdk(device)) => Err(Failure::Usage(format!("dpdk:{device}: {}", value::NO_DPDK))),
            #[cfg(feature = "dpdk")]
            Some(PortSpec::Dpdk(device)) => measure(dpdk(&device, eal.as_deref(), workers)?, &options, options.counts_truth()),
            None => Err(no_source()),
        }
    }
}

impl Kernel {
    /// Whether an option was given that says something about an interface.
    fn is_asked(&self) -> bool {
        self.xdp_mode.is_some() || self.direction.is_some() || self.adopts() || self.leaves() || self.pins.is_some()
    }

    fn adopts(&self) -> bool {
        self.adopt.unwrap_or_default()
    }

    fn leaves(&self) -> bool {
        self.leave.unwrap_or_default()
    }

    /// Counts on network interfaces.
    fn run(self, has_port: bool, options: Options) -> Result<(), Failure> {
        let usage = |problem: &str| Err(Failure::Usage(problem.to_owned()));
        if self.interface.is_empty() {
            return usage("the kernel counts on a network interface; name it with -i");
        }
        if has_port {
            return usage("give either an interface (-i) or a --port, not both");
        }
        if options.counts_truth() {
            return usage("--truth needs memory for every flow, which the kernel's counters have not; leave it out with -i");
        }
        if options.workers.is_some() {
            return usage("--workers is of no use with -i: every CPU counts what it receives");
        }
        // Answers come from the other side.
        let usual = if options.measures(MeasurementKind::Delay) { Directions::Both } else { Directions::default() };
        let directions = self.direction.unwrap_or(usual);
        let options = Options { knows_direction: directions == Directions::Both, ..options };
        let mut places: Vec<Place> = Vec::new();
        for interface in &self.interface {
            for direction in directions.all() {
                let place = Place { interface: interface.clone(), direction };
                if interface.is_empty() || places.contains(&place) {
                    return Err(Failure::Usage(format!("-i names '{interface}' twice, or names nothing")));
                }
                places.push(place);
            }
        }
        let mode = self.xdp_mode.and_then(|XdpMode(mode)| mode);
        if let Some(mode) = mode.filter(|mode| mode.is_xdp() && directions == Directions::Egress) {
            let problem = format!(
                "--xdp-mode {} sees no packets that leave; with --direction egress use tcx or clsact, or leave it out",
                mode.name()
            );
            return Err(Failure::Usage(problem));
        }
        let samples = options.settings().delay.samples;
        if samples && (self.adopts() || self.leaves() || self.pins.is_some()) {
            return usage("--delay-samples ends with this process; leave it out, or leave out --adopt, --leave and --pins");
        }
        let pins = if samples { None } else { self.keep()? };
        let kept = || pins.as_ref().filter(|keep| keep.adopt).and_then(|keep| xdp::kept_key(&keep.directory, &places));
        let options = options.with_hash(true, kept)?;
        let slot_ns = options.slot_ns();
        let kept = xdp::Options { mode, slot_ns, pins, ..xdp::Options::new(options.settings()) };
        measure_live(Xdp::at(places, kept), &options)
    }

    /// Where programs and counts are kept for the next run. Without a BPF file system they end with this one, which only those who
    /// asked for more must hear as an error, and others need not hear at all.
    fn keep(&self) -> Result<Option<Keep>, Failure> {
        let (adopt, leave) = (self.adopts(), self.leaves());
        let directory = self.pins.clone().unwrap_or_else(|| xdp::DIRECTORY.into());
        match xdp::supported(&directory) {
            Ok(()) => Ok(Some(Keep { directory, adopt, leave })),
            Err(error) if adopt || leave || self.pins.is_some() => Err(error.into()),
            Err(error) => {
                tracing::info!("if this process is killed, its counts end with it: {error}");
                Ok(None)
            }
        }
    }
}

/// Skewed traffic from many sources: a plausible link that any machine can count exactly beside it.
/// Says how to name what to count.
pub(crate) fn no_source() -> Failure {
    let up: Vec<String> = agent::interfaces_that_are_up().into_iter().map(|name| escaped(&name).into_owned()).collect();
    let up = if up.is_empty() { String::new() } else { format!("; interfaces that are up: {}", up.join(", ")) };
    Failure::Usage(format!(
        "there is nothing to count: name an interface with -i IFACE, a port with --port, or a switch with --address, on the command line, in the \
         configuration file or in the environment (FLOWGAUGE_INTERFACE){up}; `flowgauge` alone counts generated traffic"
    ))
}

fn demonstration() -> Profile {
    Profile { rate: Some(200_000.0), ..Profile::new(Sources::Zipf { flows: 100_000, alpha: 1.0 }) }
}
