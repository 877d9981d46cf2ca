//! Lake files that were damaged, crafted, or edited by engines and people.

use crate::common::lake::{self, compact, generate, unions};
use crate::common::served::ALL;
use crate::common::{Running, Scratch, command, csv_rows, files, finish, number};
use flowgauge_ctl::lake::union::{Options, Selection, unite};
use flowgauge_testing::wait;
use nix::sys::stat::Mode;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

/// Counts traffic into a lake as this host.
fn replay(scratch: &Scratch, host: &str, profile: &str, options: &str) {
    let capture = generate(scratch, profile, &format!("{host}.pcap"));
    let options = format!("--align {options}");
    lake::replay(&scratch.path("lake"), host, &capture, &options).ended(0);
}

/// Merges a file in this process. Returns the records as text, or the error.
fn united(path: &Path) -> Result<String, String> {
    let selection = Selection { paths: vec![path.to_owned()], ..Selection::default() };
    let mut printed = String::new();
    let each = |record| {
        printed += &format!("{record:?}\n");
        Ok(())
    };
    unite(&selection, &Options::default(), each)
        .map(|()| printed)
        .map_err(|error| error.to_string())
}

/// Returns the peak memory of this process, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Default number of damaged files; overridden by `TEST_FLIPS`.
const FLIPS: u32 = 400;

#[test]
fn a_damaged_file_gives_the_same_number_or_none_and_takes_little_memory() {
    let flips = std::env::var("TEST_FLIPS").map_or(FLIPS, |flips| flips.parse().unwrap());
    let scratch = Scratch::new("lake-flips");
    replay(&scratch, "distinct", "zipf,flows=3000,packets=20000,rate=1k", "--window 1s");
    replay(
        &scratch,
        "all",
        "delay,shape=conversations,requests=300,seed=2",
        &format!("--window 1s --measure {ALL} --slots 64 --filter 4x4096"),
    );
    let mut random = ChaCha8Rng::seed_from_u64(39);
    let before = peak();
    for file in files(&[scratch.path("lake")]).unwrap() {
        let (bytes, right) = (fs::read(&file).unwrap(), united(&file).unwrap());
        let mut refused = 0;
        for _ in 0..flips / 2 {
            let mut damaged = bytes.clone();
            for _ in 0..random.random_range(1..=4) {
                damaged[random.random_range(0..bytes.len())] = random.random();
            }
            fs::write(&file, &damaged).unwrap();
            match united(&file) {
                Ok(printed) => assert_eq!(printed, right),
                Err(printed) => {
                    refused += 1;
                    assert!(
                        printed.contains(file.to_str().unwrap()) && printed.len() < 1000,
                        "{printed}"
                    );
                }
            }
        }
        assert!(refused > flips / 4, "{refused} of {}", flips / 2);
        fs::write(&file, &bytes).unwrap();
        // Truncated, extended, and rearranged files.
        for _ in 0..flips / 4 {
            let (from, to) =
                (random.random_range(0..bytes.len()), random.random_range(0..bytes.len()));
            let changed = [&bytes[..from], &bytes[to..]].concat();
            fs::write(&file, &changed).unwrap();
            if let Ok(printed) = united(&file) {
                assert_eq!(printed, right);
            }
        }
        fs::write(&file, &bytes).unwrap();
    }
    assert!(peak() - before < 128 << 20, "{} bytes", peak() - before);
}

