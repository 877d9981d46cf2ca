//! Faults of a host under a run, drawn at random, on every hook. A sender that counts exactly knows
//! what crossed the interface; windows that are `complete` have all of it. Each test prints a table
//! of its faults.

use crate::common::{Scratch, command, number};
use flowgauge_dataplane::xdp::DIRECTORY;
use flowgauge_testing::kernel::{self, Other};
use flowgauge_testing::namespace::OtherNamespace;
use flowgauge_testing::{extent, on_veth, skip};
use flowgauge_traffic::veth::{self, RECEIVER, SENDER, carrier, ip};
use nix::net::if_::if_nametoindex;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

/// Place where packets are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hook {
    Native,
    Skb,
    Tcx,
    Clsact,
    AfXdp,
}

impl Hook {
    const ALL: [Hook; 5] = [Hook::Native, Hook::Skb, Hook::Tcx, Hook::Clsact, Hook::AfXdp];

    fn source(self) -> String {
        let mode = match self {
            Hook::Native => "native",
            Hook::Skb => "skb",
            Hook::Tcx => "tcx",
            Hook::Clsact => "clsact",
            Hook::AfXdp => return "--port af_xdp:rx,frames=1024".to_owned(),
        };
        // A second interface keeps the run alive if the first one is gone.
        format!("-i rx,rx2 --xdp-mode {mode} --adopt")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The process is stopped and continued.
    Stopped,
    /// All CPUs are busy.
    Busy,
    /// The interface goes down and up.
    Down,
    /// The interface moves to another network namespace, and back.
    Moved,
    /// Another program takes the place of this one, or drops packets before it.
    Foreign,
    /// The MTU changes.
    Mtu,
    /// More packets arrive than rings have room for.
    Overflow,
    /// The process is killed, and started again.
    Killed,
    /// The configuration is reloaded.
    Reloaded,
    /// Offloads are switched.
    Offloads,
    /// The interface is removed and created.
    Recreated,
    /// The interface gets an address and another name.
    Renamed,
}

impl Fault {
    const ALL: [Fault; 12] = {
        use Fault::*;
        [
            Stopped, Busy, Down, Moved, Foreign, Mtu, Overflow, Killed, Reloaded, Offloads,
            Recreated, Renamed,
        ]
    };
}

/// Packets of a phase of the test: sent across the interface, and published.
#[derive(Clone, Copy, Debug, Default)]
struct Phase {
    sent: u64,
    counted: u64,
    lost: u64,
    unaccounted: i64,
    windows: u64,
    /// Windows that are not complete.
    incomplete: u64,
    /// The part of `counted` in windows that are complete.
    complete: u64,
}

impl Phase {
    /// Whether all windows are complete and packets are missing, or complete windows have packets
    /// that did not cross the interface.
    fn is_wrong(&self) -> bool {
        self.counted != self.sent && self.incomplete == 0 || self.complete > self.sent
    }

    /// Whether all windows are complete and have what was sent.
    fn is_whole(&self) -> bool {
        self.counted == self.sent && self.incomplete == 0
    }

