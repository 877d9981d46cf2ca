//! Model over BFRuntime, operated with the public client `rbfrt` like a switch by an operator's
//! script.

use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_testing::model::ServedSwitch;
use flowgauge_traffic::{Generator, Profile, Sources};
use rbfrt::SwitchConnection;
use rbfrt::register;
use rbfrt::table::{MatchValue, Request, TableOperation, ToBytes};

const HASH: &str = "Ingress.flowgauge.hash.src.ipv4_crc.compute";
const RANK: &str = "Ingress.flowgauge.cardinality_by_src.rank";
const REGISTERS: &str = "Ingress.flowgauge.cardinality_by_src.registers";
const FRAMES: &str = "Ingress.flowgauge.counters.frames";
const BANK: &str = "Ingress.flowgauge.bank";

fn served() -> ServedSwitch {
    ServedSwitch::new([("FLOWGAUGE_HASH", 0), ("FLOWGAUGE_PRECISION", 4)])
}

async fn operator(served: &ServedSwitch) -> SwitchConnection {
    let address = served.address();
    SwitchConnection::builder(&address.ip().to_string(), address.port())
        .client_id(1)
        .p4_name("flowgauge")
        .connect()
        .await
        .unwrap()
}

fn frames(number: u64) -> Vec<OwnedFrame> {
    let generator = Generator::new(Profile::new(Sources::Unique));
    let frame = |index| {
        let mut frame = generator.template().to_vec();
        generator.fill(index, &mut frame);
        OwnedFrame::ethernet(frame)
    };
    (0..number).map(frame).collect()
}

#[tokio::test]
async fn the_hash_unit_is_asked_before_it_is_trusted() {
    let served = served();
    let switch = operator(&served).await;
    let source = MatchValue::exact(u32::from_be_bytes([10, 0, 0, 1]));
    let answer = switch
        .get_table_entries(Request::new(HASH).match_key("hdr.ipv4.src_addr", source))
        .await
        .unwrap();
    assert_eq!(answer[0].get_action_data("hash_value").unwrap().as_u32(), 0xa757_b578);
}

#[tokio::test]
async fn tables_are_filled_packets_counted_and_registers_read() {
    let served = served();
    let switch = operator(&served).await;
    let level = |level: u8| {
        let value = 1_u32 << (28 - u32::from(level));
        Request::new(RANK)
            .match_key("rank_bits", MatchValue::lpm(value, i32::from(level)))
            .action("Ingress.flowgauge.cardinality_by_src.set_level")
            .action_data("level", level)
    };
    switch.write_table_entries((1..=28).map(level).collect::<Vec<_>>()).await.unwrap();
    let set = Request::new(BANK)
        .default(true)
        .action("Ingress.flowgauge.set_bank")
        .action_data("bank", 1_u8);
    switch.update_table_entry(set).await.unwrap();
    let forward =
        Request::new("Ingress.forward.ports").match_key("ingress_port", MatchValue::exact(128_u16));
    switch
        .write_table_entry(forward.action("Ingress.forward.send").action_data("port", 130_u16))
        .await
        .unwrap();

    let frames = frames(1000);
    let mut forwarded = 0;
    for (pipe, frame) in frames.iter().enumerate() {
        forwarded +=
            served.switch.enter().arrive(served.switch.port(pipe), &frame.bytes).unwrap().len();
    }
    assert_eq!(forwarded, 500, "of the second pipe's port");

    // The driver only learns the hardware's counts when a client requests it.
    let ipv4 = || Request::new(FRAMES).match_key("$COUNTER_INDEX", MatchValue::exact(8_u32));
    let packets = async || {
        let read = switch.get_table_entries(ipv4()).await.unwrap();
        read[0].get_action_data("$COUNTER_SPEC_PKTS").unwrap().as_u64()
    };
    assert_eq!(packets().await, 0);
    switch
        .execute_operation(Request::new(FRAMES).operation(TableOperation::SyncCounters))
        .await
        .unwrap();
    assert_eq!(packets().await, 1000);

    switch
        .execute_operation(Request::new(REGISTERS).operation(TableOperation::SyncRegister))
        .await
        .unwrap();
    let read = switch.get_register_entry(register::Request::new(REGISTERS)).await.unwrap();
    for index in 0..32 {
        let pipes = read
            .get(index)
            .unwrap()
            .get("Ingress.flowgauge.cardinality_by_src.registers.f1")
            .unwrap();
        assert_eq!(pipes.len(), 2);
        // A thousand sources leave none of 16 registers untouched; bank 0 did not count.
        assert!(
            pipes.iter().all(|level| (level.to_u32() > 0) == (index >= 16)),
            "{index}: {pipes:?}"
        );
    }

    let zero = register::Request::new(REGISTERS)
        .index(20)
        .data("Ingress.flowgauge.cardinality_by_src.registers.f1", 0_u8);
    switch.write_register_entry(zero).await.unwrap();
    let read =
        switch.get_register_entry(register::Request::new(REGISTERS).index(20)).await.unwrap();
    assert_eq!(
        read.get(20).unwrap().get("Ingress.flowgauge.cardinality_by_src.registers.f1").unwrap(),
        &[[0], [0]]
    );
    switch
        .update_table_entry(
            ipv4()
                .action_data("$COUNTER_SPEC_PKTS", 0_u64)
                .action_data("$COUNTER_SPEC_BYTES", 0_u64),
        )
        .await
        .unwrap();
    assert_eq!(packets().await, 0);
    switch.clear_table(RANK).await.unwrap();
    assert!(switch.get_table_entries(Request::new(RANK)).await.unwrap().is_empty());
}
