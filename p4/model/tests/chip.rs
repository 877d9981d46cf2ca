//! Constructs that the chip or its compiler rejects. The model rejects them when the program is
//! loaded, at file and line, with the name of the limit.
//!
//! Each construct is in a table with its outcome. If the chip's compiler is available, it must
//! agree, except for the listed differences.

use crate::common::{Program, frame, program};
use crate::p4c;
use flowgauge_p4_model::{Fault, Model, Options, SourceError};

/// Outcome of a program.
enum Outcome {
    /// Rejected on the marked line, with these words.
    Refused(&'static str),
    /// Rejected on any line, with these words.
    RefusedAnywhere(&'static str),
    /// Runs, as far as the compiler is known.
    Runs,
    /// Loads, and this packet causes a fault.
    Fault(fn(&Fault) -> bool, u32, u32),
}

use Outcome::{Refused, RefusedAnywhere, Runs};

/// Loop over extension headers that reads a header before it is known whether it belongs to the
/// stack.
const LOOKING_LOOP: &str = "state body { extra_h next = packet.lookahead<extra_h>();
        transition select(next.rest, next.kind) { (0, 1) : more; (0, _) : last; default : accept; } }
    state more { packet.extract(hdr.extra.next); transition body; }
    state last { packet.extract(hdr.extra.next); transition select(hdr.extra.last.kind) { 2 : inner; default : accept; } }
    state inner { packet.extract(hdr.io); transition accept; }";

/// Construct: its name, how it is added to a program, and the outcome.
type Construct = (&'static str, fn(&mut Program), Outcome);

const ADD: &str = "Register<bit<32>, bit<8>>(256, 0) r;
    RegisterAction<bit<32>, bit<8>, bit<32>>(r) add = { void apply(inout bit<32> v, out bit<32> rv) { v = v + 1; rv = v; } };";

/// Counter in which two tables count.
const COUNTED_TWICE: &str = "Counter<bit<64>, bit<8>>(256, CounterType_t.PACKETS) c;
    action s() { c.count(hdr.io.a[7:0]); } action s2() { c.count(hdr.io.b[7:0]); }
    table t { key = { hdr.io.a : exact; } actions = { s; } size = 16; }
    table t2 { key = { hdr.io.b : exact; } actions = { s2; } size = 16; }";

/// Table with a key whose default action is `s`.
const BY_DEFAULT: &str = "\ntable t { /*!*/
    key = { hdr.io.a : exact; } actions = { s; } const default_action = s(); size = 16; }";

/// Table that changes what is sent.
const COUNTING_UP: &str = "action s() { hdr.io.x = hdr.io.x + 1; }
    table t { key = { hdr.io.a : exact; } actions = { s; } const default_action = s(); size = 16; }";

/// Adds two hashes of this many bits.
fn hashes(program: &mut Program, bits: u32) {
    program.locals = format!(
        "Hash<bit<{bits}>>(HashAlgorithm_t.CRC{bits}) h0; Hash<bit<{bits}>>(HashAlgorithm_t.CRC{bits}) h1;"
    );
}

/// Adds an action with these statements.
fn action(program: &mut Program, statements: &str) {
    program.locals += &format!(
        "action s() {{\n{statements} /*!*/\n}} table t {{ actions = {{ s; }} const default_action = s(); }}"
    );
    program.body = "t.apply();".to_owned();
}

/// Adds a register action with this body to a register of numbers.
fn on_number(program: &mut Program, body: &str) {
    program.locals = format!(
        "Register<bit<32>, bit<8>>(256, 0) r;
        RegisterAction<bit<32>, bit<8>, bit<32>>(r) f = {{
            void apply(inout bit<32> v, out bit<32> rv) {{ {body} }} /*!*/
        }};"
    );
    program.body = "hdr.io.x = f.execute(hdr.io.a[7:0]);".to_owned();
}

/// Adds a register action with this body to a register of pairs.
fn on_pair(program: &mut Program, body: &str) {
    program.declarations += "\nstruct pair_t { bit<32> lo; bit<32> hi; }";
    program.locals = format!(
        "Register<pair_t, bit<8>>(256, {{0, 0}}) r;
        RegisterAction<pair_t, bit<8>, bit<32>>(r) f = {{
            void apply(inout pair_t v, out bit<32> rv) {{ {body} }} /*!*/
        }};"
    );
    program.body = "hdr.io.x = f.execute(hdr.io.a[7:0]);".to_owned();
}

fn body(program: &mut Program, body: &str) {
    program.declarations =
        program.declarations.replace("bool flag;", "bool flag; bit<64> wide; bit<128> widest;");
    program.body = format!("\n{body} /*!*/\n");
}

fn local(program: &mut Program, local: &str, body: &str) {
    program.locals = format!("\n{local} /*!*/\n");
    program.body = body.to_owned();
}

/// Adds consecutive tables, each with the result of the previous one as key.
fn chained(program: &mut Program, number: usize) {
    for table in 0..number {
        program.locals += &format!(
            "action s{table}(bit<32> d) {{ hdr.io.x = d; }}
            table t{table} {{ key = {{ hdr.io.x : exact; }} actions = {{ s{table}; }} size = 16; }}\n"
        );
        program.body += &format!("t{table}.apply();\n");
    }
}

/// Adds registers, each with the value of the previous one as index.
fn chained_registers(program: &mut Program, number: usize) {
    for register in 0..number {
        program.locals += &ADD
            .replace("(r)", &format!("(r{register})"))
            .replace(" r;", &format!(" r{register};"))
            .replace(" add ", &format!(" add{register} "));
        program.body += &format!("hdr.io.x = add{register}.execute(hdr.io.x[7:0]);\n");
    }
}

/// Adds this many actions of one register; a packet runs one of them.
fn register_actions(program: &mut Program, number: usize) {
    program.locals = "Register<bit<32>, bit<8>>(256, 0) r;\n".to_owned();
    for action in 0..number {
        let mark = if action == 4 { "/*!*/" } else { "" };
        program.locals += &format!(
            "RegisterAction<bit<32>, bit<8>, bit<32>>(r) f{action} = {{ {mark}
                void apply(inout bit<32> v) {{ v = v + {action}; }} }};\n"
        );
        let otherwise = if action > 0 { "else" } else { "" };
        program.body += &format!(
            "{otherwise} if (hdr.io.b[2:0] == {action}) {{ f{action}.execute(hdr.io.a[7:0]); }}\n"
        );
    }
}

