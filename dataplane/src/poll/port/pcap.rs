//! Capture files: pcap and pcapng, from a file or a pipe.
//!
//! Workers read chunks of the file side by side. Where a record starts is only known once those before it were passed, so that
//! short walk over record headers goes from chunk to chunk in turn; the work on the packets is done in parallel.

use super::{Frame, Port, Ports, Received, Source};
use crate::capture::{Stop, Walker, link_type};
use crate::error::Error;
use crate::losses::{LossCause, Losses};
use crate::poll::gate::{Gate, Pace};
use crossbeam::channel::{Receiver, TryRecvError, bounded};
use flowgauge_core::Link;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::{Deref, DerefMut, Range};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Bytes of a capture file that a worker reads at once: enough for the kernel's copy to reach its full speed.
pub const CHUNK: usize = 1 << 20;
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
    if !metadata.is_file() {
        return Ok(ports(|gate| stream(file, gate), path.to_owned(), workers, pace));
    }
    let input = Input::File { file, length: metadata.len(), next: AtomicU64::new(0) };
    Ok(ports(|_| input, path.to_owned(), workers, pace))
}

/// Ports on a capture that arrives through a pipe.
#[must_use]
pub fn pcap_reader(reader: impl Read + Send + 'static, name: &str, workers: usize, pace: Pace) -> Ports<PcapPort> {
    ports(|gate| stream(reader, gate), name.into(), workers, pace)
}

fn ports(input: impl FnOnce(&Arc<Gate>) -> Input, path: PathBuf, workers: usize, pace: Pace) -> Ports<PcapPort> {
    let gate = Arc::new(Gate::new(pace));
    let interface = path.display().to_string();
    let shared = Arc::new(Shared {
        input: input(&gate),
        path,
        gate: Arc::clone(&gate),
        turn: AtomicU64::new(0),
        alone: workers == 1,
        walk: Mutex::default(),
    });
    let port = || PcapPort { shared: Arc::clone(&shared), chunk: Chunk::default() };
    Ports { ports: (0..workers).map(|_| port()).collect(), source: Arc::clone(&shared) as Arc<dyn Source>, gate, interface }
}

enum Input {
    File { file: File, length: u64, next: AtomicU64 },
    Stream(Mutex<Stream>),
}

/// A pipe. A thread of its own reads it, since a read may wait for ever, which a worker must not.
struct Stream {
    pieces: Receiver<io::Result<Vec<u8>>>,
    next: u64,
}

/// Pieces of a pipe that may lie ready.
const PIECES: usize = 4;

fn stream(mut reader: impl Read + Send + 'static, gate: &Arc<Gate>) -> Input {
    let (sender, pieces) = bounded(PIECES);
    let (failed, gate) = (sender.clone(), Arc::clone(gate));
    let read = move || {
        loop {
            let mut piece = vec![0; CHUNK];
            let (piece, last) = match reader.read(&mut piece) {
                Ok(0) => break,
                Ok(length) => {
                    piece.truncate(length);
                    (Ok(piece), false)
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => (Err(error), true),
            };
            // Nobody receives any more once the ports are gone.
            if sender.send(piece).is_err() || last {
                break;
            }
            gate.wake();
        }
        drop(sender);
        gate.wake();
    };
    if let Err(error) = thread::Builder::new().name("pipe-reader".to_owned()).spawn(read) {
        // The channel is empty and has room.
        let _ = failed.try_send(Err(error));
    }
    Input::Stream(Mutex::new(Stream { pieces, next: 0 }))
}

/// What was read of the input into a chunk.
struct Piece {
    index: u64,
    length: usize,
    /// Nothing follows.
    last: bool,
    /// Why nothing follows, if that is no end of the file.
    failure: Option<io::Error>,
}

impl Input {
    /// Reads the next chunk into `buffer`; `None` if a pipe has nothing now.
    fn read(&self, buffer: &mut [u8]) -> Option<Piece> {
        match self {
            Input::File { file, next, .. } => {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let (length, failure) = read_at(file, index * CHUNK as u64, buffer);
                Some(Piece { index, length, last: length < buffer.len(), failure })
            }
            Input::Stream(stream) => {
                let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
                let (length, last, failure) = match stream.pieces.try_recv() {
                    Ok(Ok(piece)) => {
                        buffer[..piece.len()].copy_from_slice(&piece);
                        (piece.len(), false, None)
                    }
                    Ok(Err(error)) => (0, true, Some(error)),
                    Err(TryRecvError::Disconnected) => (0, true, None),
                    Err(TryRecvError::Empty) => return None,
                };
                stream.next += 1;
                Some(Piece { index: stream.next - 1, length, last, failure })
            }
        }
    }
}

/// Fills `buffer` from `offset` on; less than all of it at the end of the file, or on an error.
fn read_at(file: &File, offset: u64, buffer: &mut [u8]) -> (usize, Option<io::Error>) {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (filled, Some(error)),
        }
    }
    (filled, None)
}

