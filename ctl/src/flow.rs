//! Flow keys as text, and names of protocols and EtherTypes.

use flowgauge_core::{FlowKey, KeyKind};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Returns the name of keys of a kind, in the plural.
pub(crate) const fn plural(kind: KeyKind) -> &'static str {
    match kind {
        KeyKind::Src => "sources",
        KeyKind::Dst => "destinations",
        KeyKind::SrcDst => "pairs of hosts",
        KeyKind::FiveTuple => "five-tuples",
    }
}

/// A flow key as text: `10.0.0.1`, `10.0.0.1 > 10.0.0.2`, `10.0.0.1:1234 > 10.0.0.2:80 tcp`,
/// `[2001:db8::1]:1234 > [2001:db8::2]:53 udp`.
///
/// Ports are omitted where both are zero: other protocols and later fragments have none. Bytes that
/// are not a key of the kind are shown in hexadecimal.
#[derive(Clone, Copy, Debug)]
pub struct KeyText<'a> {
    /// Fields that the key consists of.
    pub kind: KeyKind,
    /// The key.
    pub key: &'a FlowKey,
}

impl fmt::Display for KeyText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.key.as_bytes();
        // Formatted first, so that width and alignment apply to the whole.
        let text = text::<4>(self.kind, bytes).or_else(|| text::<16>(self.kind, bytes));
        f.pad(&text.unwrap_or_else(|| bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }
}

/// Formats a key with addresses of `N` bytes; `None` if the bytes are not such a key.
fn text<const N: usize>(kind: KeyKind, bytes: &[u8]) -> Option<String>
where
    IpAddr: From<[u8; N]>,
{
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    let first = IpAddr::from(*first);
    match (kind, rest.split_first_chunk::<N>()) {
        (KeyKind::Src | KeyKind::Dst, None) if rest.is_empty() => Some(first.to_string()),
        (KeyKind::SrcDst, Some((second, []))) => {
            Some(format!("{first} > {}", IpAddr::from(*second)))
        }
        (KeyKind::FiveTuple, Some((second, &[s0, s1, d0, d1, protocol]))) => {
            let second = IpAddr::from(*second);
            let protocol = protocol_name(protocol);
            Some(match (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1])) {
                (0, 0) => format!("{first} > {second} {protocol}"),
                (source, destination) => {
                    let source = SocketAddr::new(first, source);
                    format!("{source} > {} {protocol}", SocketAddr::new(second, destination))
                }
            })
        }
        _ => None,
    }
}

/// Returns the usual name of a protocol, or its number.
pub(crate) fn protocol_name(protocol: u8) -> String {
    let name = match protocol {
        1 => "icmp",
        2 => "igmp",
        6 => "tcp",
        17 => "udp",
        47 => "gre",
        50 => "esp",
        51 => "ah",
        58 => "icmpv6",
        89 => "ospf",
        132 => "sctp",
        _ => return format!("protocol {protocol}"),
    };
    name.to_owned()
}

/// Returns the common name of an EtherType.
pub(crate) fn ethertype_name(ethertype: u16) -> Option<&'static str> {
    Some(match ethertype {
        0x0806 => "ARP",
        0x22f0 => "AVTP",
        0x8137 => "IPX",
        0x8808 => "flow control",
        0x8809 => "slow protocols, LACP among them",
        0x8847 | 0x8848 => "MPLS with neither IP nor Ethernet in it, or with too many labels",
        0x8863 => "PPPoE discovery",
        0x888e => "802.1X",
        0x8892 => "PROFINET",
        0x88a2 => "ATA over Ethernet",
        0x88a4 => "EtherCAT",
        0x88b8 => "GOOSE",
        0x88ba => "sampled values",
        0x88cc => "LLDP",
        0x88e5 => "MACsec, encrypted",
        0x88f7 => "PTP",
        0x8902 => "CFM",
        0x8906 => "FCoE",
        0x8915 => "RoCE",
        0x894f => "NSH with neither IP nor Ethernet in it",
        0x9000 => "loopback test",
        0x8100 | 0x88a8 | 0x9100 => "VLAN tags, too many of them",
        _ => return None,
    })
}

