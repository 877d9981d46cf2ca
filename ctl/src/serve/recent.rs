//! Recent windows and records of a run, in bounded memory: `Board` stores the figures of windows
//! for the live page, `Feed` the JSON lines of records for gRPC streams.
//!
//! Each reader proceeds at its own pace; a slow one misses the items that were dropped in the
//! meantime, and delays no writer.

use super::page::event;
use super::proto;
use crate::clock::unix_ns;
use crate::controller::Sink;
use crate::history::History;
use crate::identity::Identity;
use crate::measurement::delay::DelaySampleRecord;
use crate::names::Names;
use crate::output::{DelaySampleLog, Origin, line};
use crate::record::{Record, RecordKind};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Maximum memory for the stored windows, in bytes.
const MAX_WINDOW_BYTES: usize = 32 << 20;
/// Maximum number of stored windows.
const MAX_WINDOWS: usize = 7200;
/// Maximum memory for the stored records of one kind, in bytes.
const MAX_RECORD_BYTES: usize = 16 << 20;
/// Maximum number of stored records of one kind.
const MAX_RECORDS: usize = 1024;

/// Recent items with their numbers, which count from zero; clones share them.
#[derive(Clone)]
pub(super) struct RecentItems<T> {
    items: Arc<Mutex<Items<T>>>,
    /// Number of the newest item, to wake readers.
    newest: watch::Sender<u64>,
    /// Maximum memory, in bytes.
    room: usize,
    /// Maximum number of items.
    most: usize,
}

struct Items<T> {
    /// Items with their sizes in bytes, the oldest first.
    items: VecDeque<(T, usize)>,
    bytes: usize,
    /// Number of the next item.
    next: u64,
}

impl<T: Clone> RecentItems<T> {
    /// Creates an empty store of at most `room` bytes and `most` items.
    pub(super) fn new(room: usize, most: usize) -> Self {
        let items = Items { items: VecDeque::new(), bytes: 0, next: 0 };
        RecentItems {
            items: Arc::new(Mutex::new(items)),
            newest: watch::Sender::new(0),
            room,
            most,
        }
    }

    fn items(&self) -> MutexGuard<'_, Items<T>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the item that `make` returns for the next number, with its size in bytes.
    pub(super) fn push<E>(&self, make: impl FnOnce(u64) -> Result<(T, usize), E>) -> Result<(), E> {
        let mut kept = self.items();
        let number = kept.next;
        let (item, bytes) = make(number)?;
        kept.next += 1;
        kept.bytes += bytes;
        kept.items.push_back((item, bytes));
        while kept.bytes > self.room || kept.items.len() > self.most {
            let Some((_, bytes)) = kept.items.pop_front() else { break };
            kept.bytes -= bytes;
        }
        drop(kept);
        self.newest.send_replace(number);
        Ok(())
    }

    /// Returns a receiver that is notified of every new item.
    pub(super) fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Returns whether there is a reader.
    pub(super) fn is_read(&self) -> bool {
        self.newest.receiver_count() > 0
    }

    /// Returns the number of the next item.
    pub(super) fn next(&self) -> u64 {
        self.items().next
    }

    /// Returns at most `most` items from `number` on, the oldest first.
    pub(super) fn from(&self, number: u64, most: usize) -> Vec<(u64, T)> {
        let kept = self.items();
        let oldest = kept.next - kept.items.len() as u64;
        let skipped = number.saturating_sub(oldest) as usize;
        let wanted = (oldest..).zip(&kept.items).skip(skipped).take(most);
        wanted.map(|(number, (item, _))| (number, item.clone())).collect()
    }

    /// Returns the items from `number` on, the oldest first; of more than `most`, the newest.
    pub(super) fn last(&self, number: u64, most: usize) -> Vec<(u64, T)> {
        let from = number.max(self.next().saturating_sub(most as u64));
        self.from(from, usize::MAX)
    }
}

/// Recently closed windows; clones share them.
#[derive(Clone)]
pub struct Board {
    pub(super) kept: RecentItems<Arc<str>>,
    /// Start time of the run, which distinguishes its windows from those of another run at the same
    /// address.
    run: u64,
    names: Names,
    history: History,
}

impl Default for Board {
    fn default() -> Self {
        Board {
            kept: RecentItems::new(MAX_WINDOW_BYTES, MAX_WINDOWS),
            run: unix_ns(),
            names: Names::default(),
            history: History::default(),
        }
    }
}

impl Board {
    /// Returns a clone that names the addresses of the windows that it stores, and takes what is
    /// usual from the history of their source.
    #[must_use]
    pub fn of_source(&self, names: Names, history: History) -> Self {
        Board { names, history, ..self.clone() }
    }

    /// Returns the run's identifier, by which a page detects a restart.
    pub(super) fn run(&self) -> String {
        format!("{:x}", self.run)
    }

    /// Returns a window's event ID, which pages send back when they reconnect.
    pub(super) fn name(&self, id: u64) -> String {
        format!("{:x}.{id}", self.run)
    }

    /// Returns the number of the window that an event ID names, if it is one of this run.
    pub(super) fn named(&self, name: &str) -> Option<u64> {
        let (run, id) = name.split_once('.')?;
        (u64::from_str_radix(run, 16) == Ok(self.run)).then(|| id.parse().ok())?
    }

    /// Returns the windows after `id`, the oldest first; of more than `most`, the newest.
    pub(super) fn after(&self, id: Option<u64>, most: usize) -> Vec<(u64, Arc<str>)> {
        self.kept.last(id.map_or(0, |id| id.saturating_add(1)), most)
    }
}

impl Sink for Board {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        if record.kind != RecordKind::Window {
            return Ok(());
        }
        let Board { kept, names, history, .. } = self;
        kept.push(|id| {
            let event: Arc<str> = event(id, record, names, history)?.into();
            let bytes = event.len();
            Ok((event, bytes))
        })
    }
}

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
            windows: RecentItems::new(MAX_RECORD_BYTES, MAX_RECORDS),
            samples: RecentItems::new(MAX_RECORD_BYTES, MAX_RECORDS),
            delay_samples: RecentItems::new(MAX_RECORD_BYTES, MAX_RECORDS),
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn push(kept: &RecentItems<u64>, bytes: usize) {
        let Ok(()) = kept.push(|number| Ok::<_, Infallible>((number, bytes)));
    }

    #[test]
    fn the_last_are_kept_up_to_a_number_and_an_amount() {
        let kept = RecentItems::new(100, 5);
        (0..8).for_each(|_| push(&kept, 10));
        let numbers = |items: Vec<(u64, u64)>| {
            items.into_iter().map(|(number, item)| (number == item).then_some(number)).collect()
        };
        let from = |number, most| -> Option<Vec<u64>> { numbers(kept.from(number, most)) };
        assert_eq!(from(0, 99), Some(vec![3, 4, 5, 6, 7]));
        assert_eq!(from(6, 99), Some(vec![6, 7]));
        assert_eq!(from(0, 2), Some(vec![3, 4]));
        assert_eq!(numbers(kept.last(0, 2)), Some(vec![6, 7]));
        assert_eq!((from(8, 99), kept.next()), (Some(vec![]), 8));
        push(&kept, 95);
        assert_eq!(from(0, 99), Some(vec![8]));
        // An item larger than the limit is dropped at once, and counts as missed.
        push(&kept, 101);
        assert_eq!((from(0, 99), kept.next()), (Some(vec![]), 10));
    }
}
