//! Frames of TCP and UDP, with checksums and the options that Linux sends.

use crate::frame::{TCP, UDP, flag, v6};
use crate::option::{ProfileError, parse_count, parse_vlan, require_size};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Length of the shortest Ethernet frame, in bytes without check sequence. Shorter ones are padded
/// with zeros.
const MIN_FRAME_BYTES: usize = 60;
const CLIENT_MAC: [u8; 6] = [0x3a, 0xfb, 0xf6, 0xe9, 0xbe, 0x5f];
const SERVER_MAC: [u8; 6] = [0xf6, 0x22, 0x3b, 0xa1, 0x3a, 0xfb];
const WINDOW: u16 = 502;

/// Headers and length of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderLayout {
    /// Whether to use IPv6 instead of IPv4.
    pub ipv6: bool,
    /// ID of an 802.1Q tag.
    pub vlan: Option<u16>,
    /// Whether every segment has TCP timestamps.
    pub timestamps: bool,
    /// Length of a frame with TCP data, in bytes without frame check sequence.
    pub size: usize,
}

impl Default for HeaderLayout {
    fn default() -> Self {
        HeaderLayout { ipv6: false, vlan: None, timestamps: false, size: 100 }
    }
}

/// A TCP segment. Its data are zeros.
pub(crate) struct TcpSegment {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) flags: u8,
    pub(crate) sequence: u32,
    /// Acknowledgement number, for segments with the flag.
    pub(crate) acknowledgement: u32,
    /// `TSval` and `TSecr`, if the layout has timestamps.
    pub(crate) stamps: [u32; 2],
    /// Bytes of data.
    pub(crate) data: usize,
}

