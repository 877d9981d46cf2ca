//! Consistency of `deploy/` with the program.

use crate::common::served::{ALL, Served, certificate, secret};
use crate::common::{
    Outcome, Running, Scratch, assert_has, command, finish, generated, list, number, run,
};
use flowgauge_bfruntime::server::Target;
use flowgauge_p4_model::Switch;
use flowgauge_p4_model::wire::{Wire, wait};
use flowgauge_testing::model;
use flowgauge_testing::{on_veth, skip};
use flowgauge_traffic::frame;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn deploy(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(path)
}

fn read(path: &str) -> String {
    let path = deploy(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the metrics of flowgauge that a text names.
fn named(text: &str) -> BTreeSet<String> {
    let is_part = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == ':';
    let is_metric = |word: &&str| word.starts_with("flowgauge_") || word.starts_with("process_");
    text.split(|it| !is_part(it)).filter(is_metric).map(str::to_owned).collect()
}

/// Returns the families and series that a run serves once it serves one of these.
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
    let scratch = Scratch::new("named");
    let replayed = |name: &str, profile: &str| {
        format!("--port pcap:{} --measure delay,reorder", generated(&scratch, name, profile))
    };
    // All measurements, on traffic with data for every metric.
    let everything = format!(
        "--port memory:zipf,rate=50k --measure {ALL} --alarm --query 10.0.0.1 --truth --alert packets>1G"
    );
    let lake = format!("--port memory:unique,rate=5k --lake {}", scratch.argument("lake"));
    // The alarm reports nothing while it learns. At these rates the captures are long enough.
    let delays = replayed("delay.pcap", "delay,shape=conversations,rate=500,requests=50k");
    let reordering = replayed("reorder.pcap", "reorder,rate=2k,packets=200k,prefixes=50,heavy=5");
    let mut known = served(&everything, "flowgauge_alarm{");
    known.extend(served(&delays, "flowgauge_delay_low_seconds{"));
    known.extend(served(&reordering, "flowgauge_reordering_prefixes_ratio{"));
    known.extend(served(&lake, "flowgauge_lake_waiting_rows"));
    // Only a lake in an object store has files that wait.
    known.insert("flowgauge_lake_waiting_files".to_owned());
    // A native histogram has the name of its family.
    let families: Vec<String> =
        known.iter().filter_map(|name| name.strip_suffix("_bucket")).map(str::to_owned).collect();
    known.extend(families);
    // Generated traffic and captures come from no device with a ledger.
    for name in ["flowgauge_unaccounted_packets_total", "flowgauge_received_packets_total"] {
        known.insert(name.to_owned());
    }
    for file in ["prometheus/flowgauge.rules.yml", "grafana/flowgauge.json"] {
        let unknown: Vec<String> =
            named(&read(file)).into_iter().filter(|name| !known.contains(name)).collect();
        assert!(unknown.is_empty(), "{file} names {unknown:?}, of {known:?}");
    }
}

#[test]
fn prometheus_takes_the_rules() {
    if Command::new("promtool").arg("--version").output().is_err() {
        return skip("promtool");
    }
    for [command, what, file] in [
        ["check", "rules", "prometheus/flowgauge.rules.yml"],
        ["test", "rules", "prometheus/flowgauge.rules.test.yml"],
        ["check", "config", "prometheus/prometheus.yml"],
    ] {
        finish(Command::new("promtool").args([command, what]).arg(deploy(file))).ended(0);
    }
    // The jobs for other machines and for pods, which are comments.
    let scratch = Scratch::new("prometheus");
    let config = read("prometheus/prometheus.yml").replace("\n  # ", "\n  ");
    // Debian's promtool is built without the discovery of Kubernetes.
    let discovery = "kubernetes_sd_configs:\n      - role: pod\n        namespaces:\n          names: [flowgauge]\n";
    assert_has(&config, &["\n  - job_name: flowgauge-pods\n", discovery]);
    let config = config.replace(discovery, "static_configs: []\n");
    let path = scratch.write("prometheus.yml", config);
    scratch.write("flowgauge.rules.yml", read("prometheus/flowgauge.rules.yml"));
    finish(Command::new("promtool").args(["check", "config", "--syntax-only", &path])).ended(0);
}

/// Each rule is tested with series on which it fires, and with series on which it does not, and the
/// page for the person on call has its first step.
#[test]
fn every_rule_is_tested_both_ways_and_has_a_first_step() {
    let (rules, tests) =
        (read("prometheus/flowgauge.rules.yml"), read("prometheus/flowgauge.rules.test.yml"));
    let (fires, silent) = tests.split_once("- name: no rule fires").unwrap();
    let steps = read("../docs/alarm.md");
    let alerts: Vec<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    for alert in alerts {
        let fired = format!("alertname: {alert}, exp_alerts: [{{");
        let unfired = format!("{{eval_time: 30m, alertname: {alert}, exp_alerts: []}}");
        assert!(fires.contains(&fired) && silent.contains(&unfired), "{alert}");
        // The page is about the alert of an attack.
        let step = format!("`{alert}`");
        let is_row = |line: &str| line.starts_with("| `") && line.contains(&step);
        assert!(alert == "FlowgaugeAttack" || steps.lines().any(is_row), "{alert} has no row");
    }
}

/// A release removes its folder first: only one that it made itself.
#[test]
fn a_release_removes_no_folder_of_others() {
    let scratch = Scratch::new("release");
    let tools = scratch.path("tools");
    fs::create_dir(&tools).unwrap();
    // Without git and the others the script ends after it has checked the folder.
    for tool in ["bash", "dirname", "find", "grep", "head", "id", "realpath", "sed", "uname"] {
        let found = std::env::split_paths(&std::env::var_os("PATH").unwrap())
            .map(|directory| directory.join(tool))
            .find(|path| path.is_file());
        let Some(found) = found else { return skip(tool) };
        std::os::unix::fs::symlink(found, tools.join(tool)).unwrap();
    }
    let script = deploy("../release/build");
    let release = |folder: &str| {
        let mut command = Command::new(tools.join("bash"));
        command.arg(&script).arg(scratch.path(folder)).env("PATH", &tools);
        finish(&mut command).ended(1).stderr
    };
    for folder in ["theirs", "empty", "made"] {
        fs::create_dir(scratch.path(folder)).unwrap();
    }
    let (theirs, file) = (scratch.write("theirs/thesis", "x"), scratch.write("file", "x"));
    let made = scratch.write("made/.flowgauge-release", "");
    let refused = "is not empty, and release/build did not make it";
    assert!(release("theirs").contains(refused) && fs::exists(theirs).unwrap());
    assert!(release("file").contains("is no folder") && fs::exists(file).unwrap());
    for folder in ["absent", "empty", "made"] {
        let printed = release(folder);
        assert!(printed.contains("it needs") || printed.contains("it runs on"), "{printed}");
    }
    // Nothing is removed before the other checks.
    assert!(fs::exists(made).unwrap());
}

#[test]
fn units_are_hardened() {
    let is_there = Command::new("systemd-analyze").args(["security", "--help"]).output();
    if !is_there.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("--offline")) {
        return skip("systemd-analyze (systemd 250 or later)");
    }
    let scratch = Scratch::new("units");
    let unit = read("systemd/flowgauge.service");
    let (_, adopt) = unit_and_drop_in();
    // Thresholds in tenths. The vendor's driver needs root and the devices of the switch.
    let units = [
        ("flowgauge.service", unit.clone(), 30),
        ("flowgauge-adopt.service", unit + &adopt, 30),
        ("flowgauge-tofino.service", read("tofino/flowgauge-tofino.service"), 30),
        ("bf-switchd.service", read("tofino/bf-switchd.service"), 45),
    ];
    for (name, text, threshold) in units {
        let path = scratch.write(name, text);
        let mut command = Command::new("systemd-analyze");
        command.args(["security", "--offline=true", &format!("--threshold={threshold}"), &path]);
        let Outcome { code, stdout, stderr } = finish(&mut command);
        let printed = stdout + &stderr;
        assert_eq!(code, Some(0), "{name}: {}", printed.lines().last().unwrap_or_default());
        assert!(!printed.contains("ignoring"), "{printed}");
    }
}

