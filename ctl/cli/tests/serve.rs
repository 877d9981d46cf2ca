//! HTTP server of a run: metrics, events, health, and its behaviour with malicious clients.

use crate::common::served::{
    ALL, Served, assert_once, certificate, closed, encrypted, exchange, exchange_bytes, parsed,
    secret,
};
use crate::common::{Scratch, assert_has, execute, generated};
use flowgauge_ctl::output::proto;
use flowgauge_testing::skip;
use flowgauge_testing::wait::until;
use prost::Message;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread;

#[test]
fn metrics_are_those_of_the_windows() {
    let mut served = Served::start(&format!(
        "--port memory:zipf,rate=50k --measure {ALL} --alarm --query 10.0.0.1"
    ));
    let mut windows = vec![served.window(), served.window(), served.window()];
    let metrics = served.metrics();
    windows.extend((0..5).map(|_| served.window()));
    let one = |name: &str| {
        let mut found =
            metrics.iter().filter(|(it, _)| it.starts_with(&format!("flowgauge_{name}{{")));
        *found.next().unwrap_or_else(|| panic!("{name} is not in {metrics:?}")).1
    };
    let ipv4: f64 = metrics
        .iter()
        .filter(|(name, _)| name.contains("packets_total") && name.contains("\"ipv4\""))
        .map(|(_, it)| it)
        .sum();
    let mut sum = 0.0;
    let last = windows.iter().position(|window| {
        sum += window["ipv4_packets"].as_f64().unwrap();
        sum == ipv4
    });
    let last = &windows[last.unwrap_or_else(|| panic!("{ipv4} is not a sum of {windows:?}"))];
    // Parsing JSON may round the last digit.
    let is_same = |name: &str, printed: &Value| {
        let (mine, printed) = (one(name), printed.as_f64().unwrap());
        assert!((mine - printed).abs() <= printed.abs() * 1e-12, "{name}: {mine} {printed}");
    };
    is_same("distinct_flows", &last["cardinality"]["estimate"]);
    is_same("distinct_flows_low", &last["cardinality"]["low"]);
    is_same("distinct_flows_high", &last["cardinality"]["high"]);
    is_same("entropy_high", &last["entropy"]["dst"]["high"]);
    is_same("mean_packet_length_bytes", &last["sizes"]["mean"]["value"]);
    assert_eq!(one("packet_lengths_bytes_count"), ipv4);
    assert!(
        metrics
            .keys()
            .any(|name| name.contains("flowgauge_heavy_flows{") && name.contains("rank=\"1\""))
    );
    // Addresses are not used as labels.
    assert!(!metrics.keys().any(|name| name.contains("=\"10.")), "{metrics:?}");
    served.answers("/health", 200, "well\n");
    served.answers("/ready", 200, "ready\n");
    served.answers("/live", 200, "alive\n");
    // An only source has the label of its windows.
    let up: Vec<_> =
        metrics.iter().filter(|(name, _)| name.starts_with("flowgauge_source_up{")).collect();
    let [(name, value)] = up[..] else { panic!("{up:?}") };
    let source = windows[0]["interface"].as_str().unwrap();
    assert_eq!(
        (name.as_str(), *value),
        (&*format!("flowgauge_source_up{{source=\"{source}\"}}"), 1.0)
    );
    served.end();
}

#[test]
fn a_run_is_not_ready_without_one_of_its_sources() {
    let scratch = Scratch::new("ready");
    let source = |name: &str, port: &str| format!("[[source]]\nname = '{name}'\nport = '{port}'\n");
    let config =
        source("good", "memory:unique,rate=20k") + &source("bad", "pcap:/does/not/exist.pcap");
    let mut served = Served::start(&format!("--config {}", scratch.write("sources.toml", config)));
    served.window();
    // Wait until both have a final state.
    let printed = loop {
        let (status, _, body) = served.get("/ready");
        if !body.contains("has not begun") {
            break (status, body);
        }
        assert_eq!(status, 503, "{body}");
    };
    assert_eq!(printed, (503, "bad: failed; see the log\n".to_owned()));
    // A restart would not help the other source: it is alive, and the failure is named.
    served.answers("/health", 200, "degraded\nbad: failed; see the log\n");
    let about = served.json("/about");
    assert_eq!(about["problems"], serde_json::json!(["bad: failed; see the log"]));
    let metrics = served.metrics();
    let up = |source: &str| metrics[&format!("flowgauge_source_up{{source=\"{source}\"}}")];
    assert_eq!((up("good"), up("bad")), (1.0, 0.0));
    served.answers("/live", 200, "alive\n");
    assert_eq!(served.json("/status")["failed"], about["problems"]);
    served.outcome().ended(1);
}

