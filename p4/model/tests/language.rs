//! Every construct that the model executes, in small programs with known results.

use crate::common::{add, call, compute, counted, exact, frame, model, once, program, set_default};
use flowgauge_bfruntime::codec::PRIORITY;
use flowgauge_bfruntime::server::{Query, Write};
use flowgauge_bfruntime::{Data, Key, Match, Pipes};
use flowgauge_p4_model::{Fault, Model, Options};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: prop::test_runner::RngSeed::Fixed(0x5eed),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn arithmetic_wraps(a: u32, b: u32) {
        let mut sum = model("", "hdr.io.x = hdr.io.a + hdr.io.b; hdr.io.y = hdr.io.a - hdr.io.b;");
        prop_assert_eq!(compute(&mut sum, a, b), (a.wrapping_add(b), a.wrapping_sub(b)));
        let mut saturating = model("", "hdr.io.x = hdr.io.a |+| hdr.io.b; hdr.io.y = hdr.io.a |-| hdr.io.b;");
        prop_assert_eq!(compute(&mut saturating, a, b), (a.saturating_add(b), a.saturating_sub(b)));
        let signed = "hdr.io.x = (bit<32>)((int<32>)hdr.io.a |+| (int<32>)hdr.io.b);
                      hdr.io.y = (bit<32>)((int<32>)hdr.io.a |-| (int<32>)hdr.io.b);";
        let (sum, difference) = ((a as i32).saturating_add(b as i32), (a as i32).saturating_sub(b as i32));
        prop_assert_eq!(once("", signed, a, b), (sum as u32, difference as u32));
        let mut logic = model(
            "",
            "hdr.io.x = hdr.io.a & hdr.io.b; hdr.io.x = hdr.io.x ^ ~hdr.io.a;
             hdr.io.y = hdr.io.a | hdr.io.b; hdr.io.y = hdr.io.y * 4;",
        );
        prop_assert_eq!(compute(&mut logic, a, b), ((a & b) ^ !a, (a | b).wrapping_mul(4)));
    }

    #[test]
    fn comparisons_are_signed_where_types_are(a: u32, b: u32) {
        let unsigned = "if (hdr.io.a < 0x90000000) { hdr.io.x = 1; } if (hdr.io.a >= 0x70000000) { hdr.io.y = 1; }";
        prop_assert_eq!(once("", unsigned, a, b), (u32::from(a < 0x9000_0000), u32::from(a >= 0x7000_0000)));
        let signed = "if ((int<32>)hdr.io.a > 7) { hdr.io.x = 1; }
                      md.m = hdr.io.a - hdr.io.b; if ((int<32>)md.m <= 0) { hdr.io.y = 1; }";
        let circular = a.wrapping_sub(b) as i32 <= 0;
        prop_assert_eq!(once("", signed, a, b), (u32::from(a as i32 > 7), u32::from(circular)));
        let extremes = "hdr.io.x = max(hdr.io.a, hdr.io.b); hdr.io.y = (bit<32>)min((int<32>)hdr.io.a, (int<32>)hdr.io.b);";
        prop_assert_eq!(once("", extremes, a, b), (a.max(b), (a as i32).min(b as i32) as u32));
    }
}

/// Checks the `x` and `y` that bodies compute from `a` and `b`, each in a new model.
fn assert_computed(locals: &str, cases: &[(&str, [u32; 2], (u32, u32))]) {
    for (body, [a, b], expected) in cases {
        assert_eq!(once(locals, body, *a, *b), *expected, "{body}");
    }
}

#[test]
fn widths_slices_and_casts() {
    let joined = "hdr.io.x = hdr.io.a[15:8] ++ hdr.io.b[23:0]; hdr.io.y = 16w0 ++ hdr.io.a[31:16];";
    let parts = "hdr.io.x[7:0] = hdr.io.a[31:24]; hdr.io.x[31:24] = 0xee;";
    let signed = "md.signed = (int<8>)hdr.io.a[7:0]; hdr.io.x = (bit<32>)(int<32>)md.signed;";
    let minus = "hdr.io.x = (bit<32>)(int<32>)(-(int<8>)hdr.io.a[7:0]); hdr.io.y = -hdr.io.a;";
    let shifts = "hdr.io.x = hdr.io.a << 8; hdr.io.y = hdr.io.a >> 4;";
    let beyond = "hdr.io.x = hdr.io.a << 32; hdr.io.y = hdr.io.a >> 32;";
    let arithmetic = "hdr.io.x = (bit<32>)((int<32>)hdr.io.a >> 4);";
    let small = "md.small = 255; md.small = md.small + 3; hdr.io.x = (bit<32>)md.small;";
    let cases = [
        (joined, [0x1234_5678, 0x9abc_def0], (0x56bc_def0, 0x1234)),
        (parts, [0xab00_0000, 0], (0xee00_00ab, 0)),
        (signed, [0x80, 0], (0xffff_ff80, 0)),
        ("hdr.io.x = (bit<32>)hdr.io.a[7:0];", [0xfff, 0], (0xff, 0)),
        (minus, [1, 0], (0xffff_ffff, 0xffff_ffff)),
        (shifts, [0x8000_00ff, 0], (0xff00, 0x0800_000f)),
        (beyond, [1, 0], (0, 0)),
        (arithmetic, [0x8000_0000, 0], (0xf800_0000, 0)),
        (small, [0, 0], (2, 0)),
    ];
    assert_computed("", &cases);
}

