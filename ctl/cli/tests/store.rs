//! Lakes in an object store: content after the store was unreachable, answered wrongly, or not at
//! all.

use crate::common::served::Served;
use crate::common::{
    Outcome, Running, Scratch, command, execute, files, finish, flowgauge, generated, json_lines,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

/// Behaviour of a store.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mood {
    Well,
    /// Answers 503.
    Away,
    /// Answers 403: access denied.
    Forbidden,
    /// Executes the request, and closes the connection without an answer.
    Silent,
}

/// In-memory S3 server, as far as needed.
#[derive(Clone)]
struct Store {
    objects: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    mood: Arc<Mutex<Mood>>,
    /// Paths of requested objects.
    fetched: Arc<Mutex<Vec<String>>>,
    address: String,
}

impl Store {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let store = Store {
            objects: Arc::default(),
            mood: Arc::new(Mutex::new(Mood::Well)),
            fetched: Arc::default(),
            address,
        };
        let server = store.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let server = server.clone();
                thread::spawn(move || server.serve(stream.unwrap()));
            }
        });
        store
    }

    fn serve(&self, stream: TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        loop {
            let mut lines = reader.by_ref().lines().map_while(Result::ok);
            let request = lines.next()?;
            let headers: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let header = |name: &str| {
                let found = headers
                    .iter()
                    .filter_map(|line| line.split_once(": "))
                    .find(|(it, _)| it.eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.to_owned())
            };
            let mut body = vec![0; header("content-length").map_or(0, |it| it.parse().unwrap())];
            reader.read_exact(&mut body).ok()?;
            let (method, rest) = request.split_once(' ').unwrap();
            let (path, query) = rest
                .split_once(' ')
                .unwrap()
                .0
                .split_once('?')
                .unwrap_or((rest.split_once(' ').unwrap().0, ""));
            // The name of a partition has an equals sign, which may be encoded.
            let (path, query) =
                (path.replace("%3D", "="), query.replace("%3D", "=").replace("%2F", "/"));
            assert!(
                header("authorization")
                    .is_some_and(|it| it.starts_with("AWS4-HMAC-SHA256 Credential=reader/"))
            );
            let mood = *self.mood.lock().unwrap();
            let (status, answer) = match mood {
                Mood::Away => ("503 Slow Down", Vec::new()),
                Mood::Forbidden => (
                    "403 Forbidden",
                    b"<Error><Code>AccessDenied</Code><Message>not yours</Message></Error>"
                        .to_vec(),
                ),
                Mood::Well | Mood::Silent => self.answer(
                    method,
                    &path,
                    &query,
                    body,
                    header("if-none-match").as_deref() == Some("*"),
                ),
            };
            if mood == Mood::Silent {
                return None;
            }
            let head =
                format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\netag: \"x\"\r\n", answer.len());
            let about = "last-modified: Tue, 24 Nov 2026 00:00:00 GMT\r\n\r\n";
            (&stream).write_all(&[head.as_bytes(), about.as_bytes(), &answer].concat()).ok()?;
        }
    }

    fn answer(
        &self,
        method: &str,
        path: &str,
        query: &str,
        body: Vec<u8>,
        is_new: bool,
    ) -> (&'static str, Vec<u8>) {
        let mut objects = self.objects.lock().unwrap();
        match method {
            "PUT" if is_new && objects.contains_key(path) => {
                ("412 Precondition Failed", Vec::new())
            }
            "PUT" => {
                // A compaction writes names of its own.
                assert!(
                    is_new || path.contains("/.compact/") || path.contains("/joined-"),
                    "{path} may be there"
                );
                objects.insert(path.to_owned(), body);
                ("200 OK", Vec::new())
            }
            "GET" if query.contains("list-type=2") => {
                let prefix =
                    query.split('&').find_map(|it| it.strip_prefix("prefix=")).unwrap_or_default();
                let (mut contents, mut prefixes) = (String::new(), BTreeSet::new());
                for (name, object) in objects.iter() {
                    let name = name.strip_prefix("/bucket/").unwrap();
                    let Some(rest) = name.strip_prefix(prefix) else { continue };
                    match rest.split_once('/') {
                        Some((directory, _)) => {
                            prefixes.insert(format!("<CommonPrefixes><Prefix>{prefix}{directory}/</Prefix></CommonPrefixes>"));
                        }
                        None => {
                            let about = format!(
                                "<Size>{}</Size><LastModified>2026-11-24T00:00:00.000Z</LastModified>",
                                object.len()
                            );
                            contents += &format!(
                                "<Contents><Key>{name}</Key>{about}<ETag>x</ETag></Contents>"
                            );
                        }
                    }
                }
                let prefixes: String = prefixes.into_iter().collect();
                (
                    "200 OK",
                    format!("<ListBucketResult>{contents}{prefixes}</ListBucketResult>")
                        .into_bytes(),
                )
            }
            "GET" => {
                self.fetched.lock().unwrap().push(path.to_owned());
                objects
                    .get(path)
                    .map_or(("404 Not Found", Vec::new()), |object| ("200 OK", object.clone()))
            }
            "POST" if query.starts_with("delete") => {
                let body = String::from_utf8(body).unwrap();
                let keys: Vec<&str> = body
                    .split("<Key>")
                    .skip(1)
                    .map(|rest| rest.split_once("</Key>").unwrap().0)
                    .collect();
                keys.iter().for_each(|key| drop(objects.remove(&format!("/bucket/{key}"))));
                let deleted: String =
                    keys.iter().map(|key| format!("<Deleted><Key>{key}</Key></Deleted>")).collect();
                ("200 OK", format!("<DeleteResult>{deleted}</DeleteResult>").into_bytes())
            }
            _ => panic!("{method}"),
        }
    }

    fn become_(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    fn names(&self) -> Vec<String> {
        self.objects.lock().unwrap().keys().cloned().collect()
    }

    fn command(&self) -> Command {
        let mut command = flowgauge();
        command
            .env("AWS_ENDPOINT_URL", &self.address)
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_ACCESS_KEY_ID", "reader")
            .env("AWS_SECRET_ACCESS_KEY", "secret")
            .env("AWS_REGION", "here");
        command
    }

    /// Returns the command of a run with a lake in the store.
    fn run(&self, options: &str, buffer: &Path) -> Command {
        let traffic = "--port memory:zipf,rate=5k --window 100ms --format json --seed 1";
        let lake = "--lake s3://bucket/lake --lake-every 500ms --lake-buffer";
        let mut command = self.command();
        command.arg("run").args(format!("{traffic} {options} {lake}").split(' ')).arg(buffer);
        command
    }

    /// Returns the starts of the windows in the store, with duplicates.
    fn windows(&self) -> Vec<u64> {
        let mut command = self.command();
        command.args(["merge", "s3://bucket/lake", "--by", "window", "--format", "json"]);
        let records = finish(&mut command).json();
        assert!(records.iter().all(|record| record["united"]["twice"] == 0));
        starts(&records)
    }
}

