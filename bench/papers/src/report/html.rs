//! Page of a report: HTML for a browser, with each chart in files beside it.

use super::svg::Chart;
use super::{Table, escape, write_file};
use crate::error::ReproduceError;
use flowgauge_ctl::serve::document;
use std::path::{Path, PathBuf};

const STYLE: &str = include_str!("style.css");

/// Page under construction, from top to bottom.
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
