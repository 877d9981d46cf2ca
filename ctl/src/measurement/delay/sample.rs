//! Records of delay samples.

use super::Options;
use crate::text::optional;
use flowgauge_core::HashMode;
use flowgauge_core::delay::weights::WEIGHT_BITS;
use flowgauge_core::delay::{Kind, Settings};
use flowgauge_dataplane::{DelaySample, Direction, Place};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// Record of a delay sample.
#[derive(Clone, Debug, PartialEq)]
pub struct DelaySampleRecord<'a> {
    /// Number of the window that it is counted in.
    pub window: u64,
    /// Interface that counted the answer, if there are several.
    pub interface: Option<&'a str>,
    /// Kind of the delay.
    pub kind: Kind,
    /// Direction of the request; `None` if directions are not distinguished.
    pub direction: Option<Direction>,
    /// Group of prefixes that answers, if there are groups.
    pub group: Option<Arc<str>>,
    /// Arrival of the answer, in nanoseconds since the Unix epoch.
    pub time_ns: u64,
    /// Delay, in nanoseconds.
    pub delay_ns: u64,
    /// Number of requests that it stands for, including those overwritten and those not admitted.
    pub weight: f64,
    /// Whether its true weight is larger than the largest available one.
    pub is_underweighted: bool,
    /// Identifiers of the ends: the requester, then the responder.
    pub flow: [u32; 2],
}

/// Identifiers of the ends of a flow: their hashes or, if these would reveal the secret of the
/// hash, a pseudorandom function of them (SipHash-1-3) with a random key of this run.
#[derive(Clone, Debug)]
pub struct Ends(Option<RandomState>);

impl Ends {
    /// Returns the identifiers for a run with this hash.
    #[must_use]
    pub fn new(hash: HashMode) -> Self {
        Ends((hash == HashMode::Keyed).then(RandomState::new))
    }

    fn told(&self, signature: u32) -> u32 {
        self.0.as_ref().map_or(signature, |key| key.hash_one(signature) as u32)
    }
}

impl<'a> DelaySampleRecord<'a> {
    /// Returns the record of a delay from a dataplane with these settings and places; `None` if the
    /// settings have no such kind.
    #[must_use]
    pub fn of(
        window: u64,
        settings: &Settings,
        options: &Options,
        places: &'a [Place],
        ends: &Ends,
        sample: &DelaySample,
    ) -> Option<Self> {
        let (row, labels) = (usize::from(sample.row), settings.labels());
        let kind = settings.kinds.each().nth(row.checked_div(labels)?)?;
        let label = settings.labelled(row.checked_rem(labels)?);
        let has_direction = settings.sides() > 1 && kind != Kind::TcpDuration;
        let (share, bits) = settings.admitted(sample.fridge.into());
        let is_one = places
            .iter()
            .all(|other| Some(&other.interface) == places.first().map(|first| &first.interface));
        let (source, destination) = (ends.told(sample.source), ends.told(sample.destination));
        Some(DelaySampleRecord {
            window,
            interface: places
                .get(sample.place as usize)
                .filter(|_| !is_one)
                .map(|place| place.interface.as_str()),
            kind,
            direction: has_direction.then_some(if label.leaves {
                Direction::Egress
            } else {
                Direction::Ingress
            }),
            group: options.group(settings, label.group),
            time_ns: sample.at,
            delay_ns: u64::from(sample.delay) << kind.tick_bits(),
            weight: f64::from(sample.weight) / f64::from(1_u32 << WEIGHT_BITS)
                * 2_f64.powi(bits as i32)
                / f64::from(share),
            is_underweighted: sample.beyond != 0,
            // An edge of the spin bit and the edge before it have the same sender.
            flow: if kind == Kind::QuicSpin {
                [source, destination]
            } else {
                [destination, source]
            },
        })
    }
}

