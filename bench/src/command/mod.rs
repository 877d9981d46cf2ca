//! Commands of this program. `flowgauge` declares and checks their options and passes them on.

pub(crate) mod bench;
pub(crate) mod reproduce;
