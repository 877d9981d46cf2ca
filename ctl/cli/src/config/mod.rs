//! The configuration of a run: command line, environment and configuration file merged, with a
//! value for every option.
//!
//! `given` collects the options that were given, with their places. `options` declares them, checks
//! them against each other, and resolves them with their defaults to a [`RunConfig`], which the
//! rest of the command reads. `value` parses the value of one option, `secrets` reads files with
//! keys.

pub(crate) mod given;
pub(crate) mod options;
pub(crate) mod secrets;
pub(crate) mod value;

use crate::error::{CommandFailure, refuse};
use flowgauge_core::Settings;
use flowgauge_core::cardinality::Mode;
use flowgauge_ctl::alert::Rule;
use flowgauge_ctl::controller::Plan;
use flowgauge_ctl::filter::MatchExpression;
use flowgauge_ctl::record::{SourceTraits, rule_problem};
use flowgauge_dataplane::poll::PollMode;
use flowgauge_dataplane::xdp::{self, Retention};
use flowgauge_dataplane::{CountingPoint, Error, HashKey, tofino};
use options::outputs::OutputOptions;
use std::path::PathBuf;
use std::time::Duration;
use value::{CountedDirections, PortSpec};

/// Configuration of a run: how one source of packets is counted, and where the results go.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunConfig {
    pub(crate) source: Source,
    /// Settings of the dataplane.
    pub(crate) settings: Settings,
    /// Length of a slot of staggered registers, in nanoseconds.
    pub(crate) slot_ns: u64,
    pub(crate) secret: KeySource,
    /// Whether flows are counted exactly as well.
    pub(crate) truth: bool,
    /// Number of worker threads. By default one; for an AF_XDP port, one for each receive queue.
    pub(crate) workers: Option<usize>,
    /// CPUs that workers are pinned to, in turn; empty if they are not pinned.
    pub(crate) cpus: Vec<usize>,
    pub(crate) poll_mode: PollMode,
    /// Maximum by which a packet of a capture may be earlier than packets before it.
    pub(crate) lateness: Duration,
    /// Plan of the controller. Its hash key is filled in when counting begins.
    pub(crate) plan: Plan,
    /// With their defaults; the same for all sources of a process.
    pub(crate) outputs: OutputOptions,
}

impl RunConfig {
    /// Returns this configuration with the intervals, the estimation and, if it can change, the
    /// filter of `other`: only these can change between two windows without losing a packet.
    pub(crate) fn changed_to(&self, other: &RunConfig) -> RunConfig {
        let plan = Plan {
            intervals: other.plan.intervals,
            options: other.plan.options.clone(),
            filter: if self.changes_filter(other) { &other.plan } else { &self.plan }
                .filter
                .clone(),
            ..self.plan.clone()
        };
        RunConfig { plan, ..self.clone() }
    }

    /// Rejects alerts that can never fire.
    pub(crate) fn check_alerts(&self) -> Result<(), CommandFailure> {
        let problem = self.plan.options.alerts.iter().find_map(|rule| self.alert_problem(rule));
        problem.map_or(Ok(()), refuse)
    }

    /// Returns why an alert can never fire, if no window of this source has its figure.
    pub(crate) fn alert_problem(&self, rule: &Rule) -> Option<String> {
        if self.settings.cardinality.mode == Mode::Staggered {
            return Some(format!(
                "the alert '{}' judges windows, which --staggered does not have; remove one of them",
                rule.text
            ));
        }
        let traits = SourceTraits {
            is_filtered: self.plan.filter.is_some(),
            has_devices: self.source.has_devices(),
            has_workers: self.source.traffic().counter == CountingPart::Workers,
        };
        rule_problem(rule, &self.settings, &self.plan.options, traits)
    }

    /// Returns whether the filter can change to that of `other` when a window ends. In the kernel,
    /// the programs of a run that begins without a filter have none. A switch must be known to have
    /// the tables, and to be able to match the new one.
    fn changes_filter(&self, other: &RunConfig) -> bool {
        let is_matchable = |new: &MatchExpression| tofino::unmatchable(&new.filter).is_none();
        let can_change = match self.source.traffic().counter {
            CountingPart::Workers => true,
            CountingPart::Kernel => self.plan.filter.is_some(),
            CountingPart::Switch => {
                self.plan.filter.is_some() && other.plan.filter.as_ref().is_none_or(is_matchable)
            }
        };
        can_change && self.settings.cardinality.mode != Mode::Staggered
    }
}

