//! Servers of a run: status, metrics and the live page over HTTP, records as streams over gRPC. The
//! status is also served on a Unix socket, without an option.
//!
//! Records arrive through two sinks: `Board` stores recent windows for the live page, `Feed` recent
//! records for gRPC streams, both on `RecentItems` (`recent.rs`), which drops old items rather than
//! wait for slow clients. Each server runs in a sandboxed thread of its own (`server.rs`,
//! `fence.rs`), so that no packet waits for a client.
//!
//! A connection passes `connections.rs` (limits), `access.rs` (TLS and token), and `guard.rs`
//! (authorization of each request), which also counts what is refused. The memory and time that a
//! client can use are bounded. The requests are handled here and in `grpc.rs`; `report.rs` makes
//! the same page for a capture.

mod access;
mod connections;
mod fence;
mod grpc;
mod guard;
mod page;
mod recent;
#[cfg(feature = "report")]
mod report;
mod server;

pub use access::{Access, Token, encryption};
pub use fence::drop_capabilities;
pub use grpc::proto;
pub use page::document;
pub use recent::{Board, Feed};
#[cfg(feature = "report")]
pub use report::{Fact, ReportPage};
pub use server::Service;

use crate::output::Metrics;
use crate::status::{StatusReport, StatusSource};
use crate::text::{escaped, escaped_json, escaped_strings};
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{
    ACCEPT, CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName,
    HeaderValue,
};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use connections::{ConnectionHandle, Connections, Full};
use guard::{Guard, Protocol, RequestRefusal};
use server::{KEEP_ALIVE_INTERVAL, Listener, READ_TIMEOUT};
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

/// Maximum number of windows that a newly opened page receives.
const MAX_FIRST_WINDOWS: usize = 900;

/// Content that the servers of a run answer with.
#[derive(Clone)]
pub struct ServedContent {
    /// Metrics, served at `/metrics`; servers count in them what they refuse.
    pub metrics: Metrics,
    /// Recent windows, served at `/events`.
    pub board: Board,
    /// Recent records, served over gRPC.
    pub feed: Feed,
    /// Status of the run, served at `/status` and over gRPC; `/health`, `/ready` and `/live` answer
    /// from it.
    pub status: StatusSource,
    /// Returns the configuration of each source, served over gRPC.
    pub configuration: Arc<dyn Fn() -> Vec<proto::Source> + Send + Sync>,
    /// Name of the machine, also for the page's title.
    pub host: Arc<str>,
}

impl Service {
    /// Starts to serve a site over HTTP.
    ///
    /// # Errors
    /// If the thread or its runtime cannot be started.
    pub fn start(listener: TcpListener, site: ServedContent, access: Access) -> io::Result<Self> {
        let guard = Guard::new(&access, Protocol::Http, Some(&site.metrics));
        let router = status_router(Arc::clone(&site.status))
            .merge(page_router(site, guard.clone()))
            .layer(from_fn_with_state(guard.clone(), guarded));
        let listen = || Listener::tcp(listener);
        Service::begin("http", listen, access.encryption, guard, router, watch::channel(()))
    }

    /// Starts to serve the status of a run over HTTP on a Unix socket, whose mode decides who may
    /// ask.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_local(listener: UnixListener, status: StatusSource) -> io::Result<Self> {
        let guard = Guard::new(&Access::default(), Protocol::Http, None);
        let router = status_router(status).layer(from_fn_with_state(guard.clone(), guarded));
        let listen = || Listener::unix(listener);
        Service::begin("status", listen, None, guard, router, watch::channel(()))
    }
}

const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
/// Content type of the text format of metrics, the default.
const METRICS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Content type of metrics as length-delimited protobuf messages.
const METRICS_PROTOBUF: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// Returns the routes that answer from the status of a run.
fn status_router(status: StatusSource) -> Router {
    Router::new()
        .route("/status", get(full_status))
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/live", get(live))
        .with_state(status)
}

