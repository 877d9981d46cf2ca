//! Records as readers of streams get them: what tells one from others, and the line of JSON.

use super::kept::Kept;
use super::proto;
use crate::controller::Sink;
use crate::measurement::delay::Sample;
use crate::output::{DelayLog, Origin, line};
use crate::record::{Kind, Record};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Records of a kind that are kept take at most so many bytes.
const ROOM: usize = 16 << 20;
/// So many are kept at most.
const MOST: usize = 1024;

/// What came last of a run, for streams; clones are of the same run.
#[derive(Clone)]
pub struct Feed {
    pub(super) windows: Kept<Arc<proto::Record>>,
    pub(super) samples: Kept<Arc<proto::Record>>,
    pub(super) delays: Kept<Arc<proto::Delays>>,
    /// Whether the run passes on delays one by one.
    passes_delays: Arc<AtomicBool>,
}

impl Default for Feed {
    fn default() -> Self {
        let (windows, samples, delays) =
            (Kept::new(ROOM, MOST), Kept::new(ROOM, MOST), Kept::new(ROOM, MOST));
        Feed { windows, samples, delays, passes_delays: Arc::default() }
    }
}

impl Feed {
    /// Takes records of a source of this name. Whether it passes on delays one by one decides
    /// whether there is a stream of them.
    #[must_use]
    pub fn of(&self, origin: Origin, name: &str, passes_delays: bool) -> impl Sink + use<> {
        self.passes_delays.fetch_or(passes_delays, Ordering::Relaxed);
        Source { feed: self.clone(), origin, name: name.to_owned(), log: DelayLog::new(Vec::new()) }
    }

    pub(super) fn passes_delays(&self) -> bool {
        self.passes_delays.load(Ordering::Relaxed)
    }
}

/// A source of records.
struct Source {
    feed: Feed,
    origin: Origin,
    name: String,
    /// Delays on their way.
    log: DelayLog<Vec<u8>>,
}

impl Source {
    /// The process: a host and a run.
    fn identity(&self) -> (String, String) {
        let told = |identity: &crate::identity::Identity| {
            (identity.host.to_string(), identity.run.to_string())
        };
        self.origin.identity.as_ref().map(told).unwrap_or_default()
    }

    fn told(&self, record: &Record) -> io::Result<proto::Record> {
        let (host, run) = self.identity();
        Ok(proto::Record {
            number: 0,
            host,
            run,
            source: record.origin().into_owned(),
            direction: record.direction.to_owned(),
            part: record.part,
            kind: record.kind.name().to_owned(),
            window: record.window,
            start_ns: record.start_ns,
            end_ns: record.end_ns,
            complete: record.complete,
            json: line(record, &self.origin)?,
        })
    }

    /// Passes on what the log has written.
    fn pass_on(&mut self) -> io::Result<()> {
        let lines = self.log.take();
        if lines.is_empty() {
            return Ok(());
        }
        let (host, run) = self.identity();
        let json_lines = String::from_utf8(lines).map_err(io::Error::other)?;
        let bytes = json_lines.len();
        let delays = proto::Delays { number: 0, host, run, source: self.name.clone(), json_lines };
        self.feed
            .delays
            .push(|number| Ok((Arc::new(proto::Delays { number: number + 1, ..delays }), bytes)))
    }
}

impl Sink for Source {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        let kept = match record.kind {
            Kind::Window | Kind::Silence | Kind::Total => &self.feed.windows,
            // There may be many, and nobody asks for those before.
            Kind::Sample if self.feed.samples.is_read() => &self.feed.samples,
            Kind::Sample | Kind::Union => return Ok(()),
        };
        let told = self.told(record)?;
        let bytes = told.json.len();
        kept.push(|number| {
            Ok::<_, io::Error>((Arc::new(proto::Record { number: number + 1, ..told }), bytes))
        })?;
        if self.feed.passes_delays() && self.feed.delays.is_read() {
            self.log.record(record)?;
            self.pass_on()?;
        }
        Ok(())
    }

    fn delays(&mut self, delays: &[Sample<'_>]) -> io::Result<()> {
        if !self.feed.delays.is_read() {
            return Ok(());
        }
        self.log.delays(delays)?;
        self.pass_on()
    }
}
