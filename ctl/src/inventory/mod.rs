//! Exact contents of a capture: hosts, conversations, ports, protocols and TCP servers.
//!
//! An [`Inventory`] counts every frame of a capture, in one pass and without windows. A frame is
//! parsed as everywhere else; in a tunnel its outermost and its innermost network header both
//! count, each with the whole frame, as in Wireshark's endpoints and conversations. So the sum over
//! hosts or conversations may exceed the number of packets.
//!
//! Memory is bounded: each [`BoundedTable`] has at most [`MAX_ENTRIES`] entries. Packets of further
//! keys share one sum, so that nothing is left out silently.
//!
//! `connection` follows TCP connections, and `contents` is the result that a page shows.

mod connection;
mod contents;

pub use connection::{Endpoint, ServerCounts};
pub use contents::{Contents, RankedRows};

use connection::TcpConnections;
use flowgauge_core::packet::{Packet, Reject, Transport, transport};
use flowgauge_core::{Link, parse, tunnel};
use serde::Serialize;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

/// Maximum number of entries of a table. Together all tables take at most 250 MB.
pub const MAX_ENTRIES: usize = 1 << 19;

/// Packets and their bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Volume {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
}

impl Volume {
    fn add(&mut self, other: Volume) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// Counts by key, of the first [`MAX_ENTRIES`] keys. Packets of further keys share one sum.
#[derive(Debug)]
pub struct BoundedTable<K, V> {
    entries: HashMap<K, V>,
    most: usize,
    /// Packets of keys without an entry.
    beyond: Volume,
}

impl<K, V> Default for BoundedTable<K, V> {
    fn default() -> Self {
        BoundedTable { entries: HashMap::new(), most: MAX_ENTRIES, beyond: Volume::default() }
    }
}

impl<K: Eq + Hash, V: Default> BoundedTable<K, V> {
    /// Returns the entry of a key, or `None` if the table is full; the packets are then counted
    /// with those of other keys without an entry.
    fn entry(&mut self, key: K, packets: Volume) -> Option<&mut V> {
        if self.entries.len() >= self.most && !self.entries.contains_key(&key) {
            self.beyond.add(packets);
            return None;
        }
        Some(self.entries.entry(key).or_default())
    }
}

impl<K: Eq + Hash> BoundedTable<K, Volume> {
    fn add(&mut self, key: K, packets: Volume) {
        if let Some(volume) = self.entry(key, packets) {
            volume.add(packets);
        }
    }
}

/// Frame of a capture.
#[derive(Clone, Copy, Debug)]
pub struct CapturedFrame<'a> {
    /// The captured bytes.
    pub bytes: &'a [u8],
    /// Length on the wire, in bytes.
    pub wire_length: u32,
    /// Nanoseconds since 1970.
    pub timestamp: u64,
    /// Link layer.
    pub link: Link,
}

/// Headers of a frame, outermost first: `None` where a layer is missing. The protocols of a
/// tunnel follow those around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Layer {
    NoPacket(Reason),
    Network { is_v6: bool, protocol: u8 },
}

/// Reason why a frame has no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Reason {
    EtherType(u16),
    Truncated,
    BadHeader,
}

/// Packets of a host. Those from it to itself are sent and received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "columns of a table")]
pub struct HostPackets {
    pub all: Volume,
    pub sent: Volume,
    pub received: Volume,
}

/// Packets of a conversation in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Exchanged {
    /// From its lower address.
    forth: Volume,
    back: Volume,
    /// Timestamps of the first and the last packet.
    first: u64,
    last: u64,
}

/// Conversation: both addresses, the lower one first.
type Pair = (IpAddr, IpAddr);

/// Exact counts of a capture.
#[derive(Debug, Default)]
pub struct Inventory {
    total: Volume,
    /// Timestamps of the first and the last packet.
    range: Option<(u64, u64)>,
    hosts: BoundedTable<IpAddr, HostPackets>,
    conversations: BoundedTable<Pair, Exchanged>,
    ports: BoundedTable<(u8, u16), Volume>,
    protocols: BoundedTable<(Layer, Option<Layer>), Volume>,
    connections: TcpConnections,
}

