//! Switch in memory that stores entries for any schema, and matches nothing.

use flowgauge_bfruntime::schema::{Schema, Table, TableKind};
use flowgauge_bfruntime::server::{Digests, Fault, PortCounters, Query, Source, Target, Write};
use flowgauge_bfruntime::{Data, Entry, EntryTarget, Key, Match, Pipes, Value};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};

pub struct Memory {
    json: String,
    schema: Schema,
    pipes: u32,
    state: Mutex<State>,
}

/// Content of the switch.
#[derive(Default)]
pub struct State {
    pub entries: HashMap<String, BTreeMap<Key, Data>>,
    pub defaults: HashMap<String, Data>,
    /// Registers and counters in hardware: every field by table, pipe and index.
    pub hardware: HashMap<String, Vec<Vec<Cell>>>,
    /// Copies of the driver.
    pub software: HashMap<String, Vec<Vec<Cell>>>,
    pub digests: Option<Digests>,
    /// Ports in the order of their configuration.
    pub ports: Vec<(u32, bool)>,
    /// MAC counters of ports.
    pub macs: BTreeMap<u32, PortCounters>,
    pub paused: bool,
    /// Writes made while packets were paused.
    pub written_while_paused: usize,
    pub writes: usize,
    /// Number of synchronizations with the hardware.
    pub syncs: usize,
}

pub type Cell = BTreeMap<String, Vec<u8>>;

