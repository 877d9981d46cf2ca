//! One trace of round trips through tables of several algorithms and sizes.

use flowgauge_core::delay::DelaySamples;
use flowgauge_core::delay::histogram::Histogram;
use flowgauge_core::delay::{Algorithm, DelayKind, Kinds, Settings};
use flowgauge_core::filter::EveryPacket;
use flowgauge_core::measurement::{MeasureContext, MeasurementMemory};
use flowgauge_core::{
    Arrival, Bank, Context, CountFrames, Delay, Link, Measurement, Observation, Shared,
    SharedPersistentBank, Sharing, State, Tabulation, Zeroed,
};
use flowgauge_core::{HashMode, HostMeasurement as _, Listed as _};
use flowgauge_ctl::measurement::delay::estimate::{Fridge, quantiles};
use flowgauge_traffic::delay::{DelayProfile, DelayShape, DelayTraffic, RequestTimes};

/// Requests of a trace.
pub(crate) const REQUESTS: u64 = 1_250_000;

/// Default number of slots, as a power of two.
pub(crate) const MEMORY_LOG2: u8 = 10;

/// Default share of requests that the fridge admits: one in two to this power.
pub(crate) const ADMIT_LOG2: u8 = 6;

/// Compared sizes, as powers of two.
pub(crate) const MEMORIES_LOG2: [u8; 7] = [8, 9, 10, 11, 12, 13, 14];

/// Compared shares, one in two to these powers.
pub(crate) const ADMITS_LOG2: [u8; 9] = [0, 2, 4, 5, 6, 7, 8, 10, 12];

/// Requests that arrive during the mean lifetime of one in the table, as a power of two. Sizes are
/// compared at the same lifetime.
const LIFE_LOG2: u8 = MEMORY_LOG2 + ADMIT_LOG2;

/// First percentile that is compared.
const FIRST: u32 = 5;
const PERCENTILES: usize = 95;

/// Packets read at a time.
const BATCH: usize = 512;

/// Distribution of the delays of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recipe {
    /// Synthetic trace of the dissertation.
    LogUniform,
    /// Synthetic trace with two groups of delays.
    Bimodal,
}

impl Recipe {
    /// All distributions.
    pub(crate) const ALL: [Recipe; 2] = [Recipe::LogUniform, Recipe::Bimodal];

    /// Returns the name on the command line of `generate`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Recipe::LogUniform => "log-uniform",
            Recipe::Bimodal => "bimodal",
        }
    }

    /// Returns the percentiles whose errors are reported. With two groups of the same size, the
    /// median lies between them, where there are no delays.
    pub(crate) fn percentiles(self) -> [u32; 3] {
        match self {
            Recipe::LogUniform => [50, 95, 99],
            Recipe::Bimodal => [25, 95, 99],
        }
    }

    /// Returns whether a percentile counts towards the gap. Those next to the step between two
    /// groups do not.
    fn counts_for_gap(self, percentile: u32) -> bool {
        (5..=95).contains(&percentile)
            && (self == Recipe::LogUniform || percentile.abs_diff(50) > 5)
    }

    fn profile(self, requests: u64) -> DelayProfile {
        let shape = match self {
            Recipe::LogUniform => DelayShape::LogUniform,
            Recipe::Bimodal => DelayShape::Bimodal,
        };
        DelayProfile { requests, ..DelayProfile::new(shape) }
    }
}

/// Treatment of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Method {
    /// One fridge.
    Fridge,
    /// Four fridges, with a quarter of the slots each.
    MultiFridge,
    /// Table that stores every request.
    Overwrite,
    /// Table that keeps a request until it is older than this share of the true delays.
    Expiry(f64),
}

impl Method {
    /// Returns the name in tables and plots.
    pub(crate) fn name(self) -> String {
        match self {
            Method::Fridge => "fridge".to_owned(),
            Method::MultiFridge => "four fridges".to_owned(),
            Method::Overwrite => "overwrite".to_owned(),
            Method::Expiry(share) => format!("expiry at p{:.0}", share * 100.0),
        }
    }
}

