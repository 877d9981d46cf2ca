//! Tests of parsing, hashes and the memory of each measurement.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod arrival;
mod cardinality;
mod common;
mod delay;
mod entropy;
mod filter;
mod hash;
mod heavy;
mod kernel;
mod logarithm;
mod membership;
mod parse;
mod reorder;
mod sizes;
mod sketch;
mod spread;
mod tunnel;
