//! The outputs of one source: the sinks that get its records, in their order.

#[cfg(feature = "lake")]
use crate::config::KeySource;
use crate::config::RunConfig;
#[cfg(feature = "lake")]
use crate::config::options::outputs::OutputOptions;
#[cfg(feature = "lake")]
use crate::config::secrets;
#[cfg(feature = "lake")]
use crate::config::value::LakeLocation;
use crate::error::{CommandFailure, cannot, print_message};
use crate::output::listen::RunningExporters;
use crate::output::progress::ProgressWatch;
use crate::output::terminal;
use crate::output::writers::{ExpendableSink, FileProblems, Lines, PatientStdout, RecordFile};
use crate::run::handle::SourceHandle;
use flowgauge_core::cardinality::Mode;
use flowgauge_ctl::controller::Sink;
use flowgauge_ctl::history::History;
#[cfg(feature = "lake")]
use flowgauge_ctl::identity::Identity;
#[cfg(feature = "lake")]
use flowgauge_ctl::lake::{self, Lake, Store};
use flowgauge_ctl::names::Names;
use flowgauge_ctl::output::{
    Csv, DelaySampleLog, Format, IdleWindows, Json, Origin, TableStyle, Tee, Times, escaped,
};
use flowgauge_dataplane::Dataplane;
use flowgauge_dataplane::files::{Directory, SHARED_MODE, create_new};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal};
use std::path::Path;
use std::process;
#[cfg(feature = "lake")]
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Creates the sinks of a source that the configuration names, and starts the servers and exporters
/// if it is the only source. `watch` shows the progress of a capture. Both have to be dropped at
/// the end, which flushes what is pending; failures are in `problems` afterwards.
pub(super) fn open(
    dataplane: &dyn Dataplane,
    config: &RunConfig,
    handle: &SourceHandle,
    watch: Option<&ProgressWatch>,
    problems: &FileProblems,
) -> Result<(Tee<'static>, Option<RunningExporters>), CommandFailure> {
    let RunConfig { outputs, plan, .. } = config;
    let SourceHandle { name, shared, .. } = handle;
    let mut sinks = Tee::default();
    let identity = handle.identity(outputs)?;
    let origin = Origin {
        identity: Some(identity.clone()),
        sketches: outputs.sketches == Some(true),
        ..Origin::default()
    };
    let names =
        Names::open(&outputs.names.clone().unwrap_or_default()).map_err(CommandFailure::Failed)?;
    let mut open = None;
    // A replay ends too soon to be observed.
    if watch.is_none() {
        // Publish first, so that outputs that block can be reported, and so that `status` never
        // finds a run without its source.
        let history = History::default();
        sinks.0.push(Box::new(history.clone()));
        sinks.0.push(Box::new(shared.publication.publisher(
            name.as_deref(),
            dataplane,
            plan,
            history.clone(),
        )));
        if name.is_none() {
            shared.publication.start();
        }
        let shown = name.as_deref().unwrap_or(&dataplane.capabilities().interface);
        sinks.0.extend(shared.exporters.sinks(
            outputs,
            name.as_ref(),
            shown,
            &origin,
            &names,
            &history,
        ));
        if name.is_none() {
            open =
                Some(shared.exporters.start(outputs, &identity, &shared.publication, problems)?);
        }
        sinks.0.push(Box::new(handle.heartbeat()));
    }
    // Write files before standard output, whose reader may have closed it.
    if let Some(directory) = &outputs.out {
        sinks.0.extend(files(directory, name.as_deref(), &origin, problems)?);
    }
    #[cfg(feature = "lake")]
    if let Some(place) = &outputs.lake {
        if config.secret == KeySource::Random {
            tracing::warn!(
                "--lake with a random hash key: rows of this run cannot be merged with those of other runs and machines; give all of them the same \
                 --hash-key or --seed"
            );
        }
        let lake = lake(place, outputs, &identity, watch.is_some(), problems)?;
        sinks.0.push(Box::new(lake.with_metrics(shared.exporters.metrics(name.as_ref()))));
    }
    if let Some(path) = &outputs.delay_samples {
        sinks.0.push(Box::new(ExpendableSink::new(
            DelaySampleLog(RecordFile::new(create(path)?)),
            path,
            problems,
        )));
    }
    if let Some(format) = outputs.format {
        let look = TableStyle { names: names.clone(), ..look(config, watch.is_none()) };
        let origin = Origin { no_csv_header: outputs.no_csv_header == Some(true), ..origin };
        let printed = match name {
            Some(name) => {
                let prefix = if format == Format::Table {
                    format!("{} | ", escaped(name))
                } else {
                    String::new()
                };
                format.sink(Lines::new(&shared.stdout, prefix), look, origin)
            }
            None => format.sink(BufWriter::new(PatientStdout), look, origin),
        };
        sinks.0.push(match watch {
            Some(watch) => watch.around(printed),
            // Programs get a record of every window; a table sums up a sequence of empty ones.
            None if format == Format::Table => Box::new(IdleWindows::new(printed)),
            None => printed,
        });
        if watch.is_none() && name.is_none() && format == Format::Table {
            announce(config);
        }
    }
    Ok((sinks, open))
}

