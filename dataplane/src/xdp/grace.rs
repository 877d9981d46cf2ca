//! Waiting for packets in flight: a grace period of read-copy-update, which programs in the receive
//! path are under.
#![allow(
    unsafe_code,
    reason = "aya makes no maps of maps, and the kernel offers membarrier as a system call; this module makes them"
)]

use super::link::{bpf, descriptor};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// How a rotation waits for packets in flight. Both wait for the same, and take as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The system call `membarrier`, which kernels with CPUs without ticks (`nohz_full`) do not
    /// offer.
    Membarrier,
    /// A change of a map of maps, after which the kernel waits until no program uses what was there
    /// before.
    MapOfMaps,
}

impl Wait {
    /// Both ways, the first that works is taken.
    pub const ALL: [Wait; 2] = [Wait::Membarrier, Wait::MapOfMaps];

    /// How it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Wait::Membarrier => "membarrier",
            Wait::MapOfMaps => "map of maps",
        }
    }
}

/// A way to wait that works here.
pub(super) enum Grace {
    Membarrier,
    /// The outer map and the one in it.
    MapOfMaps(OwnedFd, OwnedFd),
}

impl Grace {
    /// The way that is wanted, else the first that works.
    pub(super) fn choose(wanted: Option<Wait>) -> io::Result<Self> {
        match wanted {
            Some(Wait::Membarrier) => Self::membarrier(),
            Some(Wait::MapOfMaps) => Self::map_of_maps(),
            None => Self::membarrier().or_else(|_| Self::map_of_maps()),
        }
    }

    pub(super) fn wait_of(&self) -> Wait {
        match self {
            Grace::Membarrier => Wait::Membarrier,
            Grace::MapOfMaps(..) => Wait::MapOfMaps,
        }
    }

    fn membarrier() -> io::Result<Self> {
        let offered = membarrier(MEMBARRIER_CMD_QUERY)?;
        let global = libc::c_long::from(MEMBARRIER_CMD_GLOBAL);
        if offered & global != 0 {
            Ok(Grace::Membarrier)
        } else {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    fn map_of_maps() -> io::Result<Self> {
        let inner = map(BPF_MAP_TYPE_ARRAY, 0)?;
        let outer = map(BPF_MAP_TYPE_ARRAY_OF_MAPS, inner.as_raw_fd())?;
        let grace = Grace::MapOfMaps(outer, inner);
        // It is as well to know now whether it works.
        grace.wait()?;
        Ok(grace)
    }

    /// Returns once every program that was running when it was called has finished.
    pub(super) fn wait(&self) -> io::Result<()> {
        let (outer, inner) = match self {
            Grace::Membarrier => return membarrier(MEMBARRIER_CMD_GLOBAL).map(drop),
            Grace::MapOfMaps(outer, inner) => (outer, inner),
        };
        let (key, value) = (0_u32, inner.as_raw_fd());
        let mut update = MapUpdate {
            map: outer.as_raw_fd(),
            _pad: 0,
            key: &raw const key as u64,
            value: &raw const value as u64,
            flags: 0,
        };
        // SAFETY: the structure of this command; key and value are of the sizes that the map was
        // made with, and live until it returns.
        unsafe { bpf(BPF_MAP_UPDATE_ELEM, &mut update) }.map(drop)
    }
}

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_MAP_TYPE_ARRAY_OF_MAPS: u32 = 12;

/// The parts of `union bpf_attr` that the commands read; what is beyond is zero.
#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
    inner: RawFd,
}

#[repr(C)]
struct MapUpdate {
    map: RawFd,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// A map of one element of four bytes.
fn map(kind: u32, inner: RawFd) -> io::Result<OwnedFd> {
    let mut create = MapCreate { kind, key_size: 4, value_size: 4, entries: 1, flags: 0, inner };
    // SAFETY: the structure of this command, which makes a descriptor and has no pointers.
    unsafe { descriptor(BPF_MAP_CREATE, &mut create) }
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
