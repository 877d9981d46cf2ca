//! Control plane: tables, registers, counters, register parameters and hashes by their names in the
//! schema, in the terms of BFRuntime.

use crate::Model;
use crate::execute::{Pipe, hash_of, to_bytes};
use crate::matching::{KeyBits, MatchTable, Row, prefix};
use crate::program::{Array, HashInput, MatchKind, Program, Table, mask};
use flowgauge_bfruntime::codec::PRIORITY;
use flowgauge_bfruntime::server::{Fault, Query, Write};
use flowgauge_bfruntime::{Data, Entry, EntryTarget, Key, Match, Pipes, Value};
use std::ops::Range;
use std::sync::Arc;
use tonic::Code;

/// End of the names of the tables that compute a hash, and the name of its value.
const COMPUTE: &str = ".compute";
const HASH_VALUE: &str = "hash_value";
const PARAMETER_VALUE: &str = "value";

type Result<T> = std::result::Result<T, Fault>;

fn find<'a, T>(
    all: &'a [T],
    what: &str,
    name: &str,
    named: impl Fn(&T) -> &str,
) -> Result<(usize, &'a T)> {
    let found = all.iter().enumerate().find(|(_, one)| named(one) == name);
    found.ok_or_else(|| Fault::not_found(format!("no {what} {name}")))
}

fn no_field(owner: &str, field: &str) -> Fault {
    Fault::invalid(format!("{owner} has no field {field}"))
}

fn not_once(owner: &str, field: &str) -> Fault {
    Fault::invalid(format!("{owner} needs field {field} exactly once"))
}

fn number(owner: &str, field: &str, width: u32, value: &[u8]) -> Result<u128> {
    let number = value
        .iter()
        .fold(0_u128, |number, byte| number.checked_shl(8).unwrap_or(0) | u128::from(*byte));
    if value.len() == width.div_ceil(8) as usize && number <= mask(width) {
        Ok(number)
    } else {
        Err(Fault::invalid(format!(
            "field {field} of {owner} is {width} bits wide; {value:02x?} is not"
        )))
    }
}

/// Returns the numbers that are given for fields, by their names and widths, in order.
fn given<'a>(
    owner: &str,
    fields: impl Iterator<Item = (&'a str, u32)> + Clone,
    data: &Data,
) -> Result<Vec<Option<u128>>> {
    let is_unknown = |name: &str| fields.clone().all(|(field, _)| field != name);
    if let Some((unknown, _)) = data.fields.iter().find(|(name, _)| is_unknown(name)) {
        return Err(no_field(owner, unknown));
    }
    let one = |(field, width): (&str, u32)| {
        let values: Vec<&Value> = data.values(field).collect();
        match values.as_slice() {
            [] => Ok(None),
            [Value::Bytes(bytes)] => number(owner, field, width, bytes).map(Some),
            [_] => Err(Fault::invalid(format!("{field} is a number"))),
            _ => Err(not_once(owner, field)),
        }
    };
    fields.map(one).collect()
}

impl Model {
    /// Changes a match table, a register, a counter or a register parameter.
    ///
    /// # Errors
    /// [`Fault`]: unknown names, wrong widths, an index or a pipe that does not exist, an entry
    /// that exists or does not, a full table, a part of the program. Nothing was changed.
    pub fn write(&mut self, table: &str, pipes: Pipes, write: &Write) -> Result<()> {
        let program = Arc::clone(&self.program);
        if let Some(array) = self.array(table) {
            return self.write_array(&program, array, pipes, write);
        }
        let Some(parameter) = self.parameter(table) else {
            return self.write_table(&program, table, write);
        };
        let Write::SetDefault(data) = write else {
            return Err(Fault::invalid(format!("{table} has only a default entry")));
        };
        let value = data
            .bytes(PARAMETER_VALUE)
            .ok_or_else(|| Fault::invalid(format!("{table}: no value given")))?;
        let width = program.parameters[parameter].width;
        let value = number(table, PARAMETER_VALUE, width, value)?;
        let pipes = self.pipe_range(pipes)?;
        self.pipes[pipes].iter_mut().for_each(|pipe| pipe.parameters[parameter] = value);
        Ok(())
    }

