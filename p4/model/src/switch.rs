//! Model as the target of a BFRuntime server: the part of a switch's driver.

use crate::{
    ActionCall, ControlError, Counted, CounterKind, Fault as Stopped, Model, Output,
    PORTS_PER_PIPE, Pipes,
};
use crate::{Entry as ModelEntry, Key as ModelKey, Match as ModelMatch};
use flowgauge_bfruntime::server::{
    Digest, Digests, Fault, PortCounters, Query, Source, Target, Write,
};
use flowgauge_bfruntime::{Data, Entry, EntryTarget, Key, Match, Value};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;
use tonic::Code;

const PRIORITY: &str = "$MATCH_PRIORITY";
const COMPUTE: &str = ".compute";
const HASH_VALUE: &str = "hash_value";
const PARAMETER_VALUE: &str = "value";

/// [`Model`] shared between packets and a control plane.
///
/// Registers and counters are stored twice, as on a switch: in hardware, and in the driver as of
/// the last `Sync`.
pub struct Switch {
    program: String,
    schema: String,
    pipes: u32,
    arrays: HashMap<String, Array>,
    state: Mutex<State>,
    /// Signalled when packets are accepted again.
    resumed: Condvar,
    /// Number of control plane calls that wait. Packets yield to them, since a mutex is not fair.
    waiting: AtomicUsize,
    started: Instant,
}

struct State {
    model: Model,
    software: HashMap<String, Cells>,
    digests: Option<Digests>,
    ports: BTreeMap<u32, PortCounters>,
    paused: bool,
}

/// Numbers of an array: per pipe, those of every element, with the fields of an element together.
type Cells = Vec<Vec<u64>>;

/// Register or counter array.
struct Array {
    name: String,
    index: &'static str,
    size: usize,
    fields: Vec<CellField>,
    counter: Option<CounterKind>,
}

struct CellField {
    name: String,
    bytes: usize,
}

/// Entrance for packets, held exclusively.
pub struct PacketEntrance<'a> {
    state: MutexGuard<'a, State>,
}

impl PacketEntrance<'_> {
    /// Sets the arrival time of later packets, in nanoseconds, instead of the current time.
    pub fn set_clock(&mut self, nanoseconds: u64) {
        self.state.model.set_clock(nanoseconds);
    }

    /// Returns the model.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.state.model
    }

    fn mac(&mut self, port: u16) -> &mut PortCounters {
        self.state.ports.entry(u32::from(port)).or_default()
    }

    /// Counts frames with a wrong checksum, which the MAC of a port drops.
    pub fn arrive_damaged(&mut self, port: u16, frames: u64) {
        let mac = self.mac(port);
        mac.received += frames;
        mac.wrong_checksum += frames;
    }

    /// Counts frames dropped at a port whose buffer is full.
    pub fn arrive_without_room(&mut self, port: u16, frames: u64) {
        let mac = self.mac(port);
        mac.received += frames;
        mac.no_room += frames;
    }

    /// Counts PAUSE frames, which the MAC of a port does not pass on.
    pub fn arrive_pause(&mut self, port: u16, frames: u64) {
        let mac = self.mac(port);
        mac.received += frames;
        mac.pause += frames;
    }

    /// Injects a frame at a port. Digests that it causes are sent to the control plane.
    ///
    /// # Errors
    /// [`Fault`](Stopped) as for [`Model::inject`].
    pub fn arrive(&mut self, port: u16, frame: &[u8]) -> Result<Vec<Output>, Stopped> {
        self.mac(port).received += 1;
        let sent = self.state.model.inject(port, frame)?;
        sent.iter().for_each(|output| self.mac(output.port).sent += 1);
        let digests = self.state.model.take_digests();
        if let Some(clients) = self.state.digests.as_ref().filter(|_| !digests.is_empty()) {
            for digest in digests {
                clients.send(Digest {
                    filter: digest.name,
                    pipe: digest.pipe as u32,
                    entries: vec![digest.fields],
                });
            }
        }
        Ok(sent)
    }
}

impl Switch {
    /// Returns a switch that runs a model under this program name.
    #[must_use]
    pub fn new(model: Model, program: &str) -> Self {
        let arrays = arrays(&model);
        let software = arrays
            .iter()
            .map(|(name, array)| (name.clone(), array.hardware(&model, 0..array.size)))
            .collect();
        Switch {
            program: program.to_owned(),
            schema: model.schema().to_string(),
            pipes: model.pipes() as u32,
            arrays,
            state: Mutex::new(State {
                model,
                software,
                digests: None,
                ports: BTreeMap::new(),
                paused: false,
            }),
            resumed: Condvar::new(),
            waiting: AtomicUsize::new(0),
            started: Instant::now(),
        }
    }

