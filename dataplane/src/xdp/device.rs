//! What the kernel knows of an interface.

use crate::losses::{LossCause, Losses};
use crate::poll::port::Interface;
use flowgauge_core::Link;
use nix::net::if_::{if_indextoname, if_nametoindex};

/// The number of an interface of this thread's network namespace; an interface that is made anew gets another one.
pub(crate) fn index(interface: &str) -> Option<u32> {
    if_nametoindex(interface).ok()
}

/// The name that an interface has now; `None` if it is gone.
pub(crate) fn name(index: u32) -> Option<String> {
    // Where there is none, the library gives an empty name instead of an error.
    let name = if_indextoname(index).ok()?.to_string_lossy().into_owned();
    (!name.is_empty()).then_some(name)
}

/// Raw IP, without a link header: what user space modems deliver (`ARPHRD_RAWIP`).
const RAW_IP: u16 = 519;

/// What precedes the network header of an interface's packets.
///
/// # Errors
/// What they begin with instead, in words.
pub(crate) fn link(interface: &str) -> Result<Link, String> {
    let hardware = Interface::new(interface).and_then(|interface| interface.hardware());
    let hardware = hardware.map_err(|error| format!("cannot read what kind of link it has: {error}"))?;
    link_of(hardware).ok_or_else(|| {
        format!(
            "its link is of type {hardware} (ARPHRD), neither Ethernet nor IP without a header: its packets would not be understood"
        )
    })
}

/// Tunnels, PPP, tun devices and WireGuard hand IP packets over without any header.
pub(crate) fn link_of(hardware: u16) -> Option<Link> {
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

/// Counters of an interface since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Packets received and handed on.
    pub received: u64,
    /// Packets that could not be received: bad checksum, bad length, no buffer.
    pub errors: u64,
    /// Packets received and dropped.
    pub dropped: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets that were to be sent and dropped.
    pub send_dropped: u64,
}

impl DeviceCounters {
    /// The counters of an interface of this thread's network namespace; `None` if there is no such interface.
    #[must_use]
    pub fn read(interface: &str) -> Option<Self> {
        // The columns: eight of receiving (bytes, packets, errs, drop, …), then eight of sending.
        let table = std::fs::read_to_string("/proc/thread-self/net/dev").ok()?;
        let line = table.lines().find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'))?;
        let mut columns = line.split_ascii_whitespace().map(|column| column.parse().ok());
        let mut column = |skip: usize| columns.nth(skip).flatten();
        let (received, errors, dropped) = (column(1)?, column(0)?, column(0)?);
        Some(DeviceCounters { received, errors, dropped, sent: column(5)?, send_dropped: column(1)? })
    }

    /// What was lost on the way in.
    pub(crate) fn losses(&self) -> Losses {
        let mut losses = Losses::default();
        losses.add(LossCause::Device, self.dropped);
        losses.add(LossCause::DeviceError, self.errors);
        losses
    }
}
