//! Plots as inline SVG.
//!
//! Colours and fonts come from the style sheet of the page ([`html`](super::html)), so that a plot
//! follows its dark mode.

use super::escape::{csv_field, escape};
use super::table::{Cell, Column, Table};
use flowgauge_ctl::output::grouped;
use std::fmt::Write;
use std::io;

/// Rules for charts, on a page and in files of their own.
pub(super) const STYLE: &str = include_str!("chart.css");

/// Colours of a chart in a file of its own: those of a light page. Few programs that place an SVG
/// in a paper know the variables of a style sheet.
const COLOURS: [(&str, &str); 8] = [
    ("var(--ink)", "#1b1f24"),
    ("var(--faint)", "#57606a"),
    ("var(--line)", "#d4d8de"),
    ("var(--tone-1)", "#1f6fb4"),
    ("var(--tone-2)", "#d9730d"),
    ("var(--tone-3)", "#2a8a57"),
    ("var(--tone-4)", "#c0392b"),
    ("var(--tone-5)", "#7d4fb5"),
];

/// Mapping of values to positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal distances for equal differences.
    Linear,
    /// Equal distances for equal ratios; the range must be positive.
    Logarithmic,
}

/// Axis of a plot.
#[derive(Clone, Debug)]
pub struct Axis {
    label: String,
    scale: Scale,
    low: f64,
    high: f64,
}

impl Axis {
    /// Returns a linear axis.
    #[must_use]
    pub fn linear(label: &str, low: f64, high: f64) -> Self {
        Axis { label: label.to_owned(), scale: Scale::Linear, low, high }
    }

    /// Returns a logarithmic axis that starts at `low`, which must be positive.
    #[must_use]
    pub fn logarithmic(label: &str, low: f64, high: f64) -> Self {
        Axis { scale: Scale::Logarithmic, ..Axis::linear(label, low, high) }
    }

    /// Returns whether a value is within the range.
    fn contains(&self, value: f64) -> bool {
        (-1e-9..=1.0 + 1e-9).contains(&self.place(value))
    }

    /// Returns the position of a value, from 0 to 1 within the range.
    fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Logarithmic => (value / self.low).ln() / (self.high / self.low).ln(),
        }
    }

    /// Returns the values with a label.
    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let step = round_step((self.high - self.low) / TICKS);
                let (first, last) =
                    ((self.low / step).ceil() as i64, (self.high / step).floor() as i64);
                (first..=last).map(|k| k as f64 * step).collect()
            }
            Scale::Logarithmic => {
                let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
                decades
                    .map(|decade| 10_f64.powi(decade))
                    .filter(|value| self.contains(*value))
                    .collect()
            }
        }
    }

    /// Returns the values with a fainter line and no label.
    fn minor_ticks(&self) -> Vec<f64> {
        if self.scale == Scale::Linear {
            return Vec::new();
        }
        let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let values = decades
            .flat_map(|decade| (2..10).map(move |digit| f64::from(digit) * 10_f64.powi(decade)));
        values.filter(|value| (0.0..=1.0).contains(&self.place(*value))).collect()
    }
}

/// Approximate number of labels on a linear axis.
const TICKS: f64 = 5.5;

/// Rounds up to 1, 2 or 5 times a power of ten.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|factor| factor * power);
    steps.into_iter().find(|step| *step >= least * (1.0 - 1e-9)).unwrap_or(10.0 * power)
}

/// Colour of the page's palette.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Blue.
    First,
    /// Orange.
    Second,
    /// Green.
    Third,
    /// Red.
    Fourth,
    /// Violet.
    Fifth,
    /// Faint text colour.
    Neutral,
}

impl Tone {
    /// Returns a marker of this tone as part of a path, `size` across. Shapes differ so that tones
    /// can be distinguished without colours.
    fn mark(self, x: f64, y: f64, size: f64) -> String {
        let half = size / 2.0;
        match self {
            // A subpath of zero length with round ends: a dot in a dozen bytes.
            Tone::First | Tone::Neutral => format!("M{x:.1} {y:.1}h0"),
            Tone::Second => {
                format!("M{:.1} {:.1}h{size:.1}v{size:.1}h-{size:.1}z", x - half, y - half)
            }
            Tone::Third => format!(
                "M{x:.1} {:.1}l{half:.1} {half:.1}l-{half:.1} {half:.1}l-{half:.1} -{half:.1}z",
                y - half
            ),
            Tone::Fourth => {
                format!(
                    "M{:.1} {:.1}l{size:.1} {size:.1}m-{size:.1} 0l{size:.1} -{size:.1}",
                    x - half,
                    y - half
                )
            }
            Tone::Fifth => {
                format!("M{:.1} {y:.1}h{size:.1}m-{half:.1} -{half:.1}v{size:.1}", x - half)
            }
        }
    }

