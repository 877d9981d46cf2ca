//! What bytes of a key change in its CRC.
//!
//! A CRC is linear but for a constant: a byte of a key changes a byte of the CRC in a way of its
//! own, whatever the other bytes are.

use flowgauge_core::hash::crc32;

/// What half a byte changes, by byte of the CRC.
pub(super) type OfHalf = [[u8; 16]; 4];

/// The CRC of a key of so many zeros.
pub(super) fn constant(key_bytes: usize) -> [u8; 4] {
    crc32(&vec![0; key_bytes]).to_le_bytes()
}

/// What the bits of a key change in its CRC, by byte of the key's words, the lowest bit first;
/// nothing behind its end.
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

/// What the lower and the upper half of a byte change, by byte of the key's words; nothing behind
/// its end.
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
