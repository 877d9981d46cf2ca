//! Real connections over a veth pair between two hosts, with segmentation and receive offload on
//! and off: counts equal those of the wire, or the difference is reported. The networks are the
//! test's own and vanish with their threads.
//!
//! The sockets provide the packets of the wire: the segments that the kernel reports as sent and
//! received (`TCP_INFO`), and the datagrams sent.
#![allow(unsafe_code, reason = "options of sockets that no library here has")]

use crate::common::devices::{ethtool, polling, udp_socket};
use crate::common::kernel::{MODES, both_ways, in_mode, received, started};
use flowgauge_dataplane::xdp::{Mode, Xdp};
use flowgauge_dataplane::{CountRange, Dataplane, Event, LossCause, Losses};
use flowgauge_testing::hosts::{self, Host};
use flowgauge_testing::skip;
use flowgauge_traffic::veth::{RECEIVER, SENDER};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::AsRawFd;
use std::thread;

/// Segmentation and receive offload of both devices.
#[derive(Clone, Copy, Debug)]
enum Offloads {
    AsFound,
    On,
    Off,
}

impl Offloads {
    const ALL: [Offloads; 3] = [Offloads::AsFound, Offloads::On, Offloads::Off];

    /// Returns what configures a device, and returns whether it succeeded.
    fn setter(self) -> fn(&str) -> bool {
        match self {
            Offloads::AsFound => |_| true,
            Offloads::On => |device| set(device, "on"),
            Offloads::Off => |device| set(device, "off"),
        }
    }
}

/// Configures a device; returns whether `ethtool` succeeded.
fn set(device: &str, word: &str) -> bool {
    let all = ["tso", "gso", "gro", "tx-udp-segmentation"];
    let all = all.map(|feature| format!("{feature} {word}")).join(" ");
    ethtool(&format!("-K {device} {all}")).is_ok()
}

/// Runs a test with two hosts whose devices have these offloads.
fn connected(offloads: Offloads, test: impl FnOnce(&Host) + Send + 'static) {
    let test = move |far: &Host, is_set| if is_set { test(far) } else { skip("ethtool") };
    hosts::connected(offloads.setter(), test);
}

/// Segments that a connection sent and received, by the kernel's counters, and those not
/// acknowledged yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segments {
    sent: u64,
    received: u64,
    unacknowledged: u32,
}

fn segments(stream: &TcpStream) -> Segments {
    let mut info = [0_u8; 256];
    let mut length = info.len() as libc::socklen_t;
    // SAFETY: the kernel writes up to `length` bytes.
    let answer = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    assert!(answer == 0 && length >= 144, "{}", std::io::Error::last_os_error());
    let word = |offset: usize| u32::from_ne_bytes(info[offset..offset + 4].try_into().unwrap());
    Segments { sent: word(136).into(), received: word(140).into(), unacknowledged: word(24) }
}

/// Sets a socket option that is an integer.
fn set_option(socket: &impl AsRawFd, level: libc::c_int, option: libc::c_int, value: libc::c_int) {
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the kernel reads the bytes of the number.
    let answer = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), length)
    };
    assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
}

const TCP_BYTES: usize = 3 << 20;
/// Maximum bytes in flight: a quarter of the packets that a veth device queues before it drops
/// some, as with a fast sender and a busy receiving CPU.
const WINDOW: libc::c_int = 64 << 10;

/// Transfers the same amount in both directions of a connection between the hosts.
fn transfer(far: &Host) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((RECEIVER.1, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let connecting = far.run(move || TcpStream::connect((RECEIVER.1, port)).unwrap());
    let (accepted, _) = listener.accept().unwrap();
    for stream in [&connecting, &accepted] {
        set_option(stream, libc::SOL_SOCKET, libc::SO_RCVBUF, WINDOW);
    }
    for (mut from, mut to) in [(&connecting, &accepted), (&accepted, &connecting)] {
        thread::scope(|scope| {
            scope.spawn(move || from.write_all(&vec![7; TCP_BYTES]).unwrap());
            let mut received = vec![0; TCP_BYTES];
            to.read_exact(&mut received).unwrap();
        });
    }
    (connecting, accepted)
}

const SEGMENT: usize = 1000;
const SEGMENTS_EACH: usize = 20;
const SENDS: usize = 50;
const DATAGRAMS: u64 = (SENDS * SEGMENTS_EACH) as u64;
/// With Ethernet, IPv4 and UDP headers.
const DATAGRAM_BYTES: u64 = DATAGRAMS * (SEGMENT as u64 + 42);

/// Returns a socket that passes many datagrams at a time, which the device splits (UDP GSO).
fn datagrams_of(host: &str) -> UdpSocket {
    const UDP_SEGMENT: libc::c_int = 103;
    let socket = udp_socket(host, 0);
    set_option(&socket, libc::SOL_UDP, UDP_SEGMENT, SEGMENT as libc::c_int);
    socket
}

/// Sends twenty datagrams.
fn send_datagrams(from: &UdpSocket, to: impl ToSocketAddrs) {
    from.send_to(&[7; SEGMENT * SEGMENTS_EACH], to).unwrap();
}

/// Packets and bytes that arrived and that left, and what the ledger says of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    packets: [u64; 2],
    bytes: [u64; 2],
    all: [u64; 2],
    merged: [u64; 2],
    received: [CountRange; 2],
}

