//! What a union of rows is of, as data: how many rows and hosts, and what is missing or duplicated.

use crate::text::{counted, lasted, optional};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// The rows of a union, and what is missing or duplicated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct United {
    /// Rows.
    pub rows: u64,
    /// Hosts.
    pub hosts: u64,
    /// Interfaces and ports, with their directions.
    pub places: u64,
    /// Rows that were there more than once and count once.
    pub twice: u64,
    /// Windows that were not counted from their beginning to their end.
    pub incomplete: u64,
    /// Rows that hosts could not write, among those of the range.
    pub lost_rows: u64,
    /// Places with missing time, and how many nanoseconds are missing.
    pub missing: Vec<(String, u64)>,
    /// Places that two runs counted at once, so that their packets count twice, and for how many
    /// nanoseconds.
    pub doubled: Vec<(String, u64)>,
    /// Measurements that some rows do not have, and how many have them.
    pub partial: Vec<(&'static str, u64)>,
    /// Rows that begin before the range and end in it, or begin in it and end after it.
    pub crossing: u64,
    /// Hosts that were expected, and have no row.
    pub absent: Vec<String>,
    /// Rows of versions that wrote no checksums.
    pub unchecked: u64,
}

impl United {
    /// The same, a line each.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.told().into_iter().map(|phrases| phrases.join(" ")).collect()
    }

    /// Lines below a union.
    pub(crate) fn told(&self) -> Vec<Vec<String>> {
        let of = format!("of {} of {}", counted(self.places, "place"), counted(self.hosts, "host"));
        let mut lines = vec![vec![counted(self.rows, "window"), of]];
        let some = |number: u64, singular: &str, rest: &str| {
            (number > 0).then(|| vec![format!("{} {rest}", counted(number, singular))])
        };
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
        optional(&mut line, "unchecked", (self.unchecked > 0).then_some(self.unchecked))?;
        line.end()
    }
}
