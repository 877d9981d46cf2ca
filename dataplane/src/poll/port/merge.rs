//! Merge of several captures in the order of their packets' timestamps.
//!
//! A thread walks through all captures and repeatedly writes the earliest of their next packets
//! into a pcapng stream, which the workers read like a pipe. Every capture keeps its own order,
//! even if its packets are out of order. A capture is open only from its first packet to its last:
//! any number of consecutive captures take one file descriptor at a time.

use super::Ports;
use super::pcap::{
    Buffer, CHUNK, CountedReads, InputInfo, PcapPort, PieceSink, WITNESSES, WITNESSES_LIVE, begin,
    open_file, pcap, pieces_of, ports, reader_ports, unit_ns,
};
use crate::capture::{Damage, Record, Step, Walker, block, decompress, read_full};
use crate::error::Error;
use crate::poll::gate::Pace;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a capture that are read at once.
const WINDOW: usize = 1 << 16;

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
        let opened = open_file(path)?;
        let source = match opened.length {
            Some(length) => Source::File { length },
            None => Source::Once(Box::new(widened(opened.file))),
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

    /// Returns its length in bytes, if known.
    fn length(&self) -> Option<u64> {
        match self.source {
            Source::File { length } => Some(length),
            Source::Once(_) => None,
        }
    }

    /// Creates a capture that arrives through a pipe.
    #[must_use]
    pub fn reader(reader: impl Read + Send + 'static, name: &str) -> Self {
        Capture { path: name.into(), source: Source::Once(Box::new(reader)) }
    }
}

/// Creates ports on captures, merged by the timestamps of their packets.
///
/// # Errors
/// As [`pcap`]. Of several captures, those without a capture header are reported as
/// [warnings](crate::Event::Warning), unless there is no other.
pub fn captures(
    captures: Vec<Capture>,
    workers: usize,
    pace: Pace,
) -> Result<Ports<PcapPort>, Error> {
    let captures = match <[Capture; 1]>::try_from(captures) {
        Ok([Capture { path, source: Source::File { .. } }]) => return pcap(&path, workers, pace),
        Ok([Capture { path, source: Source::Once(reader) }]) => {
            return reader_ports(reader, path, None, workers, pace);
        }
        Err(captures) => captures,
    };
    let name = match captures.split_first() {
        Some((first, others)) => format!("{} and {} more", first.path.display(), others.len()),
        None => "no captures".to_owned(),
    };
    raise_limit();
    let total = captures
        .iter()
        .map(Capture::length)
        .try_fold(0_u64, |total, length| Some(total.saturating_add(length?)));
    let read = Arc::new(AtomicU64::new(0));
    // Without a pipe among them, reading ahead is cheap.
    let witnesses = if total.is_some() { WITNESSES } else { WITNESSES_LIVE };
    let info = InputInfo {
        progress: total.map(|total| (Arc::clone(&read), total)),
        ..InputInfo::new(witnesses)
    };
    let mut merge = Merge::new(read, &info);
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
    let info = InputInfo { unit_ns: merge.unit_ns, ..info };
    Ok(ports(
        |gate| pieces_of("capture-merger", |hand| merge.run(hand), gate),
        name.into(),
        info,
        workers,
        pace,
    ))
}

/// Largest pipe buffer without root, in bytes.
const PIPE: i32 = 1 << 20;

/// Enlarges the buffer of a pipe, so that writer and reader wait for each other less often. Refusal
/// is harmless.
fn widened(file: File) -> File {
    #[cfg(target_os = "linux")]
    let _ = nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_SETPIPE_SZ(PIPE));
    file
}

/// Raises the limit of open files to the maximum: captures that overlap in time are open at once.
fn raise_limit() {
    #[cfg(target_os = "linux")]
    {
        use nix::sys::resource::{Resource, getrlimit, setrlimit};
        if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
            && soft < hard
        {
            // If this fails, captures that cannot be opened are reported.
            let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        }
    }
}

/// One capture of the merge.
struct Track {
    path: PathBuf,
    state: TrackState,
}

