//! A lake with signed rows, through the command. `lake::signature` and `lake::union` of
//! `flowgauge-ctl` have tests with forged rows.

use crate::common::{Outcome, Scratch, files, flowgauge};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn run(command: &mut Command) -> Outcome {
    command.output().unwrap().into()
}

/// Creates the key of a host, and returns its line for `--trust`.
fn key(scratch: &Scratch, host: &str) -> String {
    let path = scratch.path(&format!("{host}.key"));
    run(flowgauge().args(["lake", "key", "--host", host]).arg(path)).quiet()
}

/// Counts traffic in windows of a second as this host, with a file every two windows.
fn replay(scratch: &Scratch, lake: &str, host: &str, key: Option<&str>) -> Outcome {
    let capture = scratch.path("link.pcap");
    if !capture.exists() {
        let profile = "zipf,flows=100,packets=6000,rate=1k";
        let outcome = run(flowgauge().args(["generate", profile, "--to"]).arg(&capture));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
    }
    let options = ["--host", host, "--align", "--window", "1s", "--lake-every", "2s", "--lake"];
    let mut command = flowgauge();
    command.arg("replay").arg(&capture).args(options).arg(scratch.path(lake));
    if let Some(key) = key {
        command.arg("--lake-key").arg(scratch.path(&format!("{key}.key")));
    }
    run(&mut command)
}

fn merge(lake: &Path, trust: &str, options: &str) -> Outcome {
    run(flowgauge()
        .arg("merge")
        .arg(lake)
        .args(["--trust", trust, "--format", "json"])
        .args(options.split_whitespace()))
}

fn parquet(lake: &Path) -> Vec<PathBuf> {
    files(&[lake.to_owned()]).unwrap()
}

#[test]
fn signed_rows_are_accepted_before_and_after_a_compaction() {
    let scratch = Scratch::new("lake-signed");
    let lines = [key(&scratch, "paris"), key(&scratch, "berlin")];
    let trust = scratch.write("trust", format!("# fleet\n{}", lines.concat()));
    for host in ["paris", "berlin"] {
        assert_eq!(replay(&scratch, "lake", host, Some(host)).code, Some(0));
    }
    let lake = scratch.path("lake");
    let before = merge(&lake, &trust, "").quiet();
    let unverified = run(flowgauge().args(["merge", "--format", "json"]).arg(&lake)).quiet();
    assert_eq!(before, unverified);
    let number = parquet(&lake).len();
    let compact = || run(flowgauge().args(["lake", "compact", "--trust", &trust]).arg(&lake));
    assert!(compact().quiet().contains("files are 1 now, with 12 windows"));
    assert!(number > 2 && parquet(&lake).len() == 1);
    assert_eq!(merge(&lake, &trust, "").quiet(), before);
    let side = |host: &str| format!("{},host={host}", lake.display());
    let diff = run(flowgauge()
        .arg("diff")
        .args([side("paris"), side("berlin")])
        .args(["--trust", &trust, "--format", "csv"]));
    assert!(diff.quiet().contains("only_a,0,"));
}

#[test]
fn rows_of_others_are_refused_and_named() {
    let scratch = Scratch::new("lake-unsigned");
    let lines = [key(&scratch, "paris"), key(&scratch, "berlin")];
    let trust = scratch.write("trust", lines.concat());
    assert_eq!(replay(&scratch, "lake", "berlin", Some("berlin")).code, Some(0));
    for (lake, host, signer, words) in [
        ("other", "paris", Some("berlin"), "its signature is not one of the trusted key of host"),
        ("unsigned", "paris", None, "it has no signature of host paris"),
        ("unlisted", "lab7", Some("berlin"), "host lab7 is not in the list of trusted hosts"),
    ] {
        assert_eq!(replay(&scratch, lake, host, signer).code, Some(0));
        let forged = parquet(&scratch.path(lake));
        let both = scratch.path(lake);
        let copied = run(Command::new("cp").arg("-r").arg(scratch.path("lake/.")).arg(&both));
        assert_eq!(copied.code, Some(0));
        let outcome = merge(&both, &trust, "");
        assert_eq!((outcome.code, &*outcome.stdout), (Some(1), ""));
        let name = forged[0].display().to_string();
        for part in [words, &name, &format!("of {host}:"), "--untrusted drop"] {
            assert!(outcome.complaint().contains(part), "{part}: {}", outcome.stderr);
        }
        let side = |host: &str| format!("{},host={host}", both.display());
        let diff = run(flowgauge()
            .arg("diff")
            .args([side("berlin"), side(host)])
            .args(["--trust", &trust]));
        assert!(diff.code == Some(1) && diff.complaint().contains(words), "{}", diff.stderr);
        // A compaction leaves the hour as it is.
        let names = parquet(&both);
        let compact = run(flowgauge().args(["lake", "compact", "--trust", &trust]).arg(&both));
        assert!(compact.code == Some(1) && compact.stderr.contains(words), "{}", compact.stderr);
        assert_eq!(parquet(&both), names);
        let dropped = merge(&both, &trust, "--untrusted drop").quiet();
        let dropped: serde_json::Value = serde_json::from_str(&dropped).unwrap();
        assert_eq!(
            (&dropped["packets"], &dropped["united"]["untrusted"]),
            (&6000.into(), &6.into())
        );
        assert_eq!(dropped["united"]["hosts"], 1);
        // Without a list, all rows count.
        let all = run(flowgauge().args(["merge", "--format", "json"]).arg(&both)).quiet();
        assert!(all.contains("\"packets\":12000"), "{all}");
    }
}

