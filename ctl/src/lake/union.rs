//! Rows of a lake together: the same registers as if one machine had counted all of their packets in one window.
//!
//! What must not be united is refused: other hashes, other keys, other shapes, another version, and as windows those that do not coincide. What is
//! there twice counts once; what is missing is told.

use super::identity::{self, SCHEMA};
use super::parquet::Parquet;
use super::row::{Misfit, Row};
use super::store::{SCHEME, Store};
use crate::kind::Kind;
use crate::measurement::{Besides, Estimation, Reading, Reports, Rows};
use crate::record::Record;
use crate::text::{counted, lasted, optional};
use flowgauge_core::cardinality::Mode;
use flowgauge_core::{Counters, HashIdentity, MeasurementKind, Settings, WideBank, Zeroed, cardinality};
use flowgauge_dataplane::{Clock, HashKey, LossCause, Losses};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Gaps between windows that are shorter are of clocks, and not of windows that are missing.
const GAP_NS: u64 = 1_000_000_000;
/// Files that an error names for each identity.
const NAMED: usize = 3;

/// Why rows cannot be united.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnionError {
    /// A file or directory cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is no Parquet, or a broken one.
    #[error("{} is no whole Parquet file: {problem}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A row holds what no lake holds.
    #[error("{}, row {row}: {problem}", path.display())]
    Row {
        /// Of which file.
        path: PathBuf,
        /// Counted from one.
        row: usize,
        /// What is wrong.
        problem: String,
    },
    /// Rows that no number can be made of together.
    #[error("{what} differ, and no number can be made of them together: {has}")]
    Mixed {
        /// What differs.
        what: &'static str,
        /// Which files have which.
        has: String,
    },
    /// Windows that are not of the same times.
    #[error(
        "windows do not coincide: {one} and {other} overlap; unite them by host, source or all together, or count them in windows of one length \
         that are aligned"
    )]
    Overlap {
        /// A window.
        one: String,
        /// Another one.
        other: String,
    },
    /// Nothing to unite.
    #[error("no row is left to unite{0}")]
    Nothing(String),
    /// What a sketch has to say of a flow takes the secret of its hash.
    #[error("to ask for a flow takes the secret of the hash, {0}: give it with --hash-key")]
    Secret(String),
}

/// Which rows, of which files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Files, directories with files below them, and URLs of stores with objects below them.
    pub paths: Vec<PathBuf>,
    /// Of this host only.
    pub host: Option<String>,
    /// Of this source only.
    pub source: Option<String>,
    /// Of this direction only.
    pub direction: Option<String>,
    /// Windows that begin then or later, in nanoseconds since the Unix epoch.
    pub from: Option<u64>,
    /// Windows that end then or earlier.
    pub to: Option<u64>,
}

impl Selection {
    /// Whether no window of a file is in the range of times.
    fn is_beyond(&self, file: &Parquet) -> bool {
        let range = |column| file.range(column).map(|(low, high)| (low.max(0).unsigned_abs(), high.max(0).unsigned_abs()));
        let after = self.to.zip(range("scheduled_start_ns")).is_some_and(|(to, (first, _))| first >= to);
        let before = self.from.zip(range("scheduled_end_ns")).is_some_and(|(from, (_, last))| last <= from);
        after || before
    }
}

/// What rows are united by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// All together.
    #[default]
    All,
    /// Host by host.
    Host,
    /// Source by source: interface or port of a host, and direction.
    Source,
    /// Window by window, of all hosts.
    Window,
}

impl By {
    /// All of them.
    pub const ALL: [By; 4] = [By::All, By::Host, By::Source, By::Window];

    /// The name used in options.
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

/// What to tell of unions.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What they are by.
    pub by: By,
    /// How registers become numbers.
    pub estimation: Estimation,
    /// The secret of keyed hashes, with which flows are asked for.
    pub key: Option<HashKey>,
}

/// A place where packets were counted, of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    host: String,
    source: String,
    direction: String,
}