enum TrackState {
    /// Positioned at a known first packet, with its file closed until that packet's turn.
    Closed,
    Open(Box<Open>),
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
    /// Packet at that offset, and its length in the file.
    next: Result<(Record, usize), Ended>,
}

/// Reason why a capture has no next packet.
enum Ended {
    InOrder,
    Damaged(Damage),
    Failed(io::Error),
}

impl Open {
    /// Opens a capture at its first packet.
    fn new(reader: impl Read + Send + 'static, path: &Path) -> Result<Self, Error> {
        let mut reader = decompress(reader);
        let buffer = begin(&mut reader, path)?;
        let mut open = Open {
            reader,
            failure: None,
            walker: Walker::new(),
            buffer,
            start: 0,
            next: Err(Ended::InOrder),
        };
        open.advance(0);
        Ok(open)
    }

    /// Returns the timestamp of the next packet; 0 if there is none, so that problems are reported
    /// first.
    fn timestamp(&self) -> u64 {
        self.next.as_ref().map_or(0, |(record, _)| record.timestamp)
    }

    /// Skips `consumed` bytes and parses the next packet.
    fn advance(&mut self, consumed: usize) {
        self.start += consumed;
        self.next = loop {
            match self.walker.next(self.buffer.get(self.start..).unwrap_or_default()) {
                Step::Packet { record, consumed } => break Ok((record, consumed)),
                Step::Skip { consumed } => self.start += consumed,
                Step::Damaged(damage) => break Err(Ended::Damaged(damage)),
                Step::NeedMore { at_least } => {
                    if !self.fill(at_least) {
                        break Err(self.end());
                    }
                }
            }
        };
    }

    /// Reads until there are `at_least` unread bytes; returns false at the end of the input.
    fn fill(&mut self, at_least: usize) -> bool {
        self.buffer.drain(..self.start);
        self.start = 0;
        let kept = self.buffer.len();
        if self.failure.is_none() {
            self.buffer.resize(at_least.max(WINDOW), 0);
            let (read, failure) =
                read_full(&mut self.reader, self.buffer.get_mut(kept..).unwrap_or_default());
            self.buffer.truncate(kept + read);
            self.failure = failure;
        }
        self.buffer.len() >= at_least
    }

    fn end(&mut self) -> Ended {
        match (self.failure.take(), self.walker.finish(&self.buffer)) {
            (Some(failure), _) => Ended::Failed(failure),
            (None, Err(damage)) => Ended::Damaged(damage),
            (None, Ok(())) => Ended::InOrder,
        }
    }
}

/// State of the merge of all captures.
struct Merge {
    tracks: Vec<Track>,
    /// Timestamp of the next packet of each capture, with its index, which breaks ties.
    turns: BinaryHeap<Reverse<(u64, usize)>>,
    read: Arc<AtomicU64>,
    warnings: Arc<Mutex<Vec<String>>>,
    drops: Arc<AtomicU64>,
    /// Coarsest timestamp unit of the captures, all of which are converted to nanoseconds.
    unit_ns: u64,
    out: Blocks,
}

impl Merge {
    fn new(read: Arc<AtomicU64>, info: &InputInfo) -> Self {
        let (warnings, drops) = (Arc::clone(&info.warnings), Arc::clone(&info.drops));
        Merge {
            tracks: Vec::new(),
            turns: BinaryHeap::new(),
            read,
            warnings,
            drops,
            unit_ns: 0,
            out: Blocks::new(),
        }
    }

    fn add(&mut self, capture: Capture) -> Result<(), Error> {
        let Capture { path, source } = capture;
        let (open, again) = match source {
            Source::File { .. } => (Open::new(open_file(&path)?.file, &path)?, true),
            Source::Once(reader) => (Open::new(reader, &path)?, false),
        };
        self.unit_ns = self.unit_ns.max(unit_ns(&open.walker));
        let timestamp = open.timestamp();
        let state = if again { TrackState::Closed } else { TrackState::Open(Box::new(open)) };
        self.turns.push(Reverse((timestamp, self.tracks.len())));
        self.tracks.push(Track { path, state });
        Ok(())
    }

    fn warn(&self, warning: String) {
        warn(&self.warnings, warning);
    }

