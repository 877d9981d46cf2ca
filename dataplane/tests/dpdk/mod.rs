//! Ports on DPDK's software devices: exact counts, losses, links, and errors of opening.

pub mod support;

use crate::common::devices::wrapped;
use crate::common::kernel::{dropped, received, received_exactly};
use crate::common::{five_tuples, with_tables};
use crate::poll::capture::walk;
use flowgauge_core::{Counters, WindowTotals, Zeroed};
use flowgauge_dataplane::capture::{Writer, link_type};
use flowgauge_dataplane::poll::port::{
    DpdkSender, Outlet, Port, PortFrame, Ports, Received, Worker, dpdk, dpdk_device, pcap,
};
use flowgauge_dataplane::poll::{Options, Pace, Poll};
use flowgauge_dataplane::{Dataplane, Error, Event, LossCause, Snapshot};
use flowgauge_dpdk::{Device, Queues};
use flowgauge_testing::on_veth;
use flowgauge_testing::wait::until;
use flowgauge_traffic::veth::{RECEIVER, SENDER};
use flowgauge_traffic::{Generator, Profile};
use std::fs::{self, File};
use std::io::BufWriter;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use support::{EAL, counted, eal, number, open};

/// A directory of one test, removed with its contents.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let name = format!("flowgauge-dpdk-{}-{}", std::process::id(), number());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn opened<P: Port>(ports: Ports<P>) -> Poll {
    Poll::new(ports, Options { settings: five_tuples(), ..Options::default() })
}

fn started<P: Port>(ports: Ports<P>) -> Poll {
    with_tables(opened(ports))
}

fn wait_for(counted: &AtomicU64, packets: u64) {
    until(|| counted.load(Ordering::Acquire) >= packets);
}

fn profile(text: &str) -> Profile {
    text.parse().unwrap()
}

/// Writes frames of all lengths, one in a hundred longer than a DPDK buffer, which DPDK splits into
/// several.
fn capture(path: &Path, packets: u64) {
    let generator = Generator::new(profile("zipf,flows=5000"));
    let mut frame = generator.template().to_vec();
    let mut writer =
        Writer::new(BufWriter::new(File::create(path).unwrap()), link_type::ETHERNET).unwrap();
    for index in 0..packets {
        frame.resize(generator.frame_length(), 0);
        generator.fill(index, &mut frame);
        let more = if index % 100 == 0 { 5000 } else { 0 };
        frame.resize(60 + (index * 37 % 1400) as usize + more, 0);
        writer.write(index * 1000, &frame, frame.len() as u32).unwrap();
    }
    writer.finish().unwrap();
}

/// Counts a capture through our own reader.
fn replayed(path: &Path, packets: u64) -> Snapshot {
    let (ports, counter) = counted(pcap(path, 1, Pace::Open).unwrap());
    let mut poll = started(ports);
    wait_for(&counter, packets);
    poll.rotate().unwrap()
}

#[test]
fn net_pcap_counts_every_frame_as_our_own_reader_does() {
    const PACKETS: u64 = 50_000;
    let scratch = Scratch::new();
    let path = scratch.file("in.pcap");
    capture(&path, PACKETS);
    let expected = replayed(&path, PACKETS);
    assert_eq!(expected.packets_after, PACKETS);

    let device = format!("net_pcap{},rx_pcap={}", number(), path.display());
    let (ports, counter) = counted(dpdk(&device, Some(EAL), 1).unwrap());
    let mut poll = started(ports);
    let mut packets = 0;
    let mut union = WindowTotals::boxed();
    while packets < PACKETS {
        let window = poll.rotate().unwrap();
        packets += window.packets_after;
        union.unite(&window.bank, &five_tuples());
    }
    assert_eq!(counter.load(Ordering::Acquire), PACKETS);
    assert!(*union == *expected.bank, "counters and registers");
    assert_eq!(poll.losses().unwrap().total(), 0);
    // The source does not end: the device might receive more.
    assert_eq!(poll.events().unwrap(), []);
}

/// Port that receives a number of batches and no more.
struct FirstBatches<P> {
    port: P,
    batches: u64,
    done: Arc<AtomicU64>,
}

