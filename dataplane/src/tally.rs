//! Packets that devices report as received, as exactly as is known at the boundary between two
//! windows.
//!
//! A device counts on while it is read, and at another time than flowgauge: a packet that waits in
//! a queue is received and not yet counted. The number received when a bank was closed therefore
//! lies between two readings; if no packet was in flight, it equals both.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// Packets that devices received between two instants, by the devices' own counters, including the
/// packets they dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountRange {
    /// Lower bound, in packets.
    pub least: u64,
    /// Upper bound, in packets.
    pub most: u64,
}

impl CountRange {
    /// Adds the tally of another device.
    #[must_use]
    pub fn plus(self, other: CountRange) -> CountRange {
        CountRange { least: self.least + other.least, most: self.most + other.most }
    }
}

/// Age from which a reading is settled: a packet received that long ago has been counted, or
/// waits in a queue that can be read. The kernel empties its queues in less.
const SETTLED: Duration = Duration::from_millis(100);

/// Readings of a device's packet counter, from which the tally is derived.
#[derive(Clone, Debug)]
pub(crate) struct Odometer {
    began: StartBounds,
    /// Readings, oldest first. All but the first were younger than [`SETTLED`] when last
    /// settled.
    readings: VecDeque<(Instant, u64)>,
    /// Lower bound of the packets received from the start to the last rotation.
    least: u64,
    /// Packets since the start that the tally leaves out.
    excluded: u64,
}

/// Lower and upper bound of the counter at the start of counting.
#[derive(Clone, Copy, Debug)]
enum StartBounds {
    /// Unknown; set by the next rotation.
    Not,
    /// Set by the last rotation: the counter before it, and the counter after it as last read.
    Rotated {
        before: u64,
        after: Option<u64>,
    },
    Between(u64, u64),
}

impl Odometer {
    /// Creates an odometer whose counting began between these two readings.
    pub(crate) fn new(before: u64, after: u64) -> Self {
        Odometer { began: StartBounds::Between(before, after), ..Odometer::later() }
    }

    /// Creates an odometer without a reading from the start of counting: its tally begins with
    /// the next rotation.
    pub(crate) fn later() -> Self {
        Odometer { began: StartBounds::Not, readings: VecDeque::new(), least: 0, excluded: 0 }
    }

    /// Leaves packets out of the tally that arrived since the start. A tally that begins with
    /// a rotation has none of them.
    pub(crate) fn exclude(&mut self, packets: u64) {
        if let StartBounds::Between(..) = self.began {
            self.excluded += packets;
        }
    }

    /// Adds a reading.
    pub(crate) fn read(&mut self, now: Instant, counter: u64) {
        self.read_between(now, counter..=counter);
    }

    /// Adds a reading of a counter known to lie within a range.
    pub(crate) fn read_between(&mut self, now: Instant, counter: RangeInclusive<u64>) {
        let last = self.readings.back().map_or(0, |(_, last)| *last);
        if *counter.end() < last {
            // The driver reset the counter.
            *self = Odometer::later();
            self.readings.push_back((now, *counter.start()));
        } else {
            // A counter never runs backwards.
            self.readings.push_back((now, last.max(*counter.start())));
        }
        self.settle(now);
    }

