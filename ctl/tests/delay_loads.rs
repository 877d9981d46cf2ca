//! Delays among other packets, chosen by an adversary or not: whether the reported intervals contain
//! the true delays, or the report marks the window as crowded.
//!
//! [`LoadTrial::run`] counts one trace of a kind with an algorithm. Exchanges arrive at random times,
//! with log-normal delays around 20 ms. Packets of the background come at a fixed rate from a number
//! of flows in turn: requests with the tokens that [`Tokens`] describes, answered or not.
//! [`Outcomes`] adds up trials. [`LOADS`] are those of the table in `docs/security.md`, which the
//! first test prints.

use flowgauge_core::delay::{Algorithm, Counts, DelayKind, Kinds, Settings as DelaySettings};
use flowgauge_core::{
    Arrival, Context, Link, Settings, Shared, Sharing, State, Tabulation, WindowTotals, Zeroed,
    cardinality,
};
use flowgauge_ctl::measurement::delay::estimate::{
    DelayDistribution, Fridge, Miscount, PERCENTILES, estimate,
};
use flowgauge_testing::chance::binomial;
use flowgauge_testing::extent;
use flowgauge_traffic::frame::{self, Ip, Tcp, flag};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, LogNormal};
use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

const SECOND: u64 = 1_000_000_000;
/// Median of the delays, in nanoseconds.
const DELAY: f64 = 20e6;
/// Standard deviation of the logarithm of the delays.
const SPREAD: f64 = 0.5;
/// Delay of answers to background requests, in nanoseconds.
const BACKGROUND_DELAY: u64 = 1_000_000;
/// Time after which the tokens of [`Tokens::Clock`] change: a clock of 10 Hz.
const CLOCK: u64 = SECOND / 10;
/// Packets in a round of a connection with a spin bit.
const PACKETS_PER_ROUND: u32 = 5;
/// Number of the first host of the background.
const BACKGROUND: u32 = 1 << 23;
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// Tokens of background requests. Of the spin bit, the token's lowest bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tokens {
    /// Each flow repeats one.
    Constant,
    /// Each flow repeats two in turn.
    Alternating,
    /// Each flow repeats one after its answer. Of timestamps, the token changes each time.
    Keepalive,
    /// Each flow's token changes ten times a second.
    Clock,
    /// Each packet is another flow with another token.
    Fresh,
    /// Not requests, but acknowledgements of random numbers, from the server of an exchange to its
    /// host. The sender knows both ends, but does not see the data.
    Guessed,
}

impl Tokens {
    /// Returns whether each request is answered after a millisecond.
    fn are_answered(self) -> bool {
        matches!(self, Tokens::Clock | Tokens::Keepalive)
    }
}

/// Exchanges and background of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Load {
    /// Name in the table.
    name: &'static str,
    /// Exchanges per second.
    exchanges: u64,
    /// Number of flows that send other packets in turn.
    flows: u32,
    /// Other packets per second.
    rate: u64,
    /// Tokens of the other packets.
    tokens: Tokens,
}

impl Load {
    const fn new(
        name: &'static str,
        exchanges: u64,
        (flows, rate): (u32, u64),
        tokens: Tokens,
    ) -> Self {
        Load { name, exchanges, flows, rate, tokens }
    }
}

/// Loads of the table.
const LOADS: [Load; 14] = [
    Load::new("few exchanges", 100, (0, 0), Tokens::Constant),
    Load::new("exchanges alone", 500, (0, 0), Tokens::Constant),
    Load::new("10 times as many", 5000, (0, 0), Tokens::Constant),
    Load::new("1 flow repeats", 500, (1, 50_000), Tokens::Constant),
    Load::new("16 flows repeat", 500, (16, 50_000), Tokens::Constant),
    Load::new("300 flows repeat", 500, (300, 50_000), Tokens::Constant),
    Load::new("300 flows repeat, slowly", 500, (300, 5000), Tokens::Constant),
    Load::new("1000 flows repeat", 500, (1000, 50_000), Tokens::Constant),
    Load::new("1 flow alternates", 500, (1, 50_000), Tokens::Alternating),
    Load::new("100 flows alternate", 500, (100, 50_000), Tokens::Alternating),
    Load::new("600 flows alternate", 500, (600, 50_000), Tokens::Alternating),
    Load::new("300 clocks of 10 Hz", 500, (300, 50_000), Tokens::Clock),
    Load::new("all different", 500, (1, 20_000), Tokens::Fresh),
    Load::new("keepalives", 100, (400, 800), Tokens::Keepalive),
];

