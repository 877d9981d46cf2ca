//! What counting costs in the kernel, next to programs that do nothing: `flowgauge bench xdp`.
//!
//! Every figure is a ratio of two programs that took turns in one run; times of a shared machine are worth little, ratios hold. Of
//! repeated rounds the best counts, since everything else on the machine can only make a round slower.

use flowgauge_core::cardinality::Mode;
use flowgauge_core::{HashMode, KeyKind, Settings};
use flowgauge_dataplane::traffic::{Generator, Profile, Sources};
use flowgauge_dataplane::xdp::veth::{RECEIVER, SENDER, isolated};
use flowgauge_dataplane::xdp::{DeviceCounters, Injector, Options, Sender, Task, Xdp};
use flowgauge_dataplane::{Dataplane, Direction, Error, Place, Tables};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Rounds, of which the best counts.
    pub rounds: usize,
    /// Packets of a program in a round.
    pub packets: u32,
}

impl Effort {
    /// About a minute. Many short rounds, of which some are left alone by everything else on the machine.
    pub const FULL: Effort = Effort { rounds: 60, packets: 200_000 };
    /// A few seconds.
    pub const QUICK: Effort = Effort { rounds: 10, packets: 200_000 };
}

/// How often programs are loaded anew.
const LOADS: usize = 5;

/// One figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// What it cost, in `unit`.
    pub value: f64,
    /// Of `value` and `limit`.
    pub unit: Unit,
    /// How far two halves of the rounds are apart.
    pub noise: f64,
    /// Nanoseconds behind a ratio.
    pub nanoseconds: Option<f64>,
    /// What SPECIFICATION.md promises.
    pub limit: Option<Limit>,
}

/// Of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Times as much as the program that does nothing.
    Ratio,
    /// Microseconds.
    Microseconds,
}

impl Unit {
    /// As it is printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Unit::Ratio => "x",
            Unit::Microseconds => "us",
        }
    }
}

impl Figure {
    /// Whether the promise is broken by more than the noise of this run.
    #[must_use]
    pub fn breaks_limit(&self) -> bool {
        match self.limit {
            None => false,
            Some(Limit::AtMost(most)) => self.value > most + self.noise,
            Some(Limit::AtLeast(least)) => self.value < least - self.noise,
        }
    }
}

/// A promise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Not more than this.
    AtMost(f64),
    /// Not less than this.
    AtLeast(f64),
}

/// The best times of two programs that took turns, in nanoseconds, for each half of the rounds.
#[derive(Clone, Copy)]
struct Turns([(f64, f64); 2]);

impl Turns {
    const NONE: Turns = Turns([(f64::MAX, f64::MAX); 2]);

    fn add(&mut self, round: usize, idle: f64, busy: f64) {
        let (least, best) = &mut self.0[round % 2];
        (*least, *best) = (least.min(idle), best.min(busy));
    }

    fn figure(self, name: String, limit: Option<Limit>, ratio: fn(f64, f64) -> f64) -> Figure {
        let [even, odd] = self.0;
        let (idle, busy) = (even.0.min(odd.0), even.1.min(odd.1));
        let noise = (ratio(even.0, even.1) - ratio(odd.0, odd.1)).abs();
        Figure { name, value: ratio(idle, busy), unit: Unit::Ratio, noise, nanoseconds: Some(busy), limit }
    }
}

/// Programs that are run with injected frames: a name, what to count, and what is promised.
fn programs() -> Vec<(String, Settings, Option<Limit>)> {
    let settings = |mode, key, hash| {
        let mut settings = Settings::default();
        settings.cardinality = flowgauge_core::cardinality::Settings { mode, key, hash, ..settings.cardinality };
        settings
    };
    let mut programs = vec![("counters alone".to_owned(), settings(Mode::Off, KeyKind::Src, HashMode::Crc32), None)];
    for key in KeyKind::ALL {
        for hash in [HashMode::Crc32, HashMode::Tabulated] {
            let limit = match (key, hash) {
                (KeyKind::Src, HashMode::Crc32) => Some(Limit::AtMost(1.35)),
                (KeyKind::Src, HashMode::Tabulated) => Some(Limit::AtMost(1.5)),
                _ => None,
            };
            let name = format!("cardinality of {}, {}", key.name(), hash.name());
            programs.push((name, settings(Mode::Windowed, key, hash), limit));
        }
    }
    programs.push((
        "staggered registers of src, tabulated".to_owned(),
        settings(Mode::Staggered, KeyKind::Src, HashMode::Tabulated),
        None,
    ));
    programs
}

