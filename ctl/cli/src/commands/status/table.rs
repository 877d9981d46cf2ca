//! Status of a run as text.

use flowgauge_core::KeyKind;
use flowgauge_ctl::Ledger;
use flowgauge_ctl::measurement::cardinality;
use flowgauge_ctl::output::{counted, grouped};
use flowgauge_ctl::status::{Latest, StatusReport};
use flowgauge_dataplane::status::{ProgramStatus, SwitchStatus, WorkerLoad, WorkerStatus};
use flowgauge_dataplane::xdp::{self, AbandonedProgram, Cost};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

/// Rate of 64-byte frames at 100 Gbit/s Ethernet, with 20 bytes of overhead each.
const LINE_RATE: f64 = 100e9 / 8.0 / (64.0 + 20.0);
/// Share of the CPU time it could use below which a worker shares its CPU with others.
const MIN_CPU_SHARE: f64 = 0.9;

/// Cost of a run's programs as measured by the kernel.
struct Kernel {
    measures: bool,
    costs: io::Result<Vec<Cost>>,
}

/// Queries the kernel about a run's programs, if it has any.
fn kernel(report: &StatusReport) -> Kernel {
    let programs: Vec<u32> =
        report.dataplane.programs.iter().filter_map(|status| status.program).collect();
    let costs = if programs.is_empty() { Ok(Vec::new()) } else { xdp::costs(&programs) };
    Kernel { measures: xdp::costs_are_measured(), costs }
}

/// Writes the status of a run as a paragraph.
pub(super) fn run(out: &mut impl Write, report: &StatusReport) -> io::Result<()> {
    let StatusReport { pid, version, backend, interface, .. } = report;
    let age = time(report.at_ns.saturating_sub(report.started_ns));
    let health = match (&report.problems[..], &report.starting[..], &report.failed[..]) {
        ([], [], []) => "healthy",
        ([], [], _) => "degraded",
        ([], _, _) => "starting",
        _ => "NOT healthy",
    };
    let has_source = !(backend.is_empty() && interface.is_empty());
    let what =
        if has_source { format!("{backend}, {interface}") } else { "no source yet".to_owned() };
    writeln!(out, "run {pid}, {health}: {what}, for {age}, flowgauge {version}")?;
    let mut line = |name: &str, text: &dyn Display| writeln!(out, "  {name:<10} {text}");
    report.problems.iter().try_for_each(|problem| line("problem", problem))?;
    report.failed.iter().try_for_each(|failed| line("failed", failed))?;
    report.starting.iter().try_for_each(|starting| line("starting", starting))?;
    if report.sources.is_empty() {
        return if has_source { source(out, report) } else { Ok(()) };
    }
    let packets = counted(report.packets, "packet");
    line(
        "in all",
        &format!(
            "{packets} of {}, {}",
            counted(report.sources.len() as u64, "source"),
            lost(&report.drops)
        ),
    )?;
    report.sources.iter().try_for_each(|one| {
        let name = one.source.as_deref().unwrap_or_default();
        writeln!(out, " source {name}: {}, {}", one.backend, one.interface)?;
        source(out, one)
    })
}

