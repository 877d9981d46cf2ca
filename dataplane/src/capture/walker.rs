//! Parser of captures of any format, as a walk over their bytes.

use flowgauge_core::Link;

use super::{
    CaptureInterface, Damage, DamagePosition, PacketList, PacketRun, TimeRange,
    damage::GUESS_BYTES, pcap::FILE_HEADER, pcap::RecordLayout, pcapng,
};
use std::sync::Arc;

/// Maximum captured length of a packet, 256 KiB: Wireshark's limit for link types that carry IP.
pub const MAX_CAPTURED: u32 = 262_144;

/// Maximum bytes that [`Step::NeedMore`] requests, 16 MiB: with a buffer of this size the walk
/// always progresses. Only the description of an interface with very many options is read whole at
/// that length.
pub const MAX_NEED: usize = 1 << 24;

/// Parser that walks over the bytes of a capture, in pieces of any size.
///
/// The caller keeps the unread bytes, and after each [`Step`] drops those that were consumed:
///
/// ```
/// use flowgauge_dataplane::capture::{Step, Walker, build};
///
/// let packets = [build::CapturePacket::new(0, vec![0; 60])];
/// let file = build::pcap(&build::PcapOptions::default(), &packets);
/// let mut walker = Walker::new();
/// let mut unread = file.as_slice();
/// let end = loop {
///     match walker.next(unread) {
///         Step::Packet { record, consumed } => {
///             assert_eq!(record.frame(unread).len(), 60);
///             unread = &unread[consumed..];
///         }
///         Step::Skip { consumed } => unread = &unread[consumed..],
///         // The file ends here; a reader would fetch more bytes first.
///         Step::NeedMore { .. } => break walker.finish(unread),
///         Step::Damaged(damage) => break Err(damage),
///     }
/// };
/// assert_eq!(end, Ok(()));
/// ```
///
/// The division into pieces affects neither the packets nor the damage found.
///
/// Drop counts in pcapng's packet blocks are ignored: [`drops`](Self::drops) has the totals.
#[derive(Clone, Debug, Default)]
pub struct Walker {
    offset: u64,
    layout: RecordLayout,
    packets: u64,
    phase: Phase,
    pub(super) section: pcapng::Section,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Start,
    Pcap,
    /// A version of pcap before 2.4, with another order of lengths in records.
    OldPcap,
    PcapNg,
    /// A [list](PacketList) with these records. The next one has the number of packets so far.
    Listed(Arc<[PacketRecord]>),
}

/// Item at the start of the unread bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A packet.
    Packet {
        /// The packet; its frame is in the consumed bytes.
        record: PacketRecord,
        /// Bytes to drop before the next call, at least 1.
        consumed: usize,
    },
    /// A header, or some or all of a block without a packet.
    Skip {
        /// Bytes to drop before the next call, at least 1.
        consumed: usize,
    },
    /// Too few bytes to decide; call [`Walker::finish`] at the end of the file.
    NeedMore {
        /// Bytes needed from the start of the unread ones: more than there are, at most
        /// [`MAX_NEED`].
        at_least: usize,
    },
    /// The walk cannot continue; every further call returns the same.
    Damaged(Damage),
}

/// Result of [`Walker::pass`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassResult {
    /// Bytes to drop before the next call.
    pub consumed: usize,
    /// Packets in these bytes.
    pub run: PacketRun,
    /// Reason for the stop.
    pub stop: StopReason,
}

/// Reason why [`Walker::pass`] stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The next packet has a timestamp at or beyond the limit, or before the floor.
    Limit {
        /// Its timestamp, in nanoseconds since 1970.
        next: u64,
    },
    /// As [`Step::NeedMore`].
    NeedMore {
        /// Bytes needed from the start of the unread ones.
        at_least: usize,
    },
    /// As [`Step::Damaged`].
    Damaged(Damage),
}

/// A packet in the bytes passed to [`Walker::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRecord {
    /// Offset of the frame in these bytes.
    pub start: u32,
    /// Bytes of the frame in the file, 0 to [`MAX_CAPTURED`].
    pub captured: u32,
    /// Bytes of the frame on the wire, at least [`captured`](Self::captured); including the frame
    /// check sequence if it was captured.
    pub wire: u32,
    /// Nanoseconds since 1970, saturating. A pcapng simple packet has no timestamp: it gets that of
    /// the previous packet, or 0.
    pub timestamp: u64,
    /// The link layer of the frame.
    pub link: Link,
    /// LINKTYPE_ value of the link layer, see [`link_type`](super::link_type).
    pub link_type: u16,
    /// Index of the packet's interface in [`Walker::interfaces`].
    pub interface: u32,
}