fn starts(records: &[Value]) -> Vec<u64> {
    let windows = records.iter().filter(|record| record["record"] == "window");
    windows.map(|record| record["scheduled_start_ns"].as_u64().unwrap()).collect()
}

fn capture(scratch: &Scratch) -> PathBuf {
    generated(scratch, "capture.pcap", "zipf,flows=4000,packets=20000,rate=1k").into()
}

/// Returns the buffered files, relative to their directory.
fn waiting(buffer: &Path) -> Vec<String> {
    let names = files(&[buffer.to_owned()]).unwrap().into_iter();
    names.map(|path| path.strip_prefix(buffer).unwrap().to_str().unwrap().to_owned()).collect()
}

fn replay(command: &mut Command, capture: &Path, buffer: &Path) -> Outcome {
    let options = "--window 5s --host a --lake s3://bucket/lake --lake-buffer";
    finish(command.arg("replay").arg(capture).args(options.split(' ')).arg(buffer))
}

#[test]
fn what_is_in_a_store_is_what_would_be_in_a_directory() {
    let (scratch, store) = (Scratch::new("store-same"), Store::start());
    let (capture, buffer, lake) = (capture(&scratch), scratch.path("buffer"), scratch.path("lake"));
    let outcome = replay(store.command().env("FLOWGAUGE_RUN", "r"), &capture, &buffer);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
    let mut replayed = command("replay --window 5s --host a");
    replayed.env("FLOWGAUGE_RUN", "r").arg(&capture).arg("--lake").arg(&lake);
    finish(&mut replayed).ended(0);
    let there =
        waiting(&lake).into_iter().map(|name| format!("/bucket/lake/{name}")).collect::<Vec<_>>();
    assert_eq!(store.names(), there);
    assert_eq!(waiting(&buffer), Vec::<String>::new());
    // Empty directories are removed with their last file.
    assert_eq!(
        std::fs::read_dir(&buffer)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect::<Vec<_>>(),
        [".journal"]
    );
    let [here, there] =
        [store.command().args(["merge", "s3://bucket/lake"]), flowgauge().arg("merge").arg(&lake)]
            .map(|it| finish(it.args(["--format", "json"])).ended(0).stdout);
    assert_eq!(here, there);
    let sides = ["s3://bucket/lake,host=a", "s3://bucket/lake/,host=a"];
    finish(store.command().arg("diff").args(sides)).ended(0);
    // Another run with this name: its file gets a different name although the buffer is empty.
    replay(store.command().env("FLOWGAUGE_RUN", "r"), &capture, &buffer).ended(0);
    assert_eq!(store.names().len(), 1, "equal files are one: {:?}", store.names());
    let mut quiet = store.command();
    quiet.env("FLOWGAUGE_RUN", "r").arg("-q");
    replay(&mut quiet, &capture, &scratch.path("other")).ended(0);
    assert_eq!(store.names().len(), 1);
    let outcome = finish(store.command().args(["merge", "s3://bucket/elsewhere"])).ended(1);
    assert_eq!(outcome.stdout, "", "{outcome:?}");
}

