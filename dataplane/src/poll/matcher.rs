//! Filter of a worker: the rules of plain IPv4 packets over bytes at constant offsets of a frame.
//!
//! A few rules are compared one by one. For more there is a table for each byte that any rule
//! compares: the rules that each value of the byte satisfies, a bit each, the first one in the
//! lowest bit. The intersection of the sets of a packet's bytes has the rules that it meets, and
//! the lowest bit decides, so that 64 rules cost as much as five. Rules over fields that are no
//! bytes of the frame are left to the [`Filter`].

use flowgauge_core::filter::fields::{
    ADDRESSES, FLAGS_SHIFT, FRAME, HAS_FLAGS, HAS_PORTS, IPV4_WORDS, LENGTH_MASK, PORTS, PROTOCOL,
    PROTOCOL_SHIFT,
};
use flowgauge_core::filter::{MatchRule, MatchRules, PacketFilter};
use flowgauge_core::packet::{Ipv4, Packet, Reject};
use flowgauge_core::{Filter, Frame, Link};
use std::array;
use std::sync::Arc;

/// First byte of a frame that rules compare, and number of bytes: up to the TCP flags, in whole
/// words.
const START: usize = 16;
const BYTES: usize = 32;
/// Positions in these bytes.
const FRAGMENT_AT: usize = 4;
/// Bits of the fragment offset. Only the first fragment has a transport header.
const FRAGMENT_OFFSET: u16 = 0x1fff;
const PROTOCOL_AT: usize = 7;
const SRC_AT: usize = 10;
const DST_AT: usize = 14;
const PORTS_AT: usize = 18;
const FLAGS_AT: usize = 31;

/// Maximum number of rules that are compared one by one. The cost of sets does not rise with their
/// number.
const MAX_COMPARED: usize = 4;
/// Words of these bytes.
const WORDS: usize = BYTES / size_of::<u64>();
/// Values of a byte.
const VALUES: usize = 1 << u8::BITS;

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// A filter, prepared for plain IPv4 packets.
pub struct Matcher {
    pub(super) filter: Arc<Filter>,
    /// `None` if some rule compares what is not a byte of the frame.
    rules: Option<PlainRules>,
}

/// Rules of plain packets, in one of two forms.
struct PlainRules {
    /// A few.
    compared: Vec<WordRule>,
    /// Any number, up to 64 in each item.
    sets: Vec<RuleSets>,
    /// Whether packets that meet no rule match.
    otherwise: bool,
}

/// A rule over words in the byte order of this machine.
struct WordRule {
    value: [u64; WORDS],
    mask: [u64; WORDS],
    verdict: bool,
}

impl WordRule {
    #[inline(always)]
    fn is_met(&self, words: &[u64; WORDS]) -> bool {
        let compared = words.iter().zip(&self.value).zip(&self.mask);
        compared.fold(0, |difference, ((word, value), mask)| difference | (word ^ value) & mask)
            == 0
    }
}

/// Returns bytes of a frame, or of a rule over them, as words.
#[inline(always)]
fn words(bytes: &[u8; BYTES]) -> [u64; WORDS] {
    let (words, _) = bytes.as_chunks();
    array::from_fn(|at| u64::from_ne_bytes(words[at]))
}

/// Up to 64 rules as sets.
struct RuleSets {
    /// Rules that each protocol satisfies: in first fragments, and in later ones.
    protocols: [[u64; VALUES]; 2],
    bytes: Vec<ByteSets>,
    /// Rules by which packets match.
    positive: u64,
}

/// Rules that the values of a byte of addresses, ports or TCP flags satisfy.
struct ByteSets {
    at: usize,
    sets: [u64; VALUES],
}

impl Matcher {
    /// Prepares a filter. This takes up to some milliseconds, so workers share the result.
    #[must_use]
    pub fn new(filter: Arc<Filter>) -> Arc<Self> {
        Arc::new(Matcher { rules: PlainRules::new(&filter.ipv4), filter })
    }
}

