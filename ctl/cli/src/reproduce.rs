//! `flowgauge reproduce`: a paper's experiments again.

use crate::error::Failure;
use clap::Args;

/// Repeat a paper's experiments and put its figures beside ours.
#[derive(Args)]
pub(crate) struct Reproduce {}

impl Reproduce {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        Ok(())
    }
}
