//! A counter that several cores add to.
//!
//! Rust has no atomic additions for BPF, whose instruction set has: on that target this module asks
//! the compiler's back end for them.
#![cfg_attr(
    target_arch = "bpf",
    allow(unsafe_code, reason = "see above; the argument is at the one call")
)]

#[cfg(target_arch = "bpf")]
pub use bpf::{SharedCounter, SharedWord};
#[cfg(not(target_arch = "bpf"))]
pub use host::{SharedCounter, SharedWord};

/// Whether other cores count in the same memory at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// No other core does: plain loads and stores suffice.
    Alone,
    /// No other core does, and all packets together are too few to fill a counter, so that no
    /// check is needed.
    AloneWithFew,
    /// Others do.
    Shared,
}

impl Sharing {
    /// The same; unknown to the kernel's programs, whose verifier would look at each way.
    #[inline(always)]
    pub(crate) fn known(self) -> Option<Self> {
        (!cfg!(target_arch = "bpf")).then_some(self)
    }

    /// Adds to a counter; gives what it was before.
    #[inline(always)]
    pub(crate) fn add(self, counter: &SharedCounter, term: i32) -> i32 {
        match self {
            Sharing::Alone | Sharing::AloneWithFew => counter.store_alone(counter.load(), term),
            Sharing::Shared => counter.add(term),
        }
    }

    /// Sets a word if it is what is expected; says whether it was.
    #[inline(always)]
    pub(crate) fn replace(self, word: &SharedWord, expected: u64, value: u64) -> bool {
        match self {
            Sharing::Alone | Sharing::AloneWithFew => {
                let is_expected = word.load() == expected;
                if is_expected {
                    word.publish(value);
                }
                is_expected
            }
            Sharing::Shared => word.replace(expected, value),
        }
    }

    /// The same for a bank in which so many packets were counted, the present one included. `full`:
    /// how many fill a counter.
    #[inline(always)]
    #[must_use]
    pub(crate) fn of(self, packets: u64, full: u64) -> Self {
        // The kernel's verifier would look at each way.
        if self == Sharing::Alone && packets < full && !cfg!(target_arch = "bpf") {
            Sharing::AloneWithFew
        } else {
            self
        }
    }
}

#[cfg(not(target_arch = "bpf"))]
mod host {
    use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};
    use zerocopy::FromZeros;

    /// 64 bits that several cores change in one step.
    #[derive(Debug, Default, FromZeros)]
    #[repr(transparent)]
    pub struct SharedWord(AtomicU64);

    impl SharedWord {
        /// Zero.
        #[must_use]
        pub const fn new() -> Self {
            SharedWord(AtomicU64::new(0))
        }

        /// What it is.
        #[inline(always)]
        pub fn load(&self) -> u64 {
            self.0.load(Ordering::Acquire)
        }

        /// Sets it, after everything that was set before. What is set after it may seem to be set
        /// earlier, unless it is [published](SharedCounter::publish).
        #[inline(always)]
        pub fn publish(&self, value: u64) {
            self.0.store(value, Ordering::Release);
        }

        /// Sets it if it is what is expected; says whether it was.
        #[inline(always)]
        pub fn replace(&self, expected: u64, value: u64) -> bool {
            self.0.compare_exchange(expected, value, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        }
    }

    /// 32 bits that several cores add to.
    #[derive(Debug, Default, FromZeros)]
    #[repr(transparent)]
    pub struct SharedCounter(AtomicI32);

    impl SharedCounter {
        /// Zero.
        #[must_use]
        pub const fn new() -> Self {
            SharedCounter(AtomicI32::new(0))
        }

        /// Adds; gives what it was before.
        #[inline(always)]
        pub fn add(&self, term: i32) -> i32 {
            self.0.fetch_add(term, Ordering::Relaxed)
        }

        /// As [`add`](Self::add), when nobody else adds since it was `seen`: a plain store will do.
        #[inline(always)]
        pub fn store_alone(&self, seen: i32, term: i32) -> i32 {
            self.store(seen.wrapping_add(term));
            seen
        }

        /// What it is.
        #[inline(always)]
        pub fn load(&self) -> i32 {
            self.0.load(Ordering::Relaxed)
        }

        /// Sets it.
        #[inline(always)]
        pub fn store(&self, value: i32) {
            self.0.store(value, Ordering::Relaxed);
        }

        /// Sets it, after everything that was set before.
        #[inline(always)]
        pub fn publish(&self, value: i32) {
            self.0.store(value, Ordering::Release);
        }
    }
}