fn digest(program: &mut Program, fields: &str, values: &str) {
    program.declarations += &format!("\nstruct digest_t {{ {fields} }}");
    program.deparser_locals = "\nDigest<digest_t>() report; /*!*/\n".to_owned();
    program.body = "dm.digest_type = 1;".to_owned();
    program.deparser = format!("if (dm.digest_type == 1) {{ report.pack({{ {values} }}); }}");
}

const CONSTRUCTS: &[Construct] = &[
    // Registers: each belongs to one stage.
    (
        "two accesses one after another",
        |program| {
            program.locals = ADD.to_owned();
            body(
                program,
                "hdr.io.x = add.execute(hdr.io.a[7:0]); hdr.io.y = add.execute(hdr.io.b[7:0]);",
            );
        },
        Refused("pipe.Ingress.r is reached twice"),
    ),
    (
        "a second access that hardly any packet makes",
        |program| {
            program.locals = ADD.to_owned();
            body(
                program,
                "hdr.io.x = add.execute(0); if (hdr.io.b == 0xfffffff0) { add.execute(1); }",
            );
        },
        Refused("pipe.Ingress.r is reached twice"),
    ),
    (
        "accesses under conditions that exclude each other, in two ifs",
        |program| {
            program.locals = ADD.to_owned();
            body(
                program,
                "if (hdr.io.a == 1) { add.execute(0); }\nif (hdr.io.a == 2) { add.execute(1); }",
            );
        },
        Refused("put both into branches of one if"),
    ),
    (
        "a parameter of two registers' actions",
        |program| {
            let action = |register: &str, mark: &str| {
                format!(
                    "Register<bit<32>, bit<8>>(256, 0) {register};
                    RegisterAction<bit<32>, bit<8>, bit<32>>({register}) add_{register} = {{
                        void apply(inout bit<32> v, out bit<32> rv) {{ v = v + step.read(); rv = v; {mark} }} }};\n"
                )
            };
            program.locals = format!(
                "RegisterParam<bit<32>>(1) step;\n{}{}",
                action("r", ""),
                action("q", "/*!*/")
            );
            program.body = "hdr.io.x = add_r.execute(0); hdr.io.y = add_q.execute(0);".to_owned();
        },
        Refused("a register parameter belongs to one register"),
    ),
    (
        "accesses in the branches of one if",
        |program| {
            program.locals = ADD.to_owned();
            body(
                program,
                "if (hdr.io.a == 1) { add.execute(0); } else if (hdr.io.a == 2) { add.execute(1); }",
            );
        },
        Runs,
    ),
    (
        "an access by a table's action and another one",
        |program| {
            program.locals = format!(
                "{ADD} action s() {{ add.execute(1); }} table t {{ key = {{ hdr.io.a : exact; }} actions = {{ s; NoAction; }} }}"
            );
            body(program, "t.apply(); hdr.io.x = add.execute(0);");
        },
        Refused("pipe.Ingress.r is reached twice"),
    ),
    (
        "a counter that two tables count in, with one of them applied",
        |program| {
            program.locals = COUNTED_TWICE.to_owned();
            body(program, "if (hdr.io.a[0:0] == 1) { t.apply(); } else { t2.apply(); }");
        },
        Runs,
    ),
    (
        "a counter that two tables count in one after another",
        |program| {
            program.locals = COUNTED_TWICE.to_owned();
            body(program, "t.apply(); t2.apply();");
        },
        Refused("pipe.Ingress.c is reached twice"),
    ),
    (
        "a counter of a default action, at a place that the packet says",
        |program| {
            program.locals = format!(
                "Counter<bit<64>, bit<8>>(256, CounterType_t.PACKETS) c; action s() {{ c.count(hdr.io.b[7:0]); }} {BY_DEFAULT}"
            );
            program.body = "t.apply();".to_owned();
        },
        Refused("pipe.Ingress.t with a key has the default action Ingress.s"),
    ),
    (
        "a counter of a default action, at a fixed place",
        |program| {
            program.locals = format!(
                "Counter<bit<64>, bit<8>>(256, CounterType_t.PACKETS) c; action s() {{ c.count(3); }} {BY_DEFAULT}"
            );
            program.body = "t.apply();".to_owned();
        },
        Runs,
    ),
    (
        "a register of a default action, at a place that the packet says",
        |program| {
            program.locals = format!(
                "{ADD} action s() {{ hdr.io.x = add.execute(hdr.io.b[7:0]); }} {BY_DEFAULT}"
            );
            program.body = "t.apply();".to_owned();
        },
        Refused("the hash distribution units are not at hand"),
    ),
    (
        "a register of a table without a key",
        |program| {
            program.locals = ADD.to_owned();
            action(program, "hdr.io.x = add.execute(hdr.io.b[7:0]);");
        },
        Runs,
    ),
    // Stateful ALUs.
    (
        "three comparisons of a pair",
        |program| {
            on_pair(
                program,
                "if (v.lo > 7 && v.hi != md.m && v.lo != hdr.io.b) { v.hi = v.hi + 1; rv = 1; } else { v.lo = v.lo + 1; rv = 0; }",
            );
        },
        Refused("3 comparisons in a register action"),
    ),
    (
        "four comparisons inside one another",
        |program| {
            on_pair(
                program,
                "if (v.lo > 7) { if (v.hi > 9) { v.hi = 1; } else { v.hi = 2; } }
                 else if (v.lo == hdr.io.b) { if (v.hi == hdr.io.a) { v.lo = 4; } } rv = v.lo;",
            );
            program.locals =
                program.locals.replace(" /*!*/", "").replace("void apply", "/*!*/ void apply");
        },
        Refused("4 comparisons in a register action"),
    ),
    (
        "two comparisons, one of them twice, and turned round",
        |program| {
            on_pair(
                program,
                "if (v.lo > 7) { v.hi = 1; } if (!(v.lo <= 7) && v.hi != md.m) { v.lo = v.lo + 1; } rv = v.lo;",
            )
        },
        Runs,
    ),
    (
        "a difference compared with a constant",
        |program| on_number(program, "if (hdr.io.b - v > 5) { v = v + 1; } rv = v;"),
        Runs,
    ),
    (
        "a multiplication",
        |program| on_number(program, "v = v * 4; rv = v;"),
        Refused("a multiplication in a register action"),
    ),
    (
        "a shift",
        |program| on_number(program, "v = v << 3; rv = v;"),
        Refused("a shift in a register action"),
    ),
    (
        "an addition of three",
        |program| on_number(program, "v = v + hdr.io.a + hdr.io.b; rv = v;"),
        Refused("an operation of more than two operands"),
    ),
    (
        "a result of two operations",
        |program| on_number(program, "v = v + 1; rv = (v ^ hdr.io.a) + hdr.io.b;"),
        Refused("an operation of more than two operands"),
    ),
    (
        "four operands from the packet",
        |program| {
            on_pair(
                program,
                "v.lo = v.lo + hdr.io.a; v.hi = v.hi + hdr.io.b; if (v.lo > hdr.io.x) { v.hi = hdr.io.y; } rv = v.hi;",
            );
        },
        Refused("4 operands from the packet"),
    ),
    (
        "a sum that stays at its end",
        |program| on_number(program, "v = v |+| hdr.io.b; rv = v;"),
        Runs,
    ),
    (
        "a comparison with a sign",
        |program| {
            program.locals = "Register<int<32>, bit<8>>(256, 0) r; RegisterAction<int<32>, bit<8>, int<32>>(r) f = {
                void apply(inout int<32> v) { if (v < 0) { v = v + 1; } else { v = v - 3; } } };"
                .to_owned();
            program.body = "f.execute(0);".to_owned();
        },
        Runs,
    ),
    (
        "a part of an element that is written",
        |program| on_number(program, "v[7:0] = hdr.io.b[7:0]; rv = v;"),
        Refused("a part of an element or of a result is assigned to"),
    ),
    (
        "a part of a result that is written",
        |program| on_number(program, "v = v + 1; rv[7:0] = v[7:0];"),
        Refused("a part of an element or of a result is assigned to"),
    ),
    (
        "a part of an element that is compared",
        |program| on_number(program, "if (v[7:0] == 3) { v = 0; } rv = v;"),
        Refused("a comparison with a part of an element"),
    ),
    (
        "a part of a field that is compared",
        |program| on_number(program, "if (hdr.io.b[7:0] == 3) { v = 0; } rv = v;"),
        Runs,
    ),
    (
        "a part of a field that is added",
        |program| on_number(program, "v = v + (bit<32>)hdr.io.b[7:0]; rv = v;"),
        Runs,
    ),
    (
        "a part of an element as the result",
        |program| on_number(program, "v = v + 1; rv = (bit<32>)v[31:24];"),
        Runs,
    ),
    (
        "a carry into the second half",
        |program| {
            on_pair(
                program,
                "v.lo = v.lo + hdr.io.a; if (v.lo < hdr.io.a) { v.hi = v.hi + 1; } rv = v.hi;",
            )
        },
        Runs,
    ),
    ("four actions of a register", |program| register_actions(program, 4), Runs),
    (
        "six actions of a register",
        |program| register_actions(program, 6),
        Refused("has 4 instructions"),
    ),
    (
        "an element of 64 bits",
        |program| local(program, "Register<bit<64>, bit<8>>(256, 0) r;", ""),
        Refused("a stateful ALU has no more"),
    ),
    (
        "an element of three fields",
        |program| {
            program.declarations += "\nstruct three_t { bit<32> a; bit<32> b; bit<32> c; }";
            local(program, "Register<three_t, bit<8>>(256, {0, 0, 0}) r;", "");
        },
        Refused("a stateful ALU has no more"),
    ),
    (
        "an index of another width",
        |program| {
            program.locals = ADD.to_owned();
            body(program, "hdr.io.x = add.execute(hdr.io.b);");
        },
        Refused("bit<32> where bit<8> is needed"),
    ),
    (
        "a counter's index of another width",
        |program| {
            program.locals = "Counter<bit<64>, bit<8>>(256, CounterType_t.PACKETS) c;".to_owned();
            body(program, "c.count(hdr.io.b[8:0]);");
        },
        Refused("bit<9> where bit<8> is needed"),
    ),
    (
        "arithmetic in an index",
        |program| {
            program.locals = ADD.to_owned();
            body(program, "hdr.io.x = add.execute(hdr.io.a[7:0] + hdr.io.b[7:0]);");
        },
        Refused("arithmetic in an index"),
    ),
    (
        "an index behind the end",
        |program| {
            program.locals = ADD.replace("(256, 0)", "(100, 0)");
            program.body = "hdr.io.x = add.execute(hdr.io.b[7:0]);".to_owned();
        },
        Outcome::Fault(|fault| matches!(fault, Fault::IndexOutOfRange { index: 200, .. }), 0, 200),
    ),
    // Actions and gateways.
    (
        "an addition of 64 bits",
        |program| body(program, "md.wide = hdr.io.a ++ hdr.io.b; md.wide = md.wide + md.wide;"),
        Runs,
    ),
    (
        "an addition of 128 bits",
        |program| body(program, "md.widest = md.widest + md.widest;"),
        Refused("an addition of 128 bits: the chip adds at most 64"),
    ),
    ("a division", |program| body(program, "hdr.io.x = hdr.io.a / hdr.io.b;"), Refused("division")),
    (
        "a remainder",
        |program| body(program, "hdr.io.x = hdr.io.a % hdr.io.b;"),
        Refused("division"),
    ),
    (
        "a shift by a variable",
        |program| body(program, "hdr.io.x = hdr.io.a << md.small;"),
        Refused("a shift by a variable"),
    ),
    (
        "a product",
        |program| body(program, "hdr.io.x = hdr.io.a * hdr.io.b;"),
        Refused("the chip has no multiplier"),
    ),
    (
        "which of two fields is less",
        |program| body(program, "if (hdr.io.a < hdr.io.b) { hdr.io.x = 1; }"),
        Refused("which of two fields is less"),
    ),
    (
        "whether two fields are equal",
        |program| body(program, "if (hdr.io.a == hdr.io.b) { hdr.io.x = 1; }"),
        Runs,
    ),
    (
        "a condition on a sum",
        |program| body(program, "if (hdr.io.a + hdr.io.b == hdr.io.x) { hdr.io.y = 1; }"),
        Refused("a condition on a result of arithmetic"),
    ),
    (
        "a choice on a sum",
        |program| body(program, "hdr.io.y = hdr.io.a + hdr.io.b == 5 ? hdr.io.a : hdr.io.b;"),
        Refused("a condition on a result of arithmetic"),
    ),
    (
        "the highest of three",
        |program| body(program, "hdr.io.x = max(hdr.io.a, max(hdr.io.b, hdr.io.y));"),
        Refused("an operation on the result of another one"),
    ),
    (
        "the highest of three, one after another",
        |program| body(program, "md.m = max(hdr.io.b, hdr.io.y); hdr.io.x = max(hdr.io.a, md.m);"),
        Runs,
    ),
    (
        "a sum of three",
        |program| body(program, "hdr.io.x = hdr.io.a + hdr.io.b + hdr.io.y;"),
        Refused("an operation on the result of another one"),
    ),
    ("a sum with two constants", |program| body(program, "hdr.io.x = hdr.io.a + 1 + 2;"), Runs),
    (
        "bits of one and bits of another",
        |program| body(program, "hdr.io.x = (hdr.io.a & 0xff) | (hdr.io.b & 0xff00);"),
        Runs,
    ),
    (
        "bits of one, and all of another",
        |program| body(program, "hdr.io.x = (hdr.io.a & 0xff) | hdr.io.b;"),
        Refused("an operation on the result of another one"),
    ),
    (
        "bits of one that another has not",
        |program| body(program, "hdr.io.x = ~hdr.io.a & hdr.io.b;"),
        Runs,
    ),
    (
        "a sum with a complement",
        |program| body(program, "hdr.io.x = ~hdr.io.a + hdr.io.b;"),
        Refused("an operation on the result of another one"),
    ),
    (
        "a rotation",
        |program| body(program, "hdr.io.x = (hdr.io.a << 3) | (hdr.io.a >> 29);"),
        Refused("an operation on the result of another one"),
    ),
    (
        "a product with three",
        |program| body(program, "hdr.io.x = hdr.io.a * 3;"),
        Refused("a multiplication by a constant that is not a power of two"),
    ),
    ("a product with four", |program| body(program, "hdr.io.x = hdr.io.a * 4;"), Runs),
    ("a part of a sum", |program| body(program, "md.small = (hdr.io.a + hdr.io.b)[31:24];"), Runs),
    (
        "a sum with what a register says",
        |program| {
            program.locals = ADD.to_owned();
            body(
                program,
                "hdr.io.x = add.execute(hdr.io.a[7:0]) + 1; hdr.io.y = (bit<32>)md.small;",
            );
        },
        Runs,
    ),
    (
        "a condition on what a register says",
        |program| {
            program.locals = ADD.to_owned();
            body(program, "if (add.execute(hdr.io.a[7:0]) == 7) { hdr.io.x = 1; }");
        },
        Runs,
    ),
    (
        "metadata that nothing wrote",
        |program| body(program, "hdr.io.x = md.m; hdr.io.y = (bit<32>)md.small;"),
        Runs,
    ),
    (
        "a field of a header that is not there",
        |program| body(program, "hdr.carried.one = 7; hdr.io.x = hdr.carried.one;"),
        Runs,
    ),
    (
        "a variable that one branch writes",
        |program| body(program, "bit<32> t; if (hdr.io.a == 1) { t = 7; } hdr.io.x = t;"),
        Runs,
    ),
    (
        "an action of three steps",
        |program| {
            action(
                program,
                "hdr.io.x = hdr.io.a + hdr.io.b; hdr.io.y = hdr.io.x + hdr.io.b; hdr.io.x = hdr.io.y ^ hdr.io.a;",
            )
        },
        Refused("an operation on the result of another one in one action"),
    ),
    (
        "an action that adds one twice",
        |program| action(program, "hdr.io.x = hdr.io.x + 1; hdr.io.x = hdr.io.x + 1;"),
        Refused("an operation on the result of another one in one action"),
    ),
    (
        "an action that adds to a field after writing a part of it",
        |program| {
            action(program, "hdr.io.x[7:0] = hdr.io.a[7:0] + 1; hdr.io.y = hdr.io.x + hdr.io.b;")
        },
        Refused("an operation on the result of another one in one action"),
    ),
    (
        "an action that runs another one and uses its result",
        |program| {
            program.locals = "action u() { hdr.io.x = hdr.io.a + hdr.io.b; }\n".to_owned();
            action(program, "u(); hdr.io.y = hdr.io.x + hdr.io.b;");
        },
        Refused("an operation on the result of another one in one action"),
    ),
    (
        "an action that copies its result",
        |program| action(program, "hdr.io.x = hdr.io.a + hdr.io.b; hdr.io.y = hdr.io.x;"),
        Runs,
    ),
    (
        "an action that adds to a copy",
        |program| action(program, "hdr.io.x = hdr.io.a; hdr.io.y = hdr.io.x + hdr.io.b;"),
        Runs,
    ),
    (
        "an action that puts something else there",
        |program| {
            action(
                program,
                "hdr.io.x = hdr.io.a + hdr.io.b; hdr.io.x = hdr.io.y; hdr.io.y = hdr.io.x + hdr.io.b;",
            )
        },
        Runs,
    ),
    (
        "an action that exchanges two fields",
        |program| action(program, "bit<32> t = hdr.io.a; hdr.io.a = hdr.io.b; hdr.io.b = t;"),
        Runs,
    ),
    (
        "an action that adds to a hash",
        |program| {
            hashes(program, 32);
            action(program, "hdr.io.x = h0.get({ hdr.io.a }); hdr.io.y = hdr.io.x + hdr.io.b;");
        },
        Runs,
    ),
    // Tables.
    (
        "a table applied twice",
        |program| {
            program.locals = COUNTING_UP.to_owned();
            body(program, "t.apply(); hdr.io.a = hdr.io.b; t.apply();");
        },
        Refused("pipe.Ingress.t is applied twice"),
    ),
    (
        "a table applied where it matched",
        |program| {
            program.locals = COUNTING_UP.to_owned();
            body(program, "if (t.apply().miss) { t.apply(); }");
        },
        Refused("pipe.Ingress.t is applied twice"),
    ),
    (
        "a table applied in both branches",
        |program| {
            program.locals = COUNTING_UP.to_owned();
            body(
                program,
                "if (hdr.io.b == 1) { t.apply(); } else { hdr.io.a = hdr.io.b; t.apply(); }",
            );
        },
        Runs,
    ),
    (
        "a table applied in two ifs",
        |program| {
            program.locals = COUNTING_UP.to_owned();
            body(program, "if (hdr.io.b == 1) { t.apply(); }\nif (hdr.io.b == 2) { t.apply(); }");
        },
        Refused("put both into branches of one if"),
    ),
    (
        "a key of 160 bits",
        |program| {
            local(
                program,
                "table t { key = { hdr.io.a : exact; hdr.io.b : exact; hdr.io.x : exact; hdr.io.y : exact; md.m : exact; }
                 actions = { NoAction; } size = 16; }",
                "t.apply();",
            );
        },
        Runs,
    ),
    (
        "a key of 2048 bits",
        |program| {
            let fields: String = (0..16).map(|word| format!("bit<128> w{word}; ")).collect();
            program.declarations =
                program.declarations.replace("bool flag;", &format!("bool flag; {fields}"));
            let keys: String = (0..16).map(|word| format!("md.w{word} : exact; ")).collect();
            local(
                program,
                &format!("table t {{ key = {{ {keys} }} actions = {{ NoAction; }} size = 16; }}"),
                "t.apply();",
            );
        },
        Refused("unsupported key of 2048 bits"),
    ),
    (
        "anything in egress",
        |program| program.egress = "om.force_tx_error = 1;".to_owned(),
        RefusedAnywhere("unsupported egress: control Eg must be empty"),
    ),
    (
        "two prefixes in a key",
        |program| {
            local(
                program,
                "table t { key = { hdr.io.a : lpm; hdr.io.b : lpm; } actions = { NoAction; } size = 4; }",
                "t.apply();",
            )
        },
        Refused("at most one lpm field"),
    ),
    (
        "four million exact entries",
        |program| {
            let table = "table t { key = { hdr.io.a : exact; hdr.io.b : exact; } actions = { NoAction; } size = 4194304; }";
            local(program, table, "t.apply();");
        },
        Refused("pipe.Ingress.t of 4194304 entries takes 268435456 bits of SRAM"),
    ),
    (
        "a hundred thousand ternary entries",
        |program| {
            let key = "hdr.io.a : ternary; hdr.io.b : ternary; hdr.io.x : ternary;";
            local(
                program,
                &format!(
                    "table t {{ key = {{ {key} }} actions = {{ NoAction; }} size = 100000; }}"
                ),
                "t.apply();",
            );
        },
        Refused("pipe.Ingress.t of 100000 entries takes 588 blocks of TCAM: the chip has 288"),
    ),
    (
        "sixteen million elements",
        |program| local(program, "Register<bit<32>, bit<24>>(16777216, 0) r;", ""),
        Refused("a stage, in which a register lies, has 10485760"),
    ),
    (
        "registers that fill the chip, one by one small enough",
        |program| {
            for register in 0..13 {
                program.locals += &format!("Register<bit<32>, bit<18>>(262144, 0) r{register};\n");
                program.locals += &format!("Register<bit<8>, bit<18>>(262144, 0) s{register};\n");
            }
        },
        RefusedAnywhere("bits of SRAM: the chip has 125829120"),
    ),
    ("twelve tables, one after another", |program| chained(program, 12), Runs),
    (
        "forty tables, one after another",
        |program| chained(program, 40),
        RefusedAnywhere("40 look-ups and registers depend on one another"),
    ),
    ("twelve registers, one after another", |program| chained_registers(program, 12), Runs),
    (
        "twenty-five registers, one after another",
        |program| chained_registers(program, 25),
        RefusedAnywhere("the chip's 12 stages"),
    ),
    (
        "fifty registers",
        |program| chained_registers(program, 50),
        RefusedAnywhere("50 registers: the chip has 48 stateful ALUs"),
    ),
    (
        "priorities of constant entries",
        |program| {
            let entries =
                "const entries = { (_) : s(1); (5) : s(2); } default_action = s(3); size = 4;";
            let table = format!(
                "table t {{ key = {{ hdr.io.a : ternary; }} actions = {{ s; }} {entries} }}"
            );
            local(
                program,
                &format!("action s(bit<32> d) {{ hdr.io.x = d; }} {table}"),
                "t.apply();",
            );
        },
        Runs,
    ),
    (
        "constant entries of prefixes",
        |program| {
            // The compiler does accept a single entry.
            let entries = "const entries = { 0x80000000 &&& 0x80000000 : s(1); 0x40000000 &&& 0xc0000000 : s(2); }";
            let entries = format!("{entries} const default_action = s(3); size = 4;");
            let table = format!(
                "\ntable t {{ /*!*/ key = {{ hdr.io.a : lpm; }} actions = {{ s; }} {entries} }}"
            );
            local(
                program,
                &format!("action s(bit<32> d) {{ hdr.io.x = d; }} {table}"),
                "t.apply();",
            );
        },
        Refused("an lpm table cannot have const entries"),
    ),
    (
        "an action profile",
        |program| local(program, "ActionProfile(16) profile;", ""),
        Refused("unsupported extern ActionProfile"),
    ),
    (
        "idle timeouts",
        |program| {
            local(
                program,
                "table t { key = { hdr.io.a : exact; } actions = { NoAction; } idle_timeout = true; }",
                "t.apply();",
            )
        },
        Refused("unsupported table property"),
    ),
    // Hashes and digests.
    (
        "a hash of 1024 bits",
        |program| {
            program.locals = "Hash<bit<32>>(HashAlgorithm_t.CRC32) h;".to_owned();
            let fields = ["hdr.io.a, hdr.io.b, hdr.io.x, hdr.io.y"; 8].join(", ");
            body(program, &format!("hdr.io.x = h.get({{ {fields} }});"));
        },
        Runs,
    ),
    (
        "a polynomial that is even",
        |program| {
            program.locals =
                "CRCPolynomial<bit<32>>(32w0x790900f2, true, false, false, 32w0xffffffff, 32w0) p;
                Hash<bit<32>>(HashAlgorithm_t.CUSTOM, p) h;"
                    .to_owned();
            program.body = "hdr.io.x = h.get({ hdr.io.a });".to_owned();
        },
        Runs,
    ),
    (
        "two hashes in one action",
        |program| {
            hashes(program, 32);
            action(program, "hdr.io.x = h0.get({ hdr.io.a }); hdr.io.y = h1.get({ hdr.io.b });");
        },
        Refused("64 bits of hashes in one action"),
    ),
    (
        "two hashes of half as many bits in one action",
        |program| {
            hashes(program, 16);
            action(
                program,
                "hdr.io.x[15:0] = h0.get({ hdr.io.a }); hdr.io.y[15:0] = h1.get({ hdr.io.b });",
            );
        },
        Runs,
    ),
    (
        "a hash of 64 bits",
        |program| {
            program.locals =
                "CRCPolynomial<bit<64>>(64w0x42f0e1eba9ea3693, true, false, false, 64w0, 64w0) p;
                Hash<bit<64>>(HashAlgorithm_t.CUSTOM, p) h;"
                    .to_owned();
            body(program, "md.wide = h.get({ hdr.io.a }); hdr.io.x = md.wide[31:0];");
        },
        Refused("64 bits of hashes in one action"),
    ),
    (
        "a hash in a default action",
        |program| {
            hashes(program, 32);
            program.locals +=
                &format!("action s() {{ hdr.io.x = h0.get({{ hdr.io.b }}); }} {BY_DEFAULT}");
            program.body = "t.apply();".to_owned();
        },
        Refused("pipe.Ingress.t with a key has the default action Ingress.s"),
    ),
    (
        "a digest for every packet",
        |program| {
            digest(program, "bit<32> word;", "md.m");
            program.deparser_locals = program.deparser_locals.replace(" /*!*/", "");
            program.deparser = "\nreport.pack({ md.m }); /*!*/\n".to_owned();
        },
        Refused("a digest without a condition"),
    ),
    (
        "a digest of packets with a header",
        |program| {
            digest(program, "bit<32> word;", "md.m");
            program.deparser = "if (hdr.io.isValid()) { report.pack({ md.m }); }".to_owned();
        },
        Runs,
    ),
    (
        "a resubmission of every packet",
        |program| {
            program.deparser_locals = "Resubmit() again;".to_owned();
            program.deparser = "\nagain.emit(hdr.carried); /*!*/\n".to_owned();
        },
        Refused("a resubmission without a condition"),
    ),
    (
        "two digests of one packet",
        |program| {
            digest(program, "bit<32> word;", "md.m");
            program.deparser_locals =
                "Digest<digest_t>() report; Digest<digest_t>() other;".to_owned();
            program.deparser += "if (dm.digest_type == 1) { other.pack({ md.m }); }";
        },
        Runs,
    ),
    (
        "a resubmission on a header's field",
        |program| {
            program.deparser_locals = "Resubmit() again;".to_owned();
            program.deparser = "if (hdr.io.a == 5) { again.emit(hdr.carried); }".to_owned();
        },
        Runs,
    ),
    (
        "a header emitted twice",
        |program| program.deparser = "packet.emit(hdr.io);".to_owned(),
        Runs,
    ),
    (
        "a digest of 47 bytes",
        |program| {
            let values = ["md.m"; 11].join(", ");
            digest(
                program,
                &format!("{} bit<24> rest;", fields_of(11)),
                &format!("{values}, hdr.io.a[23:0]"),
            );
        },
        Runs,
    ),
    (
        "a digest of 48 bytes",
        |program| digest(program, &fields_of(12), &["md.m"; 12].join(", ")),
        Refused("a digest of 48 bytes: the chip sends at most 47"),
    ),
    (
        "a digest of 64 bytes",
        |program| digest(program, &fields_of(16), &["md.m"; 16].join(", ")),
        Refused("a digest of 64 bytes: the chip sends at most 47"),
    ),
    // Parsers.
    (
        "a sum in a parser",
        |program| {
            program.parser =
                "state body { packet.extract(hdr.io);\nmd.m = hdr.io.a + hdr.io.b; /*!*/\ntransition accept; }".to_owned()
        },
        Refused("arithmetic in a parser"),
    ),
    (
        "a shift in a parser",
        |program| {
            program.parser = "state body { packet.extract(hdr.io);\nmd.m = hdr.io.a << 2; /*!*/\ntransition accept; }".to_owned()
        },
        Refused("arithmetic in a parser"),
    ),
    (
        "a select of 128 bits",
        |program| {
            program.parser = "state body { packet.extract(hdr.io); transition select(hdr.io.a, hdr.io.b, hdr.io.x, hdr.io.y) {
                (1, 2, 3, 4) : accept; default : accept; } }"
                .to_owned();
        },
        Runs,
    ),
    (
        "a loop over a stack",
        |program| {
            program.parser = "state body { packet.extract(hdr.extra.next);
                transition select(hdr.extra.last.kind) { 1 : body; default : accept; } }"
                .to_owned();
        },
        Runs,
    ),
    (
        "a loop over a stack that a counter ends",
        |program| {
            program.parser_locals = "ParserCounter() left;".to_owned();
            program.parser = "state body { left.set(8w2); transition more; }
                state more { packet.extract(hdr.extra.next); left.decrement(1);
                transition select(left.is_zero(), hdr.extra.last.kind) { (false, 1) : more; default : accept; } }"
                .to_owned();
        },
        Runs,
    ),
    (
        "a loop with a state that looks ahead and another one that extracts",
        |program| program.parser = LOOKING_LOOP.to_owned(),
        RefusedAnywhere("unsupported loop of parser states"),
    ),
    (
        "a counter set to a field",
        |program| {
            program.parser_locals = "ParserCounter() left;".to_owned();
            program.parser = "state body { packet.extract(hdr.extra[0]);\nleft.set(hdr.extra[0].kind); /*!*/\ntransition more; }
                state more { left.decrement(1); transition select(left.is_zero()) { true : accept; default : reject; } }"
                .to_owned();
        },
        Refused("unsupported set of a parser's counter by other than a number"),
    ),
    (
        "a look at all that a parser sees",
        |program| {
            program.parser =
                "state body { md.m = packet.lookahead<bit<256>>()[31:0]; packet.extract(hdr.io); transition accept; }".to_owned();
        },
        Runs,
    ),
    // Externs.
    (
        "a meter",
        |program| local(program, "Meter<bit<8>>(256, MeterType_t.BYTES) m;", ""),
        Refused("unsupported extern Meter"),
    ),
    (
        "random numbers",
        |program| local(program, "Random<bit<16>>() random;", ""),
        Refused("unsupported extern Random"),
    ),
    (
        "a checksum",
        |program| program.deparser_locals = "\nChecksum() c; /*!*/\n".to_owned(),
        Refused("unsupported extern Checksum"),
    ),
    (
        "a mirror",
        |program| program.deparser_locals = "\nMirror() m; /*!*/\n".to_owned(),
        Refused("unsupported extern Mirror"),
    ),
];

