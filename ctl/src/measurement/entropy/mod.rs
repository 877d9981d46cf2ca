//! Entropy of packets over flows.

pub mod estimate;

use super::laws::{self, RowTotals, require};
use super::sketched::{self, FULL};
use super::{ClosedBank, Damaged, Estimation, Measurement, Number, ReportInput, Sketched};
use crate::field::{Datum, Fields};
use crate::figure::{KnownFigure, Unit};
use crate::flow;
use crate::row::{Row, RowDefect};
use crate::text::{self, IndentedLines};
use estimate::Mixture;
use flowgauge_core::entropy::DERIVATIVE_OF_LOG;
use flowgauge_core::logarithm::AMPLIFICATION_BITS;
use flowgauge_core::{ENTROPIES, Settings, WindowTotals};

/// No options.
pub type Options = ();

/// Entropies of a record, one for each measured key; a total has none, since entropies cannot be
/// merged exactly.
#[derive(Clone, Debug, PartialEq)]
pub struct Entropies(pub Vec<Entropy>);

/// Entropy of a record's packets over the flows by one key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entropy {
    /// Sketch that the counts came from.
    pub sketch: Sketched,
    /// Entropy with its 95 % interval.
    pub estimate: estimate::Entropy,
    /// Exact entropy in bits, if flows were counted exactly.
    pub truth: Option<f64>,
}

/// Largest term of a packet in a sum: the logarithm of a counter of 32 bits, and a derivative.
const MAX_TERM: u64 = (32 << AMPLIFICATION_BITS) + DERIVATIVE_OF_LOG as u64;
/// Difference between the logarithms of two machines, in bits.
const ROUNDING: f64 = 1e-9;
/// Prefixes of column names, by entropy.
const PREFIXES: [&str; ENTROPIES] = ["entropy", "entropy2"];

impl Measurement for Entropies {
    type UnionState = [Mixture; ENTROPIES];

    fn of(reading: &ReportInput<'_>) -> Result<Option<Self>, Damaged> {
        // The sums of windows do not give the sum of their union.
        if reading.union_states.is_none() && reading.snapshot.is_none() {
            return Ok(None);
        }
        let (bank, packets) = (&reading.bank.entropy, reading.packets_while_read());
        let truths = reading.truth.map(|truth| truth.entropy).unwrap_or_default();
        let entropies = (0..ENTROPIES).filter_map(|index| {
            let sketch = Sketched::new(&reading.settings.entropy[index], reading.rows)?;
            let Sketched { shape, kind, .. } = sketch;
            let (sum, cells) = (bank.sums[index].sum, &bank.sketches[index]);
            let estimate = match reading.union_states {
                Some(states) => estimate::united(&states.entropy[index], cells.full(shape) > 0),
                None => estimate::estimate_while_counting(packets, sum, cells, shape, kind),
            };
            Some(Entropy { sketch, estimate, truth: truths[index] })
        });
        let entropies: Vec<Entropy> = entropies.collect();
        Ok((!entropies.is_empty()).then_some(Entropies(entropies)))
    }

    fn fields(report: Option<&Self>, _: Option<&ClosedBank>, to: &mut Fields) {
        // The CSV has columns for both, even if they are off.
        for (index, (name, position)) in PREFIXES.into_iter().zip([40, 45]).enumerate() {
            let entropy = report.and_then(|Entropies(entropies)| entropies.get(index));
            let estimate = entropy.map(|it| it.estimate);
            to.column(entropy.map(|it| it.sketch.key.name())).csv(position, format!("{name}_key"));
            to.column(estimate.map(|it| it.bits)).csv(position + 1, format!("{name}_bits"));
            to.column(estimate.map(|it| it.low)).csv(position + 2, format!("{name}_low_bits"));
            to.column(estimate.map(|it| it.high)).csv(position + 3, format!("{name}_high_bits"));
            to.column(entropy.and_then(|it| it.truth))
                .csv(position + 4, format!("{name}_truth_bits"));
        }
        let Some(Entropies(entropies)) = report else { return };
        let mut by_key: Vec<&Entropy> = entropies.iter().collect();
        by_key.sort_by_key(|it| it.sketch.key.name());
        for it in by_key {
            to.field(it.sketch.key.name(), it.json());
        }
        for Entropy { sketch, estimate, truth } in entropies {
            let number = Number { value: estimate.bits, low: estimate.low, high: estimate.high };
            let labels = [("key", sketch.key.name())];
            let title = "entropy of packets over flows, in bits";
            to.number("entropy", title, Unit::Bits, &labels, number);
            to.truth(*truth);
        }
    }