impl PacketFilter for &Matcher {
    #[inline(always)]
    fn admits<F: Frame + ?Sized>(
        self,
        link: Link,
        frame: &F,
        packet: &Result<Packet<'_>, Reject>,
        wire_length: u32,
    ) -> bool {
        (&*self.filter).admits(link, frame, packet, wire_length)
    }

    #[inline(always)]
    fn admits_plain<F: Frame + ?Sized>(self, frame: &F, ip: Ipv4<'_>, wire_length: u32) -> bool {
        match (&self.rules, frame.bytes(START)) {
            (Some(rules), Some(found)) => rules.decide(found),
            _ => admits_others(&self.filter, frame, ip, wire_length),
        }
    }
}

/// Decides on a packet by the filter. Not inlined, to keep the code of other rules short.
#[inline(never)]
fn admits_others<F: Frame + ?Sized>(
    filter: &Filter,
    frame: &F,
    ip: Ipv4<'_>,
    wire_length: u32,
) -> bool {
    filter.admits(Link::Ethernet, frame, &Ok(Packet::V4(ip)), wire_length)
}

impl PlainRules {
    /// Returns the rules over bytes; `None` if some rule compares what is not a byte of the frame.
    fn new(rules: &MatchRules<IPV4_WORDS>) -> Option<Self> {
        let plain: Vec<PlainRule> =
            rules.rules().iter().map(PlainRule::new).collect::<Option<_>>()?;
        let mut compared: Vec<WordRule> = plain.iter().flat_map(PlainRule::by_protocol).collect();
        let mut sets = Vec::new();
        if compared.len() > MAX_COMPARED {
            sets.extend(plain.chunks(u64::BITS as usize).map(RuleSets::new));
            compared.clear();
        }
        Some(PlainRules { compared, sets, otherwise: rules.otherwise() })
    }

    /// Returns the verdict on a packet with these bytes.
    #[inline(always)]
    fn decide(&self, found: &[u8; BYTES]) -> bool {
        let words = words(found);
        for rule in &self.compared {
            if rule.is_met(&words) {
                return rule.verdict;
            }
        }
        for rules in &self.sets {
            if let Some(verdict) = rules.decide(found) {
                return verdict;
            }
        }
        self.otherwise
    }
}

impl RuleSets {
    fn new(rules: &[PlainRule]) -> Self {
        let select = |is_selected: &dyn Fn(&PlainRule) -> bool| {
            let selected = rules.iter().enumerate().filter(|(_, rule)| is_selected(rule));
            selected.fold(0, |set, (number, _)| set | 1 << number)
        };
        let bytes = (PROTOCOL_AT + 1..BYTES)
            .filter(|&at| rules.iter().any(|rule| rule.mask[at] != 0))
            .map(|at| ByteSets {
                at,
                sets: array::from_fn(|found| select(&|rule| rule.is_satisfied(at, found as u8))),
            });
        RuleSets {
            protocols: [false, true].map(|is_later| {
                array::from_fn(|found| select(&|rule| rule.is_possible(found as u8, is_later)))
            }),
            bytes: bytes.collect(),
            positive: select(&|rule| rule.verdict),
        }
    }

    /// Returns the verdict on a packet with these bytes; `None` if it meets no rule.
    #[inline(always)]
    fn decide(&self, found: &[u8; BYTES]) -> Option<bool> {
        let fragment = u16::from_be_bytes([found[FRAGMENT_AT], found[FRAGMENT_AT + 1]]);
        let [first, later] = &self.protocols;
        let protocols = if fragment & FRAGMENT_OFFSET == 0 { first } else { later };
        let mut met = protocols[usize::from(found[PROTOCOL_AT])];
        for ByteSets { at, sets } in &self.bytes {
            met &= sets[usize::from(found[at % BYTES])];
        }
        let decisive = met & met.wrapping_neg();
        (met != 0).then_some(decisive & self.positive != 0)
    }
}

/// A rule over bytes of plain packets.
struct PlainRule {
    value: [u8; BYTES],
    mask: [u8; BYTES],
    /// Protocols that have the fields that it compares, if not all do.
    protocols: Option<&'static [u8]>,
    /// Whether packets without a tag can meet it.
    is_untagged: bool,
    /// Whether packets that meet it match.
    verdict: bool,
}

