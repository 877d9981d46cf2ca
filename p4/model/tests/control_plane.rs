//! Tables, registers and counters by name, and all rejected requests.

use crate::common::{call, compute, entry, exact, frame, model};
use flowgauge_p4_model::{
    ControlError, Counted, CounterKind, Entry, Match, MatchKind, Model, Pipes,
};

const SMALL: &str = "pipe.Ingress.small";
const NET: &str = "pipe.Ingress.net";
const MASKS: &str = "pipe.Ingress.masks";
const CONSTANT: &str = "pipe.Ingress.constant";
const KEYLESS: &str = "pipe.Ingress.keyless";

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

fn set(key: u16, v: u16) -> Entry {
    entry(exact("key", &key.to_be_bytes()), "Ingress.set", &[("v", &v.to_be_bytes()), ("w", &[9])])
}

fn table(name: &str) -> String {
    name.to_owned()
}

#[test]
fn tables_are_listed() {
    let tables = switch().tables();
    let small = &tables[0];
    assert_eq!((small.name.as_str(), small.size), (SMALL, 2));
    assert_eq!(
        (small.key[0].name.as_str(), small.key[0].kind, small.key[0].width),
        ("key", MatchKind::Exact, 12)
    );
    let data: Vec<_> = small.actions[0]
        .data
        .iter()
        .map(|field| (field.id, field.name.as_str(), field.width))
        .collect();
    assert_eq!(data, [(1, "v", 12), (2, "w", 8)]);
    assert_eq!(small.actions[1].name, "Ingress.nothing");
    assert!(tables[3].constant_entries && tables[3].constant_default);
    assert!(tables[4].key.is_empty());
}

#[test]
fn entries_are_added_read_modified_and_deleted() {
    let mut switch = switch();
    switch.add_entry(SMALL, &set(0xabc, 1)).unwrap();
    switch.add_entry(SMALL, &set(0x123, 2)).unwrap();
    assert_eq!(compute(&mut switch, 0xabc, 0), (1, 9));
    assert_eq!(switch.entry(SMALL, &set(0x123, 0).key, 0).unwrap(), set(0x123, 2));
    switch.modify_entry(SMALL, &set(0xabc, 0xfff)).unwrap();
    assert_eq!(compute(&mut switch, 0xabc, 0), (0xfff, 9));
    switch.delete_entry(SMALL, &set(0xabc, 0).key, 0).unwrap();
    assert_eq!(compute(&mut switch, 0xabc, 0), (0, 0));
    assert_eq!(compute(&mut switch, 0x123, 0), (2, 9), "the other one is still found");
    assert_eq!(switch.entries(SMALL).unwrap(), [set(0x123, 2)]);
    switch.clear_table(SMALL).unwrap();
    assert_eq!((switch.entry_count(SMALL).unwrap(), compute(&mut switch, 0x123, 0)), (0, (0, 0)));
}

#[test]
fn prefixes_and_masks_are_read_as_written() {
    let mut switch = switch();
    let data: &[(&str, &[u8])] = &[("v", &[0, 3]), ("w", &[4])];
    let prefix = entry(
        vec![("net".into(), Match::Lpm { value: vec![10, 1, 255, 255], length: 16 })],
        "Ingress.set",
        data,
    );
    switch.add_entry(NET, &prefix).unwrap();
    let read = &switch.entries(NET).unwrap()[0];
    assert_eq!(
        read.key[0].1,
        Match::Lpm { value: vec![10, 1, 0, 0], length: 16 },
        "bits behind the prefix do not count"
    );
    assert_eq!(switch.add_entry(NET, read), Err(ControlError::Duplicate { table: table(NET) }));

    let mask = |priority| Entry {
        key: vec![(
            "mask".into(),
            Match::Ternary { value: vec![0, 0, 0, 8], mask: vec![0, 0, 0, 8] },
        )],
        priority,
        call: call("Ingress.nothing", &[]),
    };
    switch.add_entry(MASKS, &mask(7)).unwrap();
    switch.add_entry(MASKS, &mask(8)).unwrap();
    assert_eq!(
        switch.add_entry(MASKS, &mask(7)),
        Err(ControlError::Duplicate { table: table(MASKS) })
    );
    assert_eq!(switch.entries(MASKS).unwrap(), [mask(7), mask(8)]);
    switch.delete_entry(MASKS, &mask(7).key, 7).unwrap();
    assert_eq!(switch.entries(MASKS).unwrap(), [mask(8)]);
}

