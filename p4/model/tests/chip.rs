//! Constructs that the chip or its compiler rejects. The model rejects them when the program is
//! loaded, at file and line, with the name of the limit.
//!
//! Each construct is in a table with its outcome. If the chip's compiler is available, it must
//! agree, except for the listed differences.

use crate::common::{Program, frame, program};
use crate::p4c::{self, COLLIDE, LEFT_OUT, UNPROVEN, UNUSED};
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

/// Construct, with the program that has it.
struct Construct {
    name: &'static str,
    program: Program,
    outcome: Outcome,
}

const ADD: &str = "Register<bit<32>, bit<8>>(256, 0) r;
    RegisterAction<bit<32>, bit<8>, bit<32>>(r) add = { void apply(inout bit<32> v, out bit<32> rv) { v = v + 1; rv = v; } };";

const COUNTER: &str = "Counter<bit<64>, bit<8>>(256, CounterType_t.PACKETS) c;";

/// Counter in which two tables count.
const COUNTED_TWICE: &str = "Counter<bit<64>, bit<8>>(256, CounterType_t.PACKETS) c;
    action s() { c.count(hdr.io.a[7:0]); } action s2() { c.count(hdr.io.b[7:0]); }
    table t { key = { hdr.io.a : exact; } actions = { s; } size = 16; }
    table t2 { key = { hdr.io.b : exact; } actions = { s2; } size = 16; }";

/// Table that changes what is sent.
const COUNTING_UP: &str = "action s() { hdr.io.x = hdr.io.x + 1; }
    table t { key = { hdr.io.a : exact; } actions = { s; } const default_action = s(); size = 16; }";

/// Why an action that uses its own result is refused.
const CHAINED_IN_ONE_ACTION: &str = "an operation on the result of another one in one action";

fn construct(name: &'static str, outcome: Outcome) -> Construct {
    Construct { name, program: program("", ""), outcome }
}

fn runs(name: &'static str) -> Construct {
    construct(name, Runs)
}

fn refused(name: &'static str, because: &'static str) -> Construct {
    construct(name, Refused(because))
}

fn refused_anywhere(name: &'static str, because: &'static str) -> Construct {
    construct(name, RefusedAnywhere(because))
}

impl Construct {
    fn declared(mut self, declarations: &str) -> Self {
        self.program.declarations += declarations;
        self
    }

    /// Adds fields to the metadata.
    fn metadata(mut self, fields: &str) -> Self {
        let more = format!("bool flag; {fields}");
        self.program.declarations = self.program.declarations.replace("bool flag;", &more);
        self
    }

    /// Adds declarations of the control.
    fn given(mut self, locals: &str) -> Self {
        self.program.locals += locals;
        self
    }

    /// Adds a declaration of the control, on the marked line.
    fn local(self, local: &str) -> Self {
        self.given(&format!("\n{local} /*!*/\n"))
    }

    /// Adds the declaration of table `t`, on the marked line, and applies it.
    fn table(self, table: &str) -> Self {
        self.local(table).apply("t.apply();")
    }

    /// Adds statements of the control.
    fn apply(mut self, statements: &str) -> Self {
        self.program.body += statements;
        self
    }

    /// Adds statements of the control, the last one on the marked line. The metadata has fields of
    /// 64 and 128 bits.
    fn body(self, statements: &str) -> Self {
        self.metadata("bit<64> wide; bit<128> widest;").apply(&format!("\n{statements} /*!*/\n"))
    }

    fn parser(mut self, states: &str) -> Self {
        self.program.parser = states.to_owned();
        self
    }

    fn parser_locals(mut self, locals: &str) -> Self {
        self.program.parser_locals = locals.to_owned();
        self
    }

    fn deparser(mut self, statements: &str) -> Self {
        self.program.deparser = statements.to_owned();
        self
    }

    fn deparser_locals(mut self, locals: &str) -> Self {
        self.program.deparser_locals = locals.to_owned();
        self
    }

    fn egress(mut self, statements: &str) -> Self {
        self.program.egress = statements.to_owned();
        self
    }

    /// Adds two hashes of this many bits.
    fn hashes(self, bits: u32) -> Self {
        self.given(&format!(
            "Hash<bit<{bits}>>(HashAlgorithm_t.CRC{bits}) h0; Hash<bit<{bits}>>(HashAlgorithm_t.CRC{bits}) h1;"
        ))
    }

    /// Adds an action with these statements.
    fn action(self, statements: &str) -> Self {
        let action = format!("action s() {{\n{statements} /*!*/\n}}");
        self.given(&format!(
            "{action} table t {{ actions = {{ s; }} const default_action = s(); }}"
        ))
        .apply("t.apply();")
    }

