//! Options that `run` and `replay` share, on the command line and in the configuration file.

use crate::config;
use crate::error::Failure;
use crate::run::Backend;
use crate::value::{self, Cpus, Directions, PortPair, PortSpec, ReadEvery};
use clap::Args;
use flowgauge_core::cardinality::{self, Mode};
use flowgauge_core::{HashMode, KeyKind, Precision, Settings};
use flowgauge_ctl::controller::Plan;
use flowgauge_ctl::estimate::cardinality::Estimator;
use flowgauge_ctl::output::Format;
use flowgauge_ctl::record::Estimation;
use flowgauge_ctl::schedule::Intervals;
use flowgauge_dataplane::poll::PollMode;
use flowgauge_dataplane::{tofino, xdp};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// What to measure, when, and where the results go. What is not given comes from the configuration file, then from defaults.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct Options {
    /// Read options from a TOML file; keys are the long option names, and the command line goes before it
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
    pub(crate) adopt: bool,
    #[arg(skip)]
    pub(crate) leave: bool,
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

    /// Mean time between reads inside a window, at random (Poisson) times; 'never' for none [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = value::read_every, allow_hyphen_values = true, help_heading = "Time")]
    #[serde(deserialize_with = "config::read_every")]
    pub(crate) read_every: Option<ReadEvery>,

    /// Stop after this time; Ctrl-C stops at any time and closes the window [default: when the traffic ends]
    #[arg(long, value_name = "TIME", value_parser = value::duration, allow_hyphen_values = true, help_heading = "Time")]
    #[serde(deserialize_with = "config::duration")]
    pub(crate) duration: Option<Duration>,

    /// No windows: distinct flows of the last TIME at every read (staggered HyperLogLog)
    #[arg(long, value_name = "TIME", value_parser = value::duration, allow_hyphen_values = true, help_heading = "Time")]
    #[serde(deserialize_with = "config::duration")]
    pub(crate) staggered: Option<Duration>,

    /// Measurements, with commas between: cardinality, none [default: cardinality]
    #[arg(long, value_name = "NAMES", value_parser = value::measure, help_heading = "Measurement")]
    #[serde(deserialize_with = "config::measure")]
    pub(crate) measure: Option<Mode>,

    /// What makes a flow: src, dst, src-dst, five-tuple [default: src]
    #[arg(long, value_name = "KEY", value_parser = value::key, help_heading = "Measurement")]
    #[serde(deserialize_with = "config::key")]
    pub(crate) key: Option<KeyKind>,

    /// How keys are hashed: tabulated, or crc32 as in the thesis, which fails on structured addresses [default: tabulated]
    #[arg(long, value_name = "HASH", value_parser = value::hash, help_heading = "Measurement")]
    #[serde(deserialize_with = "config::hash")]
    pub(crate) hash: Option<HashMode>,

    /// Registers, a power of two from 16 to 65536; the error is about 1.04 / sqrt(registers) [default: 2048]
    #[arg(long, value_name = "N", value_parser = value::registers, help_heading = "Measurement")]
    #[serde(deserialize_with = "config::registers")]
    pub(crate) registers: Option<Precision>,

    /// How registers become a number: ertl, flajolet (the thesis), mle [default: ertl, or mle with --staggered]
    #[arg(long, value_name = "NAME", value_parser = value::estimator, help_heading = "Measurement")]
    #[serde(deserialize_with = "config::estimator")]
    pub(crate) estimator: Option<Estimator>,

    /// Count exactly as well and show the truth beside every estimate; takes memory for every flow
    #[arg(long, help_heading = "Measurement")]
    pub(crate) truth: bool,

    /// Seed of hash tables and read times; sketches can be merged only if their seeds are equal [default: 1]
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
            adopt: self.adopt || file.adopt,
            leave: self.leave || file.leave,
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
            duration: self.duration.or(file.duration),
            staggered: self.staggered.or(file.staggered),
            measure: self.measure.or(file.measure),
            key: self.key.or(file.key),
            hash: self.hash.or(file.hash),
            registers: self.registers.or(file.registers),
            estimator: self.estimator.or(file.estimator),
            truth: self.truth || file.truth,
            seed: self.seed.or(file.seed),
            workers: self.workers.or(file.workers),
            cpus: self.cpus.or(file.cpus),
            poll_mode: self.poll_mode.or(file.poll_mode),
            format: self.format.or(file.format),
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
            _ => return Ok(self),
        };
        Err(Failure::Usage(problem.to_owned()))
    }

    /// Whether an option was given that only the kernel has a use for.
    pub(crate) fn asks_for_kernel(&self) -> bool {
        self.xdp_mode.is_some() || self.direction.is_some() || self.adopt || self.leave || self.pins.is_some()
    }

    /// Whether an option was given that only a switch has a use for.
    pub(crate) fn asks_for_switch(&self) -> bool {
        let named = self.address.is_some() || self.program.is_some() || self.device.is_some() || self.tls_name.is_some();
        let tls = self.tls_ca.is_some() || self.tls_cert.is_some() || self.tls_key.is_some();
        named || tls || !self.switch_port.is_empty() || !self.forward.is_empty()
    }

    /// What the dataplane is to count.
    pub(crate) fn settings(&self) -> Settings {
        let mode = match (self.measure.unwrap_or_default(), self.staggered) {
            (Mode::Off, _) => Mode::Off,
            (_, Some(_)) => Mode::Staggered,
            (mode, None) => mode,
        };
        let (key, hash) = (self.key.unwrap_or_default(), self.hash.unwrap_or_default());
        Settings { cardinality: cardinality::Settings { mode, key, hash, precision: self.registers.unwrap_or_default() } }
    }

    /// Length of a slot of staggered registers: the window of the last `W` takes two rounds of all registers.
    pub(crate) fn slot_ns(&self) -> u64 {
        let registers = self.registers.unwrap_or_default().registers() as u128;
        let window = self.staggered.unwrap_or(Duration::from_secs(1));
        u64::try_from(2 * window.as_nanos() / registers).unwrap_or(u64::MAX).max(1)
    }

    /// What the controller is to do.
    pub(crate) fn plan(&self) -> Plan {
        let default_estimator = if self.staggered.is_some() { Estimator::Mle } else { Estimator::Ertl };
        Plan {
            intervals: Intervals {
                window: Some(self.window.unwrap_or(Duration::from_secs(10))),
                read_every: self.read_every.unwrap_or(ReadEvery(Some(Duration::from_secs(1)))).0,
                duration: self.duration,
            },
            estimation: Estimation {
                settings: self.settings(),
                estimator: self.estimator.unwrap_or(default_estimator),
                slot_ns: self.slot_ns(),
            },
            seed: self.seed.unwrap_or(1),
        }
    }
}
