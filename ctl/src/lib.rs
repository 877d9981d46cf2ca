//! The flowgauge controller: decides when to read a dataplane, turns registers into estimates, and
//! writes the results.
//!
//! # Data flow
//! 1. The [`schedule`] returns what is due next: a sample inside the window, at a random (Poisson)
//!    time, or the end of the window.
//! 2. The [`controller`] waits for it on a [`clock`], and samples or rotates the dataplane. A call
//!    that failed transiently is repeated; the window stays open until it succeeds.
//! 3. Each [`measurement`] that is on computes a report from the bank: estimates with 95 %
//!    intervals.
//! 4. Counters, losses and reports form a [`record`], which is passed to every
//!    [`Sink`](controller::Sink): [`output`] has a table, CSV and JSON lines.
//!
//! # Where to look
//! [`controller`] is the main loop; [`measurement`] has a folder for each measurement, with its
//! estimator; [`flow`] formats flow keys. [`Counter`] counts distinct flows in another program,
//! without a dataplane:
//!
//! ```
//! let mut counter = flowgauge_ctl::Counter::new(flowgauge_ctl::KeyKind::Src);
//! counter.add(&[0; 60]);
//! println!("{:.0} flows", counter.estimate().value);
//! ```

#![cfg_attr(
    not(all(feature = "lake", feature = "report", feature = "serve")),
    allow(dead_code, unreachable_pub, reason = "features that are off use it")
)]

pub mod alert;
pub mod clock;
pub mod controller;
pub mod counter;
mod field;
pub mod figure;
pub mod filter;
pub mod flow;
pub mod history;
pub mod identity;
#[cfg(feature = "report")]
pub mod inventory;
#[cfg(feature = "lake")]
pub mod lake;
mod ledger;
pub mod measurement;
pub mod names;
pub mod nearest;
#[cfg(feature = "serve")]
pub mod otlp;
pub mod output;
pub mod record;
mod row;
pub mod schedule;
#[cfg(feature = "serve")]
pub mod serve;
pub mod status;
mod text;
mod united;

#[cfg(not(feature = "serve"))]
pub mod serve {
    //! Parts of `serve` that a build without servers has: the frame of pages, the page of a
    //! capture, and the sandbox of threads.

    mod fence;
    mod page;
    #[cfg(feature = "report")]
    mod report;

    pub use fence::drop_capabilities;
    pub use page::document;
    #[cfg(feature = "report")]
    pub use report::{Fact, ReportPage};
}

pub use clock::{Clock, WakeReason};
pub use controller::{ControlError, Controller, Summary};
pub use counter::Counter;
pub use flowgauge_core::KeyKind;
pub use ledger::Ledger;
pub use record::Record;
pub use schedule::Schedule;
