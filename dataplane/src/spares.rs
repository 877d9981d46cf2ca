//! Pool of result banks for reuse.

use flowgauge_core::Zeroed;
use flowgauge_core::{Settings, WindowTotals};
use std::sync::Arc;

/// Upper bound of the banks that readers reference at once.
const MAX_BANKS: usize = 8;

/// Pool of result banks; readers reference few of them.
///
/// A bank has room for all measurements at their largest, but settings use a small part.
/// Allocating a zeroed bank takes longer than the rest of a read; clearing a used one touches only
/// the parts in use.
#[derive(Default)]
pub(crate) struct BankPool(Vec<Arc<WindowTotals>>);

impl BankPool {
    /// Returns a bank that is zero except for what `fill` writes, for measurements that are on.
    pub(crate) fn fill(
        &mut self,
        settings: &Settings,
        fill: impl FnOnce(&mut WindowTotals),
    ) -> Arc<WindowTotals> {
        let left = self.0.iter_mut().position(|bank| Arc::get_mut(bank).is_some());
        let mut bank = left.map_or_else(WindowTotals::counted, |index| self.0.swap_remove(index));
        // This is the only reference, as checked above.
        if let Some(sum) = Arc::get_mut(&mut bank) {
            if left.is_some() {
                sum.clear(settings);
            }
            fill(sum);
        }
        if self.0.len() < MAX_BANKS {
            self.0.push(Arc::clone(&bank));
        }
        bank
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn referenced_banks_are_untouched_and_others_are_cleared() {
        let settings = Settings::default();
        let mut spares = BankPool::default();
        let put = |packets| move |bank: &mut WindowTotals| bank.counters.ipv4 += packets;
        let held = spares.fill(&settings, put(1));
        let first = spares.fill(&settings, |bank| {
            bank.counters.ipv4 += 2;
            bank.cardinality.update(0x1234_5678, settings.cardinality.precision);
        });
        let place = Arc::as_ptr(&first);
        drop(first);
        let second = spares.fill(&settings, put(4));
        assert_eq!((held.counters.ipv4, second.counters.ipv4), (1, 4));
        assert_eq!(Arc::as_ptr(&second), place, "used again");
        let mut only = WindowTotals::boxed();
        only.counters.ipv4 = 4;
        assert!(*second == *only, "no earlier contents");
    }

    #[test]
    fn the_pool_is_bounded() {
        let mut spares = BankPool::default();
        let held: Vec<_> =
            (0..2 * MAX_BANKS).map(|_| spares.fill(&Settings::default(), |_| {})).collect();
        drop(held);
        assert_eq!(spares.0.len(), MAX_BANKS);
    }
}
