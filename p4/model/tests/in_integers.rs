//! Entropy that a switch computes itself: after every packet it equals that of software for the
//! same window, and a switch reports a flood before the window ends. A second entropy is measured
//! as well.

use crate::common::OFF;
use flowgauge_bfruntime::server::{Query, Source, Target, Write};
use flowgauge_bfruntime::{Data, Entry, Pipes};
use flowgauge_core::entropy::in_integers;
use flowgauge_core::{Grid, KeyKind, Settings, SketchKind, sketch};
use flowgauge_dataplane::tofino::definitions;
use flowgauge_dataplane::{Dataplane, Tables, Tofino};
use flowgauge_p4_model::Model;
use flowgauge_testing::extent;
use flowgauge_testing::model::{ServedSwitch, serve};
use flowgauge_traffic::frame::{Ip, UDP, udp};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rbfrt::SwitchConnection;
use rbfrt::table::ToBytes;
use std::sync::Arc;

const MADE: &str = "pipe.Ingress.flowgauge.in_integers_by_dst";
/// Value for an entropy whose sum is beyond the logarithms.
const UNKNOWN: u32 = 1 << 30;

struct Lab {
    served: ServedSwitch,
    tofino: Tofino,
    bank: usize,
}

impl Lab {
    fn new(kind: SketchKind, alarm: u32) -> Self {
        let sketch = |key| sketch::Settings {
            mode: kind.into(),
            key,
            shape: Grid::of_counters(3, 256).unwrap(),
        };
        let settings = Settings { entropy: [KeyKind::Dst, KeyKind::Src].map(sketch), ..OFF };
        // The switch computes the entropy of destinations.
        let own = [
            ("FLOWGAUGE_ENTROPY_KEY", KeyKind::Dst as u32),
            ("FLOWGAUGE_ENTROPY_SECOND_KEY", KeyKind::Src as u32),
            ("FLOWGAUGE_ENTROPY_BITS", 1),
            ("FLOWGAUGE_ENTROPY_ALARM", alarm),
        ];
        let served = ServedSwitch::new(definitions(&settings).unwrap().into_iter().chain(own));
        let tofino = served.connect(settings, &Tables::new(&settings, 7));
        Lab { served, tofino, bank: 0 }
    }

    /// Sends packets to these destinations, all at one pipe.
    fn send(&self, destinations: impl IntoIterator<Item = u32>) {
        let mut entrance = self.served.switch.enter();
        for destination in destinations {
            let mut frame =
                Ip::new([10, 0, 0, 1], destination.to_be_bytes(), UDP).frame(&udp([0; 2], &[]));
            frame.resize(60, 0);
            entrance.arrive(self.served.switch.port(0), &frame).unwrap();
        }
    }

    /// Reads a value of the open window.
    fn read(&self, register: &str, field: &str) -> u32 {
        let name = format!("{MADE}.{register}");
        let entry = self.entry(&name);
        let name = format!("{}.{field}", name.strip_prefix("pipe.").unwrap());
        u32::from_be_bytes(entry.data.bytes(&name).unwrap().try_into().unwrap())
    }

    fn write(&self, register: &str, value: u32) {
        let name = format!("{MADE}.{register}");
        let entry = self.entry(&name);
        let field = format!("{}.f1", name.strip_prefix("pipe.").unwrap());
        let data = Data::fields([(&*field, value.to_be_bytes().to_vec())]);
        let write = Write::Modify(entry.place.key().unwrap().clone(), data);
        self.served.switch.write(&name, Pipes::All, &write).unwrap();
    }

    /// Reads an element of the open window.
    fn entry(&self, name: &str) -> Entry {
        let switch = &self.served.switch;
        let mut entries = switch.read(name, Pipes::One(0), &Query::All, Source::Hardware).unwrap();
        entries.swap_remove(self.bank)
    }

    fn set(&self, parameter: &str, value: u32) {
        let name = format!("{MADE}.{parameter}");
        let value = Write::SetDefault(Data::fields([("value", value.to_be_bytes().to_vec())]));
        self.served.switch.write(&name, Pipes::All, &value).unwrap();
    }

