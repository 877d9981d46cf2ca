//! Model that runs flowgauge.p4, set up as a controller would.

use crate::common::{add, call, counted, exact, set_default};
use flowgauge_bfruntime::server::{Query, Write};
use flowgauge_bfruntime::{Data, Entry, Match, Pipes};
use flowgauge_core::Grid;
use flowgauge_core::cardinality::rank_table;
use flowgauge_core::entropy::DERIVATIVE_OF_LOG;
use flowgauge_core::logarithm::PER_PACKET;
use flowgauge_core::spread::{self, Candidate, Pair, Spread};
use flowgauge_core::{
    Counters, FlowKey, HashMode, KeyKind, Settings, SketchTotals, WindowTotals, Zeroed,
    cardinality, sketch,
};
use flowgauge_dataplane::tofino::definitions;
use flowgauge_dataplane::{HashWords, Tables};
use flowgauge_p4_model::{Model, Options};
use flowgauge_testing::definitions::crc32;
use std::ops::Range;

const FRAMES: &str = "pipe.Ingress.flowgauge.counters.frames";
const BANK: &str = "pipe.Ingress.flowgauge.bank";
const PORTS: &str = "pipe.Ingress.forward.ports";
const CLASSES: usize = 8;
/// Rows of the program's sketches and filter.
pub const ROWS: usize = 3;

#[derive(Clone)]
pub struct Switch {
    pub model: Model,
    /// The model before any packet.
    fresh: Model,
    settings: Settings,
    words: HashWords,
    next_port: u16,
}

/// Counts of one bank.
#[derive(PartialEq, Eq)]
pub struct Window {
    pub bank: Box<WindowTotals>,
}

impl Window {
    pub fn new() -> Self {
        Window { bank: WindowTotals::boxed() }
    }
}

/// Returns the indices of a bank in a register that has `elements` of each bank.
fn of_bank(bank: usize, elements: usize) -> Range<usize> {
    bank * elements..(bank + 1) * elements
}

/// Returns the key's name as part of a name in P4.
fn by(key: KeyKind) -> String {
    key.name().replace('-', "_")
}

/// Returns the name of a measurement in the program.
fn measurement(name: &str, key: KeyKind) -> String {
    format!("pipe.Ingress.flowgauge.{name}_by_{}", by(key))
}

impl Switch {
    pub fn new(settings: &Settings, seed: u64) -> Self {
        Self::with(settings, &Tables::new(settings, seed))
    }

    pub fn with(settings: &Settings, tables: &Tables) -> Self {
        let definitions = definitions(settings).unwrap().into_iter();
        let options = definitions
            .fold(Options::default(), |options, (name, value)| options.define(name, value));
        let model = Model::flowgauge(&options).unwrap();
        let words = tables.tabulation.clone();
        let fresh = model.clone();
        let mut switch = Switch { model, fresh, settings: *settings, words, next_port: 0 };
        switch.install(tables);
        switch
    }

    fn add(
        &mut self,
        table: &str,
        key: &str,
        matched: Match,
        action: &str,
        data: &[(&str, &[u8])],
    ) {
        let (path, _) = table.rsplit_once('.').unwrap();
        let action = format!("{}.{action}", path.strip_prefix("pipe.").unwrap());
        add(&mut self.model, table, [(key.to_owned(), matched)].into(), call(&action, data));
    }

    /// Adds a table of words, one per byte.
    fn add_words(&mut self, tabulation: &str, number: usize, words: impl Iterator<Item = u64>) {
        let table = format!("pipe.Ingress.flowgauge.{tabulation}.words{number}");
        for (byte, word) in (0..=255).zip(words) {
            let [low, high] = [word as u32, (word >> 32) as u32].map(u32::to_be_bytes);
            let (action, data) =
                (format!("set_words{number}"), [("low", &low[..]), ("high", &high[..])]);
            self.add(&table, "byte", Match::Exact(vec![byte]), &action, &data);
        }
    }

    /// Adds the tables of words of a key's rows.
    fn add_row_words(&mut self, key: &str, tables: &Tables) {
        for (number, words) in tables.tabulation.rows()[0].iter().enumerate() {
            let tabulation = format!("hash.{key}_rows.tabulation");
            self.add_words(&tabulation, number, words.iter().copied());
        }
    }

