//! Programs that do not match the settings.

use crate::tofino::lab::{Lab, SEED, failure, options, refused, settings};
use flowgauge_core::Grid;
use flowgauge_core::heavy::{self, Algorithm, CountUnit};
use flowgauge_core::membership;
use flowgauge_core::sketch;
use flowgauge_core::spread::{self, OtherKind};
use flowgauge_core::{HashMode, KeyKind, Settings};
use flowgauge_dataplane::tofino::{Failure, Tls, definitions};
use flowgauge_dataplane::{Dataplane, MeasurementKind, Tables, Tofino};
use flowgauge_testing::memory::Memory;
use flowgauge_testing::model::{compiled, serve};
use flowgauge_testing::switch::schema;
use std::sync::Arc;

/// A switch's schema, and settings that it fits.
struct Program {
    schema: String,
    settings: Settings,
}

impl Program {
    fn new(settings: Settings) -> Self {
        Program { schema: schema(&settings), settings }
    }

    /// Asserts that this program is refused after a replacement in its schema, and why.
    #[track_caller]
    fn assert_refused(&self, from: &str, to: &str, expected: &str) {
        assert!(self.schema.contains(from), "{from}");
        let memory = Arc::new(Memory::new(&self.schema.replace(from, to), 1));
        let running = serve(memory);
        let connected = Tofino::connect(options(running.address()), self.settings);
        let failed = refused(connected, expected);
        assert!(!failed.is_transient(), "{failed}");
    }

    /// Asserts that this program is refused without something of this kind, which has another name.
    #[track_caller]
    fn assert_needs(&self, kind: &str, names: &[(&str, &str)]) {
        for (name, other) in names {
            let expected = format!("there is no {kind} {}", name.trim_matches('"'));
            self.assert_refused(name, other, &expected);
        }
    }
}

#[test]
fn an_incomplete_schema_is_refused_with_what_is_missing() {
    let program = Program::new(settings(6));
    let tables = [
        ("cardinality_by_src.rank", "cardinality_by_src.tank"),
        ("hash.tabulation.words2", "hash.tabulation.words9"),
    ];
    program.assert_needs("table", &tables);
    program.assert_needs("action", &[("set_bank", "set_tank")]);
    program.assert_needs("action parameter", &[("\"bank\"", "\"tank\"")]);
    program.assert_needs("key field", &[("rank_bits", "tank_bits")]);
    program.assert_needs("data field", &[("$COUNTER_SPEC_PKTS", "$COUNTER_SPEC_PACKETS")]);
    let cases = [
        (
            "flowgauge.bank",
            "flowgauge.tank",
            "there is no table flowgauge.bank; there are: pipe.Ingress.flowgauge.tank, ",
        ),
        (
            "\"width\": 26",
            "\"width\": 21",
            "cardinality_by_src.rank is 21 bits wide and must be 26",
        ),
        (
            "\"size\": 128",
            "\"size\": 100",
            "cardinality_by_src.registers is Register of 100 and must be a register of 128",
        ),
        (
            "\"size\": 16,",
            "\"size\": 2,",
            "counters.frames is Counter of 2 and must be a counter of 16",
        ),
        (
            "registers.f1\", \"type\": {\"type\": \"bytes\", \"width\": 8",
            "registers.f1\", \"type\": {\"type\": \"bytes\", \"width\": 16",
            "cardinality_by_src.registers is Register of 16 bits and must be a register of 8 bits",
        ),
    ];
    for (from, to, expected) in cases {
        program.assert_refused(from, to, expected);
    }
    for field in ["hdr.ipv4.ttl", "hdr.ipv4.dst_addr"] {
        let expected =
            format!("hash.src.ipv4_crc.compute hashes {field}, which is not the key src");
        program.assert_refused("hdr.ipv4.src_addr", field, &expected);
    }
}

#[test]
fn a_program_with_other_settings_is_refused_with_compiler_options() {
    let lab = Lab::new(1);
    let mut settings = settings(11);
    settings.cardinality.key = KeyKind::FiveTuple;
    settings.hash = HashMode::Crc32;
    let failed = failure(Tofino::connect(lab.options(), settings));
    assert_eq!(
        failed.to_string(),
        "the program does not fit: it measures cardinality by src, tabulated, 64 registers, wanted by five-tuple, crc32, 2048 registers \
         (-DFLOWGAUGE_KEY=3 -DFLOWGAUGE_HASH=0 -DFLOWGAUGE_PRECISION=11); compile it so, or change the settings"
    );
}

