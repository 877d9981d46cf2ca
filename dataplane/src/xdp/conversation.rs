//! Packets of conversations, run through a program like [injected](super::Injector) frames, for
//! benchmarks.

use super::hook::{loading, refused, xdp};
use super::inject::{Injector, locked};
use super::object::{CONVERSE, LISTENER, load_conversation};
use crate::error::Error;
use crate::place::Place;
use aya::Ebpf;
use aya::maps::ProgramArray;
use aya::programs::{TestRun, TestRunOptions, Xdp};

/// Packets from a request of a connection to its answer, both included.
pub const ROUND_TRIP: u32 = 127;

/// Generator of TCP connections between a client and a server, whose packets a program counts.
/// Every other packet has data, as a new request; the packets between acknowledge requests,
/// [`ROUND_TRIP`] packets later. The kernel derives each packet from the previous one, in a few
/// nanoseconds.
pub struct Conversation {
    place: Place,
    programs: Ebpf,
}

impl Conversation {
    /// Creates a conversation that the injector's program counts.
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

/// Template of the packets: IPv4, TCP.
const FRAME: [u8; 60] = {
    let mut frame = [0; 60];
    frame[12] = 8;
    frame[14] = 0x45;
    frame[22] = 64;
    frame[23] = 6;
    frame
};

/// Connects `programs` to a program that receives their packets.
fn listen(programs: &mut Ebpf, listener: &Xdp) -> Result<(), String> {
    let map = programs.map_mut(LISTENER).ok_or("its object has no map of programs")?;
    let mut listeners = ProgramArray::try_from(map).map_err(|error| error.to_string())?;
    let listener = listener.fd().map_err(|error| error.to_string())?;
    listeners.set(0, listener, 0).map_err(|error| error.to_string())
}
