//! Conditions of filters that no switch can match.

use flowgauge_core::Filter;
use flowgauge_core::filter::fields::{
    FLAGS_SHIFT, FRAME, HAS_FLAGS, HAS_PORTS, LENGTH_MASK, PORTS, PROTOCOL, PROTOCOL_SHIFT, TAGGED,
    VLAN_MASK, VLAN_SHIFT,
};
use flowgauge_core::filter::{MatchRule, MatchRules};

const VLAN: u32 = VLAN_MASK << VLAN_SHIFT;
const FLAGS: u32 = 0xff << FLAGS_SHIFT;

/// Returns a condition of a filter that no switch can match, in words; `None` if a switch can match
/// all of them.
#[must_use]
pub fn unmatchable(filter: &Filter) -> Option<&'static str> {
    let Filter { ipv4, ipv6, non_ip, unreadable } = filter;
    let any = |is: fn(Fields) -> bool| {
        fields(ipv4).any(is)
            || fields(ipv6).any(is)
            || fields(non_ip).any(is)
            || fields(unreadable).any(is)
    };
    if any(|rule| rule.frame_mask & LENGTH_MASK != 0) {
        Some("the length of a frame (greater, less), which its ingress does not know")
    } else if any(|rule| !rule.is_guarded()) {
        Some("a header field of packets that may lack it")
    } else {
        None
    }
}

/// Bits that a rule compares in the words whose fields a packet may lack.
#[derive(Clone, Copy)]
struct Fields {
    frame: u32,
    frame_mask: u32,
    protocol: u32,
    protocol_mask: u32,
    ports_mask: u32,
}

fn fields<const WORDS: usize>(rules: &MatchRules<WORDS>) -> impl Iterator<Item = Fields> {
    let word = |words: &[u32; WORDS], word: usize| words.get(word).copied().unwrap_or_default();
    rules.rules().iter().map(move |MatchRule { value, mask, .. }| Fields {
        frame: word(value, FRAME),
        frame_mask: word(mask, FRAME),
        protocol: word(value, PROTOCOL),
        protocol_mask: word(mask, PROTOCOL),
        ports_mask: word(mask, PORTS),
    })
}

impl Fields {
    /// Returns whether the rule compares known fields, and each only of packets that have it: on a
    /// switch, a field that a packet lacks is not zero.
    fn is_guarded(self) -> bool {
        let known = 0xff << PROTOCOL_SHIFT | FLAGS | HAS_FLAGS | HAS_PORTS;
        self.frame_mask & !(TAGGED | VLAN) == 0
            && self.protocol_mask & !known == 0
            && (self.frame_mask & VLAN == 0 || self.frame & TAGGED != 0)
            && (self.protocol_mask & FLAGS == 0 || self.protocol & HAS_FLAGS != 0)
            && (self.ports_mask == 0 || self.protocol & HAS_PORTS != 0)
    }
}
