//! Exact values beside estimates (`--truth`).

use crate::field::Datum;
use crate::text::grouped;

/// Note where an exact value is missing although exact values are counted.
const TOO_MANY: &str = "truth unknown: too many to count exactly";

/// Returns the note of an exact count.
pub(super) fn note(truth: u64) -> String {
    format!("truth {}", grouped(truth))
}

/// Exact value beside an estimate of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExactValue<T> {
    /// Not counted: without `--truth`, and in samples and totals.
    NotCounted,
    /// Not known, because there were more flows or requests than are counted exactly.
    TooMany,
    /// The value.
    Known(T),
}

impl<T> ExactValue<T> {
    /// Returns the value, if it is known.
    #[must_use]
    pub fn known(&self) -> Option<&T> {
        match self {
            ExactValue::Known(value) => Some(value),
            ExactValue::NotCounted | ExactValue::TooMany => None,
        }
    }

    /// Makes another value of one that is known.
    pub(crate) fn map<U>(self, value: impl FnOnce(T) -> U) -> ExactValue<U> {
        match self {
            ExactValue::NotCounted => ExactValue::NotCounted,
            ExactValue::TooMany => ExactValue::TooMany,
            ExactValue::Known(known) => ExactValue::Known(value(known)),
        }
    }

    /// Returns the field of a known value, null if there were too many, else no field.
    pub(crate) fn datum(&self, of_known: impl FnOnce(&T) -> Datum) -> Datum {
        match self {
            ExactValue::NotCounted => Datum::from(None::<u64>),
            ExactValue::TooMany => Datum::Null,
            ExactValue::Known(value) => of_known(value),
        }
    }

    /// Returns the note of the table: the text of a known value, or that it is not known.
    pub(crate) fn note(&self, of_known: impl FnOnce(&T) -> String) -> Option<String> {
        match self {
            ExactValue::NotCounted => None,
            ExactValue::TooMany => Some(TOO_MANY.to_owned()),
            ExactValue::Known(value) => Some(of_known(value)),
        }
    }
}