    /// Adds an action with this statement, the default of a table with a key.
    fn by_default(self, statement: &str) -> Self {
        let table = "key = { hdr.io.a : exact; } actions = { s; } const default_action = s();";
        self.given(&format!(
            "action s() {{ {statement} }}\ntable t {{ /*!*/\n{table} size = 16; }}"
        ))
        .apply("t.apply();")
    }

    /// Adds a register action with this body to a register of numbers.
    fn on_number(self, body: &str) -> Self {
        self.on_register("bit<32>", "0", body)
    }

    /// Adds a register action with this body to a register of pairs.
    fn on_pair(self, body: &str) -> Self {
        self.declared("\nstruct pair_t { bit<32> lo; bit<32> hi; }")
            .on_register("pair_t", "{0, 0}", body)
    }

    fn on_register(self, element: &str, initial: &str, body: &str) -> Self {
        self.given(&format!(
            "Register<{element}, bit<8>>(256, {initial}) r;
            RegisterAction<{element}, bit<8>, bit<32>>(r) f = {{
                void apply(inout {element} v, out bit<32> rv) {{ {body} }} /*!*/
            }};"
        ))
        .apply("hdr.io.x = f.execute(hdr.io.a[7:0]);")
    }

    /// Moves the mark to the line of a text.
    fn marked_at(mut self, text: &str) -> Self {
        let unmarked = self.program.locals.replace(" /*!*/", "");
        self.program.locals = unmarked.replace(text, &format!("/*!*/ {text}"));
        self
    }

    /// Adds consecutive tables, each with the result of the previous one as key.
    fn chained(self, number: usize) -> Self {
        (0..number).fold(self, |all, table| {
            all.given(&format!(
                "action s{table}(bit<32> d) {{ hdr.io.x = d; }}
                table t{table} {{ key = {{ hdr.io.x : exact; }} actions = {{ s{table}; }} size = 16; }}\n"
            ))
            .apply(&format!("t{table}.apply();\n"))
        })
    }

    /// Adds registers, each with the value of the previous one as index.
    fn chained_registers(self, number: usize) -> Self {
        (0..number).fold(self, |all, register| {
            let add = ADD
                .replace("(r)", &format!("(r{register})"))
                .replace(" r;", &format!(" r{register};"))
                .replace(" add ", &format!(" add{register} "));
            all.given(&add).apply(&format!("hdr.io.x = add{register}.execute(hdr.io.x[7:0]);\n"))
        })
    }

    /// Adds this many actions of one register; a packet runs one of them.
    fn register_actions(self, number: usize) -> Self {
        let register = self.given("Register<bit<32>, bit<8>>(256, 0) r;\n");
        (0..number).fold(register, |all, action| {
            let mark = if action == 4 { "/*!*/" } else { "" };
            let otherwise = if action > 0 { "else" } else { "" };
            all.given(&format!(
                "RegisterAction<bit<32>, bit<8>, bit<32>>(r) f{action} = {{ {mark}
                    void apply(inout bit<32> v) {{ v = v + {action}; }} }};\n"
            ))
            .apply(&format!(
                "{otherwise} if (hdr.io.b[2:0] == {action}) {{ f{action}.execute(hdr.io.a[7:0]); }}\n"
            ))
        })
    }

    fn digest(self, fields: &str, values: &str) -> Self {
        self.declared(&format!("\nstruct digest_t {{ {fields} }}"))
            .deparser_locals("\nDigest<digest_t>() report; /*!*/\n")
            .apply("dm.digest_type = 1;")
            .deparser(&format!("if (dm.digest_type == 1) {{ report.pack({{ {values} }}); }}"))
    }
}

/// Returns a register with an action that adds a parameter, and a mark.
fn with_parameter(register: &str, mark: &str) -> String {
    format!(
        "Register<bit<32>, bit<8>>(256, 0) {register};
        RegisterAction<bit<32>, bit<8>, bit<32>>({register}) add_{register} = {{
            void apply(inout bit<32> v, out bit<32> rv) {{ v = v + step.read(); rv = v; {mark} }} }};\n"
    )
}

/// Returns the texts of numbers from zero on.
fn numbered(count: usize, text: impl Fn(usize) -> String) -> String {
    (0..count).map(text).collect()
}

fn fields_of(words: usize) -> String {
    numbered(words, |word| format!("bit<32> w{word};"))
}

