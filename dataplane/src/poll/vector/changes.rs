//! Contribution of each byte of a key to its CRC.
//!
//! A CRC is affine: a byte of a key changes each byte of the CRC in a fixed way, independent of the
//! other bytes.

use flowgauge_core::hash::crc32;

/// Contribution of half a byte, per byte of the CRC.
pub(super) type OfHalf = [[u8; 16]; 4];

/// Returns the CRC of a key of `key_bytes` zeros.
pub(super) fn constant(key_bytes: usize) -> [u8; 4] {
    crc32(&vec![0; key_bytes]).to_le_bytes()
}

/// Returns the contribution of each bit of a key to its CRC, per byte of the key's words, lowest
/// bit first; zero after the key's end.
pub(super) fn bits(key_bytes: usize) -> Vec<[[u8; 4]; 8]> {
    let mut key = vec![0; key_bytes];
    let zero = crc32(&key);
    let mut changes = vec![[[0; 4]; 8]; key_bytes.next_multiple_of(4)];
    for (byte, changes) in changes.iter_mut().enumerate().take(key_bytes) {
        for (bit, changes) in changes.iter_mut().enumerate() {
            key[byte] = 1 << bit;
            *changes = (crc32(&key) ^ zero).to_le_bytes();
        }
        key[byte] = 0;
    }
    changes
}

/// Returns the contributions of the lower and the upper half of a byte, per byte of the key's
/// words; zero after the key's end.
pub(super) fn halves(key_bytes: usize) -> Vec<[OfHalf; 2]> {
    let of_bits = |bits: [[u8; 4]; 8]| {
        let [lower, upper] = [0, 4].map(|first| {
            let mut tables: OfHalf = [[0; 16]; 4];
            for (byte, table) in tables.iter_mut().enumerate() {
                for (half, entry) in table.iter_mut().enumerate() {
                    *entry = (0..4)
                        .filter(|bit| half >> bit & 1 == 1)
                        .fold(0, |sum, bit| sum ^ bits[first + bit][byte]);
                }
            }
            tables
        });
        [lower, upper]
    };
    bits(key_bytes).into_iter().map(of_bits).collect()
}
