//! Connections from the DNS query to the FIN, one packet at a time.
//!
//! Client and server take turns: a flight of segments, the acknowledgement of the last of them, a
//! reply of one segment, its acknowledgement. So everything passes in order, and each
//! acknowledgement is what a host sends according to RFC 9293 and RFC 7323.

use super::{
    Agenda, CLIENT_PORTS, DelayProfile, HTTPS, RoundTrip, RoundTripKind, SERVER_BITS, SERVERS,
    SHORTEST_TIMEOUT_NS, TruthCallback, log_uniform,
};
use crate::frame::flag;
use crate::layout::{HeaderLayout, TcpSegment, first_sequence, ticks};
use crate::random::{CounterRng, mix, unique_source};
use rand::RngExt;
use std::net::{IpAddr, SocketAddr};

/// Number of clients; connections are assigned to them in turn.
const CLIENTS: u64 = 5_000;
/// Address of the resolver: 198.18.0.53, or its equivalent in IPv6.
const RESOLVER: u32 = SERVERS + 53;
const DNS: u16 = 53;
/// Mean number of data segments of the client in a connection.
const MEAN_SEGMENTS: f64 = 8.0;
/// Maximum excess of a connection's round trips over its shortest one, as a share.
const SPREAD: f64 = 0.25;
/// Share of the connections that end with a RST.
const RESET: f64 = 0.1;
/// Range of the gap between segments of a flight.
const GAP_NS: (f64, f64) = (10_000.0, 100_000.0);
/// Range of the time that clients take to continue, and servers before a reply.
const TURN_NS: (f64, f64) = (20_000.0, 200_000.0);
/// Range of the pause between a reply and the next flight.
const PAUSE_NS: (f64, f64) = (100_000.0, 5_000_000.0);
/// Time that a client waits for the resolver before it uses a cached address.
const RESOLVER_TIMEOUT_NS: u64 = 1_000_000;
/// First timeout of a SYN (RFC 6298).
const SYN_TIMEOUT_NS: u64 = 1_000_000_000;

/// All connections of a profile.
#[derive(Debug, Default)]
pub(super) struct Conversations {
    /// Connections started.
    begun: u64,
    /// Requests of the connections started.
    requests: u64,
    agenda: Agenda<Box<Conversation>>,
}

impl Conversations {
    pub(super) fn advance(
        &mut self,
        profile: &DelayProfile,
        frame: &mut Vec<u8>,
        report: &mut TruthCallback<'_>,
    ) -> Option<u64> {
        loop {
            let left = profile.requests - self.requests;
            // A connection starts when the time of all earlier connections' requests has passed,
            // which keeps the rate.
            let next = (self.requests as f64 * 1e9 / profile.rate) as u64;
            let (at, mut conversation) = match self.agenda.take((left > 0).then_some(next)) {
                Some(due) => due,
                None if left == 0 => return None,
                None => {
                    let conversation = Conversation::new(profile, self.begun, left);
                    self.begun += 1;
                    self.requests += conversation.segments.max(1);
                    self.agenda.add(next, Box::new(conversation));
                    continue;
                }
            };
            match conversation.advance(profile, at, frame, report) {
                Some(next) => self.agenda.add(next, conversation),
                None => conversation.end(report),
            }
            return Some(at);
        }
    }
}

/// Sender of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacketSender {
    Client,
    Server,
}

/// Next step of a connection.
#[derive(Clone, Copy, Debug)]
enum NextStep {
    Query,
    Answer,
    Syn,
    SynAck,
    HandshakeAck,
    Data,
    DataAck,
    Reply,
    ReplyAck,
    End,
    ServerFin,
    LastAck,
}

/// One end of a connection.
#[derive(Debug)]
struct Host {
    address: SocketAddr,
    /// Next sequence number to send.
    next: u32,
    /// Next sequence number expected.
    expected: u32,
    /// Last acknowledgement sent.
    acknowledged: u32,
    /// Timestamp clock at time 0, in milliseconds.
    clock: u32,
    /// Timestamp to echo (`TS.Recent` of RFC 7323).
    recent: u32,
    /// Last timestamp that requires an echo, and those not echoed yet.
    asked: Option<u32>,
    unanswered: Vec<PendingEcho>,
}

/// A timestamp that waits for its echo.
#[derive(Debug)]
struct PendingEcho {
    value: u32,
    at: u64,
    retransmission: bool,
}

