//! Output of `flowgauge doctor` for machines made of files, and for this one.

use crate::common::{Outcome, Scratch, assert_has, finish, flowgauge, list, numbers, run, text};
use flowgauge_core::Settings;
use flowgauge_dataplane::xdp::{Mode, Options, Xdp};
use flowgauge_dataplane::{CountingPoint, Dataplane, Tables};
use flowgauge_testing::wait::until;
use flowgauge_testing::{on_veth, skip};
use flowgauge_traffic::veth::ip;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use serde_json::Value;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Machine in files with everything as required.
struct Machine(Scratch);

const GIBIBYTE: &str =
    "MemTotal: 2097152 kB\nMemAvailable:    1048576 kB\nHugePages_Total:       0\n";

const RELEASE: &str = "proc/sys/kernel/osrelease";
const STATUS: &str = "proc/self/status";
const LIMITS: &str = "proc/self/limits";
const MOUNTS: &str = "proc/self/mounts";
const JIT: &str = "proc/sys/net/core/bpf_jit_enable";
const POSSIBLE_CPUS: &str = "sys/devices/system/cpu/possible";
const HUGEPAGES: &str = "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

impl Machine {
    fn new(test: &str) -> Self {
        let machine = Machine(Scratch::new(test));
        for (path, content) in [
            (RELEASE, "6.12.3-1-amd64\n"),
            ("proc/sys/kernel/unprivileged_bpf_disabled", "2\n"),
            (JIT, "1\n"),
            ("proc/sys/net/core/bpf_jit_harden", "0\n"),
            (STATUS, "Name:\tflowgauge\nCapEff:\t000001ffffffffff\n"),
            (
                LIMITS,
                "Limit  Soft Limit  Hard Limit  Units\nMax locked memory         65536   65536   bytes\n",
            ),
            (MOUNTS, "proc /proc proc rw 0 0\nbpf /sys/fs/bpf bpf rw,mode=700 0 0\n"),
            ("proc/meminfo", GIBIBYTE),
            ("proc/net/protocols", "protocol  size\nXDP       1088\nTCP 2304\n"),
            ("sys/kernel/btf/vmlinux", ""),
            (POSSIBLE_CPUS, "0-7\n"),
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("sys/devices/system/cpu/nohz_full", " (null)\n"),
            ("sys/devices/system/node/online", "0\n"),
            (HUGEPAGES, "512\n"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "500\n"),
            ("sys/class/net/bonding_masters", ""),
            ("sys/class/net/lo/operstate", "unknown\n"),
            ("sys/class/net/eth1/operstate", "up\n"),
            ("sys/class/net/eth1/mtu", "1500\n"),
            ("sys/class/net/eth1/queues/rx-0/rps_cpus", ""),
            ("sys/class/net/eth1/queues/rx-1/rps_cpus", ""),
            ("sys/class/net/eth1/queues/tx-0/xps_cpus", ""),
            ("sys/class/net/eth1/device/numa_node", "1\n"),
            ("usr/lib/x86_64-linux-gnu/pkgconfig/libdpdk.pc", "Name: DPDK\nVersion: 22.11.7\n"),
        ] {
            machine.write(path, content);
        }
        let driver = machine.0.path("sys/class/net/eth1/device/driver");
        symlink("../../../bus/pci/drivers/mlx5_core", driver).unwrap();
        machine
    }

