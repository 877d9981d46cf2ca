//! The XDP backend on real interfaces: veth pairs in a network namespace of the test's own, which vanishes with its thread.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use flowgauge_core::{Precision, Settings};
use flowgauge_dataplane::xdp::{Mode, Xdp};
use flowgauge_dataplane::{Dataplane, Error, Event, LossCause, Tables};
use nix::sched::{CloneFlags, unshare};
use std::net::UdpSocket;
use std::process::Command;
use std::thread;

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split_ascii_whitespace()).output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Runs a test in a thread with a network namespace of its own and a veth pair in it: what is sent to 10.77.0.2 leaves `tx` and
/// arrives at `rx`. Prints why it cannot where it cannot.
fn on_veth(test: impl FnOnce() + Send + 'static) {
    let body = move || {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            println!("skipped: needs the right to make network namespaces ({error})");
            return;
        }
        // Without IPv6, nothing but the test itself sends packets.
        let setup = [
            "link set dev rx addrgenmode none",
            "link set dev tx addrgenmode none",
            "link set dev rx address 02:00:00:00:00:02",
            "link set dev rx up",
            "link set dev tx up",
            "addr add 10.77.0.1/24 dev tx",
            "neigh add 10.77.0.2 lladdr 02:00:00:00:00:02 dev tx nud permanent",
        ];
        if let Err(error) = ip("link add rx type veth peer name tx") {
            println!("skipped: needs veth devices and the program ip ({error})");
            return;
        }
        setup.iter().for_each(|arguments| ip(arguments).unwrap());
        test();
    };
    thread::spawn(body).join().unwrap();
}

fn tables() -> Tables {
    Tables::new(&Settings::default(), 1)
}

/// Packets that must be counted but have not been yet: the kernel delivers them soon after they were sent.
fn collect(xdp: &mut Xdp, missing: u64) -> u64 {
    let mut counted = 0;
    // Every rotation waits for a grace period, in which a CPU delivers what it has.
    for _ in 0..100 {
        if counted >= missing {
            break;
        }
        counted += xdp.rotate().unwrap().bank.counters.ipv4;
    }
    counted
}

fn every_packet_is_in_one_window(mode: Mode) {
    on_veth(move || {
        let mut xdp = Xdp::on_interface("rx", mode, Settings::default());
        xdp.install(&tables()).unwrap();
        let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
        let (mut sent, mut counted, mut bytes) = (0, 0, 0);
        for round in 0_u64..200 {
            for _ in 0..=round % 50 {
                socket.send_to(&[0; 18], "10.77.0.2:9").unwrap();
                sent += 1;
            }
            let window = xdp.rotate().unwrap();
            counted += window.bank.counters.ipv4;
            bytes += window.bank.counters.bytes;
            assert!(counted <= sent, "{counted} counted of {sent}");
        }
        counted += collect(&mut xdp, sent - counted);
        assert_eq!(counted, sent);
        assert_eq!(xdp.losses().unwrap().get(LossCause::Device), 0);
        assert!(bytes >= 60 * counted / 2, "{bytes} bytes of {counted} packets");
    });
}

#[test]
fn native_mode_counts_every_packet_in_one_window() {
    every_packet_is_in_one_window(Mode::Native);
}

#[test]
fn skb_mode_counts_every_packet_in_one_window() {
    every_packet_is_in_one_window(Mode::Skb);
}

#[test]
fn a_sample_shows_the_source_that_was_seen() {
    on_veth(|| {
        let mut xdp = Xdp::on_interface("rx", Mode::Native, Settings::default());
        xdp.install(&tables()).unwrap();
        let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
        socket.send_to(&[0; 18], "10.77.0.2:9").unwrap();
        let seen = (0..1_000_000).find_map(|_| Some(xdp.sample().unwrap()).filter(|sample| sample.bank.counters.ipv4 > 0)).unwrap();
        let expected = Precision::default().split(tables().tabulation.hash(flowgauge_core::hash::crc32(&[10, 77, 0, 1])));
        let levels = seen.bank.cardinality.levels(Precision::default());
        assert_eq!(levels[expected.0], expected.1);
        assert_eq!(levels.iter().filter(|&&level| level > 0).count(), 1);
    });
}

#[test]
fn an_interface_is_left_as_it_was() {
    on_veth(|| {
        for _ in 0..3 {
            let mut xdp = Xdp::on_interface("rx", Mode::Native, Settings::default());
            xdp.install(&tables()).unwrap();
            drop(xdp);
        }
        let output = Command::new("ip").args(["link", "show", "rx"]).output().unwrap();
        assert!(!String::from_utf8_lossy(&output.stdout).contains("xdp"), "a program is left behind");
    });
}

fn refusal(interface: &str, mode: Mode) -> String {
    match Xdp::on_interface(interface, mode, Settings::default()).install(&tables()) {
        Err(Error::Kernel { problem, .. }) => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn refusals_say_what_to_do() {
    on_veth(|| {
        assert!(refusal("nowhere", Mode::Native).contains("no such interface"));
        assert!(refusal("lo", Mode::Native).contains("--xdp-mode skb"), "loopback has no native mode");
        let mut first = Xdp::on_interface("rx", Mode::Native, Settings::default());
        first.install(&tables()).unwrap();
        assert!(refusal("rx", Mode::Native).contains("another XDP program"));
    });
}

#[test]
fn an_interface_that_vanishes_is_reported_once() {
    on_veth(|| {
        let mut xdp = Xdp::on_interface("rx", Mode::Native, Settings::default());
        xdp.install(&tables()).unwrap();
        assert_eq!(xdp.events().unwrap(), []);
        ip("link del dev rx").unwrap();
        assert!(
            matches!(&xdp.events().unwrap()[..], [Event::Warning(warning), Event::TrafficEnded] if warning.contains("is gone"))
        );
        assert_eq!(xdp.events().unwrap(), []);
        xdp.rotate().unwrap();
    });
}
