//! Writer of pcap files.

use std::io::{self, Write};

use super::{MAX_CAPTURED, SECOND, pcap};

/// Writer of a little-endian pcap file with nanosecond timestamps.
///
/// Each packet is two small writes: use a [`BufWriter`](io::BufWriter).
#[derive(Debug)]
pub struct Writer<W: Write> {
    inner: W,
}

impl<W: Write> Writer<W> {
    /// Writes the file header for frames of a LINKTYPE_ value, see [`link_type`](super::link_type).
    ///
    /// # Errors
    /// Failures of `inner`.
    pub fn new(mut inner: W, link_type: u16) -> io::Result<Self> {
        let (major, minor) = pcap::VERSION;
        inner.write_all(&pcap::NANOSECONDS.to_le_bytes())?;
        inner.write_all(&major.to_le_bytes())?;
        inner.write_all(&minor.to_le_bytes())?;
        inner.write_all(&[0; 8])?;
        inner.write_all(&MAX_CAPTURED.to_le_bytes())?;
        inner.write_all(&u32::from(link_type).to_le_bytes())?;
        Ok(Self { inner })
    }

    /// Writes a packet: its nanoseconds since 1970, the bytes captured of it, and how many it had
    /// on the wire. A `wire_len` below the captured length is written as that
    /// (draft-ietf-opsawg-pcap section 5).
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) with nothing written for a frame longer than
    /// [`MAX_CAPTURED`] and for a time after 2106-02-07, whose seconds do not fit into 32 bits;
    /// those of the inner writer.
    pub fn write(&mut self, timestamp_ns: u64, frame: &[u8], wire_len: u32) -> io::Result<()> {
        self.inner.write_all(header(timestamp_ns, frame.len(), wire_len)?.as_flattened())?;
        self.inner.write_all(frame)
    }

    /// Returns the inner writer.
    pub fn get_ref(&self) -> &W {
        &self.inner
    }

    /// Returns the inner writer.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.inner
    }

    /// Flushes, and returns the inner writer.
    ///
    /// # Errors
    /// Failure of the flush.
    pub fn finish(mut self) -> io::Result<W> {
        self.inner.flush()?;
        Ok(self.inner)
    }
}

/// Encodes the header of a packet.
fn header(timestamp_ns: u64, length: usize, wire_len: u32) -> io::Result<[[u8; 4]; 4]> {
    let captured = u32::try_from(length)
        .ok()
        .filter(|captured| *captured <= MAX_CAPTURED)
        .ok_or_else(|| {
            invalid(format!(
                "a frame of {length} bytes does not fit into a pcap file: {MAX_CAPTURED} at most"
            ))
        })?;
    let seconds = u32::try_from(timestamp_ns / SECOND).map_err(|_| {
        invalid(format!("{timestamp_ns} ns does not fit into a pcap file: {} s at most", u32::MAX))
    })?;
    // Below 10^9, so it fits into 32 bits.
    let fraction = (timestamp_ns % SECOND) as u32;
    Ok([seconds, fraction, captured, wire_len.max(captured)].map(u32::to_le_bytes))
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}
