//! The schema, object by object. `compiler.rs` compares it with that of the chip's compiler.

use crate::common::program;
use flowgauge_p4_model::{Model, Options, identifier};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

fn by_name(list: &Value) -> BTreeMap<&str, &Value> {
    list.as_array().unwrap().iter().map(|one| (one["name"].as_str().unwrap(), one)).collect()
}

/// Ids that the compiler gave to these names.
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
    program.deparser = "if (dm.digest_type == 1) { report.pack({ hdr.io.a }); }".to_owned();
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
    let octets = &tables["pipe.Ingress.octets"]["data"];
    assert_eq!(octets.as_array().unwrap().len(), 1);
    assert_eq!(octets[0]["singleton"]["name"], "$COUNTER_SPEC_BYTES");
    assert_eq!(tables["pipe.In.$PORT_METADATA"]["key"][0]["name"], "im.ingress_port");
    assert_eq!(schema["learn_filters"][0]["name"], "pipe.Out.report");
}

/// A client looks up the configuration of `compute` by its id.
#[test]
fn a_hash_is_configured_where_it_is_computed() {
    let locals = "Hash<bit<16>>(HashAlgorithm_t.CRC16) crc;";
    let schema =
        program(locals, "hdr.io.x[15:0] = crc.get({ hdr.io.a, 8w7, hdr.io.b });").model().schema();
    let tables = by_name(&schema["tables"]);
    let configure = tables["pipe.Ingress.crc.configure"];
    assert_eq!(tables["pipe.Ingress.crc.compute"]["depends_on"], json!([configure["id"]]));
    assert_eq!(configure["table_type"], "DynHashConfigure");
    assert_eq!(configure["key"], json!([]));
    let inputs: Vec<_> =
        configure["data"].as_array().unwrap().iter().map(|input| &input["singleton"]).collect();
    let names: Vec<_> = inputs.iter().map(|input| input["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["hdr.io.a", "constant0_8_7", "hdr.io.b"]);
    let width = &inputs[1]["container"][1]["singleton"]["type"];
    assert_eq!(*width, json!({"type": "uint64", "default_value": 8}));
    let read = flowgauge_bfruntime::Schema::parse(schema.to_string().as_bytes()).unwrap();
    assert_eq!(read.table("pipe.Ingress.crc.configure").unwrap().data.len(), 3);
}

/// Names that the controller relies on.
#[test]
fn of_flowgauge() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../flowgauge.p4");
    let schema = Model::flowgauge(&Options::default()).unwrap().schema();
    let on_disk = Model::from_file(&source, &Options::default()).unwrap().schema();
    assert_eq!(schema, on_disk, "built in and on disk");
    let names: Vec<&str> = by_name(&schema["tables"]).into_keys().collect();
    let expected = [
        "pipe.Ingress.flowgauge.bank",
        "pipe.Ingress.flowgauge.cardinality_by_src.rank",
        "pipe.Ingress.flowgauge.cardinality_by_src.registers",
        "pipe.Ingress.flowgauge.counters.classify",
        "pipe.Ingress.flowgauge.counters.frames",
        "pipe.Ingress.flowgauge.hash.src.ipv4_crc.compute",
        "pipe.Ingress.flowgauge.hash.src.ipv4_crc.configure",
        "pipe.Ingress.flowgauge.hash.src.ipv6_crc.compute",
        "pipe.Ingress.flowgauge.hash.src.ipv6_crc.configure",
        "pipe.Ingress.flowgauge.hash.tabulation.words0",
        "pipe.Ingress.flowgauge.hash.tabulation.words1",
        "pipe.Ingress.flowgauge.hash.tabulation.words2",
        "pipe.Ingress.flowgauge.hash.tabulation.words3",
        "pipe.Ingress.flowgauge.hash.xor_words.compute",
        "pipe.Ingress.flowgauge.hash.xor_words.configure",
        "pipe.Ingress.forward.ports",
        "pipe.IngressParser.$PORT_METADATA",
    ];
    assert_eq!(names, expected);
}

/// The controller reads what a program was compiled with from annotations of the bank's table.
#[test]
fn every_setting_is_stated() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../settings.p4");
    let source = std::fs::read_to_string(source).unwrap();
    let options = Options::default().define("FLOWGAUGE_KEY", "FLOWGAUGE_KEY_FIVE_TUPLE");
    let schema = Model::flowgauge(&options).unwrap().schema();
    let bank = by_name(&schema["tables"])["pipe.Ingress.flowgauge.bank"];
    let stated: Vec<&str> = bank["annotations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|annotation| annotation["name"].as_str().unwrap())
        .collect();
    assert!(stated.contains(&r#"@user_annotation("FLOWGAUGE_KEY", "3")"#), "{stated:?}");
    let settings: Vec<&str> =
        source.lines().filter_map(|line| line.strip_prefix("#ifndef ")).collect();
    for setting in &settings {
        let start = format!("@user_annotation(\"{setting}\", ");
        assert!(stated.iter().any(|annotation| annotation.starts_with(&start)), "{setting}");
    }
    assert_eq!(stated.len(), settings.len());
}

/// Names of measurements with separate keys.
#[test]
fn of_all_measurements() {
    let options = Options::default()
        .define("FLOWGAUGE_CARDINALITY", 0)
        .define("FLOWGAUGE_ENTROPY", 1)
        .define("FLOWGAUGE_FREQUENCY", 1)
        .define("FLOWGAUGE_MEMBERSHIP", 1)
        .define("FLOWGAUGE_MEMBERSHIP_KEY", "FLOWGAUGE_KEY_FIVE_TUPLE")
        .define("FLOWGAUGE_FREQUENCY_KEY", 1);
    let schema = Model::flowgauge(&options).unwrap().schema();
    let tables = by_name(&schema["tables"]);
    let hash = ["dst", "src_dst", "five_tuple"].into_iter().flat_map(|key| {
        let crcs = ["ipv4", "ipv6"].map(|family| format!("hash.{key}.{family}_crc"));
        let folds = ["01", "23"].map(|rows| format!("hash.{key}_rows.xor_rows{rows}"));
        let hashes = crcs
            .into_iter()
            .chain(folds)
            .flat_map(|hash| [format!("{hash}.compute"), format!("{hash}.configure")]);
        hashes.chain((0..4).map(move |index| format!("hash.{key}_rows.tabulation.words{index}")))
    });
    let rows = |name: &str| [0, 1, 2].map(|row| format!("{name}{row}"));
    let measured = [
        rows("entropy_by_src_dst.count_sketch"),
        ["differences", "median", "logarithm"].map(|part| format!("entropy_by_src_dst.{part}")),
        rows("frequency_by_dst.count_min"),
        rows("membership_by_five_tuple.bits"),
        rows("membership_by_five_tuple.place"),
        ["bank", "counters.classify", "counters.frames"].map(str::to_owned),
    ];
    let names =
        hash.chain(measured.into_iter().flatten()).chain(["entropy_by_src_dst.sum".to_owned()]);
    let mut expected: Vec<String> =
        names.map(|name| format!("pipe.Ingress.flowgauge.{name}")).collect();
    expected.extend([
        "pipe.Ingress.forward.ports".to_owned(),
        "pipe.IngressParser.$PORT_METADATA".to_owned(),
    ]);
    expected.sort_unstable();
    assert_eq!(tables.keys().collect::<Vec<_>>(), expected.iter().collect::<Vec<_>>());

    let size = |name: &str| {
        tables[format!("pipe.Ingress.flowgauge.{name}").as_str()]["size"].as_u64().unwrap()
    };
    assert_eq!(size("entropy_by_src_dst.count_sketch2"), 2048);
    assert_eq!(size("entropy_by_src_dst.sum"), 2);
    assert_eq!(size("membership_by_five_tuple.bits0"), 2 * 65_536 / 32);
    let sum = &tables["pipe.Ingress.flowgauge.entropy_by_src_dst.sum"]["data"];
    for (half, name) in ["low", "high"].into_iter().enumerate() {
        let name = format!("Ingress.flowgauge.entropy_by_src_dst.sum.{name}");
        assert_eq!(sum[half]["singleton"]["name"], name);
    }
}

#[test]
fn settings_outside_their_range_are_refused() {
    for (name, value, because) in [
        ("PRECISION", "3", "not in 4 to 16"),
        ("PRECISION", "17", "not in"),
        ("KEY", "4", "is not one of"),
        ("HASH", "2", "is neither"),
        (
            "CARDINALITY",
            "3",
            "is not one of 0, FLOWGAUGE_CARDINALITY_WINDOWED, FLOWGAUGE_CARDINALITY_STAGGERED",
        ),
        ("SLOT_BITS", "9", "is less than 10"),
        ("SLOT_BITS", "34", "together are more than 44"),
        ("ENTROPY", "2", "is neither 0 nor 1"),
        ("ENTROPY_KEY", "4", "is not one of"),
        ("ENTROPY_SKETCH", "0", "is neither FLOWGAUGE_COUNT_SKETCH nor FLOWGAUGE_COUNT_MIN"),
        ("ENTROPY_COLUMN_BITS", "13", "not in 4 to 12"),
        ("FREQUENCY", "2", "is neither 0 nor 1"),
        ("FREQUENCY_KEY", "4", "is not one of"),
        ("FREQUENCY_SKETCH", "3", "is neither"),
        ("FREQUENCY_COLUMN_BITS", "3", "not in 4 to 12"),
        ("HEAVY", "2", "is neither 0 nor 1"),
        ("HEAVY_KEY", "4", "is not one of"),
        ("HEAVY_SLOT_BITS", "3", "not in 4 to 12"),
        ("HEAVY_SLOT_BITS", "13", "not in 4 to 12"),
        ("MEMBERSHIP", "2", "is neither 0 nor 1"),
        ("MEMBERSHIP_KEY", "4", "is not one of"),
        ("MEMBERSHIP_ROW_BITS", "5", "not in 6 to 16"),
        ("MEMBERSHIP_ROW_BITS", "17", "not in 6 to 16"),
        ("SPREAD", "2", "is neither 0 nor 1"),
        ("SPREAD_KEY", "3", "is not one of"),
        ("SPREAD_OTHER", "4", "is not one of"),
        ("SPREAD_COLUMN_BITS", "3", "not in 4 to 10"),
        ("SPREAD_COLUMN_BITS", "11", "not in 4 to 10"),
        ("SPREAD_REGISTER_BITS", "3", "not in 4 to 8"),
        ("SPREAD_REGISTER_BITS", "9", "not in 4 to 8"),
    ] {
        let options = Options::default().define(&format!("FLOWGAUGE_{name}"), value);
        let error = Model::flowgauge(&options).unwrap_err().to_string();
        assert!(error.starts_with("settings.p4:") && error.contains(because), "{error}");
    }
}

/// Names of distinct others, with the widest key and a hash of its own.
#[test]
fn of_distinct_others() {
    let options = Options::default()
        .define("FLOWGAUGE_CARDINALITY", 0)
        .define("FLOWGAUGE_SPREAD", 1)
        .define("FLOWGAUGE_SPREAD_KEY", "FLOWGAUGE_KEY_SRC_DST")
        .define("FLOWGAUGE_SPREAD_OTHER", "FLOWGAUGE_OTHER_DST_PORT");
    let schema = Model::flowgauge(&options).unwrap().schema();
    let tables = by_name(&schema["tables"]);
    let control = "pipe.Ingress.flowgauge.spread_by_src_dst.";
    let names: Vec<&str> = tables.keys().filter_map(|name| name.strip_prefix(control)).collect();
    let arrays = ["candidates", "dst_lower", "dst_upper", "registers", "upper", "versions"];
    let rows = arrays.iter().flat_map(|name| [0, 1, 2].map(|row| format!("{name}{row}")));
    let others = ["joined.compute", "joined.configure", "levels", "ranks"].map(str::to_owned);
    let mut expected: Vec<String> = rows.chain(others).collect();
    expected.sort_unstable();
    assert_eq!(names, expected);
    let size = |name: &str| tables[format!("{control}{name}").as_str()]["size"].as_u64().unwrap();
    assert_eq!((size("registers2"), size("candidates2")), (2 * 512 * 64, 2 * 512));
    let hash = &tables["pipe.Ingress.flowgauge.hash.with_port.ipv6_crc.compute"]["key"];
    let fields: Vec<&str> =
        hash.as_array().unwrap().iter().map(|field| field["name"].as_str().unwrap()).collect();
    assert_eq!(
        fields,
        [
            "hdr.ipv6.src_addr",
            "hdr.ipv6.dst_addr",
            "md.flowgauge.ports[15:0]",
            "md.flowgauge.protocol"
        ]
    );
}

#[test]
fn an_other_that_its_key_has_and_a_row_that_is_too_long_are_refused() {
    let refused = |settings: [(&str, u32); 2]| {
        let options = Options::default().define("FLOWGAUGE_SPREAD", 1);
        let define = |options: Options, (name, value): (&str, u32)| options.define(name, value);
        Model::flowgauge(&settings.into_iter().fold(options, define)).unwrap_err().to_string()
    };
    let (key, other) = ("FLOWGAUGE_SPREAD_KEY", "FLOWGAUGE_SPREAD_OTHER");
    for [key_number, other_number] in [[0, 0], [1, 1], [2, 0], [2, 1]] {
        let error = refused([(key, key_number), (other, other_number)]);
        assert!(error.contains("is a part of FLOWGAUGE_SPREAD_KEY"), "{error}");
    }
    let error =
        refused([("FLOWGAUGE_SPREAD_COLUMN_BITS", 10), ("FLOWGAUGE_SPREAD_REGISTER_BITS", 8)]);
    assert!(error.contains("together are more than 17"), "{error}");
}
