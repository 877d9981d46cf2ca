//! Server side of BFRuntime.
//!
//! A [`Server`] answers for a [`Target`] as a switch's own server does: clients subscribe, bind the
//! program, and then read and write tables by id. Every request is checked against the schema
//! before it reaches the target, and every answer of the target before it reaches the client.

mod batch;
mod clients;
mod driver;
mod ports;
mod running;
mod target;

pub use driver::{Costs, Ledger, Pace};
pub use running::{RunningServer, StartError, Tls};
pub use target::{Digest, Digests, Fault, PortCounters, Query, Source, Target, Write};

use crate::codec;
use crate::entry::{Entry, Key, Match, Pipes};
use crate::fixed;
use crate::proto::bf_runtime_server::{BfRuntime, BfRuntimeServer};
use crate::proto::{
    self, entity, set_forwarding_pipeline_config_request::Action, stream_message_request,
    table_entry,
};
use crate::schema::{Schema, SchemaError, Table, TableKind};
use clients::Clients;
use driver::{Driver, Work};
use ports::Ports;
use std::fmt::Display;
use std::sync::{Arc, Mutex};
use tokio::sync::{broadcast, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};

/// Id of the only device.
const DEVICE: u32 = 0;
/// Maximum number of digests queued for a slow client.
const DIGEST_QUEUE: usize = 4096;
/// Maximum size of a request in bytes: a batch with every entry of a large table.
pub const MAX_MESSAGE: usize = 64 << 20;

/// BFRuntime server for a target.
#[derive(Clone)]
pub struct Server(Arc<Shared>);

struct Shared {
    switch: Switch,
    clients: Clients,
    digests: broadcast::Sender<Digest>,
    driver: Option<Driver>,
}

/// Target and its schema.
struct Switch {
    target: Arc<dyn Target>,
    schema: Schema,
    ports: Ports,
}

fn from_hardware(wanted: &proto::TableEntry) -> bool {
    wanted.table_flags.is_some_and(|flags| flags.from_hw)
        || wanted.table_read_flag.is_some_and(|flag| flag.from_hw)
}

fn fault<E: Display>(code: Code) -> impl Fn(E) -> Fault {
    move |error| Fault::new(code, error.to_string())
}

impl From<Fault> for Status {
    fn from(fault: Fault) -> Self {
        Status::new(fault.code, fault.message)
    }
}

impl Switch {
    fn pipes(&self, target: &proto::TargetDevice) -> Result<Pipes, Fault> {
        if target.device_id != DEVICE {
            return Err(Fault::not_found(format!("there is no device {}", target.device_id)));
        }
        match Pipes::from_id(target.pipe_id) {
            Pipes::One(pipe) if pipe >= self.target.pipes() => Err(Fault::invalid(format!(
                "there is no pipe {pipe}; the device has {}",
                self.target.pipes()
            ))),
            pipes => Ok(pipes),
        }
    }

    /// Rejects an index beyond the end of a register or counter.
    fn check_index(&self, table: &Table, key: &Key) -> Result<(), Fault> {
        let Some(Match::Exact(index)) = key.values().next().filter(|_| table.kind.is_indexed())
        else {
            return Ok(());
        };
        let index = index.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        if index >= table.size {
            return Err(Fault::invalid(format!(
                "{}: there is no index {index} below its size, {}",
                table.name, table.size
            )));
        }
        Ok(())
    }

    fn is_port_table(table: &Table) -> bool {
        [fixed::PORT, fixed::PORT_COUNTERS, fixed::PORT_NAMES].contains(&&*table.name)
    }

    fn write(&self, table: &Table, pipes: Pipes, write: &Write) -> Result<(), Fault> {
        if Self::is_port_table(table) {
            return self.ports.write(&*self.target, write);
        }
        self.target.write(&table.name, pipes, write)
    }

