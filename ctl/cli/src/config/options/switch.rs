//! Options of a Tofino switch, and what they resolve to.

use super::Options;
use crate::config::value;
use crate::config::{SwitchConfig, TlsFiles};
use crate::error::{CommandFailure, refuse};
use clap::Args;
use flowgauge_dataplane::tofino;
use std::path::PathBuf;
use std::time::Duration;

/// Options of the connection to a switch.
#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct AccessOptions {
    /// Count on the Tofino switch with this BFRuntime server, often on port 50052; the switch runs
    /// p4/flowgauge.p4
    #[arg(long, value_name = "HOST:PORT", value_parser = value::address, help_heading = "Switch")]
    address: Option<String>,

    /// Name of the program on the switch [default: flowgauge]
    #[arg(long, value_name = "NAME", help_heading = "Switch")]
    program: Option<String>,

    /// Device of the switch [default: 0]
    #[arg(long, value_name = "N", help_heading = "Switch")]
    device: Option<u32>,

    /// Client number; must be unique among the clients of the switch [default: 1]
    #[arg(long, value_name = "N", help_heading = "Switch")]
    client: Option<u32>,

    /// Time limit of a call to the switch, such as a register copy [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = value::duration, help_heading = "Switch")]
    deadline: Option<Duration>,

    /// Use TLS, and trust switches with certificates of this authority (PEM) [default: no
    /// encryption]
    #[arg(long, value_name = "FILE", help_heading = "Switch")]
    tls_ca: Option<PathBuf>,

    /// Certificate of this client (PEM), for a switch that requires one
    #[arg(long, value_name = "FILE", help_heading = "Switch")]
    tls_cert: Option<PathBuf>,

    /// Private key of --tls-cert (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Switch")]
    tls_key: Option<PathBuf>,

    /// Name in the certificate of the switch [default: host of --address]
    #[arg(long, value_name = "NAME", help_heading = "Switch")]
    tls_name: Option<String>,
}

/// Options of the switch backend.
#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct Switch {
    #[command(flatten)]
    access: AccessOptions,

    /// Bring up a port of the switch: device port number, speed (1g to 400g) and error correction
    /// (none, fc, rs); comma-separated or repeated. Fails if the port exists with another speed or
    /// error correction
    #[arg(long, value_name = "PORT:SPEED[:FEC]", value_parser = value::switch_port, value_delimiter = ',', help_heading = "Switch")]
    switch_port: Vec<tofino::PortConfig>,

    /// Forward frames between two ports of the switch, in both directions; frames from other ports
    /// are counted and dropped
    #[arg(long, value_name = "PORT-PORT", value_parser = value::port_pair, value_delimiter = ',', help_heading = "Switch")]
    forward: Vec<(u32, u32)>,
}

impl AccessOptions {
    /// Resolves the connection to the switch, if an address was given.
    pub(crate) fn resolve(&self) -> Result<Option<SwitchConfig>, CommandFailure> {
        let Some(address) = &self.address else { return Ok(None) };
        let mut options = tofino::Options::new(address);
        options.program = self.program.clone().unwrap_or(options.program);
        options.device = self.device.unwrap_or(options.device);
        options.client = self.client.unwrap_or(options.client);
        options.deadline = self.deadline.unwrap_or(options.deadline);
        Ok(Some(SwitchConfig { options, tls: self.tls()? }))
    }

    fn tls(&self) -> Result<Option<TlsFiles>, CommandFailure> {
        let identity = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
            (None, None) => None,
            _ => return refuse("--tls-cert and --tls-key must be given together"),
        };
        match &self.tls_ca {
            Some(authority) => Ok(Some(TlsFiles {
                authority: authority.clone(),
                identity,
                server_name: self.tls_name.clone(),
            })),
            None if identity.is_some() || self.tls_name.is_some() => {
                refuse("the other --tls options require --tls-ca")
            }
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
    ) -> Result<SwitchConfig, CommandFailure> {
        let Some(mut switch) = self.access.resolve()? else {
            return refuse(
                "--backend tofino needs the address of a BFRuntime server; give it with --address HOST:PORT",
            );
        };
        if cfg!(not(feature = "tofino")) {
            return refuse(format!("--backend tofino: {}", value::not_built("tofino")));
        }
        if on_interface {
            return refuse(
                "-i and other interface options are not for --backend tofino; remove them",
            );
        }
        if has_port {
            return refuse(
                "--port is not for --backend tofino, which counts on the switch; remove it",
            );
        }
        if options.truth.unwrap_or_default() {
            return refuse(
                "--truth needs memory for every flow, which a switch does not have; remove it with --backend tofino",
            );
        }
        if let Some(nearest) = options.nearest_on_switch() {
            return refuse(format!(
                "a switch only supports certain times of --staggered; the nearest is --staggered {nearest:?}"
            ));
        }
        if options.workers.is_some() {
            return refuse(
                "--workers has no effect with --backend tofino, which counts on the switch; remove it",
            );
        }
        switch.options.ports.clone_from(&self.switch_port);
        switch.options.forward.clone_from(&self.forward);
        Ok(switch)
    }
}
