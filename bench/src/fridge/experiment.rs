//! One trace of round trips through tables of several algorithms and sizes.

use flowgauge_core::delay::histogram::Histogram;
use flowgauge_core::delay::sample::Outbox;
use flowgauge_core::delay::{Algorithm, Kind, Kinds, Settings};
use flowgauge_core::measurement::{Empty, Listed, Parts, Pass};
use flowgauge_core::{
    Arrival, Bank, Context, Delay, Link, Measurement, Observation, Record, Shared, SharedLasting,
    Sharing, State, Tabulation, Zeroed,
};
use flowgauge_ctl::measurement::delay::estimate::{Fridge, quantiles};
use flowgauge_dataplane::traffic::delay::{DelayProfile, DelayTraffic, Request, Shape};

/// Requests of a trace.
pub const REQUESTS: u64 = 1_250_000;

/// Slots where nothing else is said, as a power of two.
pub const MEMORY_LOG2: u8 = 10;

/// Share of the requests that the fridge admits there: one in two to this power.
pub const ADMIT_LOG2: u8 = 6;

/// Sizes that are compared, as powers of two.
pub const MEMORIES_LOG2: [u8; 7] = [8, 9, 10, 11, 12, 13, 14];

/// Shares that are compared, one in two to these powers.
pub const ADMITS_LOG2: [u8; 9] = [0, 2, 4, 5, 6, 7, 8, 10, 12];

/// Requests that are put in the table in the life of one, of all that come: what sizes are compared
/// at, as a power of two.
const LIFE_LOG2: u8 = MEMORY_LOG2 + ADMIT_LOG2;

/// Percentiles that are looked at: from the 5th on.
const FIRST: u32 = 5;
const PERCENTILES: usize = 95;

/// Packets that are read at a time.
const BATCH: usize = 512;

/// How delays of a trace are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipe {
    /// The dissertation's synthetic trace.
    LogUniform,
    /// The same, with two groups of delays.
    Bimodal,
}

impl Recipe {
    /// All of them.
    pub const ALL: [Recipe; 2] = [Recipe::LogUniform, Recipe::Bimodal];

    /// The name on the command line of `generate`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Recipe::LogUniform => "log-uniform",
            Recipe::Bimodal => "bimodal",
        }
    }

    /// The percentiles whose errors are told. The median of two groups of the same size lies
    /// between them, where no delay is.
    #[must_use]
    pub fn percentiles(self) -> [u32; 3] {
        match self {
            Recipe::LogUniform => [50, 95, 99],
            Recipe::Bimodal => [25, 95, 99],
        }
    }

    /// Whether a percentile counts for the gap: those next to the step between two groups do not.
    fn is_told(self, percentile: u32) -> bool {
        (5..=95).contains(&percentile)
            && (self == Recipe::LogUniform || percentile.abs_diff(50) > 5)
    }

    fn profile(self, requests: u64) -> DelayProfile {
        let shape = match self {
            Recipe::LogUniform => Shape::LogUniform,
            Recipe::Bimodal => Shape::Bimodal,
        };
        DelayProfile { requests, ..DelayProfile::new(shape) }
    }
}

/// What happens to requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// One fridge.
    Fridge,
    /// Four of a quarter of the slots each.
    MultiFridge,
    /// Every request is put in the table.
    Overwrite,
    /// A request stays until it is older than this share of the true delays.
    Expiry(f64),
}

/// A table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// What happens to requests.
    pub method: Method,
    /// Slots, as a power of two.
    pub memory_log2: u8,
    /// One request in two to this power is admitted.
    pub admit_log2: u8,
}

impl Setup {
    /// The comparison of figure 2.2.
    pub const COMPARED: [Setup; 4] = [
        Setup { method: Method::Fridge, memory_log2: MEMORY_LOG2, admit_log2: ADMIT_LOG2 },
        Setup { method: Method::Overwrite, memory_log2: MEMORY_LOG2, admit_log2: 0 },
        Setup { method: Method::Expiry(0.99), memory_log2: MEMORY_LOG2, admit_log2: 0 },
        Setup { method: Method::Expiry(0.8), memory_log2: MEMORY_LOG2, admit_log2: 0 },
    ];

    /// A fridge of the usual size.
    #[must_use]
    pub const fn admitting(admit_log2: u8) -> Setup {
        Setup { method: Method::Fridge, memory_log2: MEMORY_LOG2, admit_log2 }
    }

    /// What is compared when requests stop: one fridge and four, of the usual size.
    #[must_use]
    pub fn stopping() -> Vec<Setup> {
        [Method::Fridge, Method::MultiFridge]
            .into_iter()
            .filter_map(|method| Setup::of(method, MEMORY_LOG2))
            .collect()
    }