impl<P: Port> Port for FirstBatches<P> {
    fn receive(&mut self, sink: &mut impl FnMut(PortFrame<'_>)) -> Received {
        if self.batches == 0 {
            self.done.store(1, Ordering::Release);
            return Received::Idle;
        }
        self.batches -= 1;
        self.port.receive(sink)
    }

    fn work(self, worker: Worker) {
        worker.run(self);
    }
}

#[test]
fn net_null_hands_out_no_more_than_is_counted() {
    const BATCHES: u64 = 25_000;
    let device = open("net_null", ",size=100", Queues { receive: 1, send: 0 }).unwrap();
    let control = Arc::clone(&device.control);
    let done = Arc::<AtomicU64>::default();
    let first = |port| FirstBatches { port, batches: BATCHES, done: Arc::clone(&done) };
    let mut poll = started(wrapped(dpdk_device(device), first));
    let (mut packets, mut bytes, mut windows) = (0, 0, 0);
    let mut add = |window: Snapshot| {
        packets += window.packets_after;
        bytes += window.bank.counters.bytes;
        windows += 1;
    };
    while done.load(Ordering::Acquire) == 0 {
        add(poll.rotate().unwrap());
    }
    add(poll.rotate().unwrap());
    println!("{windows} windows");
    assert_eq!(control.stats().unwrap().received, packets);
    let what = "every batch of this device is full";
    assert_eq!((packets, bytes), (4 * 64 * BATCHES, 100 * packets), "{what}");
}

/// Its frames are zeros, neither IPv4 nor IPv6, and never end.
#[test]
fn net_null_is_read_and_stopped_while_it_goes_on() {
    const WINDOWS: u64 = 100;
    for queues in [1, 2] {
        let name = format!("net_null{}", number());
        let device = Device::open(&eal(), &name, Queues { receive: queues, send: 0 }).unwrap();
        let control = Arc::clone(&device.control);
        let (ports, counter) = counted(dpdk_device(device));
        let mut poll = started(ports);
        let (mut packets, mut grown) = (0, 0);
        let check = |seen: Snapshot| {
            let Counters { bytes, non_ip, .. } = seen.bank.counters;
            assert_eq!((non_ip, bytes), (seen.packets_after, 64 * seen.packets_after));
            let levels = seen.bank.cardinality.levels(five_tuples().cardinality.precision);
            assert!(levels.iter().all(|level| *level == 0));
            assert_eq!(seen.packets_before, seen.packets_after);
            seen.packets_after
        };
        for _ in 0..WINDOWS {
            let (first, second) = (check(poll.sample().unwrap()), check(poll.sample().unwrap()));
            let window = check(poll.rotate().unwrap());
            assert!(first <= second && second <= window, "{first}, {second}, {window}");
            packets += window;
            grown += u64::from(first < second && second < window);
        }
        assert_eq!(poll.losses().unwrap().total(), 0);
        assert_eq!(poll.events().unwrap(), []);
        drop(poll);
        // No worker takes packets any more: those after the last window were counted too.
        let given = control.stats().unwrap().received;
        assert_eq!(counter.load(Ordering::Acquire), given);
        assert!((1..=given).contains(&packets), "{packets} of {given}");
        println!(
            "{queues} queues: {WINDOWS} windows, {grown} of them with packets between all reads, {packets} of {given} packets"
        );
        drop(control);
        drop(Device::open(&eal(), &name, Queues { receive: queues, send: 0 }).unwrap());
    }
}

fn send(sender: &mut DpdkSender, generator: &Generator, numbers: Range<u64>) {
    let mut frame = generator.template().to_vec();
    for number in numbers {
        generator.fill(number, &mut frame);
        sender.send(&frame).unwrap();
    }
    sender.flush().unwrap();
}

#[test]
fn a_sender_writes_every_frame_of_a_profile() {
    const PACKETS: u64 = 20_000;
    let scratch = Scratch::new();
    let path = scratch.file("out.pcap");
    let generator = Generator::new(profile("subnets,size=200"));
    let device = format!("net_pcap{},tx_pcap={}", number(), path.display());
    let mut sender = DpdkSender::new(&device, Some(EAL)).unwrap();
    assert!(sender.largest() >= 1514);
    assert!(sender.send(&vec![0; sender.largest() + 1]).is_err());
    send(&mut sender, &generator, 0..PACKETS);
    assert_eq!(sender.dropped(), 0);
    drop(sender);

    let (written, damage) = walk(&fs::read(&path).unwrap());
    assert_eq!((written.len() as u64, damage), (PACKETS, None));
    let mut expected = generator.template().to_vec();
    for (index, (frame, _)) in (0..).zip(&written) {
        generator.fill(index, &mut expected);
        assert_eq!(frame.bytes, expected, "frame {index}");
    }
}

/// The queue overflows while its worker stalls; later packets find room again.
#[test]
fn what_a_stalled_worker_misses_is_reported_to_the_frame() {
    on_veth(|| {
        const PACKETS: u64 = 10_000;
        let [receiver, sender] = [RECEIVER, SENDER]
            .map(|(interface, _)| format!("net_af_xdp{},iface={interface}", number()));
        let (ports, counter) = counted(dpdk(&receiver, Some(EAL), 1).unwrap());
        let mut poll = opened(ports);
        let mut sender = DpdkSender::new(&sender, Some(EAL)).unwrap();
        let generator = Generator::new(profile("unique"));
        let lost = |poll: &mut Poll| poll.losses().unwrap().get(LossCause::Device);
        send(&mut sender, &generator, 0..PACKETS);
        // The kernel delivers packets soon after they were sent: the device's own counters show
        // when all have arrived.
        until(|| received() + dropped() >= PACKETS);
        let missed = lost(&mut poll);
        assert!(missed > 0, "{PACKETS} packets fit into the queue");

        let mut poll = with_tables(poll);
        let there = PACKETS - missed - dropped();
        wait_for(&counter, there);
        let window = poll.rotate().unwrap();
        println!("{PACKETS} sent, {missed} missed, {} dropped on the way", dropped());
        assert_eq!(window.packets_after, there);
        send(&mut sender, &generator, 0..100);
        wait_for(&counter, there + 100);
        assert_eq!(poll.rotate().unwrap().packets_after, 100);
        assert_eq!(lost(&mut poll), missed);
        let (received, _) = received_exactly(&mut poll);
        assert_eq!(received, there + 100 + missed, "counted and lost");
    });
}

#[test]
fn a_link_that_goes_down_is_reported_once() {
    let device = open("net_ring", "", Queues { receive: 1, send: 0 }).unwrap();
    let control = Arc::clone(&device.control);
    let mut poll = started(dpdk_device(device));
    for _ in 0..2 {
        control.set_link(true).unwrap();
        assert_eq!(poll.events().unwrap(), []);
        control.set_link(false).unwrap();
        let [Event::Warning(warning)] = &poll.events().unwrap()[..] else { panic!("no warning") };
        assert!(warning.contains("the link went down"), "{warning}");
        assert_eq!(poll.events().unwrap(), []);
    }
}

#[test]
fn a_failed_open_says_why() {
    let problem = |devargs: &str, workers| match dpdk(devargs, Some(EAL), workers) {
        Err(Error::Port { port, problem }) => {
            assert_eq!(port, format!("dpdk:{devargs}"));
            assert!(!problem.contains('\n'), "{problem}");
            problem
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("{devargs}: opened"),
    };
    for (devargs, workers, expected) in [
        ("net_nosuch0", 1, "net_nosuch0"),
        ("0000:7f:1f.7", 1, "Cannot find device (0000:7f:1f.7)"),
        ("net_pcap_x,rx_pcap=/does/not/exist.pcap", 1, "No such file or directory"),
        ("net_ring_x", 1000, "of the 1000 receive queues asked for; use --workers"),
        ("net_null_x\0", 1, "zero byte"),
    ] {
        let said = problem(devargs, workers);
        assert!(said.contains(expected), "{devargs}: {said}");
    }
    // A failed device is closed, and can be opened with correct options.
    let name = "net_ring_x";
    let first = dpdk(name, Some(EAL), 1).unwrap();
    assert_eq!(first.interface, "dpdk:net_ring_x");
    assert!(problem(name, 1).contains("in use by this process"));
    drop(first);
    let Device { receive, .. } =
        Device::open(&eal(), name, Queues { receive: 2, send: 0 }).unwrap();
    assert_eq!(receive.len(), 2);
}
