use super::*;
use crate::frame::flag;
use crate::reader::{ParsedPacket, ParsedTcp, ParsedTransport, read, word};
use crate::tests::segments;
use flowgauge_testing::chance::binomial;
use std::collections::{HashMap, HashSet};

fn profile(text: &str) -> DelayProfile {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Returns all packets in order, and the reported round trips.
fn traffic(text: &str) -> (Vec<(u64, ParsedPacket)>, Vec<RoundTrip>) {
    let (mut packets, mut reported) = (Vec::new(), Vec::new());
    let mut traffic = DelayTraffic::new(profile(text));
    while let Some((at, frame)) = traffic.advance(&mut |round_trip| reported.push(round_trip)) {
        packets.push((at, read(frame)));
    }
    assert!(packets.is_sorted_by_key(|(at, _)| *at), "{text}");
    (packets, reported)
}

/// Returns the round trips as an observer finds them: retransmissions are not recognised.
fn observed(packets: &[(u64, ParsedPacket)], is_conversation: bool) -> Vec<RoundTrip> {
    let mut found: Vec<RoundTrip> = Vec::new();
    let mut queries = HashMap::new();
    let mut requests = HashMap::new();
    let mut connections = HashMap::new();
    // Request with a timestamp, until it is answered.
    let mut stamps: HashMap<_, Option<usize>> = HashMap::new();
    for (at, packet) in packets {
        let ParsedPacket { source, destination, transport, .. } = packet;
        let (there, back) = ((*source, *destination), (*destination, *source));
        let mut ask = |kind| {
            let (source, destination) = there;
            found.push(RoundTrip {
                kind,
                request_ns: *at,
                response_ns: None,
                source,
                destination,
                retransmission: false,
            });
            found.len() - 1
        };
        let mut answered: Vec<Option<usize>> = Vec::new();
        match transport {
            ParsedTransport::Udp(message) if destination.port() == 53 => {
                let query = queries.insert((there, word(message, 0)), ask(RoundTripKind::Dns));
                assert_eq!(query, None);
            }
            ParsedTransport::Udp(message) => {
                answered.push(queries.remove(&(back, word(message, 0))))
            }
            ParsedTransport::Tcp(tcp) => {
                let kind = match tcp.flags & (flag::SYN | flag::FIN | flag::ACK) {
                    flag::SYN => Some(RoundTripKind::Handshake),
                    flags if flags & flag::FIN != 0 => Some(RoundTripKind::Fin),
                    _ if tcp.data > 0 => Some(RoundTripKind::Data),
                    _ => None,
                };
                if let Some(kind) = kind {
                    let earlier = requests.insert((there, tcp.end()), ask(kind));
                    assert_eq!(earlier, None, "the same segment twice");
                }
                if kind == Some(RoundTripKind::Handshake) {
                    connections.insert(there, ask(RoundTripKind::Duration));
                }
                if let Some([value, echo]) =
                    tcp.stamps.filter(|_| is_conversation && tcp.flags & flag::RST == 0)
                {
                    if tcp.flags & flag::ACK != 0 {
                        answered.push(stamps.get_mut(&(back, echo)).and_then(Option::take));
                    }
                    if kind.is_some() || tcp.flags & flag::SYN != 0 {
                        stamps
                            .entry((there, value))
                            .or_insert_with(|| Some(ask(RoundTripKind::Timestamps)));
                    }
                }
                if tcp.flags & flag::ACK != 0 {
                    answered.push(requests.remove(&(back, tcp.acknowledgement)));
                }
                if tcp.flags & (flag::FIN | flag::RST) != 0 {
                    answered.push(connections.remove(&there));
                }
            }
        }
        answered.into_iter().flatten().for_each(|index| found[index].response_ns = Some(*at));
    }
    found
}

fn set(round_trips: &[RoundTrip]) -> HashSet<RoundTrip> {
    let sent_once = |reported: &RoundTrip| RoundTrip { retransmission: false, ..*reported };
    let set: HashSet<_> = round_trips.iter().map(sent_once).collect();
    assert_eq!(set.len(), round_trips.len());
    set
}

fn count(round_trips: &[RoundTrip], is_counted: impl Fn(&RoundTrip) -> bool) -> u64 {
    round_trips.iter().filter(|reported| is_counted(reported)).count() as u64
}

const PROFILES: [&str; 10] = [
    "delay,requests=20k",
    "delay,requests=20k,shape=bimodal,flows=50,loss=0.1,timestamps",
    "delay,requests=20k,shape=heavy-tail,ipv6,size=200,seed=9",
    "delay,requests=5k,flows=1,answered=1,vlan=7,timestamps,ipv6,size=1500",
    "delay,requests=5k,shape=conversations",
    "delay,requests=5k,shape=conversations,loss=0.1,timestamps,seed=5",
    "delay,requests=5k,shape=conversations,ipv6,timestamps,vlan=9",
    "delay,requests=5k,shape=conversations,answered=1,min=50ms,max=50ms,size=1514",
    "delay,requests=300,shape=conversations,answered=0.01",
    "delay,requests=1",
];

#[test]
fn the_truth_is_what_somebody_who_watches_finds() {
    for text in PROFILES {
        let (packets, reported) = traffic(text);
        let (reported, found) =
            (set(&reported), set(&observed(&packets, text.contains("conversations"))));
        let differing = reported.symmetric_difference(&found).take(4).collect::<Vec<_>>();
        assert!(differing.is_empty(), "{text}: {differing:?}");
    }
}

#[test]
fn requests_come_at_their_rate_and_as_many_are_answered_as_was_asked_for() {
    let (packets, reported) = traffic("delay,requests=40k,rate=200k,answered=0.3");
    let requests = packets.iter().filter(|(_, packet)| packet.destination.port() == HTTPS);
    assert!(requests.map(|(at, _)| *at).eq((0..40_000_u64).map(|index| index * 5_000)));
    let answered = count(&reported, |reported| reported.response_ns.is_some());
    assert!(binomial(40_000, 0.3).contains(&answered), "{answered}");
    assert_eq!(packets.len() as u64, 40_000 + answered);
    // Each request has its own flow.
    let sources: HashSet<_> = reported.iter().map(|reported| reported.source).collect();
    assert_eq!(sources.len(), 40_000);
    let (_, shared) = traffic("delay,requests=1000,flows=7");
    let flows: HashSet<_> =
        shared.iter().map(|reported| (reported.source, reported.destination)).collect();
    assert_eq!(flows.len(), 7);
}

/// Counts the answers that take less than each of these times.
fn below(text: &str, times: &[u64]) -> (u64, Vec<u64>) {
    let (_, reported) = traffic(text);
    let delay = |it: &RoundTrip| it.response_ns.map(|response| response - it.request_ns);
    let delays: Vec<u64> = reported.iter().filter_map(delay).collect();
    let profile = profile(text);
    assert!(delays.iter().all(|delay| (profile.min_ns..=profile.max_ns).contains(delay)), "{text}");
    let less_than = |time: &u64| delays.iter().filter(|delay| *delay < time).count() as u64;
    (delays.len() as u64, times.iter().map(less_than).collect())
}

#[test]
fn delays_are_distributed_as_their_shape_says() {
    let ms = MILLISECOND;
    // By halves of the logarithm; to twice the shortest, to half the longest, and the medians of
    // the two modes; quantiles of the Pareto distribution, 0.1 ms x (1 - q (1 - (min /
    // max)^1.5))^(-1 / 1.5), with the bound of 10 s.
    for (text, times, shares) in [
        (
            "delay,requests=100k",
            vec![ms * 316_228 / 1_000_000, ms * 3_162_278 / 1_000_000, ms * 31_622_777 / 1_000_000],
            vec![1.0 / 6.0, 0.5, 5.0 / 6.0],
        ),
        (
            "delay,requests=100k,shape=bimodal,min=1ms,max=20ms",
            vec![1_414_214, 2 * ms, 10 * ms, 14_142_136],
            vec![0.25, 0.5, 0.5, 0.75],
        ),
        (
            "delay,requests=100k,shape=heavy-tail,alpha=1.5",
            vec![158_740, 464_159, 2_154_434],
            vec![0.5, 0.9, 0.99],
        ),
    ] {
        let (answers, counts) = below(text, &times);
        for (count, share) in counts.into_iter().zip(shares) {
            let is_likely = binomial(answers, share).contains(&count);
            assert!(is_likely, "{text}: {count} of {answers}, not {share}");
        }
    }
}

#[test]
fn lost_requests_repeat_after_their_timeout_and_are_marked() {
    let (_, reported) = traffic("delay,requests=20k,loss=0.1");
    let late = count(&reported, |reported| reported.retransmission);
    assert!(binomial(20_000, 0.1).contains(&late), "{late}");
    // The requests are over after 20 ms.
    let is_late = |reported: &RoundTrip| reported.request_ns >= SHORTEST_TIMEOUT_NS;
    assert!(reported.iter().all(|reported| reported.retransmission == is_late(reported)));
    let again = count(&reported, |reported| reported.request_ns >= 3 * SHORTEST_TIMEOUT_NS);
    assert!(binomial(20_000, 0.01).contains(&again), "{again}");

    let (_, reported) = traffic("delay,requests=5k,shape=conversations,loss=0.1");
    let lost = |kind| count(&reported, |it| it.kind == kind && it.retransmission);
    for kind in [RoundTripKind::Handshake, RoundTripKind::Data, RoundTripKind::Duration] {
        let (lost, all) = (lost(kind), count(&reported, |reported| reported.kind == kind));
        assert!(binomial(all, 0.1).contains(&lost), "{kind:?}: {lost} of {all}");
    }
    assert_eq!(lost(RoundTripKind::Dns), 0);
}

#[test]
fn conversations_have_as_many_requests_as_was_asked_for() {
    let (packets, reported) = traffic("delay,requests=5k,shape=conversations,rate=1k,answered=0.8");
    let of_client = |it: &RoundTrip, kind| it.kind == kind && it.destination.port() == HTTPS;
    let handshakes = count(&reported, |it| of_client(it, RoundTripKind::Handshake));
    let half_open =
        count(&reported, |it| of_client(it, RoundTripKind::Handshake) && it.response_ns.is_none());
    let data = count(&reported, |it| of_client(it, RoundTripKind::Data));
    assert_eq!(data + half_open, 5_000);
    assert!(binomial(handshakes, 0.2).contains(&half_open), "{half_open} of {handshakes}");
    let queries = packets.iter().filter(|(_, packet)| packet.destination.port() == DNS);
    let last = queries.map(|(at, _)| *at).max().unwrap();
    // The last connection starts before the end of 5 s, by as many requests as it has itself.
    assert!((4_800 * MILLISECOND..5_000 * MILLISECOND).contains(&last), "{last}");
    let resets = segments(&packets).filter(|(_, tcp)| tcp.flags & flag::RST != 0).count() as u64;
    assert!(binomial(handshakes - half_open, 0.1).contains(&resets), "{resets}");
}

const DNS: u16 = 53;

/// State that a host has about its peer.
#[derive(Default)]
struct Peer {
    next: u32,
    last_stamp: u32,
}

#[test]
fn every_segment_fits_those_before_it() {
    for text in PROFILES.into_iter().filter(|text| text.contains("conversations")) {
        let stamped = text.contains("timestamps");
        let mut peers: HashMap<[SocketAddr; 2], Peer> = HashMap::new();
        let mut wrapped = 0;
        let (packets, _) = traffic(text);
        for ([source, destination], tcp) in segments(&packets) {
            let ParsedTcp { flags, sequence, acknowledgement, stamps, .. } = *tcp;
            let [is_syn, is_ack] = [flag::SYN, flag::ACK].map(|bit| flags & bit != 0);
            let (there, back) = ([source, destination], [destination, source]);
            if !is_syn {
                assert_eq!(sequence, peers[&there].next, "{text}");
            }
            if is_ack {
                let passed = peers[&back].next;
                assert_eq!(acknowledgement, passed, "{text}: all that passed is acknowledged");
            }
            assert_eq!(stamps.is_some(), stamped, "{text}");
            if let Some([value, echo]) = stamps {
                let other = peers.get(&back).map_or(0, |peer| peer.last_stamp);
                let is_recent = !is_ack || other.wrapping_sub(echo) < 1 << 20;
                assert!(is_recent, "{text}: {echo} echoes {other}");
                let own = peers.entry(there).or_default();
                let goes_on = is_syn || value.wrapping_sub(own.last_stamp) < 1 << 20;
                assert!(goes_on, "{text}: a clock goes back");
                own.last_stamp = value;
            }
            wrapped += usize::from(tcp.end() < sequence);
            peers.entry(there).or_default().next = tcp.end();
        }
        // Hardly any of the 300 attempts of one profile is answered.
        assert!(wrapped > 0 || text.contains("requests=300"), "{text}");
    }
}

#[test]
fn the_first_of_several_segments_is_echoed() {
    let (packets, _) = traffic("delay,requests=5k,shape=conversations,timestamps,answered=0.5");
    let mut open: HashMap<[SocketAddr; 2], Vec<u32>> = HashMap::new();
    let mut flights = 0;
    for ([source, destination], tcp) in segments(&packets) {
        let [value, echo] = tcp.stamps.unwrap();
        if tcp.data > 0 {
            open.entry([source, destination]).or_default().push(value);
        } else if let Some(flight) = open.remove(&[destination, source]) {
            assert_eq!(echo, flight[0], "{flight:?}");
            flights += usize::from(flight.len() > 1 && flight[0] != flight[flight.len() - 1]);
        }
    }
    assert!(flights > 10, "{flights} flights took longer than a millisecond");
}

#[test]
fn the_same_profile_gives_the_same_packets() {
    for text in PROFILES {
        let [first, second] = [0, 1].map(|_| DelayTraffic::new(profile(text)).collect::<Vec<_>>());
        assert!(first == second, "{text}");
        let other = DelayProfile { seed: 77, ..profile(text) };
        assert!(DelayTraffic::new(other).ne(first), "{text}");
    }
}

#[test]
fn descriptions_round_trip_and_bad_ones_say_why() {
    let more = ["delay,shape=heavy-tail,alpha=2.5,min=20us", "delay,rate=2.5k,loss=0.25,max=1s"];
    for text in PROFILES.into_iter().chain(more) {
        assert_eq!(profile(&profile(text).to_string()), profile(text), "{text}");
    }
    for (text, part) in [
        ("delay,shape=square", "log-uniform, bimodal"),
        ("delay,answered=1.5", "(0, 1]"),
        ("delay,answered=0", "positive"),
        ("delay,loss=0.6", "at most 0.5"),
        ("delay,loss=-1", "from 0 to 1"),
        ("delay,min=5ms,max=1ms", "at least that of min"),
        ("delay,shape=bimodal,min=5ms,max=10ms", "four times"),
        ("delay,min=5", "50ms"),
        ("delay,rate=max", "positive number"),
        ("delay,alpha=2", "options of delay are"),
        ("delay,shape=conversations,flows=5", "options of delay are"),
        ("delay,packets=5", "options of delay are"),
        ("delay,size=55", "56 to 9018"),
        ("delay,ipv6,timestamps,vlan=3,size=91", "92 to 9018"),
        ("delay,vlan=0", "4094"),
    ] {
        let message = text.parse::<DelayProfile>().unwrap_err().to_string();
        assert!(message.contains(part), "{text}: {message}");
    }
}
