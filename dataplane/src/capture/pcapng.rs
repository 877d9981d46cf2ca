//! The pcapng format: sections of blocks (draft-ietf-opsawg-pcapng).

use super::{
    CaptureInterface, Damage, DamagePosition, MAX_CAPTURED, MAX_NEED, PacketRecord, Resolution,
    Step, Walker,
};

/// Section Header Block (section 4.1); the same bytes in either byte order.
pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
/// Interface Description Block (section 4.2).
pub(super) const INTERFACE_DESCRIPTION: u32 = 1;
/// Packet Block, obsolete (appendix A).
pub(super) const PACKET: u32 = 2;
/// Simple Packet Block (section 4.4).
pub(super) const SIMPLE_PACKET: u32 = 3;
/// Interface Statistics Block (section 4.6).
pub(super) const INTERFACE_STATISTICS: u32 = 5;
/// Enhanced Packet Block (section 4.3).
pub(super) const ENHANCED_PACKET: u32 = 6;

pub(super) const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
pub(super) const MAJOR_VERSION: u16 = 1;

/// Bytes of an Enhanced Packet Block without a frame.
pub(super) const LEAST_PACKET_BLOCK: u32 = 32;

/// Option codes (sections 3.5, 4.2 and 4.6).
pub(super) mod option {
    pub(in super::super) const END: u16 = 0;
    pub(in super::super) const COMMENT: u16 = 1;
    pub(in super::super) const IF_NAME: u16 = 2;
    pub(in super::super) const IF_TSRESOL: u16 = 9;
    pub(in super::super) const IF_TSOFFSET: u16 = 14;
    pub(in super::super) const ISB_IFDROP: u16 = 5;
}

/// Type and total length before a block's body, total length after it (section 3.1).
const BLOCK_HEADER: usize = 8;
const BLOCK_TRAILER: usize = 4;
/// Bytes of a block without a body.
const EMPTY_BLOCK: u32 = 12;
/// Maximum size of an interface's description, which is read whole, in bytes.
const MAX_BLOCK: u32 = MAX_NEED as u32;
/// Maximum size of a packet block that is read whole, in bytes. In a longer one, what follows the
/// frame is skipped.
const MAX_PACKET_BLOCK: u32 = 1 << 20;
/// Maximum interfaces of a section, so that files cannot exhaust memory.
const MAX_INTERFACES: usize = 1 << 18;
/// Maximum stored length of an interface's name, in bytes.
const MAX_NAME: usize = 255;

/// Current section of a walk, with the state retained from earlier ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Section {
    big_endian: bool,
    pub(super) interfaces: Vec<CaptureInterface>,
    pub(super) skipping: Option<SkippedBlock>,
    /// Length at the start of the current block, possibly without padding.
    stated: u32,
    drops_before: u64,
    pub(super) previous_timestamp: u64,
}

/// A block that is being skipped.
#[derive(Clone, Copy, Debug)]
pub(super) struct SkippedBlock {
    /// Place where the block begins.
    pub(super) at: DamagePosition,
    /// The block's total length.
    pub(super) length: u32,
    /// Bytes of the block not consumed yet, at least the trailer.
    pub(super) left: u32,
}

impl Section {
    pub(super) fn drops(&self) -> u64 {
        self.interfaces
            .iter()
            .map(|interface| interface.drops)
            .fold(self.drops_before, u64::saturating_add)
    }

    #[inline]
    fn u16(&self, bytes: [u8; 2]) -> u16 {
        if self.big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    }

    #[inline]
    fn u32(&self, bytes: [u8; 4]) -> u32 {
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    #[inline]
    fn u64(&self, bytes: [u8; 8]) -> u64 {
        if self.big_endian { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) }
    }

