//! Normal form: one ordered list of value/mask rules for each kind of frame.
//!
//! A primitive is a short list. The first rule that a packet meets decides. `not` inverts every
//! verdict. `and` replaces each rule of the first list that matches by the second list, restricted
//! to the packets of that rule; `or` follows by De Morgan. Since rules can also reject packets,
//! `not host 10.0.0.1` takes two rules, where a list that only accepts would take a thousand.
//!
//! After each step, rules are dropped that no packet reaches or that change nothing. Lists are
//! limited to [`MAX_UNSIMPLIFIED_RULES`], so that the time of a step is, too.

use super::{
    ExpressionTree, FilterError, IpVersion, MAX_UNSIMPLIFIED_RULES, PacketEnd, PortRange, Primitive,
};
use flowgauge_core::filter::fields::{
    ADDRESSES, COMMON_WORDS, FLAGS_SHIFT, FRAME, HAS_FLAGS, HAS_PORTS, IPV4_WORDS, IPV6_WORDS,
    LENGTH_MASK, PORTS, PROTOCOL, PROTOCOL_SHIFT, TAGGED, VLAN_MASK, VLAN_SHIFT,
};
use flowgauge_core::filter::{MAX_RULES, MatchRule, MatchRules};
use flowgauge_core::{Filter, Zeroed};
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

const TCP: u32 = 6;
/// Protocols whose ports are matched.
const WITH_PORTS: [u32; 3] = [TCP, 17, 132];
const PROTOCOL_MASK: u32 = 0xff << PROTOCOL_SHIFT;
/// List length up to which simplification also looks for rules that earlier ones make superfluous.
const MAX_THOROUGH: usize = 2 * MAX_RULES;

/// Kind of frame that a list is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFamily {
    /// IPv4 packets.
    V4,
    /// IPv6 packets.
    V6,
    /// Frames that carry neither.
    NonIp,
    /// Frames whose network header cannot be read.
    Unreadable,
}

impl fmt::Display for FrameFamily {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            FrameFamily::V4 => "IPv4",
            FrameFamily::V6 => "IPv6",
            FrameFamily::NonIp => "non-IP frames",
            FrameFamily::Unreadable => "truncated frames",
        })
    }
}

/// Translates a tree into a filter.
pub(super) fn filter(tree: &ExpressionTree) -> Result<Arc<Filter>, FilterError> {
    let list =
        |family: FrameFamily| RuleList::of(tree, family).ok_or(FilterError::TooComplex { family });
    let [v4, v6, non_ip] =
        [list(FrameFamily::V4)?, list(FrameFamily::V6)?, list(FrameFamily::NonIp)?];
    if [&v4, &v6, &non_ip].into_iter().all(RuleList::is_never) && !is_of_lengths(tree) {
        return Err(FilterError::MatchesNothing);
    }
    let unreadable = [&v4, &v6, &non_ip]
        .into_iter()
        .map(|list| Some(list.possible()))
        .reduce(|one, other| one?.or(&other?))
        .flatten()
        .ok_or(FilterError::TooComplex { family: FrameFamily::Unreadable })?;
    let mut filter = Filter::boxed();
    v4.write(FrameFamily::V4, &mut filter.ipv4)?;
    v6.write(FrameFamily::V6, &mut filter.ipv6)?;
    non_ip.write(FrameFamily::NonIp, &mut filter.non_ip)?;
    unreadable.write(FrameFamily::Unreadable, &mut filter.unreadable)?;
    Ok(Arc::from(filter))
}

/// Returns whether only conditions on lengths keep a tree from matching a packet, as in
/// `not greater 0`. Like tcpdump, flowgauge accepts such an expression.
fn is_of_lengths(tree: &ExpressionTree) -> bool {
    let tree = tree.with_lengths(true);
    [FrameFamily::V4, FrameFamily::V6, FrameFamily::NonIp]
        .into_iter()
        .any(|family| RuleList::of(&tree, family).is_none_or(|list| !list.is_never()))
}

/// Returns the ranges of ports in a tree, each with the number of prefixes that it is split into.
pub(super) fn port_ranges(tree: &ExpressionTree) -> Vec<PortRange> {
    match tree {
        ExpressionTree::Primitive(Primitive::Ports { ports, .. })
            if ports.start() < ports.end() =>
        {
            vec![PortRange { ports: ports.clone(), prefixes: prefixes(ports).len() }]
        }
        ExpressionTree::Primitive(_) => Vec::new(),
        ExpressionTree::Not(inner) => port_ranges(inner),
        ExpressionTree::And(one, other) | ExpressionTree::Or(one, other) => {
            [port_ranges(one), port_ranges(other)].concat()
        }
    }
}

