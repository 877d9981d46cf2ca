//! Session with a switch: one TCP connection, one subscription, and calls with a deadline.
//!
//! A session never recovers. Once the connection breaks or the switch ends the subscription, every
//! call fails, so that an answer of a restarted switch is never mistaken for one of the switch
//! before.

use super::entries;
use super::options::{Options, Tls};
use super::program::Program;
use super::status::code_name;
use crate::error::Failure;
use flowgauge_bfruntime::proto::bf_runtime_client::BfRuntimeClient;
use flowgauge_bfruntime::proto::{self, stream_message_request, stream_message_response};
use flowgauge_bfruntime::schema::{SYNC, Schema, Table};
use flowgauge_bfruntime::{Pipes, client};
use std::future::Future;
use std::io;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Uri};
use tonic::{Code, Streaming};

/// Maximum size of an answer, in bytes: both banks of 65,536 registers in four pipes are a tenth of
/// it.
const MAX_ANSWER: usize = 64 << 20;
/// Maximum size of an answer's headers, in bytes. Failures of a batch are in the trailers, one per
/// update.
const MAX_HEADER: u32 = 16 << 20;

/// Size of the receive window, in bytes: registers, and digests between two calls.
const WINDOW: u32 = 8 << 20;
/// Capacity of the queue of digest lists.
const DIGESTS: usize = 1 << 16;

/// Elements per read, so that each answer arrives within the deadline.
const ELEMENTS: usize = 4096;

/// Maximum time that a switch waits for its chip to copy registers. After that it answers as if
/// they had been copied, so an answer this late is meaningless.
const LONGEST_SYNC: Duration = Duration::from_secs(5);

/// TCP keep-alive: idle time, interval, and number of failed probes. HTTP/2 pings do not work: gRPC
/// servers end the connection of a client that sends more than a few within five minutes.
#[cfg(target_os = "linux")]
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(10), Duration::from_secs(5), 3);

/// Creates the runtime of the calls.
pub(super) fn runtime() -> Result<Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::Runtime { problem: error.to_string() })
}

/// A subscribed client that has bound its program.
pub(super) struct Session {
    client: BfRuntimeClient<Channel>,
    pub(super) options: Options,
    pub(super) subscription: Subscription,
    /// Reason why the subscription has ended.
    was_cut: Option<String>,
    /// Whether the switch's tables are known to be as desired.
    pub(super) verified: bool,
}

/// Session with a switch, and the program on it.
pub(super) struct Client<'a> {
    pub(super) session: &'a mut Session,
    pub(super) program: &'a Program,
}

/// Formats an error with all its causes: tonic's errors alone say only `transport error`.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text: Vec<String> = Vec::new();
    for cause in std::iter::successors(Some(error), |error| error.source()) {
        let cause = cause.to_string();
        if text.last() != Some(&cause) {
            text.push(cause);
        }
    }
    text.join(": ")
}

fn describe(status: &tonic::Status) -> String {
    match (status.message(), std::error::Error::source(status)) {
        ("", None) => code_name(status.code()).to_owned(),
        (message, None) => message.to_owned(),
        (_, Some(source)) => causes(source),
    }
}

async fn in_time<T>(deadline: Duration, call: impl Future<Output = T>) -> Result<T, Failure> {
    tokio::time::timeout(deadline, call).await.map_err(|_| Failure::NoAnswer { waited: deadline })
}

fn endpoint(options: &Options) -> Result<Endpoint, Failure> {
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    let problem = |error: &dyn std::fmt::Display| {
        Failure::options(format!(
            "'{}' is not an address of a switch ({error}); give host:port, such as switch:50052",
            options.address
        ))
    };
    let uri: Uri =
        format!("{scheme}://{}", options.address).parse().map_err(|error| problem(&error))?;
    if uri.port().is_none() {
        return Err(problem(&"no port"));
    }
    let endpoint = Endpoint::from(uri).http2_max_header_list_size(MAX_HEADER);
    let endpoint = endpoint
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .user_agent("flowgauge");
    let endpoint = endpoint.map_err(|error| problem(&error))?;
    let Some(Tls { authority, identity, server_name }) = &options.tls else { return Ok(endpoint) };
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority));
    let identity = identity.as_ref().map(|(certificate, key)| Identity::from_pem(certificate, key));
    let tls = identity.into_iter().fold(tls, ClientTlsConfig::identity);
    let tls = server_name.iter().fold(tls, |tls, name| tls.domain_name(name));
    endpoint.tls_config(tls).map_err(|error| {
        Failure::options(format!("the certificates cannot be used: {}", causes(&error)))
    })
}

