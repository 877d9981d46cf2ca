//! Delays between requests and answers: requests are stored until their answers arrive
//! (dissertation, chapter 2).
//!
//! Requests and answers of a [`DelayKind`] are matched by a signature of both ends and of a token that
//! the answer repeats. Each kind has two tables, one per direction. A request is stored in one
//! table and answered from the other side, so that a packet that is both, data that acknowledges
//! data, reads one table and writes the other. The order of the ends' hashes selects the table, so
//! that every device selects the same one.
//!
//! Memory is small, so requests overwrite each other, and long delays are lost more often than
//! short ones. [`Algorithm::Fridge`] corrects for that: a delay is weighted by the reciprocal of
//! the probability that its request survived ([`weights`]). A request that is repeated takes no
//! slot from others and raises no weight (`table`). Admission of a request depends on its
//! hash alone, so that every backend admits the same requests.
//!
//! Per packet and kind, `kind` determines the packet's roles. An answer removes its request from
//! the slots in `table`; its delay is added to a [`histogram`] and, if requested, to the delay
//! samples ([`sample`]). A request is then stored. [`prefixes`] maps addresses to groups and to our
//! own side; `host` clears and merges the results; `exact` matches all requests, for comparison.

#[cfg(not(target_arch = "bpf"))]
mod exact;
mod exchange;
pub mod histogram;
#[cfg(not(target_arch = "bpf"))]
mod host;
mod kind;
mod memory;
pub mod prefixes;
pub mod sample;
mod settings;
mod table;
pub mod weights;

#[cfg(not(target_arch = "bpf"))]
pub use exact::{ExactDelays, LabelDelays, WindowDelays};
pub use kind::{DelayKind, KINDS, Kinds};
pub use memory::{Counts, Delay};
pub use sample::{DelaySample, DelaySamples};
pub use settings::{
    Algorithm, Directions, EXPIRING_BITS, FRIDGES, Label, MAX_ADMIT_BITS, MAX_HISTOGRAMS,
    SLOT_BITS, Settings,
};
pub use table::{Admission, MAX_SLOTS, Requests, Shares};

use crate::arrival::Packets;
use crate::key::KeyKind;
use crate::measurement::{MAX_KEYS, MeasureContext, Measurement, MeasurementMemory, UsedBytes};
use crate::needs::RequiredFields;
use crate::observation::{Observation, Observed};
use crate::segment::SegmentProtocol;
use exchange::{Answer, Exchange, RequestKey, RequestOutcome};
use histogram::Histogram;
use kind::Roles;
use memory::ROOM;
use table::SHARES;
use weights::Weight;

impl Delay {
    #[inline(always)]
    fn each<P: Packets>(
        settings: &Settings,
        parts: MeasurementMemory<'_, Self>,
        pass: &MeasureContext<'_>,
        packets: &(impl Observed<P> + ?Sized),
    ) {
        for packet in packets.each() {
            if packet.segment.speaks != SegmentProtocol::Nothing {
                let before = parts.persistent.length;
                parts.own.packet(settings, parts.shared_persistent, pass, packet, parts.persistent);
                if settings.samples {
                    // The fields that all delays of a packet have in common come last, when
                    // registers are free for them.
                    parts.persistent.complete(before, packet, pass.bank);
                }
            }
        }
    }

    #[inline(always)]
    fn packet<P: Packets>(
        &mut self,
        settings: &Settings,
        requests: &Requests,
        pass: &MeasureContext<'_>,
        packet: &Observation<P>,
        samples: &mut DelaySamples,
    ) {
        if cfg!(not(target_arch = "bpf")) {
            let mut kinds = settings.kinds.of_segment(&packet.segment);
            while let Some(kind) = kinds.take_first() {
                let ranked = |kind| (kind, settings.kinds.rank(kind));
                // The most frequent kinds have code of their own, in which the compiler knows them.
                match kind {
                    DelayKind::TcpHandshake => {
                        let kind = ranked(DelayKind::TcpHandshake);
                        self.exchange(settings, kind, requests, pass, packet, samples);
                    }
                    DelayKind::TcpData => {
                        let kind = ranked(DelayKind::TcpData);
                        self.exchange(settings, kind, requests, pass, packet, samples);
                    }
                    kind => self.exchange(settings, ranked(kind), requests, pass, packet, samples),
                }
            }
            return;
        }
        // One copy of the code for all kinds: a kernel program has no room for more.
        let (mut number, end) = DelayKind::range(packet.segment.speaks);
        let other = DelayKind::other(&packet.segment);
        // TCP's kinds come first, so their rank needs no counting.
        let mut rank = if number == 0 { 0 } else { settings.kinds.before(number) };
        while number < end {
            if let Some(kind) = DelayKind::of(number)
                && settings.kinds.has(kind)
            {
                if number != other {
                    self.exchange(settings, (kind, rank), requests, pass, packet, samples);
                }
                rank += 1;
            }
            number += 1;
        }
    }

