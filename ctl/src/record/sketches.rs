//! What records hold of entropies, frequencies, membership and heavy hitters.

use crate::estimate::entropy::alarm::{Usual, Verdict};
use crate::estimate::heavy::{Top, top};
use crate::estimate::{entropy, frequency, membership};
use flowgauge_core::heavy::{Algorithm, Unit};
use flowgauge_core::sketch::{self, Mode};
use flowgauge_core::{FlowKey, Grid, HashIdentity, KeyKind, Settings, SketchKind, Tabulation, WideBank, WideSketch};
use flowgauge_dataplane::{Snapshot, Tables};

/// What to tell of flows.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Number of heavy hitters.
    pub top: usize,
    /// Flows whose packets and membership are asked for; those that are no keys of a measurement's kind are left out there.
    pub queries: Vec<FlowKey>,
    /// Watch the entropies of sources and destinations.
    pub alarm: Option<entropy::alarm::Options>,
}

impl Default for Report {
    /// Ten heavy hitters.
    fn default() -> Self {
        Report { top: 10, queries: Vec::new(), alarm: None }
    }
}

/// Rows and columns of a sketch, and how they are hashed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sketched {
    /// What makes a flow.
    pub key: KeyKind,
    /// How rows become a number.
    pub kind: SketchKind,
    /// Rows and columns.
    pub shape: Grid,
    /// How rows are hashed.
    pub hash: HashIdentity,
}

impl Sketched {
    fn new(settings: &sketch::Settings, hash: HashIdentity) -> Option<Self> {
        let sketch::Settings { mode, key, shape } = *settings;
        Some(Sketched { key, kind: mode.sketch()?, shape, hash })
    }
}

/// How the rows of sketches and filters are hashed.
#[derive(Clone, Debug)]
pub struct Rows {
    hash: HashIdentity,
    tabulation: Box<Tabulation>,
}

impl Rows {
    /// As a dataplane with these tables does.
    #[must_use]
    pub fn new(tables: &Tables) -> Self {
        Rows { hash: tables.row_hash(), tabulation: Box::new(tables.tabulation.clone()) }
    }

    fn signature(&self, key: &FlowKey) -> u32 {
        self.hash.mode.signature(key, &self.tabulation)
    }
}

/// How a record's packets are spread over flows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entropy {
    /// The sketch that the counts came from.
    pub sketch: Sketched,
    /// The entropy with its 95 % interval.
    pub estimate: entropy::Entropy,
    /// The exact entropy in bits, if flows were counted.
    pub truth: Option<f64>,
}

impl Entropy {
    /// The entropies of a snapshot.
    #[must_use]
    pub fn of(snapshot: &Snapshot, settings: &Settings, rows: &Rows) -> Vec<Self> {
        let counters = &snapshot.bank.counters;
        let packets = counters.ipv4.wrapping_add(counters.ipv6);
        let truths = snapshot.truth.map(|truth| truth.entropy).unwrap_or_default();
        let parts = settings.entropy.iter().zip(&snapshot.bank.entropy.sums).zip(&snapshot.bank.entropy.sketches).zip(truths);
        let entropy = |(((settings, of_bank), cells), truth): (((&sketch::Settings, &flowgauge_core::Entropy), &WideSketch), _)| {
            let sketch = Sketched::new(settings, rows.hash)?;
            let estimate = entropy::estimate(packets, of_bank.sum, cells, sketch.shape, sketch.kind);
            Some(Entropy { sketch, estimate, truth })
        };
        parts.filter_map(entropy).collect()
    }
}

/// Packets of the flows that were asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Frequency {
    /// The sketch that the counts came from.
    pub sketch: Sketched,
    /// Flows and their packets.
    pub flows: Vec<(FlowKey, frequency::Frequency)>,
    /// Counters of the sketch that are full, so that they count no more.
    pub full_counters: usize,
}