    /// Returns a container without /proc and /sys.
    fn bare(test: &str) -> Self {
        let machine = Machine(Scratch::new(test));
        fs::create_dir_all(machine.0.path("")).unwrap();
        machine
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.0.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn with(self, path: &str, content: &str) -> Self {
        self.write(path, content);
        self
    }

    fn without(self, path: &str) -> Self {
        fs::remove_file(self.0.path(path)).unwrap();
        self
    }

    fn doctor(&self, options: &str) -> Outcome {
        let mut command = flowgauge();
        command.args(["doctor", "--sysroot"]).arg(self.0.path(""));
        finish(command.args(options.split_whitespace()))
    }

    /// Returns the JSON object, as [`report`].
    #[track_caller]
    fn report(&self, options: &str) -> Value {
        report(&self.doctor(&format!("--format json {options}")))
    }

    /// Returns the check with this name, after verifying that the exit code matches the verdicts.
    #[track_caller]
    fn says(&self, check: &str) -> CheckResult {
        find(&self.report(""), check)
    }
}

struct CheckResult(Value);

impl CheckResult {
    #[track_caller]
    fn is(self, status: &str, found: &str, advice: &str) {
        assert_eq!(text(&self.0, "status"), status, "{}", self.0);
        assert!(self.found().contains(found), "{}", self.0);
        assert!(self.0["advice"].as_str().unwrap_or_default().contains(advice), "{}", self.0);
    }

    #[track_caller]
    fn found(&self) -> &str {
        text(&self.0, "found")
    }
}

/// Returns the JSON object of this machine.
#[track_caller]
fn report_here(options: &[&str]) -> Value {
    report(&run(["doctor", "--format", "json"].iter().chain(options)))
}

/// Returns the JSON object, after verifying its structure and the exit code.
#[track_caller]
fn report(outcome: &Outcome) -> Value {
    let report: Value = serde_json::from_str(&outcome.stdout)
        .unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
    let mut all = true;
    for group in list(&report, "backends") {
        let checks = list(group, "checks");
        assert!(!checks.is_empty(), "{group}");
        let mut can_run = true;
        for check in checks {
            let [name, status, found] = ["check", "status", "found"].map(|key| text(check, key));
            assert!(!name.contains(' ') && !found.is_empty() && !found.contains('\n'), "{check}");
            assert!(["ok", "warning", "no"].contains(&status), "{check}");
            assert!(status == "ok" || check["advice"].is_string(), "nothing to do: {check}");
            assert!(check.as_object().unwrap().contains_key("subject"), "{check}");
            can_run &= status != "no" || !check["required"].as_bool().unwrap();
        }
        let expected =
            if group["asked"].as_bool().unwrap() { Value::from(can_run) } else { Value::Null };
        assert_eq!(group["can_run"], expected, "{group}");
        all &= group["can_run"] != false;
    }
    assert_eq!(report["can_run"], all);
    assert_eq!(outcome.code, Some(i32::from(!all)), "{}", outcome.stderr);
    if all {
        assert_eq!(outcome.stderr, "");
    } else {
        let complaint = outcome.complaint();
        assert!(complaint.starts_with("error: cannot run on this machine: "), "{complaint}");
    }
    report
}

#[track_caller]
fn group<'a>(report: &'a Value, backend: &str) -> &'a Value {
    let mut groups = list(report, "backends").iter();
    groups
        .find(|group| group["backend"] == backend)
        .unwrap_or_else(|| panic!("{backend} in {report}"))
}

/// Whether XDP and poll can run.
#[track_caller]
fn can_run(report: &Value) -> [&Value; 2] {
    ["xdp", "poll"].map(|backend| &group(report, backend)["can_run"])
}

fn all_checks(report: &Value) -> impl Iterator<Item = &Value> {
    list(report, "backends").iter().flat_map(|group| list(group, "checks"))
}

/// Returns a check by its name, or by name and subject separated by a space.
#[track_caller]
fn find(report: &Value, name: &str) -> CheckResult {
    let title = |check: &Value| match check["subject"].as_str() {
        Some(subject) => format!("{} {subject}", text(check, "check")),
        None => text(check, "check").to_owned(),
    };
    let check = all_checks(report).find(|check| title(check) == name);
    CheckResult(check.unwrap_or_else(|| panic!("{name} in {report}")).clone())
}

