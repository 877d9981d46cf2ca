//! Interfaces above others: a bond above its slaves, a bridge above its ports, a VLAN device above
//! its parent. A packet that crosses both is counted at both.
//!
//! [`Stack::read`] asks the kernel by netlink and not `/sys/class/net`, which shows the network
//! namespace in which it was mounted. The two ends of a veth pair are not above each other.

use super::netlink::{
    IFINFOMSG, IFLA_INFO_KIND, IFLA_LINK_NETNSID, IFLA_LINKINFO, QueryScope, ROUTE, RTM_GETLINK,
    ask, find, word,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

const IFLA_IFNAME: u16 = 3;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;

/// Kinds of interfaces whose packets all cross the interfaces that they are the master of. A VRF is
/// not among them: packets from one of its sockets to another cross the VRF only.
const MASTERS: [&str; 3] = ["bond", "bridge", "team"];
/// Kind whose packets all cross its parent, as they are. Packets between two macvlans do not cross
/// the parent, and it sees packets of tunnels and of MACsec only in their envelopes.
const VLAN: &str = "vlan";
/// Kinds whose `IFLA_LINK` is their peer.
const PAIRS: [&str; 2] = ["veth", "netkit"];
/// Kind of the master of all ports of Open vSwitch, which no packet crosses.
const UNCROSSED: &str = "openvswitch";
/// Number of levels after which the search ends; the kernel allows eight.
const MAX_LEVELS: u32 = 16;

/// Interfaces of a network namespace that lie above others, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack(BTreeMap<String, UpperInterface>);

/// Interface above others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct UpperInterface {
    /// Interfaces directly below it.
    below: BTreeSet<String>,
    /// Whether each of its packets crosses one of these, as it is.
    crosses_below: bool,
}

impl Stack {
    /// Reads the interfaces of this thread's network namespace.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn read() -> io::Result<Self> {
        let answers = ask(ROUTE, RTM_GETLINK, QueryScope::All, &[0; IFINFOMSG])?;
        let devices: Vec<Device> =
            answers.iter().filter_map(|answer| Device::parse(answer)).collect();
        Ok(Stack::of(&devices))
    }

    fn of(devices: &[Device]) -> Self {
        let numbered: BTreeMap<u32, &Device> =
            devices.iter().map(|device| (device.index, device)).collect();
        let mut stack = Stack::default();
        let mut add = |upper: &Device, lower: &Device, crosses_below: bool| {
            let found = stack.0.entry(upper.name.clone()).or_default();
            found.below.insert(lower.name.clone());
            found.crosses_below = crosses_below;
        };
        for device in devices {
            let master = device.master.and_then(|index| numbered.get(&index).copied());
            if let Some(upper) = master.filter(|upper| upper.kind != UNCROSSED) {
                add(upper, device, MASTERS.contains(&upper.kind.as_str()));
            }
            let parent = device.parent.and_then(|index| numbered.get(&index).copied());
            if let Some(lower) = parent.filter(|_| !PAIRS.contains(&device.kind.as_str())) {
                add(device, lower, device.kind == VLAN);
            }
        }
        stack
    }

    /// Returns the interfaces directly below one.
    #[must_use]
    pub fn below(&self, interface: &str) -> Vec<String> {
        self.0.get(interface).map_or_else(Vec::new, |upper| upper.below.iter().cloned().collect())
    }

    /// Returns whether each packet of an interface crosses a counted one below it, as it is.
    #[must_use]
    pub fn is_covered(&self, interface: &str, is_counted: &dyn Fn(&str) -> bool) -> bool {
        self.is_covered_within(MAX_LEVELS, interface, is_counted)
    }

    fn is_covered_within(
        &self,
        levels: u32,
        interface: &str,
        is_counted: &dyn Fn(&str) -> bool,
    ) -> bool {
        let Some(upper) = self.0.get(interface).filter(|upper| upper.crosses_below) else {
            return false;
        };
        let Some(levels) = levels.checked_sub(1) else { return false };
        upper
            .below
            .iter()
            .all(|lower| is_counted(lower) || self.is_covered_within(levels, lower, is_counted))
    }

    /// Returns the counted interfaces above other counted ones, each with all of those.
    #[must_use]
    pub fn overlaps(&self, counted: &BTreeSet<&str>) -> Vec<(String, Vec<String>)> {
        let uppers = self.0.keys().filter(|upper| counted.contains(upper.as_str()));
        let overlaps = uppers.filter_map(|upper| {
            let mut below = BTreeSet::new();
            self.collect_below(upper, &mut below);
            let below: Vec<String> = below
                .into_iter()
                .filter(|lower| lower != upper && counted.contains(lower.as_str()))
                .collect();
            (!below.is_empty()).then(|| (upper.clone(), below))
        });
        overlaps.collect()
    }

    /// Adds all interfaces below one, at any level.
    fn collect_below(&self, interface: &str, found: &mut BTreeSet<String>) {
        let Some(upper) = self.0.get(interface) else { return };
        for lower in &upper.below {
            if found.insert(lower.clone()) {
                self.collect_below(lower, found);
            }
        }
    }
}