impl Counted {
    fn add(&mut self, xdp: &mut Xdp) {
        let snapshot = xdp.rotate().unwrap();
        for (way, part) in snapshot.parts.iter().enumerate() {
            let counters = part.snapshot.bank.counters;
            self.packets[way] += counters.ipv4;
            self.bytes[way] += counters.bytes;
            self.all[way] += counters.packets();
            self.merged[way] += counters.merged;
            self.received[way] = part.received.unwrap();
        }
    }

    /// Adds windows until both ends of a connection have acknowledged everything, and what was in
    /// flight then.
    fn add_all(&mut self, xdp: &mut Xdp, ends: [&TcpStream; 2]) {
        // A rotation waits for packets in flight, longer than the delay of an acknowledgement after
        // a few of them.
        for _ in 0..100 {
            self.add(xdp);
            if ends.iter().all(|stream| segments(stream).unacknowledged == 0) {
                break;
            }
        }
        (0..3).for_each(|_| self.add(xdp));
    }

    /// Checks that no packet is unaccounted for, however many super-packets there were.
    fn balances(&self) {
        for (CountRange { least, most }, all) in self.received.into_iter().zip(self.all) {
            assert!((least..=most).contains(&all), "{self:?}");
        }
    }
}

fn xdp(mode: Mode) -> Xdp {
    started(both_ways(RECEIVER.0), in_mode(mode))
}

/// Returns whether a notice says that merged packets count as one.
fn tells_of_merged(dataplane: &mut dyn Dataplane) -> bool {
    notes(&dataplane.events().unwrap(), &["TSO", "tcx"])
}

/// Returns whether a notice contains all of these parts.
fn notes(events: &[Event], parts: &[&str]) -> bool {
    let has_all = |notice: &str| parts.iter().all(|part| notice.contains(part));
    events.iter().any(|event| matches!(event, Event::Notice(notice) if has_all(notice)))
}

#[test]
fn tcp_is_counted_as_on_the_wire_or_the_difference_is_reported() {
    for mode in MODES {
        for offloads in Offloads::ALL {
            connected(offloads, move |far| {
                let mut xdp = xdp(mode);
                let told = tells_of_merged(&mut xdp);
                let before = received();
                let (connecting, accepted) = transfer(far);
                let mut counted = Counted::default();
                counted.add_all(&mut xdp, [&connecting, &accepted]);
                // From this side: what the far end sent arrived, and what it received left.
                let Segments { sent, received: arrived, .. } = segments(&connecting);
                let received = received() - before;
                println!(
                    "tcp, {mode:?}, offloads {offloads:?}: came {sent}, counted {}; left {arrived}, counted {}; {received} frames received",
                    counted.packets[0], counted.packets[1]
                );
                assert_eq!(counted.packets[1], arrived, "egress, {mode:?}, {offloads:?}");
                if mode == Mode::Skb {
                    assert!(told && counted.packets[0] <= sent, "ingress, {offloads:?}");
                    let is_exact = counted.packets[0] == sent;
                    assert_eq!(is_exact, matches!(offloads, Offloads::Off), "{offloads:?}");
                } else {
                    assert_eq!(counted.packets[0], sent, "ingress, {mode:?}, {offloads:?}");
                    assert!(!told);
                    counted.balances();
                }
                assert_eq!(xdp.losses().unwrap().total(), 0);
            });
        }
    }
}

