//! `flowgauge report`: a page about captures, in one file.

use crate::commands::replay::matching;
use crate::config::given::{Configuration, GivenOption, fill};
use crate::config::options::Options;
use crate::config::options::run::Run;
use crate::config::{RunConfig, Source};
use crate::error::{CommandFailure, cannot, refuse};
use crate::output::new_file::NewFile;
use crate::output::progress::ProgressWatch;
use crate::run::capture_files;
use crate::run::signals::end_on_signal;
use crate::run::source::workers;
use clap::{ArgMatches, Args};
use flowgauge_ctl::clock::Trace;
use flowgauge_ctl::controller::{Controller, Plan, Summary};
use flowgauge_ctl::inventory::{CapturedFrame, Inventory};
use flowgauge_ctl::names::Names;
use flowgauge_ctl::output::{escaped, grouped};
use flowgauge_ctl::serve::{self, Fact};
use flowgauge_dataplane::poll::Pace;
use flowgauge_dataplane::poll::port::{Capture, PortFrame, captures};
use flowgauge_dataplane::{HashKey, MeasurementKind};
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Time that DNS has to name the addresses of a page.
const DNS_PATIENCE: Duration = Duration::from_secs(10);
/// Maximum size of the captures, in bytes, for exact counts by default: these take less memory than
/// the captures.
const EXACT: u64 = 1 << 30;

/// Make a page about captures: one HTML file with charts, which loads nothing from elsewhere.
///
/// Lists hosts, conversations, ports, protocols and TCP servers with exact counts, and measures
/// everything per window, with intervals; beside the estimates are exact counts if the captures
/// have up to 1 GiB together (or with --truth). Losses, damage and late packets are listed.
/// Windows are as long as it takes for about a hundred of them, unless --window says otherwise.
/// Captures are read twice. Options are those of `replay`.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge report trace.pcap
  flowgauge report trace.pcapng.zst --window 1m --key five-tuple --to trace.html
  flowgauge report 'monday-*.pcap.gz' --measure cardinality,delay --truth=false")]
