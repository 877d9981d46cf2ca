//! Flows that have more packets, bytes or distinct others than usual, which name the victim of an
//! attack.
//!
//! The largest flows of a window are mostly those that are always large. Here a flow's count is
//! compared with its usual one: the mean over the windows from which the alarm learned, with the
//! alarm's weight for new windows. Windows in which a flow was not in the table of heavy hitters
//! count as zero, so that a new flow usually has none.

use super::judge::Verdict;
use crate::field::{Datum, object};
use crate::figure::RankingItem;
use crate::flow::{KeyText, plural};
use crate::measurement::ClosedBank;
use crate::measurement::heavy::estimate::{self, Flow};
use crate::measurement::spread::{self, Spread};
use crate::text::{counted, grouped};
use flowgauge_core::heavy::{Algorithm, CountUnit};
use flowgauge_core::spread::OtherKind;
use flowgauge_core::{FlowKey, KeyKind};
use std::collections::BTreeMap;

/// Maximum number of flows with a stored usual count. Beyond it those with the smallest are
/// forgotten, as if they had never been seen.
const MAX_FLOWS: usize = 8192;
/// Maximum number of flows named in an alarm.
const MAX_TALKERS: usize = 5;
/// Minimum rise of a named flow, as a share of the largest. Smaller ones are the usual variation.
const MIN_RISE: f64 = 0.1;

/// Flow that has more than usual.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Talker {
    /// Flow with its count in this window.
    pub flow: Flow,
    /// Usual count in a window.
    pub usual: f64,
}

/// Things that are counted of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedThings {
    /// Packets or bytes, by heavy hitters.
    Traffic(CountUnit),
    /// Distinct others, by spread.
    Others(OtherKind),
}

impl CountedThings {
    fn counted(self, count: u64) -> String {
        match self {
            CountedThings::Traffic(unit) => counted(count, unit.name().trim_end_matches('s')),
            CountedThings::Others(other) => counted(count, spread::other_name(other)),
        }
    }
}

/// Flows whose counts rose most in a window, the largest rise first; none in a window without an
/// alarm.
#[derive(Clone, Debug, PartialEq)]
pub struct Talkers {
    /// Key that defines a flow.
    pub key: KeyKind,
    /// Unit of the counts.
    pub things: CountedThings,
    /// At most five flows.
    pub flows: Vec<Talker>,
}

impl Talkers {
    fn name(&self, talker: &Talker) -> String {
        KeyText { kind: self.key, key: &talker.flow.key }.to_string()
    }

    /// Describes the flows for messages; `None` without any.
    pub(super) fn describe(&self) -> Option<String> {
        let what = match (self.things, self.key) {
            (CountedThings::Traffic(_), KeyKind::Src) => {
                "sources that send more than usual".to_owned()
            }
            (CountedThings::Traffic(_), KeyKind::Dst) => {
                "destinations that receive more than usual".to_owned()
            }
            (CountedThings::Traffic(_), KeyKind::SrcDst | KeyKind::FiveTuple) => {
                "flows that are larger than usual".to_owned()
            }
            (CountedThings::Others(other), key) => {
                format!("{} with more {}s than usual", plural(key), spread::other_name(other))
            }
        };
        let flow = |talker: &Talker| {
            let count = self.things.counted(talker.flow.count);
            format!("{} ({count}, usually {})", self.name(talker), grouped(rounded(talker.usual)))
        };
        let flows: Vec<String> = self.flows.iter().map(flow).collect();
        (!flows.is_empty()).then(|| format!("{what}: {}", flows.join(", ")))
    }

    /// Returns the flows as JSON, with the counts before and now.
    pub(super) fn json(&self) -> Datum {
        let flow = |talker: &Talker| {
            object([
                ("flow", self.name(talker).into()),
                ("usual", rounded(talker.usual).into()),
                ("count", talker.flow.count.into()),
            ])
        };
        let (name, things) = match self.things {
            CountedThings::Traffic(unit) => ("unit", unit.name()),
            CountedThings::Others(other) => ("of", other.name()),
        };
        object([
            ("key", self.key.name().into()),
            (name, things.into()),
            ("flows", Datum::Array(self.flows.iter().map(flow).collect())),
        ])
    }

