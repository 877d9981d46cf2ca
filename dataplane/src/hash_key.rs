//! Secret of a keyed hash.
//!
//! The words of the hash and the fingerprint that records carry are ChaCha20 output under the
//! secret, each from its own stream. Without the secret, this output cannot be distinguished from
//! random numbers (the security claim of the stream cipher ChaCha20); so the fingerprint reveals
//! nothing about the words, and neither reveals anything about the secret. Two secrets have the
//! same fingerprint with probability 2^-64.
//!
//! A secret and its words are each in memory once, however many values share them, and are wiped
//! when the last of these is dropped. The copies that deriving them leaves on the stack are wiped
//! at once.

use crate::error::Error;
use crate::files;
use flowgauge_core::Tabulation;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use zeroize::{Zeroize, Zeroizing, optimization_barrier};

const WORDS: u64 = 0;
const FINGERPRINT: u64 = 1;

/// Maximum size of a key file, in bytes: 64 digits and a line end, with some slack.
const MAX_FILE_BYTES: u64 = 256;
/// Words of the stack that are wiped: more than the frames of deriving the words take, which hold
/// several times the words.
const WIPED_STACK_WORDS: usize = 32 << 10;

/// A secret of 256 bits. Clones share it.
#[derive(Clone, PartialEq, Eq)]
pub struct HashKey(Arc<Zeroizing<[u8; 32]>>);

/// Prints only the fingerprint.
impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HashKey({:016x})", self.fingerprint())
    }
}

impl HashKey {
    /// Creates a random secret.
    ///
    /// # Errors
    /// [`Error::HashKey`] if the system provides no random numbers.
    pub fn random() -> Result<Self, Error> {
        let mut bytes = Arc::new(Zeroizing::new([0; 32]));
        let filled = getrandom::fill(Arc::make_mut(&mut bytes).as_mut_slice());
        filled.map_err(|error| Error::HashKey {
            source_name: "the system".to_owned(),
            problem: format!(
                "no random numbers for the key of the hash: {error}; give one with --hash-key, or use --hash tabulated"
            ),
            source: error.raw_os_error().map(io::Error::from_raw_os_error),
        })?;
        Ok(HashKey(bytes))
    }

    /// Creates the secret from its bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        HashKey(Arc::new(Zeroizing::new(bytes)))
    }

    /// Returns the secret's bytes, for a caller that stores them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Creates a key that is the same in every run, for tests and benchmarks. It is not secret.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut bytes = [0; 32];
        ChaCha20Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
        HashKey::from_bytes(bytes)
    }

    /// Reads a secret from a file: 16 or 32 bytes, or 32 or 64 hexadecimal digits. A secret of 16
    /// bytes is used for both halves of the key.
    ///
    /// # Errors
    /// [`Error::HashKey`] if the file cannot be read, if everyone can read it, or if its contents
    /// are anything else.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let refused = |problem, source| Error::HashKey {
            source_name: path.display().to_string(),
            problem,
            source,
        };
        let failed = |problem: String| refused(problem, None);
        let unreadable = |error: io::Error| {
            refused(format!("cannot read the key of the hash: {error}"), Some(error))
        };
        let file = files::open(path).map_err(unreadable)?;
        check_access(&file, path).map_err(failed)?;
        // As large as the file may be: a vector that grows leaves copies behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_FILE_BYTES as usize));
        file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
        let key = parse(&bytes);
        wipe_stack();
        let key = key.ok_or_else(|| {
            let advice = "a key has 32 or 64 hexadecimal digits, or 16 or 32 bytes; `openssl rand -hex 32` makes one";
            failed(format!("this is not a hash key; {advice}"))
        })?;
        if key.0.iter().all(|byte| *byte == 0) {
            return Err(failed(
                "the key of the hash is zero, which is no secret; `openssl rand -hex 32` makes one"
                    .to_owned(),
            ));
        }
        Ok(key)
    }

    /// Returns an identifier of this secret that reveals nothing about it.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.derived(FINGERPRINT, ChaCha20Rng::next_u64)
    }

    /// Returns the words of the hash. They are as sensitive as the secret itself.
    #[must_use]
    pub fn tabulation(&self) -> HashWords {
        self.derived(WORDS, |words| Tabulation::from_stream(|| words.next_u64()).into())
    }

    /// Passes one of the secret's streams to `take`, and returns the result.
    fn derived<T>(&self, number: u64, take: impl FnOnce(&mut ChaCha20Rng) -> T) -> T {
        let derived = self.streamed(number, take);
        wipe_stack();
        derived
    }

    /// Not inlined, so that the stream is on the stack below its caller.
    #[inline(never)]
    fn streamed<T>(&self, number: u64, take: impl FnOnce(&mut ChaCha20Rng) -> T) -> T {
        let mut stream = ChaCha20Rng::from_seed(*self.as_bytes());
        stream.set_stream(number);
        take(&mut stream)
    }
}

