//! `flowgauge generate`: writes generated traffic to a capture file, or sends it or a capture from
//! an interface.

use crate::config::value::{self, Rate};
use crate::error::{CommandFailure, fail, refuse};
use crate::output::new_file::NewFile;
use crate::output::progress;
use crate::run::signals::end_on_signal;
use clap::Args;
use flowgauge_ctl::output::{counted, escaped, grouped};
use flowgauge_dataplane::Error;
use flowgauge_dataplane::capture::{Writer, link_type};
use flowgauge_dataplane::poll::Pace;
#[cfg(feature = "dpdk")]
use flowgauge_dataplane::poll::port::DpdkSender;
use flowgauge_dataplane::poll::port::{FrameSender, Outlet, Ports, pcap, pcap_reader};
use flowgauge_traffic::delay::{DelayProfile, DelayTraffic, RoundTrip};
use flowgauge_traffic::kernel::LiveSender;
use flowgauge_traffic::reorder::{PrefixTruth, ReorderProfile, ReorderTraffic};
use flowgauge_traffic::send::{Sent, Transmission};
use flowgauge_traffic::{Generator, Profile, ProfileError, memory};
use indicatif::ProgressBar;
use std::fmt::Display;
use std::io::{self, BufWriter, IntoInnerError, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Packets of a profile that gives no number.
const DEFAULT_PACKETS: u64 = 132_000;
/// Packets generated at a time.
const BATCH_PACKETS: usize = 64;
const PROGRESS_INTERVAL_PACKETS: u64 = 1 << 16;

/// Write generated traffic to a capture file (pcap, nanoseconds), or send it or a capture from an
/// interface.
///
/// The same profile gives the same packets every time. The default is 132,000 packets, which are 22
/// minutes at the default 100 packets per second, as in the W-HLL thesis; attack ends with its
/// first flood, by default after a minute.
///
/// Profiles: unique (every packet a new source), sequential, subnets, zipf, burst, attack (a flood
/// from many sources to one destination in the last ten seconds of every minute). Options:
/// rate=PPS, packets=N, size=BYTES, seed=N, vlan=ID, ipv6, burst=SHARE, period=TIME; for zipf,
/// burst and attack also flows=N and alpha=A; for attack also share=SHARE of the packets (0.3),
/// every=TIME (1m) and lasting=TIME (10s).
///
/// delay generates requests and their responses. Its shapes are log-uniform (by default 1.25 M
/// requests at 1 M/s, 40 % of them answered after 0.1 to 100 ms), bimodal, heavy-tail (Pareto) and
/// conversations (connections from the DNS query to the FIN). Options: shape=SHAPE, rate=PPS,
/// requests=N, answered=SHARE, min=TIME, max=TIME, loss=SHARE, flows=N, alpha=A. reorder generates
/// flows of many prefixes, some of which reorder packets. Options: prefixes=N, heavy=N,
/// share=SHARE, depth=N, late=SHARE, loss=SHARE, flows=N, alpha=A, packets=N, rate=PPS. Both accept
/// seed=N, size=BYTES, vlan=ID, ipv6 and timestamps, and are written to files only. --truth writes
/// their true values.
///
/// Packets sent from an interface bypass queueing disciplines and firewalls, and each is sent at
/// its own time. The last line reports the exact number sent; the exit code is 1 if the interface
/// dropped packets. af_xdp:IFACE requires root, or CAP_NET_RAW; live:IFACE requires root, or
/// CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON.
///
/// live:IFACE reaches the highest rates of a profile: the kernel generates the packets (Linux
/// 5.18), in bursts of about 20 ms at a limited rate. A veth device accepts them while its peer
/// runs a native XDP program, as with run -i IFACE --xdp-mode native, or merges packets (GRO).
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge generate unique --to thesis.pcap
  flowgauge generate zipf,flows=200k,alpha=1.2,packets=2M,rate=100k --to zipf.pcap
  flowgauge generate burst,packets=1M,rate=10k --to - | flowgauge replay - --truth
  flowgauge generate delay,shape=conversations,requests=50k --to rtt.pcap --truth rtt.csv
  flowgauge generate reorder,prefixes=500,heavy=10,depth=5 --to late.pcap --truth late.csv
  flowgauge generate zipf,packets=10M --rate max --to af_xdp:eth1
  flowgauge generate unique,packets=100M --rate max --to live:eth1
  flowgauge generate --pcap trace.pcap --to af_xdp:eth1")]
pub(crate) struct Generate {
    /// Traffic to generate: PROFILE[,OPTION=VALUE]…
    #[arg(value_name = "PROFILE", value_parser = traffic, required_unless_present = "pcap", conflicts_with = "pcap")]
    profile: Option<Traffic>,

    /// Send the packets of this capture file instead (- for standard input), with their original
    /// gaps
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,

    /// Destination: a file (- for standard output), or af_xdp:IFACE, live:IFACE or dpdk:DEVICE to
    /// send
    #[arg(long, value_name = "FILE|af_xdp:IFACE|live:IFACE|dpdk:DEVICE", value_parser = target)]
    to: Target,

    /// Quoted EAL arguments for a dpdk: device [default: --in-memory]
    #[arg(long, value_name = "ARGUMENTS", allow_hyphen_values = true)]
    eal: Option<String>,

    /// Packets per second, or max for as many as possible; overrides the profile or the capture
    #[arg(long, value_name = "PPS", value_parser = value::rate)]
    rate: Option<Rate>,

    /// Write the true values of delay or reorder to this CSV file: one line per request or per
    /// prefix
    #[arg(long, value_name = "FILE", conflicts_with = "pcap")]
    truth: Option<PathBuf>,

    /// Replace existing files
    #[arg(long)]
    force: bool,
}

/// Destination of generated frames.
#[derive(Clone)]
pub enum Target {
    /// Capture file.
    File(PathBuf),
    /// Interface, by AF_XDP.
    Interface(String),
    /// Interface, by live frames of the kernel.
    Live(String),
    /// DPDK device.
    Device(String),
}

/// Traffic that can be generated.
#[derive(Clone)]
enum Traffic {
    /// Packets that are a function of their number.
    Profile(Profile),
    Delay(DelayProfile),
    Reorder(ReorderProfile),
}

impl Traffic {
    fn set_rate(&mut self, rate: Option<f64>) -> Result<(), CommandFailure> {
        let given = match self {
            Traffic::Profile(profile) if profile.attack.is_some() && rate.is_none() => {
                return refuse("attack needs a rate to time its floods; give --rate a number");
            }
            Traffic::Profile(profile) => {
                profile.rate = rate;
                return Ok(());
            }
            Traffic::Delay(profile) => &mut profile.rate,
            Traffic::Reorder(profile) => &mut profile.rate,
        };
        *given = rate.ok_or_else(|| {
            CommandFailure::Usage("a capture needs timestamps; give --rate a number".to_owned())
        })?;
        Ok(())
    }
}

fn traffic(text: &str) -> Result<Traffic, String> {
    let name = text.split(',').next().unwrap_or_default().trim();
    let parsed = match name {
        "delay" => text.parse().map(Traffic::Delay),
        "reorder" => text.parse().map(Traffic::Reorder),
        _ => text.parse().map(Traffic::Profile),
    };
    parsed.map_err(|error: ProfileError| error.to_string())
}

pub(crate) fn target(text: &str) -> Result<Target, String> {
    match text.split_once(':') {
        Some(("af_xdp", "")) => Err("name an interface, such as af_xdp:eth1".to_owned()),
        Some(("af_xdp", interface)) => Ok(Target::Interface(interface.to_owned())),
        Some(("live", "")) => Err("name an interface, such as live:eth1".to_owned()),
        Some(("live", interface)) => Ok(Target::Live(interface.to_owned())),
        Some(("dpdk", device)) => value::dpdk(device).map(Target::Device),
        _ => Ok(Target::File(text.into())),
    }
}

impl Target {
    /// Opens the destination for sending.
    ///
    /// # Errors
    /// [`Error`] if it is a file, or cannot be opened.
    pub fn outlet(&self, eal: Option<&str>) -> Result<Box<dyn Outlet>, Error> {
        let refused =
            |port: String, problem: &str| Err(Error::Port { port, problem: problem.to_owned() });
        match self {
            Target::Interface(interface) => Ok(Box::new(FrameSender::new(interface)?)),
            Target::Live(interface) => Ok(Box::new(LiveSender::new(interface)?)),
            #[cfg(feature = "dpdk")]
            Target::Device(device) => Ok(Box::new(DpdkSender::new(device, eal)?)),
            #[cfg(not(feature = "dpdk"))]
            Target::Device(device) => {
                let _ = eal;
                refused(format!("dpdk:{device}"), value::NO_DPDK)
            }
            Target::File(path) => {
                refused(path.display().to_string(), "is a file; name a port, such as af_xdp:eth1")
            }
        }
    }
}

impl Generate {
    pub(crate) fn execute(mut self) -> Result<(), CommandFailure> {
        if let (Some(traffic), Some(Rate(rate))) = (&mut self.profile, self.rate) {
            traffic.set_rate(rate)?;
        }
        if self.eal.is_some() && !matches!(self.to, Target::Device(_)) {
            return refuse("--eal is for --to dpdk:DEVICE; remove it");
        }
        let sequence = matches!(self.profile, Some(Traffic::Delay(_) | Traffic::Reorder(_)));
        if self.truth.is_some() && !sequence {
            return refuse(
                "--truth is for delay and reorder; for other profiles use `flowgauge replay --truth`",
            );
        }
        match (self.to.clone(), self.profile.clone(), self.pcap.clone()) {
            (Target::Live(interface), _, Some(_)) => refuse(format!(
                "live: only sends generated packets; send a capture with --to af_xdp:{interface}"
            )),
            (Target::Interface(_) | Target::Live(_) | Target::Device(_), profile, capture) => {
                if self.force {
                    return refuse(
                        "--force is for files; remove it when sending from an interface",
                    );
                }
                let profile = match profile {
                    Some(Traffic::Profile(profile)) => Some(profile),
                    Some(Traffic::Delay(_) | Traffic::Reorder(_)) => {
                        return refuse(
                            "delay and reorder can only be written to files; write one with --to FILE, then send it with --pcap FILE",
                        );
                    }
                    None => None,
                };
                self.send(self.to.outlet(self.eal.as_deref())?, profile, capture)
            }
            (Target::File(_), _, Some(_)) => {
                refuse("--pcap is for sending; to get a file with its packets, copy it")
            }
            (Target::File(_), Some(Traffic::Profile(profile)), _) if profile.rate.is_none() => {
                refuse("a capture needs timestamps; give rate= a number")
            }
            (Target::File(path), Some(traffic), _) => self.write(&path, traffic),
            (Target::File(_), None, None) => refuse("give a PROFILE, or --pcap FILE"),
        }
    }

    fn write(&self, path: &Path, traffic: Traffic) -> Result<(), CommandFailure> {
        if self.truth.as_deref() == Some(path) {
            return refuse("--to and --truth name the same file; give two");
        }
        // Check this before anything is written.
        if let Some(truth) = self.truth.as_deref().filter(|truth| !self.force && truth.exists()) {
            return Err(exists(&truth.display().to_string()));
        }
        let total = match &traffic {
            Traffic::Profile(profile) => Some(packets(profile)),
            Traffic::Reorder(profile) => Some(profile.packets),
            Traffic::Delay(_) => None,
        };
        let capture = Capture::new(Output::create(path, self.force)?, total)?;
        let truth =
            self.truth.as_deref().map(|path| Output::create(path, self.force)).transpose()?;
        match traffic {
            Traffic::Profile(profile) => write_profile(capture, &profile),
            Traffic::Delay(profile) => write_delay(capture, profile, truth),
            Traffic::Reorder(profile) => write_reorder(capture, profile, truth),
        }
    }

    fn send(
        &self,
        sender: Box<dyn Outlet>,
        profile: Option<Profile>,
        capture: Option<PathBuf>,
    ) -> Result<(), CommandFailure> {
        let interrupt = end_on_signal(None);
        // Use the times of the capture unless a rate was given.
        let (pace, rate) =
            self.rate.map_or((Pace::RealTime, None), |Rate(rate)| (Pace::Open, rate));
        let is_interrupted = || interrupt.is_triggered();
        let interface = sender.interface().to_owned();
        match (profile, capture) {
            (Some(profile), _) => {
                let packets = Some(packets(&profile));
                let transmission = Transmission::new(sender, None, &is_interrupted);
                let ports = memory(Profile { packets, ..profile }, 1, Pace::RealTime);
                transmit(ports, &interface, |ports, progress| transmission.send(ports, progress))
            }
            (None, Some(path)) => {
                let is_piped = path.as_os_str() == "-";
                let ports = if is_piped {
                    pcap_reader(io::stdin(), "standard input", 1, pace)?
                } else {
                    pcap(&path, 1, pace)?
                };
                let transmission = Transmission::new(sender, rate, &is_interrupted);
                transmit(ports, &interface, |ports, progress| transmission.send(ports, progress))
            }
            (None, None) => refuse("give a PROFILE, or --pcap FILE"),
        }
    }
}

/// Sends the packets of ports, with a progress bar, and reports how many were sent.
fn transmit<P>(
    ports: Ports<P>,
    interface: &str,
    send: impl FnOnce(Ports<P>, &mut dyn FnMut()) -> Result<Sent, Error>,
) -> Result<(), CommandFailure> {
    let source = Arc::clone(&ports.source);
    let bar = progress::bar(source.progress().map(|(_, total)| total), ports.interface.clone());
    let sent = send(ports, &mut || bar.set_position(source.progress().map_or(0, |(done, _)| done)));
    bar.finish_and_clear();
    report(sent?, interface, &source.warnings())
}

/// Returns the number of packets to generate. By default an attack lasts until its first flood has
/// ended.
fn packets(profile: &Profile) -> u64 {
    let first_flood = || {
        profile
            .attack
            .zip(profile.rate)
            .map(|(attack, rate)| (attack.every_ns as f64 / 1e9 * rate).ceil() as u64)
    };
    profile.packets.or_else(first_flood).unwrap_or(DEFAULT_PACKETS)
}

fn write_profile(mut capture: Capture, profile: &Profile) -> Result<(), CommandFailure> {
    let packets = packets(profile);
    let generator = Generator::new(profile.clone());
    let (length, mut frames) =
        (generator.template().len(), generator.template().repeat(BATCH_PACKETS));
    for first in (0..packets).step_by(BATCH_PACKETS) {
        generator.fill_all(first, &mut frames);
        for (index, frame) in (first..packets).zip(frames.chunks_exact(length)) {
            capture.write(profile.timestamp(index), frame)?;
        }
    }
    capture.finish()
}

fn write_delay(
    mut capture: Capture,
    profile: DelayProfile,
    mut truth: Option<Output>,
) -> Result<(), CommandFailure> {
    if let Some(truth) = &mut truth {
        truth.line(RoundTrip::COLUMNS)?;
    }
    let mut traffic = DelayTraffic::new(profile);
    let mut round_trips = Vec::new();
    while let Some((at, frame)) = traffic.advance(&mut |round_trip| round_trips.push(round_trip)) {
        capture.write(at, frame)?;
        for round_trip in round_trips.drain(..) {
            truth.as_mut().map_or(Ok(()), |truth| truth.line(round_trip))?;
        }
    }
    capture.finish()?;
    truth.map_or(Ok(()), Output::finish)
}

fn write_reorder(
    mut capture: Capture,
    profile: ReorderProfile,
    truth: Option<Output>,
) -> Result<(), CommandFailure> {
    let mut traffic = ReorderTraffic::new(profile);
    while let Some((at, frame)) = traffic.advance() {
        capture.write(at, frame)?;
    }
    capture.finish()?;
    let Some(mut truth) = truth else { return Ok(()) };
    truth.line(PrefixTruth::COLUMNS)?;
    traffic.truth().iter().try_for_each(|prefix| truth.line(prefix))?;
    truth.finish()
}

/// File or standard output.
struct Output {
    name: String,
    inner: BufWriter<NewFile>,
}

/// Writes what is buffered, and completes the file.
fn finish(buffered: BufWriter<NewFile>) -> io::Result<()> {
    buffered.into_inner().map_err(IntoInnerError::into_error)?.finish()
}

impl Output {
    fn create(path: &Path, force: bool) -> Result<Output, CommandFailure> {
        let name = path.display().to_string();
        let file = if name == "-" { NewFile::stdout() } else { NewFile::create(path, force) };
        let inner = file.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => exists(&name),
            _ => CommandFailure::Failed(format!("cannot create {name}: {error}")),
        })?;
        Ok(Output { name, inner: BufWriter::with_capacity(1 << 18, inner) })
    }

    fn line(&mut self, line: impl Display) -> Result<(), CommandFailure> {
        writeln!(self.inner, "{line}").map_err(|error| unwritten(&self.name, error))
    }

    fn finish(self) -> Result<(), CommandFailure> {
        let Output { name, inner } = self;
        finish(inner).map_err(|error| unwritten(&name, error))
    }
}

