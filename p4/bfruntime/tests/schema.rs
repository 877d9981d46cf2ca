//! Parsing of schemas, and encoding and decoding of entries.

use flowgauge_bfruntime::codec::{self, Completeness};
use flowgauge_bfruntime::entry::{Data, Entry, EntryTarget, Key, Match, Value};
use flowgauge_bfruntime::fixed;
use flowgauge_bfruntime::proto::{self, key_field};
use flowgauge_bfruntime::schema::{FieldKind, MatchKind, Schema, SchemaError, Table, TableKind};

const PROGRAM: &str = include_str!("program.json");

fn schema() -> Schema {
    Schema::parse(PROGRAM.as_bytes()).unwrap()
}

fn key(parts: &[(&str, Match)]) -> Key {
    parts.iter().map(|(name, part)| ((*name).to_owned(), part.clone())).collect()
}

fn exact(name: &str, value: &[u8]) -> Key {
    key(&[(name, Match::Exact(value.to_vec()))])
}

#[track_caller]
fn assert_contains(message: &str, expected: &str) {
    assert!(message.contains(expected), "{message}\nand not\n{expected}");
}

fn ternary(value: [u8; 2], mask: [u8; 2]) -> Match {
    Match::Ternary { value: value.to_vec(), mask: mask.to_vec() }
}

fn range(low: [u8; 2], high: [u8; 2]) -> Match {
    Match::Range { low: low.to_vec(), high: high.to_vec() }
}

/// Key of table `rank`.
fn lpm(value: &[u8], prefix_length: u32) -> Key {
    key(&[("w", Match::Lpm { value: value.to_vec(), prefix_length })])
}

#[test]
fn tables_are_read_with_their_kinds_keys_and_data() {
    let schema = schema();
    let kinds: Vec<(&str, &TableKind, u64)> =
        schema.tables().iter().map(|t| (&*t.name, &t.kind, t.size)).collect();
    assert_eq!(kinds[1], ("pipe.Ingress.rank", &TableKind::Match, 32));
    assert_eq!(kinds[4], ("pipe.Ingress.regs", &TableKind::Register, 16));
    assert_eq!(kinds[5], ("pipe.Ingress.cnt", &TableKind::Counter, 2));

    let rank = schema.table("rank").unwrap();
    let first = &rank.keys[0];
    assert_eq!((first.match_kind, &first.kind), (MatchKind::Lpm, &FieldKind::Bits(21)));
    let level = rank.action("set_level").unwrap().field("level").unwrap();
    assert!(level.mandatory);
    assert_eq!(level.kind, FieldKind::Bits(8));

    let admission = schema.table("admission").unwrap();
    let scopes: Vec<(bool, bool)> =
        admission.actions.iter().map(|action| (action.in_entries, action.as_default)).collect();
    assert_eq!(scopes, [(true, false), (false, true)]);

    let packets = schema.table("cnt").unwrap().field("$COUNTER_SPEC_PKTS").unwrap();
    assert_eq!((packets.id, &packets.kind), (65554, &FieldKind::Bits(64)));
    assert!(schema.table("cnt").unwrap().offers("Sync") && !rank.offers("Sync"));
    assert_eq!(schema.filter("digest").unwrap().fields.len(), 2);
    let digest = schema.filter("digest").unwrap();
    assert_eq!((digest.id, &*digest.name), (2396202489, "pipe.IgDeparser.digest"));
}

#[test]
fn names_may_leave_out_leading_parts_as_long_as_one_candidate_remains() {
    let schema = schema();
    assert_eq!(schema.table("pipe.Ingress.regs").unwrap().id, 2332916721);
    assert_eq!(schema.table("delay.regs").unwrap().id, 2332916722);
    assert_eq!(schema.table("Ingress.regs").unwrap().id, 2332916721);
    let refused = |name: &str| schema.table(name).unwrap_err().to_string();
    let several = "table regs may mean any of pipe.Ingress.regs, pipe.Ingress.delay.regs; give more of the name";
    assert_eq!(refused("regs"), several);
    // Only complete parts of a name match.
    let names: Vec<&str> = schema.tables().iter().map(|table| &*table.name).collect();
    let missing = format!("there is no table ank; there are: {}", names.join(", "));
    assert_eq!(refused("ank"), missing);
    let missing = "there is no table nothing; there are: pipe.Ingress.bank, ";
    assert_contains(&refused("nothing"), missing);
    let unknown = schema.table_by_id(1).unwrap_err().to_string();
    assert_eq!(unknown, "there is no table with number 1 in the schema");
}

