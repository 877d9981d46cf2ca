//! Captures that are truncated, corrupt or not captures at all: what is readable is counted, and
//! one line reports the damage.

use crate::common::{
    Outcome, SECOND, Scratch, fed, finish, flowgauge, number, packets, parse, pcap, replay, run,
    total,
};
use flowgauge_dataplane::capture::build::{self, ExtraBlock, PcapNgOptions, PcapOptions};
use flowgauge_testing::skip;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;

/// Size of a record header and frame of these packets.
const RECORD: usize = 16 + 60;
const PACKETS: usize = 5;

fn sound() -> Vec<u8> {
    let file = pcap(&packets(0..PACKETS as u32, SECOND));
    assert_eq!(file.len(), 24 + PACKETS * RECORD);
    file
}

fn sound_ng(options: PcapNgOptions) -> Vec<u8> {
    build::pcapng(&options, &packets(0..PACKETS as u32, SECOND))
}

/// Overwrites bytes of a file.
fn patched(mut file: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

fn cut(mut file: Vec<u8>, length: usize) -> Vec<u8> {
    file.truncate(length);
    file
}

/// Damaged file, its readable packets, and the expected message.
struct Case {
    name: &'static str,
    content: Vec<u8>,
    packets: u64,
    complaint: &'static [&'static str],
}

fn cases() -> Vec<Case> {
    let case = |name, content, packets, complaint| Case { name, content, packets, complaint };
    let second = 24 + RECORD;
    let ng = || sound_ng(PcapNgOptions::default());
    // A section header of 28 and an interface of 20 bytes, followed by packets of 32 + 60.
    let ng_packet = |index: usize| 48 + index * 92;
    let unsupported = PcapOptions { network: 187, ..PcapOptions::default() };
    let stray = ExtraBlock { before: 2, block_type: 0x0bad, body: vec![0; 8] };
    let with_stray = sound_ng(PcapNgOptions { extra: vec![stray], ..PcapNgOptions::default() });
    vec![
        case(
            "header-cut.pcap",
            cut(sound(), second + 7),
            1,
            &["ends inside a record at byte 100, after 1 packet", "7 bytes"],
        ),
        case(
            "data-cut.pcap",
            cut(sound(), second + 16 + 10),
            1,
            &["ends inside a record at byte 100, after 1 packet"],
        ),
        case(
            "last-byte-cut.pcap",
            cut(sound(), 24 + 5 * RECORD - 1),
            4,
            &["at byte 328, after 4 packets", "75 bytes of 76"],
        ),
        case(
            "length.pcap",
            patched(sound(), second + 8, &[0xff; 4]),
            1,
            &["captured length 4294967295 at byte 100"],
        ),
        case(
            "block-cut.pcapng",
            cut(ng(), ng_packet(3) + 50),
            3,
            &["ends inside a block at byte 324, after 3 packets"],
        ),
        case(
            "block-length.pcapng",
            patched(ng(), ng_packet(2) + 4, &[11]),
            2,
            &["length 12 of a block", "at byte 232"],
        ),
        case(
            "trailer.pcapng",
            patched(ng(), ng_packet(2) - 4, &[91]),
            1,
            &["at byte 140, after 1 packet", "length 91"],
        ),
        case(
            "interface.pcapng",
            patched(ng(), ng_packet(1) + 8, &[9]),
            1,
            &["interface 9 of a packet at byte 140"],
        ),
        case(
            "stray-cut.pcapng",
            cut(with_stray, ng_packet(2) + 10),
            2,
            &["ends inside a block at byte 232", "10 bytes of 20"],
        ),
        case(
            "headset.pcap",
            build::pcap(&unsupported, &packets(0..5, SECOND)),
            5,
            &["5 packets of link type 187 (BLUETOOTH_HCI_H4)", "non-IP"],
        ),
    ]
}

