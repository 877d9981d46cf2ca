//! Batched counting, for configurations that measure only distinct flows in windows.
//!
//! Keys of packets are buffered; once there are enough, [`Instructions`] of the CPU compute the
//! registers and levels of all of them. The code that parses frames is the same for all CPUs, and
//! small enough to stay in registers. Registers take the maximum, so late updates in another order
//! give the same result, provided that no one reads the bank before its [`BatchWriter`] is
//! finished.

use super::lot::KeyColumns;
use super::port::Frame;
use super::vector::instructions::Instructions;
use super::vector::{CAPACITY, RegisterUpdates};
use flowgauge_core::Frame as _;
use flowgauge_core::cardinality::Mode;
use flowgauge_core::packet::Ipv4;
use flowgauge_core::parse::{
    Packet, Reject, network, plain_ipv4, plain_ipv6, tagged_ipv4, unopened,
};
use flowgauge_core::{
    Active, Bank, Context, HashMode, KeyKind, Link, Precision, Settings, Tabulation, tunnel,
};

/// Length of the longest key of an IPv4 packet (a five-tuple, whose last word is the protocol), in
/// words of four bytes.
const WORDS: usize = 4;
/// Length of the longest key of an IPv6 packet, in words of four bytes.
const WORDS_OVER_IPV6: usize = 10;

/// Buffers for batched counting.
pub struct Batch {
    ipv4: KeyColumns<WORDS>,
    ipv6: KeyColumns<WORDS_OVER_IPV6>,
    /// Buffered keys of IPv6 packets, fewer than [`CAPACITY`].
    waiting_ipv6: usize,
    /// Non-IP frames not yet added to the bank.
    run: Run,
    updates: RegisterUpdates,
    key: KeyKind,
    hashed: (HashMode, Precision),
}

/// Writer of packets into a bank, which contains all of them once this is [finished](Self::finish).
///
/// The state that changes with every packet is a part of this type, not of the bank or the batch,
/// so that it stays in registers.
#[must_use = "packets are missing until it is finished"]
pub struct BatchWriter<'a> {
    batch: &'a mut Batch,
    active: Active<'a>,
    context: &'a Context<'a>,
    /// Buffered keys of IPv4 packets, fewer than [`CAPACITY`].
    waiting: usize,
    /// Bytes on the wire not yet added to the bank.
    bytes: u64,
}

impl Batch {
    /// Creates an empty batch; `None` if packets must be counted one by one because other
    /// measurements than windowed distinct flows are on. If the CPU lacks `instructions`, keys are
    /// hashed one by one.
    #[must_use]
    pub fn new(
        settings: &Settings,
        tabulation: &Tabulation,
        instructions: Instructions,
    ) -> Option<Box<Self>> {
        let cardinality = settings.cardinality;
        if cardinality.mode != Mode::Windowed || settings.beyond_cardinality() {
            return None;
        }
        let hashed = (settings.hash, cardinality.precision);
        let [bytes, bytes_over_ipv6] = cardinality.key.lengths();
        Some(Box::new(Batch {
            ipv4: KeyColumns::new(bytes, hashed, tabulation, instructions),
            ipv6: KeyColumns::new(bytes_over_ipv6, hashed, tabulation, instructions),
            waiting_ipv6: 0,
            run: Run::default(),
            updates: RegisterUpdates::EMPTY,
            key: cardinality.key,
            hashed,
        }))
    }

    /// Starts to count in a bank, with the settings and tables that the batch was created for.
    #[inline(always)]
    pub fn fill<'a>(&'a mut self, active: Active<'a>, context: &'a Context<'a>) -> BatchWriter<'a> {
        self.waiting_ipv6 = 0;
        self.run.frames = 0;
        BatchWriter { batch: self, active, context, waiting: 0, bytes: 0 }
    }

    /// Adds the first `keys` keys of IPv4 packets to a bank.
    #[inline(never)]
    fn flush(&mut self, keys: usize, bank: &mut Bank, tabulation: &Tabulation) {
        bank.counters.ipv4 = bank.counters.ipv4.wrapping_add(keys as u64);
        self.ipv4.raise(keys, &mut self.updates, self.hashed, &mut bank.cardinality, tabulation);
    }

