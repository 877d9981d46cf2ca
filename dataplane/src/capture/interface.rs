//! Interfaces of captures, and their clocks: the unit of timestamps, and the step of the clock,
//! derived from timestamps.
//!
//! A file specifies the unit of its timestamps, but the clock may be coarser: that of a virtual
//! machine in steps of 10 ms, written in nanoseconds. All timestamps of such a clock are whole
//! steps apart, so the step divides the greatest common divisor of their differences.

use super::{SECOND, link_type};
use flowgauge_core::Link;

/// Latest timestamp, in nanoseconds since 1970: below the maximum that means "no limit", so that
/// every packet can be passed.
const LATEST: u64 = u64::MAX - 1;

/// Unit of an interface's timestamps: a second divided by 10 to the power, or by 2 to the power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resolution {
    /// 10⁻ⁿ seconds, n in 0..=127: 6 is microseconds, 9 nanoseconds.
    PowerOf10(u8),
    /// 2⁻ⁿ seconds, n in 0..=127.
    PowerOf2(u8),
}

impl Resolution {
    /// Microseconds: of pcap with the classic magic, and the default of a pcapng interface.
    pub const MICROSECONDS: Self = Self::PowerOf10(6);
    /// Nanoseconds.
    pub const NANOSECONDS: Self = Self::PowerOf10(9);

    /// Returns the unit in nanoseconds, rounded up.
    #[must_use]
    pub fn nanoseconds(self) -> u64 {
        match self {
            Self::PowerOf10(power) => 10_u64.pow(u32::from(9_u8.saturating_sub(power))),
            Self::PowerOf2(power) => {
                SECOND.div_ceil(1_u64.checked_shl(u32::from(power)).unwrap_or(u64::MAX))
            }
        }
    }

    /// Decodes an if_tsresol option (draft-ietf-opsawg-pcapng section 4.2): the top bit selects the
    /// base.
    pub(super) fn from_option(value: u8) -> Self {
        match value & 0x80 {
            0 => Self::PowerOf10(value),
            _ => Self::PowerOf2(value & 0x7f),
        }
    }

    /// Returns the if_tsresol option of this resolution.
    pub(super) fn to_option(self) -> u8 {
        match self {
            Self::PowerOf10(power) => power & 0x7f,
            Self::PowerOf2(power) => power | 0x80,
        }
    }
}

/// An interface of a capture; a pcap file has exactly one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CaptureInterface {
    /// if_name, truncated to 255 bytes, invalid UTF-8 replaced; `None` in pcap or if the option is
    /// absent.
    pub name: Option<String>,
    /// The LINKTYPE_ value, see [`link_type`].
    pub link_type: u16,
    /// Link layer of the frames, derived from [`link_type`](Self::link_type). With
    /// [`Link::Unsupported`], every frame is to be decoded by [`open`](super::open).
    pub link: Link,
    /// Maximum captured bytes of a packet; 0 for no limit.
    pub snaplen: u32,
    /// Unit of the timestamps in the file; those of a [`PacketRecord`](super::PacketRecord) are
    /// always nanoseconds.
    pub resolution: Resolution,
    /// if_tsoffset: seconds to be added to the timestamps in the file; 0 in pcap.
    pub offset_seconds: i64,
    /// isb_ifdrop: packets that the interface dropped for lack of resources, from the last
    /// statistics block; 0 without one.
    pub drops: u64,
    scale: Scale,
}

impl CaptureInterface {
    pub(super) fn new(
        name: Option<String>,
        link_type: u16,
        snaplen: u32,
        resolution: Resolution,
        offset_seconds: i64,
    ) -> Self {
        Self {
            name,
            link_type,
            link: link_type::link(link_type),
            snaplen,
            resolution,
            offset_seconds,
            drops: 0,
            scale: Scale::new(resolution),
        }
    }

    /// Converts a timestamp in the file to nanoseconds since 1970, saturating at 0 and [`LATEST`].
    #[inline]
    pub(super) fn nanoseconds(&self, ticks: u64) -> u64 {
        let since_offset = self.scale.nanoseconds(ticks);
        if self.offset_seconds == 0 {
            return u64::try_from(since_offset).map_or(LATEST, |time| time.min(LATEST));
        }
        // Below 2^94 and above -2^93: neither the conversion nor the sum can wrap.
        let since_1970 =
            since_offset.cast_signed() + i128::from(self.offset_seconds) * i128::from(SECOND);
        u64::try_from(since_1970.max(0)).map_or(LATEST, |time| time.min(LATEST))
    }
}

/// Conversion factor of a [`Resolution`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Multiply(u64),
    Divide(u64),
    /// Multiplication by a second, then a right shift.
    Shift(u32),
}

