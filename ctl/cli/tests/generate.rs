//! `flowgauge generate`: its files can be replayed and have the requested content.

use crate::common::tshark::{has_tshark, tshark};
use crate::common::{
    Scratch, command, csv_rows, fed, finish, float, flowgauge, generated, json_lines, list, number,
    numbers, of_kind, of_windows, records, run, text, total, with_truth,
};
use flowgauge_testing::skip;
use flowgauge_traffic::{Generator, Profile};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::process::{Command, Stdio};

/// Returns kinds, request times and response times of delays.
fn answers(truth: &str) -> impl Iterator<Item = (&str, u64, Option<u64>)> {
    csv_rows(truth).into_iter().map(|row| {
        let time = |name: &str| row[name].parse::<u64>().ok();
        (row["kind"], time("request_ns").unwrap(), time("response_ns"))
    })
}

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
        let file = generated(&scratch, &format!("{index}.pcap"), profile);
        let generator = Generator::new(profile.parse::<Profile>().unwrap());
        let packets = generator.profile().packets.unwrap();
        let sources: HashSet<u32> = (0..packets).map(|index| generator.source(index)).collect();
        for options in ["--window 3s", "--window 1h --workers 2"] {
            let records = records(&file, &format!("--truth --sample-every never {options}"));
            let total = total(&records);
            let bytes = packets * generator.frame_length() as u64;
            let counters = numbers(total, ["packets", family, "bytes"]);
            assert_eq!(counters, [packets, packets, bytes], "{profile}");
            assert_eq!(total["cardinality"]["truth"], sources.len(), "{profile}");
        }
    }
}

#[test]
fn the_thesis_experiment_has_22_minutes_of_100_packets_a_second() {
    let scratch = Scratch::new("thesis");
    let file = generated(&scratch, "thesis.pcap", "unique");
    let records = records(&file, "--truth --window 10s --sample-every never");
    let windows = of_kind(&records, "window");
    assert_eq!(windows.len(), 132);
    for window in windows {
        assert!(window["packets"] == 1000 && window["cardinality"]["truth"] == 1000, "{window}");
    }
    assert_eq!(total(&records)["cardinality"]["truth"], 132_000);
}

#[test]
fn an_attack_that_says_no_number_of_packets_ends_with_its_first_flood() {
    let scratch = Scratch::new("attack-default");
    let profile = "attack,rate=100,share=1,every=20s,lasting=5s";
    let file = generated(&scratch, "attack.pcap", profile);
    let records = records(&file, "--truth --key dst --window 5s --sample-every never");
    assert_eq!(of_windows(&records, "packets"), [500; 4]);
    // All packets of the flood have one destination, those before it many.
    let windows = of_kind(&records, "window").into_iter();
    let is_flood: Vec<bool> = windows.map(|window| window["cardinality"]["truth"] == 1).collect();
    assert_eq!(is_flood, [false, false, false, true]);
    // A minute with 10,000 packets per second, of 64 bytes and a record header of 16, after a file
    // header of 24.
    run(["generate", "attack", "--to", &file, "--force"]).quiet();
    assert_eq!(fs::metadata(&file).unwrap().len(), 24 + 600_000 * (16 + 64));
    run(["generate", "attack", "--to", "af_xdp:none", "--rate", "max"])
        .ended_with(2, &["attack needs a rate to time its floods"]);
}

#[test]
fn an_existing_file_is_replaced_only_by_force() {
    let scratch = Scratch::new("force");
    let file = scratch.write("kept.pcap", "precious");
    let refused = run(["generate", "unique,packets=10", "--to", &file]).ended(1);
    assert_eq!(refused.complaint(), format!("error: {file} exists; replace it with --force"));
    assert_eq!(fs::read(&file).unwrap(), b"precious");
    run(["generate", "unique,packets=10", "--to", &file, "--force"]).quiet();
    assert_eq!(number(total(&records(&file, "")), "packets"), 10);
}

#[test]
fn standard_output_gets_what_a_file_would() {
    let scratch = Scratch::new("stdout");
    let profile = "zipf,packets=5000,seed=3";
    let file = generated(&scratch, "file.pcap", profile);
    let output = flowgauge().args(["generate", profile, "--to", "-"]).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    assert!(output.stdout == fs::read(&file).unwrap());
    // Write to a pipe and read from it.
    let mut generate =
        command(&format!("generate {profile} --to -")).stdout(Stdio::piped()).spawn().unwrap();
    let replay = "replay - --format csv";
    let replayed = finish(command(replay).stdin(generate.stdout.take().unwrap()));
    assert!(generate.wait().unwrap().success());
    assert_eq!(replayed.quiet(), fed(replay, &file).quiet());
}