#[test]
fn a_machine_that_has_everything_can_run_xdp_and_poll() {
    let machine = Machine::new("everything");
    let report = machine.report("");
    assert_eq!(can_run(&report), [true, true]);
    for check in list(group(&report, "xdp"), "checks") {
        assert_eq!(text(check, "status"), "ok", "{check}");
    }
    let [eth1] = list(&report, "interfaces") else { panic!("{report}") };
    let words = ["name", "driver", "state"].map(|key| text(eth1, key));
    assert_eq!(words, ["eth1", "mlx5_core", "up"]);
    assert_eq!(numbers(eth1, ["mtu", "rx_queues", "tx_queues", "numa_node"]), [1500, 2, 1, 1]);
    assert_eq!(["xdp_features", "program"].map(|key| &eth1[key]), [&Value::Null; 2]);
}

#[test]
fn the_table_has_the_worst_first_and_one_line_for_what_was_not_asked_for() {
    let machine = Machine::new("table").without("sys/kernel/btf/vmlinux");
    let table = machine.doctor("").quiet();
    let beginning = "xdp: can run\n  warning  btf               no /sys/kernel/btf/vmlinux; ";
    assert!(table.starts_with(beginning), "{table}");
    let parts =
        ["\n  ok       kernel            6.12.3-1-amd64: ", "\n\npoll: can run\n  ok       ports "];
    assert_has(&table, &parts);
    assert!(!table.contains("tofino"), "{table}");
    let report = machine.report("");
    let checks: Vec<&Value> = all_checks(&report).collect();
    // DPDK is ok in a build with it.
    let aside = |check: &&&Value| {
        ["switch", "dpdk"].contains(&text(check, "check")) && text(check, "status") != "ok"
    };
    let asides = checks.iter().filter(aside).count();
    let lines = |marks: &[&str]| {
        table.lines().filter(|line| marks.iter().any(|mark| line.starts_with(mark))).count()
    };
    assert_eq!(lines(&["  ok  ", "  warning  ", "  no  "]), checks.len() - asides, "{table}");
    let advised = checks.iter().filter(|check| check["advice"].is_string()).count();
    let advice = table.lines().filter(|line| line.trim_start().starts_with("-> ")).count();
    assert_eq!(advice, advised - asides, "{table}");

    let machine = machine
        .with(RELEASE, "5.4.0-150-generic")
        .with(MOUNTS, "proc /proc proc rw 0 0\n")
        .with(HUGEPAGES, "0")
        .with("sys/class/net/eth1/operstate", "down");
    let table = machine.doctor("").stdout;
    let order = ["xdp: cannot run\n  no ", "  warning  btf ", "  ok       capabilities "];
    let places = order.map(|part| table.find(part).unwrap_or_else(|| panic!("{part}: {table}")));
    assert!(places.is_sorted(), "{table}");
    let last = table.lines().last().unwrap();
    for part in [
        "not asked for: bpffs not mounted",
        "eth1 is down",
        "no hugepages reserved",
        "no switch (--address HOST:PORT)",
    ] {
        assert!(last.contains(part) && table.matches(part).count() == 1, "{part}: {table}");
    }
    let asked = machine.doctor("-i eth1").stdout;
    let is_asked = asked.contains("  warning  interface eth1 ");
    assert!(is_asked && !asked.contains("eth1 is down"), "{asked}");
}

/// As root: the kernel loads the programs of all measurements.
#[test]
fn programs_that_load_are_one_line() {
    let table = run(["doctor", "--backend", "xdp"]).stdout;
    let lines = table.lines().filter(|line| line.starts_with("  ok       measurement")).count();
    assert!(lines <= 1, "{table}");
}

#[test]
fn kernels_are_told_by_what_they_lack() {
    let machine = Machine::new("kernels");
    for (release, status, found) in [
        ("5.4.0-150-generic", "no", "too old"),
        ("4.19.0", "no", "too old"),
        ("5.5.0", "no", "too old, without XDP links (5.9)"),
        ("5.10.0-30-amd64", "ok", "no TCX (6.6): clsact classifiers are used instead"),
        ("6.6", "ok", "TCX (6.6)"),
        ("7.0-rc1", "ok", "TCX (6.6)"),
        ("nonsense", "warning", "release unknown"),
    ] {
        machine.write(RELEASE, release);
        machine.says("kernel").is(status, found, "");
    }
}

