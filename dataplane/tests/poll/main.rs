//! Tests of the poll-mode backend beyond the conformance suite: captures, generated traffic, and
//! workers that stall or die.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
#![allow(unreachable_pub, reason = "nothing is reachable in a test binary")]

mod capture;
mod damage;
mod generated;
#[path = "../conformance/model.rs"]
#[allow(dead_code, reason = "shared with the conformance suite, which uses the rest")]
mod model;
mod order;
mod reports;
mod sources;
mod workers;
