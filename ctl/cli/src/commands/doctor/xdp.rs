//! Checks of the xdp backend.

use super::interface::InterfaceReport;
use super::machine::{Machine, listed, size};
use super::report::{Check, CheckStatus};
use crate::config::options::Options;
use crate::config::options::measurement::chosen::Measurements;
use crate::config::{CountingPart, Traffic};
use flowgauge_core::kernel::MemoryLayout;
use flowgauge_core::{HashMode, Link, MeasurementKind, Settings};
use flowgauge_ctl::output::counted;
use flowgauge_dataplane::xdp::{Loaded, Trial};
use flowgauge_dataplane::{Dataplane, Direction, Error, Tables, Xdp, xdp};
use rustix::thread::{MembarrierCommand, membarrier_query};
use std::path::Path;

/// First kernels with memory-mapped array maps, with XDP links that end with their process, and
/// with TCX.
const MAPPED_ARRAYS: Release = Release(5, 5);
const XDP_LINKS: Release = Release(5, 9);
const TCX: Release = Release(6, 6);
/// First kernel with CAP_BPF and CAP_PERFMON instead of CAP_SYS_ADMIN.
const CAP_BPF_EXISTS: Release = Release(5, 8);
/// First kernel that charges maps to the memory cgroup instead of to RLIMIT_MEMLOCK.
const MEMORY_CGROUP: Release = Release(5, 11);

const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Largest MTU for which a packet, its headroom and `skb_shared_info` fit into one page, as drivers
/// require unless the program accepts fragments.
const LARGEST_MTU_IN_A_PAGE: u32 = 3498;

/// Major and minor version of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Release(u32, u32);

