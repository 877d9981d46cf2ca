//! History of a run: what is usual for the main figures of its windows.
//!
//! A `History` is the first sink of a run. The live page and the status take the figures of a
//! window from it with their usual values, so that a page or `flowgauge top` that starts during an
//! attack shows what was usual before, and all of them show the same.
//!
//! For each interface and direction it stores the values of the last [`MAX_WINDOWS`] windows as
//! `f32`: at most [`MAX_SERIES`] figures, which take 115,200 bytes; usually about 15, which take
//! 54,000. `top` begins with the last of them. A run that adopts the counts of another one begins
//! without a history.

use crate::controller::Sink;
use crate::figure::{Figure, Shape};
use crate::record::{Record, RecordKind};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of windows whose values are stored.
pub const MAX_WINDOWS: usize = 900;
/// Number of windows from which there is a usual value.
pub const MIN_WINDOWS: usize = 30;
/// Maximum number of figures of an interface and direction whose values are stored.
pub const MAX_SERIES: usize = 32;

/// Names of the figures whose values are stored: those of the first screen.
const FIGURES: [&str; 7] = [
    "packets",
    "rejected_packets",
    "traffic",
    "distinct_flows",
    "entropy",
    "delay",
    "tcp_segments",
];
/// Percentile of the first screen.
const PERCENTILE: &str = "95";

/// Figure of a window with its usual value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FigureInContext<'a> {
    /// The figure.
    #[serde(flatten)]
    pub figure: &'a Figure,
    /// Median over the windows before, of a count per second; `None` for other figures than the
    /// main ones, and until there are [`MIN_WINDOWS`] windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usual: Option<f64>,
}

/// Values of the last windows of a source; clones share them.
#[derive(Clone, Debug, Default)]
pub struct History(Arc<Mutex<BTreeMap<Place, PlaceHistory>>>);

/// Name of an interface or source, and direction.
pub type Place = (String, &'static str);

/// Returns the place of a record.
#[must_use]
pub fn place(record: &Record) -> Place {
    (record.origin().into_owned(), record.direction)
}

impl History {
    fn places(&self) -> MutexGuard<'_, BTreeMap<Place, PlaceHistory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the figures of a record with what was usual before its window. The window must have
    /// been recorded.
    #[must_use]
    pub fn figures<'a>(&self, record: &'a Record) -> Vec<FigureInContext<'a>> {
        let places = self.places();
        let usual = places.get(&place(record)).map(|place| &place.usual);
        let usual_of = |figure: &Figure| usual?.get(&key(figure)?).copied();
        record
            .figures()
            .iter()
            .map(|figure| FigureInContext { figure, usual: usual_of(figure) })
            .collect()
    }

    /// Returns the values of the main figures in at most `most` of the last windows, of counts per
    /// second, by name and labels; `None` where a window has none.
    #[must_use]
    pub fn series(&self, place: &Place, most: usize) -> BTreeMap<String, Vec<Option<f32>>> {
        let places = self.places();
        let Some(history) = places.get(place) else { return BTreeMap::new() };
        let last = |series: &StoredSeries| -> Vec<Option<f32>> {
            let before = series.values.len().saturating_sub(most);
            let values = series.values.iter().skip(before);
            values.map(|value| Some(*value).filter(|value| value.is_finite())).collect()
        };
        history.series.iter().map(|(key, series)| (key.clone(), last(series))).collect()
    }
}

impl Sink for History {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        if record.kind == RecordKind::Window {
            let is_raised = record.reports.alarm.as_ref().is_some_and(|alarm| alarm.raised());
            let length_ns = record.end_ns.saturating_sub(record.start_ns);
            let figures = record.figures();
            self.places().entry(place(record)).or_default().add(figures, length_ns, is_raised);
        }
        Ok(())
    }
}

/// Values of the last windows of one interface and direction.
#[derive(Clone, Debug, Default)]
struct PlaceHistory {
    /// Length of the window before, in nanoseconds.
    length_ns: u64,
    /// Whether each of the stored windows is without an alarm.
    is_usual: VecDeque<bool>,
    series: BTreeMap<String, StoredSeries>,
    /// Usual values before the last window.
    usual: BTreeMap<String, f64>,
}

