//! A counter of distinct flows for other programs.

use crate::measurement::cardinality::estimate::{
    Estimate, Estimator, LevelHistogram, estimate_from,
};
use flowgauge_core::parse::{Packet, network};
use flowgauge_core::{Cardinality, Counters, HashMode, KeyKind, Link, Precision, Tabulation};

/// Counts the distinct flows among Ethernet frames, by 2048 registers and tabulated hashes with
/// seed 1, as `flowgauge replay` does.
///
/// ```
/// use flowgauge_ctl::{Counter, KeyKind};
///
/// let mut counter = Counter::new(KeyKind::Src);
/// for host in 0..100 {
///     let mut frame = [0; 60];
///     frame[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0x00]); // IPv4, a header of 20 bytes
///     frame[17] = 46; // total length
///     frame[26..30].copy_from_slice(&[10, 0, 0, host]); // source
///     counter.add(&frame);
/// }
/// let flows = counter.estimate();
/// assert!(flows.low <= 100.0 && 100.0 <= flows.high);
/// ```
pub struct Counter {
    key: KeyKind,
    counters: Counters,
    registers: Box<Cardinality>,
    tabulation: Box<Tabulation>,
}

impl Counter {
    const PRECISION: Precision = Precision::DEFAULT;

    /// Creates an empty counter; `key` defines a flow.
    #[must_use]
    pub fn new(key: KeyKind) -> Self {
        Counter {
            key,
            counters: Counters::ZERO,
            registers: Box::new(Cardinality::new()),
            tabulation: Box::new(Tabulation::from_seed(1)),
        }
    }

    /// Counts a frame that begins with its Ethernet header. It may be truncated after its headers.
    pub fn add(&mut self, frame: &[u8]) {
        self.counters.bytes += frame.len() as u64;
        match network(frame, Link::Ethernet) {
            Ok(packet) => {
                let of_family = match packet {
                    Packet::V4(_) => &mut self.counters.ipv4,
                    Packet::V6(_) => &mut self.counters.ipv6,
                };
                *of_family += 1;
                let signature = self.key.signature(
                    HashMode::Tabulated,
                    &self.tabulation,
                    &packet,
                    self.key.transport(frame, &packet),
                );
                self.registers
                    .update(HashMode::Tabulated.hash(signature, &self.tabulation), Self::PRECISION);
            }
            Err(reject) => self.counters.reject(reject, 1),
        }
    }

    /// Returns the number of frames and bytes, and of frames that belong to no flow, by cause.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the estimated number of distinct flows so far, with its 95 % interval.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        estimate_from(&LevelHistogram::of(&self.registers, Self::PRECISION), Estimator::Ertl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_no_flow_are_counted_apart() {
        let mut counter = Counter::new(KeyKind::FiveTuple);
        counter.add(&[0; 60]);
        counter.add(&[0; 5]);
        assert_eq!(
            (counter.counters().non_ip, counter.counters().truncated, counter.counters().bytes),
            (1, 1, 65)
        );
        assert_eq!(counter.estimate(), Estimate::ZERO);
    }
}
