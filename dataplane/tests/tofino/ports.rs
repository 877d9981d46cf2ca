//! The ledger of a switch: frames received by its ports are counted, or lost with a known cause.

use crate::common::persist;
use crate::tofino::answers::asks_for;
use crate::tofino::lab::{Lab, Reads};
use flowgauge_dataplane::{CountRange, Dataplane, LossCause, Tofino};
use flowgauge_testing::wait::until_some;

/// ID of `$PORT_STAT`.
const PORT_COUNTERS: u32 = 0xff01_0003;

/// Returns the frames received once the ports are idle, and the packets counted meanwhile.
fn received(tofino: &mut Tofino) -> (u64, u64) {
    let mut counted = 0;
    let received = until_some(|| {
        counted += tofino.rotate().unwrap().bank.counters.packets();
        let range = tofino.received().unwrap();
        range.filter(|range| range.least == range.most).map(|range| range.most)
    });
    (received, counted)
}

fn lose(lab: &Lab, damaged: u64, without_room: u64) {
    let mut state = lab.switch.memory.state();
    let mac = state.macs.entry(128).or_default();
    mac.received += damaged + without_room;
    mac.wrong_checksum += damaged;
    mac.no_room += without_room;
}

#[test]
fn what_came_to_ports_was_counted_or_lost() {
    let lab = Lab::new(2);
    // Before counting starts.
    lab.count(0..50);
    lose(&lab, 3, 4);
    let mut tofino = lab.counting();
    lab.count(0..100);
    lose(&lab, 7, 5);
    {
        let mut state = lab.switch.memory.state();
        let mac = state.macs.entry(0).or_default();
        mac.received += 9;
        mac.pause += 9;
    }
    lab.assert_holds(&tofino.rotate().unwrap(), 0..100);
    let losses = tofino.losses().unwrap();
    let found: Vec<_> = losses.iter().collect();
    assert_eq!(found, [(LossCause::Device, 5), (LossCause::DeviceError, 7)]);
    assert_eq!(received(&mut tofino), (112, 0), "pause frames are for the port itself");
}

#[test]
fn the_ledger_of_a_restarted_switch_restarts_and_losses_stay() {
    let (mut lab, mut tofino) = Lab::new(1).started();
    lose(&lab, 7, 0);
    tofino.rotate().unwrap();
    lab.restart();
    persist(|| tofino.sample());
    lose(&lab, 2, 0);
    lab.count(0..10);
    let counted = tofino.rotate().unwrap().bank.counters.packets();
    assert_eq!((counted, tofino.losses().unwrap().get(LossCause::DeviceError)), (10, 9));
    assert_eq!(received(&mut tofino).0, 0, "it begins with a rotation after that");
    lab.count(10..30);
    assert_eq!(received(&mut tofino), (20, 20));
}

#[test]
fn ports_that_cannot_be_read_cost_the_ledger_and_nothing_else() {
    let (lab, mut tofino) = Lab::new(1).started();
    lab.tampering.reads(|request, answer| match asks_for(request, PORT_COUNTERS) {
        true => Reads::Answer(Vec::new(), Some(tonic::Status::unimplemented("no such thing"))),
        false => Reads::Answer(vec![answer], None),
    });
    lab.count(0..100);
    lab.assert_holds(&tofino.rotate().unwrap(), 0..100);
    assert_eq!(tofino.received().unwrap(), None::<CountRange>);
}
