//! Traffic of `flowgauge demo`: three generators, read like captures in real time.

use crate::error::CommandFailure;
use flowgauge_dataplane::capture::{Writer, link_type};
use flowgauge_dataplane::poll::Pace;
use flowgauge_dataplane::poll::port::{Capture, PcapPort, Ports, captures};
use flowgauge_traffic::delay::{DelayProfile, DelayTraffic};
use flowgauge_traffic::reorder::{ReorderProfile, ReorderTraffic};
use flowgauge_traffic::{Generator, Profile};
use std::io::{self, Read};

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

/// Bytes of frames generated at a time.
const CHUNK_BYTES: usize = 1 << 16;

/// Returns ports with the traffic of the demo, in real time.
pub(crate) fn ports() -> Result<Ports<PcapPort>, CommandFailure> {
    let mut ports = captures(traffic()?, 1, Pace::RealTime)?;
    ports.interface = "demo".to_owned();
    Ok(ports)
}

fn traffic() -> Result<Vec<Capture>, CommandFailure> {
    let failed = |problem: String| {
        CommandFailure::Failed(format!("cannot generate the traffic of the demo: {problem}"))
    };
    let profile: Profile = ATTACK.parse().map_err(|error| failed(format!("{error}")))?;
    let conversations: DelayProfile =
        CONVERSATIONS.parse().map_err(|error| failed(format!("{error}")))?;
    let reordering: ReorderProfile =
        REORDERING.parse().map_err(|error| failed(format!("{error}")))?;
    let mut conversations =
        DelayTraffic::new(DelayProfile { requests: ENDLESS_PACKETS, ..conversations });
    let mut reordering =
        ReorderTraffic::new(ReorderProfile { packets: ENDLESS_PACKETS, ..reordering });
    let generated: [(&str, Box<FrameProducer>); 3] = [
        ("attack", Box::new(attack(profile))),
        (
            "conversations",
            Box::new(move |take| {
                conversations.advance(&mut |_| {}).map_or(Ok(()), |(at, frame)| take(at, frame))
            }),
        ),
        (
            "reordering",
            Box::new(move |take| {
                reordering.advance().map_or(Ok(()), |(at, frame)| take(at, frame))
            }),
        ),
    ];
    let capture = |(name, make)| {
        Ok(Capture::reader(
            GeneratedCapture::new(make).map_err(|error| failed(error.to_string()))?,
            name,
        ))
    };
    generated.into_iter().map(capture).collect()
}

/// Returns the packets of the link with the attack.
fn attack(profile: Profile) -> impl FnMut(&mut FrameConsumer<'_>) -> io::Result<()> + Send {
    let generator = Generator::new(profile.clone());
    let (mut frame, mut next) = (generator.template().to_vec(), 0);
    move |take: &mut FrameConsumer<'_>| {
        generator.fill(next % REPEATED_PACKETS, &mut frame);
        let taken = take(profile.timestamp(next), &frame);
        next += 1;
        taken
    }
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

impl GeneratedCapture {
    fn new(make: Box<FrameProducer>) -> io::Result<Self> {
        Ok(GeneratedCapture { make, made: Writer::new(Vec::new(), link_type::ETHERNET)?, read: 0 })
    }
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
    use std::collections::HashSet;

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
}
