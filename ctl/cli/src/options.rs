//! Options that `run` and `replay` share, on the command line and in the configuration file.

use crate::config;
use crate::error::Failure;
use crate::run::Backend;
use crate::value::{self, Cpus, Directions, Keyed, Lateness, Measurements, PortPair, PortSpec, ReadEvery, SketchSpec, Slots};
use clap::Args;
use flowgauge_core::Grid;
use flowgauge_core::cardinality::{self, Mode};
use flowgauge_core::heavy::{self, Algorithm, Unit};
use flowgauge_core::membership;
use flowgauge_core::sketch::{self, SketchKind};
use flowgauge_core::{FlowKey, HashMode, KeyKind, Precision, Settings, parse};
use flowgauge_ctl::controller::Plan;
use flowgauge_ctl::estimate::cardinality::Estimator;
use flowgauge_ctl::estimate::entropy::alarm;
use flowgauge_ctl::output::Format;
use flowgauge_ctl::record::{Estimation, Report, can_watch};
use flowgauge_ctl::schedule::Intervals;
use flowgauge_dataplane::poll::PollMode;
use flowgauge_dataplane::{HashKey, MeasurementKind, tofino, xdp};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// Length of a window unless another is asked for.
const USUAL_WINDOW: Duration = Duration::from_secs(10);
/// Longer than this nobody waits for a line.
const LONGEST_UNREAD: Duration = Duration::from_secs(10);
/// Mean time between reads, where there are any by default.
const USUAL_READS: Duration = Duration::from_secs(1);

