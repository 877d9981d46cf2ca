//! Sources of packets that one run counts at once, each with a controller and a thread of its own.
//!
//! The main thread starts and ends them, as the configuration and the interfaces of this machine say, and goes on until all have ended. Outputs are
//! shared: lines of one source are never inside those of another. A source that fails ends alone, and is told.

mod lines;
mod reload;

pub(crate) use lines::Lines;

use crate::config::{Configuration, Given, SourceTable};
use crate::error::Failure;
use crate::listen::{Open, Outlets};
use crate::measure::identity;
use crate::options::Options;
use crate::run::{Run, no_source};
use crate::service;
use crate::signals;
use crate::status::Publication;
use crate::writers::Problems;
use clap::ArgMatches;
use flowgauge_ctl::clock::Interrupt;
use flowgauge_ctl::controller::Changes;
use flowgauge_ctl::output::{Format, escaped};
use flowgauge_dataplane::xdp::LinkChanges;
use glob::Pattern;
use nix::net::if_::if_nameindex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How often the main thread looks whether the run is to end, and says that it lives.
const LOOK: Duration = Duration::from_millis(100);

/// What sources of one run have in common.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) outlets: Outlets,
    pub(crate) publication: Publication,
    pub(crate) output: lines::Output,
}

/// A source, as its thread knows it.
pub(crate) struct Source {
    /// Its name, if there may be several.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) interrupt: Interrupt,
    pub(crate) changes: Changes,
    /// What it counts with, once it does.
    options: Mutex<Option<Options>>,
    /// The run is not ready before this source is.
    controller: Mutex<Option<service::Controller>>,
}

impl fmt::Debug for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Source").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Source {
    fn options(&self) -> MutexGuard<'_, Option<Options>> {
        self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What its controller shows that it gets on with; given once.
    pub(crate) fn controller(&self) -> Option<service::Controller> {
        self.controller.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// It begins to count with these.
    pub(crate) fn begin(&self, options: &Options) {
        *self.options() = Some(Options { source: None, ..options.clone() });
    }
}

/// What the main thread hears of.
enum Event {
    /// The source of this name has ended.
    Ended(String, Result<(), Failure>),
    /// The configuration is to be read again.
    Reload,
    /// Interfaces came, went or changed.
    Links,
}

/// Tells of a source's end, also if its thread dies.
struct Farewell {
    events: Sender<Event>,
    name: String,
    outcome: Option<Result<(), Failure>>,
}

impl Drop for Farewell {
    fn drop(&mut self) {
        let died = || Err(Failure::Failed("its thread has died; report this as a bug with the log above".to_owned()));
        let outcome = self.outcome.take().unwrap_or_else(died);
        // Nobody listens any more once the main thread has returned.
        let _ = self.events.send(Event::Ended(std::mem::take(&mut self.name), outcome));
    }
}

/// A source that is to be counted.
struct Wanted {
    name: String,
    /// Its table in the file.
    table: Option<SourceTable>,
    /// The one interface of those that a pattern stands for.
    matched: Option<String>,
    presence: Presence,
}

/// Whether a source can be counted now.
enum Presence {
    /// It can; with the number of its interface, if it comes and goes with one.
    There(Option<u32>),
    /// None of these interfaces, with commas between, is there.
    Absent(String),
}

/// An interface, as it was when this machine's interfaces were listed.
#[derive(Clone)]
struct Interface {
    number: u32,
    name: String,
}

/// A source that is being counted.
struct Running {
    source: Arc<Source>,
    given: Vec<Given>,
    /// The number of its interface, if it comes and goes with one.
    interface: Option<u32>,
    /// Whether it was asked to end.
    ends: bool,
}

struct Agent<'a> {
    arguments: &'a ArgMatches,
    configuration: Configuration,
    shared: Arc<Shared>,
    /// Whether there are several sources, or may be.
    several: bool,
    /// Whether interfaces are told by patterns.
    patterns: bool,
    running: BTreeMap<String, Running>,
    /// Sources that wait for their interfaces.
    absent: BTreeSet<String>,
    /// Sources that could not be started, with the number of their interface, or have failed.
    failed: BTreeSet<(String, Option<u32>)>,
    /// Sources whose traffic is over.
    done: BTreeSet<(String, Option<u32>)>,
    failures: Vec<(String, Failure)>,
    started: usize,
    events: Sender<Event>,
}

