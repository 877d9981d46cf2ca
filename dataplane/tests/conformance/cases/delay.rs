//! Round-trip delays: which requests are stored, which answers match them, and the weight of each.

use crate::conformance::backend::{Backend, Breadth, SEED, Setup, start, start_replay};
use flowgauge_core::delay::histogram::{Bucket, least};
use flowgauge_core::delay::prefixes::{Prefix, PrefixOwner, fingerprint};
use flowgauge_core::delay::weights::{Weight, weights};
use flowgauge_core::delay::{
    Admission, Algorithm, Counts, DelayKind, Directions, Kinds, Label, Settings as Delays,
};
use flowgauge_core::hash::crc32;
use flowgauge_core::{Settings, Tabulation, WindowTotals};
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_testing::frames::Ip;
use flowgauge_testing::samples::passed_on;
use flowgauge_traffic::frame::flag::{ACK, FIN, SYN};
use flowgauge_traffic::frame::{TCP, Tcp, UDP, dns, echo, udp};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::LazyLock;

/// Meaning of a frame.
#[derive(Clone, Copy)]
struct Exchange {
    kind: DelayKind,
    /// Ends of the request, whichever end sends the frame: address and port, as bytes of a hash.
    from: u32,
    to: u32,
    token: u32,
    is_answer: bool,
    at: u64,
    /// The end that asks, and the end that answers.
    asker: End,
    answerer: End,
}

/// Frames, with the meaning of each.
struct Traffic {
    frames: Vec<(OwnedFrame, Vec<Exchange>)>,
    random: ChaCha8Rng,
}

#[derive(Clone, Copy)]
struct End {
    v6: bool,
    number: u8,
    port: u16,
}

impl End {
    fn bytes(self) -> Vec<u8> {
        let v6 =
            || [&[0x20, 1, 0xd, 0xb8, 0, 0, 0, self.number][..], &[0; 7], &[self.number]].concat();
        if self.v6 { v6() } else { vec![10, 0, 0, self.number] }
    }

    fn address(self) -> IpAddr {
        let bytes = self.bytes();
        match bytes.first_chunk::<16>() {
            Some(bytes) => (*bytes).into(),
            None => [bytes[0], bytes[1], bytes[2], bytes[3]].into(),
        }
    }

    /// Returns its group by [`PREFIXES`].
    fn group(self) -> u8 {
        match (self.v6, self.number) {
            (false, 0..64) => 1,
            (false, 64..128) => 2,
            (false, _) => 0,
            (true, 0..128) => 0,
            (true, _) => 3,
        }
    }

    /// Returns whether it is local by [`PREFIXES`].
    fn is_local(self) -> bool {
        if self.v6 { self.number < 64 } else { (32..96).contains(&self.number) }
    }

    fn hash(self) -> u32 {
        crc32(&[self.bytes(), self.port.to_be_bytes().to_vec()].concat())
    }
}

/// A prefix, its group, and whether it is local.
const PREFIXES: [(&str, u8, Option<u8>, bool); 6] = [
    ("10.0.0.0", 25, Some(1), false),
    ("10.0.0.64", 26, Some(2), false),
    ("10.0.0.64", 27, None, true),
    ("10.0.0.32", 27, None, true),
    ("2001:db8:0:80::", 57, Some(3), false),
    ("2001:db8::", 58, None, true),
];

static OWNED: LazyLock<Vec<PrefixOwner>> = LazyLock::new(|| {
    let owned = |&(address, length, group, is_local): &(&str, u8, Option<u8>, bool)| PrefixOwner {
        prefix: Prefix::of(address.parse().unwrap(), length).unwrap(),
        group,
        is_local,
    };
    PREFIXES.iter().map(owned).collect()
});

