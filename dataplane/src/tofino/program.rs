//! Program on a switch: the settings that it states, checked against its schema, and the
//! identifiers for reads and writes.

use super::array::{self, Array};
use super::measurement::{self, ROWS};
use super::statement::StatedSettings;
use super::table::{Content, DesiredState, MatchTable, TableContents};
use super::{entries, filter, hash, names};
use crate::capabilities::{Capabilities, TimestampClock};
use crate::error::Failure;
use flowgauge_bfruntime::schema::{Field, Schema, SchemaError, Table, TableKind};
use flowgauge_bfruntime::{Data, Entry, EntryTarget, Match, proto};
use flowgauge_core::{BANKS, Counters, KeyKind, MeasurementKind, Settings};
use std::ops::Range;

/// A program with a valid schema.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Program {
    /// The bfrt.json schema.
    pub(super) schema: Schema,
    /// Compiler definitions that it states.
    pub(super) statement: StatedSettings,
    /// Settings that it was compiled for, as it states them.
    pub(super) compiled: Settings,
    /// Requested settings; the program may measure more than these.
    pub(super) settings: Settings,
    /// Pairs of ports between which frames are forwarded.
    forward: Vec<(u32, u32)>,
}

impl Program {
    /// Reads the settings that a program states, and looks up everything that they imply, so that
    /// nothing can be missing later.
    pub(super) fn new(schema: Schema) -> Result<Self, Failure> {
        check(&schema)?;
        let statement = StatedSettings::read(&schema)?;
        let compiled = measurement::settings(&statement)?;
        let forward = Vec::new();
        let program = Program { schema, statement, compiled, settings: compiled, forward };
        let schema = &program.schema;
        program.arrays()?.iter().try_for_each(|array| array.check(schema))?;
        program.tables()?.iter().try_for_each(|table| table.check(schema))?;
        if filter::is_possible(&program.statement)? {
            filter::check_room(schema)?;
        }
        for key in KeyKind::ALL.into_iter().filter(|key| compiled.uses(*key)) {
            hash::check_key(schema, key)?;
        }
        measurement::check_hashes(schema, &compiled)?;
        Ok(program)
    }

    /// Returns a program that measures what these settings require, and can forward frames between
    /// these pairs of ports.
    pub(super) fn fitting(
        schema: Schema,
        wanted: Settings,
        forward: Vec<(u32, u32)>,
    ) -> Result<Self, Failure> {
        let program = Program::new(schema)?;
        program.check_settings(&wanted)?;
        program.check_forward(&forward)?;
        Ok(Program { settings: wanted, forward, ..program })
    }

    /// Returns the arrays of the wanted settings, followed by the optional arrays of this build.
    pub(super) fn arrays(&self) -> Result<Vec<Array>, Failure> {
        let mut arrays = measurement::arrays(&self.settings);
        arrays.extend(measurement::extras(&self.statement, &self.settings)?.0);
        Ok(arrays)
    }

    /// Returns the match tables of the wanted settings, followed by the optional tables of this
    /// build, those of expressions and that of forwarding.
    fn tables(&self) -> Result<Vec<MatchTable>, Failure> {
        let mut tables = measurement::tables(&self.settings);
        tables.extend(measurement::extras(&self.statement, &self.settings)?.1);
        if filter::is_possible(&self.statement)? {
            tables.extend(filter::tables());
        }
        if !self.forward.is_empty() {
            tables.push(forwarding(&self.forward));
        }
        Ok(tables)
    }

    /// Checks that frames can be forwarded between these ports.
    fn check_forward(&self, forward: &[(u32, u32)]) -> Result<(), Failure> {
        let mut seen = Vec::new();
        for port in forward.iter().flat_map(|(one, other)| [*one, *other]) {
            if port >> names::PORT_BITS != 0 {
                return Err(Failure::options(format!(
                    "{port} is not a port number of a switch; port numbers are below {}",
                    1 << names::PORT_BITS
                )));
            }
            if seen.contains(&port) {
                return Err(Failure::options(format!(
                    "port {port} is in two pairs, and a frame can leave at one port only"
                )));
            }
            seen.push(port);
        }
        if !forward.is_empty() {
            let find = |error: SchemaError| {
                Failure::program(format!("{error}; this program forwards nothing by itself"))
            };
            let table = self.schema.table(names::FORWARD).map_err(find)?;
            let bits = table
                .key(names::FORWARD_KEY)
                .map_err(find)?
                .kind
                .bits()
                .map_err(Failure::program)?;
            table.action(names::SEND).map_err(find)?.field(names::SEND_PARAMETER).map_err(find)?;
            if bits != names::PORT_BITS {
                return Err(Failure::program(format!("{} has ports of {bits} bits", table.name)));
            }
        }
        Ok(())
    }

