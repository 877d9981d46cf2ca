//! `flowgauge bench`: what counting costs on this machine.

use crate::error::Failure;
use clap::{Args, Subcommand, ValueEnum};
use flowgauge_bench::findings::Findings;
use flowgauge_bench::{packet, peers, scale, xdp};
use std::env;
use std::io::{self, Write};
use std::path::PathBuf;

/// Measure what counting costs on this machine.
///
/// Every figure comes from programs that took turns in one run: compare ratios, since times differ between machines and, on shared
/// ones, between minutes. The tables are printed; --out writes a page with plots and the numbers as JSON.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge bench packet
  flowgauge bench packet --check --out bench
  flowgauge bench scale --quick
  flowgauge bench xdp --quick --format json")]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
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

    /// What to print [default: table]
    #[arg(long, value_name = "FORMAT", value_enum, hide_possible_values = false)]
    format: Option<Format>,

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

/// Measure the cost of counting in user space, stage by stage, with frames in caches and in memory.
#[derive(Args)]
struct Packet {
    #[command(flatten)]
    common: Common,
}

/// Measure the same work done by other crates and programs.
///
/// Crates: datasketches, cardinality-estimator, hyperloglogplus, and an exact hash set. Programs, if they are installed: tshark,
/// softflowd, pmacctd, on a capture of some hundred megabytes, which is written to the folder for temporary files and removed.
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
            What::Packet(Packet { common }) => common.conclude(&packet::measure(common.quick)),
            What::Peers(Peers { common }) => {
                let flowgauge =
                    env::current_exe().map_err(|error| Failure::Failed(format!("cannot find my own program: {error}")))?;
                common.conclude(&peers::measure(&flowgauge, common.quick)?)
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
        let mut text = match self.format.unwrap_or_default() {
            Format::Json => serde_json::to_string(findings).map_err(io::Error::from).map_err(Failure::output)?,
            Format::Table => {
                let tables: Vec<String> = findings.tables().iter().map(ToString::to_string).collect();
                format!("{}\nMeasured on: {}", tables.join("\n"), findings.machine.line())
            }
        };
        if let Some(directory) = &self.out {
            let page = findings.write(directory)?;
            if self.format.is_none() {
                text += &format!("\nReport: {}", page.display());
            }
        }
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
