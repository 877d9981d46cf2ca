//! Merge of several captures in the order of their packets' timestamps.
//!
//! A thread walks through all captures and passes on the earliest of their next packets. While one
//! capture is ahead of all others, as always where captures follow each other, whole pieces of it
//! are passed on as they were read; otherwise packets are copied into a [list](PacketList). Every
//! capture keeps its own order, even if its packets are out of order. A capture is open only from
//! its first packet to its last: any number of consecutive captures take one file descriptor at a
//! time.

use super::buffer::{Buffer, CHUNK};
use super::input::{ChunkSink, CountedReads, Input, open_file, read_head};
use crate::capture::{
    PacketList, PacketRecord, PassResult, Step, StopReason, TimeRange, Walker, decompress,
    read_full,
};
use crate::error::Error;
use crate::open_files;
use crate::poll::gate::Gate;
use crate::poll::threads::lock;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes of a capture that are read at once. As many captures may be open, more are read only
/// while one capture is ahead of all others.
const WINDOW: usize = 1 << 16;
const WINDOW_AHEAD: usize = 1 << 18;
/// Packets of one capture in a row after which it may be ahead of all others for long.
const PACKETS_AHEAD: u32 = 32;

/// A capture to count, alone or merged with others.
pub struct Capture {
    path: PathBuf,
    source: Source,
}

enum Source {
    /// A file, which can be reopened.
    File { length: u64 },
    /// A pipe, which cannot.
    Once(Box<dyn Read + Send>),
}

impl Capture {
    /// Opens the capture in a file or named pipe.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be opened.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let source = match open_file(path)? {
            (_, Some(length)) => Source::File { length },
            (pipe, None) => Source::Once(Box::new(widened(pipe))),
        };
        Ok(Capture { path: path.to_owned(), source })
    }

    /// Opens the capture that arrives on standard input.
    ///
    /// # Errors
    /// [`Error::File`] if there is no standard input.
    pub fn standard_input() -> Result<Self, Error> {
        const NAME: &str = "standard input";
        let opened = io::stdin().as_fd().try_clone_to_owned();
        let opened = opened.map_err(|source| Error::File {
            operation: "open",
            path: NAME.into(),
            source,
        })?;
        Ok(Self::reader(widened(File::from(opened)), NAME))
    }

    /// Creates a capture that arrives through a pipe.
    #[must_use]
    pub fn reader(reader: impl Read + Send + 'static, name: &str) -> Self {
        Capture { path: name.into(), source: Source::Once(Box::new(reader)) }
    }
}

/// Creates the input of captures.
pub(super) fn input(captures: Vec<Capture>, gate: &Arc<Gate>) -> Result<Input, Error> {
    let captures = match <[Capture; 1]>::try_from(captures) {
        Ok([Capture { path, source: Source::File { length } }]) => {
            return Input::of_file(path, length, gate);
        }
        Ok([Capture { path, source: Source::Once(reader) }]) => {
            return Input::of_reader(reader, path, gate);
        }
        Err(captures) => captures,
    };
    let name = match captures.split_first() {
        Some((first, others)) => format!("{} and {} more", first.path.display(), others.len()),
        None => "no captures".to_owned(),
    };
    open_files::raise_limit();
    let total = captures.iter().try_fold(0_u64, |total, capture| match capture.source {
        Source::File { length } => Some(total.saturating_add(length)),
        Source::Once(_) => None,
    });
    let mut merge = Merge::default();
    let mut failures = Vec::new();
    for capture in captures {
        match merge.add(capture) {
            Ok(()) => {}
            Err(error @ Error::NotACapture { .. }) => failures.push(error),
            Err(error) => return Err(error),
        }
    }
    if merge.tracks.is_empty()
        && let Some(error) = failures.pop()
    {
        return Err(error);
    }
    failures.iter().for_each(|error| merge.warn(error.to_string()));
    let (read, drops, unit_ns) = (Arc::clone(&merge.read), Arc::clone(&merge.drops), merge.unit_ns);
    let warnings = Arc::clone(&merge.warnings);
    let run = move |sink: &mut ChunkSink<'_>| {
        // `None`: the ports are gone.
        let _ = merge.run(&mut Chunks { list: PacketList::default(), sink });
    };
    let mut input =
        Input::of_thread("capture-merger", run, name.into(), gate).with_total(read, total);
    (input.warnings, input.drops, input.unit_ns) = (warnings, Some(drops), unit_ns);
    Ok(input)
}

