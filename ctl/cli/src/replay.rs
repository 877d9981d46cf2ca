//! `flowgauge replay`: count a capture in its own time.

use crate::config::{Configuration, fill};
use crate::count::count;
use crate::error::Failure;
use crate::handle::Handle;
use crate::options::Options;
use crate::options::outputs::OutputOptions;
use crate::options::run::Run;
use crate::run_config::Source;
use clap::{ArgMatches, Args};
use std::path::{Path, PathBuf};

/// Count captures as fast as they can be read, in their own time.
///
/// Windows and reads follow the packets' timestamps, so that hours replay in seconds and every run
/// gives the same result. Reads pcap (2.0 to 2.4, microseconds and nanoseconds, either byte order)
/// and pcapng, as they are or compressed with gzip, Zstandard or xz, which is told from their
/// content. Several captures are merged by the timestamps of their packets.
///
/// Links are Ethernet, raw IP, Linux cooked (v1 and v2), BSD loopback, PPP, PPPoE, Cisco HDLC,
/// frame relay, IEEE 802.11 (also behind radiotap, Prism, AVS and PPI headers), NFLOG, IPoIB and
/// others. A damaged file is counted up to the damage; then a message says where it broke, and the
/// exit code is 1.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge replay trace.pcap --truth
  flowgauge replay trace.pcapng.zst --window 1m --read-every never --key five-tuple --format csv
  flowgauge replay 'monday-*.pcap.gz' tuesday.pcap --window 1h
  ssh router tcpdump -w - -c 10000 | flowgauge replay - --window 5s")]
pub(crate) struct Replay {
    /// Capture files, or quoted patterns of their names with * ? [...]; - for standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    #[command(flatten)]
    options: Options,
}

impl Replay {
    pub(crate) fn execute(mut self, given: &ArgMatches) -> Result<(), Failure> {
        // Keys are those of `run`, so that both can have the same file; what only `run` has is of
        // no use here.
        let given = Configuration::read::<Run>(given)?.effective(None);
        fill(&mut self.options, &given)?;
        let OutputOptions { listen, grpc, otlp, .. } = &self.options.outputs;
        let live = [
            ("--listen", listen.is_some()),
            ("--grpc", grpc.is_some()),
            ("--otlp", otlp.is_some()),
        ];
        if let Some((option, _)) = live.into_iter().find(|(_, is_given)| *is_given) {
            let problem = format!(
                "{option} is for `flowgauge run`: a replay is over before anyone looks; leave it out"
            );
            return Err(Failure::Usage(problem));
        }
        let files =
            self.files.iter().map(|file| matching(file)).collect::<Result<Vec<_>, _>>()?.concat();
        count(&self.options.resolve(Source::Captures(files), &given)?, &Handle::default())
    }
}

/// The files that a pattern stands for, sorted by name. What exists by that very name is no
/// pattern.
pub(crate) fn matching(file: &Path) -> Result<Vec<PathBuf>, Failure> {
    let pattern = match file.to_str() {
        Some(name) if name.contains(['*', '?', '[']) && !file.exists() => name,
        _ => return Ok(vec![file.to_owned()]),
    };
    let failed = |problem: String| Failure::Failed(format!("cannot find {pattern}: {problem}"));
    let found = glob::glob(pattern).map_err(|error| failed(error.msg.to_owned()))?;
    let files =
        found.collect::<Result<Vec<PathBuf>, _>>().map_err(|error| failed(error.to_string()))?;
    if files.is_empty() { Err(failed("no file has such a name".to_owned())) } else { Ok(files) }
}