fn exists(name: &str) -> CommandFailure {
    CommandFailure::Failed(format!("{name} exists; replace it with --force"))
}

fn unwritten(name: &str, error: io::Error) -> CommandFailure {
    match name {
        "-" => CommandFailure::output(error),
        _ => CommandFailure::Failed(format!("cannot write {name}: {error}")),
    }
}

/// Capture file being written.
struct Capture {
    name: String,
    writer: Writer<BufWriter<NewFile>>,
    packets: u64,
    bar: ProgressBar,
}

impl Capture {
    fn new(Output { name, inner }: Output, total: Option<u64>) -> Result<Capture, CommandFailure> {
        let writer =
            Writer::new(inner, link_type::ETHERNET).map_err(|error| unwritten(&name, error))?;
        Ok(Capture { bar: progress::bar(total, name.clone()), name, writer, packets: 0 })
    }

    fn write(&mut self, at: u64, frame: &[u8]) -> Result<(), CommandFailure> {
        if self.packets.is_multiple_of(PROGRESS_INTERVAL_PACKETS) {
            self.bar.set_position(self.packets);
        }
        self.packets += 1;
        self.writer
            .write(at, frame, frame.len() as u32)
            .map_err(|error| unwritten(&self.name, error))
    }

    fn finish(self) -> Result<(), CommandFailure> {
        let Capture { name, writer, bar, .. } = self;
        bar.finish_and_clear();
        writer.finish().and_then(finish).map_err(|error| unwritten(&name, error))
    }
}

