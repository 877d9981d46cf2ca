//! Merges the rows of many files in one order: by time, then by place. The order depends only on
//! the rows, not on the files, so that compaction does not change the result of a union.

use super::selection::{LakeFile, Selection};
use super::{FleetMember, NumberedNames, RowHeader, SelectionRelation, UnionError};
use crate::lake::parquet::{self, Parquet, ParquetInput, Spool};
use crate::lake::signature::{RowPolicy, Verification};
use crate::lake::{is_header, is_known, laws};
use crate::row::Row;
use ::parquet::errors::ParquetError;
use std::cell::Cell;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::io;
use std::path::Path;
use std::rc::Rc;

/// Files whose rows take at most this many bytes of memory are read whole.
pub(super) const SMALL: u64 = 4 << 20;
/// Maximum number of rows of a file whose rows are not in order and not read whole. Each takes 56
/// bytes of memory.
const MAX_UNORDERED_ROWS: usize = 1 << 19;
/// Maximum memory of open files, those with rows of the same time: pages and rows. Then rows wait on
/// disk.
const MAX_OPEN_BYTES: u64 = 1 << 30;
/// Maximum number of rows on disk of all open files, 56 bytes each.
const MAX_STORED_ROWS: usize = 1 << 22;
/// Maximum number of ranges of windows, and of adopted windows. A range takes some 60 bytes of
/// memory, and three times as much while ranges are joined.
const MAX_RANGES: usize = 1 << 18;

/// A row with its header and origin.
pub(crate) struct OrderedRow {
    pub(super) about: RowHeader,
    /// Its values; empty while they are in a temporary file.
    pub(crate) row: Row,
    /// Number of the row in its file, from one.
    pub(super) number: u64,
    pub(super) path: Rc<Path>,
    /// Its values in a temporary file.
    stored: Option<ParquetInput>,
}

impl OrderedRow {
    /// Returns an error that names the file, the window and its defect.
    pub(super) fn defect(&self, problem: &str) -> UnionError {
        let problem = format!("window {}: {problem}", self.about.window_name());
        UnionError::row(&self.path, self.number, problem)
    }

    /// Returns the memory of its values, in bytes.
    fn bytes(&self) -> u64 {
        self.row.size() as u64
    }

    /// Moves its values to a temporary file.
    fn store(&mut self) -> Result<(), UnionError> {
        if self.stored.is_some() {
            return Ok(());
        }
        let bytes = parquet::write_row(&self.row).map_err(UnionError::parquet(&self.path))?;
        let written = Spool::new().and_then(|mut spool| spool.add(&bytes).map(|_| spool.finish()));
        self.stored = Some(written.map_err(|source| no_spool(&self.path, source))?);
        self.row = Row::default();
        Ok(())
    }

    /// Reads its values back from a temporary file.
    fn load(&mut self) -> Result<(), UnionError> {
        if let Some(input) = self.stored.take() {
            self.row = read_stored(input, |_| true).map_err(UnionError::parquet(&self.path))?;
        }
        Ok(())
    }
}

/// A file with selected rows.
pub(super) struct SelectedFile {
    found: LakeFile,
    first: RowHeader,
    is_sorted: bool,
}

/// Result of the first pass over all files.
#[derive(Default)]
pub(super) struct Survey {
    pub(super) sources: Vec<SelectedFile>,
    /// Number of rows that extend beyond the range.
    pub(super) crossing: u64,
    /// Whether rows extend beyond the start and the end of the range.
    pub(super) is_cut: (bool, bool),
    pub(super) left_out: u64,
    /// Number of selected rows that their host has not signed, if such rows are dropped.
    pub(super) untrusted: u64,
}