    /// Parses the enhanced packet block at the start of `bytes`, if complete and undamaged: the
    /// fast path of [`Walker::next_block`], without its error handling. Returns the record and the
    /// block's length.
    #[inline]
    pub(super) fn enhanced_packet(&mut self, bytes: &[u8]) -> Option<(PacketRecord, usize)> {
        let (header, _) = bytes.first_chunk::<28>()?.as_chunks::<4>();
        let &[block_type, length, id, high, low, captured, original] = header else {
            return None;
        };
        let length = self.u32(length);
        let least = LEAST_PACKET_BLOCK;
        if self.skipping.is_some()
            || self.u32(block_type) != ENHANCED_PACKET
            || !(least..=MAX_PACKET_BLOCK).contains(&length)
            || !length.is_multiple_of(4)
        {
            return None;
        }
        let consumed = length as usize;
        let trailing = bytes.get(..consumed)?.last_chunk()?;
        let captured = self.u32(captured);
        if self.u32(*trailing) != length || captured > MAX_CAPTURED.min(length - least) {
            return None;
        }
        let id = self.u32(id);
        let interface = self.interfaces.get(id as usize)?;
        let ticks = u64::from(self.u32(high)) << 32 | u64::from(self.u32(low));
        let timestamp = interface.nanoseconds(ticks);
        let record = PacketRecord {
            start: 28,
            captured,
            wire: self.u32(original).max(captured),
            timestamp,
            link: interface.link,
            link_type: interface.link_type,
            interface: id,
        };
        self.previous_timestamp = timestamp;
        Some((record, consumed))
    }

    /// Returns code and value of the options in `bytes`, up to opt_endofopt or the end (section
    /// 3.5); ends with one `Err` of code, length and room if an option exceeds the block.
    fn options<'a>(
        &'a self,
        bytes: &'a [u8],
    ) -> impl Iterator<Item = Result<(u16, &'a [u8]), (u16, u16, u16)>> {
        let mut rest = bytes;
        std::iter::from_fn(move || {
            // Blocks are padded to 32 bits, so fewer bytes than an option header are not an option.
            let (&[a, b, c, d], after) = rest.split_first_chunk::<4>()?;
            let (code, length) = (self.u16([a, b]), self.u16([c, d]));
            rest = &[];
            if code == option::END {
                return None;
            }
            let Some((value, after)) = after.split_at_checked(usize::from(length)) else {
                let room = u16::try_from(after.len()).unwrap_or(u16::MAX);
                return Some(Err((code, length, room)));
            };
            let padding = value.len().next_multiple_of(4) - value.len();
            rest = after.get(padding..).unwrap_or_default();
            Some(Ok((code, value)))
        })
    }
}

/// Fields of a packet block that precede its frame.
struct PacketFields {
    interface: u32,
    /// `None` in a simple packet.
    ticks: Option<u64>,
    /// `None` in a simple packet.
    captured: Option<u32>,
    original: u32,
}

impl Walker {
    /// Parses the block at the start of `bytes`. The error is the step of a block that is incomplete
    /// or damaged.
    pub(super) fn next_block(&mut self, bytes: &[u8]) -> Result<Step, Step> {
        if let Some(skipping) = self.section.skipping {
            return self.skip_on(skipping, bytes);
        }
        let Some(&[a, b, c, d, e, f, g, h]) = bytes.first_chunk::<BLOCK_HEADER>() else {
            return Err(Step::NeedMore { at_least: EMPTY_BLOCK as usize });
        };
        let block_type = self.section.u32([a, b, c, d]);
        if block_type == SECTION_HEADER {
            return self.section_header(bytes);
        }
        self.section.stated = self.section.u32([e, f, g, h]);
        let length = self.whole_length(block_type, self.section.stated)?;
        match block_type {
            ENHANCED_PACKET | PACKET => self.packet_block::<20>(block_type, length, bytes),
            SIMPLE_PACKET => self.packet_block::<4>(block_type, length, bytes),
            INTERFACE_DESCRIPTION => self.interface_description(length, bytes),
            INTERFACE_STATISTICS if length <= MAX_PACKET_BLOCK => {
                self.interface_statistics(length, bytes)
            }
            _ => self.skip_block(block_type, length, EMPTY_BLOCK, bytes),
        }
    }