#[test]
fn an_old_kernel_fails_xdp_but_not_poll() {
    let machine = Machine::new("old").with(RELEASE, "5.4.0-150-generic");
    let outcome = machine.doctor("--format json");
    let report = report(&outcome);
    assert_eq!(can_run(&report), [false, true]);
    let expected = "error: cannot run on this machine: xdp; see the lines marked 'no'";
    assert_eq!(outcome.complaint(), expected);
    machine.doctor("--backend poll").quiet();
}

#[test]
fn capabilities_are_named_one_by_one() {
    let machine = Machine::new("capabilities");
    let bit = |number: u32| 1_u64 << number;
    for (effective, status, found) in [
        (0, "no", "CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON missing"),
        (bit(39) | bit(38), "no", "CAP_NET_ADMIN missing"),
        (bit(39) | bit(12), "no", "CAP_PERFMON missing"),
        (bit(39) | bit(38) | bit(12), "ok", "CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON (effective)"),
        (bit(21) | bit(12), "ok", "(effective)"),
    ] {
        machine.write(STATUS, &format!("Name:\tflowgauge\nCapEff:\t{effective:016x}\n"));
        machine.says("capabilities").is(status, found, if status == "no" { "setcap" } else { "" });
    }
    let machine = machine.with("proc/self/uid_map", "         0       1000          1\n");
    machine.says("capabilities").is("no", "user namespace", "rootless");
    let machine = machine.with("proc/self/uid_map", "         0          0 4294967295\n");
    machine.says("capabilities").is("ok", "(effective)", "");
    // CAP_BPF does not exist before 5.8.
    let old = machine
        .with(RELEASE, "5.7.0")
        .with(STATUS, &format!("CapEff:\t{:016x}\n", bit(39) | bit(12)));
    old.says("capabilities").is("no", "CAP_SYS_ADMIN missing", "as root");
}

#[test]
fn what_counting_does_without_is_a_warning() {
    let machine = Machine::new("warnings").without("sys/kernel/btf/vmlinux");
    let machine = machine.with(MOUNTS, "proc /proc proc rw 0 0\n").with(JIT, "0\n");
    machine.says("btf").is("warning", "no /sys/kernel/btf/vmlinux", "CONFIG_DEBUG_INFO_BTF");
    machine.says("bpffs").is("warning", "not mounted", "mount -t bpf -o mode=0700 bpf /sys/fs/bpf");
    machine.says("jit").is("warning", "off", "sysctl net.core.bpf_jit_enable=1");
    machine.doctor("").quiet();
    let hardened = machine.with(JIT, "1").with("proc/sys/net/core/bpf_jit_harden", "2");
    hardened.says("jit").is("warning", "hardened", "bpf_jit_harden=1");
}

#[test]
fn locked_memory_matters_before_5_11_only() {
    let machine = Machine::new("memlock").with(RELEASE, "5.10.0");
    let found = "64 KiB may be locked, but the maps take";
    machine.says("memlock").is("no", found, "LimitMEMLOCK=infinity");
    for (limit, found) in
        [("unlimited", "unlimited may be locked"), ("268435456", "256.0 MiB may be locked")]
    {
        let line = format!("Max locked memory         {limit:<20} {limit:<20} bytes\n");
        machine.write(LIMITS, &line);
        machine.says("memlock").is("ok", found, "");
    }
    let newer = machine.with(RELEASE, "5.11.0");
    assert!(!newer.doctor("").quiet().contains("memlock"));
}

#[test]
fn maps_must_fit_into_memory() {
    let machine = Machine::new("memory");
    machine.says("memory").is("ok", "for 8 possible CPUs (at most ", "");
    // One element per number, whether a CPU with that number exists or not.
    let of = |ranges: &str| {
        let memory = Machine::new("elements").with(POSSIBLE_CPUS, ranges).says("memory");
        memory.found().split(" for ").next().map(str::to_owned)
    };
    assert_eq!([of("0-3,8-11\n"), of("4-7\n")], [of("0-11\n"), of("0-7\n")]);
    assert_ne!(of("0-11\n"), of("0-7\n"));
    let machine = machine.with("proc/meminfo", "MemAvailable: 16 kB\n");
    machine.says("memory").is("no", "but only 16 KiB are available", "possible_cpus=");
}

