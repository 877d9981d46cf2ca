//! What `run` and `replay` have in common: a dataplane, driven to its end.

use crate::agent::{Lines, Source};
use crate::error::Failure;
use crate::listen::Outlets;
use crate::options::Options;
use crate::progress::Watch;
use crate::service;
use crate::signals::{end_on_signal, end_with};
use crate::status::Publication;
use crate::terminal;
use crate::value;
use crate::webhook::Caller;
use crate::writers::{Expendable, Patient, Problems, Whole};
use flowgauge_core::HashMode;
use flowgauge_ctl::Clock;
use flowgauge_ctl::clock::{Interrupt, Trace, Wall, nanoseconds};
use flowgauge_ctl::controller::{ControlError, Controller, Plan, Sink, Summary};
use flowgauge_ctl::lake::{self, Identity, Lake, Store};
use flowgauge_ctl::output::{Csv, DelayLog, Format, Idle, Json, Look, Origin, Tee, Times, escaped};
use flowgauge_ctl::schedule::Intervals;
use flowgauge_dataplane::Dataplane;
use flowgauge_dataplane::middleware::Recorder;
use flowgauge_dataplane::poll::port::{Port, Ports};
use flowgauge_dataplane::poll::{self, Gate, Pace, Poll};
use std::env;
use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The variable that names this machine in results: of containers, whose own names say nothing.
const HOST: &str = "FLOWGAUGE_HOST";
/// The variable that names this run, for results that can be repeated.
const RUN: &str = "FLOWGAUGE_RUN";

/// Windows that end later than this are worth a warning; on a busy machine short ones are late all the time.
const STALL: Duration = Duration::from_secs(1);

/// Counts what comes out of the ports, live or in trace time, and prints it.
pub(crate) fn measure<P: Port>(ports: Ports<P>, options: &Options, truth: bool) -> Result<(), Failure> {
    let live = ports.gate.pace() != Pace::Trace;
    let plan = options.plan(live && is_watched());
    let interface = ports.interface.clone();
    let poll = workers(ports, options, truth);
    let (gate, source) = (poll.gate(), poll.source());
    let interrupt = ended_by(options, Some(&gate));
    if gate.pace() == Pace::Trace {
        let watch = Watch::start(source, interface);
        let clock = || Trace::new(gate);
        return conduct(Box::new(poll), plan, options, clock, Some(&watch));
    }
    conduct(Box::new(poll), aligned(plan, options), options, || Wall::new(interrupt), None)
}

/// Workers that count what comes out of the ports.
pub(crate) fn workers<P: Port>(ports: Ports<P>, options: &Options, truth: bool) -> Poll {
    let how = poll::Options {
        settings: options.settings(),
        slot_ns: options.slot_ns(),
        truth,
        poll_mode: options.poll_mode.unwrap_or_default(),
        cpus: options.cpus.clone().map(|cpus| cpus.0).unwrap_or_default(),
        ..poll::Options::default()
    };
    let poll = Poll::new(ports, how);
    poll.gate().set_lateness(options.lateness());
    poll
}

/// Counts live on a dataplane that needs no ports, and prints it.
pub(crate) fn measure_live(dataplane: impl Dataplane + 'static, options: &Options) -> Result<(), Failure> {
    let interrupt = ended_by(options, None);
    let plan = aligned(options.plan(is_watched()), options);
    conduct(Box::new(dataplane), plan, options, || Wall::new(interrupt), None)
}

/// What ends a run: a signal, and of a source also the agent.
fn ended_by(options: &Options, gate: Option<&Arc<Gate>>) -> Interrupt {
    match &options.source {
        Some(source) => end_with(source.interrupt.clone(), gate),
        None => end_on_signal(gate),
    }
}

/// Whether somebody looks at the results as they come.
pub(crate) fn is_watched() -> bool {
    io::stdout().is_terminal()
}

/// Windows of live traffic coincide with those of other machines.
pub(crate) fn aligned(plan: Plan, options: &Options) -> Plan {
    Plan { intervals: Intervals { align: options.align.unwrap_or(true), ..plan.intervals }, ..plan }
}

