//! Packet and byte counters; rejected frames are counted by cause.

use crate::packet::Reject;
use zerocopy::FromZeros;

/// Counters of one bank. Every frame is in exactly one of the six packet counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct Counters {
    /// Wire bytes of all frames that match, rejected ones included.
    pub bytes: u64,
    /// Packets with a valid IPv4 header.
    pub ipv4: u64,
    /// Packets with a valid IPv6 header.
    pub ipv6: u64,
    /// Frames that carry neither IPv4 nor IPv6.
    pub non_ip: u64,
    /// Frames that end inside the link or network header.
    pub truncated: u64,
    /// Packets whose network header contradicts itself.
    pub bad_header: u64,
    /// Frames that do not match the [filter](crate::Filter), and are not in any other counter.
    pub unmatched: u64,
    /// Wire bytes of these frames.
    pub unmatched_bytes: u64,
    /// Packets in super-packets beyond the first of each, matched or not: a device splits a
    /// super-packet after it was counted, or has merged it before. Devices may count it as one.
    pub merged: u64,
}

impl Counters {
    /// Zero counters.
    pub const ZERO: Counters = Counters {
        bytes: 0,
        ipv4: 0,
        ipv6: 0,
        non_ip: 0,
        truncated: 0,
        bad_header: 0,
        unmatched: 0,
        unmatched_bytes: 0,
        merged: 0,
    };

    /// Returns the number of frames that match, counted or rejected.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.ipv4 + self.ipv6 + self.rejected()
    }

    /// Returns the number of all frames, unmatched ones included.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.packets() + self.unmatched
    }

    /// Returns the number of frames that belong to no flow.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.non_ip + self.truncated + self.bad_header
    }

    /// Counts rejected packets by cause. The caller counts their bytes.
    #[inline(always)]
    pub fn reject(&mut self, reject: Reject, packets: u64) {
        let counter = match reject {
            Reject::NonIp(_) => &mut self.non_ip,
            Reject::Truncated => &mut self.truncated,
            Reject::BadHeader => &mut self.bad_header,
        };
        *counter += packets;
    }

    /// Counts packets that do not match, and their bytes.
    #[inline(always)]
    pub fn leave_out(&mut self, packets: u64, bytes: u64) {
        self.unmatched += packets;
        self.unmatched_bytes += bytes;
    }

    /// Adds the counters of another core.
    pub fn merge(&mut self, other: &Counters) {
        self.bytes += other.bytes;
        self.ipv4 += other.ipv4;
        self.ipv6 += other.ipv6;
        self.non_ip += other.non_ip;
        self.truncated += other.truncated;
        self.bad_header += other.bad_header;
        self.leave_out(other.unmatched, other.unmatched_bytes);
        self.merged += other.merged;
    }
}
