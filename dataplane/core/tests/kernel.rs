//! Memory shared with the kernel: as many bytes as the settings use, without overlaps.

use flowgauge_core::delay::{self, Kinds};
use flowgauge_core::heavy::{self, Algorithm};
use flowgauge_core::kernel::{Core, Head, MemoryLayout, SharedBanks};
use flowgauge_core::sketch::{self, SketchKind};
use flowgauge_core::{
    BANKS, Grid, KeyKind, Precision, SPREADS, Settings, cardinality, membership, spread,
};

fn nothing() -> Settings {
    let mode = cardinality::Mode::Off;
    Settings::only(cardinality::Settings { mode, ..cardinality::Settings::DEFAULT })
}

/// Returns settings with each measurement alone, and with all of them.
fn each() -> Vec<Settings> {
    let (mode, key) = (SketchKind::CountSketch.into(), KeyKind::Src);
    let sketch = sketch::Settings { mode, key, shape: Grid::COUNTERS };
    let [mut entropy, mut frequency, mut filter, mut heavy, mut spread, mut delay, mut all] =
        [nothing(); 7];
    entropy.entropy[1] = sketch;
    frequency.frequency = sketch;
    filter.membership = membership::Settings { on: true, ..membership::Settings::DEFAULT };
    heavy.heavy = heavy::Settings { algorithm: Algorithm::DWayRap, ..heavy::Settings::DEFAULT };
    spread.spread[1] = spread::Settings { on: true, ..spread::Settings::DEFAULT };
    delay.delay = delay::Settings { kinds: Kinds::USUAL, ..delay::Settings::DEFAULT };
    all.cardinality.mode = cardinality::Mode::Staggered;
    (all.entropy, all.frequency, all.membership, all.heavy) =
        (entropy.entropy, sketch, filter.membership, heavy.heavy);
    all.spread = [spread.spread[1]; SPREADS];
    all.delay = delay.delay;
    let mut few = Settings::DEFAULT;
    few.cardinality.precision = Precision::MIN;
    vec![nothing(), Settings::DEFAULT, few, entropy, frequency, filter, heavy, spread, delay, all]
}

#[test]
fn distinct_flows_alone_take_two_banks_of_registers_and_counters() {
    let core = size_of::<Core>() + BANKS * (size_of::<Head>() + 2048);
    for cpus in [2, 128] {
        assert_eq!(MemoryLayout::memory(Some(&Settings::DEFAULT), cpus), cpus * core);
    }
    assert!(core <= 4552, "{core} bytes a CPU");
}

#[test]
fn what_is_off_takes_nothing() {
    let none = size_of::<Core>() + BANKS * size_of::<Head>();
    assert_eq!(MemoryLayout::memory(Some(&nothing()), 1), none);
    for settings in each() {
        let banked: usize = settings.used().into_iter().map(|used| used.own).sum();
        let persistent: usize = settings.used().into_iter().map(|used| used.persistent).sum();
        let shared = if settings.entropy[1].is_on() { size_of::<SharedBanks>() } else { 0 };
        let together: usize = settings.used().into_iter().map(|used| used.shared_persistent).sum();
        let expected = 3 * (none + BANKS * banked + persistent) + shared + together;
        assert_eq!(MemoryLayout::memory(Some(&settings), 3), expected, "{settings:?}");
        assert!(MemoryLayout::memory(Some(&settings), 3) <= MemoryLayout::memory(None, 3));
    }
}

#[test]
fn parts_are_aligned_and_do_not_overlap() {
    for settings in each() {
        let layout = MemoryLayout::of(&settings);
        let (mut own, mut persistent) =
            (MemoryLayout::FIRST, MemoryLayout::bank(0, 0) + BANKS * layout.bank as usize);
        for (index, used) in settings.used().into_iter().enumerate() {
            let sizes = [used.own, used.persistent];
            assert!(sizes.iter().all(|size| size.is_multiple_of(8)), "{settings:?}");
            let places = [layout.own[index], layout.persistent[index]].map(|at| at as usize);
            assert_eq!(places, [own, persistent], "{settings:?}");
            (own, persistent) = (own + used.own, persistent + used.persistent);
        }
        assert_eq!((layout.bank as usize, layout.core as usize), (own, persistent), "{settings:?}");
        let first = layout.own[0] as usize;
        assert_eq!(first, MemoryLayout::FIRST, "programs in the kernel rely on it");
    }
}
