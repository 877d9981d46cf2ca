//! Lists the files of a lake in a directory, in which others can create entries of any kind.

use flowgauge_dataplane::files::{Directory, Entry};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Maximum depth of directories. A lake has two.
const MAX_DEPTH: usize = 16;

/// Files of a lake, and the entries that are not read.
#[derive(Default)]
pub(super) struct Listing {
    /// Names of the files, relative to the directory, sorted.
    pub(super) names: Vec<PathBuf>,
    /// Symbolic links and directories that cannot be read, with the reason.
    pub(super) refused: Vec<(PathBuf, io::Error)>,
}

impl Listing {
    /// Searches a directory for `.parquet` files without a hidden name. Directories that are not
    /// wanted, by their path, or were visited already are skipped.
    pub(super) fn new(
        root: &Directory,
        visited: &mut HashSet<(u64, u64)>,
        is_wanted: impl Fn(&Path) -> bool,
    ) -> Self {
        let mut listing = Listing::default();
        let mut left = vec![PathBuf::new()];
        while let Some(below) = left.pop() {
            let entries = match entries(root, &below, visited) {
                Ok(entries) => entries,
                // A concurrent upload removes empty directories.
                Err(error) if error.kind() == ErrorKind::NotFound && below != Path::new("") => {
                    continue;
                }
                Err(error) => {
                    listing.refused.push((root.path().join(below), error));
                    continue;
                }
            };
            for entry in entries.iter().filter(|entry| !is_hidden(&entry.name)) {
                let name = below.join(&entry.name);
                let path = root.path().join(&name);
                let is_file = name.extension().is_some_and(|it| it == "parquet");
                if entry.kind.is_symlink() {
                    // It may lead to a directory with files.
                    if is_file || is_wanted(&path) {
                        listing.refused.push((path, root.link_error(name)));
                    }
                } else if entry.kind.is_dir() {
                    if name.components().count() > MAX_DEPTH {
                        let problem =
                            format!("it is more than {MAX_DEPTH} directories deep in the lake");
                        listing.refused.push((path, io::Error::other(problem)));
                    } else if is_wanted(&path) {
                        left.push(name);
                    }
                } else if is_file {
                    listing.names.push(name);
                }
            }
        }
        listing.names.sort();
        listing.refused.sort_by(|(one, _), (other, _)| one.cmp(other));
        listing
    }
}

fn entries(
    root: &Directory,
    below: &Path,
    visited: &mut HashSet<(u64, u64)>,
) -> io::Result<Vec<Entry>> {
    let opened;
    let directory = if below == Path::new("") {
        root
    } else {
        opened = root.below(below)?;
        &opened
    };
    if visited.insert(directory.id()?) { directory.entries() } else { Ok(Vec::new()) }
}

fn is_hidden(name: &OsStr) -> bool {
    name.to_string_lossy().starts_with(['.', '_'])
}
