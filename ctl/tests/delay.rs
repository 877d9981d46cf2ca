//! Delays of generated traffic: adaptive admission shares, and metrics.

use crate::controller::{RecordSink, SECOND, intervals, plan, settings};
use crate::{Each, replaying, start_in_trace_time};
use flowgauge_core::Settings;
use flowgauge_core::cardinality::Mode;
use flowgauge_core::delay::{self, DelayKind as Delayed, Kinds};
use flowgauge_ctl::controller::{Plan, Sink};
use flowgauge_ctl::measurement::Estimation;
use flowgauge_ctl::measurement::delay::Delay;
use flowgauge_ctl::measurement::delay::estimate::PERCENTILES;
use flowgauge_ctl::output::{Metrics, proto};
use flowgauge_ctl::record::{Record, RecordKind};
use flowgauge_dataplane::capture::build::CapturePacket;
use flowgauge_dataplane::poll;
use flowgauge_testing::chance::binomial;
use flowgauge_testing::frames::pcap;
use flowgauge_traffic::frame;
use prost::Message;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const START: u64 = 1_700_000_000 * SECOND;
/// Ratio of the widths of two adjacent buckets of a native histogram.
const GROWTH: f64 = 1.044_273_782_427_413_8;
/// Half of the relative width of a range in which delays are counted.
const HALF: f64 = 1.0 / 64.0;
/// Index of the 95th percentile among 50, 90, 95, 99 and 99.9.
const P95: usize = 2;

/// Returns an echo request or its reply between a host of this number and a server.
fn echo(host: u32, sequence: u16, is_reply: bool) -> Vec<u8> {
    let (host, server) = ((0x0a00_0000 + host).to_be_bytes(), [192, 0, 2, 1]);
    let (from, to) = if is_reply { (server, host) } else { (host, server) };
    frame::echo(from, to, 0x0001_0000 | u32::from(sequence), is_reply)
}

/// Returns requests at these rates, second by second, with log-uniform delays from 1 to 100 ms, and
/// the sorted delays of the answers in each second.
fn traffic(seed: u64, rates: &[u64]) -> (Vec<CapturePacket>, Vec<Vec<u64>>) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut packets, mut delays) = (Vec::new(), vec![Vec::new(); rates.len() + 1]);
    let mut number = 0_u32;
    for (second, rate) in rates.iter().enumerate() {
        for index in 0..*rate {
            let at = second as u64 * SECOND + index * SECOND / rate;
            let delay = (1e6 * 100_f64.powf(random.random::<f64>())) as u64;
            packets.push((at, echo(number % 60_000, (number / 60_000) as u16, false)));
            packets.push((at + delay, echo(number % 60_000, (number / 60_000) as u16, true)));
            delays[((at + delay) / SECOND) as usize].push(delay);
            number += 1;
        }
    }
    packets.sort_by_key(|(at, _)| *at);
    delays.iter_mut().for_each(|delays| delays.sort_unstable());
    (packets.into_iter().map(|(at, bytes)| CapturePacket::new(START + at, bytes)).collect(), delays)
}

/// Returns the records of windows of one second, and of the total, with their banks, from which
/// metrics take the delays that were seen.
fn replay(capture: &[u8], follows: bool) -> RecordSink {
    let kinds = Kinds::NONE.with(Delayed::Icmp);
    let delay = delay::Settings { kinds, slots_log2: 6, follows, ..delay::Settings::DEFAULT };
    let settings = Settings { delay, ..settings(Mode::Off) };
    let poll = replaying(capture, 1, poll::Options { settings, ..poll::Options::default() });
    let mut options = Estimation::default();
    options.delay.tune = true;
    let plan = Plan { seed: 1, options, ..plan(intervals(SECOND, 0, 0)) };
    let mut records = Vec::new();
    let mut sink = Each(|record: &Record| {
        records.push(record.clone());
        Ok(())
    });
    start_in_trace_time(poll, plan).run(&mut sink).unwrap();
    RecordSink(records)
}

/// Returns the delay reports of windows of one second, and of the total.
fn replayed(capture: &[u8], follows: bool) -> (Vec<Delay>, Delay) {
    let kept = replay(capture, follows);
    let delays = |record: &Record| record.reports.delay.as_ref().unwrap().0[0].clone();
    let windows = kept.of(RecordKind::Window).map(delays).collect();
    (windows, kept.of(RecordKind::Total).map(delays).next().unwrap())
}

/// Returns the interval of the 95th percentile, if it is known.
fn p95(delay: &Delay) -> Option<(f64, f64)> {
    let percentile = delay.distribution.as_ref()?.corrected[P95];
    Some((percentile.low, percentile.high?))
}