/// Writes the status of a source.
fn source(out: &mut impl Write, report: &StatusReport) -> io::Result<()> {
    let (dataplane, kernel) = (&report.dataplane, kernel(report));
    let mut line = |name: &str, text: &dyn Display| writeln!(out, "  {name:<10} {text}");
    let measured = report
        .measurements
        .iter()
        .map(|measured| format!("{} of {}", measured.measurement, measured.key));
    let measured: Vec<String> = measured.collect();
    let windows = report
        .window_ns
        .map_or_else(String::new, |window_ns| format!(", in windows of {}", time(window_ns)));
    let measures =
        if measured.is_empty() { "packets and bytes".to_owned() } else { measured.join(", ") };
    line("measures", &format!("{measures}{windows}"))?;
    if let Some(window) = &report.last_window {
        let cut = if window.complete { "" } else { ", incomplete" };
        line(
            "window",
            &format!(
                "{}, closed {} ago{cut}: {}",
                window.window,
                time(window.age_ns),
                latest(window)
            ),
        )?;
    }
    let is_news = |sample: &&Latest| {
        report.last_window.as_ref().is_none_or(|window| sample.end_ns > window.end_ns)
    };
    if let Some(sample) = report.last_sample.as_ref().filter(is_news) {
        line(
            "sample",
            &format!(
                "{} ago, in window {}: {}",
                time(sample.age_ns),
                sample.window,
                latest(sample)
            ),
        )?;
    }
    let packets = counted(report.packets, "packet");
    line(
        "in all",
        &format!("{packets} in {}, {}", counted(report.windows, "window"), lost(&report.drops)),
    )?;
    if let Some(ledger) = &report.ledger {
        line("ledger", &ledger_line(ledger))?;
    }
    trouble(report).into_iter().try_for_each(|trouble| line("trouble", &trouble))?;
    if let Some(warning) = &report.last_warning {
        line("warning", &format!("{} ago: {}", time(warning.age_ns), warning.text))?;
    }
    for (index, status) in dataplane.workers.iter().enumerate() {
        let mut name = format!("worker {index}");
        for text in worker(status) {
            line(&name, &text)?;
            name.clear();
        }
    }
    if let Some(budget) = budget(&dataplane.workers) {
        line("budget", &budget)?;
    }
    if let Some(instructions) = &dataplane.instructions {
        line("cpu", &format!("{instructions} instructions"))?;
    }
    dataplane.programs.iter().try_for_each(|status| line("program", &program(status, &kernel)))?;
    dataplane.switch.iter().try_for_each(|status| line("switch", &switch(status)))
}

/// Describes a program that is still attached without a run, and how to remove it.
pub(super) fn left(left: &AbandonedProgram) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64);
    let counts = left.since_ns.map_or_else(
        || "is counting".to_owned(),
        |since_ns| format!("has been counting for {}", time(now.saturating_sub(since_ns))),
    );
    let (place, interface) = (&left.place, &left.place.interface);
    let direction = left.place.direction.name();
    if !left.adoptable {
        return format!(
            "{place}: a filter {counts} without a run, and cannot be adopted; remove it with `flowgauge detach -i {interface}`"
        );
    }
    format!(
        "{place}: a program {counts} without a run; resume it with `flowgauge run -i {interface} --direction {direction} --adopt`, \
         or remove it with `flowgauge detach -i {interface}`"
    )
}

fn latest(latest: &Latest) -> String {
    let seconds = latest.end_ns.saturating_sub(latest.start_ns) as f64 / 1e9;
    let rate = rate(latest.packets as f64 / seconds.max(f64::MIN_POSITIVE));
    let flows = latest.flows.as_ref().map_or_else(String::new, |flows| {
        let [estimate, low, high] =
            [flows.estimate, flows.low, flows.high].map(|value| grouped(value.round() as u64));
        format!(", {estimate} {} ({low} … {high})", distinct(&flows.key))
    });
    let alarm = if latest.alarm == Some(true) { ", ALARM" } else { "" };
    let (packets, lasted) = (counted(latest.packets, "packet"), time((seconds * 1e9) as u64));
    format!("{packets} in {lasted} ({rate}){flows}, {}{alarm}", lost(&latest.drops))
}

/// Returns the name of distinct flows by a key.
fn distinct(key: &str) -> String {
    let known = KeyKind::ALL.into_iter().find(|kind| kind.name() == key);
    known.map_or_else(
        || format!("distinct flows by {key}"),
        |kind| cardinality::distinct(kind).to_owned(),
    )
}

/// Formats a ledger as an equation.
fn ledger_line(ledger: &Ledger) -> String {
    let [received, counted, lost] = [ledger.received, ledger.counted, ledger.lost].map(grouped);
    let rest = match ledger.unaccounted {
        0 => "nothing unaccounted".to_owned(),
        missing => format!(
            "{}{} UNACCOUNTED",
            if missing < 0 { "-" } else { "" },
            grouped(missing.unsigned_abs())
        ),
    };
    let unmatched = match ledger.unmatched {
        0 => String::new(),
        unmatched => format!(" + {} unmatched", grouped(unmatched)),
    };
    format!(
        "{received} received by the device = {counted} counted{unmatched} + {lost} lost, {rest}"
    )
}

