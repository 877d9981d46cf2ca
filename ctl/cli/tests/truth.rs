//! Exact values of `--truth` beside estimates: they are those that a generator knows.

use crate::common::{
    Scratch, assert_has, csv_rows, float, list, number, numbers, of_kind, packets, pcap, records,
    replay, sources, text, with_truth,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Cells of a line of CSV by their columns.
type Row<'a> = BTreeMap<&'a str, &'a str>;

/// Replays into one window with exact values, and returns it.
fn only_window(file: &str, options: &str) -> Value {
    let all = records(file, &format!("--window 1h --sample-every never --truth {options}"));
    let [window] = of_kind(&all, "window")[..] else { panic!("{all:?}") };
    window.clone()
}

/// Returns the requests of these lines and their delays in ascending order.
fn delays<'a>(lines: impl Iterator<Item = &'a Row<'a>>) -> (u64, Vec<u64>) {
    let (mut requests, mut delays) = (0, Vec::new());
    for line in lines {
        requests += 1;
        let time = |name: &str| line[name].parse::<u64>().ok();
        delays.extend(time("response_ns").map(|response| response - time("request_ns").unwrap()));
    }
    delays.sort_unstable();
    (requests, delays)
}

const KINDS: &str = "tcp-handshake,tcp-data,dns,tcp-duration,tcp-timestamps";

#[test]
fn delays_are_those_of_the_generator_however_small_the_table() {
    let scratch = Scratch::new("truth-delays");
    for profile in [
        "delay,shape=conversations,requests=20k,timestamps",
        "delay,shape=conversations,requests=20k,ipv6,vlan=4,loss=0.02,timestamps,seed=3",
    ] {
        let (capture, csv) = with_truth(&scratch, profile);
        let printed = csv_rows(&csv);
        let options = format!("--measure delay --delay {KINDS} --delay-slots 64");
        let window = only_window(&capture, &options);
        let measured = list(&window, "delay");
        assert_eq!(measured.len(), KINDS.split(',').count());
        for delay in measured {
            let (kind, truth) = (text(delay, "kind"), &delay["truth"]);
            let (requests, delays) = delays(printed.iter().filter(|line| line["kind"] == kind));
            assert!(!delays.is_empty(), "{profile}: {kind}");
            assert_eq!(number(truth, "answers"), delays.len() as u64, "{profile}: {delay}");
            // The generator does not list timestamps that are never echoed.
            if kind != "tcp-timestamps" {
                assert_eq!(number(truth, "requests"), requests, "{profile}: {delay}");
            }
            for (name, permille) in
                [("p50", 500), ("p90", 900), ("p95", 950), ("p99", 990), ("p99.9", 999)]
            {
                let exact = delays[(delays.len() * permille).div_ceil(1000) - 1];
                assert_eq!(truth["delays"][name], exact, "{profile}: {name} {delay}");
            }
        }
        // The table has lost answers that the exact matcher has not.
        let data = measured.iter().find(|delay| delay["kind"] == "tcp-data").unwrap();
        assert!(number(data, "answers") < number(&data["truth"], "answers"), "{data}");
        // A request and its answer may be in different windows.
        let options = format!("--window 100ms --sample-every never --truth {options}");
        let all = records(&capture, &options);
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for delay in of_kind(&all, "window").iter().flat_map(|it| it["delay"].as_array().unwrap()) {
            *sums.entry(text(delay, "kind")).or_default() += number(&delay["truth"], "answers");
        }
        for (kind, sum) in sums {
            let (_, delays) = delays(printed.iter().filter(|line| line["kind"] == kind));
            assert_eq!(sum, delays.len() as u64, "{profile}: {kind}");
        }
    }
}

#[test]
fn delays_of_each_direction_are_those_of_the_generator() {
    let scratch = Scratch::new("truth-directions");
    let (capture, csv) = with_truth(&scratch, "delay,shape=conversations,requests=5k");
    let printed = csv_rows(&csv);
    let window = only_window(&capture, "--measure delay --delay-local 10.0.0.0/8");
    let mut requests = [0, 0];
    for delay in list(&window, "delay") {
        let leaves = text(delay, "direction") == "egress";
        let (asked, delays) = delays(printed.iter().filter(|line| {
            line["kind"] == text(delay, "kind") && line["src"].starts_with("10.") == leaves
        }));
        let truth = &delay["truth"];
        let counts = numbers(truth, ["requests", "answers"]);
        assert_eq!(counts, [asked, delays.len() as u64], "{delay}");
        assert_eq!(truth.get("delays").is_some(), !delays.is_empty(), "{delay}");
        requests[usize::from(leaves)] += asked;
    }
    assert!(requests.iter().all(|requests| *requests > 0), "{requests:?}");
}

