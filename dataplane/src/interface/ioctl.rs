//! Queries to an interface's driver: queues, counters, and whether it is up.
#![allow(
    unsafe_code,
    reason = "these queries are calls of ioctl, which takes pointers; this module makes them"
)]

use rustix::net::{AddressFamily, SocketType, socket};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETH_SS_STATS: u32 = 1;
const ETH_SS_FEATURES: u32 = 4;
/// Large receive offload, in the flags of `ETHTOOL_GFLAGS`.
const ETH_FLAG_LRO: u32 = 1 << 15;
/// Removal of VLAN tags from arriving packets, in the same flags.
const ETH_FLAG_RXVLAN: u32 = 1 << 8;
/// Generic receive offload by the device, among the names of `ETH_SS_FEATURES`.
const HARDWARE_GRO: &CStr = c"rx-gro-hw";

/// Maximum number of driver counters; some drivers have a dozen for each of hundreds of queues.
const MAX_COUNTERS: usize = 1 << 14;
/// Room for the counters of most drivers: clearing the maximum takes longer than the queries.
const USUAL_COUNTERS: usize = 1 << 10;
const NAME_BYTES: usize = 32;

/// `struct ethtool_gstrings` with room for `N` names: the kernel writes as many as exist.
#[repr(C)]
struct Names<const N: usize> {
    command: u32,
    set: u32,
    count: u32,
    names: [[u8; NAME_BYTES]; N],
}

/// Words of 32 features each; the kernel has two.
const FEATURE_WORDS: usize = 8;

/// `struct ethtool_gfeatures`, with room for more features than exist.
#[repr(C)]
struct Features {
    command: u32,
    count: u32,
    words: [FeatureWord; FEATURE_WORDS],
}

/// `struct ethtool_get_features_block`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FeatureWord {
    available: u32,
    requested: u32,
    active: u32,
    never_changed: u32,
}

/// `struct ethtool_stats`, with room for `N` counters.
#[repr(C)]
struct CounterValues<const N: usize> {
    command: u32,
    count: u32,
    values: [u64; N],
}

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    versions_and_bus: [u8; 144],
    counters: u32,
    rest: [u8; 12],
}

/// Handle for queries about an interface of the network namespace that it was opened in.
pub struct Interface {
    name: [libc::c_char; libc::IFNAMSIZ],
    socket: OwnedFd,
}

impl Interface {
    /// Opens a handle. The interface need not exist.
    ///
    /// # Errors
    /// The name is too long, or there is no socket left.
    pub fn new(interface: &str) -> io::Result<Self> {
        let mut name = [0; libc::IFNAMSIZ];
        if interface.len() >= name.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        name.iter_mut()
            .zip(interface.bytes())
            .for_each(|(place, byte)| *place = byte as libc::c_char);
        Ok(Interface { name, socket: socket(AddressFamily::INET, SocketType::DGRAM, None)? })
    }

    /// # Safety
    /// The call must do no more than read and write `request` and, if that holds a pointer, what the
    /// pointer points to, which must be valid for that.
    unsafe fn ask(&self, call: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: guaranteed by the caller. Where the C library declares the number as an int, its
        // bits are the same.
        match unsafe {
            libc::ioctl(self.socket.as_raw_fd(), call as _, std::ptr::from_mut(request))
        } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: a struct of integers, bytes and pointers; each may be zero.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_name = self.name;
        request
    }

    /// # Safety
    /// `answer` must be the structure that the command in its first word is defined with.
    unsafe fn ethtool<T>(&self, answer: &mut T) -> io::Result<()> {
        let mut request = self.request();
        request.ifr_ifru.ifru_data = std::ptr::from_mut(answer).cast();
        // SAFETY: the kernel reads and writes the structure of the command, which `answer` is, as the
        // caller guarantees. It lives until the call returns.
        unsafe { self.ask(libc::SIOCETHTOOL as libc::c_ulong, &mut request) }
    }

