//! Packets out of order: which flows are followed, the classes of their segments, and the prefixes
//! that they count for.

use crate::conformance::backend::{Backend, Breadth, SEED, Setup, start, start_replay};
use flowgauge_core::hash::crc32;
use flowgauge_core::reorder::{Algorithm, PrefixCounts, Settings as Reordering};
use flowgauge_core::{Tabulation, WindowTotals};
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_testing::frames::Ip;
use flowgauge_traffic::frame::flag::{ACK, FIN, RST, SYN};
use flowgauge_traffic::frame::{TCP, Tcp};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, HashMap};

/// A segment, in terms of the definition.
#[derive(Clone, Copy, Debug)]
struct Segment {
    signature: u32,
    prefix: u64,
    flags: u8,
    sequence: u32,
    payload: u32,
    at: u64,
}

/// A sender, and what it has sent.
struct Flow {
    v6: bool,
    subnet: u8,
    host: u8,
    port: u16,
    next: u32,
    /// Segments in flight, by sequence number.
    held: Vec<(u32, u32)>,
}

/// Frames with their segments, all at different times.
struct Traffic {
    frames: Vec<OwnedFrame>,
    meaning: HashMap<u64, Segment>,
    random: ChaCha8Rng,
}

impl Traffic {
    fn push(&mut self, flow: &Flow, flags: u8, sequence: u32, payload: u32, apart: u64) {
        let at = self.frames.last().map_or(1_000_000_000, |frame| frame.timestamp) + apart;
        let ports = [flow.port.to_be_bytes(), 443_u16.to_be_bytes()].concat();
        let tcp = Tcp { ports: [flow.port, 443], flags, sequence, ..Tcp::default() };
        let transport = tcp.segment(&vec![0; payload as usize]);
        let Flow { subnet, host, .. } = *flow;
        let (ip, addresses, prefix) = if flow.v6 {
            let (mut from, to) = ([0; 16], [9; 16]);
            from[..8].copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, subnet, 0, host]);
            from[15] = host;
            let prefix = 0x2001_0db8_0000_0006 | u64::from(subnet) << 16;
            (Ip::new(from, to, TCP), [from, to].concat(), prefix)
        } else {
            let (from, to) = ([10, 1, subnet, host], [192, 0, 2, 1]);
            let prefix = u64::from(u32::from_be_bytes([10, 1, subnet, 0])) << 32 | 4;
            (Ip::new(from, to, TCP), [from, to].concat(), prefix)
        };
        let mut frame = ip.frame(&transport);
        frame.resize(frame.len().max(60), 0);
        let signature = crc32(&[&addresses[..], &ports, &[6]].concat());
        self.meaning.insert(at, Segment { signature, prefix, flags, sequence, payload, at });
        self.frames.push(OwnedFrame { timestamp: at, ..OwnedFrame::ethernet(frame) });
    }

    /// Creates concurrent flows, `of_prefix` in each prefix; `apart` returns the time between
    /// packets.
    fn new(
        seed: u64,
        of_prefix: u8,
        flows: u8,
        packets: usize,
        mut apart: impl FnMut(&mut ChaCha8Rng) -> u64,
    ) -> Self {
        let random = ChaCha8Rng::seed_from_u64(seed);
        let mut traffic = Traffic { frames: Vec::new(), meaning: HashMap::new(), random };
        let mut flows: Vec<Flow> = (0..flows)
            .map(|number| Flow {
                v6: number % 3 == 0,
                subnet: number / of_prefix,
                host: number,
                port: 1024 + u16::from(number),
                // Some wrap at once.
                next: if number % 4 == 0 { u32::MAX - 500 } else { traffic.random.random() },
                held: Vec::new(),
            })
            .collect();
        while traffic.frames.len() < packets {
            let index = traffic.random.random_range(0..flows.len());
            let apart = apart(&mut traffic.random);
            let flow = &mut flows[index];
            let payload = traffic.random.random_range(1..=200);
            let (next, end) = (flow.next, flow.next.wrapping_add(payload));
            match traffic.random.random_range(0..40) {
                // Buffered segments arrive, at once or after others.
                0..12 if !flow.held.is_empty() => {
                    let (sequence, payload) =
                        flow.held.remove(traffic.random.random_range(0..flow.held.len()));
                    traffic.push(flow, ACK, sequence, payload, apart);
                }
                12..15 => {
                    flow.held.push((next, payload));
                    flow.next = end;
                }
                15..17 => traffic.push(flow, ACK, next.wrapping_sub(payload), payload, apart),
                17 => traffic.push(flow, ACK, next.wrapping_sub(1), 1, apart),
                18 => traffic.push(flow, ACK, next, 0, apart),
                19 if traffic.random.random_ratio(1, 4) => {
                    let flags = [FIN | ACK, SYN, RST | ACK][traffic.random.random_range(0..3)];
                    let payload = if flags & SYN == 0 { payload } else { 0 };
                    traffic.push(flow, flags, next, payload, apart);
                    flow.next = if flags & FIN == 0 { traffic.random.random() } else { end };
                }
                _ => {
                    traffic.push(flow, ACK, next, payload, apart);
                    flow.next = end;
                }
            }
        }
        traffic
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    signature: u32,
    until: u32,
    next: u32,
    missing: u32,
    /// Window in which `late` was counted.
    window: usize,
    late: u64,
}

