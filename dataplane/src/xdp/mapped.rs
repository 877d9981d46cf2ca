//! Kernel arrays, mapped into this process.
#![allow(
    unsafe_code,
    reason = "memory shared with the kernel's programs; this module keeps apart the banks that both sides use"
)]

use crate::tables::Tables;
use aya::maps::MapData;
use flowgauge_core::delay::{Delay, Shares};
use flowgauge_core::kernel::{Core, Head, MemoryLayout, SharedBanks};
use flowgauge_core::{
    BANKS, Bank, Counters, Filter, Listed, PersistentBank, Settings, SharedBank,
    SharedPersistentBank, WindowTotals, Zeroed,
};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const PAGE: usize = 4096;

/// A mapped kernel array, whose elements have a length that is a multiple of eight bytes.
struct Mapping {
    start: NonNull<u8>,
    length: usize,
    count: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and has this one owner. Only the
// owner of this value interprets its bytes.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps an array of `count` elements.
    fn new(map: &MapData, count: usize, length: usize) -> io::Result<Self> {
        let (access, descriptor) =
            (libc::PROT_READ | libc::PROT_WRITE, map.fd().as_fd().as_raw_fd());
        let bytes = Self::bytes(count, length);
        // SAFETY: a new mapping at an address chosen by the kernel overlaps no memory in use.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, descriptor, 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Mapping { start, length, count })
    }

    fn bytes(count: usize, length: usize) -> usize {
        (count * length).next_multiple_of(PAGE)
    }

