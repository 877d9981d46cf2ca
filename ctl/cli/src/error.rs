//! How a command fails: one line on standard error, and an exit code.

use clap::error::ErrorKind;
use flowgauge_ctl::ControlError;
use flowgauge_ctl::output::escaped;
use flowgauge_dataplane::Error;
use std::io;
use std::process::ExitCode;

/// Why a command did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line or configuration makes no sense.
    #[error("{0}")]
    Usage(String),
    /// It made sense and failed.
    #[error("{0}")]
    Failed(String),
    /// Everything readable was counted, but something is wrong with the input, as a warning in the
    /// log says.
    #[error("the results above are incomplete: {0}")]
    Incomplete(String),
    /// Whoever read the results has seen enough.
    #[error("standard output was closed")]
    Closed,
}

impl Failure {
    /// Tells it on standard error, and gives the exit code.
    #[must_use]
    pub fn report(self) -> ExitCode {
        match &self {
            Failure::Closed => {}
            // The log has said it already, and one line about it is enough.
            Failure::Incomplete(_) if tracing::enabled!(tracing::Level::WARN) => {}
            // It may name interfaces and files, and cite what others answered.
            _ => eprintln!("error: {}", escaped(&self.to_string())),
        }
        match self {
            Failure::Usage(_) => ExitCode::from(2),
            Failure::Failed(_) | Failure::Incomplete(_) => ExitCode::from(1),
            Failure::Closed => ExitCode::SUCCESS,
        }
    }

    /// A failed write of results.
    #[must_use]
    pub fn output(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::Closed,
            _ => Failure::Failed(format!("cannot write results: {error}")),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Failed(error.to_string())
    }
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Output(error) => Failure::output(error),
            other => Failure::Failed(other.to_string()),
        }
    }
}

/// Prints what clap has to say: help as it is, errors as one line.
pub fn usage(error: &clap::Error, command: &clap::Command) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // Nobody is left to tell if standard output is closed.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        _ => {
            let text = error.to_string();
            let told = |line: &&str| {
                !line.is_empty()
                    && !line.starts_with("Usage:")
                    && !line.starts_with("For more information")
            };
            let line = text
                .lines()
                .map(str::trim)
                .filter(told)
                .collect::<Vec<_>>()
                .join(" ")
                .replace(" tip: ", "; ");
            let advice = match error.kind() {
                ErrorKind::InvalidSubcommand => {
                    // `help` is there once the command line was parsed; `--help` is told of
                    // elsewhere.
                    let names = asked(command).get_subcommands().map(clap::Command::get_name);
                    let names: Vec<&str> = names.filter(|name| *name != "help").collect();
                    format!("use one of {}", names.join(", "))
                }
                _ => "'--help' explains the options".to_owned(),
            };
            eprintln!("{}; {advice}", escaped(&line));
            ExitCode::from(2)
        }
    }
}

/// The command that was asked for, as far as its words are known: `bench` in
/// `flowgauge bench paket`.
fn asked(command: &clap::Command) -> &clap::Command {
    let words = std::env::args().skip(1);
    words.fold(command, |command, word| command.find_subcommand(word).unwrap_or(command))
}
