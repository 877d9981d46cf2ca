//! Cost of a pseudo-random function in place of the keyed hash, by length of the key: batches of
//! keys as workers have them, on one core, from a cache.
//!
//! The compiler uses the instructions that it is given, so run it for each set:
//!
//! `cargo run --release -p flowgauge-bench --example keyed_hashes`
//! `RUSTFLAGS=-Ctarget-feature=+avx2 cargo run --release -p flowgauge-bench --example keyed_hashes`

use flowgauge_core::hash::Multilinear;
use flowgauge_core::{KeyConsumer, KeyWordList};
use std::array;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Keys of a batch.
const KEYS: usize = 256;
const BATCHES: u32 = 2000;
/// Number of measurements; the fastest one is reported.
const ROUNDS: usize = 15;

/// Word of each key of a batch.
type Column = [u32; KEYS];

/// Function from keys of `N` words to signatures.
trait KeyHash<const N: usize> {
    fn hash(&self, columns: &[Column; N], signatures: &mut Column);
}

impl<const N: usize> KeyHash<N> for Multilinear {
    fn hash(&self, columns: &[Column; N], signatures: &mut Column) {
        for (index, signature) in signatures.iter_mut().enumerate() {
            let words: [[u8; 4]; N] = array::from_fn(|word| columns[word][index].to_le_bytes());
            *signature = self.make(KeyWordList { words, bytes: N * 4, over_ipv6: false });
        }
    }
}

/// The keyed hash, whose sum then goes through two multiplications with secret words: no proof, but
/// not linear.
struct Mixed(Multilinear, [u64; 2]);

impl<const N: usize> KeyHash<N> for Mixed {
    fn hash(&self, columns: &[Column; N], signatures: &mut Column) {
        KeyHash::<N>::hash(&self.0, columns, signatures);
        let Mixed(_, [one, two]) = self;
        for signature in signatures {
            let mixed = (u64::from(*signature) ^ one).wrapping_mul(one | 1);
            *signature = ((mixed ^ (mixed >> 32)).wrapping_mul(two | 1) >> 32) as u32;
        }
    }
}

/// SipHash with these numbers of rounds for a block and at the end (Aumasson and Bernstein 2012).
struct SipHash<const BLOCK: usize, const END: usize>([u64; 2]);

impl<const BLOCK: usize, const END: usize, const N: usize> KeyHash<N> for SipHash<BLOCK, END> {
    fn hash(&self, columns: &[Column; N], signatures: &mut Column) {
        let [one, two] = self.0;
        for (index, signature) in signatures.iter_mut().enumerate() {
            let mut state = [
                one ^ 0x736f_6d65_7073_6575,
                two ^ 0x646f_7261_6e64_6f6d,
                one ^ 0x6c79_6765_6e65_7261,
                two ^ 0x7465_6462_7974_6573,
            ];
            let mut absorb = |block: u64| {
                state[3] ^= block;
                (0..BLOCK).for_each(|_| round(&mut state));
                state[0] ^= block;
            };
            let word = |word: usize| u64::from(columns[word][index]);
            (0..N / 2).for_each(|pair| absorb(word(2 * pair) | word(2 * pair + 1) << 32));
            absorb((N as u64 * 4) << 56 | if N % 2 == 1 { word(N - 1) } else { 0 });
            state[2] ^= 0xff;
            (0..END).for_each(|_| round(&mut state));
            *signature = (state[0] ^ state[1] ^ state[2] ^ state[3]) as u32;
        }
    }
}

#[inline(always)]
fn round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *c = c.wrapping_add(*d);
    *b = b.rotate_left(13) ^ *a;
    *d = d.rotate_left(16) ^ *c;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*b);
    *a = a.wrapping_add(*d);
    *b = b.rotate_left(17) ^ *c;
    *d = d.rotate_left(21) ^ *a;
    *c = c.rotate_left(32);
}

/// HalfSipHash-2-4, with words of 32 bits.
struct HalfSipHash([u32; 2]);

impl<const N: usize> KeyHash<N> for HalfSipHash {
    fn hash(&self, columns: &[Column; N], signatures: &mut Column) {
        let [one, two] = self.0;
        for (index, signature) in signatures.iter_mut().enumerate() {
            let mut state = [one, two, one ^ 0x6c79_6765, two ^ 0x7465_6462];
            let mut absorb = |block: u32| {
                state[3] ^= block;
                half_round(&mut state);
                half_round(&mut state);
                state[0] ^= block;
            };
            columns.iter().for_each(|column| absorb(column[index]));
            absorb((N as u32 * 4) << 24);
            state[2] ^= 0xff;
            (0..4).for_each(|_| half_round(&mut state));
            *signature = state[1] ^ state[3];
        }
    }
}

#[inline(always)]
fn half_round([a, b, c, d]: &mut [u32; 4]) {
    *a = a.wrapping_add(*b);
    *c = c.wrapping_add(*d);
    *b = b.rotate_left(5) ^ *a;
    *d = d.rotate_left(8) ^ *c;
    *a = a.rotate_left(16);
    *c = c.wrapping_add(*b);
    *a = a.wrapping_add(*d);
    *b = b.rotate_left(13) ^ *c;
    *d = d.rotate_left(7) ^ *a;
    *c = c.rotate_left(16);
}

/// Returns the nanoseconds per key.
fn cost<const N: usize>(hash: &impl KeyHash<N>) -> f64 {
    let mut columns: [Column; N] =
        array::from_fn(|word| array::from_fn(|index| (word * KEYS + index) as u32 * 0x9e37_79b1));
    let mut signatures = [0; KEYS];
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..BATCHES {
            hash.hash(black_box(&columns), &mut signatures);
            // The next batch has other keys.
            columns[0][0] ^= black_box(&signatures)[KEYS - 1];
        }
        best = best.min(start.elapsed());
    }
    best.as_nanos() as f64 / f64::from(BATCHES) / KEYS as f64
}

fn row<const N: usize>(name: &str) {
    let secret = 0x0123_4567_89ab_cdef_u64;
    let words = Multilinear::from_words(array::from_fn(|word| secret.rotate_left(word as u32 * 5)));
    let costs = [
        cost::<N>(&words),
        cost::<N>(&Mixed(words, [secret, !secret])),
        cost::<N>(&HalfSipHash([secret as u32, !secret as u32])),
        cost::<N>(&SipHash::<1, 3>([secret, !secret])),
        cost::<N>(&SipHash::<2, 4>([secret, !secret])),
    ];
    let cells: Vec<String> =
        costs.iter().map(|cost| format!("{cost:>7.2} {:>5.1}", cost / costs[0])).collect();
    println!("{name:<26}{}", cells.join("  "));
}

fn main() {
    println!(
        "ns per key, times the keyed hash; {}",
        if cfg!(target_feature = "avx2") { "AVX2" } else { "without AVX2" }
    );
    println!(
        "{:<26}{:>13}  {:>13}  {:>13}  {:>13}  {:>13}",
        "key", "multilinear", "mixed", "half-2-4", "sip-1-3", "sip-2-4"
    );
    row::<1>("source, IPv4");
    row::<2>("addresses, IPv4");
    row::<4>("five-tuple, IPv4; source");
    row::<8>("addresses, IPv6");
    row::<10>("five-tuple, IPv6");
}
