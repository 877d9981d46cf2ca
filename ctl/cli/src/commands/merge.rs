//! `flowgauge merge` and `flowgauge diff`: union and comparison of windows from a lake.

use crate::commands::lake::TrustOptions;
use crate::commands::replay::matching;
use crate::config::options::measurement::ANSWERING;
use crate::config::secrets;
use crate::config::value;
use crate::error::{CommandFailure, cannot, fail};
use crate::output::terminal;
use clap::Args;
use flowgauge_core::{FlowKey, MeasurementKind};
use flowgauge_ctl::lake::signature::{RowPolicy, Verification};
use flowgauge_ctl::lake::union::{self, By, Options, Selection, Side, UnionError};
use flowgauge_ctl::measurement::cardinality::distinct;
use flowgauge_ctl::measurement::cardinality::estimate::joint;
use flowgauge_ctl::measurement::cardinality::estimate::{Estimate, JointEstimate};
use flowgauge_ctl::measurement::{Estimation, heavy, reorder, spread};
use flowgauge_ctl::output::{Format, Origin, TableStyle, Times, escaped, grouped};
use flowgauge_dataplane::files::{self, MAX_SETTINGS_BYTES};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Merge windows that `run --lake` and `replay --lake` wrote, across machines, hours and days.
///
/// Estimates and intervals are the same as if one machine had counted all packets in one window.
/// Files whose hashes, keys, shapes or versions differ are rejected. Missing windows and hosts are
/// reported.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge merge lake
  flowgauge merge lake --from yesterday --to yesterday --by host
  flowgauge merge lake --from 1h --leave-one-out
  flowgauge merge lake --from 1h --measure cardinality --exclude lab7 --expect hosts.txt
  flowgauge merge 'lake/date=2026-11-23/hour=1*' --by window --format csv")]
pub(crate) struct Merge {
    /// Files, directories (searched recursively), or quoted patterns with * ? [...]
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Merge windows that start at this time or later: 2026-11-23, 2026-11-23T14:00 (UTC), today,
    /// yesterday, or 24h for 24 hours ago
    #[arg(long, value_name = "TIME", value_parser = value::time)]
    from: Option<u64>,

    /// Merge windows that end at this time or earlier; a day is included in full
    #[arg(long, value_name = "TIME", value_parser = value::end_time)]
    to: Option<u64>,

    /// Merge windows of this host only
    #[arg(long, value_name = "NAME")]
    host: Option<String>,

    /// Exclude this host; may be repeated
    #[arg(long, value_name = "NAME")]
    exclude: Vec<String>,

    /// Report hosts without windows; this file lists the expected hosts, one per line
    #[arg(long, value_name = "FILE")]
    expect: Option<PathBuf>,

    /// Merge these measurements only, ignoring differences in others [default: all]
    #[arg(long, value_name = "NAMES", value_parser = value::measurement, value_delimiter = ',')]
    measure: Vec<MeasurementKind>,

    /// Merge windows of this interface, port or file only
    #[arg(long, value_name = "NAME")]
    source: Option<String>,

    /// Merge by host, source or window [default: everything into one]
    #[arg(long, value_name = "WHAT", value_parser = value::by)]
    by: Option<By>,

    /// Name the host without which the distinct flows change most, and estimate them without it; for
    /// json without each host
    #[arg(long, conflicts_with = "by")]
    leave_one_out: bool,

    /// Maximum number of hosts or sources with --by, and of hosts with --leave-one-out; all of --by
    /// take at most 64 MB of memory and 1 MB for each of N
    #[arg(long, value_name = "N", default_value_t = Options::GROUPS)]
    limit: usize,

    /// Different rows of one window (host, run, source, number): refuse, or drop all of them
    #[arg(long, value_name = "HOW", value_parser = value::row_policy, default_value = "refuse")]
    conflicts: RowPolicy,

    #[command(flatten)]
    verification: VerificationOptions,

    /// Query the packets (frequency) and the membership of a flow; may be repeated
    #[arg(long, value_name = "FLOW", value_parser = value::query)]
    query: Vec<FlowKey>,

