//! Delays one by one, from a worker to the controller.
//!
//! Live, a worker waits for nobody: what finds no room in its ring is counted as missing. In trace
//! time the result of a run must not depend on who is faster, and so there is room for all.

use super::gate::Pace;
use flowgauge_core::Active;
use flowgauge_core::delay::sample::Sample;
use ringbuf::traits::{Consumer, Producer, Split};
use ringbuf::{HeapCons, HeapProd, HeapRb};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type All = Arc<Mutex<Vec<Sample>>>;

/// The worker's end.
pub(super) enum Tap {
    Ring(HeapProd<Sample>),
    All(All),
}

/// The controller's end.
pub(super) enum Basin {
    Ring(HeapCons<Sample>),
    All(All),
}

/// Both ends; `room`: delays that can be on their way, live.
pub(super) fn tap(pace: Pace, room: usize) -> (Tap, Basin) {
    if pace == Pace::Trace {
        let all = All::default();
        return (Tap::All(Arc::clone(&all)), Basin::All(all));
    }
    let (tap, basin) = HeapRb::new(room).split();
    (Tap::Ring(tap), Basin::Ring(basin))
}

impl Tap {
    /// Passes on what was counted. The bank is still the worker's: whoever reads it finds all of
    /// its delays in the basin.
    pub(super) fn pass_on(&mut self, active: &mut Active<'_>) {
        let (delay, outbox) = (&mut active.bank.delay, &mut active.lasting.delay);
        match self {
            Tap::Ring(ring) => delay.pass_on(outbox, |sample| ring.try_push(*sample).is_ok()),
            Tap::All(all) => {
                let mut all = locked(all);
                delay.pass_on(outbox, |sample| {
                    all.push(*sample);
                    true
                });
            }
        }
    }
}

impl Basin {
    /// Takes everything that there is.
    pub(super) fn drain(&mut self, take: impl FnMut(Sample)) {
        match self {
            Basin::Ring(ring) => ring.pop_iter().for_each(take),
            Basin::All(all) => std::mem::take(&mut *locked(all)).into_iter().for_each(take),
        }
    }
}

fn locked(all: &All) -> MutexGuard<'_, Vec<Sample>> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}
