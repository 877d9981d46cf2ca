//! Entropy of traffic over flows: P4Entropy (paper, section IV).
//!
//! The Shannon entropy of the packets of a window over their flows is `log2 S - (1/S) sum f log2
//! f`, where S is the number of packets and f the number of packets of one flow. The sum is updated
//! per packet: the packet that raises a flow's count to f adds the derivative of `f log2 f`, `log2
//! f + 1.44`. The counts come from a sketch.
//!
//! If several cores see packets of one flow, separate counts would give a sum that is too small,
//! since `f log2 f` is not additive. Therefore all cores count in one shared sketch, and the packet
//! that raises the count to f adds the term of f, on whichever core it arrives. The sums are per
//! core.

#[cfg(not(target_arch = "bpf"))]
mod host;

#[cfg(not(target_arch = "bpf"))]
pub use host::EntropyTotals;

use crate::arrival::Packets;
use crate::counter::Sharing;
use crate::grid::Grid;
use crate::hash::Tabulation;
use crate::key::KeyKind;
use crate::logarithm::{self, AMPLIFICATION_BITS, Logarithm, PER_WINDOW, Power, SUMS_PER_PACKET};
use crate::measurement::{MAX_KEYS, MeasureContext, Measurement, MeasurementMemory, UsedBytes};
use crate::needs::RequiredFields;
use crate::observation::Observed;
#[cfg(not(target_arch = "bpf"))]
use crate::sketch::AT_ONCE;
use crate::sketch::{SharedSketch, SketchKind};
use core::hint::select_unpredictable;
use zerocopy::FromZeros;

pub use crate::sketch::{Mode, Settings};

/// Number of entropies that are measured at once, each over its own key: an attack shows in the
/// entropies of sources and destinations.
pub const ENTROPIES: usize = 2;

/// `1 / ln 2` to two digits, amplified and rounded down (paper, algorithm 3, line 10).
pub const DERIVATIVE_OF_LOG: u32 = 1474;

/// Per-core sum of one entropy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct Entropy {
    /// Sum of `log2 f + 1.44` over the packets that made a flow's count f, f > 1; amplified.
    pub sum: u64,
}

impl Entropy {
    /// Counts a packet of a flow.
    #[inline(always)]
    pub fn update(
        &mut self,
        sketch: &SharedSketch,
        sharing: Sharing,
        kind: SketchKind,
        shape: Grid,
        crc: u32,
        tabulation: &Tabulation,
    ) {
        self.update_by(sketch, sharing, kind, shape, crc, tabulation, 1);
    }

    /// Counts `packets` packets of a flow in a row. The sum is bit for bit that of single packets,
    /// whatever their number.
    #[inline(always)]
    #[allow(
        clippy::too_many_arguments,
        reason = "each in a register; a struct would have to be made for every packet"
    )]
    pub fn update_by(
        &mut self,
        sketch: &SharedSketch,
        sharing: Sharing,
        kind: SketchKind,
        shape: Grid,
        crc: u32,
        tabulation: &Tabulation,
        packets: u32,
    ) {
        let count = sketch.update_by_and_query(sharing, kind, shape, crc, tabulation, packets);
        if packets > 1 {
            // Counts from `count` on, one per packet; those below 2 add nothing.
            let before = i64::from(count) - 1;
            let (before, last) =
                (before.max(1) as u32, (before + i64::from(packets)).max(1) as u32);
            let logarithms = SUMS_PER_PACKET.up_to(last) - SUMS_PER_PACKET.up_to(before);
            let derivatives = u64::from(last - before) * u64::from(DERIVATIVE_OF_LOG);
            self.sum = self.sum.saturating_add(logarithms).saturating_add(derivatives);
        } else if cfg!(target_arch = "bpf") {
            if count > 1 {
                self.sum = self.sum.saturating_add(u64::from(term(count)));
            }
        } else {
            // No branch predictor can predict the estimates of an overfull sketch.
            let term = select_unpredictable(count > 1, u64::from(term(count.max(1))), 0);
            self.sum = self.sum.saturating_add(term);
        }
    }

    /// Counts packets if the entropy is on.
    #[inline(always)]
    fn measure<P: Packets>(
        &mut self,
        sketch: &SharedSketch,
        settings: &Settings,
        pass: &MeasureContext<'_>,
        packets: &(impl Observed<P> + ?Sized),
    ) {
        let Settings { mode, key, shape } = *settings;
        let Some(kind) = mode.sketch() else { return };
        #[cfg(not(target_arch = "bpf"))]
        if let (Some(shape), Sharing::AloneWithFew) = (shape.usual(), pass.sharing)
            && packets.each().all(|packet| packet.number() == 1)
        {
            let hashes = packets.each().map(|packet| packet.rows(key, pass.tabulation));
            return self.update_all(sketch, kind, shape, hashes);
        }
        for packet in packets.each() {
            let (crc, number) = (packet.by(key), packet.number());
            self.update_by(sketch, pass.sharing, kind, shape, crc, pass.tabulation, number);
        }
    }

    /// Counts packets as [`update`](Self::update) does one by one, given the hashes of the rows.
    #[cfg(not(target_arch = "bpf"))]
    #[inline(always)]
    fn update_all(
        &mut self,
        sketch: &SharedSketch,
        kind: SketchKind,
        shape: Grid,
        mut hashes: impl Iterator<Item = u64>,
    ) {
        let (mut group, mut estimates) = ([0; AT_ONCE], [0; AT_ONCE]);
        loop {
            let mut length = 0;
            for (of_packet, hashes) in group.iter_mut().zip(hashes.by_ref()) {
                *of_packet = hashes;
                length += 1;
            }
            let group = group.get(..length).unwrap_or_default();
            if group.is_empty() {
                return;
            }
            sketch.update_and_query_all(kind, shape, group, &mut estimates);
            // A term has 15 bits, so their sum fits, and saturates as they would one by one.
            let counts = estimates.iter().take(length);
            let terms = counts.map(|&count| if count > 1 { term(count) } else { 0 });
            self.sum = self.sum.saturating_add(u64::from(terms.sum::<u32>()));
        }
    }

    /// Adds the sum of another core.
    pub fn merge(&mut self, other: &Entropy) {
        self.sum = self.sum.saturating_add(other.sum);
    }
}

