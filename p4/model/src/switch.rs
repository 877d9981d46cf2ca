//! Model as the target of a BFRuntime server: the part of a switch's driver.

use crate::execute::Pipe;
use crate::{Fault as Stopped, Model, Output, PORTS_PER_PIPE};
use flowgauge_bfruntime::schema::SYNC;
use flowgauge_bfruntime::server::{Digests, Fault, PortCounters, Query, Source, Target, Write};
use flowgauge_bfruntime::{Entry, Pipes};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;
use tonic::Code;

/// [`Model`] shared between packets and a control plane.
///
/// Registers and counters are stored twice, as on a switch: in hardware, and in the driver as of
/// the last `Sync`.
pub struct Switch {
    program: String,
    schema: String,
    pipes: u32,
    state: Mutex<State>,
    /// Signalled when packets are accepted again.
    resumed: Condvar,
    /// Number of control plane calls that wait. Packets yield to them, since a mutex is not fair.
    waiting: AtomicUsize,
    started: Instant,
}

struct State {
    model: Model,
    /// Copy of the pipes; the driver has their registers and counters.
    driver: Vec<Pipe>,
    digests: Option<Digests>,
    ports: BTreeMap<u32, PortCounters>,
    paused: bool,
}

/// Entrance for packets, held exclusively.
pub struct PacketEntrance<'a> {
    state: MutexGuard<'a, State>,
}

impl PacketEntrance<'_> {
    /// Sets the arrival time of later packets, in nanoseconds, instead of the current time.
    pub fn set_clock(&mut self, nanoseconds: u64) {
        self.state.model.set_clock(nanoseconds);
    }

    /// Returns the model.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.state.model
    }

    fn mac(&mut self, port: u16) -> &mut PortCounters {
        self.state.ports.entry(u32::from(port)).or_default()
    }

    /// Counts frames with a wrong checksum, which the MAC of a port drops.
    pub fn arrive_damaged(&mut self, port: u16, frames: u64) {
        let mac = self.mac(port);
        mac.received += frames;
        mac.wrong_checksum += frames;
    }

    /// Counts frames dropped at a port whose buffer is full.
    pub fn arrive_without_room(&mut self, port: u16, frames: u64) {
        let mac = self.mac(port);
        mac.received += frames;
        mac.no_room += frames;
    }

    /// Counts PAUSE frames, which the MAC of a port does not pass on.
    pub fn arrive_pause(&mut self, port: u16, frames: u64) {
        let mac = self.mac(port);
        mac.received += frames;
        mac.pause += frames;
    }

    /// Injects a frame at a port. Digests that it causes are sent to the control plane.
    ///
    /// # Errors
    /// [`Fault`](Stopped) as for [`Model::inject`].
    pub fn arrive(&mut self, port: u16, frame: &[u8]) -> Result<Vec<Output>, Stopped> {
        self.mac(port).received += 1;
        let sent = self.state.model.inject(port, frame)?;
        sent.iter().for_each(|output| self.mac(output.port).sent += 1);
        let State { model, digests, .. } = &mut *self.state;
        for digest in model.take_digests() {
            if let Some(clients) = digests {
                clients.send(digest);
            }
        }
        Ok(sent)
    }
}

impl Switch {
    /// Returns a switch that runs a model under this program name.
    #[must_use]
    pub fn new(model: Model, program: &str) -> Self {
        Switch {
            program: program.to_owned(),
            schema: model.schema().to_string(),
            pipes: model.pipes() as u32,
            state: Mutex::new(State {
                driver: model.pipes.clone(),
                model,
                digests: None,
                ports: BTreeMap::new(),
                paused: false,
            }),
            resumed: Condvar::new(),
            waiting: AtomicUsize::new(0),
            started: Instant::now(),
        }
    }

    /// Returns the first port of a pipe; pipes beyond the last wrap around.
    #[must_use]
    pub fn port(&self, pipe: usize) -> u16 {
        (pipe as u32 % self.pipes) as u16 * PORTS_PER_PIPE
    }

    /// Opens the entrance for packets, which arrive at the current time.
    pub fn enter(&self) -> PacketEntrance<'_> {
        while self.waiting.load(Ordering::Acquire) > 0 {
            thread::yield_now();
        }
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self
            .resumed
            .wait_while(state, |state| state.paused)
            .unwrap_or_else(PoisonError::into_inner);
        state.model.set_clock(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX));
        PacketEntrance { state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        state
    }
}

impl Target for Switch {
    fn program(&self) -> &str {
        &self.program
    }

    fn schema(&self) -> &str {
        &self.schema
    }

    fn pipes(&self) -> u32 {
        self.pipes
    }

    fn write(&self, table: &str, pipes: Pipes, write: &Write) -> Result<(), Fault> {
        let State { model, driver, .. } = &mut *self.state();
        model.write(table, pipes, write)?;
        // The driver also knows what was written.
        match model.array(table) {
            Some(array) => {
                model.copy(array, model.program.arrays[array].written(write)?, pipes, driver)
            }
            None => Ok(()),
        }
    }

    fn read(
        &self,
        table: &str,
        pipes: Pipes,
        query: &Query,
        source: Source,
    ) -> Result<Vec<Entry>, Fault> {
        let State { model, driver, .. } = &*self.state();
        match source {
            Source::Software => model.read_from(driver, table, pipes, query),
            Source::Hardware => model.read(table, pipes, query),
        }
    }

    fn operate(&self, table: &str, pipes: Pipes, operation: &str) -> Result<(), Fault> {
        let State { model, driver, .. } = &mut *self.state();
        let array = model.array(table).filter(|_| operation == SYNC).ok_or_else(|| {
            Fault::new(Code::Unimplemented, format!("{table} has no operation {operation}"))
        })?;
        model.copy(array, 0..model.program.arrays[array].size, pipes, driver)
    }

    fn pause(&self) -> Result<(), Fault> {
        self.state().paused = true;
        Ok(())
    }

    fn resume(&self) {
        self.state().paused = false;
        self.resumed.notify_all();
    }

    fn port_counters(&self) -> BTreeMap<u32, PortCounters> {
        self.state().ports.clone()
    }

    fn attach(&self, digests: Digests) {
        self.state().digests = Some(digests);
    }
}
