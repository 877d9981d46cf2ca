//! HTML reports of captures, and the demonstration.

use crate::common::served::{ALL, Served};
use crate::common::{
    Outcome, Running, SECOND, START, Scratch, assert_has, command, finish, float, flowgauge,
    generated, json_lines, list, number, of_kind, page_data, replay, text,
};
use flowgauge_dataplane::capture::Writer;
use flowgauge_dataplane::capture::link_type;
use flowgauge_traffic::{Generator, Profile};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

/// Generates ten seconds of traffic.
fn capture(scratch: &Scratch, name: &str) -> String {
    let profile: Profile = "zipf,flows=500,rate=2000,packets=20000".parse().unwrap();
    let generator = Generator::new(profile.clone());
    let mut frame = generator.template().to_vec();
    let mut capture = Writer::new(Vec::new(), link_type::ETHERNET).unwrap();
    for index in 0..20_000 {
        generator.fill(index, &mut frame);
        capture.write(START + profile.timestamp(index), &frame, frame.len() as u32).unwrap();
    }
    scratch.write(name, capture.finish().unwrap())
}

fn report(scratch: &Scratch, arguments: &[&str]) -> Outcome {
    finish(flowgauge().arg("report").args(arguments).current_dir(scratch.path("")))
}

/// Returns the data in the page of a successful report.
#[track_caller]
fn reported(scratch: &Scratch, arguments: &[&str], page: &str) -> Value {
    report(scratch, arguments).ended(0);
    page_data(scratch.path(page))
}

fn figure<'a>(event: &'a Value, name: &str) -> &'a Value {
    let mut figures = list(event, "figures").iter();
    figures.find(|figure| figure["name"] == name).unwrap_or_else(|| panic!("{name}: {event}"))
}

#[test]
fn a_page_tells_what_a_replay_tells() {
    let scratch = Scratch::new("report");
    let pcap = capture(&scratch, "ten-seconds.pcap");
    assert_eq!(report(&scratch, &[&pcap]).quiet(), "report: ten-seconds.pcap.html\n");
    let data = page_data(scratch.path("ten-seconds.pcap.html"));
    let windows = list(&data, "windows");
    // About a hundred: 10 s in windows of 100 ms.
    let lines = json_lines(&replay(&pcap, "--window 100ms --format json --truth").stdout);
    let expected = of_kind(&lines, "window");
    assert_eq!(windows.len(), expected.len());
    for (window, line) in windows.iter().zip(expected) {
        let flows = figure(window, "distinct_flows");
        for (mine, text) in [("value", "estimate"), ("low", "low"), ("high", "high")] {
            assert_eq!(flows["number"][mine], line["cardinality"][text]);
        }
        assert_eq!(flows["truth"].as_f64(), line["cardinality"]["truth"].as_f64());
        assert_eq!(figure(window, "packets")["count"].as_f64(), line["ipv4_packets"].as_f64());
        assert_eq!(float(window, "start"), number(line, "start_ns") as f64 / 1e9);
    }
    let [total] = list(&data, "totals") else { panic!("{}", data["totals"]) };
    assert_eq!(figure(total, "packets")["count"], 20_000.0);
    assert_eq!(data["about"]["problems"], Value::Array(Vec::new()));
    let facts = data["about"]["facts"].to_string();
    let usual = "of 100 windows, and learned what is usual from 30";
    let parts =
        ["ten-seconds.pcap", "20,000, 0 without", "of 100ms", "beside the estimates", usual];
    assert_has(&facts, &parts);
    // An existing page is only replaced on request.
    assert_has(&report(&scratch, &[&pcap]).ended(1).stderr, &["--force"]);
    let options = [pcap.as_str(), "--force", "--window", "5s", "--measure", "cardinality"];
    let data = reported(&scratch, &options, "ten-seconds.pcap.html");
    assert!((2..=3).contains(&list(&data, "windows").len()));
}

