//! The pcap format, read and written: a file header, then records (draft-ietf-opsawg-pcap).

use super::{
    CaptureInterface, Damage, DamagePosition, MAX_CAPTURED, PacketRecord, PacketRun, Resolution,
    SECOND, TimeRange, link_type,
};
use flowgauge_core::Link;
use std::io::{self, Write};

/// Magic number of files with timestamps in microseconds (section 4).
pub(super) const MICROSECONDS: u32 = 0xa1b2_c3d4;
/// Magic number of files with timestamps in nanoseconds (section 4).
pub(super) const NANOSECONDS: u32 = 0xa1b2_3c4d;
/// Magic number of Alexey Kuznetzov's modified libpcap: microseconds, and eight more bytes in every
/// record header (interface index, protocol, packet type). Not in the draft; libpcap and Wireshark
/// read it.
pub(super) const MODIFIED: u32 = 0xa1b2_cd34;

const RECORD_HEADER: usize = 16;
const MODIFIED_RECORD_HEADER: usize = 24;
pub(super) const FILE_HEADER: usize = 24;

/// Version of the format (section 4). The draft defines no later one, and later minor versions are
/// compatible by definition.
pub(super) const VERSION: (u16, u16) = (2, 4);
/// First minor version whose records have the captured length before the original one.
const CAPTURED_FIRST: u16 = 3;
/// Version written by tcpdump of DG/UX: lengths as before 2.3.
const DG_UX: (u16, u16) = (543, 0);

/// Order of the two lengths of a record, as libpcap interprets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LengthOrder {
    /// Captured length, original length: since 2.4.
    CapturedFirst,
    /// Either, where the shorter one is the captured one: in 2.3, which some programs wrote with
    /// the lengths of 2.2.
    Either,
    /// Original length, captured length: before 2.3.
    OriginalFirst,
}

impl LengthOrder {
    /// Returns the order of a version; `None` if it is not supported.
    fn of(version: (u16, u16)) -> Option<Self> {
        match version {
            DG_UX | (2, ..CAPTURED_FIRST) => Some(Self::OriginalFirst),
            (2, CAPTURED_FIRST) => Some(Self::Either),
            (2, _) => Some(Self::CapturedFirst),
            _ => None,
        }
    }
}

/// Layout of a file's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordLayout {
    big_endian: bool,
    header_length: u32,
    /// Nanoseconds of one unit of a timestamp's fraction.
    pub(super) fraction_unit: u32,
    link: Link,
    link_type: u16,
    lengths: LengthOrder,
}

impl Default for RecordLayout {
    fn default() -> Self {
        Self::plain(1000)
    }
}

impl RecordLayout {
    /// Returns the layout for a file's first four bytes; `None` if they are not a magic number.
    ///
    /// Section 4.1 of the draft (-08) lists the byte sequences in the wrong order; section 4 and
    /// every implementation write the number in the byte order of the file, so that a little-endian
    /// file begins with d4.
    pub(super) fn of_magic(magic: [u8; 4]) -> Option<Self> {
        let layout = |magic: u32, big_endian: bool| {
            let (header_length, fraction_unit) = match magic {
                MICROSECONDS => (RECORD_HEADER, 1000),
                NANOSECONDS => (RECORD_HEADER, 1),
                MODIFIED => (MODIFIED_RECORD_HEADER, 1000),
                _ => return None,
            };
            let header_length = header_length as u32;
            Some(Self { big_endian, header_length, ..Self::plain(fraction_unit) })
        };
        layout(u32::from_le_bytes(magic), false).or_else(|| layout(u32::from_be_bytes(magic), true))
    }

    /// Returns the most common layout: little-endian, without additions, Ethernet.
    #[inline(always)]
    pub(super) fn plain(fraction_unit: u32) -> Self {
        Self {
            big_endian: false,
            header_length: RECORD_HEADER as u32,
            fraction_unit,
            link: Link::Ethernet,
            link_type: link_type::ETHERNET,
            lengths: LengthOrder::CapturedFirst,
        }
    }

    /// Returns whether this is [`plain`](Self::plain).
    pub(super) fn is_plain(&self) -> bool {
        *self == Self::plain(self.fraction_unit)
    }

