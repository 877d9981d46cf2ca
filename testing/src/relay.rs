//! A host between two others, which delays, loses or reorders packets.

use crate::hosts::{FAR_MAC, Host, NEAR_MAC, configure};
use crate::{on_veth, skip};
use flowgauge_p4_model::wire::{Wire, wait};
use flowgauge_traffic::veth::{RECEIVER, SENDER, carrier, ip};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

type Fate = Box<dyn FnMut(bool, &[u8]) -> Option<Duration> + Send>;
type Overtaken = Box<dyn FnMut(bool, &[u8]) -> u32 + Send>;

/// Behaviour of a relay.
pub enum Relay {
    /// Packets wait for a time, or are lost.
    Delaying(Fate),
    /// A packet waits until a number of others have passed in its direction.
    Reordering(Overtaken),
}

impl Relay {
    /// Creates a relay that delays packets; `hold` gets whether a frame goes to the near host, and
    /// the frame.
    pub fn delaying(mut hold: impl FnMut(bool, &[u8]) -> Duration + Send + 'static) -> Self {
        Relay::losing(move |to_near, frame| Some(hold(to_near, frame)))
    }

    /// Creates a relay that delays packets, and loses those for which `fate` returns no time;
    /// `fate` has the same parameters.
    pub fn losing(fate: impl FnMut(bool, &[u8]) -> Option<Duration> + Send + 'static) -> Self {
        Relay::Delaying(Box::new(fate))
    }

    /// Creates a relay that reorders packets; `late` has the same parameters.
    pub fn reordering(late: impl FnMut(bool, &[u8]) -> u32 + Send + 'static) -> Self {
        Relay::Reordering(Box::new(late))
    }
}

/// Log of a relay.
pub struct Relayed(Arc<Mutex<Vec<Vec<u8>>>>);

impl Relayed {
    /// Returns the frames sent to the near host, in order.
    pub fn sent_to_near(&self) -> Vec<Vec<u8>> {
        self.0.lock().unwrap().clone()
    }
}

/// Device of the relay that leads to the far host.
const BEHIND: &str = "behind";

/// Runs a test with two hosts like [`connected`](crate::hosts::connected), with a relay between
/// them. Segments are as on the wire.
pub fn relayed(relay: Relay, test: impl FnOnce(&Host, &Relayed) + Send + 'static) {
    on_veth(move || {
        if Command::new("ethtool").arg("--version").output().is_err() {
            return skip("ethtool");
        }
        let (far, network) = Host::start();
        let (between, middle) = Host::start();
        // The far host's device has the name of the near host's peer.
        ip(&format!("link set dev {} netns {middle}", SENDER.0)).unwrap();
        between.run(move || {
            ip(&format!("link add {BEHIND} type veth peer name far")).unwrap();
            ip(&format!("link set dev far netns {network} name {}", SENDER.0)).unwrap();
            for device in [SENDER.0, BEHIND] {
                ip(&format!("link set dev {device} addrgenmode none")).unwrap();
                ip(&format!("addr flush dev {device}")).unwrap();
                ip(&format!("link set dev {device} up")).unwrap();
            }
        });
        configure(RECEIVER, NEAR_MAC, SENDER, FAR_MAC);
        switch_offloads_off(RECEIVER.0);
        far.run(|| {
            configure(SENDER, FAR_MAC, RECEIVER, NEAR_MAC);
            switch_offloads_off(SENDER.0);
        });
        let sent = Arc::default();
        let is_over = Arc::new(AtomicBool::new(false));
        let running = {
            let (sent, is_over) = (Arc::clone(&sent), Arc::clone(&is_over));
            between.run(|| [SENDER.0, BEHIND].into_iter().try_for_each(carrier).unwrap());
            let wires =
                between.run(|| [SENDER.0, BEHIND].map(|device| Wire::open(device).unwrap()));
            thread::spawn(move || run(wires, relay, &sent, &is_over))
        };
        carrier(RECEIVER.0).unwrap();
        test(&far, &Relayed(sent));
        is_over.store(true, Ordering::Relaxed);
        running.join().unwrap();
    });
}

fn switch_offloads_off(device: &str) {
    // Checksums and segments as on a wire: packet sockets forward them unchanged.
    let offloads = ["-K", device, "tx", "off", "tso", "off", "gso", "off", "gro", "off"];
    assert!(Command::new("ethtool").args(offloads).output().unwrap().status.success());
}

/// Forwards frames until the test is over and no frame is waiting.
fn run(mut wires: [Wire; 2], mut relay: Relay, sent: &Mutex<Vec<Vec<u8>>>, is_over: &AtomicBool) {
    // Frames that wait for a time, by time and number.
    let mut timed = BinaryHeap::<Reverse<(Instant, u64, usize, Vec<u8>)>>::new();
    // Frames that wait for others, by direction.
    let mut waiting: [VecDeque<(u32, Vec<u8>)>; 2] = Default::default();
    let mut number = 0;
    let send = |wires: &[Wire; 2], to: usize, frame: Vec<u8>| {
        // Logged before the receiver gets it.
        let mut sent = sent.lock().unwrap();
        while !wires[to].send(&frame).unwrap() {
            thread::yield_now();
        }
        if to == 0 {
            sent.push(frame);
        }
    };
    while !is_over.load(Ordering::Relaxed) {
        let next =
            timed.peek().map(|Reverse((due, ..))| due.saturating_duration_since(Instant::now()));
        // The rest of a millisecond is spent here.
        wait(&wires, next.unwrap_or(Duration::from_millis(10)).min(Duration::from_millis(10)))
            .unwrap();
        for from in 0..2 {
            let to = 1 - from;
            while let Some(frame) = wires[from].receive().unwrap() {
                number += 1;
                let frame = frame.to_vec();
                match &mut relay {
                    Relay::Delaying(fate) => {
                        if let Some(hold) = fate(to == 0, &frame) {
                            timed.push(Reverse((Instant::now() + hold, number, to, frame)));
                        }
                    }
                    Relay::Reordering(late) => match late(to == 0, &frame) {
                        0 => {
                            send(&wires, to, frame);
                            waiting[to]
                                .iter_mut()
                                .for_each(|(others, _)| *others = others.saturating_sub(1));
                            while let Some((_, frame)) =
                                waiting[to].pop_front_if(|(others, _)| *others == 0)
                            {
                                send(&wires, to, frame);
                            }
                        }
                        others => waiting[to].push_back((others, frame)),
                    },
                }
            }
        }
        while timed.peek().is_some_and(|Reverse((due, ..))| *due <= Instant::now()) {
            if let Some(Reverse((_, _, to, frame))) = timed.pop() {
                send(&wires, to, frame);
            }
        }
    }
}
