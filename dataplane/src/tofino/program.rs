//! The program on a switch, by its schema: what it can do, and the numbers of what is read and written.

use super::failure::Failure;
use super::names;
use crate::capabilities::{Capabilities, MeasurementKind};
use crate::snapshot::Place as Counted;
use crate::tables::Tables;
use flowgauge_bfruntime::schema::{Field, Schema, SchemaError, Table, TableKind};
use flowgauge_bfruntime::{Data, Entry, Key, Match, Place, codec, fixed, proto};
use flowgauge_core::cardinality::Mode;
use flowgauge_core::{BANKS, Bank, Counters, HashMode, KeyKind, Precision, Settings};
use std::collections::BTreeMap;

/// A program whose schema was understood.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Program {
    schema: Schema,
    pub(super) precision: Precision,
    pub(super) key: KeyKind,
    pub(super) hash: HashMode,
}

/// Entries that a table must have, and nothing else.
pub(super) struct Content {
    pub(super) table: &'static str,
    pub(super) entries: Vec<Entry>,
    pub(super) default: Option<Data>,
}

impl Program {
    /// Finds in a schema all that is needed.
    pub(super) fn new(schema: Schema) -> Result<Self, Failure> {
        let find = |error: SchemaError| Failure::program(format!("{error}; is it p4/flowgauge.p4?"));
        let registers = schema.table(names::REGISTERS).map_err(find)?;
        let hash = match schema.table(names::TABULATION[0]) {
            Ok(_) => HashMode::Tabulated,
            Err(SchemaError::Missing { .. }) => HashMode::Crc32,
            Err(error) => return Err(find(error)),
        };
        let per_bank = usize::try_from(registers.size).ok().map(|size| size / BANKS).and_then(Precision::from_registers);
        let precision = per_bank.filter(|precision| precision.registers() * BANKS == registers.size as usize);
        let precision = precision.ok_or_else(|| {
            Failure::program(format!(
                "{} has {} registers, which are not two banks of a power of two",
                registers.name, registers.size
            ))
        })?;
        let key = key(&schema)?;
        let program = Program { schema, precision, key, hash };
        program.check().map_err(find)?;
        program.check_widths()?;
        Ok(program)
    }

    /// Looks everything up once, so that nothing can be missing later.
    fn check(&self) -> Result<(), SchemaError> {
        let bank = self.schema.table(names::BANK)?;
        bank.action(names::SET_BANK)?.field(names::BANK_PARAMETER)?;
        let rank = self.schema.table(names::RANK)?;
        rank.key(names::RANK_KEY)?;
        rank.action(names::SET_LEVEL)?.field(names::LEVEL_PARAMETER)?;
        let registers = self.schema.table(names::REGISTERS)?;
        registers.key(names::REGISTER_INDEX)?;
        registers.field(names::REGISTER_VALUE)?;
        let frames = self.schema.table(names::FRAMES)?;
        frames.key(names::COUNTER_INDEX)?;
        frames.field(names::PACKETS)?;
        frames.field(names::BYTES)?;
        if self.hash == HashMode::Tabulated {
            for (table, action) in names::TABULATION.iter().zip(names::SET_WORD) {
                let table = self.schema.table(table)?;
                table.key(names::TABULATION_KEY)?;
                table.action(action)?.field(names::WORD_PARAMETER)?;
            }
        }
        Ok(())
    }

    fn check_widths(&self) -> Result<(), Failure> {
        let wrong = |item: &str, is: String, must: String| Failure::program(format!("{item} is {is} and must be {must}"));
        let rank = self.table(names::RANK)?;
        let bits = rank.key(names::RANK_KEY).map_err(Failure::program)?.kind.bits().map_err(Failure::program)?;
        if bits != self.precision.rank_bits() {
            return Err(wrong(&rank.name, format!("{bits} bits wide"), format!("{}", self.precision.rank_bits())));
        }
        let frames = self.table(names::FRAMES)?;
        let size = BANKS * names::CLASSES;
        if (&frames.kind, frames.size) != (&TableKind::Counter, size as u64) {
            return Err(wrong(&frames.name, format!("{:?} of {}", frames.kind, frames.size), format!("a counter of {size}")));
        }
        let registers = self.table(names::REGISTERS)?;
        let bits = self.register_value()?.kind.bits().map_err(Failure::program)?;
        if registers.kind != TableKind::Register || bits != 8 {
            return Err(wrong(&registers.name, format!("{:?} of {bits} bits", registers.kind), "a register of 8 bits".to_owned()));
        }
        Ok(())
    }

