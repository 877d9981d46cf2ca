//! Delays one by one, for those who ask for them ([`Settings::samples`](super::Settings::samples)).
//!
//! A delay that is counted is also put in the core's [`Outbox`]. Whoever counts empties it before
//! there is no more room: the kernel's programs after each packet, workers after each pass. What
//! cannot be passed on is counted in the bank of its window.

use crate::arrival::Packets;
use crate::observation::Observation;
use zerocopy::FromZeros;

/// Delays that one packet can end: one of each kind of TCP.
pub const PER_PACKET: usize = 4;

/// Room in an outbox: in the kernel for one packet, else for a pass of 64.
pub const ROOM: usize = if cfg!(target_arch = "bpf") { PER_PACKET } else { 64 * PER_PACKET };

/// One delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct Sample {
    /// When the answer came, in nanoseconds since the Unix epoch.
    pub at: u64,
    /// Hashes of address and port of the packet that brought the answer: of its source, and of its
    /// destination.
    pub source: u32,
    /// As above.
    pub destination: u32,
    /// In ticks of its kind.
    pub delay: u32,
    /// What it counts for, as [`Weight::weight`](super::weights::Weight::weight).
    pub weight: u32,
    /// Where it is counted: kind by kind, direction by direction.
    pub row: u8,
    /// The fridge that its request was in.
    pub fridge: u8,
    /// The bank that it is counted in.
    pub bank: u8,
    /// 1 if it should weigh more than any weight does, else 0.
    pub beyond: u8,
    /// No padding.
    pub reserved: u32,
}

/// Bytes of a sample.
pub const BYTES: usize = size_of::<Sample>();

impl Sample {
    /// None, to be overwritten.
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

    /// Out of the memory of a program on this machine.
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

/// Delays that nobody has taken yet.
#[derive(Clone, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct Outbox {
    pub(super) length: u32,
    /// No padding.
    reserved: u32,
    pub(super) samples: [Sample; ROOM],
}

impl Outbox {
    /// Bytes that it takes in the kernel.
    pub(super) const IN_KERNEL: usize =
        core::mem::offset_of!(Outbox, samples) + (PER_PACKET * size_of::<Sample>());

    /// Room for one more, if there is any.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Option<&mut Sample> {
        let length = self.length;
        // In the kernel there always is, and no register to spare for the question.
        if cfg!(not(target_arch = "bpf")) && length >= ROOM as u32 {
            return None;
        }
        self.length += 1;
        #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
        Some(&mut self.samples[length as usize & (ROOM - 1)])
    }

    /// Notes what the delays of one packet have in common: those from a number on.
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

    /// What is in it; it is empty from then on.
    pub(super) fn take(&mut self) -> &[Sample] {
        let length = core::mem::take(&mut self.length) as usize;
        self.samples.get(..length).unwrap_or_default()
    }

    /// How many there are, and each of them: for programs in the kernel, which empty it themselves.
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
