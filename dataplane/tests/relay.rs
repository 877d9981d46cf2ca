//! Real connections through a relay that delays, loses or reorders packets: measurements find exactly
//! that, in both directions and at both ends. The networks are the test's own and vanish with their
//! threads.

use crate::common::delays::{MISSING, ask_dns, assert_between, found};
use crate::common::devices::{receive, udp_socket};
use crate::common::kernel::{MODES, both_ways, in_mode, started};
use crate::common::nothing;
use flowgauge_core::delay::{self, DelayKind, Directions, Kinds};
use flowgauge_core::{Settings, reorder};
use flowgauge_dataplane::Dataplane;
use flowgauge_dataplane::xdp::{Mode, Options, Xdp};
use flowgauge_testing::relay::{Relay, relayed};
use flowgauge_traffic::veth::{RECEIVER, SENDER};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// Concurrent connections.
const CONNECTIONS: usize = 8;
/// Questions per connection.
const QUESTIONS: usize = 10;
/// Delay of packets from the server, and to it.
const BACK: Duration = Duration::from_millis(10);
const FORTH: Duration = Duration::from_millis(15);

/// Counts at both hooks of a device of this thread's network.
fn counting(mode: Mode, device: &str, change: impl FnOnce(&mut Settings)) -> Xdp {
    let mut settings = nothing();
    change(&mut settings);
    started(both_ways(device), Options { settings, ..in_mode(mode) })
}

fn delays(settings: &mut Settings) {
    let kinds = Kinds::NONE.with(DelayKind::TcpHandshake).with(DelayKind::TcpData);
    let directions = Directions::Apart;
    settings.delay =
        delay::Settings { kinds, directions, slots_log2: 16, ..delay::Settings::DEFAULT };
}

/// Answers every byte with one byte, until the client closes.
fn serve(listener: &TcpListener) {
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            let (mut connection, _) = listener.accept().unwrap();
            scope.spawn(move || {
                connection.set_nodelay(true).unwrap();
                let mut byte = [0];
                while connection.read(&mut byte).unwrap() == 1 {
                    connection.write_all(&byte).unwrap();
                }
            });
        }
    });
}

/// Asks questions; returns the durations of connection set-ups and of answers.
fn ask(port: u16) -> (Vec<Duration>, Vec<Duration>) {
    let connection = move || {
        let began = Instant::now();
        let mut connection = TcpStream::connect((SENDER.1, port)).unwrap();
        let connected = began.elapsed();
        connection.set_nodelay(true).unwrap();
        let answers = (0..QUESTIONS).map(|_| {
            let asked = Instant::now();
            connection.write_all(&[1]).unwrap();
            connection.read_exact(&mut [0]).unwrap();
            asked.elapsed()
        });
        (connected, answers.collect::<Vec<_>>())
    };
    let connections: Vec<_> = (0..CONNECTIONS).map(|_| thread::spawn(connection)).collect();
    let (connected, answered): (Vec<_>, Vec<_>) =
        connections.into_iter().map(|it| it.join().unwrap()).unzip();
    (connected, answered.concat())
}

#[test]
fn delays_are_those_of_the_relay_at_both_ends() {
    let hold = |to_near: bool, _: &[u8]| if to_near { BACK } else { FORTH };
    relayed(Relay::delaying(hold), |far, _| {
        let mut near = counting(Mode::Native, RECEIVER.0, delays);
        let settings = near.settings().delay;
        let (mut there, listener) = far.run(|| {
            (counting(Mode::Native, SENDER.0, delays), TcpListener::bind((SENDER.1, 0)).unwrap())
        });
        let port = listener.local_addr().unwrap().port();
        let served = far.start_with(move || serve(&listener));
        let (connected, answered) = ask(port);
        served.recv().unwrap();
        let (near, there) = (near.rotate().unwrap().bank, there.rotate().unwrap().bank);
        // An answer acknowledges the question.
        for (kind, waited) in [(DelayKind::TcpHandshake, connected), (DelayKind::TcpData, answered)]
        {
            let least = vec![BACK + FORTH; waited.len()];
            assert_between(&found(&near, &settings, kind, true), least, waited);
        }
        // The server answers arriving handshakes at once, and starts none itself.
        let handshakes = [false, true]
            .map(|leaves| there.delay.counts(&settings, DelayKind::TcpHandshake, leaves).requests);
        assert_eq!(handshakes, [CONNECTIONS as u64, 0]);
        // The server's answers are acknowledged by the next question, or separately after the last:
        // never sooner than the relay allows.
        let acknowledged = found(&there, &settings, DelayKind::TcpData, true);
        assert!(acknowledged.len() + MISSING >= CONNECTIONS * QUESTIONS, "{}", acknowledged.len());
        assert!(acknowledged.iter().all(|(_, high)| *high >= BACK + FORTH), "{acknowledged:?}");
    });
}

