//! Delay samples: single delays, if requested ([`Settings::samples`](super::Settings::samples)).
//!
//! A delay that is counted is also added to the core's [`DelaySamples`]. The code that counts sends
//! them to the controller before there is no more room: kernel programs after each packet, workers
//! after each pass. A sample that cannot be sent is counted in the bank of its window.

use crate::arrival::Packets;
use crate::observation::Observation;
use zerocopy::{FromBytes, FromZeros};

/// Most delays that one packet can end: one of each kind of TCP.
pub const PER_PACKET: usize = 4;

/// Capacity of [`DelaySamples`]: in the kernel one packet, else a pass of 64.
pub const CAPACITY: usize = if cfg!(target_arch = "bpf") { PER_PACKET } else { 64 * PER_PACKET };

/// Delay of one request, as the packet path reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes)]
#[repr(C)]
pub struct DelaySample {
    /// Time of the answer, in nanoseconds since the Unix epoch.
    pub at: u64,
    /// Hash of the source address and port of the packet that brought the answer.
    pub source: u32,
    /// Hash of the destination address and port of that packet.
    pub destination: u32,
    /// Delay in ticks of its kind.
    pub delay: u32,
    /// Weight of the delay, as [`Weight::weight`](super::weights::Weight::weight).
    pub weight: u32,
    /// Row that it is counted in, in order of kind, group and direction.
    pub row: u8,
    /// Fridge that its request was in.
    pub fridge: u8,
    /// Bank that it is counted in.
    pub bank: u8,
    /// 1 if it should weigh more than the largest weight, else 0.
    pub beyond: u8,
    /// Counting point of the answer, as an index among those of the dataplane; zero until the
    /// dataplane sets it.
    pub place: u32,
}

impl DelaySample {
    /// Empty sample, to be overwritten.
    pub const EMPTY: DelaySample = DelaySample {
        at: 0,
        source: 0,
        destination: 0,
        delay: 0,
        weight: 0,
        row: 0,
        fridge: 0,
        bank: 0,
        beyond: 0,
        place: 0,
    };

    /// Reads a sample from its bytes in native order, as a program on this machine writes it;
    /// `None` if there are too few.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::read_from_prefix(bytes).ok().map(|(sample, _)| sample)
    }
}

/// Delay samples of one core that were not sent to the controller yet.
#[derive(Clone, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct DelaySamples {
    pub(super) length: u32,
    /// Explicit padding.
    reserved: u32,
    pub(super) samples: [DelaySample; CAPACITY],
}

impl DelaySamples {
    /// Size in the kernel, in bytes.
    pub(super) const IN_KERNEL: usize =
        core::mem::offset_of!(DelaySamples, samples) + (PER_PACKET * size_of::<DelaySample>());

    /// Adds a sample for the caller to fill; `None` if there is no room.
    #[inline(always)]
    pub(super) fn add(&mut self) -> Option<&mut DelaySample> {
        let length = self.length;
        // In the kernel there is always room, and no register is free for the check.
        if cfg!(not(target_arch = "bpf")) && length >= CAPACITY as u32 {
            return None;
        }
        self.length += 1;
        #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
        Some(&mut self.samples[length as usize & (CAPACITY - 1)])
    }

    /// Sets the fields that the samples of one packet have in common, from the sample at index
    /// `first` on.
    #[inline(always)]
    pub(super) fn complete<P: Packets>(
        &mut self,
        first: u32,
        packet: &Observation<P>,
        bank: usize,
    ) {
        let length = self.length as usize;
        let mut index = if cfg!(target_arch = "bpf") { 0 } else { first as usize };
        while index < length && index < CAPACITY {
            #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
            let sample = &mut self.samples[index & (CAPACITY - 1)];
            sample.at = packet.time();
            (sample.source, sample.destination) = packet.ends;
            sample.bank = bank as u8;
            index += 1;
        }
    }

    /// Returns the delays and empties the samples.
    pub(super) fn take(&mut self) -> &[DelaySample] {
        let length = core::mem::take(&mut self.length) as usize;
        self.samples.get(..length).unwrap_or_default()
    }

    /// Returns the number of samples and the samples, for kernel programs, which remove them
    /// themselves.
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    pub fn parts(&mut self) -> (&mut u32, &[DelaySample; CAPACITY]) {
        (&mut self.length, &self.samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_room_for_a_pass_and_no_more() {
        let mut samples = DelaySamples::new_zeroed();
        for number in 0..64 * PER_PACKET as u64 {
            samples.add().unwrap().at = number;
        }
        assert!(samples.add().is_none());
        assert!(samples.samples.iter().zip(0..).all(|(sample, number)| sample.at == number));
    }
}
