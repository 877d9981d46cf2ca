//! Capture files: pcap and pcapng, from a file or a pipe.
//!
//! Workers read chunks of the file side by side. Where a record starts is only known once the one before it was walked, so
//! the short walk over record headers goes from chunk to chunk in turn, and the work on the packets is done in parallel.

use super::{Frame, Port, Ports, Received, Source};
use crate::capture::{Record, Step, Walker, link_type};
use crate::error::Error;
use crate::losses::{LossCause, Losses};
use crate::poll::gate::{Gate, Pace};
use flowgauge_core::Link;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const CHUNK: usize = 256 * 1024;
/// How often a worker looks whether it is its turn before it goes to sleep.
const TURN_SPINS: u32 = 2000;

/// Ports on a capture file, shared among `workers`.
///
/// # Errors
/// [`Error::File`] if the file cannot be opened. Damage inside it is reported as a [warning](crate::Event::Warning).
pub fn pcap(path: &Path, workers: usize, pace: Pace) -> Result<Ports<PcapPort>, Error> {
    let fail = |source| Error::File { operation: "open", path: path.to_owned(), source };
    let file = File::open(path).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    if metadata.is_dir() {
        return Err(fail(io::Error::from(io::ErrorKind::IsADirectory)));
    }
    let input =
        if metadata.is_file() { Input::File { file, length: metadata.len(), next: AtomicU64::new(0) } } else { stream(file) };
    Ok(ports(input, path.to_owned(), workers, pace))
}

/// Ports on a capture that arrives through a pipe.
#[must_use]
pub fn pcap_reader(reader: impl Read + Send + 'static, name: &str, workers: usize, pace: Pace) -> Ports<PcapPort> {
    ports(stream(reader), name.into(), workers, pace)
}

fn stream(reader: impl Read + Send + 'static) -> Input {
    Input::Stream(Mutex::new((Box::new(reader), 0)))
}

fn ports(input: Input, path: PathBuf, workers: usize, pace: Pace) -> Ports<PcapPort> {
    let gate = Arc::new(Gate::new(pace));
    let interface = path.display().to_string();
    let shared = Arc::new(Shared {
        input,
        path,
        gate: Arc::clone(&gate),
        turn: AtomicU64::new(0),
        alone: workers == 1,
        walk: Mutex::default(),
    });
    let port = || PcapPort { shared: Arc::clone(&shared), chunk: Chunk::default() };
    Ports { ports: (0..workers).map(|_| port()).collect(), source: Arc::clone(&shared) as Arc<dyn Source>, gate, interface }
}

type StreamState = (Box<dyn Read + Send>, u64);

enum Input {
    File { file: File, length: u64, next: AtomicU64 },
    Stream(Mutex<StreamState>),
}

impl Input {
    /// Reads the next chunk into `buffer`; gives its number and length. Only the last chunk is shorter than [`CHUNK`].
    fn read(&self, buffer: &mut [u8]) -> (u64, io::Result<usize>) {
        match self {
            Input::File { file, next, .. } => {
                let index = next.fetch_add(1, Ordering::Relaxed);
                (index, fill(buffer, |part, done| file.read_at(part, index * CHUNK as u64 + done as u64)))
            }
            Input::Stream(stream) => {
                let (reader, next) = &mut *stream.lock().unwrap_or_else(PoisonError::into_inner);
                let index = *next;
                *next += 1;
                (index, fill(buffer, |part, _| reader.read(part)))
            }
        }
    }
}

fn fill(buffer: &mut [u8], mut read: impl FnMut(&mut [u8], usize) -> io::Result<usize>) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match read(&mut buffer[filled..], filled) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

struct Shared {
    input: Input,
    path: PathBuf,
    gate: Arc<Gate>,
    /// Number of the chunk whose records may be walked.
    turn: AtomicU64,
    alone: bool,
    walk: Mutex<Walk>,
}

