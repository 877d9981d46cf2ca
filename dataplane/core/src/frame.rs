//! Bounded access to the bytes of a frame.

/// Captured bytes of one frame.
///
/// Parsers read only through this trait, so that the eBPF programs can supply an implementation
/// whose bounds the verifier understands (a comparison with `data_end`), while user space reads
/// slices.
pub trait Frame {
    /// Returns the `N` bytes at `offset`, or `None` if the frame ends before or inside them.
    fn bytes<const N: usize>(&self, offset: usize) -> Option<&[u8; N]>;

    /// Returns the number of 16 bits in network order at `offset`, or `None` if the frame ends
    /// inside it.
    #[inline(always)]
    fn number(&self, offset: usize) -> Option<u16> {
        self.bytes(offset).copied().map(u16::from_be_bytes)
    }

    /// Returns the 32 bytes at `offset` as words in the byte order of this machine, or `None` if the
    /// frame ends before or inside them.
    #[inline(always)]
    fn words(&self, offset: usize) -> Option<[u64; 4]> {
        self.bytes(offset).map(words)
    }

    /// Returns the same offset. The verifier then knows no more about it than its range, and so
    /// follows the code after it once, instead of once for each path that led there (`BPF.md`).
    #[inline(always)]
    fn forget(&self, offset: usize) -> usize {
        offset
    }
}

/// Returns bytes as words in the byte order of this machine.
#[inline(always)]
#[must_use]
pub fn words(bytes: &[u8; 32]) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    words
}

impl Frame for [u8] {
    #[inline(always)]
    fn bytes<const N: usize>(&self, offset: usize) -> Option<&[u8; N]> {
        self.get(offset..)?.first_chunk()
    }
}
