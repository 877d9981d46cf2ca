//! The dissertation's claim, and the target of this project.

/// "Our algorithms correctly identify 80% of the prefixes with heavy packet reordering using
/// moderate memory resources" (§1.4), in percent. Measured on traces of a campus and a backbone;
/// the number of buckets is in chapter 3, which is not at hand.
pub(super) const RECALL: f64 = 80.0;

/// Target of this project for recall and precision with 2^8 buckets, in percent.
pub(super) const TARGET: f64 = 80.0;