#[test]
fn generic_mode_changes_nothing_for_a_classifier() {
    for (classifier, is_first) in [(Mode::Tcx, true), (Mode::Clsact, false)] {
        connected(Offloads::On, move |far| {
            let (first, second) =
                if is_first { (classifier, Mode::Skb) } else { (Mode::Skb, classifier) };
            let (first, second) = (xdp(first), xdp(second));
            let (mut counting, _generic) = if is_first { (first, second) } else { (second, first) };
            let (connecting, accepted) = transfer(far);
            let mut counted = Counted::default();
            counted.add_all(&mut counting, [&connecting, &accepted]);
            assert_eq!(counted.packets[0], segments(&connecting).sent, "{classifier:?}");
        });
    }
}

#[test]
fn datagrams_are_counted_as_on_the_wire_or_the_difference_is_reported() {
    for mode in MODES {
        for offloads in Offloads::ALL {
            connected(offloads, move |far| {
                let mut xdp = xdp(mode);
                let told = tells_of_merged(&mut xdp);
                let (near, distant) =
                    (datagrams_of(RECEIVER.1), far.run(|| datagrams_of(SENDER.1)));
                for (from, to) in [(&distant, &near), (&near, &distant)] {
                    for _ in 0..SENDS {
                        send_datagrams(from, to.local_addr().unwrap());
                        // At most as many at once as a device queues.
                        (0..SEGMENTS_EACH)
                            .for_each(|_| assert_eq!(to.recv(&mut [0; SEGMENT]).unwrap(), SEGMENT));
                    }
                }
                let mut counted = Counted::default();
                (0..5).for_each(|_| counted.add(&mut xdp));
                println!(
                    "udp, {mode:?}, offloads {offloads:?}: {DATAGRAMS} came and left, counted {:?}",
                    counted.packets
                );
                let left = (counted.packets[1], counted.bytes[1]);
                assert_eq!(left, (DATAGRAMS, DATAGRAM_BYTES), "egress, {mode:?}, {offloads:?}");
                let exact = (counted.packets[0], counted.bytes[0]) == (DATAGRAMS, DATAGRAM_BYTES);
                if mode == Mode::Skb {
                    let is_possible = exact || counted.packets[0] < DATAGRAMS;
                    assert!(told && is_possible, "ingress, {offloads:?}: {counted:?}");
                    assert_eq!(exact, matches!(offloads, Offloads::Off), "{offloads:?}");
                } else {
                    assert!(exact, "ingress, {mode:?}, {offloads:?}: {counted:?}");
                    counted.balances();
                    let merged = match (mode, offloads) {
                        (Mode::Native, _) | (_, Offloads::Off) => Some(0),
                        (_, Offloads::On) => Some(DATAGRAMS - SENDS as u64),
                        (_, Offloads::AsFound) => None,
                    };
                    let found = merged.map(|_| counted.merged[0]);
                    assert_eq!(found, merged, "{mode:?}, {offloads:?}");
                }
            });
        }
    }
}

#[test]
fn a_port_counts_datagrams_or_reports_their_loss() {
    for text in ["rx,from-host", "rx,xdp=skb,from-host"] {
        for offloads in Offloads::ALL {
            connected(offloads, move |far| {
                let mut poll = polling(text);
                let is_generic = text.contains("skb");
                assert_eq!(tells_of_merged(&mut poll), is_generic);
                let distant = far.run(|| datagrams_of(SENDER.1));
                let (mut packets, mut losses) = (0, Losses::default());
                for sent in 1..=SENDS as u64 {
                    send_datagrams(&distant, (RECEIVER.1, 9));
                    // At most as many at once as a device queues.
                    for _ in 0..100 {
                        packets += poll.rotate().unwrap().bank.counters.ipv4;
                        losses = poll.losses().unwrap();
                        if packets == sent * SEGMENTS_EACH as u64 || losses.total() == sent {
                            break;
                        }
                    }
                }
                println!(
                    "udp, af_xdp:{text}, offloads {offloads:?}: {DATAGRAMS} came, counted {packets}, {losses:?}"
                );
                if packets == DATAGRAMS {
                    assert_eq!(losses.total(), 0);
                    return;
                }
                // Every super-packet counts as one that did not fit.
                let may_lose = is_generic && !matches!(offloads, Offloads::Off);
                assert!(may_lose, "{text}, {offloads:?}: {packets}, {losses:?}");
                let lost = [LossCause::TooLarge, LossCause::Socket].map(|cause| losses.get(cause));
                assert_eq!(lost, [SENDS as u64, 0]);
                assert!(notes(&poll.events().unwrap(), &["larger than its frames"]));
            });
        }
    }
}