    fn entropy(&self) -> u32 {
        self.read("result", "entropy")
    }

    /// Closes the window and returns its packets, sum, and the entropy that the switch computed.
    fn rotate(&mut self) -> (u64, u64, u32) {
        let made = self.entropy();
        let snapshot = self.tofino.rotate().unwrap();
        self.bank ^= 1;
        (snapshot.bank.counters.packets(), snapshot.bank.entropy.sums[0].sum, made)
    }
}

/// Returns the destinations of a window: none, one, all different, evenly spread, skewed, or with a
/// flood.
fn traffic(random: &mut ChaCha8Rng, window: u32) -> Vec<u32> {
    let most = if window % 50 == 49 { 3000 } else { 120 };
    let packets = random.random_range(0..most);
    let flows = random.random_range(1..200_u32);
    let one = |number: u32| match window % 6 {
        0 => 7,
        1 => number,
        2 => number % flows,
        3 => random.random_range(0..flows).min(random.random_range(0..flows)),
        4 => (0..4).map(|_| random.random_range(0..flows)).min().unwrap_or(0),
        _ if number > packets / 2 => 7,
        _ => random.random_range(0..flows),
    };
    (0..packets).map(one).collect()
}

#[test]
fn windows_have_the_entropy_that_software_makes_of_them() {
    for (seed, kind) in (1..).zip(SketchKind::ALL) {
        let mut lab = Lab::new(kind, 0);
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut different = std::collections::BTreeSet::new();
        let windows = extent(100, 500);
        for window in 0..windows {
            let destinations = traffic(&mut random, window);
            let number = destinations.len() as u64;
            lab.send(destinations);
            let (packets, sum, made) = lab.rotate();
            assert_eq!(packets, number);
            let what = format!("{kind:?}, window {window}: {packets} packets, {sum}");
            assert_eq!(u64::from(made), in_integers(packets, sum), "{what}");
            different.insert(made);
        }
        assert!(different.len() * 5 > windows as usize * 2, "{}", different.len());
    }
}

/// Sums after very many packets: of every size, up to the last one with a logarithm.
#[test]
fn sums_of_any_size() {
    let mut lab = Lab::new(SketchKind::CountMin, 0);
    let mut random = ChaCha8Rng::seed_from_u64(3);
    for number in 0..extent(60, 300) {
        let bits = random.random_range(1..26_u32);
        let packets = random.random_range(1..1_u32 << bits);
        // Some are slightly less than the packets, and have the same logarithm.
        let share = if number % 4 == 0 { 999 } else { random.random_range(0..34_000_u64) };
        let whole = (u64::from(packets) * share / 1000) as u32;
        lab.write("packets", packets - 1);
        lab.write("whole", whole);
        // The first packet of a flow adds nothing.
        lab.send([0]);
        let expected = in_integers(packets.into(), u64::from(whole) << 10);
        assert_eq!(u64::from(lab.entropy()), expected, "{packets} packets, {whole}");
        lab.rotate();
    }
    // The sum saturates.
    let sums = [((1 << 31) - 1, 1, true), (1 << 31, 1, false), (u32::MAX, 3, false)];
    for (whole, packets, is_known) in sums {
        lab.write("packets", (1 << 26) - 1);
        lab.write("whole", whole);
        lab.send(vec![0; packets]);
        let expected = in_integers(1 << 26, u64::from(whole) << 10);
        let made = lab.entropy();
        let is_right = if is_known { u64::from(made) == expected } else { made >= UNKNOWN };
        assert!(is_right, "{whole}: {made}");
        lab.rotate();
    }
}

