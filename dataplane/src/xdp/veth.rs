//! A network of our own for tests and benchmarks: it touches nothing on the machine and vanishes
//! with its thread.

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::io;
use std::process::Command;
use std::thread;

/// The device packets are sent from, and its address.
pub const SENDER: (&str, &str) = ("tx", "10.77.0.1");
/// The device they arrive at, and the address that leads there.
pub const RECEIVER: (&str, &str) = ("rx", "10.77.0.2");

/// Runs `body` in a thread with a network namespace of its own, and in it a veth pair: what is sent
/// to the receiver's address leaves the sender and arrives at the receiver, and nothing else sends.
/// The thread has its own BPF file system at the usual place as well. All of it ends with the
/// thread and the processes that it started.
///
/// # Errors
/// What is needed and missing.
pub fn isolated<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let thread = thread::spawn(move || {
        prepare()?;
        Ok(body())
    });
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn prepare() -> Result<(), String> {
    let namespaces = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS;
    unshare(namespaces)
        .map_err(|error| format!("the right to make network namespaces ({error})"))?;
    let none: Option<&str> = None;
    let private = mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none);
    private
        .and_then(|()| {
            mount(Some("bpf"), "/sys/fs/bpf", Some("bpf"), MsFlags::empty(), Some("mode=0700"))
        })
        .map_err(|error| format!("the right to mount a BPF file system ({error})"))?;
    pair(SENDER, RECEIVER).map_err(|error| format!("veth devices and the program ip ({error})"))
}

/// Makes another pair of devices with addresses in this thread's network namespace, as the first.
/// Both have a carrier.
///
/// # Errors
/// What `ip` says.
pub fn pair(sender: (&str, &str), receiver: (&str, &str)) -> Result<(), String> {
    let ((tx, from), (rx, to)) = (sender, receiver);
    ip(&format!("link add {rx} type veth peer name {tx}"))?;
    for device in [rx, tx] {
        // Without IPv6 addresses nothing but the body sends packets.
        ip(&format!("link set dev {device} addrgenmode none"))?;
        ip(&format!("link set dev {device} up"))?;
    }
    [rx, tx].into_iter().try_for_each(carrier)?;
    ip(&format!("addr add {from}/24 dev {tx}"))?;
    ip(&format!("neigh add {to} lladdr {RECEIVER_MAC} dev {tx} nud permanent"))
}

/// How often a device is looked at until its carrier is there: each look takes a millisecond and
/// more.
const LOOKS: u32 = 10_000;

/// Waits until the kernel has noticed that both ends of a device are up, which it does some time
/// later, when it is not busy with other devices. Until then it may throw away what is sent there,
/// and it says that the device is down.
///
/// # Errors
/// What `ip` says, or that no carrier came.
pub fn carrier(device: &str) -> Result<(), String> {
    for _ in 0..LOOKS {
        if run(&format!("-o link show dev {device}"))?.contains(" state UP ") {
            return Ok(());
        }
    }
    Err(format!("{device} gets no carrier"))
}

/// Ethernet address that packets are sent to. It is not the receiver's, which therefore drops them
/// once they are counted.
const RECEIVER_MAC: &str = "02:00:00:00:00:02";

/// Runs the program `ip` in this thread's network namespace.
///
/// # Errors
/// What it says.
pub fn ip(arguments: &str) -> Result<(), String> {
    run(arguments).map(drop)
}

/// How often a program is started that the kernel could not start.
const STARTS: u32 = 5;

fn run(arguments: &str) -> Result<String, String> {
    let ip = || Command::new("ip").args(arguments.split_ascii_whitespace()).output();
    // Seen once in some hundreds of runs beside DPDK, for reasons unknown: EFAULT. The program has
    // not run, so that nothing is done twice.
    let is_unlucky = |error: &io::Error| error.raw_os_error() == Some(nix::libc::EFAULT);
    let mut output = ip();
    for _ in 1..STARTS {
        if !output.as_ref().is_err_and(is_unlucky) {
            break;
        }
        output = ip();
    }
    let output = output.map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}
