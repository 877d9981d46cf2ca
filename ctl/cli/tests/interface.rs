//! `flowgauge run -i` on veth devices, from the first packet to `detach`.

use crate::common;
use crate::common::served::ALL;
use crate::common::{
    Outcome, Running, Scratch, assert_has, command, execute, finish, flowgauge, number, of_kind,
    text,
};
use flowgauge_dataplane::xdp::{DIRECTORY, DeviceCounters};
use flowgauge_testing::hosts::connected;
use flowgauge_testing::{extent, kernel, on_veth, skip};
use flowgauge_traffic::kernel::Sender;
use flowgauge_traffic::veth::{self, RECEIVER, SENDER};
use flowgauge_traffic::{Generator, Profile, Sources};
use nix::mount::{MsFlags, mount, umount};
use nix::sys::signal::Signal;
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, DirEntry};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

/// Starts a run that prints JSON lines, without samples.
fn start(arguments: &str) -> Running {
    sampling(&format!("{arguments} --sample-every never"))
}

fn sampling(arguments: &str) -> Running {
    Running::with(&format!("run {arguments} --format json"))
}

/// Starts a run as [`start`], and reads its first record: packets count from there on, and not as
/// soon as the program is attached.
fn counting(arguments: &str) -> Running {
    let mut run = start(arguments);
    run.record();
    run
}

/// Ends a run with a signal and returns its remaining lines.
fn end(run: Running, signal: Signal) -> Vec<Value> {
    run.signal(signal);
    lines(&run.outcome().stdout)
}