    /// Returns whether [`record`](Self::record) supports this layout; otherwise
    /// [`old_record`](Self::old_record) does.
    pub(super) fn is_current(&self) -> bool {
        self.lengths == LengthOrder::CapturedFirst
    }

    /// Parses the record at the start of `bytes`. Returns it with its length, if it is complete and
    /// not too long.
    #[inline(always)]
    pub(super) fn record(&self, bytes: &[u8]) -> Option<(PacketRecord, usize)> {
        self.record_of(self.fields(bytes.first_chunk()?), bytes)
    }

    /// Parses a record of the versions before 2.4. Separate, so that the hot loop has no branch on
    /// the version.
    pub(super) fn old_record(&self, bytes: &[u8]) -> Option<(PacketRecord, usize)> {
        self.record_of(self.ordered(self.fields(bytes.first_chunk()?)), bytes)
    }

    /// Returns the fields with the captured length before the original one.
    fn ordered(&self, fields: [u32; 4]) -> [u32; 4] {
        let [seconds, fraction, first, second] = fields;
        match self.lengths {
            LengthOrder::OriginalFirst => [seconds, fraction, second, first],
            LengthOrder::Either if first > second => [seconds, fraction, second, first],
            _ => fields,
        }
    }

    #[inline(always)]
    fn record_of(&self, fields: [u32; 4], bytes: &[u8]) -> Option<(PacketRecord, usize)> {
        let [seconds, fraction, captured, original] = fields;
        if captured > MAX_CAPTURED {
            return None;
        }
        let length = self.header_length as usize + captured as usize;
        if length > bytes.len() {
            return None;
        }
        // Two 32-bit fields: the largest sum is 4.3e18 + 4.3e12, below 2^63.
        let timestamp =
            u64::from(seconds) * SECOND + u64::from(fraction) * u64::from(self.fraction_unit);
        let record = PacketRecord {
            start: self.header_length,
            captured,
            wire: original.max(captured),
            timestamp,
            link: self.link,
            link_type: self.link_type,
            interface: 0,
        };
        Some((record, length))
    }

    /// Passes over the complete records at the start of `bytes` up to one with a timestamp out of
    /// range. Returns their length in bytes and their summary.
    pub(super) fn pass(&self, bytes: &[u8], range: TimeRange) -> (usize, PacketRun) {
        let layout = *self;
        let (mut unread, mut run) = (bytes, PacketRun::default());
        while let Some((record, consumed)) = layout.record(unread)
            && range.contains(record.timestamp)
        {
            unread = unread.get(consumed..).unwrap_or_default();
            run.packets += 1;
            run.earliest = run.earliest.min(record.timestamp);
            run.latest = run.latest.max(record.timestamp);
        }
        let consumed = bytes.len() - unread.len();
        run.captured = consumed as u64 - run.packets * u64::from(self.header_length);
        (consumed, run)
    }

    /// Returns why [`record`](Self::record) failed: `Ok` with the bytes it needs, `Err` with the
    /// captured length if too long.
    pub(super) fn missing(&self, bytes: &[u8]) -> Result<usize, u32> {
        let Some(header) = bytes.first_chunk() else {
            return Ok(self.header_length as usize);
        };
        let [_, _, captured, _] = self.ordered(self.fields(header));
        if captured > MAX_CAPTURED {
            return Err(captured);
        }
        Ok(self.header_length as usize + captured as usize)
    }

    /// Returns seconds, fraction, captured length, original length (section 5).
    #[inline(always)]
    fn fields(&self, header: &[u8; RECORD_HEADER]) -> [u32; 4] {
        let all = u128::from_le_bytes(*header);
        let fields = [all as u32, (all >> 32) as u32, (all >> 64) as u32, (all >> 96) as u32];
        if self.big_endian {
            return fields.map(u32::swap_bytes);
        }
        fields
    }

