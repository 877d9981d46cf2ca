//! Tables of a program: `bfrt.json` as the P4 compiler writes it (schema version 1.0.0), also for
//! the fixed tables of every switch.
//!
//! Ids of tables, actions and fields differ from build to build, so everything is looked up by
//! name. Leading parts of a name may be omitted as long as it is unambiguous: `rank` finds
//! `pipe.Ingress.ip.rank`.

use serde::Deserialize;
use std::collections::HashSet;
use std::fmt;

/// Operation that copies a register or counter from the chip to the driver.
pub const SYNC: &str = "Sync";

/// Supported schema version.
const VERSION: &str = "1.0.0";

/// Tables and digests of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    tables: Vec<Table>,
    filters: Vec<LearnFilter>,
}

/// Object with entries: a match table, a register, a counter, a list of ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Full name, such as `pipe.Ingress.rank`.
    pub name: String,
    /// Id on the wire.
    pub id: u32,
    /// Kind of table.
    pub kind: TableKind,
    /// Maximum number of entries. Indices of registers and counters are below it.
    pub size: u64,
    /// Key fields; empty for a table with only a default entry.
    pub keys: Vec<KeyField>,
    /// Actions; empty for registers and similar tables.
    pub actions: Vec<Action>,
    /// Data fields other than those of actions.
    pub data: Vec<Field>,
    /// Operations on the whole table, such as `Sync`.
    pub operations: Vec<String>,
    /// Whether the program fixes the default action.
    pub constant_default: bool,
    /// Whether it cannot be written.
    pub read_only: bool,
    /// Annotations in the source, such as `@user_annotation("a", "b")`.
    pub annotations: Vec<String>,
}

/// Kind of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// Match-action table.
    Match,
    /// Register, whose entries are indices with one value per pipe.
    Register,
    /// Indexed counter.
    Counter,
    /// Parameter of a register's action.
    RegisterParameter,
    /// Any other kind, by its name in the schema.
    Other(String),
}

impl TableKind {
    /// Whether entries are indices, which always exist and cannot be removed.
    #[must_use]
    pub fn is_indexed(&self) -> bool {
        matches!(self, TableKind::Register | TableKind::Counter)
    }
}

/// Match kind of a key field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchKind {
    /// Exact match.
    Exact,
    /// Match where the mask has ones.
    Ternary,
    /// Longest-prefix match.
    Lpm,
    /// Range.
    Range,
    /// Exact match, or ignored.
    Optional,
}

impl fmt::Display for MatchKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MatchKind::Exact => "exact",
            MatchKind::Ternary => "ternary",
            MatchKind::Lpm => "lpm",
            MatchKind::Range => "range",
            MatchKind::Optional => "optional",
        })
    }
}

/// Field of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyField {
    /// Name, such as `$REGISTER_INDEX`.
    pub name: String,
    /// Id on the wire.
    pub id: u32,
    /// Match kind.
    pub match_kind: MatchKind,
    /// Type of its values.
    pub kind: FieldKind,
}

/// Field of an action's or a table's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name.
    pub name: String,
    /// Id on the wire.
    pub id: u32,
    /// Type of its values.
    pub kind: FieldKind,
    /// Whether it is a list.
    pub repeated: bool,
    /// Whether every entry must have it.
    pub mandatory: bool,
    /// Whether it cannot be written.
    pub read_only: bool,
}

/// Action of a match table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// Name, such as `Ingress.set_level`.
    pub name: String,
    /// Id on the wire.
    pub id: u32,
    /// Parameters.
    pub data: Vec<Field>,
    /// Whether entries may use it.
    pub in_entries: bool,
    /// Whether the default entry may use it.
    pub as_default: bool,
}

/// Digest that the data plane sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnFilter {
    /// Full name, such as `pipe.IgDeparser.digest`.
    pub name: String,
    /// Id on the wire.
    pub id: u32,
    /// Fields of a message.
    pub fields: Vec<Field>,
}

/// Type of a field's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// Number of this many bits, big-endian on the wire.
    Bits(u32),
    /// Boolean.
    Bool,
    /// Text; one of these choices, if there are any.
    Text(Vec<String>),
    /// Floating-point number.
    Float,
    /// Nested fields.
    Container(Vec<Field>),
}

impl FieldKind {
    /// Returns the number of bytes of a number on the wire.
    ///
    /// # Errors
    /// [`SchemaError`] if it is not a number.
    pub fn bytes(&self) -> Result<usize, SchemaError> {
        Ok(self.bits()?.div_ceil(8) as usize)
    }

