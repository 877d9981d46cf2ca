//! Links: what keeps a program attached. They are asked and changed here, without the library's
//! help, which neither tells where a link is attached nor asks for the order of programs. A
//! [filter](super::clsact) has no link in the kernel, and is one here.
#![allow(
    unsafe_code,
    reason = "aya has no calls for it; this module makes system calls on structures of the kernel"
)]

use super::Mode;
use super::clsact::Classifier;
use crate::place::Direction;
use std::ffi::CString;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const BPF_OBJ_PIN: libc::c_int = 6;
const BPF_OBJ_GET: libc::c_int = 7;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const BPF_PROG_QUERY: libc::c_int = 16;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_LINK_UPDATE: libc::c_int = 29;
const BPF_LINK_DETACH: libc::c_int = 34;

const BPF_F_BEFORE: u32 = 1 << 3;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
const XDP_FLAGS_HW_MODE: u32 = 1 << 3;

/// Where a program can be attached (`enum bpf_attach_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Hooks {
    Xdp = 37,
    TcxIngress = 46,
    TcxEgress = 47,
}

impl Hooks {
    /// The TCX hook of a direction.
    pub(super) fn tcx(direction: Direction) -> Self {
        match direction {
            Direction::Ingress => Hooks::TcxIngress,
            Direction::Egress => Hooks::TcxEgress,
        }
    }
}

/// The parts of `union bpf_attr` that the commands read; what is beyond is zero.
#[repr(C)]
struct ObjectPath {
    path: u64,
    descriptor: u32,
    flags: u32,
}

#[repr(C)]
struct LinkCreate {
    program: RawFd,
    index: u32,
    hooks: u32,
    flags: u32,
    /// TCX: relative to what, and the revision expected; nothing.
    tcx: [u64; 2],
}

#[repr(C)]
struct LinkUpdate {
    link: RawFd,
    program: RawFd,
    flags: u32,
    expected: u32,
}

#[repr(C)]
struct LinkDetach {
    link: RawFd,
}

#[repr(C)]
struct ObjectInfo {
    descriptor: RawFd,
    length: u32,
    info: u64,
}

#[repr(C)]
struct ProgramQuery {
    index: u32,
    hooks: u32,
    flags: u32,
    attached: u32,
    programs: u64,
    count: u32,
    _pad: u32,
    program_flags: u64,
    links: u64,
    link_flags: u64,
    revision: u64,
}

/// The beginning of `struct bpf_link_info`, for links at interfaces.
#[repr(C)]
#[derive(Default)]
struct LinkInfo {
    kind: u32,
    id: u32,
    program: u32,
    _pad: u32,
    index: u32,
    rest: [u32; 11],
}

/// The beginning of `struct bpf_prog_info`.
#[repr(C)]
#[derive(Default)]
struct ProgramInfo {
    kind: u32,
    id: u32,
    tag: u64,
    machine_code_bytes: u32,
    instruction_bytes: u32,
    machine_code: u64,
    instructions: u64,
}

/// # Safety
/// `attributes` must be the structure of the command; pointers in it must be valid for what the
/// command reads and writes.
pub(super) unsafe fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: the kernel reads and writes as many bytes as it is told there are; the rest is the
    // caller's promise.
    match unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<T>()) } {
        -1 => Err(io::Error::last_os_error()),
        answer => Ok(answer),
    }
}

/// # Safety
/// As [`bpf`]; the command must answer with a new descriptor.
pub(super) unsafe fn descriptor<T>(
    command: libc::c_int,
    attributes: &mut T,
) -> io::Result<OwnedFd> {
    // SAFETY: as the caller promises.
    let descriptor = unsafe { bpf(command, attributes)? };
    let descriptor = RawFd::try_from(descriptor).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// A program at an interface. It is detached when this is dropped, unless it is pinned.
pub(super) enum Link {
    /// A `bpf_link`, of an XDP or TCX program.
    Bpf(OwnedFd),
    /// A filter of the `clsact` queueing discipline.
    Classifier(Classifier),
}

/// What the kernel knows of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attachment {
    /// The kernel's number of the link; 0 of a filter.
    pub(super) link: u32,
    /// The kernel's number of the program.
    pub(super) program: u32,
    /// The interface's number; `None` once the link is detached, or the interface gone.
    pub(super) index: Option<u32>,
}

