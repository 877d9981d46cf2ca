//! Checks of the poll backend and its ports.

use super::interface::InterfaceReport;
use super::machine::{Machine, listed, size};
use super::report::Check;
use crate::config::value;
use flowgauge_ctl::output::counted;
use flowgauge_dataplane::poll::port::try_af_xdp;
use flowgauge_dataplane::poll::{INSTRUCTIONS_VARIABLE, Instructions};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::env;
use std::path::PathBuf;
use std::thread::available_parallelism;

pub(super) fn checks(machine: &Machine, interfaces: &[InterfaceReport]) -> Vec<Check> {
    let ports = "memory (generated traffic) and pcap (capture files) have no requirements";
    let mut checks = vec![Check::ok(ports).named("ports"), cores(machine).named("cores")];
    if machine.live {
        checks.push(instructions().named("instructions"));
    }
    checks.extend(numa(machine, interfaces).map(|check| check.named("numa")));
    checks.extend([
        af_xdp(machine, interfaces).optional().named("af_xdp"),
        dpdk(machine).optional().named("dpdk"),
        hugepages(machine).named("hugepages"),
    ]);
    checks
}

fn cores(machine: &Machine) -> Check {
    let online = machine.text("sys/devices/system/cpu/online").and_then(|list| listed(&list));
    let usable = if machine.live { available_parallelism().ok().map(usize::from) } else { online };
    match (usable, online) {
        (None, _) => Check::warning("number unknown", "mount /sys"),
        (Some(1), _) => Check::warning(
            "1 core, shared by worker and controller",
            "keep --workers at 1; samples may be late",
        ),
        (Some(usable), Some(online)) if usable < online => Check::ok(format!(
            "{usable} of {online} cores are usable by this process (affinity or control group)"
        )),
        (Some(usable), _) => Check::ok(format!(
            "{}: up to {} next to the controller",
            counted(usable as u64, "core"),
            counted(usable as u64 - 1, "worker")
        )),
    }
}

fn instructions() -> Check {
    let available: Vec<&str> = Instructions::available().map(Instructions::name).collect();
    match Instructions::chosen() {
        Ok(chosen) => {
            let all = available.join(", ");
            Check::ok(format!(
                "{chosen}; this CPU supports {all}; override with {INSTRUCTIONS_VARIABLE} in the environment"
            ))
        }
        Err(problem) => Check::no(problem.to_string(), format!("`unset {INSTRUCTIONS_VARIABLE}`")),
    }
}

/// Returns `None` if the kernel does not report its NUMA nodes.
fn numa(machine: &Machine, interfaces: &[InterfaceReport]) -> Option<Check> {
    let nodes = machine.text("sys/devices/system/node/online").and_then(|list| listed(&list))?;
    let near = |interface: &InterfaceReport| {
        Some(format!("{} on node {}", interface.name, interface.numa_node?))
    };
    let near: Vec<String> = interfaces.iter().filter_map(near).collect();
    match (nodes, near.is_empty()) {
        (0 | 1, _) => Some(Check::ok("1 node")),
        (_, true) => Some(Check::ok(format!("{nodes} nodes"))),
        (_, false) => {
            let advice = "run the workers on the interface's node: `numactl --cpunodebind=N --membind=N flowgauge run …`";
            Some(Check::warning(format!("{nodes} nodes, {}", near.join(", ")), advice))
        }
    }
}

fn af_xdp(machine: &Machine, interfaces: &[InterfaceReport]) -> Check {
    let zero_copy: Vec<&str> = interfaces
        .iter()
        .filter(|interface| interface.has("xsk-zerocopy") == Some(true))
        .map(|one| one.name.as_str())
        .collect();
    let copies = match zero_copy[..] {
        [] if interfaces.iter().any(|interface| interface.xdp_features.is_some()) => {
            "no driver supports zero-copy, the kernel copies".to_owned()
        }
        [] => "zero-copy unknown".to_owned(),
        _ => format!("zero-copy on {}", zero_copy.join(", ")),
    };
    match sockets(machine) {
        Ok(found) => Check::ok(format!("{found}; {copies}; hugepages not needed")),
        Err((problem, advice)) => {
            Check::no(format!("{problem}; {copies}; hugepages not needed"), advice)
        }
    }
}