impl PlainRule {
    /// Returns a rule over bytes; `None` if the rule compares what is not a byte of the frame.
    fn new(MatchRule { value, mask, verdict }: &MatchRule<IPV4_WORDS>) -> Option<Self> {
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
        let protocols: Option<&[u8]> = match (has(HAS_FLAGS), has(HAS_PORTS)) {
            (Some(_), _) => Some(&[TCP]),
            (None, Some(_)) => Some(&[TCP, UDP, SCTP]),
            (None, None) => None,
        };
        let fragment = if protocols.is_some() { FRAGMENT_OFFSET } else { 0 };
        // There is no tag, and the other bits are no fields.
        let fields = 0xff << PROTOCOL_SHIFT | flags | HAS_FLAGS | HAS_PORTS;
        let others = value[FRAME] & mask[FRAME] | value[PROTOCOL] & mask[PROTOCOL] & !fields;
        Some(PlainRule {
            value: bytes(value, 0),
            mask: bytes(mask, fragment),
            protocols,
            is_untagged: others == 0,
            verdict: *verdict != 0,
        })
    }

    /// Returns rules that are met by bytes alone: one of them by each packet that meets this rule.
    fn by_protocol(&self) -> Vec<WordRule> {
        let Some(protocols) = self.protocols else {
            let rule = self.is_untagged.then(|| self.over_words(self.value, self.mask));
            return rule.into_iter().collect();
        };
        let is_possible = |number: &&u8| self.is_possible(**number, false);
        let with = |number: &u8| {
            let (mut value, mut mask) = (self.value, self.mask);
            (value[PROTOCOL_AT], mask[PROTOCOL_AT]) = (*number, u8::MAX);
            self.over_words(value, mask)
        };
        protocols.iter().filter(is_possible).map(with).collect()
    }

    /// Returns a rule with the verdict of this one.
    fn over_words(&self, value: [u8; BYTES], mask: [u8; BYTES]) -> WordRule {
        WordRule { value: words(&value), mask: words(&mask), verdict: self.verdict }
    }

    /// Returns whether packets of a protocol can meet the rule.
    fn is_possible(&self, protocol: u8, is_later: bool) -> bool {
        self.is_untagged
            && self.is_satisfied(PROTOCOL_AT, protocol)
            && self.protocols.is_none_or(|protocols| !is_later && protocols.contains(&protocol))
    }

    fn is_satisfied(&self, at: usize, found: u8) -> bool {
        (found ^ self.value[at]) & self.mask[at] == 0
    }
}

