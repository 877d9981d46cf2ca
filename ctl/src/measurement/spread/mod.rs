//! Spread: the keys with the most distinct others, such as the destinations that the most sources
//! contact.

pub mod estimate;

use super::exact_value::note;
use super::laws::{self, RowTotals, require};
use super::sketched::{self, RowHash};
use super::{ClosedBank, Damaged, Estimation, ExactValue, Measurement, ReportInput};
use crate::field::{Datum, Fields, object};
use crate::figure::{KnownFigure, RankingItem, Unit};
use crate::flow::KeyText;
use crate::row::{Cells, Row, RowDefect, TableBuilder, Value};
use crate::text::{self, IndentedLines, counted, grouped};
use estimate::{PlacedKey, Spreader, Top};
use flowgauge_core::spread::{Candidate, FanOut, OtherKind, Settings};
use flowgauge_core::{FlowKey, Grid, HashIdentity, KeyKind, SPREADS, WindowTotals};
use std::collections::{BTreeMap, BTreeSet};

/// Number of keys to list.
pub type Options = super::ListOptions;

/// Keys with the most distinct others, for each sketch that is on.
#[derive(Clone, Debug, PartialEq)]
pub struct Spreads(pub Vec<Spread>);

/// Keys of one sketch with the most distinct others.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// Keys, others and size of the sketch.
    pub settings: Settings,
    /// Hash of the sketch.
    pub hash: HashIdentity,
    /// All keys that stand out from the noise.
    pub top: Top,
    /// Number of keys to list.
    pub shown: usize,
    /// Exact numbers.
    pub truth: ExactValue<Truth>,
}

/// Exact numbers of others.
#[derive(Clone, Debug, PartialEq)]
pub struct Truth {
    /// Number of others of each listed key, in the order of the list.
    pub keys: Vec<u64>,
    /// Largest number of others of any other key.
    pub rest: u64,
}

/// Prefixes of column names, by sketch.
const PREFIXES: [&str; SPREADS] = ["spread", "spread2"];
/// Positions of the first CSV column, by sketch.
const POSITIONS: [u16; SPREADS] = [80, 88];
/// Greatest level of a candidate.
const MAX_LEVEL: u8 = 31;

/// Returns the singular of a key's name.
fn key_name(key: KeyKind) -> &'static str {
    match key {
        KeyKind::Src => "source",
        KeyKind::Dst => "destination",
        KeyKind::SrcDst => "pair of hosts",
        KeyKind::FiveTuple => "five-tuple",
    }
}

/// Returns the singular of an other's name.
#[must_use]
pub(super) fn other_name(other: OtherKind) -> &'static str {
    match other {
        OtherKind::Src => "source",
        OtherKind::Dst => "destination",
        OtherKind::DstPort => "destination port",
        OtherKind::FiveTuple => "five-tuple",
    }
}

impl Spread {
    /// Returns the keys to list.
    fn listed(&self) -> impl Iterator<Item = &Spreader> {
        self.top.keys.iter().take(self.shown)
    }

    /// Returns the keys to list with their exact numbers, if these are known.
    fn listed_with_truth(&self) -> impl Iterator<Item = (&Spreader, Option<u64>)> {
        let truths =
            self.truth.known().into_iter().flat_map(|truth| &truth.keys).copied().map(Some);
        self.listed().zip(truths.chain(std::iter::repeat(None)))
    }

    fn text(&self, key: &FlowKey) -> String {
        KeyText { kind: self.settings.by, key }.to_string()
    }

    fn rest(&self) -> f64 {
        self.top.rest_beyond(self.shown)
    }

    fn json(&self) -> Datum {
        let Settings { by, of, registers, shape, .. } = self.settings;
        let flow = |(spreader, truth): (&Spreader, Option<u64>)| {
            object([
                ("flow", self.text(&spreader.key).into()),
                ("others", spreader.others.value.into()),
                ("low", spreader.others.low.into()),
                ("high", spreader.others.high.into()),
                ("truth", self.truth.datum(|_| truth.into())),
            ])
        };
        object([
            ("key", by.name().into()),
            ("of", of.name().into()),
            ("rows", shape.rows().into()),
            ("columns", shape.columns().into()),
            ("registers", registers.registers().into()),
            ("hash", sketched::hash(&self.hash)),
            ("rest", self.rest().into()),
            ("rest_truth", self.truth.datum(|truth| truth.rest.into())),
            ("flows", Datum::Array(self.listed_with_truth().map(flow).collect())),
        ])
    }
}

