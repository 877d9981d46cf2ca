//! Server operated with the public client `rbfrt`, which shares no code with this crate.

use flowgauge_bfruntime::Match;
use flowgauge_bfruntime::server::{Digest, RunningServer};
use flowgauge_testing::memory::{Memory, number};
use flowgauge_testing::model::serve;
use rbfrt::SwitchConnection;
use rbfrt::error::RBFRTError;
use rbfrt::register;
use rbfrt::table::{MatchValue, Request, TableOperation, ToBytes};
use rbfrt::util::{FEC, Port, PortManager, Speed};
use std::sync::Arc;

const PROGRAM: &str = include_str!("program.json");

struct Lab {
    memory: Arc<Memory>,
    running: RunningServer,
}

fn lab(pipes: u32) -> Lab {
    // rbfrt 0.1.11 does not support actions that only entries may use, and rejects a schema with
    // them.
    let memory = Arc::new(Memory::new(&PROGRAM.replace("TableOnly", "TableAndDefault"), pipes));
    let running = serve(memory.clone());
    Lab { memory, running }
}

impl Lab {
    async fn connect(&self, client: u32, program: &str) -> Result<SwitchConnection, RBFRTError> {
        let address = self.running.address();
        SwitchConnection::builder(&address.ip().to_string(), address.port())
            .client_id(client)
            .p4_name(program)
            .connect()
            .await
    }

    async fn operator(&self) -> SwitchConnection {
        self.connect(1, "flowgauge").await.unwrap()
    }
}

/// Request for the entry of a port in table `forward`.
fn forward(port: u16) -> Request {
    Request::new("Ingress.forward").match_key("ingress_port", MatchValue::exact(port))
}

/// Checks that a call fails, and what its text and details contain.
#[track_caller]
fn assert_fails<T>(result: Result<T, RBFRTError>, expected: &[&str]) {
    let failed = match result {
        Ok(_) => panic!("it succeeded"),
        Err(RBFRTError::GRPCError { message, details }) => format!("{message} | {details}"),
        Err(other) => other.to_string(),
    };
    assert!(expected.iter().all(|part| failed.contains(part)), "{failed}, not {expected:?}");
}

#[tokio::test]
async fn entries_are_written_read_changed_and_deleted() {
    let lab = lab(2);
    let switch = lab.operator().await;
    let names = ["Ingress.forward", "$PORT", "Ingress.nothing"];
    assert_eq!(names.map(|name| switch.has_table(name)), [true, true, false]);

    let entry = |port: u16, to: u16| forward(port).action("Ingress.send").action_data("port", to);
    switch.write_table_entries(vec![entry(256, 9), entry(1, 10)]).await.unwrap();
    let read = switch.get_table_entries(forward(256)).await.unwrap();
    assert_eq!(read.len(), 1);
    assert_eq!(read[0].get_action_name(), "Ingress.send");
    assert_eq!(read[0].get_action_data("port").unwrap().get_data(), &[0, 9]);

    switch.update_table_entry(entry(256, 511)).await.unwrap();
    let all = switch.get_table_entries(Request::new("Ingress.forward")).await.unwrap();
    let mut all: Vec<(u32, u32)> = all
        .iter()
        .map(|entry| {
            let port = entry.get_key("ingress_port").unwrap().get_exact_value().to_u32();
            (port, entry.get_action_data("port").unwrap().as_u32())
        })
        .collect();
    all.sort_unstable();
    assert_eq!(all, [(1, 10), (256, 511)]);

    switch.delete_table_entry(forward(1)).await.unwrap();
    assert_eq!(lab.memory.state().entries["pipe.Ingress.forward"].len(), 1);
    switch.clear_table("Ingress.forward").await.unwrap();
    assert!(switch.get_table_entries(Request::new("Ingress.forward")).await.unwrap().is_empty());
}

#[tokio::test]
async fn ternary_and_range_keys_have_their_priority() {
    let lab = lab(1);
    let switch = lab.operator().await;
    let request = Request::new("Ingress.delay.admission")
        .match_key("hash", MatchValue::ternary(0x0ab_u16, 0x0ff_u16))
        .match_key("port", MatchValue::range(3_u16, 300_u16))
        .match_key("$MATCH_PRIORITY", MatchValue::exact(7_u32))
        .action("Ingress.delay.admit");
    switch.write_table_entry(request).await.unwrap();
    let state = lab.memory.state();
    let key = state.entries["pipe.Ingress.delay.admission"].keys().next().unwrap();
    assert_eq!(key["hash"], Match::Ternary { value: vec![0, 0xab], mask: vec![0, 0xff] });
    assert_eq!(key["port"], Match::Range { low: vec![0, 3], high: vec![1, 0x2c] });
    assert_eq!(key["$MATCH_PRIORITY"], Match::Exact(vec![0, 0, 0, 7]));
}

