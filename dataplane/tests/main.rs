//! Tests of the backends: the conformance suite, and what is particular to each.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
#![allow(unreachable_pub, reason = "nothing is reachable in a test program")]

#[cfg(target_os = "linux")]
mod af_xdp;
#[cfg(target_os = "linux")]
mod captured_delays;
#[cfg(target_os = "linux")]
mod clsact;
mod common;
mod conformance;
mod delay_samples;
#[cfg(feature = "dpdk")]
mod dpdk;
#[cfg(target_os = "linux")]
mod hooks;
#[cfg(target_os = "linux")]
mod ledger;
#[cfg(target_os = "linux")]
mod link_layers;
#[cfg(target_os = "linux")]
mod live_frames;
mod middleware;
#[cfg(target_os = "linux")]
mod offloads;
mod poll;
#[cfg(target_os = "linux")]
mod relay;
#[cfg(target_os = "linux")]
mod round_trips;
#[cfg(target_os = "linux")]
mod sets;
#[cfg(target_os = "linux")]
mod super_packets;
mod tofino;
#[cfg(target_os = "linux")]
mod xdp;
