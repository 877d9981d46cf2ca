//! A distributed denial of service in the entropies of sources and destinations.
//!
//! Many sources send to one destination: the entropy of sources rises, or that of destinations falls. Both are compared with their
//! exponentially weighted moving average and mean deviation (Lapolli, Marques and Gaspary, *Offloading real-time DDoS attack detection to
//! programmable data planes*, 2019).
//!
//! As published the rule has a false alarm in about every thirty windows of steady traffic: 3.5 mean deviations are 2.8 standard
//! deviations, and a deviation averaged over some 25 windows is often too small by chance. So here a deviation is believed to be at least
//! what so many packets bring about by themselves; see [`Options::scatter`].
//!
//! Windows that are alarms teach nothing, as in the source. So a change that stays is an alarm for as long as it stays.

/// How fast averages follow, and how far off is too far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Weight of a new window in the averages, over 0 and up to 1.
    pub alpha: f64,
    /// Mean deviations off the average that are too many.
    pub k: f64,
    /// The least deviation that is believed, as a multiple of `log2 S / sqrt(12 S)`: the standard deviation of the entropy of S packets
    /// drawn from flows whose shares are spread evenly over all magnitudes, as those of Zipf's law are. 0 for the published rule.
    pub scatter: f64,
    /// Windows to learn from before the first alarm.
    pub training: u32,
}

impl Default for Options {
    /// Lapolli's weight and multiple.
    fn default() -> Self {
        Options { alpha: 0.078_125, k: 3.5, scatter: 1.5, training: 30 }
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

/// Watches two entropies, window after window.
#[derive(Clone, Debug, PartialEq)]
pub struct Alarm {
    options: Options,
    windows: u32,
    /// Of sources and destinations, from the first window on.
    usual: Option<[Usual; 2]>,
}

impl Alarm {
    /// Has seen nothing.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Alarm { options, windows: 0, usual: None }
    }

    /// What the entropies of sources and of destinations usually are.
    #[must_use]
    pub fn usual(&self) -> Option<[Usual; 2]> {
        self.usual
    }

    /// Whether a window of so many packets with these entropies, in bits, is an alarm. Windows that are do not change what is usual.
    pub fn raised(&mut self, packets: u64, sources: f64, destinations: f64) -> bool {
        if packets < 2 {
            return false;
        }
        let now = [sources, destinations];
        let Some(usual) = &mut self.usual else {
            self.usual = Some(now.map(|mean| Usual { mean, deviation: 0.0 }));
            self.windows = 1;
            return false;
        };
        let Options { alpha, k, scatter, training } = self.options;
        let packets = packets as f64;
        let least = scatter * packets.log2() / (12.0 * packets).sqrt();
        let margin = usual.map(|usual| k * usual.deviation.max(least));
        let raised = sources > usual[0].mean + margin[0] || destinations < usual[1].mean - margin[1];
        if raised && self.windows >= training {
            return true;
        }
        for (usual, now) in usual.iter_mut().zip(now) {
            usual.mean += alpha * (now - usual.mean);
            usual.deviation += alpha * ((now - usual.mean).abs() - usual.deviation);
        }
        self.windows = self.windows.saturating_add(1);
        false
    }
}