impl Truth {
    /// Returns the exact numbers of the first keys, from those of all.
    fn of(all: &[FanOut], top: &Top, shown: usize) -> Self {
        let numbers: BTreeMap<&FlowKey, u64> =
            all.iter().map(|fan_out| (&fan_out.key, fan_out.others)).collect();
        let listed = || top.keys.iter().take(shown).map(|spreader| &spreader.key);
        let keys = listed().map(|key| numbers.get(key).copied().unwrap_or(0)).collect();
        let listed: BTreeSet<&FlowKey> = listed().collect();
        let other = all.iter().find(|fan_out| !listed.contains(&fan_out.key));
        Truth { keys, rest: other.map_or(0, |fan_out| fan_out.others) }
    }
}

/// Candidates of merged rows of a sketch. A lake does not store their cells, which depend on the
/// secret of the hash.
#[derive(Debug, Default)]
pub(crate) struct UnionCandidates {
    /// Greatest estimate of each key in a row; 0 if it was not listed there.
    keys: BTreeMap<FlowKey, u64>,
    /// Greatest level of each cell.
    levels: Vec<u8>,
    /// Whether keys were dropped.
    is_cut: bool,
}

impl UnionCandidates {
    /// Minimum number of stored keys; beyond twice as many those with smaller estimates are
    /// dropped.
    const MIN_KEYS: usize = 1 << 16;
    /// Memory of a key in the map.
    const KEY_BYTES: usize = 64;

    /// Returns the memory of keys and levels, in bytes.
    fn bytes(&self) -> usize {
        Self::KEY_BYTES * self.keys.len() + self.levels.len()
    }

    fn add(&mut self, keys: &[(FlowKey, u64)], levels: &[u8]) {
        for (key, others) in keys {
            let greatest = self.keys.entry(*key).or_default();
            *greatest = (*greatest).max(*others);
        }
        if self.levels.len() < levels.len() {
            self.levels.resize(levels.len(), 0);
        }
        for (greatest, level) in self.levels.iter_mut().zip(levels) {
            *greatest = (*greatest).max(*level);
        }
        if self.keys.len() > 2 * Self::MIN_KEYS {
            let mut keys: Vec<(FlowKey, u64)> =
                std::mem::take(&mut self.keys).into_iter().collect();
            keys.sort_by(|(_, one), (_, other)| other.cmp(one));
            keys.truncate(Self::MIN_KEYS);
            self.keys = keys.into_iter().collect();
            self.is_cut = true;
        }
    }

    fn placed(&self, rows: &RowHash, shape: Grid) -> Vec<PlacedKey> {
        let candidate =
            |key: &FlowKey| Candidate::new(1, rows.signature(key), *key, &rows.tabulation);
        self.keys.keys().map(|key| PlacedKey::of(&candidate(key), shape)).collect()
    }
}

/// Sketch of a lake row.
struct StoredSpread<'a> {
    settings: Settings,
    registers: &'a [u8],
    /// Level of each cell's candidate, row by row.
    levels: &'a [u8],
    keys: Vec<(FlowKey, u64)>,
}

impl<'a> StoredSpread<'a> {
    /// Returns the sketch of a row; `None` if it has none of this name.
    fn of(name: &str, row: &'a Row) -> Result<Option<Self>, RowDefect> {
        let Some(by) = row.named(&format!("{name}_key"), &KeyKind::ALL, KeyKind::name)? else {
            return Ok(None);
        };
        let of = row.must_name(&format!("{name}_of"), &OtherKind::ALL, OtherKind::name)?;
        let [rows, columns, registers] = ["rows", "columns", "registers"]
            .map(|size| row.number::<usize>(&format!("{name}_{size}")));
        let (rows, columns, registers) = (rows?, columns?, registers?);
        let settings = Settings { on: true, by, of, ..Settings::DEFAULT }
            .sized(rows, columns, registers)
            .filter(|settings| settings.pair().is_some())
            .ok_or_else(|| {
                format!(
                    "no {name} counts {} by {} in {rows} rows of {columns} cells of {registers}",
                    of.name(),
                    by.name()
                )
            })?;
        let cells = row.bytes(&format!("{name}_cells"))?;
        let levels = row.bytes(&format!("{name}_levels"))?;
        for (column, bytes, number) in
            [("cells", cells, rows * columns * registers), ("levels", levels, rows * columns)]
        {
            require(bytes.len() == number, || {
                format!("column {name}_{column} has {} bytes, and not {number}", bytes.len())
            })?;
        }
        let (table, column) = (row.table(name)?, format!("{name}_candidates"));
        let listed = table.blobs("key")?.iter().zip(table.floats("others")?.iter().copied());
        let others = row.table(&column)?.blobs("key")?;
        // Without an estimate, 0.
        let all = listed.chain(others.iter().zip(std::iter::repeat(0.0)));
        let mut keys = Vec::with_capacity(others.len());
        for (bytes, others) in all {
            require(by.lengths().contains(&bytes.len()), || {
                format!(
                    "column {name} has a key of {} bytes, which is no {}",
                    bytes.len(),
                    by.name()
                )
            })?;
            keys.push((FlowKey::new(bytes), others as u64));
        }
        Ok(Some(StoredSpread { settings, registers: cells, levels, keys }))
    }

