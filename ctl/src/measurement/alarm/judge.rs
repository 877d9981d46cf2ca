//! Detection of a distributed denial of service by the entropies of sources and destinations.
//!
//! In such an attack many sources send to one destination: the entropy of sources rises relative to
//! that of destinations. Lapolli, Marques and Gaspary (*Offloading real-time DDoS attack detection
//! to programmable data planes*, 2019) compare each entropy with its exponentially weighted moving
//! average and mean deviation, and raise an alarm if that of sources is too high or that of
//! destinations too low.
//!
//! That rule is for windows of a fixed number of packets in steady traffic. Windows of fixed
//! duration differ in their packets, and both entropies rise with the logarithm of the packets; a
//! download, or a pause of all other traffic, lowers that of destinations. Here one number is
//! compared instead, the *spread*: the entropy of sources minus that of destinations, divided by
//! the logarithm of the packets. It does not change if both entropies change alike, and hardly
//! depends on the number of packets. A flood that is a share p of S packets, each from a source of
//! its own to one destination, adds about `p (1 + log2 p / log2 S)` less p times the usual spread.
//!
//! A mean deviation averaged over some 25 windows is often too small by chance. The deviation is
//! therefore assumed to be at least what that number of packets causes by itself; see
//! [`Options::scatter`]. A flood of a tenth of the packets exceeds 3.5 of these from about 500
//! packets on, one of a quarter from about 70 on. Windows of fewer than [`Options::least`] packets
//! are not judged, and do not change the averages.
//!
//! Windows that raise the alarm do not change the averages either, as in the paper. A lasting
//! change therefore raises the alarm for as long as it lasts.

/// Parameters of the detection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Weight of a new window in the averages, over 0 and up to 1.
    pub alpha: f64,
    /// Number of mean deviations from the average that raises the alarm.
    pub k: f64,
    /// Minimum deviation of the spread, as a multiple of `1 / sqrt(6 S)`. The entropy of S packets
    /// drawn from flows whose shares are spread evenly over all magnitudes, as in Zipf's law, has
    /// the standard deviation `log2 S / sqrt(12 S)`; the difference of two has sqrt(2) times as
    /// much. 0 disables the minimum.
    pub scatter: f64,
    /// Windows to learn from before the first is judged.
    pub training: u32,
    /// Minimum number of packets for a window to be judged.
    pub least: u64,
}

impl Default for Options {
    /// Returns Lapolli's weight and multiple.
    fn default() -> Self {
        Options { alpha: 0.078_125, k: 3.5, scatter: 1.0, training: 30, least: 100 }
    }
}

/// Usual value of an entropy, in bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UsualEntropy {
    /// Moving average.
    pub mean: f64,
    /// Mean deviation from the average.
    pub deviation: f64,
}

impl UsualEntropy {
    fn learn(&mut self, alpha: f64, now: f64) {
        self.mean += alpha * (now - self.mean);
        self.deviation += alpha * ((now - self.mean).abs() - self.deviation);
    }
}

/// Verdict on a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not judged: fewer packets than the minimum.
    TooFewPackets,
    /// Not judged: the window was cut short, or the clock was set, so it is not comparable.
    Short,
    /// Not judged: the averages are still being learned.
    Learning,
    /// No alarm: the window is as usual.
    Quiet,
    /// An attack.
    Raised,
    /// An attack in the open window, reported by a dataplane that watches an entropy itself.
    Crossed,
}

impl Verdict {
    /// Returns whether the window was compared with the averages.
    #[must_use]
    pub fn judged(self) -> bool {
        matches!(self, Verdict::Quiet | Verdict::Raised | Verdict::Crossed)
    }

    /// Returns why a window was not compared, or that it is open.
    pub(crate) fn reason(self) -> Option<&'static str> {
        match self {
            Verdict::TooFewPackets => Some("too few packets"),
            Verdict::Short => Some("cut short"),
            Verdict::Learning => Some("learning"),
            Verdict::Crossed => Some("crossed"),
            Verdict::Quiet | Verdict::Raised => None,
        }
    }
}

/// Detector that watches two entropies over consecutive windows.
#[derive(Clone, Debug, PartialEq)]
pub struct ShiftDetector {
    options: Options,
    windows: u32,
    /// Averages over windows, from the first one on: of the entropies of sources and of
    /// destinations, of both relative to the logarithm of the packets, of the spread, and of the
    /// logarithm of the packets.
    usual: Option<[UsualEntropy; 6]>,
}

impl ShiftDetector {
    /// Creates a detector without history.
    #[must_use]
    pub fn new(options: Options) -> Self {
        ShiftDetector { options, windows: 0, usual: None }
    }

    /// Returns the parameters.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the usual entropies of sources and of destinations.
    #[must_use]
    pub fn usual(&self) -> Option<[UsualEntropy; 2]> {
        self.usual.map(|[sources, destinations, ..]| [sources, destinations])
    }

    /// Returns the usual ranges of the entropies of sources and of destinations, in bits, at any
    /// time of a window from `first` packets on; `None` while the averages are being learned.
    ///
    /// This is coarser than the judgement of a whole window: it looks at one entropy, of a part of
    /// the window. With more packets the entropy rises, and its share of their logarithm falls,
    /// because flows recur. So the minimum is the usual share of the logarithm of `first`, and the
    /// maximum that of the logarithm of the packets of a large window: twice the usual packets, or
    /// more if they usually deviate by more.
    #[must_use]
    pub fn bounds(&self, first: u64) -> Option<[(f64, f64); 2]> {
        let Options { k, scatter, training, .. } = self.options;
        let [_, _, of_sources, of_destinations, _, packets] =
            self.usual.filter(|_| self.windows >= training)?;
        let first = first.max(2) as f64;
        let most_packets = packets.mean + (k * packets.deviation).max(1.0);
        Some([of_sources, of_destinations].map(|share| {
            let margin = k * share.deviation.max(scatter / (12.0 * first).sqrt());
            (
                (share.mean - margin).max(0.0) * first.log2(),
                (share.mean + margin) * most_packets.max(first.log2()),
            )
        }))
    }

    /// Judges a window of `packets` packets with these entropies, in bits. Windows that are alarms
    /// do not change the averages.
    pub fn judge(&mut self, packets: u64, sources: f64, destinations: f64) -> Verdict {
        let Options { alpha, k, scatter, training, least } = self.options;
        // The logarithm of one packet is zero, and no divisor.
        if packets < least.max(2) {
            return Verdict::TooFewPackets;
        }
        let (count, packets) = (packets as f64, (packets as f64).log2());
        let shares = [sources / packets, destinations / packets];
        let spread = (sources - destinations) / packets;
        let now = [sources, destinations, shares[0], shares[1], spread, packets];
        let Some(usual) = &mut self.usual else {
            self.usual = Some(now.map(|mean| UsualEntropy { mean, deviation: 0.0 }));
            self.windows = 1;
            return Verdict::Learning;
        };
        let [.., usual_spread, _] = *usual;
        let margin = k * usual_spread.deviation.max(scatter / (6.0 * count).sqrt());
        let learned = self.windows >= training;
        if learned && spread > usual_spread.mean + margin {
            return Verdict::Raised;
        }
        usual.iter_mut().zip(now).for_each(|(usual, now)| usual.learn(alpha, now));
        self.windows = self.windows.saturating_add(1);
        if learned { Verdict::Quiet } else { Verdict::Learning }
    }
}