/// Parses lines, without one that was truncated.
fn lines(text: &str) -> Vec<Value> {
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Packets by window. A window may be printed twice: by a run that was killed right after it, and
/// by the run that took over.
#[derive(Default)]
struct Windows {
    packets: BTreeMap<u64, u64>,
    /// Number of the next window, by window.
    next: BTreeMap<u64, u64>,
    /// Run that began each window.
    runs: BTreeMap<u64, String>,
}

impl Windows {
    fn add(&mut self, line: &Value) {
        if line["record"] == "window" {
            let (window, packets) = (number(line, "window"), number(line, "packets"));
            // On a busy machine a window may end when the following ones are over, which are then
            // merged into it.
            self.next.insert(window, line["last_window"].as_u64().unwrap_or(window) + 1);
            let is_adopted = line["adopted"].as_bool().unwrap_or_default();
            let run = if is_adopted { &line["counted_by"] } else { &line["run"] };
            let run = run.as_str().unwrap().to_owned();
            let first = self.runs.insert(window, run.clone());
            assert!(
                first.as_ref().is_none_or(|first| is_adopted && *first == run),
                "window {window}: {first:?} and {run}"
            );
            let earlier = self.packets.insert(window, packets);
            assert!(
                earlier.is_none_or(|earlier| earlier == packets),
                "window {window}: {earlier:?} and {packets}"
            );
        }
    }

    fn packets(&self) -> u64 {
        let expected = std::iter::once(0).chain(self.next.values().copied());
        assert!(
            self.packets.keys().copied().zip(expected).all(|(window, next)| window == next),
            "windows are missing: {:?}",
            self.next
        );
        self.packets.values().sum()
    }
}

/// Kills runs and adopts their state under traffic; every packet is in a window of one of them.
/// `batch` sends some packets and returns their number.
fn kill_and_adopt(arguments: &str, mut batch: impl FnMut() -> u64 + Send + 'static) {
    let mut windows = Windows::default();
    let arguments = format!("{arguments} --window 7ms --adopt");
    let mut run = start(&arguments);
    windows.add(&run.record());
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let traffic = thread::spawn(move || {
        let mut sent = 0;
        while !stopped.load(Ordering::Relaxed) {
            sent += batch();
        }
        sent
    });
    let kills = extent(6, 50);
    for round in 0..kills {
        for _ in 0..round % 5 + 1 {
            windows.add(&run.record());
        }
        end(run, Signal::SIGKILL).iter().for_each(|line| windows.add(line));
        run = start(&arguments);
    }
    windows.add(&run.record());
    stop.store(true, Ordering::Relaxed);
    let sent = traffic.join().unwrap();
    // Packets in flight are counted within one more window.
    windows.add(&run.record());
    end(run, Signal::SIGINT).iter().for_each(|line| windows.add(line));
    println!("{sent} sent; {} windows of {} runs", windows.packets.len(), kills + 1);
    assert_eq!(windows.packets(), sent);
    assert!(!Path::new(DIRECTORY).exists(), "a regular end leaves nothing behind");
}

fn datagrams() -> impl FnMut() -> u64 + Send {
    let socket = UdpSocket::bind((SENDER.1, 0)).unwrap();
    move || (0..100).map(|_| u64::from(socket.send_to(&[0; 18], (RECEIVER.1, 9)).is_ok())).sum()
}

#[test]
fn killing_the_controller_loses_no_packet() {
    on_veth(|| {
        let template = Generator::new(Profile::new(Sources::Unique)).template().to_vec();
        // A device drops what its peer cannot receive, as always while no native program runs; avoid
        // that here.
        let mut sender = None;
        kill_and_adopt("-i rx --xdp-mode native", move || {
            let sender =
                sender.get_or_insert_with(|| Sender::new(SENDER.0, &template, 1 << 20).unwrap());
            let arrived = || DeviceCounters::read(RECEIVER.0).unwrap().received;
            let before = arrived();
            sender.send(1 << 12).unwrap();
            arrived() - before
        });
    });
}

#[test]
fn killing_it_loses_none_in_generic_mode() {
    on_veth(|| kill_and_adopt("-i rx --xdp-mode skb", datagrams()));
    on_veth(|| kill_and_adopt("-i rx --xdp-mode tcx", datagrams()));
    on_veth(|| kill_and_adopt("-i rx --xdp-mode clsact", datagrams()));
}

#[test]
fn killing_it_loses_none_on_the_way_out() {
    on_veth(|| kill_and_adopt("-i tx --direction egress", datagrams()));
    on_veth(|| kill_and_adopt("-i tx --direction egress --xdp-mode clsact", datagrams()));
}

fn send(packets: u64) {
    common::send(RECEIVER.1, packets);
}

fn packets_of_totals(records: &[Value]) -> Vec<u64> {
    of_kind(records, "total").into_iter().map(|total| number(total, "packets")).collect()
}

#[test]
fn both_directions_and_all_together() {
    on_veth(|| {
        let options = "-i rx,tx --direction both --xdp-mode native --window 20ms";
        let mut run = start(&format!("{options} --measure cardinality,heavy"));
        let records = |run: &mut Running| -> Vec<Value> { (0..5).map(|_| run.record()).collect() };
        let first = records(&mut run);
        let places =
            first.iter().map(|it| ["interface", "direction", "hook"].map(|key| text(it, key)));
        let expected = [
            ["rx", "ingress", "native"],
            ["rx", "egress", "tcx"],
            ["tx", "ingress", "native"],
            ["tx", "egress", "tcx"],
            ["rx,tx", "both", "native,tcx"],
        ];
        assert_eq!(places.collect::<Vec<_>>(), expected);
        let is_known = |it: &Value| ["fused", "separate"].contains(&text(it, "form"));
        assert!(first.iter().all(is_known), "{first:?}");
        send(50);
        assert_eq!(packets_of_totals(&end(run, Signal::SIGTERM)), [50, 0, 0, 50, 100]);
    });
}

/// Hooks are attached one after the other; packets until the last one is belong to no window. The
/// sender notes the time of each packet.
#[test]
fn nothing_counts_before_the_first_window_begins() {
    on_veth(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let sender = thread::spawn(move || {
            let socket = UdpSocket::bind((SENDER.1, 0)).unwrap();
            let mut times = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                times.push(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64);
                socket.send_to(&[0; 18], (RECEIVER.1, 9)).unwrap();
            }
            times
        });
        let mut run = start("-i rx,tx --direction both --xdp-mode native --window 50ms");
        let first = run.record();
        end(run, Signal::SIGINT);
        stop.store(true, Ordering::Relaxed);
        let times = sender.join().unwrap();
        assert_eq!((&first["interface"], &first["direction"]), (&"rx".into(), &"ingress".into()));
        let time = |name: &str| first[name].as_u64().unwrap();
        let until = |end: u64| times.partition_point(|time| *time < end) as u64;
        let (before, sent) =
            (until(time("start_ns")), until(time("end_ns")) - until(time("start_ns")));
        let packets = time("packets");
        println!("{before} packets before the window, {sent} in it, {packets} counted");
        // This machine may be busy with other things when the run begins.
        assert!(before > 0 && packets <= sent + before / 4, "{packets} of {sent}, {before} before");
    });
}

