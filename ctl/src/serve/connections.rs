//! Open connections of a server: their limits, and which connection is closed for a new one.
//!
//! Three sets are limited: the connections of one remote peer, those of all remote peers, and all
//! connections. If a set that a new connection belongs to is full, the oldest connection in it
//! without an answered request is closed; if all have one, the new connection is refused. So idle
//! connections lock out no client, and remote clients leave room for local ones, such as probes.
//!
//! Of each set, a quarter is left to requests that end, such as probes and scrapes: a stream of
//! windows (`/events`), which may last as long as the run, is refused if the others have as many
//! streams as that leaves.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Maximum number of open connections.
pub(super) const MAX_CONNECTIONS: usize = 64;
/// Maximum number of connections from remote peers.
const MAX_REMOTE: usize = MAX_CONNECTIONS - 8;
/// Maximum number of connections from one remote peer.
const MAX_PER_PEER: usize = 8;

/// Other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// The local machine: a Unix socket, or a connection whose addresses are equal. Its users and what
    /// they forward (`ssh -L`, a proxy) are not distinguished.
    Local,
    /// A remote address. IPv6 addresses are reduced to their network, since a host can use all
    /// addresses of it.
    Remote(IpAddr),
}

impl Peer {
    pub(super) fn new(peer: SocketAddr, local: SocketAddr) -> Self {
        match (peer.ip().to_canonical(), local.ip().to_canonical()) {
            (peer, local) if peer == local => Peer::Local,
            (IpAddr::V6(address), _) => {
                Peer::Remote(IpAddr::from((address.to_bits() >> 64 << 64).to_be_bytes()))
            }
            (peer, _) => Peer::Remote(peer),
        }
    }

    fn is_remote(self) -> bool {
        self != Peer::Local
    }
}

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No request was answered yet.
    Waiting,
    /// A request was answered.
    Admitted,
    /// A stream is answered.
    Streaming,
    /// The connection must close for a new one.
    Evicted,
}

/// Handle on the state of a connection; clones share it.
#[derive(Clone)]
pub(super) struct ConnectionHandle {
    peer: Peer,
    stage: watch::Sender<Stage>,
}

impl ConnectionHandle {
    pub(super) fn give(&self) {
        self.stage.send_if_modified(|stage| {
            let is_first = *stage == Stage::Waiting;
            *stage = if is_first { Stage::Admitted } else { *stage };
            is_first
        });
    }

    pub(super) fn is_given(&self) -> bool {
        matches!(*self.stage.borrow(), Stage::Admitted | Stage::Streaming)
    }

    /// Waits until a request is answered.
    pub(super) async fn given(&self) {
        let _ = self.stage.subscribe().wait_for(|stage| *stage == Stage::Admitted).await;
    }

    /// Waits until the connection must close.
    pub(super) async fn evicted(&self) {
        let _ = self.stage.subscribe().wait_for(|stage| *stage == Stage::Evicted).await;
    }
}

/// Open connections by age; clones share them.
#[derive(Clone, Default)]
pub(super) struct Connections(Arc<Mutex<Open>>);

#[derive(Default)]
struct Open {
    next: u64,
    by_age: BTreeMap<u64, ConnectionHandle>,
}

/// Slot of an open connection, freed when it is dropped.
pub(super) struct ConnectionSlot {
    number: u64,
    pub(super) admission: ConnectionHandle,
    connections: Connections,
}

/// Outcome for a new connection or stream when a limit is reached.
pub(super) struct Full {
    /// Slot of the new connection, if another one was closed for it.
    pub(super) place: Option<ConnectionSlot>,
    /// Number of open connections or streams in the full set.
    pub(super) open: usize,
    /// Peers that the limit applies to, for messages.
    pub(super) whose: &'static str,
}

/// Connections that share a limit.
struct Set {
    max: usize,
    whose: &'static str,
    has: fn(newcomer: Peer, other: Peer) -> bool,
}

/// All limited sets, the smallest first.
static SETS: [Set; 3] = [
    Set {
        max: MAX_PER_PEER,
        whose: "from one address",
        has: |newcomer, other| newcomer.is_remote() && other == newcomer,
    },
    Set {
        max: MAX_REMOTE,
        whose: "from other machines",
        has: |newcomer, other| newcomer.is_remote() && other.is_remote(),
    },
    Set { max: MAX_CONNECTIONS, whose: "in all", has: |_, _| true },
];

