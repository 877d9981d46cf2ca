//! Names from DNS: reverse lookups (PTR, RFC 1035) in the background, with a cache.
//!
//! Only a stub resolver: it asks the servers in `/etc/resolv.conf` over UDP, with recursion.
//! Answers count only from the server that was asked, with the number and the question of the
//! request.

use crossbeam::channel::{Receiver, Sender, bounded};
use std::collections::HashMap;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const RESOLV_CONF: &str = "/etc/resolv.conf";
const PORT: u16 = 53;
/// Time limit for a server's answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Requests at a time.
const THREADS: usize = 4;
/// Maximum number of queued addresses; others are requested when they are needed again.
const MAX_WAITING: usize = 4096;
/// Maximum number of answers in the cache; it is emptied beyond.
const MAX_ANSWERS: usize = 1 << 16;
/// Time for which an answer is used: a name, or that there is none.
const NAME_AGE: Duration = Duration::from_secs(3600);
const NONE_AGE: Duration = Duration::from_secs(300);
/// Maximum number of compression pointers in a name.
const MAX_POINTERS: usize = 16;
const PTR: [u8; 2] = [0, 12];
const IN: [u8; 2] = [0, 1];

/// Resolver with its cache.
#[derive(Debug)]
pub(super) struct Resolver {
    cache: Arc<Cache>,
    requests: Sender<IpAddr>,
}

#[derive(Debug, Default)]
struct Cache {
    answers: Mutex<HashMap<IpAddr, CachedAnswer>>,
    answered: Condvar,
}

#[derive(Debug)]
enum CachedAnswer {
    Pending,
    Answered { name: Option<String>, until: Instant },
}

impl Cache {
    fn answers(&self) -> MutexGuard<'_, HashMap<IpAddr, CachedAnswer>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resolver {
    /// Starts threads that ask the servers of this machine.
    pub(super) fn start() -> Result<Self, String> {
        let text = fs::read_to_string(RESOLV_CONF).map_err(|error| {
            format!("cannot read the servers of DNS from {RESOLV_CONF}: {error}")
        })?;
        let servers = servers(&text);
        if servers.is_empty() {
            return Err(format!("{RESOLV_CONF} names no server of DNS; add one, or leave out dns"));
        }
        Self::asking(servers)
    }

    fn asking(servers: Vec<SocketAddr>) -> Result<Self, String> {
        let cache = Arc::new(Cache::default());
        let (requests, waiting) = bounded(MAX_WAITING);
        for _ in 0..THREADS {
            let (cache, waiting, servers) = (Arc::clone(&cache), waiting.clone(), servers.clone());
            thread::Builder::new()
                .name("dns".to_owned())
                .spawn(move || answer(&cache, &waiting, &servers))
                .map_err(|error| format!("cannot start a thread for DNS: {error}"))?;
        }
        Ok(Resolver { cache, requests })
    }

    /// Returns the name of an address if it is known; else requests it.
    pub(super) fn name(&self, address: IpAddr) -> Option<String> {
        let mut answers = self.cache.answers();
        match answers.get(&address) {
            Some(CachedAnswer::Pending) => return None,
            Some(CachedAnswer::Answered { name, until }) if *until > Instant::now() => {
                return name.clone();
            }
            _ => {}
        }
        // A name that was known until now is used until there is another answer.
        let before = match answers.get(&address) {
            Some(CachedAnswer::Answered { name, .. }) => name.clone(),
            _ => None,
        };
        if answers.len() >= MAX_ANSWERS {
            answers.retain(|_, answer| matches!(answer, CachedAnswer::Pending));
        }
        if self.requests.try_send(address).is_ok() {
            answers.insert(address, CachedAnswer::Pending);
        }
        before
    }

    /// Requests the names of addresses, and waits for them. Returns how many were not answered.
    pub(super) fn prepare(&self, addresses: &[IpAddr], most: Duration) -> usize {
        let until = Instant::now() + most;
        loop {
            let unanswered = addresses.iter().filter(|address| {
                // Requests those that are not waiting yet.
                let _ = self.name(**address);
                let answers = self.cache.answers();
                !matches!(answers.get(address), Some(CachedAnswer::Answered { .. }))
            });
            let unanswered = unanswered.count();
            let left = until.saturating_duration_since(Instant::now());
            if unanswered == 0 || left.is_zero() {
                return unanswered;
            }
            let answers = self.cache.answers();
            let wait = left.min(Duration::from_millis(100));
            drop(self.cache.answered.wait_timeout(answers, wait));
        }
    }
}