impl Traffic {
    fn push(
        &mut self,
        (from, to): (End, End),
        mut frame: Vec<u8>,
        exchanges: &[(DelayKind, u32, bool)],
    ) {
        let at = 1_000_000_000 + self.frames.len() as u64 * 100_000;
        frame.resize(frame.len().max(60), 0);
        let exchange = |&(kind, token, is_answer): &(DelayKind, u32, bool)| {
            let (asker, answerer) = if is_answer { (to, from) } else { (from, to) };
            let (mut from, mut to) = (asker.hash(), answerer.hash());
            if kind == DelayKind::TcpDuration && side(from, to) == 1 {
                std::mem::swap(&mut from, &mut to);
            }
            Exchange { kind, from, to, token, is_answer, at, asker, answerer }
        };
        let frame = OwnedFrame { timestamp: at, ..OwnedFrame::ethernet(frame) };
        self.frames.push((frame, exchanges.iter().map(exchange).collect()));
    }

    fn tcp(
        &mut self,
        (from, to): (End, End),
        flags: u8,
        [sequence, acknowledgement]: [u32; 2],
        payload: u32,
        exchanges: &[(DelayKind, u32, bool)],
    ) {
        let ports = [from.port, to.port];
        let tcp = Tcp { ports, flags, sequence, acknowledgement, ..Tcp::default() };
        let segment = tcp.segment(&vec![0; payload as usize]);
        let ip = Ip::new(from.address(), to.address(), TCP);
        self.push((from, to), ip.frame(&segment), exchanges);
    }

    fn udp(&mut self, (from, to): (End, End), id: u16, is_answer: bool) {
        let datagram = udp([from.port, to.port], &dns(id, is_answer));
        let ip = Ip::new(from.address(), to.address(), UDP);
        self.push((from, to), ip.frame(&datagram), &[(DelayKind::Dns, id.into(), is_answer)]);
    }

    fn echo(&mut self, (from, to): (End, End), sequence: u16, is_answer: bool) {
        let token = 0x1234_0000 | u32::from(sequence);
        let frame = echo(from.address(), to.address(), token, is_answer);
        self.push((from, to), frame, &[(DelayKind::Icmp, token, is_answer)]);
    }

    /// Creates conversations that start one after another and continue concurrently.
    fn new(seed: u64, conversations: usize) -> Self {
        let mut traffic = Traffic { frames: Vec::new(), random: ChaCha8Rng::seed_from_u64(seed) };
        let mut open: Vec<(End, End, [u32; 2], usize)> = Vec::new();
        let mut begun = 0;
        while begun < conversations || !open.is_empty() {
            if begun < conversations && (open.len() < 8 || traffic.random.random_ratio(1, 4)) {
                let v6 = traffic.random.random_ratio(1, 3);
                let mut end = |port| End { v6, number: traffic.random.random_range(1..250), port };
                let (client, server) = (end(1024 + begun as u16), end(443));
                open.push((client, server, [traffic.random.random(), traffic.random.random()], 0));
                begun += 1;
            }
            let index = traffic.random.random_range(0..open.len());
            if traffic.step(&mut open[index]) {
                open.swap_remove(index);
            }
        }
        traffic
    }

    /// Returns the frames without their meaning.
    fn bare(&self) -> Vec<OwnedFrame> {
        self.frames.iter().map(|(frame, _)| frame.clone()).collect()
    }

    /// Returns the counts of each kind if all frames are in one window.
    fn expected(&self, delays: Delays) -> HashMap<DelayKind, Expected> {
        let (mut model, mut expected) = (Model::new(delays), HashMap::<_, Expected>::new());
        for exchange in self.frames.iter().flat_map(|(_, exchanges)| exchanges) {
            model.count(exchange, expected.entry(exchange.kind).or_default());
        }
        expected
    }

