//! Benchmarks and paper reproductions.
//!
//! - [`whll`]: the accuracy tables and figures of the W-HLL thesis (chapter 4);
//! - `xdp`: what counting costs in the kernel (Linux);
//! - [`report`]: reports with tables and plots, for every reproduction;
//! - [`parallel`] and [`statistics`]: repeated experiments, and what they have in common.

mod error;
pub mod parallel;
pub mod report;
pub mod statistics;
pub mod whll;
#[cfg(target_os = "linux")]
pub mod xdp;

pub use error::ReproduceError;
