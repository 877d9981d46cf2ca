//! Identity of the counting process and of the hash: rows are merged only where these permit it.

use crate::row::{Row, RowDefect};
use flowgauge_core::{HashIdentity, HashMode};
use std::sync::Arc;

/// Version of a lake's columns and of the keys of JSON lines. The same names may mean something
/// else in another version.
pub const SCHEMA: u64 = 1;

/// Identity of the process that counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Name of the machine, or the configured one.
    pub host: Arc<str>,
    /// Unique identifier of the run.
    pub run: Arc<str>,
}

/// Returns the name of a hash, of letters, digits and underscores: `crc32_790900f3`,
/// `tabulated_790900f3_1`, `keyed_0123456789abcdef`.
#[must_use]
pub fn name(hash: &HashIdentity) -> String {
    let HashIdentity { mode, polynomial, seed, fingerprint } = *hash;
    match mode {
        HashMode::Crc32 => format!("{}_{polynomial:08x}", mode.name()),
        HashMode::Tabulated => format!("{}_{polynomial:08x}_{seed}", mode.name()),
        HashMode::Keyed => format!("{}_{fingerprint:016x}", mode.name()),
    }
}

/// Parses the name of a hash; `None` if this version does not implement it.
#[must_use]
pub fn parsed(text: &str) -> Option<HashIdentity> {
    let (mode, rest) = text.split_once('_')?;
    let mode = HashMode::ALL.into_iter().find(|it| it.name() == mode)?;
    let origin = match mode {
        HashMode::Crc32 => 0,
        HashMode::Tabulated => rest.split_once('_')?.1.parse().ok()?,
        HashMode::Keyed => u64::from_str_radix(rest, 16).ok()?,
    };
    // A hash with another polynomial has another name.
    Some(HashIdentity::new(mode, origin)).filter(|hash| name(hash) == text)
}

/// Parses the hash of a row's registers.
pub(crate) fn of(row: &Row) -> Result<HashIdentity, RowDefect> {
    named(row, "hash")
}

/// Parses the hash that a column names.
pub(crate) fn named(row: &Row, column: &str) -> Result<HashIdentity, RowDefect> {
    let text = row.maybe_text(column).ok_or_else(|| format!("column {column} is missing"))?;
    parsed(text)
        .ok_or_else(|| format!("column {column} has '{text}', which this version does not know"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hashes_are_read_back() {
        for (mode, origin) in
            [(HashMode::Crc32, 0), (HashMode::Tabulated, u64::MAX), (HashMode::Keyed, 5)]
        {
            let hash = HashIdentity::new(mode, origin);
            assert_eq!(parsed(&name(&hash)), Some(hash));
        }
        for other in [
            "",
            "crc32",
            "crc32_04c11db7",
            "tabulated_04c11db7_1",
            "tabulated_790900f3_x",
            "sha_1",
            "keyed_5",
        ] {
            assert_eq!(parsed(other), None, "{other}");
        }
    }
}