#[test]
fn a_bpf_file_system_that_is_open_to_all_is_a_warning() {
    let mounted = |options: &str| {
        Machine::new("bpffs").with(MOUNTS, &format!("bpf /sys/fs/bpf bpf {options} 0 0\n"))
    };
    mounted("rw,relatime,mode=700").says("bpffs").is("ok", "mounted at /sys/fs/bpf", "");
    for options in ["rw,relatime", "rw,mode=777", "rw,mode=720"] {
        mounted(options).says("bpffs").is("warning", "every user", "chmod 0700 /sys/fs/bpf");
    }
}

#[test]
fn processors_without_ticks_are_waited_for_by_a_map_of_maps() {
    let machine = Machine::new("nohz").with("sys/devices/system/cpu/nohz_full", "2-3\n");
    let found = "CPUs 2-3 run without ticks (nohz_full): rotations wait for packets in flight with a map of maps";
    machine.says("membarrier").is("ok", found, "");
    machine.doctor("").quiet();
}

#[test]
fn interfaces_are_looked_at_by_name() {
    let machine = Machine::new("names")
        .with("sys/class/net/eth1/mtu", "9000")
        .with("sys/class/net/eth1/operstate", "down");
    for (found, advice) in [
        ("mlx5_core, down, 2 rx and 1 tx queue; ", "ip link set dev eth1 up"),
        ("MTU 9000", "tcx, clsact and skb work with any MTU"),
    ] {
        machine.says("interface eth1").is("warning", found, advice);
    }
    let outcome = machine.doctor("-i eth1 -i eth9 --format json");
    let report = report(&outcome);
    find(&report, "interface eth9").is("no", "no such interface", "ip link");
    assert_eq!(list(&report, "interfaces").len(), 1);
    assert!(outcome.complaint().contains("xdp"));
    assert!(machine.doctor("-i lo").quiet().contains("interface lo      loopback, unknown; "));
}

#[test]
fn devices_without_hardware_are_counted_in_the_stack() {
    let machine = Machine::new("virtual").with("sys/class/net/br0/operstate", "up");
    machine.says("interface br0").is("ok", "a virtual device, counted by TCX", "");
    let card = machine.says("interface eth1");
    assert!(!card.found().contains("virtual"), "{}", card.0);
    let report = machine.report("-i br0 -i eth1");
    for (name, expected) in [("br0", true), ("eth1", false)] {
        let is_virtual = |it: &Value| text(it, "name") == name && it["is_virtual"] == expected;
        assert!(list(&report, "interfaces").iter().any(is_virtual), "{name}: {report}");
    }
}

#[test]
fn cores_and_nodes_are_counted() {
    let machine = Machine::new("cores");
    machine.says("cores").is("ok", "4 cores", "");
    machine.says("numa").is("ok", "1 node", "");
    let machine = machine
        .with("sys/devices/system/cpu/online", "0")
        .with("sys/devices/system/node/online", "0-1");
    machine.says("cores").is("warning", "1 core", "--workers");
    machine.says("numa").is("warning", "2 nodes, eth1 on node 1", "numactl");
}

#[test]
fn hugepages_are_shown_by_size() {
    let machine = Machine::new("hugepages");
    machine.says("hugepages").is("ok", "512 of 2.0 MiB (500 free)", "");
    let machine = machine.with(HUGEPAGES, "0");
    machine.says("hugepages").is("warning", "none reserved", "nr_hugepages");
    machine.doctor("").quiet();
}

