//! State shared by all programs of a run: one array of persistent state, so that a request at one
//! counting point matches its answer at another, the lock of that array, and one clock for both.
//!
//! Each counting point has programs of its own, with its settings inserted, unless the run has a
//! [set](super::set) of programs. Loading them also creates separate arrays, unless an existing one
//! is given in place of it.

use super::mapped;
use super::object::{self, LOCK, PERSISTENT};
use super::refusal::{loading, refused};
use super::set::ProgramSet;
use super::{Options, now_ns};
use crate::Event;
use crate::error::Error;
use crate::place::CountingPoint;
use crate::tables::Tables;
use aya::maps::{MapData, MapError};
use flowgauge_core::Settings;
use flowgauge_core::kernel::MemoryLayout;
use std::cell::{Cell, OnceCell};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// State shared by the counting points of a run.
pub(super) struct Common {
    /// Shared arrays, once one of them has them; `None` if there is nothing to share or only one
    /// counting point.
    shared: Option<OnceCell<Vec<(&'static str, MapData)>>>,
    /// Wall-clock time at the start of the kernel's clock, in nanoseconds. Read once, so that a
    /// delay between two counting points is affected neither by changes of the wall clock nor by a
    /// thread that was preempted between two readings.
    boot_ns: Cell<u64>,
    /// Set of programs that the counting points use, if they share any.
    set: Option<Arc<ProgramSet>>,
    /// Bank of the open window, in which programs that are attached now begin to count.
    bank: Cell<u32>,
}

impl Common {
    /// Creates the shared state for these counting points, which use programs of this set.
    pub(super) fn of(
        places: &[CountingPoint],
        settings: &Settings,
        set: Option<Arc<ProgramSet>>,
    ) -> Self {
        let shares = places.len() > 1 && MemoryLayout::of(settings).together > 0;
        Common {
            shared: shares.then(OnceCell::new),
            boot_ns: Cell::new(set.as_ref().map_or_else(boot_ns, |set| set.boot_ns())),
            set,
            bank: Cell::new(0),
        }
    }

    /// Returns the set of programs, unless adopted programs have another clock.
    pub(super) fn set(&self) -> Option<&Arc<ProgramSet>> {
        self.set.as_ref().filter(|set| set.boot_ns() == self.boot_ns())
    }

    /// Returns the bank of the open window.
    pub(super) fn bank(&self) -> u32 {
        self.bank.get()
    }

    /// Opens a window in the other bank.
    pub(super) fn flip(&self) {
        self.bank.set(self.bank.get() ^ 1);
    }

    pub(super) fn boot_ns(&self) -> u64 {
        self.boot_ns.get()
    }

    /// Returns the arrays to load the next programs with.
    pub(super) fn arrays(&self) -> Vec<(&'static str, BorrowedFd<'_>)> {
        let shared = self.shared.as_ref().and_then(OnceCell::get);
        shared.into_iter().flatten().map(|(name, array)| (*name, array.fd().as_fd())).collect()
    }

