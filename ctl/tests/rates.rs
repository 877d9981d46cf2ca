//! The rate in every output: packets over the time in which they were counted, however a run starts,
//! adopts and stops, at any number of interfaces and directions. In virtual time. The command's
//! `commands/status/rates.rs` has the status.

use crate::controller::{
    MILLISECOND, PACKET_EVERY, RecordSink, SECOND, START, Scripted, intervals, plan as plan_of,
};
use crate::{Each, Virtual};
use flowgauge_ctl::controller::{Controller, Sink};
use flowgauge_ctl::output::{Format, Metrics, Origin, TableStyle, Tee};
use flowgauge_ctl::record::{Record, RecordKind};
use flowgauge_ctl::schedule::Intervals;
#[cfg(feature = "report")]
use flowgauge_ctl::{inventory::Inventory, serve::ReportPage};
use flowgauge_dataplane::{Adopted, CountingPoint, Direction, Event};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

/// Packets per second of all places.
const SENT: f64 = 1e9 / PACKET_EVERY as f64;

/// All outputs of a run, and the records in them.
struct Outputs {
    /// The table, JSON lines and CSV.
    texts: [String; 3],
    metrics: Metrics,
    #[cfg(feature = "report")]
    page: ReportPage,
    records: RecordSink,
}

/// Returns the time that a record covers.
fn seconds_of(record: &Record) -> f64 {
    (record.end_ns - record.start_ns) as f64 / 1e9
}

impl Outputs {
    /// Runs a controller to the end.
    fn of(controller: Controller) -> Self {
        let mut texts = [(); 3].map(|()| Vec::<u8>::new());
        let mut records = RecordSink::default();
        let metrics = Metrics::default();
        #[cfg(feature = "report")]
        let mut page = ReportPage::default();
        let kept = Each(|record: &Record| records.record(record));
        let mut sinks: Vec<Box<dyn Sink + '_>> = vec![Box::new(kept), Box::new(metrics.clone())];
        #[cfg(feature = "report")]
        sinks.push(Box::new(Each(|record: &Record| page.record(record))));
        for (format, text) in [Format::Table, Format::Json, Format::Csv].into_iter().zip(&mut texts)
        {
            let style = TableStyle { width: || 120, ..TableStyle::default() };
            sinks.push(format.sink(text, style, Origin::default()));
        }
        controller.run(&mut Tee(sinks)).unwrap();
        let texts = texts.map(|text| String::from_utf8(text).unwrap());
        Outputs {
            texts,
            metrics,
            #[cfg(feature = "report")]
            page,
            records,
        }
    }
}

/// Checker of the rates of one run.
#[derive(Clone, Copy)]
struct Checker {
    seed: u64,
    places: usize,
    /// Number of windows in the time that is checked.
    windows: usize,
}

impl Checker {
    /// Checks the rate of a time: at most 1 % off, and a packet at its end. The scripted dataplane
    /// divides the packets of each window among the places, and the first one has the rest.
    #[track_caller]
    fn check(self, what: &str, rate: f64, is_part: bool, seconds: f64) {
        let Checker { seed, places, windows } = self;
        let sent = if is_part { SENT / places as f64 } else { SENT };
        let rests = if is_part { windows * places } else { 0 };
        let tolerance = 0.01 * sent + (1 + rests) as f64 / seconds;
        let what = format!("seed {seed}, {what}: {rate}/s for {sent}/s in {seconds} s");
        assert!((rate - sent).abs() <= tolerance, "{what}");
    }
}

/// Parses what `scaled` formats: `12.5 k`.
fn parsed(text: &str) -> f64 {
    let (number, prefix) = text.split_once(' ').unwrap_or((text, ""));
    let factor = match prefix {
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        other => panic!("{other} in {text}"),
    };
    number.parse::<f64>().unwrap_or_else(|_| panic!("{text}")) * factor
}

/// Returns the rates in the rows of a table, and those of its totals.
fn rates_of_table(table: &str) -> (Vec<f64>, Vec<f64>) {
    let (mut rows, mut totals, mut column) = (Vec::new(), Vec::new(), None);
    for line in table.lines() {
        let characters: Vec<char> = line.chars().collect();
        if let Some(at) = line.find(" packets/s").filter(|_| line.contains(" window ")) {
            // Cells are aligned to the right, below the end of their titles.
            column = Some(at..at + " packets/s".len());
        } else if line.contains(" packets in ") {
            let rate = line.split(", ").find_map(|phrase| phrase.strip_suffix(" packets/s"));
            totals.push(rate.map_or(f64::NAN, parsed));
        } else if line.is_empty() {
            column = None;
        } else if let Some(column) = column.clone().filter(|_| !line.contains("LOST")) {
            let cell = characters.get(column).unwrap_or_else(|| panic!("{line}"));
            rows.push(parsed(cell.iter().collect::<String>().trim()));
        }
    }
    (rows, totals)
}

/// Splits a line of CSV, with quoted cells.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut is_quoted) = (vec![String::new()], false);
    for character in line.chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(String::new()),
            _ => cells.last_mut().unwrap().push(character),
        }
    }
    cells
}