    /// Sends the next frame of a conversation; returns whether it was the last.
    fn step(
        &mut self,
        (client, server, [here, there], step): &mut (End, End, [u32; 2], usize),
    ) -> bool {
        use DelayKind::{TcpData, TcpDuration, TcpHandshake};
        let (forth, back) = ((*client, *server), (*server, *client));
        let payload = 1 + (*here & 63);
        let named = |end: End, port| End { port, ..end };
        match *step {
            0 => {
                let handshake = (TcpHandshake, here.wrapping_add(1), false);
                self.tcp(forth, SYN, [*here, 0], 0, &[handshake, (TcpDuration, 0, false)]);
            }
            1 => {
                let handshake = (TcpHandshake, here.wrapping_add(1), true);
                self.tcp(back, SYN | ACK, [*there, here.wrapping_add(1)], 0, &[handshake]);
            }
            2 | 4 => {
                *here = here.wrapping_add(1);
                let end = here.wrapping_add(payload);
                let acknowledgement = there.wrapping_add(1);
                let exchanges = [(TcpData, acknowledgement, true), (TcpData, end, false)];
                // Some segments are sent again.
                for _ in 0..1 + (*there & 1) {
                    self.tcp(forth, ACK, [*here, acknowledgement], payload, &exchanges);
                }
                *here = end;
            }
            // Data that acknowledge data.
            3 => {
                let end = there.wrapping_add(20);
                let exchanges = [(TcpData, *here, true), (TcpData, end, false)];
                self.tcp(back, ACK, [*there, *here], 20, &exchanges);
                *there = end.wrapping_sub(1);
            }
            5 if *here & 1 == 0 => {
                self.tcp(back, ACK, [*there, *here], 0, &[(TcpData, *here, true)])
            }
            6 => self.udp((named(*client, client.port), named(*server, 53)), *here as u16, false),
            7 if *here & 3 != 0 => {
                self.udp((named(*server, 53), named(*client, client.port)), *here as u16, true)
            }
            8 => self.echo((named(*client, 0), named(*server, 0)), *here as u16, false),
            9 if *here & 4 != 0 => {
                self.echo((named(*server, 0), named(*client, 0)), *here as u16, true)
            }
            10 => {
                let acknowledgement = there.wrapping_add(1);
                let exchanges = [(TcpDuration, 0, true), (TcpData, acknowledgement, true)];
                self.tcp(forth, FIN | ACK, [*here, acknowledgement], 0, &exchanges);
            }
            _ => {}
        }
        *step += 1;
        *step > 10
    }
}

/// Returns which of a kind's tables contains requests from one end to another.
fn side(from: u32, to: u32) -> usize {
    usize::from(from.wrapping_sub(to) >> 31 == 1)
}

/// Expected counts of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Expected {
    counts: Counts,
    /// Delays, weights and squares of each fridge.
    sums: Vec<[u64; 3]>,
    /// Counts per bucket.
    ticks: Vec<u32>,
}

impl Expected {
    fn add(&mut self, fridge: usize, weight: Weight, ticks: u32) {
        let terms: [u64; 3] = [1, weight.weight.into(), weight.square.into()];
        self.sums[fridge].iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
        self.ticks.push(ticks);
    }
}

/// Place of a waiting request: kind, table, fridge and slot.
type Slot = (DelayKind, usize, usize, u32);

/// The definition, implemented with maps.
struct Model {
    settings: Delays,
    tabulation: Tabulation,
    weights: Vec<Weight>,
    /// Admission of the open window.
    admission: Admission,
    slots: HashMap<Slot, (u32, u32, u64)>,
    inserted: HashMap<(DelayKind, usize, usize), u32>,
    /// Last request of each kind and cell.
    recent: HashMap<(DelayKind, u32), u32>,
}

impl Model {
    fn new(settings: Delays) -> Self {
        let weights = weights(settings.fridge_slots_log2()).collect();
        let admission = Admission { kept: settings.admit_log2, counted: settings.admit_log2 };
        let tabulation = Tabulation::from_seed(SEED);
        let (slots, inserted, recent) = (HashMap::new(), HashMap::new(), HashMap::new());
        Model { settings, tabulation, weights, admission, slots, inserted, recent }
    }

