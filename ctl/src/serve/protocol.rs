//! Protocols of the servers.

use axum::http::Method;

/// Application protocol of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// HTTP/1.1.
    Http,
    /// gRPC over HTTP/2.
    Grpc,
}

impl Protocol {
    /// Returns the name for messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Protocol::Http => "HTTP",
            Protocol::Grpc => "gRPC",
        }
    }

    /// Returns the protocol's ALPN identifier.
    pub(super) fn inside(self) -> Vec<u8> {
        match self {
            Protocol::Http => b"http/1.1".to_vec(),
            Protocol::Grpc => b"h2".to_vec(),
        }
    }

    /// Returns the allowed request methods.
    pub(super) fn methods(self) -> &'static [Method] {
        match self {
            Protocol::Http => &[Method::GET, Method::HEAD],
            Protocol::Grpc => &[Method::POST],
        }
    }
}