    /// What a method does best with this memory; nothing if it cannot work with so little.
    #[must_use]
    pub fn of(method: Method, memory_log2: u8) -> Option<Setup> {
        let admit_log2 = match method {
            Method::Fridge => LIFE_LOG2.saturating_sub(memory_log2),
            // The longest of four lives is two to the power of four longer than that of a fridge of
            // all slots would be.
            Method::MultiFridge => (LIFE_LOG2 - 3).saturating_sub(memory_log2),
            Method::Overwrite | Method::Expiry(_) => 0,
        };
        let setup = Setup { method, memory_log2, admit_log2 };
        setup.settings(&[]).problem().is_none().then_some(setup)
    }

    /// All that are compared.
    #[must_use]
    pub fn all() -> Vec<Setup> {
        let by_memory =
            |memory| METHODS.into_iter().filter_map(move |method| Setup::of(method, memory));
        let mut all = Setup::COMPARED.to_vec();
        for setup in ADMITS_LOG2
            .into_iter()
            .map(Setup::admitting)
            .chain(MEMORIES_LOG2.into_iter().flat_map(by_memory))
        {
            if !all.contains(&setup) {
                all.push(setup);
            }
        }
        all
    }

    /// The name in tables and plots.
    #[must_use]
    pub fn name(&self) -> String {
        match self.method {
            Method::Fridge => "fridge".to_owned(),
            Method::MultiFridge => "four fridges".to_owned(),
            Method::Overwrite => "overwrite".to_owned(),
            Method::Expiry(share) => format!("expiry at p{:.0}", share * 100.0),
        }
    }

    /// Requests of either direction have a table of their own, which is half of the memory.
    /// `delays`: the true ones, in order.
    fn settings(&self, delays: &[u64]) -> Settings {
        let algorithm = match self.method {
            Method::Fridge => Algorithm::Fridge,
            Method::MultiFridge => Algorithm::MultiFridge,
            Method::Overwrite => Algorithm::Overwrite,
            Method::Expiry(_) => Algorithm::Expiry,
        };
        let expiry_ns = match self.method {
            Method::Expiry(share) => exact(delays, share) as u32,
            _ => 0,
        };
        let (kinds, slots_log2) = (Kinds::NONE.with(Kind::TcpData), self.memory_log2 - 1);
        Settings {
            kinds,
            algorithm,
            slots_log2,
            admit_log2: self.admit_log2,
            expiry_ns,
            ..Settings::DEFAULT
        }
    }
}

/// Methods that are compared by memory.
pub(super) const METHODS: [Method; 4] =
    [Method::Fridge, Method::MultiFridge, Method::Overwrite, Method::Expiry(0.99)];

/// The time that a share of values in order is within.
fn exact(values: &[u64], share: f64) -> u64 {
    let place = (share * values.len() as f64).ceil() as usize;
    values.get(place.saturating_sub(1)).copied().unwrap_or(0)
}

/// The shares that are looked at: each percentile from the 5th to the 99th.
pub(super) fn shares() -> [f64; PERCENTILES] {
    std::array::from_fn(|index| f64::from(FIRST + index as u32) / 100.0)
}

/// How far a distribution is from the true one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Errors {
    /// Of the recipe's [percentiles](Recipe::percentiles), relative, in percent.
    pub percentiles: [f64; 3],
    /// The largest of the percentiles from 5 to 95, as the logarithm to base 2 of the quotient.
    pub gap: f64,
}

impl Errors {
    /// Both as times of [`shares`].
    pub(super) fn of(recipe: Recipe, times: &[f64], truth: &[f64]) -> Errors {
        let quotients: Vec<f64> =
            times.iter().zip(truth).map(|(time, truth)| time / truth).collect();
        let error = |percentile: u32| {
            let quotient = quotients.get(percentile.saturating_sub(FIRST) as usize).copied();
            (quotient.unwrap_or(f64::NAN) - 1.0) * 100.0
        };
        let told = (FIRST..).zip(&quotients).filter(|(percentile, _)| recipe.is_told(*percentile));
        let gap = told.map(|(_, quotient)| quotient.log2().abs()).fold(0.0, f64::max);
        Errors { percentiles: recipe.percentiles().map(error), gap }
    }
}

/// What a table has seen of a trace.
#[derive(Clone)]
pub struct Seen {
    /// Which table.
    pub setup: Setup,
    /// Delays that it has seen.
    pub samples: u64,
    /// How far its distribution is from the true one; nothing if it saw no delay.
    pub errors: Option<Errors>,
    /// Fridge by fridge, with what each admits.
    pub(super) histograms: Vec<(Histogram, f64)>,
}

/// Times of [`shares`]; nothing if no delay was seen.
pub(super) fn times(histograms: &[(Histogram, f64)]) -> Option<Vec<f64>> {
    let fridges: Vec<Fridge<'_>> = histograms
        .iter()
        .map(|(histogram, admitted)| Fridge { histogram, admitted: *admitted })
        .collect();
    quantiles(&fridges, &shares(), f64::from(1_u32 << Kind::TcpData.tick_bits()))
}

/// A trace, and the hashes of the tables that it goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// How delays are distributed.
    pub recipe: Recipe,
    /// Requests of the trace.
    pub requests: u64,
    /// Of the hashes. The trace is the same.
    pub seed: u64,
}