    fn row(&self, hook: Hook, fault: &str, is_wrong: bool) -> String {
        let Phase { sent, counted, lost, unaccounted, windows, incomplete, .. } = *self;
        let (hook, should, is) = (format!("{hook:?}"), counted == sent, incomplete == 0);
        let remark = if is_wrong { "  WRONG" } else { "" };
        format!(
            "{hook:<8}{fault:<16}{sent:>8}{counted:>9}{lost:>7}{unaccounted:>13}{windows:>9}  {should:<6} {is}{remark}"
        )
    }
}

/// Windows after the last packet that are read: the devices' counters explain a packet a tenth of a
/// second later.
const LATER: usize = 4;
/// Attempts to start a run, and windows until one is complete.
const MAX_STARTS: u32 = 50;
const MAX_WINDOWS: u32 = 600;

/// A run under faults.
struct Victim {
    hook: Hook,
    scratch: Scratch,
    child: Child,
    lines: Receiver<Value>,
    socket: UdpSocket,
    /// Windows published by this run, and by those that it adopts.
    seen: BTreeSet<u64>,
    /// Whether the last window of the interface was complete.
    was_complete: bool,
    starts: u32,
    reloads: u32,
}

fn launch(hook: Hook, scratch: &Scratch) -> (Child, Receiver<Value>) {
    let complaints =
        File::options().append(true).create(true).open(scratch.path("complaints")).unwrap();
    let mut run = command(&format!("run --sample-every never {}", hook.source()));
    run.arg("--config").arg(scratch.path("run.toml"));
    let mut child = run.stdout(Stdio::piped()).stderr(complaints).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let (sender, lines) = channel();
    thread::spawn(move || {
        let mut line = String::new();
        // A killed run may leave a line without an end.
        while stdout.read_line(&mut line).unwrap() > 0 && line.ends_with('\n') {
            if sender.send(serde_json::from_str(&line).unwrap()).is_err() {
                return;
            }
            line.clear();
        }
    });
    (child, lines)
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

fn send(socket: &UdpSocket, packets: u64) -> u64 {
    let is_sent = |_: &u64| socket.send_to(&[0; 18], (RECEIVER.1, 9)).is_ok();
    (0..packets).filter(is_sent).count() as u64
}

fn rename(from: &str, to: &str) {
    ip(&format!("link set dev {from} down")).unwrap();
    ip(&format!("link set dev {from} name {to}")).unwrap();
    ip(&format!("link set dev {to} up")).unwrap();
    [to, SENDER.0].into_iter().for_each(|device| carrier(device).unwrap());
}

/// Returns the pin of the interface's link, if there is one.
fn pin() -> Option<PathBuf> {
    let prefix = format!("ingress-{}-", if_nametoindex(RECEIVER.0).unwrap());
    let places = fs::read_dir(DIRECTORY).ok()?.flatten();
    places
        .filter(|place| place.file_name().to_string_lossy().starts_with(&prefix))
        .map(|place| place.path().join("link"))
        .find(|link| link.exists())
}

impl Victim {
    fn start(hook: Hook, seed: u64) -> Self {
        let scratch = Scratch::new(&format!("faults-{hook:?}-{seed}"));
        scratch.write("run.toml", "format = 'json'\nwindow = '100ms'\n");
        let socket = UdpSocket::bind((SENDER.1, 0)).unwrap();
        let (child, lines) = launch(hook, &scratch);
        Victim {
            hook,
            scratch,
            child,
            lines,
            socket,
            seen: BTreeSet::new(),
            was_complete: false,
            starts: 0,
            reloads: 0,
        }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    fn send(&self, packets: u64) -> u64 {
        send(&self.socket, packets)
    }

    fn complaints(&self) -> String {
        fs::read_to_string(self.scratch.path("complaints")).unwrap()
    }

    /// Starts another run after one that has ended.
    fn launch(&mut self) {
        self.child.wait().unwrap();
        self.starts += 1;
        assert!(self.starts < MAX_STARTS, "{:?}: {}", self.hook, self.complaints());
        (self.child, self.lines) = launch(self.hook, &self.scratch);
    }

    /// Starts another run after one that ended by itself, and left nothing to adopt.
    fn restart(&mut self) {
        self.seen.clear();
        self.launch();
    }

    /// Adds the next window of the interface, and returns its start; `None` if the run has ended.
    fn read(&mut self, phase: &mut Phase) -> Option<u64> {
        loop {
            let line = self.lines.recv().ok()?;
            if line["record"] != "window" {
                continue;
            }
            let is_complete = line["complete"] == true;
            if line["interface"] != RECEIVER.0 {
                let is_sum = line["interface"] == "rx,rx2";
                assert!(self.was_complete || !is_complete || !is_sum, "{line}");
                continue;
            }
            self.was_complete = is_complete;
            // A run that was killed between publishing a window and noting it.
            if !self.seen.insert(number(&line, "window")) && line["adopted"] == true {
                continue;
            }
            let drops = line["drops"].as_object().unwrap().values();
            let lost: u64 = drops.map(|packets| packets.as_u64().unwrap()).sum();
            assert!(lost == 0 || !is_complete, "{line}");
            phase.counted += number(&line, "packets");
            phase.lost += lost;
            phase.unaccounted += line["ledger"]["unaccounted"].as_i64().unwrap_or(0);
            phase.windows += 1;
            phase.incomplete += u64::from(!is_complete);
            phase.complete += if is_complete { number(&line, "packets") } else { 0 };
            return Some(number(&line, "start_ns"));
        }
    }

    /// Reads windows until all that was sent is in one, or lost.
    fn settle(&mut self, phase: &mut Phase) {
        let (sent_by, mut later) = (now_ns(), 0);
        while later < LATER {
            match self.read(phase) {
                Some(start) => later += usize::from(start >= sent_by),
                None => self.restart(),
            }
        }
    }

    /// Reads windows until one is complete.
    fn recover(&mut self) {
        for _ in 0..MAX_WINDOWS {
            match self.read(&mut Phase::default()) {
                Some(_) if self.was_complete => return,
                Some(_) => {}
                None => self.restart(),
            }
        }
        panic!("{:?}: no window is complete again: {}", self.hook, self.complaints());
    }

    /// Injects a fault; adds what crossed the interface to the phase.
    fn inject(&mut self, fault: Fault, random: &mut ChaCha8Rng, phase: &mut Phase) {
        match fault {
            Fault::Stopped => {
                self.signal(Signal::SIGSTOP);
                phase.sent += self.send(random.random_range(1..1000));
                self.signal(Signal::SIGCONT);
            }
            Fault::Busy => phase.sent += self.send_busy(),
            Fault::Down => {
                ip("link set dev rx down").unwrap();
                ip("link set dev rx up").unwrap();
                [RECEIVER.0, SENDER.0].into_iter().for_each(|device| carrier(device).unwrap());
                phase.sent += self.send(500);
            }
            Fault::Moved => {
                let other = OtherNamespace::start();
                other.take(RECEIVER.0);
                // These packets cross the interface in the other namespace.
                self.send(random.random_range(1..3000));
                other.give_back(RECEIVER.0);
                phase.sent += self.send(500);
            }
            Fault::Foreign => phase.sent += self.send_beside_others(random.random()),
            Fault::Mtu => {
                for mtu in [1400, 1500] {
                    ip(&format!("link set dev rx mtu {mtu}")).unwrap();
                    phase.sent += self.send(300);
                }
            }
            Fault::Overflow => phase.sent += self.send_too_many(),
            Fault::Killed => {
                self.signal(Signal::SIGKILL);
                while self.read(phase).is_some() {}
                phase.sent += self.send(random.random_range(1..500));
                self.launch();
                // The rest of the phase restarts a run that cannot start.
                let _ = self.read(phase);
                phase.sent += self.send(200);
            }
            Fault::Reloaded => {
                self.reloads += 1;
                let alert = if self.reloads % 2 == 1 { "alert = ['packets > 1G']\n" } else { "" };
                let content = format!("format = 'json'\nwindow = '100ms'\n{alert}");
                // Replaced at once, so that no half is read.
                let next = self.scratch.write("next.toml", content);
                fs::rename(next, self.scratch.path("run.toml")).unwrap();
                phase.sent += self.send(300);
                self.signal(Signal::SIGHUP);
                phase.sent += self.send(300);
            }
            Fault::Offloads => {
                let word = if random.random() { "on" } else { "off" };
                for arguments in [["-K", RECEIVER.0, "gro", word], ["-K", SENDER.0, "tso", word]] {
                    if Command::new("ethtool").args(arguments).output().is_err() {
                        skip("ethtool");
                        break;
                    }
                }
                phase.sent += self.send(500);
            }
            Fault::Recreated => {
                ip("link del dev rx").unwrap();
                veth::pair(SENDER, RECEIVER).unwrap();
                phase.sent += self.send(500);
            }
            Fault::Renamed => {
                ip("addr add 10.99.0.2/24 dev rx").unwrap();
                rename(RECEIVER.0, "wan0");
                if self.hook == Hook::AfXdp {
                    // The run of a port ends.
                    while self.read(phase).is_some() {}
                } else {
                    phase.sent += self.send(300);
                    self.settle(phase);
                }
                rename("wan0", RECEIVER.0);
                ip("addr del 10.99.0.2/24 dev rx").unwrap();
                phase.sent += self.send(300);
            }
        }
    }

    /// Sends while more threads than CPUs are busy.
    fn send_busy(&self) -> u64 {
        let is_over = AtomicBool::new(false);
        let threads = 2 * thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let sent = self.send(2000);
            is_over.store(true, Ordering::Relaxed);
            sent
        })
    }

    /// Sends more than the rings of a stopped process have room for, from two threads.
    fn send_too_many(&self) -> u64 {
        self.signal(Signal::SIGSTOP);
        let socket = &self.socket;
        let sent = thread::scope(|scope| {
            let senders = [(); 2].map(|()| scope.spawn(|| send(socket, 2000)));
            senders.into_iter().map(|sender| sender.join().unwrap()).sum()
        });
        self.signal(Signal::SIGCONT);
        sent
    }

    /// Sends while a program of others is in the way: instead of this one, or before it.
    fn send_beside_others(&self, is_replaced: bool) -> u64 {
        match (self.hook, is_replaced) {
            (Hook::Native | Hook::Skb, true) => {
                pin().into_iter().for_each(|pin| Other::xdp().usurp(&pin));
            }
            (Hook::Native | Hook::Skb, false) | (Hook::Tcx, true) => {
                pin().into_iter().for_each(|pin| kernel::detach(&pin));
            }
            (Hook::Clsact, true) => {
                let arguments = ["qdisc", "del", "dev", RECEIVER.0, "clsact"];
                let status = Command::new("tc").args(arguments).status();
                assert!(status.unwrap().success(), "{arguments:?}");
            }
            (Hook::AfXdp, true) => {
                assert!(Other::xdp().attach(RECEIVER.0).is_err(), "the place is taken");
            }
            (Hook::Tcx | Hook::Clsact | Hook::AfXdp, false) => {
                // Before Linux 6.6 there is no such place.
                let _dropping = Other::tcx_dropping().attach(RECEIVER.0);
                return self.send(700);
            }
        }
        self.send(700)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // It has already ended unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Injects one fault after the other into a run.
fn inject(hook: Hook, seed: u64, faults: Vec<Fault>, mut random: ChaCha8Rng) {
    veth::pair(("tx2", "10.78.0.1"), ("rx2", "10.78.0.2")).unwrap();
    let mut victim = Victim::start(hook, seed);
    let mut rows = vec![format!(
        "seed {seed}\n{:<8}{:<16}{:>8}{:>9}{:>7}{:>13}{:>9}  should is",
        "hook", "fault", "sent", "counted", "lost", "unaccounted", "windows"
    )];
    let mut is_wrong = false;
    victim.recover();
    for fault in faults {
        let mut during = Phase::default();
        victim.inject(fault, &mut random, &mut during);
        victim.settle(&mut during);
        victim.recover();
        let mut after = Phase { sent: victim.send(300), ..Phase::default() };
        victim.settle(&mut after);
        // An interface that is back is counted as if it had never been away.
        let is_missed = fault == Fault::Moved && !after.is_whole();
        let wrong = [during.is_wrong(), after.is_wrong() || is_missed];
        is_wrong |= wrong.contains(&true);
        rows.push(during.row(hook, &format!("{fault:?}"), wrong[0]));
        rows.push(after.row(hook, "  afterwards", wrong[1]));
    }
    let table = rows.join("\n");
    println!("{table}");
    assert!(!is_wrong, "complete windows lack packets, or have more than crossed:\n{table}");
    victim.signal(Signal::SIGINT);
    while victim.read(&mut Phase::default()).is_some() {}
    victim.child.wait().unwrap();
}

/// Draws faults, and injects them into runs on a hook.
fn drawn(hook: Hook) {
    for seed in 0..extent(1, 20) {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut faults = Fault::ALL.to_vec();
        faults.sort_by_cached_key(|_| random.random::<u64>());
        faults.truncate(extent(3, Fault::ALL.len()));
        on_veth(move || inject(hook, seed, faults, random));
    }
}

#[test]
fn packets_of_another_namespace_are_in_no_complete_window() {
    for (seed, hook) in (100..).zip(Hook::ALL) {
        let moves = vec![Fault::Moved; extent(2, 20)];
        on_veth(move || inject(hook, seed, moves, ChaCha8Rng::seed_from_u64(seed)));
    }
}

#[test]
fn complete_windows_of_native_xdp_have_every_packet_whatever_happens() {
    drawn(Hook::Native);
}

#[test]
fn complete_windows_of_generic_xdp_have_every_packet_whatever_happens() {
    drawn(Hook::Skb);
}

#[test]
fn complete_windows_of_tcx_have_every_packet_whatever_happens() {
    drawn(Hook::Tcx);
}

#[test]
fn complete_windows_of_clsact_have_every_packet_whatever_happens() {
    drawn(Hook::Clsact);
}

#[test]
fn complete_windows_of_a_port_have_every_packet_whatever_happens() {
    drawn(Hook::AfXdp);
}