    fn fridge(&self, hash: u32, admit_log2: u8) -> Option<usize> {
        let zeros = hash.trailing_zeros();
        let admit = u32::from(admit_log2);
        match (zeros >= admit, self.settings.algorithm) {
            (false, _) => None,
            (true, Algorithm::MultiFridge) => Some((((zeros - admit) / 2) as usize).min(3)),
            (true, _) => Some(0),
        }
    }

    /// Applies the definition of expiry: two stages of half a table each, and times of 31 bits.
    fn wait(
        &mut self,
        (kind, side): (DelayKind, usize),
        (signature, hash): (u32, u32),
        (is_answer, at): (bool, u64),
        expected: &mut Expected,
    ) {
        let ticks = |time: u64| (time >> kind.tick_bits()) % (1 << 31);
        let (now, age) = (ticks(at).max(1), u64::from(self.settings.expiry_ns) >> kind.tick_bits());
        let places = [hash, hash.rotate_left(16)]
            .map(|hash| hash >> (33 - u32::from(self.settings.slots_log2)));
        let places = [0, 1].map(|stage| (kind, side, stage, places[stage]));
        if is_answer {
            let found = places
                .into_iter()
                .find(|place| self.slots.get(place).is_some_and(|(found, ..)| *found == signature));
            if let Some((_, _, since)) = found.and_then(|place| self.slots.remove(&place)) {
                let delay = (now as u32).wrapping_sub(since as u32) << 1;
                expected.add(0, Weight::ONE, delay.cast_signed().wrapping_shr(1).cast_unsigned());
            }
            return;
        }
        for place in places {
            let waiting =
                self.slots.get(&place).filter(|(.., since)| *since <= now && now - since <= age);
            match waiting {
                Some((found, ..)) if *found != signature => continue,
                Some(_) => {}
                None => _ = self.slots.insert(place, (signature, 0, now)),
            }
            expected.counts.admitted += 1;
            return;
        }
        panic!("there is room for all requests");
    }

    fn count(&mut self, exchange: &Exchange, expected: &mut Expected) {
        let Exchange { kind, from, to, token, is_answer, at, .. } = *exchange;
        let signature = from ^ to.rotate_left(16) ^ crc32(&token.to_be_bytes()).rotate_left(24);
        let hash = self.tabulation.hash(signature);
        expected.sums.resize(self.settings.fridges(), [0; 3]);
        expected.counts.requests += u64::from(!is_answer);
        let side = if kind == DelayKind::TcpDuration { 0 } else { side(from, to) };
        let weighs = matches!(self.settings.algorithm, Algorithm::Fridge | Algorithm::MultiFridge);
        let bits = u32::from(self.settings.slots_log2);
        let cell = (kind, (hash << bits) >> (32 - bits));
        let is_new = is_answer || !weighs || self.recent.insert(cell, signature) != Some(signature);
        let Admission { kept, counted } = self.admission;
        let Some(fridge) = self.fridge(hash, kept).filter(|_| signature != 0) else { return };
        let is_counted = hash.trailing_zeros() >= u32::from(counted);
        let index = hash >> (32 - u32::from(self.settings.fridge_slots_log2()));
        let slot = (kind, side, fridge, index);
        if self.settings.algorithm == Algorithm::Expiry {
            self.wait((kind, side), (signature, hash), (is_answer, at), expected);
            return;
        }
        let inserted = self.inserted.entry((kind, side, fridge)).or_default();
        if !is_answer {
            let again = self.slots.get(&slot).is_some_and(|(found, ..)| *found == signature);
            *inserted += u32::from(is_new);
            expected.counts.admitted += u64::from(is_counted);
            if is_counted && weighs {
                expected.counts.inserted += u64::from(is_new);
                expected.counts.miscounted += u64::from(is_new == again);
            }
            if !(again && matches!(kind, DelayKind::TcpHandshake | DelayKind::TcpData)) {
                self.slots.insert(slot, (signature, *inserted, at));
            }
        } else if let Some((_, stamp, since)) =
            self.slots.get(&slot).copied().filter(|(found, ..)| *found == signature)
        {
            self.slots.remove(&slot);
            if !is_counted {
                return;
            }
            let class = ((*inserted - stamp) >> (self.settings.fridge_slots_log2() - 6)) as usize;
            let weight = if weighs { self.weights[class.min(511)] } else { Weight::ONE };
            let tick = kind.tick_bits();
            let delay = ((at >> tick) as u32).wrapping_sub((since >> tick) as u32);
            expected.add(fridge, weight, delay);
        }
    }
}

