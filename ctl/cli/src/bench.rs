//! `flowgauge bench`: what counting costs on this machine.

use crate::error::Failure;
use crate::generate::{self, Target};
use crate::value::{self, Cpus, PortSpec};
use clap::{Args, Subcommand, ValueEnum};
use flowgauge_bench::findings::Findings;
use flowgauge_bench::{line_rate, packet, peers, scale, xdp};
use flowgauge_core::Settings;
use flowgauge_dataplane::poll::port::{AfXdp, FrameSender, Outlet, af_xdp};
use flowgauge_dataplane::xdp::veth::{RECEIVER, SENDER, isolated};
use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Measure what counting costs on this machine.
///
/// Every figure comes from programs that took turns in one run: compare ratios, since times differ between machines and, on shared
/// ones, between minutes. The tables are printed; --out writes a page with plots and the numbers as JSON.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge bench packet
  flowgauge bench packet --check --out bench
  flowgauge bench scale --quick
  flowgauge bench line-rate
  flowgauge bench xdp --quick --format json")]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    LineRate(Box<LineRate>),
    Packet(Packet),
    Peers(Peers),
    Scale(Scale),
    Xdp(Xdp),
}

/// How every benchmark runs and what it leaves.
#[derive(Args)]
struct Common {
    /// A first look: fewer rounds, less steady figures
    #[arg(long)]
    quick: bool,

    /// Fail if a figure breaks the limit that SPECIFICATION.md promises by more than the noise seen in this run
    #[arg(long)]
    check: bool,

    /// What to print
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    format: Format,

    /// Write a page with plots (NAME.html) and the numbers (NAME.json) to this directory; files of the same names are replaced
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Format {
    /// For eyes.
    #[default]
    Table,
    /// One JSON object, with a description of the machine.
    Json,
}

/// Search the highest rate at which a port loses nothing (RFC 2544).
///
/// Frames leave one port and are counted at another, which a cable or a switch connects. Without ports they are two veth devices in a
/// network of its own: what then is measured is how fast the kernel copies. It takes two CPUs that nothing else uses, and root.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge bench line-rate
  flowgauge bench line-rate af_xdp:eth1 --from af_xdp:eth2 --trial 60s
  flowgauge bench line-rate dpdk:0000:01:00.0 --from dpdk:0000:01:00.1 --cpus 2,3 --sizes 64,1518")]
struct LineRate {
    /// The port that counts: af_xdp:IFACE or dpdk:DEVICE, as for `flowgauge run --port`
    #[arg(value_name = "PORT", value_parser = value::port, requires = "from")]
    port: Option<PortSpec>,

    /// Where frames are sent from: af_xdp:IFACE or dpdk:DEVICE
    #[arg(long, value_name = "PORT", value_parser = generate::target, requires = "port")]
    from: Option<Target>,

    /// Bytes of a frame, with the frame check sequence; several with commas [default: those of RFC 2544, or the first and last]
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(64..=1518))]
    sizes: Vec<u64>,

    /// How long each rate is tried; RFC 2544 wants 60s [default: 2s, or 500ms with --quick]
    #[arg(long, value_name = "TIME", value_parser = value::duration)]
    trial: Option<Duration>,

    /// Workers that count, each on queues of its own [default: one]
    #[arg(long, value_name = "N", value_parser = value::workers)]
    workers: Option<usize>,

    /// Keep workers on these CPUs, in turn, such as 2 or 0,4-7 [default: wherever they may run]
    #[arg(long, value_name = "CPUS", value_parser = value::cpus)]
    cpus: Option<Cpus>,

    /// DPDK's own arguments for dpdk: devices, in quotes [default: --in-memory]
    #[arg(long, value_name = "ARGUMENTS", allow_hyphen_values = true)]
    eal: Option<String>,

    #[command(flatten)]
    common: Common,
}