/// Returns what is known of AF_XDP sockets, or why they cannot be used and what to do.
fn sockets(machine: &Machine) -> Result<&'static str, (String, &'static str)> {
    let missing = || {
        let problem = "the kernel does not support AF_XDP sockets".to_owned();
        Err((problem, "use a kernel built with CONFIG_XDP_SOCKETS"))
    };
    if !machine.live {
        let Some(protocols) = machine.text("proc/net/protocols") else {
            return Ok("kernel support for AF_XDP sockets unknown");
        };
        let known =
            protocols.lines().any(|line| line.split_ascii_whitespace().next() == Some("XDP"));
        return if known { Ok("the kernel supports AF_XDP sockets") } else { missing() };
    }
    match socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None).map(drop) {
        Ok(()) => match try_af_xdp() {
            Ok(()) => Ok("sockets can be created, and the program loads"),
            Err(error) => {
                let instead = "use `flowgauge run -i IFACE`, which counts in the kernel";
                Err((error.to_string(), instead))
            }
        },
        Err(Errno::PERM | Errno::ACCESS) => {
            let problem = "no permission to create sockets".to_owned();
            Err((problem, "run as root, or with CAP_NET_RAW"))
        }
        Err(_) => missing(),
    }
}

fn dpdk(machine: &Machine) -> Check {
    const INSTALL: &str =
        "`apt-get install libdpdk-dev` (Debian, Ubuntu) or `dnf install dpdk-devel` (Fedora)";
    const BUILD: &str = "`cargo install --path ctl/cli --features dpdk`";
    let installed = dpdk_version(machine);
    let found = installed.as_ref().map_or_else(
        || "libdpdk is not installed".to_owned(),
        |version| format!("libdpdk {version} is installed"),
    );
    let is_offered = value::dpdk("0").is_ok();
    let check = match (is_offered, installed) {
        (true, Some(_)) => return Check::ok(found),
        (true, None) => Check::no(found, INSTALL),
        (false, Some(_)) => Check::no(format!("not in this build; {found}"), BUILD),
        (false, None) => {
            Check::no(format!("not in this build; {found}"), format!("{INSTALL}, then {BUILD}"))
        }
    };
    let missing = if is_offered { "not installed" } else { "not in this build" };
    check.not_asked(format!("DPDK {missing}"))
}

/// Returns the version that `pkg-config --modversion libdpdk` would print, without that program.
fn dpdk_version(machine: &Machine) -> Option<String> {
    let mut directories: Vec<PathBuf> = Vec::new();
    if machine.live {
        directories.extend(env::var_os("PKG_CONFIG_PATH").iter().flat_map(env::split_paths));
    }
    for prefix in ["usr/local", "usr"] {
        for library in ["lib", "lib64"] {
            directories.push(machine.path(&format!("{prefix}/{library}/pkgconfig")));
        }
        // One directory per architecture.
        let architectures = machine.names(&format!("{prefix}/lib"));
        directories.extend(
            architectures
                .iter()
                .map(|name| machine.path(&format!("{prefix}/lib/{name}/pkgconfig"))),
        );
    }
    let version = |directory: PathBuf| {
        let text = std::fs::read_to_string(directory.join("libdpdk.pc")).ok()?;
        text.lines()
            .find_map(|line| line.strip_prefix("Version:"))
            .map(|version| version.trim().to_owned())
    };
    directories.into_iter().find_map(version)
}

fn hugepages(machine: &Machine) -> Check {
    const RESERVE: &str = "for DPDK: `echo 512 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages`, or `run --eal '--no-huge --no-shconf -m 512'`";
    const DIRECTORY: &str = "sys/kernel/mm/hugepages";
    let count =
        |name: &str, file: &str| machine.number::<u64>(&format!("{DIRECTORY}/{name}/{file}"));
    let of_size = |name: &String| {
        let kibibytes: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let all = count(name, "nr_hugepages").filter(|all| *all > 0)?;
        Some(format!(
            "{all} of {} ({} free)",
            size(kibibytes * 1024),
            count(name, "free_hugepages").unwrap_or(0)
        ))
    };
    let mut reserved: Vec<String> = machine.names(DIRECTORY).iter().filter_map(of_size).collect();
    if reserved.is_empty()
        && let Some(all) = machine.field("proc/meminfo", "HugePages_Total").filter(|all| all != "0")
    {
        reserved.push(all);
    }
    match reserved[..] {
        [] => Check::warning("none reserved; only DPDK needs them", RESERVE)
            .optional()
            .not_asked("no hugepages reserved (only for DPDK)"),
        _ => Check::ok(reserved.join(", ")),
    }
}
