//! Certificates and keys in PEM.

use crate::config::secrets;
use crate::error::CommandFailure;
use flowgauge_dataplane::files::{self, MAX_SETTINGS_BYTES};
use std::path::Path;

/// Ends of the `-----BEGIN` line of a certificate and of a private key.
pub(crate) const CERTIFICATE: &str = "CERTIFICATE-----";
pub(crate) const KEY: &str = "PRIVATE KEY-----";

/// Reads a PEM file, which must contain such a section.
pub(crate) fn pem(path: &Path, part: &str) -> Result<String, CommandFailure> {
    if part == KEY {
        secrets::protect();
    }
    let failed = |problem: String| Err(CommandFailure::Failed(problem));
    let bytes = match files::read(path, MAX_SETTINGS_BYTES) {
        Ok(bytes) => bytes,
        Err(error) => return failed(format!("cannot read {}: {error}", path.display())),
    };
    match String::from_utf8(bytes) {
        Ok(text)
            if text
                .lines()
                .any(|line| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(part)) =>
        {
            Ok(text)
        }
        _ => {
            let (kind, convert) =
                if part == KEY { ("pkey", "private key") } else { ("x509", "certificate") };
            let path = path.display();
            failed(format!(
                "{path} is not a {convert} in PEM format; if it is DER, convert it with `openssl {kind} -inform der -in {path}`"
            ))
        }
    }
}
