//! `flowgauge status` with runs that count, were killed, or are other programs.

use crate::common;
use crate::common::served::exchange;
use crate::common::{Outcome, Running, Scratch, assert_has, command, finish, number, text};
use flowgauge_testing::wait::until_some;
use flowgauge_testing::{on_veth, skip};
use flowgauge_traffic::veth::RECEIVER;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

const VARIABLE: &str = "FLOWGAUGE_STATUS_DIR";
const GENERATED: &str = "--port memory:unique,rate=10k";

/// Directory for sockets that no other test uses.
struct SocketDirectory {
    _scratch: Scratch,
    directory: PathBuf,
}

impl SocketDirectory {
    fn new(test: &str) -> Self {
        let scratch = Scratch::new(test);
        let directory = scratch.path("runs");
        SocketDirectory { _scratch: scratch, directory }
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = command(arguments);
        command.env(VARIABLE, &self.directory);
        command
    }

    /// Starts an endless run that prints JSON.
    fn start(&self, arguments: &str) -> Running {
        Running::of(&mut self.command(&format!("run {arguments} --format json")))
    }

    /// Starts an endless run and waits for its first sample.
    fn run(&self, arguments: &str) -> Running {
        let mut running = self.start(&format!("--window 200ms --sample-every 50ms {arguments}"));
        assert!(!running.line().is_empty());
        self.status("--wait").quiet();
        running
    }

    fn status(&self, arguments: &str) -> Outcome {
        finish(&mut self.command(&format!("status {arguments}")))
    }

    /// Queries the runs until `enough` accepts the answer.
    fn runs(&self, enough: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        until_some(|| {
            let outcome = self.status("--format json");
            let runs: Vec<Value> = serde_json::from_str(&outcome.stdout).unwrap();
            enough(&runs).then(|| {
                assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{runs:?}");
                runs
            })
        })
    }

    #[track_caller]
    fn nothing_runs(&self) {
        let outcome = self.status("").ended(1);
        assert_eq!(outcome.stdout, "");
        let directory = self.directory.display();
        assert_eq!(
            outcome.complaint(),
            format!("error: no flowgauge run on this machine (searched {directory})")
        );
    }

