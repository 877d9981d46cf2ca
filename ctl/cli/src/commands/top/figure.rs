//! Figures of a window, as in the status of a run.

use serde::Deserialize;
use std::collections::BTreeMap;

/// Figure as in the status of a run.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Figure {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) unit: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// Median over the windows before, of a count per second, once there are enough.
    pub(super) usual: Option<f64>,
    #[serde(flatten)]
    pub(super) shape: Shape,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Shape {
    Number(Number),
    Count(f64),
    State(bool),
    Distribution { ranges: Vec<Range> },
    Ranking(Vec<Ranked>),
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Number {
    // JSON has no infinity: an unbounded value is null.
    value: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Range {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) count: f64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Ranked {
    pub(super) name: String,
    pub(super) number: Number,
    #[serde(default)]
    pub(super) more: String,
}

impl Number {
    pub(super) fn value(&self) -> f64 {
        self.value.unwrap_or(f64::INFINITY)
    }

    pub(super) fn low(&self) -> f64 {
        self.low.unwrap_or(f64::NEG_INFINITY)
    }

    pub(super) fn high(&self) -> f64 {
        self.high.unwrap_or(f64::INFINITY)
    }
}

impl Figure {
    pub(super) fn percentile(&self) -> Option<&str> {
        self.label_value("percentile")
    }

    pub(super) fn count(&self) -> Option<f64> {
        if let Shape::Count(count) = self.shape { Some(count) } else { None }
    }

    /// Returns the value of its label `name`.
    pub(super) fn label_value(&self, name: &str) -> Option<&str> {
        self.labels.get(name).map(String::as_str)
    }

    /// Returns the label that distinguishes it from other figures of the same name.
    pub(super) fn label(&self) -> String {
        let one = |(name, value): (&String, &String)| {
            if name == "percentile" { format!("p{value}") } else { value.clone() }
        };
        self.labels.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    /// Returns the label without the percentile.
    pub(super) fn label_of_all_percentiles(&self) -> String {
        let labels = self.labels.iter().filter(|(name, _)| *name != "percentile");
        labels.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(" ")
    }

    /// Returns whether this is the key of its series: its name and the values of its labels.
    pub(super) fn is_key(&self, key: &str) -> bool {
        let mut words: Vec<&str> = key.split(' ').collect();
        let mut own = vec![self.name.as_str()];
        own.extend(self.labels.values().map(String::as_str));
        words.sort_unstable();
        own.sort_unstable();
        words == own
    }

    /// Returns what distinguishes it from all others.
    pub(super) fn identity(&self) -> String {
        format!("{} {}", self.name, self.label())
    }

    /// Returns its value for the series; counts are per second.
    pub(super) fn height(&self, seconds: f64) -> Option<f64> {
        match &self.shape {
            Shape::Number(number) => Some(number.value()),
            Shape::Count(count) if seconds > 0.0 => Some(count / seconds),
            _ => None,
        }
    }
}
