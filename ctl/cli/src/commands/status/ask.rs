//! Queries to the status sockets of runs over HTTP: all in parallel, with a time limit, and only
//! sockets of trusted users.

use crate::output::status::directory::{doubt_of_socket, is_trusted, parent_of_socket};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde_json::Value;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Request. In version 1.0 the answer is one piece, and ends the connection.
const REQUEST: &[u8] = b"GET /status HTTP/1.0\r\nHost: localhost\r\n\r\n";
/// Time limit of all queries together.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum length of an answer. A run with a thousand workers needs an eighth of it; sources with
/// many interfaces add some KiB for each.
const MAX_ANSWER_BYTES: usize = 1 << 22;
const CHUNK_BYTES: usize = 1 << 16;

/// Reason why there is no answer.
#[derive(Debug)]
pub(super) enum StatusError {
    /// The socket was removed.
    Ended,
    /// No process listens on the socket.
    Killed,
    /// The socket, or the process that answers, belongs to a user who is not trusted.
    Foreign(String),
    /// The run did not answer, or not with a status over HTTP.
    Silent(String),
}

/// Answer of the run with a process ID and socket.
type Answer = (u32, PathBuf, Result<Value, StatusError>);

/// Queries all sockets and returns the answers, ordered by process id.
pub(super) fn all(sockets: Vec<(u32, PathBuf)>) -> Vec<Answer> {
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    let mut answers: Vec<Answer> = thread::scope(|scope| {
        let started: Vec<_> = sockets
            .into_iter()
            .map(|(pid, path)| {
                let reader = connected(&path).and_then(|stream| {
                    thread::Builder::new()
                        .spawn_scoped(scope, move || answer(stream, deadline))
                        .map_err(silent)
                });
                (pid, path, reader)
            })
            .collect();
        let joined = started.into_iter().map(|(pid, path, reader)| {
            let failed = |_| Err(StatusError::Silent("the reader of its answer failed".to_owned()));
            (pid, path, reader.and_then(|reader| reader.join().unwrap_or_else(failed)))
        });
        joined.collect()
    });
    answers.sort_by_key(|(pid, ..)| *pid);
    answers
}

fn silent(error: io::Error) -> StatusError {
    StatusError::Silent(error.to_string())
}

/// Connects without blocking and checks the user of the other end.
fn connected(path: &Path) -> Result<UnixStream, StatusError> {
    let io = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => StatusError::Ended,
        io::ErrorKind::ConnectionRefused => StatusError::Killed,
        io::ErrorKind::PermissionDenied => {
            StatusError::Silent(format!("{error}; run this as root or as its user"))
        }
        io::ErrorKind::WouldBlock => {
            StatusError::Silent("too many clients; is the process stopped?".to_owned())
        }
        _ => StatusError::Silent(error.to_string()),
    };
    let os = |errno: Errno| io(errno.into());
    if let Some(doubt) = doubt_of_socket(path).map_err(io)? {
        return Err(StatusError::Foreign(doubt));
    }
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(os)?;
    connect(&socket, &SocketAddrUnix::new(path).map_err(os)?).map_err(os)?;
    // The socket may have been replaced since it was checked; the peer credentials are those of the
    // connection.
    let user = socket_peercred(&socket).map_err(os)?.uid.as_raw();
    if !is_trusted(user, parent_of_socket(path)) {
        let path = path.display();
        return Err(StatusError::Foreign(format!(
            "{path} is answered by user {user}, who is neither you nor root; skipped"
        )));
    }
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false).map_err(io)?;
    Ok(stream)
}

/// Sends the request and reads the whole answer.
fn answer(mut stream: UnixStream, deadline: Instant) -> Result<Value, StatusError> {
    stream.write_all(REQUEST).map_err(silent)?;
    let (mut answer, mut chunk) = (Vec::new(), [0; CHUNK_BYTES]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(StatusError::Silent(format!(
                "no complete answer within {ANSWER_TIMEOUT:?}; is the process stopped?"
            )));
        }
        stream.set_read_timeout(Some(left)).map_err(silent)?;
        match stream.read(&mut chunk) {
            Ok(0) => return status(&answer),
            Ok(length) if answer.len() + length > MAX_ANSWER_BYTES => {
                return Err(StatusError::Silent(format!(
                    "the answer is longer than {} KiB",
                    MAX_ANSWER_BYTES >> 10
                )));
            }
            Ok(length) => answer.extend_from_slice(&chunk[..length]),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(silent(error)),
        }
    }
}

/// Returns the status in an answer.
fn status(answer: &[u8]) -> Result<Value, StatusError> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let (head, body) = answer.split_at(end.map_or(0, |end| end + 4));
    let code = head.split(|byte| *byte == b' ').nth(1);
    if !head.starts_with(b"HTTP/1.") || code != Some(&b"200"[..]) {
        let problem = "no status over HTTP; use `flowgauge status` of its version";
        return Err(StatusError::Silent(problem.to_owned()));
    }
    serde_json::from_slice(body).map_err(|error| StatusError::Silent(error.to_string()))
}