    /// Checks the laws of registers and candidates.
    fn check(&self, name: &str, totals: &RowTotals) -> Result<(), RowDefect> {
        let Settings { registers, shape, .. } = self.settings;
        let packets = totals.flow_packets;
        let greatest = self.registers.iter().max().copied().unwrap_or(0);
        require(greatest <= registers.max_level(), || {
            format!("column {name}_cells has level {greatest}, over {}", registers.max_level())
        })?;
        let greatest = self.levels.iter().max().copied().unwrap_or(0);
        require(greatest <= MAX_LEVEL, || {
            format!("column {name}_levels has level {greatest}, over {MAX_LEVEL}")
        })?;
        let cells = self.registers.chunks(registers.registers());
        for (cell, level) in cells.zip(self.levels) {
            require(cell.iter().any(|register| *register > 0) == (*level > 0), || {
                format!("column {name}_cells has a cell without registers or without a candidate")
            })?;
        }
        // A packet sets at most one register in each row.
        for row in self.registers.chunks(shape.columns() * registers.registers()) {
            let occupied = row.iter().filter(|register| **register > 0).count() as u64;
            require(occupied <= packets, || {
                format!(
                    "column {name}_cells has a row of {occupied} registers that are set, and the window has {packets} packets"
                )
            })?;
            require(occupied > 0 || packets == 0 || !totals.is_complete, || {
                format!(
                    "column {name}_cells has an empty row, and the window has {packets} packets"
                )
            })?;
        }
        // A cell with pairs has one candidate, and a key one cell in each row.
        let occupied = |cells: &[u8]| cells.iter().filter(|level| **level > 0).count();
        let least = self.levels.chunks(shape.columns()).map(occupied).max().unwrap_or(0);
        let (number, most) = (self.keys.len(), occupied(self.levels));
        require((least..=most).contains(&number), || {
            format!("column {name} has {number} keys, and its cells {least} to {most}")
        })?;
        let different: BTreeSet<&FlowKey> = self.keys.iter().map(|(key, _)| key).collect();
        require(different.len() == number, || format!("column {name} has a key twice"))
    }
}

/// Checks the estimates of a row's keys.
fn check_estimates(name: &str, row: &Row, packets: u64) -> Result<(), RowDefect> {
    let (table, most) = (row.table(name)?, packets as f64);
    let (others, lows, highs) =
        (table.floats("others")?, table.floats("low")?, table.floats("high")?);
    for ((others, low), high) in others.iter().zip(lows).zip(highs) {
        laws::ascending(&format!("{name}.others"), &[*low, *others, *high], most)?;
    }
    require(others.is_sorted_by(|one, next| one >= next), || {
        format!("column {name} does not have the key with the most others first")
    })?;
    let column = format!("{name}_rest");
    laws::ascending(&column, &[row.real(&column)?], most)
}

impl Measurement for Spreads {
    type UnionState = [UnionCandidates; SPREADS];

    fn union_bytes(unions: &Self::UnionState) -> usize {
        unions.iter().map(UnionCandidates::bytes).sum()
    }

    fn of(reading: &ReportInput<'_>) -> Result<Option<Self>, Damaged> {
        let settings = &reading.settings.spread;
        let shown = reading.options.spread.top;
        // Each packet has at most one other.
        let (_, packets) = reading.packets_while_read();
        let mut spreads = Vec::new();
        for (index, of_sketch) in settings.iter().enumerate().filter(|(_, it)| it.on) {
            let sketch = reading.bank.spread.sketch(settings, index);
            let union = reading.union_states.and_then(|states| states.spread.get(index));
            let top = match union {
                Some(union) => {
                    let candidates = union.placed(reading.rows, of_sketch.shape);
                    let top = estimate::top(&sketch, candidates, &union.levels, packets)?;
                    let rest = if union.is_cut { packets as f64 } else { top.rest };
                    Top { rest, ..top }
                }
                None => estimate::estimate(&sketch, packets)?,
            };
            let exact = reading.exact(|snapshot| snapshot.fan_outs.as_ref()?.get(index));
            let truth = exact.map(|all| Truth::of(all, &top, shown));
            let hash = reading.rows.hash;
            spreads.push(Spread { settings: *of_sketch, hash, top, shown, truth });
        }
        Ok((!spreads.is_empty()).then_some(Spreads(spreads)))
    }

