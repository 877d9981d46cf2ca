//! Delay samples as JSON lines.

use crate::controller::Sink;
use crate::measurement::delay::DelaySampleRecord;
use crate::record::{Record, RecordKind};
use serde::Serialize;
use std::io::{self, Write};

/// Sink that writes one JSON object per sample, and one per window with the numbers of its samples
/// and of missing ones.
pub struct DelaySampleLog<W>(pub W);

/// Line of a window.
#[derive(Serialize)]
struct Window {
    record: &'static str,
    window: u64,
    start_ns: u64,
    end_ns: u64,
    samples: u64,
    missing: u64,
}

impl<W: Write> Sink for DelaySampleLog<W> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        let Some(delays) = &record.reports.delay else { return Ok(()) };
        if record.kind != RecordKind::Window || record.part {
            return Ok(());
        }
        let missing = delays.together().map(|delay| delay.counts.unsampled).sum();
        let counted: u64 = delays.together().map(|delay| delay.answers()).sum();
        let Record { window, start_ns, end_ns, .. } = *record;
        let samples = counted.saturating_sub(missing);
        let line =
            Window { record: record.kind.name(), window, start_ns, end_ns, samples, missing };
        write_lines(&mut self.0, &[line])
    }

    fn delay_samples(&mut self, samples: &[DelaySampleRecord<'_>]) -> io::Result<()> {
        write_lines(&mut self.0, samples)
    }
}

fn write_lines(writer: &mut dyn Write, lines: &[impl Serialize]) -> io::Result<()> {
    let mut text = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
    }
    writer.write_all(&text)?;
    writer.flush()
}
