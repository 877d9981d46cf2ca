//! `flowgauge bench line-rate`: the highest rate at which a port loses nothing, after RFC 2544
//! section 26.1.

use crate::findings::{Figure, Findings, Grid, Row};
use crate::machine::Machine;
use flowgauge_core::Settings;
use flowgauge_dataplane::poll::port::{Outlet, Port, PortFrame, Ports, Received, Waker, Worker};
use flowgauge_dataplane::poll::{self, PollMode};
use flowgauge_dataplane::{Dataplane, Error, Poll, Tables};
use flowgauge_papers::ReproduceError;
use flowgauge_traffic::{Generator, Profile, Sources};
use hdrhistogram::Histogram;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Frame sizes of RFC 2544 section 9.1 for Ethernet, with the frame check sequence.
pub const SIZES: [usize; 7] = [64, 128, 256, 512, 1024, 1280, 1518];
/// Bytes of the frame check sequence, which the network card adds.
const CHECK_SEQUENCE: usize = 4;
/// Bits that a frame takes on the wire in addition to its bytes: preamble, start delimiter and
/// inter-frame gap.
const GAP_BITS: f64 = 160.0;
/// Frames sent between two readings of the clock.
const BATCH: u64 = 32;
/// Time that frames may be in flight.
const MAX_FLIGHT_TIME: Duration = Duration::from_millis(500);

/// Parameters of the search.
#[derive(Clone, Debug)]
pub struct Options {
    /// Frame sizes, including the frame check sequence.
    pub sizes: Vec<usize>,
    /// Duration of the trial at each rate. RFC 2544 asks for 60 s.
    pub trial: Duration,
    /// Relative difference of rates at which the search ends.
    pub resolution: f64,
    /// CPUs to which workers are pinned.
    pub cpus: Vec<usize>,
    /// Settings of the dataplane.
    pub settings: Settings,
}

/// Histogram of times in nanoseconds, with three digits.
struct Times(Option<Histogram<u64>>);

impl Times {
    fn new() -> Self {
        Times(Histogram::new(3).ok())
    }

