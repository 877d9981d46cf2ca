//! Register arrays: what measurements count in, as it is read.

use super::definitions::ROWS;
use super::failure::Failure;
use super::heavy;
use super::names;
use super::program::{Program, number};
use crate::zeroed::Zeroed;
use flowgauge_bfruntime::proto;
use flowgauge_bfruntime::schema::{Schema, SchemaError, Table, TableKind};
use flowgauge_core::cardinality::Mode;
use flowgauge_core::heavy::{Algorithm, PRECISION_STAGES};
use flowgauge_core::{BANKS, Counters, KeyKind, Settings, WideBank, WideSketch, sketch};

/// An array of both banks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Array {
    pub(super) table: String,
    /// Elements of a bank.
    pub(super) per_bank: usize,
    /// The names of an element's values.
    pub(super) fields: &'static [&'static str],
    /// How wide each is.
    pub(super) bits: u32,
    /// What they are while nothing was counted.
    pub(super) empty: [u32; 2],
    part: Part,
}

/// What an array holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The registers of distinct flows.
    Levels,
    /// A row of an entropy's sketch.
    Entropy(usize),
    /// An entropy's sum.
    Sum,
    /// A row of the sketch of frequencies.
    Frequency(usize),
    /// A row of the filter, 32 bits an element.
    Filter(usize),
    /// Something of heavy hitters.
    Heavy(heavy::Part),
}

/// What was read of a bank.
pub(super) struct Reading {
    pub(super) bank: Box<WideBank>,
    /// Of each array the elements that hold something in any pipe.
    pub(super) raised: Vec<Vec<usize>>,
    /// Heavy hitters whose slots changed hands while they were read: these are left out.
    pub(super) changed: usize,
    /// Heavy hitters of each pipe.
    pipes: Vec<heavy::Pipe>,
}

impl Reading {
    pub(super) fn new() -> Self {
        Reading { bank: WideBank::boxed(), raised: Vec::new(), changed: 0, pipes: Vec::new() }
    }

    /// Makes one table of the pipes' heavy hitters. How many packets it is of, the counters say, which are wider.
    pub(super) fn merge_heavy(&mut self, settings: &Settings, counters: &Counters) {
        for (number, pipe) in self.pipes.iter().enumerate() {
            if number == 0 {
                self.changed += pipe.fill(&settings.heavy, &mut self.bank.heavy);
            } else {
                let mut other = WideBank::boxed();
                self.changed += pipe.fill(&settings.heavy, &mut other.heavy);
                self.bank.heavy.merge(&other.heavy, &settings.heavy);
            }
        }
        if settings.heavy.algorithm != Algorithm::Off {
            let packets = self.bank.heavy.packets();
            self.bank.heavy.set_totals(packets, counters.ipv4.wrapping_add(counters.ipv6));
        }
    }

    /// Adds what one pipe holds in an element.
    fn merge(&mut self, part: Part, settings: &Settings, pipe: usize, index: usize, [value, upper]: [u64; 2]) {
        let add = |sketch: &mut WideSketch, settings: &sketch::Settings, row: usize| {
            if let Some(kind) = settings.mode.sketch() {
                sketch.add(kind, row << settings.shape.column_bits() | index, value as u32 as i32);
            }
        };
        let Settings { cardinality, entropy: [entropy, ..], frequency, membership, .. } = settings;
        match part {
            Part::Levels => {
                if let Some(register) = self.bank.cardinality.levels_mut(cardinality.precision).get_mut(index) {
                    *register = (*register).max(value as u8);
                }
            }
            Part::Entropy(row) => {
                let [sketch, ..] = &mut self.bank.entropy.sketches;
                add(sketch, entropy, row);
            }
            Part::Sum => {
                let [entropy, ..] = &mut self.bank.entropy.sums;
                entropy.sum = entropy.sum.saturating_add(upper << 32 | value);
            }
            Part::Frequency(row) => add(&mut self.bank.frequency, frequency, row),
            Part::Filter(row) => {
                let place = row << membership.shape.column_bits() | index << 5;
                if let Some(word) = self.bank.membership.words_mut(membership.shape).get_mut(place >> 6) {
                    *word |= value << (place & 32);
                }
            }
            Part::Heavy(part) => {
                if self.pipes.len() <= pipe {
                    self.pipes.resize_with(pipe + 1, heavy::Pipe::default);
                }
                if let Some(pipe) = self.pipes.get_mut(pipe) {
                    pipe.set(part, &settings.heavy, index, [value as u32, upper as u32]);
                }
            }
        }
    }
}