/// A filter that compares VLAN tags counts with a warning where a device may remove them.
#[test]
fn tags_that_a_device_removes_are_warned_of() {
    on_veth(|| {
        let complaints = |options: &str| counting(&format!("{options} --window 10ms")).end().stderr;
        for seen in ["-i rx --xdp-mode native --match tcp", "-i rx --match vlan"] {
            assert!(!complaints(seen).contains("rx-vlan-offload"), "{seen}");
        }
        for unseen in
            ["-i rx --xdp-mode native --match vlan", "--port af_xdp:rx,from-host --match vlan"]
        {
            assert_has(&complaints(unseen), &[": VLAN tags that the device removes"]);
        }
    });
}

/// The link holds the program, and the array of follow-up programs those of measurements.
#[test]
fn a_counting_point_keeps_no_program_open_however_much_it_measures() {
    on_veth(|| {
        for measurements in ["cardinality", ALL] {
            let options = "-i rx --direction ingress --xdp-mode native --window 20ms";
            let run = counting(&format!("{options} --measure {measurements}"));
            let open = fs::read_dir(format!("/proc/{}/fd", run.child.id())).unwrap();
            let targets = open.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
            let is_program = |target: &PathBuf| target.to_str() == Some("anon_inode:bpf-prog");
            assert_eq!(targets.filter(is_program).count(), 0, "{measurements}");
            end(run, Signal::SIGINT);
        }
    });
}

/// A look-up takes a descriptor. Without one it answers nothing.
#[test]
fn an_interface_that_cannot_be_looked_up_is_counted_on() {
    on_veth(|| {
        let mut run = counting("-i rx --direction ingress --xdp-mode native --window 20ms");
        let child = rustix::process::Pid::from_child(&run.child);
        let open_files = |limit| prlimit(Some(child), Resource::Nofile, limit).unwrap();
        // Standard input, output and error.
        let limit = Rlimit { current: Some(3), ..getrlimit(Resource::Nofile) };
        let before = open_files(limit);
        let mut messages = run.messages();
        let warned = thread::spawn(move || {
            messages.line_with("cannot check whether the interface is there");
            messages
        });
        while !warned.is_finished() {
            run.record();
        }
        let messages = warned.join().unwrap();
        assert_has(&messages.text, &["Too many open files", "`ulimit -n`"]);
        open_files(before);
        assert!(is_attached());
        send(10);
        run.record_that(|record| number(record, "packets") > 0);
        run.interrupt();
        let text = messages.outcome(run).stderr;
        assert!(!text.contains("is gone"), "{text}");
    });
}

#[test]
fn a_killed_run_is_named_and_can_be_ended() {
    on_veth(|| {
        end(counting("-i rx --window 10ms"), Signal::SIGKILL);
        start("-i rx").outcome().failed(1, &["--adopt"]);
        assert_eq!(detach(), "rx ingress: detached\n");
        assert_eq!(detach(), "no program was left attached\n");
        end(counting("-i rx --window 10ms"), Signal::SIGINT);
    });
}

/// Returns what `flowgauge detach` prints.
fn detach() -> String {
    execute("detach").stdout
}

/// Returns the ingress filters of an interface, as shown by `tc`.
fn filters() -> String {
    let filters =
        Command::new("tc").args(["filter", "show", "dev", "rx", "ingress"]).output().unwrap();
    String::from_utf8(filters.stdout).unwrap()
}

/// Unlike a link, a filter outlives its process.
#[test]
fn a_filter_that_a_killed_run_left_without_pins_is_named_replaced_and_removed() {
    on_veth(|| {
        // Delay samples end with the process, so that nothing is pinned.
        let scratch = Scratch::new("interface-left-filter");
        let options = |number: u32| {
            let samples = scratch.path(&number.to_string());
            let arguments = "-i rx --direction ingress --xdp-mode clsact --measure delay --window 10ms --delay-samples";
            format!("{arguments} {}", samples.display())
        };
        let killed = |number| {
            end(counting(&options(number)), Signal::SIGKILL);
            assert!(filters().contains("flowgauge+qdisc process"), "{}", filters());
        };
        killed(1);
        let status = execute("status").stdout;
        let left = "rx ingress: a filter is counting without a run, and cannot be adopted";
        assert!(status.starts_with(left), "{status}");
        let mut run = start(&options(2));
        assert_eq!(run.record()["hook"], "clsact");
        send(50);
        assert_eq!(filters().matches("direct-action").count(), 1, "{}", filters());
        // The filter of an active run must not be removed.
        assert_eq!(detach(), "no program was left attached\n");
        let outcome = run.end();
        let removed = "rx ingress: the filter that a killed flowgauge left is removed";
        assert_has(&outcome.stderr, &[removed]);
        assert_eq!(packets_of_totals(&lines(&outcome.stdout)).iter().sum::<u64>(), 50);
        assert_eq!(filters(), "");
        killed(3);
        assert_eq!(detach(), "rx ingress: detached\n");
        assert_eq!(filters(), "");
    });
}