#[test]
fn rows_that_no_disk_takes_are_in_the_metrics() {
    let scratch = Scratch::new("lake-behind");
    let lake = scratch.path("lake");
    let mut served = Served::start(&format!(
        "--port memory:unique,rate=5k --lake {} --lake-every 100ms",
        lake.display()
    ));
    served.window();
    let metrics = loop {
        let metrics = served.metrics();
        if metrics.contains_key("flowgauge_lake_waiting_rows") {
            break metrics;
        }
        served.window();
    };
    assert_eq!(metrics["flowgauge_lake_lost_rows_total"], 0.0);
    assert!(!metrics.contains_key("flowgauge_lake_waiting_files"), "there is no store");
    assert!(metrics.keys().any(|name| name.starts_with("flowgauge_incomplete_windows_total{")));
    // Neither journals nor files can be created in a directory that is gone.
    // Removing it fails while a file is created there.
    until(|| fs::remove_dir_all(lake.join(".journal")).is_ok());
    while served.metrics()["flowgauge_lake_waiting_rows"] < 3.0 {
        served.window();
    }
}

#[test]
fn prometheus_has_nothing_to_say_against_the_metrics() {
    if Command::new("promtool").arg("--version").output().is_err() {
        return skip("promtool");
    }
    let mut served =
        Served::start(&format!("--port memory:zipf,rate=50k --measure {ALL} --query 10.0.0.1"));
    served.window();
    served.window();
    let (_, _, text) = served.get("/metrics");
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().unwrap();
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    served.end();
}

/// Parses metrics in protocol buffers into names with labels and their values, as in the text
/// format.
fn flat(mut bytes: &[u8]) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    while !bytes.is_empty() {
        let family = proto::MetricFamily::decode_length_delimited(&mut bytes).unwrap();
        assert!(!family.help().is_empty());
        for metric in &family.metric {
            let labels: Vec<String> =
                metric.label.iter().map(|it| format!("{}=\"{}\"", it.name(), it.value())).collect();
            let mut add = |end: &str, more: &[String], value: f64| {
                let labels = [&labels[..], more].concat().join(",");
                let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
                assert_eq!(all.insert(format!("{}{end}{labels}", family.name()), value), None);
            };
            match family.r#type() {
                proto::MetricType::Counter => add("", &[], metric.counter.unwrap().value()),
                proto::MetricType::Gauge => add("", &[], metric.gauge.unwrap().value()),
                proto::MetricType::Histogram => {
                    let histogram = metric.histogram.as_ref().unwrap();
                    let count = histogram.sample_count() as f64;
                    add("_count", &[], count);
                    add("_sum", &[], histogram.sample_sum());
                    for bucket in &histogram.bucket {
                        add(
                            "_bucket",
                            &[format!("le=\"{}\"", bucket.upper_bound())],
                            bucket.cumulative_count() as f64,
                        );
                    }
                    add("_bucket", &["le=\"+Inf\"".to_owned()], count);
                    // Each value is in one native bucket.
                    let counts = histogram.positive_delta.iter().scan(0, |count, delta| {
                        *count += delta;
                        Some(*count)
                    });
                    assert_eq!(
                        histogram.zero_count() as i64 + counts.sum::<i64>(),
                        histogram.sample_count() as i64,
                        "{histogram:?}"
                    );
                    assert!(!histogram.positive_span.is_empty(), "{histogram:?}");
                }
            }
        }
    }
    all
}