/// Returns the words of a rule as bytes of the frame.
fn bytes(words: &[u32; IPV4_WORDS], fragment: u16) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[PROTOCOL_AT] = (words[PROTOCOL] >> PROTOCOL_SHIFT) as u8;
    bytes[FLAGS_AT] = (words[PROTOCOL] >> FLAGS_SHIFT) as u8;
    bytes[FRAGMENT_AT..][..2].copy_from_slice(&fragment.to_be_bytes());
    let words = [(SRC_AT, ADDRESSES), (DST_AT, ADDRESSES + 1), (PORTS_AT, PORTS)]
        .map(|(at, word)| (at, words[word]));
    for (at, word) in words {
        bytes[at..][..4].copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use flowgauge_core::filter::fields::TAGGED;
    use flowgauge_core::{Zeroed as _, parse};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use std::collections::BTreeMap;

    /// Generates random rules, which packets of few values often meet. `is_plain`: all of them
    /// compare bytes of plain packets.
    pub(in crate::poll) fn rules<const N: usize>(
        random: &mut ChaCha8Rng,
        length: usize,
        is_plain: bool,
    ) -> Vec<MatchRule<N>> {
        let mut rules = vec![MatchRule { value: [0; N], mask: [0; N], verdict: 0 }; length];
        for rule in &mut rules {
            let number = [1, 6, 17, 132][random.random_range(0..4)] << PROTOCOL_SHIFT;
            let flags = random.random_range(0..2) << FLAGS_SHIFT;
            rule.verdict = random.random_range(0..2);
            for (word, (value, mask)) in rule.value.iter_mut().zip(&mut rule.mask).enumerate() {
                let (parts, found) = match word {
                    FRAME if is_plain => ([TAGGED, 0, 0], 0),
                    FRAME => ([TAGGED, LENGTH_MASK, 0xff], [60, 64, 0xffff][length % 3]),
                    PROTOCOL => {
                        ([0xff << PROTOCOL_SHIFT, HAS_PORTS, HAS_FLAGS], number | flags | 3)
                    }
                    _ => ([0xff, 0xffff_0000, u32::MAX], random.random::<u32>() & 0x0001_0001),
                };
                for part in parts {
                    if random.random_ratio(1, 4) {
                        *mask |= part;
                    }
                    if !is_plain && random.random_ratio(1, 16) {
                        *mask |= part & random.random::<u32>();
                    }
                }
                *value = found & *mask;
            }
            if let (true, [_, protocol, ports, ..]) = (is_plain, &mut rule.mask[..]) {
                *protocol |= if *ports != 0 { HAS_PORTS } else { 0 };
                if *protocol & HAS_FLAGS != 0 && random.random() {
                    *protocol |= 0xff << FLAGS_SHIFT;
                }
                rule.value[PROTOCOL] = (number | flags | 3) & *protocol;
            } else if random.random_ratio(1, 8) && N > PROTOCOL {
                rule.value[PROTOCOL] ^= HAS_PORTS & rule.mask[PROTOCOL];
            }
        }
        rules
    }

    #[test]
    fn prepared_rules_give_the_verdicts_of_the_filter() {
        let mut random = ChaCha8Rng::seed_from_u64(5);
        let (mut verdicts, mut forms) = ([0; 2], BTreeMap::new());
        for round in 0..2000 {
            let length = [0, 1, 1, 1, 2, 3, 6, 7, 20, 63, 64, 65, 128][round % 13];
            let mut filter = Filter::boxed();
            let is_plain = random.random_ratio(3, 4);
            let rules = rules(&mut random, length, is_plain);
            filter.ipv4.write(&rules, random.random()).unwrap();
            let matcher = Matcher::new(Arc::from(filter));
            let form = matcher.rules.as_ref().map(|rules| (rules.compared.len(), rules.sets.len()));
            *forms.entry(form).or_insert(0) += 1;
            for _ in 0..32 {
                let mut frame = [0; 60];
                frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
                frame[17] = 46;
                frame[20..22].copy_from_slice(
                    &[[0, 0], [0, 0], [0x40, 0], [0x20, 0], [0x20, 1], [1, 0]]
                        [random.random_range(0..6)],
                );
                frame[23] = [1, 6, 17, 132][random.random_range(0..4)];
                frame[26..48].iter_mut().for_each(|byte| *byte = random.random_range(0..2));
                let bytes = &frame[..[34, 37, 38, 47, 48, 60, 60, 60][random.random_range(0..8)]];
                let wire_length = [60, 64, 65_535, 65_536, 1 << 20][random.random_range(0..5)];
                let packet = parse::network(bytes, Link::Ethernet);
                let expected =
                    (&*matcher.filter).admits(Link::Ethernet, bytes, &packet, wire_length);
                let ip = parse::plain_ipv4(bytes).unwrap();
                assert_eq!(
                    (&*matcher).admits_plain(bytes, ip, wire_length),
                    expected,
                    "{rules:x?} {bytes:x?}"
                );
                verdicts[usize::from(expected)] += 1;
            }
        }
        assert!(verdicts.iter().all(|times| *times > 10_000), "{verdicts:?}");
        for form in [
            None,
            Some((0, 0)),
            Some((1, 0)),
            Some((2, 0)),
            Some((3, 0)),
            Some((0, 1)),
            Some((0, 2)),
        ] {
            assert!(forms.get(&form).is_some_and(|times| *times > 30), "{form:?} {forms:?}");
        }
    }
}
