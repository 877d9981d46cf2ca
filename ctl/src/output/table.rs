//! A table for people: one line per record as it arrives, with details below it.

use super::layout::{ESTIMATE_ALONE, ShownContent, TableColumn, TableLayout};
use crate::controller::Sink;
use crate::measurement::Rank;
use crate::measurement::cardinality::{Cardinality, distinct};
use crate::names::Names;
use crate::record::{Record, RecordKind};
use crate::text::{
    IndentedLines, counted, escaped, fitted, grouped, lasted, scaled, shortened, stepped, wrapped,
};
use crate::united::United;
use anstyle::AnsiColor;
use flowgauge_core::Counters;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::{Offset, TimeZone};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Lines between two headers, so that one is always on the screen.
const HEADER_EVERY: usize = 30;
/// Minimum width. On narrower terminals, lines are broken by the terminal.
const NARROWEST: usize = 40;
/// Indent of the details below a line.
const BELOW: usize = 4;
/// Packets per second of live workers above which the CPU time per packet is shown. Slower workers
/// mostly wait, and the cost of waking up dominates.
const BUSY: f64 = 1e6;
/// Packets of a replay above which the CPU time per packet is shown: fewer do not make up for the
/// start.
const MANY: u64 = 100_000;

/// Minimum duration of a capture or run that has a rate, in seconds.
const SHORTEST_SPAN: f64 = 1e-3;

/// Appearance of a table.
#[derive(Clone, Debug)]
pub struct TableStyle {
    /// Returns the width of a line in characters. Called repeatedly, since terminals change.
    pub width: fn() -> usize,
    /// Whether losses and alarms are coloured.
    pub colours: bool,
    /// Format of times.
    pub times: Times,
    /// Whether times have milliseconds.
    pub fine: bool,
    /// Names of addresses.
    pub names: Names,
}

impl Default for TableStyle {
    fn default() -> Self {
        TableStyle {
            width: || 80,
            colours: false,
            times: Times::Elapsed,
            fine: false,
            names: Names::default(),
        }
    }
}

/// Format of a table's times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Times {
    /// Time since the start; for captures, in their own time.
    #[default]
    Elapsed,
    /// Local time of day.
    Local,
    /// Time of day, UTC.
    Utc,
}

/// Sink that writes aligned columns. One of them names the place if there are several.
pub struct Table<'w> {
    writer: Box<dyn Write + 'w>,
    look: TableStyle,
    zone: TimeZone,
    origin: Option<u64>,
    /// Content and width of the last header.
    header: Option<(ShownContent, usize)>,
    layout: TableLayout,
    lines_since_header: usize,
    /// Day and offset of the last line.
    day: Option<(Date, Offset)>,
    /// Whether there are several places.
    places: bool,
    /// Whether a window was cut short.
    cut: bool,
}

impl<'w> Table<'w> {
    /// Writes to `writer`.
    pub fn new(writer: impl Write + 'w, look: TableStyle) -> Self {
        let zone = if look.times == Times::Local { TimeZone::system() } else { TimeZone::UTC };
        Table {
            writer: Box::new(writer),
            look,
            zone,
            origin: None,
            header: None,
            layout: TableLayout::default(),
            lines_since_header: 0,
            day: None,
            places: false,
            cut: false,
        }
    }

    fn width(&self) -> usize {
        (self.look.width)().max(NARROWEST)
    }

