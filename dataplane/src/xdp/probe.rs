//! Features of this kernel: some tested by loading small programs, since they cannot be derived from
//! its version, others by version.
#![allow(
    unsafe_code,
    reason = "aya has no call for it; this module makes a system call on a structure of the kernel"
)]

use super::refusal::release;
use super::syscall::descriptor;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_TYPE_SOCKET_FILTER: u32 = 1;

/// An instruction: `struct bpf_insn`.
#[repr(C)]
struct Instruction {
    opcode: u8,
    /// Destination in the lower half, source in the upper half.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// First fields of `BPF_PROG_LOAD`; the kernel treats the others as zero.
#[repr(C)]
struct ProgramLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log: [u64; 4],
}

const STORE_64: u8 = 0x7a;
const ATOMIC_64: u8 = 0xdb;
const MOVE_64: u8 = 0xb7;
const EXIT: u8 = 0x95;
const ADD_AND_FETCH: i32 = 1;

/// Returns whether the kernel has atomic operations that return the previous value: on x86 since
/// Linux 5.12, on arm64 since 5.18.
pub(super) fn has_fetching_atomics() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        const STACK: u8 = 10;
        let instruction = |opcode, registers, offset, immediate| Instruction {
            opcode,
            registers,
            offset,
            immediate,
        };
        loads(&[
            instruction(STORE_64, STACK, -8, 0),
            instruction(MOVE_64, 1, 0, 1),
            instruction(ATOMIC_64, STACK | 1 << 4, -8, ADD_AND_FETCH),
            instruction(MOVE_64, 0, 0, 0),
            instruction(EXIT, 0, 0, 0),
        ])
        .is_ok()
    })
}

/// First kernel on which a program with all measurements is tried. Earlier verifiers need more
/// instructions or forget bounds (`BPF.md`).
const FUSED_SINCE: (u32, u32) = (6, 12);

/// Returns whether a program with all measurements is worth an attempt. It has no lock, and so needs
/// [`has_fetching_atomics`].
pub(super) fn takes_fused() -> bool {
    version(&release()).is_some_and(|version| version >= FUSED_SINCE) && has_fetching_atomics()
}

/// Returns the first two numbers of a release such as `6.1.0-50-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Loads a program and drops it.
fn loads(program: &[Instruction]) -> std::io::Result<OwnedFd> {
    let mut load = ProgramLoad {
        kind: BPF_PROG_TYPE_SOCKET_FILTER,
        count: program.len() as u32,
        instructions: program.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        log: [0; 4],
    };
    // SAFETY: the structure of this command, which creates a descriptor; instructions and licence
    // live until it returns.
    unsafe { descriptor(BPF_PROG_LOAD, &mut load) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_two_numbers_that_are_compared() {
        assert_eq!(version("6.1.0-50-amd64"), Some((6, 1)));
        assert_eq!(version("6.18-rc1"), Some((6, 18)));
        assert_eq!(version("x"), None);
        assert!((6, 1) < FUSED_SINCE && (7, 0) > FUSED_SINCE);
    }
}
