//! Unions of rows: the same registers as if one machine had counted all of their packets in one
//! window.
//!
//! Rows with different hashes, keys, shapes or versions are refused, and so are overlapping windows
//! in a union by window. Duplicate rows count once; missing time is reported.
//!
//! [`unite`] surveys all files first (`order::Survey`), then merges their rows in one order
//! (`order::Ordered`) into groups, each of which becomes a record. `selection` finds and opens the
//! files, `coverage` computes missing time, and `leave_one_out` compares hosts.

mod coverage;
mod leave_one_out;
mod order;
mod selection;

pub(crate) use order::{UniqueRows, all_rows};
pub(crate) use selection::LakeFile;
use selection::found;
pub use selection::{By, Options, Selection};

use crate::identity::{self, SCHEMA};
use crate::lake::laws;
use crate::lake::signature::{RowPolicy, Verification};
use crate::measurement::laws::{count, count_if_any};
use crate::measurement::{self, ReportInput, Reports, RowHash, UnionStates};
use crate::record::{Record, RecordKind};
use crate::row::{CHECKSUM, Row, RowDefect, Value};
use crate::text::{counted, storage};
use crate::united::UNTRUSTED;
pub use crate::united::{LeaveOneOut, United};
use ::parquet::errors::ParquetError;
use coverage::Coverage;
use flowgauge_core::cardinality::Mode;
use flowgauge_core::{
    Counters, HashIdentity, KeyKind, MeasurementKind, Settings, WindowTotals, Zeroed, cardinality,
};
use flowgauge_dataplane::{Losses, TimestampClock};
use jiff::Timestamp;
use order::{Ordered, OrderedRow, Survey};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum number of files that an error names for each identity.
const NAMED: usize = 3;

/// Maximum number of hash identities that an error names.
const MAX_IDENTITIES: usize = 8;
/// Maximum memory of the names of places and runs, in bytes: some 40,000 of them. Each is stored up
/// to four times: in the survey, with windows so far, and in groups.
const MAX_NAMES_BYTES: usize = 12 << 20;
/// Memory of all groups by host or source: a constant, plus this for each that is allowed.
const GROUPS_BYTES: usize = 64 << 20;
const GROUP_BYTES: usize = 1 << 20;
/// Memory of a place or run without its name, in bytes.
const NAME_OVERHEAD_BYTES: usize = 256;

/// Reason why rows cannot be merged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnionError {
    /// A file or directory cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file is damaged, a row is not one of a lake, rows cannot be merged with each other, or
    /// they exceed a limit.
    #[error("{0}")]
    Refused(String),
    /// A record could not be written.
    #[error("cannot write: {0}")]
    Output(#[source] io::Error),
}

impl UnionError {
    /// Returns the conversion of an error about a file or directory.
    pub(crate) fn read(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| UnionError::Read { path: path.to_owned(), source }
    }

    /// Returns the error of a file with a defect.
    pub(crate) fn file(path: &Path, problem: impl Display) -> Self {
        UnionError::Refused(format!("{}: {problem}", path.display()))
    }

    /// Returns the conversion of an error of the Parquet library.
    pub(crate) fn parquet(path: &Path) -> impl Fn(ParquetError) -> Self {
        move |problem| match problem {
            ParquetError::General(problem) => Self::file(path, problem),
            other => Self::file(path, other),
        }
    }

    /// Returns the error of a row, whose number in its file counts from one.
    fn row(path: &Path, row: u64, problem: impl Display) -> Self {
        UnionError::Refused(format!("{}, row {row}: {problem}", path.display()))
    }

    fn conflict(one: &Path, other: &OrderedRow) -> Self {
        UnionError::Refused(format!(
            "{} and {} have different rows of window {}: find out who wrote them, and remove the wrong one, leave the host out with \
             --exclude, or both rows with merge --conflicts drop",
            one.display(),
            other.path.display(),
            other.about.window_name()
        ))
    }

    /// Returns the error of rows with different properties.
    fn mixed(what: &str, has: &str) -> Self {
        UnionError::Refused(format!(
            "{what} differ, and no number can be made of them together: {has}"
        ))
    }

    /// Returns the error of a selection without rows that count.
    fn nothing(why: &str) -> Self {
        UnionError::Refused(format!("no windows to merge{why}"))
    }
}

/// A place in the fleet where packets were counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FleetMember {
    host: String,
    source: String,
    direction: String,
}

impl FleetMember {
    /// Returns the memory of its names, in bytes.
    fn bytes(&self) -> usize {
        self.host.len() + self.source.len() + self.direction.len() + NAME_OVERHEAD_BYTES
    }

