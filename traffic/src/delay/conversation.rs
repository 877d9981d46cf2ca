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
use crate::layout::{TcpSegment, first_sequence, ticks};
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
            let mut due = DuePacket { profile, at, frame, report };
            match conversation.advance(&mut due) {
                Some(next) => self.agenda.add(next, conversation),
                None => conversation.end(due.report),
            }
            return Some(at);
        }
    }
}

/// Packet that is due: its time, where it is built, and what receives the truth known with it.
struct DuePacket<'a> {
    profile: &'a DelayProfile,
    at: u64,
    frame: &'a mut Vec<u8>,
    report: &'a mut TruthCallback<'a>,
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
    unanswered: Vec<(u32, RoundTrip)>,
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
    fn advance(&mut self, due: &mut DuePacket<'_>) -> Option<u64> {
        use PacketSender::{Client, Server};
        let DuePacket { profile, at, .. } = *due;
        let layout = &profile.layout;
        match self.step {
            NextStep::Query => {
                let resolver = SocketAddr::new(layout.address(RESOLVER), DNS);
                let client = self.client.address;
                layout.udp(client, resolver, &self.question(false), due.frame);
                let response =
                    self.random.random_bool(profile.answered).then(|| self.response(due));
                self.report(due, RoundTripKind::Dns, (client, resolver), at, response);
                match response {
                    Some(response) => self.then(NextStep::Answer, response),
                    None => {
                        let next = at.saturating_add(RESOLVER_TIMEOUT_NS);
                        self.held_up(profile, NextStep::Syn, next, SYN_TIMEOUT_NS)
                    }
                }
            }
            NextStep::Answer => {
                let resolver = SocketAddr::new(layout.address(RESOLVER), DNS);
                layout.udp(resolver, self.client.address, &self.question(true), due.frame);
                let next = self.after(due, TURN_NS);
                self.held_up(profile, NextStep::Syn, next, SYN_TIMEOUT_NS)
            }
            NextStep::Syn => {
                self.send(due, Client, flag::SYN, 0);
                self.syn = (at, self.retransmission);
                let response = (self.segments > 0).then(|| self.response(due));
                let hosts = self.hosts(Client);
                self.report(due, RoundTripKind::Handshake, hosts, at, response);
                if response.is_none() {
                    self.report(due, RoundTripKind::Duration, hosts, at, None);
                }
                self.then(NextStep::SynAck, response?)
            }
            NextStep::SynAck => {
                self.send(due, Server, flag::SYN | flag::ACK, 0);
                let next = self.after(due, TURN_NS);
                self.then(NextStep::HandshakeAck, next)
            }
            NextStep::HandshakeAck => {
                self.send(due, Client, flag::ACK, 0);
                self.or_later(due, GAP_NS, NextStep::Data)
            }
            NextStep::Data => {
                self.send(due, Client, flag::PSH | flag::ACK, layout.data());
                self.segments -= 1;
                // Hosts delay acknowledgements until more segments have arrived, except that of the
                // last one.
                let answered = self.segments == 0 || self.random.random_bool(profile.answered);
                let response = answered.then(|| self.response(due));
                self.report(due, RoundTripKind::Data, self.hosts(Client), at, response);
                match response {
                    Some(response) => self.then(NextStep::DataAck, response),
                    None => self.or_later(due, GAP_NS, NextStep::Data),
                }
            }
            NextStep::DataAck => {
                self.send(due, Server, flag::ACK, 0);
                self.or_later(due, TURN_NS, NextStep::Reply)
            }
            NextStep::Reply => {
                self.send(due, Server, flag::PSH | flag::ACK, layout.data());
                let response = self.after(due, TURN_NS);
                self.report(due, RoundTripKind::Data, self.hosts(Server), at, Some(response));
                self.then(NextStep::ReplyAck, response)
            }
            NextStep::ReplyAck => {
                self.send(due, Client, flag::ACK, 0);
                let next = if self.segments > 0 { NextStep::Data } else { NextStep::End };
                self.or_later(due, PAUSE_NS, next)
            }
            NextStep::End => {
                let reset = self.random.random_bool(RESET);
                let end = if reset { flag::RST } else { flag::FIN };
                self.send(due, Client, end | flag::ACK, 0);
                let hosts = self.hosts(Client);
                let response = (!reset).then(|| self.response(due));
                if response.is_some() {
                    self.report(due, RoundTripKind::Fin, hosts, at, response);
                }
                let (syn_at, syn_again) = self.syn;
                self.retransmission = syn_again;
                self.report(due, RoundTripKind::Duration, hosts, syn_at, Some(at));
                self.then(NextStep::ServerFin, response?)
            }
            NextStep::ServerFin => {
                self.send(due, Server, flag::FIN | flag::ACK, 0);
                let response = self.after(due, TURN_NS);
                self.report(due, RoundTripKind::Fin, self.hosts(Server), at, Some(response));
                self.then(NextStep::LastAck, response)
            }
            NextStep::LastAck => {
                self.send(due, Client, flag::ACK, 0);
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

    /// Schedules a step after a pause, and later if its packet is lost before the observer.
    fn or_later(&mut self, due: &DuePacket<'_>, pause: (f64, f64), step: NextStep) -> Option<u64> {
        let next = self.after(due, pause);
        let timeout = SHORTEST_TIMEOUT_NS.max((2.0 * self.shortest) as u64);
        self.held_up(due.profile, step, next, timeout)
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

    /// Draws the time of the response to a packet.
    fn response(&mut self, due: &DuePacket<'_>) -> u64 {
        let delay = self.shortest * (1.0 + SPREAD * self.random.random::<f64>());
        let delay = (delay as u64).clamp(due.profile.min_ns, due.profile.max_ns);
        due.at.saturating_add(delay)
    }

    /// Draws a time after a packet, by a pause in this range.
    fn after(&mut self, due: &DuePacket<'_>, (from, to): (f64, f64)) -> u64 {
        due.at.saturating_add((from + (to - from) * self.random.random::<f64>()) as u64)
    }

    fn hosts(&self, from: PacketSender) -> (SocketAddr, SocketAddr) {
        match from {
            PacketSender::Client => (self.client.address, self.server.address),
            PacketSender::Server => (self.server.address, self.client.address),
        }
    }

    fn report(
        &self,
        due: &mut DuePacket<'_>,
        kind: RoundTripKind,
        (source, destination): (SocketAddr, SocketAddr),
        request_ns: u64,
        response_ns: Option<u64>,
    ) {
        let retransmission = self.retransmission;
        let trip = RoundTrip { kind, request_ns, response_ns, source, destination, retransmission };
        (due.report)(trip);
    }

    /// Reports the requests without an answer.
    fn end(&self, report: &mut TruthCallback<'_>) {
        let unanswered = self.client.unanswered.iter().chain(&self.server.unanswered);
        unanswered.for_each(|(_, asked)| report(*asked));
    }

    /// Sends a segment, which the other end processes.
    fn send(&mut self, due: &mut DuePacket<'_>, from: PacketSender, flags: u8, data: usize) {
        let DuePacket { profile, at, .. } = *due;
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
        profile.layout.tcp(&segment, due.frame);
        if profile.layout.timestamps && flags & flag::RST == 0 {
            if let Some(place) = receiver
                .unanswered
                .iter()
                .position(|(asked, _)| flags & flag::ACK != 0 && *asked == sender.recent)
            {
                let (_, asked) = receiver.unanswered.remove(place);
                (due.report)(RoundTrip { response_ns: Some(at), ..asked });
            }
            // A pure acknowledgement gets no immediate echo.
            if (data > 0 || flags & (flag::SYN | flag::FIN) != 0) && sender.asked != Some(value) {
                sender.asked = Some(value);
                let asked = RoundTrip {
                    kind: RoundTripKind::Timestamps,
                    request_ns: at,
                    response_ns: None,
                    source: sender.address,
                    destination: receiver.address,
                    retransmission: self.retransmission,
                };
                sender.unanswered.push((value, asked));
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
