//! Options of unions: files, rows and grouping. Finds and opens the files.

use super::UnionError;
use crate::lake::parquet::{Parquet, ParquetInput};
use crate::lake::store::{SCHEME, Store};
use crate::measurement::Estimation;
use flowgauge_core::MeasurementKind;
use flowgauge_dataplane::HashKey;
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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
    /// Measurements to read; all if empty.
    pub measure: Vec<MeasurementKind>,
    /// Hosts that must have rows.
    pub expect: Vec<String>,
    /// Estimators and the content of reports.
    pub estimation: Estimation,
    /// Secret of a keyed hash, needed for queries of flows.
    pub key: Option<HashKey>,
}

/// A file of a lake, or a downloaded object.
#[derive(Clone)]
pub(crate) struct LakeFile {
    pub(crate) path: PathBuf,
    /// Content of an object; `None` for a file.
    object: Option<ParquetInput>,
}

impl LakeFile {
    pub(crate) fn file(path: PathBuf) -> Self {
        LakeFile { path, object: None }
    }

    /// Downloads objects of a store by name. Their content is in a temporary file.
    pub(crate) fn objects(store: &Store, names: &[String]) -> io::Result<Vec<Self>> {
        let path = |name: &String| PathBuf::from(format!("{}/{name}", store.url()));
        let inputs = store.fetch(names)?;
        Ok(names
            .iter()
            .zip(inputs)
            .map(|(name, input)| LakeFile { path: path(name), object: Some(input) })
            .collect())
    }

    pub(crate) fn open(&self) -> Result<Parquet, UnionError> {
        let input = match &self.object {
            Some(input) => input.clone(),
            None => local(&self.path)
                .map_err(|source| UnionError::Read { path: self.path.clone(), source })?,
        };
        Parquet::open(input).map_err(|problem| UnionError::file(&self.path, &problem))
    }
}

fn local(path: &Path) -> io::Result<ParquetInput> {
    let about = fs::metadata(path)?;
    if !about.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    if about.len() <= SMALL {
        Ok(ParquetInput::Memory(fs::read(path)?.into()))
    } else {
        ParquetInput::of(File::open(path)?)
    }
}

/// Returns the files and objects of a selection, sorted, without partitions of other times.
pub(crate) fn found(selection: &Selection) -> Result<Vec<LakeFile>, UnionError> {
    let (urls, paths): (Vec<&PathBuf>, Vec<&PathBuf>) =
        selection.paths.iter().partition(|path| path.to_string_lossy().starts_with(SCHEME));
    let paths: Vec<PathBuf> = paths.into_iter().cloned().collect();
    let is_wanted = |path: &Path| selection.has_partition(&path.to_string_lossy());
    let mut found: Vec<LakeFile> =
        files_where(&paths, is_wanted)?.into_iter().map(LakeFile::file).collect();
    for path in urls {
        let failed = |source| UnionError::Read { path: path.clone(), source };
        let store = Store::open(&path.to_string_lossy()).map_err(failed)?;
        let names =
            store.names(".parquet", |name| selection.has_partition(name)).map_err(failed)?;
        found.extend(LakeFile::objects(&store, &names).map_err(failed)?);
    }
    Ok(found)
}

/// Returns the files of some paths, sorted: directories are searched for files without a hidden
/// name, other paths are returned as they are. Links are followed.
///
/// # Errors
/// [`UnionError::Read`].
pub fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, UnionError> {
    files_where(paths, |_| true)
}

fn files_where(
    paths: &[PathBuf],
    is_wanted: impl Fn(&Path) -> bool,
) -> Result<Vec<PathBuf>, UnionError> {
    let mut found = BTreeSet::new();
    let mut visited = BTreeSet::new();
    let mut left: Vec<PathBuf> = paths.to_vec();
    while let Some(path) = left.pop() {
        let failed = |source| UnionError::Read { path: path.clone(), source };
        let about = fs::metadata(&path).map_err(failed)?;
        if !about.is_dir() {
            found.insert(path);
            continue;
        }
        // Links can form a cycle.
        if !visited.insert((about.dev(), about.ino())) {
            continue;
        }
        for entry in fs::read_dir(&path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let (name, path) = (entry.file_name(), entry.path());
            if name.to_string_lossy().starts_with(['.', '_']) {
                continue;
            }
            let is_directory = match fs::metadata(&path) {
                Ok(about) => about.is_dir(),
                // A concurrent compaction or upload may have removed the file.
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound && !entry.path().is_symlink() =>
                {
                    continue;
                }
                Err(source) => return Err(UnionError::Read { path, source }),
            };
            if (is_directory && is_wanted(&path))
                || (!is_directory && path.extension().is_some_and(|it| it == "parquet"))
            {
                left.push(path);
            }
        }
    }
    Ok(found.into_iter().collect())
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
