//! A strongly universal hash of a whole flow key: sums of products of 64 bits with secret words.
//!
//! Multilinear-HM of Lemire and Kaser ("Strongly universal string hashing is fast", The Computer
//! Journal 57, 2014), after Carter and Wegman (1979): words `x` of 32 bits, pair by pair, with
//! multipliers `k` of 64 bits,
//!
//! `h(x) = (k + (k0 + x0)(k1 + x1) + (k2 + x2)(k3 + x3) + …) mod 2^64 >> 32`.
//!
//! Over random multipliers the hashes of any two different keys are two independent uniform
//! numbers: they are equal with probability 2^-32, whoever chose the keys, as long as the choice
//! does not depend on the multipliers. The constant `k` is one for IPv4 and another one for IPv6,
//! so that this holds for a key of either family next to one of the other as well.

use crate::flow_key::{FlowKey, LaidOut, Maker};

/// Words of 32 bits of the longest key: an IPv6 five-tuple, whose protocol takes a word.
const KEY_WORDS: usize = 10;

/// Words that a [`Multilinear`] is made of.
pub const MULTILINEAR_WORDS: usize = KEY_WORDS + 2;

/// The constant of each family, and the multipliers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Multilinear {
    ipv4: u64,
    ipv6: u64,
    multipliers: [u64; KEY_WORDS],
}

impl Multilinear {
    /// Of zeros, for statics that are filled later.
    pub const ZERO: Multilinear = Multilinear { ipv4: 0, ipv6: 0, multipliers: [0; KEY_WORDS] };

    /// Of words in this order: the constant for IPv4, that for IPv6, the multipliers.
    #[must_use]
    pub const fn from_words(words: [u64; MULTILINEAR_WORDS]) -> Self {
        let [ipv4, ipv6, multipliers @ ..] = words;
        Multilinear { ipv4, ipv6, multipliers }
    }

    /// The words that it is made of, in the order of [`from_words`](Self::from_words).
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

    #[inline(always)]
    #[allow(
        clippy::indexing_slicing,
        reason = "the compiler checks that there are multipliers for N words"
    )]
    fn hash<const N: usize>(&self, constant: u64, words: [[u8; 4]; N]) -> u32 {
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

    /// Hashes a key that is given as bytes. The length tells the family: the longest key over IPv4
    /// has 13 bytes, the shortest one over IPv6 has 16.
    #[must_use]
    pub fn of(&self, key: &FlowKey) -> u32 {
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

impl Maker for &Multilinear {
    type Made = u32;

    #[inline(always)]
    fn make<const WORDS: usize>(self, key: LaidOut<WORDS>) -> u32 {
        self.hash(if key.over_ipv6 { self.ipv6 } else { self.ipv4 }, key.words)
    }
}

/// What a pair of words adds, each with its multiplier.
#[inline(always)]
fn product((multiplier, word): (u64, u64), (next_multiplier, next_word): (u64, u64)) -> u64 {
    multiplier.wrapping_add(word).wrapping_mul(next_multiplier.wrapping_add(next_word))
}