struct Shared {
    input: Input,
    path: PathBuf,
    gate: Arc<Gate>,
    /// Number of the chunk that may be walked.
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
        let ended = self.gate.has_ended();
        let mut walk = self.walk();
        let mut warnings = std::mem::take(&mut walk.warnings);
        if ended {
            let path = self.path.display();
            warnings.extend(std::mem::take(&mut walk.unsupported).into_iter().map(|(link_type, packets)| {
                let name = link_type::name(link_type);
                format!("{path}: {packets} packets of link type {link_type} ({name}), which is not understood, count as non-IP")
            }));
        }
        warnings
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

/// A chunk of the file: read, then walked in turn, perhaps in several steps when the gate stops it.
#[derive(Default)]
struct Chunk {
    buffer: Buffer,
    /// Its number, once it was read.
    index: Option<u64>,
    length: usize,
    /// Whether the file ends with it.
    last: bool,
    /// Why it does, if not in order.
    failure: Option<io::Error>,
    /// Up to where it was walked.
    position: usize,
    /// A record that began in the chunk before.
    spill: Vec<u8>,
}

/// Room for a chunk, at a page boundary: the kernel copies to one almost twice as fast.
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

const PAGE: usize = 4096;

impl Default for Buffer {
    fn default() -> Self {
        let bytes = vec![0; CHUNK + PAGE];
        let start = bytes.as_ptr().align_offset(PAGE).min(PAGE);
        Buffer { bytes, start }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + CHUNK]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + CHUNK]
    }
}