/// Returns files without anything to count, and the expected messages.
fn no_captures() -> Vec<(&'static str, Vec<u8>, &'static [&'static str])> {
    let ng = sound_ng(PcapNgOptions::default());
    vec![
        ("empty.pcap", vec![], &["not a capture: the file is empty"]),
        ("notes.txt", b"from eth0, on Tuesday\n".repeat(50), &["not a capture: the file is text"]),
        ("trace.pcap.bz2", [&b"BZh91AY&SY"[..], &[7; 100]].concat(), &["bzip2", "bunzip2"]),
        (
            "trace.pcap.gz",
            [&[0x1f, 0x8b, 8, 0][..], &[7; 100]].concat(),
            &["cannot read", "gzip data"],
        ),
        (
            "trace.pcap.zst",
            [&[0x28, 0xb5, 0x2f, 0xfd][..], &[7; 100]].concat(),
            &["cannot read", "Zstandard data"],
        ),
        ("trace.pcap.xz", [&b"\xfd7zXZ\0"[..], &[7; 100]].concat(), &["cannot read", "xz data"]),
        ("zeros", vec![0; 4096], &["not a capture: the file begins with 00 00 00 00"]),
        ("file-header-cut.pcap", cut(sound(), 23), &["ends inside a file header at byte 0"]),
        ("version.pcap", patched(sound(), 4, &[3]), &["version 3.4 of pcap at byte 0"]),
        (
            "byte-order.pcapng",
            patched(ng, 8, &[0; 4]),
            &["byte-order magic 0x00000000", "at byte 0"],
        ),
    ]
}

/// No table of zeros is printed, since nothing was counted.
#[test]
fn what_is_no_capture_is_an_error_and_nothing_else() {
    let scratch = Scratch::new("no-capture");
    for (name, content, complaint) in no_captures() {
        let file = scratch.write(name, content);
        let port = format!("pcap:{file}");
        for (outcome, name) in [
            (replay(&file, ""), name),
            (replay(&file, "--format json --workers 3"), name),
            (run(["run", "--port", &port]), name),
            (fed("replay -", &file), "standard input"),
        ] {
            outcome.refused(1, "", &[complaint, &[name]].concat());
        }
    }
}

#[track_caller]
fn hold(outcome: Outcome, name: &str, packets: u64, complaint: &[&str]) {
    let printed = outcome.told(1, &[complaint, &[name]].concat());
    assert_eq!(counted(&printed), packets, "{name}");
}

/// Returns the number of packets in records.
#[track_caller]
fn counted(records: &str) -> u64 {
    number(total(&parse(records)), "packets")
}

#[test]
fn what_is_readable_is_counted_and_one_line_says_where_it_broke() {
    let scratch = Scratch::new("damage");
    for Case { name, content, packets, complaint } in cases() {
        let file = scratch.write(name, content);
        for options in
            ["", "--workers 3", "--truth --window 2s", "--staggered 10s", "--measure none"]
        {
            hold(replay(&file, &format!("--format json {options}")), name, packets, complaint);
        }
        let piped = fed("replay - --format json", &file);
        hold(piped, "standard input", packets, complaint);
    }
}

#[test]
fn damage_is_told_whatever_the_format_of_the_results() {
    let scratch = Scratch::new("damage-formats");
    let file = scratch.write("cut.pcap", cut(sound(), 200));
    for format in ["table", "csv", "json"] {
        let outcome = replay(&file, &format!("--format {format}"));
        let printed = outcome.told(1, &["after 2 packets"]);
        assert!(!printed.is_empty() && !printed.contains("packets of"), "{printed}");
    }
    // A disabled log must not hide why the exit code is 1.
    let outcome = finish(flowgauge().args(["replay", &file]).env("RUST_LOG", "off")).ended(1);
    let complaint = outcome.complaint();
    assert!(complaint.starts_with("error: the results above are incomplete: "), "{complaint}");
}

#[test]
fn a_live_run_on_a_damaged_capture_says_so_too() {
    let scratch = Scratch::new("damage-live");
    // No time between the packets, so that the run ends immediately.
    let file = scratch.write("cut.pcap", cut(pcap(&packets(0..5, 0)), 24 + 3 * RECORD + 5));
    let port = format!("pcap:{file}");
    let mut outcome = run(["run", "--port", port.as_str(), "--format", "json"]);
    let (log, last) = outcome.stderr.trim_end().rsplit_once('\n').unwrap();
    assert!(last.starts_with(" WARN exit code 1, because results are incomplete: "), "{last}");
    outcome.stderr = log.to_owned();
    hold(outcome, "cut.pcap", 3, &["at byte 252, after 3 packets"]);
}

#[test]
fn a_capture_cut_anywhere_loses_only_what_was_cut() {
    let scratch = Scratch::new("cut-anywhere");
    let whole = sound();
    for length in (24..=whole.len()).step_by(7) {
        let file = scratch.write("cut.pcap", &whole[..length]);
        let outcome = replay(&file, "--format json --sample-every never");
        let readable = (length - 24) / RECORD;
        let at = 24 + readable * RECORD;
        if at == length {
            let said = if readable == 0 {
                outcome.complaint().ends_with("the capture has no packets")
            } else {
                outcome.stderr.is_empty()
            };
            assert!(outcome.code == Some(0) && said, "{outcome:?}");
            assert_eq!(counted(&outcome.stdout), readable as u64);
        } else {
            let complaint = format!("at byte {at}, after {readable} packet");
            hold(outcome, "cut.pcap", readable as u64, &[&complaint]);
        }
    }
}

#[test]
fn no_byte_set_to_nonsense_makes_the_program_panic() {
    let scratch = Scratch::new("nonsense");
    let (pcap, pcapng) =
        (cut(sound(), 24 + 2 * RECORD), cut(sound_ng(PcapNgOptions::default()), 48 + 2 * 92));
    for (name, file) in [("a.pcap", pcap), ("a.pcapng", pcapng)] {
        for at in (0..file.len()).step_by(3) {
            let damaged = scratch.write(name, patched(file.clone(), at, &[!file[at]]));
            // `Outcome` checks for panics. A timestamp may have changed arbitrarily, so windows may
            // be omitted with a warning.
            let outcome = replay(&damaged, "--format json --window 1h --sample-every never");
            let case = format!("byte {at} of {name}: {outcome:?}");
            assert!(matches!(outcome.code, Some(0 | 1)), "{case}");
            if outcome.stdout.is_empty() {
                // It is no longer a capture.
                assert!(at < 28 && outcome.complaint().starts_with("error: "), "{case}");
                continue;
            }
            assert!(counted(&outcome.stdout) <= 2, "{case}");
            assert!(outcome.stderr.lines().count() <= 2, "{case}");
        }
    }
}

#[test]
fn what_cannot_be_opened_or_read_is_named() {
    let scratch = Scratch::new("unreadable");
    let directory = scratch.path("directory");
    fs::create_dir(&directory).unwrap();
    let directory = directory.to_str().unwrap();
    for (file, reason) in [("/does/not/exist.pcap", "No such file"), (directory, "is a directory")]
    {
        let port = format!("pcap:{file}");
        for arguments in [["replay", file].as_slice(), &["run", "--port", &port]] {
            run(arguments).refused(1, "", &[file, reason]);
        }
    }
}

#[test]
fn a_file_without_permission_is_named() {
    let scratch = Scratch::new("permission");
    let file = scratch.write("secret.pcap", sound());
    fs::set_permissions(&file, Permissions::from_mode(0o000)).unwrap();
    if File::open(&file).is_ok() {
        return skip("an unprivileged user");
    }
    replay(&file, "").refused(1, "", &["Permission denied"]);
}

/// The memory of a process can be opened, but not read at offset zero.
#[test]
#[cfg(target_os = "linux")]
fn a_file_that_fails_while_it_is_read_is_no_empty_success() {
    let outcome = replay("/proc/self/mem", "--format json");
    outcome.refused(1, "", &["cannot read /proc/self/mem: "]);
}
