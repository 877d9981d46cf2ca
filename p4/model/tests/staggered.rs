//! Staggered registers in the model, as read by the driver, compared bit for bit with the code that
//! software dataplanes run.

use crate::lab::Lab;
use flowgauge_core::cardinality::{self, Mode};
use flowgauge_core::{HashMode, KeyKind, Precision, Settings};
use flowgauge_dataplane::tofino::{self, Failure, definitions};
use flowgauge_dataplane::{Dataplane, Error, Event, Snapshot, Tofino};
use flowgauge_p4_model::Model;
use flowgauge_testing::frames;
use flowgauge_testing::model::ServedSwitch;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::{Duration, Instant};

/// End of the chip's clock.
const CLOCK: u64 = 1 << 48;

fn settings(key: KeyKind, hash: HashMode, p: u8) -> Settings {
    let precision = Precision::new(p).unwrap();
    Settings::only(cardinality::Settings { mode: Mode::Staggered, key, precision }).with_hash(hash)
}

fn serve(settings: &Settings, slot_bits: u32) -> ServedSwitch {
    let macros = definitions(settings).unwrap();
    ServedSwitch::new(macros.into_iter().chain([("FLOWGAUGE_SLOT_BITS", slot_bits)]))
}

fn options(served: &ServedSwitch, slot_bits: u32) -> tofino::Options {
    let mut options = served.options();
    options.slot_ns = 1 << slot_bits;
    options
}

impl Lab {
    fn with_slots(settings: Settings, slot_bits: u32) -> Self {
        let served = serve(&settings, slot_bits);
        let options = options(&served, slot_bits);
        Lab::connected(settings, &[], served, options)
    }

    /// Returns the core's levels in the slot of this time.
    fn core_levels(&self, now: u64) -> Vec<u8> {
        let (precision, slot) = (self.settings.cardinality.precision, (now / self.slot_ns) as u32);
        self.state.persistent.cardinality.levels(precision, slot).collect()
    }

    /// Returns the levels of a snapshot in the slot of this time.
    fn levels(&self, snapshot: &Snapshot, now: u64) -> Vec<u8> {
        let (precision, slot) = (self.settings.cardinality.precision, (now / self.slot_ns) as u32);
        snapshot.persistent.as_ref().unwrap().cardinality.levels(precision, slot).collect()
    }

    /// Reads the switch's levels in the slot of this time.
    fn sample(&mut self, now: u64) -> Vec<u8> {
        let snapshot = self.tofino.sample().unwrap();
        self.levels(&snapshot, now)
    }

    /// Returns the events of the driver, which must be warnings.
    fn warnings(&mut self) -> Vec<String> {
        let warning = |event| match event {
            Event::Warning(warning) => warning,
            other => panic!("{other:?}"),
        };
        self.tofino.events().unwrap().into_iter().map(warning).collect()
    }

    /// Returns the rounds and levels in the switch, of all pipes.
    fn held(&self) -> Vec<[u64; 2]> {
        let key = self.settings.cardinality.key.name().replace('-', "_");
        let name = format!("pipe.Ingress.flowgauge.cardinality_by_{key}.staggered");
        let entrance = self.served.switch.enter();
        let field = |pipe, field| {
            let all = 0..self.settings.cardinality.precision.registers();
            entrance.model().register_range(&name, field, all, pipe).unwrap()
        };
        let of_pipe = |pipe| {
            field(pipe, 0).into_iter().zip(field(pipe, 1)).map(|(round, level)| [round, level])
        };
        (0..entrance.model().pipes()).flat_map(of_pipe).collect()
    }

    /// Reads the switch, and compares it with the core in the slot of this time.
    #[track_caller]
    fn compare(&mut self, now: u64) -> Snapshot {
        let snapshot = self.tofino.sample().unwrap();
        let settings = self.settings.cardinality;
        let found = snapshot.persistent.as_ref().unwrap().cardinality.words(settings.precision);
        let expected = self.state.persistent.cardinality.words(settings.precision);
        for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
            let what = format!("register {index} at {now}, slots of {} ns", self.slot_ns);
            assert_eq!(found, expected, "{what}, {settings:?}");
        }
        assert_eq!(self.levels(&snapshot, now), self.core_levels(now));
        snapshot
    }
}

