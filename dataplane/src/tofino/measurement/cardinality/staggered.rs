//! Staggered registers: they restart one after another, and can be read at any time.
//!
//! # Rounds
//! A switch numbers rounds by 32 bits of its 48-bit clock: numbers repeat after
//! 2^48 nanoseconds (78 hours), or after 2^32 slots if that is less. A register that still contains
//! what it contained at the last read is as old as it was then, whatever has wrapped, so it does
//! not look fresh again. This requires a read at least once in such a period.
//!
//! # Time
//! Slots are defined by the chip's clock, which only packets reveal: the switch stores the time of
//! the last packet. The present time is at least that, and at least the time known at an earlier
//! read plus the time passed since. Clocks differ by at most [`DRIFT`].

use super::{Array, Failure, KIND, StatedSettings, names};
use crate::tofino::array::BankCells;
use crate::tofino::options::{self, slot_range};
use flowgauge_bfruntime::schema::Schema;
use flowgauge_core::cardinality::{self, Precision};
use flowgauge_core::{PersistentBank, Settings, Zeroed};
use std::time::{Duration, Instant};

/// Name of the registers, which are persistent.
const REGISTERS: &str = "staggered";
/// Round and level of a register.
const FIELDS: [&str; 2] = ["round", "level"];
/// Time of the last packet; the name ends with the bits of a slot's length.
const LATEST: &str = "latest";

/// Compiler definition of the slot length.
const DEFINITION: &str = "FLOWGAUGE_SLOT_BITS";
/// Width of the chip's clock, which counts nanoseconds, and the number of bits that a switch
/// stores.
const CLOCK_BITS: u32 = 48;
const KEPT_BITS: u32 = 32;
/// Maximum relative difference of clocks: one part in this many.
const DRIFT: u64 = 10_000;

/// Returns the time that registers cover: half a round.
fn covered(precision: Precision, slot_ns: u64) -> Duration {
    Duration::from_nanos(slot_ns.saturating_mul(precision.registers() as u64) / 2)
}

/// Registers of a program, with their state at the last read.
pub(in crate::tofino) struct Staggered {
    settings: cardinality::Settings,
    rounds: Rounds,
    pub(in crate::tofino) registers: Array,
    pub(in crate::tofino) latest: Array,
    clock: Clock,
    /// Contents of the registers of each pipe at the last read.
    seen: Vec<Vec<LastRead>>,
    /// Time of the last read.
    read: Option<Instant>,
}

/// Numbering of rounds on a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rounds {
    precision: Precision,
    slot_bits: u32,
}

/// Contents of a register, and the round in which it was raised, without wrap-around.
#[derive(Clone, Copy, Default)]
struct LastRead {
    contents: [u32; 2],
    round: u64,
}

impl Staggered {
    /// Finds the registers of a program, which must have slots of this length.
    pub(in crate::tofino) fn find(
        schema: &Schema,
        program: &StatedSettings,
        settings: &Settings,
        slot_ns: u64,
    ) -> Result<Self, Failure> {
        let cardinality::Settings { precision, .. } = settings.cardinality;
        let staggered = Self::built(schema, program, settings)?;
        let slot_bits = staggered.rounds.slot_bits;
        if slot_ns != 1 << slot_bits {
            let [own, wanted] =
                [1 << slot_bits, slot_ns].map(|slot_ns| covered(precision, slot_ns));
            let advice = match options::slot_bits(precision, slot_ns) {
                Some(bits) => {
                    format!("compile it with -D{DEFINITION}={bits}, or use --staggered {own:?}")
                }
                None => format!("use --staggered {own:?}"),
            };
            let problem = format!(
                "its registers cover {own:?} (-D{DEFINITION}={slot_bits}), {wanted:?} is wanted; {advice}"
            );
            return Err(Failure::program(problem));
        }
        Ok(staggered)
    }

