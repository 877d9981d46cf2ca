//! Packets of a capture that are held back until their time has come.
//!
//! Captures hold packets out of order: of several queues or interfaces, of a clock that was set. Where the traffic has to stop,
//! at the end of a window or at a read, the capture is read on for as long as a packet from before may still come, and what is
//! not due yet is kept here. Nothing is copied anywhere else.

use crate::capture::{PacketsIn, Passed, Record, Run, Step, Walker};
use std::ops::Range;
use std::slice;
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
    packets: Packets,
}

/// Which packets of a piece.
enum Packets {
    /// All in a part of it, in the order of the capture. So are nearly all: they cost little more than their bytes.
    Run { walker: Walker, place: Range<usize>, run: Run },
    /// Those that start at these places in it, in order of their timestamps, those of one time in the order of the capture.
    Listed(Vec<Record>),
}

/// Listed packets, each with its frame.
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
    /// All packets in `bytes`, before which `walker` stands.
    pub(super) fn run(bytes: Vec<u8>, walker: Walker, run: Run) -> Self {
        let place = 0..bytes.len();
        Segment { bytes: Arc::new(bytes), packets: Packets::Run { walker, place, run } }
    }

    /// `records` are of packets in `bytes`, in the order of the capture.
    pub(super) fn listed(bytes: Vec<u8>, mut records: Vec<Record>) -> Self {
        records.sort_by_key(|record| record.timestamp);
        Segment { bytes: Arc::new(bytes), packets: Packets::Listed(records) }
    }

    /// The packets, of one kind or the other.
    pub(super) fn packets(&self) -> (PacketsIn<'_>, Listed<'_>) {
        let (walker, part, records) = match &self.packets {
            Packets::Run { walker, place, .. } => (walker.clone(), &self.bytes[place.clone()], Default::default()),
            Packets::Listed(records) => (Walker::new(), Default::default(), records.as_slice()),
        };
        (walker.packets_in(part), Listed { records: records.iter(), bytes: &self.bytes })
    }

    /// The bytes, unless other packets in them are held back.
    pub(super) fn into_bytes(self) -> Option<Vec<u8>> {
        Arc::into_inner(self.bytes)
    }

    fn is_empty(&self) -> bool {
        self.first().is_none()
    }

    /// The earliest timestamp.
    fn first(&self) -> Option<u64> {
        match &self.packets {
            Packets::Run { run, .. } => (run.packets > 0).then_some(run.earliest),
            Packets::Listed(records) => records.first().map(|record| record.timestamp),
        }
    }

    /// The latest timestamp.
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

    /// How many packets are of `time` or later.
    fn beyond(&self, time: u64) -> usize {
        match &self.packets {
            Packets::Run { run, .. } if run.latest < time => 0,
            Packets::Run { run, .. } if run.earliest >= time => run.packets as usize,
            Packets::Run { .. } => self.packets().0.filter(|(record, _)| record.timestamp >= time).count(),
            Packets::Listed(records) => records.len() - before(records, time),
        }
    }

    /// The packets from before `limit`, and the others.
    fn split(self, limit: u64) -> [Self; 2] {
        let Segment { bytes, packets } = self;
        let part = |packets| Segment { bytes: Arc::clone(&bytes), packets };
        let mut records = match packets {
            Packets::Listed(records) => records,
            Packets::Run { walker, place, .. } => {
                let mut behind = walker.clone();
                let Passed { consumed, run: due, .. } = behind.pass(&bytes[place.clone()], 0, limit);
                let middle = place.start + consumed;
                let Passed { consumed, run: later, .. } = behind.clone().pass(&bytes[middle..place.end], limit, u64::MAX);
                if middle + consumed == place.end {
                    let due = Packets::Run { walker, place: place.start..middle, run: due };
                    return [due, Packets::Run { walker: behind, place: middle..place.end, run: later }].map(part);
                }
                listed(walker, &bytes, place)
            }
        };
        let later = records.split_off(before(&records, limit));
        [records, later].map(Packets::Listed).map(part)
    }

    /// The same without the bytes that none of the packets is in, once these are most.
    fn compact(self) -> Self {
        let Packets::Listed(records) = &self.packets else { return self };
        let used: usize = records.iter().map(|record| record.captured as usize).sum();
        if self.bytes.len() < 4 * used + 4096 {
            return self;
        }
        let mut bytes = Vec::with_capacity(used);
        let mut keep = |record: &Record| {
            let start = bytes.len() as u32;
            bytes.extend_from_slice(record.frame(&self.bytes));
            Record { start, ..*record }
        };
        let records = records.iter().map(&mut keep).collect();
        Segment { bytes: Arc::new(bytes), packets: Packets::Listed(records) }
    }
}

