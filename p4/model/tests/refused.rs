//! Constructs that the model does not support are errors with file and line.

use crate::common::{Program, program};
use flowgauge_p4_model::{Model, Options, Place, SourceError};

/// Checks that a program is rejected on the line marked `/*!*/`.
fn refused(text: &str, because: &str) {
    let error = Model::from_text("small.p4", text, &Options::default()).expect_err(text);
    let line = 1 + text.lines().position(|line| line.contains("/*!*/")).expect("a mark") as u32;
    let SourceError::Invalid { place, problem } = &error else { panic!("{error}") };
    assert!(problem.contains(because), "{error}");
    assert_eq!(*place, Place { file: "small.p4".into(), line }, "{error}\n{text}");
    assert!(error.to_string().starts_with(&format!("small.p4:{line}: ")));
}

fn refused_in(edit: impl FnOnce(&mut Program), because: &str) {
    let mut program = program("", "");
    edit(&mut program);
    refused(&program.text(), because);
}

fn refused_body(body: &str, because: &str) {
    refused_in(|program| program.body = format!("\n{body} /*!*/\n"), because);
}

fn refused_local(local: &str, because: &str) {
    refused_in(|program| program.locals = format!("\n{local} /*!*/\n"), because);
}

fn refused_parser(states: &str, because: &str) {
    refused_in(|program| program.parser = states.to_owned(), because);
}

/// Returns a parser with this statement, on the marked line.
fn parsing(statement: &str) -> String {
    format!("state body {{\n{statement} /*!*/\ntransition accept; }}")
}

#[test]
fn statements() {
    refused_body("hdr.io.x = 1 hdr.io.y = 2;", "expected \";\"");
    refused_body("for (;;) {}", "unsupported statement");
    refused_body("return;", "unsupported statement");
    refused_body("switch (hdr.io.x) {}", "unsupported statement");
    refused_body("hdr.io.x = hdr.io.a / hdr.io.b;", "division");
    refused_body("hdr.io.x = md.small;", "bit<8> where bit<32>");
    refused_body("md.small = 256;", "does not fit 8 bits");
    refused_body("md.small = 8w0x1ff;", "does not fit 8 bits");
    refused_body("hdr.io.x = hdr.io.nothing;", "no field nothing");
    refused_body("hdr.io.x = nothing;", "unknown name nothing");
    refused_body("nothing();", "unknown action");
    refused_body("hdr.io.x = hdr.io.a[32:0];", "slice [32:0] of 32 bits");
    refused_body("hdr.io.x = hdr.io.a == 1;", "a bool where 32 bits are needed");
    refused_body("if (hdr.io.a) {}", "expected a bool");
    refused_body("if (hdr.io.a < md.signed) {}", "int<8> where bit<32>");
    refused_body("hdr.extra[2].setValid();", "index 2 in a stack of 2");
    refused_body("hdr.extra.next.setValid();", "unsupported stack member");
    refused_body("hdr.io.x = (bit<129>)hdr.io.a;", "unsupported width 129");
    refused_body("packet.emit(hdr);", "unknown name packet");
    refused_body("hdr.io.a.b.c();", "no field b");
}

#[test]
fn declarations() {
    refused_local("Meter<bit<8>>(16, MeterType_t.BYTES) m;", "unsupported extern Meter");
    refused_local("Register<bit<64>, bit<1>>(1, 0) r;", "a stateful ALU has no more");
    // The mark is on the line of the action.
    let compared = |condition: &str| {
        let action =
            "RegisterAction<bit<32>, bit<1>, bit<32>>(r) a = { void apply(inout bit<32> c) {";
        format!(
            "Register<bit<32>, bit<1>>(2, 0) r;\n{action} if ({condition}) {{ c = c + 1; }} }} }};"
        )
    };
    refused_local(&compared("c < 0xfc000000"), "no constant above 2^31");
    refused_local(&compared("c < 0x7c000000 || !(c <= 0x84000000)"), "no constant above 2^31");
    refused_local("Hash<bit<32>>(HashAlgorithm_t.RANDOM) h;", "unsupported hash algorithm");
    let by_range = "table t { key = { hdr.io.a : range; } actions = { NoAction; } }";
    refused_local(by_range, "unsupported match kind range");
    let fold = |fields: &str| {
        let local = "Hash<bit<32>>(HashAlgorithm_t.XOR32) fold;";
        refused_local(
            &format!("{local}\naction a() {{ hdr.io.x = fold.get({{ {fields} }}); }}"),
            "of other than 32-bit words",
        );
    };
    fold("hdr.io.a, hdr.io.b[15:0]");
    fold("hdr.io.a[15:0], hdr.io.b, hdr.io.a[31:16]");
    refused_local(
        "table t { key = { hdr.io.a : lpm; } actions = { NoAction; } const entries = { 1 : NoAction(); } }",
        "an lpm table",
    );
    let without_action = "table t { key = { hdr.io.a : exact; } actions = { missing; } }";
    refused_local(without_action, "unknown action missing");
    refused_local("table t { implementation = 3; }", "unsupported table property");
    refused_local("varbit<32> v;", "unsupported type varbit");
    let later = "action a() { t.apply(); } table t { actions = { NoAction; } }";
    refused_local(later, "unknown name t");
    refused_local("Later() later;", "type Later is not declared above");
    let early = "\nstruct early_t { later_t later; } /*!*/\nstruct later_t {}";
    refused_in(|program| program.declarations += early, "not declared above");
    let declared = |declaration: &str, because: &str| {
        refused_in(|program| program.declarations += &format!("\n{declaration} /*!*/\n"), because)
    };
    declared("extern Mine { void f(); }", "unsupported declaration");
    declared("const bool _x = static_assert(1 == 2, \"one is two\");", "one is two");
    declared("const bool _x = static_assert(1 == 2);", "static_assert failed");
    declared("const bool _x = static_assert(true, 3);", "is a text");
    declared("const int x = true;", "known at compile time");
    declared("struct later_t { int x; }\nconst bit<8> y = 256;", "does not fit 8 bits");
    declared("enum kind_t { A, B }", "an enum without numbers is unsupported");
    declared("enum bit<4> kind_t { A = 16 }", "does not fit 4 bits");
    refused_local("int x;", "int without a width");
    refused_body("hdr.io.x = \"text\";", "a text where a number");
    let odd = "\nheader odd_h { bit<7> seven; } /*!*/\nstruct metadata_t { odd_h odd; }";
    refused_in(|program| program.declarations = odd.to_owned(), "no whole bytes");
}