/// What became of it.
pub struct Outcome {
    /// Of what.
    pub run: Run,
    /// The true times of [`shares`].
    pub(super) truth: Vec<f64>,
    /// By the tables, until the last request.
    pub seen: Vec<Seen>,
    /// By those of [`Setup::stopping`], until the last answer: requests that are in a table when no
    /// more come stay there, and each is answered.
    pub stopped: Vec<Seen>,
}

/// A table while it counts.
struct Counting {
    setup: Setup,
    settings: Settings,
    bank: Box<Bank>,
    lasting: Box<SharedLasting>,
    outbox: Outbox,
}

impl Counting {
    fn new(setup: Setup, delays: &[u64]) -> Self {
        let settings = setup.settings(delays);
        let lasting = SharedLasting::boxed();
        Delay::prepare(Delay::shared_lasting(&lasting), &settings);
        Counting { setup, settings, bank: Bank::boxed(), lasting, outbox: Outbox::EMPTY }
    }

    fn count(&mut self, pass: &Pass<'_>, packets: &[Observation]) {
        let parts = Parts {
            own: Delay::own(&mut self.bank),
            lasting: &mut self.outbox,
            shared: &(),
            shared_lasting: Delay::shared_lasting(&self.lasting),
        };
        Delay::measure(&self.settings, parts, pass, packets);
    }

    fn seen(&mut self, recipe: Recipe, truth: &[f64]) -> Seen {
        let settings = self.settings;
        let delay = Delay::own(&mut self.bank);
        let histogram = |fridge| {
            let (share, bits) = settings.admitted(fridge);
            let histogram = delay.histogram(&settings, Kind::TcpData, false, fridge)?;
            Some((histogram.clone(), f64::from(share) / 2_f64.powi(bits as i32)))
        };
        let histograms: Vec<_> = (0..settings.fridges()).filter_map(histogram).collect();
        let buckets = histograms.iter().flat_map(|(histogram, _)| histogram.buckets());
        Seen {
            setup: self.setup,
            samples: buckets.map(|bucket| u64::from(bucket.samples)).sum(),
            errors: times(&histograms).map(|times| Errors::of(recipe, &times, truth)),
            histograms,
        }
    }
}

impl Run {
    /// Counts the trace in all of these tables.
    #[must_use]
    pub fn execute(&self, setups: &[Setup]) -> Outcome {
        let profile = self.recipe.profile(self.requests);
        let end = profile.request(self.requests.saturating_sub(1)).at_ns;
        let (mut delays, mut late) = (Vec::new(), Vec::new());
        for Request { at_ns, delay_ns, .. } in
            (0..self.requests).map(|index| profile.request(index))
        {
            delay_ns.into_iter().for_each(|delay| {
                if at_ns + delay <= end { delays.push(delay) } else { late.push(delay) }
            });
        }
        delays.sort_unstable();
        let truth = shares().map(|share| exact(&delays, share) as f64);
        let mut tables: Vec<Counting> =
            setups.iter().map(|setup| Counting::new(*setup, &delays)).collect();
        delays.append(&mut late);
        delays.sort_unstable();
        let truth_of_all = shares().map(|share| exact(&delays, share) as f64);
        drop(delays);

        let tabulation = Tabulation::from_seed(self.seed);
        let pass = Pass {
            tabulation: &tabulation,
            sharing: Sharing::Alone,
            own: Sharing::Alone,
            slot_ns: 1,
            bank: 0,
        };
        // What is read of a packet is the same for all tables.
        let any = Settings { kinds: Kinds::NONE.with(Kind::TcpData), ..Settings::DEFAULT };
        let settings = flowgauge_core::Settings { delay: any, ..flowgauge_core::Settings::DEFAULT };
        let context = Context::new(settings, &tabulation, Sharing::Alone);
        let (mut state, shared) = (State::boxed(), Shared::boxed());
        let (mut packets, mut seen) = (Vec::with_capacity(BATCH), None);
        let mut traffic = DelayTraffic::new(profile);
        loop {
            let next = traffic.advance(&mut |_| {});
            let is_over = seen.is_none() && next.is_none_or(|(at, _)| at > end);
            if is_over || packets.len() == BATCH || next.is_none() {
                tables.iter_mut().for_each(|table| table.count(&pass, &packets));
                packets.clear();
            }
            if is_over {
                seen =
                    Some(tables.iter_mut().map(|table| table.seen(self.recipe, &truth)).collect());
                tables.retain(|table| Setup::stopping().contains(&table.setup));
            }
            let Some((at, frame)) = next else { break };
            let mut packet = Observation::of(&Arrival::new(frame.len() as u32, at));
            if state.active(&shared, 0).observe::<false, _, _>(
                &context,
                Link::Ethernet,
                frame,
                &mut packet,
            ) {
                packets.push(packet);
            }
        }
        let stopped =
            tables.iter_mut().map(|table| table.seen(self.recipe, &truth_of_all)).collect();
        Outcome { run: *self, truth: truth.to_vec(), seen: seen.unwrap_or_default(), stopped }
    }
}
