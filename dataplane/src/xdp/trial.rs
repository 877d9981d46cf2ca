//! Trial loading of single programs: whether this kernel accepts them, and the cost of
//! verification.

use super::attach::cpus;
use super::object;
use super::refusal::{loading, refused};
use super::{Options, syscall};
use crate::error::Error;
use crate::place::CountingPoint;
use crate::tables::Tables;
use aya::Ebpf;
use flowgauge_core::Settings;
use flowgauge_core::kernel::{Config, MemoryLayout};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Result of loading one program.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Kind of hook: `xdp`, or `tcx`, whose programs are used on `clsact` too.
    pub hook: &'static str,
    /// Measurement that it counts; `packets` for the parser before all measurements; `cardinality
    /// alone`; `packets without link header`. The last three also with a filter: `packets, --match`.
    pub counts: String,
    /// Cost if it loads, otherwise the reason in one line.
    pub outcome: Result<Loaded, String>,
}

/// Cost of a program that loads.
#[derive(Clone, Copy, Debug)]
pub struct Loaded {
    /// Instructions that the verifier processed; reported since Linux 5.16.
    pub processed: Option<u32>,
    /// Bytes of stack, of 512; `None` if the kernel does not show the program.
    pub stack_bytes: Option<u32>,
    /// Time to load and verify it.
    pub time: Duration,
}

/// Loads the programs of each hook that these settings need, without an interface.
///
/// # Errors
/// [`Error::Kernel`] if the kernel refuses the object's arrays.
pub fn trials(settings: &Settings) -> Result<Vec<Trial>, Error> {
    let place = CountingPoint::ingress("trial");
    let tables = Tables::new(settings, 1);
    let config = Config {
        settings: *settings,
        needs: settings.needs(),
        layout: MemoryLayout::of(settings),
        ..Config::DEFAULT
    };
    let ring = Options::new(*settings).delay_sample_ring;
    let cpus = cpus(&place)?;
    let load = |config: &Config| {
        object::load(config, &tables.tabulation, cpus, ring, &[])
            .map_err(|error| refused(&place, loading(&error)))
    };
    let mut programs = load(&config)?;
    let mut filtered = load(&Config { filtered: 1, ..config })?;
    let mut trials = Vec::new();
    for hook in ["xdp", "tcx"] {
        for (counts, name) in object::named(hook, settings) {
            trials.push(Trial { hook, counts, outcome: attempt(&mut programs, &name) });
        }
        let first = object::named_first(hook, settings).into_iter();
        for (counts, name) in first.filter(|(_, name)| !object::is_fused(name)) {
            let counts = format!("{counts}, --match");
            trials.push(Trial { hook, counts, outcome: attempt(&mut filtered, &name) });
        }
    }
    Ok(trials)
}

fn attempt(programs: &mut Ebpf, name: &str) -> Result<Loaded, String> {
    let began = Instant::now();
    object::load_alone(programs, name).map_err(|error| super::refusal::why_not_loaded(&error))?;
    let time = began.elapsed();
    let program = programs.program(name);
    let info = program.and_then(|program| program.info().ok());
    let instructions = program
        .and_then(|program| program.fd().ok())
        .and_then(|program| syscall::instructions(program.as_fd()).ok());
    let stack_bytes = instructions
        .filter(|instructions| !instructions.is_empty())
        .map(|instructions| stack(&instructions));
    Ok(Loaded {
        processed: info.and_then(|info| info.verified_instruction_count()),
        stack_bytes,
        time,
    })
}

/// Returns the bytes of stack that instructions use: the lowest address below the frame pointer, in
/// words of eight bytes as the kernel counts.
fn stack(instructions: &[[u8; 8]]) -> u32 {
    const FRAME: u8 = 10;
    const ADD_IMMEDIATE: u8 = 0x07;
    const MOVE: u8 = 0xbf;
    let mut deepest = 0;
    let mut copy = None;
    for [opcode, registers, offset_low, offset_high, immediate @ ..] in instructions {
        let (destination, source) = (registers & 0xf, registers >> 4);
        let offset = i32::from(i16::from_le_bytes([*offset_low, *offset_high]));
        let below = match opcode & 0x7 {
            // Load; store of a constant; store.
            1 if source == FRAME => offset,
            2 | 3 if destination == FRAME => offset,
            _ if *opcode == ADD_IMMEDIATE && copy == Some(destination) => {
                i32::from_le_bytes(*immediate)
            }
            _ => 0,
        };
        deepest = deepest.min(below);
        copy = (*opcode == MOVE && source == FRAME).then_some(destination);
    }
    deepest.unsigned_abs().next_multiple_of(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_address_below_the_frame_pointer_is_the_stack() {
        // r0 = 1; *(u32 *)(r10 - 20) = r0; r2 = r10; r2 += -40; r0 = *(u64 *)(r10 - 8)
        let program = [
            [0xb7, 0x00, 0, 0, 1, 0, 0, 0],
            [0x63, 0x0a, 0xec, 0xff, 0, 0, 0, 0],
            [0xbf, 0xa2, 0, 0, 0, 0, 0, 0],
            [0x07, 0x02, 0, 0, 0xd8, 0xff, 0xff, 0xff],
            [0x79, 0xa0, 0xf8, 0xff, 0, 0, 0, 0],
        ];
        assert_eq!(stack(&program), 40);
        assert_eq!(stack(&program[..2]), 24);
        // Without the copy, another register is added to.
        assert_eq!(stack(&[program[3]]), 0);
    }
}