    fn known(settings: &Settings, _: &Estimation) -> Vec<KnownFigure> {
        let keys = settings.entropy.iter().filter(|sketch| sketch.is_on());
        keys.map(|sketch| KnownFigure::new("entropy", Unit::Bits).label("key", [sketch.key.name()]))
            .collect()
    }

    fn store(&self, counted: &ClosedBank, row: &mut Row) {
        // In the order of the settings; those that are off have no entropy.
        let mut entropies = self.0.iter();
        let (settings, bank) = (&counted.settings.entropy, &counted.bank.entropy);
        for (index, name) in PREFIXES.into_iter().enumerate() {
            if !settings[index].is_on() {
                continue;
            }
            let Some(Entropy { estimate, .. }) = entropies.next() else { return };
            row.float(name, estimate.bits);
            row.float(format!("{name}_low"), estimate.low);
            row.float(format!("{name}_high"), estimate.high);
            row.int(format!("{name}_sum"), bank.sums[index].sum);
            sketched::store(name, &settings[index], &bank.sketches[index], row);
        }
    }

    fn check(row: &Row, totals: &RowTotals) -> Result<(), RowDefect> {
        let packets = totals.flow_packets;
        let most = packets.max(1) as f64;
        for name in PREFIXES {
            if row.maybe_text(&format!("{name}_key")).is_none() {
                continue;
            }
            let [bits, low, high] =
                [name.to_owned(), format!("{name}_low"), format!("{name}_high")]
                    .map(|column| row.real(&column));
            laws::ascending(name, &[low?, bits?, high?], most.log2() + ROUNDING)?;
            let sum: u64 = row.number(&format!("{name}_sum"))?;
            require(sum <= packets.saturating_mul(MAX_TERM), || {
                format!("column {name}_sum has {sum}, too much for {packets} packets")
            })?;
            sketched::check(name, row, totals)?;
        }
        Ok(())
    }

    fn restore(
        row: &Row,
        settings: &mut Settings,
        bank: &mut WindowTotals,
        beside: &mut Self::UnionState,
    ) -> Result<(), RowDefect> {
        let packets = row.number::<u64>("ipv4_packets")?.wrapping_add(row.number("ipv6_packets")?);
        let bank = &mut bank.entropy;
        for (index, (name, mixture)) in PREFIXES.into_iter().zip(beside).enumerate() {
            let cells = &mut bank.sketches[index];
            let Some(found) = sketched::restore(name, row, cells)? else { continue };
            settings.entropy[index] = found;
            bank.sums[index].sum = row.number(&format!("{name}_sum"))?;
            let bounds = (row.real(&format!("{name}_low"))?, row.real(&format!("{name}_high"))?);
            mixture.add(packets, row.real(name)?, bounds);
        }
        Ok(())
    }

    fn lines(&self, below: &mut IndentedLines<'_>) {
        below.rows(&self.0.iter().map(Entropy::row).collect::<Vec<_>>());
    }

    fn is_full(&self) -> bool {
        self.0.iter().any(|entropy| entropy.estimate.saturated)
    }
}

impl Entropy {
    fn json(&self) -> Datum {
        let Entropy { sketch, estimate, truth } = self;
        let mut fields = Fields::default();
        fields.field("bits", estimate.bits);
        fields.field("low", estimate.low);
        fields.field("high", estimate.high);
        fields.field("normalised", estimate.normalised);
        fields.field("in_integers", estimate.in_integers);
        fields.field("saturated", estimate.saturated.then_some(true));
        fields.field("truth", *truth);
        sketch.fields(&mut fields);
        fields.into()
    }

    fn row(&self) -> text::DetailRow {
        let Entropy { sketch, estimate, truth } = self;
        let estimate::Entropy { bits, low, high, normalised, saturated, .. } = *estimate;
        let flows = flow::plural(sketch.key);
        let mut notes = vec![format!("normalised {normalised:.2}")];
        notes.extend(truth.map(|truth| {
            // No relative error if the exact entropy is 0.
            let percent = (bits / truth - 1.0) * 100.0;
            let error = if percent.is_finite() {
                format!("{percent:+.2} %")
            } else {
                format!("{:+.3} bits", bits - truth)
            };
            format!("truth {truth:.3} (error {error})")
        }));
        notes.extend(saturated.then(|| FULL.to_owned()));
        let (name, value) = (format!("entropy of {flows}"), format!("{bits:.3} bits"));
        text::DetailRow {
            name,
            value,
            interval: format!("({low:.3} … {high:.3})"),
            notes,
            ..text::DetailRow::default()
        }
    }
}
