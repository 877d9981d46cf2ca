//! Files of the live page, and the frame of all pages.

pub(super) const HTML: &str = include_str!("assets/page.html");
pub(super) const SCRIPT: &str = concat!(
    include_str!("assets/text.js"),
    include_str!("assets/sections.js"),
    include_str!("assets/store.js"),
    include_str!("assets/panel.js"),
    include_str!("assets/page.js")
);
/// Added to the page of a capture.
#[cfg(feature = "report")]
pub(super) const INVENTORY: &str = include_str!("assets/inventory.js");
pub(super) const STYLE: &str =
    concat!(include_str!("assets/base.css"), include_str!("assets/page.css"));
pub(super) const CHARTS: &str = include_str!("assets/uplot/uPlot.iife.min.js");
pub(super) const CHARTS_STYLE: &str = include_str!("assets/uplot/uPlot.min.css");

/// Style sheet of all pages.
const BASE: &str = include_str!("assets/base.css");

/// Returns a self-contained page in the style of the live page. The arguments are HTML, except
/// `style`, which is added to the common style sheet.
#[must_use]
pub fn document(title: &str, style: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n{BASE}{style}</style>\n</head>\n<body>\n\
         <header>\n  <h1>flowgauge <span>{title}</span></h1>\n</header>\n<main>\n{body}</main>\n\
         <footer><p>flowgauge {}</p></footer>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    )
}
