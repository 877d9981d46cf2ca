//! The schema, object by object. `compiler.rs` compares it with the one that the chip's compiler writes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
#![allow(unreachable_pub, reason = "nothing is reachable in a test binary")]

mod common;

use common::program;
use flowgauge_p4_model::{Model, Options, identifier};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

fn by_name(list: &Value) -> BTreeMap<&str, &Value> {
    list.as_array().unwrap().iter().map(|one| (one["name"].as_str().unwrap(), one)).collect()
}

/// Ids as the compiler gave them to these names.
#[test]
fn ids_are_hashes_of_names() {
    assert_eq!(identifier(0x02, "pipe.Ingress.forward"), 46_508_348);
    assert_eq!(identifier(0x01, "Ingress.fwd"), 25_051_181);
    assert_eq!(identifier(0x8b, "pipe.Ingress.regs"), 2_332_916_721);
    assert_eq!(identifier(0x83, "pipe.Ingress.cnt"), 2_214_419_352);
}

#[test]
fn of_a_small_program() {
    let locals = "action set(bit<8> level) { md.small = level; }
        table rank { key = { hdr.io.a[20:0] : lpm @name(\"w\"); } actions = { set; } default_action = set(22); size = 32; }
        table masks { key = { hdr.io.b : ternary; } actions = { NoAction; } const entries = { 1 : NoAction(); } size = 8; }
        Register<bit<8>, bit<4>>(16, 0) levels;
        Counter<bit<64>, bit<1>>(2, CounterType_t.BYTES) octets;";
    let mut program = program(locals, "rank.apply(); masks.apply();");
    program.declarations += "\nstruct digest_t { bit<32> who; }";
    program.deparser_locals = "Digest<digest_t>() report;".to_owned();
    let schema = program.model().schema();
    let tables = by_name(&schema["tables"]);

    let rank = tables["pipe.Ingress.rank"];
    assert_eq!(rank["table_type"], "MatchAction_Direct");
    assert_eq!(rank["key"][0]["match_type"], "LPM");
    assert_eq!(rank["key"][0]["name"], "w");
    assert_eq!(rank["key"][0]["type"], json!({"type": "bytes", "width": 21}));
    assert_eq!(rank["action_specs"][0]["name"], "Ingress.set");
    assert_eq!(rank["action_specs"][0]["data"][0]["type"]["width"], 8);
    assert_eq!(tables["pipe.Ingress.masks"]["key"][1]["name"], "$MATCH_PRIORITY");
    assert_eq!(tables["pipe.Ingress.masks"]["attributes"], json!(["EntryScope", "ConstTable"]));
    assert_eq!(tables["pipe.Ingress.levels"]["data"][0]["singleton"]["name"], "Ingress.levels.f1");
    assert_eq!(tables["pipe.Ingress.levels"]["key"][0]["name"], "$REGISTER_INDEX");
    assert_eq!(tables["pipe.Ingress.octets"]["data"].as_array().unwrap().len(), 1);
    assert_eq!(tables["pipe.Ingress.octets"]["data"][0]["singleton"]["name"], "$COUNTER_SPEC_BYTES");
    assert_eq!(tables["pipe.In.$PORT_METADATA"]["key"][0]["name"], "im.ingress_port");
    assert_eq!(schema["learn_filters"][0]["name"], "pipe.Out.report");
}

/// Names that the controller relies on.
#[test]
fn of_flowgauge() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../flowgauge.p4");
    let schema = Model::flowgauge(&Options::default()).unwrap().schema();
    assert_eq!(schema, Model::from_file(&source, &Options::default()).unwrap().schema(), "built in and on disk");
    let names: Vec<&str> = by_name(&schema["tables"]).into_keys().collect();
    assert_eq!(
        names,
        [
            "pipe.Ingress.flowgauge.bank",
            "pipe.Ingress.flowgauge.cardinality.rank",
            "pipe.Ingress.flowgauge.cardinality.registers",
            "pipe.Ingress.flowgauge.counters.classify",
            "pipe.Ingress.flowgauge.counters.frames",
            "pipe.Ingress.flowgauge.hash.ipv4_crc.compute",
            "pipe.Ingress.flowgauge.hash.ipv6_crc.compute",
            "pipe.Ingress.flowgauge.hash.tabulation0",
            "pipe.Ingress.flowgauge.hash.tabulation1",
            "pipe.Ingress.flowgauge.hash.tabulation2",
            "pipe.Ingress.flowgauge.hash.tabulation3",
            "pipe.Ingress.flowgauge.hash.xor_words.compute",
            "pipe.Ingress.forward.ports",
            "pipe.IngressParser.$PORT_METADATA",
        ]
    );
}

#[test]
fn settings_outside_their_range_are_refused() {
    for (name, value, because) in [
        ("FLOWGAUGE_PRECISION", "3", "not in 4 to 16"),
        ("FLOWGAUGE_PRECISION", "17", "not in"),
        ("FLOWGAUGE_KEY", "4", "is none of"),
        ("FLOWGAUGE_HASH", "2", "is neither"),
    ] {
        let error = Model::flowgauge(&Options::default().define(name, value)).unwrap_err().to_string();
        assert!(error.starts_with("settings.p4:") && error.contains(because), "{error}");
    }
}
