//! Owners of addresses: the groups that delays are counted by, and our own side.
//!
//! Addresses are 64-bit numbers: the upper half of an IPv6 address, or an IPv4 address in
//! `ffff:ffff::/32`, from which no IPv6 packet comes. Prefixes divide them into ranges of one owner
//! each, sorted by first address, so that a search takes the same few steps for every address.

use crate::branchless::{not_below, opaque};
use crate::counter::{SharedCounter, SharedWord};
use crate::packet::Packet;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use zerocopy::FromZeros;

/// Most groups, including the group of all other addresses.
pub const MAX_GROUPS: usize = 64;
/// Most prefixes, of all groups and of our own side.
pub const MAX_PREFIXES: usize = 1023;

/// Number of ranges, as a power of two: each prefix begins one range and ends one.
const RANGES_LOG2: u32 = 11;
const RANGES: usize = 1 << RANGES_LOG2;

const _: () = assert!(RANGES >= 2 * MAX_PREFIXES + 2);

/// Number of the first IPv4 address.
const IPV4: u64 = 0xffff_ffff_0000_0000;
/// Mask of the group in a range's word.
const GROUP: u32 = MAX_GROUPS as u32 - 1;
/// Bit of a range's word that is set if the addresses are ours.
const LOCAL: u32 = 1 << 8;

/// Returns a packet's source and destination as numbers.
#[inline(always)]
pub(crate) fn addresses(packet: &Packet<'_>) -> (u64, u64) {
    let of_v4 = |address: [u8; 4]| IPV4 | u64::from(u32::from_be_bytes(address));
    let of_v6 = |high: [u8; 4], low: [u8; 4]| {
        (u64::from(u32::from_be_bytes(high)) << 32) | u64::from(u32::from_be_bytes(low))
    };
    match packet {
        Packet::V4(ip) => (of_v4(ip.src()), of_v4(ip.dst())),
        Packet::V6(ip) => {
            let ([source_high, source_low, ..], [high, low, ..]) = (ip.src(), ip.dst());
            (of_v6(source_high, source_low), of_v6(high, low))
        }
    }
}

/// Prefix of IPv4, or of IPv6 up to /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    first: u64,
    bits: u8,
}

impl Prefix {
    /// Returns the prefix of this length that contains an address, or `None` for a length above /32
    /// (IPv4) or /64 (IPv6), and for an IPv6 prefix in `ffff:ffff::/32`.
    #[must_use]
    pub fn of(address: IpAddr, length: u8) -> Option<Self> {
        let (number, bits) = match address {
            IpAddr::V4(address) if length <= 32 => {
                (IPV4 | u64::from(u32::from(address)), length + 32)
            }
            IpAddr::V6(address) if length <= 64 => ((u128::from(address) >> 64) as u64, length),
            _ => return None,
        };
        let mask = u64::MAX.checked_shl(64 - u32::from(bits)).unwrap_or(0);
        let prefix = Prefix { first: number & mask, bits };
        (prefix.is_v4() == address.is_ipv4()).then_some(prefix)
    }

    fn is_v4(&self) -> bool {
        self.bits >= 32 && self.first >= IPV4
    }

    /// Returns whether the prefix is of IPv4, its first address, and its length. The address is all
    /// 32 bits of IPv4 or the upper 64 bits of IPv6.
    #[must_use]
    pub fn parts(&self) -> (bool, u64, u8) {
        if self.is_v4() {
            (true, self.first ^ IPV4, self.bits - 32)
        } else {
            (false, self.first, self.bits)
        }
    }

    fn last(&self) -> u64 {
        self.first | u64::MAX.checked_shr(self.bits.into()).unwrap_or(0)
    }

    /// Returns whether the prefix contains all addresses of another one. A prefix of numbers short
    /// enough to contain those of IPv4 is of IPv6, so it contains no prefix of IPv4.
    #[must_use]
    pub fn has(&self, other: &Prefix) -> bool {
        self.is_v4() == other.is_v4() && self.first <= other.first && other.last() <= self.last()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (true, address, bits) => write!(f, "{}/{bits}", Ipv4Addr::from(address as u32)),
            (false, address, bits) => {
                write!(f, "{}/{bits}", Ipv6Addr::from(u128::from(address) << 64))
            }
        }
    }
}

/// Owner of an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Number of the group; zero without a group.
    pub group: u8,
    /// Whether the address is ours.
    pub is_local: bool,
}

