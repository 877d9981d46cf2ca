//! Senders in the kernel: it generates packets, and a program writes their addresses or their
//! starts (live frames of BPF_PROG_TEST_RUN).
//!
//! [`LiveSender`] sends any packets, [`Sender`] one with varying sources at the highest rate.
//! [`Conversation`] passes packets to a program that counts, without an interface.

mod conversation;
mod live;
mod sender;

pub use conversation::{Conversation, ROUND_TRIP};
pub use live::LiveSender;
pub use sender::Sender;

use aya::programs::{ProgramError, TestRun, TestRunAttrs, TestRunOptions, Xdp};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use flowgauge_dataplane::Error;
use flowgauge_dataplane::xdp::not_loaded;
use nix::net::if_::if_nametoindex;

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
    refused(interface, format!("cannot send (live frames take Linux 5.18): {error}"))
}
