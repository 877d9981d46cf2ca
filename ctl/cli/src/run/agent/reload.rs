//! Reload of the configuration (SIGHUP). Changes that lose no packet take effect between two
//! windows; for the others the old values stay, with a warning.

use super::grouped::SourceChange;
use super::{Agent, Availability, RunningSource, WantedSource, configured_sources, wanted_sources};
use crate::config::RunConfig;
use crate::config::given::{Configuration, GivenOption};
use crate::config::options::run::Run;
use crate::error::{CommandFailure, refuse};
use crate::interfaces;
use crate::locked;
use crate::run::service;
use std::collections::BTreeSet;

impl Agent<'_> {
    /// Reads the configuration again.
    pub(super) fn reload(&mut self) {
        service::reloading();
        let file = self.configuration.file.clone().unwrap_or_default();
        let file = file.display();
        match self.apply() {
            Ok(()) => tracing::info!("reloaded {file}"),
            Err(failure) => tracing::warn!(
                "cannot reload {file}: {failure}; the run continues with the previous configuration"
            ),
        }
        service::reloaded();
    }

    fn apply(&mut self) -> Result<(), CommandFailure> {
        let configuration = Configuration::read::<Run>(self.arguments)?;
        let configured = configured_sources(&configuration)?;
        if configuration.sources.is_empty() != self.configuration.sources.is_empty() {
            let problem = "cannot switch between a single source and [[source]] tables on reload; restart the run";
            return refuse(problem);
        }
        let (there, stack) = (interfaces::list()?, interfaces::stack());
        let all = wanted_sources(&configured, &there, &stack)?;
        let before = wanted_sources(&self.configured, &there, &stack)?;
        let is_there = |number: u32| there.iter().any(|interface| interface.number == number);
        for (name, running) in &mut self.running {
            match all.iter().find(|wanted| wanted.name == *name) {
                Some(wanted) => running.change(name, wanted),
                // It matched a pattern, and ends by itself with its interface.
                None if running.interface.is_some_and(|number| !is_there(number)) => {}
                None => {
                    if !running.ends {
                        self.messages.add(SourceChange::Unconfigured, name, "");
                    }
                    running.end();
                }
            }
        }
        // A failed source may be configured differently now, or may be gone.
        std::mem::take(&mut self.failed)
            .iter()
            .for_each(|(name, _)| self.shared.publication.ended(name));
        self.done.retain(|(name, _)| all.iter().any(|wanted| wanted.name == *name));
        (self.configuration, self.configured) = (configuration, configured);
        let is_new = |wanted: &&WantedSource| {
            matches!(wanted.presence, Availability::Present(_))
                && !self.running.contains_key(&wanted.name)
                // Otherwise only its interface is new.
                && !before.iter().any(|known| known.name == wanted.name)
        };
        let new = all.iter().filter(|wanted| self.several && is_new(wanted));
        new.for_each(|wanted| self.messages.add(SourceChange::Configured, &wanted.name, ""));
        self.start_wanted()
    }
}

impl RunningSource {
    /// Applies the options that can change while the source is counted.
    fn change(&mut self, name: &str, WantedSource { given: new, .. }: &WantedSource) {
        let changed = changed(&self.given, new);
        if changed.is_empty() {
            return;
        }
        let (mut taken, mut kept) = (Vec::new(), Vec::new());
        for key in changed {
            let of_key = |given: &&GivenOption| given.key == key;
            let others = self.given.iter().filter(|given| !of_key(given));
            let tried: Vec<GivenOption> =
                others.chain(new.iter().filter(of_key)).cloned().collect();
            match change(&self.config, &tried) {
                Some(config) => {
                    (self.config, self.given) = (config, tried);
                    taken.push(key);
                }
                None => kept.push(key),
            }
        }
        let configured = &self.handle.shared.exporters.configured;
        locked(configured).insert(name.to_owned(), self.given.clone());
        let name = if name.is_empty() { String::new() } else { format!("{name}: ") };
        if !kept.is_empty() {
            tracing::warn!(
                "{name}{} cannot change during a run; restart to apply the new value",
                kept.join(", ")
            );
        }
        if !taken.is_empty() {
            tracing::info!("{name}{} takes effect with the next window", taken.join(", "));
            self.handle.changes.ask(self.config.plan.clone());
        }
    }
}

/// Returns the configuration with these options if it can be applied without losing a packet.
fn change(counted: &RunConfig, given: &[GivenOption]) -> Option<RunConfig> {
    let config = Run::from_given(given).ok()?;
    (counted.changed_to(&config) == config).then_some(config)
}

/// Returns the options that were added, removed or changed.
fn changed(before: &[GivenOption], after: &[GivenOption]) -> BTreeSet<String> {
    let is_same = |given: &GivenOption, others: &[GivenOption]| {
        others.iter().any(|other| other.key == given.key && other.texts == given.texts)
    };
    let gone = before.iter().filter(|given| !is_same(given, after));
    let came = after.iter().filter(|given| !is_same(given, before));
    gone.chain(came).map(|given| given.key.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether a run with the configuration `before` can continue with `after`.
    fn changes(before: &str, after: &str) -> bool {
        changes_of("port = 'memory:unique'", before, after)
    }

    fn changes_of(source: &str, before: &str, after: &str) -> bool {
        let given = |text: &str| {
            let text = format!("{source}\nmeasure = 'cardinality,heavy,frequency'\n{text}");
            Configuration::of_text::<Run>(&text).effective(None)
        };
        change(&Run::from_given(&given(before)).unwrap(), &given(after)).is_some()
    }

    #[test]
    fn intervals_and_estimation_change_and_what_is_counted_stays() {
        for (before, after) in [
            ("", "window = '3s'"),
            ("sample-every = '1s'", "sample-every = 'never'"),
            ("", "duration = '1h'"),
            ("align = true", "align = false"),
            ("", "query = '10.0.0.1'"),
            ("", "alert = 'distinct_flows > 5'"),
            ("top = 5", "top = 7"),
            ("", "estimator = 'flajolet'"),
            ("", "match = 'tcp'"),
            ("match = 'tcp'", "match = 'udp'"),
            ("match = 'tcp'", ""),
        ] {
            assert!(changes(before, after), "{before} {after}");
        }
        for (before, after) in [
            ("", "key = 'dst'"),
            ("", "registers = 64"),
            ("", "workers = 2"),
            ("", "cpus = '0'"),
            ("", "format = 'json'"),
            ("", "lake = 'lake'"),
            ("", "listen = '9420'"),
            ("seed = 1", "seed = 2"),
            ("", "truth = true"),
            ("", "hash = 'crc32'"),
        ] {
            assert!(!changes(before, after), "{before} {after}");
        }
    }

    #[test]
    fn expressions_change_where_the_switch_is_known_to_match_them() {
        let changes = |before, after| {
            changes_of("address = 'switch:50052'\nbackend = 'tofino'", before, after)
        };
        assert!(changes("match = 'tcp'", "match = 'udp port 53'"));
        assert!(changes("match = 'tcp'", ""));
        assert!(!changes("match = 'tcp'", "match = 'greater 100'"));
        assert!(!changes("", "match = 'tcp'"));
    }
}
