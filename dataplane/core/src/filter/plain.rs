//! Rules as bytes of a frame, for IPv4 without options over Ethernet without a tag: nearly all
//! packets. All fields of such a packet are at constant offsets, so that a rule is one comparison
//! under a mask; only a few rules are compared like that.

use super::MatchRule;
use super::fields::{
    FLAGS_SHIFT, FRAME, HAS_FLAGS, HAS_PORTS, IPV4_WORDS, LENGTH_MASK, PORTS, PROTOCOL,
    PROTOCOL_SHIFT,
};
use crate::frame::words;
use crate::packet::{SCTP, TCP, UDP};
use zerocopy::FromZeros;

/// First byte of a frame that is compared.
pub const START: usize = 16;
/// Number of bytes that are compared: from the fragment offset to the TCP flags, in whole words.
pub const BYTES: usize = 32;
const WORDS: usize = BYTES / size_of::<u64>();
/// Position of the fragment offset in these bytes.
pub const FRAGMENT_AT: usize = 4;
/// Position of the protocol number in these bytes.
pub const PROTOCOL_AT: usize = 7;
/// Bits of the fragment offset. Only the first fragment has a transport header.
pub const FRAGMENT_OFFSET: u16 = 0x1fff;

/// Most rules that are compared one by one: a rule takes about a nanosecond, sets of rules five.
const MAX: usize = 6;

/// A rule over bytes of plain packets.
pub struct PlainRule {
    value: [u8; BYTES],
    mask: [u8; BYTES],
    /// Protocols that have the fields that it compares; none if all have them.
    protocols: &'static [u8],
    /// Whether packets without a tag can meet it.
    is_untagged: bool,
    verdict: bool,
}

impl PlainRule {
    /// Returns a rule over bytes; `None` if the rule compares what is not a byte of the frame.
    #[must_use]
    pub fn new(rule: &MatchRule<IPV4_WORDS>) -> Option<Self> {
        let MatchRule { value, mask, verdict } = rule;
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
        let protocols: &[u8] = match (has(HAS_FLAGS), has(HAS_PORTS)) {
            (Some(_), _) => &[TCP],
            (None, Some(_)) => &[TCP, UDP, SCTP],
            (None, None) => &[],
        };
        // There is no tag, and the other bits are no fields.
        let fields = 0xff << PROTOCOL_SHIFT | flags | HAS_FLAGS | HAS_PORTS;
        let others = value[FRAME] & mask[FRAME] | value[PROTOCOL] & mask[PROTOCOL] & !fields;
        Some(PlainRule {
            value: bytes(value, 0),
            mask: bytes(mask, if protocols.is_empty() { 0 } else { FRAGMENT_OFFSET }),
            protocols,
            is_untagged: others == 0,
            verdict: *verdict != 0,
        })
    }

    /// Returns rules that are met by bytes alone: one of them by each packet that meets this rule.
    pub fn by_protocol(&self) -> impl Iterator<Item = ByteRule> {
        let of_any = self.protocols.is_empty() && self.is_untagged;
        let of_each = self.protocols.iter().filter(|number| self.is_possible(**number, false));
        let of_each = of_each.map(|number| {
            let (mut value, mut mask) = (self.value, self.mask);
            (value[PROTOCOL_AT], mask[PROTOCOL_AT]) = (*number, u8::MAX);
            ByteRule::new(&value, &mask, self.verdict)
        });
        let of_any = of_any.then(|| ByteRule::new(&self.value, &self.mask, self.verdict));
        of_any.into_iter().chain(of_each)
    }

    /// Returns whether packets of a protocol can meet the rule. `is_later`: those that are fragments
    /// other than the first.
    #[must_use]
    pub fn is_possible(&self, protocol: u8, is_later: bool) -> bool {
        let has_fields =
            self.protocols.is_empty() || (!is_later && self.protocols.contains(&protocol));
        self.is_untagged && self.is_satisfied(PROTOCOL_AT, protocol) && has_fields
    }

    /// Returns whether a byte has the value that the rule asks for, if it asks for one.
    #[must_use]
    pub fn is_satisfied(&self, at: usize, found: u8) -> bool {
        let pair = self.value.get(at).zip(self.mask.get(at));
        pair.is_none_or(|(value, mask)| (found ^ value) & mask == 0)
    }

