//! The `flowgauge` command.

mod config;
mod error;
mod generate;
mod measure;
mod options;
mod progress;
mod replay;
mod reproduce;
mod run;
mod tables;
mod value;

use clap::{Parser, Subcommand};
use error::Failure;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Line-rate network telemetry in fixed memory: how many distinct flows cross a link, per time window, with an error bound on
/// every value.
///
/// Without a command it runs the built-in demonstration: ten seconds of generated traffic, counted live, with the truth
/// beside every estimate. Results go to standard output, messages to standard error (RUST_LOG=debug shows more). The exit code
/// is 0 if all went well, 1 if something failed or a capture was damaged, 2 if the command line made no sense.
#[derive(Parser)]
#[command(name = "flowgauge", version, max_term_width = 100, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Count live: generated traffic, or a capture file at its own pace
    Run(run::Run),
    /// Count a capture file as fast as it can be read, in the capture's own time
    Replay(replay::Replay),
    /// Write synthetic traffic to a capture file
    Generate(generate::Generate),
    /// Repeat a paper's experiments and put its figures beside ours
    Reproduce(reproduce::Reproduce),
    /// Show the match tables that the controller installs in a dataplane
    Tables(tables::Tables),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return error::usage(&error),
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false).without_time().init();
    let outcome = match cli.command {
        None => run::Run::default().execute(),
        Some(Command::Run(run)) => run.execute(),
        Some(Command::Replay(replay)) => replay.execute(),
        Some(Command::Generate(generate)) => generate.execute(),
        Some(Command::Reproduce(reproduce)) => reproduce.execute(),
        Some(Command::Tables(tables)) => tables.execute(),
    };
    outcome.map_or_else(Failure::report, |()| ExitCode::SUCCESS)
}