impl Survey {
    /// Surveys a file: which of its rows are selected, and whether they are sorted. If untrusted
    /// rows are dropped, nothing of them counts, so signatures are verified here as well.
    pub(super) fn add(
        &mut self,
        found: LakeFile,
        selection: &Selection,
        verification: Option<&Verification>,
        mut each: impl FnMut(&RowHeader, &Path) -> Result<(), UnionError>,
    ) -> Result<(), UnionError> {
        let dropping = verification.filter(|it| it.untrusted == RowPolicy::Drop);
        let file = found.open()?;
        if selection.is_beyond(&file) {
            self.left_out += file.len();
            return Ok(());
        }
        let mut last: Option<RowHeader> = None;
        let (mut first, mut is_sorted): (Option<RowHeader>, bool) = (None, true);
        for (number, row) in (1_u64..).zip(
            file.rows(|name| is_header(name) || (dropping.is_some() && is_known(name)), false)
                .map_err(UnionError::parquet(&found.path))?
                .0,
        ) {
            let row = row.map_err(UnionError::parquet(&found.path))?;
            let is_dropped = || dropping.is_some_and(|it| it.drops(&row));
            let about = match RowHeader::parse(&row) {
                Ok(about) => about,
                Err(_) if is_dropped() => {
                    self.untrusted += 1;
                    continue;
                }
                Err(problem) => return Err(UnionError::row(&found.path, number, problem)),
            };
            is_sorted &= last.as_ref().is_none_or(|last| last.order(&about).is_le());
            match about.fit(selection) {
                SelectionRelation::Within if is_dropped() => self.untrusted += 1,
                SelectionRelation::Within => {
                    each(&about, &found.path)?;
                    if first.as_ref().is_none_or(|first| about.order(first).is_lt()) {
                        first = Some(about.clone());
                    }
                }
                SelectionRelation::Across => {
                    self.crossing += 1;
                    self.is_cut.0 |= selection.from.is_some_and(|from| about.scheduled.0 < from);
                    self.is_cut.1 |= selection.to.is_some_and(|to| about.scheduled.1 > to);
                }
                SelectionRelation::Beyond => self.left_out += 1,
            }
            last = Some(about);
        }
        self.sources.extend(first.map(|first| SelectedFile { found, first, is_sorted }));
        Ok(())
    }
}

/// Opens files to read all of their rows, for any hash. Different rows of one window are an error.
pub(crate) fn all_rows(
    files: &[LakeFile],
    verification: Option<Verification>,
) -> Result<UniqueRows, UnionError> {
    let (mut survey, selection) = (Survey::default(), Selection::default());
    for found in files {
        survey.add(found.clone(), &selection, verification.as_ref(), |_, _| Ok(()))?;
    }
    let rows = Ordered::new(survey.sources, |_| true, true, verification);
    // A compaction loses no row: the other one of a window may be in another hour.
    Ok(UniqueRows { adopted: None, ..UniqueRows::new(rows, selection, RowPolicy::Refuse) })
}

/// Selected rows in order, each once.
pub(crate) struct UniqueRows {
    rows: Ordered,
    selection: Selection,
    next: Option<OrderedRow>,
    conflicts: RowPolicy,
    windows: SeenWindows,
    /// Windows that runs adopted: numbers of the place, of the run that began it, and of the window.
    /// `None` if all rows of such a window are returned.
    adopted: Option<BTreeSet<(u32, u32, u64)>>,
    /// Number of rows of windows that another run had published as well, and that were dropped.
    pub(super) republished: u64,
    /// Number of rows that were dropped because other rows of their windows differ.
    pub(super) dropped: u64,
}

impl UniqueRows {
    pub(super) fn new(rows: Ordered, selection: Selection, conflicts: RowPolicy) -> Self {
        UniqueRows {
            rows,
            selection,
            next: None,
            conflicts,
            windows: SeenWindows::new(MAX_RANGES),
            adopted: Some(BTreeSet::new()),
            republished: 0,
            dropped: 0,
        }
    }

