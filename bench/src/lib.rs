//! Benchmarks.
//!
//! They compare programs that take turns in one run (`turns`), so that ratios hold although times
//! vary; results are collected in [`findings`], checked against limits and printed with a description
//! of the [`machine`]. Tables and pages are those of `flowgauge-papers`.
//!
//! - `packet`, `scale`, `peers`: cost of counting in user space, stage by stage, as traffic grows,
//!   and compared with others (Linux);
//! - `line_rate`: highest rate of a port without loss (Linux);
//! - `xdp`: cost of counting in the kernel (Linux).

pub mod findings;
#[cfg(target_os = "linux")]
pub mod line_rate;
#[cfg(target_os = "linux")]
mod live;
pub mod machine;
#[cfg(target_os = "linux")]
pub mod packet;
#[cfg(target_os = "linux")]
pub mod peers;
#[cfg(target_os = "linux")]
mod ports;
#[cfg(target_os = "linux")]
pub mod scale;
#[cfg(target_os = "linux")]
mod testpmd;
#[cfg(target_os = "linux")]
mod turns;
#[cfg(target_os = "linux")]
mod workload;
#[cfg(target_os = "linux")]
pub mod xdp;
