//! Round-trip delays of the model, as the driver reads them, against the code that software
//! dataplanes run, bit for bit.

use crate::common::OFF;
use crate::lab::Lab;
use flowgauge_core::Grid;
use flowgauge_core::delay::prefixes::{Prefix, PrefixOwner, fingerprint};
use flowgauge_core::delay::{
    Admission, Algorithm, Counts, Delay, DelayKind, Directions, Kinds, Settings as Delays,
};
use flowgauge_core::measurement::Toggle;
use flowgauge_core::{Settings, WindowTotals, Zeroed, cardinality, heavy, membership};
use flowgauge_dataplane::tofino::definitions;
use flowgauge_dataplane::{Dataplane, Tofino};
use flowgauge_testing::model::ServedSwitch;
use flowgauge_traffic::frame::flag::{ACK, FIN, RST, SYN};
use flowgauge_traffic::frame::{self, Ip, UDP, udp};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::net::{IpAddr, Ipv6Addr};

type End = (u32, u16);

const WITHOUT_EXPIRY: [Algorithm; 3] =
    [Algorithm::Fridge, Algorithm::MultiFridge, Algorithm::Overwrite];

/// Returns settings of delays alone.
fn settings(delay: Delays) -> Settings {
    assert_eq!(delay.problem(), None);
    Settings { delay, ..OFF }
}

fn of(kinds: &[DelayKind]) -> Delays {
    Delays {
        kinds: kinds.iter().fold(Kinds::NONE, |kinds, kind| kinds.with(*kind)),
        ..Delays::DEFAULT
    }
}

impl Lab {
    /// Sends an echo request from one host to another.
    fn ask(&mut self, at: u64, token: u32) {
        self.packet(at, &echo(false, (0x0a00_0001, 0), (0x0a00_0002, 0), token, false));
    }

    /// Sends the reply to [`Lab::ask`].
    fn answer(&mut self, at: u64, token: u32) {
        self.packet(at, &echo(false, (0x0a00_0002, 0), (0x0a00_0001, 0), token, true));
    }

    /// Sets what the window after the open one admits.
    fn admit(&mut self, admissions: &[(DelayKind, Admission)]) {
        self.tofino.admit(admissions).unwrap();
        admissions.iter().for_each(|(kind, admission)| {
            self.shared.persistent.delay.shares.set(self.bank ^ 1, *kind, *admission)
        });
    }
}

fn samples(delay: &Delay) -> u64 {
    delay
        .histograms
        .iter()
        .flat_map(|histogram| histogram.buckets())
        .map(|bucket| u64::from(bucket.samples))
        .sum()
}

fn sum(delay: &Delay, count: impl Fn(&Counts) -> u64) -> u64 {
    delay.counts.iter().map(count).sum()
}

/// An address; over IPv6 with the same last four bytes.
fn address(v6: bool, last: u32) -> IpAddr {
    if v6 {
        Ipv6Addr::from_bits(0x2001_0db8_u128 << 96 | u128::from(last)).into()
    } else {
        last.to_be_bytes().into()
    }
}

fn frame(v6: bool, protocol: u8, from: End, to: End, transport: &[u8]) -> Vec<u8> {
    Ip::new(address(v6, from.0), address(v6, to.0), protocol).frame(transport)
}

fn ports(from: End, to: End) -> [u16; 2] {
    [from.1, to.1]
}

struct Tcp {
    flags: u8,
    sequence: u32,
    acknowledgement: u32,
    payload: usize,
    option_words: usize,
    /// Behind which options, and TSval and TSecr.
    timestamps: Option<(Before, [u32; 2])>,
}

impl Tcp {
    /// Acknowledges one byte after a sequence number of one.
    const ACKNOWLEDGING: Tcp = Tcp {
        flags: ACK,
        sequence: 1,
        acknowledgement: 2,
        payload: 0,
        option_words: 0,
        timestamps: None,
    };
}

/// Option before the timestamps.
#[derive(Clone, Copy, Debug)]
enum Before {
    Padding,
    /// MSS and SACK permitted.
    Sack,
    /// MSS, window scale and padding.
    WindowScale,
    /// Options that no host sends.
    Else,
}

