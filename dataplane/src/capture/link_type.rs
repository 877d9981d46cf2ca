//! LINKTYPE_ values of capture files (draft-ietf-opsawg-pcaplinktype), and the parser's link layers
//! for them.

use flowgauge_core::Link;

/// BSD loopback: four bytes of address family in the capturing host's order.
pub const NULL: u16 = 0;
/// Ethernet.
pub const ETHERNET: u16 = 1;
/// Token Ring.
pub const IEEE802_5: u16 = 6;
/// PPP, with or without HDLC-like framing.
pub const PPP: u16 = 9;
/// FDDI.
pub const FDDI: u16 = 10;
/// PPP in HDLC-like framing, or Cisco HDLC.
pub const PPP_HDLC: u16 = 50;
/// PPPoE sessions without their Ethernet header.
pub const PPP_ETHER: u16 = 51;
/// LLC on ATM.
pub const ATM_RFC1483: u16 = 100;
/// IPv4 or IPv6 without a link header.
pub const RAW: u16 = 101;
/// Cisco HDLC.
pub const C_HDLC: u16 = 104;
/// IEEE 802.11.
pub const IEEE802_11: u16 = 105;
/// Frame relay.
pub const FRELAY: u16 = 107;
/// OpenBSD loopback: four bytes of address family in network order.
pub const LOOP: u16 = 108;
/// Linux "cooked" capture v1.
pub const LINUX_SLL: u16 = 113;
/// IEEE 802.11 after a Prism header.
pub const IEEE802_11_PRISM: u16 = 119;
/// IP over Fibre Channel.
pub const IP_OVER_FC: u16 = 122;
/// IEEE 802.11 after a radiotap header.
pub const IEEE802_11_RADIOTAP: u16 = 127;
/// IP over FireWire as Darwin captures it.
pub const APPLE_IP_OVER_IEEE1394: u16 = 138;
/// IEEE 802.11 after an AVS header.
pub const IEEE802_11_AVS: u16 = 163;
/// PPP as pppd logs it: a direction in place of the address.
pub const PPP_PPPD: u16 = 166;
/// A header that names another link type.
pub const PPI: u16 = 192;
/// A direction, then as [`PPP_HDLC`].
pub const PPP_WITH_DIR: u16 = 204;
/// A direction, then as [`C_HDLC`].
pub const C_HDLC_WITH_DIR: u16 = 205;
/// A direction, then as [`FRELAY`].
pub const FRELAY_WITH_DIR: u16 = 206;
/// MPLS labels without a link header.
pub const MPLS: u16 = 219;
/// IPv4 without a link header.
pub const IPV4: u16 = 228;
/// IPv6 without a link header.
pub const IPV6: u16 = 229;
/// Linux netfilter's log.
pub const NFLOG: u16 = 239;
/// Ethernet after four bytes of Hilscher's netANALYZER.
pub const NETANALYZER: u16 = 240;
/// IP over InfiniBand.
pub const IPOIB: u16 = 242;
/// Linux "cooked" capture v2.
pub const LINUX_SLL2: u16 = 276;

/// Values of DLT_RAW on OpenBSD and elsewhere, which older programs wrote instead of [`RAW`].
const DLT_RAW: [u16; 2] = [14, 12];

/// Returns the link layer of a link type; [`Link::Unsupported`] for all that the parser does not
/// support. [`open`](super::open) finds the network layer in frames of some of those.
///
/// ```
/// use flowgauge_core::Link;
/// # use flowgauge_dataplane::capture;
/// assert_eq!(capture::link_type::link(capture::link_type::RAW), Link::Ip);
/// ```
#[must_use]
pub fn link(link_type: u16) -> Link {
    match link_type {
        ETHERNET => Link::Ethernet,
        RAW | IPV4 | IPV6 => Link::Ip,
        _ if DLT_RAW.contains(&link_type) => Link::Ip,
        LINUX_SLL => Link::LinuxSll,
        LINUX_SLL2 => Link::LinuxSll2,
        NULL | LOOP => Link::Null,
        _ => Link::Unsupported,
    }
}

/// Returns the registered name of a link type, without the LINKTYPE_ prefix; `"unknown"` if it is
/// not in the table here.
#[must_use]
pub fn name(link_type: u16) -> &'static str {
    match link_type {
        NULL => "NULL",
        ETHERNET => "ETHERNET",
        3 => "AX25",
        IEEE802_5 => "IEEE802_5",
        7 => "ARCNET_BSD",
        8 => "SLIP",
        PPP => "PPP",
        FDDI => "FDDI",
        12 | 14 | RAW => "RAW",
        PPP_HDLC => "PPP_HDLC",
        PPP_ETHER => "PPP_ETHER",
        ATM_RFC1483 => "ATM_RFC1483",
        C_HDLC => "C_HDLC",
        IEEE802_11 => "IEEE802_11",
        FRELAY => "FRELAY",
        LOOP => "LOOP",
        LINUX_SLL => "LINUX_SLL",
        114 => "LTALK",
        117 => "PFLOG",
        IEEE802_11_PRISM => "IEEE802_11_PRISM",
        IP_OVER_FC => "IP_OVER_FC",
        123 => "SUNATM",
        IEEE802_11_RADIOTAP => "IEEE802_11_RADIOTAP",
        129 => "ARCNET_LINUX",
        APPLE_IP_OVER_IEEE1394 => "APPLE_IP_OVER_IEEE1394",
        139 => "MTP2_WITH_PHDR",
        140 => "MTP2",
        141 => "MTP3",
        142 => "SCCP",
        143 => "DOCSIS",
        144 => "LINUX_IRDA",
        147..=162 => "USER",
        IEEE802_11_AVS => "IEEE802_11_AVS",
        165 => "BACNET_MS_TP",
        PPP_PPPD => "PPP_PPPD",
        169 => "GPRS_LLC",
        177 => "LINUX_LAPD",
        187 => "BLUETOOTH_HCI_H4",
        189 => "USB_LINUX",
        PPI => "PPI",
        195 => "IEEE802_15_4_WITHFCS",
        197 => "ERF",
        201 => "BLUETOOTH_HCI_H4_WITH_PHDR",
        203 => "LAPD",
        PPP_WITH_DIR => "PPP_WITH_DIR",
        C_HDLC_WITH_DIR => "C_HDLC_WITH_DIR",
        FRELAY_WITH_DIR => "FRELAY_WITH_DIR",
        MPLS => "MPLS",
        220 => "USB_LINUX_MMAPPED",
        224 => "FC_2",
        226 => "IPNET",
        227 => "CAN_SOCKETCAN",
        IPV4 => "IPV4",
        IPV6 => "IPV6",
        230 => "IEEE802_15_4_NOFCS",
        231 => "DBUS",
        NFLOG => "NFLOG",
        NETANALYZER => "NETANALYZER",
        IPOIB => "IPOIB",
        247 => "INFINIBAND",
        248 => "SCTP",
        249 => "USBPCAP",
        251 => "BLUETOOTH_LE_LL",
        252 => "WIRESHARK_UPPER_PDU",
        253 => "NETLINK",
        254 => "BLUETOOTH_LINUX_MONITOR",
        258 => "PKTAP",
        259 => "EPON",
        266 => "USB_DARWIN",
        271 => "VSOCK",
        272 => "NORDIC_BLE",
        LINUX_SLL2 => "LINUX_SLL2",
        283 => "IEEE802_15_4_TAP",
        _ => "unknown",
    }
}
