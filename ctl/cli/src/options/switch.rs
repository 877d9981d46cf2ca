//! Options of a switch, and what they resolve to.

use super::Options;
use crate::error::Failure;
use crate::run_config::{self, Access, TlsFiles};
use crate::value::{self, PortPair};
use clap::Args;
use flowgauge_dataplane::tofino;
use std::path::PathBuf;
use std::time::Duration;

/// Which switch, and the way to it.
#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct AccessOptions {
    /// A Tofino switch's BFRuntime server, often on port 50052; the switch runs p4/flowgauge.p4
    #[arg(long, value_name = "HOST:PORT", value_parser = value::address, help_heading = "Switch")]
    address: Option<String>,

    /// The program's name on the switch [default: flowgauge]
    #[arg(long, value_name = "NAME", help_heading = "Switch")]
    program: Option<String>,

    /// The switch's device, if it has several [default: 0]
    #[arg(long, value_name = "N", help_heading = "Switch")]
    device: Option<u32>,

    /// This client's number; no two clients of a switch may have the same [default: 1]
    #[arg(long, value_name = "N", help_heading = "Switch")]
    client: Option<u32>,

    /// How long a call on the switch may take, such as copying a register [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = value::duration, help_heading = "Switch")]
    deadline: Option<Duration>,

    /// Talk TLS to the switch, whose certificate must come from this authority (PEM) [default: no
    /// encryption]
    #[arg(long, value_name = "FILE", help_heading = "Switch")]
    tls_ca: Option<PathBuf>,

    /// This client's certificate (PEM), for a switch that asks for one
    #[arg(long, value_name = "FILE", help_heading = "Switch")]
    tls_cert: Option<PathBuf>,

    /// The key of --tls-cert (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Switch")]
    tls_key: Option<PathBuf>,

    /// The name in the switch's certificate [default: that of --address]
    #[arg(long, value_name = "NAME", help_heading = "Switch")]
    tls_name: Option<String>,
}

/// Options that only a switch has a use for.
#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct Switch {
    #[command(flatten)]
    access: AccessOptions,

    /// Bring up a port of the switch: its device number, its speed (1g to 400g) and its error
    /// correction (none, fc, rs); several with commas. A port that is there with another speed or
    /// error correction is left alone, and refused
    #[arg(long, value_name = "PORT:SPEED[:FEC]", value_parser = value::switch_port, value_delimiter = ',', help_heading = "Switch")]
    switch_port: Vec<tofino::Port>,

    /// Forward frames between two ports of the switch, both ways; frames from other ports are
    /// counted and dropped
    #[arg(long, value_name = "PORT-PORT", value_parser = value::port_pair, value_delimiter = ',', help_heading = "Switch")]
    forward: Vec<PortPair>,
}

impl AccessOptions {
    /// The switch that was named, if one was.
    pub(crate) fn resolve(&self) -> Result<Option<Access>, Failure> {
        let Some(address) = &self.address else { return Ok(None) };
        let usual = tofino::Options::new(address);
        Ok(Some(Access {
            address: usual.address,
            program: self.program.clone().unwrap_or(usual.program),
            device: self.device.unwrap_or(usual.device),
            client: self.client.unwrap_or(usual.client),
            deadline: self.deadline.unwrap_or(usual.deadline),
            tls: self.tls()?,
        }))
    }

    fn tls(&self) -> Result<Option<TlsFiles>, Failure> {
        let usage = |problem: &str| Err(Failure::Usage(problem.to_owned()));
        let identity = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
            (None, None) => None,
            _ => return usage("--tls-cert and --tls-key go together"),
        };
        match &self.tls_ca {
            Some(authority) => Ok(Some(TlsFiles {
                authority: authority.clone(),
                identity,
                server_name: self.tls_name.clone(),
            })),
            None if identity.is_some() || self.tls_name.is_some() => usage(
                "without --tls-ca nothing is encrypted, and other --tls options are of no use",
            ),
            None => Ok(None),
        }
    }
}

impl Switch {
    pub(super) fn source(
        &self,
        on_interface: bool,
        has_port: bool,
        options: &Options,
    ) -> Result<run_config::Switch, Failure> {
        let usage = |problem: &str| Err(Failure::Usage(problem.to_owned()));
        let Some(access) = self.access.resolve()? else {
            return usage(
                "--backend tofino counts on a switch; name its BFRuntime server with --address HOST:PORT",
            );
        };
        if on_interface {
            return usage(
                "-i and the options that go with it are for the kernel of this machine, and not for --backend tofino",
            );
        }
        if has_port {
            return usage("--backend tofino counts what comes to the switch; leave out --port");
        }
        if options.truth.unwrap_or_default() {
            return usage(
                "--truth needs memory for every flow, which a switch has not; leave it out with --backend tofino",
            );
        }
        if let Some(nearest) = options.nearest_on_switch() {
            return usage(&format!(
                "on a switch --staggered takes a power of two of nanoseconds; the nearest is --staggered {nearest:?}"
            ));
        }
        if options.workers.is_some() {
            return usage("--workers is of no use with --backend tofino: the switch counts");
        }
        let forward = self.forward.iter().map(|PortPair(one, other)| (*one, *other)).collect();
        Ok(run_config::Switch { access, ports: self.switch_port.clone(), forward })
    }
}
