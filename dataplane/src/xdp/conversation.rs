//! Packets of conversations, run through a program as [injected](super::Injector) frames are: for
//! benchmarks.

use super::hook::{loading, refused, xdp};
use super::inject::{Injector, locked};
use super::object::{CONVERSE, LISTENER, load_conversation};
use crate::error::Error;
use crate::place::Place;
use aya::Ebpf;
use aya::maps::ProgramArray;
use aya::programs::{TestRun, TestRunOptions, Xdp};

/// Packets from the request that one connection sends to its answer, both included.
pub const ROUND_TRIP: u32 = 127;

/// TCP connections between a client and a server, whose packets a program counts. Every other
/// packet has data, and is a request that is new; every other one acknowledges it, [`ROUND_TRIP`]
/// packets later. The kernel makes each packet of the one before, which takes a few nanoseconds.
pub struct Conversation {
    place: Place,
    programs: Ebpf,
}

impl Conversation {
    /// A conversation that the injector's program listens to.
    ///
    /// # Errors
    /// [`Error::Kernel`] before tables are installed, and if the kernel refuses the program.
    pub fn new(listener: &Injector) -> Result<Self, Error> {
        let place = listener.place.clone();
        let mut programs = load_conversation().map_err(|error| refused(&place, loading(&error)))?;
        let program = xdp(&mut programs, CONVERSE).and_then(|program| program.load());
        program.map_err(|error| refused(&place, loading(&error)))?;
        let mut counting = locked(&listener.programs);
        let counting =
            counting.as_mut().ok_or_else(|| refused(&place, "install tables first".to_owned()))?;
        let listening =
            xdp(counting, listener.program).map_err(|error| refused(&place, error.to_string()))?;
        listen(&mut programs, listening)
            .map_err(|error| refused(&place, format!("conversation: {error}")))?;
        Ok(Conversation { place, programs })
    }

    /// Counts the next packets.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the kernel refuses the frame.
    pub fn go_on(&mut self, packets: u32) -> Result<(), Error> {
        let options =
            TestRunOptions { data_in: Some(&FRAME), repeat: packets, ..TestRunOptions::default() };
        let outcome =
            xdp(&mut self.programs, CONVERSE).and_then(|program| program.test_run(options));
        outcome.map(drop).map_err(|error| refused(&self.place, format!("conversation: {error}")))
    }
}

/// What the kernel makes packets of: IPv4, TCP.
const FRAME: [u8; 60] = {
    let mut frame = [0; 60];
    frame[12] = 8;
    frame[14] = 0x45;
    frame[22] = 64;
    frame[23] = 6;
    frame
};

/// Has `programs` hand its packets to a program.
fn listen(programs: &mut Ebpf, listener: &Xdp) -> Result<(), String> {
    let map = programs.map_mut(LISTENER).ok_or("its object has no map of programs")?;
    let mut listeners = ProgramArray::try_from(map).map_err(|error| error.to_string())?;
    let listener = listener.fd().map_err(|error| error.to_string())?;
    listeners.set(0, listener, 0).map_err(|error| error.to_string())
}
