//! The AF_XDP port beyond the conformance suite: exact packets and losses, and interfaces that
//! change. On veth pairs in a network of the test's own, which vanishes with its thread.

use crate::common::devices::{
    assert_no_program, device_counters, ethtool, on_queues, on_veth_with, polling, set_mtu, wrapped,
};
use crate::common::kernel::{self, in_mode, ingress, received, received_exactly};
use crate::common::{assert_contains, with_tables};
use flowgauge_core::Settings;
use flowgauge_dataplane::poll::port::{
    AfXdp, AfXdpPort, FrameSender, Outlet, Port, PortFrame, Ports, Received, Waker, Worker, af_xdp,
};
use flowgauge_dataplane::poll::{Options, PollMode};
use flowgauge_dataplane::xdp::Mode;
use flowgauge_dataplane::{Dataplane, Error, Event, LossCause, Losses, Poll, Tables};
use flowgauge_testing::namespace::OtherNamespace;
use flowgauge_testing::wait::until;
use flowgauge_testing::{on_veth, skip};
use flowgauge_traffic::Generator;
use flowgauge_traffic::veth::{RECEIVER, SENDER, ip};
use std::net::UdpSocket;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

fn port(text: &str) -> AfXdp {
    text.parse().unwrap()
}

fn started<P: Port>(ports: Ports<P>, options: Options) -> Poll {
    with_tables(Poll::new(ports, options))
}

fn open(text: &str) -> Ports<AfXdpPort> {
    af_xdp(&port(text), None).unwrap()
}

/// Sender of packets in turn from all queues. The device may drop some before the receiver, and
/// counts them.
struct Traffic {
    senders: Vec<FrameSender>,
    generator: Generator,
    sent: u64,
}

impl Traffic {
    fn new(queues: u32) -> Self {
        let senders =
            (0..queues).map(|queue| FrameSender::on_queue(SENDER.0, queue).unwrap()).collect();
        Traffic { senders, generator: Generator::new("unique".parse().unwrap()), sent: 0 }
    }

    fn send(&mut self, packets: u64) {
        let mut frame = self.generator.template().to_vec();
        for packet in 0..packets {
            self.generator.fill(self.sent + packet, &mut frame);
            let senders = self.senders.len();
            // In runs as long as the sender's batches.
            self.senders[(packet / 32) as usize % senders].send(&frame).unwrap();
        }
        self.sent += packets;
        self.senders.iter_mut().for_each(|sender| sender.finish().unwrap());
    }

    fn arrived(&self) -> u64 {
        self.sent - self.senders[0].dropped()
    }
}

/// Packets sent, counted and lost, once none is missing.
struct Account {
    traffic: Traffic,
    counted: u64,
    losses: Losses,
    said: Vec<Event>,
}

impl Account {
    fn new(queues: u32) -> Self {
        let (traffic, losses) = (Traffic::new(queues), Losses::default());
        Account { traffic, counted: 0, losses, said: Vec::new() }
    }

    /// Sends packets, and accounts for them.
    #[track_caller]
    fn count(&mut self, poll: &mut Poll, packets: u64) {
        self.traffic.send(packets);
        self.settle(poll);
    }

    fn accounted(&self) -> u64 {
        self.counted + self.losses.total()
    }

    /// Polls until every packet that arrived is accounted for. Packets in flight arrive whenever
    /// the kernel has time.
    #[track_caller]
    fn settle(&mut self, poll: &mut Poll) {
        until(|| {
            self.said.extend(poll.events().unwrap());
            self.counted += poll.rotate().unwrap().bank.counters.packets();
            self.losses = poll.losses().unwrap();
            self.accounted() >= self.traffic.arrived()
        });
        let (accounted, arrived) = (self.accounted(), self.traffic.arrived());
        assert_eq!(accounted, arrived, "{:?} {:?}", self.losses, self.said);
    }

    /// Checks that an idle device has received exactly what was counted or lost.
    fn balance(&mut self, poll: &mut Poll) {
        let (received, counted) = received_exactly(poll);
        self.counted += counted;
        self.losses = poll.losses().unwrap();
        assert_eq!(received, self.accounted(), "{:?}", self.losses);
    }