async fn connect(options: &Options) -> Result<BfRuntimeClient<Channel>, Failure> {
    let endpoint = endpoint(options)?;
    let unreachable = |problem: String| Failure::Unreachable { problem };
    let stream = in_time(options.deadline, TcpStream::connect(&options.address)).await?;
    let stream =
        stream.map_err(|error| unreachable(format!("{error}; is bf_switchd running there?")))?;
    stream.set_nodelay(true).map_err(|error| unreachable(error.to_string()))?;
    #[cfg(target_os = "linux")]
    keep_alive(&stream).map_err(|error| unreachable(error.to_string()))?;
    let channel = in_time(options.deadline, client::over(endpoint, stream)).await?;
    let channel = channel.map_err(|error| unreachable(causes(&error)))?;
    Ok(BfRuntimeClient::new(channel)
        .max_decoding_message_size(MAX_ANSWER)
        .max_encoding_message_size(MAX_ANSWER))
}

/// Enables keep-alive, so that a dead switch is detected.
#[cfg(target_os = "linux")]
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    let (idle, interval, probes) = KEEPALIVE;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, idle)?;
    sockopt::set_tcp_keepintvl(stream, interval)?;
    Ok(sockopt::set_tcp_keepcnt(stream, probes)?)
}

impl Session {
    /// Connects, subscribes, binds the program, and reads its schema.
    ///
    /// `learns`: whether to receive digests.
    pub(super) async fn open(options: &Options, learns: bool) -> Result<(Self, Schema), Failure> {
        let mut client = connect(options).await?;
        let subscription =
            in_time(options.deadline, subscribe(&mut client, options, learns)).await??;
        let mut session = Session::new(client, options, subscription);
        session.bind().await?;
        let schema = session.schema().await?;
        Ok((session, schema))
    }

    /// Connects and continues as the client whose connection was lost: its subscription and binding
    /// still exist, since the switch has not noticed the loss. Digests go to the lost connection.
    pub(super) async fn adopt(options: &Options) -> Result<(Self, Schema), Failure> {
        let client = connect(options).await?;
        let ((_ends, cut), (_digests, digests)) = (oneshot::channel(), mpsc::channel(1));
        let _guard = Subscribed::Lost { _ends, _digests };
        let mut session = Session::new(client, options, Subscription { _guard, cut, digests });
        let schema = session.schema().await?;
        Ok((session, schema))
    }

    fn new(
        client: BfRuntimeClient<Channel>,
        options: &Options,
        subscription: Subscription,
    ) -> Self {
        let options = options.clone();
        Session { client, options, subscription, was_cut: None, verified: false }
    }

    /// Returns the reason if the subscription is known to have ended.
    pub(super) fn is_lost(&mut self) -> Option<String> {
        use oneshot::error::TryRecvError;
        if self.was_cut.is_none() {
            self.was_cut = match self.subscription.cut.try_recv() {
                Ok(why) => Some(why),
                Err(TryRecvError::Closed) => Some(String::new()),
                Err(TryRecvError::Empty) => None,
            };
        }
        self.was_cut.clone()
    }

    /// Returns the reason if the subscription has ended, after giving the connection's tasks a
    /// moment to notice.
    pub(super) async fn lost(&mut self) -> Option<String> {
        const MOMENT: Duration = Duration::from_millis(1);
        if self.was_cut.is_none()
            && let Ok(why) = tokio::time::timeout(MOMENT, &mut self.subscription.cut).await
        {
            self.was_cut = Some(why.unwrap_or_default());
        }
        self.was_cut.clone()
    }

