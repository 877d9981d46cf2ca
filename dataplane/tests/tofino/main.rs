//! The Tofino backend with misbehaving switches.
//!
//! The switch is a simulation behind a real server on loopback. Between it and the backend are a
//! proxy that cuts, delays and loses connections, and a service that damages answers.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(dead_code, unreachable_pub, reason = "parts shared with other tests")]

#[path = "../support/faults.rs"]
mod faults;
#[path = "../conformance/frames.rs"]
mod frames;
#[path = "../../../p4/bfruntime/tests/support/memory.rs"]
mod memory;
#[path = "../conformance/model.rs"]
mod model;
#[path = "../support/switch.rs"]
mod switch;

mod answers;
mod lab;
mod losses;
mod ports;
mod programs;
mod times;
mod tls;
mod windows;
