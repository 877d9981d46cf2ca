//! Authorization of requests: by token, or without one by the `Host` header, which must name the
//! local machine.

use super::access::{Access, Token};
use super::protocol::Protocol;
use super::refusal::{Refusals, RequestRefusal};
use crate::output::Metrics;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{ALLOW, AUTHORIZATION, HOST, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
use tonic::Status;

/// Authorization rules of one server.
#[derive(Clone)]
pub(super) struct Guard {
    pub(super) protocol: Protocol,
    pub(super) token: Option<Token>,
    pub(super) refusals: Refusals,
}

/// Reason for rejecting a request.
pub(super) enum DenialReason {
    Method,
    /// More than one `Host` header (RFC 9112, section 3.2).
    Hosts,
    Token,
    Name,
}

impl Access {
    /// Returns the guard of a server, which counts rejections in these metrics.
    pub(super) fn guard(&self, protocol: Protocol, metrics: Option<&Metrics>) -> Guard {
        Guard {
            protocol,
            token: self.token.clone(),
            refusals: Refusals::new(protocol, metrics.cloned()),
        }
    }
}

impl Guard {
    /// Returns why a request is rejected; `None` if it is allowed.
    pub(super) fn refusal(&self, request: &Request) -> Option<DenialReason> {
        if !self.protocol.methods().contains(request.method()) {
            return Some(DenialReason::Method);
        }
        if request.headers().get_all(HOST).iter().nth(1).is_some() {
            self.refusals.add(RequestRefusal::Name, "a request with several Host headers");
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
                self.refusals
                    .add(RequestRefusal::Token, "a request without the token, or with a wrong one");
                Some(DenialReason::Token)
            }
            // Protects against DNS rebinding: a foreign page whose name resolves to this machine
            // must not read what only local clients may read.
            None if !is_local(host) => {
                self.refusals.add(
                    RequestRefusal::Name,
                    "a request for a name that is not this machine's own",
                );
                Some(DenialReason::Name)
            }
            _ => None,
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
        let problem = format!("{}\n", self.problem());
        match self {
            DenialReason::Method => {
                (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET, HEAD")], problem).into_response()
            }
            DenialReason::Hosts => (StatusCode::BAD_REQUEST, problem).into_response(),
            DenialReason::Token => {
                let ask = [(
                    WWW_AUTHENTICATE,
                    "Basic realm=\"flowgauge: the token is the password\", charset=\"UTF-8\"",
                )];
                (StatusCode::UNAUTHORIZED, ask, problem).into_response()
            }
            DenialReason::Name => (StatusCode::MISDIRECTED_REQUEST, problem).into_response(),
        }
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
