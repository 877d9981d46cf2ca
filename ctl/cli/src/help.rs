//! Short help (`-h`), which shows only the common options of commands that have many, and defaults
//! of commands that share options with others.

use clap::builder::StyledStr;
use clap::{Arg, Command};

/// Options that `-h` shows of all of these commands, as far as they have them.
const SHOWN_BY_ALL: [&str; 7] =
    ["window", "measure", "key", "matching", "query", "truth", "config"];

/// Other options that `-h` shows, by command. `--help` shows all.
const SHOWN: [(&str, &[&str]); 4] = [
    (
        "run",
        &[
            "interface",
            "direction",
            "xdp_mode",
            "adopt",
            "port",
            "address",
            "duration",
            "top",
            "alarm",
            "alert",
            "format",
            "out",
            "names",
            "listen",
            "otlp",
            "lake",
        ],
    ),
    ("replay", &["sample_every", "top", "alarm", "format", "out"]),
    ("report", &["to", "force", "names"]),
    ("generate", &["to", "pcap", "rate", "force"]),
];

/// Options of `report` with another default than the options that it shares with `replay`: the
/// default in the help text, and its own.
const REPORT_DEFAULTS: [(&str, &str, &str); 2] = [
    ("window", "[default: 10s]", "[default: about a hundredth of the captures]"),
    ("measure", "[default: cardinality]", "[default: all]"),
];

/// Options of all commands that `-h` omits.
const HIDDEN: [&str; 1] = ["color"];

/// Hides the other options of these commands in `-h`.
pub(crate) fn shortened(command: Command) -> Command {
    let command = command.mut_args(|argument| {
        let is_hidden = HIDDEN.contains(&argument.get_id().as_str());
        if is_hidden { argument.hide_short_help(true) } else { argument }
    });
    // Visit all arguments: clap moves one that is changed by its name to the end.
    command.mut_subcommands(|subcommand| {
        let Some((_, used)) = SHOWN.iter().find(|(name, _)| subcommand.get_name() == *name) else {
            return subcommand;
        };
        let is_report = subcommand.get_name() == "report";
        subcommand.mut_args(|argument| {
            let argument = if is_report { with_default(argument) } else { argument };
            let id = argument.get_id().as_str();
            let shown =
                argument.is_positional() || SHOWN_BY_ALL.contains(&id) || used.contains(&id);
            if shown { argument } else { argument.hide_short_help(true) }
        })
    })
}

/// Replaces the default in the help of an option of `report`.
fn with_default(argument: Arg) -> Arg {
    let id = argument.get_id().as_str();
    let Some((_, shared, own)) = REPORT_DEFAULTS.iter().find(|(name, ..)| id == *name) else {
        return argument;
    };
    let replaced = |text: Option<&StyledStr>| text.map(|it| it.to_string().replace(shared, own));
    let (short, long) = (replaced(argument.get_help()), replaced(argument.get_long_help()));
    let argument = argument.help(short.unwrap_or_default());
    match long {
        Some(long) => argument.long_help(long),
        None => argument,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn what_is_shown_exists() {
        let command = crate::Cli::command();
        for (name, used) in SHOWN {
            let subcommand = command.find_subcommand(name).unwrap();
            let of_all = SHOWN_BY_ALL.iter().filter(|_| name != "generate");
            for wanted in used.iter().chain(of_all) {
                assert!(
                    subcommand.get_arguments().any(|argument| argument.get_id() == *wanted),
                    "{name} has no {wanted}"
                );
            }
        }
    }

    #[test]
    fn a_report_shows_its_own_defaults() {
        let command = shortened(crate::Cli::command());
        let help = |command_name: &str, option: &str| {
            let subcommand = command.find_subcommand(command_name).unwrap();
            let mut arguments = subcommand.get_arguments();
            let argument = arguments.find(|argument| argument.get_id() == option).unwrap();
            [argument.get_help(), argument.get_long_help()]
                .map(|text| text.map(ToString::to_string).unwrap_or_default())
        };
        for (option, shared, own) in REPORT_DEFAULTS {
            assert!(help("report", option).iter().all(|text| text.contains(own)), "{option}");
            assert!(help("replay", option).iter().all(|text| text.contains(shared)), "{option}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        shortened(crate::Cli::command()).debug_assert();
    }
}
