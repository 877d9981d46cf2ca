//! Individual delays: the switch sends a digest for each one that it counts.
//!
//! A switch does not report digests that it could not send. Their expected number is in the bank;
//! missing ones are counted when the window is closed.

use super::tick_bits;
use crate::delay_samples::DelaySampleQueue;
use crate::error::Failure;
use crate::tofino::entries::DigestField;
use flowgauge_bfruntime::proto;
use flowgauge_bfruntime::schema::Schema;
use flowgauge_core::delay::weights::Weight;
use flowgauge_core::delay::{DelaySample, Settings};
use flowgauge_core::{BANKS, WindowTotals};

pub(super) const DEFINITION: &str = "FLOWGAUGE_DELAY_SAMPLES";
const DIGEST: &str = "delay_samples";
/// Fields of a digest.
const FIELDS: [&str; 10] =
    ["at", "src", "dst", "ticks", "weight", "beyond", "kind", "fridge", "leaves", "bank"];
/// Additional field if delays are counted per group.
const GROUP: &str = "group";
/// Width of the chip's clock, which counts nanoseconds.
const CLOCK_BITS: u32 = 48;

/// Delays received in digests.
pub(in crate::tofino) struct Samples {
    settings: Settings,
    digest: u32,
    /// Digest fields, in the order of [`FIELDS`].
    fields: Vec<DigestField>,
    group: Option<DigestField>,
    queue: DelaySampleQueue,
    /// Delays received since the bank was opened, by bank, then by kind, group and direction.
    came: [Vec<u64>; BANKS],
    /// Bank of the open window, and whether the next one may count already.
    open: usize,
    is_closing: bool,
    clock: Clock,
}

impl Samples {
    /// Creates a receiver for a program with these settings.
    pub(in crate::tofino) fn new(schema: &Schema, settings: &Settings) -> Result<Self, Failure> {
        let digest = schema.filter(DIGEST).map_err(Failure::program)?;
        let field = |name| DigestField::find(digest, name);
        let fields = FIELDS.into_iter().map(field).collect::<Result<_, _>>()?;
        let group = (settings.groups_log2 > 0).then(|| field(GROUP)).transpose()?;
        let rows = settings.kinds.number() * settings.labels();
        Ok(Samples {
            settings: *settings,
            digest: digest.id,
            fields,
            group,
            queue: DelaySampleQueue::default(),
            came: std::array::from_fn(|_| vec![0; rows]),
            open: 0,
            is_closing: false,
            clock: Clock::default(),
        })
    }

    /// Discards everything and starts again with bank 0.
    pub(in crate::tofino) fn restart(&mut self) {
        self.queue = DelaySampleQueue::default();
        self.came.iter_mut().for_each(|came| came.fill(0));
        (self.open, self.is_closing) = (0, false);
    }

    /// Accepts delays of the other bank from now on.
    pub(in crate::tofino) fn closing(&mut self) {
        self.is_closing = true;
    }

    /// Processes digests that arrived at `now`, in nanoseconds since the Unix epoch.
    pub(in crate::tofino) fn receive(&mut self, digests: &proto::DigestList, now: u64) {
        if digests.digest_id != self.digest {
            return;
        }
        for digest in &digests.data {
            let Some(sample) = self.sample(digest, now) else {
                tracing::debug!(
                    "a digest of a delay is not what the schema says, and counts as missing"
                );
                continue;
            };
            // A digest of a window that is closed was already counted as missing.
            if usize::from(sample.bank) != self.open && !self.is_closing {
                continue;
            }
            let came = self
                .came
                .get_mut(usize::from(sample.bank))
                .and_then(|came| came.get_mut(usize::from(sample.row)));
            came.into_iter().for_each(|came| *came += 1);
            self.queue.add(sample);
        }
    }

    fn sample(&mut self, digest: &proto::TableData, now: u64) -> Option<DelaySample> {
        let [at, source, destination, delay, weight, beyond, kind, fridge, leaves, bank] =
            &self.fields[..]
        else {
            return None;
        };
        let narrow = |field: &DigestField| u32::try_from(field.read(digest)?).ok();
        let group = self.group.as_ref().map_or(Some(0), narrow)? as usize;
        let settings = &self.settings;
        let label = group.checked_mul(settings.sides())?.checked_add(if settings.sides() > 1 {
            narrow(leaves)? as usize
        } else {
            0
        })?;
        let row = (narrow(kind)? as usize).checked_mul(settings.labels())?.checked_add(label)?;
        if row >= settings.kinds.number() * settings.labels() {
            return None;
        }
        let weight = if settings.weighs() { narrow(weight)? } else { Weight::ONE.weight };
        let sample = DelaySample {
            at: 0,
            source: narrow(source)?,
            destination: narrow(destination)?,
            delay: narrow(delay)? & (u32::MAX >> (u32::BITS - tick_bits(&self.settings))),
            weight,
            row: row as u8,
            fridge: narrow(fridge)? as u8,
            bank: narrow(bank)? as u8,
            beyond: narrow(beyond)?.min(1) as u8,
            place: 0,
        };
        Some(DelaySample { at: self.clock.since_epoch(at.read(digest)?, now), ..sample })
    }