/// Where the walk over the records stands.
#[derive(Default)]
struct Walk {
    walker: Walker,
    /// The beginning of a record that goes on in the next chunk.
    carry: Vec<u8>,
    first_timestamp: Option<u64>,
    ended: bool,
    /// Packets by link type, of those that are not understood.
    unsupported: BTreeMap<u16, u64>,
    warnings: Vec<String>,
}

impl Shared {
    fn walk(&self) -> MutexGuard<'_, Walk> {
        self.walk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for Shared {
    fn losses(&self) -> Losses {
        let mut losses = Losses::default();
        losses.add(LossCause::Capture, self.walk().walker.drops());
        losses
    }

    fn warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.walk().warnings)
    }

    fn progress(&self) -> Option<(u64, u64)> {
        match &self.input {
            Input::File { length, .. } => Some((self.walk().walker.offset(), *length)),
            Input::Stream(_) => None,
        }
    }
}

/// One worker's share of a capture.
pub struct PcapPort {
    shared: Arc<Shared>,
    chunk: Chunk,
}

/// A chunk in the making: read, then walked in turn, perhaps in several steps when the gate stops it.
#[derive(Default)]
struct Chunk {
    buffer: Vec<u8>,
    /// Its number, once it was read.
    index: Option<u64>,
    length: usize,
    /// Where the walk stands.
    position: usize,
    /// A record that began in the chunk before.
    spill: Vec<u8>,
    /// Records that may be counted.
    records: Vec<Located>,
    /// A record that was walked and found to lie beyond the gate's limit.
    held: Option<Located>,
}

#[derive(Clone, Copy)]
struct Located {
    record: Record,
    spilled: bool,
}

impl Chunk {
    fn frame(&self, located: &Located) -> Frame<'_> {
        let Record { start, captured, wire, timestamp, link, .. } = located.record;
        let source = if located.spilled { &self.spill[..] } else { &self.buffer[..self.length] };
        let bytes = source.get(start as usize..start as usize + captured as usize).unwrap_or_default();
        Frame { bytes, wire_length: wire, timestamp, link }
    }
}