impl Link {
    /// Attaches an XDP program.
    pub(super) fn xdp(program: BorrowedFd<'_>, index: u32, mode: Mode) -> io::Result<Self> {
        let flags = match mode {
            // The others have no modes, and nobody asks for one.
            Mode::Native | Mode::Tcx | Mode::Clsact => XDP_FLAGS_DRV_MODE,
            Mode::Skb => XDP_FLAGS_SKB_MODE,
            Mode::Offload => XDP_FLAGS_HW_MODE,
        };
        Self::create(program, index, Hooks::Xdp, flags)
    }

    /// Attaches a TCX program before all others: what these drop, or end the line with, is seen as
    /// well.
    pub(super) fn tcx(
        program: BorrowedFd<'_>,
        index: u32,
        direction: Direction,
    ) -> io::Result<Self> {
        Self::create(program, index, Hooks::tcx(direction), BPF_F_BEFORE)
    }

    fn create(program: BorrowedFd<'_>, index: u32, hooks: Hooks, flags: u32) -> io::Result<Self> {
        let program = program.as_raw_fd();
        let mut create = LinkCreate { program, index, hooks: hooks as u32, flags, tcx: [0; 2] };
        // SAFETY: the structure of this command, which makes a descriptor and has no pointers.
        unsafe { descriptor(BPF_LINK_CREATE, &mut create) }.map(Link::Bpf)
    }

    /// The descriptor that has to be pinned for the link to outlive this process.
    pub(super) fn pinnable(&self) -> BorrowedFd<'_> {
        match self {
            Link::Bpf(link) => link.as_fd(),
            Link::Classifier(classifier) => classifier.program().as_fd(),
        }
    }

    /// Puts another program in the place of the one that is attached; no packet is without a
    /// program meanwhile. A filter is made anew instead.
    pub(super) fn replace(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        let Link::Bpf(link) = self else { return Err(io::ErrorKind::Unsupported.into()) };
        let mut update = LinkUpdate {
            link: link.as_raw_fd(),
            program: program.as_raw_fd(),
            flags: 0,
            expected: 0,
        };
        // SAFETY: the structure of this command, which has no pointers.
        unsafe { bpf(BPF_LINK_UPDATE, &mut update) }.map(drop)
    }

    /// Takes the program off its interface at once. Dropping the last descriptor and pin does it
    /// too, but only after a grace period of the kernel, in which the interface still refuses the
    /// next program.
    pub(super) fn detach(&self) -> io::Result<()> {
        let link = match self {
            Link::Bpf(link) => link.as_raw_fd(),
            Link::Classifier(classifier) => return classifier.detach(),
        };
        let mut detach = LinkDetach { link };
        // SAFETY: the structure of this command, which has no pointers.
        unsafe { bpf(BPF_LINK_DETACH, &mut detach) }.map(drop)
    }

    /// Where it is attached, and what runs there.
    pub(super) fn attachment(&self) -> io::Result<Attachment> {
        let link = match self {
            Link::Bpf(link) => link,
            Link::Classifier(classifier) => {
                return Ok(Attachment {
                    link: 0,
                    program: classifier.number(),
                    index: classifier.attached_to()?,
                });
            }
        };
        let mut info = LinkInfo::default();
        let length = size_of::<LinkInfo>() as u32;
        let mut ask =
            ObjectInfo { descriptor: link.as_raw_fd(), length, info: &raw mut info as u64 };
        // SAFETY: the structure of this command, which writes no more than `length` bytes of
        // integers to where `info` points.
        unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &mut ask)? };
        const { assert!(offset_of!(LinkInfo, index) == 16, "what follows is aligned to eight bytes") };
        Ok(Attachment {
            link: info.id,
            program: info.program,
            index: (info.index != 0).then_some(info.index),
        })
    }

    /// Numbers of the programs that see packets before this one does.
    pub(super) fn before(&self, index: u32, direction: Direction) -> io::Result<Vec<u32>> {
        if let Link::Classifier(classifier) = self {
            return classifier.before();
        }
        let link = self.attachment()?.link;
        let order = order(index, Hooks::tcx(direction))?;
        Ok(order
            .into_iter()
            .take_while(|(_, other)| *other != link)
            .map(|(program, _)| program)
            .collect())
    }
}

/// Opens what is pinned: a link or a program.
pub(super) fn open(pin: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(pin.as_os_str().as_bytes())?;
    let mut get = ObjectPath { path: path.as_ptr() as u64, descriptor: 0, flags: 0 };
    // SAFETY: the structure of this command, which makes a descriptor; the path ends with a zero
    // and lives until it returns.
    unsafe { descriptor(BPF_OBJ_GET, &mut get) }
}

