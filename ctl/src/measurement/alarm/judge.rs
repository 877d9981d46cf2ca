//! A distributed denial of service in the entropies of sources and destinations.
//!
//! Many sources send to one destination: the entropy of sources rises next to that of destinations. Lapolli, Marques and Gaspary
//! (*Offloading real-time DDoS attack detection to programmable data planes*, 2019) compare each entropy with its exponentially weighted moving
//! average and mean deviation, and raise the alarm if that of sources is too high or that of destinations too low.
//!
//! That rule is for windows of a fixed number of packets of steady traffic. Windows of a fixed time differ in their packets, and both
//! entropies rise with the logarithm of the packets; a download, or a pause of all other traffic, lowers that of destinations. So here one
//! number is compared, the *spread*: how much higher the entropy of sources is than that of destinations, as a share of the logarithm of
//! the packets. What changes both entropies alike does not change it, and the number of packets hardly. A flood that is a share p of S
//! packets, each from a source of its own to one destination, adds about `p (1 + log2 p / log2 S)` less p times the usual spread.
//!
//! A mean deviation that is averaged over some 25 windows is often too small by chance. So a deviation is believed to be at least what so many
//! packets bring about by themselves; see [`Options::scatter`]. A flood of a tenth of the packets exceeds 3.5 of these from about 500
//! packets on, one of a quarter from about 70 on. Windows of fewer than [`Options::least`] packets are not judged, and teach nothing.
//!
//! Windows that are alarms teach nothing either, as in the source. So a change that stays is an alarm for as long as it stays.

/// How fast averages follow, and how far off is too far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Weight of a new window in the averages, over 0 and up to 1.
    pub alpha: f64,
    /// Mean deviations off the average that are too many.
    pub k: f64,
    /// The least deviation of the spread that is believed, as a multiple of `1 / sqrt(6 S)`. The entropy of S packets drawn from flows
    /// whose shares are spread evenly over all magnitudes, as those of Zipf's law are, has the standard deviation `log2 S / sqrt(12 S)`; the
    /// difference of two has the root of 2 times as much. 0 for no least deviation.
    pub scatter: f64,
    /// Windows to learn from before the first is judged.
    pub training: u32,
    /// Packets that a window must have to be judged.
    pub least: u64,
}

impl Default for Options {
    /// Lapolli's weight and multiple.
    fn default() -> Self {
        Options { alpha: 0.078_125, k: 3.5, scatter: 1.0, training: 30, least: 100 }
    }
}

/// What an entropy usually is, in bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usual {
    /// Its moving average.
    pub mean: f64,
    /// Its mean deviation from that.
    pub deviation: f64,
}

impl Usual {
    fn learn(&mut self, alpha: f64, now: f64) {
        self.mean += alpha * (now - self.mean);
        self.deviation += alpha * ((now - self.mean).abs() - self.deviation);
    }
}

/// What is said about a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: it has fewer packets than the least.
    TooFewPackets,
    /// Nothing: it began later than it should, or the clock was set, and so it is like no other.
    Short,
    /// Nothing yet: what is usual is being learned.
    Learning,
    /// As usual.
    Quiet,
    /// An attack.
    Raised,
}

impl Verdict {
    /// Whether the window was compared with what is usual.
    #[must_use]
    pub fn judged(self) -> bool {
        matches!(self, Verdict::Quiet | Verdict::Raised)
    }
}

/// Watches two entropies, window after window.
#[derive(Clone, Debug, PartialEq)]
pub struct Judge {
    options: Options,
    windows: u32,
    /// Of sources and destinations, and of the spread, from the first window on.
    usual: Option<[Usual; 3]>,
}

impl Judge {
    /// Has seen nothing.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Judge { options, windows: 0, usual: None }
    }

    /// How it watches.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// What the entropies of sources and of destinations usually are.
    #[must_use]
    pub fn usual(&self) -> Option<[Usual; 2]> {
        self.usual.map(|[sources, destinations, _]| [sources, destinations])
    }

    /// Looks at a window of so many packets with these entropies, in bits. Windows that are alarms do not change what is usual.
    pub fn judge(&mut self, packets: u64, sources: f64, destinations: f64) -> Verdict {
        let Options { alpha, k, scatter, training, least } = self.options;
        // The logarithm of one packet is nothing to take a share of.
        if packets < least.max(2) {
            return Verdict::TooFewPackets;
        }
        let packets = packets as f64;
        let now = [sources, destinations, (sources - destinations) / packets.log2()];
        let Some(usual) = &mut self.usual else {
            self.usual = Some(now.map(|mean| Usual { mean, deviation: 0.0 }));
            self.windows = 1;
            return Verdict::Learning;
        };
        let [_, _, spread] = now;
        let [_, _, usually] = *usual;
        let margin = k * usually.deviation.max(scatter / (6.0 * packets).sqrt());
        let learned = self.windows >= training;
        if learned && spread > usually.mean + margin {
            return Verdict::Raised;
        }
        usual.iter_mut().zip(now).for_each(|(usual, now)| usual.learn(alpha, now));
        self.windows = self.windows.saturating_add(1);
        if learned { Verdict::Quiet } else { Verdict::Learning }
    }
}
