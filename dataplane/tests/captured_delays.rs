//! Delays beside a capture of the same packets, on every hook and of every kind: both ends of an
//! exchange cross a mirror port, and a packet socket there notes their times. On a veth pair in a
//! network of the test's own, which vanishes with its thread.
#![allow(unsafe_code, reason = "times of a packet socket, which no library here has")]

use crate::common::delays::buckets;
use crate::common::devices::on_veth_with;
use crate::common::kernel::{in_mode, ingress, received};
use crate::common::only_delays;
use flowgauge_core::Settings;
use flowgauge_core::delay::histogram::least;
use flowgauge_core::delay::{self, DelayKind, Kinds};
use flowgauge_dataplane::poll::port::af_xdp;
use flowgauge_dataplane::poll::{self, PollMode};
use flowgauge_dataplane::xdp::{Mode, Options, Xdp};
use flowgauge_dataplane::{Dataplane, Poll, Tables};
use flowgauge_p4_model::wire::Wire;
use flowgauge_testing::extent;
use flowgauge_testing::frames::Ip;
use flowgauge_testing::wait::until;
use flowgauge_traffic::frame::flag::{ACK, FIN, SYN};
use flowgauge_traffic::frame::{TCP, Tcp, UDP, dns, echo, udp};
use flowgauge_traffic::veth::{RECEIVER, SENDER};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// `SIOCGSTAMPNS`: the time of the last packet that a socket received.
const TIME_OF_LAST: libc::c_ulong = 0x8907;
/// `PACKET_OUTGOING`.
const OUTGOING: u8 = 4;

/// Packet socket that sees the packets of all interfaces, with the kernel's times.
struct Capture(OwnedFd);

impl Capture {
    fn open() -> Self {
        let all = i32::from((libc::ETH_P_ALL as u16).to_be());
        // SAFETY: takes numbers only.
        let socket =
            unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, all) };
        assert!(socket >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: the descriptor is new and not owned elsewhere.
        let capture = Capture(unsafe { OwnedFd::from_raw_fd(socket) });
        // The first call makes the kernel record times; it has not recorded one yet.
        let _ = capture.time();
        capture
    }

    fn time(&self) -> Option<u64> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes a time.
        let answer = unsafe { libc::ioctl(self.0.as_raw_fd(), TIME_OF_LAST as _, &raw mut time) };
        (answer == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    /// Waits until a frame leaves, and returns when.
    fn leaves(&self, frame: &[u8]) -> u64 {
        loop {
            let mut buffer = [0_u8; 2048];
            // SAFETY: plain numbers, for which zero is a value.
            let mut from = unsafe { std::mem::zeroed::<libc::sockaddr_ll>() };
            let mut length = size_of_val(&from) as libc::socklen_t;
            // SAFETY: the kernel writes at most as many bytes as both buffers have.
            let received = unsafe {
                libc::recvfrom(
                    self.0.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    0,
                    (&raw mut from).cast(),
                    &raw mut length,
                )
            };
            assert!(received >= 0, "{}", std::io::Error::last_os_error());
            if from.sll_pkttype == OUTGOING && &buffer[..received as usize] == frame {
                return self.time().unwrap();
            }
        }
    }
}

/// Frames of one request and its answer.
struct Exchange {
    /// Frames that come before the request.
    before: Vec<Vec<u8>>,
    request: Vec<u8>,
    answer: Vec<u8>,
}

const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [10, 0, 0, 2];

