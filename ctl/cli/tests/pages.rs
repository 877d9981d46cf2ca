//! Commands of `README.md` and `docs/`, executed in order, each page in a directory of its own. Each
//! runs and prints the output that the page shows, or needs something that [`NOT_RUN`] names.

use crate::common::{Outcome, SECOND, Scratch, command, finish, flowgauge, frames, pcap};
use flowgauge_dataplane::capture::build::CapturePacket;
use flowgauge_testing::skip;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs};

/// Parts of commands that are not run, and what those commands need. The options of such a
/// `flowgauge` command are checked.
const NOT_RUN: [(&str, &str); 34] = [
    ("-i eth", "an interface, and root"),
    ("-i 'eth*'", "interfaces, and root"),
    ("flowgauge top", "a terminal"),
    ("-i mirror0", "an interface with mirrored traffic, and root"),
    ("af_xdp:eth1", "an interface, and root"),
    ("live:eth1", "an interface, and root"),
    ("dpdk:", "DPDK, and its devices"),
    ("--address switch:", "a switch"),
    ("--address 127.0.0.1:", "a model of a switch in another terminal"),
    ("AWS_", "an object store"),
    ("s3://", "an object store, and a build with the feature object-store"),
    ("/etc/flowgauge/", "an installation"),
    ("merge lake --to 2026-12-01", "a lake of that day"),
    ("merge lake --from 2026-12-01T01:00", "a lake of that day"),
    ("--cpus 1 > /dev/null", "half a minute, and a CPU without other work"),
    ("flowgauge bench", "flowgauge-bench, and minutes without other work"),
    ("flowgauge reproduce", "flowgauge-bench, and minutes"),
    (".ci/instructions", "valgrind, and a release build"),
    ("cargo run", "the sources"),
    ("cargo install", "the sources"),
    ("cargo test", "the sources"),
    ("pip install", "a package index"),
    ("deploy/tables/", "packages of Python"),
    ("p4c ", "a compiler of P4"),
    ("ssh router", "another machine"),
    ("curl --cacert", "another machine"),
    ("curl --unix-socket", "a run in another terminal"),
    ("grpcurl", "grpcurl"),
    ("systemctl", "systemd"),
    ("/usr/local/bin/flowgauge", "root, and an installation"),
    ("mount -t bpf", "root"),
    ("apt-get install", "root, and a package index"),
    ("tar xzf flowgauge-", "a release"),
    ("podman build", "podman"),
];
/// Beginnings of commands that run until they are interrupted; they get a `--duration`.
const ENDLESS: [&str; 2] = ["flowgauge run --port memory:", "flowgauge demo"];
const DAY: u64 = 24 * 3_600 * SECOND;

/// A command of a page, with the output that the page shows below it.
#[derive(Debug, PartialEq)]
struct Step {
    line: String,
    shown: Vec<String>,
}

/// Returns the steps of terminal blocks: the text behind a prompt with its continuation lines,
/// without a trailing comment, and the lines up to the next prompt.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let blocks =
        page.split("\n```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("console\n"));
    for block in blocks {
        let mut lines = block.lines();
        while let Some(line) = lines.next() {
            let Some(command) = line.strip_prefix("$ ").or_else(|| line.strip_prefix("# ")) else {
                let step = steps.last_mut().expect("a block begins with a command");
                step.shown.push(line.trim_end().to_owned());
                continue;
            };
            let mut command = command.to_owned();
            while command.ends_with('\\') {
                command.pop();
                command.push_str(lines.next().expect("a line after a backslash").trim_start());
            }
            let end = command.find("  #").unwrap_or(command.len());
            let line = command[..end].trim_end().to_owned();
            steps.push(Step { line, shown: Vec::new() });
        }
    }
    steps
}

/// Writes a capture with a packet every ten minutes, from two days ago until the end of tomorrow,
/// since midnight may pass during the test.
fn capture(scratch: &Scratch, site: u8) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let begin = now / DAY * DAY - 2 * DAY;
    let packets: Vec<CapturePacket> = (begin..begin + 4 * DAY)
        .step_by((600 * SECOND) as usize)
        .zip(0_u32..)
        .map(|(time, number)| {
            let [.., high, low] = number.to_be_bytes();
            let payload = frames::ipv4([10, site, high, low], 17, &frames::udp(&[0; 18]));
            CapturePacket::new(time, frames::ethernet(&[], 0x0800, &payload))
        })
        .collect();
    scratch.write(&format!("{site}.pcap"), pcap(&packets))
}

/// Runs a line of a page in a shell, with `flowgauge` of this build first in PATH. Returns its output.
fn shell(directory: &Path, line: &str) -> String {
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
    let printed = stdout + &stderr;
    // The generator reports on a terminal only.
    let is_silent = !line.starts_with("flowgauge ") || line.starts_with("flowgauge generate ");
    assert!(is_silent || !printed.is_empty(), "{line} prints nothing");
    printed
}

/// Checks that the lines that a page shows are printed, in this order; `…` stands for others.
fn compare(step: &Step, printed: &str) {
    let mut lines = printed.lines().map(|line| with_usual_port(line.trim_end()));
    for shown in step.shown.iter().filter(|line| *line != "…") {
        assert!(
            lines.any(|line| line == *shown),
            "{} does not print '{shown}':\n{printed}",
            step.line
        );
    }
}

/// Replaces the port of a page by the usual one, which another program may use.
fn with_usual_port(line: &str) -> String {
    let Some((before, rest)) = line.split_once("http://127.0.0.1:") else { return line.to_owned() };
    format!(
        "{before}http://127.0.0.1:9420{}",
        rest.trim_start_matches(|it: char| it.is_ascii_digit())
    )
}

