//! A page that needs nothing but itself.

use super::Table;
use super::svg::{Chart, Promise, promises};

/// A text with what HTML gives a meaning to made harmless.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

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
        Page { title: title.to_owned(), body: format!("<h1>{}</h1>\n", escape(title)) }
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
        let items: String = items.into_iter().map(|item| format!("<li>{}</li>", item.as_ref())).collect();
        self.body += &format!("<ul>{items}</ul>\n");
    }

    /// A table.
    pub fn table(&mut self, table: &Table) {
        self.body += &table.html();
        self.body.push('\n');
    }

    /// Plots beside each other where there is room, with a caption below all of them; `caption` is HTML as it is.
    pub fn figure(&mut self, charts: &[Chart], caption: &str) {
        let charts: String = charts.iter().map(Chart::svg).collect();
        self.body += &format!("<figure><div class=\"charts\">{charts}</div><figcaption>{caption}</figcaption></figure>\n");
    }

    /// Figures beside their limits, with a caption; `caption` is HTML as it is.
    pub fn promises(&mut self, title: &str, figures: &[Promise], caption: &str) {
        let chart = promises(title, figures);
        self.body += &format!("<figure><div class=\"charts\">{chart}</div><figcaption>{caption}</figcaption></figure>\n");
    }

    /// The whole document.
    #[must_use]
    pub fn html(&self) -> String {
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{}</main>\n</body>\n</html>\n",
            escape(&self.title),
            self.body
        )
    }
}
