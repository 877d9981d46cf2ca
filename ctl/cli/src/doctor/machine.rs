//! What the kernel says about itself in files.

use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

/// A machine whose files are below some directory; they may be missing or unreadable.
pub(super) struct Machine {
    root: PathBuf,
    /// It is the machine this process runs on, and its kernel can be asked.
    pub(super) live: bool,
}

impl Machine {
    pub(super) fn this() -> Self {
        Machine { root: PathBuf::from("/"), live: true }
    }

    pub(super) fn copied_to(root: PathBuf) -> Self {
        Machine { root, live: false }
    }

    /// A path below the root; paths are given without the leading slash.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// A file's text without white space around it.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok().map(|text| text.trim().to_owned())
    }

    pub(super) fn number<T: FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// Names in a directory, sorted.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// The last part of what a symbolic link points to, which in /sys is the name of a driver.
    pub(super) fn link(&self, path: &str) -> Option<String> {
        fs::read_link(self.path(path)).ok()?.file_name()?.to_str().map(str::to_owned)
    }

    /// The value of a line `key: value` of a file.
    pub(super) fn field(&self, path: &str, key: &str) -> Option<String> {
        let text = self.text(path)?;
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        Some(value.trim().to_owned())
    }

    /// Bytes that can be had without swapping.
    pub(super) fn available_memory(&self) -> Option<u64> {
        let kibibytes = self.field("proc/meminfo", "MemAvailable")?;
        Some(kibibytes.strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    }
}

/// How many numbers a list such as `0-3,8` holds.
pub(super) fn listed(list: &str) -> Option<usize> {
    list.split(',').try_fold(0, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some(sum + last.checked_sub(first)? + 1)
    })
}

/// Bytes as people write them.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..0x2800 => format!("{:.1} KiB", bytes as f64 / f64::from(1 << 10)),
        0x2800..0x10_0000 => format!("{:.0} KiB", bytes as f64 / f64::from(1 << 10)),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

/// `1 queue`, `2 queues`.
pub(super) fn plural(count: usize, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}
