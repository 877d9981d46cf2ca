//! Alerts: rules about figures that fire only when the condition is certain.
//!
//! A rule compares a [figure](crate::figure) with a bound. `>` fires if the lower end of the
//! figure's interval is above the bound, `<` if the upper end is below it. An estimate whose
//! interval contains the bound does not fire.

use crate::figure::{Figure, Number, OMITTED_AT_ZERO, Shape, Unit};
use crate::text::scaled;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// Side of the bound on which a rule fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BoundSide {
    Above,
    Below,
}

/// An alert rule: `distinct_flows > 1M`, `entropy{key=src} < 3`.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The rule as it was written, with single blanks.
    pub text: String,
    /// Name of the figure.
    pub(crate) figure: String,
    /// Labels that a figure must have.
    pub(crate) labels: Vec<(String, String)>,
    side: BoundSide,
    bound: f64,
}

/// Result of a rule for one window.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alert {
    /// Text of the rule.
    pub rule: String,
    /// Whether the condition certainly holds.
    pub firing: bool,
    /// Value of the figure.
    #[serde(flatten)]
    pub number: Number,
}

impl Rule {
    /// Returns whether the rule is about figures of this name and unit. It may have the name of the
    /// metric, which ends with the unit.
    pub(crate) fn names(&self, name: &str, unit: Unit) -> bool {
        name == self.figure
            || (unit != Unit::Things && self.figure == format!("{name}{}", unit.suffix()))
    }

    /// Evaluates the rule. Of several figures with its name and labels, the one that is closest to
    /// firing counts. Returns `None` without one, unless the figure is a count that is omitted
    /// while it is zero.
    #[must_use]
    pub fn judge(&self, figures: &[Figure]) -> Option<Alert> {
        let about = figures.iter().filter(|figure| self.is_about(figure));
        let mut found: Vec<_> = about.filter_map(|figure| number(&figure.shape)).collect();
        if found.is_empty() && OMITTED_AT_ZERO.contains(&self.figure.as_str()) {
            found.push(exact(0.0));
        }
        let nearest = |number: &Number| match self.side {
            BoundSide::Above => number.low,
            BoundSide::Below => -number.high,
        };
        let number =
            found.into_iter().max_by(|one, other| nearest(one).total_cmp(&nearest(other)))?;
        let firing = match self.side {
            BoundSide::Above => number.low > self.bound,
            BoundSide::Below => number.high < self.bound,
        };
        Some(Alert { rule: self.text.clone(), firing, number })
    }

    fn is_about(&self, figure: &Figure) -> bool {
        let has = |(name, value): &(String, String)| {
            figure.labels.iter().any(|(label, is)| label == name && is == value)
        };
        self.names(figure.name, figure.unit) && self.labels.iter().all(has)
    }
}

/// Returns the value of a figure with its bounds.
fn number(shape: &Shape) -> Option<Number> {
    match shape {
        Shape::Number(number) => Some(*number),
        Shape::Count(count) => Some(exact(*count)),
        Shape::State(state) => Some(exact(f64::from(u8::from(*state)))),
        // The first is the largest.
        Shape::Ranking(ranked) => ranked.first().map(|first| first.number),
        Shape::Distribution(_) => None,
    }
}

fn exact(value: f64) -> Number {
    Number { value, low: value, high: value }
}

impl fmt::Display for Alert {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Number { value, low, high } = self.number;
        let [value, low, high] = [value, low, high].map(rounded);
        write!(formatter, "{}: it is {value}", self.rule)?;
        if low == high { Ok(()) } else { write!(formatter, " ({low} … {high})") }
    }
}

fn rounded(value: f64) -> String {
    if value.abs() >= 1000.0 {
        scaled(value)
    } else {
        format!("{}", (value * 1000.0).round() / 1000.0)
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "a rule is FIGURE > NUMBER or FIGURE < NUMBER, such as distinct_flows > 1M or entropy{key=src} < 3";
        let at = text.find(['<', '>']).ok_or(form)?;
        let side = if text[at..].starts_with('>') { BoundSide::Above } else { BoundSide::Below };
        let (left, right) = (text[..at].trim(), text[at + 1..].trim());
        let (figure, labels) = match left.split_once('{') {
            None => (left, ""),
            Some((figure, labels)) => (
                figure.trim(),
                labels.strip_suffix('}').ok_or("the labels of a figure end with }")?,
            ),
        };
        if figure.is_empty()
            || !figure.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            return Err(form.to_owned());
        }
        let label = |label: &str| {
            let (name, value) =
                label.split_once('=').ok_or("a label is NAME=VALUE, as in entropy{key=src}")?;
            Ok::<_, String>((name.trim().to_owned(), value.trim().trim_matches('"').to_owned()))
        };
        let labels = labels
            .split(',')
            .filter(|label| !label.trim().is_empty())
            .map(label)
            .collect::<Result<_, _>>()?;
        let bound = bound(right)
            .ok_or_else(|| format!("'{right}' is no number, such as 0.5, 1000 or 1M"))?;
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        // Accepts the name of a metric as well as that of a figure.
        let figure = figure.strip_prefix("flowgauge_").unwrap_or(figure);
        let figure = figure.strip_suffix("_total").unwrap_or(figure).to_owned();
        Ok(Rule { text, figure, labels, side, bound })
    }
}

