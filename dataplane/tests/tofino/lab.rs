//! A switch, what stands before it, and a backend.

use crate::frames::uniques;
use crate::model::Model;
use crate::switch::Switch;
use flowgauge_bfruntime::proto::bf_runtime_server::{BfRuntime, BfRuntimeServer};
use flowgauge_bfruntime::proto::{self};
use flowgauge_bfruntime::server::{MAX_MESSAGE, Running, Server};
use flowgauge_core::{Precision, Settings};
use flowgauge_dataplane::tofino::{Failure, Options};
use flowgauge_dataplane::{Dataplane, Error, Event, Snapshot, Tables, Tofino};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

pub const SEED: u64 = 7;
/// Long enough for what is answered, on any machine.
pub const PATIENT: Duration = Duration::from_secs(30);

pub fn settings(p: u8) -> Settings {
    let mut settings = Settings::default();
    settings.cardinality.precision = Precision::new(p).unwrap();
    settings
}

pub fn options(address: SocketAddr) -> Options {
    let mut options = Options::new(address.to_string());
    options.deadline = PATIENT;
    options.back_off = Duration::ZERO;
    options.patience = Duration::ZERO;
    options.batch = 100;
    options.transit = Duration::ZERO;
    options
}

/// A switch behind a service that can damage answers, behind a proxy that can cut connections.
pub struct Lab {
    pub switch: Switch,
    pub tampering: Tampering,
    pub proxy: Proxy,
    pub settings: Settings,
    running: Option<Running>,
}

impl Lab {
    pub fn new(pipes: u32) -> Self {
        Self::with(settings(6), pipes)
    }

    pub fn with(settings: Settings, pipes: u32) -> Self {
        let switch = Switch::new(settings, pipes);
        let mut lab = Lab { switch, tampering: Tampering::default(), proxy: Proxy::start(), settings, running: None };
        lab.power_on();
        lab
    }

    fn power_on(&mut self) {
        let service = Faulty { inner: self.switch.server(), tampering: self.tampering.clone() };
        let service = BfRuntimeServer::new(service).max_decoding_message_size(MAX_MESSAGE);
        let running = Running::start_service(([127, 0, 0, 1], 0).into(), None, service).unwrap();
        self.proxy.lead_to(Some(running.address()));
        self.running = Some(running);
    }

    /// The switch and all it holds are gone, and nobody answers.
    pub fn power_off(&mut self) {
        self.proxy.lead_to(None);
        self.running = None;
        self.switch = self.switch.fresh();
    }

    pub fn restart(&mut self) {
        self.power_off();
        self.power_on();
    }

    pub fn options(&self) -> Options {
        options(self.proxy.address)
    }

    pub fn connect(&self) -> Tofino {
        Tofino::connect(self.options(), self.settings).unwrap()
    }

    pub fn tables(&self) -> Tables {
        Tables::new(&self.settings, SEED)
    }

    /// A backend that counts.
    pub fn counting(&self) -> Tofino {
        let mut tofino = self.connect();
        tofino.install(&self.tables()).unwrap();
        tofino
    }

    pub fn count(&self, packets: Range<u64>) {
        self.switch.count(&uniques(packets));
    }

    /// Asserts that a snapshot is complete and has exactly these packets.
    #[track_caller]
    pub fn assert_holds(&self, snapshot: &Snapshot, packets: Range<u64>) {
        assert!(snapshot.complete, "something is missing");
        self.assert_counted(snapshot, packets);
    }

    #[track_caller]
    pub fn assert_counted(&self, snapshot: &Snapshot, packets: Range<u64>) {
        let expected = Model::new(&self.settings, SEED).expect(uniques(packets).iter());
        assert_eq!(snapshot.bank.counters, expected.counters);
        assert_eq!(snapshot.bank.cardinality.levels(self.settings.cardinality.precision), expected.levels);
        assert_eq!((snapshot.packets_before, snapshot.packets_after), (expected.packets(), expected.packets()));
    }
}

/// The failure inside an error.
#[track_caller]
pub fn failure<T>(result: Result<T, Error>) -> Failure {
    match result {
        Err(Error::Switch { failure, .. }) => failure,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it succeeded"),
    }
}

/// What was warned of, without the address.
pub fn warnings(tofino: &mut Tofino) -> Vec<String> {
    let text = |event| match event {
        Event::Warning(text) => text.split_once(": ").unwrap().1.to_owned(),
        other => panic!("{other:?}"),
    };
    tofino.events().unwrap().into_iter().map(text).collect()
}

pub type ReadTamper = Box<dyn FnMut(&proto::ReadRequest, proto::ReadResponse) -> Reads + Send>;
pub type WriteTamper = Box<dyn FnMut(&proto::WriteRequest) -> Writes + Send>;