/// Makes the frames of an exchange; each of another number has other ends.
fn exchange(kind: DelayKind, number: u16) -> Exchange {
    let port = 10_000 + number;
    let ends = |leaves: bool, server: u16| match leaves {
        true => ([port, server], CLIENT, SERVER),
        false => ([server, port], SERVER, CLIENT),
    };
    let tcp = |leaves: bool, flags: u8, numbers: [u32; 2], options: &[u8], data: &[u8]| {
        let (ports, from, to) = ends(leaves, 80);
        let [sequence, acknowledgement] = numbers;
        let tcp = Tcp { ports, flags, sequence, acknowledgement, options };
        padded(Ip::new(from, to, TCP).frame(&tcp.segment(data)))
    };
    let datagram = |leaves: bool, server: u16, payload: &[u8]| {
        let (ports, from, to) = ends(leaves, server);
        padded(Ip::new(from, to, UDP).frame(&udp(ports, payload)))
    };
    let stamped = |sent: u32, echoed: u32| {
        [&[1, 1, 8, 10][..], &sent.to_be_bytes(), &echoed.to_be_bytes()].concat()
    };
    let spin = |bit: u8| datagram(true, 443, &[0x40 | bit << 5; 20]);
    let token = u32::from(number);
    let [request, answer] = match kind {
        DelayKind::TcpHandshake => {
            [tcp(true, SYN, [999, 0], &[], &[]), tcp(false, SYN | ACK, [1, 1000], &[], &[])]
        }
        DelayKind::TcpData => {
            [tcp(true, ACK, [1000, 2], &[], &[7; 10]), tcp(false, ACK, [2, 1010], &[], &[])]
        }
        DelayKind::TcpDuration => {
            [tcp(true, SYN, [999, 0], &[], &[]), tcp(true, FIN | ACK, [1000, 2], &[], &[])]
        }
        DelayKind::TcpTimestamps => [
            tcp(true, ACK, [1000, 2], &stamped(77, 1), &[7; 10]),
            tcp(false, ACK, [2, 1010], &stamped(99, 77), &[]),
        ],
        DelayKind::Dns => {
            [false, true].map(|is_answer| datagram(!is_answer, 53, &dns(number, is_answer)))
        }
        DelayKind::Icmp => {
            [echo(CLIENT, SERVER, token, false), echo(SERVER, CLIENT, token, true)].map(padded)
        }
        DelayKind::QuicSpin => [spin(1), spin(0)],
    };
    // A round lasts from one edge of the spin bit to the next.
    let before = if kind == DelayKind::QuicSpin { vec![spin(0)] } else { Vec::new() };
    Exchange { before, request, answer }
}

fn padded(mut frame: Vec<u8>) -> Vec<u8> {
    frame.resize(frame.len().max(60), 0);
    frame
}

/// Place where packets are counted.
#[derive(Clone, Copy, Debug)]
enum Hook {
    Kernel(Mode),
    Port,
}

impl Hook {
    fn counting(self, settings: Settings) -> Box<dyn Dataplane> {
        let mut dataplane: Box<dyn Dataplane> = match self {
            Hook::Kernel(mode) => {
                Box::new(Xdp::at(vec![ingress()], Options { settings, ..in_mode(mode) }))
            }
            // A busy worker sleeps never, so that its gap has all of the time until it looks.
            Hook::Port => Box::new(Poll::new(
                af_xdp(&RECEIVER.0.parse().unwrap(), None).unwrap(),
                poll::Options { settings, poll_mode: PollMode::Busy, ..poll::Options::default() },
            )),
        };
        dataplane.install(&Tables::new(&settings, 1)).unwrap();
        dataplane
    }
}

/// Times of a packet, in nanoseconds: bounds of its arrival, and that of the capture.
#[derive(Clone, Copy)]
struct Crossing {
    from: u64,
    captured: u64,
    by: u64,
}

/// Mirror port with a counter and a capture.
struct Mirror {
    hook: Hook,
    dataplane: Box<dyn Dataplane>,
    wire: Wire,
    capture: Capture,
    /// Packets in the open window.
    sent: u64,
}

impl Mirror {
    fn counted(&mut self) -> u64 {
        self.dataplane.sample().unwrap().bank.counters.packets()
    }

    /// Sends a frame, and waits until it has passed the hook.
    fn cross(&mut self, frame: &[u8]) -> Crossing {
        let (before, from) = (received(), now_ns());
        assert!(self.wire.send(frame).unwrap(), "the device has room");
        let captured = self.capture.leaves(frame);
        self.sent += 1;
        match self.hook {
            // The device counts a packet once the program has passed it on, whenever a worker finds
            // it.
            Hook::Port => until(|| received() > before),
            Hook::Kernel(_) => until(|| self.counted() >= self.sent),
        }
        Crossing { from, captured, by: now_ns() }
    }
}

/// Exchanges of a kind at a hook.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    exchanges: u32,
    /// Exchanges whose interval holds the value of the capture.
    held: u32,
    /// Exchanges whose delay is not longer than the gap, and is not given.
    marked: u32,
    /// Exchanges whose interval is not among the delays that are possible.
    missed: u32,
}

