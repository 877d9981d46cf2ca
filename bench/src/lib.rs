//! Benchmarks and paper reproductions.
//!
//! Benchmarks compare programs that take turns in one run (`turns`), so that ratios hold although
//! times vary; results are collected in `findings::Findings`, checked against limits ([`figure`])
//! and printed with a description of the [`machine`]. Reproductions run the dataplane and the
//! controller in trace time, in parallel ([`parallel`]), compare the results with a paper's
//! figures, and write a page with tables and plots ([`report`]).
//!
//! - [`whll`]: accuracy tables and figures of the W-HLL thesis (chapter 4);
//! - [`p4log`], [`p4exp`], [`p4entropy`]: figures of the P4Entropy paper (sections V and VI);
//! - [`rap`]: shares of the true top flows that RAP and others find, and the theorem of chapter 4
//!   of the data-plane performance dissertation;
//! - [`fridge`]: distributions of round-trip delays, chapter 2 of the same dissertation;
//! - [`reorder`]: prefixes that reorder packets, chapter 3 of the same dissertation;
//! - [`spread`]: keys with the most distinct others, as SpreadSketch is evaluated;
//! - [`papers`]: all numbers of the documents next to ours;
//! - [`trace`]: captures in the place of generated traffic, for most of these;
//! - [`delay_loads`]: delays among other packets, such as requests that an adversary repeats;
//! - `packet`, `scale`, `peers`: cost of counting in user space, stage by stage, as traffic grows,
//!   and compared with others (Linux);
//! - `line_rate`: highest rate of a port without loss (Linux);
//! - `xdp`: cost of counting in the kernel (Linux);
//! - [`sensitivity`]: errors as functions of a parameter;
//! - [`statistics`]: statistics of repeated experiments.

pub mod delay_loads;
mod error;
pub mod figure;
mod filters;
pub mod findings;
pub mod fridge;
#[cfg(target_os = "linux")]
pub mod line_rate;
#[cfg(target_os = "linux")]
mod live;
pub mod machine;
pub mod numbers;
pub mod p4entropy;
pub mod p4exp;
pub mod p4log;
#[cfg(target_os = "linux")]
pub mod packet;
pub mod papers;
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
pub mod spread;
pub mod statistics;
#[cfg(target_os = "linux")]
mod testpmd;
pub mod trace;
#[cfg(target_os = "linux")]
pub mod turns;
pub mod whll;
#[cfg(target_os = "linux")]
pub mod xdp;

pub use error::ReproduceError;