#[test]
fn virtual_interfaces_are_counted_in_the_stack_without_a_question() {
    on_veth(|| {
        veth::ip("link add link rx name mac0 type macvlan mode bridge").unwrap();
        veth::ip("link set mac0 up").unwrap();
        for (interface, more) in [("mac0", ""), ("rx", ", whose peer native XDP would slow down")] {
            let [usual, verbose] = ["", " -v"].map(|option| {
                let mut run = start(&format!("-i {interface} --window 10ms{option}"));
                let window = run.record();
                assert_eq!(["interface", "hook"].map(|key| text(&window, key)), [interface, "tcx"]);
                run.end().stderr
            });
            let line = format!(
                "{interface} ingress: counting on the TCX hook: it is a virtual device{more}"
            );
            assert!(usual.is_empty() && verbose.contains(&line), "{usual}{verbose}");
        }
    });
}

/// Whether `ip` shows a program, and whether anything is pinned.
fn left_behind() -> (bool, bool) {
    let links = Command::new("ip").args(["-details", "link", "show"]).output().unwrap();
    (String::from_utf8_lossy(&links.stdout).contains("prog/xdp"), Path::new(DIRECTORY).exists())
}

/// Checks that a run fails with one line, prints nothing and leaves nothing behind.
fn refused(run: &mut Command, expected: &str) {
    let outcome = finish(run);
    assert_eq!((outcome.stdout.as_str(), left_behind()), ("", (false, false)), "{outcome:?}");
    outcome.failed(1, &[expected]);
}

#[test]
fn refusals_are_one_line_and_leave_nothing_behind() {
    on_veth(|| {
        for (options, expected) in [
            ("-i nowhere", "nowhere: there is no such interface"),
            ("-i nowhere,nowhere2 --direction both", "nowhere: there is no such interface"),
            ("-i lo --xdp-mode native", "--xdp-mode skb"),
            ("-i rx --xdp-mode offload", "its card does not run XDP programs"),
            ("-i rx --pins /dev/shm", "mount -t bpf"),
        ] {
            refused(&mut command(&format!("run {options}")), expected);
        }
        match flowgauge().uid(65534).gid(65534).args(["run", "-i", "rx"]).output() {
            Ok(_) => refused(
                flowgauge().uid(65534).gid(65534).args(["run", "-i", "rx"]),
                "it takes root, or the capabilities",
            ),
            Err(error) => skip(format_args!("a binary that others may run ({error})")),
        }
    });
}

/// Runs without these capabilities; reports a skipped test if nothing can.
#[track_caller]
fn without(capabilities: &str, options: &str) -> Option<Outcome> {
    let line = format!("exec \"$0\" run {options}");
    let mut run = Command::new("capsh");
    run.arg(format!("--drop={capabilities}"));
    run.args(["--", "-c", &line, env!("CARGO_BIN_EXE_flowgauge")]);
    match run.env_remove("RUST_LOG").env("FLOWGAUGE_STATUS_DIR", "").output() {
        Ok(output) => Some(output.into()),
        Err(error) => {
            skip(format_args!("capsh ({error})"));
            None
        }
    }
}

/// The verifier's log of dozens of lines would not explain what is missing.
#[test]
fn a_missing_capability_is_told_in_one_line() {
    on_veth(|| {
        let Some(outcome) = without("cap_perfmon,cap_sys_admin", "-i rx") else { return };
        outcome.failed(1, &["CAP_PERFMON"]);
        assert_eq!(left_behind(), (false, false));
    });
}

/// The counting points share a table, whatever the process may do.
#[test]
fn delays_at_several_interfaces_take_no_further_capability() {
    on_veth(|| {
        let options =
            "-i rx,tx --direction both --measure delay,reorder --window 50ms --duration 50ms";
        let Some(outcome) = without("cap_sys_admin", options) else { return };
        outcome.ended(0);
        assert_eq!(left_behind(), (false, false));
    });
}