    fn fields(report: Option<&Self>, _: Option<&ClosedBank>, to: &mut Fields) {
        // The CSV has columns for both, even if they are off.
        for (index, (name, position)) in PREFIXES.into_iter().zip(POSITIONS).enumerate() {
            let spread = report.and_then(|Spreads(spreads)| spreads.get(index));
            let settings = spread.map(|it| it.settings);
            let first = spread.and_then(|it| Some((it, it.listed_with_truth().next()?)));
            let others = first.map(|(_, (spreader, _))| spreader.others);
            to.column(settings.map(|it| it.by.name())).csv(position, format!("{name}_key"));
            to.column(settings.map(|it| it.of.name())).csv(position + 1, format!("{name}_of"));
            to.column(first.map(|(it, (spreader, _))| it.text(&spreader.key)))
                .csv(position + 2, format!("{name}_flow"));
            to.column(others.map(|it| it.value)).csv(position + 3, format!("{name}_others"));
            to.column(others.map(|it| it.low)).csv(position + 4, format!("{name}_others_low"));
            to.column(others.map(|it| it.high)).csv(position + 5, format!("{name}_others_high"));
            to.column(first.and_then(|(_, (_, truth))| truth))
                .csv(position + 6, format!("{name}_others_truth"));
            to.column(spread.map(Spread::rest)).csv(position + 7, format!("{name}_rest"));
        }
        let Some(Spreads(spreads)) = report else { return };
        to.json(Datum::Array(spreads.iter().map(Spread::json).collect()));
        for spread in spreads {
            let Settings { by, of, .. } = spread.settings;
            let labels = [("key", by.name()), ("of", of.name())];
            let items = spread.listed().map(|spreader| RankingItem {
                name: spread.text(&spreader.key),
                number: spreader.others,
                more: String::new(),
            });
            let title = "keys with the most distinct others";
            to.ranking("fan_out", title, Unit::Things, &labels, items);
        }
    }

    fn known(settings: &flowgauge_core::Settings, _: &Estimation) -> Vec<KnownFigure> {
        let on = settings.spread.iter().filter(|of_sketch| of_sketch.on);
        on.map(|of_sketch| {
            KnownFigure::new("fan_out", Unit::Things)
                .label("key", [of_sketch.by.name()])
                .label("of", [of_sketch.of.name()])
        })
        .collect()
    }

    fn store(&self, counted: &ClosedBank, row: &mut Row) {
        // In the order of the settings; those that are off have no report.
        let mut spreads = self.0.iter();
        let settings = &counted.settings.spread;
        for (index, name) in PREFIXES.into_iter().enumerate() {
            let Some(of_sketch) = settings.get(index).filter(|of_sketch| of_sketch.on) else {
                continue;
            };
            let Some(spread) = spreads.next() else { return };
            let sketch = counted.bank.spread.sketch(settings, index);
            let Settings { by, of, registers, shape, .. } = *of_sketch;
            row.text(format!("{name}_key"), by.name());
            row.text(format!("{name}_of"), of.name());
            row.int(format!("{name}_rows"), shape.rows() as u64);
            row.int(format!("{name}_columns"), shape.columns() as u64);
            row.int(format!("{name}_registers"), registers.registers() as u64);
            row.float(format!("{name}_rest"), spread.top.rest);
            let cells = (0..shape.rows()).flat_map(|line| {
                (0..shape.columns()).flat_map(move |column| sketch.registers(line, column))
            });
            row.put(format!("{name}_cells"), Value::Bytes(Some(cells.copied().collect())));
            row.put(format!("{name}_levels"), Value::Bytes(Some(estimate::levels(&sketch))));
            // Store nothing that depends on a key's hash, such as its cells: enough of them reveal
            // the secret of the hash.
            let keys = &spread.top.keys;
            let table = TableBuilder::new(keys)
                .add("flow", Cells::Text, |it| spread.text(&it.key))
                .add("key", Cells::Bytes, |it| it.key.as_bytes().to_vec())
                .add("others", Cells::Float, |it| it.others.value)
                .add("low", Cells::Float, |it| it.others.low)
                .add("high", Cells::Float, |it| it.others.high);
            row.put(name, table.into());
            let listed: BTreeSet<&FlowKey> = keys.iter().map(|it| &it.key).collect();
            let candidates = sketch.candidates().map(Candidate::key);
            let mut candidates: Vec<&FlowKey> =
                candidates.filter(|key| !listed.contains(key)).collect();
            candidates.sort_unstable();
            let table = TableBuilder::new(&candidates)
                .add("key", Cells::Bytes, |it| it.as_bytes().to_vec());
            row.put(format!("{name}_candidates"), table.into());
        }
    }

