//! Conversion between entries by name and messages by id.
//!
//! Both directions follow the schema strictly: a number of the wrong width, an unknown field or a
//! match of the wrong kind is an error that names it, and is never converted to some other value.

use crate::entry::{Data, Entry, EntryTarget, Key, Match, Value};
use crate::proto::{self, data_field, key_field, table_entry};
use crate::schema::{Action, Field, FieldKind, KeyField, MatchKind, SchemaError, Table, TableKind};
use std::collections::BTreeMap;
use std::fmt;

/// Name of the key field that orders overlapping entries.
pub const PRIORITY: &str = "$MATCH_PRIORITY";

fn wrong(table: &Table, problem: impl fmt::Display) -> SchemaError {
    SchemaError::new(format!("{}: {problem}", table.name))
}

fn width(table: &Table, field: &str) -> impl Fn(SchemaError) -> SchemaError {
    move |error| wrong(table, format!("{field}: {error}"))
}

/// Completeness of an entry's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completeness {
    /// New entry, with all mandatory fields.
    Whole,
    /// Change to an entry; missing fields keep their values.
    Part,
}

/// Encodes a key as a message.
///
/// # Errors
/// [`SchemaError`] if it is not a key of this table.
pub fn encode_key(table: &Table, key: &Key) -> Result<proto::TableKey, SchemaError> {
    let fields = key.iter().map(|(name, part)| {
        let field = table.key(name)?;
        check_match(table, field, part)?;
        let match_type = match part.clone() {
            Match::Exact(value) => key_field::MatchType::Exact(key_field::Exact { value }),
            Match::Ternary { value, mask } => {
                key_field::MatchType::Ternary(key_field::Ternary { value, mask })
            }
            Match::Lpm { value, prefix_length } => {
                let prefix_len =
                    i32::try_from(prefix_length).map_err(|_| wrong(table, "prefix too long"))?;
                key_field::MatchType::Lpm(key_field::Lpm { value, prefix_len })
            }
            Match::Range { low, high } => {
                key_field::MatchType::Range(key_field::Range { low, high })
            }
            Match::Optional(value) => {
                let is_valid = value.is_some();
                key_field::MatchType::Optional(key_field::Optional {
                    value: value.unwrap_or_default(),
                    is_valid,
                })
            }
        };
        Ok(proto::KeyField { field_id: field.id, match_type: Some(match_type) })
    });
    Ok(proto::TableKey { fields: fields.collect::<Result<_, SchemaError>>()? })
}

/// Decodes a key from a message, with full names. Fields omitted because they match everything are
/// added.
///
/// # Errors
/// [`SchemaError`] if it is not a key of this table.
pub fn decode_key(table: &Table, message: &proto::TableKey) -> Result<Key, SchemaError> {
    let mut key = BTreeMap::new();
    for part in &message.fields {
        let field = table.key_by_id(part.field_id)?;
        let Some(match_type) = &part.match_type else {
            return Err(wrong(table, format!("{} has no value", field.name)));
        };
        let part = canonical(table, field, match_type)?;
        check_match(table, field, &part)?;
        if key.insert(field.name.clone(), part).is_some() {
            return Err(wrong(table, format!("{} is there twice", field.name)));
        }
    }
    for field in &table.keys {
        if !key.contains_key(&field.name) {
            let everything = matches_everything(table, field)?;
            key.insert(field.name.clone(), everything);
        }
    }
    Ok(key)
}

fn canonical(
    table: &Table,
    field: &KeyField,
    match_type: &key_field::MatchType,
) -> Result<Match, SchemaError> {
    Ok(match match_type {
        key_field::MatchType::Exact(exact) => Match::Exact(exact.value.clone()),
        key_field::MatchType::Ternary(ternary) => {
            let mask = ternary.mask.clone();
            let value = ternary.value.iter().zip(&mask).map(|(value, mask)| value & mask);
            let value: Vec<u8> = value.collect();
            if value.len() != ternary.value.len() {
                return Err(wrong(
                    table,
                    format!("{}: value and mask are not of the same length", field.name),
                ));
            }
            Match::Ternary { value, mask }
        }
        key_field::MatchType::Lpm(lpm) => {
            let prefix_length = u32::try_from(lpm.prefix_len).map_err(|_| {
                wrong(table, format!("{}: a prefix of {} bits", field.name, lpm.prefix_len))
            })?;
            let bits = field.kind.bits().map_err(width(table, &field.name))?;
            field.kind.check(&lpm.value).map_err(width(table, &field.name))?;
            Match::Lpm { value: keep_first(&lpm.value, bits, prefix_length), prefix_length }
        }
        key_field::MatchType::Range(range) => {
            Match::Range { low: range.low.clone(), high: range.high.clone() }
        }
        key_field::MatchType::Optional(optional) => {
            Match::Optional(optional.is_valid.then(|| optional.value.clone()))
        }
    })
}

