//! Faults between a switch and its client: a service that damages answers, and a proxy that cuts
//! connections.

use flowgauge_bfruntime::proto;
use flowgauge_bfruntime::proto::bf_runtime_server::BfRuntime;
use flowgauge_bfruntime::server::Server;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

pub type ReadTamper = Box<dyn FnMut(&proto::ReadRequest, proto::ReadResponse) -> Reads + Send>;
pub type WriteTamper = Box<dyn FnMut(&proto::WriteRequest) -> Writes + Send>;

/// Result of a read.
pub enum Reads {
    /// The messages, followed by an error or the end.
    Answer(Vec<proto::ReadResponse>, Option<Status>),
    /// No answer, ever.
    Never,
}

/// Result of a write.
pub enum Writes {
    CarriedOut,
    Refused(Status),
    /// Answered with these statuses although it was not carried out.
    Errors(Vec<proto::Error>),
    /// Not carried out, and never answered.
    Lost,
    /// Carried out, but the connection breaks before the answer.
    AnswerLost(Arc<Road>),
}

/// Modifications of answers.
#[derive(Clone, Default)]
pub struct Tampering(Arc<Mutex<(Option<ReadTamper>, Option<WriteTamper>)>>);

impl Tampering {
    pub fn reads(
        &self,
        tamper: impl FnMut(&proto::ReadRequest, proto::ReadResponse) -> Reads + Send + 'static,
    ) {
        self.0.lock().unwrap().0 = Some(Box::new(tamper));
    }

    pub fn writes(&self, tamper: impl FnMut(&proto::WriteRequest) -> Writes + Send + 'static) {
        self.0.lock().unwrap().1 = Some(Box::new(tamper));
    }

    pub fn stop(&self) {
        *self.0.lock().unwrap() = (None, None);
    }
}

/// A service that damages the answers of a server.
pub struct Faulty {
    inner: Server,
    tampering: Tampering,
}

impl Faulty {
    pub fn new(inner: Server, tampering: &Tampering) -> Self {
        Faulty { inner, tampering: tampering.clone() }
    }
}

#[tonic::async_trait]
impl BfRuntime for Faulty {
    async fn write(
        &self,
        request: Request<proto::WriteRequest>,
    ) -> Result<Response<proto::WriteResponse>, Status> {
        let fate = match &mut self.tampering.0.lock().unwrap().1 {
            Some(tamper) => tamper(request.get_ref()),
            None => Writes::CarriedOut,
        };
        match fate {
            Writes::CarriedOut => self.inner.write(request).await,
            Writes::Refused(status) => Err(status),
            Writes::Errors(status) => Ok(Response::new(proto::WriteResponse { status })),
            Writes::Lost => std::future::pending().await,
            Writes::AnswerLost(road) => {
                self.inner.write(request).await?;
                road.cut();
                std::future::pending().await
            }
        }
    }

    type ReadStream = ReceiverStream<Result<proto::ReadResponse, Status>>;

