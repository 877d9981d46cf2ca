use super::*;
use crate::reader::{ParsedPacket, read};
use crate::tests::segments;
use flowgauge_testing::chance::binomial;
use std::collections::{BTreeMap, HashSet};

fn profile(text: &str) -> ReorderProfile {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn traffic(text: &str) -> (Vec<(u64, ParsedPacket)>, Vec<PrefixTruth>) {
    let mut packets = Vec::new();
    let mut traffic = ReorderTraffic::new(profile(text));
    while let Some((at, frame)) = traffic.advance() {
        packets.push((at, read(frame)));
    }
    assert_eq!(segments(&packets).count(), packets.len(), "{text}");
    (packets, traffic.truth().to_vec())
}

/// Returns whether a sequence number comes before another one.
fn is_behind(number: u32, other: u32) -> bool {
    (number.wrapping_sub(other) as i32) < 0
}

/// Sets an end to the larger of itself and another sequence number.
fn advance(end: &mut u32, other: u32) {
    if is_behind(*end, other) {
        *end = other;
    }
}

/// State of a flow at an observer.
#[derive(Default)]
struct Seen {
    begins: HashSet<u32>,
    /// Highest sequence number, and the end of its segment.
    highest: Option<(u32, u32)>,
}

/// Counts packets, segments, out of order, repeated, gaps and flows of each prefix. Keep-alives are
/// not segments.
fn observed(packets: &[(u64, ParsedPacket)], bits: u8) -> BTreeMap<IpAddr, [u64; 6]> {
    let mut flows: HashMap<[SocketAddr; 2], Seen> = HashMap::new();
    let mut counts: BTreeMap<IpAddr, [u64; 6]> = BTreeMap::new();
    for (ends, tcp) in segments(packets).filter(|([source, _], _)| source.port() == HTTPS) {
        let prefix: IpAddr = match ends[0].ip() {
            IpAddr::V4(it) => Ipv4Addr::from_bits(it.to_bits() & (u32::MAX << (32 - bits))).into(),
            IpAddr::V6(it) => {
                Ipv6Addr::from_bits(it.to_bits() & (u128::MAX << (128 - bits))).into()
            }
        };
        let [all, segments, out_of_order, repeated, gaps, of] = counts.entry(prefix).or_default();
        *all += 1;
        let flow = flows.entry(ends).or_default();
        let kept_alive = tcp.data == 1
            && flow.highest.is_some_and(|(_, end)| tcp.sequence == end.wrapping_sub(1));
        if tcp.data == 0 || kept_alive {
            continue;
        }
        *segments += 1;
        let new = flow.begins.insert(tcp.sequence);
        match flow.highest {
            None => *of += 1,
            Some((highest, end)) => {
                let distance = tcp.sequence.wrapping_sub(highest) as i32;
                *repeated += u64::from(!new);
                *out_of_order += u64::from(new && distance < 0);
                *gaps += u64::from(tcp.sequence.wrapping_sub(end) as i32 > 0);
                if distance < 0 {
                    continue;
                }
            }
        }
        flow.highest = Some((tcp.sequence, tcp.end()));
    }
    counts
}

const PROFILES: [&str; 6] = [
    "reorder,packets=100k",
    "reorder,packets=100k,prefixes=50,heavy=5,share=0.4,loss=0.05,depth=1,seed=3",
    "reorder,packets=50k,prefixes=20,heavy=20,share=1,loss=0.2,late=0.5,depth=12,flows=100,timestamps",
    "reorder,packets=50k,prefixes=100,heavy=2,ipv6,vlan=4,alpha=1.3",
    "reorder,packets=50k,prefixes=1,heavy=1,share=1,flows=1,size=1514,loss=0",
    "reorder,packets=20k,heavy=0,share=0,loss=0",
];

#[test]
fn the_truth_is_what_somebody_who_watches_finds() {
    for text in PROFILES {
        let (packets, truth) = traffic(text);
        let found = observed(&packets, if text.contains("ipv6") { 48 } else { 24 });
        let counts = |it: &PrefixTruth| {
            let late = it.out_of_order + it.filling;
            [it.packets, it.segments, late, it.repeated, it.gaps, it.flows]
        };
        let reported: BTreeMap<IpAddr, [u64; 6]> = truth
            .iter()
            .filter(|truth| truth.packets > 0)
            .map(|truth| (truth.prefix, counts(truth)))
            .collect();
        assert_eq!(reported.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>(), "{text}");
        for (prefix, reported) in &reported {
            assert_eq!(reported, &found[prefix], "{text}: {prefix}");
        }
        for truth in truth {
            assert!(truth.retransmitted >= truth.repeated + truth.filling, "{text}: {truth}");
        }
        let times = packets.iter().map(|(at, _)| *at);
        assert!(times.eq((0..packets.len() as u64).map(|index| index * 10_000)), "{text}");
    }
}

#[test]
fn those_prefixes_reorder_that_should() {
    let text = "reorder,packets=1M,loss=0";
    let (_, truth) = traffic(text);
    let heavy: Vec<_> = truth.iter().filter(|truth| truth.heavy).collect();
    assert_eq!(heavy.len(), 38);
    // Half of the 76 largest by the sizes of their flows, which have at least 1/2000 of the
    // packets.
    for truth in &heavy {
        assert!(truth.segments >= 500, "{truth}");
        let share = truth.out_of_order as f64 / truth.segments as f64;
        // One in twenty is late, except at the end of its train.
        assert!((0.02..0.06).contains(&share), "{truth}: {share}");
    }
    let lightly: Vec<_> =
        truth.iter().filter(|truth| !truth.heavy && truth.out_of_order > 0).collect();
    // Up to 162 more may reorder.
    assert!(lightly.len() <= 162 && lightly.len() > 50, "{}", lightly.len());
    let [late, segments] = [|t: &&PrefixTruth| t.out_of_order, |t: &&PrefixTruth| t.segments]
        .map(|what| lightly.iter().map(what).sum::<u64>() as f64);
    assert!(late / segments < 0.01, "{late} of {segments}");
    assert!(truth.iter().all(|truth| truth.retransmitted == 0));
    let (_, in_order) = traffic("reorder,packets=20k,heavy=0,share=0,loss=0");
    assert!(in_order.iter().all(|truth| truth.out_of_order == 0 && truth.gaps == 0));
}

#[test]
fn late_segments_lag_by_the_depth() {
    for depth in [1, 4] {
        let text = format!(
            "reorder,packets=200k,prefixes=1,heavy=1,share=1,flows=1,loss=0,late=0.01,depth={depth}"
        );
        let (packets, _) = traffic(&text);
        let mut lags: BTreeMap<u64, u64> = BTreeMap::new();
        let mut ends: Vec<u32> = Vec::new();
        for (_, tcp) in segments(&packets).filter(|(_, tcp)| tcp.data >= 2) {
            let is_ahead = |end: &&u32| is_behind(tcp.end(), **end);
            let ahead = ends.iter().rev().take_while(is_ahead).count() as u64;
            *lags.entry(ahead).or_default() += 1;
            ends.push(tcp.end());
        }
        assert!(lags.keys().all(|lag| *lag <= depth), "{text}: {lags:?}");
        // At the end of a train fewer segments follow. In trains of 1 to 16 segments, 136 in all,
        // 78 segments are followed by four and 42 by fewer.
        let late: u64 = lags.range(1..).map(|(_, count)| count).sum();
        let share = if depth == 4 { 78.0 / 120.0 } else { 1.0 };
        assert!(binomial(late, share).contains(&lags[&depth]), "{text}: {lags:?}");
    }
}

#[test]
fn flows_are_valid_and_some_wrap() {
    for text in PROFILES {
        let (packets, _) = traffic(text);
        let vlan = text.contains("vlan=4").then_some(4);
        assert!(packets.iter().all(|(_, packet)| packet.vlan == vlan), "{text}");
        let mut servers: HashMap<SocketAddr, (u32, u32)> = HashMap::new();
        let mut wrapped = 0;
        for ([source, destination], tcp) in segments(&packets) {
            assert_eq!(tcp.stamps.is_some(), text.contains("timestamps"));
            let server = source.port() == HTTPS;
            let client = if server { destination } else { source };
            match (tcp.flags & (flag::SYN | flag::ACK), server) {
                (flag::SYN, false) => {
                    assert!(!servers.contains_key(&client), "{text}: a connection begins twice")
                }
                (flag::ACK, false) => {
                    let (acknowledged, end) = servers.get_mut(&client).unwrap();
                    let now = tcp.acknowledgement;
                    assert!(!is_behind(now, *acknowledged), "{text}: an acknowledgement goes back");
                    assert!(!is_behind(*end, now), "{text}: what never passed is acknowledged");
                    *acknowledged = now;
                }
                (flag::ACK, true) => {
                    let (_, end) = servers.get_mut(&client).unwrap();
                    wrapped += u64::from(tcp.end() < tcp.sequence);
                    advance(end, tcp.end());
                }
                (_, true) => assert!(servers.insert(client, (tcp.end(), tcp.end())).is_none()),
                other => panic!("{other:?}"),
            }
        }
        assert!(servers.len() < 100 || wrapped > 0, "{text}");
    }
}

#[test]
fn what_a_host_gets_in_order_is_acknowledged_without_loss() {
    let (packets, _) = traffic("reorder,packets=50k,loss=0,prefixes=10,heavy=3,share=1,timestamps");
    let mut ends: HashMap<SocketAddr, u32> = HashMap::new();
    for ([source, destination], tcp) in segments(&packets) {
        if source.port() == HTTPS {
            advance(ends.entry(destination).or_insert(tcp.end()), tcp.end());
        } else if tcp.flags & flag::ACK != 0 {
            assert_eq!(tcp.acknowledgement, ends[&source], "{source}");
        }
    }
}

#[test]
fn the_same_profile_gives_the_same_packets() {
    let all = |text: &str| {
        let mut traffic = ReorderTraffic::new(profile(text));
        let mut frames = Vec::new();
        while let Some((at, frame)) = traffic.advance() {
            frames.push((at, frame.to_vec()));
        }
        frames
    };
    assert!(all("reorder,packets=20k") == all("reorder,packets=20k"));
    assert!(all("reorder,packets=20k") != all("reorder,packets=20k,seed=2"));
}

#[test]
fn descriptions_round_trip_and_bad_ones_say_why() {
    for text in PROFILES {
        assert_eq!(profile(&profile(text).to_string()), profile(text), "{text}");
    }
    for (text, part) in [
        ("reorder,prefixes=70k", "at most 65536"),
        ("reorder,flows=20M", "at most 10000000"),
        ("reorder,heavy=300", "share=SHARE"),
        ("reorder,share=2", "from 0 to 1"),
        ("reorder,depth=0", "positive"),
        ("reorder,depth=5k", "at most 1000"),
        ("reorder,loss=0.7", "at most 0.5"),
        ("reorder,answered=0.7", "options of reorder are"),
        ("reorder,size=40", "56 to 9018"),
        ("reorder,rate=max", "positive number"),
    ] {
        let message = text.parse::<ReorderProfile>().unwrap_err().to_string();
        assert!(message.contains(part), "{text}: {message}");
    }
}
