//! What is known from elsewhere.

/// "Our algorithms correctly identify 80% of the prefixes with heavy packet reordering using
/// moderate memory resources" (§1.4), in percent. On traces of a campus and a backbone; with how
/// many buckets is in the missing chapter.
pub(super) const RECALL: f64 = 80.0;

/// What this project wants of both recall and precision with 2^8 buckets, in percent.
pub(super) const TARGET: f64 = 80.0;
