//! `flowgauge doctor`: whether this machine can run each backend, and if not, why.
//!
//! `mod.rs` has the options and selects what is checked. `machine` reads files of the kernel,
//! `interface` describes network interfaces, `xdp`, `poll` and `tofino` have the checks of each
//! backend, and `report` prints them.

mod interface;
pub(crate) mod machine;
mod poll;
mod report;
mod tofino;
mod xdp;

use crate::commands::TextFormat;
use crate::config::value;
use crate::error::{CommandFailure, fail, refuse};
use crate::output::print;
use clap::{Args, ValueEnum};
use interface::InterfaceReport;
use machine::Machine;
use report::{Check, DoctorReport, Group};
use std::path::PathBuf;

/// Check whether this machine can run each backend, and if not, why.
///
/// Each line is one check: 'ok', 'warning' (works with a limitation) or 'no', then what was found
/// and, below it, what to do. The worst comes first; the last line has what was not asked for, such
/// as DPDK. Nothing is changed: interfaces are only read, and the program of the xdp backend is
/// tested in the kernel without an interface.
///
/// The exit code is 0 if all requested backends can run, else 1. Requested are those given with
/// --backend, else xdp and poll; --address adds tofino, and an interface given with -i must be
/// ready for xdp. Optional parts of a backend, such as DPDK, do not affect it.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge doctor
  flowgauge doctor -i eth1 -i eth2
  flowgauge doctor --backend poll --format json
  flowgauge doctor --address switch.example:50052")]
pub(crate) struct Doctor {
    /// Check this network interface only; may be repeated [default: all but loopback]
    #[arg(short, long = "interface", value_name = "IFACE")]
    interfaces: Vec<String>,

    /// Check this backend only: xdp, poll, tofino; may be repeated [default: xdp and poll]
    #[arg(long = "backend", value_name = "NAME", hide_possible_values = true)]
    backends: Vec<Backend>,

    /// Check the BFRuntime server of a Tofino switch at this address, often on port 50052, for at
    /// most two seconds
    #[arg(long, value_name = "HOST:PORT", value_parser = value::address)]
    address: Option<String>,

    /// Output format: table, json (one object) [default: table]
    #[arg(long, value_name = "FORMAT", hide_possible_values = true)]
    format: Option<TextFormat>,

    /// Read /proc, /sys and /usr below this directory, such as a copy from another machine, and do
    /// not query this kernel
    #[arg(long, value_name = "DIR")]
    sysroot: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Backend {
    Xdp,
    Poll,
    Tofino,
}

impl Doctor {
    pub(crate) fn execute(self) -> Result<(), CommandFailure> {
        if self.address.is_none() && self.backends.contains(&Backend::Tofino) {
            return refuse("--backend tofino needs the switch's --address HOST:PORT");
        }
        let machine = match &self.sysroot {
            Some(root) if !root.is_dir() => {
                return fail(format!("no such directory: {}", root.display()));
            }
            Some(root) => Machine { root: root.clone(), live: false },
            None => Machine::this(),
        };
        let report = self.examine(&machine);
        print(|out| match self.format.unwrap_or_default() {
            TextFormat::Table => report.table(out),
            TextFormat::Json => report.json(out),
        })?;
        match report.not_runnable()[..] {
            [] => Ok(()),
            ref names => fail(format!(
                "cannot run on this machine: {}; see the lines marked 'no'",
                names.join(", ")
            )),
        }
    }

    fn examine(&self, machine: &Machine) -> DoctorReport {
        let interfaces = self.examined(interface::all(machine));
        let wanted = |backend| self.backends.is_empty() || self.backends.contains(&backend);
        let mut backends = Vec::new();
        if wanted(Backend::Xdp) {
            let mut checks = xdp::checks(machine);
            checks.extend(self.missing(&interfaces));
            checks.extend(
                interfaces
                    .iter()
                    .map(|interface| xdp::interface(interface, !self.interfaces.is_empty())),
            );
            if interfaces.is_empty() && self.interfaces.is_empty() {
                checks.push(xdp::no_interface());
            }
            backends.push(Group::requested("xdp", checks));
        }
        if wanted(Backend::Poll) {
            backends.push(Group::requested("poll", poll::checks(machine, &interfaces)));
        }
        match &self.address {
            Some(address) => backends.push(Group::requested("tofino", tofino::checks(address))),
            None if wanted(Backend::Tofino) => {
                backends.push(Group::not_requested("tofino", tofino::how_to_ask()))
            }
            None => {}
        }
        DoctorReport::new(backends, interfaces)
    }

    /// Returns the interfaces to check, in the order they were given.
    fn examined(&self, all: Vec<InterfaceReport>) -> Vec<InterfaceReport> {
        if self.interfaces.is_empty() {
            return all.into_iter().filter(|interface| !interface.is_loopback()).collect();
        }
        self.interfaces
            .iter()
            .filter_map(|name| all.iter().find(|interface| interface.name == *name).cloned())
            .collect()
    }

    fn missing<'a>(&'a self, found: &'a [InterfaceReport]) -> impl Iterator<Item = Check> + 'a {
        let missing = |name: &&String| !found.iter().any(|interface| interface.name == **name);
        self.interfaces.iter().filter(missing).map(|name| {
            Check::no(
                "no such interface",
                "list them with `ip link`; a container has its own interfaces",
            )
            .named("interface")
            .about(name)
        })
    }
}