    fn check(row: &Row, totals: &RowTotals) -> Result<(), RowDefect> {
        let mut settings = [Settings::DEFAULT; SPREADS];
        for (name, of_sketch) in PREFIXES.into_iter().zip(&mut settings) {
            if let Some(stored) = StoredSpread::of(name, row)? {
                stored.check(name, totals)?;
                check_estimates(name, row, totals.flow_packets)?;
                *of_sketch = stored.settings;
            }
        }
        // Each may fit alone.
        Settings::problem(&settings).map_or(Ok(()), |problem| Err(problem.to_owned()))
    }

    fn restore(
        row: &Row,
        settings: &mut flowgauge_core::Settings,
        bank: &mut WindowTotals,
        beside: &mut Self::UnionState,
    ) -> Result<(), RowDefect> {
        for (index, (name, union)) in PREFIXES.into_iter().zip(beside).enumerate() {
            let Some(stored) = StoredSpread::of(name, row)? else { continue };
            if let Some(of_sketch) = settings.spread.get_mut(index) {
                *of_sketch = stored.settings;
            }
            let (registers, _) = bank.spread.sketch_mut(&settings.spread, index);
            registers.iter_mut().zip(stored.registers).for_each(|(to, from)| *to = *from);
            union.add(&stored.keys, stored.levels);
        }
        Ok(())
    }

    fn lines(&self, below: &mut IndentedLines<'_>) {
        for spread in &self.0 {
            let (key, other) = (key_name(spread.settings.by), other_name(spread.settings.of));
            let rows = spread.listed_with_truth().map(|(spreader, truth)| {
                let others = spreader.others;
                text::DetailRow {
                    name: spread.text(&spreader.key),
                    value: counted(others.value.round() as u64, other),
                    interval: format!("({} … {})", rounded(others.low), rounded(others.high)),
                    notes: truth.map(note).into_iter().collect(),
                    ..text::DetailRow::default()
                }
            });
            let rows: Vec<text::DetailRow> = rows.collect();
            below.rows(&rows);
            let which = if rows.is_empty() { "no" } else { "no other" };
            let rest = counted(spread.rest().round() as u64, other);
            let mut phrases = vec![format!("{which} {key} has more than {rest}")];
            phrases.extend(spread.truth.note(|truth| note(truth.rest)));
            below.line(&phrases);
        }
    }
}

fn rounded(others: f64) -> String {
    grouped(others.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_keys_take_memory_up_to_a_limit() {
        let mut unions = <Spreads as Measurement>::UnionState::default();
        assert_eq!(Spreads::union_bytes(&unions), 0);
        let keys = |from: usize, to: usize| -> Vec<(FlowKey, u64)> {
            let key = |number: usize| FlowKey::new(&(number as u32).to_be_bytes());
            (from..to).map(|number| (key(number), number as u64)).collect()
        };
        let most = 2 * UnionCandidates::MIN_KEYS;
        unions[1].add(&keys(0, most), &[1; 48]);
        let bytes = Spreads::union_bytes(&unions);
        assert!(bytes >= most * size_of::<(FlowKey, u64)>() + 48, "{bytes}");
        assert!(!unions[1].is_cut);
        // The same keys again, then one more: those with the fewest others are dropped.
        unions[1].add(&keys(0, most), &[]);
        assert_eq!(Spreads::union_bytes(&unions), bytes);
        unions[1].add(&keys(most, most + 1), &[]);
        assert!(unions[1].is_cut && Spreads::union_bytes(&unions) < bytes);
        let least = unions[1].keys.values().min().copied();
        assert_eq!(least, Some((most + 1 - UnionCandidates::MIN_KEYS) as u64));
    }
}