/// Reports how many packets were sent. Packets that the interface dropped are a failure.
fn report(sent: Sent, interface: &str, warnings: &[String]) -> Result<(), CommandFailure> {
    let Sent { packets, bytes, cut, left_out, dropped, lasted } = sent;
    let seconds = lasted.as_secs_f64();
    let rate = grouped((packets as f64 / seconds.max(1e-9)).round() as u64);
    let mut line = format!(
        "{}: {} sent in {seconds:.2} s, {}, {rate} packets/s; the interface dropped {}",
        interface,
        counted(packets, "packet"),
        counted(bytes, "byte"),
        grouped(dropped),
    );
    for (packets, what) in [
        (cut, "are truncated in the capture"),
        (left_out, "skipped, which this interface cannot send"),
    ] {
        if packets > 0 {
            line += &format!("; {} {what}", grouped(packets));
        }
    }
    writeln!(io::stdout(), "{}", escaped(&line)).map_err(CommandFailure::output)?;
    problem(&sent, interface, warnings).map_or(Ok(()), fail)
}

/// Returns why a transmission is incomplete, if it is.
fn problem(sent: &Sent, interface: &str, warnings: &[String]) -> Option<String> {
    let dropped = || {
        format!(
            "{interface} dropped {} of {}; send fewer with --rate",
            grouped(sent.dropped),
            counted(sent.packets, "packet")
        )
    };
    warnings.first().cloned().or_else(|| (sent.dropped > 0).then(dropped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_the_interface_dropped_are_a_failure() {
        let sent = Sent { packets: 1_000_000, ..Sent::default() };
        assert_eq!(problem(&sent, "p1", &[]), None);
        let sent = Sent { dropped: 997_420, ..sent };
        assert_eq!(
            problem(&sent, "p1", &[]).as_deref(),
            Some("p1 dropped 997,420 of 1,000,000 packets; send fewer with --rate")
        );
        let warnings = ["trace.pcap is damaged".to_owned()];
        assert_eq!(problem(&sent, "p1", &warnings).as_ref(), warnings.first());
    }
}
