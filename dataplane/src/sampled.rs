//! Individual delays, sorted by window.

use crate::snapshot::DelaySample;
use flowgauge_core::delay::sample::Sample;

/// Delays not yet returned to the controller. During a rotation, packets are already counted in the
/// other bank; their delays wait here until the earlier window is closed.
#[derive(Default)]
pub(crate) struct Sampled {
    /// Bank of the window that the next rotation closes.
    bank: u8,
    open: Vec<DelaySample>,
    next: Vec<DelaySample>,
}

impl Sampled {
    /// Adds a delay measured at a counting point.
    pub(crate) fn add(&mut self, place: usize, sample: Sample) {
        let window = if sample.bank == self.bank { &mut self.open } else { &mut self.next };
        window.push(DelaySample { place, sample });
    }

    /// Returns the open window's delays that were not taken before.
    pub(crate) fn take(&mut self) -> Vec<DelaySample> {
        std::mem::take(&mut self.open)
    }

    /// Closes the window and returns the rest of its delays.
    pub(crate) fn close(&mut self) -> Vec<DelaySample> {
        self.bank ^= 1;
        std::mem::replace(&mut self.open, std::mem::take(&mut self.next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_of_the_next_window_wait_for_it() {
        let mut sampled = Sampled::default();
        let add =
            |sampled: &mut Sampled, at, bank| sampled.add(0, Sample { at, bank, ..Sample::EMPTY });
        let times =
            |taken: Vec<DelaySample>| taken.iter().map(|delay| delay.sample.at).collect::<Vec<_>>();
        add(&mut sampled, 1, 0);
        add(&mut sampled, 2, 1);
        add(&mut sampled, 3, 0);
        assert_eq!(times(sampled.take()), [1, 3]);
        add(&mut sampled, 4, 1);
        add(&mut sampled, 5, 0);
        assert_eq!(times(sampled.close()), [5]);
        add(&mut sampled, 6, 0);
        add(&mut sampled, 7, 1);
        assert_eq!(times(sampled.take()), [2, 4, 7]);
        assert_eq!(times(sampled.close()), [0; 0]);
        assert_eq!(times(sampled.close()), [6]);
    }
}
