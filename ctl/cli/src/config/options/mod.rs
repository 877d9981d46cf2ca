//! Options that `run` and `replay` share, on the command line and in the configuration file, and
//! how they resolve to a [`RunConfig`].
//!
//! `measurement` has the options of each measurement, `outputs` those of outputs, `run` those of
//! sources on this machine and `switch` those of a Tofino switch.

pub(crate) mod measurement;
pub(crate) mod outputs;
pub(crate) mod run;
pub(crate) mod switch;

use crate::config::given::GivenOption;
use crate::config::value::{self, Cpus, PortSpec, SampleEvery};
use crate::config::{KeySource, RunConfig, Source, Traffic};
use crate::error::{CommandFailure, refuse};
use clap::{Args, Command};
use flowgauge_core::cardinality::{self, Mode};
use flowgauge_core::{FlowKey, HashMode, KeyKind, Settings, parse};
use flowgauge_ctl::alert::Rule;
use flowgauge_ctl::controller::Plan;
use flowgauge_ctl::filter::MatchExpression;
use flowgauge_ctl::flow::KeyText;
use flowgauge_ctl::measurement::{Estimation, alarm};
use flowgauge_ctl::output::Format;
use flowgauge_ctl::schedule::Intervals;
use flowgauge_dataplane::MeasurementKind;
use flowgauge_dataplane::poll::PollMode;
use measurement::chosen::{EVERY, KeyOption, Measurements, keyed, measure, names};
use measurement::{ANSWERING, MeasurementArgs};
use outputs::OutputOptions;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

/// Default length of a window.
const DEFAULT_WINDOW: Duration = Duration::from_secs(10);
/// Length of a window above which a table shows samples by default.
const MAX_WINDOW_WITHOUT_SAMPLES: Duration = Duration::from_secs(10);
/// Default mean time between samples.
const DEFAULT_SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Default maximum delay of a packet behind others of a capture.
const DEFAULT_LATENESS: Duration = Duration::from_millis(100);