    /// Removes readings older than the last settled one.
    fn settle(&mut self, now: Instant) {
        while self.readings.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= SETTLED) {
            self.readings.pop_front();
        }
    }

    /// Updates the lower bound just before a bank is closed; at most `waiting` packets are
    /// received and not yet counted.
    pub(crate) fn rotate(&mut self, now: Instant, waiting: u64) {
        self.settle(now);
        let Some((_, settled)) =
            self.readings.front().filter(|(at, _)| now.duration_since(*at) >= SETTLED)
        else {
            return;
        };
        match self.began {
            StartBounds::Between(_, after) => {
                self.least = self.least.max(settled.saturating_sub(after).saturating_sub(waiting));
            }
            StartBounds::Rotated { before, after: Some(after) } => {
                self.began = StartBounds::Between(before, after);
                self.least = settled.saturating_sub(after).saturating_sub(waiting);
            }
            StartBounds::Not | StartBounds::Rotated { .. } => {
                let before = settled.saturating_sub(waiting);
                self.began = StartBounds::Rotated { before, after: None };
            }
        }
    }

    /// Returns the packets received up to the last rotation; `counter` is the present reading,
    /// taken after losses were read.
    pub(crate) fn tally(&mut self, counter: u64) -> Option<CountRange> {
        match self.began {
            StartBounds::Between(before, _) => {
                let most = counter.saturating_sub(before).max(self.least);
                let included = |packets: u64| packets.saturating_sub(self.excluded);
                Some(CountRange { least: included(self.least), most: included(most) })
            }
            StartBounds::Rotated { before, .. } => {
                self.began = StartBounds::Rotated { before, after: Some(counter) };
                None
            }
            StartBounds::Not => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times() -> impl Fn(u64) -> Instant {
        let start = Instant::now();
        move |milliseconds| start + Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_device_at_rest_is_known_to_the_packet() {
        let (at, mut odometer) = (times(), Odometer::new(1000, 1003));
        odometer.read(at(0), 1003);
        odometer.read(at(50), 1103);
        odometer.read(at(200), 1103);
        odometer.rotate(at(200), 0);
        assert_eq!(odometer.tally(1103), Some(CountRange { least: 100, most: 103 }));
    }

    #[test]
    fn what_is_on_its_way_is_not_known_to_be_counted() {
        let (at, mut odometer) = (times(), Odometer::new(0, 0));
        for reading in 0..=10 {
            odometer.read(at(20 * reading), 100 * reading);
        }
        odometer.rotate(at(200), 0);
        // The reading of 100 ms ago is settled, later ones are not.
        assert_eq!(odometer.tally(1007), Some(CountRange { least: 500, most: 1007 }));
        odometer.read(at(400), 1007);
        odometer.rotate(at(500), 40);
        assert_eq!(odometer.tally(1007), Some(CountRange { least: 967, most: 1007 }));
        // The bound never decreases.
        odometer.rotate(at(600), 400);
        assert_eq!(odometer.tally(1007), Some(CountRange { least: 967, most: 1007 }));
    }

    #[test]
    fn an_inexact_counter_never_decreases() {
        let (at, mut odometer) = (times(), Odometer::new(0, 0));
        odometer.read_between(at(0), 90..=110);
        odometer.read_between(at(10), 85..=112);
        odometer.rotate(at(200), 0);
        assert_eq!(odometer.tally(112), Some(CountRange { least: 90, most: 112 }));
    }

    #[test]
    fn a_tally_may_begin_with_a_rotation() {
        let (at, mut odometer) = (times(), Odometer::later());
        odometer.rotate(at(0), 0);
        assert_eq!(odometer.tally(70), None);
        odometer.read(at(0), 70);
        odometer.rotate(at(100), 0);
        assert_eq!([odometer.tally(75), odometer.tally(75)], [None; 2], "it begins here");
        odometer.read(at(200), 95);
        odometer.rotate(at(300), 0);
        assert_eq!(odometer.tally(95), Some(CountRange { least: 20, most: 25 }));
    }

    #[test]
    fn a_tally_begins_at_a_counter_of_zero() {
        let (at, mut odometer) = (times(), Odometer::later());
        odometer.read(at(0), 0);
        odometer.rotate(at(100), 0);
        assert_eq!(odometer.tally(0), None);
        odometer.rotate(at(200), 0);
        assert_eq!(odometer.tally(0), Some(CountRange { least: 0, most: 0 }));
    }

    #[test]
    fn what_arrived_before_the_first_window_is_left_out() {
        let (at, mut odometer) = (times(), Odometer::new(1000, 1003));
        odometer.exclude(60);
        odometer.read(at(0), 1103);
        odometer.rotate(at(200), 0);
        assert_eq!(odometer.tally(1103), Some(CountRange { least: 40, most: 43 }));
        // A tally from a rotation on has nothing from before the first window.
        let mut later = Odometer::later();
        later.exclude(60);
        later.read(at(0), 70);
        later.rotate(at(100), 0);
        assert_eq!([later.tally(75), later.tally(75)], [None; 2]);
        later.read(at(200), 95);
        later.rotate(at(300), 0);
        assert_eq!(later.tally(95), Some(CountRange { least: 20, most: 25 }));
    }

    #[test]
    fn a_counter_that_decreases_was_reset() {
        let (at, mut odometer) = (times(), Odometer::new(0, 0));
        odometer.read(at(0), 500);
        odometer.read(at(10), 3);
        odometer.rotate(at(110), 0);
        assert_eq!(odometer.tally(3), None);
        odometer.read(at(120), 8);
        odometer.rotate(at(220), 0);
        assert_eq!(odometer.tally(8), Some(CountRange { least: 5, most: 5 }));
    }
}
