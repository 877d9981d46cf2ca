use super::*;
use crate::measurement::alarm::{Alarm, judge::Verdict};
use crate::measurement::cardinality::{Cardinality, estimate::Estimate};
use crate::measurement::entropy::{self, Entropies, Entropy};
use crate::measurement::frequency::{self, Frequency};
use crate::measurement::heavy::Heavy;
use crate::measurement::heavy::estimate::{Flow, Top};
use crate::measurement::membership::Membership;
use crate::measurement::{ExactValue, QueriedFlow, Reports, Sketched};
use flowgauge_core::Grid;
use flowgauge_core::heavy::{Algorithm, CountUnit};
use flowgauge_core::{Counters, FlowKey, HashIdentity, HashMode, KeyKind, SketchKind};
use flowgauge_dataplane::LossCause::{Capture, Device, DeviceError, NoBuffer, Socket};
use flowgauge_dataplane::Losses;

/// 2023-11-14, 22:13:20 UTC.
const START: u64 = 1_700_000_000_000_000_000;
const SECOND: u64 = 1_000_000_000;

fn hash() -> HashIdentity {
    HashIdentity::new(HashMode::Tabulated, 1)
}

/// Makes a window of a second without packets.
fn window(number: u64) -> Record {
    Record {
        kind: RecordKind::Window,
        window: number,
        start_ns: START + number * SECOND,
        end_ns: START + (number + 1) * SECOND,
        complete: true,
        backend: "poll",
        interface: "eth0".to_owned(),
        direction: "ingress",
        ..Record::default()
    }
}

/// Makes an entropy by a key with its exact value: bits, the ends of the interval, and the bits
/// normalised.
fn entropy_of(key: KeyKind, [bits, low, high, normalised]: [f64; 4], truth: f64) -> Entropy {
    let zero = entropy::estimate::Entropy::ZERO;
    let estimate = entropy::estimate::Entropy { bits, low, high, normalised, ..zero };
    Entropy { sketch: sketched(key), estimate, truth: Some(truth) }
}

fn sketched(key: KeyKind) -> Sketched {
    Sketched { key, kind: SketchKind::CountSketch, shape: Grid::COUNTERS, hash: hash() }
}

fn distinct(key: KeyKind, value: f64, truth: Option<u64>) -> Reports {
    let estimate = Estimate { value, low: value * 0.957, high: value * 1.045 };
    let (estimator, hash, levels) = ("ertl", hash(), vec![0; 2048]);
    let cardinality = Cardinality { key, estimate, estimator, truth, hash, levels };
    Reports { cardinality: Some(cardinality), ..Reports::default() }
}

/// Makes a record with everything that a table shows, and the largest numbers of a link: a terabit
/// per second for a window of an hour.
fn everything(key: KeyKind, part: bool, kind: RecordKind) -> Record {
    let flow = FlowKey::new(&match key {
        KeyKind::Src | KeyKind::Dst => vec![0x20; 16],
        KeyKind::SrcDst => vec![0x20; 32],
        KeyKind::FiveTuple => [vec![0x20; 36], vec![6]].concat(),
    });
    let packets = 5_357_142_857_142;
    let all = "enp3s0f0np0v123,enp3s0f1np1v123,enp4s0f0np0v123,enp4s0f1np1v123";
    let interfaces = if part { "enp3s0f0np0v123" } else { all };
    let (value, low, high) = (1e12, 9e11, 1.1e12);
    let (confidence, saturated) = (0.95, true);
    let answer = Some(frequency::estimate::Frequency { value, low, high, confidence, saturated });
    let (count, low, high) = (packets * 84, packets * 83, packets * 85);
    let heavy =
        Flow { key: flow, count, low, high, likely_high: Some(count + 1), stands_out: false };
    let mut drops = Losses::default();
    for cause in [Capture, Device, Socket, DeviceError, NoBuffer] {
        drops.add(cause, 123_456_789_012);
    }
    Record {
        kind,
        end_ns: START + 3_600 * SECOND,
        complete: false,
        interface: interfaces.to_owned(),
        direction: if part { "egress" } else { "both" },
        part,
        counters: Counters {
            bytes: packets * 84,
            ipv4: packets,
            ipv6: packets,
            non_ip: packets,
            truncated: packets,
            bad_header: 1,
            ..Counters::default()
        },
        drops,
        cpu_ns: Some(3_600 * SECOND),
        reports: Reports {
            entropy: Some(Entropies(vec![entropy_of(key, [23.456_7, 23.4, 23.5, 0.98], 23.4); 2])),
            frequency: Some(Frequency {
                sketch: sketched(key),
                flows: vec![QueriedFlow {
                    flow,
                    answer,
                    truth: ExactValue::Known(999_999_999_999),
                }],
                full_counters: 4,
            }),
            membership: Some(Membership {
                key,
                shape: Grid::BITS,
                hash: hash(),
                false_positive: 1e-9,
                flows: [true, false]
                    .map(|answer| QueriedFlow { flow, answer, truth: ExactValue::Known(false) })
                    .to_vec(),
            }),
            heavy: Some(Heavy {
                key,
                unit: CountUnit::Bytes,
                algorithm: Algorithm::Rap,
                slots: 1024,
                top: Top {
                    flows: vec![heavy; 3],
                    total: packets * 84,
                    absent: 0,
                    rest: packets * 84,
                },
                truth: ExactValue::TooMany,
            }),
            alarm: Some(Alarm {
                verdict: Verdict::Raised,
                usual: None,
                least: 100,
                talkers: None,
                spreaders: Vec::new(),
            }),
            ..distinct(key, 92_607_123_456.0, Some(94_114_123_456))
        },
        ..window(0)
    }
}