fn tables(settings: &Settings) -> Tables {
    Tables::new(settings, 1)
}

/// The program's cost on an IPv4 frame of 60 bytes, next to the empty program (BPF_PROG_TEST_RUN, CPU time of this thread).
///
/// # Errors
/// [`Error::Kernel`] if the kernel refuses the programs.
pub fn injected(effort: Effort) -> Result<Vec<Figure>, Error> {
    let prepared = |settings: Settings, task| -> Result<(Xdp, Injector), Error> {
        let mut xdp = Xdp::detached(Direction::Ingress, Options { task, ..Options::new(settings) });
        xdp.install(&tables(&settings))?;
        let injector = xdp.injector();
        Ok((xdp, injector))
    };
    let frame = Generator::new(Profile::new(Sources::Unique)).template().to_vec();
    let time = |injector: &Injector| -> Result<f64, Error> {
        let start = thread_time();
        injector.repeat(&frame, effort.packets)?;
        Ok((thread_time() - start).as_nanos() as f64 / f64::from(effort.packets))
    };
    let programs = programs();
    let mut turns = vec![Turns::NONE; programs.len()];
    on_one_cpu(|| {
        // Where the kernel puts programs and maps matters to the caches: they are loaded anew several times.
        for load in 0..LOADS {
            let (_kept, empty) = prepared(Settings::default(), Task::Drop)?;
            let mut counting = Vec::new();
            for (_, settings, _) in &programs {
                counting.push(prepared(*settings, Task::CountAndDrop)?);
            }
            for _ in 0..effort.rounds.div_ceil(LOADS) {
                for ((_, injector), turns) in counting.iter().zip(&mut turns) {
                    turns.add(load, time(&empty)?, time(injector)?);
                }
            }
        }
        Ok(())
    })?;
    // The program that does nothing is the same in all; its best time is the best of all.
    let least = [0, 1].map(|half| turns.iter().map(|Turns(halves)| halves[half].0).fold(f64::MAX, f64::min));
    turns.iter_mut().for_each(|turns| turns.0.iter_mut().zip(least).for_each(|(half, least)| half.0 = least));
    let idle = Turns(least.map(|least| (least, least))).figure("nothing".to_owned(), None, cost_ratio);
    let figures = programs.into_iter().zip(turns).map(|((name, _, limit), turns)| turns.figure(name, limit, cost_ratio));
    Ok([idle].into_iter().chain(figures).collect())
}

fn cost_ratio(idle: f64, busy: f64) -> f64 {
    busy / idle
}

fn rate_ratio(idle: f64, busy: f64) -> f64 {
    idle / busy
}

