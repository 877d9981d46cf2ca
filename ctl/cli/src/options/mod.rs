//! Options that `run` and `replay` share, on the command line and in the configuration file.

pub(crate) mod alerts;
pub(crate) mod measurement;

use crate::agent::Source;
use crate::error::Failure;
use crate::listen::Configured;
use crate::value::{self, Cpus, Lake, Lateness, ReadEvery};
use clap::{Args, Command, ValueEnum};
use flowgauge_core::cardinality::{self, Mode};
use flowgauge_core::{FlowKey, HashMode, KeyKind, Settings, parse};
use flowgauge_ctl::controller::Plan;
use flowgauge_ctl::measurement::{Estimation, alarm};
use flowgauge_ctl::output::Format;
use flowgauge_ctl::schedule::Intervals;
use flowgauge_dataplane::poll::PollMode;
use flowgauge_dataplane::{HashKey, MeasurementKind};
use measurement::chosen::{Keyed, Measurements, keyed, measure, names};
use measurement::{ALL, Own};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Length of a window unless another is asked for.
const USUAL_WINDOW: Duration = Duration::from_secs(10);
/// Longer than this nobody waits for a line.
const LONGEST_UNREAD: Duration = Duration::from_secs(10);
/// Mean time between reads, where there are any by default.
const USUAL_READS: Duration = Duration::from_secs(1);