impl LineRate {
    fn execute(self) -> Result<(), Failure> {
        let quick = self.common.quick;
        let sizes = match self.sizes.as_slice() {
            [] if quick => vec![64, 1518],
            [] => line_rate::SIZES.to_vec(),
            sizes => sizes.iter().map(|size| *size as usize).collect(),
        };
        let trial = self.trial.unwrap_or(Duration::from_millis(if quick { 500 } else { 2000 }));
        let resolution = if quick { 0.05 } else { 0.01 };
        let cpus = self.cpus.map(|Cpus(cpus)| cpus).unwrap_or_default();
        let options = line_rate::Options { sizes, trial, resolution, cpus, settings: Settings::default() };
        let workers = self.workers.unwrap_or(1);
        let Some((port, from)) = self.port.zip(self.from) else {
            let found = isolated(move || {
                let receiver = || af_xdp(&AfXdp::new(RECEIVER.0), Some(workers));
                line_rate::measure(receiver, || Ok(Box::new(FrameSender::new(SENDER.0)?) as Box<dyn Outlet>), &options)
            });
            let findings = found.map_err(|need| Failure::Failed(format!("bench line-rate without ports needs {need}")))??;
            return self.common.conclude(&findings);
        };
        let eal = self.eal.as_deref();
        let sender = || from.outlet(eal);
        let findings = match port {
            PortSpec::AfXdp(description) => line_rate::measure(|| af_xdp(&description, Some(workers)), sender, &options)?,
            #[cfg(feature = "dpdk")]
            PortSpec::Dpdk(device) => {
                line_rate::measure(|| flowgauge_dataplane::poll::port::dpdk(&device, eal, workers), sender, &options)?
            }
            #[cfg(not(feature = "dpdk"))]
            PortSpec::Dpdk(device) => return Err(Failure::Usage(format!("dpdk:{device}: {}", value::NO_DPDK))),
            PortSpec::Pcap(_) | PortSpec::Memory(_) => {
                return Err(Failure::Usage("a line rate is that of an af_xdp: or dpdk: port".to_owned()));
            }
        };
        self.common.conclude(&findings)
    }
}

/// Measure the cost of counting in user space, stage by stage, with frames in caches and in memory.
#[derive(Args)]
struct Packet {
    #[command(flatten)]
    common: Common,
}

/// Measure the same work done by other crates and programs.
///
/// Crates: datasketches, cardinality-estimator, hyperloglogplus, and an exact hash set. Programs, if they are installed: tshark,
/// softflowd, pmacctd, on a capture of some hundred megabytes, which is written to the folder for temporary files and removed; and
/// dpdk-testpmd, next to ports on net_null (if flowgauge was built with DPDK) and, as root, on AF_XDP over veth devices in a network of
/// its own.
#[derive(Args)]
struct Peers {
    #[command(flatten)]
    common: Common,
}

/// Measure the cost of counting as traffic and settings grow: flows, registers, windows, frames, workers.
///
/// Replays take a capture of some hundred megabytes, which is written to the folder for temporary files and removed.
#[derive(Args)]
struct Scale {
    #[command(flatten)]
    common: Common,
}

/// Measure the cost of counting in the kernel, next to programs that do nothing.
///
/// It takes turns with an empty program on injected frames, sends packets over veth devices in a network of its own, and reads and
/// rotates a window. It touches no interface of this machine, and takes root or CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON and CAP_SYS_ADMIN.
#[derive(Args)]
struct Xdp {
    #[command(flatten)]
    common: Common,
}

impl Bench {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        match self.what {
            What::LineRate(line_rate) => line_rate.execute(),
            What::Packet(Packet { common }) => common.conclude(&packet::measure(common.quick)?),
            What::Peers(Peers { common }) => {
                let flowgauge =
                    env::current_exe().map_err(|error| Failure::Failed(format!("cannot find my own program: {error}")))?;
                let (findings, missing) = peers::measure(&flowgauge, common.quick)?;
                missing.iter().for_each(|need| tracing::warn!("skipped: needs {need}"));
                common.conclude(&findings)
            }
            What::Scale(Scale { common }) => common.conclude(&scale::measure(common.quick)?),
            What::Xdp(Xdp { common }) => {
                let (findings, missing) = xdp::measure(common.quick)?;
                if let Some(need) = missing {
                    tracing::warn!("no live packets: needs {need}");
                }
                common.conclude(&findings)
            }
        }
    }
}

impl Common {
    /// Prints and writes what was found, and holds it to what was promised.
    fn conclude(&self, findings: &Findings) -> Result<(), Failure> {
        let page = self.out.as_deref().map(|directory| findings.write(directory)).transpose()?;
        let text = match self.format {
            Format::Json => serde_json::to_string(findings).map_err(io::Error::from).map_err(Failure::output)?,
            Format::Table => {
                let tables: Vec<String> = findings.tables().iter().map(ToString::to_string).collect();
                let report = page.map(|page| format!("\nReport: {}", page.display())).unwrap_or_default();
                format!("{}\nMeasured on: {}{report}", tables.join("\n"), findings.machine.line())
            }
        };
        writeln!(io::stdout(), "{text}").map_err(Failure::output)?;
        if !findings.machine.optimized {
            tracing::warn!("this flowgauge was not compiled for speed (cargo build --release): its figures mean nothing");
        }
        let broken = findings.broken();
        if self.check && !broken.is_empty() {
            return Err(Failure::Failed(format!("beyond its limit: {}", broken.join("; "))));
        }
        Ok(())
    }
}
