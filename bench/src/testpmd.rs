//! DPDK's testpmd, which receives packets and frees them (`rxonly`), in turns with our ports on the
//! same devices.
//!
//! The polling thread runs on the same CPU in every turn, and only its CPU time is measured: the
//! rate of a core follows from it. Startup is excluded, since packets and time are differences
//! between two readings.

use crate::findings::{Failure, Figure, Grid, Limit, RATIO, Results, Row, missing};
#[cfg(feature = "dpdk")]
use crate::live::NetNull;
use crate::live::{self, CpuPair, Traffic, WITHOUT_HUGEPAGES};
use flowgauge_core::Settings;
use flowgauge_papers::{ReproduceError, median};
use flowgauge_traffic::veth::{RECEIVER, isolated};
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PROGRAM: &str = "dpdk-testpmd";
/// CPU time after which its thread is assumed to be polling.
const POLLING_NS: u64 = 20_000_000;
/// Time limit of the startup.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Copy)]
struct Effort {
    rounds: usize,
    /// Duration of the measurement in a turn.
    turn: Duration,
}

/// Running testpmd, which ends when this is dropped.
struct Testpmd {
    child: Child,
    orders: ChildStdin,
}

impl Testpmd {
    /// Starts testpmd and returns once it polls.
    fn start(
        device: &str,
        memory: &[&str],
        CpuPair { polling, other }: CpuPair,
    ) -> Result<Self, Failure> {
        let failed = |problem: &str| missing(format!("{PROGRAM} on {device}: {problem}"));
        let mut child = Command::new(PROGRAM)
            // Its control core sleeps between commands.
            .args([
                "--no-pci",
                "--no-telemetry",
                "--main-lcore=0",
                &format!("--lcores=0@{other},1@{polling}"),
            ])
            .args(memory)
            .arg(format!("--vdev={device}"))
            .args([
                "--",
                "--interactive",
                "--forward-mode=rxonly",
                "--nb-cores=1",
                "--burst=64",
                "--total-num-mbufs=16384",
            ])
            .arg("--no-mlockall")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(&error.to_string()))?;
        let orders = child.stdin.take().ok_or_else(|| failed("no pipe"))?;
        let mut testpmd = Testpmd { child, orders };
        testpmd.order("start").map_err(failed)?;
        let started = Instant::now();
        while testpmd.cpu_ns().is_none_or(|used| used < POLLING_NS) {
            if testpmd.child.try_wait().is_ok_and(|ended| ended.is_some())
                || started.elapsed() > STARTUP_TIMEOUT
            {
                return Err(failed(&testpmd.last_words()));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(testpmd)
    }

    fn order(&mut self, order: &str) -> Result<(), &'static str> {
        writeln!(self.orders, "{order}").map_err(|_| "does not accept commands")
    }

    /// Returns the CPU time of the polling thread, whose name depends on the release of DPDK.
    fn cpu_ns(&self) -> Option<u64> {
        fs::read_dir(Path::new("/proc").join(self.child.id().to_string()).join("task"))
            .ok()?
            .flatten()
            .find_map(|task| {
                let read = |file| fs::read_to_string(task.path().join(file)).ok();
                let polls = read("comm")?.contains("worker");
                polls.then(|| read("schedstat")?.split(' ').next()?.parse().ok())?
            })
    }

    fn last_words(&mut self) -> String {
        let _ = self.child.kill();
        let mut said = Vec::new();
        // Output that cannot be read is ignored.
        let _ = self.child.stderr.take().map(|mut stderr| stderr.read_to_end(&mut said));
        let said = String::from_utf8_lossy(&said);
        // The cause may be printed before its consequences; return all lines.
        said.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
    }

    /// Measures the CPU nanoseconds per packet for some time.
    fn cost(mut self, time: Duration) -> Result<f64, Failure> {
        let counted = self.count(time).filter(|(_, packets)| *packets > 0);
        let counted = counted.ok_or_else(|| {
            missing(format!("{PROGRAM} that receives packets and reports their number"))
        });
        counted.map(|(used, packets)| used as f64 / packets as f64)
    }

