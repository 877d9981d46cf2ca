//! Properties and counters of an interface.

use super::netlink::{self, IFINFOMSG, IFLA_LINK_NETNSID, find};
use super::{Interface, is_virtual_link};
use crate::error::Error;
use crate::losses::{LossCause, Losses};
use crate::open_files::advice;
use flowgauge_core::{Filter, Link};
use rustix::io::Errno;
use rustix::net::netdevice::{index_to_name, name_to_index};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;

/// Returns the index of an interface of this thread's network namespace; `None` if it does not
/// exist. A recreated interface gets a new index.
///
/// # Errors
/// The system cannot answer, as with too many open files.
pub(crate) fn index(interface: &str) -> io::Result<Option<u32>> {
    ask(|any| name_to_index(any, interface))
}

/// Returns the current name of an interface; `None` if it is gone.
///
/// # Errors
/// As [`index`].
pub(crate) fn name(index: u32) -> io::Result<Option<String>> {
    ask(|any| index_to_name(any, index))
}

/// Asks the kernel about an interface; `None` if the kernel has no such interface.
fn ask<T>(question: impl FnOnce(OwnedFd) -> rustix::io::Result<T>) -> io::Result<Option<T>> {
    let any = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    match question(any) {
        Ok(answer) => Ok(Some(answer)),
        Err(Errno::NODEV | Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns what was found of an interface.
///
/// # Errors
/// [`Error::Kernel`] if it does not exist, or the system cannot answer.
pub(crate) fn existing<T>(interface: &str, found: io::Result<Option<T>>) -> Result<T, Error> {
    let (problem, source) = match found {
        Ok(Some(found)) => return Ok(found),
        Ok(None) => ("there is no such interface; `ip link` lists them".to_owned(), None),
        Err(error) => (format!("cannot look up the interface: {error}"), Some(error)),
    };
    Err(Error::Kernel { interface: interface.to_owned(), problem, source })
}

/// Returns whether an interface is a virtual device, without hardware queues. One that cannot be
/// queried is not.
pub(crate) fn is_virtual(index: u32) -> bool {
    netlink::link(index).is_ok_and(|link| is_virtual_link(&link))
}

/// Returns whether an interface itself merges arriving packets (LRO, `rx-gro-hw`), before the kernel
/// sees them. One that cannot be queried does not.
#[must_use]
pub fn merges_in_device(interface: &str) -> bool {
    Interface::new(interface).is_ok_and(|device| device.merges_in_device())
}

/// Raw IP, without a link header: what user space modems deliver (`ARPHRD_RAWIP`).
const RAW_IP: u16 = 519;

/// Returns the link layer: what precedes the network header of an interface's packets.
///
/// # Errors
/// A description of the unsupported link layer.
pub(crate) fn link(interface: &str) -> Result<Link, String> {
    let hardware = Interface::new(interface).and_then(|interface| interface.hardware());
    let hardware = hardware.map_err(|error| {
        format!("cannot read what kind of link it has: {error}{}", advice(Some(&error)))
    })?;
    link_of(hardware).ok_or_else(|| {
        format!(
            "its link is of type {hardware} (ARPHRD), neither Ethernet nor IP without a header: its packets would not be understood"
        )
    })
}

/// Returns the link layer of a hardware type (`ARPHRD_…`), if supported: tunnels, PPP, tun devices
/// and WireGuard deliver IP packets without a link header.
#[must_use]
pub fn link_of(hardware: u16) -> Option<Link> {
    match hardware {
        libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Some(Link::Ethernet),
        libc::ARPHRD_NONE
        | libc::ARPHRD_PPP
        | libc::ARPHRD_TUNNEL
        | libc::ARPHRD_TUNNEL6
        | libc::ARPHRD_SIT
        | libc::ARPHRD_IPGRE
        | IP6GRE
        | RAW_IP => Some(Link::Ip),
        _ => None,
    }
}

/// `ARPHRD_IP6GRE`.
const IP6GRE: u16 = 823;

/// Counters of an interface since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Packets received and passed to the stack.
    pub received: u64,
    /// Packets that could not be received: bad checksum, bad length.
    pub errors: u64,
    /// Packets that the device dropped for lack of room in its queue or in memory.
    pub missed: u64,
    /// Packets dropped by the driver or by the kernel's network stack. The stack also drops packets
    /// that no protocol accepts, after they were counted.
    pub dropped: u64,
    /// The part of `dropped` that the driver dropped, before anything could count it; `None` if the
    /// driver does not report it.
    pub dropped_by_driver: Option<u64>,
    /// The part of `dropped` that is not in `received`.
    pub unreceived: u64,
    /// Packets of any interface dropped by the kernel's network stack for lack of room.
    pub backlog: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets dropped before transmission.
    pub send_dropped: u64,
    /// Packets whose transmission failed.
    pub send_errors: u64,
}

impl DeviceCounters {
    /// Reads the counters of an interface of this thread's network namespace; `None` if it does not
    /// exist.
    #[must_use]
    pub fn read(interface: &str) -> Option<Self> {
        Self::find(interface).ok().flatten().map(|(_, counters)| counters)
    }

    /// Finds an interface, and returns its index and counters; `None` if it does not exist.
    ///
    /// # Errors
    /// The system cannot answer, as with too many open files.
    pub(crate) fn find(interface: &str) -> io::Result<Option<(u32, Self)>> {
        let Some(index) = index(interface)? else { return Ok(None) };
        // The driver's part is read first, so that the sum is never less.
        let dropped_by_driver = dropped_by_driver(interface);
        let (counters, is_linked_elsewhere) = match counters(index) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NODEV) => return Ok(None),
            counters => counters?,
        };
        let of_driver =
            dropped_by_driver.filter(|of_driver| !(is_linked_elsewhere && of_driver.needs_peer));
        let counters = DeviceCounters {
            dropped_by_driver: of_driver.map(|of_driver| of_driver.packets.min(counters.dropped)),
            unreceived: of_driver.map_or(0, |of_driver| of_driver.unreceived),
            backlog: backlog(),
            ..counters
        };
        Ok(Some((index, counters)))
    }

    /// Returns all packets that arrived at the device, whether received, dropped or damaged.
    pub(crate) fn arrived(&self) -> u64 {
        self.received + self.missed + self.errors + self.unreceived
    }

    /// Returns all packets that were passed to the device for transmission, wait for it or were
    /// dropped before it, whatever became of them: a range, since packets move during the read.
    /// `None` if the kernel does not report it.
    pub(crate) fn departed(interface: &str) -> Option<RangeInclusive<u64>> {
        let index = index(interface).ok()??;
        let device = || {
            let (DeviceCounters { sent, send_errors, send_dropped, .. }, _) =
                counters(index).ok()?;
            Some(sent + send_errors + send_dropped)
        };
        // A packet that moves from the queue to the device meanwhile is at most missed in the first
        // sum, and counted twice in the second.
        let before = device()?;
        let queue = netlink::queued(index).ok()?;
        Some(before + queue..=device()? + queue)
    }

    /// Returns the receive losses since `before`; `counted` is the stage at which packets are
    /// counted.
    pub(crate) fn losses(&self, before: &DeviceCounters, counted: CountingStage) -> Losses {
        // A counter below its earlier value was reset and counts from zero.
        let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        let mut losses = Losses::default();
        losses.add(LossCause::Device, since(self.missed, before.missed));
        losses.add(LossCause::DeviceError, since(self.errors, before.errors));
        let dropped = since(self.dropped, before.dropped);
        match self.dropped_by_driver.zip(before.dropped_by_driver) {
            Some((now, before_now)) => {
                let of_driver = since(now, before_now).min(dropped);
                losses.add(LossCause::Device, of_driver);
                // Packets that the stack drops later were counted; only its backlog precedes
                // counting.
                let in_front = if counted == CountingStage::InStack {
                    since(self.backlog, before.backlog)
                } else {
                    0
                };
                losses.add(LossCause::DeviceOrStack, (dropped - of_driver).min(in_front));
            }
            None => losses.add(LossCause::DeviceOrStack, dropped),
        }
        losses
    }
}