fn fields_of(words: usize) -> String {
    (0..words).map(|word| format!("bit<32> w{word};")).collect()
}

#[test]
fn what_the_chip_refuses_is_refused_when_it_is_loaded() {
    for (what, edit, outcome) in CONSTRUCTS {
        let mut program = program("", "");
        edit(&mut program);
        let text = program.text();
        let loaded = Model::from_text("small.p4", &text, &Options::default());
        match (outcome, loaded) {
            (Runs, Ok(mut model)) => drop(
                model.inject(0, &frame(1, 2)).unwrap_or_else(|fault| panic!("{what}: {fault}")),
            ),
            (Outcome::Fault(expected, a, b), Ok(mut model)) => {
                let fault = model.inject(0, &frame(*a, *b)).expect_err(what);
                assert!(expected(&fault), "{what}: {fault}");
            }
            (
                Refused(because) | RefusedAnywhere(because),
                Err(SourceError::Invalid { place, problem }),
            ) => {
                assert!(problem.contains(because), "{what}: {problem}");
                if matches!(outcome, Refused(_)) {
                    let line = 1
                        + text.lines().position(|line| line.contains("/*!*/")).expect(what) as u32;
                    let lines = line..=line + u32::from(problem.contains("branches"));
                    assert_eq!(place.file.as_ref(), "small.p4");
                    assert!(lines.contains(&place.line), "{what}: {place} and not {line}\n{text}");
                }
            }
            (_, Ok(_)) => panic!("{what} is not refused"),
            (_, Err(error)) => panic!("{what}: {error}"),
        }
    }
}