fn conduct<C: Clock + 'static>(
    dataplane: Box<dyn Dataplane>,
    plan: Plan,
    options: &Options,
    clock: impl FnOnce() -> C,
    watch: Option<&Watch>,
) -> Result<(), Failure> {
    let dataplane: Box<dyn Dataplane> = match &options.record {
        Some(path) => Box::new(Recorder::new(dataplane, BufWriter::new(create(path)?))),
        None => dataplane,
    };
    let source = options.source.as_deref();
    let name = source.and_then(|source| source.name.clone());
    let mut sinks = Tee::default();
    let identity = identity(options)?;
    let origin = Origin { identity: Some(identity.clone()), sketches: options.sketches.unwrap_or_default() };
    // Until the run has ended.
    let (mut open, mut publication) = (None, None);
    let problems = Problems::default();
    // A replay is over before anyone asks how it is doing.
    if let Some((source, name)) = source.zip(name.as_ref()) {
        let shared = &source.shared;
        sinks.0.push(Box::new(shared.publication.publisher(Some(name), &dataplane, &plan)));
        sinks.0.extend(shared.outlets.sinks(options, Some(name), name, &origin));
    } else if watch.is_none() {
        let told = Publication::default();
        // First, so that it knows what the others may take long to write. Nobody finds the run before it knows its source.
        sinks.0.push(Box::new(told.publisher(None, &dataplane, &plan)));
        told.start();
        let configured = source.map_or(&options.configured, |source| &source.shared.outlets.configured);
        let outlets = Outlets::of(configured);
        sinks.0.extend(outlets.sinks(options, None, &dataplane.capabilities().interface, &origin));
        open = Some(outlets.open(options, &identity, &told, &problems)?);
        publication = Some(told);
    }
    if watch.is_none() {
        let controller = source.and_then(Source::controller).unwrap_or_else(service::Controller::new);
        sinks.0.push(Box::new(controller));
    }
    // Before standard output, whose reader may have gone.
    if let Some(directory) = &options.out {
        sinks.0.extend(files(directory, name.as_deref(), &origin, &problems)?);
    }
    if let Some(place) = &options.lake {
        if options.hash_key.is_none() && options.hash == Some(HashMode::Keyed) {
            tracing::warn!(
                "the key of the hash is a random one of this run: rows of other runs and machines cannot be united with these; give all \
                 of them one --hash-key FILE, or one --seed"
            );
        }
        sinks.0.push(Box::new(lake(place, options, &origin, watch.is_some(), &problems)?));
    }
    if let Some(path) = options.own.delay.samples() {
        sinks.0.push(Box::new(Expendable::new(DelayLog::new(Whole::new(create(path)?)), path, &problems)));
    }
    if let Some(webhook) = options.alerts.alert_webhook.clone() {
        let caller = Caller::start(webhook, origin.identity.clone(), &problems);
        sinks.0.push(Box::new(caller.map_err(|error| Failure::Failed(format!("cannot start a thread for the webhook: {error}")))?));
    }
    let format = options.format.unwrap_or_default();
    if !options.silent {
        let look = look(options, &plan, watch.is_none());
        let printed = match source.zip(name.as_ref()) {
            Some((source, name)) => {
                let prefix = if format == Format::Table { format!("{} | ", escaped(name)) } else { String::new() };
                format.sink(Lines::new(&source.shared.output, prefix), look, origin)
            }
            None => format.sink(BufWriter::new(Patient::stdout()), look, origin),
        };
        sinks.0.push(match watch {
            Some(watch) => watch.around(printed),
            // Programs want a record of every window.
            None if format == Format::Table => Box::new(Idle::new(printed)),
            None => printed,
        });
    }
    if watch.is_none() && name.is_none() && !options.silent {
        announce(options, &plan);
    }
    let controller = Controller::start(dataplane, plan, clock)?.of_source(name);
    source.iter().for_each(|source| source.begin(options));
    let changes = source.map(|source| source.changes.clone()).unwrap_or_default();
    let outcome = controller.with(changes).run(&mut sinks);
    // What is still to be written is, and what could not be is told.
    drop((sinks, publication, open));
    match outcome {
        Ok(summary) => conclude(&summary, problems.all()),
        // A capture is no longer looked at, as with `head`; a run that should go on has lost whom it runs for.
        Err(ControlError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe && watch.is_none() => {
            Err(Failure::Failed("nobody reads standard output any longer; the run has ended".to_owned()))
        }
        Err(error) => Err(error.into()),
    }
}

/// Tells who waits for the first line of a table how long that takes.
fn announce(options: &Options, plan: &Plan) {
    let table = options.format.unwrap_or_default() == Format::Table;
    let watched = io::stdout().is_terminal() && io::stderr().is_terminal() && tracing::enabled!(tracing::Level::WARN);
    let Some(window) = plan.intervals.window.filter(|_| table && watched && options.staggered.is_none()) else { return };
    let window = humantime::format_duration(window);
    eprintln!("counting; a line every {window}, Ctrl-C ends");
}

/// How the table looks; trace time is told since its start, live time as of clocks on the wall.
fn look(options: &Options, plan: &Plan, live: bool) -> Look {
    let times = match (live, options.utc.unwrap_or_default()) {
        (false, _) => Times::Elapsed,
        (true, false) => Times::Local,
        (true, true) => Times::Utc,
    };
    let intervals = [plan.intervals.window, plan.intervals.read_every];
    let fine = live && intervals.into_iter().flatten().any(|interval| interval.subsec_nanos() != 0);
    Look { width: terminal::width, colours: terminal::colours(&io::stdout()), times, fine }
}

/// New files for the records of this run; older ones stay.
fn files(directory: &Path, source: Option<&str>, origin: &Origin, problems: &Problems) -> Result<[Box<dyn Sink>; 2], Failure> {
    let name = directory.display();
    fs::create_dir_all(directory).map_err(|error| Failure::Failed(format!("cannot create directory {name}: {error}")))?;
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    // Names of sources in a configuration have no other characters, so that each has files of its own.
    let is_kept = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let source = source.map_or_else(String::new, |source| format!("-{}", source.replace(|letter: char| !is_kept(letter), "-")));
    let stem = format!("windows-{seconds}-{}{source}", process::id());
    let [csv, json] = ["csv", "jsonl"].map(|extension| directory.join(format!("{stem}.{extension}")));
    let (csv_file, json_file) = (Whole::new(create(&csv)?), Whole::new(create(&json)?));
    Ok([
        Box::new(Expendable::new(Csv::new(csv_file, origin.clone()), &csv, problems)),
        Box::new(Expendable::new(Json::new(json_file, origin.clone()), &json, problems)),
    ])
}

/// Windows for engines.
fn lake(place: &value::Lake, options: &Options, origin: &Origin, patient: bool, problems: &Problems) -> Result<Lake, Failure> {
    let Some(identity) = origin.identity.clone() else { return Err(Failure::Failed("nobody writes this lake".to_owned())) };
    let (directory, store) = match place {
        value::Lake::Directory(directory) => (directory.clone(), None),
        value::Lake::Store(url) => {
            let failed = |error| Failure::Failed(format!("cannot write a lake in {url}: {error}"));
            (options.lake_buffer.clone().unwrap_or_else(buffer), Some(Store::open(url).map_err(failed)?))
        }
    };
    let usual = lake::Settings::new(directory.clone(), identity);
    let settings = lake::Settings {
        longest: options.lake_every.unwrap_or(usual.longest),
        buffer: options.lake_buffer_size.unwrap_or(usual.buffer),
        patient,
        ..usual
    };
    let problems = problems.clone();
    let tell = move |problem: String| {
        tracing::warn!("{problem}");
        problems.add(problem);
    };
    Lake::start(settings, store, Arc::new(tell))
        .map_err(|error| Failure::Failed(format!("cannot write a lake in {}: {error}", directory.display())))
}

/// Where files wait for an object store: what systemd made for the unit, if it did.
fn buffer() -> PathBuf {
    env::var_os("STATE_DIRECTORY").map_or_else(|| "/var/lib/flowgauge".into(), PathBuf::from).join("lake")
}

/// Who counts: this machine, and a number that no other run has.
pub(crate) fn identity(options: &Options) -> Result<Identity, Failure> {
    let given = |name| env::var(name).ok().filter(|value: &String| !value.is_empty());
    let host = match options.host.clone().or_else(|| given(HOST)) {
        Some(host) => value::host(&host).map_err(|problem| Failure::Usage(format!("{HOST}: {problem}")))?,
        None => rustix::system::uname().nodename().to_string_lossy().into_owned(),
    };
    let run = match given(RUN) {
        Some(run) => run,
        None => format!(
            "{:016x}",
            getrandom::u64().map_err(|error| Failure::Failed(format!("the system has no random numbers: {error}")))?
        ),
    };
    // Rows of each source are a run's of their own.
    let source = options.source.as_ref().and_then(|source| source.name.as_ref());
    let run = source.map_or(run.clone(), |source| format!("{run}-{source}"));
    Ok(Identity { host: host.into(), run: run.into() })
}

fn create(path: &Path) -> Result<File, Failure> {
    File::create_new(path).map_err(|error| Failure::Failed(format!("cannot create {}: {error}", path.display())))
}

/// Says what did not go as planned.
fn conclude(summary: &Summary, problems: Vec<String>) -> Result<(), Failure> {
    let Summary { late_reads, missed_reads, late_rotations, late_windows, stalled_windows, latest_ns, retries, .. } = *summary;
    if missed_reads + late_rotations > 0 {
        tracing::warn!("{missed_reads} reads missed, {late_rotations} rotations late, {retries} calls repeated");
    }
    if late_reads > 0 {
        // A busy machine has some in every run, and each says so itself.
        let samples = summary.samples;
        tracing::info!("{late_reads} of {samples} reads started more than 1 ms late; late_ns in the JSON output says how much");
    }
    if late_windows > 0 {
        let stalled = match stalled_windows {
            0 => String::new(),
            over => format!(", and {over} after them were over by then, which are in their records"),
        };
        let told =
            format!("{late_windows} of {} windows ended late{stalled}; late_ns in the JSON output says how much", summary.windows);
        if latest_ns >= nanoseconds(STALL) { tracing::warn!("{told}") } else { tracing::info!("{told}") }
    }
    let late = summary.total.as_ref().map_or(0, |total| total.late);
    if late > 0 {
        tracing::warn!(
            "{late} packets came when their window was closed, and are in none; a longer --lateness waits for them, late in the JSON \
             output says where they were"
        );
    }
    let warnings: Vec<&String> = summary.warnings.iter().chain(&problems).collect();
    match warnings.first() {
        None => Ok(()),
        Some(first) => Err(Failure::Incomplete(match warnings.len() {
            1 => (*first).clone(),
            more => format!("{first} (and {} more)", more - 1),
        })),
    }
}
