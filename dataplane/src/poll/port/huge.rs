//! Huge pages for buffers that are read once: zeroing small pages takes longer than reading into
//! them.
#![allow(unsafe_code, reason = "advises the kernel on the use of memory")]

/// Size and alignment of a huge page on most machines, in bytes.
pub(super) const HUGE_PAGE: usize = 2 << 20;

/// Asks the kernel for huge pages for memory that is still unwritten. A hint: refusal is harmless.
pub(super) fn advise(memory: &mut [u8]) {
    // SAFETY: memory owned by the caller, whose contents do not change.
    let _ = unsafe {
        rustix::mm::madvise(
            memory.as_mut_ptr().cast(),
            memory.len(),
            rustix::mm::Advice::LinuxHugepage,
        )
    };
}
