//! `flowgauge lake`: what a directory or object store with a lake needs now and then.

use crate::error::CommandFailure;
use crate::value;
use clap::{Args, Subcommand};
use flowgauge_ctl::lake::compact::{Compaction, CompactionResult};
use flowgauge_ctl::output::{escaped, grouped};
use std::io::{self, Write};
use std::path::PathBuf;

/// Look after a lake
#[derive(Args)]
pub(crate) struct Lake {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Compact(Compact),
}

/// Join the files of each hour into few, with the same rows.
///
/// Agents may write meanwhile. If a compaction was killed, the next one joins those hours again. Run
/// one at a time.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge lake compact /srv/lake
  flowgauge lake compact s3://telemetry/lake --before today")]
struct Compact {
    /// The directory or URL of the lake
    #[arg(value_name = "LAKE")]
    lake: PathBuf,

    /// Only hours that ended before this time
    #[arg(long, value_name = "TIME", value_parser = value::time, default_value = "1h")]
    before: u64,
}

impl Lake {
    pub(crate) fn execute(self) -> Result<(), CommandFailure> {
        match self.command {
            Command::Compact(compact) => compact.execute(),
        }
    }
}

impl Compact {
    fn execute(self) -> Result<(), CommandFailure> {
        let lake = Compaction::open(&self.lake)?;
        let hours = lake.hours(self.before).map_err(|error| {
            CommandFailure::Failed(format!("cannot list {}: {error}", self.lake.display()))
        })?;
        let (mut out, mut failed) = (io::stdout().lock(), 0);
        hours.problems.iter().for_each(|problem| tracing::error!("{problem}"));
        for (partition, names) in &hours.ready {
            match lake.join(partition, names) {
                Ok(CompactionResult { files: (before, after), rows, twice, .. }) => {
                    let twice = if twice > 0 {
                        format!(", {} that were there twice are left out", grouped(twice))
                    } else {
                        String::new()
                    };
                    let (before, after, rows) = (grouped(before), grouped(after), grouped(rows));
                    writeln!(
                        out,
                        "{}: {before} files are {after} now, with {rows} windows{twice}",
                        escaped(partition)
                    )
                    .map_err(CommandFailure::output)?;
                }
                Err(error) => {
                    failed += 1;
                    tracing::error!("{partition} stays as it is: {error}");
                }
            }
        }
        if failed > 0 {
            return Err(CommandFailure::Failed(format!(
                "{failed} of {} hours could not be joined",
                hours.ready.len()
            )));
        }
        if !hours.problems.is_empty() {
            return Err(CommandFailure::Failed(format!(
                "{} has entries that no lake has, which are named above and stay as they are",
                self.lake.display()
            )));
        }
        Ok(())
    }
}
