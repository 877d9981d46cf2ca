//! `flowgauge config`: checks a configuration file, or prints the effective options with their
//! origin.

use crate::config::given::{Configuration, GivenOption};
use crate::config::options::run::Run;
use crate::error::CommandFailure;
use crate::output;
use crate::run::agent;
use clap::{ArgMatches, Args, Subcommand};
use flowgauge_ctl::output::{counted, escaped};
use std::io::{self, Write};
use std::path::PathBuf;

/// Check a configuration file, or print the effective options of a run
///
/// Options of `flowgauge run` come from its configuration file, the environment (FLOWGAUGE_WINDOW
/// for --window, and so on) and the command line, in ascending order of precedence.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge config check run.toml
  FLOWGAUGE_WINDOW=1m flowgauge config print --origin --config run.toml --key five-tuple")]
pub(crate) struct Config {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check a configuration file without counting
    ///
    /// Exits with 0 if `flowgauge run` would accept the file, else with 2. Opens none of the
    /// interfaces, captures and switches that the file names.
    Check {
        /// Configuration file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    Print(Box<Print>),
}

/// Print the effective options of `flowgauge run` as a configuration file
#[derive(Args)]
struct Print {
    /// Append the origin of each value: line of the file, variable, or command line
    #[arg(long)]
    origin: bool,

    // Options of `run` to print.
    #[command(flatten)]
    run: Run,
}

impl Config {
    pub(crate) fn execute(self, given: &ArgMatches) -> Result<(), CommandFailure> {
        match self.command {
            Command::Check { file } => {
                let configuration = Configuration::of_file::<Run>(&file)?;
                agent::check(&configuration)?;
                let sources = match configuration.sources.len() {
                    0 => "no [[source]] tables".to_owned(),
                    sources => counted(sources as u64, "source"),
                };
                let file = file.display().to_string();
                output::print(|out| writeln!(out, "{}: ok, {sources}", escaped(&file)))
            }
            Command::Print(print) => {
                let given = given.subcommand().map(|(_, given)| given.clone()).unwrap_or_default();
                // The options are looked up again by name in the raw matches.
                drop(print.run);
                let configuration = Configuration::read::<Run>(&given)?;
                agent::check(&configuration)?;
                let origin = print.origin;
                output::print(|out| print_all(&configuration, origin, out))
            }
        }
    }
}

fn print_all(configuration: &Configuration, origin: bool, out: &mut impl Write) -> io::Result<()> {
    let common = configuration.effective(None);
    let is_printed = |given: &&GivenOption| given.key != "config";
    common
        .iter()
        .filter(is_printed)
        .try_for_each(|given| line(out, &given.key, &given.texts, &given.origin, origin))?;
    for source in &configuration.sources {
        writeln!(out, "\n[[source]]")?;
        line(out, "name", std::slice::from_ref(&source.name), &source.origin, origin)?;
        // Common options are printed above.
        let is_own = |given: &&GivenOption| {
            !common.iter().any(|other| other.key == given.key && other.origin == given.origin)
        };
        let own = configuration.effective(Some(source));
        own.iter()
            .filter(is_printed)
            .filter(is_own)
            .try_for_each(|given| line(out, &given.key, &given.texts, &given.origin, origin))?;
    }
    Ok(())
}

fn line(
    out: &mut impl Write,
    key: &str,
    texts: &[String],
    origin: &impl ToString,
    with_origin: bool,
) -> io::Result<()> {
    let value = match texts {
        [on] if on == "true" || on == "false" => on.clone(),
        [one] => quoted(one),
        many => {
            format!("[{}]", many.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(", "))
        }
    };
    let origin =
        if with_origin { format!("  # {}", escaped(&origin.to_string())) } else { String::new() };
    writeln!(out, "{key} = {value}{origin}")
}

/// Quotes a text as a TOML string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            character if character.is_control() => {
                quoted.push_str(&format!("\\u{:04X}", u32::from(character)))
            }
            character => quoted.push(character),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn texts_are_strings_of_toml() {
        assert_eq!(quoted("a\"b\\c\n"), r#""a\"b\\c\u000A""#);
    }
}