#[test]
fn conditions_and_bools() {
    let body = "md.flag = hdr.io.a == 1 || hdr.io.b == 2 && !(hdr.io.a != 3);
                if (md.flag) { hdr.io.x = 1; } else if (hdr.io.b == 9) { hdr.io.x = 2; } else hdr.io.x = 3;
                hdr.io.y = hdr.io.a == 1 ? 32w10 : hdr.io.b;";
    assert_eq!(once("", body, 1, 0), (1, 10));
    assert_eq!(once("", body, 3, 2), (1, 2));
    assert_eq!(once("", body, 4, 9), (2, 9));
    assert_eq!(once("", body, 4, 2), (3, 2));
    // & binds tighter than !=, unlike in C.
    assert_eq!(once("", "if (hdr.io.a & 0b1010 != 0) { hdr.io.x = 1; }", 2, 0).0, 1);
}

#[test]
fn constants_typedefs_variables_and_macros() {
    let text = program(
        "",
        "STORE(x, BASE + 1) bit<32> v = hdr.io.a; word_t w = v + STEP; hdr.io.y = w; if (true) { bit<8> v = 1; }",
    );
    let text = text.text().replace(
        "struct none_t {}",
        "struct none_t {}
typedef bit<32> word_t;
const word_t STEP = 4 + 3 * (1 << 2);
#define BASE 0x10
#define JOIN(a, b) a##b
#define SET(field, value) hdr.JOIN(i, o).field = value; \\
    // and nothing else
#define STORE SET
#if defined(BASE) && BASE >= 16 && !defined OTHER
#elif 1
#error not this one
#else
#error nor this one
#endif
#ifdef OTHER
this is not P4 /* nor a comment
*/
#endif",
    );
    let mut model = Model::from_text("macros.p4", &text, &Options::default()).unwrap();
    assert_eq!(compute(&mut model, 5, 0), (17, 21));
}

#[test]
fn constants_are_folded() {
    let declarations = "
const int BITS = 1 + 7;
const int WIDE = BITS > 4 ? 2 * BITS : 1;
const bit<8> LOW = 0x01;
const bit<8> BOTH = LOW | 0x10;
const bool IS_WIDE = WIDE == 16 && !(LOW == 2);
const bool _checked = static_assert(IS_WIDE, \"not wide\") && static_assert(true);
typedef bit<(BITS)> small_t;
enum bit<8> kind_t { NONE = 0, SOME = LOW + 1 }
struct unused_t { small_t[WIDE] small; }
";
    let locals = "bit<(BITS == 0 ? 1 : BITS)> part;
        action pick() { if (IS_WIDE) { hdr.io.y = hdr.io.a; } else { hdr.io.y = hdr.io.b; } }
        table t { key = { hdr.io.a[BITS - 1:0] : ternary; } actions = { pick; } size = 4;
            const entries = { BOTH &&& (LOW | BOTH): pick(); } }";
    let body = "part = hdr.io.a[WIDE - 1:BITS]; md.small = kind_t.SOME;
        hdr.io.x = (bit<32>) ((IS_WIDE ? part : md.small) ++ (WIDE == 1 ? hdr.io.b[31:16] : md.small));
        if (BITS == 8 || hdr.io.a == 7) { t.apply(); }
        if (!IS_WIDE && hdr.io.a == 7) { t.apply(); }";
    let mut program = program(locals, body);
    program.declarations += declarations;
    let mut model = program.model();
    assert_eq!(compute(&mut model, 0x1234_5611, 9), (0x5602, 0x1234_5611));
    assert_eq!(compute(&mut model, 0x1234_5610, 9), (0x5602, 0));
}

/// Objects that no statement reaches are not in the program, as with the chip's compiler; registers
/// are.
#[test]
fn unused_tables_hashes_and_controls_are_left_out() {
    let locals = "Register<bit<32>, bit<1>>(2, 0) kept;
        Hash<bit<32>>(HashAlgorithm_t.CRC32) crc;
        action a() { hdr.io.x = crc.get({ hdr.io.a }); }
        action b() { hdr.io.y = 1; }
        table unused { key = { hdr.io.a : exact; } actions = { a; } }
        table used { key = { hdr.io.a : exact; } actions = { b; } const entries = { 1: b(); } }
        Inner() inner;";
    let mut program =
        program(locals, "used.apply(); if (false) { unused.apply(); inner.apply(); }");
    program.declarations +=
        "control Inner() { Register<bit<32>, bit<1>>(2, 0) left; apply { left.clear(); } }";
    program.declarations += "\nstruct digest_t { bit<32> who; }";
    program.deparser_locals = "Digest<digest_t>() report;".to_owned();
    program.deparser = "if (false) { report.pack({ hdr.io.a }); }".to_owned();
    let mut model = program.model();
    let schema = model.schema();
    let names: Vec<_> =
        schema["tables"].as_array().unwrap().iter().map(|table| &table["name"]).collect();
    assert_eq!(names, ["pipe.Ingress.used", "pipe.Ingress.kept", "pipe.In.$PORT_METADATA"]);
    assert_eq!(schema["learn_filters"].as_array().unwrap().len(), 0);
    assert_eq!(compute(&mut model, 1, 0), (0, 1));
}

#[test]
fn actions_and_sub_controls() {
    let mut program = program(
        "action add(bit<32> what) { hdr.io.x = hdr.io.x + what; } Twice() twice; Twice() again;",
        "add(hdr.io.a); add(1); twice.apply(hdr.io.x, hdr.io.b); again.apply(hdr.io.x, 7);",
    );
    program.declarations += "\ncontrol Twice(inout bit<32> value, in bit<32> more) {
        action double() { value = value + value; }
        apply { double(); value = value + more; }
    }";
    assert_eq!(compute(&mut program.model(), 4, 3).0, 33);
    program.body = "twice.apply(hdr.io.x, 1); twice.apply(hdr.io.x, 1);".to_owned();
    assert!(program.load().unwrap_err().to_string().contains("applied in two places"));
}

