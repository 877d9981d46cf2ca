//! Reading the configuration again (SIGHUP): what can change without losing a packet changes between two windows, and the rest stays and is told.

use super::{Agent, Prepared, Presence, Running, Wanted, check, interfaces, prepared, wanted};
use crate::config::{Configuration, Given, fill};
use crate::error::Failure;
use crate::measure::{aligned, is_watched};
use crate::options::Options;
use crate::run::Run;
use crate::service;
use clap::{Args, Command};
use std::collections::BTreeSet;

/// Headings of options that may change: when windows end, and what is told of what is counted.
const CHANGING: [&str; 3] = ["Time", "Measurement", "Alerts"];
/// Options of these headings that are settled when counting begins, though what is counted does not show it.
const SETTLED: [&str; 5] = ["seed", "hash-key", "truth", "alert-webhook", "staggered"];

impl Agent<'_> {
    /// Reads the configuration again.
    pub(super) fn reload(&mut self) {
        service::reloading();
        let file = self.configuration.file.as_ref().map(|file| file.display().to_string()).unwrap_or_default();
        match self.take_up() {
            Ok(()) => tracing::info!("{file} was read again"),
            Err(failure) => tracing::warn!("{file} was read again and is not used: {failure}; the run goes on as it was"),
        }
        service::reloaded();
    }

    fn take_up(&mut self) -> Result<(), Failure> {
        let configuration = Configuration::read::<Run>(self.arguments)?;
        check(&configuration)?;
        if configuration.sources.is_empty() != self.configuration.sources.is_empty() {
            let problem = "a run of one source does not become one of several, nor the other way round: start it anew";
            return Err(Failure::Usage(problem.to_owned()));
        }
        let all = wanted(&configuration, &interfaces())?;
        for (name, running) in &mut self.running {
            match all.iter().find(|wanted| wanted.name == *name) {
                Some(wanted) => running.change(name, prepared(&configuration, wanted.table.as_ref())?)?,
                None => {
                    tracing::warn!("source {name} is no longer in the configuration; it ends");
                    running.ends = true;
                    running.source.interrupt.trigger();
                }
            }
        }
        // One that failed may be another one now, or none.
        std::mem::take(&mut self.failed).iter().for_each(|(name, _)| self.shared.publication.ended(name));
        self.done.retain(|(name, _)| all.iter().any(|wanted| wanted.name == *name));
        self.configuration = configuration;
        let is_new = |wanted: &&Wanted| matches!(wanted.presence, Presence::There(_)) && !self.running.contains_key(&wanted.name);
        let new = all.iter().filter(|wanted| self.several && is_new(wanted));
        new.for_each(|wanted| tracing::warn!("source {} is new in the configuration; it begins", wanted.name));
        self.start_wanted()
    }
}

impl Running {
    /// Has the controller go on with what may change.
    fn change(&mut self, name: &str, Prepared { given: new, .. }: Prepared) -> Result<(), Failure> {
        let changed = changed(&self.given, &new);
        let Some(counts_with) = self.source.options().clone().filter(|_| !changed.is_empty()) else { return Ok(()) };
        let (mut taken, mut kept) = (Vec::new(), Vec::new());
        let mut options = counts_with;
        for key in changed {
            let tried: Vec<Given> = self
                .given
                .iter()
                .filter(|given| given.key != key)
                .chain(new.iter().filter(|given| given.key == key))
                .cloned()
                .collect();
            match with(&tried, &options).filter(|with| may_change(&key) && with.settings() == options.settings()) {
                Some(with) => {
                    (options, self.given) = (with, tried);
                    taken.push(key);
                }
                None => kept.push(key),
            }
        }
        self.source.shared.outlets.configured.set(name, &self.given);
        let name = if name.is_empty() { String::new() } else { format!("{name}: ") };
        if !kept.is_empty() {
            tracing::warn!(
                "{name}{} cannot change while packets are counted, and stays; start the run anew for it",
                kept.join(", ")
            );
        }
        if !taken.is_empty() {
            tracing::info!("{name}{} changes with the next window", taken.join(", "));
            self.source.changes.ask(aligned(options.plan(is_watched()), &options));
            *self.source.options() = Some(options);
        }
        Ok(())
    }
}

/// Options that were given otherwise, or not at all, before or after.
fn changed(before: &[Given], after: &[Given]) -> BTreeSet<String> {
    let is_same = |given: &Given, others: &[Given]| others.iter().any(|other| other.key == given.key && other.texts == given.texts);
    let gone = before.iter().filter(|given| !is_same(given, after));
    let came = after.iter().filter(|given| !is_same(given, before));
    gone.chain(came).map(|given| given.key.clone()).collect()
}

/// What was given as options, with what a run has settled on.
fn with(given: &[Given], settled: &Options) -> Option<Options> {
    let mut run = Run::default();
    let names = fill(&mut run, given).ok()?;
    run.set_given(names);
    let Options { backend, knows_direction, hash, ref secret, .. } = *settled;
    let options = Options { backend, knows_direction, hash, secret: secret.clone(), ..run.options().clone() };
    options.check().ok().map(|()| options)
}

/// Whether an option says nothing about how packets are counted, by its heading.
fn may_change(key: &str) -> bool {
    let command = Run::augment_args(Command::new("run"));
    let option = command.get_arguments().find(|option| option.get_long() == Some(key));
    let heading = option.and_then(|option| option.get_help_heading());
    heading.is_some_and(|heading| CHANGING.contains(&heading)) && !SETTLED.contains(&key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_traffic_and_output_stay() {
        for key in ["window", "read-every", "duration", "align", "query", "alert", "top"] {
            assert!(may_change(key), "{key}");
        }
        for key in ["interface", "port", "adopt", "workers", "format", "lake", "listen", "seed", "truth", "nothing"] {
            assert!(!may_change(key), "{key}");
        }
        let command = Run::augment_args(Command::new("run"));
        let known: BTreeSet<&str> = command.get_arguments().filter_map(|option| option.get_long()).collect();
        assert!(SETTLED.iter().all(|key| known.contains(key)), "{known:?}");
    }
}
