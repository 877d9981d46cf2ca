//! Ports on capture files: pcap and pcapng, from a file or a pipe.
//!
//! Workers read chunks of the file in parallel. The start of a record is only known once the
//! records before it were parsed, so the quick walk over record headers passes from chunk to chunk
//! in turn, while the packets are processed in parallel. A worker whose walk no one is waiting for
//! counts as it walks. Packets that were [buffered](held) at the end of a window are counted first,
//! by all workers if order is irrelevant.

use super::held::{self, Listed, ReorderBuffer, Segment};
use super::huge::{HUGE_PAGE, advise};
use super::{Duty, Frame, Port, Ports, Received, Source};
use crate::capture::{
    Compression, Damage, Granularity, Passed, Record, Step, Stop, Walker, decompress, link_type,
    open, read_full,
};
use crate::error::Error;
use crate::losses::{LossCause, Losses};
use crate::poll::gate::{Bounds, Busy, Gate, Pace};
use crossbeam::channel::{Receiver, Sender, TryRecvError, bounded};
use crossbeam::queue::SegQueue;
use flowgauge_core::Link;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::ops::{Deref, Range};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a capture file that a worker reads at once: enough for the kernel's copy to reach full
/// speed.
pub const CHUNK: usize = 2 << 20;
/// Bytes that a worker counts between checks whether another one is waiting for its turn.
const BLOCK: usize = 1 << 18;
/// Maximum size of a buffered run, in bytes: splitting a run walks over all of it.
const RUN_BYTES: usize = 1 << 16;
/// Minimum packets of a buffered [`Run`](crate::capture::Run).
const RUN: u64 = 8;
/// Packets that are listed one by one before a run is tried again.
const LISTED: usize = 1024;
/// [Quorum](Shared::witnesses) in a file, where reading ahead is cheap.
pub(super) const WITNESSES: usize = 1000;
/// Quorum in a pipe, which may be silent for long.
pub(super) const WITNESSES_LIVE: usize = 3;
/// Timestamps examined to find the clock step, in the first chunk and in each later one: a small
/// part of a full chunk. In fast traffic the first timestamps alone lie within one step.
const FIRST_TIMESTAMPS: usize = 4096;
const TIMESTAMPS: usize = 64;
/// Checks of a worker for its turn before it sleeps.
const TURN_SPINS: u32 = 2000;

/// Creates ports on a capture file for `workers`. It may be compressed, and may be a pipe.
///
/// # Errors
/// [`Error::File`] if the file cannot be opened or read, [`Error::NotACapture`] if it does not
/// start with a capture header. Damage inside it is reported as a [warning](crate::Event::Warning).
pub fn pcap(path: &Path, workers: usize, pace: Pace) -> Result<Ports<PcapPort>, Error> {
    let Opened { file, length } = open_file(path)?;
    let Some(length) = length else {
        return reader_ports(file, path.to_owned(), None, workers, pace);
    };
    let mut head = [0; Compression::HEAD];
    let (filled, _) = read_at(&file, 0, &mut head);
    if Compression::of(head.get(..filled).unwrap_or_default()).is_some() {
        let read = Arc::new(AtomicU64::new(0));
        let counted = CountedReads { file, read: Arc::clone(&read) };
        return reader_ports(counted, path.to_owned(), Some((read, length)), workers, pace);
    }
    // Moves the file's position, which no other code uses.
    begin(&mut &file, path)?;
    let input = Input::File { file, length, next: AtomicU64::new(0) };
    Ok(ports(|_| input, path.to_owned(), InputInfo::new(WITNESSES), workers, pace))
}

/// Creates ports on a capture that arrives through a pipe, compressed or not. Returns once its
/// header has arrived.
///
/// # Errors
/// As [`pcap`].
pub fn pcap_reader(
    reader: impl Read + Send + 'static,
    name: &str,
    workers: usize,
    pace: Pace,
) -> Result<Ports<PcapPort>, Error> {
    reader_ports(reader, name.into(), None, workers, pace)
}

/// An opened input.
pub(super) struct Opened {
    pub(super) file: File,
    /// Length in bytes; `None` for a pipe or a device.
    pub(super) length: Option<u64>,
}

pub(super) fn open_file(path: &Path) -> Result<Opened, Error> {
    let fail = |source| Error::File { operation: "open", path: path.to_owned(), source };
    let file = File::open(path).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    if metadata.is_dir() {
        return Err(fail(io::Error::from(io::ErrorKind::IsADirectory)));
    }
    Ok(Opened { file, length: metadata.is_file().then_some(metadata.len()) })
}

/// Reader that publishes how much of a file was read.
pub(super) struct CountedReads {
    pub(super) file: File,
    pub(super) read: Arc<AtomicU64>,
}

