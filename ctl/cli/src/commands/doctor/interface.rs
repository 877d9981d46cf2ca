//! Network interfaces: the properties that decide how packets can be captured from them. `netlink`
//! reads them from the kernel.

mod netlink;

use super::machine::Machine;
use flowgauge_dataplane::xdp::{Mode, merged, merges_in_device};
use serde::Serialize;

/// Names of the bits of `enum netdev_xdp_act`, in order.
const FEATURES: [&str; 7] =
    ["basic", "redirect", "ndo-xmit", "xsk-zerocopy", "hw-offload", "rx-sg", "ndo-xmit-sg"];

/// Network interface. Field names are keys of the JSON output, where unknown values are null.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct InterfaceReport {
    pub(super) name: String,
    pub(super) driver: Option<String>,
    pub(super) state: Option<String>,
    pub(super) mtu: Option<u32>,
    pub(super) rx_queues: Option<usize>,
    pub(super) tx_queues: Option<usize>,
    pub(super) numa_node: Option<u32>,
    /// Link type (`ARPHRD_…`).
    pub(super) hardware: Option<u16>,
    /// Whether it has no hardware queues: runs count there in the network stack.
    pub(super) is_virtual: bool,
    /// Whether the device merges packets before the kernel sees them (LRO, `rx-gro-hw`): runs count
    /// there in the network stack, too.
    pub(super) merges_in_device: bool,
    /// XDP features of the driver.
    pub(super) xdp_features: Option<Vec<&'static str>>,
    /// Whether XDP programs in mode skb see merged or unsegmented packets.
    pub(super) skb_merges: bool,
    /// XDP program attached to the interface.
    pub(super) program: Option<AttachedProgram>,
}

/// XDP program on an interface.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct AttachedProgram {
    pub(super) id: u32,
    pub(super) mode: &'static str,
}

impl InterfaceReport {
    pub(super) fn is_loopback(&self) -> bool {
        self.name == "lo"
    }

    /// Returns whether a run without `--xdp-mode` counts in the network stack first.
    pub(super) fn prefers_stack(&self) -> bool {
        self.is_virtual || self.merges_in_device
    }

    /// Returns whether the driver has a feature; `None` if unknown.
    pub(super) fn has(&self, feature: &str) -> Option<bool> {
        self.xdp_features.as_ref().map(|features| features.contains(&feature))
    }

    /// Fills in values from /sys, which describes the network namespace in which it was mounted.
    fn complete(&mut self, machine: &Machine) {
        let directory = format!("sys/class/net/{}", self.name);
        let queues = machine.names(&format!("{directory}/queues"));
        let count = |prefix: &str| {
            Some(queues.iter().filter(|queue| queue.starts_with(prefix)).count())
                .filter(|count| *count > 0)
        };
        self.driver = machine.link(&format!("{directory}/device/driver")).or(self.driver.take());
        self.state = self.state.take().or_else(|| machine.text(&format!("{directory}/operstate")));
        self.mtu = self.mtu.or_else(|| machine.number(&format!("{directory}/mtu")));
        self.hardware = self.hardware.or_else(|| machine.number(&format!("{directory}/type")));
        // Netlink reports the maximum number of queues, /sys the current one.
        self.rx_queues = count("rx-").or(self.rx_queues);
        self.tx_queues = count("tx-").or(self.tx_queues);
        // The value is -1 on a machine with a single node.
        self.numa_node = machine.number(&format!("{directory}/device/numa_node"));
    }
}

/// Returns the name of an operational state (RFC 2863).
fn state_name(state: u8) -> &'static str {
    const NAMES: [&str; 7] =
        ["unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up"];
    NAMES.get(usize::from(state)).copied().unwrap_or("unknown")
}

fn mode_name(place: u8) -> &'static str {
    match place {
        1 => Mode::Native.name(),
        2 => Mode::Skb.name(),
        3 => Mode::Offload.name(),
        _ => "several",
    }
}

fn feature_names(bits: u64) -> Vec<&'static str> {
    FEATURES
        .iter()
        .enumerate()
        .filter(|(bit, _)| bits >> bit & 1 == 1)
        .map(|(_, name)| *name)
        .collect()
}

/// Returns all interfaces, from netlink if the kernel can be queried and answers, else from /sys.
pub(super) fn all(machine: &Machine) -> Vec<InterfaceReport> {
    match if machine.live { netlink::links().ok() } else { None } {
        Some(links) => from_netlink(machine, links),
        None => machine
            .names("sys/class/net")
            .into_iter()
            .filter_map(|name| in_files(machine, name))
            .collect(),
    }
}

fn from_netlink(machine: &Machine, links: Vec<(u32, InterfaceReport)>) -> Vec<InterfaceReport> {
    let features = netlink::xdp_features().ok();
    let interface = |(index, mut interface): (u32, InterfaceReport)| {
        let features = features.as_ref().and_then(|all| all.get(&index));
        interface.xdp_features = features.map(|bits| feature_names(*bits));
        interface.skb_merges = merged(&interface.name).is_some();
        interface.merges_in_device = merges_in_device(&interface.name);
        // In another network namespace this name may belong to a different interface.
        if machine.number(&format!("sys/class/net/{}/ifindex", interface.name)) == Some(index) {
            interface.complete(machine);
        }
        interface
    };
    links.into_iter().map(interface).collect()
}

/// Returns `None` for entries that are not interfaces, such as `bonding_masters`.
fn in_files(machine: &Machine, name: String) -> Option<InterfaceReport> {
    let is_virtual = !machine.exists(&format!("sys/class/net/{name}/device"));
    let mut interface = InterfaceReport { name, is_virtual, ..InterfaceReport::default() };
    interface.complete(machine);
    interface.state.is_some().then_some(interface)
}
