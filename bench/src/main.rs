//! `flowgauge-bench`: the program behind `flowgauge bench` and `flowgauge reproduce`.

mod command;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use flowgauge::bench::Bench;
use flowgauge::reproduce::Reproduce;
use flowgauge::{CommandFailure, Messages, same_build, usage, version};
use flowgauge_dataplane::poll::Instructions;
use std::process::ExitCode;

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
        Command::Bench(bench) => command::execute(bench),
        Command::Reproduce(reproduce) => flowgauge_papers::reproduce(&reproduce),
    };
    outcome.map_or_else(CommandFailure::report, |()| ExitCode::SUCCESS)
}
