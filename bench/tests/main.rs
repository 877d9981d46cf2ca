//! `flowgauge-bench` on its own.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[cfg(target_os = "linux")]
mod line_rate;

use flowgauge_dataplane::capture::build::{CapturePacket, PcapOptions, pcap};
use flowgauge_traffic::frame::Ip;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn run(arguments: &[&str], build: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgauge-bench"));
    command.args(arguments).env_remove("FLOWGAUGE_SAME_BUILD");
    command.envs(build.map(|build| ("FLOWGAUGE_SAME_BUILD", build))).output().unwrap()
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()))
}

#[test]
fn another_build_is_refused_in_one_line() {
    let output = run(&["reproduce", "p4log", "--quick"], Some("0.0.1, commit old"));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.starts_with("error: "), "{said}");
    assert!(said.contains("0.0.1, commit old") && said.contains("cargo build"), "{said}");
    assert!(run(&["--version"], None).status.success());
}

#[test]
fn a_reproduction_is_written_where_it_is_asked_for() {
    let folder = folder("p4log");
    let output = run(&["reproduce", "p4log", "--quick", "--out", folder.to_str().unwrap()], None);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(fs::read_to_string(folder.join("index.html")).unwrap().contains("<svg"));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_capture_takes_the_place_of_generated_traffic() {
    let folder = folder("trace");
    fs::create_dir_all(&folder).unwrap();
    let packets: Vec<CapturePacket> = (0..100_u8)
        .map(|number| {
            let frame = Ip::new([10, 0, 0, number % 7], [0; 4], 0).frame(&[0; 26]);
            CapturePacket::new(u64::from(number) * 1_000_000, frame)
        })
        .collect();
    let capture = folder.join("some.pcap");
    fs::write(&capture, pcap(&PcapOptions::default(), &packets)).unwrap();
    let (capture, out) = (capture.to_str().unwrap(), folder.join("out"));
    let out = out.to_str().unwrap();
    for what in ["p4entropy", "rap", "spread"] {
        let output = run(&["reproduce", what, "--trace", capture, "--out", out], None);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("1 window of 100 packets, fewer than the 2,097,152"), "{said}");
        let csv = fs::read_to_string(folder.join("out/table-1.csv")).unwrap();
        let command =
            format!("# flowgauge reproduce {what} --trace {capture} --window-packets 2097152");
        assert!(csv.starts_with(&command), "{csv}");
    }
    // There are no segments in it, and logarithms have no packets.
    for (what, code) in [("fridge", 1), ("reorder", 1), ("p4log", 2)] {
        let output = run(&["reproduce", what, "--trace", capture, "--out", out], None);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(code), 1), "{said}");
    }
    fs::remove_dir_all(folder).unwrap();
}

/// `docs/reproductions.md` is made by `flowgauge reproduce --page`, from the list of printed numbers.
#[test]
fn the_page_of_the_documentation_has_every_printed_number() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reproductions.md");
    let page = fs::read_to_string(page).unwrap();
    for number in flowgauge_papers::printed() {
        let what = number.what.replace('|', "\\|");
        let start = format!("| {} | {what} | ", number.place);
        let has_it = |line: &str| line.starts_with(&start) && line.contains(&number.paper);
        let is_there = page.lines().any(has_it);
        assert!(is_there, "make the page with `flowgauge reproduce --page`: {number:?}");
    }
    let output = run(&["reproduce", "whll", "--page", "x"], None);
    assert_eq!(output.status.code(), Some(2));
}
