//! Filter: the packets that are counted at all, as ordered lists of value/mask rules.
//!
//! The controller translates an expression (`--match`) into rules over the header fields that the
//! parser finds: the same header that defines a flow, behind VLAN tags and other encapsulations,
//! and with [`parse::Settings::INNER`] the innermost one. [`fields`] lays the fields out as words.
//! The first rule that a packet meets decides; the list has a verdict on packets that meet none.
//! Each rule is an entry of a ternary table, so that a switch can have the same lists in TCAM.
//!
//! Workers and the kernel compare a few rules with the bytes of plain IPv4 packets, and do not go
//! through the rules otherwise. [`MatchRules::write`] finds, for each byte of the words and each value
//! of it, the set of the rules that the value satisfies. The intersection of the sets of a packet's
//! bytes has the rules that the packet meets. A packet costs one load for each byte that any rule
//! compares, however many rules there are.
//!
//! There is a list for IPv4, one for IPv6, and one for frames that have neither. A frame whose
//! network header is truncated or damaged has no fields to match: the list for it says whether the
//! expression can be true of a packet of that length.

pub mod fields;
pub mod plain;

use crate::frame::Frame;
use crate::link::Link;
use crate::packet::{Ipv4, Packet, Reject};
use crate::parse;
use core::ops::BitAnd;
use fields::{COMMON_WORDS, IPV4_WORDS, IPV6_WORDS, MatchFields};
use plain::ByteRules;
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

impl<const WORDS: usize> MatchRule<WORDS> {
    /// Returns the rule, if there are as many words as IPv4 has.
    fn of_ipv4(&self) -> Option<MatchRule<IPV4_WORDS>> {
        let MatchRule { value, mask, verdict } = self;
        let (value, mask) = (value.as_slice().try_into().ok()?, mask.as_slice().try_into().ok()?);
        Some(MatchRule { value, mask, verdict: *verdict })
    }
}

/// Set of rules of a list: a bit each, the first rule in the lowest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromZeros)]
#[repr(C)]
struct RuleSet {
    low: u64,
    high: u64,
}

impl RuleSet {
    /// Adds a rule.
    fn insert(&mut self, rule: usize) {
        let bit = 1 << (rule % 64);
        if rule < 64 { self.low |= bit } else { self.high |= bit }
    }
}

impl BitAnd for RuleSet {
    type Output = RuleSet;

    #[inline(always)]
    fn bitand(self, other: RuleSet) -> RuleSet {
        RuleSet { low: self.low & other.low, high: self.high & other.high }
    }
}

/// Parameters of FNV-1a with 64 bits.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// Bytes of a word, and values of a byte.
const WORD_BYTES: usize = size_of::<u32>();
const BYTE_VALUES: usize = 1 << u8::BITS;

/// Ordered rules: the first one that a packet meets decides.
#[derive(Clone, Debug, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct MatchRules<const WORDS: usize> {
    /// Rules that each value of each byte of the words satisfies; the lowest byte of a word first.
    satisfied: [[[RuleSet; BYTE_VALUES]; WORD_BYTES]; WORDS],
    /// All rules, and those by which a packet matches.
    all: RuleSet,
    positive: RuleSet,
    /// Verdict on packets that meet no rule.
    otherwise: u32,
    length: u32,
    /// Union of all masks: fields outside it need not be read.
    used: [u32; WORDS],
    rules: [MatchRule<WORDS>; MAX_RULES],
    /// The same rules as bytes of a frame, for IPv4.
    plain: ByteRules,
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

/// Decides which frames are counted, once they are parsed.
pub trait PacketFilter: Copy {
    /// Returns whether a frame is counted. Others are only added up as
    /// [unmatched](crate::Counters::unmatched).
    fn admits<F: Frame + ?Sized>(
        self,
        link: Link,
        frame: &F,
        packet: &Result<Packet<'_>, Reject>,
        wire_length: u32,
    ) -> bool;

    /// As [`admits`](Self::admits), for [plain IPv4](parse::plain_ipv4).
    fn admits_plain<F: Frame + ?Sized>(self, frame: &F, ip: Ipv4<'_>, wire_length: u32) -> bool;
}

/// No filter: every frame is counted, without a test.
#[derive(Clone, Copy, Debug)]
pub struct EveryPacket;

impl PacketFilter for EveryPacket {
    #[inline(always)]
    fn admits<F: Frame + ?Sized>(
        self,
        _: Link,
        _: &F,
        _: &Result<Packet<'_>, Reject>,
        _: u32,
    ) -> bool {
        true
    }

