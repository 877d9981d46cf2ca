//! Tests of the stand-in for a switch as a program.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[cfg(unix)]
mod serve;
#[cfg(target_os = "linux")]
mod wire;
