//! The `flowgauge` command, and the parts of it that `flowgauge-bench` uses: options of `bench` and
//! `reproduce`, failures and messages.
//!
//! [`main`] parses the command line and runs one of the `commands`. `habits` rewrites lines that
//! follow other tools, such as `flowgauge trace.pcap`, and `help` shortens `-h`. A run goes through
//! these stages, a folder each:
//!
//! 1. `config` collects options from the file, the environment and the command line, and resolves
//!    them to a `RunConfig`.
//! 2. `run` opens the source of packets that it names, or several, and drives a controller for each.
//! 3. `output` writes: records, network services, the report for `status`, the log.

#![cfg_attr(
    not(all(
        feature = "lake",
        feature = "report",
        feature = "serve",
        feature = "tofino",
        feature = "top"
    )),
    allow(unused, reason = "features that are off use it")
)]

mod commands;
mod config;
mod error;
mod habits;
mod help;
mod interfaces;
mod output;
mod program;
mod run;

pub use commands::generate::Target;
pub use commands::{bench, reproduce};
pub use config::value::{Cpus, PortSpec};
pub use error::{CommandFailure, usage};
pub use output::messages::Messages;
pub use output::progress::bar;
pub use program::{beside, same_build, version};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use flowgauge_dataplane::poll::Instructions;
use std::env;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Line-rate network telemetry in fixed memory: how many distinct flows cross a link, per time
/// window, with an error bound on every value.
///
/// Without a command it runs the built-in demonstration: ten seconds of generated traffic, counted
/// live, with the exact value next to every estimate. Results are written to standard output,
/// messages to standard error. The exit code is 0 on success, 1 if something failed or a capture
/// was damaged, and 2 on a usage error.
///
/// Options without a value, such as --adopt, are switched off with '=false', as in --adopt=false.
/// This overrides the configuration file.
#[derive(Parser)]
#[command(name = "flowgauge", version, long_version = version(), max_term_width = 100, propagate_version = true)]
#[command(after_help = "Examples:
  flowgauge
  flowgauge replay trace.pcap --truth
  flowgauge run --port memory:zipf,rate=100k --format json
  flowgauge help run")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    messages: Messages,
}

#[derive(Subcommand)]
enum Command {
    Run(Box<config::options::run::Run>),
    Replay(Box<commands::replay::Replay>),
    #[cfg(feature = "report")]
    Report(Box<commands::report::Report>),
    Demo(commands::demo::Demo),
    Generate(commands::generate::Generate),
    Reproduce(reproduce::Reproduce),
    Bench(bench::Bench),
    #[cfg(feature = "lake")]
    Merge(commands::merge::Merge),
    #[cfg(feature = "lake")]
    Diff(commands::merge::Diff),
    #[cfg(feature = "lake")]
    Lake(commands::lake::Lake),
    Tables(commands::tables::Tables),
    Status(commands::status::Status),
    Top(commands::top::Top),
    Config(commands::config::Config),
    Detach(commands::detach::Detach),
    Doctor(commands::doctor::Doctor),
    Completions(commands::man::Completions),
    Man(commands::man::Man),
}

/// Runs the command that the command line asks for.
pub fn main() -> ExitCode {
    if let Err(failure) = same_build() {
        return failure.report();
    }
    let mut command = help::shortened(Cli::command());
    let words = match habits::rewritten(&command, env::args_os().collect()) {
        Ok(words) => words,
        Err(failure) => return failure.report(),
    };
    let parsed = command
        .try_get_matches_from_mut(words)
        .and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return error::usage(error, &command),
    };
    let given = matches.subcommand().map(|(_, given)| given.clone()).unwrap_or_default();
    // `flowgauge-bench` has its own log; logging here too would repeat warnings.
    if !matches!(cli.command, Some(Command::Bench(_) | Command::Reproduce(_))) {
        cli.messages.start();
    }
    let counts = matches!(
        cli.command,
        None | Some(
            Command::Run(_) | Command::Replay(_) | Command::Bench(_) | Command::Reproduce(_)
        )
    );
    if counts && let Err(problem) = Instructions::chosen() {
        return CommandFailure::Usage(problem.to_string()).report();
    }
    let listening = match cli.command {
        None
        | Some(Command::Run(_) | Command::Replay(_) | Command::Demo(_) | Command::Generate(_)) => {
            run::signals::listen()
        }
        #[cfg(feature = "report")]
        Some(Command::Report(_)) => run::signals::listen(),
        _ => Ok(()),
    };
    if let Err(failure) = listening {
        return failure.report();
    }
    let outcome = match cli.command {
        None => commands::run::execute(&given, true),
        Some(Command::Run(_)) => commands::run::execute(&given, false),
        Some(Command::Replay(replay)) => replay.execute(&given),
        #[cfg(feature = "report")]
        Some(Command::Report(report)) => report.execute(&given),
        Some(Command::Demo(demo)) => demo.execute(),
        Some(Command::Generate(generate)) => generate.execute(),
        Some(Command::Reproduce(_)) => program::become_bench(),
        Some(Command::Bench(bench)) => bench.check().and_then(|()| program::become_bench()),
        #[cfg(feature = "lake")]
        Some(Command::Merge(merge)) => merge.execute(),
        #[cfg(feature = "lake")]
        Some(Command::Diff(diff)) => diff.execute(),
        #[cfg(feature = "lake")]
        Some(Command::Lake(lake)) => lake.execute(),
        Some(Command::Tables(tables)) => tables.execute(),
        Some(Command::Status(status)) => status.execute(),
        Some(Command::Top(top)) => top.execute(),
        Some(Command::Config(config)) => config.execute(&given),
        Some(Command::Detach(detach)) => detach.execute(),
        Some(Command::Doctor(doctor)) => doctor.execute(),
        Some(Command::Completions(completions)) => completions.execute(command),
        Some(Command::Man(man)) => man.execute(command),
    };
    outcome.map_or_else(CommandFailure::report, |()| ExitCode::SUCCESS)
}

/// Locks data that is whole at any time, also if a thread panicked while it held the lock.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
