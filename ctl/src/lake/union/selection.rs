//! Options of unions: files, rows and grouping. Finds and opens the files.

use super::UnionError;
use crate::lake::disk::Listing;
use crate::lake::parquet::{Parquet, ParquetInput};
use crate::lake::signature::{RowPolicy, Verification};
use crate::lake::store::{SCHEME, Store};
use crate::measurement::Estimation;
use flowgauge_core::MeasurementKind;
use flowgauge_dataplane::HashKey;
use flowgauge_dataplane::files::{self, Directory};
use jiff::Timestamp;
use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files up to this length are read into memory at once, so that a fleet's files do not take a
/// descriptor each.
const SMALL: u64 = 1 << 20;
const HOUR_NS: u64 = 3_600_000_000_000;

/// Selection of files and rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Files, directories and URLs of stores. Directories and stores are searched recursively.
    pub paths: Vec<PathBuf>,
    /// Host to include; all if `None`.
    pub host: Option<String>,
    /// Hosts to exclude.
    pub exclude: Vec<String>,
    /// Source to include; all if `None`.
    pub source: Option<String>,
    /// Direction to include; all if `None`.
    pub direction: Option<String>,
    /// Start of the range: windows that begin then or later, in nanoseconds since the Unix epoch.
    pub from: Option<u64>,
    /// End of the range: windows that end then or earlier.
    pub to: Option<u64>,
}

impl Selection {
    /// Whether the file has no window in the range.
    pub(super) fn is_beyond(&self, file: &Parquet) -> bool {
        let range = |column| {
            file.range(column)
                .map(|(low, high)| (low.max(0).unsigned_abs(), high.max(0).unsigned_abs()))
        };
        let after =
            self.to.zip(range("scheduled_start_ns")).is_some_and(|(to, (first, _))| first >= to);
        let before =
            self.from.zip(range("scheduled_end_ns")).is_some_and(|(from, (_, last))| last <= from);
        after || before
    }

    /// Whether a directory `date=2026-11-23` or `date=2026-11-23/hour=14` can hold windows of the
    /// range. The hour before the range counts, since its windows can end in it.
    fn has_partition(&self, path: &str) -> bool {
        let value = |name| path.split('/').find_map(|part| part.strip_prefix(name));
        let Some(date) = value("date=") else { return true };
        let (hour, length) = match value("hour=") {
            Some(hour) => (hour, HOUR_NS),
            None => ("00", 24 * HOUR_NS),
        };
        let Ok(begin) = format!("{date}T{hour:0>2}:00:00Z").parse::<Timestamp>() else {
            return true;
        };
        let begin = u64::try_from(begin.as_nanosecond()).unwrap_or(0);
        let is_before = self
            .from
            .is_some_and(|from| begin.saturating_add(length).saturating_add(HOUR_NS) <= from);
        !is_before && self.to.is_none_or(|to| begin < to)
    }
}

/// Grouping of rows into unions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// One union of all rows.
    #[default]
    All,
    /// One union for each host.
    Host,
    /// One union for each source: interface or port of a host, and direction.
    Source,
    /// One union for each window, of all hosts.
    Window,
}

impl By {
    /// All groupings.
    pub const ALL: [By; 4] = [By::All, By::Host, By::Source, By::Window];

    /// Returns the name used in options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            By::All => "all",
            By::Host => "host",
            By::Source => "source",
            By::Window => "window",
        }
    }
}

/// Options of a union.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Grouping of rows.
    pub by: By,
    /// Whether to estimate the distinct flows without each host as well, for a union of all rows.
    pub leave_one_out: bool,
    /// Maximum number of groups by host or source, and of hosts to leave out; [`Options::GROUPS`]
    /// if `None`.
    pub limit: Option<usize>,
    /// Measurements to read; all if empty.
    pub measure: Vec<MeasurementKind>,
    /// Treatment of different rows of one window.
    pub conflicts: RowPolicy,
    /// Verification of signatures, if rows have to be signed.
    pub verification: Option<Verification>,
    /// Hosts that must have rows.
    pub expect: Vec<String>,
    /// Estimators and the content of reports.
    pub estimation: Estimation,
    /// Secret of a keyed hash, needed for queries of flows.
    pub key: Option<HashKey>,
}

impl Options {
    /// Default maximum number of groups by host or source. All of them take up to 64 MiB and as many
    /// MiB as groups are allowed.
    pub const GROUPS: usize = 1000;

    /// Whether the distinct flows without each host are estimated.
    pub(super) fn leaves_out_hosts(&self) -> bool {
        self.leave_one_out && self.by == By::All
    }
}