    /// Returns the open window's delays that were not taken before.
    pub(in crate::tofino) fn take(&mut self) -> Vec<DelaySample> {
        self.queue.take()
    }

    /// Returns whether all delays that a closed bank counts have arrived.
    pub(in crate::tofino) fn are_all(&self, bank: &WindowTotals) -> bool {
        let came = self.came.get(self.open).into_iter().flatten();
        came.zip(self.counted(bank)).all(|(came, counted)| *came >= counted)
    }

    /// Closes the window: returns the rest of its delays, and stores the number of missing ones in
    /// its bank.
    pub(in crate::tofino) fn close(&mut self, bank: &mut WindowTotals) -> Vec<DelaySample> {
        let counted: Vec<u64> = self.counted(bank).collect();
        if let Some(came) = self.came.get_mut(self.open) {
            for ((counts, counted), came) in bank.delay.counts.iter_mut().zip(counted).zip(came) {
                counts.unsampled = counted.saturating_sub(std::mem::take(came));
            }
        }
        self.open ^= 1;
        self.is_closing = false;
        self.clock.next_window();
        self.queue.close()
    }

    /// Returns the delays counted in a bank, by kind, group and direction.
    fn counted(&self, bank: &WindowTotals) -> impl Iterator<Item = u64> {
        let rows = self.settings.kinds.number() * self.settings.labels();
        bank.delay.histograms.chunks(self.settings.fridges()).take(rows).map(|fridges| {
            fridges
                .iter()
                .flat_map(|histogram| histogram.buckets())
                .map(|bucket| u64::from(bucket.samples))
                .sum()
        })
    }
}

/// Mapping from the chip's clock to ours. Digests arrive with a latency; the fastest one gives the
/// difference between the clocks. Clocks drift, so each window uses only its own digests and those
/// of the previous window.
#[derive(Default)]
struct Clock {
    /// Smallest difference of our time and the chip's, modulo the chip's clock range; of the
    /// previous and of the present window.
    before: Option<u64>,
    current: Option<u64>,
}

const CLOCK: u64 = (1 << CLOCK_BITS) - 1;

impl Clock {
    fn since_epoch(&mut self, at: u64, now: u64) -> u64 {
        let apart = now.wrapping_sub(at) & CLOCK;
        // The earlier of two, modulo the clock range.
        let least = |one: u64, other: u64| {
            if one.wrapping_sub(other) & CLOCK > CLOCK / 2 { one } else { other }
        };
        let current = self.current.map_or(apart, |current| least(current, apart));
        self.current = Some(current);
        let difference = self.before.map_or(current, |before| least(before, current));
        now.wrapping_sub(apart.wrapping_sub(difference) & CLOCK)
    }

    fn next_window(&mut self) {
        self.before = self.current.take().or(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_that_took_longer_tells_the_same_time() {
        let mut clock = Clock::default();
        let epoch = 1_800_000_000_000_000_000;
        // The chip's clock is about to wrap.
        let chip = |ns: u64| (CLOCK - 500 + ns) & CLOCK;
        assert_eq!(clock.since_epoch(chip(0), epoch + 90), epoch + 90);
        assert_eq!(clock.since_epoch(chip(1000), epoch + 1020), epoch + 1020);
        assert_eq!(clock.since_epoch(chip(2000), epoch + 2900), epoch + 2020);
        clock.next_window();
        assert_eq!(clock.since_epoch(chip(3000), epoch + 3400), epoch + 3020);
        // Clocks drift: two windows later the first one has no effect.
        clock.next_window();
        clock.next_window();
        assert_eq!(clock.since_epoch(chip(4000), epoch + 4900), epoch + 4400);
        clock.next_window();
        clock.next_window();
        assert_eq!(clock.since_epoch(chip(5000), epoch + 5950), epoch + 5900);
    }
}
