//! Entropy, frequencies, membership, heavy hitters and the alarm in `flowgauge replay`.

use crate::common::{
    Outcome, SECOND, START, Scratch, assert_has, csv_rows, float, frames, generated, list, number,
    numbers, of_kind, packets, parse, pcap, records, replay, sources, text, total,
};
use flowgauge_core::hash::crc32;
use flowgauge_core::{Entropy, Grid, SharedSketch, Sharing, SketchKind, Tabulation};
use flowgauge_dataplane::capture::build::CapturePacket;
use flowgauge_traffic::frame::{Ip, UDP};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const EVERYTHING: &str = "--measure cardinality,entropy,frequency,membership,heavy";

/// Writes three seconds of these.
fn skewed(scratch: &Scratch) -> String {
    scratch.write("skewed.pcap", pcap(&packets(sources().repeat(3), 1_000_000)))
}

/// Returns the entropy that a worker computes for these packets with the default sketch.
fn counted() -> f64 {
    let (sketch, mut entropy, tabulation) =
        (SharedSketch::new(), Entropy::default(), Box::new(Tabulation::from_seed(1)));
    for source in sources() {
        let crc = crc32(&source.to_be_bytes());
        entropy.update(
            &sketch,
            Sharing::Alone,
            SketchKind::CountSketch,
            Grid::COUNTERS,
            crc,
            &tabulation,
        );
    }
    1000.0_f64.log2() - entropy.sum as f64 / 1024.0 / 1000.0
}

fn exact() -> f64 {
    let mut counts = BTreeMap::<u32, f64>::new();
    sources().into_iter().for_each(|source| *counts.entry(source).or_default() += 1.0);
    1000.0_f64.log2() - counts.values().map(|count| count * count.log2()).sum::<f64>() / 1000.0
}

fn within(value: &Value, estimate: &str) {
    let [low, estimate, high] = ["low", estimate, "high"].map(|key| float(value, key));
    assert!(low <= estimate && estimate <= high, "{value}");
}

#[test]
fn every_measurement_is_in_the_json_with_bounds() {
    let scratch = Scratch::new("everything");
    let options = format!(
        "{EVERYTHING} --key src --query 10.0.0.1 --query 10.0.0.250 --window 1s --sample-every never --truth --top 3 --algorithm space-saving"
    );
    let records = records(skewed(&scratch), &options);
    let windows = of_kind(&records, "window");
    assert_eq!(windows.len(), 3);
    let sent = sources().into_iter().filter(|source| *source == 0x0a00_0001).count() as u64;
    for window in windows {
        let entropy = &window["entropy"]["src"];
        within(entropy, "bits");
        let [bits, truth, normalised] =
            ["bits", "truth", "normalised"].map(|key| float(entropy, key));
        // Deterministic. In windows this small, derivatives instead of differences would be off by
        // two percent.
        assert!((bits - counted()).abs() < 1e-9, "{entropy}, not {}", counted());
        assert!((truth - exact()).abs() < 1e-9, "{entropy}, not {}", exact());
        assert!((0.0..=1.0).contains(&normalised));
        assert_eq!(numbers(entropy, ["rows", "columns"]), [4, 1024]);
        assert_eq!(text(entropy, "sketch"), "count-sketch");

        let frequency = &window["frequency"];
        assert_eq!((text(frequency, "key"), text(frequency, "sketch")), ("src", "count-min"));
        let [asked, unknown] = list(frequency, "flows") else { panic!("{frequency}") };
        within(asked, "packets");
        assert_eq!((text(asked, "flow"), float(asked, "packets")), ("10.0.0.1", sent as f64));
        assert_eq!(float(unknown, "packets"), 0.0);

        let seen = |index: usize| &window["membership"]["flows"][index]["seen"];
        assert_eq!((seen(0), seen(1)), (&Value::Bool(true), &Value::Bool(false)));
        // Each of the hundred has set at most one bit of each row.
        let false_positive = float(&window["membership"], "false_positive");
        assert!(false_positive <= (100.0_f64 / 65_536.0).powi(4));

        let heavy = &window["heavy"];
        let words = ["algorithm", "unit"].map(|key| text(heavy, key));
        assert_eq!((words, number(heavy, "total")), (["space-saving", "packets"], 1000));
        let flows = list(heavy, "flows");
        assert_eq!(flows.len(), 3);
        assert_eq!((text(&flows[0], "flow"), number(&flows[0], "count")), ("10.0.0.1", sent));
        flows.iter().for_each(|flow| within(flow, "count"));
    }
    let total = total(&records);
    assert_eq!(number(&total["heavy"]["flows"][0], "count"), 3 * sent);
    assert_eq!(float(&total["frequency"]["flows"][0], "packets"), (3 * sent) as f64);
    assert!(total.get("entropy").is_none(), "entropies do not add up");
}

