//! Rejected connections and requests: counted in metrics, and logged once a reason, so that clients
//! cannot fill the log.

use super::protocol::Protocol;
use crate::output::Metrics;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Reason for a rejection.
#[derive(Clone, Copy)]
pub(super) enum RequestRefusal {
    /// Too many connections, or too many streams.
    Crowded,
    /// The connection could not be accepted.
    Accept,
    /// The TLS handshake failed.
    Encryption,
    /// The token is missing or wrong.
    Token,
    /// The host is not a name of the local machine, or there are several.
    Name,
    /// The request is malformed, too long or too slow, or its answer is not read.
    Request,
}

impl RequestRefusal {
    const ALL: [RequestRefusal; 6] = [
        RequestRefusal::Crowded,
        RequestRefusal::Accept,
        RequestRefusal::Encryption,
        RequestRefusal::Token,
        RequestRefusal::Name,
        RequestRefusal::Request,
    ];

    /// Returns the value of the metric's label.
    fn name(self) -> &'static str {
        match self {
            RequestRefusal::Crowded => "connections",
            RequestRefusal::Accept => "accept",
            RequestRefusal::Encryption => "tls",
            RequestRefusal::Token => "token",
            RequestRefusal::Name => "host",
            RequestRefusal::Request => "request",
        }
    }
}

/// Rejections of one server; clones share them. Without metrics they are neither counted nor
/// logged, since clients of this machine must not fill its log.
#[derive(Clone)]
pub(super) struct Refusals {
    protocol: Protocol,
    metrics: Option<Metrics>,
    logged: Arc<[AtomicBool; RequestRefusal::ALL.len()]>,
}

impl Refusals {
    pub(super) fn new(protocol: Protocol, metrics: Option<Metrics>) -> Self {
        if let Some(metrics) = &metrics {
            for refusal in RequestRefusal::ALL {
                metrics.refused(protocol.name(), refusal.name(), 0);
            }
        }
        Refusals { protocol, metrics, logged: Arc::default() }
    }

    /// Counts a rejection, and logs the first of each reason.
    pub(super) fn add(&self, refusal: RequestRefusal, why: impl Display) {
        let (name, protocol) = (refusal.name(), self.protocol.name());
        let Some(metrics) = &self.metrics else {
            return tracing::debug!("refused over {protocol}: {why}");
        };
        let metric = metrics.refused(protocol, name, 1);
        if self
            .logged
            .get(refusal as usize)
            .is_some_and(|logged| !logged.swap(true, Ordering::Relaxed))
        {
            tracing::warn!(
                "refused over {protocol}: {why}; further ones are counted in {metric}{{reason=\"{name}\"}}"
            );
        }
    }
}
