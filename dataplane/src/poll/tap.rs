//! Transfer of individual delays from a worker to the controller.
//!
//! A live worker never waits: a delay that does not fit into the ring is counted as missing. In
//! trace time results must not depend on thread timing, so the buffer is unbounded.

use super::gate::Pace;
use flowgauge_core::Active;
use flowgauge_core::delay::sample::Sample;
use ringbuf::traits::{Consumer, Producer, Split};
use ringbuf::{HeapCons, HeapProd, HeapRb};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type All = Arc<Mutex<Vec<Sample>>>;

/// The worker's end.
pub(super) enum SampleSender {
    Ring(HeapProd<Sample>),
    All(All),
}

/// The controller's end.
pub(super) enum SampleReceiver {
    Ring(HeapCons<Sample>),
    All(All),
}

/// Creates both ends; `room` is the number of delays that the ring holds in live runs.
pub(super) fn sample_channel(pace: Pace, room: usize) -> (SampleSender, SampleReceiver) {
    if pace == Pace::Trace {
        let all = All::default();
        return (SampleSender::All(Arc::clone(&all)), SampleReceiver::All(all));
    }
    let (sender, receiver) = HeapRb::new(room).split();
    (SampleSender::Ring(sender), SampleReceiver::Ring(receiver))
}

impl SampleSender {
    /// Passes on the delays counted so far. The worker still owns the bank, so a later reader of
    /// the bank finds all of its delays in the receiver.
    pub(super) fn pass_on(&mut self, active: &mut Active<'_>) {
        let (delay, outbox) = (&mut active.bank.delay, &mut active.lasting.delay);
        match self {
            SampleSender::Ring(ring) => {
                delay.pass_on(outbox, |sample| ring.try_push(*sample).is_ok())
            }
            SampleSender::All(all) => {
                let mut all = locked(all);
                delay.pass_on(outbox, |sample| {
                    all.push(*sample);
                    true
                });
            }
        }
    }
}

impl SampleReceiver {
    /// Takes all delays that have arrived.
    pub(super) fn drain(&mut self, take: impl FnMut(Sample)) {
        match self {
            SampleReceiver::Ring(ring) => ring.pop_iter().for_each(take),
            SampleReceiver::All(all) => {
                std::mem::take(&mut *locked(all)).into_iter().for_each(take)
            }
        }
    }
}

fn locked(all: &All) -> MutexGuard<'_, Vec<Sample>> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}
