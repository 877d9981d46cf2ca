//! Interference by others with the programs of the XDP backend and their interfaces: every gap is
//! reported.

use flowgauge_core::Settings;
use flowgauge_dataplane::xdp::{
    DIRECTORY, Mode, Options, Retention, WaitMethod, Xdp, detach, left, supported,
};
use flowgauge_dataplane::{
    Adopted, CountingPoint, Dataplane, Direction, Event, LossCause, Snapshot, Tables,
};
use flowgauge_testing::kernel::{self, Other};
use flowgauge_testing::namespace::OtherNamespace;
use flowgauge_testing::wait::{until, until_some};
use flowgauge_testing::{extent, on_veth, skip};
use flowgauge_traffic::veth::{self, RECEIVER, SENDER, ip};
use nix::sched::{CloneFlags, unshare};
use std::fs::{self, Permissions};
use std::net::UdpSocket;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread;

fn ingress() -> CountingPoint {
    CountingPoint::ingress(RECEIVER.0)
}

fn egress() -> CountingPoint {
    CountingPoint { interface: SENDER.0.to_owned(), direction: Direction::Egress }
}

fn options() -> Options {
    Options { mode: Some(Mode::Native), ..Options::new(Settings::default()) }
}

fn kept() -> Options {
    Options {
        pins: Some(Retention { directory: DIRECTORY.into(), adopt: false, leave: false }),
        ..options()
    }
}

fn started(places: Vec<CountingPoint>, options: Options) -> Xdp {
    let tables = Tables::new(&options.settings, 1);
    let mut xdp = Xdp::at(places, options);
    assert_eq!(xdp.install(&tables).unwrap(), None);
    let events = xdp.events().unwrap();
    assert!(!events.iter().any(|event| matches!(event, Event::Warning(_))), "{events:?}");
    xdp
}

/// Returns the pin of the only link.
fn pin() -> PathBuf {
    let places: Vec<PathBuf> =
        fs::read_dir(DIRECTORY).unwrap().map(|place| place.unwrap().path()).collect();
    let [place] = &places[..] else { panic!("{places:?}") };
    place.join("link")
}

fn send(packets: u64) {
    let socket = UdpSocket::bind((SENDER.1, 0)).unwrap();
    for _ in 0..packets {
        socket.send_to(&[0; 18], (RECEIVER.1, 9)).unwrap();
    }
}

fn counted(snapshot: &Snapshot) -> u64 {
    snapshot.bank.counters.packets()
}

/// Returns a window with at least `packets` packets: the kernel delivers them soon after they were
/// sent.
fn window(xdp: &mut Xdp, packets: u64) -> Snapshot {
    until(|| counted(&xdp.sample().unwrap()) >= packets);
    xdp.rotate().unwrap()
}

/// Returns the only warning.
#[track_caller]
fn warning(xdp: &mut Xdp) -> String {
    let events = xdp.events().unwrap();
    let [Event::Warning(warning)] = &events[..] else { panic!("{events:?}") };
    warning.clone()
}

#[test]
fn a_program_detached_from_outside_is_attached_again_and_reported() {
    for place in [ingress(), egress()] {
        on_veth(move || {
            let mut xdp = started(vec![place], kept());
            send(10);
            assert!(window(&mut xdp, 10).complete);
            kernel::detach(&pin());
            send(500);
            let said = warning(&mut xdp);
            assert!(
                said.contains("its program was not attached") && said.contains("missing"),
                "{said}"
            );
            assert!(xdp.status().programs.iter().all(|program| program.attached));
            send(7);
            let snapshot = window(&mut xdp, 7);
            assert_eq!((counted(&snapshot), snapshot.complete), (7, false));
            send(8);
            let snapshot = window(&mut xdp, 8);
            assert_eq!((counted(&snapshot), snapshot.complete), (8, true));
            // Also without a check between the detachment and the end of the window.
            kernel::detach(&pin());
            send(3);
            assert!(!xdp.rotate().unwrap().complete);
            assert!(warning(&mut xdp).contains("its program was not attached"));
            assert!(pin().exists());
        });
    }
}

#[test]
fn a_program_whose_pin_is_removed_counts_on() {
    on_veth(|| {
        let mut xdp = started(vec![ingress()], kept());
        fs::remove_file(pin()).unwrap();
        send(10);
        let snapshot = window(&mut xdp, 10);
        assert_eq!((counted(&snapshot), snapshot.complete), (10, true));
        let events = xdp.events().unwrap();
        assert!(matches!(&events[..], [Event::Notice(told)] if told.contains("pin")), "{events:?}");
        assert!(pin().exists(), "the adopting process needs it");
        drop(xdp);
        assert!(!PathBuf::from(DIRECTORY).exists());
    });
}

