//! Standard output shared by several sources, one whole record at a time.

use crate::output::writers::PatientStdout;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// Standard output of all sources.
#[derive(Clone)]
pub(crate) struct Output(Arc<Mutex<PatientStdout>>);

impl Default for Output {
    fn default() -> Self {
        Output(Arc::new(Mutex::new(PatientStdout::stdout())))
    }
}

/// Standard output of one source. Everything written up to a flush is written in one piece.
pub(crate) struct Lines {
    output: Output,
    /// Prefix of each line.
    prefix: String,
    record: Vec<u8>,
}

impl Lines {
    pub(crate) fn new(output: &Output, prefix: String) -> Self {
        Lines { output: output.clone(), prefix, record: Vec::new() }
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
        self.output.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(&lines)
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