fn unit_and_drop_in() -> (String, String) {
    let adopt = read("systemd/adopt.conf");
    let at = adopt.find("[Service]").unwrap();
    (read("systemd/flowgauge.service"), adopt[at..].to_owned())
}

/// Counting many interfaces takes more descriptors than services usually have.
#[test]
fn the_unit_has_descriptors_for_many_interfaces() {
    assert!(read("systemd/flowgauge.service").contains("\nLimitNOFILE=65536\n"));
}

/// Pods are scraped at the port, with the token and the certificate that the DaemonSet mounts.
#[test]
fn pods_are_scraped_where_they_listen() {
    let (pod, monitor) = (read("kubernetes/daemonset.yaml"), read("kubernetes/podmonitor.yaml"));
    for text in [&pod, &monitor] {
        assert_has(text, &["app.kubernetes.io/name: flowgauge"]);
    }
    assert_has(&monitor, &["name: flowgauge-token", "name: flowgauge-tls"]);
    assert_has(&pod, &["secretName: flowgauge-token", "secretName: flowgauge-tls"]);
    assert_has(&pod, &["- name: https\n              containerPort: 9420"]);
    assert_has(&monitor, &["- port: https\n", "scheme: https\n"]);
    // The resource of the Prometheus operator is unknown to a cluster without it.
    assert!(!read("kubernetes/kustomization.yaml").contains("- podmonitor.yaml"));
}

