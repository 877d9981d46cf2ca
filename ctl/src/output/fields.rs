//! Fields of a record beside those of its measurements: JSON takes them in this order and by name,
//! the CSV those with a column.

use super::Origin;
use crate::field::{Datum, Fields, object};
use crate::identity::{Identity, SCHEMA};
use crate::ledger::Ledger;
use crate::record::{Record, RecordKind};
use flowgauge_core::Counters;
use std::collections::BTreeMap;

/// Returns the place, time and packets of a record. Positions 2 to 5, 20 to 29, 40 to 59, 70 to 199
/// and those from 300 on belong to measurements.
pub(super) fn fields(record: &Record) -> Fields {
    let mut to = Fields::default();
    let (is_window, is_sample) =
        (record.kind == RecordKind::Window, record.kind == RecordKind::Sample);
    let is_filtered = record.is_filtered();
    to.field("record", record.kind.name()).csv(6, "record");
    to.field("window", record.window).csv(1, "window_id");
    to.field("last_window", record.last_window).csv(60, "last_window");
    to.field("start_ns", record.start_ns).csv(15, "start_ns");
    to.field("end_ns", record.end_ns).csv(16, "end_ns");
    let scheduled = record.scheduled.filter(|_| is_window);
    to.field("scheduled_start_ns", scheduled.map(|(start, _)| start));
    to.field("scheduled_end_ns", scheduled.map(|(_, end)| end));
    to.field("at_ns", record.at_ns);
    to.field("late_ns", (is_window || is_sample).then_some(record.late_ns));
    to.column(record.late_ns).csv(62, "late_ns");
    let is_sampled = is_sample || record.kind == RecordKind::Silence;
    to.field("repeats", is_sampled.then_some(record.repeats)).csv(206, "repeats");
    to.field("last_ns", record.last_ns).csv(207, "last_ns");
    to.field("stalled", (is_window && record.last_window.is_some()).then_some(true));
    to.field("clock_step_ns", record.clock_step_ns);
    to.field("complete", record.complete).csv(208, "complete");
    to.field("source", record.source.as_deref());
    to.field("backend", record.backend);
    to.field("interface", record.interface.as_str()).csv(30, "interface");
    to.field("direction", record.direction).csv(31, "direction");
    to.field("hook", record.hook.as_deref());
    to.field("form", record.form.as_deref());
    to.field("part", record.part).csv(32, "part");
    to.field("inner", record.inner.then_some(true));
    let filter = to.field("match", record.filter.as_deref());
    if is_filtered {
        filter.csv(33, "match");
    }
    let Counters { bytes, ipv4, ipv6, non_ip, truncated, bad_header, .. } = record.counters;
    to.field("packets", record.counters.packets()).csv(7, "packets");
    if is_sample {
        let (before, after) = record.packets_before_after;
        to.field("packets_before", before);
        to.field("packets_after", after);
    }
    to.field("bytes", bytes).csv(8, "bytes");
    to.field("ipv4_packets", ipv4).csv(9, "ipv4_packets");
    to.field("ipv6_packets", ipv6).csv(10, "ipv6_packets");
    let rejected = [("non_ip", non_ip), ("truncated", truncated), ("bad_header", bad_header)];
    to.field("rejected", object(rejected.map(|(name, packets)| (name, packets.into()))));
    for ((name, packets), position) in rejected.into_iter().zip(11..) {
        to.column(packets).csv(position, name);
    }
    let Counters { unmatched, unmatched_bytes, merged, .. } = record.counters;
    if is_filtered {
        let (packets, bytes) = (unmatched.into(), unmatched_bytes.into());
        to.field("unmatched", object([("packets", packets), ("bytes", bytes)]));
        to.column(unmatched).csv(17, "unmatched");
        to.column(unmatched_bytes).csv(18, "unmatched_bytes");
    }
    to.field("merged", Some(merged).filter(|packets| *packets > 0));
    let drops = record.drops.iter().map(|(cause, packets)| (cause.name(), packets));
    let drops: BTreeMap<_, _> = drops.collect();
    let drops = drops.into_iter().map(|(cause, packets)| (cause.into(), packets.into()));
    to.field("drops", Datum::Object(drops.collect()));
    to.column(record.drops.total()).csv(14, "drops");
    if let Some(ledger) = record.ledger {
        to.field("ledger", ledger);
    }
    to.column(record.ledger.map(|ledger| ledger.received)).csv(200, "received");
    to.column(record.ledger.map(|ledger| ledger.unaccounted)).csv(201, "unaccounted");
    to.field("late", record.late).csv(61, "late");
    to.field("cpu_ns", record.cpu_ns);
    to
}

/// Returns the origin of a record, and the version of its fields.
pub(super) fn origin(record: &Record, origin: &Origin) -> Fields {
    let mut to = Fields::default();
    if let Some(Identity { host, run }) = &origin.identity {
        to.field("host", &**host).csv(203, "host");
        to.field("run", &**run).csv(204, "run");
    }
    if let Some(adoption) = &record.adopted {
        to.field("adopted", true);
        to.field("counted_by", adoption.run.as_deref());
    }
    to.field("schema", SCHEMA).csv(205, "schema");
    to
}

impl From<Ledger> for Datum {
    fn from(ledger: Ledger) -> Self {
        let Ledger { received, low, high, counted, unmatched, lost, unaccounted } = ledger;
        object([
            ("received", received.into()),
            ("low", low.into()),
            ("high", high.into()),
            ("counted", counted.into()),
            ("unmatched", unmatched.into()),
            ("lost", lost.into()),
            ("unaccounted", unaccounted.into()),
        ])
    }
}