    /// Adds the current run of non-IP frames to a bank. The bank's result depends on the order of
    /// EtherTypes, but not on that of other frames.
    #[inline(always)]
    fn end_run(&mut self, bank: &mut Bank) {
        let Run { ethertype, frames } = &mut self.run;
        if *frames > 0 {
            reject(bank, Reject::NonIp(*ethertype), *frames);
            *frames = 0;
        }
    }

    /// Adds all buffered keys of IPv6 packets to a bank.
    #[inline(never)]
    fn flush_ipv6(&mut self, bank: &mut Bank, tabulation: &Tabulation) {
        bank.counters.ipv6 = bank.counters.ipv6.wrapping_add(self.waiting_ipv6 as u64);
        self.ipv6.raise(
            self.waiting_ipv6,
            &mut self.updates,
            self.hashed,
            &mut bank.cardinality,
            tabulation,
        );
        self.waiting_ipv6 = 0;
    }
}

/// Consecutive frames of one EtherType that is not parsed further.
#[derive(Default)]
struct Run {
    ethertype: u16,
    frames: u32,
}

impl Run {
    /// Counts the frame if it belongs to this run.
    #[inline(always)]
    fn extend(&mut self, bytes: &[u8]) -> bool {
        if self.frames == 0 || bytes.number(12) != Some(self.ethertype) {
            return false;
        }
        self.frames += 1;
        true
    }
}

/// Counts an Ethernet frame, except for its bytes, unless it is IPv4, which it returns. The
/// parameters fit into registers: passing the writer or the frame by reference would force them
/// into memory. With `INNER` the innermost network header counts, not the outermost.
#[inline(never)]
fn record_other<'a, const INNER: bool>(
    batch: &mut Batch,
    bank: &mut Bank,
    tabulation: &Tabulation,
    bytes: &'a [u8],
) -> Option<Ipv4<'a>> {
    // The rest needs few registers, and the final call is a tail call.
    if plain_ipv6(bytes).is_none() {
        if let Some(ip) = tagged_ipv4(bytes)
            && !(INNER && tunnel::may_be(bytes, &Packet::V4(ip)))
        {
            return Some(ip);
        }
        if let Some(ethertype) = unopened(bytes) {
            batch.end_run(bank);
            batch.run = Run { ethertype, frames: 1 };
            return None;
        }
    }
    record_rest::<INNER>(batch, bank, tabulation, bytes)
}

/// Handles the frames that [`record_other`] leaves. Separate from [`record_unlikely`], so that IPv6
/// is found without checking the link layer.
#[inline(never)]
fn record_rest<'a, const INNER: bool>(
    batch: &mut Batch,
    bank: &mut Bank,
    tabulation: &Tabulation,
    bytes: &'a [u8],
) -> Option<Ipv4<'a>> {
    let packet = match plain_ipv6(bytes) {
        Some(ip) => Ok(Packet::V6(ip)),
        None => network(bytes, Link::Ethernet),
    };
    record_found::<INNER>(batch, bank, tabulation, bytes, packet)
}

/// Does the same as [`record_other`] for other link layers.
#[inline(never)]
fn record_unlikely<'a, const INNER: bool>(
    batch: &mut Batch,
    bank: &mut Bank,
    tabulation: &Tabulation,
    bytes: &'a [u8],
    link: Link,
) -> Option<Ipv4<'a>> {
    record_found::<INNER>(batch, bank, tabulation, bytes, network(bytes, link))
}

/// Counts the innermost network header of an IPv4 packet, unless it is IPv4, which it returns.
#[inline(never)]
fn record_innermost<'a>(
    batch: &mut Batch,
    bank: &mut Bank,
    tabulation: &Tabulation,
    bytes: &'a [u8],
    ip: Ipv4<'a>,
) -> Option<Ipv4<'a>> {
    record_found::<true>(batch, bank, tabulation, bytes, Ok(Packet::V4(ip)))
}

#[inline(always)]
fn record_found<'a, const INNER: bool>(
    batch: &mut Batch,
    bank: &mut Bank,
    tabulation: &Tabulation,
    bytes: &'a [u8],
    outermost: Result<Packet<'a>, Reject>,
) -> Option<Ipv4<'a>> {
    let packet = match outermost {
        Ok(packet) if INNER && tunnel::may_be(bytes, &packet) => {
            Ok(tunnel::innermost(bytes, packet))
        }
        packet => packet,
    };
    match packet {
        Ok(Packet::V4(ip)) => return Some(ip),
        Ok(packet @ Packet::V6(_)) => {
            let (key, (hash, _)) = (batch.key, batch.hashed);
            let (at, transport) = (batch.waiting_ipv6, key.transport(bytes, &packet));
            let is_keyed = hash == HashMode::Keyed;
            batch.ipv6.put(at, key, is_keyed, tabulation, &packet, transport);
            batch.waiting_ipv6 += 1;
            if batch.waiting_ipv6 == CAPACITY {
                batch.flush_ipv6(bank, tabulation);
            }
        }
        Err(cause) => {
            batch.end_run(bank);
            reject(bank, cause, 1);
        }
    }
    None
}