impl Before {
    const ALL: [Before; 4] = [Before::Padding, Before::Sack, Before::WindowScale, Before::Else];

    fn bytes(self) -> &'static [u8] {
        match self {
            Before::Padding => &[1, 1, 8, 10],
            Before::Sack => &[2, 4, 5, 0xb4, 4, 2, 8, 10],
            Before::WindowScale => &[2, 4, 5, 0xb4, 1, 3, 3, 7, 1, 1, 8, 10],
            Before::Else => &[2, 4, 5, 0xb4, 1, 3, 3, 7, 1, 8, 10, 1],
        }
    }
}

fn tcp(v6: bool, from: End, to: End, tcp: &Tcp) -> Vec<u8> {
    let mut rest = Vec::new();
    if let Some((before, [sent, echoed])) = tcp.timestamps {
        rest.extend([before.bytes(), &sent.to_be_bytes(), &echoed.to_be_bytes()].concat());
    }
    // Where options are longer than the header says, they are data.
    rest.resize((4 * tcp.option_words + tcp.payload).max(rest.len()), 1);
    let (options, data) = rest.split_at(4 * tcp.option_words);
    let header = frame::Tcp {
        ports: ports(from, to),
        flags: tcp.flags,
        sequence: tcp.sequence,
        acknowledgement: tcp.acknowledgement,
        options,
    };
    frame(v6, frame::TCP, from, to, &header.segment(data))
}

fn dns(v6: bool, from: End, to: End, id: u16, is_answer: bool) -> Vec<u8> {
    frame(v6, UDP, from, to, &udp(ports(from, to), &frame::dns(id, is_answer)))
}

fn echo(v6: bool, from: End, to: End, token: u32, is_reply: bool) -> Vec<u8> {
    frame::echo(address(v6, from.0), address(v6, to.0), token, is_reply)
}

/// State of a conversation, from which its next packet follows.
struct Conversation {
    v6: bool,
    ends: [End; 2],
    /// The next sequence number of each side, and what each has acknowledged of the other.
    next: [u32; 2],
    acknowledged: [u32; 2],
    open: bool,
    queries: Vec<u16>,
    echoes: Vec<u32>,
    /// The timestamps of each side.
    stamps: [u32; 2],
    /// The spin bit of each side.
    spins: [bool; 2],
}

fn quic(v6: bool, from: End, to: End, first: u8) -> Vec<u8> {
    frame(v6, UDP, from, to, &udp(ports(from, to), &[first, 1, 2, 3]))
}

impl Conversation {
    fn new(random: &mut ChaCha8Rng, number: u32) -> Self {
        let near_the_end = |random: &mut ChaCha8Rng| u32::MAX - random.random_range(0..20_000);
        let next = [near_the_end(random), near_the_end(random)];
        let ends = [(0x0a00_0000 + number % 50, random.random()), (random.random(), 443)];
        Conversation {
            v6: random.random(),
            ends,
            next,
            acknowledged: next,
            open: false,
            queries: Vec::new(),
            echoes: Vec::new(),
            // One of them comes by zero, which is no timestamp.
            stamps: [u32::MAX - 3, random.random()],
            spins: [false; 2],
        }
    }

    /// The next packet.
    fn send(&mut self, random: &mut ChaCha8Rng) -> Vec<u8> {
        let (client, server, v6) = (self.ends[0], self.ends[1], self.v6);
        match random.random_range(0..10) {
            0 => {
                let id = random.random();
                self.queries.push(id);
                dns(v6, client, (server.0, 53), id, false)
            }
            1 if !self.queries.is_empty() => {
                let id = self.queries.swap_remove(random.random_range(0..self.queries.len()));
                dns(v6, (server.0, 53), client, id, true)
            }
            2 => {
                let token = random.random();
                self.echoes.push(token);
                echo(v6, client, server, token, false)
            }
            4 => {
                let side = usize::from(random.random::<bool>());
                self.spins[side] ^= random.random_range(0..3) == 0;
                let first = match random.random_range(0..10) {
                    0 => 0xc0,
                    1 => 0x20,
                    _ => 0x40,
                };
                let first = first | u8::from(self.spins[side]) << 5 | random.random_range(0..32);
                let server = (server.0, if random.random_range(0..20) == 0 { 444 } else { 443 });
                if side == 0 {
                    quic(v6, client, server, first)
                } else {
                    quic(v6, server, client, first)
                }
            }
            3 if !self.echoes.is_empty() => {
                let token = self.echoes.swap_remove(random.random_range(0..self.echoes.len()));
                echo(v6, server, client, token, true)
            }
            _ => self.segment(random),
        }
    }