impl Owner {
    /// Owner of an address outside all prefixes.
    pub const NONE: Owner = Owner { group: 0, is_local: false };
}

/// Owner of a prefix: a group, our own side, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixOwner {
    /// Prefix that is owned.
    pub prefix: Prefix,
    /// Group of the prefix; an address belongs to the group of the longest prefix that contains it.
    pub group: Option<u8>,
    /// Whether the prefix is ours, with all addresses in it.
    pub is_local: bool,
}

/// Returns the owner of a prefix's addresses. No owned prefix may contain only a part of them.
#[must_use]
pub fn owner(owned: &[PrefixOwner], prefix: &Prefix) -> Owner {
    let around = || owned.iter().filter(|other| other.prefix.has(prefix));
    let group = around()
        .filter_map(|other| Some((other.prefix.bits, other.group?)))
        .max_by_key(|(bits, _)| *bits);
    Owner {
        group: group.map_or(0, |(_, group)| group),
        is_local: around().any(|other| other.is_local),
    }
}

/// Returns a fingerprint by which different tables can be distinguished.
#[must_use]
pub fn fingerprint(owned: &[PrefixOwner]) -> u32 {
    let word = |PrefixOwner { prefix, group, is_local }: &PrefixOwner| {
        let owner = (group.map_or(0, |group| u64::from(group) + 1) << 1) | u64::from(*is_local);
        [prefix.first, (u64::from(prefix.bits) << 32) | owner]
    };
    let words = owned.iter().flat_map(word).flat_map(u64::to_be_bytes);
    words.fold(owned.len() as u32, |sum, byte| {
        ((sum ^ u32::from(byte)).wrapping_mul(0x0100_0193)).rotate_left(5)
    })
}

/// Ranges of addresses, in memory that all cores read.
#[derive(FromZeros)]
#[repr(C)]
pub struct Ranges {
    /// First address of each range, in order; the first one is zero, unused ones are at the end.
    first: [SharedWord; RANGES],
    /// Owner of each range: its group, and `LOCAL` if it is ours.
    owners: [SharedCounter; RANGES],
}

impl Ranges {
    /// Returns the owner of an address.
    #[inline(always)]
    pub(crate) fn owner(&self, address: u64) -> Owner {
        let (mut index, mut step) = (0, RANGES / 2);
        while step > 0 {
            let next = opaque(index | step) & (RANGES - 1);
            #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
            let first = self.first[next].load();
            index |= step & not_below(address, first);
            step = opaque(step) >> 1;
        }
        #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
        let owner = self.owners[opaque(index) & (RANGES - 1)].load() as u32;
        Owner { group: (owner & GROUP) as u8, is_local: owner & LOCAL != 0 }
    }

