//! Compaction: joins the files of an hour into few files with the same rows.
//!
//! A manifest records which files replace which. If a compaction is killed, the next one completes
//! it or rolls it back. Until the source files are removed, their rows exist twice: unions
//! deduplicate them, engines that read in that moment do not.

use super::is_known;
use super::parquet;
use super::store::{SCHEME, Store};
use super::union::{LakeFile, MergedFiles, UnionError};
use crate::row::Row;
use jiff::Timestamp;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Directory of the manifests. Engines skip hidden names.
const MANIFESTS: &str = ".compact";
/// Prefix of the names of joined files.
const JOINED: &str = "joined-";
const HOUR_NS: u64 = 3_600_000_000_000;
/// Maximum size of the rows of a new file, in bytes of memory.
const LARGEST: usize = 32 << 20;

/// A directory or object store with a lake.
pub struct Compaction {
    place: LakeTarget,
    /// Keeps others from compacting the same directory.
    _lock: Option<Flock<File>>,
}

/// Result of a compaction of one hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionResult {
    /// `date=2026-11-23/hour=14`.
    pub partition: String,
    /// Number of files before and after.
    pub files: (u64, u64),
    /// Number of rows in the new files.
    pub rows: u64,
    /// Number of duplicate rows that were removed.
    pub twice: u64,
}

/// Record of a compaction in progress.
#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    /// Prefix of the names of the new files.
    outputs: String,
    /// Files that the new ones replace.
    sources: Vec<String>,
    /// Whether all new files are written and verified, so that the sources can be removed.
    complete: bool,
}

impl Compaction {
    /// Opens a lake, and finishes or rolls back an interrupted compaction.
    ///
    /// # Errors
    /// If it does not exist, is not writable, or another process compacts it.
    pub fn open(path: &Path) -> Result<Self, UnionError> {
        let failed = |source| UnionError::Read { path: path.to_owned(), source };
        let url = path.to_string_lossy();
        let (place, lock) = if url.starts_with(SCHEME) {
            (LakeTarget::Store(Store::open(&url).map_err(failed)?), None)
        } else {
            let manifests = path.join(MANIFESTS);
            fs::metadata(path).and_then(|_| fs::create_dir_all(&manifests)).map_err(failed)?;
            let lock = File::create(manifests.join("lock")).map_err(failed)?;
            let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock)
                .map_err(|_| failed(io::Error::other("another process compacts this lake")))?;
            (LakeTarget::Directory(path.to_owned()), Some(lock))
        };
        let compaction = Compaction { place, _lock: lock };
        compaction.recover().map_err(failed)?;
        Ok(compaction)
    }

    /// Returns the hours that ended before a time (nanoseconds since the Unix epoch) and have
    /// several files, at least one of them not joined; with the names of all their files.
    ///
    /// # Errors
    /// If the lake cannot be listed.
    pub fn hours(&self, before: u64) -> io::Result<Vec<(String, Vec<String>)>> {
        let mut hours: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in self.place.names(".parquet")? {
            if let Some((partition, _)) = name
                .rsplit_once('/')
                .filter(|(partition, _)| ended(partition).is_some_and(|end| end <= before))
            {
                hours.entry(partition.to_owned()).or_default().push(name);
            }
        }
        let is_joined =
            |name: &String| name.rsplit('/').next().is_some_and(|file| file.starts_with(JOINED));
        Ok(hours
            .into_iter()
            .filter(|(_, names)| names.len() > 1 && !names.iter().all(is_joined))
            .collect())
    }

    /// Joins the files of an hour. They stay unchanged if one of them is defective.
    ///
    /// # Errors
    /// [`UnionError`] with the defect and the file.
    pub fn join(&self, partition: &str, names: &[String]) -> Result<CompactionResult, UnionError> {
        let failed = |source| UnionError::Read { path: self.place.path(partition), source };
        let sources = self.place.found(names).map_err(failed)?;
        for found in &sources {
            if let Some(column) = found.open()?.unknown_column(is_known) {
                let problem = format!(
                    "it has a column {column}, which this version does not know and would lose"
                );
                return Err(UnionError::File { path: found.path.clone(), problem });
            }
        }
        let mut hasher = DefaultHasher::new();
        names.hash(&mut hasher);
        let outputs = format!("{partition}/{JOINED}{:016x}-", hasher.finish());
        let mut manifest = Manifest { outputs, sources: names.to_vec(), complete: false };
        let at = manifest_of(partition);
        self.write_manifest(&at, &manifest).map_err(failed)?;
        let written = self.write(&sources, &manifest.outputs).and_then(|written| {
            compare(&sources, &self.place.found(&written.0).map_err(failed)?)?;
            Ok(written)
        });
        let (outputs, rows, twice) = match written {
            Ok(written) => written,
            Err(error) => {
                self.take_back(&at, &manifest).map_err(failed)?;
                return Err(error);
            }
        };
        manifest.complete = true;
        self.write_manifest(&at, &manifest)
            .and_then(|()| self.finish(&at, &manifest))
            .map_err(failed)?;
        Ok(CompactionResult {
            partition: partition.to_owned(),
            files: (names.len() as u64, outputs.len() as u64),
            rows,
            twice,
        })
    }

    /// Writes the rows of files in order; rows with different columns go to different files.
    /// Returns the new files, and the numbers of rows and of duplicates.
    fn write(
        &self,
        sources: &[LakeFile],
        prefix: &str,
    ) -> Result<(Vec<String>, u64, u64), UnionError> {
        let mut open: BTreeMap<Vec<String>, (Vec<Row>, usize)> = BTreeMap::new();
        let (mut outputs, mut number, mut twice) = (Vec::new(), 0, 0);
        let put = |rows: &[Row], outputs: &mut Vec<String>| {
            let name = format!("{prefix}{:06}.parquet", outputs.len());
            let path = self.place.path(&name);
            let bytes = parquet::write(rows, &super::about())
                .map_err(|problem| UnionError::file(&path, &problem))?;
            self.place.put(&name, bytes).map_err(|source| UnionError::Read { path, source })?;
            outputs.push(name);
            Ok(())
        };
        let mut rows = MergedFiles::ordered(sources.iter().cloned())?;
        while let Some((row, is_twice)) = rows.next()? {
            if is_twice {
                twice += 1;
                continue;
            }
            number += 1;
            let columns = row.columns().map(|(name, _)| name.to_owned()).collect();
            let (waiting, size) = open.entry(columns).or_default();
            *size += row.size();
            waiting.push(row);
            if *size > LARGEST {
                *size = 0;
                put(&std::mem::take(waiting), &mut outputs)?;
            }
        }
        for (waiting, _) in open.values().filter(|(waiting, _)| !waiting.is_empty()) {
            put(waiting, &mut outputs)?;
        }
        Ok((outputs, number, twice))
    }

    fn write_manifest(&self, at: &str, manifest: &Manifest) -> io::Result<()> {
        self.place.put(at, serde_json::to_vec(manifest)?)
    }

    /// Removes the sources after the new files are complete.
    fn finish(&self, at: &str, manifest: &Manifest) -> io::Result<()> {
        manifest.sources.iter().try_for_each(|name| self.place.remove(name))?;
        self.place.remove(at)
    }

    /// Removes new files that are incomplete.
    fn take_back(&self, at: &str, manifest: &Manifest) -> io::Result<()> {
        let outputs = self
            .place
            .names(".parquet")?
            .into_iter()
            .filter(|name| name.starts_with(&manifest.outputs));
        outputs.into_iter().try_for_each(|name| self.place.remove(&name))?;
        self.place.remove(at)
    }

    fn recover(&self) -> io::Result<()> {
        for at in self.place.names(".json")?.into_iter().filter(|name| name.starts_with(MANIFESTS))
        {
            match serde_json::from_slice::<Manifest>(&self.place.get(&at)?) {
                Ok(manifest) if manifest.complete => self.finish(&at, &manifest)?,
                Ok(manifest) => self.take_back(&at, &manifest)?,
                Err(error) => {
                    return Err(io::Error::other(format!(
                        "{at} is not a manifest of a compaction: {error}"
                    )));
                }
            }
        }
        Ok(())
    }
}