/// Servers of `/etc/resolv.conf`.
fn servers(text: &str) -> Vec<SocketAddr> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        (words.next()? == "nameserver").then_some(())?;
        Some(SocketAddr::new(words.next()?.parse().ok()?, PORT))
    };
    text.lines().filter_map(server).take(3).collect()
}

/// Answers requests until the resolver is dropped.
fn answer(cache: &Cache, waiting: &Receiver<IpAddr>, servers: &[SocketAddr]) {
    while let Ok(address) = waiting.recv() {
        let mut answers = servers.iter().map(|server| ask(*server, address));
        let name = answers.find_map(Result::ok).flatten();
        let age = if name.is_some() { NAME_AGE } else { NONE_AGE };
        let until = Instant::now() + age;
        cache.answers().insert(address, CachedAnswer::Answered { name, until });
        cache.answered.notify_all();
    }
}

/// Asks a server for the name of an address; `None` if it has none.
fn ask(server: SocketAddr, address: IpAddr) -> io::Result<Option<String>> {
    let any = if server.is_ipv4() {
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))
    } else {
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))
    };
    let socket = UdpSocket::bind(any)?;
    // Others' datagrams are not received then.
    socket.connect(server)?;
    // As random as the seeds of the standard library's hash tables.
    let id = RandomState::new().hash_one(address) as u16;
    let question = question(address);
    let mut request = id.to_be_bytes().to_vec();
    // Recursion is desired; one question.
    request.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    request.extend(&question);
    socket.send(&request)?;
    let until = Instant::now() + TIMEOUT;
    let mut answer = [0; 1500];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        let length = socket.recv(&mut answer)?;
        if let Some(name) = answer.get(..length).and_then(|it| answered(it, id, &question)) {
            return Ok(name);
        }
    }
}

/// Returns the question for the name of an address.
fn question(address: IpAddr) -> Vec<u8> {
    let labels: Vec<String> = match address {
        IpAddr::V4(address) => address.octets().iter().rev().map(u8::to_string).collect(),
        IpAddr::V6(address) => {
            let nibbles = address.octets().into_iter().rev().flat_map(|it| [it & 15, it >> 4]);
            nibbles.map(|nibble| format!("{nibble:x}")).collect()
        }
    };
    let zone = if address.is_ipv4() { "in-addr" } else { "ip6" };
    let labels = labels.iter().map(String::as_str).chain([zone, "arpa"]);
    let mut question = Vec::new();
    for label in labels {
        question.push(label.len() as u8);
        question.extend(label.as_bytes());
    }
    question.push(0);
    question.extend([PTR, IN].concat());
    question
}

/// Returns the answer in a message; `None` if the message is not the answer to the question.
fn answered(message: &[u8], id: u16, question: &[u8]) -> Option<Option<String>> {
    let header: &[u8; 12] = message.first_chunk()?;
    let &[id_high, id_low, flags, code, _, questions, count_high, count_low, ..] = header;
    let is_answer = u16::from_be_bytes([id_high, id_low]) == id && flags & 0x80 != 0;
    let asked = message.get(header.len()..header.len() + question.len())?;
    // Servers may change the case of letters.
    if !is_answer || questions != 1 || !asked.eq_ignore_ascii_case(question) {
        return None;
    }
    if code & 15 != 0 {
        return Some(None);
    }
    let mut at = header.len() + question.len();
    for _ in 0..u16::from_be_bytes([count_high, count_low]) {
        let Some(record) = skipped(message, at).and_then(|after| {
            let fixed: [u8; 10] = *message.get(after..)?.first_chunk()?;
            Some((after + 10, fixed))
        }) else {
            return Some(None);
        };
        let (data, [t0, t1, c0, c1, _, _, _, _, l0, l1]) = record;
        if [t0, t1] == PTR && [c0, c1] == IN {
            return Some(name(message, data));
        }
        at = data + usize::from(u16::from_be_bytes([l0, l1]));
    }
    Some(None)
}

