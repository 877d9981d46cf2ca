//! Tiles of the first screen: the main numbers of a run, as on the live page; and how rankings are
//! listed.

use super::figure::{Figure, Shape};
use TilePart::{Counts, Number, OutOfOrder};
use std::collections::BTreeMap;

/// Content of a tile.
pub(super) struct Tile {
    pub(super) title: &'static str,
    /// Unit of its value; with `/s` a rate.
    pub(super) unit: &'static str,
    /// Value of `--measure` that switches its measurement on; empty if it is always on.
    pub(super) measure: &'static str,
    part: TilePart,
}

enum TilePart {
    /// Counts of these names, added up; bytes in bits.
    Counts(&'static [&'static str]),
    /// First number of a name; of percentiles the 95th.
    Number(&'static str),
    /// Share of segments out of order.
    OutOfOrder,
}

/// Tiles in the order of the screen.
pub(super) const TILES: [Tile; 7] = [
    Tile { title: "packets", unit: "things/s", measure: "", part: Counts(&PACKETS) },
    Tile { title: "bits", unit: "bits/s", measure: "", part: Counts(&["traffic"]) },
    Tile {
        title: "distinct",
        unit: "things",
        measure: "cardinality",
        part: Number("distinct_flows"),
    },
    Tile { title: "entropy", unit: "bits", measure: "entropy", part: Number("entropy") },
    Tile { title: "p95", unit: "seconds", measure: "delay", part: Number("delay") },
    Tile { title: "out of order", unit: "ratio", measure: "reorder", part: OutOfOrder },
    Tile { title: "drops", unit: "things/s", measure: "", part: Counts(&DROPS) },
];

const PACKETS: [&str; 2] = ["packets", "rejected_packets"];
const DROPS: [&str; 2] = ["lost_packets", "unaccounted_packets"];

/// How a ranking is listed.
pub(super) struct RankingStyle {
    /// Name of its figure.
    name: &'static str,
    title: &'static str,
    /// Title of its values; of counts, which are listed per second, empty.
    values: &'static str,
}

/// Title of rankings of the flows that were queried.
const QUERIED: &str = "queried flows";

const RANKINGS: [RankingStyle; 5] = [
    RankingStyle { name: "heavy_flows", title: "heaviest flows", values: "" },
    RankingStyle { name: "fan_out", title: "most distinct others", values: "distinct" },
    RankingStyle { name: "asked_flows", title: QUERIED, values: "" },
    RankingStyle { name: "seen_flows", title: QUERIED, values: "seen or not" },
    RankingStyle { name: "reordering_prefixes", title: "prefixes", values: OUT_OF_ORDER },
];

const OUT_OF_ORDER: &str = "share of segments out of order";

/// Returns how a ranking is listed; `None` if it is of a newer version.
pub(super) fn ranking_style(figure: &Figure) -> Option<&'static RankingStyle> {
    RANKINGS.iter().find(|style| style.name == figure.name)
}

impl RankingStyle {
    fn is_counted(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns whether entries of zero are listed: those that were queried.
    pub(super) fn lists_zero(&self) -> bool {
        self.title == QUERIED
    }
}

/// Returns the factor and the unit with which the values of a ranking are listed: counts per
/// second, bytes in bits.
pub(super) fn ranking_unit(figure: &Figure, seconds: f64) -> (f64, &str) {
    let is_rate = ranking_style(figure).is_some_and(RankingStyle::is_counted) && seconds > 0.0;
    match figure.unit.as_str() {
        "bytes" if is_rate => (8.0 / seconds, "bits/s"),
        "things" if is_rate => (1.0 / seconds, "things/s"),
        unit => (1.0, unit),
    }
}

/// Returns the heading of a ranking: `heaviest flows by src, packets per second`.
pub(super) fn ranking_heading(figure: &Figure, seconds: f64) -> String {
    let Some(style) = ranking_style(figure) else {
        return [figure.title.clone(), figure.label()].join(" ").trim_end().to_owned();
    };
    let values = match ranking_unit(figure, seconds).1 {
        "bits/s" => "bits per second",
        "things/s" => "packets per second",
        "bytes" if style.is_counted() => "bytes",
        _ if style.is_counted() => "packets",
        _ => style.values,
    };
    match (figure.label_value("key"), figure.label_value("of")) {
        (Some(key), Some(others)) => format!("{} by {key}, {values} {others}", style.title),
        (Some(key), None) => format!("{} by {key}, {values}", style.title),
        (None, _) => format!("{}, {values}", style.title),
    }
}

/// Value of a tile in a window.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TileValue {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    /// Label that distinguishes the number from others of its name, such as its key.
    pub(super) label: String,
    /// Usual value, once the run has enough windows to know it.
    pub(super) usual: Option<f64>,
}

