//! Link layers: the offset of the network header and its declared type.

/// Link layer of a frame: the headers before the network header.
///
/// Live interfaces and switches deliver [`Link::Ethernet`]; capture files bring the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Link {
    /// Ethernet: addresses, and an EtherType or a length, which may lead to an
    /// [encapsulation](crate::encapsulation).
    Ethernet = 0,
    /// No link header: the first nibble is the IP version.
    Ip = 1,
    /// Linux "cooked" capture v1: 16 bytes, protocol at 14.
    LinuxSll = 2,
    /// Linux "cooked" capture v2: 20 bytes, protocol at 0.
    LinuxSll2 = 3,
    /// BSD loopback: four bytes of address family, in either byte order.
    Null = 4,
    /// An unsupported link type; its frames count as non-IP.
    Unsupported = 5,
    /// An EtherType and its payload.
    EtherType = 6,
    /// An EtherType, two bytes of padding, and the payload, as in IP over InfiniBand.
    PaddedEtherType = 7,
    /// An IEEE 802.2 header: SNAP, or the SAP of IP.
    Llc = 8,
    /// A SNAP header without the LLC header: organisation and protocol, five bytes.
    Snap = 9,
    /// PPP, with or without the address and control bytes of HDLC, or Cisco's HDLC.
    Ppp = 10,
}