impl Serialize for DelaySampleRecord<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let [from, to] = self.flow;
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("record", "delay-sample")?;
        line.serialize_entry("window", &self.window)?;
        optional(&mut line, "interface", self.interface)?;
        line.serialize_entry("kind", self.kind.name())?;
        optional(&mut line, "direction", self.direction.map(Direction::name))?;
        optional(&mut line, "group", self.group.as_deref())?;
        line.serialize_entry("time_ns", &self.time_ns)?;
        line.serialize_entry("delay_ns", &self.delay_ns)?;
        line.serialize_entry("weight", &self.weight)?;
        optional(&mut line, "underweighted", self.is_underweighted.then_some(true))?;
        line.serialize_entry("flow", &format!("{from:08x}{to:08x}"))?;
        line.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowgauge_core::delay::{Algorithm, Directions, Kinds};

    fn line(settings: &Settings, places: &[Place], sample: DelaySample) -> String {
        serde_json::to_string(
            &DelaySampleRecord::of(
                7,
                settings,
                &Options::default(),
                places,
                &Ends::new(HashMode::Tabulated),
                &sample,
            )
            .unwrap(),
        )
        .unwrap()
    }

    #[test]
    fn signatures_of_a_secret_hash_are_not_told() {
        let ends = [Ends::new(HashMode::Keyed), Ends::new(HashMode::Keyed)];
        assert!(
            ends.iter().all(|ends| ends.told(7) == ends.told(7) && ends.told(7) != ends.told(8))
        );
        // Two pairs of 32-bit values are equal by chance once in 2^64.
        assert!(
            [7, 8].map(|it| ends[0].told(it)) != [7, 8]
                && [7, 8].map(|it| ends[0].told(it)) != [7, 8].map(|it| ends[1].told(it))
        );
        assert_eq!(Ends::new(HashMode::Tabulated).told(7), 7);
    }

    #[test]
    fn a_delay_is_told_with_its_kind_its_direction_and_what_it_stands_for() {
        let kinds = Kinds::NONE
            .with(Kind::TcpData)
            .with(Kind::TcpDuration)
            .with(Kind::Dns)
            .with(Kind::QuicSpin);
        let settings =
            Settings { kinds, directions: Directions::Apart, admit_log2: 3, ..Settings::DEFAULT };
        let both = |name: &str| {
            Direction::ALL.map(|direction| Place { interface: name.to_owned(), direction })
        };
        let one = both("eth0");
        let two = [both("eth0"), both("eth1")].concat();
        let sample = DelaySample {
            at: 123,
            source: 0xa,
            destination: 0xb,
            delay: 2,
            weight: 6144,
            row: 5,
            ..DelaySample::EMPTY
        };
        let expected = r#"{"record":"delay-sample","window":7,"kind":"dns","direction":"egress","time_ns":123,"delay_ns":128,"weight":12.0,"flow":"0000000b0000000a"}"#;
        assert_eq!(line(&settings, &one, sample), expected);
        let expected = r#"{"record":"delay-sample","window":7,"interface":"eth1","kind":"quic-spin","direction":"ingress","time_ns":123,"delay_ns":128,"weight":12.0,"underweighted":true,"flow":"0000000a0000000b"}"#;
        assert_eq!(
            line(&settings, &two, DelaySample { place: 2, row: 6, beyond: 1, ..sample }),
            expected
        );
        // Connections have no direction, and a longer tick.
        let expected = r#"{"record":"delay-sample","window":7,"kind":"tcp-duration","time_ns":123,"delay_ns":8192,"weight":12.0,"flow":"0000000b0000000a"}"#;
        assert_eq!(line(&settings, &one, DelaySample { place: 1, row: 2, ..sample }), expected);
        // Each of several fridges admits a smaller share.
        let several = Settings { algorithm: Algorithm::MultiFridge, admit_log2: 0, ..settings };
        let weight = |fridge| {
            DelaySampleRecord::of(
                0,
                &several,
                &Options::default(),
                &one,
                &Ends::new(HashMode::Tabulated),
                &DelaySample { fridge, weight: 4096, ..sample },
            )
        };
        let weights: Vec<f64> = (0..4).map(|fridge| weight(fridge).unwrap().weight).collect();
        assert_eq!(weights, [4.0 / 3.0, 16.0 / 3.0, 64.0 / 3.0, 64.0]);
        assert_eq!(
            DelaySampleRecord::of(
                0,
                &settings,
                &Options::default(),
                &one,
                &Ends::new(HashMode::Tabulated),
                &DelaySample { row: 8, ..sample }
            ),
            None
        );
    }
}