    /// Returns the width of a number in bits.
    ///
    /// # Errors
    /// [`SchemaError`] if it is not a number.
    pub fn bits(&self) -> Result<u32, SchemaError> {
        match self {
            FieldKind::Bits(bits) => Ok(*bits),
            other => Err(SchemaError(format!("it is no number but {other}"))),
        }
    }

    /// Checks that these bytes are a number of exactly this width.
    ///
    /// # Errors
    /// [`SchemaError`] if they are not.
    pub fn check(&self, bytes: &[u8]) -> Result<(), SchemaError> {
        let (bits, given, expected) = (self.bits()?, bytes.len(), self.bytes()?);
        if given != expected {
            return Err(SchemaError(format!(
                "{given} bytes given where {expected} hold its {bits} bits"
            )));
        }
        let spare = (expected as u32 * 8).saturating_sub(bits);
        match bytes.first() {
            Some(first) if spare > 0 && first >> (8 - spare) != 0 => Err(too_large(bytes, bits)),
            _ => Ok(()),
        }
    }

    /// Decodes a number.
    ///
    /// # Errors
    /// [`SchemaError`] if the field is wider than 64 bits, or the bytes do not have its width.
    pub fn decode(&self, bytes: &[u8]) -> Result<u64, SchemaError> {
        self.check(bytes)?;
        u64::try_from(number(bytes)).map_err(|_| too_large(bytes, 64))
    }
}

fn too_large(bytes: &[u8], bits: u32) -> SchemaError {
    SchemaError(format!("{:#x} does not fit in its {bits} bits", number(bytes)))
}

/// Decodes big-endian bytes. Only the last 16 are used.
fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

impl fmt::Display for FieldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldKind::Bits(bits) => write!(f, "{bits} bits"),
            FieldKind::Bool => f.write_str("true or false"),
            FieldKind::Text(choices) if choices.is_empty() => f.write_str("text"),
            FieldKind::Text(choices) => write!(f, "one of {}", choices.join(", ")),
            FieldKind::Float => f.write_str("a floating-point number"),
            FieldKind::Container(_) => f.write_str("a container"),
        }
    }
}

/// Schema that cannot be read, or item or value that does not fit it; in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SchemaError(String);

impl SchemaError {
    pub(crate) fn new(problem: impl Into<String>) -> Self {
        SchemaError(problem.into())
    }

    fn unknown_id(what: &str, id: u32, place: &str) -> Self {
        SchemaError(format!("there is no {what} with number {id} in {place}"))
    }

    fn malformed(item: &str, problem: impl fmt::Display) -> Self {
        SchemaError(format!("{item} in the schema: {problem}"))
    }
}

fn list(names: &[&str]) -> String {
    const SHOWN: usize = 12;
    match names {
        [] => "none".to_owned(),
        names if names.len() > SHOWN => {
            format!("{} and {} more", names[..SHOWN].join(", "), names.len() - SHOWN)
        }
        names => names.join(", "),
    }
}

/// Returns the only item with this name, or whose name ends with it after a dot.
fn find<'a, T>(
    items: &'a [T],
    what: &str,
    name: &str,
    of: impl Fn(&T) -> &str,
) -> Result<&'a T, SchemaError> {
    if let Some(item) = items.iter().find(|item| of(item) == name) {
        return Ok(item);
    }
    let ends = |item: &&T| of(item).strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
    let found: Vec<&T> = items.iter().filter(ends).collect();
    let names = |items: &mut dyn Iterator<Item = &T>| list(&items.map(&of).collect::<Vec<_>>());
    match found[..] {
        [item] => Ok(item),
        [] => {
            let present = names(&mut items.iter());
            Err(SchemaError(format!("there is no {what} {name}; there are: {present}")))
        }
        _ => {
            let candidates = names(&mut found.iter().copied());
            let problem = format!("{what} {name} may mean any of {candidates}");
            Err(SchemaError(format!("{problem}; give more of the name")))
        }
    }
}

