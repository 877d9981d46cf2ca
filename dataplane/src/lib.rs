//! Dataplanes: the backends that count packets, behind one trait.
//!
//! A [`Dataplane`] counts packets in two banks. One bank is active and counts; the other is closed,
//! read and cleared. The controller (crate `flowgauge-ctl`) calls the trait and knows no backend:
//! what a backend can do is in its [`Capabilities`].
//!
//! # Lifecycle of a window
//! 1. [`install`](Dataplane::install) hands over the [`Tables`] that hashes take, and starts
//!    counting.
//! 2. [`sample`](Dataplane::sample) reads the active bank while it counts.
//! 3. [`rotate`](Dataplane::rotate) makes the other bank active, waits until no packet is counted
//!    in the old one, and returns it as a [`Snapshot`]. A snapshot is the sum over all cores and
//!    places, and it looks the same whatever the backend.
//! 4. [`published`](Dataplane::published) confirms that the window is printed; until then a
//!    backend may retain the bank.
//!
//! # Where to look
//! - [`poll`]: worker threads of this process; their [ports](poll::port) are captures, AF_XDP,
//!   DPDK and frames in memory;
//! - [`xdp`]: programs in the kernel, at an interface (Linux);
//! - [`tofino`]: a switch that runs `p4/flowgauge.p4`;
//! - [`middleware`]: wrappers of a dataplane that log its calls or inject faults;
//! - [`capture`]: capture file formats; [`Outlet`](poll::port::Outlet): transmission;
//! - crate `flowgauge-core`: what one packet does to a bank; workers and the kernel run the same
//!   code.
//!
//! `examples/backend.rs` is a backend outside this crate. Every backend passes the suite in
//! `tests/conformance`.

pub mod allocator;
pub mod capabilities;
pub mod capture;
mod delay_samples;
pub mod error;
pub mod files;
mod flow_counts;
pub mod hash_key;
mod interface;
pub mod losses;
pub mod middleware;
pub mod open_files;
mod place;
pub mod poll;
pub mod snapshot;
mod spares;
pub mod status;
pub mod tables;
mod tally;
#[cfg(feature = "tofino")]
pub mod tofino;
/// Options of switches, which this build has no backend for.
#[cfg(not(feature = "tofino"))]
pub mod tofino {
    mod limits;
    mod options;

    pub use limits::unmatchable;
    pub use options::{Fec, Options, PortConfig, SLOT_BITS, Speed, Tls, nearest_slot, slot_bits};
}
pub mod xdp;

pub use capabilities::{Bounds, Capabilities, TimestampClock};
pub use error::Error;
pub use flow_counts::{FlowCounts, FlowTraffic};
pub use flowgauge_core::MeasurementKind;
pub use flowgauge_core::delay::DelaySample;
pub use hash_key::{HashKey, HashWords};
pub use interface::netlink;
pub use losses::{LossCause, Losses};
pub use place::{CountingPoint, Direction};
pub use poll::Poll;
pub use snapshot::{Adopted, Part, Snapshot, Truth};
pub use status::Status;
pub use tables::Tables;
pub use tally::CountRange;
#[cfg(feature = "tofino")]
pub use tofino::Tofino;
pub use xdp::Xdp;

use flowgauge_core::delay::{Admission, DelayKind};
use flowgauge_core::{Filter, KeyKind, Settings};
use std::sync::Arc;

/// A backend that counts packets.
///
/// # Exactness
/// Over any number of rotations the packet counts of the closed banks, plus that of the last active
/// bank, add up to the packets that entered: no gap, no double count, failed calls included.
///
/// # Failure
/// A call that fails with a [transient](Error::is_transient) error may be repeated. A repeated
/// `rotate` completes the rotation already in progress. A failed read is an error, never a zero.
#[auto_impl::auto_impl(Box)]
pub trait Dataplane: Send {
    /// Returns the features and limits of this dataplane.
    fn capabilities(&self) -> &Capabilities;

    /// Returns the settings it measures with; they never change.
    fn settings(&self) -> &Settings;

    /// Installs the match tables and starts counting, or takes over what an earlier process left
    /// counting. Called once, before anything else. A dataplane may be configured to start counting
    /// with [`begin`](Self::begin) instead, as by [`Poll::held`].
    ///
    /// # Errors
    /// [`Error::Table`] if the tables do not fit the settings, [`Error::AlreadyStarted`] on a
    /// second call.
    fn install(&mut self, tables: &Tables) -> Result<Option<Adopted>, Error>;

