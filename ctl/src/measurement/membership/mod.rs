//! Membership: which of the queried flows were seen.

use super::laws::{RowTotals, require};
use super::{
    ClosedBank, Damaged, Estimation, Measurement, Number, QueriedFlow, ReportInput, sketched,
};
use crate::field::{Datum, Fields, object};
use crate::figure::{KnownFigure, RankingItem, Unit};
use crate::flow::KeyText;
use crate::row::{Row, RowDefect, Value};
use crate::text::{DetailRow, IndentedLines};
use flowgauge_core::membership::Settings;
use flowgauge_core::{FlowKey, Grid, HashIdentity, KeyKind, Membership as Filter, WindowTotals};

/// No options.
pub type Options = ();

/// Whether the queried flows were seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Membership {
    /// Key that defines a flow.
    pub key: KeyKind,
    /// Rows and bits of the filter.
    pub shape: Grid,
    /// Hash of the rows.
    pub hash: HashIdentity,
    /// Probability that a flow that was not seen is reported as seen.
    pub false_positive: f64,
    /// Whether each queried flow was seen.
    pub flows: Vec<QueriedFlow<bool, bool>>,
}

fn text(seen: bool) -> &'static str {
    if seen { "seen" } else { "not seen" }
}

/// Returns the note of the exact answer.
fn note(truth: &bool) -> String {
    format!("truth {}", text(*truth))
}

/// Returns the probability that a flow that was not seen finds its bit set in every row.
fn false_positive(filter: &Filter, shape: Grid) -> f64 {
    let row = shape.columns();
    let set = |words: &[u64]| {
        words.iter().map(|word| f64::from(word.count_ones())).sum::<f64>() / row as f64
    };
    filter.words(shape).chunks(row / 64).map(set).product()
}

/// Settings of a filter, and its words with the low byte first.
type StoredFilter<'a> = (Settings, &'a [[u8; 8]]);

/// Returns the settings and the words of a row's filter; `None` if it has none.
fn stored(row: &Row) -> Result<Option<StoredFilter<'_>>, RowDefect> {
    let Some(key) = row.named("membership_key", &KeyKind::ALL, KeyKind::name)? else {
        return Ok(None);
    };
    let (rows, bits) = (row.number("membership_rows")?, row.number("membership_bits")?);
    let shape = Grid::of_bits(rows, bits)
        .ok_or_else(|| format!("no filter has {rows} rows of {bits} bits"))?;
    let bytes = row.bytes("membership")?;
    let (words, rest) = bytes.as_chunks::<8>();
    require(8 * bytes.len() == rows * bits && rest.is_empty(), || {
        format!("column membership has {} bytes, and not {}", bytes.len(), rows * bits / 8)
    })?;
    Ok(Some((Settings { on: true, key, shape }, words)))
}

impl Measurement for Membership {
    type UnionState = ();

    fn of(reading: &ReportInput<'_>) -> Result<Option<Self>, Damaged> {
        let Settings { on, key, shape } = reading.settings.membership;
        let (rows, filter) = (reading.rows, &reading.bank.membership);
        let seen = |flow: &FlowKey| filter.contains(shape, rows.signature(flow), &rows.tabulation);
        Ok(on.then(|| Membership {
            key,
            shape,
            hash: rows.hash,
            false_positive: false_positive(filter, shape),
            flows: reading.asked(key, seen, |exact| exact.packets > 0),
        }))
    }

    fn fields(report: Option<&Self>, _: Option<&ClosedBank>, to: &mut Fields) {
        let Some(it) = report else { return };
        let name = |flow: &FlowKey| KeyText { kind: it.key, key: flow }.to_string();
        type Asked = QueriedFlow<bool, bool>;
        let flow = |Asked { flow, answer, truth }: &Asked| {
            object([
                ("flow", name(flow).into()),
                ("seen", (*answer).into()),
                ("truth", truth.datum(|truth| (*truth).into())),
            ])
        };
        to.field("key", it.key.name()).lake("membership_key");
        to.field("rows", it.shape.rows()).lake("membership_rows");
        to.field("bits", it.shape.columns()).lake("membership_bits");
        to.field("hash", sketched::hash(&it.hash));
        to.field("false_positive", it.false_positive).lake("membership_false_positive");
        to.field("flows", Datum::Array(it.flows.iter().map(flow).collect()));

        let labels = [("key", it.key.name())];
        let exact = |value| Number { value, low: value, high: value };
        let (title, share) = ("share of flows taken for seen that were not", it.false_positive);
        to.number("membership_false_positive", title, Unit::Ratio, &labels, exact(share));
        let flows = it.flows.iter().map(|Asked { flow, answer, truth }| RankingItem {
            name: name(flow),
            number: exact(f64::from(u8::from(*answer))),
            more: [Some(text(*answer).to_owned()), truth.note(note)]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(", "),
        });
        let title = "whether the flows that are asked for were seen";
        to.ranking("seen_flows", title, Unit::Things, &labels, flows);
    }