/// Returns a value of `bits` bits with everything after the first `prefix` bits cleared.
fn keep_first(value: &[u8], bits: u32, prefix: u32) -> Vec<u8> {
    let behind = bits.saturating_sub(prefix) as usize;
    let mut kept = value.to_vec();
    for (index, byte) in kept.iter_mut().rev().enumerate() {
        let zeroed = behind.saturating_sub(index * 8).min(8) as u32;
        *byte &= u8::MAX.checked_shl(zeroed).unwrap_or(0);
    }
    kept
}

fn matches_everything(table: &Table, field: &KeyField) -> Result<Match, SchemaError> {
    let length = || field.kind.bytes().map_err(width(table, &field.name));
    Ok(match field.match_kind {
        MatchKind::Exact if field.name == PRIORITY => Match::Exact(vec![0; length()?]),
        MatchKind::Exact => {
            return Err(wrong(
                table,
                format!("the key has no {}, which must match exactly", field.name),
            ));
        }
        MatchKind::Ternary => {
            Match::Ternary { value: vec![0; length()?], mask: vec![0; length()?] }
        }
        MatchKind::Lpm => Match::Lpm { value: vec![0; length()?], prefix_length: 0 },
        MatchKind::Range => {
            let bits = field.kind.bits().map_err(width(table, &field.name))?;
            let mut high = vec![u8::MAX; length()?];
            if let Some(first) = high.first_mut() {
                *first = u8::MAX.checked_shr((8 - bits % 8) % 8).unwrap_or(0);
            }
            Match::Range { low: vec![0; length()?], high }
        }
        MatchKind::Optional => Match::Optional(None),
    })
}

fn check_match(table: &Table, field: &KeyField, part: &Match) -> Result<(), SchemaError> {
    let check = |bytes: &[u8]| match &field.kind {
        FieldKind::Text(_) => std::str::from_utf8(bytes)
            .map(drop)
            .map_err(|error| wrong(table, format!("{}: {error}", field.name))),
        kind => kind.check(bytes).map_err(width(table, &field.name)),
    };
    match (field.match_kind, part) {
        (MatchKind::Exact, Match::Exact(value)) => check(value),
        (MatchKind::Ternary, Match::Ternary { value, mask }) => {
            check(value).and_then(|()| check(mask))
        }
        (MatchKind::Lpm, Match::Lpm { value, prefix_length }) => {
            check(value)?;
            let bits = field.kind.bits().map_err(width(table, &field.name))?;
            if *prefix_length > bits {
                return Err(wrong(
                    table,
                    format!("{}: a prefix of {prefix_length} in {bits} bits", field.name),
                ));
            }
            Ok(())
        }
        (MatchKind::Range, Match::Range { low, high }) => {
            check(low).and_then(|()| check(high))?;
            if low > high {
                Err(wrong(table, format!("{}: the range ends before it begins", field.name)))
            } else {
                Ok(())
            }
        }
        (MatchKind::Optional, Match::Optional(value)) => value.as_deref().map_or(Ok(()), check),
        (kind, _) => Err(wrong(
            table,
            format!("{} matches by {kind}, another kind of match was given", field.name),
        )),
    }
}

/// Encodes data as a message.
///
/// # Errors
/// [`SchemaError`] if it is not data of this table.
pub fn encode_data(table: &Table, data: &Data) -> Result<proto::TableData, SchemaError> {
    let action = data.action.as_deref().map(|name| table.action(name)).transpose()?;
    let fields = data.fields.iter().map(|(name, value)| {
        let of_action = action.and_then(|action| action.field(name).ok());
        let field = match of_action {
            Some(field) => field,
            None => table.field(name)?,
        };
        check_value(table, field, value)?;
        Ok(proto::DataField { field_id: field.id, value: Some(to_message(value)) })
    });
    let fields = fields.collect::<Result<_, SchemaError>>()?;
    Ok(proto::TableData { action_id: action.map_or(0, |action| action.id), fields })
}

