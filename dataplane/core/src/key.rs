//! Flow keys: the fields that define a flow.

use crate::flow_key::{FlowKey, KeyConsumer, KeyWordList};
use crate::frame::Frame;
use crate::hash::{Crc32, HashMode, Tabulation};
use crate::packet::{Packet, Transport, transport};
use zerocopy::{Immutable, IntoBytes};

/// Fields that define a flow. Bytes are in network order, fields in the order named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Immutable, IntoBytes)]
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

    /// Returns the name used in options and outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            KeyKind::Src => "src",
            KeyKind::Dst => "dst",
            KeyKind::SrcDst => "src-dst",
            KeyKind::FiveTuple => "five-tuple",
        }
    }

    /// Returns the bytes of a key over IPv4 and over IPv6.
    #[inline(always)]
    #[must_use]
    pub const fn lengths(self) -> [usize; 2] {
        match self {
            KeyKind::Src | KeyKind::Dst => [4, 16],
            KeyKind::SrcDst => [8, 32],
            KeyKind::FiveTuple => [13, 37],
        }
    }

    /// Reads the fields of the transport header that the key needs.
    #[inline(always)]
    #[must_use]
    pub fn transport<F: Frame + ?Sized>(self, frame: &F, packet: &Packet<'_>) -> Transport {
        if self == KeyKind::FiveTuple { transport(frame, packet) } else { Transport::NONE }
    }

    /// Returns the signature of a packet's key: 32 bits that all measurements use.
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

    /// As [`signature`](Self::signature), with a kind of signature that the compiler knows.
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

    /// Returns the bytes of a packet's key.
    #[inline(always)]
    #[must_use]
    pub fn extract(self, packet: &Packet<'_>, transport: Transport) -> FlowKey {
        self.lay_out(packet, transport, FlowKey::EMPTY)
    }

    /// Returns the part of a five-tuple that is a key of this kind.
    #[inline(always)]
    #[must_use]
    pub fn within(self, five_tuple: &FlowKey) -> FlowKey {
        // A copy, so that an eBPF program reads words and not bytes.
        let (five_tuple, key) = (*five_tuple, FlowKey::EMPTY);
        let [w0, w1, w2, w3, w4, w5, w6, w7] = five_tuple.words();
        let over_ipv6 = five_tuple.is_over_ipv6();
        match (self, over_ipv6) {
            (KeyKind::Src, false) => key.make(KeyWordList { words: [w0], bytes: 4, over_ipv6 }),
            (KeyKind::Dst, false) => key.make(KeyWordList { words: [w1], bytes: 4, over_ipv6 }),
            (KeyKind::SrcDst, false) => {
                key.make(KeyWordList { words: [w0, w1], bytes: 8, over_ipv6 })
            }
            (KeyKind::Src, true) => {
                key.make(KeyWordList { words: [w0, w1, w2, w3], bytes: 16, over_ipv6 })
            }
            (KeyKind::Dst, true) => {
                key.make(KeyWordList { words: [w4, w5, w6, w7], bytes: 16, over_ipv6 })
            }
            (KeyKind::SrcDst, true) => key.make(KeyWordList {
                words: [w0, w1, w2, w3, w4, w5, w6, w7],
                bytes: 32,
                over_ipv6,
            }),
            (KeyKind::FiveTuple, _) => five_tuple,
        }
    }

    /// Lays out the addresses of a packet's key, then its destination port and its protocol.
    #[inline(always)]
    pub(crate) fn lay_out_with_port<M: KeyConsumer>(
        self,
        packet: &Packet<'_>,
        Transport { protocol, ports: [_, _, high, low] }: Transport,
        maker: M,
    ) -> M::Output {
        let port = [high, low, protocol, 0];
        match packet {
            Packet::V4(ip) => {
                let over_ipv6 = false;
                let (source, destination) = (ip.src(), ip.dst());
                match self {
                    KeyKind::Src => {
                        maker.make(KeyWordList { words: [source, port], bytes: 7, over_ipv6 })
                    }
                    KeyKind::Dst => {
                        maker.make(KeyWordList { words: [destination, port], bytes: 7, over_ipv6 })
                    }
                    KeyKind::SrcDst | KeyKind::FiveTuple => maker.make(KeyWordList {
                        words: [source, destination, port],
                        bytes: 11,
                        over_ipv6,
                    }),
                }
            }
            Packet::V6(ip) => {
                let over_ipv6 = true;
                let ([s0, s1, s2, s3], [d0, d1, d2, d3]) = (ip.src(), ip.dst());
                match self {
                    KeyKind::Src => maker.make(KeyWordList {
                        words: [s0, s1, s2, s3, port],
                        bytes: 19,
                        over_ipv6,
                    }),
                    KeyKind::Dst => maker.make(KeyWordList {
                        words: [d0, d1, d2, d3, port],
                        bytes: 19,
                        over_ipv6,
                    }),
                    KeyKind::SrcDst | KeyKind::FiveTuple => maker.make(KeyWordList {
                        words: [s0, s1, s2, s3, d0, d1, d2, d3, port],
                        bytes: 35,
                        over_ipv6,
                    }),
                }
            }
        }
    }

    /// Lays out a packet's key and passes it to `maker`. Only this function defines the order of
    /// fields, which [`within`](Self::within) relies on. All offsets are compile-time constants, as
    /// the verifier requires on a program's stack.
    #[inline(always)]
    pub fn lay_out<M: KeyConsumer>(
        self,
        packet: &Packet<'_>,
        Transport { protocol, ports }: Transport,
        maker: M,
    ) -> M::Output {
        let [bytes, bytes_over_ipv6] = self.lengths();
        match packet {
            Packet::V4(ip) => match self {
                KeyKind::Src => {
                    maker.make(KeyWordList { words: [ip.src()], bytes, over_ipv6: false })
                }
                KeyKind::Dst => {
                    maker.make(KeyWordList { words: [ip.dst()], bytes, over_ipv6: false })
                }
                KeyKind::SrcDst => {
                    maker.make(KeyWordList { words: [ip.src(), ip.dst()], bytes, over_ipv6: false })
                }
                KeyKind::FiveTuple => {
                    let words = [ip.src(), ip.dst(), ports, [protocol, 0, 0, 0]];
                    maker.make(KeyWordList { words, bytes, over_ipv6: false })
                }
            },
            Packet::V6(ip) => {
                let (bytes, over_ipv6) = (bytes_over_ipv6, true);
                match self {
                    KeyKind::Src => maker.make(KeyWordList { words: ip.src(), bytes, over_ipv6 }),
                    KeyKind::Dst => maker.make(KeyWordList { words: ip.dst(), bytes, over_ipv6 }),
                    KeyKind::SrcDst => {
                        let ([s0, s1, s2, s3], [d0, d1, d2, d3]) = (ip.src(), ip.dst());
                        maker.make(KeyWordList {
                            words: [s0, s1, s2, s3, d0, d1, d2, d3],
                            bytes,
                            over_ipv6,
                        })
                    }
                    KeyKind::FiveTuple => {
                        let ([s0, s1, s2, s3], [d0, d1, d2, d3]) = (ip.src(), ip.dst());
                        let words = [s0, s1, s2, s3, d0, d1, d2, d3, ports, [protocol, 0, 0, 0]];
                        maker.make(KeyWordList { words, bytes, over_ipv6 })
                    }
                }
            }
        }
    }
}

/// Lays out both endpoints of a conversation, source and destination: an address, then a port in
/// network order.
#[inline(always)]
pub(crate) fn ends<M: KeyConsumer + Copy>(
    packet: &Packet<'_>,
    [s_high, s_low, d_high, d_low]: [u8; 4],
    maker: M,
) -> (M::Output, M::Output) {
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
fn end_over_ipv4<M: KeyConsumer>(address: [u8; 4], port: [u8; 4], maker: M) -> M::Output {
    maker.make(KeyWordList { words: [address, port], bytes: 6, over_ipv6: false })
}

#[inline(always)]
fn end_over_ipv6<M: KeyConsumer>(
    [a0, a1, a2, a3]: [[u8; 4]; 4],
    port: [u8; 4],
    maker: M,
) -> M::Output {
    maker.make(KeyWordList { words: [a0, a1, a2, a3, port], bytes: 18, over_ipv6: true })
}
