//! CRCs of any polynomial up to 64 bits, as the hash units of a switch compute them.

/// Parameters of a CRC, and its table.
#[derive(Clone, Debug)]
pub(crate) struct Crc {
    width: u32,
    reflected: bool,
    initial: u64,
    final_xor: u64,
    table: [u64; 256],
}

impl Crc {
    /// Creates a CRC. `width` is a multiple of 8 between 8 and 64; the polynomial is in normal form
    /// without its leading one.
    pub(crate) fn new(
        width: u32,
        polynomial: u64,
        reflected: bool,
        initial: u64,
        final_xor: u64,
    ) -> Self {
        let mask = mask(width);
        let top = 1 << (width - 1);
        let reflected_polynomial = polynomial.reverse_bits() >> (64 - width);
        let mut table = [0; 256];
        for (byte, remainder) in (0_u64..).zip(&mut table) {
            *remainder = if reflected {
                (0..8).fold(byte, |rest, _| {
                    if rest & 1 == 1 { rest >> 1 ^ reflected_polynomial } else { rest >> 1 }
                })
            } else {
                (0..8).fold(byte << (width - 8), |rest, _| {
                    let next = if rest & top != 0 { rest << 1 ^ polynomial } else { rest << 1 };
                    next & mask
                })
            };
        }
        let initial = if reflected { initial.reverse_bits() >> (64 - width) } else { initial };
        Crc { width, reflected, initial, final_xor, table }
    }

    /// Returns the CRC of bytes, in the lowest `width` bits.
    pub(crate) fn compute(&self, bytes: &[u8]) -> u64 {
        let entry = |index: u64| self.table[(index & 0xff) as usize];
        let step = |remainder: u64, byte: &u8| {
            if self.reflected {
                remainder >> 8 ^ entry(remainder ^ u64::from(*byte))
            } else {
                (remainder << 8 ^ entry(remainder >> (self.width - 8) ^ u64::from(*byte)))
                    & mask(self.width)
            }
        };
        bytes.iter().fold(self.initial, step) ^ self.final_xor
    }
}

/// Returns a number whose lowest `width` bits are set.
fn mask(width: u32) -> u64 {
    u64::MAX >> (64 - width)
}

#[cfg(test)]
mod tests {
    use super::Crc;

    #[test]
    fn check_values_of_common_crcs() {
        let check = b"123456789";
        assert_eq!(
            Crc::new(32, 0x04c1_1db7, true, u64::from(u32::MAX), u64::from(u32::MAX))
                .compute(check),
            0xcbf4_3926
        );
        assert_eq!(
            Crc::new(32, 0x04c1_1db7, false, u64::from(u32::MAX), u64::from(u32::MAX))
                .compute(check),
            0xfc89_1918
        );
        assert_eq!(Crc::new(16, 0x8005, true, 0, 0).compute(check), 0xbb3d);
        assert_eq!(Crc::new(16, 0x1021, false, 0xffff, 0).compute(check), 0x29b1);
        assert_eq!(Crc::new(8, 0x07, false, 0, 0).compute(check), 0xf4);
        assert_eq!(
            Crc::new(64, 0x42f0_e1eb_a9ea_3693, false, 0, 0).compute(check),
            0x6c40_df5f_0b49_7347
        );
        assert_eq!(
            Crc::new(32, 0x7909_00f3, true, u64::from(u32::MAX), u64::from(u32::MAX))
                .compute(check),
            0x76dc_f3a1
        );
    }
}
