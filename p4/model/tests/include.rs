//! telemetry.p4 included in another program.

use crate::common::counted;
use flowgauge_bfruntime::Pipes;
use flowgauge_p4_model::{Model, Options};
use flowgauge_traffic::frame::{Ip, UDP, udp};
use std::path::Path;

#[test]
fn counts_in_a_program_of_its_users() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/own.p4");
    let mut model = Model::from_file(&source, &Options::default()).unwrap();
    let mut frame = vec![0xaa, 0xbb, 0xcc, 0xdd];
    frame.extend(Ip::new([10, 0, 0, 1], [10, 0, 0, 2], UDP).frame(&udp([0; 2], &[])));
    frame.resize(64, 0);
    let output = model.inject(0, &frame).unwrap();
    assert_eq!((output[0].port, &output[0].frame[..]), (5, &frame[4..]));
    let frames = "pipe.MyIngress.measure.counters.frames";
    assert_eq!(counted(&model, frames, 0, Pipes::All), (1, 64));
    let registers = model
        .register_range("pipe.MyIngress.measure.cardinality_by_src.registers", 0, 0..2048, 0)
        .unwrap();
    assert_eq!(registers.iter().filter(|level| **level > 0).count(), 1);
}