impl Port for PcapPort {
    fn receive(&mut self, sink: &mut impl FnMut(Frame<'_>)) -> Received {
        let Self { shared, chunk } = self;
        let index = match chunk.index.map_or_else(|| read_chunk(shared, chunk), Ok) {
            Ok(index) => index,
            Err(nothing) => return nothing,
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
        let mut reader = walk.walker.clone();
        chunk.spill.clear();
        let (outcome, passed) = walk_chunk(shared, &mut walk, chunk);
        let passed = &chunk.buffer[passed];
        let idle = passed.is_empty() && chunk.spill.is_empty();
        let mut busy = shared.gate.begin();
        match outcome {
            Outcome::Blocked { next, limit } if idle => shared.gate.block(next, limit),
            Outcome::Blocked { .. } => {}
            Outcome::Done => {
                chunk.index = None;
                shared.turn.store(index + 1, Ordering::Release);
            }
            Outcome::Ended => {
                walk.ended = true;
                shared.gate.end();
            }
        }
        drop(walk);
        if !shared.alone && !matches!(outcome, Outcome::Blocked { .. }) {
            shared.gate.wake();
        }
        if idle {
            return match outcome {
                Outcome::Blocked { .. } => Received::Idle,
                Outcome::Done => Received::Frames,
                Outcome::Ended => Received::Ended,
            };
        }
        let mut last = None;
        let mut unsupported = BTreeMap::new();
        for bytes in [&chunk.spill, passed] {
            reader.packets_in(bytes, |record, bytes| {
                last = last.max(Some(record.timestamp));
                if record.link == Link::Unsupported {
                    *unsupported.entry(record.link_type).or_insert(0) += 1;
                }
                sink(Frame { bytes, wire_length: record.wire, timestamp: record.timestamp, link: record.link });
            });
        }
        busy.last = last;
        if !unsupported.is_empty() {
            shared.walk().note(unsupported);
        }
        Received::Frames
    }
}

/// Reads the next chunk.
fn read_chunk(shared: &Shared, chunk: &mut Chunk) -> Result<u64, Received> {
    if shared.walk().ended {
        return Err(Received::Ended);
    }
    let Piece { index, length, last, failure } = shared.input.read(&mut chunk.buffer).ok_or(Received::Idle)?;
    chunk.index = Some(index);
    chunk.length = length;
    chunk.last = last;
    chunk.failure = failure;
    chunk.position = 0;
    Ok(index)
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

/// Walks over a chunk up to the gate's limit. Gives the part of the chunk whose records may be counted; before them comes the
/// record that began in the chunk before, which is then in `spill`.
fn walk_chunk(shared: &Shared, walk: &mut Walk, chunk: &mut Chunk) -> (Outcome, Range<usize>) {
    let mut limit = walk.first_timestamp.map(|first| shared.gate.limit(first));
    let mut start = chunk.position;
    loop {
        let unread = &chunk.buffer[chunk.position..chunk.length];
        let carried = !walk.carry.is_empty();
        // Until the first packet is known, stop at any.
        let (passed, stop) = walk.walker.pass(if carried { &walk.carry } else { unread }, limit.unwrap_or(0));
        if carried {
            let rest = walk.carry.split_off(passed);
            chunk.spill.append(&mut walk.carry);
            walk.carry = rest;
            start = chunk.position;
            if walk.carry.is_empty() {
                continue;
            }
        } else {
            chunk.position += passed;
        }
        let passed = start..chunk.position;
        match (stop, limit) {
            (Stop::Limit { next }, None) => {
                walk.first_timestamp = Some(next);
                limit = Some(shared.gate.limit(next));
            }
            (Stop::Limit { next }, Some(limit)) => return (Outcome::Blocked { next, limit }, passed),
            (Stop::NeedMore { at_least }, _) => {
                let unread = &chunk.buffer[chunk.position..chunk.length];
                let missing = if carried { at_least.saturating_sub(walk.carry.len()).max(1) } else { usize::MAX };
                let taken = missing.min(unread.len());
                walk.carry.extend_from_slice(&unread[..taken]);
                chunk.position += taken;
                if taken < missing {
                    let outcome = if chunk.last { end(shared, walk, chunk) } else { Outcome::Done };
                    return (outcome, passed);
                }
            }
            (Stop::Damaged(damage), _) => {
                walk.warnings.push(format!("{}: {damage}", shared.path.display()));
                return (Outcome::Ended, passed);
            }
        }
    }
}

/// The file ends where the walk stands.
fn end(shared: &Shared, walk: &mut Walk, chunk: &mut Chunk) -> Outcome {
    let problem = match chunk.failure.take() {
        Some(error) => Some(format!("cannot read on: {error}")),
        None => walk.walker.finish(&walk.carry).err().map(|damage| damage.to_string()),
    };
    walk.warnings.extend(problem.map(|problem| format!("{}: {problem}", shared.path.display())));
    Outcome::Ended
}

impl Walk {
    /// Frames that nobody can parse are counted as non-IP; that must not go unnoticed. `packets` are by link type.
    fn note(&mut self, packets: BTreeMap<u16, u64>) {
        for (link_type, packets) in packets {
            *self.unsupported.entry(link_type).or_default() += packets;
        }
    }
}
