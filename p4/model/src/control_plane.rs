//! Control plane: tables, registers and counters by name, with values as big-endian bytes.

use crate::Model;
use crate::execute::{Pipe, hash_of, to_bytes};
use crate::key::KeyBits;
use crate::matching::{Row, prefix};
use crate::program::{self, CounterKind, HashInput, MatchKind, mask};
use crate::schema::{identifier, prefixes};
use std::ops::Range;

/// Field of action data, of a register element or of a digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldInfo {
    /// Id within its owner.
    pub id: u32,
    /// Name.
    pub name: String,
    /// Width in bits. Values have the minimum number of bytes.
    pub width: u32,
}

/// Field of a table's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    /// Id within the table.
    pub id: u32,
    /// Name.
    pub name: String,
    /// Match kind.
    pub kind: MatchKind,
    /// Width in bits.
    pub width: u32,
}

/// Action of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionInfo {
    /// Id.
    pub id: u32,
    /// Name, without that of the pipeline.
    pub name: String,
    /// Action data of an entry.
    pub data: Vec<FieldInfo>,
    /// Whether only the default action may use it.
    pub default_only: bool,
}

/// Match table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// Id.
    pub id: u32,
    /// Full name.
    pub name: String,
    /// Maximum number of entries.
    pub size: usize,
    /// Key; empty if the table only has a default action.
    pub key: Vec<KeyInfo>,
    /// Actions of entries and the default.
    pub actions: Vec<ActionInfo>,
    /// Whether entries are part of the program and cannot be changed.
    pub constant_entries: bool,
    /// Whether the default action is part of the program and cannot be changed.
    pub constant_default: bool,
    /// Annotations that the compiler writes to the schema.
    pub annotations: Vec<String>,
}

/// Register array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterInfo {
    /// Id.
    pub id: u32,
    /// Full name.
    pub name: String,
    /// Number of elements.
    pub size: usize,
    /// Fields of an element, named as in the schema.
    pub fields: Vec<FieldInfo>,
}

/// Counter array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterInfo {
    /// Id.
    pub id: u32,
    /// Full name.
    pub name: String,
    /// Number of elements.
    pub size: usize,
    /// Counted quantities.
    pub kind: CounterKind,
}

/// Register parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterInfo {
    /// Id.
    pub id: u32,
    /// Full name.
    pub name: String,
    /// Width in bits.
    pub width: u32,
    /// Whether its values are signed.
    pub signed: bool,
    /// Id of the register whose actions read it.
    pub register: Option<u32>,
    /// Initial value.
    pub initial: Vec<u8>,
}

/// Hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashInfo {
    /// Id of the table that computes it.
    pub id: u32,
    /// Full name, to which the schema adds `.compute`.
    pub name: String,
    /// Width of the result in bits.
    pub width: u32,
    /// Hashed fields, in order.
    pub fields: Vec<FieldInfo>,
}

/// Digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DigestInfo {
    /// Id.
    pub id: u32,
    /// Full name.
    pub name: String,
    /// Fields of a message.
    pub fields: Vec<FieldInfo>,
}

/// Match of a key field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// Matches this value.
    Exact(Vec<u8>),
    /// Matches values that start with the first bits of this one.
    Lpm {
        /// Value.
        value: Vec<u8>,
        /// Number of bits.
        length: u32,
    },
    /// Matches values that equal this one where the mask has ones.
    Ternary {
        /// Value.
        value: Vec<u8>,
        /// Mask.
        mask: Vec<u8>,
    },
}

/// Match of each key field, by name.
pub type Key = Vec<(String, Match)>;

/// Action with its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionCall {
    /// Name of the action, without that of the pipeline.
    pub action: String,
    /// Data by field name.
    pub data: Vec<(String, Vec<u8>)>,
}

/// Entry of a match table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Key.
    pub key: Key,
    /// Priority of a ternary entry: the lowest number among matching entries wins. Zero for other
    /// kinds.
    pub priority: u32,
    /// Action.
    pub call: ActionCall,
}