    fn read(
        &self,
        table: &Table,
        pipes: Pipes,
        query: &Query,
        source: Source,
    ) -> Result<Vec<Entry>, Fault> {
        if Self::is_port_table(table) {
            return self.ports.read(&*self.target, &table.name, query, source);
        }
        self.target.read(&table.name, pipes, query, source)
    }

    /// Returns every entry that a read requests, as messages.
    fn answer(
        &self,
        default: &proto::TargetDevice,
        entity: &proto::Entity,
    ) -> Result<Vec<proto::Entity>, Fault> {
        match &entity.entity {
            Some(entity::Entity::TableEntry(entry)) => self.entries(default, entry),
            Some(entity::Entity::TableUsage(usage)) => {
                let table =
                    self.schema.table_by_id(usage.table_id).map_err(fault(Code::NotFound))?;
                let entries =
                    self.read(table, self.pipes(default)?, &Query::All, Source::Software)?;
                let usage = proto::TableUsage {
                    usage: u32::try_from(entries.len()).unwrap_or(u32::MAX),
                    ..*usage
                };
                Ok(vec![proto::Entity { entity: Some(entity::Entity::TableUsage(usage)) }])
            }
            Some(_) => {
                Err(Fault::new(Code::Unimplemented, "only table entries and usages can be read"))
            }
            None => Err(Fault::invalid("a read of nothing")),
        }
    }

    /// Whether each element of the answer is read from the chip.
    fn is_read_from_chip(&self, entity: &proto::Entity) -> bool {
        let Some(entity::Entity::TableEntry(entry)) = &entity.entity else { return false };
        from_hardware(entry)
            && self.schema.table_by_id(entry.table_id).is_ok_and(|table| table.kind.is_indexed())
    }

    fn entries(
        &self,
        default: &proto::TargetDevice,
        wanted: &proto::TableEntry,
    ) -> Result<Vec<proto::Entity>, Fault> {
        let table = self.schema.table_by_id(wanted.table_id).map_err(fault(Code::NotFound))?;
        let pipes = self.pipes(wanted.entry_tgt.as_ref().unwrap_or(default))?;
        let flags = wanted.table_flags.unwrap_or_default();
        let keys_only = flags.key_only || wanted.table_read_flag.is_some_and(|flag| flag.key_only);
        let query = match &wanted.value {
            _ if wanted.is_default_entry => Query::Default,
            Some(table_entry::Value::Key(key)) => {
                let key = codec::decode_key(table, key).map_err(fault(Code::InvalidArgument))?;
                self.check_index(table, &key)?;
                Query::Entry(key)
            }
            Some(table_entry::Value::HandleId(_)) => {
                return Err(Fault::new(
                    Code::Unimplemented,
                    "entries have no handles here; give the key",
                ));
            }
            // A table without a key has only a default entry.
            None if table.keys.is_empty() => Query::Default,
            None => Query::All,
        };
        let source = if from_hardware(wanted) { Source::Hardware } else { Source::Software };
        let entries = self.read(table, pipes, &query, source)?;
        let device = proto::TargetDevice {
            device_id: DEVICE,
            pipe_id: pipes.id(),
            direction: 0xff,
            prsr_id: 0xff,
        };
        entries.iter().map(|entry| self.entry(table, pipes, device, entry, keys_only)).collect()
    }

    /// Encodes an entry of the target. This detects a target that violates its schema.
    fn entry(
        &self,
        table: &Table,
        pipes: Pipes,
        device: proto::TargetDevice,
        entry: &Entry,
        keys_only: bool,
    ) -> Result<proto::Entity, Fault> {
        if table.kind == TableKind::Register {
            let values = pipes.of(self.target.pipes()).len();
            if let Some(field) =
                table.data.iter().find(|field| entry.data.values(&field.name).count() != values)
            {
                let problem = format!(
                    "{}: {} is not there once for each of {values} pipes",
                    table.name, field.name
                );
                return Err(Fault::new(Code::Internal, problem));
            }
        }
        let message = codec::encode_entry(table, entry).map_err(fault(Code::Internal))?;
        let data = message.data.filter(|_| !keys_only);
        let message = proto::TableEntry { data, entry_tgt: Some(device), ..message };
        Ok(proto::Entity { entity: Some(entity::Entity::TableEntry(message)) })
    }
}

