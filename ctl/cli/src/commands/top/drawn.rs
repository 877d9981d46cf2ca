//! Figures of the last windows of every run, or of every source of a run with several, as far as
//! `top` draws them. It knows no measurement by name; `tiles` does.

use super::figure::{Figure, Ranked, Shape};
use super::tiles::{TILES, TileValue};
use flowgauge_ctl::status::{Latest, PartStatus, StatusReport};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Maximum number of windows in a series.
const MAX_SERIES_WINDOWS: usize = 200;
/// Time for which a run that ended, or no longer answers, is still shown.
const SILENT_SHOWN: Duration = Duration::from_secs(600);
/// Time without an answer from which a run counts as ended. A busy machine answers late.
const ENDED_AFTER: Duration = Duration::from_secs(3);

/// Series of a number: its values in the last windows, NaN where it was not measured.
pub(super) type Series = VecDeque<f64>;

/// Interface and direction.
pub(super) type Place = (String, String);

/// Last status of a run, of one of its sources, or of one of its interfaces and directions, with
/// the series of its numbers.
#[derive(Default)]
pub(super) struct RunView {
    pub(super) pid: u32,
    /// Time of the last status.
    answered: Option<Instant>,
    /// Time since the last status, once the run no longer has one.
    pub(super) silent: Option<Duration>,
    /// Name of the source, in a run with several.
    pub(super) source: Option<String>,
    /// Interface and direction, of a part.
    pub(super) place: Option<Place>,
    /// The busiest of its interfaces and directions, if there are several.
    pub(super) parts: Vec<RunView>,
    /// Number of its interfaces and directions.
    pub(super) places: usize,
    pub(super) heading: String,
    /// Sources that are not counted yet, one line each.
    pub(super) starting: Vec<String>,
    /// Problems and failed sources, one line each.
    pub(super) problems: Vec<String>,
    pub(super) window: Option<u64>,
    pub(super) seconds: f64,
    pub(super) age: f64,
    pub(super) complete: bool,
    /// Seconds from the start of the first of the last windows in a row with the alarm, or with
    /// losses, to the end of the last window.
    pub(super) alarm: Option<f64>,
    pub(super) lossy: Option<f64>,
    /// Packets lost in the windows that were seen.
    pub(super) lost: f64,
    pub(super) figures: Vec<Figure>,
    pub(super) series: BTreeMap<(String, String), Series>,
    pub(super) tiles: [(Option<TileValue>, Series); TILES.len()],
    /// Sizes in the window before, by ranking and name.
    pub(super) before: BTreeMap<(String, String), f64>,
}

/// All runs, ordered by process id; those that ended come last.
#[derive(Default)]
pub(super) struct Runs {
    pub(super) runs: Vec<RunView>,
    pub(super) notes: Vec<String>,
}

impl Runs {
    /// Updates the runs from their statuses of this moment. Runs without one remain for
    /// [`SILENT_SHOWN`] with their last figures.
    pub(super) fn take(&mut self, runs: &[StatusReport], notes: Vec<String>, now: Instant) {
        self.notes = notes;
        let mut before = std::mem::take(&mut self.runs);
        for status in runs {
            let (pid, sources) = (status.pid, &status.sources);
            let one = std::slice::from_ref(status);
            for part in if sources.is_empty() { one } else { &sources[..] } {
                let source = &part.source;
                let known = before.iter().position(|run| run.pid == pid && run.source == *source);
                let mut run = known.map_or_else(
                    || RunView { pid, source: source.clone(), ..RunView::default() },
                    |at| before.swap_remove(at),
                );
                run.take(part, status);
                (run.answered, run.silent) = (Some(now), None);
                self.runs.push(run);
            }
        }
        for mut run in before {
            run.silent = run.answered.map(|answered| now.saturating_duration_since(answered));
            if run.window.is_some() && run.silent.is_some_and(|silent| silent < SILENT_SHOWN) {
                self.runs.push(run);
            }
        }
        self.runs.sort_by(|one, other| {
            let order = |run: &RunView| (run.has_ended(), run.pid, run.source.clone());
            order(one).cmp(&order(other))
        });
    }
}

