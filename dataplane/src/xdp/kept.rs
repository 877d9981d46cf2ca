//! Arrays that attached programs use, for their pins and for programs to come.

use super::object;
use aya::maps::{MapData, MapError};
use std::os::fd::AsFd;

/// An array that attached programs use.
pub(super) struct KeptArray {
    name: &'static str,
    number: u32,
    /// The array, unless this process can open it by its number.
    open: Option<MapData>,
}

impl KeptArray {
    /// Keeps an array. `is_only`: whether nothing else of this process has it open.
    pub(super) fn new(name: &'static str, array: MapData, is_only: bool) -> Self {
        let number = array.info().map_or(0, |info| info.id());
        // The kernel empties an array of programs that is neither open nor pinned. Other arrays end
        // with the programs, and these with their interface, unless this process maps them.
        let must_be_open = is_only && !object::is_always_mapped(name);
        let may_close = !must_be_open && MapData::from_id(number).is_ok();
        KeptArray { name, number, open: (!may_close).then_some(array) }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the array with a descriptor of its own.
    pub(super) fn open(&self) -> Result<MapData, MapError> {
        match &self.open {
            Some(array) => MapData::from_fd(array.fd().as_fd().try_clone_to_owned()?),
            None => MapData::from_id(self.number),
        }
    }
}
