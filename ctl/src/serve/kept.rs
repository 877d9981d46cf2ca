//! What came last, up to an amount of memory, for readers that go on at their own pace. A reader
//! that is too slow misses what is no longer kept, and keeps nobody waiting.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Items with their numbers, which count up from zero; clones are of the same ones.
pub(super) struct Kept<T> {
    items: Arc<Mutex<Items<T>>>,
    /// Changes with every item.
    newest: watch::Sender<u64>,
    /// They take at most so many bytes.
    room: usize,
    /// So many are kept at most.
    most: usize,
}

struct Items<T> {
    items: VecDeque<Item<T>>,
    bytes: usize,
    next: u64,
}

struct Item<T> {
    number: u64,
    bytes: usize,
    item: T,
}

impl<T> Clone for Kept<T> {
    fn clone(&self) -> Self {
        Kept {
            items: Arc::clone(&self.items),
            newest: self.newest.clone(),
            room: self.room,
            most: self.most,
        }
    }
}

impl<T: Clone> Kept<T> {
    /// At most so many bytes and items are kept.
    pub(super) fn new(room: usize, most: usize) -> Self {
        let items = Items { items: VecDeque::new(), bytes: 0, next: 0 };
        Kept { items: Arc::new(Mutex::new(items)), newest: watch::Sender::new(0), room, most }
    }

    fn items(&self) -> MutexGuard<'_, Items<T>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what is made of the next number, with its size in bytes.
    pub(super) fn push<E>(&self, make: impl FnOnce(u64) -> Result<(T, usize), E>) -> Result<(), E> {
        let mut kept = self.items();
        let number = kept.next;
        let (item, bytes) = make(number)?;
        kept.next += 1;
        kept.bytes += bytes;
        kept.items.push_back(Item { number, bytes, item });
        while kept.bytes > self.room || kept.items.len() > self.most {
            let Some(oldest) = kept.items.pop_front() else { break };
            kept.bytes -= oldest.bytes;
        }
        drop(kept);
        self.newest.send_replace(number);
        Ok(())
    }

    /// Changes with every item.
    pub(super) fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Whether anybody reads.
    pub(super) fn is_read(&self) -> bool {
        self.newest.receiver_count() > 0
    }

    /// The number of the item that comes next.
    pub(super) fn next(&self) -> u64 {
        self.items().next
    }

    /// Items from a number on, the oldest first; at most so many.
    pub(super) fn from(&self, number: u64, most: usize) -> Vec<(u64, T)> {
        let kept = self.items();
        let first = kept.items.partition_point(|item| item.number < number);
        kept.items.range(first..).take(most).map(|item| (item.number, item.item.clone())).collect()
    }

    /// Items from a number on, the oldest first; at most so many, which are the last.
    pub(super) fn last(&self, number: u64, most: usize) -> Vec<(u64, T)> {
        let from = number.max(self.next().saturating_sub(most as u64));
        self.from(from, usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn push(kept: &Kept<u64>, bytes: usize) {
        let Ok(()) = kept.push(|number| Ok::<_, Infallible>((number, bytes)));
    }

    #[test]
    fn the_last_are_kept_up_to_a_number_and_an_amount() {
        let kept = Kept::new(100, 5);
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
        // One that alone takes more than there is room for is gone at once, and is missed.
        push(&kept, 101);
        assert_eq!((from(0, 99), kept.next()), (Some(vec![]), 10));
    }
}
