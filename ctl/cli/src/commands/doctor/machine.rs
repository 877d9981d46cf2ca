//! Files in which the kernel describes the machine.

use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

/// Machine whose files are below a root directory. Files may be missing or unreadable.
pub(crate) struct Machine {
    pub(super) root: PathBuf,
    /// Whether this is the machine of this process, so that its kernel can be queried.
    pub(super) live: bool,
}

impl Machine {
    pub(crate) fn this() -> Self {
        Machine { root: PathBuf::from("/"), live: true }
    }

    /// Returns a path below the root. Paths are given without the leading slash.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Returns the text of a file without surrounding white space.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok().map(|text| text.trim().to_owned())
    }

    pub(super) fn number<T: FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// Returns the names in a directory, sorted.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Returns the last component of a symbolic link's target; in /sys this is the name of a
    /// driver.
    pub(super) fn link(&self, path: &str) -> Option<String> {
        fs::read_link(self.path(path)).ok()?.file_name()?.to_str().map(str::to_owned)
    }

    /// Returns the value of the line `key: value` of a file.
    pub(super) fn field(&self, path: &str, key: &str) -> Option<String> {
        let text = self.text(path)?;
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        Some(value.trim().to_owned())
    }

    /// Returns the bytes of memory available without swapping.
    pub(crate) fn available_memory(&self) -> Option<u64> {
        let kibibytes = self.field("proc/meminfo", "MemAvailable")?;
        Some(kibibytes.strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    }
}

/// Returns how many numbers a list such as `0-3,8` contains.
pub(super) fn listed(list: &str) -> Option<usize> {
    list.split(',').try_fold(0, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some(sum + last.checked_sub(first)? + 1)
    })
}

/// Formats a number of bytes for people.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..0x2800 => format!("{:.1} KiB", bytes as f64 / f64::from(1 << 10)),
        0x2800..0x10_0000 => format!("{:.0} KiB", bytes as f64 / f64::from(1 << 10)),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}
