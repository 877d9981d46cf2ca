//! What a run tells over HTTP: metrics, whether it is well, and a page that shows windows as they end.
//!
//! A thread of its own serves, so that no packet waits for a reader, and it may do nothing else. What readers can make it hold is bounded:
//! so many connections, so much of a request, so long for it and for the answer.

mod access;
mod board;
mod event;
mod fence;
mod refusal;
mod report;

pub use access::{Token, encryption};
pub use board::Board;
pub use fence::drop_capabilities;
pub use report::{Fact, Report};

use crate::output::Metrics;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderName, HeaderValue, WWW_AUTHENTICATE,
};
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use refusal::{Refusal, Refusals};
use rustls::ServerConfig;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;

/// Connections at the same time; more are closed at once.
const CONNECTIONS: usize = 64;
/// How long a request may take to come.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much of one is held.
const REQUEST: usize = 16 << 10;
/// How long a reader may take to read something of what it is sent, before it is given up.
const READER: Duration = Duration::from_secs(30);
/// Windows that a page gets when it begins.
const FIRST: usize = 900;
/// How often a page is told that nothing happened, so that whoever is between keeps the connection.
const QUIET: Duration = Duration::from_secs(15);

/// What is served.
#[derive(Clone)]
pub struct Site {
    /// At `/metrics`.
    pub metrics: Metrics,
    /// At `/events`.
    pub board: Board,
    /// What is wrong with the run, one line each; nothing if it is well. At `/health`.
    pub problems: Arc<dyn Fn() -> Vec<String> + Send + Sync>,
    /// Who tells, for the page's title.
    pub host: Arc<str>,
}

/// Who may ask.
#[derive(Clone, Default)]
pub struct Access {
    /// What connections are encrypted with, if they are.
    pub encryption: Option<Arc<ServerConfig>>,
    /// What whoever asks has to know. Without one, only names of the machine itself are answered.
    pub token: Option<Token>,
}

/// A server, until it is dropped.
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Begins to serve.
    ///
    /// # Errors
    /// If the address is another one's, or taken.
    pub fn start(address: SocketAddr, site: Site, access: Access) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let refusals = Refusals::new(site.metrics.clone());
        let tls = access.encryption.map(TlsAcceptor::from);
        let router = router(site, Guard { token: access.token, refusals: refusals.clone() });
        let thread = thread::Builder::new().name("http".to_owned()).spawn(move || {
            fence::enter();
            runtime.block_on(async {
                tokio::select! {
                    () = serve(listener, router, tls, refusals) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Server { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens; with the port that it was given, if any would do.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, router: Router, tls: Option<TlsAcceptor>, refusals: Refusals) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::warn!("nobody is answered over HTTP: {error}"),
    };
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                refusals.add(Refusal::Accept, format_args!("a connection could not be accepted: {error}"));
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            refusals.add(Refusal::Crowded, format_args!("{CONNECTIONS} connections are open, and no more are taken"));
            continue;
        };
        let (router, tls, refusals) = (router.clone(), tls.clone(), refusals.clone());
        tokio::spawn(async move {
            // Of a reader that does not read nothing else would tell.
            let mut stream = Box::pin(TimeoutStream::new(stream));
            stream.as_mut().set_write_timeout_pinned(Some(READER));
            match tls {
                None => answer(stream, router, &refusals).await,
                Some(tls) => match tokio::time::timeout(PATIENCE, tls.accept(stream)).await {
                    Ok(Ok(stream)) => answer(stream, router, &refusals).await,
                    Ok(Err(error)) => {
                        refusals.add(Refusal::Encryption, format_args!("a connection without TLS as it should be: {error}"))
                    }
                    Err(_) => refusals.add(Refusal::Encryption, format_args!("a connection that said nothing for {PATIENCE:?}")),
                },
            }
            drop(permit);
        });
    }
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, router: Router, refusals: &Refusals) {
    let mut http = http1::Builder::new();
    let http = http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(REQUEST);
    match http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await {
        Err(error) if error.is_parse() || error.is_timeout() => refusals.add(Refusal::Request, format_args!("a request: {error}")),
        Err(error) => tracing::debug!("a connection over HTTP ended: {error}"),
        Ok(()) => {}
    }
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

fn router(site: Site, guard: Guard) -> Router {
    let asset = |kind: &'static str, bytes: &'static [u8]| get(move || async move { (told(kind), Bytes::from_static(bytes)) });
    Router::new()
        .route("/", asset(HTML, report::HTML.as_bytes()))
        .route("/page.js", asset(SCRIPT, report::SCRIPT.as_bytes()))
        .route("/page.css", asset(STYLE, report::STYLE.as_bytes()))
        .route("/uplot.js", asset(SCRIPT, report::CHARTS.as_bytes()))
        .route("/uplot.css", asset(STYLE, report::CHARTS_STYLE.as_bytes()))
        .route("/metrics", get(metrics))
        .route("/health", get(health))
        .route("/about", get(about))
        .route("/events", get(events))
        .layer(from_fn_with_state(guard, guarded))
        .with_state(site)
}

fn told(kind: &'static str) -> [(HeaderName, HeaderValue); 1] {
    [(CONTENT_TYPE, HeaderValue::from_static(kind))]
}

#[derive(Clone)]
struct Guard {
    token: Option<Token>,
    refusals: Refusals,
}

impl Guard {
    /// What to say to a request that is not answered.
    fn refusal(&self, request: &Request) -> Option<Response> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let allowed = [(ALLOW, "GET, HEAD")];
            return Some((StatusCode::METHOD_NOT_ALLOWED, allowed, "only GET and HEAD are answered\n").into_response());
        }
        let header = |name: HeaderName| request.headers().get(name).map(HeaderValue::as_bytes).unwrap_or_default();
        match &self.token {
            Some(token) if !token.allows(header(AUTHORIZATION)) => {
                self.refusals.add(Refusal::Token, "a request without the token, or with a wrong one");
                let ask = [(WWW_AUTHENTICATE, "Basic realm=\"flowgauge: the token is the password\", charset=\"UTF-8\"")];
                Some((StatusCode::UNAUTHORIZED, ask, "this takes the token of --listen-token-file\n").into_response())
            }
            // A page of somebody else's whose name leads here must not read what only this machine may.
            None if !is_local(header(HOST)) => {
                self.refusals.add(Refusal::Name, "a request for a name that is not this machine's own");
                let problem = "this is for names of the machine itself: localhost, or its address\n";
                Some((StatusCode::MISDIRECTED_REQUEST, problem).into_response())
            }
            _ => None,
        }
    }
}

