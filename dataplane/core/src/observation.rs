//! Packet fields that measurements need.

use crate::arrival::{Arrival, Packets, SingleFrame};
use crate::delay::prefixes::{Owner, Ranges};
use crate::flow_key::FlowKey;
use crate::hash::Tabulation;
use crate::key::KeyKind;
use crate::needs::RequiredFields;
use crate::segment::Segment;

/// One or more observed packets. A single packet need not be in memory, as a slice would require.
pub trait Observed<P> {
    /// Returns the packets, in order.
    fn each<'a>(&'a self) -> impl Iterator<Item = &'a Observation<P>>
    where
        P: 'a;
}

impl<P> Observed<P> for Observation<P> {
    #[inline(always)]
    fn each<'a>(&'a self) -> impl Iterator<Item = &'a Observation<P>>
    where
        P: 'a,
    {
        core::iter::once(self)
    }
}

impl<P> Observed<P> for [Observation<P>] {
    #[inline(always)]
    fn each<'a>(&'a self) -> impl Iterator<Item = &'a Observation<P>>
    where
        P: 'a,
    {
        self.iter()
    }
}

/// Fields of one packet that measurements need. Each key's signature is computed once, however many
/// measurements use it; unused fields hold stale values.
#[derive(Clone, Copy)]
pub struct Observation<P = SingleFrame> {
    /// Signatures by key.
    pub(crate) src: u32,
    pub(crate) dst: u32,
    pub(crate) src_dst: u32,
    pub(crate) five_tuple: u32,
    /// Hashes of these signatures for the first rows of sketches, by key. The kernel's programs,
    /// one per measurement, compute them where they use them.
    #[cfg(not(target_arch = "bpf"))]
    rows: [u64; KeyKind::ALL.len()],
    pub(crate) arrival: Arrival<P>,
    /// Bytes from the network header on, as it declares.
    pub(crate) header_length: u32,
    /// Key of heavy hitters.
    pub(crate) heavy: FlowKey,
    /// Five-tuple of which spread stores parts, and the signatures of its keys with the destination
    /// port.
    pub(crate) spread: FlowKey,
    pub(crate) port_pairs: (u32, u32),
    /// Conversation fields, and the hashes of both endpoints: source and destination.
    pub(crate) segment: Segment,
    pub(crate) ends: (u32, u32),
    /// Addresses of both endpoints, in the form of [prefixes], and their owners.
    pub(crate) addresses: (u64, u64),
    pub(crate) owners: (Owner, Owner),
    /// Source prefix for reordering; zero if no measurement needs it.
    pub(crate) prefix: u64,
}

impl Observation {
    /// An observation of no packet, to be overwritten.
    pub const EMPTY: Observation = Observation::of(&Arrival::new(0, 0));
}

impl<P> Observation<P> {
    /// Size in the kernel, whose programs store one: without the hashes of rows.
    pub(crate) const BYTES_IN_KERNEL: usize = size_of::<Self>()
        - if cfg!(target_arch = "bpf") { 0 } else { size_of::<[u64; KeyKind::ALL.len()]>() };
}

impl<P: Packets> Observation<P> {
    /// Creates the observation of a frame that is not yet parsed.
    #[inline(always)]
    #[must_use]
    pub const fn of(arrival: &Arrival<P>) -> Self {
        Observation {
            src: 0,
            dst: 0,
            src_dst: 0,
            five_tuple: 0,
            #[cfg(not(target_arch = "bpf"))]
            rows: [0; KeyKind::ALL.len()],
            arrival: *arrival,
            header_length: 0,
            heavy: FlowKey::EMPTY,
            spread: FlowKey::EMPTY,
            port_pairs: (0, 0),
            segment: Segment::NONE,
            ends: (0, 0),
            addresses: (0, 0),
            owners: (Owner::NONE, Owner::NONE),
            prefix: 0,
        }
    }

    /// Starts over with another frame; the other fields keep stale values.
    #[inline(always)]
    pub fn arrive(&mut self, arrival: Arrival<P>) {
        self.arrival = arrival;
    }

    /// Looks up the owners of the stored addresses.
    #[inline(always)]
    pub(crate) fn find_owners(&mut self, ranges: &Ranges) {
        let (source, destination) = self.addresses;
        self.owners = (ranges.owner(source), ranges.owner(destination));
    }

    /// Sets the arrival time.
    #[inline(always)]
    pub fn note_time(&mut self, timestamp: u64) {
        self.arrival.timestamp = timestamp;
    }

    /// Returns the arrival time in nanoseconds since the Unix epoch.
    #[inline(always)]
    pub(crate) fn time(&self) -> u64 {
        self.arrival.packets.time(self.arrival.timestamp)
    }

    #[inline(always)]
    pub(crate) fn number(&self) -> u32 {
        self.arrival.packets.number()
    }

    /// Returns the length of each packet but the last, and of the last, from the network header on.
    #[inline(always)]
    #[must_use]
    pub fn lengths(&self) -> (u32, u32) {
        self.arrival.packets.lengths(self.header_length)
    }

    /// Computes the required hashes of rows, once for all measurements.
    #[inline(always)]
    pub(crate) fn note_rows(&mut self, needs: RequiredFields, tabulation: &Tabulation) {
        #[cfg(not(target_arch = "bpf"))]
        for key in KeyKind::ALL {
            if needs.has(RequiredFields::rows(key)) {
                let hashes = tabulation.row_block(self.by(key), 0);
                self.rows.get_mut(key as usize).into_iter().for_each(|rows| *rows = hashes);
            }
        }
        #[cfg(target_arch = "bpf")]
        let _ = (needs, tabulation);
    }

    /// Returns the [hashes](Tabulation::row_block) of a key for the first rows of sketches, which
    /// a measurement must [need](RequiredFields::rows).
    #[inline(always)]
    pub(crate) fn rows(&self, key: KeyKind, tabulation: &Tabulation) -> u64 {
        #[cfg(not(target_arch = "bpf"))]
        {
            let _ = tabulation;
            self.rows.get(key as usize).copied().unwrap_or_default()
        }
        #[cfg(target_arch = "bpf")]
        tabulation.row_block(self.by(key), 0)
    }

    #[inline(always)]
    pub(crate) fn by(&self, key: KeyKind) -> u32 {
        match key {
            KeyKind::Src => self.src,
            KeyKind::Dst => self.dst,
            KeyKind::SrcDst => self.src_dst,
            KeyKind::FiveTuple => self.five_tuple,
        }
    }
}