fn settings(kinds: &[DelayKind], algorithm: Algorithm, admit_log2: u8) -> Delays {
    let kinds = kinds.iter().fold(Kinds::NONE, |kinds, kind| kinds.with(*kind));
    // Whatever the time, requests that expire find a slot.
    let slots_log2 = match algorithm {
        Algorithm::Fridge | Algorithm::Overwrite => 6,
        Algorithm::MultiFridge => 8,
        Algorithm::Expiry => 12,
    };
    Delays { kinds, algorithm, slots_log2, admit_log2, expiry_ns: 4_000_000_000, ..Delays::DEFAULT }
}

/// Returns the label that an exchange is counted under.
fn label(settings: &Delays, exchange: &Exchange) -> Label {
    let Exchange { kind, asker, answerer, .. } = *exchange;
    let is_connection = kind == DelayKind::TcpDuration;
    let leaves = settings.directions == Directions::Local && asker.is_local() && !is_connection;
    let group = if is_connection { answerer.group().max(asker.group()) } else { answerer.group() };
    Label { leaves, group: if settings.groups_log2 > 0 { group } else { 0 } }
}

/// Returns the counts of a kind in a bank.
fn held(
    bank: &WindowTotals,
    settings: &Delays,
    kind: DelayKind,
    label: Label,
) -> (Counts, Vec<[u64; 3]>) {
    let terms: [fn(&Bucket) -> u64; 3] =
        [|bucket| bucket.samples.into(), |bucket| bucket.weight, |bucket| bucket.squares];
    let sums = (0..settings.fridges()).map(|fridge| {
        let buckets = bank.delay.histogram(settings, kind, label, fridge).unwrap().buckets();
        terms.map(|term| buckets.iter().map(term).sum())
    });
    (bank.delay.counts(settings, kind, label), sums.collect())
}

const KINDS: [DelayKind; 5] = [
    DelayKind::TcpHandshake,
    DelayKind::TcpData,
    DelayKind::TcpDuration,
    DelayKind::Dns,
    DelayKind::Icmp,
];

fn each(breadth: Breadth) -> Vec<Delays> {
    let of_all = |algorithm, admit| settings(&KINDS, algorithm, admit);
    let mut all = vec![settings(&[DelayKind::TcpData], Algorithm::Fridge, 0)];
    if breadth > Breadth::Few {
        all.extend(KINDS.map(|kind| settings(&[kind], Algorithm::Fridge, 1)));
        all.extend([
            settings(&[DelayKind::TcpData], Algorithm::MultiFridge, 0),
            settings(&[DelayKind::TcpData], Algorithm::Overwrite, 0),
        ]);
        let exchanges =
            [DelayKind::TcpHandshake, DelayKind::TcpData, DelayKind::Dns, DelayKind::Icmp];
        all.push(settings(&exchanges, Algorithm::Expiry, 0));
    }
    if breadth == Breadth::Combinations {
        all.extend(
            [Algorithm::Fridge, Algorithm::MultiFridge, Algorithm::Overwrite]
                .map(|algorithm| of_all(algorithm, 0)),
        );
        all.push(of_all(Algorithm::Fridge, 2));
    }
    all.push(Delays { follows: true, ..of_all(Algorithm::Fridge, 1) });
    let by_prefix =
        Delays { groups_log2: 2, directions: Directions::Local, ..of_all(Algorithm::Fridge, 0) };
    all.push(Delays { prefixes: fingerprint(&OWNED), ..by_prefix });
    all
}