    /// Prints a header if none is on the screen, or the last one does not fit.
    fn header(&mut self, record: &Record, text: &mut String) {
        let headline = record.reports.cardinality.as_ref();
        let shown = ShownContent {
            places: self.places,
            headline: headline.map(|headline| distinct(headline.key)),
            truth: headline.is_some_and(|headline| headline.truth.is_some()),
            time: if self.look.fine { 12 } else { 8 },
        };
        let wanted = (shown, self.width());
        let zoned = self.zoned(record.end_ns);
        let day = zoned.map(|zoned| (zoned.date(), zoned.offset()));
        let another_day = day.is_some() && self.day != day;
        if self.header == Some(wanted) && self.lines_since_header < HEADER_EVERY && !another_day {
            return;
        }
        if let Some((date, offset)) = day.filter(|_| another_day) {
            let zone = if offset == Offset::UTC {
                "UTC".to_owned()
            } else {
                format!("local (UTC{})", format_utc_offset(offset))
            };
            let _ = writeln!(text, "{date}, times are {zone}");
            self.day = day;
        }
        self.layout = TableLayout::new(&shown, wanted.1);
        let title =
            |(column, width): &(TableColumn, usize)| aligned(*column, column.title(&shown), *width);
        let titles: Vec<String> = self.layout.0.iter().map(title).collect();
        push_line(text, &titles.join(" "));
        (self.header, self.lines_since_header) = (Some(wanted), 0);
    }

    /// Returns a time in the zone of the table, unless times are since the start.
    fn zoned(&self, ns: u64) -> Option<jiff::Zoned> {
        let wall = self.look.times != Times::Elapsed;
        let time = Timestamp::from_nanosecond(i128::from(ns)).ok().filter(|_| wall)?;
        Some(time.to_zoned(self.zone.clone()))
    }

    fn time(&self, ns: u64) -> String {
        match self.zoned(ns) {
            Some(zoned) if self.look.fine => zoned.strftime("%H:%M:%S%.3f").to_string(),
            Some(zoned) => zoned.strftime("%H:%M:%S").to_string(),
            None => elapsed(ns.saturating_sub(self.origin.unwrap_or(ns))),
        }
    }

    fn row(&mut self, record: &Record, text: &mut String) {
        let cells = self.layout.0.iter().map(|(column, width)| {
            let cell = self.cell(record, *column, *width);
            let cell = aligned(*column, &cell, *width);
            match column {
                TableColumn::Lost if record.drops.total() > 0 && self.look.colours => {
                    let red = AnsiColor::Red.on_default();
                    format!("{red}{cell}{red:#}")
                }
                _ => cell,
            }
        });
        push_line(text, &cells.collect::<Vec<_>>().join(" "));
    }

    fn cell(&self, record: &Record, column: TableColumn, width: usize) -> String {
        let seconds = record.end_ns.saturating_sub(record.start_ns) as f64 / 1e9;
        let rate =
            |number: f64| if seconds > 0.0 { scaled(number / seconds) } else { "-".to_owned() };
        let packets = record.counters.packets();
        let headline = |show: &dyn Fn(&Cardinality) -> String| {
            record.reports.cardinality.as_ref().map(show).unwrap_or_default()
        };
        match column {
            TableColumn::Time => self.time(record.end_ns),
            TableColumn::Window => match record.kind {
                RecordKind::Window if record.complete => record.window.to_string(),
                RecordKind::Window => format!("{}*", record.window),
                RecordKind::Sample
                | RecordKind::Silence
                | RecordKind::Total
                | RecordKind::Union => "sample".to_owned(),
            },
            TableColumn::Place => {
                let place = if record.part { place(record) } else { "all".to_owned() };
                shortened(&place, width).into_owned()
            }
            TableColumn::Packets => fitted(packets, width),
            TableColumn::Bytes => fitted(record.counters.bytes, width),
            TableColumn::PacketRate => rate(packets as f64),
            TableColumn::BitRate => rate(record.counters.bytes as f64 * 8.0),
            TableColumn::Estimate if self.layout.has(TableColumn::Interval) => {
                headline(&|headline| fitted(headline.rounded(), width))
            }
            TableColumn::Estimate => headline(&|headline| {
                format!(
                    "{:>ESTIMATE_ALONE$} {:<8}",
                    fitted(headline.rounded(), ESTIMATE_ALONE),
                    headline.half_width()
                )
            }),
            TableColumn::Interval => headline(&|headline| match headline.interval() {
                text if text.chars().count() <= width => text,
                _ => format!(
                    "{} … {}",
                    scaled(headline.estimate.low),
                    scaled(headline.estimate.high)
                ),
            }),
            TableColumn::Truth => headline(&|headline| {
                headline.truth.map_or_else(String::new, |truth| fitted(truth, width))
            }),
            TableColumn::Error => headline(&|headline| headline.error().unwrap_or_default()),
            TableColumn::Lost => fitted(record.drops.total(), width),
        }
    }