/// Makes an exchange with a delay, and compares.
fn compare(mirror: &mut Mirror, kind: DelayKind, number: u16, hold: Duration, tally: &mut Tally) {
    let settings = mirror.dataplane.settings().delay;
    let Exchange { before, request, answer } = exchange(kind, number);
    before.iter().for_each(|frame| _ = mirror.cross(frame));
    let asked = mirror.cross(&request);
    let began = Instant::now();
    until(|| began.elapsed() >= hold);
    let answered = mirror.cross(&answer);
    let sent = std::mem::take(&mut mirror.sent);
    until(|| mirror.counted() >= sent);
    let window = mirror.dataplane.rotate().unwrap();
    let found = buckets(&window.bank, &settings, kind, false);
    let [bucket] = found[..] else { panic!("{kind:?}: {found:?}, {:?}", window.bank.counters) };
    let (tick, gap) = (|ticks: u32| u64::from(ticks) << kind.tick_bits(), window.gap_ns);
    assert_eq!(gap > 0, matches!(mirror.hook, Hook::Port), "{gap}");
    // Times in whole ticks are up to a tick off.
    let low = tick(least(bucket).saturating_sub(1)).saturating_sub(gap);
    let high = tick(least(bucket + 1) + 1) + gap;
    let captured = answered.captured.saturating_sub(asked.captured);
    let possible = answered.from.saturating_sub(asked.by)..=answered.by - asked.from;
    let is_held = (low..=high).contains(&captured);
    let is_missed = *possible.start() > high || *possible.end() < low;
    if is_missed {
        println!("{:?} {kind:?}: {low} to {high} ns, not {possible:?}, gap {gap}", mirror.hook);
    }
    tally.exchanges += 1;
    tally.held += u32::from(is_held);
    tally.marked += u32::from(tick(least(bucket)) <= gap);
    tally.missed += u32::from(is_missed);
}

/// Runs a test while more threads than CPUs are busy, if it is to be.
fn beside_load(is_loaded: bool, test: impl FnOnce()) {
    /// Ends the load, also if the test fails.
    struct End<'a>(&'a AtomicBool);

    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let is_over = AtomicBool::new(false);
    let threads = 2 * thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in (0..threads).filter(|_| is_loaded) {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let _end = End(&is_over);
        test();
    });
}

fn delays_agree(hook: Hook) {
    on_veth_with(0..extent(1, 20), move |seed| {
        let kinds = DelayKind::ALL.into_iter().fold(Kinds::NONE, Kinds::with);
        let delay = delay::Settings { kinds, ..delay::Settings::DEFAULT };
        let dataplane = hook.counting(only_delays(delay));
        let (wire, capture) = (Wire::open(SENDER.0).unwrap(), Capture::open());
        let mut mirror = Mirror { hook, dataplane, wire, capture, sent: 0 };
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let (mut number, mut is_missed) = (0, false);
        println!("{hook:?}, seed {seed}: exchanges, held, marked, missed");
        for is_loaded in [false, true] {
            for kind in DelayKind::ALL {
                let mut tally = Tally::default();
                beside_load(is_loaded, || {
                    for _ in 0..3 {
                        let hold = Duration::from_micros(random.random_range(100..20_000));
                        compare(&mut mirror, kind, number, hold, &mut tally);
                        number += 1;
                    }
                });
                let Tally { exchanges, held, marked, missed } = tally;
                let load = if is_loaded { "busy" } else { "idle" };
                let name = kind.name();
                println!("  {load} {name:<16}{exchanges:>4}{held:>4}{marked:>4}{missed:>4}");
                is_missed |= missed > 0;
            }
        }
        assert!(!is_missed, "{hook:?}: intervals that hold no possible delay");
    });
}

#[test]
fn delays_of_native_xdp_hold_those_of_a_capture() {
    delays_agree(Hook::Kernel(Mode::Native));
}

#[test]
fn delays_of_generic_xdp_hold_those_of_a_capture() {
    delays_agree(Hook::Kernel(Mode::Skb));
}

#[test]
fn delays_of_tcx_hold_those_of_a_capture() {
    delays_agree(Hook::Kernel(Mode::Tcx));
}

#[test]
fn delays_of_clsact_hold_those_of_a_capture() {
    delays_agree(Hook::Kernel(Mode::Clsact));
}

#[test]
fn delays_of_a_port_hold_those_of_a_capture_or_are_marked() {
    delays_agree(Hook::Port);
}
