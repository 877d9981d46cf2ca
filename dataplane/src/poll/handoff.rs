//! State of one worker, shared with the controller without a lock on the packet path.
//!
//! The worker owns one bank, the controller the other. A request from the controller, which the
//! worker checks for between two batches, transfers ownership: *flip* makes the worker continue in
//! the other bank, *sample* makes it copy its own. No bank is read while it is written, so a
//! snapshot belongs to one instant, and the worker never waits.
#![allow(
    unsafe_code,
    reason = "two threads use disjoint banks of one state; this module holds the protocol that keeps them disjoint"
)]

use super::threads::{self, lock};
use flowgauge_core::Zeroed;
use flowgauge_core::{Active, BANKS, Bank, PersistentBank, Settings, State, WindowTotals};
use rustix::thread::sched_getcpu;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Request: a sequence number above two flags, the bank to count in and whether to copy it.
type Request = u64;
const BANK: Request = 1;
const COPY: Request = 2;
const SEQUENCE: Request = 4;

struct Shared {
    state: Box<UnsafeCell<State>>,
    request: AtomicU64,
    reply: AtomicU64,
    /// CPU time of the worker at its last answer, in nanoseconds.
    cpu_ns: AtomicU64,
    /// CPU that it ran on at its last answer.
    cpu: AtomicUsize,
    sample: Mutex<Sample>,
    /// Sketches shared by all workers.
    shared_sketches: Arc<flowgauge_core::Shared>,
    settings: Settings,
}

// SAFETY: `state` is the only field that is not `Sync`, and only the two ends that `handoff`
// returns access it. Neither can be cloned, and both return references into `state` only for the
// duration of a `&mut self`.
// - The writer (`SnapshotWriter::active`) accesses `persistent`, which the reader never does, and
//   the bank in the flag `BANK` of the request that it took last (`served`).
// - The reader (`SnapshotReader::closed`) accesses the other bank than the one in its last request
//   (`requested`), and only once the reply is no earlier than the last flip (`flip`). All requests
//   from that flip on have the same bank, and the writer takes requests in order, so it counts in
//   that bank until it takes a request made by the next `request_flip`. That call needs
//   `&mut self`, so no reference of the reader's is left when it is made. A flip that the writer
//   skips, because a later request replaced it, changes nothing: `flip` is then the later one.
// Requests and replies are stored with `Release` and loaded with `Acquire`, so each side sees
// everything that the other did to a bank before it released the bank.
unsafe impl Sync for Shared {}

/// Copy of a worker's state for the controller.
pub(super) struct Sample {
    pub(super) bank: Box<WindowTotals>,
    pub(super) persistent: Option<Box<PersistentBank>>,
    pub(super) truth: Option<u64>,
}

/// Creates both ends of an empty state.
pub(super) fn handoff(
    settings: Settings,
    shared_sketches: Arc<flowgauge_core::Shared>,
) -> (SnapshotWriter, SnapshotReader) {
    let shared = Arc::new(Shared {
        state: UnsafeCell::boxed(),
        request: AtomicU64::new(0),
        reply: AtomicU64::new(0),
        cpu_ns: AtomicU64::new(0),
        cpu: AtomicUsize::new(0),
        sample: Mutex::new(Sample {
            bank: WindowTotals::boxed(),
            persistent: settings.lasts().then(PersistentBank::boxed),
            truth: None,
        }),
        shared_sketches,
        settings,
    });
    (
        SnapshotWriter { shared: Arc::clone(&shared), served: 0 },
        SnapshotReader { shared, requested: 0, flip: 0 },
    )
}

/// The worker's end.
pub(super) struct SnapshotWriter {
    shared: Arc<Shared>,
    served: Request,
}

impl SnapshotWriter {
    /// Returns the index of the bank to count in.
    pub(super) fn bank(&self) -> usize {
        (self.served & BANK) as usize
    }

