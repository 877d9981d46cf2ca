//! `flowgauge-bench` on its own.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn run(arguments: &[&str], build: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgauge-bench"));
    command
        .args(arguments)
        .env_remove("FLOWGAUGE_SAME_BUILD")
        .envs(build.map(|build| ("FLOWGAUGE_SAME_BUILD", build)));
    command.output().unwrap()
}

#[test]
fn another_build_is_refused_in_one_line() {
    let output = run(&["reproduce", "p4log", "--quick"], Some("0.0.1, commit old"));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(
        said.starts_with("error: ")
            && said.contains("0.0.1, commit old")
            && said.contains("cargo build"),
        "{said}"
    );
    assert!(run(&["--version"], None).status.success());
}

#[test]
fn a_reproduction_is_written_where_it_is_asked_for() {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("p4log-{}", std::process::id()));
    let output = run(&["reproduce", "p4log", "--quick", "--out", folder.to_str().unwrap()], None);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(fs::read_to_string(folder.join("index.html")).unwrap().contains("<svg"));
    fs::remove_dir_all(folder).unwrap();
}
