//! One run of 22 minutes, in trace time.

use super::thesis::{Configuration, RATE, TRACE_RATE};
use crate::error::ReproduceError;
use flowgauge_core::{HashMode, Settings, cardinality};
use flowgauge_ctl::clock::{Clock, Trace, Woken, nanoseconds};
use flowgauge_ctl::measurement::cardinality::estimate::{Estimator, Histogram, estimate_from};
use flowgauge_ctl::schedule::{Action, Intervals, Schedule};
use flowgauge_dataplane::poll::port::memory;
use flowgauge_dataplane::poll::{self, Pace};
use flowgauge_dataplane::traffic::{Burst, Profile, Sources};
use flowgauge_dataplane::{Dataplane, Poll, Snapshot, Tables};
use std::collections::VecDeque;
use std::time::Duration;

/// How long a worker may take to answer. Experiments share their processors with whatever else
/// runs.
const DEADLINE: Duration = Duration::from_secs(120);

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Every packet from a source of its own, at random in 10.0.0.0/8 (§4.3.1).
    Unique,
    /// Every packet from the address after the last one's.
    Sequential,
    /// Bursts of packets from sources of Zipf's law, in the place of the campus trace, which is not
    /// public (§4.3.2).
    Bursty,
}

impl Traffic {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Traffic::Unique => "unique",
            Traffic::Sequential => "sequential",
            Traffic::Bursty => "zipf-burst",
        }
    }

    /// The generator's description of it; without end.
    #[must_use]
    pub fn profile(self, seed: u64) -> Profile {
        let (sources, rate, burst) = match self {
            Traffic::Unique => (Sources::Unique, RATE, None),
            Traffic::Sequential => (Sources::Sequential, RATE, None),
            // Flows and exponent are those for which windows of 5, 10, 50 and 100 s come nearest to
            // the 2,000, 2,800, 7,000 and 10,000 flows of Table 4.4: the expected number after n
            // packets is the sum over ranks of 1 - (1 - p)^n.
            Traffic::Bursty => (
                Sources::Zipf { flows: 16_000, alpha: 1.3 },
                TRACE_RATE,
                Some(Burst { period_ns: 1_000_000_000, duty: 0.5 }),
            ),
        };
        Profile { rate: Some(rate), burst, seed, ..Profile::new(sources) }
    }

    /// Whether the number of packets is not the number of flows (§4.4).
    const fn needs_exact_count(self) -> bool {
        matches!(self, Traffic::Bursty)
    }

    const fn rate(self) -> f64 {
        match self {
            Traffic::Unique | Traffic::Sequential => RATE,
            Traffic::Bursty => TRACE_RATE,
        }
    }
}

/// A run to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experiment {
    /// What is counted.
    pub traffic: Traffic,
    /// How addresses are hashed.
    pub hash: HashMode,
    /// When reads happen and windows end.
    pub configuration: Configuration,
    /// Length of the run.
    pub duration: Duration,
    /// How long after the packet counter the registers are read as well; zero for not at all.
    pub read_skew: Duration,
    /// Seed of traffic, hash tables and read times.
    pub seed: u64,
}

/// Which registers are held against the ground truth of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Those of the same instant.
    Instant,
    /// Those of a while later, as on the thesis' switch: it reads the packet counter, then register
    /// after register (§4.2.4).
    Skewed,
}

/// Estimates of one set of registers, in flows, one an estimator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimates([f64; Estimator::ALL.len()]);

impl Estimates {
    fn new(snapshot: &Snapshot, settings: &Settings) -> Result<Self, ReproduceError> {
        let histogram =
            Histogram::new(snapshot.bank.cardinality.levels(settings.cardinality.precision))?;
        Ok(Estimates(Estimator::ALL.map(|estimator| estimate_from(&histogram, estimator).value)))
    }

    /// The estimate of this estimator.
    #[must_use]
    pub fn by(&self, estimator: Estimator) -> f64 {
        let position = Estimator::ALL.iter().position(|other| *other == estimator);
        position.and_then(|index| self.0.get(index)).copied().unwrap_or(f64::NAN)
    }
}

/// One read, or the end of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Read {
    /// When, in nanoseconds since the start.
    pub time_ns: u64,
    /// Number of the window, from zero.
    pub window: u64,
    /// Flows in the window so far, exactly.
    pub truth: u64,
    /// Estimates from the registers of this instant.
    pub instant: Estimates,
    /// Estimates from the registers of a while later. The same where nothing was read later.
    pub skewed: Estimates,
}

