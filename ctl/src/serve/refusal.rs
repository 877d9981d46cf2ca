//! What is refused: counted in metrics, and told once each, since whoever asks must not be able to
//! fill the log.

use super::protocol::Protocol;
use crate::output::Metrics;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why somebody gets no answer.
#[derive(Clone, Copy)]
pub(super) enum Refusal {
    /// Too many connections.
    Crowded,
    /// A connection could not be taken.
    Accept,
    /// What came is not TLS.
    Encryption,
    /// No token, or a wrong one.
    Token,
    /// A name that is not this machine's own.
    Name,
    /// A request that is none, or is too long, or does not come, or whose answer is not read.
    Request,
}

impl Refusal {
    const ALL: [Refusal; 6] = [
        Refusal::Crowded,
        Refusal::Accept,
        Refusal::Encryption,
        Refusal::Token,
        Refusal::Name,
        Refusal::Request,
    ];

    /// As metrics call it.
    fn name(self) -> &'static str {
        match self {
            Refusal::Crowded => "connections",
            Refusal::Accept => "accept",
            Refusal::Encryption => "tls",
            Refusal::Token => "token",
            Refusal::Name => "host",
            Refusal::Request => "request",
        }
    }
}

/// Refusals of a server; clones are of the same one.
#[derive(Clone)]
pub(super) struct Refusals {
    protocol: Protocol,
    metrics: Metrics,
    told: Arc<[AtomicBool; Refusal::ALL.len()]>,
}

impl Refusals {
    pub(super) fn new(protocol: Protocol, metrics: Metrics) -> Self {
        for refusal in Refusal::ALL {
            metrics.refused(protocol.name(), refusal.name(), 0);
        }
        Refusals { protocol, metrics, told: Arc::default() }
    }

    /// Counts one, and tells it if it is the first of its kind.
    pub(super) fn add(&self, refusal: Refusal, why: impl Display) {
        let (name, protocol) = (refusal.name(), self.protocol.name());
        let metric = self.metrics.refused(protocol, name, 1);
        if self.told.get(refusal as usize).is_some_and(|told| !told.swap(true, Ordering::Relaxed)) {
            tracing::warn!(
                "refused over {protocol}: {why}; further ones are counted in {metric}{{reason=\"{name}\"}}"
            );
        }
    }
}