    /// Returns the line width of markers.
    fn stroke(self, size: f64) -> f64 {
        if matches!(self, Tone::First | Tone::Neutral) {
            size
        } else {
            (size / 3.0).clamp(0.8, 1.6)
        }
    }

    fn class(self) -> &'static str {
        match self {
            Tone::First => "tone-1",
            Tone::Second => "tone-2",
            Tone::Third => "tone-3",
            Tone::Fourth => "tone-4",
            Tone::Fifth => "tone-5",
            Tone::Neutral => "tone-0",
        }
    }
}

/// Style of a layer.
#[derive(Clone, Debug)]
enum Mark {
    Points { diameter: f64, points: Vec<(f64, f64)> },
    Line { dashed: bool, points: Vec<(f64, f64)> },
    Band { edges: Vec<(f64, f64, f64)> },
}

#[derive(Clone, Debug)]
struct Layer {
    name: String,
    tone: Tone,
    mark: Mark,
}

/// Plot with layers, the first at the bottom. Layers with a name are in the legend.
#[derive(Clone, Debug)]
pub struct Chart {
    title: String,
    x: Axis,
    y: Axis,
    width: f64,
    height: f64,
    layers: Vec<Layer>,
}

const LEFT: f64 = 62.0;
const RIGHT: f64 = 26.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 48.0;
/// Maximum number of points of a layer in its table.
const ROWS: usize = 200;
/// Height of a line of the legend.
const LEGEND: f64 = 18.0;
/// Width of a character in the legend: a conservative estimate, since text cannot be measured
/// without scripts.
const CHARACTER: f64 = 6.3;

impl Chart {
    /// Starts an empty plot of at most `width` by `height` pixels.
    #[must_use]
    pub fn new(title: &str, x: Axis, y: Axis, (width, height): (f64, f64)) -> Self {
        Chart { title: title.to_owned(), x, y, width, height, layers: Vec::new() }
    }

    /// Adds dots of this diameter, in pixels.
    #[must_use]
    pub fn points(
        self,
        name: &str,
        tone: Tone,
        diameter: f64,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        self.layer(name, tone, Mark::Points { diameter, points: points.into_iter().collect() })
    }

    /// Adds a line through points.
    #[must_use]
    pub fn line(
        self,
        name: &str,
        tone: Tone,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        self.layer(name, tone, Mark::Line { dashed: false, points: points.into_iter().collect() })
    }

    /// Adds a dashed line through points.
    #[must_use]
    pub fn dashed(
        self,
        name: &str,
        tone: Tone,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        self.layer(name, tone, Mark::Line { dashed: true, points: points.into_iter().collect() })
    }

    /// Adds an area between two lines, given as `(x, low, high)`.
    #[must_use]
    pub fn band(
        self,
        name: &str,
        tone: Tone,
        edges: impl IntoIterator<Item = (f64, f64, f64)>,
    ) -> Self {
        self.layer(name, tone, Mark::Band { edges: edges.into_iter().collect() })
    }

    fn layer(mut self, name: &str, tone: Tone, mark: Mark) -> Self {
        self.layers.push(Layer { name: name.to_owned(), tone, mark });
        self
    }

    /// Returns the plot as an SVG element.
    #[must_use]
    pub fn svg(&self) -> String {
        self.element("", "")
    }

    /// Returns the plot as a file of its own, in the colours of a light page, with the command that
    /// made it as its description.
    #[must_use]
    pub fn document(&self, command: &str) -> String {
        let (_, lines) = self.legend();
        let attributes = format!(
            " xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"sans-serif\"",
            self.width,
            self.height + LEGEND * lines
        );
        let style = COLOURS
            .iter()
            .fold(STYLE.to_owned(), |style, (variable, colour)| style.replace(variable, colour));
        let head = format!("<desc>{}</desc><style>{style}</style>", escape(command));
        self.element(&attributes, &head)
    }