/// The arrays of all that is measured.
pub(super) fn of(settings: &Settings) -> Vec<Array> {
    let value: &'static [&'static str] = &[names::REGISTER_VALUE];
    let Settings { cardinality, entropy: [entropy, ..], frequency, membership, .. } = settings;
    let mut arrays = Vec::new();
    let zero = [0, 0];
    if cardinality.mode != Mode::Off {
        let table = names::of("cardinality", cardinality.key, names::REGISTERS);
        let per_bank = cardinality.precision.registers();
        arrays.push(Array { table, per_bank, fields: value, bits: 8, empty: zero, part: Part::Levels });
    }
    let rows = |name: &'static str, sketch: &sketch::Settings, part: fn(usize) -> Part| {
        let (kind, key, per_bank) = (sketch.mode.sketch(), sketch.key, sketch.shape.columns());
        kind.into_iter().flat_map(move |kind| {
            (0..ROWS).map(move |row| {
                let table = names::of(name, key, &names::sketch_row(kind, row));
                Array { table, per_bank, fields: value, bits: 32, empty: zero, part: part(row) }
            })
        })
    };
    arrays.extend(rows("entropy", entropy, Part::Entropy));
    if entropy.mode != sketch::Mode::Off {
        let table = names::of("entropy", entropy.key, names::SUM);
        arrays.push(Array { table, per_bank: 1, fields: &names::SUM_HALVES, bits: 32, empty: zero, part: Part::Sum });
    }
    arrays.extend(rows("frequency", frequency, Part::Frequency));
    if membership.on {
        let per_bank = 1 << (membership.shape.column_bits() - 5);
        arrays.extend((0..ROWS).map(|row| {
            let table = names::of("membership", membership.key, &names::filter_row(row));
            Array { table, per_bank, fields: value, bits: 32, empty: zero, part: Part::Filter(row) }
        }));
    }
    if settings.heavy.algorithm != Algorithm::Off {
        arrays.extend(of_heavy(&settings.heavy));
    }
    arrays
}

fn of_heavy(settings: &flowgauge_core::heavy::Settings) -> Vec<Array> {
    let (key, slots) = (settings.key, settings.slots());
    let array = |name: &str, per_bank: usize, fields, empty, part| {
        let table = names::of("heavy", key, name);
        Array { table, per_bank, fields, bits: 32, empty, part: Part::Heavy(part) }
    };
    let mut arrays = vec![array(names::HEAVY_PACKETS, 1, &[names::REGISTER_VALUE], [0, 0], heavy::Part::Packets)];
    arrays.extend(
        (0..PRECISION_STAGES)
            .map(|stage| array(&names::flows(stage), slots / PRECISION_STAGES, &names::FLOW, [0, 1], heavy::Part::Flows(stage))),
    );
    arrays.push(array(names::ORIGIN, slots, &names::ORIGIN_FIELDS, [0, 0], heavy::Part::Origin));
    let words = names::key_words(key).map(|(name, fields, word)| array(name, slots, fields, [0, 0], heavy::Part::Words(word)));
    arrays.extend(words);
    arrays
}

/// Finds the array that a measurement has by some key, and says which key.
pub(super) fn find<'a>(schema: &'a Schema, measurement: &str, part: &str) -> Result<Option<(KeyKind, &'a Table)>, Failure> {
    for key in KeyKind::ALL {
        match schema.table(&names::of(measurement, key, part)) {
            Ok(table) => return Ok(Some((key, table))),
            Err(SchemaError::Missing { .. }) => {}
            Err(error) => return Err(Failure::program(error)),
        }
    }
    Ok(None)
}