#[test]
fn damaged_schemas_are_refused_saying_why() {
    let refused = |from: &str, to: &str| {
        assert!(PROGRAM.contains(from), "{from}");
        Schema::parse(PROGRAM.replacen(from, to, 1).as_bytes()).unwrap_err().to_string()
    };
    let cases = [
        (refused("1.0.0", "2.0.0"), "the schema has version 2.0.0, 1.0.0 can be read"),
        (
            refused("\"width\": 21", "\"width\": 0"),
            "key field w of pipe.Ingress.rank in the schema: cannot be 0 bits wide",
        ),
        (refused(", \"width\": 21", ""), "is of bytes without a width"),
        (refused("\"LPM\"", "\"Fuzzy\""), "matches in an unknown way, Fuzzy"),
        (refused("\"uint32\"", "\"quux\""), "has an unknown type, quux"),
        (
            refused("DefaultOnly", "Never"),
            "action Ingress.delay.ignore of pipe.Ingress.delay.admission in the schema: has an unknown",
        ),
        (
            refused("45167867", "41640749"),
            "table pipe.Ingress.rank in the schema: its number 41640749 is there twice",
        ),
        (
            refused("\"pipe.Ingress.rank\"", "\"pipe.Ingress.bank\""),
            "table pipe.Ingress.bank in the schema: its name is there twice",
        ),
        (refused("\"size\": 1,", "\"size\": -1,"), "the schema cannot be read: "),
        (refused("{", ""), "the schema cannot be read: "),
    ];
    for (message, expected) in cases {
        assert_contains(&message, expected);
    }
    for length in 0..PROGRAM.trim_end().len() {
        assert!(Schema::parse(&PROGRAM.as_bytes()[..length]).is_err(), "cut after {length} bytes");
    }
}

#[test]
fn the_tables_of_every_switch_join_a_program() {
    let joined = schema().join(Schema::parse(fixed::SCHEMA.as_bytes()).unwrap()).unwrap();
    let port = joined.table(fixed::PORT).unwrap().key(fixed::DEV_PORT).unwrap();
    assert_eq!(port.kind, FieldKind::Bits(32));
    let twice = schema().join(schema()).unwrap_err().to_string();
    assert_eq!(twice, "table pipe.Ingress.bank in the schema: its name is there twice");
}

#[test]
fn numbers_have_exactly_their_width() {
    let decode = |bits: u32, bytes: &[u8]| {
        FieldKind::Bits(bits).decode(bytes).map_err(|error| error.to_string())
    };
    let problem = |problem: &str| Err(problem.to_owned());
    assert_eq!(decode(9, &[1, 0xff]), Ok(0x1ff));
    assert_eq!(decode(9, &[2, 0]), problem("0x200 does not fit in its 9 bits"));
    assert_eq!(decode(9, &[0xff]), problem("1 bytes given where 2 hold its 9 bits"));
    assert_eq!(decode(9, &[0, 0, 1]), problem("3 bytes given where 2 hold its 9 bits"));
    assert_eq!(decode(9, &[]), problem("0 bytes given where 2 hold its 9 bits"));

    assert_eq!(decode(8, &[255]), Ok(255));
    assert_eq!(decode(64, &[255; 8]), Ok(u64::MAX));
    assert_eq!(FieldKind::Bits(128).check(&[255; 16]), Ok(()));
    assert_eq!(FieldKind::Bits(200).check(&[255; 25]), Ok(()));
    assert!(decode(128, &[255; 16]).is_err(), "no wrong number of 64 bits");
    let of_bool = FieldKind::Bool.bits().unwrap_err().to_string();
    assert_eq!(of_bool, "it is no number but true or false");
    for bits in 1..=64_u32 {
        let bytes = |number: u128| number.to_be_bytes()[16 - bits.div_ceil(8) as usize..].to_vec();
        let largest = u64::MAX >> (64 - bits);
        assert_eq!(decode(bits, &bytes(largest.into())), Ok(largest), "{bits}");
        if !bits.is_multiple_of(8) {
            assert!(decode(bits, &bytes(u128::from(largest) + 1)).is_err(), "{bits}");
        }
    }
}

fn round_trip(table: &Table, key: &Key) -> Result<Key, SchemaError> {
    codec::decode_key(table, &codec::encode_key(table, key)?)
}

