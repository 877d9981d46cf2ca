//! State shared by all programs of a run: one array, so that a request at one counting point
//! matches its answer at another, and one clock for both.
//!
//! Each counting point has programs of its own, with its settings inserted. Loading them also
//! creates separate arrays, unless an array is pinned at the path that the loader is given: on a
//! private BPF file system, which vanishes with this process.

use super::attach::array;
use super::mapped;
use super::object::{PERSISTENT, Pinned};
use super::refusal::refused;
use super::{Options, now_ns};
use crate::Event;
use crate::error::Error;
use crate::place::CountingPoint;
use crate::tables::Tables;
use aya::Ebpf;
use aya::maps::MapData;
use flowgauge_core::Settings;
use flowgauge_core::kernel::MemoryLayout;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

/// State shared by the counting points of a run.
pub(super) struct Common {
    /// Private BPF file system; `None` if there is nothing to share or only one counting point.
    mount: Option<OwnedFd>,
    /// Whether the array is initialised.
    is_prepared: Cell<bool>,
    /// Wall-clock time at the start of the kernel's clock, in nanoseconds. Read once, so that a
    /// delay between two counting points is affected neither by changes of the wall clock nor by a
    /// thread that was preempted between two readings.
    boot_ns: Cell<u64>,
    /// Bank of the open window, in which programs that are attached now begin to count.
    bank: Cell<u32>,
}

impl Common {
    /// Creates the shared state for these counting points.
    pub(super) fn of(places: &[CountingPoint], settings: &Settings) -> Result<Self, Error> {
        let takes = places.len() > 1 && MemoryLayout::of(settings).together > 0;
        let mount = takes.then(mount).transpose().map_err(|error| {
            let interface = places.first().map_or_else(String::new, |place| place.interface.clone());
            let problem = format!("cannot make a BPF file system, through which places share what they know of requests (needs CAP_SYS_ADMIN): {error}");
            Error::Kernel { interface, problem, source: Some(error) }
        })?;
        let (is_prepared, boot_ns) = (Cell::new(false), Cell::new(boot_ns()));
        Ok(Common { mount, is_prepared, boot_ns, bank: Cell::new(0) })
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

    fn path(&self) -> Option<PathBuf> {
        self.mount
            .as_ref()
            .map(|mount| PathBuf::from(format!("/proc/self/fd/{}/persistent", mount.as_raw_fd())))
    }

    /// Returns the pinned arrays to load the next programs with.
    pub(super) fn pinned(&self) -> Pinned {
        Pinned(self.path().map(|path| (PERSISTENT, path)).into_iter().collect())
    }

    /// Initialises the array if these programs are the first that use it.
    pub(super) fn prepare(
        &self,
        place: &CountingPoint,
        programs: &Ebpf,
        options: &Options,
        tables: &Tables,
    ) -> Result<(), Error> {
        if self.mount.is_some() && self.is_prepared.replace(true) {
            return Ok(());
        }
        mapped::prepare(array(place, programs, PERSISTENT)?, &options.settings, tables)
            .map_err(|error| refused(place, format!("cannot fill what lasts: {error}")))
    }

    /// Makes array and clock of adopted programs the shared ones. Returns a warning if another
    /// array is shared already.
    pub(super) fn adopt(
        &self,
        place: &CountingPoint,
        programs: &Ebpf,
        boot_ns: u64,
    ) -> Result<Option<Event>, Error> {
        let Some(path) = self.path() else { return Ok(None) };
        let array: &MapData = array(place, programs, PERSISTENT)?;
        if !self.is_prepared.replace(true) {
            self.boot_ns.set(boot_ns);
            array
                .pin(path)
                .map_err(|error| refused(place, format!("cannot share what lasts: {error}")))?;
            return Ok(None);
        }
        let is_same = MapData::from_pin(path).is_ok_and(|common| number(&common) == number(array));
        let news = format!(
            "{place}: what counts here began before the other places did; requests here are not matched with answers there"
        );
        Ok((!is_same).then_some(Event::Warning(news)))
    }
}

/// Returns the ID of an array.
fn number(map: &MapData) -> Option<u32> {
    map.info().ok().map(|info| info.id())
}

/// Returns the wall-clock time at the start of the kernel's clock, by the closest of several
/// readings of both.
fn boot_ns() -> u64 {
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

fn mount() -> io::Result<OwnedFd> {
    let context = fsopen("bpf", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
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