/// The unit, the container and the pod name the same capabilities.
#[test]
fn three_capabilities_are_enough_everywhere() {
    let unit = read("systemd/flowgauge.service");
    for line in ["AmbientCapabilities", "CapabilityBoundingSet"] {
        assert_has(&unit, &[&format!("\n{line}=CAP_BPF CAP_NET_ADMIN CAP_PERFMON\n")]);
    }
    let pod = read("kubernetes/daemonset.yaml");
    let capabilities = "add: [\"BPF\", \"NET_ADMIN\", \"PERFMON\"]";
    assert_has(&pod, &["drop: [\"ALL\"]", capabilities]);
    assert_has(&pod, &["privileged: false", "allowPrivilegeEscalation: false"]);
    assert!(!pod.contains("privileged: true"));
}

/// The pod's probes are commands that succeed for a run that counts.
#[test]
fn probes_of_the_pod_find_a_run_that_counts() {
    let scratch = Scratch::new("probes");
    let asked = |arguments: &str| {
        let mut command = command(arguments);
        command.env("FLOWGAUGE_STATUS_DIR", scratch.path("runs"));
        command
    };
    let pod = read("kubernetes/daemonset.yaml");
    let probe = |kind: &str| {
        let (_, probe) = pod.split_once(&format!("{kind}Probe:\n")).unwrap();
        let (_, words) = probe.split_once("command: ").unwrap();
        let words: Vec<String> = serde_json::from_str(words.lines().next().unwrap()).unwrap();
        assert_eq!(words[0], "flowgauge");
        words[1..].join(" ")
    };
    let probes = ["liveness", "readiness"].map(probe);
    let codes = || probes.each_ref().map(|words| finish(&mut asked(words)).code);
    assert_eq!(codes(), [Some(1); 2], "there is no run");
    let running = Running::of(&mut asked("run --port memory:unique,rate=10k"));
    finish(&mut asked("status --wait")).ended(0);
    assert_eq!(codes(), [Some(0); 2]);
    running.end().ended(0);
}

/// Configuration files have valid options.
#[test]
fn configurations_are_understood() {
    for file in ["systemd/flowgauge.toml", "kubernetes/flowgauge.toml"] {
        let scratch = Scratch::new("configuration");
        let token = secret(&scratch, "token", "0123456789abcdef0123456789abcdef");
        let (certificate, key) = certificate(&scratch);
        let text = read(file)
            // With an interface that does not exist, everything else is checked first.
            .replace("eth0", "no-such-if0")
            .replace("eth1", "no-such-if0")
            .replace("/etc/flowgauge-tls/tls.crt", &certificate)
            .replace("/etc/flowgauge-tls/tls.key", &key)
            .replace("/etc/flowgauge-token/token", &token)
            .replace(":9420", ":0");
        let path = scratch.write("flowgauge.toml", text);
        let printed = run(["run", "--config", &path]).ended(1).stderr;
        assert!(!printed.contains("configuration"), "{file}: {printed}");
    }
}

/// Variable with the directory of the vendor's client: `bfrt_grpc`, and in it the `protoc` output
/// of the public `bfruntime.proto`.
const CLIENT: &str = "TEST_BFRT_GRPC";
/// Variable with a Python interpreter that has the client's dependencies.
const PYTHON: &str = "TEST_PYTHON";