#[test]
fn dpdk_is_found_where_pkg_config_finds_it() {
    let machine = Machine::new("dpdk");
    let found = |machine: &Machine, part: &str| assert_has(machine.says("dpdk").found(), &[part]);
    found(&machine, "libdpdk 22.11.7 is installed");
    let machine = machine.without("usr/lib/x86_64-linux-gnu/pkgconfig/libdpdk.pc");
    found(&machine, "libdpdk is not installed");
    let machine = machine.with("usr/local/lib64/pkgconfig/libdpdk.pc", "Version: 24.11.0");
    found(&machine, "libdpdk 24.11.0 is installed");
    assert_eq!(machine.says("dpdk").0["required"], false);
}

#[test]
fn af_xdp_takes_a_kernel_that_has_it() {
    let machine = Machine::new("af-xdp");
    assert_has(machine.says("af_xdp").found(), &["the kernel supports AF_XDP sockets"]);
    let machine = machine.with("proc/net/protocols", "protocol  size\nTCP 2304\n");
    machine.says("af_xdp").is("no", "does not support AF_XDP sockets", "CONFIG_XDP_SOCKETS");
    machine.doctor("").quiet();
}

#[test]
fn where_nothing_can_be_read_lines_say_so() {
    let report = Machine::bare("bare").report("");
    assert_eq!(report["interfaces"], serde_json::json!([]));
    for (check, found) in [
        ("kernel", "release unknown"),
        ("capabilities", "cannot be read"),
        ("bpffs", "mounts unknown"),
        ("memory", "unknown"),
        ("interface", "no interface but loopback"),
        ("cores", "number unknown"),
    ] {
        find(&report, check).is("warning", found, "");
    }
}

#[test]
fn a_directory_that_is_not_there_is_an_error() {
    let outcome = run(["doctor", "--sysroot", "/does/not/exist"]).ended(1);
    let (printed, complaint) = (outcome.stdout.as_str(), outcome.complaint());
    assert_eq!((printed, complaint), ("", "error: no such directory: /does/not/exist"));
}

