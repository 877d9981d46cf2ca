//! Isolated networks for tests and benchmarks: they affect nothing else on the machine and vanish
//! with their thread.

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::io;
use std::process::Command;
use std::thread;

/// Device that packets are sent from, and its address.
pub const SENDER: (&str, &str) = ("tx", "10.77.0.1");
/// Device that packets arrive at, and the address that leads there.
pub const RECEIVER: (&str, &str) = ("rx", "10.77.0.2");

/// Runs `body` in a thread with its own network namespace, which contains a veth pair: packets to
/// the receiver's address leave the sender and arrive at the receiver, and there is no other
/// traffic. The thread also has its own BPF file system at the usual place. All of it ends with the
/// thread and its child processes.
///
/// # Errors
/// A description of the missing requirement.
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

/// Creates another pair of devices with addresses in this thread's network namespace, like the
/// first. Both have a carrier on return.
///
/// # Errors
/// The message of `ip`.
pub fn pair(sender: (&str, &str), receiver: (&str, &str)) -> Result<(), String> {
    let ((tx, from), (rx, to)) = (sender, receiver);
    ip(&format!("link add {rx} type veth peer name {tx}"))?;
    for device in [rx, tx] {
        // Without IPv6 addresses only the body sends packets.
        ip(&format!("link set dev {device} addrgenmode none"))?;
        ip(&format!("link set dev {device} up"))?;
    }
    [rx, tx].into_iter().try_for_each(carrier)?;
    ip(&format!("addr add {from}/24 dev {tx}"))?;
    ip(&format!("neigh add {to} lladdr {RECEIVER_MAC} dev {tx} nud permanent"))
}

/// Maximum checks of a device for its carrier; each takes at least a millisecond.
const MAX_CHECKS: u32 = 10_000;

/// Waits until the kernel has noticed that both ends of a device are up, which may take some time
/// if it is busy with other devices. Until then it may drop packets sent there, and it reports the
/// device as down.
///
/// # Errors
/// The message of `ip`, or that there is no carrier.
pub fn carrier(device: &str) -> Result<(), String> {
    for _ in 0..MAX_CHECKS {
        if run(&format!("-o link show dev {device}"))?.contains(" state UP ") {
            return Ok(());
        }
    }
    Err(format!("{device} gets no carrier"))
}

/// Ethernet destination of packets. It is not the receiver's address, so the receiver drops them
/// after they were counted.
const RECEIVER_MAC: &str = "02:00:00:00:00:02";

/// Runs the program `ip` in this thread's network namespace.
///
/// # Errors
/// Its message.
pub fn ip(arguments: &str) -> Result<(), String> {
    run(arguments).map(drop)
}

/// Attempts to start a program if the kernel fails to start it.
const MAX_STARTS: u32 = 5;

fn run(arguments: &str) -> Result<String, String> {
    let ip = || Command::new("ip").args(arguments.split_ascii_whitespace()).output();
    // Seen once in some hundreds of runs together with DPDK, for an unknown reason: EFAULT. The
    // program has not run, so a second attempt is safe.
    let is_unlucky = |error: &io::Error| error.raw_os_error() == Some(nix::libc::EFAULT);
    let mut output = ip();
    for _ in 1..MAX_STARTS {
        if !output.as_ref().is_err_and(is_unlucky) {
            break;
        }
        output = ip();
    }
    let output = output.map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}