#[test]
fn a_flow_that_the_filter_has_not_seen_has_no_packets() {
    let scratch = Scratch::new("not-seen");
    let file = skewed(&scratch);
    // A hundred flows share sixteen counters, so that the sketch alone finds packets of any flow.
    let options = "--sketch frequency=count-min:1x16 --query 10.0.0.1 --query 10.0.0.250 --key src";
    let asked = |measure: &str| {
        let records = records(&file, &format!("--measure {measure} {options}"));
        list(&total(&records)["frequency"], "flows").to_vec()
    };
    let alone = asked("frequency");
    assert!(float(&alone[1], "packets") > 0.0, "{alone:?}");
    let both = asked("frequency,membership");
    assert_eq!(both[0], alone[0]);
    let nothing = json!({
        "flow": "10.0.0.250", "seen": false, "packets": 0.0, "low": 0.0, "high": 0.0, "confidence": 1.0
    });
    assert_eq!(both[1], nothing);
    // The filter knows other flows.
    let other_key = asked("frequency,membership --key membership=dst");
    assert_eq!(other_key, alone);

    let table = replay(&file, &format!("--measure frequency,membership {options}")).quiet();
    let not_seen = |line: &str| line.contains("query 10.0.0.250") && line.contains("not seen");
    // Both measurements say so, in each row.
    let lines = table.lines().filter(|line| line.contains("query 10.0.0.250")).count();
    assert!(lines > 1 && table.lines().filter(|line| not_seen(line)).count() == lines, "{table}");
}

#[test]
fn what_is_off_has_no_key() {
    let scratch = Scratch::new("off");
    let records = records(skewed(&scratch), "");
    for key in ["entropy", "frequency", "membership", "heavy", "alarm"] {
        assert!(records.iter().all(|record| record.get(key).is_none()), "{key}");
    }
}

#[test]
fn each_measurement_has_its_key_and_entropy_two() {
    let scratch = Scratch::new("keys");
    let file = skewed(&scratch);
    let keys = "dst,entropy=src+dst,heavy=five-tuple,frequency=src-dst";
    let keyed = records(&file, &format!("{EVERYTHING} --key {keys}"));
    let total = total(&keyed);
    let of = |measurement: &str| text(&total[measurement], "key").to_owned();
    let keys = ["cardinality", "frequency", "membership", "heavy"].map(of);
    assert_eq!(keys, ["dst", "src-dst", "dst", "five-tuple"]);
    let entropies = keyed[0]["entropy"].as_object().unwrap();
    assert_eq!(entropies.keys().collect::<Vec<_>>(), ["dst", "src"]);
    assert_eq!(float(&entropies["dst"], "bits").round(), 0.0);
    let by_default = records(&file, EVERYTHING);
    assert!(by_default[0]["entropy"]["src-dst"].is_object());
}

#[test]
fn tables_and_csv_show_them() {
    let scratch = Scratch::new("shown");
    let file = skewed(&scratch);
    let options = format!(
        "{EVERYTHING} --window 1s --sample-every never --query 10.0.0.7 --top 2 --truth --key src"
    );
    let table = replay(&file, &options).quiet();
    assert_has(&table, &["entropy of sources ", "truth ", "10.0.0.1 "]);
    assert_has(&table, &["query 10.0.0.7 ", "false-positive probability"]);
    let csv = replay(&file, &format!("{options} --format csv")).quiet();
    for row in csv_rows(&csv) {
        assert_eq!((row["entropy_key"], row["heaviest"]), ("src", "10.0.0.1"));
        assert!((row["entropy_bits"].parse::<f64>().unwrap() - counted()).abs() < 1e-9);
    }
}

/// Returns a packet from a source to a destination.
fn packet(time: u64, source: u32, destination: u32) -> CapturePacket {
    let ip = Ip::new(source.to_be_bytes(), destination.to_be_bytes(), UDP);
    CapturePacket::new(START + time, ip.frame(&frames::udp(&[0; 4])))
}

