//! `flowgauge lake`: maintenance of a lake in a directory or object store.

use crate::config::options::outputs::host;
use crate::config::secrets;
use crate::config::value;
use crate::error::{CommandFailure, cannot, fail};
use clap::{Args, Subcommand};
use flowgauge_ctl::lake::compact::{Compaction, CompactionResult};
use flowgauge_ctl::lake::signature::{SigningKey, Trust};
use flowgauge_ctl::output::{escaped, grouped};
use flowgauge_dataplane::files::{self, PRIVATE_MODE};
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// Look after a lake
#[derive(Args)]
pub(crate) struct Lake {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Compact(Compact),
    Key(Key),
}

/// Join the files of each hour into few, with the same rows.
///
/// With --trust, an hour with any other row stays as it is. Agents may write meanwhile. If a
/// compaction was killed, the next one joins those hours again. Run one at a time.
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

    #[command(flatten)]
    trust: TrustOptions,
}

/// Hosts whose rows are believed.
#[derive(Args)]
#[group(skip)]
pub(crate) struct TrustOptions {
    /// Take only rows that their host has signed with its key in this file; one host a line, as
    /// `flowgauge lake key` prints it
    #[arg(long, value_name = "FILE")]
    trust: Option<PathBuf>,
}

/// Create the private key that signs a host's rows, and print its line for --trust.
///
/// Give the file to `run --lake-key` on this host, and keep it there. The line that is printed has
/// the name of the host and the public key, for the file of `merge --trust`.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge lake key /etc/flowgauge/lake.key
  flowgauge lake key /etc/flowgauge/lake.key --existing --host paris >> trust")]
struct Key {
    /// File to create, for its owner only
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print the line of a key that exists, such as one of openssl genpkey -algorithm ed25519
    #[arg(long)]
    existing: bool,

    /// Name of this host in rows, as of run --host [default: FLOWGAUGE_HOST, or the host name]
    #[arg(long, value_name = "NAME", value_parser = value::host)]
    host: Option<String>,
}

impl TrustOptions {
    /// Reads the list of hosts; `None` if all are believed.
    pub(crate) fn read(&self) -> Result<Option<Arc<Trust>>, CommandFailure> {
        let Some(path) = &self.trust else { return Ok(None) };
        let trust = Trust::read(path);
        let trust = trust.map_err(cannot(format_args!("read --trust {}", path.display())))?;
        Ok(Some(Arc::new(trust)))
    }
}

impl Key {
    fn execute(self) -> Result<(), CommandFailure> {
        let host = host(self.host)?;
        let key = if self.existing {
            secrets::signing_key(&self.file)?
        } else {
            secrets::protect();
            let failed = |error: io::Error| {
                let hint = if error.kind() == ErrorKind::AlreadyExists {
                    "; --existing prints the line of a key that exists"
                } else {
                    ""
                };
                let path = self.file.display();
                CommandFailure::Failed(format!("cannot create {path}: {error}{hint}"))
            };
            let (key, pem) = SigningKey::create().map_err(failed)?;
            let mut file = files::create_new(&self.file, PRIVATE_MODE).map_err(failed)?;
            file.write_all(pem.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
            key
        };
        writeln!(io::stdout(), "{host} {}", key.public()).map_err(CommandFailure::output)
    }
}

impl Lake {
    pub(crate) fn execute(self) -> Result<(), CommandFailure> {
        match self.command {
            Command::Compact(compact) => compact.execute(),
            Command::Key(key) => key.execute(),
        }
    }
}

impl Compact {
    fn execute(self) -> Result<(), CommandFailure> {
        let lake = Compaction::open(&self.lake, self.trust.read()?)?;
        let hours = lake.hours(self.before);
        let hours = hours.map_err(cannot(format_args!("list {}", self.lake.display())))?;
        let (mut out, mut failed) = (io::stdout().lock(), 0);
        hours.problems.iter().for_each(|problem| tracing::error!("{problem}"));
        for (partition, names) in &hours.ready {
            match lake.join(partition, names) {
                Ok(CompactionResult { files, rows, twice }) => {
                    let twice = if twice > 0 {
                        format!(", {} that were there twice are left out", grouped(twice))
                    } else {
                        String::new()
                    };
                    let before = grouped(names.len() as u64);
                    let (after, rows) = (grouped(files), grouped(rows));
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
            return fail(format!("{failed} of {} hours could not be joined", hours.ready.len()));
        }
        if !hours.problems.is_empty() {
            return fail(format!(
                "{} has entries that no lake has, which are named above and stay as they are",
                self.lake.display()
            ));
        }
        Ok(())
    }
}
