//! The LINKTYPE_ values of capture files (draft-ietf-opsawg-pcaplinktype) and what the parser makes of them.

use flowgauge_core::Link;

/// BSD loopback: four bytes of address family in the capturing host's order.
pub const NULL: u16 = 0;
/// Ethernet.
pub const ETHERNET: u16 = 1;
/// IPv4 or IPv6 without a link header.
pub const RAW: u16 = 101;
/// OpenBSD loopback: four bytes of address family in network order.
pub const LOOP: u16 = 108;
/// Linux "cooked" capture v1.
pub const LINUX_SLL: u16 = 113;
/// IPv4 without a link header.
pub const IPV4: u16 = 228;
/// IPv6 without a link header.
pub const IPV6: u16 = 229;
/// Linux "cooked" capture v2.
pub const LINUX_SLL2: u16 = 276;

/// The values DLT_RAW has on OpenBSD and elsewhere, which older programs wrote to files in place of [`RAW`].
const DLT_RAW: [u16; 2] = [14, 12];

/// The link layer of a link type; [`Link::Unsupported`] for every one that is not understood.
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

/// The registered name of a link type, without the LINKTYPE_ prefix; `"unknown"` for one not in the table here.
#[must_use]
pub fn name(link_type: u16) -> &'static str {
    match link_type {
        NULL => "NULL",
        ETHERNET => "ETHERNET",
        3 => "AX25",
        6 => "IEEE802_5",
        7 => "ARCNET_BSD",
        8 => "SLIP",
        9 => "PPP",
        10 => "FDDI",
        12 | 14 | RAW => "RAW",
        50 => "PPP_HDLC",
        51 => "PPP_ETHER",
        100 => "ATM_RFC1483",
        104 => "C_HDLC",
        105 => "IEEE802_11",
        107 => "FRELAY",
        LOOP => "LOOP",
        LINUX_SLL => "LINUX_SLL",
        114 => "LTALK",
        117 => "PFLOG",
        119 => "IEEE802_11_PRISM",
        122 => "IP_OVER_FC",
        123 => "SUNATM",
        127 => "IEEE802_11_RADIOTAP",
        129 => "ARCNET_LINUX",
        138 => "APPLE_IP_OVER_IEEE1394",
        139 => "MTP2_WITH_PHDR",
        140 => "MTP2",
        141 => "MTP3",
        142 => "SCCP",
        143 => "DOCSIS",
        144 => "LINUX_IRDA",
        147..=162 => "USER",
        163 => "IEEE802_11_AVS",
        165 => "BACNET_MS_TP",
        166 => "PPP_PPPD",
        169 => "GPRS_LLC",
        177 => "LINUX_LAPD",
        187 => "BLUETOOTH_HCI_H4",
        189 => "USB_LINUX",
        192 => "PPI",
        195 => "IEEE802_15_4_WITHFCS",
        197 => "ERF",
        201 => "BLUETOOTH_HCI_H4_WITH_PHDR",
        203 => "LAPD",
        220 => "USB_LINUX_MMAPPED",
        224 => "FC_2",
        226 => "IPNET",
        227 => "CAN_SOCKETCAN",
        IPV4 => "IPV4",
        IPV6 => "IPV6",
        230 => "IEEE802_15_4_NOFCS",
        231 => "DBUS",
        239 => "NFLOG",
        240 => "NETANALYZER",
        242 => "IPOIB",
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