/// Interface as the kernel describes it.
struct Device {
    index: u32,
    name: String,
    /// Kind such as `bond`; empty for hardware.
    kind: String,
    /// Index of its bond, bridge or other master.
    master: Option<u32>,
    /// Index of the interface that it was made on, if that is in this network namespace.
    parent: Option<u32>,
}

impl Device {
    /// Parses the body of a message about a link.
    fn parse(body: &[u8]) -> Option<Self> {
        let index = u32::from_ne_bytes(*body.get(4..)?.first_chunk()?);
        let attributes = body.get(IFINFOMSG..)?;
        let kind = find(attributes, IFLA_LINKINFO).and_then(|info| find(info, IFLA_INFO_KIND));
        let number = |attribute| find(attributes, attribute).and_then(word);
        let is_elsewhere = find(attributes, IFLA_LINK_NETNSID).is_some();
        Some(Device {
            index,
            name: text(find(attributes, IFLA_IFNAME)?),
            kind: kind.map(text).unwrap_or_default(),
            master: number(IFLA_MASTER),
            parent: number(IFLA_LINK).filter(|_| !is_elsewhere),
        })
    }
}

/// Decodes an attribute that is a string with a terminating zero.
fn text(value: &[u8]) -> String {
    let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::netlink::attribute;
    use super::*;

    /// Makes the kernel's message about an interface. `further` has types and values of more
    /// attributes.
    fn message(index: u32, name: &str, kind: &str, further: &[(u16, u32)]) -> Vec<u8> {
        let mut body = vec![0; IFINFOMSG];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        let string = |text: &str| [text.as_bytes(), &[0]].concat();
        body.extend(attribute(IFLA_IFNAME, &string(name)));
        if !kind.is_empty() {
            body.extend(attribute(IFLA_LINKINFO, &attribute(IFLA_INFO_KIND, &string(kind))));
        }
        for (number, value) in further {
            body.extend(attribute(*number, &value.to_ne_bytes()));
        }
        body
    }

    fn stack(messages: &[Vec<u8>]) -> Stack {
        let devices: Vec<Device> =
            messages.iter().map(|message| Device::parse(message).unwrap()).collect();
        Stack::of(&devices)
    }

    /// A bond of two cards, a VLAN above it, and a bridge above that and above one end of a veth
    /// pair.
    fn host() -> Stack {
        stack(&[
            message(1, "lo", "", &[]),
            message(2, "eth0", "", &[(IFLA_MASTER, 4)]),
            message(3, "eth1", "", &[(IFLA_MASTER, 4)]),
            message(4, "bond0", "bond", &[]),
            message(5, "bond0.7", "vlan", &[(IFLA_LINK, 4), (IFLA_MASTER, 6)]),
            message(6, "br0", "bridge", &[]),
            message(7, "veth0", "veth", &[(IFLA_LINK, 8), (IFLA_MASTER, 6)]),
            message(8, "veth1", "veth", &[(IFLA_LINK, 7)]),
        ])
    }

    #[test]
    fn masters_and_vlans_are_above_and_peers_are_not() {
        let stack = host();
        assert_eq!(stack.below("bond0"), ["eth0", "eth1"]);
        assert_eq!(stack.below("bond0.7"), ["bond0"]);
        assert_eq!(stack.below("br0"), ["bond0.7", "veth0"]);
        for name in ["lo", "eth0", "veth0", "veth1", "none"] {
            assert_eq!(stack.below(name), [""; 0], "{name}");
        }
    }

    #[test]
    fn an_interface_is_covered_if_all_of_its_packets_cross_counted_ones() {
        let stack = host();
        let is_covered = |name: &str, counted: &[&str]| {
            stack.is_covered(name, &|lower: &str| counted.contains(&lower))
        };
        assert!(is_covered("bond0", &["eth0", "eth1"]));
        assert!(!is_covered("bond0", &["eth0"]), "half of its packets cross eth1");
        // Through interfaces that are not counted.
        assert!(is_covered("bond0.7", &["eth0", "eth1"]));
        assert!(is_covered("br0", &["eth0", "eth1", "veth0"]));
        assert!(!is_covered("br0", &["eth0", "eth1", "veth1"]));
        assert!(!is_covered("eth0", &["eth0", "eth1"]), "nothing is below it");
    }

    #[test]
    fn interfaces_with_packets_of_their_own_are_above_others_but_not_covered() {
        for kind in ["macvlan", "macsec", "gre"] {
            let stack =
                stack(&[message(2, "eth0", "", &[]), message(3, "upper", kind, &[(IFLA_LINK, 2)])]);
            assert_eq!(stack.below("upper"), ["eth0"], "{kind}");
            assert!(!stack.is_covered("upper", &|_: &str| true), "{kind}");
        }
        let routed =
            stack(&[message(2, "eth0", "", &[(IFLA_MASTER, 3)]), message(3, "red", "vrf", &[])]);
        assert_eq!(routed.below("red"), ["eth0"]);
        assert!(!routed.is_covered("red", &|_: &str| true));
        let switch = stack(&[
            message(2, "eth0", "", &[(IFLA_MASTER, 3)]),
            message(3, "ovs-system", "openvswitch", &[]),
        ]);
        assert_eq!(switch, Stack::default());
        // The number is one of another namespace.
        let moved = stack(&[
            message(2, "eth0", "", &[]),
            message(9, "eth0.7", "vlan", &[(IFLA_LINK, 2), (IFLA_LINK_NETNSID, 0)]),
        ]);
        assert_eq!(moved, Stack::default());
    }

    #[test]
    fn counted_interfaces_above_counted_ones_are_listed_across_levels() {
        let stack = host();
        let overlaps = |counted: &[&str]| stack.overlaps(&counted.iter().copied().collect());
        assert!(overlaps(&["eth0", "eth1", "veth0", "veth1"]).is_empty());
        assert_eq!(
            overlaps(&["br0", "eth0", "veth1"]),
            [("br0".to_owned(), vec!["eth0".to_owned()])]
        );
        assert_eq!(overlaps(&["bond0", "bond0.7", "eth1"]).len(), 2);
    }

    #[test]
    fn a_circle_ends() {
        let stack = stack(&[
            message(2, "a", "bridge", &[(IFLA_MASTER, 3)]),
            message(3, "b", "bridge", &[(IFLA_MASTER, 2)]),
        ]);
        assert!(!stack.is_covered("a", &|_: &str| false));
        assert!(stack.overlaps(&BTreeSet::from(["a"])).is_empty());
    }

    #[test]
    fn messages_of_any_length_are_survived() {
        let whole = message(5, "bond0.7", "vlan", &[(IFLA_LINK, 4), (IFLA_MASTER, 6)]);
        for length in 0..whole.len() {
            let _ = whole.get(..length).and_then(Device::parse);
        }
    }
}