    /// Returns whether another run has published the same window. A run that is killed just after
    /// it published a window leaves it to the run that adopts its state.
    fn is_republished(&mut self, row: &OrderedRow) -> Result<bool, UnionError> {
        let Some(adopted) = &mut self.adopted else { return Ok(false) };
        let RowHeader { place, run, counted_by, windows: (window, _), .. } = &row.about;
        let names = &mut self.windows.names;
        match counted_by {
            Some(first) => {
                let (place_number, first_number) = names.add(place, first);
                names.limit(&row.path)?;
                let is_new = adopted.insert((place_number, first_number, *window));
                if adopted.len() > MAX_RANGES {
                    return Err(too_many(&row.path, MAX_RANGES, "windows that runs adopted"));
                }
                Ok(!is_new || self.windows.has(place, first, *window))
            }
            None if adopted.is_empty() => Ok(false),
            None => Ok(names
                .find(place, run)
                .is_some_and(|(place, run)| adopted.contains(&(place, run, *window)))),
        }
    }

    /// Returns the number of rows that were dropped because their host has not signed them.
    pub(super) fn untrusted(&self) -> u64 {
        self.rows.untrusted.get()
    }

    /// Returns the next row, and the number of its duplicates.
    pub(crate) fn next(&mut self) -> Result<Option<(OrderedRow, u64)>, UnionError> {
        loop {
            let next = match self.next.take() {
                None => self.rows.next(&self.selection)?,
                next => next,
            };
            let Some(row) = next else { return Ok(None) };
            let (mut duplicates, mut conflicts) = (0, 0);
            while let Some(other) = self.rows.next(&self.selection)? {
                if !row.about.is_same_window(&other.about) {
                    self.next = Some(other);
                    break;
                }
                if row.row.says_the_same(&other.row) {
                    duplicates += 1;
                } else if self.conflicts == RowPolicy::Drop {
                    conflicts += 1;
                } else {
                    return Err(UnionError::conflict(&row.path, &other));
                }
            }
            if conflicts > 0 {
                self.dropped += 1 + duplicates + conflicts;
                continue;
            }
            if self.is_republished(&row)? {
                self.republished += 1 + duplicates;
                continue;
            }
            self.windows.add(&row)?;
            return Ok(Some((row, duplicates)));
        }
    }
}

/// Windows of all rows so far. A run counts each window of a place once, at whatever time.
struct SeenWindows {
    /// Maximum number of ranges.
    limit: usize,
    names: NumberedNames,
    /// Ranges of windows by numbers of place and run and the first window: the last window, and the
    /// file.
    ranges: BTreeMap<(u32, u32, u64), (u64, Rc<Path>)>,
}

impl SeenWindows {
    fn new(limit: usize) -> Self {
        SeenWindows { limit, names: NumberedNames::default(), ranges: BTreeMap::new() }
    }

    /// Returns whether a run has counted a window of a place.
    fn has(&self, place: &FleetMember, run: &str, window: u64) -> bool {
        let Some((place, run)) = self.names.find(place, run) else { return false };
        let before = self.ranges.range((place, run, 0)..=(place, run, window)).next_back();
        before.is_some_and(|(_, (last, _))| *last >= window)
    }

    /// Adds the windows of a row, unless another row has one of them.
    fn add(&mut self, row: &OrderedRow) -> Result<(), UnionError> {
        let (first, last) = row.about.windows;
        // Silent windows have no rows, and leave no gap.
        let first = first.saturating_sub(row.about.silent);
        let (place, run) = self.names.add(&row.about.place, &row.about.run);
        self.names.limit(&row.path)?;
        let before = self.ranges.range_mut((place, run, 0)..=(place, run, last)).next_back();
        if let Some(((.., begin), (end, path))) = before {
            if *end >= first {
                return Err(UnionError::conflict(path, row));
            }
            if *begin < first && *end + 1 == first && Rc::ptr_eq(path, &row.path) {
                *end = last;
                return Ok(());
            }
        }
        self.ranges.insert((place, run, first), (last, Rc::clone(&row.path)));
        if self.ranges.len() > self.limit {
            self.join();
            // If few were joined, the next ones would be too soon.
            let most = self.limit / 2;
            if self.ranges.len() > most {
                return Err(too_many(&row.path, most, "gaps between the windows of runs"));
            }
        }
        Ok(())
    }

