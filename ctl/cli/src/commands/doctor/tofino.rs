//! Check of the tofino backend: whether the switch answers.

use super::report::Check;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Time limit for resolving the name and connecting, together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn how_to_ask() -> Check {
    Check::warning(
        "not checked",
        "give the address of its BFRuntime server with --address HOST:PORT",
    )
    .named("switch")
    .optional()
    .not_asked("no switch (--address HOST:PORT)")
}

pub(super) fn checks(address: &str) -> Vec<Check> {
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    let check = match resolve(address, deadline) {
        Ok(candidates) => reach(&candidates, deadline),
        Err(error) => {
            let advice = "check the spelling, and the resolver with `getent hosts`";
            Check::no(format!("cannot resolve the name: {error}"), advice)
        }
    };
    vec![check.named("switch").about(address)]
}

/// Resolves an address. The resolver has no timeout, so its thread is abandoned at the deadline.
fn resolve(address: &str, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    let (answer, answers) = mpsc::channel();
    let name = address.to_owned();
    thread::spawn(move || answer.send(name.to_socket_addrs().map(Iterator::collect)));
    let no_answer = |_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"));
    answers
        .recv_timeout(deadline.saturating_duration_since(Instant::now()))
        .unwrap_or_else(no_answer)
}

fn reach(candidates: &[SocketAddr], deadline: Instant) -> Check {
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for (index, candidate) in candidates.iter().enumerate() {
        // Share the remaining time between the remaining addresses.
        let left =
            deadline.saturating_duration_since(Instant::now()) / (candidates.len() - index) as u32;
        match TcpStream::connect_timeout(candidate, left.max(Duration::from_millis(1))) {
            Ok(_) => return Check::ok(format!("reachable at {candidate}")),
            Err(error) => failure = error,
        }
    }
    let advice = match failure.kind() {
        io::ErrorKind::ConnectionRefused => {
            "the host answers, but nothing listens on this port; is bf_switchd running with BFRuntime gRPC on it?"
        }
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            "no answer; check the address, routes and firewalls"
        }
        _ => "check the address, and the route to it with `ip route get`",
    };
    Check::no(format!("cannot connect: {failure}"), advice)
}
