//! `flowgauge completions` and `flowgauge man`: shell completions and manual pages, generated from
//! the options.

use crate::error::{CommandFailure, cannot};
use crate::output::print;
use clap::{Args, Command};
use clap_complete::{Shell, generate};
use clap_mangen::Man as Page;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// Print a shell completion script for flowgauge.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge completions bash > /etc/bash_completion.d/flowgauge
  flowgauge completions zsh > ~/.zfunc/_flowgauge
  flowgauge completions fish > ~/.config/fish/completions/flowgauge.fish")]
pub(crate) struct Completions {
    /// Shell: bash, zsh, fish, elvish, powershell
    #[arg(value_name = "SHELL", value_enum, hide_possible_values = true)]
    shell: Shell,
}

impl Completions {
    pub(crate) fn execute(self, mut command: Command) -> Result<(), CommandFailure> {
        let mut script = Vec::new();
        generate(self.shell, &mut command, "flowgauge", &mut script);
        print(|out| out.write_all(&script))
    }
}

/// Print the manual page, or write one page per command to a directory.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge man | man -l -
  flowgauge man /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// Write the pages to this directory, replacing files of the same names [default: print the
    /// main page]
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

impl Man {
    pub(crate) fn execute(self, command: Command) -> Result<(), CommandFailure> {
        let Some(directory) = self.directory else {
            let mut page = Vec::new();
            Page::new(command).render(&mut page).map_err(CommandFailure::output)?;
            return print(|out| out.write_all(&page));
        };
        // Otherwise `flowgauge help` and each of its commands would have pages of their own.
        let command = command.disable_help_subcommand(true);
        fs::create_dir_all(&directory)
            .and_then(|()| clap_mangen::generate_to(command, &directory))
            .map_err(cannot(format_args!("write manual pages to {}", directory.display())))
    }
}