/// Options of measurements, timing and outputs.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Options {
    // The help is generated, since it lists all measurements.
    #[arg(long, value_name = "NAMES", value_parser = measure, help_heading = "Measurement", help = measure_help(),
        long_help = format!("{}\n\nSeparate several by commas.", measure_help()))]
    pub(crate) measure: Option<Measurements>,

    /// Key that defines a flow: src, dst, src-dst, five-tuple [default: src; src-dst for entropy;
    /// dst for heavy hitters with --alarm, except on a switch]
    ///
    /// Give a key to one measurement as in heavy=five-tuple. Entropy accepts two, as in
    /// entropy=src+dst.
    #[arg(long, value_name = "[NAME=]KEY", value_parser = keyed, value_delimiter = ',', help_heading = "Measurement")]
    pub(crate) key: Vec<KeyOption>,

    /// Count only packets that match an expression in the language of tcpdump, such as 'tcp port
    /// 443 and net 10.0.0.0/8'
    ///
    /// Primitives: [src|dst] host, net, port, portrange; ip, ip6, tcp, udp, sctp, icmp, icmp6,
    /// proto N, tcp[syn], vlan [ID], greater N, less N; with and, or, not and parentheses. The
    /// other packets are counted as unmatched, and nowhere else. docs/match.md has examples, where
    /// tcpdump differs, and what a switch cannot match.
    #[arg(long = "match", value_name = "EXPRESSION", help_heading = "Measurement")]
    pub(crate) matching: Option<MatchExpression>,

    /// Look into tunnels and count by the innermost network header
    ///
    /// Decodes VXLAN, VXLAN-GPE, Geneve, GRE, IP in IP and GTP-U, up to four levels. A packet whose
    /// tunnel contains no readable IP header counts by the outer header. Only worker threads do
    /// this; the kernel's program and a switch do not.
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = "Measurement")]
    pub(crate) inner: Option<bool>,

    #[command(flatten)]
    pub(crate) measurement_args: MeasurementArgs,

    /// Query the packets (frequency) and the membership of a flow; may be repeated
    ///
    /// A flow is '10.0.0.1', '10.0.0.1 > 10.0.0.2' or '10.0.0.1:53 > 10.0.0.2:4321 udp', according
    /// to the measurement's key.
    #[arg(long, value_name = "FLOW", value_parser = value::query, help_heading = "Measurement")]
    pub(crate) query: Vec<FlowKey>,

    /// Count exactly as well, and show the exact value next to every estimate
    ///
    /// Requires memory for every flow, request and pair of spread, up to 3,000,000 of each. Beyond
    /// that, exact values are missing, and a message says which.
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = "Measurement")]
    pub(crate) truth: Option<bool>,

    /// Hash of the keys: keyed (with a secret, for traffic that others may choose), tabulated (the
    /// same in every run), crc32 (as in the thesis; fails on structured addresses) [default: keyed
    /// for live traffic without --seed, else tabulated]
    #[arg(long, value_name = "HASH", value_parser = value::hash, help_heading = "Measurement")]
    pub(crate) hash: Option<HashMode>,

    /// Secret of --hash keyed: 32 or 64 hexadecimal digits, or 16 or 32 bytes; only sketches with
    /// equal keys can be merged [default: random, new in every run]
    #[arg(long, value_name = "FILE", help_heading = "Measurement")]
    pub(crate) hash_key: Option<PathBuf>,

    /// Seed of hash tables and sample times; only sketches with equal seeds can be merged with
    /// --hash tabulated [default: 1]
    #[arg(long, value_name = "N", help_heading = "Measurement")]
    pub(crate) seed: Option<u64>,

    /// Length of a window [default: 10s]
    ///
    /// Live windows end at multiples of this time by the wall clock, on every machine; the first
    /// one is shorter. Windows of a capture start with its first packet (see --align). With --alarm,
    /// which learns from 30 windows, a capture is divided into 40 to 120 of them by default; it is
    /// read twice for that.
    #[arg(long, value_name = "TIME", value_parser = value::duration, allow_hyphen_values = true, help_heading = "Time")]
    pub(crate) window: Option<Duration>,

    /// Stop after this time [default: when the traffic ends]
    ///
    /// Ctrl-C stops at any time. The open window is closed and printed in both cases.
    #[arg(long, value_name = "TIME", value_parser = value::duration, allow_hyphen_values = true, help_heading = "Time")]
    pub(crate) duration: Option<Duration>,

    /// Mean time between samples of the open window; 'never' for none [default: never; 1s on a
    /// terminal with windows over 10s, and with --staggered]
    ///
    /// Samples show a window while it is open, at random (Poisson) times. A sample is skipped if no
    /// packet arrived since the one before.
    #[arg(long, alias = "read-every", value_name = "TIME", value_parser = value::sample_every, allow_hyphen_values = true, help_heading = "Time")]
    pub(crate) sample_every: Option<SampleEvery>,

    /// Align windows to multiples of their length since 1970 UTC [default: true live, false for
    /// captures]
    ///
    /// Aligned windows of several machines or captures cover the same times. The first window is
    /// shorter.
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = "Time")]
    pub(crate) align: Option<bool>,

    /// Maximum delay of a packet behind others of a capture [default: 100ms]
    ///
    /// A packet that is less late is counted in the window of its timestamp, wherever it is in the
    /// capture. Later ones are counted as late and are in no window. '0s' waits for none.
    #[arg(long, value_name = "TIME", value_parser = value::lateness, allow_hyphen_values = true, help_heading = "Time")]
    pub(crate) lateness: Option<Duration>,

    /// Count the distinct flows of the last TIME at every sample, without windows (staggered
    /// HyperLogLog)
    #[arg(long, value_name = "TIME", value_parser = value::duration, allow_hyphen_values = true, help_heading = "Time")]
    pub(crate) staggered: Option<Duration>,

    #[command(flatten)]
    pub(crate) outputs: OutputOptions,

    /// Raise an alarm when traffic looks like a distributed denial-of-service attack
    ///
    /// Watches the entropies of sources and destinations. Enables entropy=src+dst, and heavy
    /// hitters by dst to name the destinations that receive more than usual.
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = "Alerts")]
    pub(crate) alarm: Option<bool>,

    /// Alert when a figure is certainly above or below a bound, such as 'distinct_flows > 1M' or
    /// 'entropy{key=src} < 3'; may be repeated
    ///
    /// Figures are named like their metrics, without flowgauge_; labels select one of several. A
    /// rule with > fires if even the low end of the figure's interval is above the bound, a rule
    /// with < if even the high end is below.
    #[arg(long, value_name = "RULE", help_heading = "Alerts")]
    pub(crate) alert: Vec<Rule>,

    /// Number of worker threads [default: 1; one per receive queue on an AF_XDP port]
    #[arg(long, value_name = "N", value_parser = value::workers, help_heading = "Workers")]
    pub(crate) workers: Option<usize>,

    /// Pin workers to these CPUs in turn, such as 2 or 0,4-7 [default: not pinned]
    #[arg(long, value_name = "LIST", value_parser = value::cpus, help_heading = "Workers")]
    pub(crate) cpus: Option<Cpus>,

    /// Choose how workers wait for packets: poll continuously (busy; uses a whole CPU), sleep until
    /// an interrupt (interrupt), or poll for some microseconds and then sleep (adaptive) [default:
    /// adaptive]
    #[arg(long, value_name = "MODE", value_parser = value::poll_mode, help_heading = "Workers")]
    pub(crate) poll_mode: Option<PollMode>,

    /// Read options from a TOML file
    ///
    /// Keys are the long option names without dashes, as in window = "1m" or adopt = true.
    /// Command-line options take precedence; '--adopt=false' switches off what the file switches
    /// on.
    #[arg(long, value_name = "FILE", help_heading = "General")]
    pub(crate) config: Option<PathBuf>,
}
fn measure_help() -> String {
    format!("Measurements: {}, {EVERY}, none [default: cardinality]", names())
}