    fn segment(&mut self, random: &mut ChaCha8Rng) -> Vec<u8> {
        let side = usize::from(random.random::<bool>());
        let (from, to) = (self.ends[side], self.ends[side ^ 1]);
        let option_words = random.random_range(0..=10);
        self.stamps[side] = self.stamps[side].wrapping_add(u32::from(random.random::<bool>()));
        let stamps = [self.stamps[side], self.stamps[side ^ 1]];
        let timestamps =
            random.random_ratio(4, 5).then(|| (Before::ALL[random.random_range(0..4)], stamps));
        let (sequence, acknowledgement) = (self.next[side], self.next[side ^ 1]);
        let plain =
            Tcp { flags: ACK, sequence, acknowledgement, payload: 0, option_words, timestamps };
        let segment = match (self.open, random.random_range(0..12)) {
            (false, 0..6) => {
                let from_client =
                    Tcp { flags: SYN, sequence: self.next[0], acknowledgement: 0, ..plain };
                return tcp(self.v6, self.ends[0], self.ends[1], &from_client);
            }
            (false, _) => {
                let (sequence, acknowledgement) = (self.next[1], self.next[0].wrapping_add(1));
                let reply = Tcp { flags: SYN | ACK, sequence, acknowledgement, ..plain };
                self.next = self.next.map(|next| next.wrapping_add(1));
                self.open = true;
                return tcp(self.v6, self.ends[1], self.ends[0], &reply);
            }
            // Data, mostly with an acknowledgement of the other side's.
            (true, 0..6) => Tcp { payload: random.random_range(1..1400), ..plain },
            (true, 6) => Tcp { payload: random.random_range(1..1400), flags: 0, ..plain },
            (true, 7) => Tcp { flags: FIN | ACK, payload: random.random_range(0..3), ..plain },
            (true, 8) => Tcp { flags: RST, ..plain },
            // Less than all, and what was acknowledged before.
            (true, 9) => Tcp { acknowledgement: self.acknowledged[side], ..plain },
            (true, _) => plain,
        };
        if segment.flags & ACK != 0 {
            self.acknowledged[side] = segment.acknowledgement;
        }
        self.open &= segment.flags & (FIN | RST) == 0;
        let fin = u32::from(segment.flags & FIN);
        self.next[side] = self.next[side].wrapping_add(segment.payload as u32).wrapping_add(fin);
        tcp(self.v6, from, to, &segment)
    }
}

/// Three windows of conversations, with requests that are answered in another window than their
/// own.
#[track_caller]
fn check(delay: Delays, seed: u64) {
    check_among(delay, &[], seed);
}

#[track_caller]
fn check_among(delay: Delays, owned: &[PrefixOwner], seed: u64) {
    let mut lab = Lab::among(settings(delay), owned);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut conversations: Vec<Conversation> =
        (0..200).map(|number| Conversation::new(&mut random, number)).collect();
    // Ticks wrap on the way.
    let mut now = (1_u64 << 38) - 2_000_000_000;
    let mut all = WindowTotals::boxed();
    for _ in 0..3 {
        for _ in 0..3000 {
            now += random.random_range(0..1_000_000_u64);
            let number = random.random_range(0..conversations.len());
            let frame = conversations[number].send(&mut random);
            // Some come out of order in time.
            let at = if random.random_range(0..50) == 0 { now - 20_000_000 } else { now };
            lab.packet(at, &frame);
        }
        all.unite(&lab.rotate(), &lab.settings);
    }
    let sum = |count: fn(&Counts) -> u64| sum(&all.delay, count);
    let (requests, admitted) = (sum(|counts| counts.requests), sum(|counts| counts.admitted));
    assert!(samples(&all.delay) > 5, "{delay:?}: {} samples", samples(&all.delay));
    // Requests of timestamps and of the spin bit are known only if a table took them.
    let is_known =
        !delay.kinds.has(DelayKind::TcpTimestamps) && !delay.kinds.has(DelayKind::QuicSpin);
    let refused = sum(|counts| counts.refused);
    let is_part = admitted + refused < requests;
    let is_as_told = requests > 30 && is_part == (delay.admit_log2 > 0 && is_known);
    assert!(is_as_told, "{delay:?}: {admitted} and {refused} of {requests}");
    // With few slots, some find none.
    let finds_none = delay.algorithm == Algorithm::Expiry && delay.slots_log2 < 10;
    assert_eq!(refused > 0, finds_none, "{delay:?}");
}

