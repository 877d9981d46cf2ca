//! What `p4/flowgauge.p4` calls things. Names are looked up in the schema that the switch reports,
//! where leading parts may differ: a program that includes flowgauge has it under names of its own.
//! What a measurement calls things is in its file.

use flowgauge_core::{KeyKind, MeasurementKind};

/// Table without a key whose default action says which bank counts.
pub(super) const BANK: &str = "flowgauge.bank";
pub(super) const SET_BANK: &str = "set_bank";
pub(super) const BANK_PARAMETER: &str = "bank";

/// Ends the full name of a register's only datum.
pub(super) const REGISTER_VALUE: [&str; 1] = ["f1"];
pub(super) const REGISTER_INDEX: &str = "$REGISTER_INDEX";
/// What the parameter of a register's actions is.
pub(super) const PARAMETER_VALUE: &str = "value";

/// Packets and bytes, indexed by bank and, in the lower three bits, class.
pub(super) const FRAMES: &str = "counters.frames";
pub(super) const COUNTER_INDEX: &str = "$COUNTER_INDEX";
pub(super) const PACKETS: &str = "$COUNTER_SPEC_PKTS";
pub(super) const BYTES: &str = "$COUNTER_SPEC_BYTES";
/// Classes that a bank has room for.
pub(super) const CLASSES: usize = 8;

/// Exact table from the port a frame came in at to the one it leaves at.
pub(super) const FORWARD: &str = "forward.ports";
pub(super) const FORWARD_KEY: &str = "ingress_port";
pub(super) const SEND: &str = "send";
pub(super) const SEND_PARAMETER: &str = "port";
/// Bits of a port number.
pub(super) const PORT_BITS: u32 = 9;

/// A flow key as part of a name.
pub(super) fn key(key: KeyKind) -> String {
    key.name().replace('-', "_")
}

/// A part of a measurement by a key.
pub(super) fn of(measurement: MeasurementKind, by: KeyKind, part: &str) -> String {
    by_key(measurement.name(), by, part)
}

/// A part of a control that there is for each key.
pub(super) fn by_key(control: &str, by: KeyKind, part: &str) -> String {
    format!("{control}_by_{}.{part}", key(by))
}

/// As many big-endian bytes as these bits take.
pub(super) fn bytes(value: u32, bits: u32) -> Vec<u8> {
    value.to_be_bytes().into_iter().skip(4 - bits.div_ceil(8) as usize).collect()
}
