//! Delays of a capture through simulated tables: Figure 2.2 on a trace of one's own, other shares,
//! fridges of any number, and other times of expiry.
//!
//! As in the dissertation (§2.4), TCP segments with data are requests, and the acknowledgement of
//! all of a segment is its answer; of both directions, as a capture does not tell which of them
//! leaves. A segment that was sent again has no delay: it is unknown which packet is acknowledged.

use super::experiment::{ADMITS_LOG2, Errors};
use super::simulation::{Event, SimulatedTable, truth};
use crate::error::ReproduceError;
use crate::parallel::{self, Progress};
use crate::report::{Cell, Column, Table, number_cell};
use crate::statistics::Spread;
use crate::trace::{Trace, hash};
use flowgauge::reproduce::FridgeShape;
use flowgauge_core::parse::{self, Packet};
use flowgauge_core::segment::flags;
use flowgauge_ctl::output::grouped;
use flowgauge_dataplane::poll::port::PortFrame;
use hashbrown::HashMap;

/// Shares of the true delays at which requests expire, in the sweep.
const EXPIRIES: [f64; 6] = [0.5, 0.8, 0.9, 0.95, 0.99, 0.999];

/// Protocol number of TCP.
const TCP: u8 = 6;

/// Fields of a TCP segment.
struct TcpFields<'a> {
    source: &'a [u8],
    destination: &'a [u8],
    source_port: [u8; 2],
    destination_port: [u8; 2],
    sequence: u32,
    acknowledgement: u32,
    flags: u8,
    payload: u32,
}

/// Returns the TCP segment of a packet; `None` for other packets, fragments, truncated headers, and
/// those after extension headers of IPv6.
fn tcp<'a>(frame: &'a [u8], packet: &Packet<'_>) -> Option<TcpFields<'a>> {
    let network = frame.get(packet.offset()..)?;
    let (before, source, destination, protocol) = match packet {
        Packet::V4(_) => (usize::from(network.first()? & 0xf) * 4, 12..16, 16..20, 9),
        Packet::V6(_) => (40, 8..24, 24..40, 6),
    };
    // Ports are zero in a later fragment.
    let transport = parse::transport(frame, packet);
    if *network.get::<usize>(protocol)? != TCP || transport.ports == [0; 4] {
        return None;
    }
    let header: &[u8; 20] = network.get(before..)?.first_chunk()?;
    let &[p0, p1, q0, q1, s0, s1, s2, s3, a0, a1, a2, a3, data_offset, flags, ..] = header;
    let headers = before + usize::from(data_offset >> 4) * 4;
    Some(TcpFields {
        source: network.get(source)?,
        destination: network.get(destination)?,
        source_port: [p0, p1],
        destination_port: [q0, q1],
        sequence: u32::from_be_bytes([s0, s1, s2, s3]),
        acknowledgement: u32::from_be_bytes([a0, a1, a2, a3]),
        flags,
        payload: packet.total_length().saturating_sub(headers as u32),
    })
}

/// Requests that wait for their answers.
#[derive(Default)]
struct Requests {
    /// Time of each request; `None` if it was sent again.
    waiting: HashMap<u64, Option<u64>>,
    events: Vec<Event>,
}

impl Requests {
    /// Adds the request and the answer in a segment.
    fn add(&mut self, segment: &TcpFields<'_>, at_ns: u64) {
        let TcpFields { source, destination, source_port, destination_port, .. } = segment;
        if segment.payload > 0 && segment.flags & (flags::SYN | flags::RST) == 0 {
            let fin = u32::from(segment.flags & flags::FIN);
            let end = segment.sequence.wrapping_add(segment.payload).wrapping_add(fin);
            let end = end.to_be_bytes();
            let id = hash(&[source, destination, source_port, destination_port, &end], 0).max(1);
            let is_new = self.waiting.insert(id, Some(at_ns)).is_none();
            if is_new {
                self.events.push(Event { id, at_ns, delay_ns: None });
            } else {
                self.waiting.insert(id, None);
            }
        }
        if segment.flags & (flags::ACK | flags::SYN | flags::RST) == flags::ACK {
            let end = segment.acknowledgement.to_be_bytes();
            let id = hash(&[destination, source, destination_port, source_port, &end], 0).max(1);
            if let Some(Some(since)) = self.waiting.remove(&id) {
                let delay_ns = Some(at_ns.saturating_sub(since));
                self.events.push(Event { id, at_ns, delay_ns });
            }
        }
    }
}