/// What to measure, when, and where the results go. What is not given comes from the configuration file, then from defaults.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Options {
    /// Read options from a TOML file
    ///
    /// Keys are the long option names without their dashes, as in window = "1m" or adopt = true. What the command line says goes before it;
    /// '--adopt=false' switches off what the file switches on.
    #[arg(long, value_name = "FILE", help_heading = "General")]
    pub(crate) config: Option<PathBuf>,

    /// Options that were given, on the command line or in the file, by the names of their fields.
    #[arg(skip)]
    pub(crate) given: Vec<String>,

    /// Which of the sources of a run this is.
    #[arg(skip)]
    pub(crate) source: Option<Arc<Source>>,

    /// Where packets are counted; `run` settles on it.
    #[arg(skip)]
    pub(crate) backend: Backend,

    /// Whether packets that leave are told from those that arrive; `run` settles on it.
    #[arg(skip)]
    pub(crate) knows_direction: bool,

    /// Length of a window [default: 10s]
    ///
    /// Live windows end at multiples of it by the wall clock, on every machine; the first one is short. Those of a capture begin with its first
    /// packet (see --align).
    #[arg(long, value_name = "TIME", value_parser = value::duration, allow_hyphen_values = true, help_heading = "Time")]
    pub(crate) window: Option<Duration>,

    /// End windows at multiples of their length since 1970 UTC [default: live true, of captures false]
    ///
    /// Then windows of several machines, and of several captures, cover the same times. The first window is short.
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = "Time")]
    pub(crate) align: Option<bool>,

    /// Mean time between reads inside a window; 'never' for none [default: never, or 1s, see --help]
    ///
    /// Reads show a window while it is open, at random (Poisson) times. By default there are none, but for two cases: on a terminal, a table
    /// of windows longer than 10s has one a second in the mean, and so has a run with --staggered, which has no windows to show. There is no read where nothing
    /// came since the one before.
    #[arg(long, value_name = "TIME", value_parser = value::read_every, allow_hyphen_values = true, help_heading = "Time")]
    pub(crate) read_every: Option<ReadEvery>,

    /// How much later than others a packet of a capture may come [default: 100ms]
    ///
    /// Up to then it is counted in the window of its own time, wherever it lies in the capture; what comes later is counted apart, as late.
    /// '0s' waits for none.
    #[arg(long, value_name = "TIME", value_parser = value::lateness, allow_hyphen_values = true, help_heading = "Time")]
    pub(crate) lateness: Option<Lateness>,

    /// Stop after this time [default: when the traffic ends]
    ///
    /// Ctrl-C stops at any time. Either way the open window is closed and printed.
    #[arg(long, value_name = "TIME", value_parser = value::duration, allow_hyphen_values = true, help_heading = "Time")]
    pub(crate) duration: Option<Duration>,

    /// No windows: distinct flows of the last TIME at every read (staggered HyperLogLog)
    #[arg(long, value_name = "TIME", value_parser = value::duration, allow_hyphen_values = true, help_heading = "Time")]
    pub(crate) staggered: Option<Duration>,

    // The text of its help names all measurements.
    #[arg(long, value_name = "NAMES", value_parser = measure, help_heading = "Measurement", help = what(),
        long_help = format!("{}\n\nSeveral go together, with commas between.", what()))]
    pub(crate) measure: Option<Measurements>,

    /// What makes a flow: src, dst, src-dst, five-tuple [default: src, of entropy src-dst]
    ///
    /// For one measurement as in heavy=five-tuple, of entropy also two, as in entropy=src+dst.
    #[arg(long, value_name = "[NAME=]KEY", value_parser = keyed, value_delimiter = ',', help_heading = "Measurement")]
    pub(crate) key: Vec<Keyed>,

    /// Look into tunnels: the innermost network header counts
    ///
    /// Opens VXLAN, Geneve, GRE, IP in IP and GTP-U, up to four in each other. A packet whose tunnel holds no IP that can be read counts by the
    /// header around it. Workers do it; the kernel's program and a switch do not.
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = "Measurement")]
    pub(crate) inner: Option<bool>,

    /// How keys are hashed: keyed, by a secret, for traffic that someone may have chosen; tabulated, the same in every run; or crc32 as in
    /// the thesis, which fails on structured addresses [default: keyed for live traffic, without --seed; else tabulated]
    #[arg(long, value_name = "HASH", value_parser = value::hash, help_heading = "Measurement")]
    pub(crate) hash: Option<HashMode>,

    /// The secret of --hash keyed: 32 or 64 hexadecimal digits, or 16 or 32 bytes; sketches can be merged only if their keys are equal
    /// [default: random numbers, anew in every run]
    #[arg(long, value_name = "FILE", help_heading = "Measurement")]
    pub(crate) hash_key: Option<PathBuf>,

    /// The secret itself, once it is read or made; see [`with_hash`](Self::with_hash).
    #[arg(skip)]
    pub(crate) secret: Option<HashKey>,

    #[command(flatten)]
    pub(crate) own: Own,

    /// Ask for the packets (frequency) and the membership of a flow
    ///
    /// A flow is '10.0.0.1', '10.0.0.1 > 10.0.0.2' or '10.0.0.1:53 > 10.0.0.2:4321 udp', as the measurement's key says. The option may be
    /// repeated.
    #[arg(long, value_name = "FLOW", value_parser = value::query, help_heading = "Measurement")]
    pub(crate) query: Vec<FlowKey>,

    /// Raise an alarm when traffic looks like a denial of service by many
    ///
    /// Watches the entropies of sources and destinations; measures entropy=src+dst, and heavy hitters to name the top talkers.
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = "Measurement")]
    pub(crate) alarm: Option<bool>,

    #[command(flatten)]
    pub(crate) alerts: alerts::Alerts,

    /// Count exactly as well, and show the truth beside every estimate
    ///
    /// This takes memory for every flow.
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = "Measurement")]
    pub(crate) truth: Option<bool>,

    /// Seed of hash tables and read times; sketches of --hash tabulated can be merged only if their seeds are equal [default: 1]
    #[arg(long, value_name = "N", help_heading = "Measurement")]
    pub(crate) seed: Option<u64>,

    /// Worker threads that count [default: 1, on an AF_XDP port one for every receive queue]
    #[arg(long, value_name = "N", value_parser = value::workers, help_heading = "General")]
    pub(crate) workers: Option<usize>,

    /// Keep workers on these CPUs, in turn, such as 2 or 0,4-7 [default: wherever they may run]
    #[arg(long, value_name = "LIST", value_parser = value::cpus, help_heading = "General")]
    pub(crate) cpus: Option<Cpus>,

    /// What a worker without packets does: look again at once (busy; takes a whole CPU), wait (interrupt), or look again for some
    /// microseconds and then wait (adaptive) [default: adaptive]
    #[arg(long, value_name = "MODE", value_parser = value::poll_mode, help_heading = "General")]
    pub(crate) poll_mode: Option<PollMode>,

    /// How results are printed: table, csv, json (one object a line) [default: table]
    #[arg(long, value_name = "FORMAT", value_parser = value::format, help_heading = "Output")]
    pub(crate) format: Option<Format>,

    /// Show the table's times of day as UTC, and not as local time
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = "Output")]
    pub(crate) utc: Option<bool>,

    /// Also write results to new CSV and JSON-lines files in this directory
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(crate) out: Option<PathBuf>,

    /// Also write windows, with their sketches, to Parquet files in this directory, for `flowgauge merge`, Spark, ClickHouse and others
    ///
    /// A row a window and place, partitioned by date and hour. A crash loses the window that is being written; what cannot be written waits, and
    /// what is lost is told. With s3://BUCKET/PATH files go to an object store when they are complete; the environment says where it is and who asks
    /// (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION).
    #[arg(long, value_name = "DIR|URL", value_parser = value::lake, help_heading = "Output")]
    pub(crate) lake: Option<Lake>,

    /// Where files of a --lake in an object store are until it has them [default: lake in STATE_DIRECTORY, else /var/lib/flowgauge/lake]
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(crate) lake_buffer: Option<PathBuf>,

    /// How much of the disk they may take; beyond it the oldest are given up, and told [default: 1GiB]
    #[arg(long, value_name = "BYTES", value_parser = value::bytes, help_heading = "Output")]
    pub(crate) lake_buffer_size: Option<u64>,

    /// How long a file of --lake goes on; engines see it when it is complete [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = value::duration, help_heading = "Output")]
    pub(crate) lake_every: Option<Duration>,

    /// Serve a page that shows windows as they end, Prometheus metrics (/metrics) and whether the run is well (/health) and counts everything (/ready) at this address
    ///
    /// An address and port, such as 127.0.0.1:9420, or a port of this machine alone. An address that others can reach takes --listen-cert, --listen-key
    /// and --listen-token-file.
    #[arg(long, value_name = "ADDRESS", value_parser = value::listen, help_heading = "Output")]
    pub(crate) listen: Option<SocketAddr>,

    /// Tell windows, samples, configuration and status over gRPC at this address, with reflection and health
    ///
    /// An address and port, such as 127.0.0.1:9421, or a port of this machine alone. An address that others can reach takes --listen-cert, --listen-key
    /// and --listen-token-file.
    #[arg(long, value_name = "ADDRESS", value_parser = value::listen, help_heading = "Output")]
    pub(crate) grpc: Option<SocketAddr>,

    /// Encrypt what --listen and --grpc serve, with this certificate and those that vouch for it (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) listen_cert: Option<PathBuf>,

    /// The certificate's private key (PEM), which not everyone may read
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) listen_key: Option<PathBuf>,

    /// Answer only who tells the token in this file: as a bearer token, or in a browser as the password of any user
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) listen_token_file: Option<PathBuf>,

    /// Send metrics to an OpenTelemetry collector (OTLP over gRPC), such as http://127.0.0.1:4317
    ///
    /// The same metrics as those of /metrics. An address that begins with https:// takes --otlp-ca.
    #[arg(long, value_name = "URL", value_parser = value::collector, help_heading = "Output")]
    pub(crate) otlp: Option<String>,

    /// How often [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = value::duration, help_heading = "Output")]
    pub(crate) otlp_every: Option<Duration>,

    /// Encrypt what is sent, and trust collectors with certificates of this authority (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) otlp_ca: Option<PathBuf>,

    /// Tell the collector the token in this file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) otlp_token_file: Option<PathBuf>,

    /// What was given, for those who ask for it.
    #[arg(skip)]
    pub(crate) configured: Configured,

    /// Whether another port will do as well; `demo` settles on it.
    #[arg(skip)]
    pub(crate) listen_anywhere: bool,

    /// Whether nothing is printed; `demo` settles on it.
    #[arg(skip)]
    pub(crate) silent: bool,

    /// The name of this machine in results [default: FLOWGAUGE_HOST in the environment, or the host's name]
    #[arg(long, value_name = "NAME", value_parser = value::host, help_heading = "Output")]
    pub(crate) host: Option<String>,

    /// Write registers and sketches to the JSON lines of windows, in base64 where they are bytes
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = "Output")]
    pub(crate) sketches: Option<bool>,

    /// Write every exchange with the dataplane to this file, one JSON object a line, for a bug report
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) record: Option<PathBuf>,
}

