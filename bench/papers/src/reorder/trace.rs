//! Prefixes that reorder the packets of a capture, by both algorithms and several sizes.

use super::experiment::{
    ALGORITHMS, BETA, CountingTable, MEMORIES_LOG2, PrefixBehaviour, Setup, TableResult,
    count_frames,
};
use crate::error::ReproduceError;
use crate::report::{Cell, Column, Table};
use crate::trace::Trace;
use flowgauge_core::reorder::ExactReorder;
use flowgauge_core::{Arrival, Observation};
use flowgauge_ctl::measurement::reorder::estimate::MUCH;
use flowgauge_ctl::output::grouped;
use flowgauge_dataplane::poll::port::PortFrame;
use std::collections::HashMap;

/// Counts the packets of all windows of a trace as one window.
///
/// # Errors
/// As [`Trace::frames`], and [`ReproduceError::NoPackets`] without TCP segments that have data.
pub(crate) fn replay(trace: &Trace) -> Result<Vec<Table>, ReproduceError> {
    let setups = Setup::all();
    let mut tables: Vec<CountingTable> =
        setups.iter().map(|setup| CountingTable::new(*setup)).collect();
    // A trace has as many packets as its windows, which limit the flows.
    let (mut packets, mut exact) = (0_u64, ExactReorder::new(usize::MAX));
    let seen = |packet: &Observation| exact.count(0, packet);
    count_frames(&mut tables, 1, seen, |count| {
        trace.frames(|PortFrame { bytes, wire_length, timestamp, link }| {
            packets += 1;
            count(link, bytes, Arrival::new(wire_length, timestamp));
            packets < trace.packets()
        })
    })?;
    let exact = exact.take(0).unwrap_or_default();
    if exact.is_empty() {
        return Err(trace.without("TCP segment with data"));
    }
    let truth: HashMap<u64, PrefixBehaviour> =
        exact.iter().map(|counts| (counts.prefix, PrefixBehaviour::from_counts(counts))).collect();
    let heavy = truth.values().filter(|prefix| prefix.is_heavy).count();
    let caption = format!(
        "Prefixes that reorder packets: {} packets, {} prefixes with data segments, {heavy} of them heavy (at least {BETA} segments, more than {:.0} % of \
         them out of order)",
        grouped(packets),
        grouped(exact.len() as u64),
        MUCH * 100.0
    );
    let mut columns = vec![Column::number("", "buckets")];
    for algorithm in ALGORITHMS {
        columns.extend(
            ["found", "of them heavy", "segments followed, %"]
                .map(|name| Column::number(algorithm.name(), name)),
        );
    }
    let mut table = Table::new(caption, columns);
    let results: Vec<TableResult> = tables.iter().map(|table| table.results(&truth)).collect();
    for memory_log2 in MEMORIES_LOG2 {
        let mut row = vec![Cell::new(grouped(1 << memory_log2))];
        for algorithm in ALGORITHMS {
            let setup = Setup { algorithm, memory_log2 };
            let result = results.iter().find(|result| result.setup == setup);
            row.extend(result.map_or_else(Default::default, |result| {
                [
                    Cell::new(result.found),
                    Cell::new(result.found_heavy),
                    Cell::new(format!("{:.1}", result.share_followed() * 100.0)),
                ]
            }));
        }
        table.row(row);
    }
    Ok(vec![table])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reorder::Traffic;
    use crate::trace::tests::CaptureFile;
    use flowgauge_dataplane::capture::build::CapturePacket;
    use flowgauge_traffic::reorder::ReorderTraffic;

    #[test]
    fn a_capture_has_the_prefixes_that_its_generator_reorders() {
        let mut traffic = ReorderTraffic::new(Traffic::Usual.profile(100_000, 1));
        let mut packets = Vec::new();
        while let Some((at, frame)) = traffic.advance() {
            packets.push(CapturePacket::new(at, frame.to_vec()));
        }
        let file = CaptureFile::new("reorder", &packets);
        let text = replay(&file.trace(1 << 21, 1)).unwrap()[0].to_string();
        let (_, rest) = text.split_once("data segments, ").unwrap();
        let heavy: usize = rest.split(' ').next().unwrap().parse().unwrap();
        // Sequence numbers do not distinguish a late segment from one that was sent again.
        let large = || traffic.truth().iter().filter(|truth| truth.segments >= BETA);
        let share = |late: u64, segments: u64| late as f64 / segments as f64;
        let certain =
            large().filter(|truth| share(truth.out_of_order, truth.segments) > 2.0 * MUCH).count();
        let possible = large()
            .filter(|truth| {
                let late = truth.out_of_order + truth.filling + truth.repeated;
                share(late, truth.segments) > MUCH
            })
            .count();
        assert!(
            certain > 0 && (certain..=possible).contains(&heavy),
            "{certain} {possible}: {text}"
        );
    }

    #[test]
    fn captures_without_segments_are_refused() {
        let frame = crate::trace::tests::frame(1, 2);
        let file = CaptureFile::new("no-segments", &[CapturePacket::new(0, frame)]);
        let error = replay(&file.trace(10, 1)).unwrap_err().to_string();
        assert!(error.contains("no TCP segment with data"), "{error}");
    }
}
