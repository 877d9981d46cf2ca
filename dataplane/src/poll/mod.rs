//! The poll-mode backend: worker threads in this process count packets.
//!
//! # Path of a packet
//! 1. A worker asks its [`Port`] for a batch of frames. It also checks between two batches whether
//!    the controller has a request. It never waits for another thread while there are packets.
//! 2. The frame is parsed and counted in the active bank of the worker's own
//!    [`State`](flowgauge_core::State). Sketches that need much memory are
//!    [shared](flowgauge_core::Shared) by all workers.
//! 3. If only distinct flows are measured, packets are counted in batches, with the best
//!    [`Instructions`] that the CPU has ([`Batch`]). Otherwise they go through [`PacketBuffers`],
//!    one measurement after the other.
//!
//! # Lifecycle of a window
//! The controller requests a bank switch from every worker and waits for all answers. A batch is
//! counted in one bank, so no packet is lost or counted twice. Then the controller owns the old
//! banks: it adds them up, clears them, and returns the sum.
//!
//! # Where to look
//! `run`: the loop of a worker; `worker`: its state; `matcher`: its filter; `handoff`: how banks
//! change hands; `gate`: when counting begins, and how far a capture may be read, so that a replay
//! gives the same windows every time; [`port`]: sources of packets; `meter`: how workers spend
//! their time; `gap`: how late their timestamps may be; `truth`: exact counts.

mod batch;
mod delay_samples;
mod gap;
mod gate;
mod handoff;
mod lot;
mod matcher;
mod meter;
mod passes;
pub mod port;
mod port_frame;
mod run;
mod threads;
mod truth;
mod vector;
mod worker;

pub use batch::{Batch, BatchWriter};
pub use gate::{Advance, Gate, Pace};
pub use matcher::Matcher;
pub use passes::PacketBuffers;
pub use vector::{INSTRUCTIONS_VARIABLE, Instructions};

pub use crate::status::PollMode;

use crate::capabilities::{Capabilities, TimestampClock};
use crate::delay_samples::DelaySampleQueue;
use crate::error::Error;
use crate::hash_key::HashWords;
use crate::losses::Losses;
use crate::snapshot::{Adopted, Snapshot, Truth};
use crate::spares::BankPool;
use crate::status::{Status, WorkerStatus};
use crate::tables::Tables;
use crate::tally::CountRange;
use crate::{Dataplane, Event};
use delay_samples::{DelaySampleReceiver, delay_sample_channel};
use flowgauge_core::Zeroed;
use flowgauge_core::delay::{Admission, DelayKind, DelaySample};
use flowgauge_core::{
    BANKS, Filter, HashIdentity, MAX_EXACT, PersistentBank, Settings, Sharing, WindowTotals,
};
use gap::{GapHistory, LongestGaps, longest_delay};
use handoff::{SnapshotReader, handoff};
use meter::LoadHistory;
use port::{Port, PortSource, Ports, Waker, Worker};
use run::unix_time;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};
use truth::ExactFlows;
use worker::{BankFilters, WorkerShared};

/// Options of a poll-mode backend.
#[derive(Clone, Debug)]
pub struct Options {
    /// Measurements and their parameters.
    pub settings: Settings,
    /// Length of a slot of staggered registers, in nanoseconds.
    pub slot_ns: u64,
    /// Also count exactly. Takes memory for every flow and every request, up to
    /// [`max_exact`](Self::max_exact).
    pub truth: bool,
    /// Maximum number of flows, requests, delays or pairs in each set of exact counts.
    pub max_exact: usize,
    /// Maximum time for a worker to answer.
    pub deadline: Duration,
    /// Behaviour of a worker without packets.
    pub poll_mode: PollMode,
    /// CPUs to pin workers to, in turn; empty for no pinning.
    pub cpus: Vec<usize>,
    /// Capacity of the buffer for delay samples between a worker and the controller, in live
    /// runs.
    pub delay_sample_capacity: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            settings: Settings::default(),
            slot_ns: 1_000_000,
            truth: false,
            max_exact: MAX_EXACT,
            deadline: Duration::from_secs(5),
            poll_mode: PollMode::default(),
            cpus: Vec::new(),
            // 2 MiB, enough for ten samples a second.
            delay_sample_capacity: 1 << 16,
        }
    }
}

