//! Prefetch of headers into the cache before their packets are counted.
#![allow(unsafe_code, reason = "a hint to the CPU")]

/// Distance of the prefetch in packets, where each frame has a buffer of its own, written by a
/// device or another core. With 8, all measurements combined took 2 ns more for frames in memory,
/// and with 24 no less.
pub const AHEAD: usize = 16;

/// Prefetches the cache line at an address, valid or not.
#[inline(always)]
pub fn prefetch(_address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint that reads nothing; any address is valid.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(_address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the same hint, which has no stable intrinsic.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) _address, options(nostack, preserves_flags, readonly));
    }
}