impl Place {
    fn name(&self) -> String {
        let way = match self.direction.as_str() {
            "ingress" => " in",
            "egress" => " out",
            _ => "",
        };
        format!("{}:{}{way}", self.host, self.source)
    }
}

/// Of which rows a union is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct United {
    /// Rows.
    pub rows: u64,
    /// Hosts.
    pub hosts: u64,
    /// Interfaces and ports, with their directions.
    pub places: u64,
    /// Rows that were there more than once and count once.
    pub twice: u64,
    /// Windows that were not counted from their beginning to their end.
    pub incomplete: u64,
    /// Rows that hosts could not write.
    pub lost_rows: u64,
    /// Places of which nothing is there of some of the time of the union, and for how many nanoseconds.
    pub missing: Vec<(String, u64)>,
    /// Places that two runs counted at once, so that their packets count twice, and for how many nanoseconds.
    pub doubled: Vec<(String, u64)>,
    /// Measurements that some rows do not have, and how many have them.
    pub partial: Vec<(&'static str, u64)>,
    /// Rows that begin before the range and end in it, or begin in it and end after it.
    pub crossing: u64,
}

impl United {
    /// The same, a line each.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.told().into_iter().map(|phrases| phrases.join(" ")).collect()
    }

    /// Lines below a union.
    pub(crate) fn told(&self) -> Vec<Vec<String>> {
        let of = format!("of {} of {}", counted(self.places, "place"), counted(self.hosts, "host"));
        let mut lines = vec![vec![counted(self.rows, "window"), of]];
        let some =
            |number: u64, singular: &str, rest: &str| (number > 0).then(|| vec![format!("{} {rest}", counted(number, singular))]);
        lines.extend(some(self.incomplete, "window", "cut short, or with something missing"));
        lines.extend(some(self.lost_rows, "window", "lost before they could be written"));
        lines.extend(some(self.crossing, "window", "across the ends of the range, left out"));
        lines.extend(some(self.twice, "row", "found more than once, counted once"));
        lines.extend(self.missing.iter().map(|(place, ns)| vec![format!("{place}: {} missing", lasted(*ns))]));
        let doubled =
            |(place, ns): &(String, u64)| vec![format!("{place}: {} counted by two runs, packets count twice", lasted(*ns))];
        lines.extend(self.doubled.iter().map(doubled));
        let partial = |(name, rows): &(&str, u64)| vec![format!("{name} from {} of {}", counted(*rows, "window"), self.rows)];
        lines.extend(self.partial.iter().map(partial));
        lines
    }
}

impl Serialize for United {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let by_name = |pairs: &[(String, u64)]| pairs.iter().cloned().collect::<BTreeMap<_, _>>();
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("rows", &self.rows)?;
        line.serialize_entry("hosts", &self.hosts)?;
        line.serialize_entry("places", &self.places)?;
        line.serialize_entry("incomplete", &self.incomplete)?;
        line.serialize_entry("lost_rows", &self.lost_rows)?;
        line.serialize_entry("crossing", &self.crossing)?;
        line.serialize_entry("twice", &self.twice)?;
        line.serialize_entry("missing_ns", &by_name(&self.missing))?;
        line.serialize_entry("doubled_ns", &by_name(&self.doubled))?;
        let partial: BTreeMap<_, _> = self.partial.iter().copied().collect();
        optional(&mut line, "partial", (!partial.is_empty()).then_some(partial))?;
        line.end()
    }
}

/// What must be equal, and who has it.
#[derive(Default)]
struct Identities(BTreeMap<String, BTreeSet<PathBuf>>);

impl Identities {
    fn add(&mut self, identity: String, path: &Path) {
        self.0.entry(identity).or_default().insert(path.to_owned());
    }

