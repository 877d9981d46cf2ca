//! Interfaces of captures, and their clocks.

use flowgauge_core::Link;

use super::{SECOND, link_type};

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