    #[inline(always)]
    fn exchange<P: Packets>(
        &mut self,
        settings: &Settings,
        (kind, rank): (DelayKind, usize),
        requests: &Requests,
        pass: &MeasureContext<'_>,
        packet: &Observation<P>,
        samples: &mut DelaySamples,
    ) {
        let Roles { asks, request, answers, answer } = kind.roles(&packet.segment);
        if !asks && !answers {
            return;
        }
        let (exchange, tabulation) =
            (Exchange { settings, kind, requests, sharing: pass.sharing, packet }, pass.tabulation);
        let (source, destination) = packet.ends;
        // Either side may end a connection.
        let has_sides = kind != DelayKind::TcpDuration;
        let (forth, back) = (table(source, destination), table(destination, source));
        let ((from, to), table, (back_from, back_to), back_table) = match (has_sides, forth) {
            (true, _) => ((source, destination), forth, (destination, source), back),
            (false, 0) => ((source, destination), 0, (source, destination), 0),
            (false, _) => ((destination, source), 0, (destination, source), 0),
        };
        // If both ends are equal, request and answer are in one table, which a switch reads once:
        // the packet counts as a request.
        if answers && (!asks || forth != back) {
            let key = RequestKey::of((back_from, back_to), answer, rank, back_table, tabulation);
            if let Some(fridge) = key.fridge(settings, exchange.shares(pass.bank).0)
                && let Some(found) = exchange.answer(&key, fridge)
                && exchange.counts(&key, pass.bank)
            {
                self.record_share(&exchange, pass.bank);
                self.count(settings, exchange.row(rank, false), requests, found, samples);
            }
        }
        if asks {
            let key = RequestKey::of((from, to), request, rank, table, tabulation);
            let mut became = RequestOutcome::Again;
            // Some stored requests do not count yet. An answer removes them, so that a duplicate
            // answer finds nothing.
            let is_counted = exchange.counts(&key, pass.bank);
            let is_new = exchange.is_new(&key);
            if let Some(fridge) = key.fridge(settings, exchange.shares(pass.bank).0) {
                if kind == DelayKind::QuicSpin {
                    let (asked, found) = exchange.spin(&key, fridge, packet.segment.flags);
                    became = asked;
                    if let Some(found) = found
                        && is_counted
                    {
                        self.record_share(&exchange, pass.bank);
                        self.count(settings, exchange.row(rank, true), requests, found, samples);
                    }
                } else {
                    became = exchange.ask(&key, fridge, is_new);
                }
            }
            let index = exchange.row(rank, true) & (ROOM - 1);
            let is_repeated = became == RequestOutcome::Repeated;
            let is_kept = (became == RequestOutcome::Kept || is_repeated) && is_counted;
            let is_known = !kind.is_known_if_kept() || is_kept;
            if is_known {
                self.record_share(&exchange, pass.bank);
            }
            #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
            let counts = &mut self.counts[index];
            counts.requests += u64::from(is_known);
            counts.admitted += u64::from(is_kept);
            if settings.remembers(kind) {
                counts.inserted += u64::from(is_kept & is_new);
                counts.miscounted += u64::from(is_kept & (is_new == is_repeated));
            }
            if became == RequestOutcome::Refused {
                counts.refused += 1;
            }
        }
    }

    /// Records the share that something is counted with, if shares follow the traffic.
    #[inline(always)]
    fn record_share<P>(&mut self, exchange: &Exchange<'_, P>, bank: usize) {
        let Exchange { settings, kind, requests, .. } = exchange;
        if settings.follows {
            #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
            let recorded = &mut self.counted[*kind as usize & (SHARES - 1)];
            *recorded = requests.shares.of(bank, *kind).1 + 1;
        }
    }