    fn told(&self) -> String {
        let mut told = String::new();
        for (identity, paths) in &self.0 {
            let names: Vec<String> = paths.iter().take(NAMED).map(|path| path.display().to_string()).collect();
            let more = if paths.len() > NAMED { format!(" and {} more", paths.len() - NAMED) } else { String::new() };
            let _ = write!(told, "{}{} has {identity}{more}", if told.is_empty() { "" } else { "; " }, names.join(", "));
        }
        told
    }
}

/// Which rows make one union.
type Key = (String, u64, u64);

struct Group {
    bank: Box<WideBank>,
    settings: Settings,
    besides: Besides,
    counters: Counters,
    drops: Losses,
    late: u64,
    begin: u64,
    end: u64,
    united: United,
    windows: BTreeMap<Place, Vec<Span>>,
    measured: BTreeMap<&'static str, u64>,
    /// Of each run, rows that it could not write.
    lost: BTreeMap<u32, u64>,
}

/// A window of a place. There are many.
struct Span {
    begin: u64,
    end: u64,
    run: u32,
}

impl Group {
    fn new() -> Self {
        Group {
            bank: WideBank::boxed(),
            settings: none(cardinality::Settings::default()),
            besides: Besides::default(),
            counters: Counters::default(),
            drops: Losses::default(),
            late: 0,
            begin: u64::MAX,
            end: 0,
            united: United::default(),
            windows: BTreeMap::new(),
            measured: BTreeMap::new(),
            lost: BTreeMap::new(),
        }
    }
}

/// Settings in which nothing is measured.
fn none(cardinality: cardinality::Settings) -> Settings {
    Settings::only(cardinality::Settings { mode: Mode::Off, ..cardinality })
}

/// Unions of the rows of a selection.
pub struct Unions {
    groups: BTreeMap<Key, Group>,
    hash: HashIdentity,
    row_hash: HashIdentity,
    options: Options,
    crossing: u64,
}

/// What is common to all rows of all unions that belong together.
#[derive(Default)]
struct Common {
    identities: Identities,
    hashes: Option<(HashIdentity, HashIdentity)>,
    /// Places and runs by numbers, since rows are many.
    places: BTreeMap<Place, u32>,
    runs: BTreeMap<String, u32>,
    /// Settings so far, and the first file that had a measurement on.
    settings: Option<Settings>,
    first: BTreeMap<&'static str, PathBuf>,
}

impl Unions {
    /// Reads all rows of a selection.
    ///
    /// # Errors
    /// [`UnionError`]; whatever is wrong with one row, there is no number.
    pub fn read(selection: &Selection, options: Options) -> Result<Self, UnionError> {
        let mut common = Common::default();
        let unions = Self::of(selection, options, &mut common)?;
        unions.check()
    }