/// Checks that a command that is not run only has valid options.
fn understood(line: &str) {
    if !line.starts_with("flowgauge ") || line.contains(" & ") {
        return;
    }
    let Some(rest) = shlex(line) else { panic!("{line}: a quote is missing") };
    let Outcome { code, stderr, .. } = finish(flowgauge().args(&rest[1..]).arg("--no-such-option"));
    assert_eq!(code, Some(2), "{line}: {stderr}");
    let is_left_out = stderr.contains("this build does not include");
    assert!(stderr.contains("'--no-such-option'") || is_left_out, "{line}: {stderr}");
}

/// Splits a command at blanks, but for those in single quotes.
fn shlex(line: &str) -> Option<Vec<String>> {
    let (mut words, mut is_quoted) = (vec![String::new()], false);
    for character in line.chars() {
        match character {
            '\'' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(String::new()),
            _ => words.last_mut()?.push(character),
        }
    }
    words.retain(|word| !word.is_empty());
    (!is_quoted).then_some(words)
}

fn needs(line: &str) -> Option<&'static (&'static str, &'static str)> {
    NOT_RUN.iter().find(|(part, _)| line.contains(part))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns `README.md` and the pages below `docs`.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    for folder in ["docs", "docs/measurements"] {
        let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
        pages.extend(entries.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    pages.sort();
    pages
}

/// Writes the files that commands of a page read.
fn prepare(scratch: &Scratch, directory: &Path, steps: &[Step]) {
    fs::create_dir(directory).unwrap();
    shell(directory, "flowgauge generate delay,shape=conversations,requests=3k --to trace.pcap");
    // Formats are detected from the content.
    for name in ["trace.pcapng", "monday-1.pcap.gz", "tuesday.pcap.zst"] {
        fs::copy(directory.join("trace.pcap"), directory.join(name)).unwrap();
    }
    fs::write(directory.join("sites.txt"), "berlin 10.1.0.0/16\nparis 10.2.0.0/16\n").unwrap();
    fs::write(directory.join("flowgauge.toml"), "# One source.\ninterface = \"eth1\"\n").unwrap();
    if !steps.iter().any(|step| step.line.contains("merge lake")) {
        return;
    }
    let mut trust = String::new();
    for (host, site) in [("paris", 1), ("berlin", 2)] {
        let key = directory.join(format!("{host}.key"));
        trust += &finish(command(&format!("lake key --host {host}")).arg(&key)).stdout;
        let mut replay = command(&format!("replay --host {host} --window 1m --align"));
        replay.arg(capture(scratch, site)).arg("--lake-key").arg(&key);
        finish(replay.arg("--lake").arg(directory.join("lake"))).ended(0);
    }
    fs::write(directory.join("trust"), trust).unwrap();
}

/// Runs the commands of those pages whose names are chosen.
fn run_pages(test: &str, is_chosen: impl Fn(&str) -> bool) {
    let scratch = Scratch::new(test);
    for page in pages() {
        let name = page.file_name().unwrap().to_str().unwrap();
        let steps = steps(&fs::read_to_string(&page).unwrap());
        if !is_chosen(name) || steps.is_empty() {
            continue;
        }
        let directory = scratch.path(name);
        prepare(&scratch, &directory, &steps);
        for step in &steps {
            if let Some((_, reason)) = needs(&step.line) {
                println!("{name}: not run, it needs {reason}: {}", step.line);
                understood(&step.line);
                continue;
            }
            let is_endless = ENDLESS.iter().any(|beginning| step.line.starts_with(beginning));
            let line = step.line.clone() + if is_endless { " --duration 2s" } else { "" };
            compare(step, &shell(&directory, &line));
        }
        fs::remove_dir_all(&directory).unwrap();
    }
}

#[test]
fn every_command_of_the_readme_runs_or_is_listed() {
    run_pages("pages-readme", |page| page == "README.md");
}

#[test]
fn every_command_of_the_fleet_page_runs_or_is_listed() {
    run_pages("pages-fleet", |page| page == "fleet.md");
}

#[test]
fn every_command_of_the_generator_page_runs_or_is_listed() {
    run_pages("pages-generate", |page| page == "generate.md");
}

#[test]
fn every_command_of_other_pages_runs_or_is_listed() {
    run_pages("pages", |page| !["README.md", "fleet.md", "generate.md"].contains(&page));
}

#[test]
fn the_picture_of_the_readme_is_what_this_build_prints() {
    let mut python = Command::new("python3");
    python.arg(root().join("docs/picture")).args([env!("CARGO_BIN_EXE_flowgauge"), "--check"]);
    let Ok(output) = python.output() else { return skip("python3") };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_is_listed_is_on_a_page() {
    let lines: Vec<String> = pages()
        .iter()
        .flat_map(|page| steps(&fs::read_to_string(page).unwrap()))
        .map(|step| step.line)
        .collect();
    for listed in &NOT_RUN {
        let is_used = lines.iter().any(|line| needs(line).is_some_and(|found| found == listed));
        assert!(is_used, "listed, but on no page: {listed:?}");
    }
}

#[test]
fn blocks_of_a_terminal_become_steps() {
    let page = "text\n\n```console\n$ one --two            # three\n# four \\\n      five\noutput \n```\n\n```text\n$ six\n```\n";
    let step = |line: &str, shown: &[&str]| Step {
        line: line.to_owned(),
        shown: shown.iter().map(|&line| line.to_owned()).collect(),
    };
    assert_eq!(steps(page), [step("one --two", &[]), step("four five", &["output"])]);
}