fn constructs() -> impl Iterator<Item = Construct> {
    let areas = [
        registers(),
        stateful_alus(),
        actions_and_gateways(),
        tables(),
        hashes_and_digests(),
        parsers(),
        externs(),
    ];
    areas.into_iter().flatten()
}

/// Registers: each belongs to one stage.
fn registers() -> Vec<Construct> {
    vec![
        refused("two accesses one after another", "pipe.Ingress.r is reached twice")
            .given(ADD)
            .body("hdr.io.x = add.execute(hdr.io.a[7:0]); hdr.io.y = add.execute(hdr.io.b[7:0]);"),
        refused("a second access that hardly any packet makes", "pipe.Ingress.r is reached twice")
            .given(ADD)
            .body("hdr.io.x = add.execute(0); if (hdr.io.b == 0xfffffff0) { add.execute(1); }"),
        refused(
            "accesses under conditions that exclude each other, in two ifs",
            "put both into branches of one if",
        )
        .given(ADD)
        .body("if (hdr.io.a == 1) { add.execute(0); }\nif (hdr.io.a == 2) { add.execute(1); }"),
        refused(
            "a parameter of two registers' actions",
            "a register parameter belongs to one register",
        )
        .given("RegisterParam<bit<32>>(1) step;\n")
        .given(&with_parameter("r", ""))
        .given(&with_parameter("q", "/*!*/"))
        .apply("hdr.io.x = add_r.execute(0); hdr.io.y = add_q.execute(0);"),
        runs("accesses in the branches of one if").given(ADD).body(
            "if (hdr.io.a == 1) { add.execute(0); } else if (hdr.io.a == 2) { add.execute(1); }",
        ),
        refused("an access by a table's action and another one", "pipe.Ingress.r is reached twice")
            .given(&format!(
                "{ADD} action s() {{ add.execute(1); }} table t {{ key = {{ hdr.io.a : exact; }} \
                 actions = {{ s; NoAction; }} }}"
            ))
            .body("t.apply(); hdr.io.x = add.execute(0);"),
        runs("a counter that two tables count in, with one of them applied")
            .given(COUNTED_TWICE)
            .body("if (hdr.io.a[0:0] == 1) { t.apply(); } else { t2.apply(); }"),
        refused(
            "a counter that two tables count in one after another",
            "pipe.Ingress.c is reached twice",
        )
        .given(COUNTED_TWICE)
        .body("t.apply(); t2.apply();"),
        refused(
            "a counter of a default action, at a place that the packet says",
            "pipe.Ingress.t with a key has the default action Ingress.s",
        )
        .given(COUNTER)
        .by_default("c.count(hdr.io.b[7:0]);"),
        runs("a counter of a default action, at a fixed place")
            .given(COUNTER)
            .by_default("c.count(3);"),
        refused(
            "a register of a default action, at a place that the packet says",
            "the hash distribution units are not at hand",
        )
        .given(ADD)
        .by_default("hdr.io.x = add.execute(hdr.io.b[7:0]);"),
        runs("a register of a table without a key")
            .given(ADD)
            .action("hdr.io.x = add.execute(hdr.io.b[7:0]);"),
    ]
}

