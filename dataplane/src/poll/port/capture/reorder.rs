//! Reorder buffer for packets of a capture.
//!
//! Captures contain packets out of order, from several queues or interfaces, or after the clock was
//! set. At the end of a window or at a sample, the capture is read further for as long as an
//! earlier packet may still follow, and packets that are not due yet are buffered here. Runs of
//! packets stay in the chunk that was read, unless they are a small part of it; other packets are
//! copied.

use super::buffer::Buffer;
use crate::capture::{
    PacketList, PacketRecord, PacketRun, PacketsIn, PassResult, TimeRange, Walker,
};
use std::ops::Range;
use std::sync::Arc;

/// Maximum size of the buffered packets in bytes, as counted by [`cost`].
pub(super) const MAX_BYTES: usize = 16 << 20;

/// Returns the memory that packets take, in bytes.
pub(super) fn cost(run: &PacketRun) -> usize {
    run.captured as usize + run.packets as usize * size_of::<PacketRecord>()
}

/// Consecutive packets in a chunk.
pub(super) struct ChunkRange {
    pub(super) buffer: Arc<Buffer>,
    /// Range in the chunk.
    pub(super) place: Range<usize>,
    /// Parser state before the range.
    pub(super) walker: Walker,
    /// Summary of the packets.
    pub(super) run: PacketRun,
    /// If no walk found the end of the packets, their times: counting ends at the first packet out
    /// of this range.
    pub(super) unwalked: Option<TimeRange>,
    /// Whether the packets are [sorted](Self::sorted) by time.
    pub(super) is_sorted: bool,
}

impl ChunkRange {
    /// Creates a range of copies of packets, by time; ties stay in their order.
    pub(super) fn sorted(mut packets: Vec<(PacketRecord, &[u8])>) -> Self {
        packets.sort_by_key(|(record, _)| record.timestamp);
        let list: PacketList = packets.into_iter().collect();
        let run = list.run;
        let (bytes, walker) = list.into_parts();
        let (place, buffer) = (0..bytes.len(), Arc::new(bytes.into()));
        ChunkRange { buffer, place, walker, run, unwalked: None, is_sorted: true }
    }

    /// Creates a range of the packets that a walk passed over, in their order in the chunk.
    pub(super) fn walked(
        buffer: Arc<Buffer>,
        place: Range<usize>,
        walker: Walker,
        run: PacketRun,
    ) -> Self {
        ChunkRange { buffer, place, walker, run, unwalked: None, is_sorted: false }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.place.clone()]
    }

    /// Returns an iterator over the packets.
    pub(super) fn packets(&self) -> PacketsIn<'_> {
        self.walker.clone().packets_in(self.bytes())
    }

    /// Returns whether there are neither packets nor other bytes in it.
    pub(super) fn is_empty(&self) -> bool {
        self.place.is_empty()
    }

    /// Returns the latest timestamp.
    pub(super) fn last(&self) -> Option<u64> {
        (self.run.packets > 0).then_some(self.run.latest)
    }

    /// Returns the number of packets with timestamp `time` or later.
    fn beyond(&self, time: u64) -> usize {
        match (&self.run, self.walker.listed_records()) {
            (run, _) if run.latest < time => 0,
            (run, _) if run.earliest >= time => run.packets as usize,
            (run, Some(records)) if self.is_sorted => {
                let before = records.partition_point(|record| record.timestamp < time);
                (run.packets as usize).saturating_sub(before)
            }
            _ => self.packets().filter(|(record, _)| record.timestamp >= time).count(),
        }
    }

    /// Splits into the packets before `limit` and the others.
    fn split(self, limit: u64) -> [Self; 2] {
        let mut after = self.walker.clone();
        let PassResult { consumed, run: due, .. } =
            after.pass(self.bytes(), TimeRange::new(0, limit));
        let (middle, end) = (self.place.start + consumed, self.place.end);
        let PassResult { consumed, run: later, .. } =
            after.clone().pass(&self.buffer[middle..end], TimeRange::new(limit, u64::MAX));
        if middle + consumed < end {
            return ChunkRange::sorted(self.packets().collect()).split(limit);
        }
        let later = ChunkRange {
            buffer: Arc::clone(&self.buffer),
            place: middle..end,
            walker: after,
            run: later,
            ..self
        };
        let due = ChunkRange { place: self.place.start..middle, run: due, ..self };
        [due, later]
    }

    /// Copies the packets into a buffer of their own, unless `used`, the bytes that all ranges of the
    /// buffer use, is a large part of it.
    fn compact(&mut self, used: usize) {
        if self.buffer.len() < 4 * used + 4096 {
            return;
        }
        let bytes = self.bytes().to_vec();
        self.walker.keep_listed(self.run.packets);
        (self.place, self.buffer) = (0..bytes.len(), Arc::new(bytes.into()));
    }
}

