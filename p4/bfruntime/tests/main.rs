//! Tests of the protocol, the schema and the server.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod operator;
mod protocol;
mod schema;
