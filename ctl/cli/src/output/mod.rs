//! What the command writes, other than the formats of records (`flowgauge_ctl::output`).
//!
//! `writers` write records to standard output and to files, `listen` serves and exports them, and
//! `status` answers the other commands on this machine. `new_file` is the file of a command that
//! ends with one. On standard error, `messages` writes the log and `progress` a bar; `terminal`
//! knows the width and the colours.

#[cfg_attr(not(feature = "serve"), path = "no_listen.rs")]
pub(crate) mod listen;
pub(crate) mod messages;
pub(crate) mod new_file;
pub(crate) mod progress;
pub(crate) mod status;
pub(crate) mod terminal;
pub(crate) mod writers;

use crate::error::CommandFailure;
use std::io::{self, BufWriter, StdoutLock, Write};

/// Writes the results of a command to standard output.
pub(crate) fn print(
    write: impl FnOnce(&mut BufWriter<StdoutLock<'static>>) -> io::Result<()>,
) -> Result<(), CommandFailure> {
    let mut out = BufWriter::new(io::stdout().lock());
    write(&mut out).and_then(|()| out.flush()).map_err(CommandFailure::output)
}
