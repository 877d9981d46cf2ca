//! Traffic out of order: flows from many prefixes. Some prefixes reorder packets.
//!
//! [`ReorderTraffic`] generates packets at a constant rate, and the truth about every prefix. Flows
//! send trains of segments, and a client acknowledges each train. A late segment follows a number
//! of later ones of its train that the profile sets.

#[cfg(test)]
mod tests;

use crate::frame::flag;
use crate::layout::{HeaderLayout, TcpSegment, first_sequence, ticks};
use crate::option::{ProfileError, parse, parse_count, parse_number, parse_share, require};
use crate::random::{CounterRng, mix};
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_distr::Zipf;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Domain separators of the random choices of this traffic.
const PREFIXES: u64 = 0x7072_6566_6978;
const FLOWS: u64 = 0x666c_6f77;
const TRAINS: u64 = 0x74_7261_696e;
/// Maximum number of prefixes: the /24s in 10.0.0.0/8, or the /48s in 2001:db8::/32.
const MAX_PREFIXES: u64 = 1 << 16;
const MAX_FLOWS: u64 = 10_000_000;
/// First address of clients: 198.18.0.0/15, for benchmarks (RFC 2544).
const CLIENTS: u32 = 0xc612_0000;
const HTTPS: u16 = 443;
/// Factor of `late` for prefixes that reorder without being heavy.
const LIGHT_FACTOR: f64 = 0.1;
/// Share of the losses that happen before the observer. For the others, both copies pass the
/// observer.
const LOSS_BEFORE_SHARE: f64 = 0.5;
/// Share of the trains that start with a keep-alive.
const KEEP_ALIVE_SHARE: f64 = 1.0 / 64.0;
/// Longest train, unless late segments need a longer one.
const MAX_TRAIN: u64 = 16;

const OPTIONS: &str = "prefixes=N, heavy=N, share=SHARE, depth=N, late=SHARE, loss=SHARE, flows=N, alpha=A, packets=N, rate=PPS, seed=N, \
     size=BYTES, vlan=ID, ipv6, timestamps";

/// A description of traffic out of order: `reorder[,OPTION=VALUE]…`, for example
/// `reorder,prefixes=500,depth=5`.
#[derive(Clone, Debug, PartialEq)]
pub struct ReorderProfile {
    /// Number of server prefixes: /24s of 10.0.0.0/8 or /48s of 2001:db8::/32.
    pub prefixes: u64,
    /// Number of prefixes that reorder much, among those with most packets.
    pub heavy: u64,
    /// Share of the prefixes that reorder at all, including the heavy ones.
    pub share: f64,
    /// Number of later segments that precede a late one, if its train is long enough.
    pub depth: u64,
    /// Share of the segments that are late in heavy prefixes; a tenth of that in other prefixes
    /// that reorder.
    pub late: f64,
    /// Share of the segments that are lost: half of them before the observer, half after it. They
    /// are sent again with the next train.
    pub loss: f64,
    /// Number of flows.
    pub flows: u64,
    /// Exponent of the Zipf distribution of flow sizes, positive.
    pub alpha: f64,
    /// Total packets.
    pub packets: u64,
    /// Packets per second.
    pub rate: f64,
    /// Headers and length of frames.
    pub layout: HeaderLayout,
    /// Seed of random choices.
    pub seed: u64,
}

impl Default for ReorderProfile {
    fn default() -> Self {
        ReorderProfile {
            prefixes: 2_000,
            heavy: 38,
            share: 0.1,
            depth: 3,
            late: 0.05,
            loss: 0.001,
            flows: 20_000,
            alpha: 1.0,
            packets: 1_000_000,
            rate: 100_000.0,
            layout: HeaderLayout::default(),
            seed: 1,
        }
    }
}

impl ReorderProfile {
    fn set(&mut self, option: &str) -> Result<(), ProfileError> {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        match key {
            "prefixes" => self.prefixes = parse_count(key, value)?,
            // Zero is allowed.
            "heavy" => self.heavy = parse(key, value, "a whole number such as 38")?,
            "share" => self.share = parse_share(key, value)?,
            "depth" => self.depth = parse_count(key, value)?,
            "late" => self.late = parse_share(key, value)?,
            "loss" => self.loss = parse_share(key, value)?,
            "flows" => self.flows = parse_count(key, value)?,
            "alpha" => self.alpha = parse_number(key, value)?,
            "packets" => self.packets = parse_count(key, value)?,
            "rate" => self.rate = parse_number(key, value)?,
            "seed" => self.seed = parse(key, value, "a whole number")?,
            _ if self.layout.set(key, value)? => {}
            _ => return Err(ProfileError::option(option, " of reorder", OPTIONS)),
        }
        Ok(())
    }