/// Parses a number, optionally in thousands (k), millions (M) or billions (G).
fn bound(text: &str) -> Option<f64> {
    let factors = [('k', 1e3), ('M', 1e6), ('G', 1e9)];
    let mut scaled =
        factors.into_iter().filter_map(|(end, it)| Some((text.strip_suffix(end)?, it)));
    let (digits, factor) = scaled.next().unwrap_or((text, 1.0));
    let number: f64 = digits.trim().parse().ok()?;
    number.is_finite().then_some(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Number;

    fn figure(name: &'static str, labels: &[(&'static str, &str)], shape: Shape) -> Figure {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Figure { name, title: "", unit: Unit::Things, labels, shape, truth: None }
    }

    fn between(low: f64, value: f64, high: f64) -> Shape {
        Shape::Number(Number { value, low, high })
    }

    fn fires(rule: &str, figures: &[Figure]) -> Option<bool> {
        rule.parse::<Rule>()
            .unwrap_or_else(|problem| panic!("{problem}"))
            .judge(figures)
            .map(|alert| alert.firing)
    }

    #[test]
    fn a_rule_fires_only_when_it_is_certain() {
        let flows = |low, value, high| {
            [figure("distinct_flows", &[("key", "src")], between(low, value, high))]
        };
        for (low, value, high, above, below) in [
            (1.1e6, 1.2e6, 1.3e6, true, false),
            (0.99e6, 1.05e6, 1.1e6, false, false),
            (1e6, 1.05e6, 1.1e6, false, false),
            (0.8e6, 0.9e6, 0.99e6, false, true),
            (0.9e6, 0.95e6, 1e6, false, false),
        ] {
            let figures = flows(low, value, high);
            assert_eq!(fires("distinct_flows > 1M", &figures), Some(above), "{low} {high}");
            assert_eq!(fires("distinct_flows < 1M", &figures), Some(below), "{low} {high}");
        }
    }

    #[test]
    fn labels_choose_figures_and_of_several_the_nearest_counts() {
        let figures = [
            figure("entropy", &[("key", "src")], between(2.0, 2.5, 2.9)),
            figure("entropy", &[("key", "dst")], between(7.0, 7.5, 8.0)),
            figure("lost_packets", &[("cause", "device")], Shape::Count(3.0)),
        ];
        assert_eq!(fires("entropy{key=src} < 3", &figures), Some(true));
        assert_eq!(fires("entropy{key=\"dst\"} < 3", &figures), Some(false));
        assert_eq!(fires("entropy < 3", &figures), Some(true));
        assert_eq!(fires("entropy > 6.5", &figures), Some(true));
        assert_eq!(fires("flowgauge_lost_packets_total > 0", &figures), Some(true));
        assert_eq!(
            fires("lost_packets{cause=socket} > 0", &figures),
            Some(false),
            "left out, since it is zero"
        );
        assert_eq!(fires("membership > 0", &figures), None);
    }

    #[test]
    fn what_is_no_rule_says_what_one_is() {
        for text in [
            "",
            "distinct_flows",
            "> 5",
            "a b > 5",
            "x > many",
            "x > infinity",
            "entropy{key=src < 3",
            "entropy{src} < 3",
        ] {
            let error = text.parse::<Rule>().unwrap_err();
            assert!(
                error.contains("rule") || error.contains("number") || error.contains("label"),
                "{text}: {error}"
            );
        }
        assert_eq!("distinct_flows>1.5k".parse::<Rule>().map(|rule| rule.bound), Ok(1500.0));
        assert_eq!(
            "  x   <  -2 ".parse::<Rule>().map(|rule| (rule.text, rule.bound)),
            Ok(("x < -2".to_owned(), -2.0))
        );
    }

    #[test]
    fn an_alert_tells_its_bounds() {
        let figures = [figure("distinct_flows", &[], between(1.1e6, 1.2e6, 1.3e6))];
        let alert =
            "distinct_flows > 1M".parse::<Rule>().ok().and_then(|rule| rule.judge(&figures));
        assert_eq!(
            alert.map(|alert| alert.to_string()).as_deref(),
            Some("distinct_flows > 1M: it is 1.20 M (1.10 M … 1.30 M)")
        );
    }
}
