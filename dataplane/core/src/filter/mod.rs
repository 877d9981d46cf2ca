//! Filter: the packets that are counted at all, as ordered lists of value/mask rules.
//!
//! The controller translates an expression (`--match`) into rules over the header fields that the
//! parser finds: the same header that defines a flow, behind VLAN tags and other encapsulations,
//! and with [`parse::Settings::INNER`] the innermost one. [`Filter::matches`] lays the fields out
//! as words ([`fields`]) and returns the verdict of the first rule that they match, or that of the
//! list if there is none. Each rule is an entry of a ternary table, so that a switch can have the
//! same lists in TCAM.
//!
//! There is a list for IPv4, one for IPv6, and one for frames that have neither. A frame whose
//! network header is truncated or damaged has no fields to match: the list for it says whether the
//! expression can be true of a packet of that length.

pub mod fields;

use crate::frame::Frame;
use crate::link::Link;
use crate::packet::{Packet, Reject};
use crate::parse;
use fields::{COMMON_WORDS, IPV4_WORDS, IPV6_WORDS};
use zerocopy::FromZeros;

/// Maximum number of rules in a list.
pub const MAX_RULES: usize = 128;

/// A rule over `WORDS` words of fields: it is met if all bits in the mask have the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct MatchRule<const WORDS: usize> {
    /// Value of the bits in the mask; zero elsewhere.
    pub value: [u32; WORDS],
    /// Mask of the bits that are compared.
    pub mask: [u32; WORDS],
    /// Verdict: 1 if packets that meet the rule match the filter, else 0.
    pub verdict: u32,
}

/// Ordered rules: the first one that a packet meets decides.
#[derive(Clone, Debug, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct MatchRules<const WORDS: usize> {
    rules: [MatchRule<WORDS>; MAX_RULES],
    length: u32,
    /// Verdict on packets that meet no rule.
    otherwise: u32,
    /// Union of all masks: fields outside it need not be read.
    used: [u32; WORDS],
}

/// Rules of an expression for each kind of frame.
#[derive(Clone, Debug, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct Filter {
    /// IPv4 packets.
    pub ipv4: MatchRules<IPV4_WORDS>,
    /// IPv6 packets.
    pub ipv6: MatchRules<IPV6_WORDS>,
    /// Frames that carry neither.
    pub non_ip: MatchRules<COMMON_WORDS>,
    /// Frames whose network header is truncated or contradicts itself. The verdict is whether the
    /// expression can be true of such a frame.
    pub unreadable: MatchRules<COMMON_WORDS>,
}

impl<const WORDS: usize> MatchRules<WORDS> {
    /// Writes rules, and the verdict on packets that meet none of them. `None` if there are more
    /// than [`MAX_RULES`].
    #[must_use]
    pub fn write(&mut self, rules: &[MatchRule<WORDS>], otherwise: bool) -> Option<()> {
        self.rules.get_mut(..rules.len())?.copy_from_slice(rules);
        self.length = rules.len() as u32;
        self.otherwise = otherwise.into();
        self.used = [0; WORDS];
        for rule in rules {
            self.used.iter_mut().zip(rule.mask).for_each(|(used, mask)| *used |= mask);
        }
        Some(())
    }

    /// Returns the rules, in order.
    #[must_use]
    pub fn rules(&self) -> &[MatchRule<WORDS>] {
        self.rules.get(..self.length as usize).unwrap_or(&self.rules)
    }

    /// Returns whether packets that meet no rule match.
    #[must_use]
    pub fn otherwise(&self) -> bool {
        self.otherwise != 0
    }

    /// Returns whether any rule looks at a word.
    #[inline(always)]
    fn uses<const WORD: usize>(&self) -> bool {
        self.used.get(WORD).is_some_and(|used| *used != 0)
    }

    /// Returns the verdict on a packet with these fields.
    #[inline(always)]
    #[must_use]
    pub fn decide(&self, fields: &[u32; WORDS]) -> bool {
        for rule in self.rules() {
            let mut difference = 0;
            for ((field, value), mask) in fields.iter().zip(&rule.value).zip(&rule.mask) {
                difference |= (field ^ value) & mask;
            }
            if difference == 0 {
                return rule.verdict != 0;
            }
        }
        self.otherwise()
    }
}

impl Filter {
    /// Returns whether a frame matches. Frames that do not are counted as
    /// [unmatched](crate::Counters::unmatched), and nothing else.
    #[inline(always)]
    #[must_use]
    pub fn matches<F: Frame + ?Sized>(
        &self,
        headers: parse::Settings,
        link: Link,
        frame: &F,
        wire_length: u32,
    ) -> bool {
        let packet = match parse::plain(frame, link, headers) {
            Some(packet) => Ok(packet),
            None => parse::any(frame, link, headers),
        };
        match packet {
            Ok(packet @ Packet::V4(ip)) => {
                let common =
                    fields::frame(frame, link, wire_length, self.ipv4.uses::<{ fields::FRAME }>());
                let [protocol, ports] = self.ipv4.transport(frame, &packet);
                let [src, dst] = [ip.src(), ip.dst()].map(u32::from_be_bytes);
                self.ipv4.decide(&[common, protocol, ports, src, dst])
            }
            Ok(packet @ Packet::V6(ip)) => {
                let common =
                    fields::frame(frame, link, wire_length, self.ipv6.uses::<{ fields::FRAME }>());
                let [protocol, ports] = self.ipv6.transport(frame, &packet);
                let [s0, s1, s2, s3] = ip.src().map(u32::from_be_bytes);
                let [d0, d1, d2, d3] = ip.dst().map(u32::from_be_bytes);
                self.ipv6.decide(&[common, protocol, ports, s0, s1, s2, s3, d0, d1, d2, d3])
            }
            Err(reject) => self.matches_rejected(link, frame, wire_length, reject),
        }
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    #[cfg_attr(not(target_arch = "bpf"), inline(never))]
    fn matches_rejected<F: Frame + ?Sized>(
        &self,
        link: Link,
        frame: &F,
        wire_length: u32,
        reject: Reject,
    ) -> bool {
        let common = fields::frame(frame, link, wire_length, true);
        match reject {
            Reject::NonIp(_) => self.non_ip.decide(&[common]),
            Reject::Truncated | Reject::BadHeader => self.unreadable.decide(&[common]),
        }
    }
}

impl<const WORDS: usize> MatchRules<WORDS> {
    /// Returns the words of the transport header; zeros if no rule uses them.
    #[inline(always)]
    fn transport<F: Frame + ?Sized>(&self, frame: &F, packet: &Packet<'_>) -> [u32; 2] {
        if self.uses::<{ fields::PROTOCOL }>() || self.uses::<{ fields::PORTS }>() {
            fields::transport(frame, packet)
        } else {
            [0; 2]
        }
    }
}
