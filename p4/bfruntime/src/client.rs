//! Connection of a client.

use hyper_util::rt::TokioIo;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::net::TcpStream;
use tonic::codegen::Service;
use tonic::transport::{Channel, Endpoint, Error, Uri};

/// Future of a channel. Boxed, so that the HTTP/2 code is compiled in this crate and not in each
/// that uses it.
pub type Connecting = Pin<Box<dyn Future<Output = Result<Channel, Error>> + Send>>;

/// Connects a channel over this TCP connection only: if it breaks, every later call fails.
#[must_use]
pub fn over(endpoint: Endpoint, stream: TcpStream) -> Connecting {
    Box::pin(async move { endpoint.connect_with_connector(SingleConnection(Some(stream))).await })
}

/// Connector that returns one connection once; tonic would silently reconnect.
struct SingleConnection(Option<TcpStream>);

impl Service<Uri> for SingleConnection {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Ready<Result<Self::Response, io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        ready(
            self.0.take().map(TokioIo::new).ok_or_else(|| {
                io::Error::new(io::ErrorKind::NotConnected, "the connection was lost")
            }),
        )
    }
}
