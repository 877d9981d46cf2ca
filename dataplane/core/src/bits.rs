//! Bits of words, in few instructions of BPF as well.
//!
//! The kernel's verifier removes a jump whose outcome it knows, as of every test of settings, but
//! not the arithmetic before it: LLVM would copy the word and mask the copy. BPF has a jump on bits
//! of a register, which LLVM knows but never chooses.
//!
//! BPF cannot count leading zeros: LLVM would fill a word with ones below the highest one and count
//! them, which takes half as many instructions again as [`ilog2`].
#![cfg_attr(
    target_arch = "bpf",
    allow(unsafe_code, reason = "see above; the argument is at the one call")
)]

/// Returns whether a word has one of the bits `BITS`, of the lower 31. If the verifier knows that it
/// has none, no instruction is left; if it knows that it has one, a jump.
#[inline(always)]
pub(crate) fn has_bits<const BITS: u32>(word: u32) -> bool {
    const { assert!(BITS <= i32::MAX as u32, "the instruction extends its sign") };
    #[cfg(target_arch = "bpf")]
    // SAFETY: a jump to one of two places in this function, which changes no register.
    unsafe {
        core::arch::asm!(
            "if {0} & {1} goto {2}",
            in(reg) word,
            const BITS,
            label { return true },
            options(nomem, nostack, preserves_flags)
        );
        false
    }
    #[cfg(not(target_arch = "bpf"))]
    {
        word & BITS != 0
    }
}

/// Returns the position of the highest one of a word, counted from the lowest bit; zero for zero.
#[inline(always)]
pub(crate) const fn ilog2(word: u32) -> u32 {
    if cfg!(target_arch = "bpf") {
        ilog2_by_table(word)
    } else {
        u32::BITS - 1 - (word | 1).leading_zeros()
    }
}

/// Multiplied by this factor, the 32 words `2^(n + 1) - 1` differ in their upper five bits. De Bruijn
/// sequences do the same for the words `2^n`.
const FACTOR: u32 = 0x07c4_acdd;

/// Position of the highest one, by the upper five bits of the product.
#[allow(clippy::indexing_slicing, reason = "evaluated at compile time")]
static POSITIONS: [u8; 32] = {
    let mut positions = [0; 32];
    let mut position = 0;
    while position < u32::BITS {
        let filled = u32::MAX >> (u32::BITS - 1 - position);
        positions[(filled.wrapping_mul(FACTOR) >> 27) as usize] = position as u8;
        position += 1;
    }
    positions
};

#[inline(always)]
#[allow(clippy::indexing_slicing, reason = "a number of five bits")]
const fn ilog2_by_table(word: u32) -> u32 {
    let mut filled = word;
    filled |= filled >> 1;
    filled |= filled >> 2;
    filled |= filled >> 4;
    filled |= filled >> 8;
    filled |= filled >> 16;
    POSITIONS[(filled.wrapping_mul(FACTOR) >> 27) as usize] as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_of_the_highest_one() {
        assert_eq!([ilog2(0), ilog2_by_table(0)], [0, 0]);
        for position in 0..u32::BITS {
            for word in [1 << position, u32::MAX >> (31 - position), 5_u32.rotate_left(position)] {
                assert_eq!([ilog2(word), ilog2_by_table(word)], [word.ilog2(); 2], "{word:#x}");
            }
        }
    }

    #[test]
    fn tests_of_several_bits() {
        assert!(
            has_bits::<0b110>(0b1010) && !has_bits::<0b110>(0b1001) && !has_bits::<0>(u32::MAX)
        );
    }
}
