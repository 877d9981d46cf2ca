//! Conversation fields of a packet: requests, answers and the order of data, from its transport
//! header.

use crate::frame::Frame;
use crate::packet::{ICMP, ICMPV6, Packet, TCP, Transport, UDP};

const DNS_PORT: u16 = 53;
const QUIC_PORT: u16 = 443;
/// Bytes of a UDP header.
const UDP_LENGTH: usize = 8;
/// Bytes of a TCP header without options.
const TCP_LENGTH: usize = 20;

/// Protocol of a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum SegmentProtocol {
    /// Not a protocol that we follow; the other fields are then unset.
    #[default]
    Nothing = 0,
    /// TCP.
    Tcp = 1,
    /// DNS over UDP: port 53 on either side.
    Dns = 2,
    /// An ICMP or ICMPv6 echo.
    Echo = 3,
    /// QUIC with a short header: UDP, port 443 on either side.
    Quic = 4,
}

/// Flags of a TCP segment (RFC 9293 §3.1).
pub mod flags {
    /// The sender has no more data.
    pub const FIN: u8 = 1;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 2;
    /// Reset the connection.
    pub const RST: u8 = 4;
    /// The acknowledgement number is valid.
    pub const ACK: u8 = 16;
}

/// Conversation fields of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Segment {
    /// Protocol.
    pub speaks: SegmentProtocol,
    /// TCP: its [`flags`]. DNS and echo: 1 for answers. QUIC: the spin bit.
    pub flags: u8,
    /// Explicit, so that there is no padding.
    reserved: u16,
    /// Payload bytes of a TCP segment; zero if its network header does not give its length.
    pub payload: u32,
    /// TCP: sequence number. DNS: id. Echo: identifier and sequence number, 16 bits each.
    pub sequence: u32,
    /// TCP: acknowledgement number.
    pub acknowledgement: u32,
    /// TCP: timestamp of the sender (TSval, RFC 7323 §3), if required and at a usual offset.
    pub sent: u32,
    /// TCP: echoed timestamp of the peer (TSecr), under the same conditions as `sent`.
    pub echoed: u32,
}

impl Segment {
    /// A packet of no protocol that we follow.
    pub const NONE: Segment = Segment {
        speaks: SegmentProtocol::Nothing,
        flags: 0,
        reserved: 0,
        payload: 0,
        sequence: 0,
        acknowledgement: 0,
        sent: 0,
        echoed: 0,
    };

    /// Returns whether all flags in `set` are set, and none in `unset`.
    #[inline(always)]
    #[must_use]
    pub const fn is(&self, set: u8, unset: u8) -> bool {
        self.flags & (set | unset) == set
    }

    /// Returns the sequence number after the segment: the number that acknowledges all of it.
    #[inline(always)]
    #[must_use]
    pub const fn end(&self) -> u32 {
        let flags = self.flags as u32;
        let (syn, fin) = (flags >> 1 & 1, flags & 1);
        self.sequence.wrapping_add(self.payload).wrapping_add(syn).wrapping_add(fin)
    }

    /// Reads the transport header at `offset`. `timestamps`: whether those of TCP are required.
    /// Works in place: a segment returned by value would have all of its fields in registers at
    /// every return.
    #[inline(always)]
    pub(crate) fn read<F: Frame + ?Sized>(
        &mut self,
        frame: &F,
        packet: &Packet<'_>,
        transport: Transport,
        offset: Option<usize>,
        timestamps: bool,
    ) {
        self.speaks = SegmentProtocol::Nothing;
        let Some(offset) = offset else { return };
        let [source_high, source_low, destination_high, destination_low] = transport.ports;
        let (source, destination) = (
            u16::from_be_bytes([source_high, source_low]),
            u16::from_be_bytes([destination_high, destination_low]),
        );
        match transport.protocol {
            TCP => self.tcp(frame, packet, offset, timestamps),
            UDP if source == DNS_PORT || destination == DNS_PORT => {
                self.dns(frame, offset, source == DNS_PORT)
            }
            UDP if source == QUIC_PORT || destination == QUIC_PORT => self.quic(frame, offset),
            ICMP => self.echo(frame, offset, 8, 0),
            ICMPV6 => self.echo(frame, offset, 128, 129),
            _ => {}
        }
    }