/// A flood reduces many destinations to few, or spreads few to many.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_is_told_before_the_window_ends() {
    // Normal windows have 6 bits.
    let (low, high, usual) = (3 << 10, 8 << 10, 64);
    for (is_low, flooded) in [(true, 1), (false, 4096)] {
        let mut lab =
            tokio::task::spawn_blocking(move || Lab::new(SketchKind::CountMin, 1)).await.unwrap();
        lab.set("lowest", low);
        lab.set("highest", high);
        // Second server for the same switch, for a client that waits for alarms.
        let watched = serve(Arc::clone(&lab.served.switch) as Arc<dyn Target>);
        let address = watched.address();
        let connection = SwitchConnection::builder(&address.ip().to_string(), address.port());
        let watcher = connection.client_id(1).p4_name("flowgauge").connect().await.unwrap();
        // Few packets have a low entropy in any case; the switch checks it from 1,024 on. A normal
        // window is not reported.
        lab.send((0..3000).map(|number| number % usual));
        assert_eq!(lab.read("result", "reported"), 0);
        let mut lab = tokio::task::spawn_blocking(move || {
            lab.rotate();
            lab
        })
        .await
        .unwrap();
        lab.send((0..2000).map(|number| number % usual));
        assert_eq!(lab.read("result", "reported"), 0);
        lab.send((0..8000).map(|number| 1000 + number % flooded));
        let queue = watcher.digest_queue.clone();
        let digest = tokio::task::spawn_blocking(move || queue.recv().unwrap()).await.unwrap();
        assert_eq!(digest.name, "pipe.IngressDeparser.entropy_alarms");
        assert_eq!(digest.data["bank"].to_u32(), 1);
        // The flood continues, and is reported once. The register has the value.
        let entropy = lab.entropy();
        assert!(if is_low { entropy < low } else { entropy > high }, "{entropy}");
        assert_eq!(lab.read("result", "reported"), 1);
        assert!(watcher.digest_queue.is_empty());
        let (all, sum, made) = tokio::task::spawn_blocking(move || lab.rotate()).await.unwrap();
        assert_eq!((all, u64::from(made)), (10_000, in_integers(all, sum)));
    }
}

/// Constants are slightly inexact, so that an entropy of about zero may be negative. It counts as
/// zero: too low for any higher threshold, and never too high.
#[test]
fn a_negative_entropy_is_zero_whichever_threshold_it_is_compared_with() {
    let mut lab = Lab::new(SketchKind::CountMin, 1);
    // Packets with an even number are compared with the lowest threshold, the others with the
    // highest. Fewer than 1,024 are not compared.
    let cases = [(4096, 0, 0), (4096, 1, 1), (4097, 1, 0), (4097, 0, 0), (1022, 1, 0)];
    for (packets, lowest, is_told) in cases {
        lab.set("lowest", lowest);
        lab.set("highest", 0);
        lab.write("packets", packets - 1);
        lab.write("whole", 14 * packets);
        assert_eq!(in_integers(packets.into(), u64::from(14 * packets) << 10), 0);
        lab.send([0]);
        let found = (lab.entropy(), lab.read("result", "reported"));
        assert_eq!(found, (0, is_told), "{packets} packets, lowest {lowest}");
        lab.rotate();
    }
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    for (definitions, problem) in [
        (&[("FLOWGAUGE_ENTROPY_BITS", 1)][..], "needs FLOWGAUGE_ENTROPY"),
        (&[("FLOWGAUGE_ENTROPY", 1), ("FLOWGAUGE_ENTROPY_BITS", 2)], "neither 0 nor 1"),
        (
            &[("FLOWGAUGE_ENTROPY", 1), ("FLOWGAUGE_ENTROPY_ALARM", 1)],
            "needs FLOWGAUGE_ENTROPY_BITS",
        ),
        (&[("FLOWGAUGE_ENTROPY_ALARM", 2)], "neither 0 nor 1"),
        (&[("FLOWGAUGE_ENTROPY_SECOND", 2)], "neither 0 nor 1"),
        (&[("FLOWGAUGE_ENTROPY_SECOND", 1)], "needs FLOWGAUGE_ENTROPY"),
        (
            &[
                ("FLOWGAUGE_ENTROPY", 1),
                ("FLOWGAUGE_ENTROPY_KEY", 1),
                ("FLOWGAUGE_ENTROPY_SECOND", 1),
            ],
            "FLOWGAUGE_ENTROPY_SECOND_KEY is FLOWGAUGE_ENTROPY_KEY",
        ),
    ] {
        let options = definitions
            .iter()
            .fold(flowgauge_p4_model::Options::default(), |options, (name, value)| {
                options.define(name, *value)
            });
        let error = Model::flowgauge(&options).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
}