    /// Key of --hash keyed, required by --query and to merge spread
    #[arg(long, value_name = "FILE")]
    hash_key: Option<PathBuf>,

    /// Number of heavy hitters, keys of spread and prefixes to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,

    /// Output format: table, csv, json (one object per line) [default: table]
    #[arg(long, value_name = "FORMAT", value_parser = value::format)]
    format: Option<Format>,
}

/// As [`TrustOptions`], with what becomes of other rows.
#[derive(Args)]
#[group(skip)]
struct VerificationOptions {
    #[command(flatten)]
    trust: TrustOptions,

    /// Rows that their host has not signed: refuse, or drop them
    #[arg(long, value_name = "HOW", value_parser = value::row_policy, default_value = "refuse", requires = "trust")]
    untrusted: RowPolicy,
}

impl VerificationOptions {
    /// Reads the list of hosts; `None` if all are believed.
    fn read(&self) -> Result<Option<Verification>, CommandFailure> {
        let untrusted = self.untrusted;
        Ok(self.trust.read()?.map(|trust| Verification { trust, untrusted }))
    }
}

impl Merge {
    pub(crate) fn execute(self) -> Result<(), CommandFailure> {
        let paths = matching(&self.files)?;
        let Merge { host, exclude, source, from, to, .. } = self;
        let selection = Selection { paths, host, exclude, source, direction: None, from, to };
        let key = self.hash_key.map(|path| secrets::hash_key(&path)).transpose()?;
        let estimation = Estimation {
            queries: self.query,
            heavy: heavy::Options { top: self.top },
            reorder: reorder::Options { top: self.top },
            spread: spread::Options { top: self.top },
            ..Estimation::default()
        };
        let is_asked = !estimation.queries.is_empty();
        let expect = self.expect.as_deref().map(expected).transpose()?.unwrap_or_default();
        let options = Options {
            by: self.by.unwrap_or_default(),
            leave_one_out: self.leave_one_out,
            limit: Some(self.limit),
            measure: self.measure,
            conflicts: self.conflicts,
            verification: self.verification.read()?,
            expect,
            estimation,
            key,
        };
        let look = TableStyle {
            width: terminal::width,
            colours: terminal::colours(&io::stdout()),
            times: Times::Utc,
            ..TableStyle::default()
        };
        let mut sink =
            self.format.unwrap_or_default().sink(io::stdout().lock(), look, Origin::default());
        let (mut is_answered, mut is_left_out) = (false, false);
        let answering = ANSWERING.map(MeasurementKind::name);
        // There may be many windows; write each as soon as it is merged.
        let mut buffered = Vec::new();
        union::unite(&selection, &options, |record| {
            is_answered |= record.reports.names().any(|name| answering.contains(&name));
            is_left_out |= record.united.as_ref().is_some_and(|it| it.leave_one_out.is_some());
            if options.by == By::Window {
                sink.record(&record)
            } else {
                buffered.push(record);
                Ok(())
            }
        })?;
        if is_asked && !is_answered {
            let names = answering.join(" or ");
            return fail(format!(
                "--query is for {names}, which no row has; count with --measure {names}"
            ));
        }
        if options.leave_one_out && !is_left_out {
            return fail(
                "--leave-one-out is for cardinality, which no row has; count with --measure cardinality",
            );
        }
        buffered.iter().try_for_each(|record| sink.record(record)).map_err(CommandFailure::output)
    }
}

/// Returns the names of hosts in a file, one per line, without empty lines and comments.
fn expected(path: &Path) -> Result<Vec<String>, CommandFailure> {
    let text = files::read_text(path, MAX_SETTINGS_BYTES)
        .map_err(cannot(format_args!("read {}", path.display())))?;
    let names =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(names.map(str::to_owned).collect())
}

