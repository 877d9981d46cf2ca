//! Reorder buffer for packets of a capture.
//!
//! Captures contain packets out of order, from several queues or interfaces, or after the clock was
//! set. At the end of a window or at a sample, the capture is read further for as long as an
//! earlier packet may still follow, and packets that are not due yet are buffered here. Runs of
//! packets stay in the chunk that was read, unless they are a small part of it; other packets are
//! copied.

use super::pcap::Buffer;
use crate::capture::{PacketsIn, Passed, Record, Run, Step, Walker};
use std::ops::Range;
use std::slice;
use std::sync::Arc;

/// Maximum size of the buffered packets in bytes, as counted by [`cost`].
pub(super) const MAX_BYTES: usize = 16 << 20;

/// Returns the memory that a buffered packet takes, in bytes.
pub(super) fn cost(record: &Record) -> usize {
    record.captured as usize + size_of::<Record>()
}

/// Buffered packets in no order.
#[derive(Default)]
pub(super) struct ReorderBuffer {
    segments: Vec<Segment>,
    bytes: usize,
}

/// A slice of the capture and packets in it.
pub(super) struct Segment {
    bytes: Arc<Buffer>,
    packets: Packets,
}

/// Selection of packets in a slice.
enum Packets {
    /// All packets of a range, in the order of the capture. The common case: it needs little more
    /// memory than the packets' bytes.
    Run { walker: Walker, place: Range<usize>, run: Run },
    /// Packets that start at these offsets, ordered by timestamp, ties in the order of the capture.
    Listed(Vec<Record>),
}

/// Iterator over listed packets with their frames.
#[derive(Default)]
pub(super) struct Listed<'a> {
    records: slice::Iter<'a, Record>,
    bytes: &'a [u8],
}

impl<'a> Iterator for Listed<'a> {
    type Item = (Record, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.records.next().map(|record| (*record, record.frame(self.bytes)))
    }
}

impl Segment {
    /// Creates a segment of all packets in the range `place` of `bytes`; `walker` is the parser
    /// state before it.
    pub(super) fn run(bytes: Arc<Buffer>, place: Range<usize>, walker: Walker, run: Run) -> Self {
        Segment { bytes, packets: Packets::Run { walker, place, run } }
    }

    /// Creates a segment of single packets in `bytes`, given in the order of the capture.
    pub(super) fn listed(bytes: Vec<u8>, mut records: Vec<Record>) -> Self {
        records.sort_by_key(|record| record.timestamp);
        Segment { bytes: Arc::new(bytes.into()), packets: Packets::Listed(records) }
    }

    /// Returns iterators over the run and over the listed packets; one of the two is empty.
    pub(super) fn packets(&self) -> (PacketsIn<'_>, Listed<'_>) {
        let (walker, part, records) = match &self.packets {
            Packets::Run { walker, place, .. } => {
                (walker.clone(), &self.bytes[place.clone()], Default::default())
            }
            Packets::Listed(records) => (Walker::new(), Default::default(), records.as_slice()),
        };
        (walker.packets_in(part), Listed { records: records.iter(), bytes: &self.bytes })
    }

    /// Returns the buffer, unless other packets still reference it.
    pub(super) fn into_bytes(self) -> Option<Buffer> {
        Arc::into_inner(self.bytes)
    }

    /// Returns how many of the bytes belong to the packets.
    fn used(&self) -> usize {
        match &self.packets {
            Packets::Run { place, .. } => place.len(),
            Packets::Listed(records) => records.iter().map(|record| record.captured as usize).sum(),
        }
    }

    fn is_run(&self) -> bool {
        matches!(self.packets, Packets::Run { .. })
    }

    fn is_empty(&self) -> bool {
        self.first().is_none()
    }

    /// Returns the earliest timestamp.
    fn first(&self) -> Option<u64> {
        match &self.packets {
            Packets::Run { run, .. } => (run.packets > 0).then_some(run.earliest),
            Packets::Listed(records) => records.first().map(|record| record.timestamp),
        }
    }

    /// Returns the latest timestamp.
    pub(super) fn last(&self) -> Option<u64> {
        match &self.packets {
            Packets::Run { run, .. } => (run.packets > 0).then_some(run.latest),
            Packets::Listed(records) => records.last().map(|record| record.timestamp),
        }
    }

    fn cost(&self) -> usize {
        match &self.packets {
            Packets::Run { run, .. } => run_cost(run),
            Packets::Listed(records) => records.iter().map(cost).sum(),
        }
    }

    /// Returns the number of packets with timestamp `time` or later.
    fn beyond(&self, time: u64) -> usize {
        match &self.packets {
            Packets::Run { run, .. } if run.latest < time => 0,
            Packets::Run { run, .. } if run.earliest >= time => run.packets as usize,
            Packets::Run { .. } => {
                self.packets().0.filter(|(record, _)| record.timestamp >= time).count()
            }
            Packets::Listed(records) => records.len() - before(records, time),
        }
    }