/// Actions of registers, which run in stateful ALUs.
fn stateful_alus() -> Vec<Construct> {
    vec![
        refused("three comparisons of a pair", "3 comparisons in a register action").on_pair(
            "if (v.lo > 7 && v.hi != md.m && v.lo != hdr.io.b) { v.hi = v.hi + 1; rv = 1; } \
             else { v.lo = v.lo + 1; rv = 0; }",
        ),
        refused("four comparisons inside one another", "4 comparisons in a register action")
            .on_pair(
                "if (v.lo > 7) { if (v.hi > 9) { v.hi = 1; } else { v.hi = 2; } }
                 else if (v.lo == hdr.io.b) { if (v.hi == hdr.io.a) { v.lo = 4; } } rv = v.lo;",
            )
            .marked_at("void apply"),
        runs("two comparisons, one of them twice, and turned round").on_pair(
            "if (v.lo > 7) { v.hi = 1; } if (!(v.lo <= 7) && v.hi != md.m) { v.lo = v.lo + 1; } \
             rv = v.lo;",
        ),
        runs("a difference compared with a constant")
            .on_number("if (hdr.io.b - v > 5) { v = v + 1; } rv = v;"),
        refused("a multiplication", "a multiplication in a register action")
            .on_number("v = v * 4; rv = v;"),
        refused("a shift", "a shift in a register action").on_number("v = v << 3; rv = v;"),
        refused("an addition of three", "an operation of more than two operands")
            .on_number("v = v + hdr.io.a + hdr.io.b; rv = v;"),
        refused("a result of two operations", "an operation of more than two operands")
            .on_number("v = v + 1; rv = (v ^ hdr.io.a) + hdr.io.b;"),
        refused("four operands from the packet", "4 operands from the packet").on_pair(
            "v.lo = v.lo + hdr.io.a; v.hi = v.hi + hdr.io.b; \
             if (v.lo > hdr.io.x) { v.hi = hdr.io.y; } rv = v.hi;",
        ),
        runs("a sum that stays at its end").on_number("v = v |+| hdr.io.b; rv = v;"),
        runs("a comparison with a sign")
            .given(
                "Register<int<32>, bit<8>>(256, 0) r; \
                 RegisterAction<int<32>, bit<8>, int<32>>(r) f = {
                void apply(inout int<32> v) { if (v < 0) { v = v + 1; } else { v = v - 3; } } };",
            )
            .apply("f.execute(0);"),
        refused(
            "a part of an element that is written",
            "a part of an element or of a result is assigned to",
        )
        .on_number("v[7:0] = hdr.io.b[7:0]; rv = v;"),
        refused(
            "a part of a result that is written",
            "a part of an element or of a result is assigned to",
        )
        .on_number("v = v + 1; rv[7:0] = v[7:0];"),
        refused("a part of an element that is compared", "a comparison with a part of an element")
            .on_number("if (v[7:0] == 3) { v = 0; } rv = v;"),
        runs("a part of a field that is compared")
            .on_number("if (hdr.io.b[7:0] == 3) { v = 0; } rv = v;"),
        runs("a part of a field that is added")
            .on_number("v = v + (bit<32>)hdr.io.b[7:0]; rv = v;"),
        runs("a part of an element as the result").on_number("v = v + 1; rv = (bit<32>)v[31:24];"),
        runs("a carry into the second half").on_pair(
            "v.lo = v.lo + hdr.io.a; if (v.lo < hdr.io.a) { v.hi = v.hi + 1; } rv = v.hi;",
        ),
        runs("four actions of a register").register_actions(4),
        refused("six actions of a register", "has 4 instructions").register_actions(6),
        refused("an element of 64 bits", "a stateful ALU has no more")
            .local("Register<bit<64>, bit<8>>(256, 0) r;"),
        refused("an element of three fields", "a stateful ALU has no more")
            .declared("\nstruct three_t { bit<32> a; bit<32> b; bit<32> c; }")
            .local("Register<three_t, bit<8>>(256, {0, 0, 0}) r;"),
        refused("an index of another width", "bit<32> where bit<8> is needed")
            .given(ADD)
            .body("hdr.io.x = add.execute(hdr.io.b);"),
        refused("a counter's index of another width", "bit<9> where bit<8> is needed")
            .given(COUNTER)
            .body("c.count(hdr.io.b[8:0]);"),
        refused("arithmetic in an index", "arithmetic in an index")
            .given(ADD)
            .body("hdr.io.x = add.execute(hdr.io.a[7:0] + hdr.io.b[7:0]);"),
        construct(
            "an index behind the end",
            Outcome::Fault(
                |fault| matches!(fault, Fault::IndexOutOfRange { index: 200, .. }),
                0,
                200,
            ),
        )
        .given(&ADD.replace("(256, 0)", "(100, 0)"))
        .apply("hdr.io.x = add.execute(hdr.io.b[7:0]);"),
    ]
}

