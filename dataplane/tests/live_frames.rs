//! Packets sent as live frames, on veth pairs in a network of the test's own, which vanishes with
//! its thread.

use crate::common::kernel::{in_mode, ingress, received, started};
use crate::common::{assert_contains, with_tables};
use flowgauge_core::{Settings, WindowTotals, Zeroed};
use flowgauge_dataplane::poll::port::{AfXdpPort, Outlet, Port, Ports, Received, af_xdp};
use flowgauge_dataplane::poll::{self, Pace};
use flowgauge_dataplane::xdp::{Mode, Xdp};
use flowgauge_dataplane::{Dataplane, Poll};
use flowgauge_testing::on_veth;
use flowgauge_testing::wait::until;
use flowgauge_traffic::kernel::LiveSender;
use flowgauge_traffic::veth::{RECEIVER, SENDER, ip};
use flowgauge_traffic::{Generator, Profile, memory};

/// Less than the 256 packets that a veth device queues for its peer.
const FEW: u64 = 192;
const PROFILES: [&str; 8] = [
    "unique",
    "zipf,flows=1k,alpha=1.2",
    "unique,vlan=7",
    "zipf,flows=5k,ipv6,size=74",
    "subnets,ipv6,vlan=7,size=79",
    "sequential,size=54",
    "burst,flows=1k,size=1518",
    "unique,size=61,seed=9",
];

/// Counts on a veth device, which accepts live frames while its peer runs a native program.
fn counting() -> Xdp {
    started(vec![ingress()], in_mode(Mode::Native))
}

fn generator(profile: &str) -> Generator {
    Generator::new(profile.parse().unwrap())
}

/// Returns the packets of a profile, one after the other.
fn packets(generator: &Generator, numbers: std::ops::Range<u64>) -> impl Iterator<Item = Vec<u8>> {
    let template = generator.template();
    numbers.map(move |number| {
        let mut frame = template.to_vec();
        generator.fill(number, &mut frame);
        frame
    })
}

/// Sends packets, and waits until the peer has received all.
fn send(sender: &mut LiveSender, packets: impl Iterator<Item = Vec<u8>>) {
    let before = received();
    let sent = packets.map(|packet| sender.send(&packet).unwrap()).count() as u64;
    sender.flush().unwrap();
    until(|| received() - before >= sent);
}

fn add(total: &mut WindowTotals, bank: &WindowTotals) {
    total.counters.merge(&bank.counters);
    total.cardinality.merge(&bank.cardinality, Settings::default().cardinality.precision);
}

/// Counts all packets of a profile in memory.
fn counted_in_memory(profile: &str, packets: u64) -> Box<WindowTotals> {
    let profile = Profile { packets: Some(packets), rate: None, ..profile.parse().unwrap() };
    let mut poll = with_tables(Poll::new(memory(profile, 1, Pace::Open), poll::Options::default()));
    let mut total = WindowTotals::boxed();
    while total.counters.packets() < packets {
        add(&mut total, &poll.rotate().unwrap().bank);
    }
    total
}

#[test]
fn registers_and_counters_are_those_of_the_profile() {
    on_veth(|| {
        let precision = Settings::default().cardinality.precision;
        let mut xdp = counting();
        let mut sender = LiveSender::new(SENDER.0).unwrap();
        for profile in PROFILES {
            let generator = generator(profile);
            let rounds = 10;
            for round in 0..rounds {
                send(&mut sender, packets(&generator, round * FEW..(round + 1) * FEW));
            }
            let bank = &xdp.rotate().unwrap().bank;
            let expected = counted_in_memory(profile, rounds * FEW);
            assert_eq!(bank.counters, expected.counters, "{profile}");
            let levels = bank.cardinality.levels(precision);
            assert_eq!(levels, expected.cardinality.levels(precision), "{profile}");
        }
        sender.finish().unwrap();
        assert_eq!(sender.dropped(), 0);
    });
}

/// Polls until `packets` packets have arrived.
fn receive(port: &mut AfXdpPort, packets: usize) -> Vec<Vec<u8>> {
    let mut received = Vec::new();
    until(|| {
        let found = port.receive(&mut |frame| received.push(frame.bytes.to_vec()));
        assert_ne!(found, Received::Ended, "the port has ended");
        received.len() >= packets
    });
    received
}

#[test]
fn packets_arrive_byte_for_byte_and_in_order() {
    on_veth(|| {
        let Ports { mut ports, source, .. } = af_xdp(&RECEIVER.0.parse().unwrap(), None).unwrap();
        let mut sender = LiveSender::new(SENDER.0).unwrap();
        let mut exchange = |what: &str, packets: Vec<Vec<u8>>| {
            packets.iter().for_each(|packet| sender.send(packet).unwrap());
            sender.flush().unwrap();
            assert!(receive(&mut ports[0], packets.len()) == packets, "{what}");
        };
        for profile in PROFILES {
            let generator = generator(profile);
            for round in 0..5 {
                exchange(profile, packets(&generator, round * FEW..(round + 1) * FEW).collect());
            }
        }
        // Packets of another length, and of the same length with another end.
        let (short, long) = (generator("unique"), generator("unique,ipv6,size=300"));
        let mixed =
            packets(&short, 0..30).zip(packets(&long, 0..30)).flat_map(|(short, mut long)| {
                let before = long.clone();
                long[299] = short[29];
                [short, before, long]
            });
        exchange("mixed", mixed.collect());
        assert_eq!(source.losses().total(), 0);
    });
}

/// More than the kernel generates at a time, than a part contains, than a batch contains; and no
/// multiple of any.
#[test]
fn whole_batches_are_sent_to_the_packet() {
    on_veth(|| {
        let mut xdp = counting();
        for packets_in_all in [1, 63, 65, 1023, 1024, 1025, 2048, 300_007] {
            let generator = generator("zipf");
            let mut sender = LiveSender::new(SENDER.0).unwrap();
            packets(&generator, 0..packets_in_all).for_each(|packet| sender.send(&packet).unwrap());
            sender.finish().unwrap();
            let counted = xdp.rotate().unwrap().bank.counters.packets() + sender.dropped();
            assert_eq!(counted, packets_in_all);
        }
    });
}

#[test]
fn a_device_without_live_frames_is_an_error() {
    on_veth(|| {
        let problem =
            |outcome: Result<(), flowgauge_dataplane::Error>| outcome.unwrap_err().to_string();
        let mut sender = LiveSender::new(SENDER.0).unwrap();
        let frame = generator("unique").template().to_vec();
        sender.send(&frame).unwrap();
        let said = problem(sender.flush());
        assert!(said.contains("takes no live frames") && said.ends_with("af_xdp:tx"), "{said}");
        assert_contains(&problem(sender.send(&[0; 1519])), &["1518 at the most"]);
        ip("link set dev tx down").unwrap();
        assert_contains(&problem(LiveSender::new(SENDER.0).map(drop)), &["is it up"]);
        assert_contains(&problem(LiveSender::new("nowhere").map(drop)), &["no such interface"]);
    });
}