#[test]
fn short_windows_are_missed_and_counted_twice_and_silent_ones_are_not_missed() {
    for window in ["100ms", "500ms", "900ms"] {
        let scratch = Scratch::new(&format!("lake-short-{window}"));
        let lake = scratch.path("lake");
        let options = format!("--window {window}");
        replay(&scratch, "a", "zipf,flows=100,packets=16000,rate=1k", &options);
        let whole = unions(&lake, "");
        assert_eq!(whole[0]["united"]["missing_ns"].as_object().unwrap().len(), 0);
        let capture = scratch.path("a.pcap").display().to_string();
        let again =
            format!("replay {capture} --host a --align {options} --lake {}", lake.display());
        finish(command(&again).env("FLOWGAUGE_RUN", "again")).ended(0);
        let twice = unions(&lake, "");
        assert_eq!(twice[0]["packets"], 32_000);
        let doubled = twice[0]["united"]["doubled_ns"].as_object().unwrap();
        let doubled = doubled.values().next().unwrap().as_u64().unwrap();
        assert!(doubled > 15_000_000_000, "{window}: {doubled}");
    }
    // Bursts separated by silence: no window is missing.
    let scratch = Scratch::new("lake-silent");
    let profile = "zipf,flows=100,packets=500,rate=1,burst=0.01,period=200s";
    replay(&scratch, "a", profile, "--window 1s");
    let all = unions(&scratch.path("lake"), "").remove(0);
    assert!(number(&all["united"], "rows") < 100, "{all}");
    assert_eq!(all["packets"], 500);
    assert_eq!(all["united"]["missing_ns"].as_object().unwrap().len(), 0, "{all}");
}

#[test]
fn what_is_no_file_is_named_and_hosts_that_are_gone_are_told() {
    let scratch = Scratch::new("lake-links");
    replay(&scratch, "a", "zipf,flows=100,packets=5000,rate=1k", "--window 1s");
    let lake = scratch.path("lake");
    // A link that the user gives is followed, and a directory that is given twice is read once.
    let linked = scratch.path("linked");
    symlink(&lake, &linked).unwrap();
    let both = &unions(&lake, &linked.display().to_string())[0];
    assert_eq!((&both["packets"], &both["united"]["twice"]), (&5000.into(), &0.into()));
    let expected = scratch.write("hosts", "# sites\na\nb\n\nc\n");
    let all = &unions(&lake, &format!("--expect {expected}"))[0];
    let incomplete = (&serde_json::json!(["b", "c"]), &Value::Bool(false));
    assert_eq!((&all["united"]["absent"], &all["complete"]), incomplete);
    let csv = lake::merge(&lake, &format!("--format csv --expect {expected}")).ended(0).stdout;
    let row = csv_rows(&csv).remove(0);
    let columns = ["rows", "absent", "missing_ns", "complete"];
    assert_eq!(columns.map(|name| row[name]), ["5", "b c", "0", "false"]);
    let pipe = lake.join("date=1970-01-01").join("z.parquet");
    nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    let part = "z.parquet is no regular file, but a pipe";
    lake::merge(&lake, "").ended_with(1, &[part]);
}

#[test]
fn one_host_that_counts_in_another_way_can_be_left_out() {
    let scratch = Scratch::new("lake-other");
    for (host, slots, seed) in [("a", 1024, 1), ("b", 64, 2)] {
        let profile = format!("zipf,flows=100,packets=5000,rate=1k,seed={seed}");
        let options = format!("--window 1s --measure cardinality,heavy --slots {slots}");
        replay(&scratch, host, &profile, &options);
    }
    let lake = scratch.path("lake");
    let parts = ["heavy_slots is 64, not 1024", "host b", "host a", "--measure", "--exclude"];
    lake::merge(&lake, "").ended_with(1, &parts);
    let distinct = &unions(&lake, "--measure cardinality")[0];
    assert_eq!((number(distinct, "packets"), distinct["heavy"].is_null()), (10_000, true));
    let alone = &unions(&lake, "--exclude b")[0];
    assert_eq!((number(alone, "packets"), alone["heavy"].is_object()), (5_000, true));
}

