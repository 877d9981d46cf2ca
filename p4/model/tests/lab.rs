//! A switch that runs flowgauge.p4, as read by the driver, and a core of a software dataplane that
//! sees the same packets.

use flowgauge_core::cardinality::Mode;
use flowgauge_core::delay::prefixes::PrefixOwner;
use flowgauge_core::delay::{Delay, DelaySample};
use flowgauge_core::reorder::{PrefixCounts, ReorderTotals};
use flowgauge_core::{
    Arrival, Context, Link, Settings, Shared, Sharing, State, WindowTotals, Zeroed,
};
use flowgauge_dataplane::tofino::{Options, definitions};
use flowgauge_dataplane::{Dataplane, Tables, Tofino};
use flowgauge_testing::model::ServedSwitch;

const SEED: u64 = 7;

pub struct Lab {
    pub settings: Settings,
    pub served: ServedSwitch,
    pub tofino: Tofino,
    pub state: Box<State>,
    pub shared: Box<Shared>,
    /// Bank of the open window.
    pub bank: usize,
    /// Length of a slot of staggered registers, in nanoseconds.
    pub slot_ns: u64,
    tables: Tables,
    packets: usize,
    /// Delays one by one, of the core's open window.
    samples: Vec<DelaySample>,
}

impl Lab {
    pub fn new(settings: Settings) -> Self {
        Lab::among(settings, &[])
    }

    /// Creates a lab whose addresses belong to these owners.
    pub fn among(settings: Settings, owned: &[PrefixOwner]) -> Self {
        let served = ServedSwitch::new(definitions(&settings).unwrap());
        let options = served.options();
        Lab::connected(settings, owned, served, options)
    }

    /// Creates a lab whose driver connects to a switch with these options.
    pub fn connected(
        settings: Settings,
        owned: &[PrefixOwner],
        served: ServedSwitch,
        options: Options,
    ) -> Self {
        let tables = Tables::new(&settings, SEED).with_prefixes(owned);
        let slot_ns = options.slot_ns;
        let mut tofino = Tofino::connect(options, settings).unwrap();
        tofino.install(&tables).unwrap();
        let (state, shared) = (State::boxed(), Shared::boxed());
        shared.persistent.prepare(&settings);
        shared.persistent.delay.ranges.write(owned);
        let (bank, packets, samples) = (0, 0, Vec::new());
        Lab { settings, served, tofino, state, shared, bank, slot_ns, tables, packets, samples }
    }

    /// Sends a packet. Flows and requests belong to one pipe, since cores share them; staggered
    /// registers belong to each.
    pub fn packet(&mut self, at: u64, frame: &[u8]) {
        if self.settings.cardinality.mode == Mode::Staggered {
            self.packets += 1;
        }
        let port = self.served.switch.port(self.packets);
        let mut entrance = self.served.switch.enter();
        entrance.set_clock(at);
        entrance.arrive(port, frame).unwrap();
        drop(entrance);
        let context = Context::new(self.settings, &self.tables.tabulation, Sharing::Alone)
            .with_slots(self.slot_ns);
        let active = &mut self.state.active(&self.shared, self.bank);
        active.record(&context, Link::Ethernet, frame, Arrival::new(frame.len() as u32, at));
        let (samples, pending) = (&mut self.samples, &mut active.persistent.delay);
        active.bank.delay.send_samples(pending, |sample| {
            samples.push(*sample);
            true
        });
    }

    /// Closes a window on both, compares their delays and reordering, and returns the counts.
    #[track_caller]
    pub fn rotate(&mut self) -> Box<WindowTotals> {
        let mut delays = if self.settings.delay.samples {
            self.tofino.delay_samples().unwrap()
        } else {
            Vec::new()
        };
        let snapshot = self.tofino.rotate().unwrap();
        delays.extend(snapshot.delay_samples);
        // The switch's clock says when; ours only how long ago.
        let untimed = |sample: &DelaySample| DelaySample { at: 0, ..*sample };
        let found: Vec<DelaySample> = delays.iter().map(untimed).collect();
        let expected: Vec<DelaySample> = self.samples.iter().map(untimed).collect();
        assert_eq!(found, expected);
        self.samples.clear();
        assert!(delays.windows(2).all(|pair| pair[0].at.abs_diff(pair[1].at) < 1_000_000_000_000));
        let mut expected = WindowTotals::boxed();
        expected.merge(&self.state.banks[self.bank], &self.settings);
        expected.merge_shared(&self.shared.banks[self.bank], &self.settings);
        assert_same_delays(&snapshot.bank.delay, &expected.delay, &self.settings);
        assert_same_reordering(&snapshot.bank.reorder, &expected.reorder, &self.settings);
        self.state = State::boxed();
        self.shared.banks[self.bank].clear(&self.settings);
        self.bank ^= 1;
        expected
    }
}

#[track_caller]
fn assert_same_delays(found: &Delay, expected: &Delay, settings: &Settings) {
    let settings = &settings.delay;
    assert_eq!(found.counts, expected.counts, "{settings:?}");
    for (index, (found, expected)) in found.histograms.iter().zip(&expected.histograms).enumerate()
    {
        for (number, (found, expected)) in
            found.buckets().iter().zip(expected.buckets()).enumerate()
        {
            assert_eq!(found, expected, "bucket {number} of histogram {index}, {settings:?}");
        }
    }
    assert!(found == expected, "{settings:?}");
}

#[track_caller]
fn assert_same_reordering(found: &ReorderTotals, expected: &ReorderTotals, settings: &Settings) {
    let settings = &settings.reorder;
    for (found, expected) in sorted(found).iter().zip(sorted(expected)) {
        assert_eq!(*found, expected, "{settings:?}");
    }
    let left_out = |totals: &ReorderTotals| (totals.unfollowed, totals.crowded);
    assert_eq!(left_out(found), left_out(expected), "{settings:?}");
    assert_eq!(expected.contended, 0);
    assert!(found == expected, "{settings:?}");
}

fn sorted(reorder: &ReorderTotals) -> Vec<PrefixCounts> {
    let mut prefixes: Vec<PrefixCounts> = reorder.prefixes().copied().collect();
    prefixes.sort_unstable_by_key(|prefix| prefix.prefix);
    prefixes
}