    /// Returns the element with more attributes, and more in front of its content.
    fn element(&self, attributes: &str, head: &str) -> String {
        let (legend, lines) = self.legend();
        let top = TOP + LEGEND * lines;
        let (plot_width, plot_height) = (self.width - LEFT - RIGHT, self.height - TOP - BOTTOM);
        let total = self.height + LEGEND * lines;
        let mut svg = format!(
            "<svg class=\"chart\"{attributes} viewBox=\"0 0 {} {total}\" role=\"img\" aria-label=\"{title}\">{head}\
             <text class=\"title\" x=\"{LEFT}\" y=\"18\">{title}</text>{legend}",
            self.width,
            title = escape(&self.title)
        );
        let frame = Frame { x: &self.x, y: &self.y, width: plot_width, height: plot_height };
        svg += &frame.axes(top);
        // A nested element clips what leaves the plot, without an id that other plots on the page
        // might use.
        svg += &format!(
            "<svg x=\"{LEFT}\" y=\"{top}\" width=\"{plot_width}\" height=\"{plot_height}\" viewBox=\"0 0 {plot_width} {plot_height}\">"
        );
        for layer in &self.layers {
            svg += &frame.draw(layer);
        }
        svg += "</svg></svg>";
        svg
    }

    /// Returns the name of the chart's files without an extension: its title in lower case, with
    /// hyphens for anything but letters and digits.
    #[must_use]
    pub fn file_name(&self) -> String {
        let words = self.title.split(|character: char| !character.is_ascii_alphanumeric());
        let words: Vec<String> =
            words.filter(|word| !word.is_empty()).map(str::to_ascii_lowercase).collect();
        words.join("-")
    }

