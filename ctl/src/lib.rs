//! The flowgauge controller: when to read a dataplane, what its registers mean, and where the
//! results go.
//!
//! # The way of a window
//! 1. The [`schedule`] says what is due next: a read inside the window, at a random (Poisson) time,
//!    or the end of the window.
//! 2. The [`controller`] waits for it on a [`clock`], and samples or rotates the dataplane. A call
//!    that failed for the moment is repeated; the window stays open until it works.
//! 3. Each [`measurement`] that is on makes a report of the bank: an estimate with its 95 %
//!    interval.
//! 4. Counters, losses and reports are a [`record`], which goes to every
//!    [`Sink`](controller::Sink): [`output`] has a table, CSV and JSON lines.
//!
//! # Where to look
//! [`controller`] is the loop; [`measurement`] has a folder for each measurement, with its
//! estimator; [`flow`] writes flow keys as text. [`Counter`] counts distinct flows in a program of
//! your own, without a dataplane:
//!
//! ```
//! let mut counter = flowgauge_ctl::Counter::new(flowgauge_ctl::KeyKind::Src);
//! counter.add(&[0; 60]);
//! println!("{:.0} flows", counter.estimate().value);
//! ```

#![cfg_attr(
    not(all(feature = "grpc", feature = "lake", feature = "otlp", feature = "report")),
    allow(dead_code, unreachable_pub, reason = "features that are off use it")
)]

pub mod alert;
pub mod clock;
pub mod controller;
pub mod counter;
mod field;
pub mod figure;
pub mod flow;
pub mod identity;
mod kind;
#[cfg(feature = "lake")]
pub mod lake;
mod ledger;
pub mod measurement;
mod number;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod output;
pub mod record;
mod row;
pub mod schedule;
pub mod serve;
mod text;
mod united;
mod unopened;

pub use clock::{Clock, Woken};
pub use controller::{ControlError, Controller, Summary};
pub use counter::Counter;
pub use flowgauge_core::KeyKind;
pub use ledger::Ledger;
pub use record::Record;
pub use schedule::Schedule;
