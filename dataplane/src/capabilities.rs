//! Features and limits of dataplanes.

use crate::error::Error;
use crate::place::CountingPoint;
use flowgauge_core::hash::MAX_ROWS;
use flowgauge_core::heavy::{Algorithm, CountUnit};
use flowgauge_core::{
    BANKS, ENTROPIES, HashMode, KeyKind, MeasurementKind, Precision, Settings, cardinality, spread,
};
use std::ops::RangeInclusive;

/// Usual range of a key's entropy, for a dataplane that watches one itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Key of the entropy.
    pub key: KeyKind,
    /// Lower end of the range, in bits.
    pub lowest: f64,
    /// Upper end of the range, in bits.
    pub highest: f64,
}

/// Clock that timestamps packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampClock {
    /// The name used in outputs.
    pub name: &'static str,
    /// Resolution, in nanoseconds.
    pub resolution_ns: u64,
    /// Longest time by which a timestamp may be later than the packet, in nanoseconds, so that a
    /// delay may be wrong by as much in either direction: the [gap](crate::Snapshot::gap_ns) between
    /// two polls of a worker. Zero if packets are timestamped as they arrive.
    pub gap_ns: u64,
}

impl TimestampClock {
    /// Timestamps of a capture. Their real resolution is known only after reading.
    pub const TRACE: TimestampClock = TimestampClock::arrival("trace");
    /// The kernel's clock, read for each packet.
    pub const KERNEL: TimestampClock = TimestampClock::arrival("kernel");
    /// The system's clock, read by a worker when it counts a packet, not when the packet arrived.
    /// Each window has the [gap](Self::gap_ns) by which times may be late.
    pub const WORKER: TimestampClock = TimestampClock::arrival("worker");
    /// The switch's clock at the ingress port.
    pub const SWITCH: TimestampClock = TimestampClock::arrival("switch");

    const fn arrival(name: &'static str) -> Self {
        TimestampClock { name, resolution_ns: 1, gap_ns: 0 }
    }
}

/// Features and limits of a dataplane, which the controller checks before it configures it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The backend's name in options and outputs.
    pub backend: &'static str,
    /// Source of the packets over all counting points: an interface, a file or a traffic profile.
    pub interface: String,
    /// All counting points; at least one.
    pub places: Vec<CountingPoint>,
    /// Supported measurements.
    pub measurements: Vec<MeasurementKind>,
    /// Supported flow keys.
    pub keys: Vec<KeyKind>,
    /// Supported hashes.
    pub hashes: Vec<HashMode>,
    /// Supported register counts, as powers of two.
    pub precision: RangeInclusive<Precision>,
    /// Maximum number of concurrent entropies.
    pub entropies: usize,
    /// Supported numbers of sketch rows.
    pub rows: RangeInclusive<usize>,
    /// Supported heavy-hitter algorithms.
    pub algorithms: Vec<Algorithm>,
    /// Supported units of heavy hitters.
    pub units: Vec<CountUnit>,
    /// Whether it can parse the innermost network header of tunnels.
    pub inner: bool,
    /// Whether it can [filter](crate::Tables::filter) packets.
    pub filter: bool,
    /// Banks per windowed measurement.
    pub banks: usize,
    /// Whether registers and counters of a sample are from the same instant.
    pub atomic_snapshots: bool,
    /// Whether it supports staggered registers (no windows).
    pub staggered: bool,
    /// Cores that count in parallel.
    pub workers: usize,
    /// Clock that timestamps packets.
    pub clock: TimestampClock,
    /// Whether it reports [delay samples](crate::Dataplane::delay_samples).
    pub delay_samples: bool,
    /// Packets in a window from which on it [watches](crate::Dataplane::watch) an entropy itself;
    /// `None` if it cannot.
    pub watches_from: Option<u64>,
}

impl Capabilities {
    /// Returns the capabilities of a backend that runs all of `dataplane/core` on each of `workers`
    /// cores. A backend removes what it does not support.
    #[must_use]
    pub fn of_core(backend: &'static str, interface: impl Into<String>, workers: usize) -> Self {
        let interface = interface.into();
        Capabilities {
            backend,
            places: vec![CountingPoint::ingress(&interface)],
            interface,
            measurements: MeasurementKind::ALL.to_vec(),
            keys: KeyKind::ALL.to_vec(),
            hashes: HashMode::ALL.to_vec(),
            precision: Precision::MIN..=Precision::MAX,
            entropies: ENTROPIES,
            rows: 1..=MAX_ROWS,
            algorithms: Algorithm::ALL.to_vec(),
            units: CountUnit::ALL.to_vec(),
            inner: true,
            filter: true,
            banks: BANKS,
            atomic_snapshots: true,
            staggered: true,
            workers,
            clock: TimestampClock::KERNEL,
            delay_samples: false,
            watches_from: None,
        }
    }

