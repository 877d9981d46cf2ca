//! Packets lost before they could be counted.

use std::collections::BTreeMap;

/// Cause of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LossCause {
    /// Drops reported by the capturing machine (pcapng interface statistics).
    Capture,
    /// The interface had no room for the packet, or its driver dropped it.
    Device,
    /// Possibly no loss: dropped by the driver, or by the network stack for lack of room, or by the
    /// stack after it was counted because no protocol accepted it. The kernel has one counter for
    /// all of these.
    DeviceOrStack,
    /// The AF_XDP socket's worker did not keep up: no frame was free, or its ring was full.
    Socket,
    /// The packet did not fit into a frame of an AF_XDP socket: several packets merged by
    /// segmentation or receive offload.
    TooLarge,
    /// The packet arrived on a receive queue that is not counted yet: the interface gained queues
    /// since counting began.
    Queue,
    /// The device could not receive the packet: bad checksum, bad length (its `errs` counter).
    DeviceError,
    /// No receive buffer was free (DPDK's `rx_nombuf`). Some drivers drop the packet, others leave
    /// it in the device, which may drop it.
    NoBuffer,
    /// Not lost: the packet arrived after its window was closed and is in none (captures with
    /// packets out of order).
    Late,
}

impl LossCause {
    /// All causes.
    pub const ALL: [LossCause; 9] = [
        LossCause::Capture,
        LossCause::Device,
        LossCause::DeviceOrStack,
        LossCause::Socket,
        LossCause::TooLarge,
        LossCause::Queue,
        LossCause::DeviceError,
        LossCause::NoBuffer,
        LossCause::Late,
    ];

    /// Returns the name used in outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LossCause::Capture => "capture",
            LossCause::Device => "device",
            LossCause::DeviceOrStack => "device_or_stack",
            LossCause::Socket => "socket",
            LossCause::TooLarge => "too_large",
            LossCause::Queue => "queue",
            LossCause::DeviceError => "device_error",
            LossCause::NoBuffer => "no_buffer",
            LossCause::Late => "late",
        }
    }
}

/// Lost packets by cause, counted since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses(BTreeMap<LossCause, u64>);

impl Losses {
    /// Adds lost packets.
    pub fn add(&mut self, cause: LossCause, packets: u64) {
        if packets > 0 {
            *self.0.entry(cause).or_default() += packets;
        }
    }

    /// Returns the lost packets of one cause.
    #[must_use]
    pub fn get(&self, cause: LossCause) -> u64 {
        self.0.get(&cause).copied().unwrap_or(0)
    }

    /// Removes and returns the packets of one cause.
    pub fn take(&mut self, cause: LossCause) -> u64 {
        self.0.remove(&cause).unwrap_or(0)
    }

    /// Returns the causes with lost packets, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (LossCause, u64)> {
        self.0.iter().map(|(cause, packets)| (*cause, *packets))
    }

    /// Returns all packets lost for certain, which those of [`LossCause::DeviceOrStack`] are not.
    #[must_use]
    pub fn total(&self) -> u64 {
        let certain = self.iter().filter(|(cause, _)| *cause != LossCause::DeviceOrStack);
        certain.map(|(_, packets)| packets).sum()
    }

    /// Returns the losses since `earlier` was taken. A counter below its earlier value was reset
    /// and counts from zero.
    #[must_use]
    pub fn since(&self, earlier: &Losses) -> Losses {
        let mut difference = Losses::default();
        for (cause, packets) in self.iter() {
            difference.add(cause, packets.checked_sub(earlier.get(cause)).unwrap_or(packets));
        }
        difference
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_was_reset_counts_from_zero() {
        let losses = |packets: [u64; 2]| {
            let mut losses = Losses::default();
            losses.add(LossCause::Device, packets[0]);
            losses.add(LossCause::Socket, packets[1]);
            losses
        };
        let since = losses([7, 12]).since(&losses([10, 5]));
        assert_eq!([LossCause::Device, LossCause::Socket].map(|cause| since.get(cause)), [7, 7]);
        assert_eq!(since.total(), 14);
    }
}