/// Returns the counters of the interface with this index that the kernel reports of every device,
/// and whether the linked device (a veth peer) is in another network namespace. `/proc/net/dev`
/// merges some that are needed separately.
fn counters(index: u32) -> io::Result<(DeviceCounters, bool)> {
    link_counters(&netlink::link(index)?).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

const IFLA_STATS64: u16 = 23;

fn link_counters(link: &[u8]) -> Option<(DeviceCounters, bool)> {
    let attributes = link.get(IFINFOMSG..)?;
    let statistics = find(attributes, IFLA_STATS64)?;
    // `struct rtnl_link_stats64`, which is shorter in older kernels.
    let word = |index: usize| {
        statistics
            .get(8 * index..)
            .and_then(|rest| rest.first_chunk())
            .map_or(0, |word| u64::from_ne_bytes(*word))
    };
    let (overrun, missed) = (word(14), word(15));
    let counters = DeviceCounters {
        received: word(0),
        errors: word(4),
        missed: missed + overrun,
        dropped: word(6),
        sent: word(1),
        send_dropped: word(7),
        send_errors: word(5),
        ..DeviceCounters::default()
    };
    Some((counters, find(attributes, IFLA_LINK_NETNSID).is_some()))
}

/// Returns why the packets that XDP programs see in the network stack
/// ([`Mode::Skb`](crate::xdp::Mode::Skb)) differ from those on the wire; `None` if they do not.
#[must_use]
pub fn merged(interface: &str) -> Option<String> {
    let device = Interface::new(interface).ok()?;
    let instead = format!(
        "--xdp-mode tcx (before Linux 6.6 clsact) counts the packets of the wire, or switch it off (`ethtool -K {interface} gro off lro off`"
    );
    if device.driver() == "veth" {
        // The peer may be in another network namespace.
        let merges =
            if device.merges_packets() { "; the kernel merges them here too (GRO)" } else { "" };
        return Some(format!(
            "in mode skb packets that its peer sends unsegmented (TSO, GSO) count as one each{merges}; -i {interface} {instead}, and at the peer \
             `ethtool -K … tso off gso off tx-udp-segmentation off`)"
        ));
    }
    device
        .merges_packets()
        .then(|| format!("in mode skb packets that the kernel merges (GRO, LRO) count as one; -i {interface} {instead})"))
}

/// Returns a warning if XDP programs may not see the VLAN tags that a filter compares: a tag that
/// the device removes is stored apart from the packet, where only the network stack finds it.
pub(crate) fn unseen_vlan_tags(interface: &str, filter: &Filter) -> Option<String> {
    let device = Interface::new(interface).ok()?;
    (filter.compares_vlan() && device.removes_vlan_tags()).then(|| {
        format!(
            "VLAN tags that the device removes (rx-vlan-offload) are unknown to --match, which takes such packets for untagged; -i {interface} \
             --xdp-mode tcx sees them, or switch it off (`ethtool -K {interface} rxvlan off`, for veth `ethtool -K PEER txvlan off`)"
        )
    })
}

/// Stage at which packets are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountingStage {
    /// In the driver.
    BeforeStack,
    /// In the kernel's network stack.
    InStack,
}