    /// Checks that it supports these settings.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for the first unsupported one, with the alternative.
    pub fn check(&self, settings: &Settings) -> Result<(), Error> {
        let refuse = |what: String, advice: String| {
            Err(Error::Unsupported { backend: self.backend, what, advice })
        };
        for kind in MeasurementKind::ALL.into_iter().filter(|kind| kind.is_on(settings)) {
            if !self.measurements.contains(&kind) {
                let advice = names("it can measure", &self.measurements, MeasurementKind::name);
                return refuse(format!("measure {}", kind.name()), advice);
            }
            if let Some(key) = kind.keys(settings).find(|key| !self.keys.contains(key)) {
                let advice = names("it has the keys", &self.keys, KeyKind::name);
                return refuse(format!("measure {} by {}", kind.name(), key.name()), advice);
            }
        }
        let Settings { cardinality, membership, heavy, delay, spread, .. } = settings;
        if settings.headers.inner && !self.inner {
            let advice = "leave out --inner, or count with --backend poll";
            return refuse("look into tunnels (--inner)".to_owned(), advice.to_owned());
        }
        if cardinality.mode == cardinality::Mode::Staggered && !self.staggered {
            let advice = "leave out --staggered".to_owned();
            return refuse("use staggered registers".to_owned(), advice);
        }
        // Sketch rows are always tabulated, except with the keyed hash.
        let is_on = |kind: MeasurementKind| kind.is_on(settings);
        if MeasurementKind::ALL.into_iter().any(is_on)
            && settings.hash == HashMode::Keyed
            && !self.hashes.contains(&HashMode::Keyed)
        {
            let what = "hash by keyed, which takes multiplications of 64 bits";
            let advice = "its hashes are CRCs; use --hash tabulated with a --seed that is a secret (docs/security.md says what that helps)";
            return refuse(what.to_owned(), advice.to_owned());
        }
        if cardinality.mode != cardinality::Mode::Off {
            if !self.hashes.contains(&settings.hash) {
                let advice = names("it can hash by", &self.hashes, HashMode::name);
                return refuse(format!("hash by {}", settings.hash.name()), advice);
            }
            if !self.precision.contains(&cardinality.precision) {
                let (least, most) =
                    (self.precision.start().registers(), self.precision.end().registers());
                let advice = if least == most {
                    format!("it has {least}")
                } else {
                    format!("it has {least} to {most}")
                };
                let what = format!("use {} registers", cardinality.precision.registers());
                return refuse(what, advice);
            }
        }
        let entropies = MeasurementKind::Entropy.keys(settings).count();
        if entropies > self.entropies {
            let advice = format!("it can measure {}", self.entropies);
            return refuse(format!("measure {entropies} entropies"), advice);
        }
        let sketches = settings.entropy.iter().chain([&settings.frequency]);
        let mut rows = sketches
            .filter(|sketch| sketch.is_on())
            .map(|sketch| sketch.shape.rows())
            .chain(membership.on.then(|| membership.shape.rows()));
        if let Some(rows) = rows.find(|rows| !self.rows.contains(rows)) {
            let advice = format!("it can use {} to {}", self.rows.start(), self.rows.end());
            return refuse(format!("use sketches of {rows} rows"), advice);
        }
        if heavy.algorithm != Algorithm::Off {
            if !self.algorithms.contains(&heavy.algorithm) {
                let why = if heavy.algorithm.takes_any_slot() {
                    ", which takes the smallest of all counts"
                } else {
                    ""
                };
                let advice = names("it can find them by", &self.algorithms, Algorithm::name);
                let name = heavy.algorithm.name();
                return refuse(format!("find heavy hitters by {name}{why}"), advice);
            }
            if !self.units.contains(&heavy.unit) {
                let advice = names("it can count", &self.units, CountUnit::name);
                return refuse(
                    format!("find the flows with the most {}", heavy.unit.name()),
                    advice,
                );
            }
        }
        if delay.samples && !self.delay_samples {
            let advice = "leave out --delay-samples, or compile the switch's program with -DFLOWGAUGE_DELAY_SAMPLES=1".to_owned();
            return refuse("pass delays on one by one (--delay-samples)".to_owned(), advice);
        }
        let problems = [
            ("measure delays so", delay.problem().filter(|_| is_on(MeasurementKind::Delay))),
            ("count distinct others so", spread::Settings::problem(spread)),
            (
                "measure reordering so",
                settings.reorder.problem().filter(|_| is_on(MeasurementKind::Reorder)),
            ),
        ];
        for (what, problem) in problems {
            if let Some(problem) = problem {
                return refuse(what.to_owned(), problem.to_owned());
            }
        }
        Ok(())
    }
}

fn names<T: Copy>(what: &str, all: &[T], name: fn(T) -> &'static str) -> String {
    let names: Vec<&str> = all.iter().map(|one| name(*one)).collect();
    format!("{what} {}", names.join(", "))
}
