//! Requests that the public client never sends, message by message.

use flowgauge_bfruntime::codec;
use flowgauge_bfruntime::proto::bf_runtime_client::BfRuntimeClient;
use flowgauge_bfruntime::proto::write_request::Atomicity;
use flowgauge_bfruntime::proto::{
    self, entity, stream_message_request, stream_message_response, update,
};
use flowgauge_bfruntime::server::RunningServer;
use flowgauge_bfruntime::{Data, Entry, EntryTarget, Key, Match, Schema};
use flowgauge_testing::memory::{Memory, number};
use flowgauge_testing::model::serve;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

const PROGRAM: &str = include_str!("program.json");

struct Lab {
    memory: Arc<Memory>,
    running: RunningServer,
    schema: Schema,
}

struct Client {
    rpc: BfRuntimeClient<Channel>,
    id: u32,
    schema: Schema,
    requests: mpsc::Sender<proto::StreamMessageRequest>,
    answers: Streaming<proto::StreamMessageResponse>,
}

fn lab(pipes: u32) -> Lab {
    let memory = Arc::new(Memory::new(PROGRAM, pipes));
    let running = serve(memory.clone());
    Lab { memory, running, schema: Schema::parse(PROGRAM.as_bytes()).unwrap() }
}

fn subscribe(client_id: u32, device_id: u32) -> proto::StreamMessageRequest {
    let device = proto::Subscribe { device_id, ..Default::default() };
    let update = Some(stream_message_request::Update::Subscribe(device));
    proto::StreamMessageRequest { client_id, update }
}

impl Lab {
    async fn rpc(&self) -> BfRuntimeClient<Channel> {
        BfRuntimeClient::connect(format!("http://{}", self.running.address())).await.unwrap()
    }

    async fn channel(&self, first: proto::StreamMessageRequest) -> Result<Client, Status> {
        let mut rpc = self.rpc().await;
        let (requests, receiver) = mpsc::channel(4);
        let id = first.client_id;
        requests.send(first).await.unwrap();
        let mut answers = rpc.stream_channel(ReceiverStream::new(receiver)).await?.into_inner();
        match answers.message().await?.and_then(|answer| answer.update) {
            Some(stream_message_response::Update::Subscribe(answer)) => {
                assert_eq!(answer.status.unwrap().code, 0)
            }
            other => panic!("{other:?}"),
        }
        Ok(Client { rpc, id, schema: self.schema.clone(), requests, answers })
    }

    /// Sets a register as packets do.
    fn count_in_second_pipe(&self, index: usize, value: u8) {
        self.memory.state().hardware.get_mut("pipe.Ingress.regs").unwrap()[1][index]
            .insert("Ingress.regs.f1".to_owned(), vec![value]);
    }

    async fn bound(&self) -> Client {
        let mut client = self.channel(subscribe(1, 0)).await.unwrap();
        client.bind(&["flowgauge"]).await.unwrap();
        client
    }
}

fn everywhere() -> Option<proto::TargetDevice> {
    Some(proto::TargetDevice { device_id: 0, pipe_id: 0xffff, direction: 0xff, prsr_id: 0xff })
}

fn wrap(entry: proto::TableEntry) -> proto::Entity {
    proto::Entity { entity: Some(entity::Entity::TableEntry(entry)) }
}