#[test]
fn a_switch_is_looked_for_when_its_address_is_given() {
    let machine = Machine::new("switch");
    let said = |address: &str| {
        let report = machine.report(&format!("--address {address}"));
        assert_eq!(group(&report, "tofino")["asked"], true);
        find(&report, &format!("switch {address}"))
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    said(&address.to_string()).is("ok", "reachable at 127.0.0.1", "");
    said(&format!("localhost:{}", address.port())).is("ok", "reachable at", "");

    // A port that is in use but does not listen.
    let silent = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&silent, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = SocketAddr::try_from(getsockname(&silent).unwrap()).unwrap();
    said(&address.to_string()).is("no", "refused", "bf_switchd");

    machine.says("switch").is("warning", "not checked", "--address");
    let poll_only = machine.report("--backend poll");
    assert_eq!((list(&poll_only, "backends").len(), &poll_only["can_run"]), (1, &true.into()));
}

#[test]
fn a_name_that_does_not_exist_is_not_resolved() {
    // RFC 6761 reserves this domain.
    let address = "switch.invalid:50052";
    let report = Machine::new("resolver").report(&format!("--backend tofino --address {address}"));
    let check = find(&report, &format!("switch {address}"));
    check.is("no", "cannot resolve the name", "getent");
}

#[test]
fn this_machine_gets_an_answer_of_the_same_shape() {
    let report = report_here(&[]);
    let xdp =
        "kernel program capabilities unprivileged_bpf jit btf bpffs membarrier memory".split(' ');
    let poll = "ports cores af_xdp dpdk hugepages".split(' ');
    for (backend, check) in xdp.map(|check| ("xdp", check)).chain(poll.map(|check| ("poll", check)))
    {
        let mut checks = list(group(&report, backend), "checks").iter();
        assert!(checks.any(|it| it["check"] == check), "{backend} {check}: {report}");
    }
    assert_eq!(group(&report, "poll")["can_run"], true);
}

#[test]
fn users_without_rights_are_told_which_ones_they_lack() {
    const NOBODY: u32 = 65534;
    let outcome: Outcome =
        match flowgauge().args(["doctor", "--format", "json"]).uid(NOBODY).gid(NOBODY).output() {
            Ok(output) => output.into(),
            Err(error) => {
                return skip(format_args!("root, and a binary that others may run ({error})"));
            }
        };
    let report = report(&outcome);
    assert_eq!(can_run(&report), [false, true]);
    find(&report, "capabilities").is("no", "CAP_BPF", "setcap");
    find(&report, "program").is("no", "", "");
    find(&report, "af_xdp").is("no", "", "");
}

/// Returns the output of `ip` for interfaces, including programs.
fn interfaces() -> String {
    let output = Command::new("ip").args(["-details", "link", "show"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The documentation shows the output for two CPUs.
#[test]
fn the_documentation_tells_what_maps_take() {
    let machine = Machine::new("doctor-documentation").with(POSSIBLE_CPUS, "0-1\n");
    let check = machine.says("memory");
    let (taken, _) = check.found().split_once(',').unwrap();
    let page =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/doctor.md")).unwrap();
    assert!(page.contains(taken), "docs/doctor.md does not say '{taken}'");
}

#[test]
fn devices_without_a_link_header_are_told_with_the_mode_that_counts_there() {
    let body = || {
        if let Err(problem) = ip("tuntap add dev tun0 mode tun") {
            return skip(format_args!("tun devices ({problem})"));
        }
        let report = report_here(&["-i", "tun0"]);
        let found = "IP packets without a link header, no native XDP; counted by TCX";
        find(&report, "interface tun0").is("warning", found, "ip link set dev tun0 up");
        assert_eq!(report["interfaces"][0]["hardware"], 65534);
    };
    on_veth(body);
}

/// In a network namespace of the test, which ends with its thread.
#[test]
fn attached_programs_and_native_drivers_are_seen_and_nothing_is_changed() {
    let body = || {
        let settings = Settings::default();
        let options = Options { mode: Some(Mode::Native), ..Options::new(settings) };
        let mut xdp = Xdp::at(vec![CountingPoint::ingress("rx")], options);
        xdp.install(&Tables::new(&settings, 1)).unwrap();
        // The kernel needs a moment to see that both ends are up.
        until(|| interfaces().matches("state UP").count() == 2);
        let before = interfaces();
        let number =
            before.split("prog/xdp id ").nth(1).unwrap().split_whitespace().next().unwrap();

        let asked = report_here(&["-i", "rx"]);
        let is_found = |found: &str, advice: &str| {
            find(&asked, "interface rx").is("warning", found, advice);
        };
        let attached = format!("XDP program {number} is attached (native)");
        is_found(&attached, "only one can be attached");
        let interface = &asked["interfaces"][0];
        let words = ["name", "driver", "state"].map(|key| text(interface, key));
        assert_eq!(words, ["rx", "veth", "up"]);
        assert_eq!(interface["program"]["id"].to_string(), number);
        // Kernels before 6.3 do not report features.
        if let Some(features) = interface["xdp_features"].as_array() {
            let has = |feature: &str| features.contains(&feature.into());
            assert!(has("basic") && !has("xsk-zerocopy"), "{features:?}");
            is_found("XDP native, skb", "");
        }
        is_found(
            "a virtual device, counted by TCX (before Linux 6.6 clsact); native mode disables segmentation offload on its peer",
            "counts behind it, with TCX",
        );
        // An interface with a program is only a failure if it was requested.
        let all = report_here(&[]);
        let names: Vec<&str> =
            list(&all, "interfaces").iter().map(|interface| text(interface, "name")).collect();
        let listed = ["rx", "tx", "lo"].map(|name| names.contains(&name));
        assert_eq!(listed, [true, true, false], "{names:?}");
        find(&all, "interface rx").is("warning", "is attached", "");
        assert_eq!(interfaces(), before);

        drop(xdp);
        let free = report_here(&["-i", "rx"]);
        assert_eq!(free["interfaces"][0]["program"], Value::Null);
        assert_eq!(group(&free, "xdp")["can_run"], true);
    };
    on_veth(body);
}
