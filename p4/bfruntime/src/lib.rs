//! BFRuntime, the control plane of Tofino switches.
//!
//! - [`proto`]: messages, client and server of the gRPC protocol, generated from our own statement
//!   of its wire format;
//! - [`schema`]: the description of a program's tables that the P4 compiler writes (`bfrt.json`);
//! - [`entry`]: table entries by name, as people and P4 programs speak of them;
//! - [`codec`]: entries by name to messages by number and back, every width checked;
//! - [`client`]: a client's connection to a switch;
//! - `server` (feature `server`): the switch's end of the protocol, before anything that implements
//!   `Target`.

pub mod client;
pub mod codec;
pub mod entry;
pub mod fixed;
pub mod schema;
#[cfg(feature = "server")]
pub mod server;

/// Messages, client and server of the protocol.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated; the .proto has the comments"
)]
pub mod proto {
    include!("../proto/bfruntime.rs");
}

pub use entry::{Data, Entry, Key, Match, Pipes, Place, Value};
pub use schema::{Schema, SchemaError};
