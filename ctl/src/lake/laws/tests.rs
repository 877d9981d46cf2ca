//! Forged rows: each breaks one law and has a valid checksum.

use super::super::union::{Options, Selection, unite};
use super::super::{journal, parquet, row};
use super::*;
use crate::clock::Trace;
use crate::controller::{Controller, Plan, Sink};
use crate::identity::Identity;
use crate::lake::journal::Journal;
use crate::lake::union::{LakeFile, all_rows};
use crate::measurement::Estimation;
use crate::measurement::cardinality::estimate::{Estimator, estimate};
use crate::measurement::cardinality::image;
use crate::record::{Record, RecordKind};
use crate::row::{CHECKSUM, Cells};
use crate::schedule::Intervals;
use flowgauge_core::delay::weights::Weight;
use flowgauge_core::delay::{DelayKind, Kinds};
use flowgauge_core::measurement::Toggle;
use flowgauge_core::{
    Grid, HashMode, KeyKind, Settings, cardinality, delay, heavy, membership, reorder, sketch,
    spread,
};
use flowgauge_dataplane::capture::build::CapturePacket;
use flowgauge_dataplane::files::Directory;
use flowgauge_dataplane::poll::port::pcap_reader;
use flowgauge_dataplane::poll::{self, Pace, Poll};
use flowgauge_testing::frames::pcap;
use flowgauge_testing::limited;
use flowgauge_testing::scratch::Scratch;
use flowgauge_traffic::delay::DelayTraffic;
use std::io::{self, Cursor};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[derive(Default)]
struct Windows(Vec<Record>);

impl Sink for Windows {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        if record.kind == RecordKind::Window {
            self.0.push(record.clone());
        }
        Ok(())
    }
}

/// Returns settings with all measurements on; `mode` is the sketch of packets by flow, and entropies
/// have the other one.
fn all_measurements(mode: sketch::Mode, algorithm: delay::Algorithm) -> Settings {
    let shape = Grid::of_counters(4, 64).unwrap();
    let other = match mode {
        sketch::Mode::CountMin => sketch::Mode::CountSketch,
        _ => sketch::Mode::CountMin,
    };
    let entropy = |key| sketch::Settings { mode: other, key, shape };
    let kinds = Kinds::NONE.with(DelayKind::TcpData).with(DelayKind::TcpTimestamps);
    let spread_of = |by, of| {
        let on = spread::Settings { on: true, by, of, ..spread::Settings::DEFAULT };
        on.sized(3, 128, 16).unwrap()
    };
    Settings {
        hash: HashMode::Tabulated,
        cardinality: cardinality::Settings::DEFAULT,
        entropy: [entropy(KeyKind::Src), entropy(KeyKind::Dst)],
        frequency: sketch::Settings { mode, key: KeyKind::Src, shape },
        membership: membership::Settings {
            on: true,
            shape: Grid::of_bits(4, 4096).unwrap(),
            ..membership::Settings::DEFAULT
        },
        heavy: heavy::Settings {
            algorithm: heavy::Algorithm::SpaceSaving,
            slots_log2: 6,
            ..heavy::Settings::DEFAULT
        },
        spread: [
            spread_of(KeyKind::Dst, spread::OtherKind::Src),
            spread_of(KeyKind::Src, spread::OtherKind::DstPort),
        ],
        sizes: Toggle::ON,
        delay: delay::Settings { kinds, algorithm, ..delay::Settings::DEFAULT },
        reorder: reorder::Settings {
            algorithm: reorder::Algorithm::Sampling,
            ..reorder::Settings::DEFAULT
        },
        ..Settings::DEFAULT
    }
}