/// Configuration of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Setup {
    /// Treatment of requests.
    pub method: Method,
    /// Number of slots, as a power of two.
    pub memory_log2: u8,
    /// Binary logarithm of the inverse share of requests that it admits.
    pub admit_log2: u8,
}

impl Setup {
    /// Tables compared in figure 2.2.
    pub(crate) const COMPARED: [Setup; 4] = [
        Setup { method: Method::Fridge, memory_log2: MEMORY_LOG2, admit_log2: ADMIT_LOG2 },
        Setup { method: Method::Overwrite, memory_log2: MEMORY_LOG2, admit_log2: 0 },
        Setup { method: Method::Expiry(0.99), memory_log2: MEMORY_LOG2, admit_log2: 0 },
        Setup { method: Method::Expiry(0.8), memory_log2: MEMORY_LOG2, admit_log2: 0 },
    ];

    /// Returns a fridge of the default size that admits one request in two to this power.
    pub(crate) const fn admitting(admit_log2: u8) -> Setup {
        Setup { method: Method::Fridge, memory_log2: MEMORY_LOG2, admit_log2 }
    }

    /// Returns the tables compared when requests stop: one fridge and four, of the default size.
    pub(crate) fn stopping() -> Vec<Setup> {
        [Method::Fridge, Method::MultiFridge]
            .into_iter()
            .filter_map(|method| Setup::best(method, MEMORY_LOG2))
            .collect()
    }

    /// Returns the best configuration of a method with this memory; `None` if it needs more.
    pub(crate) fn best(method: Method, memory_log2: u8) -> Option<Setup> {
        let admit_log2 = match method {
            Method::Fridge => LIFE_LOG2.saturating_sub(memory_log2),
            // The longest lifetime of the four is two to the power of four longer than that of a
            // fridge with all slots.
            Method::MultiFridge => (LIFE_LOG2 - 3).saturating_sub(memory_log2),
            Method::Overwrite | Method::Expiry(_) => 0,
        };
        let setup = Setup { method, memory_log2, admit_log2 };
        setup.settings(&[]).problem().is_none().then_some(setup)
    }

    /// Returns all compared configurations.
    pub(crate) fn all() -> Vec<Setup> {
        let by_memory =
            |memory| METHODS.into_iter().filter_map(move |method| Setup::best(method, memory));
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

    /// Returns the settings of the table. Each direction has a table of its own, with half of the
    /// memory. `delays` are the true ones, sorted.
    fn settings(&self, delays: &[u64]) -> Settings {
        let (algorithm, expiry_ns) = match self.method {
            Method::Fridge => (Algorithm::Fridge, 0),
            Method::MultiFridge => (Algorithm::MultiFridge, 0),
            Method::Overwrite => (Algorithm::Overwrite, 0),
            Method::Expiry(share) => (Algorithm::Expiry, exact(delays, share) as u32),
        };
        let (kinds, slots_log2) = (Kinds::NONE.with(DelayKind::TcpData), self.memory_log2 - 1);
        let admit_log2 = self.admit_log2;
        Settings { kinds, algorithm, slots_log2, admit_log2, expiry_ns, ..Settings::DEFAULT }
    }
}

/// Methods compared by memory.
pub(super) const METHODS: [Method; 4] =
    [Method::Fridge, Method::MultiFridge, Method::Overwrite, Method::Expiry(0.99)];

/// Returns the quantile of sorted values.
pub(super) fn exact(values: &[u64], share: f64) -> u64 {
    let place = (share * values.len() as f64).ceil() as usize;
    values.get(place.saturating_sub(1)).copied().unwrap_or(0)
}

/// Returns the shares to compare: each percentile from the 5th to the 99th.
pub(super) fn shares() -> [f64; PERCENTILES] {
    std::array::from_fn(|index| f64::from(FIRST + index as u32) / 100.0)
}

/// Differences between a distribution and the true one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Errors {
    /// Relative errors of the recipe's [percentiles](Recipe::percentiles), in percent.
    pub percentiles: [f64; 3],
    /// Largest error of the percentiles from 5 to 95, as the binary logarithm of the quotient.
    pub gap: f64,
}