impl HeaderLayout {
    /// Sets an option of a profile; returns whether there is one of this name.
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Result<bool, ProfileError> {
        match key {
            "size" => self.size = parse_count(key, value)? as usize,
            "ipv6" if value.is_empty() => self.ipv6 = true,
            "timestamps" if value.is_empty() => self.timestamps = true,
            "vlan" => self.vlan = Some(parse_vlan(key, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the options for [`set`](Self::set).
    pub(crate) fn options(&self) -> String {
        let mut options = String::new();
        if let Some(id) = self.vlan {
            options += &format!(",vlan={id}");
        }
        for (set, name) in [(self.ipv6, ",ipv6"), (self.timestamps, ",timestamps")] {
            options += if set { name } else { "" };
        }
        options + &format!(",size={}", self.size)
    }

    /// Rejects frames without room for two bytes of data: one byte could be a keep-alive.
    pub(crate) fn check(&self) -> Result<(), ProfileError> {
        require_size(self.size, self.headers() + 2)
    }

    /// Returns the length of all headers of a segment with data, in bytes.
    fn headers(&self) -> usize {
        let link = if self.vlan.is_some() { 18 } else { 14 };
        link + if self.ipv6 { 40 } else { 20 } + if self.timestamps { 32 } else { 20 }
    }

    /// Returns the bytes of data in a segment with data.
    pub(crate) fn data(&self) -> usize {
        self.size.saturating_sub(self.headers())
    }

    /// Returns an address: in IPv6 the last 32 bits in 2001:db8::/96.
    pub(crate) fn address(&self, bits: u32) -> IpAddr {
        if self.ipv6 {
            IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8_u128 << 96 | u128::from(bits)))
        } else {
            IpAddr::V4(Ipv4Addr::from_bits(bits))
        }
    }

    /// Writes this segment to `frame`.
    pub(crate) fn tcp(&self, segment: &TcpSegment, frame: &mut Vec<u8>) {
        let TcpSegment { source, destination, flags, data, stamps: [value, echo], .. } = *segment;
        let mut stamps = [8, 10, 0, 0, 0, 0, 0, 0, 0, 0];
        stamps[2..6].copy_from_slice(&value.to_be_bytes());
        stamps[6..10].copy_from_slice(&echo.to_be_bytes());
        // In the order in which Linux writes them (tcp_options_write).
        let maximum = self.segment_maximum().to_be_bytes();
        let mss = [2, 4, maximum[0], maximum[1]];
        let options: [&[u8]; 3] = match (flags & flag::SYN != 0, self.timestamps) {
            (true, true) => [&[mss[0], mss[1], mss[2], mss[3], 4, 2], &stamps, &[1, 3, 3, 7]],
            (true, false) => [&mss, &[1, 1, 4, 2], &[1, 3, 3, 7]],
            (false, true) => [&[1, 1], &stamps, &[]],
            (false, false) => [&[], &[], &[]],
        };
        let header = 20 + options.iter().map(|part| part.len()).sum::<usize>();
        let pseudo_header = self.network(source, destination, TCP, header + data, frame);
        let transport = frame.len();
        frame.extend(source.port().to_be_bytes());
        frame.extend(destination.port().to_be_bytes());
        let acknowledgement = if flags & flag::ACK != 0 { segment.acknowledgement } else { 0 };
        frame.extend(segment.sequence.to_be_bytes());
        frame.extend(acknowledgement.to_be_bytes());
        frame.extend([(header as u8 / 4) << 4, flags]);
        frame.extend(WINDOW.to_be_bytes());
        frame.extend([0; 4]);
        options.iter().for_each(|part| frame.extend(*part));
        // Zero data do not change the sum.
        let checksum = !add(pseudo_header, internet_sum(&frame[transport..]));
        frame[transport + 16..transport + 18].copy_from_slice(&checksum.to_be_bytes());
        frame.resize((transport + header + data).max(MIN_FRAME_BYTES), 0);
    }

    /// Writes a datagram with this message to `frame`.
    pub(crate) fn udp(
        &self,
        source: SocketAddr,
        destination: SocketAddr,
        message: &[u8],
        frame: &mut Vec<u8>,
    ) {
        let length = 8 + message.len();
        let pseudo_header = self.network(source, destination, UDP, length, frame);
        let transport = frame.len();
        frame.extend(source.port().to_be_bytes());
        frame.extend(destination.port().to_be_bytes());
        frame.extend((length as u16).to_be_bytes());
        frame.extend([0; 2]);
        frame.extend(message);
        let checksum = match !add(pseudo_header, internet_sum(&frame[transport..])) {
            // Zero would mean that there is no checksum.
            0 => u16::MAX,
            checksum => checksum,
        };
        frame[transport + 6..transport + 8].copy_from_slice(&checksum.to_be_bytes());
        if frame.len() < MIN_FRAME_BYTES {
            frame.resize(MIN_FRAME_BYTES, 0);
        }
    }

    /// Returns the maximum segment size that a host announces.
    fn segment_maximum(&self) -> u16 {
        let fitting = self.data() + if self.timestamps { 12 } else { 0 };
        (fitting as u16).max(if self.ipv6 { 1440 } else { 1460 })
    }

    /// Starts a frame; returns the sum of the pseudo-header.
    fn network(
        &self,
        source: SocketAddr,
        destination: SocketAddr,
        protocol: u8,
        length: usize,
        frame: &mut Vec<u8>,
    ) -> u16 {
        frame.clear();
        // Services have the lower port.
        let to_server = source.port() > destination.port();
        let (to, from) =
            if to_server { (SERVER_MAC, CLIENT_MAC) } else { (CLIENT_MAC, SERVER_MAC) };
        frame.extend(to);
        frame.extend(from);
        if let Some(id) = self.vlan {
            frame.extend([0x81, 0x00]);
            frame.extend(id.to_be_bytes());
        }
        let length = length as u16;
        let addresses = match (source.ip(), destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                frame.extend([0x08, 0x00]);
                let network = frame.len();
                frame.extend([0x45, 0]);
                frame.extend((length + 20).to_be_bytes());
                // Identification 0, do not fragment, 64 hops.
                frame.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
                let checksum = !internet_sum(&frame[network..]);
                frame[network + 10..network + 12].copy_from_slice(&checksum.to_be_bytes());
                network + 12
            }
            (source, destination) => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend(length.to_be_bytes());
                frame.extend([protocol, 64]);
                let addresses = frame.len();
                for address in [source, destination] {
                    frame.extend(v6(address).octets());
                }
                addresses
            }
        };
        add(add(internet_sum(&frame[addresses..]), u16::from(protocol)), length)
    }
}

/// Returns the first sequence number of a host: random, but one in eight is near the end of the
/// range, so that numbers wrap.
pub(crate) fn first_sequence(random: u64) -> u32 {
    let [high, low] = [random >> 32, random & 0x3ff].map(|part| part as u32);
    if high % 8 == 0 { u32::MAX - low } else { high }
}

/// Returns the value of a TCP timestamp clock at a time in nanoseconds: as in Linux, it counts
/// milliseconds from a random number.
pub(crate) fn ticks(clock: u32, at: u64) -> u32 {
    clock.wrapping_add((at / 1_000_000) as u32)
}

/// Returns the one's complement sum of these bytes, not yet complemented: the checksum of IP, TCP and
/// UDP (RFC 1071).
pub(crate) fn internet_sum(bytes: &[u8]) -> u16 {
    let mut sum: u64 = bytes
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u64::from(*low)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Adds in one's complement.
fn add(left: u16, right: u16) -> u16 {
    let (sum, carry) = left.overflowing_add(right);
    sum + u16::from(carry)
}
