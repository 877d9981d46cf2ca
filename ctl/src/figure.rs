//! Figures of a window: numbers with their bounds, counts, distributions and rankings, with names
//! and units.
//!
//! Metrics, OTLP, the live page and the terminal view draw figures and know no measurement by name;
//! each measurement adds its own beside its fields.

use crate::number::Number;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// What a number is of. Its name ends those of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// A number of things, which the name says.
    Things,
    /// Bits of information.
    Bits,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// A share, from 0 to 1.
    Ratio,
}

impl Unit {
    /// The end of a metric's name.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            // Prometheus has no bits: an entropy's metric is in bits by its help.
            Unit::Things | Unit::Bits => "",
            Unit::Bytes => "_bytes",
            Unit::Seconds => "_seconds",
            Unit::Ratio => "_ratio",
        }
    }
}

/// Something to draw.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// As in metrics, without prefix and unit: `distinct_flows`.
    pub name: &'static str,
    /// What it is, for people.
    pub title: &'static str,
    /// Of what.
    pub unit: Unit,
    /// Tells figures of one name apart. Their values are few, and never addresses.
    #[serde(serialize_with = "labels", skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<(&'static str, String)>,
    /// What there is of it.
    #[serde(flatten)]
    pub shape: Shape,
    /// What the number is by an exact count, where there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truth: Option<f64>,
}

/// What there is of a figure, in one window.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// A number, with its 95 % interval or its bounds.
    Number(Number),
    /// A number that those of other windows may be added to.
    Count(f64),
    /// How many there are in each range.
    Distribution(Distribution),
    /// The largest of many, first. What they are called may be an address.
    Ranking(Vec<Ranked>),
    /// Whether something is so.
    State(bool),
}

/// How many values there are in each range.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Distribution {
    /// In the order of their bounds, and the same in all windows.
    pub ranges: Vec<Range>,
    /// All values together, as well as they are known.
    pub sum: f64,
    /// The same values in ranges as narrow as they are known, without those that are empty. For
    /// metrics: nobody draws so many.
    #[serde(skip)]
    pub narrow: Vec<Range>,
    /// Ranges whose middle is not above this cannot be told from zero.
    #[serde(skip)]
    pub zero: f64,
}

/// A part of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range {
    /// Values are at least this.
    pub low: f64,
    /// They are at most this.
    pub high: f64,
    /// How many.
    pub count: f64,
}

/// One of many.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranked {
    /// Such as an address.
    pub name: String,
    /// How large.
    pub number: Number,
    /// What else there is to say, in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub more: String,
}

fn labels<S: Serializer>(
    labels: &[(&'static str, String)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(labels.len()))?;
    labels.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
    map.end()
}

/// Names of counts that are left out where they are zero.
pub(crate) const LEFT_OUT: [&str; 2] = ["lost_packets", "unaccounted_packets"];

/// Title of the count of lost packets.
pub(crate) const LOST: &str = "packets lost before they could be counted";