impl Frequency {
    /// What a bank holds of the flows that are asked for.
    #[must_use]
    pub fn of(bank: &WideBank, settings: &Settings, report: &Report, rows: &Rows) -> Option<Self> {
        let sketch = Sketched::new(&settings.frequency, rows.hash)?;
        let Sketched { kind, shape, .. } = sketch;
        let counted = bank.counters.ipv4.wrapping_add(bank.counters.ipv6);
        let packets =
            |key: &FlowKey| frequency::estimate(&bank.frequency, kind, shape, rows.signature(key), &rows.tabulation, counted);
        let flows = asked(report, sketch.key).map(|key| (*key, packets(key))).collect();
        Some(Frequency { sketch, flows, full_counters: bank.frequency.full(shape) })
    }
}

/// Whether the flows that were asked for were seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Membership {
    /// What makes a flow.
    pub key: KeyKind,
    /// Rows and bits of the filter.
    pub shape: Grid,
    /// How rows are hashed.
    pub hash: HashIdentity,
    /// How probable it is that a flow that was not seen is taken for one that was.
    pub false_positive: f64,
    /// Flows and whether they were seen.
    pub flows: Vec<(FlowKey, bool)>,
}

impl Membership {
    /// What a bank remembers of the flows that are asked for.
    #[must_use]
    pub fn of(bank: &WideBank, settings: &Settings, report: &Report, rows: &Rows) -> Option<Self> {
        let flowgauge_core::membership::Settings { on, key, shape } = settings.membership;
        let seen = |key: &FlowKey| bank.membership.contains(shape, rows.signature(key), &rows.tabulation);
        on.then(|| Membership {
            key,
            shape,
            hash: rows.hash,
            false_positive: membership::false_positive(&bank.membership, shape),
            flows: asked(report, key).map(|key| (*key, seen(key))).collect(),
        })
    }
}

/// The flows with the most packets or bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Heavy {
    /// What makes a flow.
    pub key: KeyKind,
    /// What flows are heavy by.
    pub unit: Unit,
    /// How they were found.
    pub algorithm: Algorithm,
    /// Slots of the table.
    pub slots: usize,
    /// The flows with bounds on their counts.
    pub top: Top,
}

impl Heavy {
    /// The heaviest flows of a bank.
    #[must_use]
    pub fn of(bank: &WideBank, settings: &Settings, report: &Report) -> Option<Self> {
        let settings = &settings.heavy;
        let flowgauge_core::heavy::Settings { algorithm, key, unit, .. } = *settings;
        let top = || top(&bank.heavy, settings, report.top);
        (algorithm != Algorithm::Off).then(|| Heavy { key, unit, algorithm, slots: settings.slots(), top: top() })
    }
}

/// What the entropies of sources and destinations say about an attack.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alarm {
    /// Whether this window is far off what is usual, and whether it was judged at all.
    pub verdict: Verdict,
    /// The entropies of sources and of destinations before this window.
    pub usual: Option<[Usual; 2]>,
    /// Packets that a window must have to be judged.
    pub least: u64,
}

impl Alarm {
    /// Looks at a window.
    #[must_use]
    pub fn of(watch: &mut entropy::alarm::Alarm, packets: u64, entropies: &[Entropy]) -> Option<Self> {
        let of = |key| entropies.iter().find(|entropy| entropy.sketch.key == key).map(|entropy| entropy.estimate.bits);
        let (sources, destinations) = (of(KeyKind::Src)?, of(KeyKind::Dst)?);
        let (usual, least) = (watch.usual(), watch.options().least);
        Some(Alarm { verdict: watch.judge(packets, sources, destinations), usual, least })
    }

    /// Whether this window is far off what is usual.
    #[must_use]
    pub fn raised(&self) -> bool {
        self.verdict == Verdict::Raised
    }
}

/// The flows that are asked for and are keys of this kind.
fn asked(report: &Report, key: KeyKind) -> impl Iterator<Item = &FlowKey> {
    report.queries.iter().filter(move |query| key.lengths().contains(&query.as_bytes().len()))
}

/// Whether settings measure what the alarm watches.
#[must_use]
pub fn can_watch(settings: &Settings) -> bool {
    let measured = |key| settings.entropy.iter().any(|entropy| entropy.mode != Mode::Off && entropy.key == key);
    measured(KeyKind::Src) && measured(KeyKind::Dst)
}