    /// Returns the first port of a pipe; pipes beyond the last wrap around.
    #[must_use]
    pub fn port(&self, pipe: usize) -> u16 {
        (pipe as u32 % self.pipes) as u16 * PORTS_PER_PIPE
    }

    /// Opens the entrance for packets, which arrive at the current time.
    pub fn enter(&self) -> PacketEntrance<'_> {
        while self.waiting.load(Ordering::Acquire) > 0 {
            thread::yield_now();
        }
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self
            .resumed
            .wait_while(state, |state| state.paused)
            .unwrap_or_else(PoisonError::into_inner);
        state.model.set_clock(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX));
        PacketEntrance { state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        state
    }

    fn read_array(
        &self,
        array: &Array,
        pipes: Pipes,
        query: &Query,
        source: Source,
    ) -> Result<Vec<Entry>, Fault> {
        let range = match query {
            Query::All => 0..array.size,
            Query::Entry(key) => array.element(key)?,
            Query::Default => {
                return Err(Fault::invalid(format!("{} has no default entry", array.name)));
            }
        };
        let cells = {
            let state = self.state();
            match (source, state.software.get(&array.name)) {
                (Source::Software, Some(cells)) => array.part(cells, &range),
                _ => array.hardware(&state.model, range.clone()),
            }
        };
        let chosen = match pipes {
            Pipes::All => &cells[..],
            Pipes::One(pipe) => cells.get(pipe..=pipe).unwrap_or_default(),
        };
        Ok(range.clone().map(|index| array.entry(index, index - range.start, chosen)).collect())
    }

    fn write_array(&self, array: &Array, pipes: Pipes, write: &Write) -> Result<(), Fault> {
        let mut state = self.state();
        let State { model, software, .. } = &mut *state;
        let range = match write {
            Write::Insert(key, data) | Write::Modify(key, data) => {
                let range = array.element(key)?;
                array.set(model, range.start, pipes, data)?;
                range
            }
            Write::Clear => {
                match array.counter {
                    Some(_) => model.clear_counter(&array.name, pipes).map_err(refused)?,
                    None => model.clear_register(&array.name, pipes).map_err(refused)?,
                }
                0..array.size
            }
            Write::Delete(_) | Write::SetDefault(_) | Write::ResetDefault => {
                return Err(Fault::invalid(format!(
                    "the elements of {} can only be written",
                    array.name
                )));
            }
        };
        // The driver also knows what was written.
        array.copy(model, software, range, pipes);
        Ok(())
    }
}

impl Array {
    fn element(&self, key: &Key) -> Result<Range<usize>, Fault> {
        let Some(Match::Exact(bytes)) = key.get(self.index) else {
            return Err(Fault::invalid(format!("{} has {} as its key", self.name, self.index)));
        };
        let index = number(bytes) as usize;
        if index < self.size {
            Ok(index..index + 1)
        } else {
            Err(Fault::invalid(format!(
                "index {index} in {}, which has {} elements",
                self.name, self.size
            )))
        }
    }

    fn hardware(&self, model: &Model, range: Range<usize>) -> Cells {
        let width = self.fields.len();
        (0..model.pipes())
            .map(|pipe| {
                let mut cells = vec![0; range.len() * width];
                for field in 0..width {
                    let values = match self.counter {
                        None => model
                            .register_range(&self.name, field, range.clone(), pipe)
                            .unwrap_or_default(),
                        Some(kind) => range
                            .clone()
                            .map(|index| self.counted(model, index, pipe, kind, field))
                            .collect(),
                    };
                    for (cell, value) in cells.iter_mut().skip(field).step_by(width).zip(values) {
                        *cell = value;
                    }
                }
                cells
            })
            .collect()
    }

    fn counted(
        &self,
        model: &Model,
        index: usize,
        pipe: usize,
        kind: CounterKind,
        field: usize,
    ) -> u64 {
        let counted = model.read_counter(&self.name, index, Pipes::One(pipe)).unwrap_or_default();
        if field == 0 && kind != CounterKind::Packets { counted.bytes } else { counted.packets }
    }