    /// Returns the flows as items of a ranking.
    pub(super) fn items(&self) -> impl Iterator<Item = RankingItem> {
        self.flows.iter().map(|talker| RankingItem {
            name: self.name(talker),
            number: talker.flow.number(),
            more: format!("usually {}", grouped(rounded(talker.usual))),
        })
    }
}

fn rounded(usual: f64) -> u64 {
    usual.round() as u64
}

/// Usual counts of flows in a window.
#[derive(Debug)]
pub(super) struct UsualCounts {
    /// Weight of a new window.
    alpha: f64,
    /// Sum of the weights of all windows, below 1 while there are few.
    weight: f64,
    /// Weighted sums of the counts.
    sums: BTreeMap<FlowKey, f64>,
}

impl UsualCounts {
    pub(super) fn new(alpha: f64) -> Self {
        UsualCounts { alpha, weight: 0.0, sums: BTreeMap::new() }
    }

    /// Returns the flows of an attack that have more than usual, or learns from a window from which
    /// the averages learned too.
    pub(super) fn look(&mut self, verdict: Verdict, flows: &[Flow]) -> Vec<Talker> {
        match verdict {
            Verdict::Raised => return self.rank(flows),
            Verdict::Learning | Verdict::Quiet => self.add(flows),
            Verdict::TooFewPackets | Verdict::Short | Verdict::Crossed => {}
        }
        Vec::new()
    }

    /// Learns the counts of a window's flows.
    fn add(&mut self, flows: &[Flow]) {
        self.sums.values_mut().for_each(|sum| *sum *= 1.0 - self.alpha);
        for flow in flows {
            *self.sums.entry(flow.key).or_default() += self.alpha * flow.count as f64;
        }
        self.weight += self.alpha * (1.0 - self.weight);
        if self.sums.len() > MAX_FLOWS {
            let mut sums: Vec<(FlowKey, f64)> =
                std::mem::take(&mut self.sums).into_iter().collect();
            sums.sort_by(|(_, one), (_, other)| other.total_cmp(one));
            sums.truncate(MAX_FLOWS);
            self.sums = sums.into_iter().collect();
        }
    }

    fn usual(&self, key: &FlowKey) -> f64 {
        match self.sums.get(key) {
            Some(sum) if self.weight > 0.0 => sum / self.weight,
            _ => 0.0,
        }
    }

    /// Returns those of a window's flows that have more than usual.
    fn rank(&self, flows: &[Flow]) -> Vec<Talker> {
        let mut risen: Vec<(f64, Talker)> = flows
            .iter()
            .map(|flow| {
                let usual = self.usual(&flow.key);
                // Counts that a flow inherited from others are not a rise of its own.
                (flow.low as f64 - usual, Talker { flow: *flow, usual })
            })
            .filter(|(rise, _)| *rise >= 1.0)
            .collect();
        risen.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let least = risen.first().map_or(0.0, |(largest, _)| largest * MIN_RISE);
        risen
            .into_iter()
            .take_while(|(rise, _)| *rise >= least)
            .take(MAX_TALKERS)
            .map(|(_, talker)| talker)
            .collect()
    }
}

/// Returns all flows of a window's table.
pub(super) fn flows(counted: &ClosedBank) -> Vec<Flow> {
    let settings = &counted.settings.heavy;
    if settings.algorithm == Algorithm::Off {
        return Vec::new();
    }
    estimate::top(&counted.bank.heavy, settings, usize::MAX).flows
}

