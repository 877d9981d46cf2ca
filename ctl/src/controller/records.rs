//! Records of snapshots, and the sums of all windows.

use super::{ControlError, Controller, Sink};
use crate::ledger::LedgerAccumulator;
use crate::measurement::{ClosedBank, ReportInput, Reports};
use crate::record::{Adoption, FieldCache, Record, RecordKind};
use flowgauge_core::{Counters, Settings, WindowTotals, Zeroed};
use flowgauge_dataplane::status::ProgramStatus;
use flowgauge_dataplane::{
    CountingPoint, Dataplane, LossCause, Losses, Part, Snapshot, TimestampClock,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Sums over all windows.
#[derive(Default)]
pub(super) struct Total {
    counters: Counters,
    /// Filter expressions of all windows, with the last one.
    filters: Option<String>,
    filter: Option<Arc<str>>,
    drops: Losses,
    late: u64,
    /// Losses at the start of the current window.
    losses: Losses,
    ledger: LedgerAccumulator,
    /// Banks of all windows merged, except entropies and their sketches.
    merged: Option<Snapshot>,
    /// Whether a part of a window was lost.
    gap: bool,
    /// CPU time of the workers, in nanoseconds.
    cpu_ns: Option<u64>,
}

impl Total {
    /// Adds the filter of a window to those of the windows before it.
    fn add_filter(&mut self, filter: Option<&Arc<str>>) {
        let is_first = self.merged.is_none();
        if !is_first && self.filter.as_ref() == filter {
            return;
        }
        let text = |filter: Option<&Arc<str>>| filter.map_or("all packets", |text| text).to_owned();
        self.filters = match self.filters.take() {
            None if is_first => filter.map(|text| text.to_string()),
            before => {
                Some(format!("{}; then {}", before.unwrap_or_else(|| text(None)), text(filter)))
            }
        };
        self.filter = filter.cloned();
    }

    fn add(&mut self, record: &Record, snapshot: &Snapshot, settings: &Settings) {
        self.counters.merge(&record.counters);
        self.add_filter(record.filter.as_ref());
        record.drops.iter().for_each(|(cause, packets)| self.drops.add(cause, packets));
        self.late += record.late;
        if let Some(used) = record.cpu_ns {
            *self.cpu_ns.get_or_insert(0) += used;
        }
        let Snapshot { bank, hash, truth, gap_ns, .. } = snapshot;
        match &mut self.merged {
            Some(merged) => {
                merge_bank(&mut merged.bank, bank, settings);
                (merged.hash, merged.truth) = (*hash, *truth);
                merged.gap_ns = merged.gap_ns.max(*gap_ns);
            }
            None => {
                let merged = Snapshot::of(Arc::clone(bank), *hash);
                self.merged = Some(Snapshot { truth: *truth, gap_ns: *gap_ns, ..merged });
            }
        }
    }
}

/// Returns the parts of a snapshot with their numbers, if there are any, then the whole snapshot,
/// each with its losses.
fn views<'a>(
    snapshot: &'a Snapshot,
    losses: &'a Losses,
) -> impl Iterator<Item = (Option<usize>, &'a Snapshot, &'a Losses)> {
    let parts = snapshot.parts.iter().enumerate();
    let parts = parts.map(|(index, Part { snapshot, losses, .. })| (Some(index), snapshot, losses));
    parts.chain([(None, snapshot, losses)])
}

/// Merges a bank into another. A bank that is shared with readers is copied first, on the heap:
/// banks are larger than stacks.
fn merge_bank(sum: &mut Arc<WindowTotals>, bank: &WindowTotals, settings: &Settings) {
    if Arc::get_mut(sum).is_none() {
        let held = std::mem::replace(sum, WindowTotals::counted());
        merge_bank(sum, &held, settings);
    }
    if let Some(sum) = Arc::get_mut(sum) {
        sum.unite(bank, settings);
    }
}

