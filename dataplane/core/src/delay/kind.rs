//! Kinds of requests and answers.

use crate::segment::flags::{ACK, FIN, RST, SYN};
use crate::segment::{Segment, SegmentProtocol};
use zerocopy::{Immutable, IntoBytes};

/// Number of kinds.
pub const KINDS: usize = 7;

/// Kind of delay: the packets that count as a request and as its answer. Both carry the same token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DelayKind {
    /// SYN to SYN/ACK; the token is the acknowledgement number that the SYN calls for.
    TcpHandshake = 0,
    /// Data to its acknowledgement; the token is the sequence number after the data.
    TcpData = 1,
    /// SYN to the first FIN or RST of either side; there is no token, the ends identify the
    /// connection.
    TcpDuration = 2,
    /// TSval to TSecr (RFC 7323); the token is the timestamp.
    TcpTimestamps = 3,
    /// Query to answer; the token is the id.
    Dns = 4,
    /// Echo request to reply of ICMP and ICMPv6; the token is identifier and sequence number.
    Icmp = 5,
    /// From one edge of QUIC's spin bit to the next of the same sender (RFC 9000 §17.4).
    QuicSpin = 6,
}

impl DelayKind {
    /// All kinds, each at the index of its number.
    pub const ALL: [DelayKind; KINDS] = [
        DelayKind::TcpHandshake,
        DelayKind::TcpData,
        DelayKind::TcpDuration,
        DelayKind::TcpTimestamps,
        DelayKind::Dns,
        DelayKind::Icmp,
        DelayKind::QuicSpin,
    ];

    /// Returns the kind of a number, or `None` for an unknown number.
    #[inline(always)]
    #[must_use]
    pub const fn of(number: usize) -> Option<Self> {
        match number {
            0 => Some(DelayKind::TcpHandshake),
            1 => Some(DelayKind::TcpData),
            2 => Some(DelayKind::TcpDuration),
            3 => Some(DelayKind::TcpTimestamps),
            4 => Some(DelayKind::Dns),
            5 => Some(DelayKind::Icmp),
            6 => Some(DelayKind::QuicSpin),
            _ => None,
        }
    }

    /// Returns the numbers of the kinds that a protocol may take part in: the first, and one past
    /// the last.
    #[inline(always)]
    pub(crate) const fn range(speaks: SegmentProtocol) -> (usize, usize) {
        match speaks {
            SegmentProtocol::Nothing => (0, 0),
            SegmentProtocol::Tcp => (DelayKind::TcpHandshake as usize, DelayKind::Dns as usize),
            SegmentProtocol::Dns => (DelayKind::Dns as usize, DelayKind::Icmp as usize),
            SegmentProtocol::Echo => (DelayKind::Icmp as usize, DelayKind::QuicSpin as usize),
            SegmentProtocol::Quic => (DelayKind::QuicSpin as usize, KINDS),
        }
    }

    /// Returns the number of a kind of TCP in which a segment certainly takes no part: data if it
    /// has the SYN flag, else the handshake.
    #[inline(always)]
    pub(crate) const fn other(segment: &Segment) -> usize {
        // Without a branch, because the kernel's verifier would follow both paths.
        ((segment.flags & SYN) as usize) >> SYN.trailing_zeros()
    }

    /// Returns the name used in options and outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            DelayKind::TcpHandshake => "tcp-handshake",
            DelayKind::TcpData => "tcp-data",
            DelayKind::TcpDuration => "tcp-duration",
            DelayKind::TcpTimestamps => "tcp-timestamps",
            DelayKind::Dns => "dns",
            DelayKind::Icmp => "icmp",
            DelayKind::QuicSpin => "quic-spin",
        }
    }

    /// Returns the nanoseconds per tick of this kind's clock, as a power of two: 64 ns, so that
    /// 2^31 ticks are 137 s; for whole connections 4096 ns, and 2.4 hours.
    #[inline(always)]
    #[must_use]
    pub const fn tick_bits(self) -> u32 {
        match self {
            DelayKind::TcpDuration => 12,
            _ => 6,
        }
    }

    /// Returns whether a request that is repeated while it waits keeps the time of its first
    /// packet: TCP retransmits the same segment. Tokens of other kinds may be reused for a new
    /// request.
    #[inline(always)]
    pub(crate) const fn keeps_first(self) -> bool {
        matches!(self, DelayKind::TcpHandshake | DelayKind::TcpData | DelayKind::TcpTimestamps)
    }

    /// Returns whether packets repeat a token even after its answer, so that only the first packet
    /// with it counts.
    #[inline(always)]
    pub(crate) const fn repeats(self) -> bool {
        matches!(self, DelayKind::TcpTimestamps)
    }

    /// Returns whether a request is known to be one only once it is stored in a table.
    #[inline(always)]
    pub(crate) const fn is_known_if_kept(self) -> bool {
        self.repeats() || matches!(self, DelayKind::QuicSpin)
    }

    /// Returns the roles of a packet. Only for kinds of the packet's [range](Self::range).
    #[inline(always)]
    pub(crate) const fn roles(self, segment: &Segment) -> Roles {
        let (has_data, end, acknowledged) =
            (segment.payload > 0, segment.end(), segment.acknowledgement);
        let (is_syn, is_answer) = (segment.is(SYN, ACK | FIN | RST), segment.flags == 1);
        let (asks, request, answers, answer) = match self {
            DelayKind::TcpHandshake => (
                is_syn,
                segment.sequence.wrapping_add(1),
                segment.is(SYN | ACK, FIN | RST),
                acknowledged,
            ),
            // Resets acknowledge nothing: their number is a guess at that of the other side.
            DelayKind::TcpData => (
                has_data && segment.is(0, SYN | RST),
                end,
                segment.is(ACK, SYN | RST),
                acknowledged,
            ),
            DelayKind::TcpDuration => (is_syn, 0, segment.is(FIN, SYN) || segment.is(RST, SYN), 0),
            DelayKind::TcpTimestamps => {
                // Pure acknowledgements are not answered at once.
                let asks = has_data || segment.is(SYN, RST) || segment.is(FIN, RST);
                (
                    asks && segment.sent != 0,
                    segment.sent,
                    segment.is(ACK, RST) && segment.echoed != 0,
                    segment.echoed,
                )
            }
            DelayKind::Dns | DelayKind::Icmp => {
                (!is_answer, segment.sequence, is_answer, segment.sequence)
            }
            // Both at once: an edge ends one round and begins the next.
            DelayKind::QuicSpin => (true, 0, false, 0),
        };
        Roles { asks, request, answers, answer }
    }
}