/// Buffered packets in no order.
#[derive(Default)]
pub(super) struct ReorderBuffer {
    segments: Vec<ChunkRange>,
    /// Size of the buffered packets, in bytes.
    pub(super) bytes: usize,
}

impl ReorderBuffer {
    pub(super) fn push(&mut self, segment: ChunkRange) {
        if segment.run.packets > 0 {
            self.bytes += cost(&segment.run);
            self.segments.push(segment);
        }
    }

    /// Returns the earliest timestamp.
    pub(super) fn next(&self) -> Option<u64> {
        self.segments.iter().map(|segment| segment.run.earliest).min()
    }

    /// Returns the number of packets with timestamp `time` or later.
    pub(super) fn beyond(&self, time: u64) -> usize {
        self.segments.iter().map(|segment| segment.beyond(time)).sum()
    }

    /// Removes and returns every packet before `limit`.
    pub(super) fn release(&mut self, limit: u64) -> Vec<ChunkRange> {
        let mut released = Vec::new();
        if self.next().is_none_or(|next| next >= limit) {
            return released;
        }
        for segment in std::mem::take(&mut self.segments) {
            if segment.run.latest < limit {
                released.push(segment);
            } else if segment.run.earliest >= limit {
                self.segments.push(segment);
            } else {
                let [due, mut later] = segment.split(limit);
                released.push(due);
                later.compact(later.place.len());
                self.segments.push(later);
            }
        }
        self.bytes -= released.iter().map(|segment| cost(&segment.run)).sum::<usize>();
        self.settle();
        released
    }