    /// Finds the registers of a program with any slot length.
    pub(in crate::tofino) fn built(
        schema: &Schema,
        program: &StatedSettings,
        settings: &Settings,
    ) -> Result<Self, Failure> {
        let settings = settings.cardinality;
        let cardinality::Settings { key, precision, .. } = settings;
        let slot_bits = program.value(DEFINITION)?;
        if !slot_range(precision).contains(&slot_bits) {
            return Err(program.out_of_range(DEFINITION));
        }
        let latest = names::of(KIND, key, &format!("{LATEST}{slot_bits}"));
        let registers =
            Array::persistent(names::of(KIND, key, REGISTERS), precision.registers(), &FIELDS);
        let latest = Array::persistent(latest, 1, &names::REGISTER_VALUE);
        [&registers, &latest].into_iter().try_for_each(|array| array.check(schema))?;
        let rounds = Rounds { precision, slot_bits };
        let clock = Clock { unit_bits: rounds.unit_bits(), known: None };
        Ok(Staggered { settings, rounds, registers, latest, clock, seen: Vec::new(), read: None })
    }

    /// Checks that another program has the same registers.
    pub(in crate::tofino) fn check(
        &self,
        schema: &Schema,
        program: &StatedSettings,
        settings: &Settings,
    ) -> Result<(), Failure> {
        Self::find(schema, program, settings, 1 << self.rounds.slot_bits).map(|_| ())
    }

    /// Returns the time since the last read if it is so long that old registers may look fresh.
    pub(in crate::tofino) fn overdue(&self) -> Option<Duration> {
        let cycle = Duration::from_nanos(1 << self.rounds.cycle_bits());
        self.read.map(|read| read.elapsed()).filter(|elapsed| *elapsed > cycle / 2)
    }

    /// Pretends, for tests, that the last read was `by` earlier.
    pub(in crate::tofino) fn age(&mut self, by: Duration) {
        let earlier = |time: Instant| time.checked_sub(by);
        self.read = self.read.and_then(earlier);
        self.clock.known =
            self.clock.known.and_then(|(known, since)| Some((known, earlier(since)?)));
    }

    /// Resets the state after the registers were cleared or the switch restarted.
    pub(in crate::tofino) fn restart(&mut self) {
        self.clock.known = None;
        self.seen.clear();
        self.read = None;
    }

    /// Merges the registers of all pipes, and returns the time in nanoseconds of the chip's clock.
    /// The clock must be read after the registers.
    pub(in crate::tofino) fn persistent(
        &mut self,
        registers: &BankCells,
        latest: &BankCells,
        at: Instant,
    ) -> Result<(Box<PersistentBank>, u64), Failure> {
        let cardinality::Settings { precision, .. } = self.settings;
        let latest = latest.iter().flatten().map(|[time, _]| *time);
        let now = self.clock.read(latest, at);
        self.read = Some(at);
        self.seen.resize_with(registers.len(), || vec![LastRead::default(); precision.registers()]);
        let mut merged = PersistentBank::boxed();
        for (pipe, seen) in registers.iter().zip(&mut self.seen) {
            let mut own = PersistentBank::boxed();
            let words = own.cardinality.words_mut(precision);
            for (index, ((word, contents), seen)) in
                words.iter_mut().zip(pipe).zip(seen).enumerate()
            {
                let [round, level] = *contents;
                if level > precision.max_level().into() || !self.rounds.is_round(round) {
                    let problem = format!(
                        "{}[{index}] holds round {round:#x}, level {level}",
                        self.registers.table
                    );
                    return Err(Failure::answer(format!("{problem}, which no packet leaves")));
                }
                let current = self.rounds.of(index, now);
                if seen.contents != *contents {
                    *seen = LastRead {
                        contents: *contents,
                        round: current.wrapping_add_signed(-self.rounds.ago(current, round)),
                    };
                }
                let round = self
                    .rounds
                    .word(index, now, current.wrapping_sub(seen.round).cast_signed())
                    .filter(|_| level != 0);
                *word = round.map_or(0, |round| round | level);
            }
            merged.cardinality.merge(&own.cardinality, precision);
        }
        Ok((merged, now))
    }
}

impl Rounds {
    /// Returns the unit of a switch's numbers, as a power of two of nanoseconds.
    fn unit_bits(self) -> u32 {
        self.slot_bits.min(CLOCK_BITS - KEPT_BITS)
    }

    /// Returns the period after which numbers repeat, as a power of two of nanoseconds.
    fn cycle_bits(self) -> u32 {
        self.unit_bits() + KEPT_BITS
    }

    /// Returns the number of lower bits that are zero in a round's number.
    fn round_bits(self) -> u32 {
        self.slot_bits - self.unit_bits() + self.precision.bits()
    }

