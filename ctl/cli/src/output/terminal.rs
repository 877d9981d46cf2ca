//! Properties of the standard streams: whether they are terminals, their width, and colours.

use clap::ValueEnum;
use rustix::termios::tcgetwinsize;
use std::env;
use std::io::{self, IsTerminal};
use std::sync::OnceLock;

/// Width if standard output is not a terminal.
const DEFAULT_WIDTH: usize = 80;

/// Use of colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On terminals, unless NO_COLOR is set.
    #[default]
    Auto,
    Always,
    Never,
}

/// Setting of the command line, for the whole process.
static COLOR: OnceLock<Color> = OnceLock::new();

/// Stores the setting of the command line.
pub(crate) fn init(color: Color) {
    // This is called only once.
    let _ = COLOR.set(color);
}

/// Returns whether to use colours on a stream.
pub(crate) fn colours(stream: &impl IsTerminal) -> bool {
    match COLOR.get().copied().unwrap_or_default() {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
            stream.is_terminal()
                && !set("NO_COLOR")
                && env::var_os("TERM").is_none_or(|term| term != "dumb")
        }
    }
}

/// Returns the number of characters per line of standard output: the terminal's width, COLUMNS, or
/// 80.
pub(crate) fn width() -> usize {
    let stdout = io::stdout();
    let of_terminal = || tcgetwinsize(&stdout).ok().map(|size| usize::from(size.ws_col));
    let of_environment = || env::var("COLUMNS").ok()?.parse().ok();
    let known = |width: &usize| *width > 0;
    of_terminal().filter(known).or_else(|| of_environment().filter(known)).unwrap_or(DEFAULT_WIDTH)
}
