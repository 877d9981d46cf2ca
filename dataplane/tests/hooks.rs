//! Interference by others with the programs of the XDP backend and their interfaces: every gap is
//! reported.

use crate::common::assert_contains;
use crate::common::devices::{ethtool, on_queues, on_veth_with, send, set_mtu};
use crate::common::kernel::{
    self as common, MODES, add_apart, attached, both_ways, closed, complete_apart, counted, egress,
    in_mode, ingress, installed, pinned, pins, refusal, send_and_close, warning, warns, window,
};
use flowgauge_core::Settings;
use flowgauge_core::heavy::{self, Algorithm};
use flowgauge_dataplane::xdp::{
    DIRECTORY, Mode, Options, WaitMethod, Xdp, detach, left, supported,
};
use flowgauge_dataplane::{Adopted, CountingPoint, Dataplane, Event, LossCause};
use flowgauge_testing::kernel::{self, Other};
use flowgauge_testing::namespace::OtherNamespace;
use flowgauge_testing::wait::{until, until_some};
use flowgauge_testing::{extent, on_veth};
use flowgauge_traffic::veth::{self, RECEIVER, SENDER, ip};
use nix::sched::{CloneFlags, unshare};
use std::fs::{self, Permissions};
use std::net::UdpSocket;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

fn options() -> Options {
    in_mode(Mode::Native)
}

fn kept() -> Options {
    kept_in(Mode::Native)
}

fn kept_in(mode: Mode) -> Options {
    Options { pins: pinned(false, false), ..in_mode(mode) }
}

/// Returns options that leave the same state as a killed process.
fn doomed() -> Options {
    Options { pins: pinned(false, true), ..options() }
}

/// Starts a run without warnings.
fn started(places: Vec<CountingPoint>, options: Options) -> Xdp {
    let mut xdp = common::started(places, options);
    let events = xdp.events().unwrap();
    assert!(!warns(&events, ""), "{events:?}");
    xdp
}

/// Returns the pin of the only link.
fn pin() -> PathBuf {
    let [place] = &pins()[..] else { panic!("{:?}", pins()) };
    place.join("link")
}

#[test]
fn a_program_detached_from_outside_is_attached_again_and_reported() {
    on_veth_with([ingress(), egress()], |place| {
        let mut xdp = started(vec![place], kept());
        send(10);
        assert!(window(&mut xdp, 10).complete);
        kernel::detach(&pin());
        send(500);
        assert_contains(&warning(&mut xdp), &["its program was not attached", "missing"]);
        assert_eq!(attached(&xdp), [true]);
        assert_eq!(send_and_close(&mut xdp, 7), (7, false));
        assert_eq!(send_and_close(&mut xdp, 8), (8, true));
        // Also without a check between the detachment and the end of the window.
        kernel::detach(&pin());
        send(3);
        assert!(!xdp.rotate().unwrap().complete);
        assert_contains(&warning(&mut xdp), &["its program was not attached"]);
        assert!(pin().exists());
    });
}

#[test]
fn a_program_whose_pin_is_removed_counts_on() {
    on_veth(|| {
        let mut xdp = started(vec![ingress()], kept());
        fs::remove_file(pin()).unwrap();
        assert_eq!(send_and_close(&mut xdp, 10), (10, true));
        let events = xdp.events().unwrap();
        assert!(matches!(&events[..], [Event::Notice(told)] if told.contains("pin")), "{events:?}");
        assert!(pin().exists(), "the adopting process needs it");
        drop(xdp);
        assert!(!PathBuf::from(DIRECTORY).exists());
    });
}

