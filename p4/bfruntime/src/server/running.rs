//! Server on a thread of its own.

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

/// Server that runs until this is dropped. All its connections are then closed, as when a switch's
/// process ends.
pub struct RunningServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Reason why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The target's schema cannot be read.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// Listening on the address failed.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Address.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error("cannot serve TLS: {0}")]
    Tls(#[from] tonic::transport::Error),
    /// Starting a thread or runtime failed.
    #[error("cannot start the server: {0}")]
    Runtime(#[source] io::Error),
}

/// Encryption: the server's certificate, and the clients it accepts.
#[derive(Clone)]
pub struct Tls {
    /// Certificate of the server, PEM.
    pub certificate: String,
    /// Private key, PEM.
    pub key: String,
    /// Certificate of the authority that must have signed clients' certificates, PEM. `None`
    /// accepts clients without one.
    pub client_authority: Option<String>,
}

impl RunningServer {
    /// Starts a server for a target. Port 0 lets the system choose one.
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

    /// Starts a server for any implementation of the protocol.
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
                // Send small answers immediately, not after earlier ones are acknowledged.
                let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                let serve = server.add_service(service).serve_with_incoming(incoming);
                tokio::select! {
                    ended = serve => if let Err(error) = ended { tracing::error!("the server on {address} ended: {error}") },
                    _ = stopped => {}
                }
            });
            // Dropping the runtime closes all connections.
        };
        let thread = thread::Builder::new()
            .name("bfruntime".to_owned())
            .spawn(run)
            .map_err(StartError::Runtime)?;
        Ok(RunningServer { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