    /// Returns a pointer to the offset in an element; `length` bytes from there must be within the
    /// element.
    fn at(&self, index: usize, offset: usize, length: usize) -> *mut u8 {
        assert!(
            index < self.count && offset + length <= self.length,
            "{length} bytes at {offset} in element {index}"
        );
        // SAFETY: within the mapping, as checked above.
        unsafe { self.start.as_ptr().add(index * self.length + offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was created with this address and length, and no borrow of it exists
        // any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), Self::bytes(self.count, self.length)) };
    }
}

/// Memory shared by all CPUs, if the settings use any.
pub(super) struct SharedMemory(Option<Mapping>);

impl SharedMemory {
    /// Maps the shared memory, if there is any.
    pub(super) fn new(map: Option<&MapData>) -> io::Result<Self> {
        map.map(|map| Mapping::new(map, 1, size_of::<SharedBanks>())).transpose().map(SharedMemory)
    }

    /// Returns a shared bank, which programs in the kernel may update at any time.
    pub(super) fn bank(&self, bank: usize) -> Option<&SharedBank> {
        let start = self.0.as_ref()?.at(0, 0, size_of::<SharedBanks>());
        // SAFETY: a whole element of the mapping, aligned, valid for any bits, and atomic on both
        // sides.
        Some(unsafe { &(*start.cast::<SharedBanks>())[bank % BANKS] })
    }
}

/// Filters of the banks, if packets pass one. A program reads that of the bank that it counts in.
pub(super) struct MappedFilters {
    mapping: Option<Mapping>,
    /// Filters written, `None` if that is not known.
    written: [Option<Option<Arc<Filter>>>; BANKS],
}

impl MappedFilters {
    /// Maps the filters, if packets pass one.
    pub(super) fn new(map: Option<&MapData>) -> io::Result<Self> {
        let mapping = map.map(|map| Mapping::new(map, BANKS, size_of::<Filter>())).transpose()?;
        Ok(MappedFilters { mapping, written: [None, None] })
    }

    /// Returns whether packets pass a filter.
    pub(super) fn is_applied(&self) -> bool {
        self.mapping.is_some()
    }

    /// Sets the filter of a bank that no program counts in; `None` admits all packets.
    pub(super) fn set(&mut self, bank: usize, filter: Option<&Arc<Filter>>) {
        let Some(mapping) = &self.mapping else { return };
        let written = &mut self.written[bank % BANKS];
        let is_same = match (&*written, filter) {
            (Some(Some(written)), Some(filter)) => Arc::ptr_eq(written, filter),
            (Some(None), None) => true,
            _ => false,
        };
        if is_same {
            return;
        }
        let admits_all = || {
            let mut all = Filter::boxed();
            all.admit_all();
            Arc::from(all)
        };
        let from = filter.cloned().unwrap_or_else(admits_all);
        let to = mapping.at(bank % BANKS, 0, size_of::<Filter>()).cast::<Filter>();
        // SAFETY: a whole element of the mapping, aligned to words as a filter is, which no program
        // reads now.
        unsafe { to.copy_from_nonoverlapping(&raw const *from, 1) };
        *written = Some(filter.cloned());
    }
}

/// Adaptive request admission, in the array of persistent state, if the settings use it.
pub(super) struct AdmissionShares(Option<(Mapping, usize)>);

impl AdmissionShares {
    /// Maps the shares, in the array of persistent state if there is one.
    pub(super) fn new(map: Option<&MapData>, settings: &Settings) -> io::Result<Self> {
        let layout = MemoryLayout::of(settings);
        let start = layout.shared_persistent[Delay::INDEX] as usize + Shares::OFFSET;
        let follows = settings.delay.kinds.any() && settings.delay.follows;
        let map = map.filter(|_| follows);
        let mapping = map.map(|map| Mapping::new(map, 1, layout.together as usize)).transpose()?;
        Ok(AdmissionShares(mapping.map(|mapping| (mapping, start))))
    }

    /// Returns the shares of all banks.
    pub(super) fn shares(&self) -> Option<&Shares> {
        let (mapping, start) = self.0.as_ref()?;
        let start = mapping.at(0, *start, size_of::<Shares>());
        // SAFETY: within the mapping, aligned to words like all memory of measurements, valid for
        // any bits, and atomic on both sides.
        Some(unsafe { &*start.cast::<Shares>() })
    }
}

/// Initialises the array of persistent state before the first packet.
pub(super) fn prepare(map: &MapData, settings: &Settings, tables: &Tables) -> io::Result<()> {
    let layout = MemoryLayout::of(settings);
    let mapping = Mapping::new(map, 1, layout.together as usize)?;
    let prepared = SharedPersistentBank::boxed();
    prepared.prepare(settings);
    if settings.delay.asks_addresses() {
        prepared.delay.ranges.write(&tables.prefixes);
    }
    let from = (&raw const *prepared).cast::<u64>();
    for ((offset, bytes), to) in
        SharedPersistentBank::used(settings).into_iter().zip(layout.shared_persistent)
    {
        let to = mapping.at(0, to as usize, bytes).cast();
        // SAFETY: parts are within `prepared` and, as `at` has checked, within the element; both
        // are aligned to words and of integers. No program that uses the array runs yet.
        unsafe { copy_words(from.add(offset / 8), to, bytes / 8) };
    }
    Ok(())
}

/// Per-CPU memory with the layout of [`flowgauge_core::kernel`]. Programs may count in the active
/// bank of their CPU's element at any time.
pub(super) struct Cores {
    mapping: Mapping,
    layout: MemoryLayout,
    /// Buffer that banks are copied to, one by one.
    bank: Box<Bank>,
}

impl Cores {
    /// Maps an array of `count` elements for these settings.
    pub(super) fn new(map: &MapData, count: usize, settings: &Settings) -> io::Result<Self> {
        let layout = MemoryLayout::of(settings);
        Ok(Cores {
            mapping: Mapping::new(map, count, layout.core as usize)?,
            layout,
            bank: Bank::boxed(),
        })
    }

    /// Makes every CPU count in `bank` from its next packet on. Packets in flight may still be
    /// counted in the other one until [`GracePeriod::wait`](super::grace::GracePeriod::wait)
    /// returns.
    pub(super) fn set_bank(&mut self, bank: u32) {
        for cpu in 0..self.mapping.count {
            let word = self.mapping.at(cpu, offset_of!(Core, bank), size_of::<u32>());
            // SAFETY: within a mapped element and aligned; both sides only load and store it whole.
            let word = unsafe { AtomicU32::from_ptr(word.cast()) };
            word.store(bank, Ordering::Release);
        }
    }

    fn head(&self, cpu: usize, bank: usize) -> *const Head {
        self.mapping
            .at(cpu, MemoryLayout::bank(bank, self.layout.bank), size_of::<Head>())
            .cast_const()
            .cast()
    }

    /// Returns the counters of a bank for each CPU; each counter is read atomically.
    pub(super) fn counters(&self, bank: usize) -> impl Iterator<Item = Counters> {
        // SAFETY: within an element and aligned; both sides only load and store counters whole.
        (0..self.mapping.count).map(move |cpu| unsafe {
            (&raw const (*self.head(cpu, bank)).counters).read_volatile()
        })
    }

    /// Adds a bank of all CPUs to `sum`. Each word is read atomically, but in an active bank
    /// packets may be counted between two words: callers compare the counters before and after.
    pub(super) fn merge(&mut self, bank: usize, settings: &Settings, sum: &mut WindowTotals) {
        for cpu in 0..self.mapping.count {
            // SAFETY: within an element and aligned; heads are of integers, each of which both
            // sides load and store whole.
            let Head { counters, unopened } = unsafe { self.head(cpu, bank).read_volatile() };
            (self.bank.counters, self.bank.unopened) = (counters, unopened);
            let to = (&raw mut *self.bank).cast::<u64>();
            let start = MemoryLayout::bank(bank, self.layout.bank);
            for ((offset, bytes), from) in Bank::used(settings).into_iter().zip(self.layout.own) {
                let from = self.mapping.at(cpu, start + from as usize, bytes).cast_const();
                // SAFETY: parts are within an element, as `at` has checked, and within `self.bank`,
                // aligned to words, and of integers, valid with any bits.
                unsafe { copy_words(from.cast(), to.add(offset / 8), bytes / 8) };
            }
            sum.merge(&self.bank, settings);
        }
    }

    /// Clears a bank that all CPUs have left, after [`set_bank`](Self::set_bank) and the wait for
    /// packets in flight.
    pub(super) fn clear(&mut self, bank: usize) {
        let length = self.layout.bank as usize;
        for cpu in 0..self.mapping.count {
            let start = self.mapping.at(cpu, MemoryLayout::bank(bank, self.layout.bank), length);
            // SAFETY: within an element, of integers, and no program touches it.
            unsafe { start.write_bytes(0, length) };
        }
    }

    /// Returns the persistent state, merged over all CPUs. Each word is read atomically.
    pub(super) fn persistent(&self, settings: &Settings) -> Box<PersistentBank> {
        let (mut all, mut one) = (PersistentBank::boxed(), PersistentBank::boxed());
        for cpu in 0..self.mapping.count {
            let to = (&raw mut *one).cast::<u64>();
            for ((offset, bytes), from) in
                PersistentBank::used(settings).into_iter().zip(self.layout.persistent)
            {
                let from = self.mapping.at(cpu, from as usize, bytes).cast_const();
                // SAFETY: parts are within an element, as `at` has checked, and within `one`, aligned to
                // words, and of integers, valid with any bits.
                unsafe { copy_words(from.cast(), to.add(offset / 8), bytes / 8) };
            }
            all.merge(&one, settings);
        }
        all
    }
}

/// Copies words that the kernel may be writing, each atomically.
///
/// # Safety
/// Both must be aligned and valid for `words` words, and `to` must be exclusive.
unsafe fn copy_words(from: *const u64, to: *mut u64, words: usize) {
    for word in 0..words {
        // SAFETY: within the range, as the caller guarantees.
        unsafe { to.add(word).write(from.add(word).read_volatile()) };
    }
}
