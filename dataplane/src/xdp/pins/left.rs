//! Pins of dead processes: listing, adoption of the hash, removal.

use super::spot::PinKey;
use super::spot::spots;
use super::{NOTE, Pins, at_work, has_program, refused};
use crate::error::Error;
use crate::hash_key::HashKey;
use crate::interface::device;
use crate::place::CountingPoint;
use crate::xdp::clsact;
use crate::xdp::note::VERSION;
use crate::xdp::object::{NoteArray, PlainData};
use aya::maps::{Map, MapData};
use std::fs::TryLockError;
use std::path::Path;

/// A counting program without a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbandonedProgram {
    /// Its counting point.
    pub place: CountingPoint,
    /// Start of the first window that was not published, in nanoseconds since the Unix epoch, if
    /// readable.
    pub since_ns: Option<u64>,
    /// Whether a run can adopt its counts. The counts of a filter without pins are lost.
    pub adoptable: bool,
}

/// Returns the programs that dead processes left counting below `root` on interfaces of this
/// network namespace. Changes nothing.
///
/// # Errors
/// [`Error::Pins`] if the directory cannot be listed.
pub fn left(root: &Path) -> Result<Vec<AbandonedProgram>, Error> {
    let mut left = Vec::new();
    for (directory, spot) in spots(root)?.into_iter().filter(|(_, spot)| spot.is_here()) {
        // A directory without a program may be that of an interface that starts now.
        if !has_program(&directory) {
            continue;
        }
        let Ok(mut pins) = Pins::lock(directory, spot) else { continue };
        pins.leave = true;
        if pins.is_counting() {
            let note = pins.notes().ok().and_then(|notes| notes.get(&0, 0).ok());
            left.push(AbandonedProgram {
                place: pins.place(),
                since_ns: note.and_then(|PlainData(note)| note.open_windows().first().copied()),
                adoptable: true,
            });
        }
    }
    left.extend(clsact::left().into_iter().map(|place| AbandonedProgram {
        place,
        since_ns: None,
        adoptable: false,
    }));
    left.sort_by(|one, other| one.place.cmp(&other.place));
    Ok(left)
}

/// Returns the hash secret of a program that a dead process left counting at one of these counting
/// points, for the adopting process.
#[must_use]
pub fn kept_key(root: &Path, places: &[CountingPoint]) -> Option<HashKey> {
    let spots = spots(root).unwrap_or_default();
    let wanted = |spot: &PinKey| {
        let is = |place: &CountingPoint| {
            place.direction == spot.direction
                && matches!(device::index(&place.interface), Ok(Some(index)) if index == spot.index)
        };
        spot.is_here() && places.iter().any(is)
    };
    spots.into_iter().filter(|(_, spot)| wanted(spot)).find_map(|(directory, _)| {
        let note = MapData::from_pin(directory.join(NOTE)).and_then(Map::from_map_data).ok()?;
        let PlainData(note) = NoteArray::try_from(note).ok()?.get(&0, 0).ok()?;
        note.secret.key().filter(|_| note.version == VERSION)
    })
}

/// Removes pins of deleted interfaces that had the same name. Returns whether there were any.
pub(in crate::xdp) fn forget(root: &Path, place: &CountingPoint, index: u32) -> bool {
    let mut forgotten = false;
    let mut spots = spots(root).unwrap_or_default();
    spots.retain(|(_, spot)| {
        spot.is_here() && spot.direction == place.direction && spot.index != index
    });
    for (directory, spot) in spots {
        // Interfaces that exist may start now: their directories are not locked.
        if matches!(device::name(spot.index), Ok(Some(_))) {
            continue;
        }
        let Ok(mut pins) = Pins::lock(directory, spot) else { continue };
        pins.leave = !(pins.is_dead() && pins.place() == *place);
        forgotten |= !pins.leave;
    }
    forgotten
}

/// Detaches the programs that dead processes left counting below `root`, on one interface or on all
/// of this network namespace. Also removes pins of deleted interfaces, and filters without a known
/// owner. Returns the names of the counting points.
///
/// # Errors
/// [`Error::Pins`] if a process is still active there, or the system refuses; earlier removals
/// stay.
pub fn detach(root: &Path, interface: Option<&str>) -> Result<Vec<String>, Error> {
    let mut ended = Vec::new();
    for (directory, spot) in spots(root)? {
        let named =
            |place: &CountingPoint| interface.is_none_or(|interface| interface == place.interface);
        let mut pins = match Pins::lock(directory.clone(), spot) {
            Ok(pins) => pins,
            Err(TryLockError::WouldBlock) if spot.is_here() => {
                let interface = device::name(spot.index).ok().flatten().unwrap_or_default();
                let place = CountingPoint { interface, direction: spot.direction };
                if !named(&place) {
                    continue;
                }
                return Err(Error::Pins { directory, problem: at_work(&place), source: None });
            }
            Err(TryLockError::WouldBlock) => continue,
            Err(TryLockError::Error(error)) => {
                return Err(refused(&directory, "lock this directory", error));
            }
        };
        pins.leave = true;
        let place = pins.place();
        // In another network namespace the name may belong to another interface, with an active
        // process.
        if !named(&place) || !spot.is_here() && !pins.is_dead() {
            continue;
        }
        let counting = pins.is_counting();
        pins.clear().map_err(|error| refused(&directory, "remove pins", error))?;
        pins.leave = false;
        if counting {
            ended.push(place.to_string());
        }
    }
    let orphans = clsact::remove_left(interface)
        .map_err(|error| refused(root, "remove filters without pins", error))?;
    ended.extend(orphans.iter().map(ToString::to_string));
    ended.sort();
    Ok(ended)
}
