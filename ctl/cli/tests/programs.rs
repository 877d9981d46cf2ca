//! `flowgauge bench` and `flowgauge reproduce` run the program next to this one.

use crate::common::Outcome;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Directory with this program, and a script as the other one.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, script: Option<&str>) -> Self {
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        fs::hard_link(env!("CARGO_BIN_EXE_flowgauge"), folder.join("flowgauge")).unwrap();
        if let Some(script) = script {
            let path = folder.join("flowgauge-bench");
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Folder(folder)
    }

    fn run(&self, arguments: &str) -> Output {
        Command::new(self.0.join("flowgauge")).args(arguments.split(' ')).output().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn what_is_not_there_is_named_with_what_to_do() {
    let folder = Folder::new("alone", None);
    let path = folder.0.join("flowgauge-bench").display().to_string();
    for arguments in ["bench packet", "reproduce p4log"] {
        let outcome = Outcome::from(folder.run(arguments));
        assert_eq!(outcome.stdout, "", "{arguments}");
        assert!(outcome.stderr.starts_with("error: "), "{}", outcome.stderr);
        outcome.failed(1, &[&path, "cargo build"]);
    }
    // Options are explained and checked without the other program.
    let output = folder.run("bench packet --help");
    assert!(output.status.success() && text(&output.stdout).contains("--quick"));
    assert_eq!(folder.run("bench packets").status.code(), Some(2));
    assert_eq!(folder.run("reproduce p4log --seeds 0").status.code(), Some(2));
}

#[test]
fn arguments_exit_codes_and_signals_are_those_of_the_program() {
    let folder = Folder::new("beside", Some("echo $$ \"$FLOWGAUGE_SAME_BUILD\" \"$@\"; exit 7"));
    let mut command = Command::new(folder.0.join("flowgauge"));
    command.args(["-v", "bench", "packet", "--out", "a b"]).stdout(Stdio::piped());
    let child = command.spawn().unwrap();
    let process = child.id();
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(7));
    assert!(
        said.starts_with(&format!("{process} {}, commit ", env!("CARGO_PKG_VERSION"))),
        "{said}"
    );
    assert!(said.ends_with("-v bench packet --out a b\n"), "{said}");
    let folder = Folder::new("killed", Some("kill -TERM $$"));
    assert_eq!(folder.run("reproduce p4log").status.signal(), Some(15));
}