#[test]
fn keys_of_every_kind_come_back_as_they_went() {
    let schema = schema();
    let keys = [
        ("Ingress.regs", exact("$REGISTER_INDEX", &[0, 0, 0, 15])),
        ("rank", lpm(&[0x10, 0, 0], 1)),
        (
            "admission",
            key(&[
                ("hash", ternary([0x0f, 0xf0], [0x0f, 0xff])),
                ("port", range([0, 3], [1, 0])),
                ("$MATCH_PRIORITY", Match::Exact(vec![0, 0, 0, 7])),
            ]),
        ),
    ];
    for (name, key) in keys {
        assert_eq!(round_trip(schema.table(name).unwrap(), &key), Ok(key));
    }
}

#[test]
fn what_a_key_leaves_out_matches_everything() {
    let schema = schema();
    let admission = schema.table("admission").unwrap();
    let everything = key(&[
        ("hash", ternary([0, 0], [0, 0])),
        ("port", range([0, 0], [1, 0xff])),
        ("$MATCH_PRIORITY", Match::Exact(vec![0; 4])),
    ]);
    assert_eq!(codec::decode_key(admission, &proto::TableKey::default()), Ok(everything));
    let forward = schema.table("forward").unwrap();
    let problem = codec::decode_key(forward, &proto::TableKey::default()).unwrap_err().to_string();
    let missing = "pipe.Ingress.forward: the key has no ingress_port, which must match exactly";
    assert_eq!(problem, missing);
}

#[test]
fn bits_that_a_key_does_not_look_at_are_zero() {
    let schema = schema();
    let admission = schema.table("admission").unwrap();
    let masked = key(&[("hash", ternary([0x0f, 0xff], [0x0f, 0x0f]))]);
    let decoded = round_trip(admission, &masked).unwrap();
    assert_eq!(decoded["hash"], ternary([0x0f, 0x0f], [0x0f, 0x0f]));
    let rank = schema.table("rank").unwrap();
    for prefix_length in 0..=21_u32 {
        let all = lpm(&[0x1f, 0xff, 0xff], prefix_length);
        let kept: u32 = 0x1f_ffff >> (21 - prefix_length) << (21 - prefix_length);
        let kept = lpm(&kept.to_be_bytes()[1..], prefix_length);
        assert_eq!(round_trip(rank, &all), Ok(kept), "/{prefix_length}");
    }
}

#[test]
fn keys_that_do_not_fit_are_refused() {
    let schema = schema();
    let refused = |table: &str, key: Key| {
        codec::encode_key(schema.table(table).unwrap(), &key).unwrap_err().to_string()
    };
    let backwards = key(&[("port", range([1, 0], [0, 1]))]);
    let cases = [
        (refused("forward", exact("ingress_port", &[1])), "1 bytes given where 2 hold its 9 bits"),
        (refused("forward", exact("ingress_port", &[2, 0])), "0x200 does not fit in its 9 bits"),
        (
            refused("forward", exact("egress_port", &[0, 0])),
            "there is no key field egress_port; there are: ingress_port",
        ),
        (refused("forward", lpm(&[0, 0], 1)), "there is no key field w"),
        (
            refused("rank", exact("w", &[0, 0, 1])),
            "w matches by lpm, another kind of match was given",
        ),
        (refused("rank", lpm(&[0, 0, 0], 22)), "w: a prefix of 22 in 21 bits"),
        (refused("admission", backwards), "port: the range ends before it begins"),
    ];
    for (message, expected) in cases {
        assert_contains(&message, expected);
    }

    let rank = schema.table("rank").unwrap();
    let decode = |fields: Vec<proto::KeyField>| {
        codec::decode_key(rank, &proto::TableKey { fields }).unwrap_err().to_string()
    };
    let field = |prefix_len| {
        let lpm = key_field::Lpm { value: vec![0; 3], prefix_len };
        proto::KeyField { field_id: 1, match_type: Some(key_field::MatchType::Lpm(lpm)) }
    };
    let unknown = proto::KeyField { field_id: 9, ..field(1) };
    let empty = proto::KeyField { match_type: None, ..field(1) };
    assert_contains(&decode(vec![field(-1)]), "a prefix of -1 bits");
    assert_contains(&decode(vec![field(1), field(1)]), "w is there twice");
    assert_contains(&decode(vec![unknown]), "there is no key field with number 9");
    assert_contains(&decode(vec![empty]), "w has no value");
}

