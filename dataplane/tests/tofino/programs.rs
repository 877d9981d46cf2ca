//! Programs that do not match the settings.

use crate::tofino::lab::{Lab, SEED, failure, options, settings};
use flowgauge_core::Grid;
use flowgauge_core::heavy::{self, Algorithm, CountUnit};
use flowgauge_core::membership;
use flowgauge_core::sketch;
use flowgauge_core::spread::{self, OtherKind};
use flowgauge_core::{HashMode, KeyKind, Settings};
use flowgauge_dataplane::tofino::{Failure, definitions};
use flowgauge_dataplane::{Dataplane, MeasurementKind, Tables, Tofino};
use flowgauge_testing::memory::Memory;
use flowgauge_testing::model::{compiled, serve};
use flowgauge_testing::switch::schema;
use std::sync::Arc;

/// Returns the error for a switch whose schema was changed like this.
fn refused(from: &str, to: &str) -> String {
    refused_of(settings(6), from, to)
}

fn refused_of(settings: Settings, from: &str, to: &str) -> String {
    let json = schema(&settings);
    assert!(json.contains(from), "{from}");
    let memory = Arc::new(Memory::new(&json.replace(from, to), 1));
    let running = serve(memory);
    let failed = failure(Tofino::connect(options(running.address()), settings));
    assert!(!failed.is_transient(), "{failed}");
    failed.to_string()
}

