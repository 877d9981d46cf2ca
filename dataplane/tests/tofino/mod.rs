//! The Tofino backend with misbehaving switches.
//!
//! The switch is a simulation behind a real server on loopback. Between it and the backend are a
//! proxy that cuts, delays and loses connections, and a service that damages answers.

mod answers;
mod lab;
mod losses;
mod ports;
mod programs;
mod times;
mod tls;
mod windows;
