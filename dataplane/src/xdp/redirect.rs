//! Handing an interface's packets to AF_XDP sockets.

use super::hook::{self, attaching, ingress, loading, refused};
use super::object::{self, load_redirect};
use super::{Mode, device};
use crate::capabilities::Direction;
use crate::error::Error;
use crate::snapshot::Place;
use aya::maps::{Map, MapError, PerCpuArray, XskMap};
use aya::programs::links::FdLink;
use std::os::fd::AsRawFd;

/// Queues that may have sockets.
pub(crate) const QUEUES: u32 = 1024;

/// A program that hands what arrives on a queue to the queue's socket, and lets pass what arrives on the others. It leaves the
/// interface when this is dropped, or when the process ends.
pub(crate) struct Redirect {
    place: Place,
    /// First, so that no packet is handed to sockets that are being closed.
    _link: FdLink,
    sockets: XskMap<aya::maps::MapData>,
    passed: PerCpuArray<aya::maps::MapData, u64>,
}

impl Redirect {
    /// Attaches the program, with the sockets of queues from 0 on. `pieces` is for sockets that take packets in several pieces.
    pub(crate) fn attach(interface: &str, mode: Mode, pieces: bool, sockets: &[impl AsRawFd]) -> Result<Self, Error> {
        let place = Place::ingress(interface);
        if device::index(interface).is_none() {
            return Err(refused(&place, hook::NO_INTERFACE.to_owned()));
        }
        let mut programs = load_redirect().map_err(|error| refused(&place, loading(&error)))?;
        let mut map: XskMap<_> = take(&mut programs, &place, object::SOCKETS)?;
        let passed = take(&mut programs, &place, object::PASSED)?;
        for (queue, socket) in (0..).zip(sockets) {
            map.set(queue, socket.as_raw_fd(), 0).map_err(|error| add(&place, queue, &error))?;
        }
        let name = if pieces { object::REDIRECT_FRAGS } else { object::REDIRECT };
        let program = ingress(&mut programs, name).map_err(|error| refused(&place, loading(&error)))?;
        program.load().map_err(|error| refused(&place, loading(&error)))?;
        let failed = |error| refused(&place, attaching(&error, mode, Direction::Ingress, "the port's option xdp=skb"));
        let link = program.attach(interface, mode.into()).and_then(|link| program.take_link(link)).map_err(failed)?;
        let link = FdLink::try_from(link).map_err(|_| refused(&place, hook::TOO_OLD.to_owned()))?;
        Ok(Redirect { place, _link: link, sockets: map, passed })
    }

    /// Hands what arrives on a queue to this socket from now on.
    pub(crate) fn add(&mut self, queue: u32, socket: &impl AsRawFd) -> Result<(), Error> {
        self.sockets.set(queue, socket.as_raw_fd(), 0).map_err(|error| add(&self.place, queue, &error))
    }

    /// Packets that came to queues without a socket, since the program was attached.
    pub(crate) fn passed(&self) -> Result<u64, Error> {
        let counts = self.passed.get(&0, 0);
        let counts = counts.map_err(|error| refused(&self.place, format!("cannot read the packets passed on: {error}")))?;
        Ok(counts.iter().sum())
    }
}

fn take<M: TryFrom<Map, Error = MapError>>(programs: &mut aya::Ebpf, place: &Place, name: &str) -> Result<M, Error> {
    let map = programs.take_map(name).and_then(|map| M::try_from(map).ok());
    map.ok_or_else(|| refused(place, format!("the object has no map {name}; rebuild it with ebpf/build")))
}

fn add(place: &Place, queue: u32, error: &MapError) -> Error {
    refused(place, format!("cannot hand queue {queue} to its socket: {error}"))
}
