//! Frames run through a program in the kernel without an interface (BPF_PROG_TEST_RUN).

use super::attach::{tcx, xdp};
use super::object;
use super::refusal::refused;
use crate::error::Error;
use crate::place::CountingPoint;
use aya::Ebpf;
use aya::maps::{MapData, ProgramArray};
use aya::programs::{ProgramError, TestRun, TestRunOptions};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Injector of frames into a program, as if they had arrived at an interface.
#[derive(Clone)]
pub struct ProgramInjector {
    pub(super) place: CountingPoint,
    pub(super) program: &'static str,
    /// Whether it is a TCX program.
    pub(super) tcx: bool,
    pub(super) programs: Programs,
}

/// Kernel metadata of a packet that represents several on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// Bytes of payload of each packet but the last.
    pub segment_length: u32,
    /// Number of packets; zero if only their length is known.
    pub segments: u32,
    /// Bytes of all packets, if the kernel has added them up; otherwise zero.
    pub wire_length: u32,
}

/// Length of `struct __sk_buff` and offsets of its fields.
const SK_BUFF: usize = 192;
const WIRE_LENGTH: usize = 160;
const SEGMENTS: usize = 164;
const SEGMENT_LENGTH: usize = 176;

/// Programs of a backend without interface, once tables are installed.
pub(super) type Programs = Arc<Mutex<Option<Ebpf>>>;

pub(super) fn locked(programs: &Programs) -> MutexGuard<'_, Option<Ebpf>> {
    programs.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ProgramInjector {
    /// Counts one Ethernet frame of 14 bytes or more on this CPU.
    ///
    /// # Errors
    /// [`Error::Kernel`] before tables are installed, and if the kernel refuses the frame.
    pub fn inject(&self, frame: &[u8]) -> Result<(), Error> {
        self.repeat(frame, 1)
    }

    /// Counts one frame `times` times; takes little longer than the program itself.
    ///
    /// # Errors
    /// As [`inject`](Self::inject).
    pub fn repeat(&self, frame: &[u8], times: u32) -> Result<(), Error> {
        self.run(
            TestRunOptions { data_in: Some(frame), repeat: times, ..TestRunOptions::default() },
            frame.len(),
        )
    }

    /// Counts a packet that represents several on the wire, on a TCX hook.
    ///
    /// # Errors
    /// As [`inject`](Self::inject).
    pub fn inject_super_packet(&self, frame: &[u8], offload: &Offload) -> Result<(), Error> {
        let mut context = [0; SK_BUFF];
        for (place, value) in [
            (WIRE_LENGTH, offload.wire_length),
            (SEGMENTS, offload.segments),
            (SEGMENT_LENGTH, offload.segment_length),
        ] {
            if let Some(field) = context.get_mut(place..place + size_of::<u32>()) {
                field.copy_from_slice(&value.to_ne_bytes());
            }
        }
        let options = TestRunOptions {
            data_in: Some(frame),
            ctx_in: Some(&context),
            ..TestRunOptions::default()
        };
        self.run(options, frame.len())
    }

    /// Sets the program into the first slot of an array of programs, for others to call.
    ///
    /// # Errors
    /// [`Error::Kernel`] before tables are installed, and if the kernel refuses.
    pub fn set_into(&self, programs: &mut ProgramArray<&mut MapData>) -> Result<(), Error> {
        let mut counting = locked(&self.programs);
        let counting = counting
            .as_mut()
            .ok_or_else(|| refused(&self.place, "install tables first".to_owned()))?;
        let failed = |problem: String| refused(&self.place, problem);
        let program = object::loaded(counting, self.program).ok_or(ProgramError::NotLoaded);
        let program = program.and_then(|program| xdp(counting, program));
        let program = program.map_err(|error| failed(error.to_string()))?;
        let program = program.fd().map_err(|error| failed(error.to_string()))?;
        programs.set(0, program, 0).map_err(|error| failed(error.to_string()))
    }

    fn run(&self, options: TestRunOptions<'_>, length: usize) -> Result<(), Error> {
        let mut programs = locked(&self.programs);
        let programs = programs
            .as_mut()
            .ok_or_else(|| refused(&self.place, "install tables first".to_owned()))?;
        let program = object::loaded(programs, self.program).ok_or(ProgramError::NotLoaded);
        let outcome = program.and_then(|program| {
            if self.tcx {
                tcx(programs, program)?.test_run(options)
            } else {
                xdp(programs, program)?.test_run(options)
            }
        });
        outcome.map(drop).map_err(|error| refused(&self.place, format!("{length} bytes: {error}")))
    }
}
