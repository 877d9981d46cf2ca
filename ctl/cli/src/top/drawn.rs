//! Figures of the last windows of every run, as far as `top` draws them. It knows no measurement by
//! name.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};

/// Maximum number of windows in a course.
const MAX_COURSE_WINDOWS: usize = 120;

/// Figure as in the status of a run.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Figure {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) unit: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(flatten)]
    pub(super) shape: Shape,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Shape {
    Number(Number),
    Count(f64),
    State(IgnoredAny),
    Distribution { ranges: Vec<Range> },
    Ranking(Vec<Ranked>),
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Number {
    // JSON has no infinity: an unbounded value is null.
    value: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Range {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) count: f64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Ranked {
    pub(super) name: String,
    pub(super) number: Number,
    #[serde(default)]
    pub(super) more: String,
}

impl Number {
    pub(super) fn value(&self) -> f64 {
        self.value.unwrap_or(f64::INFINITY)
    }

    pub(super) fn low(&self) -> f64 {
        self.low.unwrap_or(f64::NEG_INFINITY)
    }

    pub(super) fn high(&self) -> f64 {
        self.high.unwrap_or(f64::INFINITY)
    }
}

impl Figure {
    /// Returns the label that distinguishes it from other figures of the same name.
    pub(super) fn label(&self) -> String {
        let one = |(name, value): (&String, &String)| {
            if name == "percentile" { format!("p{value}") } else { value.clone() }
        };
        self.labels.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    /// Returns its value for the course; counts are per second.
    pub(super) fn height(&self, seconds: f64) -> Option<f64> {
        match &self.shape {
            Shape::Number(number) => Some(number.value()),
            Shape::Count(count) if seconds > 0.0 => Some(count / seconds),
            _ => None,
        }
    }
}

/// Last status of a run, with the course of its numbers.
#[derive(Default)]
pub(super) struct RunView {
    pub(super) pid: u64,
    pub(super) heading: String,
    /// Sources that are not counted yet, one line each.
    pub(super) starting: Vec<String>,
    /// Problems and failed sources, one line each.
    pub(super) problems: Vec<String>,
    pub(super) window: Option<u64>,
    pub(super) seconds: f64,
    pub(super) age: f64,
    pub(super) complete: bool,
    pub(super) alarm: bool,
    pub(super) figures: Vec<Figure>,
    pub(super) courses: BTreeMap<(String, String), VecDeque<f64>>,
}

/// All runs, ordered by process id.
#[derive(Default)]
pub(super) struct Runs {
    pub(super) runs: Vec<RunView>,
    pub(super) notes: Vec<String>,
}

impl Runs {
    /// Updates the runs from their statuses, and removes those without one.
    pub(super) fn take(&mut self, runs: &[Value], notes: Vec<String>) {
        self.notes = notes;
        let mut before = std::mem::take(&mut self.runs);
        for status in runs {
            let Some(pid) = status["pid"].as_u64() else { continue };
            let known = before.iter().position(|run| run.pid == pid);
            let mut run = known
                .map_or_else(|| RunView { pid, ..RunView::default() }, |at| before.swap_remove(at));
            run.take(status);
            self.runs.push(run);
        }
        self.runs.sort_by_key(|run| run.pid);
    }
}

impl RunView {
    fn take(&mut self, status: &Value) {
        let text = |key: &str| status[key].as_str().unwrap_or_default();
        self.heading = format!(
            "run {}: {} {}, flowgauge {}",
            self.pid,
            text("backend"),
            text("interface"),
            text("version")
        );
        let lines = |key: &str| {
            status[key]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|line| line.as_str().map(str::to_owned))
        };
        self.starting = lines("starting").collect();
        self.problems = lines("problems").chain(lines("failed")).collect();
        let last = &status["last_window"];
        self.age = last["age_ns"].as_u64().unwrap_or_default() as f64 / 1e9;
        let window = last["window"].as_u64();
        if window == self.window {
            return;
        }
        // Skip figures of a newer version that this one does not know.
        let figures = status["figures"].as_array().map(Vec::as_slice).unwrap_or_default();
        self.figures =
            figures.iter().filter_map(|figure| Figure::deserialize(figure).ok()).collect();
        let at = |key: &str| last[key].as_u64().unwrap_or_default();
        self.seconds = at("end_ns").saturating_sub(at("start_ns")) as f64 / 1e9;
        (self.window, self.complete) = (window, last["complete"].as_bool().unwrap_or(true));
        self.alarm = last["alarm"].as_bool().unwrap_or(false);
        for figure in &self.figures {
            let Some(height) = figure.height(self.seconds) else { continue };
            let course = self.courses.entry((figure.name.clone(), figure.label())).or_default();
            course.push_back(height);
            if course.len() > MAX_COURSE_WINDOWS {
                course.pop_front();
            }
        }
    }
}
