//! Results of one benchmark, as tables, as a page and as JSON.

use crate::machine::Machine;
#[cfg(target_os = "linux")]
use flowgauge_dataplane::Error;
use flowgauge_papers::ReproduceError;
use flowgauge_papers::report::Page;
use flowgauge_papers::report::svg::{Axis, Chart, Tone};
use flowgauge_papers::report::{Cell, Column, Table, escape, write_file};
use serde::Serialize;
#[cfg(target_os = "linux")]
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// Results of one benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// Name of the benchmark on the command line.
    pub benchmark: &'static str,
    /// Title, one line.
    #[serde(skip)]
    pub title: &'static str,
    /// Method of measurement, and how to read the results.
    #[serde(skip)]
    pub method: &'static str,
    /// Machine on which it ran.
    pub machine: Machine,
    /// Measurements over a parameter.
    pub grids: Vec<Grid>,
    /// Single figures, with or without limits.
    pub figures: Vec<Figure>,
    /// Measurements that were skipped, each with what the machine lacks for it.
    #[serde(skip)]
    pub skipped: Vec<String>,
}

/// Result of a benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Name of the measurement.
    pub name: String,
    /// Measured cost, in `unit`.
    pub value: f64,
    /// Unit of `value` and `limit`: [`RATIO`], or one of time.
    pub unit: &'static str,
    /// Difference between two halves of the rounds.
    pub noise: f64,
    /// Nanoseconds per packet, if `value` is a ratio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nanoseconds: Option<f64>,
    /// Limit in SPECIFICATION.md.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
}

/// Unit of a multiple of the cost that a figure is compared with.
pub const RATIO: &str = "x";

impl Figure {
    /// Returns a time that was measured once, in microseconds.
    #[must_use]
    pub fn microseconds(name: String, value: f64, limit: Option<Limit>) -> Self {
        Figure { name, value, unit: "us", noise: 0.0, nanoseconds: None, limit }
    }

    /// Returns whether the figure exceeds its limit by more than the noise of this run.
    #[must_use]
    pub fn breaks_limit(&self) -> bool {
        match self.limit {
            None => false,
            Some(Limit::AtMost(most)) => self.value > most + self.noise,
            Some(Limit::AtLeast(least)) => self.value < least - self.noise,
        }
    }
}

/// Limit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Upper limit.
    AtMost(f64),
    /// Lower limit.
    AtLeast(f64),
}

/// Measurements of several things, each over the same parameter.
#[derive(Clone, Debug, Serialize)]
pub struct Grid {
    /// Title.
    pub title: String,
    /// Unit of the values.
    pub unit: &'static str,
    /// Name of the parameter.
    pub across: &'static str,
    /// Value of the parameter in each column.
    pub columns: Vec<String>,
    /// Logarithmic position of each column in a plot; `None` for no plot.
    #[serde(skip)]
    pub places: Option<Vec<f64>>,
    /// Measured things.
    pub rows: Vec<Row>,
}

/// Values of one measured thing.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the measured thing.
    pub name: String,
    /// Value per column; `None` if it was not measured.
    pub values: Vec<Option<f64>>,
}

