//! Damage of captures, with descriptions.

use std::fmt;

use super::{Compression, MAX_CAPTURED};

/// Position of a walk when it met damage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DamagePosition {
    /// File offset of the damaged record or block, in bytes.
    pub(super) offset: u64,
    /// Whole packets before it.
    pub(super) packets: u64,
}

impl fmt::Display for DamagePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.packets == 1 { "" } else { "s" };
        write!(f, "at byte {}, after {} packet{plural}", self.offset, self.packets)
    }
}

/// Reason why a walk cannot continue, as one line: what is damaged, where, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Damage(pub(super) String);

impl Damage {
    /// Describes a file that begins with `bytes`, which is no magic number of a supported format.
    pub(super) fn not_a_capture(bytes: &[u8]) -> Self {
        Damage(format!("not a capture: the file {}; expected pcap or pcapng", guess(bytes)))
    }

    /// Describes a header of an unsupported version.
    pub(super) fn unsupported_version(
        format: &str,
        (major, minor): (u16, u16),
        at: DamagePosition,
        expected: &str,
    ) -> Self {
        Damage(format!("version {major}.{minor} of {format} {at}: expected {expected}"))
    }

    /// Describes a packet longer than any link delivers: its length, or something before it, is
    /// damaged.
    pub(super) fn packet_too_long(captured: u32, at: DamagePosition) -> Self {
        Damage(format!("captured length {captured} {at}: expected {MAX_CAPTURED} at most"))
    }
}

/// Bytes at the start of a file that [`guess`] examines: enough for two records of an ERF capture.
pub(super) const GUESS_BYTES: usize = 4096;

/// Returns what a file that is not a capture probably is, by its first bytes, with advice.
fn guess(bytes: &[u8]) -> String {
    const SNOOP: &str = "is a snoop capture, convert it first: editcap -F pcap";
    const NETMON: &str = "is a Network Monitor capture, convert it first: editcap -F pcap";
    const IXIA: &str = "is an IXIA capture, convert it first: editcap -F pcap";
    const MAGICS: [(&[u8], &str); 9] = [
        (&[0x04, 0x22, 0x4d, 0x18], "is compressed with LZ4, decompress it first: unlz4"),
        (b"PK\x03\x04", "is a ZIP archive, unpack it first: unzip"),
        (b"snoop\0\0\0", SNOOP),
        (b"GMBU", NETMON),
        (b"RTSS", NETMON),
        (&[0x1c, 0x00, 0x01, 0xac], IXIA),
        (&[0x1c, 0x00, 0x01, 0xab], IXIA),
        (&[0xac, 0x01, 0x00, 0x1c], IXIA),
        (&[0xab, 0x01, 0x00, 0x1c], IXIA),
    ];
    let bytes = bytes.get(..GUESS_BYTES).unwrap_or(bytes);
    if let Some((_, format)) = MAGICS.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return (*format).to_owned();
    }
    let format = match Compression::of(bytes) {
        Some(Compression::Gzip) => "is compressed with gzip, decompress it first: gunzip",
        Some(Compression::Zstd) => "is compressed with Zstandard, decompress it first: unzstd",
        Some(Compression::Xz) => "is compressed with xz, decompress it first: unxz",
        None if bytes.is_empty() => "is empty",
        None if looks_like_bzip2(bytes) => "is compressed with bzip2, decompress it first: bunzip2",
        None if looks_like_text(bytes) => "is text",
        None if looks_like_erf(bytes) => {
            "looks like an ERF capture, convert it first: editcap -F pcap"
        }
        None => {
            let mut first = [0; 4];
            first.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            let [a, b, c, d] = first;
            return format!("begins with {a:02x} {b:02x} {c:02x} {d:02x}");
        }
    };
    format.to_owned()
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
    let Some((first, length)) = erf_header(bytes) else { return false };
    match bytes.get(length..) {
        Some([]) => true,
        Some(rest) => erf_header(rest).is_some_and(|(second, _)| second.abs_diff(first) <= HOUR),
        None => false,
    }
}

/// Returns the seconds since 1970 and the length in bytes of an ERF record. Its header has a
/// timestamp, little-endian in 2⁻³² seconds, a type, flags, the record's length, losses and the
/// length on the wire, the last three big-endian.
fn erf_header(bytes: &[u8]) -> Option<(u32, usize)> {
    const LENGTH: u16 = 16;
    const YEARS_1995_TO_2100: std::ops::Range<u32> = 788_918_400..4_102_444_800;
    // Defined types, without the bit for extension headers.
    const TYPES: std::ops::RangeInclusive<u8> = 1..=32;
    let &[_, _, _, _, a, b, c, d, erf_type, flags, high, low, _, _, e, f] = bytes.first_chunk()?;
    let seconds = u32::from_le_bytes([a, b, c, d]);
    let (length, wire) = (u16::from_be_bytes([high, low]), u16::from_be_bytes([e, f]));
    // Two bits of the flags are reserved. A record is at most two bytes longer than its header and
    // the frame, plus padding.
    let holds_a_frame =
        length > LENGTH && wire > 0 && length - LENGTH <= wire.saturating_add(2 + 64);
    (YEARS_1995_TO_2100.contains(&seconds)
        && TYPES.contains(&(erf_type & 0x7f))
        && flags & 0xc0 == 0
        && holds_a_frame)
        .then_some((seconds, usize::from(length)))
}