/// One trace.
#[derive(Clone, Copy, Debug)]
struct LoadTrial {
    /// Kind of all exchanges.
    kind: DelayKind,
    /// Algorithm of the tables.
    algorithm: Algorithm,
    /// Load.
    load: Load,
    /// Length in seconds.
    seconds: u64,
    /// Seed of times, delays and tokens, and of the table's hash.
    seed: u64,
}

/// Arrival of a packet.
#[derive(Clone, Copy)]
struct Event {
    at: u64,
    host: u32,
    token: u32,
    is_answer: bool,
}

/// Packets in order, and the delays among them.
#[derive(Default)]
struct Trace {
    events: Vec<Event>,
    delays: Vec<u64>,
}

impl Trace {
    fn push(&mut self, at: u64, host: u32, token: u32, is_answer: bool) {
        self.events.push(Event { at, host, token, is_answer });
    }

    fn exchange(&mut self, at: u64, delay: u64, host: u32, token: u32) {
        self.push(at, host, token, false);
        self.push(at + delay, host, token, true);
        self.delays.push(delay);
    }
}

/// Builds the request of a host, or its answer.
fn packet(kind: DelayKind, Event { host, token, is_answer, .. }: Event) -> Vec<u8> {
    use DelayKind::{Dns, Icmp, QuicSpin, TcpData, TcpDuration, TcpHandshake, TcpTimestamps};
    let host = Ipv4Addr::from_bits(0x0a00_0000 | host);
    let port = if kind == Dns { 53 } else { 443 };
    let (from, to, ports) =
        if is_answer { (SERVER, host, [port, 4000]) } else { (host, SERVER, [4000, port]) };
    let tcp = |flags: u8, sequence: u32, acknowledgement: u32, options: &[u8], data: &[u8]| {
        let segment = Tcp { ports, flags, sequence, acknowledgement, options };
        Ip::new(from, to, frame::TCP).frame(&segment.segment(data))
    };
    let udp = |data: &[u8]| Ip::new(from, to, frame::UDP).frame(&frame::udp(ports, data));
    match (kind, is_answer) {
        (TcpHandshake | TcpDuration, false) => tcp(flag::SYN, token, 0, &[], &[]),
        (TcpHandshake, true) => tcp(flag::SYN | flag::ACK, 0, token.wrapping_add(1), &[], &[]),
        (TcpDuration, true) => tcp(flag::RST, 0, 0, &[], &[]),
        (TcpData, false) => tcp(flag::ACK, token, 0, &[], &[0; 10]),
        (TcpData, true) => tcp(flag::ACK, 0, token.wrapping_add(10), &[], &[]),
        (TcpTimestamps, _) => {
            // Two no-operations and the option, as Linux sends them. Zero is no timestamp.
            let stamp = (token | 1).to_be_bytes();
            let [sent, echoed] = if is_answer { [[0; 4], stamp] } else { [stamp, [0; 4]] };
            let options = [&[1, 1, 8, 10], &sent[..], &echoed].concat();
            tcp(flag::ACK, 0, 0, &options, if is_answer { &[] } else { &[0; 10] })
        }
        (Dns, _) => udp(&frame::dns(token as u16, is_answer)),
        (Icmp, _) => frame::echo(from, to, token, is_answer),
        (QuicSpin, _) => {
            let first = if token & 1 == 1 { 0x60 } else { 0x40 };
            udp(&[first, 1, 2, 3])
        }
    }
}