/// What to measure, when, and where the results go. What is not given comes from the configuration file, then from defaults.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct Options {
    /// Read options from a TOML file
    ///
    /// Keys are the long option names without their dashes, as in window = "1m" or adopt = true. What the command line says goes before it;
    /// '--adopt=false' switches off what the file switches on.
    #[arg(long, value_name = "FILE", help_heading = "General")]
    #[serde(skip)]
    pub(crate) config: Option<PathBuf>,

    /// Where packets come from; `run` has options for both, `replay` has no use for them.
    #[arg(skip)]
    pub(crate) backend: Option<Backend>,
    #[arg(skip)]
    #[serde(deserialize_with = "config::port")]
    pub(crate) port: Option<PortSpec>,
    #[arg(skip)]
    pub(crate) eal: Option<String>,
    #[arg(skip)]
    #[serde(deserialize_with = "config::one_or_more")]
    pub(crate) interface: Vec<String>,
    #[arg(skip)]
    #[serde(deserialize_with = "config::direction")]
    pub(crate) direction: Option<Directions>,
    #[arg(skip)]
    #[serde(deserialize_with = "config::xdp_mode")]
    pub(crate) xdp_mode: Option<xdp::Mode>,
    #[arg(skip)]
    pub(crate) adopt: Option<bool>,
    #[arg(skip)]
    pub(crate) leave: Option<bool>,
    #[arg(skip)]
    pub(crate) pins: Option<PathBuf>,
    #[arg(skip)]
    #[serde(deserialize_with = "config::address")]
    pub(crate) address: Option<String>,
    #[arg(skip)]
    pub(crate) program: Option<String>,
    #[arg(skip)]
    pub(crate) device: Option<u32>,
    #[arg(skip)]
    #[serde(deserialize_with = "config::switch_ports")]
    pub(crate) switch_port: Vec<tofino::Port>,
    #[arg(skip)]
    #[serde(deserialize_with = "config::port_pairs")]
    pub(crate) forward: Vec<PortPair>,
    #[arg(skip)]
    pub(crate) tls_ca: Option<PathBuf>,
    #[arg(skip)]
    pub(crate) tls_cert: Option<PathBuf>,
    #[arg(skip)]
    pub(crate) tls_key: Option<PathBuf>,
    #[arg(skip)]
    pub(crate) tls_name: Option<String>,

    /// Length of a window; one ends at every multiple of it [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = value::duration, allow_hyphen_values = true, help_heading = "Time")]
    #[serde(deserialize_with = "config::duration")]
    pub(crate) window: Option<Duration>,

    /// Mean time between reads inside a window; 'never' for none [default: never, or 1s, see --help]
    ///
    /// Reads show a window while it is open, at random (Poisson) times. By default there are none, but for two cases: on a terminal, a table
    /// of windows longer than 10s has one a second in the mean, and so has a run with --staggered, which has no windows to show. There is no read where nothing
    /// came since the one before.
    #[arg(long, value_name = "TIME", value_parser = value::read_every, allow_hyphen_values = true, help_heading = "Time")]
    #[serde(deserialize_with = "config::read_every")]
    pub(crate) read_every: Option<ReadEvery>,

    /// How much later than others a packet of a capture may come [default: 100ms]
    ///
    /// Up to then it is counted in the window of its own time, wherever it lies in the capture; what comes later is counted apart, as late.
    /// '0s' waits for none.
    #[arg(long, value_name = "TIME", value_parser = value::lateness, allow_hyphen_values = true, help_heading = "Time")]
    #[serde(deserialize_with = "config::lateness")]
    pub(crate) lateness: Option<Lateness>,

    /// Stop after this time [default: when the traffic ends]
    ///
    /// Ctrl-C stops at any time. Either way the open window is closed and printed.
    #[arg(long, value_name = "TIME", value_parser = value::duration, allow_hyphen_values = true, help_heading = "Time")]
    #[serde(deserialize_with = "config::duration")]
    pub(crate) duration: Option<Duration>,

    /// No windows: distinct flows of the last TIME at every read (staggered HyperLogLog)
    #[arg(long, value_name = "TIME", value_parser = value::duration, allow_hyphen_values = true, help_heading = "Time")]
    #[serde(deserialize_with = "config::duration")]
    pub(crate) staggered: Option<Duration>,

    /// What to measure: cardinality, entropy, frequency, membership, heavy, none [default: cardinality]
    ///
    /// Several go together, with commas between.
    #[arg(long, value_name = "NAMES", value_parser = value::measure, help_heading = "Measurement")]
    #[serde(deserialize_with = "config::measure")]
    pub(crate) measure: Option<Measurements>,

    /// What makes a flow: src, dst, src-dst, five-tuple [default: src, of entropy src-dst]
    ///
    /// For one measurement as in heavy=five-tuple, of entropy also two, as in entropy=src+dst.
    #[arg(long, value_name = "[NAME=]KEY", value_parser = value::keyed, value_delimiter = ',', help_heading = "Measurement")]
    #[serde(deserialize_with = "config::keys")]
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
    #[serde(deserialize_with = "config::hash")]
    pub(crate) hash: Option<HashMode>,

    /// The secret of --hash keyed: 32 or 64 hexadecimal digits, or 16 or 32 bytes; sketches can be merged only if their keys are equal
    /// [default: random numbers, anew in every run]
    #[arg(long, value_name = "FILE", help_heading = "Measurement")]
    pub(crate) hash_key: Option<PathBuf>,

    /// The secret itself, once it is read or made; see [`with_hash`](Self::with_hash).
    #[arg(skip)]
    #[serde(skip)]
    pub(crate) secret: Option<HashKey>,

    /// Registers, a power of two from 16 to 65536; the error is about 1.04 / sqrt(registers) [default: 2048]
    #[arg(long, value_name = "N", value_parser = value::registers, help_heading = "Measurement")]
    #[serde(deserialize_with = "config::registers")]
    pub(crate) registers: Option<Precision>,

    /// How registers become a number: ertl, flajolet (the thesis), mle [default: ertl, or mle with --staggered]
    #[arg(long, value_name = "NAME", value_parser = value::estimator, help_heading = "Measurement")]
    #[serde(deserialize_with = "config::estimator")]
    pub(crate) estimator: Option<Estimator>,

    /// The sketch of entropy or frequency: count-sketch or count-min, rows and columns [default: entropy=count-sketch:4x1024,
    /// frequency=count-min:4x1024; on a switch 3 rows]
    #[arg(long, value_name = "NAME=KIND:ROWSxCOLUMNS", value_parser = value::sketch, value_delimiter = ',', help_heading = "Measurement")]
    #[serde(deserialize_with = "config::sketches")]
    pub(crate) sketch: Vec<SketchSpec>,

    /// The Bloom filter of membership: rows, and bits in each [default: 4x65536, on a switch 3x65536]
    #[arg(long, value_name = "ROWSxBITS", value_parser = value::filter, help_heading = "Measurement")]
    #[serde(deserialize_with = "config::filter")]
    pub(crate) filter: Option<Grid>,

    /// How heavy hitters are found: rap, space-saving, d-way-rap, hashpipe, precision [default: rap, in the kernel d-way-rap, on a
    /// switch precision]
    #[arg(long, value_name = "NAME", value_parser = value::algorithm, help_heading = "Measurement")]
    #[serde(deserialize_with = "config::algorithm")]
    pub(crate) algorithm: Option<Algorithm>,

    /// What flows are heavy by: packets, bytes [default: packets]
    #[arg(long, value_name = "UNIT", value_parser = value::by, help_heading = "Measurement")]
    #[serde(deserialize_with = "config::by")]
    pub(crate) by: Option<Unit>,

    /// Slots for heavy hitters, a power of two from 16 to 4096 [default: 1024]
    #[arg(long, value_name = "N", value_parser = value::slots, help_heading = "Measurement")]
    #[serde(deserialize_with = "config::slots")]
    pub(crate) slots: Option<Slots>,

    /// How many heavy hitters to show [default: 10]
    #[arg(long, value_name = "N", help_heading = "Measurement")]
    pub(crate) top: Option<usize>,

    /// Ask for the packets (frequency) and the membership of a flow
    ///
    /// A flow is '10.0.0.1', '10.0.0.1 > 10.0.0.2' or '10.0.0.1:53 > 10.0.0.2:4321 udp', as the measurement's key says. The option may be
    /// repeated.
    #[arg(long, value_name = "FLOW", value_parser = value::query, help_heading = "Measurement")]
    #[serde(deserialize_with = "config::queries")]
    pub(crate) query: Vec<FlowKey>,

    /// Raise an alarm when traffic looks like a denial of service by many
    ///
    /// Watches the entropies of sources and destinations; measures entropy=src+dst, and heavy hitters to name the top talkers.
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = "Measurement")]
    pub(crate) alarm: Option<bool>,

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
    #[serde(deserialize_with = "config::workers")]
    pub(crate) workers: Option<usize>,

    /// Keep workers on these CPUs, in turn, such as 2 or 0,4-7 [default: wherever they may run]
    #[arg(long, value_name = "LIST", value_parser = value::cpus, help_heading = "General")]
    #[serde(deserialize_with = "config::cpus")]
    pub(crate) cpus: Option<Cpus>,

    /// What a worker without packets does: look again at once (busy; takes a whole CPU), wait (interrupt), or look again for some
    /// microseconds and then wait (adaptive) [default: adaptive]
    #[arg(long, value_name = "MODE", value_parser = value::poll_mode, help_heading = "General")]
    #[serde(deserialize_with = "config::poll_mode")]
    pub(crate) poll_mode: Option<PollMode>,

    /// How results are printed: table, csv, json (one object a line) [default: table]
    #[arg(long, value_name = "FORMAT", value_parser = value::format, help_heading = "Output")]
    #[serde(deserialize_with = "config::format")]
    pub(crate) format: Option<Format>,

    /// Show the table's times of day as UTC, and not as local time
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = "Output")]
    pub(crate) utc: Option<bool>,

    /// Also write results to new CSV and JSON-lines files in this directory
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(crate) out: Option<PathBuf>,

    /// Write every exchange with the dataplane to this file, one JSON object a line, for a bug report
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) record: Option<PathBuf>,
}

