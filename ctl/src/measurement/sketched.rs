//! Common parts of the measurements that use sketches or filters.

use super::laws::{RowTotals, require};
use crate::field::{Datum, Fields, object};
use crate::row::{Row, RowDefect, Value};
use flowgauge_core::{
    FlowKey, Grid, HashIdentity, HashMode, KeyKind, SketchKind, SketchTotals, Tabulation, sketch,
};
use flowgauge_dataplane::{HashKey, HashWords, Tables};

/// Reason for an interval that is wide because counters are full.
pub(crate) const FULL: &str = "counters are full";

/// Shape of a sketch, with its key and hash.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sketched {
    /// Key that defines a flow.
    pub key: KeyKind,
    /// Kind of sketch: how counters of rows give an estimate.
    pub kind: SketchKind,
    /// Rows and columns.
    pub shape: Grid,
    /// Hash of the rows.
    pub hash: HashIdentity,
}

impl Sketched {
    /// Returns the sketch with these settings, if they enable one.
    pub(crate) fn new(settings: &sketch::Settings, rows: &RowHash) -> Option<Self> {
        let sketch::Settings { mode, key, shape } = *settings;
        Some(Sketched { key, kind: mode.sketch()?, shape, hash: rows.hash })
    }

    /// Adds its fields.
    pub(crate) fn fields(&self, to: &mut Fields) {
        to.field("sketch", self.kind.name());
        to.field("rows", self.shape.rows());
        to.field("columns", self.shape.columns());
        to.field("hash", hash(&self.hash));
    }
}

/// Stores a sketch's counters and shape in columns whose names begin with `name`.
pub(crate) fn store(name: &str, settings: &sketch::Settings, cells: &SketchTotals, row: &mut Row) {
    let sketch::Settings { mode, key, shape } = *settings;
    row.text(format!("{name}_key"), key.name());
    row.put(
        format!("{name}_sketch"),
        Value::Text(mode.sketch().map(|kind| kind.name().to_owned())),
    );
    row.int(format!("{name}_rows"), shape.rows() as u64);
    row.int(format!("{name}_columns"), shape.columns() as u64);
    row.put(format!("{name}_cells"), Value::List(cells.cells(shape).to_vec()));
    let full = (0..shape.cells()).filter(|&index| cells.is_full(index)).map(|index| index as i64);
    row.put(format!("{name}_full"), Value::List(full.collect()));
}

/// Columns that [`store`] stored.
struct StoredSketch<'a> {
    settings: sketch::Settings,
    kind: SketchKind,
    cells: &'a [i64],
    /// Indices of full counters, in order.
    full: &'a [i64],
}

impl<'a> StoredSketch<'a> {
    /// Returns the sketch of a row; `None` if it has none of this name.
    fn of(name: &str, row: &'a Row) -> Result<Option<Self>, RowDefect> {
        let Some(key) = row.named(&format!("{name}_key"), &KeyKind::ALL, KeyKind::name)? else {
            return Ok(None);
        };
        let kind = row.must_name(&format!("{name}_sketch"), &SketchKind::ALL, SketchKind::name)?;
        let (rows, columns) =
            (row.number(&format!("{name}_rows"))?, row.number(&format!("{name}_columns"))?);
        let shape = Grid::of_counters(rows, columns)
            .ok_or_else(|| format!("no {name} has {rows} rows of {columns}"))?;
        let (cells, full) =
            (row.list(&format!("{name}_cells"))?, row.list(&format!("{name}_full"))?);
        let (number, most) = (cells.len(), shape.cells());
        require(number == most, || {
            format!("column {name}_cells has {number} counters, and not {most}")
        })?;
        let is_index = |index: &i64| usize::try_from(*index).is_ok_and(|index| index < most);
        require(full.iter().all(is_index) && full.is_sorted_by(|one, next| one < next), || {
            format!("column {name}_full has indices that no counter has, or not in order")
        })?;
        let settings = sketch::Settings { mode: kind.into(), key, shape };
        Ok(Some(StoredSketch { settings, kind, cells, full }))
    }
}