#[test]
fn an_interface_that_moves_to_another_namespace_is_not_counted_there() {
    for mode in [Mode::Native, Mode::Skb, Mode::Tcx, Mode::Clsact] {
        on_veth(move || {
            let options = Options { mode: Some(mode), ..kept() };
            // The other place keeps the run alive.
            let mut xdp = started(vec![ingress(), egress()], options);
            send(10);
            assert!(window(&mut xdp, 20).complete);
            let other = OtherNamespace::start();
            other.take("rx");
            let events = xdp.events().unwrap();
            assert!(
                events.iter().any(|event| matches!(event, Event::Warning(said)
                    if said.contains("moved to another") || mode == Mode::Clsact && said.contains("gone"))),
                "{mode:?}: {events:?}"
            );
            assert!(!xdp.rotate().unwrap().complete);
            send(3000);
            let snapshot = window(&mut xdp, 3000);
            assert_eq!((counted(&snapshot), snapshot.complete), (3000, true), "{mode:?}");
            assert_eq!(counted(&snapshot.parts[0].snapshot), 0, "{mode:?}");
            other.give_back("rx");
            until(|| {
                let events = xdp.events().unwrap();
                events.iter().any(
                    |event| matches!(event, Event::Warning(said) if said.contains("counted again")),
                )
            });
            xdp.rotate().unwrap();
            send(7);
            let snapshot = window(&mut xdp, 14);
            assert_eq!((counted(&snapshot), snapshot.complete), (14, true), "{mode:?}");
        });
    }
}

