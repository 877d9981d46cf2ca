//! `flowgauge-bench`: the program behind `flowgauge bench` and `flowgauge reproduce`.

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use flowgauge::bench::{Bench, BenchFormat, BenchOptions, Benchmark, LineRate, no_line_rate};
use flowgauge::reproduce::Reproduce;
use flowgauge::{CommandFailure, Cpus, Messages, PortSpec, beside, same_build, usage, version};
use flowgauge_bench::findings::Findings;
use flowgauge_bench::{line_rate, packet, peers, scale, xdp};
use flowgauge_core::Settings;
use flowgauge_dataplane::poll::Instructions;
use flowgauge_dataplane::poll::port::{AfXdp, FrameSender, Outlet, af_xdp};
use flowgauge_papers::report::Table;
use flowgauge_traffic::veth::{RECEIVER, SENDER, isolated};
use jiff::Timestamp;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

/// Run benchmarks of flowgauge and repeat the experiments of papers, as `flowgauge bench` and
/// `flowgauge reproduce` do.
///
/// Accepts the same command lines without flowgauge. Results are written to standard output,
/// messages to standard error. The exit code is 0 on success, 1 if something failed, and 2 on a
/// usage error.
#[derive(Parser)]
#[command(name = "flowgauge-bench", version, long_version = version(), max_term_width = 100)]
#[command(propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    messages: Messages,
}

#[derive(Subcommand)]
enum Command {
    Bench(Bench),
    Reproduce(Reproduce),
}

fn main() -> ExitCode {
    if let Err(failure) = same_build() {
        return failure.report();
    }
    let command = Cli::command();
    let parsed =
        command.clone().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return usage(error, &command),
    };
    cli.messages.start();
    if let Err(problem) = Instructions::chosen() {
        return CommandFailure::Usage(problem.to_string()).report();
    }
    let outcome = match cli.command {
        Command::Bench(bench) => execute(bench),
        Command::Reproduce(reproduce) => flowgauge_papers::reproduce(&reproduce),
    };
    outcome.map_or_else(CommandFailure::report, |()| ExitCode::SUCCESS)
}

/// Runs the requested benchmark.
fn execute(options: Bench) -> Result<(), CommandFailure> {
    options.check()?;
    match options.what {
        Benchmark::LineRate(options) => search(*options),
        Benchmark::Packet(common) => conclude(&common, &packet::measure(common.quick)?),
        Benchmark::Peers(common) => {
            conclude(&common, &peers::measure(&beside("flowgauge")?, common.quick)?)
        }
        Benchmark::Scale(common) => conclude(&common, &scale::measure(common.quick)?),
        Benchmark::Xdp(common) => conclude(&common, &xdp::measure(common.quick)?),
    }
}

fn search(options: LineRate) -> Result<(), CommandFailure> {
    let quick = options.common.quick;
    let sizes = match options.sizes.as_slice() {
        [] if quick => vec![64, 1518],
        [] => line_rate::SIZES.to_vec(),
        sizes => sizes.iter().map(|size| *size as usize).collect(),
    };
    let trial = options.trial.unwrap_or(Duration::from_millis(if quick { 500 } else { 2000 }));
    let resolution = if quick { 0.05 } else { 0.01 };
    let cpus = options.cpus.map(|Cpus(cpus)| cpus).unwrap_or_default();
    let parameters =
        line_rate::Options { sizes, trial, resolution, cpus, settings: Settings::default() };
    let workers = options.workers.unwrap_or(1);
    let Some((port, from)) = options.port.zip(options.from) else {
        let found = isolated(move || {
            let receiver = || af_xdp(&AfXdp::new(RECEIVER.0), Some(workers));
            line_rate::measure(
                receiver,
                || Ok(Box::new(FrameSender::new(SENDER.0)?) as Box<dyn Outlet>),
                &parameters,
            )
        });
        let findings = found.map_err(|need| {
            CommandFailure::Failed(format!("bench line-rate without ports needs {need}"))
        })??;
        return conclude(&options.common, &findings);
    };
    let eal = options.eal.as_deref();
    let sender = || from.outlet(eal);
    let findings = match port {
        PortSpec::AfXdp(description) => {
            line_rate::measure(|| af_xdp(&description, Some(workers)), sender, &parameters)?
        }
        #[cfg(feature = "dpdk")]
        PortSpec::Dpdk(device) => line_rate::measure(
            || flowgauge_dataplane::poll::port::dpdk(&device, eal, workers),
            sender,
            &parameters,
        )?,
        #[cfg(not(feature = "dpdk"))]
        PortSpec::Dpdk(device) => {
            let how = "build it with `cargo build --release -p flowgauge-bench --features dpdk`";
            return Err(CommandFailure::Usage(format!(
                "dpdk:{device}: this flowgauge-bench has no DPDK; {how}"
            )));
        }
        PortSpec::Pcap(_) | PortSpec::Memory(_) => return Err(no_line_rate()),
    };
    conclude(&options.common, &findings)
}

/// Prints and writes the findings, and checks them against their limits.
fn conclude(options: &BenchOptions, findings: &Findings) -> Result<(), CommandFailure> {
    findings.skipped.iter().for_each(|skipped| tracing::warn!("{skipped}"));
    let page = options.out.as_deref().map(|directory| findings.write(directory)).transpose()?;
    let text = match options.format {
        BenchFormat::Json => serde_json::to_string(findings)
            .map_err(io::Error::from)
            .map_err(CommandFailure::output)?,
        BenchFormat::Markdown => {
            let tables: Vec<String> = findings.tables().iter().map(Table::markdown).collect();
            let date = Timestamp::now().strftime("%Y-%m-%d");
            format!(
                "{}\n`flowgauge bench {}` on {date}: {}, {}",
                tables.join("\n"),
                findings.benchmark,
                findings.machine.line(),
                version().replace('\n', ", ")
            )
        }
        BenchFormat::Table => {
            let tables: Vec<String> = findings.tables().iter().map(ToString::to_string).collect();
            let report =
                page.map(|page| format!("\nReport: {}", page.display())).unwrap_or_default();
            format!("{}\nMeasured on: {}{report}", tables.join("\n"), findings.machine.line())
        }
    };
    writeln!(io::stdout(), "{text}").map_err(CommandFailure::output)?;
    if !findings.machine.optimized {
        tracing::warn!(
            "this flowgauge was built without optimizations, so its figures are meaningless; use cargo build --release"
        );
    }
    let broken = findings.broken();
    if options.check && !broken.is_empty() {
        return Err(CommandFailure::Failed(format!("limit exceeded: {}", broken.join("; "))));
    }
    Ok(())
}