/// Sends packets of recurring flows over some rounds, at odd times, with pauses longer than a
/// round.
fn follow(lab: &mut Lab, begin: u64, packets: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(begin ^ packets);
    let round = lab.slot_ns << lab.settings.cardinality.precision.bits();
    let mut at = begin;
    for number in 0..packets {
        at += match number % 61 {
            60 => round + round / 3,
            _ => rng.random_range(0..round / 16),
        };
        let frame = if number % 3 == 0 {
            frames::unique(rng.random_range(0..30))
        } else {
            frames::unique(number)
        };
        lab.packet(at, &frame.bytes);
        if number % 17 == 0 {
            lab.compare(at);
        }
    }
    lab.compare(at);
    lab.compare(at + round / 2);
}

#[test]
fn every_key_hash_and_precision() {
    for key in KeyKind::ALL {
        for hash in HashMode::PUBLIC {
            follow(&mut Lab::with_slots(settings(key, hash, 6), 20), 1_000_000_000_000, 120);
        }
    }
    let few = [(4, 10), (4, 40), (7, 15), (8, 16), (9, 17)];
    for (p, slot_bits) in few.into_iter().chain([(11, 23), (12, 24), (16, 12), (16, 28)]) {
        let settings = settings(KeyKind::Src, HashMode::Tabulated, p);
        follow(&mut Lab::with_slots(settings, slot_bits), 1_000_000_000_000, 70);
    }
}

/// Rounds before the start of the clock are those of its end.
#[test]
fn from_the_first_nanosecond_on() {
    for (p, slot_bits) in [(4, 12), (6, 20)] {
        let mut lab = Lab::with_slots(settings(KeyKind::Src, HashMode::Crc32, p), slot_bits);
        for number in 0..100 {
            let at = (number + 1) << (slot_bits - 2);
            lab.packet(at, &frames::unique(number).bytes);
            let what = format!("packet {number}, slots of 2^{slot_bits} ns");
            assert_eq!(lab.sample(at), lab.core_levels(at), "{what}");
        }
    }
}

/// Slots continue when the chip's clock wraps, and when the 32 bits of it that a switch stores
/// wrap.
#[test]
fn slots_go_on_when_clocks_wrap() {
    for (p, slot_bits, wraps) in [
        (4, 10, 1 << 42),
        (6, 14, 1 << 46),
        (6, 15, 1 << 47),
        (5, 16, CLOCK),
        (6, 17, CLOCK),
        (11, 23, CLOCK),
        (9, 35, CLOCK),
    ] {
        let round = 1_u64 << (slot_bits + u32::from(p));
        let settings = settings(KeyKind::Src, HashMode::Crc32, p);
        let begin = wraps - 3 * round - round / 3;
        follow(&mut Lab::with_slots(settings, slot_bits), begin, 200);
    }
}

/// A register that was not updated for a complete cycle of rounds contains the number of the
/// current one.
#[test]
fn what_was_idle_for_a_whole_cycle_does_not_look_fresh() {
    for (p, slot_bits, cycle) in [(4, 10, 1_u64 << 42), (6, 20, CLOCK), (11, 23, CLOCK)] {
        let mut lab = Lab::with_slots(settings(KeyKind::Src, HashMode::Tabulated, p), slot_bits);
        let begin = 3 << 36;
        let clock = frames::from_source([10, 0, 0, 1]);
        lab.packet(begin, &clock.bytes);
        let alone = lab.core_levels(begin);
        for number in 0..40 {
            lab.packet(begin, &frames::unique(number).bytes);
        }
        assert_ne!(lab.core_levels(begin), alone);
        lab.compare(begin);
        // Read several times in between. Packets of one flow, at both pipes, carry the time.
        for part in 1..=8 {
            let at = begin + cycle / 8 * part;
            for _ in 0..2 {
                lab.packet(at, &clock.bytes);
            }
            assert_eq!(lab.sample(at), alone, "part {part}, slots of 2^{slot_bits} ns");
        }
        // Nor a cycle later: an empty register stays empty, and one that gets a packet counts only
        // from then on.
        let registers = lab.settings.cardinality.precision.registers() as u64;
        let late = begin + cycle + (1 << slot_bits) * 2 * registers;
        lab.packet(late, &frames::unique(3).bytes);
        let found = lab.sample(late);
        let mut only = Lab::with_slots(lab.settings, slot_bits);
        only.packet(late, &frames::unique(3).bytes);
        assert_eq!(found, only.core_levels(late));
    }
}