    fn known(settings: &flowgauge_core::Settings, _: &Estimation) -> Vec<KnownFigure> {
        let Settings { on, key, .. } = settings.membership;
        let figures = [("membership_false_positive", Unit::Ratio), ("seen_flows", Unit::Things)];
        figures
            .into_iter()
            .filter(|_| on)
            .map(|(name, unit)| KnownFigure::new(name, unit).label("key", [key.name()]))
            .collect()
    }

    fn store(&self, counted: &ClosedBank, row: &mut Row) {
        let bytes =
            counted.bank.membership.words(self.shape).iter().flat_map(|word| word.to_le_bytes());
        row.put("membership", Value::Bytes(Some(bytes.collect())));
    }

    fn check(row: &Row, totals: &RowTotals) -> Result<(), RowDefect> {
        let Some((settings, words)) = stored(row)? else { return Ok(()) };
        let share = row.real("membership_false_positive")?;
        require((0.0..=1.0).contains(&share), || {
            format!("column membership_false_positive has {share}, which is no probability")
        })?;
        let packets = totals.flow_packets;
        // A packet sets one bit in every row.
        for words in words.chunks(settings.shape.columns() / 64) {
            let bits = words.iter().map(|word| u64::from_le_bytes(*word).count_ones()).sum::<u32>();
            require(u64::from(bits) <= packets, || {
                format!(
                    "column membership has a row of {bits} bits, and the window has {packets} packets"
                )
            })?;
            require(bits > 0 || packets == 0 || !totals.is_complete, || {
                format!(
                    "column membership has a row without a bit, and the window has {packets} packets"
                )
            })?;
        }
        Ok(())
    }

    fn restore(
        row: &Row,
        settings: &mut flowgauge_core::Settings,
        bank: &mut WindowTotals,
        (): &mut (),
    ) -> Result<(), RowDefect> {
        let Some((found, stored)) = stored(row)? else { return Ok(()) };
        let words = bank.membership.words_mut(found.shape);
        words.iter_mut().zip(stored).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
        settings.membership = found;
        Ok(())
    }

    fn lines(&self, below: &mut IndentedLines<'_>) {
        let probability = || format!("false-positive probability {:.2e}", self.false_positive);
        let rows = self.flows.iter().map(|QueriedFlow { flow, answer, truth }| DetailRow {
            name: format!("query {}", KeyText { kind: self.key, key: flow }),
            value: text(*answer).to_owned(),
            notes: [answer.then(probability), truth.note(note)].into_iter().flatten().collect(),
            ..DetailRow::default()
        });
        below.rows(&rows.collect::<Vec<_>>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowgauge_core::Tabulation;
    use flowgauge_core::hash::crc32;
    use flowgauge_testing::chance::binomial;

    #[test]
    fn an_empty_filter_is_never_wrong_and_a_full_one_always() {
        let shape = Grid::BITS;
        let mut filter = Box::new(Filter::new());
        assert_eq!(false_positive(&filter, shape), 0.0);
        filter.words_mut(shape).fill(u64::MAX);
        assert_eq!(false_positive(&filter, shape), 1.0);
    }

    #[test]
    fn it_is_wrong_as_often_as_it_says() {
        const ASKED: u32 = 100_000;
        for (rows, bits, flows) in
            [(4, 1 << 16, 60_000_u32), (3, 1 << 12, 3_000), (1, 64, 20), (12, 1 << 10, 900)]
        {
            let shape = Grid::of_bits(rows, bits).unwrap();
            let tabulation = Box::new(Tabulation::from_seed(1));
            let mut filter = Box::new(Filter::new());
            (0..flows)
                .for_each(|flow| filter.update(shape, crc32(&flow.to_be_bytes()), &tabulation));
            let seen = |flow: u32| filter.contains(shape, crc32(&flow.to_be_bytes()), &tabulation);
            assert!((0..flows).all(seen));
            let wrong = (flows..flows + ASKED).filter(|&flow| seen(flow)).count() as u64;
            let expected = false_positive(&filter, shape);
            assert!(
                binomial(ASKED.into(), expected).contains(&wrong),
                "{rows} x {bits}: {wrong} of {ASKED}, {expected} expected"
            );
        }
    }
}
