//! Match tables: what the program must have, and what they must hold.

use super::program::{Program, action_data};
use super::{array, names};
use crate::error::Failure;
use crate::tables::Tables;
use flowgauge_bfruntime::schema::{Schema, SchemaError, TableKind};
use flowgauge_bfruntime::{Data, Entry, Key, Match, Place};
use flowgauge_core::BANKS;
use flowgauge_core::delay::{Admission, Kind};

/// What a switch is to hold.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// Computed once.
    pub(super) tables: Tables,
    /// Which requests each bank admits, kind by kind, if shares follow the traffic; as settings
    /// say, where nothing is here.
    pub(super) admissions: [Vec<(Kind, Admission)>; BANKS],
    /// The lowest and the highest entropy that is usual, times 1024, if the switch watches one.
    pub(super) thresholds: [i32; 2],
}

/// A table that looks up one action or nothing; or a parameter of a register's actions, which has
/// one value and no action.
pub(super) struct MatchTable {
    name: String,
    /// Its fields, and how many bits they have.
    keys: Vec<(&'static str, u32)>,
    action: Option<String>,
    /// Those of the action, and how many bits they have.
    parameters: Vec<(&'static str, u32)>,
    /// What it must hold.
    filling: Box<dyn Fn(&Held) -> Filling>,
    /// Whether actions change while the switch counts.
    changes: bool,
}

/// Values of an action's parameters, in their order.
type Values = Vec<Vec<u8>>;

/// What a table must hold.
pub(super) struct Filling {
    pub(super) entries: Vec<(Vec<(&'static str, Match)>, Values)>,
    pub(super) default: Option<Values>,
}

/// Entries that a table must have, and nothing else.
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
        filling: impl Fn(&Held) -> Filling + 'static,
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

    /// A parameter of a register's actions, and its value.
    pub(super) fn of_register(name: String, value: impl Fn(&Held) -> i32 + 'static) -> Self {
        let filling = move |held: &Held| Filling {
            entries: Vec::new(),
            default: Some(vec![value(held).to_be_bytes().to_vec()]),
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

    /// What it is called.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The same, whose actions change while the switch counts.
    pub(super) fn that_changes(self, changes: bool) -> Self {
        MatchTable { changes, ..self }
    }

    /// Checks that the program has it so.
    pub(super) fn check(&self, schema: &Schema) -> Result<(), Failure> {
        let find =
            |error: SchemaError| Failure::program(format!("{error}; is it p4/flowgauge.p4?"));
        let table = schema.table(&self.name).map_err(find)?;
        let wrong = |item: &str, is: u32, must: u32| {
            Err(array::wrong(item, format!("{is} bits wide"), must.to_string()))
        };
        for (key, must) in &self.keys {
            let is = table.key(key).map_err(find)?.kind.bits().map_err(Failure::program)?;
            if is != *must {
                return wrong(&table.name, is, *must);
            }
        }
        let action =
            self.action.as_ref().map(|action| table.action(action)).transpose().map_err(find)?;
        if action.is_none() && table.kind != TableKind::RegisterParameter {
            return Err(array::wrong(
                &table.name,
                format!("{:?}", table.kind),
                "a parameter of a register".to_owned(),
            ));
        }
        for (parameter, must) in &self.parameters {
            let field =
                action.map_or_else(|| table.field(parameter), |action| action.field(parameter));
            let is = field.map_err(find)?.kind.bits().map_err(Failure::program)?;
            if is != *must {
                return wrong(&format!("{parameter} of {}", table.name), is, *must);
            }
        }
        Ok(())
    }

    /// Whether its actions change while the switch counts.
    pub(super) fn changes(&self) -> bool {
        self.changes
    }

    /// What it must hold, as the program has it.
    pub(super) fn content(&self, program: &Program, held: &Held) -> Result<Content, Failure> {
        let table = program.table(&self.name)?;
        let Filling { entries, default } = (self.filling)(held);
        let data = |values: Values| {
            let named: Vec<_> = self.parameters.iter().map(|(name, _)| *name).zip(values).collect();
            match &self.action {
                Some(action) => action_data(table, action, &named),
                None => Ok(Data::fields(named)),
            }
        };
        let entries = entries.into_iter().map(|(keys, values)| {
            let named_key = |(field, matched)| {
                Ok((table.key(field).map_err(Failure::program)?.name.clone(), matched))
            };
            let key = keys.into_iter().map(named_key).collect::<Result<Key, Failure>>()?;
            Ok(Entry { place: Place::Key(key), data: data(values)? })
        });
        let default = default.map(data);
        let (entries, default) = (entries.collect::<Result<_, _>>()?, default.transpose()?);
        Ok(Content { table: self.name.clone(), entries, default, changes: self.changes })
    }
}