/// What the packets of a run take, each as [`cost`] has it.
pub(super) fn run_cost(run: &Run) -> usize {
    run.captured as usize + run.packets as usize * size_of::<Record>()
}

fn before(records: &[Record], time: u64) -> usize {
    records.partition_point(|record| record.timestamp < time)
}

/// The packets at a place, in order of their timestamps.
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

impl Held {
    /// Bytes of the packets that are held back.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn push(&mut self, segment: Segment) {
        if !segment.is_empty() {
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
        self.segments.iter().map(|segment| segment.beyond(time)).sum()
    }

    /// Takes out every packet from before `limit`.
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
                let [due, later] = segment.split(limit);
                released.push(due);
                self.segments.push(later.compact());
            }
        }
        self.bytes -= released.iter().map(Segment::cost).sum::<usize>();
        released
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::build::{self, Packet, PcapNgOptions, PcapOptions};
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
        let bytes: Vec<u8> = times.iter().flat_map(|&time| vec![time as u8; length as usize]).collect();
        Segment::listed(bytes, (0..).zip(times).map(record).collect())
    }

    fn times(segments: &[Segment]) -> Vec<u64> {
        let packets = segments.iter().flat_map(|segment| segment.packets().1);
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

    /// Whatever order packets are in: what is held back as runs comes out as what is listed does.
    #[test]
    fn runs_come_out_as_what_is_listed() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        for round in 0..200 {
            let (mut runs, mut listed) = (Held::default(), Held::default());
            // In order, nearly so, and in no order.
            let disorder = [0, 20, 1000][round % 3];
            for part in 0..4 {
                let count = random.random_range(1..50);
                let packets: Vec<Packet> = (0..count)
                    .map(|number| {
                        let time = 1000 + part * 250 + number * 5 + random.random_range(0..=disorder);
                        Packet::new(time, vec![time as u8; random.random_range(1..90)])
                    })
                    .collect();
                let file = match round % 2 {
                    0 => build::pcap(&PcapOptions::default(), &packets),
                    _ => build::pcapng(&PcapNgOptions::default(), &packets),
                };
                let walker = Walker::new();
                let run = walker.clone().pass(&file, 0, u64::MAX).run;
                listed.push(Segment::listed(file.clone(), super::listed(walker.clone(), &file, 0..file.len())));
                runs.push(Segment::run(file, walker, run));
            }
            for limit in (1000..).step_by(97) {
                let beyond = limit + 150;
                assert_eq!(
                    (runs.next(), runs.bytes(), runs.beyond(beyond)),
                    (listed.next(), listed.bytes(), listed.beyond(beyond))
                );
                let [one, other] = [runs.release(limit), listed.release(limit)].map(|segments| contents(&segments));
                assert_eq!(one, other);
                assert!(one.iter().all(|(time, ..)| *time < limit));
                if runs.next().is_none() {
                    break;
                }
            }
            assert_eq!((runs.bytes(), listed.bytes(), listed.next()), (0, 0, None));
        }
    }

    /// Times, lengths and first bytes of packets, sorted.
    fn contents(segments: &[Segment]) -> Vec<(u64, u32, Option<u8>)> {
        let mut all = Vec::new();
        for segment in segments {
            let before = all.len();
            let (packets, listed) = segment.packets();
            all.extend(packets.chain(listed).map(|(record, frame)| (record.timestamp, record.wire, frame.first().copied())));
            let times = || all[before..].iter().map(|(time, ..)| *time);
            assert_eq!((times().min(), times().max()), (segment.first(), segment.last()));
        }
        all.sort_unstable();
        all
    }
}
