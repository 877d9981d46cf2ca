//! Small programs around the statements under test.

use flowgauge_bfruntime::server::{Query, Write};
use flowgauge_bfruntime::{Data, Key, Match, Pipes};
use flowgauge_core::{Settings, cardinality};
use flowgauge_p4_model::{Model, Options, SourceError};

/// Settings with counters only.
pub const OFF: Settings = Settings::only(cardinality::Settings {
    mode: cardinality::Mode::Off,
    ..cardinality::Settings::DEFAULT
});

/// Program that reads a header of 16 bytes (`a`, `b`, `x`, `y`, 32 bits each) behind the metadata,
/// and sends it to port 1.
pub struct Program {
    pub declarations: String,
    pub locals: String,
    pub body: String,
    pub deparser_locals: String,
    pub deparser: String,
    pub parser_locals: String,
    pub parser: String,
    pub egress: String,
}

pub fn program(locals: &str, body: &str) -> Program {
    Program {
        declarations: "struct metadata_t { bit<32> m; bit<8> small; bit<1> single; bool flag; int<8> signed; }".to_owned(),
        locals: locals.to_owned(),
        body: body.to_owned(),
        deparser_locals: String::new(),
        deparser: String::new(),
        parser_locals: String::new(),
        parser: "state body { packet.extract(hdr.io); transition accept; }".to_owned(),
        egress: String::new(),
    }
}

impl Program {
    pub fn text(&self) -> String {
        let Program {
            declarations,
            locals,
            body,
            deparser_locals,
            deparser,
            parser_locals,
            parser,
            egress,
        } = self;
        format!(
            "#include <core.p4>
#include <tna.p4>
header io_h {{ bit<32> a; bit<32> b; bit<32> x; bit<32> y; }}
header extra_h {{ bit<8> kind; bit<24> rest; }}
header carried_h {{ bit<32> one; bit<32> two; }}
struct headers_t {{ extra_h[2] extra; io_h io; carried_h carried; }}
struct none_t {{}}
{declarations}
parser In(packet_in packet, out headers_t hdr, out metadata_t md, out ingress_intrinsic_metadata_t im) {{
    {parser_locals}
    state start {{ packet.extract(im); packet.advance(PORT_METADATA_SIZE); transition body; }}
    {parser}
}}
control Ingress(inout headers_t hdr, inout metadata_t md, in ingress_intrinsic_metadata_t im,
                in ingress_intrinsic_metadata_from_parser_t pm, inout ingress_intrinsic_metadata_for_deparser_t dm,
                inout ingress_intrinsic_metadata_for_tm_t tm) {{
    {locals}
    apply {{
        tm.ucast_egress_port = 1;
        {body}
    }}
}}
control Out(packet_out packet, inout headers_t hdr, in metadata_t md, in ingress_intrinsic_metadata_for_deparser_t dm) {{
    {deparser_locals}
    apply {{ {deparser} packet.emit(hdr); }}
}}
parser EgIn(packet_in packet, out none_t hdr, out none_t md, out egress_intrinsic_metadata_t im) {{
    state start {{ packet.extract(im); transition accept; }}
}}
control Eg(inout none_t hdr, inout none_t md, in egress_intrinsic_metadata_t im,
           in egress_intrinsic_metadata_from_parser_t pm, inout egress_intrinsic_metadata_for_deparser_t dm,
           inout egress_intrinsic_metadata_for_output_port_t om) {{ apply {{ {egress} }} }}
control EgOut(packet_out packet, inout none_t hdr, in none_t md, in egress_intrinsic_metadata_for_deparser_t dm) {{ apply {{}} }}
Pipeline(In(), Ingress(), Out(), EgIn(), Eg(), EgOut()) pipe;
Switch(pipe) main;
"
        )
    }

    pub fn load(&self) -> Result<Model, SourceError> {
        Model::from_text("small.p4", &self.text(), &Options::default())
    }

    pub fn model(&self) -> Model {
        self.load().unwrap_or_else(|error| panic!("{error}\n{}", self.text()))
    }
}

pub fn model(locals: &str, body: &str) -> Model {
    program(locals, body).model()
}

pub fn frame(a: u32, b: u32) -> Vec<u8> {
    [a.to_be_bytes(), b.to_be_bytes(), [0; 4], [0; 4]].concat()
}

/// Returns the `x` and `y` that a program computes from `a` and `b`.
pub fn compute(model: &mut Model, a: u32, b: u32) -> (u32, u32) {
    let output = model.inject(0, &frame(a, b)).unwrap();
    let frame = &output[0].frame;
    let word = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
    (word(8), word(12))
}

/// Runs one computation with a new model.
pub fn once(locals: &str, body: &str, a: u32, b: u32) -> (u32, u32) {
    compute(&mut model(locals, body), a, b)
}

pub fn exact(name: &str, value: &[u8]) -> Key {
    [(name.to_owned(), Match::Exact(value.to_vec()))].into()
}

pub fn call(action: &str, data: &[(&str, &[u8])]) -> Data {
    let data = data.iter().map(|(name, value)| (*name, value.to_vec()));
    Data { action: Some(action.to_owned()), ..Data::fields(data) }
}

/// Adds an entry to a table.
pub fn add(model: &mut Model, table: &str, key: Key, data: Data) {
    model.write(table, Pipes::All, &Write::Insert(key, data)).unwrap();
}

/// Sets the action of packets that match no entry.
pub fn set_default(model: &mut Model, table: &str, data: Data) {
    model.write(table, Pipes::All, &Write::SetDefault(data)).unwrap();
}

/// Returns packets and bytes of an element of a counter; zero for what it does not count.
pub fn counted(model: &Model, counter: &str, index: u32, pipes: Pipes) -> (u64, u64) {
    let key = exact("$COUNTER_INDEX", &index.to_be_bytes());
    let entries = model.read(counter, pipes, &Query::Entry(key)).unwrap();
    let number = |field: &str| {
        let bytes = entries[0].data.bytes(field);
        bytes.map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().unwrap()))
    };
    (number("$COUNTER_SPEC_PKTS"), number("$COUNTER_SPEC_BYTES"))
}