/// What holds for every request and answer.
async fn guarded(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    if let Some(refusal) = guard.refusal(&request) {
        return refusal;
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    headers.insert(HeaderName::from_static("referrer-policy"), HeaderValue::from_static("no-referrer"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache"));
    response
}

/// Whether a request's host is this machine by address or by the name of itself.
fn is_local(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|it| it.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

async fn metrics(State(site): State<Site>) -> Response {
    match site.metrics.text() {
        Ok(text) => (told("text/plain; version=0.0.4; charset=utf-8"), text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn health(State(site): State<Site>) -> Response {
    let problems = (site.problems)();
    if problems.is_empty() {
        return "well\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, problems.join("\n") + "\n").into_response()
}

async fn about(State(site): State<Site>) -> Response {
    let about =
        serde_json::json!({ "host": site.host.as_ref(), "version": env!("CARGO_PKG_VERSION"), "problems": (site.problems)() });
    (told("application/json"), about.to_string()).into_response()
}

/// Windows as they end, and those before that the page does not know yet.
async fn events(State(site): State<Site>, request: Request) -> Response {
    let last = request.headers().get("last-event-id").and_then(|id| site.board.named(id.to_str().ok()?));
    let (pieces, received) = mpsc::channel::<Result<Bytes, Infallible>>(4);
    tokio::spawn(async move {
        let mut newest = site.board.newest();
        let (mut last, mut first) = (last, true);
        // A page that has windows of another run lets go of them.
        if !sent(&pieces, format!("event: run\ndata: \"{}\"\n\n", site.board.run())).await {
            return;
        }
        loop {
            newest.mark_unchanged();
            // Piece by piece, so that a reader that does not read holds little.
            for (id, event) in site.board.after(last, FIRST) {
                last = Some(id);
                if !sent(&pieces, format!("id: {}\ndata: {event}\n\n", site.board.name(id))).await {
                    return;
                }
            }
            if std::mem::take(&mut first) && !sent(&pieces, "event: caught-up\ndata: {}\n\n".to_owned()).await {
                return;
            }
            match tokio::time::timeout(QUIET, newest.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return,
                Err(_) if !sent(&pieces, ": nothing new\n\n".to_owned()).await => return,
                Err(_) => {}
            }
        }
    });
    let body = Body::from_stream(ReceiverStream::new(received));
    ([(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")], body).into_response()
}

/// Whether a reader took a piece in time.
async fn sent(pieces: &mpsc::Sender<Result<Bytes, Infallible>>, piece: String) -> bool {
    matches!(tokio::time::timeout(READER, pieces.send(Ok(piece.into()))).await, Ok(Ok(())))
}
