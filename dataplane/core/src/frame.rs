//! Bounded access to the bytes of a frame.

/// Four bytes of a frame as they lie in memory: `to_ne_bytes` gives them in network order.
pub type Word = u32;

/// The captured bytes of one frame.
///
/// Parsers read only through this trait, so that the eBPF programs can supply an implementation whose bounds the verifier
/// understands (a comparison with `data_end`) and whose loads are single instructions, while user space reads slices.
pub trait Frame {
    /// The number in network order at `offset`, or `None` if the frame ends inside it.
    fn number(&self, offset: usize) -> Option<u16>;

    /// The `N` words at `offset`, or `None` if the frame ends before or inside them.
    fn words<const N: usize>(&self, offset: usize) -> Option<[Word; N]>;
}

impl Frame for &[u8] {
    #[inline(always)]
    fn number(&self, offset: usize) -> Option<u16> {
        self.get(offset..)?.first_chunk().copied().map(u16::from_be_bytes)
    }

    #[inline(always)]
    fn words<const N: usize>(&self, offset: usize) -> Option<[Word; N]> {
        let (words, _) = self.get(offset..)?.as_chunks::<4>();
        words.first_chunk().map(|words| words.map(Word::from_ne_bytes))
    }
}
