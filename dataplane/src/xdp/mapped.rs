//! The kernel's arrays, mapped into this process.
#![allow(
    unsafe_code,
    reason = "memory shared with the kernel's programs; this module keeps apart the banks that both sides use"
)]

use crate::tables::Tables;
use aya::maps::MapData;
use flowgauge_core::delay::{Delay, Shares};
use flowgauge_core::kernel::{Core, Head, Layout, SharedBanks};
use flowgauge_core::{
    BANKS, Bank, Counters, Lasting, Listed, Settings, SharedBank, SharedLasting, WideBank, Zeroed,
};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

const PAGE: usize = 4096;

/// An array of the kernel, whose elements have a length that is a multiple of eight bytes.
struct Mapping {
    start: NonNull<u8>,
    length: usize,
    count: usize,
}

// SAFETY: the pages belong to the map and not to a thread, and what is made of them is left to the
// owner.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps an array of `count` elements.
    fn new(map: &MapData, count: usize, length: usize) -> io::Result<Self> {
        let (access, descriptor) =
            (libc::PROT_READ | libc::PROT_WRITE, map.fd().as_fd().as_raw_fd());
        let bytes = Self::bytes(count, length);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
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

    /// What is at an offset in an element, from which on `length` bytes are in it.
    fn at(&self, index: usize, offset: usize, length: usize) -> *mut u8 {
        assert!(
            index < self.count && offset + length <= self.length,
            "{length} bytes at {offset} in element {index}"
        );
        // SAFETY: within the mapping, as just checked.
        unsafe { self.start.as_ptr().add(index * self.length + offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this address and length, and nothing borrows from it
        // any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), Self::bytes(self.count, self.length)) };
    }
}

/// What all CPUs count in, if anything.
pub(super) struct Together(Option<Mapping>);

impl Together {
    /// Maps it.
    pub(super) fn new(map: &MapData, settings: &Settings) -> io::Result<Self> {
        settings
            .shares()
            .then(|| Mapping::new(map, 1, size_of::<SharedBanks>()))
            .transpose()
            .map(Together)
    }

    /// A bank of it, which programs in the kernel add to at any time.
    pub(super) fn bank(&self, bank: usize) -> Option<&SharedBank> {
        let start = self.0.as_ref()?.at(0, 0, size_of::<SharedBanks>());
        // SAFETY: a whole element of the mapping, aligned, valid for any bits, and atomic on both
        // sides.
        Some(unsafe { &(*start.cast::<SharedBanks>())[bank % BANKS] })
    }
}

/// Which requests windows admit, in the array of what lasts, if that changes.
pub(super) struct Admitted(Option<(Mapping, usize)>);

impl Admitted {
    /// Maps it.
    pub(super) fn new(map: &MapData, settings: &Settings) -> io::Result<Self> {
        let layout = Layout::of(settings);
        let start = layout.shared_lasting[Delay::INDEX] as usize + Shares::OFFSET;
        let follows = settings.delay.kinds.any() && settings.delay.follows;
        let mapping =
            follows.then(|| Mapping::new(map, 1, layout.together as usize)).transpose()?;
        Ok(Admitted(mapping.map(|mapping| (mapping, start))))
    }

    /// The shares of all banks.
    pub(super) fn shares(&self) -> Option<&Shares> {
        let (mapping, start) = self.0.as_ref()?;
        let start = mapping.at(0, *start, size_of::<Shares>());
        // SAFETY: within the mapping, aligned to words as what measurements use is, valid for any
        // bits, and atomic on both sides.
        Some(unsafe { &*start.cast::<Shares>() })
    }
}

/// Writes what the array of what lasts has to hold before the first packet.
pub(super) fn prepare(map: &MapData, settings: &Settings, tables: &Tables) -> io::Result<()> {
    let layout = Layout::of(settings);
    if layout.together == 0 {
        return Ok(());
    }
    let mapping = Mapping::new(map, 1, layout.together as usize)?;
    let prepared = SharedLasting::boxed();
    prepared.prepare(settings);
    if settings.delay.asks_addresses() {
        prepared.delay.ranges.write(&tables.prefixes);
    }
    let from = (&raw const *prepared).cast::<u64>();
    for ((offset, bytes), to) in SharedLasting::used(settings).zip(layout.shared_lasting) {
        let to = mapping.at(0, to as usize, bytes).cast();
        // SAFETY: as in `Cores::merge`; no program runs yet that looks at the array.
        unsafe { copy_words(from.add(offset / 8), to, bytes / 8) };
    }
    Ok(())
}

/// One element a CPU, as [`flowgauge_core::kernel`] has it. Programs count in the active bank of
/// their CPU's element at any time.
pub(super) struct Cores {
    mapping: Mapping,
    layout: Layout,
    /// What banks are copied to, one by one.
    bank: Box<Bank>,
}

impl Cores {
    /// Maps an array of `count` elements for what these settings use.
    pub(super) fn new(map: &MapData, count: usize, settings: &Settings) -> io::Result<Self> {
        let layout = Layout::of(settings);
        Ok(Cores {
            mapping: Mapping::new(map, count, layout.core as usize)?,
            layout,
            bank: Bank::boxed(),
        })
    }

    /// Makes every CPU count in `bank` from its next packet on. Packets in flight may still be
    /// counted in the other one until [`Grace::wait`](super::grace::Grace::wait) returns.
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
            .at(cpu, Layout::bank(bank, self.layout.bank), size_of::<Head>())
            .cast_const()
            .cast()
    }

    /// The counters of a bank of all CPUs; each is whole.
    pub(super) fn counters(&self, bank: usize) -> impl Iterator<Item = Counters> {
        // SAFETY: within an element and aligned; both sides only load and store counters whole.
        (0..self.mapping.count).map(move |cpu| unsafe {
            (&raw const (*self.head(cpu, bank)).counters).read_volatile()
        })
    }

    /// Adds a bank of all CPUs to `sum`. Each word is whole, but in a bank that is active packets
    /// may be counted between two words: callers compare the counters before and after.
    pub(super) fn merge(&mut self, bank: usize, settings: &Settings, sum: &mut WideBank) {
        for cpu in 0..self.mapping.count {
            // SAFETY: within an element and aligned; heads are of integers, each of which both
            // sides load and store whole.
            let Head { counters, unopened } = unsafe { self.head(cpu, bank).read_volatile() };
            (self.bank.counters, self.bank.unopened) = (counters, unopened);
            let to = (&raw mut *self.bank).cast::<u64>();
            let start = Layout::bank(bank, self.layout.bank);
            for ((offset, bytes), from) in Bank::used(settings).zip(self.layout.own) {
                let from = self.mapping.at(cpu, start + from as usize, bytes).cast_const();
                // SAFETY: parts are within a bank and within `self.bank`, aligned to words, and of
                // integers, valid with any bits.
                unsafe { copy_words(from.cast(), to.add(offset / 8), bytes / 8) };
            }
            sum.merge(&self.bank, settings);
        }
    }

    /// Empties a bank that [`set_bank`](Self::set_bank) and a wait for packets in flight have made
    /// everybody leave.
    pub(super) fn clear(&mut self, bank: usize) {
        let length = self.layout.bank as usize;
        for cpu in 0..self.mapping.count {
            let start = self.mapping.at(cpu, Layout::bank(bank, self.layout.bank), length);
            // SAFETY: within an element, of integers, and no program touches it.
            unsafe { start.write_bytes(0, length) };
        }
    }

    /// What lasts, of all CPUs. Each word is whole.
    pub(super) fn lasting(&self, settings: &Settings) -> Box<Lasting> {
        let (mut all, mut one) = (Lasting::boxed(), Lasting::boxed());
        for cpu in 0..self.mapping.count {
            let to = (&raw mut *one).cast::<u64>();
            for ((offset, bytes), from) in Lasting::used(settings).zip(self.layout.lasting) {
                let from = self.mapping.at(cpu, from as usize, bytes).cast_const();
                // SAFETY: as in `merge`.
                unsafe { copy_words(from.cast(), to.add(offset / 8), bytes / 8) };
            }
            all.merge(&one, settings);
        }
        all
    }
}

/// Copies words that the kernel may be writing, each as it is when its turn comes.
///
/// # Safety
/// Both must be aligned and valid for so many words, and `to` be nobody else's.
unsafe fn copy_words(from: *const u64, to: *mut u64, words: usize) {
    for word in 0..words {
        // SAFETY: within the range, as the caller promises.
        unsafe { to.add(word).write(from.add(word).read_volatile()) };
    }
}