    /// Joins ranges that follow each other in different files.
    fn join(&mut self) {
        for ((place, run, first), (last, path)) in std::mem::take(&mut self.ranges) {
            let before = self.ranges.last_entry();
            match before {
                Some(mut before)
                    if (before.key().0, before.key().1) == (place, run)
                        && before.get().0 + 1 == first =>
                {
                    before.get_mut().0 = last;
                }
                _ => {
                    self.ranges.insert((place, run, first), (last, path));
                }
            }
        }
    }
}

/// Returns an error about a file with whose rows too much is stored.
fn too_many(path: &Path, most: usize, what: &str) -> UnionError {
    let problem = format!(
        "with its rows, there are more than {most} {what}, which takes too much memory; merge fewer files, or choose rows with --host, --from and --to"
    );
    UnionError::file(path, problem)
}

/// Reads columns of a row in a temporary file.
fn read_stored(input: ParquetInput, is_wanted: impl Fn(&str) -> bool) -> Result<Row, ParquetError> {
    let (mut rows, _) = Parquet::open(input)?.rows(is_wanted, false)?;
    let gone = || ParquetError::General("a row is gone from the temporary file".to_owned());
    rows.next().transpose()?.ok_or_else(gone)
}

/// Returns the error of a row that cannot be written to a temporary file.
fn no_spool(path: &Path, source: io::Error) -> UnionError {
    let source = io::Error::other(format!(
        "its rows cannot wait in a temporary file: {source}; choose another directory with TMPDIR"
    ));
    UnionError::Read { path: path.to_path_buf(), source }
}

type ReadRows = Box<dyn Iterator<Item = Result<OrderedRow, UnionError>>>;

/// A file from its first row to its last.
struct OpenFile {
    rows: ReadRows,
    /// Memory of its pages, or of its rows, in bytes.
    bytes: u64,
    /// Number of its rows if they are on disk.
    stored: usize,
}

/// Merging iterator over the rows of all sources.
pub(super) struct Ordered {
    /// Files to open, in reverse order.
    sources: Vec<SelectedFile>,
    open: BinaryHeap<Reverse<Next>>,
    /// Memory of open files, in bytes, and its maximum.
    bytes: u64,
    limit: u64,
    /// Number of rows of open files that are on disk.
    stored: usize,
    is_wanted: Rc<dyn Fn(&str) -> bool>,
    is_summed: bool,
    verification: Option<Rc<Verification>>,
    /// Number of rows that were dropped because their host has not signed them.
    untrusted: Rc<Cell<u64>>,
}

/// Next row of an open file.
struct Next {
    row: OrderedRow,
    file: OpenFile,
}

impl PartialEq for Next {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Next {}
impl PartialOrd for Next {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Next {
    fn cmp(&self, other: &Self) -> Ordering {
        self.row.about.order(&other.row.about)
    }
}

impl Ordered {
    /// Reads the wanted columns. `is_summed` verifies checksums, which takes all columns, as
    /// signatures do.
    pub(super) fn new(
        mut sources: Vec<SelectedFile>,
        is_wanted: impl Fn(&str) -> bool + 'static,
        is_summed: bool,
        verification: Option<Verification>,
    ) -> Self {
        sources.sort_by(|one, other| other.first.order(&one.first));
        Ordered {
            sources,
            open: BinaryHeap::new(),
            bytes: 0,
            limit: MAX_OPEN_BYTES,
            stored: 0,
            is_wanted: Rc::new(is_wanted),
            is_summed,
            verification: verification.map(Rc::new),
            untrusted: Rc::default(),
        }
    }

