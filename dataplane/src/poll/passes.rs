//! Counting of many packets, measurement by measurement.
//!
//! Packets arrive one by one; the fields that measurements need are buffered. Then each measurement
//! goes through all buffered packets with its tables in the nearest cache. While frames are parsed,
//! the cache holds only the frames prefetched from memory.

use super::delay_samples::DelaySampleSender;
use super::port_frame::PortFrame;
use super::vector::{Instructions, measure};
use flowgauge_core::delay::sample::{CAPACITY, PER_PACKET};
use flowgauge_core::filter::PacketFilter;
use flowgauge_core::{Active, Arrival, Context, CountFrames, Link, Observation};

/// Packets per pass: 12 KiB of observations.
const LENGTH: usize = 64;

const _: () = assert!(LENGTH * PER_PACKET <= CAPACITY, "room for the delay samples of a pass");

/// Buffered packets that no measurement has processed yet. The bank is incomplete until they are
/// [flushed](PacketBuffers::flush).
pub struct PacketBuffers {
    observations: [Observation; LENGTH],
    length: usize,
    instructions: Instructions,
    /// Destination of delay samples, if enabled.
    delay_samples: Option<DelaySampleSender>,
}

impl Default for PacketBuffers {
    fn default() -> Self {
        PacketBuffers {
            observations: [Observation::EMPTY; LENGTH],
            length: 0,
            instructions: Instructions::in_use(),
            delay_samples: None,
        }
    }
}

impl PacketBuffers {
    /// Creates an empty buffer with a destination for delay samples.
    pub(super) fn with(delay_samples: Option<DelaySampleSender>) -> Self {
        PacketBuffers { delay_samples, ..Self::default() }
    }

    /// Counts a frame that arrived at `timestamp` like [`CountFrames::record`], at once or at the
    /// next [`flush`](Self::flush), if the filter admits it. Returns whether it was counted.
    /// `KEYED` as in [`CountFrames::observe`].
    #[inline(always)]
    pub fn record<const KEYED: bool>(
        &mut self,
        active: &mut Active<'_>,
        context: &Context<'_>,
        filter: impl PacketFilter,
        frame: &PortFrame<'_>,
        timestamp: u64,
    ) -> bool {
        // Nearly all frames are Ethernet: with a constant link layer the compiler removes all
        // others from the hot code.
        let Some(observation) = self.observations.get_mut(self.length) else {
            return false;
        };
        observation.arrive(Arrival::new(frame.wire_length, timestamp));
        let is_counted = if frame.link == Link::Ethernet {
            active.observe::<KEYED, _, _>(context, filter, Link::Ethernet, frame.bytes, observation)
        } else {
            observe_unlikely::<KEYED>(active, context, filter, frame, observation)
        };
        if is_counted {
            self.length += 1;
            if self.length == LENGTH {
                self.flush(active, context);
            }
        }
        is_counted
    }

    /// Adds all buffered packets to the bank.
    #[inline(never)]
    pub fn flush(&mut self, active: &mut Active<'_>, context: &Context<'_>) {
        let packets = self.observations.get(..self.length).unwrap_or_default();
        measure(self.instructions, active, context, packets);
        self.length = 0;
        if let Some(delay_samples) = &mut self.delay_samples {
            delay_samples.send(active);
        }
    }
}

