//! The options of `flowgauge bench`: what counting costs on this machine.

use crate::error::Failure;
use crate::generate::{self, Target};
use crate::value::{self, Cpus, PortSpec};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Measure what counting costs on this machine.
///
/// Every figure comes from programs that took turns in one run: compare ratios, since times differ
/// between machines and, on shared ones, between minutes. The tables are printed; --out writes a
/// page with plots and the numbers as JSON.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge bench packet
  flowgauge bench packet --check --out bench
  flowgauge bench scale --quick
  flowgauge bench line-rate
  flowgauge bench xdp --quick --format json")]
pub struct Bench {
    /// What to measure.
    #[command(subcommand)]
    pub what: What,
}

/// What to measure.
#[derive(Subcommand)]
#[allow(
    missing_docs,
    reason = "the options of each say it, in the help too, which a line here would replace"
)]
pub enum What {
    LineRate(Box<LineRate>),
    Packet(Packet),
    Peers(Peers),
    Scale(Scale),
    Xdp(Xdp),
}

/// How every benchmark runs and what it leaves.
#[derive(Args)]
pub struct Common {
    /// A first look: fewer rounds, less steady figures
    #[arg(long)]
    pub quick: bool,

    /// Fail if a figure breaks the limit that SPECIFICATION.md promises by more than the noise seen
    /// in this run
    #[arg(long)]
    pub check: bool,

    /// What to print
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub format: Format,

    /// Write a page with plots (NAME.html) and the numbers (NAME.json) to this directory; files of
    /// the same names are replaced
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// What is printed.
#[derive(Clone, Copy, Default, ValueEnum)]
pub enum Format {
    /// For eyes.
    #[default]
    Table,
    /// One JSON object, with a description of the machine.
    Json,
}

/// Search the highest rate at which a port loses nothing (RFC 2544).
///
/// Frames leave one port and are counted at another, which a cable or a switch connects. Without
/// ports they are two veth devices in a network of its own: what then is measured is how fast the
/// kernel copies. It takes two CPUs that nothing else uses, and root.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge bench line-rate
  flowgauge bench line-rate af_xdp:eth1 --from af_xdp:eth2 --trial 60s
  flowgauge bench line-rate dpdk:0000:01:00.0 --from dpdk:0000:01:00.1 --cpus 2,3 --sizes 64,1518")]
pub struct LineRate {
    /// The port that counts: af_xdp:IFACE or dpdk:DEVICE, as for `flowgauge run --port`
    #[arg(value_name = "PORT", value_parser = value::port, requires = "from")]
    pub port: Option<PortSpec>,

    /// Where frames are sent from: af_xdp:IFACE or dpdk:DEVICE
    #[arg(long, value_name = "PORT", value_parser = generate::target, requires = "port")]
    pub from: Option<Target>,

    /// Bytes of a frame, with the frame check sequence; several with commas [default: those of RFC
    /// 2544, or the first and last]
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(64..=1518))]
    pub sizes: Vec<u64>,

    /// How long each rate is tried; RFC 2544 wants 60s [default: 2s, or 500ms with --quick]
    #[arg(long, value_name = "TIME", value_parser = value::duration)]
    pub trial: Option<Duration>,

    /// Workers that count, each on queues of its own [default: one]
    #[arg(long, value_name = "N", value_parser = value::workers)]
    pub workers: Option<usize>,

    /// Keep workers on these CPUs, in turn, such as 2 or 0,4-7 [default: wherever they may run]
    #[arg(long, value_name = "CPUS", value_parser = value::cpus)]
    pub cpus: Option<Cpus>,

    /// DPDK's own arguments for dpdk: devices, in quotes [default: --in-memory]
    #[arg(long, value_name = "ARGUMENTS", allow_hyphen_values = true)]
    pub eal: Option<String>,

    /// What all have.
    #[command(flatten)]
    pub common: Common,
}

/// Measure the cost of counting in user space, stage by stage, with frames in caches and in memory.
#[derive(Args)]
pub struct Packet {
    /// What all have.
    #[command(flatten)]
    pub common: Common,
}

/// Measure the same work done by other crates and programs.
///
/// Crates: datasketches, cardinality-estimator, hyperloglogplus, and an exact hash set. Programs,
/// if they are installed: tshark, softflowd, pmacctd, on a capture of some hundred megabytes, which
/// is written to the folder for temporary files and removed; and dpdk-testpmd, next to ports on
/// net_null (if flowgauge was built with DPDK) and, as root, on AF_XDP over veth devices in a
/// network of its own.
#[derive(Args)]
pub struct Peers {
    /// What all have.
    #[command(flatten)]
    pub common: Common,
}

/// Measure the cost of counting as traffic and settings grow: flows, registers, windows, frames,
/// workers.
///
/// Replays take a capture of some hundred megabytes, which is written to the folder for temporary
/// files and removed.
#[derive(Args)]
pub struct Scale {
    /// What all have.
    #[command(flatten)]
    pub common: Common,
}

/// Measure the cost of counting in the kernel, next to programs that do nothing.
///
/// It takes turns with an empty program on injected frames, sends packets over veth devices in a
/// network of its own, and reads and rotates a window. It touches no interface of this machine, and
/// takes root or CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON and CAP_SYS_ADMIN.
#[derive(Args)]
pub struct Xdp {
    /// What all have.
    #[command(flatten)]
    pub common: Common,
}

impl Bench {
    /// Refuses what makes no sense, before anything is done.
    ///
    /// # Errors
    /// [`Failure::Usage`] for a port that has no line rate.
    pub fn check(&self) -> Result<(), Failure> {
        let What::LineRate(asked) = &self.what else { return Ok(()) };
        if matches!(asked.port, Some(PortSpec::Pcap(_) | PortSpec::Memory(_))) {
            return Err(no_line_rate());
        }
        Ok(())
    }
}

/// A line rate is asked of a port that has none.
#[must_use]
pub fn no_line_rate() -> Failure {
    Failure::Usage("a line rate is that of an af_xdp: or dpdk: port".to_owned())
}
