//! Distribution of packet lengths.

pub mod estimate;

use super::exact_value::note;
use super::laws::{self, MAX_BYTES, MAX_COUNT, RowTotals, require};
use super::sketched::FULL;
use super::{ClosedBank, Damaged, Estimation, Measurement, Number, ReportInput};
use crate::field::{Datum, Fields, object};
use crate::figure::{self, KnownFigure, Unit};
use crate::row::{Cells, Row, RowDefect, TableBuilder, int};
use crate::text::{self, IndentedLines, counted, grouped};
use estimate::{LengthDistribution, LengthRange, LengthTruth, MEDIAN, P95, PERCENT, Quantile};
use flowgauge_core::measurement::Toggle;
use flowgauge_core::{Settings, WindowTotals, sizes};

/// No options.
pub type Options = ();

/// Packet lengths, from the network headers.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// Distribution of lengths; `None` if no packet has a length.
    pub lengths: Option<LengthDistribution>,
    /// Packets whose header contains no length.
    pub unknown: u64,
    /// Counters that are full and count no further.
    pub full_counters: u64,
    /// Exact quantiles, if each length was counted.
    pub truth: Option<LengthTruth>,
}

/// Columns of the chart's longest bar.
const BAR: usize = 40;
/// Levels of bars in charts of one line, from empty to full.
const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Maximum number of full counters: two in each bucket, of up to 1,024 cores.
const MAX_FULL: u64 = 2 * sizes::BUCKETS as u64 * 1024;

/// Buckets of a lake row.
struct StoredLengths {
    full: u64,
    /// Index, packets and excess of each bucket that is not empty, in order.
    buckets: Vec<(usize, u64, u64)>,
}

impl StoredLengths {
    /// Returns the buckets of a row; `None` if it has none.
    fn of(row: &Row) -> Result<Option<Self>, RowDefect> {
        if row.maybe_number("lengths_full").is_none() {
            return Ok(None);
        }
        let table = row.table("lengths")?;
        let (lows, highs) = (table.ints("low")?, table.ints("high")?);
        let (packets, excess) = (table.ints("packets")?, table.ints("excess")?);
        require(lows.is_sorted_by(|low, next| low < next), || {
            "column lengths.low is not in order".to_owned()
        })?;
        laws::sum("lengths.packets", packets, MAX_COUNT)?;
        laws::sum("lengths.excess", excess, MAX_BYTES)?;
        let mut buckets = Vec::with_capacity(lows.len());
        for (((low, high), packets), excess) in lows.iter().zip(highs).zip(packets).zip(excess) {
            let index = u32::try_from(*low).ok().map(sizes::bucket).filter(|index| {
                (i64::from(sizes::least(*index)), i64::from(sizes::greatest(*index)))
                    == (*low, *high)
            });
            let index = index.ok_or_else(|| {
                format!(
                    "column lengths has a bucket from {low} to {high} bytes, which does not exist"
                )
            })?;
            buckets.push((index, packets.unsigned_abs(), excess.unsigned_abs()));
        }
        Ok(Some(StoredLengths { full: row.number("lengths_full")?, buckets }))
    }
}

impl Measurement for Sizes {
    /// Sum of all excess bytes.
    type UnionState = u64;

    fn of(reading: &ReportInput<'_>) -> Result<Option<Self>, Damaged> {
        let counts = &reading.bank.sizes;
        let truth = || estimate::exact(&reading.snapshot?.exact.as_ref()?.sizes);
        Ok(reading.settings.sizes.on.then(|| Sizes {
            lengths: estimate::estimate(counts),
            unknown: counts.packets.first().copied().unwrap_or(0),
            full_counters: counts.full,
            truth: truth(),
        }))
    }

    fn fields(report: Option<&Self>, _: Option<&ClosedBank>, to: &mut Fields) {
        let lengths = report.and_then(|it| it.lengths.as_ref());
        let p50 = lengths.map(|it| it.by_packets[MEDIAN]);
        to.column(lengths.map(|it| it.mean.value)).csv(70, "length_mean_bytes").lake("length_mean");
        to.column(p50.map(|it| it.value)).csv(71, "length_p50_bytes").lake("length_p50");
        to.column(p50.map(|it| it.low)).csv(72, "length_p50_low_bytes");
        to.column(p50.map(|it| it.high)).csv(73, "length_p50_high_bytes");
        to.column(lengths.map(|it| it.by_bytes[MEDIAN].value)).csv(74, "length_by_bytes_p50_bytes");
        let Some(it) = report else { return };
        to.field("packets", lengths.map_or(0, |it| it.packets));
        to.field("bytes", lengths.map_or(0, |it| it.bytes));
        to.field("without_length", it.unknown);
        to.field("full_counters", it.is_full().then_some(it.full_counters));
        if let Some(lengths) = lengths {
            let bucket = |&LengthRange { low, high, packets, bytes }: &LengthRange| {
                Datum::Array(vec![low.into(), high.into(), packets.into(), bytes.into()])
            };
            to.field("mean", lengths.mean);
            to.field("by_packets", by_percentile(&lengths.by_packets));
            to.field("by_bytes", by_percentile(&lengths.by_bytes));
            // Minimum and maximum length, packets, bytes.
            to.field("buckets", Datum::Array(lengths.buckets.iter().map(bucket).collect()));
            draw(lengths, to);
        }
        if let Some(truth) = &it.truth {
            to.field("truth_by_packets", by_percentile(&truth.by_packets));
            to.field("truth_by_bytes", by_percentile(&truth.by_bytes));
        }
    }

