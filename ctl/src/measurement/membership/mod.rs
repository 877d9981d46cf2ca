//! Which flows were seen.

pub mod estimate;

use super::{Damaged, Measurement, Rank, Reading, sketched};
use crate::flow::KeyText;
use crate::text::Below;
use flowgauge_core::Grid;
use flowgauge_core::membership::Settings;
use flowgauge_core::{FlowKey, HashIdentity, KeyKind};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// Nothing to choose.
pub type Options = ();

/// Whether the flows that were asked for were seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Membership {
    /// What makes a flow.
    pub key: KeyKind,
    /// Rows and bits of the filter.
    pub shape: Grid,
    /// How rows are hashed.
    pub hash: HashIdentity,
    /// How probable it is that a flow that was not seen is taken for one that was.
    pub false_positive: f64,
    /// Flows and whether they were seen.
    pub flows: Vec<(FlowKey, bool)>,
}

impl Measurement for Membership {
    fn of(reading: &Reading<'_>) -> Result<Option<Self>, Damaged> {
        let Settings { on, key, shape } = reading.settings.membership;
        let (rows, filter) = (reading.rows, &reading.bank.membership);
        let seen = |flow: &FlowKey| filter.contains(shape, rows.signature(flow), &rows.tabulation);
        Ok(on.then(|| Membership {
            key,
            shape,
            hash: rows.hash,
            false_positive: estimate::false_positive(filter, shape),
            flows: reading.asked(key, seen),
        }))
    }

    fn rank(&self) -> Rank {
        Rank::Asked
    }

    fn lines(&self, below: &mut Below<'_>) {
        let mistake = self.false_positive;
        for (key, seen) in &self.flows {
            let key = KeyText { kind: self.key, key };
            let answer = if *seen { format!("seen (by mistake with probability {mistake:.2e})") } else { "not seen".to_owned() };
            below.line(&[format!("{key}: {answer}")]);
        }
    }
}

impl Serialize for Membership {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Flow {
            flow: String,
            seen: bool,
        }
        let flow = |(key, seen): &(_, bool)| Flow { flow: KeyText { kind: self.key, key }.to_string(), seen: *seen };
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("key", self.key.name())?;
        line.serialize_entry("rows", &self.shape.rows())?;
        line.serialize_entry("bits", &self.shape.columns())?;
        line.serialize_entry("hash", &sketched::Hash(&self.hash))?;
        line.serialize_entry("false_positive", &self.false_positive)?;
        line.serialize_entry("flows", &self.flows.iter().map(flow).collect::<Vec<_>>())?;
        line.end()
    }
}