/// Formats losses by cause.
fn lost(drops: &BTreeMap<String, u64>) -> String {
    if drops.is_empty() {
        return "none lost".to_owned();
    }
    let causes: Vec<String> =
        drops.iter().map(|(cause, packets)| format!("{cause} {}", grouped(*packets))).collect();
    format!("{} LOST ({})", grouped(drops.values().sum()), causes.join(", "))
}

/// Formats the counts of late and missed operations.
fn trouble(report: &StatusReport) -> Option<String> {
    let troubles = [
        (report.alarms, "window", "raised the alarm"),
        (report.late_rotations, "window", "closed late"),
        (report.missed_samples, "sample", "missed"),
        (report.late_samples, "sample", "more than 1 ms late"),
        (report.retries, "call", "of the dataplane retried"),
    ];
    let occurred = troubles.into_iter().filter(|(count, ..)| *count > 0);
    let troubles: Vec<String> =
        occurred.map(|(count, thing, what)| format!("{} {what}", counted(count, thing))).collect();
    (!troubles.is_empty()).then(|| troubles.join(", "))
}

/// Returns the CPU budget of a worker, line by line.
fn worker(status: &WorkerStatus) -> Vec<String> {
    let mode = status.poll_mode.name();
    let cpu = match (status.pinned, status.load.and_then(|load| load.cpu)) {
        (Some(cpu), _) => format!("pinned to CPU {cpu}"),
        (None, Some(cpu)) => format!("on CPU {cpu}, not pinned"),
        (None, None) => "not pinned".to_owned(),
    };
    let Some(load) = status.load else {
        return vec![format!("{cpu}, {mode}; no load measured yet")];
    };
    let share = |time_ns: u64| time_ns as f64 / load.lasted_ns.max(1) as f64 * 100.0;
    let [packets, polling, asleep] =
        [load.with_packets_ns, load.polling_ns, load.asleep_ns].map(share);
    let mut lines = vec![format!(
        "{cpu}, {mode}: {packets:.1} % of its time with packets, {polling:.1} % polling, {asleep:.1} % asleep (of {})",
        time(load.lasted_ns)
    )];
    lines.push(match capacity(&load) {
        None => "no packets".to_owned(),
        Some(room) => {
            let now = load.packets as f64 / (load.lasted_ns as f64 / 1e9);
            let cpu = load.cpu_ns.map_or_else(String::new, |cpu_ns| {
                format!(" ({} ns of CPU)", significant(cpu_ns as f64 / load.packets as f64))
            });
            let (each, batch) = (
                significant(1e9 / room),
                significant(load.packets as f64 / load.batches.max(1) as f64),
            );
            let (now, room) = (rate(now), rate(room));
            format!(
                "{each} ns per packet{cpu} at {now} in batches of {batch}; capacity at least {room}"
            )
        }
    });
    let awake_ns = load.with_packets_ns + load.polling_ns;
    let got = load.cpu_ns.map(|cpu_ns| cpu_ns as f64 / awake_ns.max(1) as f64);
    if let Some(got) = got.filter(|got| *got < MIN_CPU_SHARE && share(awake_ns) > 1.0) {
        lines.push(format!(
            "had a CPU for {:.0} % of the time that it was awake: other threads run there too",
            got * 100.0
        ));
    }
    lines
}

/// Returns the packets per second that a worker could count if it did nothing else. Larger batches
/// would allow more.
fn capacity(load: &WorkerLoad) -> Option<f64> {
    (load.packets > 0 && load.with_packets_ns > 0)
        .then(|| load.packets as f64 / (load.with_packets_ns as f64 / 1e9))
}

/// Formats the capacity of all workers, compared with a 100 Gbit/s link.
fn budget(workers: &[WorkerStatus]) -> Option<String> {
    let rooms: Option<Vec<f64>> =
        workers.iter().map(|worker| worker.load.as_ref().and_then(capacity)).collect();
    let room: f64 = rooms.filter(|rooms| !rooms.is_empty())?.iter().sum();
    let (workers, each) = (workers.len(), significant(1e9 / LINE_RATE * workers.len() as f64));
    let workers = counted(workers as u64, "worker");
    Some(format!(
        "{workers}: capacity at least {}; 64-byte frames at 100 Gbit/s are {}, {each} ns each",
        rate(room),
        rate(LINE_RATE)
    ))
}

