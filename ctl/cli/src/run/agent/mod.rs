//! Several sources of packets in one run, each with a controller and a thread of its own.
//!
//! The main thread starts and stops sources as the configuration and the interfaces of this machine
//! change, and returns when all have ended. Each source thread calls [`count`] and reports its end
//! through a channel. Outputs are shared between sources; records of two sources are never
//! interleaved. A source that fails is logged with its name, and the others continue. `reload`
//! applies a configuration that has changed; `grouped` are the messages about sources that come and
//! go.

mod grouped;
mod reload;

use crate::commands::doctor::machine::{Machine, size};
use crate::config::given::{Configuration, GivenOption, SourceTable};
use crate::config::options::outputs::OutputOptions;
use crate::config::options::run::Run;
use crate::config::{Interfaces, RunConfig, Source};
use crate::error::{CommandFailure, cannot, fail, print_message, refuse};
use crate::interfaces::{self, ListedInterface, is_pattern};
use crate::locked;
use crate::output::listen::RunningExporters;
use crate::output::status::Expected;
use crate::output::writers::FileProblems;
use crate::run::handle::{SharedOutputs, SharedPrograms, SourceHandle, identity};
use crate::run::service;
use crate::run::signals;
use crate::run::source::{SHARING_INTERFACES, count};
use clap::ArgMatches;
use flowgauge_ctl::output::{Format, escaped};
use flowgauge_dataplane::xdp::{self, Departures, LinkChanges, Stack};
use glob::Pattern;
use grouped::{GroupedMessages, LINE_INTERVAL, SourceChange};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Interval at which the main thread checks for the end of the run and feeds the watchdog.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Time after the start of the run from which the start of a source is reported.
const LATE_BEGIN: Duration = Duration::from_secs(2);

/// Event that the main thread reacts to.
enum Event {
    /// The source of this name has begun to count.
    Began(String),
    /// The source of this name has ended.
    Ended(String, Result<(), CommandFailure>),
    /// The configuration is to be read again.
    Reload,
    /// Interfaces were added or changed, or left the network namespace.
    Links(Departures),
}

/// Reports the end of a source when it is dropped, also if its thread panics.
struct NotifyEndOnDrop {
    events: Sender<Event>,
    name: String,
    outcome: Option<Result<(), CommandFailure>>,
}

impl Drop for NotifyEndOnDrop {
    fn drop(&mut self) {
        let died = || fail("its thread panicked; please report this as a bug, with the log above");
        let outcome = self.outcome.take().unwrap_or_else(died);
        // The receiver is gone once the main thread has returned.
        let _ = self.events.send(Event::Ended(std::mem::take(&mut self.name), outcome));
    }
}

/// Source that should be counted.
struct WantedSource {
    name: String,
    config: RunConfig,
    given: Vec<GivenOption>,
    /// Interface that the pattern matched, if the source was configured with a pattern.
    matched: Option<String>,
    presence: Availability,
}

impl WantedSource {
    /// Returns the interfaces that the source counts.
    fn interfaces(&self) -> Vec<&str> {
        match &self.matched {
            Some(interface) => vec![interface.as_str()],
            None => self.config.source.needed_interfaces(),
        }
    }
}

/// Whether a source can be counted now.
enum Availability {
    /// The source can be counted. Holds the index of its interface if it starts and ends with one.
    Present(Option<u32>),
    /// None of these comma-separated interfaces exists.
    Absent(String),
    /// The interface of this index is left out: its packets cross these others as well, and one
    /// pattern matches all of them.
    Covered(u32, Vec<String>),
}

/// Source that is being counted.
struct RunningSource {
    handle: Arc<SourceHandle>,
    config: RunConfig,
    given: Vec<GivenOption>,
    /// Index of its interface, if the source starts and ends with one.
    interface: Option<u32>,
    /// Whether that interface has left the network namespace since, or may have. It may be back.
    has_left: bool,
    /// Whether the end of this source was requested.
    ends: bool,
}

impl RunningSource {
    fn end(&mut self) {
        self.ends = true;
        self.handle.interrupt.trigger();
    }
}

