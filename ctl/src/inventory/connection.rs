//! TCP connections of a capture: handshakes, and data that was sent again, by server.
//!
//! Segments are classified by the rules of [`flowgauge_core::reorder`], for every connection and
//! direction; data is expected from the SYN on, if the capture has it. The time of a handshake is
//! measured where the capture was made: from SYN to SYN/ACK to the server and back, from there to
//! the acknowledgement to the client and back.

use super::{BoundedTable, CapturedFrame, Volume, seconds};
use flowgauge_core::packet::Packet;
use flowgauge_core::segment::flags;
use serde::{Serialize, Serializer};
use std::net::IpAddr;

const TCP: u8 = 6;

/// Address and port.
pub type Endpoint = (IpAddr, u16);

/// Counts of the connections to a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServerCounts {
    /// Connections.
    pub connections: u64,
    /// Connections whose start is not in the capture: the server is then the side with the lower
    /// port.
    pub begun_before: u64,
    /// SYNs without an answer, or with a reset as answer.
    pub unanswered: u64,
    /// Nanoseconds from a SYN to its answer, one for each connection that was not repeated. JSON
    /// has the minimum, the median and the maximum, in seconds; null if none was measured.
    #[serde(rename = "to_server", serialize_with = "serialize_spread")]
    pub to_server_ns: Vec<u64>,
    /// Nanoseconds from there to the acknowledgement of the client.
    #[serde(rename = "to_client", serialize_with = "serialize_spread")]
    pub to_client_ns: Vec<u64>,
    /// Segments with data.
    pub segments: u64,
    /// Segments with data that were seen before.
    pub retransmitted: u64,
    /// Segments with data that came after later ones.
    pub out_of_order: u64,
}

fn serialize_spread<S: Serializer>(times: &[u64], serializer: S) -> Result<S::Ok, S::Error> {
    spread(times).serialize(serializer)
}

/// Returns the minimum, the median and the maximum of times, in seconds. The median of an even
/// number is the lower of the two in the middle.
fn spread(times: &[u64]) -> Option<[f64; 3]> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let middle = sorted.get(sorted.len().checked_sub(1)? / 2)?;
    Some([*sorted.first()?, *middle, *sorted.last()?].map(seconds))
}

/// Followed connections, by both endpoints, the lower one first.
#[derive(Debug, Default)]
pub(super) struct TcpConnections {
    pub(super) table: BoundedTable<(Endpoint, Endpoint), Connection>,
    pub(super) servers: BoundedTable<Endpoint, ServerCounts>,
}

/// State of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Connection {
    server: Option<Endpoint>,
    /// Sequence number of the SYN that began it.
    begun: Option<u32>,
    /// Segment of the handshake that awaits its answer.
    handshake: Option<HandshakeSegment>,
    /// Expected continuation of the data from the lower and from the higher endpoint.
    expected: [Option<Continuation>; 2],
}

#[derive(Clone, Copy, Debug)]
struct HandshakeSegment {
    /// Whether it is a SYN/ACK; else a SYN.
    is_answer: bool,
    sequence: u32,
    time: u64,
    /// Whether it was not repeated.
    is_single: bool,
}

/// Expected continuation of data in one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Continuation {
    /// Highest end of a segment.
    next: u32,
    /// Bytes before `next` that were not seen.
    missing: u32,
}

/// Fields of a TCP header.
#[derive(Clone, Copy, Debug)]
struct TcpFields {
    flags: u8,
    sequence: u32,
    acknowledgement: u32,
    payload: u32,
}

impl TcpConnections {
    /// Counts a packet with ports.
    pub(super) fn count(
        &mut self,
        frame: &CapturedFrame<'_>,
        packet: &Packet<'_>,
        protocol: u8,
        source: Endpoint,
        destination: Endpoint,
    ) {
        let Some(fields) = (protocol == TCP).then(|| tcp(frame, packet)).flatten() else { return };
        let is_forth = source <= destination;
        let ends = if is_forth { (source, destination) } else { (destination, source) };
        let one = Volume { packets: 1, bytes: u64::from(frame.wire_length) };
        let Some(connection) = self.table.entry(ends, one) else { return };
        let syn = fields.flags & flags::SYN != 0;
        let ack = fields.flags & flags::ACK != 0;
        // A client that uses a port again begins with another sequence number.
        let is_other = syn && !ack && connection.begun != Some(fields.sequence);
        let begins = is_other || connection.server.is_none();
        if begins {
            let (server, is_known) = match (syn, ack) {
                (true, false) => (destination, true),
                (true, true) => (source, true),
                _ => (if source.1 < destination.1 { source } else { destination }, false),
            };
            let begun = (syn && !ack).then_some(fields.sequence);
            *connection = Connection { server: Some(server), begun, ..Connection::default() };
            if let Some(counts) = self.servers.entry(server, one) {
                counts.connections += 1;
                counts.begun_before += u64::from(!is_known);
                counts.unanswered += u64::from(syn && !ack);
            }
        }
        let Some(server) = connection.server else { return };
        // The table counts a server without an entry among those beyond its limit.
        let Some(counts) = self.servers.entry(server, Volume::default()) else { return };
        connection.shake(&fields, source == server, frame.timestamp, counts);
        let [forth, back] = &mut connection.expected;
        let expected = if is_forth { forth } else { back };
        if syn {
            let next = fields.sequence.wrapping_add(1);
            expected.get_or_insert(Continuation { next, missing: 0 });
        }
        if syn || fields.payload == 0 || fields.flags & flags::RST != 0 {
            return;
        }
        let (class, next) = Continuation::compare(*expected, &fields);
        *expected = Some(next);
        counts.segments += u64::from(class != Class::KeepAlive);
        counts.retransmitted += u64::from(class == Class::Retransmitted);
        counts.out_of_order += u64::from(class == Class::OutOfOrder);
    }
}