    /// Reads two selections whose rows could be united.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_pair(one: &Selection, other: &Selection, options: &Options) -> Result<[Self; 2], UnionError> {
        let mut common = Common::default();
        let one = Self::of(one, options.clone(), &mut common)?;
        let other = Self::of(other, options.clone(), &mut common)?;
        Ok([one.check()?, other.check()?])
    }

    fn of(selection: &Selection, options: Options, common: &mut Common) -> Result<Self, UnionError> {
        let mut groups: BTreeMap<Key, Group> = BTreeMap::new();
        let mut seen = HashSet::new();
        let (mut bank, mut crossing, mut left_out) = (WideBank::boxed(), 0, 0_u64);
        for (path, object) in found(&selection.paths)? {
            let unreadable =
                |problem: ::parquet::errors::ParquetError| UnionError::File { path: path.clone(), problem: problem.to_string() };
            let mut last = None;
            let unread = |source| UnionError::Read { path: path.clone(), source };
            let file = match object {
                Some((store, name)) => Parquet::open(store.get(&name).map_err(unread)?),
                None => Parquet::open(File::open(&path).map_err(unread)?),
            };
            let file = file.map_err(unreadable)?;
            if selection.is_beyond(&file) {
                left_out += file.len();
                continue;
            }
            for (row, number) in file.rows().zip(1..) {
                let row = row.map_err(unreadable)?;
                let misfit = |problem: Misfit| UnionError::Row { path: path.clone(), row: number, problem };
                let about = About::of(&row).map_err(misfit)?;
                match about.is_of(selection) {
                    Fit::Within => {}
                    Fit::Across => {
                        crossing += 1;
                        continue;
                    }
                    Fit::Beyond => {
                        left_out += 1;
                        continue;
                    }
                }
                let identity = (about.hash, about.row_hash, about.inner);
                if last.replace(identity) != Some(identity) {
                    common.identities.add(about.identity(), &path);
                }
                if common.identities.0.len() > 1 {
                    // No more numbers, but who has what.
                    continue;
                }
                common.hashes = Some((about.hash, about.row_hash));
                let group = groups.entry(about.key(options.by)).or_insert_with(Group::new);
                let (place, run) = (numbered(&mut common.places, &about.place), numbered(&mut common.runs, &about.run));
                if !seen.insert((place, run, about.window, about.begin)) {
                    group.united.twice += 1;
                    continue;
                }
                let mut settings = none(cardinality::Settings { hash: about.hash.mode, ..cardinality::Settings::default() });
                group.besides.restore(&row, &mut settings, &mut bank).map_err(misfit)?;
                common.compare(&settings, &path)?;
                group.add(&row, &about, run, &settings, &bank).map_err(misfit)?;
                bank.clear(&settings);
            }
        }
        if common.identities.0.len() > 1 {
            return Err(UnionError::Mixed { what: "hashes", has: common.identities.told() });
        }
        let Some((hash, row_hash)) = common.hashes.filter(|_| !groups.is_empty()) else {
            let told =
                |number: u64, what: &str| if number > 0 { format!(", {} {what}", counted(number, "row")) } else { String::new() };
            let told = told(crossing, "across the ends of the range") + &told(left_out, "of other times, hosts or sources");
            return Err(UnionError::Nothing(told));
        };
        Ok(Unions { groups, hash, row_hash, options, crossing })
    }

    fn check(self) -> Result<Self, UnionError> {
        if self.options.by == By::Window {
            let keys: Vec<&Key> = self.groups.keys().collect();
            for pair in keys.windows(2) {
                let [(one, _, end), (other, begin, _)] = pair else { continue };
                if begin < end {
                    return Err(UnionError::Overlap { one: one.clone(), other: other.clone() });
                }
            }
        }
        Ok(self)
    }

    /// Of which rows all of it is.
    #[must_use]
    pub fn told(mut self) -> United {
        let mut all = std::mem::take(&mut self.groups).into_values();
        let Some(mut group) = all.next() else { return United::default() };
        let range = (group.begin, group.end);
        group.conclude(range);
        United { crossing: self.crossing, ..group.united }
    }

    /// The registers of distinct flows of all rows together, and how they are hashed.
    #[must_use]
    pub fn levels(&self) -> Option<Vec<u8>> {
        let mut levels: Option<Vec<u8>> = None;
        for group in self.groups.values().filter(|group| group.settings.cardinality.mode != Mode::Off) {
            let theirs = group.bank.cardinality.levels(group.settings.cardinality.precision);
            match &mut levels {
                None => levels = Some(theirs.to_vec()),
                Some(levels) => levels.iter_mut().zip(theirs).for_each(|(level, other)| *level = (*level).max(*other)),
            }
        }
        levels
    }

    /// What distinct flows are by.
    #[must_use]
    pub fn key(&self) -> Option<flowgauge_core::KeyKind> {
        let on = self.groups.values().find(|group| group.settings.cardinality.mode != Mode::Off);
        on.map(|group| group.settings.cardinality.key)
    }

    /// Whether some row has a measurement.
    #[must_use]
    pub fn measures(&self, kind: MeasurementKind) -> bool {
        self.groups.values().any(|group| kind.is_on(&group.settings))
    }

    /// A record of each union, in the order of names or times.
    ///
    /// # Errors
    /// [`UnionError::Secret`], and [`UnionError::Row`] if registers are damaged.
    pub fn records(mut self) -> Result<Vec<Record>, UnionError> {
        let rows = self.rows()?;
        let by = self.options.by;
        let crossing = self.crossing;
        let groups = std::mem::take(&mut self.groups);
        let number = groups.len();
        let mut records = Vec::new();
        for ((index, ((name, begin, end), mut group)), last) in (0_u64..).zip(groups).zip((0..number).map(|it| it + 1 == number)) {
            let range = if by == By::Window { (begin, end) } else { (group.begin, group.end) };
            group.conclude(range);
            // They belong to no group.
            group.united.crossing = if last { crossing } else { 0 };
            let reading = Reading {
                kind: Kind::Union,
                is_part: false,
                settings: &group.settings,
                clock: Clock::TRACE,
                options: &self.options.estimation,
                rows: &rows,
                bank: &group.bank,
                hash: self.hash,
                truth: None,
                besides: Some(&group.besides),
                snapshot: None,
                start_ns: range.0,
                now_ns: range.1,
                span_ns: range.1.saturating_sub(range.0),
            };
            let damaged = |error: Box<dyn std::error::Error + Send + Sync>| UnionError::Row {
                path: PathBuf::from(&name),
                row: 0,
                problem: error.to_string(),
            };
            let reports = Reports::of(&reading).map_err(damaged)?;
            let packets = group.counters.packets();
            records.push(Record {
                kind: if by == By::Window { Kind::Window } else { Kind::Union },
                window: index,
                last_window: None,
                start_ns: range.0,
                end_ns: range.1,
                scheduled: Some(range).filter(|_| by == By::Window),
                at_ns: None,
                late_ns: 0,
                clock_step_ns: None,
                complete: group.united.incomplete == 0 && group.united.missing.is_empty() && group.united.lost_rows == 0,
                backend: "lake",
                interface: name,
                direction: "both",
                hook: None,
                part: false,
                inner: group.settings.headers.inner,
                counters: group.counters,
                packets_before_after: (packets, packets),
                drops: group.drops,
                ledger: None,
                source: None,
                alerts: Vec::new(),
                late: group.late,
                cpu_ns: None,
                reports,
                united: Some(group.united),
                counted: None,
            });
        }
        Ok(records)
    }

    /// How rows of sketches are hashed; with which words, only those who ask for flows have to know.
    fn rows(&self) -> Result<Rows, UnionError> {
        let asks = !self.options.estimation.queries.is_empty();
        Rows::of(self.row_hash, self.options.key.as_ref())
            .or_else(|hash| if asks { Err(UnionError::Secret(identity::name(&hash.hash))) } else { Ok(hash) })
    }
}

