//! `flowgauge replay`: counts captures in the time of their packets.

use crate::config::Source;
use crate::config::given::{Configuration, fill};
use crate::config::options::Options;
use crate::config::options::outputs::OutputOptions;
use crate::config::options::run::Run;
use crate::error::{CommandFailure, refuse};
use crate::run::capture_files;
use crate::run::handle::SourceHandle;
use crate::run::source::count;
use clap::{ArgMatches, Args};
use std::path::{Path, PathBuf};

/// Count captures as fast as they can be read, in the time of their packets.
///
/// Windows and samples follow the packets' timestamps, so that hours replay in seconds and every
/// run gives the same result. Reads pcap (2.0 to 2.4, microseconds and nanoseconds, either byte
/// order) and pcapng, uncompressed or compressed with gzip, Zstandard or xz; the format is detected
/// from the content. Several captures are merged by the timestamps of their packets.
///
/// Supported links: Ethernet, raw IP, Linux cooked (v1 and v2), BSD loopback, PPP, PPPoE, Cisco
/// HDLC, frame relay, IEEE 802.11 (also with radiotap, Prism, AVS and PPI headers), NFLOG, IPoIB
/// and others. A damaged file is counted up to the damage; then a warning reports where it is, and
/// the exit code is 1.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge replay trace.pcap --truth
  flowgauge replay trace.pcapng.zst --window 1m --sample-every never --key five-tuple --format csv
  flowgauge replay 'monday-*.pcap.gz' tuesday.pcap --window 1h
  ssh router tcpdump -w - -c 10000 | flowgauge replay - --window 5s")]
pub(crate) struct Replay {
    /// Capture files, or quoted patterns with * ? [...]; - for standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    #[command(flatten)]
    options: Options,
}

impl Replay {
    pub(crate) fn execute(mut self, given: &ArgMatches) -> Result<(), CommandFailure> {
        // Accept all options of `run`, so that both commands can use one file. Those that only
        // `run` has are ignored.
        let given = Configuration::read::<Run>(given)?.effective(None);
        fill(&mut self.options, &given)?;
        let OutputOptions { listen, grpc, otlp, .. } = &self.options.outputs;
        let live = [
            ("--listen", listen.is_some()),
            ("--grpc", grpc.is_some()),
            ("--otlp", otlp.is_some()),
        ];
        if let Some((option, _)) = live.into_iter().find(|(_, is_given)| *is_given) {
            let problem = format!("{option} is for `flowgauge run`; remove it");
            return refuse(problem);
        }
        let files = matching(&self.files)?;
        let (window, duration) = (self.options.window, self.options.duration);
        let mut config = self.options.resolve(Source::Captures(files.clone()), &given)?;
        config.check_alerts()?;
        // The alarm learns from a number of windows. A pipe cannot be read twice.
        if window.is_none()
            && config.plan.options.alarm.is_some()
            && files.iter().all(|file| file.is_file())
        {
            let length_ns = capture_files::length_ns(&files, duration)?;
            if length_ns > 0 {
                config.plan.intervals.window = Some(capture_files::window_for(length_ns));
            }
        }
        count(&config, &SourceHandle::default())
    }
}

/// Returns the files that match names or patterns, those of a pattern sorted by name. The name of
/// an existing file is not a pattern.
pub(crate) fn matching(files: &[PathBuf]) -> Result<Vec<PathBuf>, CommandFailure> {
    Ok(files.iter().map(|file| expanded(file)).collect::<Result<Vec<_>, _>>()?.concat())
}

fn expanded(file: &Path) -> Result<Vec<PathBuf>, CommandFailure> {
    let pattern = match file.to_str() {
        Some(name) if name.contains(['*', '?', '[']) && !file.exists() => name,
        _ => return Ok(vec![file.to_owned()]),
    };
    let failed =
        |problem: String| CommandFailure::Failed(format!("cannot find {pattern}: {problem}"));
    let found = glob::glob(pattern).map_err(|error| failed(error.msg.to_owned()))?;
    let files =
        found.collect::<Result<Vec<PathBuf>, _>>().map_err(|error| failed(error.to_string()))?;
    if files.is_empty() { Err(failed("no file matches".to_owned())) } else { Ok(files) }
}
