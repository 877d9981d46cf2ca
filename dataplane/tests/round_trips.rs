//! Round trips of real sockets between two hosts, in the kernel: requests match their answers on
//! whichever CPU, and delays agree with the sockets. The networks are the test's own and vanish
//! with their threads.

use flowgauge_core::delay::histogram::least;
use flowgauge_core::delay::{self, DelayKind, Directions, Kinds};
use flowgauge_core::{Settings, cardinality};
use flowgauge_dataplane::xdp::{Mode, Options, Xdp};
use flowgauge_dataplane::{CountingPoint, Dataplane, Direction, Tables};
use flowgauge_testing::hosts::connected;
use flowgauge_traffic::veth::{RECEIVER, SENDER};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

/// Clients that ask at the same time.
const CLIENTS: usize = 8;
/// Questions per client.
const QUESTIONS: usize = 5;

/// Answers questions, each after its own delay; returns the duration of each at the server.
fn serve(socket: &UdpSocket) -> Vec<Duration> {
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    thread::scope(|scope| {
        let mut answers = Vec::new();
        for number in 0..CLIENTS * QUESTIONS {
            let mut question = [0; 64];
            let (length, client) = socket.recv_from(&mut question).unwrap();
            let (came, socket) = (Instant::now(), socket.try_clone().unwrap());
            answers.push(scope.spawn(move || {
                // From 2 to 41 ms, so that the test determines the round trips.
                thread::sleep(Duration::from_millis(2 + number as u64));
                question[2] |= 0x80;
                let took = came.elapsed();
                socket.send_to(&question[..length], client).unwrap();
                took
            }));
        }
        answers.into_iter().map(|answer| answer.join().unwrap()).collect()
    })
}

/// Asks questions; returns the duration of each at the clients.
fn ask(server: &'static str) -> Vec<Duration> {
    let client = move |number: usize| {
        let socket = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        (0..QUESTIONS).map(move |question| {
            let id = (number * QUESTIONS + question) as u16;
            let asked = Instant::now();
            socket
                .send_to(
                    &[&id.to_be_bytes()[..], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat(),
                    (server, 53),
                )
                .unwrap();
            let (_, _) = socket.recv_from(&mut [0; 64]).unwrap();
            asked.elapsed()
        })
    };
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| thread::spawn(move || client(number).collect::<Vec<_>>()))
        .collect();
    clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
}

fn counting(mode: Mode) -> Xdp {
    let off =
        cardinality::Settings { mode: cardinality::Mode::Off, ..cardinality::Settings::DEFAULT };
    let kinds =
        Kinds::NONE.with(DelayKind::Dns).with(DelayKind::TcpHandshake).with(DelayKind::TcpData);
    let delay = delay::Settings {
        kinds,
        directions: Directions::Apart,
        slots_log2: 15,
        ..delay::Settings::DEFAULT
    };
    let settings = Settings { delay, ..Settings::only(off) };
    let near = RECEIVER.0.to_owned();
    let places = vec![
        CountingPoint::ingress(RECEIVER.0),
        CountingPoint { interface: near, direction: Direction::Egress },
    ];
    let mut xdp = Xdp::at(places, Options { mode: Some(mode), ..Options::new(settings) });
    xdp.install(&Tables::new(&settings, 1)).unwrap();
    xdp
}

/// Checks that each delay is at least that of the server and at most that of the client, in sorted
/// order.
#[track_caller]
fn between(xdp: &mut Xdp, leaves: bool, mut served: Vec<Duration>, mut waited: Vec<Duration>) {
    let settings = xdp.settings().delay;
    let closed = xdp.rotate().unwrap();
    served.sort_unstable();
    waited.sort_unstable();
    let histogram = closed.bank.delay.histogram(&settings, DelayKind::Dns, leaves, 0).unwrap();
    let buckets = histogram.buckets().iter().enumerate();
    let found: Vec<usize> = buckets
        .flat_map(|(index, bucket)| std::iter::repeat_n(index, bucket.samples as usize))
        .collect();
    // A request may be overwritten before its answer arrives, here one in 32768 / CLIENTS; more
    // than two once in ten million runs.
    let missing = CLIENTS * QUESTIONS - found.len();
    assert!(missing <= 2, "{missing}");
    let tick = |ticks: u32| Duration::from_nanos(u64::from(ticks) << DelayKind::Dns.tick_bits());
    for ((bucket, served), waited) in found.into_iter().zip(&served).zip(&waited[missing..]) {
        // Times in whole ticks are up to a tick off.
        let (low, high) = (tick(least(bucket).saturating_sub(1)), tick(least(bucket + 1) + 1));
        assert!(
            low <= *waited && served <= &high,
            "{low:?} to {high:?}, not {served:?} to {waited:?}"
        );
    }
    let counts = |leaves| closed.bank.delay.counts(&settings, DelayKind::Dns, leaves).requests;
    assert_eq!((counts(leaves), counts(!leaves)), ((CLIENTS * QUESTIONS) as u64, 0));
}

#[test]
fn delays_are_those_of_the_sockets_in_both_directions() {
    for mode in [Mode::Native, Mode::Tcx, Mode::Clsact] {
        connected(
            |_| true,
            move |far, _| {
                let mut xdp = counting(mode);
                let listening = far.run(|| UdpSocket::bind((SENDER.1, 53)).unwrap());
                let server = far.start_with(move || serve(&listening));
                let waited = ask(SENDER.1);
                between(&mut xdp, true, server.recv().unwrap(), waited);
                let listening = UdpSocket::bind((RECEIVER.1, 53)).unwrap();
                let asking = far.start_with(|| ask(RECEIVER.1));
                let served = serve(&listening);
                between(&mut xdp, false, served, asking.recv().unwrap());
            },
        );
    }
}

#[test]
fn connections_are_found_on_both_hooks() {
    connected(
        |_| true,
        |far, _| {
            let mut xdp = counting(Mode::Native);
            let listener = TcpListener::bind((RECEIVER.1, 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            for _ in 0..20 {
                let connecting = far.run(move || TcpStream::connect((RECEIVER.1, port)).unwrap());
                let (accepted, _) = listener.accept().unwrap();
                drop((connecting, accepted));
            }
            let settings = xdp.settings().delay;
            let bank = xdp.rotate().unwrap().bank;
            // They arrive, and this host answers at once.
            let histogram =
                bank.delay.histogram(&settings, DelayKind::TcpHandshake, false, 0).unwrap();
            let counts = [false, true]
                .map(|leaves| bank.delay.counts(&settings, DelayKind::TcpHandshake, leaves));
            let found = histogram.buckets().iter().map(|bucket| bucket.samples).sum::<u32>();
            assert_eq!(found, 20, "{counts:?} of {:?}, {:?}", bank.counters, xdp.losses());
            assert_eq!(bank.delay.counts(&settings, DelayKind::TcpHandshake, false).requests, 20);
            assert_eq!(bank.delay.counts(&settings, DelayKind::TcpHandshake, true).requests, 0);
        },
    );
}