#[test]
fn an_interface_that_moves_to_another_namespace_is_not_counted_there() {
    on_veth_with(MODES, |mode| {
        // The other place keeps the run alive.
        let mut xdp = started(vec![ingress(), egress()], kept_in(mode));
        send(10);
        assert!(window(&mut xdp, 20).complete);
        let other = OtherNamespace::start();
        other.take("rx");
        let events = xdp.events().unwrap();
        let is_gone = mode == Mode::Clsact && warns(&events, "gone");
        assert!(is_gone || warns(&events, "moved to another"), "{mode:?}: {events:?}");
        assert!(!xdp.rotate().unwrap().complete);
        send(3000);
        let snapshot = window(&mut xdp, 3000);
        assert_eq!((counted(&snapshot), snapshot.complete), (3000, true), "{mode:?}");
        assert_eq!(counted(&snapshot.parts[0].snapshot), 0, "{mode:?}");
        other.give_back("rx");
        until(|| warns(&xdp.events().unwrap(), "counted again"));
        xdp.rotate().unwrap();
        send(7);
        assert_eq!(closed(&mut xdp, 14), (14, true), "{mode:?}");
    });
}

#[test]
fn an_interface_that_is_back_before_a_look_has_a_marked_window_and_is_counted_again() {
    for mode in MODES {
        for is_rotated in [false, true] {
            on_veth(move || {
                let mut xdp = started(vec![ingress()], kept_in(mode));
                send(10);
                assert!(window(&mut xdp, 10).complete);
                let other = OtherNamespace::start();
                other.take("rx");
                send(3000);
                other.give_back("rx");
                // Either way the first look is the one after the return.
                let mut events = if is_rotated { Vec::new() } else { xdp.events().unwrap() };
                assert!(!xdp.rotate().unwrap().complete, "{mode:?}, rotated: {is_rotated}");
                events.extend(xdp.events().unwrap());
                let [Event::Warning(left), Event::Warning(back)] = &events[..] else {
                    panic!("{mode:?}: {events:?}");
                };
                let reason = if mode == Mode::Clsact { "is gone" } else { "moved to another" };
                assert_contains(left, &[reason]);
                assert_contains(back, &["is there again, and counted again"]);
                assert_eq!(send_and_close(&mut xdp, 7), (7, true), "{mode:?}");
                assert_eq!(xdp.events().unwrap(), []);
            });
        }
    }
}

/// Packets between the return of the interface and its next move are in no window.
#[test]
fn an_interface_that_was_back_between_two_looks_has_a_marked_window() {
    on_veth(|| {
        // The other place keeps the run alive.
        let mut xdp = started(vec![ingress(), egress()], kept());
        let other = OtherNamespace::start();
        other.take("rx");
        let events = xdp.events().unwrap();
        assert!(warns(&events, "moved to another"), "{events:?}");
        let mut is_complete = || xdp.rotate().unwrap().parts[0].snapshot.complete;
        assert_eq!([is_complete(), is_complete()], [false, true]);
        other.give_back("rx");
        send(3);
        other.take("rx");
        assert_eq!([is_complete(), is_complete()], [false, true]);
    });
}

/// Windows end while the interface comes and goes, at any time of both.
#[test]
fn packets_of_another_namespace_are_in_no_complete_window() {
    on_veth_with(MODES, |mode| {
        // The other place keeps the run alive.
        let mut xdp = started(vec![ingress(), egress()], kept_in(mode));
        let mover = thread::spawn(|| {
            for _ in 0..extent(3, 50) {
                let other = OtherNamespace::start();
                other.take("rx");
                send(200);
                other.give_back("rx");
            }
        });
        let check = |xdp: &mut Xdp| {
            let snapshot = xdp.rotate().unwrap();
            let arrived = &snapshot.parts[0].snapshot;
            // The test sends no packets while the interface is here.
            assert!(!arrived.complete || counted(arrived) == 0, "{mode:?}");
            xdp.events().unwrap();
            arrived.complete && attached(xdp).into_iter().all(|is_attached| is_attached)
        };
        while !mover.is_finished() {
            check(&mut xdp);
        }
        mover.join().unwrap();
        until(|| check(&mut xdp));
        send(7);
        assert_eq!(closed(&mut xdp, 14), (14, true), "{mode:?}");
    });
}

