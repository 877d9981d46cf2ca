use super::*;
use crate::poll::matcher::tests::rules;
use flowgauge_core::Zeroed;
use flowgauge_core::hash::crc32;
use flowgauge_core::{Arrival, Filter, Shared, Sharing, State, parse};
use flowgauge_testing::skip;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::HashSet;
use std::sync::Arc;

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
    let fragment = if random.random_ratio(7, 8) { [0, 0] } else { [0, 1] };
    bytes[ethertype + 8..ethertype + 10].copy_from_slice(&fragment);
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
fn record(writer: &mut BatchWriter<'_>, settings: &Settings, frame: &PortFrame<'_>) {
    let (key, hash) = (settings.cardinality.key, settings.hash);
    match (hash == HashMode::Keyed, settings.headers.inner) {
        (false, false) => writer.record::<false, false>(key, frame),
        (false, true) => writer.record::<false, true>(key, frame),
        (true, false) => writer.record::<true, false>(key, frame),
        (true, true) => writer.record::<true, true>(key, frame),
    }
}

/// Records a frame that a filter admits, with the constants of the settings.
fn record_matching(
    writer: &mut BatchWriter<'_>,
    settings: &Settings,
    filter: &Matcher,
    frame: &PortFrame<'_>,
) {
    let (key, hash) = (settings.cardinality.key, settings.hash);
    match (hash == HashMode::Keyed, settings.headers.inner) {
        (false, false) => writer.record_matching::<false, false>(filter, key, frame),
        (false, true) => writer.record_matching::<false, true>(filter, key, frame),
        (true, false) => writer.record_matching::<true, false>(filter, key, frame),
        (true, true) => writer.record_matching::<true, true>(filter, key, frame),
    }
}

/// Generates a random packet with few addresses, ports and TCP flags, often truncated in its
/// transport header, and its length on the wire.
fn packet_of_few(random: &mut ChaCha8Rng) -> (Vec<u8>, Link, u32) {
    let (mut bytes, link) = tunnelled(random);
    if bytes.get(12..15) == Some(&[0x08, 0x00, 0x45]) {
        bytes.iter_mut().take(48).skip(26).for_each(|byte| *byte &= 1);
        if random.random_ratio(1, 4) {
            bytes.truncate(random.random_range(30..60));
        }
    }
    (bytes, link, [60, 64, 1500, 65_535, 65_536, 100_000][random.random_range(0..6)])
}

#[test]
fn filters_decide_on_batches_as_on_packets_one_by_one() {
    tell_what_is_missing();
    let (tabulation, shared) = (Tabulation::from_seed(7), Shared::boxed());
    let mut random = ChaCha8Rng::seed_from_u64(4);
    let packets: Vec<_> = (0..4096).map(|_| packet_of_few(&mut random)).collect();
    let lengths = [0, 1, 7, 8, 9, 16, 63, 64, 65, 128];
    let mut filters: Vec<Arc<Matcher>> = Vec::new();
    for length in lengths.into_iter().cycle().take(20 * lengths.len()) {
        let (mut filter, otherwise) = (Filter::boxed(), random.random());
        let is_plain = random.random_ratio(3, 4);
        filter.ipv4.write(&rules(&mut random, length, is_plain), otherwise).unwrap();
        filter.ipv6.write(&rules(&mut random, length, false), otherwise).unwrap();
        filter.non_ip.write(&rules(&mut random, length, false), otherwise).unwrap();
        filter.unreadable.write(&[], random.random()).unwrap();
        filters.push(Matcher::new(Arc::from(filter)));
    }
    let mut filters = filters.iter().cycle();
    let (mut admitted, mut left_out) = (0, 0);
    each_setting(|settings, instructions| {
        if settings.cardinality.precision != Precision::DEFAULT {
            return;
        }
        let context = Context::new(settings, &tabulation, Sharing::Alone);
        let mut batch = Batch::new(&settings, &tabulation, instructions).unwrap();
        let (mut one_by_one, mut batched) = (State::boxed(), State::boxed());
        let mut rest = packets.iter().cycle();
        for length in (0..600).step_by(7) {
            let filter = filters.next().unwrap();
            let mut writer = batch.fill(batched.active(&shared, 0), &context);
            for (bytes, link, wire_length) in rest.by_ref().take(length) {
                let (link, wire_length) = (*link, *wire_length);
                let mut active = one_by_one.active(&shared, 0);
                if filter.filter.matches(settings.headers, link, bytes.as_slice(), wire_length) {
                    admitted += 1;
                    let arrival = Arrival::new(wire_length, 0);
                    active.record(&context, link, bytes.as_slice(), arrival);
                } else {
                    left_out += 1;
                    active.bank.counters.leave_out(1, wire_length.into());
                }
                let frame = PortFrame { bytes, wire_length, timestamp: 0, link };
                record_matching(&mut writer, &settings, filter, &frame);
            }
            writer.finish();
            let ([one, _], [many, _]) = (&mut one_by_one.banks, &mut batched.banks);
            let rules = filter.filter.ipv4.rules();
            assert_eq!(one.counters, many.counters, "{instructions}, {settings:?}, {rules:x?}");
            assert!(one.cardinality == many.cardinality, "{instructions}, {settings:?}");
            // Full registers would hide missing updates.
            one.clear(&settings);
            many.clear(&settings);
        }
        assert!(one_by_one == batched, "{instructions}, {settings:?}");
    });
    assert!(admitted.min(left_out) > 100_000, "{admitted} admitted, {left_out} not");
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
                    Instructions::available().for_each(|instructions| body(settings, instructions));
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
                let arrival = Arrival::new(wire_length, 0);
                let mut active = one_by_one.active(&shared, 0);
                active.record(&context, *link, bytes.as_slice(), arrival);
                let frame = PortFrame { bytes, wire_length, timestamp: 0, link: *link };
                record(&mut writer, &settings, &frame);
            }
            writer.finish();
            let ([one, _], [many, _]) = (&mut one_by_one.banks, &mut batched.banks);
            let what = || format!("{instructions}, {settings:?}, after a batch of {length}");
            assert_eq!(one.counters, many.counters, "{}", what());
            assert!(one.cardinality == many.cardinality, "{}", what());
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
            assert!(tunnel::may_be(bytes.as_slice(), &packet), "protocol {protocol}, port {port}");
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
        let frame = PortFrame { bytes, wire_length: 0, timestamp: 0, link: Link::Ethernet };
        record(&mut writer, &settings, &frame);
        let key =
            cardinality.key.extract(&packet, cardinality.key.transport(bytes.as_slice(), &packet));
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
        (0..32).filter(|bit| (hash ^ zero) >> bit & 1 == 1).fold(0, |key, bit| key ^ basis[bit].0)
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
            bytes[26..30]
                .copy_from_slice(&source(register << precision.rank_bits() | rank).to_le_bytes());
            // Twice, to fill the vectors.
            for _ in 0..2 {
                let (wire_length, timestamp, link) = (60, 0, Link::Ethernet);
                let frame = PortFrame { bytes: &bytes, wire_length, timestamp, link };
                record(&mut writer, &settings, &frame);
            }
        }
        writer.finish();
        let levels = state.banks[0].cardinality.levels(precision).iter().enumerate();
        for (register, level) in levels.take(usize::from(precision.max_level())) {
            assert_eq!(usize::from(*level), register + 1);
        }
    }
}