/// Where packets are counted.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Backend {
    /// The kernel, on a network interface.
    Xdp,
    /// Worker threads in this process.
    #[default]
    Poll,
    /// A Tofino switch, asked over BFRuntime.
    Tofino,
}

fn what() -> String {
    format!("What to measure: {}, none [default: cardinality]", names())
}

impl Options {
    /// Whether all goes together, checked before anything is opened.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let problem = self.own.problem(self).or(match self.hash {
            Some(HashMode::Crc32 | HashMode::Tabulated) if self.hash_key.is_some() => {
                Some("--hash-key is for --hash keyed; leave out one or the other")
            }
            Some(HashMode::Keyed) if self.seed.is_some() && self.hash_key.is_none() => {
                Some("a --seed is no secret; for --hash keyed that can be repeated give --hash-key FILE")
            }
            _ => None,
        });
        let problem = problem.or_else(|| self.alerts.problem()).or(if self.lake_every.is_some() && self.lake.is_none() {
            Some("--lake-every is for --lake; add it, or leave it out")
        } else if !matches!(self.lake, Some(Lake::Store(_))) && (self.lake_buffer.is_some() || self.lake_buffer_size.is_some()) {
            Some("--lake-buffer is for a --lake in an object store, as in --lake s3://bucket/lake; leave it out")
        } else if self.lake.is_some() && self.staggered.is_some() {
            Some("--staggered has no windows that a --lake could hold; leave out one of them")
        } else {
            None
        });
        let problem = problem.map(str::to_owned).or_else(|| self.listen_problem()).or_else(|| self.otlp_problem());
        problem.map_or_else(|| self.check_idle(), |problem| Err(Failure::Usage(problem)))
    }

    /// Refuses options of measurements that are off: whoever gives them believes otherwise.
    fn check_idle(&self) -> Result<(), Failure> {
        let answering = || ALL.iter().filter(|about| about.answers).map(|about| about.kind).collect();
        let asked = (!self.query.is_empty()).then(|| ("--query".to_owned(), answering()));
        let own = self.own.idle(self).map(|(option, kind)| (option, vec![kind]));
        let keys = self.key.iter().filter_map(|keyed| Some(("--key".to_owned(), vec![keyed.measurement?])));
        let sketches = self.own.entropy.sketch.iter().map(|sketch| ("--sketch".to_owned(), vec![sketch.measurement]));
        let mut given = asked.into_iter().chain(own).chain(keys).chain(sketches);
        match given.find(|(_, kinds): &(_, Vec<MeasurementKind>)| !kinds.iter().any(|kind| self.measures(*kind))) {
            None => Ok(()),
            Some((option, kinds)) => {
                let names = kinds.into_iter().map(MeasurementKind::name).collect::<Vec<_>>().join(" or ");
                Err(Failure::Usage(format!("{option} is for {names}, which is not measured; add it with --measure {names}")))
            }
        }
    }

    /// The first of some options that was given.
    pub(crate) fn first_given<T: Args>(&self) -> Option<String> {
        let options = T::augment_args(Command::new("options"));
        let mut given = options.get_arguments().filter(|option| self.given.iter().any(|given| option.get_id() == given.as_str()));
        given.find_map(|option| Some(format!("--{}", option.get_long()?)))
    }

    /// Whether the alarm watches.
    pub(crate) fn watches(&self) -> bool {
        self.alarm.unwrap_or_default()
    }

    /// Whether flows are counted exactly as well.
    pub(crate) fn counts_truth(&self) -> bool {
        self.truth.unwrap_or_default()
    }

    /// How often to read inside a window. Nobody who processes results wants more than windows unless they ask for it; who looks at a table
    /// does not want to wait long for the first line. Staggered registers have nothing but reads.
    fn read_every(&self, watched: bool) -> Option<Duration> {
        let table = self.format.unwrap_or_default() == Format::Table;
        let long = self.window() > LONGEST_UNREAD;
        let by_default = self.staggered.is_some() || (watched && table && long);
        self.read_every.unwrap_or(ReadEvery(by_default.then_some(USUAL_READS))).0
    }

    pub(crate) fn window(&self) -> Duration {
        self.window.unwrap_or(USUAL_WINDOW)
    }

    /// Settles on a hash, and has its secret if it takes one. Whoever counts live traffic may count what someone has chosen, unless a seed asks
    /// for the same hash in every run. `kept` is the secret of an earlier process that this one goes on for.
    pub(crate) fn with_hash(self, live: bool, kept: impl FnOnce() -> Option<HashKey>) -> Result<Options, Failure> {
        let usual = if self.hash_key.is_some() || (live && self.seed.is_none()) { HashMode::Keyed } else { HashMode::Tabulated };
        let hash = self.hash.unwrap_or(usual);
        let secret = match (hash, &self.hash_key) {
            (HashMode::Crc32 | HashMode::Tabulated, _) => None,
            (HashMode::Keyed, Some(path)) => Some(HashKey::read(path)?),
            (HashMode::Keyed, None) => Some(kept().map_or_else(HashKey::random, Ok)?),
        };
        Ok(Options { hash: Some(hash), secret, ..self })
    }

    /// The same, with these measured.
    pub(crate) fn with_measurements(self, measurements: Vec<MeasurementKind>) -> Options {
        Options { measure: Some(Measurements(measurements)), ..self }
    }

    /// What is measured.
    pub(crate) fn measurements(&self) -> Vec<MeasurementKind> {
        let asked = self.measure.clone().map_or_else(|| vec![MeasurementKind::Cardinality], |measurements| measurements.0);
        let watched = [MeasurementKind::Entropy, MeasurementKind::Heavy];
        asked.into_iter().chain(watched.into_iter().filter(|_| self.watches())).collect()
    }

    pub(crate) fn measures(&self, measurement: MeasurementKind) -> bool {
        self.measurements().contains(&measurement)
    }

    /// The keys of a measurement.
    pub(crate) fn keys(&self, measurement: MeasurementKind, usual: KeyKind) -> Vec<KeyKind> {
        let of = |wanted: Option<MeasurementKind>| self.key.iter().rev().find(|keyed| keyed.measurement == wanted);
        of(Some(measurement)).or_else(|| of(None)).map_or_else(|| vec![usual], |keyed| keyed.keys.clone())
    }

    /// The key of a measurement that has one.
    pub(crate) fn key(&self, measurement: MeasurementKind) -> KeyKind {
        self.keys(measurement, KeyKind::Src).first().copied().unwrap_or(KeyKind::Src)
    }

    pub(crate) fn on_switch(&self) -> bool {
        matches!(self.backend, Backend::Tofino)
    }

    /// What a dataplane is to count. Whoever else needs to know asks the dataplane.
    pub(crate) fn settings(&self) -> Settings {
        // Also where nothing is measured these say how keys are hashed, and what is installed.
        let (hash, precision) = (self.hash.unwrap_or_default(), self.own.cardinality.registers.unwrap_or_default());
        let key = self.key(MeasurementKind::Cardinality);
        let mut settings = Settings::only(cardinality::Settings { mode: Mode::Off, key, hash, precision });
        if self.inner.unwrap_or_default() {
            settings.headers = parse::Settings::INNER;
        }
        self.own.settings(self, &mut settings);
        settings
    }

    /// Refuses several workers where they would count the packets of a capture out of their order, and that matters.
    pub(crate) fn check_order(&self) -> Result<(), Failure> {
        if self.workers.unwrap_or(1) > 1 && self.settings().wants_order() {
            let problem = "several workers would count packets of a capture out of their order; delays and reordering take one: leave out --workers";
            return Err(Failure::Usage(problem.to_owned()));
        }
        Ok(())
    }

    /// How much later than others a packet of a capture may come.
    pub(crate) fn lateness(&self) -> Duration {
        self.lateness.unwrap_or_default().0
    }

    /// What the controller is to do; whether somebody watches it live decides about reads.
    pub(crate) fn plan(&self, watched: bool) -> Plan {
        let alarm = self.watches().then(alarm::judge::Options::default);
        let mut options =
            Estimation { queries: self.query.clone(), alerts: self.alerts.alert.clone(), alarm, ..Estimation::default() };
        self.own.estimation(self, &mut options);
        Plan {
            intervals: Intervals {
                window: Some(self.window()),
                read_every: self.read_every(watched),
                duration: self.duration,
                align: self.align.unwrap_or(false),
            },
            seed: self.seed.unwrap_or(1),
            hash_key: self.secret.clone(),
            prefixes: if self.measures(MeasurementKind::Delay) { self.own.delay.prefixes() } else { Vec::new() },
            options,
        }
    }
}