    fn count(&mut self, time: Duration) -> Option<(u64, u64)> {
        let mut look = || {
            self.order("show port stats 0").ok()?;
            self.cpu_ns()
        };
        let before = look()?;
        thread::sleep(time);
        let used = look()? - before;
        self.order("quit").ok()?;
        let mut said = String::new();
        self.child.stdout.take()?.read_to_string(&mut said).ok()?;
        let [before, after] = received(&said)?;
        Some((used, after.checked_sub(before)?))
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        // It has already ended unless something failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the packet counts of the first two port statistics.
fn received(said: &str) -> Option<[u64; 2]> {
    let mut looks = said.split("NIC statistics").skip(1).map(|look| {
        let (_, count) = look.split_once("RX-packets:")?;
        count.split_ascii_whitespace().next()?.parse().ok()
    });
    Some([looks.next()??, looks.next()??])
}

/// Contestants and their CPU nanoseconds per packet in every round.
struct Series {
    name: &'static str,
    costs: Vec<f64>,
}

/// Name and turn of a contestant.
type Contender<'a> = (&'static str, Box<dyn FnMut() -> Result<f64, Failure> + 'a>);

fn take_turns(rounds: usize, contenders: &mut [Contender<'_>]) -> Result<Vec<Series>, Failure> {
    let mut series: Vec<Series> =
        contenders.iter().map(|(name, _)| Series { name, costs: Vec::new() }).collect();
    for _ in 0..rounds {
        for ((_, turn), series) in contenders.iter_mut().zip(&mut series) {
            series.costs.push(turn()?);
        }
    }
    Ok(series)
}

impl Series {
    fn row(&self) -> Row {
        Row { name: self.name.to_owned(), values: vec![median(&self.costs)] }
    }

    /// Returns the ratio to `other`, round by round: the median, and the difference between every
    /// other round and the rest.
    fn over(
        &self,
        other: &Series,
        name: String,
        nanoseconds: Option<f64>,
        limit: Option<Limit>,
    ) -> Option<Figure> {
        let ratios: Vec<f64> =
            self.costs.iter().zip(&other.costs).map(|(one, other)| one / other).collect();
        let half =
            |first| median(&ratios.iter().copied().skip(first).step_by(2).collect::<Vec<_>>());
        let noise = half(0).zip(half(1)).map_or(0.0, |(even, odd)| (even - odd).abs());
        Some(Figure { name, value: median(&ratios)?, unit: RATIO, noise, nanoseconds, limit })
    }
}

/// Costs and ratios on one device.
type DeviceFindings = (Vec<Row>, Vec<Figure>);

/// Compares on a device that returns its buffers unchanged: zeros, or frames written there before.
/// testpmd does not read them.
#[cfg(feature = "dpdk")]
fn on_net_null(effort: Effort, cpus: CpuPair) -> Result<DeviceFindings, Failure> {
    use flowgauge_core::HashMode;

    const TESTPMD: &str = "testpmd rxonly on net_null";
    const ZEROS: &str = "dpdk:net_null, frames of zeros";
    let memory = live::memory_arguments();
    // Start with the other program, which may be unable to run.
    let theirs = || Testpmd::start(NetNull::DEVICE, &memory, cpus)?.cost(effort.turn);
    theirs()?;
    let null = NetNull::start(cpus)?;
    let ours = |hash, has_frames| -> Result<f64, Failure> {
        let settings = Settings::default().with_hash(hash);
        Ok(live::cost_of_counting(null.ports(has_frames)?, settings, cpus, effort.turn)?)
    };
    let series = take_turns(
        effort.rounds,
        &mut [
            (TESTPMD, Box::new(theirs)),
            (ZEROS, Box::new(|| ours(HashMode::Tabulated, false))),
            ("dpdk:net_null, IPv4 frames, crc32", Box::new(|| ours(HashMode::Crc32, true))),
            ("dpdk:net_null, IPv4 frames, tabulated", Box::new(|| ours(HashMode::Tabulated, true))),
        ],
    )?;
    let Some((theirs, ours)) = series.split_first() else {
        return Ok(DeviceFindings::default());
    };
    // Small pages cost both programs most of the time, and one that reads frames more.
    let least = if memory == WITHOUT_HUGEPAGES { 0.8 } else { 0.9 };
    // A ratio of rates is an inverse ratio of times.
    let figure = |own: &Series| {
        let limit = (own.name == ZEROS).then_some(Limit::AtLeast(least));
        theirs.over(
            own,
            format!("rate of {} / testpmd rxonly", own.name),
            median(&own.costs),
            limit,
        )
    };
    Ok((series.iter().map(Series::row).collect(), ours.iter().filter_map(figure).collect()))
}

#[cfg(not(feature = "dpdk"))]
fn on_net_null(_: Effort, _: CpuPair) -> Result<DeviceFindings, Failure> {
    Err(missing("a flowgauge with the feature dpdk, for net_null next to testpmd"))
}

/// Compares on one AF_XDP socket each at the end of a veth pair. The kernel copies.
fn on_af_xdp(effort: Effort, cpus: CpuPair) -> Result<DeviceFindings, Failure> {
    let compare = move || {
        let theirs = || {
            let testpmd = Testpmd::start(
                &format!("net_af_xdp0,iface={}", RECEIVER.0),
                &WITHOUT_HUGEPAGES,
                cpus,
            )?;
            let traffic = Traffic::start(cpus)?;
            thread::sleep(effort.turn / 4);
            let cost = testpmd.cost(effort.turn)?;
            traffic.stop()?;
            Ok(cost)
        };
        let ours = || {
            Ok(live::on_af_xdp(cpus, |ports| {
                live::cost_of_counting(ports, Settings::default(), cpus, effort.turn)
            })?)
        };
        take_turns(
            effort.rounds,
            &mut [
                ("testpmd rxonly on net_af_xdp, which never sleeps", Box::new(theirs)),
                ("af_xdp, IPv4 frames, tabulated", Box::new(ours)),
            ],
        )
    };
    let series = isolated(compare).map_err(missing)??;
    let figure = match series.as_slice() {
        [theirs, ours] => {
            let limit = Some(Limit::AtMost(1.0));
            ours.over(
                theirs,
                "CPU time of af_xdp over veth / testpmd rxonly".to_owned(),
                median(&ours.costs),
                limit,
            )
        }
        _ => None,
    };
    Ok((series.iter().map(Series::row).collect(), figure.into_iter().collect()))
}

/// Compares on each device.
///
/// # Errors
/// [`ReproduceError`] if our own port fails.
pub(crate) fn compare(results: &mut Results, quick: bool) -> Result<(), ReproduceError> {
    if Command::new(PROGRAM)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_err()
    {
        results.skip(PROGRAM);
        return Ok(());
    }
    let Some(cpus) = CpuPair::find() else {
        results.skip(format!("two CPUs, for {PROGRAM}"));
        return Ok(());
    };
    let effort = match quick {
        true => Effort { rounds: 3, turn: Duration::from_millis(500) },
        false => Effort { rounds: 5, turn: Duration::from_secs(2) },
    };
    let mut rows = Vec::new();
    for compared in [on_net_null(effort, cpus), on_af_xdp(effort, cpus)] {
        if let Some((costs, ratios)) = results.note(compared)? {
            rows.extend(costs);
            results.figures.extend(ratios);
        }
    }
    results.grids.extend((!rows.is_empty()).then(|| Grid {
        title: "Packets received and counted, or only received".to_owned(),
        unit: "ns of CPU time a packet",
        across: "",
        columns: vec!["ns".to_owned()],
        places: None,
        rows,
    }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_testpmd_says_is_read() {
        let look = |count| {
            format!(
                "  #### NIC statistics for port 0  ####\n  RX-packets: {count}     RX-missed: 0\n  RX-errors: 0\n"
            )
        };
        let end = "Forward statistics for port 0\n  RX-packets: 7      RX-dropped: 0\n";
        assert_eq!(received(&format!("start\n{}{}{end}", look(100), look(250))), Some([100, 250]));
        assert_eq!(received(&format!("start\n{}{end}", look(100))), None);
        assert_eq!(received(end), None);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let series = |costs: &[f64]| Series { name: "", costs: costs.to_vec() };
        let (theirs, ours) = (series(&[2.0, 8.0, 3.0]), series(&[4.0, 8.0, 4.0]));
        let figure = theirs.over(&ours, "rate".to_owned(), None, None).unwrap();
        assert_eq!((figure.value, figure.noise), (0.75, 0.375));
    }
}