/// Set of packets: those whose fields under the mask have the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PacketSet {
    value: [u32; IPV6_WORDS],
    mask: [u32; IPV6_WORDS],
}

impl PacketSet {
    /// All packets.
    const ALL: PacketSet = PacketSet { value: [0; IPV6_WORDS], mask: [0; IPV6_WORDS] };

    /// Returns the packets of the set whose word has this value under this mask, in place of an
    /// earlier condition on these bits.
    fn with(mut self, word: usize, mask: u32, value: u32) -> Self {
        if let (Some(values), Some(masks)) = (self.value.get_mut(word), self.mask.get_mut(word)) {
            *values = *values & !mask | value & mask;
            *masks |= mask;
        }
        self
    }

    /// Returns the packets in both sets; `None` without any.
    fn and(&self, other: &PacketSet) -> Option<PacketSet> {
        let mut both = *self;
        for word in 0..IPV6_WORDS {
            if (self.value[word] ^ other.value[word]) & self.mask[word] & other.mask[word] != 0 {
                return None;
            }
            both.value[word] |= other.value[word];
            both.mask[word] |= other.mask[word];
        }
        both.is_possible().then_some(both)
    }

    /// Returns whether a packet can have these fields: only some protocols have ports, and only
    /// TCP has flags.
    fn is_possible(&self) -> bool {
        let (value, mask) = (self.value[PROTOCOL], self.mask[PROTOCOL]);
        let has = |bit| mask & value & bit != 0;
        let protocol = (mask & PROTOCOL_MASK == PROTOCOL_MASK).then_some(value >> PROTOCOL_SHIFT);
        protocol.is_none_or(|protocol| {
            (!has(HAS_PORTS) || WITH_PORTS.contains(&protocol))
                && (!has(HAS_FLAGS) || protocol == TCP)
        })
    }

    /// Returns whether all packets of `other` are in the set.
    fn covers(&self, other: &PacketSet) -> bool {
        (0..IPV6_WORDS).all(|word| {
            self.mask[word] & !other.mask[word] == 0
                && (self.value[word] ^ other.value[word]) & self.mask[word] == 0
        })
    }
}

/// Ordered rules, and the verdict on packets that meet none of them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RuleList {
    rules: Vec<(PacketSet, bool)>,
    otherwise: bool,
}

impl RuleList {
    const NEVER: RuleList = RuleList { rules: Vec::new(), otherwise: false };

    /// Translates a tree for one kind of frame; `None` if it takes too many rules.
    fn of(tree: &ExpressionTree, family: FrameFamily) -> Option<RuleList> {
        match tree {
            ExpressionTree::Primitive(primitive) => {
                let mut list = RuleList::of_primitive(primitive, family);
                list.simplify();
                Some(list)
            }
            ExpressionTree::Not(inner) => Some(RuleList::of(inner, family)?.not()),
            ExpressionTree::And(one, other) => {
                RuleList::of(one, family)?.and(&RuleList::of(other, family)?)
            }
            ExpressionTree::Or(one, other) => {
                RuleList::of(one, family)?.or(&RuleList::of(other, family)?)
            }
        }
    }

    /// Returns the list that matches packets in any of the sets.
    fn any(sets: impl IntoIterator<Item = PacketSet>) -> RuleList {
        RuleList { rules: sets.into_iter().map(|set| (set, true)).collect(), otherwise: false }
    }

    fn of_primitive(primitive: &Primitive, family: FrameFamily) -> RuleList {
        let is_ip = matches!(family, FrameFamily::V4 | FrameFamily::V6);
        let is_of = |version: IpVersion| match version {
            IpVersion::V4 => family == FrameFamily::V4,
            IpVersion::V6 => family == FrameFamily::V6,
        };
        match primitive {
            Primitive::Vlan(id) => {
                let tagged = PacketSet::ALL.with(FRAME, TAGGED, TAGGED);
                RuleList::any([match id {
                    Some(id) => {
                        tagged.with(FRAME, VLAN_MASK << VLAN_SHIFT, u32::from(*id) << VLAN_SHIFT)
                    }
                    None => tagged,
                }])
            }
            Primitive::Length(lengths) => RuleList::of_lengths(lengths),
            Primitive::Ip(version) => RuleList { otherwise: is_of(*version), ..RuleList::NEVER },
            Primitive::Protocol(version, number) if is_ip && version.is_none_or(is_of) => {
                RuleList::any([with_protocol(PacketSet::ALL, Some(*number))])
            }
            Primitive::Network { end, address, mask } if is_of(IpVersion::of(*address)) => {
                at_ends(*end, &[()], |set, is_source, ()| {
                    with_address(set, is_source, *address, *mask)
                })
            }
            Primitive::Ports { end, protocol, ports } if is_ip => {
                let prefixes = prefixes(ports);
                at_ends(*end, &prefixes, |set, is_source, (value, mask)| {
                    let shift = if is_source { 16 } else { 0 };
                    let with_ports = set.with(PROTOCOL, HAS_PORTS, HAS_PORTS);
                    with_protocol(with_ports, *protocol).with(
                        PORTS,
                        u32::from(*mask) << shift,
                        u32::from(*value) << shift,
                    )
                })
            }
            Primitive::Flags { mask, value, differs } if is_ip => {
                let segment = with_protocol(PacketSet::ALL, Some(TCP as u8))
                    .with(PROTOCOL, HAS_FLAGS, HAS_FLAGS);
                let [mask, value] = [mask, value].map(|flags| u32::from(*flags) << FLAGS_SHIFT);
                let equal = segment.with(PROTOCOL, mask, value);
                // No flags have a value with bits outside the mask.
                let equal = (value & !mask == 0).then_some((equal, !differs));
                let others = differs.then_some((segment, true));
                RuleList { rules: equal.into_iter().chain(others).collect(), otherwise: false }
            }
            // It is not true of frames without these fields.
            Primitive::Protocol(..)
            | Primitive::Network { .. }
            | Primitive::Ports { .. }
            | Primitive::Flags { .. } => RuleList::NEVER,
        }
    }

