//! Recent records for gRPC streams: their identity, and their JSON line.

use super::kept::RecentItems;
use super::proto;
use crate::controller::Sink;
use crate::identity::Identity;
use crate::measurement::delay::DelaySampleRecord;
use crate::output::{DelaySampleLog, Origin, line};
use crate::record::{Record, RecordKind};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum memory for the stored records of one kind, in bytes.
const MAX_BYTES: usize = 16 << 20;
/// Maximum number of stored records of one kind.
const MAX_RECORDS: usize = 1024;

/// Recent records of a run, by kind; clones share them.
#[derive(Clone)]
pub struct Feed {
    pub(super) windows: RecentItems<Arc<proto::Record>>,
    pub(super) samples: RecentItems<Arc<proto::Record>>,
    pub(super) delay_samples: RecentItems<Arc<proto::Delays>>,
    /// Whether the run streams delay samples.
    has_delay_samples: Arc<AtomicBool>,
}

impl Default for Feed {
    fn default() -> Self {
        Feed {
            windows: RecentItems::new(MAX_BYTES, MAX_RECORDS),
            samples: RecentItems::new(MAX_BYTES, MAX_RECORDS),
            delay_samples: RecentItems::new(MAX_BYTES, MAX_RECORDS),
            has_delay_samples: Arc::default(),
        }
    }
}

impl Feed {
    /// Returns a sink for the records of the source with this name. `has_delay_samples` decides
    /// whether delay samples are streamed.
    #[must_use]
    pub fn of(&self, origin: Origin, name: &str, has_delay_samples: bool) -> impl Sink + use<> {
        self.has_delay_samples.fetch_or(has_delay_samples, Ordering::Relaxed);
        Source {
            feed: self.clone(),
            origin,
            name: name.to_owned(),
            log: DelaySampleLog(Vec::new()),
        }
    }

    pub(super) fn has_delay_samples(&self) -> bool {
        self.has_delay_samples.load(Ordering::Relaxed)
    }
}

/// Sink for the records of one source.
struct Source {
    feed: Feed,
    origin: Origin,
    name: String,
    /// Encoder of single delays that are not yet published.
    log: DelaySampleLog<Vec<u8>>,
}

impl Source {
    /// Returns the host and the run that identify the process.
    fn identity(&self) -> (String, String) {
        let Identity { host, run } = self.origin.identity.clone().unwrap_or_default();
        (host.to_string(), run.to_string())
    }

    fn to_proto(&self, record: &Record) -> io::Result<proto::Record> {
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

    /// Publishes the delay samples that the encoder has written.
    fn pass_on(&mut self) -> io::Result<()> {
        let lines = std::mem::take(&mut self.log.0);
        if lines.is_empty() {
            return Ok(());
        }
        let (host, run) = self.identity();
        let json_lines = String::from_utf8(lines).map_err(io::Error::other)?;
        let bytes = json_lines.len();
        let delays = proto::Delays { number: 0, host, run, source: self.name.clone(), json_lines };
        self.feed
            .delay_samples
            .push(|number| Ok((Arc::new(proto::Delays { number: number + 1, ..delays }), bytes)))
    }
}

impl Sink for Source {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        let kept = match record.kind {
            RecordKind::Window | RecordKind::Silence | RecordKind::Total => &self.feed.windows,
            // There may be many samples, and no client asks for past ones.
            RecordKind::Sample if self.feed.samples.is_read() => &self.feed.samples,
            RecordKind::Sample | RecordKind::Union => return Ok(()),
        };
        let message = self.to_proto(record)?;
        let bytes = message.json.len();
        kept.push(|number| {
            Ok::<_, io::Error>((Arc::new(proto::Record { number: number + 1, ..message }), bytes))
        })?;
        if self.feed.has_delay_samples() && self.feed.delay_samples.is_read() {
            self.log.record(record)?;
            self.pass_on()?;
        }
        Ok(())
    }

    fn delay_samples(&mut self, samples: &[DelaySampleRecord<'_>]) -> io::Result<()> {
        if !self.feed.delay_samples.is_read() {
            return Ok(());
        }
        self.log.delay_samples(samples)?;
        self.pass_on()
    }
}