pub(crate) struct Report {
    /// Capture files, or quoted patterns of their names with * ? [...]
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Where to write the page [default: the name of the first capture and .html, in this
    /// directory]
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,

    /// Replace the page if there is one
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    options: Options,
}

impl Report {
    pub(crate) fn execute(mut self, given: &ArgMatches) -> Result<(), CommandFailure> {
        let given = Configuration::read::<Run>(given)?.effective(None);
        fill(&mut self.options, &given)?;
        refuse_other_outputs(&given)?;
        let files = matching(&self.files)?;
        if files.iter().any(|file| file.as_os_str() == "-") {
            let problem = "a report reads its captures twice, which standard input does not do; write it to a file";
            return refuse(problem);
        }
        let first = files.first().and_then(|file| file.file_name()).unwrap_or_default();
        let page = self
            .to
            .clone()
            .unwrap_or_else(|| PathBuf::from(format!("{}.html", first.to_string_lossy())));
        // Before the work.
        let mut file = NewFile::create(&page, self.force).map_err(|error| {
            let page = page.display();
            CommandFailure::Failed(match error.kind() {
                ErrorKind::AlreadyExists => {
                    format!("{page} exists; --force replaces it, --to names another one")
                }
                _ => format!("cannot create {page}: {error}; name another file with --to"),
            })
        })?;
        let size: u64 = files
            .iter()
            .filter_map(|file| fs::metadata(file).ok())
            .map(|metadata| metadata.len())
            .sum();
        let mut config =
            self.options.clone().filled(size).resolve(Source::Captures(files.clone()), &given)?;
        config.check_alerts()?;
        let mut contents = take_inventory(&files, self.options.duration)?.contents();
        if self.options.window.is_none() {
            config.plan.intervals.window = Some(capture_files::window_for(contents.length_ns));
        }
        let names = Names::open(&config.outputs.names.clone().unwrap_or_default())
            .map_err(CommandFailure::Failed)?;
        let addresses = contents.addresses();
        let unnamed = names.prepare(&addresses, DNS_PATIENCE);
        contents.name(&names);
        let mut told = count(&files, &config, names)?;
        if unnamed > 0 {
            told.problems.push(format!(
                "DNS did not answer within {} s for {unnamed} of {} addresses, which have no name here",
                DNS_PATIENCE.as_secs(),
                addresses.len()
            ));
        }
        let facts = told.facts(&files, size, &config);
        let html = told.report.page(&title(&files), &facts, &told.problems, &contents);
        let written = html.and_then(|html| file.write_all(html.as_bytes()));
        let written = written.and_then(|()| file.finish());
        written.map_err(cannot(format_args!("write {}", page.display())))?;
        writeln!(io::stdout(), "report: {}", escaped(&page.display().to_string()))
            .map_err(CommandFailure::output)?;
        match told.problems.first() {
            None => Ok(()),
            Some(problem) => Err(CommandFailure::Incomplete(problem.clone())),
        }
    }
}

/// Refuses options of other outputs, because users who give them expect something to be written
/// there.
fn refuse_other_outputs(given: &[GivenOption]) -> Result<(), CommandFailure> {
    const OTHERS: [&str; 12] = [
        "listen",
        "grpc",
        "otlp",
        "lake",
        "out",
        "record",
        "format",
        "no-csv-header",
        "staggered",
        "sketches",
        "delay-samples",
        "sample-every",
    ];
    let other = OTHERS.into_iter().find(|other| given.iter().any(|given| given.key == *other));
    other.map_or(Ok(()), |other| {
        refuse(format!(
            "--{other} is not for `flowgauge report`, which writes a page; leave it out, or use `flowgauge replay`"
        ))
    })
}

impl Options {
    /// Fills in the defaults of a report: all measurements (those of queried flows only with
    /// queries), the alarm, and exact counts if the captures have at most [`EXACT`] bytes.
    fn filled(self, size: u64) -> Options {
        let asked = self.query.is_empty();
        let asks = [MeasurementKind::Frequency, MeasurementKind::Membership];
        let usual = MeasurementKind::ALL
            .into_iter()
            .filter(|kind| !(asked && asks.contains(kind)))
            .collect();
        let options = Options { truth: self.truth.or(Some(size <= EXACT)), ..self };
        match options.measure {
            Some(_) => options,
            None => {
                Options { alarm: options.alarm.or(Some(true)), ..options }.with_measurements(usual)
            }
        }
    }
}

/// Counts the contents of captures exactly; with `duration` those of their first part.
fn take_inventory(
    files: &[PathBuf],
    duration: Option<Duration>,
) -> Result<Inventory, CommandFailure> {
    let mut inventory = Inventory::default();
    capture_files::read(files, duration, |frame| {
        let PortFrame { bytes, wire_length, timestamp, link } = frame;
        inventory.count(&CapturedFrame { bytes, wire_length, timestamp, link });
    })?;
    Ok(inventory)
}

/// Results of counting.
struct CountResult {
    report: serve::ReportPage,
    summary: Summary,
    problems: Vec<String>,
}

fn count(
    files: &[PathBuf],
    config: &RunConfig,
    names: Names,
) -> Result<CountResult, CommandFailure> {
    let found = files.iter().map(|file| Capture::open(file)).collect::<Result<_, _>>()?;
    let ports = captures(found, config.workers.unwrap_or(1), Pace::Trace)?;
    let interface = ports.interface.clone();
    let poll = workers(ports, config);
    let (gate, source) = (poll.gate(), poll.source());
    end_on_signal(Some(&gate));
    let _progress = ProgressWatch::start(source, interface);
    let plan = Plan { hash_key: config.secret.key(HashKey::random)?, ..config.plan.clone() };
    let mut report = serve::ReportPage::naming(names);
    let controller = Controller::start(poll, plan, || Trace::new(gate))?;
    let summary = controller.run(&mut report)?;
    let mut problems = summary.warnings.clone();
    if report.left_out > 0 {
        let problem = format!(
            "the last {} windows are not drawn: there are too many for a page; choose a longer --window",
            report.left_out
        );
        tracing::warn!("{problem}");
        problems.push(problem);
    }
    if let Some(late) = summary.total.as_ref().map(|total| total.late).filter(|late| *late > 0) {
        problems.push(format!(
            "{} packets came when their window was closed, and are in none; a longer --lateness waits for them",
            grouped(late)
        ));
    }
    Ok(CountResult { report, summary, problems })
}

/// Formats the length of a capture: with a tenth of a second up to a minute, without beyond.
fn rounded(length: Duration) -> String {
    let milliseconds = length.as_millis() as u64;
    // Rounded first: 59.999 s are a minute.
    let tenths = (milliseconds + 50) / 100;
    match tenths {
        0..10 => format!("{milliseconds} ms"),
        10..600 => format!("{}.{} s", tenths / 10, tenths % 10),
        _ => {
            humantime::format_duration(Duration::from_secs((milliseconds + 500) / 1000)).to_string()
        }
    }
}

impl CountResult {
    /// Returns the facts that the page shows with its charts.
    fn facts(&self, files: &[PathBuf], size: u64, config: &RunConfig) -> Vec<Fact> {
        let fact = |name, value: String| Fact { name, value };
        let names: Vec<String> =
            files.iter().map(|file| escaped(&file.display().to_string()).into_owned()).collect();
        let mut facts =
            vec![fact("Captures", format!("{} ({} bytes)", names.join(", "), grouped(size)))];
        let Some(total) = &self.summary.total else {
            facts.push(fact("Packets", "none".to_owned()));
            return facts;
        };
        let lost: u64 = total.drops.iter().map(|(_, packets)| packets).sum();
        let rejected = total.counters.non_ip + total.counters.truncated + total.counters.bad_header;
        let window = config.plan.intervals.window.unwrap_or_default();
        let length = Duration::from_nanos(total.end_ns.saturating_sub(total.start_ns));
        facts.extend([
            fact(
                "Packets",
                format!(
                    "{}, {} without an IP flow",
                    grouped(total.counters.packets()),
                    grouped(rejected)
                ),
            ),
            fact("Bytes on the wire", grouped(total.counters.bytes)),
            fact(
                "Lost before they were captured",
                if lost == 0 { "none reported by the capture".to_owned() } else { grouped(lost) },
            ),
            fact("Length", rounded(length)),
            fact(
                "Windows",
                format!(
                    "{} of {}",
                    grouped(self.summary.windows),
                    humantime::format_duration(window)
                ),
            ),
            fact(
                "Exact counts",
                if config.truth {
                    "beside the estimates".to_owned()
                } else {
                    "none; --truth makes them".to_owned()
                },
            ),
        ]);
        if let Some(alarm) = &config.plan.options.alarm {
            let Summary { windows, judged_windows, learning_windows, .. } = &self.summary;
            let judged = || {
                format!(
                    "judged {} of {} windows, and learned what is usual from {}",
                    grouped(*judged_windows),
                    grouped(*windows),
                    grouped(*learning_windows)
                )
            };
            facts.push(fact("Alarm", self.summary.unjudged(alarm).unwrap_or_else(judged)));
        }
        if let Some(text) = &total.filter {
            let unmatched = grouped(total.counters.unmatched);
            let value = format!("{}; {unmatched} packets do not match", escaped(text));
            facts.push(fact("Packets that match", value));
        }
        facts
    }
}

fn title(files: &[PathBuf]) -> String {
    let first =
        files.first().and_then(|file| file.file_name()).unwrap_or_default().to_string_lossy();
    let first = escaped(&first);
    match files.len() {
        0 | 1 => first.into_owned(),
        all => format!("{first} and {} more", all - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_rounded_to_what_people_read() {
        for (milliseconds, text) in [
            (0, "0 ms"),
            (949, "949 ms"),
            (1_000, "1.0 s"),
            (12_346, "12.3 s"),
            (59_949, "59.9 s"),
            (59_999, "1m"),
            (3_661_501, "1h 1m 2s"),
        ] {
            assert_eq!(rounded(Duration::from_millis(milliseconds)), text);
        }
    }
}
