//! Fixtures of several modules.

use flowgauge_core::Tabulation;
use flowgauge_traffic::frame::{Ip, TCP, Tcp};
use flowgauge_traffic::mix;
use std::sync::OnceLock;

/// Returns the tables of seed 1, which are too large for a stack.
pub(crate) fn tabulation() -> &'static Tabulation {
    static TABULATION: OnceLock<Box<Tabulation>> = OnceLock::new();
    TABULATION.get_or_init(|| Box::new(Tabulation::from_seed(1)))
}

/// Any CRC with input and output reflected, initial value and final XOR all ones, bit by bit:
/// shares no code with the tables under test.
pub(crate) fn slow_crc(polynomial: u32, bytes: &[u8]) -> u32 {
    let mut state = u32::MAX;
    for bit in bytes.iter().flat_map(|byte| (0..8).map(move |bit| u32::from(byte >> bit & 1))) {
        let carry = (state >> 31) ^ bit;
        state = (state << 1) ^ (carry * polynomial);
    }
    !state.reverse_bits()
}

/// Returns the 64 bits of four rows for a signature, from the words of the tables.
pub(crate) fn words(tabulation: &Tabulation, block: usize, signature: u32) -> u64 {
    let tables = &tabulation.rows()[block];
    let word = |table: usize| tables[table][(signature >> (24 - 8 * table) & 0xff) as usize];
    (0..4).fold(0, |bits, table| bits ^ word(table))
}

/// Returns a TCP frame with its number in source address and port, every third over IPv6. There are
/// four destinations, and the ports 443 to 447.
pub(crate) fn frame(number: u16) -> Vec<u8> {
    let [high, low] = number.to_be_bytes();
    let segment = Tcp { ports: [number, 443 + number % 5], ..Tcp::default() }.segment(&[]);
    if number.is_multiple_of(3) {
        let address = |last: u16| [0x2001, 0xdb8, 0, 0, 0, 0, 0, last];
        Ip::new(address(number), address(number % 4), TCP).frame(&segment)
    } else {
        Ip::new([10, 0, high, low], [192, 0, 2, low % 4], TCP).frame(&segment)
    }
}

/// Random numbers from a seed (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        let number = mix(self.0);
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        number
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Returns each of the first values with each of the second ones.
pub(crate) fn combinations<A: Copy, B: Copy, const N: usize, const M: usize>(
    first: [A; N],
    second: [B; M],
) -> impl Iterator<Item = (A, B)> {
    first.into_iter().flat_map(move |one| second.map(|other| (one, other)))
}
