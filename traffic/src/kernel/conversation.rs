//! Packets of conversations, run through a program like injected frames, for benchmarks.

use super::{load, program, refused};
use aya::maps::ProgramArray;
use aya::programs::{TestRun, TestRunOptions};
use aya::{Ebpf, EbpfLoader};
use flowgauge_dataplane::Error;
use flowgauge_dataplane::xdp::ProgramInjector;

/// Program that generates the packets, and its map of the program that receives them.
const PROGRAM: &str = "flowgauge_converse";
const LISTENER: &str = "LISTENER";
/// Name in errors.
const NAME: &str = "conversation";

/// Packets from a request of a connection to its answer, both included.
pub const ROUND_TRIP: u32 = 127;

/// Generator of TCP connections between a client and a server, whose packets a program counts.
/// Every other packet has data, as a new request; the packets between acknowledge requests,
/// [`ROUND_TRIP`] packets later. The kernel derives each packet from the previous one, in a few
/// nanoseconds.
pub struct Conversation {
    programs: Ebpf,
}

impl Conversation {
    /// Creates a conversation that the injector's program counts.
    ///
    /// # Errors
    /// [`Error::Kernel`] before tables are installed, and if the kernel refuses the program.
    pub fn new(listener: &ProgramInjector) -> Result<Self, Error> {
        let mut programs = load(NAME, &mut EbpfLoader::new(), PROGRAM)?;
        let map = programs
            .map_mut(LISTENER)
            .ok_or_else(|| refused(NAME, "its object has no map of programs".to_owned()))?;
        let mut listeners =
            ProgramArray::try_from(map).map_err(|error| refused(NAME, error.to_string()))?;
        listener.set_into(&mut listeners)?;
        Ok(Conversation { programs })
    }

    /// Counts the next packets.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the kernel refuses the frame.
    pub fn go_on(&mut self, packets: u32) -> Result<(), Error> {
        let options =
            TestRunOptions { data_in: Some(&FRAME), repeat: packets, ..TestRunOptions::default() };
        let outcome =
            program(&mut self.programs, PROGRAM).and_then(|program| program.test_run(options));
        outcome.map(drop).map_err(|error| refused(NAME, error.to_string()))
    }
}

/// Template of the packets: IPv4, TCP.
const FRAME: [u8; 60] = {
    let mut frame = [0; 60];
    frame[12] = 8;
    frame[14] = 0x45;
    frame[22] = 64;
    frame[23] = 6;
    frame
};