    fn name(&self) -> String {
        let way = match self.direction.as_str() {
            "ingress" => " in",
            "egress" => " out",
            _ => "",
        };
        format!("{}:{}{way}", self.host, self.source)
    }
}

/// Hash identities, each with its first files and their total number.
#[derive(Default)]
struct Identities(BTreeMap<String, (Vec<PathBuf>, u64)>);

impl Identities {
    fn add(&mut self, identity: String, path: &Path) {
        // Two are refused.
        if self.0.len() >= MAX_IDENTITIES && !self.0.contains_key(&identity) {
            return;
        }
        let (first, number) = self.0.entry(identity).or_default();
        if first.last().is_none_or(|last| last != path) {
            *number += 1;
            if first.len() < NAMED {
                first.push(path.to_owned());
            }
        }
    }

    fn describe(&self) -> String {
        let described = self.0.iter().map(|(identity, (first, number))| {
            let names: Vec<String> = first.iter().map(|path| path.display().to_string()).collect();
            let more = if *number > NAMED as u64 {
                format!(" and {} more", number - NAMED as u64)
            } else {
                String::new()
            };
            format!("{}{more} has {identity}", names.join(", "))
        });
        described.collect::<Vec<_>>().join("; ")
    }
}

/// Key of a group: its name, begin and end.
type Key = (String, u64, u64);

struct Group {
    bank: Box<WindowTotals>,
    settings: Settings,
    union_states: UnionStates,
    counters: Counters,
    /// Filter expression of all rows.
    filter: Option<Arc<str>>,
    drops: Losses,
    late: u64,
    begin: u64,
    end: u64,
    united: United,
    places: BTreeMap<FleetMember, Coverage>,
    measured: BTreeMap<&'static str, u64>,
}

impl Group {
    fn new(bank: Box<WindowTotals>) -> Self {
        Group {
            bank,
            settings: none(cardinality::Settings::default()),
            union_states: UnionStates::default(),
            counters: Counters::default(),
            filter: None,
            drops: Losses::default(),
            late: 0,
            begin: u64::MAX,
            end: 0,
            united: United::default(),
            places: BTreeMap::new(),
            measured: BTreeMap::new(),
        }
    }

    /// Returns the memory of the measurements, in bytes.
    fn bytes(&self) -> usize {
        let bank = self.settings.used().iter().map(|used| used.own + used.shared).sum::<usize>();
        bank + self.union_states.bytes()
    }
}

/// Returns settings with all measurements off.
fn none(cardinality: cardinality::Settings) -> Settings {
    Settings::only(cardinality::Settings { mode: Mode::Off, ..cardinality })
}

/// Merges the selected rows and passes a record of each union on, in the order of names or times. A
/// union by window holds one window in memory. If heavy hitters exceed their capacity, the result
/// depends on the order of rows: by time, then host, source, direction and run.
///
/// # Errors
/// [`UnionError`]. Different hashes are refused before the first record; other defects may be found
/// after records of earlier windows.
pub fn unite(
    selection: &Selection,
    options: &Options,
    mut each: impl FnMut(Record) -> io::Result<()>,
) -> Result<(), UnionError> {
    let mut common = Common::default();
    let survey = common.survey(selection, options)?;
    common.names.limit_groups(options)?;
    let mut unions = Unions::new(selection, options, survey)?;
    unions.collect(&mut common, &mut each)?;
    unions.publish(&common, true, &mut each)
}

/// One side of a comparison.
pub struct Side {
    /// Key of distinct flows, and the merged registers; `None` if no row has any.
    pub registers: Option<(KeyKind, Vec<u8>)>,
    /// Provenance of the rows.
    pub united: United,
}

/// Merges the distinct flows of two selections whose rows could be merged with each other.
///
/// # Errors
/// As [`unite`].
pub fn sides(
    one: &Selection,
    other: &Selection,
    conflicts: RowPolicy,
    verification: Option<Verification>,
) -> Result<[Side; 2], UnionError> {
    let mut common = Common::default();
    let measure = vec![MeasurementKind::Cardinality];
    let options = Options { measure, conflicts, verification, ..Options::default() };
    let mut side = |selection: &Selection| {
        let survey = common.survey(selection, &options)?;
        let mut unions = Unions::new(selection, &options, survey)?;
        unions.collect(&mut common, &mut |_| Ok(()))?;
        let (_, mut group) = unions.groups.pop_first().ok_or_else(|| UnionError::nothing(""))?;
        let range = unions.range(&group);
        group.conclude(range, &options);
        let cardinality::Settings { mode, key, precision, .. } = group.settings.cardinality;
        let registers =
            (mode != Mode::Off).then(|| (key, group.bank.cardinality.levels(precision).to_vec()));
        let (conflicts, Survey { crossing, untrusted, .. }) = (unions.conflicts, unions.survey);
        Ok(Side { registers, united: United { crossing, conflicts, untrusted, ..group.united } })
    };
    Ok([side(one)?, side(other)?])
}