/// Returns the requests and answers of a trace.
fn events(trace: &Trace) -> Result<Vec<Event>, ReproduceError> {
    let (mut requests, mut packets) = (Requests::default(), 0_u64);
    trace.frames(|PortFrame { bytes, link, timestamp, .. }| {
        packets += 1;
        let packet = parse::counted(bytes, link, &parse::Settings::DEFAULT).ok();
        if let Some(segment) = packet.and_then(|packet| tcp(bytes, &packet)) {
            requests.add(&segment, timestamp);
        }
        packets < trace.packets()
    })?;
    if requests.events.iter().any(|event| event.delay_ns.is_some()) {
        Ok(requests.events)
    } else {
        Err(trace.without("TCP segment with its acknowledgement"))
    }
}

/// Returns the tables to compare: their names, and themselves.
fn tables(fridges: &[FridgeShape], delays: &[u64]) -> Vec<(String, SimulatedTable)> {
    let slots: usize = fridges.iter().map(|fridge| fridge.slots).sum();
    let shares = ADMITS_LOG2.map(|log2| {
        let fridge = FridgeShape { slots, admitted: 2_f64.powi(-i32::from(log2)) };
        let name = format!("fridge, p = 1/{}", 1_u32 << log2);
        (name, SimulatedTable::Fridges(vec![fridge]))
    });
    let several =
        (format!("--fridges ({})", fridges.len()), SimulatedTable::Fridges(fridges.to_vec()));
    let overwrite = ("overwrite".to_owned(), SimulatedTable::Overwrite { slots });
    let expiries = EXPIRIES.map(|share| {
        let expiry_ns = super::experiment::exact(delays, share);
        let name = format!("expiry at p{}, {:.3} ms", share * 100.0, expiry_ns as f64 / 1e6);
        (name, SimulatedTable::Expiry { stages: 2, slots, expiry_ns })
    });
    shares.into_iter().chain([several, overwrite]).chain(expiries).collect()
}