    fn sockets(&self) -> Vec<PathBuf> {
        fs::read_dir(&self.directory).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    /// Starts a fake run that answers under this process id.
    fn answering(&self, pid: u32, answer: &'static str) {
        self.serving(pid, move |mut reader| {
            let mut request = BufReader::new(reader.try_clone().unwrap()).lines();
            assert_eq!(request.next().unwrap().unwrap(), "GET /status HTTP/1.0");
            assert!(request.any(|line| line.unwrap().is_empty()));
            write!(reader, "HTTP/1.0 200 OK\r\n\r\n{answer}").unwrap();
        });
    }

    /// Starts a fake run that handles its first client with `serve`.
    fn serving(&self, pid: u32, serve: impl FnOnce(UnixStream) + Send + 'static) -> PathBuf {
        fs::create_dir_all(&self.directory).unwrap();
        let socket = self.socket(pid);
        let listener = UnixListener::bind(&socket).unwrap();
        thread::spawn(move || serve(listener.accept().unwrap().0));
        socket
    }

    fn socket(&self, pid: u32) -> PathBuf {
        self.directory.join(format!("{pid}.sock"))
    }
}

#[test]
fn a_run_that_listens_leaves_no_socket() {
    let place = SocketDirectory::new("status-listens");
    let running = place.run(&format!("{GENERATED} --listen 127.0.0.1:0"));
    assert_eq!(place.sockets().len(), 1);
    running.end().ended(0);
    assert_eq!(place.sockets(), [] as [PathBuf; 0]);
}

#[test]
fn a_run_is_found_while_it_counts() {
    let place = SocketDirectory::new("status-run");
    place.nothing_runs();
    let running = place.run(&format!("{GENERATED} --workers 2 --poll-mode interrupt"));
    let complete = |run: &Value| {
        let printed = |worker: &Value| worker["load"].is_object();
        run["workers"].as_array().is_some_and(|workers| workers.iter().all(printed))
            && number(run, "windows") > 2
    };
    let runs = place.runs(|runs| runs.iter().all(complete));
    let [run] = &runs[..] else { panic!("{runs:?}") };
    assert_eq!(number(run, "pid"), u64::from(running.child.id()));
    assert_eq!((number(run, "status"), text(run, "version")), (1, env!("CARGO_PKG_VERSION")));
    assert_eq!((text(run, "backend"), number(run, "window_ns")), ("poll", 200_000_000));
    assert!(text(run, "interface").starts_with("memory:unique"), "{run}");
    assert_eq!(
        run["measurements"],
        serde_json::json!([{ "measurement": "cardinality", "key": "src" }])
    );
    assert_eq!((&run["problems"], &run["drops"]), (&serde_json::json!([]), &serde_json::json!({})));
    let window = &run["last_window"];
    assert!(
        number(window, "packets") > 0 && number(run, "packets") >= number(window, "packets"),
        "{run}"
    );
    assert!(number(window, "window") + 1 >= number(run, "windows"), "{run}");
    let workers = run["workers"].as_array().unwrap();
    assert_eq!(workers.len(), 2);
    for worker in workers {
        assert!(number(worker, "thread") > 0);
        assert_eq!((&worker["pinned"], text(worker, "poll_mode")), (&Value::Null, "interrupt"));
        let load = &worker["load"];
        let parts = ["with_packets_ns", "polling_ns", "asleep_ns"].map(|part| number(load, part));
        assert_eq!(number(load, "lasted_ns"), parts.iter().sum::<u64>());
        // A worker that waits for packets is mostly asleep at ten thousand per second, unless it
        // gets no CPU.
        assert!(parts[2] > 0, "{load}");
    }
    let printed = place.status("").quiet();
    assert!(
        printed.starts_with(&format!("run {}, healthy: poll, memory:unique", running.child.id())),
        "{printed}"
    );
    assert_has(&printed, &["\n  worker 1   on CPU "]);
    // Other users cannot query it.
    let [directory, socket] = [place.directory.clone(), place.sockets().pop().unwrap()];
    assert_eq!(
        [directory, socket].map(|path| fs::metadata(path).unwrap().permissions().mode() & 0o777),
        [0o700, 0o600]
    );
    running.end().live();
    assert_eq!(place.sockets(), [] as [PathBuf; 0]);
    place.nothing_runs();
}

#[test]
fn a_socket_answers_over_http() {
    let place = SocketDirectory::new("status-http");
    let running = place.run(GENERATED);
    let ask = |request: &str| {
        let mut stream = UnixStream::connect(place.socket(running.child.id())).unwrap();
        let request = format!("{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let (code, _, body) = exchange(&mut stream, &request);
        (code, body)
    };
    for (path, body) in [("/live", "alive\n"), ("/ready", "ready\n"), ("/health", "well\n")] {
        assert_eq!(ask(&format!("GET {path}")), (200, body.to_owned()));
    }
    let (code, status) = ask("GET /status");
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!((code, number(&status, "pid")), (200, u64::from(running.child.id())));
    // The page and metrics need --listen, and a client can change nothing.
    assert_eq!([ask("GET /metrics").0, ask("POST /status").0], [404, 405]);
    running.end().live();
}

#[test]
fn runs_stand_side_by_side() {
    let place = SocketDirectory::new("status-two");
    let one = place.run(&format!("{GENERATED} --poll-mode busy"));
    let options = "--key five-tuple --measure cardinality,heavy";
    let other = place.run(&format!("--port memory:zipf,rate=10k {options}"));
    let runs = place.runs(|runs| runs.len() == 2);
    let mut pids = [one.child.id(), other.child.id()].map(u64::from);
    pids.sort_unstable();
    assert_eq!(runs.iter().map(|run| number(run, "pid")).collect::<Vec<_>>(), pids);
    one.end().live();
    let runs = place.runs(|_| true);
    let [run] = &runs[..] else { panic!("{runs:?}") };
    assert_eq!(number(run, "pid"), u64::from(other.child.id()));
    assert_eq!(
        run["measurements"][1],
        serde_json::json!({ "measurement": "heavy", "key": "five-tuple" })
    );
    other.end().live();
}

#[test]
fn a_run_without_windows_is_found_by_its_reads() {
    let place = SocketDirectory::new("status-staggered");
    let mut running = place.start(&format!("{GENERATED} --staggered 1s --sample-every 50ms"));
    running.line();
    let runs = place.runs(|runs| {
        runs.iter().all(|run| {
            run["workers"][0]["load"]["packets"].as_u64().is_some_and(|packets| packets > 0)
        })
    });
    assert_eq!((&runs[0]["window_ns"], &runs[0]["last_window"]), (&Value::Null, &Value::Null));
    assert!(number(&runs[0]["last_sample"], "packets") > 0);
    running.end().live();
}

#[test]
fn a_killed_run_is_told_once() {
    let place = SocketDirectory::new("status-killed");
    let mut running = place.run(GENERATED);
    let pid = running.child.id();
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    assert_eq!(place.sockets().len(), 1);
    let outcome = place.status("");
    assert!(outcome.stdout.starts_with(&format!("run {pid} was killed")), "{}", outcome.stdout);
    outcome.failed(1, &["no flowgauge run"]);
    place.nothing_runs();
}

#[test]
fn a_run_goes_on_where_it_cannot_be_published() {
    let place = SocketDirectory::new("status-refused");
    // A file instead of a directory, which not even root can write into.
    fs::write(&place.directory, "").unwrap();
    let mut run = place.command("run --port memory:unique,packets=100,rate=max");
    let outcome = finish(&mut run).ended(0);
    assert_has(outcome.complaint(), &["`flowgauge status` cannot find this run", VARIABLE]);
    assert_has(&outcome.stdout, &["100 packets"]);
    let outcome = place.status("").ended(1);
    assert!(outcome.stdout.ends_with("runs is not a directory; skipped\n"), "{}", outcome.stdout);
}

#[test]
fn whoever_wants_is_not_found() {
    let outcome = common::run(["status"]).ended(1);
    assert_eq!(outcome.stdout, "");
    assert_eq!(outcome.complaint(), format!("error: cannot search for runs: {VARIABLE} is empty"));
}

#[test]
fn a_run_that_is_not_healthy_is_told_with_the_reason() {
    let place = SocketDirectory::new("status-states");
    let unhealthy = r#"{ "status": 1, "pid": 7, "version": "0.1.0", "problems": ["the switch is gone"], "interface": "switch:50052" }"#;
    let starting = r#"{ "status": 1, "pid": 7, "version": "0.1.0", "backend": "xdp", "interface": "eth1", "problems": [], "failed": [],
        "stalled": [], "starting": ["counting has not started"] }"#;
    let degraded = r#"{ "status": 1, "pid": 7, "version": "0.1.0", "backend": "poll", "interface": "eth1", "problems": [],
        "failed": ["bad: failed; see the log"], "stalled": [], "starting": [] }"#;
    let stalled = r#"{ "status": 1, "pid": 7, "problems": ["stalled for 12 s", "more"], "stalled": ["stalled for 12 s"],
        "starting": [], "failed": [] }"#;
    for (answer, arguments, code, printed, complaint) in [
        (
            unhealthy,
            "",
            1,
            "run 7, NOT healthy: , switch:50052, for 0.0 s, flowgauge 0.1.0\n  problem    the switch is gone\n",
            "error: not healthy: run 7; see the lines above",
        ),
        (
            starting,
            "",
            1,
            "run 7, starting: xdp, eth1, for 0.0 s, flowgauge 0.1.0\n  starting   counting has not started\n",
            "error: starting: run 7; --wait waits until all sources are counted",
        ),
        // It is alive, but not ready.
        (starting, "--probe live", 0, "", ""),
        (starting, "--probe ready", 1, "", "error: run 7: counting has not started"),
        (
            degraded,
            "",
            0,
            "run 7, degraded: poll, eth1, for 0.0 s, flowgauge 0.1.0\n  failed     bad: failed; see the log\n",
            "",
        ),
        (stalled, "--probe live", 1, "", "error: run 7: stalled for 12 s"),
    ] {
        place.answering(7, answer);
        let Outcome { code: ended, stdout, stderr } = place.status(arguments);
        fs::remove_file(place.socket(7)).unwrap();
        let case = format!("{arguments} {answer}: {stdout}");
        assert_eq!((ended, stderr.trim_end()), (Some(code), complaint), "{case}");
        assert!(stdout.starts_with(printed) && stdout.is_empty() == printed.is_empty(), "{case}");
    }
}