impl Options {
    /// Fills in what was not given from the configuration file, and checks that all goes together.
    pub(crate) fn with_config(self) -> Result<Options, Failure> {
        let Some(path) = &self.config else { return self.checked() };
        let file: Options = config::read(path)?;
        let options = Options {
            config: None,
            backend: self.backend.or(file.backend),
            port: self.port.or(file.port),
            eal: self.eal.or(file.eal),
            interface: if self.interface.is_empty() { file.interface } else { self.interface },
            direction: self.direction.or(file.direction),
            xdp_mode: self.xdp_mode.or(file.xdp_mode),
            adopt: self.adopt.or(file.adopt),
            leave: self.leave.or(file.leave),
            pins: self.pins.or(file.pins),
            address: self.address.or(file.address),
            program: self.program.or(file.program),
            device: self.device.or(file.device),
            switch_port: if self.switch_port.is_empty() { file.switch_port } else { self.switch_port },
            forward: if self.forward.is_empty() { file.forward } else { self.forward },
            tls_ca: self.tls_ca.or(file.tls_ca),
            tls_cert: self.tls_cert.or(file.tls_cert),
            tls_key: self.tls_key.or(file.tls_key),
            tls_name: self.tls_name.or(file.tls_name),
            window: self.window.or(file.window),
            read_every: self.read_every.or(file.read_every),
            lateness: self.lateness.or(file.lateness),
            duration: self.duration.or(file.duration),
            staggered: self.staggered.or(file.staggered),
            measure: self.measure.or(file.measure),
            key: if self.key.is_empty() { file.key } else { self.key },
            sketch: if self.sketch.is_empty() { file.sketch } else { self.sketch },
            filter: self.filter.or(file.filter),
            algorithm: self.algorithm.or(file.algorithm),
            by: self.by.or(file.by),
            slots: self.slots.or(file.slots),
            top: self.top.or(file.top),
            query: if self.query.is_empty() { file.query } else { self.query },
            alarm: self.alarm.or(file.alarm),
            inner: self.inner.or(file.inner),
            hash: self.hash.or(file.hash),
            hash_key: self.hash_key.or(file.hash_key),
            secret: None,
            registers: self.registers.or(file.registers),
            estimator: self.estimator.or(file.estimator),
            truth: self.truth.or(file.truth),
            seed: self.seed.or(file.seed),
            workers: self.workers.or(file.workers),
            cpus: self.cpus.or(file.cpus),
            poll_mode: self.poll_mode.or(file.poll_mode),
            format: self.format.or(file.format),
            utc: self.utc.or(file.utc),
            out: self.out.or(file.out),
            record: self.record.or(file.record),
        };
        options.checked()
    }