#[test]
fn who_asks_for_protocol_buffers_gets_the_same_metrics() {
    let scratch = Scratch::new("protobuf");
    let capture = generated(&scratch, "delays.pcap", "delay,requests=100k,rate=1000");
    let mut served =
        Served::start(&format!("--port pcap:{capture} --measure cardinality,heavy,sizes,delay"));
    let address = served.address;
    let accept = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited, text/plain;q=0.5";
    let ask = |accept: &str| {
        let head = format!(
            "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{accept}\r\n"
        );
        exchange_bytes(&mut TcpStream::connect(address).unwrap(), &head)
    };
    let text = |accept: &str| {
        let (status, head, body) = ask(accept);
        assert_eq!(status, 200, "{head}");
        assert_has(&head, &["content-type: text/plain; version=0.0.4; charset=utf-8"]);
        let mut text = parsed(&String::from_utf8(body).unwrap());
        // It changes between two windows.
        assert!(text.remove("process_cpu_seconds_total").is_some());
        text
    };
    let printed = loop {
        served.window();
        // No window ends between the two, otherwise it is detected here.
        let before = text("");
        let (status, head, body) = ask(&format!("Accept: {accept}\r\n"));
        let after = text("Accept: text/plain, */*\r\n");
        assert_eq!(status, 200);
        let first = accept.to_lowercase().split(',').next().unwrap().replace(';', "; ");
        assert_has(&head, &[&format!("content-type: {first}")]);
        if before == after
            && before.keys().any(|name| name.starts_with("flowgauge_delay_seen_seconds_count"))
        {
            let mut printed = flat(&body);
            assert!(printed.remove("process_cpu_seconds_total").is_some());
            assert_eq!(printed, before);
            break printed;
        }
    };
    assert!(
        printed.keys().any(|name| name.starts_with("flowgauge_packet_lengths_bytes_bucket")),
        "{printed:?}"
    );
    served.end();
}

/// A page that is opened late has what was usual before each window, from the thirty-first on.
#[test]
fn events_have_what_was_usual_once_the_run_knows_it() {
    let served = Served::start("--port memory:unique,rate=20k");
    let usual = |event: &Value| -> Option<f64> {
        let figures = event["figures"].as_array().unwrap();
        let packets = figures.iter().find(|figure| figure["name"] == "packets").unwrap();
        packets["usual"].as_f64()
    };
    // Windows that are too short, after late ones on a busy machine, are not stored.
    let mut until = 40;
    let known = loop {
        let events = served.events(None, until);
        if let Some(first) = events.iter().position(|(_, event)| usual(event).is_some()) {
            break (first, usual(&events[first].1));
        }
        until += 20;
    };
    assert!(known.0 >= 30 && known.1.is_some_and(|rate| rate > 0.0), "{known:?}");
    served.end();
}

