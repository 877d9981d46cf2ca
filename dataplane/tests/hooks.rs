//! What others do to the programs of the XDP backend, and to the interfaces they are at: nothing is missing without a word.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "support/kernel.rs"]
mod kernel;

use flowgauge_core::Settings;
use flowgauge_dataplane::xdp::veth::{RECEIVER, SENDER, ip, isolated};
use flowgauge_dataplane::xdp::{DIRECTORY, Keep, Options, Xdp};
use flowgauge_dataplane::{Dataplane, Direction, Event, Place, Snapshot, Tables};
use kernel::Other;
use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::Command;

/// Runs a test in a network of its own. Prints why it cannot where it cannot.
fn on_veth(test: impl FnOnce() + Send + 'static) {
    if let Err(need) = isolated(test) {
        println!("skipped: needs {need}");
    }
}

fn ingress() -> Place {
    Place::ingress(RECEIVER.0)
}

fn egress() -> Place {
    Place { interface: SENDER.0.to_owned(), direction: Direction::Egress }
}

fn options() -> Options {
    Options::new(Settings::default())
}

fn kept() -> Options {
    Options { pins: Some(Keep { directory: DIRECTORY.into(), adopt: false, leave: false }), ..options() }
}

fn started(places: Vec<Place>, options: Options) -> Xdp {
    let tables = Tables::new(&options.settings, 1);
    let mut xdp = Xdp::at(places, options);
    assert_eq!(xdp.install(&tables).unwrap(), None);
    assert_eq!(xdp.events().unwrap(), []);
    xdp
}

/// The pin of the only link.
fn pin() -> PathBuf {
    let places: Vec<PathBuf> = fs::read_dir(DIRECTORY).unwrap().map(|place| place.unwrap().path()).collect();
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

/// A window with at least so many packets: the kernel delivers them soon after they were sent.
fn window(xdp: &mut Xdp, packets: u64) -> Snapshot {
    (0..1_000_000).find(|_| counted(&xdp.sample().unwrap()) >= packets).expect("the packets");
    xdp.rotate().unwrap()
}

/// The one warning there is.
#[track_caller]
fn warning(xdp: &mut Xdp) -> String {
    let events = xdp.events().unwrap();
    let [Event::Warning(warning)] = &events[..] else { panic!("{events:?}") };
    warning.clone()
}

#[test]
fn a_program_detached_from_outside_is_attached_again_and_told() {
    for place in [ingress(), egress()] {
        on_veth(move || {
            let mut xdp = started(vec![place], kept());
            send(10);
            assert!(window(&mut xdp, 10).complete);
            kernel::detach(&pin());
            send(500);
            let said = warning(&mut xdp);
            assert!(said.contains("its program was not attached") && said.contains("missing"), "{said}");
            assert!(xdp.status().programs.iter().all(|program| program.attached));
            send(7);
            let snapshot = window(&mut xdp, 7);
            assert_eq!((counted(&snapshot), snapshot.complete), (7, false));
            send(8);
            let snapshot = window(&mut xdp, 8);
            assert_eq!((counted(&snapshot), snapshot.complete), (8, true));
            // Also without a look between the detachment and the end of the window.
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
        assert!(pin().exists(), "whoever adopts needs it");
        drop(xdp);
        assert!(!PathBuf::from(DIRECTORY).exists());
    });
}

#[test]
fn a_program_that_another_was_put_in_the_place_of_is_put_back() {
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
fn a_run_whose_place_is_taken_ends() {
    on_veth(|| {
        let mut xdp = started(vec![ingress()], kept());
        kernel::detach(&pin());
        let _other = Other::xdp().attach("rx").unwrap();
        let events = xdp.events().unwrap();
        let [Event::Warning(warning), Event::TrafficEnded] = &events[..] else { panic!("{events:?}") };
        assert!(warning.contains("cannot be attached again") && warning.contains("another XDP program"), "{warning}");
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
fn programs_that_come_before_ours_are_told_and_it_goes_to_the_front_again() {
    on_veth(|| {
        let mut xdp = started(vec![egress()], kept());
        let mut others = Vec::new();
        for _ in 0..3 {
            others.push(Other::tcx().attach("tx").unwrap());
            send(5);
            let said = warning(&mut xdp);
            assert!(said.contains("was attached before this one") && said.contains("the first again"), "{said}");
            send(10);
            let snapshot = window(&mut xdp, 10);
            assert_eq!((counted(&snapshot), snapshot.complete), (10, false));
            send(20);
            let snapshot = window(&mut xdp, 20);
            assert_eq!((counted(&snapshot), snapshot.complete), (20, true));
        }
        // Two that both want to be the first would never end.
        others.push(Other::tcx().attach("tx").unwrap());
        let said = warning(&mut xdp);
        assert!(said.contains("again and again"), "{said}");
        assert_eq!(xdp.events().unwrap(), [], "once");
        send(5);
        let snapshot = xdp.rotate().unwrap();
        assert_eq!((counted(&snapshot), snapshot.complete), (0, false), "it is marked as long as another is before");
        others.pop();
        xdp.rotate().unwrap();
        send(5);
        let snapshot = window(&mut xdp, 5);
        assert_eq!((counted(&snapshot), snapshot.complete), (5, true));
    });
}

fn ethtool(arguments: &str) -> Result<(), String> {
    let output = Command::new("ethtool").args(arguments.split(' ')).output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Devices with several queues instead of those that are there.
fn with_queues(queues: u32) {
    ip("link del dev rx").unwrap();
    let end = |name: &str| format!("name {name} numrxqueues {queues} numtxqueues {queues}");
    ip(&format!("link add {} type veth peer {}", end("rx"), end("tx"))).unwrap();
    for device in ["rx", "tx"] {
        ip(&format!("link set dev {device} addrgenmode none")).unwrap();
        ip(&format!("link set dev {device} up")).unwrap();
    }
    ip(&format!("addr add {}/24 dev tx", SENDER.1)).unwrap();
    ip(&format!("neigh add {} lladdr 02:00:00:00:00:02 dev tx nud permanent", RECEIVER.1)).unwrap();
}

/// Flows enough for every queue to get some.
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
            return println!("skipped: needs ethtool ({error})");
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