    /// Returns the number of receive queues; 1 if the driver does not report it.
    pub(crate) fn receive_queues(&self) -> u32 {
        let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
        // SAFETY: the structure of this command.
        match unsafe { self.ethtool(&mut channels) } {
            Ok(()) => (channels.rx + channels.combined).max(1),
            Err(_) => 1,
        }
    }

    /// Returns the driver's name; empty if unknown.
    pub(crate) fn driver(&self) -> String {
        let info = self.driver_info();
        let name = info.ok().and_then(|info| {
            CStr::from_bytes_until_nul(&info.driver).ok()?.to_str().ok().map(str::to_owned)
        });
        name.unwrap_or_default()
    }

    fn driver_info(&self) -> io::Result<DriverInfo> {
        // SAFETY: a struct of integers and bytes; each may be zero.
        let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, ..unsafe { std::mem::zeroed() } };
        // SAFETY: the structure of this command.
        unsafe { self.ethtool(&mut info)? };
        Ok(info)
    }

    /// Returns the driver's own counters by name, as `ethtool -S` shows them.
    pub(crate) fn statistics(&self) -> io::Result<Vec<(String, u64)>> {
        let there = self.driver_info()?.counters as usize;
        // The number may have grown since: the kernel writes all counters, so the buffer must be
        // much larger.
        if there <= USUAL_COUNTERS / 4 {
            self.named_counters::<USUAL_COUNTERS>()
        } else if there <= MAX_COUNTERS / 4 {
            self.named_counters::<MAX_COUNTERS>()
        } else {
            Err(io::Error::other(format!("its driver has {there} counters")))
        }
    }

    /// Returns the driver's counters; there must be far fewer than `N`.
    fn named_counters<const N: usize>(&self) -> io::Result<Vec<(String, u64)>> {
        let names = self.names::<N>(ETH_SS_STATS)?;
        // SAFETY: zeroed memory of a struct of integers; each may be zero. It is allocated on the
        // heap because of its size.
        let mut values: Box<CounterValues<N>> = unsafe { Box::new_zeroed().assume_init() };
        values.command = ETHTOOL_GSTATS;
        // SAFETY: the structure of this command, with room for all values.
        unsafe { self.ethtool(&mut *values)? };
        let count = names.count.min(values.count) as usize;
        let named = names.names.iter().zip(&values.values).take(count).map(|(name, value)| {
            let name =
                CStr::from_bytes_until_nul(name).map(CStr::to_string_lossy).unwrap_or_default();
            (name.into_owned(), *value)
        });
        Ok(named.collect())
    }

    /// Returns the names of a set, which must have far fewer than `N`.
    fn names<const N: usize>(&self, set: u32) -> io::Result<Box<Names<N>>> {
        // SAFETY: zeroed memory of a struct of integers and bytes; each may be zero. It is
        // allocated on the heap because of its size.
        let mut names: Box<Names<N>> = unsafe { Box::new_zeroed().assume_init() };
        (names.command, names.set) = (ETHTOOL_GSTRINGS, set);
        // SAFETY: the structure of this command, with room for all names.
        unsafe { self.ethtool(&mut *names)? };
        Ok(names)
    }

    /// Returns whether a feature is on, by its name in `ethtool -k`; false if unknown.
    fn has_feature(&self, feature: &CStr) -> bool {
        let Ok(names) = self.names::<USUAL_COUNTERS>(ETH_SS_FEATURES) else { return false };
        let words = [FeatureWord::default(); FEATURE_WORDS];
        let mut features =
            Features { command: ETHTOOL_GFEATURES, count: FEATURE_WORDS as u32, words };
        // SAFETY: the structure of this command; the kernel writes no more than `count` words.
        if unsafe { self.ethtool(&mut features) }.is_err() {
            return false;
        }
        let mut known = names.names.iter().take(names.count as usize);
        let number = known
            .position(|name| CStr::from_bytes_until_nul(name).is_ok_and(|name| name == feature));
        number.is_some_and(|number| {
            let word = features.words.get(number / 32).copied().unwrap_or_default();
            word.active >> (number % 32) & 1 == 1
        })
    }

    fn value(&self, command: u32) -> Option<u32> {
        let mut value = Value { command, data: 0 };
        // SAFETY: the structure of these commands.
        unsafe { self.ethtool(&mut value) }.ok()?;
        Some(value.data)
    }

    /// Returns whether the kernel or the device merges arriving packets: generic or large receive
    /// offload.
    pub(crate) fn merges_packets(&self) -> bool {
        self.value(ETHTOOL_GGRO).is_some_and(|on| on != 0) || self.has_large_receive_offload()
    }

    /// Returns whether the device itself merges arriving packets, before the kernel sees them.
    pub(crate) fn merges_in_device(&self) -> bool {
        self.has_large_receive_offload() || self.has_feature(HARDWARE_GRO)
    }

    fn has_large_receive_offload(&self) -> bool {
        self.value(ETHTOOL_GFLAGS).is_some_and(|flags| flags & ETH_FLAG_LRO != 0)
    }

    /// Returns whether the device removes VLAN tags from arriving packets.
    pub(crate) fn removes_vlan_tags(&self) -> bool {
        self.value(ETHTOOL_GFLAGS).is_some_and(|flags| flags & ETH_FLAG_RXVLAN != 0)
    }

    /// Returns the MTU: the largest packet without its Ethernet header, in bytes.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn mtu(&self) -> io::Result<u32> {
        let mut request = self.request();
        // SAFETY: the kernel writes a number into the request.
        unsafe { self.ask(libc::SIOCGIFMTU as libc::c_ulong, &mut request)? };
        // SAFETY: the number that was written.
        Ok(unsafe { request.ifr_ifru.ifru_mtu }.unsigned_abs())
    }

    /// Returns the link's hardware type (`ARPHRD_…`).
    pub(crate) fn hardware(&self) -> io::Result<u16> {
        let mut request = self.request();
        // SAFETY: the kernel writes an address into the request.
        unsafe { self.ask(libc::SIOCGIFHWADDR as libc::c_ulong, &mut request)? };
        // SAFETY: the address that was written.
        Ok(unsafe { request.ifr_ifru.ifru_hwaddr }.sa_family)
    }

    /// Returns whether it is up and has a carrier; `None` if it is gone.
    #[must_use]
    pub fn is_running(&self) -> Option<bool> {
        let mut request = self.request();
        // SAFETY: the kernel writes flags into the request.
        unsafe { self.ask(libc::SIOCGIFFLAGS as libc::c_ulong, &mut request) }.ok()?;
        // SAFETY: the flags that were written.
        let flags = libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags });
        Some(flags & libc::IFF_UP != 0 && flags & libc::IFF_RUNNING != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_those_of_the_kernel() {
        assert_eq!((size_of::<Channels>(), size_of::<DriverInfo>()), (36, 196));
        assert_eq!(std::mem::offset_of!(DriverInfo, counters), 180);
        assert_eq!(std::mem::offset_of!(Names<1>, names), 12);
        assert_eq!(std::mem::offset_of!(CounterValues<1>, values), 8);
        assert_eq!((std::mem::offset_of!(Features, words), size_of::<FeatureWord>()), (8, 16));
    }

    #[test]
    fn loopback_is_reported() {
        let loopback = Interface::new("lo").unwrap();
        assert_eq!(loopback.receive_queues(), 1);
        assert_eq!(loopback.hardware().unwrap(), libc::ARPHRD_LOOPBACK);
        assert!(loopback.mtu().unwrap() >= 1500);
        assert!(loopback.is_running().is_some());
        assert_eq!(loopback.driver(), "");
        // `loopback: on [fixed]` in the output of `ethtool -k lo`.
        assert!(loopback.has_feature(c"loopback"));
        assert!(!loopback.has_feature(c"rx-vlan-filter") && !loopback.has_feature(c"loop"));
        assert!(!loopback.merges_in_device());
        let nothing = Interface::new("no-such-device").unwrap();
        assert!(nothing.mtu().is_err() && nothing.is_running().is_none());
        assert!(!nothing.has_feature(c"loopback"));
        assert!(Interface::new("a-name-that-is-too-long").is_err());
    }
}