/// Returns the admission of windows if shares change: from the first two on, smaller and larger
/// ones.
fn admission(delays: &Delays, window: usize) -> Admission {
    const LOG2: [(u8, u8); 7] = [(1, 1), (1, 1), (0, 1), (0, 0), (2, 2), (1, 2), (0, 1)];
    let (kept, counted) = if delays.follows {
        LOG2[window % LOG2.len()]
    } else {
        (delays.admit_log2, delays.admit_log2)
    };
    Admission { kept, counted }
}

fn with_cardinality(delay: Delays) -> Setup {
    Setup { settings: Settings { delay, ..Settings::DEFAULT }, ..Setup::default() }
}

/// At any time the same requests match, with the same weights, in whichever window the
/// answer arrives.
pub fn every_kind_and_algorithm(backend: &dyn Backend) {
    for delays in each(backend.breadth()) {
        let prefixes: &[PrefixOwner] = if delays.prefixes == 0 { &[] } else { &OWNED };
        let setup = Setup { prefixes, ..Setup::only(|settings| settings.delay = delays) };
        let Some(mut rig) = start(backend, &setup) else { continue };
        let traffic = Traffic::new(5, 60);
        let (mut models, mut admitted, mut seen) = (Vec::new(), 0, 0);
        assert_eq!(backend.possible(traffic.bare()).len(), traffic.frames.len());
        let meaning: HashMap<u64, &Vec<Exchange>> =
            traffic.frames.iter().map(|(frame, exchanges)| (frame.timestamp, exchanges)).collect();
        // An even number, so that pipes alternate across them.
        let windows = if delays.follows { 14 } else { 6 };
        let length = traffic.frames.len() / windows * 2;
        for (window, frames) in traffic.frames.chunks(length).enumerate() {
            let admission_of = |window| admission(&delays, window);
            let frames: Vec<OwnedFrame> = frames.iter().map(|(frame, _)| frame.clone()).collect();
            let mut expected: HashMap<(DelayKind, usize), Expected> = HashMap::new();
            let label_index =
                |label: Label| usize::from(label.group) * 2 + usize::from(label.leaves);
            // Pipes of a switch have their own tables.
            for (index, part) in backend.sharing(&frames).iter().enumerate() {
                if index == models.len() {
                    models.push(Model::new(delays));
                }
                models[index].admission = admission_of(window);
                let exchanges = part.iter().flat_map(|frame| meaning[&frame.timestamp]);
                for exchange in exchanges.filter(|exchange| delays.kinds.has(exchange.kind)) {
                    let of_label = expected
                        .entry((exchange.kind, label_index(label(&delays, exchange))))
                        .or_default();
                    models[index].count(exchange, of_label);
                }
            }
            rig.feed_in_order(backend, &frames);
            let closed = rig.rotate();
            if delays.follows {
                // The open window already has its shares.
                let next: Vec<_> =
                    delays.kinds.each().map(|kind| (kind, admission_of(window + 2))).collect();
                rig.dataplane.admit(&next).unwrap();
            }
            let labelled =
                |kind| (0..delays.labels()).map(move |index| (kind, delays.labelled(index)));
            for (kind, label) in delays.kinds.each().flat_map(labelled) {
                let expected = expected.remove(&(kind, label_index(label))).unwrap_or_default();
                let (counts, mut sums) = held(&closed.bank, &delays, kind, label);
                sums.truncate(expected.sums.len());
                assert_eq!(counts, expected.counts, "{delays:?} {kind:?} {label:?}");
                assert_eq!(sums, expected.sums, "{delays:?} {kind:?} {label:?}");
                if expected.counts.requests > 0 {
                    let counted = closed.bank.delay.admit_log2(&delays, kind);
                    assert_eq!(counted, admission_of(window).counted, "{delays:?} {kind:?}");
                }
                admitted += expected.counts.admitted;
                seen += expected.ticks.len() as u64;
            }
        }
        assert!(seen > 0 && seen <= admitted, "{delays:?}: {seen} of {admitted}");
    }
}

