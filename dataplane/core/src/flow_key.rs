//! Bytes of flow keys, laid out in words.

use zerocopy::{FromBytes, Immutable, IntoBytes, transmute};

/// A key in words of four bytes.
#[derive(Clone, Copy, Debug)]
pub struct KeyWordList<const WORDS: usize> {
    /// Fields in network order. The last word is padded with zeros if the key is not a multiple of
    /// four bytes.
    pub words: [[u8; 4]; WORDS],
    /// Length of the key in bytes.
    pub bytes: usize,
    /// Whether the key is of an IPv6 packet; otherwise of an IPv4 packet.
    pub over_ipv6: bool,
}

/// Consumer of a laid-out key: it makes a signature, a [`FlowKey`] or an entry of a batch from it.
pub trait KeyConsumer {
    /// Result type.
    type Output;

    /// Makes the result from a key.
    fn make<const WORDS: usize>(self, key: KeyWordList<WORDS>) -> Self::Output;
}

/// Length of the longest key: an IPv6 five-tuple.
pub const MAX_KEY_BYTES: usize = 37;

/// Bytes of the buffer: buffer and length together fill a multiple of eight bytes.
const ROOM: usize = 39;

/// Bytes of one flow key. Aligned and without padding, because the verifier allows neither
/// misaligned writes to a program's stack nor reads of bytes that were not written there.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, Immutable, IntoBytes,
)]
#[repr(C, align(8))]
pub struct FlowKey {
    bytes: [u8; ROOM],
    length: u8,
}

impl Default for FlowKey {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl FlowKey {
    /// The empty key.
    pub(crate) const EMPTY: FlowKey = FlowKey { bytes: [0; ROOM], length: 0 };

    /// Creates a key from bytes, fields in the order of [`KeyKind`](crate::KeyKind). Bytes beyond
    /// [`MAX_KEY_BYTES`] are dropped.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let mut key = Self::EMPTY;
        for (slot, byte) in key.bytes.iter_mut().zip(bytes).take(MAX_KEY_BYTES) {
            *slot = *byte;
            key.length += 1;
        }
        key
    }

    /// Returns the key's bytes in network order.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or(&self.bytes)
    }

    /// Returns whether the key of an IPv4 or IPv6 packet is of the latter: the longest one over IPv4
    /// has 13 bytes.
    #[inline(always)]
    pub(crate) fn is_over_ipv6(&self) -> bool {
        self.length >= 16
    }

    /// Returns the first words: of a five-tuple the addresses.
    #[inline(always)]
    pub(crate) fn words<const N: usize>(&self) -> [[u8; 4]; N] {
        const { assert!(4 * N <= ROOM) };
        let (words, _) = self.bytes.as_chunks::<4>();
        words.first_chunk::<N>().copied().unwrap_or([[0; 4]; N])
    }
}

impl KeyConsumer for FlowKey {
    type Output = Self;

    #[inline(always)]
    fn make<const WORDS: usize>(self, key: KeyWordList<WORDS>) -> Self {
        const { assert!(4 * WORDS <= size_of::<Self>()) };
        let mut words = [[0; 4]; size_of::<Self>() / 4];
        for (slot, word) in words.iter_mut().zip(key.words) {
            *slot = word;
        }
        // The longest key does not fill its last word. Written whole: LLVM would copy the zeros before
        // a byte written alone in pieces that overlap, for which a CPU has to wait.
        if let Some(last) = words.last_mut() {
            let [first, ..] = *last;
            *last = [first, 0, 0, key.bytes as u8];
        }
        transmute!(words)
    }
}
