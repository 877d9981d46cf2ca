//! `flowgauge run --backend tofino`: count on a switch.

use crate::error::Failure;
use crate::measure::measure_live;
use crate::options::Options;
use crate::value::{self, PortPair};
use clap::Args;
use flowgauge_dataplane::Tofino;
use flowgauge_dataplane::tofino::{self, Tls};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Which switch, and the way to it.
#[derive(Args, Default)]
#[group(skip)]
pub(crate) struct Access {
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

    /// Talk TLS to the switch, whose certificate must come from this authority (PEM) [default: no encryption]
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
#[derive(Args, Default)]
#[group(skip)]
pub(crate) struct Switch {
    #[command(flatten)]
    access: Access,

    /// Bring up a port of the switch: its device number, its speed (1g to 400g) and its error correction (none, fc, rs); several
    /// with commas. A port that is there with another speed or error correction is left alone, and refused
    #[arg(long, value_name = "PORT:SPEED[:FEC]", value_parser = value::switch_port, value_delimiter = ',', help_heading = "Switch")]
    switch_port: Vec<tofino::Port>,

    /// Forward frames between two ports of the switch, both ways; frames from other ports are counted and dropped
    #[arg(long, value_name = "PORT-PORT", value_parser = value::port_pair, value_delimiter = ',', help_heading = "Switch")]
    forward: Vec<PortPair>,
}

impl Access {
    /// The switch that was named, if one was.
    pub(crate) fn options(&self) -> Result<Option<tofino::Options>, Failure> {
        let Some(address) = &self.address else { return Ok(None) };
        let mut switch = tofino::Options::new(address);
        switch.tls = self.tls()?;
        switch.device = self.device.unwrap_or(switch.device);
        switch.client = self.client.unwrap_or(switch.client);
        switch.deadline = self.deadline.unwrap_or(switch.deadline);
        if let Some(program) = &self.program {
            switch.program.clone_from(program);
        }
        Ok(Some(switch))
    }

    fn tls(&self) -> Result<Option<Tls>, Failure> {
        let usage = |problem: &str| Err(Failure::Usage(problem.to_owned()));
        let identity = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return usage("--tls-cert and --tls-key go together"),
        };
        let Some(authority) = &self.tls_ca else {
            return match identity.is_some() || self.tls_name.is_some() {
                true => usage("without --tls-ca nothing is encrypted, and other --tls options are of no use"),
                false => Ok(None),
            };
        };
        let identity =
            identity.map(|(certificate, key)| Ok::<_, Failure>((pem(certificate, CERTIFICATE)?, pem(key, KEY)?))).transpose()?;
        Ok(Some(Tls { authority: pem(authority, CERTIFICATE)?, identity, server_name: self.tls_name.clone() }))
    }
}

impl Switch {
    /// Connects to a switch and counts there.
    pub(crate) fn run(self, on_interface: bool, has_port: bool, options: &Options) -> Result<(), Failure> {
        let usage = |problem: &str| Err(Failure::Usage(problem.to_owned()));
        let Some(mut switch) = self.access.options()? else {
            return usage("--backend tofino counts on a switch; name its BFRuntime server with --address HOST:PORT");
        };
        if on_interface {
            return usage("-i and the options that go with it are for the kernel of this machine, and not for --backend tofino");
        }
        if has_port {
            return usage("--backend tofino counts what comes to the switch; leave out --port");
        }
        if options.counts_truth() {
            return usage("--truth needs memory for every flow, which a switch has not; leave it out with --backend tofino");
        }
        if let Some(nearest) = options.nearest_on_switch() {
            return usage(&format!(
                "on a switch --staggered takes a power of two of nanoseconds; the nearest is --staggered {nearest:?}"
            ));
        }
        if options.workers.is_some() {
            return usage("--workers is of no use with --backend tofino: the switch counts");
        }
        switch.ports = self.switch_port.clone();
        switch.forward = self.forward.iter().map(|PortPair(one, other)| (*one, *other)).collect();
        switch.watches = options.watches();
        switch.slot_ns = options.slot_ns();
        measure_live(Tofino::connect(switch, options.settings())?, options)
    }
}

/// What a line that begins a part of a PEM file ends with.
const CERTIFICATE: &str = "CERTIFICATE-----";
const KEY: &str = "PRIVATE KEY-----";

fn pem(path: &Path, part: &str) -> Result<String, Failure> {
    let failed = |problem: String| Err(Failure::Failed(problem));
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => return failed(format!("cannot read {}: {error}", path.display())),
    };
    match String::from_utf8(bytes) {
        Ok(text) if text.lines().any(|line| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(part)) => Ok(text),
        _ => {
            let (kind, convert) = if part == KEY { ("pkey", "private key") } else { ("x509", "certificate") };
            let path = path.display();
            failed(format!("{path} is no {convert} in PEM; if it is DER, convert it with `openssl {kind} -inform der -in {path}`"))
        }
    }
}