    /// Reads a match table, a register, a counter or a register parameter, or computes a hash of
    /// the values in a key like the chip.
    ///
    /// Entries of a register have each field once per pipe, in order; those of a counter have the
    /// sum over the pipes. On a chip, the driver must execute `Sync` first; the values of the model
    /// are always current.
    ///
    /// # Errors
    /// [`Fault`]: unknown names, wrong widths, an index or a pipe that does not exist, no such
    /// entry.
    pub fn read(&self, table: &str, pipes: Pipes, query: &Query) -> Result<Vec<Entry>> {
        self.read_from(&self.pipes, table, pipes, query)
    }

    /// Does the same, but reads registers and counters from this copy of the pipes.
    pub(crate) fn read_from(
        &self,
        copy: &[Pipe],
        table: &str,
        pipes: Pipes,
        query: &Query,
    ) -> Result<Vec<Entry>> {
        let program = &*self.program;
        if let Some(at) = self.array(table) {
            let array = &program.arrays[at];
            let elements = match query {
                Query::All => 0..array.size,
                Query::Entry(key) => array.element(key)?,
                Query::Default => {
                    return Err(Fault::invalid(format!("{table} has no default entry")));
                }
            };
            let pipes = copy[self.pipe_range(pipes)?].iter();
            let cells: Vec<&[u64]> = pipes.map(|pipe| &*pipe.arrays[at]).collect();
            return Ok(elements.map(|index| array.entry(index, &cells)).collect());
        }
        if let Some(hash) = table.strip_suffix(COMPUTE) {
            let Query::Entry(key) = query else {
                return Err(Fault::invalid(format!("{table} needs a key")));
            };
            let data = Data::fields([(HASH_VALUE, compute(program, table, hash, key)?)]);
            return Ok(vec![Entry { place: EntryTarget::Key(key.clone()), data }]);
        }
        if let Some(parameter) = self.parameter(table) {
            let value = self.pipes[self.pipe_range(pipes)?.start].parameters[parameter];
            let value = to_bytes(value, program.parameters[parameter].width);
            let data = Data::fields([(PARAMETER_VALUE, value)]);
            return Ok(vec![Entry { place: EntryTarget::Default, data }]);
        }
        let (index, declared) = find(&program.tables, "table", table, |table| &table.name)?;
        let rows = &self.tables[index];
        match query {
            Query::All => {
                Ok(rows.rows().iter().map(|row| unpacked(program, declared, row)).collect())
            }
            Query::Entry(key) => {
                let row = &rows.rows()[position(declared, rows, key)?];
                Ok(vec![unpacked(program, declared, row)])
            }
            Query::Default => {
                let (action, values) = &rows.default;
                let data = unpacked_call(program, *action, values);
                Ok(vec![Entry { place: EntryTarget::Default, data }])
            }
        }
    }

    /// Reads one field of a range of elements of a register in one pipe, as numbers.
    ///
    /// # Errors
    /// [`Fault`]: no such register, field or pipe, or a range beyond the end.
    pub fn register_range(
        &self,
        name: &str,
        field: usize,
        range: Range<usize>,
        pipe: usize,
    ) -> Result<Vec<u64>> {
        let (at, array) = find(&self.program.arrays, "register", name, |array| &array.name)?;
        let pipe = self.pipe_range(Pipes::One(pipe as u32))?.start;
        array.check_index(range.end.saturating_sub(1).max(range.start))?;
        let width = array.fields.len();
        if field >= width {
            return Err(no_field(name, &field.to_string()));
        }
        let elements = self.pipes[pipe].arrays[at].chunks_exact(width);
        Ok(elements.skip(range.start).take(range.len()).map(|element| element[field]).collect())
    }

    /// Returns the register or counter with this name, as an index.
    pub(crate) fn array(&self, name: &str) -> Option<usize> {
        self.program.arrays.iter().position(|array| &*array.name == name)
    }

    fn parameter(&self, name: &str) -> Option<usize> {
        self.program.parameters.iter().position(|parameter| &*parameter.name == name)
    }

