//! `flowgauge generate`: its files can be replayed and have the requested content.

use crate::common::tshark::{has_tshark, tshark};
use crate::common::{Outcome, Scratch, flowgauge, number, of_kind, records, run, total};
use flowgauge_testing::skip;
use flowgauge_traffic::{Generator, Profile};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::path::Path;

#[test]
fn generated_traffic_replays_with_its_exact_counts() {
    let scratch = Scratch::new("round-trip");
    for (index, (profile, family)) in [
        ("unique,packets=3000", "ipv4_packets"),
        ("sequential,packets=3000,rate=1k", "ipv4_packets"),
        ("subnets,packets=3000,size=1500,seed=7", "ipv4_packets"),
        ("zipf,packets=20k,flows=500,alpha=1.3,rate=1k", "ipv4_packets"),
        ("burst,packets=5k,flows=100,rate=500", "ipv4_packets"),
        ("unique,packets=3000,ipv6,size=100", "ipv6_packets"),
        ("zipf,packets=3000,ipv6,vlan=7,size=100", "ipv6_packets"),
    ]
    .into_iter()
    .enumerate()
    {
        let file = scratch.path(&format!("{index}.pcap"));
        assert_eq!(run(["generate", profile, "--to", file.to_str().unwrap()]).quiet(), "");
        let generator = Generator::new(profile.parse::<Profile>().unwrap());
        let packets = generator.profile().packets.unwrap();
        let sources: HashSet<u32> = (0..packets).map(|index| generator.source(index)).collect();
        for options in ["--window 3s", "--window 1h --workers 2"] {
            let records = records(&file, &format!("--truth --sample-every never {options}"));
            let total = total(&records);
            assert_eq!(
                (number(total, "packets"), number(total, family)),
                (packets, packets),
                "{profile}"
            );
            assert_eq!(
                number(total, "bytes"),
                packets * generator.frame_length() as u64,
                "{profile}"
            );
            assert_eq!(total["cardinality"]["truth"], sources.len(), "{profile}");
        }
    }
}

#[test]
fn the_thesis_experiment_has_22_minutes_of_100_packets_a_second() {
    let scratch = Scratch::new("thesis");
    let file = scratch.path("thesis.pcap");
    run(["generate", "unique", "--to", file.to_str().unwrap()]).quiet();
    let records = records(&file, "--truth --window 10s --sample-every never");
    let windows = of_kind(&records, "window");
    assert_eq!(windows.len(), 132);
    assert!(
        windows
            .iter()
            .all(|window| window["packets"] == 1000 && window["cardinality"]["truth"] == 1000)
    );
    assert_eq!(total(&records)["cardinality"]["truth"], 132_000);
}

#[test]
fn an_attack_that_says_no_number_of_packets_ends_with_its_first_flood() {
    let scratch = Scratch::new("attack-default");
    let file = scratch.path("attack.pcap");
    run([
        "generate",
        "attack,rate=100,share=1,every=20s,lasting=5s",
        "--to",
        file.to_str().unwrap(),
    ])
    .quiet();
    let records = records(&file, "--truth --key dst --window 5s --sample-every never");
    let windows: Vec<_> = of_kind(&records, "window")
        .into_iter()
        .map(|window| (&window["packets"], &window["cardinality"]))
        .collect();
    assert_eq!(windows.len(), 4);
    assert!(windows.iter().all(|(packets, _)| **packets == 500));
    // All packets of the flood have one destination, those before it many.
    assert_eq!(
        windows.iter().map(|(_, printed)| printed["truth"] == 1).collect::<Vec<_>>(),
        [false, false, false, true]
    );
    // A minute with 10,000 packets per second, of 64 bytes and a record header of 16, after a file
    // header of 24.
    run(["generate", "attack", "--to", file.to_str().unwrap(), "--force"]).quiet();
    assert_eq!(fs::metadata(&file).unwrap().len(), 24 + 600_000 * (16 + 64));
    let refused = run(["generate", "attack", "--to", "af_xdp:none", "--rate", "max"]);
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains("attack needs a rate to time its floods"),
        "{}",
        refused.stderr
    );
}

#[test]
fn an_existing_file_is_replaced_only_by_force() {
    let scratch = Scratch::new("force");
    let file = scratch.write("kept.pcap", "precious");
    let refused = run(["generate", "unique,packets=10", "--to", &file]);
    assert_eq!(refused.code, Some(1));
    assert_eq!(refused.complaint(), format!("error: {file} exists; replace it with --force"));
    assert_eq!(fs::read(&file).unwrap(), b"precious");
    run(["generate", "unique,packets=10", "--to", &file, "--force"]).quiet();
    assert_eq!(number(total(&records(&file, "")), "packets"), 10);
}

