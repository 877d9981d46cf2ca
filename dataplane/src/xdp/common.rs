//! What the programs of a run know together, whatever their place: one array, of requests that come here and are answered there.
//!
//! Each place has programs of its own, with its settings put in. Loading them makes arrays of their own as well, unless one is pinned where
//! the loader is told to look: on a BPF file system that nobody else sees, which goes with this process.

use super::Options;
use super::hook::{array, refused};
use super::mapped;
use super::object::{LASTING, Pinned};
use crate::Event;
use crate::error::Error;
use crate::place::Place;
use crate::tables::Tables;
use aya::Ebpf;
use aya::maps::MapData;
use flowgauge_core::Settings;
use flowgauge_core::kernel::Layout;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

/// What the places of a run share.
pub(super) struct Common {
    /// A BPF file system of our own; nothing if there is nothing to share, or nobody to share it with.
    mount: Option<OwnedFd>,
    /// Whether the array is there, with what it has to hold.
    is_prepared: Cell<bool>,
}

impl Common {
    /// For these places.
    pub(super) fn of(places: &[Place], settings: &Settings) -> Result<Self, Error> {
        let takes = places.len() > 1 && Layout::of(settings).together > 0;
        let mount = takes.then(mount).transpose().map_err(|error| {
            let interface = places.first().map_or_else(String::new, |place| place.interface.clone());
            let problem = format!("cannot make a BPF file system, through which places share what they know of requests (needs CAP_SYS_ADMIN): {error}");
            Error::Kernel { interface, problem, source: Some(error) }
        })?;
        Ok(Common { mount, is_prepared: Cell::new(false) })
    }

    fn path(&self) -> Option<PathBuf> {
        self.mount.as_ref().map(|mount| PathBuf::from(format!("/proc/self/fd/{}/lasting", mount.as_raw_fd())))
    }

    /// What the next programs are to be loaded with.
    pub(super) fn pinned(&self) -> Pinned {
        Pinned { banks: None, lasting: self.path() }
    }

    /// Fills the array, if these programs are the first that have it.
    pub(super) fn prepare(&self, place: &Place, programs: &Ebpf, options: &Options, tables: &Tables) -> Result<(), Error> {
        if self.mount.is_some() && self.is_prepared.replace(true) {
            return Ok(());
        }
        mapped::prepare(array(place, programs, LASTING)?, &options.settings, tables)
            .map_err(|error| refused(place, format!("cannot fill what lasts: {error}")))
    }

    /// Makes the array of programs that were adopted the common one. If there is another one already, something is to be told.
    pub(super) fn adopt(&self, place: &Place, programs: &Ebpf) -> Result<Option<Event>, Error> {
        let Some(path) = self.path() else { return Ok(None) };
        let array: &MapData = array(place, programs, LASTING)?;
        if !self.is_prepared.replace(true) {
            array.pin(path).map_err(|error| refused(place, format!("cannot share what lasts: {error}")))?;
            return Ok(None);
        }
        let is_same = MapData::from_pin(path).is_ok_and(|common| number(&common) == number(array));
        let news = format!(
            "{place}: what counts here began before the other places did; requests here are not matched with answers there"
        );
        Ok((!is_same).then_some(Event::Warning(news)))
    }
}

/// The kernel's number of an array.
fn number(map: &MapData) -> Option<u32> {
    map.info().ok().map(|info| info.id())
}

fn mount() -> io::Result<OwnedFd> {
    let context = fsopen("bpf", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}