/// Actions, and conditions in gateways.
fn actions_and_gateways() -> Vec<Construct> {
    vec![
        runs("an addition of 64 bits")
            .body("md.wide = hdr.io.a ++ hdr.io.b; md.wide = md.wide + md.wide;"),
        refused("an addition of 128 bits", "an addition of 128 bits: the chip adds at most 64")
            .body("md.widest = md.widest + md.widest;"),
        refused("a division", "division").body("hdr.io.x = hdr.io.a / hdr.io.b;"),
        refused("a remainder", "division").body("hdr.io.x = hdr.io.a % hdr.io.b;"),
        refused("a shift by a variable", "a shift by a variable")
            .body("hdr.io.x = hdr.io.a << md.small;"),
        refused("a product", "the chip has no multiplier").body("hdr.io.x = hdr.io.a * hdr.io.b;"),
        refused("which of two fields is less", "which of two fields is less")
            .body("if (hdr.io.a < hdr.io.b) { hdr.io.x = 1; }"),
        runs("whether two fields are equal").body("if (hdr.io.a == hdr.io.b) { hdr.io.x = 1; }"),
        refused("a condition on a sum", "a condition on a result of arithmetic")
            .body("if (hdr.io.a + hdr.io.b == hdr.io.x) { hdr.io.y = 1; }"),
        refused("a choice on a sum", "a condition on a result of arithmetic")
            .body("hdr.io.y = hdr.io.a + hdr.io.b == 5 ? hdr.io.a : hdr.io.b;"),
        refused("the highest of three", "an operation on the result of another one")
            .body("hdr.io.x = max(hdr.io.a, max(hdr.io.b, hdr.io.y));"),
        runs("the highest of three, one after another")
            .body("md.m = max(hdr.io.b, hdr.io.y); hdr.io.x = max(hdr.io.a, md.m);"),
        refused("a sum of three", "an operation on the result of another one")
            .body("hdr.io.x = hdr.io.a + hdr.io.b + hdr.io.y;"),
        runs("a sum with two constants").body("hdr.io.x = hdr.io.a + 1 + 2;"),
        runs("bits of one and bits of another")
            .body("hdr.io.x = (hdr.io.a & 0xff) | (hdr.io.b & 0xff00);"),
        refused("bits of one, and all of another", "an operation on the result of another one")
            .body("hdr.io.x = (hdr.io.a & 0xff) | hdr.io.b;"),
        runs("bits of one that another has not").body("hdr.io.x = ~hdr.io.a & hdr.io.b;"),
        refused("a sum with a complement", "an operation on the result of another one")
            .body("hdr.io.x = ~hdr.io.a + hdr.io.b;"),
        refused("a rotation", "an operation on the result of another one")
            .body("hdr.io.x = (hdr.io.a << 3) | (hdr.io.a >> 29);"),
        refused(
            "a product with three",
            "a multiplication by a constant that is not a power of two",
        )
        .body("hdr.io.x = hdr.io.a * 3;"),
        runs("a product with four").body("hdr.io.x = hdr.io.a * 4;"),
        runs("a part of a sum").body("md.small = (hdr.io.a + hdr.io.b)[31:24];"),
        runs("a sum with what a register says")
            .given(ADD)
            .body("hdr.io.x = add.execute(hdr.io.a[7:0]) + 1; hdr.io.y = (bit<32>)md.small;"),
        runs("a condition on what a register says")
            .given(ADD)
            .body("if (add.execute(hdr.io.a[7:0]) == 7) { hdr.io.x = 1; }"),
        runs("metadata that nothing wrote").body("hdr.io.x = md.m; hdr.io.y = (bit<32>)md.small;"),
        runs("a field of a header that is not there")
            .body("hdr.carried.one = 7; hdr.io.x = hdr.carried.one;"),
        runs("a variable that one branch writes")
            .body("bit<32> t; if (hdr.io.a == 1) { t = 7; } hdr.io.x = t;"),
        refused("an action of three steps", CHAINED_IN_ONE_ACTION).action(
            "hdr.io.x = hdr.io.a + hdr.io.b; hdr.io.y = hdr.io.x + hdr.io.b; \
             hdr.io.x = hdr.io.y ^ hdr.io.a;",
        ),
        refused("an action that adds one twice", CHAINED_IN_ONE_ACTION)
            .action("hdr.io.x = hdr.io.x + 1; hdr.io.x = hdr.io.x + 1;"),
        refused("an action that adds to a field after writing a part of it", CHAINED_IN_ONE_ACTION)
            .action("hdr.io.x[7:0] = hdr.io.a[7:0] + 1; hdr.io.y = hdr.io.x + hdr.io.b;"),
        refused("an action that runs another one and uses its result", CHAINED_IN_ONE_ACTION)
            .given("action u() { hdr.io.x = hdr.io.a + hdr.io.b; }\n")
            .action("u(); hdr.io.y = hdr.io.x + hdr.io.b;"),
        runs("an action that copies its result")
            .action("hdr.io.x = hdr.io.a + hdr.io.b; hdr.io.y = hdr.io.x;"),
        runs("an action that adds to a copy")
            .action("hdr.io.x = hdr.io.a; hdr.io.y = hdr.io.x + hdr.io.b;"),
        runs("an action that puts something else there").action(
            "hdr.io.x = hdr.io.a + hdr.io.b; hdr.io.x = hdr.io.y; hdr.io.y = hdr.io.x + hdr.io.b;",
        ),
        runs("an action that exchanges two fields")
            .action("bit<32> t = hdr.io.a; hdr.io.a = hdr.io.b; hdr.io.b = t;"),
        runs("an action that adds to a hash")
            .hashes(32)
            .action("hdr.io.x = h0.get({ hdr.io.a }); hdr.io.y = hdr.io.x + hdr.io.b;"),
    ]
}