/// Unions in progress.
struct Unions<'a> {
    selection: &'a Selection,
    options: &'a Options,
    survey: Survey,
    groups: BTreeMap<Key, Group>,
    now: u64,
    /// Number of lost rows of each run, as its last row so far states it.
    lost: BTreeMap<u32, u64>,
    /// Places with a row so far. A later window without a row of such a place is reported as
    /// missing.
    places: BTreeSet<FleetMember>,
    records: u64,
    /// Number of rows that were dropped because other rows of their windows differ.
    conflicts: u64,
    /// Number of rows of windows that another run had published as well.
    republished: u64,
    /// Memory of all groups by host or source.
    bytes: usize,
    /// Registers with and without each host, if requested.
    leave_one_out: Option<leave_one_out::Registers>,
    /// An empty bank for the next window, for reuse.
    spare: Option<Box<WindowTotals>>,
}

impl<'a> Unions<'a> {
    fn new(
        selection: &'a Selection,
        options: &'a Options,
        survey: Survey,
    ) -> Result<Self, UnionError> {
        if survey.sources.is_empty() {
            let described = |number: u64, what: &str| {
                if number > 0 {
                    format!(", {} {what}", counted(number, "window"))
                } else {
                    String::new()
                }
            };
            let described = described(survey.crossing, "across the ends of the range")
                + &described(survey.left_out, "of other times, hosts or sources")
                + &described(survey.untrusted, UNTRUSTED);
            return Err(UnionError::nothing(&described));
        }
        let now =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64);
        Ok(Unions {
            selection,
            options,
            survey,
            groups: BTreeMap::new(),
            now,
            lost: BTreeMap::new(),
            places: BTreeSet::new(),
            records: 0,
            conflicts: 0,
            republished: 0,
            bytes: 0,
            leave_one_out: options.leaves_out_hosts().then(Default::default),
            spare: None,
        })
    }

    fn is_wanted(measure: &[MeasurementKind]) -> impl Fn(&str) -> bool + 'static {
        let kinds = MeasurementKind::ALL.into_iter();
        let unwanted = kinds.filter(|kind| !measure.is_empty() && !measure.contains(kind));
        let columns = unwanted.flat_map(|kind| measurement::columns(Some(kind.name())));
        let unwanted: Vec<&str> = columns.collect();
        move |column| !unwanted.iter().any(|begin| column.starts_with(begin))
    }

    /// Adds all rows to their groups. By window, a group is passed to `done` when a later one
    /// begins.
    fn collect(
        &mut self,
        common: &mut Common,
        done: &mut dyn FnMut(Record) -> io::Result<()>,
    ) -> Result<(), UnionError> {
        let sources = std::mem::take(&mut self.survey.sources);
        let measure = &self.options.measure;
        let verification = self.options.verification.clone();
        let rows =
            Ordered::new(sources, Self::is_wanted(measure), measure.is_empty(), verification);
        let mut rows = UniqueRows::new(rows, self.selection.clone(), self.options.conflicts);
        let (mut bank, mut last): (_, Option<RowHeader>) = (WindowTotals::boxed(), None);
        while let Some((next, duplicates)) = rows.next()? {
            let OrderedRow { about, row, number, path, .. } = next;
            let misfit = |problem: RowDefect| UnionError::row(&path, number, problem);
            let key = about.key(self.options.by);
            if self.options.by == By::Window && !self.groups.contains_key(&key) {
                if let Some(before) =
                    last.as_ref().filter(|last| last.scheduled.1 > about.scheduled.0)
                {
                    return Err(UnionError::Refused(format!(
                        "windows do not coincide: {} and {} overlap; merge them by host or source, or all windows into one record, or count in \
                         aligned windows of one length",
                        before.window_name(),
                        about.window_name()
                    )));
                }
                self.publish(common, false, done)?;
            }
            let spare = &mut self.spare;
            let group = self
                .groups
                .entry(key)
                .or_insert_with(|| Group::new(spare.take().unwrap_or_else(WindowTotals::boxed)));
            let bytes_before = group.bytes();
            group.united.twice += duplicates;
            let (_, run) = common.names.add(&about.place, &about.run);
            let mut settings = none(cardinality::Settings::default()).with_hash(about.hash.mode);
            group.union_states.restore(&row, &mut settings, &mut bank).map_err(misfit)?;
            common.compare(&settings, &about, &row, &path)?;
            let cardinality::Settings { mode, precision, .. } = settings.cardinality;
            if let Some(registers) = self.leave_one_out.as_mut().filter(|_| mode != Mode::Off) {
                registers.add(&about.place.host, bank.cardinality.levels(precision));
            }
            let lost: u64 = row.number("lost_rows").map_err(misfit)?;
            // If the range has a start, the first row of a run does not show when its lost rows
            // occurred.
            let before = self.lost.insert(run, lost).unwrap_or(if self.selection.from.is_some() {
                lost
            } else {
                0
            });
            let lost_rows = lost.saturating_sub(before);
            group.united.lost_rows = group.united.lost_rows.saturating_add(lost_rows);
            group.add(&row, &about, run, &settings, &bank).map_err(misfit)?;
            self.bytes = (self.bytes + group.bytes()).saturating_sub(bytes_before);
            self.limit_memory()?;
            bank.clear(&settings);
            if self.options.by == By::Window {
                self.places.insert(about.place.clone());
            }
            last = Some(about);
        }
        (self.conflicts, self.republished) = (rows.dropped, rows.republished);
        // The survey has also seen files without any other row.
        self.survey.untrusted = self.survey.untrusted.max(rows.untrusted());
        if self.records == 0 && self.groups.is_empty() {
            let rows = counted(self.conflicts, "row");
            let why = format!(", {rows} dropped for others of their windows");
            return Err(UnionError::nothing(&why));
        }
        Ok(())
    }

    /// Refuses groups by host or source that take more memory than is allowed for all of them.
    fn limit_memory(&self) -> Result<(), UnionError> {
        let by = self.options.by;
        let limit = self.options.limit.unwrap_or(Options::GROUPS);
        let most = limit.saturating_mul(GROUP_BYTES).saturating_add(GROUPS_BYTES);
        if self.bytes <= most || matches!(by, By::All | By::Window) {
            return Ok(());
        }
        Err(UnionError::Refused(format!(
            "{} unions by {} take more than {}: choose rows with --host, --source or --exclude, measurements with --measure, or allow 1 MB \
             more for each of --limit",
            self.groups.len(),
            by.name(),
            storage(most as u64)
        )))
    }

    /// Returns the range of time that a group should cover.
    fn range(&self, group: &Group) -> (u64, u64) {
        let Selection { from, to, .. } = *self.selection;
        let begin = from
            .filter(|_| !self.survey.is_cut.0)
            .map_or(group.begin, |from| from.min(group.begin));
        let end = to
            .filter(|_| !self.survey.is_cut.1)
            .map_or(group.end, |to| to.min(self.now).max(group.end));
        (begin, end)
    }

    /// Passes the records of all groups to `done`. `is_end` states whether no row follows.
    fn publish(
        &mut self,
        common: &Common,
        is_end: bool,
        done: &mut dyn FnMut(Record) -> io::Result<()>,
    ) -> Result<(), UnionError> {
        let groups = std::mem::take(&mut self.groups);
        let rows = self.rows(common)?;
        let number = groups.len();
        let is_by_window = self.options.by == By::Window;
        for (((name, begin, end), mut group), last) in
            groups.into_iter().zip((0..number).map(|it| it + 1 == number))
        {
            let range = if is_by_window { (begin, end) } else { self.range(&group) };
            if is_by_window {
                group.miss(&self.places, end.saturating_sub(begin));
            }
            group.conclude(range, self.options);
            if last && is_end {
                // Rows beyond the range belong to no group.
                group.united.crossing = self.survey.crossing;
                group.united.conflicts = self.conflicts;
                group.united.twice += self.republished;
                group.united.untrusted = self.survey.untrusted;
                if !is_by_window {
                    let places = common.names.places.keys();
                    group.united.absent = absent(&self.options.expect, places);
                    group.united.leave_one_out = self.leave_one_out(&group)?;
                }
            }
            let united = std::mem::take(&mut group.united);
            let record = self.record(name, range, &group, united, common, &rows)?;
            if is_by_window {
                group.bank.clear(&group.settings);
                group.bank.counters = Counters::default();
                self.spare = Some(group.bank);
            }
            self.records += 1;
            done(record).map_err(UnionError::Output)?;
        }
        Ok(())
    }

    /// Estimates the distinct flows without each host, if requested.
    fn leave_one_out(&self, group: &Group) -> Result<Option<LeaveOneOut>, UnionError> {
        let Some(registers) = &self.leave_one_out else { return Ok(None) };
        let estimator = self.options.estimation.cardinality.estimator;
        registers
            .estimates(group.settings.cardinality.key, estimator)
            .map_err(|error| UnionError::row(Path::new("all"), 0, error))
    }

    fn record(
        &self,
        name: String,
        range: (u64, u64),
        group: &Group,
        united: United,
        common: &Common,
        rows: &RowHash,
    ) -> Result<Record, UnionError> {
        let is_by_window = self.options.by == By::Window;
        // A window that began late or ended early counted in that time.
        let (begin, end) = (group.begin, group.end);
        let reading = ReportInput {
            kind: RecordKind::Union,
            is_part: false,
            settings: &group.settings,
            clock: TimestampClock::TRACE,
            options: &self.options.estimation,
            rows,
            bank: &group.bank,
            hash: common.hash,
            truth: None,
            union_states: Some(&group.union_states),
            snapshot: None,
            start_ns: begin,
            now_ns: end,
            span_ns: end.saturating_sub(begin),
        };
        let reports =
            Reports::of(&reading).map_err(|error| UnionError::row(Path::new(&name), 0, error))?;
        let packets = group.counters.packets();
        let is_whole = united.incomplete == 0
            && united.missing.is_empty()
            && united.lost_rows == 0
            && united.absent.is_empty();
        Ok(Record {
            kind: if is_by_window { RecordKind::Window } else { RecordKind::Union },
            window: self.records,
            start_ns: begin,
            end_ns: end,
            scheduled: Some(range).filter(|_| is_by_window),
            complete: is_whole,
            backend: "lake",
            interface: name,
            direction: "both",
            inner: group.settings.headers.inner,
            filter: group.filter.clone(),
            counters: group.counters,
            packets_before_after: (packets, packets),
            drops: group.drops.clone(),
            late: group.late,
            reports,
            united: Some(united),
            ..Record::default()
        })
    }

    /// Returns the row hashes of sketches. The secret of a keyed hash is needed only for queries
    /// and for spread, whose keys have cells.
    fn rows(&self, common: &Common) -> Result<RowHash, UnionError> {
        let has_spread = common
            .settings
            .as_ref()
            .is_some_and(|settings| MeasurementKind::Spread.is_on(settings));
        let use_of_secret = if !self.options.estimation.queries.is_empty() {
            Some(("a query for a flow", "give it with --hash-key"))
        } else if has_spread {
            Some(("spread", "give it with --hash-key, or leave spread out with --measure"))
        } else {
            None
        };
        RowHash::of(common.row_hash, self.options.key.as_ref()).or_else(
            |hash| match use_of_secret {
                None => Ok(hash),
                Some((what, advice)) => Err(UnionError::Refused(format!(
                    "{what} needs the secret of the hash, {}: {advice}",
                    identity::name(&hash.hash)
                ))),
            },
        )
    }
}