#[test]
fn rows_of_a_killed_run_keep_their_signatures() {
    let scratch = Scratch::new("lake-signed-journal");
    let trust = scratch.write("trust", key(&scratch, "paris"));
    let lake = scratch.path("lake");
    let mut first = flowgauge();
    first
        .args(["run", "--port", "memory:zipf,rate=5k", "--window", "200ms", "--host", "paris"])
        .args(["--seed", "1", "--format", "json", "--lake-key"])
        .arg(scratch.path("paris.key"))
        .arg("--lake")
        .arg(&lake);
    let mut running = crate::common::Running::of(&mut first);
    (0..3).for_each(|_| assert!(!running.line().is_empty()));
    running.signal(nix::sys::signal::Signal::SIGKILL);
    running.child.wait().unwrap();
    assert!(parquet(&lake).is_empty());
    // The next run has no key, and does not sign the rows that it finds.
    let next = ["run", "--port", "memory:zipf,rate=5k", "--window", "200ms", "--duration", "200ms"];
    let mut second = flowgauge();
    second.args(next).args(["--host", "lab7", "--seed", "1", "--lake"]).arg(&lake);
    assert_eq!(run(&mut second).code, Some(0));
    let merged = merge(&lake, &trust, "--host paris").quiet();
    let merged: serde_json::Value = serde_json::from_str(&merged).unwrap();
    assert!(merged["united"]["rows"].as_u64().unwrap() >= 2, "{merged}");
    let outcome = merge(&lake, &trust, "");
    assert!(outcome.stderr.contains("host lab7 is not in the list"), "{}", outcome.stderr);
}

#[test]
fn private_keys_are_for_their_owner_alone() {
    let scratch = Scratch::new("lake-key");
    let line = key(&scratch, "paris");
    let path = scratch.path("paris.key");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert!(line.starts_with("paris ed25519:") && line.ends_with("=\n"), "{line}");
    // An existing file is never overwritten.
    let secret = fs::read(&path).unwrap();
    let again = run(flowgauge().args(["lake", "key"]).arg(&path));
    assert_eq!(again.code, Some(1));
    assert!(again.complaint().contains("--existing prints the line"), "{}", again.stderr);
    assert_eq!(fs::read(&path).unwrap(), secret);
    let existing = flowgauge().args(["lake", "key", "--existing"]).arg(&path).output().unwrap();
    assert_eq!(Outcome::from(existing).quiet(), line.replace("paris ", "host "));
    fs::set_permissions(&path, PermissionsExt::from_mode(0o604)).unwrap();
    let outcome = replay(&scratch, "lake", "paris", Some("paris"));
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.complaint().contains("everyone can read the key (mode 604)"), "{outcome:?}");
    scratch.write("rubbish.key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    fs::set_permissions(scratch.path("rubbish.key"), PermissionsExt::from_mode(0o600)).unwrap();
    let outcome = replay(&scratch, "lake", "paris", Some("rubbish"));
    assert!(outcome.complaint().contains("no private key of Ed25519"), "{outcome:?}");
    let outcome = replay(&scratch, "lake", "paris", Some("missing"));
    assert!(outcome.complaint().contains("missing.key"), "{outcome:?}");
    assert!(!scratch.path("lake").exists() || parquet(&scratch.path("lake")).is_empty());
    let without = run(flowgauge().args(["replay", "x.pcap", "--lake-key", "x"]));
    assert_eq!(without.code, Some(2));
    assert!(without.complaint().contains("--lake-key is for --lake"), "{}", without.stderr);
}

#[test]
fn a_list_of_keys_with_a_defect_is_one_error() {
    let scratch = Scratch::new("lake-trust");
    let line = key(&scratch, "paris");
    for (text, words) in [
        (String::new(), "it lists no host"),
        (format!("{line}{line}"), "line 2: host paris is in line 1 already"),
        (format!("{line}rubbish\n"), "line 2: give the name of a host and its public key"),
        ("paris AAAA\n".to_owned(), "line 1: the key of host paris is not ed25519:"),
    ] {
        let trust = scratch.write("trust", text);
        let outcome = merge(&scratch.path("none"), &trust, "");
        assert_eq!(outcome.code, Some(1));
        let complaint = outcome.complaint();
        assert!(complaint.contains(words) && complaint.contains(&trust), "{complaint}");
    }
    let outcome = merge(&scratch.path("none"), "missing", "");
    assert!(outcome.complaint().contains("cannot read --trust missing"), "{}", outcome.stderr);
}
