//! Figures of the last windows of every run, or of every source of a run with several, as far as
//! `top` draws them. It knows no measurement by name; `tiles` does.

use super::figure::{Figure, Ranked, Shape};
use super::tiles::{TILES, TileValue};
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
    pub(super) pid: u64,
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
    pub(super) fn take(&mut self, runs: &[Value], notes: Vec<String>, now: Instant) {
        self.notes = notes;
        let mut before = std::mem::take(&mut self.runs);
        for status in runs {
            let Some(pid) = status["pid"].as_u64() else { continue };
            let sources = status["sources"].as_array().filter(|sources| !sources.is_empty());
            let parts = sources.map_or_else(|| std::slice::from_ref(status), Vec::as_slice);
            for part in parts {
                let source = part["source"].as_str().map(str::to_owned);
                let known = before.iter().position(|run| run.pid == pid && run.source == source);
                let mut run = known.map_or_else(
                    || RunView { pid, source, ..RunView::default() },
                    |at| before.swap_remove(at),
                );
                run.take(part, sources.map(|_| status));
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

    /// Updates the view from the status of a run, or of one of the sources of `run`.
    fn take(&mut self, status: &Value, run: Option<&Value>) {
        let text = |key: &str| status[key].as_str().unwrap_or_default();
        self.heading = format!(
            "run {}: {} {}, flowgauge {}",
            self.pid,
            text("backend"),
            self.source.as_deref().unwrap_or(text("interface")),
            text("version")
        );
        // Problems of other sources concern a run as a whole.
        let lines = |key: &str| {
            let all = run.unwrap_or(status)[key].as_array().into_iter().flatten();
            all.filter_map(|line| line.as_str().map(str::to_owned))
        };
        self.starting = lines("starting").collect();
        self.problems = lines("problems").chain(lines("failed")).collect();
        self.places = status["places"].as_array().map_or(0, Vec::len);
        self.take_parts(status);
        self.take_window(status);
    }

    /// Updates the views of interfaces and directions.
    fn take_parts(&mut self, status: &Value) {
        let mut before = std::mem::take(&mut self.parts);
        for part in status["parts"].as_array().into_iter().flatten() {
            let text = |key: &str| part[key].as_str().unwrap_or_default().to_owned();
            let place = Some((text("interface"), text("direction")));
            let known = before.iter().position(|part| part.place == place);
            let mut view = known.map_or_else(
                || RunView { place, ..RunView::default() },
                |at| before.swap_remove(at),
            );
            view.take_window(part);
            self.parts.push(view);
        }
    }

    /// Updates the numbers, if the last window is another one.
    fn take_window(&mut self, status: &Value) {
        let last = &status["last_window"];
        self.age = last["age_ns"].as_u64().unwrap_or_default() as f64 / 1e9;
        let window = last["window"].as_u64();
        if window == self.window {
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
        let figures = status["figures"].as_array().map(Vec::as_slice).unwrap_or_default();
        self.figures =
            figures.iter().filter_map(|figure| Figure::deserialize(figure).ok()).collect();
        if self.window.is_none() {
            for (tile, (_, series)) in TILES.iter().zip(&mut self.tiles) {
                series.extend(tile.before(&status["series"], &self.figures));
            }
        }
        let at = |key: &str| last[key].as_u64().unwrap_or_default();
        let before = std::mem::replace(
            &mut self.seconds,
            at("end_ns").saturating_sub(at("start_ns")) as f64 / 1e9,
        );
        // The last window of a run, or the one before a step of the clock, may be too short.
        let is_stump = self.seconds < before / 2.0;
        (self.window, self.complete) = (window, last["complete"].as_bool().unwrap_or(true));
        let lasts =
            |before: Option<f64>, is: bool| is.then(|| before.unwrap_or(0.0) + self.seconds);
        let drops = last["drops"].as_object().into_iter().flat_map(|drops| drops.values());
        let lost: f64 = drops.filter_map(Value::as_f64).sum();
        self.alarm = lasts(self.alarm, last["alarm"].as_bool().unwrap_or(false));
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