impl Memory {
    pub fn new(json: &str, pipes: u32) -> Self {
        let schema = Schema::parse(json.as_bytes()).unwrap();
        let mut state = State::default();
        for table in schema.tables().iter().filter(|table| table.kind.is_indexed()) {
            let cells = vec![vec![initial(table); table.size as usize]; pipes as usize];
            state.hardware.insert(table.name.clone(), cells.clone());
            state.software.insert(table.name.clone(), cells);
        }
        Memory { json: json.to_owned(), schema, pipes, state: Mutex::new(state) }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn table(&self, name: &str) -> &Table {
        // The server passes full names.
        self.schema.tables().iter().find(|table| table.name == name).unwrap()
    }
}

fn index(key: &Key) -> usize {
    let Some(Match::Exact(bytes)) = key.values().next() else { panic!("{key:?}") };
    bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

fn set(cell: &mut Cell, data: &Data) {
    for (name, value) in &data.fields {
        let Value::Bytes(bytes) = value else { panic!("{value:?}") };
        cell.insert(name.clone(), bytes.clone());
    }
}

pub fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl State {
    fn write_cells(
        &mut self,
        table: &Table,
        pipes: std::ops::Range<u32>,
        write: &Write,
    ) -> Result<(), Fault> {
        for copy in [&mut self.hardware, &mut self.software] {
            let cells = copy.get_mut(&table.name).unwrap();
            for pipe in pipes.clone() {
                // Hardware adds the counters of the pipes, so a counter is written to one pipe.
                let written = table.kind == TableKind::Register || pipe == pipes.start;
                match write {
                    Write::Modify(key, data) => {
                        let cell = &mut cells[pipe as usize][index(key)];
                        let zero =
                            Data { fields: data.fields.iter().map(zeroed).collect(), action: None };
                        set(cell, if written { data } else { &zero });
                    }
                    Write::Clear => cells[pipe as usize].fill(initial(table)),
                    other => return Err(Fault::invalid(format!("{other:?}"))),
                }
            }
        }
        Ok(())
    }

    fn read_cell(
        &self,
        table: &Table,
        pipes: std::ops::Range<u32>,
        at: usize,
        source: Source,
    ) -> Entry {
        let cells = match source {
            Source::Hardware => &self.hardware[&table.name],
            Source::Software => &self.software[&table.name],
        };
        let key =
            [(table.keys[0].name.clone(), Match::Exact((at as u32).to_be_bytes().to_vec()))].into();
        let mut fields = Vec::new();
        for field in &table.data {
            let mut values =
                pipes.clone().map(|pipe| cells[pipe as usize][at][&field.name].clone());
            if table.kind == TableKind::Register {
                fields.extend(values.map(|value| (field.name.clone(), Value::Bytes(value))));
            } else {
                let sum = values.by_ref().map(|value| number(&value)).sum::<u64>();
                fields.push((field.name.clone(), Value::Bytes(sum.to_be_bytes().to_vec())));
            }
        }
        Entry { place: EntryTarget::Key(key), data: Data { action: None, fields } }
    }
}

/// Returns the initial value of an element: counts of flows start at one, everything else at zero.
fn initial(table: &Table) -> Cell {
    let initial_bytes = |name: &str, length: usize| {
        let mut bytes = vec![0; length];
        if name.contains(".flows") && name.ends_with(".count") {
            bytes[length - 1] = 1;
        }
        bytes
    };
    table
        .data
        .iter()
        .map(|field| (field.name.clone(), initial_bytes(&field.name, field.kind.bytes().unwrap())))
        .collect()
}

fn zeroed((name, value): &(String, Value)) -> (String, Value) {
    let Value::Bytes(bytes) = value else { panic!("{value:?}") };
    (name.clone(), Value::Bytes(vec![0; bytes.len()]))
}

impl Target for Memory {
    fn program(&self) -> &str {
        "flowgauge"
    }

    fn schema(&self) -> &str {
        &self.json
    }

    fn pipes(&self) -> u32 {
        self.pipes
    }

    fn write(&self, table: &str, pipes: Pipes, write: &Write) -> Result<(), Fault> {
        let table = self.table(table);
        let mut state = self.state();
        state.writes += 1;
        state.written_while_paused += usize::from(state.paused);
        if table.kind.is_indexed() {
            return state.write_cells(table, pipes.of(self.pipes), write);
        }
        let name = table.name.clone();
        match write {
            Write::SetDefault(data) => {
                state.defaults.insert(name, data.clone());
            }
            Write::ResetDefault => {
                state.defaults.remove(&name);
            }
            Write::Clear => {
                state.entries.remove(&name);
            }
            Write::Insert(key, data) => {
                let entries = state.entries.entry(name).or_default();
                if entries.contains_key(key) {
                    return Err(Fault::already_exists("Already exists"));
                }
                if entries.len() as u64 == table.size {
                    return Err(Fault::exhausted(format!(
                        "the table holds {} entries already",
                        table.size
                    )));
                }
                entries.insert(key.clone(), data.clone());
            }
            Write::Modify(key, data) => match state.entries.entry(name).or_default().get_mut(key) {
                Some(entry) => *entry = data.clone(),
                None => return Err(Fault::not_found("Object not found")),
            },
            Write::Delete(key) => {
                let removed = state.entries.entry(name).or_default().remove(key);
                removed.ok_or_else(|| Fault::not_found("Object not found"))?;
            }
        }
        Ok(())
    }

    fn read(
        &self,
        table: &str,
        pipes: Pipes,
        query: &Query,
        source: Source,
    ) -> Result<Vec<Entry>, Fault> {
        let table = self.table(table);
        let state = self.state();
        let pipes = pipes.of(self.pipes);
        if table.kind.is_indexed() {
            return Ok(match query {
                Query::Entry(key) => vec![state.read_cell(table, pipes, index(key), source)],
                Query::All => (0..table.size as usize)
                    .map(|at| state.read_cell(table, pipes.clone(), at, source))
                    .collect(),
                Query::Default => return Err(Fault::invalid("no default entry")),
            });
        }
        let entries = state.entries.get(&table.name);
        let entry = |(key, data): (&Key, &Data)| Entry {
            place: EntryTarget::Key(key.clone()),
            data: data.clone(),
        };
        match query {
            Query::All => Ok(entries.into_iter().flatten().map(entry).collect()),
            Query::Entry(key) => match entries.and_then(|entries| entries.get_key_value(key)) {
                Some(found) => Ok(vec![entry(found)]),
                None => Err(Fault::not_found("Object not found")),
            },
            Query::Default => match state.defaults.get(&table.name) {
                Some(data) => Ok(vec![Entry { place: EntryTarget::Default, data: data.clone() }]),
                None => Err(Fault::not_found("Object not found")),
            },
        }
    }

    fn operate(&self, table: &str, _: Pipes, operation: &str) -> Result<(), Fault> {
        assert_eq!(operation, "Sync");
        let mut state = self.state();
        let cells = state.hardware[table].clone();
        state.software.insert(table.to_owned(), cells);
        state.syncs += 1;
        Ok(())
    }

    fn pause(&self) -> Result<(), Fault> {
        self.state().paused = true;
        Ok(())
    }

    fn resume(&self) {
        self.state().paused = false;
    }

    fn configure_port(&self, dev_port: u32, enabled: bool) -> Result<(), Fault> {
        self.state().ports.push((dev_port, enabled));
        Ok(())
    }

    fn port_counters(&self) -> BTreeMap<u32, PortCounters> {
        self.state().macs.clone()
    }

    fn attach(&self, digests: Digests) {
        self.state().digests = Some(digests);
    }
}
