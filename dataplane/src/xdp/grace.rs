//! Waiting for packets in flight: an RCU grace period, which covers programs in the receive path.
#![allow(
    unsafe_code,
    reason = "the kernel offers membarrier as a system call; this module makes it"
)]

use super::syscall::{new_array, new_array_of_maps, put_map};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Method by which a rotation waits for packets in flight. Both wait equally long for the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMethod {
    /// The system call `membarrier`, unavailable on kernels with tickless CPUs (`nohz_full`).
    Membarrier,
    /// An update of a map of maps, after which the kernel waits until no program uses the old
    /// value.
    MapOfMaps,
}

impl WaitMethod {
    /// Both methods, in the order of attempts.
    pub const ALL: [WaitMethod; 2] = [WaitMethod::Membarrier, WaitMethod::MapOfMaps];

    /// Returns the name of the method.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            WaitMethod::Membarrier => "membarrier",
            WaitMethod::MapOfMaps => "map of maps",
        }
    }
}

/// A working method.
pub(super) enum GracePeriod {
    Membarrier,
    /// Outer and inner map.
    MapOfMaps(OwnedFd, OwnedFd),
}

impl GracePeriod {
    /// Returns the requested method, or the first that works.
    pub(super) fn choose(wanted: Option<WaitMethod>) -> io::Result<Self> {
        match wanted {
            Some(WaitMethod::Membarrier) => Self::membarrier(),
            Some(WaitMethod::MapOfMaps) => Self::map_of_maps(),
            None => Self::membarrier().or_else(|_| Self::map_of_maps()),
        }
    }

    pub(super) fn wait_of(&self) -> WaitMethod {
        match self {
            GracePeriod::Membarrier => WaitMethod::Membarrier,
            GracePeriod::MapOfMaps(..) => WaitMethod::MapOfMaps,
        }
    }

    fn membarrier() -> io::Result<Self> {
        let offered = membarrier(MEMBARRIER_CMD_QUERY)?;
        let global = libc::c_long::from(MEMBARRIER_CMD_GLOBAL);
        if offered & global != 0 {
            Ok(GracePeriod::Membarrier)
        } else {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    fn map_of_maps() -> io::Result<Self> {
        let inner = new_array("", 4, 1, 0)?;
        let outer = new_array_of_maps("", 1, inner.as_fd())?;
        let grace = GracePeriod::MapOfMaps(outer, inner);
        // Tested now, so that a failure is known early.
        grace.wait()?;
        Ok(grace)
    }

    /// Waits until every program that is running now has finished.
    pub(super) fn wait(&self) -> io::Result<()> {
        let (outer, inner) = match self {
            GracePeriod::Membarrier => return membarrier(MEMBARRIER_CMD_GLOBAL).map(drop),
            GracePeriod::MapOfMaps(outer, inner) => (outer, inner),
        };
        put_map(outer.as_fd(), 0, inner.as_fd())
    }
}

const MEMBARRIER_CMD_QUERY: libc::c_int = 0;
const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;

fn membarrier(command: libc::c_int) -> io::Result<libc::c_long> {
    // SAFETY: a system call without pointers.
    match unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        answer => Ok(answer),
    }
}
