//! Entries of tables, as they are in messages to and from a switch.

use crate::error::Failure;
use flowgauge_bfruntime::schema::{Field, FieldKind, LearnFilter, Table};
use flowgauge_bfruntime::{Data, Entry, codec, proto};
use std::ops::Range;

/// Returns an action with the values of its parameters.
pub(super) fn action_data(
    table: &Table,
    action: &str,
    values: &[(&str, Vec<u8>)],
) -> Result<Data, Failure> {
    let action = table.action(action).map_err(Failure::program)?;
    let mut data = Vec::new();
    for (parameter, value) in values {
        data.push((&*action.field(parameter).map_err(Failure::program)?.name, value.clone()));
    }
    Ok(Data { action: Some(action.name.clone()), ..Data::fields(data) })
}

/// Encodes an update of an entry. It fits the schema, which was checked.
pub(super) fn update(
    table: &Table,
    kind: proto::update::Type,
    entry: &Entry,
) -> Result<proto::Update, Failure> {
    let message = codec::encode_entry(table, entry).map_err(Failure::program)?;
    Ok(proto::Update { r#type: kind.into(), entity: Some(entity(message)) })
}

/// Encodes the removal of an entry.
pub(super) fn removal(table: &Table, entry: &Entry) -> Result<proto::Update, Failure> {
    let kind = proto::update::Type::Delete;
    let update = update(table, kind, entry)?;
    let without_data = |entity: proto::Entity| match entity.entity {
        Some(proto::entity::Entity::TableEntry(entry)) => {
            self::entity(proto::TableEntry { data: None, ..entry })
        }
        _ => entity,
    };
    Ok(proto::Update { entity: update.entity.map(without_data), ..update })
}

pub(super) fn entity(entry: proto::TableEntry) -> proto::Entity {
    proto::Entity { entity: Some(proto::entity::Entity::TableEntry(entry)) }
}

/// Returns the entry that stands for all of a table, in reads and deletions.
pub(super) fn all(table: &Table) -> proto::TableEntry {
    proto::TableEntry { table_id: table.id, ..Default::default() }
}

/// Decodes an entry, which must be of this table.
pub(super) fn decode(table: &Table, message: &proto::TableEntry) -> Result<Entry, Failure> {
    if message.table_id != table.id {
        return Err(Failure::answer(format!(
            "an entry of table {} and not of {}, {}",
            message.table_id, table.name, table.id
        )));
    }
    codec::decode_entry(table, message).map_err(|error| Failure::answer(error.to_string()))
}

/// Returns the entries that request elements of a register or counter.
pub(super) fn elements(
    table: &Table,
    key: &str,
    range: Range<usize>,
) -> Result<Vec<proto::TableEntry>, Failure> {
    let key = table.key(key).map_err(Failure::program)?;
    let entry = |index: usize| {
        let exact = proto::key_field::Exact { value: (index as u32).to_be_bytes().to_vec() };
        let field = proto::KeyField {
            field_id: key.id,
            match_type: Some(proto::key_field::MatchType::Exact(exact)),
        };
        let value = Some(proto::table_entry::Value::Key(proto::TableKey { fields: vec![field] }));
        proto::TableEntry { value, ..all(table) }
    };
    Ok(range.map(entry).collect())
}

/// Sorts the requested entries of an indexed table; each must be present once.
pub(super) fn indexed<'a>(
    table: &Table,
    key: &str,
    range: Range<usize>,
    answer: &'a [proto::TableEntry],
) -> Result<Vec<&'a proto::TableEntry>, Failure> {
    let problem = |problem: String| Failure::answer(format!("{}: {problem}", table.name));
    let key = table.key(key).map_err(Failure::program)?;
    let mut indexed = vec![None; range.len()];
    for message in answer {
        if message.table_id != table.id {
            return Err(problem(format!(
                "an entry of table {} and not of {}",
                message.table_id, table.id
            )));
        }
        let Some(proto::table_entry::Value::Key(fields)) = &message.value else {
            return Err(problem("an entry without a key".into()));
        };
        let [
            proto::KeyField {
                field_id,
                match_type: Some(proto::key_field::MatchType::Exact(exact)),
            },
        ] = &fields.fields[..]
        else {
            return Err(problem("an entry whose key is no index".into()));
        };
        if *field_id != key.id {
            return Err(problem(format!("a key field {field_id} and not {}", key.id)));
        }
        let index =
            key.kind.decode(&exact.value).map_err(|error| problem(format!("index: {error}")))?;
        let at = usize::try_from(index).ok().and_then(|index| index.checked_sub(range.start));
        let slot = at.and_then(|at| indexed.get_mut(at));
        let asked = || {
            format!(
                "an index {index}, where {} to {} were asked for",
                range.start,
                range.end.saturating_sub(1)
            )
        };
        if slot.ok_or_else(|| problem(asked()))?.replace(message).is_some() {
            return Err(problem(format!("index {index} twice")));
        }
    }
    let missing = indexed.iter().filter(|entry| entry.is_none()).count();
    let complete: Option<Vec<_>> = indexed.into_iter().collect();
    complete.ok_or_else(|| problem(format!("{missing} of {} entries are missing", range.len())))
}

/// Returns the number in a field, if it is the field with this ID.
pub(super) fn number(field: &proto::DataField, id: u32) -> Option<&[u8]> {
    match &field.value {
        Some(proto::data_field::Value::Stream(bytes)) if field.field_id == id => Some(bytes),
        _ => None,
    }
}

/// Field of a digest.
pub(super) struct DigestField {
    id: u32,
    kind: FieldKind,
}

impl DigestField {
    /// Finds a number of a digest.
    pub(super) fn find(digest: &LearnFilter, name: &str) -> Result<Self, Failure> {
        let field = digest.fields.iter().find(|field| field.name.rsplit('.').next() == Some(name));
        let Field { id, kind, .. } =
            field.ok_or_else(|| Failure::lacks(format!("{} has no field {name}", digest.name)))?;
        kind.bits().map_err(Failure::program)?;
        Ok(DigestField { id: *id, kind: kind.clone() })
    }

    /// Reads the number; `None` if it is missing or not what the schema says.
    pub(super) fn read(&self, digest: &proto::TableData) -> Option<u64> {
        let mut bytes = digest.fields.iter().filter_map(|part| number(part, self.id));
        self.kind.decode(bytes.next()?).ok()
    }
}