    fn check(&self) -> Result<(), ProfileError> {
        let (prefixes, flows) = (self.prefixes, self.flows);
        require(
            prefixes <= MAX_PREFIXES,
            "prefixes",
            prefixes,
            &format!("at most {MAX_PREFIXES}"),
        )?;
        require(flows <= MAX_FLOWS, "flows", flows, &format!("at most {MAX_FLOWS}"))?;
        let expected = "at most share=SHARE of the prefixes";
        require(self.heavy <= self.reordering(), "heavy", self.heavy, expected)?;
        require(self.depth <= 1_000, "depth", self.depth, "at most 1000")?;
        require(self.loss <= 0.5, "loss", self.loss, "a share of at most 0.5")?;
        self.layout.check()
    }

    /// Returns the number of prefixes that reorder.
    fn reordering(&self) -> u64 {
        (self.share * self.prefixes as f64).round() as u64
    }

    /// Returns the index of a flow's prefix.
    fn prefix_of(&self, flow: u64) -> usize {
        (mix(mix(self.seed ^ PREFIXES) ^ flow) % self.prefixes) as usize
    }

    fn prefix(&self, number: usize) -> IpAddr {
        if self.layout.ipv6 {
            IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8_u128 << 96 | (number as u128) << 80))
        } else {
            IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 | (number as u32) << 8))
        }
    }
}

impl FromStr for ReorderProfile {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Self, ProfileError> {
        let mut parts = text.split(',').map(str::trim);
        match parts.next().unwrap_or_default() {
            "reorder" => {}
            name => return Err(ProfileError::name(name)),
        }
        let mut profile = ReorderProfile::default();
        parts.try_for_each(|part| profile.set(part))?;
        profile.check()?;
        Ok(profile)
    }
}

impl fmt::Display for ReorderProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReorderProfile {
            prefixes,
            heavy,
            share,
            depth,
            late,
            loss,
            flows,
            alpha,
            packets,
            rate,
            layout,
            seed,
        } = self;
        write!(
            f,
            "reorder,prefixes={prefixes},heavy={heavy},share={share},depth={depth},late={late},loss={loss}"
        )?;
        write!(
            f,
            ",flows={flows},alpha={alpha},packets={packets},rate={rate}{},seed={seed}",
            layout.options()
        )
    }
}

/// Truth about a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixTruth {
    /// First address of the prefix.
    pub prefix: IpAddr,
    /// Length of the prefix, in bits.
    pub bits: u8,
    /// Whether it has many packets and reorders much.
    pub heavy: bool,
    /// Packets from it.
    pub packets: u64,
    /// Segments with data among the packets, except keep-alives.
    pub segments: u64,
    /// Segments sent once, with a sequence number below the highest of their flow.
    pub out_of_order: u64,
    /// Segments that were sent before.
    pub retransmitted: u64,
    /// Retransmissions with an earlier copy at the observer.
    pub repeated: u64,
    /// Retransmissions without an earlier copy at the observer, with a sequence number below the
    /// highest. They look out of order, except for their delay.
    pub filling: u64,
    /// Segments that begin beyond the end of the highest one.
    pub gaps: u64,
    /// Flows with data.
    pub flows: u64,
}

impl PrefixTruth {
    /// Columns of [`fmt::Display`].
    pub const COLUMNS: &str =
        "prefix,heavy,packets,segments,out_of_order,retransmitted,repeated,filling,gaps,flows";
}

impl fmt::Display for PrefixTruth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PrefixTruth {
            prefix,
            bits,
            packets,
            segments,
            out_of_order,
            retransmitted,
            repeated,
            filling,
            gaps,
            flows,
            ..
        } = self;
        write!(f, "{prefix}/{bits},{},{packets},{segments},{out_of_order},", u8::from(self.heavy))?;
        write!(f, "{retransmitted},{repeated},{filling},{gaps},{flows}")
    }
}