/// Both accesses are placed in one stateful ALU of one stage, so that one packet puts two addresses
/// on its only bus. The assembler only warns.
const COLLIDE: &str = "the compiler makes a wrong program: two addresses on one bus";
/// No packet meets both conditions, which neither the compiler nor the model can prove.
const UNPROVEN: &str = "the conditions exclude each other: put both into branches of one if";
/// The compiler omits what is not used.
const UNUSED: &str = "the compiler refuses it if it is used";
/// The model supports less than the chip here.
const LEFT_OUT: &str = "the model does not execute it";

/// Differences between the compiler and the model, and their reasons.
const DIFFERENCES: &[(&str, &str)] = &[
    ("two accesses one after another", COLLIDE),
    ("a second access that hardly any packet makes", COLLIDE),
    ("accesses under conditions that exclude each other, in two ifs", UNPROVEN),
    ("an access by a table's action and another one", COLLIDE),
    ("an element of 64 bits", UNUSED),
    ("an element of three fields", UNUSED),
    ("an addition of 128 bits", UNUSED),
    ("sixteen million elements", UNUSED),
    ("registers that fill the chip, one by one small enough", UNUSED),
    ("an action profile", LEFT_OUT),
    ("idle timeouts", LEFT_OUT),
    // The upper half is never used here.
    ("a hash of 64 bits", UNUSED),
    ("a counter set to a field", LEFT_OUT),
    ("a meter", LEFT_OUT),
    ("random numbers", LEFT_OUT),
    ("a checksum", LEFT_OUT),
    ("a mirror", LEFT_OUT),
];