impl Options {
    /// Resolves the options with their defaults, or returns a contradiction. `given` are the
    /// options that were given.
    pub(crate) fn resolve(
        self,
        source: Source,
        given: &[GivenOption],
    ) -> Result<RunConfig, CommandFailure> {
        let traffic = source.traffic();
        self.check(&traffic, given)?;
        let hash = self.hash(&traffic);
        let secret = match (hash, &self.hash_key) {
            (HashMode::Crc32 | HashMode::Tabulated, _) => KeySource::None,
            (HashMode::Keyed, Some(path)) => KeySource::File(path.clone()),
            (HashMode::Keyed, None) => KeySource::Random,
        };
        let settings = self.settings(hash, &traffic);
        let is_capture =
            matches!(source, Source::Captures(_) | Source::Port { port: PortSpec::Pcap(_), .. });
        if is_capture && self.workers.unwrap_or(1) > 1 && settings.wants_order() {
            let problem = "delays and reordering of a capture need its packets in order, which several workers do not keep; remove --workers";
            return refuse(problem);
        }
        Ok(RunConfig {
            settings,
            slot_ns: self.slot_ns(),
            secret,
            truth: self.truth.unwrap_or_default(),
            workers: self.workers,
            cpus: self.cpus.clone().map(|cpus| cpus.0).unwrap_or_default(),
            poll_mode: self.poll_mode.unwrap_or_default(),
            lateness: self.lateness.unwrap_or(DEFAULT_LATENESS),
            plan: self.plan(&traffic),
            outputs: self.outputs.resolve()?,
            source,
        })
    }

    /// Rejects contradictory options.
    fn check(&self, traffic: &Traffic, given: &[GivenOption]) -> Result<(), CommandFailure> {
        let problem = self.measurement_args.problem(self, traffic).or(match self.hash {
            Some(HashMode::Crc32 | HashMode::Tabulated) if self.hash_key.is_some() => {
                Some("--hash-key is for --hash keyed; remove one of them")
            }
            Some(HashMode::Keyed) if self.seed.is_some() && self.hash_key.is_none() => {
                Some("--seed is not secret; for a reproducible --hash keyed use --hash-key FILE")
            }
            _ => None,
        });
        if let Some(problem) = problem {
            return refuse(problem);
        }
        self.outputs.check(self.staggered.is_none())?;
        self.check_idle(given)?;
        self.check_queries()
    }

