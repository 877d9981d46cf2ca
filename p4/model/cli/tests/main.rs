//! The command `flowgauge-p4-model`, serving a model that counts a capture or generated packets.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[cfg(target_os = "linux")]
mod wire;

use flowgauge_core::{Precision, Settings};
use flowgauge_dataplane::tofino::Options;
use flowgauge_dataplane::{Dataplane, Tables, Tofino};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

struct Model {
    child: Child,
    stdout: BufReader<ChildStdout>,
    address: String,
}

impl Model {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowgauge-p4-model"));
        let mut child = command
            .args(["--listen", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert!(
            line.starts_with(
                "a test double, no switch: flowgauge in 2 pipes, BFRuntime on 127.0.0.1:"
            ),
            "{line}"
        );
        let address = line.trim_end().rsplit(' ').next().unwrap().to_owned();
        Model { child, stdout, address }
    }

    /// Connects a driver of 16 registers, which forwards from some ports to others.
    fn driver(&self, forward: &[(u32, u32)]) -> Tofino {
        let mut settings = Settings::default();
        settings.cardinality.precision = Precision::new(4).unwrap();
        let mut options = Options::new(&self.address);
        options.deadline = Duration::from_secs(60);
        options.forward = forward.to_vec();
        let mut tofino = Tofino::connect(options, settings).unwrap();
        tofino.install(&Tables::new(&settings, 1)).unwrap();
        tofino
    }

    /// Interrupts the command, and returns how many packets it says arrived.
    fn interrupt(&mut self) -> u64 {
        let kill = format!("kill -INT {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.strip_suffix(" packets arrived\n").unwrap().parse().unwrap()
    }
}

/// Checks that the command fails for this reason.
fn assert_fails(arguments: &[&str], reason: &str) {
    let command = env!("CARGO_BIN_EXE_flowgauge-p4-model");
    let output = Command::new(command).args(arguments).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains(reason), "{arguments:?}: {said}");
}

impl Drop for Model {
    fn drop(&mut self) {
        // It has already ended unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn packets_arrive_and_are_counted_until_ctrl_c() {
    let mut model = Model::start(&[
        "-D",
        "FLOWGAUGE_PRECISION=4",
        "--traffic",
        "unique,rate=20k",
        "--driver-like=sync=100us",
    ]);
    let mut tofino = model.driver(&[]);
    let mut packets = 0;
    while packets < 1000 {
        packets += tofino.rotate().unwrap().packets_after;
    }
    let arrived = model.interrupt();
    assert!(arrived >= packets, "{arrived} arrived, {packets} counted");
}

#[test]
fn arguments_without_sense_are_refused() {
    assert_fails(&["-D", "FLOWGAUGE_PRECISION"], "NAME=VALUE");
    assert_fails(&["-D", "FLOWGAUGE_PRECISION=3"], "");
    assert_fails(&["--traffic", "nothing"], "use unique");
    assert_fails(&["--pipes", "5"], "4");
    assert_fails(&["--driver-like=index"], "NAME=TIME");
    assert_fails(&["--driver-like=speed=1s"], "index, sync, update and completion");
    assert_fails(&["--driver-like=sync=1"], "sync: ");
    assert_fails(
        &["--listen", "127.0.0.1:0", "--pcap", "/does/not/exist.pcap"],
        "cannot open /does/not/exist.pcap",
    );
}
