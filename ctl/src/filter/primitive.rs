//! Primitives, the smallest conditions of an expression, and the tree of them.

use std::net::IpAddr;
use std::ops::RangeInclusive;

/// An expression as parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExpressionTree {
    Primitive(Primitive),
    Not(Box<ExpressionTree>),
    And(Box<ExpressionTree>, Box<ExpressionTree>),
    Or(Box<ExpressionTree>, Box<ExpressionTree>),
}

impl ExpressionTree {
    /// Returns the tree in which the conditions on lengths make it true of as many packets as
    /// possible, or false.
    pub(super) fn with_lengths(&self, verdict: bool) -> ExpressionTree {
        let with = |tree: &ExpressionTree| tree.with_lengths(verdict).into();
        match self {
            ExpressionTree::Primitive(Primitive::Length(_)) => {
                let any = ExpressionTree::Primitive(Primitive::Length(0..=u16::MAX));
                if verdict { any } else { ExpressionTree::Not(any.into()) }
            }
            ExpressionTree::Primitive(_) => self.clone(),
            ExpressionTree::Not(inner) => ExpressionTree::Not(inner.with_lengths(!verdict).into()),
            ExpressionTree::And(one, other) => ExpressionTree::And(with(one), with(other)),
            ExpressionTree::Or(one, other) => ExpressionTree::Or(with(one), with(other)),
        }
    }
}

/// Version of the Internet protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IpVersion {
    V4,
    V6,
}

impl IpVersion {
    pub(super) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 }
    }
}

/// End of a packet that an address or a port is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PacketEnd {
    Source,
    Destination,
    /// At least one of both.
    #[default]
    Either,
    Both,
}

/// A condition that a packet meets or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Primitive {
    Ip(IpVersion),
    /// Protocol number, of both versions if there is none.
    Protocol(Option<IpVersion>, u8),
    /// Address with these bits under a mask.
    Network {
        end: PacketEnd,
        address: IpAddr,
        mask: IpAddr,
    },
    /// Ports, of any protocol that has some if there is none.
    Ports {
        end: PacketEnd,
        protocol: Option<u8>,
        ports: RangeInclusive<u16>,
    },
    /// VLAN tag, with any id if there is none.
    Vlan(Option<u16>),
    /// TCP segment whose flags under a mask have this value, or another one if `differs`.
    Flags {
        mask: u8,
        value: u8,
        differs: bool,
    },
    /// Length on the wire; `u16::MAX` includes longer frames.
    Length(RangeInclusive<u16>),
}
