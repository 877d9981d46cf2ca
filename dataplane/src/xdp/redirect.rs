//! Redirection of an interface's packets to AF_XDP sockets.

use super::Mode;
use super::attach::xdp;
use super::grace::GracePeriod;
use super::link::{Departure, ProgramLink};
pub(crate) use super::object::QUEUES;
use super::object::{self, load_redirect};
use super::refusal::{attaching, loading, refused, why_not_loaded};
use super::watch::{GONE, MOVED, not_removed};
use crate::error::Error;
use crate::interface::device;
use crate::place::CountingPoint;
use aya::maps::{Map, MapError, PerCpuArray, XskMap};
use std::os::fd::{AsFd, AsRawFd};

/// Program that redirects the packets of each queue to the queue's socket, and passes packets of
/// queues without one. It is detached on drop, or when the process ends.
pub(crate) struct Redirect {
    place: CountingPoint,
    programs: aya::Ebpf,
    program: &'static str,
    /// Link that keeps the program attached; `None` if it could not be attached again.
    link: Option<ProgramLink>,
    sockets: XskMap<aya::maps::MapData>,
    passed: PerCpuArray<aya::maps::MapData, u64>,
}

/// Checks that the kernel accepts the program and its map of sockets, without an interface.
pub(crate) fn try_program() -> Result<(), Error> {
    let place = CountingPoint::ingress("af_xdp");
    let mut programs = load_redirect().map_err(|error| refused(&place, loading(&error)))?;
    let program = xdp(&mut programs, object::REDIRECT).and_then(|program| program.load());
    program.map_err(|error| refused(&place, loading(&error)))
}

/// Waits until no packet that bypassed the program is in flight. Returns whether waiting is
/// supported.
pub(crate) fn settle() -> bool {
    GracePeriod::choose(None).and_then(|grace| grace.wait()).is_ok()
}

impl Redirect {
    /// Attaches the program, with the sockets of queues from 0 on. `pieces`: whether sockets
    /// receive packets in several pieces.
    pub(crate) fn attach(
        interface: &str,
        mode: Mode,
        pieces: bool,
        sockets: &[impl AsRawFd],
    ) -> Result<Self, Error> {
        let place = CountingPoint::ingress(interface);
        let index = device::existing(interface, device::index(interface))?;
        let mut programs = load_redirect().map_err(|error| refused(&place, loading(&error)))?;
        let mut map: XskMap<_> = take(&mut programs, &place, object::SOCKETS)?;
        let passed = take(&mut programs, &place, object::PASSED)?;
        for (queue, socket) in (0..).zip(sockets) {
            map.set(queue, socket.as_raw_fd(), 0).map_err(|error| add(&place, queue, &error))?;
        }
        let name = if pieces { object::REDIRECT_FRAGS } else { object::REDIRECT };
        let program = xdp(&mut programs, name).map_err(|error| refused(&place, loading(&error)))?;
        program.load().map_err(|error| refused(&place, loading(&error)))?;
        let program = program.fd().map_err(|error| refused(&place, loading(&error)))?;
        let generic = "the port's option xdp=skb works on every interface, but is slower";
        let link = ProgramLink::xdp(program.as_fd(), index, mode)
            .map_err(|error| refused(&place, attaching(&error, mode, generic)))?;
        Ok(Redirect { place, programs, program: name, link: Some(link), sockets: map, passed })
    }

    /// Installs the program on queues that the interface gained since it was attached, which veth
    /// leaves without a program. Other queues keep it meanwhile.
    pub(crate) fn renew(&mut self) -> Result<(), Error> {
        let Some(link) = &self.link else { return Ok(()) };
        let failed =
            |why: String| refused(&self.place, format!("cannot attach the program again: {why}"));
        // The kernel ignores a replacement by the same program, so a second copy is loaded.
        let copy = xdp(&mut self.programs, self.program).and_then(|program| {
            program.unload()?;
            program.load()?;
            program.fd()
        });
        let copy = copy.map_err(|error| failed(why_not_loaded(&error)))?;
        link.replace(copy.as_fd()).map_err(|error| failed(error.to_string()))
    }

    /// Detaches the program.
    pub(crate) fn detach(&mut self) {
        // Closing the link detaches the program too, but not while a process that another thread has
        // just forked has the descriptor as well.
        self.link.take().iter().for_each(|link| _ = link.detach());
    }

    /// Detaches the program from an interface that left this network namespace, and describes where
    /// it went. The kernel has disconnected the sockets, for good: nothing arrives in them from
    /// there, nor once the interface is back, and a program left behind would drop its packets.
    pub(crate) fn leave(&mut self) -> String {
        let what = match self.link.take().map_or(Departure::Gone, |link| link.leave()) {
            Departure::Gone => GONE.to_owned(),
            Departure::Moved => {
                format!("{MOVED}; packets that arrived at it until now may have been dropped")
            }
            Departure::Attached(error) => not_removed(&error),
        };
        format!("{}: {what}", self.place.interface)
    }

    /// Redirects the packets of a queue to this socket from now on.
    pub(crate) fn add(&mut self, queue: u32, socket: &impl AsRawFd) -> Result<(), Error> {
        self.sockets
            .set(queue, socket.as_raw_fd(), 0)
            .map_err(|error| add(&self.place, queue, &error))
    }

    /// Returns the packets that arrived on queues without a socket since the program was attached.
    pub(crate) fn passed(&self) -> Result<u64, Error> {
        let counts = self.passed.get(&0, 0);
        let counts = counts.map_err(|error| {
            refused(&self.place, format!("cannot read the packets passed on: {error}"))
        })?;
        Ok(counts.iter().sum())
    }
}

impl Drop for Redirect {
    fn drop(&mut self) {
        self.detach();
    }
}

pub(super) fn take<M: TryFrom<Map, Error = MapError>>(
    programs: &mut aya::Ebpf,
    place: &CountingPoint,
    name: &str,
) -> Result<M, Error> {
    let map = programs.take_map(name).and_then(|map| M::try_from(map).ok());
    map.ok_or_else(|| {
        refused(place, format!("the object has no map {name}; rebuild it with ebpf/build"))
    })
}

fn add(place: &CountingPoint, queue: u32, error: &MapError) -> Error {
    refused(place, format!("cannot hand queue {queue} to its socket: {error}"))
}
