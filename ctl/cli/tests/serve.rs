//! What a run tells over HTTP: metrics, events, health; and what it does with readers that mean no good.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Running, flowgauge};
use flowgauge_testing::skip;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{ChildStderr, Command, Stdio};
use std::time::Duration;

/// A run that listens wherever there is room.
struct Served {
    running: Running,
    address: SocketAddr,
    stderr: BufReader<ChildStderr>,
}

/// Everything that is measured, so that nothing is left out of what is told.
const ALL: &str = "cardinality,entropy,frequency,membership,heavy,sizes,delay,reorder";

impl Served {
    fn start(options: &str) -> Self {
        let mut command = flowgauge();
        command.args(["run", "--window", "100ms", "--format", "json", "--seed", "1", "--listen", "0", "--host", "here"]);
        let mut running = Running::of(command.args(options.split_whitespace()));
        let mut stderr = BufReader::new(running.child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let address = line.strip_prefix("http://").and_then(|rest| rest.split_once(' ')).unwrap_or_else(|| panic!("{line}"));
        Served { address: address.0.parse().unwrap(), running, stderr }
    }

    fn window(&mut self) -> Value {
        loop {
            let record: Value = serde_json::from_str(&self.running.line()).unwrap();
            if record["record"] == "window" {
                return record;
            }
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Status, headers and body of an answer.
    fn ask(&self, request: &str) -> (u16, String, String) {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        (status, head.to_lowercase(), body.to_owned())
    }

    fn get(&self, path: &str) -> (u16, String, String) {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address))
    }

    fn metrics(&self) -> BTreeMap<String, f64> {
        let (status, _, text) = self.get("/metrics");
        assert_eq!(status, 200, "{text}");
        parsed(&text)
    }

    /// Reads events up to one of this number.
    fn events(&self, last: Option<u64>, until: u64) -> Vec<Value> {
        let mut stream = self.connect();
        let last = last.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        write!(stream, "GET /events HTTP/1.1\r\nHost: localhost\r\n{last}\r\n").unwrap();
        let mut events = Vec::new();
        for line in BufReader::new(stream).lines().map(Result::unwrap) {
            let Some(event) = line.strip_prefix("data: {\"id\"") else { continue };
            let event: Value = serde_json::from_str(&format!("{{\"id\"{event}")).unwrap();
            let id = event["id"].as_u64().unwrap();
            events.push(event);
            if id >= until {
                break;
            }
        }
        events
    }

    fn end(mut self) -> String {
        self.running.interrupt();
        let (mut told, mut rest) = (String::new(), Vec::new());
        self.running.stdout.take().unwrap().read_to_end(&mut rest).unwrap();
        self.stderr.read_to_string(&mut told).unwrap();
        assert!(self.running.child.wait().unwrap().success(), "{told}");
        told
    }
}

/// Names and labels with their values.
fn parsed(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').unwrap()).map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
}

#[test]
fn metrics_are_those_of_the_windows() {
    let mut served = Served::start(&format!("--port memory:zipf,rate=50k --measure {ALL} --alarm --query 10.0.0.1"));
    let mut windows = vec![served.window(), served.window(), served.window()];
    let metrics = served.metrics();
    windows.extend((0..5).map(|_| served.window()));
    let one = |name: &str| {
        let mut found = metrics.iter().filter(|(it, _)| it.starts_with(&format!("flowgauge_{name}{{")));
        *found.next().unwrap_or_else(|| panic!("{name} is not in {metrics:?}")).1
    };
    let ipv4: f64 =
        metrics.iter().filter(|(name, _)| name.contains("packets_total") && name.contains("\"ipv4\"")).map(|(_, it)| it).sum();
    let mut sum = 0.0;
    let last = windows.iter().position(|window| {
        sum += window["ipv4_packets"].as_f64().unwrap();
        sum == ipv4
    });
    let last = &windows[last.unwrap_or_else(|| panic!("{ipv4} is no sum of {windows:?}"))];
    // Reading JSON may round the last digit.
    let is_same = |name: &str, told: &Value| {
        let (mine, told) = (one(name), told.as_f64().unwrap());
        assert!((mine - told).abs() <= told.abs() * 1e-12, "{name}: {mine} {told}");
    };
    is_same("distinct_flows", &last["cardinality"]["estimate"]);
    is_same("distinct_flows_low", &last["cardinality"]["low"]);
    is_same("distinct_flows_high", &last["cardinality"]["high"]);
    is_same("entropy_high", &last["entropy"]["dst"]["high"]);
    is_same("mean_packet_length_bytes", &last["sizes"]["mean"]["value"]);
    assert_eq!(one("packet_lengths_bytes_count"), ipv4);
    assert!(metrics.keys().any(|name| name.contains("flowgauge_heavy_flows{") && name.contains("rank=\"1\"")));
    // No address is a label.
    assert!(!metrics.keys().any(|name| name.contains("=\"10.")), "{metrics:?}");
    let (status, head, body) = served.get("/health");
    assert_eq!((status, body.as_str()), (200, "well\n"), "{head}");
    served.end();
}

#[test]
fn prometheus_has_nothing_to_say_against_the_metrics() {
    if Command::new("promtool").arg("--version").output().is_err() {
        skip("promtool");
        return;
    }
    let mut served = Served::start(&format!("--port memory:zipf,rate=50k --measure {ALL} --query 10.0.0.1"));
    served.window();
    served.window();
    let (_, _, text) = served.get("/metrics");
    let mut promtool = Command::new("promtool");
    let mut promtool = promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    served.end();
}

#[test]
fn events_are_all_windows_and_go_on_where_a_reader_stopped() {
    let served = Served::start("--port memory:zipf,rate=5k");
    let first = served.events(None, 5);
    assert_eq!(first.iter().map(|it| it["id"].as_u64().unwrap()).collect::<Vec<_>>(), (0..=5).collect::<Vec<_>>());
    let more = served.events(Some(3), 8);
    assert_eq!(more.iter().map(|it| it["id"].as_u64().unwrap()).collect::<Vec<_>>(), (4..=8).collect::<Vec<_>>());
    assert_eq!(first[4..], more[..2]);
    let figures = first[3]["figures"].as_array().unwrap();
    let flows = figures.iter().find(|figure| figure["name"] == "distinct_flows").unwrap();
    assert!(flows["number"]["low"].as_f64().unwrap() <= flows["number"]["value"].as_f64().unwrap());
    let (status, head, page) = served.get("/");
    assert!(status == 200 && head.contains("content-security-policy: default-src 'none'") && page.contains("<title>flowgauge"));
    // Nothing of the page is loaded from elsewhere.
    for asset in ["/", "/page.js", "/page.css", "/uplot.css"] {
        let (status, _, text) = served.get(asset);
        assert!(status == 200 && !text.replace("http://www.w3.org/2000/svg", "").contains("//www"), "{asset}");
    }
    let (_, _, about) = served.get("/about");
    assert_eq!(serde_json::from_str::<Value>(&about).unwrap()["host"], "here");
    served.end();
}

#[test]
fn readers_that_mean_no_good_are_turned_away() {
    let mut served = Served::start("--port memory:zipf,rate=5k");
    let address = served.address;
    let ask = |request: &str| served.ask(request).0;
    for host in ["evil.example", "localhost.evil.example", "10.0.0.1", "", "127.0.0.1.evil.example:80"] {
        assert_eq!(ask(&format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")), 421, "{host}");
    }
    for host in ["localhost", "localhost:1", "127.0.0.1", "127.9.9.9:80", "[::1]", "[::1]:80"] {
        assert_eq!(ask(&format!("GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")), 200, "{host}");
    }
    let host = format!("Host: {address}\r\nConnection: close\r\n");
    assert_eq!(ask(&format!("POST /metrics HTTP/1.1\r\n{host}Content-Length: 5\r\n\r\nhello")), 405);
    assert_eq!(ask(&format!("DELETE / HTTP/1.1\r\n{host}\r\n")), 405);
    assert_eq!(ask(&format!("GET /../../etc/passwd HTTP/1.1\r\n{host}\r\n")), 404);
    assert_eq!(ask("\u{16}\u{3}\u{1} a greeting of TLS\r\n\r\n"), 400);
    assert_eq!(ask(&format!("GET / HTTP/1.1\r\n{host}X: {}\r\n\r\n", "x".repeat(64 << 10))), 431);
    // More connections than there is room for, none of which says anything.
    let silent: Vec<TcpStream> = (0..300).map(|_| served.connect()).collect();
    let closed = silent.iter().skip(64).filter(|stream| (&**stream).read(&mut [0]).is_ok_and(|read| read == 0)).count();
    assert_eq!(closed, 236);
    // Counting goes on, and so do answers when they have gone.
    let before = served.window()["window"].as_u64().unwrap();
    drop(silent);
    let after = served.window()["window"].as_u64().unwrap();
    assert!(after > before);
    let is_answered = || {
        let mut stream = served.connect();
        let asked = write!(stream, "GET /health HTTP/1.1\r\n{host}\r\n");
        let mut answer = String::new();
        asked.and_then(|()| stream.read_to_string(&mut answer)).is_ok() && answer.contains("well")
    };
    while !is_answered() {}
    let told = served.end();
    // One line of all of them.
    assert_eq!(told.matches("connections over HTTP are open").count(), 1, "{told}");
}

#[test]
fn a_run_listens_where_only_this_machine_can_ask() {
    let refused = |options: &[&str]| flowgauge().args(options).output().unwrap();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
        let output = refused(&["run", "--port", "memory:zipf", "--listen", address]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && told.contains("can be reached by others"), "{told}");
    }
    let output = refused(&["replay", "nothing.pcap", "--listen", "0"]);
    assert!(output.status.code() == Some(2) && String::from_utf8_lossy(&output.stderr).contains("--listen is for"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = refused(&["run", "--port", "memory:zipf", "--listen", &address]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && told.contains(&address) && told.contains("--listen takes another one"), "{told}");
}
