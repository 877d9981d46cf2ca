//! Traffic with round trips: requests, and the responses that pass the same observer later.
//!
//! [`DelayTraffic`] generates packets in the order of their times, and reports the truth about
//! every round trip. It stores only what is outstanding: future responses and retransmissions, or
//! open connections.

mod conversation;
mod requests;
#[cfg(test)]
mod tests;

use crate::layout::HeaderLayout;
use crate::option::{
    ProfileError, parse, parse_count, parse_duration, parse_number, parse_share, require,
};
use crate::random::{CounterRng, mix};
use conversation::Conversations;
use rand::RngExt;
use requests::RequestGenerator;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

/// Domain separator of the random choices of this traffic.
const DELAYED: u64 = 0x64_656c_6179;
/// First address of servers: 198.18.0.0/15, for benchmarks (RFC 2544), 2^17 addresses.
const SERVERS: u32 = 0xc612_0000;
const SERVER_BITS: u32 = 17;
const HTTPS: u16 = 443;
/// First port of clients, and their number (Linux's `ip_local_port_range`).
const CLIENT_PORTS: (u16, u64) = (32_768, 28_232);
/// Shortest retransmission timeout of Linux.
const SHORTEST_TIMEOUT_NS: u64 = 200_000_000;
const MILLISECOND: u64 = 1_000_000;

const OPTIONS: &str = "shape=log-uniform|bimodal|heavy-tail|conversations, rate=PPS, requests=N, answered=SHARE, min=TIME, max=TIME, \
     loss=SHARE, flows=N, alpha=A, seed=N, size=BYTES, vlan=ID, ipv6, timestamps";

/// Distribution of delays.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum DelayShape {
    /// The logarithm of a delay is uniform: the synthetic trace of the data-plane performance
    /// dissertation (§2.4).
    LogUniform,
    /// Half of the delays are log-uniform from the shortest one to twice that, the others from half
    /// the longest one to the longest.
    Bimodal,
    /// A Pareto distribution between the shortest and the longest delay.
    HeavyTail {
        /// Exponent of the distribution, positive.
        alpha: f64,
    },
    /// Connections from DNS query to FIN. Each has its own shortest delay, log-uniform; its round
    /// trips take up to a quarter longer.
    Conversations,
}

impl DelayShape {
    /// All shapes, with default parameters.
    const ALL: [DelayShape; 4] = [
        DelayShape::LogUniform,
        DelayShape::Bimodal,
        DelayShape::HeavyTail { alpha: 1.2 },
        DelayShape::Conversations,
    ];

    fn name(self) -> &'static str {
        match self {
            DelayShape::LogUniform => "log-uniform",
            DelayShape::Bimodal => "bimodal",
            DelayShape::HeavyTail { .. } => "heavy-tail",
            DelayShape::Conversations => "conversations",
        }
    }
}

/// A description of traffic with round trips: `delay[,OPTION=VALUE]…`, for example
/// `delay,shape=bimodal,max=50ms`.
#[derive(Clone, Debug, PartialEq)]
pub struct DelayProfile {
    /// Distribution of delays.
    pub shape: DelayShape,
    /// Requests per second.
    pub rate: f64,
    /// Number of requests; in conversations, the data segments of clients, and SYNs without an
    /// answer.
    pub requests: u64,
    /// Share of the requests that are answered, in (0, 1].
    pub answered: f64,
    /// Shortest delay, in nanoseconds.
    pub min_ns: u64,
    /// Longest delay, in nanoseconds.
    pub max_ns: u64,
    /// Share of the requests that are lost before the observer, in [0, 0.5]. They are sent again
    /// after a timeout.
    pub loss: f64,
    /// Number of flows, to which requests are assigned in turn. By default each request has its
    /// own.
    pub flows: Option<u64>,
    /// Headers and length of frames.
    pub layout: HeaderLayout,
    /// Seed of random choices.
    pub seed: u64,
}