    /// Polls until an event contains `part`: the kernel reports changes with a delay.
    fn hear(&mut self, poll: &mut Poll, part: &str) {
        until(|| {
            self.said.extend(poll.events().unwrap());
            self.heard(part)
        });
    }

    fn heard(&self, part: &str) -> bool {
        self.said.iter().any(|event| matches!(event, Event::Notice(text) | Event::Warning(text) if text.contains(part)))
    }
}

#[test]
fn every_packet_sent_is_counted_or_reported_lost() {
    for (queues, how) in [
        (1, "rx"),
        (2, "rx"),
        (2, "rx,xdp=skb"),
        (1, "rx,busy-poll"),
        (2, "rx,mode=copy,frames=64"),
    ] {
        on_queues(queues, &[], move || {
            let ports = open(how);
            assert_eq!(ports.ports.len(), queues as usize);
            let mut poll = started(ports, Options::default());
            let mut account = Account::new(queues);
            for _ in 0..20 {
                account.count(&mut poll, 5_000);
            }
            account.balance(&mut poll);
            let Account { traffic, counted, losses, .. } = account;
            let (sent, arrived) = (traffic.sent, traffic.arrived());
            println!("{how}: {sent} sent, {arrived} arrived, {counted} counted, {losses:?}");
            assert!(counted > 50_000 || how.contains("frames=64"), "{counted}");
        });
    }
}

#[test]
fn workers_count_the_same_however_they_wait() {
    for poll_mode in PollMode::ALL {
        on_queues(2, &[], move || {
            // One worker, two queues.
            let ports = af_xdp(&port("rx"), Some(1)).unwrap();
            assert_eq!(ports.ports.len(), 1);
            let mut poll =
                started(ports, Options { poll_mode, cpus: vec![0], ..Options::default() });
            let mut account = Account::new(2);
            for packets in [1, 2_000, 1] {
                account.count(&mut poll, packets);
            }
            assert_eq!(account.accounted(), account.traffic.arrived());
        });
    }
}

/// Packets wait until the workers start: frames run out, with exact counts.
#[test]
fn frames_that_run_out_are_counted() {
    let ports = [("rx,frames=128", true), ("rx,frames=128,xdp=skb", false)];
    on_veth_with(ports, |(how, refused_by_device)| {
        let mut poll = Poll::new(open(how), Options::default());
        let mut account = Account::new(1);
        let dropped_before = device_counters(RECEIVER.0).dropped;
        // Slowly enough for the device to deliver all of it.
        (0..500).for_each(|_| {
            account.traffic.send(1);
            std::thread::yield_now();
        });
        until(|| poll.losses().unwrap().total() + 128 >= account.traffic.arrived());
        let lost = poll.losses().unwrap();
        assert_eq!(lost.total() + 128, account.traffic.arrived(), "{how}: {lost:?}");
        assert_eq!(lost.get(LossCause::Socket), lost.total(), "none counts twice: {lost:?}");
        // A device counts a little later than a socket.
        let expected = if refused_by_device { lost.total() } else { 0 };
        until(|| device_counters(RECEIVER.0).dropped - dropped_before == expected);
        let mut poll = with_tables(poll);
        account.settle(&mut poll);
        assert_eq!(account.counted, 128);
        account.count(&mut poll, 1);
        assert_eq!(account.counted, 129, "counting continues");
        account.balance(&mut poll);
    });
}

/// Port whose worker stalls while the test holds the lock.
struct Stalling {
    port: AfXdpPort,
    stall: Arc<Mutex<()>>,
}

impl Port for Stalling {
    const SIGNALS: bool = AfXdpPort::SIGNALS;