#[test]
fn default_actions_are_set_and_reset() {
    let mut switch = switch();
    let one = call("Ingress.set", &[("v", &[0, 1]), ("w", &[2])]);
    let two = call("Ingress.set", &[("v", &[0, 2]), ("w", &[3])]);
    assert_eq!(switch.default_action(KEYLESS).unwrap(), one);
    switch.set_default_action(KEYLESS, &two).unwrap();
    assert_eq!(switch.default_action(KEYLESS).unwrap(), two);
    switch.reset_default_action(KEYLESS).unwrap();
    assert_eq!(switch.default_action(KEYLESS).unwrap(), one);
    assert_eq!(switch.default_action(SMALL).unwrap(), call("NoAction", &[]));
    let nothing = entry(exact("key", &[0, 1]), "NoAction", &[]);
    assert!(
        matches!(switch.add_entry(SMALL, &nothing), Err(ControlError::NoSuchAction { .. })),
        "only a default"
    );
}

#[test]
fn what_tables_refuse() {
    let mut switch = switch();
    switch.add_entry(SMALL, &set(1, 1)).unwrap();
    assert_eq!(
        switch.add_entry(SMALL, &set(1, 2)),
        Err(ControlError::Duplicate { table: table(SMALL) })
    );
    switch.add_entry(SMALL, &set(2, 1)).unwrap();
    assert_eq!(
        switch.add_entry(SMALL, &set(3, 1)),
        Err(ControlError::Full { table: table(SMALL), size: 2 })
    );
    assert_eq!(
        switch.modify_entry(SMALL, &set(3, 1)),
        Err(ControlError::NoSuchEntry { table: table(SMALL) })
    );
    assert_eq!(
        switch.delete_entry(SMALL, &set(3, 1).key, 0),
        Err(ControlError::NoSuchEntry { table: table(SMALL) })
    );
    let nowhere = ControlError::NoSuch { what: "table", name: "pipe.nowhere".to_owned() };
    assert_eq!(switch.add_entry("pipe.nowhere", &set(3, 1)), Err(nowhere));

    let mut refuse = |entry: Entry| switch.add_entry(SMALL, &entry).unwrap_err();
    assert!(
        matches!(refuse(set(0x1000, 1)), ControlError::WrongWidth { width: 12, .. }),
        "13 bits"
    );
    assert!(
        matches!(
            refuse(Entry { key: exact("key", &[1]), ..set(3, 1) }),
            ControlError::WrongWidth { .. }
        ),
        "one byte"
    );
    assert!(matches!(
        refuse(Entry { key: exact("other", &[0, 1]), ..set(3, 1) }),
        ControlError::NoSuchField { .. }
    ));
    assert!(matches!(refuse(Entry { key: vec![], ..set(3, 1) }), ControlError::FieldCount { .. }));
    let prefix = vec![("key".to_owned(), Match::Lpm { value: vec![0, 1], length: 3 })];
    assert!(matches!(
        refuse(Entry { key: prefix, ..set(3, 1) }),
        ControlError::WrongMatch { kind: MatchKind::Exact, .. }
    ));
    assert!(matches!(
        refuse(Entry { call: call("Ingress.other", &[]), ..set(3, 1) }),
        ControlError::NoSuchAction { .. }
    ));
    assert!(matches!(
        refuse(Entry { call: call("Ingress.set", &[("v", &[0, 1])]), ..set(3, 1) }),
        ControlError::FieldCount { .. }
    ));
    let long = call("Ingress.set", &[("v", &[0xff, 0xff]), ("w", &[1])]);
    assert!(matches!(refuse(Entry { call: long, ..set(3, 1) }), ControlError::WrongWidth { .. }));
    let extra = call("Ingress.nothing", &[("v", &[0, 1])]);
    assert!(matches!(refuse(Entry { call: extra, ..set(3, 1) }), ControlError::NoSuchField { .. }));
    assert_eq!(switch.entry_count(SMALL).unwrap(), 2, "nothing changed");

    let constant = entry(exact("key", &[0, 0, 0, 1]), "Ingress.nothing", &[]);
    assert!(matches!(switch.add_entry(CONSTANT, &constant), Err(ControlError::Constant { .. })));
    assert!(matches!(switch.clear_table(CONSTANT), Err(ControlError::Constant { .. })));
    assert!(matches!(
        switch.set_default_action(CONSTANT, &call("Ingress.nothing", &[])),
        Err(ControlError::Constant { .. })
    ));
    assert_eq!(switch.entries(CONSTANT).unwrap().len(), 1);
    assert_eq!(
        switch.add_entry(KEYLESS, &set(3, 1)),
        Err(ControlError::NoKey { table: table(KEYLESS) })
    );
}