impl PendingEcho {
    fn round_trip(
        &self,
        source: SocketAddr,
        destination: SocketAddr,
        response_ns: Option<u64>,
    ) -> RoundTrip {
        let PendingEcho { at, retransmission, .. } = *self;
        RoundTrip {
            kind: RoundTripKind::Timestamps,
            request_ns: at,
            response_ns,
            source,
            destination,
            retransmission,
        }
    }
}

impl Host {
    fn new(address: SocketAddr, random: &mut CounterRng) -> Self {
        let next = first_sequence(random.random());
        let clock = random.random();
        Host {
            address,
            next,
            expected: 0,
            acknowledged: 0,
            clock,
            recent: 0,
            asked: None,
            unanswered: Vec::new(),
        }
    }
}

#[derive(Debug)]
struct Conversation {
    random: CounterRng,
    step: NextStep,
    client: Host,
    server: Host,
    /// Shortest delay of the connection.
    shortest: f64,
    /// Data segments that the client still has to send. Initially 0 if its SYN gets no answer.
    segments: u64,
    /// ID of the DNS query.
    query: u16,
    /// Time of the SYN, and whether it was a retransmission.
    syn: (u64, bool),
    /// Whether the next packet was lost before.
    retransmission: bool,
}

impl Conversation {
    fn new(profile: &DelayProfile, index: u64, left: u64) -> Self {
        let mut random = profile.random(index);
        let (min, max) = (profile.min_ns as f64, profile.max_ns as f64);
        let answered = random.random_bool(profile.answered);
        // Geometric, at least one.
        let number =
            1.0 + ((1.0 - random.random::<f64>()).ln() / (1.0 - 1.0 / MEAN_SEGMENTS).ln()).floor();
        let port = CLIENT_PORTS.0 + (index / CLIENTS % CLIENT_PORTS.1) as u16;
        let client = profile.layout.address(unique_source(mix(profile.seed), index % CLIENTS));
        let server =
            profile.layout.address(SERVERS | (random.random::<u32>() >> (32 - SERVER_BITS)));
        Conversation {
            step: NextStep::Query,
            client: Host::new(SocketAddr::new(client, port), &mut random),
            server: Host::new(SocketAddr::new(server, HTTPS), &mut random),
            shortest: log_uniform(min, (max / (1.0 + SPREAD)).max(min), &mut random),
            segments: if answered { (number as u64).min(left) } else { 0 },
            query: random.random(),
            syn: (0, false),
            retransmission: false,
            random,
        }
    }

