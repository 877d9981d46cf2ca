//! Transfer of delay samples from a worker to the controller.
//!
//! A live worker never waits: a sample that does not fit into the ring is counted as missing. In
//! trace time results must not depend on thread timing, so the buffer is unbounded.

use super::gate::Pace;
use super::threads::lock;
use flowgauge_core::Active;
use flowgauge_core::delay::DelaySample;
use ringbuf::traits::{Consumer, Producer, Split};
use ringbuf::{HeapCons, HeapProd, HeapRb};
use std::sync::{Arc, Mutex};

type All = Arc<Mutex<Vec<DelaySample>>>;

/// The worker's end.
pub(super) enum DelaySampleSender {
    Ring(HeapProd<DelaySample>),
    All(All),
}

/// The controller's end.
pub(super) enum DelaySampleReceiver {
    Ring(HeapCons<DelaySample>),
    All(All),
}

/// Creates both ends; `capacity` is the number of samples that the ring holds in live runs.
pub(super) fn delay_sample_channel(
    pace: Pace,
    capacity: usize,
) -> (DelaySampleSender, DelaySampleReceiver) {
    if pace == Pace::Trace {
        let all = All::default();
        return (DelaySampleSender::All(Arc::clone(&all)), DelaySampleReceiver::All(all));
    }
    let (sender, receiver) = HeapRb::new(capacity).split();
    (DelaySampleSender::Ring(sender), DelaySampleReceiver::Ring(receiver))
}

impl DelaySampleSender {
    /// Sends the samples of the delays counted so far. The worker still owns the bank, so a later
    /// reader of the bank finds all of its samples in the receiver.
    pub(super) fn send(&mut self, active: &mut Active<'_>) {
        let (delay, samples) = (&mut active.bank.delay, &mut active.persistent.delay);
        match self {
            DelaySampleSender::Ring(ring) => {
                delay.send_samples(samples, |sample| ring.try_push(*sample).is_ok())
            }
            DelaySampleSender::All(all) => {
                let mut all = lock(all);
                delay.send_samples(samples, |sample| {
                    all.push(*sample);
                    true
                });
            }
        }
    }
}

impl DelaySampleReceiver {
    /// Takes all samples that have arrived.
    pub(super) fn drain(&mut self, take: impl FnMut(DelaySample)) {
        match self {
            DelaySampleReceiver::Ring(ring) => ring.pop_iter().for_each(take),
            DelaySampleReceiver::All(all) => {
                std::mem::take(&mut *lock(all)).into_iter().for_each(take)
            }
        }
    }
}
