//! Who may ask: whoever knows a token, over a connection that nobody else reads.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use subtle::ConstantTimeEq;
#[cfg(feature = "otlp")]
use tonic::metadata::AsciiMetadataValue;

/// No file with a token is longer.
const LONGEST: u64 = 4096;
/// No token is shorter: one that can be guessed is none.
const SHORTEST: usize = 16;

/// A secret that whoever asks has to tell.
#[derive(Clone)]
pub struct Token(Arc<[u8]>);

impl Token {
    /// Reads a token from a file: one line, at least 16 bytes.
    ///
    /// # Errors
    /// If it cannot be read, if everyone can read it, or if it is no token.
    pub fn read(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        refuse_public(&file, "token")?;
        let mut bytes = Vec::new();
        file.take(LONGEST + 1).read_to_end(&mut bytes)?;
        let token = bytes.trim_ascii();
        let fits = token.len() >= SHORTEST
            && bytes.len() as u64 <= LONGEST
            && token.iter().all(u8::is_ascii_graphic);
        if !fits {
            let advice = "a token is one line of 16 letters and digits or more; `openssl rand -hex 32` makes one";
            return Err(io::Error::new(io::ErrorKind::InvalidData, advice));
        }
        Ok(Token(token.into()))
    }

    /// What a request says that tells it, as programs do.
    #[cfg(feature = "otlp")]
    pub(crate) fn bearer(&self) -> Option<AsciiMetadataValue> {
        let mut told = AsciiMetadataValue::try_from([b"Bearer ", &*self.0].concat()).ok()?;
        told.set_sensitive(true);
        Some(told)
    }

    /// Whether this is what a request says of itself: `Bearer TOKEN`, or `Basic` with the token as
    /// password, as browsers do. How long it takes to say no tells the length of the token at most.
    pub(super) fn allows(&self, authorization: &[u8]) -> bool {
        let Some(space) = authorization.iter().position(|byte| *byte == b' ') else { return false };
        let (scheme, rest) = authorization.split_at(space);
        let told = rest.trim_ascii();
        if scheme.eq_ignore_ascii_case(b"bearer") {
            return self.0.ct_eq(told).into();
        }
        if !scheme.eq_ignore_ascii_case(b"basic") {
            return false;
        }
        let Ok(pair) = STANDARD.decode(told) else { return false };
        let Some(colon) = pair.iter().position(|byte| *byte == b':') else { return false };
        pair.get(colon + 1..).is_some_and(|password| self.0.ct_eq(password).into())
    }
}

/// Who may ask.
#[derive(Clone, Default)]
pub struct Access {
    /// What connections are encrypted with, if they are.
    pub encryption: Option<Arc<ServerConfig>>,
    /// What whoever asks has to know. Without one, only names of the machine itself are answered.
    pub token: Option<Token>,
}

/// What to encrypt with: a certificate chain and its key, as PEM.
///
/// # Errors
/// If one of them cannot be read or is none, if everyone can read the key, or if they do not belong
/// together.
pub fn encryption(certificate: &Path, key: &Path) -> io::Result<Arc<ServerConfig>> {
    let named = |path: &Path, problem: String| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{}: {problem}", path.display()))
    };
    let chain =
        CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| named(certificate, error.to_string()))?;
    if chain.is_empty() {
        return Err(named(certificate, "there is no certificate in it".to_owned()));
    }
    let file = File::open(key).map_err(|error| named(key, error.to_string()))?;
    refuse_public(&file, "key").map_err(|error| named(key, error.to_string()))?;
    let secret =
        PrivateKeyDer::from_pem_file(key).map_err(|error| named(key, error.to_string()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions();
    let config =
        config.and_then(|config| config.with_no_client_auth().with_single_cert(chain, secret));
    let config = config.map_err(|error| {
        named(certificate, format!("does not do with {}: {error}", key.display()))
    })?;
    Ok(Arc::new(config))
}

/// A secret that everyone can read is none.
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
    fn a_token_is_told_as_programs_and_as_browsers_tell_it() {
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