/// Returns the figure of a name that its tile shows.
fn shown<'a>(name: &str, figures: &'a [Figure]) -> Option<&'a Figure> {
    let is_shown =
        |figure: &&Figure| figure.name == name && figure.percentile().is_none_or(|it| it == "95");
    let found = figures.iter().filter(is_shown);
    // Data is more frequent than anything else.
    found.min_by_key(|figure| !figure.label().contains("tcp-data"))
}

impl Tile {
    /// Returns the values in the windows before the last one, as far as the run reports them.
    /// `figures` are those of the last window.
    pub(super) fn before(
        &self,
        series: &BTreeMap<String, Vec<Option<f32>>>,
        figures: &[Figure],
    ) -> Vec<f64> {
        let numbers = |values: &Vec<Option<f32>>| -> Vec<f64> {
            values.iter().map(|value| value.map_or(f64::NAN, f64::from)).collect()
        };
        let mut values: Vec<f64> = match self.part {
            Counts(names) => {
                let per = if self.unit == "bits/s" { 8.0 } else { 1.0 };
                let is_summed = |key: &str| names.contains(&key.split(' ').next().unwrap_or(key));
                let summed = series.iter().filter(|(key, _)| is_summed(key));
                summed.fold(Vec::new(), |mut sums: Vec<f64>, (_, values)| {
                    sums.resize(sums.len().max(values.len()), 0.0);
                    sums.iter_mut()
                        .zip(numbers(values))
                        .for_each(|(sum, value)| *sum += value * per);
                    sums
                })
            }
            Number(name) => {
                let shown = shown(name, figures);
                let is_shown = |key: &str| shown.is_some_and(|figure| figure.is_key(key));
                let found = series.iter().find(|(key, _)| is_shown(key));
                found.map(|(_, values)| numbers(values)).unwrap_or_default()
            }
            OutOfOrder => {
                let stored = |what: &str| series.get(what).map(numbers).unwrap_or_default();
                let pairs =
                    stored("tcp_segments all").into_iter().zip(stored("tcp_segments out-of-order"));
                pairs.map(|(all, late)| if all > 0.0 { late / all } else { 0.0 }).collect()
            }
        };
        values.pop();
        values
    }

    /// Returns the value in a window of this length; `None` if it is not measured.
    pub(super) fn value(&self, figures: &[Figure], seconds: f64) -> Option<TileValue> {
        let exactly = |value, usual| TileValue {
            value,
            low: value,
            high: value,
            label: String::new(),
            usual,
        };
        match self.part {
            Counts(names) => {
                let per = if self.unit == "bits/s" { 8.0 } else { 1.0 };
                let summed =
                    || figures.iter().filter(|figure| names.contains(&figure.name.as_str()));
                // A sum of nothing would be -0.
                let sum = summed().filter_map(Figure::count).fold(0.0, |sum, count| sum + count);
                let usual =
                    summed().filter_map(|figure| figure.usual).reduce(|sum, usual| sum + usual);
                let usual = usual.map(|usual| usual * per);
                (seconds > 0.0).then(|| exactly(sum * per / seconds, usual))
            }
            Number(name) => {
                let figure = shown(name, figures)?;
                let Shape::Number(number) = &figure.shape else { return None };
                let (value, low, high) = (number.value(), number.low(), number.high());
                Some(TileValue { value, low, high, label: figure.label(), usual: figure.usual })
            }
            OutOfOrder => {
                let segments = |what: &str| {
                    figures
                        .iter()
                        .find(|figure| figure.name == "tcp_segments" && figure.label() == what)
                };
                let (all, late) = (segments("all")?, segments("out-of-order"));
                let share = |late: f64, all: f64| if all > 0.0 { late / all } else { 0.0 };
                let usual = late.and_then(|late| Some(share(late.usual?, all.usual?)));
                let late = late.and_then(Figure::count).unwrap_or_default();
                Some(exactly(share(late, all.count()?), usual))
            }
        }
    }
}