    /// Parses a packet block, whose fixed fields have `FIXED` bytes: 20 in an Enhanced Packet Block
    /// (section 4.3) and in the obsolete Packet Block (appendix A), 4 in a Simple Packet Block
    /// (section 4.4).
    fn packet_block<const FIXED: usize>(
        &mut self,
        block_type: u32,
        length: u32,
        bytes: &[u8],
    ) -> Result<Step, Step> {
        let at = self.place();
        let is_long = length > MAX_PACKET_BLOCK;
        let (fixed, room) = if is_long {
            let at_least = BLOCK_HEADER + FIXED;
            let fixed = bytes
                .get(BLOCK_HEADER..at_least)
                .and_then(<[u8]>::first_chunk)
                .ok_or(Step::NeedMore { at_least })?;
            (fixed, length - EMPTY_BLOCK - FIXED as u32)
        } else {
            let (fixed, rest) = self.whole_block::<FIXED>(block_type, length, bytes)?;
            (fixed, rest.len() as u32)
        };
        let fields = self.packet_fields(block_type, fixed);
        let Some(interface) = self.section.interfaces.get(fields.interface as usize) else {
            let (interface, known) = (fields.interface, self.section.interfaces.len());
            return Err(Step::Damaged(Damage(format!(
                "interface {interface} of a packet {at}: expected one of the {known} described so far"
            ))));
        };
        // A simple packet does not contain it: it follows from the interface's snapshot length,
        // where 0 means no limit (section 4.2).
        let captured = fields.captured.unwrap_or(match interface.snaplen {
            0 => fields.original,
            snaplen => fields.original.min(snaplen),
        });
        if captured > MAX_CAPTURED {
            return Err(Step::Damaged(Damage::packet_too_long(captured, at)));
        }
        if captured > room {
            return Err(Step::Damaged(Damage(format!(
                "captured length {captured} in a block {at}: expected {room} at most, the room in the block"
            ))));
        }
        let consumed =
            if is_long { BLOCK_HEADER + FIXED + captured as usize } else { length as usize };
        if consumed > bytes.len() {
            return Err(Step::NeedMore { at_least: consumed });
        }
        let timestamp = fields
            .ticks
            .map_or(self.section.previous_timestamp, |ticks| interface.nanoseconds(ticks));
        let record = PacketRecord {
            start: (BLOCK_HEADER + FIXED) as u32,
            captured,
            wire: fields.original.max(captured),
            timestamp,
            link: interface.link,
            link_type: interface.link_type,
            interface: fields.interface,
        };
        self.section.previous_timestamp = timestamp;
        if is_long {
            self.section.skipping =
                Some(SkippedBlock { at, length, left: length - consumed as u32 });
        }
        self.count(consumed);
        Ok(Step::Packet { record, consumed })
    }

    fn packet_fields<const FIXED: usize>(
        &self,
        block_type: u32,
        fixed: &[u8; FIXED],
    ) -> PacketFields {
        let word = |n: usize| {
            let (words, _) = fixed.as_chunks::<4>();
            words.get(n).map_or(0, |word| self.section.u32(*word))
        };
        if block_type == SIMPLE_PACKET {
            return PacketFields { interface: 0, ticks: None, captured: None, original: word(0) };
        }
        PacketFields {
            interface: match fixed.first_chunk() {
                // Followed by 16 bits of packets lost before this one.
                Some(interface) if block_type == PACKET => u32::from(self.section.u16(*interface)),
                _ => word(0),
            },
            ticks: Some(u64::from(word(1)) << 32 | u64::from(word(2))),
            captured: Some(word(3)),
            original: word(4),
        }
    }

