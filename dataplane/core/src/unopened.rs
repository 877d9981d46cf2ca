//! Most frequent EtherType of frames that count as non-IP.

use zerocopy::FromZeros;

/// The EtherType with the most votes, by Boyer and Moore's majority vote: one number and one count.
/// An EtherType with more than half of all votes always wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct CommonEtherType {
    ethertype: u32,
    /// Votes for it, minus later votes for others.
    votes: u32,
}

impl CommonEtherType {
    /// No votes.
    pub(crate) const NONE: CommonEtherType = CommonEtherType { ethertype: 0, votes: 0 };

    /// Votes for an EtherType; zero for frames without one.
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
            *self = CommonEtherType { ethertype, votes: votes - self.votes };
        }
    }

    /// Adds the votes of another core.
    pub fn merge(&mut self, other: &CommonEtherType) {
        self.vote_for(other.ethertype, other.votes);
    }

    /// Returns the EtherType and a lower bound of its frames. `None` if these frames have no
    /// EtherType, or there were none.
    #[must_use]
    pub fn most(&self) -> Option<(u16, u64)> {
        let ethertype = u16::try_from(self.ethertype)
            .ok()
            .filter(|&ethertype| ethertype != 0 && self.votes > 0)?;
        // Each remaining vote is a frame; of the pairs that cancelled out, possibly none had this
        // EtherType.
        Some((ethertype, u64::from(self.votes)))
    }
}
