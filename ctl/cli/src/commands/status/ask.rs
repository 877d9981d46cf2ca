//! Queries to the status sockets of runs: all in parallel, with a time limit, and only sockets of
//! trusted users.

use crate::output::status::directory::{doubt_of_socket, is_trusted, parent_of_socket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde_json::Value;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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
    /// The run did not answer, or not with a status.
    Silent(String),
}

/// Connection whose answer is being read.
struct PendingAnswer {
    pid: u32,
    path: PathBuf,
    stream: UnixStream,
    answer: Vec<u8>,
}

/// Queries all sockets and returns the answers, ordered by process id.
pub(super) fn all(sockets: Vec<(u32, PathBuf)>) -> Vec<(u32, PathBuf, Result<Value, StatusError>)> {
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    let mut answers = Vec::new();
    let mut open = Vec::new();
    for (pid, path) in sockets {
        match opened(&path) {
            Ok(stream) => open.push(PendingAnswer { pid, path, stream, answer: Vec::new() }),
            Err(problem) => answers.push((pid, path, Err(problem))),
        }
    }
    while !open.is_empty() {
        let readable = wait(&open, deadline);
        let mut still = Vec::new();
        for (asked, readable) in open.into_iter().zip(readable.chain(std::iter::repeat(false))) {
            let step = if readable { asked.read() } else { Step::More(asked) };
            match step {
                Step::More(asked) if Instant::now() < deadline => still.push(asked),
                Step::More(PendingAnswer { pid, path, .. }) => {
                    answers.push((
                        pid,
                        path,
                        Err(StatusError::Silent(format!(
                            "no complete answer within {ANSWER_TIMEOUT:?}; is the process stopped?"
                        ))),
                    ));
                }
                Step::Done(pid, path, answer) => answers.push((pid, path, answer)),
            }
        }
        open = still;
    }
    answers.sort_by_key(|(pid, ..)| *pid);
    answers
}

/// Connects without blocking and checks the user of the other end.
fn opened(path: &Path) -> Result<UnixStream, StatusError> {
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
    Ok(UnixStream::from(socket))
}

/// Waits until a connection is readable or the deadline has passed, and returns for each whether it
/// is readable.
fn wait(open: &[PendingAnswer], deadline: Instant) -> impl Iterator<Item = bool> + use<> {
    let left = deadline.saturating_duration_since(Instant::now());
    let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    let mut watched: Vec<PollFd<'_>> =
        open.iter().map(|asked| PollFd::new(&asked.stream, PollFlags::IN)).collect();
    // After an interrupt, the caller waits again. Any other failure shows up when reading.
    let all = !matches!(poll(&mut watched, Some(&left)), Ok(_) | Err(Errno::INTR));
    watched
        .iter()
        .map(|watched| all || !watched.revents().is_empty())
        .collect::<Vec<_>>()
        .into_iter()
}

enum Step {
    More(PendingAnswer),
    Done(u32, PathBuf, Result<Value, StatusError>),
}

impl PendingAnswer {
    /// Reads at most one chunk, so that the other connections get their turn.
    fn read(mut self) -> Step {
        let mut chunk = [0; CHUNK_BYTES];
        let problem = match self.stream.read(&mut chunk) {
            Ok(0) => return self.ended(),
            Ok(length) if self.answer.len() + length > MAX_ANSWER_BYTES => {
                format!("the answer is longer than {} KiB", MAX_ANSWER_BYTES >> 10)
            }
            Ok(length) => {
                self.answer.extend_from_slice(&chunk[..length]);
                return Step::More(self);
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                return Step::More(self);
            }
            Err(error) => error.to_string(),
        };
        Step::Done(self.pid, self.path, Err(StatusError::Silent(problem)))
    }

    fn ended(self) -> Step {
        let answer = serde_json::from_slice(&self.answer)
            .map_err(|error| StatusError::Silent(error.to_string()));
        Step::Done(self.pid, self.path, answer)
    }
}