    /// Splits into the packets before `limit` and the others.
    fn split(self, limit: u64) -> [Self; 2] {
        let Segment { bytes, packets } = self;
        let part = |packets| Segment { bytes: Arc::clone(&bytes), packets };
        let mut records = match packets {
            Packets::Listed(records) => records,
            Packets::Run { walker, place, .. } => {
                let mut behind = walker.clone();
                let Passed { consumed, run: due, .. } =
                    behind.pass(&bytes[place.clone()], 0, limit);
                let middle = place.start + consumed;
                let Passed { consumed, run: later, .. } =
                    behind.clone().pass(&bytes[middle..place.end], limit, u64::MAX);
                if middle + consumed == place.end {
                    let due = Packets::Run { walker, place: place.start..middle, run: due };
                    return [
                        due,
                        Packets::Run { walker: behind, place: middle..place.end, run: later },
                    ]
                    .map(part);
                }
                listed(walker, &bytes, place)
            }
        };
        let later = records.split_off(before(&records, limit));
        [records, later].map(Packets::Listed).map(part)
    }

    /// Copies the packets into a buffer of their own, unless `used`, the bytes that all these
    /// packets use, is a large part of the old one.
    fn compact(&mut self, used: usize) {
        if self.bytes.len() < 4 * used + 4096 {
            return;
        }
        let mut bytes = Vec::with_capacity(self.used());
        match &mut self.packets {
            Packets::Run { place, .. } => {
                bytes.extend_from_slice(&self.bytes[place.clone()]);
                *place = 0..bytes.len();
            }
            Packets::Listed(records) => {
                for record in records {
                    let start = bytes.len() as u32;
                    bytes.extend_from_slice(record.frame(&self.bytes));
                    record.start = start;
                }
            }
        }
        self.bytes = Arc::new(bytes.into());
    }
}

/// Returns the memory that the packets of a run take, counted as by [`cost`].
pub(super) fn run_cost(run: &Run) -> usize {
    run.captured as usize + run.packets as usize * size_of::<Record>()
}

fn before(records: &[Record], time: u64) -> usize {
    records.partition_point(|record| record.timestamp < time)
}

/// Returns the records in a range, ordered by timestamp.
fn listed(mut walker: Walker, bytes: &[u8], place: Range<usize>) -> Vec<Record> {
    let (mut records, mut at) = (Vec::new(), place.start);
    loop {
        match walker.next(&bytes[at..place.end]) {
            Step::Packet { record, consumed } => {
                records.push(Record { start: record.start + at as u32, ..record });
                at += consumed;
            }
            Step::Skip { consumed } => at += consumed,
            Step::NeedMore { .. } | Step::Damaged(_) => break,
        }
    }
    records.sort_by_key(|record| record.timestamp);
    records
}