fn shown(look: TableStyle, records: &[Record]) -> String {
    let mut text = Vec::new();
    let mut table = Table::new(&mut text, look);
    records.iter().for_each(|record| table.record(record).unwrap());
    drop(table);
    String::from_utf8(text).unwrap()
}

fn utc() -> TableStyle {
    TableStyle { times: Times::Utc, ..TableStyle::default() }
}

#[test]
fn every_line_fits_whatever_is_measured() {
    let widths: [fn() -> usize; 5] = [|| 60, || 72, || 80, || 100, || 140];
    for (columns, width) in widths.map(|width| (width(), width)) {
        for key in KeyKind::ALL {
            let forms = [(Times::Elapsed, false), (Times::Utc, true), (Times::Local, false)];
            for (times, fine) in forms {
                for places in [false, true] {
                    let mut records = Vec::new();
                    for kind in [RecordKind::Sample, RecordKind::Window, RecordKind::Total] {
                        records.extend(places.then(|| everything(key, true, kind)));
                        records.push(everything(key, false, kind));
                    }
                    let without = everything(key, places, RecordKind::Window);
                    let reports = Reports { cardinality: None, ..without.reports.clone() };
                    records.push(Record { reports, ..without });
                    let text =
                        shown(TableStyle { width, times, fine, ..TableStyle::default() }, &records);
                    for line in text.lines() {
                        let length = line.chars().count();
                        assert!(length <= columns, "{columns}, {length}: {line}\n{text}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_window_is_a_line_of_figures() {
    let counters = Counters { bytes: 128_000_000, ipv4: 2_000_000, ..Counters::default() };
    let record = Record { counters, reports: distinct(KeyKind::Src, 92_607.0, None), ..window(0) };
    let text = shown(utc(), std::slice::from_ref(&record));
    let expected = "2023-11-14, times are UTC
    time window      packets packets/s   bits/s     distinct sources     lost
22:13:21      0    2,000,000    2.00 M   1.02 G      92,607 ± 4.5 %         0
";
    assert_eq!(text, expected);
    let truth =
        Record { reports: distinct(KeyKind::Src, 92_607.0, Some(94_114)), ..record.clone() };
    let text = shown(TableStyle::default(), std::slice::from_ref(&truth));
    let expected = "    time window      packets packets/s     distinct sources      truth    error
   1.00s      0    2,000,000    2.00 M      92,607 ± 4.5 %      94,114  -1.60 %
";
    assert_eq!(text, expected);
    let text = shown(TableStyle { width: || 140, ..TableStyle::default() }, &[truth]);
    assert!(text.contains(" 88,625 … 96,774 ") && text.contains("95 % interval"), "{text}");
}

#[test]
fn figures_that_mean_nothing_are_left_out() {
    let reports = |value, truth| distinct(KeyKind::FiveTuple, value, truth);
    let empty = Record { reports: reports(0.0, Some(0)), ..window(0) };
    let counters = Counters { bytes: 64, ipv4: 1, ..Counters::default() };
    let one = Record { counters, cpu_ns: Some(1049), reports: reports(1.0, Some(1)), ..window(1) };
    // A sample at the very start of a window has no rate.
    let read = Record { kind: RecordKind::Sample, end_ns: START + SECOND, ..one.clone() };
    let wrong = Record { reports: reports(5_000_000.0, Some(1)), ..window(2) };
    let total = Record { kind: RecordKind::Total, start_ns: START, ..one.clone() };
    for times in [Times::Elapsed, Times::Utc] {
        let text = shown(
            TableStyle { times, ..TableStyle::default() },
            &[empty.clone(), one.clone(), read.clone(), wrong.clone(), total.clone()],
        );
        for nonsense in ["inf", "NaN", "1 packets", "flows", "-0", "CPU", "1 bytes"] {
            assert!(!text.contains(nonsense), "{nonsense}: {text}");
        }
        for line in
            ["1 packet in 2.00 s, 64 bytes", "1 distinct five-tuple (", "1 IPv4, 0 IPv6, none lost"]
        {
            assert!(text.contains(line), "no {line}: {text}");
        }
    }
    // Four packets within a microsecond are not gigabits per second.
    let burst = Record { end_ns: total.start_ns + 1000, ..total };
    assert!(!shown(TableStyle::default(), &[burst]).contains("/s"));
    // The entropy of one flow is 0.
    let entropy = entropy_of(KeyKind::Src, [0.004, 0.0, 0.01, 0.0], 0.0);
    let entropy = Some(Entropies(vec![entropy]));
    let reports = Reports { entropy, ..one.reports.clone() };
    let text = shown(TableStyle::default(), &[Record { reports, ..one }]);
    assert!(text.contains("truth 0.000 (error +0.004 bits)"), "{text}");
}

#[test]
fn the_cost_of_a_packet_is_shown_where_workers_had_work() {
    let total = |packets: u64, times| {
        let counters = Counters { ipv4: packets, ..Counters::default() };
        let (kind, end_ns, cpu_ns) = (RecordKind::Total, START + 10 * SECOND, Some(SECOND));
        let record = Record { kind, counters, end_ns, cpu_ns, ..window(0) };
        shown(TableStyle { times, ..TableStyle::default() }, &[record])
    };
    let shown = total(2_000_000, Times::Local);
    assert!(!shown.contains("CPU"), "200,000 a second: the worker mostly woke up");
    assert!(total(20_000_000, Times::Local).contains("50.0 ns of CPU a packet, 10.0 % of a CPU"));
    assert!(total(2_000_000, Times::Elapsed).contains("500.0 ns of CPU a packet\n"));
    assert!(!total(1000, Times::Elapsed).contains("CPU"));
}

#[test]
fn losses_and_alarms_are_red_where_colours_are_asked_for() {
    let record = everything(KeyKind::Src, false, RecordKind::Window);
    let plain = shown(TableStyle::default(), std::slice::from_ref(&record));
    assert!(!plain.contains('\u{1b}'), "{plain}");
    for words in ["LOST ", "device 123,456,789,012", "ALARM"] {
        assert!(plain.contains(words), "no {words}: {plain}");
    }
    let look = TableStyle { colours: true, ..TableStyle::default() };
    let coloured = shown(look.clone(), std::slice::from_ref(&record));
    assert!(coloured.contains("\u{1b}[31m    LOST "), "{coloured}");
    assert!(coloured.contains("\u{1b}[1m\u{1b}[31m    ALARM"), "{coloured}");
    let reports = Reports { alarm: None, ..record.reports.clone() };
    let healthy = Record { drops: Losses::default(), reports, ..record };
    assert!(!shown(look, &[healthy]).contains('\u{1b}'));
}

#[test]
fn names_from_outside_cannot_command_the_terminal() {
    let interface = "eth0\u{1b}[2J\u{202e}\n".to_owned();
    let records =
        [true, false].map(|part| Record { interface: interface.clone(), part, ..window(0) });
    let totals = records.clone().map(|record| Record { kind: RecordKind::Total, ..record });
    let text =
        shown(TableStyle { width: || 140, ..TableStyle::default() }, &[records, totals].concat());
    assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text}");
    assert!(text.contains("\neth0\\u{1b}[2J\\u{202e}\\n in\n"), "{text}");
    assert!(text.contains("\\n in"), "{text}");
}

#[test]
fn names_of_a_lake_cannot_command_the_terminal() {
    let name = "paris\u{1b}[2J\u{202e}\n".to_owned();
    let united = United { missing: vec![(name, SECOND)], ..United::default() };
    let union = Record { kind: RecordKind::Union, united: Some(united), ..window(0) };
    let text = shown(TableStyle::default(), &[union]);
    assert!(text.contains("paris") && !text.contains(['\u{1b}', '\u{202e}']), "{text}");
    assert!(text.lines().any(|line| line.contains("paris") && line.contains("missing")), "{text}");
}

#[test]
fn a_new_day_has_a_line_of_its_own() {
    let hour = |number: u64| Record { end_ns: START + number * 3_600 * SECOND, ..window(0) };
    let text = shown(utc(), &[hour(0), hour(1), hour(2), hour(3)]);
    let days: Vec<&str> = text.lines().filter(|line| line.contains("times are UTC")).collect();
    assert_eq!(days, ["2023-11-14, times are UTC", "2023-11-15, times are UTC"], "{text}");
    let offset = |seconds| format_utc_offset(Offset::from_seconds(seconds).unwrap());
    assert_eq!([3_600, -12_600, 20_700].map(offset), ["+1", "-3:30", "+5:45"]);
}

#[test]
fn a_header_is_always_near() {
    let text = shown(TableStyle::default(), &(0..100).map(window).collect::<Vec<_>>());
    assert_eq!(text.lines().filter(|line| line.contains("window")).count(), 4);
    let mut heavy = everything(KeyKind::Src, false, RecordKind::Window);
    heavy.reports.alarm = None;
    let text = shown(TableStyle::default(), &vec![heavy; 10]);
    let mut since = 0;
    for line in text.lines() {
        since = if line.contains("window") { 0 } else { since + 1 };
        assert!(since < 2 * HEADER_EVERY, "{text}");
    }
}

#[test]
fn times_since_the_start_stay_short() {
    let times =
        [0, 450 * SECOND / 1000, 9_999 * SECOND, 36_000 * SECOND, 400_000 * SECOND, u64::MAX];
    let expected = ["0.00s", "0.45s", "9999.00s", "10h00m00", "4d15h", "213503d23h"];
    assert_eq!(times.map(elapsed), expected);
}