/// Returns the row of a complete window of conversations.
fn counted(settings: Settings) -> Row {
    let profile = "delay,shape=conversations,requests=2000,rate=400,loss=0.05".parse().unwrap();
    let packets: Vec<CapturePacket> = DelayTraffic::new(profile)
        .map(|(at, frame)| CapturePacket::new(1_700_000_000_000_000_000 + at, frame))
        .collect();
    let ports = pcap_reader(Cursor::new(pcap(&packets)), "trace", 1, Pace::Trace).unwrap();
    let poll = Poll::new(ports, poll::Options { settings, ..poll::Options::default() });
    let (gate, mut windows) = (poll.gate(), Windows::default());
    let plan = Plan {
        intervals: Intervals { window: Some(Duration::from_secs(1)), ..Intervals::default() },
        seed: 1,
        hash_key: None,
        prefixes: Vec::new(),
        filter: None,
        options: Estimation::default(),
    };
    Controller::start(poll, plan, || Trace::new(gate)).unwrap().run(&mut windows).unwrap();
    let record = windows.0.into_iter().find(|record| record.complete).unwrap();
    let identity = Identity { host: "paris".into(), run: "forged".into() };
    row(&record, &identity, 0, 0).unwrap()
}

/// Returns a column, which is null if the row has none.
fn value<'a>(row: &'a mut Row, column: &str) -> &'a mut Value {
    let at = row.0.iter().position(|(name, _)| name == column).unwrap_or_else(|| {
        row.put(column.to_owned(), Value::Int(None));
        row.0.len() - 1
    });
    &mut row.0[at].1
}

type Edit = Box<dyn Fn(&mut Row)>;

fn set(column: &'static str, new: impl Into<Value>) -> Edit {
    let new = new.into();
    Box::new(move |row| value(row, column).clone_from(&new))
}

fn int(column: &'static str, number: i64) -> Edit {
    set(column, number)
}

/// Sets a column to this much more than another one.
fn more(column: &'static str, other: &'static str, by: i64) -> Edit {
    Box::new(move |row| *value(row, column) = (row.maybe_number(other).unwrap() + by).into())
}

fn list(column: &'static str, edit: impl Fn(&mut Vec<i64>) + 'static) -> Edit {
    Box::new(move |row| match value(row, column) {
        Value::List(list) => edit(list),
        other => panic!("{column} is {other:?}"),
    })
}

fn bytes(column: &'static str, edit: impl Fn(&mut Vec<u8>) + 'static) -> Edit {
    Box::new(move |row| {
        let found = row.0.iter_mut().find_map(|(name, value)| match value {
            Value::Bytes(Some(bytes)) if name.starts_with(column) => Some(bytes),
            _ => None,
        });
        edit(found.unwrap_or_else(|| panic!("no bytes in {column}")));
    })
}

fn cells<'a>(row: &'a mut Row, table: &str, column: &str) -> &'a mut Cells {
    match value(row, table) {
        Value::Table(columns) => {
            &mut columns.iter_mut().find(|(name, _)| name == column).unwrap().1
        }
        other => panic!("{table} is {other:?}"),
    }
}

fn ints(table: &'static str, column: &'static str, edit: impl Fn(&mut Vec<i64>) + 'static) -> Edit {
    Box::new(move |row| match cells(row, table, column) {
        Cells::Int(cells) => edit(cells),
        other => panic!("{table}.{column} is {other:?}"),
    })
}

fn floats(table: &'static str, column: &'static str, number: f64) -> Edit {
    Box::new(move |row| match cells(row, table, column) {
        Cells::Float(cells) => cells.iter_mut().for_each(|cell| *cell = number),
        other => panic!("{table}.{column} is {other:?}"),
    })
}

/// Sets the first cells of columns of a table.
fn first<const N: usize>(table: &'static str, columns: [(&'static str, i64); N]) -> Edit {
    Box::new(move |row| {
        for (column, number) in columns {
            ints(table, column, move |cells| cells[0] = number)(row);
        }
    })
}

fn keys<'a>(row: &'a mut Row, table: &str) -> &'a mut Vec<Vec<u8>> {
    let Cells::Bytes(keys) = cells(row, table, "key") else { panic!("{table} has no keys") };
    keys
}

/// Shortens the first key of a table to three bytes.
fn short_key(table: &'static str) -> Edit {
    Box::new(move |row| keys(row, table)[0] = vec![1, 2, 3])
}

fn first_positive<T: Default + PartialOrd>(cells: &mut [T]) -> &mut T {
    cells.iter_mut().find(|cell| **cell > T::default()).unwrap()
}

