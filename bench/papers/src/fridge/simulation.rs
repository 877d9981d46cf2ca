//! Tables of requests of any size, share and number, simulated.
//!
//! The dataplane's tables have powers of two as sizes and shares, and four fridges at most. Here
//! they are as the dissertation has them: (M, p)-fridges (§2.2.2), N of them with M_k slots each
//! that a share p_k of the requests enters (§2.3.2), a fridge in d stages (§2.3.1), and the stages
//! of Chen et al. with a time of expiry. Estimates are those of the controller.
//!
//! Weights are those of the dataplane, `(1 - 1/M)^-x` with x insertions. Equation 2.1 has `(1 - p/M)^x`
//! as the probability of survival, for which x has to count all requests.

use super::experiment::{Errors, Recipe, exact, shares, times};
use crate::trace::{below, mix};
use flowgauge::reproduce::FridgeShape;
use flowgauge_core::delay::DelayKind;
use flowgauge_core::delay::histogram::{Histogram, bucket};
use flowgauge_core::delay::weights::{SQUARE_BITS, WEIGHT_BITS};

/// Request, or the answer to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Identifier of the request, unique among all requests.
    pub id: u64,
    /// Time, in nanoseconds.
    pub at_ns: u64,
    /// Delay of an answer, in nanoseconds; `None` for a request.
    pub delay_ns: Option<u64>,
}

/// Table of requests.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SimulatedTable {
    /// Fridges. Each request enters one of them or none.
    Fridges(Vec<FridgeShape>),
    /// Fridge whose slots are in stages: a request that is overwritten moves to the next one.
    Staged {
        /// Number of stages.
        stages: usize,
        /// Slots of all stages, and the share of requests that enters.
        fridge: FridgeShape,
    },
    /// Table that stores every request, without weights.
    Overwrite {
        /// Number of slots.
        slots: usize,
    },
    /// Table in stages that keeps a request until it expires, without weights.
    Expiry {
        /// Number of stages.
        stages: usize,
        /// Slots of all stages.
        slots: usize,
        /// Time after which a request may be replaced, in nanoseconds.
        expiry_ns: u64,
    },
}

/// Stored request.
#[derive(Clone, Copy, Default)]
struct Slot {
    id: u64,
    at_ns: u64,
    /// Insertions into its fridge or stage until then.
    stamp: u64,
}

impl SimulatedTable {
    /// Returns the delays that the table measures, with their weights, and the share of requests
    /// that enters, for each fridge.
    fn run(&self, events: &[Event], seed: u64) -> Vec<(Histogram, f64)> {
        match self {
            SimulatedTable::Fridges(fridges) => run_fridges(fridges, true, events, seed),
            SimulatedTable::Overwrite { slots } => {
                run_fridges(&[FridgeShape { slots: *slots, admitted: 1.0 }], false, events, seed)
            }
            SimulatedTable::Staged { stages, fridge } => {
                vec![(run_staged(*stages, *fridge, events, seed), fridge.admitted)]
            }
            SimulatedTable::Expiry { stages, slots, expiry_ns } => {
                vec![(run_expiry(*stages, *slots, *expiry_ns, events, seed), 1.0)]
            }
        }
    }

    /// Returns the number of delays that the table measures, and the errors of their percentiles;
    /// `None` without any delay.
    pub(super) fn errors(
        &self,
        events: &[Event],
        truth: &[f64],
        seed: u64,
    ) -> Option<(u64, Errors)> {
        let histograms = self.run(events, seed);
        let buckets = histograms.iter().flat_map(|(histogram, _)| histogram.buckets());
        let samples = buckets.map(|bucket| u64::from(bucket.samples)).sum();
        let times = times(&histograms)?;
        // Percentiles 50, 95 and 99.
        Some((samples, Errors::between(Recipe::LogUniform, &times, truth)))
    }
}

/// Returns the true times of the compared shares, in nanoseconds.
pub(super) fn truth(events: &[Event]) -> Vec<f64> {
    let mut delays: Vec<u64> = events.iter().filter_map(|event| event.delay_ns).collect();
    delays.sort_unstable();
    shares().map(|share| exact(&delays, share) as f64).to_vec()
}

/// Returns the slot of a request in a stage or fridge with `slots` slots.
fn place(id: u64, stage: usize, slots: usize, seed: u64) -> usize {
    below(mix(id ^ mix(seed ^ ((stage as u64 + 1) << 32))), slots)
}

/// Returns a number from 0 to 1 that decides which fridge a request enters.
fn draw(id: u64, seed: u64) -> f64 {
    (mix(id ^ mix(seed)) >> 11) as f64 / (1_u64 << 53) as f64
}

