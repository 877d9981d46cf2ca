//! Dataplanes: where packets are counted, behind one trait.
//!
//! A [`Dataplane`] counts packets in two banks. One bank is active and counts; the other is closed,
//! read and cleared. The controller (crate `flowgauge-ctl`) calls the trait and knows no backend:
//! what a backend can do is in its [`Capabilities`].
//!
//! # The way of a window
//! 1. [`install`](Dataplane::install) hands over the [`Tables`] that hashes take, and starts
//!    counting.
//! 2. [`sample`](Dataplane::sample) reads the active bank while it counts.
//! 3. [`rotate`](Dataplane::rotate) makes the other bank active, waits until no packet is counted
//!    in the old one, and returns it as a [`Snapshot`]. A snapshot is the sum over all cores and
//!    places, and it looks the same whatever the backend.
//! 4. [`published`](Dataplane::published) says that the window is printed; until then a backend may
//!    keep the bank.
//!
//! # Where to look
//! - [`poll`]: worker threads of this process; their [ports](poll::port) are captures, generators,
//!   AF_XDP and DPDK;
//! - [`xdp`]: programs in the kernel, at an interface (Linux);
//! - [`tofino`]: a switch that runs `p4/flowgauge.p4`;
//! - [`middleware`]: dataplanes around a dataplane, which record its answers or inject faults;
//! - [`capture`]: capture file formats; [`traffic`]: generated packets; [`send`]: what packets
//!   leave through;
//! - crate `flowgauge-core`: what one packet does to a bank; workers and the kernel run the same
//!   code.
//!
//! `examples/backend.rs` is a backend outside this crate. Every backend passes the suite in
//! `tests/conformance`.

mod bounds;
pub mod capabilities;
pub mod capture;
pub mod error;
pub mod hash_key;
#[cfg(target_os = "linux")]
mod interface;
pub mod losses;
pub mod middleware;
mod place;
pub mod poll;
mod poll_mode;
mod sampled;
pub mod send;
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
    mod options;
    mod slot;

    pub use options::{Fec, Options, Port, Speed, Tls};
    pub use slot::{SLOT_BITS, nearest_slot, slot_bits};
}
pub mod traffic;
#[cfg(target_os = "linux")]
pub mod xdp;

pub use bounds::Bounds;
pub use capabilities::{Capabilities, Clock};
pub use error::Error;
pub use flowgauge_core::MeasurementKind;
pub use hash_key::HashKey;
#[cfg(target_os = "linux")]
pub use interface::netlink;
pub use losses::{LossCause, Losses};
pub use place::{Direction, Place};
pub use poll::Poll;
pub use snapshot::{Adopted, DelaySample, Part, Snapshot, Truth};
pub use status::Status;
pub use tables::Tables;
pub use tally::Tally;
#[cfg(feature = "tofino")]
pub use tofino::Tofino;
#[cfg(target_os = "linux")]
pub use xdp::Xdp;

use flowgauge_core::delay::{Admission, Kind};
use flowgauge_core::{KeyKind, Settings};

/// Something that counts packets.
///
/// # Exactness
/// Over any number of rotations the packet counts of the closed banks, plus that of the last active
/// bank, add up to the packets that entered: no gap, no double count, failed calls included.
///
/// # Failure
/// A call that fails with a [transient](Error::is_transient) error may be repeated. A repeated
/// `rotate` finishes the rotation that was begun instead of beginning another. A failed read is an
/// error, never a zero.
pub trait Dataplane: Send {
    /// What this dataplane can do.
    fn capabilities(&self) -> &Capabilities;

    /// What it measures and how; whoever else needs to know asks here. Constant.
    fn settings(&self) -> &Settings;

    /// Installs the match tables and starts counting, or takes over what an earlier process left
    /// counting. Called once, before anything else.
    ///
    /// # Errors
    /// [`Error::Table`] if the tables do not fit the settings, [`Error::AlreadyStarted`] on a
    /// second call.
    fn install(&mut self, tables: &Tables) -> Result<Option<Adopted>, Error>;

    /// The active bank as it stands now; counting goes on.
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

    /// The answer of the last rotation was published as the window of this number. Until then a
    /// dataplane that outlives its process keeps the closed bank, so that whoever
    /// [takes over](Self::install) can publish it. A new rotation implies it.
    ///
    /// # Errors
    /// Backend failures.
    fn published(&mut self, window: u64) -> Result<(), Error>;

