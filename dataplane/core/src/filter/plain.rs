//! Rules as bytes of a frame, for IPv4 without options over Ethernet without a tag: nearly all
//! packets. All fields of such a packet are at constant offsets, so that a rule is one comparison
//! under a mask; only a few rules are compared like that.

use super::MatchRule;
use super::fields::{
    FLAGS_SHIFT, FRAME, HAS_FLAGS, HAS_PORTS, IPV4_WORDS, LENGTH_MASK, PORTS, PROTOCOL,
    PROTOCOL_SHIFT,
};
use crate::frame::Frame as _;
use crate::packet::{SCTP, TCP, UDP};
use core::slice::IterMut;
use zerocopy::FromZeros;

/// First byte that is compared, and number of bytes: from the fragment offset to the TCP flags.
pub(super) const START: usize = 16;
const BYTES: usize = 32;
/// Bits of the fragment offset. Only the first fragment has a transport header.
const FRAGMENT_OFFSET: u16 = 0x1fff;

/// Most rules that are compared one by one: a rule takes about a nanosecond, sets of rules five.
const MAX: usize = 6;
const WORDS: usize = BYTES / 8;

/// A rule without a mask is met by every packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromZeros)]
#[repr(C)]
struct ByteRule {
    value: [u64; WORDS],
    mask: [u64; WORDS],
    /// 1: the packet matches, 0: it does not, [`UNDECIDED`]: the rules have another form only.
    verdict: u64,
}

const UNDECIDED: u64 = 2;

impl ByteRule {
    /// Returns the rule that every packet meets.
    const fn of_all(verdict: u64) -> Self {
        ByteRule { value: [0; WORDS], mask: [0; WORDS], verdict }
    }
}

/// Ordered rules of plain packets. Every packet meets one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub(super) struct PlainRules([ByteRule; MAX + 1]);

impl PlainRules {
    /// Writes rules of IPv4 packets, and the verdict on packets that meet none of them.
    pub(super) fn write(
        &mut self,
        mut rules: impl Iterator<Item = MatchRule<IPV4_WORDS>>,
        otherwise: bool,
    ) {
        const UNDECIDABLE: [ByteRule; MAX + 1] = [ByteRule::of_all(UNDECIDED); MAX + 1];
        self.0 = UNDECIDABLE;
        let mut places = self.0.iter_mut();
        match rules.try_for_each(|rule| add(&mut places, &rule)).and_then(|()| places.next()) {
            Some(last) => *last = ByteRule::of_all(otherwise.into()),
            None => self.0 = UNDECIDABLE,
        }
    }

    /// Returns the verdict on a plain packet with these words from [`START`] on; `None` if the
    /// rules have another form only.
    #[inline(always)]
    pub(super) fn decide(&self, found: [u64; WORDS]) -> Option<bool> {
        for rule in &self.0 {
            let mut difference = 0;
            for ((found, value), mask) in found.iter().zip(&rule.value).zip(&rule.mask) {
                difference |= found & mask ^ value;
            }
            if difference == 0 {
                return (rule.verdict != UNDECIDED).then_some(rule.verdict != 0);
            }
        }
        None
    }
}

/// Adds a rule; `None` if it compares what has no constant place, or if there is no room.
fn add(places: &mut IterMut<'_, ByteRule>, rule: &MatchRule<IPV4_WORDS>) -> Option<()> {
    let MatchRule { value, mask, .. } = rule;
    let has = |bit: u32| (mask[PROTOCOL] & bit != 0).then_some(value[PROTOCOL] & bit != 0);
    let flags = 0xff << FLAGS_SHIFT;
    let is_wider = mask[FRAME] & LENGTH_MASK != 0
        || has(HAS_PORTS) == Some(false)
        || has(HAS_FLAGS) == Some(false)
        || (mask[PORTS] != 0 && has(HAS_PORTS).is_none())
        || (mask[PROTOCOL] & flags != 0 && has(HAS_FLAGS).is_none());
    if is_wider {
        return None;
    }
    // There is no tag, and the other bits are no fields.
    let zeros = !(0xff << PROTOCOL_SHIFT | flags | HAS_FLAGS | HAS_PORTS);
    if value[FRAME] & mask[FRAME] != 0 || value[PROTOCOL] & mask[PROTOCOL] & zeros != 0 {
        return Some(());
    }
    let [value_of, mask_of] = [value, mask].map(|words| (words[PROTOCOL] >> PROTOCOL_SHIFT) as u8);
    let protocols: &[u8] = match (has(HAS_FLAGS), has(HAS_PORTS)) {
        (Some(_), _) => &[TCP],
        (None, Some(_)) => &[TCP, UDP, SCTP],
        (None, None) => return push(places, rule, value_of, mask_of),
    };
    let mut possible = protocols.iter().filter(|protocol| (*protocol ^ value_of) & mask_of == 0);
    possible.try_for_each(|protocol| push(places, rule, *protocol, 0xff))
}

/// Adds a rule with this protocol under this mask.
fn push(
    places: &mut IterMut<'_, ByteRule>,
    rule: &MatchRule<IPV4_WORDS>,
    protocol: u8,
    mask: u8,
) -> Option<()> {
    let has_transport = rule.mask[PROTOCOL] & (HAS_PORTS | HAS_FLAGS) != 0;
    let bytes = |words: &[u32; IPV4_WORDS], protocol: u8, fragment: u16| {
        let [_, of_protocol, ports, src, dst] = *words;
        let [f0, f1] = fragment.to_be_bytes();
        let [s0, s1, s2, s3] = src.to_be_bytes();
        let [d0, d1, d2, d3] = dst.to_be_bytes();
        let [p0, p1, p2, p3] = ports.to_be_bytes();
        let flags = (of_protocol >> FLAGS_SHIFT) as u8;
        #[rustfmt::skip]
        let bytes: [u8; BYTES] = [
            0, 0, 0, 0, f0, f1, 0, protocol, 0, 0,
            s0, s1, s2, s3, d0, d1, d2, d3,
            p0, p1, p2, p3, 0, 0, 0, 0, 0, 0, 0, 0, 0, flags,
        ];
        bytes.as_slice().words(0).unwrap_or_default()
    };
    let fragment = if has_transport { FRAGMENT_OFFSET } else { 0 };
    let place = places.next()?;
    let mask = bytes(&rule.mask, mask, fragment);
    let mut value = bytes(&rule.value, protocol, 0);
    value.iter_mut().zip(mask).for_each(|(value, mask)| *value &= mask);
    *place = ByteRule { value, mask, verdict: rule.verdict.into() };
    Some(())
}
