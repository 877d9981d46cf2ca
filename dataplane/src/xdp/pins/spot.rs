//! Directories of pins, named after counting points.

use super::refused;
use crate::error::Error;
use crate::place::Direction;
use crate::xdp::note::network_namespace;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Directory key of a counting point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PinKey {
    pub(super) direction: Direction,
    pub(super) index: u32,
    namespace: u64,
}

impl PinKey {
    /// Returns the key of an interface in this network namespace.
    pub(super) fn here(direction: Direction, index: u32) -> Self {
        PinKey { direction, index, namespace: network_namespace() }
    }

    pub(super) fn is_here(&self) -> bool {
        self.namespace == network_namespace()
    }

    /// Returns the directory's name; the BPF file system forbids dots.
    pub(super) fn name(&self) -> String {
        format!("{}-{}-{}", self.direction.name(), self.index, self.namespace)
    }

    fn of(name: &str) -> Option<Self> {
        let mut parts = name.split('-');
        let direction = parts.next()?;
        let direction = Direction::ALL.into_iter().find(|known| known.name() == direction)?;
        let spot = PinKey {
            direction,
            index: parts.next()?.parse().ok()?,
            namespace: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(spot)
    }
}

/// Returns the directories of counting points below `root`.
pub(super) fn spots(root: &Path) -> Result<Vec<(PathBuf, PinKey)>, Error> {
    let failed = |error: io::Error| refused(root, "list this directory", error);
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut spots = Vec::new();
    for entry in entries {
        let directory = entry.map_err(failed)?.path();
        if let Some(spot) = directory.file_name().and_then(|name| PinKey::of(name.to_str()?)) {
            spots.push((directory, spot));
        }
    }
    Ok(spots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_lead_back_to_their_places() {
        for direction in Direction::ALL {
            for spot in
                [PinKey { direction, index: 3, namespace: u64::MAX }, PinKey::here(direction, 17)]
            {
                assert!(!spot.name().contains('.'));
                assert_eq!(PinKey::of(&spot.name()), Some(spot));
            }
        }
        for name in
            ["rubbish", "ingress", "ingress-3", "ingress-3-1-1", "eth0-ingress", "ingress-x-1"]
        {
            assert_eq!(PinKey::of(name), None);
        }
    }
}
