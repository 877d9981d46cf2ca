//! Check of the tofino backend: whether the switch answers.

use super::report::Check;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Time limit for resolving the name and connecting, together.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn how_to_ask() -> Check {
    Check::warning("switch", "not looked for", "give its BFRuntime server with --address HOST:PORT")
        .optional()
}

pub(super) fn checks(address: &str) -> Vec<Check> {
    let deadline = Instant::now() + PATIENCE;
    vec![match resolve(address, deadline) {
        Ok(candidates) => reach(&candidates, deadline).about(address),
        Err(error) => {
            let advice = "check the spelling, and with `getent hosts` what the resolver says";
            Check::no("switch", format!("the name cannot be resolved: {error}"), advice)
                .about(address)
        }
    }]
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
            Ok(_) => return Check::ok("switch", format!("reachable at {candidate}")),
            Err(error) => failure = error,
        }
    }
    let advice = match failure.kind() {
        io::ErrorKind::ConnectionRefused => {
            "the machine answers, the port does not: is bf_switchd up, with BFRuntime gRPC on this port?"
        }
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            "nothing answers: check address, routes and firewalls between here and the switch"
        }
        _ => "check the address, and `ip route get` for the way to it",
    };
    Check::no("switch", format!("cannot connect: {failure}"), advice)
}