#[test]
fn each_kind_alone() {
    for kind in DelayKind::ALL {
        check(of(&[kind]), 1);
    }
}

#[test]
fn kinds_of_a_build_of_their_own_by_every_algorithm() {
    for (seed, algorithm) in (20..).zip(WITHOUT_EXPIRY) {
        for kind in [DelayKind::TcpTimestamps, DelayKind::QuicSpin] {
            check(Delays { algorithm, slots_log2: 8, ..of(&[kind]) }, seed);
            check(Delays { algorithm, admit_log2: 1, ..of(&[kind]) }, seed);
        }
    }
}

/// A packet that arrives when the tick is zero. Zero is not a valid time of a request that later
/// packets repeat.
#[test]
fn the_tick_zero() {
    let (client, server) = ((0x0a00_0001, 5), (0x0a00_0002, 443));
    let zero = 1_u64 << 38;
    for kind in [DelayKind::TcpTimestamps, DelayKind::QuicSpin] {
        let mut lab = Lab::new(settings(of(&[kind])));
        let stamped = |from, to, stamps| {
            let timestamps = Some((Before::Padding, stamps));
            let segment = Tcp { payload: 9, option_words: 3, timestamps, ..Tcp::ACKNOWLEDGING };
            tcp(false, from, to, &segment)
        };
        let times = [zero - 640, zero, zero + 64, zero + 128];
        for at in times.into_iter().flat_map(|at| [at, at + 64_000]) {
            lab.packet(at, &stamped(client, server, [at as u32 | 1, 0]));
            lab.packet(at + 640, &stamped(server, client, [7, at as u32 | 1]));
            lab.packet(at, &quic(false, client, server, 0x40));
            lab.packet(at, &quic(false, client, server, 0x60));
        }
        assert!(samples(&lab.rotate().delay) > 5, "{kind:?}");
    }
}

#[test]
fn several_kinds_and_every_algorithm() {
    let kinds = [
        &[DelayKind::TcpHandshake, DelayKind::TcpData, DelayKind::Dns][..],
        &[DelayKind::TcpData, DelayKind::Icmp],
        &[DelayKind::TcpHandshake, DelayKind::TcpData, DelayKind::Dns, DelayKind::Icmp],
    ];
    for (seed, (kinds, algorithm)) in (2..).zip(kinds.into_iter().zip(WITHOUT_EXPIRY)) {
        // Few slots, so that requests are overwritten and weights grow beyond their last class.
        for slots_log2 in [8, 10] {
            check(Delays { algorithm, slots_log2, ..of(kinds) }, seed);
            check(Delays { algorithm, slots_log2, admit_log2: 2, ..of(kinds) }, seed);
        }
    }
}

/// The clock's 31 bits wrap on the way, some requests are older than others may be, and many find
/// both slots taken.
#[test]
fn requests_that_expire() {
    let kinds = [
        &[DelayKind::TcpHandshake, DelayKind::TcpData, DelayKind::Dns, DelayKind::Icmp][..],
        &[DelayKind::TcpData],
        &[DelayKind::Dns, DelayKind::Icmp],
        &[DelayKind::TcpDuration],
    ];
    for (seed, kinds) in (70..).zip(kinds) {
        let algorithm = Algorithm::Expiry;
        for (slots_log2, expiry_ns) in [(6, 50_000_000), (6, 1_000_000_000), (7, 4_000_000_000)] {
            check(Delays { algorithm, slots_log2, expiry_ns, ..of(kinds) }, seed);
        }
        let expiry = Delays { algorithm, expiry_ns: 4_000_000_000, ..of(kinds) };
        check(Delays { slots_log2: 6, admit_log2: 2, ..expiry }, seed);
    }
    let (clients, by_prefix) = clients_by_prefix();
    let kinds = of(&[DelayKind::TcpHandshake, DelayKind::TcpData, DelayKind::Dns]).kinds;
    let sampled = Delays { kinds, samples: true, slots_log2: 6, ..by_prefix };
    let algorithm = Algorithm::Expiry;
    check_among(Delays { algorithm, expiry_ns: 2_000_000_000, ..sampled }, &clients, 80);
}