/// State shared by all unions of one command.
struct Common {
    identities: Identities,
    hash: HashIdentity,
    row_hash: HashIdentity,
    names: NumberedNames,
    /// Merged settings so far, and the first row with each measurement on.
    settings: Option<Settings>,
    first: BTreeMap<&'static str, FirstRow>,
}

/// Numbers of places and runs. Rows are many, so what is stored for each has the numbers instead of
/// the names.
#[derive(Default)]
struct NumberedNames {
    places: BTreeMap<FleetMember, u32>,
    runs: BTreeMap<String, u32>,
    /// Memory of the names.
    bytes: usize,
}

impl NumberedNames {
    /// Returns the numbers of a place and a run, and assigns the next ones to new names.
    fn add(&mut self, place: &FleetMember, run: &str) -> (u32, u32) {
        let next = self.places.len() as u32;
        let place = self.places.get(place).copied().unwrap_or_else(|| {
            self.bytes += place.bytes();
            *self.places.entry(place.clone()).or_insert(next)
        });
        let next = self.runs.len() as u32;
        let run = self.runs.get(run).copied().unwrap_or_else(|| {
            self.bytes += run.len() + NAME_OVERHEAD_BYTES;
            *self.runs.entry(run.to_owned()).or_insert(next)
        });
        (place, run)
    }