    /// Returns the list of a range of lengths: the prefixes in it, or those outside if there are
    /// fewer.
    fn of_lengths(lengths: &RangeInclusive<u16>) -> RuleList {
        let any_of = |ranges: &[RangeInclusive<u16>]| {
            RuleList::any(ranges.iter().flat_map(prefixes).map(|(value, mask)| {
                PacketSet::ALL.with(FRAME, LENGTH_MASK & u32::from(mask), value.into())
            }))
        };
        let below = lengths.start().checked_sub(1).map(|last| 0..=last);
        let above = lengths.end().checked_add(1).map(|first| first..=u16::MAX);
        let inside = any_of(std::slice::from_ref(lengths));
        let outside = any_of(&below.into_iter().chain(above).collect::<Vec<_>>());
        if outside.rules.len() < inside.rules.len() { outside.not() } else { inside }
    }

    /// Returns the list that matches what this one does not.
    fn not(mut self) -> RuleList {
        self.rules.iter_mut().for_each(|(_, verdict)| *verdict = !*verdict);
        RuleList { otherwise: !self.otherwise, ..self }
    }

    /// Returns the list that matches what one of both does; `None` if it takes too many rules.
    fn or(&self, other: &RuleList) -> Option<RuleList> {
        Some(self.clone().not().and(&other.clone().not())?.not())
    }

    /// Returns the list that matches what both do; `None` if it takes too many rules.
    fn and(&self, other: &RuleList) -> Option<RuleList> {
        // The order does not matter, but for the number of rules.
        let (first, second) = if self.rules_with(other) <= other.rules_with(self) {
            (self, other)
        } else {
            (other, self)
        };
        let mut both = RuleList::NEVER;
        for (set, verdict) in &first.rules {
            if !verdict {
                both.push(*set, false)?;
                continue;
            }
            // A packet that `second` refuses by default needs no rule: it meets no later rule that
            // matches, since these are all restricted by rules of `second`.
            for (restriction, verdict) in &second.rules {
                if let Some(set) = set.and(restriction) {
                    both.push(set, *verdict)?;
                }
            }
            if second.otherwise {
                both.push(*set, true)?;
            }
        }
        if first.otherwise {
            second.rules.iter().try_for_each(|(set, verdict)| both.push(*set, *verdict))?;
            both.otherwise = second.otherwise;
        }
        both.simplify();
        Some(both)
    }

    /// Returns the number of rules of [`and`](Self::and) before they are simplified, at most.
    fn rules_with(&self, second: &RuleList) -> usize {
        let matching = self.rules.iter().filter(|(_, verdict)| *verdict).count();
        let otherwise = usize::from(self.otherwise);
        self.rules.len() + (matching + otherwise) * second.rules.len()
    }

    /// Appends a rule, unless an earlier one leaves no packets to it.
    fn push(&mut self, set: PacketSet, verdict: bool) -> Option<()> {
        if self.rules.iter().any(|(earlier, _)| earlier.covers(&set)) {
            return Some(());
        }
        (self.rules.len() < MAX_UNSIMPLIFIED_RULES).then(|| self.rules.push((set, verdict)))
    }

    /// Drops rules that change nothing, because the rules after them give their packets the same
    /// verdict.
    fn simplify(&mut self) {
        for index in (0..self.rules.len()).rev() {
            if self.is_redundant(index) {
                self.rules.remove(index);
            }
        }
    }

