//! Attachment of loaded programs to interfaces, and the programs and arrays of an object by name.

use super::clsact::{Classifier, FilterOwner};
use super::kept::KeptArray;
use super::link::ProgramLink;
use super::object;
use super::pins::Pins;
use super::refusal::{Problem, attaching, io_error, loading, reason, refused};
use super::set::Member;
use super::turn::Turn;
use super::verifier::NotLoaded;
use super::{Mode, Options};
use crate::error::Error;
use crate::interface::Interface;
use crate::open_files;
use crate::place::CountingPoint;
use aya::Ebpf;
use aya::maps::MapData;
use aya::programs::{ProgramError, ProgramFd, SchedClassifier, Xdp as Program};
use flowgauge_core::{Link as Layer, Settings};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Returns the number of possible CPUs. It must be known: packets on other CPUs would not be
/// counted.
pub(super) fn cpus(place: &CountingPoint) -> Result<usize, Error> {
    super::cpus().map_err(|error| {
        let advice = if open_files::is_exhausted(&error) { "" } else { "; mount sysfs at /sys" };
        let problem = format!(
            "cannot read {}, which says how many CPUs may count: {error}{advice}",
            super::POSSIBLE_CPUS
        );
        refused(place, Problem(problem, Some(error)))
    })
}

pub(super) fn array<'a>(
    place: &CountingPoint,
    programs: &'a Ebpf,
    name: &str,
) -> Result<&'a MapData, Error> {
    let array = programs.map(name).and_then(object::data);
    array.ok_or_else(|| {
        refused(place, format!("the object has no array {name}; rebuild it with ebpf/build"))
    })
}

/// Returns arrays of an object, with their names.
pub(super) fn arrays<'a>(
    place: &CountingPoint,
    programs: &'a Ebpf,
    names: Vec<&'static str>,
) -> Result<Vec<(&'static str, &'a MapData)>, Error> {
    names.into_iter().map(|name| Ok((name, array(place, programs, name)?))).collect()
}

/// Returns an XDP program, loaded or not.
pub(super) fn xdp<'a>(programs: &'a mut Ebpf, name: &str) -> Result<&'a mut Program, ProgramError> {
    programs.program_mut(name).ok_or(ProgramError::NotLoaded)?.try_into()
}

/// Returns a TCX program, loaded or not.
pub(super) fn tcx<'a>(
    programs: &'a mut Ebpf,
    name: &str,
) -> Result<&'a mut SchedClassifier, ProgramError> {
    programs.program_mut(name).ok_or(ProgramError::NotLoaded)?.try_into()
}

/// Programs before they are attached.
pub(super) enum LoadedPrograms {
    /// Programs of one counting point.
    Own(Ebpf),
    /// Programs of a set.
    OfSet(Member),
}

impl LoadedPrograms {
    /// Returns the arrays of these names.
    pub(super) fn arrays(
        &self,
        place: &CountingPoint,
        names: Vec<&'static str>,
    ) -> Result<Vec<(&'static str, &MapData)>, Error> {
        match self {
            LoadedPrograms::Own(programs) => arrays(place, programs, names),
            LoadedPrograms::OfSet(member) => {
                let mut arrays = object::borrowed(member.arrays());
                arrays.retain(|(name, _)| names.contains(name));
                Ok(arrays)
            }
        }
    }

    /// Returns the names of the arrays that programs at a hook use.
    pub(super) fn used(
        &self,
        settings: &Settings,
        is_filtered: bool,
        mode: Mode,
        layer: Layer,
    ) -> Vec<&'static str> {
        match self {
            LoadedPrograms::Own(_) => object::used(settings, is_filtered, mode, layer),
            LoadedPrograms::OfSet(_) => object::used_in_set(settings, mode),
        }
    }

    /// Keeps arrays, of which a member of a set needs none but for its pins.
    pub(super) fn kept(
        self,
        used: Vec<&'static str>,
        is_pinned: bool,
    ) -> (Vec<KeptArray>, Option<Member>) {
        match self {
            LoadedPrograms::Own(mut programs) => {
                let taken = object::take(&mut programs, used).into_iter();
                (taken.map(|(name, array)| KeptArray::new(name, array, true)).collect(), None)
            }
            LoadedPrograms::OfSet(mut member) => {
                let mut taken = member.take_arrays();
                taken.retain(|(name, _)| is_pinned && used.contains(name));
                let kept = taken.into_iter();
                let kept = kept.map(|(name, array)| KeptArray::new(name, array, false)).collect();
                (kept, Some(member))
            }
        }
    }
}