/// Returns the offset after a name.
fn skipped(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            length if length < 64 => at += 1 + usize::from(length),
            _ => return Some(at + 2),
        }
    }
}

/// Returns the name at an offset, without the last dot. Bytes outside of ASCII become question
/// marks.
fn name(message: &[u8], mut at: usize) -> Option<String> {
    let (mut text, mut pointers) = (String::new(), 0);
    loop {
        let length = usize::from(*message.get(at)?);
        if length == 0 {
            return (!text.is_empty()).then_some(text);
        }
        if length >= 192 {
            pointers += 1;
            let low = usize::from(*message.get(at + 1)?);
            at = (length & 63) << 8 | low;
            if pointers > MAX_POINTERS {
                return None;
            }
            continue;
        }
        let label = message.get(at + 1..at + 1 + length).filter(|_| length < 64)?;
        if !text.is_empty() {
            text.push('.');
        }
        let character = |byte: &u8| if byte.is_ascii() { char::from(*byte) } else { '?' };
        text.extend(label.iter().map(character));
        // RFC 1035 limits names to 255 bytes.
        if text.len() > 255 {
            return None;
        }
        at += 1 + length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

    /// Returns an answer with a CNAME before the name, which ends with a pointer into the question.
    fn message(id: u16, code: u8) -> Vec<u8> {
        let question = question(ADDRESS);
        let mut message = id.to_be_bytes().to_vec();
        message.extend([0x81, 0x80 | code, 0, 1, 0, 2, 0, 0, 0, 0]);
        message.extend(&question);
        message.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 9, 0, 2, 0xc0, 12]);
        message.extend([0xc0, 12, 0, 12, 0, 1, 0, 0, 0, 9, 0, 7, 4]);
        message.extend(b"host");
        // "arpa" in the question.
        let arpa = 12 + question.len() - 4 - 6;
        message.extend([0xc0, arpa as u8]);
        message
    }

    #[test]
    fn an_answer_has_a_name() {
        let question = question(ADDRESS);
        assert!(question.starts_with(b"\x017\x012\x010\x03192\x07in-addr\x04arpa\x00"));
        let good = message(77, 0);
        assert_eq!(answered(&good, 77, &question), Some(Some("host.arpa".to_owned())));
        assert_eq!(answered(&good, 78, &question), None);
        assert_eq!(answered(&message(77, 3), 77, &question), Some(None));
        let v6 = super::question("2001:db8::1".parse().unwrap());
        assert_eq!(answered(&good, 77, &v6), None);
        // Cut anywhere, and with any byte changed, it is parsed to an end.
        for length in 0..good.len() {
            let _ = answered(&good[..length], 77, &question);
            for byte in [0, 12, 63, 64, 192, 255] {
                let mut bad = good.clone();
                bad[length] = byte;
                let _ = answered(&bad, 77, &question);
            }
        }
        // A pointer to itself.
        assert_eq!(name(&[0xc0, 0], 0), None);
    }

    #[test]
    fn a_name_is_known_once_the_server_has_answered() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let resolver = Resolver::asking(vec![address]).unwrap();
        assert_eq!(resolver.name(ADDRESS), None);
        let mut request = [0; 512];
        let (_, from) = server.recv_from(&mut request).unwrap();
        // It does not ask again while it waits.
        assert_eq!(resolver.name(ADDRESS), None);
        let id = u16::from_be_bytes([request[0], request[1]]);
        // Another number is no answer.
        server.send_to(&message(id.wrapping_add(1), 3), from).unwrap();
        server.send_to(&message(id, 0), from).unwrap();
        assert_eq!(resolver.prepare(&[ADDRESS], Duration::from_secs(60)), 0);
        assert_eq!(resolver.name(ADDRESS).as_deref(), Some("host.arpa"));
    }

    #[test]
    fn servers_are_those_of_the_file() {
        let text = "search example.org\nnameserver 192.0.2.1\n# nameserver 1.1.1.1\nnameserver ::1\noptions rotate\n";
        let expected = ["192.0.2.1:53", "[::1]:53"].map(|it| it.parse().unwrap());
        assert_eq!(servers(text), expected);
    }
}