/// Half a cycle of the chip's clock without a read: the round of a register may be that of the
/// previous cycle.
#[test]
fn what_was_not_read_for_half_a_cycle_begins_anew_and_that_is_told() {
    for (p, slot_bits, cycle) in [(4, 10, 1_u64 << 42), (6, 20, CLOCK), (11, 23, CLOCK)] {
        let mut lab =
            Lab::with_slots(settings(KeyKind::FiveTuple, HashMode::Tabulated, p), slot_bits);
        let begin = 3 << 36;
        for number in 0..60 {
            lab.packet(begin, &frames::unique(number).bytes);
        }
        lab.compare(begin);
        assert_eq!(lab.warnings(), [""; 0]);
        // Slightly less than half a cycle does not reset them, and a read restarts it. There were
        // no packets in between: the time is what has passed.
        let half = Duration::from_nanos(cycle / 2);
        let margin = Duration::from_secs(60);
        let mut last_read = Instant::now();
        for _ in 0..2 {
            lab.tofino.age(half - margin);
            last_read = Instant::now();
            let snapshot = lab.tofino.sample().unwrap();
            let levels = lab.levels(&snapshot, snapshot.slot_time.unwrap());
            assert!(levels.iter().all(|level| *level == 0));
            assert_eq!(lab.warnings(), [""; 0]);
            let has_any = lab.held().iter().any(|[_, level]| *level != 0);
            assert!(has_any, "the switch keeps what it has");
        }
        lab.tofino.age(half + margin);
        let snapshot = lab.tofino.sample().unwrap();
        let registers = &snapshot.persistent.as_ref().unwrap().cardinality;
        let mut words = registers.words(lab.settings.cardinality.precision).iter();
        assert!(words.all(|word| *word == 0));
        let reported = lab.warnings();
        // The time that this test took has passed as well.
        let rounded = |time: Duration| time.as_secs_f64().round() as u64;
        let seconds = rounded(half + margin)..=rounded(half + margin + last_read.elapsed());
        let is_expected = |warning: &String| {
            let cleared = "so their slots are ambiguous; they were cleared and count from now on";
            let expected = |seconds| format!("registers were not read for {seconds}s, {cleared}");
            seconds.clone().any(|seconds| warning.ends_with(&expected(seconds)))
        };
        let is_told = matches!(&reported[..], [warning] if is_expected(warning));
        assert!(is_told, "{reported:?}, {seconds:?}");
        assert!(lab.held().iter().all(|held| *held == [0, 0]), "they are empty on the switch too");
        // From then on it counts like a switch that has just started.
        let mut only = Lab::with_slots(lab.settings, slot_bits);
        let late = begin + cycle / 2 + cycle / 3;
        for number in 100..120 {
            lab.packet(late, &frames::unique(number).bytes);
            only.packet(late, &frames::unique(number).bytes);
        }
        let levels = lab.sample(late);
        assert_eq!(levels, only.sample(late));
        assert!(levels.iter().any(|level| *level != 0));
        assert_eq!(lab.warnings(), [""; 0]);
    }
}

/// Values are as of the last packet, or later if time has passed since.
#[test]
fn the_time_is_the_chips() {
    let mut lab = Lab::with_slots(settings(KeyKind::Src, HashMode::Crc32, 6), 26);
    assert!(lab.sample(0).iter().all(|level| *level == 0));
    // Later than any time that this test takes.
    let hour = 3_600_000_000_000;
    let begin = CLOCK - hour / 2;
    for number in 0..4 {
        let at = begin + number * hour;
        lab.packet(at, &frames::unique(number).bytes);
        let first = lab.compare(at).slot_time.unwrap();
        let is_near = first <= at && at - first < 1 << 16 || first - at < hour / 10;
        assert!(is_near, "{first} and not {at}");
        // Time passes during the read.
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(20) {
            lab.compare(at);
        }
        let second = lab.compare(at).slot_time.unwrap();
        assert!(second - first >= 19_000_000, "{first}, {second}");
        // A frame without a flow carries the time too.
        lab.packet(at + hour / 3, &[0; 60]);
        let third = lab.compare(at + hour / 3).slot_time.unwrap();
        assert!(third + (1 << 16) > at + hour / 3 && third < at + hour / 3 + hour / 10, "{third}");
    }
}

