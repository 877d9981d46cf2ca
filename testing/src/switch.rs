//! A simulated switch with the program `p4/flowgauge.p4`, as far as a client can observe: it stores
//! tables and counts with them. Packets are parsed by the suite's model.

use crate::definitions::{Verdict, crc32, verdict};
use crate::memory::{Memory, State};
use crate::model::serve;
use flowgauge_bfruntime::server::{RunningServer, Server, Target};
use flowgauge_bfruntime::{Key, Match};
use flowgauge_core::heavy::{self, Algorithm};
use flowgauge_core::{HashMode, KeyKind, Precision, Settings, cardinality, sketch};
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_dataplane::tofino::definitions;
use std::sync::Arc;

const PREFIX: &str = "pipe.Ingress.flowgauge";

/// Returns the schema of `p4/flowgauge.p4` compiled for these settings.
pub fn schema(settings: &Settings) -> String {
    let cardinality = settings.cardinality;
    let (p, rank_bits) = (cardinality.precision.bits(), cardinality.precision.rank_bits());
    let by = by(cardinality.key);
    let fields: &[(&str, u32)] = match cardinality.key {
        KeyKind::Src => &[("src_addr", 1)],
        KeyKind::Dst => &[("dst_addr", 1)],
        KeyKind::SrcDst => &[("src_addr", 1), ("dst_addr", 1)],
        KeyKind::FiveTuple => &[("src_addr", 1), ("dst_addr", 1), ("ports", 0), ("protocol", 0)],
    };
    let hash = |id: u32, family: &str, width: u32| {
        let keys = fields.iter().zip(1..).map(|((name, address), id)| {
            let width = if *address == 1 { width } else { 32 };
            key(id, &format!("hdr.{family}.{name}"), "Exact", &bytes(width))
        });
        let (keys, name) = (keys.collect::<Vec<_>>(), format!("hash.{by}.{family}_crc.compute"));
        table(id, &name, "DynHashCompute", 1, &keys.join(","), "", "")
    };
    let bank = matching(11, "bank", 1, "", &action(101, "set_bank", &[("bank", 1)]));
    let name = format!("cardinality_by_{by}");
    let rank = key(1, "rank_bits", "LPM", &bytes(rank_bits));
    let set_level = action(102, &format!("{name}.set_level"), &[("level", 8)]);
    let counters = [(65553, "$COUNTER_SPEC_BYTES"), (65554, "$COUNTER_SPEC_PKTS")]
        .map(|(id, name)| datum(id, name, r#""uint64""#));
    let counter = key(65556, "$COUNTER_INDEX", "Exact", r#""uint32""#);
    let mut tables = vec![
        bank.replacen('{', &format!(r#"{{"annotations": [{}], "#, statement(settings)), 1),
        matching(12, &format!("{name}.rank"), 32, &rank, &set_level),
        array(13, &format!("{name}.registers"), 2 << p, 8, &["f1"]),
        table(14, "counters.frames", "Counter", 16, &counter, "", &counters.join(",")),
        hash(15, "ipv4", 32),
        hash(16, "ipv6", 128),
    ];
    if settings.hash == HashMode::Tabulated {
        tables.extend(words(20, "hash.tabulation"));
    }
    tables.extend(of_sketches(settings));
    format!(
        r#"{{"schema_version": "1.0.0", "tables": [{}], "learn_filters": []}}"#,
        tables.join(",")
    )
}

/// Returns the annotations by which the program states its settings.
fn statement(settings: &Settings) -> String {
    let defaults = ["SECOND", "BITS", "ALARM"].map(|part| format!("FLOWGAUGE_ENTROPY_{part}"));
    let defaults = defaults.into_iter().chain(["FLOWGAUGE_MATCH".to_owned()]).map(|name| (name, 0));
    let stated = definitions(settings).unwrap().into_iter();
    let all = defaults.chain(stated.map(|(name, value)| (name.to_owned(), value)));
    let annotations = all
        .map(|(name, value)| format!(r#"{{"name": "@user_annotation(\"{name}\", \"{value}\")"}}"#));
    annotations.collect::<Vec<_>>().join(",")
}

/// Returns a key's name as part of a name in P4.
fn by(key: KeyKind) -> String {
    key.name().replace('-', "_")
}

/// Returns the tables of sketches, filters and heavy hitters, all by the key of distinct flows,
/// whose CRC exists.
fn of_sketches(settings: &Settings) -> Vec<String> {
    let Settings { entropy: [entropy, _], frequency, membership, heavy, .. } = settings;
    let by = by(settings.cardinality.key);
    let off = cardinality::Settings { mode: cardinality::Mode::Off, ..settings.cardinality };
    let rows = |first: u32, name: &str, sketch: &sketch::Settings| {
        let (name, columns) = (format!("{name}_by_{by}"), sketch.shape.columns());
        let kind = sketch.mode.sketch().map(|kind| kind.name().replace('-', "_"));
        let row = |(kind, row): (&String, u32)| {
            array(first + row, &format!("{name}.{kind}{row}"), 2 * columns, 32, &["f1"])
        };
        kind.iter().flat_map(|kind| (0..3).map(move |row| (kind, row))).map(row).collect::<Vec<_>>()
    };
    let has_rows = Settings { cardinality: off, heavy: heavy::Settings::DEFAULT, ..*settings }
        .uses(settings.cardinality.key);
    let mut tables = Vec::new();
    if has_rows {
        tables.extend(words(30, &format!("hash.{by}_rows.tabulation")));
    }
    tables.extend(rows(40, "entropy", entropy));
    if entropy.mode != sketch::Mode::Off {
        let name = format!("entropy_by_{by}");
        tables.push(array(43, &format!("{name}.sum"), 2, 32, &["low", "high"]));
        let set_term = action(144, &format!("{name}.set_term"), &[("value", 32), ("inverted", 32)]);
        let count = key(1, "count", "LPM", &bytes(32));
        tables.push(matching(44, &format!("{name}.logarithm"), 512, &count, &set_term));
    }
    tables.extend(rows(50, "frequency", frequency));
    if membership.on {
        let cells = 1 << (membership.shape.column_bits() - 5);
        tables.extend((0..3).map(|row| {
            array(60 + row, &format!("membership_by_{by}.bits{row}"), 2 * cells, 32, &["f1"])
        }));
    }
    if heavy.algorithm != Algorithm::Off {
        let (name, slots) = (format!("heavy_by_{by}"), heavy.slots());
        let keys = [
            key(1, "count", "Ternary", &bytes(32)),
            key(2, "coin", "Ternary", &bytes(32)),
            key(65537, "$MATCH_PRIORITY", "Exact", r#""uint32""#),
        ];
        let admit = action(170, &format!("{name}.admit"), &[]);
        let array = |id: u32, part: &str, size: usize, fields: &[&str]| {
            array(id, &format!("{name}.{part}"), size, 32, fields)
        };
        tables.push(matching(70, &format!("{name}.admission"), 64, &keys.join(","), &admit));
        tables.push(array(71, "packets", 2, &["f1"]));
        tables.extend(
            [(72, "flows0"), (73, "flows1")]
                .map(|(id, stage)| array(id, stage, slots, &["signature", "count"])),
        );
        tables.push(array(74, "origin", 2 * slots, &["inherited", "version"]));
        tables.push(array(75, "src_upper", 2 * slots, &["high", "low"]));
        tables.push(array(76, "src_lower", 2 * slots, &["high", "low"]));
    }
    tables
}

/// Tables of the words of a tabulation.
fn words(first: u32, name: &str) -> impl Iterator<Item = String> {
    (0..4).map(move |index| {
        let byte = key(1, "byte", "Exact", &bytes(8));
        let set_words = format!("{name}.set_words{index}");
        let set_words = action(100 + first + index, &set_words, &[("low", 32), ("high", 32)]);
        matching(first + index, &format!("{name}.words{index}"), 256, &byte, &set_words)
    })
}

/// Table of an action.
fn matching(id: u32, name: &str, size: u32, keys: &str, action: &str) -> String {
    table(id, name, "MatchAction_Direct", size, keys, action, "")
}

/// Array of registers of this many bits.
fn array(id: u32, name: &str, size: usize, bits: u32, fields: &[&str]) -> String {
    let data = fields
        .iter()
        .zip(1..)
        .map(|(field, id)| datum(id, &format!("Ingress.flowgauge.{name}.{field}"), &bytes(bits)));
    let data: Vec<String> = data.collect();
    let index = key(65557, "$REGISTER_INDEX", "Exact", r#""uint32""#);
    table(id, name, "Register", size as u32, &index, "", &data.join(","))
}

/// Type of a field of this many bits.
fn bytes(bits: u32) -> String {
    format!(r#""bytes", "width": {bits}"#)
}

fn table(
    id: u32,
    name: &str,
    kind: &str,
    size: u32,
    keys: &str,
    actions: &str,
    data: &str,
) -> String {
    let operations = if kind.starts_with("Match") { "" } else { r#""Sync""# };
    format!(
        r#"{{"name": "{PREFIX}.{name}", "id": {id}, "table_type": "{kind}", "size": {size}, "key": [{keys}],
            "action_specs": [{actions}], "data": [{data}], "supported_operations": [{operations}], "attributes": []}}"#
    )
}

fn key(id: u32, name: &str, match_type: &str, kind: &str) -> String {
    format!(
        r#"{{"id": {id}, "name": "{name}", "mandatory": false, "match_type": "{match_type}", "type": {{"type": {kind}}}}}"#
    )
}

fn action(id: u32, name: &str, parameters: &[(&str, u32)]) -> String {
    let parameters = parameters.iter().zip(1..).map(|((name, bits), id)| {
        format!(r#"{{"id": {id}, "name": "{name}", "mandatory": true, "type": {{"type": "bytes", "width": {bits}}}}}"#)
    });
    let parameters: Vec<String> = parameters.collect();
    format!(
        r#"{{"id": {id}, "name": "Ingress.flowgauge.{name}", "action_scope": "TableAndDefault", "data": [{}]}}"#,
        parameters.join(",")
    )
}

fn datum(id: u32, name: &str, kind: &str) -> String {
    format!(
        r#"{{"mandatory": false, "read_only": false, "singleton": {{"id": {id}, "name": "{name}", "type": {{"type": {kind}}}}}}}"#
    )
}

/// A simulated switch.
#[derive(Clone)]
pub struct Switch {
    pub memory: Arc<Memory>,
    settings: Settings,
    pipes: u32,
}

/// Tables of the switch, as packets look them up.
struct Lookup {
    bank: usize,
    words: Vec<[Option<u32>; 256]>,
    rank: Vec<(u32, u32, u8)>,
    default_level: u8,
}

impl Switch {
    pub fn new(settings: Settings, pipes: u32) -> Self {
        Switch { memory: Arc::new(Memory::new(&schema(&settings), pipes)), settings, pipes }
    }

    /// Returns the same switch after a power failure.
    pub fn fresh(&self) -> Self {
        Switch::new(self.settings, self.pipes)
    }

    pub fn serve(&self) -> RunningServer {
        serve(Arc::clone(&self.memory) as Arc<dyn Target>)
    }

    pub fn server(&self) -> Server {
        Server::new(Arc::clone(&self.memory) as Arc<dyn Target>).unwrap()
    }

    /// Counts frames, which arrive at the pipes in turn.
    pub fn count(&self, frames: &[OwnedFrame]) {
        let mut state = self.memory.state();
        let lookup = Lookup::new(&state, &self.settings);
        for (frame, pipe) in frames.iter().zip((0..self.pipes as usize).cycle()) {
            self.count_one(&mut state, &lookup, pipe, frame);
        }
    }

    fn count_one(&self, state: &mut State, lookup: &Lookup, pipe: usize, frame: &OwnedFrame) {
        let (class, key) = match verdict(frame, self.settings.cardinality.key) {
            Verdict::V4(key) => (0, Some(key)),
            Verdict::V6(key) => (1, Some(key)),
            Verdict::NonIp => (2, None),
            Verdict::Truncated => (3, None),
            Verdict::BadHeader => (4, None),
        };
        state.macs.entry((pipe as u32) << 7).or_default().received += 1;
        let counters = state.hardware.get_mut(&format!("{PREFIX}.counters.frames")).unwrap();
        let counter = &mut counters[pipe][lookup.bank << 3 | class];
        for (name, more) in
            [("$COUNTER_SPEC_PKTS", 1), ("$COUNTER_SPEC_BYTES", u64::from(frame.wire_length))]
        {
            let value = u64::from_be_bytes(counter[name][..].try_into().unwrap()) + more;
            counter.insert(name.to_owned(), value.to_be_bytes().to_vec());
        }
        let Some(key) = key else { return };
        let precision: Precision = self.settings.cardinality.precision;
        let hash = lookup.hash(crc32(&key));
        let rank_bits = precision.rank_bits();
        let level = lookup.level(hash & ((1 << rank_bits) - 1), rank_bits);
        let index = lookup.bank << precision.bits() | (hash >> rank_bits) as usize;
        let registers = state
            .hardware
            .get_mut(&format!(
                "{PREFIX}.cardinality_by_{}.registers",
                by(self.settings.cardinality.key)
            ))
            .unwrap();
        let register = registers[pipe][index].values_mut().next().unwrap();
        register[0] = register[0].max(level);
    }
}

impl Lookup {
    fn new(state: &State, settings: &Settings) -> Self {
        let mode = settings.hash;
        let rank_table = format!("cardinality_by_{}.rank", by(settings.cardinality.key));
        let default = |table: &str| state.defaults.get(&format!("{PREFIX}.{table}"));
        let entries =
            |table: &str| state.entries.get(&format!("{PREFIX}.{table}")).into_iter().flatten();
        let exact = |key: &Key| match &key["byte"] {
            Match::Exact(bytes) => usize::from(bytes[0]),
            other => panic!("{other:?}"),
        };
        let words = (0..if mode == HashMode::Tabulated { 4 } else { 0 }).map(|index| {
            let mut words = [None; 256];
            for (key, data) in entries(&format!("hash.tabulation.words{index}")) {
                words[exact(key)] =
                    Some(u32::from_be_bytes(data.bytes("low").unwrap().try_into().unwrap()));
            }
            words
        });
        let rank = entries(&rank_table).map(|(key, data)| match &key["rank_bits"] {
            Match::Lpm { value, prefix_length } => {
                let value = value.iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
                (value, *prefix_length, data.bytes("level").unwrap()[0])
            }
            other => panic!("{other:?}"),
        });
        Lookup {
            bank: default("bank").map_or(0, |data| usize::from(data.bytes("bank").unwrap()[0])),
            words: words.collect(),
            rank: rank.collect(),
            default_level: default(&rank_table).map_or(0, |data| data.bytes("level").unwrap()[0]),
        }
    }

    /// Computes the hash; a missing word is zero, as metadata is.
    fn hash(&self, crc: u32) -> u32 {
        if self.words.is_empty() {
            return crc;
        }
        let word = |(words, byte): (&[Option<u32>; 256], u8)| words[usize::from(byte)].unwrap_or(0);
        self.words.iter().zip(crc.to_be_bytes()).map(word).fold(0, |hash, word| hash ^ word)
    }

    fn level(&self, rank: u32, bits: u32) -> u8 {
        let matches = |(value, length, _): &&(u32, u32, u8)| {
            rank >> (bits - length) == value >> (bits - length)
        };
        self.rank
            .iter()
            .filter(matches)
            .max_by_key(|(_, length, _)| *length)
            .map_or(self.default_level, |(_, _, level)| *level)
    }
}