    fn pipe_range(&self, pipes: Pipes) -> Result<Range<usize>> {
        let all = self.pipes.len();
        match pipes {
            Pipes::All => Ok(0..all),
            Pipes::One(pipe) if (pipe as usize) < all => Ok(pipe as usize..pipe as usize + 1),
            Pipes::One(pipe) => Err(Fault::invalid(format!("no pipe {pipe}: there are {all}"))),
        }
    }

    /// Writes an element, where fields that are not given keep their values, or clears all.
    fn write_array(
        &mut self,
        program: &Program,
        at: usize,
        pipes: Pipes,
        write: &Write,
    ) -> Result<()> {
        let array = &program.arrays[at];
        let width = array.fields.len();
        let elements = array.written(write)?;
        let values = match write {
            Write::Insert(_, data) | Write::Modify(_, data) => {
                let fields = array.fields.iter().map(|(name, bits)| (name.as_str(), *bits));
                given(&array.name, fields, data)?
            }
            _ => array.initial.iter().map(|value| Some(u128::from(*value))).collect(),
        };
        let pipes = self.pipe_range(pipes)?;
        for (nth, pipe) in self.pipes[pipes].iter_mut().enumerate() {
            // The driver has one value of a counter for all pipes. The first one gets it.
            let is_other = nth > 0 && !array.counts.is_empty();
            let cells = &mut pipe.arrays[at][elements.start * width..elements.end * width];
            for (cell, value) in cells.iter_mut().zip(values.iter().cycle()) {
                if let Some(value) = value {
                    *cell = if is_other { 0 } else { *value as u64 };
                }
            }
        }
        Ok(())
    }

    /// Copies elements of an array in these pipes to a copy of the pipes.
    pub(crate) fn copy(
        &self,
        at: usize,
        elements: Range<usize>,
        pipes: Pipes,
        to: &mut [Pipe],
    ) -> Result<()> {
        let width = self.program.arrays[at].fields.len();
        let cells = elements.start * width..elements.end * width;
        let pipes = self.pipe_range(pipes)?;
        for (to, from) in to[pipes.clone()].iter_mut().zip(&self.pipes[pipes]) {
            to.arrays[at][cells.clone()].copy_from_slice(&from.arrays[at][cells.clone()]);
        }
        Ok(())
    }

    fn write_table(&mut self, program: &Program, name: &str, write: &Write) -> Result<()> {
        let (index, table) = find(&program.tables, "table", name, |table| &table.name)?;
        let rows = &mut self.tables[index];
        match write {
            Write::Insert(key, data) => {
                check_changeable(table)?;
                let (value, mask, order) = packed_key(table, key)?;
                let (action, data) =
                    packed_call(program, table, table.entry_actions(), data, None)?;
                if rows.position(value, mask, order).is_some() {
                    let problem = format!("table {name} already has an entry with this key");
                    return Err(Fault::already_exists(problem));
                }
                if rows.rows().len() >= table.size {
                    let problem = format!("table {name} is full with {} entries", table.size);
                    return Err(Fault::exhausted(problem));
                }
                rows.insert(Row { value, mask, order, action, data });
            }
            Write::Modify(key, data) => {
                let at = position(table, rows, key)?;
                check_changeable(table)?;
                let row = rows.row_mut(at);
                let call = packed_call(program, table, table.entry_actions(), data, Some(&*row))?;
                (row.action, row.data) = call;
            }
            Write::Delete(key) => {
                check_changeable(table)?;
                let at = position(table, rows, key)?;
                rows.remove(at);
            }
            Write::Clear => {
                check_changeable(table)?;
                rows.clear();
            }
            Write::SetDefault(_) | Write::ResetDefault if table.constant_default => {
                return Err(constant("default actions", table));
            }
            Write::SetDefault(data) => {
                rows.default = packed_call(program, table, &table.actions, data, None)?;
            }
            Write::ResetDefault => rows.default.clone_from(&table.default),
        }
        Ok(())
    }
}