/// In trace time every delay is that of the timestamps.
pub fn delays_in_trace_time(backend: &dyn Backend) {
    for algorithm in [Algorithm::Fridge, Algorithm::Overwrite] {
        let delays = settings(&KINDS, algorithm, 0);
        let setup = with_cardinality(delays);
        let traffic = Traffic::new(9, 80);
        let frames = traffic.bare();
        let Some(mut replay) = start_replay(backend, &setup, &frames) else { return };
        (replay.advance)(u64::MAX);
        let closed = replay.dataplane.rotate().unwrap();
        let expected = traffic.expected(delays);
        for (kind, mut expected) in expected {
            expected.ticks.sort_unstable();
            let histogram = closed.bank.delay.histogram(&delays, kind, false, 0).unwrap();
            let buckets = histogram.buckets().iter().enumerate();
            let leasts = buckets.flat_map(|(index, bucket)| {
                std::iter::repeat_n(least(index)..least(index + 1), bucket.samples as usize)
            });
            let leasts: Vec<_> = leasts.collect();
            assert_eq!(leasts.len(), expected.ticks.len(), "{kind:?}");
            let ticks = &expected.ticks;
            let mut pairs = leasts.iter().zip(ticks);
            assert!(pairs.all(|(range, tick)| range.contains(tick)), "{kind:?}: {ticks:?}");
        }
    }
}

/// Individual delays equal the counted ones, whether they are taken before windows are closed or
/// with them; in trace time to the tick.
pub fn one_by_one(backend: &dyn Backend) {
    let algorithms = [Algorithm::Fridge, Algorithm::MultiFridge, Algorithm::Overwrite];
    let all = if backend.breadth() == Breadth::Few { 1 } else { algorithms.len() };
    for algorithm in algorithms.into_iter().take(all) {
        let delays = Delays { samples: true, ..settings(&KINDS, algorithm, 0) };
        let setup = with_cardinality(delays);
        let Some(mut rig) = start(backend, &setup) else { return };
        let traffic = Traffic::new(11, 60);
        let frames = traffic.bare();
        let mut all = 0;
        for frames in frames.chunks(frames.len() / 4) {
            let (early, late) = frames.split_at(frames.len() / 2);
            rig.feed(early);
            // Frames are counted by now, as the trait guarantees after every call.
            rig.sample();
            let mut taken = rig.dataplane.delay_samples().unwrap();
            rig.feed(late);
            let closed = rig.rotate();
            taken.extend(closed.delay_samples);
            let (passed, missing) = passed_on(&closed.bank, &delays, &taken);
            assert_eq!(missing, 0, "{delays:?}");
            all += passed;
        }
        assert!(all > 0, "{delays:?}");
        let Some(mut replay) = start_replay(backend, &setup, &frames) else { continue };
        (replay.advance)(frames[frames.len() / 2].timestamp);
        let mut taken = replay.dataplane.delay_samples().unwrap();
        (replay.advance)(u64::MAX);
        let closed = replay.dataplane.rotate().unwrap();
        assert!(!taken.is_empty() && !closed.delay_samples.is_empty());
        taken.extend(closed.delay_samples);
        assert_eq!(passed_on(&closed.bank, &delays, &taken).1, 0);
        let expected = traffic.expected(delays);
        for (rank, kind) in delays.kinds.each().enumerate() {
            let samples = taken.iter().filter(|sample| usize::from(sample.row) == rank);
            let ticks: Vec<u32> = samples.clone().map(|sample| sample.delay).collect();
            assert_eq!(ticks, expected[&kind].ticks, "{kind:?}");
            let answers = |at| frames.iter().any(|frame| frame.timestamp == at);
            assert!(samples.clone().all(|sample| answers(sample.at)), "{kind:?}");
        }
    }
}