/// Largest pipe buffer without root, in bytes.
const PIPE: i32 = 1 << 20;

/// Enlarges the buffer of a pipe, so that writer and reader wait for each other less often. Refusal
/// is harmless.
fn widened(file: File) -> File {
    let _ = nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_SETPIPE_SZ(PIPE));
    file
}

/// One capture of the merge.
struct MergedCapture {
    path: PathBuf,
    /// `None` for a file whose first packet is known, until that packet's turn.
    open: Option<Box<Open>>,
}

/// A capture that is being read.
struct Open {
    reader: Box<dyn Read + Send>,
    /// Error after which nothing more can be read.
    failure: Option<io::Error>,
    walker: Walker,
    buffer: Vec<u8>,
    /// Offset of the unread bytes in the buffer.
    start: usize,
    /// Packet at that offset, and its length in the file; without a packet, the problem that ended
    /// the capture, if any.
    next: Result<(PacketRecord, usize), Option<String>>,
}

impl Open {
    /// Opens a capture at its start.
    fn new(reader: impl Read + Send + 'static, path: &Path) -> Result<Self, Error> {
        let mut reader = decompress(reader);
        let buffer = read_head(&mut reader, path)?;
        let (walker, next) = (Walker::new(), Err(None));
        Ok(Open { reader, failure: None, walker, buffer, start: 0, next })
    }

    fn unread(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }

    /// Parses the next packet.
    fn advance(&mut self) {
        self.next = loop {
            match self.walker.next(self.buffer.get(self.start..).unwrap_or_default()) {
                Step::Packet { record, consumed } => break Ok((record, consumed)),
                Step::Skip { consumed } => self.start += consumed,
                Step::Damaged(damage) => break Err(Some(damage.to_string())),
                Step::NeedMore { at_least } => {
                    if !self.fill(at_least, WINDOW) {
                        break Err(self.end());
                    }
                }
            }
        };
    }

    /// Reads until there are `at_least` unread bytes, and up to `window` if there are more; returns
    /// false at the end of the input.
    fn fill(&mut self, at_least: usize, window: usize) -> bool {
        self.buffer.drain(..self.start);
        self.start = 0;
        let unread = self.buffer.len();
        if self.failure.is_none() {
            self.buffer.resize(at_least.max(window), 0);
            let (read, failure) =
                read_full(&mut self.reader, self.buffer.get_mut(unread..).unwrap_or_default());
            self.buffer.truncate(unread + read);
            self.failure = failure;
        }
        self.buffer.len() >= at_least
    }

    /// Passes on the unread bytes as they are, as long as all packets in them are before `limit`;
    /// `None` once the ports are gone.
    fn pass_on(&mut self, limit: u64, out: &mut Chunks<'_, '_>) -> Option<()> {
        let (before_limit, mut window) = (TimeRange::new(0, limit), WINDOW);
        loop {
            let before = self.walker.clone();
            let PassResult { consumed, run, stop } =
                self.walker.pass(self.buffer.get(self.start..).unwrap_or_default(), before_limit);
            let StopReason::NeedMore { at_least } = stop else {
                self.walker = before;
                return Some(());
            };
            if run.packets == 0 {
                self.start += consumed;
            } else {
                let rest = self.unread().get(consumed..).unwrap_or_default().to_vec();
                let bytes = std::mem::replace(&mut self.buffer, rest);
                let start = std::mem::take(&mut self.start);
                out.chunk(Buffer::part(bytes, start, consumed), before)?;
                window = WINDOW_AHEAD;
            }
            if !self.fill(at_least, window) {
                return Some(());
            }
        }
    }

    /// Returns the problem that ended the capture, if any.
    fn end(&mut self) -> Option<String> {
        match self.failure.take() {
            Some(error) => Some(format!("cannot read on: {error}")),
            None => self.walker.finish(&self.buffer).err().map(|damage| damage.to_string()),
        }
    }
}

/// State of the merge of all captures.
#[derive(Default)]
struct Merge {
    tracks: Vec<MergedCapture>,
    /// Timestamp of the next packet of each capture, with its index, which breaks ties.
    turns: BinaryHeap<Reverse<(u64, usize)>>,
    read: Arc<AtomicU64>,
    warnings: Arc<Mutex<Vec<String>>>,
    drops: Arc<AtomicU64>,
    /// Coarsest timestamp unit of the captures.
    unit_ns: u64,
}

