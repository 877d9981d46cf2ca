//! What measurements have in common that count in rows.

use flowgauge_core::{FlowKey, Grid, HashIdentity, HashMode, KeyKind, SketchKind, Tabulation, sketch};
use flowgauge_dataplane::Tables;
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