impl Release {
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(|character: char| !character.is_ascii_digit());
        Some(Release(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }
}

/// Returns the checks that do not depend on an interface.
pub(super) fn checks(machine: &Machine) -> Vec<Check> {
    let trial = machine.live.then(trial);
    let runs = matches!(trial, Some(Ok(())));
    let name = machine.text("proc/sys/kernel/osrelease");
    let release = name.as_deref().and_then(Release::parse);
    let mut checks = vec![kernel(name.as_deref(), release, runs).named("kernel")];
    checks.extend(trial.map(|trial| program(trial).named("program")));
    checks.extend([
        capabilities(machine, release, runs).named("capabilities"),
        unprivileged(machine).named("unprivileged_bpf"),
        jit(machine).named("jit"),
        btf(machine).named("btf"),
        bpffs(machine).named("bpffs"),
        membarrier(machine).named("membarrier"),
        memory(machine).named("memory"),
    ]);
    checks.extend(memlock(machine, release, runs).map(|check| check.named("memlock")));
    if runs {
        checks.extend(measurements().into_iter().map(|check| check.named("measurement")));
    }
    checks
}

/// Loads the programs of every measurement for each kind of hook. All are optional.
fn measurements() -> Vec<Check> {
    let all = MeasurementKind::ALL.to_vec();
    let options = Options { measure: Some(Measurements(all)), ..Options::default() };
    let traffic = Traffic { counter: CountingPart::Kernel, is_chosen: true, ..Traffic::GENERATED };
    let trials = match xdp::trials(&options.settings(HashMode::Keyed, &traffic)) {
        Ok(trials) => trials,
        Err(error) => {
            return vec![Check::warning(error.to_string(), "see the other lines").optional()];
        }
    };
    trials.iter().map(measurement).collect()
}

fn measurement(trial: &Trial) -> Check {
    let check = match &trial.outcome {
        Ok(Loaded { processed, stack_bytes, time }) => {
            let or_unknown = |number: &Option<u32>, of: &str| {
                number.map_or(format!("unknown {of}"), |number| format!("{number} {of}"))
            };
            let (processed, stack) = (
                or_unknown(processed, "instructions processed"),
                or_unknown(stack_bytes, "bytes of stack"),
            );
            Check::ok(format!("loads: {processed}, {stack}, {:.1} ms", time.as_secs_f64() * 1e3))
        }
        Err(problem) => Check::warning(
            problem.lines().next().unwrap_or_default(),
            "use -v for the end of the verifier's log",
        ),
    };
    check.optional().detail().about(&format!("{} {}", trial.hook, trial.counts))
}

/// Counts one frame with the real program, in the kernel and without an interface. This shows
/// whether the kernel has everything needed, which a version with a distribution's backports does
/// not.
fn trial() -> Result<(), String> {
    let settings = Settings::default();
    let mut xdp = Xdp::detached(Direction::Ingress, xdp::Options::new(settings));
    let problem = |error: Error| match error {
        Error::Kernel { problem, .. } => problem,
        other => other.to_string(),
    };
    xdp.install(&Tables::new(&settings, 1)).map_err(problem)?;
    xdp.injector().inject(&[0; 60]).map_err(problem)?;
    let packets = xdp.rotate().map_err(problem)?.bank.counters.packets();
    if packets == 1 {
        Ok(())
    } else {
        Err(format!(
            "the program counted {packets} packets instead of one; please report this as a bug"
        ))
    }
}

fn program(trial: Result<(), String>) -> Check {
    match trial {
        Ok(()) => {
            Check::ok("loads, passes the verifier and counts a frame (tested without an interface)")
        }
        Err(problem) => {
            tracing::debug!("{problem}");
            let first = problem.lines().next().unwrap_or_default();
            Check::no(first, "see the other lines; RUST_LOG=debug shows more")
        }
    }
}

fn kernel(name: Option<&str>, release: Option<Release>, runs: bool) -> Check {
    let (Some(name), Some(release)) = (name, release) else {
        return Check::warning("release unknown", "mount /proc; Linux 5.9 or later is needed");
    };
    if release < XDP_LINKS && !runs {
        let missing = match release {
            old if old < MAPPED_ARRAYS => "memory-mapped array maps (5.5) and XDP links (5.9)",
            _ => "XDP links (5.9)",
        };
        return Check::no(
            format!("{name}: too old, without {missing}"),
            "use Linux 5.9 or later, preferably 6.6",
        );
    }
    if release < XDP_LINKS {
        let found = format!("{name}: older than 5.9, but it runs the program");
        return Check::warning(
            found,
            "nothing to do if the program line is ok and the program can be attached",
        );
    }
    if release < TCX {
        let found = format!(
            "{name}: has memory-mapped array maps (5.5) and XDP links (5.9), but no TCX (6.6): clsact classifiers are used instead"
        );
        return Check::ok(found);
    }
    Check::ok(format!("{name}: has memory-mapped array maps (5.5), XDP links (5.9) and TCX (6.6)"))
}

fn capabilities(machine: &Machine, release: Option<Release>, runs: bool) -> Check {
    const ADVICE: &str =
        "run as root, or `setcap cap_bpf,cap_net_admin,cap_perfmon+ep` on the binary";
    let effective = machine
        .field("proc/self/status", "CapEff")
        .and_then(|mask| u64::from_str_radix(&mask, 16).ok());
    let Some(effective) = effective else {
        let advice = "mount /proc; CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON are needed";
        return Check::warning("cannot be read", advice);
    };
    let has = |capability: u32| effective >> capability & 1 == 1;
    let old = release.is_some_and(|release| release < CAP_BPF_EXISTS);
    let needed: &[(&str, bool)] = if old {
        &[("CAP_SYS_ADMIN", has(CAP_SYS_ADMIN)), ("CAP_NET_ADMIN", has(CAP_NET_ADMIN))]
    } else {
        let any = has(CAP_SYS_ADMIN);
        &[
            ("CAP_BPF", any || has(CAP_BPF)),
            ("CAP_NET_ADMIN", has(CAP_NET_ADMIN)),
            ("CAP_PERFMON", any || has(CAP_PERFMON)),
        ]
    };
    let named = |wanted: bool| {
        needed
            .iter()
            .filter(|(_, has)| *has == wanted)
            .map(|(name, _)| *name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let missing = named(false);
    if missing.is_empty() && !runs && in_user_namespace(machine) {
        let found = format!(
            "{} (effective), but only in a user namespace, which BPF does not accept",
            named(true)
        );
        Check::no(found, "run as root outside of it; a container must not be rootless")
    } else if missing.is_empty() {
        Check::ok(format!("{} (effective)", named(true)))
    } else if runs {
        Check::warning(format!("{missing} missing, but the kernel runs the program"), ADVICE)
    } else {
        let advice = if old { "run as root: this kernel has no CAP_BPF yet" } else { ADVICE };
        Check::no(format!("{missing} missing"), advice)
    }
}

/// Returns whether this process is in a user namespace. The initial namespace maps all users to
/// themselves.
fn in_user_namespace(machine: &Machine) -> bool {
    let map = machine.text("proc/self/uid_map");
    map.is_some_and(|map| {
        map.split_ascii_whitespace().collect::<Vec<_>>() != ["0", "0", "4294967295"]
    })
}

fn unprivileged(machine: &Machine) -> Check {
    let found = match machine.text("proc/sys/kernel/unprivileged_bpf_disabled").as_deref() {
        Some("0") => {
            "allowed by kernel.unprivileged_bpf_disabled, but not for XDP: capabilities are required"
        }
        Some(_) => "disabled (the default): capabilities are required",
        None => "unknown; capabilities are required in any case",
    };
    Check::ok(found)
}

fn jit(machine: &Machine) -> Check {
    let hardened = machine.text("proc/sys/net/core/bpf_jit_harden").as_deref() == Some("2");
    match machine.text("proc/sys/net/core/bpf_jit_enable").as_deref() {
        None => Check::ok("unknown (only visible in the initial network namespace); on by default"),
        Some("0") => Check::warning(
            "off: the program is interpreted, several times slower",
            "`sysctl net.core.bpf_jit_enable=1`",
        ),
        Some(_) if hardened => Check::warning(
            "on, hardened for all users, which costs time per packet",
            "`sysctl net.core.bpf_jit_harden=1` exempts privileged programs",
        ),
        Some(_) => Check::ok("on"),
    }
}

fn btf(machine: &Machine) -> Check {
    if machine.exists("sys/kernel/btf/vmlinux") {
        return Check::ok("the kernel describes its types at /sys/kernel/btf/vmlinux");
    }
    let found = "no /sys/kernel/btf/vmlinux; flowgauge does not need it";
    Check::warning(
        found,
        "for other tools: mount /sys, or use a kernel built with CONFIG_DEBUG_INFO_BTF",
    )
}

fn bpffs(machine: &Machine) -> Check {
    let mount = format!("`{}`, only needed for --adopt and --leave", xdp::MOUNT);
    let Some(mounts) = machine.text("proc/self/mounts") else {
        return Check::warning("mounts unknown", mount);
    };
    let bpf = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        let (place, kind, options) = (words.nth(1)?, words.next()?, words.next()?);
        (kind == "bpf").then_some((place, options))
    };
    let Some((place, options)) = mounts.lines().find_map(bpf) else {
        return Check::warning("not mounted; not needed for counting", mount)
            .not_asked("bpffs not mounted (only for --adopt and --leave)");
    };
    if machine.live
        && let Err(error) = xdp::supported(Path::new(xdp::DIRECTORY))
    {
        let advice =
            "--adopt and --leave require root here, or a unit with deploy/systemd/adopt.conf";
        return Check::warning(format!("{error}; not needed for counting"), advice)
            .not_asked("bpffs not usable (only for --adopt and --leave)");
    }
    // The kernel does not list its default mode, with which everybody may write.
    let mode = options
        .split(',')
        .find_map(|option| u32::from_str_radix(option.strip_prefix("mode=")?, 8).ok());
    if mode.is_none_or(|mode| mode & 0o022 != 0) {
        let found =
            format!("mounted at {place}, where every user may create files with the names of pins");
        return Check::warning(
            found,
            format!("`chmod 0700 {place}`, and mount it with -o mode=0700"),
        );
    }
    Check::ok(format!("mounted at {place}"))
}

fn membarrier(machine: &Machine) -> Check {
    let isolated =
        machine.text("sys/devices/system/cpu/nohz_full").filter(|cpus| listed(cpus).is_some());
    let offered = if machine.live {
        membarrier_query().contains_command(MembarrierCommand::Global)
    } else {
        isolated.is_none()
    };
    if offered {
        return Check::ok("available: rotations can wait for packets in flight");
    }
    let why = isolated.map_or_else(String::new, |cpus| {
        format!(", because CPUs {cpus} run without ticks (nohz_full)")
    });
    if !machine.live || xdp::wait() == Some(xdp::WaitMethod::MapOfMaps) {
        return Check::ok(format!(
            "not available{why}: rotations wait for packets in flight with a map of maps instead"
        ));
    }
    let advice = "grant CAP_BPF for a map of maps, or use a kernel built with CONFIG_MEMBARRIER; a container's seccomp profile must allow \
                  one of them";
    Check::no(format!("not available{why}, and a map of maps cannot be created"), advice)
}

/// Returns the number of possible CPUs, and of elements in per-CPU maps: one per number, gaps
/// included.
fn possible_cpus(machine: &Machine) -> Option<(usize, usize)> {
    let ranges = machine.text("sys/devices/system/cpu/possible")?;
    listed(&ranges).zip(xdp::above_all(&ranges))
}

/// Returns the bytes of the maps of an interface: with distinct flows alone, and with all
/// measurements at their largest sizes.
fn maps(elements: usize) -> [u64; 2] {
    [Some(&Settings::DEFAULT), None].map(|settings| MemoryLayout::memory(settings, elements) as u64)
}

fn memory(machine: &Machine) -> Check {
    let cpus = possible_cpus(machine);
    let [bytes, most] = maps(cpus.map_or(1, |(_, elements)| elements));
    let (bytes_of, most_of) = (size(bytes), size(most));
    let Some((cpus, _)) = cpus else {
        let found =
            format!("number of possible CPUs unknown; maps take {bytes_of} to {most_of} per CPU");
        return Check::warning(found, "mount /sys");
    };
    let found = format!(
        "maps take {bytes_of} for {} (at most {most_of})",
        counted(cpus as u64, "possible CPU")
    );
    match machine.available_memory() {
        None => Check::ok(found),
        Some(available) if bytes > available => {
            let advice = "free memory, or boot with possible_cpus= set to the number of CPUs";
            Check::no(format!("{found}, but only {} are available", size(available)), advice)
        }
        Some(available) => Check::ok(format!("{found}, {} are available", size(available))),
    }
}

/// Returns `None` for kernels that charge maps to the memory cgroup, where nothing is locked.
fn memlock(machine: &Machine, release: Option<Release>, runs: bool) -> Option<Check> {
    if release.is_none_or(|release| release >= MEMORY_CGROUP) {
        return None;
    }
    let limits = machine.text("proc/self/limits")?;
    let soft = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory")?.split_ascii_whitespace().next())?;
    let (_, elements) = possible_cpus(machine)?;
    let [_, bytes] = maps(elements);
    let enough = soft.parse().map_or(soft == "unlimited", |limit: u64| limit >= bytes);
    let readable = soft.parse().map_or_else(|_| soft.to_owned(), size);
    Some(match enough || runs {
        true => Check::ok(format!("{readable} may be locked, the maps take {}", size(bytes))),
        false => {
            let found = format!(
                "{readable} may be locked, but the maps take {} (kernels before 5.11)",
                size(bytes)
            );
            Check::no(
                found,
                "`ulimit -l unlimited`, or LimitMEMLOCK=infinity in the service's unit",
            )
        }
    })
}

/// Checks an interface. `requested`: whether it was named, so that it must be ready.
pub(super) fn interface(interface: &InterfaceReport, requested: bool) -> Check {
    let driver = interface.driver.as_deref().unwrap_or(if interface.is_loopback() {
        "loopback"
    } else {
        "driver unknown"
    });
    let state = interface.state.as_deref().unwrap_or("unknown");
    let mut found = format!("{driver}, {state}");
    if let (Some(rx), Some(tx)) = (interface.rx_queues, interface.tx_queues) {
        found += &format!(", {rx} rx and {}", counted(tx as u64, "tx queue"));
    }
    let name = &interface.name;
    let mut advice = Vec::new();
    let link = interface.hardware.map_or(Some(Link::Ethernet), xdp::link_of);
    match interface.has("basic") {
        _ if link.is_none() => {
            found += &format!("; unsupported link type {}", interface.hardware.unwrap_or_default())
        }
        _ if link == Some(Link::Ip) => {
            found += "; IP packets without a link header, no native XDP; counted by TCX (before Linux 6.6 clsact)";
        }
        Some(true) if interface.has("hw-offload") == Some(true) => {
            found += "; XDP native, skb, offload"
        }
        Some(true) => found += "; XDP native, skb",
        Some(false) => {
            found += "; XDP skb only, the driver has no native mode; counted by TCX (before Linux 6.6 clsact), which is slower";
        }
        None => {
            found +=
                "; XDP skb, and native if the driver supports it (reported by Linux 6.3 and later)";
        }
    }
    let has_native = link == Some(Link::Ethernet) && interface.has("basic") != Some(false);
    if interface.is_virtual && has_native {
        found += "; a virtual device, counted by TCX (before Linux 6.6 clsact)";
    } else if interface.merges_in_device && has_native {
        found += "; merges packets (rx-gro-hw or LRO), which native mode would turn off: counted by TCX (before Linux 6.6 clsact)";
    }
    let native = !interface.prefers_stack() && interface.has("basic") != Some(false);
    if let Some(mtu) = interface.mtu.filter(|mtu| native && *mtu > LARGEST_MTU_IN_A_PAGE) {
        found += &format!("; MTU {mtu}");
    }
    let large = interface.mtu.is_some_and(|mtu| native && mtu > LARGEST_MTU_IN_A_PAGE);
    // Drivers that deliver packets in fragments support any MTU.
    if large && interface.has("rx-sg") != Some(true) {
        advice.push(format!(
            "most drivers reject native mode above an MTU of about {LARGEST_MTU_IN_A_PAGE}; tcx, clsact and skb work with any MTU, and are slower"
        ));
    }
    let is_down = matches!(state, "down" | "lowerlayerdown" | "notpresent");
    if is_down {
        advice.push(format!("`ip link set dev {name} up`; if it is up, it has no carrier"));
    }
    if interface.driver.as_deref() == Some("veth") {
        found += "; native mode disables segmentation offload on its peer, which slows down TCP";
    }
    if interface.skb_merges {
        found += "; mode skb counts merged or unsegmented packets (GRO, TSO) as one (tcx and clsact do not)";
    }
    let mut status = if advice.is_empty() { CheckStatus::Ok } else { CheckStatus::Warning };
    if let Some(attached) = interface.program {
        found += &format!("; XDP program {} is attached ({})", attached.id, attached.mode);
        let removal = format!(
            "stop the program that attached it (`bpftool net`), or `ip link set dev {name} xdp off`"
        );
        let beside = if interface.prefers_stack() {
            format!(
                "`flowgauge run -i {name}` counts behind it, with TCX (before Linux 6.6 clsact)"
            )
        } else {
            format!(
                "`flowgauge run -i {name}` counts with TCX instead (before Linux 6.6 clsact), which is slower"
            )
        };
        advice.insert(0, format!("only one can be attached: {beside}; or {removal}"));
        status = CheckStatus::Warning;
    }
    if link.is_none() {
        advice.push("only Ethernet and IP without a link header are supported".to_owned());
        status = if requested { CheckStatus::No } else { CheckStatus::Warning };
    }
    let advice = (!advice.is_empty()).then(|| advice.join("; "));
    let check = Check::new(status, found, advice).named("interface").about(name);
    if is_down && !requested { check.not_asked(format!("{name} is {state}")) } else { check }
}

pub(super) fn no_interface() -> Check {
    let advice = "give the container an interface, or share the host's network";
    Check::warning("no interface but loopback", advice).named("interface")
}
