//! Frames run through a program, in the kernel but without an interface (BPF_PROG_TEST_RUN).

use super::hook::{egress, ingress, refused};
use crate::capabilities::Direction;
use crate::error::Error;
use crate::snapshot::Place;
use aya::Ebpf;
use aya::programs::{TestRun, TestRunOptions};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Runs frames through a program as if they had come to an interface.
#[derive(Clone)]
pub struct Injector {
    pub(super) place: Place,
    pub(super) program: &'static str,
    pub(super) programs: Programs,
}

/// The programs of a backend without interface, once tables are installed.
pub(super) type Programs = Arc<Mutex<Option<Ebpf>>>;

pub(super) fn locked(programs: &Programs) -> MutexGuard<'_, Option<Ebpf>> {
    programs.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Injector {
    /// Counts one Ethernet frame of 14 bytes or more on this CPU.
    ///
    /// # Errors
    /// [`Error::Kernel`] before tables are installed, and if the kernel refuses the frame.
    pub fn inject(&self, frame: &[u8]) -> Result<(), Error> {
        self.repeat(frame, 1)
    }

    /// Counts one frame many times over; takes little longer than the program itself.
    ///
    /// # Errors
    /// As [`inject`](Self::inject).
    pub fn repeat(&self, frame: &[u8], times: u32) -> Result<(), Error> {
        let mut programs = locked(&self.programs);
        let programs = programs.as_mut().ok_or_else(|| refused(&self.place, "install tables first".to_owned()))?;
        let options = TestRunOptions { data_in: Some(frame), repeat: times, ..TestRunOptions::default() };
        let outcome = match self.place.direction {
            Direction::Ingress => ingress(programs, self.program).and_then(|program| program.test_run(options)),
            Direction::Egress => egress(programs, self.program).and_then(|program| program.test_run(options)),
        };
        outcome.map(drop).map_err(|error| refused(&self.place, format!("{} bytes: {error}", frame.len())))
    }
}
