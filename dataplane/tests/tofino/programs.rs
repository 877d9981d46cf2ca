//! Programs that do not fit.

use crate::lab::{Lab, failure, options, settings};
use crate::memory::Memory;
use crate::switch::schema;
use flowgauge_bfruntime::server::Running;
use flowgauge_core::{HashMode, KeyKind};
use flowgauge_dataplane::tofino::Failure;
use flowgauge_dataplane::{Dataplane, Tofino};
use std::sync::Arc;

/// What is said of a switch whose schema was changed so.
fn refused(from: &str, to: &str) -> String {
    let settings = settings(6);
    let json = schema(&settings);
    assert!(json.contains(from), "{from}");
    let memory = Arc::new(Memory::new(&json.replace(from, to), 1));
    let running = Running::start(([127, 0, 0, 1], 0).into(), None, memory).unwrap();
    let failed = failure(Tofino::connect(options(running.address()), settings));
    assert!(!failed.is_transient(), "{failed}");
    failed.to_string()
}

#[test]
fn a_schema_that_lacks_something_is_refused_saying_what() {
    let cases = [
        (refused("flowgauge.bank", "flowgauge.tank"), "there is no table flowgauge.bank; there are: pipe.Ingress.flowgauge.tank, "),
        (refused("set_bank", "set_tank"), "there is no action set_bank"),
        (refused("\"bank\"", "\"tank\""), "there is no action parameter bank"),
        (refused("cardinality.rank", "cardinality.tank"), "there is no table cardinality.rank"),
        (refused("rank_bits", "tank_bits"), "there is no key field rank_bits"),
        (refused("\"width\": 26", "\"width\": 21"), "cardinality.rank is 21 bits wide and must be 26"),
        (
            refused("\"size\": 128", "\"size\": 100"),
            "cardinality.registers has 100 registers, which are not two banks of a power of two",
        ),
        (refused("\"size\": 16,", "\"size\": 2,"), "counters.frames is Counter of 2 and must be a counter of 16"),
        (
            refused(
                "registers.f1\", \"type\": {\"type\": \"bytes\", \"width\": 8",
                "registers.f1\", \"type\": {\"type\": \"bytes\", \"width\": 16",
            ),
            "cardinality.registers is Register of 16 bits and must be a register of 8 bits",
        ),
        (refused("$COUNTER_SPEC_PKTS", "$COUNTER_SPEC_PACKETS"), "there is no data field $COUNTER_SPEC_PKTS"),
        (refused("hash.tabulation2", "hash.tabulation9"), "there is no table hash.tabulation2"),
        (refused("hdr.ipv4.src_addr", "hdr.ipv4.ttl"), "hash.ipv4_crc.compute hashes hdr.ipv4.ttl, which is no flow key"),
        (refused("hdr.ipv4.src_addr", "hdr.ipv4.dst_addr"), "IPv4 flows are by dst, IPv6 flows by src"),
    ];
    for (message, expected) in cases {
        assert!(message.contains(expected), "{message}\nand not\n{expected}");
    }
}

#[test]
fn a_program_that_counts_otherwise_is_refused_saying_how_to_compile_it() {
    let lab = Lab::new(1);
    let mut settings = settings(11);
    settings.cardinality.key = KeyKind::FiveTuple;
    settings.cardinality.hash = HashMode::Crc32;
    let failed = failure(Tofino::connect(lab.options(), settings));
    assert_eq!(
        failed.to_string(),
        "the program does not fit: it has 64 registers, 2048 are wanted (-DFLOWGAUGE_PRECISION=11); its flows are by src, wanted by \
         five-tuple (-DFLOWGAUGE_KEY); its hash is tabulated, wanted crc32 (-DFLOWGAUGE_HASH); compile it so, or change the settings"
    );
}

#[test]
fn a_program_that_is_not_loaded_and_a_number_that_is_taken_are_told() {
    let lab = Lab::new(1);
    let mut other = lab.options();
    other.program = "other".to_owned();
    let failed = failure(Tofino::connect(other, lab.settings));
    assert!(!failed.is_transient());
    assert_eq!(failed.to_string(), "refused (NOT_FOUND): binding program other: there is no program other; flowgauge is loaded");
    let _first = crate::windows::connect_patiently(&lab.options(), lab.settings);
    let failed = failure(Tofino::connect(lab.options(), lab.settings));
    assert_eq!(failed.to_string(), "refused (ALREADY_EXISTS): subscribing: client 1 is subscribed already; take another number");
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
    assert_eq!((capabilities.backend, capabilities.atomic_snapshots, capabilities.staggered), ("tofino", false, false));
    assert_eq!(capabilities.interface, lab.proxy.address.to_string());
}

#[test]
fn certificates_that_are_none_are_refused() {
    let lab = Lab::new(1);
    let mut options = lab.options();
    let tls = flowgauge_dataplane::tofino::Tls { authority: "nonsense".to_owned(), identity: None, server_name: None };
    options.tls = Some(tls);
    let failed = failure(Tofino::connect(options, lab.settings));
    assert!(matches!(failed, Failure::Options { .. } | Failure::Unreachable { .. }), "{failed}");
}