#[test]
fn a_replaced_program_is_restored() {
    on_veth(|| {
        let mut xdp = started(vec![ingress()], kept());
        Other::xdp().usurp(&pin());
        send(10);
        assert_contains(&warning(&mut xdp), &["was put in its place"]);
        assert_eq!(send_and_close(&mut xdp, 7), (7, false));
    });
}

#[test]
fn a_run_at_an_occupied_place_ends() {
    on_veth(|| {
        let mut xdp = started(vec![ingress()], kept());
        kernel::detach(&pin());
        let _other = Other::xdp().attach("rx").unwrap();
        let events = xdp.events().unwrap();
        let [Event::Warning(warning), Event::TrafficEnded] = &events[..] else {
            panic!("{events:?}")
        };
        assert_contains(warning, &["cannot be attached again", "another XDP program"]);
        assert_eq!(attached(&xdp), [false]);
        assert!(!xdp.rotate().unwrap().complete);
        assert_eq!(xdp.events().unwrap(), [], "once");
    });
}

#[test]
fn programs_that_were_there_first_do_not_hide_packets() {
    on_veth(|| {
        let _other = Other::tcx().attach("tx").unwrap();
        let mut xdp = started(vec![egress()], options());
        assert_eq!(send_and_close(&mut xdp, 1000), (1000, true));
        assert_eq!(xdp.events().unwrap(), []);
    });
}

#[test]
fn programs_attached_before_ours_are_reported_and_ours_moves_to_the_front() {
    on_veth(|| {
        let mut xdp = started(vec![egress()], kept());
        let mut others = Vec::new();
        for _ in 0..3 {
            others.push(Other::tcx().attach("tx").unwrap());
            send(5);
            let said = warning(&mut xdp);
            assert_contains(&said, &["was attached before this one", "the first again"]);
            assert_eq!(send_and_close(&mut xdp, 10), (10, false));
            assert_eq!(send_and_close(&mut xdp, 20), (20, true));
        }
        // Two programs that both insist on being first would never stop.
        others.push(Other::tcx().attach("tx").unwrap());
        assert_contains(&warning(&mut xdp), &["again and again"]);
        assert_eq!(xdp.events().unwrap(), [], "once");
        send(5);
        let snapshot = xdp.rotate().unwrap();
        let what = "it is marked as long as another is before";
        assert_eq!((counted(&snapshot), snapshot.complete), (0, false), "{what}");
        others.pop();
        xdp.rotate().unwrap();
        assert_eq!(send_and_close(&mut xdp, 5), (5, true));
    });
}

/// Sends enough flows for every queue to get some.
fn send_flows(flows: u64) {
    for _ in 0..flows {
        send(1);
    }
}

#[test]
fn queues_that_come_are_counted() {
    on_queues(4, &["-L tx tx 1", "-L rx rx 1"], || {
        let mut xdp = started(vec![ingress()], options());
        send_flows(100);
        assert!(window(&mut xdp, 100).complete);
        ethtool("-L rx rx 4").unwrap();
        ethtool("-L tx tx 4").unwrap();
        assert_contains(&warning(&mut xdp), &["has 4 receive queues now instead of 1"]);
        assert!(!xdp.rotate().unwrap().complete);
        send_flows(1000);
        assert_eq!(closed(&mut xdp, 1000), (1000, true));
    });
}

fn adopted(place: CountingPoint) -> (Xdp, Option<Adopted>) {
    installed(vec![place], Options { pins: pinned(true, false), ..options() })
}

/// Returns the next event, which must be a notice: the kernel needs some time to notice a carrier.
#[track_caller]
fn notice(xdp: &mut Xdp) -> String {
    let told = |xdp: &mut Xdp| Some(xdp.events().unwrap()).filter(|events| !events.is_empty());
    let events = until_some(|| told(xdp));
    let Event::Notice(notice) = &events[0] else { panic!("{events:?}") };
    notice.clone()
}