/// Decodes data from a message, with full names.
///
/// # Errors
/// [`SchemaError`] if it is not data of this table.
pub fn decode_data(
    table: &Table,
    message: &proto::TableData,
    completeness: Completeness,
) -> Result<Data, SchemaError> {
    let action = match message.action_id {
        0 => None,
        id => Some(table.action_by_id(id)?),
    };
    if action.is_none() && !table.actions.is_empty() && completeness == Completeness::Whole {
        return Err(wrong(table, "no action given"));
    }
    let mut fields: Vec<(String, Value)> = Vec::with_capacity(message.fields.len());
    for part in &message.fields {
        let field = table.field_by_id(action, part.field_id)?;
        let value = part
            .value
            .as_ref()
            .ok_or_else(|| wrong(table, format!("{} has no value", field.name)))?;
        let value = from_message(value)
            .ok_or_else(|| wrong(table, format!("{} is a container", field.name)))?;
        check_value(table, field, &value)?;
        // A register has one value per pipe.
        if table.kind != TableKind::Register && fields.iter().any(|(name, _)| *name == field.name) {
            return Err(wrong(table, format!("{} is there twice", field.name)));
        }
        fields.push((field.name.clone(), value));
    }
    if completeness == Completeness::Whole {
        let of_action = action.map(|action| &action.data[..]).unwrap_or_default();
        let mut mandatory = of_action.iter().chain(&table.data).filter(|field| field.mandatory);
        if let Some(field) =
            mandatory.find(|field| fields.iter().all(|(name, _)| *name != field.name))
        {
            return Err(wrong(table, format!("{} is missing", field.name)));
        }
    }
    Ok(Data { action: action.map(|action: &Action| action.name.clone()), fields })
}

fn check_value(table: &Table, field: &Field, value: &Value) -> Result<(), SchemaError> {
    match (&field.kind, value) {
        (FieldKind::Bits(_), Value::Bytes(bytes)) if !field.repeated => {
            field.kind.check(bytes).map_err(width(table, &field.name))
        }
        (FieldKind::Text(choices), Value::Text(text)) if !field.repeated => {
            if choices.is_empty() || choices.contains(text) {
                return Ok(());
            }
            Err(wrong(table, format!("{} cannot be {text}: it is {}", field.name, field.kind)))
        }
        (FieldKind::Bool, Value::Bool(_)) | (FieldKind::Float, Value::Float(_))
            if !field.repeated =>
        {
            Ok(())
        }
        (FieldKind::Bits(_), Value::Numbers(_))
        | (FieldKind::Bool, Value::Bools(_))
        | (FieldKind::Text(_), Value::Texts(_))
            if field.repeated =>
        {
            Ok(())
        }
        (kind, _) => {
            Err(wrong(table, format!("{} is {kind}, another kind of value was given", field.name)))
        }
    }
}

fn to_message(value: &Value) -> data_field::Value {
    match value.clone() {
        Value::Bytes(bytes) => data_field::Value::Stream(bytes),
        Value::Text(text) => data_field::Value::StrVal(text),
        Value::Bool(value) => data_field::Value::BoolVal(value),
        Value::Float(value) => data_field::Value::FloatVal(value),
        Value::Numbers(val) => data_field::Value::IntArrVal(data_field::IntArray { val }),
        Value::Bools(val) => data_field::Value::BoolArrVal(data_field::BoolArray { val }),
        Value::Texts(val) => data_field::Value::StrArrVal(data_field::StrArray { val }),
    }
}

fn from_message(value: &data_field::Value) -> Option<Value> {
    Some(match value {
        data_field::Value::Stream(bytes) => Value::Bytes(bytes.clone()),
        data_field::Value::StrVal(text) => Value::Text(text.clone()),
        data_field::Value::BoolVal(value) => Value::Bool(*value),
        data_field::Value::FloatVal(value) => Value::Float(*value),
        data_field::Value::IntArrVal(array) => Value::Numbers(array.val.clone()),
        data_field::Value::BoolArrVal(array) => Value::Bools(array.val.clone()),
        data_field::Value::StrArrVal(array) => Value::Texts(array.val.clone()),
        data_field::Value::ContainerArrVal(_) => return None,
    })
}

/// Encodes an entry as a message.
///
/// # Errors
/// [`SchemaError`] if it is not an entry of this table.
pub fn encode_entry(table: &Table, entry: &Entry) -> Result<proto::TableEntry, SchemaError> {
    let data = Some(encode_data(table, &entry.data)?);
    let value = match &entry.place {
        EntryTarget::Key(key) => Some(table_entry::Value::Key(encode_key(table, key)?)),
        EntryTarget::Default => None,
    };
    let is_default_entry = entry.place == EntryTarget::Default;
    Ok(proto::TableEntry {
        table_id: table.id,
        value,
        data,
        is_default_entry,
        ..Default::default()
    })
}

/// Decodes an entry of a table, which its id names, from a message.
///
/// # Errors
/// [`SchemaError`] if it is not an entry of this table.
pub fn decode_entry(table: &Table, message: &proto::TableEntry) -> Result<Entry, SchemaError> {
    let place = match &message.value {
        _ if message.is_default_entry => EntryTarget::Default,
        Some(table_entry::Value::Key(key)) => EntryTarget::Key(decode_key(table, key)?),
        Some(table_entry::Value::HandleId(_)) => return Err(wrong(table, "an entry by handle")),
        None => return Err(wrong(table, "an entry without a key")),
    };
    let nothing = proto::TableData::default();
    let data = decode_data(table, message.data.as_ref().unwrap_or(&nothing), Completeness::Part)?;
    Ok(Entry { place, data })
}
