//! Settings with one measurement each, and their names: benchmarks in user space and in the kernel
//! have the same; and filters that all generated packets match.

use flowgauge_core::cardinality::{self, Mode};
use flowgauge_core::delay::{self, Kinds};
use flowgauge_core::heavy::{self, Algorithm};
use flowgauge_core::sketch::{self, SketchKind};
use flowgauge_core::spread::{self, OtherKind};
use flowgauge_core::{Filter, Grid, HashMode, KeyKind, Settings, membership, reorder};
use flowgauge_ctl::filter::MatchExpression;
use std::sync::Arc;

pub(crate) const ENTROPY: &str = "entropy of src-dst, count sketch 4 x 1024";
pub(crate) const SPREAD: &str = "spread by dst of src, 3 x 512 x 64";
/// Measurement whose sources have all cells of a sketch of spread: 192 KiB, which no nearest cache
/// holds.
pub(crate) const SCANS: &str = "spread by src of dst, 3 x 512 x 64";

/// Returns settings for distinct flows alone.
// Inlined and written out, so that the compiler knows all of them.
#[inline(always)]
pub(crate) fn settings(mode: Mode, key: KeyKind, hash: HashMode) -> Settings {
    Settings {
        hash,
        cardinality: cardinality::Settings { mode, key, ..cardinality::Settings::DEFAULT },
        ..Settings::DEFAULT
    }
}

/// Returns settings without any measurement.
pub(crate) fn nothing() -> Settings {
    settings(Mode::Off, KeyKind::Src, HashMode::Crc32)
}

fn sketch(kind: SketchKind, key: KeyKind) -> sketch::Settings {
    sketch::Settings { mode: kind.into(), key, shape: Grid::COUNTERS }
}

/// Returns the settings of each sketch of one table.
pub(crate) fn sketches() -> [(&'static str, Settings); 4] {
    let Settings { entropy, frequency, membership, .. } = everything();
    let entropies = [KeyKind::Src, KeyKind::Dst].map(|key| sketch(SketchKind::CountSketch, key));
    [
        (ENTROPY, Settings { entropy, ..nothing() }),
        ("entropies of src and dst", Settings { entropy: entropies, ..nothing() }),
        ("frequency of src, count-min 4 x 1024", Settings { frequency, ..nothing() }),
        ("membership of src, 4 rows of 65,536 bits", Settings { membership, ..nothing() }),
    ]
}

/// Returns the settings of heavy sources.
pub(crate) fn heavy(algorithm: Algorithm) -> (String, Settings) {
    let heavy = heavy::Settings { algorithm, ..heavy::Settings::DEFAULT };
    let name = format!("heavy sources, {}, 1024 slots", algorithm.name());
    (name, Settings { heavy, ..nothing() })
}

/// Returns the settings of spread: of victims, of scans, and of both. All generated frames have one
/// destination, whose cells stay in the nearest cache, and sources of all cells.
pub(crate) fn spreads() -> [(&'static str, Settings); 3] {
    let spread = |by, of| spread::Settings { on: true, by, of, ..spread::Settings::DEFAULT };
    let victims = spread(KeyKind::Dst, OtherKind::Src);
    let scans = spread(KeyKind::Src, OtherKind::Dst);
    let off = spread::Settings::DEFAULT;
    [
        (SPREAD, Settings { spread: [victims, off], ..nothing() }),
        (SCANS, Settings { spread: [scans, off], ..nothing() }),
        ("spread by dst and by src", Settings { spread: [victims, scans], ..nothing() }),
    ]
}

/// Returns the settings of round trips, with one request in two to this power admitted.
pub(crate) fn delay(admit_log2: u8) -> Settings {
    let delay = delay::Settings { kinds: Kinds::USUAL, admit_log2, ..delay::Settings::DEFAULT };
    Settings { delay, ..nothing() }
}

/// Returns the settings of reordering.
pub(crate) fn reorder(algorithm: reorder::Algorithm) -> Settings {
    let reorder = reorder::Settings { algorithm, ..reorder::Settings::DEFAULT };
    Settings { reorder, ..nothing() }
}

/// Returns the settings of all sketches of one table, and of heavy sources.
pub(crate) fn everything() -> Settings {
    Settings {
        cardinality: cardinality::Settings::DEFAULT,
        entropy: [sketch(SketchKind::CountSketch, KeyKind::SrcDst), sketch::Settings::DEFAULT],
        frequency: sketch(SketchKind::CountMin, KeyKind::Src),
        membership: membership::Settings { on: true, ..membership::Settings::DEFAULT },
        heavy: heavy::Settings { algorithm: Algorithm::DWayRap, ..heavy::Settings::DEFAULT },
        ..Settings::DEFAULT
    }
}

/// Numbers of rules, each with the limit of its cost: a multiple of distinct flows without a filter.
pub(crate) const FILTER_RULES: [(usize, f64); 2] = [(1, 1.15), (64, 2.0)];

/// Returns the name of a filter with this number of rules.
pub(crate) fn filter_name(rules: usize) -> String {
    if rules == 1 { "one rule".to_owned() } else { format!("{rules} rules") }
}

/// Returns a filter with this number of rules for IPv4. Each rule is for a destination port; the
/// generated packets meet the one for port 80.
///
/// # Panics
/// There are more rules than a filter has room for.
pub(crate) fn filter_of_rules(rules: usize) -> Arc<Filter> {
    let others = (1..rules).map(|number| format!(" or {}", number * 257));
    let expression = format!("tcp dst port (80{})", others.collect::<String>());
    let parsed: Result<MatchExpression, _> = expression.parse();
    let filter = parsed.map(|parsed| parsed.filter);
    let filter = filter.unwrap_or_else(|error| panic!("{expression}: {error}"));
    assert_eq!(filter.ipv4.rules().len(), rules, "{expression}");
    filter
}
