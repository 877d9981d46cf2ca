//! One run of 22 minutes, in trace time.

use super::{ALPHA, Configuration, RATE, REGISTERS, TRACE_RATE};
use crate::error::ReproduceError;
use crate::trace::Trace;
use flowgauge_core::{HashMode, Settings, cardinality};
use flowgauge_ctl::clock::{self, Clock, WakeReason, nanoseconds};
use flowgauge_ctl::measurement::cardinality::estimate::{Estimator, LevelHistogram, estimate_from};
use flowgauge_ctl::schedule::{Action, Intervals, Schedule};
use flowgauge_dataplane::poll::port::{Port, Ports, captures};
use flowgauge_dataplane::poll::{self, Pace};
use flowgauge_dataplane::{Dataplane, Poll, Snapshot, Tables};
use flowgauge_traffic::{Burst, Profile, Sources, memory};
use std::collections::VecDeque;
use std::time::Duration;

/// Time that a worker may take to respond. Experiments share their processors with other programs.
const WORKER_TIMEOUT: Duration = Duration::from_secs(120);

/// Traffic of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// Every packet from a source of its own, at random in 10.0.0.0/8 (§4.3.1).
    Unique,
    /// Every packet from the address after the previous one.
    Sequential,
    /// Bursts of packets from Zipf sources, as a replacement of the campus trace, which is not
    /// public (§4.3.2).
    Bursty,
}

impl Traffic {
    /// Returns the name in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Traffic::Unique => "unique",
            Traffic::Sequential => "sequential",
            Traffic::Bursty => "zipf-burst",
        }
    }

    /// Returns the generator's profile, without end.
    pub(crate) fn profile(self, seed: u64) -> Profile {
        let (sources, rate, burst) = match self {
            Traffic::Unique => (Sources::Unique, RATE, None),
            Traffic::Sequential => (Sources::Sequential, RATE, None),
            // With these flows and this exponent, windows of 5, 10, 50 and 100 s come nearest to
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
}

/// Run to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Experiment {
    /// Traffic.
    pub traffic: Traffic,
    /// Hash of the addresses.
    pub hash: HashMode,
    /// Times of reads and windows.
    pub configuration: Configuration,
    /// Length of the run.
    pub duration: Duration,
    /// Time after the packet counter at which the registers are read again; zero for none.
    pub read_skew: Duration,
    /// Seed of traffic, hash tables and read times.
    pub seed: u64,
}

/// Registers that are compared with the ground truth of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Registers of the same instant.
    Instant,
    /// Registers read later. The thesis reads the packet counter, then register after register
    /// (§4.2.4); that all registers are late by the same time is a simplification.
    Skewed,
}

/// Estimates from one set of registers, in flows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimates {
    /// One per estimator.
    estimates: [f64; Estimator::ALL.len()],
    /// Raw estimate, without any correction (equation 2.2).
    pub raw: f64,
}

impl Estimates {
    fn new(snapshot: &Snapshot, settings: &Settings) -> Result<Self, ReproduceError> {
        let histogram =
            LevelHistogram::new(snapshot.bank.cardinality.levels(settings.cardinality.precision))?;
        let estimates = Estimator::ALL.map(|estimator| estimate_from(&histogram, estimator).value);
        let terms = histogram.counts().iter().zip(0_i32..);
        let sum: f64 = terms.map(|(count, level)| f64::from(*count) * 2_f64.powi(-level)).sum();
        Ok(Estimates { estimates, raw: ALPHA * REGISTERS * REGISTERS / sum })
    }

    /// Returns the estimate of this estimator.
    pub(crate) fn by(&self, estimator: Estimator) -> f64 {
        let position = Estimator::ALL.iter().position(|other| *other == estimator);
        position.and_then(|index| self.estimates.get(index)).copied().unwrap_or(f64::NAN)
    }
}

/// Read, or end of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Read {
    /// Time in nanoseconds since the start.
    pub time_ns: u64,
    /// Number of the window, from zero.
    pub window: u64,
    /// Exact number of flows in the window so far.
    pub truth: u64,
    /// Estimates from the registers of this instant.
    pub instant: Estimates,
    /// Estimates from the registers read later; the same if there were none.
    pub skewed: Estimates,
}

impl Read {
    /// Returns the estimate, in flows.
    pub(crate) fn estimate(&self, reading: Reading, estimator: Estimator) -> f64 {
        match reading {
            Reading::Instant => self.instant.by(estimator),
            Reading::Skewed => self.skewed.by(estimator),
        }
    }

    /// Returns the relative error in percent (equation 4.1); `None` if there was nothing to count.
    pub(crate) fn error(&self, reading: Reading, estimator: Estimator) -> Option<f64> {
        let truth = self.truth as f64;
        (self.truth > 0).then(|| (self.estimate(reading, estimator) - truth) / truth * 100.0)
    }
}