    /// Rejects options of measurements that are off: the user probably expects them to be on.
    fn check_idle(&self, given: &[GivenOption]) -> Result<(), CommandFailure> {
        let mut wanted: Vec<(String, Vec<MeasurementKind>)> = Vec::new();
        if !self.query.is_empty() {
            wanted.push(("--query".to_owned(), ANSWERING.to_vec()));
        }
        let own = self.measurement_args.idle(self, given);
        wanted.extend(own.map(|(option, kind)| (option, vec![kind])));
        if self.outputs.delay_samples.is_some() {
            wanted.push(("--delay-samples".to_owned(), vec![MeasurementKind::Delay]));
        }
        let keyed = self.key.iter().filter_map(|keyed| keyed.measurement);
        wanted.extend(keyed.map(|kind| ("--key".to_owned(), vec![kind])));
        let sketched = self.measurement_args.entropy.sketch.iter().map(|it| it.measurement);
        wanted.extend(sketched.map(|kind| ("--sketch".to_owned(), vec![kind])));
        wanted.retain(|(_, kinds)| !kinds.iter().any(|kind| self.measures(*kind)));
        let Some((option, kinds)) = wanted.first() else { return Ok(()) };
        let names = kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(" or ");
        refuse(format!("{option} is for {names}, which is off; enable it with --measure {names}"))
    }

    /// Rejects queries that no measurement answers, and a run that only answers queries and has
    /// none, unless its sketches are stored: those can be queried later.
    fn check_queries(&self) -> Result<(), CommandFailure> {
        let measurements = self.measurements();
        let answering: Vec<MeasurementKind> =
            ANSWERING.into_iter().filter(|kind| measurements.contains(kind)).collect();
        let Some(first) = answering.first() else { return Ok(()) };
        let names: Vec<&str> = answering.iter().map(|kind| kind.name()).collect();
        let is_stored = self.outputs.lake.is_some() || self.outputs.sketches == Some(true);
        if self.query.is_empty()
            && !is_stored
            && measurements.iter().all(|kind| answering.contains(kind))
        {
            return refuse(format!(
                "--measure {} counts the flows of --query, and there is none; add --query FLOW",
                names.join(",")
            ));
        }
        let is_key =
            |kind: KeyKind, query: &FlowKey| kind.lengths().contains(&query.as_bytes().len());
        let is_answered =
            |query: &FlowKey| answering.iter().any(|kind| is_key(self.key(*kind), query));
        let Some(query) = self.query.iter().find(|query| !is_answered(query)) else {
            return Ok(());
        };
        let kind = KeyKind::ALL.into_iter().find(|kind| is_key(*kind, query));
        let query = KeyText { kind: kind.unwrap_or(KeyKind::Src), key: query };
        let key = self.key(*first);
        let example = match key {
            KeyKind::Src | KeyKind::Dst => "10.0.0.1",
            KeyKind::SrcDst => "10.0.0.1 > 10.0.0.2",
            KeyKind::FiveTuple => "10.0.0.1:53 > 10.0.0.2:4321 udp",
        };
        refuse(format!(
            "--query '{query}' is no flow by {}, the key of {}; give one such as '{example}', or another --key",
            key.name(),
            first.name()
        ))
    }

    /// Returns whether the alarm is enabled.
    fn watches(&self) -> bool {
        self.alarm.unwrap_or_default()
    }

    /// Returns the mean time between samples. By default there are samples only in a table of long
    /// windows on a terminal, whose first line would take long, and with staggered registers, which
    /// have no windows.
    fn sample_every(&self, traffic: &Traffic) -> Option<Duration> {
        let is_table = self.outputs.format.unwrap_or_default() == Format::Table;
        let is_long = self.window() > MAX_WINDOW_WITHOUT_SAMPLES;
        let by_default = self.staggered.is_some()
            || (traffic.is_live && io::stdout().is_terminal() && is_table && is_long);
        self.sample_every.unwrap_or(SampleEvery(by_default.then_some(DEFAULT_SAMPLE_INTERVAL))).0
    }

