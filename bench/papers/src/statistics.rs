//! Statistics of repeated experiments, and results by name.

use std::borrow::Borrow;
use std::collections::BTreeMap;

/// Variation of a figure over repetitions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of one repetition (n - 1 in the denominator); 0 for a single one.
    pub deviation: f64,
    /// Smallest value.
    pub low: f64,
    /// Largest value.
    pub high: f64,
    /// Number of repetitions.
    pub count: usize,
}

impl Spread {
    /// Returns the spread of values; `None` without values.
    pub(crate) fn from_values(values: impl IntoIterator<Item = impl Borrow<f64>>) -> Option<Self> {
        let values: Vec<f64> =
            values.into_iter().map(|value| *Borrow::<f64>::borrow(&value)).collect();
        let mean = mean(&values)?;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation =
            if values.len() > 1 { (squares / (values.len() - 1) as f64).sqrt() } else { 0.0 };
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Spread { mean, deviation, low, high, count: values.len() })
    }

    /// Returns the standard error of the mean.
    #[cfg(test)]
    pub(crate) fn standard_error(&self) -> f64 {
        self.deviation / (self.count as f64).sqrt()
    }
}

/// Returns the arithmetic mean; `None` without values.
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Returns the middle value, or the mean of the two in the middle; `None` without values.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len().is_multiple_of(2) {
        sorted.get(middle - 1).map(|lower| (lower + upper) / 2.0)
    } else {
        Some(upper)
    }
}

/// Returns the root mean square; `None` without values.
pub(crate) fn root_mean_square(values: &[f64]) -> Option<f64> {
    let squares: Vec<f64> = values.iter().map(|value| value * value).collect();
    mean(&squares).map(f64::sqrt)
}

/// Returns lines of CSV below their heading.
pub(crate) fn csv(heading: &str, lines: impl IntoIterator<Item = String>) -> String {
    lines.into_iter().fold(format!("{heading}\n"), |csv, line| csv + &line + "\n")
}

/// Results by name, such as `whll/4.3/5s/average`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Numbers(BTreeMap<String, Spread>);

impl Numbers {
    /// Adds the result of several runs; nothing without runs. A name is in lower case, with hyphens
    /// for commas and spaces.
    pub(crate) fn add(&mut self, name: impl Into<String>, spread: Option<Spread>) {
        if let Some(spread) = spread {
            let name = name.into().to_lowercase().replace(", ", "-").replace(' ', "-");
            self.0.insert(name, spread);
        }
    }

    /// Adds a single result; nothing without it.
    pub(crate) fn add_one(&mut self, name: impl Into<String>, value: Option<f64>) {
        self.add(name, value.and_then(|value| Spread::from_values([value])));
    }

    /// Adds all results of another reproduction.
    pub(crate) fn extend(&mut self, other: Numbers) {
        self.0.extend(other.0);
    }

    /// Returns a result.
    pub(crate) fn get(&self, name: &str) -> Option<Spread> {
        self.0.get(name).copied()
    }

    /// Returns one line per result.
    pub(crate) fn csv(&self) -> String {
        let lines = self.0.iter().map(|(name, Spread { mean, deviation, count, .. })| {
            format!("{name},{mean},{deviation},{count}")
        });
        csv("name,mean,deviation,runs", lines)
    }

    /// Returns a text with results in the places of their names in double braces, such as
    /// `{{whll/4.3/5s/average:1}}` with one decimal, or two if it does not say how many. `other`
    /// returns what other names stand for.
    pub(crate) fn fill(&self, text: &str, mut other: impl FnMut(&str) -> Option<String>) -> String {
        let mut parts = text.split("{{");
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (name, rest) = part.split_once("}}").unwrap_or((part, ""));
            filled += &other(name).unwrap_or_else(|| self.digits(name));
            filled += rest;
        }
        filled
    }

    fn digits(&self, name: &str) -> String {
        let (name, decimals) = name.rsplit_once(':').unwrap_or((name, "2"));
        let decimals = decimals.parse().unwrap_or(2);
        self.get(name)
            .map_or_else(|| "not run".to_owned(), |found| format!("{:.decimals$}", found.mean))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_of_known_values() {
        let spread = Spread::from_values([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!((spread.mean, spread.low, spread.high, spread.count), (5.0, 2.0, 9.0, 8));
        assert!((spread.deviation - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        assert!((spread.standard_error() - (32.0_f64 / 56.0).sqrt()).abs() < 1e-12);
        assert_eq!(Spread::from_values([3.0]).unwrap().deviation, 0.0);
        assert_eq!(Spread::from_values([0.0; 0]), None);
    }

    #[test]
    fn medians_and_mean_squares() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        assert_eq!(root_mean_square(&[3.0, -4.0]), Some(12.5_f64.sqrt()));
    }
}