#[test]
fn what_cannot_be_written_is_told_in_one_line() {
    let scratch = Scratch::new("cannot");
    let missing = scratch.argument("no/such/directory.pcap");
    run(["generate", "unique,packets=10", "--to", &missing]).refused(1, "cannot create ", &[]);
    // Timestamps of a pcap file end in 2106.
    let late = scratch.argument("late.pcap");
    run(["generate", "unique,packets=100,rate=0.00000001", "--to", &late])
        .failed(1, &["does not fit into a pcap file"]);
    if File::options().write(true).open("/dev/full").is_err() {
        return skip("/dev/full");
    }
    let outcome = run(["generate", "unique,packets=10", "--to", "/dev/full", "--force"]);
    outcome.refused(1, "cannot write /dev/full: ", &[]);
}

#[test]
fn a_full_disk_leaves_no_file_under_its_name() {
    if !rustix::process::geteuid().is_root() {
        return skip("root, to mount a small file system");
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
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", script])
        .env("FLOWGAUGE", env!("CARGO_BIN_EXE_flowgauge"))
        .env("FLOWGAUGE_STATUS_DIR", "")
        .current_dir(scratch.path(""));
    let outcome = finish(&mut command).ended(0);
    let reported = outcome.stderr;
    assert_eq!(outcome.stdout, "old.pcap\n", "{reported}");
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
    let (capture, text) = with_truth(&scratch, "delay,requests=5k,answered=0.5,seed=4");
    let columns = "kind,request_ns,response_ns,src,dst,src_port,dst_port,retransmission";
    assert_eq!(text.lines().next(), Some(columns));
    assert_eq!(answers(&text).count(), 5_000);
    let answered = answers(&text).filter(|(.., response)| response.is_some()).count() as u64;
    assert_eq!(number(total(&records(&capture, "")), "packets"), 5_000 + answered);

    let [capture, truth] = ["reorder.pcap", "reorder.csv"].map(|name| scratch.argument(name));
    let reorder = "reorder,packets=20k,prefixes=30,heavy=3,share=0.2,ipv6";
    run(["generate", reorder, "--to", &capture, "--truth", &truth, "--rate", "10k"]).quiet();
    let text = fs::read_to_string(&truth).unwrap();
    let rows = csv_rows(&text);
    assert_eq!(rows.len(), 30);
    let heavy = rows.iter().filter(|row| row["heavy"] == "1").count();
    assert_eq!(heavy, 3, "{text}");
    assert_eq!(number(total(&records(&capture, "")), "ipv6_packets"), 20_000);
    // The truth includes those of servers, which are more.
    let counted: u64 = rows.iter().map(|row| row["packets"].parse::<u64>().unwrap()).sum();
    assert!((15_000..20_000).contains(&counted), "{counted}");

    // Neither file is written if one of them exists.
    let other = scratch.argument("other.pcap");
    let refused = run(["generate", reorder, "--to", &other, "--truth", &truth]).ended(1);
    let expected = format!("error: {truth} exists; replace it with --force");
    assert_eq!(refused.complaint(), expected);
    assert!(!fs::exists(&other).unwrap() && fs::read_to_string(&truth).unwrap() == text);
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
    for profile in [
        "delay,shape=conversations,requests=5k",
        "delay,shape=conversations,requests=5k,loss=0.05,timestamps,seed=2",
        "delay,shape=conversations,requests=5k,answered=0.5,ipv6,vlan=5",
    ] {
        let (capture, truth) = with_truth(&scratch, profile);
        // tshark does not report whole connections and timestamps.
        let printed: HashSet<(u64, u64)> = answers(&truth)
            .filter(|(kind, ..)| !["tcp-duration", "tcp-timestamps"].contains(kind))
            .filter_map(|(_, request, response)| Some((request, response?)))
            .collect();
        let mut command = tshark();
        command.args(["-r", &capture, "-T", "fields"]);
        command.args(["-o", "tcp.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]);
        for field in [
            "frame.time_epoch",
            "tcp.analysis.acks_frame",
            "tcp.analysis.ack_rtt",
            "tcp.flags",
            "dns.time",
            "tcp.checksum.status",
            "udp.checksum.status",
            "tcp.analysis.flags",
        ] {
            command.args(["-e", field]);
        }
        let output = finish(&mut command);
        let (mut times, mut found) = (Vec::new(), HashSet::new());
        for line in output.stdout.lines() {
            let [time, frame, round_trip, flags, dns, tcp_checksum, udp_checksum, analysis] =
                line.split('\t').collect::<Vec<_>>()[..]
            else {
                panic!("{line}")
            };
            let is_good = |checksum| ["1", "Good", ""].contains(&checksum);
            assert!(is_good(tcp_checksum) && is_good(udp_checksum), "{profile}: {line}");
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
        let (capture, truth) = with_truth(&scratch, profile);
        let mut printed: HashMap<&str, (u64, Vec<u64>)> = HashMap::new();
        for (kind, request, response) in answers(&truth) {
            let (requests, delays) = printed.entry(kind).or_default();
            *requests += 1;
            delays.extend(response.map(|response| response - request));
        }
        let options = "--window 1h --sample-every never --measure delay --delay tcp-handshake,tcp-data,dns --delay-slots 16384 --delay-admit 1";
        let records = records(&capture, options);
        let delays = list(total(&records), "delay");
        assert_eq!(delays.len(), 3);
        for delay in delays {
            let (requests, truth) = printed.get_mut(text(delay, "kind")).unwrap();
            assert_eq!(number(delay, "requests"), *requests, "{profile}: {delay}");
            truth.sort_unstable();
            for (name, percent) in [("p50", 50), ("p90", 90), ("p95", 95), ("p99", 99)] {
                let exact = truth[(truth.len() * percent).div_ceil(100) - 1] as f64;
                let error = float(&delay["corrected"][name], "value") / exact - 1.0;
                // Hardly any request is overwritten with this many slots. Quantiles are accurate
                // within 3 %.
                assert!(error.abs() <= 0.03, "{profile}: {name} {error} {exact} {delay}");
            }
        }
    }
}

#[test]
fn delays_one_by_one_are_those_of_the_truth() {
    let scratch = Scratch::new("one-by-one");
    let (capture, truth) = with_truth(&scratch, "delay,shape=conversations,requests=20k");
    let samples = scratch.argument("delays.jsonl");
    // Answer times of each kind, and their delays. A packet answers at most one request of a kind.
    let printed: HashMap<(&str, u64), u64> = answers(&truth)
        .filter_map(|(kind, request, response)| Some(((kind, response?), response? - request)))
        .collect();
    let options = format!(
        "--window 1s --sample-every never --measure delay --delay-slots 16384 --delay-samples {samples}"
    );
    let records = records(&capture, &options);
    let lines = json_lines(&fs::read_to_string(&samples).unwrap());
    let (mut answers, mut all) = (HashMap::<&str, u64>::new(), 0);
    for line in &lines {
        if line["record"] == "delay-sample" {
            let (kind, at) = (text(line, "kind"), number(line, "time_ns"));
            let exact =
                printed.get(&(kind, at)).unwrap_or_else(|| panic!("no such answer: {line}"));
            // Both times are in whole ticks.
            assert!(number(line, "delay_ns").abs_diff(*exact) < 64, "{line}: {exact}");
            assert_eq!(text(line, "flow").len(), 16);
            *answers.entry(kind).or_default() += 1;
            continue;
        }
        let window = of_kind(&records, "window")
            .into_iter()
            .find(|record| record["window"] == line["window"])
            .unwrap();
        for delay in list(window, "delay") {
            let sampled = answers.get(text(delay, "kind")).copied().unwrap_or_default();
            assert_eq!(number(delay, "answers"), sampled, "{line}: {delay}");
            assert!(delay["unsampled"].is_null(), "{delay}");
        }
        let samples: u64 = answers.drain().map(|(_, samples)| samples).sum();
        assert_eq!(numbers(line, ["samples", "missing"]), [samples, 0], "{line}");
        all += samples;
    }
    assert!(answers.is_empty(), "behind the last window: {answers:?}");
    assert_eq!(of_kind(&lines, "window").len(), of_kind(&records, "window").len());
    // A few requests are overwritten even with this many slots.
    let is_measured =
        |(kind, _): &&(&str, u64)| ["tcp-handshake", "tcp-data", "dns"].contains(kind);
    let measured = printed.keys().filter(is_measured).count();
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
        let (capture, truth) = with_truth(&scratch, profile);
        let printed = csv_rows(&truth);
        let column = |name: &str| {
            printed.iter().map(|row| row[name].parse::<usize>().unwrap()).sum::<usize>()
        };
        let wanted = "tcp.analysis.out_of_order or tcp.analysis.retransmission";
        let found = finish(tshark().args(["-r", &capture, "-Y", wanted])).stdout.lines().count();
        // How tshark classifies a segment depends on its arrival time. A retransmission after all
        // others looks like a new segment.
        let expected = column("out_of_order") + column("repeated") + column("filling");
        assert_eq!(found, expected, "{profile}");
        let again = column("repeated") + column("filling");
        assert!(found > 100 && column("retransmitted") > again, "{profile}");
    }
}