fn program(status: &ProgramStatus, kernel: &Kernel) -> String {
    let ProgramStatus { place, hook, hook_reason, form, program, .. } = status;
    let reason = hook_reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
    let hook = hook.as_ref().map_or_else(String::new, |hook| format!(", hook {hook}{reason}"));
    let hook = form.iter().fold(hook, |hook, form| format!("{hook}, {form}"));
    let Some(program) = program else {
        return format!("{place}{hook}; program id unknown");
    };
    let cost = match &kernel.costs {
        Err(error) => format!("cost unknown: {error}; run this as root"),
        Ok(costs) => match costs.iter().find(|cost| cost.program == *program && cost.runs > 0) {
            Some(Cost { time_ns, runs, .. }) => {
                let each = *time_ns as f64 / *runs as f64;
                let still = if kernel.measures { "" } else { ", while the kernel measured it" };
                format!(
                    "{} ns of CPU per packet, {} packets{still}",
                    significant(each),
                    grouped(*runs)
                )
            }
            None if kernel.measures => "no packet yet".to_owned(),
            None => {
                "cost not measured; enable it with `sysctl kernel.bpf_stats_enabled=1`".to_owned()
            }
        },
    };
    format!("{place}{hook}, id {program}; {cost}")
}

fn switch(status: &SwitchStatus) -> String {
    let SwitchStatus { address, program, connected, pipes } = status;
    let connected = if *connected { "connected" } else { "NOT connected" };
    format!("{address}, program {program}, {connected}, {pipes} pipes")
}

fn rate(packets_per_second: f64) -> String {
    let (value, unit) = match packets_per_second {
        rate if rate >= 1e6 => (rate / 1e6, "Mpps"),
        rate if rate >= 1e3 => (rate / 1e3, "kpps"),
        rate => (rate, "pps"),
    };
    format!("{} {unit}", significant(value))
}