#[test]
fn headers_structs_and_validity() {
    let body = "hdr.extra[0].setValid(); hdr.extra[0].kind = 7; hdr.extra[1] = hdr.extra[0]; hdr.extra[1].rest = 0x010203;
                if (hdr.extra[1].isValid()) { hdr.extra[0].setInvalid(); }";
    let output = model("", body).inject(0, &frame(1, 2)).unwrap();
    assert_eq!(output[0].frame[..8], [7, 1, 2, 3, 0, 0, 0, 1]);
    assert_eq!(output[0].frame.len(), 20);
}

#[test]
fn parser_selects_looks_ahead_and_keeps_the_payload() {
    let mut program = program("", "hdr.io.y = md.m;");
    program.parser = "state body {
        transition select(packet_kind(), 1w1) { default: accept; }
    }"
    .to_owned();
    assert!(program.load().is_err());
    program.parser_locals = "Sub() sub;".to_owned();
    program.parser = "state body { packet.extract(hdr.extra[0]); transition select(hdr.extra[0].kind, hdr.extra[0].rest[0:0]) {
        (1, 1): second; (0x40 &&& 0xf0, _): ahead; (2, _): reject; (3, _): sub_parser; (8, _): look_twice; default: accept; } }
    state second { packet.extract(hdr.extra[1]); transition io; }
    state look_twice { extra_h next = packet.lookahead<extra_h>(); bit<8> first = packet.lookahead<bit<32>>()[31:24];
        transition select(next.kind, next.rest, first) { (7, 0x010203, 7): ahead; default: accept; } }
    state ahead { md.m = packet.lookahead<bit<96>>()[63:32]; transition io; }
    state sub_parser { sub.apply(packet, hdr); md.m = 5; transition accept; }
    state io { packet.extract(hdr.io); transition accept; }"
        .to_owned();
    program.declarations += "\nparser Sub(packet_in bytes, inout headers_t headers) {
        state start { bytes.extract(headers.extra[1]); transition select(headers.extra[1].kind) { 9: skip; default: read; } }
        state skip { bytes.advance(32); transition read; }
        state read { bytes.extract(headers.io); transition accept; }
    }";
    let mut model = program.model();
    let mut out = |head: &[u8]| {
        let bytes = [head, &frame(0xa, 0xb), &[0xff; 3]].concat();
        model.inject(0, &bytes).unwrap().pop().map(|output| output.frame)
    };
    let payload_only = [5, 0, 0, 0];
    let second = [1, 0, 0, 1, 6, 6, 6, 6];
    for head in [&payload_only[..], &second] {
        assert_eq!(out(head).unwrap(), [head, &frame(0xa, 0xb), &[0xff; 3]].concat(), "{head:?}");
    }
    let ahead = out(&[0x4f, 0, 0, 0]).unwrap();
    assert_eq!(ahead[16..20], [0, 0, 0, 0xb], "lookahead leaves the packet as it is");
    assert_eq!(ahead.len(), 23);
    let looked = out(&[8, 0, 0, 0, 7, 1, 2, 3, 0, 0, 0, 9]).unwrap();
    assert_eq!(looked[..4], [8, 0, 0, 0]);
    assert_eq!(looked[16..20], [0, 0, 0, 9], "as the second look found it");
    assert_eq!(out(&[2, 0, 0, 0]), None, "rejected");
    let skipped = out(&[3, 0, 0, 0, 9, 0, 0, 0, 1, 1, 1, 1]).unwrap();
    assert_eq!(skipped.len(), 8 + 16 + 3, "what advance skips is not in the packet any more");
    assert_eq!(skipped[20..24], [0, 0, 0, 5]);
}