type Body = Box<dyn FnOnce(HashWords) + Send>;

/// The poll-mode backend.
pub struct Poll {
    capabilities: Capabilities,
    shared: Arc<WorkerShared>,
    source: Arc<dyn PortSource>,
    /// Losses before the first window.
    losses_before: Losses,
    readers: Vec<SnapshotReader>,
    /// Banks for the sums over workers.
    sums: BankPool,
    /// Time accounting of the workers.
    histories: Vec<LoadHistory>,
    /// Gaps between polls of the workers in closed windows.
    gap_history: GapHistory,
    /// Worker functions, until [`install`](Dataplane::install) starts them.
    bodies: Vec<Body>,
    workers: Vec<JoinHandle<()>>,
    /// Wakers of the workers that do not park.
    wakers: Vec<Waker>,
    /// CPU time of the workers up to the last rotation, in nanoseconds.
    cpu_ns: u64,
    hash: Option<HashIdentity>,
    /// Filter of the windows from the next rotation on.
    filter: Option<Arc<Matcher>>,
    /// Whether a rotation has been started and not completed.
    rotating: bool,
    end_reported: bool,
    /// Receivers of delay samples, and the samples received.
    receivers: Vec<DelaySampleReceiver>,
    delay_samples: DelaySampleQueue,
}

impl Poll {
    /// Creates a backend with one worker per port; counting starts once tables are installed.
    #[must_use]
    pub fn new<P: Port>(ports: Ports<P>, options: Options) -> Self {
        let Ports { ports, source, gate, interface } = ports;
        let (settings, pace) = (options.settings, gate.pace());
        let registers = settings.cardinality.precision.registers() as u64;
        let covered_ns = options.slot_ns.saturating_mul(registers) / 2;
        let sketches = flowgauge_core::Shared::counted();
        sketches.persistent.prepare(&settings);
        let truth = options.truth.then(|| {
            ExactFlows::new(settings, covered_ns, options.max_exact, Arc::clone(&sketches))
        });
        let clock =
            if pace == Pace::Trace { TimestampClock::TRACE } else { TimestampClock::WORKER };
        let capabilities = Capabilities {
            clock,
            delay_samples: true,
            ..Capabilities::of_core("poll", interface, ports.len())
        };
        let timestamps = pace != Pace::Trace && settings.delay.kinds.any();
        let shared = Arc::new(WorkerShared {
            options,
            sharing: if ports.len() == 1 { Sharing::Alone } else { Sharing::Shared },
            gate,
            sketches,
            filters: BankFilters::default(),
            stop: AtomicBool::new(false),
            discarded: AtomicU64::new(0),
            gaps: timestamps.then(|| Arc::new(LongestGaps::new())),
            truth,
        });
        let (mut readers, mut histories, mut receivers) = (Vec::new(), Vec::new(), Vec::new());
        let mut bodies: Vec<Body> = Vec::new();
        let wakers = ports.iter().filter_map(Port::waker).collect();
        for port in ports {
            let (writer, reader) = handoff(settings, Arc::clone(&shared.sketches));
            readers.push(reader);
            let account = LoadHistory::default();
            let capacity = shared.options.delay_sample_capacity;
            let (delay_samples, receiver) =
                settings.delay.samples.then(|| delay_sample_channel(pace, capacity)).unzip();
            receivers.extend(receiver);
            let (shared, meter) = (Arc::clone(&shared), Arc::clone(&account.meter));
            bodies.push(Box::new(move |tabulation| {
                port.work(Worker {
                    shared,
                    meter,
                    writer,
                    filter: None,
                    batch: Batch::new(&settings, &tabulation, Instructions::in_use()),
                    tabulation,
                    passes: PacketBuffers::with(delay_samples),
                    keys: Vec::new(),
                    seen: Vec::new(),
                });
            }));
            histories.push(account);
        }
        Poll {
            capabilities,
            shared,
            source,
            losses_before: Losses::default(),
            readers,
            sums: BankPool::default(),
            histories,
            gap_history: GapHistory::default(),
            bodies,
            workers: Vec::new(),
            wakers,
            cpu_ns: 0,
            hash: None,
            filter: None,
            rotating: false,
            end_reported: false,
            receivers,
            delay_samples: DelaySampleQueue::default(),
        }
    }

