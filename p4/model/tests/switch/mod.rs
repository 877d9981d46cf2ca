//! A model that runs flowgauge.p4, set up as a controller would.
#![allow(unreachable_pub, reason = "nothing is reachable in a test binary")]

use flowgauge_core::{Bank, Settings};
use flowgauge_dataplane::Tables;
use flowgauge_p4_model::{ActionCall, Counted, Entry, Match, Model, Options, Pipes};

const RANK: &str = "pipe.Ingress.flowgauge.cardinality.rank";
const REGISTERS: &str = "pipe.Ingress.flowgauge.cardinality.registers";
const FRAMES: &str = "pipe.Ingress.flowgauge.counters.frames";
const BANK: &str = "pipe.Ingress.flowgauge.bank";
const PORTS: &str = "pipe.Ingress.forward.ports";
const CLASSES: usize = 8;

pub struct Switch {
    pub model: Model,
    settings: Settings,
    next_port: u16,
}

fn call(action: &str, name: &str, value: &[u8]) -> ActionCall {
    ActionCall { action: action.to_owned(), data: vec![(name.to_owned(), value.to_vec())] }
}

impl Switch {
    pub fn new(settings: &Settings, seed: u64) -> Self {
        let cardinality = settings.cardinality;
        let options = Options::default()
            .define("FLOWGAUGE_KEY", cardinality.key as u8)
            .define("FLOWGAUGE_HASH", cardinality.hash as u8)
            .define("FLOWGAUGE_PRECISION", cardinality.precision.bits());
        let model = Model::flowgauge(&options).unwrap();
        let mut switch = Switch { model, settings: *settings, next_port: 0 };
        switch.install(&Tables::new(settings, seed));
        switch
    }

    fn install(&mut self, tables: &Tables) {
        let bytes = self.settings.cardinality.precision.rank_bits().div_ceil(8) as usize;
        for entry in &tables.rank {
            let value = entry.value.to_be_bytes()[4 - bytes..].to_vec();
            let key = vec![("rank_bits".to_owned(), Match::Lpm { value, length: entry.prefix_length })];
            let call = call("Ingress.flowgauge.cardinality.set_level", "level", &[entry.level]);
            self.model.add_entry(RANK, &Entry { key, priority: 0, call }).unwrap();
        }
        if self.settings.cardinality.hash == flowgauge_core::HashMode::Crc32 {
            return;
        }
        for (number, words) in tables.tabulation.tables().iter().enumerate() {
            for (byte, word) in (0..=255).zip(words) {
                let key = vec![("byte".to_owned(), Match::Exact(vec![byte]))];
                let call = call(&format!("Ingress.flowgauge.hash.set_word{number}"), "word", &word.to_be_bytes());
                let table = format!("pipe.Ingress.flowgauge.hash.tabulation{number}");
                self.model.add_entry(&table, &Entry { key, priority: 0, call }).unwrap();
            }
        }
    }

    pub fn forward(&mut self, from: u16, to: u16) {
        let key = vec![("ingress_port".to_owned(), Match::Exact(from.to_be_bytes().to_vec()))];
        let call = call("Ingress.forward.send", "port", &to.to_be_bytes());
        self.model.add_entry(PORTS, &Entry { key, priority: 0, call }).unwrap();
    }

    /// Lets a frame arrive at one pipe after another.
    pub fn inject(&mut self, frame: &[u8]) {
        self.next_port = (self.next_port + 128) % 256;
        self.model.inject(self.next_port, frame).unwrap();
    }

    pub fn set_bank(&mut self, bank: u8) {
        self.model.set_default_action(BANK, &call("Ingress.flowgauge.set_bank", "bank", &[bank])).unwrap();
    }

    /// A bank, merged over the pipes.
    pub fn bank(&self, bank: usize) -> Bank {
        let precision = self.settings.cardinality.precision;
        let mut merged = Bank::new();
        for pipe in 0..self.model.pipes() {
            let start = bank * precision.registers();
            let levels = self.model.register_range(REGISTERS, 0, start..start + precision.registers(), pipe).unwrap();
            let mut one = Bank::new();
            for (register, level) in one.cardinality.levels_mut(precision).iter_mut().zip(levels) {
                *register = u8::try_from(level).unwrap();
            }
            let class = |class| self.model.read_counter(FRAMES, bank * CLASSES + class, Pipes::One(pipe)).unwrap();
            let counted: Vec<Counted> = (0..CLASSES).map(class).collect();
            one.counters.bytes = counted.iter().map(|class| class.bytes).sum();
            one.counters.ipv4 = counted[0].packets;
            one.counters.ipv6 = counted[1].packets;
            one.counters.non_ip = counted[2].packets;
            one.counters.truncated = counted[3].packets;
            one.counters.bad_header = counted[4].packets;
            merged.merge(&one, &self.settings);
        }
        merged
    }

    pub fn clear(&mut self, bank: usize) {
        let registers = self.settings.cardinality.precision.registers();
        self.model.clear_register_range(REGISTERS, bank * registers..(bank + 1) * registers, Pipes::All).unwrap();
        for class in 0..CLASSES {
            self.model.write_counter(FRAMES, bank * CLASSES + class, Pipes::All, Counted::default()).unwrap();
        }
    }
}