struct Agent<'a> {
    arguments: &'a ArgMatches,
    configuration: Configuration,
    configured: Vec<ConfiguredSource>,
    /// Outputs of the run, the same for all sources.
    outputs: OutputOptions,
    shared: Arc<SharedOutputs>,
    /// Programs that sources share once there are many.
    programs: Arc<SharedPrograms>,
    /// Whether the run has, or may get, several sources.
    several: bool,
    /// Whether interfaces are given by patterns.
    patterns: bool,
    running: BTreeMap<String, RunningSource>,
    /// Sources that wait for their interfaces.
    absent: BTreeSet<String>,
    /// Sources that were left out since interfaces below theirs are counted, with the index of
    /// their interface.
    covered: BTreeSet<(String, u32)>,
    /// Interfaces above others that were reported.
    reported_stack: BTreeSet<String>,
    /// Sources that failed or could not be started, with the index of their interface.
    failed: BTreeSet<(String, Option<u32>)>,
    /// Sources whose traffic has ended.
    done: BTreeSet<(String, Option<u32>)>,
    failures: Vec<(String, CommandFailure)>,
    /// Failure of the first source that found standard output closed.
    unread: Option<CommandFailure>,
    started: usize,
    begun: Instant,
    messages: GroupedMessages,
    events: Sender<Event>,
}

/// Counts all sources of the configuration and the command line until they have ended.
pub(crate) fn run(
    arguments: &ArgMatches,
    configuration: Configuration,
) -> Result<(), CommandFailure> {
    let (events, heard) = channel();
    let configured = configured_sources(&configuration)?;
    let patterns = configured.iter().any(ConfiguredSource::has_patterns);
    let Some(outputs) = configured.first().map(|asked| asked.config.outputs.clone()) else {
        return Ok(());
    };
    let agent = Agent {
        arguments,
        several: !configuration.sources.is_empty() || patterns,
        configuration,
        configured,
        outputs,
        shared: Arc::default(),
        programs: Arc::default(),
        patterns,
        running: BTreeMap::new(),
        absent: BTreeSet::new(),
        covered: BTreeSet::new(),
        reported_stack: BTreeSet::new(),
        failed: BTreeSet::new(),
        done: BTreeSet::new(),
        failures: Vec::new(),
        unread: None,
        started: 0,
        begun: Instant::now(),
        messages: GroupedMessages::default(),
        events,
    };
    agent.check()?;
    let problems = FileProblems::default();
    let outcome = {
        // Servers report their last problems when they end.
        let _servers = agent.serve(&problems)?;
        let reload = agent.events.clone();
        if agent.configuration.file.is_some() {
            signals::on_reload(move || _ = reload.send(Event::Reload));
        }
        if agent.several {
            follow_links(agent.events.clone())?;
        }
        agent.supervise(&heard)
    };
    match problems.all().pop() {
        Some(problem) if outcome.is_ok() => Err(CommandFailure::Incomplete(problem)),
        _ => outcome,
    }
}

/// Source as configured; its interfaces may be patterns.
struct ConfiguredSource {
    /// Name of the source in the configuration file.
    name: Option<String>,
    config: RunConfig,
    given: Vec<GivenOption>,
}

impl ConfiguredSource {
    /// Returns the interfaces of this source, or patterns of their names.
    fn interfaces(&self) -> &[String] {
        match &self.config.source {
            Source::Interfaces(interfaces) => &interfaces.names,
            _ => &[],
        }
    }

    fn has_patterns(&self) -> bool {
        self.interfaces().iter().any(|name| is_pattern(name))
    }
}

/// Resolves the sources of the file, or the only source if the file has no `[[source]]` tables.
/// Opens nothing but the files that the options name.
fn configured_sources(
    configuration: &Configuration,
) -> Result<Vec<ConfiguredSource>, CommandFailure> {
    let tables = match configuration.sources.as_slice() {
        [] => vec![None],
        sources => sources.iter().map(Some).collect(),
    };
    let resolve = |table: Option<&SourceTable>| {
        let in_source = |failure: CommandFailure| match (table, failure) {
            (Some(table), CommandFailure::Usage(problem)) => CommandFailure::Usage(format!(
                "source {} ({}): {problem}",
                table.name, table.origin
            )),
            (_, failure) => failure,
        };
        let given = configuration.effective(table);
        let config = Run::from_given(&given).map_err(in_source)?;
        Ok(ConfiguredSource { name: table.map(|table| table.name.clone()), config, given })
    };
    let configured: Vec<ConfiguredSource> =
        tables.into_iter().map(resolve).collect::<Result<_, CommandFailure>>()?;
    check_alerts(&configured)?;
    Ok(configured)
}

