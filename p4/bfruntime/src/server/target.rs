//! Interface between a server and a switch, or a substitute for one.

use crate::entry::{Data, Entry, Key, Pipes};
use std::collections::BTreeMap;
use tonic::Code;

/// Switch with one program loaded, addressed by names and big-endian bytes.
///
/// Names are full names of the schema. The server checks every name, width and pipe against the
/// schema before it calls, and checks the results. Calls may come from several threads at once;
/// each must be atomic.
pub trait Target: Send + Sync {
    /// Returns the program's name.
    fn program(&self) -> &str;

    /// Returns the program's schema, a `bfrt.json`. It is constant.
    fn schema(&self) -> &str;

    /// Returns the number of pipes of the switch, all with this program.
    fn pipes(&self) -> u32 {
        1
    }

    /// Changes a table: a match table, a register, a counter.
    ///
    /// A register's datum is one value for all these pipes.
    ///
    /// # Errors
    /// [`Fault`]; then nothing was changed.
    fn write(&self, table: &str, pipes: Pipes, write: &Write) -> Result<(), Fault>;

    /// Reads a table. Entries of a register have each datum once per pipe, in order; entries of a
    /// counter have the sum over the pipes.
    ///
    /// # Errors
    /// [`Fault`]; [`Fault::not_found`] for an entry or default action that does not exist.
    fn read(
        &self,
        table: &str,
        pipes: Pipes,
        query: &Query,
        source: Source,
    ) -> Result<Vec<Entry>, Fault>;

    /// Executes an operation that the schema offers for a table. `Sync` copies the hardware
    /// counters to [`Source::Software`].
    ///
    /// # Errors
    /// [`Fault`].
    fn operate(&self, table: &str, pipes: Pipes, operation: &str) -> Result<(), Fault>;

    /// Stops accepting packets, after those inside have left, until [`resume`](Self::resume). The
    /// writes of an atomic batch happen in between.
    ///
    /// # Errors
    /// [`Fault`]; by default, that this is not supported.
    fn pause(&self) -> Result<(), Fault> {
        Err(Fault::new(Code::Unimplemented, "batches cannot be atomic for packets"))
    }

    /// Accepts packets again.
    fn resume(&self) {}

    /// Configures or removes a port.
    ///
    /// # Errors
    /// [`Fault`] if there is no such port, or it cannot be configured like this; then nothing was
    /// changed.
    fn configure_port(&self, dev_port: u32, enabled: bool) -> Result<(), Fault> {
        let _ = (dev_port, enabled);
        Ok(())
    }

    /// Returns the MAC counters of ports, by device port number. Ports that are omitted have
    /// counted nothing.
    fn port_counters(&self) -> BTreeMap<u32, PortCounters> {
        BTreeMap::new()
    }

    /// Sets the destination of digests. Called once, when a server starts.
    fn attach(&self, digests: Digests) {
        drop(digests);
    }
}

/// MAC counters of a port, in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Received, valid or not. Includes all counters below except the last.
    pub received: u64,
    /// Received with a wrong checksum, and dropped.
    pub wrong_checksum: u64,
    /// Received while the buffer was full, and dropped.
    pub no_room: u64,
    /// PAUSE frames received, which the MAC does not pass on.
    pub pause: u64,
    /// Sent.
    pub sent: u64,
}

/// Change to a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Inserts an entry. For registers and counters, whose entries always exist, the same as
    /// [`Write::Modify`].
    Insert(Key, Data),
    /// Modifies an existing entry; fields that are not given keep their values.
    Modify(Key, Data),
    /// Removes an entry.
    Delete(Key),
    /// Removes every entry; sets registers and counters to zero.
    Clear,
    /// Sets the default action.
    SetDefault(Data),
    /// Restores the default action of the program.
    ResetDefault,
}

/// Entries to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// The entry with this key.
    Entry(Key),
    /// Every entry except the default one.
    All,
    /// The default entry.
    Default,
}

/// Copy of registers and counters that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Driver's copy, as of the last `Sync` or write.
    Software,
    /// The hardware.
    Hardware,
}

/// Reason why a target rejected a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// Kind of failure.
    pub code: Code,
    /// Message for the operator, one line.
    pub message: String,
}

impl Fault {
    /// Returns a failure of this kind.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Fault { code, message: message.into() }
    }

    /// Returns the failure for an entry that does not exist.
    #[must_use]
    pub fn not_found(message: impl Into<String>) -> Self {
        Fault::new(Code::NotFound, message)
    }

    /// Returns the failure for an entry that already exists.
    #[must_use]
    pub fn already_exists(message: impl Into<String>) -> Self {
        Fault::new(Code::AlreadyExists, message)
    }

    /// Returns the failure for a full table.
    #[must_use]
    pub fn exhausted(message: impl Into<String>) -> Self {
        Fault::new(Code::ResourceExhausted, message)
    }

    /// Returns the failure for an invalid request.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Fault::new(Code::InvalidArgument, message)
    }
}

/// Digests that the data plane sent together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// Name of the digest in the schema.
    pub filter: String,
    /// Pipe that sent them.
    pub pipe: u32,
    /// Fields of each digest.
    pub entries: Vec<Vec<(String, Vec<u8>)>>,
}

/// Sender of digests to subscribed clients. Never blocks; a client that is too slow loses the
/// oldest.
#[derive(Clone, Debug)]
pub struct Digests(pub(super) tokio::sync::broadcast::Sender<Digest>);

impl Digests {
    /// Sends digests to all subscribed clients.
    pub fn send(&self, digest: Digest) {
        // Sending fails without clients, which is fine.
        let _ = self.0.send(digest);
    }
}
