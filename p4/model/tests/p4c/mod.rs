//! The chip's compiler: p4c with its Tofino backend, which is rarely installed.

use flowgauge_testing::skip;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

// Why the model refuses what the compiler accepts.

/// Both accesses are placed in one stateful ALU of one stage, so that one packet puts two addresses
/// on its only bus. The assembler only warns.
pub const COLLIDE: &str = "the compiler makes a wrong program: two addresses on one bus";
/// No packet meets both conditions, which neither the compiler nor the model can prove.
pub const UNPROVEN: &str = "the conditions exclude each other: put both into branches of one if";
/// The compiler omits what is not used. If it is used, it rejects it (`chip.rs`).
pub const UNUSED: &str = "the compiler refuses it if it is used";
/// The model supports less than the chip here, and reports `unsupported`.
pub const LEFT_OUT: &str = "the model does not execute it";

/// Returns the compiler in `TEST_P4C`, or `p4c` in PATH, if it supports Tofino.
pub fn compiler() -> Option<OsString> {
    let program = std::env::var_os("TEST_P4C").unwrap_or_else(|| "p4c".into());
    let help = Command::new(&program).arg("--target-help").output().ok();
    let takes_tofino =
        help.is_some_and(|help| String::from_utf8_lossy(&help.stdout).contains("tofino"));
    if !takes_tofino {
        skip("TEST_P4C, a p4c with the Tofino backend");
    }
    takes_tofino.then_some(program)
}

/// Compiles and assembles a source in a directory that is created again.
pub fn compile(compiler: &OsStr, source: &Path, output: &Path, options: &[OsString]) -> Output {
    let _ = fs::remove_dir_all(output);
    fs::create_dir_all(output).unwrap();
    let mut command = Command::new(compiler);
    command.args(["--target", "tofino", "--arch", "tna", "-g", "--verbose", "1"]).args(options);
    command.arg("-o").arg(output).arg(source).output().unwrap()
}

/// Returns whether the compiler accepts each of these texts. Some may make it crash instead of
/// reporting an error.
pub fn takes(compiler: &OsStr, name: &str, texts: &[String]) -> Vec<bool> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let take = |(index, text): (usize, &String)| {
        let output: PathBuf = folder.join(index.to_string());
        let source = folder.join(format!("{index}.p4"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(&source, text).unwrap();
        compile(compiler, &source, &output, &[]).status.success()
            && output.join("pipe/tofino.bin").exists()
    };
    texts.iter().enumerate().map(take).collect()
}