pub(super) fn verify(
    place: &CountingPoint,
    options: &Options,
    programs: &mut Ebpf,
) -> Result<(), NotLoaded> {
    let mode = options.usual(place.direction);
    program(mode, options.program(mode, Layer::Ethernet), &options.settings, programs).map(drop)
}

/// Attaches the program to the interface of this index and link layer, loading it if needed.
/// `pins`: the pins that will own it.
pub(super) fn attach(
    place: &CountingPoint,
    index: u32,
    layer: Layer,
    mode: Mode,
    options: &Options,
    programs: &mut LoadedPrograms,
    pins: Option<&Pins>,
) -> Result<ProgramLink, AttachRefusal> {
    with_program(layer, mode, options, programs, |program| {
        let _turn = Turn::attach();
        match (mode, pins) {
            (Mode::Clsact, Some(pins)) => {
                pins.attach_classifier(program).map(ProgramLink::Classifier)
            }
            (Mode::Clsact, None) => {
                Classifier::attach(program, index, place.direction, FilterOwner::process())
                    .map(ProgramLink::Classifier)
            }
            _ => {
                let mut link = ProgramLink::attach(program, index, place.direction, mode)?;
                link.hold(program);
                Ok(link)
            }
        }
    })
}

pub(super) const GENERIC: &str = "leave out --xdp-mode for the best hook that works here: --xdp-mode tcx (before Linux 6.6 clsact) and --xdp-mode skb \
                       work on every interface, but are slower";

/// Makes a link run the program instead of its present one.
pub(super) fn put(
    layer: Layer,
    mode: Mode,
    options: &Options,
    programs: &mut LoadedPrograms,
    link: &mut ProgramLink,
) -> Result<(), AttachRefusal> {
    with_program(layer, mode, options, programs, |program| {
        link.replace(program)?;
        link.hold(program);
        Ok(())
    })
}

/// Reason why a program could not be installed.
pub(super) enum AttachRefusal {
    Loading(NotLoaded),
    Attaching(io::Error),
}

impl AttachRefusal {
    /// Converts the refusal to the caller's error.
    pub(super) fn into_error(self, place: &CountingPoint, mode: Mode) -> Error {
        let problem = match &self {
            AttachRefusal::Loading(error) => loading(error),
            AttachRefusal::Attaching(error) => match native_limits(error, place, mode) {
                Some(problem) => Problem(problem, reason(error)),
                None => attaching(error, mode, GENERIC),
            },
        };
        refused(place, problem)
    }

    fn code(&self) -> Option<i32> {
        match self {
            AttachRefusal::Loading(error) => io_error(error),
            AttachRefusal::Attaching(error) => error.raw_os_error(),
        }
    }

    /// Returns whether the variant for packets in one or several pieces may be accepted where this
    /// one was not.
    pub(super) fn is_about_pieces(&self) -> bool {
        !matches!(
            self.code(),
            Some(
                libc::EBUSY
                    | libc::EEXIST
                    | libc::EPERM
                    | libc::EACCES
                    | libc::ENODEV
                    | libc::EMFILE
                    | libc::ENFILE
            )
        )
    }

    /// Returns whether another hook may accept the program.
    pub(super) fn is_about_hook(&self) -> bool {
        matches!(self, AttachRefusal::Attaching(_))
            && !matches!(
                self.code(),
                Some(libc::EPERM | libc::EACCES | libc::ENODEV | libc::EMFILE | libc::ENFILE)
            )
    }

