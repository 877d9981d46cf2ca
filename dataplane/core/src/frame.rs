//! Bounded access to the bytes of a frame.

/// The captured bytes of one frame.
///
/// Parsers read only through this trait, so that the eBPF programs can supply an implementation
/// whose bounds the verifier understands (a comparison with `data_end`), while user space reads
/// slices.
pub trait Frame {
    /// The `N` bytes at `offset`, or `None` if the frame ends before or inside them.
    fn bytes<const N: usize>(&self, offset: usize) -> Option<&[u8; N]>;

    /// The number in network order at `offset`, or `None` if the frame ends inside it.
    #[inline(always)]
    fn number(&self, offset: usize) -> Option<u16> {
        self.bytes(offset).copied().map(u16::from_be_bytes)
    }

    /// The same offset. A verifier knows no more of it than that it can be an offset, and so
    /// follows the code behind it once, instead of once for each of the ways that led there.
    #[inline(always)]
    fn forget(&self, offset: usize) -> usize {
        offset
    }
}

impl Frame for [u8] {
    #[inline(always)]
    fn bytes<const N: usize>(&self, offset: usize) -> Option<&[u8; N]> {
        self.get(offset..)?.first_chunk()
    }
}
