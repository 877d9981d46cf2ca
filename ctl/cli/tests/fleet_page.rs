//! Commands of `docs/fleet.md`, executed in order in an empty directory. Each runs, or is listed
//! with the reason why not.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{SECOND, Scratch, flowgauge, frames, pcap};
use flowgauge_dataplane::capture::build::Packet;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs};

/// Commands that are not run, by their start, and what they need.
const NOT_RUN: [(&str, &str); 5] = [
    (
        "flowgauge run -i eth1 --hash-key fleet.key --window 1m --lake /var/lib/flowgauge/lake",
        "an interface, and root",
    ),
    ("export AWS_ACCESS_KEY_ID=", "an account of an object store"),
    ("export AWS_ENDPOINT_URL=", "an object store"),
    (
        "flowgauge run -i eth1 --hash-key fleet.key --window 1m --lake s3://",
        "an interface, root, and an object store",
    ),
    ("flowgauge merge s3://", "an object store, and a build with the feature object-store"),
];
const DAY: u64 = 24 * 3_600 * SECOND;

/// Returns the commands of terminal blocks: the text behind a prompt with its continuation lines,
/// without a trailing comment.
fn commands(page: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let blocks =
        page.split("\n```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("console\n"));
    for block in blocks {
        let mut lines = block.lines();
        while let Some(line) = lines.next() {
            let Some(command) = line.strip_prefix("$ ").or_else(|| line.strip_prefix("# ")) else {
                continue;
            };
            let mut command = command.to_owned();
            while command.ends_with('\\') {
                command.pop();
                command.push_str(lines.next().expect("a line after a backslash").trim_start());
            }
            let end = command.find("  #").unwrap_or(command.len());
            commands.push(command[..end].trim_end().to_owned());
        }
    }
    commands
}

/// Writes a capture with a packet every ten minutes, from two days ago until the end of tomorrow,
/// since midnight may pass during the test.
fn capture(scratch: &Scratch, site: u8) -> PathBuf {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let begin = now / DAY * DAY - 2 * DAY;
    let packets: Vec<Packet> = (begin..begin + 4 * DAY)
        .step_by((600 * SECOND) as usize)
        .zip(0_u32..)
        .map(|(time, number)| {
            let [.., high, low] = number.to_be_bytes();
            let payload = frames::ipv4([10, site, high, low], 17, &frames::udp(&[0; 18]));
            Packet::new(time, frames::ethernet(&[], 0x0800, &payload))
        })
        .collect();
    let path = scratch.path(&format!("{site}.pcap"));
    fs::write(&path, pcap(&packets)).unwrap();
    path
}

/// Runs a line of the page in a shell, with `flowgauge` of this build first in PATH.
fn shell(directory: &Path, line: &str) {
    let built = Path::new(env!("CARGO_BIN_EXE_flowgauge")).parent().unwrap();
    let others = env::var_os("PATH").unwrap_or_default();
    let path =
        env::join_paths([built.to_owned()].into_iter().chain(env::split_paths(&others))).unwrap();
    let mut command = Command::new("sh");
    command
        .args(["-e", "-c", line])
        .current_dir(directory)
        .env("PATH", path)
        .env("FLOWGAUGE_STATUS_DIR", "")
        .env_remove("RUST_LOG");
    let output = command.stdin(Stdio::null()).output().unwrap();
    let [stdout, stderr] =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(output.status.success(), "{line}: {}\n{stdout}{stderr}", output.status);
    assert!(!line.starts_with("flowgauge ") || !stdout.is_empty(), "{line} prints nothing");
}

/// Checks that a command that is not run only has valid options.
fn understood(line: &str) {
    let Some(rest) = line.strip_prefix("flowgauge ") else { return };
    let arguments = rest.split_whitespace().chain(["--no-such-option"]);
    let output = flowgauge().args(arguments).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{line}: {stderr}");
    assert!(stderr.contains("'--no-such-option'"), "{line}: {stderr}");
}

#[test]
fn every_command_of_the_page_runs_or_is_listed() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/fleet.md");
    let commands = commands(&fs::read_to_string(page).unwrap());
    assert!(commands.len() > NOT_RUN.len(), "{commands:?}");
    let scratch = Scratch::new("fleet-page");
    let directory = scratch.path("folder");
    fs::create_dir(&directory).unwrap();
    for (host, site) in [("paris", 1), ("berlin", 2)] {
        let mut command = flowgauge();
        command
            .arg("replay")
            .arg(capture(&scratch, site))
            .args(["--host", host, "--window", "1m", "--align", "--lake"]);
        let output = command.arg(directory.join("lake")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let mut listed = BTreeSet::new();
    for line in &commands {
        match NOT_RUN.iter().find(|(beginning, _)| line.starts_with(beginning)) {
            Some((beginning, reason)) => {
                println!("not run, it takes {reason}: {line}");
                listed.insert(*beginning);
                understood(line);
            }
            None => shell(&directory, line),
        }
    }
    let gone: Vec<&str> =
        NOT_RUN.iter().map(|(beginning, _)| *beginning).filter(|it| !listed.contains(it)).collect();
    assert!(gone.is_empty(), "listed, but not on the page: {gone:?}");
}

#[test]
fn blocks_of_a_terminal_become_commands() {
    let page = "text\n\n```console\n$ one --two            # three\n# four \\\n      five\noutput\n```\n\n```text\n$ six\n```\n";
    assert_eq!(commands(page), ["one --two", "four five"]);
}
