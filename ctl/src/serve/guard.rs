//! Who is answered: whoever knows the token, or without one whoever asks for this machine by its
//! own name.

use super::access::{Access, Token};
use super::protocol::Protocol;
use super::refusal::{Refusal, Refusals};
use crate::output::Metrics;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{ALLOW, AUTHORIZATION, HOST, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
#[cfg(feature = "grpc")]
use tonic::Status;

/// Decides who is answered.
#[derive(Clone)]
pub(super) struct Guard {
    pub(super) protocol: Protocol,
    pub(super) token: Option<Token>,
    pub(super) refusals: Refusals,
}

/// Why a request is not answered.
pub(super) enum Refused {
    Method,
    Token,
    Name,
}

impl Access {
    /// Returns the guard of a server.
    pub(super) fn guard(&self, protocol: Protocol, metrics: &Metrics) -> Guard {
        Guard {
            protocol,
            token: self.token.clone(),
            refusals: Refusals::new(protocol, metrics.clone()),
        }
    }
}

impl Guard {
    /// Why this request is not answered, if it is not.
    pub(super) fn refusal(&self, request: &Request) -> Option<Refused> {
        if !self.protocol.methods().contains(request.method()) {
            return Some(Refused::Method);
        }
        let header = |name: HeaderName| {
            request.headers().get(name).map(HeaderValue::as_bytes).unwrap_or_default()
        };
        // HTTP 2 has no header for it.
        let host = request
            .uri()
            .authority()
            .map_or_else(|| header(HOST), |authority| authority.as_str().as_bytes());
        match &self.token {
            Some(token) if !token.allows(header(AUTHORIZATION)) => {
                self.refusals
                    .add(Refusal::Token, "a request without the token, or with a wrong one");
                Some(Refused::Token)
            }
            // A page of somebody else's whose name leads here must not read what only this machine
            // may.
            None if !is_local(host) => {
                self.refusals
                    .add(Refusal::Name, "a request for a name that is not this machine's own");
                Some(Refused::Name)
            }
            _ => None,
        }
    }
}

impl Refused {
    fn problem(&self) -> &'static str {
        match self {
            Refused::Method => "only GET and HEAD are answered",
            Refused::Token => "this takes the token of --listen-token-file",
            Refused::Name => "this is for names of the machine itself: localhost, or its address",
        }
    }

    pub(super) fn over_http(&self) -> Response {
        let problem = format!("{}\n", self.problem());
        match self {
            Refused::Method => {
                (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET, HEAD")], problem).into_response()
            }
            Refused::Token => {
                let ask = [(
                    WWW_AUTHENTICATE,
                    "Basic realm=\"flowgauge: the token is the password\", charset=\"UTF-8\"",
                )];
                (StatusCode::UNAUTHORIZED, ask, problem).into_response()
            }
            Refused::Name => (StatusCode::MISDIRECTED_REQUEST, problem).into_response(),
        }
    }

    #[cfg(feature = "grpc")]
    pub(super) fn over_grpc(&self) -> Response {
        match self {
            Refused::Method => {
                (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "POST")], "this is gRPC\n")
                    .into_response()
            }
            Refused::Token => Status::unauthenticated(self.problem()).into_http(),
            Refused::Name => Status::permission_denied(self.problem()).into_http(),
        }
    }
}

/// Whether a request's host is this machine by address or by the name of itself.
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