/// Counts all sources that the configuration and the command line name.
pub(crate) fn run(arguments: &ArgMatches, configuration: Configuration) -> Result<(), Failure> {
    let (events, heard) = channel();
    let patterns = patterns(&configuration)?;
    let several = !configuration.sources.is_empty() || patterns;
    let agent = Agent {
        arguments,
        configuration,
        shared: Arc::default(),
        several,
        patterns,
        running: BTreeMap::new(),
        absent: BTreeSet::new(),
        failed: BTreeSet::new(),
        done: BTreeSet::new(),
        failures: Vec::new(),
        started: 0,
        events,
    };
    agent.check()?;
    let problems = Problems::default();
    let open = agent.serve(&problems)?;
    let reload = agent.events.clone();
    if agent.configuration.file.is_some() {
        signals::on_reload(move || _ = reload.send(Event::Reload));
    }
    if several {
        follow_links(agent.events.clone())?;
    }
    let outcome = agent.go_on(&heard);
    drop(open);
    match problems.all().pop() {
        Some(problem) if outcome.is_ok() => Err(Failure::Incomplete(problem)),
        _ => outcome,
    }
}

/// Whether an interface's name is a pattern of names.
pub(crate) fn is_pattern(interface: &str) -> bool {
    interface.contains(['*', '?', '[']) && !interfaces().iter().any(|other| other.name == interface)
}

/// Names of interfaces that are up, but for the loopback.
pub(crate) fn interfaces_that_are_up() -> Vec<String> {
    let is_up = |interface: &Interface| {
        let flags = fs::read_to_string(format!("/sys/class/net/{}/flags", interface.name)).unwrap_or_default();
        let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).unwrap_or(0);
        flags & 1 == 1 && flags & 8 == 0
    };
    interfaces().into_iter().filter(is_up).map(|interface| interface.name).collect()
}

/// Interfaces of this machine.
fn interfaces() -> Vec<Interface> {
    let listed =
        |one: &nix::net::if_::Interface| Interface { number: one.index(), name: one.name().to_string_lossy().into_owned() };
    let all = if_nameindex().map_err(|error| tracing::warn!("cannot list the interfaces of this machine: {error}"));
    all.map(|all| all.iter().map(listed).collect()).unwrap_or_default()
}

/// Whether any source is told by a pattern.
fn patterns(configuration: &Configuration) -> Result<bool, Failure> {
    let mut any = false;
    for table in tables(configuration) {
        let Prepared { run, .. } = prepared(configuration, table)?;
        any |= run.interfaces().iter().any(|interface| is_pattern(interface));
    }
    Ok(any)
}

/// Whether interfaces are waited for. It is an error if that of the only source is not there.
fn waits_for_interfaces(configuration: &Configuration) -> bool {
    configuration.sources.len() > 1
}

/// The sources of the file, or the one that there is without.
fn tables(configuration: &Configuration) -> Vec<Option<&SourceTable>> {
    if configuration.sources.is_empty() { vec![None] } else { configuration.sources.iter().map(Some).collect() }
}

struct Prepared {
    run: Run,
    given: Vec<Given>,
}

/// Options of a source.
fn prepared(configuration: &Configuration, table: Option<&SourceTable>) -> Result<Prepared, Failure> {
    let mut run = Run::default();
    let names = configuration.fill(&mut run, table)?;
    run.set_given(names);
    let given = configuration.effective(table).into_iter().cloned().collect();
    Ok(Prepared { run, given })
}

/// Checks a configuration, as far as that takes nothing but reading it.
pub(crate) fn check(configuration: &Configuration) -> Result<(), Failure> {
    for table in tables(configuration) {
        let in_source = |failure: Failure| match (table, failure) {
            (Some(table), Failure::Usage(problem)) => {
                Failure::Usage(format!("source {} ({}): {problem}", table.name, table.origin))
            }
            (_, failure) => failure,
        };
        let Prepared { run, .. } = prepared(configuration, table)?;
        run.options().check().map_err(in_source)?;
        if !run.has_source() {
            return Err(in_source(no_source()));
        }
    }
    Ok(())
}

/// Sources as they are wanted where there are these interfaces.
fn wanted(configuration: &Configuration, there: &[Interface]) -> Result<Vec<Wanted>, Failure> {
    let mut all: Vec<Wanted> = Vec::new();
    for table in tables(configuration) {
        let Prepared { run, .. } = prepared(configuration, table)?;
        let named = table.map(|table| table.name.clone());
        if !run.interfaces().iter().any(|interface| is_pattern(interface)) {
            let needed = if waits_for_interfaces(configuration) { run.needed_interfaces() } else { Vec::new() };
            let found = there.iter().find(|interface| needed.contains(&interface.name.as_str()));
            let presence = match found {
                None if !needed.is_empty() => Presence::Absent(needed.join(",")),
                found => Presence::There(found.map(|interface| interface.number)),
            };
            all.push(Wanted { name: named.unwrap_or_default(), table: table.cloned(), matched: None, presence });
            continue;
        }
        let is_own_name = named.as_ref().is_none_or(|name| *name == run.interfaces().join(","));
        for interface in matching(run.interfaces(), there)? {
            let name = match &named {
                Some(name) if !is_own_name => format!("{name}/{}", interface.name),
                _ => interface.name.clone(),
            };
            if !all.iter().any(|other| other.name == name) {
                let presence = Presence::There(Some(interface.number));
                all.push(Wanted { name, table: table.cloned(), matched: Some(interface.name), presence });
            }
        }
    }
    Ok(all)
}