/// Source of packets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    /// Network interfaces of this machine, in the kernel.
    Interfaces(Interfaces),
    /// A port that workers poll.
    Port {
        port: PortSpec,
        /// DPDK's own arguments.
        eal: Option<String>,
    },
    Switch(Box<SwitchConfig>),
    /// Captures, in their own time.
    Captures(Vec<PathBuf>),
    /// The generated traffic of `demo`.
    Demo,
}

impl Source {
    /// Names of interfaces without which nothing is counted.
    pub(crate) fn needed_interfaces(&self) -> Vec<&str> {
        match self {
            Source::Interfaces(interfaces) => interfaces.names.iter().map(String::as_str).collect(),
            Source::Port { port: PortSpec::AfXdp(description), .. } => vec![&description.interface],
            _ => Vec::new(),
        }
    }

    /// Returns whether devices report the number of packets that they received.
    pub(crate) fn has_devices(&self) -> bool {
        match self {
            Source::Interfaces(_) | Source::Switch(_) => true,
            Source::Port { port, .. } => port.is_live(),
            Source::Captures(_) | Source::Demo => false,
        }
    }

    pub(crate) fn traffic(&self) -> Traffic {
        let workers = Traffic::GENERATED;
        match self {
            Source::Interfaces(Interfaces { directions, .. }) => Traffic {
                counter: CountingPart::Kernel,
                separates_directions: *directions == CountedDirections::Both,
                is_chosen: true,
                ..workers
            },
            // Others choose what comes to a switch as well, but it has no hash that takes a key.
            Source::Switch(_) => Traffic { counter: CountingPart::Switch, ..workers },
            Source::Port { port, .. } => Traffic { is_chosen: port.is_live(), ..workers },
            Source::Captures(_) => Traffic { is_live: false, ..workers },
            Source::Demo => workers,
        }
    }
}

/// Part of the system that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountingPart {
    Kernel,
    Workers,
    Switch,
}

/// Properties of a source that defaults depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traffic {
    pub(crate) counter: CountingPart,
    /// Whether egress and ingress packets are counted separately.
    pub(crate) separates_directions: bool,
    /// Whether time is wall-clock time, not the time of a capture.
    pub(crate) is_live: bool,
    /// Whether others choose the traffic, so that the hash needs a key. Files and generators give
    /// the same result in every run instead.
    pub(crate) is_chosen: bool,
}

impl Traffic {
    /// Generated traffic, or a capture in real time, which workers count.
    pub(crate) const GENERATED: Traffic = Traffic {
        counter: CountingPart::Workers,
        separates_directions: false,
        is_live: true,
        is_chosen: false,
    };
}

/// Interfaces of this machine, or patterns of their names.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Interfaces {
    pub(crate) names: Vec<String>,
    pub(crate) directions: CountedDirections,
    /// The hook; the best that there is if `None`.
    pub(crate) mode: Option<xdp::Mode>,
    /// Programs and counts that outlive this process, if any.
    pub(crate) keep: Option<Retention>,
    /// Whether the user requested it, so that it is an error if the kernel cannot do it.
    pub(crate) must_keep: bool,
}

impl Interfaces {
    pub(crate) fn places(&self) -> Vec<CountingPoint> {
        let places = |interface: &String| {
            let place = |direction| CountingPoint { interface: interface.clone(), direction };
            self.directions.all().into_iter().map(place).collect::<Vec<_>>()
        };
        self.names.iter().flat_map(places).collect()
    }
}

/// A switch: its address, options of the connection, and its ports.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SwitchConfig {
    /// Without encryption, whose files are read when counting begins.
    pub(crate) options: tofino::Options,
    pub(crate) tls: Option<TlsFiles>,
}

/// Files in PEM for an encrypted connection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TlsFiles {
    pub(crate) authority: PathBuf,
    /// This client's certificate and key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
    /// The name in the switch's certificate, if it is not that of its address.
    pub(crate) server_name: Option<String>,
}

/// Source of the key of a hash.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum KeySource {
    /// The hash has none.
    None,
    File(PathBuf),
    /// Random numbers, new in every run.
    Random,
}

impl KeySource {
    /// Returns the key, if the hash takes one. `random` returns the key of random numbers:
    /// [`HashKey::random`], or one that other counts have which this one continues or accompanies.
    pub(crate) fn key(
        &self,
        random: impl FnOnce() -> Result<HashKey, Error>,
    ) -> Result<Option<HashKey>, CommandFailure> {
        Ok(match self {
            KeySource::None => None,
            KeySource::File(path) => Some(secrets::hash_key(path)?),
            KeySource::Random => {
                secrets::protect();
                Some(random()?)
            }
        })
    }
}