/// A request of each age keeps its slot or yields it to the next one, to the tick, also where the
/// clock's 31 bits wrap.
#[test]
fn requests_expire_to_the_tick() {
    let (tick, age) = (64, 1000);
    let expiry = Delays {
        algorithm: Algorithm::Expiry,
        expiry_ns: age as u32 * tick as u32,
        ..of(&[DelayKind::Icmp])
    };
    let wrap = 1_u64 << 37;
    for start in [
        5 * wrap + 77 * tick,
        5 * wrap - 1000 * tick,
        5 * wrap,
        5 * wrap - tick,
        5 * wrap - 500 * tick,
        5 * wrap + tick,
    ] {
        let mut lab = Lab::new(settings(expiry));
        let ages = [0, 1, age - 1, age, age + 1, age + 500, 1 << 29, (1 << 30) - 1, 1 << 30];
        for (number, after) in (0..).zip(ages) {
            let base = start + number * (wrap << 3);
            // Enough requests for every slot to be wanted.
            (0..3000).for_each(|token| lab.ask(base, token));
            (5000..8000).for_each(|token| lab.ask(base + after * tick, token));
            for token in (0..3000).chain(5000..8000) {
                lab.answer(base + after * tick, token);
            }
            let found = lab.rotate();
            let refused = sum(&found.delay, |counts| counts.refused);
            let samples = samples(&found.delay);
            // Ticks have 31 bits, and none is zero.
            let [since, now] = [base, base + after * tick].map(|at| (at / tick % (1 << 31)).max(1));
            let expires = now < since || now - since > age;
            // The first 3,000 requests fill the 1,024 slots, but for a few. If these expire, the
            // next 3,000 fill them again, and 1,000 fewer are refused.
            let what = format!("{start} {after}: {refused} refused, {samples} found");
            assert_eq!(refused > 4500, !expires, "{what}");
        }
    }
}

fn owned(text: &str, group: Option<u8>, is_local: bool) -> PrefixOwner {
    let (address, length) = text.split_once('/').unwrap();
    PrefixOwner {
        prefix: Prefix::of(address.parse().unwrap(), length.parse().unwrap()).unwrap(),
        group,
        is_local,
    }
}

/// Returns prefixes of clients and of others, and settings of delays by both.
fn clients_by_prefix() -> ([PrefixOwner; 2], Delays) {
    let owned = [owned("10.0.0.0/8", Some(1), true), owned("128.0.0.0/1", Some(2), false)];
    let (prefixes, directions) = (fingerprint(&owned), Directions::Local);
    (owned, Delays { groups_log2: 2, directions, prefixes, ..Delays::DEFAULT })
}