    /// What happened since the last call.
    ///
    /// # Errors
    /// Backend failures.
    fn events(&mut self) -> Result<Vec<Event>, Error>;

    /// Every packet known to have been lost before it could be counted, since the start, by cause.
    ///
    /// # Errors
    /// Backend failures.
    fn losses(&mut self) -> Result<Losses, Error>;

    /// Packets that devices received up to the last rotation, by counters of their own. Since
    /// counting began, or, if it is not known what they had received then, since the last call that
    /// gave nothing. What they lost is among them, and what flowgauge was not asked to count is
    /// not. Called after [`losses`](Self::losses), so that nothing is lost that was not received.
    /// Nothing where no device tells.
    ///
    /// # Errors
    /// Backend failures.
    fn received(&mut self) -> Result<Option<Tally>, Error> {
        Ok(None)
    }

    /// Delays one by one of the open window, if
    /// [settings](flowgauge_core::delay::Settings::samples) ask for them: those that came since the
    /// last call. The rest of them is in the [snapshot](Snapshot::delays) that closes the window.
    /// There is room for so many; what finds none is counted in the bank.
    ///
    /// # Errors
    /// Backend failures.
    fn delays(&mut self) -> Result<Vec<DelaySample>, Error> {
        Ok(Vec::new())
    }

    /// Sets which requests the window after the open one admits, kind by kind, if
    /// [settings](flowgauge_core::delay::Settings::follows) have shares follow the traffic. Until
    /// it is called again, windows take turns with what they have. Call it between rotations.
    ///
    /// # Errors
    /// [`Error::NotStarted`] before [`install`](Self::install); backend failures.
    fn admit(&mut self, admissions: &[(Kind, Admission)]) -> Result<(), Error> {
        let _ = admissions;
        Ok(())
    }

    /// Sets between which bits entropies are usual at any time of a window, for a dataplane that
    /// [watches](Capabilities::watches_from) one of them. It tells by [`Event::Crossed`], once a
    /// window. Before the first call nothing is unusual. Call it between rotations.
    ///
    /// # Errors
    /// [`Error::NotStarted`] before [`install`](Self::install); backend failures.
    fn watch(&mut self, bounds: &[Bounds]) -> Result<(), Error> {
        let _ = bounds;
        Ok(())
    }

    /// How it is doing, as far as it knows without asking anyone: takes no time.
    fn status(&self) -> Status {
        Status::default()
    }
}

impl<D: Dataplane + ?Sized> Dataplane for Box<D> {
    fn capabilities(&self) -> &Capabilities {
        (**self).capabilities()
    }

    fn settings(&self) -> &Settings {
        (**self).settings()
    }

    fn install(&mut self, tables: &Tables) -> Result<Option<Adopted>, Error> {
        (**self).install(tables)
    }

    fn sample(&mut self) -> Result<Snapshot, Error> {
        (**self).sample()
    }

    fn rotate(&mut self) -> Result<Snapshot, Error> {
        (**self).rotate()
    }

    fn published(&mut self, window: u64) -> Result<(), Error> {
        (**self).published(window)
    }

    fn events(&mut self) -> Result<Vec<Event>, Error> {
        (**self).events()
    }

    fn losses(&mut self) -> Result<Losses, Error> {
        (**self).losses()
    }

    fn received(&mut self) -> Result<Option<Tally>, Error> {
        (**self).received()
    }

    fn delays(&mut self) -> Result<Vec<DelaySample>, Error> {
        (**self).delays()
    }

    fn admit(&mut self, admissions: &[(Kind, Admission)]) -> Result<(), Error> {
        (**self).admit(admissions)
    }

    fn watch(&mut self, bounds: &[Bounds]) -> Result<(), Error> {
        (**self).watch(bounds)
    }

    fn status(&self) -> Status {
        (**self).status()
    }
}

/// Something a dataplane reports of its own accord.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The source of packets is exhausted: all were counted, no more will come.
    TrafficEnded,
    /// Something is wrong with the traffic's source; what could be read was counted. One line, for
    /// the operator.
    Warning(String),
    /// Something happened that the operator should know of, and nothing is missing. One line.
    Notice(String),
    /// The entropy by this key has left its [bounds](Dataplane::watch) in the window that is open.
    Crossed(KeyKind),
}