/// Packets that the driver reports as dropped.
#[derive(Clone, Copy)]
struct DriverDrops {
    packets: u64,
    /// The part that the driver does not count as received.
    unreceived: u64,
    /// Whether the numbers are complete only if the linked device could be queried.
    needs_peer: bool,
}

/// Returns the driver's part of the drops. The kernel adds driver and stack into one counter; some
/// drivers report their own part.
fn dropped_by_driver(interface: &str) -> Option<DriverDrops> {
    let device = Interface::new(interface).ok()?;
    match device.driver().as_str() {
        "veth" => {
            let counters = device.statistics().ok()?;
            let peer = counters
                .iter()
                .find(|(name, _)| name == "peer_ifindex")
                .and_then(|(_, index)| u32::try_from(*index).ok());
            let peer = peer.and_then(|index| name(index).ok().flatten());
            let peer = peer.and_then(|peer| Interface::new(&peer).ok()?.statistics().ok());
            // Packets that the peer's programs send without finding room count as dropped here.
            let unreceived = peer.map_or(0, |of_peer| {
                of_queues(&of_peer, "tx_queue_", "_xdp_xmit_errors")
                    + of_queues(&of_peer, "rx_queue_", "_xdp_tx_errors")
            });
            Some(DriverDrops {
                packets: of_queues(&counters, "rx_queue_", "_drops") + unreceived,
                unreceived,
                needs_peer: true,
            })
        }
        "virtio_net" => {
            let counters = device.statistics().ok()?;
            let packets =
                of_queues(&counters, "rx", "_drops") + of_queues(&counters, "rx_queue_", "_drops");
            Some(DriverDrops { packets, unreceived: 0, needs_peer: false })
        }
        _ => None,
    }
}