    /// Counts an answer, as backward if its request has a later time.
    #[inline(always)]
    fn count(
        &mut self,
        settings: &Settings,
        row: usize,
        requests: &Requests,
        found: Answer,
        samples: &mut DelaySamples,
    ) {
        if found.delay as i32 >= 0 {
            let (weight, is_beyond) = match settings.algorithm {
                Algorithm::Fridge | Algorithm::MultiFridge => {
                    requests.weights.of(found.insertions, settings.fridge_slots_log2())
                }
                Algorithm::Overwrite | Algorithm::Expiry => (Weight::ONE, false),
            };
            let fridge = if settings.fridges() == 1 { 0 } else { found.fridge & (FRIDGES - 1) };
            if settings.samples {
                if let Some(sample) = samples.add() {
                    (sample.delay, sample.weight) = (found.delay, weight.weight);
                    (sample.row, sample.fridge, sample.beyond) =
                        (row as u8, fridge as u8, u8::from(is_beyond));
                } else {
                    self.count_unsampled(row);
                }
            }
            let index = if settings.fridges() == 1 { row } else { row * FRIDGES + fridge };
            let index = index & (settings.padded_histograms() - 1) & (MAX_HISTOGRAMS - 1);
            #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
            self.histograms[index].add(found.delay, weight, is_beyond);
        } else {
            #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
            let counts = &mut self.counts[row & (ROOM - 1)];
            counts.backward += 1;
        }
    }
}

impl Delay {
    /// Removes the samples and sends them; counts those that `send` does not take.
    pub fn send_samples(
        &mut self,
        samples: &mut DelaySamples,
        mut send: impl FnMut(&DelaySample) -> bool,
    ) {
        for sample in samples.take() {
            if !send(sample) {
                self.count_unsampled(usize::from(sample.row));
            }
        }
    }

    /// Counts a delay whose sample was not sent.
    #[inline(always)]
    pub fn count_unsampled(&mut self, row: usize) {
        #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
        let counts = &mut self.counts[row & (ROOM - 1)];
        counts.unsampled += 1;
    }
}

/// Returns the table of requests from one end to another; the opposite direction has the other
/// table.
#[inline(always)]
fn table(from: u32, to: u32) -> usize {
    (from.wrapping_sub(to) >> 31) as usize
}

impl Measurement for Delay {
    const NAME: &'static str = "delay";
    type Settings = Settings;
    const DEFAULT: Settings = Settings::DEFAULT;
    type PerCore = Delay;
    type Persistent = DelaySamples;
    type Shared = ();
    type SharedPersistent = Requests;

    #[inline(always)]
    fn keys(_: &Settings) -> [Option<KeyKind>; MAX_KEYS] {
        [None; MAX_KEYS]
    }

    #[inline(always)]
    fn is_on(settings: &Settings) -> bool {
        settings.kinds.any()
    }

    #[inline(always)]
    fn needs(settings: &Settings) -> RequiredFields {
        let needs = RequiredFields::TIME.and(RequiredFields::SEGMENT).and(RequiredFields::ENDS);
        needs
            .with(RequiredFields::DIRECTION, settings.directions == Directions::Apart)
            .with(RequiredFields::ADDRESSES, settings.asks_addresses())
            .with(RequiredFields::TIMESTAMPS, settings.kinds.has(DelayKind::TcpTimestamps))
    }

    #[inline(always)]
    fn wants_order(settings: &Settings) -> bool {
        settings.kinds.any()
    }

    #[inline(always)]
    fn used(settings: &Settings) -> UsedBytes {
        if !settings.kinds.any() {
            return UsedBytes::default();
        }
        let histograms = settings.padded_histograms() * size_of::<Histogram>();
        UsedBytes {
            own: core::mem::offset_of!(Delay, histograms) + histograms,
            persistent: if settings.samples { DelaySamples::IN_KERNEL } else { 0 },
            shared_persistent: Requests::bytes(settings.padded_slots()),
            ..UsedBytes::default()
        }
    }

    #[inline(always)]
    fn measure<P: Packets>(
        settings: &Settings,
        parts: MeasurementMemory<'_, Self>,
        pass: &MeasureContext<'_>,
        packets: &(impl Observed<P> + ?Sized),
    ) {
        // The usual settings have their own copy of the code, in which the compiler knows most of
        // them. Kernel programs do not need it: they are verified with their settings.
        let is_usual =
            settings.algorithm == Algorithm::Fridge && !settings.follows && !settings.samples;
        if is_usual && !cfg!(target_arch = "bpf") {
            let usual = Settings {
                algorithm: Algorithm::Fridge,
                follows: false,
                samples: false,
                ..*settings
            };
            Self::each(&usual, parts, pass, packets);
        } else {
            Self::each(settings, parts, pass, packets);
        }
    }
}