impl Connections {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves a slot for a new connection.
    pub(super) fn enter(&self, peer: Peer) -> Result<ConnectionSlot, Full> {
        let mut open = self.open();
        let Some((set, count)) = open.full_set(peer, |set| set.max, |_| true) else {
            return Ok(open.add(peer, self));
        };
        // Remote connections never displace local ones.
        let gives_way = |other: &ConnectionHandle| {
            (set.has)(peer, other.peer)
                && (other.peer.is_remote() || !peer.is_remote())
                && !other.is_given()
        };
        let oldest =
            open.by_age.iter().find(|(_, other)| gives_way(other)).map(|(number, _)| *number);
        let place = oldest.and_then(|number| open.by_age.remove(&number)).map(|evicted| {
            evicted.stage.send_replace(Stage::Evicted);
            open.add(peer, self)
        });
        Err(Full { place, open: count, whose: set.whose })
    }

    /// Begins a stream on a connection, unless too many others have one.
    pub(super) fn stream(&self, connection: &ConnectionHandle) -> Result<(), Full> {
        let open = self.open();
        let is_other_stream = |other: &ConnectionHandle| {
            *other.stage.borrow() == Stage::Streaming
                && !other.stage.same_channel(&connection.stage)
        };
        // A quarter is left to requests that end.
        let full = open.full_set(connection.peer, |set| set.max - set.max / 4, is_other_stream);
        if let Some((set, open)) = full {
            return Err(Full { place: None, open, whose: set.whose });
        }
        connection.stage.send_replace(Stage::Streaming);
        Ok(())
    }
}

impl Open {
    /// Returns the smallest set of a peer in which the connections that count reach a limit, with
    /// their number.
    fn full_set(
        &self,
        peer: Peer,
        limit: impl Fn(&Set) -> usize,
        counts: impl Fn(&ConnectionHandle) -> bool,
    ) -> Option<(&'static Set, usize)> {
        let is_in =
            |set: &Set, other: &ConnectionHandle| (set.has)(peer, other.peer) && counts(other);
        let count = |set: &Set| self.by_age.values().filter(|other| is_in(set, other)).count();
        SETS.iter().map(|set| (set, count(set))).find(|(set, count)| *count >= limit(set))
    }