/// Pipes that a call covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pipes {
    /// All pipes.
    All,
    /// One pipe.
    One(usize),
}

/// Value of a counter element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Packets; zero if they are not counted.
    pub packets: u64,
    /// Bytes; zero if they are not counted.
    pub bytes: u64,
}

/// Request that the control plane rejects. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// No table, register, counter or parameter has this name.
    #[error("no {what} {name}")]
    NoSuch {
        /// Kind of object.
        what: &'static str,
        /// Name.
        name: String,
    },
    /// The table has no such action.
    #[error("table {table} has no action {action}")]
    NoSuchAction {
        /// Table.
        table: String,
        /// Action.
        action: String,
    },
    /// A key, an action's data or an element has no such field.
    #[error("{owner} has no field {field}")]
    NoSuchField {
        /// Table, action or register.
        owner: String,
        /// Field.
        field: String,
    },
    /// A field is missing, or given twice.
    #[error("{owner} needs field {field} exactly once")]
    FieldCount {
        /// Table, action or register.
        owner: String,
        /// Field.
        field: String,
    },
    /// A value has the wrong number of bytes, or bits above the field's width.
    #[error("field {field} of {owner} is {width} bits wide; {value:02x?} is not")]
    WrongWidth {
        /// Table, action or register.
        owner: String,
        /// Field.
        field: String,
        /// Width of the field.
        width: u32,
        /// Value.
        value: Vec<u8>,
    },
    /// A field has another match kind.
    #[error("field {field} of {table} is matched {kind:?}")]
    WrongMatch {
        /// Table.
        table: String,
        /// Field.
        field: String,
        /// Match kind of the field.
        kind: MatchKind,
    },
    /// The table has an entry with this key.
    #[error("table {table} already has an entry with this key")]
    Duplicate {
        /// Table.
        table: String,
    },
    /// The table has no entry with this key.
    #[error("table {table} has no entry with this key")]
    NoSuchEntry {
        /// Table.
        table: String,
    },
    /// The table is full.
    #[error("table {table} is full with {size} entries")]
    Full {
        /// Table.
        table: String,
        /// Number of its entries.
        size: usize,
    },
    /// The request would change a part of the program.
    #[error("{what} of table {table} are part of the program")]
    Constant {
        /// Entries or default action.
        what: &'static str,
        /// Table.
        table: String,
    },
    /// A table without a key has no entries, only a default action.
    #[error("table {table} has no key: set its default action")]
    NoKey {
        /// Table.
        table: String,
    },
    /// Index beyond the end.
    #[error("index {index} in {name}, which has {size} elements")]
    IndexOutOfRange {
        /// Register or counter.
        name: String,
        /// Index.
        index: usize,
        /// Number of elements.
        size: usize,
    },
    /// Pipe that does not exist.
    #[error("no pipe {pipe}: there are {pipes}")]
    NoSuchPipe {
        /// Pipe.
        pipe: usize,
        /// Number of pipes.
        pipes: usize,
    },
}

type Result<T> = std::result::Result<T, ControlError>;

fn find<'a, T>(
    all: &'a [T],
    what: &'static str,
    name: &str,
    named: impl Fn(&T) -> &str,
) -> Result<(usize, &'a T)> {
    let found = all.iter().enumerate().find(|(_, one)| named(one) == name);
    found.ok_or_else(|| ControlError::NoSuch { what, name: name.to_owned() })
}

fn number(owner: &str, field: &str, width: u32, value: &[u8]) -> Result<u128> {
    let number = value
        .iter()
        .fold(0_u128, |number, byte| number.checked_shl(8).unwrap_or(0) | u128::from(*byte));
    if value.len() == width.div_ceil(8) as usize && number <= mask(width) {
        Ok(number)
    } else {
        Err(ControlError::WrongWidth {
            owner: owner.to_owned(),
            field: field.to_owned(),
            width,
            value: value.to_vec(),
        })
    }
}

