//! Packet lengths: two counters per bucket; the bucket is looked up by longest prefix of the
//! length.

use super::{
    Array, DesiredState, Failure, Layout, MatchTable, ReadArrays, StatedSettings,
    SwitchMeasurement, TableContents, names,
};
use flowgauge_bfruntime::Match;
use flowgauge_core::sizes::{self, BUCKETS, Bucket, greatest, least};
use flowgauge_core::{MeasurementKind, Settings, WindowTotals};

const KIND: MeasurementKind = MeasurementKind::Sizes;
/// Counters, bank by bank.
const COUNTS: &str = "sizes.counts";
const COUNTERS: [&str; 2] = ["packets", "excess"];
/// Elements of a bank.
const PER_BANK: usize = BUCKETS.next_power_of_two();
/// Longest-prefix table from a length to its bucket.
const TABLE: &str = "sizes.buckets";
const LENGTH: &str = "length";
const LENGTH_BITS: u32 = 16;
const SET_BUCKET: &str = "set_bucket";
const BUCKET_BITS: u32 = PER_BANK.trailing_zeros();

pub(super) struct Sizes;

impl SwitchMeasurement for Sizes {
    fn kind(&self) -> (MeasurementKind, &'static str) {
        (KIND, "FLOWGAUGE_SIZES")
    }

    fn read(&self, _: &StatedSettings, settings: &mut Settings) -> Result<(), Failure> {
        settings.sizes = sizes::Settings::ON;
        Ok(())
    }

    fn layout(&self, _: &Settings) -> Layout {
        let parameters = vec![("bucket", BUCKET_BITS), ("beyond", LENGTH_BITS)];
        Layout {
            description: format!("{BUCKETS} buckets"),
            definitions: Vec::new(),
            arrays: vec![Array::new(COUNTS.to_owned(), PER_BANK, &COUNTERS)],
            rows: None,
            tables: vec![MatchTable::new(
                TABLE.to_owned(),
                vec![(LENGTH, LENGTH_BITS)],
                SET_BUCKET,
                parameters,
                filling,
            )],
        }
    }

    fn merge(&self, read: ReadArrays<'_>, bank: &mut WindowTotals) -> usize {
        for pipe in read.arrays.iter().flatten() {
            pipe.iter().enumerate().for_each(|(index, &[packets, excess])| {
                bank.sizes.add(index, Bucket { packets, excess })
            });
        }
        0
    }
}

fn filling(_: &DesiredState) -> TableContents {
    let beyond = |bucket: usize| greatest(bucket) - least(bucket);
    let data = |bucket: usize| {
        vec![names::bytes(bucket as u32, BUCKET_BITS), names::bytes(beyond(bucket), LENGTH_BITS)]
    };
    let entry = |bucket: usize| {
        let prefix_length = LENGTH_BITS - beyond(bucket).count_ones();
        (
            vec![(
                LENGTH,
                Match::Lpm { value: names::bytes(least(bucket), LENGTH_BITS), prefix_length },
            )],
            data(bucket),
        )
    };
    TableContents { entries: (0..BUCKETS).map(entry).collect(), default: Some(data(0)) }
}