    #[inline(always)]
    fn tcp<F: Frame + ?Sized>(
        &mut self,
        frame: &F,
        packet: &Packet<'_>,
        offset: usize,
        timestamps: bool,
    ) {
        let header: Option<&[u8; TCP_LENGTH]> = frame.bytes(offset);
        let Some(&[_, _, _, _, s0, s1, s2, s3, a0, a1, a2, a3, data_offset, flags, ..]) = header
        else {
            return;
        };
        // No host accepts a segment with a shorter header (RFC 9293 §3.1).
        if data_offset < (TCP_LENGTH as u8 / 4) << 4 {
            return;
        }
        let header_length = usize::from(data_offset >> 4) * 4;
        let before = (offset - packet.offset() + header_length) as u32;
        self.speaks = SegmentProtocol::Tcp;
        self.flags = flags & 0x3f;
        self.payload = packet.total_length().saturating_sub(before);
        self.sequence = u32::from_be_bytes([s0, s1, s2, s3]);
        self.acknowledgement = u32::from_be_bytes([a0, a1, a2, a3]);
        if timestamps {
            (self.sent, self.echoed) = timestamps_of(frame, offset, header_length);
        }
    }

    #[inline(always)]
    fn dns<F: Frame + ?Sized>(&mut self, frame: &F, offset: usize, from_server: bool) {
        let Some(&[high, low, flags, _]) = frame.bytes(offset + UDP_LENGTH) else {
            return;
        };
        let is_answer = flags >> 7;
        // Both sides may use the port (a server that queries another one); otherwise the bit must
        // match.
        if is_answer == 1 && !from_server {
            return;
        }
        (self.speaks, self.flags) = (SegmentProtocol::Dns, is_answer);
        self.sequence = u32::from(u16::from_be_bytes([high, low]));
    }

    #[inline(always)]
    fn quic<F: Frame + ?Sized>(&mut self, frame: &F, offset: usize) {
        let Some(&[first]) = frame.bytes(offset + UDP_LENGTH) else { return };
        // Header form 0, fixed bit 1, spin bit (RFC 9000 §17.3.1).
        if first & 0xc0 != 0x40 {
            return;
        }
        (self.speaks, self.flags) = (SegmentProtocol::Quic, first >> 5 & 1);
    }

    #[inline(always)]
    fn echo<F: Frame + ?Sized>(&mut self, frame: &F, offset: usize, request: u8, reply: u8) {
        let Some(&[kind, code, _, _, i0, i1, s0, s1]) = frame.bytes(offset) else { return };
        if code != 0 || kind != request && kind != reply {
            return;
        }
        (self.speaks, self.flags) = (SegmentProtocol::Echo, u8::from(kind == reply));
        self.sequence = u32::from_be_bytes([i0, i1, s0, s1]);
    }
}

/// Returns TSval and TSecr, or zeros, from the offsets that common stacks use: as the first option,
/// after two bytes of padding (Linux, the BSDs and macOS); in Linux' SYN after MSS and SACK
/// permitted; in the others' SYN after MSS, window scale and padding. A loop over options would
/// cost a switch per iteration.
#[inline(always)]
fn timestamps_of<F: Frame + ?Sized>(frame: &F, offset: usize, header_length: usize) -> (u32, u32) {
    const PAD: u8 = 1;
    const MSS: (u8, u8) = (2, 4);
    const WINDOW_SCALE: (u8, u8) = (3, 3);
    const SACK_PERMITTED: (u8, u8) = (4, 2);
    const TIMESTAMPS: (u8, u8) = (8, 10);
    let options = offset + TCP_LENGTH;
    let Some(&[b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11]) = frame.bytes(options) else {
        return (0, 0);
    };
    let at = if (b0, b1, (b2, b3)) == (PAD, PAD, TIMESTAMPS) {
        4
    } else if ((b0, b1), (b4, b5), (b6, b7)) == (MSS, SACK_PERMITTED, TIMESTAMPS) {
        8
    } else if ((b0, b1), b4, (b5, b6), (b8, b9), (b10, b11))
        == (MSS, PAD, WINDOW_SCALE, (PAD, PAD), TIMESTAMPS)
    {
        12
    } else {
        return (0, 0);
    };
    let _ = b7;
    if header_length < (TCP_LENGTH + at + 8) {
        return (0, 0);
    }
    match frame.bytes(options + at) {
        Some(&[v0, v1, v2, v3, e0, e1, e2, e3]) => {
            (u32::from_be_bytes([v0, v1, v2, v3]), u32::from_be_bytes([e0, e1, e2, e3]))
        }
        None => (0, 0),
    }
}
