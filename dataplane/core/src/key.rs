//! Flow keys: which packets belong to one flow.

use crate::frame::Frame;
use crate::hash::{Crc32, HashMode, Multilinear, Tabulation};
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

    /// Bytes of a key over IPv4 and over IPv6.
    #[must_use]
    pub const fn lengths(self) -> [usize; 2] {
        match self {
            KeyKind::Src | KeyKind::Dst => [4, 16],
            KeyKind::SrcDst => [8, 32],
            KeyKind::FiveTuple => [13, 37],
        }
    }

    /// What a packet's key has to know of its transport header.
    #[inline(always)]
    #[must_use]
    pub fn transport<F: Frame + ?Sized>(self, frame: &F, packet: &Packet<'_>) -> Transport {
        if self == KeyKind::FiveTuple { transport(frame, packet) } else { Transport::NONE }
    }

    /// The signature of a packet's key: 32 bits that all measurements are made with.
    #[inline(always)]
    #[must_use]
    pub fn signature(self, hash: HashMode, tabulation: &Tabulation, packet: &Packet<'_>, transport: Transport) -> u32 {
        match hash {
            HashMode::Crc32 | HashMode::Tabulated => self.crc32(packet, transport),
            HashMode::Keyed => self.multilinear(tabulation.multilinear(), packet, transport),
        }
    }

    /// The same, with a kind of signature that the compiler knows.
    #[inline(always)]
    pub(crate) fn signature_of<const KEYED: bool>(self, tabulation: &Tabulation, packet: &Packet<'_>, transport: Transport) -> u32 {
        if KEYED { self.multilinear(tabulation.multilinear(), packet, transport) } else { self.crc32(packet, transport) }
    }

    #[inline(always)]
    fn multilinear(self, words: &Multilinear, packet: &Packet<'_>, Transport { protocol, ports }: Transport) -> u32 {
        match (self, packet) {
            (KeyKind::Src, Packet::V4(ip)) => words.ipv4([ip.src()]),
            (KeyKind::Dst, Packet::V4(ip)) => words.ipv4([ip.dst()]),
            (KeyKind::SrcDst, Packet::V4(ip)) => words.ipv4([ip.src(), ip.dst()]),
            (KeyKind::FiveTuple, Packet::V4(ip)) => words.ipv4([ip.src(), ip.dst(), ports, [protocol, 0, 0, 0]]),
            (KeyKind::Src, Packet::V6(ip)) => words.ipv6(ip.src()),
            (KeyKind::Dst, Packet::V6(ip)) => words.ipv6(ip.dst()),
            (KeyKind::SrcDst, Packet::V6(ip)) => {
                let ([s0, s1, s2, s3], [d0, d1, d2, d3]) = (ip.src(), ip.dst());
                words.ipv6([s0, s1, s2, s3, d0, d1, d2, d3])
            }
            (KeyKind::FiveTuple, Packet::V6(ip)) => {
                let ([s0, s1, s2, s3], [d0, d1, d2, d3]) = (ip.src(), ip.dst());
                words.ipv6([s0, s1, s2, s3, d0, d1, d2, d3, ports, [protocol, 0, 0, 0]])
            }
        }
    }

    /// The CRC of a packet's key.
    #[inline(always)]
    #[must_use]
    pub fn crc32(self, packet: &Packet<'_>, Transport { protocol, ports }: Transport) -> u32 {
        let crc = Crc32::new();
        let crc = match (self, packet) {
            (KeyKind::Src, Packet::V4(ip)) => crc.words([ip.src()]),
            (KeyKind::Dst, Packet::V4(ip)) => crc.words([ip.dst()]),
            (KeyKind::SrcDst, Packet::V4(ip)) => crc.words([ip.src(), ip.dst()]),
            (KeyKind::FiveTuple, Packet::V4(ip)) => crc.words([ip.src(), ip.dst(), ports]).byte(protocol),
            (KeyKind::Src, Packet::V6(ip)) => crc.words(ip.src()),
            (KeyKind::Dst, Packet::V6(ip)) => crc.words(ip.dst()),
            (KeyKind::SrcDst, Packet::V6(ip)) => crc.words(ip.src()).words(ip.dst()),
            (KeyKind::FiveTuple, Packet::V6(ip)) => crc.words(ip.src()).words(ip.dst()).words([ports]).byte(protocol),
        };
        crc.finish()
    }

    /// The key itself. Every byte has a place that the compiler knows, as the kernel's verifier wants it on a program's stack.
    #[inline(always)]
    #[must_use]
    pub fn extract(self, packet: &Packet<'_>, Transport { protocol, ports }: Transport) -> FlowKey {
        match (self, packet) {
            (KeyKind::Src, Packet::V4(ip)) => FlowKey::words([ip.src()]),
            (KeyKind::Dst, Packet::V4(ip)) => FlowKey::words([ip.dst()]),
            (KeyKind::SrcDst, Packet::V4(ip)) => FlowKey::words([ip.src(), ip.dst()]),
            (KeyKind::FiveTuple, Packet::V4(ip)) => FlowKey::words([ip.src(), ip.dst(), ports]).byte(protocol),
            (KeyKind::Src, Packet::V6(ip)) => FlowKey::words(ip.src()),
            (KeyKind::Dst, Packet::V6(ip)) => FlowKey::words(ip.dst()),
            (KeyKind::SrcDst, Packet::V6(ip)) => {
                let ([s0, s1, s2, s3], [d0, d1, d2, d3]) = (ip.src(), ip.dst());
                FlowKey::words([s0, s1, s2, s3, d0, d1, d2, d3])
            }
            (KeyKind::FiveTuple, Packet::V6(ip)) => {
                let ([s0, s1, s2, s3], [d0, d1, d2, d3]) = (ip.src(), ip.dst());
                FlowKey::words([s0, s1, s2, s3, d0, d1, d2, d3, ports]).byte(protocol)
            }
        }
    }
}

/// Length of the longest key: an IPv6 five-tuple.
pub const MAX_KEY_BYTES: usize = 37;

/// What makes a key with its length a multiple of eight bytes.
const ROOM: usize = 39;

/// The bytes of one flow key. Aligned, and without padding, because the kernel's verifier takes neither misaligned writes to a
/// program's stack nor reads of what was not written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C, align(8))]
pub struct FlowKey {
    bytes: [u8; ROOM],
    length: u8,
}

impl Default for FlowKey {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl FlowKey {
    /// The key of no bytes.
    pub(crate) const EMPTY: FlowKey = FlowKey { bytes: [0; ROOM], length: 0 };

    /// A key with these bytes, fields in the order of [`KeyKind`]; what is beyond [`MAX_KEY_BYTES`] is left out.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let mut key = Self::EMPTY;
        for (slot, byte) in key.bytes.iter_mut().zip(bytes).take(MAX_KEY_BYTES) {
            *slot = *byte;
            key.length = key.length.wrapping_add(1);
        }
        key
    }

    #[inline(always)]
    fn words<const N: usize>(words: [[u8; 4]; N]) -> Self {
        const { assert!(4 * N < MAX_KEY_BYTES) };
        let mut key = Self::EMPTY;
        for (slot, word) in key.bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *slot = word;
        }
        key.length = const { (4 * N) as u8 };
        key
    }

    #[inline(always)]
    fn byte(mut self, byte: u8) -> Self {
        if let Some(slot) = self.bytes.get_mut(usize::from(self.length)) {
            *slot = byte;
        }
        self.length = self.length.wrapping_add(1);
        self
    }

    /// The key's bytes in network order.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or(&self.bytes)
    }
}
