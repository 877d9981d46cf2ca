//! Short help (`-h`), which shows only the common options of commands that have many.

use clap::Command;

/// Options that `-h` shows, by command. `--help` shows all.
const SHOWN: [(&str, &[&str]); 4] = [
    (
        "run",
        &[
            "interface",
            "direction",
            "adopt",
            "port",
            "window",
            "duration",
            "measure",
            "key",
            "matching",
            "top",
            "query",
            "alarm",
            "alert",
            "truth",
            "format",
            "out",
            "names",
            "listen",
            "otlp",
            "lake",
            "xdp_mode",
            "address",
            "config",
        ],
    ),
    (
        "replay",
        &[
            "window",
            "sample_every",
            "measure",
            "key",
            "matching",
            "top",
            "query",
            "alarm",
            "truth",
            "format",
            "out",
            "config",
        ],
    ),
    (
        "report",
        &[
            "to", "force", "window", "measure", "key", "matching", "query", "truth", "names",
            "config",
        ],
    ),
    ("generate", &["to", "truth", "pcap", "rate", "force"]),
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
        subcommand.mut_args(|argument| {
            let shown = argument.is_positional() || used.contains(&argument.get_id().as_str());
            if shown { argument } else { argument.hide_short_help(true) }
        })
    })
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
            for wanted in used {
                assert!(
                    subcommand.get_arguments().any(|argument| argument.get_id() == *wanted),
                    "{name} has no {wanted}"
                );
            }
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        shortened(crate::Cli::command()).debug_assert();
    }
}