/// Rejects alerts that can never fire. One that several sources have may be about a figure that
/// only some of them have.
fn check_alerts(configured: &[ConfiguredSource]) -> Result<(), CommandFailure> {
    let alerts = |source: &ConfiguredSource| source.config.plan.options.alerts.clone();
    for source in configured {
        for rule in alerts(source) {
            let Some(problem) = source.config.alert_problem(&rule) else { continue };
            let mut others = configured.iter().filter(|other| alerts(other).contains(&rule));
            if others.all(|other| other.config.alert_problem(&rule).is_some()) {
                let name = source.name.as_ref();
                let of_source = name.map_or_else(String::new, |name| format!("source {name}: "));
                return refuse(format!("{of_source}{problem}"));
            }
        }
    }
    Ok(())
}

/// Checks a configuration without opening interfaces, captures or switches.
pub(crate) fn check(configuration: &Configuration) -> Result<(), CommandFailure> {
    configured_sources(configuration).map(drop)
}

/// Returns the sources to count while these interfaces exist.
fn wanted_sources(
    all: &[ConfiguredSource],
    there: &[ListedInterface],
    stack: &Stack,
) -> Result<Vec<WantedSource>, CommandFailure> {
    let mut wanted: Vec<WantedSource> = Vec::new();
    for asked in all {
        let ConfiguredSource { name, config, given } = asked;
        let source = |name: String, matched, presence| WantedSource {
            name,
            config: config.clone(),
            given: given.clone(),
            matched,
            presence,
        };
        if !asked.has_patterns() {
            // A missing interface of the only source is an error, not a reason to wait.
            let needed = if all.len() > 1 { config.source.needed_interfaces() } else { Vec::new() };
            let found = there.iter().find(|interface| needed.contains(&interface.name.as_str()));
            let presence = match found {
                None if !needed.is_empty() => Availability::Absent(needed.join(",")),
                found => Availability::Present(found.map(|interface| interface.number)),
            };
            add_source(&mut wanted, source(name.clone().unwrap_or_default(), None, presence), true);
            continue;
        }
        let is_own_name = name.as_ref().is_none_or(|name| *name == asked.interfaces().join(","));
        for (interface, is_covered) in matching(asked.interfaces(), there, stack)? {
            let name = match name {
                Some(name) if !is_own_name => format!("{name}/{}", interface.name),
                _ => interface.name.clone(),
            };
            let presence = if is_covered {
                Availability::Covered(interface.number, stack.below(&interface.name))
            } else {
                Availability::Present(Some(interface.number))
            };
            add_source(&mut wanted, source(name, Some(interface.name), presence), false);
        }
    }
    Ok(wanted)
}

/// Adds a source. One that another pattern leaves out makes room; of other sources that patterns
/// make with one name, the first stays.
fn add_source(wanted: &mut Vec<WantedSource>, new: WantedSource, is_named: bool) {
    let is_new_covered = matches!(new.presence, Availability::Covered(..));
    match wanted.iter_mut().find(|other| other.name == new.name) {
        Some(other) if !is_new_covered && matches!(other.presence, Availability::Covered(..)) => {
            *other = new;
        }
        Some(_) if !is_named => {}
        _ => wanted.push(new),
    }
}

/// Returns the interfaces that match any of these names or patterns, and whether each is left out.
/// A pattern leaves out an interface if it also matches interfaces below that all of its packets
/// cross: one that matches no other interface asks for this one, and so does a name.
fn matching(
    patterns: &[String],
    there: &[ListedInterface],
    stack: &Stack,
) -> Result<Vec<(ListedInterface, bool)>, CommandFailure> {
    let parse = |pattern: &String| {
        Pattern::new(pattern).map_err(|error| {
            CommandFailure::Usage(format!(
                "'{pattern}' is not a valid interface pattern: {}",
                error.msg
            ))
        })
    };
    let parsed: Vec<Pattern> = patterns.iter().map(parse).collect::<Result<_, _>>()?;
    let is_match = |name: &String| {
        parsed.iter().any(|pattern| pattern.matches(name)) || patterns.contains(name)
    };
    let is_covered = |name: &String| {
        let mut matching = parsed.iter().filter(|pattern| pattern.matches(name));
        !patterns.contains(name)
            && matching.all(|pattern| stack.is_covered(name, &|lower: &str| pattern.matches(lower)))
    };
    let matches = there.iter().filter(|interface| is_match(&interface.name));
    Ok(matches.map(|interface| (interface.clone(), is_covered(&interface.name))).collect())
}