impl Inventory {
    /// Counts a frame.
    pub fn count(&mut self, frame: &CapturedFrame<'_>) {
        let one = Volume { packets: 1, bytes: u64::from(frame.wire_length) };
        let time = frame.timestamp;
        self.total.add(one);
        let (first, last) = self.range.unwrap_or((time, time));
        self.range = Some((first.min(time), last.max(time)));
        let outermost = match parse::network(frame.bytes, frame.link) {
            Ok(packet) => packet,
            Err(reject) => {
                let reason = match reject {
                    Reject::NonIp(ethertype) => Reason::EtherType(ethertype),
                    Reject::Truncated => Reason::Truncated,
                    Reject::BadHeader => Reason::BadHeader,
                };
                self.protocols.add((Layer::NoPacket(reason), None), one);
                return;
            }
        };
        let innermost = tunnel::innermost(frame.bytes, outermost);
        let inner = (innermost.offset() != outermost.offset()).then_some(innermost);
        let layer = self.count_packet(frame, &outermost, one);
        let inner_layer = inner.map(|packet| self.count_packet(frame, &packet, one));
        self.protocols.add((layer, inner_layer), one);
    }

    /// Counts a network header of a frame, and returns its protocols.
    fn count_packet(
        &mut self,
        frame: &CapturedFrame<'_>,
        packet: &Packet<'_>,
        one: Volume,
    ) -> Layer {
        let (source, destination, is_v6) = match packet {
            Packet::V4(ip) => (IpAddr::from(ip.src()), IpAddr::from(ip.dst()), false),
            Packet::V6(ip) => (v6(ip.src()), v6(ip.dst()), true),
        };
        let time = frame.timestamp;
        if let Some(host) = self.hosts.entry(source, one) {
            host.all.add(one);
            host.sent.add(one);
            if destination == source {
                host.received.add(one);
            }
        }
        if destination != source
            && let Some(host) = self.hosts.entry(destination, one)
        {
            host.all.add(one);
            host.received.add(one);
        }
        let is_forth = source <= destination;
        let pair = if is_forth { (source, destination) } else { (destination, source) };
        if let Some(conversation) = self.conversations.entry(pair, one) {
            conversation.exchange(is_forth, one, time);
        }
        let Transport { protocol, ports: [s0, s1, d0, d1] } = transport(frame.bytes, packet);
        let ports = [u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1])];
        // Zero means no port: later fragments, and protocols without ports.
        if ports != [0, 0] {
            self.ports.add((protocol, ports[0]), one);
            if ports[0] != ports[1] {
                self.ports.add((protocol, ports[1]), one);
            }
            self.connections.count(
                frame,
                packet,
                protocol,
                (source, ports[0]),
                (destination, ports[1]),
            );
        }
        Layer::Network { is_v6, protocol }
    }
}

fn v6(words: [[u8; 4]; 4]) -> IpAddr {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(words.as_flattened());
    IpAddr::from(bytes)
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

impl Exchanged {
    fn exchange(&mut self, is_forth: bool, one: Volume, time: u64) {
        if self.forth.packets + self.back.packets == 0 {
            (self.first, self.last) = (time, time);
        }
        (self.first, self.last) = (self.first.min(time), self.last.max(time));
        if is_forth { self.forth.add(one) } else { self.back.add(one) }
    }

    fn all(&self) -> Volume {
        Volume {
            packets: self.forth.packets + self.back.packets,
            bytes: self.forth.bytes + self.back.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_beyond_the_bound_are_counted_together() {
        let mut table = BoundedTable { most: 2, ..BoundedTable::<u32, Volume>::default() };
        for (key, bytes) in [(1, 10), (2, 20), (3, 30), (1, 1), (4, 40), (3, 30)] {
            table.add(key, Volume { packets: 1, bytes });
        }
        assert_eq!(table.entries.get(&1), Some(&Volume { packets: 2, bytes: 11 }));
        assert_eq!(table.entries.len(), 2);
        assert_eq!(table.beyond, Volume { packets: 3, bytes: 100 });
    }
}