/// Packets of a [`ReorderProfile`], in the order of their times.
#[derive(Debug)]
pub struct ReorderTraffic {
    profile: ReorderProfile,
    /// Distribution of flows.
    ranks: Option<Zipf<f64>>,
    prefixes: Vec<PrefixTruth>,
    /// Share of late segments of each prefix.
    late: Vec<f64>,
    /// Flows that have started.
    flows: HashMap<u64, Flow>,
    /// Rest of the current train: packets and the numbers of their flows.
    train: VecDeque<(u64, PlannedPacket)>,
    trains: u64,
    sent: u64,
    frame: Vec<u8>,
}

/// A connection between a server in a prefix and a client.
#[derive(Debug)]
struct Flow {
    prefix: usize,
    server: SocketAddr,
    client: SocketAddr,
    /// Next sequence number of the server.
    next: u32,
    /// Sequence number of the client, which sends no data.
    client_next: u32,
    /// Highest sequence number of data that passed the observer.
    highest: Option<u32>,
    /// Segments to send again.
    owed: Vec<Retransmission>,
    /// Next sequence number that the client expects, and the segments it has beyond.
    expected: u32,
    ahead: Vec<u32>,
    /// The client's last acknowledgement.
    acknowledged: u32,
    /// Timestamp clocks of server and client at time 0.
    clocks: [u32; 2],
    /// Times of the packets that server and client echo.
    recent: [u64; 2],
}

#[derive(Clone, Copy, Debug)]
struct Retransmission {
    sequence: u32,
    /// Whether no copy has passed the observer.
    unseen: bool,
}

/// A packet of a train.
#[derive(Clone, Copy, Debug)]
enum PlannedPacket {
    Syn,
    SynAck,
    /// A pure acknowledgement by the client.
    Ack,
    KeepAlive {
        sequence: u32,
    },
    Data {
        sequence: u32,
        /// Whether the client receives it.
        arrives: bool,
        /// For a retransmission: whether no copy has passed the observer before.
        again: Option<bool>,
    },
}

impl ReorderTraffic {
    /// Creates the traffic of a profile.
    #[must_use]
    pub fn new(profile: ReorderProfile) -> Self {
        let bits = if profile.layout.ipv6 { 48 } else { 24 };
        let numbers = 0..profile.prefixes as usize;
        let none = |number| PrefixTruth {
            prefix: profile.prefix(number),
            bits,
            heavy: false,
            packets: 0,
            segments: 0,
            out_of_order: 0,
            retransmitted: 0,
            repeated: 0,
            filling: 0,
            gaps: 0,
            flows: 0,
        };
        let mut prefixes: Vec<PrefixTruth> = numbers.clone().map(none).collect();
        let mut late = vec![0.0; prefixes.len()];

        let mut expected = vec![0.0; prefixes.len()];
        (0..profile.flows).for_each(|flow| {
            expected[profile.prefix_of(flow)] += ((flow + 1) as f64).powf(-profile.alpha)
        });
        let mut by_size: Vec<usize> = numbers.collect();
        by_size.sort_by(|a, b| expected[*b].total_cmp(&expected[*a]));
        let mut random = CounterRng(mix(profile.seed ^ PREFIXES));
        // Half of the largest prefixes, so that size alone does not identify them.
        by_size.truncate(2 * profile.heavy as usize);
        by_size.shuffle(&mut random);
        for number in by_size.into_iter().take(profile.heavy as usize) {
            (prefixes[number].heavy, late[number]) = (true, profile.late);
        }
        let mut others: Vec<usize> =
            (0..prefixes.len()).filter(|number| !prefixes[*number].heavy).collect();
        others.shuffle(&mut random);
        let lightly = profile.reordering().saturating_sub(profile.heavy) as usize;
        others.iter().take(lightly).for_each(|number| late[*number] = LIGHT_FACTOR * profile.late);

        ReorderTraffic {
            // Only a profile that was not parsed can contain numbers that Zipf rejects.
            ranks: Zipf::new(profile.flows as f64, profile.alpha).ok(),
            prefixes,
            late,
            flows: HashMap::new(),
            train: VecDeque::new(),
            trains: 0,
            sent: 0,
            frame: Vec::new(),
            profile,
        }
    }

    /// Returns the truth about the packets so far, for every prefix in order.
    #[must_use]
    pub fn truth(&self) -> &[PrefixTruth] {
        &self.prefixes
    }