impl Read for CountedReads {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Reads until the input is known to be a capture, and returns the bytes read.
pub(super) fn begin(reader: &mut impl Read, path: &Path) -> Result<Vec<u8>, Error> {
    let not_a_capture = |damage| Error::NotACapture { path: path.to_owned(), damage };
    let mut walker = Walker::new();
    let mut head = Vec::new();
    loop {
        let at_least = match walker.next(&head) {
            Step::NeedMore { at_least } => at_least,
            Step::Damaged(damage) => return Err(not_a_capture(damage)),
            Step::Packet { .. } | Step::Skip { .. } => return Ok(head),
        };
        let start = head.len();
        head.resize(at_least, 0);
        let (read, failure) = read_full(reader, head.get_mut(start..).unwrap_or_default());
        head.truncate(start + read);
        match failure {
            Some(source) => {
                return Err(Error::File { operation: "read", path: path.to_owned(), source });
            }
            None if read == 0 => return walker.finish(&head).map_err(not_a_capture).map(|()| head),
            None => {}
        }
    }
}

pub(super) fn reader_ports(
    reader: impl Read + Send + 'static,
    path: PathBuf,
    progress: Option<(Arc<AtomicU64>, u64)>,
    workers: usize,
    pace: Pace,
) -> Result<Ports<PcapPort>, Error> {
    let mut reader = decompress(reader);
    let head = begin(&mut reader, &path)?;
    let whole = Cursor::new(head).chain(reader);
    // A file can be read ahead at any time, a pipe only when it has data.
    let witnesses = if progress.is_some() { WITNESSES } else { WITNESSES_LIVE };
    let info = InputInfo { progress, ..InputInfo::new(witnesses) };
    Ok(ports(|gate| stream(whole, gate), path, info, workers, pace))
}

/// Metadata of an input.
pub(super) struct InputInfo {
    /// [`Shared::witnesses`].
    pub(super) witnesses: usize,
    /// Bytes read, and their total.
    pub(super) progress: Option<(Arc<AtomicU64>, u64)>,
    /// Warnings, one line each.
    pub(super) warnings: Arc<Mutex<Vec<String>>>,
    /// Packets that the captures report as dropped.
    pub(super) drops: Arc<AtomicU64>,
    /// Coarsest unit of the timestamps, in nanoseconds, if the input itself no longer shows it.
    pub(super) unit_ns: u64,
}

impl InputInfo {
    pub(super) fn new(witnesses: usize) -> Self {
        InputInfo {
            witnesses,
            progress: None,
            warnings: Arc::default(),
            drops: Arc::default(),
            unit_ns: 0,
        }
    }
}

pub(super) fn ports(
    input: impl FnOnce(&Arc<Gate>) -> Input,
    path: PathBuf,
    info: InputInfo,
    workers: usize,
    pace: Pace,
) -> Ports<PcapPort> {
    let gate = Arc::new(Gate::new(pace));
    let interface = path.display().to_string();
    let clock = CaptureClock { unit_ns: info.unit_ns, ..CaptureClock::default() };
    let shared = Arc::new(Shared {
        input: input(&gate),
        path,
        witnesses: info.witnesses,
        info,
        gate: Arc::clone(&gate),
        turn: AtomicU64::new(0),
        read: AtomicU64::new(0),
        workers,
        released: SegQueue::new(),
        spare: SegQueue::new(),
        walk: Mutex::new(Walk { clock, ..Walk::default() }),
    });
    let port = || PcapPort { shared: Arc::clone(&shared), chunk: Chunk::default() };
    Ports {
        ports: (0..workers).map(|_| port()).collect(),
        source: Arc::clone(&shared) as Arc<dyn Source>,
        gate,
        interface,
    }
}

pub(super) enum Input {
    File { file: File, length: u64, next: AtomicU64 },
    Stream(Mutex<Stream>),
}

/// A pipe, read by a thread of its own: a read may block indefinitely, which a worker must not.
pub(super) struct Stream {
    pieces: Receiver<io::Result<Buffer>>,
    /// Processed buffers for reuse: new memory would have to be zeroed.
    used: Sender<Buffer>,
    next: u64,
}

/// Pieces of a pipe that may be queued.
const PIECES: usize = 4;

/// Passes a piece of at most [`CHUNK`] bytes to the workers and returns a buffer for the next one;
/// `None` once the ports are gone.
pub(super) type PieceSink<'a> = dyn FnMut(io::Result<Buffer>) -> Option<Buffer> + 'a;

fn stream(mut reader: impl Read + Send + 'static, gate: &Arc<Gate>) -> Input {
    let pieces = move |hand: &mut PieceSink<'_>| {
        let mut room = Some(Buffer::default());
        while let Some(mut piece) = room {
            room = match reader.read(piece.room()) {
                Ok(0) => return,
                Ok(length) => {
                    piece.length = length;
                    hand(Ok(piece))
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => Some(piece),
                Err(error) => {
                    hand(Err(error));
                    return;
                }
            };
        }
    };
    pieces_of("pipe-reader", pieces, gate)
}

/// Creates an input whose pieces are produced by a thread of its own.
pub(super) fn pieces_of(
    name: &str,
    make: impl FnOnce(&mut PieceSink<'_>) + Send + 'static,
    gate: &Arc<Gate>,
) -> Input {
    let (sender, pieces) = bounded(PIECES);
    let (used, spares) = bounded(2 * PIECES);
    let (failed, gate) = (sender.clone(), Arc::clone(gate));
    let run = move || {
        make(&mut |piece| {
            // There is no receiver once the ports are gone.
            let received = sender.send(piece).is_ok();
            gate.wake();
            received.then(|| spares.try_recv().unwrap_or_default())
        });
        drop(sender);
        gate.wake();
    };
    if let Err(error) = thread::Builder::new().name(name.to_owned()).spawn(run) {
        // The channel is empty and has room.
        let _ = failed.try_send(Err(error));
    }
    Input::Stream(Mutex::new(Stream { pieces, used, next: 0 }))
}

/// Part of the input that was read into a chunk.
struct Piece {
    index: u64,
    /// Whether this is the last piece.
    last: bool,
    /// Error that ended the input, if any.
    failure: Option<io::Error>,
}

impl Input {
    /// Reads the next chunk into `buffer`; `None` if a pipe has no data yet.
    fn read(&self, buffer: &mut Buffer) -> Option<Piece> {
        match self {
            Input::File { file, next, .. } => {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let (length, failure) = read_at(file, index * CHUNK as u64, buffer.room());
                buffer.length = length;
                Some(Piece { index, last: length < CHUNK, failure })
            }
            Input::Stream(stream) => {
                let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
                let (last, failure) = match stream.pieces.try_recv() {
                    Ok(Ok(piece)) => {
                        // If the queue of spare buffers is full, this one is not needed.
                        let _ = stream.used.try_send(std::mem::replace(buffer, piece));
                        (false, None)
                    }
                    Ok(Err(error)) => (true, Some(error)),
                    Err(TryRecvError::Disconnected) => (true, None),
                    Err(TryRecvError::Empty) => return None,
                };
                if last {
                    buffer.length = 0;
                }
                stream.next += 1;
                Some(Piece { index: stream.next - 1, last, failure })
            }
        }
    }
}

/// Fills `buffer` from `offset` on; reads less at the end of the file or on an error.
fn read_at(file: &File, offset: u64, buffer: &mut [u8]) -> (usize, Option<io::Error>) {
    struct At<'a>(&'a File, u64);
    impl Read for At<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let read = self.0.read_at(buffer, self.1)?;
            self.1 += read as u64;
            Ok(read)
        }
    }
    read_full(&mut At(file, offset), buffer)
}