#[test]
fn standard_output_gets_what_a_file_would() {
    let scratch = Scratch::new("stdout");
    let file = scratch.path("file.pcap");
    let profile = "zipf,packets=5000,seed=3";
    run(["generate", profile, "--to", file.to_str().unwrap()]).quiet();
    let output = flowgauge().args(["generate", profile, "--to", "-"]).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    assert!(output.stdout == fs::read(&file).unwrap());
    // Write to a pipe and read from it.
    let mut generate = flowgauge()
        .args(["generate", profile, "--to", "-"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let replay = flowgauge()
        .args(["replay", "-", "--format", "csv"])
        .stdin(generate.stdout.take().unwrap())
        .output()
        .unwrap();
    assert!(generate.wait().unwrap().success());
    let from_file = flowgauge()
        .args(["replay", "-", "--format", "csv"])
        .stdin(File::open(&file).unwrap())
        .output()
        .unwrap();
    assert_eq!(Outcome::from(replay).quiet(), Outcome::from(from_file).quiet());
}

#[test]
fn what_cannot_be_written_is_told_in_one_line() {
    let scratch = Scratch::new("cannot");
    let missing = scratch.path("no/such/directory.pcap");
    let outcome = run(["generate", "unique,packets=10", "--to", missing.to_str().unwrap()]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.complaint().starts_with("error: cannot create "), "{}", outcome.stderr);
    // Timestamps of a pcap file end in 2106.
    let late = scratch.path("late.pcap");
    let outcome =
        run(["generate", "unique,packets=100,rate=0.00000001", "--to", late.to_str().unwrap()]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.complaint().contains("does not fit into a pcap file"), "{}", outcome.stderr);
    if File::options().write(true).open("/dev/full").is_err() {
        skip("/dev/full");
        return;
    }
    let outcome = run(["generate", "unique,packets=10", "--to", "/dev/full", "--force"]);
    assert_eq!(outcome.code, Some(1));
    assert!(
        outcome.complaint().starts_with("error: cannot write /dev/full: "),
        "{}",
        outcome.stderr
    );
}

#[test]
fn a_full_disk_leaves_no_file_under_its_name() {
    if !rustix::process::geteuid().is_root() {
        skip("root, to mount a small file system");
        return;
    }
    let scratch = Scratch::new("generate-full");
    fs::create_dir(scratch.path("full")).unwrap();
    // In a mount namespace, so that the mount ends with it.
    let script = r#"mount -t tmpfs -o size=256k none full || exit 77
        "$FLOWGAUGE" generate unique,packets=10 --to full/old.pcap || exit 78
        cp full/old.pcap old.pcap
        "$FLOWGAUGE" generate unique,packets=100 --to trace.pcap || exit 79
        head -c 300k /dev/zero > full/filler
        for command in "generate unique,packets=10k --to full/new.pcap" "generate unique,packets=10k --to full/old.pcap --force" \
            "generate delay,requests=5k --to /dev/null --force --truth full/truth.csv" "report trace.pcap --to full/page.html"; do
            "$FLOWGAUGE" $command && exit 80
        done
        cmp full/old.pcap old.pcap || exit 81
        rm full/filler
        ls -A full"#;
    let output = std::process::Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .env("FLOWGAUGE", env!("CARGO_BIN_EXE_flowgauge"))
        .env("FLOWGAUGE_STATUS_DIR", "")
        .current_dir(scratch.path(""))
        .output()
        .unwrap();
    let [printed, reported] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert_eq!((output.status.code(), printed.as_str()), (Some(0), "old.pcap\n"), "{reported}");
    assert_eq!(reported.matches("No space left on device").count(), 5, "{reported}");
    for name in ["full/new.pcap", "full/old.pcap", "full/truth.csv", "full/page.html"] {
        assert!(reported.contains(&format!("error: cannot write {name}: ")), "{name}: {reported}");
    }
}

/// A pipe and standard output are written directly, also if a file is behind it.
#[test]
fn what_is_no_file_is_not_replaced() {
    let scratch = Scratch::new("generate-pipe");
    let (pipe, file) = (scratch.path("pipe"), scratch.path("file"));
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let profile = "unique,packets=100";
    let expected = flowgauge().args(["generate", profile, "--to", "-"]).output().unwrap().stdout;
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read(pipe).unwrap()
    });
    run(["generate", profile, "--to", pipe.to_str().unwrap(), "--force"]).quiet();
    assert!(reader.join().unwrap() == expected && fs::symlink_metadata(&pipe).is_ok());
    let status = flowgauge()
        .args(["generate", profile, "--to", "/dev/stdout", "--force"])
        .stdout(File::create(&file).unwrap())
        .status()
        .unwrap();
    assert!(status.success() && fs::read(&file).unwrap() == expected);
    assert_eq!(fs::read_dir(scratch.path("")).unwrap().count(), 2);
}

