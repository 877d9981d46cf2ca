//! Charts: series of values over two axes, as SVG and as CSV.
//!
//! A chart looks the same on a page and in a file of its own: in the colours of a light page, with
//! its style and the command that made it.

use super::{csv_field, escape};
use flowgauge_ctl::output::grouped;

const STYLE: &str = include_str!("chart.css");

/// Axis of a chart.
#[derive(Clone, Debug)]
pub struct Axis {
    label: String,
    is_logarithmic: bool,
    low: f64,
    high: f64,
}

impl Axis {
    /// Returns a linear axis.
    #[must_use]
    pub fn linear(label: &str, low: f64, high: f64) -> Self {
        Axis { label: label.to_owned(), is_logarithmic: false, low, high }
    }

    /// Returns a logarithmic axis that starts at `low`, which must be positive.
    #[must_use]
    pub fn logarithmic(label: &str, low: f64, high: f64) -> Self {
        Axis { is_logarithmic: true, ..Axis::linear(label, low, high) }
    }

    /// Returns the position of a value, from 0 to 1 within the range.
    fn place(&self, value: f64) -> f64 {
        if self.is_logarithmic {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    /// Returns whether a value is within the range.
    fn contains(&self, value: f64) -> bool {
        (-1e-9..=1.0 + 1e-9).contains(&self.place(value))
    }

    /// Returns the values with a line, and whether they have a label.
    fn ticks(&self) -> Vec<(f64, bool)> {
        if self.is_logarithmic {
            let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
            let values = decades.flat_map(|decade| {
                (1..10).map(move |digit| (f64::from(digit) * 10_f64.powi(decade), digit == 1))
            });
            return values.filter(|(value, _)| self.contains(*value)).collect();
        }
        let step = round_step((self.high - self.low) / TICKS);
        let (first, last) = ((self.low / step).ceil() as i64, (self.high / step).floor() as i64);
        (first..=last).map(|index| (index as f64 * step, true)).collect()
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

/// Colour of a series.
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
    /// Grey.
    Neutral,
}

impl Tone {
    /// Tones in the order in which series without a tone of their own get them.
    pub const ALL: [Tone; 6] =
        [Tone::First, Tone::Second, Tone::Third, Tone::Fourth, Tone::Fifth, Tone::Neutral];
}

/// Appearance of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Dots,
    Line,
    Dashed,
    Band,
}

/// Horizontal and vertical value.
pub type Point = (f64, f64);

/// Horizontal value, and the lower and upper vertical one; both are the same but for bands.
pub type Edges = (f64, f64, f64);

/// Values under a name: positions with a lower and an upper value, which differ in bands only.
#[derive(Clone, Debug)]
struct Series {
    name: String,
    tone: Tone,
    mark: Mark,
    values: Vec<Edges>,
}

impl Series {
    /// Returns the SVG element through these points, in pixels.
    fn element(&self, points: &[Edges]) -> String {
        let mut lower: Vec<String> =
            points.iter().map(|(x, low, _)| format!("{x:.1} {low:.1}")).collect();
        let path = match self.mark {
            // Subpaths of zero length with wide ends.
            Mark::Dots => lower.iter().map(|point| format!("M{point}h0")).collect(),
            Mark::Line | Mark::Dashed => format!("M{}", lower.join(" ")),
            Mark::Band => {
                lower.extend(points.iter().rev().map(|(x, _, high)| format!("{x:.1} {high:.1}")));
                format!("M{}z", lower.join(" "))
            }
        };
        let class = format!("{:?} tone-{}", self.mark, self.tone as u8 + 1).to_ascii_lowercase();
        format!("<path class=\"{class}\" d=\"{path}\"/>")
    }
}

/// Chart with series, the first at the bottom. Series with a name are in the legend.
#[derive(Clone, Debug)]
pub struct Chart {
    title: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
}

/// Width of a chart, in pixels.
const WIDTH: f64 = 520.0;
/// Width and height of the area with the values, and its distance from the left.
const AREA: (f64, f64) = (432.0, 298.0);
const LEFT: f64 = 62.0;
/// Heights of the title, of a line of the legend, and of the space below the area.
const TITLE: f64 = 30.0;
const LINE: f64 = 18.0;
const BOTTOM: f64 = 48.0;

impl Chart {
    /// Starts an empty chart.
    #[must_use]
    pub fn new(title: &str, x: Axis, y: Axis) -> Self {
        Chart { title: title.to_owned(), x, y, series: Vec::new() }
    }

    /// Adds dots.
    #[must_use]
    pub fn points(self, name: &str, tone: Tone, points: impl IntoIterator<Item = Point>) -> Self {
        self.add(name, tone, Mark::Dots, points.into_iter().map(|(x, y)| (x, y, y)))
    }

    /// Adds a line through points.
    #[must_use]
    pub fn line(self, name: &str, tone: Tone, points: impl IntoIterator<Item = Point>) -> Self {
        self.add(name, tone, Mark::Line, points.into_iter().map(|(x, y)| (x, y, y)))
    }

    /// Adds a dashed line through points.
    #[must_use]
    pub fn dashed(self, name: &str, tone: Tone, points: impl IntoIterator<Item = Point>) -> Self {
        self.add(name, tone, Mark::Dashed, points.into_iter().map(|(x, y)| (x, y, y)))
    }

    /// Adds an area between two lines, given as `(x, low, high)`.
    #[must_use]
    pub fn band(self, name: &str, tone: Tone, edges: impl IntoIterator<Item = Edges>) -> Self {
        self.add(name, tone, Mark::Band, edges.into_iter())
    }

    fn add(
        mut self,
        name: &str,
        tone: Tone,
        mark: Mark,
        values: impl Iterator<Item = Edges>,
    ) -> Self {
        self.series.push(Series { name: name.to_owned(), tone, mark, values: values.collect() });
        self
    }

    /// Returns the name of the chart's files without an extension: its title in lower case, with
    /// hyphens for anything but letters and digits.
    #[must_use]
    pub fn file_name(&self) -> String {
        let words = self.title.split(|character: char| !character.is_ascii_alphanumeric());
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        words.join("-").to_ascii_lowercase()
    }

    /// Returns all values as CSV, with the command that made them as a comment in the first line. A
    /// band has its upper edge in the last column.
    #[must_use]
    pub fn csv(&self, command: &str) -> String {
        let (x, y) = (csv_field(&self.x.label), csv_field(&self.y.label));
        let mut csv = format!("# {command}\nseries,{x},{y},upper\n");
        for Series { name, mark, values, .. } in &self.series {
            for (x, low, high) in values {
                let upper = if *mark == Mark::Band { high.to_string() } else { String::new() };
                csv += &format!("{},{x},{low},{upper}\n", csv_field(name));
            }
        }
        csv
    }

    /// Returns how many values of series with a name are outside of the axes, and the number of all
    /// of them. Values that are no numbers have no place and do not count.
    fn clipped(&self) -> (usize, usize) {
        let named = self.series.iter().filter(|series| !series.name.is_empty());
        let points: Vec<Point> = named
            .flat_map(|Series { mark, values, .. }| {
                let edges = if *mark == Mark::Band { 2 } else { 1 };
                values
                    .iter()
                    .flat_map(move |&(x, low, high)| [(x, low), (x, high)].into_iter().take(edges))
            })
            .filter(|(x, y)| !x.is_nan() && !y.is_nan())
            .collect();
        let is_inside = |(x, y): &&Point| self.x.contains(*x) && self.y.contains(*y);
        (points.len() - points.iter().filter(is_inside).count(), points.len())
    }

    /// Returns the positions of values in the area, without those that have no logarithm. Positions
    /// far outside are clamped, since viewers have limited precision.
    fn places(&self, values: &[Edges]) -> Vec<Edges> {
        let vertical = |value| (1.0 - self.y.place(value)) * AREA.1;
        let places = values
            .iter()
            .map(|&(x, low, high)| [self.x.place(x) * AREA.0, vertical(low), vertical(high)]);
        let finite = places.filter(|places| places.iter().all(|place| place.is_finite()));
        finite.map(|places| places.map(|place| place.clamp(-1e4, 1e4)).into()).collect()
    }

    /// Returns the legend, with a line about values outside of the axes, and its height.
    fn legend(&self) -> (String, f64) {
        let (mut legend, mut top) = (String::new(), TITLE);
        for series in self.series.iter().filter(|series| !series.name.is_empty()) {
            let (low, high) = if series.mark == Mark::Band { (9.0, -1.0) } else { (4.0, 4.0) };
            let sample = series.element(&[(0.0, low, high), (18.0, low, high)]);
            legend += &format!(
                "<g transform=\"translate({LEFT} {top})\">{sample}<text class=\"legend\" x=\"24\" y=\"8\">{}</text></g>",
                escape(&series.name)
            );
            top += LINE;
        }
        let (clipped, all) = self.clipped();
        if clipped > 0 {
            legend += &format!(
                "<text class=\"note\" x=\"{LEFT}\" y=\"{}\">{} of {} values are outside of the axes</text>",
                top + 8.0,
                grouped(clipped as u64),
                grouped(all as u64)
            );
            top += LINE;
        }
        (legend, top - TITLE)
    }

    /// Returns grid, ticks and labels of the area.
    fn axes(&self) -> String {
        let (width, height) = AREA;
        let mut axes = String::new();
        let mut add = |is_labelled: bool, path: String, label: String| {
            let class = if is_labelled { "grid" } else { "minor" };
            axes += &format!("<path class=\"{class}\" d=\"{path}\"/>");
            if is_labelled {
                axes += &label;
            }
        };
        for (value, is_labelled) in self.x.ticks() {
            let (x, y, text) = (self.x.place(value) * width, height + 17.0, number(value));
            let label = format!("<text class=\"middle\" x=\"{x:.1}\" y=\"{y}\">{text}</text>");
            add(is_labelled, format!("M{x:.1} 0v{height}"), label);
        }
        for (value, is_labelled) in self.y.ticks() {
            let (y, text) = ((1.0 - self.y.place(value)) * height, number(value));
            let below = y + 4.0;
            let label = format!("<text class=\"end\" x=\"-8\" y=\"{below:.1}\">{text}</text>");
            add(is_labelled, format!("M0 {y:.1}h{width}"), label);
        }
        axes + &format!(
            "<path class=\"axis\" d=\"M0 0v{height}h{width}\"/>\
             <text class=\"middle\" x=\"{}\" y=\"{}\">{}</text>\
             <text class=\"middle\" transform=\"translate(-48 {}) rotate(-90)\">{}</text>",
            width / 2.0,
            height + 38.0,
            escape(&self.x.label),
            height / 2.0,
            escape(&self.y.label)
        )
    }

    /// Returns the chart as SVG, with the command that made it as its description.
    #[must_use]
    pub fn svg(&self, command: &str) -> String {
        let (width, height) = AREA;
        let (legend, lines) = self.legend();
        let top = TITLE + lines;
        let all = top + height + BOTTOM;
        let (title, command) = (escape(&self.title), escape(command));
        let series: String =
            self.series.iter().map(|series| series.element(&self.places(&series.values))).collect();
        // The inner element clips what leaves the area, without an id that other charts on the page
        // might use.
        format!(
            "<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{all}\" viewBox=\"0 0 {WIDTH} {all}\" \
             font-family=\"sans-serif\" role=\"img\" aria-label=\"{title}\"><desc>{command}</desc><style>{STYLE}</style>\
             <text class=\"title\" x=\"{LEFT}\" y=\"18\">{title}</text>{legend}\
             <g transform=\"translate({LEFT} {top})\">{}<svg width=\"{width}\" height=\"{height}\">{series}</svg></g></svg>",
            self.axes()
        )
    }
}

/// Formats a number of an axis: with thousands separators, a minus sign, and no insignificant
/// digits.
fn number(value: f64) -> String {
    let text = format!("{:.10}", value + 0.0);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    text.parse().map_or_else(|_| text.replace('-', "\u{2212}"), grouped)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(title: &str) -> Chart {
        Chart::new(title, Axis::linear("x & y", 0.0, 1.0), Axis::linear("y, %", 0.0, 1.0))
    }

    #[test]
    fn ticks_are_round_numbers_in_range() {
        let labelled = |axis: Axis| -> Vec<f64> {
            axis.ticks().into_iter().filter(|(_, is)| *is).map(|(value, _)| value).collect()
        };
        let linear = |low, high| labelled(Axis::linear("", low, high));
        assert_eq!(linear(0.0, 500.0), [0.0, 100.0, 200.0, 300.0, 400.0, 500.0]);
        assert_eq!(linear(-5.0, 5.0), [-4.0, -2.0, 0.0, 2.0, 4.0]);
        assert_eq!(labelled(Axis::logarithmic("", 1.0, 1_000.0)), [1.0, 10.0, 100.0, 1_000.0]);
        assert_eq!(labelled(Axis::logarithmic("", 3.0, 40.0)), [10.0]);
        assert_eq!(Axis::logarithmic("", 3.0, 40.0).ticks().len(), 11);
    }

    #[test]
    fn numbers_read_well() {
        let numbers = [0.0, -0.0, 10_000.0, 1_234_567.0, -2.5, 0.05, 500.0].map(number);
        assert_eq!(numbers, ["0", "0", "10,000", "1,234,567", "\u{2212}2.5", "0.05", "500"]);
    }

    #[test]
    fn values_stand_where_they_belong() {
        let (x, y) = (Axis::linear("x", 0.0, 10.0), Axis::logarithmic("y", 1.0, 100.0));
        let chart = Chart::new("", x, y);
        let places = chart.places(&[
            (0.0, 1.0, 1.0),
            (5.0, 10.0, 100.0),
            (5.0, 1e-300, 1.0),
            (5.0, 0.0, 1.0),
            (5.0, -1.0, 1.0),
        ]);
        let (width, height) = AREA;
        let half = (width / 2.0, height / 2.0);
        assert_eq!(places, [(0.0, height, height), (half.0, half.1, 0.0), (half.0, 1e4, height)]);
    }

    #[test]
    fn a_chart_is_well_formed_and_escapes_its_words() {
        let svg = chart("a < b")
            .band("band", Tone::Neutral, [(0.0, 0.2, 0.4), (1.0, 0.2, 0.4)])
            .points("dots", Tone::First, [(0.5, 0.5)])
            .dashed("", Tone::Second, [(0.0, 0.0), (1.0, 1.0)])
            .svg("flowgauge reproduce <x>");
        for part in
            ["a &lt; b", "x &amp; y", "xmlns=", "<desc>flowgauge reproduce &lt;x&gt;</desc>"]
        {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
        assert!(!svg.contains("NaN"), "{svg}");
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
        assert_eq!(svg.matches("class=\"legend\"").count(), 2);
        // Two samples are in the legend.
        assert_eq!(svg.matches("h0").count(), 3);
        // A file of its own has the rules of all that it draws.
        for class in ["dots", "line", "dashed", "band", "tone-1", "tone-6", "grid", "minor"] {
            assert!(STYLE.contains(&format!(".{class} ")), "{class}");
        }
    }

    #[test]
    fn a_chart_that_clips_says_so() {
        let chart =
            |y: f64| chart("").line("line", Tone::First, [(0.0, 0.5), (1.0, y), (1.0, f64::NAN)]);
        assert!(!chart(1.0).svg("").contains("outside"));
        assert_eq!(chart(1.0).clipped(), (0, 2));
        assert!(chart(1.1).svg("").contains("1 of 2 values are outside of the axes"));
        let band = self::chart("").band("band", Tone::First, [(0.0, -1.0, 0.5), (1.0, -1.0, 2.0)]);
        assert_eq!(band.clipped(), (3, 4));
    }

    #[test]
    fn values_are_written_under_the_name_of_the_chart() {
        let chart = chart("Figure 4.4: a & b").line("a, b", Tone::First, [(0.25, 0.5)]).band(
            "",
            Tone::Second,
            [(0.0, 0.1, 0.2)],
        );
        assert_eq!(chart.file_name(), "figure-4-4-a-b");
        assert_eq!(
            chart.csv("flowgauge reproduce"),
            "# flowgauge reproduce\nseries,x & y,\"y, %\",upper\n\"a, b\",0.25,0.5,\n,0,0.1,0.2\n"
        );
    }
}
