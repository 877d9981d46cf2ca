//! Protocols that a run is asked over.

use axum::http::Method;

/// How requests and answers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// HTTP 1.1.
    Http,
    /// gRPC, over HTTP 2.
    Grpc,
}

impl Protocol {
    /// For people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Protocol::Http => "HTTP",
            Protocol::Grpc => "gRPC",
        }
    }

    /// What TLS calls what is inside.
    pub(super) fn inside(self) -> Vec<u8> {
        match self {
            Protocol::Http => b"http/1.1".to_vec(),
            Protocol::Grpc => b"h2".to_vec(),
        }
    }

    /// Methods that are answered.
    pub(super) fn methods(self) -> &'static [Method] {
        match self {
            Protocol::Http => &[Method::GET, Method::HEAD],
            Protocol::Grpc => &[Method::POST],
        }
    }
}
