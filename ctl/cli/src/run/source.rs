//! Opens the dataplane of the source that a configuration names, and counts on it.

use crate::config::secrets;
use crate::config::value::PortSpec;
use crate::config::{Interfaces, RunConfig, Source, SwitchConfig, TlsFiles};
use crate::error::{CommandFailure, cannot, fail};
use crate::interfaces::warn_of_overlaps;
use crate::run::controller::{run_live, run_workers};
use crate::run::demo_traffic;
use crate::run::handle::{SharedPrograms, SourceHandle};
#[cfg(feature = "tofino")]
use flowgauge_dataplane::Tofino;
use flowgauge_dataplane::files::{self, MAX_SETTINGS_BYTES};
#[cfg(feature = "dpdk")]
use flowgauge_dataplane::poll::port::dpdk;
use flowgauge_dataplane::poll::port::{Capture, Port, Ports, af_xdp, captures, pcap};
use flowgauge_dataplane::poll::{self, Pace, Poll};
use flowgauge_dataplane::tofino::{self, Tls};
use flowgauge_dataplane::xdp::{self, ProgramSets, Retention, Xdp};
use flowgauge_dataplane::{Error, HashKey};
use flowgauge_traffic::memory;
use std::path::Path;

/// Ends of the `-----BEGIN` line of a certificate and of a private key.
const CERTIFICATE: &str = "CERTIFICATE-----";
const KEY: &str = "PRIVATE KEY-----";

/// Counts until the source ends, or the run.
pub(crate) fn count(config: &RunConfig, handle: &SourceHandle) -> Result<(), CommandFailure> {
    match &config.source {
        Source::Interfaces(interfaces) => on_interfaces(interfaces, config, handle),
        Source::Port { port, eal } => {
            run_workers(open_port(port, eal.as_deref(), config)?, config, handle)
        }
        #[cfg(feature = "tofino")]
        Source::Switch(switch) => on_switch(switch, config, handle),
        #[cfg(not(feature = "tofino"))]
        Source::Switch(switch) => {
            let problem = crate::config::value::not_built("tofino");
            crate::error::refuse(format!("--address {}: {problem}", switch.options.address))
        }
        Source::Captures(files) => {
            let files = files.iter().map(|file| open(file)).collect::<Result<_, _>>()?;
            let ports = captures(files, config.workers.unwrap_or(1), Pace::Trace)?;
            run_workers(workers(ports, config), config, handle)
        }
        Source::Demo => run_workers(workers(demo_traffic::ports()?, config), config, handle),
    }
}

fn open(path: &Path) -> Result<Capture, Error> {
    if path.as_os_str() == "-" { Capture::standard_input() } else { Capture::open(path) }
}

/// Returns a dataplane whose workers count the packets of ports.
pub(crate) fn workers<P: Port>(ports: Ports<P>, config: &RunConfig) -> Poll {
    let how = poll::Options {
        settings: config.settings,
        slot_ns: config.slot_ns,
        truth: config.truth,
        poll_mode: config.poll_mode,
        cpus: config.cpus.clone(),
        ..poll::Options::default()
    };
    let poll = Poll::new(ports, how).held();
    poll.gate().set_lateness(config.lateness);
    poll
}

fn open_port(
    port: &PortSpec,
    eal: Option<&str>,
    config: &RunConfig,
) -> Result<Poll, CommandFailure> {
    let number = config.workers.unwrap_or(1);
    Ok(match port {
        PortSpec::AfXdp(description) => workers(af_xdp(description, config.workers)?, config),
        PortSpec::Pcap(path) => workers(pcap(path, number, Pace::RealTime)?, config),
        PortSpec::Memory(profile) => {
            workers(memory(profile.clone(), number, Pace::RealTime), config)
        }
        #[cfg(not(feature = "dpdk"))]
        PortSpec::Dpdk(device) => {
            let _ = eal;
            let problem = crate::config::value::NO_DPDK;
            return crate::error::refuse(format!("dpdk:{device}: {problem}"));
        }
        #[cfg(feature = "dpdk")]
        PortSpec::Dpdk(device) => workers(dpdk(device, eal, number)?, config),
    })
}

