//! Filters: matching frames are counted as if there were no others, which are only added up.

use crate::conformance::backend::{
    Backend, Breadth, Rig, SEED, Setup, Traffic, assert_same, not_for_this_backend,
};
use flowgauge_core::filter::fields::{
    ADDRESSES, FLAGS_SHIFT, FRAME, HAS_FLAGS, HAS_PORTS, IPV4_WORDS, LENGTH_MASK, PORTS, PROTOCOL,
    PROTOCOL_SHIFT, TAGGED, VLAN_SHIFT,
};
use flowgauge_core::filter::{MAX_RULES, MatchRule};
use flowgauge_core::heavy::{self, Algorithm};
use flowgauge_core::{Filter, HashMode, KeyKind, Zeroed, parse};
use flowgauge_dataplane::Error;
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_testing::extent;
use flowgauge_testing::frames::{cut_everywhere, kinds, other_links, random, unique};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

/// Returns a rule for packets whose words have these values under these masks.
pub fn rule<const WORDS: usize>(
    conditions: &[(usize, u32, u32)],
    is_match: bool,
) -> MatchRule<WORDS> {
    let mut rule = MatchRule { value: [0; WORDS], mask: [0; WORDS], verdict: is_match.into() };
    for (word, mask, value) in conditions {
        rule.mask[*word] |= mask;
        rule.value[*word] |= value & mask;
    }
    rule
}

/// Filter with the same rule for both versions of IP.
fn of_ip(conditions: &[(usize, u32, u32)], is_match: bool) -> Arc<Filter> {
    let mut filter = Filter::boxed();
    filter.ipv4.write(&[rule(conditions, is_match)], !is_match).unwrap();
    filter.ipv6.write(&[rule(conditions, is_match)], !is_match).unwrap();
    filter.non_ip.write(&[], !is_match).unwrap();
    filter.unreadable.write(&[], true).unwrap();
    Arc::from(filter)
}

/// Filter that only looks at the frame.
fn of_frames(mask: u32, value: u32) -> Arc<Filter> {
    let mut filter = Filter::boxed();
    let conditions = [(FRAME, mask, value)];
    filter.ipv4.write(&[rule(&conditions, true)], false).unwrap();
    filter.ipv6.write(&[rule(&conditions, true)], false).unwrap();
    filter.non_ip.write(&[rule(&conditions, true)], false).unwrap();
    filter.unreadable.write(&[rule(&conditions, true)], false).unwrap();
    Arc::from(filter)
}

/// Filter with as many rules as fit, of addresses that packets have, with either verdict.
fn of_sources(frames: &[OwnedFrame]) -> Arc<Filter> {
    let sources = frames.iter().filter(|frame| frame.bytes.get(12..15) == Some(&[8, 0, 0x45]));
    let rules: Vec<MatchRule<IPV4_WORDS>> = sources
        .filter_map(|frame| frame.bytes.get(26..30)?.first_chunk())
        .take(MAX_RULES)
        .enumerate()
        .map(|(number, source)| {
            let address = u32::from_be_bytes(*source);
            rule(&[(ADDRESSES, u32::MAX << (number % 32), address)], number % 3 > 0)
        })
        .collect();
    assert_eq!(rules.len(), MAX_RULES);
    let mut filter = Filter::boxed();
    filter.ipv4.write(&rules, false).unwrap();
    Arc::from(filter)
}

