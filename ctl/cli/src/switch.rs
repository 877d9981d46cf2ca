//! `flowgauge run --backend tofino`: count on a switch.

use crate::error::Failure;
use crate::measure::measure_live;
use crate::options::Options;
use crate::value::PortPair;
use flowgauge_dataplane::Tofino;
use flowgauge_dataplane::tofino::{self, Tls};
use std::fs;
use std::path::Path;

/// Connects to a switch and counts there.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let usage = |problem: &str| Err(Failure::Usage(problem.to_owned()));
    let Some(address) = &options.address else {
        return usage("--backend tofino counts on a switch; name its BFRuntime server with --address HOST:PORT");
    };
    if !options.interface.is_empty() || options.asks_for_kernel() {
        return usage("-i and the options that go with it are for the kernel of this machine, and not for --backend tofino");
    }
    if options.port.is_some() {
        return usage("--backend tofino counts what comes to the switch; leave out --port");
    }
    if options.counts_truth() {
        return usage("--truth needs memory for every flow, which a switch has not; leave it out with --backend tofino");
    }
    if options.staggered.is_some() {
        return usage("--staggered needs registers that p4/flowgauge.p4 has not; use --window with --backend tofino");
    }
    if options.workers.is_some() {
        return usage("--workers is of no use with --backend tofino: the switch counts");
    }
    let mut switch = tofino::Options::new(address);
    switch.tls = tls(options)?;
    switch.ports = options.switch_port.clone();
    switch.forward = options.forward.iter().map(|PortPair(one, other)| (*one, *other)).collect();
    switch.device = options.device.unwrap_or(switch.device);
    if let Some(program) = &options.program {
        switch.program.clone_from(program);
    }
    measure_live(Tofino::connect(switch, options.settings())?, options)
}

fn tls(options: &Options) -> Result<Option<Tls>, Failure> {
    let usage = |problem: &str| Err(Failure::Usage(problem.to_owned()));
    let identity = match (&options.tls_cert, &options.tls_key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return usage("--tls-cert and --tls-key go together"),
    };
    let Some(authority) = &options.tls_ca else {
        return match identity.is_some() || options.tls_name.is_some() {
            true => usage("without --tls-ca nothing is encrypted, and other --tls options are of no use"),
            false => Ok(None),
        };
    };
    let identity = identity.map(|(certificate, key)| Ok::<_, Failure>((pem(certificate)?, pem(key)?))).transpose()?;
    Ok(Some(Tls { authority: pem(authority)?, identity, server_name: options.tls_name.clone() }))
}

fn pem(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| Failure::Failed(format!("cannot read {}: {error}", path.display())))
}
