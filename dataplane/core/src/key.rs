//! Flow keys: which packets belong to one flow.

use crate::frame::Frame;
use crate::hash::{Crc32, HashMode, Tabulation};
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
    pub fn signature(
        self,
        hash: HashMode,
        tabulation: &Tabulation,
        packet: &Packet<'_>,
        transport: Transport,
    ) -> u32 {
        match hash {
            HashMode::Crc32 | HashMode::Tabulated => self.lay_out(packet, transport, Crc32::new()),
            HashMode::Keyed => self.lay_out(packet, transport, tabulation.multilinear()),
        }
    }

    /// The same, with a kind of signature that the compiler knows.
    #[inline(always)]
    pub(crate) fn signature_of<const KEYED: bool>(
        self,
        tabulation: &Tabulation,
        packet: &Packet<'_>,
        transport: Transport,
    ) -> u32 {
        let hash = if KEYED { HashMode::Keyed } else { HashMode::Crc32 };
        self.signature(hash, tabulation, packet, transport)
    }

    /// The key itself.
    #[inline(always)]
    #[must_use]
    pub fn extract(self, packet: &Packet<'_>, transport: Transport) -> FlowKey {
        self.lay_out(packet, transport, FlowKey::EMPTY)
    }

    /// Puts a packet's key together, and makes something of it: the one place that says which field
    /// is where. Every byte has a place that the compiler knows, as the kernel's verifier wants it
    /// on a program's stack.
    #[inline(always)]
    pub fn lay_out<M: Maker>(
        self,
        packet: &Packet<'_>,
        Transport { protocol, ports }: Transport,
        maker: M,
    ) -> M::Made {
        let [bytes, bytes_over_ipv6] = self.lengths();
        match packet {
            Packet::V4(ip) => match self {
                KeyKind::Src => maker.make(LaidOut { words: [ip.src()], bytes, over_ipv6: false }),
                KeyKind::Dst => maker.make(LaidOut { words: [ip.dst()], bytes, over_ipv6: false }),
                KeyKind::SrcDst => {
                    maker.make(LaidOut { words: [ip.src(), ip.dst()], bytes, over_ipv6: false })
                }
                KeyKind::FiveTuple => {
                    let words = [ip.src(), ip.dst(), ports, [protocol, 0, 0, 0]];
                    maker.make(LaidOut { words, bytes, over_ipv6: false })
                }
            },
            Packet::V6(ip) => {
                let (bytes, over_ipv6) = (bytes_over_ipv6, true);
                match self {
                    KeyKind::Src => maker.make(LaidOut { words: ip.src(), bytes, over_ipv6 }),
                    KeyKind::Dst => maker.make(LaidOut { words: ip.dst(), bytes, over_ipv6 }),
                    KeyKind::SrcDst => {
                        let ([s0, s1, s2, s3], [d0, d1, d2, d3]) = (ip.src(), ip.dst());
                        maker.make(LaidOut {
                            words: [s0, s1, s2, s3, d0, d1, d2, d3],
                            bytes,
                            over_ipv6,
                        })
                    }
                    KeyKind::FiveTuple => {
                        let ([s0, s1, s2, s3], [d0, d1, d2, d3]) = (ip.src(), ip.dst());
                        let words = [s0, s1, s2, s3, d0, d1, d2, d3, ports, [protocol, 0, 0, 0]];
                        maker.make(LaidOut { words, bytes, over_ipv6 })
                    }
                }
            }
        }
    }
}

/// Lays out both ends of a conversation, source and destination: an address, then a port in network
/// order.
#[inline(always)]
pub(crate) fn ends<M: Maker + Copy>(
    packet: &Packet<'_>,
    [s_high, s_low, d_high, d_low]: [u8; 4],
    maker: M,
) -> (M::Made, M::Made) {
    let (source_port, destination_port) = ([s_high, s_low, 0, 0], [d_high, d_low, 0, 0]);
    match packet {
        Packet::V4(ip) => (
            end_over_ipv4(ip.src(), source_port, maker),
            end_over_ipv4(ip.dst(), destination_port, maker),
        ),
        Packet::V6(ip) => (
            end_over_ipv6(ip.src(), source_port, maker),
            end_over_ipv6(ip.dst(), destination_port, maker),
        ),
    }
}

#[inline(always)]
fn end_over_ipv4<M: Maker>(address: [u8; 4], port: [u8; 4], maker: M) -> M::Made {
    maker.make(LaidOut { words: [address, port], bytes: 6, over_ipv6: false })
}

#[inline(always)]
fn end_over_ipv6<M: Maker>([a0, a1, a2, a3]: [[u8; 4]; 4], port: [u8; 4], maker: M) -> M::Made {
    maker.make(LaidOut { words: [a0, a1, a2, a3, port], bytes: 18, over_ipv6: true })
}

/// A key in words of four bytes.
#[derive(Clone, Copy, Debug)]
pub struct LaidOut<const WORDS: usize> {
    /// Fields in network order. The last word ends with zeros if the key is no whole number of
    /// words.
    pub words: [[u8; 4]; WORDS],
    /// How many bytes the key has.
    pub bytes: usize,
    /// Over IPv6 and not over IPv4.
    pub over_ipv6: bool,
}

/// What makes something of a key: a signature, a [`FlowKey`], an entry of a batch.
pub trait Maker {
    /// What it makes.
    type Made;

    /// Makes it.
    fn make<const WORDS: usize>(self, key: LaidOut<WORDS>) -> Self::Made;
}

/// Length of the longest key: an IPv6 five-tuple.
pub const MAX_KEY_BYTES: usize = 37;

/// What makes a key with its length a multiple of eight bytes.
const ROOM: usize = 39;

/// The bytes of one flow key. Aligned, and without padding, because the kernel's verifier takes
/// neither misaligned writes to a program's stack nor reads of what was not written there.
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

    /// A key with these bytes, fields in the order of [`KeyKind`]; what is beyond [`MAX_KEY_BYTES`]
    /// is left out.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let mut key = Self::EMPTY;
        for (slot, byte) in key.bytes.iter_mut().zip(bytes).take(MAX_KEY_BYTES) {
            *slot = *byte;
            key.length += 1;
        }
        key
    }

    /// The key's bytes in network order.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or(&self.bytes)
    }
}

impl Maker for FlowKey {
    type Made = Self;

    #[inline(always)]
    fn make<const WORDS: usize>(mut self, key: LaidOut<WORDS>) -> Self {
        const { assert!(4 * WORDS <= ROOM.next_multiple_of(4)) };
        for (slot, word) in self.bytes.as_chunks_mut().0.iter_mut().zip(key.words) {
            *slot = word;
        }
        // There is no room for all of the longest key's last word.
        if let (Some(slot), Some([last, ..])) =
            (self.bytes.get_mut(key.bytes - 1), key.words.last())
            && key.bytes % 4 == 1
        {
            *slot = *last;
        }
        self.length = key.bytes as u8;
        self
    }
}