impl Controller {
    /// Closes a window and publishes it. A window of an earlier run has another end. Returns whether
    /// later windows were over as well.
    pub(super) fn rotate(
        &mut self,
        window: u64,
        complete: bool,
        adopted: Option<(u64, Adoption)>,
        sink: &mut dyn Sink,
    ) -> Result<bool, ControlError> {
        self.publish_repeats(sink)?;
        self.set_next_filter()?;
        self.is_rotating = true;
        let Some((snapshot, called)) = self.attempt("rotate", Dataplane::rotate)? else {
            self.summary.late_rotations += 1;
            tracing::warn!(
                "window {window} could not be closed on time; it stays open until the next rotation succeeds"
            );
            return Ok(false);
        };
        self.send_delay_samples(window, &snapshot.delay_samples, sink)?;
        let (late_ns, over) = if complete { self.lateness(called) } else { (0, 0) };
        let scheduled = if adopted.is_none() { self.schedule.slots(over) } else { None };
        let (end, adopted) = adopted.unzip();
        let end_ns = end.unwrap_or(called).max(self.window_start);
        let last_window = (over > 0).then_some(window + over);
        let losses = self.read_losses()?;
        let received = self.attempt("received", Dataplane::received)?;
        let received = received.and_then(|(received, _)| received);
        let records = self.records(RecordKind::Window, window, end_ns, &snapshot, &losses)?;
        let mut admissions = Vec::new();
        let views = views(&snapshot, &losses);
        // Of all places, which come before their sum.
        let mut are_parts_whole = true;
        for (mut record, (part, view, losses)) in records.into_iter().zip(views) {
            record = Record {
                last_window,
                scheduled,
                late_ns,
                clock_step_ns: self.stepped,
                adopted: adopted.clone(),
                counted: Some(self.registers(view)),
                ..record
            };
            let (received, total) = match part {
                Some(index) => {
                    let received = snapshot.parts.get(index).and_then(|part| part.received);
                    (received, self.parts.get_mut(index))
                }
                None => {
                    admissions = self.look(&mut record);
                    (received, Some(&mut self.total))
                }
            };
            if let Some(total) = total {
                let missing = total.ledger.missing();
                record.ledger = total.ledger.add_window(
                    record.counters.packets(),
                    record.counters.unmatched,
                    record.drops.total(),
                    received,
                );
                // A place without a ledger leaves the sum without one, but not without its losses.
                let is_whole = view.complete
                    && record.drops.total() == 0
                    && total.ledger.missing() <= missing
                    && (part.is_some() || are_parts_whole);
                are_parts_whole &= is_whole;
                record.complete = complete && is_whole && !self.is_short;
                total.gap |= !is_whole;
                total.add(&record, view, self.dataplane.settings());
                total.losses = losses.clone();
            }
            record.judge(&self.plan.options.alerts);
            if part.is_none() {
                self.log_alerts(&record);
            }
            self.warn_of_full_counters(&record);
            sink.record(&record)?;
        }
        self.warn_of_unopened(&snapshot.bank);
        self.filter.clone_from(&self.next_filter);
        self.is_rotating = false;
        self.window_start = end_ns;
        (self.is_short, self.stepped) = (false, None);
        self.clock.closed(end_ns);
        self.last_sample = None;
        self.summary.windows += 1;
        self.summary.stalled_windows += over;
        let last = last_window.unwrap_or(window);
        if self.attempt("published", |dataplane| dataplane.published(last))?.is_none() {
            tracing::warn!(
                "{} could not record that window {window} is published; it is published again if this process is killed",
                self.interface()
            );
        }
        self.admit(&admissions)?;
        self.bound()?;
        Ok(over > 0)
    }