    fn summary(&self, _: bool, below: &mut IndentedLines<'_>) {
        let Some(lengths) = &self.lengths else { return };
        let ranges = doublings(&lengths.buckets);
        let most = ranges.iter().map(|range| range.packets).max().unwrap_or(1).max(1);
        let rows = ranges.iter().map(|range| {
            let share = range.packets as f64 / lengths.packets as f64 * 100.0;
            let bar = (range.packets as f64 / most as f64 * BAR as f64).round() as usize;
            let name =
                format!("{} … {} bytes", grouped(range.low.into()), grouped(range.high.into()));
            let (value, share) = (counted(range.packets, "packet"), format!("{share:.1} %"));
            text::DetailRow {
                name,
                value,
                share,
                interval: "▇".repeat(bar),
                ..text::DetailRow::default()
            }
        });
        below.rows(&rows.collect::<Vec<_>>());
    }

    fn lines(&self, below: &mut IndentedLines<'_>) {
        let Some(lengths) = &self.lengths else { return };
        let (of_packets, of_bytes) = (
            self.truth.as_ref().map(|it| &it.by_packets),
            self.truth.as_ref().map(|it| &it.by_bytes),
        );
        let row = |name: &str,
                   quantiles: &[Quantile; PERCENT.len()],
                   truths: Option<&[u32; PERCENT.len()]>,
                   index: usize| {
            let Quantile { value, low, high } = quantiles[index];
            let truth = truths.map(|truths| truths[index]);
            text::DetailRow {
                name: format!("packet length {name}"),
                value: format!("{} bytes", grouped(value.round() as u64)),
                interval: if low == high {
                    String::new()
                } else {
                    format!("({} … {})", grouped(low.into()), grouped(high.into()))
                },
                notes: truth.map(|truth| note(truth.into())).into_iter().collect(),
                ..text::DetailRow::default()
            }
        };
        let mut notes = vec![line_chart(&doublings(&lengths.buckets))];
        notes.extend(
            (self.unknown > 0)
                .then(|| format!("{} without a length", counted(self.unknown, "packet"))),
        );
        notes.extend(self.is_full().then(|| FULL.to_owned()));
        let (name, value) =
            ("packet length mean".to_owned(), format!("{:.1} bytes", lengths.mean.value));
        below.rows(&[
            text::DetailRow { name, value, notes, ..text::DetailRow::default() },
            row("p50", &lengths.by_packets, of_packets, MEDIAN),
            row("p95", &lengths.by_packets, of_packets, P95),
            row("p50 of bytes", &lengths.by_bytes, of_bytes, MEDIAN),
        ]);
    }

    fn known(settings: &Settings, _: &Estimation) -> Vec<KnownFigure> {
        if !settings.sizes.on {
            return Vec::new();
        }
        let percentiles = PERCENT.map(|percent| percent.to_string());
        vec![
            KnownFigure::new("mean_packet_length", Unit::Bytes),
            KnownFigure::new("packet_length", Unit::Bytes).label("percentile", percentiles),
        ]
    }

    fn store(&self, counted: &ClosedBank, row: &mut Row) {
        let sizes = &counted.bank.sizes;
        row.int("lengths_full", sizes.full);
        let used: Vec<(usize, u64, u64)> = std::iter::zip(&sizes.packets, &sizes.excess)
            .enumerate()
            .filter(|(_, (packets, excess))| *packets | *excess > 0)
            .map(|(index, (packets, excess))| (index, *packets, *excess))
            .collect();
        let table = TableBuilder::new(&used)
            .add("low", Cells::Int, |(index, ..)| sizes::least(*index).into())
            .add("high", Cells::Int, |(index, ..)| sizes::greatest(*index).into())
            .add("packets", Cells::Int, |(_, packets, _)| int(*packets))
            .add("excess", Cells::Int, |(.., excess)| int(*excess));
        row.put("lengths", table.into());
    }