impl Errors {
    /// Compares two distributions, both given as the times of [`shares`].
    pub(super) fn between(recipe: Recipe, times: &[f64], truth: &[f64]) -> Errors {
        let quotients: Vec<f64> =
            times.iter().zip(truth).map(|(time, truth)| time / truth).collect();
        let error = |percentile: u32| {
            let quotient = quotients.get(percentile.saturating_sub(FIRST) as usize).copied();
            (quotient.unwrap_or(f64::NAN) - 1.0) * 100.0
        };
        let counted =
            (FIRST..).zip(&quotients).filter(|(percentile, _)| recipe.counts_for_gap(*percentile));
        let gap = counted.map(|(_, quotient)| quotient.log2().abs()).fold(0.0, f64::max);
        Errors { percentiles: recipe.percentiles().map(error), gap }
    }
}

/// Result of a table for one trace.
#[derive(Clone)]
pub(crate) struct TableResult {
    /// Configuration of the table.
    pub setup: Setup,
    /// Number of delays it measured.
    pub samples: u64,
    /// Differences to the true distribution; `None` if it measured no delay.
    pub errors: Option<Errors>,
    /// Histogram and admission probability of each fridge.
    pub(super) histograms: Vec<(Histogram, f64)>,
}

/// Returns the times of [`shares`]; `None` if no delay was measured.
pub(super) fn times(histograms: &[(Histogram, f64)]) -> Option<Vec<f64>> {
    let fridges: Vec<Fridge<'_>> = histograms
        .iter()
        .map(|(histogram, admitted)| Fridge { histogram, admitted: *admitted })
        .collect();
    quantiles(&fridges, &shares(), f64::from(1_u32 << DelayKind::TcpData.tick_bits()))
}

/// Trace and the seed of the tables that count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Distribution of the delays.
    pub recipe: Recipe,
    /// Requests of the trace.
    pub requests: u64,
    /// Seed of the hashes. The trace is the same for all seeds.
    pub seed: u64,
}

/// Results of a run.
pub(crate) struct Outcome {
    /// The run.
    pub run: Run,
    /// True times of [`shares`].
    pub(super) truth: Vec<f64>,
    /// Results of the tables at the last request.
    pub results: Vec<TableResult>,
    /// Results of the tables of [`Setup::stopping`] at the last answer. Requests in a table when
    /// the traffic stops stay there, and are all answered.
    pub stopped: Vec<TableResult>,
}

/// Table while it counts.
struct CountingTable {
    setup: Setup,
    settings: Settings,
    bank: Box<Bank>,
    persistent: Box<SharedPersistentBank>,
    samples: DelaySamples,
}

impl CountingTable {
    fn new(setup: Setup, delays: &[u64]) -> Self {
        let settings = setup.settings(delays);
        let persistent = SharedPersistentBank::boxed();
        Delay::prepare(Delay::shared_persistent(&persistent), &settings);
        CountingTable {
            setup,
            settings,
            bank: Bank::boxed(),
            persistent,
            samples: *DelaySamples::boxed(),
        }
    }

    fn count(&mut self, pass: &MeasureContext<'_>, packets: &[Observation]) {
        let parts = MeasurementMemory {
            own: Delay::core(&mut self.bank),
            persistent: &mut self.samples,
            shared: &(),
            shared_persistent: Delay::shared_persistent(&self.persistent),
        };
        Delay::measure(&self.settings, parts, pass, packets);
    }

