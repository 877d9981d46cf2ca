//! Packets that were lost before they could be counted.

use std::collections::BTreeMap;

/// Where a packet was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LossCause {
    /// The machine that captured reported drops (pcapng interface statistics).
    Capture,
    /// The interface had no room for the packet, or its driver dropped it.
    Device,
    /// No loss for certain: the driver dropped the packet, or the network stack had no room for it,
    /// or the stack threw it away after it was counted, as nobody wanted it. The kernel has one
    /// counter for all of these.
    DeviceOrStack,
    /// The packet came to an AF_XDP socket whose worker did not keep up: no frame was free, or its
    /// ring was full.
    Socket,
    /// The packet did not fit into a frame of an AF_XDP socket: several packets in one, by
    /// segmentation or receive offload.
    TooLarge,
    /// The packet came to a receive queue that was not counted yet: the interface has more queues
    /// than when counting began.
    Queue,
    /// The interface could not receive the packet: bad checksum, bad length (its `errs` counter).
    DeviceError,
    /// A packet found no free buffer in memory (DPDK's `rx_nombuf`). Some drivers lose it, others
    /// leave it to the device, which may drop it.
    NoBuffer,
    /// Not lost: the packet's window was closed when it came, so that it is in none (captures whose
    /// packets are out of order).
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

    /// The name used in outputs.
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

    /// Whether such packets are lost for certain.
    #[must_use]
    pub fn is_certain(self) -> bool {
        self != LossCause::DeviceOrStack
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

    /// Lost packets of one cause.
    #[must_use]
    pub fn get(&self, cause: LossCause) -> u64 {
        self.0.get(&cause).copied().unwrap_or(0)
    }

    /// Takes out the packets of one cause.
    pub fn take(&mut self, cause: LossCause) -> u64 {
        self.0.remove(&cause).unwrap_or(0)
    }

    /// Causes with their packets, sorted; causes that lost nothing are left out.
    pub fn iter(&self) -> impl Iterator<Item = (LossCause, u64)> {
        self.0.iter().map(|(cause, packets)| (*cause, *packets))
    }

    /// All packets that are lost [for certain](LossCause::is_certain).
    #[must_use]
    pub fn total(&self) -> u64 {
        self.iter().filter(|(cause, _)| cause.is_certain()).map(|(_, packets)| packets).sum()
    }

    /// What was lost after `earlier` was taken. A counter that went backwards was reset and counts
    /// from zero.
    #[must_use]
    pub fn since(&self, earlier: &Losses) -> Losses {
        let mut difference = Losses::default();
        for (cause, packets) in self.iter() {
            difference.add(cause, packets.checked_sub(earlier.get(cause)).unwrap_or(packets));
        }
        difference
    }
}
