//! Damage of captures, with descriptions.

use std::fmt;

use super::{Compression, MAX_CAPTURED};

/// Position of a walk when it met damage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DamagePosition {
    /// File offset of the damaged record or block, in bytes.
    pub offset: u64,
    /// Whole packets before it.
    pub packets: u64,
}

impl fmt::Display for DamagePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.packets == 1 { "" } else { "s" };
        write!(f, "at byte {}, after {} packet{plural}", self.offset, self.packets)
    }
}

/// Reason why a walk cannot continue; each displays as one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The file does not begin with the magic number of a supported format.
    #[error("not a capture: {guess}; expected pcap or pcapng")]
    NotACapture {
        /// Likely format of the file.
        guess: FormatGuess,
    },
    /// A header of an unsupported version.
    #[error("version {major}.{minor} of {format} {at}: expected {expected}")]
    UnsupportedVersion {
        /// Place of the damage.
        at: DamagePosition,
        /// `"pcap"` or `"pcapng"`.
        format: &'static str,
        /// Major version found.
        major: u16,
        /// Minor version found.
        minor: u16,
        /// Supported version.
        expected: &'static str,
    },
    /// The file ends within an item.
    #[error("the file ends inside a {piece} {at}: {present} bytes of {needed}")]
    Truncated {
        /// Start of the incomplete item.
        at: DamagePosition,
        /// Kind of the incomplete item.
        piece: TruncatedItem,
        /// Bytes of it in the file.
        present: u64,
        /// Bytes it needs, as far as known from those present.
        needed: u64,
    },
    /// A packet longer than any link delivers: its length, or something before it, is damaged.
    #[error("captured length {captured} {at}: expected {MAX_CAPTURED} at most")]
    RecordTooLong {
        /// Place of the damage.
        at: DamagePosition,
        /// Captured length in the file, in bytes.
        captured: u32,
    },
    /// A pcapng block length that is less than the block's fixed fields, or overflows with its
    /// padding.
    #[error("length {length} of a block of type {block_type:#010x} {at}: expected {least} or more")]
    BadBlockLength {
        /// Place of the damage.
        at: DamagePosition,
        /// The block's type.
        block_type: u32,
        /// Length in the file, in bytes.
        length: u32,
        /// Minimum length of a block of this type, in bytes.
        least: u32,
    },
    /// A pcapng block that has to be read whole and exceeds the limit.
    #[error("length {length} of a block of type {block_type:#010x} {at}: expected {most} at most")]
    BlockTooLong {
        /// Place of the damage.
        at: DamagePosition,
        /// The block's type.
        block_type: u32,
        /// Length in the file, in bytes.
        length: u32,
        /// The limit, in bytes.
        most: u32,
    },
    /// The two lengths of a pcapng block differ.
    #[error("a block {at} ends with length {trailing}: expected {leading} as at its beginning")]
    TrailerMismatch {
        /// Start of the block.
        at: DamagePosition,
        /// Length at its start, in bytes.
        leading: u32,
        /// Length at its end, in bytes.
        trailing: u32,
    },
    /// A packet that is longer than its pcapng block.
    #[error(
        "captured length {captured} in a block {at}: expected {room} at most, the room in the block"
    )]
    PacketOverrunsBlock {
        /// Start of the block.
        at: DamagePosition,
        /// Captured length in the file, in bytes.
        captured: u32,
        /// Bytes between the packet's fixed fields and the end of the block.
        room: u32,
    },
    /// A packet of an interface that its pcapng section does not describe.
    #[error("interface {interface} of a packet {at}: expected one of the {known} described so far")]
    UnknownInterface {
        /// Place of the damage.
        at: DamagePosition,
        /// The interface, from 0.
        interface: u32,
        /// Interfaces of the section.
        known: u32,
    },
    /// More interfaces in a pcapng section than the limit.
    #[error("one more interface {at}: expected {most} in a section at most")]
    TooManyInterfaces {
        /// Place of the damage.
        at: DamagePosition,
        /// The limit.
        most: u32,
    },
    /// A pcapng section header in neither byte order.
    #[error("byte-order magic {found:#010x} of a section header {at}: expected 0x1a2b3c4d")]
    BadByteOrderMagic {
        /// Place of the damage.
        at: DamagePosition,
        /// The magic found, read as little-endian.
        found: u32,
    },
    /// An option of a pcapng interface that exceeds its block.
    #[error("option {code} of an interface {at} has length {length}: expected {expected} at most")]
    BadOption {
        /// Start of the block.
        at: DamagePosition,
        /// The option's code.
        code: u16,
        /// The option's length, in bytes.
        length: u16,
        /// Maximum length that fits, in bytes.
        expected: u16,
    },
}