#[test]
fn a_missing_program_and_a_used_client_number_are_reported() {
    let lab = Lab::new(1);
    let mut other = lab.options();
    other.program = "other".to_owned();
    let failed = failure(Tofino::connect(other, lab.settings));
    assert!(!failed.is_transient());
    let said = "binding program other: there is no program other; flowgauge is loaded";
    assert_eq!(failed.to_string(), format!("refused (NOT_FOUND): {said}"));
    let _first = crate::tofino::windows::connect_patiently(&lab.options(), lab.settings);
    let failed = failure(Tofino::connect(lab.options(), lab.settings));
    assert!(failed.is_transient());
    let port = lab.proxy.address.port();
    let advice = format!(
        "if that client runs, stop it; if its machine or its connection was lost, the switch does not know: see `ss -tn sport = :{port}` \
         there, end its connection with `ss -K dst ADDRESS sport = :{port}`"
    );
    let said = "client 1 is subscribed already (there cannot be two clients with number 1)";
    let expected = format!("{said}; {advice}, or take another number with --client");
    assert_eq!(failed.to_string(), expected);
    let mut second = lab.options();
    second.client = 2;
    let failed = failure(Tofino::connect(second, lab.settings));
    let said = "binding program flowgauge: the program is bound to client 1";
    assert_eq!(failed.to_string(), format!("{said}; {advice}"));
    let mut device = lab.options();
    (device.device, device.client) = (3, 9);
    let failed = failure(Tofino::connect(device, lab.settings));
    assert_eq!(failed.to_string(), "refused (NOT_FOUND): subscribing: there is no device 3");
}

#[test]
fn capabilities_are_those_of_the_program() {
    let lab = Lab::new(1);
    let tofino = lab.connect();
    let capabilities = tofino.capabilities();
    let precision = lab.settings.cardinality.precision;
    assert_eq!(capabilities.precision, precision..=precision);
    assert_eq!(capabilities.backend, "tofino");
    assert!(!capabilities.atomic_snapshots && !capabilities.staggered);
    assert_eq!(capabilities.interface, lab.proxy.address.to_string());
}

#[test]
fn invalid_certificates_are_refused() {
    let lab = Lab::new(1);
    let mut options = lab.options();
    let authority = "nonsense".to_owned();
    options.tls = Some(Tls { authority, identity: None, server_name: None });
    let failed = failure(Tofino::connect(options, lab.settings));
    assert!(matches!(failed, Failure::Options { .. } | Failure::Unreachable { .. }), "{failed}");
}

/// Returns settings that measure everything by sources, with small tables.
pub fn everything() -> Settings {
    let mut settings = settings(6);
    let (key, shape) = (KeyKind::Src, Grid::of_counters(3, 16).unwrap());
    let sketch = |mode| sketch::Settings { mode, key, shape };
    settings.entropy[0] = sketch(sketch::Mode::CountSketch);
    settings.frequency = sketch(sketch::Mode::CountMin);
    let shape = Grid::of_bits(3, 64).unwrap();
    settings.membership = membership::Settings { on: true, key, shape };
    let algorithm = Algorithm::Precision;
    settings.heavy = heavy::Settings { algorithm, slots_log2: 4, ..heavy::Settings::DEFAULT };
    settings
}

