//! Link layers: where the network header starts and what it claims to be.

/// What precedes the network header in a frame.
///
/// Live interfaces and switches deliver [`Link::Ethernet`]; capture files bring the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Link {
    /// Ethernet II, with up to [`MAX_VLAN_TAGS`](crate::parse::MAX_VLAN_TAGS) 802.1Q/802.1ad tags.
    Ethernet = 0,
    /// No link header: the first nibble is the IP version.
    Ip = 1,
    /// Linux "cooked" capture v1: 16 bytes, protocol at 14.
    LinuxSll = 2,
    /// Linux "cooked" capture v2: 20 bytes, protocol at 0.
    LinuxSll2 = 3,
    /// BSD loopback: four bytes of address family, in either byte order.
    Null = 4,
    /// A link type that is not understood; its frames count as non-IP.
    Unsupported = 5,
}
