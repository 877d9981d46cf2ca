//! Registers in the image format of Apache DataSketches (HLL_8), which stores one byte for each
//! register.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | 10 words of preamble, version 1, family 7, lg m, 0, flags compact and out of order, 0, mode HLL and HLL_8 |
//! | 8 | accumulator of the HIP estimator, which a union has no use for: 0 |
//! | 16 | sum of 2^-v over registers of v < 32, and over the others |
//! | 4 | registers that are 0 |
//! | 4 | exceptions: none |
//! | m | registers |
//!
//! Images may only be merged if their hashes are the same, which an image does not state:
//! [`column()`] does.

use crate::identity;
use flowgauge_core::{HashIdentity, KeyKind, Precision};

/// Bytes before the registers.
pub const PREAMBLE: usize = 40;
const WORDS: u8 = 10;
const VERSION: u8 = 1;
const FAMILY: u8 = 7;
const FLAGS: u8 = 8 | 16;
const MODE: u8 = 2 | 2 << 2;
/// Offset of the sums.
const SUMS: usize = 16;
/// Levels from here on have a separate sum.
const LARGE: u8 = 32;

/// Returns the name of a lake's column with images of this key, precision and hash. Query engines
/// cannot detect that two images have different hashes, but they do not merge different columns.
#[must_use]
pub fn column(key: KeyKind, precision: Precision, hash: &HashIdentity) -> String {
    format!("hll_{}_p{}_{}", key.name().replace('-', "_"), precision.bits(), identity::name(hash))
}

/// Returns the image of registers, one level each; their number must be a power of two.
#[must_use]
pub fn of(levels: &[u8]) -> Vec<u8> {
    let sums = sums(levels);
    let mut image = Vec::with_capacity(PREAMBLE + levels.len());
    image.extend([WORDS, VERSION, FAMILY, levels.len().trailing_zeros() as u8, 0, FLAGS, 0, MODE]);
    image.extend(0_f64.to_le_bytes());
    image.extend(sums);
    image.extend(levels);
    image
}

/// Returns the part of the preamble that follows from the registers: two sums, which are exact, and
/// two numbers.
fn sums(levels: &[u8]) -> [u8; PREAMBLE - SUMS] {
    let mut registers = [0_u32; 256];
    levels.iter().for_each(|level| registers[usize::from(*level)] += 1);
    let sum = |levels: std::ops::Range<u8>| -> f64 {
        levels
            .map(|level| f64::from(registers[usize::from(level)]) * 2_f64.powi(-i32::from(level)))
            .sum()
    };
    let mut sums = [0; PREAMBLE - SUMS];
    sums[..8].copy_from_slice(&sum(0..LARGE).to_le_bytes());
    sums[8..16].copy_from_slice(&sum(LARGE..u8::MAX).to_le_bytes());
    sums[16..20].copy_from_slice(&registers[0].to_le_bytes());
    sums
}

/// Returns the registers of an image that [`of`] made.
///
/// # Errors
/// A description of the problem, if the image is invalid.
pub fn levels(image: &[u8]) -> Result<&[u8], &'static str> {
    let (preamble, levels) =
        image.split_at_checked(PREAMBLE).ok_or("an image that is cut short")?;
    let [WORDS, VERSION, FAMILY, log2, _, _, _, MODE, ..] = *preamble else {
        return Err("no image of HLL_8 with all its registers");
    };
    if 1_usize.checked_shl(log2.into()) != Some(levels.len()) {
        return Err("an image with registers too few or too many");
    }
    // The sums and the number of zeros must match the registers; the accumulator is not used.
    if preamble[SUMS..] == sums(levels) {
        Ok(levels)
    } else {
        Err("a damaged image: its sums are not those of its registers")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datasketches::hll::{HllSketch, HllType, HllUnion};
    use flowgauge_core::{Cardinality, HashMode};

    fn counted(from: u32, to: u32, precision: Precision) -> Vec<u8> {
        let mut registers = Box::new(Cardinality::new());
        let mut hash = u64::from(from);
        for _ in from..to {
            hash = (hash ^ hash >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
            registers.update((hash >> 32) as u32, precision);
        }
        registers.levels(precision).to_vec()
    }

    #[test]
    fn datasketches_reads_every_precision() {
        for bits in Precision::MIN.bits()..=Precision::MAX.bits() {
            let precision = Precision::new(bits as u8).unwrap();
            for flows in [0, 1, 100, 20_000] {
                let registers = counted(7, 7 + flows, precision);
                let image = of(&registers);
                assert_eq!(levels(&image), Ok(&registers[..]));
                let sketch = HllSketch::deserialize(&image).unwrap();
                let ours =
                    super::super::estimate::estimate(&registers, Default::default()).unwrap().value;
                let theirs = sketch.estimate();
                let apart = (theirs - ours).abs() / ours.max(1.0);
                // Both estimate from the same registers; the tolerance is the difference of the
                // estimators for few registers.
                assert!(
                    apart <= 0.5 / f64::from(1_u32 << bits).sqrt() + 0.002,
                    "p {bits}, {flows} flows: {ours} and {theirs}"
                );
            }
        }
    }

    #[test]
    fn a_union_of_images_is_the_union_of_registers() {
        let precision = Precision::DEFAULT;
        let [a, b] = [(1, 30_000), (9, 5_000)].map(|(from, to)| counted(from, to, precision));
        let mut union = HllUnion::new(11).unwrap();
        for levels in [&a, &b] {
            union.update(&HllSketch::deserialize(&of(levels)).unwrap());
        }
        let united: Vec<u8> = a.iter().zip(&b).map(|(a, b)| *a.max(b)).collect();
        let image = union.to_sketch(HllType::Hll8).serialize();
        assert_eq!(&image[PREAMBLE..], &united[..]);
    }

    #[test]
    fn what_is_no_image_is_refused() {
        let image = of(&counted(1, 1000, Precision::DEFAULT));
        assert!(levels(&image[..PREAMBLE - 1]).is_err());
        assert!(levels(&image[..image.len() - 1]).is_err());
        for byte in [0, 1, 2, 3, 7] {
            let mut broken = image.clone();
            broken[byte] ^= 0x40;
            assert!(levels(&broken).is_err(), "byte {byte}");
        }
    }

    #[test]
    fn columns_tell_hashes_apart() {
        let hash = |mode, origin| HashIdentity::new(mode, origin);
        let named = |hash: HashIdentity| column(KeyKind::SrcDst, Precision::DEFAULT, &hash);
        assert_eq!(named(hash(HashMode::Crc32, 1)), "hll_src_dst_p11_crc32_790900f3");
        assert_eq!(named(hash(HashMode::Tabulated, 7)), "hll_src_dst_p11_tabulated_790900f3_7");
        assert_eq!(named(hash(HashMode::Keyed, 0xabc)), "hll_src_dst_p11_keyed_0000000000000abc");
    }
}