    /// Options that go together, checked before anything is opened.
    fn checked(self) -> Result<Options, Failure> {
        let problem = match self.staggered {
            Some(_) if self.estimator == Some(Estimator::Ertl) => {
                "--estimator ertl is not defined for --staggered; use mle, or flajolet for the source's harmonic mean"
            }
            Some(_) if self.window.is_some() => "--staggered has no windows; leave out --window",
            Some(covered) if covered < Duration::from_millis(1) => "--staggered must be at least 1ms",
            Some(_) if self.settings().beyond_cardinality() => {
                "--staggered has no windows, which all measurements but cardinality need; leave out one or the other"
            }
            _ if self.watches() && !can_watch(&self.settings()) => {
                "--alarm watches the entropies of sources and destinations; leave out the --key of entropy"
            }
            _ if self.hash_key.is_some() && self.hash.is_some_and(|hash| hash != HashMode::Keyed) => {
                "--hash-key is for --hash keyed; leave out one or the other"
            }
            _ if self.hash == Some(HashMode::Keyed) && self.seed.is_some() && self.hash_key.is_none() => {
                "a --seed is no secret; for --hash keyed that can be repeated give --hash-key FILE"
            }
            _ => return self.without_idle_options(),
        };
        Err(Failure::Usage(problem.to_owned()))
    }