    fn part(&self, cells: &Cells, range: &Range<usize>) -> Cells {
        let width = self.fields.len();
        cells.iter().map(|pipe| pipe[range.start * width..range.end * width].to_vec()).collect()
    }

    /// Copies the values of the hardware to the driver.
    fn copy(
        &self,
        model: &Model,
        software: &mut HashMap<String, Cells>,
        range: Range<usize>,
        pipes: Pipes,
    ) {
        let (width, fresh) = (self.fields.len(), self.hardware(model, range.clone()));
        for (pipe, (cells, fresh)) in
            software.get_mut(&self.name).into_iter().flatten().zip(fresh).enumerate()
        {
            if pipes == Pipes::All || pipes == Pipes::One(pipe) {
                cells[range.start * width..range.end * width].copy_from_slice(&fresh);
            }
        }
    }

    fn entry(&self, index: usize, at: usize, pipes: &[Vec<u64>]) -> Entry {
        let key =
            [(self.index.to_owned(), Match::Exact((index as u32).to_be_bytes().to_vec()))].into();
        let mut fields = Vec::with_capacity(self.fields.len() * pipes.len());
        for (offset, field) in self.fields.iter().enumerate() {
            let values = pipes.iter().map(|cells| cells[at * self.fields.len() + offset]);
            let mut push = |value: u64| {
                fields.push((
                    field.name.clone(),
                    Value::Bytes(value.to_be_bytes()[8 - field.bytes..].to_vec()),
                ));
            };
            match self.counter {
                None => values.for_each(push),
                Some(_) => push(values.fold(0, u64::wrapping_add)),
            }
        }
        Entry { place: EntryTarget::Key(key), data: Data { action: None, fields } }
    }

    /// Writes an element; fields that are not given keep their values.
    fn set(&self, model: &mut Model, index: usize, pipes: Pipes, data: &Data) -> Result<(), Fault> {
        if self.counter.is_some() {
            let is = model.read_counter(&self.name, index, pipes).map_err(refused)?;
            let given = |name: &str, is: u64| data.bytes(name).map_or(is, number);
            let counted = Counted {
                packets: given("$COUNTER_SPEC_PKTS", is.packets),
                bytes: given("$COUNTER_SPEC_BYTES", is.bytes),
            };
            return model.write_counter(&self.name, index, pipes, counted).map_err(refused);
        }
        let given = numbers(data)?;
        if given.len() == self.fields.len() {
            return model.write_register(&self.name, index, pipes, &given).map_err(refused);
        }
        let each = match pipes {
            Pipes::All => 0..model.pipes(),
            Pipes::One(pipe) => pipe..pipe + 1,
        };
        for pipe in each {
            let is = model.read_register(&self.name, index, Pipes::One(pipe)).map_err(refused)?;
            let kept = is
                .into_iter()
                .filter(|(field, _)| given.iter().all(|(name, _)| *name != field.name));
            let kept =
                kept.filter_map(|(field, values)| Some((field.name, values.into_iter().next()?)));
            let all: Vec<_> = given.iter().cloned().chain(kept).collect();
            model.write_register(&self.name, index, Pipes::One(pipe), &all).map_err(refused)?;
        }
        Ok(())
    }
}

fn arrays(model: &Model) -> HashMap<String, Array> {
    let registers = model.registers().into_iter().map(|register| Array {
        index: "$REGISTER_INDEX",
        size: register.size,
        fields: register
            .fields
            .into_iter()
            .map(|field| CellField { name: field.name, bytes: bytes(field.width) })
            .collect(),
        name: register.name,
        counter: None,
    });
    let counters = model.counters().into_iter().map(|counter| {
        let names: &[&str] = match counter.kind {
            CounterKind::Packets => &["$COUNTER_SPEC_PKTS"],
            CounterKind::Bytes => &["$COUNTER_SPEC_BYTES"],
            CounterKind::PacketsAndBytes => &["$COUNTER_SPEC_BYTES", "$COUNTER_SPEC_PKTS"],
        };
        let fields =
            names.iter().map(|name| CellField { name: (*name).to_owned(), bytes: 8 }).collect();
        Array {
            index: "$COUNTER_INDEX",
            size: counter.size,
            fields,
            name: counter.name,
            counter: Some(counter.kind),
        }
    });
    registers.chain(counters).map(|array| (array.name.clone(), array)).collect()
}

