//! A lake with signed rows, through the command. `lake::signature` and `lake::union` of
//! `flowgauge-ctl` have tests with forged rows.

use crate::common::lake::{self, compact, diff, generate};
use crate::common::{Outcome, Running, Scratch, assert_has, execute, files, number};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Creates the key of a host, and returns its line for `--trust`.
fn key(scratch: &Scratch, host: &str) -> String {
    let path = scratch.path(&format!("{host}.key"));
    execute(&format!("lake key --host {host} {}", path.display())).quiet()
}

/// Counts traffic in windows of a second as this host, with a file every two windows.
fn replay(scratch: &Scratch, lake: &str, host: &str, key: Option<&str>) -> Outcome {
    let capture = generate(scratch, "zipf,flows=100,packets=6000,rate=1k", "link.pcap");
    let mut options = "--align --window 1s --lake-every 2s".to_owned();
    if let Some(key) = key {
        let path = scratch.path(&format!("{key}.key"));
        options += &format!(" --lake-key {}", path.display());
    }
    lake::replay(&scratch.path(lake), host, &capture, &options)
}

fn merge(lake: &Path, trust: &str, options: &str) -> Outcome {
    lake::merge(lake, &format!("--trust {trust} --format json {options}"))
}

fn union(lake: &Path, trust: &str, options: &str) -> Value {
    serde_json::from_str(&merge(lake, trust, options).quiet()).unwrap()
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
        replay(&scratch, "lake", host, Some(host)).ended(0);
    }
    let lake = scratch.path("lake");
    let before = merge(&lake, &trust, "").quiet();
    assert_eq!(before, lake::merge(&lake, "--format json").quiet());
    let number = parquet(&lake).len();
    let trusted = format!("--trust {trust}");
    assert_has(&compact(&lake, &trusted).quiet(), &["files are 1 now, with 12 windows"]);
    assert!(number > 2 && parquet(&lake).len() == 1);
    assert_eq!(merge(&lake, &trust, "").quiet(), before);
    let compared = diff(&lake, ["paris", "berlin"], &format!("{trusted} --format csv"));
    assert_has(&compared.quiet(), &["only_a,0,"]);
}

#[test]
fn rows_of_others_are_refused_and_named() {
    let scratch = Scratch::new("lake-unsigned");
    let lines = [key(&scratch, "paris"), key(&scratch, "berlin")];
    let trust = scratch.write("trust", lines.concat());
    let trusted = format!("--trust {trust}");
    replay(&scratch, "lake", "berlin", Some("berlin")).ended(0);
    for (lake, host, signer, words) in [
        ("other", "paris", Some("berlin"), "its signature is not one of the trusted key of host"),
        ("unsigned", "paris", None, "it has no signature of host paris"),
        ("unlisted", "lab7", Some("berlin"), "host lab7 is not in the list of trusted hosts"),
    ] {
        replay(&scratch, lake, host, signer).ended(0);
        let both = scratch.path(lake);
        let forged = parquet(&both).remove(0).display().to_string();
        let copied = Command::new("cp").arg("-r").arg(scratch.path("lake/.")).arg(&both).status();
        assert!(copied.unwrap().success());
        let parts = [words, &forged, &format!("of {host}:"), "--untrusted drop"];
        let refused = merge(&both, &trust, "");
        assert_eq!(refused.stdout, "");
        refused.failed(1, &parts);
        diff(&both, ["berlin", host], &trusted).failed(1, &[words]);
        // A compaction leaves the hour as it is.
        let names = parquet(&both);
        assert_has(&compact(&both, &trusted).ended(1).stderr, &[words]);
        assert_eq!(parquet(&both), names);
        let dropped = union(&both, &trust, "--untrusted drop");
        let united = &dropped["united"];
        let counts = [&dropped["packets"], &united["untrusted"], &united["hosts"]];
        assert_eq!(counts, [6000, 6, 1], "{host}");
        // Without a list, all rows count.
        assert_has(&lake::merge(&both, "--format json").quiet(), &["\"packets\":12000"]);
    }
}

#[test]
fn rows_of_a_killed_run_keep_their_signatures() {
    let scratch = Scratch::new("lake-signed-journal");
    let trust = scratch.write("trust", key(&scratch, "paris"));
    let lake = scratch.path("lake");
    let options = format!(
        "run --port memory:zipf,rate=5k --window 200ms --seed 1 --format json --lake {}",
        lake.display()
    );
    let path = scratch.path("paris.key");
    let mut running =
        Running::with(&format!("{options} --host paris --lake-key {}", path.display()));
    (0..3).for_each(|_| assert!(!running.line().is_empty()));
    running.signal(Signal::SIGKILL);
    running.child.wait().unwrap();
    assert!(parquet(&lake).is_empty());
    // The next run has no key, and does not sign the rows that it finds.
    execute(&format!("{options} --host lab7 --duration 200ms")).ended(0);
    let merged = union(&lake, &trust, "--host paris");
    assert!(number(&merged["united"], "rows") >= 2, "{merged}");
    assert_has(&merge(&lake, &trust, "").stderr, &["host lab7 is not in the list"]);
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
    let name = path.display();
    execute(&format!("lake key {name}")).failed(1, &["--existing prints the line"]);
    assert_eq!(fs::read(&path).unwrap(), secret);
    let existing = execute(&format!("lake key --existing {name}")).quiet();
    assert_eq!(existing, line.replace("paris ", "host "));
    fs::set_permissions(&path, PermissionsExt::from_mode(0o604)).unwrap();
    let signed = |key: &str| replay(&scratch, "lake", "paris", Some(key));
    signed("paris").failed(1, &["everyone can read the key (mode 604)"]);
    scratch.write("rubbish.key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    fs::set_permissions(scratch.path("rubbish.key"), PermissionsExt::from_mode(0o600)).unwrap();
    assert_has(signed("rubbish").complaint(), &["no private key of Ed25519"]);
    assert_has(signed("missing").complaint(), &["missing.key"]);
    assert!(!scratch.path("lake").exists() || parquet(&scratch.path("lake")).is_empty());
    execute("replay x.pcap --lake-key x").failed(2, &["--lake-key is for --lake"]);
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
        merge(&scratch.path("none"), &trust, "").failed(1, &[words, &trust]);
    }
    let outcome = merge(&scratch.path("none"), "missing", "");
    assert_has(outcome.complaint(), &["cannot read --trust missing"]);
}