#[derive(Clone, Debug, Default)]
struct StoredSeries {
    /// Whether a window without a value counts as zero.
    is_count: bool,
    /// Values of the stored windows; NaN for a window without a value.
    values: VecDeque<f32>,
}

impl PlaceHistory {
    /// Computes what was usual before a window, and adds its values. Windows with an alarm are not
    /// usual, and the values of a stump, the last window of a run or the one before a step of the
    /// clock, say little.
    fn add(&mut self, figures: &[Figure], length_ns: u64, is_raised: bool) {
        for (key, series) in &self.series {
            let values = series.values.iter().zip(&self.is_usual);
            let values = values.filter(|(value, is_usual)| **is_usual && value.is_finite());
            let values: Vec<f32> = values.map(|(value, _)| *value).collect();
            // The usual value does not change in an attack that is longer than the history.
            if values.len() >= MIN_WINDOWS {
                self.usual.insert(key.clone(), median(values));
            }
        }
        let before_ns = std::mem::replace(&mut self.length_ns, length_ns);
        if length_ns == 0 || length_ns < before_ns / 2 {
            return;
        }
        let windows = self.is_usual.len();
        push(&mut self.is_usual, !is_raised);
        let seconds = length_ns as f64 / 1e9;
        let mut values: BTreeMap<String, (bool, f64)> = BTreeMap::new();
        for figure in figures {
            let (is_count, value) = match &figure.shape {
                Shape::Count(count) => (true, count / seconds),
                Shape::Number(number) => (false, number.value),
                Shape::Distribution(_) | Shape::Ranking(_) | Shape::State(_) => continue,
            };
            if let Some(key) = key(figure).filter(|_| value.is_finite()) {
                values.insert(key, (is_count, value));
            }
        }
        for (key, series) in &mut self.series {
            let none = if series.is_count { 0.0 } else { f64::NAN };
            let value = values.remove(key).map_or(none, |(_, value)| value);
            push(&mut series.values, value as f32);
        }
        let mut new: Vec<(String, (bool, f64))> = values.into_iter().collect();
        // Of too many figures those of the first tiles are stored.
        new.sort_by_key(|(key, _)| {
            FIGURES.iter().position(|name| key.split(' ').next() == Some(*name))
        });
        for (key, (is_count, value)) in new {
            if self.series.len() == MAX_SERIES {
                break;
            }
            // A count that is new was zero.
            let before = if is_count { 0.0 } else { f32::NAN };
            let mut stored = VecDeque::from(vec![before; windows]);
            push(&mut stored, value as f32);
            self.series.insert(key, StoredSeries { is_count, values: stored });
        }
    }
}

fn push<T>(stored: &mut VecDeque<T>, value: T) {
    if stored.len() == MAX_WINDOWS {
        stored.pop_front();
    }
    stored.push_back(value);
}

/// Returns the name and labels of a figure whose values are stored.
fn key(figure: &Figure) -> Option<String> {
    let is_main = |(label, value): &(&str, String)| match *label {
        "percentile" => value == PERCENTILE,
        // The first screen has the delays to all groups.
        "group" => false,
        _ => true,
    };
    if !FIGURES.contains(&figure.name) || !figure.labels.iter().all(is_main) {
        return None;
    }
    let labels = figure.labels.iter().map(|(_, value)| value.as_str());
    Some(std::iter::once(figure.name).chain(labels).collect::<Vec<_>>().join(" "))
}

