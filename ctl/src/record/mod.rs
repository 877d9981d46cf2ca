//! What the controller publishes: one record a window, a sample or a run.

use crate::estimate::cardinality::{self, Estimate, EstimateError, Estimator, StaggeredEstimator};
use flowgauge_core::cardinality::Mode;
use flowgauge_core::{Counters, HashIdentity, KeyKind, Settings};
use flowgauge_dataplane::{Losses, Snapshot};

mod sketches;

pub use sketches::{Alarm, Entropy, Frequency, Heavy, Membership, Report, Rows, Sketched, can_watch};

/// Which kind of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A closed window.
    Window,
    /// A read inside a window.
    Sample,
    /// Windows of a trace in which nothing came: one record for all of them.
    Silence,
    /// Everything since the start: counters added up, registers united.
    Total,
}

impl Kind {
    /// The name used in outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Window => "window",
            Kind::Sample => "sample",
            Kind::Silence => "silence",
            Kind::Total => "total",
        }
    }
}

/// One window, sample or total.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Which kind.
    pub kind: Kind,
    /// Number of the window, from zero.
    pub window: u64,
    /// Number of the last window, where the record is of several: a silence, or a window that ended so late that those after it were
    /// over as well.
    pub last_window: Option<u64>,
    /// Start of the window, in nanoseconds.
    pub start_ns: u64,
    /// End of the window, in nanoseconds; for a sample the time it was taken.
    pub end_ns: u64,
    /// When a sample was scheduled, in nanoseconds.
    pub at_ns: Option<u64>,
    /// How long after its scheduled time a sample was taken or a window ended, in nanoseconds.
    pub late_ns: u64,
    /// Whether the window has at least its full length and nothing of it was lost; of a total, whether nothing was lost.
    pub complete: bool,
    /// The backend's name.
    pub backend: &'static str,
    /// Where the packets came from; several with commas between.
    pub interface: String,
    /// Which way they crossed it: `ingress`, `egress` or `both`.
    pub direction: &'static str,
    /// Whether this is one of several places, whose packets another record counts all together.
    pub part: bool,
    /// Whether the innermost network header of tunnels counts, and not the outermost.
    pub inner: bool,
    /// Packets and bytes.
    pub counters: Counters,
    /// The packet counter before and after the registers were read; equal where samples are atomic.
    pub packets_before_after: (u64, u64),
    /// Packets lost in this window before they could be counted, by cause.
    pub drops: Losses,
    /// Packets that were read in this window and belong to an earlier one, which was closed: they are in no window. Only captures
    /// have such.
    pub late: u64,
    /// CPU time that the workers used for it, in nanoseconds; unknown of samples, and where the kernel or a switch counts.
    pub cpu_ns: Option<u64>,
    /// Distinct flows, if measured.
    pub cardinality: Option<Cardinality>,
    /// How packets are spread over flows, for each key that is measured; a total has none, since entropies do not add up.
    pub entropy: Vec<Entropy>,
    /// Packets of the flows that were asked for, if measured.
    pub frequency: Option<Frequency>,
    /// Whether the flows that were asked for were seen, if measured.
    pub membership: Option<Membership>,
    /// The flows with the most packets or bytes, if measured.
    pub heavy: Option<Heavy>,
    /// What the alarm says, of windows it watches.
    pub alarm: Option<Alarm>,
}

/// Distinct flows of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Cardinality {
    /// What makes a flow.
    pub key: KeyKind,
    /// The estimate with its 95 % interval.
    pub estimate: Estimate,
    /// Name of the estimator.
    pub estimator: &'static str,
    /// The exact number, if it was counted.
    pub truth: Option<u64>,
    /// How the registers were hashed.
    pub hash: HashIdentity,
    /// The mergeable sketch: one level a register.
    pub levels: Vec<u8>,
}

/// How registers become numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimation {
    /// What the dataplane measures.
    pub settings: Settings,
    /// Estimator of windowed registers; of staggered ones, `Flajolet` means the source's harmonic mean, the others maximum
    /// likelihood.
    pub estimator: Estimator,
    /// Length of a slot of staggered registers, in nanoseconds.
    pub slot_ns: u64,
}

impl Cardinality {
    /// Distinct flows of a window or of a windowed sample.
    ///
    /// # Errors
    /// [`EstimateError`] if the registers hold what no hash can give: the dataplane is broken.
    pub fn windowed(snapshot: &Snapshot, estimation: &Estimation) -> Result<Option<Self>, EstimateError> {
        let settings = estimation.settings.cardinality;
        if settings.mode != Mode::Windowed {
            return Ok(None);
        }
        let levels = snapshot.bank.cardinality.levels(settings.precision).to_vec();
        let truth = snapshot.truth.map(|truth| truth.window);
        Self::united(levels, settings.key, snapshot.hash, truth, estimation.estimator).map(Some)
    }

    /// Distinct flows of windowed registers, perhaps of several windows.
    ///
    /// # Errors
    /// As [`windowed`](Self::windowed).
    pub fn united(
        levels: Vec<u8>,
        key: KeyKind,
        hash: HashIdentity,
        truth: Option<u64>,
        estimator: Estimator,
    ) -> Result<Self, EstimateError> {
        let estimate = cardinality::estimate(&levels, estimator)?;
        Ok(Cardinality { key, estimate, estimator: estimator.name(), truth, hash, levels })
    }

    /// Distinct flows of staggered registers at `now`, of a measurement that started at `start`.
    ///
    /// # Errors
    /// As [`windowed`](Self::windowed).
    pub fn staggered(snapshot: &Snapshot, estimation: &Estimation, start: u64, now: u64) -> Result<Option<Self>, EstimateError> {
        let settings = estimation.settings.cardinality;
        let Some(lasting) = &snapshot.lasting else { return Ok(None) };
        let slot_ns = estimation.slot_ns.max(1);
        let m = settings.precision.registers() as u64;
        let slot = now / slot_ns;
        let part = (now % slot_ns) as f64 / slot_ns as f64;
        // A register cannot have seen more than there was, nor be so young that its age vanishes.
        let lived = (now.saturating_sub(start) as f64 / slot_ns as f64).clamp(f64::EPSILON, m as f64);
        let age = |index: u64| ((slot.wrapping_sub(index) % m) as f64 + part).clamp(f64::EPSILON, lived);
        let ages: Vec<f64> = (0..m).map(age).collect();
        let levels: Vec<u8> = lasting.cardinality.levels(settings.precision, slot as u32).collect();
        let wanted = match estimation.estimator {
            Estimator::Flajolet => StaggeredEstimator::Harmonic,
            Estimator::Ertl | Estimator::Mle => StaggeredEstimator::Mle,
        };
        let (estimate, estimator) = match cardinality::staggered(&levels, &ages, wanted) {
            // Too early for the harmonic mean, which leaves young registers out.
            Err(EstimateError::Immature { .. }) => {
                (cardinality::staggered(&levels, &ages, StaggeredEstimator::Mle)?, StaggeredEstimator::Mle)
            }
            estimate => (estimate?, wanted),
        };
        // Until a whole window has passed, there is only this part of one to count flows in.
        let part = (2.0 * lived / m as f64).min(1.0);
        let estimate = Estimate { value: estimate.value * part, low: estimate.low * part, high: estimate.high * part };
        let truth = snapshot.truth.map(|truth| truth.window);
        Ok(Some(Cardinality { key: settings.key, estimate, estimator: estimator.name(), truth, hash: snapshot.hash, levels }))
    }
}
