//! Settings of the C library's allocator.
#![allow(unsafe_code, reason = "the allocator is set by a function of C")]

/// Size from which memory comes from the kernel, in bytes: less than a bank of all measurements.
#[cfg(target_env = "gnu")]
const FROM_KERNEL: libc::c_int = 4 << 20;

/// Makes banks take as much memory as their settings use: the kernel provides a page once it is
/// written. By default glibc takes banks from its heap, and clears all of them, once it has freed a
/// larger block, such as the kernel's type information. No other thread may allocate meanwhile.
pub fn allocate_banks_on_use() {
    #[cfg(target_env = "gnu")]
    // SAFETY: plain settings, while no other thread allocates. Memory freed at the end of the heap
    // stays there up to the second one.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, FROM_KERNEL);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 2 * FROM_KERNEL);
    }
}