/// Compare the distinct flows of two selections: only in the first, only in the second, in both.
///
/// Each side is a file, directory or quoted pattern, followed by comma-separated filters:
/// host=NAME, source=NAME, direction=WAY, from=TIME, to=TIME. A day at the end of a range is
/// included in full. Both sides must have the same key, hash and registers.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge diff lake,host=paris lake,host=berlin
  flowgauge diff lake,to=yesterday lake,from=today      # only in the second: new since yesterday")]
pub(crate) struct Diff {
    /// First side
    #[arg(value_name = "A", value_parser = value::selection)]
    a: Selection,

    /// Second side
    #[arg(value_name = "B", value_parser = value::selection)]
    b: Selection,

    /// Different rows of one window (host, run, source, number): refuse, or drop all of them
    #[arg(long, value_name = "HOW", value_parser = value::row_policy, default_value = "refuse")]
    conflicts: RowPolicy,

    #[command(flatten)]
    verification: VerificationOptions,

    /// Output format: table, csv, json [default: table]
    #[arg(long, value_name = "FORMAT", value_parser = value::format)]
    format: Option<Format>,
}

impl Diff {
    pub(crate) fn execute(self) -> Result<(), CommandFailure> {
        let expanded = |selection: Selection| -> Result<Selection, CommandFailure> {
            Ok(Selection { paths: matching(&selection.paths)?, ..selection })
        };
        let verification = self.verification.read()?;
        let (a, b) = (expanded(self.a)?, expanded(self.b)?);
        let [a, b] = union::sides(&a, &b, self.conflicts, verification)?;
        let registers_of = |name: &str, side: Side| match side.registers {
            Some((key, levels)) => Ok((key, levels, side.united)),
            None => fail(format!("{name} has no distinct flows; count with --measure cardinality")),
        };
        let ((key, levels_a, sources_a), (_, levels_b, sources_b)) =
            (registers_of("A", a)?, registers_of("B", b)?);
        let JointEstimate { only_a, only_b, both, union, jaccard } = joint(&levels_a, &levels_b)
            .map_err(|error| CommandFailure::Failed(error.to_string()))?;
        let parts = [("only_a", only_a), ("only_b", only_b), ("both", both), ("union", union)];
        let mut out = io::stdout().lock();
        let written = match self.format.unwrap_or_default() {
            Format::Json => {
                let estimate = |it: &Estimate| serde_json::json!({ "value": it.value, "low": it.low, "high": it.high });
                let mut line =
                    serde_json::json!({ "record": "diff", "key": key.name(), "jaccard": jaccard });
                parts.iter().for_each(|(name, it)| line[*name] = estimate(it));
                (line["united_a"], line["united_b"]) =
                    (serde_json::json!(sources_a), serde_json::json!(sources_b));
                writeln!(out, "{line}")
            }
            Format::Csv => writeln!(out, "part,estimate,low,high").and_then(|()| {
                parts.iter().try_for_each(|(name, it)| {
                    writeln!(out, "{name},{},{},{}", it.value, it.low, it.high)
                })
            }),
            Format::Table => {
                let number = |value: f64| grouped(value.round() as u64);
                let rows = parts.iter().map(|(name, it)| {
                    let name = name.replace('_', " ").replace(" a", " in A").replace(" b", " in B");
                    format!(
                        "{name:>9} {:>14}   ({} … {})\n",
                        number(it.value),
                        number(it.low),
                        number(it.high)
                    )
                });
                let sides = [("A", sources_a), ("B", sources_b)].map(|(side, united)| {
                    united
                        .lines()
                        .into_iter()
                        .map(|line| format!("  {side}: {}\n", escaped(&line)))
                        .collect::<String>()
                });
                write!(
                    out,
                    "{}\n{}  Jaccard {jaccard:.3}\n{}",
                    distinct(key),
                    rows.collect::<String>(),
                    sides.concat()
                )
            }
        };
        written.map_err(CommandFailure::output)
    }
}

impl From<UnionError> for CommandFailure {
    fn from(error: UnionError) -> Self {
        match error {
            UnionError::Output(error) => CommandFailure::output(error),
            other => CommandFailure::Failed(other.to_string()),
        }
    }
}
