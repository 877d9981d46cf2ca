//! Links: the objects that keep a program attached. Queries and changes are system calls of this
//! module, since aya reports neither where a link is attached nor the order of programs. A
//! [filter](super::clsact) has no link in the kernel; here it is treated as one.
#![allow(
    unsafe_code,
    reason = "aya has no calls for it; this module makes system calls on structures of the kernel"
)]

use super::Mode;
use super::clsact::Classifier;
use super::syscall::{self, BPF_OBJ_GET_INFO_BY_FD, ObjectInfo, bpf, descriptor};
use crate::place::Direction;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

const BPF_PROG_QUERY: libc::c_int = 16;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_LINK_UPDATE: libc::c_int = 29;
const BPF_LINK_DETACH: libc::c_int = 34;

const BPF_F_BEFORE: u32 = 1 << 3;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
const XDP_FLAGS_HW_MODE: u32 = 1 << 3;

/// Attachment type of a program (`enum bpf_attach_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Hooks {
    Xdp = 37,
    TcxIngress = 46,
    TcxEgress = 47,
}

impl Hooks {
    /// Returns the TCX hook of a direction.
    pub(super) fn tcx(direction: Direction) -> Self {
        match direction {
            Direction::Ingress => Hooks::TcxIngress,
            Direction::Egress => Hooks::TcxEgress,
        }
    }
}

#[repr(C)]
struct LinkCreate {
    program: RawFd,
    index: u32,
    hooks: u32,
    flags: u32,
    /// TCX: reference program and expected revision; none.
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

/// Start of `struct bpf_link_info`, for links at interfaces.
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

/// A program attached to an interface. Detached on drop, unless it is pinned.
pub(super) enum ProgramLink {
    /// A `bpf_link`, of an XDP or TCX program.
    Bpf {
        link: OwnedFd,
        /// The program, if this process attached it and may not open it by its ID.
        program: Option<OwnedFd>,
    },
    /// A filter of the `clsact` queueing discipline.
    Classifier(Classifier),
}

/// Where an interface went that left this network namespace. It may be back.
pub(super) enum Departure {
    /// It does not exist; the kernel has removed the program.
    Gone,
    /// To another network namespace; the program was detached.
    Moved,
    /// To another network namespace; the program cannot be detached.
    Attached(io::Error),
}

/// State of a link in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attachment {
    /// ID of the link; 0 for a filter.
    pub(super) link: u32,
    /// ID of the program.
    pub(super) program: u32,
    /// Index of the interface; `None` once the link is detached or the interface gone.
    pub(super) index: Option<u32>,
}

impl ProgramLink {
    /// Attaches a program to a hook other than the classifier's.
    pub(super) fn attach(
        program: BorrowedFd<'_>,
        index: u32,
        direction: Direction,
        mode: Mode,
    ) -> io::Result<Self> {
        if mode == Mode::Tcx {
            Self::tcx(program, index, direction)
        } else {
            Self::xdp(program, index, mode)
        }
    }

    /// Attaches an XDP program.
    pub(super) fn xdp(program: BorrowedFd<'_>, index: u32, mode: Mode) -> io::Result<Self> {
        let flags = match mode {
            // TCX and clsact are never used for XDP programs.
            Mode::Native | Mode::Tcx | Mode::Clsact => XDP_FLAGS_DRV_MODE,
            Mode::Skb => XDP_FLAGS_SKB_MODE,
            Mode::Offload => XDP_FLAGS_HW_MODE,
        };
        Self::create(program, index, Hooks::Xdp, flags)
    }

    /// Attaches a TCX program before all others, so that it also sees packets that those drop.
    fn tcx(program: BorrowedFd<'_>, index: u32, direction: Direction) -> io::Result<Self> {
        Self::create(program, index, Hooks::tcx(direction), BPF_F_BEFORE)
    }

    fn create(program: BorrowedFd<'_>, index: u32, hooks: Hooks, flags: u32) -> io::Result<Self> {
        let program = program.as_raw_fd();
        let mut create = LinkCreate { program, index, hooks: hooks as u32, flags, tcx: [0; 2] };
        // SAFETY: the structure of this command, which creates a descriptor and has no pointers.
        unsafe { descriptor(BPF_LINK_CREATE, &mut create) }.map(Self::opened)
    }

    /// Returns the link with this descriptor.
    pub(super) fn opened(link: OwnedFd) -> Self {
        ProgramLink::Bpf { link, program: None }
    }

    /// Prepares to [attach its present program again](Self::attach_again): keeps a descriptor of it
    /// if this process may not open it by its ID.
    pub(super) fn hold(&mut self, present: BorrowedFd<'_>) {
        let may_open =
            self.attachment().is_ok_and(|attachment| syscall::program(attachment.program).is_ok());
        if let ProgramLink::Bpf { program, .. } = self {
            *program = if may_open { None } else { present.try_clone_to_owned().ok() };
        }
    }