#[test]
fn an_interface_that_is_back_before_a_look_has_a_marked_window_and_is_counted_again() {
    for mode in [Mode::Native, Mode::Skb, Mode::Tcx, Mode::Clsact] {
        for is_rotated in [false, true] {
            on_veth(move || {
                let options = Options { mode: Some(mode), ..kept() };
                let mut xdp = started(vec![ingress()], options);
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
                let is_filter = mode == Mode::Clsact;
                assert!(
                    left.contains(if is_filter { "is gone" } else { "moved to another" }),
                    "{left}"
                );
                assert!(back.contains("is there again, and counted again"), "{back}");
                send(7);
                let snapshot = window(&mut xdp, 7);
                assert_eq!((counted(&snapshot), snapshot.complete), (7, true), "{mode:?}");
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
        let is_moved = |event: &Event| matches!(event, Event::Warning(said) if said.contains("moved to another"));
        assert!(events.iter().any(is_moved), "{events:?}");
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
    for mode in [Mode::Native, Mode::Skb, Mode::Tcx, Mode::Clsact] {
        on_veth(move || {
            // The other place keeps the run alive.
            let options = Options { mode: Some(mode), ..kept() };
            let mut xdp = started(vec![ingress(), egress()], options);
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
                arrived.complete && xdp.status().programs.iter().all(|program| program.attached)
            };
            while !mover.is_finished() {
                check(&mut xdp);
            }
            mover.join().unwrap();
            until(|| check(&mut xdp));
            send(7);
            let snapshot = window(&mut xdp, 14);
            assert_eq!((counted(&snapshot), snapshot.complete), (14, true), "{mode:?}");
        });
    }
}

#[test]
fn a_replaced_program_is_restored() {
    on_veth(|| {
        let mut xdp = started(vec![ingress()], kept());
        Other::xdp().usurp(&pin());
        send(10);
        assert!(warning(&mut xdp).contains("was put in its place"));
        send(7);
        let snapshot = window(&mut xdp, 7);
        assert_eq!((counted(&snapshot), snapshot.complete), (7, false));
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
        assert!(
            warning.contains("cannot be attached again") && warning.contains("another XDP program"),
            "{warning}"
        );
        assert!(xdp.status().programs.iter().all(|program| !program.attached));
        assert!(!xdp.rotate().unwrap().complete);
        assert_eq!(xdp.events().unwrap(), [], "once");
    });
}

#[test]
fn programs_that_were_there_first_do_not_hide_packets() {
    on_veth(|| {
        let _other = Other::tcx().attach("tx").unwrap();
        let mut xdp = started(vec![egress()], options());
        send(1000);
        let snapshot = window(&mut xdp, 1000);
        assert_eq!((counted(&snapshot), snapshot.complete), (1000, true));
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
            assert!(
                said.contains("was attached before this one") && said.contains("the first again"),
                "{said}"
            );
            send(10);
            let snapshot = window(&mut xdp, 10);
            assert_eq!((counted(&snapshot), snapshot.complete), (10, false));
            send(20);
            let snapshot = window(&mut xdp, 20);
            assert_eq!((counted(&snapshot), snapshot.complete), (20, true));
        }
        // Two programs that both insist on being first would never stop.
        others.push(Other::tcx().attach("tx").unwrap());
        let said = warning(&mut xdp);
        assert!(said.contains("again and again"), "{said}");
        assert_eq!(xdp.events().unwrap(), [], "once");
        send(5);
        let snapshot = xdp.rotate().unwrap();
        assert_eq!(
            (counted(&snapshot), snapshot.complete),
            (0, false),
            "it is marked as long as another is before"
        );
        others.pop();
        xdp.rotate().unwrap();
        send(5);
        let snapshot = window(&mut xdp, 5);
        assert_eq!((counted(&snapshot), snapshot.complete), (5, true));
    });
}

fn ethtool(arguments: &str) -> Result<(), String> {
    let output = Command::new("ethtool")
        .args(arguments.split(' '))
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Replaces the devices by ones with several queues.
fn with_queues(queues: u32) {
    ip("link del dev rx").unwrap();
    let end = |name: &str| format!("name {name} numrxqueues {queues} numtxqueues {queues}");
    ip(&format!("link add {} type veth peer {}", end("rx"), end("tx"))).unwrap();
    for device in ["rx", "tx"] {
        ip(&format!("link set dev {device} addrgenmode none")).unwrap();
        ip(&format!("link set dev {device} up")).unwrap();
    }
    ["rx", "tx"].into_iter().for_each(|device| veth::carrier(device).unwrap());
    ip(&format!("addr add {}/24 dev tx", SENDER.1)).unwrap();
    ip(&format!("neigh add {} lladdr 02:00:00:00:00:02 dev tx nud permanent", RECEIVER.1)).unwrap();
}

/// Sends enough flows for every queue to get some.
fn send_flows(flows: u64) {
    for _ in 0..flows {
        send(1);
    }
}

#[test]
fn queues_that_come_are_counted() {
    on_veth(|| {
        with_queues(4);
        if let Err(error) = ethtool("-L tx tx 1").and_then(|()| ethtool("-L rx rx 1")) {
            return skip(format_args!("ethtool ({error})"));
        }
        let mut xdp = started(vec![ingress()], options());
        send_flows(100);
        assert!(window(&mut xdp, 100).complete);
        ethtool("-L rx rx 4").unwrap();
        ethtool("-L tx tx 4").unwrap();
        let said = warning(&mut xdp);
        assert!(said.contains("has 4 receive queues now instead of 1"), "{said}");
        assert!(!xdp.rotate().unwrap().complete);
        send_flows(1000);
        let snapshot = window(&mut xdp, 1000);
        assert_eq!((counted(&snapshot), snapshot.complete), (1000, true));
    });
}

/// Returns options that leave the same state as a killed process.
fn doomed() -> Options {
    Options {
        pins: Some(Retention { directory: DIRECTORY.into(), adopt: false, leave: true }),
        ..options()
    }
}

fn adopting() -> Options {
    Options {
        pins: Some(Retention { directory: DIRECTORY.into(), adopt: true, leave: false }),
        ..options()
    }
}

fn adopted(place: CountingPoint) -> (Xdp, Option<Adopted>) {
    let mut xdp = Xdp::at(vec![place], adopting());
    let found = xdp.install(&Tables::new(&options().settings, 1)).unwrap();
    (xdp, found)
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
        assert_eq!(pinned(), 2);
        assert_eq!(left(Path::new(DIRECTORY)).unwrap(), [], "other namespaces are not listed");
        assert_eq!(counted(&window(&mut first, 3)), 3);
        drop(first);
        assert_eq!(detach(Path::new(DIRECTORY), None).unwrap(), [""; 0]);
        go_on.send(()).unwrap();
        other.join().unwrap();
        assert!(!Path::new(DIRECTORY).exists());
    });
}

/// Returns the number of pinned links.
fn pinned() -> usize {
    let places = fs::read_dir(DIRECTORY).into_iter().flatten().flatten();
    places.filter(|place| place.path().join("link").exists()).count()
}

#[test]
fn counting_starts_again_at_a_recreated_interface() {
    on_veth(|| {
        drop(started(vec![ingress()], doomed()));
        ip("link del dev rx").unwrap();
        veth::pair(SENDER, RECEIVER).unwrap();
        let (mut xdp, found) = adopted(ingress());
        assert_eq!(found, None);
        let said = notice(&mut xdp);
        assert!(said.contains("was re-created") && said.contains("dropped"), "{said}");
        send(5);
        let snapshot = window(&mut xdp, 5);
        assert_eq!((counted(&snapshot), snapshot.complete), (5, true));
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
        assert!(warning(&mut second).contains("detached while no flowgauge looked after it"));
        send(4);
        let snapshot = window(&mut second, 7);
        assert_eq!((counted(&snapshot), snapshot.complete), (7, false));
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
        assert!(
            said.contains("rx: the interface is called wan.0 now")
                && said.contains("calling it rx"),
            "{said}"
        );
        // Another interface gets its name.
        veth::pair(("tx2", "10.78.0.1"), ("rx", "10.78.0.2")).unwrap();
        send(5);
        let snapshot = window(&mut xdp, 5);
        assert_eq!((counted(&snapshot), snapshot.complete), (5, true));
        assert!(!xdp.events().unwrap().iter().any(|event| matches!(event, Event::Warning(_))));
        assert_eq!(xdp.losses().unwrap().get(LossCause::DeviceError), 0);
        xdp.published(0).unwrap();
        drop(xdp);
        assert_eq!(left(Path::new(DIRECTORY)).unwrap()[0].place, CountingPoint::ingress("wan.0"));
        let (mut other, found) = adopted(ingress());
        assert_eq!(
            (found, other.events().unwrap()),
            (None, vec![]),
            "the interface of its old name is another one"
        );
        let (mut xdp, found) = adopted(CountingPoint::ingress("wan.0"));
        assert!(found.is_some());
        send(6);
        assert_eq!(counted(&window(&mut xdp, 6)), 6);
    });
}

#[test]
fn one_of_several_interfaces_that_comes_back_is_counted_again() {
    for pins in [None, kept().pins] {
        on_veth(|| {
            veth::pair(("tx2", "10.78.0.1"), ("rx2", "10.78.0.2")).unwrap();
            let mut xdp = started(
                vec![CountingPoint::ingress("rx2"), ingress()],
                Options { pins, ..options() },
            );
            ip("link del dev rx").unwrap();
            let said = warning(&mut xdp);
            assert!(said.contains("rx ingress: the interface is gone"), "{said}");
            let snapshot = xdp.rotate().unwrap();
            assert_eq!(
                snapshot.parts.iter().map(|part| part.snapshot.complete).collect::<Vec<_>>(),
                [true, false]
            );
            assert!(!snapshot.complete);
            assert_eq!(
                xdp.status().programs.iter().map(|program| program.attached).collect::<Vec<_>>(),
                [true, false]
            );
            assert!(xdp.rotate().unwrap().complete, "nothing crosses what is not there");
            veth::pair(SENDER, RECEIVER).unwrap();
            let said = warning(&mut xdp);
            assert!(
                said.contains("rx ingress: the interface is there again, and counted again"),
                "{said}"
            );
            send(5);
            let snapshot = window(&mut xdp, 5);
            assert_eq!((counted(&snapshot), snapshot.complete), (5, false));
            send(6);
            let snapshot = window(&mut xdp, 6);
            assert_eq!((counted(&snapshot), snapshot.complete), (6, true));
            assert!(xdp.status().programs.iter().all(|program| program.attached));
            drop(xdp);
            assert!(!Path::new(DIRECTORY).exists());
        });
    }
}

#[test]
fn windows_of_an_interface_that_appears_and_cannot_be_counted_are_marked() {
    on_veth(|| {
        let mut xdp = Xdp::at(vec![CountingPoint::ingress("rx2"), ingress()], options());
        xdp.install(&Tables::new(&options().settings, 1)).unwrap();
        assert!(warning(&mut xdp).contains("there is no such interface"));
        assert!(xdp.rotate().unwrap().complete, "nothing crosses what is not there");
        veth::pair(("tx2", "10.78.0.1"), ("rx2", "10.78.0.2")).unwrap();
        let other = Other::xdp().attach("rx2").unwrap();
        let said = warning(&mut xdp);
        assert!(said.contains("the interface is there, but is not counted"), "{said}");
        for _ in 0..3 {
            let parts = xdp.rotate().unwrap().parts;
            let complete: Vec<bool> = parts.iter().map(|part| part.snapshot.complete).collect();
            assert_eq!(complete, [false, true]);
        }
        drop(other);
        let is_counted = |event: &Event| matches!(event, Event::Warning(said) if said.contains("counted from now on"));
        until(|| xdp.events().unwrap().iter().any(is_counted));
        assert!(!xdp.rotate().unwrap().complete);
        assert!(xdp.rotate().unwrap().complete);
    });
}

#[test]
fn an_interface_that_goes_down_and_up_is_reported() {
    on_veth(|| {
        let both = vec![ingress(), CountingPoint { direction: Direction::Egress, ..ingress() }];
        let mut xdp = started(both, options());
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
            let mut xdp = Xdp::at(vec![ingress()], kept());
            assert_eq!(
                xdp.install(&Tables::new(&options().settings, 1))
                    .unwrap_err()
                    .to_string()
                    .split_once(": ")
                    .unwrap()
                    .1,
                error.split_once(": ").unwrap().1
            );
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
    for wait in WaitMethod::ALL {
        on_veth(move || {
            let mut xdp =
                started(vec![ingress(), egress()], Options { wait: Some(wait), ..options() });
            let sender = thread::spawn(|| send(20_000));
            let mut all = [0, 0];
            let rotate = |xdp: &mut Xdp, all: &mut [u64; 2]| {
                let snapshot = xdp.rotate().unwrap();
                all.iter_mut()
                    .zip(&snapshot.parts)
                    .for_each(|(all, part)| *all += counted(&part.snapshot));
            };
            while !sender.is_finished() {
                rotate(&mut xdp, &mut all);
            }
            sender.join().unwrap();
            for _ in 0..100 {
                if all == [20_000, 20_000] {
                    break;
                }
                rotate(&mut xdp, &mut all);
            }
            assert_eq!(all, [20_000, 20_000], "{wait:?}");
        });
    }
}

fn set_mtu(mtu: u32) {
    for device in ["tx", "rx"] {
        ip(&format!("link set dev {device} mtu {mtu}")).unwrap();
    }
}

/// Length of an Ethernet, an IPv4 and a UDP header, in bytes.
const HEADERS: u64 = 14 + 20 + 8;

#[test]
fn jumbo_frames_are_counted_with_all_their_bytes() {
    for mode in [Mode::Native, Mode::Skb, Mode::Tcx, Mode::Clsact] {
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
                assert_eq!(
                    (counters.ipv4, counters.packets(), counters.bytes),
                    (packets, packets, bytes),
                    "{mode:?}"
                );
                assert!(snapshot.complete);
            });
        }
    }
}