/// Returns the keys of a sketch that stand out from its noise, with whole numbers of others.
pub(super) fn spreaders(spread: &Spread) -> Vec<Flow> {
    let flow = |key: &spread::estimate::Spreader| {
        let high = key.others.high.ceil() as u64;
        Flow {
            key: key.key,
            count: key.others.value.round() as u64,
            low: key.others.low.floor() as u64,
            high,
            likely_high: Some(high),
            stands_out: true,
        }
    };
    spread.top.keys.iter().map(flow).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALPHA: f64 = 0.078_125;

    fn flow(address: u32, count: u64) -> Flow {
        let (key, likely_high) = (FlowKey::new(&address.to_be_bytes()), Some(count));
        Flow { key, count, low: count, high: count, likely_high, stands_out: true }
    }

    fn ranked(usual: &UsualCounts, flows: &[Flow]) -> Vec<(u64, u64)> {
        let talkers = usual.rank(flows).into_iter();
        talkers.map(|talker| (talker.flow.count, rounded(talker.usual))).collect()
    }

    #[test]
    fn flows_are_ranked_by_their_rise_and_not_by_their_size() {
        let mut usual = UsualCounts::new(ALPHA);
        (0..30).for_each(|_| usual.add(&[flow(1, 1000), flow(2, 210), flow(3, 10)]));
        // The first is the largest and hardly varies, the second sends less, the fourth is new.
        let now = [flow(1, 1002), flow(3, 400), flow(2, 142), flow(4, 200)];
        assert_eq!(ranked(&usual, &now), [(400, 10), (200, 0)]);
        let quiet = [flow(1, 990), flow(2, 142), flow(3, 10)];
        assert!(ranked(&usual, &quiet).is_empty());
    }

    #[test]
    fn a_usual_count_is_the_mean_from_the_first_window_on() {
        let mut usual = UsualCounts::new(ALPHA);
        let key = FlowKey::new(&1_u32.to_be_bytes());
        assert_eq!(usual.usual(&key).to_bits(), 0.0_f64.to_bits());
        usual.add(&[flow(1, 100)]);
        assert!((usual.usual(&key) - 100.0).abs() < 1e-9);
        // Windows without the flow count as zero.
        (0..40).for_each(|_| usual.add(&[flow(2, 5)]));
        assert!((0.1..5.0).contains(&usual.usual(&key)), "{}", usual.usual(&key));
    }

    #[test]
    fn what_a_flow_inherited_is_no_rise() {
        let usual = UsualCounts::new(ALPHA);
        let lucky = Flow { low: 1, ..flow(1, 300) };
        assert_eq!(ranked(&usual, &[lucky, flow(2, 200)]), [(200, 0)]);
    }

    #[test]
    fn at_most_five_flows_are_named() {
        let usual = UsualCounts::new(ALPHA);
        let now: Vec<Flow> = (0..20).map(|address| flow(address, 50)).collect();
        assert_eq!(ranked(&usual, &now), [(50, 0); MAX_TALKERS]);
    }

    #[test]
    fn the_smallest_usual_counts_are_forgotten() {
        let mut usual = UsualCounts::new(ALPHA);
        let all = MAX_FLOWS as u32 + 100;
        let flows: Vec<Flow> =
            (0..all).map(|address| flow(address, u64::from(address) + 1)).collect();
        usual.add(&flows);
        assert_eq!(usual.sums.len(), MAX_FLOWS);
        assert_eq!(rounded(usual.usual(&flow(0, 0).key)), 0);
        assert_eq!(rounded(usual.usual(&flow(all - 1, 0).key)), u64::from(all));
    }

    #[test]
    fn flows_are_described_by_what_their_key_means() {
        let flows = vec![Talker { flow: flow(0xc000_0201, 1400), usual: 12.4 }];
        let things = CountedThings::Traffic(CountUnit::Packets);
        let talkers = Talkers { key: KeyKind::Dst, things, flows };
        assert_eq!(
            talkers.describe().as_deref(),
            Some(
                "destinations that receive more than usual: 192.0.2.1 (1,400 packets, usually 12)"
            )
        );
        let contacted = Talkers { things: CountedThings::Others(OtherKind::Src), ..talkers };
        assert_eq!(
            contacted.describe().as_deref(),
            Some(
                "destinations with more sources than usual: 192.0.2.1 (1,400 sources, usually 12)"
            )
        );
        let none = Talkers { flows: Vec::new(), ..contacted };
        assert_eq!(none.describe(), None);
    }
}
