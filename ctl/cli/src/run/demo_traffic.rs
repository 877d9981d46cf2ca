//! Traffic of `flowgauge demo`: three generators, read like captures in real time.
//!
//! The generators of the attack and of reordering send at a constant rate, without regard to time
//! that answers take. [`Link`] adds it: answers pass milliseconds after requests.

use crate::error::{CommandFailure, cannot};
use flowgauge_dataplane::capture::{Writer, link_type};
use flowgauge_dataplane::poll::Pace;
use flowgauge_dataplane::poll::port::{Capture, PcapPort, Ports, captures};
use flowgauge_traffic::delay::{DelayProfile, DelayTraffic};
use flowgauge_traffic::frame::{TCP, UDP, flag};
use flowgauge_traffic::reorder::{ReorderProfile, ReorderTraffic};
use flowgauge_traffic::{Generator, Profile};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Read};
use std::ops::Range;

/// Link with an attack: from second 22 on, many sources send to one destination for eight seconds
/// in every 30. Until then the alarm learns the usual entropies.
const ATTACK: &str = "attack,rate=8k,flows=3k,share=0.5,every=30s,lasting=8s";
/// Connections with round-trip times of 2 to 200 ms.
const CONVERSATIONS: &str = "delay,shape=conversations,rate=400,min=2ms,max=200ms,loss=0.01";
/// Many prefixes, some of which reorder packets.
const REORDERING: &str = "reorder,prefixes=300,heavy=6,flows=2k,rate=2k";

/// Packets after which the link repeats itself, with two attacks in a minute: exact counts store
/// every source of the run, and an attack has new ones in each packet.
const REPEATED_PACKETS: u64 = 480_000;
/// More packets than any demo sends.
const ENDLESS_PACKETS: u64 = 1 << 40;

/// Number of usual packets, on the link with the attack, for each SYN among them. The others are
/// datagrams. All packets of the attack are SYNs.
const SYN_EVERY: u64 = 16;
/// Number of SYNs for each one that the victim of the attack answers.
const VICTIM_ANSWERS_EVERY: u32 = 8;
const VICTIM: [u8; 4] = [10, 0, 0, 2];
/// Shortest and longest round trip of a client, in nanoseconds.
const ROUND_TRIPS_NS: (f64, f64) = (2e6, 60e6);
/// First two bytes of the clients' addresses in the traffic that reorders: 198.18.0.0/15.
const CLIENTS: [u8; 2] = [198, 18];

/// Fields of a frame with IPv4 and TCP or UDP, without tags and options.
const PROTOCOL: usize = 23;
const IP_CHECKSUM: Range<usize> = 24..26;
const SOURCE: Range<usize> = 26..30;
const DESTINATION: Range<usize> = 30..34;
const SOURCE_PORT: Range<usize> = 34..36;
const DESTINATION_PORT: Range<usize> = 36..38;
const SEQUENCE: Range<usize> = 38..42;
const ACKNOWLEDGEMENT: Range<usize> = 42..46;
const FLAGS: usize = 47;
const TCP_CHECKSUM: Range<usize> = 50..52;

/// Bytes of frames generated at a time.
const CHUNK_BYTES: usize = 1 << 16;

/// Returns ports with the traffic of the demo, in real time.
pub(crate) fn ports() -> Result<Ports<PcapPort>, CommandFailure> {
    let mut ports = captures(traffic()?, 1, Pace::RealTime)?;
    ports.interface = "demo".to_owned();
    Ok(ports)
}