/// Returns the values of `fields`, in order, from values by name.
fn by_name<'a, T>(
    owner: &str,
    fields: impl Iterator<Item = &'a str> + Clone,
    given: &'a [(String, T)],
) -> Result<Vec<&'a T>> {
    if let Some((unknown, _)) =
        given.iter().find(|(name, _)| !fields.clone().any(|field| field == name))
    {
        return Err(ControlError::NoSuchField { owner: owner.to_owned(), field: unknown.clone() });
    }
    let one = |field: &str| match given
        .iter()
        .filter(|(name, _)| name == field)
        .collect::<Vec<_>>()
        .as_slice()
    {
        [(_, value)] => Ok(value),
        _ => Err(ControlError::FieldCount { owner: owner.to_owned(), field: field.to_owned() }),
    };
    fields.map(one).collect()
}

impl Model {
    fn table(&self, name: &str) -> Result<(usize, &program::Table)> {
        find(&self.program.tables, "table", name, |table| &table.name)
    }

    fn changeable(&self, name: &str) -> Result<usize> {
        let (index, table) = self.table(name)?;
        if table.constant_entries {
            return Err(ControlError::Constant { what: "entries", table: name.to_owned() });
        }
        if table.key.is_empty() {
            return Err(ControlError::NoKey { table: name.to_owned() });
        }
        Ok(index)
    }

    /// Returns all match tables.
    #[must_use]
    pub fn tables(&self) -> Vec<TableInfo> {
        self.program.tables.iter().map(|table| self.table_info(table)).collect()
    }

    fn table_info(&self, table: &program::Table) -> TableInfo {
        let key = (1..).zip(&table.key);
        let last = table.actions.len().wrapping_sub(1);
        let actions = table.actions.iter().map(|action| &self.program.actions[*action]).enumerate();
        TableInfo {
            id: identifier(prefixes::TABLE, &table.name),
            name: table.name.to_string(),
            size: table.size,
            key: key
                .map(|(id, field)| KeyInfo {
                    id,
                    name: field.name.clone(),
                    kind: field.kind,
                    width: field.width,
                })
                .collect(),
            actions: actions
                .map(|(at, action)| action_info(action, table.implicit_default && at == last))
                .collect(),
            constant_entries: table.constant_entries,
            constant_default: table.constant_default,
            annotations: table.annotations.clone(),
        }
    }

    /// Returns value, mask and order of a key.
    fn packed_key(
        &self,
        table: usize,
        key: &Key,
        priority: u32,
    ) -> Result<(KeyBits, KeyBits, (u32, u32))> {
        let table = &self.program.tables[table];
        let given = by_name(&table.name, table.key.iter().map(|field| field.name.as_str()), key)?;
        let (mut value, mut masks, mut shorter) = (KeyBits::default(), KeyBits::default(), 0);
        for (field, given) in table.key.iter().zip(given) {
            let parse = |bytes: &[u8]| number(&table.name, &field.name, field.width, bytes);
            let (one, ones) = match (field.kind, given) {
                (MatchKind::Exact, Match::Exact(value)) => (parse(value)?, mask(field.width)),
                (MatchKind::Lpm, Match::Lpm { value, length }) if *length <= field.width => {
                    shorter = field.width - length;
                    (parse(value)?, prefix(*length, field.width))
                }
                (MatchKind::Ternary, Match::Ternary { value, mask }) => {
                    (parse(value)?, parse(mask)?)
                }
                (kind, _) => {
                    let (table, field) = (table.name.to_string(), field.name.clone());
                    return Err(ControlError::WrongMatch { table, field, kind });
                }
            };
            value = value.with(one & ones, field.width);
            masks = masks.with(ones, field.width);
        }
        let ternary = table.key.iter().any(|field| field.kind == MatchKind::Ternary);
        Ok((value, masks, (if ternary { priority } else { 0 }, shorter)))
    }