impl Array {
    fn index_field(&self) -> &'static str {
        if self.counts.is_empty() { "$REGISTER_INDEX" } else { "$COUNTER_INDEX" }
    }

    fn check_index(&self, index: usize) -> Result<()> {
        let Array { name, size, .. } = self;
        if index < *size {
            return Ok(());
        }
        Err(Fault::invalid(format!("index {index} in {name}, which has {size} elements")))
    }

    /// Returns the element with this key.
    fn element(&self, key: &Key) -> Result<Range<usize>> {
        let field = self.index_field();
        let Some(Match::Exact(bytes)) = key.get(field) else {
            return Err(Fault::invalid(format!("{} has {field} as its key", self.name)));
        };
        let index = bytes.iter().fold(0, |index, byte| index << 8 | usize::from(*byte));
        self.check_index(index)?;
        Ok(index..index + 1)
    }

    /// Returns the elements that a write changes.
    pub(crate) fn written(&self, write: &Write) -> Result<Range<usize>> {
        match write {
            Write::Insert(key, _) | Write::Modify(key, _) => self.element(key),
            Write::Clear => Ok(0..self.size),
            Write::Delete(_) | Write::SetDefault(_) | Write::ResetDefault => {
                Err(Fault::invalid(format!("the elements of {} can only be written", self.name)))
            }
        }
    }

    /// Returns an element from the cells of these pipes.
    fn entry(&self, index: usize, pipes: &[&[u64]]) -> Entry {
        let value = (index as u32).to_be_bytes().to_vec();
        let key = [(self.index_field().to_owned(), Match::Exact(value))].into();
        let mut fields = Vec::with_capacity(self.fields.len() * pipes.len());
        for (offset, (name, bits)) in self.fields.iter().enumerate() {
            let values = pipes.iter().map(|cells| cells[index * self.fields.len() + offset]);
            let mut push = |value: u64| {
                fields.push((name.clone(), Value::Bytes(to_bytes(value.into(), *bits))));
            };
            if self.counts.is_empty() {
                values.for_each(push);
            } else {
                push(values.fold(0, u64::wrapping_add));
            }
        }
        Entry { place: EntryTarget::Key(key), data: Data { action: None, fields } }
    }
}

fn constant(what: &str, table: &Table) -> Fault {
    let problem = format!("{what} of table {} are part of the program", table.name);
    Fault::new(Code::PermissionDenied, problem)
}

fn check_changeable(table: &Table) -> Result<()> {
    if table.constant_entries {
        return Err(constant("entries", table));
    }
    if table.key.is_empty() {
        let problem = format!("table {} has no key: set its default action", table.name);
        return Err(Fault::invalid(problem));
    }
    Ok(())
}

/// Returns value, mask and order of a key. The order is the priority of a ternary entry (the
/// lowest number wins), and zero for other kinds.
fn packed_key(table: &Table, key: &Key) -> Result<(KeyBits, KeyBits, (u32, u32))> {
    let is_unknown = |name: &str| name != PRIORITY && table.key.iter().all(|one| one.name != name);
    if let Some(unknown) = key.keys().find(|name| is_unknown(name)) {
        return Err(no_field(&table.name, unknown));
    }
    let (mut value, mut masks, mut shorter) = (KeyBits::default(), KeyBits::default(), 0);
    for field in &table.key {
        let parse = |bytes: &[u8]| number(&table.name, &field.name, field.width, bytes);
        let given = key.get(&field.name).ok_or_else(|| not_once(&table.name, &field.name))?;
        let (one, ones) = match (field.kind, given) {
            (MatchKind::Exact, Match::Exact(value)) => (parse(value)?, mask(field.width)),
            (MatchKind::Lpm, Match::Lpm { value, prefix_length })
                if *prefix_length <= field.width =>
            {
                shorter = field.width - prefix_length;
                (parse(value)?, prefix(*prefix_length, field.width))
            }
            (MatchKind::Ternary, Match::Ternary { value, mask }) => (parse(value)?, parse(mask)?),
            (kind, _) => {
                let problem = format!("field {} of {} is matched {kind:?}", field.name, table.name);
                return Err(Fault::invalid(problem));
            }
        };
        value = value.with(one & ones, field.width);
        masks = masks.with(ones, field.width);
    }
    let priority = match key.get(PRIORITY) {
        Some(Match::Exact(bytes)) if table.is_ternary() => {
            bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
        }
        _ => 0,
    };
    Ok((value, masks, (priority, shorter)))
}