/// Overwrites the stack below the caller, where functions that have returned left copies.
#[inline(never)]
fn wipe_stack() {
    [0_u64; WIPED_STACK_WORDS].zeroize();
}

/// Words of all hashes. Clones share them.
#[derive(Clone, PartialEq)]
pub struct HashWords(Arc<Wiped>);

impl From<Tabulation> for HashWords {
    fn from(words: Tabulation) -> Self {
        HashWords(Arc::new(Wiped(words)))
    }
}

impl Deref for HashWords {
    type Target = Tabulation;

    fn deref(&self) -> &Tabulation {
        &self.0.0
    }
}

/// Prints none of the words.
impl fmt::Debug for HashWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashWords")
    }
}

/// Words that are wiped when they are dropped.
#[derive(PartialEq)]
struct Wiped(Tabulation);

impl Drop for Wiped {
    fn drop(&mut self) {
        self.0 = Tabulation::ZERO;
        optimization_barrier(&self.0);
    }
}

#[inline(never)]
fn parse(bytes: &[u8]) -> Option<HashKey> {
    let text = std::str::from_utf8(bytes).unwrap_or_default().trim();
    let is_text =
        matches!(text.len(), 32 | 64) && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let mut decoded = Zeroizing::new(Vec::with_capacity(MAX_FILE_BYTES as usize));
    if is_text {
        for pair in text.as_bytes().chunks(2) {
            decoded.push(u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?);
        }
    } else {
        decoded.extend_from_slice(bytes);
    }
    if !matches!(decoded.len(), 16 | 32) {
        return None;
    }
    let mut key = Arc::new(Zeroizing::new([0; 32]));
    let whole = Arc::make_mut(&mut key).iter_mut().zip(decoded.iter().cycle());
    whole.for_each(|(byte, given)| *byte = *given);
    Some(HashKey(key))
}

/// Rejects a key file that everyone can read. Group access is allowed: service managers grant it on
/// purpose.
fn check_access(file: &File, path: &Path) -> Result<(), String> {
    let Some(metadata) = file.metadata().ok().filter(Metadata::is_file) else { return Ok(()) };
    let mode = metadata.permissions().mode();
    if mode & 0o004 != 0 {
        return Err(format!(
            "everyone can read the key of the hash (mode {:o}); `chmod 600` makes it a secret",
            mode & 0o777
        ));
    }
    if mode & 0o040 != 0 {
        tracing::warn!(
            "{}: a group can read the key of the hash (mode {:o})",
            path.display(),
            mode & 0o777
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_fingerprint_of_a_key_never_change() {
        // Expected values computed by an independent ChaCha20 implementation.
        let key = HashKey::from_bytes(*b"0123456789abcdef0123456789abcdef");
        let tabulation = key.tabulation();
        let [t0, ..] = tabulation.tables();
        let [ipv4, ipv6, ..] = tabulation.multilinear().words();
        assert_eq!(format!("{key:?}"), "HashKey(09534a2104f90bc6)");
        assert_eq!(
            (t0[0], ipv4, ipv6),
            (0x439a_503c, 0x05f4_6aa2_998d_f378, 0x1372_4586_8d45_c13f)
        );
    }

    #[test]
    fn a_key_is_read_as_digits_and_as_bytes() {
        let bytes: Vec<u8> = (1..=32).collect();
        let digits: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
        let key = parse(&bytes);
        assert!(key.is_some());
        assert_eq!(parse(digits.as_bytes()), key);
        assert_eq!(parse(format!("{digits}\n").as_bytes()), key);
        let half = parse(&bytes[..16]);
        assert!(half.is_some() && half != key);
        assert_eq!(parse(&digits.as_bytes()[..32]), half);
        for wrong in [&b""[..], b"secret", &[7; 15], &[7; 33], b"0123456789abcdef0123456789abcdeg!"]
        {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_says_why() {
        let error = HashKey::read(Path::new("no/such/key")).unwrap_err();
        let source =
            std::error::Error::source(&error).and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(source.unwrap().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn keys_and_their_fingerprints_differ() {
        let (one, other) = (HashKey::random().unwrap(), HashKey::random().unwrap());
        assert_ne!(one.fingerprint(), other.fingerprint());
        assert_ne!(one.tabulation(), other.tabulation());
        // The printed fingerprint is not one of the words.
        let tabulation = one.tabulation();
        assert!(!tabulation.multilinear().words().contains(&one.fingerprint()));
    }
}