#[test]
fn the_truth_of_a_sequence_is_written_beside_it() {
    let scratch = Scratch::new("truth");
    let [capture, truth] =
        ["delay.pcap", "delay.csv"].map(|name| scratch.path(name).to_str().unwrap().to_owned());
    run(["generate", "delay,requests=5k,answered=0.5,seed=4", "--to", &capture, "--truth", &truth])
        .quiet();
    let lines: Vec<Vec<String>> = fs::read_to_string(&truth)
        .unwrap()
        .lines()
        .map(|line| line.split(',').map(str::to_owned).collect())
        .collect();
    assert_eq!(
        lines[0].join(","),
        "kind,request_ns,response_ns,src,dst,src_port,dst_port,retransmission"
    );
    assert!(lines.iter().all(|line| line.len() == lines[0].len()));
    assert_eq!(lines.len() - 1, 5_000);
    let answered = lines[1..].iter().filter(|line| !line[2].is_empty()).count() as u64;
    assert_eq!(number(total(&records(Path::new(&capture), "")), "packets"), 5_000 + answered);

    let [capture, truth] =
        ["reorder.pcap", "reorder.csv"].map(|name| scratch.path(name).to_str().unwrap().to_owned());
    let reorder = "reorder,packets=20k,prefixes=30,heavy=3,share=0.2,ipv6";
    run(["generate", reorder, "--to", &capture, "--truth", &truth, "--rate", "10k"]).quiet();
    let text = fs::read_to_string(&truth).unwrap();
    assert_eq!(text.lines().count(), 31);
    let heavy = text.lines().filter(|line| line.split(',').nth(1) == Some("1")).count();
    assert_eq!(heavy, 3, "{text}");
    let records = records(Path::new(&capture), "");
    assert_eq!(number(total(&records), "ipv6_packets"), 20_000);
    // The truth includes those of servers, which are more.
    let counted: u64 = text
        .lines()
        .skip(1)
        .map(|line| line.split(',').nth(2).unwrap().parse::<u64>().unwrap())
        .sum();
    assert!((15_000..20_000).contains(&counted), "{counted}");

    // Neither file is written if one of them exists.
    let other = scratch.path("other.pcap");
    let refused = run(["generate", reorder, "--to", other.to_str().unwrap(), "--truth", &truth]);
    assert_eq!(
        (refused.code, refused.complaint()),
        (Some(1), format!("error: {truth} exists; replace it with --force").as_str())
    );
    assert!(!other.exists() && fs::read_to_string(&truth).unwrap() == text);
}

/// Converts epoch times as printed by tshark to nanoseconds.
fn nanoseconds(text: &str) -> u64 {
    let (seconds, fraction) = text.split_once('.').unwrap();
    seconds.parse::<u64>().unwrap() * 1_000_000_000
        + format!("{fraction:0<9}").parse::<u64>().unwrap()
}

