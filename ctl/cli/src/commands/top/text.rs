//! Numbers, intervals and bars as `top` prints them.

use super::drawn::Series;
use super::figure::{Figure, Number, Ranked};
use super::tiles::{RankingStyle, ranking_style};
use flowgauge_ctl::output::scaled;

/// Characters for the heights of a series.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Formats an interval, with one unit if both ends have the same.
pub(super) fn interval(low: f64, high: f64, unit: &str) -> String {
    let (low, high) = (formatted(low, unit), formatted(high, unit));
    match (low.rsplit_once(' '), high.rsplit_once(' ')) {
        (Some((number, one)), Some((_, other))) if one == other => format!("{number} … {high}"),
        _ => format!("{low} … {high}"),
    }
}

/// Returns the entries of a ranking that are listed: those with an event, and queried ones.
pub(super) fn listed<'a>(figure: &Figure, ranked: &'a [Ranked]) -> Vec<&'a Ranked> {
    let lists_zero = ranking_style(figure).is_none_or(RankingStyle::lists_zero);
    ranked.iter().filter(|it| lists_zero || it.number.value() > 0.0).collect()
}

/// Cuts a text to a width, with an ellipsis.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    if width == 0 { String::new() } else { format!("{kept}…") }
}

/// Formats the interval of a number in brackets; empty if the number is exact.
pub(super) fn bounds(number: &Number, factor: f64, unit: &str) -> String {
    if number.low() == number.high() {
        String::new()
    } else {
        format!("({})", interval(number.low() * factor, number.high() * factor, unit))
    }
}

/// Draws the last heights of a series, relative to zero. A missing height is a blank.
pub(super) fn drawn(series: &Series, width: usize) -> String {
    let last = series.iter().skip(series.len().saturating_sub(width));
    let finite = last.clone().copied().filter(|height| height.is_finite());
    let most = finite.fold(f64::MIN_POSITIVE, f64::max);
    let drawn = |height: &f64| match height {
        height if height.is_nan() => ' ',
        height => HEIGHTS[((height / most * 7.0).round() as usize).min(7)],
    };
    last.map(drawn).collect()
}

/// Formats a number with its unit.
pub(super) fn formatted(value: f64, unit: &str) -> String {
    if !value.is_finite() {
        return if value > 0.0 { "∞" } else { "-∞" }.to_owned();
    }
    if let Some(unit) = unit.strip_suffix("/s") {
        let scaled = scaled(value);
        let symbol = if unit == "bits" { "bit/s" } else { "/s" };
        let gap = if scaled.contains(' ') || unit == "things" { "" } else { " " };
        return format!("{scaled}{gap}{symbol}");
    }
    match unit {
        "ratio" => format!("{:.2} %", value * 100.0),
        "seconds" => match value.abs() {
            0.0 => "0 s".to_owned(),
            size if size < 1e-6 => format!("{:.0} ns", value * 1e9),
            size if size < 1e-3 => format!("{:.1} µs", value * 1e6),
            size if size < 1.0 => format!("{:.1} ms", value * 1e3),
            _ => format!("{value:.2} s"),
        },
        "bits" => format!("{value:.3} bit"),
        "bytes" => {
            let scaled = scaled(value);
            if scaled.contains(' ') { format!("{scaled}B") } else { format!("{scaled} B") }
        }
        _ => scaled(value).trim_end().to_owned(),
    }
}