    /// Starts a section. Section Length is ignored, since all blocks are parsed anyway.
    fn section_header(&mut self, bytes: &[u8]) -> Result<Step, Step> {
        const LEAST: u32 = 28;
        let Some(&[_, _, _, _, a, b, c, d, e, f, g, h, i, j, k, l]) = bytes.first_chunk::<16>()
        else {
            return Err(Step::NeedMore { at_least: LEAST as usize });
        };
        let at = self.place();
        let big_endian = match [e, f, g, h] {
            magic if u32::from_le_bytes(magic) == BYTE_ORDER_MAGIC => false,
            magic if u32::from_be_bytes(magic) == BYTE_ORDER_MAGIC => true,
            magic => {
                let found = u32::from_le_bytes(magic);
                return Err(Step::Damaged(Damage(format!(
                    "byte-order magic {found:#010x} of a section header {at}: expected {BYTE_ORDER_MAGIC:#010x}"
                ))));
            }
        };
        let mut section = Section {
            big_endian,
            interfaces: Vec::new(),
            skipping: None,
            stated: 0,
            drops_before: self.section.drops(),
            previous_timestamp: self.section.previous_timestamp,
        };
        section.stated = section.u32([a, b, c, d]);
        // Minor version 2 is to be treated as 0 (section 4.1); any other is compatible by its
        // definition.
        let (major, minor) = (section.u16([i, j]), section.u16([k, l]));
        if major != MAJOR_VERSION {
            let damage = Damage::unsupported_version("pcapng", (major, minor), at, "1.0");
            return Err(Step::Damaged(damage));
        }
        let length = self.whole_length(SECTION_HEADER, section.stated)?;
        check_length(at, SECTION_HEADER, length, LEAST)?;
        self.section = section;
        self.skip_block(SECTION_HEADER, length, LEAST, bytes)
    }

    fn interface_description(&mut self, length: u32, bytes: &[u8]) -> Result<Step, Step> {
        let (&[a, b, _, _, c, d, e, f], options) =
            self.whole_block::<8>(INTERFACE_DESCRIPTION, length, bytes)?;
        let at = self.place();
        if self.section.interfaces.len() >= MAX_INTERFACES {
            return Err(Step::Damaged(Damage(format!(
                "one more interface {at}: expected {MAX_INTERFACES} in a section at most"
            ))));
        }
        let mut name = None;
        let mut resolution = Resolution::MICROSECONDS;
        let mut offset_seconds = 0;
        for option in self.section.options(options) {
            let bad = |(code, length, expected)| {
                Step::Damaged(Damage(format!(
                    "option {code} of an interface {at} has length {length}: expected {expected} at most"
                )))
            };
            let (code, value) = option.map_err(bad)?;
            // An option of an invalid length is ignored, as by Wireshark.
            match (code, value) {
                (option::IF_NAME, _) => name = Some(text(value)),
                (option::IF_TSRESOL, &[value]) => resolution = Resolution::from_option(value),
                (option::IF_TSOFFSET, _) => {
                    offset_seconds = value
                        .as_array()
                        .map_or(offset_seconds, |value| self.section.u64(*value).cast_signed());
                }
                _ => {}
            }
        }
        let link_type = self.section.u16([a, b]);
        let snaplen = self.section.u32([c, d, e, f]);
        let interface = CaptureInterface::new(name, link_type, snaplen, resolution, offset_seconds);
        self.section.interfaces.push(interface);
        Ok(self.skip(length as usize))
    }

    /// Reads statistics. They are optional: unknown interfaces, and options that exceed the block,
    /// are ignored.
    fn interface_statistics(&mut self, length: u32, bytes: &[u8]) -> Result<Step, Step> {
        let (&[a, b, c, d, ..], options) =
            self.whole_block::<12>(INTERFACE_STATISTICS, length, bytes)?;
        let id = self.section.u32([a, b, c, d]) as usize;
        let drops = self
            .section
            .options(options)
            .filter_map(Result::ok)
            .filter(|(code, _)| *code == option::ISB_IFDROP)
            .find_map(|(_, value)| value.as_array().map(|value| self.section.u64(*value)));
        if let (Some(interface), Some(drops)) = (self.section.interfaces.get_mut(id), drops) {
            interface.drops = drops;
        }
        Ok(self.skip(length as usize))
    }