    fn is_redundant(&self, index: usize) -> bool {
        let (earlier, Some(((set, verdict), later))) =
            (&self.rules[..index], self.rules[index..].split_first())
        else {
            return false;
        };
        for (other, other_verdict) in later {
            if other_verdict == verdict {
                if other.covers(set) {
                    return true;
                }
                continue;
            }
            let Some(both) = set.and(other) else { continue };
            let is_thorough = self.rules.len() <= MAX_THOROUGH;
            if !is_thorough || !earlier.iter().any(|(earlier, _)| earlier.covers(&both)) {
                return false;
            }
        }
        self.otherwise == *verdict
    }

    /// Returns whether no packet matches.
    fn is_never(&self) -> bool {
        !self.otherwise && self.rules.iter().all(|(_, verdict)| !verdict)
    }

    /// Returns the list over the length alone that matches every frame that this one may match. A
    /// rule that rejects packets decides only if it compares nothing else.
    fn possible(&self) -> RuleList {
        let mut possible = RuleList { otherwise: self.otherwise, ..RuleList::NEVER };
        for (set, verdict) in &self.rules {
            let known = PacketSet::ALL.with(FRAME, set.mask[FRAME] & LENGTH_MASK, set.value[FRAME]);
            if *verdict || known == *set {
                // Shorter than the list that it is made of.
                let _ = possible.push(known, *verdict);
            }
        }
        possible.simplify();
        possible
    }

    /// Writes the list into a match table.
    fn write<const WORDS: usize>(
        &self,
        family: FrameFamily,
        table: &mut MatchRules<WORDS>,
    ) -> Result<(), FilterError> {
        let words = |words: &[u32; IPV6_WORDS]| std::array::from_fn(|word| words[word]);
        let rule = |(PacketSet { value, mask }, verdict): &(PacketSet, bool)| MatchRule {
            value: words(value),
            mask: words(mask),
            verdict: (*verdict).into(),
        };
        let rules: Vec<MatchRule<WORDS>> = self.rules.iter().map(rule).collect();
        let rules_too_many = FilterError::TooManyRules { family, rules: rules.len() };
        table.write(&rules, self.otherwise).ok_or(rules_too_many)
    }
}

const _: () = assert!(COMMON_WORDS <= IPV4_WORDS && IPV4_WORDS <= IPV6_WORDS);

fn with_protocol(set: PacketSet, protocol: Option<u8>) -> PacketSet {
    match protocol {
        Some(number) => set.with(PROTOCOL, PROTOCOL_MASK, u32::from(number) << PROTOCOL_SHIFT),
        None => set,
    }
}

fn with_address(set: PacketSet, is_source: bool, address: IpAddr, mask: IpAddr) -> PacketSet {
    let words = |address: IpAddr| match address {
        IpAddr::V4(address) => vec![u32::from(address)],
        IpAddr::V6(address) => {
            let bits = u128::from(address);
            [96, 64, 32, 0].map(|shift| (bits >> shift) as u32).to_vec()
        }
    };
    let (values, masks) = (words(address), words(mask));
    let first = ADDRESSES + if is_source { 0 } else { values.len() };
    values
        .into_iter()
        .zip(masks)
        .zip(first..)
        .fold(set, |set, ((value, mask), word)| set.with(word, mask, value))
}

/// Returns the list of a condition on one end or both: that it has one of these values.
fn at_ends<T>(
    end: PacketEnd,
    values: &[T],
    restrict: impl Fn(PacketSet, bool, &T) -> PacketSet,
) -> RuleList {
    let restrict = &restrict;
    let one =
        |is_source| values.iter().map(move |value| restrict(PacketSet::ALL, is_source, value));
    match end {
        PacketEnd::Source => RuleList::any(one(true)),
        PacketEnd::Destination => RuleList::any(one(false)),
        PacketEnd::Either => RuleList::any(one(true).chain(one(false))),
        PacketEnd::Both => RuleList::any(
            one(true).flat_map(|set| values.iter().map(move |value| restrict(set, false, value))),
        ),
    }
}

/// Returns the fewest prefixes that together are a range, as value and mask.
fn prefixes(range: &RangeInclusive<u16>) -> Vec<(u16, u16)> {
    let (mut first, last) = (u32::from(*range.start()), u32::from(*range.end()));
    let mut prefixes = Vec::new();
    while first <= last {
        // The largest block that begins here and ends within the range.
        let aligned = if first == 0 { 1 << 16 } else { first & first.wrapping_neg() };
        let fitting = 1 << (last - first + 1).ilog2();
        let size = aligned.min(fitting);
        prefixes.push((first as u16, !(size - 1) as u16));
        first += size;
    }
    prefixes
}