/// Tables, and registers that take as much room.
fn tables() -> Vec<Construct> {
    vec![
        refused("a table applied twice", "pipe.Ingress.t is applied twice")
            .given(COUNTING_UP)
            .body("t.apply(); hdr.io.a = hdr.io.b; t.apply();"),
        refused("a table applied where it matched", "pipe.Ingress.t is applied twice")
            .given(COUNTING_UP)
            .body("if (t.apply().miss) { t.apply(); }"),
        runs("a table applied in both branches")
            .given(COUNTING_UP)
            .body("if (hdr.io.b == 1) { t.apply(); } else { hdr.io.a = hdr.io.b; t.apply(); }"),
        refused("a table applied in two ifs", "put both into branches of one if")
            .given(COUNTING_UP)
            .body("if (hdr.io.b == 1) { t.apply(); }\nif (hdr.io.b == 2) { t.apply(); }"),
        runs("a key of 160 bits").table(
            "table t { key = { hdr.io.a : exact; hdr.io.b : exact; hdr.io.x : exact; \
             hdr.io.y : exact; md.m : exact; }
             actions = { NoAction; } size = 16; }",
        ),
        refused("a key of 2048 bits", "unsupported key of 2048 bits")
            .metadata(&numbered(16, |word| format!("bit<128> w{word}; ")))
            .table(&format!(
                "table t {{ key = {{ {} }} actions = {{ NoAction; }} size = 16; }}",
                numbered(16, |word| format!("md.w{word} : exact; "))
            )),
        refused_anywhere("anything in egress", "unsupported egress: control Eg must be empty")
            .egress("om.force_tx_error = 1;"),
        refused("two prefixes in a key", "at most one lpm field").table(
            "table t { key = { hdr.io.a : lpm; hdr.io.b : lpm; } actions = { NoAction; } \
             size = 4; }",
        ),
        refused(
            "four million exact entries",
            "pipe.Ingress.t of 4194304 entries takes 268435456 bits of SRAM",
        )
        .table(
            "table t { key = { hdr.io.a : exact; hdr.io.b : exact; } actions = { NoAction; } \
             size = 4194304; }",
        ),
        refused(
            "a hundred thousand ternary entries",
            "pipe.Ingress.t of 100000 entries takes 588 blocks of TCAM: the chip has 288",
        )
        .table(
            "table t { key = { hdr.io.a : ternary; hdr.io.b : ternary; hdr.io.x : ternary; } \
             actions = { NoAction; } size = 100000; }",
        ),
        refused("sixteen million elements", "a stage, in which a register lies, has 10485760")
            .local("Register<bit<32>, bit<24>>(16777216, 0) r;"),
        refused_anywhere(
            "registers that fill the chip, one by one small enough",
            "bits of SRAM: the chip has 125829120",
        )
        .given(&numbered(13, |number| {
            let sizes = "bit<18>>(262144, 0)";
            format!("Register<bit<32>, {sizes} r{number};\nRegister<bit<8>, {sizes} s{number};\n")
        })),
        runs("twelve tables, one after another").chained(12),
        refused_anywhere(
            "forty tables, one after another",
            "40 look-ups and registers depend on one another",
        )
        .chained(40),
        runs("twelve registers, one after another").chained_registers(12),
        refused_anywhere("twenty-five registers, one after another", "the chip's 12 stages")
            .chained_registers(25),
        refused_anywhere("fifty registers", "50 registers: the chip has 48 stateful ALUs")
            .chained_registers(50),
        runs("priorities of constant entries").table(
            "action s(bit<32> d) { hdr.io.x = d; } table t { key = { hdr.io.a : ternary; } \
             actions = { s; }
                const entries = { (_) : s(1); (5) : s(2); } default_action = s(3); size = 4; }",
        ),
        // The compiler does accept a single entry.
        refused("constant entries of prefixes", "an lpm table cannot have const entries").table(
            "action s(bit<32> d) { hdr.io.x = d; }
            table t { /*!*/ key = { hdr.io.a : lpm; } actions = { s; }
                const entries = { 0x80000000 &&& 0x80000000 : s(1); \
                 0x40000000 &&& 0xc0000000 : s(2); }
                const default_action = s(3); size = 4; }",
        ),
        refused("an action profile", "unsupported extern ActionProfile")
            .local("ActionProfile(16) profile;"),
        refused("idle timeouts", "unsupported table property").table(
            "table t { key = { hdr.io.a : exact; } actions = { NoAction; } \
             idle_timeout = true; }",
        ),
    ]
}