/// Returns a second of 1,000 packets from 50 sources to 50 destinations, followed by a flood from
/// everywhere to 192.0.2.1.
fn second(number: u64, flood: u64) -> impl Iterator<Item = CapturePacket> {
    let usual = (0..1000_u64).map(move |i| {
        // Different in every second.
        let mixed = (number * 1000 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let (source, destination) =
            (0x0a00_0000 + (mixed % 50) as u32, 0x0b00_0000 + (mixed / 50 % 50) as u32);
        packet(number * SECOND + i * 500_000, source, destination)
    });
    let flooding = (0..flood).map(move |i| {
        let source = ((number * 10_000 + i) as u32).wrapping_mul(0x9e37_79b1);
        packet(number * SECOND + 600_000_000 + i * 100_000, source, 0xc000_0201)
    });
    usual.chain(flooding)
}

/// Writes a minute, with a flood in second 50.
pub(crate) fn flooded(scratch: &Scratch) -> String {
    let trace: Vec<CapturePacket> =
        (0..60).flat_map(|number| second(number, if number == 50 { 400 } else { 0 })).collect();
    scratch.write("flood.pcap", pcap(&trace))
}

const BY_SECOND: &str = "--alarm --window 1s --sample-every never --format json";

#[test]
fn a_flood_raises_the_alarm_in_its_window_and_names_its_victim() {
    let scratch = Scratch::new("flood");
    let outcome = replay(flooded(&scratch), BY_SECOND);
    let (raised, windows) = watched(&outcome);
    assert_eq!(raised, [50]);
    let [begin, end] = warnings(&outcome);
    let victim = "destinations that receive more than usual: 192.0.2.1 (400 packets, usually 0); the entropy of src";
    let attack = "window 50: this looks like a distributed denial-of-service attack";
    assert_has(&begin, &[attack, victim]);
    let expected = json!({
        "key": "dst", "unit": "packets",
        "flows": [{ "flow": "192.0.2.1", "usual": 0, "count": 400 }],
    });
    let talkers = &windows[50]["alarm"]["talkers"];
    assert_eq!(talkers, &expected, "only the victim has far more than usual");
    assert!(windows[51]["alarm"].get("talkers").is_none(), "{}", windows[51]);
    assert_eq!(windows[50]["heavy"]["key"], Value::from("dst"), "the victim is named by default");
    let over =
        "window 51: entropies are as usual again, after 1 window with an alarm since window 50";
    assert!(end.ends_with(over), "{end}");
    let [usual, after] = [50, 51].map(|window: usize| &windows[window]["alarm"]["usual"]);
    assert!(usual.is_object(), "{usual}");
    assert_eq!(usual, after, "an attack does not become usual");
}

#[test]
fn an_explicit_key_names_the_flows_of_an_attack_by_it() {
    let scratch = Scratch::new("flood-keys");
    let file = flooded(&scratch);
    for (key, expected) in [
        ("--key src", "sources that send more than usual: "),
        ("--key heavy=src-dst", "flows that are larger than usual: "),
    ] {
        let outcome = replay(&file, &format!("{BY_SECOND} {key}")).ended(0);
        let [begin, _] = warnings(&outcome);
        assert!(begin.contains(expected), "{key}: {begin}");
    }
}

/// Returns the warnings: start and end of an attack.
fn warnings(outcome: &Outcome) -> [String; 2] {
    let lines: Vec<String> =
        outcome.stderr.lines().filter(|line| line.contains("WARN")).map(str::to_owned).collect();
    lines.try_into().unwrap_or_else(|lines| panic!("{lines:?}"))
}

/// Returns the windows that raised the alarm, and all windows.
fn watched(outcome: &Outcome) -> (Vec<u64>, Vec<Value>) {
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let windows: Vec<Value> =
        of_kind(&parse(&outcome.stdout), "window").into_iter().cloned().collect();
    let raised = windows.iter().filter(|window| window["alarm"]["raised"] == Value::Bool(true));
    (raised.map(|window| number(window, "window")).collect(), windows)
}

/// Writes 55 s with an attack that begins at second 45.
fn attacked(scratch: &Scratch) -> String {
    let profile = "attack,rate=2k,packets=110k,share=0.2,every=50s,lasting=5s";
    generated(scratch, "attack.pcap", profile)
}

#[test]
fn a_generated_attack_raises_the_alarm_in_its_windows_and_in_no_other() {
    let scratch = Scratch::new("attack");
    let outcome = replay(attacked(&scratch), &format!("{BY_SECOND} --key heavy=dst"));
    let (raised, windows) = watched(&outcome);
    assert_eq!(raised, [45, 46, 47, 48, 49]);
    for window in &windows {
        let is_judged = number(window, "window") >= 30;
        assert_eq!(window["alarm"]["judged"], is_judged, "it learns from 30 windows: {window}");
    }
    let reasons = [29, 30].map(|window: usize| &windows[window]["alarm"]["reason"]);
    assert_eq!(reasons, [&Value::from("learning"), &Value::Null]);
    // There is a warning for one of the five windows, and for the first one after them.
    let [begin, end] = warnings(&outcome);
    let victim = "destinations that receive more than usual: 10.0.0.2 (";
    assert_has(&begin, &["window 45: ", victim, " packets, usually 0); the entropy of src"]);
    let over =
        "window 50: entropies are as usual again, after 5 windows with an alarm since window 45";
    assert!(end.ends_with(over), "{end}");
}

#[test]
fn an_alarm_without_a_length_of_windows_has_enough_of_them() {
    let scratch = Scratch::new("attack-length");
    let file = attacked(&scratch);
    let (raised, windows) = watched(&replay(&file, "--alarm --format json"));
    // 55 s in windows of 500 ms.
    assert_eq!(windows.len(), 110);
    assert!(raised.contains(&90), "{raised:?}");
    let outcome = replay(&file, "--alarm --format json --duration 12s");
    assert_eq!(watched(&outcome).1.len(), 120, "the length is that of the part that is counted");
}

#[test]
fn an_alarm_that_judges_no_window_says_so() {
    let scratch = Scratch::new("unjudged");
    let trace: Vec<CapturePacket> = (0..60).flat_map(|number| second(number, 0)).collect();
    let file = scratch.write("long.pcap", pcap(&trace));
    let outcome = replay(&file, "--alarm --window 4s --format json").ended(0);
    let expected = "the alarm judged none of 15 windows: 30 are needed to learn what is usual; choose a shorter --window";
    assert!(outcome.complaint().ends_with(expected), "{}", outcome.stderr);
}

#[test]
fn windows_of_few_packets_are_not_judged_and_it_is_said_why() {
    let scratch = Scratch::new("few");
    // A packet per second, and then one window with only a flood of 90.
    let few: Vec<CapturePacket> = (0..50_u64)
        .map(|number| packet(number * SECOND, 0x0a00_0001, 0x0a00_0002))
        .chain((0..90).map(|i| packet(50 * SECOND + i, 0x0b00_0000 + i as u32, 0x0a00_0002)))
        .collect();
    let file = scratch.write("few.pcap", pcap(&few));
    let outcome = replay(&file, BY_SECOND);
    let (raised, windows) = watched(&outcome);
    assert_eq!(raised, [0_u64; 0]);
    for window in windows {
        let alarm = ["reason", "judged", "least_packets"].map(|key| &window["alarm"][key]);
        assert_eq!(alarm, [&json!("too few packets"), &json!(false), &json!(100)], "{window}");
    }
    let printed: Vec<&str> =
        outcome.stderr.lines().filter(|line| line.contains("fewer than 100 packets")).collect();
    let [only] = printed[..] else { panic!("{}", outcome.stderr) };
    assert_has(only, &["(the last one 1 packet)"]);
}

#[test]
fn several_workers_give_the_answer_of_one() {
    const PACKETS: f64 = 20_000.0;
    let scratch = Scratch::new("workers");
    // More than a worker reads at a time.
    let file = scratch.write("long.pcap", pcap(&packets(sources().repeat(60), 1_000_000)));
    let bits = |workers: u32| {
        let options = "--measure entropy --key src --window 20s --sample-every never";
        let records = records(&file, &format!("{options} --workers {workers}"));
        let windows = of_kind(&records, "window").into_iter();
        windows.map(|window| float(&window["entropy"]["src"], "bits")).collect::<Vec<_>>()
    };
    // A worker that is interrupted between two counters of a packet, while others count the flow,
    // adds the increment of another packet of the flow: the sum is off by less than the increment
    // of the last packet. In 360 windows of 120 runs, half of them on one CPU, this amounted to at
    // most one per window (--nocapture prints it). Ten are allowed.
    let once = (PACKETS.log2() + 1.44) / PACKETS;
    let (one, four) = (bits(1), bits(4));
    assert_eq!((one.len(), four.len()), (3, 3));
    for (one, four) in one.into_iter().zip(four) {
        println!("{:+.2} times", (four - one) / once);
        assert!((four - one).abs() <= 10.0 * once, "{four} by four workers, {one} by one");
    }
}
