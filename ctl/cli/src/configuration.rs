//! `flowgauge config`: what a configuration says, and where.

use crate::agent;
use crate::config::{Configuration, Given};
use crate::error::Failure;
use crate::options::run::Run;
use clap::{ArgMatches, Args, Subcommand};
use flowgauge_ctl::output::escaped;
use std::io::{self, Write, stdout};
use std::path::PathBuf;

/// Check a configuration file, or show what a run would be given and where
///
/// Options of `flowgauge run` come from its configuration file, from the environment
/// (FLOWGAUGE_WINDOW for --window, and so on) and from the command line; the later ones go before.
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
    Check(Check),
    Print(Box<Print>),
}

/// Check a configuration file without counting anything
///
/// The exit code is 0 if `flowgauge run` would take the file, else 2. Interfaces, files and
/// switches that it names are not opened.
#[derive(Args)]
struct Check {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Print what `flowgauge run` would be given, as a configuration file
#[derive(Args)]
struct Print {
    /// Say of each value where it comes from: the line of a file, a variable, or the command line
    #[arg(long)]
    origin: bool,

    // The options of `run`, to be printed.
    #[command(flatten)]
    run: Run,
}

impl Config {
    pub(crate) fn execute(self, given: &ArgMatches) -> Result<(), Failure> {
        match self.command {
            Command::Check(Check { file }) => {
                let configuration = Configuration::of_file::<Run>(&file)?;
                agent::check(&configuration)?;
                let sources = match configuration.sources.len() {
                    0 => "no sources of its own".to_owned(),
                    1 => "1 source".to_owned(),
                    many => format!("{many} sources"),
                };
                writeln!(stdout(), "{} is well: {sources}", escaped(&file.display().to_string()))
                    .map_err(Failure::output)
            }
            Command::Print(print) => {
                let given = given.subcommand().map(|(_, given)| given.clone()).unwrap_or_default();
                // They were parsed, and are looked up again by name.
                drop(print.run);
                let configuration = Configuration::read::<Run>(&given)?;
                agent::check(&configuration)?;
                let mut out = stdout().lock();
                print_all(&configuration, print.origin, &mut out).map_err(Failure::output)
            }
        }
    }
}

fn print_all(configuration: &Configuration, origin: bool, out: &mut impl Write) -> io::Result<()> {
    let common = configuration.effective(None);
    let is_told = |given: &&Given| given.key != "config";
    common
        .iter()
        .filter(is_told)
        .try_for_each(|given| line(out, &given.key, &given.texts, &given.origin, origin))?;
    for source in &configuration.sources {
        writeln!(out, "\n[[source]]")?;
        line(out, "name", std::slice::from_ref(&source.name), &source.origin, origin)?;
        // What all have in common stands above.
        let is_own = |given: &&Given| {
            !common.iter().any(|other| other.key == given.key && other.origin == given.origin)
        };
        let own = configuration.effective(Some(source));
        own.iter()
            .filter(is_told)
            .filter(is_own)
            .try_for_each(|given| line(out, &given.key, &given.texts, &given.origin, origin))?;
    }
    out.flush()
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

/// A string of TOML.
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