/// Checks the laws of a sketch's columns: in every row of the sketch, a packet changes one counter
/// by one.
pub(crate) fn check(name: &str, row: &Row, totals: &RowTotals) -> Result<(), RowDefect> {
    let Some(StoredSketch { settings, kind, cells, full }) = StoredSketch::of(name, row)? else {
        return Ok(());
    };
    let packets = totals.flow_packets;
    for cells in cells.chunks(settings.shape.columns()) {
        let (mut sum, mut changes) = (0_i64, 0_u64);
        for cell in cells {
            require(kind == SketchKind::CountSketch || *cell >= 0, || {
                format!("column {name}_cells has {cell}, and this sketch only counts up")
            })?;
            sum = sum.wrapping_add(*cell);
            changes = changes.saturating_add(cell.unsigned_abs());
        }
        require(changes <= packets, || {
            format!("column {name}_cells counts {changes} packets, and the window has {packets}")
        })?;
        // Full counters miss packets, and incomplete windows do too.
        let is_exact = totals.is_complete && full.is_empty();
        let is_all = match kind {
            SketchKind::CountMin => changes == packets,
            // A packet counts up or down, so that both are even or both odd.
            SketchKind::CountSketch => (sum.unsigned_abs() ^ packets) & 1 == 0,
        };
        require(is_all || !is_exact, || {
            format!("column {name}_cells has a row that lacks packets of the window's {packets}")
        })?;
    }
    Ok(())
}

/// Restores what [`store`] stored: counters into an empty sketch, and settings as the result;
/// `None` if the row has no such sketch.
pub(crate) fn restore(
    name: &str,
    row: &Row,
    to: &mut SketchTotals,
) -> Result<Option<sketch::Settings>, RowDefect> {
    let Some(StoredSketch { settings, cells, full, .. }) = StoredSketch::of(name, row)? else {
        return Ok(None);
    };
    cells.iter().enumerate().for_each(|(index, value)| to.set(index, *value, false));
    for index in full.iter().filter_map(|index| usize::try_from(*index).ok()) {
        to.set(index, cells.get(index).copied().unwrap_or(0), true);
    }
    Ok(Some(settings))
}

/// Hash of the rows of sketches and filters.
#[derive(Clone, Debug)]
pub struct RowHash {
    pub(crate) hash: HashIdentity,
    pub(crate) tabulation: HashWords,
}

impl RowHash {
    /// Returns the hash that a dataplane with these tables uses.
    #[must_use]
    pub fn new(tables: &Tables) -> Self {
        RowHash { hash: tables.row_hash(), tabulation: tables.tabulation.clone() }
    }

    /// Returns the hash with this identity. A keyed hash needs its key; without it, returns as the
    /// error a hash with arbitrary tables.
    pub(crate) fn of(hash: HashIdentity, key: Option<&HashKey>) -> Result<Self, Self> {
        let rows = |tabulation| RowHash { hash, tabulation };
        match (hash.mode, key) {
            (HashMode::Crc32 | HashMode::Tabulated, _) => {
                Ok(rows(Tabulation::from_seed(hash.seed).into()))
            }
            (HashMode::Keyed, Some(key)) if key.fingerprint() == hash.fingerprint => {
                Ok(rows(key.tabulation()))
            }
            (HashMode::Keyed, _) => Err(rows(Tabulation::from_seed(0).into())),
        }
    }

    pub(crate) fn signature(&self, key: &FlowKey) -> u32 {
        self.hash.mode.signature(key, &self.tabulation)
    }
}

/// Formats a hash's identity, without its secret.
pub(crate) fn hash(hash: &HashIdentity) -> Datum {
    let mode = hash.mode.name().into();
    if hash.mode == HashMode::Keyed {
        let fingerprint = format!("{:016x}", hash.fingerprint).into();
        return object([("mode", mode), ("fingerprint", fingerprint)]);
    }
    let polynomial = format!("{:#010x}", hash.polynomial).into();
    object([("mode", mode), ("polynomial", polynomial), ("seed", hash.seed.into())])
}