    /// Checks that frames can be forwarded so.
    pub(super) fn check_forward(&self, forward: &[(u32, u32)]) -> Result<(), Failure> {
        let mut seen = Vec::new();
        for port in forward.iter().flat_map(|(one, other)| [*one, *other]) {
            if port >> names::PORT_BITS != 0 {
                return Err(Failure::options(format!("{port} is no port of a switch; they are below {}", 1 << names::PORT_BITS)));
            }
            if seen.contains(&port) {
                return Err(Failure::options(format!("port {port} is in two pairs, and a frame can leave at one port only")));
            }
            seen.push(port);
        }
        if !forward.is_empty() {
            let find = |error: SchemaError| Failure::program(format!("{error}; this program forwards nothing by itself"));
            let table = self.schema.table(names::FORWARD).map_err(find)?;
            let bits = table.key(names::FORWARD_KEY).map_err(find)?.kind.bits().map_err(Failure::program)?;
            table.action(names::SEND).map_err(find)?.field(names::SEND_PARAMETER).map_err(find)?;
            if bits != names::PORT_BITS {
                return Err(Failure::program(format!("{} has ports of {bits} bits", table.name)));
            }
        }
        Ok(())
    }

    /// Checks that the program counts as these settings ask.
    pub(super) fn check_settings(&self, settings: &Settings) -> Result<(), Failure> {
        let wanted = settings.cardinality;
        let differences = [
            (wanted.mode == Mode::Staggered).then(|| "it has no staggered registers".to_owned()),
            (wanted.precision != self.precision).then(|| {
                let (has, wanted) = (self.precision.registers(), wanted.precision);
                format!("it has {has} registers, {} are wanted (-DFLOWGAUGE_PRECISION={})", wanted.registers(), wanted.bits())
            }),
            (wanted.key != self.key)
                .then(|| format!("its flows are by {}, wanted by {} (-DFLOWGAUGE_KEY)", self.key.name(), wanted.key.name())),
            (wanted.hash != self.hash)
                .then(|| format!("its hash is {}, wanted {} (-DFLOWGAUGE_HASH)", self.hash.name(), wanted.hash.name())),
        ];
        let differences: Vec<String> = differences.into_iter().flatten().collect();
        if differences.is_empty() {
            return Ok(());
        }
        Err(Failure::program(format!("{}; compile it so, or change the settings", differences.join("; "))))
    }

    pub(super) fn capabilities(&self, address: &str) -> Capabilities {
        Capabilities {
            backend: "tofino",
            interface: address.to_owned(),
            measurements: vec![MeasurementKind::Cardinality],
            keys: vec![self.key],
            hashes: vec![self.hash],
            places: vec![Counted::ingress(address)],
            precision: self.precision..=self.precision,
            banks: BANKS,
            atomic_snapshots: false,
            staggered: false,
            clock_resolution_ns: 1,
            workers: 1,
        }
    }

    /// A table of the program; that it is there was checked.
    pub(super) fn table(&self, name: &str) -> Result<&Table, Failure> {
        self.schema.table(name).map_err(Failure::program)
    }

    fn register_value(&self) -> Result<&Field, Failure> {
        self.table(names::REGISTERS)?.field(names::REGISTER_VALUE).map_err(Failure::program)
    }