    /// Makes the workers count from [`begin`](Dataplane::begin) on, not from
    /// [`install`](Dataplane::install) on. No effect in trace time, where the clock lets them.
    #[must_use]
    pub fn held(self) -> Self {
        self.shared.gate.hold();
        self
    }

    /// Returns the gate of the traffic, for a clock in trace time.
    #[must_use]
    pub fn gate(&self) -> Arc<Gate> {
        Arc::clone(&self.shared.gate)
    }

    /// Returns the source of the packets, for progress reports.
    #[must_use]
    pub fn source(&self) -> Arc<dyn PortSource> {
        Arc::clone(&self.source)
    }

    /// Updates the clock resolution of a capture.
    fn read_clock(&mut self) {
        if self.shared.gate.pace() == Pace::Trace {
            self.capabilities.clock.resolution_ns = self.source.clock_step_ns();
        }
    }

    /// Collects the delay samples that have arrived.
    fn drain(&mut self) {
        let Self { receivers, delay_samples, .. } = self;
        receivers
            .iter_mut()
            .for_each(|receiver| receiver.drain(|sample| delay_samples.add(sample)));
    }

    fn started(&self, operation: &'static str) -> Result<HashIdentity, Error> {
        self.hash.ok_or_else(|| Error::NotStarted {
            operation,
            target: self.capabilities.interface.clone(),
        })
    }

    /// Returns the CPU that a worker is pinned to.
    fn cpu_of(&self, worker: usize) -> Option<usize> {
        self.shared.options.cpus.iter().copied().cycle().nth(worker)
    }

    fn wake(&self) {
        self.workers.iter().map(JoinHandle::thread).for_each(Thread::unpark);
        self.wakers.iter().for_each(|wake| wake());
    }

    /// Returns the index of the bank that no worker counts in.
    fn closed_index(&self) -> usize {
        self.readers.first().map_or(0, SnapshotReader::closed_index)
    }

    fn timeout(&self, operation: &'static str, worker: usize) -> Error {
        let (target, waited) = (self.capabilities.interface.clone(), self.shared.options.deadline);
        Error::Timeout { operation, target, worker, waited }
    }

    /// Waits until every worker has answered the last request.
    fn wait(&self, operation: &'static str) -> Result<(), Error> {
        let started = Instant::now();
        self.wake();
        for (index, (reader, worker)) in self.readers.iter().zip(&self.workers).enumerate() {
            let mut spins = 0_u32;
            while !reader.is_served() {
                if worker.is_finished() {
                    let target = self.capabilities.interface.clone();
                    return Err(Error::WorkerDied { operation, target, worker: index });
                }
                if started.elapsed() > self.shared.options.deadline {
                    return Err(self.timeout(operation, index));
                }
                // A busy worker answers within a batch; a woken one takes a little longer.
                spins += 1;
                if spins < 1000 { std::hint::spin_loop() } else { thread::yield_now() }
            }
        }
        Ok(())
    }

    /// Returns the gap that matters to the delays of a bank; `gap_ns` is that of its window.
    fn reaching_gap(&self, gap_ns: u64, bank: &WindowTotals) -> u64 {
        if self.shared.gaps.is_none() {
            return 0;
        }
        let longest_ns = longest_delay(&self.shared.options.settings.delay, &bank.delay);
        self.gap_history.reaching(gap_ns, longest_ns)
    }

    /// Returns the exact numbers of a bank, if they are counted; `window` is that of its flows if it
    /// is known.
    fn truth(&self, index: usize, window: Option<u64>) -> Option<Truth> {
        let exact = self.shared.truth.as_ref()?;
        Some(Truth { window, total: exact.total(), entropy: exact.entropy(index) })
    }
}

impl Dataplane for Poll {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn settings(&self) -> &Settings {
        &self.shared.options.settings
    }