fn position(table: &Table, rows: &MatchTable, key: &Key) -> Result<usize> {
    let (value, mask, order) = packed_key(table, key)?;
    rows.position(value, mask, order)
        .ok_or_else(|| Fault::not_found(format!("table {} has no entry with this key", table.name)))
}

/// Returns an action, one of `usable`, and its data. What is not given is as in the `present`
/// entry, the data if that has the same action.
fn packed_call(
    program: &Program,
    table: &Table,
    usable: &[usize],
    data: &Data,
    present: Option<&Row>,
) -> Result<(usize, Vec<u128>)> {
    let index = match (&data.action, present) {
        (Some(name), _) => {
            let known = usable.iter().find(|action| *program.actions[**action].name == **name);
            *known.ok_or_else(|| {
                Fault::not_found(format!("table {} has no action {name}", table.name))
            })?
        }
        (None, Some(row)) => row.action,
        (None, None) => return Err(Fault::invalid("no action given")),
    };
    let action = &program.actions[index];
    let fields = action.parameters.iter().map(|parameter| (&*parameter.name, parameter.width));
    let given = given(&action.name, fields, data)?;
    let kept = present.filter(|row| row.action == index).map(|row| &row.data[..]);
    let one = |(at, value): (usize, Option<u128>)| {
        let value = value.or_else(|| kept?.get(at).copied());
        value.ok_or_else(|| not_once(&action.name, &action.parameters[at].name))
    };
    Ok((index, given.into_iter().enumerate().map(one).collect::<Result<_>>()?))
}

fn unpacked_call(program: &Program, action: usize, values: &[u128]) -> Data {
    let action = &program.actions[action];
    let fields = action.parameters.iter().zip(values).map(|(parameter, value)| {
        (parameter.name.to_string(), Value::Bytes(to_bytes(*value, parameter.width)))
    });
    Data { action: Some(action.name.to_string()), fields: fields.collect() }
}

fn unpacked(program: &Program, table: &Table, row: &Row) -> Entry {
    let mut below: u32 = table.key.iter().map(|field| field.width).sum();
    let mut key = Key::new();
    for field in &table.key {
        below -= field.width;
        let ones = row.mask.from(below) & mask(field.width);
        let value = to_bytes(row.value.from(below) & mask(field.width), field.width);
        let one = match field.kind {
            MatchKind::Exact => Match::Exact(value),
            MatchKind::Lpm => Match::Lpm { value, prefix_length: ones.count_ones() },
            MatchKind::Ternary => Match::Ternary { value, mask: to_bytes(ones, field.width) },
        };
        key.insert(field.name.clone(), one);
    }
    if table.is_ternary() {
        let (priority, _) = row.order;
        key.insert(PRIORITY.to_owned(), Match::Exact(priority.to_be_bytes().to_vec()));
    }
    let data = unpacked_call(program, row.action, &row.data);
    Entry { place: EntryTarget::Key(key), data }
}

/// Computes a hash of the values in a key of its table.
fn compute(program: &Program, table: &str, name: &str, key: &Key) -> Result<Vec<u8>> {
    let (_, hash) = find(&program.hashes, "hash", name, |hash| &hash.name)?;
    let is_unknown = |name: &str| hash.fields().all(|(field, _)| field != name);
    if let Some(unknown) = key.keys().find(|name| is_unknown(name)) {
        return Err(no_field(name, unknown));
    }
    let mut values = Vec::new();
    for input in &hash.input {
        match input {
            HashInput::Constant(value, width) => values.push((*value, *width)),
            HashInput::Field(field, width) => match key.get(field) {
                Some(Match::Exact(bytes)) => {
                    values.push((number(name, field, *width, bytes)?, *width));
                }
                Some(_) => {
                    return Err(Fault::invalid(format!("{table}: {field} is one value")));
                }
                None => return Err(not_once(name, field)),
            },
        }
    }
    Ok(to_bytes(hash_of(hash, values.into_iter(), &mut Vec::new()), hash.width))
}
