//! Records of delay samples.

use super::{Options, direction, group_name};
use crate::text::optional;
use flowgauge_core::HashMode;
use flowgauge_core::delay::weights::WEIGHT_BITS;
use flowgauge_core::delay::{DelayKind, Settings};
use flowgauge_dataplane::{CountingPoint, DelaySample, Direction, Error, HashKey};
use serde::ser::{Serialize, SerializeMap, Serializer};
use siphasher::sip::SipHasher24;
use std::sync::Arc;

/// Record of a delay sample.
#[derive(Clone, Debug, PartialEq)]
pub struct DelaySampleRecord<'a> {
    /// Number of the window that it is counted in.
    pub window: u64,
    /// Interface that counted the answer, if there are several.
    pub interface: Option<&'a str>,
    /// Kind of the delay.
    pub kind: DelayKind,
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

/// Identifiers of the ends of a flow: their signatures or, if these would reveal the secret of the
/// hash, SipHash-2-4 of them under a random key of this run.
#[derive(Debug)]
pub struct EndIdentifiers(Option<HashKey>);

impl EndIdentifiers {
    /// Creates the identifiers for a run with this hash.
    ///
    /// # Errors
    /// If the system provides no random numbers.
    pub fn new(hash: HashMode) -> Result<Self, Error> {
        Ok(EndIdentifiers((hash == HashMode::Keyed).then(HashKey::random).transpose()?))
    }

    fn identifier(&self, signature: u32) -> u32 {
        let hash = |key: &HashKey| {
            let half = std::array::from_fn(|index| key.as_bytes()[index]);
            SipHasher24::new_with_key(&half).hash(&signature.to_le_bytes()) as u32
        };
        self.0.as_ref().map_or(signature, hash)
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
        places: &'a [CountingPoint],
        ends: &EndIdentifiers,
        sample: &DelaySample,
    ) -> Option<Self> {
        let (row, labels) = (usize::from(sample.row), settings.labels());
        let kind = settings.kinds.each().nth(row.checked_div(labels)?)?;
        let label = settings.labelled(row.checked_rem(labels)?);
        let (share, bits) = settings.admitted(sample.fridge.into());
        let is_one = places
            .iter()
            .all(|other| Some(&other.interface) == places.first().map(|first| &first.interface));
        let (source, destination) =
            (ends.identifier(sample.source), ends.identifier(sample.destination));
        Some(DelaySampleRecord {
            window,
            interface: places
                .get(sample.place as usize)
                .filter(|_| !is_one)
                .map(|place| place.interface.as_str()),
            kind,
            direction: direction(settings, kind, label.leaves),
            group: group_name(&options.groups, settings, label.group),
            time_ns: sample.at,
            delay_ns: u64::from(sample.delay) << kind.tick_bits(),
            weight: f64::from(sample.weight) / f64::from(1_u32 << WEIGHT_BITS)
                * 2_f64.powi(bits as i32)
                / f64::from(share),
            is_underweighted: sample.beyond != 0,
            // An edge of the spin bit and the edge before it have the same sender.
            flow: if kind == DelayKind::QuicSpin {
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

    fn line(settings: &Settings, places: &[CountingPoint], sample: DelaySample) -> String {
        serde_json::to_string(
            &DelaySampleRecord::of(
                7,
                settings,
                &Options::default(),
                places,
                &EndIdentifiers(None),
                &sample,
            )
            .unwrap(),
        )
        .unwrap()
    }

    #[test]
    fn ends_have_identifiers_of_the_run_instead_of_secret_signatures() {
        let ends = [(); 2].map(|()| EndIdentifiers::new(HashMode::Keyed).unwrap());
        // Pairs of 32-bit values are equal by chance once in 2^64.
        let [one, other] = ends.each_ref().map(|ends| [7, 8].map(|it| ends.identifier(it)));
        assert!(one != [7, 8] && one != other && one[0] != one[1]);
        assert_eq!([7, 8].map(|it| ends[0].identifier(it)), one);
        assert_eq!(EndIdentifiers::new(HashMode::Tabulated).unwrap().identifier(7), 7);
        // The key of the test vectors of SipHash's authors, and their output for 00 01 02 03.
        let known =
            EndIdentifiers(Some(HashKey::from_bytes(std::array::from_fn(|index| index as u8))));
        assert_eq!(known.identifier(0x0302_0100), 0x2771_87b7);
    }

    #[test]
    fn a_delay_is_told_with_its_kind_its_direction_and_what_it_stands_for() {
        let kinds = Kinds::NONE
            .with(DelayKind::TcpData)
            .with(DelayKind::TcpDuration)
            .with(DelayKind::Dns)
            .with(DelayKind::QuicSpin);
        let settings =
            Settings { kinds, directions: Directions::Apart, admit_log2: 3, ..Settings::DEFAULT };
        let both = |name: &str| {
            Direction::ALL.map(|direction| CountingPoint { interface: name.to_owned(), direction })
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
                &EndIdentifiers(None),
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
                &EndIdentifiers(None),
                &DelaySample { row: 8, ..sample }
            ),
            None
        );
    }
}
