//! The kernel's array of cores, mapped into this process.
#![allow(unsafe_code, reason = "memory shared with the kernel's programs; this module keeps apart the banks that both sides use")]

use aya::maps::MapData;
use flowgauge_core::cardinality::Staggered;
use flowgauge_core::{Bank, Core, Counters, Precision, Settings, Shared, WideBank};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

const PAGE: usize = 4096;

/// An array of the kernel.
struct Mapping<T> {
    start: NonNull<T>,
    count: usize,
    bytes: usize,
}

// SAFETY: the pages belong to the map and not to a thread, and what is made of `T` is left to the owner.
unsafe impl<T: Send> Send for Mapping<T> {}

impl<T> Mapping<T> {
    /// Maps an array of `count` elements.
    fn new(map: &MapData, count: usize) -> io::Result<Self> {
        const { assert!(size_of::<T>().is_multiple_of(8), "the kernel lays elements out at multiples of eight bytes") };
        let bytes = (count * size_of::<T>()).next_multiple_of(PAGE);
        let (access, descriptor) = (libc::PROT_READ | libc::PROT_WRITE, map.fd().as_fd().as_raw_fd());
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, descriptor, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Mapping { start, count, bytes })
    }

    fn element(&self, index: usize) -> *mut T {
        assert!(index < self.count, "element {index} of {}", self.count);
        // SAFETY: within the mapping, as just checked.
        unsafe { self.start.as_ptr().add(index) }
    }
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this address and length, and nothing borrows from it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// The sketches that all CPUs count in.
pub(super) struct Sketches(Mapping<Shared>);

impl Sketches {
    /// Maps them.
    pub(super) fn new(map: &MapData) -> io::Result<Self> {
        Mapping::new(map, 1).map(Sketches)
    }

    /// Their counters, which programs in the kernel add to at any time.
    pub(super) fn shared(&self) -> &Shared {
        // SAFETY: one element of the mapping, valid for any bits, and atomic on both sides.
        unsafe { &*self.0.element(0) }
    }
}

/// One [`Core`] a CPU. Programs in the kernel count in the active bank of their CPU's element at any time.
pub(super) struct Cores(Mapping<Core>);

impl Cores {
    /// Maps an array of `count` cores.
    pub(super) fn new(map: &MapData, count: usize) -> io::Result<Self> {
        Mapping::new(map, count).map(Cores)
    }

    /// Number of CPUs.
    pub(super) fn count(&self) -> usize {
        self.0.count
    }

    fn core(&self, cpu: usize) -> *mut Core {
        self.0.element(cpu)
    }

    /// Makes every CPU count in `bank` from its next packet on. Packets in flight may still be counted in the other one until
    /// [`Grace::wait`](super::grace::Grace::wait) returns.
    pub(super) fn set_bank(&mut self, bank: u32) {
        for cpu in 0..self.count() {
            // SAFETY: within a mapped element and aligned; both sides only load and store it whole.
            let word = unsafe { AtomicU32::from_ptr(&raw mut (*self.core(cpu)).bank) };
            word.store(bank, Ordering::Release);
        }
    }

    /// The bank of each CPU in which no CPU counts: `bank` must have been left by [`set_bank`](Self::set_bank) and a wait for
    /// packets in flight. `&mut self` keeps it left while the references live.
    pub(super) fn closed(&mut self, bank: usize) -> impl Iterator<Item = &mut Bank> {
        let cores: &Cores = self;
        // SAFETY: elements do not overlap, and no program touches the closed bank.
        (0..cores.count()).map(move |cpu| unsafe { &mut (*cores.core(cpu)).state.banks[bank] })
    }

    /// The counters of the bank that a CPU is counting in; each is whole.
    pub(super) fn counters(&self, cpu: usize, active: usize) -> Counters {
        // SAFETY: only the address is computed; both sides only load and store counters whole.
        unsafe { (&raw const (*self.core(cpu)).state.banks[active].counters).read_volatile() }
    }

    /// Merges the bank that a CPU is counting in into `bank`. Each word is whole, but packets may be counted between two words:
    /// callers compare the counters before and after. `scratch` is overwritten.
    pub(super) fn merge_active(&self, cpu: usize, active: usize, settings: &Settings, bank: &mut WideBank, scratch: &mut Bank) {
        // SAFETY: only the address is computed.
        let from = unsafe { &raw const (*self.core(cpu)).state.banks[active] };
        let to = (&raw mut *scratch).cast::<u64>();
        for range in <Bank>::used(settings) {
            let (first, words) = (range.start / 8, range.len() / 8);
            // SAFETY: within a bank, and aligned, as a bank and its parts are.
            let theirs = unsafe { volatile_words(from.cast::<u64>().add(first), words) };
            for (offset, word) in theirs.enumerate() {
                // SAFETY: within `scratch`, which is of integers, and valid with any bits.
                unsafe { to.add(first + offset).write(word) };
            }
        }
        bank.merge(scratch, settings);
    }

    /// Merges a CPU's staggered registers into `registers`. Each register is whole. `scratch` is overwritten.
    pub(super) fn merge_staggered(&self, cpu: usize, precision: Precision, registers: &mut Staggered, scratch: &mut Staggered) {
        // SAFETY: only the address is computed.
        let from = unsafe { &raw const (*self.core(cpu)).state.staggered };
        let words = scratch.words_mut(precision);
        // SAFETY: `from` starts with the registers, behind banks of 64 bits; those in use are a multiple of two.
        let theirs = unsafe { volatile_words(from.cast(), words.len() / 2) };
        for (words, theirs) in words.chunks_exact_mut(2).zip(theirs) {
            words.copy_from_slice(&[theirs as u32, (theirs >> 32) as u32]);
        }
        registers.merge(scratch, precision);
    }
}

/// Words that the kernel may be writing, each as it is when it is asked for.
///
/// # Safety
/// `from` must be aligned and valid for `words` words for as long as the iterator is used.
unsafe fn volatile_words(from: *const u64, words: usize) -> impl Iterator<Item = u64> {
    // SAFETY: within the range, as the caller promises.
    (0..words).map(move |word| unsafe { from.add(word).read_volatile() })
}
