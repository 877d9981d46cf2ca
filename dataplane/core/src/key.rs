//! Flow keys: which packets belong to one flow.

use crate::frame::Frame;
use crate::hash::Crc32;
use crate::parse::{Packet, Transport, transport};

/// Which fields make a flow. Bytes are in network order, fields in the order named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum KeyKind {
    /// Source address (W-HLL thesis): 4 or 16 bytes.
    #[default]
    Src = 0,
    /// Destination address: 4 or 16 bytes.
    Dst = 1,
    /// Source and destination address (P4Entropy): 8 or 32 bytes.
    SrcDst = 2,
    /// Source and destination address, source and destination port, protocol: 13 or 37 bytes.
    FiveTuple = 3,
}

impl KeyKind {
    /// All kinds.
    pub const ALL: [KeyKind; 4] = [KeyKind::Src, KeyKind::Dst, KeyKind::SrcDst, KeyKind::FiveTuple];

    /// The name used in options and outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            KeyKind::Src => "src",
            KeyKind::Dst => "dst",
            KeyKind::SrcDst => "src-dst",
            KeyKind::FiveTuple => "five-tuple",
        }
    }

    /// The CRC of a packet's key.
    #[inline(always)]
    pub fn crc32<F: Frame + ?Sized>(self, frame: &F, packet: &Packet<'_>) -> u32 {
        let crc = Crc32::new();
        let crc = match (self, packet) {
            (KeyKind::Src, Packet::V4(ip)) => crc.words([ip.src()]),
            (KeyKind::Dst, Packet::V4(ip)) => crc.words([ip.dst()]),
            (KeyKind::SrcDst, Packet::V4(ip)) => crc.words([ip.src(), ip.dst()]),
            (KeyKind::FiveTuple, Packet::V4(ip)) => {
                let Transport { protocol, ports } = transport(frame, packet);
                crc.words([ip.src(), ip.dst(), ports]).byte(protocol)
            }
            (KeyKind::Src, Packet::V6(ip)) => crc.words(ip.src()),
            (KeyKind::Dst, Packet::V6(ip)) => crc.words(ip.dst()),
            (KeyKind::SrcDst, Packet::V6(ip)) => crc.words(ip.src()).words(ip.dst()),
            (KeyKind::FiveTuple, Packet::V6(ip)) => {
                let Transport { protocol, ports } = transport(frame, packet);
                crc.words(ip.src()).words(ip.dst()).words([ports]).byte(protocol)
            }
        };
        crc.finish()
    }

    /// The key itself, for exact counting.
    pub fn extract<F: Frame + ?Sized>(self, frame: &F, packet: &Packet<'_>) -> FlowKey {
        let mut key = FlowKey::default();
        match (self, packet) {
            (KeyKind::Src, Packet::V4(ip)) => key.push(&ip.src()),
            (KeyKind::Dst, Packet::V4(ip)) => key.push(&ip.dst()),
            (_, Packet::V4(ip)) => {
                key.push(&ip.src());
                key.push(&ip.dst());
            }
            (KeyKind::Src, Packet::V6(ip)) => key.push(ip.src().as_flattened()),
            (KeyKind::Dst, Packet::V6(ip)) => key.push(ip.dst().as_flattened()),
            (_, Packet::V6(ip)) => {
                key.push(ip.src().as_flattened());
                key.push(ip.dst().as_flattened());
            }
        }
        if self == KeyKind::FiveTuple {
            let Transport { protocol, ports } = transport(frame, packet);
            key.push(&ports);
            key.push(&[protocol]);
        }
        key
    }
}

/// Length of the longest key: an IPv6 five-tuple.
pub const MAX_KEY_BYTES: usize = 37;

/// The bytes of one flow key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    length: u8,
    bytes: [u8; MAX_KEY_BYTES],
}

impl Default for FlowKey {
    fn default() -> Self {
        FlowKey { length: 0, bytes: [0; MAX_KEY_BYTES] }
    }
}

impl FlowKey {
    fn push(&mut self, field: &[u8]) {
        for (slot, byte) in self.bytes.iter_mut().skip(usize::from(self.length)).zip(field) {
            *slot = *byte;
            self.length = self.length.wrapping_add(1);
        }
    }

    /// The key's bytes in network order.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or(&self.bytes)
    }
}
