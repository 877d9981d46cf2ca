//! Writers of records: to standard output, whose reader may stop reading and which several sources
//! may share, and to files on a disk that may become full.

use crate::locked;
use crate::run::signals;
use flowgauge_ctl::Record;
use flowgauge_ctl::controller::{Sink, Summary};
use flowgauge_ctl::measurement::delay::DelaySampleRecord;
use flowgauge_dataplane::Dataplane;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Bytes that a pipe with room accepts without blocking (`PIPE_BUF` of Linux).
const PIECE: usize = 4096;
/// Interval at which a waiting writer checks whether to stop.
const CHECK_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Standard output. Writing waits for a reader that does not read, but not once the run has to end
/// (see [`signals::is_impatient`]).
#[derive(Default)]
pub(crate) struct PatientStdout;

impl Write for PatientStdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (stdout, piece) = (io::stdout(), &bytes[..bytes.len().min(PIECE)]);
        loop {
            let mut output = [PollFd::new(&stdout, PollFlags::OUT)];
            match poll(&mut output, Some(&CHECK_INTERVAL)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => match rustix::io::write(&stdout, piece) {
                    Ok(written) => return Ok(written),
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    Err(error) => return Err(error.into()),
                },
                Err(error) => return Err(error.into()),
            }
            if signals::is_impatient() {
                let problem =
                    "the reader of standard output is gone; the last records are missing there";
                return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Standard output of one source. Everything written up to a flush is written in one piece.
pub(crate) struct Lines {
    stdout: Arc<Mutex<PatientStdout>>,
    /// Prefix of each line.
    prefix: String,
    record: Vec<u8>,
}

impl Lines {
    pub(crate) fn new(stdout: &Arc<Mutex<PatientStdout>>, prefix: String) -> Self {
        Lines { stdout: Arc::clone(stdout), prefix, record: Vec::new() }
    }
}

/// Adds a prefix to each line that is not empty.
fn prefixed(prefix: &str, text: &[u8]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(text.len() + prefix.len());
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if line != b"\n" {
            lines.extend_from_slice(prefix.as_bytes());
        }
        lines.extend_from_slice(line);
    }
    lines
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.record.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.record.is_empty() {
            return Ok(());
        }
        let record = std::mem::take(&mut self.record);
        let lines = if self.prefix.is_empty() { record } else { prefixed(&self.prefix, &record) };
        locked(&self.stdout).write_all(&lines)
    }
}

/// New file of whole records: a record that was only partly written is removed again.
pub(crate) struct RecordFile {
    file: File,
    record: Vec<u8>,
    length: u64,
}

impl RecordFile {
    pub(crate) fn new(file: File) -> Self {
        RecordFile { file, record: Vec::new(), length: 0 }
    }
}

impl Write for RecordFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.record.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let written = self.file.write_all(&self.record);
        if written.is_err() {
            // If truncating fails too, a cut line remains, which readers of the file notice.
            let _ = self.file.set_len(self.length);
        }
        self.length += self.record.len() as u64;
        self.record.clear();
        written
    }
}

/// Problems with files, reported at the end of the run.
#[derive(Clone, Default)]
pub(crate) struct FileProblems(Arc<Mutex<Vec<String>>>);

impl FileProblems {
    /// Logs a problem, and keeps it for the end.
    pub(crate) fn add(&self, problem: String) {
        tracing::warn!("{problem}");
        locked(&self.0).push(problem);
    }

    pub(crate) fn all(&self) -> Vec<String> {
        locked(&self.0).clone()
    }
}

/// Sink for a file. If it fails, the run continues without it.
pub(crate) struct ExpendableSink<S> {
    sink: Option<S>,
    path: PathBuf,
    problems: FileProblems,
}

impl<S: Sink> ExpendableSink<S> {
    pub(crate) fn new(sink: S, path: &Path, problems: &FileProblems) -> Self {
        ExpendableSink { sink: Some(sink), path: path.to_owned(), problems: problems.clone() }
    }

    fn write(&mut self, write: impl FnOnce(&mut S) -> io::Result<()>) {
        let Some(sink) = &mut self.sink else { return };
        if let Err(error) = write(sink) {
            self.problems.add(format!(
                "cannot write {}: {error}; records from now on are not in it",
                self.path.display()
            ));
            self.sink = None;
        }
    }
}

impl<S: Sink> Sink for ExpendableSink<S> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        self.write(|sink| sink.record(record));
        Ok(())
    }

    fn delay_samples(&mut self, samples: &[DelaySampleRecord<'_>]) -> io::Result<()> {
        self.write(|sink| sink.delay_samples(samples));
        Ok(())
    }

    fn heartbeat(&mut self, dataplane: &dyn Dataplane, summary: &Summary) {
        self.sink.iter_mut().for_each(|sink| sink.heartbeat(dataplane, summary));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_says_whose_it_is() {
        assert_eq!(prefixed("a | ", b"one\n\ntwo\nthree"), b"a | one\n\na | two\na | three");
        assert_eq!(prefixed("a | ", b""), b"");
    }
}
