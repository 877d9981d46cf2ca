//! Huge pages for what is read once: clearing single pages takes longer than reading into them.
#![allow(unsafe_code, reason = "says to the kernel how memory is used")]

/// Where a huge page may begin, and its bytes, on most machines.
pub(super) const HUGE_PAGE: usize = 2 << 20;

/// Has the kernel take huge pages for memory that nothing was written to yet, where it has some.
/// Nothing is lost where it has none.
pub(super) fn advise(memory: &mut [u8]) {
    #[cfg(target_os = "linux")]
    // SAFETY: memory of ours; what it holds stays as it is.
    let _ = unsafe {
        rustix::mm::madvise(
            memory.as_mut_ptr().cast(),
            memory.len(),
            rustix::mm::Advice::LinuxHugepage,
        )
    };
}
