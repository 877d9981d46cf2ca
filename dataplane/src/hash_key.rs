//! Secret of a keyed hash.
//!
//! The words of the hash and the fingerprint that records carry are ChaCha20 output under the
//! secret, each from its own stream. Without the secret, this output cannot be distinguished from
//! random numbers (the security claim of the stream cipher ChaCha20); so the fingerprint reveals
//! nothing about the words, and neither reveals anything about the secret. Two secrets have the
//! same fingerprint with probability 2^-64.

use crate::error::Error;
use flowgauge_core::Tabulation;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

const WORDS: u64 = 0;
const FINGERPRINT: u64 = 1;

/// Maximum size of a key file, in bytes: 64 digits and a line end, with some slack.
const MAX_FILE_BYTES: u64 = 256;

/// A secret of 256 bits.
#[derive(Clone, PartialEq, Eq)]
pub struct HashKey([u8; 32]);

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
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|error| Error::HashKey {
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
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        HashKey(bytes)
    }

    /// Returns the secret's bytes, for a caller that stores them.
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; 32] {
        self.0
    }

    /// Creates a key that is the same in every run, for tests and benchmarks. It is not secret.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut bytes = [0; 32];
        ChaCha20Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
        HashKey(bytes)
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
        let file = File::open(path).map_err(unreadable)?;
        check_access(&file, path).map_err(failed)?;
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
        let key = parse(&bytes).ok_or_else(|| {
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
        self.stream(FINGERPRINT).next_u64()
    }

    /// Returns the words of the hash. They are as sensitive as the secret itself.
    #[must_use]
    pub fn tabulation(&self) -> Tabulation {
        let mut words = self.stream(WORDS);
        Tabulation::from_stream(|| words.next_u64())
    }

    fn stream(&self, number: u64) -> ChaCha20Rng {
        let mut stream = ChaCha20Rng::from_seed(self.0);
        stream.set_stream(number);
        stream
    }
}

fn parse(bytes: &[u8]) -> Option<HashKey> {
    let text = std::str::from_utf8(bytes).unwrap_or_default().trim();
    let is_text = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let decoded: Vec<u8> = match is_text && matches!(text.len(), 32 | 64) {
        true => text
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect::<Option<_>>()?,
        false => bytes.to_vec(),
    };
    let whole: [u8; 32] = match decoded.len() {
        16 => [decoded.as_slice(), &decoded].concat().try_into().ok()?,
        32 => decoded.try_into().ok()?,
        _ => return None,
    };
    Some(HashKey(whole))
}

/// Rejects a key file that everyone can read. Group access is allowed: service managers grant it on
/// purpose.
#[cfg(unix)]
fn check_access(file: &File, path: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let Ok(metadata) = file.metadata() else { return Ok(()) };
    let mode = metadata.permissions().mode();
    if metadata.is_file() && mode & 0o004 != 0 {
        return Err(format!(
            "everyone can read the key of the hash (mode {:o}); `chmod 600` makes it a secret",
            mode & 0o777
        ));
    }
    if metadata.is_file() && mode & 0o040 != 0 {
        tracing::warn!(
            "{}: a group can read the key of the hash (mode {:o})",
            path.display(),
            mode & 0o777
        );
    }
    Ok(())
}

#[cfg(not(unix))]
fn check_access(_: &File, _: &Path) -> Result<(), String> {
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
