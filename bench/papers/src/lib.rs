//! Paper reproductions: the experiments of papers, repeated with the dataplane and the controller in
//! trace time, several at a time (`parallel`).
//!
//! A module for each paper has its experiments; their results become a `report::Report` with the
//! paper's figures next to ours. [`reproduce`] is the command.
//!
//! - `whll`: accuracy tables and figures of the W-HLL thesis (chapter 4);
//! - `p4log`, `p4exp`, `p4entropy`: figures of the P4Entropy paper (sections V and VI), errors
//!   as functions of a parameter (`sensitivity`);
//! - `rap`: shares of the true top flows that RAP and others find, and the theorem of chapter 4
//!   of the data-plane performance dissertation;
//! - `fridge`: distributions of round-trip delays, chapter 2 of the same dissertation;
//! - `reorder`: prefixes that reorder packets, chapter 3 of the same dissertation;
//! - `spread`: keys with the most distinct others, as SpreadSketch is evaluated;
//! - `documents`: all numbers that the documents print, next to ours;
//! - `trace`: captures in the place of generated traffic, for most of these;
//! - `statistics`: statistics of repeated experiments, and results by name.

mod command;
mod documents;
mod error;
mod fridge;
mod p4entropy;
mod p4exp;
mod p4log;
mod parallel;
mod rap;
mod reorder;
pub mod report;
mod sensitivity;
mod spread;
mod statistics;
mod trace;
mod whll;

pub use command::reproduce;
pub use documents::printed;
pub use error::ReproduceError;
pub use statistics::median;