#[test]
fn who_waits_is_told_when_packets_are_counted() {
    let place = SocketDirectory::new("status-wait");
    place.status("--wait=20ms").failed(1, &["no flowgauge run on this machine"]);
    let running = place.start(&format!("--window 1h {GENERATED}"));
    // No line of its output was read: it may not have started yet.
    assert_has(&place.status("--wait").quiet(), &[", healthy: poll, memory:unique"]);
    place.status("--probe ready").quiet();
    running.end().live();
    on_veth(move || {
        let options = "--measure cardinality,heavy,delay --direction ingress";
        let running = place.start(&format!("--window 1h -i {} {options}", RECEIVER.0));
        place.status("--wait").quiet();
        common::send(RECEIVER.1, 100);
        let outcome = running.end();
        let records = common::parse(&outcome.stdout);
        assert_eq!(number(common::total(&records), "packets"), 100, "{}", outcome.stderr);
    });
}

#[test]
fn other_versions_and_other_programs_are_told_apart() {
    let place = SocketDirectory::new("status-others");
    place.answering(8, r#"{ "status": 2, "pid": 8, "version": "9.0.0", "problems": [] }"#);
    let outcome = place.status("").ended(0);
    assert!(outcome.stdout.starts_with("run 8 is flowgauge \"9.0.0\""), "{outcome:?}");
    fs::remove_file(place.directory.join("8.sock")).unwrap();
    place.answering(9, "nonsense");
    place.serving(10, |mut reader| reader.write_all(b"{ \"problems\": [] }").unwrap());
    let outcome = place.status("").ended(1);
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    let [no_json, no_http] = lines[..] else { panic!("{outcome:?}") };
    assert!(no_json.starts_with("run 9 does not answer on "), "{outcome:?}");
    assert!(no_http.starts_with("run 10 does not answer on "), "{outcome:?}");
}

#[test]
fn hostile_sockets_neither_hang_nor_fill_nor_command_who_asks() {
    let place = SocketDirectory::new("status-hostile");
    // Never sends a byte, and never closes.
    place.serving(1, |reader| {
        thread::park();
        drop(reader);
    });
    place.serving(2, |mut reader| while reader.write_all(&[b'['; 1 << 16]).is_ok() {});
    // A byte from time to time keeps the connection open, but the client does not wait.
    place.serving(3, |mut reader| while reader.write_all(b" ").is_ok() {});
    place.answering(
        4,
        "{ \"status\": 1, \"pid\": 4, \"version\": \"\\u001b[2J\", \"interface\": \"eth0\\u001b]0;owned\\u0007\\nrun 5, healthy\",
         \"problems\": [\"\u{202e}gone\", \"\u{9b}31m\"] }",
    );
    place.answering(5, "{ \"status\": 7, \"pid\": \"\u{9b}2J\", \"version\": \"\u{202e}\" }");
    place.answering(6, "\u{1b}[31mno JSON");
    let outcome = place.status("").ended(1);
    let [printed, complaint] = [&outcome.stdout, &outcome.stderr];
    assert!(
        !format!("{printed}{complaint}").contains(['\u{1b}', '\u{9b}', '\u{7}', '\u{202e}']),
        "{printed:?}"
    );
    let lines = |begin: &str| printed.lines().filter(|line| line.starts_with(begin)).count();
    assert_eq!(
        [1, 2, 3, 6].map(|pid| lines(&format!("run {pid} does not answer on "))),
        [1; 4],
        "{printed}"
    );
    assert_eq!(
        (lines("run 4, NOT healthy: , eth0\\u{1b}]0;owned\\u{7}\\nrun 5, healthy"), lines("run 5")),
        (1, 0),
        "{printed}"
    );
    assert_has(printed, &["longer than 4096 KiB", "is the process stopped?"]);
}

#[test]
fn json_of_a_hostile_answer_is_harmless_and_the_same() {
    let place = SocketDirectory::new("status-hostile-json");
    place.answering(4, "{ \"status\": 1, \"problems\": [], \"interface\": \"\u{9b}2J\u{202e}\" }");
    let outcome = place.status("--format json");
    assert!(!outcome.stdout.contains(['\u{9b}', '\u{202e}']), "{:?}", outcome.stdout);
    let runs: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(text(&runs[0], "interface"), "\u{9b}2J\u{202e}");
}

#[test]
fn links_and_files_are_no_sockets() {
    let place = SocketDirectory::new("status-links");
    let elsewhere = SocketDirectory::new("status-elsewhere");
    let target = elsewhere.serving(1, |_| {});
    fs::create_dir_all(&place.directory).unwrap();
    symlink(target, place.socket(1)).unwrap();
    fs::write(place.socket(2), "").unwrap();
    let outcome = place.status("").ended(1);
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert!(
        lines.len() == 2
            && lines.iter().all(|line| line.ends_with(".sock is not a socket; skipped")),
        "{outcome:?}"
    );
    assert_has(outcome.complaint(), &["no flowgauge run"]);
    // A link to a directory is not accepted either.
    fs::remove_dir_all(&place.directory).unwrap();
    symlink(&elsewhere.directory, &place.directory).unwrap();
    assert!(place.status("").stdout.ends_with("runs is not a directory; skipped\n"));
}

/// User that exists on every system and owns nothing.
const NOBODY: u32 = 65_534;

#[test]
fn runs_of_other_users_are_not_asked() {
    if !rustix::process::geteuid().is_root() {
        return skip("root");
    }
    let place = SocketDirectory::new("status-foreign");
    fs::create_dir_all(&place.directory).unwrap();
    chown(&place.directory, Some(NOBODY), None).unwrap();
    let mut command = place.command(&format!("run {GENERATED} --sample-every 50ms --format json"));
    let started =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| Running::of(command.uid(NOBODY))));
    let Ok(mut running) = started else {
        return skip("a folder of builds that every user can read");
    };
    assert!(!running.line().is_empty());
    let socket = place.socket(running.child.id());
    assert!(socket.exists());
    let not_asked = |said: &str| {
        let outcome = place.status("");
        assert_has(&outcome.stdout, &[said]);
        assert!(outcome.stdout.ends_with("; skipped\n"), "{outcome:?}");
        outcome.failed(1, &["no flowgauge run"]);
    };
    not_asked("status-foreign/runs belongs to user 65534");
    chown(&place.directory, Some(0), None).unwrap();
    not_asked(".sock belongs to user 65534");
    // Whatever the owner of the file is, the peer is the creator of the socket.
    chown(&socket, Some(0), None).unwrap();
    not_asked(" is answered by user 65534");
    assert!(socket.exists(), "what is not believed is not removed either");
    drop(running);
}