/// What becomes of a read.
pub enum Reads {
    /// These messages, and then an error or the end.
    Answer(Vec<proto::ReadResponse>, Option<Status>),
    /// Nothing, ever.
    Never,
}

/// What becomes of a write.
pub enum Writes {
    CarriedOut,
    Refused(Status),
    /// Answered with these statuses although it was not carried out.
    Errors(Vec<proto::Error>),
    /// Not carried out, and never answered.
    Lost,
    /// Carried out, but the connection breaks before the answer.
    AnswerLost(Scissors),
}

/// What is done to answers.
#[derive(Clone, Default)]
pub struct Tampering(Arc<Mutex<(Option<ReadTamper>, Option<WriteTamper>)>>);

impl Tampering {
    pub fn reads(&self, tamper: impl FnMut(&proto::ReadRequest, proto::ReadResponse) -> Reads + Send + 'static) {
        self.0.lock().unwrap().0 = Some(Box::new(tamper));
    }

    pub fn writes(&self, tamper: impl FnMut(&proto::WriteRequest) -> Writes + Send + 'static) {
        self.0.lock().unwrap().1 = Some(Box::new(tamper));
    }

    pub fn stop(&self) {
        *self.0.lock().unwrap() = (None, None);
    }
}

struct Faulty {
    inner: Server,
    tampering: Tampering,
}

#[tonic::async_trait]
impl BfRuntime for Faulty {
    async fn write(&self, request: Request<proto::WriteRequest>) -> Result<Response<proto::WriteResponse>, Status> {
        let fate = match &mut self.tampering.0.lock().unwrap().1 {
            Some(tamper) => tamper(request.get_ref()),
            None => Writes::CarriedOut,
        };
        match fate {
            Writes::CarriedOut => self.inner.write(request).await,
            Writes::Refused(status) => Err(status),
            Writes::Errors(status) => Ok(Response::new(proto::WriteResponse { status })),
            Writes::Lost => std::future::pending().await,
            Writes::AnswerLost(proxy) => {
                self.inner.write(request).await?;
                proxy.cut();
                std::future::pending().await
            }
        }
    }

    type ReadStream = ReceiverStream<Result<proto::ReadResponse, Status>>;

    async fn read(&self, request: Request<proto::ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
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

/// A way to a server that can be cut and led elsewhere.
pub struct Proxy {
    pub address: SocketAddr,
    way: Arc<Mutex<Way>>,
}

#[derive(Default)]
pub struct Way {
    to: Option<SocketAddr>,
    streams: Vec<TcpStream>,
    closed: bool,
    accepted: usize,
}

impl Proxy {
    pub fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let way = Arc::new(Mutex::new(Way::default()));
        let shared = Arc::clone(&way);
        thread::spawn(move || {
            for client in listener.incoming() {
                let mut way = shared.lock().unwrap();
                if way.closed {
                    return;
                }
                way.accepted += 1;
                // With nobody behind it, a connection ends at once.
                if let (Ok(client), Some(to)) = (client, way.to) {
                    let server = TcpStream::connect(to).unwrap();
                    client.set_nodelay(true).unwrap();
                    server.set_nodelay(true).unwrap();
                    pass(&client, &server);
                    pass(&server, &client);
                    way.streams.extend([client, server]);
                }
            }
        });
        Proxy { address, way }
    }

    /// Ends all connections.
    pub fn cut(&self) {
        self.handle().cut();
    }

    /// Something to cut connections with from elsewhere.
    pub fn handle(&self) -> Scissors {
        Scissors(Arc::clone(&self.way))
    }

    /// Ends all connections, and leads new ones elsewhere or nowhere.
    pub fn lead_to(&self, to: Option<SocketAddr>) {
        self.way.lock().unwrap().to = to;
        self.cut();
    }

    /// Connections so far.
    pub fn accepted(&self) -> usize {
        self.way.lock().unwrap().accepted
    }
}

/// Ends connections.
#[derive(Clone)]
pub struct Scissors(Arc<Mutex<Way>>);

impl Scissors {
    pub fn cut(&self) {
        for stream in self.0.lock().unwrap().streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.way.lock().unwrap().closed = true;
        self.cut();
        let _ = TcpStream::connect(self.address);
    }
}

fn pass(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    thread::spawn(move || {
        let mut buffer = [0; 1 << 16];
        let moved: io::Result<()> = (|| {
            loop {
                match from.read(&mut buffer)? {
                    0 => return Ok(()),
                    length => to.write_all(&buffer[..length])?,
                }
            }
        })();
        drop(moved);
        let _ = to.shutdown(Shutdown::Both);
    });
}
