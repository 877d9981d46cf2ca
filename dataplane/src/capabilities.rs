//! What a dataplane can do.

use crate::error::Error;
use crate::place::Place;
use flowgauge_core::hash::MAX_ROWS;
use flowgauge_core::heavy::{Algorithm, Unit};
use flowgauge_core::{
    BANKS, ENTROPIES, HashMode, KeyKind, MeasurementKind, Precision, Settings, cardinality,
};
use std::ops::RangeInclusive;

/// What packets are timed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// The name used in outputs.
    pub name: &'static str,
    /// The shortest time that it tells, in nanoseconds.
    pub resolution_ns: u64,
}

impl Clock {
    /// The timestamps of a capture. How coarse they are shows once they are read.
    pub const TRACE: Clock = Clock { name: "trace", resolution_ns: 1 };
    /// The kernel's clock, read for each packet.
    pub const KERNEL: Clock = Clock { name: "kernel", resolution_ns: 1 };
    /// The switch's clock at the port where a packet comes in.
    pub const SWITCH: Clock = Clock { name: "switch", resolution_ns: 1 };
}

/// What a dataplane can do; the controller asks before it configures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The backend's name in options and outputs.
    pub backend: &'static str,
    /// Where the packets come from, all places together: an interface, a file, a traffic profile.
    pub interface: String,
    /// Where packets are counted, one by one; at least one place.
    pub places: Vec<Place>,
    /// Measurements it can run.
    pub measurements: Vec<MeasurementKind>,
    /// Flow keys it can derive.
    pub keys: Vec<KeyKind>,
    /// Hashes it can compute.
    pub hashes: Vec<HashMode>,
    /// Register counts it offers, as powers of two.
    pub precision: RangeInclusive<Precision>,
    /// Entropies it can measure at once.
    pub entropies: usize,
    /// Rows that a sketch can have.
    pub rows: RangeInclusive<usize>,
    /// Algorithms of heavy hitters.
    pub algorithms: Vec<Algorithm>,
    /// What flows can be heavy by.
    pub units: Vec<Unit>,
    /// Whether it finds the innermost network header of tunnels.
    pub inner: bool,
    /// Banks per windowed measurement.
    pub banks: usize,
    /// Whether registers and counters of a sample belong to the same instant.
    pub atomic_snapshots: bool,
    /// Whether staggered registers (no windows) are offered.
    pub staggered: bool,
    /// Cores that count in parallel.
    pub workers: usize,
    /// What packets are timed by.
    pub clock: Clock,
    /// Whether it passes delays on [one by one](crate::Dataplane::delays).
    pub delay_samples: bool,
    /// Packets of a window from which on it [watches](crate::Dataplane::watch) an entropy itself,
    /// if it does.
    pub watches_from: Option<u64>,
}

impl Capabilities {
    /// What every backend can do that runs `dataplane/core` on each of `workers` cores, with
    /// nothing left out: what it cannot, it takes away.
    #[must_use]
    pub fn of_core(backend: &'static str, interface: impl Into<String>, workers: usize) -> Self {
        let interface = interface.into();
        Capabilities {
            backend,
            places: vec![Place::ingress(&interface)],
            interface,
            measurements: MeasurementKind::ALL.to_vec(),
            keys: KeyKind::ALL.to_vec(),
            hashes: HashMode::ALL.to_vec(),
            precision: Precision::MIN..=Precision::MAX,
            entropies: ENTROPIES,
            rows: 1..=MAX_ROWS,
            algorithms: Algorithm::ALL.to_vec(),
            units: Unit::ALL.to_vec(),
            inner: true,
            banks: BANKS,
            atomic_snapshots: true,
            staggered: true,
            workers,
            clock: Clock::KERNEL,
            delay_samples: false,
            watches_from: None,
        }
    }

