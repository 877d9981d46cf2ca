//! The XDP backend on real interfaces: veth pairs in a network of the test's own, which vanishes
//! with its thread.

use flowgauge_core::cardinality::Mode as Registers;
use flowgauge_core::delay::{self, DelayKind, Kinds};
use flowgauge_core::{KeyKind, Precision, Settings, cardinality};
use flowgauge_dataplane::poll::port::{FrameSender, Outlet};
use flowgauge_dataplane::xdp::{
    DIRECTORY, DeviceCounters, Mode, Options, Retention, WaitMethod, Xdp, detach,
};
use flowgauge_dataplane::{
    Adopted, CountingPoint, Dataplane, Direction, Error, Event, LossCause, Snapshot, Tables,
};
use flowgauge_testing::extent;
use flowgauge_testing::wait::until_some;
use flowgauge_testing::{on_veth, skip};
use flowgauge_traffic::frame::{IPV4, Ip, TAG, UDP, ethernet};
use flowgauge_traffic::kernel::{Conversation, ROUND_TRIP, Sender};
use flowgauge_traffic::veth::{self, RECEIVER, SENDER, ip};
use flowgauge_traffic::{Generator, Profile, Sources};
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

fn ingress() -> CountingPoint {
    CountingPoint::ingress(RECEIVER.0)
}

fn egress() -> CountingPoint {
    CountingPoint { interface: SENDER.0.to_owned(), direction: Direction::Egress }
}

fn options() -> Options {
    Options { mode: Some(Mode::Native), ..Options::new(Settings::default()) }
}

fn kept(adopt: bool) -> Options {
    Options {
        pins: Some(Retention { directory: DIRECTORY.into(), adopt, leave: false }),
        ..options()
    }
}

/// Returns options that leave the same state as a killed process.
fn doomed(adopt: bool) -> Options {
    Options {
        pins: Some(Retention { directory: DIRECTORY.into(), adopt, leave: true }),
        ..options()
    }
}

fn tables_of(options: &Options) -> Tables {
    Tables::new(&options.settings, 1)
}

fn started(places: Vec<CountingPoint>, options: Options) -> Xdp {
    let tables = tables_of(&options);
    let mut xdp = Xdp::at(places, options);
    assert_eq!(xdp.install(&tables).unwrap(), None);
    xdp
}

fn socket() -> UdpSocket {
    UdpSocket::bind((SENDER.1, 0)).unwrap()
}

fn send(socket: &UdpSocket, packets: u64) {
    for _ in 0..packets {
        socket.send_to(&[0; 18], (RECEIVER.1, 9)).unwrap();
    }
}

/// Counts packets that must arrive but have not yet: the kernel delivers them soon after they were
/// sent.
fn collect(xdp: &mut Xdp, missing: u64) -> u64 {
    let mut counted = 0;
    // Every rotation waits for a grace period, in which a CPU delivers its pending packets.
    for _ in 0..100 {
        if counted >= missing {
            break;
        }
        counted += xdp.rotate().unwrap().bank.counters.ipv4;
    }
    counted
}

/// Background traffic that continues until all rounds of sending are over.
struct Traffic {
    sent: Arc<AtomicU64>,
    stop: Arc<AtomicU64>,
    sender: JoinHandle<()>,
}

