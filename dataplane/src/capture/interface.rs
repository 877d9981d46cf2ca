//! The interface a packet came from, and its clock.

use std::fmt;

use flowgauge_core::Link;

use super::{SECOND, link_type};

/// The latest timestamp, in nanoseconds since 1970: below the limit that stands for no limit, so
/// that every packet can be passed.
const LATEST: u64 = u64::MAX - 1;

/// The unit of an interface's timestamps: a second divided by 10 to the power, or by 2 to the
/// power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resolution {
    /// 10⁻ⁿ seconds, n in 0..=127: 6 is microseconds, 9 nanoseconds.
    PowerOf10(u8),
    /// 2⁻ⁿ seconds, n in 0..=127.
    PowerOf2(u8),
}

impl Resolution {
    /// Microseconds: of pcap with the classic magic, and of a pcapng interface that says nothing.
    pub const MICROSECONDS: Self = Self::PowerOf10(6);
    /// Nanoseconds.
    pub const NANOSECONDS: Self = Self::PowerOf10(9);

    /// The unit in nanoseconds, rounded up.
    #[must_use]
    pub fn nanoseconds(self) -> u64 {
        match self {
            Self::PowerOf10(power) => 10_u64.pow(u32::from(9_u8.saturating_sub(power))),
            Self::PowerOf2(power) => {
                SECOND.div_ceil(1_u64.checked_shl(u32::from(power)).unwrap_or(u64::MAX))
            }
        }
    }

    /// Of an if_tsresol option (draft-ietf-opsawg-pcapng section 4.2): the top bit chooses the
    /// base.
    pub(super) fn from_option(value: u8) -> Self {
        match value & 0x80 {
            0 => Self::PowerOf10(value),
            _ => Self::PowerOf2(value & 0x7f),
        }
    }

    /// The if_tsresol option of this resolution.
    pub(super) fn to_option(self) -> u8 {
        match self {
            Self::PowerOf10(power) => power & 0x7f,
            Self::PowerOf2(power) => power | 0x80,
        }
    }
}

impl fmt::Display for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PowerOf10(power) => write!(f, "10^-{power} s"),
            Self::PowerOf2(power) => write!(f, "2^-{power} s"),
        }
    }
}

/// An interface of a capture; a pcap file has exactly one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Interface {
    /// if_name, cut at 255 bytes, invalid UTF-8 replaced; `None` in pcap or when the option is
    /// absent.
    pub name: Option<String>,
    /// The LINKTYPE_ value, see [`link_type`].
    pub link_type: u16,
    /// What the parser makes of [`link_type`](Self::link_type); its frames have this link layer.
    /// With [`Link::Unsupported`] it is for [`open`](super::open) to look into every frame.
    pub link: Link,
    /// The most bytes captured of a packet; 0 is no limit.
    pub snaplen: u32,
    /// The unit of the timestamps in the file; those of a [`Record`](super::Record) are nanoseconds
    /// regardless.
    pub resolution: Resolution,
    /// if_tsoffset: seconds that were added to the timestamps in the file; 0 in pcap.
    pub offset_seconds: i64,
    /// isb_ifdrop: packets the interface dropped for lack of resources, as the last statistics
    /// block told; 0 if none did.
    pub drops: u64,
    scale: Scale,
}

impl Interface {
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

    /// The registered name of the link type, see [`link_type::name`].
    #[must_use]
    pub fn link_type_name(&self) -> &'static str {
        link_type::name(self.link_type)
    }

    /// Nanoseconds since 1970 of a timestamp in the file, saturating at 0 and [`LATEST`].
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

/// A [`Resolution`] made ready for conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Multiply(u64),
    Divide(u64),
    /// By a second, then down by so many bits.
    Shift(u32),
}

impl Scale {
    fn new(resolution: Resolution) -> Self {
        match resolution {
            Resolution::PowerOf10(power @ 0..=9) => {
                Self::Multiply(10_u64.pow(u32::from(9 - power)))
            }
            // A unit below 10^-28 s has no timestamp as late as a nanosecond.
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