#[cfg(target_arch = "bpf")]
mod bpf {
    use core::cell::UnsafeCell;
    use core::intrinsics::{AtomicOrdering, atomic_cxchg, atomic_xadd};
    use zerocopy::FromZeros;

    /// 64 bits that several cores change in one step.
    #[derive(Debug, Default, FromZeros)]
    #[repr(transparent)]
    pub struct SharedWord(UnsafeCell<u64>);

    // SAFETY: it is only ever touched by atomic changes and by loads of the whole word.
    unsafe impl Sync for SharedWord {}

    impl SharedWord {
        /// Zero.
        #[must_use]
        pub const fn new() -> Self {
            SharedWord(UnsafeCell::new(0))
        }

        /// What it is.
        #[inline(always)]
        pub fn load(&self) -> u64 {
            // SAFETY: the pointer is valid and aligned, as `self` is, and a load of a word is whole
            // while others change it.
            unsafe { self.0.get().read_volatile() }
        }

        /// Sets it, after everything that was set before. On x86, whose cores see stores in their
        /// order; on others a core may see the next word with what was set before it missing. No
        /// instruction of older kernels forbids that at a lower price than an exchange.
        #[inline(always)]
        pub fn publish(&self, value: u64) {
            // SAFETY: as above; a store of a word is whole as well.
            unsafe { self.0.get().write_volatile(value) }
        }

        /// Sets it if it is what is expected; says whether it was.
        #[inline(always)]
        pub fn replace(&self, expected: u64, value: u64) -> bool {
            // SAFETY: as above.
            let (_, was) = unsafe {
                atomic_cxchg::<u64, { AtomicOrdering::AcqRel }, { AtomicOrdering::Acquire }>(
                    self.0.get(),
                    expected,
                    value,
                )
            };
            was
        }
    }

    /// 32 bits that several cores add to.
    #[derive(Debug, Default, FromZeros)]
    #[repr(transparent)]
    pub struct SharedCounter(UnsafeCell<i32>);

    // SAFETY: it is only ever touched by atomic additions and by loads of the whole word.
    unsafe impl Sync for SharedCounter {}

    impl SharedCounter {
        /// Zero.
        #[must_use]
        pub const fn new() -> Self {
            SharedCounter(UnsafeCell::new(0))
        }

        /// Adds; gives what it was before.
        #[inline(always)]
        pub fn add(&self, term: i32) -> i32 {
            // With relaxed ordering LLVM picks an instruction that does not say what was there
            // before. SAFETY: the pointer is valid and aligned, as `self` is, and all others add
            // atomically too.
            unsafe { atomic_xadd::<i32, i32, { AtomicOrdering::AcqRel }>(self.0.get(), term) }
        }

        /// As [`add`](Self::add), when nobody else adds since it was `seen`: a plain store will do.
        #[inline(always)]
        pub fn store_alone(&self, seen: i32, term: i32) -> i32 {
            self.store(seen.wrapping_add(term));
            seen
        }

        /// What it is.
        #[inline(always)]
        pub fn load(&self) -> i32 {
            // SAFETY: the pointer is valid and aligned, as `self` is, and a load of a word is whole
            // while others add.
            unsafe { self.0.get().read_volatile() }
        }

        /// Sets it.
        #[inline(always)]
        pub fn store(&self, value: i32) {
            // SAFETY: as above, of a store.
            unsafe { self.0.get().write_volatile(value) }
        }

        /// Sets it, after everything that was set before; see [`SharedWord::publish`].
        #[inline(always)]
        pub fn publish(&self, value: i32) {
            self.store(value);
        }
    }
}