    /// Returns the next packet: its nanoseconds after the first, and its frame.
    pub fn advance(&mut self) -> Option<(u64, &[u8])> {
        if self.sent >= self.profile.packets {
            return None;
        }
        let at = (self.sent as f64 * 1e9 / self.profile.rate) as u64;
        let planned = loop {
            match self.train.pop_front() {
                Some(planned) => break planned,
                None => self.plan()?,
            }
        };
        self.sent += 1;
        self.send(planned, at);
        Some((at, &self.frame))
    }

    /// Plans the next train.
    fn plan(&mut self) -> Option<()> {
        let ReorderTraffic { profile, ranks, late, flows, train, trains, .. } = self;
        let mut random = CounterRng(mix(profile.seed ^ TRAINS) ^ mix(*trains));
        *trains += 1;
        let rank: f64 = random.sample(*ranks.as_ref()?);
        let number = rank as u64 - 1;
        let mut plan = |what| train.push_back((number, what));
        let flow = flows.entry(number).or_insert_with(|| {
            [PlannedPacket::Syn, PlannedPacket::SynAck, PlannedPacket::Ack]
                .into_iter()
                .for_each(&mut plan);
            Flow::new(profile, number)
        });
        let data = profile.layout.data() as u32;
        if flow.highest.is_some() && flow.owed.is_empty() && random.random_bool(KEEP_ALIVE_SHARE) {
            // One byte that the client already has, as in RFC 1122.
            plan(PlannedPacket::KeepAlive { sequence: flow.next.wrapping_sub(1) });
            plan(PlannedPacket::Ack);
        }
        for owed in std::mem::take(&mut flow.owed) {
            match Loss::draw(profile.loss, &mut random) {
                Some(Loss::Before) => flow.owed.push(owed),
                loss => {
                    let arrives = loss.is_none();
                    if !arrives {
                        flow.owed.push(Retransmission { unseen: false, ..owed });
                    }
                    plan(PlannedPacket::Data {
                        sequence: owed.sequence,
                        arrives,
                        again: Some(owed.unseen),
                    });
                }
            }
        }
        // Late segments, with the number of segments that must precede each.
        let mut lagging: VecDeque<(u64, PlannedPacket)> = VecDeque::new();
        for _ in 0..random.random_range(1..=MAX_TRAIN.max(4 * profile.depth)) {
            let sequence = flow.next;
            flow.next = flow.next.wrapping_add(data);
            let loss = Loss::draw(profile.loss, &mut random);
            let segment = PlannedPacket::Data { sequence, arrives: loss.is_none(), again: None };
            match loss {
                Some(loss) => {
                    flow.owed.push(Retransmission { sequence, unseen: loss == Loss::Before })
                }
                None if random.random_bool(late[flow.prefix]) => {
                    lagging.push_back((profile.depth, segment));
                    continue;
                }
                None => {}
            }
            if loss != Some(Loss::Before) {
                plan(segment);
                lagging.iter_mut().for_each(|(left, _)| *left -= 1);
                while let Some((_, segment)) = lagging.pop_front_if(|(left, _)| *left == 0) {
                    plan(segment);
                }
            }
        }
        lagging.into_iter().for_each(|(_, segment)| plan(segment));
        plan(PlannedPacket::Ack);
        Some(())
    }