    /// Builds the packet that is due now. Returns the time of the next one, if any.
    fn advance(
        &mut self,
        profile: &DelayProfile,
        at: u64,
        frame: &mut Vec<u8>,
        report: &mut TruthCallback<'_>,
    ) -> Option<u64> {
        let layout = &profile.layout;
        match self.step {
            NextStep::Query => {
                let resolver = SocketAddr::new(layout.address(RESOLVER), DNS);
                let client = self.client.address;
                layout.udp(client, resolver, &self.question(false), frame);
                let response = self
                    .random
                    .random_bool(profile.answered)
                    .then(|| at.saturating_add(self.delay(profile)));
                self.report(RoundTripKind::Dns, (client, resolver), at, response, report);
                match response {
                    Some(response) => self.then(NextStep::Answer, response),
                    None => self.first_syn(profile, at.saturating_add(RESOLVER_TIMEOUT_NS)),
                }
            }
            NextStep::Answer => {
                let resolver = SocketAddr::new(layout.address(RESOLVER), DNS);
                layout.udp(resolver, self.client.address, &self.question(true), frame);
                let next = at.saturating_add(self.between(TURN_NS));
                self.first_syn(profile, next)
            }
            NextStep::Syn => {
                self.send(layout, PacketSender::Client, flag::SYN, 0, at, frame, report);
                self.syn = (at, self.retransmission);
                let response = (self.segments > 0).then(|| at.saturating_add(self.delay(profile)));
                let hosts = self.hosts(PacketSender::Client);
                self.report(RoundTripKind::Handshake, hosts, at, response, report);
                match response {
                    Some(response) => self.then(NextStep::SynAck, response),
                    None => {
                        self.report(RoundTripKind::Duration, hosts, at, None, report);
                        None
                    }
                }
            }
            NextStep::SynAck => {
                self.send(
                    layout,
                    PacketSender::Server,
                    flag::SYN | flag::ACK,
                    0,
                    at,
                    frame,
                    report,
                );
                let next = at.saturating_add(self.between(TURN_NS));
                self.then(NextStep::HandshakeAck, next)
            }
            NextStep::HandshakeAck => {
                self.send(layout, PacketSender::Client, flag::ACK, 0, at, frame, report);
                let next = at.saturating_add(self.between(GAP_NS));
                self.or_later(profile, NextStep::Data, next)
            }
            NextStep::Data => {
                self.send(
                    layout,
                    PacketSender::Client,
                    flag::PSH | flag::ACK,
                    layout.data(),
                    at,
                    frame,
                    report,
                );
                self.segments -= 1;
                // Hosts delay acknowledgements until more segments have arrived, except that of the
                // last one.
                let answered = self.segments == 0 || self.random.random_bool(profile.answered);
                let response = answered.then(|| at.saturating_add(self.delay(profile)));
                let hosts = self.hosts(PacketSender::Client);
                self.report(RoundTripKind::Data, hosts, at, response, report);
                match response {
                    Some(response) => self.then(NextStep::DataAck, response),
                    None => {
                        let next = at.saturating_add(self.between(GAP_NS));
                        self.or_later(profile, NextStep::Data, next)
                    }
                }
            }
            NextStep::DataAck => {
                self.send(layout, PacketSender::Server, flag::ACK, 0, at, frame, report);
                let next = at.saturating_add(self.between(TURN_NS));
                self.or_later(profile, NextStep::Reply, next)
            }
            NextStep::Reply => {
                self.send(
                    layout,
                    PacketSender::Server,
                    flag::PSH | flag::ACK,
                    layout.data(),
                    at,
                    frame,
                    report,
                );
                let response = at.saturating_add(self.between(TURN_NS));
                let hosts = self.hosts(PacketSender::Server);
                self.report(RoundTripKind::Data, hosts, at, Some(response), report);
                self.then(NextStep::ReplyAck, response)
            }
            NextStep::ReplyAck => {
                self.send(layout, PacketSender::Client, flag::ACK, 0, at, frame, report);
                let next = at.saturating_add(self.between(PAUSE_NS));
                self.or_later(
                    profile,
                    if self.segments > 0 { NextStep::Data } else { NextStep::End },
                    next,
                )
            }
            NextStep::End => {
                let reset = self.random.random_bool(RESET);
                let end = if reset { flag::RST } else { flag::FIN };
                self.send(layout, PacketSender::Client, end | flag::ACK, 0, at, frame, report);
                let hosts = self.hosts(PacketSender::Client);
                let (syn_at, syn_again) = self.syn;
                let response = (!reset).then(|| at.saturating_add(self.delay(profile)));
                if response.is_some() {
                    self.report(RoundTripKind::Fin, hosts, at, response, report);
                }
                self.retransmission = syn_again;
                self.report(RoundTripKind::Duration, hosts, syn_at, Some(at), report);
                response.and_then(|response| self.then(NextStep::ServerFin, response))
            }
            NextStep::ServerFin => {
                self.send(
                    layout,
                    PacketSender::Server,
                    flag::FIN | flag::ACK,
                    0,
                    at,
                    frame,
                    report,
                );
                let response = at.saturating_add(self.between(TURN_NS));
                let hosts = self.hosts(PacketSender::Server);
                self.report(RoundTripKind::Fin, hosts, at, Some(response), report);
                self.then(NextStep::LastAck, response)
            }
            NextStep::LastAck => {
                self.send(layout, PacketSender::Client, flag::ACK, 0, at, frame, report);
                None
            }
        }
    }

    /// Schedules a step without delay by losses.
    fn then(&mut self, step: NextStep, at: u64) -> Option<u64> {
        self.retransmission = false;
        self.step = step;
        Some(at)
    }

    /// Schedules a step that is delayed if its packet is lost before the observer.
    fn or_later(&mut self, profile: &DelayProfile, step: NextStep, at: u64) -> Option<u64> {
        let timeout = SHORTEST_TIMEOUT_NS.max((2.0 * self.shortest) as u64);
        self.held_up(profile, step, at, timeout)
    }

    fn first_syn(&mut self, profile: &DelayProfile, at: u64) -> Option<u64> {
        self.held_up(profile, NextStep::Syn, at, SYN_TIMEOUT_NS)
    }

    fn held_up(
        &mut self,
        profile: &DelayProfile,
        step: NextStep,
        at: u64,
        timeout: u64,
    ) -> Option<u64> {
        let held_up = profile.held_up(timeout, &mut self.random);
        self.retransmission = held_up > 0;
        self.step = step;
        Some(at.saturating_add(held_up))
    }

