//! Requests at a constant rate: segments with data, each acknowledged individually or not at all.

use super::{
    Agenda, CLIENT_PORTS, DelayProfile, HTTPS, RequestTimes, RoundTrip, RoundTripKind, SERVER_BITS,
    SERVERS, TruthCallback,
};
use crate::frame::flag;
use crate::layout::{TcpSegment, first_sequence, ticks};
use crate::random::{mix, unique_source};
use std::net::SocketAddr;

#[derive(Debug, Default)]
pub(super) struct RequestGenerator {
    begun: u64,
    agenda: Agenda<Coming>,
}

#[derive(Debug)]
enum Coming {
    Retransmission(u64),
    Response { index: u64, request_ns: u64 },
}

impl RequestGenerator {
    pub(super) fn advance(
        &mut self,
        profile: &DelayProfile,
        frame: &mut Vec<u8>,
        report: &mut TruthCallback<'_>,
    ) -> Option<u64> {
        loop {
            let more = self.begun < profile.requests;
            let next = (self.begun as f64 * 1e9 / profile.rate) as u64;
            let (at, index, request) = match self.agenda.take(more.then_some(next)) {
                Some((at, Coming::Response { index, request_ns })) => {
                    let response = Flow::of(profile, index).response(profile, request_ns, at);
                    profile.layout.tcp(&response, frame);
                    return Some(at);
                }
                Some((at, Coming::Retransmission(index))) => (at, index, profile.request(index)),
                None if !more => return None,
                None => {
                    let index = self.begun;
                    self.begun += 1;
                    let request = profile.request(index);
                    if request.retransmission {
                        self.agenda.add(request.at_ns, Coming::Retransmission(index));
                        continue;
                    }
                    (next, index, request)
                }
            };
            let RequestTimes { delay_ns, retransmission, .. } = request;
            let response_ns = delay_ns.map(|delay| at.saturating_add(delay));
            if let Some(response_ns) = response_ns {
                self.agenda.add(response_ns, Coming::Response { index, request_ns: at });
            }
            let flow = Flow::of(profile, index);
            let (source, destination) = (flow.client, flow.server);
            report(RoundTrip {
                kind: RoundTripKind::Data,
                request_ns: at,
                response_ns,
                source,
                destination,
                retransmission,
            });
            profile.layout.tcp(&flow.request(profile, at), frame);
            return Some(at);
        }
    }
}

/// Common properties of the packets of a flow: a function of its number.
struct Flow {
    client: SocketAddr,
    server: SocketAddr,
    /// Sequence numbers of the first bytes of client and server.
    first: [u32; 2],
    /// Timestamp clocks of client and server at the start, in milliseconds.
    clocks: [u32; 2],
    /// Earlier requests of the flow.
    before: u64,
}

impl Flow {
    fn of(profile: &DelayProfile, index: u64) -> Flow {
        let number = profile.flows.map_or(index, |flows| index % flows);
        let [place, client, server, clocks] =
            [1, 2, 3, 4].map(|what| mix(mix(profile.seed ^ what) ^ number));
        let port = CLIENT_PORTS.0 + (place % CLIENT_PORTS.1) as u16;
        let address = SERVERS | (place >> (64 - SERVER_BITS)) as u32;
        Flow {
            client: SocketAddr::new(
                profile.layout.address(unique_source(profile.seed, number)),
                port,
            ),
            server: SocketAddr::new(profile.layout.address(address), HTTPS),
            first: [first_sequence(client), first_sequence(server)],
            clocks: [clocks as u32, (clocks >> 32) as u32],
            before: profile.flows.map_or(0, |flows| index / flows),
        }
    }

    /// Returns the sequence number after `segments` segments of the client.
    fn sequence(&self, profile: &DelayProfile, segments: u64) -> u32 {
        self.first[0].wrapping_add((segments as u32).wrapping_mul(profile.layout.data() as u32))
    }

    fn request(&self, profile: &DelayProfile, at: u64) -> TcpSegment {
        TcpSegment {
            source: self.client,
            destination: self.server,
            flags: flag::PSH | flag::ACK,
            sequence: self.sequence(profile, self.before),
            acknowledgement: self.first[1],
            // The server's last packet belongs to the handshake, before the start.
            stamps: [ticks(self.clocks[0], at), self.clocks[1]],
            data: profile.layout.data(),
        }
    }

    fn response(&self, profile: &DelayProfile, request_ns: u64, at: u64) -> TcpSegment {
        TcpSegment {
            source: self.server,
            destination: self.client,
            flags: flag::ACK,
            sequence: self.first[1],
            acknowledgement: self.sequence(profile, self.before + 1),
            stamps: [ticks(self.clocks[1], at), ticks(self.clocks[0], request_ns)],
            data: 0,
        }
    }
}