#[track_caller]
fn refused(result: Result<Tofino, Error>) -> String {
    match result {
        Err(Error::Switch { failure: failure @ Failure::Program { .. }, .. }) => {
            failure.to_string()
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it connected"),
    }
}

#[test]
fn what_a_program_has_not_is_refused_saying_how_to_compile_it() {
    let staggered = settings(KeyKind::Src, HashMode::Crc32, 6);
    let mut windowed = staggered;
    windowed.cardinality.mode = Mode::Windowed;
    let of_windows = serve(&windowed, 20);
    let served = serve(&staggered, 25);
    let mut other = options(&served, 25);
    other.slot_ns = 1_000_000_000;
    let cases = [
        (
            options(&of_windows, 20),
            staggered,
            "it measures cardinality by src, crc32, 64 registers, wanted by src, crc32, 64 registers, staggered \
             (-DFLOWGAUGE_CARDINALITY=2); compile it so, or change the settings",
        ),
        (
            options(&served, 25),
            windowed,
            "it measures cardinality by src, crc32, 64 registers, staggered, wanted by src, crc32, 64 registers \
             (-DFLOWGAUGE_CARDINALITY=1); compile it so, or change the settings",
        ),
        (
            options(&served, 26),
            staggered,
            "its registers cover 1.073741824s (-DFLOWGAUGE_SLOT_BITS=25), 2.147483648s is wanted; compile it with \
             -DFLOWGAUGE_SLOT_BITS=26, or use --staggered 1.073741824s",
        ),
        (
            other,
            staggered,
            "its registers cover 1.073741824s (-DFLOWGAUGE_SLOT_BITS=25), 32s is wanted; use --staggered 1.073741824s",
        ),
    ];
    for (options, settings, expected) in cases {
        let said = refused(Tofino::connect(options, settings));
        assert_eq!(said, format!("the program does not fit: {expected}"));
    }
    let capabilities =
        Tofino::connect(options(&served, 25), staggered).unwrap().capabilities().clone();
    assert!(capabilities.staggered);
}

#[test]
fn slots_are_powers_of_two() {
    let precision = |p| Precision::new(p).unwrap();
    let bits = |p, slot_ns| tofino::slot_bits(precision(p), slot_ns);
    assert_eq!((bits(11, 1 << 23), bits(11, 3 << 22), bits(11, 0)), (Some(23), None, None));
    let at_limits = [9, 10, 40, 41].map(|slot_bits| bits(4, 1 << slot_bits));
    assert_eq!(at_limits, [None, Some(10), Some(40), None]);
    assert_eq!((bits(16, 1 << 28), bits(16, 1 << 29)), (Some(28), None));
    let nearest = |p, slot_ns| tofino::nearest_slot(precision(p), slot_ns);
    let between = [(1 << 23) + 1, (1 << 24) - 1, 3 << 22].map(|slot_ns| nearest(11, slot_ns));
    assert_eq!(between, [1 << 23, 1 << 24, 1 << 23]);
    let beyond = [1, 0, u64::MAX].map(|slot_ns| nearest(11, slot_ns));
    assert_eq!((beyond, nearest(16, 1 << 60)), ([1 << 10, 1 << 10, 1 << 33], 1 << 28));
    let refused = [(11, 9), (16, 29), (4, 41)].map(|(p, slot_bits)| (p, slot_bits, true));
    let taken = [(16, 28), (4, 40), (4, 10)].map(|(p, slot_bits)| (p, slot_bits, false));
    for (p, slot_bits, is_refused) in refused.into_iter().chain(taken) {
        let options = flowgauge_p4_model::Options::default()
            .define("FLOWGAUGE_CARDINALITY", 2)
            .define("FLOWGAUGE_PRECISION", p)
            .define("FLOWGAUGE_SLOT_BITS", slot_bits);
        assert_eq!(Model::flowgauge(&options).is_err(), is_refused, "{p}, {slot_bits}");
    }
}
