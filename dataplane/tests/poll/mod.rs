//! Tests of the poll-mode backend beyond the conformance suite: captures, generated traffic, and
//! workers that stall or die.

pub mod capture;
mod damage;
mod generated;
mod order;
mod sources;
mod truth;
mod workers;