#[test]
fn entries_come_back_as_they_went() {
    let schema = schema();
    let entries = [
        ("rank", lpm(&[0, 0, 1], 21), "Ingress.set_level", vec![("level", vec![21])]),
        ("forward", exact("ingress_port", &[1, 0]), "Ingress.send", vec![("port", vec![0, 9])]),
        ("forward", exact("ingress_port", &[1, 1]), "Ingress.drop", vec![]),
    ];
    for (name, key, action, fields) in entries {
        let entry = Entry { place: EntryTarget::Key(key), data: Data::action(action, fields) };
        let table = schema.table(name).unwrap();
        let message = codec::encode_entry(table, &entry).unwrap();
        assert_eq!(message.table_id, table.id);
        assert_eq!(codec::decode_entry(table, &message), Ok(entry));
    }
    let data = Data::action("Ingress.set_bank", [("b", vec![1])]);
    let default = Entry { place: EntryTarget::Default, data };
    let bank = schema.table("bank").unwrap();
    let message = codec::encode_entry(bank, &default).unwrap();
    assert!(message.is_default_entry && message.value.is_none());
    assert_eq!(codec::decode_entry(bank, &message), Ok(default));
}

#[test]
fn a_register_has_one_value_for_each_pipe_and_nothing_else_comes_twice() {
    let schema = schema();
    let data = Data::fields([("Ingress.regs.f1", vec![1]), ("Ingress.regs.f1", vec![2])]);
    let registers = schema.table("Ingress.regs").unwrap();
    let message = codec::encode_data(registers, &data).unwrap();
    let decoded = codec::decode_data(registers, &message, Completeness::Whole).unwrap();
    let values: Vec<&Value> = decoded.values("Ingress.regs.f1").collect();
    assert_eq!(values, [&Value::Bytes(vec![1]), &Value::Bytes(vec![2])]);

    let counter = schema.table("cnt").unwrap();
    let twice =
        Data::fields([("$COUNTER_SPEC_PKTS", vec![0; 8]), ("$COUNTER_SPEC_PKTS", vec![0; 8])]);
    let message = codec::encode_data(counter, &twice).unwrap();
    let problem = codec::decode_data(counter, &message, Completeness::Part).unwrap_err();
    assert_contains(&problem.to_string(), "is there twice");
}

#[test]
fn data_that_does_not_fit_is_refused() {
    let schema = schema().join(Schema::parse(fixed::SCHEMA.as_bytes()).unwrap()).unwrap();
    let refused = |table: &str, data: Data| {
        codec::encode_data(schema.table(table).unwrap(), &data).unwrap_err().to_string()
    };
    let text = |name: &str, value: &str| {
        let fields = vec![(name.to_owned(), Value::Text(value.to_owned()))];
        Data { action: None, fields }
    };
    let cases = [
        (
            refused("bank", Data::action("set_bank", [("b", vec![2])])),
            "0x2 does not fit in its 1 bits",
        ),
        (
            refused("bank", Data::action("set_level", [])),
            "there is no action set_level; there are: Ingress.set_bank",
        ),
        (refused("bank", Data::action("set_bank", [("c", vec![1])])), "there is no data field c"),
        (
            refused("cnt", Data::fields([("$COUNTER_SPEC_PKTS", vec![1])])),
            "1 bytes given where 8 hold its 64 bits",
        ),
        (
            refused("$PORT", text("$SPEED", "fast")),
            "$SPEED cannot be fast: it is one of BF_SPEED_NONE, BF_SPEED_1G",
        ),
        (
            refused("$PORT", text("$PORT_ENABLE", "yes")),
            "$PORT_ENABLE is true or false, another kind of value was given",
        ),
    ];
    for (message, expected) in cases {
        assert_contains(&message, expected);
    }
    let rank = schema.table("rank").unwrap();
    let decode = |action_id, completeness| {
        let data = proto::TableData { action_id, fields: vec![] };
        codec::decode_data(rank, &data, completeness).map_err(|error| error.to_string())
    };
    let missing = decode(28993034, Completeness::Whole).unwrap_err();
    assert_eq!(missing, "pipe.Ingress.rank: level is missing");
    let none = decode(0, Completeness::Whole).unwrap_err();
    assert_eq!(none, "pipe.Ingress.rank: no action given");
    assert!(decode(1, Completeness::Part).is_err());
}
