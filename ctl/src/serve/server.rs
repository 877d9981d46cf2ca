//! Server thread: listener, connections, and their limits in time and memory.

use super::connections::{ConnectionHandle, Connections, Full, Peer};
use super::fence;
use super::guard::{Guard, Protocol, RequestRefusal};
use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::io::InspectReader;

/// Maximum number of concurrent requests on one HTTP/2 connection.
const MAX_STREAMS: u32 = 16;
/// Time limit for receiving a request, and for a TLS handshake.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a request's headers, in bytes.
pub(super) const MAX_REQUEST_BYTES: usize = 16 << 10;
/// Time limit for a client to read a part of its answer.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of keep-alive messages on idle streams, so that proxies do not close the connection.
pub(super) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Maximum data buffered for a client on one HTTP/2 connection, in bytes.
const MAX_SEND_BUFFER_BYTES: usize = 64 << 10;
/// Time for which the end of a run waits for streams to deliver the last records.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// Socket on which a server accepts connections.
pub(super) enum Listener {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

/// Stream of a connection.
trait Connection: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Connection for T {}

impl Listener {
    /// Prepares a listener in the runtime of this thread.
    pub(super) fn tcp(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        tokio::net::TcpListener::from_std(listener).map(Listener::Tcp)
    }

    /// As [`tcp`](Self::tcp).
    pub(super) fn unix(listener: UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        tokio::net::UnixListener::from_std(listener).map(Listener::Unix)
    }

    async fn accept(&self) -> io::Result<(Peer, Box<dyn Connection>)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                let peer = Peer::new(peer, stream.local_addr()?);
                let stream: Box<dyn Connection> = Box::new(stream);
                Ok((peer, stream))
            }
            Listener::Unix(listener) => {
                let stream: Box<dyn Connection> = Box::new(listener.accept().await?.0);
                Ok((Peer::Local, stream))
            }
        }
    }
}

/// Running server or exporter; it stops when dropped.
pub struct Service {
    /// Ends the thread when dropped.
    stop: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts a thread of this name, which ends when `stop` is dropped.
    pub(crate) fn spawn(
        name: &str,
        stop: watch::Sender<()>,
        run: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Service { stop: Some(stop), thread: Some(thread) })
    }

    /// Starts a thread of this name with a runtime, in which it calls `listen` and serves. The
    /// channel ends it, and streams that have a receiver.
    pub(super) fn begin(
        name: &str,
        listen: impl FnOnce() -> io::Result<Listener>,
        encryption: Option<Arc<ServerConfig>>,
        guard: Guard,
        router: Router,
        (stop, stopped): (watch::Sender<()>, watch::Receiver<()>),
    ) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _entered = runtime.enter();
            listen()?
        };
        let protocol = guard.protocol;
        let tls = encryption.map(|encryption| {
            let mut encryption = (*encryption).clone();
            encryption.alpn_protocols = vec![match protocol {
                Protocol::Http => b"http/1.1".to_vec(),
                Protocol::Grpc => b"h2".to_vec(),
            }];
            TlsAcceptor::from(Arc::new(encryption))
        });
        let serving = Serving { guard, router, tls, connections: Connections::default(), stopped };
        Service::spawn(name, stop, move || {
            fence::enter(protocol.name());
            runtime.block_on(serving.serve(listener));
        })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits until the service is dropped.
pub(super) async fn end(mut stopped: watch::Receiver<()>) {
    while stopped.changed().await.is_ok() {}
}

#[derive(Clone)]
struct Serving {
    guard: Guard,
    router: Router,
    tls: Option<TlsAcceptor>,
    connections: Connections,
    stopped: watch::Receiver<()>,
}

impl Serving {
    async fn serve(self, listener: Listener) {
        // Closes when the last connection has dropped its receiver.
        let (open, end_of_connection) = watch::channel(());
        let mut stopped = pin!(end(self.stopped.clone()));
        loop {
            tokio::select! {
                () = self.take(&listener, &end_of_connection) => {}
                () = &mut stopped => break,
            }
        }
        drop(end_of_connection);
        if self.guard.protocol == Protocol::Grpc {
            // Streams end when their clients have received the last record.
            let _ = tokio::time::timeout(SHUTDOWN_GRACE, open.closed()).await;
        }
    }