    /// Writes all values as CSV, with the command that made them as a comment in the first line. A
    /// band has its upper edge in the last column.
    ///
    /// # Errors
    /// Errors of writing the file.
    pub fn csv(&self, command: &str, file: &mut dyn io::Write) -> io::Result<()> {
        writeln!(file, "# {command}")?;
        writeln!(file, "series,{},{},upper", csv_field(&self.x.label), csv_field(&self.y.label))?;
        for Layer { name, mark, .. } in &self.layers {
            let name = csv_field(name);
            match mark {
                Mark::Points { points, .. } | Mark::Line { points, .. } => {
                    for (x, y) in points {
                        writeln!(file, "{name},{x},{y},")?;
                    }
                }
                Mark::Band { edges } => {
                    for (x, low, high) in edges {
                        writeln!(file, "{name},{x},{low},{high}")?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns how many values of layers with a name are outside of the axes, and the number of
    /// all of them. Values that are no numbers have no place and do not count.
    fn clipped(&self) -> (usize, usize) {
        let named = self.layers.iter().filter(|layer| !layer.name.is_empty());
        let points: Vec<(f64, f64)> = named
            .flat_map(|layer| match &layer.mark {
                Mark::Points { points, .. } | Mark::Line { points, .. } => points.clone(),
                Mark::Band { edges } => {
                    edges.iter().flat_map(|&(x, low, high)| [(x, low), (x, high)]).collect()
                }
            })
            .filter(|(x, y)| !x.is_nan() && !y.is_nan())
            .collect();
        let is_inside = |(x, y): &&(f64, f64)| self.x.contains(*x) && self.y.contains(*y);
        (points.len() - points.iter().filter(is_inside).count(), points.len())
    }

    /// Returns the plotted values, layer by layer.
    #[must_use]
    pub fn table(&self) -> Table {
        let columns = vec![
            Column::text("", "what"),
            Column::number("", &self.x.label),
            Column::number("", &self.y.label),
        ];
        let mut table = Table::new(&self.title, columns);
        for layer in &self.layers {
            let points: Vec<(f64, String)> = match &layer.mark {
                Mark::Points { points, .. } | Mark::Line { points, .. } => {
                    points.iter().map(|&(x, y)| (x, short(y))).collect()
                }
                Mark::Band { edges } => edges
                    .iter()
                    .map(|&(x, low, high)| (x, format!("{} to {}", short(low), short(high))))
                    .collect(),
            };
            let step = points.len().div_ceil(ROWS).max(1);
            let name = match step {
                1 => layer.name.clone(),
                _ => format!("{} (one in {step} of {})", layer.name, grouped(points.len() as u64)),
            };
            for (x, y) in points.into_iter().step_by(step) {
                table.row(vec![Cell::new(&name), Cell::new(short(x)), Cell::new(y)]);
            }
        }
        table
    }

    /// Returns the legend of the named layers, with a line about values outside of the axes, and its
    /// height in lines.
    fn legend(&self) -> (String, f64) {
        let mut text = String::new();
        let (mut x, mut lines) = (LEFT, 0.0);
        for layer in self.layers.iter().filter(|layer| !layer.name.is_empty()) {
            let most = ((self.width - LEFT - 36.0) / CHARACTER) as usize;
            let name = if layer.name.chars().count() > most {
                layer.name.chars().take(most.saturating_sub(1)).chain(['\u{2026}']).collect()
            } else {
                layer.name.clone()
            };
            let width = 22.0 + CHARACTER * name.chars().count() as f64 + 14.0;
            if lines == 0.0 || x + width > self.width {
                x = LEFT;
                lines += 1.0;
            }
            let y = TOP - 8.0 + LEGEND * (lines - 1.0);
            let class = layer.tone.class();
            text += &match layer.mark {
                Mark::Points { .. } => {
                    let (mark, stroke) =
                        (layer.tone.mark(x + 9.0, y + 4.0, 7.0), layer.tone.stroke(7.0));
                    format!(
                        "<path class=\"dots {class}\" stroke-width=\"{stroke:.1}\" d=\"{mark}\"/>"
                    )
                }
                Mark::Line { dashed, .. } => {
                    let dashed = if dashed { " dashed" } else { "" };
                    format!(
                        "<path class=\"line {class}{dashed}\" d=\"M{x:.1} {:.1}h18\"/>",
                        y + 4.0
                    )
                }
                Mark::Band { .. } => format!(
                    "<path class=\"band {class}\" d=\"M{x:.1} {:.1}h18v10h-18z\"/>",
                    y - 1.0
                ),
            };
            text += &format!(
                "<text class=\"legend\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x + 24.0,
                y + 8.0,
                escape(&name)
            );
            x += width;
        }
        let (clipped, all) = self.clipped();
        if clipped > 0 {
            lines += 1.0;
            text += &format!(
                "<text class=\"note\" x=\"{LEFT}\" y=\"{:.1}\">{} of {} values are outside of the axes</text>",
                TOP + LEGEND * (lines - 1.0),
                grouped(clipped as u64),
                grouped(all as u64)
            );
        }
        (text, lines)
    }
}

/// Figure with its limit.
#[derive(Clone, Debug)]
pub struct Promise {
    /// Name of the figure.
    pub name: String,
    /// Figure as a share of its limit, inverted for a lower limit, so that a share above 1 always
    /// exceeds it.
    pub share: f64,
    /// Text behind the bar.
    pub text: String,
}

/// Draws figures as bars that end left of a line if they are within their limits, with a label
/// each. Returns an SVG element and a table.
#[must_use]
pub fn promises(title: &str, promises: &[Promise]) -> (String, Table) {
    const WIDTH: f64 = 720.0;
    const ROW: f64 = 40.0;
    /// Length of a bar at its limit.
    const LIMIT: f64 = 380.0;
    const MAX_SHARE: f64 = 1.4;
    let height = 44.0 + ROW * promises.len() as f64;
    let mut svg = format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\
         <text class=\"title\" x=\"0\" y=\"18\">{title}</text>",
        title = escape(title)
    );
    let mut table = Table::new(
        title,
        vec![Column::text("", "what"), Column::text("", "verdict"), Column::text("", "figure")],
    );
    for (row, Promise { name, share, text }) in promises.iter().enumerate() {
        // A figure that cannot be compared does not pass.
        let of_limit = if share.is_nan() { MAX_SHARE } else { share.clamp(0.0, MAX_SHARE) };
        let (y, length) = (36.0 + ROW * row as f64, LIMIT * of_limit);
        let (class, word) =
            if *share <= 1.0 { ("pass", "\u{2713} pass") } else { ("fail", "\u{2717} FAIL") };
        table.row(vec![Cell::new(name), Cell::new(word), Cell::new(text)]);
        svg += &format!(
            "<text class=\"legend\" x=\"0\" y=\"{:.1}\">{}</text><path class=\"bar {class}\" d=\"M0 {:.1}h{length:.1}\"/>\
             <text class=\"verdict {class}\" x=\"{:.1}\" y=\"{:.1}\">{word}, {}</text>",
            y + 8.0,
            escape(name),
            y + 19.0,
            LIMIT * MAX_SHARE + 8.0,
            y + 23.0,
            escape(text)
        );
    }
    svg += &format!("<path class=\"limit\" d=\"M{LIMIT} 30V{:.1}\"/></svg>", height - 4.0);
    (svg, table)
}

/// Inner area of the plot, in pixels.
struct Frame<'a> {
    x: &'a Axis,
    y: &'a Axis,
    width: f64,
    height: f64,
}

impl Frame<'_> {
    fn horizontal(&self, value: f64) -> f64 {
        self.x.place(value) * self.width
    }

    fn vertical(&self, value: f64) -> f64 {
        (1.0 - self.y.place(value)) * self.height
    }

    /// Returns the position of a point; `None` for a value without a logarithm. Positions far
    /// outside are clamped, since viewers have limited precision.
    fn place(&self, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        let (x, y) = (self.horizontal(x), self.vertical(y));
        (x.is_finite() && y.is_finite()).then(|| (x.clamp(-1e4, 1e4), y.clamp(-1e4, 1e4)))
    }

    /// Returns grid, ticks and labels. `top` is the upper edge of the plot.
    fn axes(&self, top: f64) -> String {
        let (width, height) = (self.width, self.height);
        let (bottom, right) = (top + height, LEFT + width);
        let mut grid = String::new();
        let mut minor = String::new();
        let mut labels = String::new();
        // Writing to a string cannot fail.
        for x in self.x.minor_ticks() {
            let _ = write!(minor, "M{:.1} {top:.1}v{height:.1}", LEFT + self.horizontal(x));
        }
        for y in self.y.minor_ticks() {
            let _ = write!(minor, "M{LEFT} {:.1}h{width:.1}", top + self.vertical(y));
        }
        for x in self.x.ticks() {
            let place = LEFT + self.horizontal(x);
            let _ = write!(grid, "M{place:.1} {top:.1}v{height:.1}");
            let _ = write!(
                labels,
                "<text class=\"tick x\" x=\"{place:.1}\" y=\"{:.1}\">{}</text>",
                bottom + 17.0,
                number(x)
            );
        }
        for y in self.y.ticks() {
            let place = top + self.vertical(y);
            let _ = write!(grid, "M{LEFT} {place:.1}h{width:.1}");
            let _ = write!(
                labels,
                "<text class=\"tick y\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                LEFT - 8.0,
                place + 4.0,
                number(y)
            );
        }
        let (centre, middle) = ((LEFT + right) / 2.0, top + height / 2.0);
        format!(
            "<path class=\"minor\" d=\"{minor}\"/><path class=\"grid\" d=\"{grid}\"/>\
             <path class=\"axis\" d=\"M{LEFT} {top:.1}V{bottom:.1}H{right:.1}\"/>{labels}\
             <text class=\"label\" x=\"{centre:.1}\" y=\"{:.1}\">{}</text>\
             <text class=\"label\" transform=\"translate(14 {middle:.1}) rotate(-90)\">{}</text>",
            bottom + 38.0,
            escape(&self.x.label),
            escape(&self.y.label)
        )
    }

    fn draw(&self, layer: &Layer) -> String {
        let class = layer.tone.class();
        match &layer.mark {
            Mark::Points { diameter, points } => {
                let places = points.iter().filter_map(|&point| self.place(point));
                let path: String = places.map(|(x, y)| layer.tone.mark(x, y, *diameter)).collect();
                let stroke = layer.tone.stroke(*diameter);
                format!("<path class=\"dots {class}\" stroke-width=\"{stroke:.1}\" d=\"{path}\"/>")
            }
            Mark::Line { dashed, points } => {
                let dashed = if *dashed { " dashed" } else { "" };
                format!(
                    "<path class=\"line {class}{dashed}\" d=\"{}\"/>",
                    self.path(points.iter().copied())
                )
            }
            Mark::Band { edges } => {
                let upper = edges.iter().map(|&(x, _, high)| (x, high));
                let lower = edges.iter().rev().map(|&(x, low, _)| (x, low));
                format!("<path class=\"band {class}\" d=\"{}z\"/>", self.path(upper.chain(lower)))
            }
        }
    }

    fn path(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let mut path = String::new();
        for (x, y) in points.filter_map(|point| self.place(point)) {
            let _ = write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { 'M' } else { 'L' });
        }
        path
    }
}

/// Formats a number with five digits, as on an axis.
fn short(value: f64) -> String {
    if !value.is_finite() {
        return value.to_string();
    }
    let size = if value == 0.0 { 0.0 } else { value.abs().log10().floor() };
    let decimals = (4.0 - size).clamp(0.0, 10.0) as usize;
    number(format!("{value:.decimals$}").parse().unwrap_or(value))
}

/// Formats a number as on an axis: with thousands separators, a minus sign, and no insignificant
/// digits.
fn number(value: f64) -> String {
    const MILLION: f64 = 1e6;
    // Longer numbers would not fit.
    if value >= 10.0 * MILLION && value % MILLION == 0.0 {
        return format!("{} M", number(value / MILLION));
    }
    let text = format!("{:.10}", value.abs());
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let (whole, fraction) = text
        .split_once('.')
        .map_or((text, String::new()), |(whole, rest)| (whole, format!(".{rest}")));
    let sign = if value < 0.0 && text != "0" { "\u{2212}" } else { "" };
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), grouped);
    format!("{sign}{whole}{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers_in_range() {
        assert_eq!(Axis::linear("", 0.0, 500.0).ticks(), [0.0, 100.0, 200.0, 300.0, 400.0, 500.0]);
        assert_eq!(Axis::linear("", -5.0, 5.0).ticks(), [-4.0, -2.0, 0.0, 2.0, 4.0]);
        assert_eq!(
            Axis::logarithmic("", 1.0, 10_000.0).ticks(),
            [1.0, 10.0, 100.0, 1_000.0, 10_000.0]
        );
        assert_eq!(
            Axis::logarithmic("", 1.0, 10.0).minor_ticks(),
            [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
        );
        assert_eq!(Axis::logarithmic("", 3.0, 40.0).ticks(), [10.0]);
    }

    #[test]
    fn numbers_read_well() {
        let numbers = [0.0, -0.0, 10_000.0, 1_234_567.0, -2.5, 0.05, 500.0].map(number);
        assert_eq!(numbers, ["0", "0", "10,000", "1,234,567", "\u{2212}2.5", "0.05", "500"]);
    }

    #[test]
    fn marks_stand_where_they_belong() {
        let (x, y) = (Axis::linear("x", 0.0, 10.0), Axis::logarithmic("y", 1.0, 100.0));
        let frame = Frame { x: &x, y: &y, width: 100.0, height: 200.0 };
        assert_eq!(frame.place((0.0, 1.0)), Some((0.0, 200.0)));
        assert_eq!(frame.place((5.0, 10.0)), Some((50.0, 100.0)));
        assert_eq!(frame.place((5.0, 1e-300)), Some((50.0, 1e4)));
        assert_eq!([0.0, -1.0].map(|y| frame.place((5.0, y))), [None; 2]);
        assert_eq!(
            frame.path([(0.0, 100.0), (5.0, 0.5_f64.ln()), (10.0, 100.0)].into_iter()),
            "M0.0 0.0L100.0 0.0"
        );
    }

    #[test]
    fn a_chart_is_well_formed_and_escapes_its_words() {
        let chart = Chart::new(
            "a < b",
            Axis::linear("x & y", 0.0, 1.0),
            Axis::linear("", 0.0, 1.0),
            (400.0, 300.0),
        )
        .band("band", Tone::Neutral, [(0.0, 0.2, 0.4), (1.0, 0.2, 0.4)])
        .points("dots", Tone::First, 3.0, [(0.5, 0.5)])
        .dashed("", Tone::Second, [(0.0, 0.0), (1.0, 1.0)]);
        let svg = chart.svg();
        assert!(svg.contains("a &lt; b") && svg.contains("x &amp; y") && !svg.contains("NaN"));
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
        assert_eq!(svg.matches("class=\"legend\"").count(), 2);
        assert_eq!(svg.matches("h0\"").count(), 2);
    }

    #[test]
    fn a_chart_that_clips_says_so() {
        let chart = |y: f64| {
            let axis = || Axis::linear("", 0.0, 1.0);
            Chart::new("", axis(), axis(), (400.0, 300.0)).line(
                "line",
                Tone::First,
                [(0.0, 0.5), (1.0, y), (1.0, f64::NAN)],
            )
        };
        assert!(!chart(1.0).svg().contains("outside"));
        assert_eq!(chart(1.0).clipped(), (0, 2));
        assert!(chart(1.1).svg().contains("1 of 2 values are outside of the axes"));
    }

    #[test]
    fn a_chart_in_a_file_of_its_own_needs_no_page() {
        let (x, y) = (Axis::linear("share, %", 0.0, 1.0), Axis::linear("y", 0.0, 1.0));
        let chart = Chart::new("Figure 4.4: a & b", x, y, (400.0, 300.0))
            .line("a, b", Tone::First, [(0.25, 0.5)])
            .band("", Tone::Second, [(0.0, 0.1, 0.2)]);
        assert_eq!(chart.file_name(), "figure-4-4-a-b");
        let svg = chart.document("flowgauge reproduce <x>");
        for part in
            ["xmlns=", "width=\"400\"", "<desc>flowgauge reproduce &lt;x&gt;</desc>", "<style>"]
        {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
        assert!(!svg.contains("var("), "a colour is missing: {svg}");
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
        let mut file = Vec::new();
        chart.csv("flowgauge reproduce", &mut file).unwrap();
        assert_eq!(
            String::from_utf8(file).unwrap(),
            "# flowgauge reproduce\nseries,\"share, %\",y,upper\n\"a, b\",0.25,0.5,\n,0,0.1,0.2\n"
        );
    }

    #[test]
    fn what_breaks_its_limit_is_marked_in_words() {
        let promise = |name: &str, share| Promise {
            name: name.to_owned(),
            share,
            text: "1.2 x (<= 1.5)".to_owned(),
        };
        let (svg, table) = promises(
            "a & b",
            &[promise("good", 0.8), promise("bad", 1.01), promise("none", f64::NAN)],
        );
        assert_eq!(
            (
                svg.matches("\u{2713} pass, 1.2 x (&lt;= 1.5)").count(),
                svg.matches("\u{2717} FAIL").count()
            ),
            (1, 2)
        );
        assert!(svg.contains("a &amp; b") && !svg.contains("NaN"));
        assert!(table.to_string().contains("bad   \u{2717} FAIL   1.2 x (<= 1.5)"), "{table}");
    }

    #[test]
    fn a_table_has_the_numbers_of_its_chart() {
        let chart = Chart::new(
            "title",
            Axis::linear("x", 0.0, 1.0),
            Axis::linear("y", 0.0, 1.0),
            (400.0, 300.0),
        )
        .band("band", Tone::Neutral, [(0.0, 0.2, 1.0 / 3.0)])
        .line("line", Tone::First, [(12_345_678.0, -0.000_123_456)])
        .points("dots", Tone::Second, 3.0, (0..500).map(|x| (f64::from(x), f64::NAN)));
        let text = chart.table().to_string();
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|it| !it.is_empty()).collect())
            .collect();
        assert_eq!(
            lines[..4],
            [
                vec!["title"],
                vec!["what", "x", "y"],
                vec!["band", "0", "0.2 to 0.33333"],
                vec!["line", "12,345,678", "\u{2212}0.00012346"]
            ]
        );
        assert_eq!(
            (lines.len(), &lines[5]),
            (4 + 167, &vec!["dots (one in 3 of 500)", "3", "NaN"])
        );
    }

    #[test]
    fn tones_are_told_apart_by_their_marks() {
        let tones = [Tone::First, Tone::Second, Tone::Third, Tone::Fourth, Tone::Fifth];
        let mut marks: Vec<String> = tones.iter().map(|tone| tone.mark(1.0, 1.0, 4.0)).collect();
        marks.dedup();
        assert_eq!(marks.len(), 5);
    }

    #[test]
    fn a_legend_that_is_wider_than_the_plot_is_cut() {
        let chart =
            Chart::new("", Axis::linear("", 0.0, 1.0), Axis::linear("", 0.0, 1.0), (400.0, 300.0));
        let (text, lines) = chart.line(&"long ".repeat(40), Tone::First, []).legend();
        assert!(lines == 1.0 && text.contains('\u{2026}') && text.len() < 250, "{text}");
    }

    #[test]
    fn a_long_legend_takes_more_lines() {
        let chart = |names: &[&str]| {
            let chart = Chart::new(
                "",
                Axis::linear("", 0.0, 1.0),
                Axis::linear("", 0.0, 1.0),
                (400.0, 300.0),
            );
            names.iter().fold(chart, |chart, name| chart.line(name, Tone::First, [])).legend().1
        };
        assert_eq!(chart(&[]), 0.0);
        assert_eq!(chart(&["one", "two"]), 1.0);
        assert_eq!(chart(&["registers read 20 ms later", "registers of the same instant"]), 2.0);
    }
}