impl Connection {
    /// Follows the handshake.
    fn shake(
        &mut self,
        fields: &TcpFields,
        from_server: bool,
        time: u64,
        counts: &mut ServerCounts,
    ) {
        let is_syn = fields.flags & flags::SYN != 0;
        let is_ack = fields.flags & flags::ACK != 0;
        let sent = |is_answer| {
            Some(HandshakeSegment { is_answer, sequence: fields.sequence, time, is_single: true })
        };
        let Some(awaiting) = self.handshake else {
            if is_syn && !is_ack && !from_server {
                self.handshake = sent(false);
            }
            return;
        };
        let HandshakeSegment { is_answer, sequence, time: sent_at, is_single } = awaiting;
        let answers = is_ack && fields.acknowledgement == sequence.wrapping_add(1);
        if is_syn && (is_ack, from_server) == (is_answer, is_answer) {
            // Sent again: which of both is answered is unknown.
            self.handshake = Some(HandshakeSegment { time, is_single: false, ..awaiting });
        } else if !is_answer && is_syn && from_server && answers {
            counts.unanswered = counts.unanswered.saturating_sub(1);
            if is_single {
                counts.to_server_ns.push(time.saturating_sub(sent_at));
            }
            self.handshake = sent(true);
        } else if is_answer && !is_syn && !from_server && answers {
            if is_single {
                counts.to_client_ns.push(time.saturating_sub(sent_at));
            }
            self.handshake = None;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    InOrder,
    OutOfOrder,
    Retransmitted,
    KeepAlive,
}

impl Continuation {
    /// Returns the class of a segment with data, and the expected continuation after it.
    fn compare(expected: Option<Continuation>, fields: &TcpFields) -> (Class, Continuation) {
        let (sequence, payload) = (fields.sequence, fields.payload);
        let fin = u32::from(fields.flags & flags::FIN != 0);
        let end = sequence.wrapping_add(payload).wrapping_add(fin);
        let Some(Continuation { next, missing }) = expected else {
            return (Class::InOrder, Continuation { next: end, missing: 0 });
        };
        let highest = if before(end, next) { next } else { end };
        let (class, missing) = if sequence == next {
            (Class::InOrder, missing)
        } else if before(next, sequence) {
            (Class::InOrder, missing.saturating_add(sequence.wrapping_sub(next)))
        } else if payload <= 1 && sequence.wrapping_add(1) == next {
            (Class::KeepAlive, missing)
        } else if missing >= payload {
            (Class::OutOfOrder, missing - payload)
        } else {
            (Class::Retransmitted, missing)
        };
        (class, Continuation { next: highest, missing })
    }
}

/// Compares sequence numbers by the sign of their difference.
fn before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}

/// Reads the TCP header of a packet that is not a later fragment; `None` if it is cut off.
fn tcp(frame: &CapturedFrame<'_>, packet: &Packet<'_>) -> Option<TcpFields> {
    let header = frame.bytes.get(packet.offset()..)?;
    let start = match packet {
        Packet::V4(_) => usize::from(header.first()? & 0x0f) * 4,
        Packet::V6(_) => ipv6_headers_length(header)?,
    };
    let tcp: &[u8; 20] = header.get(start..)?.first_chunk()?;
    let &[_, _, _, _, s0, s1, s2, s3, a0, a1, a2, a3, data_offset, flags, ..] = tcp;
    let length = usize::from(data_offset >> 4) * 4;
    // Before segmentation offload, a sending host has no total length.
    let total = match packet.total_length() {
        0 => frame.wire_length.saturating_sub(packet.offset() as u32),
        total => total,
    };
    (length >= tcp.len()).then(|| TcpFields {
        flags: flags & 0x3f,
        sequence: u32::from_be_bytes([s0, s1, s2, s3]),
        acknowledgement: u32::from_be_bytes([a0, a1, a2, a3]),
        payload: total.saturating_sub((start + length) as u32),
    })
}

/// Returns the length of an IPv6 header and its extension headers, before TCP.
fn ipv6_headers_length(header: &[u8]) -> Option<usize> {
    let (mut next, mut start) = (*header.get(6)?, 40);
    while next != TCP {
        let length = usize::from(*header.get(start + 1)?);
        let size = match next {
            44 => 8,
            51 => (length + 2) * 4,
            _ => (length + 1) * 8,
        };
        next = *header.get(start)?;
        start += size;
    }
    Some(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(sequence: u32, payload: u32) -> TcpFields {
        TcpFields { flags: flags::ACK, sequence, acknowledgement: 0, payload }
    }

    #[test]
    fn segments_are_classified_by_the_bytes_that_are_missing() {
        let mut expected = None;
        let start = u32::MAX - 150;
        let cases = [
            (start, 100, Class::InOrder),
            // A gap of 200, across zero, which two segments fill.
            (start.wrapping_add(300), 100, Class::InOrder),
            (start.wrapping_add(100), 100, Class::OutOfOrder),
            (start.wrapping_add(200), 100, Class::OutOfOrder),
            (start.wrapping_add(200), 100, Class::Retransmitted),
            (start.wrapping_add(399), 1, Class::KeepAlive),
            (start.wrapping_add(400), 1, Class::InOrder),
        ];
        for (sequence, payload, class) in cases {
            let (seen, next) = Continuation::compare(expected, &segment(sequence, payload));
            assert_eq!(seen, class, "{sequence} {payload}");
            expected = Some(next);
        }
    }
}