    /// Returns the sketch of distinct others, with its index.
    fn spread(&self) -> Option<(usize, spread::Settings)> {
        self.settings.spread.into_iter().enumerate().find(|(_, sketch)| sketch.on)
    }

    fn install_spread(&mut self, spread: &spread::Settings, tables: &Tables) {
        let control = measurement("spread", spread.by);
        let bytes = spread.registers.rank_bits().div_ceil(8) as usize;
        for entry in rank_table(spread.registers) {
            let value = entry.value.to_be_bytes()[4 - bytes..].to_vec();
            let prefix = Match::Lpm { value, prefix_length: entry.prefix_length };
            let table = format!("{control}.ranks");
            self.add(&table, "rank_bits", prefix, "set_rank", &[("rank", &[entry.level])]);
        }
        for level in 1..=30_u8 {
            let value = (1_u32 << (32 - u32::from(level))).to_be_bytes().to_vec();
            let prefix = Match::Lpm { value, prefix_length: level.into() };
            let table = format!("{control}.levels");
            self.add(&table, "level_bits", prefix, "set_level", &[("level", &[level])]);
        }
        if spread.pair() == Some(Pair::WithPort) {
            self.add_row_words("with_port", tables);
        }
    }

    fn install(&mut self, tables: &Tables) {
        let Settings { cardinality, entropy, .. } = self.settings;
        if cardinality.mode != cardinality::Mode::Off {
            let bytes = cardinality.precision.rank_bits().div_ceil(8) as usize;
            let table = format!("{}.rank", measurement("cardinality", cardinality.key));
            for entry in &tables.rank {
                let value = entry.value.to_be_bytes()[4 - bytes..].to_vec();
                let prefix = Match::Lpm { value, prefix_length: entry.prefix_length };
                self.add(&table, "rank_bits", prefix, "set_level", &[("level", &[entry.level])]);
            }
        }
        if cardinality.mode != cardinality::Mode::Off && self.settings.hash == HashMode::Tabulated {
            for (number, words) in tables.tabulation.tables().iter().enumerate() {
                self.add_words("hash.tabulation", number, words.iter().copied().map(u64::from));
            }
        }
        let mut rest = self.settings;
        rest.cardinality.mode = cardinality::Mode::Off;
        for key in KeyKind::ALL.into_iter().filter(|key| rest.uses(*key)) {
            self.add_row_words(&by(key), tables);
        }
        if let Some((_, spread)) = self.spread() {
            self.install_spread(&spread, tables);
        }
        for entropy in entropy.into_iter().filter(|entropy| entropy.mode != sketch::Mode::Off) {
            let table = format!("{}.logarithm", measurement("entropy", entropy.key));
            // A Count-Min counter that would be negative as a signed number represents the largest
            // one that is not.
            let largest = (entropy.mode == sketch::Mode::CountMin)
                .then(|| (1 << 31, 1, PER_PACKET.log2((1 << 31) - 1)));
            for (value, prefix_length, log2) in PER_PACKET
                .table()
                .map(|entry| (entry.value, entry.prefix_length, entry.log2))
                .chain(largest)
            {
                let term = log2 + DERIVATIVE_OF_LOG;
                let value = u32::to_be_bytes(value).to_vec();
                let prefix = Match::Lpm { value, prefix_length };
                let data: [(&str, &[u8]); 2] =
                    [("value", &term.to_be_bytes()), ("inverted", &(!term).to_be_bytes())];
                self.add(&table, "count", prefix, "set_term", &data);
            }
        }
    }

    pub fn forward(&mut self, from: u16, to: u16) {
        let from = Match::Exact(from.to_be_bytes().to_vec());
        self.add(PORTS, "ingress_port", from, "send", &[("port", &to.to_be_bytes())]);
    }

    /// Injects a frame at one pipe after another. The sketch of an entropy is separate in each
    /// pipe, so its frames go to one.
    pub fn inject(&mut self, frame: &[u8]) {
        if self.settings.entropy[0].mode == sketch::Mode::Off {
            self.next_port = (self.next_port + 128) % 256;
        }
        self.model.inject(self.next_port, frame).unwrap();
    }

    pub fn set_bank(&mut self, bank: u8) {
        let set_bank = call("Ingress.flowgauge.set_bank", &[("bank", &[bank])]);
        set_default(&mut self.model, BANK, set_bank);
    }

