//! Packets of a capture that are held back until their time has come.
//!
//! Captures hold packets out of order: of several queues or interfaces, of a clock that was set. Where the traffic has to stop,
//! at the end of a window or at a read, the capture is read on for as long as a packet from before may still come, and what is
//! not due yet is kept here. Nothing is copied anywhere else.

use crate::capture::Record;
use std::sync::Arc;

/// The most bytes that are held back, of packets as [`cost`] counts them.
pub(super) const MOST: usize = 16 << 20;

/// What a packet that is held back takes.
pub(super) fn cost(record: &Record) -> usize {
    record.captured as usize + size_of::<Record>()
}

/// Packets in no order.
#[derive(Default)]
pub(super) struct Held {
    segments: Vec<Segment>,
    bytes: usize,
}

/// A piece of the capture and packets in it.
pub(super) struct Segment {
    bytes: Arc<Vec<u8>>,
    /// In order of their timestamps, those of one time in the order of the capture. They start where they are in `bytes`.
    records: Vec<Record>,
}

impl Segment {
    /// `records` are of packets in `bytes`, in the order of the capture.
    pub(super) fn new(bytes: Vec<u8>, mut records: Vec<Record>) -> Self {
        records.sort_by_key(|record| record.timestamp);
        Segment { bytes: Arc::new(bytes), records }
    }

    /// The packets, each with its frame.
    pub(super) fn packets(&self) -> impl Iterator<Item = (&Record, &[u8])> {
        self.records.iter().map(|record| (record, record.frame(&self.bytes)))
    }

    fn first(&self) -> Option<u64> {
        self.records.first().map(|record| record.timestamp)
    }

    /// The latest timestamp.
    pub(super) fn last(&self) -> Option<u64> {
        self.records.last().map(|record| record.timestamp)
    }

    fn cost(&self) -> usize {
        self.records.iter().map(cost).sum()
    }

    fn before(&self, time: u64) -> usize {
        self.records.partition_point(|record| record.timestamp < time)
    }

    /// The same without the bytes that none of the packets is in, once these are most.
    fn compact(self) -> Self {
        let used: usize = self.records.iter().map(|record| record.captured as usize).sum();
        if self.bytes.len() < 4 * used + 4096 {
            return self;
        }
        let mut bytes = Vec::with_capacity(used);
        let mut keep = |record: Record| {
            let start = bytes.len() as u32;
            bytes.extend_from_slice(record.frame(&self.bytes));
            Record { start, ..record }
        };
        let records = self.records.iter().copied().map(&mut keep).collect();
        Segment { bytes: Arc::new(bytes), records }
    }
}

impl Held {
    /// Bytes of the packets that are held back.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn push(&mut self, segment: Segment) {
        if !segment.records.is_empty() {
            self.bytes += segment.cost();
            self.segments.push(segment);
        }
    }

    /// The earliest timestamp.
    pub(super) fn next(&self) -> Option<u64> {
        self.segments.iter().filter_map(Segment::first).min()
    }

    /// Packets of `time` or later.
    pub(super) fn beyond(&self, time: u64) -> usize {
        self.segments.iter().map(|segment| segment.records.len() - segment.before(time)).sum()
    }

    /// Takes out every packet from before `limit`.
    pub(super) fn release(&mut self, limit: u64) -> Vec<Segment> {
        let mut released = Vec::new();
        if self.next().is_none_or(|next| next >= limit) {
            return released;
        }
        let split = |mut segment: Segment| {
            let due = segment.before(limit);
            if due == 0 {
                return segment;
            }
            let later = segment.records.split_off(due);
            let rest = Segment { bytes: Arc::clone(&segment.bytes), records: later };
            released.push(segment);
            rest
        };
        let rest = std::mem::take(&mut self.segments).into_iter().map(split);
        self.segments = rest.filter(|rest| !rest.records.is_empty()).map(Segment::compact).collect();
        self.bytes -= released.iter().map(Segment::cost).sum::<usize>();
        released
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowgauge_core::Link;

    fn segment(times: &[u64], length: u32) -> Segment {
        let record = |(start, &timestamp): (u32, &u64)| Record {
            start: start * length,
            captured: length,
            wire: length,
            timestamp,
            link: Link::Ethernet,
            link_type: 1,
            interface: 0,
        };
        let bytes: Vec<u8> = times.iter().flat_map(|&time| vec![time as u8; length as usize]).collect();
        Segment::new(bytes, (0..).zip(times).map(record).collect())
    }

    fn times(segments: &[Segment]) -> Vec<u64> {
        let packets = segments.iter().flat_map(Segment::packets);
        packets
            .inspect(|(record, frame)| assert!(frame.iter().all(|byte| *byte == record.timestamp as u8)))
            .map(|(record, _)| record.timestamp)
            .collect()
    }

    #[test]
    fn packets_come_out_when_their_time_has_come() {
        let mut held = Held::default();
        held.push(segment(&[5, 3, 9, 3, 200], 10_000));
        held.push(segment(&[], 0));
        held.push(segment(&[4, 250], 10));
        assert_eq!((held.next(), held.beyond(5), held.beyond(201)), (Some(3), 4, 1));
        assert!(held.release(3).is_empty());
        assert_eq!(times(&held.release(5)), [3, 3, 4]);
        assert_eq!(times(&held.release(10)), [5, 9]);
        // What is left does not keep the bytes of what is gone.
        let kept: usize = held.segments.iter().map(|segment| segment.bytes.len()).sum();
        assert_eq!(kept, 10_020);
        assert_eq!(times(&held.release(u64::MAX)), [200, 250]);
        assert_eq!((held.next(), held.bytes()), (None, 0));
    }
}
