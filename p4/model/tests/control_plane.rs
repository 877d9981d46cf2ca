//! Tables, registers and counters by name, and all rejected requests.

use crate::common::{call, compute, counted, exact, frame, model};
use flowgauge_bfruntime::codec::PRIORITY;
use flowgauge_bfruntime::server::{Fault, Query, Write};
use flowgauge_bfruntime::{Data, Entry, EntryTarget, Key, Match, Pipes};
use flowgauge_p4_model::Model;
use tonic::Code::{
    self, AlreadyExists, InvalidArgument, NotFound, PermissionDenied, ResourceExhausted,
};

const SMALL: &str = "pipe.Ingress.small";
const NET: &str = "pipe.Ingress.net";
const MASKS: &str = "pipe.Ingress.masks";
const CONSTANT: &str = "pipe.Ingress.constant";
const KEYLESS: &str = "pipe.Ingress.keyless";

const EXISTS: &str = "table * already has an entry with this key";

fn switch() -> Model {
    let locals = "action set(bit<12> v, bit<8> w) { hdr.io.x[11:0] = v; hdr.io.y[7:0] = w; } action nothing() {} action other() {}
        table small { key = { hdr.io.a[11:0] : exact @name(\"key\"); } actions = { set; nothing; } size = 2; }
        table net { key = { hdr.io.a : lpm @name(\"net\"); } actions = { set; nothing; } }
        table masks { key = { hdr.io.a : ternary @name(\"mask\"); } actions = { set; nothing; } }
        table constant { key = { hdr.io.a : exact @name(\"key\"); } actions = { nothing; } const entries = { 7 : nothing(); }
            const default_action = nothing(); }
        table keyless { actions = { set; } default_action = set(1, 2); size = 1; }
        Register<bit<32>, bit<2>>(4, 5) words;
        Counter<bit<64>, bit<1>>(2, CounterType_t.PACKETS_AND_BYTES) frames;";
    model(
        locals,
        "small.apply(); net.apply(); masks.apply(); constant.apply(); frames.count(hdr.io.b[0:0]);
         if (hdr.io.a == 0xffffffff) { keyless.apply(); }",
    )
}

fn key(key: u16) -> Key {
    exact("key", &key.to_be_bytes())
}

fn set(v: u16) -> Data {
    call("Ingress.set", &[("v", &v.to_be_bytes()), ("w", &[9])])
}

fn entry(key: Key, data: Data) -> Entry {
    Entry { place: EntryTarget::Key(key), data }
}

fn write(switch: &mut Model, table: &str, write: Write) {
    switch.write(table, Pipes::All, &write).unwrap();
}

fn read(switch: &Model, table: &str, query: Query) -> Vec<Entry> {
    switch.read(table, Pipes::All, &query).unwrap()
}

/// Asserts that a write to a table is refused, and why; in the reason, an asterisk stands for the
/// table.
#[track_caller]
fn assert_refused(switch: &mut Model, table: &str, write: Write, code: Code, problem: &str) {
    let refused = switch.write(table, Pipes::All, &write);
    assert_eq!(refused, Err(Fault::new(code, problem.replace('*', table))));
}

#[test]
fn tables_are_listed() {
    let schema = switch().schema();
    let tables = &schema["tables"];
    let small = &tables[0];
    assert_eq!((small["name"].as_str(), small["size"].as_u64()), (Some(SMALL), Some(2)));
    let field = &small["key"][0];
    assert_eq!([&field["name"], &field["match_type"]], ["key", "Exact"]);
    assert_eq!(field["type"]["width"], 12);
    let data = small["action_specs"][0]["data"].as_array().unwrap();
    let data: Vec<_> = data
        .iter()
        .map(|field| {
            (field["id"].as_u64(), field["name"].as_str(), field["type"]["width"].as_u64())
        })
        .collect();
    assert_eq!(data, [(Some(1), Some("v"), Some(12)), (Some(2), Some("w"), Some(8))]);
    assert_eq!(small["action_specs"][1]["name"], "Ingress.nothing");
    assert_eq!(tables[3]["attributes"][1], "ConstTable");
    assert_eq!(tables[3]["has_const_default_action"], true);
    assert!(tables[4]["key"].as_array().unwrap().is_empty());
}

#[test]
fn entries_are_added_read_modified_and_deleted() {
    let mut switch = switch();
    write(&mut switch, SMALL, Write::Insert(key(0xabc), set(1)));
    write(&mut switch, SMALL, Write::Insert(key(0x123), set(2)));
    assert_eq!(compute(&mut switch, 0xabc, 0), (1, 9));
    assert_eq!(read(&switch, SMALL, Query::Entry(key(0x123))), [entry(key(0x123), set(2))]);
    write(&mut switch, SMALL, Write::Modify(key(0xabc), set(0xfff)));
    assert_eq!(compute(&mut switch, 0xabc, 0), (0xfff, 9));
    write(&mut switch, SMALL, Write::Delete(key(0xabc)));
    assert_eq!(compute(&mut switch, 0xabc, 0), (0, 0));
    assert_eq!(compute(&mut switch, 0x123, 0), (2, 9), "the other one is still found");
    assert_eq!(read(&switch, SMALL, Query::All), [entry(key(0x123), set(2))]);
    write(&mut switch, SMALL, Write::Clear);
    assert_eq!(read(&switch, SMALL, Query::All), []);
    assert_eq!(compute(&mut switch, 0x123, 0), (0, 0));
}

#[test]
fn values_that_a_change_omits_are_kept() {
    let mut switch = switch();
    write(&mut switch, SMALL, Write::Insert(key(0xabc), set(1)));
    let part = Data::fields([("v", vec![0, 5])]);
    write(&mut switch, SMALL, Write::Modify(key(0xabc), part));
    assert_eq!(compute(&mut switch, 0xabc, 0), (5, 9));
    let nothing = call("Ingress.nothing", &[]);
    write(&mut switch, SMALL, Write::Modify(key(0xabc), nothing));
    let part = call("Ingress.set", &[("v", &[0, 5])]);
    let change = Write::Modify(key(0xabc), part);
    let missing = "Ingress.set needs field w exactly once";
    assert_refused(&mut switch, SMALL, change, InvalidArgument, missing);
}

#[test]
fn prefixes_and_masks_are_read_as_written() {
    let mut switch = switch();
    let data: &[(&str, &[u8])] = &[("v", &[0, 3]), ("w", &[4])];
    let net = |value: [u8; 4]| {
        let prefix = Match::Lpm { value: value.to_vec(), prefix_length: 16 };
        Key::from([("net".to_owned(), prefix)])
    };
    let prefix = Write::Insert(net([10, 1, 255, 255]), call("Ingress.set", data));
    write(&mut switch, NET, prefix);
    let there = read(&switch, NET, Query::All).remove(0);
    let place = EntryTarget::Key(net([10, 1, 0, 0]));
    assert_eq!(there.place, place, "bits behind the prefix do not count");
    let again = Write::Insert(net([10, 1, 0, 0]), there.data);
    assert_refused(&mut switch, NET, again, AlreadyExists, EXISTS);

    let nothing = || call("Ingress.nothing", &[]);
    let mask = |priority: u8| {
        let mask = Match::Ternary { value: vec![0, 0, 0, 8], mask: vec![0, 0, 0, 8] };
        let priority = Match::Exact(vec![0, 0, 0, priority]);
        Key::from([("mask".to_owned(), mask), (PRIORITY.to_owned(), priority)])
    };
    write(&mut switch, MASKS, Write::Insert(mask(7), nothing()));
    write(&mut switch, MASKS, Write::Insert(mask(8), nothing()));
    let again = Write::Insert(mask(7), nothing());
    assert_refused(&mut switch, MASKS, again, AlreadyExists, EXISTS);
    let both = [7, 8].map(|priority| entry(mask(priority), nothing()));
    assert_eq!(read(&switch, MASKS, Query::All), both);
    write(&mut switch, MASKS, Write::Delete(mask(7)));
    assert_eq!(read(&switch, MASKS, Query::All), [entry(mask(8), nothing())]);
}

#[test]
fn default_actions_are_set_and_reset() {
    let mut switch = switch();
    let one = call("Ingress.set", &[("v", &[0, 1]), ("w", &[2])]);
    let two = call("Ingress.set", &[("v", &[0, 2]), ("w", &[3])]);
    let default = |switch: &Model, table| read(switch, table, Query::Default).remove(0).data;
    assert_eq!(default(&switch, KEYLESS), one);
    write(&mut switch, KEYLESS, Write::SetDefault(two.clone()));
    assert_eq!(default(&switch, KEYLESS), two);
    write(&mut switch, KEYLESS, Write::ResetDefault);
    assert_eq!(default(&switch, KEYLESS), one);
    assert_eq!(default(&switch, SMALL), call("NoAction", &[]));
    // Only a default.
    let entry = Write::Insert(key(1), call("NoAction", &[]));
    assert_refused(&mut switch, SMALL, entry, NotFound, "table * has no action NoAction");
}

#[test]
fn what_tables_refuse() {
    let mut switch = switch();
    write(&mut switch, SMALL, Write::Insert(key(1), set(1)));
    let again = Write::Insert(key(1), set(2));
    assert_refused(&mut switch, SMALL, again, AlreadyExists, EXISTS);
    write(&mut switch, SMALL, Write::Insert(key(2), set(1)));
    let missing = "table * has no entry with this key";
    let nothing = || call("Ingress.nothing", &[]);
    let constant = "entries of table * are part of the program";
    let constants = "default actions of table * are part of the program";
    let keyless = "table * has no key: set its default action";
    let another = exact("key", &[0, 0, 0, 1]);
    let set_three = Write::Insert(key(3), set(1));
    let writes = [
        (SMALL, set_three.clone(), ResourceExhausted, "table * is full with 2 entries"),
        (SMALL, Write::Modify(key(3), set(1)), NotFound, missing),
        (SMALL, Write::Delete(key(3)), NotFound, missing),
        ("pipe.nowhere", set_three.clone(), NotFound, "no table pipe.nowhere"),
        (CONSTANT, Write::Insert(another, nothing()), PermissionDenied, constant),
        (CONSTANT, Write::Clear, PermissionDenied, constant),
        (CONSTANT, Write::SetDefault(nothing()), PermissionDenied, constants),
        (KEYLESS, set_three, InvalidArgument, keyless),
    ];
    for (table, refused, code, problem) in writes {
        assert_refused(&mut switch, table, refused, code, problem);
    }

    let prefix = Match::Lpm { value: vec![0, 1], prefix_length: 3 };
    let prefix = Key::from([("key".to_owned(), prefix)]);
    let without_w = call("Ingress.set", &[("v", &[0, 1])]);
    let too_wide = call("Ingress.set", &[("v", &[0xff, 0xff]), ("w", &[1])]);
    let of_other = call("Ingress.nothing", &[("v", &[0, 1])]);
    let entries = [
        // 13 bits, and one byte.
        (key(0x1000), set(1), "field key of * is 12 bits wide; [10, 00] is not"),
        (exact("key", &[1]), set(1), "field key of * is 12 bits wide; [01] is not"),
        (exact("other", &[0, 1]), set(1), "* has no field other"),
        (Key::new(), set(1), "* needs field key exactly once"),
        (prefix, set(1), "field key of * is matched Exact"),
        (key(3), without_w, "Ingress.set needs field w exactly once"),
        (key(3), too_wide, "field v of Ingress.set is 12 bits wide; [ff, ff] is not"),
        (key(3), of_other, "Ingress.nothing has no field v"),
    ];
    for (key, data, problem) in entries {
        assert_refused(&mut switch, SMALL, Write::Insert(key, data), InvalidArgument, problem);
    }
    let unknown = Write::Insert(key(3), call("Ingress.other", &[]));
    assert_refused(&mut switch, SMALL, unknown, NotFound, "table * has no action Ingress.other");
    assert_eq!(read(&switch, SMALL, Query::All).len(), 2, "nothing changed");

    assert_eq!(read(&switch, CONSTANT, Query::All).len(), 1);
}

#[test]
fn registers_are_read_written_and_cleared_in_one_pipe_or_all() {
    const WORDS: &str = "pipe.Ingress.words";
    const FIELD: &str = "Ingress.words.f1";
    let mut switch = switch();
    let schema = switch.schema();
    let tables = schema["tables"].as_array().unwrap();
    let words = tables.iter().find(|table| table["name"] == WORDS).unwrap();
    assert_eq!(words["size"], 4);
    assert_eq!(words["data"][0]["singleton"]["name"], FIELD);
    let index = |index: u8| exact("$REGISTER_INDEX", &[0, 0, 0, index]);
    let value = |bytes: [u8; 4]| Write::Modify(index(2), Data::fields([(FIELD, bytes.to_vec())]));
    let values = |switch: &Model| read(switch, WORDS, Query::Entry(index(2))).remove(0).data;
    let both = |one: [u8; 4], two: [u8; 4]| Data::fields([one, two].map(|of| (FIELD, of.to_vec())));
    switch.write(WORDS, Pipes::One(1), &value([1, 2, 3, 4])).unwrap();
    assert_eq!(values(&switch), both([0, 0, 0, 5], [1, 2, 3, 4]));
    switch.write(WORDS, Pipes::All, &value([0, 0, 0, 9])).unwrap();
    assert_eq!(values(&switch), both([0, 0, 0, 9], [0, 0, 0, 9]));
    assert_eq!(switch.register_range(WORDS, 0, 1..4, 0).unwrap(), [5, 9, 5]);
    switch.write(WORDS, Pipes::One(0), &Write::Clear).unwrap();
    assert_eq!(values(&switch), both([0, 0, 0, 5], [0, 0, 0, 9]));

    let entries = |pipes, query| switch.read(WORDS, pipes, &query).unwrap_err();
    let range = |name, field, range| switch.register_range(name, field, range, 0).unwrap_err();
    let beyond = "index 4 in pipe.Ingress.words, which has 4 elements";
    let faults = [
        (entries(Pipes::All, Query::Entry(index(4))), InvalidArgument, beyond),
        (range(WORDS, 0, 0..5), InvalidArgument, beyond),
        (range(WORDS, 1, 0..1), InvalidArgument, "pipe.Ingress.words has no field 1"),
        (entries(Pipes::One(2), Query::All), InvalidArgument, "no pipe 2: there are 2"),
        (range("words", 0, 0..1), NotFound, "no register words"),
    ];
    for (fault, code, problem) in faults {
        assert_eq!(fault, Fault::new(code, problem));
    }
    let twice = Write::Modify(index(0), both([0, 0, 0, 1], [0, 0, 0, 1]));
    let once = "* needs field Ingress.words.f1 exactly once";
    assert_refused(&mut switch, WORDS, twice, InvalidArgument, once);
}

#[test]
fn counters_are_read_written_and_cleared() {
    const FRAMES: &str = "pipe.Ingress.frames";
    let mut switch = switch();
    switch.inject(0, &frame(0, 1)).unwrap();
    switch.inject(128, &frame(0, 1)).unwrap();
    let read = |switch: &Model, pipes| counted(switch, FRAMES, 1, pipes);
    assert_eq!(read(&switch, Pipes::All), (2, 32));
    assert_eq!(read(&switch, Pipes::One(1)), (1, 16));
    let index = |index: u8| exact("$COUNTER_INDEX", &[0, 0, 0, index]);
    let number = |number: u64| number.to_be_bytes().to_vec();
    let data =
        Data::fields([("$COUNTER_SPEC_BYTES", number(5)), ("$COUNTER_SPEC_PKTS", number(100))]);
    write(&mut switch, FRAMES, Write::Modify(index(1), data));
    assert_eq!(read(&switch, Pipes::All), (100, 5));
    write(&mut switch, FRAMES, Write::Clear);
    assert_eq!(read(&switch, Pipes::All), (0, 0));
    let refused = |table, at| switch.read(table, Pipes::All, &Query::Entry(index(at))).unwrap_err();
    let beyond = "index 2 in pipe.Ingress.frames, which has 2 elements";
    assert_eq!(refused(FRAMES, 2), Fault::new(InvalidArgument, beyond));
    assert_eq!(refused("frames", 0), Fault::new(NotFound, "no table frames"));
}

#[test]
fn hashes_of_given_values() {
    let locals =
        "CRCPolynomial<bit<32>>(32w0x790900f3, true, false, false, 32w0xffffffff, 32w0xffffffff) p;
        Hash<bit<32>>(HashAlgorithm_t.CUSTOM, p) crc;";
    let switch = model(locals, "hdr.io.x = crc.get({ 8w10, hdr.io.a[31:16], hdr.io.b[7:0] });");
    let schema = switch.schema();
    let tables = schema["tables"].as_array().unwrap();
    let compute = tables.iter().find(|table| table["name"] == "pipe.Ingress.crc.compute").unwrap();
    let fields: Vec<_> = compute["key"]
        .as_array()
        .unwrap()
        .iter()
        .map(|field| (field["name"].as_str().unwrap(), field["type"]["width"].as_u64().unwrap()))
        .collect();
    assert_eq!(fields, [("hdr.io.a[31:16]", 16), ("hdr.io.b[7:0]", 8)]);
    let (upper, lower) = (exact("hdr.io.a[31:16]", &[0, 0]), exact("hdr.io.b[7:0]", &[1]));
    let hash = |key: Key| switch.read("pipe.Ingress.crc.compute", Pipes::All, &Query::Entry(key));
    let given = upper.clone().into_iter().chain(lower).collect();
    let hashed = hash(given).unwrap().remove(0).data;
    assert_eq!(hashed.bytes("hash_value"), Some(&[0xa7, 0x57, 0xb5, 0x78][..]));
    let missing = "pipe.Ingress.crc needs field hdr.io.b[7:0] exactly once";
    assert_eq!(hash(upper).unwrap_err(), Fault::new(InvalidArgument, missing));
}

#[test]
fn a_model_can_be_served_from_another_thread() {
    fn assert_send<T: Send + 'static>(_: T) {}
    assert_send(switch());
}
