//! `flowgauge bench xdp`: the cost of counting in the kernel, compared with programs that do
//! nothing.
//!
//! All figures are ratios of two programs that took turns in one run ([`turns`](crate::turns)).

use crate::findings::{Figure, Findings, Limit};
use crate::machine::Machine;
use crate::packet::{DATA, FLAGS, PROTOCOL, TRANSPORT, UDP};
use crate::turns::{Best, on_one_cpu, thread_time};
use crate::workload::{self, ENTROPY, SPREAD, settings};
use flowgauge_core::cardinality::Mode;
use flowgauge_core::heavy::Algorithm;
use flowgauge_core::{HashMode, KeyKind, Settings, reorder};
use flowgauge_dataplane::xdp::{DeviceCounters, Mode as Hook, Options, ProgramInjector, Task, Xdp};
use flowgauge_dataplane::{CountingPoint, Dataplane, Direction, Error, Tables};
use flowgauge_traffic::kernel::{Conversation, Sender};
use flowgauge_traffic::veth::{RECEIVER, SENDER, isolated};
use flowgauge_traffic::{Generator, Profile, Sources};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Packets of a program per round.
const PACKETS: u32 = 200_000;

/// Measures everything.
///
/// # Errors
/// [`Error::Kernel`] if the kernel rejects the programs.
pub fn measure(quick: bool) -> Result<Findings, Error> {
    // About a minute, or a few seconds: many short rounds, some of them undisturbed by other
    // activity on the machine. The best counts.
    let rounds = if quick { 10 } else { 60 };
    let mut figures = injected(rounds)?;
    let mut skipped = Vec::new();
    match live(rounds) {
        Ok(live) => figures.extend(live?),
        Err(need) => skipped.push(format!("no live packets: needs {need}")),
    }
    figures.extend(reading(rounds)?);
    Ok(Findings {
        benchmark: "xdp",
        title: "Cost of counting in the kernel, next to a program that does nothing",
        method: "One CPU. Injected: IPv4 frames of 60 bytes given to the program by BPF_PROG_TEST_RUN, in turns with a program that drops them at \
                 once; for conversations the kernel makes each packet of the one before, and the time that this takes is taken off. Live: packets \
                 sent over a veth device, counted in native mode and dropped, in turns with a program that only drops. The best of all rounds \
                 counts, by CPU time.",
        machine: Machine::look(),
        grids: Vec::new(),
        figures,
        skipped,
    })
}

/// Number of times that programs are loaded again.
const LOADS: usize = 5;

/// Program that is run on injected frames.
struct Program {
    name: String,
    settings: Settings,
    /// Number of rules of the filter that packets pass; zero for none.
    rules: usize,
    /// Limit of its cost.
    limit: Option<Limit>,
    takes: Takes,
}

/// Packets of a program. All frames of a program are the same, except for conversations.
#[derive(Clone, Copy, PartialEq)]
enum Takes {
    /// Segments that start a connection. From the second one on, they are requests that already
    /// wait and read no clock.
    Syn,
    /// Data segments of a connection, with the same remark.
    Data,
    /// DNS queries, each a request of its own that reads the clock.
    Query,
    /// TCP connections whose data is acknowledged: half of the packets are new requests, and the
    /// others answer them.
    Conversations,
}

impl Program {
    fn new(
        name: impl Into<String>,
        settings: Settings,
        limit: Option<Limit>,
        takes: Takes,
    ) -> Self {
        Program { name: name.into(), settings, rules: 0, limit, takes }
    }

    fn frame(&self) -> Vec<u8> {
        let mut frame = Generator::new(Profile::new(Sources::Unique)).template().to_vec();
        let mut put = |offset: usize, bytes: &[u8]| {
            frame
                .get_mut(offset..offset + bytes.len())
                .into_iter()
                .for_each(|place| place.copy_from_slice(bytes));
        };
        match self.takes {
            Takes::Syn | Takes::Conversations => {}
            Takes::Data => put(FLAGS, &[DATA]),
            Takes::Query => {
                put(PROTOCOL, &[UDP]);
                // To port 53, 26 bytes; id 1, one question.
                put(TRANSPORT, &[0x30, 0x39, 0, 53, 0, 26, 0, 0, 0, 1, 1, 0]);
            }
        }
        frame
    }
}

