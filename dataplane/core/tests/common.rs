//! Fixtures of several modules.

use flowgauge_core::Tabulation;
use std::sync::OnceLock;

/// Returns the tables of seed 1, which are too large for a stack.
pub(crate) fn tabulation() -> &'static Tabulation {
    static TABULATION: OnceLock<Box<Tabulation>> = OnceLock::new();
    TABULATION.get_or_init(|| Box::new(Tabulation::from_seed(1)))
}
