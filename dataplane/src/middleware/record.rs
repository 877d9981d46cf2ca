//! A dataplane that logs its calls and their results.

use crate::tally::CountRange;
use crate::{
    Adopted, Bounds, Capabilities, Dataplane, DelaySample, Error, Event, Losses, Part, Snapshot,
    Status, Tables,
};
use flowgauge_core::delay::{Admission, DelayKind};
use flowgauge_core::heavy::{Algorithm, Entry};
use flowgauge_core::sketch::Mode;
use flowgauge_core::{Filter, FlowKey, HashMode, SPREADS, Settings};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::fmt::{LowerHex, Write as _};
use std::io::Write;
use std::sync::Arc;

/// Wrapper that writes every call and its result as one JSON object per line, registers included:
/// enough to reproduce a bug elsewhere.
pub struct Recorder<D, W> {
    inner: D,
    log: W,
    failed: bool,
}

impl<D: Dataplane, W: Write + Send> Recorder<D, W> {
    /// Wraps a dataplane and logs to `log`.
    #[must_use]
    pub fn new(inner: D, log: W) -> Self {
        Recorder { inner, log, failed: false }
    }

    /// Returns the wrapped dataplane and the log.
    pub fn into_parts(self) -> (D, W) {
        (self.inner, self.log)
    }

    /// Writes the result of a call, and returns it. A log that cannot be written must not stop the
    /// measurement; the failure is reported once.
    fn noted<T>(
        &mut self,
        call: &str,
        result: Result<T, Error>,
        describe: impl FnOnce(&Self, &T) -> Value,
    ) -> Result<T, Error> {
        if self.failed {
            return result;
        }
        let outcome = match &result {
            Ok(answer) => json!({ "ok": describe(self, answer) }),
            Err(error) => json!({ "error": error.to_string(), "transient": error.is_transient() }),
        };
        if let Err(error) = writeln!(self.log, "{}", json!({ "call": call, "outcome": outcome })) {
            self.failed = true;
            tracing::warn!("the record of dataplane calls ends here: {error}");
        }
        result
    }

    fn snapshot(&self, snapshot: &Snapshot) -> Value {
        let counters = &snapshot.bank.counters;
        let Settings { cardinality, entropy, frequency, membership, heavy, spread, .. } =
            self.inner.settings();
        let registers = hex(snapshot.bank.cardinality.levels(cardinality.precision), 2);
        let staggered = snapshot
            .persistent
            .as_ref()
            .map(|persistent| hex(persistent.cardinality.words(cardinality.precision), 8));
        let entropies =
            entropy.iter().zip(&snapshot.bank.entropy.sums).zip(&snapshot.bank.entropy.sketches);
        let entropies = entropies.filter(|((entropy, _), _)| entropy.mode != Mode::Off);
        let entropies = entropies.map(|((entropy, of_bank), sketch)| {
            json!({ "key": entropy.key.name(), "sum": of_bank.sum, "cells": hex(sketch.cells(entropy.shape), 16) })
        });
        let frequencies = (frequency.mode != Mode::Off)
            .then(|| hex(snapshot.bank.frequency.cells(frequency.shape), 16));
        let filter =
            membership.on.then(|| hex(snapshot.bank.membership.words(membership.shape), 16));
        // Signatures next to their keys would reveal the secret of a keyed hash.
        let shows_signatures = self.inner.settings().hash != HashMode::Keyed;
        let table = (heavy.algorithm != Algorithm::Off).then(|| {
            let mut slots: Vec<Entry> = snapshot.bank.heavy.slot_entries(heavy).collect();
            if !shows_signatures {
                // The number of a slot is some bits of a hash of the signature.
                slots.sort_unstable_by_key(|slot| (Reverse(slot.count), slot.key));
            }
            let slots = slots.into_iter().map(|Entry { signature, key, count, inherited }| {
                let signature = shows_signatures.then(|| format!("{signature:08x}"));
                json!({ "signature": signature, "key": hex(key.as_bytes(), 2), "count": count, "inherited": inherited })
            });
            json!({ "packets": snapshot.bank.heavy.packets(), "total": snapshot.bank.heavy.total(), "slots": slots.collect::<Vec<_>>() })
        });
        let spreads = (0..SPREADS).filter(|index| spread[*index].on).map(|index| {
            let sketch = snapshot.bank.spread.sketch(spread, index);
            // Cells and levels are bits of hashes as well.
            let registers = shows_signatures.then(|| hex(sketch.all_registers(), 2));
            let mut candidates: Vec<(FlowKey, u8)> = sketch
                .candidates()
                .map(|candidate| (*candidate.key(), candidate.level()))
                .collect();
            candidates.sort_unstable();
            let candidates = candidates.into_iter().map(|(key, level)| {
                let level = shows_signatures.then_some(level);
                json!({ "key": hex(key.as_bytes(), 2), "level": level })
            });
            json!({
                "by": spread[index].by.name(), "of": spread[index].of.name(),
                "registers": registers, "candidates": candidates.collect::<Vec<_>>(),
            })
        });
        let mut numbers = serde_json::Map::new();
        snapshot.bank.tell(self.inner.settings(), &mut |measurement, what, values| {
            if let Some(of_measurement) =
                numbers.entry(measurement).or_insert_with(|| json!({})).as_object_mut()
            {
                of_measurement.insert(what.to_owned(), hex(values, 16).into());
            }
        });
        let mut line = json!({
            "packets_before": snapshot.packets_before,
            "packets_after": snapshot.packets_after,
            "counters": {
                "bytes": counters.bytes, "ipv4": counters.ipv4, "ipv6": counters.ipv6,
                "non_ip": counters.non_ip, "truncated": counters.truncated, "bad_header": counters.bad_header,
                "unmatched": counters.unmatched, "unmatched_bytes": counters.unmatched_bytes,
                "merged": counters.merged,
            },
            "hash": hash(&snapshot.hash),
            "registers": registers,
            "staggered": staggered,
            "entropy": entropies.collect::<Vec<_>>(),
            "frequency": frequencies,
            "membership": filter,
            "heavy": table,
            "spread": spreads.collect::<Vec<_>>(),
            "truth": snapshot.truth.map(|truth| json!({ "window": truth.window, "total": truth.total, "entropy": truth.entropy })),
            "parts": snapshot.parts.iter().map(|part| self.part(part)).collect::<Vec<_>>(),
        });
        if let Some(line) = line.as_object_mut() {
            line.extend(numbers);
        }
        line
    }

