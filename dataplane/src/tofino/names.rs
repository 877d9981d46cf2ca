//! Names in `p4/flowgauge.p4`. Names are looked up in the schema that the switch reports, where
//! prefixes may differ: a program that includes flowgauge contains it under its own names. The
//! names of a measurement are in its file.

use flowgauge_core::{KeyKind, MeasurementKind};

/// Table without a key whose default action selects the active bank.
pub(super) const BANK: &str = "flowgauge.bank";
pub(super) const SET_BANK: &str = "set_bank";
pub(super) const BANK_PARAMETER: &str = "bank";

/// Suffix of the full name of a register's only value.
pub(super) const REGISTER_VALUE: [&str; 1] = ["f1"];
pub(super) const REGISTER_INDEX: &str = "$REGISTER_INDEX";
/// Name of the parameter of a register's actions.
pub(super) const PARAMETER_VALUE: &str = "value";

/// Packets and bytes, indexed by bank and, in the lower three bits, class.
pub(super) const FRAMES: &str = "counters.frames";
pub(super) const COUNTER_INDEX: &str = "$COUNTER_INDEX";
pub(super) const PACKETS: &str = "$COUNTER_SPEC_PKTS";
pub(super) const BYTES: &str = "$COUNTER_SPEC_BYTES";
/// Number of classes per bank.
pub(super) const CLASSES: usize = 8;

/// Exact table from a frame's ingress port to its egress port.
pub(super) const FORWARD: &str = "forward.ports";
pub(super) const FORWARD_KEY: &str = "ingress_port";
pub(super) const SEND: &str = "send";
pub(super) const SEND_PARAMETER: &str = "port";
/// Bits of a port number.
pub(super) const PORT_BITS: u32 = 9;

/// Returns a flow key as part of a name.
pub(super) fn key(key: KeyKind) -> String {
    key.name().replace('-', "_")
}

/// Returns the name of a part of a measurement by a key.
pub(super) fn of(measurement: MeasurementKind, by: KeyKind, part: &str) -> String {
    by_key(measurement.name(), by, part)
}

/// Returns the name of a part of a control that exists for each key.
pub(super) fn by_key(control: &str, by: KeyKind, part: &str) -> String {
    format!("{control}_by_{}.{part}", key(by))
}

/// Encodes a value as big-endian bytes, as many as `bits` need.
pub(super) fn bytes(value: u32, bits: u32) -> Vec<u8> {
    value.to_be_bytes().into_iter().skip(4 - bits.div_ceil(8) as usize).collect()
}