/// Returns the other routes: the page, what it reads, and metrics.
fn page_router(site: ServedContent, guard: Guard) -> Router {
    let asset = |kind: &'static str, bytes: &'static [u8]| {
        get(move || async move { (content_type(kind), Bytes::from_static(bytes)) })
    };
    Router::new()
        .route("/", asset(HTML, page::HTML.as_bytes()))
        .route("/page.js", asset(SCRIPT, page::SCRIPT.as_bytes()))
        .route("/page.css", asset(STYLE, page::STYLE.as_bytes()))
        .route("/uplot.js", asset(SCRIPT, page::CHARTS.as_bytes()))
        .route("/uplot.css", asset(STYLE, page::CHARTS_STYLE.as_bytes()))
        .route("/metrics", get(metrics))
        .route("/about", get(about))
        .route("/events", get(events).layer(Extension(guard)))
        .with_state(site)
}

fn content_type(kind: &'static str) -> [(HeaderName, HeaderValue); 1] {
    [(CONTENT_TYPE, HeaderValue::from_static(kind))]
}

/// Authorizes a request, and adds the common headers to its answer.
async fn guarded(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let mut response = match guard.denial(&request) {
        Some(denial) => denial.over_http(),
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    let policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(
        HeaderName::from_static("x-content-type-options"),
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(
        HeaderName::from_static("referrer-policy"),
        HeaderValue::from_static("no-referrer"),
    );
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache"));
    response
}

async fn metrics(State(site): State<ServedContent>, headers: HeaderMap) -> Response {
    if wants_protobuf(&headers) {
        return (content_type(METRICS_PROTOBUF), site.metrics.protobuf()).into_response();
    }
    (content_type(METRICS_TEXT), site.metrics.text()).into_response()
}

/// Returns whether a request accepts [`METRICS_PROTOBUF`] by name and does not prefer text (RFC
/// 9110, section 12.5.1).
fn wants_protobuf(headers: &HeaderMap) -> bool {
    let texts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let texts = texts.collect::<Vec<_>>().join(",").to_ascii_lowercase();
    let wanted: Vec<MediaRange<'_>> = texts.split(',').filter_map(MediaRange::parse).collect();
    let named = |name: &str| wanted.iter().find(|range| range.name == name);
    // The most specific range that matches text decides its weight.
    let text = ["text/plain", "text/*", "*/*"].into_iter().find_map(named);
    let text = text.map_or(0.0, |range| range.weight);
    let protobuf = wanted.iter().find(|range| range.is_protobuf());
    protobuf.is_some_and(|range| range.weight > 0.0 && range.weight >= text)
}

/// Media range of an `Accept` header, in lower case.
struct MediaRange<'a> {
    name: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    /// Preference, from 0 (not acceptable) to 1.
    weight: f32,
}

impl<'a> MediaRange<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let name = parts.next().filter(|name| !name.is_empty())?;
        let parameter = |part: &'a str| {
            part.split_once('=').map(|(name, value)| (name.trim(), value.trim().trim_matches('"')))
        };
        let (weights, parameters): (Vec<_>, Vec<_>) =
            parts.filter_map(parameter).partition(|(name, _)| *name == "q");
        let weight = weights.first().map_or(Ok(1.0), |(_, weight)| weight.parse()).ok()?;
        Some(MediaRange { name, parameters, weight })
    }

    fn is_protobuf(&self) -> bool {
        self.name == "application/vnd.google.protobuf"
            && self.parameters.contains(&("proto", "io.prometheus.client.metricfamily"))
            && self.parameters.contains(&("encoding", "delimited"))
    }
}

