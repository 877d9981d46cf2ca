//! What measurements have in common that count in rows.

use crate::row::{Misfit, Row, Value};
use flowgauge_core::{
    FlowKey, Grid, HashIdentity, HashMode, KeyKind, SketchKind, Tabulation, WideSketch, sketch,
};
use flowgauge_dataplane::{HashKey, Tables};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// What is behind an interval that is wide because of what counters can hold.
pub(crate) const FULL: &str = "counters are full";

/// Rows and columns of a sketch, and how they are hashed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sketched {
    /// What makes a flow.
    pub key: KeyKind,
    /// How rows become a number.
    pub kind: SketchKind,
    /// Rows and columns.
    pub shape: Grid,
    /// How rows are hashed.
    pub hash: HashIdentity,
}

impl Sketched {
    /// The sketch of these settings, if they have one.
    pub(crate) fn new(settings: &sketch::Settings, rows: &Rows) -> Option<Self> {
        let sketch::Settings { mode, key, shape } = *settings;
        Some(Sketched { key, kind: mode.sketch()?, shape, hash: rows.hash })
    }

    /// Its fields in a JSON line.
    pub(crate) fn write<M: SerializeMap>(&self, line: &mut M) -> Result<(), M::Error> {
        line.serialize_entry("sketch", self.kind.name())?;
        line.serialize_entry("rows", &self.shape.rows())?;
        line.serialize_entry("columns", &self.shape.columns())?;
        line.serialize_entry("hash", &Hash(&self.hash))
    }
}

/// The counters of a sketch with its shape, in columns of which `name` is the beginning.
pub(crate) fn store(name: &str, settings: &sketch::Settings, cells: &WideSketch, row: &mut Row) {
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

/// The opposite of [`store`]: how, and into a sketch in which nothing is; nothing if the row has
/// none.
pub(crate) fn restore(
    name: &str,
    row: &Row,
    cells: &mut WideSketch,
) -> Result<Option<sketch::Settings>, Misfit> {
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

/// How the rows of sketches and filters are hashed.
#[derive(Clone, Debug)]
pub struct Rows {
    pub(crate) hash: HashIdentity,
    pub(crate) tabulation: Box<Tabulation>,
}

impl Rows {
    /// As a dataplane with these tables does.
    #[must_use]
    pub fn new(tables: &Tables) -> Self {
        Rows { hash: tables.row_hash(), tabulation: Box::new(tables.tabulation.clone()) }
    }

    /// As this hash does: with its own words, if it tells them or this is its secret; else with
    /// any.
    pub(crate) fn of(hash: HashIdentity, key: Option<&HashKey>) -> Result<Self, Self> {
        let rows = |tabulation| Rows { hash, tabulation: Box::new(tabulation) };
        match (hash.mode, key) {
            (HashMode::Crc32 | HashMode::Tabulated, _) => {
                Ok(rows(Tabulation::from_seed(hash.seed)))
            }
            (HashMode::Keyed, Some(key)) if key.fingerprint() == hash.fingerprint => {
                Ok(rows(key.tabulation()))
            }
            (HashMode::Keyed, _) => Err(rows(Tabulation::from_seed(0))),
        }
    }

    pub(crate) fn signature(&self, key: &FlowKey) -> u32 {
        self.hash.mode.signature(key, &self.tabulation)
    }
}

/// A hash in a JSON line.
pub(crate) struct Hash<'a>(pub(crate) &'a HashIdentity);

impl Serialize for Hash<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Hash(hash) = self;
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("mode", hash.mode.name())?;
        if hash.mode == HashMode::Keyed {
            line.serialize_entry("fingerprint", &format!("{:016x}", hash.fingerprint))?;
        } else {
            line.serialize_entry("polynomial", &format!("{:#010x}", hash.polynomial))?;
            line.serialize_entry("seed", &hash.seed)?;
        }
        line.end()
    }
}
