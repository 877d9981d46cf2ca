//! Packets taken out of captures.

use super::{PacketRecord, PacketRun, Walker};

/// Copies of packets: their frames, one after the other, with their records.
///
/// Read by a [`Walker`] like a capture, but without parsing.
#[derive(Clone, Debug, Default)]
pub struct PacketList {
    /// Frames.
    pub(crate) bytes: Vec<u8>,
    /// Records, in the order in which packets were added.
    pub(crate) records: Vec<PacketRecord>,
    /// Summary of the packets.
    pub(crate) run: PacketRun,
}

impl PacketList {
    /// Creates an empty list that reuses `memory`, whose contents are discarded.
    #[must_use]
    pub fn with_memory(mut memory: Vec<u8>) -> Self {
        memory.clear();
        PacketList { bytes: memory, ..Self::default() }
    }

    /// Adds a copy of a packet.
    pub fn push(&mut self, record: &PacketRecord, frame: &[u8]) {
        let record = PacketRecord { start: 0, captured: frame.len() as u32, ..*record };
        self.bytes.extend_from_slice(frame);
        self.bytes.resize(self.bytes.len() + Self::length(&record) - frame.len(), 0);
        self.records.push(record);
        self.run.add(PacketRun::from(&record));
    }

    /// Returns the bytes that a packet takes in the list: a step of a walk consumes at least one.
    pub(super) fn length(record: &PacketRecord) -> usize {
        record.captured.max(1) as usize
    }

    /// Returns the bytes and the parser state before them.
    #[must_use]
    pub fn into_parts(self) -> (Vec<u8>, Walker) {
        (self.bytes, Walker::listed(self.records))
    }
}

impl<'a> FromIterator<(PacketRecord, &'a [u8])> for PacketList {
    fn from_iter<I: IntoIterator<Item = (PacketRecord, &'a [u8])>>(packets: I) -> Self {
        let mut list = PacketList::default();
        packets.into_iter().for_each(|(record, frame)| list.push(&record, frame));
        list
    }
}