    /// Whether it can measure what settings ask for; if not, the first thing that it cannot.
    ///
    /// # Errors
    /// [`Error::Unsupported`], with what to do instead.
    pub fn check(&self, settings: &Settings) -> Result<(), Error> {
        let refuse = |what: String, advice: String| {
            Err(Error::Unsupported { backend: self.backend, what, advice })
        };
        let names = |what: &str, names: Vec<&'static str>| format!("{what} {}", names.join(", "));
        for kind in MeasurementKind::ALL.into_iter().filter(|kind| kind.is_on(settings)) {
            if !self.measurements.contains(&kind) {
                let advice = names(
                    "it can measure",
                    self.measurements.iter().map(|kind| kind.name()).collect(),
                );
                return refuse(format!("measure {}", kind.name()), advice);
            }
            for key in kind.keys(settings) {
                if !self.keys.contains(&key) {
                    let advice =
                        names("it has the keys", self.keys.iter().map(|key| key.name()).collect());
                    return refuse(format!("measure {} by {}", kind.name(), key.name()), advice);
                }
            }
        }
        let Settings {
            cardinality,
            entropy,
            frequency,
            membership,
            heavy,
            delay,
            reorder,
            headers,
            ..
        } = settings;
        if headers.inner && !self.inner {
            return refuse(
                "look into tunnels (--inner)".to_owned(),
                "leave out --inner, or count with --backend poll".to_owned(),
            );
        }
        if cardinality.mode == cardinality::Mode::Staggered && !self.staggered {
            return refuse(
                "use staggered registers".to_owned(),
                "leave out --staggered".to_owned(),
            );
        }
        // Rows of sketches are always tabulated, but by the signature of the hash.
        let is_on = MeasurementKind::ALL.iter().any(|kind| kind.is_on(settings));
        if is_on && cardinality.hash == HashMode::Keyed && !self.hashes.contains(&HashMode::Keyed) {
            let advice = "its hashes are CRCs; use --hash tabulated with a --seed that is a secret (docs/security.md says what that helps)";
            return refuse(
                "hash by keyed, which takes multiplications of 64 bits".to_owned(),
                advice.to_owned(),
            );
        }
        if cardinality.mode != cardinality::Mode::Off {
            if !self.hashes.contains(&cardinality.hash) {
                return refuse(
                    format!("hash by {}", cardinality.hash.name()),
                    names("it can hash by", self.hashes.iter().map(|hash| hash.name()).collect()),
                );
            }
            if !self.precision.contains(&cardinality.precision) {
                let (least, most) =
                    (self.precision.start().registers(), self.precision.end().registers());
                let advice = if least == most {
                    format!("it has {least}")
                } else {
                    format!("it has {least} to {most}")
                };
                return refuse(
                    format!("use {} registers", cardinality.precision.registers()),
                    advice,
                );
            }
        }
        let entropies = MeasurementKind::Entropy.keys(settings).count();
        if entropies > self.entropies {
            return refuse(
                format!("measure {entropies} entropies"),
                format!("it can measure {}", self.entropies),
            );
        }
        let sketches = entropy.iter().chain([frequency]).filter(|sketch| sketch.is_on());
        let rows = sketches
            .map(|sketch| sketch.shape.rows())
            .chain(membership.on.then(|| membership.shape.rows()));
        for rows in rows {
            if !self.rows.contains(&rows) {
                let (least, most) = (self.rows.start(), self.rows.end());
                return refuse(
                    format!("use sketches of {rows} rows"),
                    format!("it can use {least} to {most}"),
                );
            }
        }
        if heavy.algorithm != Algorithm::Off {
            if !self.algorithms.contains(&heavy.algorithm) {
                let why = if heavy.algorithm.takes_any_slot() {
                    ", which takes the smallest of all counts"
                } else {
                    ""
                };
                let advice = names(
                    "it can find them by",
                    self.algorithms.iter().map(|algorithm| algorithm.name()).collect(),
                );
                return refuse(
                    format!("find heavy hitters by {}{why}", heavy.algorithm.name()),
                    advice,
                );
            }
            if !self.units.contains(&heavy.unit) {
                let advice =
                    names("it can count", self.units.iter().map(|unit| unit.name()).collect());
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
        if let Some(problem) = delay.problem().filter(|_| MeasurementKind::Delay.is_on(settings)) {
            return refuse("measure delays so".to_owned(), problem.to_owned());
        }
        if let Some(problem) =
            reorder.problem().filter(|_| MeasurementKind::Reorder.is_on(settings))
        {
            return refuse("measure reordering so".to_owned(), problem.to_owned());
        }
        Ok(())
    }
}
