//! Compaction: joins the files of an hour into few files with the same rows.
//!
//! The new files appear next to the old ones, are read back and compared with them, and only then
//! the old ones are removed. A compaction that is killed leaves rows twice, but none fewer: unions
//! deduplicate them, engines that read in that time do not, and the next compaction joins all files
//! of the hour again. It removes only files that it has read itself, and takes no list of them from
//! the disk.

use super::disk::Listing;
use super::is_known;
use super::parquet;
use super::shared::MAX_FILE_ROWS_BYTES;
use super::signature::{RowPolicy, Trust, Verification};
use super::store::{SCHEME, Store};
use super::union::{LakeFile, UnionError, UniqueRows, all_rows};
use crate::row::Row;
use flowgauge_dataplane::files::Directory;
use jiff::Timestamp;
use nix::fcntl::{Flock, FlockArg};
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directory of the lock and of the file that is being written. Engines skip hidden names.
const WORK: &str = ".compact";
const LOCK: &str = "lock";
const NEW: &str = "new";
/// Prefix of the names of joined files.
const JOINED: &str = "joined-";
const HOUR_NS: u64 = 3_600_000_000_000;

/// A directory or object store with a lake.
pub struct Compaction {
    place: LakeTarget,
    /// Keys that rows must be signed with, if they have to be.
    trust: Option<Arc<Trust>>,
}

/// Result of a compaction of one hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionResult {
    /// Number of new files.
    pub files: u64,
    /// Number of rows in them.
    pub rows: u64,
    /// Number of duplicate rows that were removed.
    pub twice: u64,
}

/// Hours to join, and problems that were found with them.
#[derive(Debug, Default)]
pub struct Hours {
    /// Hours with the names of all their files.
    pub ready: Vec<(String, Vec<String>)>,
    /// Entries that do not belong in a lake, each with the remedy.
    pub problems: Vec<String>,
}

