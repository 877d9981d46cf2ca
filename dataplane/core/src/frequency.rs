//! How many packets a flow has: a sketch that can be asked for any key (W-HLL thesis, chapter 5:
//! future work).
//!
//! Count Sketch has no bias, and an error that grows with the root of the sum of squares of the
//! flows' packets; Count-Min is never too low, and its error grows with the number of packets.

use crate::arrival::Packets;
use crate::key::KeyKind;
use crate::measurement::{Measurement, Parts, Pass, Used};
use crate::observation::Observed;
use crate::sketch::WideSketch;
use crate::sketch::{Sharing, Sketch};

pub use crate::sketch::{Mode, Settings};

/// The measurement; what it counts in is a [`Sketch`].
#[derive(Clone, Copy, Debug)]
pub enum Frequency {}

impl Measurement for Frequency {
    const NAME: &'static str = "frequency";
    type Settings = Settings;
    const DEFAULT: Settings = Settings::DEFAULT;
    type Own = Sketch;
    type Lasting = ();
    type Shared = ();
    type SharedLasting = ();
    type Sum = WideSketch;
    type Exact = ();

    fn key(settings: &Settings, nth: usize) -> Option<KeyKind> {
        (settings.is_on() && nth == 0).then_some(settings.key)
    }

    #[inline(always)]
    fn uses(settings: &Settings, key: KeyKind) -> bool {
        settings.uses(key)
    }

    #[inline(always)]
    fn is_on(settings: &Settings) -> bool {
        settings.is_on()
    }

    #[inline(always)]
    fn used(settings: &Settings) -> Used {
        Used { own: if settings.is_on() { settings.bytes() } else { 0 }, ..Used::default() }
    }

    #[inline(always)]
    fn measure<P: Packets>(
        settings: &Settings,
        parts: Parts<'_, Self>,
        pass: &Pass<'_>,
        packets: &(impl Observed<P> + ?Sized),
    ) {
        let Settings { mode, key, shape } = *settings;
        let Some(kind) = mode.sketch() else { return };
        if pass.own == Sharing::AloneWithFew {
            for packet in packets.each() {
                parts.own.update_few(kind, shape, packet.by(key), pass.tabulation, packet.number());
            }
        } else {
            for packet in packets.each() {
                parts.own.update_by(kind, shape, packet.by(key), pass.tabulation, packet.number());
            }
        }
    }

    fn clear(own: &mut Sketch, settings: &Settings) {
        if settings.is_on() {
            own.clear(settings.shape);
        }
    }

    fn clear_sum(sum: &mut WideSketch, settings: &Settings) {
        if settings.is_on() {
            sum.clear(settings.shape);
        }
    }

    fn merge(sum: &mut WideSketch, own: &Sketch, settings: &Settings) {
        if let Some(kind) = settings.mode.sketch() {
            sum.merge(own, kind, settings.shape);
        }
    }

    fn unite(sum: &mut WideSketch, other: &WideSketch, settings: &Settings) {
        if settings.is_on() {
            sum.unite(other, settings.shape);
        }
    }
}