    /// Accepts a connection, and serves it in a task of its own.
    async fn take(&self, listener: &Listener, end_of_connection: &watch::Receiver<()>) {
        let guard = &self.guard;
        let (peer, stream) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                guard.refuse(
                    RequestRefusal::Accept,
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
                guard.refuse(
                    RequestRefusal::Crowded,
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

    /// Serves a connection until it ends.
    async fn converse(&self, stream: Box<dyn Connection>, admission: &ConnectionHandle) {
        // Only the write timeout detects a client that does not read.
        let mut stream = Box::pin(TimeoutStream::new(stream));
        stream.as_mut().set_write_timeout_pinned(Some(READ_TIMEOUT));
        let Some(tls) = &self.tls else { return self.answer(stream, admission).await };
        match tokio::time::timeout(REQUEST_TIMEOUT, tls.accept(stream)).await {
            Ok(Ok(stream)) => self.answer(stream, admission).await,
            Ok(Err(error)) => {
                self.guard.refuse(
                    RequestRefusal::Encryption,
                    format_args!("a connection without TLS as it should be: {error}"),
                );
            }
            Err(_) => self.guard.refuse(
                RequestRefusal::Encryption,
                format_args!("a connection that said nothing for {REQUEST_TIMEOUT:?}"),
            ),
        }
    }

    async fn answer(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        admission: &ConnectionHandle,
    ) {
        match self.guard.protocol {
            Protocol::Http => self.answer_http(stream, admission).await,
            Protocol::Grpc => self.answer_grpc(stream, admission).await,
        }
    }

    async fn answer_http(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        admission: &ConnectionHandle,
    ) {
        // Whether a part of a request was received. Browsers open connections in advance and leave
        // them idle, which is not a request timeout.
        let has_begun = Arc::new(AtomicBool::new(false));
        let (begins, answered) = (Arc::clone(&has_begun), Arc::clone(&has_begun));
        let stream =
            InspectReader::new(stream, move |_: &[u8]| begins.store(true, Ordering::Relaxed));
        let service = TowerToHyperService::new(self.router.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            answered.store(false, Ordering::Relaxed);
            request.extensions_mut().insert(admission.clone());
            request.extensions_mut().insert(self.connections.clone());
            service.call(request)
        });
        let mut http = http1::Builder::new();
        let http = http
            .timer(TokioTimer::new())
            .header_read_timeout(REQUEST_TIMEOUT)
            .max_buf_size(MAX_REQUEST_BYTES);
        match http.serve_connection(TokioIo::new(stream), service).await {
            Err(error)
                if error.is_parse() || error.is_timeout() && has_begun.load(Ordering::Relaxed) =>
            {
                self.guard.refuse(RequestRefusal::Request, format_args!("a request: {error}"))
            }
            Err(error) => tracing::debug!("a connection over HTTP ended: {error}"),
            Ok(()) => {}
        }
    }

    async fn answer_grpc(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        admission: &ConnectionHandle,
    ) {
        let mut http = http2::Builder::new(TokioExecutor::new());
        let http = http
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(REQUEST_TIMEOUT);
        let http = http
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_REQUEST_BYTES as u32)
            .max_send_buf_size(MAX_SEND_BUFFER_BYTES);
        let service = TowerToHyperService::new(self.router.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(admission.clone());
            service.call(request)
        });
        let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
        // Authorized clients may leave connections idle; others may not.
        let mut stranger = pin!(async {
            if tokio::time::timeout(REQUEST_TIMEOUT, admission.given()).await.is_ok() {
                std::future::pending::<()>().await;
            }
        });
        let (mut stopped, mut is_ending) = (pin!(end(self.stopped.clone())), false);
        loop {
            tokio::select! {
                outcome = &mut connection => return match outcome {
                    Err(error) if !admission.is_given() => self.guard.refuse(RequestRefusal::Request, format_args!("a request: {error}")),
                    Err(error) => tracing::debug!("a connection over gRPC ended: {error}"),
                    Ok(()) => {}
                },
                () = &mut stranger => {
                    let why = format_args!("a connection without a request that is answered, for {REQUEST_TIMEOUT:?}");
                    return self.guard.refuse(RequestRefusal::Request, why);
                }
                () = &mut stopped, if !is_ending => {
                    is_ending = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}