fn repeat<T: Clone>(cells: &mut Vec<T>, times: usize) {
    *cells = std::iter::repeat_n(cells.clone(), times).flatten().collect();
}

/// Replaces a table by the rows of several copies.
fn repeated(table: &'static str, times: usize) -> Edit {
    Box::new(move |row| {
        let Value::Table(columns) = value(row, table) else { panic!("{table} is no table") };
        for (_, cells) in columns {
            match cells {
                Cells::Int(cells) => repeat(cells, times),
                Cells::Float(cells) => repeat(cells, times),
                Cells::Text(cells) => repeat(cells, times),
                Cells::Bytes(cells) => repeat(cells, times),
            }
        }
    })
}

/// Replaces the losses: causes and packets.
fn drops(losses: &'static [(&'static str, i64)], dropped: i64) -> Edit {
    let causes = losses.iter().map(|(cause, _)| (*cause).to_owned()).collect();
    let packets = losses.iter().map(|(_, packets)| *packets).collect();
    let columns =
        vec![("cause".into(), Cells::Text(causes)), ("packets".into(), Cells::Int(packets))];
    both(set("drops", Value::Table(columns)), int("dropped", dropped))
}

/// Changes the registers of the image, with the sums that belong to them.
fn levels(edit: impl Fn(&mut [u8]) + 'static) -> Edit {
    bytes("hll_", move |image| {
        let mut levels = image[image::PREAMBLE..].to_vec();
        edit(&mut levels);
        *image = image::of(&levels);
    })
}

/// Fills all registers and levels of a sketch of spreads.
fn full_sketch(number: u8) -> Edit {
    both(
        bytes("spread_cells", move |cells| cells.fill(number)),
        bytes("spread_levels", move |levels| levels.fill(number)),
    )
}

fn both(first: Edit, second: Edit) -> Edit {
    Box::new(move |row| {
        first(row);
        second(row);
    })
}

