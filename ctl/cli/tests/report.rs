//! HTML reports of captures, and the demonstration.

use crate::common::served::exchange;
use crate::common::{Running, SECOND, START, Scratch, flowgauge};
use flowgauge_dataplane::capture::Writer;
use flowgauge_dataplane::capture::link_type;
use flowgauge_traffic::{Generator, Profile};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::Output;

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

fn report(scratch: &Scratch, arguments: &[&str]) -> Output {
    flowgauge().arg("report").args(arguments).current_dir(scratch.path("")).output().unwrap()
}

/// Returns the data in a page.
fn data(page: &Path) -> Value {
    let page = fs::read_to_string(page).unwrap();
    let (_, data) = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
}

fn figure<'a>(event: &'a Value, name: &str) -> &'a Value {
    event["figures"]
        .as_array()
        .unwrap()
        .iter()
        .find(|figure| figure["name"] == name)
        .unwrap_or_else(|| panic!("{name}: {event}"))
}

#[test]
fn a_page_tells_what_a_replay_tells() {
    let scratch = Scratch::new("report");
    let pcap = capture(&scratch, "ten-seconds.pcap");
    let output = report(&scratch, &[&pcap]);
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), "report: ten-seconds.pcap.html\n");
    let page = scratch.path("ten-seconds.pcap.html");
    let data = data(&page);
    let windows = data["windows"].as_array().unwrap();
    // About a hundred: 10 s in windows of 100 ms.
    let lines = flowgauge()
        .args(["replay", &pcap, "--window", "100ms", "--format", "json", "--truth"])
        .output()
        .unwrap();
    let lines: Vec<Value> = String::from_utf8(lines.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |kind: &str| {
        lines.iter().filter(|line| line["record"] == kind).cloned().collect::<Vec<Value>>()
    };
    assert_eq!(windows.len(), of("window").len());
    for (window, line) in windows.iter().zip(of("window")) {
        let flows = figure(window, "distinct_flows");
        for (mine, text) in [("value", "estimate"), ("low", "low"), ("high", "high")] {
            assert_eq!(flows["number"][mine], line["cardinality"][text]);
        }
        assert_eq!(flows["truth"].as_f64(), line["cardinality"]["truth"].as_f64());
        assert_eq!(figure(window, "packets")["count"].as_f64(), line["ipv4_packets"].as_f64());
        assert_eq!(
            window["start"].as_f64().unwrap(),
            line["start_ns"].as_u64().unwrap() as f64 / 1e9
        );
    }
    let [total] = data["totals"].as_array().unwrap().as_slice() else {
        panic!("{}", data["totals"])
    };
    assert_eq!(figure(total, "packets")["count"], 20_000.0);
    assert_eq!(data["about"]["problems"], Value::Array(Vec::new()));
    let facts = data["about"]["facts"].to_string();
    for text in [
        "ten-seconds.pcap",
        "20,000, 0 without",
        "of 100ms",
        "beside the estimates",
        "of 100 windows, and learned what is usual from 30",
    ] {
        assert!(facts.contains(text), "{text}: {facts}");
    }
    // An existing page is only replaced on request.
    let again = report(&scratch, &[&pcap]);
    assert!(
        again.status.code() == Some(1)
            && String::from_utf8_lossy(&again.stderr).contains("--force")
    );
    assert!(
        report(&scratch, &[&pcap, "--force", "--window", "5s", "--measure", "cardinality"])
            .status
            .success()
    );
    assert!((2..=3).contains(&self::data(&page)["windows"].as_array().unwrap().len()));
}