    /// Adds the counters of a sketch in a bank and a pipe.
    fn add_cells(
        &self,
        name: &str,
        settings: &sketch::Settings,
        bank: usize,
        pipe: usize,
        sketch: &mut SketchTotals,
    ) {
        let (columns, kind) = (settings.shape.columns(), settings.mode.sketch().unwrap());
        let rows = (0..ROWS).map(|row| {
            let register = row_of(name, settings, row);
            self.model.register_range(&register, 0, of_bank(bank, columns), pipe).unwrap()
        });
        for (index, cell) in rows.flatten().enumerate() {
            sketch.add(kind, index, u32::try_from(cell).unwrap() as i32);
        }
    }

    /// Reads the distinct others of a bank of a pipe.
    fn read_spread(&self, bank: usize, pipe: usize, totals: &mut Spread) {
        let Some((index, spread)) = self.spread() else { return };
        let (control, columns) = (measurement("spread", spread.by), spread.shape.columns());
        let of_row = columns * spread.registers.registers();
        let (registers, candidates) = totals.sketch_mut(&self.settings.spread, index);
        for row in 0..ROWS {
            let range = |name: &str, field, elements: usize| {
                let register = format!("{control}.{name}{row}");
                self.model.register_range(&register, field, of_bank(bank, elements), pipe).unwrap()
            };
            let own = registers[row * of_row..].iter_mut();
            for (register, rank) in own.zip(range("registers", 0, of_row)) {
                *register = u8::try_from(rank).unwrap();
            }
            let pair = |name: &str| [0, 1].map(|field| range(name, field, columns));
            let [priorities, address0] = pair("candidates");
            let [versions, address1] = pair("versions");
            let [address3, address2] = pair("upper");
            let mut addresses = vec![[address3, address2, address1, address0]];
            if spread.by == KeyKind::SrcDst {
                let ([dst3, dst2], [dst1, dst0]) = (pair("dst_upper"), pair("dst_lower"));
                addresses.push([dst3, dst2, dst1, dst0]);
            }
            for column in (0..columns).filter(|column| priorities[*column] != 0) {
                let skipped = match versions[column] {
                    4 => 3,
                    6 => 0,
                    version => panic!("version {version}"),
                };
                let words = addresses.iter().flat_map(|words| words.iter().skip(skipped));
                let key = words.flat_map(|words| (words[column] as u32).to_be_bytes());
                let key: Vec<u8> = key.collect();
                let (priority, signature) = (priorities[column] as u32, crc32(&key));
                let level = (priority >> 27) as u8;
                let candidate = Candidate::new(level, signature, FlowKey::new(&key), &self.words);
                assert_eq!(candidate.priority(), priority, "cell {row}, {column}: {key:?}");
                candidates[row * columns + column] = candidate;
            }
        }
    }

    /// Returns a bank, merged over the pipes.
    pub fn window(&self, bank: usize) -> Window {
        let Settings { cardinality, entropy, frequency, membership, .. } = self.settings;
        let mut merged = Window::new();
        for pipe in 0..self.model.pipes() {
            let elements = |name: &str, number: usize| {
                self.model.register_range(name, 0, of_bank(bank, number), pipe).unwrap()
            };
            let mut one = Window::new();
            if cardinality.mode != cardinality::Mode::Off {
                let precision = cardinality.precision;
                let name = format!("{}.registers", measurement("cardinality", cardinality.key));
                let levels = elements(&name, precision.registers());
                let registers = one.bank.cardinality.levels_mut(precision).iter_mut();
                for (register, level) in registers.zip(levels) {
                    *register = u8::try_from(level).unwrap();
                }
            }
            let entropies = entropy.into_iter().enumerate();
            for (index, entropy) in entropies.filter(|(_, entropy)| entropy.is_on()) {
                let sketch = &mut one.bank.entropy.sketches[index];
                self.add_cells("entropy", &entropy, bank, pipe, sketch);
                one.bank.entropy.sums[index].sum = self.sum(entropy.key, bank, pipe);
            }
            if frequency.mode != sketch::Mode::Off {
                self.add_cells("frequency", &frequency, bank, pipe, &mut one.bank.frequency);
            }
            if membership.on {
                let cells = 1 << (membership.shape.column_bits() - 5);
                let name = |row| format!("{}.bits{row}", measurement("membership", membership.key));
                let cells: Vec<u64> =
                    (0..ROWS).flat_map(|row| elements(&name(row), cells)).collect();
                let words = one.bank.membership.words_mut(membership.shape).iter_mut();
                for (word, halves) in words.zip(cells.chunks(2)) {
                    *word = halves[1] << 32 | halves[0];
                }
            }
            self.read_spread(bank, pipe, &mut one.bank.spread);
            merged.bank.unite(&one.bank, &self.settings);
        }
        merged.bank.counters = self.counters(bank);
        merged
    }