    /// Divides addresses into ranges, before the first packet. Prefixes beyond [`MAX_PREFIXES`] are
    /// left out.
    pub fn write(&self, owned: &[PrefixOwner]) {
        let owned = owned.get(..MAX_PREFIXES).unwrap_or(owned);
        let mut first = [u64::MAX; RANGES];
        let begins = owned.iter().map(|owned| Some(owned.prefix.first));
        let ends = owned.iter().map(|owned| owned.prefix.last().checked_add(1));
        first
            .iter_mut()
            .zip(begins.chain(ends).flatten().chain([0, IPV4]))
            .for_each(|(to, begin)| *to = begin);
        first.sort_unstable();
        for (begin, (to, word)) in first.iter().zip(self.first.iter().zip(&self.owners)) {
            let Owner { group, is_local } = owner(owned, &Prefix { first: *begin, bits: 64 });
            to.publish(*begin);
            word.store((u32::from(group) | if is_local { LOCAL } else { 0 }) as i32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Zeroed;
    extern crate std;
    use std::vec::Vec;

    fn prefix(text: &str) -> Prefix {
        let (address, length) = text.split_once('/').unwrap();
        Prefix::of(address.parse().unwrap(), length.parse().unwrap()).unwrap()
    }

    fn group(text: &str, group: u8) -> PrefixOwner {
        PrefixOwner { prefix: prefix(text), group: Some(group), is_local: false }
    }

    fn ours(text: &str) -> PrefixOwner {
        PrefixOwner { prefix: prefix(text), group: None, is_local: true }
    }

    fn number(address: &str) -> u64 {
        let address: IpAddr = address.parse().unwrap();
        Prefix::of(address, if address.is_ipv4() { 32 } else { 64 }).unwrap().first
    }

    /// Asserts the owner of each address.
    fn check(owned: &[PrefixOwner], expected: &[(&str, u8, bool)]) {
        let ranges = Ranges::boxed();
        ranges.write(owned);
        for (address, group, is_local) in expected {
            let expected = Owner { group: *group, is_local: *is_local };
            assert_eq!(ranges.owner(number(address)), expected, "{address}");
        }
    }

    #[test]
    fn the_longest_prefix_has_an_address_and_all_around_make_it_ours() {
        let owned = [
            group("10.0.0.0/8", 1),
            group("10.1.0.0/16", 2),
            group("10.1.2.3/32", 3),
            ours("10.0.0.0/9"),
            group("2001:db8::/32", 63),
        ];
        let expected = [
            ("0.0.0.0", 0, false),
            ("9.255.255.255", 0, false),
            ("10.0.0.0", 1, true),
            ("10.1.0.0", 2, true),
            ("10.1.2.2", 2, true),
            ("10.1.2.3", 3, true),
            ("10.1.2.4", 2, true),
            ("10.2.0.0", 1, true),
            ("10.128.0.0", 1, false),
            ("10.255.255.255", 1, false),
            ("11.0.0.0", 0, false),
            ("255.255.255.255", 0, false),
            ("::", 0, false),
            ("2001:db7:ffff:ffff::", 0, false),
            ("2001:db8::1", 63, false),
            ("2001:db8:ffff:ffff:ffff::", 63, false),
            ("2001:db9::", 0, false),
        ];
        check(&owned, &expected);
        check(&[], &expected.map(|(address, ..)| (address, 0, false)));
    }

    #[test]
    fn everything_of_one_family_is_nothing_of_the_other() {
        let (both, six) =
            ([group("::/0", 6), group("0.0.0.0/0", 4)], [group("::/0", 6), ours("8000::/1")]);
        check(
            &both,
            &[
                ("::", 6, false),
                ("fe80::", 6, false),
                ("0.0.0.0", 4, false),
                ("255.255.255.255", 4, false),
            ],
        );
        check(
            &six,
            &[
                ("::", 6, false),
                ("fe80::", 6, true),
                ("0.0.0.0", 0, false),
                ("255.255.255.255", 0, false),
            ],
        );
        assert_eq!(Prefix::of("ffff:ffff::".parse().unwrap(), 48), None);
        assert_eq!(Prefix::of("::".parse().unwrap(), 65), None);
        assert_eq!(Prefix::of("0.0.0.0".parse().unwrap(), 33), None);
    }

    /// As many prefixes as possible, nested and adjacent: a search finds the same owner as a scan
    /// of all of them.
    #[test]
    fn a_search_finds_what_a_look_at_all_prefixes_does() {
        let mut random = 1_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (random >> 33) % below
        };
        let mut owned = Vec::new();
        for _ in 0..MAX_PREFIXES {
            let address = std::net::Ipv4Addr::from((10 << 24 | next(1 << 16) << 8) as u32);
            let prefix = Prefix::of(address.into(), 8 + next(25) as u8).unwrap();
            let (number, is_local) = (next(65) as u8, next(4) == 0);
            owned.push(PrefixOwner { prefix, group: (number < 64).then_some(number), is_local });
        }
        owned.sort_by_key(|owned| owned.prefix);
        owned.dedup_by_key(|owned| owned.prefix);
        let ranges = Ranges::boxed();
        ranges.write(&owned);
        for _ in 0..20_000 {
            let address = IPV4 | 10 << 24 | next(1 << 24);
            assert_eq!(
                ranges.owner(address),
                owner(&owned, &Prefix { first: address, bits: 64 }),
                "{address:x}"
            );
        }
    }

    #[test]
    fn tables_that_differ_have_other_fingerprints() {
        let tables: [&[PrefixOwner]; 6] = [
            &[],
            &[group("10.0.0.0/8", 0)],
            &[group("10.0.0.0/8", 1)],
            &[ours("10.0.0.0/8")],
            &[group("10.0.0.0/9", 1)],
            &[group("10.0.0.0/8", 1), ours("11.0.0.0/8")],
        ];
        let mut fingerprints: Vec<u32> = tables.iter().map(|table| fingerprint(table)).collect();
        fingerprints.sort_unstable();
        fingerprints.dedup();
        assert_eq!(fingerprints.len(), tables.len());
    }
}