impl Common {
    /// Whether a row measures as those before it do; what they do not measure, it may.
    fn compare(&mut self, settings: &Settings, path: &Path) -> Result<(), UnionError> {
        let mine = self.settings.get_or_insert(none(settings.cardinality));
        for kind in MeasurementKind::ALL.into_iter().filter(|kind| kind.is_on(settings)) {
            let name = kind.name();
            if !kind.is_on(mine) {
                kind.take_over(mine, settings);
                self.first.insert(name, path.to_owned());
            } else if !kind.is_alike(mine, settings) {
                let first = self.first.get(name).map(|path| path.display().to_string()).unwrap_or_default();
                let has =
                    format!("{} measures {name} by another key, in another shape or by other means than {first}", path.display());
                return Err(UnionError::Mixed { what: "measurements", has });
            }
        }
        Ok(())
    }
}

/// The number of a name, a new one if it has none.
fn numbered<T: Ord + Clone>(numbers: &mut BTreeMap<T, u32>, name: &T) -> u32 {
    let next = numbers.len() as u32;
    numbers.get(name).copied().unwrap_or_else(|| *numbers.entry(name.clone()).or_insert(next))
}

/// How a row fits a selection.
enum Fit {
    Within,
    /// Of some of its time.
    Across,
    Beyond,
}

