//! A backend outside of this workspace: a [`Dataplane`] that counts frames in the thread of its
//! caller.
//!
//! `cargo run -p flowgauge-dataplane --example backend`
//!
//! `flowgauge_core` counts a packet in a bank, so a backend has all measurements with the same
//! results. The backend provides the packets, and ensures that no packet is counted in a bank while
//! that bank is read.

use flowgauge_core::{
    Arrival, Context, Link, Settings, Shared, Sharing, State, WindowTotals, Zeroed,
};
use flowgauge_dataplane::{
    Adopted, Capabilities, Dataplane, Error, Event, Losses, Snapshot, Tables,
};

struct HandedOver {
    capabilities: Capabilities,
    settings: Settings,
    /// Hash tables; frames are ignored until they are installed.
    tables: Option<Tables>,
    state: Box<State>,
    shared: Box<Shared>,
    /// Index of the open bank.
    active: usize,
}

impl HandedOver {
    fn new(settings: Settings) -> Self {
        HandedOver {
            // A backend that cannot run some measurements removes them here.
            capabilities: Capabilities::of_core("handed-over", "this program", 1),
            settings,
            tables: None,
            state: State::boxed(),
            shared: Shared::boxed(),
            active: 0,
        }
    }

    fn count(&mut self, frame: &[u8]) {
        let Some(tables) = &self.tables else { return };
        let context = Context::new(self.settings, &tables.tabulation, Sharing::Alone);
        let length = frame.len() as u32;
        let mut active = self.state.active(&self.shared, self.active);
        let is_match = tables.filter.as_ref().is_none_or(|filter| {
            filter.matches(self.settings.headers, Link::Ethernet, frame, length)
        });
        if is_match {
            active.record(&context, Link::Ethernet, frame, Arrival::new(length, 0));
        } else {
            active.bank.counters.leave_out(1, length.into());
        }
    }

    fn snapshot(&self, bank: usize, operation: &'static str) -> Result<Snapshot, Error> {
        let target = self.capabilities.interface.clone();
        let tables = self.tables.as_ref().ok_or(Error::NotStarted { operation, target })?;
        let mut sum = WindowTotals::boxed();
        sum.merge(&self.state.banks[bank], &self.settings);
        sum.merge_shared(&self.shared.banks[bank], &self.settings);
        Ok(Snapshot::of(sum, tables.hash))
    }
}

impl Dataplane for HandedOver {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn install(&mut self, tables: &Tables) -> Result<Option<Adopted>, Error> {
        self.capabilities.check(&self.settings)?;
        tables.check(&self.settings, &self.capabilities)?;
        if self.tables.replace(tables.clone()).is_some() {
            return Err(Error::AlreadyStarted { target: self.capabilities.interface.clone() });
        }
        Ok(None)
    }

    fn sample(&mut self) -> Result<Snapshot, Error> {
        self.snapshot(self.active, "sample")
    }

    fn rotate(&mut self) -> Result<Snapshot, Error> {
        let closed = self.active;
        let snapshot = self.snapshot(closed, "rotate")?;
        // No frame is counted while this runs. A backend with threads waits here until all of them
        // have left the bank.
        self.active ^= 1;
        self.state.banks[closed].clear(&self.settings);
        self.shared.banks[closed].clear(&self.settings);
        Ok(snapshot)
    }

    fn published(&mut self, _: u64) -> Result<(), Error> {
        Ok(())
    }

    fn events(&mut self) -> Result<Vec<Event>, Error> {
        Ok(Vec::new())
    }

    fn losses(&mut self) -> Result<Losses, Error> {
        Ok(Losses::default())
    }
}

fn main() -> Result<(), Error> {
    let settings = Settings::default();
    let mut dataplane = HandedOver::new(settings);
    dataplane.install(&Tables::new(&settings, 1))?;
    for window in 0..3 {
        for host in 0..100 * (window + 1) {
            dataplane.count(&from_host(host));
        }
        let bank = dataplane.rotate()?.bank;
        let raised = bank
            .cardinality
            .levels(settings.cardinality.precision)
            .iter()
            .filter(|level| **level > 0)
            .count();
        println!("window {window}: {} packets raised {raised} registers", bank.counters.packets());
    }
    Ok(())
}

/// An IPv4 packet without payload.
fn from_host(host: u16) -> [u8; 34] {
    let mut frame = [0; 34];
    frame[12..18].copy_from_slice(&[0x08, 0x00, 0x45, 0x00, 0x00, 20]);
    frame[28..30].copy_from_slice(&host.to_be_bytes());
    frame
}
