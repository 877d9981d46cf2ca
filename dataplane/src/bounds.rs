//! What entropies usually are, for a dataplane that watches one itself.

use flowgauge_core::KeyKind;

/// Between which bits the entropy by a key is usual.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// The entropy's key.
    pub key: KeyKind,
    /// Bits below which it is unusual.
    pub lowest: f64,
    /// Bits above which it is unusual.
    pub highest: f64,
}