/// Reads the new files back and compares their rows with the old ones.
fn compare(sources: &[LakeFile], outputs: &[LakeFile]) -> Result<(), UnionError> {
    let (mut sources, mut outputs) = (
        MergedFiles::ordered(sources.iter().cloned())?,
        MergedFiles::ordered(outputs.iter().cloned())?,
    );
    let next = |files: &mut MergedFiles| {
        loop {
            match files.next()? {
                Some((_, true)) => {}
                row => return Ok::<_, UnionError>(row.map(|(row, _)| row)),
            }
        }
    };
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

fn manifest_of(partition: &str) -> String {
    format!("{MANIFESTS}/{}.json", partition.replace('/', "_"))
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
    Directory(PathBuf),
    Store(Store),
}

impl LakeTarget {
    /// Returns the names with a suffix, sorted.
    fn names(&self, end: &str) -> io::Result<Vec<String>> {
        let mut names = match self {
            LakeTarget::Store(store) => store.names(end, |_| true)?,
            LakeTarget::Directory(directory) => {
                let (mut names, mut left) = (Vec::new(), vec![String::new()]);
                while let Some(below) = left.pop() {
                    for entry in fs::read_dir(directory.join(&below))? {
                        let entry = entry?;
                        let name = entry.file_name().to_string_lossy().into_owned();
                        let name = if below.is_empty() { name } else { format!("{below}/{name}") };
                        if entry.file_type()?.is_dir() {
                            left.push(name);
                        } else if name.ends_with(end) {
                            names.push(name);
                        }
                    }
                }
                names
            }
        };
        names.retain(|name| {
            name.starts_with(MANIFESTS) || !name.split('/').any(|part| part.starts_with(['.', '_']))
        });
        names.sort();
        Ok(names)
    }

    fn path(&self, name: &str) -> PathBuf {
        match self {
            LakeTarget::Directory(directory) => directory.join(name),
            LakeTarget::Store(store) => PathBuf::from(format!("{}/{name}", store.url())),
        }
    }

    fn found(&self, names: &[String]) -> io::Result<Vec<LakeFile>> {
        match self {
            LakeTarget::Directory(directory) => {
                Ok(names.iter().map(|name| LakeFile::file(directory.join(name))).collect())
            }
            LakeTarget::Store(store) => LakeFile::objects(store, names),
        }
    }

    fn get(&self, name: &str) -> io::Result<Vec<u8>> {
        match self {
            LakeTarget::Directory(directory) => fs::read(directory.join(name)),
            LakeTarget::Store(store) => store.get(name).map(|bytes| bytes.to_vec()),
        }
    }

    /// Writes a synchronized file, which appears under its name only when it is complete.
    fn put(&self, name: &str, bytes: Vec<u8>) -> io::Result<()> {
        let directory = match self {
            LakeTarget::Store(store) => return store.replace(name, bytes.into()),
            LakeTarget::Directory(directory) => directory,
        };
        let path = directory.join(name);
        let temporary = directory.join(MANIFESTS).join("new");
        let mut file = File::create(&temporary)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
    }

    /// Removes a file if it exists.
    fn remove(&self, name: &str) -> io::Result<()> {
        match self {
            LakeTarget::Store(store) => store.remove(name),
            LakeTarget::Directory(directory) => match fs::remove_file(directory.join(name)) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        }
    }
}
