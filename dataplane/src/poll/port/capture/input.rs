//! Input of a capture port: files, pipes and decompression.
//!
//! An [`Input`] is read in [`Chunk`]s, which workers take in turn. Chunks of a file are read by the
//! workers themselves, in parallel. Everything else is read by a thread of its own, which passes
//! chunks through a queue: a read from a pipe may block indefinitely, which a worker must not.

use super::buffer::{Buffer, CHUNK};
use crate::capture::{Compression, Step, Walker, decompress, read_full};
use crate::error::Error;
use crate::poll::gate::Gate;
use crate::poll::threads::lock;
use crossbeam::channel::{Receiver, Sender, TryRecvError, bounded};
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// [Quorum](Input::witnesses) in a file, where reading ahead is cheap.
const WITNESSES: usize = 1000;
/// Quorum in a pipe, which may be silent for long.
const WITNESSES_LIVE: usize = 3;
/// Chunks that may be queued.
const QUEUED: usize = 4;

/// A capture that is being read, or several of them merged.
pub(super) struct Input {
    pub(super) path: PathBuf,
    reader: Reader,
    /// Number of packets beyond the lateness that proves that a time has passed. A single packet
    /// may have a wrong timestamp.
    pub(super) witnesses: usize,
    /// Bytes read, and their total.
    progress: Option<(Arc<AtomicU64>, u64)>,
    /// Warnings, one line each.
    pub(super) warnings: Arc<Mutex<Vec<String>>>,
    /// Packets that the captures report as dropped, if chunks do not show it.
    pub(super) drops: Option<Arc<AtomicU64>>,
    /// Coarsest unit of the timestamps, in nanoseconds, if chunks do not show it.
    pub(super) unit_ns: u64,
}

enum Reader {
    File { file: File, length: u64, next: AtomicU64 },
    Queue(Mutex<Queue>),
}

/// Receiving end of a thread that reads.
struct Queue {
    chunks: Receiver<io::Result<QueuedChunk>>,
    /// Processed buffers for reuse: new memory would have to be zeroed.
    used: Sender<Buffer>,
    next: u64,
}

/// Bytes of at most [`CHUNK`], with the parser state before them unless they continue the previous
/// ones.
type QueuedChunk = (Buffer, Option<Walker>);

/// Passes a chunk to the workers and returns a buffer for the next one; `None` once the ports are
/// gone.
pub(super) type ChunkSink<'a> = dyn FnMut(io::Result<QueuedChunk>) -> Option<Buffer> + 'a;

/// A chunk of the input: read, then walked in turn, possibly in several steps if the gate stops it.
#[derive(Default)]
pub(super) struct Chunk {
    /// Data, shared with buffered packets of this chunk.
    pub(super) buffer: Arc<Buffer>,
    /// Parser state at its start, unless it continues the previous chunk.
    pub(super) walker: Option<Walker>,
    /// Number of the chunk, once it was read.
    pub(super) index: Option<u64>,
    /// Whether the input ends with it.
    pub(super) last: bool,
    /// Error that ended the input, if any.
    pub(super) failure: Option<io::Error>,
    /// Time that reading took.
    pub(super) reading: Duration,
    /// Time at which its turn to be walked came.
    pub(super) turn_began: Option<Instant>,
    /// Offset up to which it was walked.
    pub(super) position: usize,
    /// Whether the capture ends in it and was walked to the end; packets may still be buffered.
    pub(super) exhausted: bool,
}

impl Input {
    /// Opens a capture file of this length, which may be compressed.
    pub(super) fn of_file(path: PathBuf, length: u64, gate: &Arc<Gate>) -> Result<Self, Error> {
        let (file, _) = open_file(&path)?;
        let mut head = [0; Compression::HEAD];
        let (filled, _) = read_at(&file, 0, &mut head);
        if Compression::of(head.get(..filled).unwrap_or_default()).is_some() {
            let read = Arc::new(AtomicU64::new(0));
            let counted = CountedReads { file, read: Arc::clone(&read) };
            let input = Input::of_reader(counted, path, gate)?;
            return Ok(input.with_total(read, Some(length)));
        }
        // Moves the file's position, which no other code uses.
        read_head(&mut &file, &path)?;
        let reader = Reader::File { file, length, next: AtomicU64::new(0) };
        Ok(Input { witnesses: WITNESSES, ..Input::new(path, reader) })
    }