#[test]
fn events_are_all_windows_and_go_on_where_a_reader_stopped() {
    let served = Served::start("--port memory:zipf,rate=5k");
    let first = served.events(None, 5);
    let numbers = |events: &[(String, Value)]| {
        events.iter().map(|(_, it)| it["id"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&first), (0..=5).collect::<Vec<_>>());
    let more = served.events(Some(&first[3].0), 8);
    assert_eq!(numbers(&more), (4..=8).collect::<Vec<_>>());
    assert_eq!(first[4..], more[..2]);
    // An event id of another run, or an invalid one, has no meaning here.
    for foreign in ["1234.3", "3", "", "x.y"] {
        assert_eq!(numbers(&served.events(Some(foreign), 2)), [0, 1, 2], "{foreign}");
    }
    let figures = first[3].1["figures"].as_array().unwrap();
    let flows = figures.iter().find(|figure| figure["name"] == "distinct_flows").unwrap();
    assert!(flows["number"]["low"].as_f64().unwrap() <= flows["number"]["value"].as_f64().unwrap());
    let (status, head, page) = served.get("/");
    assert!(
        status == 200
            && head.contains("content-security-policy: default-src 'none'")
            && page.contains("<title>flowgauge")
    );
    // The page loads nothing from elsewhere.
    for asset in ["/", "/page.js", "/page.css", "/uplot.css"] {
        let (status, _, text) = served.get(asset);
        assert!(
            status == 200 && !text.replace("http://www.w3.org/2000/svg", "").contains("//www"),
            "{asset}"
        );
    }
    assert_eq!(served.json("/about")["host"], "here");
    served.end();
}

/// Checks that an answer has the headers that restrict what a browser does with it.
#[track_caller]
fn assert_protected(head: &str) {
    assert_has(
        head,
        &[
            "content-security-policy: default-src 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
        ],
    );
}

/// Returns a request of a client that names this host.
fn request(method_and_path: &str, host: &str) -> String {
    format!("{method_and_path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
}

/// Opens a stream of events, and returns the status of the answer.
fn status_of_events(mut stream: &TcpStream) -> u16 {
    stream.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut line = [0; 12];
    stream.read_exact(&mut line).unwrap();
    std::str::from_utf8(&line).unwrap()["HTTP/1.1 ".len()..].parse().unwrap()
}

#[test]
fn readers_that_mean_no_good_are_turned_away() {
    let mut served = Served::start("--port memory:zipf,rate=5k");
    let address = served.address;
    let ask = |request: &str| served.ask(request).0;
    for host in
        ["evil.example", "localhost.evil.example", "10.0.0.1", "", "127.0.0.1.evil.example:80"]
    {
        let (status, head, _) = served.ask(&request("GET /metrics", host));
        assert_eq!(status, 421, "{host}");
        // Rejections have the same headers as answers.
        assert_protected(&head);
    }
    for host in
        ["localhost", "LOCALHOST", "localhost:1", "127.0.0.1", "127.9.9.9:80", "[::1]", "[::1]:80"]
    {
        assert_eq!(ask(&request("GET /health", host)), 200, "{host}");
    }
    for hosts in ["localhost\r\nHost: localhost", "localhost\r\nhost: evil.example"] {
        let (status, head, _) = served.ask(&request("GET /health", hosts));
        assert_eq!(status, 400, "{hosts}: {head}");
        assert_protected(&head);
    }
    let host = format!("Host: {address}\r\nConnection: close\r\n");
    assert_eq!(
        ask(&format!("POST /metrics HTTP/1.1\r\n{host}Content-Length: 5\r\n\r\nhello")),
        405
    );
    let (status, head, _) = served.ask(&format!("DELETE / HTTP/1.1\r\n{host}\r\n"));
    assert_eq!(status, 405, "{head}");
    assert_protected(&head);
    assert_eq!(ask(&format!("GET /../../etc/passwd HTTP/1.1\r\n{host}\r\n")), 404);
    assert_eq!(ask("\u{16}\u{3}\u{1} a greeting of TLS\r\n\r\n"), 400);
    assert_eq!(ask(&format!("GET / HTTP/1.1\r\n{host}X: {}\r\n\r\n", "x".repeat(64 << 10))), 431);
    // More connections than allowed, without any request.
    let silent: Vec<TcpStream> = (0..300).map(|_| served.connect()).collect();
    // The oldest were closed.
    assert_eq!(closed(&silent[..236]), 236);
    // Counting continues, and so do answers once they are gone.
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
    let refused = served.metrics();
    let count =
        |reason: &str| refused[&format!("flowgauge_http_refused_total{{reason=\"{reason}\"}}")];
    assert!(
        count("connections") >= 236.0 && count("host") == 7.0 && count("request") >= 2.0,
        "{refused:?}"
    );
    assert_eq!((count("token"), count("tls")), (0.0, 0.0));
    let printed = served.end();
    assert_once(
        &printed,
        &["connections are open", "is not this machine's own", "refused over HTTP: a request:"],
    );
}

/// Opens connections from another loopback address, as from another machine.
fn strangers(address: std::net::SocketAddr, number: u8, count: usize) -> Vec<TcpStream> {
    let connected = |_| {
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::STREAM,
            None,
        )
        .unwrap();
        rustix::net::bind(&socket, &std::net::SocketAddr::from(([127, 0, 0, number], 0))).unwrap();
        rustix::net::connect(&socket, &address).unwrap();
        TcpStream::from(socket)
    };
    (0..count).map(connected).collect()
}

#[test]
fn idle_connections_of_strangers_keep_nobody_away() {
    let mut served = Served::start("--port memory:zipf,rate=5k");
    // The run is ready.
    (0..2).for_each(|_| drop(served.window()));
    // All but eight connections of one address are closed, the oldest first.
    let idle = strangers(served.address, 2, 64);
    assert_eq!(served.get("/health").0, 200);
    assert_eq!(closed(&idle[..56]), 56);
    // Many addresses leave room for this machine, even if they send requests and stay connected.
    let more: Vec<TcpStream> =
        (3..9).flat_map(|number| strangers(served.address, number, 8)).collect();
    let statuses: Vec<u16> = idle[56..].iter().chain(&more).map(status_of_events).collect();
    // Each address has six streams, and keeps a quarter of its places for other requests.
    assert_eq!(statuses, [[200; 6].as_slice(), &[503; 2]].concat().repeat(7));
    for path in ["/health", "/ready", "/live", "/metrics"] {
        assert_eq!(served.get(path).0, 200, "{path}");
    }
    served.window();
    let refused = served.metrics()["flowgauge_http_refused_total{reason=\"connections\"}"];
    assert_eq!(refused, 70.0);
    drop((idle, more));
    served.end();
}

#[test]
fn readers_of_events_leave_places_for_probes_and_scrapes() {
    let mut served = Served::start("--port memory:zipf,rate=5k");
    (0..2).for_each(|_| drop(served.window()));
    // As many of this machine as there are connections; none of them reads on.
    let readers: Vec<TcpStream> = (0..64).map(|_| served.connect()).collect();
    let is_served = |reader: &&TcpStream| status_of_events(reader) == 200;
    assert_eq!(readers.iter().filter(is_served).count(), 48);
    let mut answered = [false; 4];
    let paths = ["/live", "/ready", "/health", "/metrics"];
    // The connections that were refused a stream are being closed.
    while answered != [true; 4] {
        for (path, answered) in paths.into_iter().zip(&mut answered) {
            let mut stream = served.connect();
            let head = request(&format!("GET {path}"), "localhost");
            let mut answer = String::new();
            let asked = stream.write_all(head.as_bytes());
            *answered |= asked.and_then(|()| stream.read_to_string(&mut answer)).is_ok()
                && answer.starts_with("HTTP/1.1 200");
        }
    }
    drop(readers);
    served.end();
}

/// Browsers open connections in advance, and keep those that were used. An incomplete request is
/// different.
#[test]
fn connections_that_wait_are_no_requests_that_do_not_come() {
    let mut served = Served::start("--port memory:zipf,rate=5k");
    let (silent, kept, slow) = (served.connect(), served.connect(), served.connect());
    (&kept).write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    (&slow).write_all(b"GET /health HTTP/1.1\r\nHost:").unwrap();
    // The run closes all of them. Its output is read in the meantime.
    let waiting = thread::spawn(move || {
        [silent, kept, slow].map(|mut stream| stream.read_to_end(&mut Vec::new()).unwrap())
    });
    while !waiting.is_finished() {
        served.window();
    }
    let [silent, kept, _] = waiting.join().unwrap();
    assert!(silent == 0 && kept > 0);
    assert_eq!(served.metrics()["flowgauge_http_refused_total{reason=\"request\"}"], 1.0);
    assert_once(&served.end(), &["refused over HTTP: a request:"]);
}

const LISTENING: &str = "run --port memory:zipf --listen";

#[test]
fn a_run_listens_where_only_this_machine_can_ask() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
        execute(&format!("{LISTENING} {address} --listen-token-file token"))
            .ended_with(2, &["is reachable by other machines"]);
    }
    execute("replay nothing.pcap --listen 0").ended_with(2, &["--listen is for"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    execute(&format!("{LISTENING} {address}"))
        .ended_with(1, &[&address, "choose another address with --listen"]);
}

/// Addresses that other machines can reach require a certificate and a token.
#[test]
fn strangers_have_to_know_the_token() {
    let scratch = Scratch::new("strangers");
    let (certificate, key) = certificate(&scratch);
    const TOKEN: &str = "0123456789abcdef0123456789abcdef";
    let token = secret(&scratch, "token", &format!("{TOKEN}\n"));
    let mut served = Served::start(&format!(
        "--port memory:zipf,rate=5k --listen-cert {certificate} --listen-key {key} --listen-token-file {token}"
    ));
    let address = served.address;
    let ask = |path: &str, authorization: &str| {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: node-1.example\r\n{authorization}Connection: close\r\n\r\n"
        );
        exchange(&mut encrypted(TcpStream::connect(address).unwrap(), &certificate), &request)
    };
    let (status, head, body) = ask("/health", "");
    assert_eq!(status, 401, "{head} {body}");
    assert_has(&head, &["www-authenticate: basic realm="]);
    assert_has(&body, &["token"]);
    assert_protected(&head);
    for wrong in
        ["Bearer 0123456789abcdef0123456789abcdee", "Bearer ", "Basic OjAxMjM=", "Basic ?", TOKEN]
    {
        assert_eq!(ask("/metrics", &format!("Authorization: {wrong}\r\n")).0, 401, "{wrong}");
    }
    // As Prometheus and browsers do (any user, the token as password).
    assert_eq!(ask("/health", &format!("Authorization: Bearer {TOKEN}\r\n")).0, 200);
    let basic = "Authorization: Basic bWU6MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\r\n";
    assert!(ask("/", basic).2.contains("<title>flowgauge"));
    // Garbage instead of a handshake, and none at all.
    for garbage in [
        "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
        "\0".repeat(1 << 16),
        "\u{16}\u{3}\u{1}\u{7f}\u{7f}".repeat(999),
    ] {
        let mut stream = served.connect();
        // The connection may be closed before everything is written.
        let _ =
            stream.write_all(garbage.as_bytes()).and_then(|()| stream.read_to_end(&mut Vec::new()));
    }
    served.window();
    let (_, _, metrics) = ask("/metrics", basic);
    for (reason, least) in [("token", 6.0), ("tls", 3.0), ("host", 0.0)] {
        let line = format!("flowgauge_http_refused_total{{reason=\"{reason}\"}}");
        let count = parsed(&metrics)[&line];
        assert!(count >= least && (least > 0.0 || count == 0.0), "{line} {count}");
    }
    let printed = served.end();
    assert_once(&printed, &["without the token", "without TLS"]);
    assert!(!printed.contains("0123456789"), "{printed}");
}

