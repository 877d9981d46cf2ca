//! Messages about sources that come and go, grouped: when many interfaces appear or vanish, the log
//! gets one line a second for all of them.

use crate::interfaces::first_few;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Minimum time between two lines about the same kind of event.
pub(super) const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// Change of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SourceChange {
    /// Its configuration was added by a reload.
    Configured,
    /// Its configuration was removed by a reload.
    Unconfigured,
    /// It began to count long after the run.
    BeganLate,
    /// Its interface was removed.
    InterfaceRemoved,
    /// It has ended by itself.
    Ended,
}

/// Sources that changed and are not logged yet.
#[derive(Default)]
pub(super) struct GroupedMessages(BTreeMap<SourceChange, Group>);

/// Sources with one change.
#[derive(Default)]
struct Group {
    /// Name of each source, and the details that a line about many has of it.
    sources: Vec<(String, String)>,
    /// Time of the last line.
    last: Option<Instant>,
}

impl GroupedMessages {
    /// Adds a change, with details such as a time, which may be empty.
    pub(super) fn add(&mut self, change: SourceChange, name: &str, details: &str) {
        let sources = &mut self.0.entry(change).or_default().sources;
        sources.push((name.to_owned(), details.to_owned()));
    }

    /// Returns the lines that are due, one for each kind of change, if the last one of a kind must be
    /// this old.
    pub(super) fn due(&mut self, now: Instant, interval: Duration) -> Vec<String> {
        let mut lines = Vec::new();
        for (change, group) in &mut self.0 {
            let is_due =
                group.last.is_none_or(|last| now.saturating_duration_since(last) >= interval);
            if is_due && !group.sources.is_empty() {
                group.last = Some(now);
                lines.push(change.line(&std::mem::take(&mut group.sources)));
            }
        }
        lines
    }
}

impl SourceChange {
    /// Returns the message about these sources.
    fn line(self, sources: &[(String, String)]) -> String {
        let (of_one, of_many) = match self {
            SourceChange::Configured => (
                "was added to the configuration; starting it",
                "sources were added to the configuration; starting them",
            ),
            SourceChange::Unconfigured => (
                "was removed from the configuration; stopping it",
                "sources were removed from the configuration; stopping them",
            ),
            SourceChange::BeganLate => ("after the run", "sources began long after the run"),
            SourceChange::InterfaceRemoved => (
                "interface removed; counting resumes when it is back",
                "interfaces removed; counting resumes when they are back",
            ),
            SourceChange::Ended => ("has ended", "sources have ended"),
        };
        match (self, sources) {
            (SourceChange::InterfaceRemoved, [(name, _)]) => format!("{name}: {of_one}"),
            (SourceChange::BeganLate, [(name, time)]) => {
                format!("source {name} began {time} {of_one}")
            }
            (_, [(name, _)]) => format!("source {name} {of_one}"),
            _ => {
                let named = |(name, details): &(String, String)| {
                    if details.is_empty() { name.clone() } else { format!("{name} ({details})") }
                };
                let names = first_few(&sources.iter().map(named).collect::<Vec<_>>());
                format!("{} {of_many}: {names}", sources.len())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_takes_one_line_a_second() {
        let (mut messages, begun) = (GroupedMessages::default(), Instant::now());
        let at = |milliseconds| begun + Duration::from_millis(milliseconds);
        messages.add(SourceChange::InterfaceRemoved, "veth0", "");
        assert_eq!(
            messages.due(at(0), LINE_INTERVAL),
            ["veth0: interface removed; counting resumes when it is back"]
        );
        for number in 1..15 {
            messages.add(SourceChange::InterfaceRemoved, &format!("veth{number}"), "");
            assert!(messages.due(at(number * 60), LINE_INTERVAL).is_empty(), "{number}");
        }
        let line = "14 interfaces removed; counting resumes when they are back: veth1, veth2, veth3, veth4, veth5 and 9 more";
        assert_eq!(messages.due(at(1000), LINE_INTERVAL), [line]);
        assert!(messages.due(at(5000), LINE_INTERVAL).is_empty());
        // Other changes have lines of their own.
        messages.add(SourceChange::InterfaceRemoved, "a", "");
        messages.add(SourceChange::Ended, "b", "");
        assert_eq!(messages.due(at(1500), LINE_INTERVAL), ["source b has ended"]);
        assert_eq!(messages.due(at(1500), Duration::ZERO).len(), 1);
        assert!(messages.due(at(9000), Duration::ZERO).is_empty());
    }

    #[test]
    fn a_late_begin_has_its_time() {
        let (mut messages, now) = (GroupedMessages::default(), Instant::now());
        messages.add(SourceChange::BeganLate, "a", "6 s");
        assert_eq!(messages.due(now, Duration::ZERO), ["source a began 6 s after the run"]);
        messages.add(SourceChange::BeganLate, "a", "6 s");
        messages.add(SourceChange::BeganLate, "b", "8 s");
        assert_eq!(
            messages.due(now, Duration::ZERO),
            ["2 sources began long after the run: a (6 s), b (8 s)"]
        );
    }
}