    /// Returns the numbers of a place and a run, if both have one.
    fn find(&self, place: &FleetMember, run: &str) -> Option<(u32, u32)> {
        Some((*self.places.get(place)?, *self.runs.get(run)?))
    }

    /// Fails if the names take too much memory with those of a file.
    fn limit(&self, path: &Path) -> Result<(), UnionError> {
        if self.bytes <= MAX_NAMES_BYTES {
            return Ok(());
        }
        let names = self.places.len() + self.runs.len();
        let problem = format!(
            "with its rows, there are more than {names} names of sources and runs; merge fewer files, or choose rows with --host, --from and --to"
        );
        Err(UnionError::file(path, problem))
    }

    /// Refuses more groups than the limit, before any row is read in full.
    fn limit_groups(&self, options: &Options) -> Result<(), UnionError> {
        let by = if options.leaves_out_hosts() { By::Host } else { options.by };
        let groups = match by {
            By::All | By::Window => return Ok(()),
            By::Host => self.places.keys().map(|place| &place.host).collect::<BTreeSet<_>>().len(),
            By::Source => self.places.len(),
        };
        let (by, limit) = (by.name(), options.limit.unwrap_or(Options::GROUPS));
        if groups <= limit {
            return Ok(());
        }
        Err(UnionError::Refused(format!(
            "{groups} unions by {by}, and at most {limit}: choose rows with --host, --source or --exclude, or allow more with --limit"
        )))
    }
}

