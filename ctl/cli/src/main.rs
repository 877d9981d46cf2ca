//! The `flowgauge` command.

mod bench;
mod config;
mod detach;
mod doctor;
mod error;
mod generate;
mod measure;
mod options;
mod progress;
mod replay;
mod reproduce;
mod run;
mod status;
mod switch;
mod tables;
mod value;

use clap::{CommandFactory, Parser, Subcommand};
use error::Failure;
use std::io::{IsTerminal, stderr};
use std::process::ExitCode;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt, registry};

/// Line-rate network telemetry in fixed memory: how many distinct flows cross a link, per time window, with an error bound on
/// every value.
///
/// Without a command it runs the built-in demonstration: ten seconds of generated traffic, counted live, with the truth
/// beside every estimate. Results go to standard output, messages to standard error (RUST_LOG=debug shows more). The exit code
/// is 0 if all went well, 1 if something failed or a capture was damaged, 2 if the command line made no sense.
#[derive(Parser)]
#[command(name = "flowgauge", version, max_term_width = 100, propagate_version = true)]
#[command(after_help = "Examples:
  flowgauge
  flowgauge replay trace.pcap --truth
  flowgauge run --port memory:zipf,rate=100k --format json
  flowgauge help run")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    Run(Box<run::Run>),
    Replay(Box<replay::Replay>),
    Generate(generate::Generate),
    Reproduce(reproduce::Reproduce),
    Bench(bench::Bench),
    Tables(tables::Tables),
    Status(status::Status),
    Detach(detach::Detach),
    Doctor(doctor::Doctor),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return error::usage(&error, &Cli::command()),
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    // Colours are for terminals: a log file would hold their escape sequences.
    let colours = stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let log = fmt::layer().with_writer(stderr).with_ansi(colours).with_target(false).without_time();
    registry().with(filter).with(log).with(status::Remembered).init();
    let outcome = match cli.command {
        None => run::Run::default().execute(),
        Some(Command::Run(run)) => run.execute(),
        Some(Command::Replay(replay)) => replay.execute(),
        Some(Command::Generate(generate)) => generate.execute(),
        Some(Command::Reproduce(reproduce)) => reproduce.execute(),
        Some(Command::Bench(bench)) => bench.execute(),
        Some(Command::Tables(tables)) => tables.execute(),
        Some(Command::Status(status)) => status.execute(),
        Some(Command::Detach(detach)) => detach.execute(),
        Some(Command::Doctor(doctor)) => doctor.execute(),
    };
    outcome.map_or_else(Failure::report, |()| ExitCode::SUCCESS)
}