impl LoadTrial {
    fn trace(&self) -> Trace {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        let mut trace = Trace::default();
        let shape = LogNormal::new(DELAY.ln(), SPREAD).unwrap();
        let delay = |random: &mut ChaCha8Rng| shape.sample(random) as u64;
        let exchanges = (self.load.exchanges * self.seconds) as u32;
        if self.kind == DelayKind::QuicSpin {
            self.spin(&mut trace, &mut random, delay);
        } else {
            for host in 0..exchanges {
                let at = random.random_range(0..self.seconds * SECOND);
                let delay = delay(&mut random);
                trace.exchange(at, delay, host, random.random());
            }
        }
        self.background(&mut trace, &mut random);
        trace.events.sort_by_key(|event| event.at);
        trace.delays.sort_unstable();
        trace
    }

    /// Adds connections with a spin bit, as many as make the exchanges.
    fn spin(
        &self,
        trace: &mut Trace,
        random: &mut ChaCha8Rng,
        delay: impl Fn(&mut ChaCha8Rng) -> u64,
    ) {
        let mean = DELAY * (SPREAD * SPREAD / 2.0).exp() / SECOND as f64;
        let connections = (self.load.exchanges as f64 * mean).round().max(1.0) as u32;
        for host in 0..connections {
            // The round before the first edge is not whole.
            let (mut at, mut bit) = (random.random_range(0..DELAY as u64), 0);
            while at < self.seconds * SECOND {
                let round = delay(random);
                trace.push(at, host, bit, false);
                for _ in 1..PACKETS_PER_ROUND {
                    trace.push(at + random.random_range(0..round.max(1)), host, bit, false);
                }
                at += round;
                bit ^= 1;
                if at < self.seconds * SECOND {
                    trace.delays.push(round);
                }
            }
        }
    }

    fn background(&self, trace: &mut Trace, random: &mut ChaCha8Rng) {
        let Load { exchanges, flows, rate, tokens, .. } = self.load;
        let hosts = (exchanges * self.seconds) as u32;
        let bases: Vec<u32> = (0..flows).map(|_| random.random()).collect();
        // Last token of each flow, and since when.
        let mut lasts: BTreeMap<u32, (u32, u64)> = BTreeMap::new();
        let packets = rate * self.seconds;
        for index in 0..packets {
            let at = index * self.seconds * SECOND / packets;
            let turn = (index / u64::from(flows)) as u32;
            let flow = (index % u64::from(flows)) as u32;
            let base = bases.get(flow as usize).copied().unwrap_or_default();
            let (host, token) = match tokens {
                Tokens::Keepalive if self.kind == DelayKind::TcpTimestamps => {
                    (flow, base.wrapping_add(2 * turn))
                }
                Tokens::Constant | Tokens::Keepalive => (flow, base),
                Tokens::Alternating => (flow, base ^ (turn & 1) << 8 ^ (turn & 1)),
                Tokens::Clock => (flow, base.wrapping_add(3 * (at / CLOCK) as u32)),
                Tokens::Fresh => (index as u32, random.random()),
                Tokens::Guessed => {
                    trace.push(at, random.random_range(0..hosts), random.random(), true);
                    continue;
                }
            };
            let (host, last) = (BACKGROUND + host, lasts.get(&host).copied());
            let is_first = last.is_none_or(|(last, _)| last != token);
            if self.kind == DelayKind::QuicSpin {
                trace.push(at, host, token, false);
                let is_edge = last.is_some_and(|(last, _)| (last ^ token) & 1 == 1);
                let since = last.map_or(0, |(_, since)| since);
                // Before the first edge it is not known when the round began.
                if is_edge && since > 0 {
                    trace.delays.push(at - since);
                }
                if is_edge || last.is_none() {
                    lasts.insert(host - BACKGROUND, (token, if is_edge { at } else { 0 }));
                }
                continue;
            }
            lasts.insert(host - BACKGROUND, (token, at));
            if !tokens.are_answered() {
                trace.push(at, host, token, false);
            } else if is_first || self.kind != DelayKind::TcpTimestamps {
                trace.exchange(at, BACKGROUND_DELAY, host, token);
            } else {
                // Only the first segment with a timestamp is a request.
                trace.push(at, host, token, false);
                trace.push(at + BACKGROUND_DELAY, host, token, true);
            }
        }
    }