    fn is_round(self, number: u32) -> bool {
        number.trailing_zeros() >= self.round_bits()
    }

    /// Returns the present round of a register. Rounds before the first one are counted in the
    /// previous cycle, so that they exist.
    fn of(self, index: usize, now: u64) -> u64 {
        let rounds_of_cycle = 1_u64 << (KEPT_BITS - self.round_bits());
        let slots = (now >> self.slot_bits) + (rounds_of_cycle << self.precision.bits());
        slots.saturating_sub(index as u64) >> self.precision.bits()
    }

    /// Returns how many rounds ago the round with this number was: at most half a cycle or, if the
    /// time is inexact, in the future (negative).
    fn ago(self, current: u64, number: u32) -> i64 {
        let unused = u64::BITS - (KEPT_BITS - self.round_bits());
        (current.wrapping_sub(u64::from(number >> self.round_bits())) << unused).cast_signed()
            >> unused
    }

    /// Returns the round `ago` rounds before the present one in the core's format; `None` if the
    /// core could not distinguish it from a later one.
    fn word(self, index: usize, now: u64, ago: i64) -> Option<u32> {
        let bits = self.precision.bits();
        let shift = bits.max(8);
        let slot = (now >> self.slot_bits) as u32;
        let round = slot.wrapping_sub(index as u32) >> bits;
        (ago.unsigned_abs() < 1 << (31 - shift)).then(|| round.wrapping_sub(ago as u32) << shift)
    }
}

/// The chip's clock without wrap-around.
struct Clock {
    /// Unit of the stored time, as a power of two of nanoseconds.
    unit_bits: u32,
    /// Lower bound of the chip's time, and when it was determined.
    known: Option<(u64, Instant)>,
}

impl Clock {
    /// Returns the time, given the times of the last packets of each pipe; zero for a pipe without
    /// packets.
    fn read(&mut self, latest: impl Iterator<Item = u32>, at: Instant) -> u64 {
        let mut now = self.known.map(|(known, since)| {
            let passed =
                u64::try_from(at.saturating_duration_since(since).as_nanos()).unwrap_or(u64::MAX);
            known.saturating_add(passed - passed / DRIFT)
        });
        for time in latest.filter(|time| *time != 0) {
            let time = u64::from(time) << self.unit_bits;
            now = Some(now.map_or(time, |now| {
                // Half a cycle later or earlier.
                let unused = u64::BITS - KEPT_BITS - self.unit_bits;
                let ahead = (time.wrapping_sub(now) << unused).cast_signed() >> unused;
                now.saturating_add(u64::try_from(ahead).unwrap_or(0))
            }));
        }
        self.known = now.map(|now| (now, at));
        now.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_advances_without_packets_and_across_wraps() {
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let mut clock = Clock { unit_bits: 16, known: None };
        assert_eq!(clock.read([0, 0].into_iter(), at(0)), 0, "unknown before the first packet");
        let end = 1_u64 << CLOCK_BITS;
        let second = 1_000_000_000;
        // The chip's clock in units; lower bits are lost.
        let kept = |ns: u64| (ns >> 16) as u32;
        let time = end - 5 * second;
        let known = clock.read([0, kept(time)].into_iter(), at(1));
        assert_eq!(known, time >> 16 << 16);
        // No packet for 4 s: with a possibly slower clock that is 0.4 ms less.
        assert_eq!(clock.read([0, kept(time)].into_iter(), at(5)), known + 4 * second - 400_000);
        // The later of two pipes; after its end the clock restarts at zero.
        let later = kept(3 * second);
        assert_eq!(
            clock.read([later, kept(time)].into_iter(), at(8)),
            end + (u64::from(later) << 16)
        );
        // An old packet has no effect.
        let before = clock.known.unwrap().0;
        assert_eq!(clock.read([kept(second)].into_iter(), at(8)), before);
    }

    #[test]
    fn numbers_are_the_same_again_after_the_clock_or_two_to_the_32_slots() {
        let precision = Precision::new(4).unwrap();
        let cycles = [10, 16, 23].map(|slot_bits| Rounds { precision, slot_bits }.cycle_bits());
        assert_eq!(cycles, [42, 48, 48]);
    }
}