/// Endless restarts as by a service manager.
#[test]
fn a_run_that_is_started_again_begins_anew_on_an_interface_made_anew() {
    on_veth(|| {
        end(counting("-i rx --adopt --window 10ms"), Signal::SIGKILL);
        veth::ip("link del dev rx").unwrap();
        veth::pair(SENDER, RECEIVER).unwrap();
        let run = counting("-i rx --adopt --window 10ms");
        send(7);
        let outcome = run.end().ended_with(0, &["was re-created"]);
        assert_eq!(lines(&outcome.stdout).last().unwrap()["packets"], 7);
        assert_eq!(left_behind(), (false, false));
    });
}

fn is_attached() -> bool {
    let attached = |place: DirEntry| place.path().join("link").exists();
    fs::read_dir(DIRECTORY).is_ok_and(|places| places.flatten().any(attached))
}

/// The interface is removed: counts are printed, and the service manager is notified.
#[test]
fn a_run_whose_interface_is_deleted_ends_with_what_it_counted() {
    on_veth(|| {
        let run = counting("-i rx --window 50ms");
        send(7);
        veth::ip("link del dev rx").unwrap();
        let outcome = run.outcome().ended(1);
        let reason =
            "exit code 1, because results are incomplete: rx ingress: the interface is gone";
        assert_has(outcome.stderr.lines().last().unwrap(), &[reason]);
        let lines = lines(&outcome.stdout);
        let total = lines.last().unwrap();
        assert_eq!((&total["packets"], &total["complete"]), (&Value::from(7), &Value::from(false)));
    });
}

/// A program that was detached and put back is marked in its window, and is no failure.
#[test]
fn a_run_that_recovered_from_a_fault_ends_with_0() {
    for names in ["rx", "r*"] {
        on_veth(move || {
            let mut run = start(&format!("-i {names} --xdp-mode native --window 20ms"));
            let until_complete = |run: &mut Running, is_complete: bool| {
                run.record_that(|record| record["complete"] == is_complete);
            };
            // The first window is short.
            until_complete(&mut run, true);
            let places = fs::read_dir(DIRECTORY).unwrap().flatten();
            let links = places.map(|place| place.path().join("link"));
            let links: Vec<PathBuf> = links.filter(|link| link.exists()).collect();
            let [link] = &links[..] else { panic!("{links:?}") };
            kernel::detach(link);
            until_complete(&mut run, false);
            until_complete(&mut run, true);
            let said = run.end().ended(0).stderr;
            assert_has(&said, &["its program was not attached"]);
            assert!(!said.contains("exit code"), "{said}");
        });
    }
}

#[test]
fn a_program_of_others_is_left_alone() {
    on_veth(|| {
        let first = counting("-i rx --xdp-mode native --window 10ms");
        let second = execute("run -i rx --xdp-mode native --pins /sys/fs/bpf/elsewhere");
        assert_has(&second.stderr, &["another XDP program is attached"]);
        assert!(!Path::new("/sys/fs/bpf/elsewhere").exists());
        send(9);
        let lines = end(first, Signal::SIGINT);
        assert_eq!(lines.last().unwrap()["packets"], 9, "the first counts on");
        assert_eq!(left_behind(), (false, false));
    });
}

/// Restart as by a service manager.
#[test]
fn an_interface_is_free_as_soon_as_a_run_has_ended() {
    on_veth(|| {
        for _ in 0..extent(4, 20) {
            end(counting("-i rx,tx --xdp-mode native --window 5ms"), Signal::SIGTERM);
            assert_eq!(left_behind(), (false, false));
        }
    });
}

/// A terminal and `timeout` may send a signal twice; the second one must not end the process with
/// its program attached.
#[test]
fn signals_that_come_twice_leave_nothing_behind() {
    on_veth(|| {
        for signal in [Signal::SIGINT, Signal::SIGTERM] {
            for _ in 0..extent(2, 5) {
                let run = counting("-i rx --xdp-mode native --window 5ms");
                send(7);
                run.signal(signal);
                let lines = end(run, signal);
                assert_eq!(
                    lines.last().map(|total| (&total["record"], &total["packets"])),
                    Some((&"total".into(), &7.into()))
                );
                assert_eq!(left_behind(), (false, false));
            }
        }
    });
}

#[test]
fn a_run_whose_reader_is_gone_leaves_nothing_behind() {
    on_veth(|| {
        // A run with a pattern otherwise waits for more interfaces.
        for interfaces in ["rx", "*x"] {
            let mut run = counting(&format!("-i {interfaces} --xdp-mode native --window 5ms"));
            run.stdout = None;
            let complaint = run.outcome().ended(1).stderr;
            let failure = "error: standard output was closed by its reader; the run has ended";
            assert_eq!(complaint.lines().last(), Some(failure), "{complaint}");
            assert_eq!(left_behind(), (false, false));
        }
    });
}