impl DelayProfile {
    /// Creates the default profile of a shape.
    #[must_use]
    pub fn new(shape: DelayShape) -> Self {
        let connections = shape == DelayShape::Conversations;
        let has_tail = matches!(shape, DelayShape::HeavyTail { .. });
        DelayProfile {
            shape,
            rate: if connections { 10_000.0 } else { 1_000_000.0 },
            requests: if connections { 100_000 } else { 1_250_000 },
            answered: if connections { 0.9 } else { 0.4 },
            min_ns: MILLISECOND / 10,
            max_ns: MILLISECOND * if has_tail { 10_000 } else { 100 },
            loss: 0.0,
            flows: None,
            layout: HeaderLayout::default(),
            seed: 1,
        }
    }

    fn set(&mut self, option: &str) -> Result<(), ProfileError> {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        let time = || parse_duration(key, value, "100us or 50ms");
        match (key, &mut self.shape) {
            // Already processed.
            ("shape", _) => {}
            ("rate", _) => self.rate = parse_number(key, value)?,
            ("requests", _) => self.requests = parse_count(key, value)?,
            ("answered", _) => self.answered = parse_number(key, value)?,
            ("min", _) => self.min_ns = time()?,
            ("max", _) => self.max_ns = time()?,
            ("loss", _) => self.loss = parse_share(key, value)?,
            ("seed", _) => self.seed = parse(key, value, "a whole number")?,
            ("alpha", DelayShape::HeavyTail { alpha }) => *alpha = parse_number(key, value)?,
            ("flows", shape) if *shape != DelayShape::Conversations => {
                self.flows = Some(parse_count(key, value)?);
            }
            _ if self.layout.set(key, value)? => {}
            _ => return Err(ProfileError::option(option, " of delay", OPTIONS)),
        }
        Ok(())
    }

    fn check(&self) -> Result<(), ProfileError> {
        let longest = format!("{:?}", Duration::from_nanos(self.max_ns));
        let expected = "a share of the requests in (0, 1], such as 0.4";
        require(self.answered <= 1.0, "answered", self.answered, expected)?;
        let expected = "a share of the requests of at most 0.5";
        require(self.loss <= 0.5, "loss", self.loss, expected)?;
        let expected = "a time that is at least that of min=TIME";
        require(self.max_ns >= self.min_ns, "max", &longest, expected)?;
        let is_apart = self.shape != DelayShape::Bimodal || self.max_ns >= 4 * self.min_ns;
        let expected = "a time that is at least four times that of min=TIME";
        require(is_apart, "max", &longest, expected)?;
        self.layout.check()
    }

    /// Returns random numbers for the request or the connection of this number.
    fn random(&self, index: u64) -> CounterRng {
        CounterRng(mix(self.seed ^ DELAYED) ^ mix(index))
    }

    /// Returns a random delay.
    fn delay(&self, random: &mut CounterRng) -> u64 {
        let [shortest, longest] = [self.min_ns as f64, self.max_ns as f64];
        let delay = match self.shape {
            DelayShape::Bimodal if random.random_bool(0.5) => {
                log_uniform(shortest, 2.0 * shortest, random)
            }
            DelayShape::Bimodal => log_uniform(longest / 2.0, longest, random),
            DelayShape::HeavyTail { alpha } => {
                let beyond = (shortest / longest).powf(alpha);
                shortest * (1.0 - random.random::<f64>() * (1.0 - beyond)).powf(-1.0 / alpha)
            }
            DelayShape::LogUniform | DelayShape::Conversations => {
                log_uniform(shortest, longest, random)
            }
        };
        (delay as u64).clamp(self.min_ns, self.max_ns)
    }

