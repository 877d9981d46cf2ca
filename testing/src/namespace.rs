//! Another network namespace, to which interfaces move.

use crate::wait::until;
use flowgauge_traffic::veth::{RECEIVER, SENDER, carrier, ip};
use std::fs;
use std::process::{Child, Command};

/// Another network namespace, which exists until it is dropped.
pub struct OtherNamespace(Child);

impl OtherNamespace {
    /// Creates a network namespace.
    pub fn start() -> Self {
        let holder = Command::new("unshare").args(["-n", "sleep", "infinity"]).spawn().unwrap();
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
        let own = namespace("thread-self");
        until(|| namespace(&holder.id().to_string()).is_some_and(|other| Some(other) != own));
        OtherNamespace(holder)
    }

    /// Moves an interface there and sets it up.
    pub fn take(&self, interface: &str) {
        ip(&format!("link set dev {interface} netns {}", self.0.id())).unwrap();
        self.ip(&format!("link set dev {interface} up"));
        carrier(SENDER.0).unwrap();
    }

    /// Moves an interface from there to the namespace of this thread.
    pub fn give_back(&self, interface: &str) {
        // A process that stays in the namespace of this thread.
        let mut here = Command::new("sleep").arg("infinity").spawn().unwrap();
        self.ip(&format!("link set dev {interface} netns {}", here.id()));
        here.kill().unwrap();
        here.wait().unwrap();
        ip(&format!("link set dev {interface} up")).unwrap();
        [RECEIVER.0, SENDER.0].into_iter().for_each(|device| carrier(device).unwrap());
    }

    fn ip(&self, arguments: &str) {
        let process = self.0.id().to_string();
        let status = Command::new("nsenter")
            .args(["-n", "-t", &process, "ip"])
            .args(arguments.split(' '))
            .status()
            .unwrap();
        assert!(status.success(), "ip {arguments}");
    }
}

impl Drop for OtherNamespace {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