/// The vendor's client reads the schema, registers by `Sync`, and a digest, of a model that has
/// counted packets from a wire.
#[test]
fn a_switch_is_checked_with_the_vendors_client() {
    let python = std::env::var(PYTHON).unwrap_or_else(|_| "python3".to_owned());
    let Some(folder) = std::env::var_os(CLIENT).map(PathBuf::from) else {
        return skip(format!(
            "the vendor's client, bfrt_grpc (the folder that has it is {CLIENT})"
        ));
    };
    let path = std::env::join_paths([folder.join("bfrt_grpc"), folder]).unwrap();
    let imported = Command::new(&python)
        .args(["-c", "import bfrt_grpc.client"])
        .env("PYTHONPATH", &path)
        .output();
    if !imported.is_ok_and(|output| output.status.success()) {
        return skip(format!("a Python that can import bfrt_grpc.client ({PYTHON})"));
    }
    on_veth(move || {
        flowgauge_traffic::veth::ip("link set dev lo up").unwrap();
        let scratch = Scratch::new("vendors-client");
        let switch = switch();
        let running = model::serve(Arc::clone(&switch) as Arc<dyn Target>);
        let samples = format!("--delay-samples {}", scratch.argument("samples.json"));
        let mut checking = Command::new(&python)
            .arg(deploy("tofino/check.py"))
            .args(["--address", &running.address().to_string(), "--interface", "tx"])
            .args(["--on-input", "--digests", "1"])
            .args(["--flowgauge", env!("CARGO_BIN_EXE_flowgauge")])
            .args(["--options", "--registers 512 --measure cardinality,delay --delay icmp"])
            .args(["--run-options", &samples])
            .env("PYTHONPATH", &path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (ended, mut wires) = (AtomicBool::new(false), [Wire::open("rx").unwrap()]);
        let printed = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Acquire) {
                    wait(&wires, Duration::from_millis(20)).unwrap();
                    while let Some(frame) = wires[0].receive().unwrap() {
                        switch.enter().arrive(switch.port(1), frame).unwrap();
                    }
                }
            });
            let mut printed = Vec::new();
            for line in BufReader::new(checking.stdout.take().unwrap()).lines() {
                let line = line.unwrap();
                if line == "ready" {
                    for is_reply in [false, true] {
                        switch.enter().arrive(switch.port(0), &echo(is_reply)).unwrap();
                    }
                    checking.stdin.take().unwrap().write_all(b"\n").unwrap();
                }
                printed.push(line);
            }
            ended.store(true, Ordering::Release);
            printed
        });
        assert!(checking.wait().unwrap().success(), "{printed:#?}");
        let [capture, times, _ready, client] = &printed[..] else { panic!("{printed:#?}") };
        let equal = "ok capture: 3000 packets, equal to software in packets, bytes, ";
        assert!(capture.starts_with(equal), "{capture}");
        assert_has(capture, &["cardinality", "delay"]);
        assert!(times.starts_with("ok read times: a rotation takes up to "), "{times}");
        let client: Value =
            serde_json::from_str(client.strip_prefix("ok client: ").unwrap()).unwrap();
        assert_eq!(client["hash"], 0xa757_b578_u32);
        assert!(number(&client, "tables") > 20, "{client}");
        // The echo request and its reply arrived at the first pipe, and are in the open window.
        let register = |name: &str| &client["registers"][format!("pipe.Ingress.flowgauge.{name}")];
        assert_eq!(register("delay.requests:low"), &json!([1, 0]), "{client}");
        let levels = register("cardinality_by_src.registers:f1");
        assert!(levels[0].as_u64().unwrap() >= 2 && levels[1] == 0, "{client}");
        let [digest] = list(&client, "digests") else { panic!("{client}") };
        assert!(digest["kind"] == 0 && number(digest, "weight") > 0, "{client}");
        assert_ne!(digest["src"], digest["dst"], "{client}");
    });
}

fn switch() -> Arc<Switch> {
    model::switch([
        ("FLOWGAUGE_PRECISION", 9),
        ("FLOWGAUGE_DELAY", 1),
        ("FLOWGAUGE_DELAY_ICMP", 1),
        ("FLOWGAUGE_DELAY_SAMPLES", 1),
    ])
}

/// Returns an echo request from 10.0.0.1 to 10.0.0.2, or its reply.
fn echo(is_reply: bool) -> Vec<u8> {
    let (from, to) = if is_reply { (2, 1) } else { (1, 2) };
    let mut frame = frame::echo([10, 0, 0, from], [10, 0, 0, to], 0x0007_0001, is_reply);
    frame.resize(60, 0);
    frame
}