/// Hashes and digests.
fn hashes_and_digests() -> Vec<Construct> {
    vec![
        runs("a hash of 1024 bits").given("Hash<bit<32>>(HashAlgorithm_t.CRC32) h;").body(
            &format!(
                "hdr.io.x = h.get({{ {} }});",
                ["hdr.io.a, hdr.io.b, hdr.io.x, hdr.io.y"; 8].join(", ")
            ),
        ),
        runs("a polynomial that is even")
            .given(
                "CRCPolynomial<bit<32>>(32w0x790900f2, true, false, false, 32w0xffffffff, 32w0) p;
                Hash<bit<32>>(HashAlgorithm_t.CUSTOM, p) h;",
            )
            .apply("hdr.io.x = h.get({ hdr.io.a });"),
        refused("two hashes in one action", "64 bits of hashes in one action")
            .hashes(32)
            .action("hdr.io.x = h0.get({ hdr.io.a }); hdr.io.y = h1.get({ hdr.io.b });"),
        runs("two hashes of half as many bits in one action").hashes(16).action(
            "hdr.io.x[15:0] = h0.get({ hdr.io.a }); hdr.io.y[15:0] = h1.get({ hdr.io.b });",
        ),
        refused("a hash of 64 bits", "64 bits of hashes in one action")
            .given(
                "CRCPolynomial<bit<64>>(64w0x42f0e1eba9ea3693, true, false, false, 64w0, 64w0) p;
                Hash<bit<64>>(HashAlgorithm_t.CUSTOM, p) h;",
            )
            .body("md.wide = h.get({ hdr.io.a }); hdr.io.x = md.wide[31:0];"),
        refused(
            "a hash in a default action",
            "pipe.Ingress.t with a key has the default action Ingress.s",
        )
        .hashes(32)
        .by_default("hdr.io.x = h0.get({ hdr.io.b });"),
        refused("a digest for every packet", "a digest without a condition")
            .digest("bit<32> word;", "md.m")
            .deparser_locals("\nDigest<digest_t>() report;\n")
            .deparser("\nreport.pack({ md.m }); /*!*/\n"),
        runs("a digest of packets with a header")
            .digest("bit<32> word;", "md.m")
            .deparser("if (hdr.io.isValid()) { report.pack({ md.m }); }"),
        refused("a resubmission of every packet", "a resubmission without a condition")
            .deparser_locals("Resubmit() again;")
            .deparser("\nagain.emit(hdr.carried); /*!*/\n"),
        runs("two digests of one packet")
            .digest("bit<32> word;", "md.m")
            .deparser_locals("Digest<digest_t>() report; Digest<digest_t>() other;")
            .deparser(
                "if (dm.digest_type == 1) { report.pack({ md.m }); } \
                 if (dm.digest_type == 1) { other.pack({ md.m }); }",
            ),
        runs("a resubmission on a header's field")
            .deparser_locals("Resubmit() again;")
            .deparser("if (hdr.io.a == 5) { again.emit(hdr.carried); }"),
        runs("a header emitted twice").deparser("packet.emit(hdr.io);"),
        runs("a digest of 47 bytes").digest(
            &format!("{} bit<24> rest;", fields_of(11)),
            &format!("{}, hdr.io.a[23:0]", ["md.m"; 11].join(", ")),
        ),
        refused("a digest of 48 bytes", "a digest of 48 bytes: the chip sends at most 47")
            .digest(&fields_of(12), &["md.m"; 12].join(", ")),
        refused("a digest of 64 bytes", "a digest of 64 bytes: the chip sends at most 47")
            .digest(&fields_of(16), &["md.m"; 16].join(", ")),
    ]
}

