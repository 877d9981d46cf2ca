//! What a server needs from a switch, or from whatever stands in for one.

use crate::entry::{Data, Entry, Key, Pipes};
use std::collections::BTreeMap;
use tonic::Code;

/// A switch with one program loaded, by names and big-endian bytes.
///
/// Names are the schema's full names. The server has checked every name, width and pipe against the
/// schema before it calls, and checks what comes back. Calls may come from several threads at once;
/// each is to be carried out as a whole.
pub trait Target: Send + Sync {
    /// The program's name.
    fn program(&self) -> &str;

    /// The program's schema: a `bfrt.json`. Constant.
    fn schema(&self) -> &str;

    /// Pipelines of the switch, all with this program.
    fn pipes(&self) -> u32 {
        1
    }

    /// Changes a table: a match table, a register, a counter.
    ///
    /// A register's datum is one value, for all the pipes named.
    ///
    /// # Errors
    /// [`Fault`]; then nothing was changed.
    fn write(&self, table: &str, pipes: Pipes, write: &Write) -> Result<(), Fault>;

    /// Reads a table. A register's entries hold each datum once for each pipe named, in order; a
    /// counter's hold the sum over them.
    ///
    /// # Errors
    /// [`Fault`]; [`Fault::not_found`] for an entry or default action that is not there.
    fn read(
        &self,
        table: &str,
        pipes: Pipes,
        query: &Query,
        source: Source,
    ) -> Result<Vec<Entry>, Fault>;

    /// Carries out an operation that the schema offers for a table. `Sync` copies what the hardware
    /// counted to where [`Source::Software`] is read.
    ///
    /// # Errors
    /// [`Fault`].
    fn operate(&self, table: &str, pipes: Pipes, operation: &str) -> Result<(), Fault>;

    /// Stops packets at the entrance, those inside having left, until [`resume`](Self::resume):
    /// between the two come the writes of an atomic batch.
    ///
    /// # Errors
    /// [`Fault`]: by default, that this is not offered.
    fn pause(&self) -> Result<(), Fault> {
        Err(Fault::new(Code::Unimplemented, "batches cannot be atomic for packets"))
    }

    /// Lets packets in again.
    fn resume(&self) {}

    /// A port was configured or removed.
    ///
    /// # Errors
    /// [`Fault`] if there is no such port, or it cannot be configured so; then nothing was changed.
    fn configure_port(&self, dev_port: u32, enabled: bool) -> Result<(), Fault> {
        let _ = (dev_port, enabled);
        Ok(())
    }

    /// What the MACs of ports have counted, by the ports' numbers within the device. Ports that are
    /// left out have counted nothing.
    fn port_counters(&self) -> BTreeMap<u32, PortCounters> {
        BTreeMap::new()
    }

    /// Where to send digests from now on. Called once, when a server starts.
    fn attach(&self, digests: Digests) {
        drop(digests);
    }
}

/// What a port's MAC has counted, in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Received, whatever became of them: all of those below but the last are among them.
    pub received: u64,
    /// Received with a wrong checksum, and lost.
    pub wrong_checksum: u64,
    /// Received without room for them, and lost.
    pub no_room: u64,
    /// Received and kept by the MAC, which they tell to stop sending.
    pub pause: u64,
    /// Sent.
    pub sent: u64,
}

/// A change to a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// A new entry. For registers and counters, whose entries are always there, the same as
    /// [`Write::Modify`].
    Insert(Key, Data),
    /// Other data for an entry that is there; what is not given stays.
    Modify(Key, Data),
    /// Removes an entry.
    Delete(Key),
    /// Removes every entry; for registers and counters, zeroes them.
    Clear,
    /// Another default action.
    SetDefault(Data),
    /// The default action of the program again.
    ResetDefault,
}

/// What to read of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// The entry with this key.
    Entry(Key),
    /// Every entry; not the default one.
    All,
    /// The default entry.
    Default,
}

/// Where registers and counters are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The driver's copy, as of the last `Sync` or write.
    Software,
    /// The hardware.
    Hardware,
}

/// Why a target did not do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// What kind of failure.
    pub code: Code,
    /// One line for the operator.
    pub message: String,
}

impl Fault {
    /// A failure of this kind.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Fault { code, message: message.into() }
    }

    /// There is no such entry.
    #[must_use]
    pub fn not_found(message: impl Into<String>) -> Self {
        Fault::new(Code::NotFound, message)
    }

    /// There is such an entry already.
    #[must_use]
    pub fn already_exists(message: impl Into<String>) -> Self {
        Fault::new(Code::AlreadyExists, message)
    }

    /// The table is full.
    #[must_use]
    pub fn exhausted(message: impl Into<String>) -> Self {
        Fault::new(Code::ResourceExhausted, message)
    }

    /// Something that makes no sense.
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
    /// The pipeline that sent them.
    pub pipe: u32,
    /// One list of fields for each digest.
    pub entries: Vec<Vec<(String, Vec<u8>)>>,
}

/// The way digests take to the clients that want them. Never blocks; a client that does not keep up
/// loses the oldest.
#[derive(Clone, Debug)]
pub struct Digests(pub(super) tokio::sync::broadcast::Sender<Digest>);

impl Digests {
    /// Sends digests to every client that wants them.
    pub fn send(&self, digest: Digest) {
        // Without clients there is nobody to tell.
        let _ = self.0.send(digest);
    }
}