/// Formats a number with three significant digits, or all digits before the point.
fn significant(value: f64) -> String {
    let decimals = match value {
        value if value < 10.0 => 2,
        value if value < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// Formats a time in nanoseconds with its two largest units.
fn time(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    match seconds {
        0..60 => format!("{:.1} s", nanoseconds as f64 / 1e9),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowgauge_ctl::status::{Flows, MeasurementStatus, Warning};
    use flowgauge_dataplane::poll::PollMode;
    use flowgauge_dataplane::{CountingPoint, Direction, Status};

    const SECOND: u64 = 1_000_000_000;

    fn report(dataplane: Status) -> StatusReport {
        let drops = BTreeMap::from([("device".to_owned(), 3), ("socket".to_owned(), 1_200)]);
        let window = Latest {
            window: 41,
            start_ns: 400 * SECOND,
            end_ns: 410 * SECOND,
            age_ns: 3_240_000_000,
            complete: true,
            packets: 28_000_000,
            bytes: 1_792_000_000,
            drops: BTreeMap::new(),
            flows: Some(Flows {
                key: "src".to_owned(),
                estimate: 92_607.4,
                low: 88_582.0,
                high: 96_816.0,
            }),
            alarm: None,
        };
        StatusReport {
            pid: 4242,
            version: "0.1.0".to_owned(),
            at_ns: 4_000 * SECOND,
            backend: "poll".to_owned(),
            interface: "eth1".to_owned(),
            measurements: vec![MeasurementStatus {
                measurement: "cardinality".to_owned(),
                key: "src".to_owned(),
            }],
            window_ns: Some(10 * SECOND),
            packets: 1_148_000_000,
            drops,
            windows: 42,
            late_samples: 2,
            last_sample: Some(Latest { end_ns: 409 * SECOND, ..window.clone() }),
            last_window: Some(window),
            last_warning: Some(Warning { age_ns: 75 * SECOND, text: "eth1 is down".to_owned() }),
            dataplane,
            ..StatusReport::default()
        }
    }

    fn text(report: &StatusReport) -> String {
        let mut out = Vec::new();
        run(&mut out, report).unwrap_or_default();
        String::from_utf8(out).unwrap_or_default()
    }

    fn load(cpu_ns: u64) -> WorkerLoad {
        WorkerLoad {
            end_ns: 0,
            lasted_ns: SECOND,
            with_packets_ns: 120_000_000,
            polling_ns: 880_000_000,
            asleep_ns: 0,
            cpu_ns: Some(cpu_ns),
            packets: 2_784_000,
            batches: 100_000,
            cpu: Some(1),
        }
    }

    fn a_worker(load: Option<WorkerLoad>) -> WorkerStatus {
        WorkerStatus { thread: 4243, pinned: Some(1), poll_mode: PollMode::Busy, load }
    }

    #[test]
    fn a_run_of_workers() {
        let workers = vec![a_worker(Some(load(SECOND))), a_worker(Some(load(500_000_000)))];
        let expected = "\
run 4242, healthy: poll, eth1, for 1 h 6 min, flowgauge 0.1.0
  measures   cardinality of src, in windows of 10.0 s
  window     41, closed 3.2 s ago: 28,000,000 packets in 10.0 s (2.80 Mpps), 92,607 distinct sources (88,582 … 96,816), none lost
  in all     1,148,000,000 packets in 42 windows, 1,203 LOST (device 3, socket 1,200)
  trouble    2 samples more than 1 ms late
  warning    1 min 15 s ago: eth1 is down
  worker 0   pinned to CPU 1, busy: 12.0 % of its time with packets, 88.0 % polling, 0.0 % asleep (of 1.0 s)
             43.1 ns per packet (359 ns of CPU) at 2.78 Mpps in batches of 27.8; capacity at least 23.2 Mpps
  worker 1   pinned to CPU 1, busy: 12.0 % of its time with packets, 88.0 % polling, 0.0 % asleep (of 1.0 s)
             43.1 ns per packet (180 ns of CPU) at 2.78 Mpps in batches of 27.8; capacity at least 23.2 Mpps
             had a CPU for 50 % of the time that it was awake: other threads run there too
  budget     2 workers: capacity at least 46.4 Mpps; 64-byte frames at 100 Gbit/s are 149 Mpps, 13.4 ns each
  cpu        avx2 instructions
";
        let instructions = Some("avx2".to_owned());
        assert_eq!(text(&report(Status { workers, instructions, ..Status::default() })), expected);
    }

    #[test]
    fn a_worker_without_packets_has_no_budget() {
        let idle = WorkerLoad {
            with_packets_ns: 0,
            polling_ns: 1_000_000,
            asleep_ns: 999_000_000,
            packets: 0,
            ..load(1_000_000)
        };
        let on_any =
            WorkerStatus { pinned: None, poll_mode: PollMode::Adaptive, ..a_worker(Some(idle)) };
        let lines = worker(&on_any);
        let first = "on CPU 1, not pinned, adaptive: 0.0 % of its time with packets, 0.1 % polling, 99.9 % asleep (of 1.0 s)";
        assert_eq!(lines, [first, "no packets"]);
        assert_eq!(budget(&[a_worker(Some(load(SECOND))), on_any]), None);
        assert_eq!(worker(&a_worker(None)), ["pinned to CPU 1, busy; no load measured yet"]);
    }

    #[test]
    fn problems_come_first() {
        let problems = vec!["stalled for 12 s".to_owned()];
        let text = text(&StatusReport { problems, ..report(Status::default()) });
        let lines: Vec<&str> = text.lines().take(2).collect();
        assert_eq!(
            lines,
            [
                "run 4242, NOT healthy: poll, eth1, for 1 h 6 min, flowgauge 0.1.0",
                "  problem    stalled for 12 s"
            ]
        );
    }

    #[test]
    fn a_run_with_a_failed_source_is_degraded() {
        let failed = vec!["bad: failed; see the log".to_owned()];
        let text = text(&StatusReport { failed, ..report(Status::default()) });
        let begins = "run 4242, degraded: poll, eth1, for 1 h 6 min, flowgauge 0.1.0\n  failed     bad: failed; see the log\n";
        assert!(text.starts_with(begins), "{text}");
    }

    #[test]
    fn a_run_that_starts_is_not_healthy_yet() {
        let starting = vec!["counting has not started".to_owned()];
        let one = text(&StatusReport { starting, ..report(Status::default()) });
        let begins = "run 4242, starting: poll, eth1, for 1 h 6 min, flowgauge 0.1.0\n  starting   counting has not started\n";
        assert!(one.starts_with(begins), "{one}");
        let (starting, problems) =
            (vec!["a: counting has not started".to_owned()], vec!["b: it is gone".to_owned()]);
        let failed = vec!["c: it has failed; the log says why".to_owned()];
        let none = StatusReport {
            pid: 7,
            version: "0.1.0".to_owned(),
            starting,
            problems,
            failed,
            ..StatusReport::default()
        };
        let expected = "\
run 7, NOT healthy: no source yet, for 0.0 s, flowgauge 0.1.0
  problem    b: it is gone
  failed     c: it has failed; the log says why
  starting   a: counting has not started
";
        assert_eq!(text(&none), expected);
    }

    #[test]
    fn a_program_costs_what_the_kernel_says() {
        let place = CountingPoint { interface: "eth1".to_owned(), direction: Direction::Ingress };
        let counting = ProgramStatus {
            place,
            hook: Some("tcx".to_owned()),
            hook_reason: None,
            form: None,
            program: Some(34),
            attached: true,
        };
        let cost_of = |measures, runs| {
            let costs = Ok(vec![Cost { program: 34, time_ns: 285_000, runs }]);
            program(&counting, &Kernel { measures, costs })
        };
        assert_eq!(
            cost_of(true, 10_000),
            "eth1 ingress, hook tcx, id 34; 28.5 ns of CPU per packet, 10,000 packets"
        );
        assert_eq!(
            cost_of(false, 10_000),
            "eth1 ingress, hook tcx, id 34; 28.5 ns of CPU per packet, 10,000 packets, while the kernel measured it"
        );
        assert!(cost_of(true, 0).ends_with("no packet yet"));
        let chosen = ProgramStatus {
            hook_reason: Some("it is a virtual device".to_owned()),
            ..counting.clone()
        };
        let kernel = Kernel { measures: true, costs: Ok(Vec::new()) };
        assert_eq!(
            program(&chosen, &kernel),
            "eth1 ingress, hook tcx (it is a virtual device), id 34; no packet yet"
        );
        assert!(cost_of(false, 0).contains("`sysctl kernel.bpf_stats_enabled=1`"));
        let refused = Kernel { measures: true, costs: Err(io::ErrorKind::PermissionDenied.into()) };
        assert!(program(&counting, &refused).ends_with("permission denied; run this as root"));
    }

    #[test]
    fn what_is_left_counting_comes_with_what_to_do() {
        let place = CountingPoint { interface: "eth1".to_owned(), direction: Direction::Egress };
        let text =
            left(&AbandonedProgram { place: place.clone(), since_ns: None, adoptable: true });
        assert!(text.starts_with("eth1 egress: a program is counting without a run; "), "{text}");
        assert!(
            text.contains("`flowgauge run -i eth1 --direction egress --adopt`")
                && text.contains("`flowgauge detach -i eth1`")
        );
        let filter = left(&AbandonedProgram { place, since_ns: None, adoptable: false });
        assert!(
            !filter.contains("--adopt") && filter.contains("`flowgauge detach -i eth1`"),
            "{filter}"
        );
    }

    #[test]
    fn a_switch_is_connected_or_not() {
        let status = SwitchStatus {
            address: "switch:50052".to_owned(),
            program: "flowgauge".to_owned(),
            connected: true,
            pipes: 4,
        };
        assert_eq!(switch(&status), "switch:50052, program flowgauge, connected, 4 pipes");
        assert!(switch(&SwitchStatus { connected: false, ..status }).contains("NOT connected"));
    }

    #[test]
    fn figures_have_the_digits_that_matter() {
        assert_eq!(
            [0.5, 9.994, 12.34, 123.4, 1234.5].map(significant),
            ["0.50", "9.99", "12.3", "123", "1234"]
        );
        assert_eq!(
            [0.0, 999.0, 148_809.5, LINE_RATE].map(rate),
            ["0.00 pps", "999 pps", "149 kpps", "149 Mpps"]
        );
        let times =
            [250_000_000, 59 * SECOND, 61 * SECOND, 7_500 * SECOND, 200_000 * SECOND].map(time);
        assert_eq!(times, ["0.2 s", "59.0 s", "1 min 1 s", "2 h 5 min", "2 d 7 h"]);
    }
}