    /// Checks that the program measures what these settings require; it may measure more.
    fn check_settings(&self, wanted: &Settings) -> Result<(), Failure> {
        let mut differences = Vec::new();
        for (wanted, own) in
            measurement::builds(wanted)?.into_iter().zip(measurement::builds(&self.compiled)?)
        {
            let Some(description) = &wanted.description else { continue };
            let missing = wanted
                .definitions
                .iter()
                .filter(|definition| !own.definitions.contains(definition));
            let missing: Vec<String> =
                missing.map(|(name, value)| format!("-D{name}={value}")).collect();
            if !missing.is_empty() {
                let (name, own) =
                    (wanted.kind.name(), own.description.as_deref().unwrap_or("not at all"));
                differences.push(format!(
                    "it measures {name} {own}, wanted {description} ({})",
                    missing.join(" ")
                ));
            }
        }
        if differences.is_empty() {
            return Ok(());
        }
        Err(Failure::program(format!(
            "{}; compile it so, or change the settings",
            differences.join("; ")
        )))
    }

    pub(super) fn capabilities(&self, address: &str) -> Capabilities {
        let mut capabilities = Capabilities {
            measurements: MeasurementKind::ALL
                .into_iter()
                .filter(|kind| kind.is_on(&self.compiled))
                .collect(),
            keys: KeyKind::ALL.into_iter().filter(|key| self.compiled.uses(*key)).collect(),
            rows: ROWS..=ROWS,
            inner: false,
            filter: filter::is_possible(&self.statement).unwrap_or_default(),
            atomic_snapshots: false,
            clock: TimestampClock::SWITCH,
            ..Capabilities::of_core("tofino", address.to_owned(), 1)
        };
        measurement::ALL
            .iter()
            .for_each(|measurement| measurement.capabilities(&self.compiled, &mut capabilities));
        capabilities
    }

    /// Returns a table of the program, whose existence was checked.
    pub(super) fn table(&self, name: &str) -> Result<&Table, Failure> {
        self.schema.table(name).map_err(Failure::program)
    }

    /// Returns the desired contents of these match tables.
    pub(super) fn contents(
        &self,
        desired: &DesiredState,
        which: impl Fn(&MatchTable) -> bool,
    ) -> Result<Vec<Content>, Failure> {
        let tables = self.tables()?;
        let tables = tables.iter().filter(|table| which(table));
        tables.map(|table| table.content(&self.schema, desired)).collect()
    }

    /// Returns the update that makes a bank active.
    pub(super) fn set_bank(&self, bank: usize) -> Result<proto::Update, Failure> {
        let table = self.table(names::BANK)?;
        let data = Data::action(names::SET_BANK, [(names::BANK_PARAMETER, vec![(bank & 1) as u8])]);
        let entry = Entry { place: EntryTarget::Default, data };
        entries::update(table, proto::update::Type::Modify, &entry)
    }

    /// Decodes the active bank from an answer.
    pub(super) fn bank(&self, answer: &[proto::TableEntry]) -> Result<usize, Failure> {
        let [message] = answer else {
            return Err(Failure::answer(format!("{} default entries of one table", answer.len())));
        };
        let table = self.table(names::BANK)?;
        let entry = entries::decode(table, message)?;
        let action = table.action(names::SET_BANK).map_err(Failure::program)?;
        let parameter = action.field(names::BANK_PARAMETER).map_err(Failure::program)?;
        match (entry.place, entry.data.action.as_deref(), entry.data.bytes(&parameter.name)) {
            (EntryTarget::Default, Some(name), Some(&[bank])) if name == action.name => {
                Ok(usize::from(bank))
            }
            _ => Err(Failure::answer(format!("the default entry of {} says no bank", table.name))),
        }
    }

    /// Returns the indices of a bank's counters.
    pub(super) fn classes(bank: usize) -> Range<usize> {
        bank * names::CLASSES..(bank + 1) * names::CLASSES
    }

    /// Decodes a bank's counters. Also returns the number of unmatched packets that the switch
    /// could not classify.
    pub(super) fn counters(
        &self,
        bank: usize,
        answer: &[proto::TableEntry],
    ) -> Result<(Counters, u64), Failure> {
        let table = self.table(names::FRAMES)?;
        let field = |name| table.field(name).map_err(Failure::program);
        let (packets, bytes) = (field(names::PACKETS)?, field(names::BYTES)?);
        let indexed = entries::indexed(table, names::COUNTER_INDEX, Self::classes(bank), answer)?;
        let mut classes = [0; names::CLASSES];
        let mut counters = Counters::default();
        for ((index, message), (class, packets_of_class)) in
            Self::classes(bank).zip(indexed).zip(classes.iter_mut().enumerate())
        {
            let fields = message.data.as_ref().map(|data| &data.fields[..]).unwrap_or_default();
            let value = |field: &Field| {
                let problem = |problem: String| {
                    Failure::answer(format!("{}[{index}]: {problem}", table.name))
                };
                let mut values = fields.iter().filter_map(|part| entries::number(part, field.id));
                let (Some(value), None) = (values.next(), values.next()) else {
                    return Err(problem(format!("{} is not there exactly once", field.name)));
                };
                field.kind.decode(value).map_err(|error| problem(error.to_string()))
            };
            *packets_of_class = value(packets)?;
            let total = if filter::IS_LEFT_OUT.contains(&class) {
                &mut counters.unmatched_bytes
            } else {
                &mut counters.bytes
            };
            *total = total.wrapping_add(value(bytes)?);
        }
        let [ipv4, ipv6, non_ip, truncated, bad_header, unmatched, undecided, unknown] = classes;
        let can_filter = filter::is_possible(&self.statement)?;
        if unknown != 0 || !can_filter && (unmatched, undecided) != (0, 0) {
            return Err(Failure::answer(format!(
                "{}: packets of classes that there are not",
                table.name
            )));
        }
        let unmatched = unmatched.wrapping_add(undecided);
        let counters =
            Counters { ipv4, ipv6, non_ip, truncated, bad_header, unmatched, ..counters };
        Ok((counters, undecided))
    }