    /// Counts the trace in one window with tables of the default size and compares the report with
    /// the truth; `None` if no delay was seen.
    fn run(&self) -> Option<Outcomes> {
        let Trace { events, delays } = self.trace();
        let found = self.count(&events)?;
        let mut outcomes = Outcomes::one();
        if found.crowded {
            return Some(Outcomes { crowded: 1, ..outcomes });
        }
        let number = delays.len() as f64;
        let answered = found.answered.low..=found.answered.high;
        outcomes.answered = u64::from(answered.contains(&number));
        let intervals = found.corrected.into_iter().zip(PERCENTILES);
        for (held, (interval, (share, _))) in outcomes.percentiles.iter_mut().zip(intervals) {
            let nth = (share * number).ceil() as usize;
            let exact = delays.get(nth.saturating_sub(1)).map_or(0.0, |delay| *delay as f64);
            let is_below = interval.high.is_none_or(|high| exact <= high);
            *held = u64::from(interval.low <= exact && is_below);
        }
        Some(outcomes)
    }

    fn settings(&self) -> DelaySettings {
        let (kinds, algorithm) = (Kinds::NONE.with(self.kind), self.algorithm);
        DelaySettings { kinds, algorithm, ..DelaySettings::DEFAULT }
    }

    /// Counts packets in one bank.
    fn counted(&self, events: &[Event]) -> (Box<WindowTotals>, Counts) {
        let (kind, delay) = (self.kind, self.settings());
        let off = cardinality::Settings {
            mode: cardinality::Mode::Off,
            ..cardinality::Settings::DEFAULT
        };
        let settings = Settings { delay, ..Settings::only(off) };
        let tabulation = Tabulation::from_seed(self.seed);
        let context = Context::new(settings, &tabulation, Sharing::Alone);
        let (mut state, shared) = (State::boxed(), Shared::boxed());
        shared.persistent.prepare(&settings);
        for event in events {
            let frame = packet(kind, *event);
            let arrival = Arrival::new(frame.len() as u32, event.at);
            state.active(&shared, 0).record(&context, Link::Ethernet, &frame[..], arrival);
        }
        let mut totals = WindowTotals::boxed();
        for bank in &state.banks {
            totals.merge(bank, &settings);
        }
        let counts = totals.delay.counts(&delay, kind, false);
        (totals, counts)
    }

    fn count(&self, events: &[Event]) -> Option<DelayDistribution> {
        let (kind, delay) = (self.kind, self.settings());
        let (totals, counts) = self.counted(events);
        let fridge = |fridge| {
            let (share, bits) = delay.admitted(fridge);
            let histogram = totals.delay.histogram(&delay, kind, false, fridge)?;
            Some(Fridge { histogram, admitted: f64::from(share) / 2_f64.powi(bits as i32) })
        };
        let fridges: Vec<Fridge<'_>> = (0..delay.fridges()).filter_map(fridge).collect();
        let miscount = Miscount::of(&delay, kind, &counts);
        estimate(&fridges, miscount, f64::from(1_u32 << kind.tick_bits()), 1.0, 0.0)
    }
}

/// Numbers of trials by outcome. Crowded trials count as nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Outcomes {
    /// All trials.
    trials: u64,
    /// Trials whose report is crowded.
    crowded: u64,
    /// Trials that hold the number of answers.
    answered: u64,
    /// Trials that hold each percentile.
    percentiles: [u64; PERCENTILES.len()],
}