/// Input of a program.
enum Packets<'a> {
    Same(ProgramInjector, &'a [u8]),
    Conversations(Conversation),
}

impl Packets<'_> {
    fn run(&mut self, times: u32) -> Result<(), Error> {
        match self {
            Packets::Same(injector, frame) => injector.repeat(frame, times),
            Packets::Conversations(conversation) => conversation.go_on(times),
        }
    }
}

/// Returns the CPU time per packet, in nanoseconds.
fn time(run: impl FnOnce(u32) -> Result<(), Error>) -> Result<f64, Error> {
    let start = thread_time();
    run(PACKETS)?;
    Ok((thread_time() - start).as_nanos() as f64 / f64::from(PACKETS))
}

/// Returns the programs to measure.
fn programs() -> Vec<Program> {
    use Takes::{Conversations, Data, Query, Syn};
    let mut programs = vec![Program::new("counters alone", workload::nothing(), None, Syn)];
    for key in KeyKind::ALL {
        for hash in HashMode::ALL {
            let limit = match (key, hash) {
                (KeyKind::Src, HashMode::Crc32) => Some(Limit::AtMost(1.35)),
                (KeyKind::Src, HashMode::Tabulated) => Some(Limit::AtMost(1.5)),
                _ => None,
            };
            let name = format!("cardinality of {}, {}", key.name(), hash.name());
            programs.push(Program::new(name, settings(Mode::Windowed, key, hash), limit, Syn));
        }
    }
    for (rules, _) in workload::FILTER_RULES {
        let settings = settings(Mode::Windowed, KeyKind::Src, HashMode::Tabulated);
        let name = format!("cardinality of src, tabulated, {}", workload::filter_name(rules));
        programs.push(Program { rules, ..Program::new(name, settings, None, Syn) });
    }
    programs.push(Program::new(
        "staggered registers of src, tabulated",
        settings(Mode::Staggered, KeyKind::Src, HashMode::Tabulated),
        None,
        Syn,
    ));
    let owned = |(name, settings): (&'static str, Settings)| (name.to_owned(), settings);
    let sketches = workload::sketches().map(owned);
    let heavy = [Algorithm::DWayRap, Algorithm::HashPipe, Algorithm::Precision];
    let [victims, _, both] = workload::spreads().map(owned);
    let measured = sketches.into_iter().chain(heavy.map(workload::heavy)).chain([victims, both]);
    programs.extend(measured.map(|(name, settings)| {
        let is_limited = name == ENTROPY || name == SPREAD;
        Program::new(name, settings, is_limited.then_some(Limit::AtMost(4.0)), Syn)
    }));
    let limit = Some(Limit::AtMost(3.0));
    let (all, of_16) = (workload::delay(0), workload::delay(4));
    let [sampling, hybrid] =
        [reorder::Algorithm::Sampling, reorder::Algorithm::Hybrid].map(workload::reorder);
    let others = [
        ("delay of a SYN", all, limit, Syn),
        (
            "cardinality, entropy, frequency, membership, d-way-rap",
            workload::everything(),
            None,
            Syn,
        ),
        ("delay of data", all, limit, Data),
        ("delay of data, one request in 16", of_16, limit, Data),
        ("reordering, sampling", sampling, None, Data),
        ("reordering, hybrid", hybrid, None, Data),
        ("delay of a DNS query, with a look at the clock", all, None, Query),
        ("delay of conversations, all requests admitted", all, None, Conversations),
        ("delay of conversations, one request in 16", of_16, limit, Conversations),
    ];
    programs.extend(
        others.map(|(name, settings, limit, takes)| Program::new(name, settings, limit, takes)),
    );
    programs
}

/// Measures the cost of a program on an IPv4 frame of 60 bytes, compared with the empty program
/// (BPF_PROG_TEST_RUN, CPU time of this thread).
///
/// # Errors
/// [`Error::Kernel`] if the kernel rejects the programs.
fn injected(rounds: usize) -> Result<Vec<Figure>, Error> {
    let prepared = |settings: Settings, rules, task| -> Result<(Xdp, ProgramInjector), Error> {
        let mut xdp = Xdp::detached(Direction::Ingress, Options { task, ..Options::new(settings) });
        let filter = (rules > 0).then(|| workload::filter_of_rules(rules));
        xdp.install(&Tables::new(&settings, 1).with_filter(filter))?;
        let injector = xdp.injector();
        Ok((xdp, injector))
    };
    let programs = programs();
    let frames: Vec<Vec<u8>> = programs.iter().map(Program::frame).collect();
    // Generating the packets of conversations takes time with any program; measure it too.
    let (mut least, mut best, mut making) =
        (Best::NONE, vec![Best::NONE; programs.len()], Best::NONE);
    on_one_cpu(|| {
        // Caches depend on where the kernel puts programs and maps: load them several times.
        for load in 0..LOADS {
            let (_kept, empty) = prepared(Settings::default(), 0, Task::Drop)?;
            let mut silent = Conversation::new(&empty)?;
            let mut counting = Vec::new();
            for (program, frame) in programs.iter().zip(&frames) {
                let (kept, injector) =
                    prepared(program.settings, program.rules, Task::CountAndDrop)?;
                let packets = match program.takes {
                    Takes::Syn | Takes::Data | Takes::Query => Packets::Same(injector, frame),
                    Takes::Conversations => Packets::Conversations(Conversation::new(&injector)?),
                };
                counting.push((kept, packets));
            }
            for _ in 0..rounds.div_ceil(LOADS) {
                for (((_, packets), frame), best) in counting.iter_mut().zip(&frames).zip(&mut best)
                {
                    least.add(load, time(|times| empty.repeat(frame, times))?);
                    if let Packets::Conversations(_) = packets {
                        making.add(load, time(|times| silent.go_on(times))?);
                    }
                    best.add(load, time(|times| packets.run(times))?);
                }
            }
        }
        Ok(())
    })?;
    for (program, best) in programs.iter().zip(&mut best) {
        if program.takes == Takes::Conversations {
            *best = best.with_instead(least, making);
        }
    }
    let idle = least.figure("nothing", least, None);
    let named = |name: &str| {
        programs.iter().zip(&best).find(|(program, _)| program.name == name).map(|(_, best)| *best)
    };
    let of = |key: KeyKind, hash: HashMode| {
        named(&format!("cardinality of {}, {}", key.name(), hash.name()))
    };
    let matched: Vec<Figure> = workload::FILTER_RULES
        .into_iter()
        .filter_map(|(rules, most)| {
            let rules = workload::filter_name(rules);
            let found = named(&format!("cardinality of src, tabulated, {rules}"))?;
            let name = format!("src, tabulated, {rules} / without a filter");
            let without = of(KeyKind::Src, HashMode::Tabulated)?;
            Some(found.figure(name, without, Some(Limit::AtMost(most))))
        })
        .collect();
    let keyed: Vec<Figure> = KeyKind::ALL
        .into_iter()
        .filter_map(|key| {
            let name = format!("{}, keyed / tabulated", key.name());
            Some(of(key, HashMode::Keyed)?.figure(
                name,
                of(key, HashMode::Tabulated)?,
                Some(Limit::AtMost(1.15)),
            ))
        })
        .collect();
    let of_spread = named(SPREAD).zip(named(ENTROPY)).map(|(spread, entropy)| {
        spread.figure("spread by dst / entropy of src-dst", entropy, Some(Limit::AtMost(1.0)))
    });
    let figures = programs
        .into_iter()
        .zip(best)
        .map(|(program, best)| best.figure(program.name, least, program.limit));
    Ok([idle].into_iter().chain(figures).chain(of_spread).chain(keyed).chain(matched).collect())
}

/// Measures the rate at which a veth device receives packets that are counted in native mode and
/// dropped, compared with packets that are only dropped, both by CPU time.
///
/// # Errors
/// [`Error::Kernel`] if the kernel rejects the programs; the outer error describes what the machine
/// lacks.
fn live(rounds: usize) -> Result<Result<Vec<Figure>, Error>, String> {
    isolated(move || {
        let programs = programs()
            .into_iter()
            .filter(|program| program.limit.is_some() && !program.settings.beyond_cardinality());
        let programs: Vec<(String, Settings)> =
            programs.map(|program| (program.name, program.settings)).collect();
        let mut best = vec![(Best::NONE, Best::NONE); programs.len()];
        let frame = Generator::new(Profile::new(Sources::Unique)).template().to_vec();
        let mut sender = Sender::new(SENDER.0, &frame, 1 << 20)?;
        on_one_cpu(|| {
            // Packets through two devices cost several times as much, and attaching a program takes
            // some time.
            for round in 0..rounds / 2 {
                for ((_, settings), (dropped, counted)) in programs.iter().zip(&mut best) {
                    let mut cost = |task| cost(&mut sender, *settings, task);
                    dropped.add(round, cost(Task::Drop)?);
                    counted.add(round, cost(Task::CountAndDrop)?);
                }
            }
            Ok(())
        })?;
        let limit = Some(Limit::AtLeast(0.93));
        // A ratio of rates is an inverse ratio of times.
        let figure = |((name, _), (dropped, counted)): ((String, Settings), (Best, Best))| Figure {
            nanoseconds: Some(counted.nanoseconds()),
            ..dropped.figure(format!("rate of {name}, live on veth"), counted, limit)
        };
        Ok(programs.into_iter().zip(best).map(figure).collect())
    })
}

/// Measures the CPU time per packet from the sender to the verdict, in nanoseconds. The kernel
/// passes packets to the program before it sends further ones, on the same CPU; if it passes some
/// to another thread, they are too few to count as received in time.
fn cost(sender: &mut Sender, settings: Settings, task: Task) -> Result<f64, Error> {
    let mut xdp = Xdp::at(
        vec![CountingPoint::ingress(RECEIVER.0)],
        Options { mode: Some(Hook::Native), task, ..Options::new(settings) },
    );
    xdp.install(&Tables::new(&settings, 1))?;
    sender.send(PACKETS / 10)?;
    let received = || DeviceCounters::read(RECEIVER.0).map_or(0, |counters| counters.received);
    let (before, start) = (received(), thread_time());
    sender.send(PACKETS)?;
    let took = thread_time() - start;
    let received = received() - before;
    Ok(if received > u64::from(PACKETS) * 99 / 100 {
        took.as_nanos() as f64 / received as f64
    } else {
        f64::MAX
    })
}

/// Measures how long it takes to read and to rotate a window.
///
/// # Errors
/// [`Error::Kernel`] if the kernel rejects the programs.
fn reading(rounds: usize) -> Result<Vec<Figure>, Error> {
    let settings = Settings::default();
    let mut xdp = Xdp::detached(Direction::Ingress, Options::new(settings));
    xdp.install(&Tables::new(&settings, 1))?;
    xdp.injector().inject(&[0; 60])?;
    let cpus = xdp.capabilities().workers;
    let mut least = [Duration::MAX; 2];
    let mut took = |index: usize, start: Instant| least[index] = least[index].min(start.elapsed());
    for _ in 0..rounds * 10 {
        let start = Instant::now();
        black_box(xdp.sample()?);
        took(0, start);
    }
    for window in 0..rounds as u64 / 2 {
        let start = Instant::now();
        black_box(xdp.rotate()?);
        took(1, start);
        xdp.published(window)?;
    }
    let figure = |name: String, took: Duration, limit| {
        Figure::microseconds(name, took.as_nanos() as f64 / 1e3, limit)
    };
    // The limit is for two CPUs.
    let limit = Limit::AtMost(1.5 * cpus.max(2) as f64);
    Ok(vec![
        figure(format!("a read of 2048 registers over {cpus} CPUs"), least[0], Some(limit)),
        figure("a rotation, which blocks no packet".to_owned(), least[1], None),
    ])
}