/// Members of the directory's group may query; the thread that answers has no other rights.
#[test]
fn the_group_that_may_enter_the_directory_may_ask() {
    let place = SocketDirectory::new("status-group");
    fs::create_dir_all(&place.directory).unwrap();
    let group = fs::metadata(&place.directory).unwrap().gid();
    for (directory, socket) in [(0o700, 0o600), (0o750, 0o660), (0o710, 0o660), (0o755, 0o600)] {
        fs::set_permissions(&place.directory, fs::Permissions::from_mode(directory)).unwrap();
        let running = place.run(GENERATED);
        let found = fs::metadata(place.socket(running.child.id())).unwrap();
        assert_eq!((found.mode() & 0o777, found.gid()), (socket, group), "{directory:o}");
        let tasks = fs::read_dir(format!("/proc/{}/task", running.child.id())).unwrap();
        let of_status = tasks.map(|task| task.unwrap().path()).find(|task| {
            fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "status\n")
        });
        let held = fs::read_to_string(of_status.unwrap().join("status")).unwrap();
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert!(held.contains(&format!("{set}:\t0000000000000000\n")), "{held}");
        }
        place.status("").ended(0);
    }
}

#[test]
fn who_never_reads_keeps_nobody_waiting() {
    let place = SocketDirectory::new("status-unread");
    let running = place.run(GENERATED);
    let socket = place.socket(running.child.id());
    let unread: Vec<UnixStream> = (0..100).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    assert_eq!(place.runs(|_| true).len(), 1);
    running.end().live();
    drop(unread);
}

#[test]
fn programs_are_told_and_so_is_what_a_killed_run_left() {
    let test = || {
        let place = SocketDirectory::new("status-veth");
        let mut running = place.run(&format!("-i {} --xdp-mode native", RECEIVER.0));
        let runs = place.runs(|runs| runs.iter().all(|run| run["programs"].is_array()));
        let program = &runs[0]["programs"][0];
        assert_eq!(
            ["interface", "direction", "hook"].map(|key| text(program, key)),
            [RECEIVER.0, "ingress", "native"]
        );
        assert!(number(program, "program") > 0 && program["attached"] == true, "{program}");
        let printed = place.status("").quiet();
        assert!(
            printed.contains("\n  program    rx ingress, hook native, id ")
                && !printed.contains("without a run"),
            "{printed}"
        );
        running.child.kill().unwrap();
        running.child.wait().unwrap();
        let printed = place.status("").stdout;
        let left = "\nrx ingress: a program has been counting for ";
        assert_has(&printed, &[left, "`flowgauge detach -i rx`"]);
        common::run(["detach"]).quiet();
        place.nothing_runs();
    };
    on_veth(test);
}