#[inline(always)]
fn reject(bank: &mut Bank, cause: Reject, frames: u32) {
    bank.counters.reject(cause, frames.into());
    if let Reject::NonIp(ethertype) = cause {
        bank.unopened.vote(ethertype, frames);
    }
}

impl BatchWriter<'_> {
    /// Counts a frame as [`Active::record`] does. `key` is that of the settings; passed as a
    /// constant, it lets the compiler specialise the code, like `KEYED` (whether the hash of the
    /// settings is [`HashMode::Keyed`]) and `INNER` (whether the innermost network header counts).
    /// The remaining settings stay out of the hot code.
    #[inline(always)]
    pub fn record<const KEYED: bool, const INNER: bool>(
        &mut self,
        key: KeyKind,
        frame: &Frame<'_>,
    ) {
        let Frame { bytes, wire_length, link, .. } = *frame;
        let tabulation = self.context.tabulation;
        let (batch, bank) = (&mut *self.batch, &mut *self.active.bank);
        self.bytes = self.bytes.wrapping_add(u64::from(wire_length));
        let found = match link {
            Link::Ethernet => match plain_ipv4(bytes) {
                None if batch.run.extend(bytes) => return,
                None => record_other::<INNER>(batch, bank, tabulation, bytes),
                Some(ip) if INNER && tunnel::may_be(bytes, &Packet::V4(ip)) => {
                    record_innermost(batch, bank, tabulation, bytes, ip)
                }
                found => found,
            },
            _ => record_unlikely::<INNER>(batch, bank, tabulation, bytes, link),
        };
        let Some(ip) = found else { return };
        let packet = Packet::V4(ip);
        let transport = key.transport(bytes, &packet);
        self.batch.ipv4.put(self.waiting, key, KEYED, tabulation, &packet, transport);
        self.advance(1);
    }

    /// Counts keys of IPv4 packets without frames or bytes. Each key has the words of
    /// [`KeyKind::lay_out`], whose first byte is the lowest.
    ///
    /// # Panics
    /// If a key of the settings does not have `N` words.
    pub fn extend<const N: usize>(&mut self, mut keys: &[[u32; N]]) {
        let (key, (hash, _)) = (self.batch.key, self.batch.hashed);
        let [bytes, _] = key.lengths();
        assert!(bytes.div_ceil(4) == N, "keys of {bytes} bytes, and not of {N} words");
        while !keys.is_empty() {
            let (now, later) = keys.split_at(keys.len().min(CAPACITY - self.waiting));
            self.batch.ipv4.put_all(self.waiting, hash, self.context.tabulation, now);
            self.advance(now.len());
            keys = later;
        }
    }

    /// Buffers `keys` more keys, which must fit, and flushes a full buffer.
    #[inline(always)]
    fn advance(&mut self, keys: usize) {
        self.waiting += keys;
        if self.waiting == CAPACITY {
            self.batch.flush(CAPACITY, self.active.bank, self.context.tabulation);
            self.waiting = 0;
        }
    }

    /// Adds the rest to the bank. Not done in `drop`: a value that is dropped during unwinding
    /// would have to be in memory.
    #[inline(always)]
    pub fn finish(self) {
        let counters = &mut self.active.bank.counters;
        counters.bytes = counters.bytes.wrapping_add(self.bytes);
        if self.waiting > 0 {
            self.batch.flush(self.waiting, self.active.bank, self.context.tabulation);
        }
        if self.batch.waiting_ipv6 > 0 {
            self.batch.flush_ipv6(self.active.bank, self.context.tabulation);
        }
        self.batch.end_run(self.active.bank);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use flowgauge_core::Zeroed;
    use flowgauge_core::hash::crc32;
    use flowgauge_core::{Arrival, Shared, Sharing, State, parse};
    use flowgauge_testing::skip;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use std::collections::HashSet;

    /// Generates a random packet: mostly IPv4 with ports, often IPv6, rarely something else, with
    /// or without a tag, truncated anywhere.
    pub(in crate::poll) fn packet(random: &mut ChaCha8Rng) -> (Vec<u8>, Link) {
        let mut bytes: Vec<u8> = (0..80).map(|_| random.random()).collect();
        let tagged = random.random_ratio(1, 8);
        let ethertype = if tagged { 16 } else { 12 };
        if tagged {
            bytes[12..14].copy_from_slice(&[0x81, 0x00]);
        }
        let (family, version) = match random.random_range(0..16) {
            0..5 => ([0x86, 0xdd], 0x60),
            // EtherTypes that are not parsed further.
            5 => ([[0x08, 0x06], [0x88, 0xcc], [0x00, 0x00]][random.random_range(0..3)], 0x00),
            6 => ([0x08, 0x00], 0x46),
            _ => ([0x08, 0x00], 0x45),
        };
        bytes[ethertype..ethertype + 2].copy_from_slice(&family);
        bytes[ethertype + 2] = version;
        // A fragment offset would hide the ports.
        bytes[ethertype + 8..ethertype + 10].copy_from_slice(if random.random_ratio(7, 8) {
            &[0, 0]
        } else {
            &[0, 1]
        });
        bytes[ethertype + 11] = [1, 6, 17, 132][random.random_range(0..4)];
        if version == 0x60 {
            bytes[ethertype + 8] = [0, 6, 17, 44][random.random_range(0..4)];
        }
        if random.random_ratio(1, 16) {
            bytes.truncate(random.random_range(0..80));
        }
        if random.random_ratio(1, 16) {
            (bytes.split_off(bytes.len().min(14)), Link::Ip)
        } else {
            (bytes, Link::Ethernet)
        }
    }

    /// Generates a random packet, often in a tunnel: VXLAN or IP in IP, over IPv4 or IPv6.
    fn tunnelled(random: &mut ChaCha8Rng) -> (Vec<u8>, Link) {
        const UDP: u8 = 17;
        let (mut bytes, link) = packet(random);
        let (header, protocol) = match bytes.get(12..15) {
            Some([0x08, 0x00, 0x45]) => (34, 23),
            Some([0x86, 0xdd, 0x60]) => (54, 20),
            _ => return (bytes, link),
        };
        if link != Link::Ethernet || bytes.len() < header || random.random_ratio(1, 3) {
            return (bytes, link);
        }
        bytes.truncate(header);
        let (inner, _) = if random.random() { tunnelled(random) } else { packet(random) };
        if random.random() {
            bytes[protocol] = UDP;
            bytes.extend([0x30, 0x39, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 1, 0]);
            bytes.extend(inner);
        } else {
            bytes[protocol] = if inner.get(12) == Some(&0x86) { 41 } else { 4 };
            bytes.extend(inner.iter().skip(14));
        }
        (bytes, link)
    }

    /// Records a frame with the constants of the settings.
    fn record(writer: &mut BatchWriter<'_>, settings: &Settings, frame: &Frame<'_>) {
        let (key, hash) = (settings.cardinality.key, settings.hash);
        match (hash == HashMode::Keyed, settings.headers.inner) {
            (false, false) => writer.record::<false, false>(key, frame),
            (false, true) => writer.record::<false, true>(key, frame),
            (true, false) => writer.record::<true, false>(key, frame),
            (true, true) => writer.record::<true, true>(key, frame),
        }
    }

    /// Reports instructions that cannot be tested here.
    fn tell_what_is_missing() {
        if cfg!(target_arch = "x86_64") && !Instructions::Avx512.is_available() {
            skip("a CPU with AVX2, AVX-512 (F, BW, CD, VBMI) and GFNI");
        }
    }

    fn each_setting(mut body: impl FnMut(Settings, Instructions)) {
        for key in KeyKind::ALL {
            for hash in HashMode::ALL {
                for precision in (4..=16).filter_map(Precision::new) {
                    let mut settings = Settings::default();
                    (settings.cardinality.key, settings.hash) = (key, hash);
                    settings.cardinality.precision = precision;
                    Instructions::available().for_each(|instructions| body(settings, instructions));
                    if precision == Precision::DEFAULT {
                        settings.headers = parse::Settings::INNER;
                        Instructions::available()
                            .for_each(|instructions| body(settings, instructions));
                    }
                }
            }
        }
    }

    #[test]
    fn batches_of_any_length_give_the_bits_that_packets_one_by_one_give() {
        tell_what_is_missing();
        let tabulation = Tabulation::from_seed(7);
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let packets: Vec<(Vec<u8>, Link)> = (0..4096).map(|_| tunnelled(&mut random)).collect();
        let shared = Shared::boxed();
        each_setting(|settings, instructions| {
            let context = Context::new(settings, &tabulation, Sharing::Alone);
            let mut batch = Batch::new(&settings, &tabulation, instructions).unwrap();
            let (mut one_by_one, mut batched) = (State::boxed(), State::boxed());
            let mut rest = packets.iter().cycle();
            let step = if settings.cardinality.precision == Precision::DEFAULT { 1 } else { 7 };
            for length in (0..=300).step_by(step) {
                let mut writer = batch.fill(batched.active(&shared, 0), &context);
                for (bytes, link) in rest.by_ref().take(length) {
                    let wire_length = 1000 + bytes.len() as u32;
                    one_by_one.active(&shared, 0).record(
                        &context,
                        *link,
                        bytes.as_slice(),
                        Arrival::new(wire_length, 0),
                    );
                    let frame = Frame { bytes, wire_length, timestamp: 0, link: *link };
                    record(&mut writer, &settings, &frame);
                }
                writer.finish();
                let ([one, _], [many, _]) = (&mut one_by_one.banks, &mut batched.banks);
                assert_eq!(
                    one.counters, many.counters,
                    "{instructions}, {settings:?}, after a batch of {length}"
                );
                assert!(
                    one.cardinality == many.cardinality,
                    "{instructions}, {settings:?}, after a batch of {length}"
                );
                // Full registers would hide missing updates.
                if length % 16 < step {
                    one.clear(&settings);
                    many.clear(&settings);
                }
            }
            assert!(one_by_one == batched, "{instructions}, {settings:?}");
        });
    }

    /// Every protocol and every port, before contents of all kinds of tunnels.
    #[test]
    fn no_tunnel_is_overlooked() {
        const UDP: u8 = 17;
        let inner: Vec<u8> = [0x45, 0, 0, 20].into_iter().chain([0; 16]).collect();
        let frame = [&[0; 12], &[0x08, 0x00][..], &inner].concat();
        let headers: [(&[u8], &[u8]); 8] = [
            (&[], &inner),
            (&[0, 0, 0x08, 0x00], &inner),
            (&[0, 0, 0x65, 0x58], &frame),
            (&[8, 0, 0, 0, 0, 0, 0, 0], &frame),
            (&[8, 0, 0, 1, 0, 0, 0, 0], &inner),
            (&[0, 0, 0x65, 0x58, 0, 0, 0, 0], &frame),
            (&[0x30, 0xff, 0, 20, 0, 0, 0, 0], &inner),
            (&[0x60, 0, 0, 0, 0, 20, 59, 0], &[0; 40]),
        ];
        let mut found = HashSet::new();
        let mut check = |protocol: u8, port: u16, header: &[u8], content: &[u8]| {
            let mut bytes = frame.clone();
            bytes[23] = protocol;
            if protocol == UDP {
                bytes.extend([0, 9, (port >> 8) as u8, port as u8, 0, 0, 0, 0]);
            }
            let bytes = [&bytes, header, content].concat();
            let Ok(packet) = network(bytes.as_slice(), Link::Ethernet) else { panic!("{bytes:?}") };
            if tunnel::innermost(bytes.as_slice(), packet) != packet {
                found.insert((protocol, port));
                assert!(
                    tunnel::may_be(bytes.as_slice(), &packet),
                    "protocol {protocol}, port {port}"
                );
            }
        };
        for (header, content) in headers {
            (0..=u8::MAX).for_each(|protocol| check(protocol, 0, header, content));
            (0..=u16::MAX).for_each(|port| check(UDP, port, header, content));
        }
        assert_eq!(found.len(), 7, "{found:?}");
    }

    #[test]
    fn keys_without_frames_give_the_same_bits() {
        tell_what_is_missing();
        each_setting(|settings, instructions| match settings.cardinality.key {
            KeyKind::Src | KeyKind::Dst => keys_give_the_same_bits::<1>(settings, instructions),
            KeyKind::SrcDst => keys_give_the_same_bits::<2>(settings, instructions),
            KeyKind::FiveTuple => keys_give_the_same_bits::<4>(settings, instructions),
        });
    }

    fn keys_give_the_same_bits<const N: usize>(settings: Settings, instructions: Instructions) {
        let (tabulation, shared) = (Tabulation::from_seed(7), Shared::boxed());
        let cardinality = settings.cardinality;
        let context = Context::new(settings, &tabulation, Sharing::Alone);
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let frames: Vec<Vec<u8>> = (0..700).map(|_| packet(&mut random).0).collect();
        let mut batch = Batch::new(&settings, &tabulation, instructions).unwrap();
        let (mut by_frame, mut by_key) = (State::boxed(), State::boxed());
        let mut writer = batch.fill(by_frame.active(&shared, 0), &context);
        let mut keys: Vec<[u32; N]> = Vec::new();
        for bytes in &frames {
            let Ok(packet @ Packet::V4(_)) =
                parse::counted(bytes.as_slice(), Link::Ethernet, &settings.headers)
            else {
                continue;
            };
            let frame = Frame { bytes, wire_length: 0, timestamp: 0, link: Link::Ethernet };
            record(&mut writer, &settings, &frame);
            let key = cardinality
                .key
                .extract(&packet, cardinality.key.transport(bytes.as_slice(), &packet));
            let mut words = [[0; 4]; N];
            words.as_flattened_mut()[..key.as_bytes().len()].copy_from_slice(key.as_bytes());
            keys.push(words.map(u32::from_le_bytes));
        }
        writer.finish();
        let mut writer = batch.fill(by_key.active(&shared, 0), &context);
        let mut rest = keys.as_slice();
        // Pieces that end within a batch, at its end and in a later one.
        for length in (1..).map(|piece: usize| piece * 37 % 300) {
            let (now, later) = rest.split_at(length.min(rest.len()));
            writer.extend(now);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        writer.finish();
        assert!(by_frame == by_key, "{instructions}, {settings:?}");
    }

    #[test]
    fn every_level_is_found() {
        tell_what_is_missing();
        let tabulation = Tabulation::from_seed(7);
        let settings = Settings::default().with_hash(HashMode::Crc32);
        let precision = settings.cardinality.precision;
        let context = Context::new(settings, &tabulation, Sharing::Alone);
        // Sources whose CRC is a chosen number: the CRC of a word is a bijection, inverted bit by
        // bit.
        let zero = crc32(&[0; 4]);
        let mut basis: Vec<(u32, u32)> =
            (0..32).map(|bit| (1 << bit, crc32(&(1_u32 << bit).to_le_bytes()) ^ zero)).collect();
        for bit in 0..32 {
            let at = (bit..32).find(|&at| basis[at].1 >> bit & 1 == 1).unwrap();
            basis.swap(bit, at);
            let (key, image) = basis[bit];
            for (other, (their_key, their_image)) in basis.iter_mut().enumerate() {
                if other != bit && *their_image >> bit & 1 == 1 {
                    *their_key ^= key;
                    *their_image ^= image;
                }
            }
        }
        let source = |hash: u32| {
            (0..32)
                .filter(|bit| (hash ^ zero) >> bit & 1 == 1)
                .fold(0, |key, bit| key ^ basis[bit].0)
        };
        for instructions in Instructions::available() {
            let mut batch = Batch::new(&settings, &tabulation, instructions).unwrap();
            let (mut state, shared) = (State::boxed(), Shared::boxed());
            let mut writer = batch.fill(state.active(&shared, 0), &context);
            for register in 0..u32::from(precision.max_level()) {
                let rank = (1_u32 << precision.rank_bits() >> 1).checked_shr(register).unwrap_or(0);
                let mut bytes = [0; 34];
                bytes[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
                bytes[17] = 20;
                bytes[26..30].copy_from_slice(
                    &source(register << precision.rank_bits() | rank).to_le_bytes(),
                );
                // Twice, to fill the vectors.
                for _ in 0..2 {
                    let (wire_length, timestamp, link) = (60, 0, Link::Ethernet);
                    let frame = Frame { bytes: &bytes, wire_length, timestamp, link };
                    record(&mut writer, &settings, &frame);
                }
            }
            writer.finish();
            for (register, level) in state.banks[0]
                .cardinality
                .levels(precision)
                .iter()
                .enumerate()
                .take(usize::from(precision.max_level()))
            {
                assert_eq!(usize::from(*level), register + 1);
            }
        }
    }
}
