//! Filter expressions (`--match`): which packets are counted at all, in the part of pcap-filter's
//! language that header fields decide.
//!
//! # Data flow
//! 1. `lexer` splits the text into tokens with their columns, and `parser` makes a tree of
//!    primitives (`primitive`), the smallest conditions. Whatever the language lacks is an error
//!    that names the word, its column and what is near it.
//! 2. `normal` turns the tree into one ordered list of value/mask rules for each kind of frame.
//! 3. The lists are a [`Filter`], a match table that the controller installs in the dataplane like
//!    its others ([`Tables`](flowgauge_dataplane::Tables)).
//!
//! The decisions where pcap-filter surprises, or where flowgauge differs from it, are in
//! `docs/match.md`. `ctl/tests/tcpdump.rs` compares with `tcpdump`.

mod entries;
mod lexer;
mod names;
mod normal;
mod parser;
mod primitive;

pub use entries::FamilyEntries;
pub use normal::FrameFamily;

use crate::nearest::nearest;
use crate::text::{MAX_EXCERPT, excerpt};
use flowgauge_core::Filter;
use flowgauge_core::filter::MAX_RULES;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

/// Maximum number of primitives in an expression, and of operators and parentheses around each.
const MAX_PRIMITIVES: usize = 256;
/// Maximum depth of parentheses and `not`.
const MAX_DEPTH: usize = 64;
/// Maximum number of rules in a list before it is simplified. It bounds the time that an expression
/// can take: each of the [`MAX_PRIMITIVES`] steps compares at most every rule with every other.
const MAX_UNSIMPLIFIED_RULES: usize = 1024;

/// A filter expression, parsed from its text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MatchExpression {
    /// Text.
    pub text: Arc<str>,
    /// Rules that it means.
    pub filter: Arc<Filter>,
    /// Ranges of ports in it, in order.
    pub port_ranges: Arc<[PortRange]>,
}

/// Range of ports in an expression. A ternary table matches prefixes: the range takes as many
/// entries for each end of a packet, and is combined with those of other conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// First and last port.
    pub ports: RangeInclusive<u16>,
    /// Number of prefixes that it is split into.
    pub prefixes: usize,
}

/// Reason why a text is no filter expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// A word or character that the language does not have there.
    #[error("column {column}: {problem}")]
    Syntax {
        /// Column of the word, in characters from 1.
        column: usize,
        /// The problem, and what to write instead.
        problem: String,
    },
    /// More rules than a list can hold.
    #[error(
        "it takes {rules} rules of {family}, at most {MAX_RULES} are possible; use fewer addresses and ports, or ranges that begin and end at powers of two"
    )]
    TooManyRules {
        /// Kind of frame.
        family: FrameFamily,
        /// Number of rules.
        rules: usize,
    },
    /// More rules than the translation works with.
    #[error(
        "it takes more than {MAX_UNSIMPLIFIED_RULES} rules of {family} before they are simplified, at most {MAX_RULES} are possible afterwards; use \
         fewer addresses and ports, or ranges that begin and end at powers of two"
    )]
    TooComplex {
        /// Kind of frame.
        family: FrameFamily,
    },
    /// An expression that no packet can match.
    #[error("it matches no packet; its conditions contradict each other")]
    MatchesNothing,
}

impl FilterError {
    /// Adds the surroundings of the problem, if the text is too long to be printed with it.
    fn in_text(self, text: &str) -> Self {
        match self {
            FilterError::Syntax { column, problem } if text.chars().count() > MAX_EXCERPT => {
                let excerpt = excerpt(text, column - 1);
                FilterError::Syntax { column, problem: format!("{problem}, in '{excerpt}'") }
            }
            other => other,
        }
    }
}

impl FromStr for MatchExpression {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let tree = parser::parse(text).map_err(|error| error.in_text(text))?;
        let filter = normal::filter(&tree)?;
        let port_ranges = normal::port_ranges(&tree).into();
        Ok(MatchExpression { text: text.trim().into(), filter, port_ranges })
    }
}

/// Returns whether a word begins an expression, or is a mistyped one that does.
#[must_use]
pub fn begins_expression(word: &str) -> bool {
    nearest(word, names::WORDS).is_some()
}

#[cfg(test)]
mod tests;
