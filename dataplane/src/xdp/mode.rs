//! Hooks of an interface.

/// Hook in which an interface runs the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel allocates anything.
    Native,
    /// In the kernel's generic path: available on every interface, at several times the cost.
    Skb,
    /// On the network card.
    Offload,
    /// On the TCX hook, after XDP: alongside any XDP program, on every interface since Linux 6.6.
    /// Packets merged by receive offload count as they were on the wire.
    Tcx,
    /// As a BPF classifier on the `clsact` queueing discipline: like the TCX hook, on any kernel.
    /// Programs on the TCX hook run first.
    Clsact,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 5] = [Mode::Native, Mode::Skb, Mode::Offload, Mode::Tcx, Mode::Clsact];

    /// Returns the name used in options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mode::Native => "native",
            Mode::Skb => "skb",
            Mode::Offload => "offload",
            Mode::Tcx => "tcx",
            Mode::Clsact => "clsact",
        }
    }

    /// Returns whether the mode is for XDP programs, which do not see departing packets.
    #[must_use]
    pub fn is_xdp(self) -> bool {
        matches!(self, Mode::Native | Mode::Skb | Mode::Offload)
    }

    /// Returns the location of counting, as part of a sentence.
    pub(super) fn location(self) -> &'static str {
        match self {
            Mode::Native => "in the driver (native XDP)",
            Mode::Skb => "in generic XDP (skb)",
            Mode::Offload => "on the card (offloaded XDP)",
            Mode::Tcx => "on the TCX hook",
            Mode::Clsact => "in a clsact classifier",
        }
    }
}
