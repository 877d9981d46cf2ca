//! Match tables: their required form in the program, and their desired contents.

use super::{entries, names};
use crate::error::Failure;
use crate::tables::Tables;
use flowgauge_bfruntime::schema::{Schema, TableKind};
use flowgauge_bfruntime::{Data, Entry, EntryTarget, Key, Match};
use flowgauge_core::delay::{Admission, DelayKind};
use flowgauge_core::{BANKS, Filter};
use std::sync::Arc;

/// Desired state of a switch.
#[derive(Clone, Debug)]
pub(super) struct DesiredState {
    /// Match tables, computed once.
    pub(super) tables: Tables,
    /// Admission of requests of each bank, per kind, if shares follow the traffic; kinds that are
    /// missing here follow the settings.
    pub(super) admissions: [Vec<(DelayKind, Admission)>; BANKS],
    /// Filter of each bank.
    pub(super) filters: [Option<Arc<Filter>>; BANKS],
    /// Lowest and highest usual entropy, times 1024, if the switch watches one.
    pub(super) thresholds: [i32; 2],
}

/// A match table with one action; or a parameter of a register's actions, which has one value and
/// no action.
pub(super) struct MatchTable {
    pub(super) name: String,
    /// Key fields, with their widths in bits.
    keys: Vec<(&'static str, u32)>,
    action: Option<String>,
    /// Parameters of the action, with their widths in bits.
    parameters: Vec<(&'static str, u32)>,
    /// Function that computes the desired contents.
    filling: Box<dyn Fn(&DesiredState) -> TableContents>,
    /// Whether actions change while the switch counts.
    pub(super) changes: bool,
}

/// Values of an action's parameters, in order.
type Values = Vec<Vec<u8>>;

/// Desired contents of a table, in terms of values.
pub(super) struct TableContents {
    pub(super) entries: Vec<(Vec<(&'static str, Match)>, Values)>,
    pub(super) default: Option<Values>,
}

/// Desired contents of a table, in the program's terms.
pub(super) struct Content {
    pub(super) table: String,
    pub(super) entries: Vec<Entry>,
    pub(super) default: Option<Data>,
    /// Whether actions change while the switch counts.
    pub(super) changes: bool,
}

impl MatchTable {
    pub(super) fn new(
        name: String,
        keys: Vec<(&'static str, u32)>,
        action: impl Into<String>,
        parameters: Vec<(&'static str, u32)>,
        filling: impl Fn(&DesiredState) -> TableContents + 'static,
    ) -> Self {
        MatchTable {
            name,
            keys,
            action: Some(action.into()),
            parameters,
            filling: Box::new(filling),
            changes: false,
        }
    }

    /// Creates a parameter of a register's actions, with its value.
    pub(super) fn of_register(
        name: String,
        value: impl Fn(&DesiredState) -> i32 + 'static,
    ) -> Self {
        let filling = move |desired: &DesiredState| TableContents {
            entries: Vec::new(),
            default: Some(vec![value(desired).to_be_bytes().to_vec()]),
        };
        let parameters = vec![(names::PARAMETER_VALUE, i32::BITS)];
        MatchTable {
            name,
            keys: Vec::new(),
            action: None,
            parameters,
            filling: Box::new(filling),
            changes: false,
        }
    }

    /// Returns the table, marked as one whose actions change while the switch counts.
    pub(super) fn that_changes(self, changes: bool) -> Self {
        MatchTable { changes, ..self }
    }

    /// Checks that the program has this table.
    pub(super) fn check(&self, schema: &Schema) -> Result<(), Failure> {
        let table = schema.table(&self.name).map_err(Failure::lacks)?;
        let wrong = |item: &str, is: u32, must: u32| {
            Err(Failure::mismatch(item, format!("{is} bits wide"), must.to_string()))
        };
        for (key, must) in &self.keys {
            let key = table.key(key).map_err(Failure::lacks)?;
            let is = key.kind.bits().map_err(Failure::program)?;
            if is != *must {
                return wrong(&table.name, is, *must);
            }
        }
        let action = self.action.as_ref().map(|action| table.action(action));
        let action = action.transpose().map_err(Failure::lacks)?;
        if action.is_none() && table.kind != TableKind::RegisterParameter {
            return Err(Failure::mismatch(
                &table.name,
                format!("{:?}", table.kind),
                "a parameter of a register".to_owned(),
            ));
        }
        for (parameter, must) in &self.parameters {
            let field =
                action.map_or_else(|| table.field(parameter), |action| action.field(parameter));
            let is = field.map_err(Failure::lacks)?.kind.bits().map_err(Failure::program)?;
            if is != *must {
                return wrong(&format!("{parameter} of {}", table.name), is, *must);
            }
        }
        Ok(())
    }

    /// Returns the desired contents in the program's terms.
    pub(super) fn content(
        &self,
        schema: &Schema,
        desired: &DesiredState,
    ) -> Result<Content, Failure> {
        let table = schema.table(&self.name).map_err(Failure::program)?;
        let TableContents { entries, default } = (self.filling)(desired);
        let data = |values: Values| {
            let named: Vec<_> = self.parameters.iter().map(|(name, _)| *name).zip(values).collect();
            match &self.action {
                Some(action) => entries::action_data(table, action, &named),
                None => Ok(Data::fields(named)),
            }
        };
        let entries = entries.into_iter().map(|(keys, values)| {
            let named_key = |(field, matched)| {
                Ok((table.key(field).map_err(Failure::program)?.name.clone(), matched))
            };
            let key = keys.into_iter().map(named_key).collect::<Result<Key, Failure>>()?;
            Ok(Entry { place: EntryTarget::Key(key), data: data(values)? })
        });
        let default = default.map(data);
        let (entries, default) = (entries.collect::<Result<_, _>>()?, default.transpose()?);
        Ok(Content { table: self.name.clone(), entries, default, changes: self.changes })
    }
}
