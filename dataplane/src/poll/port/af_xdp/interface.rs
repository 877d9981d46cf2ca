//! What an interface is like: its queues, its driver, and whether it is up.
#![allow(unsafe_code, reason = "these questions are calls of ioctl, which takes pointers; this module makes them")]

use rustix::net::{AddressFamily, SocketType, socket};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

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
    rest: [u8; 160],
}

/// A way to ask about an interface of the network namespace that it was opened in.
pub(crate) struct Interface {
    name: [libc::c_char; libc::IFNAMSIZ],
    socket: OwnedFd,
}

impl Interface {
    pub(crate) fn new(interface: &str) -> io::Result<Self> {
        let mut name = [0; libc::IFNAMSIZ];
        if interface.len() >= name.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        name.iter_mut().zip(interface.bytes()).for_each(|(place, byte)| *place = byte as libc::c_char);
        Ok(Interface { name, socket: socket(AddressFamily::INET, SocketType::DGRAM, None)? })
    }

    /// # Safety
    /// The call must do no more than read and write `request` and, if that holds a pointer, what it leads to.
    unsafe fn ask(&self, call: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: as the caller promises. Where the C library takes the number as an int, its bits are the same.
        match unsafe { libc::ioctl(self.socket.as_raw_fd(), call as _, std::ptr::from_mut(request)) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: a struct of integers, bytes and pointers, all of which may be zero.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_name = self.name;
        request
    }

    /// # Safety
    /// `answer` must be the structure that the command in its first word is defined with.
    unsafe fn ethtool<T>(&self, answer: &mut T) -> io::Result<()> {
        let mut request = self.request();
        request.ifr_ifru.ifru_data = std::ptr::from_mut(answer).cast();
        // SAFETY: the kernel reads and writes the structure of the command, which lives until the call returns.
        unsafe { self.ask(libc::SIOCETHTOOL as libc::c_ulong, &mut request) }
    }

    /// Queues that packets are received on; 1 if the driver does not tell.
    pub(crate) fn receive_queues(&self) -> u32 {
        let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
        // SAFETY: the structure of this command.
        match unsafe { self.ethtool(&mut channels) } {
            Ok(()) => (channels.rx + channels.combined).max(1),
            Err(_) => 1,
        }
    }

    /// The driver's name; nothing if it has none.
    pub(super) fn driver(&self) -> String {
        let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
        // SAFETY: the structure of this command.
        let told = unsafe { self.ethtool(&mut info) };
        let name = told.ok().and_then(|()| CStr::from_bytes_until_nul(&info.driver).ok()?.to_str().ok());
        name.unwrap_or_default().to_owned()
    }

    /// The largest packet without its Ethernet header, in bytes.
    pub(crate) fn mtu(&self) -> io::Result<u32> {
        let mut request = self.request();
        // SAFETY: the kernel writes a number into the request.
        unsafe { self.ask(libc::SIOCGIFMTU as libc::c_ulong, &mut request)? };
        // SAFETY: the number that was written.
        Ok(unsafe { request.ifr_ifru.ifru_mtu }.unsigned_abs())
    }

    /// What kind of link it has (`ARPHRD_…`).
    pub(crate) fn hardware(&self) -> io::Result<u16> {
        let mut request = self.request();
        // SAFETY: the kernel writes an address into the request.
        unsafe { self.ask(libc::SIOCGIFHWADDR as libc::c_ulong, &mut request)? };
        // SAFETY: the address that was written.
        Ok(unsafe { request.ifr_ifru.ifru_hwaddr }.sa_family)
    }

    /// Whether it is up and has a carrier; `None` if it is gone.
    pub(crate) fn is_running(&self) -> Option<bool> {
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
    }

    #[test]
    fn loopback_is_told() {
        let loopback = Interface::new("lo").unwrap();
        assert_eq!(loopback.receive_queues(), 1);
        assert_eq!(loopback.hardware().unwrap(), libc::ARPHRD_LOOPBACK);
        assert!(loopback.mtu().unwrap() >= 1500);
        assert!(loopback.is_running().is_some());
        assert_eq!(loopback.driver(), "");
        let nothing = Interface::new("no-such-device").unwrap();
        assert!(nothing.mtu().is_err() && nothing.is_running().is_none());
        assert!(Interface::new("a-name-that-is-too-long").is_err());
    }
}