    /// Creates the input of a capture that arrives through a pipe, compressed or not. Returns once
    /// its header has arrived.
    pub(super) fn of_reader(
        reader: impl Read + Send + 'static,
        path: PathBuf,
        gate: &Arc<Gate>,
    ) -> Result<Self, Error> {
        let mut reader = decompress(reader);
        let head = read_head(&mut reader, &path)?;
        let mut whole = Cursor::new(head).chain(reader);
        let read = move |sink: &mut ChunkSink<'_>| {
            let mut room = Some(Buffer::default());
            while let Some(mut buffer) = room {
                room = match whole.read(buffer.room()) {
                    Ok(0) => return,
                    Ok(length) => {
                        buffer.length = length;
                        sink(Ok((buffer, None)))
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => Some(buffer),
                    Err(error) => {
                        sink(Err(error));
                        return;
                    }
                };
            }
        };
        Ok(Input::of_thread("pipe-reader", read, path, gate))
    }

    /// Creates an input whose chunks are produced by a thread of its own.
    pub(super) fn of_thread(
        name: &str,
        produce: impl FnOnce(&mut ChunkSink<'_>) + Send + 'static,
        path: PathBuf,
        gate: &Arc<Gate>,
    ) -> Self {
        let (sender, chunks) = bounded(QUEUED);
        let (used, spares) = bounded(2 * QUEUED);
        let (failed, gate) = (sender.clone(), Arc::clone(gate));
        let run = move || {
            produce(&mut |chunk| {
                // There is no receiver once the ports are gone.
                let received = sender.send(chunk).is_ok();
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
        Input::new(path, Reader::Queue(Mutex::new(Queue { chunks, used, next: 0 })))
    }

    fn new(path: PathBuf, reader: Reader) -> Self {
        Input {
            path,
            reader,
            witnesses: WITNESSES_LIVE,
            progress: None,
            warnings: Arc::default(),
            drops: None,
            unit_ns: 0,
        }
    }

    /// Sets the counter of bytes read and their total, if there is no pipe among the inputs: a file
    /// can be read ahead at any time, a pipe only when it has data.
    pub(super) fn with_total(self, read: Arc<AtomicU64>, total: Option<u64>) -> Self {
        let Some(total) = total else { return self };
        Input { witnesses: WITNESSES, progress: Some((read, total)), ..self }
    }

    /// Reads the next chunk into a buffer that no packets reference; returns false if a pipe has no
    /// data yet.
    pub(super) fn read(&self, chunk: &mut Chunk) -> bool {
        let Some(buffer) = Arc::get_mut(&mut chunk.buffer) else { return false };
        let start = Instant::now();
        (chunk.walker, chunk.failure) = (None, None);
        match &self.reader {
            Reader::File { file, next, .. } => {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let (length, failure) = read_at(file, index * CHUNK as u64, buffer.room());
                buffer.length = length;
                (chunk.index, chunk.last) = (Some(index), length < CHUNK);
                chunk.failure = failure;
            }
            Reader::Queue(queue) => {
                let mut queue = lock(queue);
                chunk.last = match queue.chunks.try_recv() {
                    Ok(Ok((new, walker))) => {
                        chunk.walker = walker;
                        // If the queue of spare buffers is full, this one is not needed.
                        let _ = queue.used.try_send(std::mem::replace(buffer, new));
                        false
                    }
                    Ok(Err(error)) => {
                        chunk.failure = Some(error);
                        true
                    }
                    Err(TryRecvError::Disconnected) => true,
                    Err(TryRecvError::Empty) => return false,
                };
                if chunk.last {
                    buffer.length = 0;
                }
                chunk.index = Some(queue.next);
                queue.next += 1;
            }
        }
        chunk.reading = start.elapsed();
        (chunk.turn_began, chunk.position, chunk.exhausted) = (None, 0, false);
        true
    }

    /// Returns how many bytes were read, and their total; `walked` is the offset of the walk.
    pub(super) fn progress(&self, walked: u64) -> Option<(u64, u64)> {
        match (&self.reader, &self.progress) {
            (Reader::File { length, .. }, _) => Some((walked, *length)),
            (Reader::Queue(_), Some((read, total))) => Some((read.load(Ordering::Relaxed), *total)),
            (Reader::Queue(_), None) => None,
        }
    }
}

/// Opens a file, and returns its length in bytes; `None` for a pipe or a device.
pub(super) fn open_file(path: &Path) -> Result<(File, Option<u64>), Error> {
    let fail = |source| Error::File { operation: "open", path: path.to_owned(), source };
    let file = File::open(path).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    if metadata.is_dir() {
        return Err(fail(io::Error::from(io::ErrorKind::IsADirectory)));
    }
    Ok((file, metadata.is_file().then_some(metadata.len())))
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
pub(super) fn read_head(reader: &mut impl Read, path: &Path) -> Result<Vec<u8>, Error> {
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
