//! Builders of frames.

pub(crate) const DESTINATION4: [u8; 4] = [192, 0, 2, 7];

/// Returns an Ethernet frame with VLAN tags of these EtherTypes.
pub(crate) fn ethernet(tags: &[u16], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for tag in tags {
        frame.extend(tag.to_be_bytes());
        frame.extend([0x00, 0x64]);
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Returns an IPv4 packet without options, not fragmented.
pub(crate) fn ipv4(source: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
    ipv4_with(source, &[], 0, protocol, payload)
}

/// Returns an IPv4 packet with options (a multiple of four bytes) and this field of fragment flags
/// and offset.
pub(crate) fn ipv4_with(
    source: [u8; 4],
    options: &[u8],
    fragment: u16,
    protocol: u8,
    payload: &[u8],
) -> Vec<u8> {
    let header_length = 20 + options.len();
    let mut bytes = vec![0x40 | (header_length / 4) as u8, 0];
    bytes.extend(((header_length + payload.len()) as u16).to_be_bytes());
    bytes.extend([0x12, 0x34]);
    bytes.extend(fragment.to_be_bytes());
    bytes.extend([64, protocol, 0, 0]);
    bytes.extend(source);
    bytes.extend(DESTINATION4);
    bytes.extend(options);
    bytes.extend(payload);
    bytes
}

/// Returns the address 2001:db8::host.
pub(crate) fn address6(host: u32) -> [u8; 16] {
    let mut address = [0; 16];
    address[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    address[12..].copy_from_slice(&host.to_be_bytes());
    address
}

/// Returns an IPv6 packet. Extension headers are part of the payload.
pub(crate) fn ipv6(source: u32, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend((payload.len() as u16).to_be_bytes());
    bytes.extend([next_header, 64]);
    bytes.extend(address6(source));
    bytes.extend(address6(0xffff_0002));
    bytes.extend(payload);
    bytes
}

pub(crate) fn udp(payload: &[u8]) -> Vec<u8> {
    // Ports without a registered protocol.
    let mut bytes = vec![0xc0, 0x01, 0xc0, 0x02];
    bytes.extend(((payload.len() + 8) as u16).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(payload);
    bytes
}

pub(crate) fn arp() -> Vec<u8> {
    let mut bytes = vec![0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 2];
    bytes.extend([10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
    bytes
}