    /// Returns whether the rule compares any bit of a byte.
    #[must_use]
    pub fn compares(&self, at: usize) -> bool {
        self.mask.get(at).is_some_and(|mask| *mask != 0)
    }

    /// Returns whether packets that meet the rule match.
    #[must_use]
    pub fn verdict(&self) -> bool {
        self.verdict
    }
}

/// Returns the words of a rule as bytes of the frame.
fn bytes(words: &[u32; IPV4_WORDS], fragment: u16) -> [u8; BYTES] {
    let [_, of_protocol, ports, src, dst] = *words;
    let [protocol, flags] = [PROTOCOL_SHIFT, FLAGS_SHIFT].map(|shift| (of_protocol >> shift) as u8);
    let [f0, f1] = fragment.to_be_bytes();
    let [s0, s1, s2, s3] = src.to_be_bytes();
    let [d0, d1, d2, d3] = dst.to_be_bytes();
    let [p0, p1, p2, p3] = ports.to_be_bytes();
    #[rustfmt::skip]
    let bytes = [
        0, 0, 0, 0, f0, f1, 0, protocol, 0, 0,
        s0, s1, s2, s3, d0, d1, d2, d3,
        p0, p1, p2, p3, 0, 0, 0, 0, 0, 0, 0, 0, 0, flags,
    ];
    bytes
}

/// A rule that is met by the bytes of a plain packet alone. One without a mask is met by every
/// packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct ByteRule {
    /// Zero outside the mask.
    value: [u64; WORDS],
    mask: [u64; WORDS],
    /// 1: the packet matches, 0: it does not, [`UNDECIDED`]: the rules have another form only.
    verdict: u64,
}

const UNDECIDED: u64 = 2;

impl ByteRule {
    fn new(value: &[u8; BYTES], mask: &[u8; BYTES], verdict: bool) -> Self {
        let (mut value, mask) = (words(value), words(mask));
        value.iter_mut().zip(mask).for_each(|(value, mask)| *value &= mask);
        ByteRule { value, mask, verdict: verdict.into() }
    }

    /// Returns the rule that every packet meets.
    const fn of_all(verdict: u64) -> Self {
        ByteRule { value: [0; WORDS], mask: [0; WORDS], verdict }
    }

    /// Returns whether a packet with these words from [`START`] on meets the rule.
    #[inline(always)]
    #[must_use]
    pub fn is_met(&self, found: &[u64; WORDS]) -> bool {
        let mut difference = 0;
        for ((found, value), mask) in found.iter().zip(&self.value).zip(&self.mask) {
            difference |= found & mask ^ value;
        }
        difference == 0
    }

    /// Returns whether packets that meet the rule match.
    #[inline(always)]
    #[must_use]
    pub fn verdict(&self) -> bool {
        self.verdict != 0
    }
}

/// Ordered rules of plain packets. Every packet meets one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub(super) struct ByteRules([ByteRule; MAX + 1]);

impl ByteRules {
    /// Writes rules of IPv4 packets, and the verdict on packets that meet none of them.
    pub(super) fn write(
        &mut self,
        mut rules: impl Iterator<Item = MatchRule<IPV4_WORDS>>,
        otherwise: bool,
    ) {
        const UNDECIDABLE: [ByteRule; MAX + 1] = [ByteRule::of_all(UNDECIDED); MAX + 1];
        self.0 = UNDECIDABLE;
        let mut places = self.0.iter_mut();
        let add = |rule: MatchRule<IPV4_WORDS>| {
            for rule in PlainRule::new(&rule)?.by_protocol() {
                *places.next()? = rule;
            }
            Some(())
        };
        match rules.try_for_each(add).and_then(|()| places.next()) {
            Some(last) => *last = ByteRule::of_all(otherwise.into()),
            None => self.0 = UNDECIDABLE,
        }
    }

    /// Returns the verdict on a plain packet with these words from [`START`] on; `None` if the
    /// rules have another form only.
    #[inline(always)]
    pub(super) fn decide(&self, found: [u64; WORDS]) -> Option<bool> {
        for rule in &self.0 {
            if rule.is_met(&found) {
                return (rule.verdict != UNDECIDED).then_some(rule.verdict());
            }
        }
        None
    }
}
