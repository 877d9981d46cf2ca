//! Results of reproductions by name.

use crate::statistics::Spread;
use std::collections::BTreeMap;

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