impl Schema {
    /// Parses a `bfrt.json`.
    ///
    /// # Errors
    /// [`SchemaError`] if it is not one, or is inconsistent.
    pub fn parse(json: &[u8]) -> Result<Self, SchemaError> {
        let file: json::File = serde_json::from_slice(json).map_err(|error| {
            let advice = "is it the bfrt.json of the program's compiler?";
            SchemaError(format!("the schema cannot be read: {error}; {advice}"))
        })?;
        if let Some(found) = file.schema_version.filter(|version| version != VERSION) {
            let advice = "compile the program with SDE 9 or its open-source compiler";
            let problem = format!("the schema has version {found}, {VERSION} can be read");
            return Err(SchemaError(format!("{problem}; {advice}")));
        }
        let tables = json::each(file.tables, json::Table::read)?;
        let filters = json::each(file.learn_filters.unwrap_or_default(), json::LearnFilter::read)?;
        let schema = Schema { tables, filters };
        schema.check()?;
        Ok(schema)
    }

    /// Merges the tables of two schemas.
    ///
    /// # Errors
    /// [`SchemaError`] if they share a name or an id.
    pub fn join(mut self, other: Schema) -> Result<Self, SchemaError> {
        self.tables.extend(other.tables);
        self.filters.extend(other.filters);
        self.check()?;
        Ok(self)
    }

    fn check(&self) -> Result<(), SchemaError> {
        let unique = |what: &str, items: &mut dyn Iterator<Item = (&str, u32)>| {
            let (mut names, mut ids) = (HashSet::new(), HashSet::new());
            for (name, id) in items {
                let problem = match (names.insert(name.to_owned()), ids.insert(id)) {
                    (true, true) => continue,
                    (false, _) => "its name is there twice".to_owned(),
                    (true, false) => format!("its number {id} is there twice"),
                };
                return Err(SchemaError::malformed(&format!("{what} {name}"), problem));
            }
            Ok(())
        };
        unique("table", &mut self.tables.iter().map(|table| (&*table.name, table.id)))?;
        unique("digest", &mut self.filters.iter().map(|filter| (&*filter.name, filter.id)))?;
        for table in &self.tables {
            let name = &table.name;
            unique(
                &format!("{name}: key"),
                &mut table.keys.iter().map(|key| (&*key.name, key.id)),
            )?;
            unique(
                &format!("{name}: action"),
                &mut table.actions.iter().map(|action| (&*action.name, action.id)),
            )?;
            unique(
                &format!("{name}: data"),
                &mut table.data.iter().map(|field| (&*field.name, field.id)),
            )?;
            for action in &table.actions {
                unique(
                    &format!("{}: data", action.name),
                    &mut action.data.iter().map(|field| (&*field.name, field.id)),
                )?;
            }
        }
        Ok(())
    }

    /// Returns all tables.
    #[must_use]
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// Returns the table with this full name, or unambiguous end of one.
    ///
    /// # Errors
    /// [`SchemaError`] if the schema has none, or several.
    pub fn table(&self, name: &str) -> Result<&Table, SchemaError> {
        find(&self.tables, "table", name, |table| &table.name)
    }

    /// Returns the table with this id.
    ///
    /// # Errors
    /// [`SchemaError`] if the schema has none.
    pub fn table_by_id(&self, id: u32) -> Result<&Table, SchemaError> {
        let found = self.tables.iter().find(|table| table.id == id);
        found.ok_or_else(|| SchemaError::unknown_id("table", id, "the schema"))
    }

    /// Returns the digest with this full name, or unambiguous end of one.
    ///
    /// # Errors
    /// [`SchemaError`] if the schema has none, or several.
    pub fn filter(&self, name: &str) -> Result<&LearnFilter, SchemaError> {
        find(&self.filters, "digest", name, |filter| &filter.name)
    }
}

impl Table {
    fn unknown(&self, what: &str, id: u32) -> SchemaError {
        SchemaError::unknown_id(what, id, &self.name)
    }

    /// Returns the key field with this full name, or unambiguous end of one.
    ///
    /// # Errors
    /// [`SchemaError`] if the schema has none, or several.
    pub fn key(&self, name: &str) -> Result<&KeyField, SchemaError> {
        find(&self.keys, "key field", name, |key| &key.name)
    }

    /// Returns the key field with this id.
    ///
    /// # Errors
    /// [`SchemaError`] if the schema has none.
    pub fn key_by_id(&self, id: u32) -> Result<&KeyField, SchemaError> {
        self.keys.iter().find(|key| key.id == id).ok_or_else(|| self.unknown("key field", id))
    }

    /// Returns the action with this full name, or unambiguous end of one.
    ///
    /// # Errors
    /// [`SchemaError`] if the schema has none, or several.
    pub fn action(&self, name: &str) -> Result<&Action, SchemaError> {
        find(&self.actions, "action", name, |action| &action.name)
    }