#[tokio::test]
async fn the_default_action_is_set_and_read() {
    let lab = lab(1);
    let switch = lab.operator().await;
    let set = |bank: u8| {
        Request::new("Ingress.bank").default(true).action("Ingress.set_bank").action_data("b", bank)
    };
    switch.update_table_entry(set(1)).await.unwrap();
    let read = switch.get_table_entries(Request::new("Ingress.bank").default(true)).await.unwrap();
    assert!(read[0].default_entry);
    assert_eq!(read[0].get_action_data("b").unwrap().get_data(), &[1]);
    let entry = Request::new("Ingress.delay.admission")
        .match_key("hash", MatchValue::ternary(0_u16, 0_u16))
        .action("Ingress.delay.ignore");
    let refused = switch.write_table_entry(entry).await;
    assert_fails(refused, &["Ingress.delay.ignore can only be a default action"]);
}

#[tokio::test]
async fn registers_come_once_for_each_pipe_and_the_driver_has_them_after_a_sync() {
    let lab = lab(3);
    let switch = lab.operator().await;
    let name = "Ingress.regs";
    let seven = register::Request::new(name).index(5).data("Ingress.regs.f1", 7_u8);
    switch.write_register_entry(seven).await.unwrap();
    // The driver does not see by itself what packets write in the second pipe.
    lab.memory.state().hardware.get_mut("pipe.Ingress.regs").unwrap()[1][5]
        .insert("Ingress.regs.f1".to_owned(), vec![9]);
    let read = || async {
        let register =
            switch.get_register_entry(register::Request::new(name).index(5)).await.unwrap();
        register.get(5).unwrap().get("Ingress.regs.f1").unwrap().clone()
    };
    assert_eq!(read().await, [[7], [7], [7]]);
    let sync = Request::new(name).operation(TableOperation::SyncRegister);
    switch.execute_operation(sync).await.unwrap();
    assert_eq!(read().await, [[7], [9], [7]]);
    let all = switch.get_register_entry(register::Request::new(name)).await.unwrap();
    assert_eq!(all.entries().len(), 16);
    assert_eq!(all.get(5).unwrap().get("Ingress.regs.f1").unwrap(), &[[7], [9], [7]]);

    let one = Request::new(name).match_key("$REGISTER_INDEX", MatchValue::exact(5_u32)).pipe(1);
    let entries = switch.get_table_entries(one).await.unwrap();
    assert_eq!(entries[0].action_data.len(), 1);
    assert_eq!(entries[0].get_action_data("Ingress.regs.f1").unwrap().get_data(), &[9]);
    let none = switch.get_table_entries(Request::new(name).pipe(3)).await;
    assert_fails(none, &["there is no pipe 3; the device has 3"]);
    let beyond = switch.get_register_entry(register::Request::new(name).index(16)).await;
    assert_fails(beyond, &["there is no index 16 below its size, 16"]);
}

#[tokio::test]
async fn pairs_and_counters_are_read_and_written() {
    let lab = lab(2);
    let switch = lab.operator().await;
    let pair = register::Request::new("Ingress.delay.regs").index(3);
    let pair =
        pair.data("Ingress.delay.regs.lo", 0x0102_0304_u32).data("Ingress.delay.regs.hi", 5_u32);
    switch.write_register_entry(pair).await.unwrap();
    let read = register::Request::new("Ingress.delay.regs").index(3);
    let read = switch.get_register_entry(read).await.unwrap();
    let pair = read.get(3).unwrap();
    assert_eq!(pair.get("Ingress.delay.regs.lo").unwrap(), &[[1, 2, 3, 4]; 2]);
    assert_eq!(pair.get("Ingress.delay.regs.hi").unwrap(), &[[0, 0, 0, 5]; 2]);

    for pipe in 0..2 {
        let packets = 10_u64.to_be_bytes().to_vec();
        lab.memory.state().hardware.get_mut("pipe.Ingress.cnt").unwrap()[pipe][1]
            .insert("$COUNTER_SPEC_PKTS".to_owned(), packets);
    }
    let sync = |table: &str| Request::new(table).operation(TableOperation::SyncCounters);
    switch.execute_operation(sync("Ingress.cnt")).await.unwrap();
    let one = || Request::new("Ingress.cnt").match_key("$COUNTER_INDEX", MatchValue::exact(1_u32));
    let read = switch.get_table_entries(one()).await.unwrap();
    assert_eq!(read[0].get_action_data("$COUNTER_SPEC_PKTS").unwrap().as_u64(), 20);
    let zero =
        one().action_data("$COUNTER_SPEC_PKTS", 0_u64).action_data("$COUNTER_SPEC_BYTES", 0_u64);
    switch.update_table_entry(zero).await.unwrap();
    let left = number(&lab.memory.state().hardware["pipe.Ingress.cnt"][1][1]["$COUNTER_SPEC_PKTS"]);
    assert_eq!(left, 0);
    let refused = switch.execute_operation(sync("Ingress.rank")).await;
    assert_fails(refused, &["pipe.Ingress.rank has no operation SyncCounters; it has: none"]);
}