/// First row that has a measurement on.
struct FirstRow {
    path: PathBuf,
    host: String,
    how: Vec<(String, Value)>,
}

impl Default for Common {
    fn default() -> Self {
        let hash = HashIdentity::new(flowgauge_core::HashMode::Crc32, 0);
        Common {
            identities: Identities::default(),
            hash,
            row_hash: hash,
            names: NumberedNames::default(),
            settings: None,
            first: BTreeMap::new(),
        }
    }
}

impl Common {
    /// Surveys all files of a selection, and refuses different hashes.
    fn survey(&mut self, selection: &Selection, options: &Options) -> Result<Survey, UnionError> {
        let (mut survey, mut filters) = (Survey::default(), BTreeSet::new());
        for found in found(selection)? {
            let mut last = None;
            survey.add(found, selection, options.verification.as_ref(), |about, path| {
                let identity = (about.hash, about.row_hash, about.inner, about.filter.clone());
                if last.as_ref() != Some(&identity) {
                    last = Some(identity);
                    if filters.len() < 2 {
                        filters.insert(about.filter.clone());
                    }
                    self.identities.add(about.identity(), path);
                    (self.hash, self.row_hash) = (about.hash, about.row_hash);
                }
                self.names.add(&about.place, &about.run);
                self.names.limit(path)
            })?;
        }
        if self.identities.0.len() > 1 {
            let what = if filters.len() > 1 { "expressions (--match)" } else { "hashes" };
            return Err(UnionError::mixed(what, &self.identities.describe()));
        }
        Ok(survey)
    }

    /// Checks that a row's settings match those of the rows before it. Measurements that were off
    /// before are added.
    fn compare(
        &mut self,
        settings: &Settings,
        about: &RowHeader,
        row: &Row,
        path: &Path,
    ) -> Result<(), UnionError> {
        let mine = self.settings.get_or_insert(none(settings.cardinality));
        for kind in MeasurementKind::ALL.into_iter().filter(|kind| kind.is_on(settings)) {
            let name = kind.name();
            if !kind.is_on(mine) {
                kind.take_over(mine, settings);
                let first = FirstRow {
                    path: path.to_owned(),
                    host: about.place.host.clone(),
                    how: how(row, name),
                };
                self.first.insert(name, first);
            } else if !kind.is_alike(mine, settings) {
                let Some(FirstRow { path: first, host, how: was }) = self.first.get(name) else {
                    continue;
                };
                let is: BTreeMap<String, Value> = how(row, name).into_iter().collect();
                let differs = was.iter().filter(|(column, value)| is.get(column) != Some(value));
                let described = |value: Option<&Value>| {
                    value.map_or("nothing".to_owned(), |value| serde_json::json!(value).to_string())
                };
                let differs: Vec<String> = differs
                    .map(|(column, value)| {
                        format!(
                            "{column} is {}, not {}",
                            described(is.get(column)),
                            described(Some(value))
                        )
                    })
                    .collect();
                let has = format!(
                    "{name} of host {} ({}) differs from that of host {host} ({}): {}; choose measurements with --measure, or leave \
                     hosts out with --exclude",
                    about.place.host,
                    path.display(),
                    first.display(),
                    differs.join(", ")
                );
                return Err(UnionError::mixed("measurements", &has));
            }
        }
        Ok(())
    }
}

/// Returns the expected hosts that are in none of the places.
fn absent<'a>(expected: &[String], places: impl Iterator<Item = &'a FleetMember>) -> Vec<String> {
    let hosts: BTreeSet<&String> = places.map(|place| &place.host).collect();
    expected.iter().filter(|host| !hosts.contains(host)).cloned().collect()
}

/// Returns the columns with a measurement's settings.
fn how(row: &Row, measurement: &str) -> Vec<(String, Value)> {
    const ENDS: [&str; 17] = [
        "key",
        "of",
        "unit",
        "algorithm",
        "slots",
        "sketch",
        "rows",
        "columns",
        "bits",
        "registers",
        "buckets",
        "log2",
        "kinds",
        "auto",
        "directions",
        "ns",
        "prefixes",
    ];
    let is_how = |name: &str| {
        measurement::columns(Some(measurement)).any(|begin| name.starts_with(begin))
            && name.rsplit('_').next().is_some_and(|end| ENDS.contains(&end))
    };
    let is_scalar =
        |value: &Value| matches!(value, Value::Int(_) | Value::Text(_) | Value::Bool(_));
    row.columns()
        .filter(|(name, value)| is_how(name) && is_scalar(value))
        .map(|(name, value)| (name.to_owned(), value.clone()))
        .collect()
}