struct Shared {
    input: Input,
    path: PathBuf,
    info: InputInfo,
    gate: Arc<Gate>,
    /// Number of the chunk that may be walked.
    turn: AtomicU64,
    /// Highest number of a chunk that was read.
    read: AtomicU64,
    workers: usize,
    /// Number of packets beyond the lateness that proves that a time has passed. A single packet
    /// may have a wrong timestamp.
    witnesses: usize,
    /// Buffered packets that are now due, to be counted before anything else: by any idle worker,
    /// or by the worker whose turn it is if order matters. Only that worker adds to the queue.
    released: SegQueue<Segment>,
    /// Chunks whose buffered packets were counted, for reuse: the kernel would have to zero new
    /// memory.
    spare: SegQueue<Buffer>,
    walk: Mutex<Walk>,
}

/// State of the walk over the records.
#[derive(Default)]
struct Walk {
    walker: Walker,
    /// Start of a record that continues in the next chunk.
    carry: Vec<u8>,
    first_timestamp: Option<u64>,
    ended: bool,
    clock: CaptureClock,
    /// Packets that are not due yet.
    held: ReorderBuffer,
    /// Packets that arrived after their window was closed.
    late: u64,
    /// Packets of link types that are not supported, per link type.
    unsupported: BTreeMap<u16, u64>,
    warnings: Vec<String>,
    /// Whether it ended without an error and without packets; reported once.
    empty: bool,
}

/// Clock of a capture, as derived from its timestamps.
#[derive(Default)]
struct CaptureClock {
    granularity: Granularity,
    /// Unit of the file's timestamps: the coarsest of its interfaces.
    unit_ns: u64,
    /// Last chunk that was examined.
    chunk: Option<u64>,
}

