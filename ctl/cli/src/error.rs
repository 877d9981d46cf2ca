//! Failure of a command: one line on standard error and an exit code.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use flowgauge_ctl::ControlError;
use flowgauge_ctl::output::{escaped, excerpt};
use flowgauge_dataplane::Error;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

/// Reason why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandFailure {
    /// The command line or the configuration is invalid.
    #[error("{0}")]
    Usage(String),
    /// The command was valid and failed.
    #[error("{0}")]
    Failed(String),
    /// Everything readable was counted, but the results are incomplete. A warning in the log says
    /// why.
    #[error("the results above are incomplete: {0}")]
    Incomplete(String),
    /// The reader of the results closed the pipe, as `head` does.
    #[error("standard output was closed")]
    Closed,
    /// The same in a live run, whose user expected it to continue.
    #[error("standard output was closed by its reader; the run has ended")]
    ReaderGone,
}

impl CommandFailure {
    /// Prints the failure on standard error and returns the exit code.
    #[must_use]
    pub fn report(self) -> ExitCode {
        match &self {
            CommandFailure::Closed => {}
            // The log has the warning already.
            CommandFailure::Incomplete(_) if tracing::enabled!(tracing::Level::WARN) => {}
            // The message may contain names of interfaces and files, and answers of others.
            _ => print_message(&format!("error: {}", escaped(&self.to_string()))),
        }
        match self {
            CommandFailure::Usage(_) => ExitCode::from(2),
            CommandFailure::Closed => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        }
    }

    /// Returns the failure for an error when writing results.
    #[must_use]
    pub fn output(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => CommandFailure::Closed,
            _ => CommandFailure::Failed(format!("cannot write results: {error}")),
        }
    }
}

impl From<Error> for CommandFailure {
    fn from(error: Error) -> Self {
        CommandFailure::Failed(error.to_string())
    }
}

impl From<ControlError> for CommandFailure {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Output(error) => CommandFailure::output(error),
            other => CommandFailure::Failed(other.to_string()),
        }
    }
}

/// Refuses a command line or a configuration.
pub(crate) fn refuse<T>(problem: impl Into<String>) -> Result<T, CommandFailure> {
    Err(CommandFailure::Usage(problem.into()))
}

/// Returns the failure of a valid command.
pub(crate) fn fail<T>(problem: impl Into<String>) -> Result<T, CommandFailure> {
    Err(CommandFailure::Failed(problem.into()))
}

/// Returns a function that makes a failure of an error: `cannot WHAT: ERROR`.
pub(crate) fn cannot<E: Display>(what: impl Display) -> impl FnOnce(E) -> CommandFailure {
    move |error| CommandFailure::Failed(format!("cannot {what}: {error}"))
}

/// Writes a line to standard error. It is lost if the reader is gone, as in `2>&1 | head`;
/// `eprintln` would panic.
pub(crate) fn print_message(line: &str) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Prints help as clap formats it, and errors as one line, with the beginning of a long value;
/// returns the exit code.
pub fn usage(mut error: clap::Error, command: &clap::Command) -> ExitCode {
    if let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) {
        let value = excerpt(value, 0).into_owned();
        error.insert(ContextKind::InvalidValue, ContextValue::String(value));
    }
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // If standard output is closed, there is no reader to report to.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        _ => {
            let text = error.to_string();
            let is_message = |line: &&str| {
                !line.is_empty()
                    && !line.starts_with("Usage:")
                    && !line.starts_with("For more information")
            };
            let line = text
                .lines()
                .map(str::trim)
                .filter(is_message)
                .collect::<Vec<_>>()
                .join(" ")
                .replace(" tip: ", "; ");
            let advice = match error.kind() {
                ErrorKind::InvalidSubcommand => {
                    // `help` is in the list only after parsing; `--help` is mentioned elsewhere.
                    let names = innermost(command).get_subcommands().map(clap::Command::get_name);
                    let names: Vec<&str> = names.filter(|name| *name != "help").collect();
                    format!("use one of {}", names.join(", "))
                }
                _ => "see '--help'".to_owned(),
            };
            print_message(&format!("{}; {advice}", escaped(&line)));
            ExitCode::from(2)
        }
    }
}

/// Returns the innermost command whose name was recognized: `bench` for `flowgauge bench paket`.
fn innermost(command: &clap::Command) -> &clap::Command {
    let words = std::env::args().skip(1);
    words.fold(command, |command, word| command.find_subcommand(word).unwrap_or(command))
}
