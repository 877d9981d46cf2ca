//! Connects the dataplane of one source with its controller and all outputs, and drives them to the
//! end.

use crate::config::RunConfig;
use crate::error::CommandFailure;
use crate::output::progress::ProgressWatch;
use crate::output::writers::FileProblems;
use crate::run::handle::SourceHandle;
use crate::run::signals::end_with;
use crate::run::sinks;
use flowgauge_ctl::Clock;
use flowgauge_ctl::clock::{Trace, Wall, nanoseconds};
use flowgauge_ctl::controller::{ControlError, Controller, Plan, Summary};
use flowgauge_dataplane::middleware::Recorder;
use flowgauge_dataplane::poll::{Pace, Poll};
use flowgauge_dataplane::{Dataplane, HashKey};
use std::io::{self, BufWriter};
use std::time::Duration;

/// Delay from which a late window is worth a warning. On a busy machine short windows are often
/// late.
const WARN_DELAY: Duration = Duration::from_secs(1);

/// Counts what workers receive, live or in the time of a capture, and writes the results.
pub(crate) fn run_workers(
    poll: Poll,
    config: &RunConfig,
    handle: &SourceHandle,
) -> Result<(), CommandFailure> {
    let key = config.secret.key(HashKey::random)?;
    let gate = poll.gate();
    let interrupt = end_with(handle.interrupt.clone(), Some(&gate));
    if gate.pace() == Pace::Trace {
        let watch = ProgressWatch::start(poll.source(), poll.capabilities().interface.clone());
        return run_controller(
            Box::new(poll),
            key,
            config,
            handle,
            || Trace::new(gate),
            Some(&watch),
        );
    }
    run_controller(Box::new(poll), key, config, handle, || Wall::new(interrupt), None)
}

/// Counts live on a dataplane without workers and writes the results.
pub(crate) fn run_live(
    dataplane: impl Dataplane + 'static,
    key: Option<HashKey>,
    config: &RunConfig,
    handle: &SourceHandle,
) -> Result<(), CommandFailure> {
    let interrupt = end_with(handle.interrupt.clone(), None);
    run_controller(Box::new(dataplane), key, config, handle, || Wall::new(interrupt), None)
}

/// Runs a controller on a dataplane until the end. `watch` shows the progress of a capture.
fn run_controller<C: Clock + 'static>(
    dataplane: Box<dyn Dataplane>,
    hash_key: Option<HashKey>,
    config: &RunConfig,
    handle: &SourceHandle,
    clock: impl FnOnce() -> C,
    watch: Option<&ProgressWatch>,
) -> Result<(), CommandFailure> {
    let RunConfig { outputs, plan, .. } = config;
    let dataplane: Box<dyn Dataplane> = match &outputs.record {
        Some(path) => Box::new(Recorder::new(dataplane, BufWriter::new(sinks::create(path)?))),
        None => dataplane,
    };
    // Failures of one of several sources are reported with its name.
    let explains_exit = watch.is_none() && handle.name.is_none();
    let problems = FileProblems::default();
    // Both are kept until the run has ended.
    let (mut sinks, open) = sinks::open(&dataplane, config, handle, watch, &problems)?;
    let plan_with_key = Plan { hash_key, ..plan.clone() };
    let controller =
        Controller::start_boxed(dataplane, plan_with_key, Box::new(|| Box::new(clock())))?
            .of_source(handle.name.clone());
    handle.begin();
    let outcome = controller.with(handle.changes.clone()).run(&mut sinks);
    // Dropping flushes what is pending. Failures are in `problems` afterwards.
    drop((sinks, open));
    match outcome {
        Ok(summary) => {
            let unjudged = plan.options.alarm.as_ref().and_then(|alarm| summary.unjudged(alarm));
            if let Some(unjudged) = unjudged {
                tracing::warn!("{unjudged}");
            }
            conclude(&summary, problems.all(), explains_exit)
        }
        // A replay whose reader closed the pipe, such as `head`, ends normally. A live run without
        // a reader fails.
        Err(ControlError::Output(error))
            if error.kind() == io::ErrorKind::BrokenPipe && watch.is_none() =>
        {
            Err(CommandFailure::ReaderGone)
        }
        Err(error) => Err(error.into()),
    }
}

/// Logs late samples, late windows and late packets, and returns the first warning as a failure.
/// `explains_exit`: logs it again, since hours may lie between both.
fn conclude(
    summary: &Summary,
    problems: Vec<String>,
    explains_exit: bool,
) -> Result<(), CommandFailure> {
    let Summary { late_samples, missed_samples, late_rotations, late_windows, .. } = *summary;
    if missed_samples + late_rotations > 0 {
        tracing::warn!(
            "{missed_samples} samples missed, {late_rotations} rotations late, {} calls retried",
            summary.retries
        );
    }
    if late_samples > 0 {
        // A busy machine has late samples in every run, and each record has its delay.
        let samples = summary.samples;
        tracing::info!(
            "{late_samples} of {samples} samples started more than 1 ms late; see late_ns in the JSON output"
        );
    }
    if late_windows > 0 {
        let stalled = match summary.stalled_windows {
            0 => String::new(),
            over => {
                format!(", and {over} following ones had ended by then and are merged into them")
            }
        };
        let message = format!(
            "{late_windows} of {} windows ended late{stalled}; see late_ns in the JSON output",
            summary.windows
        );
        if summary.latest_ns >= nanoseconds(WARN_DELAY) {
            tracing::warn!("{message}")
        } else {
            tracing::info!("{message}")
        }
    }
    let late = summary.total.as_ref().map_or(0, |total| total.late);
    if late > 0 {
        tracing::warn!(
            "{late} packets arrived after their window was closed and are not counted; wait for them with a longer --lateness, and see late in the \
             JSON output"
        );
    }
    let warnings: Vec<&String> = summary.warnings.iter().chain(&problems).collect();
    let reason = match warnings[..] {
        [] => return Ok(()),
        [only] => only.clone(),
        [first, ref more @ ..] => format!("{first} (and {} more)", more.len()),
    };
    if explains_exit {
        tracing::warn!("exit code 1, because results are incomplete: {reason}");
    }
    Err(CommandFailure::Incomplete(reason))
}
