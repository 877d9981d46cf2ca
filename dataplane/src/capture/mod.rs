//! Capture files: pcap and pcapng, read record by record from bytes, and written as pcap.
//!
//! # Path of the bytes
//! Only [`Writer`] and [`decompress`] do I/O. A reader passes its bytes, in pieces of any size, to
//! a [`Walker`], which returns one [`Step`] at a time: a packet's [`PacketRecord`], something to
//! skip, or [`Damage`]. So files and pipes share one implementation. It also walks over a
//! [`PacketList`], of packets that were taken out of captures. Frames of link types that the parser
//! lacks are decoded by [`open`].
//!
//! # Where to look
//! `walker`: the walk, whatever the format; `pcap` and `pcapng`: the formats of
//! draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng; `interface`: resolution of timestamps, and
//! the step of a capture's clock; [`link_type`] and `encapsulation`: link layers; `damage`: errors,
//! and guesses what else a file is; `compression`: gzip, Zstandard and xz; [`build`]: captures for
//! tests. The ports that count captures are in [`poll::port`](crate::poll::port).

pub mod build;
mod compression;
mod damage;
mod encapsulation;
mod interface;
pub mod link_type;
mod pcap;
mod pcapng;
mod run;
#[cfg(test)]
mod tests;
mod walker;

pub(crate) use compression::read_full;
pub use compression::{Compression, MOST_WINDOW, decompress};
pub use damage::Damage;
use damage::DamagePosition;
pub use encapsulation::open;
pub use interface::{CaptureInterface, Granularity, Resolution};
pub use pcap::Writer;
pub use run::{PacketList, PacketRun, TimeRange};
pub use walker::{
    MAX_CAPTURED, MAX_NEED, PacketRecord, PacketsIn, PassResult, Plain, Step, StopReason, Walker,
};

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;