    fn add(&mut self, peer: Peer, connections: &Connections) -> ConnectionSlot {
        let admission = ConnectionHandle { peer, stage: watch::Sender::new(Stage::Waiting) };
        let number = self.next;
        self.next += 1;
        self.by_age.insert(number, admission.clone());
        ConnectionSlot { number, admission, connections: connections.clone() }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connections.open().by_age.remove(&self.number);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn remote(number: u8) -> Peer {
        Peer::Remote(IpAddr::from([192, 0, 2, number]))
    }

    /// Opens connections. Returns the reserved slots in order, and how many connections displaced
    /// another one or were refused.
    fn entered(
        connections: &Connections,
        peer: Peer,
        count: usize,
    ) -> (Vec<ConnectionSlot>, usize) {
        let (mut places, mut refused) = (Vec::new(), 0);
        for _ in 0..count {
            match connections.enter(peer) {
                Ok(place) | Err(Full { place: Some(place), .. }) => places.push(place),
                Err(Full { place: None, .. }) => refused += 1,
            }
        }
        (places, refused)
    }

    fn is_evicted(place: &ConnectionSlot) -> bool {
        *place.admission.stage.borrow() == Stage::Evicted
    }

    fn evicted(places: &[ConnectionSlot]) -> Vec<bool> {
        places.iter().map(is_evicted).collect()
    }

    #[test]
    fn a_peer_has_eight_places_and_its_oldest_idle_connection_gives_way() {
        let connections = Connections::default();
        let (bystander, _) = entered(&connections, remote(2), 1);
        let (places, refused) = entered(&connections, remote(1), 11);
        assert_eq!((evicted(&places), refused), ([vec![true; 3], vec![false; 8]].concat(), 0));
        assert!(!is_evicted(&bystander[0]), "connections of other peers are not evicted");
        // Once they have answered requests they stay, and new connections are refused.
        places[3..].iter().for_each(|place| place.admission.give());
        let Err(full) = connections.enter(remote(1)) else { panic!("a ninth place") };
        assert!(full.place.is_none() && (full.open, full.whose) == (8, "from one address"));
        assert!(!evicted(&places[3..]).contains(&true));
        // A closed connection frees its slot.
        drop(places);
        assert!(connections.enter(remote(1)).is_ok());
    }

    #[test]
    fn other_machines_leave_places_for_this_one() {
        let connections = Connections::default();
        let filled: Vec<ConnectionSlot> =
            (0..7).flat_map(|number| entered(&connections, remote(number), 8).0).collect();
        assert_eq!((filled.len(), evicted(&filled).contains(&true)), (56, false));
        filled.iter().for_each(|place| place.admission.give());
        assert_eq!(entered(&connections, remote(9), 1).1, 1, "all of their places are in use");
        let (local, refused) = entered(&connections, Peer::Local, 8);
        assert_eq!((local.len(), refused), (8, 0));
        // Nor do they displace local connections, though these are idle.
        assert_eq!(entered(&connections, remote(9), 1).1, 1);
        assert!(!evicted(&local).contains(&true));
        assert_eq!(connections.open().by_age.len(), MAX_CONNECTIONS);
        // Local connections displace the oldest local one.
        let (more, _) = entered(&connections, Peer::Local, 1);
        assert_eq!(
            (evicted(&local)[..2].to_vec(), is_evicted(&more[0])),
            (vec![true, false], false)
        );
    }

    /// Opens connections and begins streams on them. Returns the slots, and how many have a stream.
    fn streaming(
        connections: &Connections,
        peer: Peer,
        count: usize,
    ) -> (Vec<ConnectionSlot>, usize) {
        let (places, _) = entered(connections, peer, count);
        places.iter().for_each(|place| place.admission.give());
        let streams =
            places.iter().filter(|place| connections.stream(&place.admission).is_ok()).count();
        (places, streams)
    }

    #[test]
    fn streams_leave_a_quarter_of_the_places() {
        let connections = Connections::default();
        let (places, streams) = streaming(&connections, remote(1), 8);
        assert_eq!(streams, 6);
        // The other requests of these connections are answered, and so is a second stream of one.
        assert!(connections.stream(&places[0].admission).is_ok());
        let full = connections.stream(&places[7].admission).map_err(|full| (full.open, full.whose));
        assert_eq!(full, Err((6, "from one address")));
        let others: Vec<_> =
            (2..8).map(|number| streaming(&connections, remote(number), 8)).collect();
        assert_eq!(others.iter().map(|(_, streams)| streams).sum::<usize>(), 36);
        let (local, streams) = streaming(&connections, Peer::Local, 8);
        assert_eq!((local.len(), streams), (8, 6));
        // A stream that ends leaves its place.
        drop(others);
        assert!(connections.stream(&local[7].admission).is_ok());
        // All 64 connections of this machine.
        drop((places, local));
        let (local, streams) = streaming(&connections, Peer::Local, 64);
        assert_eq!((local.len(), streams), (64, 48));
    }

    #[test]
    fn idle_connections_of_others_give_way_to_all() {
        let connections = Connections::default();
        let filled: Vec<ConnectionSlot> =
            (0..7).flat_map(|number| entered(&connections, remote(number), 8).0).collect();
        let (newcomer, _) = entered(&connections, remote(9), 1);
        assert_eq!(
            (evicted(&filled)[..2].to_vec(), is_evicted(&newcomer[0])),
            (vec![true, false], false)
        );
        // Local connections fill the rest, and then displace remote ones.
        let (local, _) = entered(&connections, Peer::Local, 9);
        assert_eq!(
            (evicted(&filled)[..3].to_vec(), evicted(&local).contains(&true)),
            (vec![true, true, false], false)
        );
        assert_eq!(connections.open().by_age.len(), MAX_CONNECTIONS);
    }

    #[test]
    fn a_machine_is_known_by_asking_itself_and_a_network_is_one_peer() {
        let peer = |peer: &str, local: &str| {
            Peer::new(
                SocketAddr::new(peer.parse().unwrap(), 1),
                SocketAddr::new(local.parse().unwrap(), 9420),
            )
        };
        for (remote, local) in
            [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("192.0.2.1", "::ffff:192.0.2.1")]
        {
            assert_eq!(peer(remote, local), Peer::Local, "{remote} {local}");
        }
        assert_eq!(peer("127.0.0.2", "127.0.0.1"), Peer::Remote("127.0.0.2".parse().unwrap()));
        assert_eq!(
            peer("2001:db8:0:1:2::3", "2001:db8::1"),
            peer("2001:db8:0:1:ffff::", "2001:db8::1")
        );
        assert_ne!(peer("2001:db8:0:1::1", "2001:db8::1"), peer("2001:db8:0:2::1", "2001:db8::1"));
        assert_eq!(peer("::ffff:192.0.2.7", "::1"), remote(7));
    }
}
