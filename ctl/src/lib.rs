//! The flowgauge controller: what happens when, what the registers mean, and where the results go.
//!
//! - [`clock`]: live time, or a capture's own;
//! - [`schedule`]: Poisson reads and drift-free rotations;
//! - [`counter`]: distinct flows in a program of one's own;
//! - [`controller`]: runs a dataplane by a schedule on a clock;
//! - [`measurement`]: one folder a measurement: from registers to numbers with intervals, and what is told of them;
//! - [`flow`]: flow keys as text;
//! - [`record`]: one window, sample or total;
//! - [`output`]: records as a table, CSV or JSON lines.

pub mod clock;
pub mod controller;
pub mod counter;
pub mod flow;
mod kind;
pub mod measurement;
pub mod output;
pub mod record;
pub mod schedule;
mod text;
mod unopened;

pub use clock::{Clock, Woken};
pub use controller::{ControlError, Controller, Summary};
pub use counter::Counter;
pub use flowgauge_core::KeyKind;
pub use record::Record;
pub use schedule::Schedule;
