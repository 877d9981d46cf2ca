//! The model between two network interfaces, as a bump in the wire.

use flowgauge_core::{Precision, Settings};
use flowgauge_dataplane::tofino::Options;
use flowgauge_dataplane::{Dataplane, Tables, Tofino};
use flowgauge_p4_model::wire::{Wire, wait};
use flowgauge_testing::frames;
use flowgauge_testing::on_veth;
use flowgauge_traffic::veth::{self};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

struct Model(Child);

impl Drop for Model {
    fn drop(&mut self) {
        // It has already ended unless the test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Receives a frame, which must arrive.
fn next(wire: &mut [Wire; 1]) -> Vec<u8> {
    for _ in 0..300 {
        if let Some(frame) = wire[0].receive().unwrap() {
            return frame.to_vec();
        }
        wait(wire, Duration::from_millis(100)).unwrap();
    }
    panic!("no frame came");
}

fn forward_and_count() {
    veth::pair(("far", "10.78.0.1"), ("out", "10.78.0.2")).unwrap();
    let (tx, rx) = (veth::SENDER.0, veth::RECEIVER.0);
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgauge-p4-model"));
    command.args([
        "--listen",
        "127.0.0.1:0",
        "-D",
        "FLOWGAUGE_PRECISION=4",
        "--port",
        &format!("0={rx},128=out"),
    ]);
    veth::ip("link set dev lo up").unwrap();
    let mut model = Model(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut stdout = BufReader::new(model.0.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let address = line.trim_end().rsplit(' ').next().unwrap();

    let mut settings = Settings::default();
    settings.cardinality.precision = Precision::new(4).unwrap();
    let mut options = Options::new(address);
    options.deadline = Duration::from_secs(60);
    options.forward = vec![(0, 128)];
    let mut tofino = Tofino::connect(options, settings).unwrap();
    tofino.install(&Tables::new(&settings, 1)).unwrap();

    let (near, mut far) = ([Wire::open(tx).unwrap()], [Wire::open("far").unwrap()]);
    // Links carry at most 1514 bytes, and at least an Ethernet header without padding.
    let frames: Vec<Vec<u8>> = frames::kinds().into_iter().map(|frame| frame.bytes).collect();
    let frames: Vec<&Vec<u8>> =
        frames.iter().filter(|frame| (14..=1514).contains(&frame.len())).collect();
    assert!(
        frames.iter().any(|frame| frame[12..14] == [0x81, 0])
            && frames.iter().any(|frame| frame[12..14] == [0x88, 0xa8])
    );
    for frame in &frames {
        assert!(near[0].send(frame).unwrap());
        assert_eq!(&&next(&mut far), frame, "forwarded as it came");
    }
    let window = tofino.rotate().unwrap();
    assert_eq!(window.packets_after, frames.len() as u64);
    assert!(window.bank.counters.ipv6 > 0);
    // And in the opposite direction.
    let mut near = near;
    assert!(far[0].send(frames[0]).unwrap());
    assert_eq!(&next(&mut near), frames[0]);

    assert!(
        Command::new("kill").args(["-INT", &model.0.id().to_string()]).status().unwrap().success()
    );
    assert!(model.0.wait().unwrap().success());
    line.clear();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, format!("{} packets arrived\n", frames.len() + 1));
}

#[test]
fn a_bump_in_the_wire_forwards_every_frame_as_it_came_and_counts_it() {
    on_veth(forward_and_count);
}

#[test]
fn an_interface_that_is_not_there_is_told() {
    let command = env!("CARGO_BIN_EXE_flowgauge-p4-model");
    let output = Command::new(command)
        .args(["--listen", "127.0.0.1:0", "--port", "0=no-such-device"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && said.contains("cannot open network interface no-such-device"),
        "{said}"
    );
}