#[cold]
#[inline(never)]
fn observe_unlikely<const KEYED: bool>(
    active: &mut Active<'_>,
    context: &Context<'_>,
    filter: impl PacketFilter,
    frame: &PortFrame<'_>,
    observation: &mut Observation,
) -> bool {
    active.observe::<KEYED, _, _>(context, filter, frame.link, frame.bytes, observation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::batch::tests::packet;
    use flowgauge_core::Zeroed;
    use flowgauge_core::cardinality::Mode;
    use flowgauge_core::filter::EveryPacket;
    use flowgauge_core::heavy::{self, Algorithm};
    use flowgauge_core::sketch::{self, SketchKind};
    use flowgauge_core::spread::{self, OtherKind};
    use flowgauge_core::{
        Grid, HashMode, KeyKind, Settings, Shared, Sharing, State, Tabulation, WindowTotals,
        membership,
    };
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    /// Enables every measurement, with default and other rows.
    fn settings() -> impl Iterator<Item = Settings> {
        let modes = [Mode::Windowed, Mode::Staggered].into_iter().cycle();
        let keys = KeyKind::ALL.into_iter().cycle();
        let shapes = [Grid::COUNTERS, Grid::of_counters(7, 256).unwrap()].into_iter().cycle();
        let all = Algorithm::ALL.into_iter().zip(modes).zip(keys).zip(shapes);
        all.map(|(((algorithm, mode), key), shape)| {
            let sketch = |kind: SketchKind, key| sketch::Settings { mode: kind.into(), key, shape };
            let mut settings = Settings::default();
            (settings.cardinality.mode, settings.cardinality.key) = (mode, key);
            settings.entropy = [
                sketch(SketchKind::CountSketch, KeyKind::SrcDst),
                sketch(SketchKind::CountMin, key),
            ];
            settings.frequency = sketch(SketchKind::CountSketch, KeyKind::Dst);
            settings.membership = membership::Settings { on: true, key, ..Default::default() };
            settings.heavy = heavy::Settings {
                algorithm,
                key: KeyKind::FiveTuple,
                slots_log2: 6,
                ..Default::default()
            };
            let spread = |by, of| spread::Settings { on: true, by, of, ..Default::default() };
            settings.spread =
                [spread(KeyKind::Dst, OtherKind::Src), spread(KeyKind::Src, OtherKind::DstPort)];
            settings
        })
    }

    #[test]
    fn passes_of_any_length_give_the_bits_that_packets_one_by_one_give() {
        let tabulation = Tabulation::from_seed(7);
        let mut random = ChaCha8Rng::seed_from_u64(2);
        let packets: Vec<(Vec<u8>, Link)> = (0..512).map(|_| packet(&mut random)).collect();
        let of_each_hash = |hash| {
            settings().map(move |mut settings| {
                settings.hash = hash;
                settings
            })
        };
        let all = [HashMode::Tabulated, HashMode::Keyed].into_iter().flat_map(of_each_hash);
        let all =
            all.flat_map(|settings| Instructions::available().map(move |all| (settings, all)));
        for (settings, instructions) in all {
            let context = Context::new(settings, &tabulation, Sharing::Alone).with_slots(100);
            let (one_by_one_shared, shared) = (Shared::boxed(), Shared::boxed());
            let (mut one_by_one, mut in_passes) = (State::boxed(), State::boxed());
            let mut passes = PacketBuffers { instructions, ..PacketBuffers::default() };
            let mut rest = packets.iter().cycle().zip(1000..);
            for length in 0..=2 * LENGTH + 2 {
                let mut active = in_passes.active(&shared, 0);
                for ((bytes, link), number) in rest.by_ref().take(length) {
                    let (wire_length, timestamp) = (number, u64::from(number));
                    one_by_one.active(&one_by_one_shared, 0).record(
                        &context,
                        *link,
                        bytes.as_slice(),
                        Arrival::new(wire_length, timestamp),
                    );
                    let frame = PortFrame { bytes, wire_length, timestamp, link: *link };
                    let active = &mut active;
                    match settings.hash {
                        HashMode::Keyed => {
                            passes.record::<true>(active, &context, EveryPacket, &frame, timestamp)
                        }
                        HashMode::Crc32 | HashMode::Tabulated => {
                            passes.record::<false>(active, &context, EveryPacket, &frame, timestamp)
                        }
                    };
                }
                passes.flush(&mut active, &context);
                assert!(one_by_one == in_passes, "{settings:?}, after a batch of {length}");
            }
            let sketches = |shared: &Shared| {
                let mut sum = WindowTotals::boxed();
                sum.merge_shared(&shared.banks[0], &settings);
                sum
            };
            assert!(sketches(&one_by_one_shared) == sketches(&shared), "{settings:?}");
        }
    }
}