/// Parsers.
fn parsers() -> Vec<Construct> {
    vec![
        refused("a sum in a parser", "arithmetic in a parser").parser(
            "state body { packet.extract(hdr.io);\nmd.m = hdr.io.a + hdr.io.b; \
             /*!*/\ntransition accept; }",
        ),
        refused("a shift in a parser", "arithmetic in a parser").parser(
            "state body { packet.extract(hdr.io);\nmd.m = hdr.io.a << 2; \
             /*!*/\ntransition accept; }",
        ),
        runs("a select of 128 bits").parser(
            "state body { packet.extract(hdr.io); transition select(hdr.io.a, hdr.io.b, \
             hdr.io.x, hdr.io.y) {
                (1, 2, 3, 4) : accept; default : accept; } }",
        ),
        runs("a loop over a stack").parser(
            "state body { packet.extract(hdr.extra.next);
                transition select(hdr.extra.last.kind) { 1 : body; default : accept; } }",
        ),
        runs("a loop over a stack that a counter ends")
            .parser_locals("ParserCounter() left;")
            .parser(
                "state body { left.set(8w2); transition more; }
                state more { packet.extract(hdr.extra.next); left.decrement(1);
                transition select(left.is_zero(), hdr.extra.last.kind) { (false, 1) : more; \
                 default : accept; } }",
            ),
        refused_anywhere(
            "a loop with a state that looks ahead and another one that extracts",
            "unsupported loop of parser states",
        )
        .parser(LOOKING_LOOP),
        refused(
            "a counter set to a field",
            "unsupported set of a parser's counter by other than a number",
        )
        .parser_locals("ParserCounter() left;")
        .parser(
            "state body { packet.extract(hdr.extra[0]);\nleft.set(hdr.extra[0].kind); \
             /*!*/\ntransition more; }
                state more { left.decrement(1); \
             transition select(left.is_zero()) { true : accept; default : reject; } }",
        ),
        runs("a look at all that a parser sees").parser(
            "state body { md.m = packet.lookahead<bit<256>>()[31:0]; packet.extract(hdr.io); \
             transition accept; }",
        ),
    ]
}

/// Externs.
fn externs() -> Vec<Construct> {
    vec![
        refused("a meter", "unsupported extern Meter")
            .local("Meter<bit<8>>(256, MeterType_t.BYTES) m;"),
        refused("random numbers", "unsupported extern Random").local("Random<bit<16>>() random;"),
        refused("a checksum", "unsupported extern Checksum")
            .deparser_locals("\nChecksum() c; /*!*/\n"),
        refused("a mirror", "unsupported extern Mirror").deparser_locals("\nMirror() m; /*!*/\n"),
    ]
}

#[test]
fn what_the_chip_refuses_is_refused_when_it_is_loaded() {
    for Construct { name: what, program, outcome } in constructs() {
        let text = program.text();
        let loaded = Model::from_text("small.p4", &text, &Options::default());
        match (&outcome, loaded) {
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
    let Some(compiler) = p4c::compiler() else { return };
    let texts: Vec<String> = constructs().map(|construct| construct.program.text()).collect();
    let taken = p4c::takes(&compiler, "chip", &texts);
    let differs = |(construct, taken): (Construct, bool)| {
        let loads = matches!(construct.outcome, Runs | Outcome::Fault(..));
        (loads != taken).then_some(construct.name)
    };
    let found: Vec<&str> = constructs().zip(taken).filter_map(differs).collect();
    assert_eq!(found, DIFFERENCES.iter().map(|(what, _)| *what).collect::<Vec<_>>());
}

/// Programs that the chip's compiler has accepted (p4/README.md), in particular those that fill the
/// pipe.
#[test]
fn our_own_programs_are_not_refused() {
    let builds = [
        "HASH=0",
        "KEY=3 PRECISION=16",
        "ENTROPY=1 ENTROPY_SKETCH=2 ENTROPY_COLUMN_BITS=12",
        "FREQUENCY=1 FREQUENCY_SKETCH=1",
        "HEAVY=1 HEAVY_KEY=3 HEAVY_SLOT_BITS=12",
        "ENTROPY=1 FREQUENCY=1 MEMBERSHIP=1 HEAVY=1 SIZES=1",
        "DELAY=1 DELAY_TCP_DATA=1 DELAY_SLOT_BITS=16",
        "DELAY=1 DELAY_TCP_DURATION=1 DELAY_ALGORITHM=2",
        "DELAY=1 DELAY_TCP_HANDSHAKE=1 DELAY_TCP_DATA=1 DELAY_DNS=1 DELAY_ALGORITHM=1",
        "DELAY=1 DELAY_TCP_TIMESTAMPS=1",
        "DELAY=1 DELAY_QUIC_SPIN=1",
        "DELAY=1 DELAY_TCP_DATA=1 DELAY_GROUP_BITS=3 DELAY_LOCAL=1 DELAY_SAMPLES=1",
        "ENTROPY=1 ENTROPY_KEY=0 FREQUENCY=1 MEMBERSHIP=1 SIZES=1 DELAY=1 DELAY_TCP_DATA=1",
        "REORDER=1",
        "REORDER=2 REORDER_SLOT_BITS=16",
    ];
    for build in builds {
        let macros = build.split(' ').map(|define| define.split_once('=').unwrap());
        let options = macros.fold(Options::default(), |options, (name, value)| {
            options.define(&format!("FLOWGAUGE_{name}"), value)
        });
        Model::flowgauge(&options).unwrap_or_else(|error| panic!("{build}: {error}"));
    }
}
