//! Benchmarks and paper reproductions.
//!
//! - [`whll`]: the accuracy tables and figures of the W-HLL thesis (chapter 4);
//! - [`p4log`], [`p4exp`], [`p4entropy`]: the figures of the P4Entropy paper (sections V and VI);
//! - [`rap`]: shares of the true top flows that RAP and others hold, and the theorem of chapter 4
//!   of the data-plane performance dissertation;
//! - [`fridge`]: distributions of round-trip delays, chapter 2 of the same dissertation;
//! - [`reorder`]: prefixes that reorder packets, chapter 3 of the same dissertation;
//! - `packet`, `scale`, `peers`: what counting costs in user space, stage by stage, as traffic
//!   grows, and next to others (Linux);
//! - `line_rate`: the highest rate of a port without loss (Linux);
//! - `xdp`: what counting costs in the kernel (Linux);
//! - [`figure`], `turns`, [`machine`]: figures and promises, programs that take turns, and where
//!   they ran;
//! - [`report`]: reports with tables and plots, for every reproduction;
//! - [`sensitivity`]: errors as functions of a parameter;
//! - [`parallel`] and [`statistics`]: repeated experiments, and what they have in common.

mod error;
pub mod figure;
pub mod findings;
pub mod fridge;
#[cfg(target_os = "linux")]
pub mod line_rate;
#[cfg(target_os = "linux")]
mod live;
pub mod machine;
pub mod p4entropy;
pub mod p4exp;
pub mod p4log;
#[cfg(target_os = "linux")]
pub mod packet;
pub mod parallel;
#[cfg(target_os = "linux")]
pub mod peers;
#[cfg(target_os = "linux")]
mod ports;
pub mod rap;
pub mod reorder;
pub mod report;
#[cfg(target_os = "linux")]
pub mod scale;
pub mod sensitivity;
pub mod statistics;
#[cfg(target_os = "linux")]
mod testpmd;
#[cfg(target_os = "linux")]
pub mod turns;
pub mod whll;
#[cfg(target_os = "linux")]
pub mod xdp;

pub use error::ReproduceError;