/// Counts the trace with all tables, each with seeds 1 to `seeds`.
///
/// # Errors
/// As [`Trace::frames`], and [`ReproduceError::NoPackets`] without any delay.
pub(crate) fn replay(
    trace: &Trace,
    fridges: &[FridgeShape],
    seeds: u64,
    progress: &Progress<'_>,
) -> Result<Vec<Table>, ReproduceError> {
    let events = events(trace)?;
    let truth = truth(&events);
    let mut delays: Vec<u64> = events.iter().filter_map(|event| event.delay_ns).collect();
    delays.sort_unstable();
    let slots: usize = fridges.iter().map(|fridge| fridge.slots).sum();
    let requests = events.len() - delays.len();
    let caption = format!(
        "Delays of {} requests, of which {} were answered, in {} slots: |error| of percentiles in % (gap: log2, from p5 to p95), mean of {seeds} seeds",
        grouped(requests as u64),
        grouped(delays.len() as u64),
        grouped(slots as u64)
    );
    let mut columns = vec![Column::text("", ""), Column::number("", "delays measured")];
    columns.extend(["p50", "p95", "p99", "gap"].map(|name| Column::number("", name)));
    let mut table = Table::new(caption, columns);
    let time = |percentile: usize| {
        let time = truth.get(percentile.saturating_sub(5)).copied().unwrap_or(f64::NAN);
        Cell::new(format!("{:.3} ms", time / 1e6))
    };
    let counted = Cell::new(grouped(delays.len() as u64));
    table.row(vec![Cell::new("truth"), counted, time(50), time(95), time(99), Cell::default()]);
    let jobs = tables(fridges, &delays);
    let threads = parallel::processors();
    let measure = |(_, table): &(String, SimulatedTable)| -> Vec<(u64, Errors)> {
        (1..=seeds).filter_map(|seed| table.errors(&events, &truth, seed)).collect()
    };
    let results = parallel::run(&jobs, threads, parallel::equal_cost, progress, measure);
    for ((name, _), runs) in jobs.iter().zip(results) {
        let mean = |value: &dyn Fn(&Errors) -> f64| {
            let errors = Spread::from_values(runs.iter().map(|(_, errors)| value(errors)));
            errors.map(|errors| errors.mean)
        };
        let samples = Spread::from_values(runs.iter().map(|(samples, _)| *samples as f64));
        let samples = samples.map_or(0.0, |samples| samples.mean);
        let mut row = vec![Cell::new(name), Cell::new(grouped(samples.round() as u64))];
        let percentiles = [0, 1, 2].map(|index| mean(&|errors| errors.percentiles[index].abs()));
        row.extend(percentiles.map(|error| number_cell(error, 1)));
        row.push(number_cell(mean(&|errors| errors.gap), 2));
        table.row(row);
    }
    Ok(vec![table])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::tests::CaptureFile;
    use flowgauge_dataplane::capture::build::CapturePacket;
    use flowgauge_traffic::delay::{DelayProfile, DelayShape, DelayTraffic, RoundTripKind};

    /// Writes a trace whose truth the generator knows. Returns the segments with data and their
    /// delays as well.
    fn capture(name: &str, requests: u64) -> (CaptureFile, usize, Vec<u64>) {
        let profile = DelayProfile { requests, ..DelayProfile::new(DelayShape::Conversations) };
        let mut traffic = DelayTraffic::new(profile);
        let (mut packets, mut segments, mut delays) = (Vec::new(), 0, Vec::new());
        loop {
            let next = traffic.advance(&mut |trip| {
                if trip.kind == RoundTripKind::Data {
                    segments += 1;
                    delays.extend(trip.response_ns.map(|response| response - trip.request_ns));
                }
            });
            let Some((at, frame)) = next else { break };
            packets.push(CapturePacket::new(at, frame.to_vec()));
        }
        delays.sort_unstable();
        (CaptureFile::new(name, &packets), segments, delays)
    }

    #[test]
    fn every_answered_request_of_a_capture_has_its_delay() {
        let (file, segments, known) = capture("delays", 3_000);
        let events = events(&file.trace(1 << 21, 10)).unwrap();
        let mut delays: Vec<u64> = events.iter().filter_map(|event| event.delay_ns).collect();
        delays.sort_unstable();
        assert_eq!((events.len() - delays.len(), delays.len()), (segments, known.len()));
        // The file has microseconds.
        assert!(delays.iter().zip(&known).all(|(ours, known)| ours.abs_diff(*known) <= 1_000));
        // The packets of all windows are the limit.
        let some = super::events(&file.trace(100, 1)).unwrap();
        assert!(some.len() <= 100 && some[..] == events[..some.len()]);
    }

    #[test]
    fn a_capture_goes_through_all_tables() {
        let (file, ..) = capture("tables", 3_000);
        let fridges = [FridgeShape { slots: 4_096, admitted: 1.0 }];
        let tables = replay(&file.trace(1 << 21, 10), &fridges, 2, &|_, _| {}).unwrap();
        let text = tables[0].to_string();
        for part in ["truth", "p = 1/4096", "--fridges (1)", "overwrite", "expiry at p99.9"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[test]
    fn a_segment_that_was_sent_again_has_no_delay() {
        let segment = |sequence, acknowledgement, payload| TcpFields {
            source: &[10, 0, 0, 1],
            destination: &[10, 0, 0, 2],
            source_port: [1, 2],
            destination_port: [0, 80],
            sequence,
            acknowledgement,
            flags: flags::ACK,
            payload,
        };
        let back = |acknowledgement| TcpFields {
            source: &[10, 0, 0, 2],
            destination: &[10, 0, 0, 1],
            source_port: [0, 80],
            destination_port: [1, 2],
            ..segment(0, acknowledgement, 0)
        };
        let mut requests = Requests::default();
        requests.add(&segment(100, 0, 10), 0);
        requests.add(&segment(110, 0, 10), 1);
        requests.add(&segment(110, 0, 10), 2);
        requests.add(&back(110), 5);
        requests.add(&back(120), 6);
        let delays: Vec<u64> = requests.events.iter().filter_map(|event| event.delay_ns).collect();
        assert_eq!((requests.events.len(), delays), (3, vec![5]));
    }
}