    async fn read(
        &self,
        request: Request<proto::ReadRequest>,
    ) -> Result<Response<Self::ReadStream>, Status> {
        let asked = request.get_ref().clone();
        let mut answer = self.inner.read(request).await?.into_inner().into_inner();
        let answer = answer.recv().await.unwrap()?;
        let fate = match &mut self.tampering.0.lock().unwrap().0 {
            Some(tamper) => tamper(&asked, answer),
            None => Reads::Answer(vec![answer], None),
        };
        let Reads::Answer(messages, end) = fate else { return std::future::pending().await };
        let (sender, receiver) = mpsc::channel(messages.len() + 1);
        for message in messages.into_iter().map(Ok).chain(end.map(Err)) {
            sender.send(message).await.unwrap();
        }
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<proto::SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<proto::SetForwardingPipelineConfigResponse>, Status> {
        self.inner.set_forwarding_pipeline_config(request).await
    }

    async fn get_forwarding_pipeline_config(
        &self,
        request: Request<proto::GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<proto::GetForwardingPipelineConfigResponse>, Status> {
        self.inner.get_forwarding_pipeline_config(request).await
    }

    type StreamChannelStream = ReceiverStream<Result<proto::StreamMessageResponse, Status>>;

    async fn stream_channel(
        &self,
        request: Request<Streaming<proto::StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        self.inner.stream_channel(request).await
    }
}

/// A proxy to a server that can cut, redirect, delay and black-hole connections.
pub struct Proxy {
    pub address: SocketAddr,
    road: Arc<Road>,
}

#[derive(Default)]
pub struct Road {
    way: Mutex<Way>,
    changed: Condvar,
}

#[derive(Default)]
struct Way {
    to: Option<SocketAddr>,
    connections: Vec<Connection>,
    /// Server ends of connections whose client end is gone without notice.
    half_open: Vec<TcpStream>,
    closed: bool,
    accepted: usize,
    /// Delay of all traffic.
    delay: Duration,
    /// Whether nothing passes.
    is_black_hole: bool,
}

struct Connection {
    client: TcpStream,
    server: TcpStream,
    /// Whether the client's end is gone without notice to the server.
    lost: Arc<AtomicBool>,
}

impl Road {
    fn way(&self) -> MutexGuard<'_, Way> {
        self.way.lock().unwrap()
    }

    /// Ends all connections.
    pub fn cut(&self) {
        for Connection { client, server, .. } in self.way().connections.drain(..) {
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.shutdown(Shutdown::Both);
        }
    }
}

impl Proxy {
    pub fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let road = Arc::new(Road::default());
        let shared = Arc::clone(&road);
        thread::spawn(move || {
            for client in listener.incoming() {
                let mut way = shared.way();
                if way.closed {
                    return;
                }
                way.accepted += 1;
                // Without a server, a connection ends at once.
                if let (Ok(client), Some(to)) = (client, way.to) {
                    let server = TcpStream::connect(to).unwrap();
                    client.set_nodelay(true).unwrap();
                    server.set_nodelay(true).unwrap();
                    let lost = Arc::new(AtomicBool::new(false));
                    pass(&client, &server, &shared, &lost);
                    pass(&server, &client, &shared, &lost);
                    way.connections.push(Connection { client, server, lost });
                }
            }
        });
        Proxy { address, road }
    }

    /// Ends all connections.
    pub fn cut(&self) {
        self.road.cut();
    }

    /// Returns the road, which can cut connections from elsewhere.
    pub fn handle(&self) -> Arc<Road> {
        Arc::clone(&self.road)
    }

    /// Ends all connections, and redirects new ones elsewhere or nowhere.
    pub fn lead_to(&self, to: Option<SocketAddr>) {
        self.road.way().to = to;
        self.cut();
        self.notice();
    }

    /// Returns the number of connections so far.
    pub fn accepted(&self) -> usize {
        self.road.way().accepted
    }

    /// Sets the delay of all traffic from now on.
    pub fn slow_down(&self, delay: Duration) {
        self.road.way().delay = delay;
    }

    /// Starts or stops the black hole; stopping it releases what was held up.
    pub fn swallow(&self, all: bool) {
        self.road.way().is_black_hole = all;
        self.road.changed.notify_all();
    }

    /// Ends all connections for clients, but not for the server: as if the clients' machines had
    /// lost power.
    pub fn lose(&self) {
        let mut way = self.road.way();
        for Connection { client, server, lost } in std::mem::take(&mut way.connections) {
            lost.store(true, Ordering::SeqCst);
            let _ = client.shutdown(Shutdown::Both);
            way.half_open.push(server);
        }
    }

    /// Lets the server notice which connections are lost.
    pub fn notice(&self) {
        for server in self.road.way().half_open.drain(..) {
            let _ = server.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.road.way().closed = true;
        self.swallow(false);
        self.cut();
        self.notice();
        let _ = TcpStream::connect(self.address);
    }
}

fn pass(from: &TcpStream, to: &TcpStream, road: &Arc<Road>, lost: &Arc<AtomicBool>) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    let (road, lost) = (Arc::clone(road), Arc::clone(lost));
    thread::spawn(move || {
        let mut buffer = [0; 1 << 16];
        let moved: io::Result<()> = (|| {
            loop {
                let length = from.read(&mut buffer)?;
                if length == 0 {
                    return Ok(());
                }
                let way = road.changed.wait_while(road.way(), |way| way.is_black_hole).unwrap();
                let delay = way.delay;
                drop(way);
                thread::sleep(delay);
                to.write_all(&buffer[..length])?;
            }
        })();
        drop(moved);
        if !lost.load(Ordering::SeqCst) {
            let _ = to.shutdown(Shutdown::Both);
        }
    });
}