    /// Returns the delay by losses of a packet that is sent again after this timeout and, while
    /// that is lost too, after twice the previous time.
    fn held_up(&self, timeout: u64, random: &mut CounterRng) -> u64 {
        let (mut held_up, mut timeout) = (0_u64, timeout);
        while self.loss > 0.0 && random.random_bool(self.loss) {
            held_up = held_up.saturating_add(timeout);
            timeout = timeout.saturating_mul(2);
        }
        held_up
    }

    /// Returns request `index` of any shape except [`Conversations`](DelayShape::Conversations),
    /// without its frames.
    #[must_use]
    pub fn request(&self, index: u64) -> RequestTimes {
        let mut random = self.random(index);
        let answered = random.random_bool(self.answered);
        let delay = self.delay(&mut random);
        let held_up = self.held_up(SHORTEST_TIMEOUT_NS, &mut random);
        let due = (index as f64 * 1e9 / self.rate) as u64;
        RequestTimes {
            at_ns: due.saturating_add(held_up),
            delay_ns: answered.then_some(delay),
            retransmission: held_up > 0,
        }
    }
}

fn log_uniform(from: f64, to: f64, random: &mut CounterRng) -> f64 {
    from * (to / from).powf(random.random::<f64>())
}

/// Times of a request and of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTimes {
    /// Time at which it passes the observer, in nanoseconds.
    pub at_ns: u64,
    /// Delay of its response, if there is one, in nanoseconds.
    pub delay_ns: Option<u64>,
    /// Whether it was lost before, and sent again.
    pub retransmission: bool,
}

impl FromStr for DelayProfile {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Self, ProfileError> {
        let mut parts = text.split(',').map(str::trim);
        match parts.next().unwrap_or_default() {
            "delay" => {}
            name => return Err(ProfileError::name(name)),
        }
        // Other options depend on it.
        let shape = parts.clone().filter_map(|part| part.strip_prefix("shape=")).next_back();
        let name = shape.unwrap_or(DelayShape::LogUniform.name());
        let shape = DelayShape::ALL.into_iter().find(|shape| shape.name() == name);
        let expected = "log-uniform, bimodal, heavy-tail or conversations";
        let shape = shape.ok_or_else(|| ProfileError::value("shape", name, expected))?;
        let mut profile = DelayProfile::new(shape);
        parts.try_for_each(|part| profile.set(part))?;
        profile.check()?;
        Ok(profile)
    }
}

impl fmt::Display for DelayProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DelayProfile {
            shape,
            rate,
            requests,
            answered,
            min_ns,
            max_ns,
            loss,
            flows,
            layout,
            seed,
        } = self;
        let [min, max] = [*min_ns, *max_ns].map(Duration::from_nanos);
        write!(f, "delay,shape={}", shape.name())?;
        if let DelayShape::HeavyTail { alpha } = shape {
            write!(f, ",alpha={alpha}")?;
        }
        write!(
            f,
            ",rate={rate},requests={requests},answered={answered},min={min:?},max={max:?},loss={loss}"
        )?;
        if let Some(flows) = flows {
            write!(f, ",flows={flows}")?;
        }
        write!(f, "{},seed={seed}", layout.options())
    }
}

/// Kind of a round trip, by its request and response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RoundTripKind {
    /// DNS query and answer.
    Dns,
    /// SYN and SYN/ACK.
    Handshake,
    /// A TCP segment with data, and the first segment that acknowledges exactly up to its end.
    Data,
    /// FIN and its acknowledgement.
    Fin,
    /// The SYN of a connection, and its first FIN or RST.
    Duration,
    /// The first SYN, FIN or segment with data that has a TCP timestamp, and the first that echoes
    /// it. Reported for conversations only.
    Timestamps,
}

impl RoundTripKind {
    /// Returns the name as in `--delay`, which has no name for the acknowledgement of a FIN.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RoundTripKind::Dns => "dns",
            RoundTripKind::Handshake => "tcp-handshake",
            RoundTripKind::Data => "tcp-data",
            RoundTripKind::Fin => "tcp-fin",
            RoundTripKind::Duration => "tcp-duration",
            RoundTripKind::Timestamps => "tcp-timestamps",
        }
    }
}

