//! Known answers: addresses whose register and level were computed by hand or by construction.

use crate::conformance::backend::{Backend, SEED, Setup, start};
use flowgauge_core::{HashMode, Precision};
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_testing::definitions::{bytes_with_crc32, crc32, register, tabulation};
use flowgauge_testing::frames::from_source;

/// Returns the non-empty registers of a dataplane after these frames; `None` if it does not support
/// the settings.
fn raised(
    backend: &dyn Backend,
    hash: HashMode,
    precision: Precision,
    frames: Vec<OwnedFrame>,
) -> Option<Vec<(usize, u8)>> {
    let setup = Setup::with(|cardinality| cardinality.precision = precision).with_hash(hash);
    let mut rig = start(backend, &setup)?;
    rig.feed(frames);
    let window = rig.rotate();
    let levels = window.bank.cardinality.levels(precision).iter().copied().enumerate();
    Some(levels.filter(|&(_, level)| level > 0).collect())
}

/// CRC a757b578 is 10100111010 1.0111…, and through the tables of seed 1 it becomes 35bf412a,
/// 00110101101 1.1111….
pub fn address_10_0_0_1(backend: &dyn Backend) {
    assert_eq!(crc32(b"123456789"), 0x76dc_f3a1, "the model itself");
    let answers = [
        (HashMode::Crc32, 4, (0xa, 2)),
        (HashMode::Crc32, 11, (0b101_0011_1010, 1)),
        (HashMode::Crc32, 16, (0xa757, 1)),
        (HashMode::Tabulated, 4, (0x3, 2)),
        (HashMode::Tabulated, 11, (0b001_1010_1101, 1)),
        (HashMode::Tabulated, 16, (0x35bf, 2)),
    ];
    for (hash, p, answer) in answers {
        let precision = Precision::new(p).unwrap();
        if let Some(raised) = raised(backend, hash, precision, vec![from_source([10, 0, 0, 1])]) {
            assert_eq!(raised, [answer], "{} with 2^{p} registers", hash.name());
        }
    }
}

/// One address for each level, each in its own register: the CRC of four bytes can be chosen
/// freely.
pub fn every_level_of_every_precision(backend: &dyn Backend) {
    for p in 4..=16 {
        let precision = Precision::new(p).unwrap();
        let rank_bits = 32 - u32::from(p);
        let chosen = |level: u32| {
            let index = (level * 0x9e37) % (1 << p);
            // Ones below the level's bit, so that a level read from the wrong bits is detected.
            let rank = if level > rank_bits { 0 } else { (1 << (rank_bits - level + 1)) - 1 };
            (index as usize, level as u8, index << rank_bits | rank)
        };
        let mut highest = vec![0; precision.registers()];
        let mut frames = Vec::new();
        for (index, level, crc) in (1..=rank_bits + 1).map(chosen) {
            assert_eq!(crc32(&bytes_with_crc32(crc)), crc, "the model itself");
            highest[index] = level.max(highest[index]);
            frames.push(from_source(bytes_with_crc32(crc)));
        }
        let expected: Vec<_> =
            highest.into_iter().enumerate().filter(|&(_, level)| level > 0).collect();
        assert_eq!(expected.iter().map(|&(_, level)| level).max(), Some(33 - p));
        if let Some(raised) = raised(backend, HashMode::Crc32, precision, frames) {
            assert_eq!(raised, expected, "{} registers", precision.registers());
        }
    }
}

/// The thesis' table loses such a packet; its level is 22.
pub fn all_zero_rank_bits_of_both_hashes(backend: &dyn Backend) {
    let precision = Precision::default();
    let by_crc = bytes_with_crc32(1338 << 21);
    let tables = tabulation(SEED);
    let tabulated = |crc: u32| {
        crc.to_be_bytes()
            .iter()
            .zip(&tables)
            .fold(0, |hash, (&byte, table)| hash ^ table[usize::from(byte)])
    };
    let crc = (0..=u32::MAX).find(|&crc| tabulated(crc) << 11 == 0).unwrap();
    let cases = [
        (HashMode::Crc32, by_crc, (1338, 22)),
        (HashMode::Tabulated, bytes_with_crc32(crc), ((tabulated(crc) >> 21) as usize, 22)),
    ];
    for (hash, source, answer) in cases {
        if let Some(raised) = raised(backend, hash, precision, vec![from_source(source)]) {
            assert_eq!(raised, [answer], "{} of {source:?}", hash.name());
        }
    }
    assert_eq!(register(1338 << 21, precision), (1338, 22), "the model itself");
}
