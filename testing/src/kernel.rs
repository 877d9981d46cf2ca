//! Actions of other programs on links and hooks, with separate system calls.
#![allow(unsafe_code, reason = "system calls on structures of the kernel")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const PROG_LOAD: libc::c_int = 5;
const OBJ_GET: libc::c_int = 7;
const LINK_CREATE: libc::c_int = 28;
const LINK_UPDATE: libc::c_int = 29;
const LINK_DETACH: libc::c_int = 34;

/// Makes the system call `bpf` with its attributes as 64-bit words, as they are in memory on a
/// little-endian machine.
fn bpf(command: libc::c_int, attributes: &[u64]) -> io::Result<i32> {
    // SAFETY: the kernel reads the attributes, as many bytes as `size_of_val` returns, and what the
    // pointers among them point to. The callers below keep that alive until the call returns.
    match unsafe {
        libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), size_of_val(attributes))
    } {
        -1 => Err(io::Error::last_os_error()),
        answer => Ok(answer as i32),
    }
}

fn descriptor(command: libc::c_int, attributes: &[u64]) -> io::Result<OwnedFd> {
    // SAFETY: these commands return a new descriptor, which has no other owner.
    bpf(command, attributes).map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn both(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn raw(descriptor: &OwnedFd) -> u32 {
    descriptor.as_raw_fd() as u32
}

/// Kinds of programs and hooks.
const XDP: (u32, u32) = (6, 37);
const TCX_INGRESS: (u32, u32) = (3, 46);
const TCX_EGRESS: (u32, u32) = (3, 47);

/// A program that returns the same verdict for every packet.
pub struct Other {
    program: OwnedFd,
    hook: u32,
}

impl Other {
    /// Loads an XDP program that passes every packet.
    pub fn xdp() -> Self {
        Self::load(XDP, 2)
    }

    /// Loads a TCX program that accepts every packet finally (TCX_PASS): later programs see none.
    pub fn tcx() -> Self {
        Self::load(TCX_EGRESS, 0)
    }

    /// Loads a TCX program that drops every packet that arrives (TCX_DROP).
    pub fn tcx_dropping() -> Self {
        Self::load(TCX_INGRESS, 2)
    }

    fn load((kind, hook): (u32, u32), verdict: u32) -> Self {
        // r0 = verdict; exit
        let instructions = [both(0xb7, verdict), 0x95];
        let license = c"GPL";
        // The kernel replaces programs only by those that were loaded for the same hook.
        let loaded_for = if hook == XDP.1 { both(0, hook) } else { 0 };
        let (code, license) = (instructions.as_ptr() as u64, license.as_ptr() as u64);
        let program =
            descriptor(PROG_LOAD, &[both(kind, 2), code, license, 0, 0, 0, 0, 0, loaded_for]);
        Other { program: program.unwrap(), hook }
    }

    /// Attaches it before all others, until the descriptor is closed.
    pub fn attach(&self, interface: &str) -> io::Result<OwnedFd> {
        const BEFORE: u32 = 1 << 3;
        const NATIVE: u32 = 1 << 2;
        self.attach_with(interface, if self.hook == XDP.1 { NATIVE } else { BEFORE })
    }

    /// Attaches an XDP program in the kernel's generic path, until the descriptor is closed.
    pub fn attach_generic(&self, interface: &str) -> io::Result<OwnedFd> {
        const GENERIC: u32 = 1 << 1;
        self.attach_with(interface, GENERIC)
    }

    fn attach_with(&self, interface: &str, flags: u32) -> io::Result<OwnedFd> {
        let index = nix::net::if_::if_nametoindex(interface).unwrap();
        descriptor(LINK_CREATE, &[both(raw(&self.program), index), both(self.hook, flags), 0, 0])
    }

    /// Replaces the program of a pinned link.
    pub fn usurp(&self, pin: &Path) {
        bpf(LINK_UPDATE, &[both(raw(&open(pin)), raw(&self.program)), 0]).unwrap();
    }
}

fn open(pin: &Path) -> OwnedFd {
    let path = CString::new(pin.as_os_str().as_bytes()).unwrap();
    descriptor(OBJ_GET, &[path.as_ptr() as u64, 0]).unwrap()
}

/// Detaches a pinned link from its interface, as `bpftool link detach` does.
pub fn detach(pin: &Path) {
    bpf(LINK_DETACH, &[u64::from(raw(&open(pin)))]).unwrap();
}