#[test]
fn the_share_follows_a_rising_load() {
    let rates = [vec![256, 512, 1024, 2048, 4096, 8192], vec![16_384; 6], vec![512; 6]].concat();
    let (packets, truths) = traffic(7, &rates);
    let capture = pcap(&packets);
    let ((fixed, _), (auto, total)) = (replayed(&capture, false), replayed(&capture, true));
    let seconds = rates.len();
    let truth = |second: usize| truths[second][truths[second].len() * 95 / 100] as f64;
    let holds = |delays: &[Delay], second: usize| {
        p95(&delays[second]).is_some_and(|(low, high)| (low..=high).contains(&truth(second)))
    };
    let reported: Vec<_> = (0..seconds)
        .map(|second| {
            let (auto, fixed) = (&auto[second], &fixed[second]);
            (auto.settings.admit_log2, truth(second), p95(auto), p95(fixed), auto.suggested)
        })
        .collect();
    // At full load, 16,384 / 2 requests per second and 93 ms need 12 times as many slots.
    for second in 9..12 {
        assert_eq!(auto[second].settings.admit_log2, 4, "{reported:?}");
        assert!(holds(&auto, second), "{second}: {reported:?}");
        assert!(!holds(&fixed, second), "{second}: {reported:?}");
        assert_eq!(auto[second].suggested.unwrap().slots(), 1024, "{reported:?}");
    }
    // With any share, the reported intervals contain the truth as often as they claim.
    let bounded: Vec<usize> = (0..seconds).filter(|second| p95(&auto[*second]).is_some()).collect();
    let missed = bounded.iter().filter(|second| !holds(&auto, **second)).count() as u64;
    let most = *binomial(bounded.len() as u64, 0.05).end();
    assert!(missed <= most, "{missed} of {}: {reported:?}", bounded.len());
    // The share recovers step by step, starting two windows after the load has ended.
    let back: Vec<u8> = auto[12..18].iter().map(|delay| delay.settings.admit_log2).collect();
    let is_step = |pair: &[u8]| pair[1] <= pair[0] && pair[0] - pair[1] <= 1;
    assert!(back.windows(2).all(is_step) && back[5] < 4, "{reported:?}");
    // Windows of different shares add up to all requests, almost all of which were answered.
    let requests: u64 = rates.iter().sum();
    assert_eq!(total.counts.requests, requests);
    let answered = total.distribution.unwrap().answered;
    let interval = answered.low..=answered.high;
    assert!(interval.contains(&(requests as f64)), "{answered:?} of {requests}");
}

/// Returns the delays in the protobuf metrics.
fn reported(metrics: &Metrics) -> proto::Histogram {
    let bytes = metrics.protobuf();
    let (mut bytes, mut families) = (&bytes[..], Vec::new());
    while !bytes.is_empty() {
        families.push(proto::MetricFamily::decode_length_delimited(&mut bytes).unwrap());
    }
    let mut families = families.into_iter();
    let family = families.find(|family| family.name() == "flowgauge_delay_seen_seconds").unwrap();
    assert!(family.r#type() == proto::MetricType::Histogram && family.metric.len() == 1);
    let labels: Vec<_> =
        family.metric[0].label.iter().map(|label| (label.name(), label.value())).collect();
    assert_eq!(labels, [("source", "trace"), ("direction", "ingress"), ("kind", "icmp")]);
    family.metric[0].histogram.clone().unwrap()
}

/// Returns the upper bounds of native buckets with cumulative counts.
fn native(histogram: &proto::Histogram) -> Vec<(f64, u64)> {
    let (mut bucket, mut count, mut all) = (0, 0, histogram.zero_count());
    let mut deltas = histogram.positive_delta.iter();
    let mut buckets = vec![(histogram.zero_threshold(), all)];
    for span in &histogram.positive_span {
        bucket += span.offset();
        for _ in 0..span.length() {
            count += deltas.next().unwrap();
            all += count as u64;
            buckets.push((GROWTH.powi(bucket), all));
            bucket += 1;
        }
    }
    assert_eq!((histogram.schema(), deltas.next()), (4, None));
    buckets
}

#[test]
fn native_histograms_have_the_delays_that_were_seen() {
    let (packets, _) = traffic(11, &[3000, 5000, 4000]);
    let kept = replay(&pcap(&packets), false);
    let mut sum = Metrics::default();
    let (mut answers, mut before) = (0, Vec::<(f64, u64)>::new());
    for record in kept.of(RecordKind::Window) {
        let mut alone = Metrics::default();
        alone.record(record).unwrap();
        sum.record(record).unwrap();
        let delay = &record.reports.delay.as_ref().unwrap().0[0];
        answers += delay.answers();
        let (alone, all) = (native(&reported(&alone)), native(&reported(&sum)));
        assert_eq!(alone.last().unwrap().1, delay.answers());
        assert_eq!(all.last().unwrap().1, answers);
        // No count decreases.
        for (bound, count) in &all {
            let mut below = before.iter().take_while(|(high, _)| *high < bound * 1.001);
            assert!(below.all(|(_, before)| before <= count), "{all:?} after {before:?}");
        }
        before = all;
        // A percentile, found in its bucket as Prometheus does.
        let seen = PERCENTILES.into_iter().zip(delay.distribution.as_ref().unwrap().raw);
        for ((share, name), raw) in seen {
            let rank = share * delay.answers() as f64;
            let high = alone.iter().find(|(_, count)| *count as f64 >= rank).unwrap().0;
            // It is in a range whose middle is in that bucket.
            let (least, most) = (high / GROWTH * (1.0 - HALF), high * (1.0 + HALF));
            let is_in = least < raw / 1e9 && raw / 1e9 <= most;
            assert!(is_in, "{name}: {raw} ns, not from {least} to {most} s");
        }
    }
    // The text format has the same values in classic buckets.
    let (histogram, text) = (reported(&sum), sum.text());
    let value = |line: &str| {
        let found = text.lines().find_map(|it| it.strip_prefix(line));
        found.unwrap_or_else(|| panic!("no {line} in {text}")).trim().to_owned()
    };
    let series = "source=\"trace\",direction=\"ingress\",kind=\"icmp\"";
    let counts = [
        (format!("count{{{series}}}"), histogram.sample_count().to_string()),
        (format!("sum{{{series}}}"), histogram.sample_sum().to_string()),
    ];
    let buckets = histogram.bucket.iter().map(|bucket| {
        let line = format!("bucket{{{series},le=\"{}\"}}", bucket.upper_bound());
        (line, bucket.cumulative_count().to_string())
    });
    for (line, expected) in buckets.chain(counts) {
        assert_eq!(value(&format!("flowgauge_delay_seen_seconds_{line}")), expected, "{line}");
    }
}
