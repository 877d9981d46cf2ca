//! Packet access in a form that the kernel's verifier accepts.

use core::arch::asm;
use flowgauge_core::Frame;

/// Zero at run time. The verifier must assume any value, because user space may write it.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".data")]
static mut NOTHING: usize = 0;

/// Upper bound of header offsets: eight IPv6 extension headers of maximum length after all
/// encapsulations. The verifier can carry this bound through pointer arithmetic.
const FURTHEST: usize = 1 << 15;

/// Bytes from `data` to `end`. The verifier tracks comparisons of pointers with `end`, not lengths.
pub(crate) struct PacketBytes {
    data: usize,
    end: usize,
}

impl PacketBytes {
    /// Creates a window. Hides from the compiler that pointers have 32 bits. Otherwise it would
    /// know that no sum with `data` overflows and compare with `end` minus a number, which the
    /// verifier does not recognise as a comparison with `end`; and it would put half of a pointer
    /// on the stack.
    #[inline(always)]
    pub(crate) fn new(mut data: usize, mut end: usize) -> Self {
        // SAFETY: registers keep their values.
        unsafe {
            asm!("/* {0} */", inout(reg) data, options(pure, nomem, nostack, preserves_flags));
            asm!("/* {0} */", inout(reg) end, options(pure, nomem, nostack, preserves_flags));
        }
        PacketBytes { data, end }
    }

    #[inline(always)]
    fn at(&self, offset: usize, length: usize) -> Option<usize> {
        let offset = offset & (FURTHEST - 1);
        let start = self.data + offset;
        (start + length <= self.end).then_some(start)
    }
}

impl Frame for PacketBytes {
    #[inline(always)]
    fn bytes<const N: usize>(&self, offset: usize) -> Option<&[u8; N]> {
        // SAFETY: the bytes are between `data` and `end`, which the kernel guarantees to be
        // readable.
        self.at(offset, N).map(|start| unsafe { &*(start as *const [u8; N]) })
    }

    #[inline(always)]
    fn words(&self, offset: usize) -> Option<[u64; 4]> {
        let start = self.at(offset, 32)?;
        let load = |place: usize| {
            let word: u64;
            // SAFETY: as in `bytes`. The kernel loads words at any address; the compiler would load
            // single bytes.
            unsafe {
                asm!("{0} = *(u64 *)({1} + 0)", out(reg) word, in(reg) place, options(pure, readonly, nostack, preserves_flags));
            }
            word
        };
        Some([load(start), load(start + 8), load(start + 16), load(start + 24)])
    }

    #[inline(always)]
    fn forget(&self, offset: usize) -> usize {
        // SAFETY: never written; volatile, because the compiler knows it to be zero.
        (offset + unsafe { (&raw const NOTHING).read_volatile() }) & (FURTHEST - 1)
    }
}
