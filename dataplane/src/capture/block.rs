//! Writer of pcapng blocks for use within this program: little-endian, nanoseconds, no other
//! options.

use super::pcapng::{
    self, BYTE_ORDER_MAGIC, ENHANCED_PACKET, INTERFACE_DESCRIPTION, MAJOR_VERSION, SECTION_HEADER,
    option,
};

/// Maximum size of a packet besides its frame, including a new interface's description, in bytes.
pub(crate) const MOST_BESIDE_FRAME: usize = 32 + 3 + 32;

fn words(out: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}

/// Writes a section header.
pub(crate) fn section(out: &mut Vec<u8>) {
    const LENGTH: u32 = 28;
    // Unspecified section length.
    words(
        out,
        &[
            SECTION_HEADER,
            LENGTH,
            BYTE_ORDER_MAGIC,
            u32::from(MAJOR_VERSION),
            u32::MAX,
            u32::MAX,
            LENGTH,
        ],
    );
}

/// Writes the description of the next interface.
pub(crate) fn interface(out: &mut Vec<u8>, link_type: u16) {
    const LENGTH: u32 = 32;
    const NANOSECONDS: u32 = 9;
    let resolution = u32::from(option::IF_TSRESOL) | 1 << 16;
    let (link_type, end) = (u32::from(link_type), u32::from(option::END));
    words(
        out,
        &[INTERFACE_DESCRIPTION, LENGTH, link_type, 0, resolution, NANOSECONDS, end, LENGTH],
    );
}

/// Writes a packet.
pub(crate) fn packet(out: &mut Vec<u8>, interface: u32, timestamp: u64, wire: u32, frame: &[u8]) {
    let captured = frame.len() as u32;
    let length = captured.next_multiple_of(4) + pcapng::LEAST_PACKET_BLOCK;
    words(
        out,
        &[
            ENHANCED_PACKET,
            length,
            interface,
            (timestamp >> 32) as u32,
            timestamp as u32,
            captured,
            wire,
        ],
    );
    out.extend_from_slice(frame);
    out.resize(out.len().next_multiple_of(4), 0);
    words(out, &[length]);
}
