//! Main number of a record.

use crate::text::{grouped, scaled};
use flowgauge_core::KeyKind;

/// Number of flows with its 95 % interval, shown in columns of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Headline {
    /// Key that defines a flow.
    pub key: KeyKind,
    /// Name of the counted things.
    pub what: &'static str,
    /// The estimate.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// The exact number, if it was counted.
    pub truth: Option<u64>,
}

impl Headline {
    pub(crate) fn rounded(&self) -> u64 {
        self.value.round() as u64
    }

    pub(crate) fn interval(&self) -> String {
        format!("{} … {}", grouped(self.low.round() as u64), grouped(self.high.round() as u64))
    }

    /// Formats the longer half of the interval, relative to the value.
    pub(crate) fn half_width(&self) -> String {
        let Headline { value, low, high, .. } = *self;
        let percent = (high - value).max(value - low) / value * 100.0;
        match percent {
            percent if percent < 99.95 => format!("± {percent:.1} %"),
            percent if percent < 1000.0 => format!("± {percent:.0} %"),
            _ if high.round() > value.round() => format!("≤ {}", scaled(high.round())),
            _ => String::new(),
        }
    }

    /// Formats the error relative to the exact number; `None` if that is unknown or zero.
    pub(crate) fn error(&self) -> Option<String> {
        let truth = self.truth.filter(|truth| *truth > 0)? as f64;
        let percent = (self.value / truth - 1.0) * 100.0;
        Some(if percent < 999.0 {
            format!("{percent:+.2} %")
        } else {
            format!("{:.0} x", self.value / truth)
        })
    }
}