    fn install(&mut self, tables: &Tables) -> Result<Option<Adopted>, Error> {
        if self.hash.is_some() {
            return Err(Error::AlreadyStarted { target: self.capabilities.interface.clone() });
        }
        self.capabilities.check(&self.shared.options.settings)?;
        tables.check(&self.shared.options.settings, &self.capabilities)?;
        threads::check_cpus(&self.shared.options.cpus)?;
        if self.shared.options.settings.delay.asks_addresses() {
            self.shared.sketches.persistent.delay.ranges.write(&tables.prefixes);
        }
        self.filter = tables.filter.clone().map(Matcher::new);
        self.shared.filters.set(0, self.filter.clone());
        tables.filter.iter().for_each(|filter| self.source.filters(filter));
        for (index, body) in std::mem::take(&mut self.bodies).into_iter().enumerate() {
            let tabulation = tables.tabulation.clone();
            let named = thread::Builder::new().name(format!("worker-{index}"));
            let cpu = self.cpu_of(index);
            let run = move || {
                cpu.into_iter().for_each(threads::pin);
                body(tabulation);
            };
            let worker = named.spawn(run).map_err(|source| Error::Thread {
                target: format!("worker {index} of {}", self.capabilities.interface),
                source,
            })?;
            self.shared.gate.add_worker(worker.thread().clone());
            self.workers.push(worker);
        }
        self.hash = Some(tables.hash);
        if self.shared.gate.is_held() {
            // A worker that has answered removes what arrives from then on. One that has no CPU
            // for so long counts late.
            self.readers.iter_mut().for_each(SnapshotReader::request_sample);
            self.wait("start the workers")
                .or_else(|error| if error.is_transient() { Ok(()) } else { Err(error) })?;
            self.losses_before = self.source.losses();
            self.shared.discarded.fetch_add(self.losses_before.total(), Ordering::Relaxed);
        }
        Ok(None)
    }

    fn begin(&mut self) -> Result<(), Error> {
        self.started("begin")?;
        self.shared.gate.release();
        Ok(())
    }

    fn sample(&mut self) -> Result<Snapshot, Error> {
        let hash = self.started("sample")?;
        self.readers.iter_mut().for_each(SnapshotReader::request_sample);
        self.wait("sample")?;
        self.read_clock();
        let settings = &self.shared.options.settings;
        let active = self.readers.first().map_or(0, |reader| reader.closed_index() ^ 1);
        let mut persistent = settings.lasts().then(PersistentBank::boxed);
        let mut truth = None;
        let now = unix_time();
        let bank = self.sums.fill(settings, |bank| {
            for (reader, account) in self.readers.iter().zip(&mut self.histories) {
                let sample = reader.sample();
                account.sampled(sample.bank.counters.seen(), reader, now);
                bank.unite(&sample.bank, settings);
                if let (Some(merged), Some(theirs)) = (&mut persistent, &sample.persistent) {
                    merged.merge(theirs, settings);
                }
                // Workers share the exact sets, so the largest count is the latest.
                truth = truth.max(sample.truth);
            }
            bank.merge_shared(&self.shared.sketches.banks[active % BANKS], settings);
        });
        let gap_ns = self.shared.gaps.as_ref().map_or(0, |gaps| gaps.open(active));
        let gap_ns = self.reaching_gap(gap_ns, &bank);
        let truth = self.truth(active, truth);
        Ok(Snapshot { persistent, truth, gap_ns, ..Snapshot::of(bank, hash) })
    }

