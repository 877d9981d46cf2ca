//! Provenance of a union: the number of rows and hosts, and what is missing or duplicated.

use crate::measurement::cardinality::distinct;
use crate::measurement::cardinality::estimate::Estimate;
use crate::text::{counted, grouped, lasted, optional};
use flowgauge_core::KeyKind;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// Description of rows that were dropped because their host has not signed them.
pub(crate) const UNTRUSTED: &str = "dropped: not signed with the trusted key of their host";

/// Distinct flows of a union with and without each host.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaveOneOut {
    /// Key that defines a flow.
    pub key: KeyKind,
    /// Distinct flows of all hosts.
    pub all: Estimate,
    /// Distinct flows of all hosts but this one, for each.
    pub without: Vec<(String, Estimate)>,
}

impl LeaveOneOut {
    /// Returns the host without which the estimate changes most, and the estimate without it.
    #[must_use]
    pub fn largest_change(&self) -> Option<(&str, Estimate)> {
        let change = |(_, without): &&(String, Estimate)| (self.all.value - without.value).abs();
        // Of equal changes, the first one counts.
        let largest = self.without.iter().rev().max_by(|a, b| change(a).total_cmp(&change(b)));
        largest.map(|(host, without)| (host.as_str(), *without))
    }

    fn phrases(&self) -> Option<Vec<String>> {
        let (host, Estimate { value, low, high }) = self.largest_change()?;
        let number = |value: f64| grouped(value.round() as u64);
        Some(vec![
            format!(
                "without {host} {} {} ({} … {})",
                number(value),
                distinct(self.key),
                number(low),
                number(high)
            ),
            format!("largest change of {}", counted(self.without.len() as u64, "host")),
        ])
    }
}

impl Serialize for LeaveOneOut {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let estimate = |it: &Estimate| {
            BTreeMap::from([("value", it.value), ("low", it.low), ("high", it.high)])
        };
        let without: BTreeMap<&str, _> =
            self.without.iter().map(|(host, it)| (host.as_str(), estimate(it))).collect();
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("largest_change", &self.largest_change().map(|(host, _)| host))?;
        line.serialize_entry("without", &without)?;
        line.end()
    }
}

/// Rows of a union, and what is missing or duplicated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct United {
    /// Number of rows.
    pub rows: u64,
    /// Number of hosts.
    pub hosts: u64,
    /// Number of interfaces and ports, by direction.
    pub places: u64,
    /// Number of duplicate rows; each is counted once.
    pub twice: u64,
    /// Number of rows that were dropped because other rows of their windows differ.
    pub conflicts: u64,
    /// Number of rows that were dropped because the host that they name has not signed them.
    pub untrusted: u64,
    /// Number of windows that were not counted from start to end.
    pub incomplete: u64,
    /// Number of rows of the range that hosts failed to write.
    pub lost_rows: u64,
    /// Places with missing time, in nanoseconds.
    pub missing: Vec<(String, u64)>,
    /// Places that two runs counted at the same time, so that their packets count twice, with the
    /// duration in nanoseconds.
    pub doubled: Vec<(String, u64)>,
    /// Measurements that only some rows have, with the number of those rows.
    pub partial: Vec<(&'static str, u64)>,
    /// Number of rows that extend beyond the range at its start or end. They are left out.
    pub crossing: u64,
    /// Expected hosts without a row.
    pub absent: Vec<String>,
    /// Number of rows from versions that wrote no checksums.
    pub unchecked: u64,
    /// Distinct flows without each host, if requested.
    pub leave_one_out: Option<LeaveOneOut>,
}

impl United {
    /// Returns the missing time of all places, in nanoseconds, saturated.
    pub(crate) fn missing_ns(&self) -> u64 {
        self.missing.iter().map(|(_, ns)| *ns).fold(0, u64::saturating_add)
    }

    /// Returns the time of all places that two runs counted, in nanoseconds, saturated.
    pub(crate) fn doubled_ns(&self) -> u64 {
        self.doubled.iter().map(|(_, ns)| *ns).fold(0, u64::saturating_add)
    }

