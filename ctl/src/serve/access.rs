//! Access control of the servers: bearer tokens and TLS.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flowgauge_dataplane::files::{self, MAX_SETTINGS_BYTES};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use subtle::ConstantTimeEq;
use tonic::metadata::AsciiMetadataValue;

/// Maximum size of a token file, in bytes.
const MAX_FILE_BYTES: u64 = 4096;
/// Minimum length of a token, in bytes, so that it cannot be guessed.
const MIN_TOKEN_BYTES: usize = 16;

/// Secret that a client must present.
#[derive(Clone)]
pub struct Token(Arc<[u8]>);

impl Token {
    /// Reads a token from a file: one line of at least 16 bytes.
    ///
    /// # Errors
    /// If the file cannot be read, if everyone can read it, or if it holds no valid token.
    pub fn read(path: &Path) -> io::Result<Self> {
        let file = files::open(path)?;
        refuse_public(&file, "token")?;
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        let token = bytes.trim_ascii();
        let fits = token.len() >= MIN_TOKEN_BYTES
            && bytes.len() as u64 <= MAX_FILE_BYTES
            && token.iter().all(u8::is_ascii_graphic);
        if !fits {
            let advice = "a token is one line of 16 letters and digits or more; `openssl rand -hex 32` makes one";
            return Err(io::Error::new(io::ErrorKind::InvalidData, advice));
        }
        Ok(Token(token.into()))
    }

    /// Returns the value of an `authorization` header with this token.
    pub(crate) fn bearer(&self) -> Option<AsciiMetadataValue> {
        let mut header = AsciiMetadataValue::try_from([b"Bearer ", &*self.0].concat()).ok()?;
        header.set_sensitive(true);
        Some(header)
    }

    /// Returns whether an `authorization` header presents this token: `Bearer TOKEN`, or `Basic`
    /// with the token as password, as browsers send it. The comparison takes constant time, so that
    /// its duration reveals at most the token's length.
    pub(super) fn allows(&self, authorization: &[u8]) -> bool {
        let Some(space) = authorization.iter().position(|byte| *byte == b' ') else { return false };
        let (scheme, rest) = authorization.split_at(space);
        let credentials = rest.trim_ascii();
        if scheme.eq_ignore_ascii_case(b"bearer") {
            return self.0.ct_eq(credentials).into();
        }
        if !scheme.eq_ignore_ascii_case(b"basic") {
            return false;
        }
        let Ok(pair) = STANDARD.decode(credentials) else { return false };
        let Some(colon) = pair.iter().position(|byte| *byte == b':') else { return false };
        pair.get(colon + 1..).is_some_and(|password| self.0.ct_eq(password).into())
    }
}

/// Encryption and authentication that a server requires.
#[derive(Clone, Default)]
pub struct Access {
    /// TLS configuration; without one, connections are not encrypted.
    pub encryption: Option<Arc<ServerConfig>>,
    /// Required token. Without one, only requests for one of the local machine's names are
    /// answered.
    pub token: Option<Token>,
}

/// Reads a TLS configuration from a certificate chain and its private key, both PEM.
///
/// # Errors
/// If one of the files cannot be read or parsed, if everyone can read the key, or if the key does
/// not match the certificate.
pub fn encryption(certificate: &Path, key: &Path) -> io::Result<Arc<ServerConfig>> {
    let named = |path: &Path, problem: String| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{}: {problem}", path.display()))
    };
    let pem = files::read(certificate, MAX_SETTINGS_BYTES)
        .map_err(|error| named(certificate, error.to_string()))?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let chain = chain.map_err(|error| named(certificate, error.to_string()))?;
    if chain.is_empty() {
        return Err(named(certificate, "there is no certificate in it".to_owned()));
    }
    let file = files::open(key).map_err(|error| named(key, error.to_string()))?;
    refuse_public(&file, "key").map_err(|error| named(key, error.to_string()))?;
    let secret = PrivateKeyDer::from_pem_reader(BufReader::new(file.take(MAX_SETTINGS_BYTES)))
        .map_err(|error| named(key, error.to_string()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions();
    let config =
        config.and_then(|config| config.with_no_client_auth().with_single_cert(chain, secret));
    let config = config.map_err(|error| {
        named(certificate, format!("does not do with {}: {error}", key.display()))
    })?;
    Ok(Arc::new(config))
}

/// Returns an error if everyone can read a file with a secret.
fn refuse_public(file: &File, what: &str) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.permissions().mode() & 0o004 != 0 {
        let problem = format!("everyone can read the {what}; `chmod 600` makes it a secret");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_accepted_as_bearer_and_as_basic_password() {
        let token = Token(b"0123456789abcdef".as_slice().into());
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        for right in [
            "Bearer 0123456789abcdef",
            "bearer  0123456789abcdef",
            &basic(":0123456789abcdef"),
            &basic("me:0123456789abcdef"),
        ] {
            assert!(token.allows(right.as_bytes()), "{right}");
        }
        let wrong = [
            "",
            "Bearer",
            "Bearer ",
            "0123456789abcdef",
            "Bearer 0123456789abcdeg",
            "Bearer 0123456789abcde",
            "Digest 0123456789abcdef",
        ];
        let basics = [
            basic("0123456789abcdef"),
            basic("0123456789abcdef:"),
            "Basic 0123456789abcdef".to_owned(),
            "Basic é".to_owned(),
        ];
        for wrong in wrong.into_iter().chain(basics.iter().map(String::as_str)) {
            assert!(!token.allows(wrong.as_bytes()), "{wrong}");
        }
        assert!(!token.allows(&[0xff, b' ', 0xff]));
    }
}