fn everything() -> Settings {
    let mut settings = Settings::default();
    settings.heavy.algorithm = flowgauge_core::heavy::Algorithm::HashPipe;
    assert!(settings.beyond_cardinality());
    settings
}

#[test]
fn the_limit_of_a_driver_is_described() {
    on_veth(|| {
        with_queues(4);
        if let Err(error) = ethtool("-L rx rx 1").and_then(|()| ethtool("-L tx tx 4")) {
            return skip(format_args!("ethtool ({error})"));
        }
        let mut xdp = Xdp::at(vec![ingress()], options());
        let said = xdp.install(&Tables::new(&options().settings, 1)).unwrap_err().to_string();
        assert!(
            said.contains("more transmit queues than it has receive queues (1)")
                && said.contains("ethtool -L rx"),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1);
    });
}

/// A device with an MTU of more than one page delivers packets in pieces.
#[test]
fn a_queue_that_comes_to_an_interface_of_jumbo_frames_is_counted() {
    on_veth(|| {
        with_queues(2);
        set_mtu(9000);
        if let Err(error) = ethtool("-L tx tx 1").and_then(|()| ethtool("-L rx rx 1")) {
            return skip(format_args!("ethtool ({error})"));
        }
        let mut xdp = started(vec![ingress()], kept());
        ethtool("-L rx rx 2").unwrap();
        ethtool("-L tx tx 2").unwrap();
        assert!(warning(&mut xdp).contains("has 2 receive queues now instead of 1"));
        kernel::detach(&pin());
        assert!(warning(&mut xdp).contains("its program was not attached"));
        send_flows(200);
        assert_eq!(counted(&window(&mut xdp, 200)), 200);
    });
}
