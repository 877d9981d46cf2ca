//! Memory of chunks of a capture, in huge pages: zeroing small pages takes longer than reading into
//! them.
#![allow(unsafe_code, reason = "advises the kernel on the use of memory")]

use std::ops::Deref;

/// Bytes of a capture file that a worker reads at once: enough for the kernel's copy to reach full
/// speed.
pub const CHUNK: usize = 2 << 20;

/// Size and alignment of a huge page on most machines, in bytes.
const HUGE_PAGE: usize = 2 << 20;

/// Bytes of a chunk: a part of a buffer that is reused.
pub(super) struct Buffer {
    /// Memory, with old contents around the chunk.
    pub(super) bytes: Vec<u8>,
    start: usize,
    /// Number of bytes that belong to the chunk.
    pub(super) length: usize,
}

impl Default for Buffer {
    /// Allocates space for [`CHUNK`] bytes, aligned for huge pages.
    fn default() -> Self {
        let mut bytes = vec![0; CHUNK + HUGE_PAGE];
        let start = bytes.as_ptr().align_offset(HUGE_PAGE).min(HUGE_PAGE);
        advise(&mut bytes[start..start + CHUNK]);
        Buffer { bytes, start, length: 0 }
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Buffer { start: 0, length: bytes.len(), bytes }
    }
}

impl Buffer {
    /// Creates a chunk of `length` bytes from `start` on.
    pub(super) fn part(bytes: Vec<u8>, start: usize, length: usize) -> Self {
        Buffer { bytes, start, length }
    }

    /// Returns the space for [`CHUNK`] bytes.
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + CHUNK]
    }

    pub(super) fn has_room(&self) -> bool {
        self.bytes.len() == CHUNK + HUGE_PAGE
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }
}

/// Asks the kernel for huge pages for memory that is still unwritten. A hint: refusal is harmless.
fn advise(memory: &mut [u8]) {
    // SAFETY: memory owned by the caller, whose contents do not change.
    let _ = unsafe {
        rustix::mm::madvise(
            memory.as_mut_ptr().cast(),
            memory.len(),
            rustix::mm::Advice::LinuxHugepage,
        )
    };
}