/// Expected counts of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Expected {
    prefixes: BTreeMap<u64, PrefixCounts>,
    unfollowed: u64,
}

/// The definition, implemented with maps.
struct Model {
    settings: Reordering,
    tabulation: Tabulation,
    slots: HashMap<(bool, u32), Slot>,
    /// Number of times that a flow found its slot occupied by another.
    collisions: u64,
}

impl Model {
    fn new(settings: Reordering) -> Self {
        let tabulation = Tabulation::from_seed(SEED);
        Model { settings, tabulation, slots: HashMap::new(), collisions: 0 }
    }

    /// Classifies a segment in a slot; none if the slot belongs to another flow.
    fn follow(
        &mut self,
        place: (bool, u32),
        segment: &Segment,
        admits: bool,
        window: usize,
    ) -> Option<(&'static str, bool, u64)> {
        let mine = segment.signature | 1;
        let slot = self.slots.entry(place).or_default();
        let now = (segment.at >> 16) as u32;
        let is_idle = slot.until <= now;
        let is_mine = slot.signature == mine;
        if !is_mine && slot.signature != 0 {
            self.collisions += 1;
        }
        let is_last = segment.flags & FIN != 0;
        if !is_mine && !is_idle && (is_last || !admits) {
            return None;
        }
        let Segment { sequence, payload, flags, .. } = *segment;
        let end = sequence.wrapping_add(payload).wrapping_add(u32::from(flags & FIN));
        let ahead = segment.sequence.wrapping_sub(slot.next);
        let what = match ahead {
            _ if !is_mine => {
                *slot = Slot { signature: mine, next: end, ..Slot::default() };
                "first"
            }
            0 => "in order",
            1..0x8000_0000 => {
                slot.missing = slot.missing.saturating_add(ahead);
                "gap"
            }
            u32::MAX if segment.payload <= 1 => "keep-alive",
            _ if slot.missing >= segment.payload => {
                slot.missing -= segment.payload;
                "late"
            }
            _ => "again",
        };
        if end.wrapping_sub(slot.next) < 0x8000_0000 {
            slot.next = end;
        }
        let is_new = !is_mine || is_idle || slot.window != window;
        let before = if is_new { 0 } else { slot.late };
        slot.window = window;
        slot.late = before + u64::from(what == "late");
        let square = slot.late.pow(2) - before.pow(2);
        slot.until = if is_last { 0 } else { now + (1 << 14) };
        Some((what, is_new, square))
    }

    fn forget(&mut self, place: (bool, u32), mine: u32) {
        if let Some(slot) = self.slots.get_mut(&place).filter(|slot| slot.signature == mine) {
            (slot.signature, slot.until) = (0, 0);
        }
    }

    fn count(&mut self, segment: &Segment, window: usize, expected: &mut Expected) {
        let (signature, mine) = (segment.signature, segment.signature | 1);
        let is_hybrid = self.settings.algorithm == Algorithm::Hybrid;
        let size = 1_u32 << (self.settings.slots_log2 - u8::from(is_hybrid));
        let places = self.tabulation.hash(crc32(&segment.prefix.to_be_bytes()));
        let (bucket, large) =
            ((false, (places >> 16) % size), (true, self.tabulation.hash(signature) % size));
        if segment.flags & SYN != 0 {
            self.forget(bucket, mine);
            self.forget(large, mine);
            return;
        }
        if segment.payload == 0 || segment.flags & RST != 0 {
            return;
        }
        let random = signature ^ crc32(&segment.sequence.to_be_bytes());
        let mut followed = None;
        if is_hybrid {
            followed = self.follow(large, segment, random >> 22 == 0, window);
            if followed.is_some_and(|(what, ..)| what == "first") {
                self.forget(bucket, mine);
            }
        }
        let followed =
            followed.or_else(|| self.follow(bucket, segment, random << 10 >> 26 == 0, window));
        let Some((what, is_new, square)) = followed else {
            expected.unfollowed += 1;
            return;
        };
        if what == "keep-alive" {
            return;
        }
        let total = expected.prefixes.entry(segment.prefix).or_default();
        total.prefix = segment.prefix;
        total.packets += 1;
        total.flows += u64::from(is_new);
        total.out_of_order += u64::from(what == "late");
        total.retransmitted += u64::from(what == "again");
        total.gaps += u64::from(what == "gap");
        total.squares += square;
    }
}

