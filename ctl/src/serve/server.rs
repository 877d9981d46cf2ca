//! A listener on a thread of its own, and what its connections may take.

use super::access::Access;
use super::connections::{Admission, Connections, Full, Peer};
use super::fence;
use super::guard::Guard;
use super::protocol::Protocol;
use super::refusal::{Refusal, Refusals};
use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::io::InspectReader;

/// Requests at the same time on one of them (HTTP 2).
const STREAMS: u32 = 16;
/// How long a request may take to come.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// How much of one is held.
pub(super) const REQUEST: usize = 16 << 10;
/// How long a reader may take to read something of what it is sent, before it is given up.
pub(super) const READER: Duration = Duration::from_secs(30);
/// How often a reader is told that nothing happened, so that whoever is between keeps the
/// connection.
pub(super) const QUIET: Duration = Duration::from_secs(15);
/// How much waits on one connection for a reader (HTTP 2).
const WAITING: usize = 64 << 10;
/// How long the end of a run waits for readers of streams to take the last of it.
const LAST: Duration = Duration::from_secs(2);

/// A server, until it is dropped.
pub struct Server {
    address: SocketAddr,
    /// Dropped, it ends the thread.
    stop: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(super) fn begin(
        address: SocketAddr,
        access: Access,
        guard: Guard,
        router: Router,
    ) -> io::Result<Self> {
        let (stop, stopped) = watch::channel(());
        Server::listen(address, access, guard, router, stop, stopped)
    }

