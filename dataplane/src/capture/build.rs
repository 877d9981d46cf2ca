//! Captures built in memory, with every variation of the formats, for tests, comparisons with other
//! programs, and fuzzing.
//!
//! Options are written without validation, even if they are inconsistent. Numbers too large for a
//! field are truncated to its width.

use super::{MAX_CAPTURED, Resolution, SECOND, link_type, pcap as format, pcapng as block};

/// A packet to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturePacket {
    /// Nanoseconds since 1970; rounded down to the file's resolution.
    pub timestamp: u64,
    /// The original length, in bytes.
    pub wire: u32,
    /// The bytes captured.
    pub frame: Vec<u8>,
    /// Index of the interface; not written to pcap, nor to [`PacketBlock::Simple`], which belongs
    /// to interface 0.
    pub interface: u32,
    /// Block type; not for pcap.
    pub block: PacketBlock,
}

impl CapturePacket {
    /// Creates a completely captured packet of interface 0, in an enhanced packet block.
    #[must_use]
    pub fn new(timestamp: u64, frame: Vec<u8>) -> Self {
        Self {
            timestamp,
            wire: frame.len() as u32,
            frame,
            interface: 0,
            block: PacketBlock::Enhanced,
        }
    }
}

/// pcapng block type of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketBlock {
    /// Enhanced Packet Block.
    Enhanced,
    /// Simple Packet Block: no timestamp and no captured length, so the frame must have the length
    /// that follows from the original length and the snapshot length of interface 0.
    Simple,
    /// The obsolete Packet Block: 16 bits of interface.
    Obsolete,
}

/// Kind of pcap file, by magic number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcapVariant {
    /// a1b2c3d4: timestamps in microseconds.
    Microseconds,
    /// a1b23c4d: timestamps in nanoseconds.
    Nanoseconds,
    /// a1b2cd34: microseconds, and record headers of 24 bytes.
    Modified,
}

/// Options of a pcap file; by default little-endian Ethernet in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PcapOptions {
    /// The kind of file.
    pub variant: PcapVariant,
    /// Whether headers are big-endian.
    pub big_endian: bool,
    /// Major and minor version.
    pub version: (u16, u16),
    /// Whether records have the original length before the captured one.
    pub original_first: bool,
    /// Snapshot length, in bytes.
    pub snaplen: u32,
    /// Complete last field of the file header: link type, and in the upper half information on the
    /// frame check sequence.
    pub network: u32,
}

impl Default for PcapOptions {
    fn default() -> Self {
        Self {
            variant: PcapVariant::Microseconds,
            big_endian: false,
            version: format::VERSION,
            original_first: false,
            snaplen: MAX_CAPTURED,
            network: u32::from(link_type::ETHERNET),
        }
    }
}

/// Options of a pcapng section; by default little-endian, one Ethernet interface in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PcapNgOptions {
    /// Whether the section is big-endian.
    pub big_endian: bool,
    /// The minor version.
    pub minor_version: u16,
    /// Interfaces, all described at the beginning.
    pub interfaces: Vec<InterfaceOptions>,
    /// An opt_comment in every enhanced and every obsolete packet block; empty for none.
    pub comment: String,
    /// Blocks other than packets.
    pub extra: Vec<ExtraBlock>,
}

impl Default for PcapNgOptions {
    fn default() -> Self {
        Self {
            big_endian: false,
            minor_version: 0,
            interfaces: vec![InterfaceOptions::default()],
            comment: String::new(),
            extra: Vec::new(),
        }
    }
}

/// Options of an interface of a pcapng section; by default Ethernet without options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceOptions {
    /// The LINKTYPE_ value.
    pub link_type: u16,
    /// Snapshot length, in bytes; 0 for no limit.
    pub snaplen: u32,
    /// if_name.
    pub name: Option<String>,
    /// if_tsresol; absent means microseconds.
    pub resolution: Option<Resolution>,
    /// if_tsoffset, in seconds; written unless 0.
    pub offset_seconds: i64,
    /// isb_ifdrop of an Interface Statistics Block at the end of the section; no such block if
    /// `None`.
    pub drops: Option<u64>,
}