#[test]
fn parsers() {
    refused_parser("state body {\ntransition missing; /*!*/\n}", "no state missing");
    let branching = "\nstate body { if (md.m == 1) {} transition accept; } /*!*/";
    refused_parser(branching, "unsupported if in a parser");
    for (statement, because) in [
        ("packet.advance(3);", "no whole bytes"),
        ("md.m = packet.lookahead<bit<320>>()[31:0];", "the parser sees 256"),
        ("bit<8> next = packet.lookahead<bit<16>>();", "needs a field of as many"),
        ("io_h next = packet.lookahead<extra_h>();", "lookahead of a extra_h into a io_h"),
        ("bit<8> next = packet.lookahead<extra_h>();", "needs a header"),
        ("md.m = packet.lookahead<bool>();", "bit<N> or a header"),
        ("md.small = hdr.extra.last.kind;", "has not extracted the next element"),
        ("packet.extract(hdr.extra);", "extract takes a header"),
        ("packet.extract(hdr.io.next);", "no field next"),
    ] {
        refused_parser(&parsing(statement), because);
    }
}

#[test]
fn blocks_inside_themselves() {
    let mut program = program("Itself() itself;", "itself.apply();");
    program.declarations += "\ncontrol Itself() { Itself() itself; apply { itself.apply(); } }";
    assert!(program.load().unwrap_err().to_string().contains("does Itself hold itself?"));
}

#[test]
fn loops() {
    let mut program = program("", "");
    program.parser = "state body { transition other; } state other { transition body; }".to_owned();
    let is_refused = |program: &Program| {
        program.load().unwrap_err().to_string().contains("loop of parser states")
    };
    assert!(is_refused(&program));
    program.parser =
        "state body { packet.extract(hdr.extra[0]); transition select(hdr.extra[0].kind) { 1: body; default: accept; } }"
            .to_owned();
    assert!(is_refused(&program));
    // One of two states extracts the stack.
    program.parser = "state body { packet.extract(hdr.extra.next); transition other; }
        state other { transition select(hdr.extra[0].kind) { 1: body; default: accept; } }"
        .to_owned();
    assert!(is_refused(&program));
}

#[test]
fn stacks_and_counters_of_parsers() {
    refused_parser(
        "state body { packet.extract(hdr.extra.next); transition more; }
         state more {\nmd.small = hdr.extra.last.kind; /*!*/\ntransition accept; }",
        "has not extracted the next element",
    );
    let indexed = "\nstate body { md.small = hdr.extra.lastIndex; transition accept; } /*!*/";
    refused_parser(indexed, "unsupported stack member lastIndex");
    let counter = |states: String, because: &str| {
        refused_in(
            |program| {
                program.parser_locals = "ParserCounter() left;".to_owned();
                program.parser = states;
            },
            because,
        );
    };
    counter(parsing("left.set(8w128);"), "beyond a parser's counter");
    counter(parsing("left.decrement(200);"), "beyond a parser's counter");
    counter(parsing("left.set(hdr.io.a);"), "by other than a number");
    counter(parsing("left.push(8w1);"), "unsupported push");
    let select = "state body { transition select(\nleft.is_negative() /*!*/\n) { true: accept; default: reject; } }";
    counter(select.to_owned(), "unsupported is_negative");
    let two = "ParserCounter() left;\nParserCounter() right; /*!*/\n";
    refused_in(|program| program.parser_locals = two.to_owned(), "a parser has one");
    refused_local("\nParserCounter() left; /*!*/\n", "a parser has one");
}

#[test]
fn preprocessor() {
    refused("\n#error stop here /*!*/", "#error stop here");
    refused("\n#include <v1model.p4> /*!*/", "only <core.p4> and <tna.p4>");
    refused("\n#if 1 + /*!*/\n#endif", "a value is expected");
    refused("\n#ifdef X /*!*/\n", "#if without #endif");
    refused("#endif /*!*/", "#endif without #if");
    refused("#line 3 /*!*/", "unsupported directive");
    refused("#define F(a) a\nF(1, 2) /*!*/", "takes 1 arguments, 2 given");
    refused("\n\"open /*!*/", "closing quotation mark");
    refused("\nconst bit<8> x = \u{a7}; /*!*/", "unexpected character");
}

#[test]
fn files() {
    let missing = Model::from_file("nowhere.p4".as_ref(), &Options::default()).unwrap_err();
    assert!(missing.to_string().starts_with("cannot read nowhere.p4: "));
    refused("\n#include \"deep/other.p4\" /*!*/", "cannot include deep/other.p4");
}

#[test]
fn programs_without_a_switch() {
    let error = Model::from_text("small.p4", "struct nothing_t {}", &Options::default());
    assert!(error.unwrap_err().to_string().contains("Switch(pipeline) main"));
    assert!(Model::from_text("small.p4", "", &Options::default()).is_err());
}