impl PacketRecord {
    /// Returns the frame within the bytes passed to [`Walker::next`]; empty for other, shorter
    /// ones.
    #[inline]
    #[must_use]
    pub fn frame<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes
            .get(self.start as usize..)
            .and_then(|rest| rest.get(..self.captured as usize))
            .unwrap_or_default()
    }
}

/// Iterator over packets in bytes, see [`Walker::packets_in`].
#[derive(Debug)]
pub struct PacketsIn<'a> {
    plain: Plain<'a>,
    walker: Walker,
    /// Bytes after the plain packets.
    unread: &'a [u8],
}

/// Iterator over packets with the most common record format, whose layout and link layer (Ethernet)
/// the compiler knows.
///
/// The hot loop of replays: no part of a record goes through memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain<'a> {
    bytes: &'a [u8],
    fraction_unit: u32,
    range: TimeRange,
    taken: PacketRun,
}

impl Plain<'_> {
    /// Ends at the first packet with a timestamp outside the range.
    #[must_use]
    pub fn within(self, range: TimeRange) -> Self {
        Plain { range, ..self }
    }

    /// Returns the number of bytes not taken, and a summary of the packets taken.
    #[must_use]
    pub fn left(&self) -> (usize, PacketRun) {
        (self.bytes.len(), self.taken)
    }
}

impl<'a> PacketsIn<'a> {
    /// Takes the plain ones of the next packets; after them there may be [others](Iterator::next).
    #[must_use]
    pub fn take_plain(&mut self) -> Plain<'a> {
        std::mem::take(&mut self.plain)
    }
}

impl<'a> Iterator for Plain<'a> {
    type Item = (PacketRecord, &'a [u8]);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let (record, length) = RecordLayout::plain(self.fraction_unit).record(self.bytes)?;
        let (whole, after) = self.bytes.split_at_checked(length)?;
        let frame = whole.get(record.start as usize..)?;
        if !self.range.contains(record.timestamp) {
            return None;
        }
        self.bytes = after;
        self.taken.add(PacketRun::from(&record));
        Some((record, frame))
    }
}

impl<'a> Iterator for PacketsIn<'a> {
    type Item = (PacketRecord, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(packet) = self.plain.next() {
            return Some(packet);
        }
        loop {
            let unread = self.unread;
            let (packet, consumed) = match self.walker.next(unread) {
                Step::Packet { record, consumed } => (Some(record), consumed),
                Step::Skip { consumed } => (None, consumed),
                Step::NeedMore { .. } | Step::Damaged(_) => return None,
            };
            self.unread = unread.get(consumed..).unwrap_or_default();
            if let Some(record) = packet {
                return Some((record, record.frame(unread)));
            }
        }
    }
}

impl Walker {
    /// Creates a walk at the start of a file.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a walk over the packets of a [`PacketList`].
    pub(super) fn listed(records: Vec<PacketRecord>) -> Self {
        Self { phase: Phase::Listed(records.into()), ..Self::new() }
    }

    /// Returns the records that follow in a [`PacketList`]; `None` in a capture.
    pub fn listed_records(&self) -> Option<&[PacketRecord]> {
        match &self.phase {
            Phase::Listed(records) => records.get(self.packets as usize..),
            _ => None,
        }
    }

    /// Frees all records of a [`PacketList`] but the next `packets`.
    pub fn keep_listed(&mut self, packets: u64) {
        if let Some(records) = self.listed_records() {
            let kept = records.get(..packets as usize).unwrap_or(records);
            (self.phase, self.packets) = (Phase::Listed(kept.into()), 0);
        }
    }