#[test]
fn a_cut_header_drops_the_packet_unless_the_error_is_read() {
    assert_eq!(model("", "").inject(0, &[0; 15]).unwrap(), []);
    let mut reading = model(
        "",
        "if (pm.parser_err != 0 && !hdr.io.isValid()) { hdr.extra[0].setValid(); hdr.extra[0].rest = (bit<24>)pm.parser_err; }",
    );
    let cut = reading.inject(0, &[9; 15]).unwrap();
    assert_eq!(cut[0].frame, [&[0, 0, 0, 2][..], &[9; 15]].concat());
    assert_eq!(reading.inject(0, &[]).unwrap()[0].frame, [0, 0, 0, 2]);
}

#[test]
fn tables_match_exactly_by_prefix_and_by_mask() {
    let locals = "action set(bit<32> v) { hdr.io.x = v; } action nothing() {}
        table narrow { key = { hdr.io.a[7:0] : exact @name(\"low\"); } actions = { set; nothing; } default_action = set(99); size = 4; }
        table wide { key = { hdr.io.a : exact; hdr.io.isValid() : exact; } actions = { set; } size = 4; }
        table prefix { key = { hdr.io.a : lpm @name(\"net\"); } actions = { set; } default_action = set(98); }
        table masks { key = { hdr.io.a : ternary; hdr.io.b : ternary; } actions = { set; nothing; } }";
    let with = |apply: &str| model(locals, apply);

    let mut narrow = with("narrow.apply();");
    assert_eq!(compute(&mut narrow, 0x105, 0).0, 99);
    let set = |v: u8| call("Ingress.set", &[("v", &[0, 0, 0, v])]);
    add(&mut narrow, "pipe.Ingress.narrow", exact("low", &[5]), set(6));
    assert_eq!(compute(&mut narrow, 0x105, 0).0, 6);
    assert_eq!(compute(&mut narrow, 0x106, 0).0, 99);

    let mut wide = with("if (wide.apply().hit) { hdr.io.y = 1; }");
    let fields = [exact("hdr.io.a", &[0, 0, 1, 5]), exact("hdr.io.$valid$", &[1])];
    add(&mut wide, "pipe.Ingress.wide", fields.into_iter().flatten().collect(), set(7));
    assert_eq!(compute(&mut wide, 0x105, 0), (7, 1));
    assert_eq!(compute(&mut wide, 0x106, 0), (0, 0));

    let mut prefix = with("prefix.apply();");
    let nets = [([10, 0, 0, 0], 8), ([10, 1, 0, 0], 16), ([10, 1, 2, 3], 32), ([0; 4], 0)];
    for ((value, length), answer) in nets.into_iter().zip(1..) {
        let net = Match::Lpm { value: value.to_vec(), prefix_length: length };
        add(&mut prefix, "pipe.Ingress.prefix", [("net".to_owned(), net)].into(), set(answer));
    }
    let answers =
        [0x0a02_0000, 0x0a01_0000, 0x0a01_0203, 0x0b00_0000].map(|a| compute(&mut prefix, a, 0).0);
    assert_eq!(answers, [1, 2, 3, 4]);

    let mut masks = with("masks.apply();");
    for (priority, mask, answer) in [(20_u32, 0xf0, 1), (10, 0xff, 2), (30, 0, 3)] {
        let field = |name: &str, value: u8, mask: u8| {
            let [value, mask] = [value, mask].map(|byte| vec![0, 0, 0, byte]);
            (name.to_owned(), Match::Ternary { value, mask })
        };
        let priority = (PRIORITY.to_owned(), Match::Exact(priority.to_be_bytes().to_vec()));
        let key = Key::from([field("hdr.io.a", 0x12, mask), field("hdr.io.b", 0, 0), priority]);
        add(&mut masks, "pipe.Ingress.masks", key, set(answer));
    }
    assert_eq!([0x12, 0x13, 0x23].map(|a| compute(&mut masks, a, 0).0), [2, 1, 3]);
}

#[test]
fn constant_entries_and_keyless_tables() {
    let locals = "action m0() { hdr.io.x = 10; } action m1(bit<8> v) { hdr.io.x = (bit<32>)v; }
        table signs { key = { hdr.io.a[31:31] : exact; hdr.io.b[31:31] : exact; } actions = { m0; m1; } size = 4;
            const entries = { (0, 0) : m0(); (0, 1) : m1(21); (1, _ignored) : m1(22); } const default_action = m1(23); }
        table fixed { actions = { m0; } const default_action = m0(); size = 1; }
        table masks { key = { hdr.io.a : ternary; } actions = { m0; m1; NoAction; }
            const entries = { 0x10 &&& 0xf0 : m1(1); 5 : m0(); default : m1(2); } }";
    let locals = locals.replace("(1, _ignored)", "(1, 1)");
    let mut signs = model(&locals, "signs.apply();");
    let high = 0x8000_0000;
    assert_eq!(
        [(0, 0), (0, high), (high, high), (high, 0)].map(|(a, b)| compute(&mut signs, a, b).0),
        [10, 21, 22, 23]
    );
    let mut masks = model(&locals, "masks.apply();");
    assert_eq!([0x1f, 5, 6].map(|a| compute(&mut masks, a, 0).0), [1, 10, 2]);
    let mut fixed = model(&locals, "fixed.apply();");
    assert_eq!(compute(&mut fixed, 0, 0).0, 10);
    let write = Write::SetDefault(call("Ingress.m0", &[]));
    assert!(fixed.write("pipe.Ingress.fixed", Pipes::All, &write).is_err());
}

#[test]
fn registers_of_one_value() {
    let locals = "Register<bit<8>, bit<4>>(16, 3) r;
        RegisterAction<bit<8>, bit<4>, bit<8>>(r) highest = { void apply(inout bit<8> v, out bit<8> old) {
            old = v; v = max(v, hdr.io.b[7:0]); } };
        RegisterAction<bit<8>, bit<4>, bit<8>>(r) add = { void apply(inout bit<8> v) { v = v + 200; } };";
    let body = "if (hdr.io.a[31:31] == 0) { hdr.io.x[7:0] = highest.execute(hdr.io.a[3:0]); } else { add.execute(hdr.io.a[3:0]); }";
    let mut model = model(locals, body);
    assert_eq!([9, 4, 12].map(|b| compute(&mut model, 2, b).0), [3, 9, 9]);
    assert_eq!(model.register_range("pipe.Ingress.r", 0, 0..4, 0).unwrap(), [3, 3, 12, 3]);
    compute(&mut model, 0x8000_0002, 0);
    assert_eq!(compute(&mut model, 2, 0).0, 212);
    compute(&mut model, 0x8000_0002, 0);
    assert_eq!(compute(&mut model, 2, 0).0, 156, "eight bits wrap");
}

#[test]
fn registers_of_pairs_with_predicates_and_parameters() {
    let mut program = program(
        "Register<pair_t, bit<2>>(4, {0, 1}) r;
        RegisterParam<bit<32>>(100) idle;
        RegisterAction<pair_t, bit<2>, bit<4>>(r) own = { void apply(inout pair_t v, out bit<4> rv) {
            rv = this.predicate(v.key == hdr.io.a, hdr.io.b - v.time > idle.read());
            if (v.key == hdr.io.a || hdr.io.b - v.time > idle.read()) { v.key = hdr.io.a; v.time = hdr.io.b; } } };",
        "md.m[3:0] = own.execute(1); hdr.io.x = md.m;",
    );
    program.declarations += "\nstruct pair_t { bit<32> key; bit<32> time; }";
    let mut model = program.model();
    // Time 200 is more than 100 after 1; then 7 owns the slot, and 8 must wait until more than 100
    // have passed.
    let answers = [(7, 200), (7, 250), (8, 300), (8, 351), (7, 360)]
        .map(|(a, b)| compute(&mut model, a, b).0);
    assert_eq!(answers, [0b100, 0b010, 0b001, 0b100, 0b001]);
    set_default(&mut model, "pipe.Ingress.idle", Data::fields([("value", vec![0, 0, 0, 5])]));
    assert_eq!(compute(&mut model, 7, 360).0, 0b100);
    let key = exact("$REGISTER_INDEX", &[0, 0, 0, 1]);
    let entries = model.read("pipe.Ingress.r", Pipes::One(0), &Query::Entry(key)).unwrap();
    let values = [("Ingress.r.key", vec![0, 0, 0, 7]), ("Ingress.r.time", vec![0, 0, 1, 104])];
    assert_eq!(entries[0].data, Data::fields(values));
}

#[test]
fn signed_parameters_and_initial_values() {
    let mut program = program(
        "Register<pair_t, bit<2>>(4, {0, -1}) r;
        RegisterParam<int<32>>(-100) less;
        RegisterAction<pair_t, bit<2>, bit<32>>(r) act = { void apply(inout pair_t v, out bit<32> rv) {
            rv = (bit<32>) v.time;
            if (v.time - (int<32>) hdr.io.a < less.read()) { v.time = (int<32>) hdr.io.a; } } };",
        "hdr.io.x = act.execute(1);",
    );
    program.declarations += "\nstruct pair_t { int<32> key; int<32> time; }";
    let mut model = program.model();
    let schema = model.schema();
    let tables = schema["tables"].as_array().unwrap();
    let table = |name: &str| tables.iter().find(|table| table["name"] == name).unwrap();
    let (parameter, register) = (table("pipe.Ingress.less"), table("pipe.Ingress.r"));
    assert_eq!(parameter["data"][0]["singleton"]["type"]["default_value"], -100);
    assert_eq!(parameter["depends_on"].as_array().unwrap(), std::slice::from_ref(&register["id"]));
    // A time is replaced if it is more than 100 ago: -1 by 100, and 100 by 201.
    let before = [50, 100, 200, 201, 201].map(|a| compute(&mut model, a, 0).0);
    assert_eq!(before, [u32::MAX, u32::MAX, 100, 100, 201]);
}

/// 64-bit sum in one stateful ALU (p4 notes): the low half carries into the high one.
#[test]
fn a_pair_carries() {
    let mut program = program(
        "Register<pair_t, bit<1>>(2, {0, 0}) sum;
        RegisterAction<pair_t, bit<1>, bit<32>>(sum) add = { void apply(inout pair_t v) {
            if (v.lo > ~hdr.io.a) { v.hi = v.hi + 1; } v.lo = v.lo + hdr.io.a; } };",
        "add.execute(0);",
    );
    program.declarations += "\nstruct pair_t { bit<32> lo; bit<32> hi; }";
    let mut model = program.model();
    let mut expected = 0_u64;
    for a in [u32::MAX, 1, u32::MAX, 5, 0, u32::MAX - 3, 0x8000_0000] {
        compute(&mut model, a, 0);
        expected += u64::from(a);
        let [lo, hi] = [0, 1]
            .map(|field| model.register_range("pipe.Ingress.sum", field, 0..1, 0).unwrap()[0]);
        assert_eq!(hi << 32 | lo, expected);
    }
}

/// Decrement that returns the negated value (Count Sketch, p4 notes).
#[test]
fn a_result_is_computed_before_or_after_the_update_as_written() {
    let locals = "Register<bit<32>, bit<1>>(1, 0) r;
        RegisterAction<bit<32>, bit<1>, bit<32>>(r) dec = { void apply(inout bit<32> v, out bit<32> rv) { rv = 1 - v; v = v - 1; } };";
    let mut model = model(locals, "hdr.io.x = dec.execute(0);");
    assert_eq!([0; 3].map(|_| compute(&mut model, 0, 0).0), [1, 2, 3]);
}

#[test]
fn hashes() {
    let locals = "CRCPolynomial<bit<32>>(32w0x790900f3, true, false, false, 32w0xffffffff, 32w0xffffffff) p;
        Hash<bit<32>>(HashAlgorithm_t.CUSTOM, p) crc; Hash<bit<12>>(HashAlgorithm_t.CUSTOM, p) short;
        Hash<bit<32>>(HashAlgorithm_t.XOR32) fold; Hash<bit<16>>(HashAlgorithm_t.IDENTITY) same;
        Hash<bit<32>>(HashAlgorithm_t.CRC32) ieee; Hash<bit<32>>(HashAlgorithm_t.CUSTOM, p) bits;";
    let fields_that_fill_words_together =
        "hdr.io.x = fold.get({ hdr.io.a, hdr.io.b[15:0], hdr.io.b[31:16] });";
    let fields_join_without_gaps =
        "hdr.io.x = bits.get({ hdr.io.a[31:28], hdr.io.a[27:3], hdr.io.a[2:0] });";
    let crc = "hdr.io.x = crc.get({ hdr.io.a }); hdr.io.y = 20w0 ++ 12w0;";
    let fold = "hdr.io.x = fold.get({ hdr.io.a, hdr.io.b, hdr.io.a, 32w1 });";
    let same = "hdr.io.x[15:0] = same.get({ hdr.io.a[19:8], 4w3 });";
    let ieee = "hdr.io.x = ieee.get({ hdr.io.a, hdr.io.b, 8w0x39 });";
    let cases = [
        (crc, [0x0a00_0001, 0], (0xa757_b578, 0)),
        ("hdr.io.x[11:0] = short.get({ hdr.io.a });", [0x0a00_0001, 0], (0x578, 0)),
        (fold, [5, 6], (7, 0)),
        (fields_that_fill_words_together, [1, 0x0002_0003], (0x0003_0003, 0)),
        (same, [0x000a_bc00, 0], (0xabc3, 0)),
        (fields_join_without_gaps, [0x0a00_0001, 0], (0xa757_b578, 0)),
        (ieee, [0x3132_3334, 0x3536_3738], (0xcbf4_3926, 0)),
    ];
    assert_computed(locals, &cases);
}

#[test]
fn counters_count_frames_and_their_bytes() {
    let locals = "Counter<bit<64>, bit<2>>(4, CounterType_t.PACKETS_AND_BYTES) both; Counter<bit<64>, bit<1>>(1, CounterType_t.PACKETS) one;";
    let mut model = model(locals, "both.count(hdr.io.a[1:0]); one.count(0);");
    for (port, length) in [(0, 60), (127, 1514), (128, 100)] {
        let mut frame = frame(2, 0);
        frame.resize(length, 0);
        model.inject(port, &frame).unwrap();
    }
    let both = [Pipes::One(0), Pipes::One(1), Pipes::All]
        .map(|pipes| counted(&model, "pipe.Ingress.both", 2, pipes));
    assert_eq!(both, [(2, 1574), (1, 100), (3, 1674)]);
    assert_eq!(counted(&model, "pipe.Ingress.one", 0, Pipes::All), (3, 0));
}

#[test]
fn pipes_have_registers_of_their_own_and_tables_in_common() {
    let locals = "Register<bit<32>, bit<1>>(1, 0) r;
        RegisterAction<bit<32>, bit<1>, bit<32>>(r) count = { void apply(inout bit<32> v, out bit<32> rv) { v = v + 1; rv = v; } };
        action set(bit<32> v) { hdr.io.y = v; } table all { actions = { set; } default_action = set(1); }";
    let mut model = model(locals, "hdr.io.x = count.execute(0); all.apply();");
    let set = call("Ingress.set", &[("v", &[0, 0, 0, 8])]);
    set_default(&mut model, "pipe.Ingress.all", set);
    let mut at = |port| {
        let frame = &model.inject(port, &frame(0, 0)).unwrap()[0].frame;
        (frame[11], frame[15])
    };
    assert_eq!([0, 1, 128, 5, 255].map(&mut at), [(1, 8), (2, 8), (1, 8), (3, 8), (2, 8)]);
    assert_eq!(model.inject(256, &frame(0, 0)), Err(Fault::NoSuchPort { port: 256, pipes: 2 }));
}

#[test]
fn an_index_behind_the_end_is_refused() {
    let locals = "Register<bit<32>, bit<4>>(3, 0) r;
        RegisterAction<bit<32>, bit<4>, bit<32>>(r) count = { void apply(inout bit<32> v) { v = v + 1; } };";
    let mut model = model(locals, "count.execute(hdr.io.a[3:0]);");
    assert!(model.inject(0, &frame(2, 0)).is_ok());
    let fault = Fault::IndexOutOfRange { name: "pipe.Ingress.r".to_owned(), index: 3, size: 3 };
    assert_eq!(model.inject(0, &frame(3, 0)), Err(fault));
}

#[test]
fn ports_drops_and_time() {
    let body = "hdr.io.x = 23w0 ++ im.ingress_port; hdr.io.y = im.ingress_mac_tstamp[31:0];
                tm.ucast_egress_port = hdr.io.a[8:0]; if (hdr.io.b == 1) { dm.drop_ctl = 1; }";
    let mut model = model("", body);
    model.set_clock(0x1234_5678_9abc);
    let output = model.inject(129, &frame(7, 0)).unwrap();
    let computed = [0, 0, 0, 129, 0x56, 0x78, 0x9a, 0xbc];
    assert_eq!((output[0].port, &output[0].frame[8..]), (7, &computed[..]));
    assert_eq!(model.inject(129, &frame(7, 1)).unwrap(), []);
    assert_eq!(model.inject(129, &frame(0x1ff, 0)).unwrap(), [], "no port");
}

#[test]
fn digests() {
    let mut program = program("", "if (hdr.io.a == 5) { dm.digest_type = 2; md.small = 9; }");
    program.declarations += "\nstruct digest_t { bit<32> who; bit<8> why; bit<12> part; }";
    program.deparser_locals = "Digest<digest_t>() report;".to_owned();
    program.deparser =
        "if (dm.digest_type == 2) { report.pack({ hdr.io.b, md.small, hdr.io.b[11:0] }); }"
            .to_owned();
    let mut model = program.model();
    model.inject(0, &frame(4, 1)).unwrap();
    model.inject(130, &frame(5, 0x1234)).unwrap();
    let digests = model.take_digests();
    assert_eq!(digests.len(), 1);
    assert_eq!((digests[0].filter.as_str(), digests[0].pipe), ("pipe.Out.report", 1));
    let fields = [("who", vec![0, 0, 0x12, 0x34]), ("why", vec![9]), ("part", vec![2, 0x34])];
    assert_eq!(digests[0].entries, [fields.map(|(name, value)| (name.to_owned(), value))]);
    assert!(model.take_digests().is_empty());
}

#[test]
fn resubmission_carries_a_header_and_counts_as_a_pass() {
    let mut program = program(
        "Register<bit<32>, bit<1>>(1, 0) r;
        RegisterAction<bit<32>, bit<1>, bit<32>>(r) count = { void apply(inout bit<32> v, out bit<32> rv) { v = v + 1; rv = v; } };",
        "hdr.io.y = count.execute(0);
         if (im.resubmit_flag == 0 || hdr.io.a == 9) {
            dm.resubmit_type = 1; md.back.setValid(); md.back.one = hdr.io.a + 1; md.back.two = 0;
         } else { hdr.io.x = md.carried.one; }",
    );
    program.declarations = "struct metadata_t { carried_h back; carried_h carried; }".to_owned();
    program.deparser_locals = "Resubmit() resubmit;".to_owned();
    program.deparser = "if (dm.resubmit_type == 1) { resubmit.emit(md.back); }".to_owned();
    program.parser = "state body { packet.extract(hdr.io); transition accept; }".to_owned();
    let text = program.text().replace(
        "state start { packet.extract(im); packet.advance(PORT_METADATA_SIZE); transition body; }\n    state body",
        "state start { packet.extract(im); transition select(im.resubmit_flag) { 1: again; default: port; } }
        state again { packet.extract(md.carried); transition body; }
        state port { packet.advance(PORT_METADATA_SIZE); transition body; }
        state body",
    );
    let mut model = Model::from_text("resubmit.p4", &text, &Options::default()).unwrap();
    let what = "the first pass' changes to the packet are gone, those to the register are not";
    assert_eq!(compute(&mut model, 40, 0), (41, 2), "{what}");
    assert_eq!(compute(&mut model, 50, 0), (51, 4));
    assert_eq!(model.inject(0, &frame(9, 0)), Err(Fault::ResubmittedTwice));
}

#[test]
fn recirculation_comes_back_in_the_same_pipe() {
    let mut model = model(
        "",
        "hdr.io.x = hdr.io.x + 1; if (hdr.io.x[7:0] != hdr.io.a[7:0]) { tm.ucast_egress_port = 68; }",
    );
    assert_eq!(compute(&mut model, 5, 0).0, 5);
    assert_eq!(model.inject(0, &frame(200, 0)), Err(Fault::EndlessRecirculation));
}

#[test]
fn a_parser_walks_along_a_stack_as_far_as_it_goes() {
    let mut program =
        program("", "if (hdr.extra[1].isValid()) { hdr.io.y = (bit<32>)hdr.extra[1].rest; }");
    program.parser = "state body { packet.extract(hdr.extra.next); md.small = hdr.extra.last.kind;
        transition select(hdr.extra.last.kind, hdr.extra.last.rest) { (0, 1): body; (0, 2): io; default: accept; } }
        state io { packet.extract(hdr.io); transition accept; }"
        .to_owned();
    let mut model = program.model();
    let one = [&[0, 0, 0, 2][..], &frame(3, 4)].concat();
    assert_eq!(model.inject(0, &one).unwrap()[0].frame, one);
    let two = [&[0, 0, 0, 1, 0, 0, 0, 2][..], &frame(3, 4)].concat();
    let with_second = [&two[..20], &[0, 0, 0, 2]].concat();
    assert_eq!(model.inject(0, &two).unwrap()[0].frame, with_second, "the second element");
    assert_eq!(model.inject(0, &[0, 0, 0, 1, 9, 9]).unwrap(), [], "it ends inside the second one");
    let three = [&[0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2][..], &frame(3, 4)].concat();
    let overflow = Fault::StackOverflow { state: "pipe.In.body".to_owned() };
    assert_eq!(model.inject(0, &three), Err(overflow));
    let what = "each packet begins with the first one";
    assert_eq!(model.inject(0, &one).unwrap()[0].frame, one, "{what}");
}

#[test]
fn a_parsers_counter_ends_a_loop() {
    let mut program = program("", "hdr.io.y = 1;");
    program.parser_locals = "ParserCounter() left;".to_owned();
    program.parser = "state body { packet.extract(hdr.carried); transition select(hdr.carried.one) { 1: one; 2: two; 9: up; default: accept; } }
        state one { left.set(8w1); transition more; }
        state two { left.set(8w3); left.decrement(1); transition more; }
        state up { left.set(8w127); left.increment(127); left.increment(4); transition more; }
        state more { packet.extract(hdr.extra.next); left.decrement(1); transition select(left.is_zero()) { true: io; default: more; } }
        state io { packet.extract(hdr.io); transition accept; }"
        .to_owned();
    let mut model = program.model();
    // The deparser emits the stack first.
    let mut out = |kind: u8, extra: usize| {
        let bytes = [&[0, 0, 0, kind, 0, 0, 0, 0][..], &vec![7; extra * 4], &frame(3, 4)].concat();
        model.inject(0, &bytes).map(|mut output| output.pop().map(|output| output.frame))
    };
    let counted = |kind: u8, extra: usize| {
        [&vec![7; extra * 4][..], &frame(3, 4)[..12], &[0, 0, 0, 1, 0, 0, 0, kind, 0, 0, 0, 0]]
            .concat()
    };
    assert_eq!(out(1, 1).unwrap(), Some(counted(1, 1)));
    assert_eq!(out(2, 2).unwrap(), Some(counted(2, 2)));
    assert_eq!(out(9, 2).unwrap(), Some(counted(9, 2)), "the counter has eight bits");
}

#[test]
fn a_second_assignment_in_a_parser_is_refused() {
    let mut program = program("", "hdr.io.x = md.m;");
    program.parser =
        "state body { packet.extract(hdr.io); md.m = 0; md.m = hdr.io.a; transition more; }
        state more { md.m = hdr.io.b; transition accept; }"
            .to_owned();
    let mut model = program.model();
    assert_eq!(compute(&mut model, 0, 3).0, 3, "zero is no value yet");
    let second = Fault::SecondAssignment { state: "pipe.In.more".to_owned() };
    assert_eq!(model.inject(0, &frame(1, 3)), Err(second));
}