/// Forged rows: words of the error, and the change.
fn forgeries() -> Vec<(&'static str, Edit)> {
    const HUGE: i64 = 1 << 40;
    let many_delays = [("samples", 1 << 20), ("weight", 1 << 32), ("squares", 1 << 28)];
    vec![
        // Names, times and losses.
        ("column direction", set("direction", "sideways")),
        ("column host has 5000 bytes", set("host", "x".repeat(5000))),
        ("column run has 5000 bytes", set("run", "x".repeat(5000))),
        ("column counted_by has 5000 bytes", set("counted_by", "x".repeat(5000))),
        ("column source has 70000 bytes", set("source", "x".repeat(70_000))),
        ("column window has -1", int("window", -1)),
        ("column last_window has -1", int("last_window", -1)),
        ("windows 0 to 9223372036854775807", int("last_window", i64::MAX)),
        ("silent windows", int("silent_windows", 5)),
        ("column silent_windows has -1", int("silent_windows", -1)),
        ("column start_ns has -5", int("start_ns", -5)),
        ("a window 0 from", int("end_ns", 1)),
        ("a window 0 from", int("scheduled_end_ns", 1)),
        ("column late_ns", int("late_ns", -1)),
        ("column lost_rows", int("lost_rows", i64::MAX)),
        ("column drops.packets has -5", drops(&[("capture", -5)], -5)),
        ("column drops.packets has 9223372036854775807", drops(&[("capture", i64::MAX)], 0)),
        ("column drops has capture twice", drops(&[("capture", 3), ("capture", 4)], 7)),
        ("column drops has 'gremlins'", drops(&[("gremlins", 3)], 3)),
        ("column dropped", drops(&[("capture", 3)], 0)),
        ("column signature has", set(SIGNATURE, Value::Bytes(Some(vec![0; 63])))),
        ("column signature has", int(SIGNATURE, 64)),
        // Packets and bytes.
        ("those of all kinds", int("packets", 5)),
        ("those of all kinds", int("non_ip", 5)),
        ("column ipv4_packets has -1", int("ipv4_packets", -1)),
        ("column ipv6_packets has", int("ipv6_packets", i64::MAX)),
        ("column truncated has", int("truncated", i64::MIN)),
        ("column bad_header has", int("bad_header", 1 << 54)),
        ("column bytes has", int("bytes", i64::MAX)),
        ("column late has -1", int("late", -1)),
        ("column bytes has 288230376151711745", int("bytes", (1 << 58) + 1)),
        ("column merged has -1", int("merged", -1)),
        ("packets beyond the first of super-packets", more("merged", "packets", 0)),
        ("column unmatched has", int("unmatched", 1 << 54)),
        (
            "column unmatched_bytes has",
            both(int("unmatched", 1), int("unmatched_bytes", (1 << 58) + 1)),
        ),
        ("bytes that do not match", both(int("unmatched", 0), int("unmatched_bytes", 100))),
        ("bytes without a packet", both(int("packets", 0), int("ipv4_packets", 0))),
        // Distinct flows.
        ("column distinct", set("distinct", f64::NAN)),
        ("column distinct", set("distinct_high", f64::INFINITY)),
        ("column distinct", set("distinct_low", -1.0)),
        ("column distinct", both(set("distinct_low", 1e15), set("distinct", 1e14))),
        ("column distinct has 5", both(set("distinct_low", 1.0), set("distinct", 5.0))),
        ("registers are set", levels(|levels| levels.fill(1))),
        ("registers are set", levels(|levels| levels.fill(12))),
        ("registers are set", levels(|levels| levels.fill(22))),
        ("registers of", both(levels(|all| all.fill(12)), levels(|levels| levels[1300..].fill(0)))),
        ("level 23", levels(|levels| levels[7] = 23)),
        ("no register is set", levels(|levels| levels.fill(0))),
        ("sums are not those", bytes("hll_", |image| image[50] ^= 1)),
        ("column registers has 2047", int("registers", 2047)),
        // Entropies.
        ("column entropy:", set("entropy", f64::NAN)),
        ("column entropy:", set("entropy", f64::INFINITY)),
        ("column entropy:", set("entropy", 1e300)),
        ("column entropy:", both(set("entropy_low", 1e300), set("entropy_high", -1e300))),
        ("column entropy:", set("entropy_low", -0.5)),
        ("column entropy2:", set("entropy2_high", 64.0)),
        ("column entropy_sum has", int("entropy_sum", i64::MAX)),
        ("column entropy2_sum has", int("entropy2_sum", -1)),
        ("column entropy_full", list("entropy_full", |full| *full = vec![-1; 130_000])),
        ("column entropy_full", list("entropy_full", |full| *full = vec![5, 5])),
        ("column entropy_cells", list("entropy_cells", |cells| cells[0] += 1)),
        ("column entropy_cells", list("entropy_cells", |cells| cells[3] = HUGE)),
        // Packets of flows.
        ("column frequency_full", list("frequency_full", |full| *full = vec![256])),
        ("column frequency_cells has -1", list("frequency_cells", |cells| cells[0] = -1)),
        (
            "column frequency_cells has -9223372036854775808",
            list("frequency_cells", |cells| cells[9] = i64::MIN),
        ),
        ("column frequency_cells counts", list("frequency_cells", |cells| cells[0] = i64::MAX)),
        ("lacks packets", list("frequency_cells", |cells| cells.fill(0))),
        ("lacks packets", list("frequency_cells", |cells| *first_positive(cells) -= 1)),
        ("column frequency_cells has 255", list("frequency_cells", |cells| _ = cells.pop())),
        ("column frequency_cells has 256 counters, and not 576", int("frequency_rows", 9)),
        ("no entropy2 has 4 rows of 63", int("entropy2_columns", 63)),
        // Which flows were seen.
        ("no filter has 4 rows of 4095 bits", int("membership_bits", 4095)),
        ("has a row of 4096 bits", bytes("membership", |bytes| bytes.fill(0xff))),
        ("a row without a bit", bytes("membership", |bytes| bytes.fill(0))),
        ("column membership has 2049", bytes("membership", |bytes| bytes.push(0))),
        ("no probability", set("membership_false_positive", 1.5)),
        ("no probability", set("membership_false_positive", f64::NAN)),
        // Heavy hitters.
        ("column heavy_algorithm has 'guess'", set("heavy_algorithm", "guess")),
        ("column heavy_unit has 'pounds'", set("heavy_unit", "pounds")),
        ("column heavy_total", int("heavy_total", HUGE)),
        ("column heavy_packets", int("heavy_packets", HUGE)),
        ("column heavy_slots", int("heavy_slots", 65)),
        ("column heavy has a flow", first("heavy", [("count", HUGE)])),
        ("column heavy has a flow", first("heavy", [("count", -1)])),
        ("column heavy has a flow", first("heavy", [("inherited", HUGE)])),
        ("largest flow first", ints("heavy", "count", |cells| cells[5] = cells[4] + 1)),
        ("column heavy has", repeated("heavy", 3)),
        ("column heavy_least has", int("heavy_least", HUGE)),
        ("column heavy_least has", int("heavy_least", -1)),
        ("column heavy_least_elsewhere", more("heavy_least_elsewhere", "heavy_least", 1)),
        ("column heavy_least_elsewhere", int("heavy_least_elsewhere", -1)),
        (
            "of flows' own",
            Box::new(|row| {
                let total = row.maybe_number("heavy_total").unwrap();
                ints("heavy", "count", move |counts| counts[..2].fill(total))(row);
                ints("heavy", "inherited", |inherited| inherited[..2].fill(0))(row);
            }),
        ),
        ("column heavy.key", short_key("heavy")),
        // Keys with the most others.
        ("column spread_of has", set("spread_of", "ports")),
        ("no spread counts dst by dst", set("spread_of", "dst")),
        ("no spread2 counts", int("spread2_rows", 5)),
        ("no spread counts", int("spread_columns", 100)),
        ("no spread counts", int("spread_registers", 512)),
        ("column spread_cells has 6143 bytes", bytes("spread_cells", |cells| _ = cells.pop())),
        ("column spread2_levels has", bytes("spread2_levels", |levels| levels.push(1))),
        ("column spread_cells has level 30", bytes("spread_cells", |cells| cells[0] = 30)),
        ("column spread_levels has level 32", bytes("spread_levels", |levels| levels[0] = 32)),
        (
            "without registers or without a candidate",
            bytes("spread_levels", |levels| *first_positive(levels) = 0),
        ),
        ("registers that are set", full_sketch(1)),
        ("has an empty row", full_sketch(0)),
        ("keys, and its cells", repeated("spread", 500)),
        ("column spread has a key of 3 bytes", short_key("spread")),
        (
            "column spread has a key twice",
            Box::new(|row| keys(row, "spread_candidates")[0] = keys(row, "spread")[0].clone()),
        ),
        ("column spread.others", floats("spread", "others", f64::NAN)),
        ("column spread.others", floats("spread", "low", -1.0)),
        ("column spread.others", floats("spread", "high", 1e12)),
        ("column spread_rest", set("spread_rest", f64::INFINITY)),
        ("column spread_rest", set("spread_rest", -1.0)),
        (
            "the sketches are too large",
            Box::new(|row| {
                for name in ["spread", "spread2"] {
                    let keys = row.table(name).unwrap().len()
                        + row.table(&format!("{name}_candidates")).unwrap().len();
                    // In each row of 1,024 cells of 128 registers a cell for each key.
                    let (mut levels, mut registers) = (vec![0; 4 << 10], vec![0; 4 << 17]);
                    for cell in (0..4).flat_map(|line| line << 10..(line << 10) + keys) {
                        (levels[cell], registers[cell << 7]) = (1, 1);
                    }
                    for (size, number) in [("rows", 4), ("columns", 1 << 10), ("registers", 1 << 7)]
                    {
                        *value(row, &format!("{name}_{size}")) = Value::Int(Some(number));
                    }
                    *value(row, &format!("{name}_levels")) = Value::Bytes(Some(levels));
                    *value(row, &format!("{name}_cells")) = Value::Bytes(Some(registers));
                }
            }),
        ),
        // Lengths.
        ("column lengths.packets has", first("lengths", [("packets", i64::MAX)])),
        ("column lengths.packets has -5", first("lengths", [("packets", -5)])),
        ("column lengths has", first("lengths", [("packets", HUGE)])),
        ("column lengths has", ints("lengths", "packets", |cells| cells[0] += 1)),
        ("bytes of excess", first("lengths", [("excess", HUGE)])),
        ("column lengths has a bucket", first("lengths", [("low", -3)])),
        ("column lengths has a bucket", first("lengths", [("high", 70_000)])),
        ("column lengths.low is not in order", repeated("lengths", 2)),
        ("column lengths_full", int("lengths_full", HUGE)),
        ("column length_mean", set("length_mean", f64::INFINITY)),
        ("column length_p50", set("length_p50", 1e9)),
        // Delays.
        ("column delay_kinds has 'telepathy'", set("delay_kinds", "telepathy")),
        ("column delay_directions has 9", int("delay_directions", 9)),
        ("a table has 64 to 65536 slots", int("delay_slots_log2", 40)),
        ("has kinds or groups that", first("delay", [("group_number", 200)])),
        ("column delay_gap_ns has -1", int("delay_gap_ns", -1)),
        ("column delay.requests has", first("delay", [("requests", HUGE)])),
        ("column delay.requests has -1", first("delay", [("requests", -1)])),
        ("column delay.admitted has", first("delay", [("admitted", HUGE)])),
        ("column delay.refused has", first("delay", [("refused", i64::MIN)])),
        ("column delay.miscounted has", first("delay", [("miscounted", HUGE)])),
        ("column delay.admit_log2 has 40", first("delay", [("admit_log2", 40)])),
        ("two rows of one direction", repeated("delay", 2)),
        ("percentiles in ns", floats("delay", "p50_ns", f64::INFINITY)),
        ("percentiles in ns", floats("delay", "p99_ns", 0.0)),
        ("column delay_resolution_ns", int("delay_resolution_ns", HUGE)),
        ("samples", first("delay_buckets", [("samples", -1)])),
        ("delays of tcp", first("delay_buckets", many_delays)),
        ("which no weights give", first("delay_buckets", [("weight", 1 << 62)])),
        ("which no weights give", first("delay_buckets", [("weight", 0)])),
        ("which no weights give", first("delay_buckets", [("squares", -1)])),
        ("beyond weights", first("delay_buckets", [("beyond", HUGE)])),
        ("column delay_buckets has fridge", first("delay_buckets", [("fridge", 1)])),
        ("which does not exist", first("delay_buckets", [("low_ticks", -64)])),
        ("which does not exist", first("delay_buckets", [("high_ns", HUGE)])),
        ("two buckets", repeated("delay_buckets", 2)),
        // Reordering.
        ("flows of", first("reorder", [("packets", 0)])),
        ("out of order, sent again", first("reorder", [("out_of_order", HUGE)])),
        ("out of order, sent again", first("reorder", [("retransmitted", HUGE)])),
        ("out of order, sent again", first("reorder", [("gaps", HUGE)])),
        ("column reorder.gaps has -1", first("reorder", [("gaps", -1)])),
        ("segments in all", first("reorder", [("packets", HUGE)])),
        ("flows of", first("reorder", [("flows", HUGE)])),
        ("has squares", first("reorder", [("squares", HUGE)])),
        ("which is no prefix", first("reorder", [("bits", 7)])),
        ("or twice", repeated("reorder", 2)),
        ("prefixes; at most", repeated("reorder", 500)),
        ("segments in all", int("reorder_unfollowed", HUGE)),
        ("column reorder_crowded has -1", int("reorder_crowded", -1)),
        ("column reorder_buckets has 4095", int("reorder_buckets", 4095)),
    ]
}