impl Read {
    /// The estimate, in flows.
    #[must_use]
    pub fn estimate(&self, reading: Reading, estimator: Estimator) -> f64 {
        match reading {
            Reading::Instant => self.instant.by(estimator),
            Reading::Skewed => self.skewed.by(estimator),
        }
    }

    /// The relative error in percent (equation 4.1); `None` where there was nothing to count.
    #[must_use]
    pub fn error(&self, reading: Reading, estimator: Estimator) -> Option<f64> {
        let truth = self.truth as f64;
        (self.truth > 0).then(|| (self.estimate(reading, estimator) - truth) / truth * 100.0)
    }
}

/// What a run gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Poisson reads.
    pub reads: Vec<Read>,
    /// Windows as they were closed.
    pub windows: Vec<Read>,
}

/// A read of which the registers are still to come.
struct Unfinished {
    at: u64,
    index: usize,
}

impl Experiment {
    /// Packets to count.
    #[must_use]
    pub fn packets(&self) -> u64 {
        (self.duration.as_secs_f64() * self.traffic.rate()) as u64
    }

    /// Reads to expect: their process has no memory, so the mean number is the duration over the
    /// mean interval.
    #[must_use]
    pub fn expected_reads(&self) -> f64 {
        self.duration.as_secs_f64() / self.configuration.read.as_secs_f64()
    }

    /// Counts the traffic in a poll-mode dataplane of one worker, as long as it takes.
    ///
    /// Every read takes a sample, and a second one of the registers alone when the skew has passed.
    /// The thesis' scheduler finishes a read before it begins a reset (§4.2.3), so registers that
    /// would be due after the end of their window are read at its end. Where reads overlap each has
    /// its full skew; the thesis' would queue.
    ///
    /// # Errors
    /// Whatever the dataplane fails with.
    pub fn run(&self) -> Result<Run, ReproduceError> {
        let settings = Settings::only(cardinality::Settings {
            hash: self.hash,
            ..cardinality::Settings::default()
        });
        let truth = self.traffic.needs_exact_count();
        let ports = memory(self.traffic.profile(self.seed), 1, Pace::Trace);
        let options =
            poll::Options { settings, truth, deadline: DEADLINE, ..poll::Options::default() };
        let mut dataplane = Poll::new(ports, options);
        dataplane.install(&Tables::new(&settings, self.seed))?;
        let mut clock = Trace::new(dataplane.gate());
        let start = clock.now();
        let Configuration { read, reset } = self.configuration;
        let intervals = Intervals {
            window: Some(reset),
            read_every: Some(read),
            duration: Some(self.duration),
            align: false,
        };
        let mut schedule = Schedule::new(start, intervals, self.seed);
        let skew_ns = nanoseconds(self.read_skew);
        let mut unfinished: VecDeque<Unfinished> = VecDeque::new();
        let mut run = Run::default();
        while let Some(due) = schedule.peek() {
            if let Some(Unfinished { at, index }) =
                unfinished.pop_front_if(|next| next.at <= due.at)
            {
                self.wait(&mut clock, at)?;
                let estimates = Estimates::new(&dataplane.sample()?, &settings)?;
                if let Some(read) = run.reads.get_mut(index) {
                    read.skewed = estimates;
                }
                continue;
            }
            self.wait(&mut clock, due.at)?;
            let record = |snapshot: &Snapshot, window| -> Result<Read, ReproduceError> {
                let packets = snapshot.bank.counters.packets();
                let truth = snapshot.truth.map_or(packets, |truth| truth.window);
                let instant = Estimates::new(snapshot, &settings)?;
                Ok(Read { time_ns: due.at - start, window, truth, instant, skewed: instant })
            };
            match due.action {
                Action::Read => {
                    if skew_ns > 0 {
                        let end = schedule.window_start() + nanoseconds(reset);
                        unfinished.push_back(Unfinished {
                            at: end.min(due.at + skew_ns),
                            index: run.reads.len(),
                        });
                    }
                    run.reads.push(record(&dataplane.sample()?, schedule.window())?);
                }
                Action::Rotate { window } => {
                    run.windows.push(record(&dataplane.rotate()?, window)?)
                }
                Action::Stop => break,
            }
            schedule.pop();
        }
        Ok(run)
    }

    fn wait(&self, clock: &mut Trace, until: u64) -> Result<(), ReproduceError> {
        match clock.wait_until(until) {
            Woken::Reached => Ok(()),
            // The traffic has no end and nobody interrupts it.
            Woken::Interrupted | Woken::Ended { .. } | Woken::Failed => {
                Err(ReproduceError::TrafficFailed {
                    interface: format!("memory:{}", self.traffic.profile(self.seed)),
                })
            }
        }
    }
}