impl Findings {
    /// Returns the results as tables, for a terminal or a page.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        let grids = self.grids.iter().map(Grid::table);
        grids.chain((!self.figures.is_empty()).then(|| self.figure_table())).collect()
    }

    fn figure_table(&self) -> Table {
        let columns = vec![
            Column::text("", "what"),
            Column::number("", "value"),
            Column::number("", "noise"),
            Column::number("", "limit"),
            Column::number("", "ns/packet"),
        ];
        let mut table = Table::new(self.title, columns);
        for figure in &self.figures {
            let limit = match figure.limit {
                None => String::new(),
                Some(Limit::AtMost(most)) => format!("<= {}", number(most)),
                Some(Limit::AtLeast(least)) => format!(">= {}", number(least)),
            };
            let nanoseconds = figure.nanoseconds.map(number).unwrap_or_default();
            let value = Cell::new(format!("{} {:<2}", number(figure.value), figure.unit));
            // The verdict is on pages only.
            let value = match figure.limit {
                None => value,
                Some(_) if figure.breaks_limit() => value.detail("\u{2717} FAIL"),
                Some(_) => value.detail("\u{2713} pass"),
            };
            table.row(vec![
                Cell::new(&figure.name),
                value,
                Cell::new(number(figure.noise)),
                Cell::new(limit),
                Cell::new(nanoseconds),
            ]);
        }
        table
    }

    /// Returns the names of the figures that exceed their limits.
    #[must_use]
    pub fn broken(&self) -> Vec<&str> {
        self.figures
            .iter()
            .filter(|figure| figure.breaks_limit())
            .map(|figure| figure.name.as_str())
            .collect()
    }

    /// Writes a page with plots and the figures as JSON to a directory, and returns the path of the
    /// page.
    ///
    /// # Errors
    /// [`ReproduceError::File`].
    pub fn write(&self, directory: &Path) -> Result<PathBuf, ReproduceError> {
        let numbers = serde_json::to_string_pretty(self).map_err(|error| ReproduceError::File {
            operation: "write",
            path: directory.to_owned(),
            source: error.into(),
        })?;
        write_file(directory, &format!("{}.json", self.benchmark), &(numbers + "\n"))?;
        write_file(directory, &format!("{}.html", self.benchmark), &self.page())
    }

    fn page(&self) -> String {
        let mut page = Page::new(self.title, &format!("flowgauge bench {}", self.benchmark));
        page.add(&format!("<p class=\"lead\">{}</p>", escape(self.method)));
        page.add(&format!("<p>Measured on: {}.</p>", escape(&self.machine.line())));
        for grid in &self.grids {
            page.add(&format!("<h2>{}</h2>", escape(&grid.title)));
            if let Some(chart) = grid.chart() {
                let caption = format!("{}, by {}; less is better.", grid.unit, grid.across);
                let figure = page.figure(&[chart], &escape(&caption));
                page.add(&figure);
            }
            page.add(&grid.table().html());
        }
        if !self.figures.is_empty() {
            page.add("<h2>Figures and limits</h2>");
            page.add(&self.figure_table().html());
        }
        page.html()
    }
}

impl Grid {
    fn table(&self) -> Table {
        let mut columns = vec![Column::text("", "")];
        columns.extend(self.columns.iter().map(|name| Column::number(self.across, name)));
        let mut table = Table::new(format!("{} ({})", self.title, self.unit), columns);
        for row in &self.rows {
            let values =
                row.values.iter().map(|value| Cell::new(value.map(number).unwrap_or_default()));
            table.row([Cell::new(&row.name)].into_iter().chain(values).collect());
        }
        table
    }

    /// Returns the first rows as lines of a plot, one per available colour.
    fn chart(&self) -> Option<Chart> {
        let places = self.places.as_ref()?;
        let (low, high) = (
            places.iter().copied().fold(f64::MAX, f64::min),
            places.iter().copied().fold(0.0, f64::max),
        );
        let values = || self.rows.iter().flat_map(|row| &row.values).flatten().copied();
        let most = values().fold(0.0, f64::max);
        let x = Axis::logarithmic(self.across, low, high);
        let mut chart = Chart::new(&self.title, x, Axis::linear(self.unit, 0.0, most * 1.05));
        // Rows beyond the colours are in the table.
        for (row, tone) in self.rows.iter().zip(Tone::ALL) {
            let values = places.iter().zip(&row.values);
            let points = values.filter_map(|(place, value)| value.map(|value| (*place, value)));
            chart = chart.line(&row.name, tone, points);
        }
        Some(chart)
    }
}

/// Formats a number with its significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1e4 => flowgauge_ctl::output::grouped(value.round() as u64),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 20.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Reason why there is no figure.
#[cfg(target_os = "linux")]
pub(crate) enum Failure {
    /// The machine lacks something.
    Missing(String),
    Failed(ReproduceError),
}

#[cfg(target_os = "linux")]
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Failed(error.into())
    }
}

#[cfg(target_os = "linux")]
pub(crate) fn missing(what: impl Into<String>) -> Failure {
    Failure::Missing(what.into())
}