    /// The same; `stopped` tells streams as well that they end.
    pub(super) fn listen(
        address: SocketAddr,
        access: Access,
        guard: Guard,
        router: Router,
        stop: watch::Sender<()>,
        stopped: watch::Receiver<()>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let protocol = guard.protocol;
        let tls = access.encryption.map(|encryption| {
            let mut encryption = (*encryption).clone();
            encryption.alpn_protocols = vec![protocol.inside()];
            TlsAcceptor::from(Arc::new(encryption))
        });
        let serving = Serving {
            protocol,
            router,
            tls,
            refusals: guard.refusals,
            connections: Connections::default(),
            stopped,
        };
        let thread =
            thread::Builder::new().name(protocol.name().to_lowercase()).spawn(move || {
                fence::enter(protocol.name());
                runtime.block_on(serving.serve(listener));
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

/// Until the server is dropped.
pub(super) async fn end(mut stopped: watch::Receiver<()>) {
    while stopped.changed().await.is_ok() {}
}

#[derive(Clone)]
struct Serving {
    protocol: Protocol,
    router: Router,
    tls: Option<TlsAcceptor>,
    refusals: Refusals,
    connections: Connections,
    stopped: watch::Receiver<()>,
}

impl Serving {
    async fn serve(self, listener: TcpListener) {
        let protocol = self.protocol;
        let listener = match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => {
                return tracing::warn!("nobody is answered over {}: {error}", protocol.name());
            }
        };
        // Closed once no connection has the other end any more.
        let (open, end_of_connection) = watch::channel(());
        let mut stopped = pin!(end(self.stopped.clone()));
        loop {
            tokio::select! {
                () = self.take(&listener, &end_of_connection) => {}
                () = &mut stopped => break,
            }
        }
        drop(end_of_connection);
        if protocol == Protocol::Grpc {
            // Streams end when their readers have the last record.
            let _ = tokio::time::timeout(LAST, open.closed()).await;
        }
    }

    /// Takes a connection, and answers it beside others.
    async fn take(
        &self,
        listener: &tokio::net::TcpListener,
        end_of_connection: &watch::Receiver<()>,
    ) {
        let refusals = &self.refusals;
        let accepted = listener
            .accept()
            .await
            .and_then(|(stream, peer)| Ok((Peer::new(peer, stream.local_addr()?), stream)));
        let (peer, stream) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                refusals.add(
                    Refusal::Accept,
                    format_args!("a connection could not be accepted: {error}"),
                );
                return tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let place = match self.connections.enter(peer) {
            Ok(place) => place,
            Err(Full { place, open, whose }) => {
                let what = if place.is_some() {
                    "the oldest without a request is closed for a new one"
                } else {
                    "no more are taken"
                };
                refusals.add(
                    Refusal::Crowded,
                    format_args!("{open} connections are open {whose}; {what}"),
                );
                let Some(place) = place else { return };
                place
            }
        };
        let (serving, end_of_connection) = (self.clone(), end_of_connection.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = place.admission.evicted() => {}
                () = serving.converse(stream, &place.admission) => {}
            }
            drop(end_of_connection);
        });
    }

    /// Answers a connection to its end.
    async fn converse(&self, stream: TcpStream, admission: &Admission) {
        // Of a reader that does not read nothing else would tell.
        let mut stream = Box::pin(TimeoutStream::new(stream));
        stream.as_mut().set_write_timeout_pinned(Some(READER));
        let Some(tls) = &self.tls else { return self.answer(stream, admission).await };
        match tokio::time::timeout(PATIENCE, tls.accept(stream)).await {
            Ok(Ok(stream)) => self.answer(stream, admission).await,
            Ok(Err(error)) => {
                self.refusals.add(
                    Refusal::Encryption,
                    format_args!("a connection without TLS as it should be: {error}"),
                );
            }
            Err(_) => self.refusals.add(
                Refusal::Encryption,
                format_args!("a connection that said nothing for {PATIENCE:?}"),
            ),
        }
    }

    async fn answer(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        admission: &Admission,
    ) {
        match self.protocol {
            Protocol::Http => self.answer_http(stream, admission).await,
            Protocol::Grpc => self.answer_grpc(stream, admission).await,
        }
    }

    async fn answer_http(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        admission: &Admission,
    ) {
        // Whether a part of a request has come. Browsers open connections in advance and keep them:
        // that is no request that does not come.
        let has_begun = Arc::new(AtomicBool::new(false));
        let (begins, answered) = (Arc::clone(&has_begun), Arc::clone(&has_begun));
        let stream =
            InspectReader::new(stream, move |_: &[u8]| begins.store(true, Ordering::Relaxed));
        let service = TowerToHyperService::new(self.router.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            answered.store(false, Ordering::Relaxed);
            request.extensions_mut().insert(admission.clone());
            service.call(request)
        });
        let mut http = http1::Builder::new();
        let http =
            http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(REQUEST);
        match http.serve_connection(TokioIo::new(stream), service).await {
            Err(error)
                if error.is_parse() || error.is_timeout() && has_begun.load(Ordering::Relaxed) =>
            {
                self.refusals.add(Refusal::Request, format_args!("a request: {error}"))
            }
            Err(error) => tracing::debug!("a connection over HTTP ended: {error}"),
            Ok(()) => {}
        }
    }

    async fn answer_grpc(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        admission: &Admission,
    ) {
        let mut http = http2::Builder::new(TokioExecutor::new());
        let http =
            http.timer(TokioTimer::new()).keep_alive_interval(QUIET).keep_alive_timeout(PATIENCE);
        let http = http
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(REQUEST as u32)
            .max_send_buf_size(WAITING);
        let service = TowerToHyperService::new(self.router.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(admission.clone());
            service.call(request)
        });
        let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
        // Clients keep connections that are idle; strangers do not.
        let mut stranger = pin!(async {
            if tokio::time::timeout(PATIENCE, admission.given()).await.is_ok() {
                std::future::pending::<()>().await;
            }
        });
        let (mut stopped, mut is_ending) = (pin!(end(self.stopped.clone())), false);
        loop {
            tokio::select! {
                outcome = &mut connection => return match outcome {
                    Err(error) if !admission.is_given() => self.refusals.add(Refusal::Request, format_args!("a request: {error}")),
                    Err(error) => tracing::debug!("a connection over gRPC ended: {error}"),
                    Ok(()) => {}
                },
                () = &mut stranger => {
                    let why = format_args!("a connection without a request that is answered, for {PATIENCE:?}");
                    return self.refusals.add(Refusal::Request, why);
                }
                () = &mut stopped, if !is_ending => {
                    is_ending = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}