    /// What the match tables must hold.
    pub(super) fn contents(&self, tables: &Tables, forward: &[(u32, u32)]) -> Result<Vec<Content>, Failure> {
        let bytes = |value: u32, bits: u32| value.to_be_bytes()[(4 - bits.div_ceil(8) as usize)..].to_vec();
        let entry = |table: &'static str, key: (&str, Match), action: &'static str, parameter: &'static str, value: Vec<u8>| {
            let table = self.table(table)?;
            let key: Key = [(table.key(key.0).map_err(Failure::program)?.name.clone(), key.1)].into();
            Ok::<_, Failure>(Entry { place: Place::Key(key), data: action_data(table, action, parameter, value)? })
        };
        let rank = tables.rank.iter().map(|rank| {
            let key = Match::Lpm { value: bytes(rank.value, self.precision.rank_bits()), prefix_length: rank.prefix_length };
            entry(names::RANK, (names::RANK_KEY, key), names::SET_LEVEL, names::LEVEL_PARAMETER, vec![rank.level])
        });
        let rank_table = self.table(names::RANK)?;
        let highest = vec![self.precision.max_level()];
        let mut contents = vec![Content {
            table: names::RANK,
            entries: rank.collect::<Result<_, _>>()?,
            default: Some(action_data(rank_table, names::SET_LEVEL, names::LEVEL_PARAMETER, highest)?),
        }];
        if self.hash == HashMode::Tabulated {
            for ((table, action), words) in names::TABULATION.iter().zip(names::SET_WORD).zip(tables.tabulation.tables()) {
                let entries = (0..=u8::MAX).zip(words).map(|(byte, word)| {
                    let key = (names::TABULATION_KEY, Match::Exact(vec![byte]));
                    entry(table, key, action, names::WORD_PARAMETER, word.to_be_bytes().to_vec())
                });
                contents.push(Content { table, entries: entries.collect::<Result<_, _>>()?, default: None });
            }
        }
        if !forward.is_empty() {
            let ways = forward.iter().flat_map(|(one, other)| [(*one, *other), (*other, *one)]);
            let entries = ways.map(|(from, to)| {
                let key = (names::FORWARD_KEY, Match::Exact(bytes(from, names::PORT_BITS)));
                entry(names::FORWARD, key, names::SEND, names::SEND_PARAMETER, bytes(to, names::PORT_BITS))
            });
            contents.push(Content { table: names::FORWARD, entries: entries.collect::<Result<_, _>>()?, default: None });
        }
        Ok(contents)
    }

    /// The update that makes a bank the one that counts.
    pub(super) fn set_bank(&self, bank: usize) -> Result<proto::Update, Failure> {
        let table = self.table(names::BANK)?;
        let data = action_data(table, names::SET_BANK, names::BANK_PARAMETER, vec![(bank & 1) as u8])?;
        update(table, proto::update::Type::Modify, &Entry { place: Place::Default, data })
    }

    /// The bank that an answer says counts.
    pub(super) fn bank(&self, answer: &[proto::TableEntry]) -> Result<usize, Failure> {
        let [message] = answer else { return Err(Failure::answer(format!("{} default entries of one table", answer.len()))) };
        let table = self.table(names::BANK)?;
        let entry = self.decode(table, message)?;
        let action = table.action(names::SET_BANK).map_err(Failure::program)?;
        let parameter = action.field(names::BANK_PARAMETER).map_err(Failure::program)?;
        match (entry.place, entry.data.action.as_deref(), entry.data.bytes(&parameter.name)) {
            (Place::Default, Some(name), Some(&[bank])) if name == action.name => Ok(usize::from(bank)),
            _ => Err(Failure::answer(format!("the default entry of {} says no bank", table.name))),
        }
    }

    /// An entry of this table and no other.
    pub(super) fn decode(&self, table: &Table, message: &proto::TableEntry) -> Result<Entry, Failure> {
        if message.table_id != table.id {
            return Err(Failure::answer(format!("an entry of table {} and not of {}, {}", message.table_id, table.name, table.id)));
        }
        let (_, entry) = codec::decode_entry(&self.schema, message).map_err(|error| Failure::answer(error.to_string()))?;
        Ok(entry)
    }

    /// The registers of a bank, united over all pipes, out of an answer with those of both banks.
    ///
    /// Gives the number of pipes. Whatever does not hold each register of each pipe once, in its width and with a level that a
    /// hash can give, is refused.
    pub(super) fn registers(&self, bank: usize, answer: &[proto::TableEntry], into: &mut Bank) -> Result<usize, Failure> {
        let table = self.table(names::REGISTERS)?;
        let value = self.register_value()?;
        let count = self.precision.registers();
        let highest = u64::from(self.precision.max_level());
        let levels = into.cardinality.levels_mut(self.precision);
        let mut pipes = None;
        let indexed = self.indexed(table, names::REGISTER_INDEX, answer)?;
        for (index, message) in indexed.iter().enumerate() {
            let name = || format!("{}[{index}]", table.name);
            let fields = message.data.as_ref().map(|data| &data.fields[..]).unwrap_or_default();
            let mut level = 0;
            for field in fields {
                let bytes = number(field, value.id).ok_or_else(|| Failure::answer(format!("{} has another field", name())))?;
                level = level.max(value.kind.decode(bytes).map_err(|error| Failure::answer(format!("{}: {error}", name())))?);
            }
            if fields.is_empty() || *pipes.get_or_insert(fields.len()) != fields.len() {
                let (some, others) = (fields.len(), pipes.unwrap_or_default());
                return Err(Failure::answer(format!("{} has values of {some} pipes, others of {others}", name())));
            }
            if level > highest {
                return Err(Failure::answer(format!("{} is {level}, no hash gives more than {highest}", name())));
            }
            if let Some(register) = index.checked_sub(bank * count).and_then(|index| levels.get_mut(index)) {
                *register = level as u8;
            }
        }
        Ok(pipes.unwrap_or_default())
    }

    /// The counters of a bank, out of an answer with those of both.
    pub(super) fn counters(&self, bank: usize, answer: &[proto::TableEntry]) -> Result<Counters, Failure> {
        let table = self.table(names::FRAMES)?;
        let (packets, bytes) = (self.field(table, names::PACKETS)?, self.field(table, names::BYTES)?);
        let indexed = self.indexed(table, names::COUNTER_INDEX, answer)?;
        let mut classes = [0; names::CLASSES];
        let mut counters = Counters::default();
        for (index, message) in indexed.iter().enumerate() {
            let fields = message.data.as_ref().map(|data| &data.fields[..]).unwrap_or_default();
            let value = |field: &Field| {
                let problem = |problem: String| Failure::answer(format!("{}[{index}]: {problem}", table.name));
                let mut values = fields.iter().filter_map(|part| number(part, field.id));
                let (Some(value), None) = (values.next(), values.next()) else {
                    return Err(problem(format!("{} is not there exactly once", field.name)));
                };
                field.kind.decode(value).map_err(|error| problem(error.to_string()))
            };
            let (packets, bytes) = (value(packets)?, value(bytes)?);
            if let Some(class) = index.checked_sub(bank * names::CLASSES).and_then(|class| classes.get_mut(class)) {
                *class = packets;
                counters.bytes = counters.bytes.wrapping_add(bytes);
            }
        }
        let [ipv4, ipv6, non_ip, truncated, bad_header, others @ ..] = classes;
        if others != [0; names::CLASSES - 5] {
            return Err(Failure::answer(format!("{}: packets of classes that there are not", table.name)));
        }
        Ok(Counters { ipv4, ipv6, non_ip, truncated, bad_header, ..counters })
    }

    fn field<'a>(&self, table: &'a Table, name: &str) -> Result<&'a Field, Failure> {
        table.field(name).map_err(Failure::program)
    }

    /// The entries of an indexed table in order: each once, and all there.
    fn indexed<'a>(
        &self,
        table: &Table,
        key: &str,
        answer: &'a [proto::TableEntry],
    ) -> Result<Vec<&'a proto::TableEntry>, Failure> {
        let problem = |problem: String| Failure::answer(format!("{}: {problem}", table.name));
        let key = table.key(key).map_err(Failure::program)?;
        let mut indexed = vec![None; usize::try_from(table.size).unwrap_or_default()];
        for message in answer {
            if message.table_id != table.id {
                return Err(problem(format!("an entry of table {} and not of {}", message.table_id, table.id)));
            }
            let Some(proto::table_entry::Value::Key(fields)) = &message.value else {
                return Err(problem("an entry without a key".into()));
            };
            let [proto::KeyField { field_id, match_type: Some(proto::key_field::MatchType::Exact(exact)) }] = &fields.fields[..]
            else {
                return Err(problem("an entry whose key is no index".into()));
            };
            if *field_id != key.id {
                return Err(problem(format!("a key field {field_id} and not {}", key.id)));
            }
            let index = key.kind.decode(&exact.value).map_err(|error| problem(format!("index: {error}")))?;
            let size = table.size;
            let slot = usize::try_from(index).ok().and_then(|index| indexed.get_mut(index));
            let slot = slot.ok_or_else(|| problem(format!("an index {index}, where {size} is the end")))?;
            if slot.replace(message).is_some() {
                return Err(problem(format!("index {index} twice")));
            }
        }
        let missing = indexed.iter().filter(|entry| entry.is_none()).count();
        let complete: Option<Vec<_>> = indexed.into_iter().collect();
        complete.ok_or_else(|| problem(format!("{missing} of {} entries are missing", table.size)))
    }

    /// Updates that zero a bank, of whose registers these may have a level.
    pub(super) fn clear(&self, bank: usize, registers: impl Iterator<Item = usize>) -> Result<Vec<proto::Update>, Failure> {
        let first = bank * self.precision.registers();
        let value = &self.register_value()?.name;
        let of_registers =
            self.zeroes(names::REGISTERS, names::REGISTER_INDEX, registers.map(|index| first + index), &[(value, 1)])?;
        let classes = bank * names::CLASSES..(bank + 1) * names::CLASSES;
        let counters = [(names::PACKETS, 8), (names::BYTES, 8)];
        let of_counters = self.zeroes(names::FRAMES, names::COUNTER_INDEX, classes, &counters)?;
        Ok(of_registers.into_iter().chain(of_counters).collect())
    }

    fn zeroes(
        &self,
        table: &str,
        key: &str,
        indices: impl Iterator<Item = usize>,
        fields: &[(&str, usize)],
    ) -> Result<Vec<proto::Update>, Failure> {
        let table = self.table(table)?;
        let data = Data::fields(fields.iter().map(|(name, bytes)| (*name, vec![0; *bytes])));
        let one = |index: usize| {
            let key: Key = BTreeMap::from([(key.to_owned(), Match::Exact((index as u32).to_be_bytes().to_vec()))]);
            update(table, proto::update::Type::Modify, &Entry { place: Place::Key(key), data: data.clone() })
        };
        indices.map(one).collect()
    }

    /// The update that configures a port, as a new one or one that is there.
    pub(super) fn port(&self, port: &super::Port, kind: proto::update::Type) -> Result<proto::Update, Failure> {
        use flowgauge_bfruntime::Value;
        let table = self.table(fixed::PORT)?;
        let key: Key = [(fixed::DEV_PORT.to_owned(), Match::Exact(port.dev_port.to_be_bytes().to_vec()))].into();
        let fields = vec![
            (fixed::SPEED.to_owned(), Value::Text(port.speed.on_switch())),
            (fixed::FEC.to_owned(), Value::Text(port.fec.on_switch().to_owned())),
            (fixed::PORT_ENABLE.to_owned(), Value::Bool(port.enable)),
        ];
        update(table, kind, &Entry { place: Place::Key(key), data: Data { action: None, fields } })
    }
}

