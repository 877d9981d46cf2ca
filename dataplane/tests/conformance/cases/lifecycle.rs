//! Life of a dataplane from its creation to its first packet.

use crate::conformance::backend::{Backend, Setup, assert_same, start};
use flowgauge_core::delay::prefixes::{Prefix, PrefixOwner};
use flowgauge_core::hash::Multilinear;
use flowgauge_core::{HashMode, Precision, Tabulation};
use flowgauge_dataplane::{Capabilities, Error, Event, HashKey, Tables};
use flowgauge_testing::definitions::Expected;
use flowgauge_testing::frames::random;

pub fn capabilities_make_sense(backend: &dyn Backend) {
    let Some(rig) = start(backend, &Setup::default()) else { return };
    let capabilities = rig.dataplane.capabilities();
    let Capabilities { backend, interface, precision, banks, workers, .. } = capabilities;
    let Capabilities { measurements, keys, hashes, places, .. } = capabilities;
    assert!(!backend.is_empty() && !interface.is_empty());
    assert!(!measurements.is_empty() && !keys.is_empty());
    assert!(!hashes.is_empty() && !places.is_empty());
    assert!(precision.contains(&Precision::default()), "the default must work everywhere");
    assert!(*banks >= 2 && *workers >= 1);
}

pub fn nothing_before_install(backend: &dyn Backend) {
    let setup = Setup::default();
    let Some(mut rig) = backend.open(&setup) else { return };
    let dataplane = &mut rig.dataplane;
    let refused = |result: Result<_, Error>| match result {
        Err(Error::NotStarted { target, .. }) => assert!(!target.is_empty()),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("an answer from a dataplane that has not started"),
    };
    for _ in 0..2 {
        refused(dataplane.sample());
        refused(dataplane.rotate());
    }
    assert_eq!(dataplane.events().unwrap_or_default(), []);
    assert_eq!(dataplane.losses().unwrap_or_default().total(), 0);
    // After calls that were too early, it counts like any other.
    dataplane.install(&setup.tables()).unwrap();
    let frames = backend.possible(random(3, 200));
    rig.feed(&frames[..]);
    rig.assert_window(&setup, &frames, "after calls before install");
}

/// Returns every way in which one table can be wrong.
fn wrong(tables: &Tables) -> Vec<(&'static str, Tables)> {
    let mut wrong = Vec::new();
    let mut change = |what, change: &dyn Fn(&mut Tables)| {
        let mut changed = tables.clone();
        change(&mut changed);
        wrong.push((what, changed));
    };
    for index in 0..tables.rank.len() {
        change("another level", &|tables| tables.rank[index].level += 1);
        change("another value", &|tables| tables.rank[index].value ^= 1 << 3);
        change("another prefix", &|tables| tables.rank[index].prefix_length -= 1);
        change("an entry missing", &|tables| _ = tables.rank.remove(index));
    }
    change("an entry twice", &|tables| tables.rank.push(tables.rank[0]));
    change("no entries", &|tables| tables.rank.clear());
    change("ranks of other registers", &|tables| {
        let mut other = Setup::default();
        other.settings.cardinality.precision = Precision::new(12).unwrap();
        tables.rank = other.tables().rank;
    });
    for index in 0..tables.admission.len() {
        change("another count", &|tables| tables.admission[index].count ^= 1);
        change("another mask of counts", &|tables| tables.admission[index].count_mask ^= 1 << 31);
        change("another coin", &|tables| tables.admission[index].coin_mask ^= 1);
        change("an admission missing", &|tables| _ = tables.admission.remove(index));
    }
    let prefix = Prefix::of([10, 0, 0, 0].into(), 8).unwrap();
    let owned = |group| PrefixOwner { prefix, group: Some(group), is_local: false };
    change("prefixes that settings say nothing of", &|tables| tables.prefixes = vec![owned(1)]);
    change("too many prefixes", &|tables| tables.prefixes = vec![owned(1); 1024]);
    change("another logarithm", &|tables| tables.logarithm[7].log2 += 1);
    change("another polynomial", &|tables| tables.hash.polynomial = 0x04c1_1db7);
    change("another hash", &|tables| {
        tables.hash.mode = match tables.hash.mode {
            HashMode::Crc32 => HashMode::Tabulated,
            HashMode::Tabulated | HashMode::Keyed => HashMode::Crc32,
        };
    });
    if tables.hash.mode == HashMode::Tabulated {
        change("words of another seed", &|tables| tables.hash.seed += 1);
        change("another word", &|tables| {
            let mut words = *tables.tabulation.tables();
            words[3][255] ^= 1;
            tables.tabulation = Tabulation::from_words(words, *tables.tabulation.rows()).into();
        });
    }
    if tables.hash.mode == HashMode::Keyed {
        change("another fingerprint", &|tables| tables.hash.fingerprint ^= 1);
        change("another key", &|tables| tables.key = Some(HashKey::from_seed(99)));
        change("no key", &|tables| tables.key = None);
        change("another multiplier", &|tables| {
            let mut words = tables.tabulation.multilinear().words();
            words[11] ^= 1;
            let tabulation = Tabulation::clone(&tables.tabulation);
            tables.tabulation = tabulation.with_multilinear(Multilinear::from_words(words)).into();
        });
    }
    wrong
}

pub fn wrong_tables_are_refused(backend: &dyn Backend) {
    for hash in HashMode::ALL {
        let setup = Setup::default().with_hash(hash);
        // Only to find out whether the backend supports this.
        if start(backend, &setup).is_none() {
            continue;
        }
        let Some(mut rig) = backend.open(&setup) else { return };
        for (what, tables) in wrong(&setup.tables()) {
            match rig.dataplane.install(&tables) {
                Err(error @ Error::Table { .. }) => assert!(!error.is_transient()),
                Err(error) => panic!("{what}: {error}"),
                Ok(_) => panic!("{what}: installed"),
            }
            let sample = rig.dataplane.sample();
            assert!(matches!(sample, Err(Error::NotStarted { .. })), "{what}: counts");
        }
        rig.dataplane.install(&setup.tables()).unwrap();
        assert_same(&rig.sample(), &Expected::nothing(setup.precision()), "after refused tables");
        let frames = backend.possible(random(4, 200));
        rig.feed(&frames[..]);
        rig.assert_window(&setup, &frames, "after refused tables");
    }
}

pub fn tables_are_installed_once(backend: &dyn Backend) {
    let setup = Setup::default();
    let Some(mut rig) = start(backend, &setup) else { return };
    let frames = backend.possible(random(5, 200));
    let (before, after) = frames.split_at(frames.len() / 2);
    rig.feed(before);
    for tables in [setup.tables(), Tables::new(&setup.settings, 99)] {
        assert!(matches!(rig.dataplane.install(&tables), Err(Error::AlreadyStarted { .. })));
    }
    rig.feed(after);
    rig.assert_window(&setup, &frames, "after a second install");
}

pub fn no_losses_at_first(backend: &dyn Backend) {
    let Some(mut rig) = start(backend, &Setup::default()) else { return };
    assert_eq!(rig.dataplane.losses().unwrap().total(), 0);
    rig.feed(backend.possible(random(6, 200)));
    rig.rotate();
    assert_eq!(rig.dataplane.losses().unwrap().iter().count(), 0);
    let events = rig.dataplane.events().unwrap();
    assert!(!events.contains(&Event::TrafficEnded), "the feeder is still there");
}