/// The rate at which a veth device takes packets that are counted and dropped, next to the rate at which they are only dropped, both
/// by CPU time.
///
/// # Errors
/// [`Error::Kernel`] if the kernel refuses the programs; the outer error says what the machine lacks.
pub fn live(effort: Effort) -> Result<Result<Vec<Figure>, Error>, String> {
    isolated(move || {
        let programs = programs().into_iter().filter(|(_, _, limit)| limit.is_some());
        let programs: Vec<(String, Settings)> = programs.map(|(name, settings, _)| (name, settings)).collect();
        let mut turns = vec![Turns::NONE; programs.len()];
        let frame = Generator::new(Profile::new(Sources::Unique)).template().to_vec();
        let mut sender = Sender::new(SENDER.0, &frame, 1 << 20)?;
        on_one_cpu(|| {
            // Packets on their way through two devices cost several times as much, and attaching a program takes a while.
            for round in 0..effort.rounds / 2 {
                for ((_, settings), turns) in programs.iter().zip(&mut turns) {
                    let mut cost = |task| cost(&mut sender, *settings, task, effort.packets);
                    turns.add(round, cost(Task::Drop)?, cost(Task::CountAndDrop)?);
                }
            }
            Ok(())
        })?;
        let limit = Some(Limit::AtLeast(0.93));
        let figure = |((name, _), turns): ((String, Settings), Turns)| {
            turns.figure(format!("rate of {name}, live on veth"), limit, rate_ratio)
        };
        Ok(programs.into_iter().zip(turns).map(figure).collect())
    })
}

/// CPU time of a packet from the sender to the verdict, in nanoseconds. The kernel hands packets to the program before it goes on
/// sending, on the same CPU; should it have handed some to another thread, they are too few to be counted as received in time.
fn cost(sender: &mut Sender, settings: Settings, task: Task, packets: u32) -> Result<f64, Error> {
    let mut xdp = Xdp::at(vec![Place::ingress(RECEIVER.0)], Options { task, ..Options::new(settings) });
    xdp.install(&tables(&settings))?;
    sender.send(packets / 10)?;
    let received = || DeviceCounters::read(RECEIVER.0).map_or(0, |counters| counters.received);
    let (before, start) = (received(), thread_time());
    sender.send(packets)?;
    let took = thread_time() - start;
    let received = received() - before;
    Ok(if received > u64::from(packets) * 99 / 100 { took.as_nanos() as f64 / received as f64 } else { f64::MAX })
}

/// How long reading a window takes, and rotating.
///
/// # Errors
/// [`Error::Kernel`] if the kernel refuses the programs.
pub fn reading(effort: Effort) -> Result<Vec<Figure>, Error> {
    let settings = Settings::default();
    let mut xdp = Xdp::detached(Direction::Ingress, Options::new(settings));
    xdp.install(&tables(&settings))?;
    xdp.injector().inject(&[0; 60])?;
    let cpus = xdp.capabilities().workers;
    let mut least = [Duration::MAX; 2];
    let mut took = |index: usize, start: Instant| least[index] = least[index].min(start.elapsed());
    for _ in 0..effort.rounds * 10 {
        let start = Instant::now();
        black_box(xdp.sample()?);
        took(0, start);
    }
    for window in 0..effort.rounds as u64 / 2 {
        let start = Instant::now();
        black_box(xdp.rotate()?);
        took(1, start);
        xdp.published(window)?;
    }
    let figure = |name: String, took: Duration, limit| {
        let value = took.as_nanos() as f64 / 1e3;
        Figure { name, value, unit: Unit::Microseconds, noise: 0.0, nanoseconds: None, limit }
    };
    // The promise is for two CPUs.
    let limit = Limit::AtMost(2.5 * cpus.max(2) as f64);
    Ok(vec![
        figure(format!("a read of 2048 registers over {cpus} CPUs"), least[0], Some(limit)),
        figure("a rotation, which blocks no packet".to_owned(), least[1], None),
    ])
}

/// CPU time of this thread.
fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Keeps this thread on its CPU, whose caches then stay warm.
fn on_one_cpu<T>(body: impl FnOnce() -> T) -> T {
    let this = Pid::from_raw(0);
    let before = sched_getaffinity(this);
    let mut one = CpuSet::new();
    let last = (0..CpuSet::count()).rev().find(|cpu| before.is_ok_and(|before| before.is_set(*cpu).unwrap_or(false)));
    // Only steadier figures are lost where this is refused.
    let _ = last.map(|cpu| one.set(cpu).and_then(|()| sched_setaffinity(this, &one)));
    let result = body();
    let _ = before.and_then(|before| sched_setaffinity(this, &before));
    result
}