fn bytes(width: u32) -> usize {
    width.div_ceil(8).min(8) as usize
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn numbers(data: &Data) -> Result<Vec<(String, Vec<u8>)>, Fault> {
    let one = |(name, value): &(String, Value)| match value {
        Value::Bytes(bytes) => Ok((name.clone(), bytes.clone())),
        _ => Err(Fault::invalid(format!("{name} is a number"))),
    };
    data.fields.iter().map(one).collect()
}

fn refused(error: ControlError) -> Fault {
    let code = match &error {
        ControlError::NoSuch { .. }
        | ControlError::NoSuchAction { .. }
        | ControlError::NoSuchEntry { .. } => Code::NotFound,
        ControlError::Duplicate { .. } => Code::AlreadyExists,
        ControlError::Full { .. } => Code::ResourceExhausted,
        ControlError::Constant { .. } => Code::PermissionDenied,
        _ => Code::InvalidArgument,
    };
    Fault::new(code, error.to_string())
}

fn in_model(pipes: flowgauge_bfruntime::Pipes) -> Pipes {
    match pipes {
        flowgauge_bfruntime::Pipes::All => Pipes::All,
        flowgauge_bfruntime::Pipes::One(pipe) => Pipes::One(pipe as usize),
    }
}

/// Splits a key and its priority.
fn key(key: &Key) -> Result<(ModelKey, u32), Fault> {
    let (mut fields, mut priority) = (Vec::new(), 0);
    for (name, part) in key {
        let part = match part {
            Match::Exact(value) if name == PRIORITY => {
                priority = number(value) as u32;
                continue;
            }
            Match::Exact(value) => ModelMatch::Exact(value.clone()),
            Match::Lpm { value, prefix_length } => {
                ModelMatch::Lpm { value: value.clone(), length: *prefix_length }
            }
            Match::Ternary { value, mask } => {
                ModelMatch::Ternary { value: value.clone(), mask: mask.clone() }
            }
            Match::Range { .. } | Match::Optional(_) => {
                return Err(Fault::new(
                    Code::Unimplemented,
                    format!("{name}: the model has no ranges and no optional fields"),
                ));
            }
        };
        fields.push((name.clone(), part));
    }
    Ok((fields, priority))
}

fn call(data: &Data) -> Result<ActionCall, Fault> {
    let action = data.action.clone().ok_or_else(|| Fault::invalid("no action given"))?;
    Ok(ActionCall { action, data: numbers(data)? })
}

fn data(call: ActionCall) -> Data {
    let fields = call.data.into_iter().map(|(name, value)| (name, Value::Bytes(value))).collect();
    Data { action: Some(call.action), fields }
}

fn entry(model: ModelEntry) -> Entry {
    let ternary = model.key.iter().any(|(_, part)| matches!(part, ModelMatch::Ternary { .. }));
    let part = |part| match part {
        ModelMatch::Exact(value) => Match::Exact(value),
        ModelMatch::Lpm { value, length } => Match::Lpm { value, prefix_length: length },
        ModelMatch::Ternary { value, mask } => Match::Ternary { value, mask },
    };
    let mut key: Key = model.key.into_iter().map(|(name, of)| (name, part(of))).collect();
    if ternary {
        key.insert(PRIORITY.to_owned(), Match::Exact(model.priority.to_be_bytes().to_vec()));
    }
    Entry { place: EntryTarget::Key(key), data: data(model.call) }
}

/// Returns the call with changed data; fields that are not given keep their values.
fn changed(is: ActionCall, to: &Data) -> Result<ActionCall, Fault> {
    let mut given = numbers(to)?;
    let action = to.action.clone().unwrap_or_else(|| is.action.clone());
    if action == is.action {
        let kept =
            is.data.into_iter().filter(|(name, _)| given.iter().all(|(other, _)| other != name));
        let kept: Vec<_> = kept.collect();
        given.extend(kept);
    }
    Ok(ActionCall { action, data: given })
}

impl Target for Switch {
    fn program(&self) -> &str {
        &self.program
    }

    fn schema(&self) -> &str {
        &self.schema
    }

    fn pipes(&self) -> u32 {
        self.pipes
    }

    fn write(
        &self,
        table: &str,
        pipes: flowgauge_bfruntime::Pipes,
        write: &Write,
    ) -> Result<(), Fault> {
        if let Some(array) = self.arrays.get(table) {
            return self.write_array(array, in_model(pipes), write);
        }
        let model = &mut self.state().model;
        if model.parameters().iter().any(|parameter| parameter.name == table) {
            return match write {
                Write::SetDefault(data) => {
                    let value = data
                        .bytes(PARAMETER_VALUE)
                        .ok_or_else(|| Fault::invalid(format!("{table}: no value given")))?;
                    model.write_parameter(table, in_model(pipes), value).map_err(refused)
                }
                _ => Err(Fault::invalid(format!("{table} has only a default entry"))),
            };
        }
        match write {
            Write::Insert(of, to) => {
                let (key, priority) = key(of)?;
                model
                    .add_entry(table, &ModelEntry { key, priority, call: call(to)? })
                    .map_err(refused)
            }
            Write::Modify(of, to) => {
                let (key, priority) = key(of)?;
                let is = model.entry(table, &key, priority).map_err(refused)?;
                model
                    .modify_entry(table, &ModelEntry { call: changed(is.call, to)?, ..is })
                    .map_err(refused)
            }
            Write::Delete(of) => {
                let (key, priority) = key(of)?;
                model.delete_entry(table, &key, priority).map_err(refused)
            }
            Write::Clear => model.clear_table(table).map_err(refused),
            Write::SetDefault(to) => model.set_default_action(table, &call(to)?).map_err(refused),
            Write::ResetDefault => model.reset_default_action(table).map_err(refused),
        }
    }

    fn read(
        &self,
        table: &str,
        pipes: flowgauge_bfruntime::Pipes,
        query: &Query,
        source: Source,
    ) -> Result<Vec<Entry>, Fault> {
        if let Some(array) = self.arrays.get(table) {
            return self.read_array(array, in_model(pipes), query, source);
        }
        let model = &self.state().model;
        if let Some(hash) = table.strip_suffix(COMPUTE) {
            let Query::Entry(of) = query else {
                return Err(Fault::invalid(format!("{table} needs a key")));
            };
            let (fields, _) = key(of)?;
            let exact = |(name, part)| match part {
                ModelMatch::Exact(value) => Ok((name, value)),
                _ => Err(Fault::invalid(format!("{table}: {name} is one value"))),
            };
            let fields = fields.into_iter().map(exact).collect::<Result<Vec<_>, _>>()?;
            let value = model.compute_hash(hash, &fields).map_err(refused)?;
            return Ok(vec![Entry {
                place: EntryTarget::Key(of.clone()),
                data: Data::fields([(HASH_VALUE, value)]),
            }]);
        }
        if model.parameters().iter().any(|parameter| parameter.name == table) {
            let pipe = match pipes {
                flowgauge_bfruntime::Pipes::All => 0,
                flowgauge_bfruntime::Pipes::One(pipe) => pipe as usize,
            };
            let value = model.read_parameter(table, pipe).map_err(refused)?;
            return Ok(vec![Entry {
                place: EntryTarget::Default,
                data: Data::fields([(PARAMETER_VALUE, value)]),
            }]);
        }
        match query {
            Query::All => {
                Ok(model.entries(table).map_err(refused)?.into_iter().map(entry).collect())
            }
            Query::Entry(of) => {
                let (key, priority) = key(of)?;
                Ok(vec![entry(model.entry(table, &key, priority).map_err(refused)?)])
            }
            Query::Default => {
                let call = model.default_action(table).map_err(refused)?;
                Ok(vec![Entry { place: EntryTarget::Default, data: data(call) }])
            }
        }
    }

    fn operate(
        &self,
        table: &str,
        pipes: flowgauge_bfruntime::Pipes,
        operation: &str,
    ) -> Result<(), Fault> {
        let array = self.arrays.get(table).filter(|_| operation == "Sync");
        let array = array.ok_or_else(|| {
            Fault::new(Code::Unimplemented, format!("{table} has no operation {operation}"))
        })?;
        let State { model, software, .. } = &mut *self.state();
        array.copy(model, software, 0..array.size, in_model(pipes));
        Ok(())
    }

    fn pause(&self) -> Result<(), Fault> {
        self.state().paused = true;
        Ok(())
    }

    fn resume(&self) {
        self.state().paused = false;
        self.resumed.notify_all();
    }

    fn port_counters(&self) -> BTreeMap<u32, PortCounters> {
        self.state().ports.clone()
    }

    fn attach(&self, digests: Digests) {
        self.state().digests = Some(digests);
    }
}