    /// Parses a file header (section 4), whose magic number has this layout. Returns the layout of
    /// the records, and the interface.
    pub(super) fn read_header(
        self,
        header: &[u8; FILE_HEADER],
    ) -> Result<(Self, CaptureInterface), Damage> {
        let &[_, _, _, _, a, b, c, d, _, _, _, _, _, _, _, _, e, f, g, h, i, j, k, l] = header;
        let u16_of = if self.big_endian { u16::from_be_bytes } else { u16::from_le_bytes };
        let u32_of = if self.big_endian { u32::from_be_bytes } else { u32::from_le_bytes };
        let (major, minor) = (u16_of([a, b]), u16_of([c, d]));
        let Some(lengths) = LengthOrder::of((major, minor)) else {
            let at = DamagePosition::default();
            return Err(Damage::unsupported_version("pcap", (major, minor), at, "2.4"));
        };
        // The upper half contains the length of the frame check sequence, if it was captured
        // (section 4, figure 2). Record lengths include it and stay as they are: that is the
        // frame's length on the wire.
        let link_type = u32_of([i, j, k, l]) as u16;
        let resolution = match self.fraction_unit {
            1 => Resolution::NANOSECONDS,
            _ => Resolution::MICROSECONDS,
        };
        let snaplen = u32_of([e, f, g, h]);
        let interface = CaptureInterface::new(None, link_type, snaplen, resolution, 0);
        Ok((Self { link: interface.link, link_type, lengths, ..self }, interface))
    }
}

/// Writer of a little-endian pcap file with nanosecond timestamps.
///
/// Each packet is two small writes: use a [`BufWriter`](io::BufWriter).
#[derive(Debug)]
pub struct Writer<W: Write> {
    inner: W,
}

impl<W: Write> Writer<W> {
    /// Writes the file header for frames of a LINKTYPE_ value, see [`link_type`](super::link_type).
    ///
    /// # Errors
    /// Failures of `inner`.
    pub fn new(mut inner: W, link_type: u16) -> io::Result<Self> {
        let (major, minor) = VERSION;
        inner.write_all(&NANOSECONDS.to_le_bytes())?;
        inner.write_all(&major.to_le_bytes())?;
        inner.write_all(&minor.to_le_bytes())?;
        inner.write_all(&[0; 8])?;
        inner.write_all(&MAX_CAPTURED.to_le_bytes())?;
        inner.write_all(&u32::from(link_type).to_le_bytes())?;
        Ok(Self { inner })
    }

    /// Writes a packet: its nanoseconds since 1970, the bytes captured of it, and how many it had
    /// on the wire. A `wire_len` below the captured length is written as that
    /// (draft-ietf-opsawg-pcap section 5).
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) with nothing written for a frame longer than
    /// [`MAX_CAPTURED`] and for a time after 2106-02-07, whose seconds do not fit into 32 bits;
    /// those of the inner writer.
    pub fn write(&mut self, timestamp_ns: u64, frame: &[u8], wire_len: u32) -> io::Result<()> {
        self.inner.write_all(header(timestamp_ns, frame.len(), wire_len)?.as_flattened())?;
        self.inner.write_all(frame)
    }

    /// Returns the inner writer.
    pub fn get_ref(&self) -> &W {
        &self.inner
    }

    /// Returns the inner writer.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.inner
    }

    /// Flushes, and returns the inner writer.
    ///
    /// # Errors
    /// Failure of the flush.
    pub fn finish(mut self) -> io::Result<W> {
        self.inner.flush()?;
        Ok(self.inner)
    }
}

/// Encodes the header of a packet.
fn header(timestamp_ns: u64, length: usize, wire_len: u32) -> io::Result<[[u8; 4]; 4]> {
    let captured = u32::try_from(length)
        .ok()
        .filter(|captured| *captured <= MAX_CAPTURED)
        .ok_or_else(|| {
            invalid(format!(
                "a frame of {length} bytes does not fit into a pcap file: {MAX_CAPTURED} at most"
            ))
        })?;
    let seconds = u32::try_from(timestamp_ns / SECOND).map_err(|_| {
        invalid(format!("{timestamp_ns} ns does not fit into a pcap file: {} s at most", u32::MAX))
    })?;
    // Below 10^9, so it fits into 32 bits.
    let fraction = (timestamp_ns % SECOND) as u32;
    Ok([seconds, fraction, captured, wire_len.max(captured)].map(u32::to_le_bytes))
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}