#[test]
fn round_trips_are_those_of_tshark() {
    if !has_tshark() {
        return;
    }
    let scratch = Scratch::new("round-trips");
    for (number, profile) in [
        "delay,shape=conversations,requests=5k",
        "delay,shape=conversations,requests=5k,loss=0.05,timestamps,seed=2",
        "delay,shape=conversations,requests=5k,answered=0.5,ipv6,vlan=5",
    ]
    .into_iter()
    .enumerate()
    {
        let [capture, truth] = ["pcap", "csv"]
            .map(|kind| scratch.path(&format!("{number}.{kind}")).to_str().unwrap().to_owned());
        run(["generate", profile, "--to", &capture, "--truth", &truth]).quiet();
        let mut printed = HashSet::new();
        for line in fs::read_to_string(&truth).unwrap().lines().skip(1) {
            let [kind, request, response, ..] = line.split(',').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            // tshark does not report whole connections and timestamps.
            if !response.is_empty() && !["tcp-duration", "tcp-timestamps"].contains(&kind) {
                printed.insert((request.parse::<u64>().unwrap(), response.parse::<u64>().unwrap()));
            }
        }
        let mut command = tshark();
        command.args([
            "-r",
            &capture,
            "-T",
            "fields",
            "-o",
            "tcp.check_checksum:TRUE",
            "-o",
            "udp.check_checksum:TRUE",
        ]);
        for field in [
            "frame.time_epoch",
            "tcp.analysis.acks_frame",
            "tcp.analysis.ack_rtt",
            "tcp.flags",
            "dns.time",
        ] {
            command.args(["-e", field]);
        }
        command.args([
            "-e",
            "tcp.checksum.status",
            "-e",
            "udp.checksum.status",
            "-e",
            "tcp.analysis.flags",
        ]);
        let output = Outcome::from(command.output().unwrap());
        let (mut times, mut found) = (Vec::new(), HashSet::new());
        for line in output.stdout.lines() {
            let [time, frame, round_trip, flags, dns, tcp_checksum, udp_checksum, analysis] =
                line.split('\t').collect::<Vec<_>>()[..]
            else {
                panic!("{line}")
            };
            assert!(
                ["1", "Good", ""].contains(&tcp_checksum)
                    && ["1", "Good", ""].contains(&udp_checksum),
                "{profile}: {line}"
            );
            // tshark sees no retransmission, reordering or second acknowledgement.
            assert!(
                analysis.is_empty() || !round_trip.is_empty() && analysis == "1",
                "{profile}: {line}"
            );
            let now = nanoseconds(time);
            if !dns.is_empty() {
                found.insert((now - nanoseconds(dns), now));
            }
            if !frame.is_empty() {
                let (asked, flags_asked): (u64, u16) = times[frame.parse::<usize>().unwrap() - 1];
                assert_eq!(now - asked, nanoseconds(round_trip), "{profile}: {line}");
                // An acknowledgement of a SYN/ACK is not a round trip that flowgauge measures.
                if flags_asked & 0x12 != 0x12 {
                    found.insert((asked, now));
                }
            }
            times.push((now, u16::from_str_radix(flags.trim_start_matches("0x"), 16).unwrap_or(0)));
        }
        assert!(printed.len() > 5_000, "{profile}");
        let differing: Vec<_> = printed.symmetric_difference(&found).take(3).collect();
        assert!(differing.is_empty(), "{profile}: {differing:?} of {}", printed.len());
    }
}

#[test]
fn delays_that_are_measured_are_those_of_the_truth() {
    let scratch = Scratch::new("delays");
    for profile in [
        "delay,shape=conversations,requests=20k",
        "delay,shape=conversations,requests=20k,ipv6,vlan=4,loss=0.02,timestamps",
    ] {
        let [capture, truth] = ["pcap", "csv"]
            .map(|kind| scratch.path(&format!("delays.{kind}")).to_str().unwrap().to_owned());
        run(["generate", profile, "--to", &capture, "--truth", &truth, "--force"]).quiet();
        let mut printed: HashMap<String, (u64, Vec<u64>)> = HashMap::new();
        for line in fs::read_to_string(&truth).unwrap().lines().skip(1) {
            let [kind, request, response, ..] = line.split(',').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let (requests, delays) = printed.entry(kind.to_owned()).or_default();
            *requests += 1;
            delays.extend(
                response
                    .parse::<u64>()
                    .ok()
                    .map(|response| response - request.parse::<u64>().unwrap()),
            );
        }
        let options = "--window 1h --sample-every never --measure delay --delay tcp-handshake,tcp-data,dns --delay-slots 16384 --delay-admit 1";
        let records = records(Path::new(&capture), options);
        let delays = total(&records)["delay"].as_array().unwrap();
        assert_eq!(delays.len(), 3);
        for delay in delays {
            let (requests, truth) = printed.get_mut(delay["kind"].as_str().unwrap()).unwrap();
            assert_eq!(number(delay, "requests"), *requests, "{profile}: {delay}");
            truth.sort_unstable();
            for (name, percent) in [("p50", 50), ("p90", 90), ("p95", 95), ("p99", 99)] {
                let exact = truth[(truth.len() * percent).div_ceil(100) - 1] as f64;
                let measured = delay["corrected"][name]["value"].as_f64().unwrap();
                // Hardly any request is overwritten with this many slots. Quantiles are accurate
                // within 3 %.
                assert!(
                    (measured / exact - 1.0).abs() <= 0.03,
                    "{profile}: {name} {measured} {exact} {delay}"
                );
            }
        }
    }
}

