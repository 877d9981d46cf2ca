//! The bytes of a packet, as the kernel's verifier lets programs read them.

use core::arch::asm;
use flowgauge_core::Frame;

/// Zero. The verifier does not know that, because user space may write it.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".data")]
static mut NOTHING: usize = 0;

/// Where headers end at the latest: eight IPv6 extension headers of the longest kind behind all
/// encapsulations. A bound that the verifier can carry through pointer arithmetic.
const FURTHEST: usize = 1 << 15;

/// The bytes from `data` up to `end`: the verifier follows comparisons of pointers with `end`, not
/// lengths.
pub(crate) struct Window {
    data: usize,
    end: usize,
}

impl Window {
    /// The compiler must not know that pointers have 32 bits: it would see that no sum with `data`
    /// overflows, and compare with `end` less a number instead, which the verifier takes for no
    /// comparison with `end`; and it would put half of a pointer on the stack.
    #[inline(always)]
    pub(crate) fn new(mut data: usize, mut end: usize) -> Self {
        // SAFETY: registers are what they were. Without an instruction two lines of the source
        // would begin at one, which the kernel refuses.
        unsafe {
            asm!("{0} = {0}", inout(reg) data, options(pure, nomem, nostack, preserves_flags));
            asm!("{0} = {0}", inout(reg) end, options(pure, nomem, nostack, preserves_flags));
        }
        Window { data, end }
    }

    #[inline(always)]
    fn at(&self, offset: usize, length: usize) -> Option<usize> {
        let offset = offset & (FURTHEST - 1);
        let start = self.data + offset;
        (start + length <= self.end).then_some(start)
    }
}

impl Frame for Window {
    #[inline(always)]
    fn bytes<const N: usize>(&self, offset: usize) -> Option<&[u8; N]> {
        // SAFETY: the bytes lie between `data` and `end`, which the kernel guarantees to be
        // readable.
        self.at(offset, N).map(|start| unsafe { &*(start as *const [u8; N]) })
    }

    #[inline(always)]
    fn forget(&self, offset: usize) -> usize {
        // SAFETY: nobody writes it; volatile, because the compiler knows it to be zero.
        (offset + unsafe { (&raw const NOTHING).read_volatile() }) & (FURTHEST - 1)
    }
}