impl Default for InterfaceOptions {
    fn default() -> Self {
        Self {
            link_type: link_type::ETHERNET,
            snaplen: 0,
            name: None,
            resolution: None,
            offset_seconds: 0,
            drops: None,
        }
    }
}

/// A block of any type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraBlock {
    /// Index of the packet before which it is written; after the last one if there is no such
    /// packet.
    pub before: usize,
    /// The block's type.
    pub block_type: u32,
    /// The body; padded to a multiple of four bytes.
    pub body: Vec<u8>,
}

/// Builds a pcap file.
#[must_use]
pub fn pcap(options: &PcapOptions, packets: &[CapturePacket]) -> Vec<u8> {
    let mut out = Bytes { big_endian: options.big_endian, bytes: Vec::new() };
    let (magic, unit) = match options.variant {
        PcapVariant::Microseconds => (format::MICROSECONDS, 1000),
        PcapVariant::Nanoseconds => (format::NANOSECONDS, 1),
        PcapVariant::Modified => (format::MODIFIED, 1000),
    };
    out.u32(magic);
    out.u16(options.version.0);
    out.u16(options.version.1);
    out.u64(0);
    out.u32(options.snaplen);
    out.u32(options.network);
    for packet in packets {
        out.u32((packet.timestamp / SECOND) as u32);
        out.u32((packet.timestamp % SECOND / unit) as u32);
        let (captured, original) = (packet.frame.len() as u32, packet.wire);
        out.u32(if options.original_first { original } else { captured });
        out.u32(if options.original_first { captured } else { original });
        if options.variant == PcapVariant::Modified {
            // Interface index, protocol, packet type and padding.
            out.u64(0);
        }
        out.bytes.extend_from_slice(&packet.frame);
    }
    out.bytes
}

/// Builds a pcapng section, which is a valid file; a file of several sections is their
/// concatenation.
#[must_use]
pub fn pcapng(options: &PcapNgOptions, packets: &[CapturePacket]) -> Vec<u8> {
    let mut out = Bytes { big_endian: options.big_endian, bytes: Vec::new() };
    out.block(block::SECTION_HEADER, |out| {
        out.u32(block::BYTE_ORDER_MAGIC);
        out.u16(block::MAJOR_VERSION);
        out.u16(options.minor_version);
        // Section Length: not specified.
        out.u64(u64::MAX);
    });
    for interface in &options.interfaces {
        out.block(block::INTERFACE_DESCRIPTION, |out| out.interface(interface));
    }
    for (index, packet) in packets.iter().enumerate() {
        out.extra(options, |extra| extra.before == index);
        out.packet(options, packet);
    }
    out.extra(options, |extra| extra.before >= packets.len());
    for (index, interface) in options.interfaces.iter().enumerate() {
        if let Some(drops) = interface.drops {
            out.block(block::INTERFACE_STATISTICS, |out| {
                out.u32(index as u32);
                out.u64(0);
                let drops = out.ordered(drops.to_be_bytes());
                out.option(block::option::ISB_IFDROP, &drops);
                out.option(block::option::END, &[]);
            });
        }
    }
    out.bytes
}

struct Bytes {
    big_endian: bool,
    bytes: Vec<u8>,
}

impl Bytes {
    /// Converts big-endian bytes to the byte order of the file.
    fn ordered<const N: usize>(&self, mut bytes: [u8; N]) -> [u8; N] {
        if !self.big_endian {
            bytes.reverse();
        }
        bytes
    }

    fn u16(&mut self, value: u16) {
        self.bytes.extend(self.ordered(value.to_be_bytes()));
    }

    fn u32(&mut self, value: u32) {
        self.bytes.extend(self.ordered(value.to_be_bytes()));
    }