/// Returns the term of the packet that raises a flow's count to `count`; amplified.
#[inline(always)]
fn term(count: i32) -> u32 {
    logarithm::of_packet(count.unsigned_abs()) + DERIVATIVE_OF_LOG
}

impl Measurement for Entropy {
    const NAME: &'static str = "entropy";
    type Settings = [Settings; ENTROPIES];
    const DEFAULT: Self::Settings = [Settings::DEFAULT; ENTROPIES];
    type PerCore = [Entropy; ENTROPIES];
    type Persistent = ();
    type Shared = [SharedSketch; ENTROPIES];
    type SharedPersistent = ();

    #[inline(always)]
    fn keys(settings: &Self::Settings) -> [Option<KeyKind>; MAX_KEYS] {
        settings.map(|entropy| entropy.is_on().then_some(entropy.key))
    }

    #[inline(always)]
    fn is_on([first, second]: &Self::Settings) -> bool {
        first.is_on() || second.is_on()
    }

    #[inline(always)]
    fn needs([first, second]: &Self::Settings) -> RequiredFields {
        let rows = |entropy: &Settings| RequiredFields::rows(entropy.key);
        RequiredFields::NONE.with(rows(first), first.is_on()).with(rows(second), second.is_on())
    }

    fn used(settings: &Self::Settings) -> UsedBytes {
        if !Self::is_on(settings) {
            return UsedBytes::default();
        }
        // All sketches up to the last one that is on.
        let [first, second] = settings;
        let shared =
            if second.is_on() { size_of::<SharedSketch>() + second.bytes() } else { first.bytes() };
        UsedBytes { own: size_of::<[Entropy; ENTROPIES]>(), shared, ..UsedBytes::default() }
    }

    #[inline(always)]
    fn measure<P: Packets>(
        settings: &Self::Settings,
        parts: MeasurementMemory<'_, Self>,
        pass: &MeasureContext<'_>,
        packets: &(impl Observed<P> + ?Sized),
    ) {
        let [first, second] = *settings;
        let ([first_sum, second_sum], [first_sketch, second_sketch]) = (parts.own, parts.shared);
        first_sum.measure(first_sketch, &first, pass, packets);
        second_sum.measure(second_sketch, &second, pass, packets);
    }
}

/// Returns the entropy of a window in bits, amplified, in integers as a switch would compute it
/// with this logarithm and power: `log2 S - sum / S`, where the quotient is 2 to the power of the
/// difference of two logarithms (paper, equation 2).
///
/// The paper's algorithm 3, taken literally, mixes amplified and plain values and is 38 to 157 %
/// off. Here the power is amplified, and so is its exponent. The logarithms use as many bits as
/// `logarithm` has; with 4 they cause most of the error, so [`PER_WINDOW`] has 7.
#[must_use]
pub fn in_integers_with(packets: u64, sum: u64, logarithm: &Logarithm, power: &Power) -> u64 {
    let packets_log2 = logarithm.log2(packets);
    let sum = sum >> AMPLIFICATION_BITS;
    if packets > sum {
        return u64::from(packets_log2);
    }
    let quotient = power.of_2(u64::from(logarithm.log2(sum).saturating_sub(packets_log2)));
    u64::from(packets_log2).saturating_sub(u64::try_from(quotient).unwrap_or(u64::MAX))
}

/// P4Exp with the paper's parameters (table II).
pub static POWER: Power = Power::new(Logarithm::new(7, 3), 7);

/// Returns the entropy of a window as [`in_integers_with`] does, with [`PER_WINDOW`] and [`POWER`].
#[must_use]
pub fn in_integers(packets: u64, sum: u64) -> u64 {
    in_integers_with(packets, sum, &PER_WINDOW, &POWER)
}
