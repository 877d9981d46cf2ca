//! Rules as bytes of a frame, for IPv4 without options over Ethernet without a tag: nearly all
//! packets. All fields of such a packet are at constant offsets, so that a rule is one comparison
//! under a mask; only a few rules are compared like that.

use super::MatchRule;
use super::fields::{
    ADDRESSES, FLAGS_SHIFT, FRAME, HAS_FLAGS, HAS_PORTS, IPV4_WORDS, LENGTH_MASK, PORTS, PROTOCOL,
    PROTOCOL_SHIFT,
};
use crate::frame::Frame as _;
use crate::packet::{SCTP, TCP, UDP};
use zerocopy::FromZeros;

/// First byte that is compared, and number of bytes: from the fragment offset to the TCP flags.
pub(super) const START: usize = 16;
const BYTES: usize = 32;
/// Offsets in these bytes.
const FRAGMENT: usize = 20 - START;
const PROTOCOL_BYTE: usize = 23 - START;
const SRC: usize = 26 - START;
const DST: usize = 30 - START;
const TRANSPORT: usize = 34 - START;
const FLAGS: usize = 47 - START;
/// Bits of the fragment offset. Only the first fragment has a transport header.
const FRAGMENT_OFFSET: u16 = 0x1fff;

/// Number of rules from which on sets of rules take fewer instructions.
const MAX: usize = 6;
const WORDS: usize = BYTES / 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromZeros)]
#[repr(C)]
struct ByteRule {
    value: [u64; WORDS],
    mask: [u64; WORDS],
    verdict: u64,
}

/// Ordered rules of plain packets, if they can be compared like that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub(super) struct PlainRules {
    rules: [ByteRule; MAX],
    length: u32,
    /// Whether the rules are these; otherwise they have another form only.
    is_complete: u32,
}

impl PlainRules {
    /// Writes rules of IPv4 packets.
    pub(super) fn write(&mut self, mut rules: impl Iterator<Item = MatchRule<IPV4_WORDS>>) {
        (self.length, self.is_complete) = (0, 0);
        if rules.try_for_each(|rule| self.add(&rule)).is_some() {
            self.is_complete = 1;
        }
    }

    /// Adds a rule; `None` if it compares what has no constant place, or if there is no room.
    fn add(&mut self, rule: &MatchRule<IPV4_WORDS>) -> Option<()> {
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
        let [value_of, mask_of] =
            [value, mask].map(|words| (words[PROTOCOL] >> PROTOCOL_SHIFT) as u8);
        let protocols: &[u8] = match (has(HAS_FLAGS), has(HAS_PORTS)) {
            (Some(_), _) => &[TCP],
            (None, Some(_)) => &[TCP, UDP, SCTP],
            (None, None) => return self.push(rule, value_of, mask_of),
        };
        let mut possible =
            protocols.iter().filter(|protocol| (*protocol ^ value_of) & mask_of == 0);
        possible.try_for_each(|protocol| self.push(rule, *protocol, 0xff))
    }

    /// Adds a rule with this protocol under this mask.
    fn push(&mut self, rule: &MatchRule<IPV4_WORDS>, protocol: u8, mask: u8) -> Option<()> {
        let has_transport = rule.mask[PROTOCOL] & (HAS_PORTS | HAS_FLAGS) != 0;
        let bytes = |words: &[u32; IPV4_WORDS], protocol: u8, fragment: u16| {
            let mut bytes = [0; BYTES];
            let mut put =
                |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
            put(FRAGMENT, &fragment.to_be_bytes());
            put(PROTOCOL_BYTE, &[protocol]);
            put(SRC, &words[ADDRESSES].to_be_bytes());
            put(DST, &words[ADDRESSES + 1].to_be_bytes());
            put(TRANSPORT, &words[PORTS].to_be_bytes());
            put(FLAGS, &[(words[PROTOCOL] >> FLAGS_SHIFT) as u8]);
            bytes.as_slice().words(0).unwrap_or_default()
        };
        let fragment = if has_transport { FRAGMENT_OFFSET } else { 0 };
        let place = self.rules.get_mut(self.length as usize)?;
        let mask = bytes(&rule.mask, mask, fragment);
        let mut value = bytes(&rule.value, protocol, 0);
        value.iter_mut().zip(mask).for_each(|(value, mask)| *value &= mask);
        *place = ByteRule { value, mask, verdict: rule.verdict.into() };
        self.length += 1;
        Some(())
    }

    /// Returns the verdict on a plain packet with these words from [`START`] on, or `otherwise` if it meets no rule; `None` if the rules
    /// have another form only.
    #[inline(always)]
    pub(super) fn decide(&self, found: [u64; WORDS], otherwise: bool) -> Option<bool> {
        if self.is_complete == 0 {
            return None;
        }
        for rule in self.rules.iter().take(self.length as usize) {
            let mut difference = 0;
            for ((found, value), mask) in found.iter().zip(&rule.value).zip(&rule.mask) {
                difference |= found & mask ^ value;
            }
            if difference == 0 {
                return Some(rule.verdict != 0);
            }
        }
        Some(otherwise)
    }
}