#[test]
fn delays_one_by_one_are_those_of_the_truth() {
    let scratch = Scratch::new("one-by-one");
    let [capture, truth, samples] = ["pcap", "csv", "jsonl"]
        .map(|kind| scratch.path(&format!("delays.{kind}")).to_str().unwrap().to_owned());
    run([
        "generate",
        "delay,shape=conversations,requests=20k",
        "--to",
        &capture,
        "--truth",
        &truth,
    ])
    .quiet();
    let truth = fs::read_to_string(&truth).unwrap();
    // Answer times of each kind, and their delays. A packet answers at most one request of a kind.
    let printed = truth.lines().skip(1).filter_map(|line| {
        let [kind, request, response, ..] = line.split(',').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let [request, response] = [request, response].map(|time| time.parse::<u64>().ok());
        Some(((kind.to_owned(), response?), response? - request?))
    });
    let printed: HashMap<(String, u64), u64> = printed.collect();
    let options = format!(
        "--window 1s --sample-every never --measure delay --delay-slots 16384 --delay-samples {samples}"
    );
    let records = records(Path::new(&capture), &options);
    let lines = fs::read_to_string(&samples).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (mut answers, mut all) = (HashMap::<String, u64>::new(), 0);
    for line in &lines {
        if line["record"] == "delay-sample" {
            let (kind, at) = (line["kind"].as_str().unwrap(), number(line, "time_ns"));
            let exact = printed
                .get(&(kind.to_owned(), at))
                .unwrap_or_else(|| panic!("no such answer: {line}"));
            // Both times are in whole ticks.
            assert!(number(line, "delay_ns").abs_diff(*exact) < 64, "{line}: {exact}");
            assert_eq!(line["flow"].as_str().unwrap().len(), 16);
            *answers.entry(kind.to_owned()).or_default() += 1;
            continue;
        }
        let window = of_kind(&records, "window")
            .into_iter()
            .find(|record| record["window"] == line["window"])
            .unwrap();
        for delay in window["delay"].as_array().unwrap() {
            let kind = delay["kind"].as_str().unwrap();
            assert_eq!(
                number(delay, "answers"),
                answers.get(kind).copied().unwrap_or_default(),
                "{line}: {delay}"
            );
            assert!(delay["unsampled"].is_null(), "{delay}");
        }
        let samples: u64 = answers.drain().map(|(_, samples)| samples).sum();
        assert_eq!((number(line, "samples"), number(line, "missing")), (samples, 0), "{line}");
        all += samples;
    }
    assert!(answers.is_empty(), "behind the last window: {answers:?}");
    assert_eq!(
        lines.iter().filter(|line| line["record"] == "window").count(),
        of_kind(&records, "window").len()
    );
    // A few requests are overwritten even with this many slots.
    let measured = printed
        .keys()
        .filter(|(kind, _)| ["tcp-handshake", "tcp-data", "dns"].contains(&kind.as_str()))
        .count();
    assert!(all as f64 > 0.99 * measured as f64, "{all} of {measured}");
}

#[test]
fn segments_that_come_late_or_again_are_those_of_tshark() {
    if !has_tshark() {
        return;
    }
    let scratch = Scratch::new("late");
    for profile in [
        "reorder,packets=100k,prefixes=200,heavy=10,share=0.2,flows=2k,loss=0.002",
        "reorder,packets=50k,prefixes=20,heavy=5,share=0.5,flows=100,loss=0.01,depth=6,ipv6,timestamps,seed=4",
    ] {
        let [capture, truth] = ["pcap", "csv"]
            .map(|kind| scratch.path(&format!("late.{kind}")).to_str().unwrap().to_owned());
        run(["generate", profile, "--to", &capture, "--truth", &truth, "--force"]).quiet();
        let printed = fs::read_to_string(&truth).unwrap();
        let column = |name: &str| {
            let mut lines = printed.lines().map(|line| line.split(',').collect::<Vec<_>>());
            let place = lines.next().unwrap().iter().position(|column| *column == name).unwrap();
            lines.map(|line| line[place].parse::<usize>().unwrap()).sum::<usize>()
        };
        let output = tshark()
            .args([
                "-r",
                &capture,
                "-Y",
                "tcp.analysis.out_of_order or tcp.analysis.retransmission",
            ])
            .output();
        let found = Outcome::from(output.unwrap()).stdout.lines().count();
        // How tshark classifies a segment depends on its arrival time. A retransmission after all
        // others looks like a new segment.
        let expected = column("out_of_order") + column("repeated") + column("filling");
        assert_eq!(found, expected, "{profile}");
        assert!(
            found > 100 && column("retransmitted") > column("repeated") + column("filling"),
            "{profile}"
        );
    }
}
