//! Filter: layout of fields, order of rules, and frames without an IP header.

use crate::common::Random;
use flowgauge_core::filter::fields::{
    ADDRESSES, FLAGS_SHIFT, FRAME, HAS_FLAGS, HAS_PORTS, LENGTH_MASK, PORTS, PROTOCOL,
    PROTOCOL_SHIFT, TAGGED, VLAN_MASK, VLAN_SHIFT,
};
use flowgauge_core::filter::{MAX_RULES, MatchRule, MatchRules, PacketFilter as _};
use flowgauge_core::{Filter, Link, Zeroed, parse};
use flowgauge_traffic::frame::Ip;
use zerocopy::FromZeros;

/// Ethernet frame of IPv4 with this protocol, fragment word and transport header.
fn ipv4(protocol: u8, fragment: u16, transport: &[u8]) -> Vec<u8> {
    Ip { fragment, ..Ip::new([10, 0, 0, 1], [10, 0, 0, 2], protocol) }.frame(transport)
}

fn rule<const WORDS: usize>(word: usize, mask: u32, value: u32, verdict: u32) -> MatchRule<WORDS> {
    let mut rule = MatchRule { value: [0; WORDS], mask: [0; WORDS], verdict };
    (rule.value[word], rule.mask[word]) = (value, mask);
    rule
}

/// Filter whose IPv4 packets match if this word has the value under the mask.
fn filter(word: usize, mask: u32, value: u32) -> Box<Filter> {
    let mut filter = Filter::boxed();
    filter.ipv4.write(&[rule(word, mask, value, 1)], false).unwrap();
    filter
}

fn matches(filter: &Filter, frame: &[u8]) -> bool {
    filter.matches(parse::Settings::DEFAULT, Link::Ethernet, frame, frame.len() as u32)
}

#[test]
fn the_first_rule_decides_and_others_are_for_packets_that_meet_none() {
    let mut rules = MatchRules::<1>::new_zeroed();
    let three = [rule(0, 0xf, 1, 0), rule(0, 0xff, 0x21, 1), rule(0, 0xf0, 0x20, 1)];
    rules.write(&three, false).unwrap();
    let verdicts = [0x21, 0x22, 0x31, 0x30].map(|field| rules.decide(&[field]));
    assert_eq!(verdicts, [false, true, false, false]);
    rules.write(&[], true).unwrap();
    assert!(rules.decide(&[0x21]));
    assert_eq!(rules.write(&[rule(0, 0, 0, 1); MAX_RULES + 1], true), None);
    rules.write(&[rule(0, 1, 1, 0); MAX_RULES], true).unwrap();
    assert_eq!([0, 1].map(|field| rules.decide(&[field])), [true, false]);
}

/// Returns the verdict by going through the rules one by one.
fn one_by_one<const WORDS: usize>(rules: &MatchRules<WORDS>, fields: &[u32; WORDS]) -> bool {
    let meets = |rule: &&MatchRule<WORDS>| {
        (0..WORDS).all(|word| (fields[word] ^ rule.value[word]) & rule.mask[word] == 0)
    };
    rules.rules().iter().find(meets).map_or(rules.otherwise(), |rule| rule.verdict != 0)
}

#[test]
fn sets_of_rules_give_the_verdicts_of_rules_one_by_one() {
    let mut numbers = Random(44);
    let mut random = || numbers.next() as u32;
    let mut rules = MatchRules::<5>::new_zeroed();
    for length in [0, 1, 2, 63, 64, 65, 127, MAX_RULES].into_iter().cycle().take(64) {
        let mut written = Vec::new();
        for _ in 0..length {
            let mut rule = MatchRule { value: [0; 5], mask: [0; 5], verdict: random() & 1 };
            // Few values and bits, so that packets meet rules.
            for word in 0..5 {
                rule.mask[word] = random() & random() & 0x0303_0303;
                rule.value[word] = random() & rule.mask[word];
            }
            written.push(rule);
        }
        // A prefix, whose mask ends in any bit.
        if let Some(rule) = written.first_mut() {
            rule.mask[3] = u32::MAX << (random() % 32);
            rule.value[3] = 0x0101_0101 & rule.mask[3];
        }
        rules.write(&written, random() & 1 == 0).unwrap();
        assert_eq!(rules.rules(), written);
        let mut verdicts = [0; 2];
        for _ in 0..2000 {
            let fields: [u32; 5] = std::array::from_fn(|_| random() & 0x0303_0303);
            let verdict = one_by_one(&rules, &fields);
            assert_eq!(rules.decide(&fields), verdict, "{length} rules, {fields:08x?}");
            verdicts[usize::from(verdict)] += 1;
        }
        assert!(length == 0 || verdicts.iter().sum::<u32>() == 2000);
    }
}

