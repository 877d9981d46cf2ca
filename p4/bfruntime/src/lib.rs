//! BFRuntime, the control plane of Tofino switches.
//!
//! A client looks up tables by name in the [`schema`] of the program, builds entries ([`entry`]),
//! and encodes them ([`codec`]) into messages ([`proto`]); answers take the opposite way. The
//! server decodes requests with the same schema and passes them to a target.
//!
//! - [`proto`]: messages, client and server of the gRPC protocol, generated from our own
//!   description of its wire format;
//! - [`schema`]: the description of a program's tables that the P4 compiler writes (`bfrt.json`);
//! - [`entry`]: table entries by name;
//! - [`codec`]: conversion between entries by name and messages by id, with every width checked;
//! - [`client`]: connection of a client to a switch;
//! - `server` (feature `server`): server side of the protocol, in front of any implementation of
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

pub use entry::{Data, Entry, EntryTarget, Key, Match, Pipes, Value};
pub use schema::{Schema, SchemaError};
