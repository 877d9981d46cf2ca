//! Single delays, if requested ([`Settings::samples`](super::Settings::samples)).
//!
//! A delay that is counted is also appended to the core's [`Outbox`]. The code that counts empties
//! it before it is full: kernel programs after each packet, workers after each pass. A delay that
//! cannot be passed on is counted in the bank of its window.

use crate::arrival::Packets;
use crate::observation::Observation;
use zerocopy::FromZeros;

/// Most delays that one packet can end: one of each kind of TCP.
pub const PER_PACKET: usize = 4;

/// Capacity of an outbox: in the kernel one packet, else a pass of 64.
pub const ROOM: usize = if cfg!(target_arch = "bpf") { PER_PACKET } else { 64 * PER_PACKET };

/// Single delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct Sample {
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
    /// Explicit padding.
    pub reserved: u32,
}

/// Size of a sample in bytes.
pub const BYTES: usize = size_of::<Sample>();

impl Sample {
    /// Empty sample, to be overwritten.
    pub const EMPTY: Sample = Sample {
        at: 0,
        source: 0,
        destination: 0,
        delay: 0,
        weight: 0,
        row: 0,
        fridge: 0,
        bank: 0,
        beyond: 0,
        reserved: 0,
    };

    /// Reads a sample from its bytes in native order, as a program on this machine writes it.
    #[must_use]
    pub fn of_bytes(bytes: &[u8; BYTES]) -> Self {
        let [words @ .., last] = bytes.as_chunks::<8>().0 else { return Self::EMPTY };
        let [at, ends, numbers] = words else { return Self::EMPTY };
        let half = |word: &[u8; 8]| {
            let [a, b, c, d, e, f, g, h] = *word;
            (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]))
        };
        let ((source, destination), (delay, weight)) = (half(ends), half(numbers));
        let [row, fridge, bank, beyond, ..] = *last;
        Sample {
            at: u64::from_ne_bytes(*at),
            source,
            destination,
            delay,
            weight,
            row,
            fridge,
            bank,
            beyond,
            reserved: 0,
        }
    }
}

/// Delays not yet passed on.
#[derive(Clone, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct Outbox {
    pub(super) length: u32,
    /// Explicit padding.
    reserved: u32,
    pub(super) samples: [Sample; ROOM],
}

impl Outbox {
    /// Size of an outbox in the kernel, in bytes.
    pub(super) const IN_KERNEL: usize =
        core::mem::offset_of!(Outbox, samples) + (PER_PACKET * size_of::<Sample>());

    /// Returns room for one more delay, or `None` if the outbox is full.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Option<&mut Sample> {
        let length = self.length;
        // In the kernel there is always room, and no register is free for the check.
        if cfg!(not(target_arch = "bpf")) && length >= ROOM as u32 {
            return None;
        }
        self.length += 1;
        #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
        Some(&mut self.samples[length as usize & (ROOM - 1)])
    }

    /// Sets the fields that the delays of one packet have in common, from the delay at index
    /// `first` on.
    #[inline(always)]
    pub(super) fn address<P: Packets>(&mut self, first: u32, packet: &Observation<P>, bank: usize) {
        let length = self.length as usize;
        let mut index = if cfg!(target_arch = "bpf") { 0 } else { first as usize };
        while index < length && index < ROOM {
            #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
            let sample = &mut self.samples[index & (ROOM - 1)];
            sample.at = packet.time();
            (sample.source, sample.destination) = packet.ends;
            sample.bank = bank as u8;
            index += 1;
        }
    }

    /// Returns the delays and empties the outbox.
    pub(super) fn take(&mut self) -> &[Sample] {
        let length = core::mem::take(&mut self.length) as usize;
        self.samples.get(..length).unwrap_or_default()
    }

    /// Returns the number of delays and the delays, for kernel programs, which empty the outbox
    /// themselves.
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    pub fn parts(&mut self) -> (&mut u32, &[Sample; ROOM]) {
        (&mut self.length, &self.samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_what_its_bytes_say() {
        let sample = Sample {
            at: 0x0102_0304_0506_0708,
            source: 0x1122_3344,
            destination: 0x5566_7788,
            delay: 0x99aa_bbcc,
            weight: 0xddee_ff00,
            row: 13,
            fridge: 3,
            bank: 1,
            beyond: 1,
            reserved: 0,
        };
        let mut bytes = [0; BYTES];
        let numbers = [sample.source, sample.destination, sample.delay, sample.weight]
            .map(u32::to_ne_bytes)
            .concat();
        bytes[..8].copy_from_slice(&sample.at.to_ne_bytes());
        bytes[8..24].copy_from_slice(&numbers);
        bytes[24..28].copy_from_slice(&[13, 3, 1, 1]);
        assert_eq!(Sample::of_bytes(&bytes), sample);
        assert_eq!(BYTES, 32);
    }

    #[test]
    fn an_outbox_has_room_for_a_pass_and_no_more() {
        let mut outbox = Outbox::new_zeroed();
        for number in 0..64 * PER_PACKET as u64 {
            outbox.next().unwrap().at = number;
        }
        assert!(outbox.next().is_none());
        assert!(outbox.samples.iter().zip(0..).all(|(sample, number)| sample.at == number));
    }
}