impl CaptureClock {
    /// Examines the first timestamps of a chunk; `unread` is the part after the walk's position.
    fn look(&mut self, chunk: Option<u64>, mut walker: Walker, mut unread: &[u8]) {
        let most = if self.chunk.is_some() { TIMESTAMPS } else { FIRST_TIMESTAMPS };
        self.chunk = chunk;
        let mut left = most;
        while left > 0 {
            let consumed = match walker.next(unread) {
                Step::Packet { record, consumed } => {
                    self.granularity.add(record.timestamp);
                    left -= 1;
                    consumed
                }
                Step::Skip { consumed } => consumed,
                Step::NeedMore { .. } | Step::Damaged(_) => break,
            };
            unread = unread.get(consumed..).unwrap_or_default();
        }
        self.unit_ns = self.unit_ns.max(unit_ns(&walker));
    }
}

/// Returns the coarsest timestamp unit of all interfaces, in nanoseconds.
pub(super) fn unit_ns(walker: &Walker) -> u64 {
    walker
        .interfaces()
        .iter()
        .map(|interface| interface.resolution.nanoseconds())
        .max()
        .unwrap_or(0)
}

impl Shared {
    fn walk(&self) -> MutexGuard<'_, Walk> {
        self.walk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether another worker has been waiting for the end of the chunk for longer than is
    /// efficient.
    ///
    /// Counting finds the ends of packets without a separate walk, but one chunk after the other.
    /// That is free as long as it takes less time than the others need to read their next chunks.
    fn is_waited_for(&self, chunk: &Chunk) -> bool {
        let others = self.workers as u32 - 1;
        let is_read = chunk.index.is_some_and(|index| self.read.load(Ordering::Relaxed) > index);
        is_read && chunk.turn_began.is_some_and(|began| began.elapsed() * others > chunk.reading)
    }

    /// Takes a part of the released packets, unless it is reserved for another worker than that of
    /// chunk `index`. It is registered with the gate before it is taken: when the queue is empty,
    /// the gate knows all uncounted packets.
    fn take_released(&self, index: Option<u64>) -> Option<(Segment, Busy<'_>)> {
        let is_turn = || index == Some(self.turn.load(Ordering::Acquire));
        if self.released.is_empty() || !(self.gate.allows_any_order() || is_turn()) {
            return None;
        }
        let mut busy = self.gate.begin();
        let segment = self.released.pop()?;
        busy.last = segment.last();
        Some((segment, busy))
    }

    /// Returns whether no packet before `limit` is expected any more; `next` is the earliest
    /// buffered timestamp.
    fn is_past(&self, walk: &Walk, lateness: Option<u64>, limit: u64, next: u64) -> bool {
        let beyond = |lateness: u64| walk.held.beyond(limit.max(next).saturating_add(lateness));
        walk.held.bytes() >= held::MAX_BYTES
            || lateness.is_none_or(|lateness| beyond(lateness) >= self.witnesses)
    }
}

impl Source for Shared {
    fn losses(&self) -> Losses {
        let mut losses = Losses::default();
        let walk = self.walk();
        losses.add(
            LossCause::Capture,
            walk.walker.drops().saturating_add(self.info.drops.load(Ordering::Relaxed)),
        );
        losses.add(LossCause::Late, walk.late);
        losses
    }

    fn warnings(&self) -> Vec<String> {
        let ended = self.gate.has_ended();
        let mut walk = self.walk();
        let mut warnings = std::mem::take(&mut walk.warnings);
        warnings.append(&mut self.info.warnings.lock().unwrap_or_else(PoisonError::into_inner));
        if ended {
            let path = self.path.display();
            warnings.extend(std::mem::take(&mut walk.unsupported).into_iter().map(|(link_type, packets)| {
                let name = link_type::name(link_type);
                format!("{path}: {packets} packets of link type {link_type} ({name}), which is not understood, count as non-IP")
            }));
        }
        warnings
    }

    fn notices(&self) -> Vec<String> {
        let empty = std::mem::take(&mut self.walk().empty);
        let notice = || format!("{}: the capture has no packets", self.path.display());
        empty.then(notice).into_iter().collect()
    }

    fn clock_step_ns(&self) -> u64 {
        let CaptureClock { granularity, unit_ns, .. } = &self.walk().clock;
        granularity.step_ns(*unit_ns)
    }

    fn progress(&self) -> Option<(u64, u64)> {
        match (&self.input, &self.info.progress) {
            (Input::File { length, .. }, _) => Some((self.walk().walker.offset(), *length)),
            (Input::Stream(_), Some((read, length))) => {
                Some((read.load(Ordering::Relaxed), *length))
            }
            (Input::Stream(_), None) => None,
        }
    }
}

/// One worker's port on a capture.
pub struct PcapPort {
    shared: Arc<Shared>,
    chunk: Chunk,
}