    fn record(&mut self, time: Duration) {
        if let Some(histogram) = &mut self.0 {
            // The histogram resizes itself; a time that it cannot store would be longer than any
            // run.
            let _ = histogram.record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    /// Moves the values of `other` to this histogram.
    fn take(&mut self, other: &mut Times) {
        if let (Some(mine), Some(theirs)) = (&mut self.0, &mut other.0) {
            // Both resize themselves, so that no value is out of range.
            let _ = mine.add(&*theirs);
            theirs.reset();
        }
    }

    /// Returns a quantile in microseconds.
    fn quantile(&self, share: f64) -> Option<f64> {
        let histogram = self.0.as_ref().filter(|histogram| !histogram.is_empty())?;
        Some(histogram.value_at_quantile(share) as f64 / 1e3)
    }
}

/// Times that workers recorded while recording was on.
struct Recording {
    on: AtomicBool,
    gaps: Mutex<Times>,
}

/// Port that records the time between two polls.
struct TimedPort<P> {
    port: P,
    last: Option<Instant>,
    own: Times,
    noted: u32,
    watch: Arc<Recording>,
}

/// Polls after which a worker publishes its recorded times.
const POLLS_PER_REPORT: u32 = 1 << 12;

impl<P: Port> Port for TimedPort<P> {
    const SIGNALS: bool = P::SIGNALS;

    fn receive(&mut self, sink: &mut impl FnMut(PortFrame<'_>)) -> Received {
        if self.watch.on.load(Ordering::Relaxed) {
            let now = Instant::now();
            if let Some(last) = self.last.replace(now) {
                self.own.record(now - last);
            }
            self.noted += 1;
        }
        if self.noted >= POLLS_PER_REPORT
            || self.noted > 0 && !self.watch.on.load(Ordering::Relaxed)
        {
            self.noted = 0;
            self.watch.gaps.lock().unwrap_or_else(PoisonError::into_inner).take(&mut self.own);
        }
        self.port.receive(sink)
    }

    fn wait(&mut self, most: Duration) {
        self.port.wait(most);
    }

    fn waker(&self) -> Option<Waker> {
        self.port.waker()
    }

    fn work(self, worker: Worker) {
        worker.run(self);
    }
}

/// Result of a trial at one rate.
#[derive(Clone, Copy, Debug)]
struct Trial {
    sent: u64,
    /// Sent frames per second.
    rate: f64,
    counted: u64,
}

impl Trial {
    fn lost_nothing(&self) -> bool {
        self.counted == self.sent && self.sent > 0
    }
}

/// Sends frames of one size for some time, `rate` per second or as many as possible. Returns their
/// number and rate.
fn send(
    outlet: &mut dyn Outlet,
    size: usize,
    rate: Option<f64>,
    trial: Duration,
) -> Result<(u64, f64), Error> {
    let generator =
        Generator::new(Profile { size: size - CHECK_SEQUENCE, ..Profile::new(Sources::Unique) });
    let mut frame = generator.template().to_vec();
    let (start, mut sent) = (Instant::now(), 0_u64);
    loop {
        let elapsed = start.elapsed();
        if elapsed >= trial {
            break;
        }
        let due = rate.map_or(u64::MAX, |rate| (elapsed.as_secs_f64() * rate) as u64);
        let batch = due.saturating_sub(sent).min(BATCH);
        for _ in 0..batch {
            generator.fill(sent, &mut frame);
            outlet.send(&frame)?;
            sent += 1;
        }
        if batch > 0 {
            outlet.flush()?;
        } else {
            std::hint::spin_loop();
        }
    }
    outlet.finish()?;
    Ok((sent, sent as f64 / start.elapsed().as_secs_f64()))
}

/// Two ports and the workers that count between them.
struct Link<'a, S> {
    poll: Poll,
    sender: &'a S,
}

impl<S: Fn() -> Result<Box<dyn Outlet>, Error> + Sync> Link<'_, S> {
    /// Runs a trial. `meanwhile` is called repeatedly until everything was sent.
    fn attempt(
        &mut self,
        size: usize,
        rate: Option<f64>,
        trial: Duration,
        mut meanwhile: impl FnMut(&mut Poll) -> Result<u64, Error>,
    ) -> Result<Trial, Error> {
        self.poll.rotate()?;
        let (sender, poll) = (self.sender, &mut self.poll);
        let (sent, mut counted) = thread::scope(|scope| {
            // Some devices belong to the thread that opened them.
            let sending = scope.spawn(move || send(&mut *sender()?, size, rate, trial));
            let mut counted = 0;
            while !sending.is_finished() {
                counted += meanwhile(poll)?;
            }
            Ok::<_, Error>((sending.join().unwrap_or_else(|panic| resume_unwind(panic))?, counted))
        })?;
        let (sent, rate) = sent;
        let deadline = Instant::now() + MAX_FLIGHT_TIME;
        loop {
            counted += self.poll.rotate()?.packets_after;
            if counted >= sent || Instant::now() > deadline {
                break Ok(Trial { sent, rate, counted });
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Does nothing but wait.
fn idle(_: &mut Poll) -> Result<u64, Error> {
    thread::sleep(Duration::from_millis(1));
    Ok(0)
}

/// Highest rate without loss at one size.
struct Highest {
    trial: Trial,
    /// Whether the sender was the limit.
    by_sender: bool,
}

/// Bisects the range of rates. Results are the rates actually sent, not those requested.
fn search(
    resolution: f64,
    mut attempt: impl FnMut(Option<f64>) -> Result<Trial, Error>,
) -> Result<Option<Highest>, Error> {
    let most = attempt(None)?;
    if most.lost_nothing() {
        return Ok(Some(Highest { trial: most, by_sender: true }));
    }
    let (mut low, mut high, mut best) = (0.0, most.rate, None);
    while high - low > most.rate * resolution {
        let rate = f64::midpoint(low, high);
        let trial = attempt(Some(rate))?;
        if trial.lost_nothing() {
            (low, best) = (rate, Some(Highest { trial, by_sender: false }));
        } else {
            high = rate;
        }
    }
    Ok(best)
}

/// Searches for the highest rate from `sender` to the ports of `receiver` without loss, for every
/// size, and measures the times of polls, samples and rotations at that rate.
///
/// # Errors
/// [`ReproduceError`] if a port fails.
pub fn measure<P: Port>(
    receiver: impl Fn() -> Result<Ports<P>, Error>,
    sender: impl Fn() -> Result<Box<dyn Outlet>, Error> + Sync,
    options: &Options,
) -> Result<Findings, ReproduceError> {
    let machine = Machine::look();
    let Options { sizes, trial, resolution, cpus, settings } = options;
    let mut by_size: Vec<[Option<f64>; 4]> = Vec::new();
    let (mut reads, mut rotations) = (Times::new(), Times::new());
    let watch = Arc::new(Recording { on: AtomicBool::new(false), gaps: Mutex::new(Times::new()) });
    for size in sizes {
        let Ports { ports, source, gate, interface } = receiver()?;
        let timed = |port| TimedPort {
            port,
            last: None,
            own: Times::new(),
            noted: 0,
            watch: Arc::clone(&watch),
        };
        let ports =
            Ports { ports: ports.into_iter().map(timed).collect(), source, gate, interface };
        let counting = poll::Options {
            settings: *settings,
            poll_mode: PollMode::Busy,
            cpus: cpus.clone(),
            ..poll::Options::default()
        };
        let mut poll = Poll::new(ports, counting);
        poll.install(&Tables::new(settings, 1))?;
        let mut link = Link { poll, sender: &sender };
        let highest = search(*resolution, |rate| link.attempt(*size, rate, *trial, idle))?;
        let rate = highest.as_ref().map(|highest| highest.trial.rate);
        let bits = rate.map(|rate| rate * (*size as f64 * 8.0 + GAP_BITS) / 1e9);
        let by_sender = highest.as_ref().map(|highest| f64::from(u8::from(highest.by_sender)));
        let mut lost = None;
        if let Some(highest) = highest {
            // Repeat it with recording on, which takes time itself.
            watch.on.store(true, Ordering::Relaxed);
            let rate = (!highest.by_sender).then_some(highest.trial.rate * 0.99);
            let confirmed = link.attempt(*size, rate, *trial, |poll| {
                let start = Instant::now();
                poll.sample()?;
                reads.record(start.elapsed());
                let start = Instant::now();
                let counted = poll.rotate()?.packets_after;
                rotations.record(start.elapsed());
                thread::sleep(Duration::from_millis(5));
                Ok(counted)
            })?;
            watch.on.store(false, Ordering::Relaxed);
            lost = Some(confirmed.sent.saturating_sub(confirmed.counted) as f64);
        }
        by_size.push([rate, bits, by_sender, lost]);
    }
    let names = [
        "packets/s",
        "Gbit/s on the wire",
        "1 if the sender was the limit",
        "lost at that rate while read and rotated",
    ];
    let row = |(index, name): (usize, &str)| Row {
        name: name.to_owned(),
        values: by_size.iter().map(|values| values[index]).collect(),
    };
    let grid = Grid {
        title: "Highest rate without loss".to_owned(),
        unit: "see each line",
        across: "bytes of a frame",
        columns: sizes.iter().map(ToString::to_string).collect(),
        places: None,
        rows: names.into_iter().enumerate().map(row).collect(),
    };
    let gaps = watch.gaps.lock().unwrap_or_else(PoisonError::into_inner);
    let mut figures = Vec::new();
    for (name, times) in
        [("between two polls", &*gaps), ("a read", &reads), ("a rotation", &rotations)]
    {
        for (share, label) in [(0.5, "median"), (0.99, "99 %"), (0.999, "99.9 %"), (1.0, "longest")]
        {
            if let Some(value) = times.quantile(share) {
                figures.push(Figure::microseconds(format!("{name}, {label}"), value, None));
            }
        }
    }
    Ok(Findings {
        benchmark: "line-rate",
        title: "The highest rate without loss",
        method: "After RFC 2544 section 26.1: frames of each size (bytes with the frame check sequence) with random sources leave one port and                  are counted at the other; the range of rates is halved until nothing is lost at one end of it and something at the                  other. A rate without loss is then tried once more while the registers are read and windows rotated every 5 ms, and                  the times between two polls of a worker, of a read and of a rotation are noted.",
        machine,
        grids: vec![grid],
        figures,
        skipped: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a simulated link that loses what exceeds `capacity`, from a sender limited to
    /// `most`.
    fn link(capacity: f64, most: f64) -> impl FnMut(Option<f64>) -> Result<Trial, Error> {
        move |rate| {
            let rate = rate.unwrap_or(most).min(most);
            let sent = rate as u64;
            Ok(Trial { sent, rate, counted: sent.min(capacity as u64) })
        }
    }

    #[test]
    fn the_search_ends_at_the_capacity_or_at_the_sender() {
        let found = search(0.01, link(3e6, 1e7)).unwrap().unwrap();
        // Within one percent of the sender's rate.
        assert!((2.9e6..=3e6).contains(&found.trial.rate) && !found.by_sender, "{:?}", found.trial);
        let found = search(0.01, link(3e6, 1e6)).unwrap().unwrap();
        assert!(found.trial.rate == 1e6 && found.by_sender);
        assert!(search(0.01, link(0.0, 1e6)).unwrap().is_none());
    }

    #[test]
    fn quantiles_are_microseconds() {
        let (mut times, mut more) = (Times::new(), Times::new());
        (1..=1000).for_each(|time| more.record(Duration::from_millis(time)));
        times.take(&mut more);
        // The histogram has three digits, and returns the upper end of a bucket.
        assert!((500e3..=500.5e3).contains(&times.quantile(0.5).unwrap()));
        assert!((1000e3..=1001e3).contains(&times.quantile(1.0).unwrap()));
        assert_eq!(more.quantile(0.5), None);
    }
}
