//! Delay samples, sorted by window.

use flowgauge_core::delay::DelaySample;

/// Samples not yet returned to the controller. During a rotation, packets are already counted in
/// the other bank; their samples wait here until the earlier window is closed.
#[derive(Default)]
pub(crate) struct DelaySampleQueue {
    /// Bank of the window that the next rotation closes.
    bank: u8,
    open: Vec<DelaySample>,
    next: Vec<DelaySample>,
}

impl DelaySampleQueue {
    /// Creates an empty queue; the open window is in this bank.
    pub(crate) fn from_bank(bank: u8) -> Self {
        DelaySampleQueue { bank, ..DelaySampleQueue::default() }
    }

    /// Adds a sample.
    pub(crate) fn add(&mut self, sample: DelaySample) {
        let window = if sample.bank == self.bank { &mut self.open } else { &mut self.next };
        window.push(sample);
    }

    /// Returns the open window's samples that were not taken before.
    pub(crate) fn take(&mut self) -> Vec<DelaySample> {
        std::mem::take(&mut self.open)
    }

    /// Closes the window and returns the rest of its samples.
    pub(crate) fn close(&mut self) -> Vec<DelaySample> {
        self.bank ^= 1;
        std::mem::replace(&mut self.open, std::mem::take(&mut self.next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_the_next_window_wait_for_it() {
        let mut queue = DelaySampleQueue::default();
        let add = |queue: &mut DelaySampleQueue, at, bank| {
            queue.add(DelaySample { at, bank, ..DelaySample::EMPTY })
        };
        let times =
            |taken: Vec<DelaySample>| taken.iter().map(|sample| sample.at).collect::<Vec<_>>();
        add(&mut queue, 1, 0);
        add(&mut queue, 2, 1);
        add(&mut queue, 3, 0);
        assert_eq!(times(queue.take()), [1, 3]);
        add(&mut queue, 4, 1);
        add(&mut queue, 5, 0);
        assert_eq!(times(queue.close()), [5]);
        add(&mut queue, 6, 0);
        add(&mut queue, 7, 1);
        assert_eq!(times(queue.take()), [2, 4, 7]);
        assert_eq!(times(queue.close()), [0; 0]);
        assert_eq!(times(queue.close()), [6]);
    }
}