/// What is known of a row before its measurements.
struct About {
    place: Place,
    run: String,
    window: u64,
    begin: u64,
    end: u64,
    scheduled: (u64, u64),
    hash: HashIdentity,
    row_hash: HashIdentity,
    inner: bool,
}

impl About {
    fn of(row: &Row) -> Result<Self, Misfit> {
        let schema: u64 = row.number("schema")?;
        if schema != SCHEMA {
            return Err(format!("it is of version {schema} of the columns, and this program knows version {SCHEMA}"));
        }
        let text = |column: &str| row.maybe_text(column).map(str::to_owned).ok_or_else(|| format!("column {column} is missing"));
        Ok(About {
            place: Place { host: text("host")?, source: text("source")?, direction: text("direction")? },
            run: text("run")?,
            window: row.number("window")?,
            begin: row.number("start_ns")?,
            end: row.number("end_ns")?,
            scheduled: (row.number("scheduled_start_ns")?, row.number("scheduled_end_ns")?),
            hash: identity::of(row)?,
            row_hash: identity::named(row, "row_hash")?,
            inner: row.flag("inner")?,
        })
    }

    fn is_of(&self, selection: &Selection) -> Fit {
        let Selection { host, source, direction, from, to, .. } = selection;
        let Place { host: my_host, source: my_source, direction: my_direction } = &self.place;
        let is_named = |wanted: &Option<String>, mine: &String| wanted.as_ref().is_none_or(|wanted| wanted == mine);
        if !is_named(host, my_host) || !is_named(source, my_source) || !is_named(direction, my_direction) {
            return Fit::Beyond;
        }
        let (from, to, (begin, end)) = (from.unwrap_or(0), to.unwrap_or(u64::MAX), self.scheduled);
        match (begin >= from && end <= to, begin < to && end > from) {
            (true, _) => Fit::Within,
            (false, true) => Fit::Across,
            (false, false) => Fit::Beyond,
        }
    }

    /// What other rows must have as well.
    fn identity(&self) -> String {
        let (hash, row_hash) = (identity::name(&self.hash), identity::name(&self.row_hash));
        let rows = if hash == row_hash { String::new() } else { format!(" with rows of {row_hash}") };
        format!("{hash}{rows}{}", if self.inner { " of inner headers" } else { "" })
    }

    fn key(&self, by: By) -> Key {
        match by {
            By::All => ("all".to_owned(), 0, 0),
            By::Host => (self.place.host.clone(), 0, 0),
            By::Source => (self.place.name(), 0, 0),
            // In the order of their times, which as text have as many digits.
            By::Window => {
                let (begin, end) = self.scheduled;
                (format!("{begin:020}…{end:020}"), begin, end)
            }
        }
    }
}

impl Group {
    fn add(&mut self, row: &Row, about: &About, run: u32, settings: &Settings, bank: &WideBank) -> Result<(), Misfit> {
        for kind in MeasurementKind::ALL.into_iter().filter(|kind| kind.is_on(settings)) {
            kind.take_over(&mut self.settings, settings);
            *self.measured.entry(kind.name()).or_default() += 1;
        }
        self.settings.cardinality.hash = settings.cardinality.hash;
        self.settings.headers.inner = about.inner;
        self.bank.unite(bank, settings);
        self.counters.merge(&Counters {
            bytes: row.number("bytes")?,
            ipv4: row.number("ipv4_packets")?,
            ipv6: row.number("ipv6_packets")?,
            non_ip: row.number("non_ip")?,
            truncated: row.number("truncated")?,
            bad_header: row.number("bad_header")?,
        });
        let drops = row.table("drops")?;
        for (cause, packets) in drops.texts("cause")?.iter().zip(drops.ints("packets")?) {
            let known = LossCause::ALL.into_iter().find(|it| it.name() == cause);
            self.drops.add(
                known.ok_or_else(|| format!("column drops has '{cause}', which this version does not know"))?,
                packets.unsigned_abs(),
            );
        }
        self.late += row.number::<u64>("late")?;
        self.begin = self.begin.min(about.begin);
        self.end = self.end.max(about.end);
        self.united.rows += 1;
        self.united.incomplete += u64::from(!row.flag("complete")?);
        let lost = self.lost.entry(run).or_default();
        *lost = (*lost).max(row.number("lost_rows")?);
        let span = Span { begin: about.begin, end: about.end, run };
        match self.windows.get_mut(&about.place) {
            Some(windows) => windows.push(span),
            None => {
                self.windows.insert(about.place.clone(), vec![span]);
            }
        }
        Ok(())
    }

