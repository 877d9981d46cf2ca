//! Ending a pinned link at once. Removing its pin ends it too, but only after a grace period of the kernel, in which the interface
//! still refuses the next program.
#![allow(unsafe_code, reason = "aya has no call for it; this module makes two system calls")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const BPF_OBJ_GET: libc::c_int = 7;
const BPF_LINK_DETACH: libc::c_int = 34;

/// The part of `union bpf_attr` that BPF_OBJ_GET reads.
#[repr(C)]
struct ObjectGet {
    path: u64,
    descriptor: u32,
    flags: u32,
}

/// The part of `union bpf_attr` that BPF_LINK_DETACH reads.
#[repr(C)]
struct LinkDetach {
    descriptor: RawFd,
}

fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_long> {
    // SAFETY: the kernel reads as many bytes as it is told there are, and these commands write none.
    match unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *attributes, size_of::<T>()) } {
        -1 => Err(io::Error::last_os_error()),
        answer => Ok(answer),
    }
}

/// Takes the program of a pinned link off its interface. The pin stays.
pub(super) fn detach(pin: &Path) -> io::Result<()> {
    let path = CString::new(pin.as_os_str().as_bytes())?;
    let get = ObjectGet { path: path.as_ptr() as u64, descriptor: 0, flags: 0 };
    let descriptor = RawFd::try_from(bpf(BPF_OBJ_GET, &get)?).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows of it.
    let link = unsafe { OwnedFd::from_raw_fd(descriptor) };
    bpf(BPF_LINK_DETACH, &LinkDetach { descriptor: link.as_raw_fd() }).map(drop)
}
