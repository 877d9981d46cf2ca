//! Benchmarks and paper reproductions.
//!
//! - [`whll`]: the accuracy tables and figures of the W-HLL thesis (chapter 4);
//! - `packet`, `scale`, `peers`: what counting costs in user space, stage by stage, as traffic grows, and next to others (Linux);
//! - `line_rate`: the highest rate of a port without loss (Linux);
//! - `xdp`: what counting costs in the kernel (Linux);
//! - [`figure`], `turns`, [`machine`]: figures and promises, programs that take turns, and where they ran;
//! - [`report`]: reports with tables and plots, for every reproduction;
//! - [`parallel`] and [`statistics`]: repeated experiments, and what they have in common.

mod error;
pub mod figure;
pub mod findings;
#[cfg(target_os = "linux")]
pub mod line_rate;
pub mod machine;
#[cfg(target_os = "linux")]
pub mod packet;
pub mod parallel;
#[cfg(target_os = "linux")]
pub mod peers;
pub mod report;
#[cfg(target_os = "linux")]
pub mod scale;
pub mod statistics;
#[cfg(target_os = "linux")]
pub mod turns;
pub mod whll;
#[cfg(target_os = "linux")]
pub mod xdp;

pub use error::ReproduceError;