    fn window(&self) -> Duration {
        self.window.unwrap_or(DEFAULT_WINDOW)
    }

    /// Returns the hash. Traffic that others choose needs a secret, unless a seed asks for the same
    /// hash in every run.
    fn hash(&self, traffic: &Traffic) -> HashMode {
        let keyed = self.hash_key.is_some() || (traffic.is_chosen && self.seed.is_none());
        self.hash.unwrap_or(if keyed { HashMode::Keyed } else { HashMode::Tabulated })
    }

    /// Returns these options with other measurements.
    pub(crate) fn with_measurements(self, measurements: Vec<MeasurementKind>) -> Options {
        Options { measure: Some(Measurements(measurements)), ..self }
    }

    /// Returns the enabled measurements.
    fn measurements(&self) -> Vec<MeasurementKind> {
        let asked = self
            .measure
            .clone()
            .map_or_else(|| vec![MeasurementKind::Cardinality], |measurements| measurements.0);
        let watched = [MeasurementKind::Entropy, MeasurementKind::Heavy];
        asked.into_iter().chain(watched.into_iter().filter(|_| self.watches())).collect()
    }

    fn measures(&self, measurement: MeasurementKind) -> bool {
        self.measurements().contains(&measurement)
    }

    /// Returns the keys of a measurement.
    fn keys(&self, measurement: MeasurementKind, usual: KeyKind) -> Vec<KeyKind> {
        let find = |wanted: Option<MeasurementKind>| {
            self.key.iter().rev().find(|keyed| keyed.measurement == wanted)
        };
        find(Some(measurement))
            .or_else(|| find(None))
            .map_or_else(|| vec![usual], |keyed| keyed.keys.clone())
    }

    /// Returns the key of a measurement that has one.
    fn key(&self, measurement: MeasurementKind) -> KeyKind {
        self.keys(measurement, KeyKind::Src).first().copied().unwrap_or(KeyKind::Src)
    }

    /// Returns the settings of the dataplane.
    pub(crate) fn settings(&self, hash: HashMode, traffic: &Traffic) -> Settings {
        // Needed even if nothing is measured: hash and registers determine what is installed.
        let precision = self.measurement_args.cardinality.registers.unwrap_or_default();
        let key = self.key(MeasurementKind::Cardinality);
        let mut settings =
            Settings::only(cardinality::Settings { mode: Mode::Off, key, precision })
                .with_hash(hash);
        if self.inner.unwrap_or_default() {
            settings.headers = parse::Settings::INNER;
        }
        self.measurement_args.settings(self, traffic, &mut settings);
        settings
    }

    /// Returns the plan of the controller.
    fn plan(&self, traffic: &Traffic) -> Plan {
        let alarm = self.watches().then(alarm::judge::Options::default);
        let mut options = Estimation {
            queries: self.query.clone(),
            alerts: self.alert.clone(),
            alarm,
            ..Estimation::default()
        };
        self.measurement_args.estimation(self, &mut options);
        Plan {
            intervals: Intervals {
                window: Some(self.window()),
                sample_every: self.sample_every(traffic),
                duration: self.duration,
                // Live windows are aligned, so that those of several machines cover the same times.
                align: self.align.unwrap_or(traffic.is_live),
            },
            seed: self.seed.unwrap_or(1),
            hash_key: None,
            prefixes: if self.measures(MeasurementKind::Delay) {
                self.measurement_args.delay.prefixes()
            } else {
                Vec::new()
            },
            filter: self.matching.clone(),
            options,
        }
    }
}

/// Returns the first option of `T` that was given.
pub(crate) fn first_given<T: Args>(given: &[GivenOption]) -> Option<String> {
    let options = T::augment_args(Command::new("options"));
    let mut names = options.get_arguments().filter_map(|option| option.get_long());
    names.find(|name| given.iter().any(|given| given.key == *name)).map(|name| format!("--{name}"))
}