/// Sums a counter over queues; the names of a driver's counters have the queue's number between a
/// prefix and a suffix.
fn of_queues(counters: &[(String, u64)], start: &str, end: &str) -> u64 {
    let is_of_queue = |name: &str| {
        let number = name.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
        number.is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    counters.iter().filter(|(name, _)| is_of_queue(name)).map(|(_, count)| count).sum()
}

/// Sums the second column (drops, in hexadecimal) over all CPUs.
fn backlog() -> u64 {
    let table = std::fs::read_to_string("/proc/thread-self/net/softnet_stat").unwrap_or_default();
    let column = |line: &str| u64::from_str_radix(line.split_ascii_whitespace().nth(1)?, 16).ok();
    table.lines().filter_map(column).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: DeviceCounters = DeviceCounters {
        received: 10,
        errors: 1,
        missed: 2,
        dropped: 30,
        dropped_by_driver: Some(20),
        unreceived: 0,
        backlog: 5,
        sent: 0,
        send_dropped: 0,
        send_errors: 0,
    };

    fn lost(counters: DeviceCounters, counted: CountingStage) -> Vec<(LossCause, u64)> {
        counters.losses(&BEFORE, counted).iter().collect()
    }

    fn answer() -> Vec<u8> {
        let mut answer = vec![0; IFINFOMSG];
        let words: Vec<u8> = (100..124_u64).flat_map(u64::to_ne_bytes).collect();
        answer.extend(netlink::attribute(IFLA_STATS64, &words));
        answer.extend(netlink::attribute(IFLA_LINK_NETNSID, &[0; 4]));
        answer
    }

    #[test]
    fn counters_are_where_the_kernel_has_them() {
        let expected = DeviceCounters {
            received: 100,
            errors: 104,
            missed: 114 + 115,
            dropped: 106,
            sent: 101,
            send_dropped: 107,
            send_errors: 105,
            ..DeviceCounters::default()
        };
        assert_eq!(link_counters(&answer()), Some((expected, true)));
    }

    #[test]
    fn answers_that_are_cut_anywhere_are_survived() {
        let whole = answer();
        let statistics_end = whole.len() - 8;
        for length in 0..statistics_end {
            assert!(link_counters(&whole[..length]).is_none(), "{length}");
        }
    }

    #[test]
    fn loopback_is_read() {
        let index = nix::net::if_::if_nametoindex("lo").unwrap();
        assert!(!counters(index).unwrap().1);
        assert!(counters(u32::MAX >> 1).is_err());
    }

    #[test]
    fn counters_of_queues_have_a_number_between_prefix_and_suffix() {
        let counters = ["rx_queue_0_drops", "rx_queue_12_drops", "rx_queue__drops", "rx3_drops"];
        let counters: Vec<(String, u64)> =
            counters.iter().zip(1..).map(|(name, count)| ((*name).to_owned(), count)).collect();
        assert_eq!(of_queues(&counters, "rx_queue_", "_drops"), 1 + 2);
        assert_eq!(of_queues(&counters, "rx", "_drops"), 4);
    }

    #[test]
    fn what_the_stack_drops_is_no_loss() {
        let now = DeviceCounters { dropped: 1030, ..BEFORE };
        for counted in [CountingStage::BeforeStack, CountingStage::InStack] {
            assert_eq!(lost(now, counted), []);
        }
    }

    #[test]
    fn what_device_and_driver_drop_is_a_loss() {
        let now = DeviceCounters {
            errors: 4,
            missed: 7,
            dropped: 1041,
            dropped_by_driver: Some(31),
            ..BEFORE
        };
        let expected = [(LossCause::Device, 5 + 11), (LossCause::DeviceError, 3)];
        assert_eq!(lost(now, CountingStage::BeforeStack), expected);
        assert_eq!(lost(now, CountingStage::InStack), expected);
    }

    #[test]
    fn an_unknown_drop_is_not_counted_as_lost() {
        let unknown = DeviceCounters { dropped: 1030, dropped_by_driver: None, ..BEFORE };
        let losses = unknown.losses(&BEFORE, CountingStage::BeforeStack);
        assert_eq!((losses.get(LossCause::DeviceOrStack), losses.total()), (1000, 0));
        // The stack dropped seven packets for lack of room, of this interface or of others.
        let backlog = DeviceCounters { dropped: 1030, backlog: 12, ..BEFORE };
        assert_eq!(lost(backlog, CountingStage::InStack), [(LossCause::DeviceOrStack, 7)]);
        assert_eq!(lost(backlog, CountingStage::BeforeStack), []);
    }
}
