//! Strongly universal hash of a whole flow key: sums of 64-bit products with secret words.
//!
//! Multilinear-HM of Lemire and Kaser ("Strongly universal string hashing is fast", The Computer
//! Journal 57, 2014), after Carter and Wegman (1979): words `x` of 32 bits, pair by pair, with
//! multipliers `k` of 64 bits,
//!
//! `h(x) = (k + (k0 + x0)(k1 + x1) + (k2 + x2)(k3 + x3) + …) mod 2^64 >> 32`.
//!
//! Over random multipliers, the hashes of any two different keys are two independent uniform
//! numbers. They are equal with probability 2^-32, even if an adversary chose the keys, as long as
//! the choice does not depend on the multipliers. The constant `k` differs between IPv4 and IPv6,
//! so that this also holds for keys of different families.

use crate::flow_key::{FlowKey, KeyConsumer, KeyWordList};

/// Words of 32 bits of the longest key: an IPv6 five-tuple, whose protocol takes a word.
const KEY_WORDS: usize = 10;

/// Number of 64-bit words in a [`Multilinear`].
pub const MULTILINEAR_WORDS: usize = KEY_WORDS + 2;

/// Hash function: constants of both families, and the multipliers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Multilinear {
    ipv4: u64,
    ipv6: u64,
    multipliers: [u64; KEY_WORDS],
}

impl Multilinear {
    /// Function of zeros, for statics that are filled later.
    pub const ZERO: Multilinear = Multilinear { ipv4: 0, ipv6: 0, multipliers: [0; KEY_WORDS] };

    /// Creates the hash function from words in this order: constant of IPv4, constant of IPv6,
    /// multipliers.
    #[must_use]
    pub const fn from_words(words: [u64; MULTILINEAR_WORDS]) -> Self {
        let [ipv4, ipv6, multipliers @ ..] = words;
        Multilinear { ipv4, ipv6, multipliers }
    }

    /// Returns its words, in the order of [`from_words`](Self::from_words).
    #[must_use]
    pub fn words(&self) -> [u64; MULTILINEAR_WORDS] {
        let mut words = [self.ipv4, self.ipv6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        words
            .iter_mut()
            .skip(2)
            .zip(self.multipliers)
            .for_each(|(word, multiplier)| *word = multiplier);
        words
    }

    /// Returns the hash of a key given as words, with the constant of its family.
    #[inline(always)]
    #[allow(
        clippy::indexing_slicing,
        reason = "the compiler checks that there are multipliers for N words"
    )]
    fn hash_words<const N: usize>(&self, constant: u64, words: [[u8; 4]; N]) -> u32 {
        const { assert!(N <= KEY_WORDS) };
        let term =
            |index: usize| (self.multipliers[index], u64::from(u32::from_le_bytes(words[index])));
        let (mut sum, mut index) = (constant, 0_usize);
        while index.wrapping_add(1) < N {
            sum = sum.wrapping_add(product(term(index), term(index.wrapping_add(1))));
            index = index.wrapping_add(2);
        }
        if index < N {
            let (multiplier, word) = term(index);
            sum = sum.wrapping_add(multiplier.wrapping_mul(word));
        }
        (sum >> 32) as u32
    }

    /// Returns the hash of a key given as bytes. The length determines the family: the longest key
    /// over IPv4 has 13 bytes, the shortest one over IPv6 has 16.
    #[must_use]
    pub fn hash(&self, key: &FlowKey) -> u32 {
        let bytes = key.as_bytes();
        let constant = if bytes.len() < 16 { self.ipv4 } else { self.ipv6 };
        let mut terms = self.multipliers.iter().zip(bytes.chunks(4)).map(|(multiplier, bytes)| {
            let mut word = [0; 4];
            word.iter_mut().zip(bytes).for_each(|(slot, byte)| *slot = *byte);
            (*multiplier, u64::from(u32::from_le_bytes(word)))
        });
        let mut sum = constant;
        while let Some((multiplier, word)) = terms.next() {
            let next = match terms.next() {
                Some(next) => product((multiplier, word), next),
                None => multiplier.wrapping_mul(word),
            };
            sum = sum.wrapping_add(next);
        }
        (sum >> 32) as u32
    }
}

impl KeyConsumer for &Multilinear {
    type Output = u32;

    #[inline(always)]
    fn make<const WORDS: usize>(self, key: KeyWordList<WORDS>) -> u32 {
        self.hash_words(if key.over_ipv6 { self.ipv6 } else { self.ipv4 }, key.words)
    }
}

/// Returns the contribution of a pair of words, each with its multiplier.
#[inline(always)]
fn product((multiplier, word): (u64, u64), (next_multiplier, next_word): (u64, u64)) -> u64 {
    multiplier.wrapping_add(word).wrapping_mul(next_multiplier.wrapping_add(next_word))
}
