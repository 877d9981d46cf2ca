//! Entropy of Lapolli, Marques and Gaspary (*Offloading real-time DDoS attack detection to
//! programmable data planes*, 2019), which P4Entropy is compared with: the same sum, with the
//! increment of a packet looked up in a longest-prefix-match table.

/// Bits below the leading one that the table distinguishes.
const BITS: u32 = 5;

/// Increments of the sum for the packet that makes a flow's count f, in sixteenths of a bit: `f
/// log2 f - (f - 1) log2 (f - 1)`.
///
/// As in the switch, counts with the same leading bits share an entry, which is exact for their
/// middle.
#[derive(Clone, Debug)]
pub(super) struct Table(Vec<u32>);

impl Table {
    pub(super) fn new() -> Self {
        let entry = |leading: u32, below: u32| {
            let step = 1_u64 << leading.saturating_sub(BITS);
            // Each shorter number has an entry of its own.
            let first =
                (1_u64 << leading) + u64::from(below >> BITS.saturating_sub(leading)) * step;
            let count = (first + step / 2) as f64;
            let before = count - 1.0;
            let without = if before > 0.0 { before * before.log2() } else { 0.0 };
            (16.0 * (count * count.log2() - without)).round() as u32
        };
        Table(
            (0..31)
                .flat_map(|leading| (0..1 << BITS).map(move |below| entry(leading, below)))
                .collect(),
        )
    }

    /// Returns the increment for a count; 0 for an invalid count.
    pub(super) fn term(&self, count: i32) -> u64 {
        let count = count.max(0).unsigned_abs();
        let Some(leading) = count.checked_ilog2() else { return 0 };
        let below = (u64::from(count) << BITS >> leading) & ((1 << BITS) - 1);
        self.0.get((leading << BITS) as usize + below as usize).map_or(0, |term| u64::from(*term))
    }
}

/// Returns the entropy in bits of a window of 2 to this many packets. The division is a shift.
pub(super) fn entropy(packets_bits: u32, sum: u64) -> f64 {
    ((u64::from(packets_bits) << 4) as f64 - (sum >> packets_bits) as f64) / 16.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_those_of_the_formula() {
        let table = Table::new();
        assert_eq!([i32::MIN, -1, 0, 1].map(|count| table.term(count)), [0; 4]);
        assert_eq!([2, 3, 4].map(|count| table.term(count)), [32, 44, 52]);
        for count in 2..100_000 {
            let f = f64::from(count);
            let exact = 16.0 * (f * f.log2() - (f - 1.0) * (f - 1.0).log2());
            // Rounding, plus for counts that share an entry the distance from its middle, at most a
            // 64th of the count, times the slope of the formula.
            let shared = if count < 64 { 0.0 } else { 16.0 / 64.0 * std::f64::consts::LOG2_E };
            assert!((table.term(count) as f64 - exact).abs() <= 0.5 + shared, "{count}");
        }
        assert!(table.term(i32::MAX) > 16 * 31);
    }

    #[test]
    fn flows_of_one_packet_have_the_logarithm_of_the_packets_and_one_flow_none() {
        assert_eq!(entropy(21, 0), 21.0);
        let table = Table::new();
        let sum = (1..=1 << 16).map(|count| table.term(count)).sum();
        assert_eq!(entropy(16, sum), 0.0);
    }
}