/// Prefixes within others, of both versions; clients are in 10.0.0.0/26, and over IPv6 all ends in
/// one /64.
#[test]
fn directions_by_our_own_addresses_and_groups_of_prefixes() {
    let owned = [
        owned("10.0.0.0/8", Some(1), true),
        owned("10.0.0.16/28", Some(3), false),
        owned("10.0.0.20/32", None, true),
        owned("128.0.0.0/1", Some(2), false),
        owned("192.0.0.0/3", Some(5), false),
        owned("2001:db8::/32", Some(4), true),
        owned("2001:db8::/64", Some(6), false),
    ];
    let groups = Delays { groups_log2: 3, prefixes: fingerprint(&owned), ..Delays::DEFAULT };
    let both = Delays { directions: Directions::Local, ..groups };
    let kinds = |kinds: &[DelayKind], delays: Delays| Delays { kinds: of(kinds).kinds, ..delays };
    let of_four = Delays { algorithm: Algorithm::MultiFridge, ..groups };
    let overwriting = Delays { algorithm: Algorithm::Overwrite, ..both };
    let half = Delays { admit_log2: 1, ..both };
    let tcp_and_icmp = [DelayKind::TcpHandshake, DelayKind::TcpData, DelayKind::Icmp];
    for (seed, delays) in (40..).zip([
        kinds(&[DelayKind::TcpData], both),
        kinds(&[DelayKind::TcpHandshake, DelayKind::Dns], half),
        kinds(&tcp_and_icmp, groups),
        kinds(&[DelayKind::TcpData], of_four),
        kinds(&[DelayKind::QuicSpin], both),
        kinds(&[DelayKind::TcpTimestamps], overwriting),
    ]) {
        check_among(delays, &owned, seed);
    }
    let local = owned.map(|owned| PrefixOwner { group: None, ..owned });
    let sides =
        Delays { directions: Directions::Local, prefixes: fingerprint(&local), ..Delays::DEFAULT };
    check_among(kinds(&[DelayKind::TcpData, DelayKind::Dns], sides), &local, 46);
}

/// Each delay comes in a digest, with what it counts for.
#[test]
fn delays_one_by_one() {
    let (clients, by_prefix) = clients_by_prefix();
    for (seed, algorithm) in (50..).zip(WITHOUT_EXPIRY) {
        let kinds = of(&[DelayKind::TcpHandshake, DelayKind::TcpData, DelayKind::Dns]);
        check(Delays { algorithm, slots_log2: 8, samples: true, ..kinds }, seed);
        let sampled = |delays: Delays| Delays { algorithm, samples: true, ..delays };
        let data = Delays { kinds: of(&[DelayKind::TcpData]).kinds, ..by_prefix };
        check_among(sampled(data), &clients, seed);
        check(sampled(of(&[DelayKind::TcpDuration])), seed);
        check(Delays { slots_log2: 8, ..sampled(of(&[DelayKind::TcpTimestamps])) }, seed);
        check(sampled(of(&[DelayKind::QuicSpin])), seed);
    }
}

/// Digests arrive slower than the switch sends them. The client does not receive the rest, so they
/// are counted.
#[test]
fn digests_that_are_lost_are_counted() {
    let mut lab = Lab::new(settings(Delays { samples: true, ..of(&[DelayKind::Icmp]) }));
    let mut total = 0;
    for window in 0..3_u32 {
        let number = [200_000, 10, 20][window as usize];
        for token in 0..number {
            let at = u64::from(window) * 10_000_000_000 + u64::from(token) * 10_000;
            lab.ask(at, token);
            lab.answer(at + 1000, token);
        }
        let snapshot = lab.tofino.rotate().unwrap();
        let missing = sum(&snapshot.bank.delay, |counts| counts.unsampled);
        let came = snapshot.delay_samples.len() as u64;
        assert_eq!(came + missing, samples(&snapshot.bank.delay), "window {window}");
        assert_eq!(samples(&snapshot.bank.delay), u64::from(number));
        assert_eq!(missing > 0, window == 0, "{missing} of {number}");
        total += came;
    }
    assert!(total > 30, "{total}");
}

/// Shares change from window to window, and each bank has its own.
#[test]
fn shares_that_follow_the_traffic() {
    let kinds = [DelayKind::TcpHandshake, DelayKind::TcpData, DelayKind::Dns];
    for (seed, kinds) in
        [(60, &kinds[..]), (61, &[DelayKind::TcpTimestamps]), (62, &[DelayKind::QuicSpin])]
    {
        let mut lab = Lab::new(settings(Delays { follows: true, slots_log2: 8, ..of(kinds) }));
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut conversations: Vec<Conversation> =
            (0..200).map(|number| Conversation::new(&mut random, number)).collect();
        let mut now = 1_u64 << 38;
        let mut admitted = Vec::new();
        for (kept, counted) in [(0, 0), (3, 3), (1, 2), (0, 1), (16, 16), (0, 0), (0, 0)] {
            let admissions: Vec<_> =
                kinds.iter().map(|kind| (*kind, Admission { kept, counted })).collect();
            lab.admit(&admissions);
            for _ in 0..3000 {
                now += random.random_range(0..1_000_000_u64);
                let number = random.random_range(0..conversations.len());
                let frame = conversations[number].send(&mut random);
                lab.packet(now, &frame);
            }
            let bank = lab.rotate();
            admitted.push(sum(&bank.delay, |counts| counts.admitted));
        }
        // A share is set for the window after the open one. The first requests of a kind may come
        // late.
        let [_, same, eighth, quarter, half, none, again] = admitted[..] else {
            panic!("{admitted:?}")
        };
        let follow = eighth < same && eighth < quarter && quarter < half && half < again;
        assert!(none <= 1 && follow, "{admitted:?}");
    }
}