/// Counts a delay, with the weight of a request that `insertions` others followed into `slots`.
fn count(histogram: &mut Histogram, delay_ns: u64, insertions: u64, slots: usize) {
    let ticks = delay_ns >> DelayKind::TcpData.tick_bits();
    let ticks = ticks.min(i32::MAX as u64) as u32;
    let weight = (1.0 - 1.0 / slots as f64).powf(-(insertions as f64));
    if let Some(bucket) = histogram.bucket_mut(bucket(ticks)) {
        let fixed = |value: f64, bits: u32| (value * f64::from(1_u32 << bits)).round() as u64;
        bucket.weight = bucket.weight.saturating_add(fixed(weight, WEIGHT_BITS));
        bucket.squares = bucket.squares.saturating_add(fixed(weight * weight, SQUARE_BITS));
        bucket.samples = bucket.samples.saturating_add(1);
    }
}

fn empty() -> Histogram {
    Histogram::sum(std::iter::empty())
}

fn run_fridges(
    fridges: &[FridgeShape],
    has_weights: bool,
    events: &[Event],
    seed: u64,
) -> Vec<(Histogram, f64)> {
    struct Fridge {
        slots: Vec<Slot>,
        inserted: u64,
        /// Draws below it enter this fridge or one before.
        below: f64,
        histogram: Histogram,
    }
    let mut sum = 0.0;
    let mut all: Vec<Fridge> = fridges
        .iter()
        .map(|fridge| {
            sum += fridge.admitted;
            let slots = vec![Slot::default(); fridge.slots];
            Fridge { slots, inserted: 0, below: sum, histogram: empty() }
        })
        .collect();
    for event in events {
        let draw = draw(event.id, seed);
        let found = all.iter_mut().enumerate().find(|(_, fridge)| draw < fridge.below);
        let Some((number, Fridge { slots, inserted, histogram, .. })) = found else { continue };
        let place = place(event.id, number, slots.len(), seed);
        let size = slots.len();
        let Some(slot) = slots.get_mut(place) else { continue };
        match event.delay_ns {
            None => {
                *inserted += 1;
                *slot = Slot { id: event.id, at_ns: event.at_ns, stamp: *inserted };
            }
            Some(delay_ns) if slot.id == event.id => {
                let insertions = if has_weights { *inserted - slot.stamp } else { 0 };
                count(histogram, delay_ns, insertions, size);
                *slot = Slot::default();
            }
            Some(_) => {}
        }
    }
    all.into_iter().zip(fridges).map(|(fridge, shape)| (fridge.histogram, shape.admitted)).collect()
}

/// Returns the stages of a table, whose slots they share alike.
fn stages(stages: usize, slots: usize) -> Vec<Vec<Slot>> {
    vec![vec![Slot::default(); (slots / stages).max(1)]; stages]
}

/// A request that is overwritten moves on to the next stage, and only one in the last stage can be
/// lost: its weight is that of its insertions there (§2.3.1).
fn run_staged(number: usize, fridge: FridgeShape, events: &[Event], seed: u64) -> Histogram {
    let mut stages = stages(number, fridge.slots);
    let (mut histogram, mut inserted) = (empty(), 0_u64);
    for event in events {
        if draw(event.id, seed) >= fridge.admitted {
            continue;
        }
        let mut moving = Slot { id: event.id, at_ns: event.at_ns, stamp: 0 };
        for (stage, slots) in stages.iter_mut().enumerate() {
            let is_last = stage + 1 == number;
            let size = slots.len();
            let Some(slot) = slots.get_mut(place(moving.id, stage, size, seed)) else { continue };
            match event.delay_ns {
                None => {
                    if is_last {
                        inserted += 1;
                        moving.stamp = inserted;
                    }
                    std::mem::swap(slot, &mut moving);
                    if moving.id == 0 {
                        break;
                    }
                }
                Some(delay_ns) if slot.id == event.id => {
                    let insertions = if is_last { inserted - slot.stamp } else { 0 };
                    count(&mut histogram, delay_ns, insertions, size);
                    *slot = Slot::default();
                    break;
                }
                Some(_) => {}
            }
        }
    }
    histogram
}