/// Rules are checked before the first window against a list of figures. It must have all of them.
#[test]
fn every_figure_of_a_page_can_have_an_alert() {
    let scratch = Scratch::new("report-alerts");
    let pcap = scratch.path("talks.pcap");
    let pcap = pcap.to_str().unwrap();
    let profile = "delay,shape=conversations,requests=3000,loss=0.05,timestamps";
    let generated = flowgauge().args(["generate", profile, "--to", pcap]).output().unwrap();
    assert!(generated.status.success(), "{}", String::from_utf8_lossy(&generated.stderr));
    let options = [
        "--query",
        "10.0.0.1",
        "--match",
        "ip",
        "--measure",
        "cardinality,entropy,frequency,membership,heavy,spread,sizes,delay,reorder",
        "--alarm",
    ];
    let output = report(&scratch, &[&[pcap, "--to", "page.html"][..], &options].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = data(&scratch.path("page.html"));
    let mut rules = BTreeSet::new();
    for window in page["windows"].as_array().unwrap() {
        for figure in window["figures"].as_array().unwrap() {
            if figure.get("distribution").is_some() {
                continue;
            }
            let labels = figure["labels"].as_object().into_iter().flatten();
            let labels: Vec<String> =
                labels.map(|(name, value)| format!("{name}={}", value.as_str().unwrap())).collect();
            let name = figure["name"].as_str().unwrap();
            rules.insert(format!("{name}{{{}}} > 1G", labels.join(",")));
        }
    }
    assert!(rules.len() > 40, "{rules:?}");
    let mut command = flowgauge();
    command.arg("replay").arg(pcap).args(options);
    rules.iter().for_each(|rule| {
        command.args(["--alert", rule]);
    });
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// U+202E reverses the following text: `exe.fdp` would look like a PDF.
#[test]
fn a_name_cannot_turn_the_text_of_a_page_around() {
    let scratch = Scratch::new("report-turned");
    let pcap = capture(&scratch, "ten\u{202e}fdp.pcap");
    let output = report(&scratch, &[&pcap, "--to", "page.html"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = fs::read_to_string(scratch.path("page.html")).unwrap();
    assert!(page.contains("fdp.pcap") && !page.contains('\u{202e}'));
}

#[test]
fn damage_is_told_on_the_page() {
    let scratch = Scratch::new("damaged");
    let whole = fs::read(capture(&scratch, "whole.pcap")).unwrap();
    let pcap = scratch.write("cut.pcap", &whole[..whole.len() / 2 + 7]);
    let output = report(&scratch, &[&pcap, "--to", "cut.html"]);
    assert_eq!(output.status.code(), Some(1));
    let data = data(&scratch.path("cut.html"));
    let problems = data["about"]["problems"].as_array().unwrap();
    assert!(
        problems.len() == 1 && problems[0].as_str().unwrap().contains("cut.pcap"),
        "{problems:?}"
    );
    assert!(figure(&data["totals"][0], "packets")["count"].as_f64().unwrap() > 9_000.0);
}

#[test]
fn a_capture_without_packets_and_silences_make_a_page() {
    let scratch = Scratch::new("silences");
    let empty = Writer::new(Vec::new(), link_type::ETHERNET).unwrap().finish().unwrap();
    let empty = scratch.write("empty.pcap", empty);
    assert!(report(&scratch, &[&empty]).status.success());
    let nothing = data(&scratch.path("empty.pcap.html"));
    assert!(
        nothing["windows"].as_array().unwrap().len() <= 1
            && nothing["about"]["problems"] == Value::Array(Vec::new()),
        "{nothing}"
    );
    let mut sparse = Writer::new(Vec::new(), link_type::ETHERNET).unwrap();
    let generator = Generator::new("unique".parse().unwrap());
    for second in [0, 1, 5000] {
        sparse.write(START + second * SECOND, generator.template(), 64).unwrap();
    }
    let sparse = scratch.write("sparse.pcap", sparse.finish().unwrap());
    assert!(report(&scratch, &[&sparse, "--window", "1s"]).status.success());
    let data = data(&scratch.path("sparse.pcap.html"));
    let windows = data["windows"].as_array().unwrap();
    // Thousands of empty windows are one silence.
    assert!(
        windows.len() < 20 && windows.iter().any(|window| window["last_window"].is_u64()),
        "{}",
        windows.len()
    );
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
        let output = report(&scratch, arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && text.contains(problem), "{arguments:?}: {text}");
    }
    assert_eq!(report(&scratch, &["missing.pcap"]).status.code(), Some(1));
}

#[test]
fn the_demonstration_measures_everything() {
    let mut command = flowgauge();
    let mut running = Running::of(command.args(["demo", "--listen", "0"]));
    let mut stderr = BufReader::new(running.child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    let address = line
        .split_once("http://")
        .and_then(|(_, rest)| rest.split(' ').next())
        .unwrap_or_else(|| panic!("{line}"))
        .to_owned();
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
        let mut stream = TcpStream::connect(&address).unwrap();
        let (_, _, metrics) = exchange(
            &mut stream,
            "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        );
        if wanted.iter().all(|name| metrics.contains(&format!("\nflowgauge_{name}"))) {
            break;
        }
    }
    running.interrupt();
    assert!(running.child.wait().unwrap().success());
}
