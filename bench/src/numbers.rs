//! Results of reproductions by name.

use crate::statistics::Spread;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Results by name, such as `whll/4.3/5s/average`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers(BTreeMap<String, Spread>);

impl Numbers {
    /// Adds the result of several runs; nothing without runs. A name is in lower case, with hyphens
    /// for commas and spaces.
    pub fn add(&mut self, name: impl Into<String>, spread: Option<Spread>) {
        if let Some(spread) = spread {
            let name = name.into().to_lowercase().replace(", ", "-").replace(' ', "-");
            self.0.insert(name, spread);
        }
    }

    /// Adds a single result; nothing without it.
    pub fn add_one(&mut self, name: impl Into<String>, value: Option<f64>) {
        self.add(name, value.and_then(|value| Spread::from_values(&[value])));
    }

    /// Adds all results of another reproduction.
    pub fn extend(&mut self, other: Numbers) {
        self.0.extend(other.0);
    }

    /// Returns a result.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Spread> {
        self.0.get(name).copied()
    }

    /// Writes one line per result.
    ///
    /// # Errors
    /// Errors of writing the file.
    pub fn csv(&self, file: &mut dyn Write) -> io::Result<()> {
        writeln!(file, "name,mean,deviation,runs")?;
        for (name, Spread { mean, deviation, count, .. }) in &self.0 {
            writeln!(file, "{name},{mean},{deviation},{count}")?;
        }
        Ok(())
    }
}