/// A request takes the first slot that is empty or whose request has expired, and is lost
/// without such a slot.
fn run_expiry(
    number: usize,
    slots: usize,
    expiry_ns: u64,
    events: &[Event],
    seed: u64,
) -> Histogram {
    let mut stages = stages(number, slots);
    let mut histogram = empty();
    for event in events {
        for (stage, slots) in stages.iter_mut().enumerate() {
            let size = slots.len();
            let Some(slot) = slots.get_mut(place(event.id, stage, size, seed)) else { continue };
            match event.delay_ns {
                // The times of a capture may go back.
                None if slot.id == 0 || event.at_ns.saturating_sub(slot.at_ns) > expiry_ns => {
                    *slot = Slot { id: event.id, at_ns: event.at_ns, stamp: 0 };
                    break;
                }
                Some(delay_ns) if slot.id == event.id => {
                    count(&mut histogram, delay_ns, 0, size);
                    *slot = Slot::default();
                    break;
                }
                None | Some(_) => {}
            }
        }
    }
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(id: u64, at_ns: u64) -> Event {
        Event { id, at_ns, delay_ns: None }
    }

    fn answer(id: u64, at_ns: u64, delay_ns: u64) -> Event {
        Event { id, at_ns, delay_ns: Some(delay_ns) }
    }

    /// Returns the number of delays and the sum of their weights.
    fn measured(table: &SimulatedTable, events: &[Event]) -> (u32, f64) {
        let histograms = table.run(events, 1);
        let buckets = || histograms.iter().flat_map(|(histogram, _)| histogram.buckets());
        let weight: u64 = buckets().map(|bucket| bucket.weight).sum();
        (buckets().map(|bucket| bucket.samples).sum(), weight as f64 / 4096.0)
    }

    #[test]
    fn a_survivor_stands_for_those_that_were_overwritten() {
        let fridge = |slots| SimulatedTable::Fridges(vec![FridgeShape { slots, admitted: 1.0 }]);
        // One slot: the second request takes it.
        let events = [request(1, 0), request(2, 1), answer(1, 2, 2), answer(2, 3, 2)];
        assert_eq!(measured(&fridge(1), &events), (1, 1.0));
        // With this number of slots no request is overwritten: two insertions after the first, one
        // after the second.
        let events: Vec<Event> = (1..=3)
            .map(|id| request(id, id))
            .chain((1..=3).map(|id| answer(id, 10, 10 - id)))
            .collect();
        let survived = |insertions: i32| 0.999_f64.powi(-insertions);
        let (samples, weight) = measured(&fridge(1000), &events);
        assert_eq!(samples, 3);
        // Each weight is rounded to 1/4096.
        assert!((weight - survived(2) - survived(1) - 1.0).abs() <= 1.5 / 4096.0, "{weight}");
        assert_eq!(measured(&SimulatedTable::Overwrite { slots: 1000 }, &events), (3, 3.0));
    }

    #[test]
    fn stages_hold_a_request_until_it_leaves_the_last() {
        let fridge = FridgeShape { slots: 3, admitted: 1.0 };
        let table = SimulatedTable::Staged { stages: 3, fridge };
        // Three stages of one slot are a queue.
        let events: Vec<Event> = (1..=4)
            .map(|id| request(id, id))
            .chain((1..=4).map(|id| answer(id, 10, 10 - id)))
            .collect();
        assert_eq!(measured(&table, &events).0, 3);
    }

    #[test]
    fn requests_stay_until_they_expire() {
        let table = |expiry_ns| SimulatedTable::Expiry { stages: 1, slots: 1, expiry_ns };
        let events = [request(1, 0), request(2, 10), answer(1, 20, 20), answer(2, 30, 20)];
        assert_eq!(measured(&table(10), &events), (1, 1.0));
        let lengths = |expiry_ns| {
            let histograms = table(expiry_ns).run(&events, 1);
            histograms[0].0.buckets().iter().filter(|bucket| bucket.samples > 0).count()
        };
        assert_eq!((lengths(10), lengths(9)), (1, 1));
        // A request does not expire because of a time before it.
        let back = [request(1, 10), request(2, 5), answer(1, 12, 2), answer(2, 13, 8)];
        assert_eq!(measured(&table(1), &back), (1, 1.0));
        // Two slots in two stages hold both.
        let two = SimulatedTable::Expiry { stages: 2, slots: 2, expiry_ns: 100 };
        assert_eq!(measured(&two, &events), (2, 2.0));
    }

    /// The expected sum of weights times the share that enters is the number of answers, in one
    /// fridge, in several, and in stages (Lemma 2.1).
    #[test]
    fn weights_are_unbiased() {
        const REQUESTS: u64 = 20_000;
        const SEEDS: u64 = 40;
        let events: Vec<Event> = (0..REQUESTS + 100)
            .flat_map(|number| {
                let late = number.checked_sub(100).map(|id| answer(id + 1, number, 100));
                (number < REQUESTS).then(|| request(number + 1, number)).into_iter().chain(late)
            })
            .collect();
        let shape = |slots, admitted| FridgeShape { slots, admitted };
        let tables = [
            SimulatedTable::Fridges(vec![shape(64, 1.0)]),
            SimulatedTable::Fridges(vec![shape(100, 0.3)]),
            SimulatedTable::Fridges(vec![shape(32, 0.25), shape(48, 0.125)]),
            SimulatedTable::Staged { stages: 4, fridge: shape(128, 0.7) },
        ];
        for table in tables {
            let sums: Vec<f64> = (1..=SEEDS)
                .map(|seed| {
                    let estimate = |(histogram, admitted): &(Histogram, f64)| {
                        let weight: u64 =
                            histogram.buckets().iter().map(|bucket| bucket.weight).sum();
                        weight as f64 / 4096.0 / admitted
                    };
                    let histograms = table.run(&events, seed);
                    histograms.iter().map(estimate).sum::<f64>() / histograms.len() as f64
                })
                .collect();
            let spread = crate::statistics::Spread::from_values(&sums).unwrap();
            let allowed = flowgauge_testing::chance::of_mean(spread.deviation, SEEDS);
            assert!((spread.mean - REQUESTS as f64).abs() <= allowed, "{table:?}: {spread:?}");
        }
    }
}