#[test]
fn interfaces_of_one_name_in_two_network_namespaces_do_not_mix() {
    on_veth(|| {
        let mut first = started(vec![ingress()], kept());
        send(3);
        let (left_alone, is_left_alone) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel();
        let other = thread::spawn(move || {
            // The BPF file system is shared with the first.
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            veth::pair(SENDER, RECEIVER).unwrap();
            let mut second = started(vec![ingress()], doomed());
            send(5);
            assert_eq!(counted(&window(&mut second, 5)), 5);
            second.published(0).unwrap();
            drop(second);
            assert_eq!(left(Path::new(DIRECTORY)).unwrap().len(), 1);
            // Killed; the network lives until the thread ends.
            left_alone.send(()).unwrap();
            goes_on.recv().unwrap();
            send(4);
            let (mut second, found) = adopted(ingress());
            assert!(found.is_some());
            assert_eq!(counted(&window(&mut second, 4)), 4, "it is still attached");
        });
        is_left_alone.recv().expect("the other network");
        assert_eq!(pins().iter().filter(|place| place.join("link").exists()).count(), 2);
        assert_eq!(left(Path::new(DIRECTORY)).unwrap(), [], "other namespaces are not listed");
        assert_eq!(counted(&window(&mut first, 3)), 3);
        drop(first);
        assert_eq!(detach(Path::new(DIRECTORY), None).unwrap(), [""; 0]);
        go_on.send(()).unwrap();
        other.join().unwrap();
        assert!(!Path::new(DIRECTORY).exists());
    });
}

#[test]
fn counting_starts_again_at_a_recreated_interface() {
    on_veth(|| {
        drop(started(vec![ingress()], doomed()));
        ip("link del dev rx").unwrap();
        veth::pair(SENDER, RECEIVER).unwrap();
        let (mut xdp, found) = adopted(ingress());
        assert_eq!(found, None);
        assert_contains(&notice(&mut xdp), &["was re-created", "dropped"]);
        assert_eq!(send_and_close(&mut xdp, 5), (5, true));
        drop(xdp);
        assert!(!Path::new(DIRECTORY).exists());
    });
}

#[test]
fn a_program_detached_between_runs_is_adopted_and_reported() {
    on_veth(|| {
        let mut first = started(vec![ingress()], doomed());
        send(3);
        while counted(&first.sample().unwrap()) < 3 {}
        drop(first);
        kernel::detach(&pin());
        send(100);
        let (mut second, found) = adopted(ingress());
        assert_eq!(found.unwrap().open_windows.len(), 1);
        assert_contains(&warning(&mut second), &["detached while no flowgauge looked after it"]);
        send(4);
        assert_eq!(closed(&mut second, 7), (7, false));
    });
}

fn rename(from: &str, to: &str) {
    ip(&format!("link set dev {from} down")).unwrap();
    ip(&format!("link set dev {from} name {to}")).unwrap();
    ip(&format!("link set dev {to} up")).unwrap();
    // The other end drops packets until the kernel has noticed.
    [to, SENDER.0].into_iter().for_each(|device| veth::carrier(device).unwrap());
}

#[test]
fn a_renamed_interface_is_counted_on() {
    on_veth(|| {
        let mut xdp = started(vec![ingress()], doomed());
        rename("rx", "wan.0");
        let said = notice(&mut xdp);
        assert_contains(&said, &["rx: the interface is called wan.0 now", "calling it rx"]);
        // Another interface gets its name.
        veth::pair(("tx2", "10.78.0.1"), ("rx", "10.78.0.2")).unwrap();
        assert_eq!(send_and_close(&mut xdp, 5), (5, true));
        assert!(!warns(&xdp.events().unwrap(), ""));
        assert_eq!(xdp.losses().unwrap().get(LossCause::DeviceError), 0);
        xdp.published(0).unwrap();
        drop(xdp);
        assert_eq!(left(Path::new(DIRECTORY)).unwrap()[0].place, CountingPoint::ingress("wan.0"));
        let (mut other, found) = adopted(ingress());
        let what = "the interface of its old name is another one";
        assert_eq!((found, other.events().unwrap()), (None, vec![]), "{what}");
        let (mut xdp, found) = adopted(CountingPoint::ingress("wan.0"));
        assert!(found.is_some());
        send(6);
        assert_eq!(counted(&window(&mut xdp, 6)), 6);
    });
}

