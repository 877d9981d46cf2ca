//! Many keys at once, with instructions that not every CPU has.
//!
//! A CRC is linear but for a constant: a byte of a key changes a byte of the CRC in a way of its own, whatever the other bytes are.

mod avx2;
mod avx512;

pub(super) use avx2::{Avx2, GROUP as GROUP_OF_AVX2};
pub(super) use avx512::{Avx512, GROUP as GROUP_OF_AVX512};

use super::batch::{CAPACITY, WORDS};
use flowgauge_core::hash::crc32;
use std::arch::is_x86_feature_detected;

/// Where keys belong.
#[repr(C, align(64))]
pub(super) struct Places {
    /// Their registers.
    pub(super) indices: [u16; CAPACITY],
    /// And what these are raised to.
    pub(super) levels: [u8; CAPACITY],
}

/// Whether this CPU has what [`Avx2`] needs.
pub(super) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
}

/// Whether this CPU has what [`Avx512`] needs.
pub(super) fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512cd")
        && is_x86_feature_detected!("avx512vbmi")
        && is_x86_feature_detected!("gfni")
}

/// The CRC of a key of so many zeros.
fn constant(key_bytes: usize) -> [u8; 4] {
    crc32(&vec![0; key_bytes]).to_le_bytes()
}

/// What the bits of a key change in its CRC, by byte of the key, the lowest bit first; nothing behind its end.
fn changes(key_bytes: usize) -> [[[u8; 4]; 8]; 4 * WORDS] {
    let mut key = vec![0; key_bytes];
    let zero = crc32(&key);
    let mut changes = [[[0; 4]; 8]; 4 * WORDS];
    for (byte, changes) in changes.iter_mut().enumerate().take(key_bytes) {
        for (bit, changes) in changes.iter_mut().enumerate() {
            key[byte] = 1 << bit;
            *changes = (crc32(&key) ^ zero).to_le_bytes();
        }
        key[byte] = 0;
    }
    changes
}