/// Prints how long the first line of a table takes, on a terminal.
fn announce(config: &RunConfig) {
    let watched = io::stdout().is_terminal()
        && io::stderr().is_terminal()
        && tracing::enabled!(tracing::Level::WARN);
    let has_windows = config.settings.cardinality.mode != Mode::Staggered;
    let Some(window) = config.plan.intervals.window.filter(|_| watched && has_windows) else {
        return;
    };
    let window = humantime::format_duration(window);
    print_message(&format!("counting; one line per {window}, Ctrl-C stops"));
}

/// Returns the style of the table. Times of a capture are relative to its start, live times are
/// times of day.
fn look(config: &RunConfig, live: bool) -> TableStyle {
    let times = match (live, config.outputs.utc) {
        (false, _) => Times::Elapsed,
        (true, Some(true)) => Times::Utc,
        (true, _) => Times::Local,
    };
    let intervals = [config.plan.intervals.window, config.plan.intervals.sample_every];
    let fine = live && intervals.into_iter().flatten().any(|interval| interval.subsec_nanos() != 0);
    TableStyle {
        width: terminal::width,
        colours: terminal::colours(&io::stdout()),
        times,
        fine,
        ..TableStyle::default()
    }
}

/// Creates new CSV and JSON files for the records of this run. Existing files are not replaced.
fn files(
    directory: &Path,
    source: Option<&str>,
    origin: &Origin,
    problems: &FileProblems,
) -> Result<[Box<dyn Sink>; 2], CommandFailure> {
    let opened = Directory::create(directory)
        .map_err(cannot(format_args!("create directory {}", directory.display())))?;
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let source = source.map_or_else(String::new, |source| format!("-{}", in_file_name(source)));
    let stem = format!("windows-{seconds}-{}{source}", process::id());
    let created = |extension| {
        let name = format!("{stem}.{extension}");
        let path = directory.join(&name);
        let file = opened.create_new(&name, SHARED_MODE);
        let file = file.map_err(cannot(format_args!("create {}", path.display())))?;
        Ok::<_, CommandFailure>((path, RecordFile::new(file)))
    };
    let ((csv, csv_file), (json, json_file)) = (created("csv")?, created("jsonl")?);
    Ok([
        Box::new(ExpendableSink::new(Csv::new(csv_file, origin.clone()), &csv, problems)),
        Box::new(ExpendableSink::new(Json::new(json_file, origin.clone()), &json, problems)),
    ])
}

/// Returns a source's name with every byte percent-encoded that is no letter, digit, dot, dash or
/// underscore, so that different sources have different files.
fn in_file_name(source: &str) -> String {
    let mut name = String::new();
    for byte in source.bytes() {
        if byte.is_ascii_alphanumeric() || b"._-".contains(&byte) {
            name.push(byte.into());
        } else {
            let _ = write!(name, "%{byte:02X}");
        }
    }
    name
}

#[cfg(feature = "lake")]
/// Starts writing windows to a lake. With `patient` it waits for slow storage instead of dropping
/// windows.
fn lake(
    place: &LakeLocation,
    outputs: &OutputOptions,
    identity: &Identity,
    patient: bool,
    problems: &FileProblems,
) -> Result<Lake, CommandFailure> {
    let (directory, store) = match place {
        LakeLocation::Directory(directory) => (directory.clone(), None),
        LakeLocation::Store(url) => (
            outputs.lake_buffer.clone().unwrap_or_default(),
            Some(Store::open(url).map_err(cannot(format_args!("write a lake to {url}")))?),
        ),
    };
    let key = outputs.lake_key.as_deref().map(secrets::signing_key).transpose()?.map(Arc::new);
    let settings = lake::Settings {
        directory: directory.clone(),
        buffer: outputs.lake_buffer_size.unwrap_or(lake::Settings::BUFFER),
        identity: identity.clone(),
        longest: outputs.lake_every.unwrap_or(lake::Settings::LONGEST),
        key,
        patient,
    };
    let problems = problems.clone();
    let report = move |problem| problems.add(problem);
    Lake::start(settings, store, Arc::new(report))
        .map_err(cannot(format_args!("write a lake to {}", directory.display())))
}

pub(super) fn create(path: &Path) -> Result<File, CommandFailure> {
    create_new(path, SHARED_MODE).map_err(cannot(format_args!("create {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::in_file_name;

    #[test]
    fn names_of_sources_stay_different_in_names_of_files() {
        let sources = ["eth0.1", "eth0-1", "eth0_1", "eth0:1", "eth0/1", "eth0%2F1"];
        let names = ["eth0.1", "eth0-1", "eth0_1", "eth0%3A1", "eth0%2F1", "eth0%252F1"];
        assert_eq!(sources.map(in_file_name), names);
    }
}