    /// Returns the next selected row.
    pub(super) fn next(&mut self, selection: &Selection) -> Result<Option<OrderedRow>, UnionError> {
        loop {
            let is_due = |source: &SelectedFile| {
                self.open.peek().is_none_or(|next| source.first.order(&next.0.row.about).is_le())
            };
            if self.sources.last().is_some_and(is_due) {
                let Some(source) = self.sources.pop() else { return Ok(None) };
                let file = self.open_file(&source)?;
                self.proceed(file)?;
                continue;
            }
            let Some(Reverse(Next { mut row, file })) = self.open.pop() else { return Ok(None) };
            self.bytes = self.bytes.saturating_sub(file.bytes + row.bytes());
            self.stored = self.stored.saturating_sub(file.stored);
            row.load()?;
            self.proceed(file)?;
            if !matches!(row.about.fit(selection), SelectionRelation::Within) {
                continue;
            }
            if !self.is_trusted(&mut row)? {
                self.untrusted.update(|rows| rows + 1);
                continue;
            }
            laws::check_values(&row.row).map_err(|broken| row.defect(&broken))?;
            return Ok(Some(row));
        }
    }

    /// Verifies the signature of a row with all its columns, and removes those that are not wanted.
    /// Returns whether the row counts.
    fn is_trusted(&self, row: &mut OrderedRow) -> Result<bool, UnionError> {
        let Some(verification) = &self.verification else { return Ok(true) };
        if let Err(problem) = verification.trust.verify(&row.row) {
            if verification.untrusted == RowPolicy::Drop {
                return Ok(false);
            }
            return Err(row.defect(&format!(
                "{problem}; find out who wrote it, and remove the file, or leave such rows out with merge --untrusted drop"
            )));
        }
        row.row.0.retain(|(name, _)| is_header(name.as_ref()) || (self.is_wanted)(name.as_ref()));
        Ok(true)
    }

    /// Has the next row of a file wait, if there is one.
    fn proceed(&mut self, mut file: OpenFile) -> Result<(), UnionError> {
        let Some(mut row) = file.rows.next().transpose()? else { return Ok(()) };
        if self.bytes + file.bytes + row.bytes() > self.limit {
            row.store()?;
        }
        self.bytes += file.bytes + row.bytes();
        self.stored += file.stored;
        self.open.push(Reverse(Next { row, file }));
        Ok(())
    }