    /// Returns a writer for the details below a row, or of a total.
    fn below<'a>(&'a self, record: &Record, text: &'a mut String) -> IndentedLines<'a> {
        let indent = if record.kind.is_sum() { 2 } else { BELOW };
        IndentedLines::new(text, indent, self.width(), self.look.colours)
            .naming(move |flow| self.look.names.named(flow))
    }

    /// Writes the details that have no column.
    fn details(&self, record: &Record, below: &mut IndentedLines<'_>) {
        let lost = record.drops.total();
        if lost > 0 {
            let causes = record.drops.iter().filter(|(_, packets)| *packets > 0);
            let causes =
                causes.map(|(cause, packets)| format!("{} {}", cause.name(), grouped(packets)));
            let mut phrases: Vec<String> = causes.collect();
            if let Some(first) = phrases.first_mut() {
                *first = format!("LOST {}: {first}", counted(lost, "packet"));
            }
            below.styled(AnsiColor::Red.on_default(), &phrases);
        }
        if record.is_filtered() {
            let Counters { unmatched, unmatched_bytes, .. } = record.counters;
            below.line(&[
                format!("{} unmatched", counted(unmatched, "packet")),
                counted(unmatched_bytes, "byte"),
            ]);
        }
        if let Some(imbalance) = record.ledger.and_then(|ledger| ledger.imbalance()) {
            below.styled(AnsiColor::Red.on_default(), &[imbalance]);
        }
        for alert in record.alerts.iter().filter(|alert| alert.firing) {
            below.styled(AnsiColor::Red.on_default(), &[format!("ALERT {alert}")]);
        }
        if let (RecordKind::Window, Some(last)) = (record.kind, record.last_window) {
            let last = format!(
                "ended {} late, with the windows up to {} in it",
                lasted(record.late_ns),
                grouped(last)
            );
            below.line(&[last]);
        }
        if let Some(step) = record.clock_step_ns {
            below.line(&[stepped(step)]);
        }
        if record.late > 0 {
            let late = counted(record.late, "packet");
            below.line(&[
                format!("{late} came too late for their window"),
                "counted in none".to_owned(),
            ]);
        }
        let last = if record.kind == RecordKind::Sample { Rank::Figures } else { Rank::Asked };
        record.reports.lines(last, below);
    }

    fn total(&self, record: &Record, text: &mut String) {
        let counters = &record.counters;
        let (width, span_ns) = (self.width(), record.end_ns.saturating_sub(record.start_ns));
        let seconds = span_ns as f64 / 1e9;
        let name =
            if record.part { place(record) } else { escaped(&record.interface).into_owned() };
        let names: Vec<String> = name.split(',').map(str::to_owned).collect();
        let _ = writeln!(text, "\n{}", wrapped(0, 2, width, &names).replace(", ", ","));
        let mut below = self.below(record, text);
        let packets = counters.packets();
        let mut phrases = vec![
            format!("{} in {}", counted(packets, "packet"), lasted(span_ns)),
            counted(counters.bytes, "byte"),
        ];
        // A handful of packets at once has no rate.
        if seconds >= SHORTEST_SPAN && packets > 0 {
            phrases.push(format!("{} packets/s", scaled(packets as f64 / seconds)));
            phrases.push(format!("{} bits/s", scaled(counters.bytes as f64 * 8.0 / seconds)));
        }
        below.line(&phrases);
        let rejected = [
            (counters.non_ip, "non-IP"),
            (counters.truncated, "truncated"),
            (counters.bad_header, "bad header"),
        ];
        let mut phrases = vec![
            format!("{} IPv4", grouped(counters.ipv4)),
            format!("{} IPv6", grouped(counters.ipv6)),
        ];
        phrases.extend(
            rejected
                .iter()
                .filter(|(count, _)| *count > 0)
                .map(|(count, what)| format!("{} {what}", grouped(*count))),
        );
        if record.drops.total() == 0 {
            phrases.push("none lost".to_owned());
        }
        below.line(&phrases);
        if let Some(text) = &record.filter {
            below.line(&[format!("match: {}", escaped(text))]);
        }
        if let Some(cost) = self.cost(record, packets as f64 / seconds.max(f64::MIN_POSITIVE)) {
            below.line(&cost);
        }
        record.reports.all().for_each(|(_, report)| report.summary(record.part, &mut below));
        self.details(record, &mut below);
        // Hosts and sources of a lake have any name.
        record.united.iter().flat_map(United::phrases).for_each(|phrases| {
            let phrases: Vec<_> = phrases.iter().map(|it| escaped(it).into_owned()).collect();
            below.line(&phrases);
        });
        if self.cut && !record.part {
            below.line(&[
                "* marks an incomplete window: cut short, or packets are missing".to_owned()
            ]);
        }
    }