#[test]
fn slots_few_and_many() {
    check(Delays { slots_log2: 6, ..of(&[DelayKind::TcpData]) }, 5);
    check(Delays { slots_log2: 16, ..of(&[DelayKind::Icmp]) }, 6);
}

/// One request in about 3,000 survives as many others as weights are for.
#[test]
fn delays_beyond_all_weights_are_counted_apart() {
    let mut lab = Lab::new(settings(Delays { slots_log2: 6, ..of(&[DelayKind::Icmp]) }));
    for token in 0..30_000_u32 {
        let at = u64::from(token) * 1_000_000;
        lab.ask(at, token);
        if let Some(before) = token.checked_sub(600) {
            lab.answer(at + 1000, before);
        }
    }
    let delay = &lab.rotate().delay;
    let beyond: u32 = delay.histograms[0].buckets().iter().map(|bucket| bucket.beyond).sum();
    assert!(beyond > 0 && u64::from(beyond) == samples(delay), "{beyond}");
}

#[test]
fn beside_all_other_measurements() {
    let mut all = settings(of(&[DelayKind::TcpData]));
    all.cardinality = cardinality::Settings::DEFAULT;
    all.sizes = Toggle::ON;
    all.heavy.algorithm = heavy::Algorithm::Precision;
    all.membership = membership::Settings {
        on: true,
        shape: Grid::of_bits(3, 1 << 12).unwrap(),
        ..membership::Settings::DEFAULT
    };
    let mut lab = Lab::new(all);
    let mut random = ChaCha8Rng::seed_from_u64(9);
    let mut conversation = Conversation::new(&mut random, 1);
    for at in 0..1000 {
        let frame = conversation.send(&mut random);
        lab.packet(at * 1_000_000, &frame);
    }
    assert!(samples(&lab.rotate().delay) > 50);
}