    /// Returns the first `FIXED` bytes of the body of the block at the start of `bytes`, and the
    /// rest of the body.
    fn whole_block<'a, const FIXED: usize>(
        &self,
        block_type: u32,
        length: u32,
        bytes: &'a [u8],
    ) -> Result<(&'a [u8; FIXED], &'a [u8]), Step> {
        let at = self.place();
        let least = EMPTY_BLOCK + FIXED as u32;
        check_length(at, block_type, length, least)?;
        if length > MAX_BLOCK {
            return Err(Step::Damaged(Damage(format!(
                "length {length} of a block of type {block_type:#010x} {at}: expected {MAX_BLOCK} at most"
            ))));
        }
        let at_least = length as usize;
        let (body, trailing) = bytes
            .get(BLOCK_HEADER..at_least)
            .and_then(|rest| rest.split_last_chunk::<BLOCK_TRAILER>())
            .ok_or(Step::NeedMore { at_least })?;
        self.check_trailer(at, length, *trailing)?;
        body.split_first_chunk().ok_or(Step::NeedMore { at_least })
    }

    /// Returns the length of a block with its padding. The length must be a multiple of 4, but some
    /// programs exclude the padding.
    fn whole_length(&self, block_type: u32, length: u32) -> Result<u32, Step> {
        let too_short = || bad_length(self.place(), block_type, length, EMPTY_BLOCK);
        length.checked_next_multiple_of(4).ok_or_else(too_short)
    }

    /// Compares the length at the end of a block with the one at its start, with or without
    /// padding.
    fn check_trailer(
        &self,
        at: DamagePosition,
        leading: u32,
        trailing: [u8; 4],
    ) -> Result<(), Step> {
        let trailing = self.section.u32(trailing);
        if trailing != leading && trailing != self.section.stated {
            return Err(Step::Damaged(Damage(format!(
                "a block {at} ends with length {trailing}: expected {leading} as at its beginning"
            ))));
        }
        Ok(())
    }

    fn skip_block(
        &mut self,
        block_type: u32,
        length: u32,
        least: u32,
        bytes: &[u8],
    ) -> Result<Step, Step> {
        let at = self.place();
        check_length(at, block_type, length, least)?;
        self.skip_on(SkippedBlock { at, length, left: length }, bytes)
    }

    /// Skips the available part of the rest of a block, but the trailer only if it is complete.
    fn skip_on(&mut self, skipping: SkippedBlock, bytes: &[u8]) -> Result<Step, Step> {
        let body = skipping.left as usize - BLOCK_TRAILER;
        let trailing = bytes.get(body..).and_then(<[u8]>::first_chunk);
        self.section.skipping = Some(skipping);
        if let Some(trailing) = trailing {
            self.check_trailer(skipping.at, skipping.length, *trailing)?;
            self.section.skipping = None;
            return Ok(self.skip(skipping.left as usize));
        }
        let consumed = body.min(bytes.len());
        if consumed == 0 {
            return Err(Step::NeedMore { at_least: BLOCK_TRAILER });
        }
        self.section.skipping =
            Some(SkippedBlock { left: skipping.left - consumed as u32, ..skipping });
        Ok(self.skip(consumed))
    }
}

fn check_length(at: DamagePosition, block_type: u32, length: u32, least: u32) -> Result<(), Step> {
    if length < least { Err(bad_length(at, block_type, length, least)) } else { Ok(()) }
}

/// Describes a block length that is less than the block's fixed fields, or overflows with its
/// padding.
fn bad_length(at: DamagePosition, block_type: u32, length: u32, least: u32) -> Step {
    Step::Damaged(Damage(format!(
        "length {length} of a block of type {block_type:#010x} {at}: expected {least} or more"
    )))
}

/// Decodes a string option: up to its first zero byte, with invalid UTF-8 replaced (sections 3.5
/// and 3.6.3).
fn text(value: &[u8]) -> String {
    let value = value.get(..MAX_NAME).unwrap_or(value);
    let value = value.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(value).into_owned()
}