    #[inline(always)]
    fn admits_plain<F: Frame + ?Sized>(self, _: &F, _: Ipv4<'_>, _: u32) -> bool {
        true
    }
}

impl PacketFilter for &Filter {
    #[inline(always)]
    fn admits<F: Frame + ?Sized>(
        self,
        link: Link,
        frame: &F,
        packet: &Result<Packet<'_>, Reject>,
        wire_length: u32,
    ) -> bool {
        self.decide(frame, packet, || fields::frame(frame, link, wire_length))
    }

    #[inline(always)]
    fn admits_plain<F: Frame + ?Sized>(self, frame: &F, ip: Ipv4<'_>, wire_length: u32) -> bool {
        match self.decide_plain(frame) {
            Some(verdict) => verdict,
            None => self.admits(Link::Ethernet, frame, &Ok(Packet::V4(ip)), wire_length),
        }
    }
}

impl<const WORDS: usize> MatchRules<WORDS> {
    /// Writes rules, and the verdict on packets that meet none of them. `None` if there are more
    /// than [`MAX_RULES`].
    #[must_use]
    pub fn write(&mut self, rules: &[MatchRule<WORDS>], otherwise: bool) -> Option<()> {
        self.rules.get_mut(..rules.len())?.copy_from_slice(rules);
        if WORDS == IPV4_WORDS {
            self.plain.write(rules.iter().filter_map(MatchRule::of_ipv4), otherwise);
        }
        self.length = rules.len() as u32;
        self.otherwise = otherwise.into();
        self.used = [0; WORDS];
        (self.all, self.positive) = (RuleSet { low: 0, high: 0 }, RuleSet { low: 0, high: 0 });
        self.satisfied.as_flattened_mut().as_flattened_mut().fill(self.all);
        for (number, rule) in rules.iter().enumerate() {
            self.all.insert(number);
            if rule.verdict != 0 {
                self.positive.insert(number);
            }
            self.used.iter_mut().zip(rule.mask).for_each(|(used, mask)| *used |= mask);
            let bytes =
                rule.value.iter().zip(&rule.mask).flat_map(|(value, mask)| {
                    value.to_le_bytes().into_iter().zip(mask.to_le_bytes())
                });
            for (sets, (value, mask)) in self.satisfied.as_flattened_mut().iter_mut().zip(bytes) {
                let satisfies = |(found, _): &(u8, &mut RuleSet)| (found ^ value) & mask == 0;
                (0..=u8::MAX).zip(sets).filter(satisfies).for_each(|(_, set)| set.insert(number));
            }
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

    /// Returns the verdict on a packet with these fields.
    #[inline(always)]
    #[must_use]
    pub fn decide(&self, fields: &[u32; WORDS]) -> bool {
        let mut met = self.all;
        for (word, field) in fields.iter().enumerate() {
            if self.uses(word) {
                met = met & self.satisfied(word, *field);
            }
        }
        self.verdict(met)
    }

    /// Adds the rules to an FNV-1a hash, word by word.
    fn add_to(&self, number: u64) -> u64 {
        let words = self.rules().iter().flat_map(|rule| {
            rule.value.iter().chain(&rule.mask).chain(core::iter::once(&rule.verdict))
        });
        [self.length, self.otherwise]
            .iter()
            .chain(words)
            .fold(number, |number, word| (number ^ u64::from(*word)).wrapping_mul(FNV_PRIME))
    }

    /// Returns whether any rule compares some of these bits of a word.
    #[inline(always)]
    fn compares(&self, word: usize, bits: u32) -> bool {
        self.used.get(word).is_some_and(|used| *used & bits != 0)
    }

    /// Returns whether any rule compares a word.
    #[inline(always)]
    fn uses(&self, word: usize) -> bool {
        self.compares(word, u32::MAX)
    }

    /// Returns the rules that a word satisfies. Bytes that no rule compares cost a test.
    #[inline(always)]
    fn satisfied(&self, word: usize, field: u32) -> RuleSet {
        let mut met = self.all;
        let (Some(used), Some(bytes)) = (self.used.get(word), self.satisfied.get(word)) else {
            return met;
        };
        for (byte, sets) in bytes.iter().enumerate() {
            let shift = byte as u32 * u8::BITS;
            if used >> shift & 0xff != 0
                && let Some(set) = sets.get((field >> shift & 0xff) as usize)
            {
                met = met & *set;
            }
        }
        met
    }

    /// Returns the verdict of the first of these rules, or that of the list if there is none.
    #[inline(always)]
    fn verdict(&self, met: RuleSet) -> bool {
        let first = |set: u64| set & set.wrapping_neg();
        if met.low != 0 {
            first(met.low) & self.positive.low != 0
        } else if met.high != 0 {
            first(met.high) & self.positive.high != 0
        } else {
            self.otherwise()
        }
    }

    /// Returns the verdict on a packet. MatchFields that no rule compares are not read.
    #[inline(always)]
    fn decide_packet<F: Frame + ?Sized>(
        &self,
        frame: &F,
        packet: &Packet<'_>,
        common: impl FnOnce() -> u32,
        addresses: impl IntoIterator<Item = [u8; 4]>,
    ) -> bool {
        let mut met = self.all;
        if self.uses(fields::FRAME) {
            met = met & self.satisfied(fields::FRAME, common());
        }
        if self.uses(fields::PROTOCOL) || self.uses(fields::PORTS) {
            let [protocol, ports] = fields::transport(frame, packet);
            met = met & self.satisfied(fields::PROTOCOL, protocol);
            met = met & self.satisfied(fields::PORTS, ports);
        }
        for (number, address) in addresses.into_iter().enumerate() {
            let word = fields::ADDRESSES + number;
            if self.uses(word) {
                met = met & self.satisfied(word, u32::from_be_bytes(address));
            }
        }
        self.verdict(met)
    }
}

impl Filter {
    /// Makes the filter admit every frame.
    pub fn admit_all(&mut self) {
        let Filter { ipv4, ipv6, non_ip, unreadable } = self;
        let written = [
            ipv4.write(&[], true),
            ipv6.write(&[], true),
            non_ip.write(&[], true),
            unreadable.write(&[], true),
        ];
        debug_assert!(written.iter().all(Option::is_some), "no rules fit");
    }

    /// Returns a number that is equal for equal rules, and different for others but by chance.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let Filter { ipv4, ipv6, non_ip, unreadable } = self;
        let number = ipv6.add_to(ipv4.add_to(FNV_OFFSET));
        unreadable.add_to(non_ip.add_to(number))
    }

    /// Returns whether any rule compares a VLAN tag.
    #[must_use]
    pub fn compares_vlan(&self) -> bool {
        const TAG: u32 = fields::TAGGED | fields::VLAN_MASK << fields::VLAN_SHIFT;
        let Filter { ipv4, ipv6, non_ip, unreadable } = self;
        ipv4.compares(fields::FRAME, TAG)
            || ipv6.compares(fields::FRAME, TAG)
            || non_ip.compares(fields::FRAME, TAG)
            || unreadable.compares(fields::FRAME, TAG)
    }

    /// Returns whether a frame matches, as its packet is found by [`parse::counted`].
    #[inline(always)]
    #[must_use]
    pub fn matches<F: Frame + ?Sized>(
        &self,
        headers: parse::Settings,
        link: Link,
        frame: &F,
        wire_length: u32,
    ) -> bool {
        self.admits(link, frame, &parse::counted(frame, link, &headers), wire_length)
    }

    /// Returns whether [plain IPv4](parse::plain_ipv4) matches, if the rules of such packets are few
    /// and compare bytes at constant offsets.
    #[inline(always)]
    #[must_use]
    pub fn decide_plain<F: Frame + ?Sized>(&self, frame: &F) -> Option<bool> {
        self.ipv4.plain.decide(frame.words(plain::START)?)
    }

    /// Returns whether a frame with these fields matches.
    #[inline(always)]
    #[must_use]
    pub fn decide_fields(&self, fields: &MatchFields) -> bool {
        let MatchFields { rules, words } = fields;
        let [first, ..] = *words;
        match *rules {
            MatchFields::OF_IPV4 => self.ipv4.decide(&fields.ipv4()),
            MatchFields::OF_IPV6 => self.ipv6.decide(words),
            MatchFields::OF_NON_IP => self.non_ip.decide(&[first]),
            _ => self.unreadable.decide(&[first]),
        }
    }

    /// Returns whether a parsed frame matches. `common` returns the word [`fields::FRAME`].
    #[inline(always)]
    fn decide<F: Frame + ?Sized>(
        &self,
        frame: &F,
        packet: &Result<Packet<'_>, Reject>,
        common: impl FnOnce() -> u32,
    ) -> bool {
        match packet {
            Ok(packet @ Packet::V4(ip)) => {
                self.ipv4.decide_packet(frame, packet, common, [ip.src(), ip.dst()])
            }
            Ok(packet @ Packet::V6(ip)) => {
                let addresses = ip.src().into_iter().chain(ip.dst());
                self.ipv6.decide_packet(frame, packet, common, addresses)
            }
            Err(Reject::NonIp(_)) => self.non_ip.decide(&[common()]),
            Err(Reject::Truncated | Reject::BadHeader) => self.unreadable.decide(&[common()]),
        }
    }
}