impl Merge {
    fn add(&mut self, capture: Capture) -> Result<(), Error> {
        let Capture { path, source } = capture;
        let (mut open, stays_open) = match source {
            Source::File { .. } => (Open::new(open_file(&path)?.0, &path)?, false),
            Source::Once(reader) => (Open::new(reader, &path)?, true),
        };
        open.advance();
        self.unit_ns = self.unit_ns.max(open.walker.unit_ns());
        // Without a packet its turn is first, so that problems are reported first.
        let timestamp = open.next.as_ref().map_or(0, |(record, _)| record.timestamp);
        self.turns.push(Reverse((timestamp, self.tracks.len())));
        self.tracks.push(MergedCapture { path, open: stays_open.then(|| Box::new(open)) });
        Ok(())
    }

    fn warn(&self, warning: String) {
        lock(&self.warnings).push(warning);
    }

    /// Passes all packets to the workers; `None` once the ports are gone.
    fn run(mut self, out: &mut Chunks<'_, '_>) -> Option<()> {
        let mut tracks = std::mem::take(&mut self.tracks);
        while let Some(Reverse((_, index))) = self.turns.pop() {
            let others = self.turns.peek().map(|Reverse(turn)| *turn);
            let limit = others
                .map_or(u64::MAX, |(time, other)| time.saturating_add(u64::from(index < other)));
            let Some(track) = tracks.get_mut(index) else { continue };
            if track.open.is_none() {
                let opened = open_file(&track.path).and_then(|(file, _)| {
                    let counted = CountedReads { file, read: Arc::clone(&self.read) };
                    Open::new(counted, &track.path)
                });
                match opened {
                    Ok(mut open) => {
                        // It often begins when the others have ended.
                        open.pass_on(limit, out)?;
                        open.advance();
                        track.open = Some(Box::new(open));
                    }
                    Err(error) => {
                        self.warn(error.to_string());
                        continue;
                    }
                }
            }
            let Some(open) = &mut track.open else { continue };
            let mut in_a_row = 0;
            // While it is this capture's turn; the file may have changed since its first packet was
            // read.
            while let Ok((record, consumed)) = open.next {
                let turn = (record.timestamp, index);
                if others.is_some_and(|others| others < turn) {
                    self.turns.push(Reverse(turn));
                    break;
                }
                out.packet(&record, record.frame(open.unread()))?;
                open.start += consumed;
                in_a_row += 1;
                if in_a_row == PACKETS_AHEAD {
                    open.pass_on(limit, out)?;
                }
                open.advance();
            }
            if let Err(problem) = &open.next {
                if let Some(problem) = problem {
                    self.warn(format!("{}: {problem}", track.path.display()));
                }
                self.drops.fetch_add(open.walker.drops(), Ordering::Relaxed);
                track.open = None;
            }
        }
        // The last chunk ends between packets, whatever became of the last capture.
        out.flush()
    }
}

/// Writer of the merged packets, in chunks.
struct Chunks<'a, 'b> {
    /// Packets not yet passed on.
    list: PacketList,
    sink: &'a mut ChunkSink<'b>,
}

impl Chunks<'_, '_> {
    /// Writes a copy of a packet; `None` once the ports are gone.
    fn packet(&mut self, record: &PacketRecord, frame: &[u8]) -> Option<()> {
        if self.list.bytes.len() + frame.len() >= CHUNK {
            self.flush()?;
        }
        self.list.push(record, frame);
        Some(())
    }

    /// Writes whole records after all packets before them; `walker` is the parser state before
    /// them.
    fn chunk(&mut self, buffer: Buffer, walker: Walker) -> Option<()> {
        if !self.list.records.is_empty() {
            self.flush()?;
        }
        (self.sink)(Ok((buffer, Some(walker)))).map(drop)
    }

    /// Passes on the list, even if it is empty.
    fn flush(&mut self) -> Option<()> {
        let (bytes, walker) = std::mem::take(&mut self.list).into_parts();
        let room = (self.sink)(Ok((bytes.into(), Some(walker))))?;
        self.list = PacketList::with_memory(room.bytes);
        Some(())
    }
}