impl Outcomes {
    /// Runs trials with seeds from 0 on.
    fn of(trial: LoadTrial, seeds: u64) -> Self {
        let mut sum = Outcomes::default();
        for seed in 0..seeds {
            sum.merge(&LoadTrial { seed, ..trial }.run().unwrap_or_else(Outcomes::one));
        }
        sum
    }

    /// Returns the counts of one trial: zeros, but for the number of trials.
    fn one() -> Self {
        Outcomes { trials: 1, ..Outcomes::default() }
    }

    /// Adds the numbers of other trials.
    fn merge(&mut self, other: &Outcomes) {
        self.trials += other.trials;
        self.crowded += other.crowded;
        self.answered += other.answered;
        for (sum, held) in self.percentiles.iter_mut().zip(other.percentiles) {
            *sum += held;
        }
    }

    /// Returns in how many trials the truth is outside of an interval, and no report is crowded: of
    /// the number of answers or the percentile for which these are most.
    fn missed(&self) -> u64 {
        let held = self.percentiles.into_iter().fold(self.answered, u64::min);
        self.trials - self.crowded - held
    }
}

impl fmt::Display for Outcomes {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcomes { trials, crowded, answered, percentiles } = self;
        write!(to, "{crowded:>3} crowded, {answered:>3} answered, {percentiles:>3?} of {trials}")
    }
}

const WEIGHING: [Algorithm; 2] = [Algorithm::Fridge, Algorithm::MultiFridge];
/// Probability that a correct interval misses the truth.
const MISSES: f64 = 0.05;

/// Returns all pairs of a kind and one of these algorithms.
fn of_each_kind(algorithms: [Algorithm; 2]) -> impl Iterator<Item = (DelayKind, Algorithm)> {
    DelayKind::ALL.into_iter().flat_map(move |kind| algorithms.map(|algorithm| (kind, algorithm)))
}

/// Checks that chance explains how often the truth is outside.
#[track_caller]
fn check(outcomes: &Outcomes, what: &str) {
    let most = *binomial(outcomes.trials - outcomes.crowded, MISSES).end();
    assert!(outcomes.missed() <= most, "{what}: {outcomes}, at most {most} may miss");
}

#[test]
fn intervals_hold_the_truth_or_the_window_is_crowded() {
    let (seeds, seconds) = extent((1, 1), (20, 2));
    let mut total = Outcomes::default();
    for (kind, algorithm) in of_each_kind(WEIGHING) {
        let remembers = DelaySettings { algorithm, ..DelaySettings::DEFAULT }.remembers(kind);
        let mut all = Outcomes::default();
        for load in LOADS {
            let trial = LoadTrial { kind, algorithm, load, seconds, seed: 0 };
            let outcomes = Outcomes::of(trial, seeds);
            let what = format!("{} {} {}", kind.name(), algorithm.name(), load.name);
            println!("{what}: {outcomes}");
            check(&outcomes, &what);
            match load.name {
                "few exchanges" => {
                    let is_whole = algorithm == Algorithm::Fridge;
                    assert!(outcomes.crowded == 0 || !is_whole, "{what}");
                }
                "exchanges alone" | "1 flow repeats" | "keepalives" => {
                    assert!(outcomes.crowded == 0 || !remembers, "{what}");
                }
                "300 flows repeat" => assert_eq!(outcomes.crowded, seeds, "{what}"),
                _ => {}
            }
            all.merge(&outcomes);
        }
        check(&all, &format!("{} {}", kind.name(), algorithm.name()));
        total.merge(&all);
    }
    // One trial of each load allows for any miss, and those of a kind for four in ten.
    check(&total, "all kinds and algorithms");
}

