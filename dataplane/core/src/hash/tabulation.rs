//! Simple tabulation of a 32-bit value.

/// Four tables of 256 random words: `g = T0[h3] ^ T1[h2] ^ T2[h1] ^ T3[h0]`, `h3` being the most significant byte.
///
/// On Tofino the same words are the action data of four exact-match tables that the controller fills.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Tabulation {
    tables: [[u32; 256]; 4],
}

impl Tabulation {
    /// The tables of a seed: successive SplitMix64 outputs, upper halves, table 0 first, index 0 first.
    ///
    /// This sequence is part of a sketch's hash identity and never changes.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut state = seed;
        let mut tables = [[0; 256]; 4];
        for word in tables.iter_mut().flatten() {
            *word = (split_mix_64(&mut state) >> 32) as u32;
        }
        Tabulation { tables }
    }

    /// Tables with given words, as read back from a device.
    #[must_use]
    pub const fn from_tables(tables: [[u32; 256]; 4]) -> Self {
        Tabulation { tables }
    }

    /// The words, `[table][byte]`.
    #[must_use]
    pub fn tables(&self) -> &[[u32; 256]; 4] {
        &self.tables
    }

    /// Hashes a CRC.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::indexing_slicing, reason = "a byte cannot exceed a table of 256")]
    pub fn hash(&self, crc: u32) -> u32 {
        let [t0, t1, t2, t3] = &self.tables;
        let [h0, h1, h2, h3] = crc.to_le_bytes();
        t0[h3 as usize] ^ t1[h2 as usize] ^ t2[h1 as usize] ^ t3[h0 as usize]
    }
}

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
fn split_mix_64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