impl Compaction {
    /// Opens a lake. With `trust`, hours with rows that their hosts have not signed are not joined.
    ///
    /// # Errors
    /// If it does not exist, is not writable, or another process compacts it.
    pub fn open(path: &Path, trust: Option<Arc<Trust>>) -> Result<Self, UnionError> {
        let url = path.to_string_lossy();
        if url.starts_with(SCHEME) {
            let store = Store::open(&url).map_err(UnionError::read(path))?;
            return Ok(Compaction { place: LakeTarget::Store(store), trust });
        }
        let root = Directory::open(path).map_err(UnionError::read(path))?;
        let work = root.create_below(WORK).map_err(UnionError::read(&path.join(WORK)))?;
        let lock = work.lock_file(LOCK).map_err(UnionError::read(&path.join(WORK).join(LOCK)))?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock)
            .map_err(|_| io::Error::other("another process compacts this lake"))
            .map_err(UnionError::read(path))?;
        let place = LakeTarget::Directory { root: Arc::new(root), work, _lock: lock };
        Ok(Compaction { place, trust })
    }

    /// Returns the hours that ended before a time (nanoseconds since the Unix epoch) and have
    /// several files that are not the result of one compaction.
    ///
    /// # Errors
    /// If the lake cannot be listed.
    pub fn hours(&self, before: u64) -> io::Result<Hours> {
        let mut hours: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let (names, problems) = self.place.names()?;
        for name in names {
            if let Some((partition, _)) = name
                .rsplit_once('/')
                .filter(|(partition, _)| ended(partition).is_some_and(|end| end <= before))
            {
                hours.entry(partition.to_owned()).or_default().push(name);
            }
        }
        let is_joined = |names: &[String]| {
            let first = names.first().and_then(|name| joined(name));
            first.is_some() && names.iter().all(|name| joined(name) == first)
        };
        let ready =
            hours.into_iter().filter(|(_, names)| names.len() > 1 && !is_joined(names)).collect();
        Ok(Hours { ready, problems })
    }

    /// Joins the files of an hour. They stay unchanged if one of them is defective.
    ///
    /// # Errors
    /// [`UnionError`] with the defect and the file.
    pub fn join(&self, partition: &str, names: &[String]) -> Result<CompactionResult, UnionError> {
        let directory = self.place.path(partition);
        let failed = UnionError::read(&directory);
        let sources = self.place.found(names).map_err(&failed)?;
        for found in &sources {
            if let Some(column) = found.open()?.unknown_column(is_known) {
                let problem = format!(
                    "it has a column {column}, which this version does not know and would lose"
                );
                return Err(UnionError::file(&found.path, problem));
            }
        }
        let mut hasher = DefaultHasher::new();
        names.hash(&mut hasher);
        let prefix = format!("{partition}/{JOINED}{:016x}-", hasher.finish());
        if let Some(name) = names.iter().find(|name| name.starts_with(&prefix)) {
            let problem = "it has a name that its compaction would give; rename it";
            return Err(UnionError::file(&self.place.path(name), problem));
        }
        let mut outputs = Vec::new();
        let written = self.write(&sources, &prefix, &mut outputs).and_then(|written| {
            compare(&sources, &self.place.found(&outputs).map_err(&failed)?)?;
            Ok(written)
        });
        let (rows, twice) = written.inspect_err(|_| {
            if let Err(problem) = self.take_back(partition, names, &outputs) {
                tracing::warn!("{partition}: new files stay for the next compaction: {problem}");
            }
        })?;
        names.iter().try_for_each(|name| self.place.remove(name)).map_err(failed)?;
        Ok(CompactionResult { files: outputs.len() as u64, rows, twice })
    }

    /// Writes the rows of files in order; rows with different columns go to different files.
    /// Adds the new files to `outputs`, and returns the numbers of rows and of duplicates.
    fn write(
        &self,
        sources: &[LakeFile],
        prefix: &str,
        outputs: &mut Vec<String>,
    ) -> Result<(u64, u64), UnionError> {
        let mut open: BTreeMap<Vec<String>, (Vec<Row>, usize)> = BTreeMap::new();
        let (mut number, mut twice) = (0, 0);
        let put = |rows: &[Row], outputs: &mut Vec<String>| {
            let name = format!("{prefix}{:06}.parquet", outputs.len());
            let path = self.place.path(&name);
            let bytes =
                parquet::write(rows, &super::about()).map_err(UnionError::parquet(&path))?;
            self.place.put(&name, bytes).map_err(UnionError::read(&path))?;
            outputs.push(name);
            Ok(())
        };
        let verification =
            self.trust.clone().map(|trust| Verification { trust, untrusted: RowPolicy::Refuse });
        let mut rows = all_rows(sources, verification)?;
        while let Some((next, duplicates)) = rows.next()? {
            let row = next.row;
            twice += duplicates;
            number += 1;
            let columns = row.columns().map(|(name, _)| name.to_owned()).collect();
            let (waiting, size) = open.entry(columns).or_default();
            *size += row.size();
            waiting.push(row);
            if *size > MAX_FILE_ROWS_BYTES {
                *size = 0;
                put(&std::mem::take(waiting), outputs)?;
            }
        }
        for (waiting, _) in open.values().filter(|(waiting, _)| !waiting.is_empty()) {
            put(waiting, outputs)?;
        }
        Ok((number, twice))
    }

    /// Removes new files, unless an old one is gone: another process has joined them as well.
    fn take_back(&self, partition: &str, names: &[String], outputs: &[String]) -> io::Result<()> {
        if !self.place.has(partition, names)? {
            return Err(io::Error::other("another process has removed files of this hour"));
        }
        outputs.iter().try_for_each(|name| self.place.remove(name))
    }
}

/// Reads the new files back and compares their rows with the old ones. Signatures are compared as
/// well, so they are not verified again.
fn compare(sources: &[LakeFile], outputs: &[LakeFile]) -> Result<(), UnionError> {
    let (mut sources, mut outputs) = (all_rows(sources, None)?, all_rows(outputs, None)?);
    let next = |rows: &mut UniqueRows| Ok::<_, UnionError>(rows.next()?.map(|(next, _)| next.row));
    loop {
        match (next(&mut sources)?, next(&mut outputs)?) {
            (None, None) => return Ok(()),
            (Some(one), Some(other)) if one.says_the_same(&other) => {}
            _ => {
                return Err(UnionError::Output(io::Error::other(
                    "the joined files were not read back as they were written",
                )));
            }
        }
    }
}

/// Returns the part of a joined file's name that all files of its compaction share.
fn joined(name: &str) -> Option<&str> {
    let (compaction, number) = name.strip_suffix(".parquet")?.rsplit_once('-')?;
    let hash = compaction.rsplit_once('/')?.1.strip_prefix(JOINED)?;
    let is_hash = hash.len() == 16 && hash.bytes().all(|digit| digit.is_ascii_hexdigit());
    (is_hash && number.bytes().all(|digit| digit.is_ascii_digit())).then_some(compaction)
}

/// Returns the end of a partition's hour.
fn ended(partition: &str) -> Option<u64> {
    let (date, hour) = partition.rsplit_once('/').unwrap_or(("", partition));
    let (_, date) = date.rsplit_once("date=")?;
    let hour = hour.strip_prefix("hour=")?;
    let begin: Timestamp = format!("{date}T{hour:0>2}:00:00Z").parse().ok()?;
    Some(u64::try_from(begin.as_nanosecond()).ok()? + HOUR_NS)
}

