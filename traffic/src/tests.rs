//! Helpers that the tests of several kinds of traffic share.

use crate::reader::{ParsedPacket, ParsedTcp, ParsedTransport};
use std::net::SocketAddr;

/// Returns the TCP segments of packets, each with its source and destination.
pub(crate) fn segments(
    packets: &[(u64, ParsedPacket)],
) -> impl Iterator<Item = ([SocketAddr; 2], &ParsedTcp)> {
    packets.iter().filter_map(|(_, packet)| match &packet.transport {
        ParsedTransport::Tcp(tcp) => Some(([packet.source, packet.destination], tcp)),
        ParsedTransport::Udp(_) => None,
    })
}