impl Damage {
    /// Returns the place of the damage; the start of the file for [`Damage::NotACapture`].
    #[must_use]
    pub fn place(&self) -> DamagePosition {
        match *self {
            Self::NotACapture { .. } => DamagePosition::default(),
            Self::UnsupportedVersion { at, .. }
            | Self::Truncated { at, .. }
            | Self::RecordTooLong { at, .. }
            | Self::BadBlockLength { at, .. }
            | Self::BlockTooLong { at, .. }
            | Self::TrailerMismatch { at, .. }
            | Self::PacketOverrunsBlock { at, .. }
            | Self::UnknownInterface { at, .. }
            | Self::TooManyInterfaces { at, .. }
            | Self::BadByteOrderMagic { at, .. }
            | Self::BadOption { at, .. } => at,
        }
    }
}

/// Kind of item that the end of a file can truncate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TruncatedItem {
    /// The header of a pcap file.
    FileHeader,
    /// A pcap record, its header or its bytes.
    Record,
    /// A pcapng block.
    Block,
}

impl fmt::Display for TruncatedItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FileHeader => "file header",
            Self::Record => "record",
            Self::Block => "block",
        })
    }
}

/// Likely format of a file that is not a capture, with advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FormatGuess {
    /// An empty file.
    Empty,
    /// Compressed with gzip.
    Gzip,
    /// Compressed with Zstandard.
    Zstd,
    /// Compressed with xz.
    Xz,
    /// Compressed with bzip2.
    Bzip2,
    /// Compressed with LZ4.
    Lz4,
    /// A ZIP archive.
    Zip,
    /// A snoop capture (RFC 1761).
    Snoop,
    /// A Microsoft Network Monitor capture.
    NetMon,
    /// An IXIA lcap capture.
    Ixia,
    /// An Endace ERF capture, which has no magic number: its first record looks like one.
    Erf,
    /// Text.
    Text,
    /// Unknown format: the first bytes, zero-padded.
    Unknown([u8; 4]),
}

/// Bytes at the start of a file that [`FormatGuess::of`] examines: enough for two records of an ERF
/// capture.
pub(super) const GUESS_BYTES: usize = 4096;

impl FormatGuess {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let bytes = bytes.get(..GUESS_BYTES).unwrap_or(bytes);
        const MAGICS: [(&[u8], FormatGuess); 9] = [
            (&[0x04, 0x22, 0x4d, 0x18], FormatGuess::Lz4),
            (b"PK\x03\x04", FormatGuess::Zip),
            (b"snoop\0\0\0", FormatGuess::Snoop),
            (b"GMBU", FormatGuess::NetMon),
            (b"RTSS", FormatGuess::NetMon),
            (&[0x1c, 0x00, 0x01, 0xac], FormatGuess::Ixia),
            (&[0x1c, 0x00, 0x01, 0xab], FormatGuess::Ixia),
            (&[0xac, 0x01, 0x00, 0x1c], FormatGuess::Ixia),
            (&[0xab, 0x01, 0x00, 0x1c], FormatGuess::Ixia),
        ];
        if bytes.is_empty() {
            return Self::Empty;
        }
        if let Some((_, guess)) = MAGICS.iter().find(|(magic, _)| bytes.starts_with(magic)) {
            return *guess;
        }
        match Compression::of(bytes) {
            Some(Compression::Gzip) => return Self::Gzip,
            Some(Compression::Zstd) => return Self::Zstd,
            Some(Compression::Xz) => return Self::Xz,
            None if looks_like_bzip2(bytes) => return Self::Bzip2,
            None => {}
        }
        if looks_like_text(bytes) {
            return Self::Text;
        }
        if looks_like_erf(bytes) {
            return Self::Erf;
        }
        let mut first = [0; 4];
        first.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Self::Unknown(first)
    }
}

