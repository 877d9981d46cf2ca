//! What devices say they received, as far as it is known at the instant that separates two windows.
//!
//! A device counts on while it is asked, and counts earlier or later than flowgauge: a packet that
//! waits in a queue is received and not yet counted. So what had been received when a bank was
//! closed lies between two readings, and equals both if no packet was on its way.

pub(crate) use odometer::Odometer;

/// Packets received by devices between two instants, by counters of their own, losses of the
/// devices included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// At least so many.
    pub least: u64,
    /// At most so many.
    pub most: u64,
}

impl Tally {
    /// Of two devices together.
    #[must_use]
    pub fn plus(self, other: Tally) -> Tally {
        Tally { least: self.least + other.least, most: self.most + other.most }
    }
}

mod odometer {
    use super::Tally;
    use std::collections::VecDeque;
    use std::ops::RangeInclusive;
    use std::time::{Duration, Instant};

    /// What a device has received so long ago was counted, or waits where it can be seen: the
    /// kernel's queues are emptied in less.
    const SETTLED: Duration = Duration::from_millis(100);

    /// Readings of a device's counter of packets.
    #[derive(Clone, Debug)]
    pub(crate) struct Odometer {
        began: Began,
        /// The oldest first; all but the first were younger than [`SETTLED`] at the last look.
        readings: VecDeque<(Instant, u64)>,
        /// Received since it began, up to the last rotation, at least.
        least: u64,
    }

    /// What the counter showed when counting began: at least, and at most.
    #[derive(Clone, Copy, Debug)]
    enum Began {
        /// Not known: with a rotation to come.
        Not,
        /// With the last rotation; where the counter was before it, and after it as far as it was
        /// asked.
        Rotated {
            before: u64,
            after: u64,
        },
        Between(u64, u64),
    }

    impl Odometer {
        /// Counting began between these readings.
        pub(crate) fn new(before: u64, after: u64) -> Self {
            Odometer { began: Began::Between(before, after), ..Odometer::later() }
        }

        /// Counting began at a time when nobody looked: the tally begins with a rotation to come.
        pub(crate) fn later() -> Self {
            Odometer { began: Began::Not, readings: VecDeque::new(), least: 0 }
        }

        /// Takes a reading.
        pub(crate) fn read(&mut self, now: Instant, counter: u64) {
            self.read_between(now, counter..=counter);
        }

        /// Takes a reading of a counter that is known to lie between two numbers.
        pub(crate) fn read_between(&mut self, now: Instant, counter: RangeInclusive<u64>) {
            let last = self.readings.back().map_or(0, |(_, last)| *last);
            if *counter.end() < last {
                // Reset by its driver.
                *self = Odometer::later();
                self.readings.push_back((now, *counter.start()));
            } else {
                // It has not gone backwards.
                self.readings.push_back((now, last.max(*counter.start())));
            }
            self.settle(now);
        }

        /// Forgets readings before the last one that is settled.
        fn settle(&mut self, now: Instant) {
            while self.readings.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= SETTLED) {
                self.readings.pop_front();
            }
        }

        /// A bank is about to be closed, and so many packets wait to be counted at most.
        pub(crate) fn rotate(&mut self, now: Instant, waiting: u64) {
            self.settle(now);
            let Some((_, settled)) =
                self.readings.front().filter(|(at, _)| now.duration_since(*at) >= SETTLED)
            else {
                return;
            };
            match self.began {
                Began::Between(_, after) => {
                    self.least =
                        self.least.max(settled.saturating_sub(after).saturating_sub(waiting));
                }
                Began::Rotated { before, after } if after > 0 => {
                    self.began = Began::Between(before, after);
                    self.least = settled.saturating_sub(after).saturating_sub(waiting);
                }
                Began::Not | Began::Rotated { .. } => {
                    self.began =
                        Began::Rotated { before: settled.saturating_sub(waiting), after: 0 };
                }
            }
        }

        /// What was received up to the last rotation, with the counter as it stands now, after
        /// losses were read.
        pub(crate) fn tally(&mut self, counter: u64) -> Option<Tally> {
            match self.began {
                Began::Between(before, _) => {
                    let least = self.least;
                    Some(Tally { least, most: counter.saturating_sub(before).max(least) })
                }
                Began::Rotated { before, .. } => {
                    self.began = Began::Rotated { before, after: counter };
                    None
                }
                Began::Not => None,
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
            assert_eq!(odometer.tally(1103), Some(Tally { least: 100, most: 103 }));
        }

        #[test]
        fn what_is_on_its_way_is_not_known_to_be_counted() {
            let (at, mut odometer) = (times(), Odometer::new(0, 0));
            for reading in 0..=10 {
                odometer.read(at(20 * reading), 100 * reading);
            }
            odometer.rotate(at(200), 0);
            // The reading of 100 ms ago is settled, and not those after it.
            assert_eq!(odometer.tally(1007), Some(Tally { least: 500, most: 1007 }));
            odometer.read(at(400), 1007);
            odometer.rotate(at(500), 40);
            assert_eq!(odometer.tally(1007), Some(Tally { least: 967, most: 1007 }));
            // What was known stays known.
            odometer.rotate(at(600), 400);
            assert_eq!(odometer.tally(1007), Some(Tally { least: 967, most: 1007 }));
        }

        #[test]
        fn a_counter_that_is_not_known_exactly_goes_up_all_the_same() {
            let (at, mut odometer) = (times(), Odometer::new(0, 0));
            odometer.read_between(at(0), 90..=110);
            odometer.read_between(at(10), 85..=112);
            odometer.rotate(at(200), 0);
            assert_eq!(odometer.tally(112), Some(Tally { least: 90, most: 112 }));
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
            assert_eq!(odometer.tally(95), Some(Tally { least: 20, most: 25 }));
        }

        #[test]
        fn a_counter_that_goes_backwards_begins_anew() {
            let (at, mut odometer) = (times(), Odometer::new(0, 0));
            odometer.read(at(0), 500);
            odometer.read(at(10), 3);
            odometer.rotate(at(110), 0);
            assert_eq!(odometer.tally(3), None);
            odometer.read(at(120), 8);
            odometer.rotate(at(220), 0);
            assert_eq!(odometer.tally(8), Some(Tally { least: 5, most: 5 }));
        }
    }
}