/// A chunk of the file: read, then walked in turn, possibly in several steps if the gate stops it.
#[derive(Default)]
struct Chunk {
    /// Data, shared with buffered packets of this chunk.
    buffer: Arc<Buffer>,
    /// Number of the chunk, once it was read.
    index: Option<u64>,
    /// Whether the file ends with it.
    last: bool,
    /// Error that ended the file, if any.
    failure: Option<io::Error>,
    /// Time that reading took.
    reading: Duration,
    /// Time at which its turn to be walked came.
    turn_began: Option<Instant>,
    /// Offset up to which it was walked.
    position: usize,
    /// Whether the capture ends in it and was walked to the end; packets may still be buffered.
    exhausted: bool,
}

/// Chunk memory, aligned for huge pages.
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Default for Buffer {
    fn default() -> Self {
        let mut bytes = vec![0; CHUNK + HUGE_PAGE];
        let start = bytes.as_ptr().align_offset(HUGE_PAGE).min(HUGE_PAGE);
        advise(&mut bytes[start..start + CHUNK]);
        Buffer { bytes, start, length: 0 }
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Buffer { start: 0, length: bytes.len(), bytes }
    }
}

impl Buffer {
    /// Returns the space for [`CHUNK`] bytes.
    fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + CHUNK]
    }

    fn has_room(&self) -> bool {
        self.bytes.len() == CHUNK + HUGE_PAGE
    }

    /// Returns the emptied memory, without the alignment.
    pub(super) fn emptied(mut self) -> Vec<u8> {
        self.bytes.clear();
        self.bytes
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }
}

/// Next task of a worker.
enum Claim<'a> {
    /// Count these released packets.
    Released(Segment, Busy<'a>),
    /// Walk over its chunk, of this number.
    Turn(u64),
    Nothing(Received),
}

fn claim<'a>(shared: &'a Shared, chunk: &mut Chunk) -> Claim<'a> {
    if let Some((segment, busy)) = shared.take_released(chunk.index) {
        return Claim::Released(segment, busy);
    }
    let index = match chunk.index.map_or_else(|| read_chunk(shared, chunk), Ok) {
        Ok(index) => index,
        Err(nothing) => return Claim::Nothing(nothing),
    };
    shared.read.fetch_max(index, Ordering::Relaxed);
    let mut spins = 0;
    while shared.turn.load(Ordering::Acquire) != index {
        if let Some((segment, busy)) = shared.take_released(None) {
            return Claim::Released(segment, busy);
        }
        if spins == TURN_SPINS {
            return Claim::Nothing(if shared.walk().ended {
                Received::Ended
            } else {
                Received::Idle
            });
        }
        spins += 1;
        std::hint::spin_loop();
    }
    chunk.turn_began.get_or_insert_with(Instant::now);
    Claim::Turn(index)
}