fn action_data(table: &Table, action: &str, parameter: &str, value: Vec<u8>) -> Result<Data, Failure> {
    let action = table.action(action).map_err(Failure::program)?;
    let parameter = action.field(parameter).map_err(Failure::program)?;
    let data = Data::fields([(&*parameter.name, value)]);
    Ok(Data { action: Some(action.name.clone()), ..data })
}

/// An update of an entry. That it fits the schema follows from the schema having been checked.
pub(super) fn update(table: &Table, kind: proto::update::Type, entry: &Entry) -> Result<proto::Update, Failure> {
    let message = codec::encode_entry(table, entry).map_err(Failure::program)?;
    Ok(proto::Update { r#type: kind.into(), entity: Some(entity(message)) })
}

pub(super) fn entity(entry: proto::TableEntry) -> proto::Entity {
    proto::Entity { entity: Some(proto::entity::Entity::TableEntry(entry)) }
}

/// The number in a field, if it is this field.
fn number(field: &proto::DataField, id: u32) -> Option<&[u8]> {
    match &field.value {
        Some(proto::data_field::Value::Stream(bytes)) if field.field_id == id => Some(bytes),
        _ => None,
    }
}

/// Which flow key the program's hash units take.
fn key(schema: &Schema) -> Result<KeyKind, Failure> {
    let mut keys = names::KEY_FIELDS.iter().map(|table| {
        let table = schema.table(table).map_err(|error| Failure::program(format!("{error}; is it p4/flowgauge.p4?")))?;
        let ends = |name: &str, end: &str| name.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        let fields: Vec<&str> = table.keys.iter().map(|key| &*key.name).collect();
        match fields[..] {
            [src] if ends(src, names::SRC) => Ok(KeyKind::Src),
            [dst] if ends(dst, names::DST) => Ok(KeyKind::Dst),
            [src, dst] if ends(src, names::SRC) && ends(dst, names::DST) => Ok(KeyKind::SrcDst),
            [src, dst, ports, protocol]
                if ends(src, names::SRC)
                    && ends(dst, names::DST)
                    && ends(ports, names::PORTS)
                    && names::PROTOCOL.iter().any(|name| ends(protocol, name)) =>
            {
                Ok(KeyKind::FiveTuple)
            }
            _ => Err(Failure::program(format!("{} hashes {}, which is no flow key", table.name, fields.join(", ")))),
        }
    });
    let (Some(ipv4), Some(ipv6)) = (keys.next(), keys.next()) else { return Err(Failure::program("no hash units")) };
    let (ipv4, ipv6) = (ipv4?, ipv6?);
    if ipv4 != ipv6 {
        return Err(Failure::program(format!("IPv4 flows are by {}, IPv6 flows by {}", ipv4.name(), ipv6.name())));
    }
    Ok(ipv4)
}