    /// Returns a short reason, for the notice that names the hook used instead.
    pub(super) fn reason(&self, place: &CountingPoint, mode: Mode) -> String {
        let AttachRefusal::Attaching(error) = self else {
            return "its program was not loaded".to_owned();
        };
        if mode != Mode::Native {
            return format!("{} is refused: {error}", mode.name());
        }
        let interface = Interface::new(&place.interface).ok();
        let mtu = interface.as_ref().and_then(|interface| interface.mtu().ok()).unwrap_or_default();
        let driver =
            interface.map(|interface| interface.driver()).filter(|driver| !driver.is_empty());
        match error.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST) => "another XDP program is attached".to_owned(),
            Some(libc::ENOSPC) => {
                "its peer has more transmit queues than it has receive queues".to_owned()
            }
            Some(libc::ERANGE) => {
                format!("its MTU ({mtu}) or that of its peer is too large for native XDP")
            }
            Some(libc::EINVAL | libc::EOPNOTSUPP | libc::E2BIG) if mtu > IN_A_PAGE => {
                format!("its driver has no native XDP at an MTU of {mtu}")
            }
            Some(libc::EINVAL | libc::EOPNOTSUPP) => match driver {
                Some(driver) => format!("the driver {driver} has no native XDP"),
                None => "it has no native XDP".to_owned(),
            },
            _ => format!("native XDP is refused ({error})"),
        }
    }
}

/// Largest packet in one page, in bytes: drivers keep a packet, headroom and `skb_shared_info` in
/// one page, unless they support packets in pieces.
const IN_A_PAGE: u32 = 3498;

/// Uses the first program that is accepted; returns the refusal of the first one if none is.
fn with_program<T>(
    layer: Layer,
    mode: Mode,
    options: &Options,
    programs: &mut LoadedPrograms,
    mut used: impl FnMut(BorrowedFd<'_>) -> io::Result<T>,
) -> Result<T, AttachRefusal> {
    let mut first = None;
    for name in options.programs(mode, layer) {
        let outcome = match programs {
            LoadedPrograms::Own(programs) => program(mode, name, &options.settings, programs)
                .map(|program| used(program.as_fd())),
            LoadedPrograms::OfSet(member) => {
                member.entry(name).map(|program| used(program.as_fd()))
            }
        };
        let refusal = match outcome {
            Err(error) => AttachRefusal::Loading(error),
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) => AttachRefusal::Attaching(error),
        };
        if !refusal.is_about_pieces() {
            return Err(refusal);
        }
        first.get_or_insert(refusal);
    }
    Err(first.unwrap_or(AttachRefusal::Loading(NotLoaded::new("", ProgramError::NotLoaded))))
}

/// Returns the loaded program, loading it if needed.
fn program<'a>(
    mode: Mode,
    first: &'static str,
    settings: &Settings,
    programs: &'a mut Ebpf,
) -> Result<&'a ProgramFd, NotLoaded> {
    let name = object::load_chain(programs, first, settings)?;
    let program = if mode.is_xdp() {
        xdp(programs, name).and_then(|program| program.fd())
    } else {
        tcx(programs, name).and_then(|program| program.fd())
    };
    program.map_err(|error| NotLoaded::new(name, error))
}

/// Describes the property of an interface that prevents its driver from running programs, as far as
/// it can be derived from the kernel's error and the interface's limits.
fn native_limits(error: &io::Error, place: &CountingPoint, mode: Mode) -> Option<String> {
    if mode != Mode::Native {
        return None;
    }
    let name = &place.interface;
    let interface = Interface::new(name).ok()?;
    let (queues, mtu) = (interface.receive_queues(), interface.mtu().unwrap_or_default());
    let generic = GENERIC;
    match error.raw_os_error()? {
        libc::ENOSPC => Some(format!(
            "cannot count in its driver: its peer has more transmit queues than it has receive queues ({queues}); `ethtool -L {name} rx \
             N` gives it more; or {generic}"
        )),
        libc::ERANGE => Some(format!(
            "cannot count in its driver: its MTU ({mtu}) or that of its peer is too large for XDP programs, also for those that take \
             packets in several pieces; lower it; or {generic}"
        )),
        libc::EINVAL | libc::EOPNOTSUPP | libc::E2BIG if mtu > IN_A_PAGE => Some(format!(
            "cannot count in its driver: most take no XDP programs with an MTU of {mtu}, but up to some {IN_A_PAGE}, and this one takes \
             none for packets in several pieces; lower the MTU; or {generic}"
        )),
        libc::ENOMEM => Some(format!(
            "cannot count in its driver: it has no memory, or no free transmit queues, for XDP with {queues} receive queues; `ethtool \
             -L {name}` changes their number; or {generic}"
        )),
        libc::ENOTCONN => Some("cannot count in its driver: its peer is gone".to_owned()),
        _ => None,
    }
}
