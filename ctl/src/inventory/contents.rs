//! Contents of a capture as a page shows them: ranked tables of bounded length.

use super::connection::ServerCounts;
use super::{
    BoundedTable, Exchanged, HostPackets, Inventory, Layer, MAX_ENTRIES, Pair, Reason, Volume,
    seconds,
};
use crate::flow::{ethertype_name, protocol_name};
use crate::names::Names;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};

/// Maximum number of rows of a table by packets, and by bytes.
const MAX_ROWS: usize = 1000;

/// Contents of a capture.
#[derive(Debug, Serialize)]
pub struct Contents {
    /// All packets.
    pub total: Volume,
    /// Seconds since 1970 of the first and the last packet.
    pub range: Option<(f64, f64)>,
    /// Nanoseconds from the first to the last packet.
    #[serde(skip)]
    pub length_ns: u64,
    /// Maximum number of entries that were counted for a table.
    pub max_entries: usize,
    /// Hosts.
    pub hosts: RankedRows<HostRow>,
    /// Pairs of hosts.
    pub conversations: RankedRows<ConversationRow>,
    /// Ports; a packet counts for both of its ports.
    pub ports: RankedRows<PortRow>,
    /// Protocols, as a tree in the order of its rows.
    pub protocols: Vec<ProtocolRow>,
    /// TCP servers.
    pub servers: RankedRows<ServerRow>,
    /// Packets of TCP connections that were not followed.
    pub unfollowed: Volume,
    /// Names of addresses in the tables.
    pub names: BTreeMap<IpAddr, String>,
}

/// Largest entries of a table, by packets and by bytes.
#[derive(Debug, Serialize)]
pub struct RankedRows<R> {
    /// Largest entries.
    pub rows: Vec<R>,
    /// Number of entries that are not among the rows.
    pub others: usize,
    /// Their packets.
    pub volume: Volume,
    /// Packets of keys beyond [`MAX_ENTRIES`], which are in no entry.
    pub beyond: Volume,
}

/// A host.
#[derive(Debug, Serialize)]
#[allow(missing_docs, reason = "columns of a table")]
pub struct HostRow {
    pub address: IpAddr,
    #[serde(flatten)]
    pub packets: HostPackets,
}

/// A pair of hosts.
#[derive(Debug, Serialize)]
#[allow(missing_docs, reason = "columns of a table")]
pub struct ConversationRow {
    pub addresses: Pair,
    pub all: Volume,
    pub forth: Volume,
    pub back: Volume,
    /// Seconds since 1970 of the first packet.
    pub first: f64,
    /// Seconds from the first to the last packet.
    pub lasted: f64,
}

/// A port of a protocol.
#[derive(Debug, Serialize)]
#[allow(missing_docs, reason = "columns of a table")]
pub struct PortRow {
    pub protocol: String,
    pub port: u16,
    pub all: Volume,
}

/// A protocol, in the protocols around it.
#[derive(Debug, Serialize)]
#[allow(missing_docs, reason = "columns of a table")]
pub struct ProtocolRow {
    pub path: Vec<String>,
    pub all: Volume,
}

/// A TCP server.
#[derive(Debug, Serialize)]
#[allow(missing_docs, reason = "columns of a table")]
pub struct ServerRow {
    pub address: IpAddr,
    pub endpoint: SocketAddr,
    #[serde(flatten)]
    pub counts: ServerCounts,
}

impl Inventory {
    /// Returns the contents that were counted so far.
    #[must_use]
    pub fn contents(&self) -> Contents {
        let Inventory { total, range, hosts, conversations, ports, connections, .. } = self;
        Contents {
            total: *total,
            range: range.map(|(first, last)| (seconds(first), seconds(last))),
            length_ns: range.map_or(0, |(first, last)| last - first),
            max_entries: MAX_ENTRIES,
            hosts: ranked(
                hosts,
                |host| host.all,
                |address, host| HostRow { address: *address, packets: *host },
            ),
            conversations: ranked(conversations, Exchanged::all, |addresses, pair| {
                ConversationRow {
                    addresses: *addresses,
                    all: pair.all(),
                    forth: pair.forth,
                    back: pair.back,
                    first: seconds(pair.first),
                    lasted: seconds(pair.last - pair.first),
                }
            }),
            ports: ranked(
                ports,
                |all| *all,
                |(protocol, port), all| PortRow {
                    protocol: protocol_name(*protocol),
                    port: *port,
                    all: *all,
                },
            ),
            protocols: self.protocols(),
            servers: ranked(&connections.servers, by_segments, |&(address, port), counts| {
                let endpoint = SocketAddr::new(address, port);
                ServerRow { address, endpoint, counts: counts.clone() }
            }),
            unfollowed: connections.table.beyond,
            names: BTreeMap::new(),
        }
    }