fn traffic() -> Result<Vec<Capture>, CommandFailure> {
    const TASK: &str = "generate the traffic of the demo";
    let profile: Profile = ATTACK.parse().map_err(cannot(TASK))?;
    let conversations: DelayProfile = CONVERSATIONS.parse().map_err(cannot(TASK))?;
    let reordering: ReorderProfile = REORDERING.parse().map_err(cannot(TASK))?;
    let mut conversations =
        DelayTraffic::new(DelayProfile { requests: ENDLESS_PACKETS, ..conversations });
    let mut reordering =
        ReorderTraffic::new(ReorderProfile { packets: ENDLESS_PACKETS, ..reordering });
    let generated: [(&str, Box<FrameProducer>); 3] = [
        ("attack", link(Box::new(attack(profile)), with_answer)),
        (
            "conversations",
            Box::new(move |take| {
                conversations.advance(&mut |_| {}).map_or(Ok(()), |(at, frame)| take(at, frame))
            }),
        ),
        (
            "reordering",
            link(
                Box::new(move |take| {
                    reordering.advance().map_or(Ok(()), |(at, frame)| take(at, frame))
                }),
                after_round_trips,
            ),
        ),
    ];
    let capture = |(name, make)| {
        let made = Writer::new(Vec::new(), link_type::ETHERNET).map_err(cannot(TASK))?;
        Ok(Capture::reader(GeneratedCapture { make, made, read: 0 }, name))
    };
    generated.into_iter().map(capture).collect()
}

/// Returns the packets of the link with the attack, without answers.
fn attack(profile: Profile) -> impl FnMut(&mut FrameConsumer<'_>) -> io::Result<()> + Send {
    let generator = Generator::new(profile.clone());
    let (template, mut next) = (generator.template().to_vec(), 0);
    move |take: &mut FrameConsumer<'_>| {
        let (mut frame, index) = (template.clone(), next % REPEATED_PACKETS);
        generator.fill(index, &mut frame);
        // Connections of their own: a repeated SYN of one would be a retransmission.
        let port = 32_768 + (index % 28_232) as u16;
        frame[SOURCE_PORT].copy_from_slice(&port.to_be_bytes());
        if generator.floods(index) || index.is_multiple_of(SYN_EVERY) {
            frame[SEQUENCE].copy_from_slice(&(index as u32).to_be_bytes());
            frame[TCP_CHECKSUM].fill(0);
        } else {
            let length = (frame.len() - SOURCE_PORT.start) as u32;
            frame[PROTOCOL] = UDP;
            frame[IP_CHECKSUM].fill(0);
            frame[DESTINATION_PORT].copy_from_slice(&443_u16.to_be_bytes());
            // Length and checksum of UDP.
            frame[SEQUENCE].copy_from_slice(&(length << 16).to_be_bytes());
        }
        let taken = take(profile.timestamp(next), &frame);
        next += 1;
        taken
    }
}

/// Function that passes the frames for a generated one, each with its time.
type Link = fn(u64, &[u8], &mut dyn FnMut(u64, Vec<u8>));

/// Returns what passes a link, in the order of time. A frame may pass later than it was generated.
fn link(mut make: Box<FrameProducer>, link: Link) -> Box<FrameProducer> {
    let (mut waiting, mut number) = (BinaryHeap::new(), 0_u64);
    Box::new(move |take: &mut FrameConsumer<'_>| {
        let mut now = 0;
        make(&mut |at, frame| {
            now = at;
            link(at, frame, &mut |at, frame| {
                waiting.push(Reverse((at, number, frame)));
                number += 1;
            });
            Ok(())
        })?;
        while waiting.peek().is_some_and(|Reverse((at, _, _))| *at <= now) {
            let Some(Reverse((at, _, frame))) = waiting.pop() else { break };
            take(at, &frame)?;
        }
        Ok(())
    })
}

