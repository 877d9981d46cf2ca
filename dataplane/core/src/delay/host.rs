//! Clearing and merging of delays.

use super::histogram::BUCKETS;
use super::table::SHARES;
use super::{Delay, Histogram, Requests, Settings};
use crate::host::HostMeasurement;
use zerocopy::FromZeros;

impl Delay {
    fn clear(&mut self, settings: &Settings) {
        self.counted = [0; SHARES];
        let rows = settings.kinds.number() * settings.labels();
        self.counts.iter_mut().take(rows).for_each(FromZeros::zero);
        self.histograms.iter_mut().take(settings.histograms()).for_each(Histogram::clear);
    }

    fn merge(&mut self, other: &Delay, settings: &Settings) {
        let (labels, fridges) = (settings.labels(), settings.fridges());
        for (rank, kind) in settings.kinds.each().enumerate() {
            let [mine, theirs] =
                [&*self, other].map(|it| it.counted.get(kind as usize).copied().unwrap_or(0));
            // Delays counted with a smaller share represent more requests, by as many doublings.
            let (raise_mine, raise_theirs) = if mine == 0 || theirs == 0 {
                (0, 0)
            } else {
                (mine.saturating_sub(theirs), theirs.saturating_sub(mine))
            };
            if let Some(counted) = self.counted.get_mut(kind as usize) {
                *counted = if mine == 0 || theirs == 0 { mine | theirs } else { mine.min(theirs) };
            }
            let first = rank * labels;
            let counts = self.counts.iter_mut().zip(&other.counts).skip(first).take(labels);
            counts.for_each(|(mine, theirs)| {
                if kind.is_known_if_kept() {
                    mine.requests <<= raise_mine;
                }
                mine.merge(theirs, if kind.is_known_if_kept() { raise_theirs } else { 0 });
            });
            let histograms = self.histograms.iter_mut().zip(&other.histograms);
            histograms.skip(first * fridges).take(labels * fridges).for_each(|(mine, theirs)| {
                mine.raise(raise_mine);
                mine.merge_raised(theirs, raise_theirs);
            });
        }
    }
}

impl HostMeasurement for Delay {
    type Totals = Delay;
    type Exact = ();

    fn clear_core(delays: &mut Delay, settings: &Settings) {
        delays.clear(settings);
    }

    fn clear_totals(totals: &mut Delay, settings: &Settings) {
        totals.clear(settings);
    }

    fn prepare(requests: &Requests, settings: &Settings) {
        requests.prepare(settings);
    }

    fn merge_core(totals: &mut Delay, delays: &Delay, settings: &Settings) {
        totals.merge(delays, settings);
    }

    fn merge_totals(totals: &mut Delay, other: &Delay, settings: &Settings) {
        totals.merge(other, settings);
    }

    fn for_each_counter(
        totals: &Delay,
        settings: &Settings,
        visit: &mut dyn FnMut(&'static str, &[u64]),
    ) {
        let of_kind = settings.labels() * settings.fridges();
        for (kind, histograms) in settings.kinds.each().zip(totals.histograms.chunks(of_kind)) {
            for histogram in histograms {
                let mut samples = [0; BUCKETS];
                samples
                    .iter_mut()
                    .zip(histogram.buckets())
                    .for_each(|(to, from)| *to = from.samples.into());
                visit(kind.name(), &samples);
            }
        }
    }
}