    /// Returns the protocols as rows of a tree, each with the packets of all below it.
    fn protocols(&self) -> Vec<ProtocolRow> {
        let mut tree: BTreeMap<Vec<String>, Volume> = BTreeMap::new();
        for ((outer, inner), volume) in &self.protocols.entries {
            let mut path = outer.names();
            if let Some(inner) = inner {
                // IP in IP has no header of its own.
                if matches!(outer, Layer::Network { protocol: 4 | 41, .. }) {
                    path.pop();
                }
                path.extend(inner.names());
            }
            for depth in 1..=path.len() {
                tree.entry(path[..depth].to_vec()).or_default().add(*volume);
            }
        }
        tree.into_iter().map(|(path, all)| ProtocolRow { path, all }).collect()
    }
}

impl Contents {
    /// Returns the addresses in the tables.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        let hosts = self.hosts.rows.iter().map(|row| row.address);
        let pairs = self.conversations.rows.iter();
        let pairs = pairs.flat_map(|row| [row.addresses.0, row.addresses.1]);
        let servers = self.servers.rows.iter().map(|row| row.address);
        let all: BTreeSet<IpAddr> = hosts.chain(pairs).chain(servers).collect();
        all.into_iter().collect()
    }

    /// Names the addresses in the tables.
    pub fn name(&mut self, names: &Names) {
        let named = |address| Some((address, names.name(address)?));
        self.names = self.addresses().into_iter().filter_map(named).collect();
    }
}

impl Layer {
    fn names(&self) -> Vec<String> {
        let reason: String = match self {
            Layer::NoPacket(Reason::Truncated) => "cut off before the end of the IP header".into(),
            Layer::NoPacket(Reason::BadHeader) => "contradictory IP header".into(),
            Layer::NoPacket(Reason::EtherType(0)) => "neither IPv4 nor IPv6".into(),
            Layer::NoPacket(Reason::EtherType(ethertype)) => ethertype_name(*ethertype)
                .map_or_else(|| format!("EtherType 0x{ethertype:04x}"), str::to_owned),
            Layer::Network { is_v6, protocol } => {
                return vec![if *is_v6 { "ipv6" } else { "ip" }.into(), protocol_name(*protocol)];
            }
        };
        vec![reason]
    }
}

/// Selects the entries of a table with most packets and with most bytes, in the order of bytes.
fn ranked<K: Copy + Eq + Hash + Ord, V: Default, R>(
    table: &BoundedTable<K, V>,
    volume: impl Fn(&V) -> Volume,
    row: impl Fn(&K, &V) -> R,
) -> RankedRows<R> {
    let mut all: Vec<(&K, &V, Volume)> =
        table.entries.iter().map(|(key, value)| (key, value, volume(value))).collect();
    all.sort_unstable_by_key(|(key, _, volume)| (Reverse(volume.packets), **key));
    let by_packets: HashSet<K> = all.iter().take(MAX_ROWS).map(|(key, ..)| **key).collect();
    all.sort_unstable_by_key(|(key, _, volume)| (Reverse(volume.bytes), **key));
    let (mut rows, mut others, mut rest) = (Vec::new(), 0, Volume::default());
    for (rank, (key, value, volume)) in all.into_iter().enumerate() {
        if rank < MAX_ROWS || by_packets.contains(key) {
            rows.push(row(key, value));
        } else {
            others += 1;
            rest.add(volume);
        }
    }
    RankedRows { rows, others, volume: rest, beyond: table.beyond }
}

/// Ranks servers by segments with data, then by connections.
fn by_segments(counts: &ServerCounts) -> Volume {
    Volume { packets: counts.segments, bytes: counts.connections }
}