    /// Passes all packets to the workers.
    fn run(self, hand: &mut PieceSink<'_>) {
        let Merge { mut tracks, mut turns, read, warnings, drops, mut out, .. } = self;
        while let Some(Reverse((_, index))) = turns.pop() {
            let others = turns.peek().map(|Reverse(turn)| *turn);
            let Some(track) = tracks.get_mut(index) else { continue };
            let open = match &mut track.state {
                TrackState::Open(open) => open,
                TrackState::Closed => match open_again(&track.path, &read) {
                    Ok(open) => {
                        track.state = TrackState::Open(Box::new(open));
                        let TrackState::Open(open) = &mut track.state else { continue };
                        open
                    }
                    Err(warning) => {
                        warn(&warnings, warning);
                        continue;
                    }
                },
            };
            // While it is this capture's turn; the file may have changed since its first packet was
            // read.
            while let Ok((record, consumed)) = open.next {
                let turn = (record.timestamp, index);
                if others.is_some_and(|others| others < turn) {
                    turns.push(Reverse(turn));
                    break;
                }
                let bytes = open.buffer.get(open.start..).unwrap_or_default();
                if !out.packet(&record, record.frame(bytes), hand) {
                    return;
                }
                open.advance(consumed);
            }
            if let Err(ended) = &open.next {
                let warning = match ended {
                    Ended::InOrder => None,
                    Ended::Damaged(damage) => Some(format!("{}: {damage}", track.path.display())),
                    Ended::Failed(error) => {
                        Some(format!("{}: cannot read on: {error}", track.path.display()))
                    }
                };
                drops.fetch_add(open.walker.drops(), Ordering::Relaxed);
                track.state = TrackState::Closed;
                warning.into_iter().for_each(|warning| warn(&warnings, warning));
            }
        }
        out.flush(hand);
    }
}

fn warn(warnings: &Mutex<Vec<String>>, warning: String) {
    warnings.lock().unwrap_or_else(PoisonError::into_inner).push(warning);
}

/// Reopens a file that was examined before.
fn open_again(path: &Path, read: &Arc<AtomicU64>) -> Result<Open, String> {
    // EMFILE and ENFILE.
    const TOO_MANY: [Option<i32>; 2] = [Some(24), Some(23)];
    open_file(path).and_then(|opened| Open::new(CountedReads { file: opened.file, read: Arc::clone(read) }, path)).map_err(
        |error| {
            let too_many = matches!(&error, Error::File { source, .. } if TOO_MANY.contains(&source.raw_os_error()));
            let advice =
                if too_many { "; captures that overlap in time are open at once: raise the limit (ulimit -n)" } else { "" };
            format!("{error}{advice}")
        },
    )
}

/// Writer of the merged capture, in pieces.
struct Blocks {
    piece: Vec<u8>,
    /// Interface number of each link type.
    interfaces: BTreeMap<u16, u32>,
}

impl Blocks {
    fn new() -> Self {
        let mut piece = Vec::with_capacity(CHUNK);
        block::section(&mut piece);
        Blocks { piece, interfaces: BTreeMap::new() }
    }

    /// Writes a packet; returns false once the receiver is gone.
    fn packet(&mut self, record: &Record, frame: &[u8], hand: &mut PieceSink<'_>) -> bool {
        if self.piece.len() + block::MOST_BESIDE_FRAME + frame.len() > CHUNK && !self.flush(hand) {
            return false;
        }
        let following = self.interfaces.len() as u32;
        let interface = *self.interfaces.entry(record.link_type).or_insert_with(|| {
            block::interface(&mut self.piece, record.link_type);
            following
        });
        block::packet(&mut self.piece, interface, record.timestamp, record.wire, frame);
        true
    }

    fn flush(&mut self, hand: &mut PieceSink<'_>) -> bool {
        if self.piece.is_empty() {
            return true;
        }
        let room = hand(Ok(std::mem::take(&mut self.piece).into()));
        let wanted = room.is_some();
        self.piece = room.map(Buffer::emptied).unwrap_or_default();
        wanted
    }
}