impl ReorderBuffer {
    /// Returns the size of the buffered packets, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn push(&mut self, segment: Segment) {
        if !segment.is_empty() {
            self.bytes += segment.cost();
            self.segments.push(segment);
        }
    }

    /// Returns the earliest timestamp.
    pub(super) fn next(&self) -> Option<u64> {
        self.segments.iter().filter_map(Segment::first).min()
    }

    /// Returns the number of packets with timestamp `time` or later.
    pub(super) fn beyond(&self, time: u64) -> usize {
        self.segments.iter().map(|segment| segment.beyond(time)).sum()
    }

    /// Removes and returns every packet before `limit`.
    pub(super) fn release(&mut self, limit: u64) -> Vec<Segment> {
        let mut released = Vec::new();
        if self.next().is_none_or(|next| next >= limit) {
            return released;
        }
        for segment in std::mem::take(&mut self.segments) {
            if segment.last() < Some(limit) {
                released.push(segment);
            } else if segment.first() >= Some(limit) {
                self.segments.push(segment);
            } else {
                let [due, mut later] = segment.split(limit);
                released.push(due);
                later.compact(later.used());
                self.segments.push(later);
            }
        }
        self.bytes -= released.iter().map(Segment::cost).sum::<usize>();
        self.settle();
        released
    }

    /// Copies runs out of chunks that are mostly unused. Listed packets have buffers of their own.
    pub(super) fn settle(&mut self) {
        let runs = |one: &Segment, other: &Segment| {
            Arc::ptr_eq(&one.bytes, &other.bytes) && one.is_run() && other.is_run()
        };
        for segments in
            self.segments.chunk_by_mut(runs).filter(|segments| segments.iter().any(Segment::is_run))
        {
            let used = segments.iter().map(Segment::used).sum();
            segments.iter_mut().for_each(|segment| segment.compact(used));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::build::{self, Packet, PcapNgOptions, PcapOptions, PcapVariant};
    use flowgauge_core::Link;
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;

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
        let bytes: Vec<u8> =
            times.iter().flat_map(|&time| vec![time as u8; length as usize]).collect();
        Segment::listed(bytes, (0..).zip(times).map(record).collect())
    }

    fn times(segments: &[Segment]) -> Vec<u64> {
        let packets = segments.iter().flat_map(|segment| segment.packets().1);
        packets
            .inspect(|(record, frame)| {
                assert!(frame.iter().all(|byte| *byte == record.timestamp as u8))
            })
            .map(|(record, _)| record.timestamp)
            .collect()
    }

    #[test]
    fn packets_come_out_when_their_time_has_come() {
        let mut held = ReorderBuffer::default();
        held.push(segment(&[5, 3, 9, 3, 200], 10_000));
        held.push(segment(&[], 0));
        held.push(segment(&[4, 250], 10));
        assert_eq!((held.next(), held.beyond(5), held.beyond(201)), (Some(3), 4, 1));
        assert!(held.release(3).is_empty());
        assert_eq!(times(&held.release(5)), [3, 3, 4]);
        assert_eq!(times(&held.release(10)), [5, 9]);
        // The remaining packets do not reference the bytes of released ones.
        let kept: usize = held.segments.iter().map(|segment| segment.bytes.len()).sum();
        assert_eq!(kept, 10_020);
        assert_eq!(times(&held.release(u64::MAX)), [200, 250]);
        assert_eq!((held.next(), held.bytes()), (None, 0));
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
                let packets: Vec<Packet> = (0..count)
                    .map(|number| {
                        let time =
                            1000 + part * 250 + number * 5 + random.random_range(0..=disorder);
                        Packet::new(time, vec![time as u8; random.random_range(1..90)])
                    })
                    .collect();
                let file = match round % 2 {
                    0 => build::pcap(&nanoseconds(), &packets),
                    _ => build::pcapng(&PcapNgOptions::default(), &packets),
                };
                let walker = Walker::new();
                let run = walker.clone().pass(&file, 0, u64::MAX).run;
                listed.push(Segment::listed(
                    file.clone(),
                    super::listed(walker.clone(), &file, 0..file.len()),
                ));
                let place = 0..file.len();
                runs.push(Segment::run(Arc::new(file.into()), place, walker, run));
            }
            for limit in (1000..).step_by(97) {
                let beyond = limit + 150;
                assert_eq!(
                    (runs.next(), runs.bytes(), runs.beyond(beyond)),
                    (listed.next(), listed.bytes(), listed.beyond(beyond))
                );
                let [one, other] = [runs.release(limit), listed.release(limit)]
                    .map(|segments| contents(&segments));
                assert_eq!(one, other);
                assert!(one.iter().all(|(time, ..)| *time < limit));
                if runs.next().is_none() {
                    break;
                }
            }
            assert_eq!((runs.bytes(), listed.bytes(), listed.next()), (0, 0, None));
        }
    }

    fn nanoseconds() -> PcapOptions {
        PcapOptions { variant: PcapVariant::Nanoseconds, ..PcapOptions::default() }
    }

    #[test]
    fn runs_free_chunks_that_are_mostly_unused() {
        let packets: Vec<Packet> =
            (0..10_000).map(|time| Packet::new(time, vec![time as u8; 60])).collect();
        let file = Arc::new(Buffer::from(build::pcap(&nanoseconds(), &packets)));
        let (mut held, mut walker, mut at) = (ReorderBuffer::default(), Walker::new(), 0);
        while at < file.len() {
            let before = walker.clone();
            let Passed { consumed, run, .. } =
                walker.pass(&file[at..file.len().min(at + 7600)], 0, u64::MAX);
            held.push(Segment::run(Arc::clone(&file), at..at + consumed, before, run));
            at += consumed;
        }
        let count = || Arc::strong_count(&file);
        // Everything is buffered, then half, then a tenth, which ends in the last part.
        held.settle();
        assert!(count() > 90);
        assert_eq!(contents(&held.release(5000)).len(), 5000);
        assert!(count() > 40);
        assert_eq!(contents(&held.release(9000)).len(), 4000);
        assert_eq!(count(), 1);
        let rest = contents(&held.release(u64::MAX));
        assert!(rest.iter().map(|(time, ..)| *time).eq(9000..10_000));
    }

    /// Returns times, lengths and first bytes of packets, sorted.
    fn contents(segments: &[Segment]) -> Vec<(u64, u32, Option<u8>)> {
        let mut all = Vec::new();
        for segment in segments {
            let before = all.len();
            let (packets, listed) = segment.packets();
            all.extend(
                packets
                    .chain(listed)
                    .map(|(record, frame)| (record.timestamp, record.wire, frame.first().copied())),
            );
            let times = || all[before..].iter().map(|(time, ..)| *time);
            assert_eq!((times().min(), times().max()), (segment.first(), segment.last()));
        }
        all.sort_unstable();
        all
    }
}
