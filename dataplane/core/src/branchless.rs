//! Choices without branches, for the kernel's verifier, which follows both sides of each branch:
//! twelve rows would give 4096 paths.
//!
//! BPF has no conditional-move instruction, so LLVM compiles any choice that it recognises into a
//! branch. It cannot see through the inline assembly of this module.
#![cfg_attr(
    target_arch = "bpf",
    allow(unsafe_code, reason = "see above; the arguments are at the calls")
)]

/// Returns all ones if a number is negative, else zero.
#[inline(always)]
#[cfg_attr(not(target_arch = "bpf"), allow(unused_mut, reason = "see above"))]
fn sign(mut number: i64) -> i64 {
    #[cfg(target_arch = "bpf")]
    // SAFETY: changes only the register that it names.
    unsafe {
        core::arch::asm!("{0} s>>= 63", inout(reg) number, options(pure, nomem, nostack, preserves_flags));
        number
    }
    #[cfg(not(target_arch = "bpf"))]
    {
        number >> 63
    }
}

/// Returns `number` through inline assembly, as an optimization barrier: LLVM assumes nothing about
/// it and unrolls no loop that depends on it. The verifier keeps its bounds.
#[inline(always)]
#[cfg_attr(not(target_arch = "bpf"), allow(unused_mut, reason = "see above"))]
pub(crate) fn opaque(mut number: usize) -> usize {
    #[cfg(target_arch = "bpf")]
    // SAFETY: the register keeps its value.
    unsafe {
        core::arch::asm!("/* {0} */", inout(reg) number, options(pure, nomem, nostack, preserves_flags));
    }
    number
}

/// Returns `number`, or zero if `amount` exceeds `limit`.
#[inline(always)]
pub(crate) fn unless_beyond(number: i32, amount: u32, limit: u32) -> i32 {
    let beyond = sign(i64::from(limit).wrapping_sub(i64::from(amount)));
    number & !(beyond as i32)
}

/// Returns `number`, or `i32::MAX` if it is negative.
#[inline(always)]
pub(crate) fn not_negative(number: i32) -> i32 {
    let negative = sign(i64::from(number)) as i32;
    (number | negative) & (i32::MAX | !negative)
}

/// Returns all ones if `number` is at least `least`, else zero.
#[inline(always)]
pub(crate) fn not_below(number: u64, least: u64) -> usize {
    let borrow = !number & least | !(number ^ least) & number.wrapping_sub(least);
    !sign(borrow as i64) as usize
}

/// Returns the smaller and the larger of two numbers.
#[inline(always)]
pub(crate) fn order(a: i32, b: i32) -> (i32, i32) {
    let difference = i64::from(a).wrapping_sub(i64::from(b));
    let excess = (difference & sign(difference)) as i32;
    (b.wrapping_add(excess), a.wrapping_sub(excess))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: [i32; 9] = [i32::MIN, i32::MIN + 1, -2, -1, 0, 1, 2, i32::MAX - 1, i32::MAX];

    #[test]
    fn choices_are_those_of_branches() {
        for a in NUMBERS {
            for b in NUMBERS.map(|b| b as i64 as u64) {
                assert_eq!(
                    not_below(a as i64 as u64, b),
                    if a as i64 as u64 >= b { usize::MAX } else { 0 }
                );
            }
            assert_eq!(not_negative(a), if a < 0 { i32::MAX } else { a });
            for b in NUMBERS {
                assert_eq!(order(a, b), (a.min(b), a.max(b)));
                assert_eq!(
                    unless_beyond(7, a as u32, b as u32),
                    if a as u32 > b as u32 { 0 } else { 7 }
                );
            }
        }
    }
}