    /// Awaits a call, at most until the deadline or the end of the subscription.
    async fn call<T>(
        &mut self,
        what: &str,
        call: impl AsyncFnOnce(&mut BfRuntimeClient<Channel>) -> Result<T, tonic::Status>,
    ) -> Result<T, Failure> {
        let unreachable =
            |why: &str| Failure::Unreachable { problem: format!("the connection was lost: {why}") };
        if let Some(why) = &self.was_cut {
            return Err(unreachable(why));
        }
        let answer = tokio::select! {
            biased;
            why = &mut self.subscription.cut => {
                let why = why.unwrap_or_default();
                let failure = unreachable(&why);
                self.was_cut = Some(why);
                return Err(failure);
            }
            answer = in_time(self.options.deadline, call(&mut self.client)) => answer?,
        };
        answer.map_err(|status| refused(&status, what))
    }

    fn target(&self) -> Option<proto::TargetDevice> {
        Some(proto::TargetDevice {
            device_id: self.options.device,
            pipe_id: Pipes::ALL,
            direction: 0xff,
            prsr_id: 0xff,
        })
    }

    async fn bind(&mut self) -> Result<(), Failure> {
        let config = vec![proto::ForwardingPipelineConfig {
            p4_name: self.options.program.clone(),
            ..Default::default()
        }];
        let action = proto::set_forwarding_pipeline_config_request::Action::Bind.into();
        let request = proto::SetForwardingPipelineConfigRequest {
            device_id: self.options.device,
            client_id: self.options.client,
            action,
            config,
            ..Default::default()
        };
        let what = format!("binding program {}", self.options.program);
        let bound = self
            .call(&what, async |client| client.set_forwarding_pipeline_config(request).await)
            .await;
        bound.map(drop).map_err(|failure| match failure {
            Failure::Refused { problem, .. } if failure.is_there() => {
                Failure::Taken { problem: format!("{problem}; {}", free(&self.options)) }
            }
            failure => failure,
        })
    }

    async fn schema(&mut self) -> Result<Schema, Failure> {
        let request = proto::GetForwardingPipelineConfigRequest {
            device_id: self.options.device,
            client_id: self.options.client,
        };
        let answer = self
            .call("reading the schema", async |client| {
                client.get_forwarding_pipeline_config(request).await
            })
            .await?;
        let answer = answer.into_inner();
        let program = answer.config.iter().find(|config| config.p4_name == self.options.program);
        let program = program.ok_or_else(|| {
            Failure::answer(format!("the switch has no schema of program {}", self.options.program))
        })?;
        let schema = Schema::parse(&program.bfruntime_info).map_err(Failure::program)?;
        match answer.non_p4_config {
            None => Ok(schema),
            Some(fixed) => {
                let fixed = Schema::parse(&fixed.bfruntime_info).map_err(Failure::program)?;
                schema.join(fixed).map_err(Failure::program)
            }
        }
    }

    /// Reads all entries of a match table.
    pub(super) async fn read_all(
        &mut self,
        table: &Table,
    ) -> Result<Vec<proto::TableEntry>, Failure> {
        self.read(table, vec![entries::all(table)]).await
    }

    /// Reads all entries of a table from the chip instead of the driver's copy.
    pub(super) async fn read_from_chip(
        &mut self,
        table: &Table,
    ) -> Result<Vec<proto::TableEntry>, Failure> {
        let flags = Some(proto::TableFlags { from_hw: true, ..Default::default() });
        let request = proto::TableEntry { table_flags: flags, ..entries::all(table) };
        self.read(table, vec![request]).await
    }

    /// Reads a table's default entry.
    pub(super) async fn read_default(
        &mut self,
        table: &Table,
    ) -> Result<Vec<proto::TableEntry>, Failure> {
        let request = proto::TableEntry { is_default_entry: true, ..entries::all(table) };
        self.read(table, vec![request]).await
    }

    /// Reads elements of a register or counter, as of the last [sync](Self::sync).
    pub(super) async fn read_elements(
        &mut self,
        table: &Table,
        elements: Vec<proto::TableEntry>,
    ) -> Result<Vec<proto::TableEntry>, Failure> {
        let (mut elements, mut entries) = (elements.into_iter().peekable(), Vec::new());
        while elements.peek().is_some() {
            let part = elements.by_ref().take(ELEMENTS).collect();
            entries.extend(self.read(table, part).await?);
        }
        Ok(entries)
    }

