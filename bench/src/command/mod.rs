//! The commands of this program: their options are explained and checked by `flowgauge`, which
//! hands them over.

pub(crate) mod bench;
pub(crate) mod reproduce;