#[test]
fn secrets_that_are_none_are_refused() {
    let scratch = Scratch::new("secrets");
    let (certificate, key) = certificate(&scratch);
    let short = secret(&scratch, "short", "0123456789abcde\n");
    let long = secret(&scratch, "long", &"x".repeat(1 << 20));
    let open = scratch.write("open", "0123456789abcdef");
    for (options, code, problem) in [
        (format!("--listen-token-file {short}"), 1, "16 letters"),
        (format!("--listen-token-file {long}"), 1, "16 letters"),
        (format!("--listen-token-file {open}"), 1, "everyone can read the token"),
        ("--listen-token-file /nowhere".to_owned(), 1, "/nowhere"),
        (format!("--listen-cert {certificate}"), 2, "must be given together"),
        (format!("--listen-cert {certificate} --listen-key {short}"), 1, short.as_str()),
        (format!("--listen-cert {key} --listen-key {key}"), 1, "no certificate"),
        (
            format!("--listen-cert {certificate} --listen-key {open}"),
            1,
            "everyone can read the key",
        ),
    ] {
        execute(&format!("{LISTENING} 127.0.0.1:0 {options}")).failed(code, &[problem]);
    }
    fs::remove_file(&open).unwrap();
    execute(&format!("run --port memory:zipf --listen-token-file {short}")).ended(2);
}
