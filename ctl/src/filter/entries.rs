//! Entries of the match table in readable form.

use super::{FrameFamily, MatchExpression};
use flowgauge_core::filter::fields::{
    ADDRESSES, FLAGS_SHIFT, FRAME, HAS_FLAGS, HAS_PORTS, LENGTH_MASK, PORTS, PROTOCOL,
    PROTOCOL_SHIFT, TAGGED, VLAN_MASK, VLAN_SHIFT,
};
use flowgauge_core::filter::{MatchRule, MatchRules};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Entries for one kind of frame, in order.
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