    /// Builds the frame of a packet, and counts it.
    fn send(&mut self, (flow, what): (u64, PlannedPacket), at: u64) {
        let ReorderTraffic { profile, prefixes, flows, frame, .. } = self;
        let Some(flow) = flows.get_mut(&flow) else { return };
        let truth = &mut prefixes[flow.prefix];
        let from_client = matches!(what, PlannedPacket::Syn | PlannedPacket::Ack);
        truth.packets += u64::from(!from_client);
        let (flags, sequence, data) = match what {
            PlannedPacket::Syn => (flag::SYN, flow.client_next.wrapping_sub(1), 0),
            PlannedPacket::SynAck => (flag::SYN | flag::ACK, flow.expected.wrapping_sub(1), 0),
            PlannedPacket::Ack => (flag::ACK, flow.client_next, 0),
            PlannedPacket::KeepAlive { sequence } => (flag::ACK, sequence, 1),
            PlannedPacket::Data { sequence, .. } => {
                (flag::PSH | flag::ACK, sequence, profile.layout.data())
            }
        };
        let (source, destination) =
            if from_client { (flow.client, flow.server) } else { (flow.server, flow.client) };
        let [own, others] = if from_client { [1, 0] } else { [0, 1] };
        let acknowledgement = if from_client { flow.expected } else { flow.client_next };
        let echo = if matches!(what, PlannedPacket::Syn) {
            0
        } else {
            ticks(flow.clocks[others], flow.recent[own])
        };
        let stamps = [ticks(flow.clocks[own], at), echo];
        profile.layout.tcp(
            &TcpSegment { source, destination, flags, sequence, acknowledgement, stamps, data },
            frame,
        );

        if let PlannedPacket::Data { sequence, arrives, again } = what {
            let data = profile.layout.data() as u32;
            let late = flow.highest.is_some_and(|highest| before(sequence, highest));
            truth.segments += 1;
            truth.flows += u64::from(flow.highest.is_none());
            truth.gaps += u64::from(
                flow.highest.is_some_and(|highest| before(highest.wrapping_add(data), sequence)),
            );
            match again {
                None => truth.out_of_order += u64::from(late),
                Some(unseen) => {
                    truth.retransmitted += 1;
                    truth.repeated += u64::from(!unseen);
                    truth.filling += u64::from(unseen && late);
                }
            }
            flow.pass(sequence, data, arrives, at);
        } else {
            flow.recent[others] = at;
            if from_client {
                flow.acknowledged = flow.expected;
            }
        }
    }
}

impl Flow {
    fn new(profile: &ReorderProfile, number: u64) -> Self {
        let mut random = CounterRng(mix(profile.seed ^ FLOWS) ^ mix(number));
        let prefix = profile.prefix_of(number);
        let host = random.random_range(1..=254_u8);
        let server = match profile.prefix(prefix) {
            IpAddr::V4(first) => IpAddr::V4(Ipv4Addr::from_bits(first.to_bits() | u32::from(host))),
            IpAddr::V6(first) => {
                IpAddr::V6(Ipv6Addr::from_bits(first.to_bits() | u128::from(host)))
            }
        };
        // Each flow has its own client, up to 2^17; after these its own port.
        let (low, high) = (number as u32 & 0x1_ffff, number >> 17);
        let client = if profile.layout.ipv6 {
            IpAddr::V6(Ipv6Addr::from_bits(0x3fff_u128 << 112 | u128::from(low)))
        } else {
            IpAddr::V4(Ipv4Addr::from_bits(CLIENTS | low))
        };
        let next = first_sequence(random.random());
        Flow {
            prefix,
            server: SocketAddr::new(server, HTTPS),
            client: SocketAddr::new(client, 32_768 + high as u16),
            next,
            client_next: random.random(),
            highest: None,
            owed: Vec::new(),
            expected: next,
            ahead: Vec::new(),
            acknowledged: next,
            clocks: [random.random(), random.random()],
            recent: [0; 2],
        }
    }

    /// Processes data that pass the observer, and reach the client unless they are lost after it.
    fn pass(&mut self, sequence: u32, data: u32, arrives: bool, at: u64) {
        if self.highest.is_none_or(|highest| before(highest, sequence)) {
            self.highest = Some(sequence);
        }
        if !arrives {
            return;
        }
        // RFC 7323, section 4.3: of segments with one acknowledgement, the first one in order is
        // echoed.
        if !before(self.acknowledged, sequence) {
            self.recent[1] = at;
        }
        if sequence == self.expected {
            self.expected = self.expected.wrapping_add(data);
            while let Some(place) = self.ahead.iter().position(|ahead| *ahead == self.expected) {
                self.ahead.swap_remove(place);
                self.expected = self.expected.wrapping_add(data);
            }
        } else if before(self.expected, sequence) && !self.ahead.contains(&sequence) {
            self.ahead.push(sequence);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// Before the observer.
    Before,
    /// Between the observer and the client.
    After,
}

impl Loss {
    fn draw(share: f64, random: &mut CounterRng) -> Option<Loss> {
        if !random.random_bool(share) {
            return None;
        }
        Some(if random.random_bool(LOSS_BEFORE_SHARE) { Loss::Before } else { Loss::After })
    }
}

/// Returns whether a sequence number precedes another.
fn before(sequence: u32, other: u32) -> bool {
    (sequence.wrapping_sub(other) as i32) < 0
}