/// Headers that are longer than the packet, an end that speaks to itself, wrong versions, and
/// frames that are cut anywhere.
#[test]
fn what_is_odd() {
    let ends = [(0x0a00_0001, 5), (0x0a00_0002, 6)];
    for kinds in [
        &[DelayKind::TcpData, DelayKind::Dns, DelayKind::Icmp][..],
        &[DelayKind::TcpDuration],
        &[DelayKind::TcpTimestamps],
        &[DelayKind::QuicSpin],
    ] {
        let mut lab = Lab::new(settings(of(kinds)));
        let mut at = 0;
        for v6 in [false, true] {
            let data_offset = if v6 { 14 + 40 + 12 } else { 14 + 20 + 12 };
            for (from, to) in [(ends[0], ends[1]), (ends[1], ends[0]), (ends[0], ends[0])] {
                for (first, flags) in (0..16_u8)
                    .flat_map(|first| [(first, ACK), (first, 0), (first, FIN | ACK), (first, SYN)])
                {
                    for payload in [0, 1, 39, 40, 41] {
                        let (sequence, acknowledgement) = (1000, 1001);
                        let numbers = Tcp { sequence, acknowledgement, ..Tcp::ACKNOWLEDGING };
                        let segment = Tcp { flags, payload, ..numbers };
                        let mut frame = tcp(v6, from, to, &segment);
                        frame[data_offset] = first << 4;
                        at += 1_000_000;
                        lab.packet(at, &frame);
                    }
                }
                for before in Before::ALL {
                    for (first, flags) in (5..16_u8).flat_map(|first| {
                        [(first, ACK), (first, FIN), (first, SYN | RST), (first, RST | ACK)]
                    }) {
                        let timestamps = Some((before, [u32::from(first), u32::from(first) - 1]));
                        let plain = Tcp { flags, timestamps, ..Tcp::ACKNOWLEDGING };
                        let segment = Tcp { payload: 3, option_words: 7, ..plain };
                        let mut frame = tcp(v6, from, to, &segment);
                        frame[data_offset] = first << 4;
                        at += 1_000_000;
                        lab.packet(at, &frame);
                        for length in frame.len() - 40..frame.len() {
                            lab.packet(at, &frame[..length]);
                        }
                    }
                }
                for first in [0x40, 0x60, 0x00, 0xc0, 0xe0] {
                    let frame = quic(v6, from, (to.0, 443), first);
                    for length in frame.len() - 12..=frame.len() {
                        at += 1_000_000;
                        lab.packet(at, &frame[..length]);
                    }
                    lab.packet(at, &quic(v6, (from.0, 53), (to.0, 443), first));
                }
                let of_udp = [
                    dns(v6, from, (to.0, 53), 9, false),
                    dns(v6, (from.0, 53), to, 9, true),
                    dns(v6, from, (to.0, 53), 9, true),
                ];
                let echoes = [
                    echo(v6, from, to, 4, false),
                    echo(v6, from, to, 4, true),
                    echo(v6, to, from, 4, true),
                ];
                let data = tcp(v6, from, to, &Tcp { payload: 1, ..Tcp::ACKNOWLEDGING });
                for frame in of_udp.into_iter().chain(echoes).chain([data]) {
                    for length in 0..=frame.len() {
                        at += 1_000_000;
                        lab.packet(at, &frame[..length]);
                    }
                    let mut wrong = frame.clone();
                    wrong[14] = 0x55;
                    lab.packet(at, &wrong);
                }
            }
        }
        lab.rotate();
    }
}

#[test]
fn what_no_program_measures_is_refused() {
    let expiry = |kind| Delays { algorithm: Algorithm::Expiry, ..of(&[kind]) };
    let (data, durations) = (of(&[DelayKind::TcpData]), of(&[DelayKind::TcpDuration]));
    let two = of(&[DelayKind::TcpData, DelayKind::Dns]);
    let all = of(&[DelayKind::TcpHandshake, DelayKind::TcpData, DelayKind::Dns]);
    let in_groups = Delays { directions: Directions::Local, groups_log2: 3, ..all };
    for (delay, why) in [
        (of(&[DelayKind::TcpData, DelayKind::TcpTimestamps]), "tcp-timestamps alone"),
        (of(&[DelayKind::Dns, DelayKind::QuicSpin]), "quic-spin alone"),
        (of(&[DelayKind::TcpData, DelayKind::TcpDuration]), "tcp-duration alone"),
        (expiry(DelayKind::TcpTimestamps), "by fridge, multi-fridge or overwrite"),
        (expiry(DelayKind::QuicSpin), "by fridge, multi-fridge or overwrite"),
        (Delays { directions: Directions::Apart, ..data }, "name our own addresses"),
        (in_groups, "at most 32 on a switch"),
        (Delays { groups_log2: 1, ..durations }, "either end closes a connection"),
        (Delays { slots_log2: 16, ..two }, "at most 32768 slots"),
    ] {
        let failure = definitions(&settings(delay)).unwrap_err().to_string();
        assert!(failure.contains(why), "{failure}");
    }
}

#[test]
fn a_program_that_measures_otherwise_is_refused() {
    let has = settings(of(&[DelayKind::TcpData]));
    let served = ServedSwitch::new(definitions(&has).unwrap());
    for other in [
        of(&[DelayKind::Dns]),
        Delays { slots_log2: 11, ..has.delay },
        Delays { algorithm: Algorithm::Overwrite, ..has.delay },
    ] {
        let options = served.options();
        let failure = Tofino::connect(options, settings(other)).err().unwrap().to_string();
        assert!(failure.contains("it measures delay of tcp-data, fridge, 1024 slots"), "{failure}");
    }
}
