//! Options of commands that verify which host wrote a row of a lake.

use crate::config::value;
use crate::error::CommandFailure;
use clap::Args;
use flowgauge_ctl::lake::signature::{Trust, Untrusted, Verification};
use std::path::PathBuf;
use std::sync::Arc;

/// Hosts whose rows are believed.
#[derive(Args)]
#[group(skip)]
pub(crate) struct TrustOptions {
    /// Take only rows that their host has signed with its key in this file; one host a line, as
    /// `flowgauge lake key` prints it
    #[arg(long, value_name = "FILE")]
    trust: Option<PathBuf>,
}

/// As [`TrustOptions`], with what becomes of other rows.
#[derive(Args)]
#[group(skip)]
pub(crate) struct VerificationOptions {
    #[command(flatten)]
    trust: TrustOptions,

    /// Rows that their host has not signed: refuse, or drop them
    #[arg(long, value_name = "HOW", value_parser = value::untrusted, default_value = "refuse", requires = "trust")]
    untrusted: Untrusted,
}

impl TrustOptions {
    /// Reads the list of hosts; `None` if all are believed.
    pub(crate) fn read(&self) -> Result<Option<Arc<Trust>>, CommandFailure> {
        let Some(path) = &self.trust else { return Ok(None) };
        let trust = Trust::read(path).map_err(|error| {
            CommandFailure::Failed(format!("cannot read --trust {}: {error}", path.display()))
        })?;
        Ok(Some(Arc::new(trust)))
    }
}

impl VerificationOptions {
    /// Reads the list of hosts; `None` if all are believed.
    pub(crate) fn read(&self) -> Result<Option<Verification>, CommandFailure> {
        let untrusted = self.untrusted;
        Ok(self.trust.read()?.map(|trust| Verification { trust, untrusted }))
    }
}