/// Parses a flow key from the format of [`KeyText`].
///
/// # Errors
/// A text in another format.
pub fn parse_key(text: &str) -> Result<FlowKey, String> {
    let bytes = match text.split_once('>') {
        None => address(text.trim()),
        Some((source, rest)) => pair(source.trim(), rest.trim()),
    };
    bytes.map(|bytes| FlowKey::new(&bytes)).ok_or_else(|| {
        format!(
            "'{text}' is no flow; write '10.0.0.1', '10.0.0.1 > 10.0.0.2' or '10.0.0.1:53 > 10.0.0.2:4321 udp'"
        )
    })
}

fn address(text: &str) -> Option<Vec<u8>> {
    text.parse().ok().map(octets)
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Parses a pair of addresses, or a five-tuple, which names a protocol.
fn pair(source: &str, rest: &str) -> Option<Vec<u8>> {
    let Some((destination, protocol)) = rest.split_once(' ') else {
        let (source, destination) = (address(source)?, address(rest)?);
        return (source.len() == destination.len()).then(|| [source, destination].concat());
    };
    let protocol = (0..=u8::MAX).find(|&number| protocol_name(number) == protocol.trim())?;
    let end = |text: &str| {
        let with_port = text.parse::<SocketAddr>().ok().map(|end| (end.ip(), end.port()));
        with_port.or_else(|| text.parse().ok().map(|address| (address, 0)))
    };
    let ((source, source_port), (destination, destination_port)) =
        (end(source)?, end(destination)?);
    let (source, destination) = (octets(source), octets(destination));
    let ports = [source_port.to_be_bytes(), destination_port.to_be_bytes()].concat();
    (source.len() == destination.len())
        .then(|| [source, destination, ports, vec![protocol]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_a_text() {
        let v4 = [[10, 0, 0, 1], [192, 168, 1, 2]];
        let v6 = [[0x2001_0db8_u32, 0, 0, 1], [0x2001_0db8, 0, 0, 2]]
            .map(|words| words.map(u32::to_be_bytes));
        let (v6, ports) = (v6.map(|words| words.as_flattened().to_vec()), [0x04, 0xd2, 0, 80]);
        let cases: [(KeyKind, Vec<u8>, &str); 11] = [
            (KeyKind::Src, v4[0].to_vec(), "10.0.0.1"),
            (KeyKind::Dst, v6[1].clone(), "2001:db8::2"),
            (KeyKind::SrcDst, v4.concat(), "10.0.0.1 > 192.168.1.2"),
            (KeyKind::SrcDst, v6.concat(), "2001:db8::1 > 2001:db8::2"),
            (
                KeyKind::FiveTuple,
                [&v4.concat(), &ports[..], &[6]].concat(),
                "10.0.0.1:1234 > 192.168.1.2:80 tcp",
            ),
            (
                KeyKind::FiveTuple,
                [&v6.concat(), &ports[..], &[17]].concat(),
                "[2001:db8::1]:1234 > [2001:db8::2]:80 udp",
            ),
            (
                KeyKind::FiveTuple,
                [&v4.concat(), &[0; 4][..], &[1]].concat(),
                "10.0.0.1 > 192.168.1.2 icmp",
            ),
            (
                KeyKind::FiveTuple,
                [&v4.concat(), &[0; 4][..], &[200]].concat(),
                "10.0.0.1 > 192.168.1.2 protocol 200",
            ),
            // Sixteen bytes are an IPv6 address, not four of IPv4; eight are no source.
            (KeyKind::Src, v4.concat(), "0a000001c0a80102"),
            (KeyKind::FiveTuple, v4[0].to_vec(), "0a000001"),
            (KeyKind::Src, Vec::new(), ""),
        ];
        for (kind, bytes, text) in cases {
            assert_eq!(
                KeyText { kind, key: &FlowKey::new(&bytes) }.to_string(),
                text,
                "{}",
                kind.name()
            );
        }
        assert_eq!(
            format!("{:>10}|", KeyText { kind: KeyKind::Src, key: &FlowKey::new(&v4[0]) }),
            "  10.0.0.1|"
        );
    }
}
