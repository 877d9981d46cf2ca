//! Events that the backend reports.

use flowgauge_core::Settings;
use flowgauge_dataplane::poll::port::{
    OwnedFrame, Port, PortFrame, PortSource, Ports, Received, Worker, frames,
};
use flowgauge_dataplane::poll::{Options, Pace, WorkerBarrier};
use flowgauge_dataplane::{Dataplane, Event, Poll, Tables};
use flowgauge_testing::wait::until;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

struct Silent;

impl Port for Silent {
    fn receive(&mut self, _: &mut impl FnMut(PortFrame<'_>)) -> Received {
        Received::Idle
    }

    fn work(self, worker: Worker) {
        worker.run(self);
    }
}

/// PortSource that finds a problem at the end of the traffic, just after it was asked for warnings.
struct EndsBadly {
    gate: Arc<WorkerBarrier>,
    asked: AtomicUsize,
}

impl PortSource for EndsBadly {
    fn warnings(&self) -> Vec<String> {
        match self.asked.fetch_add(1, Ordering::Relaxed) {
            0 => {
                self.gate.end();
                Vec::new()
            }
            1 => vec!["the end is damaged".to_owned()],
            _ => Vec::new(),
        }
    }
}

#[test]
fn no_warning_comes_after_the_end() {
    let gate = Arc::new(WorkerBarrier::new(Pace::Trace));
    let source = Arc::new(EndsBadly { gate: Arc::clone(&gate), asked: AtomicUsize::new(0) });
    let mut poll = Poll::new(
        Ports { ports: vec![Silent], source, gate, interface: "silent".to_owned() },
        Options::default(),
    );
    assert_eq!(poll.events().unwrap(), []);
    let warning = Event::Warning("the end is damaged".to_owned());
    assert_eq!(poll.events().unwrap(), [warning, Event::TrafficEnded]);
    assert_eq!(poll.events().unwrap(), []);
}

/// Source that has a gap in some windows.
#[derive(Default)]
struct Gapped(AtomicBool);

impl PortSource for Gapped {
    fn has_gap(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn a_window_in_which_the_source_has_a_gap_is_marked() {
    let (gate, gapped) = (Arc::new(WorkerBarrier::new(Pace::Open)), Arc::new(Gapped::default()));
    let source: Arc<dyn PortSource> = gapped.clone();
    let ports = Ports { ports: vec![Silent], source, gate, interface: "gapped".to_owned() };
    let mut poll = Poll::new(ports, Options::default());
    poll.install(&Tables::new(&Settings::default(), 1)).unwrap();
    for has_gap in [false, true, true, false] {
        gapped.0.store(has_gap, Ordering::Relaxed);
        assert_eq!(poll.rotate().unwrap().complete, !has_gap);
    }
}

#[test]
fn injected_traffic_ends_with_its_injector() {
    for workers in 1..=2 {
        let (injector, ports) = frames(workers);
        let mut poll = Poll::new(ports, Options::default());
        // Sent before counting starts, counted after that.
        injector.send(vec![OwnedFrame::ethernet(vec![0; 60]); 1000]);
        poll.install(&Tables::new(&Settings::default(), 1)).unwrap();
        injector.send(vec![OwnedFrame::ethernet(vec![0; 60]); 1000]);
        drop(injector);
        until(|| poll.events().unwrap() == [Event::TrafficEnded]);
        assert_eq!(poll.rotate().unwrap().packets_after, 2000);
    }
}

#[test]
fn feeding_a_backend_that_is_gone_does_not_hang() {
    let (injector, ports) = frames(2);
    let poll = Poll::new(ports, Options::default());
    injector.send(vec![OwnedFrame::ethernet(vec![0; 60])]);
    drop(poll);
    injector.feed(vec![OwnedFrame::ethernet(vec![0; 60])]);
}