impl Traffic {
    /// Sends from a thread, which is in the test's network like the thread that starts it.
    fn start(mut batch: impl FnMut() -> u64 + Send + 'static) -> Self {
        let (sent, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let (total, stopped) = (Arc::clone(&sent), Arc::clone(&stop));
        let sender = thread::spawn(move || {
            while stopped.load(Ordering::Relaxed) == 0 {
                total.fetch_add(batch(), Ordering::Relaxed);
            }
        });
        Traffic { sent, stop, sender }
    }

    fn stop(self) -> u64 {
        self.stop.store(1, Ordering::Relaxed);
        self.sender.join().unwrap();
        self.sent.load(Ordering::Relaxed)
    }
}

/// Sends as fast as the kernel can: some million packets a second.
fn live_frames() -> impl FnMut() -> u64 + Send {
    let generator = Generator::new(Profile::new(Sources::Unique));
    let mut sender = Sender::new(SENDER.0, generator.template(), 100_000).unwrap();
    move || {
        sender.send(1 << 14).unwrap();
        1 << 14
    }
}

fn datagrams() -> impl FnMut() -> u64 + Send {
    let socket = socket();
    move || {
        send(&socket, 256);
        256
    }
}

/// Number of rotations under traffic.
fn rotations() -> u64 {
    extent(200, 1000)
}

/// Rotates under traffic; every packet must be in one window. Returns their number.
fn rotate_under(xdp: &mut Xdp, traffic: Traffic) -> (u64, u64) {
    let mut counted = 0;
    for window in 0..rotations() {
        let snapshot = xdp.rotate().unwrap();
        counted += snapshot.bank.counters.packets();
        xdp.published(window).unwrap();
    }
    let sent = traffic.stop();
    (counted, sent)
}

#[test]
fn native_ingress_loses_nothing_at_the_highest_rate() {
    on_veth(|| {
        native_ingress_loses_nothing(options());
    });
}

/// The second method to wait for packets in flight, for kernels without the first.
#[test]
fn native_ingress_loses_nothing_when_rotations_wait_by_a_map_of_maps() {
    on_veth(|| {
        native_ingress_loses_nothing(Options { wait: Some(WaitMethod::MapOfMaps), ..options() })
    });
}

fn native_ingress_loses_nothing(options: Options) {
    let mut xdp = started(vec![ingress()], options);
    let before = DeviceCounters::read(RECEIVER.0).unwrap();
    let (mut counted, sent) = rotate_under(&mut xdp, Traffic::start(live_frames()));
    counted += collect(&mut xdp, sent - counted.min(sent));
    // Packets that the receiver had no room for never reached it: veth drops them when its ring is
    // full.
    let after = DeviceCounters::read(RECEIVER.0).unwrap();
    let received = after.received - before.received;
    let dropped = DeviceCounters::read(SENDER.0).unwrap().send_dropped;
    println!(
        "{sent} sent, {dropped} dropped by the sender, {received} received, {counted} counted"
    );
    assert_eq!(counted, received);
    assert_eq!(counted + dropped, sent);
}

#[test]
fn generic_ingress_loses_nothing() {
    on_veth(|| {
        let mut xdp = started(vec![ingress()], Options { mode: Some(Mode::Skb), ..options() });
        // A veth device accepts live frames only if it merges packets or runs a native program.
        let merges = Command::new("ethtool").args(["-K", RECEIVER.0, "gro", "on"]).output();
        if !merges.is_ok_and(|output| output.status.success()) {
            skip("ethtool to send at the highest rate");
            let (mut counted, sent) = rotate_under(&mut xdp, Traffic::start(datagrams()));
            counted += collect(&mut xdp, sent - counted.min(sent));
            return assert_eq!(counted, sent);
        }
        let before = DeviceCounters::read(RECEIVER.0).unwrap().received;
        let (mut counted, sent) = rotate_under(&mut xdp, Traffic::start(live_frames()));
        counted += collect(&mut xdp, sent - counted.min(sent));
        let received = DeviceCounters::read(RECEIVER.0).unwrap().received - before;
        println!("{sent} sent, {received} received, {counted} counted");
        assert!(counted > sent / 2);
        assert_eq!(counted, received);
    });
}

#[test]
fn tcx_ingress_loses_nothing_beside_another_xdp_program() {
    on_veth(|| {
        // The other program passes everything.
        let _other = started(vec![ingress()], options());
        let mut xdp = started(vec![ingress()], Options { mode: Some(Mode::Tcx), ..options() });
        let before = DeviceCounters::read(RECEIVER.0).unwrap();
        let (mut counted, sent) = rotate_under(&mut xdp, Traffic::start(live_frames()));
        let dropped = || DeviceCounters::read(SENDER.0).unwrap().send_dropped;
        counted += collect(&mut xdp, (sent - dropped()).saturating_sub(counted));
        let received = DeviceCounters::read(RECEIVER.0).unwrap().received - before.received;
        println!(
            "{sent} sent, {} dropped by the sender, {received} received, {counted} counted",
            dropped()
        );
        assert_eq!((counted, counted + dropped()), (received, sent));
    });
}

#[test]
fn a_vlan_tag_that_the_kernel_took_out_is_a_part_of_the_packet() {
    for mode in [Mode::Native, Mode::Tcx, Mode::Clsact] {
        on_veth(move || {
            let mut xdp = started(
                vec![ingress()],
                Options { mode: Some(mode), settings: five_tuples(), ..options() },
            );
            let mut sender = FrameSender::new(SENDER.0).unwrap();
            let mut lengths = 0;
            for tags in 0..3 {
                let packet = Ip::new([10, 77, 0, 1], [10, 77, 0, 2], UDP)
                    .packet(&[0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0]);
                let mut frame = ethernet(&vec![TAG; tags], IPV4, &packet);
                frame.resize(100 + 4 * tags, 0);
                lengths += frame.len() as u64;
                sender.send(&frame).unwrap();
            }
            sender.finish().unwrap();
            let mut counted = (0, 0);
            for _ in 0..100 {
                let counters = xdp.rotate().unwrap().bank.counters;
                counted = (counted.0 + counters.ipv4, counted.1 + counters.bytes);
                if counted.0 == 3 {
                    break;
                }
            }
            assert_eq!(counted, (3, lengths), "{mode:?}");
        });
    }
}

#[test]
fn ingress_and_egress_lose_nothing() {
    on_veth(|| {
        let mut xdp = started(vec![egress(), ingress()], options());
        let traffic = Traffic::start(datagrams());
        let mut counted = [0, 0];
        for _ in 0..rotations() {
            let snapshot = xdp.rotate().unwrap();
            assert_eq!(snapshot.parts.len(), 2);
            assert_eq!(snapshot.bank.counters.packets(), packets(&snapshot).iter().sum::<u64>());
            counted.iter_mut().zip(packets(&snapshot)).for_each(|(all, new)| *all += new);
        }
        let sent = traffic.stop();
        for _ in 0..100 {
            if counted == [sent, sent] {
                break;
            }
            counted
                .iter_mut()
                .zip(packets(&xdp.rotate().unwrap()))
                .for_each(|(all, new)| *all += new);
        }
        println!("{sent} sent, {counted:?} counted");
        assert_eq!(counted, [sent, sent]);
        assert_eq!(xdp.losses().unwrap().get(LossCause::DeviceError), 0);
    });
}

fn packets(snapshot: &Snapshot) -> Vec<u64> {
    snapshot.parts.iter().map(|part| part.snapshot.bank.counters.packets()).collect()
}

#[test]
fn places_count_separately_and_in_sum() {
    on_veth(|| {
        veth::pair(("tx2", "10.78.0.1"), ("rx.2", "10.78.0.2")).unwrap();
        let places = vec![ingress(), CountingPoint::ingress("rx.2")];
        let mut xdp = started(places.clone(), Options { settings: five_tuples(), ..options() });
        assert_eq!(xdp.capabilities().places, places);
        assert_eq!(xdp.capabilities().interface, "rx,rx.2");
        send(&socket(), 3);
        let other = UdpSocket::bind("10.78.0.1:0").unwrap();
        for _ in 0..5 {
            other.send_to(&[0; 18], "10.78.0.2:9").unwrap();
        }
        let mut counted = vec![0, 0];
        let mut registers = 0;
        for _ in 0..100 {
            let snapshot = xdp.rotate().unwrap();
            counted.iter_mut().zip(packets(&snapshot)).for_each(|(all, new)| *all += new);
            registers += set(&snapshot);
            let apart: usize = snapshot.parts.iter().map(|part| set(&part.snapshot)).sum();
            assert_eq!(apart, set(&snapshot), "two flows, each seen at one place");
            if counted == [3, 5] {
                break;
            }
        }
        assert_eq!(counted, [3, 5]);
        assert!((2..=4).contains(&registers), "{registers} registers of two flows");
    });
}

fn five_tuples() -> Settings {
    let mut settings = Settings::default();
    settings.cardinality.key = KeyKind::FiveTuple;
    settings
}

fn set(snapshot: &Snapshot) -> usize {
    let levels = snapshot.bank.cardinality.levels(Precision::default());
    levels.iter().filter(|&&level| level > 0).count()
}

/// Returns a sample that includes a packet.
fn seen(xdp: &mut Xdp) -> Snapshot {
    let seen = |sample: &Snapshot| sample.bank.counters.ipv4 > 0;
    until_some(|| Some(xdp.sample().unwrap()).filter(seen))
}

#[test]
fn a_sample_shows_the_source_that_was_seen() {
    on_veth(|| {
        let mut xdp = started(vec![ingress()], options());
        send(&socket(), 1);
        let seen = seen(&mut xdp);
        let source = flowgauge_core::hash::crc32(&[10, 77, 0, 1]);
        let expected = Precision::default().split(tables_of(&options()).tabulation.hash(source));
        let levels = seen.bank.cardinality.levels(Precision::default());
        assert_eq!(levels[expected.0], expected.1);
        assert_eq!(set(&seen), 1);
    });
}

#[test]
fn staggered_registers_follow_the_wall_clock() {
    on_veth(|| {
        let mut settings = Settings::default();
        settings.cardinality.mode = Registers::Staggered;
        // A slot is so long that a register of this size lives for hours.
        let slot_ns = 10_000_000_000;
        let mut xdp = started(vec![ingress()], Options { settings, slot_ns, ..options() });
        let slot = || {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            (now.as_nanos() / u128::from(slot_ns)) as u32
        };
        let before = slot();
        send(&socket(), 1);
        let registers = seen(&mut xdp).persistent.unwrap().cardinality;
        // A slot may end while the packet is on its way.
        let live = |slot: u32| {
            registers.levels(Precision::default(), slot).filter(|&level| level > 0).count()
        };
        assert!(live(before) == 1 || live(slot()) == 1);
        assert_eq!(live(before.wrapping_add(2 * 2048)), 0, "its round is over");
    });
}

fn nothing_is_left() {
    for device in [RECEIVER.0, SENDER.0] {
        let output =
            Command::new("ip").args(["-details", "link", "show", device]).output().unwrap();
        assert!(
            !String::from_utf8_lossy(&output.stdout).contains("xdp/id"),
            "a program is left behind on {device}"
        );
    }
    assert!(!Path::new(DIRECTORY).exists(), "pins are left behind");
}

#[test]
fn an_interface_is_left_as_it_was() {
    on_veth(|| {
        for pins in [options().pins, kept(false).pins, kept(true).pins] {
            let xdp = started(vec![ingress(), egress()], Options { pins, ..options() });
            drop(xdp);
            nothing_is_left();
        }
    });
}

fn refusal(interface: &str, options: Options) -> String {
    let tables = tables_of(&options);
    match Xdp::at(vec![CountingPoint::ingress(interface)], options).install(&tables) {
        Err(error @ (Error::Kernel { .. } | Error::Pins { .. })) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn refusals_say_what_to_do_and_leave_nothing_behind() {
    on_veth(|| {
        assert!(refusal("nowhere", kept(false)).contains("no such interface"));
        assert!(
            refusal("lo", kept(false)).contains("--xdp-mode skb"),
            "loopback has no native mode"
        );
        nothing_is_left();
        let mut elsewhere = kept(false);
        elsewhere.pins.as_mut().unwrap().directory = "/dev/shm/no-bpf-file-system".into();
        let said = refusal("rx", elsewhere);
        assert!(said.contains("mount -t bpf"), "{said}");
        assert!(!Path::new("/dev/shm/no-bpf-file-system").exists());
        let first = started(vec![ingress()], options());
        let said = refusal("rx", kept(false));
        assert!(said.contains("another XDP program"), "{said}");
        drop(first);
        nothing_is_left();
    });
}

#[test]
fn two_at_one_place_do_not_mix() {
    on_veth(|| {
        let mut first = started(vec![ingress()], kept(false));
        for adopt in [false, true] {
            let said = refusal("rx", kept(adopt));
            assert!(said.contains("another flowgauge is counting rx ingress"), "{said}");
        }
        assert!(
            detach(Path::new(DIRECTORY), None)
                .unwrap_err()
                .to_string()
                .contains("another flowgauge is counting")
        );
        send(&socket(), 10);
        assert_eq!(collect(&mut first, 10), 10, "the first continues undisturbed");
    });
}

fn adopted(places: Vec<CountingPoint>, options: Options) -> (Xdp, Adopted) {
    let tables = tables_of(&options);
    let mut xdp = Xdp::at(places, options);
    let adopted = xdp.install(&tables).unwrap().expect("something to adopt");
    (xdp, adopted)
}

#[test]
fn adoption_continues_where_the_other_was_killed() {
    on_veth(|| {
        let places = vec![ingress(), egress()];
        let mut first = started(places.clone(), doomed(false));
        let socket = socket();
        send(&socket, 10);
        assert_eq!(collect(&mut first, 20), 20, "ten on either way");
        first.published(41).unwrap();
        // Killed between two rotations: packets since the last one are in the open window.
        send(&socket, 7);
        drop(first);
        send(&socket, 5);
        let (mut second, found) = adopted(places.clone(), doomed(true));
        assert_eq!((found.open_windows.len(), found.next_window), (1, 42));
        assert_eq!(collect(&mut second, 24), 24);
        // Killed after a rotation that was not published.
        second.published(42).unwrap();
        send(&socket, 3);
        while seen(&mut second).bank.counters.ipv4 < 6 {}
        assert_eq!(packets(&second.rotate().unwrap()), [3, 3]);
        send(&socket, 2);
        drop(second);
        let (mut third, found) = adopted(places.clone(), kept(true));
        assert_eq!((found.open_windows.len(), found.next_window), (2, 43));
        assert!(found.open_windows[0] < found.open_windows[1]);
        assert_eq!(packets(&third.rotate().unwrap()), [3, 3], "the unpublished window once more");
        assert_eq!(collect(&mut third, 4), 4);
        drop(third);
        nothing_is_left();
    });
}

#[test]
fn leaving_in_order_can_be_adopted_as_well() {
    on_veth(|| {
        let mut first = started(vec![ingress()], doomed(true));
        send(&socket(), 4);
        assert_eq!(collect(&mut first, 4), 4);
        first.published(0).unwrap();
        drop(first);
        send(&socket(), 6);
        let (mut second, _) = adopted(vec![ingress()], doomed(true));
        assert_eq!(collect(&mut second, 6), 6);
        drop(second);
        assert!(Path::new(DIRECTORY).exists());
        assert_eq!(detach(Path::new(DIRECTORY), Some("elsewhere")).unwrap(), [""; 0]);
        assert_eq!(detach(Path::new(DIRECTORY), Some("rx")).unwrap(), ["rx ingress"]);
        nothing_is_left();
    });
}

#[test]
fn only_the_same_measurement_is_adopted() {
    on_veth(|| {
        drop(started(vec![ingress()], doomed(false)));
        let said = refusal("rx", kept(false));
        assert!(said.contains("--adopt") && said.contains("flowgauge detach"), "{said}");
        let said = refusal("rx", Options { settings: five_tuples(), ..kept(true) });
        assert!(said.contains("it counts with --key src, not five-tuple"), "{said}");
        // Another hook would count other packets.
        let said = refusal("rx", Options { mode: Some(Mode::Tcx), ..kept(true) });
        assert!(said.contains("it counts with --xdp-mode native, not tcx"), "{said}");
        // The refusals have changed nothing.
        send(&socket(), 8);
        let (mut xdp, _) = adopted(vec![ingress()], doomed(true));
        assert_eq!(collect(&mut xdp, 8), 8);
        drop(xdp);
        ip("link del dev rx").unwrap();
        veth::pair(SENDER, RECEIVER).unwrap();
        // The counts of the earlier interface are gone with it.
        drop(started(vec![ingress()], kept(true)));
        nothing_is_left();
    });
}

#[test]
fn an_interface_that_vanishes_is_reported_once() {
    on_veth(|| {
        let mut xdp = started(vec![ingress()], options());
        assert_eq!(xdp.events().unwrap(), []);
        ip("link del dev rx").unwrap();
        // A new interface of the same name is a different one.
        veth::pair(SENDER, RECEIVER).unwrap();
        let events = xdp.events().unwrap();
        assert!(
            matches!(&events[..], [Event::Warning(warning), Event::TrafficEnded] if warning.contains("is gone")),
            "{events:?}"
        );
        assert_eq!(xdp.events().unwrap(), []);
        xdp.rotate().unwrap();
    });
}

/// The load that `flowgauge bench xdp` measures delays with.
#[test]
fn every_request_of_a_conversation_is_new_and_is_answered() {
    const PACKETS: u32 = 20_000;
    for (admit_log2, kept) in [(0, 1.0), (4, 1.0 / 16.0)] {
        let off = cardinality::Settings { mode: Registers::Off, ..cardinality::Settings::DEFAULT };
        let delays = delay::Settings {
            kinds: Kinds::NONE.with(DelayKind::TcpData),
            admit_log2,
            slots_log2: 12,
            ..delay::Settings::DEFAULT
        };
        let settings = Settings { delay: delays, ..Settings::only(off) };
        let mut xdp = Xdp::detached(Direction::Ingress, Options::new(settings));
        match xdp.install(&Tables::new(&settings, 1)) {
            Err(Error::Kernel { problem, .. }) if problem.contains("it takes root") => {
                return skip("the right to load XDP programs");
            }
            outcome => assert_eq!(outcome.unwrap(), None),
        }
        let mut conversation = Conversation::new(&xdp.injector()).unwrap();
        conversation.go_on(PACKETS).unwrap();
        let closed = xdp.rotate().unwrap();
        let counts = closed.bank.delay.counts(&delays, DelayKind::TcpData, false);
        let requests = u64::from(PACKETS / 2);
        // 10,000 requests, each admitted with this probability: six standard deviations.
        let spread = 6.0 * (requests as f64 * kept * (1.0 - kept)).sqrt();
        assert_eq!(
            (closed.bank.counters.packets(), counts.requests),
            (u64::from(PACKETS), requests)
        );
        assert!((counts.admitted as f64 - requests as f64 * kept).abs() <= spread, "{counts:?}");
        let seen: u64 = closed
            .bank
            .delay
            .histogram(&delays, DelayKind::TcpData, false, 0)
            .unwrap()
            .buckets()
            .iter()
            .map(|bucket| u64::from(bucket.samples))
            .sum();
        // The requests of the last round trip still wait for their answers. 64 waiting requests
        // share 4,096 slots: few overwrite each other.
        let lost = counts.admitted - seen;
        assert!(lost <= u64::from(ROUND_TRIP) / 2 + counts.admitted / 20, "{seen} of {counts:?}");
    }
}
