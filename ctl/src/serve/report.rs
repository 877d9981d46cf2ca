//! Self-contained page about a capture, in a single file.

use super::page::{CHARTS, CHARTS_STYLE, HTML, INVENTORY, SCRIPT, STYLE, event};
use crate::controller::Sink;
use crate::history::History;
use crate::inventory::Contents;
use crate::names::Names;
use crate::record::{Record, RecordKind};
use crate::text::escaped_strings;
use serde::Serialize;
use std::io;

/// Maximum size of the windows in a page, in bytes; browsers draw larger pages too slowly.
const MAX_WINDOW_BYTES: usize = 48 << 20;

/// Fact about a capture, such as its path, shown with the windows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fact {
    /// Name of the fact.
    pub name: &'static str,
    /// Value as text.
    pub value: String,
}

/// Page under construction: a sink for the records of a capture.
#[derive(Default)]
pub struct ReportPage {
    windows: Vec<String>,
    totals: Vec<String>,
    bytes: usize,
    /// Windows omitted because the page would be too large.
    pub left_out: u64,
    names: Names,
    history: History,
}

impl Sink for ReportPage {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        self.history.record(record)?;
        let (windows, totals) = (self.windows.len() as u64, self.totals.len() as u64);
        match record.kind {
            RecordKind::Window | RecordKind::Silence if self.bytes < MAX_WINDOW_BYTES => {
                let event = event(windows, record, &self.names, &self.history)?;
                self.bytes += event.len();
                self.windows.push(event);
            }
            RecordKind::Window | RecordKind::Silence => self.left_out += 1,
            RecordKind::Total => {
                self.totals.push(event(totals, record, &self.names, &self.history)?)
            }
            RecordKind::Sample | RecordKind::Union => {}
        }
        Ok(())
    }
}

impl ReportPage {
    /// Creates an empty page that names addresses.
    #[must_use]
    pub fn naming(names: Names) -> Self {
        ReportPage { names, ..ReportPage::default() }
    }

    /// Returns the page as HTML, with a title, facts, problems with the capture, its contents, and
    /// its windows. It loads no other resource.
    ///
    /// # Errors
    /// If the data cannot be formatted as JSON, which does not happen.
    pub fn page(
        &self,
        title: &str,
        facts: &[Fact],
        problems: &[String],
        contents: &Contents,
    ) -> io::Result<String> {
        let about = serde_json::json!({ "title": title, "version": env!("CARGO_PKG_VERSION"), "facts": facts, "problems": problems, "contents": contents });
        let about = about.to_string();
        let data = format!(
            "{{\"about\":{},\"totals\":[{}],\"windows\":[{}]}}",
            escaped_strings(&about),
            self.totals.join(","),
            self.windows.join(",")
        );
        // Only `<` can end a script, and JSON may escape it.
        let data = data.replace('<', "\\u003c");
        let policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";
        let link = |name: &str| format!("<link rel=\"stylesheet\" href=\"{name}\">");
        let script = |name: &str| format!("<script src=\"{name}\"></script>");
        let inlined = |text: &str| format!("<script>{text}</script>");
        let scripts = [SCRIPT, INVENTORY].concat();
        let page = HTML
            .replacen(
                "<meta charset=\"utf-8\">",
                &format!("<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">"),
                1,
            )
            .replacen(&link("uplot.css"), &format!("<style>{CHARTS_STYLE}</style>"), 1)
            .replacen(&link("page.css"), &format!("<style>{STYLE}</style>"), 1)
            .replacen(&script("uplot.js"), &inlined(CHARTS), 1)
            .replacen(
                &script("page.js"),
                &format!("<script type=\"application/json\" id=\"data\">{data}</script>\n{}", inlined(&scripts)),
                1,
            );
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::Inventory;

    #[test]
    fn a_page_holds_everything_and_text_ends_no_script() {
        let evil = "</script><script>alert(1)</script><!--";
        let facts = [Fact { name: "File", value: evil.to_owned() }];
        let page = ReportPage::default()
            .page(evil, &facts, &[evil.to_owned()], &Inventory::default().contents())
            .unwrap_or_default();
        let turned = ReportPage::default().page(
            "x",
            &[],
            &["\u{202e}fdp.exe".to_owned()],
            &Inventory::default().contents(),
        );
        let turned = turned.unwrap_or_default();
        assert!(turned.contains(r#""\\u{202e}fdp.exe""#) && !turned.contains('\u{202e}'));
        assert!(
            !page.contains("alert(1)</script>")
                && page.contains("\\u003c/script>\\u003cscript>alert(1)"),
            "{page}"
        );
        // The page's own scripts: charts, data, page.
        assert_eq!(page.matches("</script>").count(), 3);
        assert_eq!(page.matches("<script").count(), 3);
        for loading in ["src=", "<link rel=\"stylesheet\"", "@import", "url("] {
            assert!(!page.contains(loading), "{loading}");
        }
    }
}