#[test]
fn fingerprints_differ_where_rules_do() {
    let of = |word, mask, value| filter(word, mask, value).fingerprint();
    let one = of(PORTS, 0xffff, 53);
    assert_eq!(one, of(PORTS, 0xffff, 53));
    let others = [of(PORTS, 0xffff, 54), of(PORTS, 0xff, 53), of(PROTOCOL, 0xffff, 53)];
    assert!(others.iter().all(|other| *other != one));
    let mut all = Filter::boxed();
    assert!(!matches(&all, &ipv4(6, 0, &[0; 20])));
    let none = all.fingerprint();
    all.admit_all();
    assert_ne!(all.fingerprint(), none);
    assert!(matches(&all, &ipv4(6, 0, &[0; 20])) && matches(&all, &[]));
}

#[test]
fn fields_are_where_the_layout_says() {
    let segment = [0x01, 0xbb, 0x30, 0x39, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x12, 0, 0, 0, 0, 0, 0];
    let frame = ipv4(6, 0, &segment);
    for (word, value) in [
        (FRAME, frame.len() as u32),
        (PROTOCOL, 6 << PROTOCOL_SHIFT | 0x12 << FLAGS_SHIFT | HAS_FLAGS | HAS_PORTS),
        (PORTS, 443 << 16 | 12345),
        (ADDRESSES, 0x0a00_0001),
        (ADDRESSES + 1, 0x0a00_0002),
    ] {
        assert!(matches(&filter(word, u32::MAX, value), &frame), "word {word}");
        assert!(!matches(&filter(word, u32::MAX, value ^ 1), &frame), "word {word}");
    }
}

#[test]
fn what_was_not_captured_is_not_there() {
    let segment = [1; 20];
    for (name, protocol, fragment, captured, expected) in [
        ("TCP", 6, 0, 20, [true, true]),
        ("TCP without flags", 6, 0, 13, [true, false]),
        ("TCP without ports", 6, 0, 3, [false, false]),
        ("first fragment", 6, 0x2000, 20, [true, true]),
        ("later fragment", 6, 1, 20, [false, false]),
        ("UDP", 17, 0, 20, [true, false]),
        ("SCTP", 132, 0, 20, [true, false]),
        ("UDP-Lite, as in pcap-filter", 136, 0, 20, [false, false]),
    ] {
        let frame = &ipv4(protocol, fragment, &segment)[..34 + captured];
        let has = [HAS_PORTS, HAS_FLAGS].map(|bit| matches(&filter(PROTOCOL, bit, bit), frame));
        assert_eq!(has, expected, "{name}");
    }
}

#[test]
fn a_vlan_id_is_that_of_the_outermost_tag_on_any_link_with_an_ethertype() {
    let tag = [0x81, 0, 0xe0, 10];
    let inner = [0x88, 0xa8, 0, 20];
    let is_tagged = filter(FRAME, TAGGED | VLAN_MASK << VLAN_SHIFT, TAGGED | 10 << VLAN_SHIFT);
    let plain = ipv4(17, 0, &[0; 8]);
    let packet = &plain[12..];
    for (link, before) in [(Link::Ethernet, 12), (Link::LinuxSll, 14), (Link::EtherType, 0)] {
        let decide = |tags: &[&[u8]]| {
            let frame = [&vec![0_u8; before][..], &tags.concat(), packet].concat();
            is_tagged.matches(parse::Settings::DEFAULT, link, frame.as_slice(), 100)
        };
        assert!(decide(&[&tag]), "{link:?}");
        assert!(decide(&[&tag, &inner]), "{link:?}");
        assert!(!decide(&[&inner, &tag]), "{link:?}");
        assert!(!decide(&[]), "{link:?}");
    }
}