/// Returns the median, the lower one of two; zero without values.
fn median(mut sorted: Vec<f32>) -> f64 {
    sorted.sort_unstable_by(f32::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().map_or(0.0, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Number, Unit};

    const SECOND: u64 = 1_000_000_000;

    fn figure(name: &'static str, labels: &[(&'static str, &str)], shape: Shape) -> Figure {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Figure { name, title: "", unit: Unit::Things, labels, shape, truth: None }
    }

    fn window(packets: f64, entropy: f64) -> Vec<Figure> {
        let number = Number { value: entropy, low: entropy, high: entropy };
        vec![
            figure("packets", &[("family", "ipv4")], Shape::Count(packets)),
            figure("entropy", &[("key", "src")], Shape::Number(number)),
            figure("delay", &[("percentile", "50")], Shape::Number(number)),
            figure("late_packets", &[], Shape::Count(packets)),
        ]
    }

    #[test]
    fn what_is_usual_is_the_median_before_a_window_without_alarms_and_stumps() {
        let mut history = PlaceHistory::default();
        for number in 0..MIN_WINDOWS {
            history.add(&window(200.0 + (number % 3) as f64, 5.0), 2 * SECOND, false);
            assert!(history.usual.is_empty(), "{number}");
        }
        let usual =
            BTreeMap::from([("packets ipv4".to_owned(), 100.5), ("entropy src".to_owned(), 5.0)]);
        history.add(&window(9000.0, 9.0), 2 * SECOND, true);
        assert_eq!(history.usual, usual);
        // As long an attack as you like does not become usual.
        (0..2 * MIN_WINDOWS).for_each(|_| history.add(&window(9000.0, 9.0), 2 * SECOND, true));
        history.add(&window(1.0, 9.0), SECOND / 100, false);
        history.add(&window(201.0, 5.0), 2 * SECOND, false);
        assert_eq!((&history.usual, history.is_usual.len()), (&usual, 3 * MIN_WINDOWS + 2));
    }

    #[test]
    fn a_count_that_is_missing_is_zero_and_a_number_is_not() {
        let mut history = PlaceHistory::default();
        (0..40).for_each(|_| history.add(&window(100.0, 5.0), SECOND, false));
        (0..50).for_each(|_| history.add(&[], SECOND, false));
        let rare = [figure("rejected_packets", &[("reason", "non-ip")], Shape::Count(7.0))];
        (0..2).for_each(|_| history.add(&rare, SECOND, false));
        let usual = |key: &str| history.usual.get(key).copied();
        assert_eq!(usual("packets ipv4"), Some(0.0));
        assert_eq!(usual("entropy src"), Some(5.0));
        assert_eq!(usual("rejected_packets non-ip"), Some(0.0));
    }

    #[test]
    fn delays_leave_room_for_packets() {
        let number = Shape::Number(Number { value: 0.5, low: 0.5, high: 0.5 });
        let delay = |kind: &str, group: &str| {
            figure(
                "delay",
                &[("kind", kind), ("group", group), ("percentile", "95")],
                number.clone(),
            )
        };
        let kinds: Vec<String> = (0..MAX_SERIES).map(|kind| kind.to_string()).collect();
        let mut figures: Vec<Figure> = kinds.iter().map(|kind| delay(kind, "")).collect();
        // Fields have no labels without a value.
        figures.iter_mut().for_each(|figure| figure.labels.retain(|(_, value)| !value.is_empty()));
        figures.push(delay("dns", "others"));
        figures.extend(window(100.0, 5.0));
        let mut history = PlaceHistory::default();
        history.add(&figures, SECOND, false);
        let stored = |key: &str| history.series.contains_key(key);
        assert!(stored("packets ipv4") && stored("entropy src"), "{:?}", history.series.keys());
        assert!(stored("delay 0 95") && !stored("delay dns others 95"));
        assert_eq!(history.series.len(), MAX_SERIES);
    }

    #[test]
    fn memory_is_bounded() {
        let mut history = PlaceHistory::default();
        let kinds: Vec<String> = (0..100).map(|kind| kind.to_string()).collect();
        let figures: Vec<Figure> = kinds
            .iter()
            .map(|kind| figure("tcp_segments", &[("what", kind.as_str())], Shape::Count(1.0)))
            .collect();
        (0..MAX_WINDOWS + 100).for_each(|_| history.add(&figures, SECOND, false));
        let bytes: usize =
            history.series.values().map(|series| series.values.len() * size_of::<f32>()).sum();
        assert_eq!((history.series.len(), bytes), (MAX_SERIES, 115_200));
    }
}
