//! Frames of captures.

use flowgauge_dataplane::capture::{PacketRecord, Step, Walker};
use flowgauge_dataplane::poll::port::OwnedFrame;
use std::path::Path;

/// Returns the frames of a capture file, up to its end or to damage.
pub fn captured(path: &Path) -> Vec<OwnedFrame> {
    let bytes = std::fs::read(path).unwrap();
    let (mut walker, mut rest, mut frames) = (Walker::new(), &bytes[..], Vec::new());
    loop {
        let consumed = match walker.next(rest) {
            Step::Packet { record, consumed } => {
                let PacketRecord { wire: wire_length, timestamp, link, .. } = record;
                frames.push(OwnedFrame {
                    bytes: record.frame(rest).to_vec(),
                    wire_length,
                    timestamp,
                    link,
                });
                consumed
            }
            Step::Skip { consumed } => consumed,
            Step::NeedMore { .. } | Step::Damaged(_) => return frames,
        };
        rest = &rest[consumed..];
    }
}
