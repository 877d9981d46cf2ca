//! Ports: sources of frames for poll-mode workers.
//!
//! A function such as [`pcap`], [`memory`] or [`frames`] opens a source and returns [`Ports`]: one
//! [`Port`] per worker, with the [`PortSource`] and the gate that all of them share. A worker calls
//! [`Port::receive`] for batches and [`Port::wait`] when it has none; the controller asks the
//! source for losses, warnings and progress.
//!
//! `capture` reads captures, `af_xdp` and `dpdk` receive from devices, `memory` takes
//! packets that are a function of their number, `frames` takes any from the embedding program.

mod af_xdp;
mod ahead;
mod capture;
#[cfg(feature = "dpdk")]
mod dpdk;
mod frames;
mod memory;

pub use af_xdp::{AfXdp, AfXdpPort, Copies, FrameSender, af_xdp, try_af_xdp};
pub use ahead::{AHEAD, prefetch};
pub use capture::{CHUNK, Capture, PcapPort, captures, pcap, pcap_reader};
#[cfg(feature = "dpdk")]
pub use dpdk::{DpdkPort, DpdkSender, EAL, dpdk, dpdk_device};
pub use frames::{Injector, OwnedFrame, frames};
pub use memory::{MemoryPort, NumberedFrames, memory};

pub use super::port_frame::{PortFrame, Received};
pub use super::worker::Worker;

use crate::error::Error;
use crate::losses::Losses;
use crate::tally::CountRange;
use flowgauge_core::Filter;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// One worker's view of a source of packets.
pub trait Port: Send + 'static {
    /// Whether [`wait`](Self::wait) returns when frames arrive. If not, workers poll every 50
    /// microseconds.
    const SIGNALS: bool = false;

    /// Passes the available frames, up to one batch, to `sink`. Never waits.
    fn receive(&mut self, sink: &mut impl FnMut(PortFrame<'_>)) -> Received;

    /// Waits for frames, at most for `most`. Ends early when the [waker](Self::waker) is called or,
    /// without a waker, when this thread is unparked. May end spuriously.
    fn wait(&mut self, most: Duration) {
        thread::park_timeout(most);
    }

    /// Returns whether the last [`receive`](Self::receive) left no frames behind and nothing but a
    /// frame, the waker or the time ended the last [`wait`](Self::wait).
    fn is_drained(&self) -> bool {
        true
    }

    /// Returns whether frames arrive whether or not they are received. Those from before the first
    /// window are then removed; other ports keep their frames until it begins.
    fn is_device(&self) -> bool {
        false
    }

    /// Returns the function that ends a wait from another thread.
    fn waker(&self) -> Option<Waker> {
        None
    }

    /// Counts all remaining packets of the port in this thread. Every port implements it
    /// as `worker.run(self)`: the compiler then instantiates the worker in the port's crate, once,
    /// and not in each crate that starts workers.
    fn work(self, worker: Worker);
}

/// Function that ends the current wait of a worker, or its next one.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// State shared by all ports of one source.
pub trait PortSource: Send + Sync {
    /// Returns the packets lost before they reached a port, since the start.
    fn losses(&self) -> Losses {
        Losses::default()
    }

    /// Prepares for the end of a window.
    fn rotating(&self) {}

    /// Returns the packets that the device received up to the end of the last window; see
    /// [`Dataplane::received`](crate::Dataplane::received).
    fn received(&self) -> Option<CountRange> {
        None
    }

    /// Excludes packets from [`received`](Self::received): they arrived before the first window, and
    /// were neither counted nor are they among the losses of the run.
    fn exclude(&self, packets: u64) {
        let _ = packets;
    }

    /// Returns whether packets of the window just closed may be missing that are not in
    /// [`losses`](Self::losses).
    fn has_gap(&self) -> bool {
        false
    }

    /// Returns new problems of the source, one line each, each reported once.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Sets the filter of the next windows. [`warnings`](Self::warnings) then report what the filter
    /// cannot see at this source.
    fn filters(&self, filter: &Filter) {
        let _ = filter;
    }

    /// Returns new information on the source for the operator, one line each, each reported once.
    /// Any packets missing because of it are in [`losses`](Self::losses).
    fn notices(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the resolution of the timestamps, in nanoseconds, as far as it is known.
    fn clock_step_ns(&self) -> u64 {
        1
    }

    /// Returns how much of the source was delivered, and its total, in a unit of the source; `None`
    /// if it has no end.
    fn progress(&self) -> Option<(u64, u64)> {
        None
    }
}

/// The ports of one source, one per worker, with the objects that the backend needs to run them.
pub struct Ports<P> {
    /// One port per worker.
    pub ports: Vec<P>,
    /// The source of all ports.
    pub source: Arc<dyn PortSource>,
    /// The gate that limits the traffic.
    pub gate: Arc<super::Gate>,
    /// Name of the source in outputs.
    pub interface: String,
}

/// An interface that sends packets unmodified.
///
/// Outlets are defined next to their sockets and programs: [`FrameSender`] (AF_XDP) and `DpdkSender`
/// here, and `LiveSender` (in the kernel) in the crate `flowgauge-traffic`.
pub trait Outlet {
    /// Returns the interface name used in outputs.
    fn interface(&self) -> &str;

    /// Returns the size of the largest packet, in bytes without frame check sequence.
    fn largest(&self) -> usize;

    /// Queues a packet of up to [`largest`](Self::largest) bytes. It is handed to the interface
    /// when [`flush`](Self::flush) returns, or after some more packets.
    ///
    /// # Errors
    /// The packet is too large, or the interface is down or gone.
    fn send(&mut self, packet: &[u8]) -> Result<(), Error>;

    /// Hands all queued packets to the interface.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    fn flush(&mut self) -> Result<(), Error>;

    /// Waits until every packet was sent or dropped.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    fn finish(&mut self) -> Result<(), Error>;

    /// Returns the packets of any sender that the interface dropped on transmission since this
    /// outlet was created.
    fn dropped(&self) -> u64;
}