    /// Refuses options of measurements that are off: whoever gives them believes otherwise.
    fn without_idle_options(self) -> Result<Options, Failure> {
        let measured = self.measurements();
        let given = [
            (!self.query.is_empty(), "--query", vec![MeasurementKind::Frequency, MeasurementKind::Membership]),
            (self.filter.is_some(), "--filter", vec![MeasurementKind::Membership]),
            (self.algorithm.is_some(), "--algorithm", vec![MeasurementKind::Heavy]),
            (self.by.is_some(), "--by", vec![MeasurementKind::Heavy]),
            (self.slots.is_some(), "--slots", vec![MeasurementKind::Heavy]),
            (self.top.is_some(), "--top", vec![MeasurementKind::Heavy]),
        ];
        let own_keys = self.key.iter().filter_map(|keyed| keyed.measurement.map(|kind| (true, "--key", vec![kind])));
        let sketches = self.sketch.iter().map(|sketch| (true, "--sketch", vec![sketch.measurement]));
        for (is_given, option, kinds) in given.into_iter().chain(own_keys).chain(sketches) {
            if is_given && !kinds.iter().any(|kind| measured.contains(kind)) {
                let names: Vec<&str> = kinds.into_iter().map(MeasurementKind::name).collect();
                let problem = format!("{option} is for {0}, which is not measured; add it with --measure {0}", names.join(" or "));
                return Err(Failure::Usage(problem));
            }
        }
        Ok(self)
    }

    /// Whether the alarm watches.
    fn watches(&self) -> bool {
        self.alarm.unwrap_or_default()
    }

    pub(crate) fn adopts(&self) -> bool {
        self.adopt.unwrap_or_default()
    }

