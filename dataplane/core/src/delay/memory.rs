//! Per-core counts and histograms of delays.

use super::histogram::Histogram;
use super::table::SHARES;
use super::{DelayKind, Label, MAX_HISTOGRAMS, Settings};
use zerocopy::FromZeros;

/// Counts of one kind, group and direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct Counts {
    /// Requests, admitted or not. For [timestamps](DelayKind::TcpTimestamps) and the
    /// [spin bit](DelayKind::QuicSpin) only those stored in a table, because others cannot be
    /// distinguished from repetitions; each of these represents others, as a delay does.
    pub requests: u64,
    /// Requests stored in a table, out of those whose answers [count](super::Admission::counted).
    pub admitted: u64,
    /// Requests that found no free slot ([`Algorithm::Expiry`](super::Algorithm::Expiry)).
    pub refused: u64,
    /// Answers that came before their requests, or at least 2^31 ticks after them: a clock was set,
    /// or packets are out of order.
    pub backward: u64,
    /// Delays whose [samples](super::DelaySample) found no room.
    pub unsampled: u64,
    /// Requests among the admitted ones that count as insertions into a table. Repeated requests do
    /// not. Zero for kinds and algorithms that [remember](Settings::remembers) no requests.
    pub inserted: u64,
    /// Insertions that took no slot, because the request waited there already, and requests that
    /// took a slot without being an insertion.
    pub miscounted: u64,
}

impl Counts {
    /// Returns the sum of both.
    #[must_use]
    pub fn plus(mut self, other: &Counts) -> Counts {
        self.merge(other, 0);
        self
    }

    pub(super) fn merge(&mut self, other: &Counts, raise: u32) {
        self.requests += other.requests << raise;
        self.admitted += other.admitted;
        self.refused += other.refused;
        self.backward += other.backward;
        self.unsampled += other.unsampled;
        self.inserted += other.inserted;
        self.miscounted += other.miscounted;
    }
}

/// Length of the array of [`Counts`] of all kinds, groups and directions.
pub(super) const ROOM: usize = MAX_HISTOGRAMS;

/// Request counts and delay histograms, of a bank or merged.
#[derive(Clone, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct Delay {
    /// One plus the power of two of the share that [counts](super::Admission::counted), by number of
    /// kind, if shares [follow](Settings::follows) the traffic and anything was counted; else zero.
    /// After a merge the largest of the shares: delays counted with smaller ones are weighted up.
    pub(super) counted: [u32; SHARES],
    /// Counts in order of kind, group and direction; those in use come first.
    pub counts: [Counts; ROOM],
    /// Histograms in the order of [`Settings::histograms`]; those in use come first.
    pub histograms: [Histogram; MAX_HISTOGRAMS],
}

impl Delay {
    /// Returns the counts of a kind and label. Without [directions](super::Directions) all requests
    /// arrive; without groups all are of group 0.
    #[must_use]
    pub fn counts(&self, settings: &Settings, kind: DelayKind, label: impl Into<Label>) -> Counts {
        self.counts.get(Self::row(settings, kind, label.into())).copied().unwrap_or_default()
    }

    /// Returns the delays of a kind, label and fridge.
    #[must_use]
    pub fn histogram(
        &self,
        settings: &Settings,
        kind: DelayKind,
        label: impl Into<Label>,
        fridge: usize,
    ) -> Option<&Histogram> {
        let row = Self::row(settings, kind, label.into());
        self.histograms.get(row * settings.fridges() + fridge)
    }

    /// Returns the delays of a kind, label and fridge, for the caller to fill.
    pub fn histogram_mut(
        &mut self,
        settings: &Settings,
        kind: DelayKind,
        label: Label,
        fridge: usize,
    ) -> Option<&mut Histogram> {
        let row = Self::row(settings, kind, label);
        self.histograms.get_mut(row * settings.fridges() + fridge)
    }

    /// Sets the counts of a kind and label.
    pub fn set_counts(
        &mut self,
        settings: &Settings,
        kind: DelayKind,
        label: Label,
        counts: Counts,
    ) {
        self.counts
            .get_mut(Self::row(settings, kind, label))
            .into_iter()
            .for_each(|it| *it = counts);
    }

    fn row(settings: &Settings, kind: DelayKind, label: Label) -> usize {
        settings.kinds.rank(kind) * settings.labels() + settings.label(label)
    }

    /// Returns the share of a kind's requests that its delays represent, as a power of two.
    #[must_use]
    pub fn admit_log2(&self, settings: &Settings, kind: DelayKind) -> u8 {
        let counted = self.counted.get(kind as usize).and_then(|counted| counted.checked_sub(1));
        counted.map_or(settings.admit_log2, |bits| bits as u8)
    }

    /// Returns the same share if shares follow the traffic and anything was counted with it.
    #[must_use]
    pub fn counted_admit_log2(&self, kind: DelayKind) -> Option<u8> {
        self.counted
            .get(kind as usize)
            .and_then(|counted| counted.checked_sub(1))
            .map(|bits| bits as u8)
    }

    /// Sets the share of a kind's requests that its delays represent, for a device that counted
    /// anything with it.
    pub fn set_admit_log2(&mut self, kind: DelayKind, admit_log2: u8) {
        self.counted
            .get_mut(kind as usize)
            .into_iter()
            .for_each(|counted| *counted = u32::from(admit_log2) + 1);
    }
}
