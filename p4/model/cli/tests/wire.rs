//! The model between two network interfaces, as a bump in the wire.

use super::{Model, assert_fails};
use flowgauge_dataplane::Dataplane;
use flowgauge_p4_model::wire::{Wire, wait};
use flowgauge_testing::frames;
use flowgauge_testing::on_veth;
use flowgauge_traffic::veth::{self};
use std::time::Duration;

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
    veth::ip("link set dev lo up").unwrap();
    let ports = format!("0={rx},128=out");
    let mut model = Model::start(&["-D", "FLOWGAUGE_PRECISION=4", "--port", &ports]);
    let mut tofino = model.driver(&[(0, 128)]);

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

    assert_eq!(model.interrupt(), frames.len() as u64 + 1);
}

#[test]
fn a_bump_in_the_wire_forwards_every_frame_as_it_came_and_counts_it() {
    on_veth(forward_and_count);
}

#[test]
fn an_interface_that_is_not_there_is_told() {
    let arguments = ["--listen", "127.0.0.1:0", "--port", "0=no-such-device"];
    assert_fails(&arguments, "cannot open network interface no-such-device");
}