/// Result of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Run {
    /// Poisson reads.
    pub reads: Vec<Read>,
    /// Windows at their end.
    pub windows: Vec<Read>,
}

impl Experiment {
    /// Returns the number of packets to count.
    pub(crate) fn packets(&self) -> u64 {
        let rate = self.traffic.profile(self.seed).rate.unwrap_or_default();
        (self.duration.as_secs_f64() * rate) as u64
    }

    /// Returns the expected number of reads. Their process is memoryless, so this is the duration
    /// over the mean interval.
    pub(crate) fn expected_reads(&self) -> f64 {
        self.duration.as_secs_f64() / self.configuration.read.as_secs_f64()
    }

    /// Counts the traffic.
    ///
    /// # Errors
    /// Any error of the dataplane.
    pub(crate) fn run(&self) -> Result<Run, ReproduceError> {
        let ports = memory(self.traffic.profile(self.seed), 1, Pace::Trace);
        // Elsewhere the number of packets is the number of flows (§4.4).
        self.count(ports, self.traffic == Traffic::Bursty)
    }

    /// Counts captures in the place of the traffic, with an exact count of flows. Ends with the
    /// captures, or after the duration.
    ///
    /// # Errors
    /// Any error of the dataplane.
    pub(crate) fn replay(&self, trace: &Trace) -> Result<Run, ReproduceError> {
        self.count(captures(trace.open()?, 1, Pace::Trace)?, true)
    }

    /// Counts the packets of ports with a poll-mode dataplane of one worker.
    ///
    /// Every read takes a sample, and a second one of the registers alone after the skew. The
    /// thesis' scheduler finishes a read before it starts a reset (§4.2.3), so registers that would
    /// be due after the end of their window are read at its end. If reads overlap, each has its
    /// full skew, while the thesis' would queue.
    fn count<P: Port>(&self, ports: Ports<P>, truth: bool) -> Result<Run, ReproduceError> {
        let settings = Settings::only(cardinality::Settings { ..cardinality::Settings::default() })
            .with_hash(self.hash);
        let interface = ports.interface.clone();
        // The number of packets would take the place of an exact count that ends at a limit.
        let options = poll::Options {
            settings,
            truth,
            max_exact: usize::MAX,
            deadline: WORKER_TIMEOUT,
            ..poll::Options::default()
        };
        let mut dataplane = Poll::new(ports, options);
        dataplane.install(&Tables::new(&settings, self.seed))?;
        let mut clock = clock::Trace::new(dataplane.gate());
        let start = clock.now();
        let Configuration { read, reset } = self.configuration;
        let intervals = Intervals {
            window: Some(reset),
            sample_every: Some(read),
            duration: Some(self.duration),
            align: false,
        };
        let mut schedule = Schedule::new(start, intervals, self.seed);
        let skew_ns = nanoseconds(self.read_skew);
        // Times at which the registers of reads are due, and the indices of the reads.
        let mut unfinished: VecDeque<(u64, usize)> = VecDeque::new();
        let mut run = Run::default();
        while let Some(due) = schedule.peek() {
            if let Some((at, index)) = unfinished.pop_front_if(|(at, _)| *at <= due.at) {
                if !wait(&mut clock, at, &interface)? {
                    break;
                }
                let estimates = Estimates::new(&dataplane.sample()?, &settings)?;
                if let Some(read) = run.reads.get_mut(index) {
                    read.skewed = estimates;
                }
                continue;
            }
            if !wait(&mut clock, due.at, &interface)? {
                break;
            }
            let record = |snapshot: &Snapshot, window| -> Result<Read, ReproduceError> {
                let packets = snapshot.bank.counters.packets();
                let truth = snapshot.truth.and_then(|truth| truth.window).unwrap_or(packets);
                let instant = Estimates::new(snapshot, &settings)?;
                Ok(Read { time_ns: due.at - start, window, truth, instant, skewed: instant })
            };
            match due.action {
                Action::Read => {
                    if skew_ns > 0 {
                        let end = schedule.window_start() + nanoseconds(reset);
                        unfinished.push_back((end.min(due.at + skew_ns), run.reads.len()));
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
}

/// Waits in trace time. Returns false if the traffic ended before, as captures do.
fn wait(clock: &mut clock::Trace, until: u64, interface: &str) -> Result<bool, ReproduceError> {
    match clock.wait_until(until) {
        WakeReason::Reached => Ok(true),
        WakeReason::Ended => Ok(false),
        // This process never interrupts the traffic.
        WakeReason::Interrupted | WakeReason::Failed => {
            Err(ReproduceError::TrafficFailed { interface: interface.to_owned() })
        }
    }
}