#[test]
fn only_hours_of_the_range_are_fetched_and_joined_hours_say_the_same() {
    let (scratch, store) = (Scratch::new("store-hours"), Store::start());
    let capture = generated(&scratch, "capture.pcap", "zipf,flows=400,packets=36000,rate=1");
    let buffer = scratch.path("buffer");
    for host in ["a", "b"] {
        let options = "--window 10m --align --lake s3://bucket/lake --lake-buffer";
        let mut command = store.command();
        command.arg("replay").arg(&capture).args(["--host", host]).args(options.split(' '));
        finish(command.arg(&buffer)).ended(0);
    }
    assert_eq!(store.names().len(), 20);
    let merge = |options: &[&str]| {
        let mut command = store.command();
        command.args(["merge", "s3://bucket/lake", "--format", "json"]).args(options);
        finish(&mut command).json().remove(0)
    };
    let some = merge(&["--from", "1970-01-01T03:00", "--to", "1970-01-01T05:00"]);
    assert_eq!((&some["packets"], &some["united"]["rows"]), (&14_400.into(), &24.into()));
    // The previous hour can have windows that end in the range.
    assert_eq!(std::mem::take(&mut *store.fetched.lock().unwrap()).len(), 6);
    let all = merge(&[]);
    let outcome = finish(store.command().args(["lake", "compact", "s3://bucket/lake"])).ended(0);
    assert_eq!(outcome.stdout.lines().count(), 10, "{outcome:?}");
    assert_eq!((merge(&[]), store.names().len()), (all, 10));
}

#[test]
fn a_file_of_the_name_of_another_one_gets_another_name() {
    let (scratch, store) = (Scratch::new("store-taken"), Store::start());
    let (capture, buffer) = (capture(&scratch), scratch.path("buffer"));
    replay(store.command().env("FLOWGAUGE_RUN", "r"), &capture, &buffer).ended(0);
    let first = store.names().remove(0);
    store.objects.lock().unwrap().insert(first.clone(), b"something else".to_vec());
    replay(store.command().env("FLOWGAUGE_RUN", "r"), &capture, &buffer).ended(0);
    assert_eq!(store.names(), [first.replace(".parquet", "-1.parquet"), first.clone()]);
    assert_eq!(store.objects.lock().unwrap()[&first], b"something else");
}

#[test]
fn a_store_that_is_away_loses_nothing() {
    let (scratch, store) = (Scratch::new("store-away"), Store::start());
    store.become_(Mood::Away);
    let mut running = Running::of(&mut store.run("--duration 6s", &scratch.path("buffer")));
    // Count windows instead of using a clock of the test.
    let mut lines = running.stdout.take().unwrap().lines();
    let mut printed = String::new();
    for mood in [Mood::Well, Mood::Silent, Mood::Well, Mood::Forbidden, Mood::Well] {
        for line in lines.by_ref().take(10).map(Result::unwrap) {
            printed += &(line + "\n");
        }
        store.become_(mood);
    }
    lines.for_each(|line| printed += &(line.unwrap() + "\n"));
    running.outcome().ended_with(0, &["wait in"]);
    let reported = starts(&json_lines(&printed));
    assert_eq!(store.windows(), reported);
    assert_eq!(waiting(&scratch.path("buffer")), Vec::<String>::new());
}