    /// Returns the sum of an entropy in a bank of a pipe.
    pub fn sum(&self, key: KeyKind, bank: usize, pipe: usize) -> u64 {
        let name = format!("{}.sum", measurement("entropy", key));
        let half =
            |field| self.model.register_range(&name, field, bank..bank + 1, pipe).unwrap()[0];
        half(1) << 32 | half(0)
    }

    /// Returns the packet counters of a bank, added over the pipes.
    pub fn counters(&self, bank: usize) -> Counters {
        let mut counters = Counters::default();
        let pipes = 0..self.model.pipes();
        for (pipe, class) in pipes.flat_map(|pipe| (0..CLASSES).map(move |class| (pipe, class))) {
            let index = (bank * CLASSES + class) as u32;
            let (count, bytes) = counted(&self.model, FRAMES, index, Pipes::One(pipe as u32));
            counters.bytes += bytes;
            let packets = match class {
                0 => &mut counters.ipv4,
                1 => &mut counters.ipv6,
                2 => &mut counters.non_ip,
                3 => &mut counters.truncated,
                4 => &mut counters.bad_header,
                _ => continue,
            };
            *packets += count;
        }
        counters
    }

    /// Resets every register and counter of a bank.
    pub fn clear(&mut self, bank: usize) {
        let schema = self.model.schema();
        let is_array = |table: &&serde_json::Value| {
            ["Register", "Counter"].contains(&table["table_type"].as_str().unwrap())
        };
        for array in schema["tables"].as_array().unwrap().iter().filter(is_array) {
            let name = array["name"].as_str().unwrap();
            let elements = self.fresh.read(name, Pipes::One(0), &Query::All).unwrap();
            let half = elements.len() / 2;
            for Entry { place, data } in elements.into_iter().skip(bank * half).take(half) {
                let write = Write::Modify(place.key().unwrap().clone(), data);
                self.model.write(name, Pipes::All, &write).unwrap();
            }
        }
    }

    /// Sets the fields of an element of a register, in all pipes.
    fn set_element(&mut self, register: &str, index: usize, values: &[u32]) {
        let key = exact("$REGISTER_INDEX", &(index as u32).to_be_bytes());
        let query = Query::Entry(key.clone());
        let element = self.model.read(register, Pipes::One(0), &query).unwrap().remove(0);
        let fields = element.data.fields.iter().zip(values);
        let fields = fields.map(|((name, _), value)| (name.as_str(), value.to_be_bytes().to_vec()));
        let write = Write::Modify(key, Data::fields(fields));
        self.model.write(register, Pipes::All, &write).unwrap();
    }

    /// Sets a whole row of the entropy's sketch, in all pipes.
    pub fn fill_row(&mut self, row: usize, value: i32) {
        let entropy = self.settings.entropy[0];
        let name = row_of("entropy", &entropy, row);
        for index in 0..2 * entropy.shape.columns() {
            self.set_element(&name, index, &[value as u32]);
        }
    }

    /// Sets the sum of a bank, in all pipes.
    pub fn set_sum(&mut self, bank: usize, sum: u64) {
        let name = format!("{}.sum", measurement("entropy", self.settings.entropy[0].key));
        self.set_element(&name, bank, &[sum as u32, (sum >> 32) as u32]);
    }
}

fn row_of(name: &str, settings: &sketch::Settings, row: usize) -> String {
    let kind = settings.mode.sketch().unwrap().name().replace('-', "_");
    format!("{}.{kind}{row}", measurement(name, settings.key))
}

/// Returns a shape that the program can have.
pub fn shape(column_bits: u32) -> Grid {
    Grid::of_counters(ROWS, 1 << column_bits).unwrap()
}