/// Number of interfaces of a run from which on they share programs: the kernel's verifier takes some
/// 0.2 s for those of each interface, and shared ones a little more time a packet.
pub(crate) const SHARING_INTERFACES: usize = 4;

fn on_interfaces(
    interfaces: &Interfaces,
    config: &RunConfig,
    handle: &SourceHandle,
) -> Result<(), CommandFailure> {
    // With several sources, the agent warns: it knows the interfaces of all of them.
    if handle.name.is_none() {
        warn_of_overlaps(&interfaces.names);
    }
    let places = interfaces.places();
    let pins = kept(interfaces)?;
    let adopted = || {
        pins.as_ref()
            .filter(|keep| keep.adopt)
            .and_then(|keep| xdp::kept_key(&keep.directory, &places))
    };
    let programs = handle.programs.as_deref();
    let random = || programs.map_or_else(HashKey::random, SharedPrograms::random_key);
    let key = config.secret.key(|| adopted().map_or_else(random, Ok))?;
    let are_many = interfaces.names.len() >= SHARING_INTERFACES;
    let options = xdp::Options {
        mode: interfaces.mode,
        slot_ns: config.slot_ns,
        sets: match programs {
            Some(programs) => Some(programs.sets.clone()),
            None => are_many.then(ProgramSets::default),
        },
        run: handle.identity(&config.outputs)?.run.to_string(),
        pins,
        ..xdp::Options::new(config.settings)
    };
    run_live(Xdp::at(places, options), key, config, handle)
}

/// Returns where programs and counts are stored for the next run. Without a BPF file system they
/// end with this run: an error if storing them was requested, otherwise only an entry in the log.
fn kept(interfaces: &Interfaces) -> Result<Option<Retention>, CommandFailure> {
    let Some(keep) = interfaces.keep.clone() else { return Ok(None) };
    match xdp::supported(&keep.directory) {
        Ok(()) => Ok(Some(keep)),
        Err(error) if interfaces.must_keep => Err(error.into()),
        Err(error) => {
            tracing::info!("if this process is killed, its counts end with it: {error}");
            Ok(None)
        }
    }
}

#[cfg(feature = "tofino")]
fn on_switch(
    switch: &SwitchConfig,
    config: &RunConfig,
    handle: &SourceHandle,
) -> Result<(), CommandFailure> {
    let mut options = switch_options(switch)?;
    options.watches = config.plan.options.alarm.is_some();
    options.slot_ns = config.slot_ns;
    let key = config.secret.key(HashKey::random)?;
    run_live(Tofino::connect(options, config.settings)?, key, config, handle)
}

/// Returns the options of the connection to a switch, and reads its certificates and key.
pub(crate) fn switch_options(switch: &SwitchConfig) -> Result<tofino::Options, CommandFailure> {
    let mut options = switch.options.clone();
    options.tls = switch.tls.as_ref().map(tls).transpose()?;
    Ok(options)
}

fn tls(files: &TlsFiles) -> Result<Tls, CommandFailure> {
    let TlsFiles { authority, identity, server_name } = files;
    let identity = identity.as_ref().map(|(certificate, key)| {
        Ok::<_, CommandFailure>((pem(certificate, CERTIFICATE)?, pem(key, KEY)?))
    });
    Ok(Tls {
        authority: pem(authority, CERTIFICATE)?,
        identity: identity.transpose()?,
        server_name: server_name.clone(),
    })
}

/// Reads a PEM file, which must contain such a section.
fn pem(path: &Path, part: &str) -> Result<String, CommandFailure> {
    if part == KEY {
        secrets::protect();
    }
    let bytes = files::read(path, MAX_SETTINGS_BYTES)
        .map_err(cannot(format_args!("read {}", path.display())))?;
    match String::from_utf8(bytes) {
        Ok(text)
            if text
                .lines()
                .any(|line| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(part)) =>
        {
            Ok(text)
        }
        _ => {
            let (kind, convert) =
                if part == KEY { ("pkey", "private key") } else { ("x509", "certificate") };
            let path = path.display();
            fail(format!(
                "{path} is not a {convert} in PEM format; if it is DER, convert it with `openssl {kind} -inform der -in {path}`"
            ))
        }
    }
}