/// Writes rows into a file, and selects it.
fn written(path: PathBuf, rows: &[Row]) -> Selection {
    std::fs::write(&path, parquet::write(rows, &[]).unwrap()).unwrap();
    Selection { paths: vec![path], ..Selection::default() }
}

fn sealed(mut row: Row) -> Row {
    row.0.retain(|(name, _)| name != CHECKSUM);
    row.seal();
    row
}

#[test]
fn a_row_that_breaks_a_law_is_refused_by_unions_compaction_and_journals() {
    let honest = counted(all_measurements(sketch::Mode::CountMin, delay::Algorithm::Fridge));
    let scratch = Scratch::new("laws");
    let path = scratch.join("row.parquet");
    let read = |row: &Row| {
        let rows = [row.clone()];
        let selection = written(path.clone(), &rows);
        let mut counted = 0;
        let united = unite(&selection, &Options::default(), |record| {
            counted += record.counters.packets();
            Ok(())
        });
        let files = [LakeFile::given(path.clone())];
        let joined = all_rows(&files, None).and_then(|mut rows| rows.next().map(|_| ()));
        let kept = journaled(&rows, &scratch);
        (united, counted, joined, kept)
    };
    let (united, packets, joined, kept) = read(&honest);
    united.unwrap();
    joined.unwrap();
    assert!(packets > 1000 && kept == (1, 0, None), "{packets} packets, {kept:?}");
    let forgeries = forgeries();
    assert!(forgeries.len() >= 60, "{}", forgeries.len());
    let mut believed = Vec::new();
    for (words, forge) in &forgeries {
        let mut row = honest.clone();
        forge(&mut row);
        assert_ne!(row, honest, "{words}");
        let (united, packets, joined, kept) = read(&sealed(row));
        for error in [united.map(|_| ()), joined] {
            let error = error.map_or_else(|error| error.to_string(), |()| "no error".to_owned());
            let is_named = error.contains(words) && error.contains("row.parquet, row 1: ");
            if !is_named || error.contains('\n') || error.len() > 600 || packets > 0 {
                believed.push(format!("{words}: {error}"));
            }
        }
        let is_named = kept.2.as_ref().is_some_and(|law| law.contains(words));
        if (kept.0, kept.1) != (0, 1) || !is_named {
            believed.push(format!("{words}: the journal has {kept:?}"));
        }
    }
    assert!(believed.is_empty(), "{}", believed.join("\n"));
}

