//! Compressed captures, recognised by their content: gzip, Zstandard and xz, as streams of any
//! number of members.
//!
//! Data are decompressed in pieces, and a decoder stores only the window that its format specifies,
//! at most [`MOST_WINDOW`]: no input takes more memory.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Maximum window of a compressed stream, in bytes: the default limit of `zstd`, and twice the
/// window of `xz -9`.
pub const MOST_WINDOW: u64 = 128 << 20;
/// Memory of an xz decoder without its window, in KiB.
const BESIDE_WINDOW_KIB: u32 = 1024;
/// Bytes of compressed input read at once.
const INPUT: usize = 1 << 16;

/// Compression format of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// gzip (RFC 1952).
    Gzip,
    /// Zstandard (RFC 8878).
    Zstd,
    /// xz.
    Xz,
}

impl Compression {
    /// Bytes at the start of a file that [`of`](Self::of) examines.
    pub const HEAD: usize = 6;

    /// Returns the compression of a file that begins with `head`; `None` for an uncompressed file.
    #[must_use]
    pub fn of(head: &[u8]) -> Option<Self> {
        match head {
            // The method is deflate, and three bits of the flags are reserved.
            [0x1f, 0x8b, 8, flags, ..] if flags & 0xe0 == 0 => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            // A skippable frame, as parallel compressors write first.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            _ => None,
        }
    }

    /// Describes an error of a decoder.
    fn describe(self, error: &io::Error) -> io::Error {
        let name = match self {
            Self::Gzip => "gzip",
            Self::Zstd => "Zstandard",
            Self::Xz => "xz",
        };
        let words = match error.kind() {
            _ if is_cut(error) => format!("the {name} data is cut off"),
            io::ErrorKind::OutOfMemory => {
                format!(
                    "the {name} data needs a window of more than {} MiB; decompress it first",
                    MOST_WINDOW >> 20
                )
            }
            _ => format!("damaged {name} data: {error}"),
        };
        io::Error::new(error.kind(), words)
    }
}

/// Returns a reader that decompresses the data of `reader`, if compressed.
///
/// The first bytes are read here; an error among them is returned by the resulting reader.
pub fn decompress(mut reader: impl Read + Send + 'static) -> Box<dyn Read + Send> {
    let mut head = [0; Compression::HEAD];
    let (length, failure) = read_full(&mut reader, &mut head);
    let head = head.get(..length).unwrap_or_default().to_vec();
    let compression = Compression::of(&head);
    let whole = Cursor::new(head).chain(Failing(failure)).chain(reader);
    let Some(compression) = compression else {
        return Box::new(whole);
    };
    let input = BufReader::with_capacity(INPUT, whole);
    let decoder: Box<dyn Read + Send> = match compression {
        Compression::Gzip => Box::new(MultiGzDecoder::new(input)),
        Compression::Zstd => {
            Box::new(ZstdReader { input, decoder: FrameDecoder::new(), in_frame: false })
        }
        Compression::Xz => {
            let most = (MOST_WINDOW >> 10) as u32 + BESIDE_WINDOW_KIB;
            Box::new(XzReader::new_mem_limit(input, true, most))
        }
    };
    Box::new(Decoder { decoder, compression, failure: None })
}

/// Reader that fails once, if at all, and is then at its end.
struct Failing(Option<io::Error>);

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// Reads until `buffer` is full or the input ends. Returns the bytes read, and the error that
/// stopped it, if any.
pub(crate) fn read_full(reader: &mut impl Read, buffer: &mut [u8]) -> (usize, Option<io::Error>) {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..)
        && !rest.is_empty()
    {
        match reader.read(rest) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (filled, Some(error)),
        }
    }
    (filled, None)
}

/// Reader that fills buffers, while decoders return some KiB at a time, and names the format in
/// errors.
struct Decoder {
    decoder: Box<dyn Read + Send>,
    compression: Compression,
    /// Error for the next read, after the bytes decoded before it.
    failure: Option<io::Error>,
}

impl Read for Decoder {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let (read, failure) = read_full(&mut self.decoder, buffer);
        let failure = failure.map(|error| self.compression.describe(&error));
        match failure {
            Some(failure) if read == 0 => Err(failure),
            failure => {
                self.failure = failure;
                Ok(read)
            }
        }
    }
}

/// Returns whether an error, or one of its causes, is a premature end.
fn is_cut(error: &io::Error) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let inner = error.downcast_ref::<io::Error>();
        if inner.is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof) {
            return true;
        }
        cause = match inner.and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    false
}

/// Reader of consecutive frames of a Zstandard stream.
struct ZstdReader<R> {
    input: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: BufRead> ZstdReader<R> {
    /// Starts the next frame with data; returns false at the end of the input.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.input.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.input) {
                Ok(()) => {
                    self.in_frame = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let skipped =
                        io::copy(&mut (&mut self.input).take(u64::from(length)), &mut io::sink())?;
                    if skipped < u64::from(length) {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(FrameDecoderError::WindowSizeTooBig { .. }) => {
                    return Err(io::ErrorKind::OutOfMemory.into());
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }

    fn end(&mut self) -> io::Result<()> {
        self.in_frame = false;
        let (stored, computed) =
            (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum());
        match (stored, computed) {
            (Some(stored), Some(computed)) if stored != computed => {
                Err(io::Error::other("the checksum of a frame is wrong"))
            }
            _ => Ok(()),
        }
    }
}

impl<R: BufRead> Read for ZstdReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.in_frame && (buffer.is_empty() || !self.begin()?) {
                return Ok(0);
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.input, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(io::Error::other)?;
            }
            let read = self.decoder.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            self.end()?;
        }
    }
}
