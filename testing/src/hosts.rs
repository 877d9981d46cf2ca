//! Two hosts of a test's own, each with a network, and a wire between them.

use crate::on_veth;
use flowgauge_traffic::veth::{RECEIVER, SENDER, ip};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

type Job = Box<dyn FnOnce() + Send>;

/// Another host: a thread with a network of its own.
pub struct Host(Sender<Job>);

impl Host {
    /// Starts a host; returns it with the path of its network namespace.
    pub fn start() -> (Self, String) {
        let (jobs, work): (Sender<Job>, Receiver<Job>) = channel();
        let (told, path) = channel();
        thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            told.send(format!("/proc/{}/task/{}/ns/net", std::process::id(), gettid())).unwrap();
            work.iter().for_each(|job| job());
        });
        (Host(jobs), path.recv().unwrap())
    }

    /// Starts a job there.
    pub fn start_with<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Receiver<T> {
        let (done, result) = channel();
        self.0.send(Box::new(move || done.send(job()).unwrap())).unwrap();
        result
    }

    /// Runs a job there, and waits for it.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        self.start_with(job).recv().unwrap()
    }
}

/// Addresses on the link, of the host with the receiver and of the other one.
pub(crate) const NEAR_MAC: &str = "02:00:00:00:00:12";
pub(crate) const FAR_MAC: &str = "02:00:00:00:00:11";

/// Gives a device its addresses, and an entry for its neighbour.
pub(crate) fn configure(
    (device, address): (&str, &str),
    mac: &str,
    (_, peer): (&str, &str),
    peer_mac: &str,
) {
    for command in [
        format!("link set dev {device} address {mac}"),
        format!("link set dev {device} addrgenmode none"),
        format!("addr replace {address}/24 dev {device}"),
        format!("link set dev {device} up"),
        format!("neigh replace {peer} lladdr {peer_mac} dev {device} nud permanent"),
    ] {
        ip(&command).unwrap();
    }
}

/// Runs a test with two hosts, whose devices are as the kernel creates them, and a wire between
/// them; see [`connected`].
pub fn linked(test: impl FnOnce(&Host) + Send + 'static) {
    connected(|_| true, |far, _| test(far));
}

/// Runs a test with two hosts and a wire between them; only the test sends. This thread is the near
/// host. `set` configures a device, and returns whether it could.
pub fn connected(set: fn(&str) -> bool, test: impl FnOnce(&Host, bool) + Send + 'static) {
    on_veth(move || {
        let (far, network) = Host::start();
        ip(&format!("link set dev {} netns {network}", SENDER.0)).unwrap();
        configure(RECEIVER, NEAR_MAC, SENDER, FAR_MAC);
        let is_set = set(RECEIVER.0)
            & far.run(move || {
                configure(SENDER, FAR_MAC, RECEIVER, NEAR_MAC);
                set(SENDER.0)
            });
        test(&far, is_set);
    });
}