/// Location of a lake. Names are relative to it, with slashes.
enum LakeTarget {
    /// A directory, with one for the compaction's own files and a lock on it.
    Directory {
        root: Arc<Directory>,
        work: Directory,
        _lock: Flock<File>,
    },
    Store(Store),
}

impl LakeTarget {
    /// Returns the names of all files, sorted, and the problems with other entries.
    fn names(&self) -> io::Result<(Vec<String>, Vec<String>)> {
        let (root, work) = match self {
            LakeTarget::Store(store) => {
                let mut names = store.names(|_| true)?;
                let is_hidden = |part: &str| part.starts_with(['.', '_']);
                names.retain(|name| !name.split('/').any(is_hidden));
                return Ok((names, Vec::new()));
            }
            LakeTarget::Directory { root, work, .. } => (root, work),
        };
        let listing = Listing::new(root, &mut HashSet::new(), |_| true);
        let mut problems: Vec<String> = listing
            .refused
            .into_iter()
            .map(|(path, source)| UnionError::Read { path, source }.to_string())
            .collect();
        let mut names = Vec::new();
        for name in listing.names {
            match name.into_os_string().into_string() {
                Ok(name) => names.push(name),
                Err(name) => problems.push(format!(
                    "the name of {} is no text in UTF-8; rename it",
                    root.path().join(name).display()
                )),
            }
        }
        for entry in work.entries()? {
            if ![LOCK, NEW].iter().any(|own| entry.name == *own) {
                problems.push(format!(
                    "{} is nothing that a compaction makes, and is not read; move it away",
                    work.path().join(&entry.name).display()
                ));
            }
        }
        Ok((names, problems))
    }

    fn path(&self, name: &str) -> PathBuf {
        match self {
            LakeTarget::Directory { root, .. } => root.path().join(name),
            LakeTarget::Store(store) => PathBuf::from(format!("{}/{name}", store.url())),
        }
    }

    fn found(&self, names: &[String]) -> io::Result<Vec<LakeFile>> {
        match self {
            LakeTarget::Directory { root, .. } => {
                Ok(names.iter().map(|name| LakeFile::below(root, name)).collect())
            }
            LakeTarget::Store(store) => LakeFile::objects(store, names),
        }
    }

    /// Whether all these files of a partition exist.
    fn has(&self, partition: &str, names: &[String]) -> io::Result<bool> {
        match self {
            LakeTarget::Directory { root, .. } => {
                names.iter().try_fold(true, |all, name| Ok(root.contains(name)? && all))
            }
            LakeTarget::Store(store) => {
                let found = store.names(|directory| partition.starts_with(directory))?;
                Ok(names.iter().all(|name| found.binary_search(name).is_ok()))
            }
        }
    }

    /// Writes a synchronized file, which appears under its name only when it is complete.
    fn put(&self, name: &str, bytes: Vec<u8>) -> io::Result<()> {
        let (root, work) = match self {
            LakeTarget::Store(store) => return store.replace(name, bytes.into()),
            LakeTarget::Directory { root, work, .. } => (root, work),
        };
        let Some((partition, file)) = name.rsplit_once('/') else {
            return Err(io::Error::other("it is in no partition"));
        };
        let partition = root.below(partition)?;
        let mut new = work.create_temporary(NEW)?;
        new.write_all(&bytes)?;
        new.sync_all()?;
        work.rename(NEW, &new, &partition, file)?;
        partition.sync()
    }

    /// Removes a file if it exists.
    fn remove(&self, name: &str) -> io::Result<()> {
        match self {
            LakeTarget::Store(store) => store.remove(name),
            LakeTarget::Directory { root, .. } => match root.remove(name) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_compaction_share_a_name() {
        let hash = "0123456789abcdef";
        let name = |hash: &str, number: &str| {
            format!("date=2026-11-23/hour=14/joined-{hash}-{number}.parquet")
        };
        let first = name(hash, "000000");
        assert_eq!(joined(&first), joined(&name(hash, "000017")));
        assert_eq!(joined(&first), first.strip_suffix("-000000.parquet"));
        assert_ne!(joined(&first), joined(&name("0123456789abcdee", "000000")));
        for other in [
            name("0123456789abcde", "000000"),
            name("0123456789abcdeg", "000000"),
            name(hash, "x"),
            "date=2026-11-23/hour=14/host-run-000000.parquet".to_owned(),
            "date=2026-11-23/hour=14/notjoined-0123456789abcdef-000000.parquet".to_owned(),
        ] {
            assert_eq!(joined(&other), None, "{other}");
        }
    }
}