impl Server {
    /// Returns a server for a target.
    ///
    /// # Errors
    /// [`SchemaError`] if the target's schema cannot be read.
    pub fn new(target: Arc<dyn Target>) -> Result<Self, SchemaError> {
        Self::build(target, None)
    }

    /// Returns a server that takes as long as one with a chip, or records how long that would be.
    ///
    /// # Errors
    /// The same as of [`new`](Self::new).
    pub fn driver_like(
        target: Arc<dyn Target>,
        costs: Costs,
        pace: Pace,
    ) -> Result<(Self, Arc<Mutex<Ledger>>), SchemaError> {
        let ledger = Arc::default();
        let driver = Driver { costs, pace, ledger: Arc::clone(&ledger) };
        Ok((Self::build(target, Some(driver))?, ledger))
    }

    fn build(target: Arc<dyn Target>, driver: Option<Driver>) -> Result<Self, SchemaError> {
        let schema = Schema::parse(target.schema().as_bytes())?
            .join(Schema::parse(fixed::SCHEMA.as_bytes())?)?;
        let (digests, _) = broadcast::channel(DIGEST_QUEUE);
        target.attach(Digests(digests.clone()));
        let ports = Ports::new(target.pipes());
        let switch = Switch { target, schema, ports };
        Ok(Server(Arc::new(Shared { switch, clients: Clients::default(), digests, driver })))
    }