#[tokio::test]
async fn every_update_of_a_batch_is_tried_and_each_failure_told() {
    let lab = lab(1);
    let switch = lab.operator().await;
    let entry = |port: u16| forward(port).action("Ingress.drop");
    let failed = switch.write_table_entries([1, 1, 2, 3, 4].map(entry).into()).await;
    let first = "2 of 5 updates failed; the first one: Already exists";
    assert_fails(failed, &[first, "the table holds 3 entries already"]);
    assert_eq!(lab.memory.state().entries["pipe.Ingress.forward"].len(), 3);
}

#[tokio::test]
async fn ports_are_configured_by_their_names_on_the_front_panel() {
    let lab = lab(2);
    let switch = lab.operator().await;
    let manager = PortManager::new(&switch).await;
    assert_eq!(manager.dev_port(1, 0).unwrap(), 0);
    assert_eq!(manager.dev_port(17, 2).unwrap(), 130);
    let port = Port::new(17, 2).speed(Speed::BF_SPEED_100G).fec(FEC::BF_FEC_TYP_REED_SOLOMON);
    manager.add_port(&switch, &port).await.unwrap();
    let ports = manager.get_ports(&switch).await.unwrap();
    assert_eq!(ports.len(), 1);
    assert_eq!(
        (ports[0].get_dev_port(), ports[0].get_speed(), ports[0].get_status()),
        (Some(130), &Speed::BF_SPEED_100G, true)
    );
    let again = manager.add_port(&switch, &port).await;
    assert_fails(again, &["port 130 is configured already"]);
    manager.disable_port(&switch, &port).await.unwrap();
    assert!(!manager.get_ports(&switch).await.unwrap()[0].get_status());
    manager.delete_port(&switch, &port).await.unwrap();
    assert!(manager.get_ports(&switch).await.unwrap().is_empty());
    assert_eq!(lab.memory.state().ports, [(130, true), (130, false), (130, false)]);
}

#[tokio::test]
async fn digests_arrive() {
    let lab = lab(1);
    let switch = lab.operator().await;
    let digests = lab.memory.state().digests.clone().unwrap();
    let entry = |delay: u32| {
        vec![("delay".to_owned(), delay.to_be_bytes().to_vec()), ("kind".to_owned(), vec![2])]
    };
    let (filter, entries) = ("pipe.IgDeparser.digest".to_owned(), vec![entry(10), entry(20)]);
    digests.send(Digest { filter, pipe: 0, entries });
    // Waiting on the queue would block the runtime that fills it.
    let queue = switch.digest_queue.clone();
    let received =
        tokio::task::spawn_blocking(move || [queue.recv().unwrap(), queue.recv().unwrap()])
            .await
            .unwrap();
    let delays = received.map(|digest| {
        (digest.name.clone(), digest.data["delay"].to_u32(), digest.data["kind"].clone())
    });
    let name = "pipe.IgDeparser.digest".to_owned();
    assert_eq!(delays, [(name.clone(), 10, vec![2]), (name, 20, vec![2])]);
}

#[tokio::test]
async fn clients_need_a_number_of_their_own_and_a_program_that_is_loaded_and_free() {
    let lab = lab(1);
    let first = lab.operator().await;
    for (client, program, expected) in [
        (1, "flowgauge", "closed before the subscription was confirmed"),
        (2, "flowgauge", "the program is bound to client 1"),
        (3, "other", "there is no program other; flowgauge is loaded"),
    ] {
        assert_fails(lab.connect(client, program).await, &[expected]);
    }
    let answer = first.get_table_entries(Request::new("Ingress.rank")).await;
    assert!(answer.is_ok(), "the first is still served");
}
