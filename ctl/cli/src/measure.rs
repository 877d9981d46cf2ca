//! What `run` and `replay` have in common: a dataplane, driven to its end.

use crate::error::Failure;
use crate::options::Options;
use crate::progress::Watch;
use crate::status::Publisher;
use crate::terminal;
use flowgauge_ctl::Clock;
use flowgauge_ctl::clock::{Interrupt, Monotonic, Trace};
use flowgauge_ctl::controller::{Controller, Plan, Sink, Summary};
use flowgauge_ctl::output::{Csv, Format, Json, Look, Tee, Times, escaped};
use flowgauge_dataplane::Dataplane;
use flowgauge_dataplane::middleware::Recorder;
use flowgauge_dataplane::poll::port::{Port, Ports};
use flowgauge_dataplane::poll::{self, Gate, Pace, Poll};
use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal};
use std::path::Path;
use std::process;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Counts what comes out of the ports, live or in trace time, and prints it.
pub(crate) fn measure<P: Port>(ports: Ports<P>, options: &Options, truth: bool) -> Result<(), Failure> {
    let live = ports.gate.pace() != Pace::Trace;
    let plan = options.plan(live && io::stdout().is_terminal());
    let interface = ports.interface.clone();
    let settings = plan.estimation.settings;
    let how = poll::Options {
        settings,
        slot_ns: plan.estimation.slot_ns,
        truth,
        poll_mode: options.poll_mode.unwrap_or_default(),
        cpus: options.cpus.clone().map(|cpus| cpus.0).unwrap_or_default(),
        ..poll::Options::default()
    };
    let poll = Poll::new(ports, how);
    let (gate, source) = (poll.gate(), poll.source());
    let interrupt = end_on_signal(Some(&gate))?;
    if gate.pace() == Pace::Trace {
        let watch = Watch::start(source, interface);
        let clock = || Trace::new(gate);
        return conduct(poll, plan, options, clock, Some(&watch));
    }
    conduct(poll, plan, options, || Monotonic::new(interrupt), None)
}

/// Counts live on a dataplane that needs no ports, and prints it.
pub(crate) fn measure_live(dataplane: impl Dataplane + 'static, options: &Options) -> Result<(), Failure> {
    let interrupt = end_on_signal(None)?;
    conduct(dataplane, options.plan(io::stdout().is_terminal()), options, || Monotonic::new(interrupt), None)
}

fn conduct<C: Clock>(
    dataplane: impl Dataplane + 'static,
    plan: Plan,
    options: &Options,
    clock: impl FnOnce() -> C,
    watch: Option<&Watch>,
) -> Result<(), Failure> {
    let dataplane: Box<dyn Dataplane> = match &options.record {
        Some(path) => Box::new(Recorder::new(dataplane, create(path)?, plan.estimation.settings)),
        None => Box::new(dataplane),
    };
    let mut sinks = Tee::default();
    // A replay is over before anyone asks how it is doing.
    if watch.is_none()
        && let Some(publisher) = Publisher::start(&dataplane, &plan)
    {
        // First, so that it knows what the others may take long to write.
        sinks.0.push(Box::new(publisher));
    }
    let printed = options.format.unwrap_or_default().sink(io::stdout(), look(options, &plan, watch.is_none()));
    sinks.0.push(match watch {
        Some(watch) => watch.around(printed),
        None => printed,
    });
    if let Some(directory) = &options.out {
        sinks.0.extend(files(directory)?);
    }
    if watch.is_none() {
        announce(options, &plan, &dataplane.capabilities().interface);
    }
    let summary = Controller::start(dataplane, plan, clock)?.run(&mut sinks)?;
    conclude(&summary)
}

/// Tells who waits for the first line of a table how long that takes.
fn announce(options: &Options, plan: &Plan, interface: &str) {
    let table = options.format.unwrap_or_default() == Format::Table;
    let watched = io::stdout().is_terminal() && io::stderr().is_terminal() && tracing::enabled!(tracing::Level::WARN);
    let Some(window) = plan.intervals.window.filter(|_| table && watched && options.staggered.is_none()) else { return };
    let window = humantime::format_duration(window);
    eprintln!("counting {}: a line every {window}, Ctrl-C ends", escaped(interface));
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

/// The first signal ends the run in order, the second at once.
pub(crate) fn end_on_signal(gate: Option<&Arc<Gate>>) -> Result<Interrupt, Failure> {
    let interrupt = Interrupt::default();
    let (triggered, gate) = (interrupt.clone(), gate.cloned());
    let handler = move || {
        if triggered.is_triggered() {
            process::exit(130);
        }
        triggered.trigger();
        gate.iter().for_each(|gate| gate.interrupt());
    };
    ctrlc::set_handler(handler).map_err(|error| Failure::Failed(format!("cannot listen for Ctrl-C: {error}")))?;
    Ok(interrupt)
}

/// New files for the records of this run; older ones stay.
fn files(directory: &Path) -> Result<[Box<dyn Sink>; 2], Failure> {
    let name = directory.display();
    fs::create_dir_all(directory).map_err(|error| Failure::Failed(format!("cannot create directory {name}: {error}")))?;
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let stem = format!("windows-{seconds}-{}", process::id());
    let csv = create(&directory.join(format!("{stem}.csv")))?;
    let json = create(&directory.join(format!("{stem}.jsonl")))?;
    Ok([Box::new(Csv::new(csv)), Box::new(Json::new(json))])
}

fn create(path: &Path) -> Result<BufWriter<File>, Failure> {
    let file = File::create_new(path);
    file.map(BufWriter::new).map_err(|error| Failure::Failed(format!("cannot create {}: {error}", path.display())))
}

/// Says what did not go as planned.
fn conclude(summary: &Summary) -> Result<(), Failure> {
    let Summary { late_reads, missed_reads, late_rotations, retries, .. } = *summary;
    if missed_reads + late_rotations > 0 {
        tracing::warn!("{missed_reads} reads missed, {late_rotations} rotations late, {retries} calls repeated");
    }
    if late_reads > 0 {
        // A busy machine has some in every run, and each says so itself.
        let samples = summary.samples;
        tracing::info!("{late_reads} of {samples} reads started more than 1 ms late; late_ns in the JSON output says how much");
    }
    match summary.warnings.first() {
        None => Ok(()),
        Some(first) => Err(Failure::Incomplete(match summary.warnings.len() {
            1 => first.clone(),
            more => format!("{first} (and {} more)", more - 1),
        })),
    }
}
