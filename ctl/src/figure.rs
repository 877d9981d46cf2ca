//! Figures of a window: numbers with their bounds, counts, distributions and rankings, with names
//! and units.
//!
//! Metrics, OTLP, the live page and the terminal view draw figures and know no measurement by name;
//! each measurement adds its own next to its fields.

use crate::text::serialize_pairs;
use serde::Serialize;

/// Two-sided 95 % quantile of the standard normal distribution.
pub(crate) const Z95: f64 = 1.959_963_984_540_054;

/// Estimate with its 95 % confidence interval, or with its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Number {
    /// The estimate.
    pub value: f64,
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
}

/// Unit of a figure. Its suffix ends the names of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Number of the things that the figure's name states.
    Things,
    /// Bits of information.
    Bits,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// A ratio from 0 to 1.
    Ratio,
}

impl Unit {
    /// Returns the suffix of a metric's name.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            // Prometheus has no unit for bits: the HELP text of an entropy states it.
            Unit::Things | Unit::Bits => "",
            Unit::Bytes => "_bytes",
            Unit::Seconds => "_seconds",
            Unit::Ratio => "_ratio",
        }
    }
}

/// Named quantity of one window, ready to be drawn.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Name as in metrics, without prefix and unit: `distinct_flows`.
    pub name: &'static str,
    /// Title for people.
    pub title: &'static str,
    /// Unit of its values.
    pub unit: Unit,
    /// Labels that distinguish figures of one name. They have few values, and never addresses.
    #[serde(serialize_with = "serialize_pairs", skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<(&'static str, String)>,
    /// Value, by its shape.
    #[serde(flatten)]
    pub shape: Shape,
    /// Exact value, where it was counted as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truth: Option<f64>,
}

/// Value of a figure in one window.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// A number, with its 95 % interval or its bounds.
    Number(Number),
    /// A number that can be added up over windows.
    Count(f64),
    /// Number of values in each range.
    Distribution(Distribution),
    /// The largest of many items, in descending order. Their names may be addresses.
    Ranking(Vec<RankingItem>),
    /// A flag.
    State(bool),
}

/// Histogram of one window.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Distribution {
    /// Ranges in ascending order, the same in all windows.
    pub ranges: Vec<Range>,
    /// Sum of all values, as precisely as it is known.
    pub sum: f64,
    /// The same values in the narrowest ranges that are known, without empty ones. For metrics
    /// only: there are too many to draw.
    #[serde(skip)]
    pub narrow: Vec<Range>,
    /// Maximum value that is indistinguishable from zero. It applies to the middles of narrow
    /// ranges.
    #[serde(skip)]
    pub zero_threshold: f64,
}

/// Range of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range {
    /// Lower bound, included.
    pub low: f64,
    /// Upper bound, included.
    pub high: f64,
    /// Number of values in the range.
    pub count: f64,
}

/// Item of a ranking.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankingItem {
    /// Name, such as an address.
    pub name: String,
    /// Size, with its bounds.
    pub number: Number,
    /// Further details as text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub more: String,
}

/// Names of counts that are omitted while they are zero.
pub(crate) const OMITTED_AT_ZERO: [&str; 2] = ["lost_packets", "unaccounted_packets"];

/// Title of the count of packets that the ledger cannot explain.
pub(crate) const UNACCOUNTED_TITLE: &str = "packets that devices received and nothing accounts for, or that were counted and devices did not report";
/// Values of its label `sign`.
pub(crate) const UNACCOUNTED_SIGNS: [&str; 2] = ["missing", "extra"];

/// Title of the count of lost packets.
pub(crate) const LOST_TITLE: &str = "packets lost before they could be counted";

/// Figure that windows can have, for the rules of alerts. Distributions are none of these, since no
/// rule can compare them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KnownFigure {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    /// Labels, each with its possible values.
    pub(crate) labels: Vec<(&'static str, Vec<String>)>,
}

impl KnownFigure {
    pub(crate) fn new(name: &'static str, unit: Unit) -> Self {
        KnownFigure { name, unit, labels: Vec::new() }
    }

    /// Adds a label with its possible values; one without values is omitted.
    pub(crate) fn label<T: Into<String>>(
        mut self,
        name: &'static str,
        values: impl IntoIterator<Item = T>,
    ) -> Self {
        let values: Vec<String> = values.into_iter().map(Into::into).collect();
        if !values.is_empty() {
            self.labels.push((name, values));
        }
        self
    }

    /// Returns whether a figure can have these labels.
    pub(crate) fn has(&self, labels: &[(String, String)]) -> bool {
        labels.iter().all(|(name, value)| {
            self.labels.iter().any(|(label, values)| label == name && values.contains(value))
        })
    }
}