    /// Returns the action with this id.
    ///
    /// # Errors
    /// [`SchemaError`] if the schema has none.
    pub fn action_by_id(&self, id: u32) -> Result<&Action, SchemaError> {
        self.actions.iter().find(|action| action.id == id).ok_or_else(|| self.unknown("action", id))
    }

    /// Returns the data field, other than those of actions, with this full name or unambiguous end
    /// of one.
    ///
    /// # Errors
    /// [`SchemaError`] if the schema has none, or several.
    pub fn field(&self, name: &str) -> Result<&Field, SchemaError> {
        find(&self.data, "data field", name, |field| &field.name)
    }

    /// Returns the data field with this id, of the action if there is one, else of the table.
    ///
    /// # Errors
    /// [`SchemaError`] if the schema has none.
    pub fn field_by_id<'a>(
        &'a self,
        action: Option<&'a Action>,
        id: u32,
    ) -> Result<&'a Field, SchemaError> {
        let of_action = action.map(|action| &action.data[..]).unwrap_or_default();
        let mut fields = of_action.iter().chain(&self.data);
        fields.find(|field| field.id == id).ok_or_else(|| self.unknown("data field", id))
    }

    /// Whether the table offers an operation.
    #[must_use]
    pub fn offers(&self, operation: &str) -> bool {
        self.operations.iter().any(|offered| offered == operation)
    }
}

impl Action {
    /// Returns the parameter with this name.
    ///
    /// # Errors
    /// [`SchemaError`] if the schema has none, or several.
    pub fn field(&self, name: &str) -> Result<&Field, SchemaError> {
        find(&self.data, "action parameter", name, |field| &field.name)
    }
}

/// Structure of the JSON file.
mod json {
    use super::{Deserialize, FieldKind, MatchKind, SchemaError, TableKind};

    #[derive(Deserialize)]
    pub(super) struct File {
        pub(super) schema_version: Option<String>,
        pub(super) tables: Vec<Table>,
        pub(super) learn_filters: Option<Vec<LearnFilter>>,
    }

    #[derive(Deserialize)]
    pub(super) struct Table {
        name: String,
        id: u32,
        table_type: String,
        size: u64,
        #[serde(default)]
        key: Vec<Key>,
        #[serde(default)]
        action_specs: Vec<Action>,
        #[serde(default)]
        data: Vec<Data>,
        #[serde(default)]
        supported_operations: Vec<String>,
        #[serde(default)]
        has_const_default_action: bool,
        #[serde(default)]
        read_only: bool,
        #[serde(default)]
        annotations: Vec<Annotation>,
    }

    #[derive(Deserialize)]
    struct Annotation {
        name: String,
    }

    #[derive(Deserialize)]
    struct Key {
        id: u32,
        name: String,
        match_type: String,
        r#type: Type,
    }

    #[derive(Deserialize)]
    struct Action {
        id: u32,
        name: String,
        #[serde(default)]
        action_scope: Option<String>,
        #[serde(default)]
        data: Vec<Field>,
    }

    /// A data field may also be a choice between several, which the tables used here do not have.
    #[derive(Deserialize)]
    struct Data {
        #[serde(default)]
        mandatory: bool,
        #[serde(default)]
        read_only: bool,
        singleton: Option<Field>,
    }

    #[derive(Deserialize)]
    struct Field {
        id: u32,
        name: String,
        #[serde(default)]
        repeated: bool,
        #[serde(default)]
        mandatory: bool,
        #[serde(default)]
        read_only: bool,
        r#type: Option<Type>,
        container: Option<Vec<Data>>,
    }

    #[derive(Deserialize)]
    struct Type {
        r#type: String,
        width: Option<u32>,
        #[serde(default)]
        choices: Vec<String>,
    }

    #[derive(Deserialize)]
    pub(super) struct LearnFilter {
        name: String,
        id: u32,
        fields: Vec<Field>,
    }

    pub(super) fn each<T, U>(
        items: Vec<T>,
        read: impl FnMut(T) -> Result<U, SchemaError>,
    ) -> Result<Vec<U>, SchemaError> {
        items.into_iter().map(read).collect()
    }

    fn singletons(data: Vec<Data>, place: &str) -> Result<Vec<super::Field>, SchemaError> {
        let flags = |data: Data| {
            let Data { mandatory, read_only, singleton } = data;
            Some(Field { mandatory, read_only, ..singleton? })
        };
        each(data.into_iter().filter_map(flags).collect(), |field| field.read(place))
    }