#[test]
fn registers_are_read_written_and_cleared_in_one_pipe_or_all() {
    const WORDS: &str = "pipe.Ingress.words";
    let mut switch = switch();
    let info = &switch.registers()[0];
    assert_eq!(
        (info.name.as_str(), info.size, info.fields[0].name.as_str()),
        (WORDS, 4, "Ingress.words.f1")
    );
    let value = |bytes: [u8; 4]| vec![("Ingress.words.f1".to_owned(), bytes.to_vec())];
    switch.write_register(WORDS, 2, Pipes::One(1), &value([1, 2, 3, 4])).unwrap();
    let read = |switch: &Model| switch.read_register(WORDS, 2, Pipes::All).unwrap()[0].1.clone();
    assert_eq!(read(&switch), [vec![0, 0, 0, 5], vec![1, 2, 3, 4]]);
    switch.write_register(WORDS, 2, Pipes::All, &value([0, 0, 0, 9])).unwrap();
    assert_eq!(read(&switch), [vec![0, 0, 0, 9], vec![0, 0, 0, 9]]);
    assert_eq!(switch.register_range(WORDS, 0, 1..4, 0).unwrap(), [5, 9, 5]);
    switch.clear_register(WORDS, Pipes::One(0)).unwrap();
    assert_eq!(read(&switch), [vec![0, 0, 0, 5], vec![0, 0, 0, 9]]);

    switch.clear_register_range(WORDS, 1..3, Pipes::One(1)).unwrap();
    assert_eq!(read(&switch), [vec![0, 0, 0, 5], vec![0, 0, 0, 5]]);
    assert!(matches!(
        switch.clear_register_range(WORDS, 2..5, Pipes::All),
        Err(ControlError::IndexOutOfRange { .. })
    ));

    assert!(matches!(
        switch.read_register(WORDS, 4, Pipes::All),
        Err(ControlError::IndexOutOfRange { index: 4, size: 4, .. })
    ));
    assert!(matches!(
        switch.register_range(WORDS, 0, 0..5, 0),
        Err(ControlError::IndexOutOfRange { .. })
    ));
    assert!(matches!(
        switch.register_range(WORDS, 1, 0..1, 0),
        Err(ControlError::NoSuchField { .. })
    ));
    assert!(matches!(
        switch.read_register(WORDS, 0, Pipes::One(2)),
        Err(ControlError::NoSuchPipe { pipe: 2, pipes: 2 })
    ));
    assert!(matches!(
        switch.write_register(WORDS, 0, Pipes::All, &[]),
        Err(ControlError::FieldCount { .. })
    ));
    assert!(matches!(
        switch.clear_register("words", Pipes::All),
        Err(ControlError::NoSuch { what: "register", .. })
    ));
}

#[test]
fn counters_are_read_written_and_cleared() {
    const FRAMES: &str = "pipe.Ingress.frames";
    let mut switch = switch();
    assert_eq!(
        (switch.counters()[0].size, switch.counters()[0].kind),
        (2, CounterKind::PacketsAndBytes)
    );
    switch.inject(0, &frame(0, 1)).unwrap();
    switch.inject(128, &frame(0, 1)).unwrap();
    let read = |switch: &Model, pipes| switch.read_counter(FRAMES, 1, pipes).unwrap();
    assert_eq!(read(&switch, Pipes::All), Counted { packets: 2, bytes: 32 });
    assert_eq!(read(&switch, Pipes::One(1)), Counted { packets: 1, bytes: 16 });
    switch.write_counter(FRAMES, 1, Pipes::All, Counted { packets: 100, bytes: 5 }).unwrap();
    assert_eq!(read(&switch, Pipes::All), Counted { packets: 100, bytes: 5 });
    switch.clear_counter(FRAMES, Pipes::All).unwrap();
    assert_eq!(read(&switch, Pipes::All), Counted::default());
    assert!(matches!(
        switch.read_counter(FRAMES, 2, Pipes::All),
        Err(ControlError::IndexOutOfRange { .. })
    ));
    assert!(matches!(
        switch.read_counter("frames", 0, Pipes::All),
        Err(ControlError::NoSuch { what: "counter", .. })
    ));
}

#[test]
fn hashes_of_given_values() {
    let locals =
        "CRCPolynomial<bit<32>>(32w0x790900f3, true, false, false, 32w0xffffffff, 32w0xffffffff) p;
        Hash<bit<32>>(HashAlgorithm_t.CUSTOM, p) crc;";
    let switch = model(locals, "hdr.io.x = crc.get({ 8w10, hdr.io.a[31:16], hdr.io.b[7:0] });");
    let info = &switch.hashes()[0];
    let fields: Vec<_> =
        info.fields.iter().map(|field| (field.name.as_str(), field.width)).collect();
    assert_eq!(
        (info.name.as_str(), fields),
        ("pipe.Ingress.crc", vec![("hdr.io.a[31:16]", 16), ("hdr.io.b[7:0]", 8)])
    );
    let given = [("hdr.io.a[31:16]".to_owned(), vec![0, 0]), ("hdr.io.b[7:0]".to_owned(), vec![1])];
    assert_eq!(switch.compute_hash("pipe.Ingress.crc", &given).unwrap(), [0xa7, 0x57, 0xb5, 0x78]);
    assert!(matches!(
        switch.compute_hash("pipe.Ingress.crc", &given[..1]),
        Err(ControlError::FieldCount { .. })
    ));
}

#[test]
fn a_model_can_be_served_from_another_thread() {
    fn assert_send<T: Send + 'static>(_: T) {}
    assert_send(switch());
}
