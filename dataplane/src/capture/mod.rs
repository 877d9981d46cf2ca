//! Capture files: pcap and pcapng, read record by record from bytes and written as pcap.
//!
//! Nothing here does I/O except [`Writer`] and [`decompress`]: [`Walker`] is handed the bytes, so
//! files and pipes go through the same code. The formats are those of draft-ietf-opsawg-pcap and
//! draft-ietf-opsawg-pcapng.

pub(crate) mod block;
pub mod build;
mod compression;
mod damage;
mod encapsulation;
mod granularity;
mod interface;
pub mod link_type;
mod pcap;
mod pcapng;
#[cfg(test)]
mod tests;
mod walker;
mod writer;

pub(crate) use compression::read_full;
pub use compression::{Compression, MOST_WINDOW, decompress};
pub use damage::{Damage, Guess, Piece, Place};
pub use encapsulation::open;
pub use granularity::Granularity;
pub use interface::{Interface, Resolution};
pub use walker::{
    Format, MAX_CAPTURED, MAX_NEED, PacketsIn, Passed, Plain, Record, Run, Step, Stop, Taken,
    Walker,
};
pub use writer::Writer;

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;
