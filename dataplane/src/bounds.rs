//! Usual ranges of entropies, for a dataplane that watches one itself.

use flowgauge_core::KeyKind;

/// Usual range of a key's entropy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Key of the entropy.
    pub key: KeyKind,
    /// Lower end of the range, in bits.
    pub lowest: f64,
    /// Upper end of the range, in bits.
    pub highest: f64,
}
