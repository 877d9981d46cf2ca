//! The XDP backend on real interfaces: veth pairs in a network of the test's own, which vanishes
//! with its thread.

use crate::common::delays::buckets;
use crate::common::devices::{assert_no_program, on_veth_with, send};
use crate::common::kernel::{
    add_apart, counted as packets, counted_apart, counted_until, detached, dropped, egress,
    in_mode, ingress, installed, pinned, received, refusal, started,
};
use crate::common::{assert_contains, five_tuples, only_delays};
use flowgauge_core::cardinality::Mode as Registers;
use flowgauge_core::delay::{self, DelayKind, Kinds};
use flowgauge_core::{Precision, Settings};
use flowgauge_dataplane::poll::port::{FrameSender, Outlet};
use flowgauge_dataplane::xdp::{DIRECTORY, Mode, Options, WaitMethod, Xdp, detach};
use flowgauge_dataplane::{
    Adopted, CountingPoint, Dataplane, Direction, Event, LossCause, Snapshot, Tables,
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

fn options() -> Options {
    in_mode(Mode::Native)
}

fn kept(adopt: bool) -> Options {
    Options { pins: pinned(adopt, false), ..options() }
}

/// Returns options that leave the same state as a killed process.
fn doomed(adopt: bool) -> Options {
    Options { pins: pinned(adopt, true), ..options() }
}

/// Counts packets that must arrive but have not yet.
fn collect(xdp: &mut Xdp, missing: u64) -> u64 {
    counted_until(xdp, missing).ipv4
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
    || {
        send(256);
        256
    }
}

/// Number of rotations under traffic.
fn rotations() -> u64 {
    extent(200, 1000)
}

/// Packets of some traffic.
struct Total {
    sent: u64,
    /// Packets that the receiver had no room for and never saw: veth drops them when its ring is
    /// full.
    dropped: u64,
    received: u64,
    counted: u64,
}

/// Rotates under traffic, until everything has arrived.
fn rotate_under(xdp: &mut Xdp, start: impl FnOnce() -> Traffic) -> Total {
    let (before, mut counted) = (received(), 0);
    let traffic = start();
    for window in 0..rotations() {
        counted += packets(&xdp.rotate().unwrap());
        xdp.published(window).unwrap();
    }
    let sent = traffic.stop();
    counted += collect(xdp, sent - counted.min(sent));
    let (received, dropped) = (received() - before, dropped());
    println!("{sent} sent, {dropped} dropped, {received} received, {counted} counted");
    Total { sent, dropped, received, counted }
}

/// Checks that every packet sent at the highest rate is counted, if the receiver has room for it.
fn loses_nothing(xdp: &mut Xdp) {
    let Total { sent, dropped, received, counted } =
        rotate_under(xdp, || Traffic::start(live_frames()));
    assert_eq!((counted, counted + dropped), (received, sent));
}

#[test]
fn native_ingress_loses_nothing_at_the_highest_rate() {
    on_veth(|| {
        loses_nothing(&mut started(vec![ingress()], options()));
    });
}

/// The second method to wait for packets in flight, for kernels without the first.
#[test]
fn native_ingress_loses_nothing_when_rotations_wait_by_a_map_of_maps() {
    on_veth(|| {
        let options = Options { wait: Some(WaitMethod::MapOfMaps), ..options() };
        loses_nothing(&mut started(vec![ingress()], options));
    });
}

#[test]
fn generic_ingress_loses_nothing() {
    on_veth(|| {
        let mut xdp = started(vec![ingress()], in_mode(Mode::Skb));
        // A veth device accepts live frames only if it merges packets or runs a native program.
        let merges = Command::new("ethtool").args(["-K", RECEIVER.0, "gro", "on"]).output();
        if !merges.is_ok_and(|output| output.status.success()) {
            skip("ethtool to send at the highest rate");
            let total = rotate_under(&mut xdp, || Traffic::start(datagrams()));
            return assert_eq!(total.counted, total.sent);
        }
        let Total { sent, received, counted, .. } =
            rotate_under(&mut xdp, || Traffic::start(live_frames()));
        assert!(counted > sent / 2);
        assert_eq!(counted, received);
    });
}

#[test]
fn tcx_ingress_loses_nothing_beside_another_xdp_program() {
    on_veth(|| {
        // The other program passes everything.
        let _other = started(vec![ingress()], options());
        loses_nothing(&mut started(vec![ingress()], in_mode(Mode::Tcx)));
    });
}

#[test]
fn a_vlan_tag_that_the_kernel_took_out_is_a_part_of_the_packet() {
    on_veth_with([Mode::Native, Mode::Tcx, Mode::Clsact], |mode| {
        let options = Options { settings: five_tuples(), ..in_mode(mode) };
        let mut xdp = started(vec![ingress()], options);
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
        let counters = counted_until(&mut xdp, 3);
        assert_eq!((counters.ipv4, counters.bytes), (3, lengths), "{mode:?}");
    });
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
            assert_eq!(counted_apart(&snapshot).iter().sum::<u64>(), packets(&snapshot));
            add_apart(&mut counted, &snapshot);
        }
        let sent = traffic.stop();
        for _ in 0..100 {
            if counted == [sent, sent] {
                break;
            }
            add_apart(&mut counted, &xdp.rotate().unwrap());
        }
        println!("{sent} sent, {counted:?} counted");
        assert_eq!(counted, [sent, sent]);
        assert_eq!(xdp.losses().unwrap().get(LossCause::DeviceError), 0);
    });
}

