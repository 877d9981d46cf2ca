//! Which switch, and how to treat it.

use std::time::Duration;

/// Which switch to use and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Host and port of the switch's BFRuntime server, such as `switch:50052` or
    /// `[2001:db8::1]:50052`.
    pub address: String,
    /// Name of the program to bind.
    pub program: String,
    /// Number of the device.
    pub device: u32,
    /// Number of this client; no two clients of a switch may have the same.
    pub client: u32,
    /// Encryption; without it everything goes in the clear, as `bf_switchd` serves it.
    pub tls: Option<Tls>,
    /// How long any call may take.
    pub deadline: Duration,
    /// How long [`install`](crate::Dataplane::install) tries again when the switch cannot be
    /// reached or is busy.
    pub patience: Duration,
    /// How long to wait before a lost switch is called again, at first; doubled with each failure,
    /// up to [`Options::LONGEST_BACK_OFF`].
    pub back_off: Duration,
    /// How long a packet may be in the ingress pipeline, from reading which bank counts to counting
    /// there. It is below a microsecond; the rest is for the write to reach all pipes.
    pub transit: Duration,
    /// Updates in one request.
    pub batch: usize,
    /// Ports to configure.
    pub ports: Vec<Port>,
    /// Pairs of ports, by their numbers within the device: what comes in at one leaves at the
    /// other, unchanged. Frames from all other ports are counted and dropped. Without any pair the
    /// switch keeps the forwarding that it has.
    pub forward: Vec<(u32, u32)>,
    /// Length of a slot of staggered registers, in nanoseconds: that which the
    /// [program](super::slot_bits) has.
    pub slot_ns: u64,
    /// Whether to be told when an entropy leaves its [bounds](crate::Dataplane::watch), if the
    /// program watches one.
    pub watches: bool,
}

/// What makes a connection secret and both ends sure of the other. All PEM.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Certificate of the authority that the switch's certificate comes from.
    pub authority: String,
    /// Certificate and key of this client, if the switch asks for one.
    pub identity: Option<(String, String)>,
    /// The name in the switch's certificate, if it is not the host's in [`Options::address`].
    pub server_name: Option<String>,
}

/// A port to configure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its number within the device (`D_P` in the switch's port list).
    pub dev_port: u32,
    /// Gigabits per second.
    pub speed: Speed,
    /// Forward error correction.
    pub fec: Fec,
    /// Whether it is to be up.
    pub enable: bool,
}

/// Speeds that ports have.
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

    /// The name used in options.
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

/// Forward error corrections that ports have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fec {
    /// None.
    #[default]
    None,
    /// Fire code.
    FireCode,
    /// Reed-Solomon.
    ReedSolomon,
}

impl Fec {
    /// All corrections.
    pub const ALL: [Fec; 3] = [Fec::None, Fec::FireCode, Fec::ReedSolomon];

    /// The name used in options.
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
    /// The longest wait between two attempts to reach a lost switch.
    pub const LONGEST_BACK_OFF: Duration = Duration::from_secs(5);

    /// The usual, for the switch at an address.
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
            slot_ns: 1 << super::SLOT_BITS,
            watches: false,
        }
    }
}