/// Truth about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RoundTrip {
    /// Kind of request and response.
    pub kind: RoundTripKind,
    /// Time at which the request passes, in nanoseconds.
    pub request_ns: u64,
    /// Time at which the response passes, if there is one, in nanoseconds.
    pub response_ns: Option<u64>,
    /// Sender of the request.
    pub source: SocketAddr,
    /// Receiver of the request.
    pub destination: SocketAddr,
    /// Whether the request was lost on its way, and sent again.
    pub retransmission: bool,
}

impl RoundTrip {
    /// Columns of [`fmt::Display`].
    pub const COLUMNS: &str =
        "kind,request_ns,response_ns,src,dst,src_port,dst_port,retransmission";
}

impl fmt::Display for RoundTrip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RoundTrip { kind, request_ns, response_ns, source, destination, retransmission } = self;
        write!(f, "{},{request_ns},", kind.name())?;
        if let Some(response_ns) = response_ns {
            write!(f, "{response_ns}")?;
        }
        let (src, dst, src_port, dst_port) =
            (source.ip(), destination.ip(), source.port(), destination.port());
        write!(f, ",{src},{dst},{src_port},{dst_port},{}", u8::from(*retransmission))
    }
}

/// Callback that receives the truth.
pub type TruthCallback<'a> = dyn FnMut(RoundTrip) + 'a;

/// Packets of a [`DelayProfile`], in the order of their times.
#[derive(Debug)]
pub struct DelayTraffic {
    profile: DelayProfile,
    source: Source,
    frame: Vec<u8>,
}

#[derive(Debug)]
enum Source {
    Requests(RequestGenerator),
    Conversations(Conversations),
}

impl DelayTraffic {
    /// Creates the traffic of a profile.
    #[must_use]
    pub fn new(profile: DelayProfile) -> Self {
        let source = match profile.shape {
            DelayShape::Conversations => Source::Conversations(Conversations::default()),
            _ => Source::Requests(RequestGenerator::default()),
        };
        DelayTraffic { profile, source, frame: Vec::new() }
    }

    /// Returns the next packet: its nanoseconds after the first request was due, and its frame.
    /// Reports a request as soon as the time of its response is known: with the request, except for
    /// [`RoundTripKind::Duration`] and [`RoundTripKind::Timestamps`], which are reported with the
    /// response or at the end of the connection.
    pub fn advance(&mut self, report: &mut TruthCallback<'_>) -> Option<(u64, &[u8])> {
        let at = match &mut self.source {
            Source::Requests(requests) => {
                requests.advance(&self.profile, &mut self.frame, report)?
            }
            Source::Conversations(conversations) => {
                conversations.advance(&self.profile, &mut self.frame, report)?
            }
        };
        Some((at, &self.frame))
    }
}

impl Iterator for DelayTraffic {
    type Item = (u64, Vec<u8>);

    fn next(&mut self) -> Option<Self::Item> {
        self.advance(&mut |_| {}).map(|(at, frame)| (at, frame.to_vec()))
    }
}

/// Future events, by time; those of one time in the order in which they were added.
#[derive(Debug)]
struct Agenda<T> {
    events: BTreeMap<(u64, u64), T>,
    added: u64,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Agenda { events: BTreeMap::new(), added: 0 }
    }
}

impl<T> Agenda<T> {
    fn add(&mut self, at: u64, event: T) {
        self.events.insert((at, self.added), event);
        self.added += 1;
    }

    /// Takes the next event, if it is due by then. `None` takes any.
    fn take(&mut self, by: Option<u64>) -> Option<(u64, T)> {
        let next = self.events.first_entry()?;
        let (at, _) = *next.key();
        by.is_none_or(|by| at <= by).then(|| (at, next.remove()))
    }
}