fn held(bank: &WindowTotals) -> Expected {
    let sum = &bank.reorder;
    assert_eq!((sum.contended, sum.crowded), (0, 0));
    Expected {
        prefixes: sum.prefixes().map(|prefix| (prefix.prefix, *prefix)).collect(),
        unfollowed: sum.unfollowed,
    }
}

fn setup(algorithm: Algorithm, slots_log2: u8) -> Setup {
    let reorder = Reordering { algorithm, slots_log2, ..Reordering::DEFAULT };
    Setup::only(|settings| settings.reorder = reorder)
}

/// If every flow has its own slot, time is irrelevant, except for how often a silent flow counts.
pub fn every_algorithm(backend: &dyn Backend) {
    let all = [Algorithm::Hybrid, Algorithm::Sampling];
    for algorithm in all.into_iter().take(if backend.breadth() == Breadth::Few { 1 } else { 2 }) {
        let setup = setup(algorithm, 12);
        let Some(mut rig) = start(backend, &setup) else { continue };
        // With sampling, a prefix has one slot, and so one flow.
        let traffic =
            Traffic::new(3, if algorithm == Algorithm::Hybrid { 2 } else { 1 }, 24, 3000, |_| 1000);
        let frames = traffic.frames.clone();
        assert_eq!(backend.possible(frames.clone()).len(), frames.len());
        let mut models = Vec::new();
        for (window, frames) in frames.chunks(frames.len() / 6 * 2).enumerate() {
            let mut expected = Expected::default();
            // Pipes of a switch have their own slots.
            for (index, part) in backend.sharing(frames).iter().enumerate() {
                if index == models.len() {
                    models.push(Model::new(setup.settings.reorder));
                }
                part.iter().for_each(|frame| {
                    models[index].count(&traffic.meaning[&frame.timestamp], window, &mut expected)
                });
            }
            rig.feed_in_order(backend, frames);
            let mut found = held(&rig.rotate().bank);
            for (prefix, found) in &mut found.prefixes {
                let expected = expected.prefixes.get(prefix).copied().unwrap_or_default();
                // On a busy machine the time between two packets may count as silence.
                let is_bounded = found.flows >= expected.flows && found.squares <= expected.squares;
                assert!(is_bounded, "{algorithm:?} {found:?} {expected:?}");
                (found.flows, found.squares) = (expected.flows, expected.squares);
            }
            assert_eq!(found, expected, "{algorithm:?} in window {window}");
        }
        assert!(models.iter().all(|model| model.collisions == 0), "{algorithm:?}");
    }
}

/// In trace time silence is determined by the timestamps: slots are few, and change flows.
pub fn slots_in_trace_time(backend: &dyn Backend) {
    if !backend.in_order() {
        println!("left out: slots in trace time, of packets in an order that workers choose");
        return;
    }
    for (algorithm, slots_log2) in
        [(Algorithm::Hybrid, 4), (Algorithm::Sampling, 3), (Algorithm::Hybrid, 1)]
    {
        let setup = setup(algorithm, slots_log2);
        let apart = |random: &mut ChaCha8Rng| {
            if random.random_ratio(1, 50) {
                1_200_000_000
            } else {
                random.random_range(1..2_000_000)
            }
        };
        let traffic = Traffic::new(7, 2, 60, 20_000, apart);
        let Some(mut replay) = start_replay(backend, &setup, &traffic.frames) else { return };
        let (mut model, half) = (Model::new(setup.settings.reorder), traffic.frames.len() / 2);
        for (window, frames) in traffic.frames.chunks(half).enumerate() {
            let end =
                traffic.frames.get((window + 1) * half).map_or(u64::MAX, |frame| frame.timestamp);
            (replay.advance)(end);
            let mut expected = Expected::default();
            frames.iter().for_each(|frame| {
                model.count(&traffic.meaning[&frame.timestamp], window, &mut expected)
            });
            let found = held(&replay.dataplane.rotate().unwrap().bank);
            assert_eq!(found, expected, "{algorithm:?} in window {window}");
        }
        assert!(model.collisions > 1000, "{}", model.collisions);
    }
}
