//! Reports: a page with tables and charts, tables that can also be printed, and files.
//!
//! - `Report`: results of a reproduction, with everything that is written about them;
//! - [`Page`]: HTML for a browser, made of a text and of parts that it names;
//! - [`svg`]: charts, on the page and in files of their own;
//! - [`Table`]: a table on the page and on a terminal.

pub mod svg;
mod table;

pub use table::{Cell, Column, Table};

use crate::error::ReproduceError;
use crate::statistics::{Numbers, Spread};
use flowgauge_ctl::serve::document;
use std::fs;
use std::path::{Path, PathBuf};
use svg::Chart;

/// Results of a reproduction.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// Tables for a terminal.
    pub tables: Vec<Table>,
    /// Results by name.
    pub numbers: Numbers,
    /// Page.
    pub page: Page,
    /// Names and contents of further files.
    pub files: Vec<(String, String)>,
}

impl Report {
    /// Returns the report whose page a text describes: its title in the first line, and HTML with
    /// names in double braces for parts and numbers. Charts have their caption after the name.
    pub(crate) fn new(
        text: &str,
        command: &str,
        numbers: Numbers,
        parts: &[(&str, Part)],
        files: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Self {
        let (title, text) = text.split_once('\n').unwrap_or((text, ""));
        let mut page = Page::new(title, command);
        let body = numbers.fill(text, |name| {
            let (word, caption) = name.split_once(' ').unwrap_or((name, ""));
            let (_, part) = parts.iter().find(|(name, _)| *name == word)?;
            Some(match part {
                Part::Text(text) => text.clone(),
                Part::Tables(tables) => tables.iter().map(Table::html).collect(),
                Part::Charts(charts) => page.figure(charts, caption),
            })
        });
        page.add(&body);
        let tables = parts.iter().flat_map(|(_, part)| match part {
            Part::Tables(tables) => tables.clone(),
            _ => Vec::new(),
        });
        let files = files.into_iter().map(|(name, text)| (name.to_owned(), text)).collect();
        Report { tables: tables.collect(), numbers, page, files }
    }

    /// Writes `index.html`, its charts and the further files to a directory. Returns the path of the
    /// page.
    ///
    /// # Errors
    /// [`ReproduceError::File`].
    pub(crate) fn write(&self, directory: &Path) -> Result<PathBuf, ReproduceError> {
        for (name, text) in &self.files {
            write_file(directory, name, text)?;
        }
        self.page.write(directory)
    }
}

/// Writes or replaces one file of a directory, which is created if it does not exist, and returns
/// its path. Other files in the directory are not touched.
///
/// # Errors
/// [`ReproduceError::File`].
pub fn write_file(directory: &Path, name: &str, text: &str) -> Result<PathBuf, ReproduceError> {
    let failure = |operation, path: &Path, source| ReproduceError::File {
        operation,
        path: path.to_owned(),
        source,
    };
    fs::create_dir_all(directory)
        .map_err(|source| failure("create directory", directory, source))?;
    let path = directory.join(name);
    fs::write(&path, text).map_err(|source| failure("write", &path, source))?;
    Ok(path)
}

/// Escapes the characters that are special in HTML.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns a field of a CSV file, in quotes if it needs them.
fn csv_field(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// Returns a cell with a number; an empty one without a number.
pub(crate) fn number_cell(value: Option<f64>, decimals: usize) -> Cell {
    value.map_or_else(Cell::default, |value| Cell::new(format!("{value:.decimals$}")))
}

/// Returns a cell with the mean of repetitions, and how they vary; an empty one without any.
pub(crate) fn mean_cell(spread: Option<Spread>, decimals: usize) -> Cell {
    let cell = number_cell(spread.map(|spread| spread.mean), decimals);
    match spread {
        Some(Spread { deviation, low, high, count: 2.., .. }) => cell
            .detail(format!("±{deviation:.decimals$}"))
            .detail(format!("{low:.decimals$}…{high:.decimals$}")),
        _ => cell,
    }
}

/// Returns a number of repetitions, in words.
pub(crate) fn runs(seeds: u64) -> String {
    format!("{seeds} run{}", if seeds == 1 { "" } else { "s" })
}

/// Files of a report, in a directory that is removed with this value.
#[cfg(test)]
pub(crate) struct WrittenReport {
    directory: PathBuf,
    pub page: String,
}

#[cfg(test)]
impl WrittenReport {
    /// Writes a report, and asserts that its page has the command, charts and these parts, and that
    /// each chart has files of its own, which requires that titles differ, with the command.
    pub(crate) fn new(report: &Report, command: &str, parts: &[&str]) -> Self {
        let name = format!("{}-{}", command.replace(' ', "-"), std::process::id());
        let directory = std::env::temp_dir().join(name);
        let page = fs::read_to_string(report.write(&directory).unwrap()).unwrap();
        for part in ["<svg", command].iter().chain(parts) {
            assert!(page.contains(*part), "{part} is not on the page");
        }
        assert!(!page.contains("NaN"));
        let entries = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
        let drawn: Vec<_> =
            entries.filter(|path| path.extension().is_some_and(|ending| ending == "svg")).collect();
        assert_eq!(drawn.len(), page.matches("<svg class=\"chart\"").count(), "{drawn:?}");
        for svg in drawn {
            let [svg, csv] = [svg.clone(), svg.with_extension("csv")]
                .map(|path| fs::read_to_string(path).unwrap());
            assert!(svg.contains(&escape(command)), "{svg}");
            assert!(csv.starts_with(&format!("# {command}\n")) && csv.lines().count() > 2, "{csv}");
        }
        WrittenReport { directory, page }
    }

    pub(crate) fn file(&self, name: &str) -> String {
        fs::read_to_string(self.directory.join(name)).unwrap()
    }

    /// Returns the number of lines of a file.
    pub(crate) fn lines(&self, name: &str) -> usize {
        self.file(name).lines().count()
    }
}

#[cfg(test)]
impl Drop for WrittenReport {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.directory);
    }
}

