//! A run-to-completion worker: one thread, one port, one state.
//!
//! Loop of a worker: answer the controller's request, if any; receive one batch from the port and
//! count it; without packets, poll again or wait, depending on the [mode](PollMode). Before the
//! first window it [discards](Worker::discard) what a device delivers.

use super::PollMode;
use super::gap::GapMeter;
use super::gate::{Gate, Pace};
use super::meter::ActivityTimer;
use super::port::{Port, PortFrame, Received};
use super::truth::{ExactFlows, PacketKey};
use super::worker::{Worker, WorkerShared};
use flowgauge_core::filter::EveryPacket;
use flowgauge_core::parse::{counted, transport};
use flowgauge_core::{Arrival, Context, HashMode, KeyKind, Observation, RequiredFields};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum wait of a worker without packets that something wakes: in trace time the controller,
/// with some ports the port.
const IDLE_WOKEN: Duration = Duration::from_millis(100);
const IDLE_LIVE: Duration = Duration::from_micros(50);
/// Empty polls of an adaptive worker before it waits: some microseconds, about as long as a wake-up
/// takes.
const MAX_EMPTY_POLLS: u32 = 200;

impl Worker {
    /// Counts the packets of this port until the backend is dropped.
    pub fn run<P: Port>(mut self, mut port: P) {
        let _alarm = Alarm(Arc::clone(&self.shared.gate));
        // Registers hold maxima, so order is irrelevant. Entropies and heavy hitters depend on the
        // order of packets.
        if self.batch.is_some() {
            self.shared.gate.allow_any_order();
        }
        let mut timer = ActivityTimer::start(Arc::clone(&self.meter));
        let mut gap = self.shared.gaps.clone().map(GapMeter::start);
        let mut bank = self.writer.bank();
        self.filter = self.shared.filters.of(bank);
        let mut is_held = self.shared.gate.is_held();
        let mut receive = self.receiver();
        let mut empty_polls = 0;
        while !self.shared.stop.load(Ordering::Relaxed) {
            let truth = self.shared.truth.as_ref();
            self.writer.serve(|bank| {
                truth.and_then(|truth| truth.count(bank, self.shared.gate.trace_time()))
            });
            if self.writer.bank() != bank || (is_held && !self.shared.gate.is_held()) {
                is_held = self.shared.gate.is_held();
                bank = self.writer.bank();
                self.filter = self.shared.filters.of(bank);
                receive = self.receiver();
            }
            let received = receive(&mut self, &mut port);
            timer.polled(received);
            if let Some(gap) = &mut gap {
                gap.polled(bank, received, port.is_drained());
            }
            match received {
                Received::Frames => empty_polls = 0,
                Received::Idle if self.polls_again::<P>(empty_polls) => {
                    empty_polls = empty_polls.saturating_add(1);
                    std::hint::spin_loop();
                }
                Received::Idle if self.shared.gate.pace() != Pace::Trace && !P::SIGNALS => {
                    wait(&mut port, IDLE_LIVE, &mut timer, &mut gap);
                }
                Received::Idle | Received::Ended => {
                    wait(&mut port, IDLE_WOKEN, &mut timer, &mut gap);
                }
            }
        }
    }

    /// Returns whether a worker polls again at once after `empty_polls` empty polls in a row.
    fn polls_again<P: Port>(&self, empty_polls: u32) -> bool {
        match self.shared.options.poll_mode {
            _ if self.shared.gate.pace() == Pace::Trace => false,
            PollMode::Busy => true,
            PollMode::Adaptive => P::SIGNALS && empty_polls < MAX_EMPTY_POLLS,
            PollMode::Interrupt => false,
        }
    }

    /// Selects the code for these settings once instead of for every packet.
    fn receiver<P: Port>(&self) -> fn(&mut Self, &mut P) -> Received {
        if self.shared.gate.is_held() {
            return Self::discard::<P>;
        }
        let settings = &self.shared.options.settings;
        let passes = match (settings.hash == HashMode::Keyed, self.filter.is_some()) {
            (false, false) => Self::receive_passes::<P, false, false>,
            (false, true) => Self::receive_passes::<P, false, true>,
            (true, false) => Self::receive_passes::<P, true, false>,
            (true, true) => Self::receive_passes::<P, true, true>,
        };
        if self.batch.is_none() || self.shared.truth.is_some() {
            return passes;
        }
        match settings.cardinality.key {
            KeyKind::Src => self.batch_receiver::<P, { KeyKind::Src as usize }>(),
            KeyKind::Dst => self.batch_receiver::<P, { KeyKind::Dst as usize }>(),
            KeyKind::SrcDst => self.batch_receiver::<P, { KeyKind::SrcDst as usize }>(),
            KeyKind::FiveTuple => self.batch_receiver::<P, { KeyKind::FiveTuple as usize }>(),
        }
    }