/// Draws a run, and returns its outputs, the number of places and that of adopted windows.
fn outputs(random: &mut ChaCha8Rng) -> (Outputs, usize, usize) {
    let start = START + random.random_range(0..20 * SECOND);
    let clock = Virtual::at(start);
    let mut dataplane = Scripted::on(&clock);
    // Packets before the run are not counted.
    dataplane.closed = (start - START) / PACKET_EVERY;
    let all = ["a", "b", "c"].map(|interface| {
        [Direction::Ingress, Direction::Egress]
            .map(|direction| CountingPoint { interface: interface.to_owned(), direction })
    });
    let number = random.random_range(1..=4);
    dataplane.capabilities.places = all.into_iter().flatten().take(number).collect();
    // Windows that earlier runs left open, each since the one before was killed.
    let mut begun: Vec<u64> = (0..random.random_range(0_usize..3))
        .map(|_| start - random.random_range(SECOND..10 * SECOND))
        .collect();
    begun.sort_unstable();
    begun.dedup();
    let adopted = begun.len();
    if !begun.is_empty() {
        let ends = begun.iter().skip(1).copied().chain([start]);
        dataplane.left =
            begun.iter().zip(ends).map(|(begin, end)| (end - begin) / PACKET_EVERY).collect();
        let runs = vec![None; begun.len()];
        dataplane.adopted = Some(Adopted { open_windows: begun, runs, next_window: 7 });
    }
    // As on a busy machine: packets arrive meanwhile, which the last window does not count.
    dataplane.confirmation_takes = random.random_range(0..50 * MILLISECOND);
    let window = random.random_range(1..=20) * 100 * MILLISECOND;
    let length = random.random_range(MILLISECOND..10 * window);
    let stops_by_itself = random.random_bool(0.5);
    if stops_by_itself {
        dataplane.events.push((start + length, Event::TrafficEnded));
    }
    let intervals = Intervals {
        align: random.random_bool(0.5),
        ..intervals(window, 0, if stops_by_itself { 0 } else { length })
    };
    let controller = Controller::start(dataplane, plan_of(intervals), || clock).unwrap();
    (Outputs::of(controller), number, adopted)
}

#[test]
fn every_output_has_the_rate_at_which_packets_were_sent() {
    let (mut adopted, mut stumps) = (0, 0);
    for seed in 0..100 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let (outputs, places, adopted_windows) = outputs(&mut random);
        let records = &outputs.records.0;
        assert!(records.iter().all(|it| it.end_ns > it.start_ns), "seed {seed}: no time");
        let is_total = |it: &&Record| it.kind == RecordKind::Total;
        let totals: Vec<&Record> = records.iter().filter(is_total).collect();
        let rows: Vec<&Record> = records.iter().filter(|it| !is_total(it)).collect();
        let each = if places > 1 { places + 1 } else { 1 };
        assert_eq!((totals.len(), rows.len() % each), (each, 0), "seed {seed}");
        let of_window = Checker { seed, places, windows: 1 };
        let of_total = Checker { windows: rows.len() / each, ..of_window };
        let checker = |is_total: bool| if is_total { of_total } else { of_window };
        adopted += adopted_windows;
        stumps += usize::from(seconds_of(rows.last().unwrap()) < 0.1);

        let [table, json, csv] = &outputs.texts;
        let (rates, rates_in_all) = rates_of_table(table);
        assert_eq!((rates.len(), rates_in_all.len()), (rows.len(), totals.len()), "{table}");
        for (rate, record) in rates.into_iter().zip(&rows) {
            of_window.check("table", rate, record.part, seconds_of(record));
        }
        for (rate, record) in rates_in_all.into_iter().zip(&totals) {
            of_total.check("total of the table", rate, record.part, seconds_of(record));
        }

        assert_eq!(json.lines().count(), records.len(), "seed {seed}");
        for line in json.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let number = |name: &str| line[name].as_u64().unwrap();
            let seconds = (number("end_ns") - number("start_ns")) as f64 / 1e9;
            let rate = number("packets") as f64 / seconds;
            checker(line["record"] == "total").check("JSON", rate, line["part"] == true, seconds);
        }

        let mut lines = csv.lines().map(cells);
        let header = lines.next().unwrap();
        let lines: Vec<Vec<String>> = lines.collect();
        // Without totals.
        assert_eq!(lines.len(), rows.len(), "seed {seed}");
        for line in &lines {
            let cell = |name: &str| line[header.iter().position(|it| it == name).unwrap()].as_str();
            let number = |name: &str| cell(name).parse::<u64>().unwrap();
            let seconds = (number("end_ns") - number("start_ns")) as f64 / 1e9;
            let rate = number("packets") as f64 / seconds;
            let is_part = matches!(cell("part"), "true" | "1");
            of_window.check("CSV", rate, is_part, seconds);
        }

        // With several places, each has a series of its own.
        if places == 1 {
            let text = outputs.metrics.text();
            let lines = text.lines().filter(|line| line.starts_with("flowgauge_packets_total{"));
            let values = lines.map(|line| line.rsplit(' ').next().unwrap());
            let counted: f64 = values.map(|value| value.parse::<f64>().unwrap()).sum();
            let seconds = seconds_of(totals[0]);
            of_total.check("metrics", counted / seconds, false, seconds);
        }

        #[cfg(feature = "report")]
        {
            let contents = Inventory::default().contents();
            let page = outputs.page.page("", &[], &[], &contents).unwrap();
            let (_, data) = page.split_once("application/json\" id=\"data\">").unwrap();
            let (data, _) = data.split_once("</script>").unwrap();
            let data: Value = serde_json::from_str(data).unwrap();
            for kind in ["windows", "totals"] {
                for event in data[kind].as_array().unwrap() {
                    let time = |name: &str| event[name].as_f64().unwrap();
                    let seconds = time("end") - time("start");
                    let figures = event["figures"].as_array().unwrap().iter();
                    let counts = figures.filter(|figure| figure["name"] == "packets");
                    let packets: f64 = counts.map(|it| it["count"].as_f64().unwrap()).sum();
                    let is_part = event["part"] == true;
                    checker(kind == "totals").check("page", packets / seconds, is_part, seconds);
                }
            }
        }
    }
    assert!(adopted > 0 && stumps > 0, "{adopted} adopted, {stumps} stumps");
}