    /// Returns the CPU time per packet, if workers were busy rather than waiting.
    fn cost(&self, record: &Record, rate: f64) -> Option<Vec<String>> {
        let (used, packets) = (record.cpu_ns? as f64, record.counters.packets());
        let each = format!("{:.1} ns of CPU a packet", used / packets.max(1) as f64);
        if self.look.times == Times::Elapsed {
            return (packets >= MANY).then(|| vec![each]);
        }
        let share = used / record.end_ns.saturating_sub(record.start_ns).max(1) as f64;
        (rate >= BUSY).then(|| vec![each, format!("{:.1} % of a CPU", share * 100.0)])
    }
}

impl Sink for Table<'_> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        // A reader has seen the sample, and that nothing new came.
        if record.is_repeated() {
            return Ok(());
        }
        let mut text = String::new();
        self.origin.get_or_insert(record.start_ns);
        if record.kind.is_sum() {
            self.total(record, &mut text);
        } else {
            // The records of several places precede the record of all.
            self.places |= record.part;
            self.cut |= record.kind == RecordKind::Window && !record.complete;
            // A silence has no columns.
            if record.kind != RecordKind::Silence {
                self.header(record, &mut text);
            }
            let begin = text.len();
            if record.kind == RecordKind::Silence {
                let last = record.last_window.unwrap_or(record.window);
                let (first, last) = (grouped(record.window), grouped(last));
                push_line(
                    &mut text,
                    &format!(
                        "{:>8} windows {first} to {last} had no packets",
                        self.time(record.end_ns)
                    ),
                );
            } else {
                self.row(record, &mut text);
            }
            self.details(record, &mut self.below(record, &mut text));
            self.lines_since_header += text[begin..].lines().count();
        }
        self.writer.write_all(text.as_bytes())?;
        self.writer.flush()
    }
}

/// Aligns a cell in its column.
fn aligned(column: TableColumn, cell: &str, width: usize) -> String {
    if column == TableColumn::Place { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line.trim_end());
    text.push('\n');
}

/// Returns the interface and direction of a part.
fn place(record: &Record) -> String {
    let way = match record.direction {
        "ingress" => " in",
        "egress" => " out",
        _ => "",
    };
    format!("{}{way}", escaped(&record.interface))
}

/// Formats an offset from UTC: `+1`, `-3:30`.
fn format_utc_offset(offset: Offset) -> String {
    let minutes = offset.seconds() / 60;
    let (sign, minutes) = (if minutes < 0 { '-' } else { '+' }, minutes.unsigned_abs());
    let rest =
        if minutes.is_multiple_of(60) { String::new() } else { format!(":{:02}", minutes % 60) };
    format!("{sign}{}{rest}", minutes / 60)
}

/// Formats a time since the start, in eight characters for the first three years.
fn elapsed(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0..10_000 => format!("{:.2}s", ns as f64 / 1e9),
        10_000..360_000 => {
            format!("{}h{:02}m{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
        }
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests;