    fn rotate(&mut self) -> Result<Snapshot, Error> {
        let hash = self.started("rotate")?;
        if !self.rotating {
            self.source.rotating();
            let next = self.closed_index();
            self.shared.filters.set(next, self.filter.clone());
            self.readers.iter_mut().for_each(SnapshotReader::request_flip);
            self.rotating = true;
        }
        self.wait("rotate")?;
        // No worker discards after it has answered.
        let discarded = self.shared.discarded.swap(0, Ordering::Relaxed);
        if discarded > 0 {
            self.source.exclude(discarded);
        }
        self.read_clock();
        let settings = &self.shared.options.settings;
        let closed = self.closed_index();
        let now = unix_time();
        let mut missing = None;
        let bank = self.sums.fill(settings, |bank| {
            for (index, (reader, account)) in
                self.readers.iter_mut().zip(&mut self.histories).enumerate()
            {
                let Some(closed) = reader.closed() else {
                    missing = missing.or(Some(index));
                    continue;
                };
                let packets = closed.counters.seen();
                bank.merge(closed, settings);
                closed.clear(settings);
                account.rotated(packets, reader, now);
            }
            bank.merge_shared(&self.shared.sketches.banks[closed % BANKS], settings);
        });
        if let Some(worker) = missing {
            return Err(self.timeout("rotate", worker));
        }
        self.rotating = false;
        let own_gap_ns = self.shared.gaps.as_ref().map_or(0, |gaps| gaps.take(closed));
        let gap_ns = self.reaching_gap(own_gap_ns, &bank);
        self.gap_history.close(now, own_gap_ns);
        let window = self.shared.truth.as_ref().and_then(|truth| truth.count(closed, None));
        let truth = self.truth(closed, window);
        let mut snapshot = Snapshot { truth, ..Snapshot::of(bank, hash) };
        if let Some(exact) = &self.shared.truth {
            exact.close(closed, &mut snapshot);
        }
        self.shared.sketches.banks[closed % BANKS].clear(settings);
        // Workers send all samples of a bank before they leave it.
        self.drain();
        snapshot.delay_samples = self.delay_samples.close();
        let cpu_ns: u64 = self.readers.iter().map(SnapshotReader::cpu_ns).sum();
        let used = cpu_ns - std::mem::replace(&mut self.cpu_ns, cpu_ns);
        // CPU time would make a replay irreproducible.
        let is_reported = self.shared.gate.pace() != Pace::Trace;
        // Read when every packet of the bank has been counted.
        let complete = !self.source.has_gap();
        Ok(Snapshot { cpu_ns: is_reported.then_some(used), gap_ns, complete, ..snapshot })
    }

    /// Does nothing: no state outlives this process.
    fn published(&mut self, _: u64) -> Result<(), Error> {
        Ok(())
    }

    fn admit(&mut self, admissions: &[(DelayKind, Admission)]) -> Result<(), Error> {
        self.started("set shares")?;
        let idle = self.closed_index();
        admissions.iter().for_each(|(kind, admission)| {
            self.shared.sketches.persistent.delay.shares.set(idle, *kind, *admission)
        });
        Ok(())
    }

    fn set_filter(&mut self, filter: Option<&Arc<Filter>>) -> Result<(), Error> {
        self.started("set the filter")?;
        self.filter = filter.cloned().map(Matcher::new);
        filter.into_iter().for_each(|filter| self.source.filters(filter));
        Ok(())
    }

    fn events(&mut self) -> Result<Vec<Event>, Error> {
        // Checked first, so that no warning follows the end.
        let ended = self.shared.gate.has_ended();
        let mut events: Vec<Event> =
            self.source.warnings().into_iter().map(Event::Warning).collect();
        events.extend(self.source.notices().into_iter().map(Event::Notice));
        let limits = self.shared.truth.iter().flat_map(|truth| truth.take_messages());
        events.extend(limits.map(Event::Notice));
        if !self.end_reported && ended {
            self.end_reported = true;
            events.push(Event::TrafficEnded);
        }
        Ok(events)
    }

    fn losses(&mut self) -> Result<Losses, Error> {
        Ok(self.source.losses().since(&self.losses_before))
    }

    fn received(&mut self) -> Result<Option<CountRange>, Error> {
        Ok(self.source.received())
    }

    fn delay_samples(&mut self) -> Result<Vec<DelaySample>, Error> {
        self.drain();
        Ok(self.delay_samples.take())
    }

    fn status(&self) -> Status {
        let status = |(index, account): (usize, &LoadHistory)| WorkerStatus {
            thread: account.thread(),
            pinned: self.cpu_of(index),
            poll_mode: self.shared.options.poll_mode,
            load: account.load,
        };
        let workers = self.histories.iter().enumerate().map(status).collect();
        Status {
            workers,
            instructions: Some(Instructions::in_use().name().to_owned()),
            ..Status::default()
        }
    }
}

impl Drop for Poll {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.wake();
        for worker in self.workers.drain(..) {
            // A dead worker was already reported by the call that needed it.
            let _ = worker.join();
        }
    }
}