    fn receive(&mut self, sink: &mut impl FnMut(PortFrame<'_>)) -> Received {
        let _stall = self.stall.lock().unwrap_or_else(PoisonError::into_inner);
        self.port.receive(sink)
    }

    fn wait(&mut self, most: Duration) {
        self.port.wait(most);
    }

    fn is_drained(&self) -> bool {
        self.port.is_drained()
    }

    fn waker(&self) -> Option<Waker> {
        self.port.waker()
    }

    fn work(self, worker: Worker) {
        worker.run(self);
    }
}

#[test]
fn a_worker_that_stalls_is_noticed_and_loses_what_is_reported() {
    for queues in 1..=2 {
        on_queues(queues, &[], move || {
            let stall = Arc::new(Mutex::new(()));
            let stalling = |port| Stalling { port, stall: Arc::clone(&stall) };
            let mut poll = started(wrapped(open("rx,frames=256"), stalling), Options::default());
            let mut account = Account::new(queues);
            account.count(&mut poll, 100);
            assert_eq!(account.losses.total(), 0);
            let stalled: MutexGuard<'_, ()> = stall.lock().unwrap();
            (0..3_000).for_each(|_| account.traffic.send(1));
            account.hear(&mut poll, "loses packets, since its worker does not keep up");
            drop(stalled);
            account.settle(&mut poll);
            let (sent, lost) = (account.traffic.sent, account.losses.total());
            println!("{queues} queues: {sent} sent, {} counted, {lost} lost", account.counted);
            assert!(lost > 0);
            account.hear(&mut poll, "loses no more packets");
            account.count(&mut poll, 100);
            assert_eq!(account.losses.total(), lost, "it has recovered");
            account.balance(&mut poll);
        });
    }
}

#[test]
fn an_interface_that_goes_down_and_up_is_counted_on() {
    on_veth(|| {
        let mut poll = polling("rx");
        let mut account = Account::new(1);
        for _ in 0..3 {
            account.count(&mut poll, 200);
            ip("link set dev rx down").unwrap();
            account.hear(&mut poll, "rx: is down");
            ip("link set dev rx up").unwrap();
            account.hear(&mut poll, "rx: is up again");
            assert_eq!(account.said.len(), 2, "each is reported once: {:?}", account.said);
            account.said.clear();
        }
        account.count(&mut poll, 200);
        assert_eq!((account.counted, account.losses.total()), (800, 0));
    });
}

#[test]
fn an_interface_that_goes_away_ends_the_traffic() {
    on_veth(|| {
        let poll = Poll::new(open("rx"), Options::default());
        let mut traffic = Traffic::new(1);
        traffic.send(100);
        while received() < 100 {}
        drop(traffic);
        ip("link del rx").unwrap();
        // Counted although they are read after the interface is gone.
        let mut poll = with_tables(poll);
        let said = until_ended(&mut poll);
        let gone = "rx: the interface is gone, and the program with it".to_owned();
        assert_eq!(said, [Event::Warning(gone), Event::TrafficEnded]);
        assert_eq!(poll.rotate().unwrap().bank.counters.packets(), 100);
        assert_eq!(poll.losses().unwrap().total(), 0);
    });
}

/// Polls until the traffic has ended; returns the events.
fn until_ended(poll: &mut Poll) -> Vec<Event> {
    let mut said = Vec::new();
    until(|| {
        said.extend(poll.events().unwrap());
        said.last() == Some(&Event::TrafficEnded)
    });
    said
}

const MOVED: &str =
    "rx: the interface moved to another network namespace; the program was removed from it";

#[test]
fn an_interface_that_moves_to_another_namespace_is_left_and_can_be_counted_again() {
    on_veth_with(["rx", "rx,xdp=skb"], |how| {
        let mut poll = polling(how);
        let mut account = Account::new(1);
        account.count(&mut poll, 200);
        let other = OtherNamespace::start();
        other.take("rx");
        // Both before the move is noticed and after, these cross the other namespace.
        account.traffic.send(200);
        account.said = until_ended(&mut poll);
        account.traffic.send(200);
        assert!(account.heard(MOVED), "{how}: {:?}", account.said);
        assert!(!account.heard("gone"), "{how}: {:?}", account.said);
        assert_eq!(poll.rotate().unwrap().bank.counters.packets(), 0, "{how}");
        drop((poll, account));
        other.give_back("rx");
        assert_no_program("rx");
        let mut poll = polling(how);
        let mut account = Account::new(1);
        account.count(&mut poll, 200);
        assert_eq!(account.accounted(), 200, "{how}");
    });
}

#[test]
fn an_interface_that_is_back_before_a_look_has_a_marked_window_and_ends_the_traffic() {
    on_veth_with(["rx", "rx,xdp=skb"], |how| {
        let mut poll = polling(how);
        let mut account = Account::new(1);
        account.count(&mut poll, 200);
        let other = OtherNamespace::start();
        other.take("rx");
        account.traffic.send(200);
        other.give_back("rx");
        // The sockets receive nothing any more.
        account.traffic.send(200);
        let snapshot = poll.rotate().unwrap();
        assert_eq!((snapshot.bank.counters.packets(), snapshot.complete), (0, false), "{how}");
        account.said = until_ended(&mut poll);
        assert!(account.heard(MOVED), "{how}: {:?}", account.said);
        assert!(!poll.rotate().unwrap().complete, "{how}");
        drop((poll, account));
        assert_no_program("rx");
        let mut poll = polling(how);
        let mut account = Account::new(1);
        account.count(&mut poll, 200);
        assert_eq!(account.accounted(), 200, "{how}");
        assert!(poll.rotate().unwrap().complete, "{how}");
    });
}

#[test]
fn an_interface_that_gets_another_name_ends_the_traffic() {
    on_veth(|| {
        let mut poll = polling("rx");
        ip("link set dev rx down").unwrap();
        ip("link set dev rx name wan0").unwrap();
        let said = until_ended(&mut poll);
        let renamed = "rx: the interface is called wan0 now, and is not counted any more; count at af_xdp:wan0";
        assert!(said.contains(&Event::Warning(renamed.to_owned())), "{said:?}");
        drop(poll);
        ip("link set dev wan0 up").unwrap();
        drop(polling("wan0"));
    });
}

#[test]
fn queues_that_come_are_counted_from_then_on() {
    on_queues(2, &["-L tx tx 1", "-L rx rx 1"], || {
        let mut limited = polling("rx:1");
        ethtool("-L rx rx 2").unwrap();
        let said = "rx: has 2 receive queues now instead of 1; 1 are counted, as requested";
        assert_eq!(limited.events().unwrap(), [Event::Notice(said.to_owned())]);
        ethtool("-L rx rx 1").unwrap();
        drop(limited);

        let mut poll = polling("rx");
        let mut account = Account::new(1);
        account.count(&mut poll, 100);
        ethtool("-L rx rx 2").unwrap();
        ethtool("-L tx tx 2").unwrap();
        account.traffic.senders.push(FrameSender::on_queue(SENDER.0, 1).unwrap());
        let said = "rx: has 2 receive queues now instead of 1; all are counted";
        assert_eq!(poll.events().unwrap(), [Event::Notice(said.to_owned())]);
        for _ in 0..20 {
            account.count(&mut poll, 1_000);
        }
        assert!(account.counted > 15_000, "{}", account.counted);
        // The kernel refuses to remove a queue that has a socket.
        drop(account);
        assert!(ethtool("-L rx rx 1").is_err());
    });
}

/// Another program has a socket on the new queue: its packets go to the host uncounted, which is
/// reported.
#[test]
fn packets_of_queues_that_cannot_be_counted_are_reported() {
    on_queues(2, &["-L tx tx 1", "-L rx rx 1"], || {
        let mut poll = polling("rx");
        ethtool("-L rx rx 2").unwrap();
        ethtool("-L tx tx 2").unwrap();
        let others = FrameSender::on_queue(RECEIVER.0, 1).unwrap();
        let mut account = Account::new(2);
        account.said = poll.events().unwrap();
        let change = "has 2 receive queues now instead of 1; 1 are counted: ";
        assert!(account.heard(change), "{:?}", account.said);
        account.count(&mut poll, 64);
        let lost = [account.losses.get(LossCause::Queue), account.losses.total()];
        assert_eq!((account.counted, lost), (32, [32; 2]));
        drop(others);
        account.hear(&mut poll, "all 2 receive queues are counted again");
        account.count(&mut poll, 64);
        assert_eq!((account.counted, account.losses.total()), (96, 32), "{:?}", account.said);
        account.balance(&mut poll);
    });
}

#[test]
fn packets_in_several_pieces_count_once_with_their_length() {
    on_veth(|| {
        set_mtu(9000);
        let ports = match af_xdp(&port("rx"), None) {
            Ok(ports) => ports,
            Err(error) => return skip(format_args!("Linux 6.6 ({error})")),
        };
        let mut poll = started(ports, Options::default());
        let socket = UdpSocket::bind((SENDER.1, 0)).unwrap();
        let (mut packets, mut bytes) = (0, 0);
        let (mut counted, mut counted_bytes) = (0, 0);
        for length in [18, 3_000, 3_795, 3_796, 3_797, 3_798, 3_799, 3_800, 4_000, 8_000, 8_958, 18]
        {
            socket.send_to(&vec![7; length], (RECEIVER.1, 9)).unwrap();
            packets += 1;
            bytes += 42 + length as u64;
            until(|| {
                let window = poll.rotate().unwrap().bank.counters;
                counted += window.ipv4;
                counted_bytes += window.bytes;
                counted >= packets
            });
            assert_eq!((counted, counted_bytes), (packets, bytes), "a datagram of {length} bytes");
        }
        assert_eq!(poll.losses().unwrap().total(), 0);
    });
}

fn refusal(text: &str) -> String {
    match af_xdp(&port(text), None) {
        Err(error @ Error::Kernel { .. }) => error.to_string(),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("{text} was opened"),
    }
}

#[test]
fn refusals_say_what_to_do_and_leave_nothing_behind() {
    on_veth(|| {
        assert_contains(&refusal("nowhere"), &["no such interface"]);
        assert_contains(&refusal("rx:2"), &["has 1 receive queues and not 2"]);
        assert_contains(&refusal("rx,mode=zero-copy"), &["use mode=copy"]);
        // Loopback has no native mode.
        assert_contains(&refusal("lo,from-host"), &["xdp=skb"]);
        assert_contains(&refusal("tx"), &["has the address 10.77.0.1", "af_xdp:tx,from-host"]);
        assert_no_program("rx");
        let other = kernel::started(vec![ingress()], in_mode(Mode::Native));
        assert_contains(&refusal("rx"), &["another XDP program is attached"]);
        drop(other);
        let first = polling("rx");
        assert_contains(&refusal("rx"), &["another program has a socket there"]);
        drop(first);
        assert_no_program("rx");
        drop(polling("rx"));
        assert_no_program("rx");
        let mut poll = Poll::new(open("rx"), Options { cpus: vec![1023], ..Options::default() });
        let error = poll.install(&Tables::new(&Settings::default(), 1)).unwrap_err().to_string();
        let limit = "poll cannot run a worker on CPU 1023; this process may use CPU ";
        assert_contains(&error, &[limit]);
    });
}

#[test]
fn what_is_not_asked_for_goes_to_the_host() {
    on_queues(2, &[], || {
        ip("addr add 10.77.0.2/24 dev rx").unwrap();
        let host = Host::listen();
        let mut poll = polling("rx:1,from-host");
        let mut account = Account::new(2);
        account.traffic.send(64);
        // Of the second queue.
        host.hears(32);
        until(|| poll.sample().unwrap().bank.counters.packets() >= 32);
        assert_eq!(poll.rotate().unwrap().bank.counters.packets(), 32);
        assert_eq!(poll.losses().unwrap().total(), 0, "these were not to be counted");
        account.counted = 32;
        account.balance(&mut poll);
        drop(poll);
        account.traffic.send(64);
        // All, now that counting has ended.
        host.hears(64);
    });
}

/// Receiving end of this host: what its protocols see.
struct Host(std::os::fd::OwnedFd);

impl Host {
    fn listen() -> Self {
        use rustix::net::sockopt::{Timeout, set_socket_timeout};
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
        // Every packet of every interface, as a capture would see it.
        let all = std::num::NonZeroU32::new(u32::from(3_u16.to_be()))
            .map(rustix::net::Protocol::from_raw);
        let socket =
            socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::empty(), all).unwrap();
        // Only ends a hang.
        let limit = Some(std::time::Duration::from_secs(60));
        set_socket_timeout(&socket, Timeout::Recv, limit).unwrap();
        Host(socket)
    }

    /// Waits until this many packets have arrived at the receiver.
    fn hears(&self, packets: u64) {
        for _ in 0..packets {
            rustix::net::recv(&self.0, &mut [0; 2048], rustix::net::RecvFlags::empty()).unwrap();
        }
    }
}
