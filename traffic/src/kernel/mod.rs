//! Senders in the kernel: it generates packets, and a program writes their addresses or their
//! starts (live frames of BPF_PROG_TEST_RUN).
//!
//! [`LiveSender`] sends any packets, [`Sender`] one with varying sources at the highest rate.
//! [`Conversation`] passes packets to a program that counts, without an interface.

mod live;

pub use live::LiveSender;

use aya::maps::{MapData, MapError, PerCpuArray, ProgramArray};
use aya::programs::{ProgramError, TestRun, TestRunAttrs, TestRunOptions, Xdp};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use flowgauge_dataplane::Error;
use flowgauge_dataplane::xdp::{ProgramInjector, not_loaded};
use nix::net::if_::if_nametoindex;
use std::io::ErrorKind;

/// Object built by `ebpf/build`. This crate links to it, so that its package contains it.
static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/ebpf/send.o"));

/// Packets that the kernel generates at a time.
const BATCH: u32 = 64;

/// Loads the object, and a program of it.
fn load(interface: &str, loader: &mut EbpfLoader<'_>, name: &str) -> Result<Ebpf, Error> {
    let mut programs = loader.load(OBJECT).map_err(|error| not_loaded(interface, &error))?;
    let program = program(&mut programs, name).and_then(|program| program.load());
    program.map_err(|error| not_loaded(interface, &error))?;
    Ok(programs)
}

/// Returns a program, loaded or not.
fn program<'a>(programs: &'a mut Ebpf, name: &str) -> Result<&'a mut Xdp, ProgramError> {
    programs.program_mut(name).ok_or(ProgramError::NotLoaded)?.try_into()
}

/// Returns the index of an interface of this thread's network namespace.
fn index(interface: &str) -> Result<u32, Error> {
    if_nametoindex(interface).map_err(|_| {
        refused(interface, "there is no such interface; `ip link` lists them".to_owned())
    })
}

fn refused(interface: &str, problem: String) -> Error {
    Error::Kernel { interface: interface.to_owned(), problem, source: None }
}