#[test]
fn an_incomplete_measurement_is_refused_with_what_is_missing() {
    let program = Program::new(everything());
    let tables = [
        ("entropy_by_src.count_sketch1", "entropy_by_src.count_sketch9"),
        ("entropy_by_src.logarithm", "entropy_by_src.algorithm"),
        ("hash.src_rows.tabulation.words2", "hash.src_rows.tabulation.words9"),
        ("frequency_by_src.count_min2", "frequency_by_src.count_min9"),
        ("membership_by_src.bits1", "membership_by_src.bits9"),
        ("frequency_by_src.count_min0", "frequency_by_dst.count_min0"),
        ("heavy_by_src.flows1", "heavy_by_src.flows9"),
    ];
    program.assert_needs("table", &tables);
    program.assert_needs("action parameter", &[("\"inverted\"", "\"reverted\"")]);
    program.assert_needs("action parameter", &[("\"high\"", "\"higher\"")]);
    program.assert_needs("key field", &[("\"coin\"", "\"dice\"")]);
    let parts = [
        ("entropy_by_src.sum\"", "entropy_by_src.sun\"", "table entropy_by_src.sum"),
        ("entropy_by_src.sum.high", "entropy_by_src.sum.low2", "data field high"),
        ("\"name\": \"count\"", "\"name\": \"discount\"", "key field count"),
        ("heavy_by_src.src_upper\"", "heavy_by_src.src_middle\"", "table heavy_by_src.src_upper"),
        ("heavy_by_src.origin.version", "heavy_by_src.origin.age", "data field version"),
        ("heavy_by_src.admit\"", "heavy_by_src.omit\"", "action admit"),
    ];
    for (from, to, part) in parts {
        program.assert_refused(from, to, &format!("there is no {part}"));
    }
    program.assert_refused(
        "count_min2.f1\", \"type\": {\"type\": \"bytes\", \"width\": 32",
        "count_min2.f1\", \"type\": {\"type\": \"bytes\", \"width\": 16",
        "frequency_by_src.count_min2 is Register of 16 bits and must be a register of 32 bits",
    );
    let registers = [
        ("frequency_by_src.count_min1", 51, 32, 64),
        ("frequency_by_src.count_min0", 50, 32, 36),
        ("membership_by_src.bits0", 60, 4, 2),
        ("heavy_by_src.flows0", 72, 16, 8),
    ];
    for (name, id, size, other) in registers {
        let sized = |size: u32| format!(r#""id": {id}, "table_type": "Register", "size": {size}"#);
        let expected = format!("{name} is Register of {other} and must be a register of {size}");
        program.assert_refused(&sized(size), &sized(other), &expected);
    }
}

/// Sources of each destination.
const VICTIMS: spread::Settings = spread::Settings { on: true, ..spread::Settings::DEFAULT };

#[test]
fn an_incomplete_sketch_of_distinct_others_is_refused_with_what_is_missing() {
    let scans = spread::Settings { by: KeyKind::Src, of: OtherKind::DstPort, ..VICTIMS };
    let mut settings = settings(6);
    settings.spread[1] = scans.sized(3, 16, 16).unwrap();
    let schema = compiled(definitions(&settings).unwrap()).schema().to_string();
    let program = Program { schema, settings };
    let tables = [
        ("spread_by_src.candidates1", "spread_by_src.candidates9"),
        ("spread_by_src.upper2", "spread_by_src.upper9"),
        ("spread_by_src.ranks", "spread_by_src.ranges"),
    ];
    program.assert_needs("table", &tables);
    program.assert_needs("data field", &[("address1", "address9")]);
    program.assert_needs("key field", &[("level_bits", "table_bits")]);
    program.assert_refused(
        "with_port_rows.tabulation.words3",
        "with_port_rows.tabulation.words9",
        "there is no table hash.with_port_rows.tabulation.words3",
    );
    program.assert_refused(
        "md.flowgauge.ports[15:0]",
        "md.flowgauge.ports[31:16]",
        "hash.with_port.ipv4_crc.compute hashes hdr.ipv4.src_addr, md.flowgauge.ports[31:16], hdr.ipv4.protocol, \
         which is not the key src with the destination port",
    );
    let stated = |name: &str, value: u32| {
        format!(r#"@user_annotation(\"FLOWGAUGE_SPREAD{name}\", \"{value}\")"#)
    };
    let out_of_range = [("_COLUMN_BITS", 4, 3), ("_REGISTER_BITS", 4, 9), ("_OTHER", 2, 0)];
    for (name, from, to) in out_of_range {
        let expected = format!("its FLOWGAUGE_SPREAD{name} is {to}, which is out of range");
        program.assert_refused(&stated(name, from), &stated(name, to), &expected);
    }
    let cases = [
        (
            ("_COLUMN_BITS", 4, 5),
            "spread_by_src.registers0 is Register of 512 and must be a register of 1024",
        ),
        (("_OTHER", 2, 1), "there is no table hash.src_dst_rows.tabulation.words0"),
        (
            ("", 1, 0),
            "it measures spread not at all, wanted by src, of dst-port, 16 columns of 16 registers (-DFLOWGAUGE_SPREAD=1 \
             -DFLOWGAUGE_SPREAD_KEY=0 -DFLOWGAUGE_SPREAD_OTHER=2 -DFLOWGAUGE_SPREAD_COLUMN_BITS=4 \
             -DFLOWGAUGE_SPREAD_REGISTER_BITS=4); compile it so, or change the settings",
        ),
    ];
    for ((name, from, to), expected) in cases {
        program.assert_refused(&stated(name, from), &stated(name, to), expected);
    }
}

/// The layout follows from what the program states, not from which tables it has.
#[test]
fn a_program_is_what_it_states() {
    let program = Program::new(everything());
    let stated = |name: &str, value: &str| format!(r#"@user_annotation(\"{name}\", \"{value}\")"#);
    let out_of_range = [
        ("FLOWGAUGE_PRECISION", "6", "40"),
        ("FLOWGAUGE_KEY", "0", "4"),
        ("FLOWGAUGE_FREQUENCY_COLUMN_BITS", "4", "31"),
        ("FLOWGAUGE_HEAVY_SLOT_BITS", "4", "13"),
    ];
    for (name, from, to) in out_of_range {
        let expected = format!("its {name} is {to}, which is out of range");
        program.assert_refused(&stated(name, from), &stated(name, to), &expected);
    }
    let cases = [
        (
            ("FLOWGAUGE_HEAVY", "1", "0"),
            "it measures heavy not at all, wanted by src, precision, 16 slots (-DFLOWGAUGE_HEAVY=1 -DFLOWGAUGE_HEAVY_KEY=0 \
             -DFLOWGAUGE_HEAVY_SLOT_BITS=4); compile it so, or change the settings",
        ),
        (
            ("FLOWGAUGE_FREQUENCY", "1", "0"),
            "it measures frequency not at all, wanted by src, count-min, 16 columns (-DFLOWGAUGE_FREQUENCY=1 -DFLOWGAUGE_FREQUENCY_KEY=0 \
             -DFLOWGAUGE_FREQUENCY_SKETCH=2 -DFLOWGAUGE_FREQUENCY_COLUMN_BITS=4); compile it so, or change the settings",
        ),
        (
            ("FLOWGAUGE_PRECISION", "6", "7"),
            "cardinality_by_src.registers is Register of 128 and must be a register of 256",
        ),
        (
            ("FLOWGAUGE_PRECISION", "6", "6 + 1"),
            "its FLOWGAUGE_PRECISION is 6 + 1, which is no number",
        ),
    ];
    for ((name, from, to), expected) in cases {
        program.assert_refused(&stated(name, from), &stated(name, to), expected);
    }
    let unstated = [
        ("FLOWGAUGE_MEMBERSHIP_KEY", "MEMBERSHIP_KEY", "FLOWGAUGE_MEMBERSHIP_KEY"),
        ("@user_annotation", "@other", "FLOWGAUGE_CARDINALITY"),
    ];
    for (from, to, name) in unstated {
        let expected =
            format!("it does not state its {name}; compile it from the p4/ of this version");
        program.assert_refused(from, to, &expected);
    }
}

/// A change of settings, and why a program cannot measure with them.
type RefusedChange<'a> = (fn(&mut Settings), &'a str);

#[test]
fn what_no_program_measures_is_refused() {
    let cases: [RefusedChange<'_>; 11] = [
        (|settings| settings.entropy[1] = settings.entropy[0], "two entropies by src are one"),
        (
            |settings| {
                let mode = sketch::Mode::CountMin;
                settings.entropy[1] =
                    sketch::Settings { mode, key: KeyKind::Dst, ..settings.entropy[0] };
            },
            "both of its entropies have sketches of one kind and size",
        ),
        (
            |settings| settings.entropy[0].shape = Grid::COUNTERS,
            "it has 3 rows for entropy, 4 are wanted",
        ),
        (
            |settings| settings.frequency.shape = Grid::COUNTERS,
            "it has 3 rows for frequency, 4 are wanted",
        ),
        (
            |settings| settings.membership.shape = Grid::BITS,
            "it has 3 rows for membership, 4 are wanted",
        ),
        (
            |settings| settings.heavy.algorithm = Algorithm::Rap,
            "it finds heavy hitters by precision and not by rap, which takes the smallest of all counts",
        ),
        (
            |settings| settings.heavy.algorithm = Algorithm::HashPipe,
            "it finds heavy hitters by precision and not by hashpipe",
        ),
        (
            |settings| settings.heavy.unit = CountUnit::Bytes,
            "it finds the flows with the most packets, not bytes",
        ),
        (
            |settings| settings.spread = [VICTIMS; 2],
            "it counts the distinct others of one key, 2 are wanted; leave one out",
        ),
        (
            |settings| settings.spread[0] = VICTIMS.sized(4, 512, 64).unwrap(),
            "it has 3 rows for spread, 4 are wanted",
        ),
        (
            |settings| {
                settings.spread[0] = spread::Settings { by: KeyKind::Src, ..VICTIMS };
            },
            "it cannot count distinct others so; a key has at most one such other; count one that the key does not contain",
        ),
    ];
    for (change, expected) in cases {
        let mut settings = everything();
        change(&mut settings);
        let message = definitions(&settings).unwrap_err().to_string();
        assert_eq!(message, format!("the program does not fit: {expected}"));
    }
}

#[test]
fn a_program_may_measure_more_than_is_wanted() {
    let lab = Lab::with(everything(), 2);
    let capabilities = lab.connect().capabilities().clone();
    let has: Vec<MeasurementKind> =
        MeasurementKind::ALL.into_iter().filter(|kind| kind.is_on(&everything())).collect();
    assert_eq!((has.len(), &capabilities.measurements), (5, &has));
    assert_eq!((capabilities.entropies, capabilities.rows), (1, 3..=3));
    assert_eq!(capabilities.algorithms, [Algorithm::Precision]);
    assert_eq!(capabilities.units, [CountUnit::Packets]);
    let wanted = settings(6);
    let mut tofino = crate::tofino::windows::connect_patiently(&lab.options(), wanted);
    tofino.install(&Tables::new(&wanted, SEED)).unwrap();
    lab.count(0..100);
    lab.assert_holds(&tofino.rotate().unwrap(), 0..100);
}