#[test]
fn rejected_frames_have_lists_of_their_own() {
    let mut arp = vec![0; 60];
    arp[12..14].copy_from_slice(&[8, 6]);
    let truncated = ipv4(6, 0, &[])[..20].to_vec();
    let verdicts = |filter: &Filter| [&arp, &truncated].map(|frame| matches(filter, frame));
    let mut filter = Filter::boxed();
    assert_eq!(verdicts(&filter), [false, false]);
    filter.non_ip.write(&[], true).unwrap();
    assert_eq!(verdicts(&filter), [true, false]);
    filter.unreadable.write(&[rule(FRAME, LENGTH_MASK, 20, 1)], false).unwrap();
    assert_eq!(verdicts(&filter), [true, true]);
}

#[test]
fn rules_as_bytes_of_a_frame_give_the_verdicts_of_rules_over_fields() {
    let mut numbers = Random(45);
    let mut random = || (numbers.next() >> 32) as u32;
    let parts: [(usize, u32); 9] = [
        (FRAME, TAGGED | VLAN_MASK << VLAN_SHIFT),
        (FRAME, LENGTH_MASK),
        (PROTOCOL, 0xff << PROTOCOL_SHIFT),
        (PROTOCOL, HAS_FLAGS | 0xff << FLAGS_SHIFT),
        (PROTOCOL, HAS_PORTS),
        (PORTS, 0xffff),
        (PORTS, 0xffff_0000),
        (ADDRESSES, 0xff),
        (ADDRESSES + 1, 0xffff_ffff),
    ];
    let (mut verdicts, mut filter) = ([0; 2], Filter::boxed());
    for round in 0..3000 {
        let mut rules = vec![MatchRule { value: [0; 5], mask: [0; 5], verdict: 0 }; 1 + round % 8];
        for rule in &mut rules {
            rule.verdict = random() & 1;
            for (word, part) in parts {
                // Few bits and values, so that packets meet rules.
                let is_compared = random() % 8 == 0 || (word >= ADDRESSES && random() % 2 == 0);
                let of_protocol = [1, 6, 17, 132][random() as usize % 4] << PROTOCOL_SHIFT;
                let value = match word {
                    PROTOCOL => of_protocol | (random() & 0x3) << FLAGS_SHIFT | random() & 3,
                    _ => (random() & 1) * 0x0001_0001,
                };
                if is_compared {
                    let mask = part & if random() % 4 == 0 { random() | 3 } else { u32::MAX };
                    rule.mask[word] |= mask;
                    rule.value[word] |= value & mask;
                }
            }
        }
        filter.ipv4.write(&rules, round % 3 == 0).unwrap();
        for _ in 0..32 {
            let protocol = [1, 6, 17, 132][random() as usize % 4];
            let fragment = [0, 0, 0, 0x4000, 0x2000, 0x2001, 7][random() as usize % 7];
            let mut transport = [0; 20];
            for (at, mask) in [(1, 1), (3, 1), (13, 3)] {
                transport[at] = (random() & mask) as u8;
            }
            let mut frame = ipv4(protocol, fragment, &transport);
            frame[26..34].copy_from_slice(&[0, 1, 0, (random() & 1) as u8, 0, 1, 0, 1]);
            frame.truncate([54, 54, 54, 48, 47, 38, 37, 34][random() as usize % 8]);
            let (bytes, length) = (frame.as_slice(), frame.len() as u32);
            let packet = parse::network(bytes, Link::Ethernet);
            let ip = parse::plain_ipv4(bytes).unwrap();
            let expected = (&*filter).admits(Link::Ethernet, bytes, &packet, length);
            let found = (&*filter).admits_plain(bytes, ip, length);
            assert_eq!(found, expected, "{rules:x?} {frame:x?}");
            verdicts[usize::from(expected)] += 1;
        }
    }
    assert!(verdicts.iter().all(|times| *times > 10_000), "{verdicts:?}");
}