/// A file of a lake, or a downloaded object.
#[derive(Clone)]
pub(crate) struct LakeFile {
    pub(crate) path: PathBuf,
    content: Content,
}

#[derive(Clone)]
enum Content {
    /// A file that the user named.
    Given,
    /// A name below a directory.
    Below(Arc<Directory>, PathBuf),
    /// A downloaded object.
    Object(ParquetInput),
}

impl LakeFile {
    pub(crate) fn given(path: PathBuf) -> Self {
        LakeFile { path, content: Content::Given }
    }

    pub(crate) fn below(root: &Arc<Directory>, name: impl Into<PathBuf>) -> Self {
        let name = name.into();
        LakeFile { path: root.path().join(&name), content: Content::Below(Arc::clone(root), name) }
    }

    /// Downloads objects of a store by name. Their content is in a temporary file.
    pub(crate) fn objects(store: &Store, names: &[String]) -> io::Result<Vec<Self>> {
        let path = |name: &String| PathBuf::from(format!("{}/{name}", store.url()));
        let inputs = store.fetch(names)?;
        Ok(names
            .iter()
            .zip(inputs)
            .map(|(name, input)| LakeFile { path: path(name), content: Content::Object(input) })
            .collect())
    }

    pub(crate) fn open(&self) -> Result<Parquet, UnionError> {
        let input = match &self.content {
            Content::Given => files::open(&self.path).and_then(local),
            Content::Below(root, name) => root.file(name).and_then(local),
            Content::Object(input) => Ok(input.clone()),
        };
        let input = input.map_err(UnionError::read(&self.path))?;
        Parquet::open(input).map_err(UnionError::parquet(&self.path))
    }
}

fn local(file: File) -> io::Result<ParquetInput> {
    if file.metadata()?.len() > SMALL {
        return ParquetInput::of(file);
    }
    let mut bytes = Vec::new();
    file.take(SMALL).read_to_end(&mut bytes)?;
    Ok(ParquetInput::Memory(bytes.into()))
}

/// Returns the files and objects of a selection, sorted, without partitions of other times.
/// Directories are searched for files without a hidden name, and other paths are returned as they
/// are. A symbolic link below a directory is an error.
pub(super) fn found(selection: &Selection) -> Result<Vec<LakeFile>, UnionError> {
    let (urls, paths): (Vec<&PathBuf>, Vec<&PathBuf>) =
        selection.paths.iter().partition(|path| path.to_string_lossy().starts_with(SCHEME));
    let is_wanted = |path: &Path| selection.has_partition(&path.to_string_lossy());
    let mut found = BTreeMap::new();
    // A directory may be given twice, also by two names.
    let mut visited = HashSet::new();
    for path in paths {
        let failed = UnionError::read(path);
        if !fs::metadata(path).map_err(&failed)?.is_dir() {
            found.insert(path.clone(), LakeFile::given(path.clone()));
            continue;
        }
        let root = Arc::new(Directory::open(path).map_err(&failed)?);
        let listing = Listing::new(&root, &mut visited, is_wanted);
        if let Some((path, source)) = listing.refused.into_iter().next() {
            return Err(UnionError::Read { path, source });
        }
        let files = listing.names.into_iter().map(|name| LakeFile::below(&root, name));
        found.extend(files.map(|file| (file.path.clone(), file)));
    }
    let mut found: Vec<LakeFile> = found.into_values().collect();
    for path in urls {
        let failed = UnionError::read(path);
        let store = Store::open(&path.to_string_lossy()).map_err(&failed)?;
        let names = store.names(|name| selection.has_partition(name)).map_err(&failed)?;
        found.extend(LakeFile::objects(&store, &names).map_err(&failed)?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_of_other_times_are_left_out() {
        let time = |text: &str| Some(text.parse::<Timestamp>().unwrap().as_nanosecond() as u64);
        let selection = Selection {
            from: time("2026-11-23T14:00:00Z"),
            to: time("2026-11-24T00:00:00Z"),
            ..Selection::default()
        };
        for (path, is_within) in [
            ("lake/date=2026-11-22", false),
            ("lake/date=2026-11-23", true),
            ("lake/date=2026-11-24", false),
            ("lake/date=2026-11-23/hour=12", false),
            // Its windows can end after 14:00.
            ("lake/date=2026-11-23/hour=13", true),
            ("lake/date=2026-11-23/hour=23", true),
            ("lake", true),
            ("lake/date=x", true),
        ] {
            assert_eq!(selection.has_partition(path), is_within, "{path}");
        }
    }
}
