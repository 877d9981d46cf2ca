//! Common parts of the measurements that use sketches or filters.

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

/// Restores what [`store`] stored: counters into an empty sketch, and settings as the result;
/// `None` if the row has no such sketch.
pub(crate) fn restore(
    name: &str,
    row: &Row,
    cells: &mut SketchTotals,
) -> Result<Option<sketch::Settings>, RowDefect> {
    let Some(key) = row.named(&format!("{name}_key"), &KeyKind::ALL, KeyKind::name)? else {
        return Ok(None);
    };
    let kinds = [SketchKind::CountSketch, SketchKind::CountMin];
    let column = format!("{name}_sketch");
    let kind = row
        .named(&column, &kinds, SketchKind::name)?
        .ok_or_else(|| format!("column {column} is missing"))?;
    let (rows, columns) =
        (row.number(&format!("{name}_rows"))?, row.number(&format!("{name}_columns"))?);
    let shape = Grid::of_counters(rows, columns)
        .ok_or_else(|| format!("no {name} has {rows} rows of {columns}"))?;
    let (counters, full) =
        (row.list(&format!("{name}_cells"))?, row.list(&format!("{name}_full"))?);
    if counters.len() != shape.cells() {
        return Err(format!(
            "column {name}_cells has {} counters, and not {}",
            counters.len(),
            shape.cells()
        ));
    }
    counters
        .iter()
        .enumerate()
        .for_each(|(index, value)| cells.set(index, *value, full.contains(&(index as i64))));
    Ok(Some(sketch::Settings { mode: kind.into(), key, shape }))
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