/// Maximum sum over rows of packets: such that sums of all kinds and causes fit as well.
const MAX_PACKET_SUM: u64 = 1 << 59;
/// Maximum sum over rows of bytes: 42 days of 100 links of 100 Gbit/s. Integers of a lake fit.
const MAX_BYTE_SUM: u64 = 1 << 62;

/// Relation of a row's time and place to a selection.
enum SelectionRelation {
    Within,
    /// Partly within the range.
    Across,
    Beyond,
}

/// Columns of a row that do not belong to a measurement.
#[derive(Clone)]
struct RowHeader {
    place: FleetMember,
    run: String,
    /// Earlier run that began the window, if `run` adopted it.
    counted_by: Option<String>,
    /// Numbers of the first and last window in the row.
    windows: (u64, u64),
    /// Number of windows without packets, and without rows, just before it.
    silent: u64,
    begin: u64,
    end: u64,
    scheduled: (u64, u64),
    hash: HashIdentity,
    row_hash: HashIdentity,
    inner: bool,
    filter: Option<Arc<str>>,
}

impl RowHeader {
    fn parse(row: &Row) -> Result<Self, RowDefect> {
        let schema: u64 = row.number("schema")?;
        if schema != SCHEMA {
            return Err(format!(
                "it is of version {schema} of the columns, and this program knows version {SCHEMA}"
            ));
        }
        laws::check_header(row)?;
        let window: u64 = row.number("window")?;
        let text = |column: &str| {
            row.maybe_text(column)
                .map(str::to_owned)
                .ok_or_else(|| format!("column {column} is missing"))
        };
        Ok(RowHeader {
            place: FleetMember {
                host: text("host")?,
                source: text("source")?,
                direction: text("direction")?,
            },
            run: text("run")?,
            counted_by: row.maybe_text("counted_by").map(str::to_owned),
            windows: (window, row.number_or("last_window", window)?),
            silent: row.number_or("silent_windows", 0)?,
            begin: row.number("start_ns")?,
            end: row.number("end_ns")?,
            scheduled: (row.number("scheduled_start_ns")?, row.number("scheduled_end_ns")?),
            hash: identity::of(row)?,
            row_hash: identity::named(row, "row_hash")?,
            inner: row.flag("inner")?,
            filter: row.maybe_text("match").map(Arc::from),
        })
    }

    fn fit(&self, selection: &Selection) -> SelectionRelation {
        let Selection { host, exclude, source, direction, from, to, .. } = selection;
        let FleetMember { host: my_host, source: my_source, direction: my_direction } = &self.place;
        let is_named = |wanted: &Option<String>, mine: &String| {
            wanted.as_ref().is_none_or(|wanted| wanted == mine)
        };
        if exclude.contains(my_host)
            || !is_named(host, my_host)
            || !is_named(source, my_source)
            || !is_named(direction, my_direction)
        {
            return SelectionRelation::Beyond;
        }
        let (from, to, (begin, end)) = (from.unwrap_or(0), to.unwrap_or(u64::MAX), self.scheduled);
        match (begin >= from && end <= to, begin < to && end > from) {
            (true, _) => SelectionRelation::Within,
            (false, true) => SelectionRelation::Across,
            (false, false) => SelectionRelation::Beyond,
        }
    }

    /// Whether the rows are of one window. They are next to each other in a union's order.
    fn is_same_window(&self, other: &RowHeader) -> bool {
        self.scheduled.0 == other.scheduled.0
            && self.windows.0 == other.windows.0
            && self.place == other.place
            && self.run == other.run
    }

    /// Compares rows by their order in a union.
    fn order(&self, other: &RowHeader) -> Ordering {
        self.sort_key().cmp(&other.sort_key())
    }

    fn sort_key(&self) -> (u64, &FleetMember, &str, u64, u64) {
        (self.scheduled.0, &self.place, self.run.as_str(), self.windows.0, self.begin)
    }

    fn window_name(&self) -> String {
        let time = |ns: u64| {
            Timestamp::from_nanosecond(ns.into())
                .map_or_else(|_| format!("{ns} ns"), |time| time.to_string())
        };
        format!("{} to {} of {}", time(self.scheduled.0), time(self.scheduled.1), self.place.name())
    }