    fn packed_call(
        &self,
        table: usize,
        call: &ActionCall,
        default: bool,
    ) -> Result<(usize, Vec<u128>)> {
        let table = &self.program.tables[table];
        let hidden = usize::from(table.implicit_default && !default);
        let known = table
            .actions
            .iter()
            .take(table.actions.len() - hidden)
            .find(|action| *self.program.actions[**action].name == *call.action);
        let Some(index) = known else {
            return Err(ControlError::NoSuchAction {
                table: table.name.to_string(),
                action: call.action.clone(),
            });
        };
        let action = &self.program.actions[*index];
        let given = by_name(
            &action.name,
            action.parameters.iter().map(|parameter| &*parameter.name),
            &call.data,
        )?;
        let data = action.parameters.iter().zip(given);
        let data: Result<Vec<u128>> = data
            .map(|(parameter, value)| number(&action.name, &parameter.name, parameter.width, value))
            .collect();
        Ok((*index, data?))
    }

    fn call(&self, action: usize, data: &[u128]) -> ActionCall {
        let action = &self.program.actions[action];
        let data = action.parameters.iter().zip(data);
        let data = data
            .map(|(parameter, value)| {
                (parameter.name.to_string(), to_bytes(*value, parameter.width))
            })
            .collect();
        ActionCall { action: action.name.to_string(), data }
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// [`ControlError`]: unknown names, wrong widths, an existing entry with this key, a full
    /// table, a constant table.
    pub fn add_entry(&mut self, table: &str, entry: &Entry) -> Result<()> {
        let index = self.changeable(table)?;
        let (value, mask, order) = self.packed_key(index, &entry.key, entry.priority)?;
        let (action, data) = self.packed_call(index, &entry.call, false)?;
        let size = self.program.tables[index].size;
        let rows = &mut self.tables[index];
        if rows.contains(value, mask, order) {
            return Err(ControlError::Duplicate { table: table.to_owned() });
        }
        if rows.rows().len() >= size {
            return Err(ControlError::Full { table: table.to_owned(), size });
        }
        rows.insert(Row { value, mask, order, action, data });
        Ok(())
    }

    /// Changes the action or the data of an entry.
    ///
    /// # Errors
    /// [`ControlError`]: unknown names, wrong widths, no entry with this key.
    pub fn modify_entry(&mut self, table: &str, entry: &Entry) -> Result<()> {
        let index = self.changeable(table)?;
        let (value, mask, order) = self.packed_key(index, &entry.key, entry.priority)?;
        let (action, data) = self.packed_call(index, &entry.call, false)?;
        let rows = &mut self.tables[index];
        let found = rows.position(value, mask, order).and_then(|at| rows.row_mut(at));
        let row = found.ok_or_else(|| ControlError::NoSuchEntry { table: table.to_owned() })?;
        row.action = action;
        row.data = data;
        Ok(())
    }

    /// Removes an entry.
    ///
    /// # Errors
    /// [`ControlError`]: unknown names, wrong widths, no entry with this key.
    pub fn delete_entry(&mut self, table: &str, key: &Key, priority: u32) -> Result<()> {
        let index = self.changeable(table)?;
        let (value, mask, order) = self.packed_key(index, key, priority)?;
        let rows = &mut self.tables[index];
        let at = rows
            .position(value, mask, order)
            .ok_or_else(|| ControlError::NoSuchEntry { table: table.to_owned() })?;
        rows.remove(at);
        Ok(())
    }

    /// Removes all entries, but not the default action.
    ///
    /// # Errors
    /// [`ControlError`]: no such table, or a constant one.
    pub fn clear_table(&mut self, table: &str) -> Result<()> {
        let index = self.changeable(table)?;
        self.tables[index].clear();
        Ok(())
    }

    /// Returns the entry with a key.
    ///
    /// # Errors
    /// [`ControlError`]: unknown names, wrong widths, no entry with this key.
    pub fn entry(&self, table: &str, key: &Key, priority: u32) -> Result<Entry> {
        let (index, _) = self.table(table)?;
        let (value, mask, order) = self.packed_key(index, key, priority)?;
        let rows = &self.tables[index];
        let at = rows
            .position(value, mask, order)
            .ok_or_else(|| ControlError::NoSuchEntry { table: table.to_owned() })?;
        Ok(self.unpacked(index, &rows.rows()[at]))
    }

    /// Returns all entries, including those that are part of the program.
    ///
    /// # Errors
    /// [`ControlError`]: no such table.
    pub fn entries(&self, table: &str) -> Result<Vec<Entry>> {
        let (index, _) = self.table(table)?;
        Ok(self.tables[index].rows().iter().map(|row| self.unpacked(index, row)).collect())
    }

    /// Returns the number of entries of a table.
    ///
    /// # Errors
    /// [`ControlError`]: no such table.
    pub fn entry_count(&self, table: &str) -> Result<usize> {
        let (index, _) = self.table(table)?;
        Ok(self.tables[index].rows().len())
    }

    fn unpacked(&self, table: usize, row: &Row) -> Entry {
        let fields = &self.program.tables[table].key;
        let mut below: u32 = fields.iter().map(|field| field.width).sum();
        let mut key = Vec::new();
        for field in fields {
            below -= field.width;
            let ones = row.mask.from(below) & mask(field.width);
            let value = to_bytes(row.value.from(below) & mask(field.width), field.width);
            let one = match field.kind {
                MatchKind::Exact => Match::Exact(value),
                MatchKind::Lpm => Match::Lpm { value, length: ones.count_ones() },
                MatchKind::Ternary => Match::Ternary { value, mask: to_bytes(ones, field.width) },
            };
            key.push((field.name.clone(), one));
        }
        Entry { key, priority: row.order.0, call: self.call(row.action, &row.data) }
    }

    /// Returns the action of packets that match no entry.
    ///
    /// # Errors
    /// [`ControlError`]: no such table.
    pub fn default_action(&self, table: &str) -> Result<ActionCall> {
        let (index, _) = self.table(table)?;
        let (action, data) = &self.tables[index].default;
        Ok(self.call(*action, data))
    }

    /// Sets the action of packets that match no entry.
    ///
    /// # Errors
    /// [`ControlError`]: unknown names, wrong widths, a default action that is part of the program.
    pub fn set_default_action(&mut self, table: &str, call: &ActionCall) -> Result<()> {
        let (index, declared) = self.table(table)?;
        if declared.constant_default {
            return Err(ControlError::Constant {
                what: "default actions",
                table: table.to_owned(),
            });
        }
        self.tables[index].default = self.packed_call(index, call, true)?;
        Ok(())
    }

    /// Restores the initial default action.
    ///
    /// # Errors
    /// [`ControlError`]: no such table, or a default action that is part of the program.
    pub fn reset_default_action(&mut self, table: &str) -> Result<()> {
        let (index, declared) = self.table(table)?;
        if declared.constant_default {
            return Err(ControlError::Constant {
                what: "default actions",
                table: table.to_owned(),
            });
        }
        self.tables[index].default = declared.default.clone();
        Ok(())
    }

    fn pipe_range(&self, pipes: Pipes) -> Result<Range<usize>> {
        match pipes {
            Pipes::All => Ok(0..self.pipes.len()),
            Pipes::One(pipe) if pipe < self.pipes.len() => Ok(pipe..pipe + 1),
            Pipes::One(pipe) => Err(ControlError::NoSuchPipe { pipe, pipes: self.pipes.len() }),
        }
    }

    fn pipes_mut(&mut self, pipes: Pipes) -> Result<&mut [Pipe]> {
        let range = self.pipe_range(pipes)?;
        Ok(&mut self.pipes[range])
    }

    fn register(&self, name: &str) -> Result<(usize, &program::Register)> {
        find(&self.program.registers, "register", name, |register| &register.name)
    }

    /// Returns all register arrays.
    #[must_use]
    pub fn registers(&self) -> Vec<RegisterInfo> {
        self.program.registers.iter().map(register_info).collect()
    }

    /// Reads one field of a range of elements in one pipe, as numbers: the bulk read of a
    /// controller.
    ///
    /// # Errors
    /// [`ControlError`]: no such register, field or pipe, or a range beyond the end.
    pub fn register_range(
        &self,
        name: &str,
        field: usize,
        range: Range<usize>,
        pipe: usize,
    ) -> Result<Vec<u64>> {
        let (index, register) = self.register(name)?;
        self.pipe_range(Pipes::One(pipe))?;
        in_range(name, range.end.saturating_sub(1).max(range.start), register.size)?;
        if field >= register.fields.len() {
            return Err(ControlError::NoSuchField {
                owner: name.to_owned(),
                field: field.to_string(),
            });
        }
        let width = register.fields.len();
        let elements = self.pipes[pipe].registers[index].chunks_exact(width);
        Ok(elements.skip(range.start).take(range.len()).map(|element| element[field]).collect())
    }

    /// Reads an element: for each field, its value in each of these pipes.
    ///
    /// # Errors
    /// [`ControlError`]: no such register or pipe, or an index beyond the end.
    pub fn read_register(
        &self,
        name: &str,
        index: usize,
        pipes: Pipes,
    ) -> Result<Vec<(FieldInfo, Vec<Vec<u8>>)>> {
        let (array, register) = self.register(name)?;
        in_range(name, index, register.size)?;
        let pipes = &self.pipes[self.pipe_range(pipes)?];
        let width = register.fields.len();
        let value = |pipe: &Pipe, offset: usize, bits: u32| {
            to_bytes(u128::from(pipe.registers[array][index * width + offset]), bits)
        };
        let fields = register_info(register).fields.into_iter().enumerate();
        Ok(fields
            .map(|(offset, field)| {
                let values = pipes.iter().map(|pipe| value(pipe, offset, field.width)).collect();
                (field, values)
            })
            .collect())
    }

    /// Writes an element in each of these pipes. Fields are named as in [`RegisterInfo`].
    ///
    /// # Errors
    /// [`ControlError`]: unknown names, wrong widths, an index beyond the end.
    pub fn write_register(
        &mut self,
        name: &str,
        index: usize,
        pipes: Pipes,
        data: &[(String, Vec<u8>)],
    ) -> Result<()> {
        let (array, register) = self.register(name)?;
        in_range(name, index, register.size)?;
        let fields = register_info(register).fields;
        let given = by_name(name, fields.iter().map(|field| field.name.as_str()), data)?;
        let numbers = fields
            .iter()
            .zip(given)
            .map(|(field, value)| number(name, &field.name, field.width, value));
        let numbers: Vec<u128> = numbers.collect::<Result<_>>()?;
        let start = index * fields.len();
        for pipe in self.pipes_mut(pipes)? {
            for (element, number) in pipe.registers[array].iter_mut().skip(start).zip(&numbers) {
                *element = *number as u64;
            }
        }
        Ok(())
    }

    /// Resets a range of elements, such as a bank that has been read, to the initial value.
    ///
    /// # Errors
    /// [`ControlError`]: no such register or pipe, or a range beyond the end.
    pub fn clear_register_range(
        &mut self,
        name: &str,
        range: Range<usize>,
        pipes: Pipes,
    ) -> Result<()> {
        let (array, register) = self.register(name)?;
        if range.is_empty() {
            return Ok(());
        }
        in_range(name, range.end - 1, register.size)?;
        let fresh = register.initial.repeat(range.len());
        let start = range.start * register.fields.len();
        for pipe in self.pipes_mut(pipes)? {
            pipe.registers[array][start..start + fresh.len()].copy_from_slice(&fresh);
        }
        Ok(())
    }

    /// Resets every element of a register to the initial value.
    ///
    /// # Errors
    /// [`ControlError`]: no such register or pipe.
    pub fn clear_register(&mut self, name: &str, pipes: Pipes) -> Result<()> {
        let (array, register) = self.register(name)?;
        let fresh = register.initial.repeat(register.size);
        for pipe in self.pipes_mut(pipes)? {
            pipe.registers[array].clone_from(&fresh);
        }
        Ok(())
    }

    fn counter(&self, name: &str) -> Result<(usize, &program::Counter)> {
        find(&self.program.counters, "counter", name, |counter| &counter.name)
    }

    /// Returns all counter arrays.
    #[must_use]
    pub fn counters(&self) -> Vec<CounterInfo> {
        let info = |counter: &program::Counter| CounterInfo {
            id: identifier(prefixes::COUNTER, &counter.name),
            name: counter.name.to_string(),
            size: counter.size,
            kind: counter.kind,
        };
        self.program.counters.iter().map(info).collect()
    }

    /// Reads a counter element in one pipe, or its sum over all. On a chip, the driver must execute
    /// `Sync` first; the counters of the model are always current.
    ///
    /// # Errors
    /// [`ControlError`]: no such counter or pipe, or an index beyond the end.
    pub fn read_counter(&self, name: &str, index: usize, pipes: Pipes) -> Result<Counted> {
        let (array, counter) = self.counter(name)?;
        in_range(name, index, counter.size)?;
        let pipes = &self.pipes[self.pipe_range(pipes)?];
        Ok(pipes.iter().fold(Counted::default(), |sum, pipe| {
            let (packets, bytes) = pipe.counters[array][index];
            Counted {
                packets: sum.packets.wrapping_add(packets),
                bytes: sum.bytes.wrapping_add(bytes),
            }
        }))
    }

    /// Sets a counter element. The driver has one value for all pipes, so this sets one pipe and
    /// clears the others if called for all.
    ///
    /// # Errors
    /// [`ControlError`]: no such counter or pipe, or an index beyond the end.
    pub fn write_counter(
        &mut self,
        name: &str,
        index: usize,
        pipes: Pipes,
        counted: Counted,
    ) -> Result<()> {
        let (array, counter) = self.counter(name)?;
        in_range(name, index, counter.size)?;
        let mut value = (counted.packets, counted.bytes);
        for pipe in self.pipes_mut(pipes)? {
            pipe.counters[array][index] = std::mem::take(&mut value);
        }
        Ok(())
    }

    /// Clears all elements.
    ///
    /// # Errors
    /// [`ControlError`]: no such counter or pipe.
    pub fn clear_counter(&mut self, name: &str, pipes: Pipes) -> Result<()> {
        let (array, _) = self.counter(name)?;
        self.pipes_mut(pipes)?.iter_mut().for_each(|pipe| pipe.counters[array].fill((0, 0)));
        Ok(())
    }

    /// Returns all hashes that the program uses.
    #[must_use]
    pub fn hashes(&self) -> Vec<HashInfo> {
        let used = self.program.hashes.iter().filter(|hash| !hash.input.is_empty());
        let info = |hash: &program::Hash| HashInfo {
            id: identifier(prefixes::HASH_COMPUTE, &hash.name),
            name: hash.name.to_string(),
            width: hash.width,
            fields: (1..)
                .zip(hash.fields())
                .map(|(id, (name, width))| FieldInfo { id, name: name.to_owned(), width })
                .collect(),
        };
        used.map(info).collect()
    }

    /// Computes the hash of given values like the chip. A controller can check with it that a
    /// switch hashes as expected.
    ///
    /// # Errors
    /// [`ControlError`]: no such hash or field, wrong width.
    pub fn compute_hash(&self, name: &str, fields: &[(String, Vec<u8>)]) -> Result<Vec<u8>> {
        let (_, hash) = find(&self.program.hashes, "hash", name, |hash| &hash.name)?;
        let names: Vec<&str> = hash.fields().map(|(name, _)| name).collect();
        let mut given = by_name(name, names.iter().copied(), fields)?.into_iter();
        let mut values = Vec::new();
        for input in &hash.input {
            match input {
                HashInput::Constant(value, width) => values.push((*value, *width)),
                HashInput::Field(field, width) => {
                    let bytes = given.next().map_or(&[][..], Vec::as_slice);
                    values.push((number(name, field, *width, bytes)?, *width));
                }
            }
        }
        Ok(to_bytes(hash_of(hash, values.into_iter(), &mut Vec::new()), hash.width))
    }

    /// Returns all digests.
    #[must_use]
    pub fn digests(&self) -> Vec<DigestInfo> {
        let info = |digest: &program::Digest| DigestInfo {
            id: identifier(prefixes::DIGEST, &digest.name),
            name: digest.name.to_string(),
            fields: (1..)
                .zip(&digest.fields)
                .map(|(id, (name, width))| FieldInfo { id, name: name.clone(), width: *width })
                .collect(),
        };
        self.program.digests.iter().map(info).collect()
    }

    /// Returns all register parameters.
    #[must_use]
    pub fn parameters(&self) -> Vec<ParameterInfo> {
        let info = |parameter: &program::RegisterParameter| ParameterInfo {
            id: identifier(prefixes::REGISTER_PARAMETER, &parameter.name),
            name: parameter.name.to_string(),
            width: parameter.width,
            signed: parameter.signed,
            register: parameter
                .register
                .map(|register| register_id(&self.program.registers[register])),
            initial: to_bytes(parameter.initial, parameter.width),
        };
        self.program.parameters.iter().map(info).collect()
    }

    fn parameter(&self, name: &str) -> Result<(usize, &program::RegisterParameter)> {
        find(&self.program.parameters, "register parameter", name, |parameter| &parameter.name)
    }

    /// Reads a register parameter in one pipe.
    ///
    /// # Errors
    /// [`ControlError`]: no such parameter or pipe.
    pub fn read_parameter(&self, name: &str, pipe: usize) -> Result<Vec<u8>> {
        let (index, parameter) = self.parameter(name)?;
        self.pipe_range(Pipes::One(pipe))?;
        Ok(to_bytes(self.pipes[pipe].parameters[index], parameter.width))
    }

    /// Sets a register parameter.
    ///
    /// # Errors
    /// [`ControlError`]: no such parameter or pipe, wrong width.
    pub fn write_parameter(&mut self, name: &str, pipes: Pipes, value: &[u8]) -> Result<()> {
        let (index, parameter) = self.parameter(name)?;
        let number = number(name, "value", parameter.width, value)?;
        self.pipes_mut(pipes)?.iter_mut().for_each(|pipe| pipe.parameters[index] = number);
        Ok(())
    }
}

fn in_range(name: &str, index: usize, size: usize) -> Result<()> {
    if index < size {
        Ok(())
    } else {
        Err(ControlError::IndexOutOfRange { name: name.to_owned(), index, size })
    }
}

fn action_info(action: &program::Action, default_only: bool) -> ActionInfo {
    let data = (1..).zip(&action.parameters);
    let data = data
        .map(|(id, parameter)| FieldInfo {
            id,
            name: parameter.name.to_string(),
            width: parameter.width,
        })
        .collect();
    ActionInfo {
        id: identifier(prefixes::ACTION, &action.name),
        name: action.name.to_string(),
        data,
        default_only,
    }
}

fn register_id(register: &program::Register) -> u32 {
    identifier(prefixes::REGISTER, &register.name)
}

fn register_info(register: &program::Register) -> RegisterInfo {
    // Field names omit the name of the pipeline, with which the full name starts.
    let owner = register.name.split_once('.').map_or(&*register.name, |(_, owner)| owner);
    let fields = (1..).zip(&register.fields);
    RegisterInfo {
        id: register_id(register),
        name: register.name.to_string(),
        size: register.size,
        fields: fields
            .map(|(id, (name, width))| FieldInfo {
                id,
                name: format!("{owner}.{name}"),
                width: *width,
            })
            .collect(),
    }
}
