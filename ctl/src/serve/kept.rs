//! Recent items in bounded memory. Each reader proceeds at its own pace; a slow one misses the
//! items that were dropped in the meantime, and delays no writer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Recent items with their numbers, which count from zero; clones share them.
#[derive(Clone)]
pub(super) struct RecentItems<T> {
    items: Arc<Mutex<Items<T>>>,
    /// Number of the newest item, to wake readers.
    newest: watch::Sender<u64>,
    /// Maximum memory, in bytes.
    room: usize,
    /// Maximum number of items.
    most: usize,
}

struct Items<T> {
    /// Items with their sizes in bytes, the oldest first.
    items: VecDeque<(T, usize)>,
    bytes: usize,
    /// Number of the next item.
    next: u64,
}

impl<T: Clone> RecentItems<T> {
    /// Creates an empty store of at most `room` bytes and `most` items.
    pub(super) fn new(room: usize, most: usize) -> Self {
        let items = Items { items: VecDeque::new(), bytes: 0, next: 0 };
        RecentItems {
            items: Arc::new(Mutex::new(items)),
            newest: watch::Sender::new(0),
            room,
            most,
        }
    }

    fn items(&self) -> MutexGuard<'_, Items<T>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the item that `make` returns for the next number, with its size in bytes.
    pub(super) fn push<E>(&self, make: impl FnOnce(u64) -> Result<(T, usize), E>) -> Result<(), E> {
        let mut kept = self.items();
        let number = kept.next;
        let (item, bytes) = make(number)?;
        kept.next += 1;
        kept.bytes += bytes;
        kept.items.push_back((item, bytes));
        while kept.bytes > self.room || kept.items.len() > self.most {
            let Some((_, bytes)) = kept.items.pop_front() else { break };
            kept.bytes -= bytes;
        }
        drop(kept);
        self.newest.send_replace(number);
        Ok(())
    }

    /// Returns a receiver that is notified of every new item.
    pub(super) fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Returns whether there is a reader.
    pub(super) fn is_read(&self) -> bool {
        self.newest.receiver_count() > 0
    }

    /// Returns the number of the next item.
    pub(super) fn next(&self) -> u64 {
        self.items().next
    }

    /// Returns at most `most` items from `number` on, the oldest first.
    pub(super) fn from(&self, number: u64, most: usize) -> Vec<(u64, T)> {
        let kept = self.items();
        let oldest = kept.next - kept.items.len() as u64;
        let skipped = number.saturating_sub(oldest) as usize;
        let wanted = (oldest..).zip(&kept.items).skip(skipped).take(most);
        wanted.map(|(number, (item, _))| (number, item.clone())).collect()
    }

    /// Returns the items from `number` on, the oldest first; of more than `most`, the newest.
    pub(super) fn last(&self, number: u64, most: usize) -> Vec<(u64, T)> {
        let from = number.max(self.next().saturating_sub(most as u64));
        self.from(from, usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn push(kept: &RecentItems<u64>, bytes: usize) {
        let Ok(()) = kept.push(|number| Ok::<_, Infallible>((number, bytes)));
    }

    #[test]
    fn the_last_are_kept_up_to_a_number_and_an_amount() {
        let kept = RecentItems::new(100, 5);
        (0..8).for_each(|_| push(&kept, 10));
        let numbers = |items: Vec<(u64, u64)>| {
            items.into_iter().map(|(number, item)| (number == item).then_some(number)).collect()
        };
        let from = |number, most| -> Option<Vec<u64>> { numbers(kept.from(number, most)) };
        assert_eq!(from(0, 99), Some(vec![3, 4, 5, 6, 7]));
        assert_eq!(from(6, 99), Some(vec![6, 7]));
        assert_eq!(from(0, 2), Some(vec![3, 4]));
        assert_eq!(numbers(kept.last(0, 2)), Some(vec![6, 7]));
        assert_eq!((from(8, 99), kept.next()), (Some(vec![]), 8));
        push(&kept, 95);
        assert_eq!(from(0, 99), Some(vec![8]));
        // An item larger than the limit is dropped at once, and counts as missed.
        push(&kept, 101);
        assert_eq!((from(0, 99), kept.next()), (Some(vec![]), 10));
    }
}
