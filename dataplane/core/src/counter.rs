//! Counters and words that several cores change.
//!
//! BPF has atomic additions, but Rust does not offer them on that target. There this module calls
//! the compiler's intrinsics. `BPF.md` explains which kernels support them.
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
    /// No other core does, and the packets of the bank are too few to fill a counter, so that no
    /// check is needed.
    AloneWithFew,
    /// Other cores do.
    Shared,
}

impl Sharing {
    /// Returns itself, or `None` in the kernel's programs, whose verifier would follow each case.
    #[inline(always)]
    pub(crate) fn known(self) -> Option<Self> {
        (!cfg!(target_arch = "bpf")).then_some(self)
    }

    /// Adds to a counter; returns the previous value.
    #[inline(always)]
    pub(crate) fn add(self, counter: &SharedCounter, term: i32) -> i32 {
        match self {
            Sharing::Alone | Sharing::AloneWithFew => counter.store_alone(counter.load(), term),
            Sharing::Shared => counter.add(term),
        }
    }

    /// Sets a word if it has the expected value; returns whether it had.
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

    /// Returns the sharing of a bank in which `packets` were counted, the present one included.
    /// `full`: number of packets that fill a counter.
    #[inline(always)]
    #[must_use]
    pub(crate) fn of(self, packets: u64, full: u64) -> Self {
        // The kernel's verifier would follow both cases.
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

    /// Word of 64 bits that several cores change atomically.
    #[derive(Debug, Default, FromZeros)]
    #[repr(transparent)]
    pub struct SharedWord(AtomicU64);

    impl SharedWord {
        /// Creates a word of zero.
        #[must_use]
        pub const fn new() -> Self {
            SharedWord(AtomicU64::new(0))
        }

        /// Returns the value.
        #[inline(always)]
        pub fn load(&self) -> u64 {
            self.0.load(Ordering::Acquire)
        }

        /// Sets the value, after all earlier stores. Later stores may become visible before it,
        /// unless they are [published](SharedCounter::publish) too.
        #[inline(always)]
        pub fn publish(&self, value: u64) {
            self.0.store(value, Ordering::Release);
        }

        /// Sets the value if it is the expected one; returns whether it was.
        #[inline(always)]
        pub fn replace(&self, expected: u64, value: u64) -> bool {
            self.0.compare_exchange(expected, value, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        }
    }

    /// Counter of 32 bits that several cores add to.
    #[derive(Debug, Default, FromZeros)]
    #[repr(transparent)]
    pub struct SharedCounter(AtomicI32);

    impl SharedCounter {
        /// Creates a counter of zero.
        #[must_use]
        pub const fn new() -> Self {
            SharedCounter(AtomicI32::new(0))
        }

        /// Adds atomically; returns the previous value.
        #[inline(always)]
        pub fn add(&self, term: i32) -> i32 {
            self.0.fetch_add(term, Ordering::Relaxed)
        }

        /// As [`add`](Self::add), where no other core has added since the value was `seen`: a plain
        /// store suffices.
        #[inline(always)]
        pub fn store_alone(&self, seen: i32, term: i32) -> i32 {
            self.store(seen.wrapping_add(term));
            seen
        }

        /// Returns the value.
        #[inline(always)]
        pub fn load(&self) -> i32 {
            self.0.load(Ordering::Relaxed)
        }

        /// Sets the value.
        #[inline(always)]
        pub fn store(&self, value: i32) {
            self.0.store(value, Ordering::Relaxed);
        }

        /// Sets the value, after all earlier stores.
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

    /// Word of 64 bits that several cores change atomically.
    #[derive(Debug, Default, FromZeros)]
    #[repr(transparent)]
    pub struct SharedWord(UnsafeCell<u64>);

    // SAFETY: accessed only by atomic changes, and by loads and stores of the whole word.
    unsafe impl Sync for SharedWord {}

    impl SharedWord {
        /// Creates a word of zero.
        #[must_use]
        pub const fn new() -> Self {
            SharedWord(UnsafeCell::new(0))
        }

        /// Returns the value.
        #[inline(always)]
        pub fn load(&self) -> u64 {
            // SAFETY: the pointer is valid and aligned, as `self` is, and a load of a word is never
            // torn while others change it.
            unsafe { self.0.get().read_volatile() }
        }

        /// Sets the value, after all earlier stores. This order holds on x86, whose cores see
        /// stores in program order; on other architectures a core may see the new value before
        /// earlier stores. On older kernels no instruction cheaper than an exchange prevents that.
        #[inline(always)]
        pub fn publish(&self, value: u64) {
            // SAFETY: as above; a store of a word is never torn either.
            unsafe { self.0.get().write_volatile(value) }
        }

        /// Sets the value if it is the expected one; returns whether it was.
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

    /// Counter of 32 bits that several cores add to.
    #[derive(Debug, Default, FromZeros)]
    #[repr(transparent)]
    pub struct SharedCounter(UnsafeCell<i32>);

    // SAFETY: accessed only by atomic additions, and by loads and stores of the whole word.
    unsafe impl Sync for SharedCounter {}

    impl SharedCounter {
        /// Creates a counter of zero.
        #[must_use]
        pub const fn new() -> Self {
            SharedCounter(UnsafeCell::new(0))
        }

        /// Adds atomically; returns the previous value.
        #[inline(always)]
        pub fn add(&self, term: i32) -> i32 {
            // With relaxed ordering LLVM picks an instruction that does not return the previous
            // value. SAFETY: the pointer is valid and aligned, as `self` is, and all others add
            // atomically too.
            unsafe { atomic_xadd::<i32, i32, { AtomicOrdering::AcqRel }>(self.0.get(), term) }
        }

        /// As [`add`](Self::add), where no other core has added since the value was `seen`: a plain
        /// store suffices.
        #[inline(always)]
        pub fn store_alone(&self, seen: i32, term: i32) -> i32 {
            self.store(seen.wrapping_add(term));
            seen
        }

        /// Returns the value.
        #[inline(always)]
        pub fn load(&self) -> i32 {
            // SAFETY: the pointer is valid and aligned, as `self` is, and a load of a word is never
            // torn while others add.
            unsafe { self.0.get().read_volatile() }
        }

        /// Sets the value.
        #[inline(always)]
        pub fn store(&self, value: i32) {
            // SAFETY: as above, for a store.
            unsafe { self.0.get().write_volatile(value) }
        }

        /// Sets the value, after all earlier stores; see [`SharedWord::publish`].
        #[inline(always)]
        pub fn publish(&self, value: i32) {
            self.store(value);
        }
    }
}