    /// Describes the properties that all rows of a union must share.
    fn identity(&self) -> String {
        let (hash, row_hash) = (identity::name(&self.hash), identity::name(&self.row_hash));
        let rows =
            if hash == row_hash { String::new() } else { format!(" with rows of {row_hash}") };
        let inner = if self.inner { " of inner headers" } else { "" };
        let filter =
            self.filter.as_ref().map_or_else(String::new, |text| format!(" with --match '{text}'"));
        format!("{hash}{rows}{inner}{filter}")
    }

    fn key(&self, by: By) -> Key {
        match by {
            By::All => ("all".to_owned(), 0, 0),
            By::Host => (self.place.host.clone(), 0, 0),
            By::Source => (self.place.name(), 0, 0),
            By::Window => {
                let (begin, end) = self.scheduled;
                ("all".to_owned(), begin, end)
            }
        }
    }
}

impl Group {
    fn add(
        &mut self,
        row: &Row,
        about: &RowHeader,
        run: u32,
        settings: &Settings,
        bank: &WindowTotals,
    ) -> Result<(), RowDefect> {
        for kind in MeasurementKind::ALL.into_iter().filter(|kind| kind.is_on(settings)) {
            kind.take_over(&mut self.settings, settings);
            *self.measured.entry(kind.name()).or_default() += 1;
        }
        self.settings.hash = settings.hash;
        self.settings.headers.inner = about.inner;
        self.filter.clone_from(&about.filter);
        let counters = Counters {
            bytes: count(row, "bytes")?,
            ipv4: count(row, "ipv4_packets")?,
            ipv6: count(row, "ipv6_packets")?,
            non_ip: count(row, "non_ip")?,
            truncated: count(row, "truncated")?,
            bad_header: count(row, "bad_header")?,
            unmatched: count_if_any(row, "unmatched")?,
            unmatched_bytes: count_if_any(row, "unmatched_bytes")?,
            merged: count_if_any(row, "merged")?,
        };
        let late = count(row, "late")?;
        let drops = laws::losses(row)?;
        let bytes = [
            (self.counters.bytes, counters.bytes),
            (self.counters.unmatched_bytes, counters.unmatched_bytes),
        ];
        let packets = [
            (self.counters.packets(), counters.packets()),
            (self.counters.unmatched, counters.unmatched),
            (self.counters.merged, counters.merged),
            (self.late, late),
        ];
        let drops_by_cause = drops.iter().map(|(cause, packets)| (self.drops.get(cause), packets));
        let mut packets = packets.into_iter().chain(drops_by_cause);
        let fits = |(sum, more): (u64, u64), most: u64| sum.saturating_add(more) <= most;
        if !bytes.into_iter().all(|sums| fits(sums, MAX_BYTE_SUM))
            || !packets.all(|sums| fits(sums, MAX_PACKET_SUM))
        {
            return Err("more packets or bytes in all than a number can hold".to_owned());
        }
        self.bank.unite(bank, settings);
        self.counters.merge(&counters);
        drops.iter().for_each(|(cause, packets)| self.drops.add(cause, packets));
        self.late += late;
        self.begin = self.begin.min(about.begin);
        self.end = self.end.max(about.end);
        self.united.rows += 1;
        self.united.incomplete += u64::from(!row.flag("complete")?);
        self.united.unchecked += u64::from(row.maybe_number(CHECKSUM).is_none());
        match self.places.get_mut(&about.place) {
            Some(coverage) => coverage.add(about, run),
            None => {
                self.places.insert(about.place.clone(), Coverage::new(about, run));
            }
        }
        Ok(())
    }

    /// Reports places of earlier windows without a row in this one as missing.
    fn miss(&mut self, places: &BTreeSet<FleetMember>, length: u64) {
        let missing = places.iter().filter(|place| !self.places.contains_key(place));
        self.united.missing.extend(missing.map(|place| (place.name(), length)));
    }

    /// Computes missing and duplicated time over a range, in nanoseconds since the Unix epoch.
    fn conclude(&mut self, range: (u64, u64), options: &Options) {
        self.bank.counters = self.counters;
        let united = &mut self.united;
        united.places = self.places.len() as u64;
        let hosts: BTreeSet<&String> = self.places.keys().map(|place| &place.host).collect();
        united.hosts = hosts.len() as u64;
        if options.by == By::Window {
            united.absent = absent(&options.expect, self.places.keys());
        }
        united.partial = self
            .measured
            .iter()
            .filter(|(_, rows)| **rows < united.rows)
            .map(|(name, rows)| (*name, *rows))
            .collect();
        for (place, coverage) in &self.places {
            let (missing, doubled) = coverage.missing_and_doubled(range);
            united.missing.extend((missing > 0).then(|| (place.name(), missing)));
            united.doubled.extend((doubled > 0).then(|| (place.name(), doubled)));
        }
        united.missing.sort();
    }
}

#[cfg(test)]
mod tests;