/// The elements of a bank as a power of two.
pub(super) fn bits_of_bank(table: &Table) -> Result<u32, Failure> {
    let per_bank = table.size / BANKS as u64;
    if !per_bank.is_power_of_two() || per_bank * BANKS as u64 != table.size {
        let problem = format!("{} has {} registers, which are not two banks of a power of two", table.name, table.size);
        return Err(Failure::program(problem));
    }
    Ok(per_bank.trailing_zeros())
}

pub(super) fn wrong(item: &str, is: String, must: String) -> Failure {
    Failure::program(format!("{item} is {is} and must be {must}"))
}

impl Array {
    /// Checks that the program has it so.
    pub(super) fn check(&self, schema: &Schema) -> Result<(), Failure> {
        let find = |error: SchemaError| Failure::program(format!("{error}; is it p4/flowgauge.p4?"));
        let table = schema.table(&self.table).map_err(find)?;
        table.key(names::REGISTER_INDEX).map_err(find)?;
        let size = (self.per_bank * BANKS) as u64;
        if table.size != size {
            return Err(wrong(&table.name, format!("{:?} of {}", table.kind, table.size), format!("a register of {size}")));
        }
        for field in self.fields {
            let bits = table.field(field).map_err(find)?.kind.bits().map_err(Failure::program)?;
            if table.kind != TableKind::Register || bits != self.bits {
                let (is, must) = (format!("{:?} of {bits} bits", table.kind), format!("a register of {} bits", self.bits));
                return Err(wrong(&table.name, is, must));
            }
        }
        Ok(())
    }

    /// Adds a bank of it, merged over all pipes, to what was read, out of an answer with both banks. Gives the number of pipes.
    ///
    /// Whatever does not hold each element of each pipe once, in its width and, if it is a level, one that a hash can give, is refused.
    pub(super) fn read(
        &self,
        program: &Program,
        settings: &Settings,
        bank: usize,
        answer: &[proto::TableEntry],
        reading: &mut Reading,
    ) -> Result<usize, Failure> {
        let table = program.table(&self.table)?;
        let mut values = Vec::new();
        for field in self.fields {
            values.push(table.field(field).map_err(Failure::program)?);
        }
        let highest = match self.part {
            Part::Levels => u64::from(settings.cardinality.precision.max_level()),
            _ => u64::MAX,
        };
        let (mut raised, mut pipes) = (Vec::new(), None);
        let mut halves = [Vec::new(), Vec::new()];
        for (index, message) in program.indexed(table, names::REGISTER_INDEX, answer)?.into_iter().enumerate() {
            let name = || format!("{}[{index}]", table.name);
            let fields = message.data.as_ref().map(|data| &data.fields[..]).unwrap_or_default();
            halves.iter_mut().for_each(Vec::clear);
            for field in fields {
                let mut known = values.iter().zip(&mut halves);
                let known = known.find_map(|(value, half)| number(field, value.id).map(|bytes| (value, half, bytes)));
                let (value, half, bytes) = known.ok_or_else(|| Failure::answer(format!("{} has another field", name())))?;
                let number = value.kind.decode(bytes).map_err(|error| Failure::answer(format!("{}: {error}", name())))?;
                if number > highest {
                    return Err(Failure::answer(format!("{} is {number}, no hash gives more than {highest}", name())));
                }
                half.push(number);
            }
            let [lower, upper] = &halves;
            let some = lower.len();
            if some * values.len() != fields.len() || some == 0 || *pipes.get_or_insert(some) != some {
                let others = pipes.unwrap_or_default();
                return Err(Failure::answer(format!("{} has values of {some} pipes, others of {others}", name())));
            }
            if let Some(index) = index.checked_sub(bank * self.per_bank).filter(|index| *index < self.per_bank) {
                for (pipe, (lower, upper)) in lower.iter().zip(upper.iter().chain(std::iter::repeat(&0))).enumerate() {
                    reading.merge(self.part, settings, pipe, index, [*lower, *upper]);
                }
                let is_raised = |(half, empty): (&Vec<u64>, u32)| half.iter().any(|value| *value != u64::from(empty));
                if halves.iter().zip(self.empty).any(is_raised) {
                    raised.push(index);
                }
            }
        }
        reading.raised.push(raised);
        Ok(pipes.unwrap_or_default())
    }
}