    /// Returns this server as a gRPC service.
    #[must_use]
    pub fn service(&self) -> BfRuntimeServer<Server> {
        BfRuntimeServer::new(self.clone())
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE)
    }

    /// Checks that the client has bound the program.
    fn check(&self, client_id: u32, program: &str) -> Result<(), Status> {
        self.0.clients.check_bound(client_id)?;
        let loaded = self.0.switch.target.program();
        if !program.is_empty() && program != loaded {
            return Err(Status::not_found(format!(
                "there is no program {program}; {loaded} is loaded"
            )));
        }
        Ok(())
    }

    fn check_device(device_id: u32) -> Result<(), Status> {
        match device_id {
            DEVICE => Ok(()),
            _ => Err(Status::not_found(format!("there is no device {device_id}"))),
        }
    }

    fn digest_list(&self, digest: &Digest, list_id: u32) -> Result<proto::DigestList, Fault> {
        let schema = &self.0.switch.schema;
        let filter = schema.filter(&digest.filter).map_err(fault(Code::Internal))?;
        let data = digest.entries.iter().map(|entry| {
            let fields = entry.iter().map(|(name, bytes)| {
                let field = filter.fields.iter().find(|field| field.name == *name);
                let field = field.ok_or_else(|| {
                    Fault::new(Code::Internal, format!("{} has no field {name}", filter.name))
                })?;
                field.kind.check(bytes).map_err(fault(Code::Internal))?;
                let value = Some(proto::data_field::Value::Stream(bytes.clone()));
                Ok(proto::DataField { field_id: field.id, value })
            });
            Ok(proto::TableData { action_id: 0, fields: fields.collect::<Result<_, Fault>>()? })
        });
        let data = data.collect::<Result<_, Fault>>()?;
        let target = Some(proto::TargetDevice {
            device_id: DEVICE,
            pipe_id: digest.pipe,
            direction: 0,
            prsr_id: 0xff,
        });
        Ok(proto::DigestList { digest_id: filter.id, list_id, data, target })
    }

    /// Serves the channel of one client until it disconnects.
    async fn channel(self, mut requests: Streaming<proto::StreamMessageRequest>, answers: Answers) {
        let first = match requests.message().await {
            Ok(Some(first)) => first,
            Ok(None) | Err(_) => return,
        };
        let (subscription, wants_digests) = match self.subscribe(&first) {
            Ok(subscribed) => subscribed,
            Err(status) => {
                let _ = answers.send(Err(status)).await;
                return;
            }
        };
        // Subscribe before answering, so that the client misses no digest.
        let mut digests = self.0.digests.subscribe();
        if answers.send(Ok(subscribed())).await.is_err() {
            return;
        }
        let mut list_id = 0;
        loop {
            tokio::select! {
                request = requests.message() => match request {
                    // Switches acknowledge digests themselves and ignore acknowledgements of
                    // clients.
                    Ok(Some(proto::StreamMessageRequest { update: Some(stream_message_request::Update::DigestAck(_)), .. })) => {}
                    Ok(Some(_)) => {
                        let _ = answers.send(Err(Status::already_exists("this channel has its subscription already"))).await;
                        return;
                    }
                    Ok(None) | Err(_) => return,
                },
                digest = digests.recv(), if wants_digests => {
                    let digest = match digest {
                        Ok(digest) => digest,
                        Err(broadcast::error::RecvError::Lagged(lost)) => {
                            tracing::warn!("a client is too slow for its digests; {lost} lists are lost to it");
                            continue;
                        }
                        Err(broadcast::error::RecvError::Closed) => return,
                    };
                    if !subscription.is_bound() {
                        continue;
                    }
                    list_id += 1;
                    let update = match self.digest_list(&digest, list_id) {
                        Ok(list) => proto::stream_message_response::Update::Digest(list),
                        Err(fault) => {
                            tracing::error!("a digest does not fit the schema: {fault}");
                            continue;
                        }
                    };
                    if answers.send(Ok(proto::StreamMessageResponse { update: Some(update) })).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn subscribe(
        &self,
        request: &proto::StreamMessageRequest,
    ) -> Result<(clients::Subscription, bool), Status> {
        let Some(stream_message_request::Update::Subscribe(subscribe)) = &request.update else {
            return Err(Status::failed_precondition(
                "the first message of a channel must subscribe",
            ));
        };
        Self::check_device(subscribe.device_id)?;
        let subscription = self.0.clients.subscribe(request.client_id)?;
        let wants_digests =
            subscribe.notifications.is_some_and(|wants| wants.enable_learn_notifications);
        Ok((subscription, wants_digests))
    }
}

type Answers = mpsc::Sender<Result<proto::StreamMessageResponse, Status>>;

fn subscribed() -> proto::StreamMessageResponse {
    let status = Some(proto::Status { code: Code::Ok.into(), ..proto::Status::default() });
    let subscribe = proto::Subscribe { device_id: DEVICE, status, ..proto::Subscribe::default() };
    proto::StreamMessageResponse {
        update: Some(proto::stream_message_response::Update::Subscribe(subscribe)),
    }
}

/// Returns the status of a batch that failed in part: one `Error` per update, as a
/// `google.rpc.Status`.
fn failed(outcomes: &[Result<(), Fault>]) -> Status {
    let errors = outcomes.iter().map(|outcome| match outcome {
        Ok(()) => proto::Error::default(),
        Err(fault) => {
            let (canonical_code, message) = (i32::from(fault.code), fault.message.clone());
            proto::Error { canonical_code, message, space: String::new(), code: 0 }
        }
    });
    let any = |error: proto::Error| proto::Any {
        type_url: "type.googleapis.com/bfrt_proto.Error".to_owned(),
        value: prost::Message::encode_to_vec(&error),
    };
    let failures = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    let message = match outcomes.iter().find_map(|outcome| outcome.as_ref().err()) {
        Some(first) => {
            format!("{failures} of {} updates failed; the first one: {first}", outcomes.len())
        }
        None => String::new(),
    };
    let details = proto::Status {
        code: Code::Unknown.into(),
        message: message.clone(),
        details: errors.map(any).collect(),
    };
    Status::with_details(Code::Unknown, message, prost::Message::encode_to_vec(&details).into())
}

#[tonic::async_trait]
impl BfRuntime for Server {
    async fn write(
        &self,
        request: Request<proto::WriteRequest>,
    ) -> Result<Response<proto::WriteResponse>, Status> {
        let request = request.into_inner();
        self.check(request.client_id, &request.p4_name)?;
        if request.updates.is_empty() {
            return Err(Status::invalid_argument("a write without updates"));
        }
        let outcomes = batch::run(&self.0.switch, &request);
        if let Some(driver) = &self.0.driver {
            let is_sync = |update: &&proto::Update| {
                matches!(
                    update.entity,
                    Some(proto::Entity { entity: Some(entity::Entity::TableOperation(_)) })
                )
            };
            let syncs = request.updates.iter().filter(is_sync).count() as u64;
            let updates = request.updates.len() as u64 - syncs;
            driver.take(Work { syncs, updates, completes: updates > 0, ..Work::default() }).await;
        }
        match outcomes.iter().any(Result::is_err) {
            true => Err(failed(&outcomes)),
            false => Ok(Response::new(proto::WriteResponse::default())),
        }
    }

    type ReadStream = ReceiverStream<Result<proto::ReadResponse, Status>>;

    async fn read(
        &self,
        request: Request<proto::ReadRequest>,
    ) -> Result<Response<Self::ReadStream>, Status> {
        let request = request.into_inner();
        self.check(request.client_id, &request.p4_name)?;
        if request.entities.is_empty() {
            return Err(Status::invalid_argument("a read without entities"));
        }
        let default = request.target.unwrap_or_default();
        let mut entities = Vec::new();
        let mut indices = 0;
        for entity in &request.entities {
            let answer = self.0.switch.answer(&default, entity)?;
            if self.0.switch.is_read_from_chip(entity) {
                indices += answer.len() as u64;
            }
            entities.extend(answer);
        }
        if let Some(driver) = &self.0.driver {
            driver.take(Work { indices, ..Work::default() }).await;
        }
        // Send one message even if it is empty: some clients read just one.
        let (sender, receiver) = mpsc::channel(1);
        let _ = sender.send(Ok(proto::ReadResponse { entities, status: Vec::new() })).await;
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<proto::SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<proto::SetForwardingPipelineConfigResponse>, Status> {
        let request = request.into_inner();
        Self::check_device(request.device_id)?;
        let action = Action::try_from(request.action)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        if action != Action::Bind {
            return Err(Status::unimplemented(
                "the program is loaded already and cannot be replaced; bind it",
            ));
        }
        let [config] = &request.config[..] else {
            return Err(Status::invalid_argument(format!(
                "one program can be bound, and not {}",
                request.config.len()
            )));
        };
        let loaded = self.0.switch.target.program();
        if config.p4_name != loaded {
            return Err(Status::not_found(format!(
                "there is no program {}; {loaded} is loaded",
                config.p4_name
            )));
        }
        self.0.clients.bind(request.client_id)?;
        Ok(Response::new(proto::SetForwardingPipelineConfigResponse::default()))
    }

    async fn get_forwarding_pipeline_config(
        &self,
        request: Request<proto::GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<proto::GetForwardingPipelineConfigResponse>, Status> {
        Self::check_device(request.into_inner().device_id)?;
        let target = &self.0.switch.target;
        let program = proto::ForwardingPipelineConfig {
            p4_name: target.program().to_owned(),
            bfruntime_info: target.schema().as_bytes().to_vec(),
            profiles: Vec::new(),
        };
        let fixed = proto::NonP4Config { bfruntime_info: fixed::SCHEMA.as_bytes().to_vec() };
        Ok(Response::new(proto::GetForwardingPipelineConfigResponse {
            config: vec![program],
            non_p4_config: Some(fixed),
        }))
    }

    type StreamChannelStream = ReceiverStream<Result<proto::StreamMessageResponse, Status>>;

    async fn stream_channel(
        &self,
        request: Request<Streaming<proto::StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        let (sender, receiver) = mpsc::channel(16);
        tokio::spawn(self.clone().channel(request.into_inner(), sender));
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}
