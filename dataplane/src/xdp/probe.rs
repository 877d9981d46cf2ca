//! Features of this kernel: some tested by loading small programs, since they cannot be derived from
//! its version, others by version.

use super::refusal::release;
use super::syscall::{Instruction, ProgramKind, load_program};
use std::sync::OnceLock;

/// `BPF_PROG_TYPE_SOCKET_FILTER`.
const SOCKET_FILTER: ProgramKind = ProgramKind { kind: 1, hook: 0, flags: 0 };

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
        let program = [
            instruction(STORE_64, STACK, -8, 0),
            instruction(MOVE_64, 1, 0, 1),
            instruction(ATOMIC_64, STACK | 1 << 4, -8, ADD_AND_FETCH),
            instruction(MOVE_64, 0, 0, 0),
            instruction(EXIT, 0, 0, 0),
        ];
        load_program("", SOCKET_FILTER, &program).is_ok()
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