    /// Returns the names of sums that reached the largest number, and may be larger.
    pub(crate) fn saturated(&self) -> Vec<&'static str> {
        let sums = [
            ("lost_rows", self.lost_rows),
            ("missing_ns", self.missing_ns()),
            ("doubled_ns", self.doubled_ns()),
        ];
        sums.into_iter().filter(|(_, sum)| *sum == u64::MAX).map(|(name, _)| name).collect()
    }

    /// Returns the description as lines of text.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.phrases().into_iter().map(|phrases| phrases.join(" ")).collect()
    }

    /// Describes the union: the phrases of each line below it.
    pub(crate) fn phrases(&self) -> Vec<Vec<String>> {
        let extent =
            format!("of {} of {}", counted(self.places, "place"), counted(self.hosts, "host"));
        let some = |number: u64, singular: &str, rest: &str| {
            (number > 0).then(|| vec![format!("{} {rest}", counted(number, singular))])
        };
        let conflicts = "dropped: others of the same windows have different values";
        let mut lines: Vec<_> = some(self.untrusted, "row", UNTRUSTED).into_iter().collect();
        lines.extend(some(self.conflicts, "row", conflicts));
        lines.push(vec![counted(self.rows, "window"), extent]);
        lines.extend(self.leave_one_out.as_ref().and_then(LeaveOneOut::phrases));
        lines.extend(some(self.incomplete, "window", "cut short, or with something missing"));
        lines.extend(some(self.lost_rows, "window", "lost before they could be written"));
        lines.extend(some(self.crossing, "window", "across the ends of the range, left out"));
        lines.extend(some(self.twice, "row", "found more than once, counted once"));
        lines.extend(
            self.absent
                .iter()
                .map(|host| vec![format!("{host}: expected, and no window of it is there")]),
        );
        lines.extend(some(self.unchecked, "window", "without checksums, from an earlier version"));
        lines.extend(
            self.missing
                .iter()
                .map(|(place, ns)| vec![format!("{place}: {} missing", lasted(*ns))]),
        );
        let doubled = |(place, ns): &(String, u64)| {
            vec![format!("{place}: {} counted by two runs, packets count twice", lasted(*ns))]
        };
        lines.extend(self.doubled.iter().map(doubled));
        let partial = |(name, rows): &(&str, u64)| {
            vec![format!("{name} from {} of {}", counted(*rows, "window"), self.rows)]
        };
        lines.extend(self.partial.iter().map(partial));
        let saturated = self.saturated();
        if !saturated.is_empty() {
            let names = saturated.join(", ");
            lines.push(vec![format!(
                "{names}: at least, since sums of rows exceed what a number can hold"
            )]);
        }
        lines
    }
}

impl Serialize for United {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let by_name = |pairs: &[(String, u64)]| pairs.iter().cloned().collect::<BTreeMap<_, _>>();
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("rows", &self.rows)?;
        line.serialize_entry("hosts", &self.hosts)?;
        line.serialize_entry("places", &self.places)?;
        line.serialize_entry("incomplete", &self.incomplete)?;
        line.serialize_entry("lost_rows", &self.lost_rows)?;
        line.serialize_entry("crossing", &self.crossing)?;
        line.serialize_entry("twice", &self.twice)?;
        line.serialize_entry("missing_ns", &by_name(&self.missing))?;
        line.serialize_entry("doubled_ns", &by_name(&self.doubled))?;
        let partial: BTreeMap<_, _> = self.partial.iter().copied().collect();
        optional(&mut line, "partial", (!partial.is_empty()).then_some(partial))?;
        optional(&mut line, "absent", (!self.absent.is_empty()).then_some(&self.absent))?;
        optional(&mut line, "conflicts", (self.conflicts > 0).then_some(self.conflicts))?;
        optional(&mut line, "untrusted", (self.untrusted > 0).then_some(self.untrusted))?;
        optional(&mut line, "unchecked", (self.unchecked > 0).then_some(self.unchecked))?;
        optional(&mut line, "leave_one_out", self.leave_one_out.as_ref())?;
        let saturated = self.saturated();
        optional(&mut line, "saturated", (!saturated.is_empty()).then_some(saturated))?;
        line.end()
    }
}