    /// Attaches the program with this ID, which it had attached before, again: by the same link if
    /// that is still at the interface, otherwise by a new one.
    ///
    /// # Errors
    /// The kernel refuses. [`io::ErrorKind::NotFound`]: the program cannot be opened.
    pub(super) fn attach_again(
        &mut self,
        number: Option<u32>,
        index: u32,
        direction: Direction,
        mode: Mode,
    ) -> io::Result<()> {
        if let ProgramLink::Classifier(classifier) = self {
            return classifier.attach_again();
        }
        let program = match &*self {
            ProgramLink::Bpf { program: Some(program), .. } => program.try_clone(),
            _ => number.map_or(Err(io::ErrorKind::NotFound.into()), syscall::program),
        };
        let program = program.map_err(|_| io::Error::from(io::ErrorKind::NotFound))?;
        if self.attachment().is_ok_and(|attachment| attachment.index == Some(index)) {
            return self.replace(program.as_fd());
        }
        *self = Self::attach(program.as_fd(), index, direction, mode)?;
        self.hold(program.as_fd());
        Ok(())
    }

    /// Returns the descriptor to pin, so that the link outlives this process.
    pub(super) fn pinnable(&self) -> BorrowedFd<'_> {
        match self {
            ProgramLink::Bpf { link, .. } => link.as_fd(),
            ProgramLink::Classifier(classifier) => classifier.program().as_fd(),
        }
    }

    /// Replaces the attached program without a gap. Not supported for a filter, which is recreated
    /// instead.
    pub(super) fn replace(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        let ProgramLink::Bpf { link, .. } = self else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let mut update = LinkUpdate {
            link: link.as_raw_fd(),
            program: program.as_raw_fd(),
            flags: 0,
            expected: 0,
        };
        // SAFETY: the structure of this command, which has no pointers.
        unsafe { bpf(BPF_LINK_UPDATE, &mut update) }.map(drop)
    }

    /// Detaches the program at once. Dropping the last descriptor and pin would detach it too, but
    /// only after a grace period of the kernel, in which the interface still refuses the next
    /// program.
    pub(super) fn detach(&self) -> io::Result<()> {
        let link = match self {
            ProgramLink::Bpf { link, .. } => link.as_raw_fd(),
            ProgramLink::Classifier(classifier) => return classifier.detach(),
        };
        let mut detach = LinkDetach { link };
        // SAFETY: the structure of this command, which has no pointers.
        unsafe { bpf(BPF_LINK_DETACH, &mut detach) }.map(drop)
    }

    /// Detaches the program from an interface that left this network namespace, and returns where
    /// it went. Packets that cross it in another namespace must not be counted.
    pub(super) fn leave(&self) -> Departure {
        match self.attachment() {
            // A filter is attached if it was added again before the return was noticed.
            Ok(Attachment { index: Some(_), .. }) => {
                self.detach().map_or_else(Departure::Attached, |()| {
                    if self.follows_interface() { Departure::Moved } else { Departure::Gone }
                })
            }
            _ => Departure::Gone,
        }
    }

    /// Returns whether the program stays attached to an interface that moves to another namespace.
    /// The kernel removes filters.
    pub(super) fn follows_interface(&self) -> bool {
        matches!(self, ProgramLink::Bpf { .. })
    }

    /// Returns where it is attached, and the program that runs there.
    pub(super) fn attachment(&self) -> io::Result<Attachment> {
        let link = match self {
            ProgramLink::Bpf { link, .. } => link,
            ProgramLink::Classifier(classifier) => {
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

    /// Returns the IDs of the programs that run before this one.
    pub(super) fn before(&self, index: u32, direction: Direction) -> io::Result<Vec<u32>> {
        if let ProgramLink::Classifier(classifier) = self {
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

/// Returns whether the kernel has TCX. Before Linux 6.6, and if it was configured without, the hook
/// is unknown.
pub(super) fn has_tcx(index: u32) -> bool {
    !order(index, Hooks::TcxIngress).is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL))
}

/// Maximum number of programs listed for one hook.
const MAX_PROGRAMS: usize = 64;

/// Returns the programs at a hook of an interface in the order in which they run: the IDs of each
/// program and of its link, which is 0 without a link.
pub(super) fn order(index: u32, hooks: Hooks) -> io::Result<Vec<(u32, u32)>> {
    let (mut programs, mut links) = ([0_u32; MAX_PROGRAMS], [0_u32; MAX_PROGRAMS]);
    let mut query = ProgramQuery {
        index,
        hooks: hooks as u32,
        flags: 0,
        attached: 0,
        programs: programs.as_mut_ptr() as u64,
        count: MAX_PROGRAMS as u32,
        _pad: 0,
        program_flags: 0,
        links: links.as_mut_ptr() as u64,
        link_flags: 0,
        revision: 0,
    };
    // SAFETY: the structure of this command, which writes no more than `count` numbers to each of
    // the two arrays.
    match unsafe { bpf(BPF_PROG_QUERY, &mut query) } {
        // There are more; the first are in the arrays.
        Err(error) if error.raw_os_error() != Some(libc::ENOSPC) => return Err(error),
        _ => {}
    }
    let count = (query.count as usize).min(MAX_PROGRAMS);
    Ok(programs.into_iter().zip(links).take(count).collect())
}

/// Returns the cookie of this thread's network namespace: a number that is never reused.
pub(super) fn network_namespace() -> io::Result<u64> {
    const SO_NETNS_COOKIE: libc::c_int = 71;
    let any = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        None,
    )?;
    let (mut cookie, mut length) = (0_u64, size_of::<u64>() as libc::socklen_t);
    // SAFETY: the kernel writes no more than `length` bytes, and their number.
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