#[test]
fn prefixes_are_those_of_the_generator() {
    let scratch = Scratch::new("truth-prefixes");
    let profile = "reorder,packets=50k,prefixes=60,heavy=5,share=0.3,loss=0,flows=500";
    let (capture, csv) = with_truth(&scratch, profile);
    let printed = csv_rows(&csv);
    let window = only_window(&capture, "--measure reorder --reorder-top 1000");
    let found = list(&window["reorder"], "prefixes");
    assert!(found.len() > 20, "{}", found.len());
    let (mut late, mut out_of_order) = (0, 0);
    for prefix in found {
        let line = printed.iter().find(|line| line["prefix"] == text(prefix, "prefix")).unwrap();
        let known = |column: &str| line[column].parse::<u64>().unwrap();
        let truth = &prefix["truth"];
        for (key, column) in [("packets", "segments"), ("gaps", "gaps"), ("flows", "flows")] {
            assert_eq!(number(truth, key), known(column), "{key}: {prefix}, {line:?}");
        }
        // No segment is sent twice. If the first segment of a flow is late, no byte before the next one
        // is known to be missing, so that it looks as if it had been seen.
        let again = number(truth, "retransmitted");
        assert_eq!(number(truth, "out_of_order") + again, known("out_of_order"), "{prefix}");
        late += known("out_of_order");
        out_of_order += number(truth, "out_of_order");
    }
    assert!(late > 100 && out_of_order > late / 2, "{out_of_order} of {late}");
}

#[test]
fn heavy_flows_have_their_packets_and_bytes_and_missing_ones_are_counted() {
    let scratch = Scratch::new("truth-heavy");
    let file = scratch.write("skewed.pcap", pcap(&packets(sources().repeat(3), 1_000_000)));
    let mut sent = BTreeMap::<String, u64>::new();
    for source in sources() {
        *sent.entry(std::net::Ipv4Addr::from(source).to_string()).or_default() += 1;
    }
    let mut ranked: Vec<u64> = sent.values().copied().collect();
    ranked.sort_unstable_by(|one, other| other.cmp(one));
    let mut missed = 0;
    for (algorithm, unit) in [
        ("hashpipe", "packets"),
        ("hashpipe", "bytes"),
        ("rap", "packets"),
        ("space-saving", "bytes"),
    ] {
        let options = format!(
            "--measure heavy --key src --algorithm {algorithm} --by {unit} --slots 16 --top 10 \
             --window 1s --sample-every never --truth"
        );
        let all = records(&file, &options);
        let windows = of_kind(&all, "window");
        assert_eq!(windows.len(), 3);
        for window in windows {
            let heavy = &window["heavy"];
            // All packets have the same length.
            let each = number(heavy, "total") / 1000;
            let (mut listed, mut error) = (0, 0.0);
            let flows = list(heavy, "flows");
            for flow in flows {
                let exact = sent[text(flow, "flow")];
                assert_eq!(number(flow, "truth"), exact * each, "{algorithm}: {flow}");
                let (count, exact_count) = (number(flow, "count") as f64, (exact * each) as f64);
                error += (count - exact_count).abs() / exact_count;
                listed += u64::from(exact >= ranked[9]);
            }
            let (truth, mean) = (&heavy["truth"], error / flows.len() as f64);
            let counts = numbers(truth, ["heaviest", "listed"]);
            assert_eq!(counts, [10, listed.min(10)], "{algorithm}: {heavy}");
            assert!((float(truth, "error") - mean).abs() < 1e-9, "{algorithm}: {heavy}");
            missed += 10 - listed.min(10);
        }
    }
    assert!(missed > 0, "16 slots for 100 flows miss none");
}

#[test]
fn queries_have_their_packets_and_are_seen_or_not() {
    let scratch = Scratch::new("truth-queries");
    let file = scratch.write("skewed.pcap", pcap(&packets(sources(), 1_000_000)));
    let sent = |k: u32| sources().into_iter().filter(|source| *source == 0x0a00_0000 + k).count();
    let options = "--measure frequency,membership --sketch frequency=count-min:1x64 --filter 1x64 \
                   --query 10.0.0.1 --query 10.0.0.77 --query 10.0.0.250 --window 1s --truth";
    let all = records(&file, options);
    let [window] = of_kind(&all, "window")[..] else { panic!("{all:?}") };
    let of = |measurement: &str| -> Vec<Value> {
        let flows = list(&window[measurement], "flows").iter();
        flows.map(|flow| flow["truth"].clone()).collect()
    };
    assert_eq!(of("frequency"), [json!(sent(1)), json!(sent(77)), json!(0)]);
    assert_eq!(of("membership"), [json!(true), json!(true), json!(false)]);
    // Samples, totals and runs without the option have none.
    let total = of_kind(&all, "total")[0];
    assert!(total["frequency"]["flows"][0].get("truth").is_none(), "{total}");
    let without = records(&file, &options.replace("--truth", ""));
    for (record, measurement) in
        without.iter().flat_map(|record| [(record, "frequency"), (record, "membership")])
    {
        assert!(!record[measurement].to_string().contains("truth"), "{record}");
    }
    let table = replay(&file, options).quiet();
    assert_has(&table, &[&format!("truth {}", sent(1)), "truth not seen"]);
}