fn filters(frames: &[OwnedFrame]) -> [(&'static str, Arc<Filter>); 7] {
    let syn = (HAS_FLAGS | 2 << FLAGS_SHIFT, HAS_FLAGS | 2 << FLAGS_SHIFT);
    [
        ("TCP", of_ip(&[(PROTOCOL, 0xff << PROTOCOL_SHIFT, 6 << PROTOCOL_SHIFT)], true)),
        ("SYN", of_ip(&[(PROTOCOL, syn.0, syn.1)], true)),
        (
            "all but low ports",
            of_ip(&[(PROTOCOL, HAS_PORTS, HAS_PORTS), (PORTS, 0xfc00_0000, 0)], false),
        ),
        ("short frames", of_frames(LENGTH_MASK & !127, 0)),
        ("tagged frames", of_frames(TAGGED, TAGGED)),
        ("nothing", of_frames(0xf << 28, 0xf << 28)),
        ("sources", of_sources(frames)),
    ]
}

/// Returns rules as expressions lead to: fields are only compared of packets that have them.
fn random_rules<const WORDS: usize>(rng: &mut impl Rng) -> Vec<MatchRule<WORDS>> {
    let prefix =
        |rng: &mut ChaCha8Rng, bits: u32| -> (u32, u32) { (u32::MAX << (32 - bits), rng.random()) };
    let mut rng = ChaCha8Rng::seed_from_u64(rng.random());
    let rng = &mut rng;
    let of_rule = |_| {
        let mut conditions = Vec::new();
        if rng.random_bool(0.2) {
            let id = if rng.random_bool(0.5) { 100 } else { rng.random_range(0..4096) };
            let mask = [0, 0xfff << VLAN_SHIFT, 1 << VLAN_SHIFT][rng.random_range(0..3)];
            conditions.extend([(FRAME, TAGGED, TAGGED), (FRAME, mask, id << VLAN_SHIFT)]);
        }
        if WORDS > ADDRESSES {
            if rng.random_bool(0.4) {
                let protocol = [1, 6, 17, 58, 132, 136][rng.random_range(0..6)];
                conditions.push((PROTOCOL, 0xff << PROTOCOL_SHIFT, protocol << PROTOCOL_SHIFT));
            }
            if rng.random_bool(0.4) {
                let (mask, ports) = prefix(rng, 3);
                let (mask, ports) = if rng.random() { (mask, ports) } else { (mask >> 16, ports) };
                conditions.extend([(PROTOCOL, HAS_PORTS, HAS_PORTS), (PORTS, mask, ports)]);
            }
            if rng.random_bool(0.2) {
                let flag = 1 << rng.random_range(FLAGS_SHIFT..FLAGS_SHIFT + 8);
                let wanted = if rng.random() { flag } else { 0 };
                conditions.extend([(PROTOCOL, HAS_FLAGS, HAS_FLAGS), (PROTOCOL, flag, wanted)]);
            }
            if rng.random_bool(0.4) {
                let (mask, address) = prefix(rng, 2);
                conditions.push((rng.random_range(ADDRESSES..WORDS), mask, address));
            }
        }
        rule(&conditions, rng.random())
    };
    (0..12).map(of_rule).collect()
}

fn random_filter(rng: &mut impl Rng) -> Arc<Filter> {
    let mut filter = Filter::boxed();
    filter.ipv4.write(&random_rules(rng), rng.random()).unwrap();
    filter.ipv6.write(&random_rules(rng), rng.random()).unwrap();
    filter.non_ip.write(&random_rules(rng), rng.random()).unwrap();
    filter.unreadable.write(&[], rng.random()).unwrap();
    Arc::from(filter)
}

/// Ordered rules over all fields that packets have, with either verdict.
pub fn every_field_and_verdict(backend: &dyn Backend) {
    let cut = cut_everywhere(&kinds());
    let short = cut.iter().map(|frame| OwnedFrame::ethernet(frame.bytes.clone())).collect();
    let mut frames = backend.possible([random(SEED, 4000), kinds(), cut, short].concat());
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let (number, keys) = if backend.breadth() == Breadth::Few {
        // Where each frame is a call of the kernel, and each start loads its programs.
        frames = frames.into_iter().step_by(extent(5, 1)).collect();
        (4, extent(1, 4))
    } else {
        (30, 4)
    };
    let filters: Vec<Arc<Filter>> = (0..number).map(|_| random_filter(&mut rng)).collect();
    let mut counted = 0;
    for (first, key) in KeyKind::ALL.into_iter().enumerate().take(keys) {
        let setup = Setup::with(|cardinality| cardinality.key = key);
        let mut rig: Option<Rig> = None;
        for (index, filter) in filters.iter().enumerate().skip(first).step_by(keys) {
            let is_set = match &mut rig {
                None => {
                    rig = start(backend, &setup, Some(Arc::clone(filter)));
                    rig.is_some()
                }
                Some(rig) => {
                    let changed = rig.dataplane.set_filter(Some(filter));
                    rig.rotate();
                    is_taken(backend, rig, changed, Some(filter))
                }
            };
            if let Some(rig) = rig.as_mut().filter(|_| is_set) {
                compare(rig, &setup, filter, &frames, &format!("filter {index}"));
            }
            let matching = |frame: &&OwnedFrame| is_match(filter, setup.settings.headers, frame);
            counted += frames.iter().filter(matching).count();
        }
    }
    // Neither verdict is rare.
    let all = frames.len() * number;
    assert!((all / 10..all * 9 / 10).contains(&counted), "{counted} of {all}");
}

fn is_match(filter: &Filter, headers: parse::Settings, frame: &OwnedFrame) -> bool {
    filter.matches(headers, frame.link, frame.bytes.as_slice(), frame.wire_length)
}

/// Starts a dataplane with a filter; `None` if it has none.
fn start(backend: &dyn Backend, setup: &Setup, filter: Option<Arc<Filter>>) -> Option<Rig> {
    let mut rig = backend.open(&Setup { filters: true, ..*setup })?;
    if rig.dataplane.capabilities().check(&setup.settings).is_err() {
        return None;
    }
    let installed = rig.dataplane.install(&setup.tables().with_filter(filter.clone()));
    is_taken(backend, &rig, installed.map(drop), filter.as_ref()).then_some(rig)
}

/// Returns whether a dataplane took a filter, and panics if it refused one that it should take.
fn is_taken(
    backend: &dyn Backend,
    rig: &Rig,
    result: Result<(), Error>,
    filter: Option<&Arc<Filter>>,
) -> bool {
    let capabilities = rig.dataplane.capabilities();
    match result {
        Err(Error::Unsupported { backend: refusing, what, .. }) => {
            assert_eq!(refusing, capabilities.backend);
            let is_refused = |filter: &Arc<Filter>| !capabilities.filter || backend.refuses(filter);
            assert!(filter.is_some_and(is_refused), "{what}");
            not_for_this_backend(format_args!("a filter: {what}"));
            false
        }
        result => {
            result.unwrap();
            assert!(filter.is_none() || capabilities.filter);
            true
        }
    }
}

/// Compares a window of a dataplane that was just started with one of the matching frames alone.
fn check(
    backend: &dyn Backend,
    setup: &Setup,
    filter: &Arc<Filter>,
    frames: &[OwnedFrame],
    what: &str,
) {
    if let Some(mut rig) = start(backend, setup, Some(Arc::clone(filter))) {
        compare(&mut rig, setup, filter, frames, what);
    }
}

/// Compares two windows with one of the frames alone that match the current filter.
fn compare(rig: &mut Rig, setup: &Setup, filter: &Filter, frames: &[OwnedFrame], what: &str) {
    let headers = setup.settings.headers;
    let (matching, others): (Vec<OwnedFrame>, Vec<OwnedFrame>) =
        frames.iter().cloned().partition(|frame| is_match(filter, headers, frame));
    rig.feed(frames);
    let window = rig.rotate();
    let mut expected = setup.model().expect(&matching);
    expected.counters.unmatched = others.len() as u64;
    expected.counters.unmatched_bytes =
        others.iter().map(|frame| u64::from(frame.wire_length)).sum();
    assert_same(&window, &expected, what);
    assert_eq!(window.bank.counters.seen(), frames.len() as u64, "{what}");
    // Every bank has the filter.
    rig.feed(frames);
    assert_same(&rig.rotate(), &expected, what);
}

pub fn matching_frames_are_counted_as_if_there_were_no_others(backend: &dyn Backend) {
    let all = [random(SEED, 4000), kinds(), cut_everywhere(&kinds()), other_links()].concat();
    let frames = backend.possible(all);
    for (number, (name, filter)) in filters(&random(SEED, 4000)).into_iter().enumerate() {
        let breadth = backend.breadth();
        if breadth == Breadth::Few && number > 1 {
            break;
        }
        let is_whole = breadth == Breadth::Combinations;
        let is_hashed = |hash: &usize| is_whole || number % HashMode::ALL.len() == *hash;
        for hash in (0..HashMode::ALL.len()).filter(is_hashed).map(|hash| HashMode::ALL[hash]) {
            let key = KeyKind::ALL[number % 4];
            let setup = Setup::with(|cardinality| cardinality.key = key).with_hash(hash);
            check(backend, &setup, &filter, &frames, &format!("{name}, {}", hash.name()));
        }
        if !is_whole && number > 0 {
            continue;
        }
        // Other measurements, which are not counted in batches.
        let mut setup = Setup::default();
        setup.settings.heavy =
            heavy::Settings { algorithm: Algorithm::Precision, ..heavy::Settings::default() };
        check(backend, &setup, &filter, &frames, name);
        setup = Setup::default();
        setup.settings.headers = parse::Settings::INNER;
        check(backend, &setup, &filter, &frames, &format!("{name}, inner headers"));
    }
}

/// Builds packet `number`: of IPv4 if it is even, else of IPv6.
fn alternating(number: u64) -> OwnedFrame {
    if number.is_multiple_of(2) {
        return unique(number);
    }
    let mut frame = vec![0; 60];
    frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
    frame[20] = 59;
    OwnedFrame::ethernet(frame)
}

/// Under traffic, all packets of a window pass one filter: that which was set before the window
/// began.
pub fn a_filter_changes_between_two_windows(backend: &dyn Backend) {
    let setup = Setup::default();
    let (mut v4, mut v6) = (Filter::boxed(), Filter::boxed());
    v4.ipv4.write(&[], true).unwrap();
    v6.ipv6.write(&[], true).unwrap();
    let filters: [Option<Arc<Filter>>; 3] = [None, Some(Arc::from(v4)), Some(Arc::from(v6))];
    // The kernel has no code for filters in a run that begins without.
    let mut current = 1;
    let Some(mut rig) = start(backend, &setup, filters[current].clone()) else { return };
    let traffic = Traffic::start(&rig.feeder, |numbers| numbers.map(alternating).collect());
    let (mut seen, mut unmatched, mut filled) = (0, 0, [0; 3]);
    let mut rotations = 0;
    while rotations < backend.rotations().min(300) || filled.iter().any(|windows| *windows < 20) {
        // At times the same for two windows, so that each filter meets each bank.
        let next = (rotations / 2 % 3) as usize;
        rig.dataplane.set_filter(filters[next].as_ref()).unwrap();
        let counters = rig.rotate().bank.counters;
        let left_out = [counters.unmatched, counters.ipv6, counters.ipv4][current];
        assert_eq!(left_out, 0, "filter {current}: {counters:?}");
        seen += counters.seen();
        unmatched += counters.unmatched;
        filled[current] += u64::from(counters.packets() > 0);
        current = next;
        rotations += 1;
    }
    let sent = traffic.stop();
    seen += rig.rotate().bank.counters.seen();
    assert_eq!(seen, sent);
    assert!(unmatched > 0);
}