#[test]
fn places_count_separately_and_in_sum() {
    on_veth(|| {
        veth::pair(("tx2", "10.78.0.1"), ("rx.2", "10.78.0.2")).unwrap();
        let places = vec![ingress(), CountingPoint::ingress("rx.2")];
        let mut xdp = started(places.clone(), Options { settings: five_tuples(), ..options() });
        assert_eq!(xdp.capabilities().places, places);
        assert_eq!(xdp.capabilities().interface, "rx,rx.2");
        send(3);
        let other = UdpSocket::bind("10.78.0.1:0").unwrap();
        for _ in 0..5 {
            other.send_to(&[0; 18], "10.78.0.2:9").unwrap();
        }
        let mut counted = [0, 0];
        let mut registers = 0;
        for _ in 0..100 {
            let snapshot = xdp.rotate().unwrap();
            add_apart(&mut counted, &snapshot);
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
        send(1);
        let seen = seen(&mut xdp);
        let source = flowgauge_core::hash::crc32(&[10, 77, 0, 1]);
        let tables = Tables::new(&Settings::default(), 1);
        let expected = Precision::default().split(tables.tabulation.hash(source));
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
        send(1);
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
    [RECEIVER.0, SENDER.0].into_iter().for_each(assert_no_program);
    assert!(!Path::new(DIRECTORY).exists(), "pins are left behind");
}

#[test]
fn an_interface_is_left_as_it_was() {
    on_veth(|| {
        for options in [options(), kept(false), kept(true)] {
            drop(started(vec![ingress(), egress()], options));
            nothing_is_left();
        }
    });
}

#[test]
fn refusals_say_what_to_do_and_leave_nothing_behind() {
    on_veth(|| {
        let refused =
            |interface: &str, options| refusal(CountingPoint::ingress(interface), options);
        assert_contains(&refused("nowhere", kept(false)), &["no such interface"]);
        // Loopback has no native mode.
        assert_contains(&refused("lo", kept(false)), &["--xdp-mode skb"]);
        nothing_is_left();
        let mut elsewhere = kept(false);
        elsewhere.pins.as_mut().unwrap().directory = "/dev/shm/no-bpf-file-system".into();
        assert_contains(&refusal(ingress(), elsewhere), &["mount -t bpf"]);
        assert!(!Path::new("/dev/shm/no-bpf-file-system").exists());
        let first = started(vec![ingress()], options());
        assert_contains(&refusal(ingress(), kept(false)), &["another XDP program"]);
        drop(first);
        nothing_is_left();
    });
}

#[test]
fn two_at_one_place_do_not_mix() {
    on_veth(|| {
        let mut first = started(vec![ingress()], kept(false));
        for adopt in [false, true] {
            let said = refusal(ingress(), kept(adopt));
            assert_contains(&said, &["another flowgauge is counting rx ingress"]);
        }
        let error = detach(Path::new(DIRECTORY), None).unwrap_err().to_string();
        assert_contains(&error, &["another flowgauge is counting"]);
        send(10);
        assert_eq!(collect(&mut first, 10), 10, "the first continues undisturbed");
    });
}

fn adopted(places: Vec<CountingPoint>, options: Options) -> (Xdp, Adopted) {
    let (xdp, adopted) = installed(places, options);
    (xdp, adopted.expect("something to adopt"))
}

#[test]
fn adoption_continues_where_the_other_was_killed() {
    on_veth(|| {
        let places = vec![ingress(), egress()];
        let mut first = started(places.clone(), doomed(false));
        send(10);
        assert_eq!(collect(&mut first, 20), 20, "ten on either way");
        first.published(41).unwrap();
        // Killed between two rotations: packets since the last one are in the open window.
        send(7);
        drop(first);
        send(5);
        let (mut second, found) = adopted(places.clone(), doomed(true));
        assert_eq!((found.open_windows.len(), found.next_window), (1, 42));
        assert_eq!(collect(&mut second, 24), 24);
        // Killed after a rotation that was not published.
        second.published(42).unwrap();
        send(3);
        while seen(&mut second).bank.counters.ipv4 < 6 {}
        assert_eq!(counted_apart(&second.rotate().unwrap()), [3, 3]);
        send(2);
        drop(second);
        let (mut third, found) = adopted(places.clone(), kept(true));
        assert_eq!((found.open_windows.len(), found.next_window), (2, 43));
        assert!(found.open_windows[0] < found.open_windows[1]);
        let again = counted_apart(&third.rotate().unwrap());
        assert_eq!(again, [3, 3], "the unpublished window once more");
        assert_eq!(collect(&mut third, 4), 4);
        drop(third);
        nothing_is_left();
    });
}

#[test]
fn leaving_in_order_can_be_adopted_as_well() {
    on_veth(|| {
        let mut first = started(vec![ingress()], doomed(true));
        send(4);
        assert_eq!(collect(&mut first, 4), 4);
        first.published(0).unwrap();
        drop(first);
        send(6);
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
        let said = refusal(ingress(), kept(false));
        assert_contains(&said, &["--adopt", "flowgauge detach"]);
        let said = refusal(ingress(), Options { settings: five_tuples(), ..kept(true) });
        assert_contains(&said, &["it counts with --key src, not five-tuple"]);
        // Another hook would count other packets.
        let said = refusal(ingress(), Options { mode: Some(Mode::Tcx), ..kept(true) });
        assert_contains(&said, &["it counts with --xdp-mode native, not tcx"]);
        // The refusals have changed nothing.
        send(8);
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
        let [Event::Warning(warning), Event::TrafficEnded] = &events[..] else {
            panic!("{events:?}")
        };
        assert_contains(warning, &["is gone"]);
        assert_eq!(xdp.events().unwrap(), []);
        xdp.rotate().unwrap();
    });
}

/// The load that `flowgauge bench xdp` measures delays with.
#[test]
fn every_request_of_a_conversation_is_new_and_is_answered() {
    const PACKETS: u32 = 20_000;
    for (admit_log2, kept) in [(0, 1.0), (4, 1.0 / 16.0)] {
        let kinds = Kinds::NONE.with(DelayKind::TcpData);
        let delays =
            delay::Settings { kinds, admit_log2, slots_log2: 12, ..delay::Settings::DEFAULT };
        let options = Options::new(only_delays(delays));
        let Some(mut xdp) = detached(Direction::Ingress, options) else { return };
        let mut conversation = Conversation::new(&xdp.injector()).unwrap();
        conversation.go_on(PACKETS).unwrap();
        let closed = xdp.rotate().unwrap();
        let counts = closed.bank.delay.counts(&delays, DelayKind::TcpData, false);
        let requests = u64::from(PACKETS / 2);
        // 10,000 requests, each admitted with this probability: six standard deviations.
        let spread = 6.0 * (requests as f64 * kept * (1.0 - kept)).sqrt();
        assert_eq!((packets(&closed), counts.requests), (u64::from(PACKETS), requests));
        assert!((counts.admitted as f64 - requests as f64 * kept).abs() <= spread, "{counts:?}");
        let seen = buckets(&closed.bank, &delays, DelayKind::TcpData, false).len() as u64;
        // The requests of the last round trip still wait for their answers. 64 waiting requests
        // share 4,096 slots: few overwrite each other.
        let lost = counts.admitted - seen;
        assert!(lost <= u64::from(ROUND_TRIP) / 2 + counts.admitted / 20, "{seen} of {counts:?}");
    }
}