    impl Table {
        pub(super) fn read(self) -> Result<super::Table, SchemaError> {
            let kind = match &*self.table_type {
                "MatchAction_Direct" | "MatchAction_Indirect" | "MatchAction_Indirect_Selector" => {
                    TableKind::Match
                }
                "Register" => TableKind::Register,
                "Counter" => TableKind::Counter,
                "RegisterParam" => TableKind::RegisterParameter,
                _ => TableKind::Other(self.table_type),
            };
            let name = &self.name;
            Ok(super::Table {
                id: self.id,
                kind,
                size: self.size,
                keys: each(self.key, |key| key.read(name))?,
                actions: each(self.action_specs, |action| action.read(name))?,
                data: singletons(self.data, name)?,
                operations: self.supported_operations,
                constant_default: self.has_const_default_action,
                read_only: self.read_only,
                annotations: self.annotations.into_iter().map(|one| one.name).collect(),
                name: self.name,
            })
        }
    }

    impl Key {
        fn read(self, table: &str) -> Result<super::KeyField, SchemaError> {
            let item = format!("key field {} of {table}", self.name);
            let match_kind = match &*self.match_type {
                "Exact" => MatchKind::Exact,
                "Ternary" => MatchKind::Ternary,
                "LPM" => MatchKind::Lpm,
                "Range" => MatchKind::Range,
                "Optional" => MatchKind::Optional,
                other => {
                    return Err(SchemaError::malformed(
                        &item,
                        format!("matches in an unknown way, {other}"),
                    ));
                }
            };
            Ok(super::KeyField {
                kind: self.r#type.read(&item)?,
                name: self.name,
                id: self.id,
                match_kind,
            })
        }
    }

    impl Action {
        fn read(self, table: &str) -> Result<super::Action, SchemaError> {
            let (in_entries, as_default) = match self.action_scope.as_deref() {
                None | Some("TableAndDefault") => (true, true),
                Some("TableOnly") => (true, false),
                Some("DefaultOnly") => (false, true),
                Some(other) => {
                    return Err(SchemaError::malformed(
                        &format!("action {} of {table}", self.name),
                        format!("has an unknown scope, {other}"),
                    ));
                }
            };
            let data = each(self.data, |field| field.read(&self.name))?;
            Ok(super::Action { name: self.name, id: self.id, data, in_entries, as_default })
        }
    }

    impl Field {
        fn read(self, place: &str) -> Result<super::Field, SchemaError> {
            let item = format!("field {} of {place}", self.name);
            let kind = match (self.r#type, self.container) {
                (Some(r#type), _) => r#type.read(&item)?,
                (None, Some(parts)) => FieldKind::Container(singletons(parts, &item)?),
                (None, None) => return Err(SchemaError::malformed(&item, "has no type")),
            };
            Ok(super::Field {
                name: self.name,
                id: self.id,
                kind,
                repeated: self.repeated,
                mandatory: self.mandatory,
                read_only: self.read_only,
            })
        }
    }

    impl Type {
        fn read(self, item: &str) -> Result<FieldKind, SchemaError> {
            Ok(match (&*self.r#type, self.width) {
                ("bytes", None) => {
                    return Err(SchemaError::malformed(item, "is of bytes without a width"));
                }
                ("bytes", Some(bits)) if !(1..=4096).contains(&bits) => {
                    return Err(SchemaError::malformed(
                        item,
                        format!("cannot be {bits} bits wide"),
                    ));
                }
                ("bytes", Some(bits)) => FieldKind::Bits(bits),
                ("uint8", _) => FieldKind::Bits(8),
                ("uint16", _) => FieldKind::Bits(16),
                ("uint32", _) => FieldKind::Bits(32),
                ("uint64", _) => FieldKind::Bits(64),
                ("bool", _) => FieldKind::Bool,
                ("float", _) => FieldKind::Float,
                ("string", _) => FieldKind::Text(self.choices),
                (other, _) => {
                    return Err(SchemaError::malformed(
                        item,
                        format!("has an unknown type, {other}"),
                    ));
                }
            })
        }
    }

    impl LearnFilter {
        pub(super) fn read(self) -> Result<super::LearnFilter, SchemaError> {
            let fields = each(self.fields, |field| field.read(&self.name))?;
            Ok(super::LearnFilter { name: self.name, id: self.id, fields })
        }
    }
}
