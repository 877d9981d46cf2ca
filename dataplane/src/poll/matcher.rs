//! Filter of a worker: the rules of plain IPv4 packets over bytes at constant offsets of a frame.
//!
//! A few rules are compared one by one. For more there is a table for each byte that any rule
//! compares: the rules that each value of the byte satisfies, a bit each, the first one in the
//! lowest bit. The intersection of the sets of a packet's bytes has the rules that it meets, and
//! the lowest bit decides, so that 64 rules cost as much as five. Rules over fields that are no
//! bytes of the frame are left to the [`Filter`].

use flowgauge_core::filter::fields::IPV4_WORDS;
use flowgauge_core::filter::plain::{
    BYTES, ByteRule, FRAGMENT_AT, FRAGMENT_OFFSET, PROTOCOL_AT, PlainRule, START,
};
use flowgauge_core::filter::{MatchRules, PacketFilter};
use flowgauge_core::frame::words;
use flowgauge_core::packet::{Ipv4, Packet, Reject};
use flowgauge_core::{Filter, Frame, Link};
use std::array;
use std::sync::Arc;

/// Maximum number of rules that are compared one by one. The cost of sets does not rise with their
/// number.
const MAX_COMPARED: usize = 4;
/// Values of a byte.
const VALUES: usize = 1 << u8::BITS;

/// A filter, prepared for plain IPv4 packets.
pub struct Matcher {
    pub(super) filter: Arc<Filter>,
    /// `None` if some rule compares what is not a byte of the frame.
    rules: Option<PlainRules>,
}

/// Rules of plain packets, in one of two forms.
struct PlainRules {
    /// A few.
    compared: Vec<ByteRule>,
    /// Any number, up to 64 in each item.
    sets: Vec<RuleSets>,
    /// Whether packets that meet no rule match.
    otherwise: bool,
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
        let mut compared: Vec<ByteRule> = plain.iter().flat_map(PlainRule::by_protocol).collect();
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
                return rule.verdict();
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
            .filter(|&at| rules.iter().any(|rule| rule.compares(at)))
            .map(|at| ByteSets {
                at,
                sets: array::from_fn(|found| select(&|rule| rule.is_satisfied(at, found as u8))),
            });
        RuleSets {
            protocols: [false, true].map(|is_later| {
                array::from_fn(|found| select(&|rule| rule.is_possible(found as u8, is_later)))
            }),
            bytes: bytes.collect(),
            positive: select(&PlainRule::verdict),
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use flowgauge_core::filter::MatchRule;
    use flowgauge_core::filter::fields::{
        FLAGS_SHIFT, FRAME, HAS_FLAGS, HAS_PORTS, LENGTH_MASK, PROTOCOL, PROTOCOL_SHIFT, TAGGED,
    };
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
