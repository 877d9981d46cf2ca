//! Sender in the kernel: packets are generated and sent without leaving it (live frames of
//! BPF_PROG_TEST_RUN).

use super::hook;
use super::hook::{loading, refused, xdp};
use super::object::{SEND, load_sender};
use crate::error::Error;
use crate::interface::device;
use crate::place::Place;
use aya::Ebpf;
use aya::programs::{ProgramError, TestRun, TestRunAttrs, TestRunOptions, Xdp};

/// Packets that the kernel generates at a time.
const BATCH: u32 = 64;

/// Sender of one IPv4 frame with varying source addresses, at the highest rate that the kernel
/// reaches.
///
/// Its packets bypass queueing disciplines and egress hooks. A veth device accepts such packets
/// only while its peer runs a native XDP program or merges packets (GRO); a slow peer drops them,
/// and the sender counts those as dropped.
pub struct Sender {
    place: Place,
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
        let place = Place { interface: interface.to_owned(), direction: crate::Direction::Egress };
        let index = device::index(interface)
            .ok_or_else(|| refused(&place, hook::NO_INTERFACE.to_owned()))?;
        let mut programs =
            load_sender(sources.max(1)).map_err(|error| refused(&place, loading(&error)))?;
        let program = xdp(&mut programs, SEND).and_then(|program| program.load());
        program.map_err(|error| refused(&place, loading(&error)))?;
        Ok(Sender { place, programs, frame: frame.to_vec(), index })
    }

    /// Sends packets and returns when all were handed to the device.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the kernel refuses the frame.
    pub fn send(&mut self, packets: u32) -> Result<(), Error> {
        let outcome = xdp(&mut self.programs, SEND)
            .and_then(|program| send(program, self.index, &self.frame, packets));
        outcome.map_err(|error| cannot_send(&self.place, &error))
    }
}

/// Lets the kernel generate `packets` frames, rounded up to whole [`BATCH`]es if more than one, and
/// run a program on each as if the interface `index` had received it.
pub(super) fn send(
    program: &mut Xdp,
    index: u32,
    frame: &[u8],
    packets: u32,
) -> Result<(), ProgramError> {
    // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
    let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    let mut context = [0; 24];
    let fields = [0, length, 0, index, 0, 0];
    context
        .chunks_exact_mut(4)
        .zip(fields)
        .for_each(|(bytes, field)| bytes.copy_from_slice(&field.to_ne_bytes()));
    let options = TestRunOptions {
        data_in: Some(frame),
        ctx_in: Some(&context),
        repeat: packets,
        attrs: TestRunAttrs::new().xdp_live_frames(BATCH),
        ..TestRunOptions::default()
    };
    program.test_run(options).map(drop)
}

pub(super) fn cannot_send(place: &Place, error: &ProgramError) -> Error {
    refused(place, format!("cannot send (live frames take Linux 5.18): {error}"))
}