    /// Makes the chip copy registers or counters to where they are read, a whole table at once.
    /// Reading them from the chip one by one takes a thousand times as long.
    pub(super) async fn sync(&mut self, tables: &[&Table]) -> Result<(), Failure> {
        let operation = |table: &&Table| {
            let operation = proto::TableOperation {
                table_id: table.id,
                table_operations_type: SYNC.to_owned(),
            };
            let entity = Some(proto::Entity {
                entity: Some(proto::entity::Entity::TableOperation(operation)),
            });
            proto::Update { r#type: proto::update::Type::Insert.into(), entity }
        };
        let what = match tables {
            [table] => format!("syncing {}", table.name),
            _ => format!("syncing {} tables", tables.len()),
        };
        let began = Instant::now();
        self.write(&what, tables.iter().map(operation).collect(), tables.len()).await?;
        if began.elapsed() >= LONGEST_SYNC {
            let problem = format!(
                "{what}: it took {LONGEST_SYNC:?}, after which switches answer whether or not it was done"
            );
            return Err(Failure::answer(problem));
        }
        Ok(())
    }

    async fn read(
        &mut self,
        table: &Table,
        entries: Vec<proto::TableEntry>,
    ) -> Result<Vec<proto::TableEntry>, Failure> {
        let entities = entries.into_iter().map(entries::entity).collect();
        let request = proto::ReadRequest {
            target: self.target(),
            client_id: self.options.client,
            entities,
            p4_name: self.options.program.clone(),
        };
        let what = format!("reading {}", table.name);
        let messages = self
            .call(&what, async |client| all(client.read(request).await?.into_inner()).await)
            .await?;
        let mut entries = Vec::new();
        for message in messages {
            check_errors(&message.status, &what)?;
            for entity in message.entities {
                match entity.entity {
                    Some(proto::entity::Entity::TableEntry(entry)) => entries.push(entry),
                    _ => {
                        return Err(Failure::answer(format!(
                            "{what}: something else than a table's entry"
                        )));
                    }
                }
            }
        }
        Ok(entries)
    }

    /// Writes updates in batches. Each batch succeeds or fails as a whole.
    pub(super) async fn write(
        &mut self,
        what: &str,
        updates: Vec<proto::Update>,
        batch: usize,
    ) -> Result<(), Failure> {
        let mut updates = updates.into_iter().peekable();
        while updates.peek().is_some() {
            let updates = updates.by_ref().take(batch.max(1)).collect();
            let request = proto::WriteRequest {
                target: self.target(),
                client_id: self.options.client,
                updates,
                p4_name: self.options.program.clone(),
                ..Default::default()
            };
            let answer = self.call(what, async |client| client.write(request).await).await?;
            check_errors(&answer.into_inner().status, what)?;
        }
        Ok(())
    }
}

async fn all(
    mut messages: Streaming<proto::ReadResponse>,
) -> Result<Vec<proto::ReadResponse>, tonic::Status> {
    let mut all = Vec::new();
    while let Some(message) = messages.message().await? {
        all.push(message);
    }
    Ok(all)
}

/// Returns the first error in an answer, if any.
fn check_errors(errors: &[proto::Error], what: &str) -> Result<(), Failure> {
    let mut failed =
        errors.iter().enumerate().filter(|(_, error)| error.canonical_code != i32::from(Code::Ok));
    let Some((index, first)) = failed.next() else { return Ok(()) };
    let others = failed.count();
    let message =
        format!("{what}: number {index}: {}; {others} others failed as well", first.message);
    let code = Code::from(first.canonical_code);
    // None of these codes means a broken connection here.
    let transient = matches!(
        code,
        Code::Unavailable | Code::Aborted | Code::ResourceExhausted | Code::DeadlineExceeded
    );
    Err(Failure::Refused { code: code_name(code), problem: message, transient })
}

/// Converts the status of a failed call. For a batch, its details contain one error per update.
fn refused(status: &tonic::Status, what: &str) -> Failure {
    let details = <proto::Status as prost::Message>::decode(status.details()).unwrap_or_default();
    let errors = details.details.iter().filter(|any| any.type_url.ends_with("bfrt_proto.Error"));
    let errors: Result<Vec<proto::Error>, _> =
        errors.map(|any| prost::Message::decode(&any.value[..])).collect();
    if let Ok(errors) = errors
        && let Err(failure) = check_errors(&errors, what)
    {
        return failure;
    }
    Failure::from_status(status, format!("{what}: {}", describe(status)))
}

/// Guard of a subscription.
enum Subscribed {
    /// A subscription of this connection, which ends when this is dropped.
    Own { _requests: mpsc::Sender<proto::StreamMessageRequest> },
    /// A subscription of a lost connection, whose end and digests are not received.
    Lost { _ends: oneshot::Sender<String>, _digests: mpsc::Sender<proto::DigestList> },
}

/// Subscription of a client, which ends when this is dropped.
pub(super) struct Subscription {
    _guard: Subscribed,
    /// Receives the reason when the subscription ends.
    cut: oneshot::Receiver<String>,
    /// Digests that the switch has sent, up to the capacity of the queue.
    pub(super) digests: mpsc::Receiver<proto::DigestList>,
}

async fn subscribe(
    client: &mut BfRuntimeClient<Channel>,
    options: &Options,
    learns: bool,
) -> Result<Subscription, Failure> {
    let what = "subscribing";
    let busy = |status: &tonic::Status| busy(status, options);
    let (requests, receiver) = mpsc::channel(1);
    let subscribe = proto::Subscribe {
        device_id: options.device,
        notifications: Some(proto::subscribe::Notifications {
            enable_learn_notifications: learns,
            ..Default::default()
        }),
        ..Default::default()
    };
    let update = Some(stream_message_request::Update::Subscribe(subscribe));
    let request = proto::StreamMessageRequest { client_id: options.client, update };
    // The channel is new and has room.
    let _ = requests.send(request).await;
    let answer = client.stream_channel(ReceiverStream::new(receiver)).await;
    let mut answers = answer.map_err(|status| busy(&status))?.into_inner();
    let first = answers.message().await.map_err(|status| busy(&status))?;
    match first.and_then(|first| first.update) {
        Some(stream_message_response::Update::Subscribe(subscribed)) => {
            let status = subscribed.status.unwrap_or_default();
            if status.code != i32::from(Code::Ok) {
                let status = tonic::Status::new(Code::from(status.code), status.message);
                return Err(busy(&status));
            }
        }
        Some(_) => {
            return Err(Failure::answer(format!("{what}: something came before the subscription")));
        }
        None => {
            return Err(Failure::Unreachable {
                problem: format!("{what}: the switch ended the channel"),
            });
        }
    }
    let (cut, was_cut) = oneshot::channel();
    let (sender, digests) = mpsc::channel(if learns { DIGESTS } else { 1 });
    tokio::spawn(async move {
        let why = loop {
            match answers.message().await {
                Ok(Some(proto::StreamMessageResponse {
                    update: Some(stream_message_response::Update::Digest(list)),
                })) => {
                    // The count of digests reveals a dropped one.
                    let _ = sender.try_send(list);
                }
                // Notifications, which were not requested.
                Ok(Some(_)) => {}
                Ok(None) => break "the switch ended the subscription".to_owned(),
                Err(status) => break describe(&status),
            }
        };
        // Fails only if the session is gone.
        let _ = cut.send(why);
    });
    let _guard = Subscribed::Own { _requests: requests };
    Ok(Subscription { _guard, cut: was_cut, digests })
}

/// Converts a refused subscription: another client, or a lost connection of this one, uses its
/// number.
fn busy(status: &tonic::Status, options: &Options) -> Failure {
    match status.code() {
        Code::InvalidArgument | Code::AlreadyExists => {
            let problem =
                format!("client {} is subscribed already ({})", options.client, describe(status));
            let other = "or take another number with --client";
            Failure::Taken { problem: format!("{problem}; {}, {other}", free(options)) }
        }
        _ => refused(status, "subscribing"),
    }
}

/// Describes how to end a stale connection of a dead client.
fn free(options: &Options) -> String {
    let port = options.address.rsplit(':').next().unwrap_or_default();
    format!(
        "if that client runs, stop it; if its machine or its connection was lost, the switch does not know: see `ss -tn sport = :{port}` \
         there, end its connection with `ss -K dst ADDRESS sport = :{port}`"
    )
}