    fn results(&mut self, recipe: Recipe, truth: &[f64]) -> TableResult {
        let settings = self.settings;
        let delay = Delay::core(&mut self.bank);
        let histogram = |fridge| {
            let (share, bits) = settings.admitted(fridge);
            let histogram = delay.histogram(&settings, DelayKind::TcpData, false, fridge)?;
            Some((histogram.clone(), f64::from(share) / 2_f64.powi(bits as i32)))
        };
        let histograms: Vec<_> = (0..settings.fridges()).filter_map(histogram).collect();
        let buckets = histograms.iter().flat_map(|(histogram, _)| histogram.buckets());
        TableResult {
            setup: self.setup,
            samples: buckets.map(|bucket| u64::from(bucket.samples)).sum(),
            errors: times(&histograms).map(|times| Errors::between(recipe, &times, truth)),
            histograms,
        }
    }
}

impl Run {
    /// Returns the number of requests that are answered.
    pub(crate) fn answered(&self) -> u64 {
        let profile = self.recipe.profile(self.requests);
        let answers = (0..self.requests).filter(|index| profile.request(*index).delay_ns.is_some());
        answers.count() as u64
    }

    /// Counts the trace with all of these tables.
    pub(crate) fn execute(&self, setups: &[Setup]) -> Outcome {
        let profile = self.recipe.profile(self.requests);
        let end = profile.request(self.requests.saturating_sub(1)).at_ns;
        let (mut delays, mut late) = (Vec::new(), Vec::new());
        for RequestTimes { at_ns, delay_ns, .. } in
            (0..self.requests).map(|index| profile.request(index))
        {
            delay_ns.into_iter().for_each(|delay| {
                if at_ns + delay <= end { delays.push(delay) } else { late.push(delay) }
            });
        }
        delays.sort_unstable();
        let truth = shares().map(|share| exact(&delays, share) as f64);
        let mut tables: Vec<CountingTable> =
            setups.iter().map(|setup| CountingTable::new(*setup, &delays)).collect();
        delays.append(&mut late);
        delays.sort_unstable();
        let truth_of_all = shares().map(|share| exact(&delays, share) as f64);
        drop(delays);

        let tabulation = Tabulation::from_seed(self.seed);
        let pass = MeasureContext {
            hash: HashMode::Tabulated,
            tabulation: &tabulation,
            sharing: Sharing::Alone,
            own: Sharing::Alone,
            slot_ns: 1,
            bank: 0,
        };
        // All tables need the same fields of a packet.
        let any = Settings { kinds: Kinds::NONE.with(DelayKind::TcpData), ..Settings::DEFAULT };
        let settings = flowgauge_core::Settings { delay: any, ..flowgauge_core::Settings::DEFAULT };
        let context = Context::new(settings, &tabulation, Sharing::Alone);
        let (mut state, shared) = (State::boxed(), Shared::boxed());
        let (mut packets, mut results) = (Vec::with_capacity(BATCH), None);
        let mut traffic = DelayTraffic::new(profile);
        loop {
            let next = traffic.advance(&mut |_| {});
            let is_over = results.is_none() && next.is_none_or(|(at, _)| at > end);
            if is_over || packets.len() == BATCH || next.is_none() {
                tables.iter_mut().for_each(|table| table.count(&pass, &packets));
                packets.clear();
            }
            if is_over {
                results = Some(
                    tables.iter_mut().map(|table| table.results(self.recipe, &truth)).collect(),
                );
                tables.retain(|table| Setup::stopping().contains(&table.setup));
            }
            let Some((at, frame)) = next else { break };
            let mut packet = Observation::of(&Arrival::new(frame.len() as u32, at));
            if state.active(&shared, 0).observe::<false, _, _>(
                &context,
                EveryPacket,
                Link::Ethernet,
                frame,
                &mut packet,
            ) {
                packets.push(packet);
            }
        }
        let stopped =
            tables.iter_mut().map(|table| table.results(self.recipe, &truth_of_all)).collect();
        Outcome { run: *self, truth: truth.to_vec(), results: results.unwrap_or_default(), stopped }
    }
}