#[test]
fn one_of_several_interfaces_that_comes_back_is_counted_again() {
    on_veth_with([None, kept().pins], |pins| {
        veth::pair(("tx2", "10.78.0.1"), ("rx2", "10.78.0.2")).unwrap();
        let places = vec![CountingPoint::ingress("rx2"), ingress()];
        let mut xdp = started(places, Options { pins, ..options() });
        ip("link del dev rx").unwrap();
        assert_contains(&warning(&mut xdp), &["rx ingress: the interface is gone"]);
        let snapshot = xdp.rotate().unwrap();
        assert_eq!(complete_apart(&snapshot), [true, false]);
        assert!(!snapshot.complete);
        assert_eq!(attached(&xdp), [true, false]);
        assert!(xdp.rotate().unwrap().complete, "nothing crosses what is not there");
        veth::pair(SENDER, RECEIVER).unwrap();
        let back = "rx ingress: the interface is there again, and counted again";
        assert_contains(&warning(&mut xdp), &[back]);
        assert_eq!(send_and_close(&mut xdp, 5), (5, false));
        assert_eq!(send_and_close(&mut xdp, 6), (6, true));
        assert_eq!(attached(&xdp), [true; 2]);
        drop(xdp);
        assert!(!Path::new(DIRECTORY).exists());
    });
}

#[test]
fn windows_of_an_interface_that_appears_and_cannot_be_counted_are_marked() {
    on_veth(|| {
        let places = vec![CountingPoint::ingress("rx2"), ingress()];
        let (mut xdp, _) = installed(places, options());
        assert_contains(&warning(&mut xdp), &["there is no such interface"]);
        assert!(xdp.rotate().unwrap().complete, "nothing crosses what is not there");
        veth::pair(("tx2", "10.78.0.1"), ("rx2", "10.78.0.2")).unwrap();
        let other = Other::xdp().attach("rx2").unwrap();
        assert_contains(&warning(&mut xdp), &["the interface is there, but is not counted"]);
        for _ in 0..3 {
            assert_eq!(complete_apart(&xdp.rotate().unwrap()), [false, true]);
        }
        drop(other);
        until(|| warns(&xdp.events().unwrap(), "counted from now on"));
        assert!(!xdp.rotate().unwrap().complete);
        assert!(xdp.rotate().unwrap().complete);
    });
}

#[test]
fn an_interface_that_goes_down_and_up_is_reported() {
    on_veth(|| {
        let mut xdp = started(both_ways("rx"), options());
        ip("link set dev rx down").unwrap();
        assert_eq!(notice(&mut xdp), "rx: is down; no packets cross it");
        ip("link set dev rx up").unwrap();
        assert_eq!(notice(&mut xdp), "rx: is up again");
        veth::carrier(SENDER.0).unwrap();
        send(5);
        assert_eq!(counted(&window(&mut xdp, 5)), 5);
    });
}

#[test]
fn directories_that_others_own_or_write_to_are_refused() {
    const MOUNT: &str = "/sys/fs/bpf";
    on_veth(|| {
        let directory = Path::new(DIRECTORY);
        let mode = |path: &str, mode: u32| {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap()
        };
        let refused = |expected: &str| {
            let error = supported(directory).unwrap_err().to_string();
            assert!(error.contains(expected) && error.lines().count() == 1, "{error}");
            let problem = |error: String| error.split_once(": ").unwrap().1.to_owned();
            assert_eq!(problem(refusal(ingress(), kept())), problem(error));
        };
        supported(directory).unwrap();
        // With the default mount options others can create directories, but not remove those of
        // root.
        mode(MOUNT, 0o1777);
        supported(directory).unwrap();
        mode(MOUNT, 0o777);
        refused("others may write to /sys/fs/bpf");
        mode(MOUNT, 0o1777);
        fs::create_dir(directory).unwrap();
        chown(directory, Some(65534), Some(65534)).unwrap();
        refused("/sys/fs/bpf/flowgauge belongs to user 65534");
        chown(directory, Some(0), Some(0)).unwrap();
        mode(DIRECTORY, 0o775);
        refused("others may write to /sys/fs/bpf/flowgauge");
        fs::remove_dir(directory).unwrap();
        fs::create_dir("/sys/fs/bpf/elsewhere").unwrap();
        symlink("/sys/fs/bpf/elsewhere", directory).unwrap();
        refused("is a symbolic link");
        fs::remove_file(directory).unwrap();
        drop(started(vec![ingress()], kept()));
    });
}