    fn delay(&mut self, profile: &DelayProfile) -> u64 {
        let delay = self.shortest * (1.0 + SPREAD * self.random.random::<f64>());
        (delay as u64).clamp(profile.min_ns, profile.max_ns)
    }

    fn between(&mut self, (from, to): (f64, f64)) -> u64 {
        (from + (to - from) * self.random.random::<f64>()) as u64
    }

    fn hosts(&self, from: PacketSender) -> (SocketAddr, SocketAddr) {
        match from {
            PacketSender::Client => (self.client.address, self.server.address),
            PacketSender::Server => (self.server.address, self.client.address),
        }
    }

    fn report(
        &self,
        kind: RoundTripKind,
        (source, destination): (SocketAddr, SocketAddr),
        at: u64,
        response: Option<u64>,
        report: &mut TruthCallback<'_>,
    ) {
        let retransmission = self.retransmission;
        report(RoundTrip {
            kind,
            request_ns: at,
            response_ns: response,
            source,
            destination,
            retransmission,
        });
    }

    /// Reports the requests without an answer.
    fn end(&self, report: &mut TruthCallback<'_>) {
        for (host, peer) in [(&self.client, &self.server), (&self.server, &self.client)] {
            host.unanswered
                .iter()
                .for_each(|asked| report(asked.round_trip(host.address, peer.address, None)));
        }
    }

    /// Sends a segment, which the other end processes.
    #[allow(clippy::too_many_arguments, reason = "a segment, and where it goes")]
    fn send(
        &mut self,
        layout: &HeaderLayout,
        from: PacketSender,
        flags: u8,
        data: usize,
        at: u64,
        frame: &mut Vec<u8>,
        report: &mut TruthCallback<'_>,
    ) {
        let retransmission = self.retransmission;
        let (sender, receiver) = match from {
            PacketSender::Client => (&mut self.client, &mut self.server),
            PacketSender::Server => (&mut self.server, &mut self.client),
        };
        let value = ticks(sender.clock, at);
        let segment = TcpSegment {
            source: sender.address,
            destination: receiver.address,
            flags,
            sequence: sender.next,
            acknowledgement: sender.expected,
            stamps: [value, sender.recent],
            data,
        };
        layout.tcp(&segment, frame);
        if layout.timestamps && flags & flag::RST == 0 {
            if let Some(place) = receiver
                .unanswered
                .iter()
                .position(|asked| flags & flag::ACK != 0 && asked.value == sender.recent)
            {
                let asked = receiver.unanswered.remove(place);
                report(asked.round_trip(receiver.address, sender.address, Some(at)));
            }
            // A pure acknowledgement gets no immediate echo.
            if (data > 0 || flags & (flag::SYN | flag::FIN) != 0) && sender.asked != Some(value) {
                sender.asked = Some(value);
                sender.unanswered.push(PendingEcho { value, at, retransmission });
            }
        }
        if flags & flag::ACK != 0 {
            sender.acknowledged = sender.expected;
        }
        if flags & flag::SYN != 0 {
            receiver.acknowledged = sender.next;
        }
        // RFC 7323, section 4.3: of segments with one acknowledgement, the first one is echoed.
        if segment.sequence.wrapping_sub(receiver.acknowledged) as i32 <= 0 {
            receiver.recent = value;
        }
        let length = data as u32 + u32::from(flags & (flag::SYN | flag::FIN) != 0);
        sender.next = sender.next.wrapping_add(length);
        receiver.expected = sender.next;
    }

    /// Builds a DNS message: the question for the server's address, or the answer.
    fn question(&self, answered: bool) -> Vec<u8> {
        let (flags, answers) = if answered { (0x8180_u16, 1) } else { (0x0100, 0) };
        // A or AAAA.
        let kind = if self.server.address.is_ipv6() { 28 } else { 1 };
        let mut message = Vec::with_capacity(64);
        for word in [self.query, flags, 1, answers, 0, 0] {
            message.extend(word.to_be_bytes());
        }
        for label in ["www", "example", "com"] {
            message.push(label.len() as u8);
            message.extend(label.as_bytes());
        }
        message.extend([0, 0, kind, 0, 1]);
        if answered {
            // Name of the question, the same type and class, for five minutes.
            message.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 1, 44]);
            match self.server.address.ip() {
                IpAddr::V4(address) => {
                    message.extend([0, 4]);
                    message.extend(address.octets());
                }
                IpAddr::V6(address) => {
                    message.extend([0, 16]);
                    message.extend(address.octets());
                }
            }
        }
        message
    }
}