    /// Sets the filter of the next window, if it differs from that of the open one. A rotation that
    /// may have begun keeps the filter that it began with.
    fn set_next_filter(&mut self) -> Result<(), ControlError> {
        let filter = self.changes.filter().unwrap_or_else(|| self.plan.filter.clone());
        if self.is_rotating || filter == self.next_filter {
            return Ok(());
        }
        let rules = filter.as_ref().map(|filter| Arc::clone(&filter.filter));
        let set = |dataplane: &mut (dyn Dataplane + 'static)| dataplane.set_filter(rules.as_ref());
        if self.attempt("set the filter", set)?.is_some() {
            self.next_filter = filter;
        }
        Ok(())
    }

    /// Makes the records of a snapshot of the open window up to `end_ns`: of every place, if there
    /// are several, then of all.
    pub(super) fn records(
        &self,
        kind: RecordKind,
        window: u64,
        end_ns: u64,
        snapshot: &Snapshot,
        losses: &Losses,
    ) -> Result<Vec<Record>, ControlError> {
        let mut records = Vec::new();
        for (part, snapshot, losses) in views(snapshot, losses) {
            let mut drops = losses.since(&self.total_of(part).losses);
            records.push(Record {
                kind,
                window,
                start_ns: self.window_start,
                end_ns,
                late: drops.take(LossCause::Late),
                drops,
                counters: snapshot.bank.counters,
                packets_before_after: (snapshot.packets_before, snapshot.packets_after),
                cpu_ns: snapshot.cpu_ns,
                reports: self.reports(kind, part, snapshot, end_ns)?,
                ..self.empty(part)
            });
        }
        Ok(records)
    }

    pub(super) fn finish_staggered(&mut self, sink: &mut dyn Sink) -> Result<(), ControlError> {
        self.send_pending_delay_samples(sink)?;
        let now = self.clock.now();
        let Some((snapshot, _)) = self.attempt("sample", Dataplane::sample)? else {
            return Ok(());
        };
        let records = self.sample(&snapshot, now, 0, now)?;
        records.iter().try_for_each(|record| sink.record(record))?;
        self.summary.samples += 1;
        let mut totals = Vec::new();
        for (record, (part, snapshot, _)) in
            records.into_iter().zip(views(&snapshot, &Losses::default()))
        {
            let reports = self.reports(RecordKind::Total, part, snapshot, now)?;
            totals.push(Record {
                kind: RecordKind::Total,
                start_ns: self.start,
                at_ns: None,
                complete: snapshot.complete && record.drops.total() + record.late == 0,
                reports,
                // The figures of the sample do not apply.
                drawn: FieldCache::default(),
                ..record
            });
        }
        self.summary.total = totals.pop();
        self.summary.parts = totals;
        Ok(())
    }

    pub(super) fn sum_up(&self, part: Option<usize>) -> Result<Option<Record>, ControlError> {
        let total = self.total_of(part);
        let Some(merged) = &total.merged else { return Ok(None) };
        let packets = total.counters.packets();
        Ok(Some(Record {
            kind: RecordKind::Total,
            window: self.open_window(),
            start_ns: self.start,
            // The end of the last window: its packets were counted until then, and publishing it
            // takes time.
            end_ns: self.window_start,
            complete: !total.gap && total.late == 0,
            counters: total.counters,
            filter: total.filters.as_deref().map(Arc::from),
            packets_before_after: (packets, packets),
            drops: total.drops.clone(),
            ledger: total.ledger.total(),
            late: total.late,
            cpu_ns: total.cpu_ns,
            reports: self.reports(RecordKind::Total, part, merged, self.window_start)?,
            ..self.empty(part)
        }))
    }

    fn total_of(&self, part: Option<usize>) -> &Total {
        part.and_then(|index| self.parts.get(index)).unwrap_or(&self.total)
    }

    /// Returns the clock of a snapshot's packets.
    fn clock_of(&self, snapshot: &Snapshot) -> TimestampClock {
        TimestampClock { gap_ns: snapshot.gap_ns, ..self.dataplane.capabilities().clock }
    }

    fn registers(&self, snapshot: &Snapshot) -> ClosedBank {
        ClosedBank {
            bank: Arc::clone(&snapshot.bank),
            settings: *self.dataplane.settings(),
            hash: snapshot.hash,
            row_hash: self.rows.hash,
            clock: self.clock_of(snapshot),
        }
    }

    /// Computes the reports of a record of packets up to `now_ns`.
    fn reports(
        &self,
        kind: RecordKind,
        part: Option<usize>,
        snapshot: &Snapshot,
        now_ns: u64,
    ) -> Result<Reports, ControlError> {
        let is_total = kind == RecordKind::Total;
        let begun = if is_total { self.start } else { self.window_start };
        Reports::of(&ReportInput {
            kind,
            is_part: part.is_some(),
            clock: self.clock_of(snapshot),
            settings: self.dataplane.settings(),
            options: &self.plan.options,
            rows: &self.rows,
            bank: &snapshot.bank,
            hash: snapshot.hash,
            truth: snapshot.truth,
            union_states: None,
            snapshot: Some(snapshot).filter(|_| !is_total),
            start_ns: self.start,
            now_ns,
            span_ns: now_ns.saturating_sub(begun),
        })
        .map_err(|source| ControlError::Registers { interface: self.interface(), source })
    }

    /// Returns the programs in the kernel that count at a place, or anywhere.
    fn programs(&self, place: Option<&CountingPoint>) -> Vec<ProgramStatus> {
        let mut programs = self.dataplane.status().programs;
        programs.retain(|program| place.is_none_or(|place| *place == program.place));
        programs
    }

    /// Makes a record of a place, or of all, that has counted nothing.
    pub(super) fn empty(&self, part: Option<usize>) -> Record {
        let capabilities = self.dataplane.capabilities();
        let place = part.and_then(|index| capabilities.places.get(index));
        let (interface, direction) = match (place, &capabilities.places[..]) {
            (Some(place), _) => (&place.interface, place.direction.name()),
            (None, [first, others @ ..])
                if others.iter().all(|other| other.direction == first.direction) =>
            {
                (&capabilities.interface, first.direction.name())
            }
            (None, _) => (&capabilities.interface, "both"),
        };
        let programs = self.programs(place);
        Record {
            backend: capabilities.backend,
            source: self.source.clone(),
            interface: interface.clone(),
            direction,
            hook: listed(programs.iter().filter_map(|program| program.hook.as_deref())),
            form: listed(programs.iter().filter_map(|program| program.form.as_deref())),
            part: part.is_some(),
            inner: self.dataplane.settings().headers.inner,
            filter: self.filter.as_ref().map(|filter| Arc::clone(&filter.text)),
            ..Record::default()
        }
    }

    /// Reads the losses since the start; returns the last known ones on failure.
    pub(super) fn read_losses(&mut self) -> Result<Losses, ControlError> {
        let read = self.attempt("losses", Dataplane::losses)?;
        Ok(read.map_or_else(|| self.total.losses.clone(), |(losses, _)| losses))
    }
}

/// Returns the different words in order, separated by commas; `None` without one.
fn listed<'a>(words: impl Iterator<Item = &'a str>) -> Option<String> {
    let words: BTreeSet<&str> = words.collect();
    (!words.is_empty()).then(|| Vec::from_iter(words).join(","))
}