    /// Begins the first window at once: the caller has just read the time of its start. Called once,
    /// after [`install`](Self::install), by callers that know the time. What arrived before is in no
    /// window, unless the dataplane counts from `install` on.
    ///
    /// # Errors
    /// [`Error::NotStarted`] before [`install`](Self::install).
    fn begin(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Returns the current state of the active bank without interrupting it.
    ///
    /// # Errors
    /// [`Error::NotStarted`] before [`install`](Self::install); backend failures.
    fn sample(&mut self) -> Result<Snapshot, Error>;

    /// Makes the other bank active, waits until no packet in flight is counted in the old one,
    /// returns it and clears it.
    ///
    /// # Errors
    /// [`Error::NotStarted`] before [`install`](Self::install); backend failures.
    fn rotate(&mut self) -> Result<Snapshot, Error>;

    /// Confirms that the last rotation's snapshot was published as this window number. Until then,
    /// a dataplane that outlives its process retains the closed bank, so that the process that
    /// [takes over](Self::install) can publish it. A new rotation implies the confirmation.
    ///
    /// # Errors
    /// Backend failures.
    fn published(&mut self, window: u64) -> Result<(), Error>;

    /// Returns the events since the last call.
    ///
    /// # Errors
    /// Backend failures.
    fn events(&mut self) -> Result<Vec<Event>, Error>;

    /// Returns all packets known to have been lost before they could be counted, by cause, since
    /// the start.
    ///
    /// # Errors
    /// Backend failures.
    fn losses(&mut self) -> Result<Losses, Error>;

    /// Returns the packets that devices received up to the last rotation, by the devices' own
    /// counters: since counting began or, if their value at that time is unknown, since the last
    /// call that returned `None`. Includes packets that the devices dropped; excludes packets that
    /// flowgauge was not configured to count. Call it after [`losses`](Self::losses), so that every
    /// loss is among the received packets. `None` if no device has such a counter.
    ///
    /// # Errors
    /// Backend failures.
    fn received(&mut self) -> Result<Option<CountRange>, Error> {
        Ok(None)
    }

    /// Returns the delay samples of the open window since the last call, if
    /// [settings](flowgauge_core::delay::Settings::samples) enable them. The remaining ones are in
    /// the [snapshot](Snapshot::delay_samples) that closes the window. The buffer is limited;
    /// samples that do not fit are counted in the bank.
    ///
    /// # Errors
    /// Backend failures.
    fn delay_samples(&mut self) -> Result<Vec<DelaySample>, Error> {
        Ok(Vec::new())
    }

    /// Sets the request admission of the next window, per kind, if
    /// [settings](flowgauge_core::delay::Settings::follows) let shares follow the traffic. Until
    /// the next call, windows alternate between the admissions they have. Call it between
    /// rotations.
    ///
    /// # Errors
    /// [`Error::NotStarted`] before [`install`](Self::install); backend failures.
    fn admit(&mut self, admissions: &[(DelayKind, Admission)]) -> Result<(), Error> {
        let _ = admissions;
        Ok(())
    }

    /// Sets the usual range of each entropy at any time of a window, for a dataplane that
    /// [watches](Capabilities::watches_from) one itself. It reports [`Event::Crossed`] at most once
    /// a window. Before the first call every value is usual. Call it between rotations.
    ///
    /// # Errors
    /// [`Error::NotStarted`] before [`install`](Self::install); backend failures.
    fn watch(&mut self, bounds: &[Bounds]) -> Result<(), Error> {
        let _ = bounds;
        Ok(())
    }

    /// Sets the filter of packets from the next rotation on; `None` counts all. The open window
    /// keeps its filter. Until the first call it is that of the installed tables. Do not call it
    /// while a rotation that failed has to be repeated.
    ///
    /// # Errors
    /// [`Error::NotStarted`] before [`install`](Self::install); [`Error::Unsupported`] if the
    /// backend has no filter that can change; backend failures.
    fn set_filter(&mut self, filter: Option<&Arc<Filter>>) -> Result<(), Error> {
        let _ = filter;
        Err(Error::Unsupported {
            backend: self.capabilities().backend,
            what: "change the filter (--match) of a run".to_owned(),
            advice: "restart it".to_owned(),
        })
    }

    /// Returns the locally known state, without I/O.
    fn status(&self) -> Status {
        Status::default()
    }
}

/// Something that a dataplane reports unprompted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The packet source is exhausted: all packets were counted, no more will arrive.
    TrafficEnded,
    /// A problem with the packet source; everything readable was counted. One line, for the
    /// operator.
    Warning(String),
    /// Information for the operator; no packets are missing. One line.
    Notice(String),
    /// Default that the dataplane chose, and why; nothing is lost by it. One line, for those who ask.
    Choice(String),
    /// The entropy by this key left its [usual range](Dataplane::watch) in the open window.
    Crossed(KeyKind),
}