/// Those of the interfaces that any of these names or patterns stands for.
fn matching(patterns: &[String], there: &[Interface]) -> Result<Vec<Interface>, Failure> {
    let parse = |pattern: &String| {
        Pattern::new(pattern).map_err(|error| Failure::Usage(format!("'{pattern}' is no pattern of interfaces: {}", error.msg)))
    };
    let parsed: Vec<Pattern> = patterns.iter().map(parse).collect::<Result<_, _>>()?;
    let matches = |name: &String| parsed.iter().any(|pattern| pattern.matches(name)) || patterns.contains(name);
    Ok(there.iter().filter(|interface| matches(&interface.name)).cloned().collect())
}

/// Tells of changes of interfaces from now on.
fn follow_links(events: Sender<Event>) -> Result<(), Failure> {
    let fail = |error: std::io::Error| Failure::Failed(format!("cannot hear of interfaces that come and go: {error}"));
    let links = LinkChanges::open().map_err(fail)?;
    let follow = move || {
        loop {
            match links.wait() {
                Ok(()) if events.send(Event::Links).is_ok() => {}
                Ok(()) => return,
                Err(error) => return tracing::warn!("interfaces that come from now on are not counted: {error}"),
            }
        }
    };
    thread::Builder::new().name("links".to_owned()).spawn(follow).map_err(fail)?;
    Ok(())
}