    /// Returns the state to count in.
    #[inline(always)]
    pub(super) fn active(&mut self) -> Active<'_> {
        let state = self.shared.state.get();
        let index = self.bank() % BANKS;
        // SAFETY: the pointer is valid as long as `shared`. There is one writer, and `&mut self`
        // makes these its only references. The reader never has one to `persistent`, and none to
        // this bank: it released the bank before it made the first request for it, and gets it back
        // only after the reply to a request for the other bank (see `Sync` for `Shared`).
        let (bank, persistent) = unsafe { (&mut (*state).banks[index], &mut (*state).persistent) };
        let shared_sketches = &*self.shared.shared_sketches;
        Active {
            index,
            bank,
            persistent,
            shared: &shared_sketches.banks[index],
            shared_persistent: &shared_sketches.persistent,
        }
    }

    /// Answers the controller's request, if there is one. `truth` returns the exact count at the
    /// time of a copy.
    #[inline(always)]
    pub(super) fn serve(&mut self, truth: impl FnOnce(usize) -> Option<u64>) {
        let request = self.shared.request.load(Ordering::Acquire);
        if request != self.served {
            self.answer(request, truth);
        }
    }

    #[cold]
    fn answer(&mut self, request: Request, truth: impl FnOnce(usize) -> Option<u64>) {
        self.served = request;
        if request & COPY != 0 {
            let shared = Arc::clone(&self.shared);
            let mut sample = lock(&shared.sample);
            sample.truth = truth(self.bank());
            sample.bank.clear(&shared.settings);
            let Active { bank, persistent, .. } = self.active();
            sample.bank.merge(bank, &shared.settings);
            if let Some(copy) = &mut sample.persistent {
                copy.clear(&shared.settings);
                copy.merge(persistent, &shared.settings);
            }
        }
        self.shared.cpu_ns.store(threads::cpu_time(), Ordering::Relaxed);
        self.shared.cpu.store(sched_getcpu(), Ordering::Relaxed);
        self.shared.reply.store(request, Ordering::Release);
    }
}

/// The controller's end.
pub(super) struct SnapshotReader {
    shared: Arc<Shared>,
    requested: Request,
    /// Last request that flipped.
    flip: Request,
}

impl SnapshotReader {
    /// Asks the worker to count in the other bank from its next batch on.
    pub(super) fn request_flip(&mut self) {
        let bank = (self.requested & BANK) ^ BANK;
        self.request(bank);
        self.flip = self.requested;
    }

    /// Requests a copy of the worker's active bank.
    pub(super) fn request_sample(&mut self) {
        self.request((self.requested & BANK) | COPY);
    }

    fn request(&mut self, flags: Request) {
        self.requested = (self.requested & !(BANK | COPY)) + SEQUENCE + flags;
        self.shared.request.store(self.requested, Ordering::Release);
    }

    /// Returns whether the worker has answered all requests.
    pub(super) fn is_served(&self) -> bool {
        self.shared.reply.load(Ordering::Acquire) == self.requested
    }

    /// Returns the CPU time of the worker at its last answer, in nanoseconds.
    pub(super) fn cpu_ns(&self) -> u64 {
        self.shared.cpu_ns.load(Ordering::Relaxed)
    }

    /// Returns the CPU that the worker ran on at its last answer.
    pub(super) fn cpu(&self) -> usize {
        self.shared.cpu.load(Ordering::Relaxed)
    }

    /// Returns the index of the closed bank.
    pub(super) fn closed_index(&self) -> usize {
        ((self.requested & BANK) ^ BANK) as usize
    }

    /// Returns the bank that the worker has left, once it has answered the last flip.
    pub(super) fn closed(&mut self) -> Option<&mut Bank> {
        if self.shared.reply.load(Ordering::Acquire) < self.flip {
            return None;
        }
        let state = self.shared.state.get();
        let closed = self.closed_index() % BANKS;
        // SAFETY: the pointer is valid as long as `shared`. There is one reader, and `&mut self`
        // makes this its only reference. The worker has replied to the last flip or to a later
        // request. All of these are for the bank that is not `closed`, so the worker accesses only
        // that one until the next flip, which needs `&mut self` (see `Sync` for `Shared`).
        unsafe { Some(&mut (*state).banks[closed]) }
    }

    /// Returns the worker's last copy.
    pub(super) fn sample(&self) -> MutexGuard<'_, Sample> {
        lock(&self.shared.sample)
    }
}