impl RunView {
    /// Returns whether it has had no status for [`ENDED_AFTER`].
    pub(super) fn has_ended(&self) -> bool {
        self.silent.is_some_and(|silent| silent >= ENDED_AFTER)
    }

    /// Updates the view from the status of one of the sources of `run`, or of the run itself.
    fn take(&mut self, status: &StatusReport, run: &StatusReport) {
        self.heading = format!(
            "run {}: {} {}, flowgauge {}",
            self.pid,
            status.backend,
            self.source.as_ref().unwrap_or(&status.interface),
            status.version
        );
        // Problems of other sources concern a run as a whole.
        self.starting.clone_from(&run.starting);
        self.problems = [&run.problems[..], &run.failed].concat();
        self.places = status.places.len();
        self.take_parts(&status.parts);
        self.take_window(status.last_window.as_ref(), &status.figures, &status.series);
    }

    /// Updates the views of interfaces and directions.
    fn take_parts(&mut self, parts: &[PartStatus]) {
        let mut before = std::mem::take(&mut self.parts);
        for part in parts {
            let place = Some((part.interface.clone(), part.direction.clone()));
            let known = before.iter().position(|part| part.place == place);
            let mut view = known.map_or_else(
                || RunView { place, ..RunView::default() },
                |at| before.swap_remove(at),
            );
            view.take_window(Some(&part.last_window), &part.figures, &BTreeMap::new());
            self.parts.push(view);
        }
    }

    /// Updates the numbers, if the last window is another one.
    fn take_window(
        &mut self,
        last: Option<&Latest>,
        figures: &Value,
        series: &BTreeMap<String, Vec<Option<f32>>>,
    ) {
        let Some(last) = last else { return };
        self.age = last.age_ns as f64 / 1e9;
        if self.window == Some(last.window) {
            return;
        }
        self.before = self
            .figures
            .iter()
            .filter_map(|figure| match &figure.shape {
                Shape::Ranking(ranked) => Some((figure, ranked)),
                _ => None,
            })
            .flat_map(|(figure, ranked)| {
                let name = |it: &Ranked| (figure.identity(), it.name.clone());
                ranked.iter().map(move |it| (name(it), it.number.value()))
            })
            .collect();
        // Skip figures of a newer version that this one does not know.
        let figures = figures.as_array().map(Vec::as_slice).unwrap_or_default();
        self.figures =
            figures.iter().filter_map(|figure| Figure::deserialize(figure).ok()).collect();
        if self.window.is_none() {
            for (tile, (_, drawn)) in TILES.iter().zip(&mut self.tiles) {
                drawn.extend(tile.before(series, &self.figures));
            }
        }
        let seconds = last.end_ns.saturating_sub(last.start_ns) as f64 / 1e9;
        let before = std::mem::replace(&mut self.seconds, seconds);
        // The last window of a run, or the one before a step of the clock, may be too short.
        let is_stump = self.seconds < before / 2.0;
        (self.window, self.complete) = (Some(last.window), last.complete);
        let lasts =
            |before: Option<f64>, is: bool| is.then(|| before.unwrap_or(0.0) + self.seconds);
        let lost = last.drops.values().sum::<u64>() as f64;
        self.alarm = lasts(self.alarm, last.alarm == Some(true));
        self.lossy = lasts(self.lossy, lost > 0.0);
        self.lost += lost;
        for figure in &self.figures {
            let Some(height) = figure.height(self.seconds) else { continue };
            let series = self.series.entry((figure.name.clone(), figure.label())).or_default();
            push(series, height);
        }
        for (tile, (value, series)) in TILES.iter().zip(&mut self.tiles).filter(|_| !is_stump) {
            *value = tile.value(&self.figures, self.seconds);
            push(series, value.as_ref().map_or(f64::NAN, |it| it.value));
        }
    }
}

/// Returns the value of a tile by its title.
pub(super) fn tile_value(run: &RunView, title: &str) -> Option<f64> {
    let mut tiles = TILES.iter().zip(&run.tiles);
    tiles.find_map(|(tile, (value, _))| (tile.title == title).then_some(value.as_ref()?.value))
}

fn push(series: &mut Series, height: f64) {
    series.push_back(height);
    if series.len() > MAX_SERIES_WINDOWS {
        series.pop_front();
    }
}
