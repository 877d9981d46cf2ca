//! Network interfaces as ports of the model: frames in both directions as they are on the wire.
#![allow(unsafe_code, reason = "packet sockets; this module makes nothing but their system calls")]

use std::ffi::CString;
use std::io;
use std::mem::{offset_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Maximum length of a frame, with segmentation offload on a virtual link.
const LONGEST: usize = 1 << 16;
const ADDRESSES: usize = 12;
const TAG: usize = 4;
/// Size of the kernel's queue while the model is busy, in bytes.
const QUEUE: libc::c_int = 8 << 20;

/// Network interface of this machine, in promiscuous mode. Receives frames that arrive at it, not
/// those sent through it.
#[derive(Debug)]
pub struct Wire {
    socket: OwnedFd,
    interface: String,
    lost: u64,
    frame: Box<[u8; LONGEST + TAG]>,
}

impl Wire {
    /// Opens an interface of this thread's network namespace. Requires CAP_NET_RAW.
    ///
    /// # Errors
    /// There is no such interface, or the capability is missing.
    pub fn open(interface: &str) -> io::Result<Self> {
        let all = (libc::ETH_P_ALL as u16).to_be();
        let name = CString::new(interface)?;
        // SAFETY: `name` ends with a zero byte.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: takes numbers only. Protocol 0: nothing is received before `bind`.
        let socket = checked(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
        // SAFETY: the descriptor is new and not owned elsewhere.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let wire = Wire {
            socket,
            interface: interface.to_owned(),
            lost: 0,
            frame: Box::new([0; LONGEST + TAG]),
        };
        wire.set(libc::SOL_SOCKET, libc::SO_RCVBUF, &QUEUE)?;
        wire.set(libc::SOL_PACKET, libc::PACKET_AUXDATA, &1_i32)?;
        wire.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1_i32)?;
        // SAFETY: plain numbers, for which zero is a value.
        let (mut member, mut address) =
            unsafe { (zeroed::<libc::packet_mreq>(), zeroed::<libc::sockaddr_ll>()) };
        member.mr_ifindex = index as libc::c_int;
        member.mr_type = libc::PACKET_MR_PROMISC as u16;
        wire.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &member)?;
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = all;
        address.sll_ifindex = index as libc::c_int;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: `address` has `length` bytes, and is only read.
        checked(unsafe { libc::bind(wire.descriptor(), (&raw const address).cast(), length) })?;
        Ok(wire)
    }

    /// Returns the name of the interface.
    #[must_use]
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Returns the next frame that has arrived, with its VLAN tags; `None` if no frame has arrived.
    ///
    /// # Errors
    /// The interface was removed.
    pub fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        // The frame is stored after room for the tag that the kernel removes.
        let part = &mut self.frame[TAG..];
        let mut vector = libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() };
        // Aligned as control messages must be, and larger than the requested one needs.
        let mut control = [0_u64; 16];
        // SAFETY: plain numbers and pointers, for which zero is a value.
        let mut message = unsafe { zeroed::<libc::msghdr>() };
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: `message` points to buffers of the lengths it names, which live until the call
        // ends.
        let received = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, 0) };
        let length = match usize::try_from(received) {
            Ok(length) => length,
            Err(_) => {
                let error = io::Error::last_os_error();
                // An interface that is down receives nothing, and may come up again.
                let nothing =
                    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NetworkDown);
                return if nothing { Ok(None) } else { Err(error) };
            }
        };
        match tag(&message) {
            Some(tag) if length >= ADDRESSES => {
                self.frame.copy_within(TAG..TAG + ADDRESSES, 0);
                self.frame[ADDRESSES..ADDRESSES + TAG].copy_from_slice(&tag);
                Ok(Some(&self.frame[..TAG + length]))
            }
            _ => Ok(Some(&self.frame[TAG..TAG + length])),
        }
    }

    /// Sends a frame. Returns `false` if the interface's queue is full: the frame is lost, as on a
    /// switch.
    ///
    /// # Errors
    /// The interface is down or was removed, or the frame is too long for it.
    pub fn send(&self, frame: &[u8]) -> io::Result<bool> {
        // SAFETY: `frame` has the length that is passed, and is only read.
        let sent = unsafe { libc::send(self.descriptor(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent >= 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        let full = error.kind() == io::ErrorKind::WouldBlock
            || error.raw_os_error() == Some(libc::ENOBUFS);
        if full { Ok(false) } else { Err(error) }
    }

    /// Returns the number of frames that were lost to a full queue since the wire was opened.
    ///
    /// # Errors
    /// Errors of the system call.
    pub fn lost(&mut self) -> io::Result<u64> {
        // SAFETY: plain numbers, for which zero is a value.
        let mut statistics = unsafe { zeroed::<libc::tpacket_stats>() };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        let to = (&raw mut statistics).cast();
        // SAFETY: the kernel writes at most `length` bytes to `statistics`, which has as many.
        checked(unsafe {
            libc::getsockopt(
                self.descriptor(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                to,
                &raw mut length,
            )
        })?;
        // The kernel counts since the last query.
        self.lost += u64::from(statistics.tp_drops);
        Ok(self.lost)
    }

    fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn set<T>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
        let length = size_of::<T>() as libc::socklen_t;
        // SAFETY: `value` has `length` bytes, and is only read.
        checked(unsafe {
            libc::setsockopt(self.descriptor(), level, option, (&raw const *value).cast(), length)
        })?;
        Ok(())
    }
}

/// Waits until a frame has arrived at one of the wires, at most this long.
///
/// # Errors
/// Errors of the system call.
pub fn wait(wires: &[Wire], longest: Duration) -> io::Result<()> {
    let polled =
        |wire: &Wire| libc::pollfd { fd: wire.descriptor(), events: libc::POLLIN, revents: 0 };
    let mut polled: Vec<libc::pollfd> = wires.iter().map(polled).collect();
    let milliseconds = libc::c_int::try_from(longest.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: `polled` has as many elements as passed, which live until the call returns.
    let ready = checked(unsafe {
        libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, milliseconds)
    });
    match ready {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

/// Returns the outermost VLAN tag, which the kernel removes from a frame and reports separately.
fn tag(message: &libc::msghdr) -> Option<[u8; TAG]> {
    // SAFETY: `message` was filled by `recvmsg`, and its control buffer lives in the caller until
    // this function returns.
    let header = unsafe { libc::CMSG_FIRSTHDR(message).as_ref() }?;
    let whole = header.cmsg_len as usize >= offset_of!(Auxiliary, end);
    if header.cmsg_level != libc::SOL_PACKET || header.cmsg_type != libc::PACKET_AUXDATA || !whole {
        return None;
    }
    // SAFETY: the message is of this type and whole, as checked above; it may be unaligned.
    let data = unsafe { libc::CMSG_DATA(header).cast::<libc::tpacket_auxdata>().read_unaligned() };
    if data.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let protocol = if data.tp_status & libc::TP_STATUS_VLAN_TPID_VALID == 0 {
        0x8100
    } else {
        data.tp_vlan_tpid
    };
    let ([a, b], [c, d]) = (protocol.to_be_bytes(), data.tp_vlan_tci.to_be_bytes());
    Some([a, b, c, d])
}

/// Control message with the auxiliary data.
#[repr(C)]
struct Auxiliary {
    header: libc::cmsghdr,
    data: libc::tpacket_auxdata,
    end: [u8; 0],
}

fn checked(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}
