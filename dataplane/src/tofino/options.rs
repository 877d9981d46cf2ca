//! Options of the connection to a switch, and the slot lengths of staggered registers that a switch
//! can have.

use flowgauge_core::cardinality::Precision;
use std::time::Duration;

/// Address of a switch, and how to use it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Options {
    /// Host and port of the switch's BFRuntime server, such as `switch:50052` or
    /// `[2001:db8::1]:50052`.
    pub address: String,
    /// Name of the program to bind.
    pub program: String,
    /// Number of the device.
    pub device: u32,
    /// Number of this client, unique among the clients of a switch.
    pub client: u32,
    /// TLS; `None` for an unencrypted connection, as `bf_switchd` serves it.
    pub tls: Option<Tls>,
    /// Maximum duration of a call.
    pub deadline: Duration,
    /// Time for which [`install`](crate::Dataplane::install) retries when the switch is unreachable
    /// or busy.
    pub patience: Duration,
    /// Initial delay before a reconnection attempt; doubled with each failure, up to
    /// [`Options::LONGEST_BACK_OFF`].
    pub back_off: Duration,
    /// Maximum time of a packet in the ingress pipeline, from reading the active bank's number to
    /// counting. It is below a microsecond; the rest is for the write to reach all pipes.
    pub transit: Duration,
    /// Maximum updates per request.
    pub batch: usize,
    /// Ports to configure.
    pub ports: Vec<PortConfig>,
    /// Pairs of ports, by their numbers within the device: frames are forwarded unchanged between
    /// both. Frames from all other ports are counted and dropped. Without any pair the switch keeps
    /// its present forwarding.
    pub forward: Vec<(u32, u32)>,
    /// Length of a slot of staggered registers, in nanoseconds; must be that of the
    /// [program](slot_bits).
    pub slot_ns: u64,
    /// Whether to report when an entropy leaves its [usual range](crate::Dataplane::watch), if the
    /// program watches one.
    pub watches: bool,
}

/// TLS credentials, all in PEM.
#[derive(Clone, Debug, PartialEq)]
pub struct Tls {
    /// Certificate of the authority that signed the switch's certificate.
    pub authority: String,
    /// Certificate and key of this client, if the switch requires them.
    pub identity: Option<(String, String)>,
    /// Name in the switch's certificate, if it differs from the host in [`Options::address`].
    pub server_name: Option<String>,
}

/// Configuration of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Number within the device (`D_P` in the switch's port list).
    pub dev_port: u32,
    /// Speed.
    pub speed: Speed,
    /// Forward error correction.
    pub fec: Fec,
    /// Whether the port is enabled.
    pub enable: bool,
}

/// Port speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Speed {
    G1,
    G10,
    G25,
    G40,
    G50,
    G100,
    G200,
    G400,
}

impl Speed {
    /// All speeds.
    pub const ALL: [Speed; 8] = [
        Speed::G1,
        Speed::G10,
        Speed::G25,
        Speed::G40,
        Speed::G50,
        Speed::G100,
        Speed::G200,
        Speed::G400,
    ];

    /// Returns the name used in options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Speed::G1 => "1g",
            Speed::G10 => "10g",
            Speed::G25 => "25g",
            Speed::G40 => "40g",
            Speed::G50 => "50g",
            Speed::G100 => "100g",
            Speed::G200 => "200g",
            Speed::G400 => "400g",
        }
    }

    #[cfg(feature = "tofino")]
    pub(super) fn on_switch(self) -> String {
        format!("BF_SPEED_{}", self.name().to_uppercase())
    }
}

/// Forward error correction of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fec {
    /// No error correction.
    #[default]
    None,
    /// Fire code.
    FireCode,
    /// Reed-Solomon.
    ReedSolomon,
}

impl Fec {
    /// All variants.
    pub const ALL: [Fec; 3] = [Fec::None, Fec::FireCode, Fec::ReedSolomon];

    /// Returns the name used in options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Fec::None => "none",
            Fec::FireCode => "fc",
            Fec::ReedSolomon => "rs",
        }
    }

    #[cfg(feature = "tofino")]
    pub(super) fn on_switch(self) -> &'static str {
        match self {
            Fec::None => "BF_FEC_TYP_NONE",
            Fec::FireCode => "BF_FEC_TYP_FIRECODE",
            Fec::ReedSolomon => "BF_FEC_TYP_REED_SOLOMON",
        }
    }
}

impl Options {
    /// Maximum delay between two reconnection attempts.
    pub const LONGEST_BACK_OFF: Duration = Duration::from_secs(5);

    /// Creates default options for the switch at an address.
    #[must_use]
    pub fn new(address: impl Into<String>) -> Self {
        Options {
            address: address.into(),
            program: "flowgauge".to_owned(),
            device: 0,
            client: 1,
            tls: None,
            deadline: Duration::from_secs(2),
            patience: Duration::from_secs(10),
            back_off: Duration::from_millis(100),
            transit: Duration::from_millis(1),
            batch: 512,
            ports: Vec::new(),
            forward: Vec::new(),
            slot_ns: 1 << SLOT_BITS,
            watches: false,
        }
    }
}

/// Default slot length, as a power of two of nanoseconds.
pub const SLOT_BITS: u32 = 23;
/// Smallest slot length, as a power of two of nanoseconds.
const LEAST_SLOT_BITS: u32 = 10;
/// Longest round, with a slot for each register, as a power of two of nanoseconds: for longer ones
/// the clock has too few bits.
const MOST_ROUND_BITS: u32 = 44;

/// Returns the slot length as a power of two of nanoseconds; `None` if a switch cannot have such
/// slots.
#[must_use]
pub fn slot_bits(precision: Precision, slot_ns: u64) -> Option<u32> {
    (slot_ns.is_power_of_two() && slot_range(precision).contains(&slot_ns.trailing_zeros()))
        .then(|| slot_ns.trailing_zeros())
}

/// Returns the nearest slot length that a switch can have.
#[must_use]
pub fn nearest_slot(precision: Precision, slot_ns: u64) -> u64 {
    let range = slot_range(precision);
    let below = slot_ns.max(1).ilog2().clamp(*range.start(), *range.end());
    let above = (below + 1).min(*range.end());
    if slot_ns.abs_diff(1 << above) < slot_ns.abs_diff(1 << below) {
        1 << above
    } else {
        1 << below
    }
}

/// Returns the slot lengths that a switch can have, as powers of two of nanoseconds.
pub(super) fn slot_range(precision: Precision) -> std::ops::RangeInclusive<u32> {
    LEAST_SLOT_BITS..=MOST_ROUND_BITS - precision.bits()
}