/// Answers the SYNs of the link with the attack; those of the attack in part.
fn with_answer(at: u64, frame: &[u8], pass: &mut dyn FnMut(u64, Vec<u8>)) {
    pass(at, frame.to_vec());
    let client = address(frame, SOURCE);
    let is_answered = frame[DESTINATION] != VICTIM
        || u32::from_be_bytes(client).is_multiple_of(VICTIM_ANSWERS_EVERY);
    if frame[PROTOCOL] != TCP || frame[FLAGS] != flag::SYN || !is_answered {
        return;
    }
    let mut answer = frame.to_vec();
    answer[SOURCE].copy_from_slice(&frame[DESTINATION]);
    answer[DESTINATION].copy_from_slice(&frame[SOURCE]);
    answer[SOURCE_PORT].copy_from_slice(&frame[DESTINATION_PORT]);
    answer[DESTINATION_PORT].copy_from_slice(&frame[SOURCE_PORT]);
    let sequence = u32::from_be_bytes(address(frame, SEQUENCE));
    answer[ACKNOWLEDGEMENT].copy_from_slice(&sequence.wrapping_add(1).to_be_bytes());
    answer[FLAGS] = flag::SYN | flag::ACK;
    pass(at + round_trip_ns(client), answer);
}

/// Delays the packets of the traffic that reorders: SYN/ACK and data come a round trip after the
/// SYN, acknowledgements a round trip after the data. Packets of one direction keep their order.
fn after_round_trips(at: u64, frame: &[u8], pass: &mut dyn FnMut(u64, Vec<u8>)) {
    let is_of_client =
        |range: &Range<usize>| [frame[range.start], frame[range.start + 1] & 0xfe] == CLIENTS;
    let is_from_client = is_of_client(&SOURCE);
    let client = address(frame, if is_from_client { SOURCE } else { DESTINATION });
    let trips = match (is_from_client, frame[FLAGS]) {
        (true, flag::SYN) => 0,
        (true, _) => 2,
        (false, _) => 1,
    };
    pass(at + trips * round_trip_ns(client), frame.to_vec());
}

/// Returns four bytes of a frame.
fn address(frame: &[u8], range: Range<usize>) -> [u8; 4] {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&frame[range]);
    bytes
}

/// Returns the round trip of a client: its logarithm is uniform.
fn round_trip_ns(client: [u8; 4]) -> u64 {
    let (shortest, longest) = ROUND_TRIPS_NS;
    let hash = u32::from_be_bytes(client).wrapping_mul(0x9e37_79b9);
    (shortest * (longest / shortest).powf(f64::from(hash) / f64::from(u32::MAX))) as u64
}

