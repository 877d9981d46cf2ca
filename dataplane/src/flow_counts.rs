//! Exact counts of the flows of a window, for comparison with sketches and tables.

use flowgauge_core::FlowKey;
use hashbrown::HashMap;

/// Packets and bytes of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowTraffic {
    /// Number of packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
}

/// Exact packets and bytes of each flow of a window, by one key.
#[derive(Clone, Debug, Default)]
pub struct FlowCounts {
    flows: HashMap<FlowKey, FlowTraffic>,
    /// Whether there were more flows than are counted, so that none is.
    is_over: bool,
}

impl FlowCounts {
    /// Counts a packet, unless there are more than `limit` flows. Returns whether the packet's flow
    /// is the first one beyond the limit.
    pub(crate) fn add(&mut self, key: FlowKey, bytes: u32, limit: usize) -> bool {
        if self.is_over {
            return false;
        }
        if self.flows.len() >= limit && !self.flows.contains_key(&key) {
            *self = FlowCounts { flows: HashMap::new(), is_over: true };
            return true;
        }
        let flow = self.flows.entry(key).or_default();
        flow.packets += 1;
        // As a table of heavy hitters counts: a flow without a byte would have no slot.
        flow.bytes += u64::from(bytes.max(1));
        false
    }

    /// Returns the counts; `None` if there were more flows than are counted.
    pub(crate) fn known(&self) -> Option<&Self> {
        (!self.is_over).then_some(self)
    }

    /// Returns the number of flows.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.flows.len() as u64
    }

    /// Returns the packets and bytes of a flow; zero if it was not seen.
    #[must_use]
    pub fn of(&self, key: &FlowKey) -> FlowTraffic {
        self.flows.get(key).copied().unwrap_or_default()
    }

    /// Returns all flows, in no particular order.
    pub fn each(&self) -> impl Iterator<Item = (&FlowKey, &FlowTraffic)> {
        self.flows.iter()
    }
}

impl FromIterator<(FlowKey, FlowTraffic)> for FlowCounts {
    fn from_iter<T: IntoIterator<Item = (FlowKey, FlowTraffic)>>(flows: T) -> Self {
        FlowCounts { flows: flows.into_iter().collect(), is_over: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> FlowKey {
        FlowKey::new(&[10, 0, 0, number])
    }

    #[test]
    fn flows_are_counted_up_to_the_limit_and_then_none() {
        let mut counts = FlowCounts::default();
        for number in [1, 2, 1, 3, 1] {
            assert!(!counts.add(key(number), 100 * u32::from(number), 3));
        }
        let known = counts.known().unwrap();
        assert_eq!(known.of(&key(1)), FlowTraffic { packets: 3, bytes: 300 });
        assert_eq!(known.of(&key(4)), FlowTraffic::default());
        assert_eq!((known.number(), known.each().map(|(_, flow)| flow.packets).sum()), (3, 5_u64));
        assert!(counts.add(key(4), 100, 3) && !counts.add(key(5), 100, 3));
        assert!(!counts.add(key(1), 100, 3) && counts.known().is_none());
    }
}