    /// Parses the item at the start of `bytes`, the unread bytes of the file, which need not be
    /// complete.
    // Not an iterator: the bytes are passed with each call.
    #[allow(
        clippy::should_implement_trait,
        reason = "takes the bytes, so it cannot be Iterator::next"
    )]
    #[inline]
    pub fn next(&mut self, bytes: &[u8]) -> Step {
        match self.next_packet(bytes) {
            Some((record, consumed)) => Step::Packet { record, consumed },
            None => self.next_slow(bytes),
        }
    }

    /// Parses the packet at the start of `bytes` in the common cases: a whole record of pcap or a
    /// whole enhanced packet block of pcapng. Returns it with the bytes to drop before the next
    /// call. With `None` nothing is consumed, and [`next`](Self::next) determines what is there,
    /// which may still be a packet.
    ///
    /// For hot loops: unlike a [`Step`], the result need not go through memory.
    #[inline]
    pub fn next_packet(&mut self, bytes: &[u8]) -> Option<(PacketRecord, usize)> {
        let (record, consumed) = match &self.phase {
            Phase::Pcap => self.layout.record(bytes)?,
            Phase::OldPcap => self.layout.old_record(bytes)?,
            Phase::PcapNg => self.section.enhanced_packet(bytes)?,
            Phase::Listed(records) => {
                let record = records.get(self.packets as usize)?;
                let length = PacketList::length(record);
                (length <= bytes.len()).then_some((*record, length))?
            }
            Phase::Start => return None,
        };
        self.count(consumed);
        Some((record, consumed))
    }

    /// Passes over everything in `bytes`, the unread bytes of the file, up to the first packet with
    /// a timestamp outside `range`, which stays unread.
    ///
    /// This parses only what is needed to find the next record, so that a reader learns quickly
    /// where the packets that a worker may count end.
    pub fn pass(&mut self, bytes: &[u8], range: TimeRange) -> PassResult {
        let (mut passed, mut run) = (0, PacketRun::default());
        loop {
            let unread = bytes.get(passed..).unwrap_or_default();
            if self.phase == Phase::Pcap {
                let (consumed, more) = self.layout.pass(unread, range);
                self.packets += more.packets;
                run.add(more);
                self.offset += consumed as u64;
                passed += consumed;
            }
            let unread = bytes.get(passed..).unwrap_or_default();
            let mark = (self.offset, self.packets, self.section.previous_timestamp);
            let stop = match self.next(unread) {
                Step::Packet { record, .. } if !range.contains(record.timestamp) => {
                    (self.offset, self.packets, self.section.previous_timestamp) = mark;
                    // A packet never comes from inside a block, but the rest of its own block may
                    // have to be skipped.
                    self.section.skipping = None;
                    StopReason::Limit { next: record.timestamp }
                }
                Step::Packet { record, consumed } => {
                    run.add(PacketRun::from(&record));
                    passed += consumed;
                    continue;
                }
                Step::Skip { consumed } => {
                    passed += consumed;
                    continue;
                }
                Step::NeedMore { at_least } => StopReason::NeedMore { at_least },
                Step::Damaged(damage) => StopReason::Damaged(damage),
            };
            return PassResult { consumed: passed, run, stop };
        }
    }

    /// Returns an iterator over every packet in `bytes` with its frame, up to an incomplete or
    /// damaged record.
    #[inline]
    #[must_use]
    pub fn packets_in(self, bytes: &[u8]) -> PacketsIn<'_> {
        let (plain, unread) = match self.plain_in(bytes, TimeRange::ALL) {
            Some(plain) => (plain, Default::default()),
            None => (Plain::default(), bytes),
        };
        PacketsIn { plain, walker: self, unread }
    }

    /// Returns an iterator over the packets at the start of `bytes`, the unread bytes of the file,
    /// up to the first with a timestamp outside `range`; `None` unless all records of the file are
    /// [`Plain`].
    ///
    /// For a single reader, which need not [pass](Self::pass) over packets before it counts them.
    /// It reports its progress by [`took`](Self::took).
    #[must_use]
    pub fn plain_in<'a>(&self, bytes: &'a [u8], range: TimeRange) -> Option<Plain<'a>> {
        let is_plain = self.phase == Phase::Pcap && self.layout.is_plain();
        let (fraction_unit, taken) = (self.layout.fraction_unit, PacketRun::default());
        is_plain.then_some(Plain { bytes, fraction_unit, range, taken })
    }

    /// Advances past packets of [`plain_in`](Self::plain_in), which take `consumed` bytes.
    pub fn took(&mut self, consumed: usize, packets: u64) {
        self.offset += consumed as u64;
        self.packets += packets;
    }

    /// Checks that the file may end after `bytes`, the unread ones, that is, between records.
    ///
    /// # Errors
    /// The damage: the item that is truncated, or what [`next`](Self::next) finds damaged.
    pub fn finish(&self, bytes: &[u8]) -> Result<(), Damage> {
        let mut walker = self.clone();
        let mut unread = bytes;
        loop {
            match walker.next(unread) {
                Step::Packet { consumed, .. } | Step::Skip { consumed } => {
                    unread = unread.get(consumed..).unwrap_or_default();
                }
                Step::NeedMore { at_least } => return walker.end(unread, at_least),
                Step::Damaged(damage) => return Err(damage),
            }
        }
    }

    /// Returns the interfaces described so far: one in pcap, those of the current section in
    /// pcapng.
    #[must_use]
    pub fn interfaces(&self) -> &[CaptureInterface] {
        &self.section.interfaces
    }

    /// Returns the coarsest unit of the timestamps of all interfaces, in nanoseconds; 0 without
    /// interfaces.
    #[must_use]
    pub fn unit_ns(&self) -> u64 {
        let units = self.interfaces().iter().map(|interface| interface.resolution.nanoseconds());
        units.max().unwrap_or(0)
    }

    /// Returns the packets dropped by the interfaces of all sections, from their last statistics
    /// blocks, saturating; 0 in pcap.
    #[must_use]
    pub fn drops(&self) -> u64 {
        self.section.drops()
    }

    /// Returns the bytes consumed so far, which is the file offset of the next unread byte.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the number of packets so far.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.packets
    }

    pub(super) fn place(&self) -> DamagePosition {
        DamagePosition { offset: self.offset, packets: self.packets }
    }

    #[inline]
    pub(super) fn count(&mut self, packet_bytes: usize) {
        self.packets += 1;
        self.offset += packet_bytes as u64;
    }

    pub(super) fn skip(&mut self, consumed: usize) -> Step {
        self.offset += consumed as u64;
        Step::Skip { consumed }
    }

    #[inline(never)]
    fn next_slow(&mut self, bytes: &[u8]) -> Step {
        match self.phase {
            Phase::Start => self.next_at_start(bytes),
            Phase::Pcap | Phase::OldPcap => match self.layout.missing(bytes) {
                Ok(at_least) => Step::NeedMore { at_least },
                Err(captured) => Step::Damaged(Damage::packet_too_long(captured, self.place())),
            },
            Phase::PcapNg => self.next_block(bytes).unwrap_or_else(|step| step),
            Phase::Listed(_) => Step::NeedMore { at_least: bytes.len() + 1 },
        }
    }

    fn next_at_start(&mut self, bytes: &[u8]) -> Step {
        let Some(magic) = bytes.first_chunk::<4>() else {
            return Step::NeedMore { at_least: 4 };
        };
        if *magic == pcapng::SECTION_HEADER.to_le_bytes() {
            self.phase = Phase::PcapNg;
            return self.next_block(bytes).unwrap_or_else(|step| step);
        }
        let Some(layout) = RecordLayout::of_magic(*magic) else {
            return match bytes.len() {
                0..GUESS_BYTES => Step::NeedMore { at_least: GUESS_BYTES },
                _ => Step::Damaged(Damage::not_a_capture(bytes)),
            };
        };
        let Some(header) = bytes.first_chunk() else {
            return Step::NeedMore { at_least: FILE_HEADER };
        };
        match layout.read_header(header) {
            Ok((layout, interface)) => {
                self.phase = if layout.is_current() { Phase::Pcap } else { Phase::OldPcap };
                self.layout = layout;
                self.section.interfaces.push(interface);
                self.skip(FILE_HEADER)
            }
            Err(damage) => Step::Damaged(damage),
        }
    }

    /// Checks an end of the file where [`next`](Self::next) needs `at_least` bytes and there are
    /// only `unread`.
    fn end(&self, unread: &[u8], at_least: usize) -> Result<(), Damage> {
        let piece = match self.phase {
            Phase::Start if unread.len() < 4 || at_least == GUESS_BYTES => {
                return Err(Damage::not_a_capture(unread));
            }
            Phase::Start => "file header",
            Phase::Pcap | Phase::OldPcap | Phase::Listed(_) => "record",
            Phase::PcapNg => "block",
        };
        let unread = unread.len() as u64;
        let (at, present, needed) = match &self.section.skipping {
            Some(block) => {
                (block.at, u64::from(block.length - block.left) + unread, u64::from(block.length))
            }
            None if unread == 0 => return Ok(()),
            None => (self.place(), unread, at_least as u64),
        };
        Err(Damage(format!("the file ends inside a {piece} {at}: {present} bytes of {needed}")))
    }
}