/// Lets the kernel generate `packets` frames, rounded up to whole [`BATCH`]es if more than one, and
/// run a program on each as if the interface `index` had received it.
fn send(program: &mut Xdp, index: u32, frame: &[u8], packets: u32) -> Result<(), ProgramError> {
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

fn cannot_send(interface: &str, error: &ProgramError) -> Error {
    refused(interface, format!("cannot send (live frames take Linux 5.18): {}", described(error)))
}

/// Describes an error with the system's reason, which aya leaves to the caller.
fn described(error: &ProgramError) -> String {
    match error {
        ProgramError::SyscallError(call) => format!("{call}: {}", call.io_error),
        error => error.to_string(),
    }
}

/// Runs a program on `packets` packets. A signal interrupts the kernel, which then continues with the
/// rest: `sent` returns the number of packets so far, modulo 2^32.
fn run_all(
    packets: u32,
    sent: impl Fn() -> Result<u32, MapError>,
    mut run: impl FnMut(u32) -> Result<(), ProgramError>,
) -> Result<(), ProgramError> {
    let before = sent()?;
    let mut left = packets;
    while left > 0 {
        match run(left) {
            Err(ProgramError::SyscallError(call))
                if call.io_error.kind() == ErrorKind::Interrupted =>
            {
                left = packets.saturating_sub(sent()?.wrapping_sub(before));
            }
            outcome => return outcome,
        }
    }
    Ok(())
}

/// Packets that a program generated, counted on each CPU.
type GeneratedPackets = PerCpuArray<MapData, u32>;

/// Takes a map of generated packets out of a loaded object.
fn take_generated(
    programs: &mut Ebpf,
    interface: &str,
    map: &str,
) -> Result<GeneratedPackets, Error> {
    let missing = || refused(interface, format!("the object has no map {map}"));
    let generated = programs.take_map(map).ok_or_else(missing)?;
    PerCpuArray::try_from(generated).map_err(|error| refused(interface, error.to_string()))
}

/// Returns the number of generated packets, modulo 2^32.
fn total(generated: &GeneratedPackets) -> Result<u32, MapError> {
    let by_cpu = generated.get(&0, 0)?;
    Ok(by_cpu.iter().fold(0, |sum: u32, packets| sum.wrapping_add(*packets)))
}

/// Program that generates the packets of conversations, and its maps: the program that receives
/// them, and the number of packets that each CPU generated.
const CONVERSE: &str = "flowgauge_converse";
const LISTENER: &str = "LISTENER";
const TURN: &str = "TURN";
/// Name of conversations in errors.
const CONVERSATION: &str = "conversation";

/// Packets from a request of a connection to its answer, both included.
pub const ROUND_TRIP: u32 = 127;

/// Generator of TCP connections between a client and a server, whose packets a program counts.
/// Every other packet has data, as a new request; the packets between acknowledge requests,
/// [`ROUND_TRIP`] packets later. The kernel derives each packet from the previous one, in a few
/// nanoseconds.
pub struct Conversation {
    programs: Ebpf,
    generated: GeneratedPackets,
}

impl Conversation {
    /// Creates a conversation that the injector's program counts.
    ///
    /// # Errors
    /// [`Error::Kernel`] before tables are installed, and if the kernel refuses the program.
    pub fn new(listener: &ProgramInjector) -> Result<Self, Error> {
        let mut programs = load(CONVERSATION, &mut EbpfLoader::new(), CONVERSE)?;
        let map = programs
            .map_mut(LISTENER)
            .ok_or_else(|| refused(CONVERSATION, "its object has no map of programs".to_owned()))?;
        let mut listeners = ProgramArray::try_from(map)
            .map_err(|error| refused(CONVERSATION, error.to_string()))?;
        listener.set_into(&mut listeners)?;
        let generated = take_generated(&mut programs, CONVERSATION, TURN)?;
        Ok(Conversation { programs, generated })
    }

    /// Counts the next packets.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the kernel refuses the frame.
    pub fn go_on(&mut self, packets: u32) -> Result<(), Error> {
        let Conversation { programs, generated } = self;
        let outcome = run_all(
            packets,
            || total(generated),
            |left| {
                let options = TestRunOptions {
                    data_in: Some(&SEGMENT),
                    repeat: left,
                    ..TestRunOptions::default()
                };
                program(programs, CONVERSE)?.test_run(options).map(drop)
            },
        );
        outcome.map_err(|error| refused(CONVERSATION, described(&error)))
    }
}

/// Template of the packets of conversations: IPv4, TCP.
const SEGMENT: [u8; 60] = {
    let mut frame = [0; 60];
    frame[12] = 8;
    frame[14] = 0x45;
    frame[22] = 64;
    frame[23] = 6;
    frame
};

/// Program that sends one frame with varying sources.
const SEND: &str = "flowgauge_send";
/// Number of source addresses, in the object.
const SOURCES: &str = "SOURCES";
/// Map of the number of packets that each CPU generated.
const SENT: &str = "SENT";

/// Sender of one IPv4 frame with varying source addresses, at the highest rate that the kernel
/// reaches.
///
/// Its packets bypass queueing disciplines and egress hooks. A veth device accepts such packets
/// only while its peer runs a native XDP program or merges packets (GRO); a slow peer drops them,
/// and the sender counts those as dropped.
pub struct Sender {
    interface: String,
    programs: Ebpf,
    generated: GeneratedPackets,
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
        let mut programs = load(interface, loader, SEND)?;
        let generated = take_generated(&mut programs, interface, SENT)?;
        let interface = interface.to_owned();
        Ok(Sender { interface, programs, generated, frame: frame.to_vec(), index })
    }

    /// Sends packets and returns when all were handed to the device.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the kernel refuses the frame.
    pub fn send(&mut self, packets: u32) -> Result<(), Error> {
        let Sender { interface, programs, generated, frame, index } = self;
        let outcome = run_all(
            packets,
            || total(generated),
            |left| send(program(programs, SEND)?, *index, frame, left),
        );
        outcome.map_err(|error| cannot_send(interface, &error))
    }
}
