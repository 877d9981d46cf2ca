//! Tests of the benchmarks as a program.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[cfg(target_os = "linux")]
mod line_rate;
mod program;