    pub(crate) fn leaves(&self) -> bool {
        self.leave.unwrap_or_default()
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

    /// What is measured.
    fn measurements(&self) -> Vec<MeasurementKind> {
        let asked = self.measure.clone().map_or_else(|| vec![MeasurementKind::Cardinality], |measurements| measurements.0);
        let watched = [MeasurementKind::Entropy, MeasurementKind::Heavy];
        asked.into_iter().chain(watched.into_iter().filter(|_| self.watches())).collect()
    }

    /// The keys of a measurement.
    fn keys(&self, measurement: MeasurementKind, usual: &[KeyKind]) -> Vec<KeyKind> {
        let of = |wanted: Option<MeasurementKind>| self.key.iter().rev().find(|keyed| keyed.measurement == wanted);
        of(Some(measurement)).or_else(|| of(None)).map_or_else(|| usual.to_vec(), |keyed| keyed.keys.clone())
    }

    /// Whether an option was given that only the kernel has a use for.
    pub(crate) fn asks_for_kernel(&self) -> bool {
        self.xdp_mode.is_some() || self.direction.is_some() || self.adopts() || self.leaves() || self.pins.is_some()
    }

    /// Whether an option was given that only a switch has a use for.
    pub(crate) fn asks_for_switch(&self) -> bool {
        let named = self.address.is_some() || self.program.is_some() || self.device.is_some() || self.tls_name.is_some();
        let tls = self.tls_ca.is_some() || self.tls_cert.is_some() || self.tls_key.is_some();
        named || tls || !self.switch_port.is_empty() || !self.forward.is_empty()
    }

    /// What the dataplane is to count.
    pub(crate) fn settings(&self) -> Settings {
        let measured = self.measurements();
        let key = |kind, usual| self.keys(kind, &[usual]).first().copied().unwrap_or(usual);
        let mode = match (measured.contains(&MeasurementKind::Cardinality), self.staggered) {
            (false, _) => Mode::Off,
            (true, Some(_)) => Mode::Staggered,
            (true, None) => Mode::Windowed,
        };
        let (hash, precision) = (self.hash.unwrap_or_default(), self.registers.unwrap_or_default());
        let cardinality = cardinality::Settings { mode, key: key(MeasurementKind::Cardinality, KeyKind::Src), hash, precision };
        let mut settings = Settings::only(cardinality);
        if self.inner.unwrap_or_default() {
            settings.headers = parse::Settings::INNER;
        }
        if measured.contains(&MeasurementKind::Entropy) {
            let own_key = self.key.iter().any(|keyed| keyed.measurement == Some(MeasurementKind::Entropy));
            let keys = match self.watches() && !own_key {
                true => vec![KeyKind::Src, KeyKind::Dst],
                false => self.keys(MeasurementKind::Entropy, &[KeyKind::SrcDst]),
            };
            for (entropy, key) in settings.entropy.iter_mut().zip(keys) {
                *entropy = self.sketch_settings(MeasurementKind::Entropy, key, SketchKind::CountSketch);
            }
        }
        if measured.contains(&MeasurementKind::Frequency) {
            let key = key(MeasurementKind::Frequency, KeyKind::Src);
            settings.frequency = self.sketch_settings(MeasurementKind::Frequency, key, SketchKind::CountMin);
        }
        if measured.contains(&MeasurementKind::Membership) {
            let usual = if self.on_switch() { Grid::of_bits(3, 1 << 16) } else { None };
            let shape = self.filter.or(usual).unwrap_or(Grid::BITS);
            settings.membership = membership::Settings { on: true, key: key(MeasurementKind::Membership, KeyKind::Src), shape };
        }
        if measured.contains(&MeasurementKind::Heavy) {
            let usual = match self.backend {
                Some(Backend::Xdp) => Algorithm::DWayRap,
                Some(Backend::Tofino) => Algorithm::Precision,
                Some(Backend::Poll) | None => Algorithm::Rap,
            };
            settings.heavy = heavy::Settings {
                algorithm: self.algorithm.unwrap_or(usual),
                key: key(MeasurementKind::Heavy, KeyKind::Src),
                unit: self.by.unwrap_or_default(),
                slots_log2: self.slots.map_or(heavy::Settings::DEFAULT.slots_log2, |slots| slots.0),
            };
        }
        settings
    }

    fn on_switch(&self) -> bool {
        matches!(self.backend, Some(Backend::Tofino))
    }

    fn sketch_settings(&self, measurement: MeasurementKind, key: KeyKind, usual: SketchKind) -> sketch::Settings {
        let given = |wanted: &SketchSpec| wanted.measurement == measurement;
        let given = self.sketch.iter().rev().find(|sketch| given(sketch));
        let usual_shape = if self.on_switch() { Grid::of_counters(3, 1024) } else { None };
        sketch::Settings {
            mode: given.and_then(|given| given.kind).unwrap_or(usual).into(),
            key,
            shape: given.and_then(|given| given.shape).or(usual_shape).unwrap_or(Grid::COUNTERS),
        }
    }

    /// Length of a slot of staggered registers: the window of the last `W` takes two rounds of all registers.
    pub(crate) fn slot_ns(&self) -> u64 {
        let registers = self.registers.unwrap_or_default().registers() as u128;
        let window = self.staggered.unwrap_or(Duration::from_secs(1));
        u64::try_from(2 * window.as_nanos() / registers).unwrap_or(u64::MAX).max(1)
    }

    /// How much later than others a packet of a capture may come.
    pub(crate) fn lateness(&self) -> Duration {
        self.lateness.unwrap_or_default().0
    }

    /// What the controller is to do; whether somebody watches it live decides about reads.
    pub(crate) fn plan(&self, watched: bool) -> Plan {
        let default_estimator = if self.staggered.is_some() { Estimator::Mle } else { Estimator::Ertl };
        Plan {
            intervals: Intervals { window: Some(self.window()), read_every: self.read_every(watched), duration: self.duration },
            estimation: Estimation {
                settings: self.settings(),
                estimator: self.estimator.unwrap_or(default_estimator),
                slot_ns: self.slot_ns(),
            },
            seed: self.seed.unwrap_or(1),
            hash_key: self.secret.clone(),
            report: Report {
                top: self.top.unwrap_or(Report::default().top),
                queries: self.query.clone(),
                alarm: self.watches().then(alarm::Options::default),
            },
        }
    }
}