    /// What is missing of a range, and what is there twice.
    fn conclude(&mut self, (begin, end): (u64, u64)) {
        let bank = &mut self.bank;
        bank.counters = self.counters;
        let united = &mut self.united;
        united.places = self.windows.len() as u64;
        united.hosts = self.windows.keys().map(|place| &place.host).collect::<BTreeSet<_>>().len() as u64;
        united.lost_rows = self.lost.values().sum();
        united.partial = self.measured.iter().filter(|(_, rows)| **rows < united.rows).map(|(name, rows)| (*name, *rows)).collect();
        for (place, spans) in &mut self.windows {
            spans.sort_by_key(|span| (span.begin, span.end));
            let (mut reached, mut run, mut missing, mut doubled) = (begin, None, 0, 0);
            for span in &*spans {
                let gap = span.begin.saturating_sub(reached);
                missing += if gap >= GAP_NS { gap } else { 0 };
                let again = reached.min(span.end).saturating_sub(span.begin);
                doubled += if run.is_some_and(|run| run != span.run) && again >= GAP_NS { again } else { 0 };
                reached = reached.max(span.end);
                run = Some(span.run);
            }
            let gap = end.saturating_sub(reached);
            missing += if gap >= GAP_NS { gap } else { 0 };
            united.missing.extend((missing > 0).then(|| (place.name(), missing)));
            united.doubled.extend((doubled > 0).then(|| (place.name(), doubled)));
        }
    }
}

/// A file, or the object of a store.
type Found = (PathBuf, Option<(Rc<Store>, String)>);

/// The files of paths, and objects of URLs.
fn found(paths: &[PathBuf]) -> Result<Vec<Found>, UnionError> {
    let (urls, paths): (Vec<&PathBuf>, Vec<&PathBuf>) = paths.iter().partition(|path| path.to_string_lossy().starts_with(SCHEME));
    let paths: Vec<PathBuf> = paths.into_iter().cloned().collect();
    let mut found: Vec<Found> = files(&paths)?.into_iter().map(|path| (path, None)).collect();
    for path in urls {
        let failed = |source| UnionError::Read { path: path.clone(), source };
        let store = Rc::new(Store::open(&path.to_string_lossy()).map_err(failed)?);
        let names = store.names().map_err(failed)?;
        found.extend(
            names.into_iter().map(|name| (PathBuf::from(format!("{}/{name}", store.url())), Some((Rc::clone(&store), name)))),
        );
    }
    Ok(found)
}

/// The files of paths: those below directories, but for what has a hidden name, and other files as they are; sorted.
///
/// # Errors
/// [`UnionError::Read`].
pub fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, UnionError> {
    let mut found = BTreeSet::new();
    let mut left: Vec<PathBuf> = paths.to_vec();
    while let Some(path) = left.pop() {
        let failed = |source| UnionError::Read { path: path.clone(), source };
        if !fs::metadata(&path).map_err(failed)?.is_dir() {
            found.insert(path);
            continue;
        }
        for entry in fs::read_dir(&path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let is_hidden = name.to_string_lossy().starts_with(['.', '_']);
            let is_directory = entry.file_type().map_err(failed)?.is_dir();
            if !is_hidden && (is_directory || entry.path().extension().is_some_and(|it| it == "parquet")) {
                left.push(entry.path());
            }
        }
    }
    Ok(found.into_iter().collect())
}