impl Agent<'_> {
    /// Whether all goes together before anything is opened.
    fn check(&self) -> Result<(), Failure> {
        check(&self.configuration)?;
        if !self.several {
            return Ok(());
        }
        let refused = |problem: &str| Err(Failure::Usage(problem.to_owned()));
        let Prepared { run, .. } = prepared(&self.configuration, None)?;
        let options = run.options();
        if options.format == Some(Format::Csv) {
            return refused(
                "--format csv has columns for one source; --out DIR writes a CSV file for each, --format json has lines of all",
            );
        }
        if options.record.is_some() || options.own.delay.samples().is_some() {
            return refused("--record and --delay-samples are for one source; leave them out, or leave out the others");
        }
        Ok(())
    }

    /// Serves all sources together.
    fn serve(&self, problems: &Problems) -> Result<Option<Open>, Failure> {
        if !self.several {
            return Ok(None);
        }
        let Prepared { run, .. } = prepared(&self.configuration, None)?;
        let Shared { outlets, publication, .. } = &*self.shared;
        outlets.open(run.options(), &identity(run.options())?, publication, problems).map(Some)
    }

    /// Starts what is wanted, until all have ended.
    fn go_on(mut self, heard: &Receiver<Event>) -> Result<(), Failure> {
        let (patterns, several) = (self.patterns, self.several);
        // For some time only, it does not wait for interfaces.
        let waits = prepared(&self.configuration, None)?.run.options().duration.is_none();
        let controller = service::Controller::new();
        // Signals are for this thread as well, while there is nothing to count yet.
        let _all = several.then(|| signals::end_on_signal(None));
        self.start_wanted()?;
        if several {
            // Nobody finds the run before it knows its sources.
            self.shared.publication.start();
        }
        if self.running.is_empty() && patterns {
            tracing::warn!("no interface has such a name yet; those that come are counted");
        }
        let goes_on = |agent: &Self| {
            let is_waiting = waits && (patterns || !agent.absent.is_empty());
            !agent.running.is_empty() || (is_waiting && !signals::is_ending())
        };
        while goes_on(&self) {
            match heard.recv_timeout(LOOK) {
                Ok(Event::Ended(name, outcome)) => self.ended(&name, outcome),
                Ok(Event::Reload) => self.reload(),
                Ok(Event::Links) => {}
                Err(RecvTimeoutError::Timeout) => {
                    controller.beat();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if several && !signals::is_ending() {
                self.start_wanted()?;
            }
            // Whose only source has failed was never ready.
            if goes_on(&self) {
                controller.beat();
            }
        }
        self.conclude()
    }

    fn start_wanted(&mut self) -> Result<(), Failure> {
        // Listed once: an interface that came between two lists would have no number in the first.
        let there = if self.several { interfaces() } else { Vec::new() };
        // What failed may be tried again where the interface is another one.
        let shared = Arc::clone(&self.shared);
        let publication = &shared.publication;
        self.failed.retain(|(name, failed)| {
            let stays = failed.is_none_or(|failed| there.iter().any(|interface| interface.number == failed));
            if !stays {
                publication.ended(name);
            }
            stays
        });
        let all = wanted(&self.configuration, &there)?;
        let is_absent = |name: &String| all.iter().any(|it| it.name == *name && matches!(it.presence, Presence::Absent(_)));
        self.absent.retain(|name| {
            let stays = is_absent(name);
            if !stays {
                publication.ended(name);
            }
            stays
        });
        for wanted in all {
            let interface = match &wanted.presence {
                Presence::There(interface) => *interface,
                // It ends by itself.
                Presence::Absent(_) if self.running.contains_key(&wanted.name) => continue,
                Presence::Absent(interfaces) => {
                    publication.absent(&wanted.name, interfaces);
                    if self.absent.insert(wanted.name.clone()) {
                        tracing::warn!("{}: there is no interface {interfaces}; it is counted when it is there", wanted.name);
                    }
                    continue;
                }
            };
            let tried = (wanted.name.clone(), interface);
            if !self.running.contains_key(&wanted.name) && !self.failed.contains(&tried) && !self.done.contains(&tried) {
                self.start(wanted, interface)?;
            }
        }
        Ok(())
    }

    fn start(&mut self, wanted: Wanted, interface: Option<u32>) -> Result<(), Failure> {
        let Wanted { name, table, matched, .. } = wanted;
        let Prepared { mut run, given } = prepared(&self.configuration, table.as_ref())?;
        if let Some(interface) = matched {
            run.count_at(interface);
        }
        let source = Arc::new(Source {
            name: self.several.then(|| name.as_str().into()),
            shared: Arc::clone(&self.shared),
            interrupt: Interrupt::default(),
            changes: Changes::default(),
            options: Mutex::default(),
            controller: Mutex::new(Some(service::Controller::new())),
        });
        run.set_source(Arc::clone(&source));
        let farewell = Farewell { events: self.events.clone(), name: name.clone(), outcome: None };
        let (several, label) = (self.several, name.clone());
        let body = move || {
            let mut farewell = farewell;
            let _span = several.then(|| tracing::error_span!("source", name = %label).entered());
            farewell.outcome = Some(run.start());
        };
        if self.several {
            self.shared.publication.started(&name);
        }
        let thread = if self.several { format!("source {name}") } else { "controller".to_owned() };
        thread::Builder::new()
            .name(thread)
            .spawn(body)
            .map_err(|error| Failure::Failed(format!("cannot start a thread for source {name}: {error}")))?;
        self.started += 1;
        self.shared.outlets.configured.set(&name, &given);
        self.running.insert(name, Running { source, given, interface, ends: false });
        Ok(())
    }

    fn ended(&mut self, name: &str, outcome: Result<(), Failure>) {
        let Some(Running { interface, ends, .. }) = self.running.remove(name) else { return };
        self.shared.outlets.configured.remove(name);
        // One of the same name that has come meanwhile is another one.
        let is_gone = interface.is_some_and(|number| !interfaces().iter().any(|interface| interface.number == number));
        let failure = match outcome {
            Ok(()) => {
                if self.several && !ends && !signals::is_ending() {
                    tracing::warn!("source {name} has ended");
                }
                // It does not begin again, unless on another interface of this name.
                self.done.insert((name.to_owned(), interface));
                self.shared.publication.ended(name);
                return;
            }
            Err(failure) => failure,
        };
        if is_gone {
            tracing::warn!("{name} is gone; it is counted again when it is there again");
            // Those of a pattern are not waited for, which is seen when sources are next started.
            self.absent.insert(name.to_owned());
            return;
        }
        self.failed.insert((name.to_owned(), interface));
        if self.several {
            self.shared.publication.failed(name);
            // One line for each, and at once; what is incomplete was told by its warning.
            let rest = if self.running.is_empty() { "" } else { "; the others go on" };
            eprintln!("error: source {}: {}{rest}", escaped(name), escaped(&failure.to_string()));
        }
        self.failures.push((name.to_owned(), failure));
    }

    fn conclude(mut self) -> Result<(), Failure> {
        if !self.several {
            return self.failures.pop().map_or(Ok(()), |(_, failure)| Err(failure));
        }
        let names: Vec<&str> = self.failures.iter().map(|(name, _)| name.as_str()).collect();
        match names.len() {
            0 => Ok(()),
            failed if failed < self.started => {
                Err(Failure::Failed(format!("of {} sources these have failed: {}", self.started, names.join(", "))))
            }
            _ => Err(Failure::Failed(format!("all sources have failed: {}", names.join(", ")))),
        }
    }
}