impl fmt::Display for FormatGuess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the file is empty",
            Self::Gzip => "the file is compressed with gzip, decompress it first: gunzip",
            Self::Zstd => "the file is compressed with Zstandard, decompress it first: unzstd",
            Self::Xz => "the file is compressed with xz, decompress it first: unxz",
            Self::Bzip2 => "the file is compressed with bzip2, decompress it first: bunzip2",
            Self::Lz4 => "the file is compressed with LZ4, decompress it first: unlz4",
            Self::Zip => "the file is a ZIP archive, unpack it first: unzip",
            Self::Snoop => "the file is a snoop capture, convert it first: editcap -F pcap",
            Self::NetMon => {
                "the file is a Network Monitor capture, convert it first: editcap -F pcap"
            }
            Self::Ixia => "the file is an IXIA capture, convert it first: editcap -F pcap",
            Self::Erf => "the file looks like an ERF capture, convert it first: editcap -F pcap",
            Self::Text => "the file is text",
            Self::Unknown([a, b, c, d]) => {
                return write!(f, "the file begins with {a:02x} {b:02x} {c:02x} {d:02x}");
            }
        })
    }
}

fn looks_like_text(bytes: &[u8]) -> bool {
    let printable = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r' | 0x80..);
    // A character may be truncated at the end.
    let valid =
        std::str::from_utf8(bytes).map_or_else(|error| error.error_len().is_none(), |_| true);
    valid && bytes.iter().all(printable)
}

/// Returns whether the bytes are a level, and the magic number of a block or of the end.
fn looks_like_bzip2(bytes: &[u8]) -> bool {
    const BLOCK: [u8; 6] = [0x31, 0x41, 0x59, 0x26, 0x53, 0x59];
    const END: [u8; 6] = [0x17, 0x72, 0x45, 0x38, 0x50, 0x90];
    matches!(bytes, [b'B', b'Z', b'h', b'1'..=b'9', rest @ ..] if rest.starts_with(&BLOCK) || rest.starts_with(&END))
}

/// Returns whether the bytes could be ERF records. These have no magic number, so two headers must
/// be plausible, the second one at the end of the first record and within an hour of it; or the
/// first record is the whole file.
fn looks_like_erf(bytes: &[u8]) -> bool {
    const HOUR: u32 = 3600;
    let Some(first) = ErfHeader::of(bytes) else { return false };
    match bytes.get(first.length..) {
        Some([]) => true,
        Some(rest) => {
            ErfHeader::of(rest).is_some_and(|second| second.seconds.abs_diff(first.seconds) <= HOUR)
        }
        None => false,
    }
}

/// Header of an ERF record: a timestamp, little-endian in 2⁻³² seconds, a type, flags, the record's
/// length, losses and the length on the wire, the last three big-endian.
struct ErfHeader {
    seconds: u32,
    length: usize,
}

impl ErfHeader {
    fn of(bytes: &[u8]) -> Option<Self> {
        const LENGTH: u16 = 16;
        const YEARS_1995_TO_2100: std::ops::Range<u32> = 788_918_400..4_102_444_800;
        // Defined types, without the bit for extension headers.
        const TYPES: std::ops::RangeInclusive<u8> = 1..=32;
        let &[_, _, _, _, a, b, c, d, erf_type, flags, high, low, _, _, e, f] =
            bytes.first_chunk()?;
        let seconds = u32::from_le_bytes([a, b, c, d]);
        let (length, wire) = (u16::from_be_bytes([high, low]), u16::from_be_bytes([e, f]));
        // Two bits of the flags are reserved. A record is at most two bytes longer than its header
        // and the frame, plus padding.
        let holds_a_frame =
            length > LENGTH && wire > 0 && length - LENGTH <= wire.saturating_add(2 + 64);
        (YEARS_1995_TO_2100.contains(&seconds)
            && TYPES.contains(&(erf_type & 0x7f))
            && flags & 0xc0 == 0
            && holds_a_frame)
            .then_some(Self { seconds, length: usize::from(length) })
    }
}