/// Function that takes a frame and its time in nanoseconds.
type FrameConsumer<'a> = dyn FnMut(u64, &[u8]) -> io::Result<()> + 'a;
/// Function that generates the next frame.
type FrameProducer = dyn FnMut(&mut FrameConsumer<'_>) -> io::Result<()> + Send;

/// Endless capture of generated frames.
struct GeneratedCapture {
    make: Box<FrameProducer>,
    made: Writer<Vec<u8>>,
    read: usize,
}

impl Read for GeneratedCapture {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let GeneratedCapture { make, made, read } = self;
        if *read == made.get_ref().len() {
            made.get_mut().clear();
            *read = 0;
            while made.get_ref().len() < CHUNK_BYTES {
                make(&mut |at, frame| made.write(at, frame, frame.len() as u32))?;
            }
        }
        let left = made.get_ref().get(*read..).unwrap_or_default();
        let length = left.len().min(buffer.len());
        buffer[..length].copy_from_slice(&left[..length]);
        *read += length;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    #[test]
    fn an_endless_link_has_the_sources_and_attacks_of_its_first_minute() {
        let profile: Profile = ATTACK.parse().unwrap();
        let minute = profile.timestamp(REPEATED_PACKETS);
        assert_eq!(minute, 60_000_000_000);
        let mut make = attack(profile);
        let mut minutes = [(); 2].map(|()| {
            let (mut sources, mut times) = (HashSet::new(), Vec::new());
            for _ in 0..REPEATED_PACKETS {
                make(&mut |at, frame| {
                    sources.insert(<[u8; 4]>::try_from(&frame[26..30]).unwrap());
                    times.push(at);
                    Ok(())
                })
                .unwrap();
            }
            (sources, times)
        });
        let [(sources, times), (later, later_times)] = &mut minutes;
        assert_eq!(sources, later);
        // Eight of 30 seconds at half of 8,000 packets a second, twice, and the usual sources.
        assert!((60_000..70_000).contains(&sources.len()), "{}", sources.len());
        assert!(times.iter().map(|time| time + minute).eq(later_times.iter().copied()));
    }

    /// Takes the frames of a link up to a time, which must come in order.
    fn taken(mut link: Box<FrameProducer>, until: u64) -> Vec<(u64, Vec<u8>)> {
        let mut frames: Vec<(u64, Vec<u8>)> = Vec::new();
        while frames.last().is_none_or(|(at, _)| *at < until) {
            link(&mut |at, frame| {
                assert!(frames.last().is_none_or(|(before, _)| *before <= at));
                frames.push((at, frame.to_vec()));
                Ok(())
            })
            .unwrap();
        }
        frames
    }

    /// Returns both ends of a segment, its sender first.
    fn ends(frame: &[u8]) -> [[u8; 6]; 2] {
        [(SOURCE, SOURCE_PORT), (DESTINATION, DESTINATION_PORT)]
            .map(|(address, port)| [&frame[address], &frame[port]].concat().try_into().unwrap())
    }

    /// Returns the delays of the answers to the SYNs up to a time, and the number without one.
    fn handshakes(frames: &[(u64, Vec<u8>)], until: u64) -> (Vec<u64>, usize) {
        let (mut open, mut delays, mut late) = (HashMap::new(), Vec::new(), 0);
        for (at, frame) in frames.iter().filter(|(_, frame)| frame[PROTOCOL] == TCP) {
            let [from, to] = ends(frame);
            if frame[FLAGS] == flag::SYN && *at < until {
                late += usize::from(open.insert([from, to], *at).is_some());
            } else if frame[FLAGS] == flag::SYN | flag::ACK {
                delays.extend(open.remove(&[to, from]).map(|asked| at - asked));
            }
        }
        (delays, late + open.len())
    }

    #[test]
    fn syns_are_answered_within_milliseconds_and_those_of_the_attack_in_part() {
        const SECOND: u64 = 1_000_000_000;
        let attacked = link(Box::new(attack(ATTACK.parse().unwrap())), with_answer);
        let mut reordering = ReorderTraffic::new(REORDERING.parse().unwrap());
        let reordering: Box<FrameProducer> = Box::new(move |take| {
            reordering.advance().map_or(Ok(()), |(at, frame)| take(at, frame))
        });
        let frames = taken(attacked, 30 * SECOND);
        let usual: Vec<_> = frames.iter().filter(|(at, _)| *at < 20 * SECOND).cloned().collect();
        let flood: Vec<_> = frames.iter().filter(|(at, _)| *at > 23 * SECOND).cloned().collect();
        let trains = taken(link(reordering, after_round_trips), 20 * SECOND);
        let limits = ROUND_TRIPS_NS.0 as u64..ROUND_TRIPS_NS.1 as u64 + 1;
        // A constant rate lets an answer be generated up to a few packets after its request.
        for (name, frames, slack) in [("usual", &usual, 0), ("trains", &trains, SECOND / 10)] {
            let (delays, unanswered) = handshakes(frames, 19 * SECOND);
            assert!(delays.len() > 100, "{name}: {}", delays.len());
            assert_eq!(unanswered, 0, "{name}");
            let longest = delays.iter().max().copied().unwrap();
            let shortest = delays.iter().min().copied().unwrap();
            assert!(shortest >= limits.start && longest < limits.end + slack, "{name}: {longest}");
        }
        let (delays, unanswered) = handshakes(&flood, 29 * SECOND);
        assert!(unanswered > 3 * delays.len() && !delays.is_empty(), "{unanswered}");
    }
}