    fn u64(&mut self, value: u64) {
        self.bytes.extend(self.ordered(value.to_be_bytes()));
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.u16(code);
        self.u16(value.len() as u16);
        self.padded(value);
    }

    fn block(&mut self, block_type: u32, body: impl FnOnce(&mut Self)) {
        let mut inner = Self { bytes: Vec::new(), ..*self };
        body(&mut inner);
        let length = inner.bytes.len().next_multiple_of(4) as u32 + 12;
        self.u32(block_type);
        self.u32(length);
        self.padded(&inner.bytes);
        self.u32(length);
    }

    fn extra(&mut self, options: &PcapNgOptions, wanted: impl Fn(&ExtraBlock) -> bool) {
        for extra in options.extra.iter().filter(|extra| wanted(extra)) {
            self.block(extra.block_type, |out| out.padded(&extra.body));
        }
    }

    fn interface(&mut self, interface: &InterfaceOptions) {
        self.u16(interface.link_type);
        self.u16(0);
        self.u32(interface.snaplen);
        let without_options = self.bytes.len();
        if let Some(name) = &interface.name {
            self.option(block::option::IF_NAME, name.as_bytes());
        }
        if let Some(resolution) = interface.resolution {
            self.option(block::option::IF_TSRESOL, &[resolution.to_option()]);
        }
        if interface.offset_seconds != 0 {
            let offset = self.ordered(interface.offset_seconds.to_be_bytes());
            self.option(block::option::IF_TSOFFSET, &offset);
        }
        if self.bytes.len() > without_options {
            self.option(block::option::END, &[]);
        }
    }

    fn packet(&mut self, options: &PcapNgOptions, packet: &CapturePacket) {
        if packet.block == PacketBlock::Simple {
            return self.block(block::SIMPLE_PACKET, |out| {
                out.u32(packet.wire);
                out.padded(&packet.frame);
            });
        }
        let ticks = options
            .interfaces
            .get(packet.interface as usize)
            .map_or(0, |interface| ticks(interface, packet.timestamp));
        let block_type = match packet.block {
            PacketBlock::Obsolete => block::PACKET,
            _ => block::ENHANCED_PACKET,
        };
        self.block(block_type, |out| {
            if packet.block == PacketBlock::Obsolete {
                out.u16(packet.interface as u16);
                // Packets lost before this one: unknown.
                out.u16(u16::MAX);
            } else {
                out.u32(packet.interface);
            }
            out.u32((ticks >> 32) as u32);
            out.u32(ticks as u32);
            out.u32(packet.frame.len() as u32);
            out.u32(packet.wire);
            out.padded(&packet.frame);
            if !options.comment.is_empty() {
                out.option(block::option::COMMENT, options.comment.as_bytes());
                out.option(block::option::END, &[]);
            }
        });
    }
}

/// Returns the timestamp in the unit of the interface, saturating at both ends of the 64-bit range.
fn ticks(interface: &InterfaceOptions, timestamp: u64) -> u64 {
    let nanoseconds = (i128::from(timestamp)
        - i128::from(interface.offset_seconds) * i128::from(SECOND))
    .max(0)
    .cast_unsigned();
    let ticks = match interface.resolution.unwrap_or(Resolution::MICROSECONDS) {
        Resolution::PowerOf10(power @ 0..=9) => nanoseconds / 10_u128.pow(u32::from(9 - power)),
        Resolution::PowerOf10(power) => 10_u128
            .checked_pow(u32::from(power - 9))
            .map_or(u128::MAX, |factor| nanoseconds.saturating_mul(factor)),
        Resolution::PowerOf2(power) => {
            let per_second = 1_u128.checked_shl(u32::from(power)).unwrap_or(u128::MAX);
            nanoseconds.saturating_mul(per_second) / u128::from(SECOND)
        }
    };
    u64::try_from(ticks).unwrap_or(u64::MAX)
}
