//! The `flowgauge` command, and the parts of it that `flowgauge-bench` uses: options of `bench` and
//! `reproduce`, failures and messages.
//!
//! [`main`] parses the command line and runs one subcommand; most have a module of their name.
//! `habits` rewrites lines that follow other tools, such as `flowgauge trace.pcap`. A run goes
//! through these stages:
//!
//! 1. `config` collects options from the file, the environment and the command line.
//! 2. `options` declares them and resolves them to a `run_config::RunConfig`.
//! 3. `run`, `replay` and `demo` start one source; `agent` starts several, a thread each.
//! 4. `count` opens the dataplane of a source, and `measure` drives its controller and the outputs:
//!    tables and records (`handle`, `writers`), network services (`listen`), the report for
//!    `status` (`status::publish`) and the service manager (`service`).
//!
//! `signals` ends a run. `value` parses the values of options.

#![cfg_attr(
    not(all(
        feature = "grpc",
        feature = "lake",
        feature = "otlp",
        feature = "report",
        feature = "tofino",
        feature = "top"
    )),
    allow(unused, reason = "features that are off use it")
)]

mod agent;
pub mod bench;
mod capture_files;
mod config;
mod configuration;
mod count;
mod demo;
mod demo_traffic;
mod detach;
mod doctor;
mod error;
mod generate;
mod habits;
mod handle;
mod help;
mod interfaces;
#[cfg(feature = "lake")]
mod lake;
mod listen;
mod measure;
#[cfg(feature = "lake")]
mod merge;
mod messages;
mod new_file;
mod options;
mod pages;
mod pem;
mod program;
mod progress;
#[cfg(feature = "tofino")]
mod read_times;
mod replay;
#[cfg(feature = "report")]
mod report;
pub mod reproduce;
mod run;
mod run_config;
mod secrets;
mod service;
mod signals;
mod status;
mod tables;
mod terminal;
mod top;
#[cfg(feature = "lake")]
mod trust;
mod value;
mod writers;

pub use error::{CommandFailure, usage};
pub use generate::Target;
pub use messages::Messages;
pub use program::{beside, same_build, version};
pub use progress::bar;
pub use value::{Cpus, PortSpec};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use flowgauge_dataplane::poll::Instructions;
use std::env;
use std::process::ExitCode;

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
    Run(Box<options::run::Run>),
    Replay(Box<replay::Replay>),
    #[cfg(feature = "report")]
    Report(Box<report::Report>),
    Demo(demo::Demo),
    Generate(generate::Generate),
    Reproduce(reproduce::Reproduce),
    Bench(bench::Bench),
    #[cfg(feature = "lake")]
    Merge(merge::Merge),
    #[cfg(feature = "lake")]
    Diff(merge::Diff),
    #[cfg(feature = "lake")]
    Lake(lake::Lake),
    Tables(tables::Tables),
    Status(status::Status),
    Top(top::Top),
    Config(configuration::Config),
    Detach(detach::Detach),
    Doctor(doctor::Doctor),
    Completions(pages::Completions),
    Man(pages::Man),
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
    let here = !matches!(cli.command, Some(Command::Bench(_) | Command::Reproduce(_)));
    if here {
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
            signals::listen()
        }
        #[cfg(feature = "report")]
        Some(Command::Report(_)) => signals::listen(),
        _ => Ok(()),
    };
    if let Err(failure) = listening {
        return failure.report();
    }
    let outcome = match cli.command {
        None => run::demonstrate(&given),
        Some(Command::Run(_)) => run::execute(&given),
        Some(Command::Replay(replay)) => replay.execute(&given),
        #[cfg(feature = "report")]
        Some(Command::Report(report)) => report.execute(&given),
        Some(Command::Demo(demo)) => demo.execute(),
        Some(Command::Generate(generate)) => generate.execute(),
        Some(Command::Reproduce(_)) => Err(program::become_bench()),
        Some(Command::Bench(bench)) => bench.check().and_then(|()| Err(program::become_bench())),
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
