//! Text in HTML and SVG.

/// A text with what HTML gives a meaning to made harmless.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
