//! The `flowgauge` command.

mod agent;
mod bench;
mod config;
mod configuration;
mod demo;
mod detach;
mod doctor;
mod error;
mod generate;
mod help;
mod listen;
mod measure;
mod merge;
mod nearest;
mod options;
mod pages;
mod progress;
mod replay;
mod report;
mod reproduce;
mod run;
mod service;
mod signals;
mod status;
mod switch;
mod tables;
mod terminal;
mod top;
mod value;
mod webhook;
mod writers;

use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};
use error::Failure;
use flowgauge_ctl::output::escaped;
use flowgauge_dataplane::poll::Instructions;
use std::fmt;
use std::io::stderr;
use std::process::ExitCode;
use terminal::Color;
use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry;
use tracing_subscriber::util::SubscriberInitExt;

/// What `--version` says.
const VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), "\ncommit: ", env!("FLOWGAUGE_BUILT_FROM"), "\nfeatures: ", env!("FLOWGAUGE_FEATURES"));

/// Line-rate network telemetry in fixed memory: how many distinct flows cross a link, per time window, with an error bound on
/// every value.
///
/// Without a command it runs the built-in demonstration: ten seconds of generated traffic, counted live, with the truth
/// beside every estimate. Results go to standard output, messages to standard error. The exit code is 0 if all went well, 1 if
/// something failed or a capture was damaged, 2 if the command line made no sense.
///
/// Options without a value, such as --adopt, are switched off with '=false', as in --adopt=false: also when the configuration file
/// switches them on.
#[derive(Parser)]
#[command(name = "flowgauge", version, long_version = VERSION, max_term_width = 100, propagate_version = true)]
#[command(after_help = "Examples:
  flowgauge
  flowgauge replay trace.pcap --truth
  flowgauge run --port memory:zipf,rate=100k --format json
  flowgauge help run")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    /// Print errors only, and show no progress
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Messages")]
    quiet: bool,

    /// Print more messages; -vv prints even more
    ///
    /// The environment variable RUST_LOG goes before -q and -v; it takes levels by part, such as RUST_LOG=warn,flowgauge_dataplane=debug.
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = "Messages")]
    verbose: u8,

    /// When to use colours: auto (on a terminal, unless NO_COLOR is set), always, never [default: auto]
    #[arg(long, global = true, value_name = "WHEN", value_enum, hide_possible_values = true, help_heading = "Messages")]
    color: Option<Color>,
}

#[derive(Subcommand)]
enum Command {
    Run(Box<run::Run>),
    Replay(Box<replay::Replay>),
    Report(Box<report::Report>),
    Demo(demo::Demo),
    Generate(generate::Generate),
    Reproduce(reproduce::Reproduce),
    Bench(bench::Bench),
    Merge(merge::Merge),
    Diff(merge::Diff),
    Tables(tables::Tables),
    Status(status::Status),
    Top(top::Top),
    Config(configuration::Config),
    Detach(detach::Detach),
    Doctor(doctor::Doctor),
    Completions(pages::Completions),
    Man(pages::Man),
}

fn main() -> ExitCode {
    let command = help::shortened(Cli::command());
    let parsed = command.clone().try_get_matches().and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return error::usage(&error, &command),
    };
    let given = matches.subcommand().map(|(_, given)| given.clone()).unwrap_or_default();
    terminal::init(cli.color.unwrap_or_default());
    log(cli.quiet, cli.verbose);
    let counts =
        matches!(cli.command, None | Some(Command::Run(_) | Command::Replay(_) | Command::Bench(_) | Command::Reproduce(_)));
    if counts && let Err(problem) = Instructions::chosen() {
        return Failure::Usage(problem.to_string()).report();
    }
    let listening = match cli.command {
        None | Some(Command::Run(_) | Command::Replay(_) | Command::Report(_) | Command::Demo(_) | Command::Generate(_)) => {
            signals::listen()
        }
        _ => Ok(()),
    };
    if let Err(failure) = listening {
        return failure.report();
    }
    let outcome = match cli.command {
        None => run::Run::default().execute(&given),
        Some(Command::Run(run)) => run.execute(&given),
        Some(Command::Replay(replay)) => replay.execute(&given),
        Some(Command::Report(report)) => report.execute(&given),
        Some(Command::Demo(demo)) => demo.execute(),
        Some(Command::Generate(generate)) => generate.execute(),
        Some(Command::Reproduce(reproduce)) => reproduce.execute(),
        Some(Command::Bench(bench)) => bench.execute(),
        Some(Command::Merge(merge)) => merge.execute(),
        Some(Command::Diff(diff)) => diff.execute(),
        Some(Command::Tables(tables)) => tables.execute(),
        Some(Command::Status(status)) => status.execute(),
        Some(Command::Top(top)) => top.execute(),
        Some(Command::Config(config)) => config.execute(&given),
        Some(Command::Detach(detach)) => detach.execute(),
        Some(Command::Doctor(doctor)) => doctor.execute(),
        Some(Command::Completions(completions)) => completions.execute(command),
        Some(Command::Man(man)) => man.execute(command),
    };
    outcome.map_or_else(Failure::report, |()| ExitCode::SUCCESS)
}

/// Starts the log on standard error.
fn log(quiet: bool, verbose: u8) {
    // Of other crates only what is wrong: of a connection's inner life -v would tell more than of flowgauge.
    let asked = match (quiet, verbose) {
        (true, _) => Targets::new().with_default(LevelFilter::ERROR),
        (false, 0) => Targets::new().with_default(LevelFilter::WARN),
        (false, 1) => Targets::new().with_default(LevelFilter::WARN).with_target("flowgauge", LevelFilter::INFO),
        (false, 2) => Targets::new().with_default(LevelFilter::INFO).with_target("flowgauge", LevelFilter::DEBUG),
        _ => Targets::new().with_default(LevelFilter::TRACE),
    };
    let wanted = std::env::var("RUST_LOG").ok().filter(|wanted| !wanted.is_empty()).map(|wanted| wanted.parse::<Targets>());
    let (filter, problem) = match wanted {
        Some(Ok(filter)) => (filter, None),
        Some(Err(error)) => (asked, Some(error)),
        None => (asked, None),
    };
    // Colours are for terminals: a log file would hold their escape sequences.
    let colours = terminal::colours(&stderr());
    let log = tracing_subscriber::fmt::layer().with_writer(stderr).with_ansi(colours).with_target(false).without_time();
    // Messages name interfaces, files and what others answered, which must not command the terminal.
    let log = log.fmt_fields(debug_fn(message).delimited(" "));
    registry().with(filter).with(log).with(status::Remembered).init();
    if let Some(problem) = problem {
        tracing::warn!("RUST_LOG will not do, and is not used: {problem}");
    }
}

/// A part of a message, free of what could command a terminal.
fn message(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let text = format!("{value:?}");
    match field.name() {
        "message" => write!(writer, "{}", escaped(&text)),
        name => write!(writer, "{name}={}", escaped(&text)),
    }
}