    /// Returns the updates that clear the counters of a bank and the non-empty elements of its
    /// arrays. The driver has no write that clears a part of an array at once.
    pub(super) fn clear(
        &self,
        bank: usize,
        arrays: &[Array],
        raised: &[Vec<usize>],
    ) -> Result<Vec<proto::Update>, Failure> {
        let mut updates = self.clear_counters(bank)?;
        for (array, raised) in arrays.iter().zip(raised) {
            updates.extend(self.clear_array(bank, array, raised.iter().copied())?);
        }
        Ok(updates)
    }

    /// Returns the updates that clear the counters of a bank.
    pub(super) fn clear_counters(&self, bank: usize) -> Result<Vec<proto::Update>, Failure> {
        let zero = [names::PACKETS, names::BYTES].map(|name| (name, vec![0; 8]));
        self.set_all(names::FRAMES, names::COUNTER_INDEX, Self::classes(bank), zero)
    }

    /// Returns the updates that clear elements of a bank of an array.
    pub(super) fn clear_array(
        &self,
        bank: usize,
        array: &Array,
        elements: impl Iterator<Item = usize>,
    ) -> Result<Vec<proto::Update>, Failure> {
        let indices = elements.map(|element| bank * array.per_bank + element);
        let fields = array
            .fields
            .iter()
            .zip(array.empty)
            .map(|(field, value)| (*field, names::bytes(value, array.bits)));
        self.set_all(&array.table, names::REGISTER_INDEX, indices, fields)
    }

    fn set_all<'a>(
        &self,
        table: &str,
        key: &str,
        indices: impl Iterator<Item = usize>,
        fields: impl IntoIterator<Item = (&'a str, Vec<u8>)>,
    ) -> Result<Vec<proto::Update>, Failure> {
        let table = self.table(table)?;
        let mut values = Vec::new();
        for (name, value) in fields {
            values.push((&*table.field(name).map_err(Failure::program)?.name, value));
        }
        let data = Data::fields(values);
        let one = |index: usize| {
            let index = Match::Exact((index as u32).to_be_bytes().to_vec());
            let place = EntryTarget::Key([(key.to_owned(), index)].into());
            let entry = Entry { place, data: data.clone() };
            entries::update(table, proto::update::Type::Modify, &entry)
        };
        indices.map(one).collect()
    }
}

/// Returns the table that forwards frames between these pairs of ports.
fn forwarding(pairs: &[(u32, u32)]) -> MatchTable {
    let [key, parameter] = [names::FORWARD_KEY, names::SEND_PARAMETER];
    let port = |port: u32| names::bytes(port, names::PORT_BITS);
    let ways = pairs.iter().flat_map(|(one, other)| [(*one, *other), (*other, *one)]);
    let entries: Vec<_> =
        ways.map(|(from, to)| (vec![(key, Match::Exact(port(from)))], vec![port(to)])).collect();
    let (keys, parameters) = (vec![(key, names::PORT_BITS)], vec![(parameter, names::PORT_BITS)]);
    let filling = move |_: &DesiredState| TableContents { entries: entries.clone(), default: None };
    MatchTable::new(names::FORWARD.to_owned(), keys, names::SEND, parameters, filling)
}

/// Looks up the names that every program has, so that none can be missing later.
fn check(schema: &Schema) -> Result<(), Failure> {
    schema
        .table(names::BANK)
        .and_then(|bank| bank.action(names::SET_BANK)?.field(names::BANK_PARAMETER))
        .map_err(Failure::lacks)?;
    let frames = schema.table(names::FRAMES).map_err(Failure::lacks)?;
    frames.key(names::COUNTER_INDEX).map_err(Failure::lacks)?;
    for field in [names::PACKETS, names::BYTES] {
        frames.field(field).map_err(Failure::lacks)?;
    }
    let size = BANKS * names::CLASSES;
    if (&frames.kind, frames.size) != (&TableKind::Counter, size as u64) {
        let (is, must) =
            (format!("{:?} of {}", frames.kind, frames.size), format!("a counter of {size}"));
        return Err(Failure::mismatch(&frames.name, is, must));
    }
    array::check_syncs(frames)
}