impl Scale {
    fn new(resolution: Resolution) -> Self {
        match resolution {
            Resolution::PowerOf10(power @ 0..=9) => {
                Self::Multiply(10_u64.pow(u32::from(9 - power)))
            }
            // With a unit below 10^-28 s no timestamp reaches a nanosecond.
            Resolution::PowerOf10(power) => {
                10_u64.checked_pow(u32::from(power - 9)).map_or(Self::Multiply(0), Self::Divide)
            }
            Resolution::PowerOf2(power) => Self::Shift(u32::from(power & 0x7f)),
        }
    }

    #[inline]
    fn nanoseconds(self, ticks: u64) -> u128 {
        match self {
            Self::Multiply(factor) => u128::from(ticks) * u128::from(factor),
            Self::Divide(divisor) => u128::from(ticks / divisor),
            Self::Shift(bits) => (u128::from(ticks) * u128::from(SECOND)) >> bits,
        }
    }
}

/// Required evidence for a step: one in ten to this power captures with a finer clock would show
/// the same step by chance.
const EVIDENCE: f64 = 6.0;

/// Greatest common divisor of the differences between consecutive timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granularity {
    last: Option<u64>,
    /// Previous difference: an equal one, as between packets at a constant rate, adds no evidence.
    difference: u64,
    divisor: u64,
    differences: u32,
}

impl Granularity {
    /// Adds a timestamp, in nanoseconds.
    pub fn add(&mut self, timestamp: u64) {
        let difference = self.last.replace(timestamp).map_or(0, |last| timestamp.abs_diff(last));
        if difference == 0 || difference == self.difference {
            return;
        }
        self.difference = difference;
        self.differences = self.differences.saturating_add(1);
        // With a divisor of 1, the most frequent one, the search is over.
        if self.divisor != 1 && (self.divisor == 0 || !difference.is_multiple_of(self.divisor)) {
            self.divisor = greatest_common_divisor(difference, self.divisor);
        }
    }

    /// Returns the step in nanoseconds: that of the timestamps if there is enough evidence,
    /// otherwise the unit of the file.
    ///
    /// The probability that `n` differences are multiples of `k` units by chance is `k^-n`, and of
    /// any `k` or larger about `k^(1-n)`.
    #[must_use]
    pub fn step_ns(&self, unit_ns: u64) -> u64 {
        let unit_ns = unit_ns.max(1);
        let evidence = (self.divisor as f64 / unit_ns as f64).log10()
            * f64::from(self.differences.saturating_sub(1));
        if evidence >= EVIDENCE { self.divisor } else { unit_ns }
    }
}

fn greatest_common_divisor(mut one: u64, mut other: u64) -> u64 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(timestamps: impl IntoIterator<Item = u64>, unit_ns: u64) -> u64 {
        let mut granularity = Granularity::default();
        timestamps.into_iter().for_each(|timestamp| granularity.add(timestamp));
        granularity.step_ns(unit_ns)
    }

    /// Generates timestamps with irregular gaps, in steps from an origin that is not a multiple of
    /// them.
    fn coarse(step: u64, packets: u64) -> impl Iterator<Item = u64> {
        (0..packets)
            .map(move |packet| 1_700_000_000_000_000_007 + (packet + packet * packet % 7) * step)
    }

    #[test]
    fn a_coarse_clock_shows_its_step() {
        for clock in [64, 1000, 4_000_000, 10_000_000, 15_625_000] {
            assert_eq!(step(coarse(clock, 100), 1), clock);
            // Ten packets within a step, out of order.
            let busy = coarse(clock, 100).flat_map(|at| [at; 10]).chain(coarse(clock, 50));
            assert_eq!(step(busy, 1), clock);
        }
    }

    #[test]
    fn a_fine_clock_has_the_unit_of_the_file() {
        assert_eq!(step(coarse(1000, 100), 1000), 1000);
        assert_eq!(step(coarse(10_000_000, 100).chain([1_700_000_000_000_000_008]), 1), 1);
        // A unit of 2^-20 s appears as whole nanoseconds.
        assert_eq!(
            step((0..100).map(|ticks: u64| (ticks * ticks * 1_000_000_000) >> 20), 954),
            954
        );
    }

    #[test]
    fn a_step_needs_evidence() {
        assert_eq!(step([], 1000), 1000);
        assert_eq!(step([5_000_000], 1000), 1000);
        // One round trip of 30 ms, in a file of microseconds.
        assert_eq!(step([5_000_000, 35_000_000], 1000), 1000);
        // Packets at a constant rate.
        assert_eq!(step((0..1000).map(|packet| packet * 10_000_000), 1), 1);
        // A small step needs more evidence than a large one.
        assert_eq!([10, 40].map(|packets| step(coarse(2, packets), 1)), [1, 2]);
        assert_eq!(
            [2, 6].map(|packets| step(coarse(10_000_000, packets), 1000)),
            [1000, 10_000_000]
        );
    }
}