/// Roles of a packet for a kind. Not `Option`s: the compiler leaves the contents of `None`
/// undefined, and the kernel's verifier refuses to read that.
#[derive(Clone, Copy)]
pub(crate) struct Roles {
    /// Whether the packet is a request.
    pub(crate) asks: bool,
    /// Token of the request.
    pub(crate) request: u32,
    /// Whether the packet is an answer.
    pub(crate) answers: bool,
    /// Token of the request that it answers.
    pub(crate) answer: u32,
}

/// [`Kinds::padded`] of each set. Looked up, because counting bits takes a dozen instructions in a
/// kernel program.
static PADDED: [u8; 1 << KINDS] = {
    let mut padded = [0; 1 << KINDS];
    let mut set = 0_usize;
    while set < padded.len() {
        #[allow(clippy::indexing_slicing, reason = "within the array, at compile time")]
        let entry = &mut padded[set];
        *entry = set.count_ones().next_power_of_two() as u8;
        set += 1;
    }
    padded
};

/// Set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Immutable, IntoBytes)]
#[repr(transparent)]
pub struct Kinds(u8);

impl Kinds {
    /// Empty set.
    pub const NONE: Kinds = Kinds(0);
    /// Handshakes, data and DNS.
    pub const USUAL: Kinds =
        Kinds::NONE.with(DelayKind::TcpHandshake).with(DelayKind::TcpData).with(DelayKind::Dns);

    /// Returns the set with `kind` added.
    #[must_use]
    pub const fn with(self, kind: DelayKind) -> Self {
        Kinds(self.0 | (1_u8 << (kind as u32)))
    }

    /// Returns whether the set contains a kind.
    #[inline(always)]
    #[must_use]
    pub const fn has(self, kind: DelayKind) -> bool {
        self.0 & (1_u8 << (kind as u32)) != 0
    }

    /// Returns whether the set contains any kind.
    #[inline(always)]
    #[must_use]
    pub const fn any(self) -> bool {
        self.0 != 0
    }

    /// Returns the number of kinds in the set.
    #[inline(always)]
    #[must_use]
    pub const fn number(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns the number of kinds that memory has room for: a power of two.
    #[inline(always)]
    #[must_use]
    pub const fn padded(self) -> usize {
        #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
        let padded = PADDED[self.0 as usize & (PADDED.len() - 1)];
        padded as usize
    }

    /// Returns the number of kinds in the set that precede a kind.
    #[inline(always)]
    #[must_use]
    pub const fn rank(self, kind: DelayKind) -> usize {
        self.before(kind as usize)
    }

    /// Returns the number of kinds in the set that precede the one of this number.
    #[inline(always)]
    pub(super) const fn before(self, number: usize) -> usize {
        Kinds(self.0 & ((1_u8 << (number as u32)) - 1)).number()
    }

    /// Returns the kinds in the set that a packet may take part in.
    #[inline(always)]
    pub(super) const fn of_segment(self, segment: &Segment) -> Self {
        let (first, end) = DelayKind::range(segment.speaks);
        let of_protocol = (1_u8 << (end as u32)) - (1_u8 << (first as u32));
        Kinds(self.0 & of_protocol & !(1_u8 << (DelayKind::other(segment) as u32)))
    }

    /// Removes the first kind of the set and returns it.
    #[inline(always)]
    pub(super) const fn take_first(&mut self) -> Option<DelayKind> {
        let first = DelayKind::of(self.0.trailing_zeros() as usize);
        self.0 &= self.0.wrapping_sub(1);
        first
    }

    /// Returns the kinds in the set, in order.
    pub fn each(self) -> impl Iterator<Item = DelayKind> {
        DelayKind::ALL.into_iter().filter(move |kind| self.has(*kind))
    }
}
