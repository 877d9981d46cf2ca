//! Delays among packets of an adversary: whether the reported intervals contain the true delays, or
//! the report marks the window as crowded.
//!
//! [`RepetitionTrial::run`] counts one trace. Exchanges arrive at random times, with log-normal
//! delays around 20 ms. An attacker adds packets at a fixed rate: a number of different requests in
//! turn, all unanswered, or acknowledgements of guessed data. [`Outcomes`] adds up trials.

use flowgauge_core::delay::{DelayKind, Kinds, Settings as DelaySettings};
use flowgauge_core::{
    Arrival, Context, Link, Settings, Shared, Sharing, State, Tabulation, WindowTotals, Zeroed,
    cardinality,
};
use flowgauge_ctl::measurement::delay::estimate::{
    DelayDistribution, Fridge, Miscount, PERCENTILES, estimate,
};
use flowgauge_traffic::frame::{self, Ip, Tcp, flag};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, LogNormal};
use std::fmt;
use std::net::Ipv4Addr;

const SECOND: u64 = 1_000_000_000;
/// Median of the delays, in nanoseconds.
const DELAY: f64 = 20e6;
/// Standard deviation of the logarithm of the delays.
const SPREAD: f64 = 0.5;
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// Packet that is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeated {
    /// SYN segment.
    Syn,
    /// Data segment.
    Data,
    /// DNS query.
    Query,
    /// Acknowledgement of a random number, from the server of an exchange to its host. The sender
    /// knows both ends, but does not see the data. All are different.
    Guess,
}

impl Repeated {
    /// All of them.
    pub const ALL: [Repeated; 4] =
        [Repeated::Syn, Repeated::Data, Repeated::Query, Repeated::Guess];

    /// Returns the kind of delay that such packets belong to.
    #[must_use]
    pub fn kind(self) -> DelayKind {
        match self {
            Repeated::Syn => DelayKind::TcpHandshake,
            Repeated::Data | Repeated::Guess => DelayKind::TcpData,
            Repeated::Query => DelayKind::Dns,
        }
    }

    /// Builds the request of a host, or its answer.
    fn frame(self, host: u32, token: u32, is_answer: bool) -> Vec<u8> {
        let host = Ipv4Addr::from_bits(0x0a00_0000 | host);
        let port = if self == Repeated::Query { 53 } else { 443 };
        let (from, to, ports) =
            if is_answer { (SERVER, host, [port, 4000]) } else { (host, SERVER, [4000, port]) };
        let tcp = Tcp { ports, ..Tcp::default() };
        match (self, is_answer) {
            (Repeated::Query, _) => Ip::new(from, to, frame::UDP)
                .frame(&frame::udp(ports, &frame::dns(token as u16, is_answer))),
            (Repeated::Syn, false) => Ip::new(from, to, frame::TCP)
                .frame(&Tcp { flags: flag::SYN, sequence: token, ..tcp }.segment(&[])),
            (Repeated::Syn, true) => {
                let acknowledgement = token.wrapping_add(1);
                let flags = flag::SYN | flag::ACK;
                Ip::new(from, to, frame::TCP)
                    .frame(&Tcp { flags, acknowledgement, ..tcp }.segment(&[]))
            }
            (Repeated::Data | Repeated::Guess, false) => Ip::new(from, to, frame::TCP)
                .frame(&Tcp { flags: flag::ACK, sequence: token, ..tcp }.segment(&[0; 10])),
            (Repeated::Data | Repeated::Guess, true) => {
                let acknowledgement = token.wrapping_add(10);
                Ip::new(from, to, frame::TCP)
                    .frame(&Tcp { flags: flag::ACK, acknowledgement, ..tcp }.segment(&[]))
            }
        }
    }
}

/// One trace.
#[derive(Clone, Copy, Debug)]
pub struct RepetitionTrial {
    /// Repeated packet, and the kind of all exchanges.
    pub repeated: Repeated,
    /// Number of different requests that are repeated in turn.
    pub different: u32,
    /// Repeated packets per second.
    pub rate: u64,
    /// Exchanges per second.
    pub exchanges: u64,
    /// Length in seconds.
    pub seconds: u64,
    /// Seed of times, delays and tokens, and of the table's hash.
    pub seed: u64,
}

/// Result of a trial.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Whether the report says that intervals are too narrow.
    pub crowded: bool,
    /// Whether the interval of the number of answers holds it.
    pub answered: bool,
    /// Whether the interval of each percentile holds it.
    pub percentiles: [bool; PERCENTILES.len()],
}

/// Arrival of a packet.
#[derive(Clone, Copy)]
struct Event {
    at: u64,
    host: u32,
    token: u32,
    is_answer: bool,
}

impl RepetitionTrial {
    fn events(&self) -> (Vec<Event>, Vec<u64>) {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        let (mut events, mut delays) = (Vec::new(), Vec::new());
        let shape = LogNormal::new(DELAY.ln(), SPREAD).ok();
        let hosts = (self.exchanges * self.seconds) as u32;
        for host in 0..hosts {
            let at = random.random_range(0..self.seconds * SECOND);
            let delay = shape.map_or(0, |shape| shape.sample(&mut random) as u64);
            let token = random.random();
            events.push(Event { at, host, token, is_answer: false });
            events.push(Event { at: at + delay, host, token, is_answer: true });
            delays.push(delay);
        }
        let tokens: Vec<u32> = (0..self.different).map(|_| random.random()).collect();
        let mut requests = (1 << 23..).zip(tokens).cycle();
        let packets = self.rate * self.seconds;
        for index in 0..packets {
            let packet = match self.repeated {
                Repeated::Guess => Some((random.random_range(0..hosts), random.random())),
                _ => requests.next(),
            };
            let Some((host, token)) = packet else { break };
            let (at, is_answer) =
                (index * self.seconds * SECOND / packets, self.repeated == Repeated::Guess);
            events.push(Event { at, host, token, is_answer });
        }
        events.sort_by_key(|event| event.at);
        delays.sort_unstable();
        (events, delays)
    }