const STYLE: &str = include_str!("style.css");

/// Page under construction, from top to bottom, with each chart in files beside it.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    /// Command that makes the page.
    command: String,
    body: String,
    charts: Vec<Chart>,
}

/// Part of a page under a name.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// Words as HTML, or a number.
    Text(String),
    /// Tables, which are for a terminal too.
    Tables(Vec<Table>),
    /// Charts side by side, if there is room. The caption is after the name.
    Charts(Vec<Chart>),
}

impl Page {
    /// Starts a page with this title, which a command makes.
    #[must_use]
    pub fn new(title: &str, command: &str) -> Self {
        let (title, command) = (title.to_owned(), command.to_owned());
        Page { title, command, body: String::new(), charts: Vec::new() }
    }

    /// Adds HTML.
    pub fn add(&mut self, html: &str) {
        self.body += html;
        self.body.push('\n');
    }

    /// Returns charts as a figure, side by side if there is room, with a caption below; nothing
    /// without charts.
    pub fn figure(&mut self, charts: &[Chart], caption: &str) -> String {
        if charts.is_empty() {
            return String::new();
        }
        self.charts.extend_from_slice(charts);
        let charts: String = charts
            .iter()
            .map(|chart| format!("<div class=\"plot\">{}</div>", chart.svg(&self.command)))
            .collect();
        format!(
            "<figure><div class=\"charts\">{charts}</div><figcaption>{caption}</figcaption></figure>"
        )
    }

    /// Returns the document.
    #[must_use]
    pub fn html(&self) -> String {
        let Page { title, command, body, .. } = self;
        let body = format!("{body}<p>To repeat: <code>{}</code></p>\n", escape(command));
        document(&escape(title), STYLE, &body)
    }

    /// Writes `index.html`, and each chart as SVG and as CSV, to a directory. Returns the path of the
    /// page.
    ///
    /// # Errors
    /// [`ReproduceError::File`].
    pub(crate) fn write(&self, directory: &Path) -> Result<PathBuf, ReproduceError> {
        for chart in &self.charts {
            let name = chart.file_name();
            write_file(directory, &format!("{name}.svg"), &chart.svg(&self.command))?;
            write_file(directory, &format!("{name}.csv"), &chart.csv(&self.command))?;
        }
        write_file(directory, "index.html", &self.html())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_its_own_files_and_leaves_others() {
        let path = std::env::temp_dir().join(format!("flowgauge-report-{}", std::process::id()));
        let directory = path.join("new");
        write_file(&directory, "other", "stays").unwrap();
        for text in ["a longer one", "short"] {
            let written = write_file(&directory, "file", text).unwrap();
            assert_eq!(fs::read_to_string(written).unwrap(), text);
        }
        assert_eq!(fs::read_to_string(directory.join("other")).unwrap(), "stays");
        let error = write_file(&directory.join("other"), "file", "").unwrap_err().to_string();
        assert!(error.starts_with("cannot create directory ") && !error.contains('\n'), "{error}");
        fs::remove_dir_all(path).unwrap();
    }
}
