//! Conditions of filters that no switch can match.

use flowgauge_core::Filter;
use flowgauge_core::filter::MatchRules;
use flowgauge_core::filter::fields::{
    FLAGS_SHIFT, FRAME, HAS_FLAGS, HAS_PORTS, LENGTH_MASK, PORTS, PROTOCOL, PROTOCOL_SHIFT, TAGGED,
    VLAN_MASK, VLAN_SHIFT,
};

const VLAN: u32 = VLAN_MASK << VLAN_SHIFT;
const FLAGS: u32 = 0xff << FLAGS_SHIFT;

/// Returns a condition of a filter that no switch can match, in words; `None` if a switch can match
/// all of them.
#[must_use]
pub fn unmatchable(filter: &Filter) -> Option<&'static str> {
    let Filter { ipv4, ipv6, non_ip, unreadable } = filter;
    let rules = || words(ipv4).chain(words(ipv6)).chain(words(non_ip)).chain(words(unreadable));
    if rules().any(|(_, mask)| word(mask, FRAME) & LENGTH_MASK != 0) {
        Some("the length of a frame (greater, less), which its ingress does not know")
    } else if rules().any(|(value, mask)| !is_guarded(value, mask)) {
        Some("a header field of packets that may lack it")
    } else {
        None
    }
}

/// Returns the words of each rule: values and masks.
fn words<const WORDS: usize>(rules: &MatchRules<WORDS>) -> impl Iterator<Item = (&[u32], &[u32])> {
    rules.rules().iter().map(|rule| (&rule.value[..], &rule.mask[..]))
}

fn word(words: &[u32], word: usize) -> u32 {
    words.get(word).copied().unwrap_or_default()
}

/// Returns whether a rule compares known fields, and each only of packets that have it: on a
/// switch, a field that a packet lacks is not zero.
fn is_guarded(value: &[u32], mask: &[u32]) -> bool {
    let known = 0xff << PROTOCOL_SHIFT | FLAGS | HAS_FLAGS | HAS_PORTS;
    let (frame, protocol) = (word(value, FRAME), word(value, PROTOCOL));
    let (frame_mask, protocol_mask) = (word(mask, FRAME), word(mask, PROTOCOL));
    frame_mask & !(TAGGED | VLAN) == 0
        && protocol_mask & !known == 0
        && (frame_mask & VLAN == 0 || frame & TAGGED != 0)
        && (protocol_mask & FLAGS == 0 || protocol & HAS_FLAGS != 0)
        && (word(mask, PORTS) == 0 || protocol & HAS_PORTS != 0)
}