/// Rules are checked before the first window against a list of figures. It must have all of them.
#[test]
fn every_figure_of_a_page_can_have_an_alert() {
    let scratch = Scratch::new("report-alerts");
    let profile = "delay,shape=conversations,requests=3000,loss=0.05,timestamps";
    let pcap = generated(&scratch, "talks.pcap", profile);
    let options = format!("{pcap} --query 10.0.0.1 --match ip --measure {ALL} --alarm");
    let arguments: Vec<&str> = options.split(' ').chain(["--to", "page.html"]).collect();
    let page = reported(&scratch, &arguments, "page.html");
    let mut rules = BTreeSet::new();
    for window in list(&page, "windows") {
        for figure in list(window, "figures") {
            if figure.get("distribution").is_some() {
                continue;
            }
            let labels = figure["labels"].as_object().into_iter().flatten();
            let labels: Vec<String> =
                labels.map(|(name, value)| format!("{name}={}", value.as_str().unwrap())).collect();
            rules.insert(format!("{}{{{}}} > 1G", text(figure, "name"), labels.join(",")));
        }
    }
    assert!(rules.len() > 40, "{rules:?}");
    let mut command = command(&format!("replay {options}"));
    rules.iter().for_each(|rule| {
        command.args(["--alert", rule]);
    });
    finish(&mut command).ended(0);
}

/// U+202E reverses the following text: `exe.fdp` would look like a PDF.
#[test]
fn a_name_cannot_turn_the_text_of_a_page_around() {
    let scratch = Scratch::new("report-turned");
    let pcap = capture(&scratch, "ten\u{202e}fdp.pcap");
    report(&scratch, &[&pcap, "--to", "page.html"]).ended(0);
    let page = fs::read_to_string(scratch.path("page.html")).unwrap();
    assert!(page.contains("fdp.pcap") && !page.contains('\u{202e}'));
}

#[test]
fn damage_is_told_on_the_page() {
    let scratch = Scratch::new("damaged");
    let whole = fs::read(capture(&scratch, "whole.pcap")).unwrap();
    let pcap = scratch.write("cut.pcap", &whole[..whole.len() / 2 + 7]);
    report(&scratch, &[&pcap, "--to", "cut.html"]).ended(1);
    let data = page_data(scratch.path("cut.html"));
    let [problem] = list(&data["about"], "problems") else { panic!("{}", data["about"]) };
    assert_has(problem.as_str().unwrap(), &["cut.pcap"]);
    assert!(float(figure(&data["totals"][0], "packets"), "count") > 9_000.0);
}

#[test]
fn a_capture_without_packets_and_silences_make_a_page() {
    let scratch = Scratch::new("silences");
    let empty = Writer::new(Vec::new(), link_type::ETHERNET).unwrap().finish().unwrap();
    let empty = scratch.write("empty.pcap", empty);
    let nothing = reported(&scratch, &[&empty], "empty.pcap.html");
    let problems = list(&nothing["about"], "problems");
    assert!(list(&nothing, "windows").len() <= 1 && problems.is_empty(), "{nothing}");
    let mut sparse = Writer::new(Vec::new(), link_type::ETHERNET).unwrap();
    let generator = Generator::new("unique".parse().unwrap());
    for second in [0, 1, 5000] {
        sparse.write(START + second * SECOND, generator.template(), 64).unwrap();
    }
    let sparse = scratch.write("sparse.pcap", sparse.finish().unwrap());
    let data = reported(&scratch, &[&sparse, "--window", "1s"], "sparse.pcap.html");
    let windows = list(&data, "windows");
    // Thousands of empty windows are one silence.
    let is_silence = windows.iter().any(|window| window["last_window"].is_u64());
    assert!(windows.len() < 20 && is_silence, "{}", windows.len());
}

#[test]
fn what_is_for_other_commands_is_refused() {
    let scratch = Scratch::new("refused");
    let pcap = capture(&scratch, "some.pcap");
    for (arguments, problem) in [
        (&["-"][..], "standard input"),
        (&[&pcap, "--format", "json"], "--format is not for"),
        (&[&pcap, "--listen", "0"], "--listen is not for"),
        (&[&pcap, "--out", "."], "--out is not for"),
    ] {
        assert_has(&report(&scratch, arguments).ended(2).stderr, &[problem]);
    }
    report(&scratch, &["missing.pcap"]).ended(1);
}

#[test]
fn the_demonstration_measures_everything() {
    let served = Served::listening(Running::with("demo --listen 0"));
    let wanted = [
        "distinct_flows{",
        "distinct_flows_truth{",
        "entropy{",
        "heavy_flows{",
        "fan_out{",
        "asked_flows{",
        "seen_flows{",
        "packet_lengths_bytes_bucket{",
        "delay_seconds{",
        "reordering_prefixes_ratio{",
    ];
    loop {
        let (_, _, metrics) = served.get("/metrics");
        if wanted.iter().all(|name| metrics.contains(&format!("\nflowgauge_{name}"))) {
            break;
        }
    }
    served.end();
}
