//! The Tofino backend: a switch that runs `p4/flowgauge.p4` counts packets, and this process
//! controls it over BFRuntime (gRPC).
//!
//! # Path of a packet
//! The packet stays on the switch. The ingress pipeline parses it, hashes its key, and counts it in
//! the registers of the active bank. The necessary match tables come from [`Tables`].
//!
//! # Lifecycle of a window
//! The default action of one table selects the active bank, so that one write closes a window in
//! all pipes. Packets that read the old number have left the ingress pipeline after
//! [`Options::transit`]. Then the closed bank is read and cleared: the chip copies each register
//! array as a whole, a thousand times faster than reading its elements one by one, and the copy is
//! read. Two conditions are checked: the bank's counters do not change while it is read, and,
//! before the end of every window, the switch counts in the expected bank.
//!
//! # Failure of the switch or the connection
//! Calls have a deadline. Unanswered calls are repeated, and every write is idempotent: a repeated
//! `rotate` continues where it stopped. After a reconnection the switch's tables are compared with
//! the desired ones. If they are equal, nothing was lost. Otherwise the switch was restarted and
//! its counts are lost: the tables are installed again, counting continues in the same window, and
//! its [`Snapshot`] is not [complete](Snapshot::complete).
//!
//! # Where to look
//! `switch`: a switch that counts and its digests, its rotations (`rotation`) and reconnections
//! (`reconnection`); `bank` and `contents`: how banks are read, and how match tables are filled
//! and verified; `session`: one connection, and calls with a deadline; `program`: the switch's
//! program, by its schema; `statement`: the settings it was compiled with; `table`, `array`,
//! `hash`: match tables, registers and hashes, the building blocks of measurements; `filter` and
//! `limits`: expressions, and which of them a switch can match; `entries`: table entries in
//! messages; `ports`: configuration of ports, and the frames they received; `measurement`: one file
//! per measurement; `times`: duration of reads; `names`: names in the P4 source. `p4/model` executes
//! the source, so that tests need no switch.

mod array;
mod bank;
mod contents;
mod entries;
mod filter;
mod hash;
mod limits;
mod measurement;
mod names;
mod options;
mod ports;
mod program;
mod session;
mod statement;
mod status;
mod switch;
mod table;
mod times;

pub use filter::{FilterEntries, filter_entries};
pub use limits::unmatchable;
pub use measurement::{Build, builds, definitions};
pub use options::{Fec, Options, PortConfig, SLOT_BITS, Speed, Tls, nearest_slot, slot_bits};
pub use times::{ReadTimes, TableTimes, read_times};

pub use crate::error::Failure;

use crate::capabilities::Capabilities;
use crate::error::Error;
use crate::losses::Losses;
use crate::snapshot::Snapshot;
use crate::status::Status;
use crate::tables::Tables;
use crate::tally::CountRange;
use crate::{Adopted, Bounds, Dataplane, Event};
use flowgauge_core::delay::{Admission, DelayKind, DelaySample};
use flowgauge_core::{Filter, Settings};
use std::sync::Arc;
use std::time::Duration;
use switch::Switch;
use tokio::runtime::Runtime;

/// The Tofino backend.
pub struct Tofino {
    runtime: Runtime,
    switch: Switch,
}

impl Tofino {
    /// Connects to a switch and checks its program. Counting starts once tables are installed.
    ///
    /// # Errors
    /// [`Error::Switch`] if the switch cannot be reached, or its program does not match the
    /// settings.
    pub fn connect(options: Options, settings: Settings) -> Result<Self, Error> {
        let target = options.address.clone();
        let connect = || {
            let runtime = session::runtime()?;
            let switch = runtime.block_on(Switch::connect(options, settings))?;
            Ok(Tofino { runtime, switch })
        };
        connect().map_err(|failure| Error::Switch { operation: "connect", target, failure })
    }

    /// Pretends, for tests, that the last read of staggered registers was `by` earlier, to test
    /// wrap-arounds that take hours.
    #[doc(hidden)]
    pub fn age(&mut self, by: Duration) {
        self.switch.age(by);
    }

    /// Sets the maximum duration of later calls.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.switch.set_deadline(deadline);
    }

    /// Carries out an operation of a switch that counts.
    fn operate<T>(
        &mut self,
        operation: &'static str,
        call: impl AsyncFnOnce(&mut Switch) -> Result<T, Failure>,
    ) -> Result<T, Error> {
        let target = self.switch.options.address.clone();
        if !self.switch.is_counting() {
            return Err(Error::NotStarted { operation, target });
        }
        let done = self.runtime.block_on(call(&mut self.switch));
        done.map_err(|failure| Error::Switch { operation, target, failure })
    }
}

impl Dataplane for Tofino {
    fn capabilities(&self) -> &Capabilities {
        &self.switch.capabilities
    }

    fn settings(&self) -> &Settings {
        &self.switch.program.settings
    }

    fn install(&mut self, tables: &Tables) -> Result<Option<Adopted>, Error> {
        let target = self.switch.options.address.clone();
        if self.switch.is_counting() {
            return Err(Error::AlreadyStarted { target });
        }
        self.switch.check_filter(tables.filter.as_ref())?;
        tables.check(&self.switch.program.settings, &self.switch.capabilities)?;
        let installed = self.runtime.block_on(self.switch.install(tables));
        installed.map(|()| None).map_err(|failure| Error::Switch {
            operation: "install tables",
            target,
            failure,
        })
    }

    fn sample(&mut self) -> Result<Snapshot, Error> {
        self.operate("sample", Switch::sample)
    }

    fn rotate(&mut self) -> Result<Snapshot, Error> {
        self.operate("rotate", Switch::rotate)
    }

    /// Does nothing: the closed bank is cleared as soon as it was read, since no other process
    /// adopts it.
    fn published(&mut self, _: u64) -> Result<(), Error> {
        Ok(())
    }

    fn delay_samples(&mut self) -> Result<Vec<DelaySample>, Error> {
        Ok(self.runtime.block_on(self.switch.delay_samples()))
    }

    fn admit(&mut self, admissions: &[(DelayKind, Admission)]) -> Result<(), Error> {
        self.operate("set shares", async |switch| switch.admit(admissions).await)
    }

    fn watch(&mut self, bounds: &[Bounds]) -> Result<(), Error> {
        self.operate("set bounds", async |switch| switch.watch(bounds).await)
    }

    fn set_filter(&mut self, filter: Option<&Arc<Filter>>) -> Result<(), Error> {
        self.switch.check_filter(filter)?;
        self.operate("set the filter", async |switch| switch.set_filter(filter.cloned()))
    }

    /// Returns events; also detects a lost connection and restores it, so that as few packets as
    /// possible are missing in the window.
    fn events(&mut self) -> Result<Vec<Event>, Error> {
        Ok(self.runtime.block_on(self.switch.events()))
    }

    /// Returns the losses at the last port read. A switch counts in the ingress pipeline, before
    /// all queues, so earlier losses are losses of ports.
    fn losses(&mut self) -> Result<Losses, Error> {
        Ok(self.switch.ports().map(|ports| ports.losses.clone()).unwrap_or_default())
    }

    fn received(&mut self) -> Result<Option<CountRange>, Error> {
        Ok(self.switch.ports().and_then(|ports| ports.tally))
    }

    fn status(&self) -> Status {
        Status { switch: Some(self.switch.status()), ..Status::default() }
    }
}
