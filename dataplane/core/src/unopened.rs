//! Of what EtherType the frames are that count as non-IP, if it is one.

use zerocopy::FromZeros;

/// The EtherType with the most votes, by Boyer and Moore: one number and one count, and whatever
/// has more than half of all votes is it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct Unopened {
    ethertype: u32,
    /// Votes for it, less those of others that came since.
    votes: u32,
}

impl Unopened {
    /// No votes.
    pub(crate) const NONE: Unopened = Unopened { ethertype: 0, votes: 0 };

    /// Frames of an EtherType; zero for those that have none.
    #[inline(always)]
    pub fn vote(&mut self, ethertype: u16, frames: u32) {
        self.vote_for(u32::from(ethertype), frames);
    }

    #[inline(always)]
    fn vote_for(&mut self, ethertype: u32, votes: u32) {
        if self.ethertype == ethertype {
            self.votes = self.votes.saturating_add(votes);
        } else if self.votes >= votes {
            self.votes -= votes;
        } else {
            *self = Unopened { ethertype, votes: votes - self.votes };
        }
    }

    /// Adds the votes of another core.
    pub fn merge(&mut self, other: &Unopened) {
        self.vote_for(other.ethertype, other.votes);
    }

    /// An EtherType, and how many frames it has at least. `None` if they have none, or if there
    /// were none.
    #[must_use]
    pub fn most(&self) -> Option<(u16, u64)> {
        let ethertype = u16::try_from(self.ethertype)
            .ok()
            .filter(|&ethertype| ethertype != 0 && self.votes > 0)?;
        // Each vote that is left is a frame of its own; of the pairs that cancelled out, none need
        // be of this EtherType.
        Some((ethertype, u64::from(self.votes)))
    }
}