#[test]
fn files_that_wait_for_a_store_are_in_the_metrics() {
    let (scratch, store) = (Scratch::new("store-metrics"), Store::start());
    store.become_(Mood::Away);
    let options = format!(
        "--port memory:unique,rate=5k --lake s3://bucket/lake --lake-every 500ms --lake-buffer {}",
        scratch.path("buffer").display()
    );
    let mut served = Served::of(store.command(), &options);
    let mut wait_until = |is_behind: bool| {
        let is_reached = |metrics: &BTreeMap<String, f64>, unit: &str| {
            let waiting = metrics.get(&format!("flowgauge_lake_waiting_{unit}"));
            waiting.is_some_and(|waiting| (*waiting > 0.0) == is_behind)
        };
        loop {
            served.window();
            let metrics = served.metrics();
            if is_reached(&metrics, "files") && is_reached(&metrics, "bytes") {
                break;
            }
        }
    };
    wait_until(true);
    store.become_(Mood::Well);
    wait_until(false);
}

#[test]
fn what_waits_at_the_end_goes_with_the_next_run() {
    let (scratch, store) = (Scratch::new("store-next"), Store::start());
    let (capture, buffer) = (capture(&scratch), scratch.path("buffer"));
    store.become_(Mood::Forbidden);
    let parts = ["not yours", "1 file left in", "for the next run"];
    replay(&mut store.command(), &capture, &buffer).ended_with(1, &parts);
    assert_eq!((waiting(&buffer).len(), store.names().len()), (1, 0));
    store.become_(Mood::Well);
    replay(&mut store.command(), &capture, &buffer).ended(0);
    assert_eq!((waiting(&buffer).len(), store.names().len()), (0, 2));
}

#[test]
fn what_the_buffer_has_no_room_for_is_told() {
    let (scratch, store) = (Scratch::new("store-room"), Store::start());
    let buffer = scratch.path("buffer");
    store.become_(Mood::Away);
    let options = "--duration 5s --lake-buffer-size 16KiB";
    let outcome = finish(&mut store.run(options, &buffer)).ended_with(1, &["given up"]);
    let held: u64 = files(std::slice::from_ref(&buffer))
        .unwrap()
        .iter()
        .map(|path| path.metadata().unwrap().len())
        .sum();
    assert!(held <= 16 << 10, "{held}");
    store.become_(Mood::Well);
    let windows = starts(&json_lines(&outcome.stdout));
    replay(&mut store.command(), &capture(&scratch), &buffer).ended(0);
    let found = store.windows();
    let lost = windows.iter().filter(|start| !found.contains(start)).count();
    // Only the oldest files were dropped, and every loss was reported.
    let reported: usize = outcome
        .stderr
        .lines()
        .filter(|line| line.contains("given up") && !line.contains("exit code"))
        .filter_map(|line| line.split_once(" row")?.0.rsplit_once(' ')?.1.parse::<usize>().ok())
        .sum();
    assert!(lost > 0 && reported == lost, "{lost} {reported}: {}", outcome.stderr);
    assert!(
        windows.iter().position(|start| found.contains(start)).unwrap() == lost,
        "the oldest go first"
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (options, reported) in [
        ("--lake gs://bucket/lake", "unknown scheme 'gs'"),
        ("--lake s3://", "give a bucket"),
        ("--lake lake --lake-buffer b", "--lake-buffer is for a --lake in an object store"),
        ("--lake s3://bucket/lake --lake-buffer-size 0", "give a number of bytes"),
        ("--lake s3://bucket/lake --lake-buffer-size 1parsec", "give a number of bytes"),
    ] {
        let outcome = execute(&format!("run --port memory:zipf {options}"));
        assert_eq!(outcome.code, Some(2), "{options}: {outcome:?}");
        assert!(outcome.stderr.contains(reported), "{options}: {}", outcome.stderr);
    }
}
