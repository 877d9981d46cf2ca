//! A server on a thread of its own.

use super::{Server, Target};
use crate::proto::bf_runtime_server::{BfRuntime, BfRuntimeServer};
use crate::schema::SchemaError;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use tokio::sync::oneshot;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

/// A server that runs until this is dropped; then all its connections are cut, as when a switch's
/// process ends.
pub struct Running {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The target's schema cannot be read.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error("cannot serve TLS: {0}")]
    Tls(#[from] tonic::transport::Error),
    /// There is no thread or runtime for it.
    #[error("cannot start the server: {0}")]
    Runtime(#[source] io::Error),
}

/// Encrypted connections: what proves who the server is, and whom it lets in.
#[derive(Clone)]
pub struct Tls {
    /// The server's certificate, PEM.
    pub certificate: String,
    /// Its key, PEM.
    pub key: String,
    /// Certificate of the authority that clients' certificates must come from, PEM; without it
    /// clients need none.
    pub client_authority: Option<String>,
}

impl Running {
    /// Serves a target. Port 0 lets the system choose one.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        address: SocketAddr,
        tls: Option<Tls>,
        target: Arc<dyn Target>,
    ) -> Result<Self, StartError> {
        Self::start_service(address, tls, Server::new(target)?.service())
    }

    /// Serves anything that speaks the protocol.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start_service<S: BfRuntime>(
        address: SocketAddr,
        tls: Option<Tls>,
        service: BfRuntimeServer<S>,
    ) -> Result<Self, StartError> {
        let listen = |source| StartError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let mut server = tonic::transport::Server::builder();
        if let Some(tls) = tls {
            let config =
                ServerTlsConfig::new().identity(Identity::from_pem(tls.certificate, tls.key));
            let authority = tls.client_authority.map(Certificate::from_pem);
            server = server
                .tls_config(authority.into_iter().fold(config, ServerTlsConfig::client_ca_root))?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(StartError::Runtime)?;
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            runtime.block_on(async {
                let listener = match tokio::net::TcpListener::from_std(listener) {
                    Ok(listener) => listener,
                    Err(error) => return tracing::error!("cannot listen on {address}: {error}"),
                };
                // Small answers at once, and not when the ones before are acknowledged.
                let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                let serve = server.add_service(service).serve_with_incoming(incoming);
                tokio::select! {
                    ended = serve => if let Err(error) = ended { tracing::error!("the server on {address} ended: {error}") },
                    _ = stopped => {}
                }
            });
            // With the runtime go all connections.
        };
        let thread = thread::Builder::new()
            .name("bfruntime".to_owned())
            .spawn(run)
            .map_err(StartError::Runtime)?;
        Ok(Running { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the server ends by itself.
    pub fn wait(mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