/// Pins a link or a program, so that it outlives this process.
pub(super) fn pin(pinned: BorrowedFd<'_>, pin: &Path) -> io::Result<()> {
    let path = CString::new(pin.as_os_str().as_bytes())?;
    let descriptor = pinned.as_raw_fd().unsigned_abs();
    let mut pin = ObjectPath { path: path.as_ptr() as u64, descriptor, flags: 0 };
    // SAFETY: the structure of this command; the path ends with a zero and lives until it returns.
    unsafe { bpf(BPF_OBJ_PIN, &mut pin) }.map(drop)
}

/// The kernel's number of a program.
pub(super) fn program_number(program: &OwnedFd) -> io::Result<u32> {
    let mut info = ProgramInfo::default();
    let length = size_of::<ProgramInfo>() as u32;
    let mut ask =
        ObjectInfo { descriptor: program.as_raw_fd(), length, info: &raw mut info as u64 };
    // SAFETY: the structure of this command, which writes no more than `length` bytes of integers
    // to where `info` points.
    unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &mut ask)? };
    Ok(info.id)
}

/// The instructions of a program as the verifier left them, of eight bytes each; none if the kernel
/// does not show them.
pub(super) fn instructions(program: BorrowedFd<'_>) -> io::Result<Vec<[u8; 8]>> {
    let mut info = ProgramInfo::default();
    let length = size_of::<ProgramInfo>() as u32;
    let mut ask =
        ObjectInfo { descriptor: program.as_raw_fd(), length, info: &raw mut info as u64 };
    // SAFETY: the structure of this command, which writes no more than `length` bytes of integers
    // to where `info` points.
    unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &mut ask)? };
    let mut instructions = vec![[0; 8]; info.instruction_bytes as usize / 8];
    let instruction_bytes = (instructions.len() * 8) as u32;
    info = ProgramInfo {
        instruction_bytes,
        instructions: instructions.as_mut_ptr() as u64,
        ..ProgramInfo::default()
    };
    let mut ask =
        ObjectInfo { descriptor: program.as_raw_fd(), length, info: &raw mut info as u64 };
    // SAFETY: as above; it writes no more than `instruction_bytes` to where `instructions` points,
    // which lives until it returns.
    unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &mut ask)? };
    // The kernel clears the pointer if it may not show them.
    if info.instructions == 0 { Ok(Vec::new()) } else { Ok(instructions) }
}

/// Whether the kernel has TCX. Before Linux 6.6, and where it was left out, it does not know the
/// hook.
pub(super) fn has_tcx(index: u32) -> bool {
    !order(index, Hooks::TcxIngress).is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL))
}

/// Programs at one hook that are told in order; more are of no interest.
const MOST: usize = 64;

/// The programs at a hook of an interface in the order in which they see packets: the numbers of
/// each and of the link that holds it, which is 0 for a program without one.
pub(super) fn order(index: u32, hooks: Hooks) -> io::Result<Vec<(u32, u32)>> {
    let (mut programs, mut links) = ([0_u32; MOST], [0_u32; MOST]);
    let mut query = ProgramQuery {
        index,
        hooks: hooks as u32,
        flags: 0,
        attached: 0,
        programs: programs.as_mut_ptr() as u64,
        count: MOST as u32,
        _pad: 0,
        program_flags: 0,
        links: links.as_mut_ptr() as u64,
        link_flags: 0,
        revision: 0,
    };
    // SAFETY: the structure of this command, which writes no more than `count` numbers to each of
    // the two arrays.
    match unsafe { bpf(BPF_PROG_QUERY, &mut query) } {
        // There are more, and the first were told.
        Err(error) if error.raw_os_error() != Some(libc::ENOSPC) => return Err(error),
        _ => {}
    }
    let count = (query.count as usize).min(MOST);
    Ok(programs.into_iter().zip(links).take(count).collect())
}

/// The cookie of this thread's network namespace: a number that no other namespace ever has.
pub(super) fn network_namespace() -> io::Result<u64> {
    const SO_NETNS_COOKIE: libc::c_int = 71;
    let any = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        None,
    )?;
    let (mut cookie, mut length) = (0_u64, size_of::<u64>() as libc::socklen_t);
    // SAFETY: the kernel writes no more than `length` bytes, and how many they are.
    let outcome = unsafe {
        libc::getsockopt(
            any.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if outcome == -1 { Err(io::Error::last_os_error()) } else { Ok(cookie) }
}
