//! Signatures of rows, which show that a row was written by the host that it names.
//!
//! A host signs the content of each row ([`Row::signed_content`]) with its private key
//! ([`SigningKey`]), before the row is in a journal or a file. Readers have a list of hosts and
//! public keys ([`Trust`]), and believe a row if its signature verifies with the key of the host
//! that the row names. The algorithm is Ed25519 (RFC 8032), which signs the content itself, not a
//! checksum of it.

use crate::row::{Row, SIGNATURE, Value};
use base64::prelude::{BASE64_STANDARD, Engine};
use flowgauge_dataplane::files::{self, MAX_SETTINGS_BYTES};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject;
use std::collections::BTreeMap;
use std::fmt::{self, Formatter};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

/// Length of a signature, in bytes.
pub(crate) const SIGNATURE_BYTES: usize = 64;
const KEY_BYTES: usize = 32;
/// Prefix of public keys in a list.
const ALGORITHM: &str = "ed25519:";
/// PKCS#8 of a private key of Ed25519, up to its 32 bytes (RFC 8410, section 7).
const PKCS8_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

fn invalid(problem: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, problem.into())
}

/// Public key of a host. Displayed and parsed as `ed25519:` and its bytes in Base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey([u8; KEY_BYTES]);

impl PublicKey {
    fn parse(text: &str) -> Option<Self> {
        let bytes = BASE64_STANDARD.decode(text.strip_prefix(ALGORITHM)?).ok()?;
        Some(PublicKey(bytes.try_into().ok()?))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{ALGORITHM}{}", BASE64_STANDARD.encode(self.0))
    }
}

/// Private key of a host, which signs its rows. `Debug` shows the public key alone.
#[derive(Debug)]
pub struct SigningKey(Ed25519KeyPair);

impl SigningKey {
    /// Creates a key, and returns it with the content of its file: PKCS#8 as PEM.
    ///
    /// # Errors
    /// If the system provides no random numbers.
    pub fn create() -> io::Result<(Self, String)> {
        let mut secret = [0; KEY_BYTES];
        SystemRandom::new()
            .fill(&mut secret)
            .map_err(|_| io::Error::other("no random numbers from the system"))?;
        let key = Ed25519KeyPair::from_seed_unchecked(&secret)
            .map_err(|error| io::Error::other(error.to_string()))?;
        let encoded = BASE64_STANDARD.encode([&PKCS8_PREFIX[..], &secret].concat());
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{encoded}\n-----END PRIVATE KEY-----\n");
        Ok((SigningKey(key), pem))
    }

    /// Reads a key from a file: PKCS#8 as PEM.
    ///
    /// # Errors
    /// If the file cannot be read, if everyone can read it, or if it has no such key; the path is
    /// not in the message.
    pub fn read(path: &Path) -> io::Result<Self> {
        let file = files::open(path)?;
        let mode = file.metadata()?.permissions().mode() & 0o777;
        if mode & 0o004 != 0 {
            let problem =
                format!("everyone can read the key (mode {mode:o}); `chmod 600` makes it a secret");
            return Err(io::Error::new(ErrorKind::PermissionDenied, problem));
        }
        if mode & 0o040 != 0 {
            tracing::warn!("{}: a group can read the key (mode {mode:o})", path.display());
        }
        let mut pem = Vec::with_capacity(file.metadata()?.len().min(MAX_SETTINGS_BYTES) as usize);
        file.take(MAX_SETTINGS_BYTES).read_to_end(&mut pem)?;
        Self::parse(&pem)
    }

    fn parse(pem: &[u8]) -> io::Result<Self> {
        let refused = || {
            invalid(
                "it has no private key of Ed25519 (PKCS#8 as PEM); create one with `flowgauge lake key`, or with \
                 `openssl genpkey -algorithm ed25519`",
            )
        };
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem).map_err(|_| refused())?;
        let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(key.secret_pkcs8_der());
        Ok(SigningKey(key.map_err(|_| refused())?))
    }

    /// Returns its public key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        let mut bytes = [0; KEY_BYTES];
        bytes.copy_from_slice(self.0.public_key().as_ref());
        PublicKey(bytes)
    }

    /// Appends the signature as the last column of a row, which must be complete.
    pub(crate) fn sign(&self, row: &mut Row) {
        let signature = self.0.sign(&row.signed_content());
        row.put(SIGNATURE, Value::Bytes(Some(signature.as_ref().to_vec())));
    }
}

/// Public keys of the hosts whose rows are believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust(BTreeMap<String, PublicKey>);

impl Trust {
    /// Reads a list from a file: a line for each host, with its name and its key. Empty lines and
    /// those that begin with `#` are skipped.
    ///
    /// # Errors
    /// If the file cannot be read, or a line is anything else, which the message names with its
    /// number; the path is not in the message.
    pub fn read(path: &Path) -> io::Result<Self> {
        Self::parse(&files::read_text(path, MAX_SETTINGS_BYTES)?).map_err(invalid)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut lines: BTreeMap<String, (usize, PublicKey)> = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let [host, key] = words[..] else {
                return Err(format!(
                    "line {number}: give the name of a host and its public key, as `flowgauge lake key` prints them"
                ));
            };
            let key = PublicKey::parse(key).ok_or_else(|| {
                format!(
                    "line {number}: the key of host {host} is not {ALGORITHM} and {KEY_BYTES} bytes in Base64, as `flowgauge lake key` prints it"
                )
            })?;
            if let Some((first, _)) = lines.insert(host.to_owned(), (number, key)) {
                return Err(format!("line {number}: host {host} is in line {first} already"));
            }
        }
        if lines.is_empty() {
            return Err("it lists no host".to_owned());
        }
        Ok(Trust(lines.into_iter().map(|(host, (_, key))| (host, key)).collect()))
    }

    /// Checks that the host that a row names has signed it. Fails with the reason why not.
    pub(crate) fn verify(&self, row: &Row) -> Result<(), String> {
        let host = row.maybe_text("host").unwrap_or_default();
        let Some(PublicKey(key)) = self.0.get(host) else {
            return Err(format!("host {host} is not in the list of trusted hosts"));
        };
        let Some(Value::Bytes(Some(signature))) = row.get(SIGNATURE) else {
            return Err(format!("it has no signature of host {host}"));
        };
        UnparsedPublicKey::new(&ED25519, key)
            .verify(&row.signed_content(), signature)
            .map_err(|_| format!("its signature is not one of the trusted key of host {host}"))
    }
}

/// Treatment of rows that cannot count: rows that the host they name has not signed, or different
/// rows of one window (same host, run, source, direction and number).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowPolicy {
    /// An error that names the files.
    #[default]
    Refuse,
    /// None of them counts.
    Drop,
}

impl RowPolicy {
    /// All treatments.
    pub const ALL: [RowPolicy; 2] = [RowPolicy::Refuse, RowPolicy::Drop];

    /// Returns the name used in options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RowPolicy::Refuse => "refuse",
            RowPolicy::Drop => "drop",
        }
    }
}

/// Verification of the signatures of rows.
#[derive(Clone, Debug)]
pub struct Verification {
    /// Keys of the hosts.
    pub trust: Arc<Trust>,
    /// Treatment of other rows.
    pub untrusted: RowPolicy,
}

impl Verification {
    /// Whether rows without a valid signature are dropped.
    pub(crate) fn drops(&self, row: &Row) -> bool {
        self.untrusted == RowPolicy::Drop && self.trust.verify(row).is_err()
    }
}

#[cfg(test)]
mod tests;