/// Limit of the data segment of a process that reads forged files, in KiB.
const MEMORY_KIB: u64 = 128 << 10;

/// Each list of a few bytes is longer than one of a window. The rows break laws, which are checked
/// once they are decoded.
#[test]
fn rows_of_long_lists_take_little_memory() {
    const LONG: usize = 130_000;
    if let Some(directory) = limited::directory() {
        for file in std::fs::read_dir(directory).unwrap() {
            let path = file.unwrap().path();
            let selection = Selection { paths: vec![path.clone()], ..Selection::default() };
            let error = unite(&selection, &Options::default(), |_| Ok(())).unwrap_err().to_string();
            assert!(error.contains(path.to_str().unwrap()), "{error}");
        }
        return;
    }
    let honest = counted(all_measurements(sketch::Mode::CountMin, delay::Algorithm::Fridge));
    let scratch = Scratch::new("long-lists");
    let longer = |table: &'static str| repeated(table, LONG / honest.table(table).unwrap().len());
    let forged: [(&str, i64, Edit); 6] = [
        ("entropy", 100, list("entropy_full", |full| *full = vec![-1; LONG])),
        ("frequency", 100, list("frequency_cells", |cells| *cells = vec![0; LONG])),
        ("heavy", 20, longer("heavy")),
        ("reorder", 20, longer("reorder")),
        ("delay", 20, longer("delay_buckets")),
        ("lengths", 20, longer("lengths")),
    ];
    for (name, rows, forge) in forged {
        let mut row = honest.clone();
        forge(&mut row);
        let rows: Vec<Row> = (0..rows)
            .map(|window| {
                let mut row = row.clone();
                both(int("window", window), int("last_window", window))(&mut row);
                sealed(row)
            })
            .collect();
        written(scratch.join(format!("{name}.parquet")), &rows);
    }
    limited::run(module_path!(), "rows_of_long_lists_take_little_memory", MEMORY_KIB, &scratch);
}