/// Number of the last DNS question, which is answered.
const LAST: u16 = 300;

/// Returns whether the relay loses a question, or the answer to it.
fn is_lost(question: u16, is_answer: bool) -> bool {
    let every = if is_answer { 7 } else { 5 };
    question != LAST && question.is_multiple_of(every)
}

/// Packets that are lost between the hosts never arrived, and no window lacks them.
#[test]
fn what_the_relay_loses_is_unanswered_and_not_missing() {
    for mode in MODES {
        let is_datagram = |frame: &[u8]| frame[12..14] == [8, 0] && frame[23] == 17;
        let fate = move |to_near: bool, frame: &[u8]| {
            let question = || u16::from_be_bytes([frame[42], frame[43]]);
            (!is_datagram(frame) || !is_lost(question(), to_near)).then_some(Duration::ZERO)
        };
        relayed(Relay::losing(fate), move |far, relay| {
            let mut near = counting(mode, RECEIVER.0, |settings| {
                delays(settings);
                settings.delay.kinds = Kinds::NONE.with(DelayKind::Dns);
            });
            let settings = near.settings().delay;
            let server = far.run(|| udp_socket(SENDER.1, 53));
            let served = far.start_with(move || {
                let mut served = Vec::new();
                while served.last() != Some(&LAST) {
                    let mut question = [0; 64];
                    let (length, client) = receive(&server, &mut question);
                    served.push(u16::from_be_bytes([question[0], question[1]]));
                    question[2] |= 0x80;
                    server.send_to(&question[..length], client).unwrap();
                }
                served
            });
            let client = udp_socket("0.0.0.0", 0);
            for question in 1..=LAST {
                ask_dns(&client, SENDER.1, question);
                // No other question is asked meanwhile, which might take the place of this one.
                if !is_lost(question, false) && !is_lost(question, true) {
                    receive(&client, &mut [0; 64]);
                }
            }
            let asked = 1..=LAST;
            let arrived: Vec<u16> = asked.clone().filter(|it| !is_lost(*it, false)).collect();
            assert_eq!(served.recv().unwrap(), arrived, "{mode:?}");
            let answered = arrived.iter().filter(|it| !is_lost(**it, true)).count();
            let sent = relay.sent_to_near();
            let sent = sent.iter().filter(|frame| is_datagram(frame)).count();
            assert_eq!(sent, answered, "{mode:?}");
            let window = near.rotate().unwrap();
            assert!(window.complete, "{mode:?}");
            assert_eq!(near.losses().unwrap().total(), 0, "{mode:?}");
            let requests = window.bank.delay.counts(&settings, DelayKind::Dns, true).requests;
            assert_eq!(requests, asked.count() as u64, "{mode:?}");
            let delays = found(&window.bank, &settings, DelayKind::Dns, true);
            assert_eq!(delays.len(), answered, "{mode:?}");
            let arrivals = &window.parts[0];
            let counters = arrivals.snapshot.bank.counters;
            assert_eq!(counters.ipv4, answered as u64, "{mode:?}");
            let received = arrivals.received.unwrap();
            let range = received.least..=received.most;
            assert!(range.contains(&counters.packets()), "{mode:?}: {received:?}");
        });
    }
}

/// Counts of a flow's segments, by the definition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    packets: u64,
    out_of_order: u64,
    retransmitted: u64,
    gaps: u64,
}