impl Port for PcapPort {
    fn receive(&mut self, sink: &mut impl FnMut(Frame<'_>)) -> Received {
        let Self { shared, chunk } = self;
        let index = match chunk.index {
            Some(index) => index,
            None => match read_chunk(shared, chunk) {
                Some(index) => index,
                None => return Received::Ended,
            },
        };
        let mut spins = 0;
        while shared.turn.load(Ordering::Acquire) != index {
            if spins == TURN_SPINS {
                return if shared.walk().ended { Received::Ended } else { Received::Idle };
            }
            spins += 1;
            std::hint::spin_loop();
        }
        let mut walk = shared.walk();
        if walk.ended {
            return Received::Ended;
        }
        let outcome = walk_chunk(shared, &mut walk, chunk);
        let busy = chunk.records.iter().map(|located| located.record.timestamp).max().map(|last| shared.gate.begin(last));
        match outcome {
            Outcome::Blocked { next, limit } => {
                if busy.is_none() {
                    shared.gate.block(next, limit);
                }
            }
            Outcome::Done => {
                chunk.index = None;
                shared.turn.store(index + 1, Ordering::Release);
            }
            Outcome::Ended => {
                walk.ended = true;
                warn_unsupported(shared, &mut walk);
                shared.gate.end();
            }
        }
        drop(walk);
        if !shared.alone && !matches!(outcome, Outcome::Blocked { .. }) {
            shared.gate.wake();
        }
        if busy.is_none() {
            return match outcome {
                Outcome::Blocked { .. } => Received::Idle,
                Outcome::Done => Received::Frames,
                Outcome::Ended => Received::Ended,
            };
        }
        chunk.records.iter().for_each(|located| sink(chunk.frame(located)));
        chunk.records.clear();
        Received::Frames
    }
}

/// Reads the next chunk; `None` if that fails or nothing is left.
fn read_chunk(shared: &Shared, chunk: &mut Chunk) -> Option<u64> {
    if shared.walk().ended {
        return None;
    }
    chunk.buffer.resize(CHUNK, 0);
    let (index, read) = shared.input.read(&mut chunk.buffer);
    chunk.length = match read {
        Ok(length) => length,
        Err(error) => {
            shared.walk().warnings.push(format!("{}: cannot read on: {error}", shared.path.display()));
            0
        }
    };
    chunk.index = Some(index);
    chunk.position = 0;
    Some(index)
}

#[derive(Clone, Copy)]
enum Outcome {
    /// The next packet lies at or beyond the gate's limit.
    Blocked { next: u64, limit: u64 },
    /// The chunk was walked to its end.
    Done,
    /// The capture ends here, in order or not.
    Ended,
}

/// Walks over the records of a chunk, up to the gate's limit, and collects those that may be counted.
fn walk_chunk(shared: &Shared, walk: &mut Walk, chunk: &mut Chunk) -> Outcome {
    let mut limit = None;
    let mut admit = |located: Located, first: &mut Option<u64>, chunk: &mut Chunk| {
        let timestamp = located.record.timestamp;
        let first = *first.get_or_insert(timestamp);
        let limit = *limit.get_or_insert_with(|| shared.gate.limit(first));
        if timestamp < limit {
            chunk.records.push(located);
            Ok(())
        } else {
            chunk.held = Some(located);
            Err(Outcome::Blocked { next: timestamp, limit })
        }
    };
    if let Some(held) = chunk.held.take()
        && let Err(blocked) = admit(held, &mut walk.first_timestamp, chunk)
    {
        return blocked;
    }
    loop {
        let spilled = !walk.carry.is_empty();
        let unread = &chunk.buffer[chunk.position..chunk.length];
        let step = if spilled { walk.walker.next(&walk.carry) } else { walk.walker.next(unread) };
        match step {
            Step::Packet { record, consumed } => {
                if spilled {
                    // The carry was filled to exactly this record.
                    std::mem::swap(&mut chunk.spill, &mut walk.carry);
                    walk.carry.clear();
                } else {
                    chunk.position += consumed;
                }
                let record =
                    Record { start: record.start + if spilled { 0 } else { (chunk.position - consumed) as u32 }, ..record };
                if record.link == Link::Unsupported {
                    note_unsupported(walk, &record);
                }
                if let Err(blocked) = admit(Located { record, spilled }, &mut walk.first_timestamp, chunk) {
                    return blocked;
                }
            }
            Step::Skip { consumed } if spilled => {
                walk.carry.drain(..consumed);
            }
            Step::Skip { consumed } => chunk.position += consumed,
            Step::NeedMore { at_least } => {
                let missing = if spilled { at_least.saturating_sub(walk.carry.len()).max(1) } else { usize::MAX };
                let taken = missing.min(unread.len());
                walk.carry.extend_from_slice(&unread[..taken]);
                chunk.position += taken;
                if taken < missing {
                    return if chunk.length < CHUNK { end(shared, walk) } else { Outcome::Done };
                }
            }
            Step::Damaged(damage) => {
                walk.warnings.push(format!("{}: {damage}", shared.path.display()));
                return Outcome::Ended;
            }
        }
    }
}

/// The file ends where the walk stands.
fn end(shared: &Shared, walk: &mut Walk) -> Outcome {
    if let Err(damage) = walk.walker.finish(&walk.carry) {
        walk.warnings.push(format!("{}: {damage}", shared.path.display()));
    }
    Outcome::Ended
}

fn warn_unsupported(shared: &Shared, walk: &mut Walk) {
    for (link_type, packets) in std::mem::take(&mut walk.unsupported) {
        let name = link_type::name(link_type);
        let path = shared.path.display();
        walk.warnings
            .push(format!("{path}: {packets} packets of link type {link_type} ({name}), which is not understood, count as non-IP"));
    }
}

/// Frames that nobody can parse are counted as non-IP; that must not go unnoticed.
fn note_unsupported(walk: &mut Walk, record: &Record) {
    let link_type = walk.walker.interfaces().get(record.interface as usize).map(|interface| interface.link_type);
    *walk.unsupported.entry(link_type.unwrap_or(u16::MAX)).or_default() += 1;
}
