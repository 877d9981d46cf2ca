//! Compressed captures, known by their content: gzip, Zstandard and xz, as streams of any number of
//! members.
//!
//! What is decompressed goes on in pieces, and a decoder keeps no more than the window that its
//! format names, [`MOST_WINDOW`] at most: no input takes more memory than that.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The largest window of a compressed stream, in bytes: what `zstd` itself takes unless told
/// otherwise, and twice that of `xz -9`.
pub const MOST_WINDOW: u64 = 128 << 20;
/// What a decoder of xz needs beside its window, in KiB.
const BESIDE_WINDOW_KIB: u32 = 1024;
/// Bytes of compressed input read at once.
const INPUT: usize = 1 << 16;

/// How a capture is compressed.
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
    /// Bytes of the beginning of a file that [`of`](Self::of) looks at.
    pub const HEAD: usize = 6;

    /// The compression of a file that begins with `head`; `None` for a file that is not compressed.
    #[must_use]
    pub fn of(head: &[u8]) -> Option<Self> {
        match head {
            // The method is deflate, and three bits of the flags are reserved.
            [0x1f, 0x8b, 8, flags, ..] if flags & 0xe0 == 0 => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            // A frame to be skipped, as parallel compressors put in front.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "Zstandard",
            Self::Xz => "xz",
        }
    }

    /// An error of a decoder in words.
    fn told(self, error: &io::Error) -> io::Error {
        let name = self.name();
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

/// What `reader` brings, decompressed if it begins as a compressed file does.
///
/// The first bytes are read here, and an error among them comes from what this gives.
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

/// What fails once, if at all, and then has ended.
struct Failing(Option<io::Error>);

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// Reads until `buffer` is full or nothing more comes; gives the bytes read, and why it is not more
/// if that is no end.
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

/// Fills buffers, where decoders give some KiB at a time, and says in whose data an error is.
struct Decoder {
    decoder: Box<dyn Read + Send>,
    compression: Compression,
    /// For the next read: what was decoded before it comes first.
    failure: Option<io::Error>,
}

impl Read for Decoder {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let (read, failure) = read_full(&mut self.decoder, buffer);
        let failure = failure.map(|error| self.compression.told(&error));
        match failure {
            Some(failure) if read == 0 => Err(failure),
            failure => {
                self.failure = failure;
                Ok(read)
            }
        }
    }
}

/// Whether an error, or one that it comes from, is an end that came too early.
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

/// The frames of a Zstandard stream, one after another.
struct ZstdReader<R> {
    input: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: BufRead> ZstdReader<R> {
    /// Begins the next frame with data; `false` if there is none.
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
        let (told, found) =
            (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum());
        match (told, found) {
            (Some(told), Some(found)) if told != found => {
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