/// Results of the parts of a benchmark, before they are findings.
#[cfg(target_os = "linux")]
#[derive(Default)]
pub(crate) struct Results {
    pub(crate) grids: Vec<Grid>,
    pub(crate) figures: Vec<Figure>,
    pub(crate) skipped: Vec<String>,
}

#[cfg(target_os = "linux")]
impl Results {
    /// Skips a measurement for which the machine lacks something.
    pub(crate) fn skip(&mut self, need: impl Display) {
        self.skipped.push(format!("skipped: needs {need}"));
    }

    /// Returns what was found; `None` if the machine lacks something for it.
    pub(crate) fn note<T>(
        &mut self,
        found: Result<T, Failure>,
    ) -> Result<Option<T>, ReproduceError> {
        match found {
            Ok(found) => return Ok(Some(found)),
            Err(Failure::Missing(need)) => self.skip(need),
            Err(Failure::Failed(error)) => return Err(error),
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_broken_beyond_the_noise_of_the_run() {
        let figure = |value, noise, limit| Figure {
            name: String::new(),
            value,
            unit: RATIO,
            noise,
            nanoseconds: None,
            limit: Some(limit),
        };
        assert!(figure(1.61, 0.0, Limit::AtMost(1.6)).breaks_limit());
        assert!(!figure(1.61, 0.02, Limit::AtMost(1.6)).breaks_limit());
        assert!(figure(1.4, 0.05, Limit::AtLeast(1.5)).breaks_limit());
        assert!(!figure(1.46, 0.05, Limit::AtLeast(1.5)).breaks_limit());
    }

    fn findings() -> Findings {
        let figure = |name: &str, value| Figure {
            name: name.to_owned(),
            value,
            unit: RATIO,
            noise: 0.01,
            nanoseconds: Some(2.0),
            limit: Some(Limit::AtMost(1.5)),
        };
        let rows = vec![
            Row { name: "one".to_owned(), values: vec![Some(1.0), Some(2.0)] },
            Row { name: "other".to_owned(), values: vec![Some(20_000.0), None] },
        ];
        let columns = vec!["L1".to_owned(), "L2".to_owned()];
        let places = Some(vec![1e3, 1e6]);
        let grid = Grid {
            title: "Cost <a>".to_owned(),
            unit: "ns/packet",
            across: "frames in",
            columns,
            places,
            rows,
        };
        Findings {
            benchmark: "test",
            title: "A test",
            method: "By hand.",
            machine: Machine::look(),
            grids: vec![grid],
            figures: vec![figure("good", 1.2), figure("bad", 1.7)],
            skipped: Vec::new(),
        }
    }

    #[test]
    fn tables_say_all_and_what_is_broken() {
        let findings = findings();
        let text: String = findings.tables().iter().map(ToString::to_string).collect();
        for part in ["Cost <a> (ns/packet)", "frames in", "L2", "20,000", "1.70 x", "<= 1.50"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert_eq!(findings.broken(), ["bad"]);
    }

    #[test]
    fn the_page_and_the_numbers_are_written() {
        let path = std::env::temp_dir().join(format!("flowgauge-findings-{}", std::process::id()));
        let page = std::fs::read_to_string(findings().write(&path).unwrap()).unwrap();
        assert_eq!(
            (page.matches("\u{2713} pass").count(), page.matches("\u{2717} FAIL").count()),
            (1, 1)
        );
        assert!(
            page.contains("<svg") && page.contains("Cost &lt;a&gt;") && !page.contains("Cost <a>")
        );
        let numbers = std::fs::read_to_string(path.join("test.json")).unwrap();
        let numbers: serde_json::Value = serde_json::from_str(&numbers).unwrap();
        assert_eq!(numbers["figures"][1]["limit"]["at_most"], 1.5);
        assert_eq!(numbers["grids"][0]["rows"][1]["values"], serde_json::json!([20_000.0, null]));
        assert!(numbers["machine"]["cpus"].as_u64().unwrap() > 0);
        std::fs::remove_dir_all(path).unwrap();
    }
}
