//! Filter expressions (`--match`): which packets are counted at all, in the part of pcap-filter's
//! language that header fields decide.
//!
//! # Data flow
//! 1. `lexer` splits the text into tokens with their columns, and `parser` makes a tree of
//!    primitives, the smallest conditions. Whatever the language lacks is an error that names the
//!    word, its column and what is near it.
//! 2. `normal` turns the tree into one ordered list of value/mask rules for each kind of frame.
//! 3. The lists are a [`Filter`], a match table that the controller installs in the dataplane like
//!    its others ([`Tables`](flowgauge_dataplane::Tables)).
//!
//! The decisions where pcap-filter surprises, or where flowgauge differs from it, are in
//! `docs/match.md`. `ctl/tests/tcpdump.rs` compares with `tcpdump`.

mod lexer;
mod names;
mod normal;
mod parser;

pub use normal::FrameFamily;

use crate::nearest::nearest;
use crate::text::{MAX_EXCERPT, excerpt};
use flowgauge_core::Filter;
use flowgauge_core::filter::fields::{
    ADDRESSES, FLAGS_SHIFT, FRAME, HAS_FLAGS, HAS_PORTS, LENGTH_MASK, PORTS, PROTOCOL,
    PROTOCOL_SHIFT, TAGGED, VLAN_MASK, VLAN_SHIFT,
};
use flowgauge_core::filter::{MAX_RULES, MatchRule, MatchRules};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
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

/// An expression as parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ExpressionTree {
    Primitive(Primitive),
    Not(Box<ExpressionTree>),
    And(Box<ExpressionTree>, Box<ExpressionTree>),
    Or(Box<ExpressionTree>, Box<ExpressionTree>),
}

impl ExpressionTree {
    /// Returns the tree in which the conditions on lengths make it true of as many packets as
    /// possible, or false.
    fn with_lengths(&self, verdict: bool) -> ExpressionTree {
        let with = |tree: &ExpressionTree| tree.with_lengths(verdict).into();
        match self {
            ExpressionTree::Primitive(Primitive::Length(_)) => {
                let any = ExpressionTree::Primitive(Primitive::Length(0..=u16::MAX));
                if verdict { any } else { ExpressionTree::Not(any.into()) }
            }
            ExpressionTree::Primitive(_) => self.clone(),
            ExpressionTree::Not(inner) => ExpressionTree::Not(inner.with_lengths(!verdict).into()),
            ExpressionTree::And(one, other) => ExpressionTree::And(with(one), with(other)),
            ExpressionTree::Or(one, other) => ExpressionTree::Or(with(one), with(other)),
        }
    }
}

/// Version of the Internet protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IpVersion {
    V4,
    V6,
}

impl IpVersion {
    fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 }
    }
}

/// End of a packet that an address or a port is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PacketEnd {
    Source,
    Destination,
    /// At least one of both.
    #[default]
    Either,
    Both,
}

/// A condition that a packet meets or not.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Primitive {
    Ip(IpVersion),
    /// Protocol number; without a version, of IPv4 and IPv6.
    Protocol(Option<IpVersion>, u8),
    /// Address with these bits under a mask.
    Network {
        end: PacketEnd,
        address: IpAddr,
        mask: IpAddr,
    },
    /// Ports; without a protocol, of every protocol that has ports.
    Ports {
        end: PacketEnd,
        protocol: Option<u8>,
        ports: RangeInclusive<u16>,
    },
    /// VLAN tag; without an id, every tag.
    Vlan(Option<u16>),
    /// TCP segment whose flags under a mask have this value, or another one if `differs`.
    Flags {
        mask: u8,
        value: u8,
        differs: bool,
    },
    /// Length on the wire; `u16::MAX` includes longer frames.
    Length(RangeInclusive<u16>),
}

/// Entries of the match table for one kind of frame, in order and in readable form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyEntries {
    /// Kind of frame.
    pub family: FrameFamily,
    /// Conditions of each entry, and whether packets that meet them match.
    pub entries: Vec<(String, bool)>,
    /// Whether packets that meet no entry match.
    pub otherwise: bool,
}