#[test]
fn a_damaged_journal_loses_one_row_and_is_kept() {
    let scratch = Scratch::new("lake-journal");
    let lake = scratch.path("lake");
    let arguments = format!(
        "run --port memory:zipf,rate=20k --window 50ms --seed 1 --host a --lake {}",
        lake.display()
    );
    let mut killed = command(&arguments);
    killed.env("FLOWGAUGE_RUN", "killed").stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = killed.spawn().unwrap();
    let journal = wait::until_some(|| {
        let journal = lake::journal(&lake)?;
        fs::metadata(&journal).is_ok_and(|about| about.len() > 200_000).then_some(journal)
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let mut bytes = fs::read(&journal).unwrap();
    let rows = bytes.windows(4).filter(|it| it == b"FGR1").count() as u64;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&journal, &bytes).unwrap();
    fs::write(journal.with_file_name("other.journal"), b"something else").unwrap();
    nix::unistd::mkfifo(&journal.with_file_name("pipe.journal"), Mode::S_IRWXU).unwrap();
    let capture = generate(&scratch, "zipf,packets=100,rate=1k", "b.pcap");
    let lost = ["was damaged at 1 place", "at least 1 lost"];
    let damaged = ["killed-000000.damaged", "other.damaged", "pipe.journal"];
    lake::replay(&lake, "b", &capture, "").ended_with(1, &[&lost[..], &damaged].concat());
    let kept = number(&unions(&lake, "--host a")[0]["united"], "rows");
    // The last one may have been truncated by the kill.
    assert!((rows - 2..rows).contains(&kept), "{kept} of {rows}");
    assert!(journal.with_extension("damaged").exists());
}

/// Default number of times that a compaction is killed; overridden by `TEST_KILLS`.
const KILLS: u64 = 8;

/// Returns the number of rows and their content, except for the number of duplicates.
fn answers(lake: &Path) -> (u64, Value) {
    let mut all = unions(lake, "").remove(0);
    let united = all["united"].as_object_mut().unwrap();
    united.remove("twice");
    (united["rows"].as_u64().unwrap(), all)
}

fn small_lake(scratch: &Scratch) -> PathBuf {
    for host in 0..12 {
        let measures = if host % 3 == 0 {
            format!("{ALL} --filter 4x4096")
        } else {
            "cardinality,heavy".to_owned()
        };
        let options = format!("--window 1s --lake-every 2s --slots 64 --measure {measures}");
        let profile = format!("zipf,flows=2000,packets=8000,rate=1k,seed={host}");
        replay(scratch, &format!("h{host}"), &profile, &options);
    }
    scratch.path("lake")
}

#[test]
fn a_lake_says_the_same_before_and_after_its_files_were_joined_however_often_that_was_killed() {
    let scratch = Scratch::new("lake-compact");
    let lake = small_lake(&scratch);
    let before = answers(&lake);
    let number = files(std::slice::from_ref(&lake)).unwrap().len();
    assert!(number >= 48, "{number}");
    let kills = std::env::var("TEST_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let mut random = ChaCha8Rng::seed_from_u64(7);
    for kill in 0..kills {
        let running = Running::with(&format!("lake compact {}", lake.display()));
        thread::sleep(Duration::from_millis(random.random_range(0..400)));
        // Killed.
        drop(running);
        assert_eq!(answers(&lake), before, "kill {kill}");
        // Agents write in the meantime, and files arrive late.
        if kill % 4 == 1 {
            let late = files(std::slice::from_ref(&lake)).unwrap().remove(0);
            fs::copy(&late, late.with_file_name(format!("copy-{kill}.parquet"))).unwrap();
        }
    }
    compact(&lake, "").ended(0);
    assert_eq!(answers(&lake), before);
    assert_eq!(unions(&lake, "")[0]["united"]["twice"], 0);
    let joined = files(std::slice::from_ref(&lake)).unwrap();
    assert!(joined.len() <= 2, "{joined:?}");
    // A second run has nothing to do.
    assert_eq!(compact(&lake, "").ended(0).stdout, "");
    assert_eq!(fs::read_dir(lake.join(".compact")).unwrap().count(), 1);
}

#[test]
fn a_lake_with_a_damaged_file_is_not_joined() {
    let scratch = Scratch::new("lake-compact-damaged");
    replay(&scratch, "a", "zipf,flows=100,packets=5000,rate=1k", "--window 1s --lake-every 1s");
    let lake = scratch.path("lake");
    let all = files(std::slice::from_ref(&lake)).unwrap();
    let bytes = fs::read(&all[1]).unwrap();
    fs::write(&all[1], &bytes[..bytes.len() / 2]).unwrap();
    compact(&lake, "").ended_with(1, &[all[1].to_str().unwrap()]);
    assert_eq!(files(std::slice::from_ref(&lake)).unwrap(), all);
}