#[test]
fn the_compiler_says_the_same() {
    let Some(compiler) = p4c::compiler() else {
        return;
    };
    let texts: Vec<String> = CONSTRUCTS
        .iter()
        .map(|(_, edit, _)| {
            let mut program = program("", "");
            edit(&mut program);
            program.text()
        })
        .collect();
    let taken = p4c::takes(&compiler, "chip", &texts);
    let differs = |((what, _, outcome), taken): (&Construct, &bool)| {
        let loads = matches!(outcome, Runs | Outcome::Fault(..));
        (loads != *taken).then_some(*what)
    };
    let found: Vec<&str> = CONSTRUCTS.iter().zip(&taken).filter_map(differs).collect();
    assert_eq!(found, DIFFERENCES.iter().map(|(what, _)| *what).collect::<Vec<_>>());
}

/// Programs that the chip's compiler has accepted (p4/README.md), in particular those that fill the
/// pipe.
#[test]
fn our_own_programs_are_not_refused() {
    let all_by_one_key: &[(&str, u32)] = &[
        ("ENTROPY", 1),
        ("ENTROPY_KEY", 0),
        ("FREQUENCY", 1),
        ("MEMBERSHIP", 1),
        ("SIZES", 1),
        ("DELAY", 1),
        ("DELAY_TCP_DATA", 1),
    ];
    let builds: &[&[(&str, u32)]] = &[
        &[("HASH", 0)],
        &[("KEY", 3), ("PRECISION", 16)],
        &[("ENTROPY", 1), ("ENTROPY_SKETCH", 2), ("ENTROPY_COLUMN_BITS", 12)],
        &[("FREQUENCY", 1), ("FREQUENCY_SKETCH", 1)],
        &[("HEAVY", 1), ("HEAVY_KEY", 3), ("HEAVY_SLOT_BITS", 12)],
        &[("ENTROPY", 1), ("FREQUENCY", 1), ("MEMBERSHIP", 1), ("HEAVY", 1), ("SIZES", 1)],
        &[("DELAY", 1), ("DELAY_TCP_DATA", 1), ("DELAY_SLOT_BITS", 16)],
        &[("DELAY", 1), ("DELAY_TCP_DURATION", 1), ("DELAY_ALGORITHM", 2)],
        &[
            ("DELAY", 1),
            ("DELAY_TCP_HANDSHAKE", 1),
            ("DELAY_TCP_DATA", 1),
            ("DELAY_DNS", 1),
            ("DELAY_ALGORITHM", 1),
        ],
        &[("DELAY", 1), ("DELAY_TCP_TIMESTAMPS", 1)],
        &[("DELAY", 1), ("DELAY_QUIC_SPIN", 1)],
        &[
            ("DELAY", 1),
            ("DELAY_TCP_DATA", 1),
            ("DELAY_GROUP_BITS", 3),
            ("DELAY_LOCAL", 1),
            ("DELAY_SAMPLES", 1),
        ],
        all_by_one_key,
        &[("REORDER", 1)],
        &[("REORDER", 2), ("REORDER_SLOT_BITS", 16)],
    ];
    for build in builds {
        let options = build.iter().fold(Options::default(), |options, (name, value)| {
            options.define(&format!("FLOWGAUGE_{name}"), value)
        });
        Model::flowgauge(&options).unwrap_or_else(|error| panic!("{build:?}: {error}"));
    }
}