    /// Initialises the array of persistent state, if these have one and no other counting point has
    /// it already.
    pub(super) fn prepare(
        &self,
        place: &CountingPoint,
        arrays: &[(&'static str, &MapData)],
        options: &Options,
        tables: &Tables,
    ) -> Result<(), Error> {
        let Some(array) = object::find(arrays, PERSISTENT) else { return Ok(()) };
        if let Some(shared) = &self.shared {
            if shared.get().is_some() {
                return Ok(());
            }
            share(place, shared, arrays)?;
        }
        mapped::prepare(array, &options.settings, tables)
            .map_err(|error| refused(place, format!("cannot fill what lasts: {error}")))
    }

    /// Makes arrays and clock of adopted programs the shared ones. Returns a warning if other ones
    /// are shared already.
    pub(super) fn adopt(
        &self,
        place: &CountingPoint,
        arrays: &[(&'static str, &MapData)],
        boot_ns: u64,
    ) -> Result<Option<Event>, Error> {
        let Some(shared) = &self.shared else { return Ok(None) };
        let Some(common) = shared.get() else {
            self.boot_ns.set(boot_ns);
            return share(place, shared, arrays).map(|()| None);
        };
        let common = number(&object::borrowed(common));
        let is_same = common.is_some() && common == number(arrays);
        let news = format!(
            "{place}: what counts here began before the other places did; requests here are not matched with answers there"
        );
        Ok((!is_same).then_some(Event::Warning(news)))
    }
}

/// Stores copies of the arrays that all counting points share.
fn share(
    place: &CountingPoint,
    shared: &OnceCell<Vec<(&'static str, MapData)>>,
    arrays: &[(&'static str, &MapData)],
) -> Result<(), Error> {
    let copies = arrays.iter().filter(|(name, _)| [PERSISTENT, LOCK].contains(name));
    let copies = copies.map(|(name, array)| {
        let copy = array.fd().as_fd().try_clone_to_owned()?;
        Ok((*name, MapData::from_fd(copy)?))
    });
    let copies = copies.collect::<Result<Vec<_>, MapError>>();
    let copies = copies.map_err(|error| refused(place, loading(&error)))?;
    shared.get_or_init(|| copies);
    Ok(())
}

/// Returns the ID of the array of persistent state.
fn number(arrays: &[(&'static str, &MapData)]) -> Option<u32> {
    object::find(arrays, PERSISTENT)?.info().ok().map(|info| info.id())
}

/// Returns the wall-clock time at the start of the kernel's clock, by the closest of several
/// readings of both.
pub(super) fn boot_ns() -> u64 {
    let readings = (0..8).map(|_| {
        let before = monotonic_ns();
        let wall = now_ns();
        let after = monotonic_ns();
        (after.saturating_sub(before), wall.saturating_sub(before.midpoint(after)))
    });
    readings.min().map_or(0, |(_, boot_ns)| boot_ns)
}

fn monotonic_ns() -> u64 {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map_or(0, |time| {
        time.tv_sec().unsigned_abs() * 1_000_000_000 + time.tv_nsec().unsigned_abs()
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::super::{Mode, Options, Retention, Xdp};
    use crate::place::{CountingPoint, Direction};
    use crate::{Dataplane, Tables};
    use flowgauge_core::delay::{DelayKind, Kinds};
    use flowgauge_core::{Settings, delay};
    use flowgauge_testing::on_veth;
    use flowgauge_traffic::veth::RECEIVER;

    /// Counts on ingress, or on ingress and egress; returns the clocks of the counting points.
    fn clocks(places: &[Direction], adopt: bool) -> (Xdp, Vec<u64>) {
        let settings = Settings {
            delay: delay::Settings {
                kinds: Kinds::NONE.with(DelayKind::Dns),
                ..delay::Settings::DEFAULT
            },
            ..Settings::default()
        };
        let pins =
            Some(Retention { directory: super::super::DIRECTORY.into(), adopt, leave: true });
        let places = places.iter().map(|direction| CountingPoint {
            interface: RECEIVER.0.to_owned(),
            direction: *direction,
        });
        let mut xdp = Xdp::at(
            places.collect(),
            Options { mode: Some(Mode::Tcx), pins, ..Options::new(settings) },
        );
        xdp.install(&Tables::new(&settings, 1)).unwrap();
        let clocks =
            xdp.running.as_ref().unwrap().hooks.iter().map(|hook| hook.note.boot_ns).collect();
        (xdp, clocks)
    }

    /// Counting points share one clock, even if one of them was adopted.
    #[test]
    fn places_have_one_clock() {
        on_veth(|| {
            let (first, began) = clocks(&[Direction::Ingress], false);
            drop(first);
            let (second, adopted) = clocks(&[Direction::Ingress, Direction::Egress], true);
            assert_eq!([began[0]; 2], adopted[..]);
            drop(second);
            let (_, all) = clocks(&[Direction::Ingress, Direction::Egress], true);
            assert_eq!(all, adopted);
        });
    }
}
