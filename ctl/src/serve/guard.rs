//! Authorization of requests: by token, or without one by the `Host` header, which must name the
//! local machine. Refused connections and requests are counted in metrics, and logged once a
//! reason, so that clients cannot fill the log.

use super::access::{Access, Token};
use super::connections::ConnectionHandle;
use crate::output::Metrics;
use axum::extract::Request;
use axum::http::header::{ALLOW, AUTHORIZATION, HOST, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use axum::http::{Method, StatusCode};
use axum::response::{AppendHeaders, IntoResponse, Response};
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tonic::Status;

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
}

/// Reason for a refusal.
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
    /// All reasons in their order, with the values of the metric's label.
    const ALL: [(RequestRefusal, &str); 6] = [
        (RequestRefusal::Crowded, "connections"),
        (RequestRefusal::Accept, "accept"),
        (RequestRefusal::Encryption, "tls"),
        (RequestRefusal::Token, "token"),
        (RequestRefusal::Name, "host"),
        (RequestRefusal::Request, "request"),
    ];
}

/// Authorization rules of one server, and what it refused; clones share the latter. Without metrics
/// refusals are neither counted nor logged, since clients of this machine must not fill its log.
#[derive(Clone)]
pub(super) struct Guard {
    pub(super) protocol: Protocol,
    token: Option<Token>,
    metrics: Option<Metrics>,
    logged: Arc<[AtomicBool; RequestRefusal::ALL.len()]>,
}

/// Reason for rejecting a request.
pub(super) enum DenialReason {
    Method,
    /// More than one `Host` header (RFC 9112, section 3.2).
    Hosts,
    Token,
    Name,
}

impl Guard {
    /// Creates the guard of a server, which counts refusals in these metrics.
    pub(super) fn new(access: &Access, protocol: Protocol, metrics: Option<&Metrics>) -> Self {
        if let Some(metrics) = metrics {
            for (_, name) in RequestRefusal::ALL {
                metrics.refused(protocol.name(), name, 0);
            }
        }
        Guard {
            protocol,
            token: access.token.clone(),
            metrics: metrics.cloned(),
            logged: Arc::default(),
        }
    }

    /// Counts a refusal, and logs the first of each reason.
    pub(super) fn refuse(&self, refusal: RequestRefusal, why: impl Display) {
        let protocol = self.protocol.name();
        let Some(metrics) = &self.metrics else {
            return tracing::debug!("refused over {protocol}: {why}");
        };
        let (_, name) = RequestRefusal::ALL[refusal as usize];
        let metric = metrics.refused(protocol, name, 1);
        if !self.logged[refusal as usize].swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "refused over {protocol}: {why}; further ones are counted in {metric}{{reason=\"{name}\"}}"
            );
        }
    }

    /// Returns why a request is rejected. `None` if it is allowed: its connection is then no longer
    /// one without a request.
    pub(super) fn denial(&self, request: &Request) -> Option<DenialReason> {
        let is_answered = match self.protocol {
            Protocol::Http => [Method::GET, Method::HEAD].contains(request.method()),
            Protocol::Grpc => request.method() == Method::POST,
        };
        if !is_answered {
            return Some(DenialReason::Method);
        }
        if request.headers().get_all(HOST).iter().nth(1).is_some() {
            self.refuse(RequestRefusal::Name, "a request with several Host headers");
            return Some(DenialReason::Hosts);
        }
        let header = |name: HeaderName| {
            request.headers().get(name).map(HeaderValue::as_bytes).unwrap_or_default()
        };
        // HTTP/2 sends the authority in place of a `Host` header.
        let host = request
            .uri()
            .authority()
            .map_or_else(|| header(HOST), |authority| authority.as_str().as_bytes());
        match &self.token {
            Some(token) if !token.allows(header(AUTHORIZATION)) => {
                let why = "a request without the token, or with a wrong one";
                self.refuse(RequestRefusal::Token, why);
                Some(DenialReason::Token)
            }
            // Protects against DNS rebinding: a foreign page whose name resolves to this machine
            // must not read what only local clients may read.
            None if !is_local(host) => {
                let why = "a request for a name that is not this machine's own";
                self.refuse(RequestRefusal::Name, why);
                Some(DenialReason::Name)
            }
            _ => {
                if let Some(connection) = request.extensions().get::<ConnectionHandle>() {
                    connection.give();
                }
                None
            }
        }
    }
}

impl DenialReason {
    fn problem(&self) -> &'static str {
        match self {
            DenialReason::Method => "only GET and HEAD are answered",
            DenialReason::Hosts => "a request has one Host header",
            DenialReason::Token => "this takes the token of --listen-token-file",
            DenialReason::Name => {
                "this is for names of the machine itself: localhost, or its address"
            }
        }
    }

    pub(super) fn over_http(&self) -> Response {
        let ask = "Basic realm=\"flowgauge: the token is the password\", charset=\"UTF-8\"";
        let (status, header) = match self {
            DenialReason::Method => (StatusCode::METHOD_NOT_ALLOWED, Some((ALLOW, "GET, HEAD"))),
            DenialReason::Hosts => (StatusCode::BAD_REQUEST, None),
            DenialReason::Token => (StatusCode::UNAUTHORIZED, Some((WWW_AUTHENTICATE, ask))),
            DenialReason::Name => (StatusCode::MISDIRECTED_REQUEST, None),
        };
        (status, AppendHeaders(header), format!("{}\n", self.problem())).into_response()
    }

    pub(super) fn over_grpc(&self) -> Response {
        match self {
            DenialReason::Method => {
                (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "POST")], "this is gRPC\n")
                    .into_response()
            }
            DenialReason::Hosts => (StatusCode::BAD_REQUEST, self.problem()).into_response(),
            DenialReason::Token => Status::unauthenticated(self.problem()).into_http(),
            DenialReason::Name => Status::permission_denied(self.problem()).into_http(),
        }
    }
}

/// Returns whether a request's host is a loopback address or a local name.
fn is_local(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|it| it.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