    /// Copies packets out of chunks that are mostly unused.
    pub(super) fn settle(&mut self) {
        let same = |one: &ChunkRange, other: &ChunkRange| Arc::ptr_eq(&one.buffer, &other.buffer);
        for segments in self.segments.chunk_by_mut(same) {
            let used = segments.iter().map(|segment| segment.place.len()).sum();
            segments.iter_mut().for_each(|segment| segment.compact(used));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::build::{self, CapturePacket, PcapNgOptions, PcapOptions, PcapVariant};
    use flowgauge_core::Link;
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;

    fn segment(times: &[u64], length: u32) -> ChunkRange {
        let record = |(start, &timestamp): (u32, &u64)| PacketRecord {
            start: start * length,
            captured: length,
            wire: length,
            timestamp,
            link: Link::Ethernet,
            link_type: 1,
            interface: 0,
        };
        let bytes: Vec<u8> =
            times.iter().flat_map(|&time| vec![time as u8; length as usize]).collect();
        ChunkRange::sorted(
            (0..).zip(times).map(record).map(|record| (record, record.frame(&bytes))).collect(),
        )
    }

    fn times(segments: &[ChunkRange]) -> Vec<u64> {
        let packets = segments.iter().flat_map(ChunkRange::packets);
        packets
            .inspect(|(record, frame)| {
                assert!(frame.iter().all(|byte| *byte == record.timestamp as u8))
            })
            .map(|(record, _)| record.timestamp)
            .collect()
    }

    #[test]
    fn packets_come_out_when_their_time_has_come() {
        let mut buffered = ReorderBuffer::default();
        buffered.push(segment(&[5, 3, 9, 3, 200], 10_000));
        buffered.push(segment(&[], 0));
        buffered.push(segment(&[4, 250], 10));
        assert_eq!((buffered.next(), buffered.beyond(5), buffered.beyond(201)), (Some(3), 4, 1));
        assert!(buffered.release(3).is_empty());
        assert_eq!(times(&buffered.release(5)), [3, 3, 4]);
        assert_eq!(times(&buffered.release(10)), [5, 9]);
        // The remaining packets do not reference the bytes of released ones.
        let kept: usize = buffered.segments.iter().map(|segment| segment.buffer.len()).sum();
        assert_eq!(kept, 10_020);
        assert_eq!(times(&buffered.release(u64::MAX)), [200, 250]);
        assert_eq!((buffered.next(), buffered.bytes), (None, 0));
    }

    /// Runs are released exactly like listed packets, whatever the order of packets.
    #[test]
    fn runs_are_released_like_listed_packets() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        for round in 0..200 {
            let (mut runs, mut listed) = (ReorderBuffer::default(), ReorderBuffer::default());
            // In order, nearly in order, and in random order.
            let disorder = [0, 20, 1000][round % 3];
            for part in 0..4 {
                let count = random.random_range(1..50);
                let packets: Vec<CapturePacket> = (0..count)
                    .map(|number| {
                        let time =
                            1000 + part * 250 + number * 5 + random.random_range(0..=disorder);
                        CapturePacket::new(time, vec![time as u8; random.random_range(1..90)])
                    })
                    .collect();
                let file = match round % 2 {
                    0 => build::pcap(&nanoseconds(), &packets),
                    _ => build::pcapng(&PcapNgOptions::default(), &packets),
                };
                let walker = Walker::new();
                let run = walker.clone().pass(&file, TimeRange::ALL).run;
                listed.push(ChunkRange::sorted(walker.clone().packets_in(&file).collect()));
                let place = 0..file.len();
                let buffer = Arc::new(file.into());
                runs.push(ChunkRange::walked(buffer, place, walker, run));
            }
            for limit in (1000..).step_by(97) {
                let beyond = limit + 150;
                assert_eq!(
                    (runs.next(), runs.bytes, runs.beyond(beyond)),
                    (listed.next(), listed.bytes, listed.beyond(beyond))
                );
                let [one, other] = [runs.release(limit), listed.release(limit)]
                    .map(|segments| contents(&segments));
                assert_eq!(one, other);
                assert!(one.iter().all(|(time, ..)| *time < limit));
                if runs.next().is_none() {
                    break;
                }
            }
            assert_eq!((runs.bytes, listed.bytes, listed.next()), (0, 0, None));
        }
    }

    fn nanoseconds() -> PcapOptions {
        PcapOptions { variant: PcapVariant::Nanoseconds, ..PcapOptions::default() }
    }

    #[test]
    fn runs_free_chunks_that_are_mostly_unused() {
        let packets: Vec<CapturePacket> =
            (0..10_000).map(|time| CapturePacket::new(time, vec![time as u8; 60])).collect();
        let file = Arc::new(Buffer::from(build::pcap(&nanoseconds(), &packets)));
        let (mut buffered, mut walker, mut at) = (ReorderBuffer::default(), Walker::new(), 0);
        while at < file.len() {
            let before = walker.clone();
            let PassResult { consumed, run, .. } =
                walker.pass(&file[at..file.len().min(at + 7600)], TimeRange::ALL);
            let (buffer, place) = (Arc::clone(&file), at..at + consumed);
            buffered.push(ChunkRange::walked(buffer, place, before, run));
            at += consumed;
        }
        let count = || Arc::strong_count(&file);
        // Everything is buffered, then half, then a tenth, which ends in the last part.
        buffered.settle();
        assert!(count() > 90);
        assert_eq!(contents(&buffered.release(5000)).len(), 5000);
        assert!(count() > 40);
        assert_eq!(contents(&buffered.release(9000)).len(), 4000);
        assert_eq!(count(), 1);
        let rest = contents(&buffered.release(u64::MAX));
        assert!(rest.iter().map(|(time, ..)| *time).eq(9000..10_000));
    }

    #[test]
    fn compacted_segments_keep_their_own_records_only() {
        let record = |time| PacketRecord {
            start: 0,
            captured: 10,
            wire: 10,
            timestamp: time,
            link: Link::Ethernet,
            link_type: 1,
            interface: 0,
        };
        let packets: PacketList = (0..1000).map(|time| (record(time), &[7; 10][..])).collect();
        let (bytes, mut walker) = packets.into_parts();
        let PassResult { consumed, .. } = walker.pass(&bytes, TimeRange::new(0, 100));
        let PassResult { consumed: length, run, .. } =
            walker.clone().pass(&bytes[consumed..], TimeRange::new(100, 120));
        let (buffer, place) = (Arc::new(bytes.into()), consumed..consumed + length);
        let mut segment = ChunkRange::walked(buffer, place, walker, run);
        segment.compact(length);
        assert_eq!(segment.buffer.len(), 200);
        assert_eq!(segment.walker.listed_records().unwrap().len(), 20);
        assert!(segment.packets().map(|(record, _)| record.timestamp).eq(100..120));
    }

    /// Returns times, lengths and first bytes of packets, sorted.
    fn contents(segments: &[ChunkRange]) -> Vec<(u64, u32, Option<u8>)> {
        let mut all = Vec::new();
        for segment in segments {
            let before = all.len();
            all.extend(
                segment
                    .packets()
                    .map(|(record, frame)| (record.timestamp, record.wire, frame.first().copied())),
            );
            let times = || all[before..].iter().map(|(time, ..)| *time);
            let PacketRun { earliest, latest, .. } = segment.run;
            assert_eq!((times().min(), times().max()), (Some(earliest), Some(latest)));
        }
        all.sort_unstable();
        all
    }
}
