//! What `deploy/` says of the program is so.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::flowgauge;
use common::served::{Served, certificate, secret};
use flowgauge_testing::skip;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Everything that is measured, on traffic of which every metric tells something.
const EVERYTHING: &str = "--port memory:zipf,rate=50k --measure cardinality,entropy,frequency,membership,heavy,sizes,delay,reorder --alarm \
                          --query 10.0.0.1 --truth";

fn deploy(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(path)
}

fn read(path: &str) -> String {
    let path = deploy(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Metrics of ours that a text names.
fn named(text: &str) -> BTreeSet<String> {
    let is_part = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == ':';
    let words = text.split(|it| !is_part(it)).filter(|word| word.starts_with("flowgauge_") || word.starts_with("process_"));
    words.map(str::to_owned).collect()
}

/// What a run serves once it serves one of these: families and their series.
fn served(options: &str, marker: &str) -> BTreeSet<String> {
    let mut served = Served::start(options);
    let known = loop {
        served.window();
        let metrics = served.metrics();
        if metrics.keys().any(|series| series.starts_with(marker)) {
            break metrics;
        }
    };
    served.end();
    known.into_keys().map(|series| series.split('{').next().unwrap().to_owned()).collect()
}

#[test]
fn every_metric_that_is_named_exists() {
    let scratch = common::Scratch::new("named");
    let generated = |profile: &str| {
        let path = scratch.path(profile.split(',').next().unwrap()).with_extension("pcap");
        let output = flowgauge().args(["generate", profile, "--to"]).arg(&path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        format!("--port pcap:{} --measure delay,reorder", path.display())
    };
    // The alarm learns before it says something. At these rates the captures last longer than anybody waits for.
    let mut known = served(EVERYTHING, "flowgauge_alarm{");
    known.extend(served(&generated("delay,shape=conversations,rate=500,requests=50k"), "flowgauge_delay_low_seconds{"));
    known.extend(served(&generated("reorder,rate=2k,packets=200k,prefixes=50,heavy=5"), "flowgauge_reordering_prefixes_ratio{"));
    for file in ["prometheus/flowgauge.rules.yml", "grafana/flowgauge.json"] {
        let unknown: Vec<String> = named(&read(file)).into_iter().filter(|name| !known.contains(name)).collect();
        assert!(unknown.is_empty(), "{file} names {unknown:?}, of {known:?}");
    }
}

#[test]
fn prometheus_takes_the_rules() {
    if Command::new("promtool").arg("--version").output().is_err() {
        skip("promtool");
        return;
    }
    for arguments in [["check", "rules", "prometheus/flowgauge.rules.yml"], ["check", "config", "prometheus/prometheus.yml"]] {
        let output = Command::new("promtool").args(&arguments[..2]).arg(deploy(arguments[2])).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn units_are_hardened() {
    let is_there = Command::new("systemd-analyze").args(["security", "--help"]).output();
    if !is_there.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("--offline")) {
        skip("systemd-analyze (systemd 250 or later)");
        return;
    }
    let scratch = common::Scratch::new("units");
    let unit = read("systemd/flowgauge.service");
    let (_, adopt) = unit_and_drop_in();
    let units = [
        ("flowgauge.service", unit.clone()),
        ("flowgauge-adopt.service", unit + &adopt),
        ("flowgauge-tofino.service", read("tofino/flowgauge-tofino.service")),
    ];
    for (name, text) in units {
        let path = scratch.write(name, text);
        // Its own unit of measure: tenths.
        let output =
            Command::new("systemd-analyze").args(["security", "--offline=true", "--threshold=30", &path]).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {}", told.lines().last().unwrap_or_default());
        assert!(!told.contains("ignoring"), "{told}");
    }
}

fn unit_and_drop_in() -> (String, String) {
    let adopt = read("systemd/adopt.conf");
    let at = adopt.find("[Service]").unwrap();
    (read("systemd/flowgauge.service"), adopt[at..].to_owned())
}

/// The unit, the container and the pod name the same capabilities.
#[test]
fn three_capabilities_are_enough_everywhere() {
    let unit = read("systemd/flowgauge.service");
    for line in ["AmbientCapabilities", "CapabilityBoundingSet"] {
        assert!(unit.contains(&format!("\n{line}=CAP_BPF CAP_NET_ADMIN CAP_PERFMON\n")), "{line}");
    }
    let pod = read("kubernetes/daemonset.yaml");
    for line in
        ["drop: [\"ALL\"]", "add: [\"BPF\", \"NET_ADMIN\", \"PERFMON\"]", "privileged: false", "allowPrivilegeEscalation: false"]
    {
        assert!(pod.contains(line), "{line}");
    }
    assert!(!pod.contains("privileged: true"));
}

/// Configurations hold options that there are.
#[test]
fn configurations_are_understood() {
    for file in ["systemd/flowgauge.toml", "kubernetes/flowgauge.toml"] {
        let text = read(file);
        // An interface that does not exist: everything before that was understood.
        let text = text.replace("eth0", "no-such-if0").replace("eth1", "no-such-if0");
        let scratch = common::Scratch::new("configuration");
        let token = secret(&scratch, "token", "0123456789abcdef0123456789abcdef");
        let (certificate, key) = certificate(&scratch);
        let text = text.replace("/etc/flowgauge-tls/tls.crt", &certificate).replace("/etc/flowgauge-tls/tls.key", &key);
        let text = text.replace("/etc/flowgauge-token/token", &token).replace(":9420", ":0");
        let path = scratch.write("flowgauge.toml", text);
        let output = flowgauge().args(["run", "--config", &path]).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && !told.contains("configuration"), "{file}: {told}");
    }
}
