//! The small program that is attached at a member of a [set](super::set): it notes the member for
//! the programs of the set, and continues with the first of these. Each member has a program of its
//! own, so that links, filters, queries and costs are those of one counting point.

use super::syscall::{Instruction, ProgramKind, load_program};
use flowgauge_core::kernel::CurrentMember;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Parts of a member's program.
pub(super) struct Entry<'a> {
    /// Name in the kernel.
    pub(super) name: &'a str,
    pub(super) kind: ProgramKind,
    /// Array of the members, one element per CPU.
    pub(super) current: BorrowedFd<'a>,
    pub(super) member: CurrentMember,
    /// Array of programs, and the slot of the first one.
    pub(super) chain: BorrowedFd<'a>,
    pub(super) slot: u32,
    /// Return value for a packet that the first program did not get.
    pub(super) verdict: i32,
}

impl Entry<'_> {
    /// Loads the program, which takes the verifier some microseconds.
    pub(super) fn load(&self) -> io::Result<OwnedFd> {
        load_program(self.name, self.kind, &self.instructions())
    }

    fn instructions(&self) -> [Instruction; 18] {
        const MOVE: u8 = 0xbf;
        const MOVE_IMMEDIATE: u8 = 0xb7;
        const ADD_IMMEDIATE: u8 = 0x07;
        const LOAD_WIDE: u8 = 0x18;
        const STORE_32: u8 = 0x63;
        const STORE_IMMEDIATE_32: u8 = 0x62;
        const JUMP_IF_EQUAL: u8 = 0x15;
        const CALL: u8 = 0x85;
        const EXIT: u8 = 0x95;
        /// The immediate is the descriptor of a map.
        const MAP: u8 = 1 << 4;
        const CONTEXT: u8 = 6;
        const STACK: u8 = 10;
        const LOOK_UP: i32 = 1;
        const CURRENT_CPU: i32 = 8;
        const TAIL_CALL: i32 = 12;
        let instruction = |opcode, registers, offset, immediate| Instruction {
            opcode,
            registers,
            offset,
            immediate,
        };
        let note = |offset: usize, word: u32| {
            instruction(STORE_IMMEDIATE_32, 0, offset as i16, word.cast_signed())
        };
        let CurrentMember { number, leaves, .. } = self.member;
        [
            instruction(MOVE, CONTEXT | 1 << 4, 0, 0),
            instruction(CALL, 0, 0, CURRENT_CPU),
            instruction(STORE_32, STACK, -4, 0),
            instruction(MOVE, 2 | STACK << 4, 0, 0),
            instruction(ADD_IMMEDIATE, 2, 0, -4),
            instruction(LOAD_WIDE, 1 | MAP, 0, self.current.as_raw_fd()),
            instruction(0, 0, 0, 0),
            instruction(CALL, 0, 0, LOOK_UP),
            // To the verdict.
            instruction(JUMP_IF_EQUAL, 0, 7, 0),
            note(offset_of!(CurrentMember, number), number),
            note(offset_of!(CurrentMember, leaves), leaves),
            instruction(MOVE, 1 | CONTEXT << 4, 0, 0),
            instruction(LOAD_WIDE, 2 | MAP, 0, self.chain.as_raw_fd()),
            instruction(0, 0, 0, 0),
            instruction(MOVE_IMMEDIATE, 3, 0, self.slot.cast_signed()),
            instruction(CALL, 0, 0, TAIL_CALL),
            instruction(MOVE_IMMEDIATE, 0, 0, self.verdict),
            instruction(EXIT, 0, 0, 0),
        ]
    }
}