#[test]
fn an_incomplete_schema_is_refused_with_what_is_missing() {
    let cases = [
        (
            refused("flowgauge.bank", "flowgauge.tank"),
            "there is no table flowgauge.bank; there are: pipe.Ingress.flowgauge.tank, ",
        ),
        (refused("set_bank", "set_tank"), "there is no action set_bank"),
        (refused("\"bank\"", "\"tank\""), "there is no action parameter bank"),
        (
            refused("cardinality_by_src.rank", "cardinality_by_src.tank"),
            "there is no table cardinality_by_src.rank",
        ),
        (refused("rank_bits", "tank_bits"), "there is no key field rank_bits"),
        (
            refused("\"width\": 26", "\"width\": 21"),
            "cardinality_by_src.rank is 21 bits wide and must be 26",
        ),
        (
            refused("\"size\": 128", "\"size\": 100"),
            "cardinality_by_src.registers is Register of 100 and must be a register of 128",
        ),
        (
            refused("\"size\": 16,", "\"size\": 2,"),
            "counters.frames is Counter of 2 and must be a counter of 16",
        ),
        (
            refused(
                "registers.f1\", \"type\": {\"type\": \"bytes\", \"width\": 8",
                "registers.f1\", \"type\": {\"type\": \"bytes\", \"width\": 16",
            ),
            "cardinality_by_src.registers is Register of 16 bits and must be a register of 8 bits",
        ),
        (
            refused("$COUNTER_SPEC_PKTS", "$COUNTER_SPEC_PACKETS"),
            "there is no data field $COUNTER_SPEC_PKTS",
        ),
        (
            refused("hash.tabulation.words2", "hash.tabulation.words9"),
            "there is no table hash.tabulation.words2",
        ),
        (
            refused("hdr.ipv4.src_addr", "hdr.ipv4.ttl"),
            "hash.src.ipv4_crc.compute hashes hdr.ipv4.ttl, which is not the key src",
        ),
        (
            refused("hdr.ipv4.src_addr", "hdr.ipv4.dst_addr"),
            "hash.src.ipv4_crc.compute hashes hdr.ipv4.dst_addr, which is not the key src",
        ),
    ];
    for (message, expected) in cases {
        assert!(message.contains(expected), "{message}\nand not\n{expected}");
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
    assert_eq!(
        failed.to_string(),
        "refused (NOT_FOUND): binding program other: there is no program other; flowgauge is loaded"
    );
    let _first = crate::tofino::windows::connect_patiently(&lab.options(), lab.settings);
    let failed = failure(Tofino::connect(lab.options(), lab.settings));
    assert!(failed.is_transient());
    let port = lab.proxy.address.port();
    let advice = format!(
        "if that client runs, stop it; if its machine or its connection was lost, the switch does not know: see `ss -tn sport = :{port}` \
         there, end its connection with `ss -K dst ADDRESS sport = :{port}`"
    );
    let said = "client 1 is subscribed already (there cannot be two clients with number 1)";
    assert_eq!(
        failed.to_string(),
        format!("{said}; {advice}, or take another number with --client")
    );
    let mut second = lab.options();
    second.client = 2;
    let failed = failure(Tofino::connect(second, lab.settings));
    assert_eq!(
        failed.to_string(),
        format!("binding program flowgauge: the program is bound to client 1; {advice}")
    );
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
    assert_eq!(
        (capabilities.backend, capabilities.atomic_snapshots, capabilities.staggered),
        ("tofino", false, false)
    );
    assert_eq!(capabilities.interface, lab.proxy.address.to_string());
}

#[test]
fn invalid_certificates_are_refused() {
    let lab = Lab::new(1);
    let mut options = lab.options();
    let tls = flowgauge_dataplane::tofino::Tls {
        authority: "nonsense".to_owned(),
        identity: None,
        server_name: None,
    };
    options.tls = Some(tls);
    let failed = failure(Tofino::connect(options, lab.settings));
    assert!(matches!(failed, Failure::Options { .. } | Failure::Unreachable { .. }), "{failed}");
}

/// Returns settings that measure everything by sources, with small tables.
pub fn everything() -> Settings {
    let mut settings = settings(6);
    let sketch = |mode| sketch::Settings {
        mode,
        key: KeyKind::Src,
        shape: Grid::of_counters(3, 16).unwrap(),
    };
    settings.entropy[0] = sketch(sketch::Mode::CountSketch);
    settings.frequency = sketch(sketch::Mode::CountMin);
    settings.membership =
        membership::Settings { on: true, key: KeyKind::Src, shape: Grid::of_bits(3, 64).unwrap() };
    settings.heavy = heavy::Settings {
        algorithm: Algorithm::Precision,
        slots_log2: 4,
        ..heavy::Settings::DEFAULT
    };
    settings
}

#[test]
fn an_incomplete_measurement_is_refused_with_what_is_missing() {
    let refused = |from: &str, to: &str| refused_of(everything(), from, to);
    let cases = [
        (
            refused("entropy_by_src.count_sketch1", "entropy_by_src.count_sketch9"),
            "there is no table entropy_by_src.count_sketch1",
        ),
        (
            refused("entropy_by_src.logarithm", "entropy_by_src.algorithm"),
            "there is no table entropy_by_src.logarithm",
        ),
        (
            refused("entropy_by_src.sum\"", "entropy_by_src.sun\""),
            "there is no table entropy_by_src.sum",
        ),
        (
            refused("entropy_by_src.sum.high", "entropy_by_src.sum.low2"),
            "there is no data field high",
        ),
        (refused("\"inverted\"", "\"reverted\""), "there is no action parameter inverted"),
        (refused("\"name\": \"count\"", "\"name\": \"discount\""), "there is no key field count"),
        (refused("\"high\"", "\"higher\""), "there is no action parameter high"),
        (
            refused("hash.src_rows.tabulation.words2", "hash.src_rows.tabulation.words9"),
            "there is no table hash.src_rows.tabulation.words2",
        ),
        (
            refused("frequency_by_src.count_min2", "frequency_by_src.count_min9"),
            "there is no table frequency_by_src.count_min2",
        ),
        (
            refused("membership_by_src.bits1", "membership_by_src.bits9"),
            "there is no table membership_by_src.bits1",
        ),
        (
            refused("frequency_by_src.count_min0", "frequency_by_dst.count_min0"),
            "there is no table frequency_by_src.count_min0",
        ),
        (
            refused(
                "count_min2.f1\", \"type\": {\"type\": \"bytes\", \"width\": 32",
                "count_min2.f1\", \"type\": {\"type\": \"bytes\", \"width\": 16",
            ),
            "frequency_by_src.count_min2 is Register of 16 bits and must be a register of 32 bits",
        ),
        (
            refused(
                "\"id\": 51, \"table_type\": \"Register\", \"size\": 32",
                "\"id\": 51, \"table_type\": \"Register\", \"size\": 64",
            ),
            "frequency_by_src.count_min1 is Register of 64 and must be a register of 32",
        ),
        (
            refused(
                "\"id\": 50, \"table_type\": \"Register\", \"size\": 32",
                "\"id\": 50, \"table_type\": \"Register\", \"size\": 36",
            ),
            "frequency_by_src.count_min0 is Register of 36 and must be a register of 32",
        ),
        (
            refused(
                "\"id\": 60, \"table_type\": \"Register\", \"size\": 4",
                "\"id\": 60, \"table_type\": \"Register\", \"size\": 2",
            ),
            "membership_by_src.bits0 is Register of 2 and must be a register of 4",
        ),
        (
            refused("heavy_by_src.flows1", "heavy_by_src.flows9"),
            "there is no table heavy_by_src.flows1",
        ),
        (
            refused("heavy_by_src.src_upper\"", "heavy_by_src.src_middle\""),
            "there is no table heavy_by_src.src_upper",
        ),
        (
            refused("heavy_by_src.origin.version", "heavy_by_src.origin.age"),
            "there is no data field version",
        ),
        (refused("\"coin\"", "\"dice\""), "there is no key field coin"),
        (refused("heavy_by_src.admit\"", "heavy_by_src.omit\""), "there is no action admit"),
        (
            refused(
                "\"id\": 72, \"table_type\": \"Register\", \"size\": 16",
                "\"id\": 72, \"table_type\": \"Register\", \"size\": 8",
            ),
            "heavy_by_src.flows0 is Register of 8 and must be a register of 16",
        ),
    ];
    for (message, expected) in cases {
        assert!(message.contains(expected), "{message}\nand not\n{expected}");
    }
}

/// Sources of each destination.
const VICTIMS: spread::Settings = spread::Settings { on: true, ..spread::Settings::DEFAULT };

#[test]
fn an_incomplete_sketch_of_distinct_others_is_refused_with_what_is_missing() {
    let scans = spread::Settings { by: KeyKind::Src, of: OtherKind::DstPort, ..VICTIMS };
    let mut settings = settings(6);
    settings.spread[1] = scans.sized(3, 16, 16).unwrap();
    let json = compiled(definitions(&settings).unwrap()).schema().to_string();
    let refused = |from: &str, to: &str| {
        assert!(json.contains(from), "{from}");
        let memory = Arc::new(Memory::new(&json.replace(from, to), 1));
        let running = serve(memory);
        failure(Tofino::connect(options(running.address()), settings)).to_string()
    };
    let stated = |name: &str, value: u32| {
        format!(r#"@user_annotation(\"FLOWGAUGE_SPREAD{name}\", \"{value}\")"#)
    };
    let stating = |name: &str, from, to| refused(&stated(name, from), &stated(name, to));
    let cases = [
        (
            refused("spread_by_src.candidates1", "spread_by_src.candidates9"),
            "there is no table spread_by_src.candidates1",
        ),
        (
            refused("spread_by_src.upper2", "spread_by_src.upper9"),
            "there is no table spread_by_src.upper2",
        ),
        (refused("address1", "address9"), "there is no data field address1"),
        (
            refused("spread_by_src.ranks", "spread_by_src.ranges"),
            "there is no table spread_by_src.ranks",
        ),
        (refused("level_bits", "table_bits"), "there is no key field level_bits"),
        (
            refused("with_port_rows.tabulation.words3", "with_port_rows.tabulation.words9"),
            "there is no table hash.with_port_rows.tabulation.words3",
        ),
        (
            refused("md.flowgauge.ports[15:0]", "md.flowgauge.ports[31:16]"),
            "hash.with_port.ipv4_crc.compute hashes hdr.ipv4.src_addr, md.flowgauge.ports[31:16], hdr.ipv4.protocol, \
             which is not the key src with the destination port",
        ),
        (
            stating("_COLUMN_BITS", 4, 5),
            "spread_by_src.registers0 is Register of 512 and must be a register of 1024",
        ),
        (
            stating("_COLUMN_BITS", 4, 3),
            "its FLOWGAUGE_SPREAD_COLUMN_BITS is 3, which is out of range",
        ),
        (
            stating("_REGISTER_BITS", 4, 9),
            "its FLOWGAUGE_SPREAD_REGISTER_BITS is 9, which is out of range",
        ),
        (stating("_OTHER", 2, 0), "its FLOWGAUGE_SPREAD_OTHER is 0, which is out of range"),
        (stating("_OTHER", 2, 1), "there is no table hash.src_dst_rows.tabulation.words0"),
        (
            stating("", 1, 0),
            "it measures spread not at all, wanted by src, of dst-port, 16 columns of 16 registers (-DFLOWGAUGE_SPREAD=1 \
             -DFLOWGAUGE_SPREAD_KEY=0 -DFLOWGAUGE_SPREAD_OTHER=2 -DFLOWGAUGE_SPREAD_COLUMN_BITS=4 \
             -DFLOWGAUGE_SPREAD_REGISTER_BITS=4); compile it so, or change the settings",
        ),
    ];
    for (message, expected) in cases {
        assert!(message.contains(expected), "{message}\nand not\n{expected}");
    }
}

/// The layout follows from what the program states, not from which tables it has.
#[test]
fn a_program_is_what_it_states() {
    let refused = |from: &str, to: &str| refused_of(everything(), from, to);
    let stated = |name: &str, value: &str| format!(r#"@user_annotation(\"{name}\", \"{value}\")"#);
    let stating =
        |name: &str, from: &str, to: &str| refused(&stated(name, from), &stated(name, to));
    let cases = [
        (
            stating("FLOWGAUGE_HEAVY", "1", "0"),
            "it measures heavy not at all, wanted by src, precision, 16 slots (-DFLOWGAUGE_HEAVY=1 -DFLOWGAUGE_HEAVY_KEY=0 \
             -DFLOWGAUGE_HEAVY_SLOT_BITS=4); compile it so, or change the settings",
        ),
        (
            stating("FLOWGAUGE_FREQUENCY", "1", "0"),
            "it measures frequency not at all, wanted by src, count-min, 16 columns (-DFLOWGAUGE_FREQUENCY=1 -DFLOWGAUGE_FREQUENCY_KEY=0 \
             -DFLOWGAUGE_FREQUENCY_SKETCH=2 -DFLOWGAUGE_FREQUENCY_COLUMN_BITS=4); compile it so, or change the settings",
        ),
        (
            stating("FLOWGAUGE_PRECISION", "6", "7"),
            "cardinality_by_src.registers is Register of 128 and must be a register of 256",
        ),
        (
            stating("FLOWGAUGE_PRECISION", "6", "6 + 1"),
            "its FLOWGAUGE_PRECISION is 6 + 1, which is no number",
        ),
        (
            stating("FLOWGAUGE_PRECISION", "6", "40"),
            "its FLOWGAUGE_PRECISION is 40, which is out of range",
        ),
        (stating("FLOWGAUGE_KEY", "0", "4"), "its FLOWGAUGE_KEY is 4, which is out of range"),
        (
            stating("FLOWGAUGE_FREQUENCY_COLUMN_BITS", "4", "31"),
            "its FLOWGAUGE_FREQUENCY_COLUMN_BITS is 31, which is out of range",
        ),
        (
            stating("FLOWGAUGE_HEAVY_SLOT_BITS", "4", "13"),
            "its FLOWGAUGE_HEAVY_SLOT_BITS is 13, which is out of range",
        ),
        (
            refused("FLOWGAUGE_MEMBERSHIP_KEY", "MEMBERSHIP_KEY"),
            "it does not state its FLOWGAUGE_MEMBERSHIP_KEY; compile it from the p4/ of this version",
        ),
        (
            refused("@user_annotation", "@other"),
            "it does not state its FLOWGAUGE_CARDINALITY; compile it from the p4/ of this version",
        ),
    ];
    for (message, expected) in cases {
        assert!(message.contains(expected), "{message}\nand not\n{expected}");
    }
}

#[test]
fn what_no_program_measures_is_refused() {
    let refused = |change: fn(&mut Settings)| {
        let mut settings = everything();
        change(&mut settings);
        definitions(&settings).unwrap_err().to_string()
    };
    let cases = [
        (
            refused(|settings| settings.entropy[1] = settings.entropy[0]),
            "two entropies by src are one",
        ),
        (
            refused(|settings| {
                settings.entropy[1] = sketch::Settings {
                    mode: sketch::Mode::CountMin,
                    key: KeyKind::Dst,
                    ..settings.entropy[0]
                };
            }),
            "both of its entropies have sketches of one kind and size",
        ),
        (
            refused(|settings| settings.entropy[0].shape = Grid::COUNTERS),
            "it has 3 rows for entropy, 4 are wanted",
        ),
        (
            refused(|settings| settings.frequency.shape = Grid::COUNTERS),
            "it has 3 rows for frequency, 4 are wanted",
        ),
        (
            refused(|settings| settings.membership.shape = Grid::BITS),
            "it has 3 rows for membership, 4 are wanted",
        ),
        (
            refused(|settings| settings.heavy.algorithm = Algorithm::Rap),
            "it finds heavy hitters by precision and not by rap, which takes the smallest of all counts",
        ),
        (
            refused(|settings| settings.heavy.algorithm = Algorithm::HashPipe),
            "it finds heavy hitters by precision and not by hashpipe",
        ),
        (
            refused(|settings| settings.heavy.unit = CountUnit::Bytes),
            "it finds the flows with the most packets, not bytes",
        ),
        (
            refused(|settings| settings.spread = [VICTIMS; 2]),
            "it counts the distinct others of one key, 2 are wanted; leave one out",
        ),
        (
            refused(|settings| settings.spread[0] = VICTIMS.sized(4, 512, 64).unwrap()),
            "it has 3 rows for spread, 4 are wanted",
        ),
        (
            refused(|settings| {
                settings.spread[0] = spread::Settings { by: KeyKind::Src, ..VICTIMS };
            }),
            "it cannot count distinct others so; a key has at most one such other; count one that the key does not contain",
        ),
    ];
    for (message, expected) in cases {
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
    assert_eq!(
        (&capabilities.algorithms[..], &capabilities.units[..]),
        (&[Algorithm::Precision][..], &[CountUnit::Packets][..])
    );
    let wanted = settings(6);
    let mut tofino = crate::tofino::windows::connect_patiently(&lab.options(), wanted);
    tofino.install(&Tables::new(&wanted, SEED)).unwrap();
    lab.count(0..100);
    lab.assert_holds(&tofino.rotate().unwrap(), 0..100);
}
