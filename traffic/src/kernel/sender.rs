//! Packets of one template, with varying sources.

use super::{cannot_send, index, load, program, send};
use aya::{Ebpf, EbpfLoader};
use flowgauge_dataplane::Error;

/// Program that sends the packets.
const PROGRAM: &str = "flowgauge_send";
/// Number of source addresses, in the object.
const SOURCES: &str = "SOURCES";

/// Sender of one IPv4 frame with varying source addresses, at the highest rate that the kernel
/// reaches.
///
/// Its packets bypass queueing disciplines and egress hooks. A veth device accepts such packets
/// only while its peer runs a native XDP program or merges packets (GRO); a slow peer drops them,
/// and the sender counts those as dropped.
pub struct Sender {
    interface: String,
    programs: Ebpf,
    frame: Vec<u8>,
    index: u32,
}

impl Sender {
    /// Opens a sender on an interface of this thread's network namespace, with `sources` source
    /// addresses from 10.0.0.0 on.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the interface does not exist, or the kernel refuses the program.
    pub fn new(interface: &str, frame: &[u8], sources: u32) -> Result<Self, Error> {
        let index = index(interface)?;
        let sources = sources.max(1);
        let mut loader = EbpfLoader::new();
        let loader = loader.override_global(SOURCES, &sources, true);
        let programs = load(interface, loader, PROGRAM)?;
        let interface = interface.to_owned();
        Ok(Sender { interface, programs, frame: frame.to_vec(), index })
    }

    /// Sends packets and returns when all were handed to the device.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the kernel refuses the frame.
    pub fn send(&mut self, packets: u32) -> Result<(), Error> {
        let outcome = program(&mut self.programs, PROGRAM)
            .and_then(|program| send(program, self.index, &self.frame, packets));
        outcome.map_err(|error| cannot_send(&self.interface, &error))
    }
}