fn update(kind: update::Type, entry: proto::TableEntry) -> proto::Update {
    proto::Update { r#type: kind.into(), entity: Some(wrap(entry)) }
}

fn exact(name: &str, value: &[u8]) -> Key {
    [(name.to_owned(), Match::Exact(value.to_vec()))].into()
}

impl Client {
    async fn bind(&mut self, programs: &[&str]) -> Result<(), Status> {
        let config = |name: &&str| {
            let p4_name = (*name).to_owned();
            proto::ForwardingPipelineConfig { p4_name, ..Default::default() }
        };
        let (client_id, config) = (self.id, programs.iter().map(config).collect());
        let request =
            proto::SetForwardingPipelineConfigRequest { client_id, config, ..Default::default() };
        self.rpc.set_forwarding_pipeline_config(request).await.map(drop)
    }

    async fn write(
        &mut self,
        atomicity: Atomicity,
        updates: Vec<proto::Update>,
    ) -> Result<(), Status> {
        let request = proto::WriteRequest {
            target: everywhere(),
            client_id: self.id,
            updates,
            atomicity: atomicity.into(),
            ..Default::default()
        };
        self.rpc.write(request).await.map(drop)
    }

    async fn read(
        &mut self,
        entities: Vec<proto::Entity>,
    ) -> Result<Vec<proto::TableEntry>, Status> {
        let request = proto::ReadRequest {
            target: everywhere(),
            client_id: self.id,
            entities,
            ..Default::default()
        };
        let mut stream = self.rpc.read(request).await?.into_inner();
        let mut entries = Vec::new();
        while let Some(message) = stream.message().await? {
            entries.extend(message.entities.into_iter().map(|entity| match entity.entity {
                Some(entity::Entity::TableEntry(entry)) => entry,
                other => panic!("{other:?}"),
            }));
        }
        Ok(entries)
    }

    fn entry(&self, table: &str, key: Key, data: Data) -> proto::TableEntry {
        let table = self.schema.table(table).unwrap();
        codec::encode_entry(table, &Entry { place: EntryTarget::Key(key), data }).unwrap()
    }

    fn update(&self, kind: update::Type, table: &str, key: Key, data: Data) -> proto::Update {
        update(kind, self.entry(table, key, data))
    }

    fn forward(&self, kind: update::Type, port: u8, to: u8) -> proto::Update {
        let data = Data::action("send", [("port", vec![0, to])]);
        self.update(kind, "forward", exact("ingress_port", &[0, port]), data)
    }

    fn register(&self, index: u8, value: u8) -> proto::Update {
        let key = exact("$REGISTER_INDEX", &[0, 0, 0, index]);
        let data = Data::fields([("Ingress.regs.f1", vec![value])]);
        self.update(update::Type::Modify, "Ingress.regs", key, data)
    }

    fn bank(&self, bank: u8) -> proto::Update {
        let table = self.schema.table("bank").unwrap();
        let data = Data::action("set_bank", [("b", vec![bank])]);
        let entry = Entry { place: EntryTarget::Default, data };
        update(update::Type::Modify, codec::encode_entry(table, &entry).unwrap())
    }
}

/// Returns the codes of all updates of a failed batch.
fn codes(status: &Status) -> Vec<Code> {
    assert_eq!(status.code(), Code::Unknown, "{status}");
    let details: proto::Status = prost::Message::decode(status.details()).unwrap();
    let code = |any: &proto::Any| {
        assert_eq!(any.type_url, "type.googleapis.com/bfrt_proto.Error");
        let error: proto::Error = prost::Message::decode(&any.value[..]).unwrap();
        assert_eq!(error.canonical_code == 0, error.message.is_empty());
        Code::from(error.canonical_code)
    };
    details.details.iter().map(code).collect()
}

/// Returns everything that the switch stores.
fn contents(lab: &Lab) -> String {
    let state = lab.memory.state();
    let forward = state.entries.get("pipe.Ingress.forward").into_iter().flatten();
    let mut forward: Vec<String> = forward.map(|entry| format!("{entry:?}")).collect();
    forward.sort();
    let bank = state.defaults.get("pipe.Ingress.bank");
    format!("{forward:?} {bank:?} {:?}", state.hardware["pipe.Ingress.regs"])
}

#[tokio::test]
async fn a_batch_goes_on_after_errors_and_tells_each() {
    let lab = lab(1);
    let mut client = lab.bound().await;
    let insert = |port, to| client.forward(update::Type::Insert, port, to);
    let missing = client.forward(update::Type::Modify, 9, 1);
    let batch = vec![insert(1, 1), insert(1, 2), insert(2, 1), missing, client.bank(1)];
    let status = client.write(Atomicity::ContinueOnError, batch).await.unwrap_err();
    assert_eq!(codes(&status), [Code::Ok, Code::AlreadyExists, Code::Ok, Code::NotFound, Code::Ok]);
    let state = lab.memory.state();
    assert_eq!(state.entries["pipe.Ingress.forward"].len(), 2);
    assert_eq!(state.defaults["pipe.Ingress.bank"].bytes("b"), Some(&[1][..]));
}

#[tokio::test]
async fn a_batch_that_is_all_or_none_leaves_no_trace_of_its_beginning() {
    let lab = lab(2);
    let mut client = lab.bound().await;
    let modify = update::Type::Modify;
    let first = vec![
        client.forward(update::Type::Insert, 1, 1),
        client.forward(update::Type::Insert, 2, 2),
        client.register(3, 3),
    ];
    client.write(Atomicity::ContinueOnError, first).await.unwrap();
    // Undoing a write does not make different pipes equal.
    lab.count_in_second_pipe(3, 9);
    let before = contents(&lab);
    let clear = |table: &str| {
        let table_id = lab.schema.table(table).unwrap().id;
        update(update::Type::Delete, proto::TableEntry { table_id, ..Default::default() })
    };
    for atomicity in [Atomicity::RollbackOnError, Atomicity::DataplaneAtomic] {
        let batch = vec![
            client.forward(modify, 1, 7),
            client.forward(update::Type::Delete, 2, 0),
            client.forward(update::Type::Insert, 3, 3),
            client.forward(update::Type::InsertOrModify, 3, 4),
            client.forward(update::Type::InsertOrModify, 4, 4),
            client.register(3, 5),
            client.register(3, 6),
            client.bank(1),
            clear("forward"),
            clear("Ingress.regs"),
            client.forward(modify, 200, 1),
            client.forward(update::Type::Insert, 5, 5),
        ];
        let status = client.write(atomicity, batch).await.unwrap_err();
        let mut expected = [Code::Aborted; 12];
        expected[10] = Code::NotFound;
        assert_eq!(codes(&status), expected);
        assert_eq!(contents(&lab), before, "{atomicity:?}");
    }
    assert!(!lab.memory.state().paused && lab.memory.state().written_while_paused > 0);
    lab.memory.state().written_while_paused = 0;
    let batch = vec![client.forward(modify, 1, 7), client.register(3, 5), client.bank(1)];
    client.write(Atomicity::DataplaneAtomic, batch).await.unwrap();
    assert!(contents(&lab) != before && lab.memory.state().written_while_paused == 3);
}

#[tokio::test]
async fn only_clients_that_are_subscribed_and_bound_read_and_write() {
    let lab = lab(1);
    let mut stranger = lab.rpc().await;
    let entities = vec![proto::Entity::default()];
    let request = proto::ReadRequest { client_id: 5, entities, ..Default::default() };
    assert_eq!(stranger.read(request).await.unwrap_err().code(), Code::Unavailable);
    let mut client = lab.channel(subscribe(5, 0)).await.unwrap();
    let update = client.bank(1);
    let unbound = client.write(Atomicity::ContinueOnError, vec![update.clone()]).await.unwrap_err();
    assert_eq!(unbound.code(), Code::FailedPrecondition);
    assert_eq!(unbound.message(), "client 5 has not bound the program; do that first");
    assert_eq!(client.bind(&[]).await.unwrap_err().code(), Code::InvalidArgument);
    let twice = client.bind(&["flowgauge", "flowgauge"]).await.unwrap_err();
    assert_eq!(twice.code(), Code::InvalidArgument);
    assert_eq!(client.bind(&["other"]).await.unwrap_err().code(), Code::NotFound);
    client.bind(&["flowgauge"]).await.unwrap();
    client.write(Atomicity::ContinueOnError, vec![update.clone()]).await.unwrap();

    // The subscription ends with its channel, and the binding with it.
    let Client { requests, mut answers, .. } = client;
    drop(requests);
    assert!(answers.message().await.unwrap().is_none());
    let mut next = lab.channel(subscribe(6, 0)).await.unwrap();
    next.bind(&["flowgauge"]).await.unwrap();
}

#[tokio::test]
async fn channels_begin_with_one_subscription_to_a_device_that_is_there() {
    let lab = lab(1);
    let refused = lab.channel(subscribe(1, 3)).await.err().unwrap();
    assert_eq!((refused.code(), refused.message()), (Code::NotFound, "there is no device 3"));
    let ack = Some(stream_message_request::Update::DigestAck(proto::DigestListAck::default()));
    let first = proto::StreamMessageRequest { client_id: 1, update: ack.clone() };
    assert_eq!(lab.channel(first.clone()).await.err().unwrap().code(), Code::FailedPrecondition);
    let mut client = lab.channel(subscribe(1, 0)).await.unwrap();
    client.requests.send(first).await.unwrap();
    client.requests.send(subscribe(1, 0)).await.unwrap();
    assert_eq!(client.answers.message().await.unwrap_err().code(), Code::AlreadyExists);
}

#[tokio::test]
async fn reads_take_their_source_and_may_leave_out_data() {
    let lab = lab(2);
    let client = lab.bound().await;
    lab.count_in_second_pipe(2, 4);
    let table_id = client.schema.table("Ingress.regs").unwrap().id;
    let values = |entries: Vec<proto::TableEntry>| -> Vec<Vec<u8>> {
        let table = client.schema.table_by_id(table_id).unwrap();
        let entry = codec::decode_entry(table, &entries[2]).unwrap();
        let bytes = |(_, value)| match value {
            flowgauge_bfruntime::Value::Bytes(bytes) => bytes,
            other => panic!("{other:?}"),
        };
        entry.data.fields.into_iter().map(bytes).collect()
    };
    let all = |from_hw, key_only| {
        let table_flags = Some(proto::TableFlags { from_hw, key_only, ..Default::default() });
        vec![wrap(proto::TableEntry { table_id, table_flags, ..Default::default() })]
    };
    let mut rpc = Client { id: client.id, ..lab.channel(subscribe(99, 0)).await.unwrap() };
    assert_eq!(values(rpc.read(all(false, false)).await.unwrap()), [[0], [0]]);
    assert_eq!(values(rpc.read(all(true, false)).await.unwrap()), [[0], [4]]);
    let keys = rpc.read(all(true, true)).await.unwrap();
    assert_eq!(keys.len(), 16);
    assert!(keys.iter().all(|entry| entry.data.is_none() && entry.value.is_some()));
    // One request for all indices of a bank.
    let wanted = (4..8).map(|index| {
        let key = exact("$REGISTER_INDEX", &[0, 0, 0, index]);
        let entry = client.entry("Ingress.regs", key, Data::default());
        wrap(proto::TableEntry { data: None, ..entry })
    });
    assert_eq!(rpc.read(wanted.collect()).await.unwrap().len(), 4);
    let entry = rpc.read(all(true, false)).await.unwrap().swap_remove(0);
    assert_eq!(entry.entry_tgt.unwrap().pipe_id, 0xffff);
}

#[tokio::test]
async fn requests_that_make_no_sense_are_refused_by_code() {
    let lab = lab(2);
    let mut client = lab.bound().await;
    let table = |name: &str| client.schema.table(name).unwrap().id;
    let write = |kind: update::Type, entry: proto::TableEntry| vec![update(kind, entry)];
    let insert = |entry| write(update::Type::Insert, entry);
    let send = Data::action("send", [("port", vec![0, 1])]);
    let one = client.entry("forward", exact("ingress_port", &[0, 1]), send);
    let register =
        client.entry("Ingress.regs", exact("$REGISTER_INDEX", &[0, 0, 0, 1]), Data::default());
    let operation = |table_id, name: &str| {
        let operation = proto::TableOperation { table_id, table_operations_type: name.to_owned() };
        let entity = proto::Entity { entity: Some(entity::Entity::TableOperation(operation)) };
        vec![proto::Update { r#type: 1, entity: Some(entity) }]
    };
    let tgt =
        |device_id, pipe_id| Some(proto::TargetDevice { device_id, pipe_id, ..Default::default() });
    let handle = Some(proto::table_entry::Value::HandleId(1));
    let cases = [
        (vec![proto::Update { r#type: 1, entity: None }], Code::InvalidArgument),
        (write(update::Type::Unspecified, one.clone()), Code::InvalidArgument),
        (write(update::Type::ModifyInc, one.clone()), Code::Unimplemented),
        (write(update::Type::Reset, one.clone()), Code::InvalidArgument),
        (insert(proto::TableEntry { table_id: 1, ..one.clone() }), Code::NotFound),
        (insert(proto::TableEntry { value: None, ..one.clone() }), Code::InvalidArgument),
        (insert(proto::TableEntry { value: handle, ..one.clone() }), Code::Unimplemented),
        (insert(proto::TableEntry { data: None, ..one.clone() }), Code::InvalidArgument),
        (insert(proto::TableEntry { entry_tgt: tgt(1, 0xffff), ..one.clone() }), Code::NotFound),
        (insert(proto::TableEntry { entry_tgt: tgt(0, 2), ..one.clone() }), Code::InvalidArgument),
        (write(update::Type::Delete, register), Code::InvalidArgument),
        (operation(table("Ingress.regs"), "Polish"), Code::InvalidArgument),
        (operation(table("forward"), "Sync"), Code::InvalidArgument),
        (operation(1, "Sync"), Code::NotFound),
    ];
    for (index, (updates, code)) in cases.into_iter().enumerate() {
        let status = client.write(Atomicity::ContinueOnError, updates).await.unwrap_err();
        assert_eq!(codes(&status), [code], "{index}: {status}");
    }
    assert_eq!(lab.memory.state().writes, 0);
    let nothing = client.write(Atomicity::ContinueOnError, vec![]).await.unwrap_err();
    assert_eq!(nothing.code(), Code::InvalidArgument);
    let attribute = entity::Entity::TableAttribute(proto::TableAttribute::default());
    let missing = proto::TableEntry { data: None, ..one };
    let reads = [
        (vec![], Code::InvalidArgument),
        (vec![proto::Entity::default()], Code::InvalidArgument),
        (vec![proto::Entity { entity: Some(attribute) }], Code::Unimplemented),
        (vec![wrap(missing)], Code::NotFound),
    ];
    for (index, (entities, code)) in reads.into_iter().enumerate() {
        assert_eq!(client.read(entities).await.unwrap_err().code(), code, "read {index}");
    }
}

#[tokio::test]
async fn one_pipe_can_be_written_alone() {
    let lab = lab(3);
    let mut client = lab.bound().await;
    let mut update = client.register(7, 5);
    if let Some(entity::Entity::TableEntry(entry)) = &mut update.entity.as_mut().unwrap().entity {
        entry.entry_tgt = Some(proto::TargetDevice { pipe_id: 1, ..Default::default() });
    }
    client.write(Atomicity::ContinueOnError, vec![update]).await.unwrap();
    let state = lab.memory.state();
    let values: Vec<u64> = state.hardware["pipe.Ingress.regs"]
        .iter()
        .map(|pipe| number(&pipe[7]["Ingress.regs.f1"]))
        .collect();
    assert_eq!(values, [0, 5, 0]);
}
