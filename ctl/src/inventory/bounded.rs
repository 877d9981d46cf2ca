//! Table of exact counts with bounded memory.

use serde::Serialize;
use std::collections::HashMap;
use std::hash::Hash;

/// Maximum number of entries of a table. Together all tables take at most 250 MB.
pub const MAX_ENTRIES: usize = 1 << 19;

/// Packets and their bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Volume {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
}

impl Volume {
    pub(super) fn add(&mut self, other: Volume) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// Counts by key, of the first [`MAX_ENTRIES`] keys that come. Packets of further keys are counted
/// together.
#[derive(Debug)]
pub struct BoundedTable<K, V> {
    pub(super) entries: HashMap<K, V>,
    most: usize,
    /// Packets of keys without an entry.
    pub(super) beyond: Volume,
}

impl<K, V> Default for BoundedTable<K, V> {
    fn default() -> Self {
        BoundedTable { entries: HashMap::new(), most: MAX_ENTRIES, beyond: Volume::default() }
    }
}

impl<K: Eq + Hash, V: Default> BoundedTable<K, V> {
    /// Returns the entry of a key, or `None` if the table is full; the packets are then counted
    /// with those of other keys without an entry.
    pub(super) fn entry(&mut self, key: K, packets: Volume) -> Option<&mut V> {
        if self.entries.len() >= self.most && !self.entries.contains_key(&key) {
            self.beyond.add(packets);
            return None;
        }
        Some(self.entries.entry(key).or_default())
    }
}

impl<K: Eq + Hash> BoundedTable<K, Volume> {
    pub(super) fn add(&mut self, key: K, packets: Volume) {
        if let Some(volume) = self.entry(key, packets) {
            volume.add(packets);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_beyond_the_bound_are_counted_together() {
        let mut table = BoundedTable { most: 2, ..BoundedTable::<u32, Volume>::default() };
        for (key, bytes) in [(1, 10), (2, 20), (3, 30), (1, 1), (4, 40), (3, 30)] {
            table.add(key, Volume { packets: 1, bytes });
        }
        assert_eq!(table.entries.get(&1), Some(&Volume { packets: 2, bytes: 11 }));
        assert_eq!(table.entries.len(), 2);
        assert_eq!(table.beyond, Volume { packets: 3, bytes: 100 });
    }
}