/// Starts a thread that reports changes of interfaces.
fn follow_links(events: Sender<Event>) -> Result<(), CommandFailure> {
    let links = LinkChanges::open().map_err(cannot("watch for interface changes"))?;
    let follow = move || {
        loop {
            match links.wait() {
                Ok(departures) => {
                    if events.send(Event::Links(departures)).is_err() {
                        return;
                    }
                }
                Err(error) => {
                    return tracing::warn!(
                        "cannot watch for interface changes any longer; new interfaces are not counted: {error}"
                    );
                }
            }
        }
    };
    let started = thread::Builder::new().name("links".to_owned()).spawn(follow);
    started.map_err(cannot("watch for interface changes"))?;
    Ok(())
}

/// Reports the memory that sources on several interfaces are about to take in the kernel.
fn report_memory<'a>(sources: impl Iterator<Item = &'a WantedSource>) {
    let of_source = |wanted: &WantedSource| {
        let WantedSource { config, .. } = wanted;
        let Source::Interfaces(Interfaces { directions, .. }) = &config.source else { return None };
        let interfaces = wanted.interfaces().len();
        let places = interfaces * directions.all().len();
        let options = xdp::Options::new(config.settings);
        let bytes = options.map_bytes(places, config.plan.filter.is_some()).ok()?;
        Some((interfaces, bytes))
    };
    let each: Vec<(usize, u64)> = sources.filter_map(of_source).collect();
    let interfaces: usize = each.iter().map(|(interfaces, _)| interfaces).sum();
    if interfaces < 2 {
        return;
    }
    let bytes: u64 = each.iter().map(|(_, bytes)| bytes).sum();
    let taken = format!("{interfaces} interfaces: the kernel's arrays take {}", size(bytes));
    match Machine::this().available_memory() {
        Some(available) if available < bytes => tracing::warn!(
            "{taken}, but only {} are available; match fewer interfaces, or measure less",
            size(available)
        ),
        Some(available) => tracing::info!("{taken}; {} are available", size(available)),
        None => tracing::info!("{taken}"),
    }
}

fn log_all(messages: &[String]) {
    messages.iter().for_each(|message| tracing::warn!("{message}"));
}

