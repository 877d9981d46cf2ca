//! Ports on captures: pcap and pcapng, from files and pipes, compressed or not, one or several.
//!
//! # Path of a packet
//! - **Input**: [`input`] reads chunks of one capture. [`merge`] makes one input of several: their
//!   packets by time, in chunks that bring their parser state along.
//! - **Order**: [`order`] walks over the records of one chunk after the other and returns
//!   [ranges](reorder::ChunkRange) of packets that may be counted: those before the limit of the
//!   gate. Packets that are not due yet wait in the [reorder buffer](reorder).
//! - **Port**: workers of a [`port`] take chunks in turn and pass the frames of these ranges to
//!   their sink.
//!
//! The start of a record is only known once the records before it were parsed, so the quick walk
//! over record headers passes from chunk to chunk, while the packets are counted in parallel.
//! [`crate::capture`] parses the formats.

mod buffer;
mod input;
mod merge;
mod order;
mod port;
mod reorder;

pub use buffer::CHUNK;
pub use merge::Capture;
pub use port::PcapPort;

use super::Ports;
use crate::error::Error;
use crate::poll::gate::{Gate, Pace};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Creates ports on a capture file for `workers`. It may be compressed, and may be a pipe.
///
/// # Errors
/// [`Error::File`] if the file cannot be opened or read, [`Error::NotACapture`] if it does not
/// start with a capture header. Damage inside it is reported as a [warning](crate::Event::Warning).
pub fn pcap(path: &Path, workers: usize, pace: Pace) -> Result<Ports<PcapPort>, Error> {
    captures(vec![Capture::open(path)?], workers, pace)
}

/// Creates ports on a capture that arrives through a pipe, compressed or not. Returns once its
/// header has arrived.
///
/// # Errors
/// As [`pcap`].
pub fn pcap_reader(
    reader: impl Read + Send + 'static,
    name: &str,
    workers: usize,
    pace: Pace,
) -> Result<Ports<PcapPort>, Error> {
    captures(vec![Capture::reader(reader, name)], workers, pace)
}

/// Creates ports on captures, merged by the timestamps of their packets.
///
/// # Errors
/// As [`pcap`]. Of several captures, those without a capture header are reported as
/// [warnings](crate::Event::Warning), unless there is no other.
pub fn captures(
    captures: Vec<Capture>,
    workers: usize,
    pace: Pace,
) -> Result<Ports<PcapPort>, Error> {
    let gate = Arc::new(Gate::new(pace));
    Ok(port::ports(merge::input(captures, &gate)?, workers, gate))
}