/// Type information comes with the programs, and pins are only needed for --adopt.
#[test]
fn kernels_without_type_information_and_bpf_file_system_will_do() {
    on_veth(|| {
        let none: Option<&str> = None;
        mount(Some("none"), "/sys/kernel/btf", Some("tmpfs"), MsFlags::empty(), none).unwrap();
        umount("/sys/fs/bpf").unwrap();
        let run = counting("-i rx --xdp-mode native --window 10ms");
        send(5);
        assert_eq!(end(run, Signal::SIGINT).last().unwrap()["packets"], 5);
        assert!(!left_behind().0);
    });
}

/// A container may have no sysfs. With too few CPUs in a map, packets would not be counted.
#[test]
fn a_machine_that_does_not_say_how_many_cpus_it_has_is_refused() {
    on_veth(|| {
        let none = None::<&str>;
        mount(Some("none"), "/sys/devices/system/cpu", Some("tmpfs"), MsFlags::empty(), none)
            .unwrap();
        refused(&mut command("run -i rx"), "mount sysfs at /sys");
    });
}

/// systemd units have it read-only (`ProtectKernelTunables=`), and users with the three
/// capabilities may not write to it.
#[test]
fn a_bpf_file_system_that_is_read_only_will_do() {
    on_veth(|| {
        let (none, read_only) =
            (None::<&str>, MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY);
        mount(none, "/sys/fs/bpf", none, read_only, none).unwrap();
        let run = counting("-i rx --xdp-mode native --window 10ms");
        send(5);
        assert_eq!(end(run, Signal::SIGINT).last().unwrap()["packets"], 5);
        assert!(!left_behind().0);
        refused(
            &mut command("run -i rx --adopt"),
            "this user may not write to /sys/fs/bpf: Read-only file system",
        );
        let report = execute("doctor --backend xdp").stdout;
        assert_has(&report, &["not asked for: bpffs not usable (only for --adopt and --leave)"]);
    });
}

/// TCP passes data on in super-packets, each of which is one request.
#[test]
fn delays_of_data_in_super_packets_are_marked() {
    const BYTES: usize = 1 << 20;
    connected(
        |_| true,
        |far, _| {
            let options = "-i rx --direction both --xdp-mode tcx --window 20ms --measure delay";
            let delays = "--delay tcp-handshake,tcp-data --delay-slots 16384 --delay-admit 1";
            let mut run = start(&format!("{options} {delays}"));
            let mut lines = vec![run.record()];
            let listener = far.run(|| TcpListener::bind((SENDER.1, 0)).unwrap());
            let port = listener.local_addr().unwrap().port();
            let received = far.start_with(move || {
                let (mut connection, _) = listener.accept().unwrap();
                connection.read_to_end(&mut Vec::new()).unwrap()
            });
            let mut connection = TcpStream::connect((SENDER.1, port)).unwrap();
            connection.write_all(&vec![7; BYTES]).unwrap();
            drop(connection);
            assert_eq!(received.recv().unwrap(), BYTES);
            lines.extend(end(run, Signal::SIGINT));
            let mut marked = 0;
            for line in lines.iter().filter(|line| line["record"] == "window") {
                let has_merged = line["merged"].as_u64().is_some_and(|merged| merged > 0);
                for delay in line["delay"].as_array().unwrap() {
                    let is_measured = !delay["raw"]["p50"].is_null();
                    let is_marked = delay["merged"] == true;
                    assert_eq!(is_marked, has_merged && is_measured && delay["kind"] == "tcp-data");
                    marked += u32::from(is_marked);
                }
            }
            assert!(marked > 0, "{lines:?}");
        },
    );
}

#[test]
fn staggered_registers_count_on_an_interface() {
    on_veth(|| {
        let mut run = sampling("-i rx --staggered 1m --adopt --sample-every 10ms");
        // Packets count from the first sample on at the latest, and not as soon as the program is
        // attached.
        run.record();
        send(20);
        end(run, Signal::SIGKILL);
        let outcome = start("-i rx --staggered 1m --adopt --duration 1ms").outcome();
        let lines = lines(&outcome.stdout);
        assert_eq!(lines.last().expect(&outcome.stderr)["packets"], 20);
    });
}