impl Agent<'_> {
    /// Checks that the outputs support several sources.
    fn check(&self) -> Result<(), CommandFailure> {
        if !self.several {
            return Ok(());
        }
        if self.outputs.format == Some(Format::Csv) {
            return refuse(
                "--format csv supports one source only; use --out DIR for one CSV file per source, or --format json",
            );
        }
        if self.outputs.record.is_some() || self.outputs.delay_samples.is_some() {
            return refuse(
                "--record and --delay-samples support one source only; remove them, or the other sources",
            );
        }
        Ok(())
    }

    /// Starts the servers and exporters that all sources share.
    fn serve(&self, problems: &FileProblems) -> Result<Option<RunningExporters>, CommandFailure> {
        if !self.several {
            return Ok(None);
        }
        let SharedOutputs { exporters, publication, .. } = &*self.shared;
        exporters
            .start(&self.outputs, &identity(&self.outputs, None)?, publication, problems)
            .map(Some)
    }

    /// Starts the configured sources and returns when all have ended.
    fn supervise(mut self, heard: &Receiver<Event>) -> Result<(), CommandFailure> {
        let (patterns, several) = (self.patterns, self.several);
        let begun = self.begun;
        let controller = service::Heartbeat::new();
        // This thread must react to signals too while no source is being counted.
        let _all = several.then(|| signals::end_on_signal(None));
        self.start_wanted()?;
        if several {
            // Publish only once the sources are known, so that `status` never finds a run without
            // them.
            self.shared.publication.start();
        }
        if self.running.is_empty() && patterns {
            tracing::warn!("no interface matches the pattern yet; waiting for one");
        }
        let continues = |agent: &Self| {
            let is_waiting = agent.waits(begun) && (patterns || !agent.absent.is_empty());
            !agent.running.is_empty() || (is_waiting && !agent.is_ending())
        };
        while continues(&self) {
            log_all(&self.messages.due(Instant::now(), LINE_INTERVAL));
            match heard.recv_timeout(POLL_INTERVAL) {
                Ok(Event::Began(name)) => {
                    self.began(&name);
                    continue;
                }
                Ok(Event::Ended(name, outcome)) => self.ended(&name, outcome),
                Ok(Event::Reload) => self.reload(),
                Ok(Event::Links(departures)) => self.left(&departures),
                Err(RecvTimeoutError::Timeout) => {
                    controller.beat();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if several && !self.is_ending() {
                self.start_wanted()?;
            }
            // A run whose only source failed at once was never ready.
            if continues(&self) {
                controller.beat();
            }
        }
        self.conclude()
    }

    /// Returns whether no more sources are started.
    fn is_ending(&self) -> bool {
        self.unread.is_some() || signals::is_ending()
    }

    /// Ends all sources, since none can write any more.
    fn end_unread(&mut self, failure: CommandFailure) {
        self.unread.get_or_insert(failure);
        self.running.values_mut().for_each(RunningSource::end);
    }

    /// Registers that a source has begun to count.
    fn began(&mut self, name: &str) {
        let late = self.begun.elapsed();
        if late >= LATE_BEGIN {
            let late = format!("{} s", late.as_secs());
            self.messages.add(SourceChange::BeganLate, name, &late);
        }
    }

    /// Registers that interfaces have left. A source that ends, or has failed, since its interface
    /// left is started again if the interface is back, although it has the same index. If the kernel
    /// dropped notifications, any interface may have left.
    fn left(&mut self, departures: &Departures) {
        for running in self.running.values_mut() {
            let has_left = |it| departures.has(it) || departures.are_incomplete();
            running.has_left |= running.interface.is_some_and(has_left);
        }
        self.retry(|interface| departures.has(interface));
    }

    /// Forgets failures of sources whose interface has gone, so that they can start again.
    fn retry(&mut self, is_gone: impl Fn(u32) -> bool) {
        let publication = &self.shared.publication;
        self.failed.retain(|(name, interface)| {
            let is_over = interface.is_some_and(&is_gone);
            if is_over {
                publication.ended(name);
            }
            !is_over
        });
    }

    /// Returns whether a run that began at this time waits for interfaces. With a duration it waits
    /// only for the first one, and no longer than the duration.
    fn waits(&self, begun: Instant) -> bool {
        let durations =
            self.configured.iter().filter_map(|asked| asked.config.plan.intervals.duration);
        durations.max().is_none_or(|longest| self.started == 0 && begun.elapsed() < longest)
    }

    fn start_wanted(&mut self) -> Result<(), CommandFailure> {
        // List once: an interface created between two listings would have no index in the first.
        let listed = if self.several { interfaces::list() } else { Ok(Vec::new()) };
        let there = match listed {
            Ok(there) => there,
            Err(failure) if self.started == 0 => return Err(failure),
            // Sources continue; the next change is a new attempt.
            Err(failure) => {
                tracing::warn!("{failure}; new interfaces are not counted until the next change");
                return Ok(());
            }
        };
        let stack = if self.several { interfaces::stack() } else { Stack::default() };
        let is_there = |number: u32| there.iter().any(|interface| interface.number == number);
        // Its interface was replaced.
        self.retry(|interface| !is_there(interface));
        let shared = Arc::clone(&self.shared);
        let publication = &shared.publication;
        let all = wanted_sources(&self.configured, &there, &stack)?;
        self.report_stack(&all, &stack);
        self.covered.retain(|(_, left)| is_there(*left));
        let is_absent = |name: &String| {
            all.iter().any(|it| it.name == *name && matches!(it.presence, Availability::Absent(_)))
        };
        self.absent.retain(|name| {
            let stays = is_absent(name);
            if !stays {
                publication.ended(name);
            }
            stays
        });
        let (mut ready, mut expected) = (Vec::new(), Vec::new());
        for wanted in all {
            let interface = match &wanted.presence {
                Availability::Present(interface) => *interface,
                // The source ends by itself when its interface is removed.
                Availability::Absent(_) if self.running.contains_key(&wanted.name) => continue,
                Availability::Absent(interfaces) => {
                    expected.push((wanted.name.clone(), Expected::Absent(interfaces.clone())));
                    if self.absent.insert(wanted.name.clone()) {
                        tracing::warn!(
                            "{}: interface {interfaces} does not exist; counting starts when it does",
                            wanted.name
                        );
                    }
                    continue;
                }
                Availability::Covered(number, _) => {
                    self.covered.insert((wanted.name.clone(), *number));
                    self.leave_out(&wanted.name);
                    continue;
                }
            };
            if self.is_empty_again(&wanted, interface, &stack) {
                continue;
            }
            let tried = (wanted.name.clone(), interface);
            if !self.running.contains_key(&wanted.name)
                && !self.failed.contains(&tried)
                && !self.done.contains(&tried)
            {
                expected.push((wanted.name.clone(), Expected::Started));
                ready.push((wanted, interface));
            }
        }
        if self.several {
            publication.expects(expected);
        }
        report_memory(ready.iter().map(|(wanted, _)| wanted));
        // Interfaces that come later share the programs of those before.
        let running = self.running.values().map(|running| &running.config.source);
        let sources = running.chain(ready.iter().map(|(wanted, _)| &wanted.config.source));
        let on_interfaces = |source: &&Source| matches!(source, Source::Interfaces(_));
        let are_many = sources.filter(on_interfaces).count() >= SHARING_INTERFACES;
        let programs = are_many.then(|| Arc::clone(&self.programs));
        for (wanted, interface) in ready {
            if !self.running.contains_key(&wanted.name) {
                self.start(wanted, interface, programs.clone())?;
            }
        }
        Ok(())
    }

    /// Stops a source whose packets are counted below it.
    fn leave_out(&mut self, name: &str) {
        match self.running.get_mut(name) {
            Some(running) => running.end(),
            None => self.shared.publication.ended(name),
        }
    }

    /// Returns whether a source was left out and nothing is below its interface any more, as of a
    /// bridge between two containers. No packet crosses it then, and starting to count there would
    /// be in vain.
    fn is_empty_again(&self, wanted: &WantedSource, number: Option<u32>, stack: &Stack) -> bool {
        let Some((interface, number)) = wanted.matched.as_ref().zip(number) else { return false };
        self.covered.contains(&(wanted.name.clone(), number)) && stack.below(interface).is_empty()
    }

    /// Warns of interfaces above counted ones, of each once.
    fn report_stack(&mut self, all: &[WantedSource], stack: &Stack) {
        let is_present =
            |wanted: &&WantedSource| matches!(wanted.presence, Availability::Present(_));
        let counted: BTreeSet<&str> =
            all.iter().filter(is_present).flat_map(WantedSource::interfaces).collect();
        let left_out = all.iter().filter_map(|wanted| match (&wanted.matched, &wanted.presence) {
            (Some(interface), Availability::Covered(_, below)) => {
                Some((interface.clone(), below.clone()))
            }
            _ => None,
        });
        let (mut left_out, mut overlaps) = (left_out.collect::<Vec<_>>(), stack.overlaps(&counted));
        left_out.retain(|(upper, _)| !self.reported_stack.contains(upper));
        overlaps.retain(|(upper, _)| !self.reported_stack.contains(upper));
        if let Some(warning) = interfaces::stack_warning(&left_out, &overlaps) {
            tracing::warn!("{warning}");
        }
        let reported = left_out.into_iter().chain(overlaps).map(|(upper, _)| upper);
        self.reported_stack.extend(reported);
    }

    fn start(
        &mut self,
        wanted: WantedSource,
        interface: Option<u32>,
        programs: Option<Arc<SharedPrograms>>,
    ) -> Result<(), CommandFailure> {
        let WantedSource { name, config, given, matched, .. } = wanted;
        let mut counted = config.clone();
        if let (Source::Interfaces(interfaces), Some(interface)) = (&mut counted.source, matched) {
            interfaces.names = vec![interface];
        }
        let named = self.several.then(|| name.as_str().into());
        let (began, label) = (self.events.clone(), name.clone());
        let has_begun = move || _ = began.send(Event::Began(label.clone()));
        let handle = SourceHandle::awaited(named, Arc::clone(&self.shared)).sharing(programs);
        let handle = Arc::new(if self.several { handle.reporting(has_begun) } else { handle });
        let of_thread = Arc::clone(&handle);
        let notify_end =
            NotifyEndOnDrop { events: self.events.clone(), name: name.clone(), outcome: None };
        let (several, label) = (self.several, name.clone());
        let body = move || {
            let mut notify_end = notify_end;
            let _span = several.then(|| tracing::error_span!("source", name = %label).entered());
            notify_end.outcome = Some(count(&counted, &of_thread));
        };
        let thread = if self.several { format!("source {name}") } else { "controller".to_owned() };
        thread::Builder::new()
            .name(thread)
            .spawn(body)
            .map_err(cannot(format_args!("start a thread for source {name}")))?;
        self.started += 1;
        locked(&self.shared.exporters.configured).insert(name.clone(), given.clone());
        let source =
            RunningSource { handle, config, given, interface, has_left: false, ends: false };
        self.running.insert(name, source);
        Ok(())
    }

    fn ended(&mut self, name: &str, outcome: Result<(), CommandFailure>) {
        let Some(RunningSource { interface, has_left, ends, .. }) = self.running.remove(name)
        else {
            return;
        };
        locked(&self.shared.exporters.configured).remove(name);
        // An interface created meanwhile under the same name is a different one.
        let is_gone = has_left
            || interface.is_some_and(|number| {
                interfaces::list().is_ok_and(|all| all.iter().all(|it| it.number != number))
            });
        let failure = match outcome {
            Ok(()) => {
                if self.several && !ends && !self.is_ending() {
                    self.messages.add(SourceChange::Ended, name, "");
                }
                // Do not restart a source that ended by itself, unless another interface gets this
                // name. One that was stopped starts again when it is wanted again.
                if !ends {
                    self.done.insert((name.to_owned(), interface));
                }
                self.shared.publication.ended(name);
                return;
            }
            Err(failure) => failure,
        };
        if self.several && matches!(failure, CommandFailure::Closed | CommandFailure::ReaderGone) {
            self.shared.publication.ended(name);
            return self.end_unread(failure);
        }
        if is_gone {
            self.messages.add(SourceChange::InterfaceRemoved, name, "");
            // A source of a pattern is dropped from this set when sources are started next.
            self.absent.insert(name.to_owned());
            return;
        }
        self.failed.insert((name.to_owned(), interface));
        if self.several {
            self.shared.publication.expects([(name.to_owned(), Expected::Failed)]);
            // Report each failure at once, in one line. The warning was logged if results are
            // incomplete.
            let rest = if self.running.is_empty() { "" } else { "; the other sources continue" };
            let failure = escaped(&failure.to_string()).into_owned();
            print_message(&format!("error: source {}: {failure}{rest}", escaped(name)));
        }
        self.failures.push((name.to_owned(), failure));
    }

    fn conclude(mut self) -> Result<(), CommandFailure> {
        log_all(&self.messages.due(Instant::now(), Duration::ZERO));
        if !self.several {
            return self.failures.pop().map_or(Ok(()), |(_, failure)| Err(failure));
        }
        if let Some(failure) = self.unread.take() {
            return Err(failure);
        }
        let names: Vec<&str> = self.failures.iter().map(|(name, _)| name.as_str()).collect();
        match names.len() {
            0 if self.started == 0 && !signals::is_ending() => {
                let wanted: Vec<&str> = self
                    .configured
                    .iter()
                    .flat_map(|asked| asked.config.source.needed_interfaces())
                    .collect();
                fail(format!(
                    "no interface matched {} until the end of the run; nothing was counted",
                    wanted.join(", ")
                ))
            }
            0 => Ok(()),
            failed if failed < self.started => {
                fail(format!("{failed} of {} sources failed: {}", self.started, names.join(", ")))
            }
            _ => fail(format!("all sources failed: {}", names.join(", "))),
        }
    }
}
