//! Options of `flowgauge bench`, which measures the cost of counting on this machine.

use crate::commands::generate::{self, Target};
use crate::config::value::{self, Cpus, PortSpec};
use crate::error::CommandFailure;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Measure the cost of counting on this machine.
///
/// Compares programs that take turns within one run. Compare ratios rather than times: times differ
/// between machines and, on shared ones, from minute to minute. Prints tables; --out also writes a
/// page with plots and the figures as JSON.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge bench packet
  flowgauge bench packet --check --out bench
  flowgauge bench scale --quick
  flowgauge bench line-rate
  flowgauge bench xdp --quick --format json")]
pub struct Bench {
    /// Benchmark to run.
    #[command(subcommand)]
    pub what: Benchmark,
}

/// Benchmark to run, with its options.
#[derive(Subcommand)]
pub enum Benchmark {
    /// Find the highest rate at which a port loses no packet (RFC 2544).
    ///
    /// Sends frames from one port and counts them at another; connect the two by a cable or a
    /// switch. Without ports, uses two veth devices in a separate network namespace, which measures
    /// how fast the kernel copies. Requires root and two otherwise idle CPUs.
    #[command(after_help = "Examples:
  flowgauge bench line-rate
  flowgauge bench line-rate af_xdp:eth1 --from af_xdp:eth2 --trial 60s
  flowgauge bench line-rate dpdk:0000:01:00.0 --from dpdk:0000:01:00.1 --cpus 2,3 --sizes 64,1518")]
    LineRate(Box<LineRate>),
    /// Measure the cost of counting in user space, stage by stage, with frames in cache and in
    /// memory.
    Packet(BenchOptions),
    /// Measure other crates and programs that do the same work.
    ///
    /// Crates: datasketches, cardinality-estimator, hyperloglogplus, and an exact hash set.
    /// Programs, if installed: tshark, softflowd and pmacctd, on a capture of several hundred
    /// megabytes that is written to the temporary directory and removed; and dpdk-testpmd, compared
    /// with ports on net_null (if flowgauge was built with DPDK) and, as root, with AF_XDP on veth
    /// devices in a separate network namespace.
    Peers(BenchOptions),
    /// Measure how the cost of counting scales with flows, registers, windows, frames and workers.
    ///
    /// Replays a capture of several hundred megabytes, which is written to the temporary directory
    /// and removed.
    Scale(BenchOptions),
    /// Measure the cost of counting in the kernel, compared with programs that do nothing.
    ///
    /// Takes turns with an empty program on injected frames, sends packets over veth devices in a
    /// separate network namespace, and reads and rotates a window. Uses no interface of this
    /// machine. Requires root, or CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON and CAP_SYS_ADMIN.
    Xdp(BenchOptions),
}

/// Options of every benchmark.
#[derive(Args)]
pub struct BenchOptions {
    /// Run fewer rounds, for a first impression with less stable figures
    #[arg(long)]
    pub quick: bool,

    /// Fail if a figure exceeds its limit in SPECIFICATION.md by more than the noise measured in
    /// this run
    #[arg(long)]
    pub check: bool,

    /// Output format
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub format: BenchFormat,

    /// Write a page with plots (NAME.html) and the figures (NAME.json) to this directory, replacing
    /// files of the same names
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Output format of a benchmark.
#[derive(Clone, Copy, Default, ValueEnum)]
pub enum BenchFormat {
    /// Text table.
    #[default]
    Table,
    /// One JSON object, with a description of the machine.
    Json,
    /// Tables in Markdown, with the date, the machine and the commit.
    Markdown,
}

/// Options of `flowgauge bench line-rate`.
#[derive(Args)]
pub struct LineRate {
    /// Port that counts: af_xdp:IFACE or dpdk:DEVICE, as for `flowgauge run --port`
    #[arg(value_name = "PORT", value_parser = value::port, requires = "from")]
    pub port: Option<PortSpec>,

    /// Port that sends: af_xdp:IFACE or dpdk:DEVICE
    #[arg(long, value_name = "PORT", value_parser = generate::target, requires = "port")]
    pub from: Option<Target>,

    /// Frame sizes in bytes including the frame check sequence, comma-separated [default: those of
    /// RFC 2544; with --quick the smallest and the largest]
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(64..=1518))]
    pub sizes: Vec<u64>,

    /// Duration of the trial at each rate; RFC 2544 asks for 60s [default: 2s; 500ms with --quick]
    #[arg(long, value_name = "TIME", value_parser = value::duration)]
    pub trial: Option<Duration>,

    /// Number of workers that count, each on its own queues [default: 1]
    #[arg(long, value_name = "N", value_parser = value::workers)]
    pub workers: Option<usize>,

    /// Pin workers to these CPUs in turn, such as 2 or 0,4-7 [default: not pinned]
    #[arg(long, value_name = "CPUS", value_parser = value::cpus)]
    pub cpus: Option<Cpus>,

    /// Quoted EAL arguments for dpdk: devices [default: --in-memory]
    #[arg(long, value_name = "ARGUMENTS", allow_hyphen_values = true)]
    pub eal: Option<String>,

    /// Options of every benchmark.
    #[command(flatten)]
    pub common: BenchOptions,
}

impl Bench {
    /// Rejects contradictory options before the benchmark starts.
    ///
    /// # Errors
    /// [`CommandFailure::Usage`] for a port that has no line rate.
    pub fn check(&self) -> Result<(), CommandFailure> {
        let Benchmark::LineRate(asked) = &self.what else { return Ok(()) };
        if matches!(asked.port, Some(PortSpec::Pcap(_) | PortSpec::Memory(_))) {
            return Err(no_line_rate());
        }
        Ok(())
    }
}

/// Returns the failure for a port that has no line rate.
#[must_use]
pub fn no_line_rate() -> CommandFailure {
    CommandFailure::Usage(
        "the line rate can only be measured of an af_xdp: or dpdk: port".to_owned(),
    )
}