    fn open_file(&self, source: &SelectedFile) -> Result<OpenFile, UnionError> {
        let file = source.found.open()?;
        let size = file.memory();
        let path: Rc<Path> = source.found.path.as_path().into();
        let (is_wanted, is_whole) = (Rc::clone(&self.is_wanted), self.verification.is_some());
        let is_read =
            move |name: &str| is_known(name) && (is_whole || is_header(name) || is_wanted(name));
        let (verification, untrusted) = (self.verification.clone(), Rc::clone(&self.untrusted));
        // Of a row that is dropped, the header may be anything.
        let is_dropped = move |row: &Row| {
            let is_dropped = verification.as_ref().is_some_and(|it| it.drops(row));
            untrusted.update(|rows| rows + u64::from(is_dropped));
            is_dropped
        };
        let (mut rows, mut pages) =
            read(file, Rc::clone(&path), is_read, self.is_summed, is_dropped)?;
        // The other half is for the next rows of open files.
        let fits = |bytes: u64| self.bytes.saturating_add(bytes) <= self.limit / 2;
        // A reader takes more memory than the rows of a small file.
        if size <= SMALL && fits(SMALL) {
            let (mut whole, mut bytes) = (Vec::new(), 0);
            while bytes <= SMALL
                && let Some(row) = rows.next().transpose()?
            {
                bytes += row.row.size() as u64;
                whole.push(row);
            }
            if bytes <= SMALL {
                whole.sort_by(|one, other| one.about.order(&other.about));
                let rows = Box::new(whole.into_iter().map(Ok));
                return Ok(OpenFile { rows, bytes, stored: 0 });
            }
            // The file stores a long value once that many rows have.
            rows = Box::new(whole.into_iter().map(Ok).chain(rows));
            pages = pages.saturating_add(bytes);
        }
        if source.is_sorted && fits(pages) {
            return Ok(OpenFile { rows, bytes: pages, stored: 0 });
        }
        sorted_on_disk(rows, &path, source.is_sorted, self.stored)
    }
}

/// Reads the rows of a file, and returns the memory of its pages as well. Rows with a defective
/// header are an error, unless they are dropped.
fn read(
    file: Parquet,
    path: Rc<Path>,
    is_wanted: impl Fn(&str) -> bool + 'static,
    is_summed: bool,
    is_dropped: impl Fn(&Row) -> bool + 'static,
) -> Result<(ReadRows, u64), UnionError> {
    let (rows, pages) = file.rows(is_wanted, is_summed).map_err(UnionError::parquet(&path))?;
    let rows = Box::new((1_u64..).zip(rows).filter_map(move |(number, row)| {
        let row = match row {
            Ok(row) => row,
            Err(error) => return Some(Err(UnionError::parquet(&path)(error))),
        };
        match RowHeader::parse(&row) {
            Ok(about) => {
                let path = Rc::clone(&path);
                Some(Ok(OrderedRow { about, row, number, path, stored: None }))
            }
            Err(_) if is_dropped(&row) => None,
            Err(problem) => Some(Err(UnionError::row(&path, number, problem))),
        }
    }));
    Ok((rows, pages))
}

/// Position of a row in a temporary file, with what rows are sorted by.
struct Position {
    start: u64,
    place: u32,
    run: u32,
    /// Number of the row in its file, from one. Rows of a file are at most 2^26.
    number: u32,
    window: u64,
    begin: u64,
    offset: u64,
    length: u64,
}

/// Sorts rows by way of a temporary file. Only their positions and names stay in memory, both of
/// which are limited. `stored` is the number of rows of other files.
fn sorted_on_disk(
    rows: ReadRows,
    path: &Rc<Path>,
    is_sorted: bool,
    stored: usize,
) -> Result<OpenFile, UnionError> {
    let failed = |source: io::Error| no_spool(path, source);
    let mut spool = Spool::new().map_err(failed)?;
    let (mut names, mut positions) = (NumberedNames::default(), Vec::new());
    for row in rows {
        let OrderedRow { about, row, number, .. } = row?;
        if stored + positions.len() == MAX_STORED_ROWS {
            return Err(too_many(path, MAX_STORED_ROWS, "rows of files of the same time"));
        }
        if !is_sorted && positions.len() == MAX_UNORDERED_ROWS {
            let problem = format!(
                "its rows are not in order of time, and more than {MAX_UNORDERED_ROWS}, which takes too much memory; write it again in \
                 order of scheduled_start_ns, host, source, direction and run"
            );
            return Err(UnionError::file(path, problem));
        }
        let (place, run) = names.add(&about.place, &about.run);
        names.limit(path)?;
        let bytes = parquet::write_row(&row).map_err(UnionError::parquet(path))?;
        let (offset, length) = spool.add(&bytes).map_err(failed)?;
        positions.push(Position {
            start: about.scheduled.0,
            place,
            run,
            number: number as u32,
            window: about.windows.0,
            begin: about.begin,
            offset,
            length,
        });
    }
    let (places, runs) = (ranks(&names.places), ranks(&names.runs));
    let rank = |ranks: &[u32], number: u32| ranks.get(number as usize).copied();
    positions.sort_unstable_by_key(|it| {
        let names = (rank(&places, it.place), rank(&runs, it.run));
        (it.start, names, it.window, it.begin, it.number)
    });
    let (whole, path, stored) = (spool.finish(), Rc::clone(path), positions.len());
    let rows = positions.into_iter().map(move |position| -> Result<OrderedRow, UnionError> {
        let input = whole.part(position.offset, position.length);
        let number = u64::from(position.number);
        let header = read_stored(input.clone(), is_header).map_err(UnionError::parquet(&path))?;
        let about =
            RowHeader::parse(&header).map_err(|problem| UnionError::row(&path, number, problem))?;
        let (row, path) = (Row::default(), Rc::clone(&path));
        Ok(OrderedRow { about, row, number, path, stored: Some(input) })
    });
    Ok(OpenFile { rows: Box::new(rows), bytes: 0, stored })
}

/// Returns the place of each numbered name in the order of names.
fn ranks<T>(numbers: &BTreeMap<T, u32>) -> Vec<u32> {
    let mut ranks = vec![0; numbers.len()];
    for (number, rank) in numbers.values().zip(0..) {
        if let Some(place) = ranks.get_mut(*number as usize) {
            *place = rank;
        }
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lake::union::tests::{at, written};
    use flowgauge_testing::scratch::Scratch;

    /// Returns a row after silent windows.
    fn after(silent: u64, window: u64, path: &Rc<Path>) -> OrderedRow {
        let mut row = at("a", window);
        row.int("silent_windows", silent);
        let about = RowHeader::parse(&row).unwrap();
        OrderedRow { about, row, number: 1, path: Rc::clone(path), stored: None }
    }

    #[test]
    fn ranges_of_windows_are_joined_and_gaps_limited() {
        let [one, other]: [Rc<Path>; 2] = ["one", "other"].map(|name| Path::new(name).into());
        let mut windows = SeenWindows::new(8);
        // Each window is in another file than the one before.
        for window in 0..100 {
            let path = if window % 2 == 0 { &one } else { &other };
            windows.add(&after(2, 3 * window + 2, path)).unwrap();
            assert!(windows.ranges.len() <= 8);
        }
        let error = windows.add(&after(0, 200, &one)).unwrap_err();
        assert!(error.to_string().contains("have different rows of window"), "{error}");
        let error =
            (100..200).find_map(|window| windows.add(&after(1, 3 * window + 2, &one)).err());
        let error = error.unwrap().to_string();
        assert!(error.contains("one: with its rows, there are more than 4 gaps"), "{error}");
    }

    #[test]
    fn a_row_that_waited_on_disk_is_the_same() {
        let mut row = after(2, 7, &Path::new("one").into());
        let values = row.row.clone();
        row.store().unwrap();
        assert_eq!((row.bytes(), row.about.windows), (0, (7, 7)));
        row.store().unwrap();
        row.load().unwrap();
        assert_eq!((row.row, row.number), (values, 1));
    }

    /// The files of twelve hosts have rows of the same times.
    #[test]
    fn rows_wait_on_disk_if_open_files_take_too_much_memory() {
        const FILES: u64 = 12;
        const WINDOWS: u64 = 5;
        let directory = Scratch::new("union");
        let host = |file: u64| format!("{file:02}");
        let path = |file: u64| directory.join(host(file));
        for file in 0..FILES {
            let rows: Vec<Row> = (0..WINDOWS)
                .map(|window| {
                    let mut row = at(&host(file), window);
                    row.text("match", "x".repeat(1 << 16));
                    row
                })
                .collect();
            written(path(file), &rows);
        }
        let mut expected = Vec::new();
        for window in 0..WINDOWS {
            expected.extend((0..FILES).map(|file| (window, host(file))));
        }
        // No row, some rows and all rows fit into memory.
        for (limit, on_disk) in
            [(0, FILES..=FILES), (1 << 20, 1..=FILES - 1), (MAX_OPEN_BYTES, 0..=0)]
        {
            let mut survey = Survey::default();
            for file in 0..FILES {
                let found = LakeFile::given(path(file));
                survey.add(found, &Selection::default(), None, |_, _| Ok(())).unwrap();
            }
            let mut ordered = Ordered::new(survey.sources, |_| true, false, None);
            ordered.limit = limit;
            let mut rows = Vec::new();
            while let Some(row) = ordered.next(&Selection::default()).unwrap() {
                assert!(ordered.bytes <= limit, "{} of {limit} bytes", ordered.bytes);
                // Every file is open once each has given a row.
                if rows.len() as u64 + 1 == FILES {
                    let waiting = ordered.open.iter().map(|next| &next.0.row);
                    let stored = waiting.filter(|row| row.stored.is_some()).count();
                    assert!(on_disk.contains(&(stored as u64)), "{stored} with {limit} bytes");
                }
                rows.push((row.about.windows.0, row.about.place.host));
            }
            assert_eq!(rows, expected, "{limit} bytes");
            assert_eq!((ordered.bytes, ordered.stored), (0, 0));
        }
    }
}