    /// Removes one batch of packets from before the first window. Frames of a port that no device
    /// fills stay there.
    fn discard<P: Port>(&mut self, port: &mut P) -> Received {
        if !port.is_device() {
            return Received::Idle;
        }
        let mut packets = 0;
        let received = port.receive(&mut |_: PortFrame<'_>| packets += 1);
        self.shared.discarded.fetch_add(packets, Ordering::Relaxed);
        received
    }

    fn batch_receiver<P: Port, const KEY: usize>(&self) -> fn(&mut Self, &mut P) -> Received {
        let settings = &self.shared.options.settings;
        match (settings.hash == HashMode::Keyed, settings.headers.inner) {
            (false, false) => Self::receive_batch::<P, KEY, false, false>,
            (false, true) => Self::receive_batch::<P, KEY, false, true>,
            (true, false) => Self::receive_batch::<P, KEY, true, false>,
            (true, true) => Self::receive_batch::<P, KEY, true, true>,
        }
    }

    /// Counts the distinct flows of one batch of the port. Nothing stays buffered: the bank may
    /// change before the next batch. `KEY` is a [`KeyKind`]; `KEYED` and `INNER` as in
    /// [`BatchWriter::record`](super::BatchWriter::record).
    fn receive_batch<P: Port, const KEY: usize, const KEYED: bool, const INNER: bool>(
        &mut self,
        port: &mut P,
    ) -> Received {
        let WorkerShared { options, sharing, .. } = &*self.shared;
        let Some(batch) = &mut self.batch else { return Received::Idle };
        let context = Context::new(options.settings, &self.tabulation, *sharing);
        let mut batch_writer = batch.fill(self.writer.active(), &context);
        // Inside the closures the key is a constant.
        let received = match self.filter.as_deref() {
            Some(filter) => port.receive(&mut |frame: PortFrame<'_>| {
                let key = const { KeyKind::ALL[KEY] };
                batch_writer.record_matching::<KEYED, INNER>(filter, key, &frame);
            }),
            None => port.receive(&mut |frame: PortFrame<'_>| {
                let key = const { KeyKind::ALL[KEY] };
                batch_writer.record::<KEYED, INNER>(key, &frame);
            }),
        };
        batch_writer.finish();
        received
    }

    /// Counts one batch of the port for any settings; `KEYED` as in [`PacketBuffers::record`],
    /// `FILTERED`: whether there is a filter.
    fn receive_passes<P: Port, const KEYED: bool, const FILTERED: bool>(
        &mut self,
        port: &mut P,
    ) -> Received {
        let WorkerShared { options, sharing, gate, truth, .. } = &*self.shared;
        let (settings, truth) = (options.settings, truth.as_ref());
        let context =
            Context::new(settings, &self.tabulation, *sharing).with_slots(options.slot_ns);
        let looks_at_clock = gate.pace() != Pace::Trace && context.needs.has(RequiredFields::TIME);
        let bank_index = self.writer.bank();
        let mut active = self.writer.active();
        let (keys, seen, passes) = (&mut self.keys, &mut self.seen, &mut self.passes);
        let filter = self.filter.as_deref();
        let received = port.receive(&mut |frame: PortFrame<'_>| {
            let timestamp = if looks_at_clock { unix_time() } else { frame.timestamp };
            let is_counted = match filter {
                Some(filter) if FILTERED => {
                    passes.record::<KEYED>(&mut active, &context, filter, &frame, timestamp)
                }
                _ => passes.record::<KEYED>(&mut active, &context, EveryPacket, &frame, timestamp),
            };
            if is_counted
                && let Some(truth) = truth
                && let Ok(packet) = counted(frame.bytes, frame.link, &settings.headers)
            {
                let transport = transport(frame.bytes, &packet);
                let key = |kind: KeyKind| PacketKey {
                    kind,
                    key: kind.extract(&packet, transport),
                    bytes: frame.wire_length,
                    timestamp,
                };
                keys.extend(truth.kinds().map(key));
                if truth.counts() {
                    let arrival = Arrival::new(frame.wire_length, timestamp);
                    let mut observation = Observation::of(&arrival);
                    observation.note::<KEYED, _>(&context, frame.bytes, &packet);
                    seen.push(observation);
                }
                if keys.len().max(seen.len()) >= KEYS {
                    flush(bank_index, Some(truth), keys, seen);
                }
            }
        });
        passes.flush(&mut active, &context);
        flush(bank_index, truth, keys, seen);
        received
    }
}

/// Waits for frames, at most for `most`.
fn wait<P: Port>(
    port: &mut P,
    most: Duration,
    timer: &mut ActivityTimer,
    gap: &mut Option<GapMeter>,
) {
    if let Some(gap) = gap {
        gap.begin_wait();
    }
    timer.asleep(|| port.wait(most));
    if let Some(gap) = gap {
        gap.waited(P::SIGNALS && port.is_drained(), most);
    }
}

const KEYS: usize = 1024;

fn flush(
    bank: usize,
    truth: Option<&ExactFlows>,
    keys: &mut Vec<PacketKey>,
    seen: &mut Vec<Observation>,
) {
    if let Some(truth) = truth {
        truth.add(bank, keys);
        truth.count_all(bank, seen);
    }
}

pub(super) fn unix_time() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Notifies a waiting controller when the worker panics.
struct Alarm(Arc<Gate>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail();
        }
    }
}
