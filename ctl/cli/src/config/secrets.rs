//! Secrets in the memory of this process: keys of hashes, of rows and of TLS, and tokens.

#[cfg(feature = "lake")]
use crate::error::{CommandFailure, cannot};
#[cfg(feature = "lake")]
use flowgauge_ctl::lake::signature::SigningKey;
use flowgauge_dataplane::{Error, HashKey};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use std::path::Path;

/// Excludes the memory of this process from core dumps and from other processes of its user,
/// before a secret is read. Workers and the kernel's loader have copies of the words derived from a
/// key, so that excluding the key alone would protect nothing.
pub(crate) fn protect() {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!("a core dump of this process would contain its keys: {error}");
    }
}

/// Reads the key of a hash.
pub(crate) fn hash_key(file: &Path) -> Result<HashKey, Error> {
    protect();
    HashKey::read(file)
}

/// Reads the key that signs the rows of a lake.
#[cfg(feature = "lake")]
pub(crate) fn signing_key(file: &Path) -> Result<SigningKey, CommandFailure> {
    protect();
    SigningKey::read(file)
        .map_err(cannot(format_args!("read the key {} that signs rows", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::dumpable_behavior;

    #[test]
    fn a_process_with_secrets_leaves_no_core_dump() {
        protect();
        assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
    }
}