impl MatchExpression {
    /// Returns the entries for IPv4, IPv6, other frames and frames that cannot be read.
    #[must_use]
    pub fn entries(&self) -> [FamilyEntries; 4] {
        let filter = &self.filter;
        [
            family_entries(FrameFamily::V4, &filter.ipv4),
            family_entries(FrameFamily::V6, &filter.ipv6),
            family_entries(FrameFamily::NonIp, &filter.non_ip),
            family_entries(FrameFamily::Unreadable, &filter.unreadable),
        ]
    }
}

fn family_entries<const WORDS: usize>(
    family: FrameFamily,
    rules: &MatchRules<WORDS>,
) -> FamilyEntries {
    let entry =
        |rule: &MatchRule<WORDS>| (conditions(family, &rule.value, &rule.mask), rule.verdict != 0);
    FamilyEntries {
        family,
        entries: rules.rules().iter().map(entry).collect(),
        otherwise: rules.otherwise(),
    }
}

/// Describes an entry: each field with its value, and its mask unless all bits are compared.
/// Fields that a family of frames lacks have no words.
fn conditions(family: FrameFamily, value: &[u32], mask: &[u32]) -> String {
    let at = |words: &[u32], word: usize| words.get(word).copied().unwrap_or(0);
    let mut all = Vec::new();
    let mut number = |name: &str, word: usize, shift: u32, whole: u32| {
        let [value, mask] = [value, mask].map(|words| at(words, word) >> shift & whole);
        if mask == whole {
            all.push(format!("{name} {value}"));
        } else if mask != 0 {
            all.push(format!("{name} {value}/{mask:#x}"));
        }
    };
    number("vlan", FRAME, VLAN_SHIFT, VLAN_MASK);
    number("length", FRAME, 0, LENGTH_MASK);
    number("protocol", PROTOCOL, PROTOCOL_SHIFT, 0xff);
    number("tcp-flags", PROTOCOL, FLAGS_SHIFT, 0xff);
    number("src-port", PORTS, 16, 0xffff);
    number("dst-port", PORTS, 0, 0xffff);
    let has = |word: usize, bit: u32| at(mask, word) & bit != 0;
    let flags = [
        ("tagged", has(FRAME, TAGGED)),
        ("has tcp-flags", has(PROTOCOL, HAS_FLAGS)),
        ("has ports", has(PROTOCOL, HAS_PORTS)),
    ];
    let flags = flags.into_iter().filter(|(_, is_compared)| *is_compared);
    all.extend(flags.map(|(name, _)| name.to_owned()));
    let length = if family == FrameFamily::V4 { 1 } else { 4 };
    for (name, first) in [("src", ADDRESSES), ("dst", ADDRESSES + length)] {
        let bits = |words: &[u32]| {
            let words = words.iter().skip(first).take(length);
            words.fold(0, |bits, word| bits << 32 | u128::from(*word))
        };
        let (address, mask) = (bits(value), bits(mask));
        if mask != 0 {
            all.push(format!("{name} {}", network(family, address, mask)));
        }
    }
    if all.is_empty() { "anything".to_owned() } else { all.join(", ") }
}

fn network(family: FrameFamily, address: u128, mask: u128) -> String {
    let (whole, to_address): (u32, fn(u128) -> IpAddr) = match family {
        FrameFamily::V4 => (32, |bits| Ipv4Addr::from(bits as u32).into()),
        _ => (128, |bits| Ipv6Addr::from(bits).into()),
    };
    let bits = mask.count_ones();
    let is_prefix = mask == (u128::MAX << (128 - bits.max(1))) >> (128 - whole);
    if is_prefix {
        format!("{}/{bits}", to_address(address))
    } else {
        format!("{}/{}", to_address(address), to_address(mask))
    }
}

#[cfg(test)]
mod tests;