    /// Counts the trace in one window with the default table and compares the report with the
    /// truth; `None` if no delay was seen.
    #[must_use]
    pub fn run(&self) -> Option<Outcome> {
        let (events, delays) = self.events();
        let found = self.count(&events)?;
        let exact = |share: f64| {
            let nth = (share * delays.len() as f64).ceil() as usize;
            delays.get(nth.saturating_sub(1)).map_or(0.0, |delay| *delay as f64)
        };
        let mut percentiles = [false; PERCENTILES.len()];
        for ((holds, interval), (share, _)) in
            percentiles.iter_mut().zip(found.corrected).zip(PERCENTILES)
        {
            let exact = exact(share);
            *holds = interval.low <= exact && interval.high.is_none_or(|high| exact <= high);
        }
        let number = delays.len() as f64;
        Some(Outcome {
            crowded: found.crowded,
            answered: (found.answered.low..=found.answered.high).contains(&number),
            percentiles,
        })
    }

    fn count(&self, events: &[Event]) -> Option<DelayDistribution> {
        let kind = self.repeated.kind();
        let delay = DelaySettings { kinds: Kinds::NONE.with(kind), ..DelaySettings::DEFAULT };
        let off = cardinality::Settings {
            mode: cardinality::Mode::Off,
            ..cardinality::Settings::DEFAULT
        };
        let settings = Settings { delay, ..Settings::only(off) };
        let tabulation = Tabulation::from_seed(self.seed);
        let context = Context::new(settings, &tabulation, Sharing::Alone);
        let (mut state, shared) = (State::boxed(), Shared::boxed());
        shared.persistent.prepare(&settings);
        for Event { at, host, token, is_answer } in events {
            let frame = self.repeated.frame(*host, *token, *is_answer);
            let arrival = Arrival::new(frame.len() as u32, *at);
            state.active(&shared, 0).record(&context, Link::Ethernet, &frame[..], arrival);
        }
        let mut totals = WindowTotals::boxed();
        for bank in &state.banks {
            totals.merge(bank, &settings);
        }
        let counts = totals.delay.counts(&delay, kind, false);
        let histogram = totals.delay.histogram(&delay, kind, false, 0)?;
        let tick_ns = f64::from(1_u32 << kind.tick_bits());
        estimate(&[Fridge { histogram, admitted: 1.0 }], Miscount::of(&counts), tick_ns, 1.0)
    }
}

/// Numbers of trials by outcome. Crowded trials count as nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// All trials.
    pub trials: usize,
    /// Trials whose report is crowded.
    pub crowded: usize,
    /// Trials that hold the number of answers.
    pub answered: usize,
    /// Trials that hold each percentile.
    pub percentiles: [usize; PERCENTILES.len()],
}

impl Outcomes {
    /// Runs trials with seeds from 0 on.
    #[must_use]
    pub fn of(trial: RepetitionTrial, seeds: u64) -> Self {
        let mut sum = Outcomes::default();
        for seed in 0..seeds {
            sum.add(&RepetitionTrial { seed, ..trial }.run().unwrap_or_default());
        }
        sum
    }

    fn add(&mut self, outcome: &Outcome) {
        self.trials += 1;
        if outcome.crowded {
            self.crowded += 1;
            return;
        }
        self.answered += usize::from(outcome.answered);
        for (held, holds) in self.percentiles.iter_mut().zip(outcome.percentiles) {
            *held += usize::from(holds);
        }
    }

    /// Returns whether 92 % of the trials hold the number of answers and each percentile, or are
    /// crowded.
    #[must_use]
    pub fn hold(&self) -> bool {
        let holds = |held: usize| (held + self.crowded) * 100 >= self.trials * 92;
        holds(self.answered) && self.percentiles.into_iter().all(holds)
    }
}

impl fmt::Display for Outcomes {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcomes { trials, crowded, answered, percentiles } = self;
        write!(to, "{crowded:>3} crowded, {answered:>3} answered, {percentiles:>3?} of {trials}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the outcomes of five trials of two seconds.
    fn few(repeated: Repeated, different: u32, rate: u64) -> Outcomes {
        let trial =
            RepetitionTrial { repeated, different, rate, exchanges: 500, seconds: 2, seed: 0 };
        Outcomes::of(trial, 5)
    }

    /// One of five may miss by chance. `flowgauge-bench`'s example `repeated_requests` has more.
    #[test]
    fn repeated_requests_leave_intervals_right_or_are_reported() {
        for (repeated, different) in [
            (Repeated::Syn, 1),
            (Repeated::Data, 1),
            (Repeated::Query, 1),
            (Repeated::Syn, 16),
            (Repeated::Data, 30),
            (Repeated::Query, 1024),
            (Repeated::Syn, 4096),
            (Repeated::Syn, 1 << 20),
            (Repeated::Guess, 1),
        ] {
            let outcomes = few(repeated, different, 20_000);
            println!("{repeated:?}, {different}: {outcomes}");
            let least = outcomes.percentiles.into_iter().fold(outcomes.answered, usize::min);
            assert!(least + outcomes.crowded >= 4, "{repeated:?}, {different}: {outcomes}");
            assert!(different > 1 || outcomes.crowded == 0, "{repeated:?}: {outcomes}");
        }
    }

    #[test]
    fn requests_that_take_turns_are_reported() {
        assert_eq!(few(Repeated::Syn, 300, 20_000).crowded, 5);
    }
}
