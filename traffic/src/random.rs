//! Random numbers and addresses that are a function of a seed and a packet's number.

use rand::TryRng;
use std::convert::Infallible;

/// Sources of [`Sources::Unique`](crate::Sources::Unique) per leading octet: the last octet is
/// never zero.
pub(crate) const UNIQUE_PER_OCTET: u64 = 256 * 256 * 255;

/// Distinct random addresses: a bijection instead of a set of used addresses.
#[derive(Clone, Debug)]
pub(crate) struct DistinctAddresses {
    seed: u64,
    /// Permutation for the first octet 10; further octets follow once its addresses are used up.
    first: Permutation,
}

impl DistinctAddresses {
    pub(crate) fn new(seed: u64) -> Self {
        DistinctAddresses { seed, first: Permutation::new(seed ^ mix(0)) }
    }

    fn of_octet(&self, octet: u64) -> Permutation {
        if octet == 0 { self.first } else { Permutation::new(self.seed ^ mix(octet)) }
    }

    pub(crate) fn at(&self, index: u64) -> u32 {
        let octet = index / UNIQUE_PER_OCTET;
        let permutation = self.of_octet(octet);
        let host = permutation.apply((index % UNIQUE_PER_OCTET) as u32);
        address(octet, permutation.walk(host))
    }

    /// Writes the addresses from `first` on. Several simple loops, which the compiler vectorises.
    pub(crate) fn fill(&self, first: u64, sources: &mut [u32]) {
        let octet = first / UNIQUE_PER_OCTET;
        let host = first % UNIQUE_PER_OCTET;
        if host + sources.len() as u64 > UNIQUE_PER_OCTET {
            (first..).zip(sources).for_each(|(index, source)| *source = self.at(index));
            return;
        }
        let permutation = self.of_octet(octet);
        (host as u32..)
            .zip(&mut *sources)
            .for_each(|(host, source)| *source = permutation.apply(host));
        sources.iter_mut().for_each(|source| *source = permutation.walk(*source));
        sources.iter_mut().for_each(|source| *source = address(octet, *source));
    }
}

/// Returns the `index`-th of distinct random addresses.
pub(crate) fn unique_source(seed: u64, index: u64) -> u32 {
    DistinctAddresses::new(seed).at(index)
}

/// Returns the address of a host number; the last octet is never 0.
fn address(octet: u64, host: u32) -> u32 {
    let (upper, last) = (host / 255, host % 255 + 1);
    (10_u32.wrapping_add(octet as u32) << 24) | upper << 8 | last
}

/// Keyed bijection on 24 bits: multiplications by odd numbers and xor-shifts are invertible.
#[derive(Clone, Copy, Debug)]
struct Permutation {
    keys: [u32; 3],
}

impl Permutation {
    fn new(seed: u64) -> Self {
        let mut key = mix(seed);
        let keys = std::array::from_fn(|_| {
            let round = key as u32;
            key = key.rotate_left(21).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            round
        });
        Permutation { keys }
    }

    #[inline(always)]
    fn apply(self, value: u32) -> u32 {
        const MASK: u32 = (1 << 24) - 1;
        let mut value = value;
        for key in self.keys {
            value = value.wrapping_add(key) & MASK;
            value = value.wrapping_mul(key >> 7 | 1) & MASK;
            value ^= value >> 11;
            value = value.wrapping_mul(0x00c2_b2ad | 1) & MASK;
            value ^= value >> 13;
        }
        value
    }

    /// Restricts the bijection to addresses with a nonzero last octet, by cycle walking (Black and
    /// Rogaway 2002).
    #[inline(always)]
    fn walk(self, value: u32) -> u32 {
        let mut value = value;
        while u64::from(value) >= UNIQUE_PER_OCTET {
            value = self.apply(value);
        }
        value
    }
}

/// Applies the SplitMix64 finaliser.
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Random numbers for one packet.
#[derive(Debug)]
pub(crate) struct CounterRng(pub(crate) u64);

impl TryRng for CounterRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.try_next_u64().map(|word| (word >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        self.0 = self.0.wrapping_add(1);
        Ok(mix(self.0))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            let word = self.try_next_u64()?.to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unique_sources_exhaust_their_network() {
        let mut seen = vec![false; 1 << 24];
        for index in 0..UNIQUE_PER_OCTET {
            let host = (unique_source(9, index) & 0x00ff_ffff) as usize;
            assert!(!seen[host], "packet {index} repeats a source");
            seen[host] = true;
        }
    }
}