async fn full_status(State(status): State<StatusSource>) -> Response {
    match serde_json::to_string(&status()) {
        Ok(json) => (content_type(JSON), escaped_json(&json) + "\n").into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn health(State(status): State<StatusSource>) -> Response {
    let StatusReport { problems, failed, .. } = status();
    if problems.is_empty() && !failed.is_empty() {
        // A restart of the run would not help the other sources, which are counted.
        return format!("degraded\n{}", lines(&failed)).into_response();
    }
    unless([problems, failed].concat(), "well\n")
}

async fn ready(State(status): State<StatusSource>) -> Response {
    unless(status().not_ready_reasons(), "ready\n")
}

async fn live(State(status): State<StatusSource>) -> Response {
    unless(status().stalled, "alive\n")
}

/// Answers with the problems, or with `fine` if the list is empty.
fn unless(problems: Vec<String>, fine: &'static str) -> Response {
    if problems.is_empty() {
        return fine.into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, lines(&problems)).into_response()
}

fn lines(problems: &[String]) -> String {
    problems.iter().map(|problem| escaped(problem) + "\n").collect()
}

async fn about(State(site): State<ServedContent>) -> Response {
    let StatusReport { problems, failed, .. } = (site.status)();
    let problems = [problems, failed].concat();
    let about = serde_json::json!({ "host": site.host.as_ref(), "version": env!("CARGO_PKG_VERSION"), "problems": problems });
    let about = about.to_string();
    (content_type(JSON), escaped_strings(&about).into_owned()).into_response()
}

/// Streams windows as they end, after those that the page does not have yet. Refuses if too many
/// other streams are open.
async fn events(
    State(site): State<ServedContent>,
    Extension(guard): Extension<Guard>,
    request: Request,
) -> Response {
    let extensions = request.extensions();
    if let (Some(connections), Some(connection)) =
        (extensions.get::<Connections>(), extensions.get::<ConnectionHandle>())
        && let Err(Full { open, whose, .. }) = connections.stream(connection)
    {
        let problem = format!("{open} readers of /events are connected {whose}; no more are taken");
        guard.refuse(RequestRefusal::Crowded, &problem);
        // Its place is free at once.
        let close = [(CONNECTION, "close")];
        return (StatusCode::SERVICE_UNAVAILABLE, close, problem + "\n").into_response();
    }
    let last =
        request.headers().get("last-event-id").and_then(|id| site.board.named(id.to_str().ok()?));
    let (pieces, received) = mpsc::channel(4);
    tokio::spawn(stream_windows(site.board, last, pieces));
    let body = Body::from_stream(ReceiverStream::new(received));
    ([(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")], body).into_response()
}

/// Part of a stream's body.
type Piece = Result<Bytes, Infallible>;

/// Sends the windows after the one with number `last` until the client or the run ends.
async fn stream_windows(
    board: Board,
    mut last: Option<u64>,
    pieces: mpsc::Sender<Piece>,
) -> Option<()> {
    let (mut newest, mut first) = (board.kept.newest(), true);
    // A page discards its windows if they are of another run.
    send(&pieces, format!("event: run\ndata: \"{}\"\n\n", board.run())).await?;
    loop {
        newest.mark_unchanged();
        // Sent one by one, so that a slow client makes the server buffer little.
        for (id, event) in board.after(last, MAX_FIRST_WINDOWS) {
            last = Some(id);
            send(&pieces, format!("id: {}\ndata: {event}\n\n", board.name(id))).await?;
        }
        if std::mem::take(&mut first) {
            send(&pieces, "event: caught-up\ndata: {}\n\n".to_owned()).await?;
        }
        match tokio::time::timeout(KEEP_ALIVE_INTERVAL, newest.changed()).await {
            Ok(changed) => changed.ok()?,
            Err(_) => send(&pieces, ": nothing new\n\n".to_owned()).await?,
        }
    }
}

/// Sends a piece; `None` if the client does not take it in time.
async fn send(pieces: &mpsc::Sender<Piece>, piece: String) -> Option<()> {
    tokio::time::timeout(READ_TIMEOUT, pieces.send(Ok(piece.into()))).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(accept: &[&'static str]) -> bool {
        wants_protobuf(
            &accept.iter().map(|value| (ACCEPT, HeaderValue::from_static(value))).collect(),
        )
    }

    #[test]
    fn protobuf_is_for_clients_that_ask_for_it() {
        let asked: [&[&str]; 6] = [
            &[METRICS_PROTOBUF],
            // Prometheus 2.42 and 3.
            &[
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            ],
            &[
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            ],
            &[
                "text/html",
                "Application/VND.google.protobuf ; Encoding = \"delimited\" ; proto=\"io.prometheus.client.MetricFamily\"",
            ],
            &[
                "*/*, application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
            ],
            &[
                "text/*;q=0.9,*/*,application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.9",
            ],
        ];
        for accept in asked {
            assert!(wanted(accept), "{accept:?}");
        }
    }

    #[test]
    fn other_clients_get_text() {
        let not_asked: [&[&str]; 9] = [
            &[],
            &["*/*"],
            &["", ";;;,=,q"],
            // Prometheus without native histograms; browsers.
            &[
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            ],
            &["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"],
            // Other messages and other encodings.
            &["application/vnd.google.protobuf"],
            &[
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text",
            ],
            &[
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0",
            ],
            &[
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.5,text/plain",
            ],
        ];
        for accept in not_asked {
            assert!(!wanted(accept), "{accept:?}");
        }
    }
}