/// Counts a segment that leaves the relay.
fn count(flows: &mut HashMap<[u8; 12], (u32, u32)>, counted: &mut Counted, frame: &[u8]) {
    let ip = &frame[14..];
    if frame[12..14] != [8, 0] || ip[9] != 6 {
        return;
    }
    let header = usize::from(ip[0] & 15) * 4;
    let tcp = &ip[header..];
    let payload =
        u32::from(u16::from_be_bytes([ip[2], ip[3]])) - header as u32 - u32::from(tcp[12] >> 4) * 4;
    let (fin, syn, rst) = (tcp[13] & 1, tcp[13] & 2, tcp[13] & 4);
    let flow = [&ip[12..20], &tcp[..4]].concat().try_into().unwrap();
    if syn != 0 {
        // A SYN that is sent again also makes the next segment the first of its flow.
        flows.remove(&flow);
    }
    if payload == 0 || syn | rst != 0 {
        return;
    }
    let sequence = u32::from_be_bytes(tcp[4..8].try_into().unwrap());
    let end = sequence.wrapping_add(payload).wrapping_add(fin.into());
    counted.packets += 1;
    let Some((next, missing)) = flows.get_mut(&flow) else {
        flows.insert(flow, (end, 0));
        return;
    };
    match sequence.wrapping_sub(*next) as i32 {
        0 => {}
        ahead @ 1.. => {
            counted.gaps += 1;
            *missing += ahead as u32;
        }
        _ if *missing >= payload => {
            counted.out_of_order += 1;
            *missing -= payload;
        }
        _ => counted.retransmitted += 1,
    }
    if (end.wrapping_sub(*next) as i32) > 0 {
        *next = end;
    }
}

#[test]
fn reordering_is_that_of_the_relay() {
    const BYTES: usize = 400_000;
    const PORT: u16 = 5001;
    const PORTS: &str = "40000 40007";
    // Every seventh data segment to the near host waits for the three that follow it.
    let mut number = 0_u32;
    let late = move |to_near: bool, frame: &[u8]| {
        let is_data = to_near && frame.len() > 1000;
        number += u32::from(is_data);
        if is_data && number.is_multiple_of(7) { 3 } else { 0 }
    };
    relayed(Relay::reordering(late), |far, relay| {
        let mut near = counting(Mode::Native, RECEIVER.0, |settings| {
            settings.reorder.algorithm = reorder::Algorithm::Hybrid;
        });
        // The same ports in every run: with others, two flows may have the same slot.
        fs::write("/proc/sys/net/ipv4/ip_local_port_range", PORTS).unwrap();
        let listener = far.run(|| TcpListener::bind((SENDER.1, PORT)).unwrap());
        let sent = far.start_with(move || {
            let send = |_| {
                let (mut connection, _) = listener.accept().unwrap();
                thread::spawn(move || connection.write_all(&vec![7; BYTES]).unwrap())
            };
            let senders: Vec<_> = (0..CONNECTIONS).map(send).collect();
            senders.into_iter().for_each(|sender| sender.join().unwrap());
        });
        let receive = || {
            thread::spawn(move || {
                TcpStream::connect((SENDER.1, PORT)).unwrap().read_to_end(&mut Vec::new()).unwrap()
            })
        };
        let receivers: Vec<_> = (0..CONNECTIONS).map(|_| receive()).collect();
        assert!(receivers.into_iter().all(|receiver| receiver.join().unwrap() == BYTES));
        sent.recv().unwrap();
        // Some segments are repeated after both ends have received everything: rotate until the
        // windows contain all that the relay has sent.
        let (mut counted, mut expected) = (Counted::default(), Counted::default());
        for _ in 0..100 {
            let bank = near.rotate().unwrap().bank;
            let sum = &bank.reorder;
            assert_eq!((sum.unfollowed, sum.contended, sum.crowded), (0, 0, 0));
            for prefix in sum.prefixes() {
                assert_eq!(prefix.prefix, 10 << 56 | 77 << 48 | 4);
                counted.packets += prefix.packets;
                counted.out_of_order += prefix.out_of_order;
                counted.retransmitted += prefix.retransmitted;
                counted.gaps += prefix.gaps;
            }
            let mut flows = HashMap::new();
            expected = Counted::default();
            relay.sent_to_near().iter().for_each(|frame| count(&mut flows, &mut expected, frame));
            if counted.packets == expected.packets {
                break;
            }
        }
        assert_eq!(counted, expected);
        assert!(counted.out_of_order > 50, "{counted:?}");
    });
}
