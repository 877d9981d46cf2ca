//! Ports: where poll-mode workers get their frames.

#[cfg(target_os = "linux")]
mod af_xdp;
mod ahead;
#[cfg(feature = "dpdk")]
mod dpdk;
mod frames;
mod held;
mod huge;
mod memory;
mod merge;
mod pcap;

#[cfg(target_os = "linux")]
pub use af_xdp::{AfXdp, AfXdpPort, Copies, FrameSender, af_xdp, try_af_xdp};
pub use ahead::{AHEAD, prefetch};
#[cfg(feature = "dpdk")]
pub use dpdk::{DpdkPort, DpdkSender, EAL, dpdk, dpdk_device};
pub use frames::{Injector, OwnedFrame, frames};
pub use memory::{MemoryPort, memory};
pub use merge::{Capture, captures};
pub use pcap::{CHUNK, PcapPort, pcap, pcap_reader};

pub use crate::send::Outlet;

pub use super::worker::Duty;

use crate::losses::Losses;
use crate::tally::Tally;
use flowgauge_core::Link;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// A frame on its way through a worker.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The captured bytes.
    pub bytes: &'a [u8],
    /// Length on the wire.
    pub wire_length: u32,
    /// When it arrived, in nanoseconds; the origin is the source's.
    pub timestamp: u64,
    /// What precedes the network header.
    pub link: Link,
}

/// What [`Port::receive`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Frames were handed over.
    Frames,
    /// There are none now.
    Idle,
    /// There will be none any more.
    Ended,
}

/// One worker's view of a source of packets.
pub trait Port: Send + 'static {
    /// Whether [`wait`](Self::wait) ends when frames come. Workers look again every 50 microseconds
    /// where it does not.
    const SIGNALS: bool = false;

    /// Hands the frames that are there, up to a batch, to `sink`. Never waits.
    fn receive(&mut self, sink: &mut impl FnMut(Frame<'_>)) -> Received;

    /// Waits for frames, until the [waker](Self::waker) is called, or this thread unparked if there
    /// is none, and no longer than `most`. It may end without a reason.
    fn wait(&mut self, most: Duration) {
        thread::park_timeout(most);
    }

    /// What ends a wait from another thread.
    fn waker(&self) -> Option<Waker> {
        None
    }

    /// Counts what comes, in this thread, until there is nothing left to count. Every port has it
    /// in one line, `duty.run(self)`: the compiler makes the code of a worker where that line is,
    /// once, and not again in each crate that starts workers.
    fn work(self, duty: Duty);
}

/// Ends the wait of a worker, or the next one if it is at work.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// What all ports of one source know together.
pub trait Source: Send + Sync {
    /// Packets lost before they reached a port, since the start.
    fn losses(&self) -> Losses {
        Losses::default()
    }

    /// A window is about to end.
    fn rotating(&self) {}

    /// Packets that the device received up to the end of the last window; see
    /// [`Dataplane::received`](crate::Dataplane::received).
    fn received(&self) -> Option<Tally> {
        None
    }

    /// What is wrong with the source, one line each, each reported once.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// What an operator should know of the source, one line each, each told once; nothing is
    /// missing because of it that [`losses`](Self::losses) does not tell.
    fn notices(&self) -> Vec<String> {
        Vec::new()
    }

    /// The step of the clock that timestamps are from, in nanoseconds, as far as that is known.
    fn clock_step_ns(&self) -> u64 {
        1
    }

    /// How much of the source was handed out, of how much in all, in a unit of the source's own;
    /// `None` if there is no end.
    fn progress(&self) -> Option<(u64, u64)> {
        None
    }
}

/// The ports of one source, one a worker, with what the backend needs to run them.
pub struct Ports<P> {
    /// One port a worker.
    pub ports: Vec<P>,
    /// The source behind all of them.
    pub source: Arc<dyn Source>,
    /// How far the traffic may advance.
    pub gate: Arc<super::Gate>,
    /// What to call the source in outputs.
    pub interface: String,
}
