//! Round trips of real sockets between two hosts, in the kernel: requests match their answers on
//! whichever CPU, and delays agree with the sockets. The networks are the test's own and vanish
//! with their threads.

use crate::common::delays::{assert_between, found, resolve};
use crate::common::devices::{receive, udp_socket};
use crate::common::kernel::{both_ways, in_mode, started};
use crate::common::only_delays;
use flowgauge_core::delay::{self, DelayKind, Directions, Kinds};
use flowgauge_dataplane::Dataplane;
use flowgauge_dataplane::xdp::{Mode, Options, Xdp};
use flowgauge_testing::hosts::linked;
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
    thread::scope(|scope| {
        let mut answers = Vec::new();
        for number in 0..CLIENTS * QUESTIONS {
            let mut question = [0; 64];
            let (length, client) = receive(socket, &mut question);
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
        let socket = udp_socket("0.0.0.0", 0);
        (0..QUESTIONS).map(move |question| {
            let id = (number * QUESTIONS + question) as u16;
            let asked = Instant::now();
            resolve(&socket, server, id);
            asked.elapsed()
        })
    };
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| thread::spawn(move || client(number).collect::<Vec<_>>()))
        .collect();
    clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
}

fn counting(mode: Mode) -> Xdp {
    let kinds =
        Kinds::NONE.with(DelayKind::Dns).with(DelayKind::TcpHandshake).with(DelayKind::TcpData);
    let directions = Directions::Apart;
    let delay = delay::Settings { kinds, directions, slots_log2: 15, ..delay::Settings::DEFAULT };
    started(both_ways(RECEIVER.0), Options { settings: only_delays(delay), ..in_mode(mode) })
}

/// Checks that each delay is at least that of the server and at most that of the client, in sorted
/// order.
#[track_caller]
fn between(xdp: &mut Xdp, leaves: bool, served: Vec<Duration>, waited: Vec<Duration>) {
    let settings = xdp.settings().delay;
    let closed = xdp.rotate().unwrap();
    assert_eq!(waited.len(), CLIENTS * QUESTIONS);
    assert_between(&found(&closed.bank, &settings, DelayKind::Dns, leaves), served, waited);
    let counts = |leaves| closed.bank.delay.counts(&settings, DelayKind::Dns, leaves).requests;
    assert_eq!((counts(leaves), counts(!leaves)), ((CLIENTS * QUESTIONS) as u64, 0));
}

#[test]
fn delays_are_those_of_the_sockets_in_both_directions() {
    for mode in [Mode::Native, Mode::Tcx, Mode::Clsact] {
        linked(move |far| {
            let mut xdp = counting(mode);
            let listening = far.run(|| udp_socket(SENDER.1, 53));
            let server = far.start_with(move || serve(&listening));
            let waited = ask(SENDER.1);
            between(&mut xdp, true, server.recv().unwrap(), waited);
            let listening = udp_socket(RECEIVER.1, 53);
            let asking = far.start_with(|| ask(RECEIVER.1));
            let served = serve(&listening);
            between(&mut xdp, false, served, asking.recv().unwrap());
        });
    }
}

#[test]
fn connections_are_found_on_both_hooks() {
    linked(|far| {
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
        let found = found(&bank, &settings, DelayKind::TcpHandshake, false).len();
        let counts = [false, true]
            .map(|leaves| bank.delay.counts(&settings, DelayKind::TcpHandshake, leaves));
        assert_eq!(found, 20, "{counts:?} of {:?}, {:?}", bank.counters, xdp.losses());
        assert_eq!(counts.map(|counts| counts.requests), [20, 0]);
    });
}