impl Port for PcapPort {
    fn receive(&mut self, sink: &mut impl FnMut(Frame<'_>)) -> Received {
        let Self { shared, chunk } = self;
        let mut segment = None;
        let (mut busy, mut packets, mut listed);
        let mut unwalked = None;
        match claim(shared, chunk) {
            Claim::Nothing(nothing) => return nothing,
            Claim::Released(released, begun) => {
                busy = begun;
                (packets, listed) = segment.insert(released).packets();
            }
            Claim::Turn(index) => {
                let mut walk = shared.walk();
                if walk.ended {
                    return Received::Ended;
                }
                let (outcome, Due { reader, passed, last }) = walk_chunk(shared, &mut walk, chunk);
                let passed = &chunk.buffer[passed];
                busy = shared.gate.begin();
                busy.last = last;
                match outcome {
                    Outcome::Blocked { next, limit } => shared.gate.block(next, limit),
                    Outcome::More | Outcome::Released | Outcome::Unwalked(_) => {}
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
                if shared.workers > 1
                    && matches!(outcome, Outcome::Released | Outcome::Done | Outcome::Ended)
                {
                    shared.gate.wake();
                }
                if passed.is_empty() {
                    return match outcome {
                        Outcome::Blocked { .. } => Received::Idle,
                        Outcome::More
                        | Outcome::Released
                        | Outcome::Unwalked(_)
                        | Outcome::Done => Received::Frames,
                        Outcome::Ended => Received::Ended,
                    };
                }
                if let Outcome::Unwalked(Bounds { floor, limit }) = outcome {
                    unwalked = reader.plain_in(passed, floor, limit);
                }
                (packets, listed) = (
                    reader.packets_in(if unwalked.is_some() { Default::default() } else { passed }),
                    Listed::default(),
                );
            }
        }
        let is_unwalked = unwalked.is_some();
        let mut plain = unwalked.unwrap_or_else(|| packets.take_plain());
        let unread = plain.left().0;
        // A dynamic call for each, so that the hot loop, which nearly always has plain frames,
        // keeps its variables in registers.
        let mut others: &mut dyn Iterator<Item = (Record, &[u8])> = &mut packets;
        let mut behind: Option<&mut dyn Iterator<Item = (Record, &[u8])>> = Some(&mut listed);
        let mut unsupported = BTreeMap::new();
        // One loop with one call, so that the sink is inlined; passed in parts, a frame need not be
        // in memory.
        loop {
            let (bytes, wire_length, timestamp, link) = match plain.next() {
                Some((record, bytes)) => (bytes, record.wire, record.timestamp, Link::Ethernet),
                None => {
                    let Some((record, bytes)) = others.next() else {
                        let Some(next) = behind.take() else { break };
                        others = next;
                        continue;
                    };
                    let (link, bytes) = match record.link {
                        Link::Unsupported => opened(record.link_type, bytes, &mut unsupported),
                        link => (link, bytes),
                    };
                    (bytes, record.wire, record.timestamp, link)
                }
            };
            sink(Frame { bytes, wire_length, timestamp, link });
        }
        if !unsupported.is_empty() {
            shared.walk().note(unsupported);
        }
        if is_unwalked {
            let (left, taken) = plain.left();
            let consumed = unread - left;
            chunk.position += consumed;
            busy.last = busy.last.max(Some(taken.latest));
            shared.walk().walker.took(consumed, taken);
        }
        if let Some(room) = segment.and_then(Segment::into_bytes).filter(Buffer::has_room) {
            shared.spare.push(room);
        }
        Received::Frames
    }

    fn work(self, duty: Duty) {
        duty.run(self);
    }
}

/// Returns the link layer and bytes of a frame whose link type needs decoding; counts unknown types
/// in `unsupported`.
// Out of the hot loop, which nearly always reads Ethernet.
#[cold]
#[inline(never)]
fn opened<'a>(
    link_type: u16,
    frame: &'a [u8],
    unsupported: &mut BTreeMap<u16, u64>,
) -> (Link, &'a [u8]) {
    open(link_type, frame).unwrap_or_else(|| {
        *unsupported.entry(link_type).or_insert(0) += 1;
        (Link::Unsupported, frame)
    })
}

/// Reads the next chunk.
fn read_chunk(shared: &Shared, chunk: &mut Chunk) -> Result<u64, Received> {
    let mut walk = shared.walk();
    if walk.ended {
        return Err(Received::Ended);
    }
    if Arc::strong_count(&chunk.buffer) > 1 {
        walk.held.settle();
    }
    drop(walk);
    if Arc::strong_count(&chunk.buffer) > 1 {
        chunk.buffer = Arc::new(shared.spare.pop().unwrap_or_default());
    }
    // The count of references is one, as checked above.
    let Some(buffer) = Arc::get_mut(&mut chunk.buffer) else { return Err(Received::Idle) };
    let start = Instant::now();
    let Piece { index, last, failure } = shared.input.read(buffer).ok_or(Received::Idle)?;
    chunk.reading = start.elapsed();
    chunk.turn_began = None;
    chunk.index = Some(index);
    chunk.last = last;
    chunk.failure = failure;
    chunk.position = 0;
    chunk.exhausted = false;
    Ok(index)
}

#[derive(Clone, Copy)]
enum Outcome {
    /// The next packet is at or beyond the gate's limit, and there is nothing to count before it.
    Blocked { next: u64, limit: u64 },
    /// Count the due packets before continuing in this chunk.
    More,
    /// Count the [released](Shared::released) packets.
    Released,
    /// Count without a walk: counting finds the end at the first packet outside these bounds.
    Unwalked(Bounds),
    /// The chunk was walked to its end.
    Done,
    /// The capture ends here, regularly or not.
    Ended,
}

/// Packets that may be counted.
struct Due {
    /// Parser state before the range.
    reader: Walker,
    /// Range within the chunk.
    passed: Range<usize>,
    /// Latest timestamp in it.
    last: Option<u64>,
}

/// Walks over a chunk up to the gate's limit, and ahead to packets that belong before it.
fn walk_chunk(shared: &Shared, walk: &mut Walk, chunk: &mut Chunk) -> (Outcome, Due) {
    let (gate, lateness) = (&shared.gate, shared.gate.lateness());
    let mut bounds = walk.first_timestamp.map(|first| gate.bounds(first));
    let mut due = Due { reader: Walker::new(), passed: chunk.position..chunk.position, last: None };
    loop {
        let Bounds { floor, limit } = bounds.unwrap_or_default();
        let released = walk.held.release(limit);
        if !released.is_empty() {
            released.into_iter().for_each(|segment| shared.released.push(segment));
            return (Outcome::Released, due);
        }
        if let Some(next) = walk.held.next()
            && bounds.is_some()
            && (chunk.exhausted || shared.is_past(walk, lateness, limit, next))
        {
            return (
                if due.passed.is_empty() {
                    Outcome::Blocked { next, limit }
                } else {
                    Outcome::More
                },
                due,
            );
        }
        if chunk.exhausted {
            return (Outcome::Ended, due);
        }
        if !walk.carry.is_empty() {
            match carry_on(walk, chunk, floor) {
                Carried::Packet { timestamp } if bounds.is_none() => {
                    bounds = Some(walk.begin(gate, timestamp))
                }
                Carried::Packet { .. } | Carried::Nothing => {}
                Carried::EndOfChunk if chunk.last => end(shared, walk, chunk),
                Carried::EndOfChunk => return (Outcome::Done, due),
                Carried::Damaged(damage) => damaged(shared, walk, chunk, damage),
            }
            continue;
        }
        if walk.clock.chunk != chunk.index {
            walk.clock.look(chunk.index, walk.walker.clone(), &chunk.buffer[chunk.position..]);
        }
        if due.passed.is_empty() {
            due.reader.clone_from(&walk.walker);
            due.passed = chunk.position..chunk.position;
        }
        // Fast path: no one is waiting for the boundary, so counting finds it.
        if let Some(within) =
            bounds.filter(|_| due.passed.is_empty() && !shared.is_waited_for(chunk))
        {
            let end = if shared.workers == 1 {
                chunk.buffer.len()
            } else {
                chunk.buffer.len().min(chunk.position + BLOCK)
            };
            let plain = walk.walker.plain_in(
                &chunk.buffer[chunk.position..end],
                within.floor,
                within.limit,
            );
            if plain.is_some_and(|mut plain| plain.next().is_some()) {
                due.passed.end = end;
                return (Outcome::Unwalked(within), due);
            }
        }
        // Until the first packet is known, stop at any packet.
        let Passed { consumed, run, stop } =
            walk.walker.pass(&chunk.buffer[chunk.position..], floor, limit);
        chunk.position += consumed;
        due.passed.end = chunk.position;
        if run.packets > 0 {
            due.last = due.last.max(Some(run.latest));
        }
        match stop {
            Stop::Limit { next } if bounds.is_none() => bounds = Some(walk.begin(gate, next)),
            // The due packets must be one contiguous range.
            Stop::Limit { .. } if !due.passed.is_empty() => return (Outcome::More, due),
            Stop::Limit { next } if next < floor => walk.skip_late(chunk),
            Stop::Limit { next } => match lateness {
                Some(lateness) => {
                    look_ahead(shared, walk, chunk, Bounds { floor, limit }, lateness, next)
                }
                None => return (Outcome::Blocked { next, limit }, due),
            },
            Stop::NeedMore { .. } => {
                walk.carry.extend_from_slice(&chunk.buffer[chunk.position..]);
                chunk.position = chunk.buffer.len();
                if !chunk.last {
                    return (Outcome::Done, due);
                }
                end(shared, walk, chunk);
            }
            Stop::Damaged(damage) => damaged(shared, walk, chunk, damage),
        }
    }
}

/// Result of completing a record that started in the previous chunk.
enum Carried {
    /// A packet, now buffered.
    Packet {
        timestamp: u64,
    },
    /// No packet, or a late one.
    Nothing,
    EndOfChunk,
    Damaged(Damage),
}

fn carry_on(walk: &mut Walk, chunk: &mut Chunk, floor: u64) -> Carried {
    match walk.walker.next(&walk.carry) {
        Step::Packet { record, consumed } => {
            let rest = walk.carry.split_off(consumed);
            let bytes = std::mem::replace(&mut walk.carry, rest);
            let timestamp = record.timestamp;
            if timestamp < floor {
                walk.late += 1;
                return Carried::Nothing;
            }
            walk.held.push(Segment::listed(bytes, vec![record]));
            Carried::Packet { timestamp }
        }
        Step::Skip { consumed } => {
            walk.carry.drain(..consumed);
            Carried::Nothing
        }
        Step::NeedMore { at_least } => {
            let unread = &chunk.buffer[chunk.position..];
            let missing = at_least.saturating_sub(walk.carry.len()).max(1);
            let taken = missing.min(unread.len());
            walk.carry.extend_from_slice(&unread[..taken]);
            chunk.position += taken;
            if taken < missing { Carried::EndOfChunk } else { Carried::Nothing }
        }
        Step::Damaged(damage) => Carried::Damaged(damage),
    }
}

/// Buffers packets from the walk's position on, until the limit can be considered as passed. The
/// result does not depend on how the capture is split into chunks. `next` is the timestamp of the
/// first packet, beyond the limit.
fn look_ahead(
    shared: &Shared,
    walk: &mut Walk,
    chunk: &mut Chunk,
    bounds: Bounds,
    lateness: u64,
    next: u64,
) {
    if !hold_run(walk, chunk, lateness, next) {
        hold_listed(shared, walk, chunk, bounds, lateness);
    }
}

/// Buffers the next packets as one run, up to the first that is later by the lateness, or earlier
/// than all buffered ones. Returns false if there are too few for a run.
fn hold_run(walk: &mut Walk, chunk: &mut Chunk, lateness: u64, next: u64) -> bool {
    let next = walk.held.next().map_or(next, |held| held.min(next));
    // A buffered packet takes at most twice the size of its record in the file, whose header has 16
    // bytes.
    const { assert!(size_of::<Record>() <= 32) };
    let most = RUN_BYTES.min(held::MAX_BYTES.saturating_sub(walk.held.bytes()) / 2);
    let unread = &chunk.buffer[chunk.position..];
    let unread = &unread[..unread.len().min(most)];
    let mut behind = walk.walker.clone();
    let Passed { consumed, run, .. } = behind.pass(unread, next, next.saturating_add(lateness));
    if run.packets < RUN {
        return false;
    }
    let before = std::mem::replace(&mut walk.walker, behind);
    let place = chunk.position..chunk.position + consumed;
    walk.held.push(Segment::run(Arc::clone(&chunk.buffer), place, before, run));
    chunk.position += consumed;
    true
}

/// Buffers packets one by one.
fn hold_listed(
    shared: &Shared,
    walk: &mut Walk,
    chunk: &mut Chunk,
    Bounds { floor, limit }: Bounds,
    lateness: u64,
) {
    let unread = &chunk.buffer[chunk.position..];
    let (mut seen, mut held, mut records) = (0, walk.held.bytes(), Vec::new());
    let horizon = |next: u64| limit.max(next).saturating_add(lateness);
    let mut next = walk.held.next().unwrap_or(u64::MAX);
    let mut beyond = walk.held.beyond(horizon(next));
    while records.is_empty()
        || (beyond < shared.witnesses && held < held::MAX_BYTES && records.len() < LISTED)
    {
        match walk.walker.next(&unread[seen..]) {
            Step::Packet { record, consumed } => {
                let timestamp = record.timestamp;
                if timestamp < floor {
                    walk.late += 1;
                } else {
                    records.push(Record { start: record.start + seen as u32, ..record });
                }
                if timestamp >= limit {
                    held += held::cost(&record);
                    if timestamp < next {
                        next = timestamp;
                        let later = |record: &&Record| record.timestamp >= horizon(next);
                        beyond =
                            walk.held.beyond(horizon(next)) + records.iter().filter(later).count();
                    } else {
                        beyond += usize::from(timestamp >= horizon(next));
                    }
                }
                seen += consumed;
            }
            Step::Skip { consumed } => seen += consumed,
            // The walk handles this position again.
            Step::NeedMore { .. } | Step::Damaged(_) => break,
        }
    }
    walk.held.push(Segment::listed(unread[..seen].to_vec(), records));
    chunk.position += seen;
}

fn damaged(shared: &Shared, walk: &mut Walk, chunk: &mut Chunk, damage: Damage) {
    walk.warnings.push(format!("{}: {damage}", shared.path.display()));
    chunk.exhausted = true;
}

/// Handles the end of the file at the walk's position.
fn end(shared: &Shared, walk: &mut Walk, chunk: &mut Chunk) {
    let problem = match chunk.failure.take() {
        Some(error) => Some(format!("cannot read on: {error}")),
        None => walk.walker.finish(&walk.carry).err().map(|damage| damage.to_string()),
    };
    walk.empty = problem.is_none() && walk.walker.packets() == 0;
    walk.warnings.extend(problem.map(|problem| format!("{}: {problem}", shared.path.display())));
    chunk.exhausted = true;
}

impl Walk {
    /// Sets the first timestamp and returns the gate's bounds.
    fn begin(&mut self, gate: &Gate, timestamp: u64) -> Bounds {
        self.first_timestamp = Some(timestamp);
        gate.bounds(timestamp)
    }

    /// Skips the late packet at the walk's position.
    fn skip_late(&mut self, chunk: &mut Chunk) {
        if let Step::Packet { consumed, .. } = self.walker.next(&chunk.buffer[chunk.position..]) {
            self.late += 1;
            chunk.position += consumed;
        }
    }

    /// Adds frames of unsupported link types, which are counted as non-IP and reported once.
    /// `packets` are per link type.
    fn note(&mut self, packets: BTreeMap<u16, u64>) {
        for (link_type, packets) in packets {
            *self.unsupported.entry(link_type).or_default() += packets;
        }
    }
}
