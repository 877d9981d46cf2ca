//! Packets per flow: a sketch that can be queried for any key (W-HLL thesis, chapter 5: future
//! work).
//!
//! Count Sketch is unbiased, and its error grows with the square root of the sum of squares of the
//! flows' packets. Count-Min is never too low, and its error grows with the number of packets.

#[cfg(not(target_arch = "bpf"))]
mod host;

use crate::arrival::Packets;
use crate::counter::Sharing;
use crate::key::KeyKind;
use crate::measurement::{MAX_KEYS, MeasureContext, Measurement, MeasurementMemory, UsedBytes};
use crate::needs::RequiredFields;
use crate::observation::Observed;
use crate::sketch::Sketch;

pub use crate::sketch::{Mode, Settings};

/// Frequency measurement; its memory is a [`Sketch`].
#[derive(Clone, Copy, Debug)]
pub enum Frequency {}

impl Measurement for Frequency {
    const NAME: &'static str = "frequency";
    type Settings = Settings;
    const DEFAULT: Settings = Settings::DEFAULT;
    type PerCore = Sketch;
    type Persistent = ();
    type Shared = ();
    type SharedPersistent = ();

    #[inline(always)]
    fn keys(settings: &Settings) -> [Option<KeyKind>; MAX_KEYS] {
        [settings.is_on().then_some(settings.key), None]
    }

    #[inline(always)]
    fn is_on(settings: &Settings) -> bool {
        settings.is_on()
    }

    #[inline(always)]
    fn needs(settings: &Settings) -> RequiredFields {
        RequiredFields::rows(settings.key)
    }

    #[inline(always)]
    fn used(settings: &Settings) -> UsedBytes {
        UsedBytes {
            own: if settings.is_on() { settings.bytes() } else { 0 },
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
        let Settings { mode, key, shape } = *settings;
        let Some(kind) = mode.sketch() else { return };
        if pass.own == Sharing::AloneWithFew {
            for packet in packets.each() {
                let hashed = (packet.by(key), packet.rows(key, pass.tabulation));
                parts.own.update_few(kind, shape, hashed, pass.tabulation, packet.number());
            }
        } else {
            for packet in packets.each() {
                parts.own.update_by(kind, shape, packet.by(key), pass.tabulation, packet.number());
            }
        }
    }
}