#[test]
fn rows_of_all_algorithms_break_no_law() {
    for mode in [sketch::Mode::CountMin, sketch::Mode::CountSketch] {
        for algorithm in delay::Algorithm::ALL {
            let settings = all_measurements(mode, algorithm);
            for heavy in heavy::Algorithm::ALL {
                for unit in heavy::CountUnit::ALL {
                    let heavy = heavy::Settings { algorithm: heavy, unit, ..settings.heavy };
                    check(&counted(Settings { heavy, ..settings })).unwrap();
                }
            }
            let delay = delay::Settings {
                directions: delay::Directions::Apart,
                follows: algorithm == delay::Algorithm::Fridge,
                admit_log2: 2,
                ..settings.delay
            };
            let reorder =
                reorder::Settings { algorithm: reorder::Algorithm::Hybrid, ..settings.reorder };
            check(&counted(Settings { delay, reorder, ..settings })).unwrap();
        }
    }
}

#[test]
fn delays_that_saturate_in_a_union_are_marked() {
    const SAMPLES: i64 = 3_000_000_000;
    let mut row = counted(all_measurements(sketch::Mode::CountMin, delay::Algorithm::Fridge));
    let Weight { weight, square } = Weight::ONE;
    let sums = [("samples", 1), ("weight", weight), ("squares", square)];
    let sums = sums.map(|(column, of_each)| (column, SAMPLES * i64::from(of_each)));
    first("delay_buckets", sums)(&mut row);
    for column in ["packets", "ipv4_packets"] {
        more(column, column, 2 * SAMPLES)(&mut row);
    }
    let mut other = row.clone();
    set("run", "other")(&mut other);
    let scratch = Scratch::new("delays");
    for (rows, is_saturated) in [(vec![row.clone()], false), (vec![row, other], true)] {
        let selection = written(scratch.join("row.parquet"), &rows);
        let measure = vec![flowgauge_core::MeasurementKind::Delay];
        let options = Options { measure, ..Options::default() };
        unite(&selection, &options, |record| {
            let delays = record.reports.delay.unwrap();
            assert_eq!(delays.together().any(|delay| delay.is_saturated), is_saturated);
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn registers_of_a_flow_for_each_packet_break_no_law() {
    use flowgauge_core::{HashIdentity, Precision};
    use rand::{RngExt, SeedableRng};
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(55);
    let hash = HashIdentity::new(HashMode::Tabulated, 1);
    let honest = counted(all_measurements(sketch::Mode::CountMin, delay::Algorithm::Fridge));
    for bits in Precision::MIN.bits()..=Precision::MAX.bits() {
        let precision = Precision::new(bits as u8).unwrap();
        for packets in [1_u64, 2, 7, 40, 300, 5000] {
            for _ in 0..20 {
                let mut registers = Box::new(flowgauge_core::Cardinality::new());
                (0..packets).for_each(|_| registers.update(random.random(), precision));
                let levels = registers.levels(precision);
                let estimate = estimate(levels, Estimator::default()).unwrap();
                let mut row = Row::default();
                let others = ["non_ip", "ipv6_packets", "truncated", "bad_header"];
                for column in ["schema", "late", "bytes"].into_iter().chain(others) {
                    row.int(column, 0);
                }
                for column in ["packets", "ipv4_packets"] {
                    row.int(column, packets);
                }
                row.put("complete", Value::Bool(Some(true)));
                row.put("hash", honest.get("hash").unwrap().clone());
                row.text("distinct_key", "src");
                row.int("registers", levels.len() as u64);
                row.float("distinct", estimate.value);
                row.float("distinct_low", estimate.low);
                row.float("distinct_high", estimate.high);
                let column = image::column(KeyKind::Src, precision, &hash);
                row.put(column, Value::Bytes(Some(image::of(levels))));
                let totals = RowTotals::of(&row).unwrap();
                assert_eq!(measurement::check(&row, &totals), Ok(()), "{bits} bits, {packets}");
            }
        }
    }
}

/// Writes rows into a journal in a directory, and returns how many of them are read back, how many
/// places are damaged, and the law that a row breaks.
fn journaled(rows: &[Row], directory: &Path) -> (usize, u64, Option<RowDefect>) {
    const NAME: &str = "row.journal";
    let directory = Arc::new(Directory::open(directory).unwrap());
    let mut journal = Journal::create(&directory, NAME.to_owned()).unwrap();
    journal.append(rows).unwrap();
    drop(journal);
    let left = journal::left(&directory, NAME, usize::MAX >> 8).unwrap().unwrap();
    directory.remove(NAME).unwrap();
    (left.rows.len(), left.damaged, left.broken)
}
