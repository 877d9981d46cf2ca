//! A page that needs nothing but itself.

use super::escape::escape;
use super::svg::{Chart, Promise, promises};
use super::table::Table;
use flowgauge_ctl::serve::document;

const STYLE: &str = include_str!("style.css");

/// A page in the making, from top to bottom.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    body: String,
}

impl Page {
    /// A page with this title above it.
    #[must_use]
    pub fn new(title: &str) -> Self {
        Page { title: title.to_owned(), body: String::new() }
    }

    /// What it is about, in larger type; `html` as it is.
    pub fn lead(&mut self, html: &str) {
        self.body += &format!("<p class=\"lead\">{html}</p>\n");
    }

    /// A heading of a section.
    pub fn heading(&mut self, text: &str) {
        self.body += &format!("<h2>{}</h2>\n", escape(text));
    }

    /// A paragraph; `html` as it is.
    pub fn paragraph(&mut self, html: &str) {
        self.body += &format!("<p>{html}</p>\n");
    }

    /// A list; the `items` are HTML as it is.
    pub fn list<S: AsRef<str>>(&mut self, items: impl IntoIterator<Item = S>) {
        let items: String =
            items.into_iter().map(|item| format!("<li>{}</li>", item.as_ref())).collect();
        self.body += &format!("<ul>{items}</ul>\n");
    }

    /// A table.
    pub fn table(&mut self, table: &Table) {
        self.body += &table.html();
        self.body.push('\n');
    }

    /// Plots beside each other where there is room, each with a table of its numbers, and with a
    /// caption below all of them; `caption` is HTML as it is.
    pub fn figure(&mut self, charts: &[Chart], caption: &str) {
        let charts: Vec<_> = charts.iter().map(|chart| (chart.svg(), chart.table())).collect();
        self.panels(&charts, caption);
    }

    /// Figures beside their limits, with a caption; `caption` is HTML as it is.
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

    /// The whole document.
    #[must_use]
    pub fn html(&self) -> String {
        document(&escape(&self.title), STYLE, &self.body)
    }
}
