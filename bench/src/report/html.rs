//! Self-contained HTML page, with its figures in files next to it.

use super::directory::Directory;
use super::escape::escape;
use super::svg::{self, Chart, Promise, promises};
use super::table::Table;
use crate::error::ReproduceError;
use flowgauge_ctl::serve::document;
use std::path::PathBuf;

const STYLE: &str = include_str!("style.css");

/// Page under construction, from top to bottom.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    body: String,
    figures: Vec<Chart>,
}

impl Page {
    /// Starts a page with this title.
    #[must_use]
    pub fn new(title: &str) -> Self {
        Page { title: title.to_owned(), body: String::new(), figures: Vec::new() }
    }

    /// Adds a lead paragraph in larger type. `html` is not escaped.
    pub fn lead(&mut self, html: &str) {
        self.body += &format!("<p class=\"lead\">{html}</p>\n");
    }

    /// Adds a section heading.
    pub fn heading(&mut self, text: &str) {
        self.body += &format!("<h2>{}</h2>\n", escape(text));
    }

    /// Adds a paragraph. `html` is not escaped.
    pub fn paragraph(&mut self, html: &str) {
        self.body += &format!("<p>{html}</p>\n");
    }

    /// Adds a list. The `items` are not escaped.
    pub fn list<S: AsRef<str>>(&mut self, items: impl IntoIterator<Item = S>) {
        let items: String =
            items.into_iter().map(|item| format!("<li>{}</li>", item.as_ref())).collect();
        self.body += &format!("<ul>{items}</ul>\n");
    }

    /// Adds a table.
    pub fn table(&mut self, table: &Table) {
        self.body += &table.html();
        self.body.push('\n');
    }

    /// Adds plots side by side if there is room, each with a table of its values, and a caption
    /// below; nothing without plots. `caption` is not escaped.
    pub fn figure(&mut self, charts: &[Chart], caption: &str) {
        if charts.is_empty() {
            return;
        }
        self.figures.extend_from_slice(charts);
        let charts: Vec<_> = charts.iter().map(|chart| (chart.svg(), chart.table())).collect();
        self.panels(&charts, caption);
    }

    /// Adds figures with their limits and a caption. `caption` is not escaped.
    pub fn promises(&mut self, title: &str, figures: &[Promise], caption: &str) {
        self.panels(&[promises(title, figures)], caption);
    }

    fn panels(&mut self, charts: &[(String, Table)], caption: &str) {
        self.body += "<figure><div class=\"charts\">";
        for (chart, table) in charts {
            let table = table.html();
            self.body += &format!(
                "<div class=\"panel\"><div class=\"plot\">{chart}</div><details><summary>as a table</summary>{table}</details></div>"
            );
        }
        self.body += &format!("</div><figcaption>{caption}</figcaption></figure>\n");
    }

    /// Returns the document.
    #[must_use]
    pub fn html(&self) -> String {
        document(&escape(&self.title), &[STYLE, svg::STYLE].concat(), &self.body)
    }

    /// Writes `index.html`, and each figure as SVG and as CSV with the command that made it. Returns
    /// the path of the page.
    ///
    /// # Errors
    /// [`ReproduceError::File`].
    pub fn write(&self, directory: &Directory, command: &str) -> Result<PathBuf, ReproduceError> {
        for chart in &self.figures {
            let name = chart.file_name();
            let svg = chart.document(command);
            directory.write(&format!("{name}.svg"), |file| file.write_all(svg.as_bytes()))?;
            directory.write(&format!("{name}.csv"), |file| chart.csv(command, file))?;
        }
        let page = self.html();
        directory.write("index.html", |file| file.write_all(page.as_bytes()))
    }
}