/// Both methods to wait for packets in flight are exact; the second is for kernels without the
/// first.
#[test]
fn rotations_are_exact_however_they_wait() {
    on_veth_with(WaitMethod::ALL, |wait| {
        let mut xdp = started(vec![ingress(), egress()], Options { wait: Some(wait), ..options() });
        let sender = thread::spawn(|| send(20_000));
        let mut all = [0, 0];
        while !sender.is_finished() {
            add_apart(&mut all, &xdp.rotate().unwrap());
        }
        sender.join().unwrap();
        for _ in 0..100 {
            if all == [20_000, 20_000] {
                break;
            }
            add_apart(&mut all, &xdp.rotate().unwrap());
        }
        assert_eq!(all, [20_000, 20_000], "{wait:?}");
    });
}

/// Length of an Ethernet, an IPv4 and a UDP header, in bytes.
const HEADERS: u64 = 14 + 20 + 8;

#[test]
fn jumbo_frames_are_counted_with_all_their_bytes() {
    for mode in MODES {
        for settings in [Settings::default(), everything()] {
            let options = Options { mode: Some(mode), ..Options::new(settings) };
            on_veth(move || {
                set_mtu(9000);
                let mut xdp = started(vec![ingress()], options);
                let socket = UdpSocket::bind((SENDER.1, 0)).unwrap();
                let (mut packets, mut bytes) = (0, 0);
                for payload in (18..8972).step_by(97).chain([8972]) {
                    socket.send_to(&vec![0; payload], (RECEIVER.1, 9)).unwrap();
                    packets += 1;
                    bytes += HEADERS + payload as u64;
                }
                let snapshot = window(&mut xdp, packets);
                let counters = snapshot.bank.counters;
                let found = (counters.ipv4, counters.packets(), counters.bytes);
                assert_eq!(found, (packets, packets, bytes), "{mode:?}");
                assert!(snapshot.complete);
            });
        }
    }
}

fn everything() -> Settings {
    let heavy = heavy::Settings { algorithm: Algorithm::HashPipe, ..Default::default() };
    let settings = Settings { heavy, ..Settings::default() };
    assert!(settings.beyond_cardinality());
    settings
}

#[test]
fn the_limit_of_a_driver_is_described() {
    on_queues(4, &["-L rx rx 1", "-L tx tx 4"], || {
        let said = refusal(ingress(), options());
        let limit = "more transmit queues than it has receive queues (1)";
        assert_contains(&said, &[limit, "ethtool -L rx"]);
        assert_eq!(said.lines().count(), 1);
    });
}

/// A device with an MTU of more than one page delivers packets in pieces.
#[test]
fn a_queue_that_comes_to_an_interface_of_jumbo_frames_is_counted() {
    on_queues(2, &["-L tx tx 1", "-L rx rx 1"], || {
        set_mtu(9000);
        let mut xdp = started(vec![ingress()], kept());
        ethtool("-L rx rx 2").unwrap();
        ethtool("-L tx tx 2").unwrap();
        assert_contains(&warning(&mut xdp), &["has 2 receive queues now instead of 1"]);
        kernel::detach(&pin());
        assert_contains(&warning(&mut xdp), &["its program was not attached"]);
        send_flows(200);
        assert_eq!(counted(&window(&mut xdp, 200)), 200);
    });
}