    fn part(&self, part: &Part) -> Value {
        let Part { place, snapshot, losses: lost, .. } = part;
        json!({ "place": place.to_string(), "snapshot": self.snapshot(snapshot), "losses": losses(lost) })
    }
}

/// Describes a filter by its numbers of rules.
fn rule_counts(filter: Option<&Arc<Filter>>) -> Value {
    filter.map_or(Value::Null, |filter| {
        json!({
            "ipv4_rules": filter.ipv4.rules().len(), "ipv6_rules": filter.ipv6.rules().len(),
            "non_ip_rules": filter.non_ip.rules().len(),
        })
    })
}

/// Concatenates numbers in hexadecimal, `digits` digits each.
fn hex<T: LowerHex>(numbers: &[T], digits: usize) -> String {
    numbers.iter().fold(String::new(), |mut hex, number| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{number:0digits$x}");
        hex
    })
}

fn adoption(adopted: &Adopted) -> Value {
    let Adopted { open_windows, runs, next_window } = adopted;
    json!({ "open_windows": open_windows, "runs": runs, "next_window": next_window })
}

fn losses(losses: &Losses) -> Value {
    losses.iter().map(|(cause, packets)| json!({ cause.name(): packets })).collect()
}

fn hash(identity: &flowgauge_core::HashIdentity) -> Value {
    match identity.mode {
        HashMode::Crc32 | HashMode::Tabulated => {
            json!({ "mode": identity.mode.name(), "polynomial": format!("{:#010x}", identity.polynomial), "seed": identity.seed })
        }
        HashMode::Keyed => {
            json!({ "mode": identity.mode.name(), "fingerprint": format!("{:016x}", identity.fingerprint) })
        }
    }
}

impl<D: Dataplane, W: Write + Send> Dataplane for Recorder<D, W> {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn settings(&self) -> &Settings {
        self.inner.settings()
    }

    fn install(&mut self, tables: &Tables) -> Result<Option<Adopted>, Error> {
        let result = self.inner.install(tables);
        self.noted(
            "install",
            result,
            |_, adopted| json!({ "hash": hash(&tables.hash), "rank_entries": tables.rank.len(), "filter": rule_counts(tables.filter.as_ref()), "adopted": adopted.as_ref().map(adoption) }),
        )
    }

    fn begin(&mut self) -> Result<(), Error> {
        self.inner.begin()
    }

    fn sample(&mut self) -> Result<Snapshot, Error> {
        let result = self.inner.sample();
        self.noted("sample", result, Self::snapshot)
    }

    fn rotate(&mut self) -> Result<Snapshot, Error> {
        let result = self.inner.rotate();
        self.noted("rotate", result, Self::snapshot)
    }

    fn published(&mut self, window: u64) -> Result<(), Error> {
        let result = self.inner.published(window);
        self.noted("published", result, |_, ()| json!({ "window": window }))
    }

    fn events(&mut self) -> Result<Vec<Event>, Error> {
        let result = self.inner.events();
        // Most calls return no events; logging those would bury the rest.
        if matches!(&result, Ok(events) if events.is_empty()) {
            return result;
        }
        self.noted("events", result, |_, events| {
            events.iter().map(|event| format!("{event:?}")).collect()
        })
    }

    fn received(&mut self) -> Result<Option<CountRange>, Error> {
        self.inner.received()
    }

    fn losses(&mut self) -> Result<Losses, Error> {
        let result = self.inner.losses();
        self.noted("losses", result, |_, lost| losses(lost))
    }

    fn delay_samples(&mut self) -> Result<Vec<DelaySample>, Error> {
        let result = self.inner.delay_samples();
        if matches!(&result, Ok(delays) if delays.is_empty()) {
            return result;
        }
        // Only their number: the delays themselves are in the configured output file.
        self.noted("delays", result, |_, delays| json!(delays.len()))
    }

    fn admit(&mut self, admissions: &[(DelayKind, Admission)]) -> Result<(), Error> {
        let result = self.inner.admit(admissions);
        let admitted = |(kind, admission): &(DelayKind, Admission)| json!({ "kind": kind.name(), "kept": admission.kept, "counted": admission.counted });
        self.noted("admit", result, |_, ()| admissions.iter().map(admitted).collect())
    }

    fn watch(&mut self, bounds: &[Bounds]) -> Result<(), Error> {
        let result = self.inner.watch(bounds);
        let bound = |bound: &Bounds| json!({ "key": bound.key.name(), "lowest": bound.lowest, "highest": bound.highest });
        self.noted("watch", result, |_, ()| bounds.iter().map(bound).collect())
    }

    fn set_filter(&mut self, filter: Option<&Arc<Filter>>) -> Result<(), Error> {
        let result = self.inner.set_filter(filter);
        self.noted("set_filter", result, |_, ()| rule_counts(filter))
    }

    fn status(&self) -> Status {
        self.inner.status()
    }
}