/// Draws exchanges and other packets, each number with a uniform logarithm.
fn drawn(seed: u64) -> Load {
    use Tokens::{Alternating, Clock, Constant, Fresh, Keepalive};
    const BACKGROUNDS: [Tokens; 5] = [Constant, Alternating, Fresh, Clock, Keepalive];
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut between = |least: f64, most: f64| {
        (least * (most / least).powf(random.random_range(0.0..1.0))).round() as u64
    };
    let (exchanges, flows) = (between(100.0, 5000.0), between(1.0, 1000.0));
    let rate = between(100.0, 50_000.0);
    let tokens = BACKGROUNDS[random.random_range(0..BACKGROUNDS.len())];
    // A flow sends again after four times the delay of its answer.
    let most = if tokens.are_answered() { SECOND / (4 * BACKGROUND_DELAY) * flows } else { rate };
    Load::new("drawn", exchanges, (flows as u32, rate.min(most)), tokens)
}

#[test]
fn intervals_of_drawn_loads_hold_the_truth_or_the_window_is_crowded() {
    let (seeds, seconds) = extent((2, 1), (20, 2));
    let mut all = Outcomes::default();
    for (kind, algorithm) in of_each_kind(WEIGHING) {
        let mut outcomes = Outcomes::default();
        for seed in 0..seeds {
            let load = drawn(seed);
            let trial = LoadTrial { kind, algorithm, load, seconds, seed };
            let outcome = trial.run().unwrap_or_else(Outcomes::one);
            println!("{} {} {load:?}: {outcome:?}", kind.name(), algorithm.name());
            outcomes.merge(&outcome);
        }
        check(&outcomes, &format!("{} {}", kind.name(), algorithm.name()));
        all.merge(&outcomes);
    }
    check(&all, "all kinds and algorithms");
    // Two draws may both be of many packets.
    assert!(all.crowded < all.trials || seeds < 20, "{all}");
}

/// Overwriting and expiring tables have no weights, and the report has no intervals of all
/// delays.
#[test]
fn delays_without_weights_count_once() {
    for (kind, algorithm) in of_each_kind([Algorithm::Overwrite, Algorithm::Expiry]) {
        let loads = LOADS.into_iter().step_by(extent(4, 1));
        for load in loads.chain((0..extent(1, 20)).map(drawn)) {
            let trial = LoadTrial { kind, algorithm, load, seconds: 1, seed: 0 };
            let trace = trial.trace();
            let found = trial.count(&trace.events).unwrap();
            let what = format!("{} {} {}", kind.name(), algorithm.name(), load.name);
            let (seen, all) = (found.samples, trace.delays.len());
            println!("{what}: {seen} of {all} delays seen, p50 {} ns", found.raw[0]);
            assert_eq!((found.answered.value, found.crowded), (seen as f64, false), "{what}");
        }
    }
}

/// A keepalive takes its slot again after an answer, which does not count as an insertion. The load
/// has enough keepalives to fill most of a table otherwise.
#[test]
fn more_keepalives_than_data_do_no_harm() {
    let load = LOADS.into_iter().find(|load| load.name == "keepalives").unwrap();
    let (kind, algorithm) = (DelayKind::TcpData, Algorithm::Fridge);
    let trial = LoadTrial { kind, algorithm, load, seconds: 2, seed: 0 };
    let (_, counts) = trial.counted(&trial.trace().events);
    assert!(counts.miscounted * 2 > counts.inserted, "{counts:?}");
    assert_eq!(trial.run().unwrap().crowded, 0, "{counts:?}");
}

#[test]
fn guessed_acknowledgements_answer_nothing() {
    let load = Load::new("guesses", 500, (1, 20_000), Tokens::Guessed);
    let (kind, algorithm) = (DelayKind::TcpData, Algorithm::Fridge);
    let outcomes = Outcomes::of(LoadTrial { kind, algorithm, load, seconds: 2, seed: 0 }, 5);
    assert_eq!(outcomes.crowded, 0, "{outcomes}");
    check(&outcomes, "guesses");
}