    fn check(row: &Row, totals: &RowTotals) -> Result<(), RowDefect> {
        let Some(StoredLengths { full, buckets }) = StoredLengths::of(row)? else { return Ok(()) };
        let packets = totals.flow_packets;
        require(full <= MAX_FULL, || {
            format!("column lengths_full has {full}, more than there are counters")
        })?;
        let mut sum = 0_u64;
        for (index, packets, excess) in buckets {
            let (low, high) = (sizes::least(index), sizes::greatest(index));
            require(excess <= packets.saturating_mul((high - low).into()), || {
                format!(
                    "column lengths has {packets} packets of {low} to {high} bytes with {excess} bytes of excess"
                )
            })?;
            sum = sum.saturating_add(packets);
        }
        let is_all = full == 0 && totals.is_complete;
        require(sum <= packets && (sum == packets || !is_all), || {
            format!("column lengths has {sum} packets, and the window {packets}")
        })?;
        for column in ["length_mean", "length_p50"] {
            if let Ok(length) = row.real(column) {
                laws::ascending(column, &[length], sizes::MAX_LENGTH.into())?;
            }
        }
        Ok(())
    }

    fn restore(
        row: &Row,
        settings: &mut Settings,
        bank: &mut WindowTotals,
        sum: &mut u64,
    ) -> Result<(), RowDefect> {
        let Some(StoredLengths { full, buckets }) = StoredLengths::of(row)? else { return Ok(()) };
        *sum = buckets.iter().fold(*sum, |sum, (_, _, excess)| sum.saturating_add(*excess));
        require(*sum < u64::MAX, || "more bytes in all than a number can hold".to_owned())?;
        for (index, packets, excess) in buckets {
            let counters = [(&mut bank.sizes.packets, packets), (&mut bank.sizes.excess, excess)];
            for (counters, value) in counters {
                counters.get_mut(index).into_iter().for_each(|count| *count = value);
            }
        }
        bank.sizes.full = full;
        settings.sizes = Toggle::ON;
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.full_counters > 0
    }
}

/// Merges the buckets from a power of two up to the next one.
fn doubling(buckets: &[LengthRange], power: u32) -> LengthRange {
    let within = || buckets.iter().filter(|bucket| bucket.low.max(1).ilog2() == power);
    LengthRange {
        low: 1 << power,
        high: (2 << power) - 1,
        packets: within().map(|it| it.packets).sum(),
        bytes: within().map(|it| it.bytes).sum(),
    }
}

/// Merges buckets into powers of two, from the first to the last that has packets.
fn doublings(buckets: &[LengthRange]) -> Vec<LengthRange> {
    let (Some(first), Some(last)) = (buckets.first(), buckets.last()) else { return Vec::new() };
    let powers = first.low.max(1).ilog2()..=last.low.max(1).ilog2();
    powers.map(|power| doubling(buckets, power)).collect()
}

/// Formats a bar for each range in one line, with the minimum and the maximum length.
fn line_chart(ranges: &[LengthRange]) -> String {
    let most = ranges.iter().map(|range| range.packets).max().unwrap_or(1).max(1);
    let bar = |range: &LengthRange| {
        // Any packets at all give a visible bar.
        let level = (range.packets as f64 / most as f64 * 8.0).ceil() as usize;
        LEVELS.get(level).copied().unwrap_or(' ')
    };
    let (low, high) =
        (ranges.first().map_or(0, |range| range.low), ranges.last().map_or(0, |range| range.high));
    format!(
        "{} {} {}",
        grouped(low.into()),
        ranges.iter().map(bar).collect::<String>(),
        grouped(high.into())
    )
}

impl From<Quantile> for Datum {
    fn from(Quantile { value, low, high }: Quantile) -> Self {
        object([("value", value.into()), ("low", low.into()), ("high", high.into())])
    }
}

fn by_percentile<T: Copy + Into<Datum>>(quantiles: &[T; PERCENT.len()]) -> Datum {
    let names = PERCENT.iter().map(|percent| format!("p{percent}").into());
    Datum::Object(names.zip(quantiles.iter().map(|it| (*it).into())).collect())
}

/// Adds the figures of lengths: mean, percentiles, histogram.
fn draw(lengths: &LengthDistribution, to: &mut Fields) {
    let number =
        |it: &Quantile| Number { value: it.value, low: it.low.into(), high: it.high.into() };
    let mean = number(&lengths.mean);
    to.number("mean_packet_length", "mean length of packets", Unit::Bytes, &[], mean);
    for (percent, quantile) in PERCENT.iter().zip(&lengths.by_packets) {
        let percent = percent.to_string();
        let labels = [("percentile", percent.as_str())];
        to.number("packet_length", "lengths of packets", Unit::Bytes, &labels, number(quantile));
    }
    let range = |it: LengthRange| figure::Range {
        low: it.low.into(),
        high: it.high.into(),
        count: it.packets as f64,
    };
    // All ranges, also empty ones.
    let ranges = (0..u16::BITS).map(|power| range(doubling(&lengths.buckets, power))).collect();
    let narrow = lengths.buckets.iter().copied().map(range).collect();
    let distribution =
        figure::Distribution { ranges, sum: lengths.bytes as f64, narrow, zero_threshold: 0.0 };
    let shape = figure::Shape::Distribution(distribution);
    to.figure("packet_lengths", "packets by length", Unit::Bytes, &[], shape);
}
